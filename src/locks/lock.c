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

static int make_key(corral_lock *lock, const void *name, size_t len) {
  int status = crl_key_make(&lock->key, CRL_KEY_LOCK, &lock->context->space,
                            &(crl_name){.key = name, .key_len = len});
  if (status != CORRAL_OK) return status;
  lock->entry.hash = crl_key_hash(&lock->key);
  lock->entry.key = lock->key.stored;
  lock->entry.key_len = lock->key.stored_len;
  lock->entry.token = lock->token;
  return CORRAL_OK;
}

int crl_lock_new(crl_context *context, const void *name, size_t name_len, corral_lock **ret,
                 corral_error *error) {
  int status = check_name(name, name_len, error);
  if (status != CORRAL_OK) return status;
  corral_lock *lock = crl_alloc_more(NULL, sizeof *lock);
  if (lock == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  memset(lock, 0, sizeof *lock);
  lock->magic = MAGIC;
  lock->context = context;
  if (crl_env_random(lock->token, sizeof lock->token) != CORRAL_OK) {
    free(lock);
    return crl_status_fail(error, CORRAL_EIO, "no randomness from the kernel for a token");
  }
  if (make_key(lock, name, name_len) != CORRAL_OK) {
    crl_lock_free(lock);
    return crl_status_plain(error, CORRAL_ENOMEM);
  }
  *ret = lock;
  return CORRAL_OK;
}

void crl_lock_free(corral_lock *lock) {
  lock->magic = 0;
  crl_key_clean(&lock->key);
  free(lock);
}

corral_op crl_lock_op(const corral_lock *lock, corral_verb verb, corral_error *detail) {
  memset(detail, 0, sizeof *detail);
  return (corral_op){.verb = verb,
                     .key = lock->key.stored,
                     .key_len = lock->key.stored_len,
                     .token = lock->token,
                     .error = detail};
}

void crl_lock_op_drop(corral_op *op) {
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found.drop = NULL;
  op->found.record = NULL;
}

static void emit(const corral_lock *lock, corral_event event, const char *detail) {
  crl_event_emit(&lock->context->events, event, lock->key.user, lock->key.user_len, detail);
}

/* ---- time ---------------------------------------------------------------------------------- */

/* Counts from before the request was sent, less 1/1000 and 1 ms for the drift between both
 * clocks. */
void crl_lock_granted(corral_lock *lock, const corral_op *op, int64_t sent) {
  int64_t until = sent + op->lock_state.left_ms - op->lock_state.left_ms / 1000 - 1,
          seen = atomic_load(&lock->valid_until);
  while (until > seen && !atomic_compare_exchange_weak(&lock->valid_until, &seen, until)) {
  }
}

int64_t corral_lock_left_ms(const corral_lock *lock) {
  int64_t left = atomic_load(&((corral_lock *)(uintptr_t)lock)->valid_until) - crl_env_boot_ms();
  return left > 0 && atomic_load(&((corral_lock *)(uintptr_t)lock)->lost) == 0 ? left : 0;
}

uint64_t corral_lock_fence(const corral_lock *lock) { return lock->fence; }

const void *corral_lock_name(const corral_lock *lock, size_t *ret_len) {
  if (ret_len != NULL) *ret_len = lock->key.user_len;
  return lock->key.user;
}

/* ---- loss ---------------------------------------------------------------------------------- */

static void describe(const corral_lock *lock, int why, char *text, size_t size) {
  snprintf(text, size, "the hold with fencing token %llu, taken %lld ms ago, is over: %s",
           (unsigned long long)lock->fence, (long long)(crl_env_boot_ms() - lock->since),
           why == CORRAL_LOST_TAKEN ? "somebody else has the lock"
           : why == CORRAL_LOST_CUT ? "the connection that it belonged to has ended"
                                    : "its time passed");
}

/* Returns 1 when this call was the first to set `lost` and there is an on_lost to call. */
static int lose(corral_lock *lock, int why) {
  int none = 0;
  if (!atomic_compare_exchange_strong(&lock->lost, &none, why)) return 0;
  describe(lock, why, lock->why, sizeof lock->why);
  corral_event_info info =
      crl_event_info(CORRAL_EVENT_LOCK_LOST, lock->key.user, lock->key.user_len);
  info.status = CORRAL_ELOST;
  info.detail = lock->why;
  crl_event_tell(&lock->context->events, &info);
  return lock->on_lost != NULL;
}

static void tell(corral_lock *lock) {
  crl_frame of_lock, of_all;
  crl_frame_enter(&of_all, lock->context);
  crl_frame_enter(&of_lock, lock);
  lock->on_lost(lock, lock->why, lock->lost_arg);
  crl_frame_leave(&of_lock);
  crl_frame_leave(&of_all);
}

static void tell_later(crl_notice *notice) {
  tell((corral_lock *)(void *)((char *)notice - offsetof(corral_lock, notice)));
}

int crl_lock_say_lost(corral_lock *lock, int why, corral_error *error) {
  char text[sizeof lock->why];
  if (lose(lock, why)) tell(lock);
  why = atomic_load(&lock->lost);
  describe(lock, why, text, sizeof text);
  crl_status_fail(error, CORRAL_ELOST, "%s", text);
  if (error != NULL) error->code = why;
  return CORRAL_ELOST;
}

/* other_ms: left_ms of a reply ELOST; not 0 when another token has the lock. */
static int why_of(int64_t other_ms) {
  return other_ms != 0 ? CORRAL_LOST_TAKEN : CORRAL_LOST_EXPIRED;
}

static void lose_later(corral_lock *lock, int why) {
  if (!lose(lock, why)) return;
  lock->notice.tell = tell_later;
  crl_notifier_post(lock->context->events.notifier, &lock->notice, SIZE_MAX);
}

static void cut(crl_lock_entry *entry) {
  lose_later((corral_lock *)(void *)entry, CORRAL_LOST_CUT);
}

/* The hook isn't called under the table's mutex. */
void crl_lock_cut(void *context, const uint8_t *token) {
  int before = crl_event_defer(1);
  crl_lock_table_find(((crl_context *)context)->locks, token, cut);
  crl_event_defer(before);
}

/* ---- keeping ------------------------------------------------------------------------------- */

static corral_lock *lock_of(crl_renewed_lease *kept) {
  return (corral_lock *)(void *)((char *)kept - offsetof(corral_lock, kept));
}

static void on_lost(crl_renewed_lease *kept) {
  kept->over = 1;
  lose_later(lock_of(kept), why_of(kept->other_ms));
}

static void on_limit(crl_renewed_lease *kept) { lose_later(lock_of(kept), CORRAL_LOST_EXPIRED); }

/* valid_until on the renewer's clock, crl_env_now_ms. */
static int64_t limit_of(const corral_lock *lock) {
  return crl_env_now_ms() + atomic_load(&((corral_lock *)(uintptr_t)lock)->valid_until) -
         crl_env_boot_ms();
}

static void on_extended(crl_renewed_lease *kept, const corral_op *op, int64_t sent) {
  corral_lock *lock = lock_of(kept);
  crl_lock_granted(lock, op, sent);
  kept->limit = limit_of(lock);
  if (op->lock_state.left_ms < lock->ttl_ms)
    kept->next_at -= (lock->ttl_ms - op->lock_state.left_ms) / 3;
  if (sent + lock->ttl_ms >= lock->keep_until) kept->token = NULL;
}

static void begin_to_keep(corral_lock *lock, int keep, int64_t sent) {
  lock->kept = (crl_renewed_lease){.key = lock->key.stored,
                                   .key_len = lock->key.stored_len,
                                   .user_key = lock->key.user,
                                   .user_key_len = lock->key.user_len,
                                   .token = keep ? lock->token : NULL,
                                   .lease_ms = lock->ttl_ms,
                                   .limit = limit_of(lock),
                                   .is_lock = 1,
                                   .fence = lock->fence,
                                   .on_lost = on_lost,
                                   .on_limit = on_limit,
                                   .on_extended = on_extended};
  lock->is_kept = 1;
  /* A store may grant less than ttl_ms: the first extension is due after a third of the grant. */
  int64_t missing = sent + lock->ttl_ms - atomic_load(&lock->valid_until);
  crl_renewer_hold(lock->context->renewer, &lock->kept,
                   crl_env_now_ms() - (crl_env_boot_ms() - sent) - (missing > 0 ? missing / 3 : 0));
}

/* The table comes last: from then on, other threads with the same owner may use the lock. The end
 * of its connection is told for holds in the table. */
void crl_lock_begin(corral_lock *lock, const corral_lock_options *options, uint64_t owner,
                    int64_t sent) {
  crl_ends *ends = lock->context->ends;
  uint8_t token[CORRAL_TOKEN];
  int keep = options->keep > 0;
  memcpy(token, lock->token, sizeof token);
  lock->entry.owner = owner;
  lock->since = sent;
  lock->on_lost = options->on_lost;
  lock->lost_arg = options->lost_arg;
  lock->keep_until = options->max_ms > 0 ? sent + options->max_ms : INT64_MAX;
  if (keep || lock->on_lost != NULL) begin_to_keep(lock, keep, sent);
  crl_lock_table_add(lock->context->locks, &lock->entry);
  if (ends != NULL) crl_ends_attend(ends, token);
}

/* ---- extend, release ----------------------------------------------------------------------- */

static int check_held(corral_lock *lock, const char *what, corral_error *error) {
  if (lock == NULL || lock->magic != MAGIC)
    return crl_status_fail(error, CORRAL_EINVAL, "%s: not a lock that is held", what);
  int status = crl_context_check(lock->context, error);
  if (status != CORRAL_OK) return status;
  if (atomic_load(&lock->lost) != 0) return crl_lock_say_lost(lock, 0, error);
  return CORRAL_OK;
}

static int extend(corral_lock *lock, int64_t ttl_ms, uint32_t flags, corral_error *error) {
  corral_error detail;
  corral_op op = crl_lock_op(lock, CORRAL_VERB_LOCK_EXTEND, &detail);
  op.flags = flags;
  op.lock_extend = (corral_lock_extend_args){.hold_ms = ttl_ms, .fence = lock->fence};
  int64_t sent = crl_env_boot_ms();
  crl_pool_perform(lock->context->pool, &op, 1, crl_env_now_ms() + lock->context->op_ms);
  if (op.status == CORRAL_ELOST)
    return crl_lock_say_lost(lock, why_of(op.lock_state.left_ms), error);
  if (op.status != CORRAL_OK) return crl_put_say(&op, error);
  crl_lock_granted(lock, &op, sent);
  if (lock->is_kept) crl_renewer_move(lock->context->renewer, &lock->kept, limit_of(lock));
  emit(lock, CORRAL_EVENT_LOCK_EXTENDED, NULL);
  return CORRAL_OK;
}

int corral_lock_extend(corral_lock *lock, int64_t ttl_ms, corral_error *error) {
  int status = check_held(lock, "corral_lock_extend", error);
  if (status != CORRAL_OK) return status;
  if (ttl_ms != 0 && (ttl_ms < 50 || ttl_ms > 86400000))
    return crl_status_fail(error, CORRAL_EINVAL,
                           "ttl_ms = %lld ms; accepted: 50 to 86400000, or 0 for that of the lock",
                           (long long)ttl_ms);
  return extend(lock, ttl_ms == 0 ? lock->ttl_ms : ttl_ms, 0, error);
}

int corral_lock_downgrade(corral_lock *lock, corral_error *error) {
  int status = check_held(lock, "corral_lock_downgrade", error);
  if (status != CORRAL_OK || atomic_load(&lock->shared)) return status;
  status = extend(lock, lock->ttl_ms, CORRAL_OP_SHARED, error);
  if (status != CORRAL_OK) return status;
  atomic_store(&lock->shared, 1);
  crl_lock_table_wake(lock->context->locks, lock->entry.hash);
  return CORRAL_OK;
}

int crl_lock_unlock(const corral_lock *lock, corral_error *error) {
  corral_error detail;
  corral_op op = crl_lock_op(lock, CORRAL_VERB_UNLOCK, &detail);
  op.unlock = (corral_unlock_args){.fence = lock->fence};
  crl_pool_perform(lock->context->pool, &op, 1, crl_env_now_ms() + lock->context->op_ms);
  if (op.status == CORRAL_EINDOUBT) {
    corral_op again = crl_lock_op(lock, CORRAL_VERB_UNLOCK, &detail);
    again.unlock = op.unlock;
    crl_pool_perform(lock->context->pool, &again, 1, crl_env_now_ms() + lock->context->op_ms);
    /* ELOST may be the effect of the first UNLOCK: then the status stays EINDOUBT. */
    if (again.status == CORRAL_OK) op = again;
  }
  if (op.status == CORRAL_OK) return CORRAL_OK;
  int status = crl_put_say(&op, error);
  if (status == CORRAL_ELOST && error != NULL) error->code = why_of(op.lock_state.left_ms);
  return status;
}

int crl_lock_give(corral_lock *lock, corral_error *error) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  corral_error detail = {0};
  crl_context *context = lock->context;
  int was_lost = atomic_load(&lock->lost);
  if (!crl_lock_table_drop(context->locks, &lock->entry))
    return was_lost ? crl_lock_say_lost(lock, 0, error) : CORRAL_OK;
  if (lock->is_kept) crl_renewer_drop(context->renewer, &lock->kept);
  if (crl_notifier_withdraw(context->events.notifier, &lock->notice)) tell(lock);
  was_lost = atomic_load(&lock->lost);
  int status = crl_lock_unlock(lock, &detail);
  if (status == CORRAL_ELOST || was_lost)
    status = crl_lock_say_lost(lock, detail.code, error);
  else if (status != CORRAL_OK)
    crl_status_fail(error, status, "%s", detail.text);
  else
    emit(lock, CORRAL_EVENT_UNLOCKED, NULL);
  crl_lock_table_wake(context->locks, lock->entry.hash);
  crl_lock_free(lock);
  return status;
}

int corral_lock_release(corral_lock *lock, corral_error *error) {
  if (lock == NULL) return CORRAL_OK;
  if (lock->magic != MAGIC)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_lock_release: not a lock that is held");
  int status = crl_context_check(lock->context, error);
  if (status != CORRAL_OK) return status;
  if (crl_frame_within(lock))
    return crl_status_fail(error, CORRAL_EINVAL,
                           "corral_lock_release: within on_lost of this very lock, which is still "
                           "to be released after it");
  return crl_lock_give(lock, error);
}

/* ---- holders ------------------------------------------------------------------------------- */

static void tell_holder(const corral_hold *hold, int64_t now, corral_lock_holder *ret) {
  memset(ret, 0, sizeof *ret);
  memcpy(ret->who, hold->note, CORRAL_LOCK_NOTE);
  ret->shared = hold->mode == CORRAL_LOCK_SHARED;
  ret->held_ms = hold->since > 0 && hold->since <= now ? now - hold->since : -1;
  ret->left_ms = hold->until > now ? hold->until - now : -1;
  ret->fence = hold->fence;
}

size_t crl_lock_holders(const corral_op *op, crl_context *context, uint64_t hash,
                        corral_lock_holder *holders, size_t room) {
  crl_lock_head head;
  corral_hold hold;
  size_t count = 0;
  if (op->status != CORRAL_OK ||
      crl_lock_record_read(op->found.record, op->found.len, &head) != CORRAL_OK)
    return 0;
  crl_lock_table_fence(context->locks, hash, head.fence);
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(op->found.record, i, &hold);
    if (hold.until != 0 && hold.until <= op->lock_state.now) continue;
    if (count < room) {
      tell_holder(&hold, op->lock_state.now, &holders[count]);
      holders[count].mine = crl_lock_table_has(context->locks, hash, hold.token);
    }
    count++;
  }
  return count;
}

int corral_lock_show(corral *c, const void *name, size_t name_len, corral_lock_holder *holders,
                     size_t room, size_t *ret_count, corral_error *error) {
  crl_context *context;
  corral_lock *lock;
  corral_error detail;
  int status = crl_context_enter(c, &context, error);
  if (status == CORRAL_OK && ret_count == NULL)
    status = crl_status_fail(error, CORRAL_EINVAL, "corral_lock_show: no ret_count");
  if (status == CORRAL_OK) status = crl_lock_new(context, name, name_len, &lock, error);
  if (status != CORRAL_OK) return status;
  corral_op op = crl_lock_op(lock, CORRAL_VERB_LOCK_SHOW, &detail);
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  if (op.status == CORRAL_OK || op.status == CORRAL_EMISS)
    *ret_count = crl_lock_holders(&op, context, lock->entry.hash, holders, room);
  else
    status = crl_put_say(&op, error);
  crl_lock_op_drop(&op);
  crl_lock_free(lock);
  return status;
}
