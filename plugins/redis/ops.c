/* ops.c: a pipeline of operations: formatted (request.c, lock.c) as one, sent at once, judged
 * reply by reply.
 *
 * When the server has lost its scripts (NOSCRIPT), a further round within the same deadline sends
 * them whole. A claim by SET NX GET that wasn't granted, because a record is there or for any other
 * reason, is repeated as a script, which knows what to make of it. Such a round also repeats the
 * later operations on the same keys, so that their order holds. A record whose staging a cluster
 * refuses, since its slot is on the move (TRYAGAIN), goes with its script in such a round. An
 * operation that has ended a lease isn't repeated, for that can't happen twice, unless the claim of
 * that lease is repeated too.
 *
 * A look asks for the record alone while the server's clock is known (clock.c). Where that doesn't
 * tell the life of what it found for sure (record.c), a further round looks again, with PTTL. So
 * does it after an error, which may have been the last word of a server that hung up
 * (perform.c). For a lease whose end is that of its key, it asks for the key's TTL alone. */
#include <stdlib.h>

#include "redis.h"

/* ---- judging ------------------------------------------------------------------------------- */

/* GETRANGE answers the same for a missing key and for an empty one. An empty key is somebody
 * else's, unless it has an end: then a record may have come between both commands. A look without
 * PTTL can't tell, and says that there is nothing; a claim says whose the key is. */
static int is_absent(const redisReply *piece, int64_t pttl) {
  if (piece->type == REDIS_REPLY_NIL) return 1;
  return piece->type == REDIS_REPLY_STRING && piece->len == 0 && pttl != -1;
}

/* Each judge_ function returns CORRAL_OK, or why the handle is broken. */
static int judge_dating(crl_redis_handle *h, corral_op *op, const redisReply *pttl) {
  if (pttl->type == REDIS_REPLY_INTEGER) {
    (void)crl_redis_record_found(h, op, op->found.record, op->found.len, pttl->integer);
    return CORRAL_OK;
  }
  crl_redis_result_take_back(op);
  return pttl->type == REDIS_REPLY_ERROR ? crl_redis_result_error(h, op, pttl)
                                         : crl_redis_result_nonsense(h, op);
}

static int judge_get(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies) {
  corral_op *op = slot->op;
  const redisReply *pttl = slot->replies > 1 ? replies[1] : NULL;
  const redisReply *refusal =
      pttl != NULL && replies[0]->type != REDIS_REPLY_ERROR ? pttl : replies[0];
  if (refusal->type == REDIS_REPLY_ERROR) {
    if (crl_redis_moved(h, op, refusal)) return CORRAL_OK;
    slot->vague = h->unchecked && !slot->closely;
    return slot->vague ? CORRAL_OK : crl_redis_result_error(h, op, refusal);
  }
  if (pttl != NULL && pttl->type != REDIS_REPLY_INTEGER) return crl_redis_result_nonsense(h, op);
  slot->left = pttl != NULL ? pttl->integer : CRL_REDIS_UNASKED;
  if (is_absent(replies[0], slot->left)) {
    op->status = CORRAL_EMISS;
    return CORRAL_OK;
  }
  if (replies[0]->type != REDIS_REPLY_STRING) return crl_redis_result_nonsense(h, op);
  slot->vague =
      !crl_redis_record_found(h, op, (uint8_t *)replies[0]->str, replies[0]->len, slot->left);
  if (slot->vague && crl_redis_record_is_undated(h, replies[0]->str, replies[0]->len))
    crl_redis_result_give(op, &replies[0]);
  if (op->status != CORRAL_OK) return CORRAL_OK;
  slot->partial = crl_redis_pieces_more(h, replies[0]->str, replies[0]->len);
  if (slot->partial && (op->flags & CORRAL_OP_LESS) != 0) {
    op->flags |= CORRAL_OP_LARGE;
    op->status = CORRAL_EINDOUBT;
    op->state = (corral_record_state){.life_ms = 0};
    return CORRAL_OK;
  }
  crl_redis_result_give(op, &replies[0]);
  return CORRAL_OK;
}

/* The reply is {status, now, record or front, same}; judge_script has checked the first two. */
static int judge_claim(crl_redis_handle *h, corral_op *op, redisReply *reply) {
  uint8_t front[CORRAL_FRONT];
  if (reply->elements != 4 || reply->element[2]->type != REDIS_REPLY_STRING ||
      reply->element[3]->type != REDIS_REPLY_INTEGER)
    return crl_redis_result_nonsense(h, op);
  const redisReply *record = reply->element[2];
  int status = op->status;
  if (status == CORRAL_OK && reply->element[1]->integer == 0) {
    crl_redis_record_granted(h, op); /* no key was there, by whose end the time is told */
    return CORRAL_OK;
  }
  op->state.same = reply->element[3]->integer != 0;
  size_t len = record->len < sizeof front ? record->len : sizeof front;
  if (op->state.same)
    memcpy(front, record->str, len);
  else
    len = h->store->host->front(record->str, record->len, front);
  crl_redis_record_judge(h, op, front, len, reply->element[1]->integer);
  if (op->status != status) return crl_redis_result_nonsense(h, op);
  crl_redis_result_give(op, &reply->element[2]);
  return CORRAL_OK;
}

/* True for the statuses that the verb's script answers; 1: the staged record is missing. */
static int known_status(const crl_redis_slot *slot, long long status) {
  switch (status) {
    case CORRAL_OK:
    case CORRAL_EFOREIGN: return 1;
    case CORRAL_EBUSY:
    case CORRAL_ENEWER: return slot->op->verb == CORRAL_VERB_CLAIM;
    case CORRAL_EMISS: return slot->op->verb == CORRAL_VERB_RENEW;
    case CORRAL_ELOST:
      return slot->op->verb == CORRAL_VERB_SETTLE || slot->op->verb == CORRAL_VERB_RELEASE ||
             slot->op->verb == CORRAL_VERB_EXTEND || slot->op->verb == CORRAL_VERB_RENEW;
    case 1: return slot->staged;
    default: return 0;
  }
}

/* The status in a script's reply: {status, now, ...}, or for a settle a status alone. */
static const redisReply *told_by(const corral_op *op, const redisReply *reply) {
  if (reply->type == REDIS_REPLY_INTEGER && op->verb == CORRAL_VERB_SETTLE) return reply;
  return reply->type == REDIS_REPLY_ARRAY && reply->elements >= 2 &&
                 reply->element[0]->type == REDIS_REPLY_INTEGER &&
                 reply->element[1]->type == REDIS_REPLY_INTEGER
             ? reply->element[0]
             : NULL;
}

static int judge_script(crl_redis_handle *h, crl_redis_slot *slot, redisReply *reply,
                        int64_t before) {
  corral_op *op = slot->op;
  slot->noscript = crl_redis_reply_is_error(reply, "NOSCRIPT");
  if (slot->noscript) {
    crl_redis_result_fail(h, op, CORRAL_EUNAVAILABLE, "the server had lost its scripts");
    return CORRAL_OK;
  }
  if (reply->type == REDIS_REPLY_ERROR) return crl_redis_result_error(h, op, reply);
  const redisReply *told = told_by(op, reply);
  if (told == NULL || !known_status(slot, told->integer)) return crl_redis_result_nonsense(h, op);
  if (told != reply) crl_redis_clock_learn(h, reply->element[1]->integer, before);
  op->status = (int)told->integer;
  if (op->status == CORRAL_EFOREIGN || op->status == CORRAL_ENEWER)
    crl_redis_record_refuse(h, op);
  else if (op->status == 1)
    crl_redis_result_fail(h, op, CORRAL_EREFUSED,
                          "the staged record was evicted before it was in place");
  else if (op->verb == CORRAL_VERB_CLAIM)
    return judge_claim(h, op, reply);
  return CORRAL_OK;
}

/* The replies to the SET of the staged record, and to the script. Where the staged record is
 * missing, the SET's error says why. */
static int judge_staged(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                        int64_t before) {
  corral_op *op = slot->op;
  slot->unstage = crl_redis_reply_is_error(replies[0], "NOPERM");
  slot->whole =
      h->store->kind == CRL_REDIS_NODE && crl_redis_reply_is_error(replies[1], "TRYAGAIN");
  if (replies[0]->type != REDIS_REPLY_STATUS && replies[0]->type != REDIS_REPLY_ERROR)
    return crl_redis_result_nonsense(h, op);
  const redisReply *told = told_by(op, replies[1]);
  int missing = told != NULL && told->integer == 1;
  if (replies[0]->type == REDIS_REPLY_ERROR && missing)
    return crl_redis_result_error(h, op, replies[0]);
  return judge_script(h, slot, replies[1], before);
}

/* 1: a claim that is a look, too, has its answer by the record that is there. A lease that is over,
 * and what the server's clock doesn't tell for sure, are the script's. */
static int judge_first_look(crl_redis_handle *h, corral_op *op, redisReply **reply) {
  enum { AT_STATE = 4 };
  uint8_t *record = (uint8_t *)(*reply)->str;
  if ((op->flags & CORRAL_OP_LOOKS) == 0 || (*reply)->type != REDIS_REPLY_STRING ||
      !crl_redis_record_found(h, op, record, (*reply)->len, CRL_REDIS_UNASKED) ||
      (op->status != CORRAL_EBUSY && record[AT_STATE] != CORRAL_FREE))
    return 0;
  op->status = CORRAL_EBUSY;
  crl_redis_result_give(op, reply);
  return 1;
}

/* Claims by SET are of no use on this connection if the server doesn't know them, as before Redis
 * 7, or the user may not send them. "OK" comes from a server that knows SET NX without GET. */
static int judge_set_claim(crl_redis_handle *h, crl_redis_slot *slot, redisReply **given) {
  const redisReply *reply = *given;
  if (reply->type == REDIS_REPLY_NIL) {
    crl_redis_record_granted(h, slot->op);
    return CORRAL_OK;
  }
  int is_ok = reply->type == REDIS_REPLY_STATUS;
  if (reply->type != REDIS_REPLY_STRING && reply->type != REDIS_REPLY_ERROR && !is_ok)
    return crl_redis_result_nonsense(h, slot->op);
  if (judge_first_look(h, slot->op, given) || crl_redis_moved(h, slot->op, reply)) return CORRAL_OK;
  slot->refused = 1;
  if (is_ok || crl_redis_reply_is_error(reply, "ERR") || crl_redis_reply_is_error(reply, "NOPERM"))
    h->no_set_claim = 1;
  return crl_redis_result_fail(h, slot->op, CORRAL_EUNAVAILABLE, "a claim was to be repeated"),
         CORRAL_OK;
}

static int judge_slot(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                      int64_t before) {
  if (slot->dates) return judge_dating(h, slot->op, replies[0]);
  if (slot->op->verb == CORRAL_VERB_GET) return judge_get(h, slot, replies);
  if (slot->op->verb >= CORRAL_VERB_LOCK) return crl_redis_lock_judge(h, slot, replies, before);
  if (slot->by_set) return judge_set_claim(h, slot, &replies[0]);
  if (slot->staged) return judge_staged(h, slot, replies, before);
  return judge_script(h, slot, replies[0], before);
}

/* ---- a round ------------------------------------------------------------------------------- */

/* True for an error reply after which the server hangs up. */
static int is_last_word(const crl_redis_handle *h, const redisReply *reply) {
  if (reply == NULL || reply->type != REDIS_REPLY_ERROR) return 0;
  int status = crl_redis_reply_error(h->store, reply, CORRAL_EREFUSED, NULL);
  return status == CORRAL_EPROTOCOL || status == CORRAL_ETOOBIG;
}

/* Reads the replies of one slot, and judges them. */
static int hear(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline, int64_t before,
                corral_error *error) {
  redisReply *replies[CRL_REDIS_REPLIES] = {NULL};
  int heard = 0;
  int status = CORRAL_OK;
  for (; heard < slot->replies && status == CORRAL_OK; heard += status == CORRAL_OK)
    status = crl_redis_reply_of(h, slot->op, deadline, &replies[heard], error);
  if (status == CORRAL_OK) {
    status = judge_slot(h, slot, replies, before);
    if (status != CORRAL_OK)
      h->store->host->fail(error, status, "%s: a reply that doesn't fit the command",
                           h->store->name);
  } else if (heard > 0 && is_last_word(h, replies[heard - 1])) {
    crl_redis_result_error(h, slot->op, replies[heard - 1]);
  } else if (status == CORRAL_EPROTOCOL || status == CORRAL_ENOMEM) {
    crl_redis_result_fail(h, slot->op, status, "the reply could not be read");
  }
  for (int i = 0; i < CRL_REDIS_REPLIES; i++)
    if (replies[i] != NULL) freeReplyObject(replies[i]);
  return status;
}

/* Puts TIME where a look is to be sent and the server's clock should be learnt; 1: it was put. */
static int put_time(crl_redis_handle *h, size_t count, int round) {
  int wanted = 0;
  for (size_t i = 0; i < count && !wanted; i++) {
    const crl_redis_slot *slot = &h->slots[i];
    if (!crl_redis_slot_is_wanted(slot, round)) continue;
    wanted = slot->op->verb == CORRAL_VERB_GET &&
             (crl_redis_clock_due(h) ||
              (slot->closely && !h->time.refused && slot->op->found.record == NULL));
  }
  if (!wanted) return 0;
  crl_redis_out_command(&h->out, 1);
  crl_redis_out_text(&h->out, "TIME");
  return 1;
}

static int hear_time(crl_redis_handle *h, int64_t deadline, int64_t before, corral_error *error) {
  redisReply *reply;
  int status = crl_redis_reply_next(h, deadline, &reply, error);
  if (status != CORRAL_OK) return status;
  status = crl_redis_clock_hear(h, reply, before, error);
  freeReplyObject(reply);
  return status;
}

/* Hears the replies of all slots; in a later round, of those with `again`. `status`: of sending,
 * which `sent` that many bytes; `before`: boot_ms before it. */
static int hear_all(crl_redis_handle *h, size_t count, int round, int64_t deadline, int64_t before,
                    int status, size_t sent, corral_error *error) {
  int heard = CORRAL_OK;
  /* a server that hung up may have said why */
  int64_t until = status == CORRAL_OK ? deadline : CRL_NET_AT_ONCE;
  if (h->asks_time) heard = hear_time(h, until, before, status == CORRAL_OK ? error : NULL);
  for (size_t i = 0; i < count && heard == CORRAL_OK; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (!crl_redis_slot_is_wanted(slot, round)) continue;
    heard = hear(h, slot, until, before, status == CORRAL_OK ? error : NULL);
  }
  if (h->waits) heard = crl_redis_confirm_hear(h, count, round, heard, until, error);
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (slot->replies > 0 && slot->end > sent && slot->op->status == CORRAL_EINDOUBT)
      crl_redis_result_fail(h, slot->op, CORRAL_EUNAVAILABLE,
                            "not sent: the server took no more in time, or hung up");
  }
  if (status == CORRAL_OK) status = heard;
  return status == CORRAL_OK ? crl_redis_reply_none(h, error) : status;
}

/* Sends the formatted commands, and hears the replies. */
static int exchange(crl_redis_handle *h, size_t count, int round, int64_t deadline,
                    corral_error *error) {
  size_t sent;
  int64_t before = h->only_looks && !h->asks_time ? 0 : h->store->host->boot_ms();
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  return hear_all(h, count, round, deadline, before, status, sent, error);
}

static void put(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  slot->replies = 1;
  slot->staged = slot->noscript = slot->unstage = slot->partial = slot->vague = 0;
  slot->by_set = slot->refused = slot->dates = 0;
  if (slot->whole == 1) slot->whole = 2;
  h->out.asking = (slot->op->flags & CORRAL_OP_ASKING) != 0;
  if (slot->op->verb >= CORRAL_VERB_LOCK)
    crl_redis_lock_put(h, slot, round);
  else
    crl_redis_request_put(h, slot, round);
  h->out.asking = 0;
  slot->end = h->out.total;
}

static int run_round(crl_redis_handle *h, size_t count, int round, int64_t deadline,
                     corral_error *error) {
  crl_redis_out_reset(&h->out);
  h->asks_time = put_time(h, count, round);
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (!crl_redis_slot_is_wanted(slot, round)) continue;
    slot->op->status = CORRAL_EINDOUBT;
    put(h, slot, round);
  }
  h->waits = crl_redis_confirm_put(h, count, round, deadline);
  if (!h->out.failed)
    return h->out.total > 0 ? exchange(h, count, round, deadline, error) : CORRAL_OK;
  for (size_t i = 0; i < count; i++)
    if (h->slots[i].replies > 0 && h->slots[i].op->status == CORRAL_EINDOUBT)
      crl_redis_result_fail(h, h->slots[i].op, CORRAL_ENOMEM, "no memory to send a command");
  return CORRAL_OK;
}

/* Repeats a look whose record was replaced. */
static int look_anew(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline,
                     corral_error *error) {
  size_t sent;
  crl_redis_result_take_back(slot->op);
  crl_redis_out_reset(&h->out);
  slot->partial = 0;
  slot->closely = 1;
  h->out.asking = (slot->op->flags & CORRAL_OP_ASKING) != 0;
  crl_redis_request_put_get(h, slot);
  if (h->out.failed)
    return crl_redis_result_fail(h, slot->op, CORRAL_ENOMEM, "no memory to send a command"),
           CORRAL_OK;
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  return status == CORRAL_OK ? hear(h, slot, deadline, 0, error) : status;
}

/* Judges a record that arrived in pieces, the last one `took` ms after the first. An end that the
 * clock doesn't tell for sure isn't worth another reading of it. */
static void judge_whole(crl_redis_handle *h, const crl_redis_slot *slot, int64_t took) {
  const corral_found *found = &slot->op->found;
  int64_t left = slot->left > took ? slot->left - took : 0;
  if (slot->left < 0) left = slot->left;
  if (!crl_redis_record_found(h, slot->op, found->record, found->len, left))
    (void)crl_redis_record_found(h, slot->op, found->record, found->len, -1);
}

/* Reads the rest of a large record. A record that is replaced meanwhile is looked at anew, within
 * the deadline. */
static int hear_rest(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline,
                     corral_error *error) {
  int status = CORRAL_OK, changed = 1;
  while (status == CORRAL_OK && changed && slot->partial && slot->op->found.record != NULL) {
    int64_t begun = h->store->host->now_ms();
    status = crl_redis_pieces_hear(h, slot->op, deadline, &changed, error);
    if (status == CORRAL_OK && changed)
      status = look_anew(h, slot, deadline, error);
    else if (slot->op->found.record != NULL)
      judge_whole(h, slot, h->store->host->now_ms() - begun);
  }
  return status;
}

static int same_key(const corral_op *a, const corral_op *b) {
  return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

/* True when a claim that is repeated takes the lease that this operation ended. */
static int is_claimed_again(const crl_redis_handle *h, size_t at) {
  const corral_op *op = h->slots[at].op;
  for (size_t i = 0; i < at; i++) {
    const corral_op *claim = h->slots[i].op;
    int begins = claim->verb == CORRAL_VERB_CLAIM || claim->verb == CORRAL_VERB_LOCK;
    if (h->slots[i].again && begins && same_key(claim, op) &&
        memcmp(claim->token, op->token, CORRAL_TOKEN) == 0)
      return 1;
  }
  return 0;
}

/* Marks the slots of a further round, which becomes `round`; returns how many. */
static size_t mark_again(crl_redis_handle *h, size_t count, int *round) {
  size_t marked = 0;
  *round = CRL_REDIS_ANEW;
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    const corral_op *op = slot->op;
    slot->again =
        slot->replies > 0 && (slot->noscript || slot->unstage || slot->refused || slot->whole == 1);
    if (slot->noscript) *round = CRL_REDIS_BY_TEXT;
    if (slot->unstage) h->unstaged = 1;
    int once = (op->verb == CORRAL_VERB_SETTLE || op->verb == CORRAL_VERB_RELEASE ||
                op->verb == CORRAL_VERB_RENEW || op->verb == CORRAL_VERB_UNLOCK) &&
               op->status == CORRAL_OK && !is_claimed_again(h, i);
    for (size_t j = 0; marked > 0 && j < i && !slot->again && !once && slot->replies > 0; j++)
      slot->again = h->slots[j].again && same_key(h->slots[j].op, op);
    if (slot->again) crl_redis_result_take_back(slot->op);
    marked += slot->again != 0;
  }
  return marked;
}

/* Marks the looks of a closer round; returns how many. */
static size_t mark_vague(crl_redis_handle *h, size_t count) {
  size_t marked = 0;
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    slot->closely = slot->again = slot->replies > 0 && slot->vague;
    marked += slot->again != 0;
  }
  return marked;
}

/* A lease that was found is nothing without its end. */
static void drop_undated(crl_redis_handle *h, size_t count) {
  for (size_t i = 0; i < count; i++) {
    corral_op *op = h->slots[i].op;
    if (op->verb != CORRAL_VERB_GET || op->status == CORRAL_OK || op->found.record == NULL)
      continue;
    op->found.drop(op->found.owner);
    op->found = (corral_found){.record = NULL};
  }
}

static int make_slots(crl_redis_handle *h, const corral_batch *batch) {
  if (batch->count > h->slot_room) {
    crl_redis_slot *slots = realloc(h->slots, batch->count * sizeof *slots);
    if (slots == NULL) return CORRAL_ENOMEM;
    h->slots = slots;
    h->slot_room = batch->count;
  }
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    memset(&h->slots[i], 0, sizeof h->slots[i]);
    h->slots[i].op = op;
    h->slots[i].replies = crl_redis_request_sendable(h, op) == CORRAL_OK;
  }
  return CORRAL_OK;
}

/* Goes on with looks that one reply didn't end. `status`: of the batch so far. */
static int look_on(crl_redis_handle *h, size_t count, int status, int64_t deadline,
                   corral_error *error) {
  if (status == CORRAL_OK && mark_vague(h, count) > 0)
    status = run_round(h, count, CRL_REDIS_BY_TEXT, deadline, error);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++)
    status = hear_rest(h, &h->slots[i], deadline, error);
  drop_undated(h, count);
  return status;
}

/* Goes on after the first round of a batch, which ended with `status`. */
static int go_on(crl_redis_handle *h, size_t count, int status, int64_t deadline,
                 corral_error *error) {
  int round, last = CRL_REDIS_BY_SHA1;
  while (status == CORRAL_OK && last < CRL_REDIS_BY_TEXT && mark_again(h, count, &round) > 0) {
    last = round > last ? round : CRL_REDIS_BY_TEXT;
    status = run_round(h, count, last, deadline, error);
  }
  return look_on(h, count, status, deadline, error);
}

/* Apart from a lone operation, which needs none of its room. */
static __attribute__((noinline)) int run_batch(crl_redis_handle *h, const corral_batch *batch,
                                               int64_t deadline, corral_error *error) {
  size_t count = batch->count;
  if (make_slots(h, batch) != CORRAL_OK) {
    crl_redis_result_none_sent(h, batch, CORRAL_ENOMEM, "no memory for a batch");
    return CORRAL_OK;
  }
  return go_on(h, count, run_round(h, count, CRL_REDIS_BY_SHA1, deadline, error), deadline, error);
}

/* ---- a lone operation ------------------------------------------------------------------------ */

/* True for an operation alone that is one command with one reply: a look, of which nothing else is
 * to be heard than its record, a lock that is taken, or released. A handle has slots from its first
 * batch on. */
static int is_lone(const crl_redis_handle *h, const corral_batch *batch) {
  const corral_op *op = batch->ops;
  if (batch->count != 1 || op->key_len == 0 || h->slot_room == 0 ||
      (op->flags & CORRAL_OP_ASKING) != 0)
    return 0;
  if (op->verb == CORRAL_VERB_GET) return crl_redis_clock_good(h) && !crl_redis_clock_due(h);
  return crl_redis_lock_is_lone(h, op);
}

/* Any other reply to it than the usual one is heard as in other rounds, by a slot. `got`: bytes of
 * it that came; `status`: of sending it. */
static __attribute__((noinline)) int hear_lone(crl_redis_handle *h, const corral_batch *batch,
                                               size_t got, int64_t deadline, int64_t before,
                                               int status, size_t sent, corral_error *error) {
  h->asks_time = h->waits = 0;
  (void)make_slots(h, batch); /* there is room */
  h->slots->end = h->out.total;
  int fed = got > 0 ? crl_redis_reply_feed(h, got, error) : CORRAL_OK;
  if (fed != CORRAL_OK) return fed;
  status = hear_all(h, 1, CRL_REDIS_BY_SHA1, deadline, before, status, sent, error);
  return go_on(h, 1, status, deadline, error);
}

/* Takes or releases a lock. */
static __attribute__((noinline)) int run_lone_lock(crl_redis_handle *h, const corral_batch *batch,
                                                   int64_t deadline, corral_error *error) {
  size_t sent, got = 0;
  h->waits = 0;
  (void)make_slots(h, batch); /* there is room */
  if (h->slots->replies == 0) return CORRAL_OK;
  crl_redis_out_reset(&h->out);
  crl_redis_lock_put(h, h->slots, CRL_REDIS_BY_SHA1);
  if (h->out.failed) return run_batch(h, batch, deadline, error);
  int64_t before = h->store->host->boot_ms();
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error), judged;
  if (status == CORRAL_OK &&
      crl_redis_wire_read(&h->wire, h->in, sizeof h->in, deadline, &got, NULL) == CORRAL_OK &&
      crl_redis_lock_take(h, got, before, &judged))
    return judged;
  return hear_lone(h, batch, got, deadline, before, status, sent, error);
}

int crl_redis_ops_run(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                      corral_error *error) {
  corral_op *op = batch->ops;
  size_t sent, got = 0;
  if (!is_lone(h, batch)) return run_batch(h, batch, deadline, error);
  if (op->verb != CORRAL_VERB_GET) return run_lone_lock(h, batch, deadline, error);
  crl_redis_out_reset(&h->out);
  crl_redis_pieces_put_first(h, op);
  if (h->out.failed) return run_batch(h, batch, deadline, error);
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  if (status == CORRAL_OK &&
      crl_redis_wire_read(&h->wire, h->in, sizeof h->in, deadline, &got, NULL) == CORRAL_OK &&
      crl_redis_look_take(h, op, got))
    return CORRAL_OK;
  return hear_lone(h, batch, got, deadline, 0, status, sent, error);
}

/* ---- looks without waiting ----------------------------------------------------------------- */

int crl_redis_ops_put_looks(crl_redis_handle *h, const corral_batch *batch) {
  if (make_slots(h, batch) != CORRAL_OK) return CORRAL_ENOMEM;
  crl_redis_out_reset(&h->out);
  h->waits = 0;
  h->asks_time = put_time(h, batch->count, CRL_REDIS_BY_SHA1);
  for (size_t i = 0; i < batch->count; i++)
    if (h->slots[i].replies > 0) put(h, &h->slots[i], CRL_REDIS_BY_SHA1);
  return h->out.failed ? CORRAL_ENOMEM : CORRAL_OK;
}

int crl_redis_ops_judge_look(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies) {
  corral_op *op = slot->op;
  int status = judge_get(h, slot, replies);
  int is_told = !slot->partial && (op->status == CORRAL_OK || op->status == CORRAL_EMISS ||
                                   op->status == CORRAL_EMOVED);
  if (status == CORRAL_OK && !is_told) {
    crl_redis_result_take_back(op);
    op->status = CORRAL_EINDOUBT;
  }
  return status;
}
