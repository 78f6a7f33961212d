/* fence.c: the fencing counter of a lock in a second store, which doesn't forget it.
 *
 * The counter is the fencing token of the lock of that name there. It is taken for as long as the
 * counting lasts; where that was cut off, the next one waits for the end of that hold. */
#include "locks/lock.h"

#include "base/status.h"
#include "os/env.h"
#include "policy/policy.h"
#include "store/put.h"

enum { HOLD_MS = 2000, POLL_MS = 1, POLL_MOST_MS = 50 };

static int ask(const crl_hold *count, corral_op *op, int64_t until, corral_error *detail) {
  crl_pool_perform(count->context->pool, op, 1, until);
  return op->status == CORRAL_OK ? CORRAL_OK : crl_put_say(op, detail);
}

/* Readers of one lock count at the same time: each waits for its turn. */
static int begin(const crl_hold *count, corral_op *ret, int64_t until, corral_error *detail) {
  corral_error why;
  for (unsigned i = 0;; i++) {
    *ret = crl_lock_op(count, CORRAL_VERB_LOCK, &why);
    ret->lock = (corral_lock_args){.hold_ms = HOLD_MS, .note = "counts", .note_len = 6};
    int status = ask(count, ret, until, detail);
    if (status != CORRAL_EBUSY || crl_env_now_ms() >= until) return status;
    crl_env_sleep_until(crl_env_now_ms() +
                        crl_policy_backoff(POLL_MS, POLL_MOST_MS, i, crl_env_dice()));
  }
}

static int count_on(const crl_hold *count, uint64_t floor, int64_t until, uint64_t *ret,
                    corral_error *detail) {
  corral_error why;
  corral_op op;
  int status = begin(count, &op, until, detail);
  if (status == CORRAL_OK && op.lock_state.fence <= floor) {
    op = crl_lock_op(count, CORRAL_VERB_LOCK_EXTEND, &why);
    op.lock_extend = (corral_lock_extend_args){.hold_ms = HOLD_MS, .fence = floor + 1};
    status = ask(count, &op, until, detail);
  }
  *ret = op.lock_state.fence;
  if (status == CORRAL_OK && *ret <= floor)
    status = crl_status_fail(detail, CORRAL_EUNSUPPORTED, "that store's tokens can't be raised");
  if (op.status != CORRAL_EBUSY) (void)crl_lock_unlock(count, NULL);
  return status;
}

int crl_fence_count(crl_context *counters, const crl_hold *hold, uint64_t floor, uint64_t *ret,
                    corral_error *error) {
  crl_hold *count;
  corral_error detail = {0};
  int status = crl_lock_new(counters, hold->key.user, hold->key.user_len, &count, &detail);
  if (status == CORRAL_OK) {
    status = count_on(count, floor, crl_env_now_ms() + counters->op_ms, ret, &detail);
    crl_lock_free(count);
  }
  if (status == CORRAL_OK) return CORRAL_OK;
  if (status == CORRAL_EBUSY || status == CORRAL_ELOST || status == CORRAL_EFOREIGN)
    status = CORRAL_EUNAVAILABLE; /* these would be taken for what the lock itself met */
  return crl_status_fail(error, status, "the fencing counter: %.200s",
                         detail.text[0] != '\0' ? detail.text : corral_status_text(status));
}
