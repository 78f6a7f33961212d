/* result.c: what comes of an operation: its status and text, what it found. */
#include "redis.h"

int crl_redis_result_fail(const crl_redis_handle *h, corral_op *op, int status, const char *what) {
  return op->status = h->store->host->fail(op->error, status, "%s: %s", h->store->name, what);
}

int crl_redis_result_nonsense(const crl_redis_handle *h, corral_op *op) {
  return crl_redis_result_fail(h, op, CORRAL_EPROTOCOL,
                               "a reply of a kind that doesn't answer the command");
}

int crl_redis_result_error(crl_redis_handle *h, corral_op *op, const redisReply *reply) {
  if (crl_redis_moved(h, op, reply)) return CORRAL_OK;
  if (crl_redis_reply_is_error(reply, "READONLY")) atomic_fetch_add(&h->store->demoted, 1);
  op->status = crl_redis_reply_error(h->store, reply, CORRAL_EREFUSED, op->error);
  return op->status == CORRAL_EPROTOCOL || op->status == CORRAL_ETOOBIG ? op->status : CORRAL_OK;
}

/* ---- what an operation found --------------------------------------------------------------- */

void crl_redis_result_none_sent(const crl_redis_handle *h, const corral_batch *batch, int status,
                                const char *what) {
  for (size_t i = 0; i < batch->count; i++)
    crl_redis_result_fail(h, corral_batch_op(batch, i), status, what);
}

void crl_redis_result_give(corral_op *op, redisReply **reply) {
  op->found.record = (uint8_t *)(*reply)->str;
  op->found.len = (*reply)->len;
  op->found.owner = *reply;
  op->found.drop = freeReplyObject;
  *reply = NULL;
}

void crl_redis_result_take_back(corral_op *op) {
  if (op->found.record != NULL && op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found = (corral_found){.record = NULL};
  op->state = (corral_record_state){.life_ms = 0}; /* and so op->lock_state */
  op->flags &= ~(uint32_t)CORRAL_OP_LARGE;
  if (op->error != NULL) memset(op->error, 0, sizeof *op->error);
}
