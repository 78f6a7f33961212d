/* unsafe.c: invalidates what an unsafe method has changed (RFC 9111, 4.4): the page of this key
 * with all its variants, and those that Location and Content-Location of the same origin name.
 *
 * A request with such a method goes its own way. When its answer comes and is no error, two filters
 * hold it back until the store has invalidated the pages: a client that has seen the answer never
 * gets an older page. A store that can't be asked delays the answer, but doesn't fail it. */
#include "module.h"

#include <stdlib.h>

enum { PAGES = 3, BUFFERED = 0x08 /* a bit of r->buffered that no other module uses */ };

struct crl_ngx_hold {
  ngx_http_request_t *r; /* NULL: the request is dead */
  crl_ngx_zone *zone;
  corral_async_call *call; /* NULL: the answer isn't held any more */
  ngx_http_cleanup_t *cleanup;
  ngx_chain_t *body, **tail; /* what is held back */
  ngx_str_t keys[PAGES];     /* in one allocation */
  size_t count;
};

static ngx_http_output_header_filter_pt next_header_filter;
static ngx_http_output_body_filter_pt next_body_filter;

/* RFC 9110, 9.2.1, and the safe methods of the registry that nginx has no number for. */
int crl_ngx_is_unsafe(const ngx_http_request_t *r) {
  static const char *const safe[] = {"REPORT", "SEARCH", "QUERY", "PRI"};
  for (size_t i = 0; i < sizeof safe / sizeof safe[0]; i++)
    if (r->method_name.len == ngx_strlen(safe[i]) &&
        ngx_strncmp(r->method_name.data, safe[i], r->method_name.len) == 0)
      return 0;
  return (r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD | NGX_HTTP_OPTIONS | NGX_HTTP_TRACE |
                       NGX_HTTP_PROPFIND)) == 0;
}

/* ---- the pages ----------------------------------------------------------------------------- */

/* The URI of a Location, behind scheme and authority, if those are the request's own. */
static int own_uri(ngx_http_request_t *r, ngx_str_t uri, ngx_str_t *ret) {
  u_char *end = uri.data + uri.len, *colon = ngx_strlchr(uri.data, end, ':');
  ngx_str_t scheme = ngx_string("http");
  *ret = uri;
#if (NGX_HTTP_SSL)
  if (r->connection->ssl != NULL) {
    ngx_str_set(&scheme, "https");
  }
#endif
  if (colon == NULL || end - colon < 3 || colon[1] != '/' || colon[2] != '/')
    return uri.len < 2 || uri.data[0] != '/' || uri.data[1] != '/';
  u_char *host = colon + 3, *path = ngx_strlchr(host, end, '/');
  ngx_table_elt_t *own = r->headers_in.host;
  if (path == NULL || own == NULL || (size_t)(colon - uri.data) != scheme.len ||
      ngx_strncasecmp(uri.data, scheme.data, scheme.len) != 0 ||
      (size_t)(path - host) != own->value.len ||
      ngx_strncasecmp(host, own->value.data, own->value.len) != 0)
    return 0;
  ret->data = path;
  ret->len = (size_t)(end - path);
  return 1;
}

/* Makes the default key of the page that a Location names, relative to the request's URI. With a
 * corral_key nobody knows the key of another page. */
static void add_page(crl_ngx_hold *hold, crl_ngx_ctx *ctx, const ngx_str_t *location) {
  ngx_http_request_t *r = ctx->r;
  ngx_str_t uri, *own = &r->unparsed_uri, *key = &hold->keys[hold->count];
  if (ctx->conf->key != NULL || location->len == 0 || location->data[0] == '.' ||
      !own_uri(r, *location, &uri) || ctx->key.len < own->len)
    return;
  u_char *fragment = ngx_strlchr(uri.data, uri.data + uri.len, '#');
  if (fragment != NULL) uri.len = (size_t)(fragment - uri.data);
  size_t base = ctx->key.len - own->len; /* scheme and host */
  if (uri.len > 0 && uri.data[0] != '/') {
    u_char *query = ngx_strlchr(own->data, own->data + own->len, '?');
    size_t path = query != NULL ? (size_t)(query - own->data) : own->len;
    while (path > 0 && own->data[path - 1] != '/') path--;
    base += path;
  }
  key->data = ngx_pnalloc(r->pool, base + uri.len);
  if (key->data == NULL) return;
  key->len = (size_t)(ngx_cpymem(ngx_cpymem(key->data, ctx->key.data, base), uri.data, uri.len) -
                      key->data);
  if (key->len <= CORRAL_KEY_MAX) hold->count++;
}

static ngx_uint_t is_location(const ngx_table_elt_t *line) {
  const corral_page_field field = {.name = line->key.data, .name_len = line->key.len};
  return line->hash != 0 &&
         (crl_ngx_field_is(&field, "location") || crl_ngx_field_is(&field, "content-location"));
}

static void add_pages(crl_ngx_hold *hold, crl_ngx_ctx *ctx) {
  hold->keys[hold->count++] = ctx->key;
  for (ngx_list_part_t *part = &ctx->r->headers_out.headers.part; part != NULL; part = part->next) {
    ngx_table_elt_t *line = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      if (hold->count < PAGES && is_location(&line[i])) add_page(hold, ctx, &line[i].value);
  }
}

/* Copies the keys from the request's pool: the request may end first. */
static int own_keys(crl_ngx_hold *hold) {
  size_t room = 0;
  for (size_t i = 0; i < hold->count; i++) room += hold->keys[i].len;
  u_char *at = malloc(room);
  for (size_t i = 0; at != NULL && i < hold->count; i++) {
    u_char *next = ngx_cpymem(at, hold->keys[i].data, hold->keys[i].len);
    hold->keys[i].data = at;
    at = next;
  }
  return at != NULL;
}

/* ---- the call ------------------------------------------------------------------------------ */

static int work(corral *c, void *arg, corral_error *error) {
  crl_ngx_hold *hold = arg;
  int status = CORRAL_OK;
  for (size_t i = 0; i < hold->count && status == CORRAL_OK; i++)
    status = corral_page_invalidate(c, hold->keys[i].data, hold->keys[i].len,
                                    CORRAL_CALL(.error = error));
  return status;
}

static void on_cleanup(void *data) {
  crl_ngx_hold *hold = data;
  hold->r = NULL;
  hold->cleanup = NULL;
  if (hold->call != NULL) corral_async_call_cancel(hold->call);
  hold->call = NULL;
}

/* Sends what was held back; the rest comes by nginx's own handlers. */
static void let_go(ngx_http_request_t *r, ngx_chain_t *body) {
  r->buffered &= ~(unsigned)BUFFERED & 0xf;
  ngx_int_t rc = next_header_filter(r);
  if (rc == NGX_OK && body != NULL && !r->header_only) rc = next_body_filter(r, body);
  if (rc == NGX_ERROR) r->connection->error = 1;
  ngx_post_event(r->connection->write, &ngx_posted_events);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_hold *hold = arg;
  ngx_http_request_t *r = hold->r;
  hold->call = NULL;
  corral_value_unref(value);
  if (r == NULL) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_set_log_request(connection->log, r);
  if (status != CORRAL_OK)
    ngx_log_error(NGX_LOG_WARN, connection->log, 0,
                  "corral: an unsafe method's page isn't invalidated: %s",
                  error->text[0] != '\0' ? error->text : corral_status_text(status));
  crl_ngx_zone_purged(hold->zone);
  let_go(r, hold->body);
  ngx_http_run_posted_requests(connection);
}

static void on_gone(void *arg) {
  crl_ngx_hold *hold = arg;
  crl_ngx_zone *zone = hold->zone;
  ngx_http_request_t *r = hold->r;
  if (hold->cleanup != NULL) hold->cleanup->handler = NULL;
  crl_ngx_zone_purged(zone);
  if (r != NULL) crl_ngx_ctx_of(r)->hold = NULL;
  free(hold->keys[0].data);
  free(hold);
  crl_ngx_zone_release(zone);
  if (r == NULL || zone->is_closing) return;
  ngx_connection_t *connection = r->connection;
  ngx_http_finalize_request(r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

/* 0; -1: the answer isn't held back. */
static int begin(crl_ngx_ctx *ctx) {
  ngx_http_request_t *r = ctx->r;
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  crl_ngx_hold *hold = cleanup != NULL ? calloc(1, sizeof *hold) : NULL;
  if (hold == NULL) return -1;
  hold->r = r;
  hold->zone = ctx->zone;
  hold->cleanup = cleanup;
  hold->tail = &hold->body;
  add_pages(hold, ctx);
  int status = own_keys(hold) ? CORRAL_OK : CORRAL_ENOMEM;
  if (status == CORRAL_OK &&
      (status = corral_loop_run(ctx->zone->loop, work,
                                CORRAL_ASYNC(.done = on_done, .gone = on_gone, .arg = hold),
                                &hold->call, NULL)) != CORRAL_OK)
    free(hold->keys[0].data);
  if (status != CORRAL_OK) {
    ngx_log_error(NGX_LOG_ERR, r->connection->log, 0, "corral: an invalidation can't begin: %s",
                  corral_status_text(status));
    free(hold);
    return -1;
  }
  cleanup->data = hold;
  cleanup->handler = on_cleanup;
  ctx->hold = hold;
  crl_ngx_zone_hold(ctx->zone);
  r->main->count++;
  r->buffered |= BUFFERED;
  return 0;
}

/* ---- filters ------------------------------------------------------------------------------- */

static ngx_int_t header_filter(ngx_http_request_t *r) {
  crl_ngx_ctx *ctx = r == r->main ? crl_ngx_ctx_of(r) : NULL;
  if (ctx == NULL || !ctx->is_unsafe || r->headers_out.status < NGX_HTTP_OK ||
      r->headers_out.status >= NGX_HTTP_BAD_REQUEST)
    return next_header_filter(r);
  ctx->is_unsafe = 0;
  return begin(ctx) == 0 ? NGX_OK : next_header_filter(r);
}

static ngx_int_t body_filter(ngx_http_request_t *r, ngx_chain_t *in) {
  crl_ngx_ctx *ctx = r == r->main ? crl_ngx_ctx_of(r) : NULL;
  crl_ngx_hold *hold = ctx != NULL ? ctx->hold : NULL;
  if (hold == NULL || hold->call == NULL) return next_body_filter(r, in);
  for (; in != NULL; in = in->next) {
    ngx_chain_t *link = ngx_alloc_chain_link(r->pool);
    if (link == NULL) return NGX_ERROR;
    link->buf = in->buf;
    link->next = NULL;
    *hold->tail = link;
    hold->tail = &link->next;
  }
  return NGX_AGAIN;
}

ngx_int_t crl_ngx_unsafe_init(ngx_conf_t *cf) {
  (void)cf;
  next_header_filter = ngx_http_top_header_filter;
  ngx_http_top_header_filter = header_filter;
  next_body_filter = ngx_http_top_body_filter;
  ngx_http_top_body_filter = body_filter;
  return NGX_OK;
}
