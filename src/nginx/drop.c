/* drop.c: removes the record of a request's key from the store before the request goes on, where it
 * can't be sent; or voids the rebuild of a page that the request is to replace (corral_refresh). A
 * thread of the library asks the store. */
#include "module.h"

#include <stdlib.h>

typedef struct crl_ngx_drop {
  crl_ngx_ctx *ctx; /* NULL: the request is dead */
  crl_ngx_zone *zone;
  corral_async_call *call;
  ngx_http_cleanup_t *cleanup;
  int is_variant, expires;
  unsigned char variant[2 * CORRAL_PAGE_HASH];
  size_t len;
  unsigned char key[];
} crl_ngx_drop;

static int work(corral *c, void *arg, corral_error *error) {
  crl_ngx_drop *drop = arg;
  corral_call *call = CORRAL_CALL(.error = error);
  if (drop->is_variant) {
    call->variant = drop->variant;
    call->variant_len = sizeof drop->variant;
  }
  return drop->expires ? corral_expire(c, drop->key, drop->len, call)
                       : corral_invalidate(c, drop->key, drop->len, call);
}

static void on_cleanup(void *data) {
  crl_ngx_drop *drop = data;
  drop->ctx = NULL;
  drop->cleanup = NULL;
  if (drop->call != NULL) corral_async_call_cancel(drop->call);
  drop->call = NULL;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_drop *drop = arg;
  drop->call = NULL;
  (void)error;
  crl_ngx_zone_purged(drop->zone);
  corral_value_unref(value);
  if (drop->ctx == NULL) return;
  ngx_connection_t *connection = drop->ctx->r->connection;
  crl_ngx_dropped(drop->ctx, status);
  ngx_http_run_posted_requests(connection);
}

static void on_gone(void *arg) {
  crl_ngx_drop *drop = arg;
  crl_ngx_zone *zone = drop->zone;
  ngx_http_request_t *r = drop->ctx != NULL ? drop->ctx->r : NULL;
  crl_ngx_zone_purged(zone);
  if (drop->cleanup != NULL) drop->cleanup->handler = NULL;
  free(drop);
  crl_ngx_zone_release(zone);
  if (r == NULL || zone->is_closing) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

static crl_ngx_drop *drop_new(crl_ngx_ctx *ctx) {
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(ctx->r, 0);
  crl_ngx_drop *drop = cleanup != NULL ? calloc(1, sizeof *drop + ctx->key.len) : NULL;
  if (drop == NULL) return NULL;
  drop->ctx = ctx;
  drop->zone = ctx->zone;
  drop->cleanup = cleanup;
  drop->is_variant = ctx->is_variant != 0;
  drop->expires = ctx->has_overtaken && !ctx->has_dropped;
  if (drop->is_variant) ngx_memcpy(drop->variant, ctx->variant, sizeof drop->variant);
  drop->len = ctx->key.len;
  ngx_memcpy(drop->key, ctx->key.data, ctx->key.len);
  return drop;
}

crl_ngx_step crl_ngx_drop_begin(crl_ngx_ctx *ctx) {
  crl_ngx_drop *drop = crl_ngx_suspend(ctx->r) == 0 ? drop_new(ctx) : NULL;
  if (drop == NULL) return CRL_NGX_OWN_WAY;
  int status = corral_loop_run(ctx->zone->loop, work,
                               CORRAL_ASYNC(.done = on_done, .gone = on_gone, .arg = drop),
                               &drop->call, NULL);
  if (status != CORRAL_OK) {
    ngx_log_error(NGX_LOG_ERR, ctx->r->connection->log, 0,
                  "corral: an invalidation can't begin: %s", corral_status_text(status));
    free(drop);
    return CRL_NGX_OWN_WAY;
  }
  drop->cleanup->data = drop;
  drop->cleanup->handler = on_cleanup;
  crl_ngx_zone_hold(ctx->zone);
  ctx->r->main->count++;
  return CRL_NGX_WAITS;
}
