/* locks.c: the lock verbs as requests to etcd.
 *
 * The number of a lease is made from token and name. So a repeated LOCK finds its lease, nothing is
 * remembered here between LOCK and UNLOCK, and a request that arrives after an UNLOCK, which
 * revokes the lease, finds no lease to put a key under. A lease can't grow: a hold that must last
 * longer than its lease was granted for gets another one, whose number stands in the key.
 *
 * The value, JSON: "token" (hex), "since" (wall clock of the taking host in ms, for people to read)
 * and "note"; and, of a hold that was taken over, "fence". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "etcd.h"

enum {
  SWEEP_MS = 500, /* interval at which the server looks for ended leases */
  CONTENDED = 3   /* looks before a LOCK writes: cheaper than a LOCK in vain */
};

/* A key as the store has it. */
typedef struct key_now {
  int found, ours; /* `ours`: written by corral and under a lease */
  int64_t created, modified, lease;
  corral_hold told;
} key_now;

static void to_hex(const uint8_t *token, char text[2 * CORRAL_TOKEN + 1]) {
  for (size_t i = 0; i < CORRAL_TOKEN; i++) snprintf(text + 2 * i, 3, "%02x", token[i]);
}

static int from_hex(const char *text, uint8_t *token) {
  static const char digits[] = "0123456789abcdef";
  if (text == NULL || strlen(text) != 2 * CORRAL_TOKEN || strspn(text, digits) != 2 * CORRAL_TOKEN)
    return 0;
  for (size_t i = 0; i < CORRAL_TOKEN; i++)
    token[i] = (uint8_t)((strchr(digits, text[2 * i]) - digits) << 4 |
                         (strchr(digits, text[2 * i + 1]) - digits));
  return 1;
}

/* ---- leases -------------------------------------------------------------------------------- */

/* Grants a lease with the number *id; 0: the server chooses one. EBUSY: a lease of this number
 * exists. */
static int grant(crl_etcd_handle *h, int64_t lease_ms, int64_t *id, int64_t *ret_ttl) {
  int64_t seconds = lease_ms / 1000 + (lease_ms % 1000 > 0);
  crl_etcd_say(h, "{\"TTL\":\"%" PRId64 "\",\"ID\":\"%" PRId64 "\"}", seconds < 1 ? 1 : seconds,
               *id);
  int status = crl_etcd_call(h, "/v3/lease/grant");
  if (status != CORRAL_OK) return status;
  int is_right = crl_etcd_number(h->reply, "ID", id) && crl_etcd_number(h->reply, "TTL", ret_ttl);
  return is_right && *id != 0 && *ret_ttl > 0 && *ret_ttl < INT32_MAX
             ? CORRAL_OK
             : crl_etcd_strange(h, "no lease");
}

/* Tidies up: its outcome changes no answer. */
static void revoke(crl_etcd_handle *h, int64_t id) {
  if (h->broken != CORRAL_OK) return;
  corral_error before = h->error;
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  (void)crl_etcd_call(h, "/v3/lease/revoke");
  if (h->broken == CORRAL_OK) h->error = before;
}

static int keep_alive(crl_etcd_handle *h, int64_t id, int64_t *ret_ttl) {
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  int status = crl_etcd_call(h, "/v3/lease/keepalive");
  if (status != CORRAL_OK) return status;
  if (!crl_etcd_number(crl_etcd_part(h->reply, "result"), "TTL", ret_ttl) || *ret_ttl >= INT32_MAX)
    return crl_etcd_strange(h, "no TTL");
  return *ret_ttl > 0 ? CORRAL_OK : CORRAL_ELOST;
}

/* Sets *ret_ms to the time until the lease is over at the latest, unless it is kept alive; -1:
 * there is no lease, or it isn't known. */
static int ends_in(crl_etcd_handle *h, int64_t id, int64_t *ret_ms) {
  int64_t ttl;
  *ret_ms = -1;
  if (id == 0 || h->broken != CORRAL_OK) return CORRAL_OK;
  crl_etcd_say(h, "{\"ID\":\"%" PRId64 "\"}", id);
  int status = crl_etcd_call(h, "/v3/lease/timetolive");
  if (status != CORRAL_OK) return status;
  if (!crl_etcd_number(h->reply, "TTL", &ttl) || ttl >= INT32_MAX)
    return crl_etcd_strange(h, "no TTL");
  *ret_ms = ttl < 0 ? SWEEP_MS : (ttl + 1) * 1000;
  return CORRAL_OK;
}

/* ---- the key ------------------------------------------------------------------------------- */

/* Sets h->key, and h->lease to the number of this token's lease for it. */
static void set_key(crl_etcd_handle *h, const corral_op *op) {
  static const uint8_t none[CORRAL_TOKEN];
  uint8_t all[CORRAL_TOKEN + CRL_ETCD_PREFIX + CRL_ETCD_KEY], *at = all + CORRAL_TOKEN;
  size_t before = strlen(h->store->prefix);
  memcpy(all, op->token != NULL ? op->token : none, CORRAL_TOKEN);
  memcpy(at, h->store->prefix, before);
  memcpy(at + before, op->key, op->key_len);
  crl_etcd_base64(at, before + op->key_len, h->key);
  h->lease =
      (int64_t)(corral_digest_number(h->store->host, all, CORRAL_TOKEN + before + op->key_len) &
                INT64_MAX);
  if (h->lease == 0) h->lease = 1;
}

/* `hold`: of a new one, or as it was taken over. */
static void make_value(const corral_hold *hold, char to[CRL_ETCD_VALUE64]) {
  char hex[2 * CORRAL_TOKEN + 1], when[24], number[24],
      note[CORRAL_LOCK_NOTE + 1] = {0}, text[CRL_ETCD_VALUE] = "";
  memcpy(note, hold->note, CORRAL_LOCK_NOTE);
  to_hex(hold->token, hex);
  snprintf(when, sizeof when, "%" PRId64, hold->since);
  snprintf(number, sizeof number, "%" PRIu64, hold->fence);
  cJSON fence = {.type = cJSON_String, .string = (char[]){"fence"}, .valuestring = number};
  cJSON said = {.next = hold->fence != 0 ? &fence : NULL,
                .type = cJSON_String,
                .string = (char[]){"note"},
                .valuestring = note};
  cJSON since = {
      .next = &said, .type = cJSON_String, .string = (char[]){"since"}, .valuestring = when};
  cJSON token = {
      .next = &since, .type = cJSON_String, .string = (char[]){"token"}, .valuestring = hex};
  cJSON value = {.type = cJSON_Object, .child = &token};
  (void)cJSON_PrintPreallocated(&value, text, sizeof text, 0);
  crl_etcd_base64((const uint8_t *)text, strlen(text), to);
}

static void read_value(const char *text, key_now *hold) {
  uint8_t bytes[CRL_ETCD_VALUE + 1];
  size_t size = text != NULL && hold->lease != 0 ? crl_etcd_base64_read(text, bytes, CRL_ETCD_VALUE)
                                                 : SIZE_MAX;
  if (size == SIZE_MAX) return;
  bytes[size] = '\0';
  cJSON *value = cJSON_ParseWithLength((const char *)bytes, size);
  const char *note = crl_etcd_words(value, "note");
  int64_t fence;
  hold->ours = from_hex(crl_etcd_words(value, "token"), hold->told.token) &&
               crl_etcd_number(value, "since", &hold->told.since);
  if (crl_etcd_number(value, "fence", &fence) && fence > hold->created)
    hold->told.fence = (uint64_t)fence;
  if (note != NULL) memcpy(hold->told.note, note, strnlen(note, CORRAL_LOCK_NOTE));
  cJSON_Delete(value);
}

static int read_range(crl_etcd_handle *h, const cJSON *range, key_now *hold) {
  const cJSON *list = crl_etcd_part(range, "kvs"), *kv = cJSON_GetArrayItem(list, 0);
  memset(hold, 0, sizeof *hold);
  if (!cJSON_IsObject(range) || (list != NULL && !cJSON_IsArray(list)))
    return crl_etcd_strange(h, "no range");
  if (kv == NULL) return CORRAL_OK;
  hold->found = 1;
  const char *key = crl_etcd_words(kv, "key"), *value = crl_etcd_words(kv, "value");
  if (key == NULL || strcmp(key, h->key) != 0 ||
      (value == NULL && crl_etcd_part(kv, "value") != NULL) ||
      !crl_etcd_number(kv, "create_revision", &hold->created) ||
      !crl_etcd_number(kv, "mod_revision", &hold->modified) ||
      !crl_etcd_number(kv, "lease", &hold->lease) || hold->created < 1 || hold->modified < 1)
    return crl_etcd_strange(h, "no key");
  hold->told.mode = CORRAL_LOCK_EXCLUSIVE;
  hold->told.fence = (uint64_t)hold->created;
  read_value(value, hold);
  return CORRAL_OK;
}

static int look(crl_etcd_handle *h, key_now *hold) {
  crl_etcd_say(h, "{\"key\":\"%s\"}", h->key);
  int status = crl_etcd_call(h, "/v3/kv/range");
  return status == CORRAL_OK ? read_range(h, h->reply, hold) : status;
}

/* Performs the transaction of h->body, whose failure part reads the key. *ret_revision: of the
 * change; 0: it wasn't made, and *hold is the key that prevented it. */
static int change(crl_etcd_handle *h, int64_t *ret_revision, key_now *hold) {
  int status = crl_etcd_call(h, "/v3/kv/txn");
  if (status != CORRAL_OK) return status;
  const cJSON *succeeded = crl_etcd_part(h->reply, "succeeded"),
              *responses = crl_etcd_part(h->reply, "responses");
  *ret_revision = 0;
  if (succeeded != NULL && !cJSON_IsBool(succeeded)) return crl_etcd_strange(h, "no transaction");
  if (cJSON_IsTrue(succeeded))
    return crl_etcd_number(crl_etcd_part(h->reply, "header"), "revision", ret_revision)
               ? CORRAL_OK
               : crl_etcd_strange(h, "no revision");
  return read_range(h, crl_etcd_part(cJSON_GetArrayItem(responses, 0), "response_range"), hold);
}

/* Puts the key under a new lease of *ret_ttl seconds, if it is still as it was seen. ELOST: it
 * isn't. */
static int relet(crl_etcd_handle *h, const key_now *hold, int64_t lease_ms, int64_t *ret_ttl) {
  int64_t id = 0, revision;
  key_now now;
  int status = grant(h, lease_ms, &id, ret_ttl);
  if (status != CORRAL_OK) return status;
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":"
      "\"%" PRId64 "\"}],"
      "\"success\":[{\"request_put\":{\"key\":\"%s\",\"ignore_value\":true,\"lease\":\"%" PRId64
      "\"}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
      h->key, hold->modified, h->key, id, h->key);
  status = change(h, &revision, &now);
  if (status == CORRAL_OK && revision == 0) status = CORRAL_ELOST;
  if (status != CORRAL_OK)
    revoke(h, id);
  else if (hold->lease != 0)
    revoke(h, hold->lease);
  return status;
}

/* ---- the verbs ----------------------------------------------------------------------------- */

static int is_mine(const key_now *hold, const corral_op *op) {
  return hold->ours && memcmp(hold->told.token, op->token, CORRAL_TOKEN) == 0;
}

/* Results of a hold whose lease of `ttl` seconds began after `sent` (host->now_ms). */
static int granted(const crl_etcd_handle *h, corral_op *op, uint64_t fence, int64_t ttl,
                   int64_t sent) {
  int64_t left = ttl * 1000 - (h->store->host->now_ms() - sent);
  op->lock_state.fence = fence;
  op->lock_state.left_ms = left > 0 ? left : 0;
  return CORRAL_OK;
}

/* Begins this token's hold anew. */
static int renew(crl_etcd_handle *h, corral_op *op, const key_now *hold) {
  int64_t ttl, sent = h->store->host->now_ms();
  int status = keep_alive(h, hold->lease, &ttl);
  if (status == CORRAL_OK && ttl * 1000 < corral_op_hold_ms(op)) {
    sent = h->store->host->now_ms();
    status = relet(h, hold, corral_op_hold_ms(op), &ttl);
  }
  return status == CORRAL_OK ? granted(h, op, hold->told.fence, ttl, sent) : status;
}

/* Refuses a LOCK. A waiter with a watch learns of the key's end, so left_ms isn't asked for
 * then. */
static int busy(crl_etcd_handle *h, corral_op *op, const key_now *hold) {
  h->busy = h->store->host->hash64(op->key, op->key_len);
  h->contended = CONTENDED;
  op->lock_state.left_ms = -1;
  if (!hold->ours || !(op->flags & CORRAL_OP_WATCH) || atomic_load(&h->store->watches) == 0)
    (void)ends_in(h, hold->lease, &op->lock_state.left_ms);
  return hold->ours
             ? CORRAL_EBUSY
             : crl_etcd_fail(h, CORRAL_EFOREIGN, "the key holds what corral did not write", "");
}

static void set_holder(corral_hold *hold, const corral_op *op, const char *note, size_t len) {
  memcpy(hold->token, op->token, CORRAL_TOKEN);
  memset(hold->note, 0, sizeof hold->note);
  if (note != NULL) memcpy(hold->note, note, len < CORRAL_LOCK_NOTE ? len : CORRAL_LOCK_NOTE);
}

/* Puts the key under this token's lease, if there is no such key. */
static int put(crl_etcd_handle *h, corral_op *op, int64_t id, int64_t *ret_revision,
               key_now *hold) {
  char value[CRL_ETCD_VALUE64];
  corral_hold new = {.since = h->store->host->wall_ms()};
  set_holder(&new, op, op->lock.note, op->lock.note_len);
  make_value(&new, value);
  crl_etcd_say(h,
               "{\"compare\":[{\"key\":\"%s\",\"target\":\"CREATE\",\"result\":\"EQUAL\",\"create_"
               "revision\":\"0\"}],"
               "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64
               "\"}}],"
               "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
               h->key, h->key, value, id, h->key);
  int status = change(h, ret_revision, hold);
  return status == CORRAL_OK && *ret_revision == 0 && !hold->found
             ? crl_etcd_strange(h, "a key that is there and isn't")
             : status;
}

static _Atomic int64_t *waiting(crl_etcd_handle *h) {
  return &h->store->waiting[(uint64_t)h->lease % CRL_ETCD_WAITING];
}

/* Refuses a LOCK. A token that will ask again keeps its lease until it is granted or UNLOCK, since
 * a new one would cost two writes per request. */
static int refuse(crl_etcd_handle *h, corral_op *op, const key_now *hold) {
  if (op->lock.wish_ms > 0 && hold->ours) {
    atomic_store(waiting(h), h->lease);
    op->flags |= CORRAL_OP_QUEUED;
  } else {
    revoke(h, h->lease);
  }
  return busy(h, op, hold);
}

/* Makes a lease for the token, and puts the key under it. *ret_leased: OK: a new lease; EBUSY: an
 * older one, whose remaining time is unknown. */
static int lease_and_put(crl_etcd_handle *h, corral_op *op, int64_t *ret_ttl, int64_t *ret_revision,
                         key_now *hold, int *ret_leased) {
  int64_t own = h->lease, id = own;
  if (atomic_exchange(waiting(h), 0) == own) {
    int status = put(h, op, own, ret_revision, hold);
    *ret_leased = CORRAL_EBUSY;
    if (status != CORRAL_ELOST) return status;
  }
  *ret_leased = grant(h, op->lock.hold_ms, &id, ret_ttl);
  if (*ret_leased == CORRAL_OK && id != own) return crl_etcd_strange(h, "another lease");
  if (*ret_leased != CORRAL_OK && *ret_leased != CORRAL_EBUSY) return *ret_leased;
  return put(h, op, own, ret_revision, hold);
}

static int lock(crl_etcd_handle *h, corral_op *op) {
  key_now hold = {0};
  int64_t ttl = 0, revision = 0, sent = h->store->host->now_ms();
  int leased = CORRAL_OK;
  if (op->flags & CORRAL_OP_SHARED)
    return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "no shared locks", "");
  if (h->contended > 0 && h->busy == h->store->host->hash64(op->key, op->key_len)) {
    int looked = look(h, &hold);
    if (looked != CORRAL_OK) return looked;
    if (hold.found && !is_mine(&hold, op)) return busy(h, op, &hold);
    h->contended--;
  }
  int status = lease_and_put(h, op, &ttl, &revision, &hold, &leased);
  int is_new = status == CORRAL_OK && revision > 0;
  if (is_new && leased == CORRAL_OK) return granted(h, op, (uint64_t)revision, ttl, sent);
  if (is_new) { /* the lease's remaining time is unknown */
    hold = (key_now){.modified = revision, .lease = h->lease};
    hold.told.fence = (uint64_t)revision;
    status = renew(h, op, &hold);
  } else if (status == CORRAL_OK && is_mine(&hold, op)) {
    status = renew(h, op, &hold);
    if (status == CORRAL_OK && hold.lease != h->lease) revoke(h, h->lease);
  } else if (status == CORRAL_OK) {
    return refuse(h, op, &hold);
  } else if (status != CORRAL_EINDOUBT && (leased == CORRAL_OK || leased == CORRAL_EBUSY)) {
    revoke(h, h->lease);
  }
  return status == CORRAL_ELOST ? crl_etcd_fail(h, CORRAL_EUNAVAILABLE,
                                                "the lease was over before the lock was there", "")
                                : status;
}

static int lost(crl_etcd_handle *h, corral_op *op, const key_now *hold) {
  op->lock_state.left_ms = 0;
  if (hold->found && !is_mine(hold, op)) (void)ends_in(h, hold->lease, &op->lock_state.left_ms);
  return CORRAL_ELOST;
}

static int is_from(const key_now *hold, const corral_op *op) {
  const uint8_t *from = op->lock_extend.from;
  return from != NULL && hold->ours && memcmp(hold->told.token, from, CORRAL_TOKEN) == 0;
}

/* Puts the key with this token under its lease, if it is still as it was seen; else *ret_revision
 * is 0, and *hold as it is now. The fencing token: larger than the one before, and smaller than the
 * revision at which the next key is created. */
static int put_over(crl_etcd_handle *h, const corral_op *op, int64_t *ret_revision, key_now *hold) {
  char value[CRL_ETCD_VALUE64];
  hold->told.fence = (uint64_t)hold->modified + 1;
  set_holder(&hold->told, op, op->lock_extend.note, op->lock_extend.note_len);
  make_value(&hold->told, value);
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"MOD\",\"result\":\"EQUAL\",\"mod_revision\":"
      "\"%" PRId64 "\"}],"
      "\"success\":[{\"request_put\":{\"key\":\"%s\",\"value\":\"%s\",\"lease\":\"%" PRId64 "\"}}],"
      "\"failure\":[{\"request_range\":{\"key\":\"%s\"}}]}",
      h->key, hold->modified, h->key, value, h->lease, h->key);
  return change(h, ret_revision, hold);
}

/* The hold of op->lock_extend.from becomes this token's. ELOST: it was over, or another's first. */
static int take_over(crl_etcd_handle *h, corral_op *op, key_now *hold) {
  int64_t id = h->lease, ttl, left, revision = 0, before = 0;
  int status = ends_in(h, hold->lease, &left);
  if (status != CORRAL_OK) return status;
  status = grant(h, left > op->lock_extend.hold_ms ? left : op->lock_extend.hold_ms, &id, &ttl);
  if (status != CORRAL_OK && status != CORRAL_EBUSY) return status; /* EBUSY: of an earlier try */
  do {
    before = hold->lease;
    status = put_over(h, op, &revision, hold);
  } while (status == CORRAL_OK && revision == 0 && is_from(hold, op));
  if (status == CORRAL_EINDOUBT) return status;
  if (status == CORRAL_OK && revision == 0 && is_mine(hold, op)) return renew(h, op, hold);
  revoke(h, status == CORRAL_OK && revision != 0 ? before : h->lease);
  if (status != CORRAL_OK || revision == 0) return status != CORRAL_OK ? status : CORRAL_ELOST;
  hold->lease = h->lease;
  hold->modified = revision;
  return renew(h, op, hold);
}

static int extend(crl_etcd_handle *h, corral_op *op) {
  key_now hold = {0};
  if (op->flags & CORRAL_OP_SHARED)
    return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "no shared locks", "");
  int status = look(h, &hold);
  if (status == CORRAL_OK && is_from(&hold, op))
    status = take_over(h, op, &hold);
  else if (status == CORRAL_OK)
    status = is_mine(&hold, op) ? renew(h, op, &hold) : CORRAL_ELOST;
  return status == CORRAL_ELOST ? lost(h, op, &hold) : status;
}

/* Removes the key if its `target` equals `value`. */
static int drop(crl_etcd_handle *h, const char *target, const char *field, int64_t value,
                int64_t *ret_revision, key_now *hold) {
  crl_etcd_say(
      h,
      "{\"compare\":[{\"key\":\"%s\",\"target\":\"%s\",\"result\":\"EQUAL\",\"%s\":\"%" PRId64
      "\"}],"
      "\"success\":[{\"request_delete_range\":{\"key\":\"%s\"}}],\"failure\":[{\"request_range\":{"
      "\"key\":\"%s\"}}]}",
      h->key, target, field, value, h->key, h->key);
  return change(h, ret_revision, hold);
}

/* The key may be under another lease than the token's first. That first lease is revoked even when
 * there is no key, so that no LOCK still on its way can put one. */
static int unlock(crl_etcd_handle *h, corral_op *op) {
  key_now hold = {0};
  int64_t revision = 0, own = h->lease;
  atomic_compare_exchange_strong(waiting(h), &own, 0);
  int status = drop(h, "LEASE", "lease", h->lease, &revision, &hold);
  if (status == CORRAL_OK && revision == 0 && is_mine(&hold, op)) {
    int64_t other = hold.lease;
    status = drop(h, "MOD", "mod_revision", hold.modified, &revision, &hold);
    if (status == CORRAL_OK) revoke(h, other);
  } else {
    revoke(h, h->lease);
  }
  return status == CORRAL_OK && revision == 0 ? lost(h, op, &hold) : status;
}

static int show(crl_etcd_handle *h, corral_op *op) {
  key_now hold;
  int64_t ttl, left;
  int status = look(h, &hold);
  if (status != CORRAL_OK) return status;
  if (!hold.found) return CORRAL_EMISS;
  if (!hold.ours && hold.lease == 0 && op->flags & CORRAL_OP_REPAIR) {
    status = relet(h, &hold, op->lock_show.foreign_ms, &ttl);
    if (status != CORRAL_OK && status != CORRAL_ELOST) return status;
    op->lock_state.left_ms = status == CORRAL_OK ? ttl * 1000 : -1;
    return crl_etcd_fail(h, CORRAL_EFOREIGN, "the key holds what corral did not write", "");
  }
  if (!hold.ours) return busy(h, op, &hold);
  status = ends_in(h, hold.lease, &left);
  if (status != CORRAL_OK) return status;
  uint8_t *record = malloc(CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  if (record == NULL) return crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a record", "");
  op->lock_state.now = h->store->host->wall_ms();
  op->lock_state.left_ms = left;
  hold.told.until = op->lock_state.now + left;
  if (hold.told.since < 1 || hold.told.since > op->lock_state.now)
    hold.told.since = op->lock_state.now;
  h->store->host->lock_write(hold.told.fence, &hold.told, 1, record);
  op->found.record = record;
  op->found.len = CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD;
  op->found.drop = free;
  op->found.owner = record;
  return CORRAL_OK;
}

static int one(crl_etcd_handle *h, corral_op *op) {
  op->lock_state.left_ms = op->lock_state.now = 0;
  if (op->key_len == 0 || op->key_len > CRL_ETCD_KEY)
    return crl_etcd_fail(h, CORRAL_ETOOBIG, "a name has 1 to 4096 bytes", "");
  set_key(h, op);
  switch (op->verb) {
    case CORRAL_VERB_LOCK: return lock(h, op);
    case CORRAL_VERB_LOCK_EXTEND: return extend(h, op);
    case CORRAL_VERB_UNLOCK: return unlock(h, op);
    case CORRAL_VERB_LOCK_SHOW: return show(h, op);
    default: return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "etcd has locks only, no values", "");
  }
}

int crl_etcd_perform(void *handle, const corral_batch *batch, int64_t deadline,
                     corral_error *error) {
  crl_etcd_handle *h = handle;
  h->deadline = deadline;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    if (h->broken != CORRAL_OK) {
      op->status = CORRAL_EUNAVAILABLE;
      if (op->error != NULL) *op->error = h->error;
      continue;
    }
    memset(&h->error, 0, sizeof h->error);
    op->status = one(h, op);
    if (op->status < 0 && h->error.text[0] != '\0' && op->error != NULL) *op->error = h->error;
    if (op->error != NULL && op->error->text[0] != '\0') op->error->status = op->status;
  }
  if (h->broken == CORRAL_OK) return CORRAL_OK;
  if (error != NULL) *error = h->error;
  if (error != NULL) error->status = h->broken;
  return h->broken;
}
