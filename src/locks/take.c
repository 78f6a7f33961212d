/* take.c: takes a lock: the owner's hold once more, or requests to the store until one is
 * granted or time is up.
 *
 * All requests of one taking have the same token: the store answers a repeated request like the
 * first one, so a request whose reply was lost is simply repeated. A taking that ends without the
 * lock sends UNLOCK if a request may have left a hold, or a place in the store's queue. */
#include "locks/taking.h"

#include <stdio.h>

#include "os/env.h"
#include "record/lock_record.h"
#include "policy/policy.h"
#include "store/put.h"
#include "store/registry.h"
#include "base/status.h"

enum {
  /* longest pause of a waiter that watches, since the watch may break unnoticed */
  NAP_MOST_MS = 1000,
  /* longest pause of a waiter whose turn may come meanwhile, and would be passed on after
   * CORRAL_LOCK_TURN_MS */
  TURN_NAP_MS = 150,
  /* wakes in a row without the lock, after which a writer leaves the watch for a while */
  FRUITLESS = 3,
  CHANGES = 3 /* changes of the record that a turn makes: a release, a grant, a place */
};

/* ---- requests ------------------------------------------------------------------------------ */

static void emit(const crl_taking *t, corral_event event, const char *detail) {
  crl_event_emit(&t->context->events, event, t->lock->key.user, t->lock->key.user_len, detail);
}

/* Has the lock's key registered, whose record is as this look found it. 1: its next change will be
 * told. */
static int is_registered(crl_taking *t, const corral_op *look) {
  crl_watch_key key = {.data = look->key, .len = look->key_len, .hash = t->lock->entry.hash};
  int known = look->status == CORRAL_OK || look->status == CORRAL_EMISS;
  return known && crl_watch_register(t->context->watch, &t->watcher, &key,
                                     crl_watch_print(look->found.record, look->found.len));
}

static void tell_locked(const crl_taking *t) {
  corral_event_info info =
      crl_event_info(CORRAL_EVENT_LOCKED, t->lock->key.user, t->lock->key.user_len);
  info.duration_us = crl_env_now_us() - t->began_us;
  crl_stats_add_time(&t->context->events.stats, CORRAL_TIME_LOCK_WAIT, info.duration_us);
  crl_event_tell(&t->context->events, &info);
}

/* The number of holders that the lock may have at once, this taking included. */
static size_t places(const crl_taking *t) {
  return t->options.permits > 0 ? (size_t)t->options.permits : 1;
}

static void look_at(crl_taking *t, corral_op *look) {
  crl_lock_head head = {0};
  t->told = is_registered(t, look);
  t->free = look->status == CORRAL_EMISS;
  if (look->status == CORRAL_OK &&
      crl_lock_record_read(look->found.record, look->found.len, &head) == CORRAL_OK)
    t->free = crl_lock_holders(look, t->context, t->lock->entry.hash, NULL, 0) < places(t) &&
              head.wish_until <= look->lock_state.now && crl_lock_ahead(look, t->lock) == 0;
  crl_lock_op_drop(look);
}

/* Foreign content at the key that never ends: reported, and given an end if repair_ms is set. */
static int meet_foreign(crl_taking *t) {
  corral_error detail;
  if (t->other_ms >= 0) return CORRAL_EBUSY;
  if (!t->foreign) emit(t, CORRAL_EVENT_LOCK_FOREIGN, t->detail.text);
  t->foreign = 1;
  if (t->options.repair_ms <= 0) return CORRAL_EFOREIGN;
  corral_op op = crl_lock_op(t->lock, CORRAL_VERB_LOCK_SHOW, &detail);
  op.flags = CORRAL_OP_REPAIR;
  op.lock_show.foreign_ms = t->options.repair_ms;
  crl_pool_perform(t->context->pool, &op, 1, crl_env_now_ms() + t->context->op_ms);
  int repaired = op.status == CORRAL_EFOREIGN && op.lock_state.left_ms >= 0,
      gone = op.status == CORRAL_EMISS || op.status == CORRAL_OK;
  if (repaired) emit(t, CORRAL_EVENT_LOCK_REPAIRED, NULL);
  if (repaired) t->other_ms = op.lock_state.left_ms;
  crl_lock_op_drop(&op);
  return repaired || gone ? CORRAL_EBUSY : CORRAL_EFOREIGN;
}

/* The hold was granted, but is of no use. */
static int give_up(crl_taking *t, int status, const char *what, const char *why) {
  t->doubtful = 1;
  return crl_status_fail(&t->detail, status, "%s: %.160s", what, why);
}

/* Raises the granted fencing token above those that this process has seen: a server that forgot the
 * lock, and whose clock is behind, gave it. The record then has it, and later tokens are larger. */
static int raise_fence(crl_taking *t, uint64_t least) {
  static const char what[] = "the fencing token could not be raised above earlier ones";
  corral_error detail;
  if (t->lock->fence >= least) return CORRAL_OK;
  corral_op op = crl_lock_op(t->lock, CORRAL_VERB_LOCK_EXTEND, &detail);
  op.lock_extend = (corral_lock_extend_args){.hold_ms = t->lock->ttl_ms, .fence = least};
  int64_t sent = crl_env_boot_ms();
  crl_pool_perform(t->context->pool, &op, 1, crl_env_now_ms() + t->context->op_ms);
  switch (op.status) {
    case CORRAL_OK:
      crl_lock_granted(t->lock, &op, sent);
      t->lock->fence = op.lock_state.fence;
      if (t->counters == NULL || op.lock_state.fence >= least) return CORRAL_OK;
      return give_up(t, CORRAL_EUNSUPPORTED, what, "this store's tokens are its own");
    case CORRAL_ELOST:
    case CORRAL_EINDOUBT:
    case CORRAL_EUNAVAILABLE: return give_up(t, CORRAL_EINDOUBT, what, detail.text);
    default:
      if (t->counters != NULL) return give_up(t, op.status, what, detail.text);
      emit(t, CORRAL_EVENT_LOCK_FENCE, detail.text);
      return CORRAL_OK;
  }
}

/* Notes the place in the queue that a refusal told. A waiter that moves up looks often again. */
static void note_place(crl_taking *t, size_t place) {
  int64_t now = crl_env_now_us();
  if (place == t->place) return;
  if (place > 0 && place < t->place)
    t->each_us = (now - t->placed_us) / (int64_t)(t->place - place);
  t->place = place;
  t->placed_us = now;
  t->pauses = 0;
}

/* The fencing token of a hold that was granted: larger than all that are known, here or, with
 * `counters`, there. */
static int set_fence(crl_taking *t) {
  uint64_t floor = t->lock->fence > t->seen ? t->lock->fence : t->seen, least = t->seen + 1;
  corral_error detail = {0};
  int status = t->counters == NULL ? CORRAL_OK
                                   : crl_fence_count(t->counters, t->lock, floor, &least, &detail);
  if (status != CORRAL_OK) return give_up(t, status, "the hold was given back", detail.text);
  status = raise_fence(t, least);
  if (status != CORRAL_OK || crl_lock_left_ms(t->lock) > 0) return status;
  return give_up(t, CORRAL_EINDOUBT, "the lock was granted too late",
                 "its time had passed when the reply came");
}

static int judge(crl_taking *t, const corral_op *op) {
  t->other_ms =
      op->status == CORRAL_EBUSY || op->status == CORRAL_EFOREIGN ? op->lock_state.left_ms : -1;
  switch (op->status) {
    case CORRAL_OK:
      crl_lock_granted(t->lock, op, t->sent);
      t->lock->fence = op->lock_state.fence;
      return set_fence(t);
    case CORRAL_EFOREIGN: return meet_foreign(t);
    case CORRAL_EBUSY:
      t->doubtful |=
          op->flags & CORRAL_OP_QUEUED || (op->flags & CORRAL_OP_FAIR && op->lock.wish_ms > 0);
      if (t->options.fair > 0) note_place(t, (size_t)op->lock_state.fence);
      return CORRAL_EBUSY;
    case CORRAL_EINDOUBT:
    case CORRAL_EPROTOCOL:
    case CORRAL_EREFUSED: t->doubtful = 1; return op->status;
    default: return op->status;
  }
}

/* Sends LOCK. A taking that watches sends LOCK_SHOW along, where its key must be registered. */
static int ask(crl_taking *t) {
  corral_error unused;
  corral_op ops[2] = {crl_lock_op(t->lock, CORRAL_VERB_LOCK, &t->detail),
                      crl_lock_op(t->lock, CORRAL_VERB_LOCK_SHOW, &unused)};
  ops[0].lock = (corral_lock_args){.hold_ms = t->lock->ttl_ms,
                                   .wish_ms = t->deadline != 0 ? CORRAL_LOCK_WISH_MS : 0,
                                   .note = t->lock->note,
                                   .note_len = strlen(t->lock->note),
                                   .permits = t->lock->is_permit ? (uint32_t)places(t) : 0};
  ops[0].flags = (t->options.shared > 0 ? CORRAL_OP_SHARED : 0u) |
                 (t->watches ? CORRAL_OP_WATCH : 0u) | (t->options.fair > 0 ? CORRAL_OP_FAIR : 0u) |
                 (t->lock->tied ? CORRAL_OP_TIED : 0u);
  t->told = t->free = 0;
  t->seen = crl_lock_table_fence(t->context->locks, t->lock->entry.hash, 0);
  t->sent = crl_env_boot_ms();
  emit(t, CORRAL_EVENT_LOCK_ASKED, NULL);
  int up = t->watches && crl_watch_is_up(t->context->watch);
  int looks = up && crl_watch_registers(t->context->watch) && !t->queued_there;
  crl_pool_perform(t->context->pool, ops, looks ? 2 : 1, crl_env_now_ms() + t->context->op_ms);
  if (looks) look_at(t, &ops[1]);
  t->queued_there = t->watches && (ops[0].flags & CORRAL_OP_QUEUED) != 0;
  t->told |= t->queued_there || (up && !crl_watch_registers(t->context->watch));
  return judge(t, &ops[0]);
}

/* Takes over the hold of a ticket. A repeated request finds the hold as its own. */
static int adopt(crl_taking *t) {
  corral_op op = crl_lock_op(t->lock, CORRAL_VERB_LOCK_EXTEND, &t->detail);
  t->seen = crl_lock_table_fence(t->context->locks, t->lock->entry.hash, 0);
  op.flags = (t->from.mode == CORRAL_LOCK_SHARED ? CORRAL_OP_SHARED : 0u) |
             (t->lock->tied ? CORRAL_OP_TIED : 0u);
  op.lock_extend =
      (corral_lock_extend_args){.hold_ms = t->lock->ttl_ms,
                                .fence = (t->from.fence > t->seen ? t->from.fence : t->seen) + 1,
                                .from = t->from.token,
                                .note = t->lock->note,
                                .note_len = strlen(t->lock->note)};
  t->sent = crl_env_boot_ms();
  crl_pool_perform(t->context->pool, &op, 1, crl_env_now_ms() + t->context->op_ms);
  int status = judge(t, &op);
  if (status != CORRAL_ELOST) return status;
  int taken = op.lock_state.left_ms != 0;
  crl_status_fail(&t->detail, status, "the hold that the ticket is of is over: %s",
                  taken ? "somebody else has the lock" : "its time passed, or it was released");
  t->detail.code = taken ? CORRAL_LOST_TAKEN : CORRAL_LOST_EXPIRED;
  return status;
}

/* ---- waiting ------------------------------------------------------------------------------- */

static int may_pass(int status) {
  return status == CORRAL_EBUSY || status == CORRAL_EUNAVAILABLE || status == CORRAL_EINDOUBT ||
         status == CORRAL_EREFUSED;
}

static int begin_to_watch(crl_taking *t) {
  if (t->watches || t->context->watch == NULL || !crl_watch_up(t->context->watch)) return 0;
  crl_watch_join(t->context->watch, &t->watcher, t->lock->entry.hash, &t->waiter);
  return t->watches = 1;
}

/* True when LOCK is to be repeated without a pause: the taking has just joined the watch, or the
 * last look found the lock free (not twice in a row). */
static int at_once(crl_taking *t, int status) {
  int hurried = t->hurried;
  t->hurried = 0;
  if (status != CORRAL_EBUSY) return 0;
  if (begin_to_watch(t)) return 1;
  t->hurried = t->free && !hurried;
  return t->hurried;
}

/* A release wakes all waiters: of readers each gets the lock, of writers, or of permits, only one.
 * So that not all of a crowd ask at each release, each leaves the watch after FRUITLESS wakes, for
 * the time that they took, doubled each time, at most 2 * poll_max_ms. Returns that pause in ms,
 * drawn from 50-100 % of it. */
static int64_t stand_back(crl_taking *t, uint64_t dice, int64_t now) {
  int64_t ms = (now - t->woken_at + 1) << t->backs, most = 2 * t->options.poll_max_ms;
  crl_watch_leave(t->context->watch, &t->watcher);
  t->watches = t->told = 0;
  t->fruitless = 0;
  if (ms > most)
    ms = most;
  else
    t->backs++;
  return ms / 2 + (int64_t)(dice % ((uint64_t)ms / 2 + 1));
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* The pause of a waiter for its turn, in ms. Far from that it lasts for half of the time that the
 * places before it will take if they go on as they did, and the waiter leaves the watch meanwhile:
 * so a crowd asks a few times per turn and not at each change. Where turns last so long that this
 * would be more, the waiter stays in the watch. Where the store wakes nobody, the first of the
 * queue looks as often as the first of a crowd without turns would. */
static int64_t turn_pause(crl_taking *t, uint64_t dice) {
  int is_near = t->place > 0 && t->place <= 2, is_quick = t->each_us < 1000 * CHANGES * TURN_NAP_MS;
  int64_t far_ms = t->place > 2 ? (int64_t)(t->place - 2) * t->each_us / 2000 : 0,
          most = smaller(t->options.poll_max_ms, TURN_NAP_MS);
  if (t->watches && is_quick && far_ms > 1) {
    crl_watch_leave(t->context->watch, &t->watcher);
    t->watches = t->told = 0;
    t->backs++;
    return smaller(far_ms, TURN_NAP_MS);
  }
  if (t->told) return is_near ? TURN_NAP_MS : NAP_MOST_MS;
  int64_t soon_ms = is_near ? t->each_us / 4000 : far_ms; /* where turns are quick */
  if (is_near) most /= t->place == 1 ? 8 : 4;
  if (soon_ms < t->options.poll_ms) soon_ms = t->options.poll_ms;
  if (t->each_us > 0 && soon_ms < most) most = soon_ms;
  return crl_policy_backoff(t->options.poll_ms, most > 0 ? most : 1, t->pauses++, dice);
}

/* When the first of its queue asks again, unless it is woken before. */
static int64_t pause_until(crl_taking *t) {
  uint64_t dice = crl_env_dice();
  int64_t now = crl_env_now_ms(), ms;
  if (t->options.fair > 0)
    ms = turn_pause(t, dice);
  else if (t->watches && t->fruitless >= FRUITLESS && t->options.shared <= 0)
    ms = stand_back(t, dice, now);
  else
    ms = t->told
             ? NAP_MOST_MS
             : crl_policy_backoff(t->options.poll_ms, t->options.poll_max_ms, t->pauses++, dice);
  if (t->other_ms >= 0 && t->other_ms < ms) ms = t->other_ms + 1;
  return now + ms < t->deadline ? now + ms : t->deadline;
}

void crl_taking_woken(crl_taking *t, int woken) {
  if (woken && t->pauses_now && t->watches && t->fruitless++ == 0) t->woken_at = crl_env_now_ms();
}

static int is_left(crl_taking *t) {
  return crl_cancelled(t->options.cancel_token) || atomic_load(&t->left);
}

/* No last request after the deadline: in a crowd, each waiter would send one on becoming the
 * first. */
static int may_ask(const crl_taking *t) {
  return crl_lock_table_first(&t->queued) && !(t->waits && crl_env_now_ms() >= t->deadline);
}

/* Writes ", place 3 in the queue", where the place is known. */
static const char *say_place(const crl_taking *t, const char *before, char text[48]) {
  text[0] = '\0';
  if (t->place > 0) snprintf(text, 48, "%splace %zu in the queue", before, t->place);
  return text;
}

void crl_taking_wait(crl_taking *t) {
  char place[48];
  if (!t->waits) emit(t, CORRAL_EVENT_LOCK_WAIT, t->place > 0 ? say_place(t, "", place) : NULL);
  t->waits = 1;
  t->pauses_now = crl_lock_table_first(&t->queued);
  t->until = t->pauses_now ? pause_until(t) : t->deadline;
}

/* 1: the owner has a hold of this name, and the taking is one more of that from now on. */
static int join_hold(crl_taking *t) {
  crl_hold *own = t->lock;
  crl_lock_entry *hold =
      crl_lock_table_again(t->context->locks, own->entry.hash, t->owner, own->key.stored,
                           own->key.stored_len, &own->first.taking);
  if (hold == NULL) return 0;
  own->first.hold = (crl_hold *)(void *)hold;
  if (!t->has_ttl) t->options.ttl_ms = own->first.hold->ttl_ms;
  return t->again = 1;
}

/* 1: another taking of this owner was granted the lock meanwhile, and this one shares it. */
static int joins(crl_taking *t) {
  if (t->options.reentrant <= 0 || !join_hold(t)) return 0;
  if (t->doubtful) crl_lock_unlock(t->lock, NULL);
  crl_taking_leave(t);
  return 1;
}

/* Asks until the lock is granted or can't be, the taking is left, time is up (CORRAL_EDEADLINE, or
 * the last error of the store), it shares its owner's hold, or it is to wait: 1. */
static int go_on(crl_taking *t) {
  while (!is_left(t)) {
    if (joins(t)) return 0;
    if (may_ask(t)) {
      if (t->backs > 0) (void)begin_to_watch(t); /* after stand_back */
      t->status = ask(t);
      if (!may_pass(t->status)) return 0;
      if (at_once(t, t->status) && crl_env_now_ms() < t->deadline) continue;
    }
    if (crl_env_now_ms() < t->deadline) {
      crl_taking_wait(t);
      return 1;
    }
    if (t->status == CORRAL_EBUSY) t->status = CORRAL_EDEADLINE;
    return 0;
  }
  t->status = CORRAL_ECANCELLED;
  return 0;
}

void crl_taking_queue(crl_taking *t) {
  crl_cancel_join_waiter(t->options.cancel_token, &t->canceller, &t->waiter);
  crl_lock_table_queue(t->context->locks, &t->queued, t->lock->entry.hash, &t->waiter);
}

void crl_taking_leave(crl_taking *t) {
  crl_lock_table_leave(t->context->locks, &t->queued);
  if (t->watches) crl_watch_leave(t->context->watch, &t->watcher);
  crl_cancel_leave(t->options.cancel_token, &t->canceller);
}

/* ---- taking -------------------------------------------------------------------------------- */

/* Appends ", 900 ms left", where the time is known. */
static void say_time(char text[80], const char *before, int64_t ms, const char *after) {
  size_t len = strlen(text);
  if (ms >= 0) snprintf(text + len, 80 - len, "%s%lld ms%s", before, (long long)ms, after);
}

/* Sets the error's text: "held by ...", as far as the store tells, and its time. */
static void say_who(const crl_taking *t, int status) {
  corral_error detail;
  corral_lock_holder who = {.left_ms = -1};
  if (t->error == NULL) return;
  corral_op op = crl_lock_op(t->lock, CORRAL_VERB_LOCK_SHOW, &detail);
  crl_pool_perform(t->context->pool, &op, 1, crl_env_now_ms() + t->context->op_ms);
  size_t count = crl_lock_holders(&op, t->context, t->lock->entry.hash, &who, 1);
  char times[80] = "", place[48];
  say_place(t, ", ", place);
  if (op.status == CORRAL_EFOREIGN) {
    say_time(times, ", for ", op.lock_state.left_ms, " more");
    crl_status_fail(t->error, status, "held by something that corral did not write%s", times);
  } else if (count == 0) {
    crl_status_fail(t->error, status, "somebody else had the lock%s", place);
  } else {
    say_time(times, ": for ", who.held_ms, " so far");
    say_time(times, times[0] != '\0' ? ", " : ": ", who.left_ms, " left unless it is extended");
    crl_status_fail(t->error, status, "held by %s%s%s%s", who.who, count > 1 ? " and others" : "",
                    times, place);
  }
  int64_t left = op.status == CORRAL_EFOREIGN ? op.lock_state.left_ms : who.left_ms;
  if (t->lock->is_permit && t->other_ms > 0 && t->other_ms < left) left = t->other_ms;
  if (left > 0) t->error->retry_after_ms = left;
  crl_lock_op_drop(&op);
}

static int end_without(crl_taking *t, int status) {
  if (t->doubtful) crl_lock_unlock(t->lock, NULL);
  if (status == CORRAL_EBUSY || status == CORRAL_EDEADLINE)
    say_who(t, status);
  else if (status == t->detail.status && t->detail.text[0] != '\0')
    crl_status_fail(t->error, status, "%s", t->detail.text);
  else
    crl_status_plain(t->error, status);
  if (status == CORRAL_ELOST && t->error != NULL) t->error->code = t->detail.code;
  return status;
}

/* The hash of options->owner, the calling thread or job, or this taking. */
static uint64_t owner_of(const corral_lock_options *options, int by_call) {
  if (options->owner != NULL)
    return crl_registry_host()->hash64(options->owner, strlen(options->owner)) | 1;
  return 2 * (by_call ? crl_worker_new_owner() : crl_worker_owner());
}

/* The note for other processes: "host/pid/thread note". */
static void write_note(crl_hold *hold, const char *note) {
  size_t len = crl_env_holder_thread(hold->note, sizeof hold->note);
  if (note != NULL) snprintf(hold->note + len, sizeof hold->note - len, " %.40s", note);
}

static int64_t raise_ttl(crl_hold *hold, int64_t ttl_ms) {
  int64_t seen = atomic_load(&hold->ttl_ms);
  while (ttl_ms > seen && !atomic_compare_exchange_weak(&hold->ttl_ms, &seen, ttl_ms)) {
  }
  return seen;
}

/* The owner has a hold, to which the table has added this taking: extends it when its ttl_ms is a
 * longer one, or less than half of it is left. On failure the taking is given back. */
static int take_again(corral_lock *lock, const corral_lock_options *options, corral_lock **ret,
                      corral_error *error) {
  crl_hold *hold = lock->hold;
  int status = CORRAL_OK;
  if (options->reentrant <= 0) {
    status = crl_status_fail(
        error, CORRAL_ERECURSION,
        "this owner has the lock already: waiting would be for itself (see reentrant)");
  } else if ((options->permits > 0) != hold->is_permit) {
    status =
        crl_status_fail(error, CORRAL_ERECURSION, "this owner has %s: waiting would be for itself",
                        hold->is_permit ? "a permit, and can't have the lock otherwise"
                                        : "the lock, and can't have a permit of it");
  } else if (options->shared <= 0 && atomic_load(&hold->entry.shared)) {
    status = crl_status_fail(
        error, CORRAL_ERECURSION,
        "this owner holds it shared, and can't have it alone: waiting would be for itself");
  } else if (atomic_load(&hold->lost) != 0) {
    status = crl_lock_say_lost(lock, 0, error);
  } else if (raise_ttl(hold, options->ttl_ms) < options->ttl_ms ||
             crl_lock_left_ms(hold) < options->ttl_ms / 2) {
    status = crl_lock_extend(lock, options->ttl_ms, 0, error);
  }
  if (status == CORRAL_OK) status = crl_lock_begin_again(lock, options, error);
  if (status == CORRAL_OK)
    *ret = lock;
  else
    crl_lock_give(lock, NULL);
  return status;
}

static int gives_ttl(const corral_lock_options *user) {
  return user != NULL && user->size > offsetof(corral_lock_options, ttl_ms) && user->ttl_ms != 0;
}

static int check_turns(const crl_taking *t, corral_error *error) {
  const corral_store_info *info = crl_pool_info(t->context->pool);
  if (t->options.fair <= 0 || info->turns) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED,
                         "fair: %.100s keeps no turns; all stores but redlock: do, "
                         "postgresql: with locks=advisory",
                         info->name);
}

static int check_kind(const crl_taking *t, corral_error *error) {
  const corral_store_info *info = crl_pool_info(t->context->pool);
  if (t->options.permits <= 0) return CORRAL_OK;
  if (t->options.shared > 0)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "shared and permits: one of them is accepted; permits = 1024 is for "
                           "many at once");
  if (info->permits) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EUNSUPPORTED,
                         "%.100s: this store has no permits; memory:, lmdb:, sqlite:, redis: and "
                         "memcached: have",
                         info->name);
}

/* The hold of a ticket is shared, a permit, or neither, as it was. */
static int read_ticket(crl_taking *t, corral_error *error) {
  int status = crl_ticket_check(t->context, error);
  if (status == CORRAL_OK) status = crl_ticket_read(t->lock, t->options.adopt, &t->from, error);
  t->adopts = 1;
  t->options.shared = t->from.mode == CORRAL_LOCK_SHARED ? 1 : CORRAL_OFF;
  t->options.permits = t->from.mode == CORRAL_LOCK_PERMIT ? 1 : CORRAL_OFF;
  return status;
}

/* The counter is a lock of the same name: in its own store the hold itself is in the way. */
static int enter_counters(crl_taking *t, const corral *c, corral_error *error) {
  if (t->options.fence == NULL) return CORRAL_OK;
  if (t->options.fence == c)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "fence: the lock's own store can't count beside the lock; accepted: a "
                           "corral with another store");
  return crl_context_enter(t->options.fence, &t->counters, error);
}

int crl_taking_init(crl_taking *t, corral *c, const crl_name *name, const corral_lock_options *user,
                    int by_call, corral_error *error) {
  *t = (crl_taking){.error = error, .status = CORRAL_EBUSY, .began_us = crl_env_now_us()};
  int status = crl_context_enter(c, &t->context, error);
  if (status == CORRAL_OK) status = crl_policy_lock(&t->options, user, error);
  if (status == CORRAL_OK) status = check_turns(t, error);
  if (status == CORRAL_OK) status = check_kind(t, error);
  if (status == CORRAL_OK) status = enter_counters(t, c, error);
  if (status == CORRAL_OK)
    status = crl_lock_new(t->context, name->key, name->key_len, &t->lock, error);
  if (status != CORRAL_OK) return status;
  crl_hold *hold = t->lock;
  if (t->options.adopt != NULL && (status = read_ticket(t, error)) != CORRAL_OK) {
    crl_lock_free(hold);
    return status;
  }
  t->owner = owner_of(&t->options, by_call);
  t->has_ttl = gives_ttl(user);
  hold->first.taking.shared = t->options.shared > 0;
  hold->is_permit = t->options.permits > 0;
  atomic_store(&hold->tied, crl_pool_info(t->context->pool)->ties != 0);
  if (!t->adopts && join_hold(t)) return CORRAL_OK;
  write_note(hold, t->options.note);
  hold->ttl_ms = t->options.ttl_ms;
  atomic_store(&hold->entry.shared, t->options.shared > 0);
  if (t->options.wait_ms > 0 && !t->adopts) t->deadline = t->began_us / 1000 + t->options.wait_ms;
  return CORRAL_OK;
}

int crl_taking_turn(crl_taking *t) {
  if (t->again) return 0;
  if (t->deadline != 0) return go_on(t);
  t->status = is_left(t) ? CORRAL_ECANCELLED : t->adopts ? adopt(t) : ask(t);
  return 0;
}

int crl_taking_end(crl_taking *t, corral_lock **ret) {
  if (t->again) return take_again(&t->lock->first, &t->options, ret, t->error);
  if (t->status != CORRAL_OK) {
    if (t->deadline != 0) crl_taking_leave(t);
    end_without(t, t->status);
    crl_lock_free(t->lock);
    return t->status;
  }
  crl_lock_table_fence(t->context->locks, t->lock->entry.hash, t->lock->fence);
  tell_locked(t);
  *ret = &t->lock->first;
  crl_lock_begin(t->lock, &t->options, t->owner, t->sent);
  if (t->deadline != 0) crl_taking_leave(t); /* whose turn it is now finds the hold */
  return CORRAL_OK;
}

int corral_lock_take(corral *c, const void *name, size_t name_len, const corral_lock_options *user,
                     corral_lock **ret, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_taking t;
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_lock_take: no ret");
  int status =
      crl_taking_init(&t, c, &(crl_name){.key = name, .key_len = name_len}, user, 0, error);
  if (status != CORRAL_OK) return status;
  if (!t.again && t.deadline != 0) crl_taking_queue(&t);
  while (crl_taking_turn(&t)) crl_taking_woken(&t, crl_waiter_sleep(&t.waiter, t.until));
  status = crl_taking_end(&t, ret);
  if (status == CORRAL_OK) crl_lock_hand_over(*ret, &t.options);
  return status;
}
