/* lock.c: the lock verbs as commands of a batch, and their replies.
 *
 * LOCK, LOCK_EXTEND and UNLOCK are one script each (lock_scripts.c). LOCK_SHOW is GET, PTTL and
 * TIME; REPAIR puts one more script before it.
 * Replicas that must confirm a lock: confirm.c. */
#include <stdatomic.h>
#include <stdlib.h>

#include "redis.h"

static int is_grant(const corral_op *op) {
  return op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND;
}

/* ---- formatting ---------------------------------------------------------------------------- */

static void put_keyed(crl_redis_handle *h, const corral_op *op, int round, crl_redis_script_id id,
                      size_t args) {
  crl_redis_request_put_script(h, round, id, 1, args);
  crl_redis_out_word(&h->out, op->key, op->key_len);
}

static void put_mode(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_number(&h->out,
                       op->flags & CORRAL_OP_SHARED ? CORRAL_LOCK_SHARED : CORRAL_LOCK_EXCLUSIVE);
}

static void put_lock(crl_redis_handle *h, const corral_op *op, int round) {
  char note[CORRAL_LOCK_NOTE] = {0};
  size_t len = op->lock.note_len < sizeof note ? op->lock.note_len : sizeof note;
  if (op->lock.note != NULL && len > 0) memcpy(note, op->lock.note, len);
  put_keyed(h, op, round, CRL_REDIS_LOCK, 5);
  crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
  crl_redis_out_number(&h->out, op->lock.hold_ms);
  put_mode(h, op);
  crl_redis_out_word(&h->out, note, sizeof note);
  crl_redis_out_number(&h->out, op->lock.wish_ms);
}

static void put_extend(crl_redis_handle *h, const corral_op *op, int round) {
  put_keyed(h, op, round, CRL_REDIS_LOCK_EXTEND, 4);
  crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
  crl_redis_out_number(&h->out, op->lock_extend.hold_ms);
  put_mode(h, op);
  crl_redis_out_number(&h->out, (int64_t)op->lock_extend.fence);
}

static int repairs(const crl_redis_handle *h, const corral_op *op) {
  return (op->flags & CORRAL_OP_REPAIR) != 0 && !h->store->scriptless;
}

static void put_show(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  static const char *const commands[] = {"GET", "PTTL"};
  const corral_op *op = slot->op;
  slot->staged = repairs(h, op);
  if (slot->staged) {
    put_keyed(h, op, round, CRL_REDIS_LOCK_REPAIR, 2);
    crl_redis_out_text(&h->out, "");
    crl_redis_out_number(&h->out, op->lock_show.foreign_ms > 0 ? op->lock_show.foreign_ms : 1);
  }
  for (size_t i = 0; i < 2; i++) {
    crl_redis_out_command(&h->out, 2);
    crl_redis_out_text(&h->out, commands[i]);
    crl_redis_out_word(&h->out, op->key, op->key_len);
  }
  crl_redis_out_command(&h->out, 1);
  crl_redis_out_text(&h->out, "TIME");
  slot->replies = slot->staged + 3;
}

void crl_redis_lock_put(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  const corral_op *op = slot->op;
  switch (op->verb) {
    case CORRAL_VERB_LOCK: put_lock(h, op, round); break;
    case CORRAL_VERB_LOCK_EXTEND: put_extend(h, op, round); break;
    case CORRAL_VERB_UNLOCK:
      put_keyed(h, op, round, CRL_REDIS_UNLOCK, 1);
      crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
      break;
    default: put_show(h, slot, round); break;
  }
}

/* ---- judging ------------------------------------------------------------------------------- */

/* A remaining time from the server, limited to exact numbers. */
static int64_t left_of(int64_t ms) {
  return ms < (int64_t)CRL_REDIS_EXACT ? ms : (int64_t)CRL_REDIS_EXACT;
}

void crl_redis_lock_foreign(const crl_redis_handle *h, corral_op *op, int64_t pttl) {
  crl_redis_result_fail(
      h, op, CORRAL_EFOREIGN,
      pttl == -1
          ? "a lock without TTL that corral did not write"
          : "the key holds data that corral did not write: give corral a name space of its own");
  op->lock_state.left_ms = pttl > -2 ? left_of(pttl) : 0;
}

/* Judges an error reply to a script; if scripts are forbidden and locks can do without, they will
 * from now on. */
static int judge_refusal(crl_redis_handle *h, crl_redis_slot *slot, const redisReply *reply) {
  crl_redis_store *s = h->store;
  slot->noscript = crl_redis_reply_is_error(reply, "NOSCRIPT");
  if (slot->noscript) {
    crl_redis_result_fail(h, slot->op, CORRAL_EUNAVAILABLE, "the server had lost its scripts");
    return CORRAL_OK;
  }
  int forbidden =
      crl_redis_reply_is_error(reply, "ERR unknown command") ||
      (crl_redis_reply_is_error(reply, "NOPERM") && strstr(reply->str, "command") != NULL);
  if (forbidden && !s->scripts_only) {
    atomic_store(&s->scriptless, 1);
    h->refused_scripts = 1;
  }
  return crl_redis_result_error(h, slot->op, reply);
}

static int known_status(const corral_op *op, long long status) {
  switch (status) {
    case CORRAL_OK:
    case CORRAL_EFOREIGN: return 1;
    case CORRAL_EBUSY:
    case CORRAL_EREFUSED: return op->verb == CORRAL_VERB_LOCK;
    case CORRAL_ELOST: return op->verb == CORRAL_VERB_LOCK_EXTEND || op->verb == CORRAL_VERB_UNLOCK;
    default: return 0;
  }
}

enum { STATUS, NOW, UNTIL, FENCE, NUMBERS };

/* Reads a script's answer, four little-endian numbers; 0: it isn't one. */
static int read_answer(const corral_op *op, const redisReply *reply, int64_t ret[NUMBERS]) {
  if (reply->type != REDIS_REPLY_STRING || reply->len != 8 * NUMBERS) return 0;
  for (int i = 0; i < NUMBERS; i++) {
    uint64_t number = 0;
    for (int j = 7; j >= 0; j--) number = number << 8 | (uint8_t)reply->str[8 * i + j];
    ret[i] = (int64_t)number;
  }
  int is_exact = ret[NOW] > 0 && ret[NOW] < (int64_t)CRL_REDIS_EXACT && ret[FENCE] >= 0 &&
                 ret[FENCE] <= (int64_t)CRL_REDIS_EXACT;
  return is_exact && known_status(op, ret[STATUS]);
}

static int judge_script(crl_redis_handle *h, crl_redis_slot *slot, const redisReply *reply,
                        int64_t before) {
  corral_op *op = slot->op;
  int64_t answer[NUMBERS];
  if (reply->type == REDIS_REPLY_ERROR) return judge_refusal(h, slot, reply);
  if (!read_answer(op, reply, answer)) return crl_redis_result_nonsense(h, op);
  crl_redis_clock_learn(h, answer[NOW], before);
  op->status = (int)answer[STATUS];
  op->lock_state.left_ms = left_of(answer[UNTIL]);
  if (op->status == CORRAL_EFOREIGN) crl_redis_lock_foreign(h, op, op->lock_state.left_ms);
  if (op->status == CORRAL_EREFUSED)
    crl_redis_result_fail(h, op, op->status, "no room for one more hold of this lock");
  if (op->status == CORRAL_OK && is_grant(op)) op->lock_state.fence = (uint64_t)answer[FENCE];
  return CORRAL_OK;
}

/* Judges the replies to GET, PTTL and TIME. */
static int judge_sight(crl_redis_handle *h, corral_op *op, redisReply **replies, int64_t before) {
  corral_lock_change change;
  int64_t us = crl_redis_clock_time(replies[2]);
  int is_foreign = crl_redis_reply_is_error(replies[0], "WRONGTYPE");
  for (int i = is_foreign; i < 3; i++)
    if (replies[i]->type == REDIS_REPLY_ERROR) return crl_redis_result_error(h, op, replies[i]);
  if (replies[1]->type != REDIS_REPLY_INTEGER || us < 0) return crl_redis_result_nonsense(h, op);
  crl_redis_clock_learn(h, us / 1000, before);
  if (is_foreign) {
    crl_redis_lock_foreign(h, op, replies[1]->integer);
    return CORRAL_OK;
  }
  int is_there = replies[0]->type == REDIS_REPLY_STRING;
  if (!is_there && replies[0]->type != REDIS_REPLY_NIL) return crl_redis_result_nonsense(h, op);
  /* A look changes nothing, so there is no room for a record. */
  h->store->host->lock_decide(op, is_there ? (const uint8_t *)replies[0]->str : NULL,
                              is_there ? replies[0]->len : 0, us / 1000, (uint64_t)us, NULL,
                              &change);
  if (op->status == CORRAL_EFOREIGN) crl_redis_lock_foreign(h, op, replies[1]->integer);
  if (op->status == CORRAL_OK) crl_redis_result_give(op, &replies[0]);
  return CORRAL_OK;
}

static int judge_show(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                      int64_t before) {
  corral_op *op = slot->op;
  int at = slot->staged;
  if (at > 0 && replies[0]->type == REDIS_REPLY_ERROR) return judge_refusal(h, slot, replies[0]);
  int64_t answer[NUMBERS];
  if (at > 0 && !read_answer(op, replies[0], answer)) return crl_redis_result_nonsense(h, op);
  return judge_sight(h, op, replies + at, before);
}

int crl_redis_lock_judge(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                         int64_t before) {
  if (slot->op->verb == CORRAL_VERB_LOCK_SHOW) return judge_show(h, slot, replies, before);
  return judge_script(h, slot, replies[0], before);
}
