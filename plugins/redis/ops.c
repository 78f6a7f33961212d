/* ops.c: a batch of operations: formatted as one pipeline, sent at once, judged reply by reply.
 *
 * GET is GETRANGE and PTTL: the first CRL_REDIS_PIECE bytes, which nearly always are all (else:
 * pieces.c); each other verb is one script (scripts.c), by EVALSHA. A record above CRL_REDIS_STAGED
 * bytes is staged: SET to a temporary name of the same hash slot, and a script that renames it, for
 * a script's argument is copied several times by the server.
 *
 * A GET that is to be told to the watch (watch.c) begins with CLIENT CACHING YES: the server
 * remembers, for this connection, the keys of the one command that follows. Once for each watch,
 * CLIENT TRACKING goes before that: it says whom to tell, also of what is remembered already.
 *
 * When the server has lost its scripts (NOSCRIPT), a second round within the same deadline sends
 * them whole. It also repeats what came later in the batch for the same key, so that its order
 * holds; except for what has ended a lease, which can't happen twice, unless the claim of that
 * lease is repeated too. */
#include <stdlib.h>

#include "redis.h"

int crl_redis_ops_fail(const crl_redis_handle *h, corral_op *op, int status, const char *what) {
  return op->status = h->store->host->fail(op->error, status, "%s: %s", h->store->name, what);
}

/* ---- formatting ---------------------------------------------------------------------------- */

static void put_key(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_word(&h->out, op->key, op->key_len);
}

static void put_token(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
}

static void put_get(crl_redis_handle *h, const corral_op *op) {
  crl_redis_pieces_put(h, op, 0);
  crl_redis_out_command(&h->out, 2);
  crl_redis_out_text(&h->out, "PTTL");
  put_key(h, op);
}

static void put_client(crl_redis_handle *h, const char *what, const char *how, size_t words) {
  crl_redis_out_command(&h->out, words);
  crl_redis_out_text(&h->out, "CLIENT");
  crl_redis_out_text(&h->out, what);
  crl_redis_out_text(&h->out, how);
}

/* What makes the GET that follows be told to the watch, if there is one that isn't known to be out
 * of this connection's reach. That it is redirected is taken for granted until the reply says
 * otherwise. */
void crl_redis_ops_put_watch(crl_redis_handle *h, crl_redis_slot *slot) {
  slot->redirects = 0;
  slot->watch = (slot->op->flags & CORRAL_OP_WATCH) != 0 ? h->store->watch : 0;
  if (slot->watch == 0 || slot->watch == h->refused) {
    slot->watch = 0;
    return;
  }
  if (h->redirected != slot->watch) {
    put_client(h, "TRACKING", "ON", 6);
    crl_redis_out_text(&h->out, "REDIRECT");
    crl_redis_out_number(&h->out, slot->watch);
    crl_redis_out_text(&h->out, "OPTIN");
    h->redirected = slot->watch;
    slot->redirects = 1;
  }
  put_client(h, "CACHING", "YES", 3);
  slot->replies = 3 + slot->redirects;
}

/* All of a script's call but keys and arguments. */
void crl_redis_ops_put_script(crl_redis_handle *h, int round, crl_redis_script_id id, size_t keys,
                              size_t args) {
  const crl_redis_script *script = crl_redis_script_get(id);
  crl_redis_out_command(&h->out, 3 + keys + args);
  crl_redis_out_text(&h->out, round == CRL_REDIS_BY_SHA1 ? "EVALSHA" : "EVAL");
  crl_redis_out_text(&h->out, round == CRL_REDIS_BY_SHA1 ? script->sha1 : script->text);
  crl_redis_out_number(&h->out, (int64_t)keys);
}

/* The front that comes with an op, or an empty word. */
static void put_wish(crl_redis_handle *h, const corral_op *op) {
  corral_header header;
  int given = op->record != NULL &&
              h->store->host->header_read(op->record, op->record_len, &header) == CORRAL_OK;
  crl_redis_out_word(&h->out, op->record, given ? op->record_len : 0);
}

static void put_claim(crl_redis_handle *h, const corral_op *op, int round) {
  uint8_t seen[8];
  for (unsigned i = 0; i < sizeof seen; i++) seen[i] = (uint8_t)(op->seen >> (8 * i));
  crl_redis_ops_put_script(h, round, CRL_REDIS_CLAIM, 1, 5);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->lease_ms);
  put_wish(h, op);
  crl_redis_out_word(&h->out, seen, op->seen != 0 ? sizeof seen : 0);
  crl_redis_out_word(&h->out, op->over, op->over != NULL ? CORRAL_TOKEN : 0);
}

static void put_release(crl_redis_handle *h, const corral_op *op, int round) {
  crl_redis_ops_put_script(h, round, CRL_REDIS_RELEASE, 1, 4);
  put_key(h, op);
  put_token(h, op);
  put_wish(h, op);
  crl_redis_out_number(&h->out, op->lease_ms);
  crl_redis_out_number(&h->out, op->ttl_ms);
}

/* True when the key has a hash tag: a '{' with, later, a '}' and something between. */
static int has_tag(const char *key, size_t len) {
  const char *open = memchr(key, '{', len);
  if (open == NULL) return 0;
  const char *close = memchr(open, '}', len - (size_t)(open - key));
  return close != NULL && close > open + 1;
}

/* The name of a staged record: a kind of its own (no user's key begins with a '~'), token and key,
 * in the key's hash slot. 0 when no such name exists, or no memory. */
static int stage_name(const corral_op *op, char **ret, size_t *ret_len) {
  static const char hex[] = "0123456789abcdef";
  const char *key = op->key;
  int tagged = has_tag(key, op->key_len);
  if (!tagged && memchr(key, '}', op->key_len) != NULL) return 0;
  char *name = malloc(op->key_len + 64), *at = name;
  if (name == NULL) return 0;
  memcpy(at, "~stage:", 7);
  at += 7;
  for (size_t i = 0; i < CORRAL_TOKEN; i++) {
    *at++ = hex[op->token[i] >> 4];
    *at++ = hex[op->token[i] & 15];
  }
  *at++ = ':';
  if (!tagged) *at++ = '{';
  memcpy(at, key, op->key_len);
  at += op->key_len;
  if (!tagged) *at++ = '}';
  *ret = name;
  *ret_len = (size_t)(at - name);
  return 1;
}

static void put_staged(crl_redis_handle *h, const corral_op *op, int round, const char *name,
                       size_t name_len) {
  crl_redis_out_command(&h->out, 5);
  crl_redis_out_text(&h->out, "SET");
  crl_redis_out_word(&h->out, name, name_len);
  crl_redis_out_word(&h->out, op->record, op->record_len);
  crl_redis_out_text(&h->out, "PX");
  crl_redis_out_number(&h->out, CRL_REDIS_STAGED_MS);
  crl_redis_ops_put_script(h, round, CRL_REDIS_STAGE, 2, 2);
  put_key(h, op);
  crl_redis_out_word(&h->out, name, name_len);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->ttl_ms > 0 ? op->ttl_ms : 1);
}

static void put_settle(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  const corral_op *op = slot->op;
  char *name;
  size_t name_len;
  slot->staged =
      op->record_len > CRL_REDIS_STAGED && !h->unstaged && stage_name(op, &name, &name_len);
  if (slot->staged) {
    put_staged(h, op, round, name, name_len);
    free(name);
    slot->replies = 2;
    return;
  }
  crl_redis_ops_put_script(h, round, CRL_REDIS_SETTLE, 1, 3);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->ttl_ms > 0 ? op->ttl_ms : 1);
  crl_redis_out_word(&h->out, op->record, op->record_len);
}

static void put_renew(crl_redis_handle *h, const corral_op *op, int round) {
  crl_redis_ops_put_script(h, round, CRL_REDIS_RENEW, 1, 2);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->ttl_ms > 0 ? op->ttl_ms : 1);
}

static void put_keyed(crl_redis_handle *h, const corral_op *op, int round, crl_redis_script_id id) {
  crl_redis_ops_put_script(h, round, id, 1, id == CRL_REDIS_EXTEND ? 2 : 0);
  put_key(h, op);
  if (id == CRL_REDIS_EXTEND) put_token(h, op);
  if (id == CRL_REDIS_EXTEND) crl_redis_out_number(&h->out, op->lease_ms);
}

static void put(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  corral_op *op = slot->op;
  slot->replies = op->verb == CORRAL_VERB_GET ? 2 : 1;
  slot->staged = slot->noscript = slot->unstage = slot->partial = 0;
  switch (op->verb) {
    case CORRAL_VERB_LOCK:
    case CORRAL_VERB_LOCK_EXTEND:
    case CORRAL_VERB_UNLOCK:
    case CORRAL_VERB_LOCK_SHOW: crl_redis_lock_put(h, slot, round); break;
    case CORRAL_VERB_GET:
      crl_redis_ops_put_watch(h, slot);
      put_get(h, op);
      break;
    case CORRAL_VERB_CLAIM: put_claim(h, op, round); break;
    case CORRAL_VERB_SETTLE: put_settle(h, slot, round); break;
    case CORRAL_VERB_RELEASE: put_release(h, op, round); break;
    case CORRAL_VERB_EXTEND: put_keyed(h, op, round, CRL_REDIS_EXTEND); break;
    case CORRAL_VERB_EXPIRE: put_keyed(h, op, round, CRL_REDIS_EXPIRE); break;
    case CORRAL_VERB_RENEW: put_renew(h, op, round); break;
    default: put_keyed(h, op, round, CRL_REDIS_INVALIDATE); break;
  }
  slot->end = h->out.total;
}

/* What can be refused without asking the server. */
int crl_redis_ops_sendable(const crl_redis_handle *h, corral_op *op) {
  corral_header header;
  uint8_t front[CORRAL_FRONT];
  if (op->verb < CORRAL_VERB_GET || op->verb > CORRAL_VERB_LOCK_SHOW)
    return crl_redis_ops_fail(h, op, CORRAL_EUNSUPPORTED, "unknown verb");
  if (op->key_len == 0) return crl_redis_ops_fail(h, op, CORRAL_EINVAL, "an empty key");
  if (op->verb == CORRAL_VERB_LOCK_EXTEND && op->seen > CRL_REDIS_EXACT)
    return crl_redis_ops_fail(h, op, CORRAL_EINVAL, "fencing tokens are 2^53 at most");
  int has_lease = op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND;
  if (has_lease && (op->lease_ms < 1 || op->lease_ms > CRL_REDIS_LONGEST_HOLD))
    return crl_redis_ops_fail(h, op, CORRAL_EINVAL, "holds last 1 ms to 10 years");
  if (op->verb != CORRAL_VERB_SETTLE) return CORRAL_OK;
  if (op->record_len > CRL_REDIS_LARGEST)
    return crl_redis_ops_fail(h, op, CORRAL_ETOOBIG, "records are 512 MiB at most");
  size_t len = h->store->host->front(op->record, op->record_len, front);
  if (h->store->host->header_read(front, len, &header) != CORRAL_OK || header.state != CORRAL_FREE)
    return crl_redis_ops_fail(h, op, CORRAL_EINVAL, "not a record");
  return CORRAL_OK;
}

/* ---- judging ------------------------------------------------------------------------------- */

int crl_redis_ops_nonsense(const crl_redis_handle *h, corral_op *op) {
  return crl_redis_ops_fail(h, op, CORRAL_EPROTOCOL,
                            "a reply of a kind that doesn't answer the command");
}

/* `reply`, a string, becomes op->found. */
void crl_redis_ops_give(corral_op *op, redisReply **reply) {
  op->found = (uint8_t *)(*reply)->str;
  op->found_len = (*reply)->len;
  op->found_owner = *reply;
  op->found_free = freeReplyObject;
  *reply = NULL;
}

void crl_redis_ops_take_back(corral_op *op) {
  if (op->found != NULL && op->found_free != NULL) op->found_free(op->found_owner);
  op->found = NULL;
  op->found_len = 0;
  op->found_free = NULL;
  op->found_owner = NULL;
  op->same = 0;
  op->flags &= ~(uint32_t)(CORRAL_OP_WATCHED | CORRAL_OP_LARGE);
  op->life_ms = op->until_ms = 0;
  if (op->error != NULL) memset(op->error, 0, sizeof *op->error);
}

int crl_redis_ops_judge_error(const crl_redis_handle *h, corral_op *op, const redisReply *reply) {
  op->status = crl_redis_reply_error(h->store, reply, CORRAL_EREFUSED, op->error);
  return op->status == CORRAL_EPROTOCOL || op->status == CORRAL_ETOOBIG ? op->status : CORRAL_OK;
}

/* GETRANGE says of a key that isn't there what it says of an empty one. That one is somebody
 * else's; but one that has an end may have come between both commands. */
static int is_absent(const redisReply *piece, const redisReply *pttl) {
  if (piece->type == REDIS_REPLY_NIL) return 1;
  return piece->type == REDIS_REPLY_STRING && piece->len == 0 && pttl->integer != -1;
}

/* Each judge_ function returns CORRAL_OK, or why the handle is broken. */
static int judge_get(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies) {
  corral_op *op = slot->op;
  if (replies[0]->type == REDIS_REPLY_ERROR) return crl_redis_ops_judge_error(h, op, replies[0]);
  if (replies[1]->type == REDIS_REPLY_ERROR) return crl_redis_ops_judge_error(h, op, replies[1]);
  if (replies[1]->type != REDIS_REPLY_INTEGER) return crl_redis_ops_nonsense(h, op);
  if (is_absent(replies[0], replies[1])) {
    op->status = CORRAL_EMISS;
    return CORRAL_OK;
  }
  if (replies[0]->type != REDIS_REPLY_STRING) return crl_redis_ops_nonsense(h, op);
  crl_redis_record_found(h, op, replies[0]->str, replies[0]->len, replies[1]->integer);
  if (op->status != CORRAL_OK) return CORRAL_OK;
  slot->partial = crl_redis_pieces_more(h, replies[0]->str, replies[0]->len);
  slot->left = replies[1]->integer;
  if (slot->partial && (op->flags & CORRAL_OP_LESS) != 0) {
    op->flags |= CORRAL_OP_LARGE;
    op->status = CORRAL_EUNKNOWN;
    op->life_ms = op->until_ms = 0;
    return CORRAL_OK;
  }
  crl_redis_ops_give(op, &replies[0]);
  return CORRAL_OK;
}

static int is_ok(const redisReply *reply) {
  return reply->type == REDIS_REPLY_STATUS && strcmp(reply->str, "OK") == 0;
}

/* CLIENT TRACKING, if it was sent, and CLIENT CACHING. A refusal costs the look nothing, and isn't
 * asked for again on this connection unless it was of a moment, or there is another watch. */
int crl_redis_ops_judge_watch(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                              int count) {
  /* else it was refused earlier in this batch */
  int agreed = slot->redirects || h->redirected == slot->watch;
  for (int i = 0; i < count && agreed; i++) {
    int is_error = replies[i]->type == REDIS_REPLY_ERROR;
    if (!is_error && !is_ok(replies[i])) return crl_redis_ops_nonsense(h, slot->op);
    agreed = !is_error;
    if (is_error &&
        crl_redis_reply_error(h->store, replies[i], CORRAL_EREFUSED, NULL) != CORRAL_EUNAVAILABLE)
      h->refused = slot->watch;
  }
  if (!agreed)
    h->redirected = 0;
  else if (slot->redirects)
    h->redirected = slot->watch;
  if (!agreed || h->redirected != slot->watch || h->store->watch != slot->watch) slot->watch = 0;
  return CORRAL_OK;
}

static int judge_look(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies) {
  corral_op *op = slot->op;
  int count = slot->replies - 2;
  int status = slot->watch != 0 ? crl_redis_ops_judge_watch(h, slot, replies, count) : CORRAL_OK;
  if (status == CORRAL_OK) status = judge_get(h, slot, replies + count);
  if (slot->watch != 0 && (op->status == CORRAL_OK || op->status == CORRAL_EMISS))
    op->flags |= CORRAL_OP_WATCHED;
  return status;
}

/* {status, now, record or front, same}, of which the first two were looked at. */
static int judge_claim(crl_redis_handle *h, corral_op *op, redisReply *reply) {
  uint8_t front[CORRAL_FRONT];
  if (reply->elements != 4 || reply->element[2]->type != REDIS_REPLY_STRING ||
      reply->element[3]->type != REDIS_REPLY_INTEGER)
    return crl_redis_ops_nonsense(h, op);
  const redisReply *record = reply->element[2];
  int status = op->status;
  op->same = reply->element[3]->integer != 0;
  size_t len = record->len < sizeof front ? record->len : sizeof front;
  if (op->same)
    memcpy(front, record->str, len);
  else
    len = h->store->host->front(record->str, record->len, front);
  crl_redis_record_judge(h, op, front, len, reply->element[1]->integer);
  if (op->status != status) return crl_redis_ops_nonsense(h, op);
  crl_redis_ops_give(op, &reply->element[2]);
  return CORRAL_OK;
}

/* The statuses that scripts answer; 1: nothing is staged. */
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

static int judge_script(crl_redis_handle *h, crl_redis_slot *slot, redisReply *reply,
                        int64_t before) {
  corral_op *op = slot->op;
  slot->noscript = crl_redis_reply_is_error(reply, "NOSCRIPT");
  if (slot->noscript) {
    crl_redis_ops_fail(h, op, CORRAL_EUNAVAILABLE, "the server had lost its scripts");
    return CORRAL_OK;
  }
  if (reply->type == REDIS_REPLY_ERROR) return crl_redis_ops_judge_error(h, op, reply);
  if (reply->type != REDIS_REPLY_ARRAY || reply->elements < 2 ||
      reply->element[0]->type != REDIS_REPLY_INTEGER ||
      reply->element[1]->type != REDIS_REPLY_INTEGER ||
      !known_status(slot, reply->element[0]->integer))
    return crl_redis_ops_nonsense(h, op);
  crl_redis_clock(h, reply->element[1]->integer, before);
  op->status = (int)reply->element[0]->integer;
  if (op->status == CORRAL_EFOREIGN || op->status == CORRAL_ENEWER)
    crl_redis_record_refuse(h, op);
  else if (op->status == 1)
    crl_redis_ops_fail(h, op, CORRAL_EREFUSED,
                       "the staged record was evicted before it was in place");
  else if (op->verb == CORRAL_VERB_CLAIM)
    return judge_claim(h, op, reply);
  return CORRAL_OK;
}

/* The SET of the staged record, and the script. Without a staged record the SET's error says
 * why. */
static int judge_staged(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                        int64_t before) {
  corral_op *op = slot->op;
  slot->unstage = crl_redis_reply_is_error(replies[0], "NOPERM");
  if (replies[0]->type != REDIS_REPLY_STATUS && replies[0]->type != REDIS_REPLY_ERROR)
    return crl_redis_ops_nonsense(h, op);
  int missing = replies[1]->type == REDIS_REPLY_ARRAY && replies[1]->elements > 0 &&
                replies[1]->element[0]->type == REDIS_REPLY_INTEGER &&
                replies[1]->element[0]->integer == 1;
  if (replies[0]->type == REDIS_REPLY_ERROR && missing)
    return crl_redis_ops_judge_error(h, op, replies[0]);
  return judge_script(h, slot, replies[1], before);
}

static int judge_slot(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                      int64_t before) {
  if (slot->op->verb == CORRAL_VERB_GET) return judge_look(h, slot, replies);
  if (slot->op->verb >= CORRAL_VERB_LOCK) return crl_redis_lock_judge(h, slot, replies, before);
  if (slot->staged) return judge_staged(h, slot, replies, before);
  return judge_script(h, slot, replies[0], before);
}

/* ---- a round ------------------------------------------------------------------------------- */

/* An error reply after which the server hangs up. */
static int is_last_word(const crl_redis_handle *h, const redisReply *reply) {
  if (reply == NULL || reply->type != REDIS_REPLY_ERROR) return 0;
  int status = crl_redis_reply_error(h->store, reply, CORRAL_EREFUSED, NULL);
  return status == CORRAL_EPROTOCOL || status == CORRAL_ETOOBIG;
}

/* The replies of one slot. */
static int hear(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline, int64_t before,
                corral_error *error) {
  redisReply *replies[CRL_REDIS_REPLIES] = {NULL};
  int heard = 0;
  int status = CORRAL_OK;
  for (; heard < slot->replies && status == CORRAL_OK; heard += status == CORRAL_OK)
    status = crl_redis_reply_next(h, deadline, &replies[heard], error);
  if (status == CORRAL_OK) {
    status = judge_slot(h, slot, replies, before);
    if (status != CORRAL_OK)
      h->store->host->fail(error, status, "%s: a reply that doesn't fit the command",
                           h->store->name);
  } else if (heard > 0 && is_last_word(h, replies[heard - 1])) {
    crl_redis_ops_judge_error(h, slot->op, replies[heard - 1]);
  } else if (status == CORRAL_EPROTOCOL || status == CORRAL_ENOMEM) {
    crl_redis_ops_fail(h, slot->op, status, "the reply could not be read");
  }
  for (int i = 0; i < CRL_REDIS_REPLIES; i++)
    if (replies[i] != NULL) freeReplyObject(replies[i]);
  return status;
}

/* Sends what is formatted and hears the replies of the slots with `again`, or of all. */
static int exchange(crl_redis_handle *h, size_t count, int round, int64_t deadline,
                    corral_error *error) {
  size_t sent;
  int64_t before = h->store->host->now_ms();
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  int heard = CORRAL_OK;
  /* A server that hung up may have said why. */
  int64_t until = status == CORRAL_OK ? deadline : CRL_NET_AT_ONCE;
  for (size_t i = 0; i < count && heard == CORRAL_OK; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (slot->replies == 0 || (round == CRL_REDIS_BY_TEXT && !slot->again)) continue;
    heard = hear(h, slot, until, before, status == CORRAL_OK ? error : NULL);
  }
  if (h->waits) heard = crl_redis_lock_confirm(h, count, round, heard, until, error);
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (slot->replies > 0 && slot->end > sent && slot->op->status == CORRAL_EUNKNOWN)
      crl_redis_ops_fail(h, slot->op, CORRAL_EUNAVAILABLE,
                         "not sent: the server took no more in time, or hung up");
  }
  if (status == CORRAL_OK) status = heard;
  return status == CORRAL_OK ? crl_redis_reply_none(h, error) : status;
}

static int run_round(crl_redis_handle *h, size_t count, int round, int64_t deadline,
                     corral_error *error) {
  crl_redis_out_reset(&h->out);
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    if (slot->replies == 0 || (round == CRL_REDIS_BY_TEXT && !slot->again)) continue;
    slot->op->status = CORRAL_EUNKNOWN;
    put(h, slot, round);
  }
  h->waits = crl_redis_lock_put_wait(h, count, round, deadline);
  if (!h->out.failed)
    return h->out.total > 0 ? exchange(h, count, round, deadline, error) : CORRAL_OK;
  h->redirected = 0;
  for (size_t i = 0; i < count; i++)
    if (h->slots[i].replies > 0 && h->slots[i].op->status == CORRAL_EUNKNOWN)
      crl_redis_ops_fail(h, h->slots[i].op, CORRAL_ENOMEM, "no memory to send a command");
  return CORRAL_OK;
}

/* Its old watch was told of the change; it has no new one. */
static int look_anew(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline,
                     corral_error *error) {
  size_t sent;
  int64_t before = h->store->host->now_ms();
  crl_redis_ops_take_back(slot->op);
  crl_redis_out_reset(&h->out);
  slot->watch = slot->partial = 0;
  slot->replies = 2;
  put_get(h, slot->op);
  if (h->out.failed)
    return crl_redis_ops_fail(h, slot->op, CORRAL_ENOMEM, "no memory to send a command"), CORRAL_OK;
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  return status == CORRAL_OK ? hear(h, slot, deadline, before, error) : status;
}

/* As it is when all of it has arrived, `took` ms behind its first piece. */
static void judge_whole(crl_redis_handle *h, const crl_redis_slot *slot, int64_t took) {
  int64_t left = slot->left > took ? slot->left - took : 0;
  crl_redis_record_found(h, slot->op, slot->op->found, slot->op->found_len,
                         slot->left < 0 ? slot->left : left);
}

/* The rest of a large record. One that is replaced meanwhile is looked at anew, within the
 * deadline. */
static int hear_rest(crl_redis_handle *h, crl_redis_slot *slot, int64_t deadline,
                     corral_error *error) {
  int status = CORRAL_OK, changed = 1;
  while (status == CORRAL_OK && changed && slot->partial && slot->op->found != NULL) {
    int64_t begun = h->store->host->now_ms();
    status = crl_redis_pieces_hear(h, slot->op, deadline, &changed, error);
    if (status == CORRAL_OK && changed)
      status = look_anew(h, slot, deadline, error);
    else if (slot->op->found != NULL)
      judge_whole(h, slot, h->store->host->now_ms() - begun);
  }
  return status;
}

static int same_key(const corral_op *a, const corral_op *b) {
  return a->key_len == b->key_len && memcmp(a->key, b->key, a->key_len) == 0;
}

/* A lease that this op ended is taken anew, by a repeated claim before it. */
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

/* Marks what a second round has to do; returns how many. */
static size_t mark_again(crl_redis_handle *h, size_t count) {
  size_t marked = 0;
  for (size_t i = 0; i < count; i++) {
    crl_redis_slot *slot = &h->slots[i];
    const corral_op *op = slot->op;
    slot->again = slot->replies > 0 && (slot->noscript || slot->unstage);
    if (slot->unstage) h->unstaged = 1;
    int once = (op->verb == CORRAL_VERB_SETTLE || op->verb == CORRAL_VERB_RELEASE ||
                op->verb == CORRAL_VERB_RENEW || op->verb == CORRAL_VERB_UNLOCK) &&
               op->status == CORRAL_OK && !is_claimed_again(h, i);
    for (size_t j = 0; marked > 0 && j < i && !slot->again && !once && slot->replies > 0; j++)
      slot->again = h->slots[j].again && same_key(h->slots[j].op, op);
    if (slot->again) crl_redis_ops_take_back(slot->op);
    marked += slot->again != 0;
  }
  return marked;
}

static int make_slots(crl_redis_handle *h, corral_op *ops, size_t count) {
  if (count > h->slot_room) {
    crl_redis_slot *slots = realloc(h->slots, count * sizeof *slots);
    if (slots == NULL) return CORRAL_ENOMEM;
    h->slots = slots;
    h->slot_room = count;
  }
  for (size_t i = 0; i < count; i++) {
    memset(&h->slots[i], 0, sizeof h->slots[i]);
    h->slots[i].op = &ops[i];
    h->slots[i].replies = crl_redis_ops_sendable(h, &ops[i]) == CORRAL_OK;
  }
  return CORRAL_OK;
}

static void none_sent(crl_redis_handle *h, corral_op *ops, size_t count, int status,
                      const char *why) {
  for (size_t i = 0; i < count; i++) crl_redis_ops_fail(h, &ops[i], status, why);
}

int crl_redis_ops_run(crl_redis_handle *h, corral_op *ops, size_t count, int64_t deadline,
                      corral_error *error) {
  if (make_slots(h, ops, count) != CORRAL_OK) {
    none_sent(h, ops, count, CORRAL_ENOMEM, "no memory for a batch");
    return CORRAL_OK;
  }
  int status = run_round(h, count, CRL_REDIS_BY_SHA1, deadline, error);
  if (status == CORRAL_OK && mark_again(h, count) > 0)
    status = run_round(h, count, CRL_REDIS_BY_TEXT, deadline, error);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++)
    status = hear_rest(h, &h->slots[i], deadline, error);
  return status;
}

int crl_redis_perform(void *handle, corral_op *ops, size_t count, int64_t deadline,
                      corral_error *error) {
  crl_redis_handle *h = handle;
  if (h->store->host->now_ms() >= deadline) {
    none_sent(h, ops, count, CORRAL_EUNAVAILABLE,
              "the time allowed was over before anything was sent");
    return CORRAL_OK;
  }
  int status = crl_redis_wire_silent(&h->wire, error);
  if (status != CORRAL_OK) {
    none_sent(h, ops, count, CORRAL_EUNAVAILABLE,
              "the connection was of no more use; nothing was sent");
    return status;
  }
  if (h->store->scriptless) return crl_redis_exec_perform(h, ops, count, deadline, error);
  h->refused_scripts = 0;
  status = crl_redis_ops_run(h, ops, count, deadline, error);
  return status == CORRAL_OK && h->refused_scripts
             ? crl_redis_exec_refused(h, ops, count, deadline, error)
             : status;
}
