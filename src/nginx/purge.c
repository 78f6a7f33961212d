/* purge.c: the handler of corral_purge: invalidates one key with all its variants, or all values
 * with a tag, for permitted clients (corral_purge_from). Also removes a record that can't be sent.
 *
 * A thread of the library asks the store. The request waits and is answered after that: what is
 * reported as purged is gone. */
#include "module.h"

#include <stdlib.h>

/* ---- permission ---------------------------------------------------------------------------- */

static ngx_uint_t is_loopback(const struct sockaddr *at) {
  if (at->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
#if (NGX_HAVE_INET6)
  if (at->sa_family == AF_INET6) {
    const struct in6_addr *address = &((const struct sockaddr_in6 *)at)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
  }
#endif
  return 0;
}

/* The first header field by which a proxy marks another client's request; NULL: none. */
static const ngx_str_t *proxy_field(ngx_http_request_t *r) {
  static const char *const names[] = {"via", "forwarded", "x-forwarded-for", "x-real-ip"};
  for (ngx_list_part_t *part = &r->headers_in.headers.part; part != NULL; part = part->next) {
    ngx_table_elt_t *line = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      for (size_t n = 0; n < sizeof names / sizeof names[0]; n++)
        if (line[i].key.len == ngx_strlen(names[n]) &&
            ngx_strncasecmp(line[i].key.data, (u_char *)names[n], line[i].key.len) == 0)
          return &line[i].key;
  }
  return NULL;
}

/* A proxy on this host is local itself, but hands on requests of any client. */
static ngx_uint_t is_local(ngx_http_request_t *r) {
  static const ngx_str_t nothing = ngx_null_string;
  const ngx_str_t *field = proxy_field(r), *what = &nothing;
  const char *why;
  if (r->connection->sockaddr->sa_family == AF_UNIX) {
    why = "a unix socket doesn't tell who asks";
  } else if (!is_loopback(r->connection->sockaddr)) {
    why = "the client isn't on this host";
  } else if (r->connection->proxy_protocol != NULL) {
    why = "it came through a proxy, by the PROXY protocol";
  } else if (field != NULL) {
    why = "it came through a proxy, which sent ";
    what = field;
  } else {
    return 1;
  }
  ngx_log_error(
      NGX_LOG_ERR, r->connection->log, 0,
      "corral_purge: refused: %s%V; \"corral_purge_from any\" in this location accepts it", why,
      what);
  return 0;
}

static ngx_uint_t is_purge(const ngx_http_request_t *r) {
  return r->method == NGX_HTTP_POST ||
         (r->method_name.len == 5 && ngx_strncmp(r->method_name.data, "PURGE", 5) == 0);
}

static ngx_int_t refuse_method(ngx_http_request_t *r) {
  ngx_table_elt_t *line = ngx_list_push(&r->headers_out.headers);
  if (line == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  ngx_memzero(line, sizeof *line);
  line->hash = 1;
  ngx_str_set(&line->key, "Allow");
  ngx_str_set(&line->value, "POST, PURGE");
  return NGX_HTTP_NOT_ALLOWED;
}

/* ---- the call ------------------------------------------------------------------------------ */

typedef struct crl_ngx_purge {
  ngx_http_request_t *r; /* NULL: the request is dead */
  crl_ngx_zone *zone;
  corral_async_call *call;
  ngx_http_cleanup_t *cleanup;
  crl_ngx_ctx *ctx; /* NULL: a purge; else the request that goes on after its record was removed */
  int is_tag, is_variant;
  unsigned char variant[2 * CRL_NGX_RECORD_HASH]; /* of the dropped record, if is_variant */
  size_t len;
  unsigned char key[];
} crl_ngx_purge;

int crl_ngx_invalidate_page(corral *c, const void *key, size_t len, corral_error *error) {
  unsigned char variants[CRL_NGX_VARY_TAG];
  int status = corral_invalidate(c, key, len, CORRAL_CALL(.error = error));
  return status != CORRAL_OK
             ? status
             : corral_invalidate_tag(c, variants, crl_ngx_vary_tag(key, len, variants), error);
}

static int work(corral *c, void *arg, corral_error *error) {
  crl_ngx_purge *purge = arg;
  if (purge->is_variant)
    return corral_invalidate(c, purge->key, purge->len,
                             CORRAL_CALL(.variant = purge->variant,
                                         .variant_len = sizeof purge->variant, .error = error));
  if (purge->is_tag) return corral_invalidate_tag(c, purge->key, purge->len, error);
  return purge->ctx != NULL
             ? corral_invalidate(c, purge->key, purge->len, CORRAL_CALL(.error = error))
             : crl_ngx_invalidate_page(c, purge->key, purge->len, error);
}

static void on_cleanup(void *data) {
  crl_ngx_purge *purge = data;
  purge->r = NULL;
  purge->cleanup = NULL;
  if (purge->call != NULL) corral_async_call_cancel(purge->call);
  purge->call = NULL;
}

static ngx_int_t answer(ngx_http_request_t *r, int status, const corral_error *error) {
  ngx_str_t text = ngx_string("purged\n");
  if (status == CORRAL_OK) return crl_ngx_send_text(r, NGX_HTTP_OK, "text/plain", &text);
  ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral_purge: %s",
                error->text[0] != '\0' ? error->text : corral_status_text(status));
  return status == CORRAL_EUNSUPPORTED ? NGX_HTTP_NOT_IMPLEMENTED : NGX_HTTP_SERVICE_UNAVAILABLE;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_purge *purge = arg;
  ngx_http_request_t *r = purge->r;
  purge->call = NULL;
  crl_ngx_zone_purged(purge->zone);
  corral_value_unref(value);
  if (r == NULL) return;
  ngx_connection_t *connection = r->connection;
  if (purge->ctx != NULL)
    crl_ngx_dropped(purge->ctx, status);
  else
    ngx_http_finalize_request(r, answer(r, status, error));
  ngx_http_run_posted_requests(connection);
}

static void on_gone(void *arg) {
  crl_ngx_purge *purge = arg;
  crl_ngx_zone *zone = purge->zone;
  ngx_http_request_t *r = purge->r;
  crl_ngx_zone_purged(zone);
  if (purge->cleanup != NULL) purge->cleanup->handler = NULL;
  free(purge);
  crl_ngx_zone_release(zone);
  if (r == NULL || zone->is_closing) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

static crl_ngx_purge *purge_new(ngx_http_request_t *r, crl_ngx_zone *zone, const ngx_str_t *key) {
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  crl_ngx_purge *purge = cleanup != NULL ? calloc(1, sizeof *purge + key->len) : NULL;
  if (purge == NULL) return NULL;
  purge->r = r;
  purge->zone = zone;
  purge->len = key->len;
  ngx_memcpy(purge->key, key->data, key->len);
  purge->cleanup = cleanup;
  return purge;
}

/* Takes `purge`; the request is held until `gone`. */
static int begin(crl_ngx_purge *purge) {
  ngx_http_request_t *r = purge->r;
  int status = corral_loop_run(purge->zone->loop, work,
                               CORRAL_ASYNC(.done = on_done, .gone = on_gone, .arg = purge),
                               &purge->call, NULL);
  if (status != CORRAL_OK) {
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral: an invalidation can't begin: %s",
                  corral_status_text(status));
    free(purge);
    return status;
  }
  purge->cleanup->data = purge;
  purge->cleanup->handler = on_cleanup;
  crl_ngx_zone_hold(purge->zone);
  r->main->count++;
  return CORRAL_OK;
}

crl_ngx_step crl_ngx_drop_begin(crl_ngx_ctx *ctx) {
  crl_ngx_purge *purge =
      crl_ngx_suspend(ctx->r) == 0 ? purge_new(ctx->r, ctx->zone, &ctx->key) : NULL;
  ctx->outcome = CRL_NGX_PASS;
  ctx->detail = "unreadable";
  if (purge == NULL) return CRL_NGX_OWN_WAY;
  purge->ctx = ctx;
  purge->is_variant = ctx->is_variant != 0;
  if (purge->is_variant) ngx_memcpy(purge->variant, ctx->variant, sizeof purge->variant);
  return begin(purge) == CORRAL_OK ? CRL_NGX_WAITS : CRL_NGX_OWN_WAY;
}

ngx_int_t crl_ngx_purge_handler(ngx_http_request_t *r) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  ngx_str_t key;
  if (!is_purge(r)) return refuse_method(r);
  if (conf->purge_from == CRL_NGX_FROM_LOCAL && !is_local(r)) return NGX_HTTP_FORBIDDEN;
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  if (ngx_http_complex_value(r, conf->purge_key, &key) != NGX_OK)
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  if (key.len == 0 || key.len > (size_t)(conf->purge_tag ? CORRAL_TAG_MAX : CORRAL_KEY_MAX))
    return NGX_HTTP_BAD_REQUEST;
  if (conf->purge->loop == NULL) return NGX_HTTP_SERVICE_UNAVAILABLE;
  crl_ngx_purge *purge = purge_new(r, conf->purge, &key);
  if (purge == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  purge->is_tag = conf->purge_tag != 0;
  if (begin(purge) != CORRAL_OK) return NGX_HTTP_SERVICE_UNAVAILABLE;
  r->main->count++; /* until `done`, which finalizes */
  return NGX_DONE;
}
