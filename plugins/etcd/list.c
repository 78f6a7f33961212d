/* list.c: lists the keys that begin with a prefix, each of which is a lock that is held. */
#include <stdlib.h>

#include "etcd.h"

/* Writes the least text above all that begin with these bytes; returns its length, 0: there is
 * none. */
static size_t end_of(uint8_t *bytes, size_t len) {
  while (len > 0 && bytes[len - 1] == 0xff) len--;
  if (len > 0) bytes[len - 1]++;
  return len;
}

/* Asks for the keys, without their values. */
static int ask(crl_etcd_handle *h, const corral_listing *l) {
  uint8_t bytes[CRL_ETCD_PREFIX + CRL_ETCD_KEY];
  char from[CRL_ETCD_KEY64], to[CRL_ETCD_KEY64];
  size_t before = strlen(h->store->prefix), len = before + l->prefix_len;
  if (l->prefix_len > CRL_ETCD_KEY) return CORRAL_EMISS;
  memcpy(bytes, h->store->prefix, before);
  memcpy(bytes + before, l->prefix, l->prefix_len);
  crl_etcd_base64(bytes, len, from);
  crl_etcd_base64(bytes, end_of(bytes, len), to);
  crl_etcd_say(h, "{\"key\":\"%s\",\"range_end\":\"%s\",\"keys_only\":true}", from, to);
  return crl_etcd_call(h, "/v3/kv/range");
}

/* Tells the keys of the reply, without the store's prefix. */
static int tell(crl_etcd_handle *h, const corral_listing *l) {
  const cJSON *list = crl_etcd_part(h->reply, "kvs"), *kv;
  size_t before = strlen(h->store->prefix);
  if (list != NULL && !cJSON_IsArray(list)) return crl_etcd_strange(h, "no range");
  cJSON_ArrayForEach(kv, list) {
    uint8_t key[CRL_ETCD_PREFIX + CRL_ETCD_KEY];
    const char *text = crl_etcd_words(kv, "key");
    size_t len = text != NULL ? crl_etcd_base64_read(text, key, sizeof key) : SIZE_MAX;
    if (len == SIZE_MAX || len < before + l->prefix_len ||
        memcmp(key + before, l->prefix, l->prefix_len) != 0)
      continue;
    if (l->tell(l->arg, key + before, len - before) != 0) break;
  }
  return CORRAL_OK;
}

int crl_etcd_list(void *store, const corral_listing *l, corral_error *error) {
  crl_etcd_store *s = store;
  void *handle;
  int64_t until = s->host->now_ms() + l->op_ms;
  int status = crl_etcd_connect(s, until, &handle, error);
  if (status != CORRAL_OK) return status;
  crl_etcd_handle *h = handle;
  h->deadline = until;
  memset(&h->error, 0, sizeof h->error);
  status = ask(h, l);
  if (status == CORRAL_OK) status = tell(h, l);
  if (status == CORRAL_EMISS) status = CORRAL_OK;
  if (status == CORRAL_EINDOUBT) status = CORRAL_EUNAVAILABLE;
  if (status != CORRAL_OK && error != NULL) *error = h->error;
  if (status != CORRAL_OK && error != NULL) error->status = status;
  crl_etcd_disconnect(h);
  return status;
}
