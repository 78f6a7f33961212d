/* handle.c: connecting to etcd, and hanging up. */
#include <ctype.h>
#include <stdlib.h>

#include "etcd.h"

void crl_etcd_disconnect(void *handle) {
  crl_etcd_handle *h = handle;
  crl_etcd_forget_headers(h);
  curl_easy_cleanup(h->easy);
  cJSON_Delete(h->reply);
  free(h->in.bytes);
  free(h);
}

/* Checks the version, since the gateway is at /v3 from 3.4 on, and logs in. */
static int greet(crl_etcd_handle *h) {
  char *end;
  int status = crl_etcd_once(h, "/version", NULL);
  if (status == CORRAL_EINDOUBT) status = CORRAL_EPROTOCOL;
  if (status != CORRAL_OK) return status;
  const char *version = crl_etcd_words(h->reply, "etcdserver");
  if (version == NULL || !isdigit((unsigned char)*version))
    return crl_etcd_fail(h, CORRAL_EPROTOCOL, "is it an etcd server?", "it tells no version");
  long major = strtol(version, &end, 10), minor = *end == '.' ? strtol(end + 1, NULL, 10) : 0;
  if (major < 3 || (major == 3 && minor < 4))
    return crl_etcd_fail(h, CORRAL_EUNSUPPORTED, "etcd 3.4 or later is needed; this is", version);
  return crl_etcd_log_in(h);
}

int crl_etcd_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  crl_etcd_store *s = store;
  crl_etcd_handle *h = calloc(1, sizeof *h);
  if (h == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  h->store = s;
  h->at = atomic_load(&s->at);
  h->deadline = deadline;
  int status = crl_etcd_easy(h);
  if (status == CORRAL_OK) status = greet(h);
  if (status == CORRAL_EINDOUBT) status = h->broken;
  if (status == CORRAL_OK) {
    *ret_handle = h;
    return status;
  }
  if (error != NULL) *error = h->error;
  if (error != NULL) error->status = status;
  crl_etcd_disconnect(h);
  return status;
}
