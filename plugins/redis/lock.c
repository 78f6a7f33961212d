/* lock.c: the lock verbs as commands of a batch, and their replies.
 *
 * LOCK, LOCK_EXTEND and UNLOCK are one script each (lock_scripts.c). LOCK_SHOW is GET, PTTL and
 * TIME; REPAIR puts one more script before it.
 * Replicas that must confirm a lock: confirm.c. */
#include <stdatomic.h>
#include <stdlib.h>

#include "redis.h"

enum {
  ALONE = CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD, /* a record with one hold; offsets in it: */
  AT_WISH = 16,
  AT_UNTIL = CORRAL_LOCK_HEAD + 24,
  AT_NOTE = CORRAL_LOCK_HEAD + 48,
  KNOWN = AT_UNTIL - AT_WISH + 8, /* what the script of LOCK is told of it, and 1 for a turn */
  DIGITS_MOST = 16                /* of a fencing token */
};

static int is_grant(const corral_op *op) {
  return op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND;
}

/* ---- formatting ---------------------------------------------------------------------------- */

static void put_keyed(crl_redis_handle *h, const corral_op *op, int round, crl_redis_script_id id,
                      size_t args) {
  crl_redis_request_put_script(h, round, id, 1, args);
  crl_redis_out_word(&h->out, op->key, op->key_len);
}

static int mode_of(const corral_op *op) {
  return op->flags & CORRAL_OP_SHARED ? CORRAL_LOCK_SHARED : CORRAL_LOCK_EXCLUSIVE;
}

static void put_four(uint8_t *to, uint32_t number) {
  for (size_t i = 0; i < 4; i++) to[i] = (uint8_t)(number >> (8 * i));
}

static void put_lock(crl_redis_handle *h, const corral_op *op, int round) {
  uint8_t record[ALONE], known[KNOWN + 1] = {0};
  int64_t wish_ms = op->lock.wish_ms > 0 ? op->lock.wish_ms : 0;
  corral_hold hold = {.mode = mode_of(op), .length_ms = CORRAL_LOCK_LONGEST_MS};
  if (hold.mode == CORRAL_LOCK_EXCLUSIVE && op->lock.permits > 0) hold.mode = CORRAL_LOCK_PERMIT;
  size_t len = op->lock.note_len < sizeof hold.note ? op->lock.note_len : sizeof hold.note;
  if (op->lock.hold_ms < CORRAL_LOCK_LONGEST_MS) hold.length_ms = (uint32_t)op->lock.hold_ms;
  memcpy(hold.token, op->token, CORRAL_TOKEN);
  if (op->lock.note != NULL && len > 0) memcpy(hold.note, op->lock.note, len);
  h->store->host->lock_write(0, &hold, 1, record);
  memcpy(known, record + AT_WISH, AT_UNTIL - AT_WISH);
  put_four(known + (AT_UNTIL - AT_WISH), (uint32_t)(wish_ms < INT32_MAX ? wish_ms : INT32_MAX));
  put_four(known + (AT_UNTIL - AT_WISH + 4), op->lock.permits);
  put_keyed(h, op, round, CRL_REDIS_LOCK, 3);
  crl_redis_out_word(&h->out, known, op->flags & CORRAL_OP_FAIR ? KNOWN + 1 : KNOWN);
  crl_redis_out_number(&h->out, op->lock.hold_ms + CORRAL_LOCK_MEMORY_MS);
  crl_redis_out_word(&h->out, record + AT_NOTE, CORRAL_LOCK_NOTE);
}

/* 0 in place of a fencing token that no store can have given. */
static uint64_t fence_of(const corral_op *op) {
  return op->unlock.fence < CRL_REDIS_EXACT ? op->unlock.fence : 0;
}

/* The record that is left of one with a lone hold. */
static void write_left(const crl_redis_handle *h, const corral_op *op, uint8_t *left) {
  h->store->host->lock_write(fence_of(op), NULL, 0, left);
}

static void put_unlock(crl_redis_handle *h, const corral_op *op, int round) {
  uint8_t record[ALONE], left[CORRAL_LOCK_HEAD];
  corral_hold hold = {.mode = 0};
  memcpy(hold.token, op->token, CORRAL_TOKEN);
  h->store->host->lock_write(fence_of(op), &hold, 1, record);
  write_left(h, op, left);
  put_keyed(h, op, round, CRL_REDIS_UNLOCK, 2);
  crl_redis_out_word(&h->out, record, CORRAL_LOCK_HEAD + CORRAL_TOKEN);
  crl_redis_out_word(&h->out, left, sizeof left);
}

static void put_extend(crl_redis_handle *h, const corral_op *op, int round) {
  const uint8_t *from = op->lock_extend.from;
  size_t len = op->lock_extend.note_len;
  char note[CORRAL_LOCK_NOTE] = {0};
  put_keyed(h, op, round, CRL_REDIS_LOCK_EXTEND, from != NULL ? 6 : 4);
  crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
  crl_redis_out_number(&h->out, op->lock_extend.hold_ms);
  crl_redis_out_number(&h->out, mode_of(op));
  crl_redis_out_number(&h->out, (int64_t)op->lock_extend.fence);
  if (from == NULL) return;
  if (len > 0) memcpy(note, op->lock_extend.note, len < sizeof note ? len : sizeof note);
  crl_redis_out_word(&h->out, from, CORRAL_TOKEN);
  crl_redis_out_word(&h->out, note, sizeof note);
}

static int repairs(const crl_redis_handle *h, const corral_op *op) {
  return (op->flags & CORRAL_OP_REPAIR) != 0 && !h->store->scriptless;
}

/* A proxy knows no TIME; the key says which of its servers is asked. */
static void put_time(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_command(&h->out, h->is_bare ? 4 : 1);
  if (!h->is_bare) {
    crl_redis_out_text(&h->out, "TIME");
    return;
  }
  crl_redis_out_text(&h->out, "EVAL");
  crl_redis_out_text(&h->out, "return redis.pcall('TIME')");
  crl_redis_out_number(&h->out, 1);
  crl_redis_out_word(&h->out, op->key, op->key_len);
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
  put_time(h, op);
  slot->replies = slot->staged + 3;
}

void crl_redis_lock_put(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  const corral_op *op = slot->op;
  switch (op->verb) {
    case CORRAL_VERB_LOCK: put_lock(h, op, round); break;
    case CORRAL_VERB_LOCK_EXTEND: put_extend(h, op, round); break;
    case CORRAL_VERB_UNLOCK: put_unlock(h, op, round); break;
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
  h->used = 0; /* errors don't tell whom they answer: the next batch is checked */
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

/* In place of the fencing token, the answer to UNLOCK has the mark of its token. */
enum { STATUS, NOW, UNTIL, FENCE, NUMBERS };

static int64_t mark_of(const corral_op *op) {
  uint32_t mark = 0;
  for (int i = 3; i >= 0; i--) mark = mark << 8 | op->token[i];
  return mark;
}

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

/* Reads the answer of a shortcut; 0: it isn't one. */
static int read_short_answer(const crl_redis_handle *h, const corral_op *op,
                             const redisReply *reply, int64_t ret[NUMBERS]) {
  uint8_t left[CORRAL_LOCK_HEAD];
  memset(ret, 0, NUMBERS * sizeof *ret);
  if (op->verb == CORRAL_VERB_LOCK && reply->type == REDIS_REPLY_INTEGER &&
      reply->integer >= 1000 && reply->integer < (int64_t)CRL_REDIS_EXACT) {
    ret[NOW] = reply->integer / 1000;
    ret[UNTIL] = op->lock.hold_ms;
    ret[FENCE] = reply->integer;
    return 1;
  }
  if (op->verb != CORRAL_VERB_UNLOCK || reply->type != REDIS_REPLY_STRING ||
      reply->len != sizeof left)
    return 0;
  write_left(h, op, left);
  ret[FENCE] = mark_of(op);
  return memcmp(left, reply->str, sizeof left) == 0;
}

/* True unless the answer to a request that was sent unchecked is another one's: that to UNLOCK
 * tells its token, the others tell when it was given. */
static int is_in_place(const crl_redis_handle *h, const corral_op *op,
                       const int64_t answer[NUMBERS], int64_t before) {
  if (!h->unchecked) return 1;
  return op->verb == CORRAL_VERB_UNLOCK ? answer[FENCE] == mark_of(op)
                                        : crl_redis_clock_fits(h, answer[NOW], before);
}

static int judge_script(crl_redis_handle *h, crl_redis_slot *slot, const redisReply *reply,
                        int64_t before) {
  corral_op *op = slot->op;
  int64_t answer[NUMBERS];
  if (reply->type == REDIS_REPLY_ERROR) return judge_refusal(h, slot, reply);
  if (!read_short_answer(h, op, reply, answer) && !read_answer(op, reply, answer))
    return crl_redis_result_nonsense(h, op);
  if (!is_in_place(h, op, answer, before)) return crl_redis_result_nonsense(h, op);
  crl_redis_clock_learn(h, answer[NOW], before);
  op->status = (int)answer[STATUS];
  op->lock_state.left_ms = left_of(answer[UNTIL]);
  if (op->status == CORRAL_EFOREIGN) crl_redis_lock_foreign(h, op, op->lock_state.left_ms);
  if (op->status == CORRAL_EREFUSED)
    crl_redis_result_fail(h, op, op->status, "no room for one more hold of this lock");
  if ((op->status == CORRAL_OK && is_grant(op)) || op->status == CORRAL_EBUSY)
    op->lock_state.fence = (uint64_t)answer[FENCE];
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

int crl_redis_lock_is_lone(const crl_redis_handle *h, const corral_op *op) {
  return op->verb == CORRAL_VERB_UNLOCK ||
         (op->verb == CORRAL_VERB_LOCK && h->store->wait_replicas == 0);
}

int crl_redis_lock_take(crl_redis_handle *h, size_t got, int64_t before, int *status) {
  redisReply reply = {.type = REDIS_REPLY_STRING};
  long long number = 0;
  size_t at = 1;
  if (h->in[0] == ':') {
    for (; at < got && at <= DIGITS_MOST && h->in[at] >= '0' && h->in[at] <= '9'; at++)
      number = 10 * number + h->in[at] - '0';
    if (at == 1 || at + 2 != got || h->in[at] != '\r' || h->in[at + 1] != '\n') return 0;
    reply.type = REDIS_REPLY_INTEGER;
    reply.integer = number;
  } else {
    reply.str = (char *)(uintptr_t)crl_redis_look_string(h->in, got, &reply.len);
    if (reply.str == NULL) return 0;
  }
  *status = judge_script(h, h->slots, &reply, before);
  return 1;
}
