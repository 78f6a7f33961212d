/* desk.c: what an operator does to the holds of others: breaks them; and the times of this
 * process's own ones.
 *
 * No verb of a store is made for breaking. A look tells the token of each hold, and UNLOCK with
 * that token ends it: its holder's next request finds no hold of its token. The record keeps the
 * last fencing token, so the next hold has a larger one. */
#include "locks/lock.h"

#include "os/env.h"
#include "record/lock_record.h"
#include "store/put.h"
#include "base/sized.h"
#include "base/status.h"

/* Performs LOCK_SHOW; the op is to be dropped, and its text goes to *detail. */
static corral_op look(const crl_hold *at, corral_error *detail) {
  corral_op op = crl_lock_op(at, CORRAL_VERB_LOCK_SHOW, detail);
  crl_pool_perform(at->context->pool, &op, 1, crl_env_now_ms() + at->context->op_ms);
  return op;
}

/* The number of holds in the record that was found; *fence is the last token of the name. */
static size_t count_of(const corral_op *op, uint64_t *fence) {
  crl_lock_head head = {0};
  if (op->status != CORRAL_OK ||
      crl_lock_record_read(op->found.record, op->found.len, &head) != CORRAL_OK)
    return 0;
  *fence = head.fence;
  return head.count;
}

/* Reads hold number `i`; 0: it is over, or a place in the queue. */
static int is_live(const corral_op *op, size_t i, corral_hold *hold) {
  crl_lock_record_hold(op->found.record, i, hold);
  return !crl_lock_record_waits(hold) && (hold->until == 0 || hold->until > op->lock_state.now);
}

/* 1: the store still shows this hold; 0: it doesn't; -1: it can't be asked. */
static int stands(const crl_hold *at, const corral_hold *wanted) {
  corral_error detail;
  corral_hold hold;
  uint64_t fence;
  corral_op op = look(at, &detail);
  int is_there = op.status == CORRAL_OK || op.status == CORRAL_EMISS ? 0 : -1;
  for (size_t i = count_of(&op, &fence); i-- > 0;)
    is_there |= is_live(&op, i, &hold) && hold.fence == wanted->fence &&
                memcmp(hold.token, wanted->token, CORRAL_TOKEN) == 0;
  crl_lock_op_drop(&op);
  return is_there;
}

/* CORRAL_OK; CORRAL_ELOST: it was over before. `at` takes its token. */
static int end_hold(crl_hold *at, const corral_hold *hold, corral_error *error) {
  corral_error detail = {0};
  memcpy(at->token, hold->token, sizeof at->token);
  at->fence = hold->fence;
  int status = crl_lock_unlock(at, &detail);
  int is_there = status == CORRAL_ELOST || status == CORRAL_EINDOUBT ? stands(at, hold) : -1;
  if (status == CORRAL_EINDOUBT && is_there == 0) return CORRAL_OK;
  if (status == CORRAL_ELOST && is_there <= 0) return status;
  if (status == CORRAL_ELOST)
    return crl_status_fail(
        error, CORRAL_EUNSUPPORTED,
        "the hold of %.*s belongs to a connection, and only the server ends it, "
        "together with that: pg_terminate_backend in PostgreSQL, KILL in MariaDB",
        (int)strnlen(hold->note, sizeof hold->note), hold->note);
  return status == CORRAL_OK ? status : crl_status_fail(error, status, "%s", detail.text);
}

/* A hold whose token isn't known belongs to a connection, and stands whatever is sent. */
static int is_meant(const corral_hold *hold, uint64_t fence) {
  return fence == 0 || hold->fence == 0 || hold->fence == fence;
}

/* Ends the holds that the look has found, or the one with this token. */
static int end_holds(crl_hold *at, const corral_op *op, uint64_t fence, corral_error *error) {
  corral_hold hold;
  uint64_t last = 0;
  size_t count = count_of(op, &last), broken = 0;
  int status = CORRAL_OK;
  crl_lock_table_fence(at->context->locks, at->entry.hash, last);
  for (size_t i = 0; i < count && (status == CORRAL_OK || status == CORRAL_ELOST); i++) {
    if (!is_live(op, i, &hold) || !is_meant(&hold, fence)) continue;
    status = end_hold(at, &hold, error);
    broken += status == CORRAL_OK;
  }
  if (broken > 0) crl_lock_table_wake(at->context->locks, at->entry.hash);
  if (status != CORRAL_OK && status != CORRAL_ELOST) return status;
  if (broken > 0) return CORRAL_OK;
  return fence == 0 ? crl_status_fail(error, CORRAL_EMISS, "nobody holds it")
                    : crl_status_fail(error, CORRAL_EMISS, "no hold has the fencing token %llu",
                                      (unsigned long long)fence);
}

int corral_lock_break(corral *c, const void *name, size_t name_len, uint64_t fence,
                      corral_error *error) {
  crl_context *context;
  crl_hold *at;
  corral_error detail;
  int status = crl_context_enter(c, &context, error);
  if (status == CORRAL_OK) status = crl_lock_new(context, name, name_len, &at, error);
  if (status != CORRAL_OK) return status;
  corral_op op = look(at, &detail);
  if (op.status == CORRAL_OK || op.status == CORRAL_EMISS)
    status = end_holds(at, &op, fence, error);
  else
    status = crl_put_say(&op, error);
  crl_lock_op_drop(&op);
  crl_lock_free(at);
  return status;
}

/* ---- times --------------------------------------------------------------------------------- */

static corral_lock_times read_times(const crl_context *context, corral_time time) {
  corral_histogram h;
  crl_stats_times(&context->events.stats, time, &h);
  return (corral_lock_times){.count = h.count,
                             .p50_us = (int64_t)corral_histogram_quantile(&h, 0.5),
                             .p90_us = (int64_t)corral_histogram_quantile(&h, 0.9),
                             .p99_us = (int64_t)corral_histogram_quantile(&h, 0.99),
                             .p999_us = (int64_t)corral_histogram_quantile(&h, 0.999),
                             .max_us = (int64_t)h.max_us};
}

int corral_lock_stats_read(corral *c, corral_lock_stats *ret, corral_error *error) {
  crl_context *context;
  int status = crl_context_open(c, &context, error);
  if (status != CORRAL_OK) return status;
  if (ret == NULL || ret->size < sizeof ret->size)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_lock_stats_read: no ret, or no ret->size");
  corral_lock_stats stats = {.wait = read_times(context, CORRAL_TIME_LOCK_WAIT),
                             .hold = read_times(context, CORRAL_TIME_LOCK_HOLD)};
  crl_sized_write(ret, &stats, sizeof stats);
  return CORRAL_OK;
}
