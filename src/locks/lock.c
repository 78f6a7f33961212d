/* lock.c: a hold of a user's lock: extending, losing, releasing it; and the public functions on
 * it. */
#include "locks/lock.h"

#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "record/lock_record.h"
#include "store/put.h"
#include "store/registry.h"
#include "base/status.h"
#include "base/value.h"

#define MAGIC UINT32_C(0x10c4ed11)

/* ---- making a lock ------------------------------------------------------------------------- */

static int check_name(const void *name, size_t len, corral_error *error) {
  if (name == NULL || len == 0)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "the lock's name is empty; accepted: 1 to %d bytes", CORRAL_KEY_MAX);
  if (len > CORRAL_KEY_MAX)
    return crl_status_fail(error, CORRAL_EINVAL, "the lock's name has %zu bytes; accepted: 1 to %d",
                           len, CORRAL_KEY_MAX);
  return CORRAL_OK;
}

static int make_key(crl_hold *hold, const void *name, size_t len) {
  int status = crl_key_make(&hold->key, CRL_KEY_LOCK, &hold->context->space,
                            &(crl_name){.key = name, .key_len = len});
  if (status != CORRAL_OK) return status;
  hold->entry.hash = crl_key_hash(&hold->key);
  hold->entry.key = hold->key.stored;
  hold->entry.key_len = hold->key.stored_len;
  hold->entry.token = hold->token;
  return CORRAL_OK;
}

int crl_lock_new(crl_context *context, const void *name, size_t name_len, crl_hold **ret,
                 corral_error *error) {
  int status = check_name(name, name_len, error);
  if (status != CORRAL_OK) return status;
  crl_hold *hold = crl_alloc_more(NULL, sizeof *hold);
  if (hold == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  memset(hold, 0, sizeof *hold);
  hold->first.magic = MAGIC;
  hold->first.hold = hold->first.memory = hold;
  hold->entry.takings = &hold->first.taking;
  hold->context = context;
  if (crl_env_random(hold->token, sizeof hold->token) != CORRAL_OK) {
    free(hold);
    return crl_status_fail(error, CORRAL_EIO, "no randomness from the kernel for a token");
  }
  if (make_key(hold, name, name_len) != CORRAL_OK) {
    crl_lock_free(hold);
    return crl_status_plain(error, CORRAL_ENOMEM);
  }
  *ret = hold;
  return CORRAL_OK;
}

void crl_lock_free(crl_hold *hold) {
  hold->first.magic = 0;
  crl_key_clean(&hold->key);
  free(hold);
}

corral_op crl_lock_op(const crl_hold *hold, corral_verb verb, corral_error *detail) {
  memset(detail, 0, sizeof *detail);
  return (corral_op){.verb = verb,
                     .key = hold->key.stored,
                     .key_len = hold->key.stored_len,
                     .token = hold->token,
                     .error = detail};
}

void crl_lock_op_drop(corral_op *op) {
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found.drop = NULL;
  op->found.record = NULL;
}

static void emit(const crl_hold *hold, corral_event event, const char *detail) {
  crl_event_emit(&hold->context->events, event, hold->key.user, hold->key.user_len, detail);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Counts from before the request was sent, less 1/1000 and 1 ms for the drift between both
 * clocks. */
void crl_lock_granted(crl_hold *hold, const corral_op *op, int64_t sent) {
  int64_t until = sent + op->lock_state.left_ms - op->lock_state.left_ms / 1000 - 1,
          seen = atomic_load(&hold->valid_until);
  atomic_store(&hold->has_more, (op->flags & CORRAL_OP_MORE) != 0);
  while (until > seen && !atomic_compare_exchange_weak(&hold->valid_until, &seen, until)) {
  }
}

int64_t crl_lock_left_ms(const crl_hold *hold) {
  int64_t left = atomic_load(&((crl_hold *)(uintptr_t)hold)->valid_until) - crl_env_boot_ms();
  return left > 0 && atomic_load(&((crl_hold *)(uintptr_t)hold)->lost) == 0 ? left : 0;
}

int64_t corral_lock_left_ms(const corral_lock *lock) { return crl_lock_left_ms(lock->hold); }

uint64_t corral_lock_fence(const corral_lock *lock) { return lock->hold->fence; }

const void *corral_lock_name(const corral_lock *lock, size_t *ret_len) {
  if (ret_len != NULL) *ret_len = lock->hold->key.user_len;
  return lock->hold->key.user;
}

/* ---- loss ---------------------------------------------------------------------------------- */

static void describe(const crl_hold *hold, int why, char *text, size_t size) {
  snprintf(text, size, "the hold with fencing token %llu, taken %lld ms ago, is over: %s",
           (unsigned long long)hold->fence, (long long)(crl_env_boot_ms() - hold->since),
           why == CORRAL_LOST_TAKEN ? "somebody else has the lock"
           : why == CORRAL_LOST_CUT ? "the connection that it belonged to has ended"
                                    : "its time passed, or it was broken");
}

/* Returns 1 when this call was the first to set `lost`: then the takings are to be told. */
static int lose(crl_hold *hold, int why) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&hold->lost, &none, why)) return 0;
  describe(hold, why, hold->why, sizeof hold->why);
  corral_event_info info =
      crl_event_info(CORRAL_EVENT_LOCK_LOST, hold->key.user, hold->key.user_len);
  info.status = CORRAL_ELOST;
  info.detail = hold->why;
  crl_event_tell(&hold->context->events, &info);
  return 1;
}

static void tell(corral_lock *lock) {
  crl_frame of_lock, of_all;
  crl_frame_enter(&of_all, lock->hold->context);
  crl_frame_enter(&of_lock, lock);
  lock->on_lost(lock, lock->hold->why, lock->lost_arg);
  crl_frame_leave(&of_lock);
  crl_frame_leave(&of_all);
}

static void tell_later(crl_notice *notice) {
  tell((corral_lock *)(void *)((char *)notice - offsetof(corral_lock, notice)));
}

/* Under the table's mutex. `teller`: the taking whose call tells its on_lost itself, or NULL. */
static void post(crl_lock_taking *taking, void *teller) {
  corral_lock *lock = (corral_lock *)(void *)taking;
  lock->told = 1;
  if (lock->on_lost == NULL || lock == teller) return;
  lock->notice.tell = tell_later;
  crl_notifier_post(lock->hold->context->events.notifier, &lock->notice, SIZE_MAX);
}

/* ---- an end that is near ------------------------------------------------------------------- */

static void warn_later(crl_notice *notice) {
  corral_lock *lock = (corral_lock *)(void *)((char *)notice - offsetof(corral_lock, warning));
  crl_frame of_lock, of_all;
  if (atomic_load(&lock->hold->lost) != 0) return;
  crl_frame_enter(&of_all, lock->hold->context);
  crl_frame_enter(&of_lock, lock);
  lock->on_warn(lock, crl_lock_left_ms(lock->hold), lock->warn_arg);
  crl_frame_leave(&of_lock);
  crl_frame_leave(&of_all);
}

/* Under the table's mutex. */
static void post_warning(crl_lock_taking *taking, void *unused) {
  corral_lock *lock = (corral_lock *)(void *)taking;
  (void)unused;
  lock->warned = 1;
  if (lock->on_warn == NULL) return;
  lock->warning.tell = warn_later;
  crl_notifier_post(lock->hold->context->events.notifier, &lock->warning, SIZE_MAX);
}

/* ---- a taking's callbacks ------------------------------------------------------------------ */

typedef struct handing {
  corral_lock *lock;
  const corral_lock_options *options;
} handing;

/* Under the table's mutex, under which a loss looks for those that are to be told. */
static void hand_over(crl_lock_taking *taking, void *arg) {
  const handing *h = arg;
  if (taking != &h->lock->taking) return;
  h->lock->on_lost = h->options->on_lost;
  h->lock->lost_arg = h->options->lost_arg;
  h->lock->on_warn = h->options->on_warn;
  h->lock->warn_arg = h->options->warn_arg;
  if (h->lock->warned) post_warning(taking, NULL);
  if (h->lock->told) post(taking, NULL);
}

void crl_lock_hand_over(corral_lock *lock, const corral_lock_options *options) {
  handing h = {.lock = lock, .options = options};
  if (options->on_lost != NULL || options->on_warn != NULL)
    crl_lock_table_each(lock->hold->context->locks, &lock->hold->entry, hand_over, &h);
}

int crl_lock_say_lost(corral_lock *lock, int why, corral_error *error) {
  crl_hold *hold = lock->hold;
  char text[sizeof hold->why];
  if (lose(hold, why)) {
    crl_lock_table_each(hold->context->locks, &hold->entry, post, lock);
    lock->told = 1;
    if (lock->on_lost != NULL) tell(lock);
  }
  why = atomic_load(&hold->lost);
  describe(hold, why, text, sizeof text);
  crl_status_fail(error, CORRAL_ELOST, "%s", text);
  if (error != NULL) error->code = why;
  return CORRAL_ELOST;
}

/* other_ms: left_ms of a reply ELOST; not 0 when another token has the lock. */
static int why_of(int64_t other_ms) {
  return other_ms != 0 ? CORRAL_LOST_TAKEN : CORRAL_LOST_EXPIRED;
}

static void lose_later(crl_hold *hold, int why) {
  if (lose(hold, why)) crl_lock_table_each(hold->context->locks, &hold->entry, post, NULL);
}

static void cut(crl_lock_entry *entry) {
  if (!lose((crl_hold *)(void *)entry, CORRAL_LOST_CUT)) return;
  for (crl_lock_taking *at = entry->takings; at != NULL; at = at->next)
    if (!at->leaves) post(at, NULL);
}

/* The hook isn't called under the table's mutex. */
void crl_lock_cut(void *context, const uint8_t *token) {
  int before = crl_event_defer(1);
  crl_lock_table_find(((crl_context *)context)->locks, token, cut);
  crl_event_defer(before);
}

/* ---- keeping ------------------------------------------------------------------------------- */

static crl_hold *hold_of(crl_renewed_lease *kept) {
  return (crl_hold *)(void *)((char *)kept - offsetof(crl_hold, kept));
}

static void on_lost(crl_renewed_lease *kept) {
  kept->over = 1;
  lose_later(hold_of(kept), why_of(kept->other_ms));
}

static void on_limit(crl_renewed_lease *kept) { lose_later(hold_of(kept), CORRAL_LOST_EXPIRED); }

static void on_warn(crl_renewed_lease *kept) {
  crl_hold *hold = hold_of(kept);
  crl_lock_table_each(hold->context->locks, &hold->entry, post_warning, NULL);
}

/* valid_until on the renewer's clock, crl_env_now_ms. */
static int64_t limit_of(const crl_hold *hold) {
  return crl_env_now_ms() + atomic_load(&((crl_hold *)(uintptr_t)hold)->valid_until) -
         crl_env_boot_ms();
}

static void on_extended(crl_renewed_lease *kept, const corral_op *op, int64_t sent) {
  crl_hold *hold = hold_of(kept);
  crl_lock_granted(hold, op, sent);
  kept->limit = limit_of(hold);
  if (op->lock_state.left_ms < kept->lease_ms)
    kept->next_at -= (kept->lease_ms - op->lock_state.left_ms) / 3;
  if (sent + kept->lease_ms >= hold->keep_until) kept->confirms = 1;
  if (kept->confirms && !(op->flags & CORRAL_OP_MORE)) kept->token = NULL;
}

/* Has the renewer extend the hold (`keep`), or confirm it, or only tell its end. */
static void begin_to_keep(crl_hold *hold, int keep, int64_t sent) {
  int64_t ttl_ms = hold->ttl_ms;
  int confirms = !keep && atomic_load(&hold->has_more);
  hold->kept = (crl_renewed_lease){.key = hold->key.stored,
                                   .key_len = hold->key.stored_len,
                                   .user_key = hold->key.user,
                                   .user_key_len = hold->key.user_len,
                                   .token = keep || confirms ? hold->token : NULL,
                                   .lease_ms = ttl_ms,
                                   .limit = limit_of(hold),
                                   .is_lock = 1,
                                   .confirms = confirms,
                                   .fence = hold->fence,
                                   .on_lost = on_lost,
                                   .on_limit = on_limit,
                                   .on_warn = on_warn,
                                   .warn_ms = atomic_load(&hold->warn_ms),
                                   .on_extended = on_extended};
  /* A store may grant less than ttl_ms: the first extension is due after a third of the grant. */
  int64_t missing = sent + ttl_ms - atomic_load(&hold->valid_until);
  crl_renewer_hold(hold->context->renewer, &hold->kept,
                   crl_env_now_ms() - (crl_env_boot_ms() - sent) - (missing > 0 ? missing / 3 : 0));
  atomic_store(&hold->kept_state, CRL_LOCK_KEPT);
}

/* The hold may be kept until then, if not for longer already. */
static void keep_until(crl_hold *hold, int64_t max_ms, int64_t from) {
  int64_t until = max_ms > 0 ? from + max_ms : INT64_MAX, seen = atomic_load(&hold->keep_until);
  while (until > seen && !atomic_compare_exchange_weak(&hold->keep_until, &seen, until)) {
  }
}

/* 1: a taking with these options is to be warned. */
static int warns(crl_hold *hold, const corral_lock_options *options) {
  int64_t seen = atomic_load(&hold->warn_ms);
  if (options->on_warn == NULL || options->warn_ms <= 0) return 0;
  while (options->warn_ms > seen &&
         !atomic_compare_exchange_weak(&hold->warn_ms, &seen, options->warn_ms)) {
  }
  return 1;
}

/* The table comes last: from then on, other threads with the same owner may use the lock. The end
 * of its connection is told for holds in the table. */
void crl_lock_begin(crl_hold *hold, const corral_lock_options *options, uint64_t owner,
                    int64_t sent) {
  crl_ends *ends = hold->context->ends;
  uint8_t token[CORRAL_TOKEN];
  int keep = options->keep > 0;
  memcpy(token, hold->token, sizeof token);
  hold->entry.owner = owner;
  hold->since = sent;
  hold->first.taking.shared = atomic_load(&hold->entry.shared);
  if (keep) keep_until(hold, options->max_ms, sent);
  if (warns(hold, options) || keep || options->on_lost != NULL || atomic_load(&hold->has_more))
    begin_to_keep(hold, keep, sent);
  crl_lock_table_add(hold->context->locks, &hold->entry);
  crl_stats_move_gauge(&hold->context->events.stats, CORRAL_GAUGE_LOCKS_HELD, 1);
  if (ends != NULL) crl_ends_attend(ends, token);
}

/* Has the renewer keep a hold that others of its owner may use, or only tell its end. */
static void keep_again(crl_hold *hold, int keep) {
  int state = CRL_LOCK_UNKEPT;
  if (atomic_compare_exchange_strong(&hold->kept_state, &state, CRL_LOCK_ENTERS)) {
    begin_to_keep(hold, keep, atomic_load(&hold->valid_until) - hold->ttl_ms);
    /* it may have been extended meanwhile */
    crl_renewer_move(hold->context->renewer, &hold->kept, limit_of(hold));
    return;
  }
  for (; state == CRL_LOCK_ENTERS; state = atomic_load(&hold->kept_state)) crl_env_pause_us(10);
  if (keep || atomic_load(&hold->has_more))
    crl_renewer_keep(hold->context->renewer, &hold->kept, hold->token, hold->ttl_ms, !keep);
  if (hold->warn_ms > 0) crl_renewer_warn(hold->context->renewer, &hold->kept, hold->warn_ms);
}

int crl_lock_begin_again(corral_lock *lock, const corral_lock_options *options,
                         corral_error *error) {
  crl_hold *hold = lock->hold;
  int keep = options->keep > 0;
  if (keep) keep_until(hold, options->max_ms, crl_env_boot_ms());
  if (warns(hold, options) || keep || options->on_lost != NULL) keep_again(hold, keep);
  return atomic_load(&hold->lost) == 0 ? CORRAL_OK : crl_lock_say_lost(lock, 0, error);
}

/* ---- extend, release ----------------------------------------------------------------------- */

int crl_lock_check_held(corral_lock *lock, const char *what, corral_error *error) {
  if (lock == NULL || lock->magic != MAGIC)
    return crl_status_fail(error, CORRAL_EINVAL, "%s: not a lock that is held", what);
  int status = crl_context_check(lock->hold->context, error);
  if (status != CORRAL_OK) return status;
  if (atomic_load(&lock->hold->lost) != 0) return crl_lock_say_lost(lock, 0, error);
  return CORRAL_OK;
}

int crl_lock_extend(corral_lock *lock, int64_t ttl_ms, uint32_t flags, corral_error *error) {
  crl_hold *hold = lock->hold;
  corral_error detail;
  corral_op op = crl_lock_op(hold, CORRAL_VERB_LOCK_EXTEND, &detail);
  op.flags = flags;
  op.lock_extend = (corral_lock_extend_args){.hold_ms = ttl_ms, .fence = hold->fence};
  int64_t sent = crl_env_boot_ms();
  crl_pool_perform(hold->context->pool, &op, 1, crl_env_now_ms() + hold->context->op_ms);
  if (op.status == CORRAL_ELOST)
    return crl_lock_say_lost(lock, why_of(op.lock_state.left_ms), error);
  if (op.status != CORRAL_OK) return crl_put_say(&op, error);
  crl_lock_granted(hold, &op, sent);
  if (atomic_load(&hold->has_more)) keep_again(hold, 0);
  if (atomic_load(&hold->kept_state) == CRL_LOCK_KEPT)
    crl_renewer_move(hold->context->renewer, &hold->kept, limit_of(hold));
  emit(hold, CORRAL_EVENT_LOCK_EXTENDED, NULL);
  return CORRAL_OK;
}

int corral_lock_extend(corral_lock *lock, int64_t ttl_ms, corral_error *error) {
  int status = crl_lock_check_held(lock, "corral_lock_extend", error);
  if (status != CORRAL_OK) return status;
  if (ttl_ms != 0 && (ttl_ms < 50 || ttl_ms > 86400000))
    return crl_status_fail(error, CORRAL_EINVAL,
                           "ttl_ms = %lld ms; accepted: 50 to 86400000, or 0 for that of the lock",
                           (long long)ttl_ms);
  return crl_lock_extend(lock, ttl_ms == 0 ? lock->hold->ttl_ms : ttl_ms, 0, error);
}

static void make_shared(crl_lock_taking *taking, void *arg) {
  (void)arg;
  taking->shared = 1;
}

int corral_lock_downgrade(corral_lock *lock, corral_error *error) {
  int status = crl_lock_check_held(lock, "corral_lock_downgrade", error);
  crl_hold *hold = status == CORRAL_OK ? lock->hold : NULL;
  if (hold == NULL || atomic_load(&hold->entry.shared)) return status;
  if (hold->is_permit)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "corral_lock_downgrade: a permit is no exclusive hold");
  status = crl_lock_extend(lock, hold->ttl_ms, CORRAL_OP_SHARED, error);
  if (status != CORRAL_OK) return status;
  atomic_store(&hold->entry.shared, 1);
  crl_lock_table_each(hold->context->locks, &hold->entry, make_shared, NULL);
  crl_lock_table_wake(hold->context->locks, hold->entry.hash);
  return CORRAL_OK;
}

int crl_lock_unlock(const crl_hold *hold, corral_error *error) {
  corral_error detail;
  corral_op op = crl_lock_op(hold, CORRAL_VERB_UNLOCK, &detail);
  op.unlock = (corral_unlock_args){.fence = hold->fence};
  crl_pool_perform(hold->context->pool, &op, 1, crl_env_now_ms() + hold->context->op_ms);
  if (op.status == CORRAL_EINDOUBT) {
    corral_op again = crl_lock_op(hold, CORRAL_VERB_UNLOCK, &detail);
    again.unlock = op.unlock;
    crl_pool_perform(hold->context->pool, &again, 1, crl_env_now_ms() + hold->context->op_ms);
    /* ELOST may be the effect of the first UNLOCK: then the status stays EINDOUBT. */
    if (again.status == CORRAL_OK) op = again;
  }
  if (op.status == CORRAL_OK) return CORRAL_OK;
  int status = crl_put_say(&op, error);
  if (status == CORRAL_ELOST && error != NULL) error->code = why_of(op.lock_state.left_ms);
  return status;
}

/* The last taking is given back: the hold ends, or is left to others (`detaches`). A loss that the
 * renewer met after the taking had begun to leave is told here. */
static int end(corral_lock *lock, int detaches, corral_error *error) {
  crl_hold *hold = lock->hold;
  corral_error detail = {0};
  if (atomic_load(&hold->kept_state) == CRL_LOCK_KEPT)
    crl_renewer_drop(hold->context->renewer, &hold->kept);
  int was_lost = atomic_load(&hold->lost);
  const crl_stats *stats = &hold->context->events.stats;
  crl_stats_add_time(stats, CORRAL_TIME_LOCK_HOLD, (crl_env_boot_ms() - hold->since) * 1000);
  crl_stats_move_gauge(stats, CORRAL_GAUGE_LOCKS_HELD, -1);
  if (was_lost && lock->on_lost != NULL && !lock->told) tell(lock);
  int status = detaches ? CORRAL_OK : crl_lock_unlock(hold, &detail);
  if (status == CORRAL_ELOST || was_lost) return crl_lock_say_lost(lock, detail.code, error);
  if (status != CORRAL_OK) return crl_status_fail(error, status, "%s", detail.text);
  if (!detaches) emit(hold, CORRAL_EVENT_UNLOCKED, NULL);
  return CORRAL_OK;
}

/* The other takings are shared ones: the hold becomes a shared one, where the store has those. */
static int read_on(corral_lock *lock, corral_error *error) {
  crl_hold *hold = lock->hold;
  int status = crl_lock_extend(lock, hold->ttl_ms, CORRAL_OP_SHARED, error);
  if (status == CORRAL_EUNSUPPORTED) atomic_store(&hold->entry.shared, 0);
  if (status == CORRAL_OK) crl_lock_table_wake(hold->context->locks, hold->entry.hash);
  return status == CORRAL_EUNSUPPORTED ? CORRAL_OK : status;
}

/* Until it is dropped from the table, a taking keeps its hold alive; from then on another one may
 * free the hold, and with it the hold's first taking. */
static int give(corral_lock *lock, int detaches, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  crl_hold *hold = lock->hold;
  crl_hold *memory = lock->memory;
  crl_context *context = hold->context;
  uint64_t hash = hold->entry.hash;
  corral_error detail = {0};
  int status = CORRAL_OK,
      reads = crl_lock_table_let_go(context->locks, &hold->entry, &lock->taking);
  if (lock->warning.tell != NULL)
    (void)crl_notifier_withdraw(context->events.notifier, &lock->warning);
  if (crl_notifier_withdraw(context->events.notifier, &lock->notice)) tell(lock);
  if (atomic_load(&hold->lost) != 0)
    status = crl_lock_say_lost(lock, 0, &detail);
  else if (reads)
    status = read_on(lock, &detail);
  lock->magic = 0;
  if (crl_lock_table_drop(context->locks, &hold->entry, &lock->taking)) {
    status = end(lock, detaches, error);
    crl_lock_table_wake(context->locks, hash);
    crl_lock_free(hold);
  } else if (status != CORRAL_OK && error != NULL) {
    *error = detail;
  }
  if (memory != hold) crl_lock_free(memory);
  return status;
}

int crl_lock_give(corral_lock *lock, corral_error *error) { return give(lock, 0, error); }

static int check_give(const corral_lock *lock, const char *what, corral_error *error) {
  if (lock->magic != MAGIC)
    return crl_status_fail(error, CORRAL_EINVAL, "%s: not a lock that is held", what);
  int status = crl_context_check(lock->hold->context, error);
  if (status != CORRAL_OK || !crl_frame_within(lock)) return status;
  return crl_status_fail(error, CORRAL_EINVAL,
                         "%s: within on_lost or on_warn of this very lock, which is still to be "
                         "released after it",
                         what);
}

int crl_lock_check_release(const corral_lock *lock, corral_error *error) {
  return check_give(lock, "corral_lock_release", error);
}

int corral_lock_release(corral_lock *lock, corral_error *error) {
  if (lock == NULL) return CORRAL_OK;
  int status = crl_lock_check_release(lock, error);
  return status == CORRAL_OK ? crl_lock_give(lock, error) : status;
}

int corral_lock_detach(corral_lock *lock, corral_error *error) {
  if (lock == NULL) return CORRAL_OK;
  int status = check_give(lock, "corral_lock_detach", error);
  if (status == CORRAL_OK) status = crl_ticket_check(lock->hold->context, error);
  return status == CORRAL_OK ? give(lock, 1, error) : status;
}
