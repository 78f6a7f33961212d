/* confirm.c: replicas that must confirm a change: WAIT at the end of a round.
 *
 * Locks want wait_replicas, changes that void what was stored before them (CORRAL_OP_CONFIRM)
 * confirm_replicas. WAIT tells how many replicas have received all that this connection wrote. It
 * doesn't make a change safe against a failover, only likelier to survive one: a replica that
 * hasn't received it can still be the one that is promoted, and one that confirmed may lose its
 * memory first. A hold that too few replicas confirmed exists on the primary; EREFUSED makes the
 * host end it by UNLOCK. An invalidation that too few confirmed is done on the primary, and in
 * doubt beyond that. */
#include "redis.h"

static int is_grant(const corral_op *op) {
  return op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND;
}

/* The number of replicas that must confirm an operation. */
static int64_t wanted_by(const crl_redis_handle *h, const corral_op *op) {
  if (is_grant(op)) return h->store->wait_replicas;
  return (op->flags & CORRAL_OP_CONFIRM) != 0 ? h->store->confirm_replicas : 0;
}

/* WAIT 0 would wait for ever; and the reply must be here by the deadline. */
void crl_redis_confirm_say(crl_redis_handle *h, int64_t replicas, int64_t deadline) {
  const crl_redis_store *s = h->store;
  int64_t left = deadline - s->host->now_ms(), most = left - left / 4;
  crl_redis_out_command(&h->out, 3);
  crl_redis_out_text(&h->out, "WAIT");
  crl_redis_out_number(&h->out, replicas);
  crl_redis_out_number(&h->out, most < 1 ? 1 : most < s->wait_ms ? most : s->wait_ms);
}

int crl_redis_confirm_put(crl_redis_handle *h, size_t count, int round, int64_t deadline) {
  int64_t most = 0;
  if (h->store->wait_replicas == 0 && h->store->confirm_replicas == 0) return 0;
  for (size_t i = 0; i < count; i++) {
    int64_t wanted =
        crl_redis_slot_is_wanted(&h->slots[i], round) ? wanted_by(h, h->slots[i].op) : 0;
    if (wanted > most) most = wanted;
  }
  if (most > 0) crl_redis_confirm_say(h, most, deadline);
  return most > 0;
}

int crl_redis_confirm_judge(const crl_redis_handle *h, corral_op *op, const redisReply *reply) {
  const crl_redis_store *s = h->store;
  int64_t wanted = wanted_by(h, op);
  int too_few = is_grant(op) ? CORRAL_EREFUSED : CORRAL_EINDOUBT;
  const char *what = is_grant(op) ? "granted" : "done", *so = is_grant(op) ? ": not held" : "";
  if (op->status != CORRAL_OK || wanted == 0) return CORRAL_OK;
  if (reply->type == REDIS_REPLY_ERROR)
    op->status =
        s->host->fail(op->error, too_few, "%.80s: %s by the primary, which refuses WAIT%s: %.80s",
                      s->name, what, so, reply->str);
  else if (reply->type != REDIS_REPLY_INTEGER)
    return crl_redis_result_nonsense(h, op);
  else if (reply->integer < wanted)
    op->status = s->host->fail(op->error, too_few,
                               "%.80s: %s by the primary, confirmed by %lld of %lld replicas%s",
                               s->name, what, reply->integer, (long long)wanted, so);
  return CORRAL_OK;
}

int crl_redis_confirm_hear(crl_redis_handle *h, size_t count, int round, int status,
                           int64_t deadline, corral_error *error) {
  redisReply *reply = NULL;
  if (status == CORRAL_OK) status = crl_redis_reply_next(h, deadline, &reply, error);
  for (size_t i = 0; i < count; i++) {
    corral_op *op = h->slots[i].op;
    if (!crl_redis_slot_is_wanted(&h->slots[i], round) || op->status != CORRAL_OK ||
        wanted_by(h, op) == 0)
      continue;
    if (reply == NULL)
      crl_redis_result_fail(h, op, CORRAL_EINDOUBT,
                            "done by the primary; whether replicas confirm it was not told");
    else if (crl_redis_confirm_judge(h, op, reply) != CORRAL_OK)
      status = CORRAL_EPROTOCOL;
  }
  if (reply != NULL) freeReplyObject(reply);
  return status;
}
