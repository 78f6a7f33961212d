/* key.c: the keys of a lock and of its queue: their names, their values, and what one request reads
 * of them.
 *
 * A lock is the key of its name behind the store's prefix. A place in its queue is a key, too: the
 * prefix, "~turn:", a digest of the lock's name, ":" and the waiting token. A key in that range
 * with another name behind the ":", or without a lease, is foreign and counts as none. The order of
 * the queue is that of the revisions at which its keys were created.
 *
 * The value, JSON: "token" (hex), "since" (wall clock of the taking host in ms, for people to read)
 * and "note"; and, of a hold that was taken over, "fence". */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

#include "etcd.h"

enum { READ_MOST = 1024 }; /* keys of a queue that one request reads */

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

/* ---- names --------------------------------------------------------------------------------- */

static void set_queue(crl_etcd_handle *h, const corral_op *op, const uint8_t *token) {
  uint8_t digest[CORRAL_DIGEST];
  char text[CRL_ETCD_PLACE + 1], hex[2 * CORRAL_DIGEST + 1];
  _Static_assert(CORRAL_DIGEST == CORRAL_TOKEN, "to_hex writes either");
  h->store->host->digest(op->key, op->key_len, digest);
  to_hex(digest, hex);
  size_t len = (size_t)snprintf(text, sizeof text, "%s" CRL_ETCD_TURN "%s:", h->store->prefix, hex);
  to_hex(token, text + len);
  crl_etcd_base64((uint8_t *)text, len + 2 * CORRAL_TOKEN, h->place);
  crl_etcd_base64((uint8_t *)text, len, h->queue);
  text[len - 1]++;
  crl_etcd_base64((uint8_t *)text, len, h->queue_end);
}

void crl_etcd_set_names(crl_etcd_handle *h, const corral_op *op) {
  static const uint8_t none[CORRAL_TOKEN];
  const uint8_t *token = op->token != NULL ? op->token : none;
  uint8_t all[CORRAL_TOKEN + CRL_ETCD_PREFIX + CRL_ETCD_KEY], *at = all + CORRAL_TOKEN;
  size_t before = strlen(h->store->prefix);
  memcpy(all, token, CORRAL_TOKEN);
  memcpy(at, h->store->prefix, before);
  memcpy(at + before, op->key, op->key_len);
  crl_etcd_base64(at, before + op->key_len, h->key);
  h->hash = corral_op_hash(h->store->host, op);
  h->lease =
      (int64_t)(corral_digest_number(h->store->host, all, CORRAL_TOKEN + before + op->key_len) &
                INT64_MAX);
  if (h->lease == 0) h->lease = 1;
  set_queue(h, op, token);
}

/* ---- values -------------------------------------------------------------------------------- */

void crl_etcd_set_holder(corral_hold *hold, const corral_op *op, const char *note, size_t len) {
  memcpy(hold->token, op->token, CORRAL_TOKEN);
  memset(hold->note, 0, sizeof hold->note);
  if (note != NULL) memcpy(hold->note, note, len < CORRAL_LOCK_NOTE ? len : CORRAL_LOCK_NOTE);
}

void crl_etcd_make_value(const corral_hold *hold, char to[CRL_ETCD_VALUE64]) {
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

static void read_value(const char *text, crl_etcd_key *hold) {
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

/* ---- reading ------------------------------------------------------------------------------- */

static int read_range(crl_etcd_handle *h, const cJSON *range, crl_etcd_key *hold) {
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

int crl_etcd_look(crl_etcd_handle *h, crl_etcd_key *ret) {
  crl_etcd_say(h, "{\"key\":\"%s\"}", h->key);
  int status = crl_etcd_call(h, "/v3/kv/range");
  return status == CORRAL_OK ? read_range(h, h->reply, ret) : status;
}

const cJSON *crl_etcd_answer(const crl_etcd_handle *h, int number, const char *name) {
  return crl_etcd_part(cJSON_GetArrayItem(crl_etcd_part(h->reply, "responses"), number), name);
}

int crl_etcd_transact(crl_etcd_handle *h, int64_t *ret_revision) {
  int status = crl_etcd_call(h, "/v3/kv/txn");
  if (status != CORRAL_OK) return status;
  const cJSON *succeeded = crl_etcd_part(h->reply, "succeeded");
  *ret_revision = 0;
  if (succeeded != NULL && !cJSON_IsBool(succeeded)) return crl_etcd_strange(h, "no transaction");
  if (!cJSON_IsTrue(succeeded)) return CORRAL_OK;
  return crl_etcd_number(crl_etcd_part(h->reply, "header"), "revision", ret_revision)
             ? CORRAL_OK
             : crl_etcd_strange(h, "no revision");
}

int crl_etcd_change(crl_etcd_handle *h, int64_t *ret_revision, crl_etcd_key *ret) {
  int status = crl_etcd_transact(h, ret_revision);
  return status == CORRAL_OK && *ret_revision == 0
             ? read_range(h, crl_etcd_answer(h, 0, "response_range"), ret)
             : status;
}

/* The token of a place in the lock's queue, by its key; 0: the key is foreign. */
static int read_place(const crl_etcd_handle *h, const cJSON *kv, uint8_t token[CORRAL_TOKEN],
                      int64_t *created, int64_t *lease) {
  uint8_t key[CRL_ETCD_PLACE + 1], queue[CRL_ETCD_PLACE];
  const char *text = crl_etcd_words(kv, "key");
  if (text == NULL) return 0;
  size_t len = crl_etcd_base64_read(text, key, CRL_ETCD_PLACE),
         before = crl_etcd_base64_read(h->queue, queue, sizeof queue);
  if (len != before + 2 * CORRAL_TOKEN || memcmp(key, queue, before) != 0) return 0;
  key[len] = '\0';
  return from_hex((const char *)key + before, token) &&
         crl_etcd_number(kv, "create_revision", created) && *created > 0 &&
         crl_etcd_number(kv, "lease", lease) && *lease != 0;
}

static int read_queue(crl_etcd_handle *h, const cJSON *range, crl_etcd_queue *ret) {
  const cJSON *list = crl_etcd_part(range, "kvs"), *kv;
  uint8_t token[CORRAL_TOKEN];
  int64_t created, lease;
  memset(ret, 0, sizeof *ret);
  if (!cJSON_IsObject(range) || (list != NULL && !cJSON_IsArray(list)))
    return crl_etcd_strange(h, "no range of places");
  cJSON_ArrayForEach(kv, list) {
    if (!read_place(h, kv, token, &created, &lease)) continue;
    const char *key = crl_etcd_words(kv, "key");
    if (++ret->places == 1) {
      ret->first = created;
      snprintf(ret->first_key, sizeof ret->first_key, "%s", key);
    }
    if (strcmp(key, h->place) != 0) continue;
    ret->own = ret->places;
    ret->created = created;
    ret->lease = lease;
  }
  return CORRAL_OK;
}

static void add_view(crl_etcd_handle *h, int keys_only) {
  crl_etcd_add(h,
               "{\"request_range\":{\"key\":\"%s\"}},{\"request_range\":{\"key\":\"%s\","
               "\"range_end\":\"%s\",\"keys_only\":%s,\"sort_order\":\"ASCEND\","
               "\"sort_target\":\"CREATE\",\"limit\":\"%d\"}}",
               h->key, h->queue, h->queue_end, keys_only ? "true" : "false", READ_MOST);
}

void crl_etcd_add_view(crl_etcd_handle *h) { add_view(h, 1); }

int crl_etcd_transact_view(crl_etcd_handle *h, int before, int64_t *ret_revision,
                           crl_etcd_view *ret) {
  int64_t asked = h->store->host->now_ms();
  int status = crl_etcd_transact(h, ret_revision);
  if (status != CORRAL_OK || (*ret_revision != 0 && before < 0)) return status;
  int at = *ret_revision != 0 ? before : 0;
  ret->asked = asked;
  status = read_range(h, crl_etcd_answer(h, at, "response_range"), &ret->hold);
  if (status == CORRAL_OK)
    status = read_queue(h, crl_etcd_answer(h, at + 1, "response_range"), &ret->queue);
  if (status != CORRAL_OK) return status;
  return crl_etcd_number(crl_etcd_part(h->reply, "header"), "revision", &ret->revision)
             ? CORRAL_OK
             : crl_etcd_strange(h, "no revision");
}

static int see(crl_etcd_handle *h, int keys_only, crl_etcd_view *ret) {
  int64_t revision;
  crl_etcd_say(h, "{\"success\":[");
  add_view(h, keys_only);
  crl_etcd_add(h, "]}");
  return crl_etcd_transact_view(h, 0, &revision, ret);
}

int crl_etcd_see(crl_etcd_handle *h, crl_etcd_view *ret) { return see(h, 1, ret); }

/* Reads the places of the last reply. `holds` has room for all of them. */
static void read_places(const crl_etcd_handle *h, int64_t now, corral_hold *holds) {
  const cJSON *kv;
  cJSON_ArrayForEach(kv, crl_etcd_part(crl_etcd_answer(h, 1, "response_range"), "kvs")) {
    crl_etcd_key place = {0};
    uint8_t token[CORRAL_TOKEN];
    if (!read_place(h, kv, token, &place.created, &place.lease)) continue;
    read_value(crl_etcd_words(kv, "value"), &place);
    memcpy(place.told.token, token, CORRAL_TOKEN);
    place.told.mode = CORRAL_LOCK_WAITING + CORRAL_LOCK_EXCLUSIVE;
    place.told.fence = 0;
    place.told.length_ms = CORRAL_LOCK_PLACE_MS;
    place.told.until = now + CORRAL_LOCK_PLACE_MS;
    *holds++ = place.told;
  }
}

int crl_etcd_see_all(crl_etcd_handle *h, crl_etcd_view *ret, corral_hold **ret_holds,
                     size_t *ret_count) {
  int status = see(h, 0, ret);
  if (status != CORRAL_OK) return status;
  size_t holds = (size_t)ret->hold.found;
  corral_hold *all = calloc(holds + ret->queue.places + 1, sizeof *all);
  if (all == NULL) return crl_etcd_fail(h, CORRAL_ENOMEM, "no memory for a queue", "");
  if (holds > 0) all[0] = ret->hold.told;
  read_places(h, h->store->host->wall_ms(), all + holds);
  *ret_holds = all;
  *ret_count = holds + ret->queue.places;
  return CORRAL_OK;
}
