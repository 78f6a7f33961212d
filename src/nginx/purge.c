/* purge.c: the handler of corral_purge: invalidates one key with all its variants, or all that carry a tag.
 *
 * The store is asked by a thread of the library. The request waits for it, and answers when it is done: what is said to be gone is gone. */
#include "module.h"

#include <stdlib.h>

typedef struct crl_ngx_purge {
  ngx_http_request_t *r; /* NULL: it is dead */
  crl_ngx_zone *zone;
  corral_call *call;
  ngx_http_cleanup_t *cleanup;
  int is_tag;
  size_t len;
  unsigned char key[];
} crl_ngx_purge;

static int work(corral *c, void *arg, corral_error *error) {
  crl_ngx_purge *purge = arg;
  unsigned char variants[CRL_NGX_VARY_TAG];
  if (purge->is_tag) return corral_invalidate_tag(c, purge->key, purge->len, error);
  int status = corral_invalidate(c, purge->key, purge->len, error);
  return status != CORRAL_OK ? status : corral_invalidate_tag(c, variants, crl_ngx_vary_tag(purge->key, purge->len, variants), error);
}

static void on_cleanup(void *data) {
  crl_ngx_purge *purge = data;
  purge->r = NULL;
  purge->cleanup = NULL;
  if (purge->call != NULL) corral_call_cancel(purge->call);
  purge->call = NULL;
}

static ngx_int_t answer(ngx_http_request_t *r, int status, const corral_error *error) {
  ngx_str_t text = ngx_string("purged\n");
  if (status == CORRAL_OK) return crl_ngx_send_text(r, NGX_HTTP_OK, "text/plain", &text);
  ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral_purge: %s", error->text[0] != '\0' ? error->text : corral_status_text(status));
  return status == CORRAL_EUNSUPPORTED ? NGX_HTTP_NOT_IMPLEMENTED : NGX_HTTP_SERVICE_UNAVAILABLE;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_purge *purge = arg;
  ngx_http_request_t *r = purge->r;
  purge->call = NULL;
  corral_value_unref(value);
  if (r == NULL) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, answer(r, status, error));
  ngx_http_run_posted_requests(connection);
}

static void on_gone(void *arg) {
  crl_ngx_purge *purge = arg;
  crl_ngx_zone *zone = purge->zone;
  ngx_http_request_t *r = purge->r;
  if (purge->cleanup != NULL) purge->cleanup->handler = NULL;
  free(purge);
  crl_ngx_zone_release(zone);
  if (r == NULL || zone->is_closing) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

static crl_ngx_purge *purge_new(ngx_http_request_t *r, const crl_ngx_conf *conf, const ngx_str_t *key) {
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  crl_ngx_purge *purge = cleanup != NULL ? calloc(1, sizeof *purge + key->len) : NULL;
  if (purge == NULL) return NULL;
  purge->r = r;
  purge->zone = conf->purge;
  purge->is_tag = conf->purge_tag != 0;
  purge->len = key->len;
  ngx_memcpy(purge->key, key->data, key->len);
  purge->cleanup = cleanup;
  return purge;
}

ngx_int_t crl_ngx_purge_handler(ngx_http_request_t *r) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  ngx_str_t key;
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  if (ngx_http_complex_value(r, conf->purge_key, &key) != NGX_OK) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  if (key.len == 0 || key.len > (conf->purge_tag ? 200U : 65536U)) return NGX_HTTP_BAD_REQUEST;
  if (conf->purge->loop == NULL) return NGX_HTTP_SERVICE_UNAVAILABLE;
  crl_ngx_purge *purge = purge_new(r, conf, &key);
  if (purge == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  int status = corral_run_async(conf->purge->loop, work, CORRAL_ASYNC(.done = on_done, .gone = on_gone, .arg = purge), &purge->call);
  if (status != CORRAL_OK) {
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral_purge: %s", corral_status_text(status));
    free(purge);
    return NGX_HTTP_SERVICE_UNAVAILABLE;
  }
  purge->cleanup->data = purge;
  purge->cleanup->handler = on_cleanup;
  crl_ngx_zone_hold(conf->purge);
  r->main->count += 2; /* one until `done`, which finalizes, one until `gone` */
  return NGX_DONE;
}
