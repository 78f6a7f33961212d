/* request.c: the verbs of values, formatted as commands, and the check of an operation before it is
 * sent.
 *
 * GET is GETRANGE: the first CRL_REDIS_PIECE bytes, which nearly always are the whole record (else:
 * pieces.c). PTTL goes with it where the record's own end isn't enough to tell its life: see ops.c.
 * A CLAIM where no key is expected is SET NX GET (Redis 7), and no script. Each other verb is one
 * script (scripts.c), by EVALSHA. A settle writes when the body's life ends, by the server's clock:
 * as this connection knows it, or else the script asks. A record above CRL_REDIS_STAGED bytes is
 * staged, for the server copies a script's argument several times: SET to a temporary name of the
 * same hash slot, and a script that renames it. */
#include <stdlib.h>

#include "redis.h"

static void put_key(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_word(&h->out, op->key, op->key_len);
}

static void put_token(crl_redis_handle *h, const corral_op *op) {
  crl_redis_out_word(&h->out, op->token, CORRAL_TOKEN);
}

void crl_redis_request_put_get(crl_redis_handle *h, crl_redis_slot *slot) {
  const corral_op *op = slot->op;
  slot->dates = op->found.record != NULL;
  slot->replies = 1;
  if (!slot->dates) {
    crl_redis_pieces_put_first(h, op);
    if (!slot->closely && crl_redis_clock_good(h)) return;
    slot->replies = 2;
  }
  crl_redis_out_command(&h->out, 2);
  crl_redis_out_text(&h->out, "PTTL");
  put_key(h, op);
}

void crl_redis_request_put_script(crl_redis_handle *h, int round, crl_redis_script_id id,
                                  size_t keys, size_t args) {
  const crl_redis_script *script = crl_redis_script_get(id);
  crl_redis_out_command(&h->out, 3 + keys + args);
  crl_redis_out_text(&h->out, round == CRL_REDIS_BY_TEXT ? "EVAL" : "EVALSHA");
  crl_redis_out_text(&h->out, round == CRL_REDIS_BY_TEXT ? script->text : script->sha1);
  crl_redis_out_number(&h->out, (int64_t)keys);
}

/* One word: the front that comes with an operation, or an empty word. */
static void put_front(crl_redis_handle *h, const uint8_t *front, size_t len) {
  corral_header header;
  int given = front != NULL && h->store->host->header_read(front, len, &header) == CORRAL_OK;
  crl_redis_out_word(&h->out, front, given ? len : 0);
}

/* The lease ends before its key, by the server's own clock: so its record tells no time. */
static void put_set_claim(crl_redis_handle *h, const corral_op *op) {
  uint8_t front[CORRAL_FRONT];
  size_t len = crl_redis_record_lease(h, op, front);
  crl_redis_out_command(&h->out, 7);
  crl_redis_out_text(&h->out, "SET");
  put_key(h, op);
  crl_redis_out_word(&h->out, front, len);
  crl_redis_out_text(&h->out, "PX");
  crl_redis_out_number(&h->out, op->claim.lease_ms + CORRAL_LEASE_KEPT_MS);
  crl_redis_out_text(&h->out, "NX");
  crl_redis_out_text(&h->out, "GET");
}

static void put_claim(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  const corral_op *op = slot->op;
  uint8_t seen[8];
  slot->by_set = round == CRL_REDIS_BY_SHA1 && (op->flags & CORRAL_OP_ABSENT) != 0 &&
                 !h->no_set_claim && op->claim.over == NULL;
  if (slot->by_set) {
    put_set_claim(h, op);
    return;
  }
  for (unsigned i = 0; i < sizeof seen; i++) seen[i] = (uint8_t)(op->claim.seen >> (8 * i));
  crl_redis_request_put_script(h, round, CRL_REDIS_CLAIM, 1, 5);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->claim.lease_ms);
  put_front(h, op->claim.front, op->claim.front_len);
  crl_redis_out_word(&h->out, seen, op->claim.seen != 0 ? sizeof seen : 0);
  crl_redis_out_word(&h->out, op->claim.over, op->claim.over != NULL ? CORRAL_TOKEN : 0);
}

static void put_release(crl_redis_handle *h, const corral_op *op, int round) {
  crl_redis_request_put_script(h, round, CRL_REDIS_RELEASE, 1, 4);
  put_key(h, op);
  put_token(h, op);
  put_front(h, op->release.verdict, op->release.verdict_len);
  crl_redis_out_number(&h->out, op->release.verdict_ms);
  crl_redis_out_number(&h->out, op->release.keep_ms);
}

/* True when the key has a hash tag: a '{' with, later, a '}' and something between. */
static int has_tag(const char *key, size_t len) {
  const char *open = memchr(key, '{', len);
  if (open == NULL) return 0;
  const char *close = memchr(open, '}', len - (size_t)(open - key));
  return close != NULL && close > open + 1;
}

/* The name of a staged record: "~stage:" (no user's key begins with a '~'), token and key, in the
 * key's hash slot. 0 when no name is in that slot, or there is no memory. */
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

enum { AT_KIND = 6, AT_LIFE = 8, LIFE = 8, TAG_VERSION = 4 }; /* see docs/record.md */

static int64_t life_of(const corral_op *op) {
  return op->settle.ttl_ms > 0 ? op->settle.ttl_ms : 1;
}

/* When a body's life ends if it is settled now, or a little earlier; 0: the server's time isn't
 * known. By the age of a tag's version it is judged whether a compute began after the change: that
 * age must not be more than the true one, and so the server tells it. */
static int64_t end_of_life(const crl_redis_handle *h, const corral_op *op) {
  int64_t least, most, end;
  if (op->settle.record[AT_KIND] == TAG_VERSION || !crl_redis_clock_now(h, &least, &most)) return 0;
  return __builtin_add_overflow(least, life_of(op), &end) ? 0 : end;
}

static void put_record(crl_redis_handle *h, const corral_op *op, int64_t end) {
  uint8_t begin[AT_LIFE + LIFE];
  memcpy(begin, op->settle.record, sizeof begin);
  for (unsigned i = 0; i < LIFE; i++) begin[AT_LIFE + i] = (uint8_t)((uint64_t)end >> (8 * i));
  crl_redis_out_joined(&h->out, begin, sizeof begin, op->settle.record + sizeof begin,
                       op->settle.record_len - sizeof begin);
}

static void put_staged(crl_redis_handle *h, const corral_op *op, int round, const char *name,
                       size_t name_len) {
  int64_t end = end_of_life(h, op);
  crl_redis_out_command(&h->out, 5);
  crl_redis_out_text(&h->out, "SET");
  crl_redis_out_word(&h->out, name, name_len);
  put_record(h, op, end);
  crl_redis_out_text(&h->out, "PX");
  crl_redis_out_number(&h->out, CRL_REDIS_STAGED_MS);
  crl_redis_request_put_script(h, round, CRL_REDIS_STAGE, 2, end != 0 ? 2 : 3);
  put_key(h, op);
  crl_redis_out_word(&h->out, name, name_len);
  put_token(h, op);
  crl_redis_out_number(&h->out, life_of(op));
  if (end == 0) crl_redis_out_text(&h->out, "");
}

static void put_settle(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  const corral_op *op = slot->op;
  char *name;
  size_t name_len;
  slot->staged = op->settle.record_len > CRL_REDIS_STAGED && !h->unstaged && slot->whole == 0 &&
                 (op->flags & CORRAL_OP_ASKING) == 0 && stage_name(op, &name, &name_len);
  if (slot->staged) {
    put_staged(h, op, round, name, name_len);
    free(name);
    slot->replies = 2;
    return;
  }
  int64_t end = end_of_life(h, op);
  crl_redis_request_put_script(h, round, CRL_REDIS_SETTLE, 1, end != 0 ? 3 : 4);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, life_of(op));
  put_record(h, op, end);
  if (end == 0) crl_redis_out_text(&h->out, "");
}

static void put_renew(crl_redis_handle *h, const corral_op *op, int round) {
  crl_redis_request_put_script(h, round, CRL_REDIS_RENEW, 1, 2);
  put_key(h, op);
  put_token(h, op);
  crl_redis_out_number(&h->out, op->renew.ttl_ms > 0 ? op->renew.ttl_ms : 1);
}

static void put_keyed(crl_redis_handle *h, const corral_op *op, int round, crl_redis_script_id id) {
  crl_redis_request_put_script(h, round, id, 1, id == CRL_REDIS_EXTEND ? 2 : 0);
  put_key(h, op);
  if (id == CRL_REDIS_EXTEND) put_token(h, op);
  if (id == CRL_REDIS_EXTEND) crl_redis_out_number(&h->out, op->extend.lease_ms);
}

void crl_redis_request_put(crl_redis_handle *h, crl_redis_slot *slot, int round) {
  corral_op *op = slot->op;
  switch (op->verb) {
    case CORRAL_VERB_GET: crl_redis_request_put_get(h, slot); break;
    case CORRAL_VERB_CLAIM: put_claim(h, slot, round); break;
    case CORRAL_VERB_SETTLE: put_settle(h, slot, round); break;
    case CORRAL_VERB_RELEASE: put_release(h, op, round); break;
    case CORRAL_VERB_EXTEND: put_keyed(h, op, round, CRL_REDIS_EXTEND); break;
    case CORRAL_VERB_EXPIRE: put_keyed(h, op, round, CRL_REDIS_EXPIRE); break;
    case CORRAL_VERB_RENEW: put_renew(h, op, round); break;
    default: put_keyed(h, op, round, CRL_REDIS_INVALIDATE); break;
  }
}

static int check_hold(const crl_redis_handle *h, corral_op *op) {
  if (op->verb == CORRAL_VERB_LOCK_EXTEND && op->lock_extend.fence > CRL_REDIS_EXACT)
    return crl_redis_result_fail(h, op, CORRAL_EINVAL, "fencing tokens are 2^53 at most");
  if (corral_op_hold_ms(op) < 1 || corral_op_hold_ms(op) > CRL_REDIS_LONGEST_HOLD)
    return crl_redis_result_fail(h, op, CORRAL_EINVAL, "holds last 1 ms to 10 years");
  return CORRAL_OK;
}

static int check_record(const crl_redis_handle *h, corral_op *op) {
  corral_header header;
  uint8_t front[CORRAL_FRONT];
  if (op->settle.record_len > CRL_REDIS_LARGEST)
    return crl_redis_result_fail(h, op, CORRAL_ETOOBIG, "records are 512 MiB at most");
  size_t len = h->store->host->front(op->settle.record, op->settle.record_len, front);
  if (h->store->host->header_read(front, len, &header) != CORRAL_OK || header.state != CORRAL_FREE)
    return crl_redis_result_fail(h, op, CORRAL_EINVAL, "not a record");
  return CORRAL_OK;
}

enum { PROXY_KEY = 8192 /* twemproxy hangs up on keys that fill one of its buffers, of 16 KiB */ };

int crl_redis_request_sendable(const crl_redis_handle *h, corral_op *op) {
  if (op->verb < CORRAL_VERB_GET || op->verb > CORRAL_VERB_LOCK_SHOW)
    return crl_redis_result_fail(h, op, CORRAL_EUNSUPPORTED, "unknown verb");
  if (op->key_len == 0) return crl_redis_result_fail(h, op, CORRAL_EINVAL, "an empty key");
  if (h->is_bare && op->key_len > PROXY_KEY)
    return crl_redis_result_fail(h, op, CORRAL_ETOOBIG, "keys have 8 KiB at most behind a proxy");
  switch (op->verb) {
    case CORRAL_VERB_LOCK:
    case CORRAL_VERB_LOCK_EXTEND: return check_hold(h, op);
    case CORRAL_VERB_SETTLE: return check_record(h, op);
    default: return CORRAL_OK;
  }
}
