/* join.c: a call's part in the herd: it leads a flight, waits for another caller's, or has an
 * answer. */
#include "os/env.h"
#include "run/run.h"
#include "base/status.h"
#include "tags/tag_memory.h"

#include <stdlib.h>

/* ---- entering ------------------------------------------------------------------------------ */

void crl_join_forget(crl_join *join) {
  if (join->stale != NULL) crl_bytes_unref(join->stale->bytes);
  free(join->stale);
  join->stale = NULL;
}

/* Gives up what a call has that has no run and waits on no entry. */
static void drop(crl_join *join) {
  crl_entry *entry = join->leads;
  join->leads = NULL;
  crl_join_forget(join);
  if (entry == NULL) return;
  crl_herd_give_up(entry);
  crl_entry_unref(entry);
}

void crl_join_end(crl_join *join, const crl_outcome *outcome) {
  *join->outcome = *outcome;
  join->state = CRL_JOIN_ENDED;
  drop(join);
}

void crl_join_fail(crl_join *join, int status) {
  crl_outcome outcome = crl_outcome_plain(status);
  crl_join_end(join, &outcome);
}

/* Makes the run of a flight that the call leads; it takes over `found` (NULL: nothing was looked at
 * yet). */
static void lead(crl_join *join, crl_found *found, crl_alone alone) {
  crl_run *r = crl_run_new(join, found, alone);
  if (r == NULL) {
    crl_join_fail(join, CORRAL_ENOMEM);
    return;
  }
  r->entry = join->leads;
  join->leads = NULL;
  join->run = r;
  join->state = CRL_JOIN_LEADS;
}

/* Of a wait for another's flight. */
static void note_wait(crl_join *join, int begins) {
  const crl_stats *stats = &join->context->events.stats;
  if (join->owns) return;
  if (begins)
    join->waits_since = crl_stats_clock(stats);
  else
    crl_stats_took(stats, CORRAL_TIME_WAIT, join->waits_since);
  crl_stats_move_gauge(stats, CORRAL_GAUGE_WAITING, begins ? 1 : -1);
}

void crl_join_take(crl_join *join, crl_entry *entry, int owns) {
  join->entry = entry;
  join->owns = owns;
  join->state = CRL_JOIN_WAITS;
  note_wait(join, 1);
}

static void listen(crl_join *join, crl_entry *entry, int owns) {
  crl_join_take(join, entry, owns);
  if (join->waiter != NULL) crl_herd_listen(entry, &join->listener, join->waiter, crl_run_lends());
}

static void join_flight(crl_join *join, crl_entry *entry) {
  crl_event_emit(&join->context->events, CORRAL_EVENT_JOIN, join->name.key, join->name.key_len,
                 NULL);
  listen(join, entry, 0);
}

/* A flight for this call alone: nobody can join it. */
static void enter_alone(crl_join *join, crl_alone alone) {
  crl_entry *entry = NULL;
  if (crl_call_computes(join->call)) {
    entry = crl_herd_private(join->context->herd, &join->name, join->hash);
    if (entry == NULL) {
      crl_join_fail(join, CORRAL_ENOMEM);
      return;
    }
  }
  join->leads = entry;
  lead(join, NULL, alone);
}

static crl_enter enter_herd(crl_join *join, const crl_entry *from, int is_served,
                            crl_entry **entry) {
  crl_entrance entrance = {.name = &join->name,
                           .hash = join->hash,
                           .since = join->since,
                           .looked = join->has_looked,
                           .is_served = is_served,
                           .from = from};
  crl_enter how = crl_herd_enter(join->context->herd, &entrance, entry, &join->tick);
  join->since = entrance.since;
  return how;
}

static void bypass(crl_join *join) {
  crl_outcome outcome = {.status = CORRAL_EMISS};
  if (crl_call_computes(join->call)) {
    enter_alone(join, CRL_ALONE_PASS);
    return;
  }
  crl_status_fail(&outcome.error, CORRAL_EMISS,
                  "the cache is bypassed by an operator (corral control), and there is nothing to "
                  "compute it with");
  crl_join_end(join, &outcome);
}

/* A call that can't compute has no part in the herd. */
static void enter(crl_join *join, const crl_entry *from) {
  crl_entry *entry = NULL;
  if (join->call->bypasses) {
    bypass(join);
    return;
  }
  crl_enter how =
      crl_call_computes(join->call) ? enter_herd(join, from, 0, &entry) : CRL_ENTER_APART;
  switch (how) {
    case CRL_ENTER_NOT: crl_join_fail(join, CORRAL_ENOMEM); break;
    case CRL_ENTER_JOINS: join_flight(join, entry); break;
    case CRL_ENTER_LEADS:
    case CRL_ENTER_APART:
      join->leads = entry;
      join->state = CRL_JOIN_LOOKS;
      break;
  }
}

void crl_join_init(crl_join *join, crl_context *context, const crl_call *call, const void *key,
                   size_t key_len) {
  memset(join, 0, sizeof *join);
  join->context = context;
  join->call = call;
  join->name = crl_call_name(call, key, key_len);
}

void crl_join_enter(crl_join *join) {
  if (join->deadline == 0) join->deadline = crl_env_now_ms() + join->call->policy->wait_ms;
  join->hash = crl_name_hash(&join->name);
  if (join->call->bypasses)
    bypass(join);
  else if (join->call->policy->anew > 0) /* others' answers may be older than this call */
    enter_alone(join, CRL_ALONE_NOT);
  else if (join->context->looks_first)
    join->state = CRL_JOIN_LOOKS;
  else
    enter(join, NULL);
}

void crl_join_begin(crl_join *join) {
  if (crl_run_recurses(join->context, &join->name))
    crl_join_fail(join, CORRAL_ERECURSION);
  else if (crl_run_near(join, 0))
    join->state = CRL_JOIN_ENDED;
  else
    crl_join_enter(join);
}

/* ---- the first look ------------------------------------------------------------------------ */

static void answer_by_look(crl_join *join, crl_found *found, corral_how how, corral_event event) {
  crl_outcome outcome = crl_found_outcome(found, how);
  if (outcome.status == CORRAL_ENOTFOUND) event = CORRAL_EVENT_NEGATIVE;
  crl_found_tell_answer(found, event, &outcome);
  if (join->leads != NULL) {
    crl_herd_land(join->leads, &outcome, join->tick);
    crl_entry_unref(join->leads);
    join->leads = NULL;
  }
  crl_join_end(join, &outcome);
}

/* A fresh value that is to be rebuilt early is no hit. */
static int hits(crl_join *join, const crl_look *look) {
  const corral_policy *policy = join->call->policy;
  if (look->lives.fresh <= 0 || look->pass) return 0;
  if (!crl_call_computes(join->call)) return 1;
  uint64_t dice = crl_policy_rolls(policy) ? crl_env_dice() : 0;
  join->early = crl_flight_early(policy, look, join->early, dice);
  return !join->early;
}

static void begin_flight(crl_join *join, crl_found *found, crl_told *told) {
  lead(join, found, CRL_ALONE_NOT);
  if (join->state == CRL_JOIN_LEADS) crl_run_looked(join, told);
}

/* Keeps what may be served stale at the deadline. */
static void keep_stale(crl_join *join, crl_found *found, const crl_told *told) {
  if (told->look.lives.sie <= 0 || (join->stale = crl_alloc(sizeof *join->stale)) == NULL) return;
  *join->stale = crl_found_outcome(found, CORRAL_STALE);
  join->stale_until = crl_env_now_ms() + told->look.lives.sie;
}

int crl_join_begin_look(crl_join *join, crl_found *found) {
  int status =
      crl_cancelled(join->call->cancel_token)
          ? CORRAL_ECANCELLED
          : crl_found_init(found, join->context, join->call->policy, &join->name, join->hash);
  if (status != CORRAL_OK) crl_join_fail(join, status);
  return status == CORRAL_OK;
}

/* True when the store gave no answer, and is away, not slow: see flight.c. */
static int is_away(const crl_told *told) {
  return told->status != CORRAL_OK && told->status != CORRAL_EMISS &&
         told->status != CORRAL_EFOREIGN && told->status != CORRAL_ENEWER && !told->slow;
}

/* Answers by what this process has for a store that is away, fresh or stale, where the policy
 * allows that. 0: the call goes on. */
static int ends_by_own(crl_join *join) {
  crl_found found;
  crl_lives lives;
  if (join->call->policy->when_away != CORRAL_AWAY_STALE) return 0;
  if (!crl_join_begin_look(join, &found)) return 1;
  int serves = crl_found_take_own(&found, &lives) && (lives.fresh > 0 || lives.swr > 0);
  if (serves && lives.fresh > 0)
    answer_by_look(join, &found, CORRAL_OUTBOX, CORRAL_EVENT_OUTBOX_HIT);
  else if (serves)
    answer_by_look(join, &found, CORRAL_STALE, CORRAL_EVENT_STALE);
  crl_found_clean(&found);
  return serves;
}

/* Looked apart from the herd, and found no fresh value: takes part in it now. The look is good for
 * this call alone: those who join may have begun after it. */
static void enter_looked(crl_join *join, crl_found *found, crl_told *told) {
  crl_entry *entry;
  uint64_t looked = join->tick;
  const crl_lives *lives = &told->look.lives;
  int serves = told->status == CORRAL_OK && !told->look.pass;
  int is_fresh = serves && lives->fresh > 0, is_stale = serves && !is_fresh && lives->swr > 0;
  join->has_looked = 1;
  switch (enter_herd(join, NULL, is_fresh || is_stale, &entry)) {
    case CRL_ENTER_LEADS:
      crl_found_tell_miss(found, told);
      join->leads = entry;
      join->tick = looked;
      begin_flight(join, found, told);
      break;
    case CRL_ENTER_JOINS:
      if (is_away(told) && ends_by_own(join)) {
        crl_entry_unref(entry);
        break;
      }
      keep_stale(join, found, told);
      join_flight(join, entry);
      break;
    case CRL_ENTER_APART: /* it is being rebuilt */
      answer_by_look(join, found, is_fresh ? CORRAL_FRESH : CORRAL_STALE,
                     is_fresh ? CORRAL_EVENT_HIT : CORRAL_EVENT_STALE);
      break;
    case CRL_ENTER_NOT: crl_join_fail(join, CORRAL_ENOMEM); break;
  }
}

static void go_on(crl_join *join, crl_found *found, crl_told *told) {
  if (told->status == CORRAL_OK && hits(join, &told->look)) {
    answer_by_look(join, found, CORRAL_FRESH, CORRAL_EVENT_HIT);
  } else if (join->leads == NULL && crl_call_computes(join->call)) {
    enter_looked(join, found, told);
  } else {
    crl_found_tell_miss(found, told);
    begin_flight(join, found, told);
  }
}

void crl_join_fly(crl_join *join, int returns) {
  if (join->leads == NULL) {
    join->returns = returns && crl_call_computes(join->call);
    enter_alone(join, CRL_ALONE_NOT);
    join->returns = 0;
  } else {
    lead(join, NULL, CRL_ALONE_NOT);
  }
}

void crl_join_return(crl_join *join) {
  join->has_looked = 1;
  enter(join, NULL);
}

void crl_join_looked(crl_join *join, crl_found *found, crl_told *told) {
  go_on(join, found, told);
  crl_found_clean(found);
}

/* True where this process has removed the value, or has seen it end, since it last looked. Then
 * look and claim are one command; tags' versions, which a look asks for, need two. */
static int expects_none(crl_join *join, const crl_found *found) {
  crl_context *context = join->context;
  crl_tag_memory *memory = context->tag_memory;
  if (join->leads == NULL || !crl_marks_clear(&context->gone, found->hash)) return 0;
  return !context->generation && (memory == NULL || !crl_tag_memory_has(memory, found->hash));
}

void crl_join_first(crl_join *join) {
  crl_found found;
  crl_request e;
  crl_told told;
  memset(&told, 0, sizeof told);
  if (!crl_join_begin_look(join, &found)) return;
  join->expects_none = expects_none(join, &found);
  if (join->expects_none) {
    lead(join, &found, CRL_ALONE_NOT);
    crl_found_clean(&found);
    return;
  }
  crl_found_look(&found, &e, join->deadline, &told);
  crl_join_looked(join, &found, &told);
}

void crl_join_have(crl_join *join, const corral_op *op, int64_t began_us) {
  crl_found found;
  crl_request e;
  crl_told told;
  memset(&told, 0, sizeof told);
  if (!crl_join_begin_look(join, &found)) {
    if (op->found.drop != NULL) op->found.drop(op->found.owner);
    return;
  }
  crl_request_begin(&found, &e, join->deadline);
  e.began_us = began_us;
  crl_tag_versions_forget(&found.tag_versions);
  if (op->error != NULL) found.error = *op->error;
  e.op[0] = *op;
  e.op[0].key = found.key.stored;
  e.op[0].error = &found.error;
  crl_found_complete(&found, &e);
  crl_found_fetch(&found, &e);
  crl_found_interpret(&found, &e, NULL, &told);
  crl_join_looked(join, &found, &told);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static int has_stale(const crl_join *join) {
  return join->stale != NULL && join->stale->bytes != NULL && crl_env_now_ms() < join->stale_until;
}

/* A call that has a stale value of its own waits no longer than until it may take that. */
static crl_patience patience_of(const crl_join *join) {
  const corral_policy *policy = join->call->policy;
  int64_t soft = policy->soft_ms > 0 ? join->deadline - policy->wait_ms + policy->soft_ms : 0;
  int ends_soft = soft > 0 && soft < join->deadline && soft < join->stale_until && has_stale(join);
  return (crl_patience){.since = join->since,
                        .looked = join->has_looked,
                        .deadline = ends_soft ? soft : join->deadline,
                        .soft_until = ends_soft ? 0 : soft,
                        .cancel_token = join->call->cancel_token,
                        .owns = join->owns,
                        .lends = crl_run_lends()};
}

/* The entry that the call waited on, whose reference is the caller's now. The state is to be
 * changed by the caller. */
static crl_entry *stop_waiting(crl_join *join, crl_wait came) {
  crl_entry *entry = join->entry;
  note_wait(join, 0);
  if (join->waiter != NULL) crl_herd_unlisten(entry, &join->listener, came);
  join->entry = NULL;
  return entry;
}

void crl_run_tell_deadline(const crl_join *join) {
  corral_event_info info =
      crl_event_info(CORRAL_EVENT_DEADLINE, join->name.key, join->name.key_len);
  info.status = CORRAL_EDEADLINE;
  info.duration_us = (crl_env_now_ms() - join->deadline + join->call->policy->wait_ms) * 1000;
  crl_event_tell(&join->context->events, &info);
}

/* True when the store is what kept the call waiting: it was slow to the flight that had this entry,
 * or is to others. */
static int meets_trouble(const crl_join *join, const crl_entry *entry) {
  crl_key key;
  if (crl_herd_is_slow(entry)) return 1;
  if (!crl_call_computes(join->call) ||
      crl_key_make(&key, CRL_KEY_VALUE, &join->context->space, &join->name) != CORRAL_OK)
    return 0;
  int meets = crl_pool_fails(join->context->pool, key.stored, key.stored_len);
  crl_key_clean(&key);
  return meets;
}

/* The deadline has come, or no time is left to enter anew. */
static void run_out(crl_join *join, const crl_entry *entry) {
  if (has_stale(join)) {
    crl_outcome stale = *join->stale;
    join->stale->bytes = NULL;
    crl_join_end(join, &stale);
    return;
  }
  if (join->call->policy->when_away == CORRAL_AWAY_STALE && meets_trouble(join, entry)) {
    enter_alone(join, CRL_ALONE_OUTBOX);
    return;
  }
  if (join->call->policy->at_deadline == CORRAL_DEADLINE_COMPUTE) {
    enter_alone(join, CRL_ALONE_DEADLINE);
    return;
  }
  crl_run_tell_deadline(join);
  crl_join_fail(join, CORRAL_EDEADLINE);
}

/* Goes on by the result of a wait. */
static void turn(crl_join *join, crl_wait came, crl_outcome *outcome) {
  int owns = join->owns;
  crl_entry *entry = stop_waiting(join, came);
  switch (came) {
    case CRL_WAIT_LANDED:
      if (outcome->how == CORRAL_COMPUTED && !owns) outcome->how = CORRAL_JOINED;
      crl_join_end(join, outcome);
      break;
    case CRL_WAIT_PASS: enter_alone(join, CRL_ALONE_PASS); break;
    case CRL_WAIT_LEFT: crl_join_fail(join, CORRAL_ECANCELLED); break;
    case CRL_WAIT_GIVEN_UP:
    case CRL_WAIT_DEADLINE:
      if (crl_env_now_ms() < join->deadline && (came == CRL_WAIT_GIVEN_UP || !has_stale(join)))
        enter(join, entry);
      else
        run_out(join, entry);
      break;
  }
  crl_entry_unref(entry);
}

void crl_join_wait(crl_join *join) {
  crl_outcome outcome = {0};
  crl_patience patience = patience_of(join);
  turn(join, crl_herd_wait(join->entry, &patience, &outcome), &outcome);
}

void crl_join_look(crl_join *join) {
  crl_outcome outcome = {0};
  crl_patience patience = patience_of(join);
  atomic_store(&join->listener.stirred, 0);
  crl_wait came = crl_herd_look(join->entry, &patience, &outcome);
  if (came != 0) turn(join, came, &outcome);
}

int64_t crl_join_until(const crl_join *join) {
  crl_patience patience = patience_of(join);
  int is_soft = patience.soft_until > 0 && patience.soft_until < patience.deadline &&
                patience.soft_until > crl_env_now_ms();
  return is_soft ? patience.soft_until : patience.deadline;
}

/* ---- the end ------------------------------------------------------------------------------- */

void crl_join_follow(crl_join *join) {
  crl_entry *entry = crl_entry_ref(join->run->entry);
  join->run = NULL;
  listen(join, entry, 1);
}

void crl_join_land(crl_join *join) {
  crl_run *r = join->run;
  crl_entry *entry = r->entry;
  *join->outcome = r->answer;
  r->answer.bytes = NULL;
  r->entry = NULL;
  join->run = NULL;
  crl_run_free(r);
  if (entry != NULL) crl_entry_unref(entry); /* allocated before the run: malloc likes it last */
  drop(join);
  join->state = CRL_JOIN_ENDED;
}

void crl_join_leave(crl_join *join) {
  drop(join);
  if (join->run != NULL) {
    crl_run_abandon(join->run);
    crl_run_free(join->run);
    join->run = NULL;
  }
  if (join->entry != NULL) crl_entry_unref(stop_waiting(join, CRL_WAIT_LEFT));
}
