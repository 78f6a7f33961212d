/* list.c: lists the keys that begin with a prefix, each of which is a lock that is held. */
#include <stdlib.h>

#include "etcd.h"

enum {
  PAGE = 500, /* keys in one reply, which then is shorter than CRL_ETCD_REPLY whatever they are */
  BYTES = CRL_ETCD_PREFIX + CRL_ETCD_KEY + 1,
  BYTES64 = (BYTES + 2) / 3 * 4 + 1
};

/* Where the next page begins, and all pages end. */
typedef struct span {
  uint8_t from[BYTES];
  size_t len;
  char to[BYTES64]; /* base64 */
} span;

/* Writes the least text above all that begin with these bytes; returns its length, 0: there is
 * none. */
static size_t end_of(uint8_t *bytes, size_t len) {
  while (len > 0 && bytes[len - 1] == 0xff) len--;
  if (len > 0) bytes[len - 1]++;
  return len;
}

static void begin(const crl_etcd_store *s, const corral_listing *l, span *ret) {
  uint8_t end[BYTES];
  size_t before = strlen(s->prefix);
  memcpy(ret->from, s->prefix, before);
  memcpy(ret->from + before, l->prefix, l->prefix_len);
  ret->len = before + l->prefix_len;
  memcpy(end, ret->from, ret->len);
  crl_etcd_base64(end, end_of(end, ret->len), ret->to);
}

/* Asks for the keys, without their values. */
static int ask(crl_etcd_handle *h, const span *at) {
  char from[BYTES64];
  crl_etcd_base64(at->from, at->len, from);
  crl_etcd_say(h, "{\"key\":\"%s\",\"range_end\":\"%s\",\"keys_only\":true,\"limit\":\"%d\"}", from,
               at->to, PAGE);
  return crl_etcd_call(h, "/v3/kv/range");
}

/* Tells the keys of the reply, without the store's prefix. *ret_more: the next page begins at *at;
 * 0: there is none, or no more are wanted. */
static int tell(crl_etcd_handle *h, const corral_listing *l, span *at, int *ret_more) {
  const cJSON *list = crl_etcd_part(h->reply, "kvs"), *kv;
  size_t before = strlen(h->store->prefix), len = SIZE_MAX;
  *ret_more = cJSON_IsTrue(crl_etcd_part(h->reply, "more"));
  if (list != NULL && !cJSON_IsArray(list)) return crl_etcd_strange(h, "no range");
  cJSON_ArrayForEach(kv, list) {
    const char *text = crl_etcd_words(kv, "key");
    len = text != NULL ? crl_etcd_base64_read(text, at->from, BYTES - 1) : SIZE_MAX;
    if (len == SIZE_MAX || len < before + l->prefix_len ||
        memcmp(at->from + before, l->prefix, l->prefix_len) != 0)
      continue;
    if (l->tell(l->arg, at->from + before, len - before) == 0) continue;
    *ret_more = 0;
    break;
  }
  if (*ret_more && len == SIZE_MAX) return crl_etcd_strange(h, "no key after which to go on");
  if (*ret_more) at->from[len] = '\0';
  at->len = len + 1;
  return CORRAL_OK;
}

static int list_all(crl_etcd_handle *h, const corral_listing *l) {
  span at;
  int more = 1, status = CORRAL_OK;
  begin(h->store, l, &at);
  while (status == CORRAL_OK && more) {
    h->deadline = h->store->host->now_ms() + l->op_ms;
    status = ask(h, &at);
    if (status == CORRAL_OK) status = tell(h, l, &at, &more);
  }
  return status;
}

int crl_etcd_list(void *store, const corral_listing *l, corral_error *error) {
  crl_etcd_store *s = store;
  void *handle;
  if (l->prefix_len > CRL_ETCD_KEY) return CORRAL_OK;
  int status = crl_etcd_connect(s, s->host->now_ms() + l->op_ms, &handle, error);
  if (status != CORRAL_OK) return status;
  crl_etcd_handle *h = handle;
  memset(&h->error, 0, sizeof h->error);
  status = list_all(h, l);
  if (status == CORRAL_EINDOUBT) status = CORRAL_EUNAVAILABLE;
  if (status != CORRAL_OK && error != NULL) *error = h->error;
  if (status != CORRAL_OK && error != NULL) error->status = status;
  crl_etcd_disconnect(h);
  return status;
}
