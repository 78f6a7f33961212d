/* show.c: who holds a lock, and who waits for it, by its record as LOCK_SHOW found it. */
#include "locks/lock.h"
#include "os/env.h"
#include "record/lock_record.h"
#include "store/put.h"
#include "base/status.h"

static void tell_holder(const corral_hold *hold, int64_t now, corral_lock_holder *ret) {
  memset(ret, 0, sizeof *ret);
  memcpy(ret->who, hold->note, CORRAL_LOCK_NOTE);
  ret->shared = hold->mode == CORRAL_LOCK_PERMIT ? 2 : hold->mode == CORRAL_LOCK_SHARED;
  ret->held_ms = hold->since > 0 && hold->since <= now ? now - hold->since : -1;
  ret->left_ms = hold->until > now ? hold->until - now : -1;
  ret->fence = hold->fence;
}

/* Reads hold or place number *at of a record that LOCK_SHOW found, of those that aren't over, and
 * moves *at behind it; 0: there is none. */
static int next_of(const corral_op *op, size_t *at, corral_hold *hold) {
  crl_lock_head head;
  if (op->status != CORRAL_OK ||
      crl_lock_record_read(op->found.record, op->found.len, &head) != CORRAL_OK)
    return 0;
  while (*at < head.count) {
    crl_lock_record_hold(op->found.record, (*at)++, hold);
    if (hold->until == 0 || hold->until > op->lock_state.now) return 1;
  }
  return 0;
}

size_t crl_lock_holders(const corral_op *op, crl_context *context, uint64_t hash,
                        corral_lock_holder *holders, size_t room) {
  crl_lock_head head;
  corral_hold hold;
  size_t count = 0, at = 0;
  if (op->status == CORRAL_OK &&
      crl_lock_record_read(op->found.record, op->found.len, &head) == CORRAL_OK)
    crl_lock_table_fence(context->locks, hash, head.fence);
  while (next_of(op, &at, &hold)) {
    if (crl_lock_record_waits(&hold)) continue;
    if (count < room) {
      tell_holder(&hold, op->lock_state.now, &holders[count]);
      holders[count].mine = crl_lock_table_has(context->locks, hash, hold.token);
    }
    count++;
  }
  return count;
}

uint64_t crl_lock_print(const corral_op *op) {
  corral_hold hold;
  uint64_t print = 0;
  size_t at = 0;
  while (next_of(op, &at, &hold)) {
    uint64_t part[2] = {hold.fence, (uint64_t)hold.mode};
    if (crl_lock_record_waits(&hold)) continue;
    print += crl_hash(hold.token, CORRAL_TOKEN) ^ crl_hash(part, sizeof part);
  }
  return print;
}

size_t crl_lock_ahead(const corral_op *op, const crl_hold *own) {
  corral_hold hold;
  size_t count = 0, at = 0;
  while (next_of(op, &at, &hold) && memcmp(hold.token, own->token, CORRAL_TOKEN) != 0)
    count += (size_t)crl_lock_record_waits(&hold);
  return count;
}

static size_t waiters_of(const corral_op *op, corral_lock_waiter *waiters, size_t room) {
  corral_hold hold;
  size_t count = 0, at = 0;
  while (next_of(op, &at, &hold)) {
    if (!crl_lock_record_waits(&hold)) continue;
    if (count++ >= room) continue;
    corral_lock_waiter *ret = &waiters[count - 1];
    memset(ret, 0, sizeof *ret);
    memcpy(ret->who, hold.note, CORRAL_LOCK_NOTE);
    int mode = hold.mode - CORRAL_LOCK_WAITING;
    ret->shared = mode == CORRAL_LOCK_PERMIT ? 2 : mode == CORRAL_LOCK_SHARED;
    ret->waited_ms =
        hold.since > 0 && hold.since <= op->lock_state.now ? op->lock_state.now - hold.since : -1;
  }
  return count;
}

/* LOCK_SHOW. CORRAL_OK: *ret_hold is to be freed, and the op to be dropped. */
static int see(corral *c, const crl_name *name, const size_t *ret_count, crl_hold **ret_hold,
               corral_op *op, corral_error *error) {
  crl_context *context;
  corral_error detail;
  int status = crl_context_enter(c, &context, error);
  if (status == CORRAL_OK && ret_count == NULL)
    status = crl_status_fail(error, CORRAL_EINVAL, "a lock is to be shown: no ret_count");
  if (status == CORRAL_OK)
    status = crl_lock_new(context, name->key, name->key_len, ret_hold, error);
  if (status != CORRAL_OK) return status;
  *op = crl_lock_op(*ret_hold, CORRAL_VERB_LOCK_SHOW, &detail);
  crl_pool_perform(context->pool, op, 1, crl_env_now_ms() + context->op_ms);
  int is_seen = op->status == CORRAL_OK || op->status == CORRAL_EMISS;
  if (!is_seen) status = crl_put_say(op, error);
  op->error = NULL;
  if (is_seen) return CORRAL_OK;
  crl_lock_op_drop(op);
  crl_lock_free(*ret_hold);
  return status;
}

int corral_lock_show(corral *c, const void *name, size_t name_len, corral_lock_holder *holders,
                     size_t room, size_t *ret_count, corral_error *error) {
  crl_hold *hold;
  corral_op op;
  int status = see(c, &(crl_name){.key = name, .key_len = name_len}, ret_count, &hold, &op, error);
  if (status != CORRAL_OK) return status;
  *ret_count = crl_lock_holders(&op, hold->context, hold->entry.hash, holders, room);
  crl_lock_op_drop(&op);
  crl_lock_free(hold);
  return CORRAL_OK;
}

int corral_lock_waiters(corral *c, const void *name, size_t name_len, corral_lock_waiter *waiters,
                        size_t room, size_t *ret_count, corral_error *error) {
  crl_hold *hold;
  corral_op op;
  int status = see(c, &(crl_name){.key = name, .key_len = name_len}, ret_count, &hold, &op, error);
  if (status != CORRAL_OK) return status;
  *ret_count = waiters_of(&op, waiters, room);
  crl_lock_op_drop(&op);
  crl_lock_free(hold);
  return CORRAL_OK;
}
