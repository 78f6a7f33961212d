/* redirect.c: internal redirects of the origin's subrequest to another location: by try_files,
 * index, error_page, X-Accel-Redirect.
 *
 * A client's answer has to pass that location's own rules of access, and its filters. So the
 * leading request goes there itself, and its origin is asked from there. The page is stored with
 * its redirects, each as a field, which later requests follow one by one before they get the page.
 * An origin's own field of that name is never stored. */
#include "module.h"

typedef struct place {
  ngx_str_t uri, args; /* uri: or "@" and the name of a location */
} place;

int crl_ngx_redirect_is_field(const corral_page_field *field) {
  return crl_ngx_field_is(field, CORRAL_PAGE_LOCATION);
}

/* True when this server has that named location. */
static int is_known(ngx_http_request_t *r, const ngx_str_t *name) {
  const ngx_http_core_srv_conf_t *server = ngx_http_get_module_srv_conf(r, ngx_http_core_module);
  for (ngx_http_core_loc_conf_t **at = server->named_locations; at != NULL && *at != NULL; at++)
    if ((*at)->name.len == name->len && ngx_strncmp((*at)->name.data, name->data, name->len) == 0)
      return 1;
  return 0;
}

/* Adds a place to the request's route. -1 without memory. */
static int add_place(crl_ngx_ctx *ctx, const ngx_str_t *uri, const ngx_str_t *args) {
  if (ctx->route == NULL) ctx->route = ngx_array_create(ctx->r->pool, 1, sizeof(place));
  place *next = ctx->route != NULL ? ngx_array_push(ctx->route) : NULL;
  if (next == NULL) return -1;
  *next = (place){.uri = *uri, .args = *args};
  return 0;
}

/* ---- the leading request ------------------------------------------------------------------- */

/* The write handler of a request that is to be redirected to the last place of its route. */
static void on_redirect(ngx_http_request_t *r) {
  const ngx_array_t *route = crl_ngx_ctx_of(r)->route;
  const place *last = (place *)route->elts + route->nelts - 1;
  ngx_str_t uri = last->uri, args = last->args;
  if (uri.data[0] == '@')
    (void)ngx_http_named_location(r, &uri);
  else
    (void)ngx_http_internal_redirect(r, &uri, &args);
  ngx_http_finalize_request(r, NGX_DONE);
}

static ngx_int_t go(crl_ngx_ctx *ctx) {
  ctx->moves = ctx->route->nelts;
  ctx->r->write_event_handler = on_redirect;
  return ngx_http_post_request(ctx->r, NULL);
}

/* Gives the request what nginx keeps of the upstream's answer that redirected its subrequest: the
 * location that it goes to may answer by itself. -1 without memory. */
static int take_answer(crl_ngx_ctx *ctx, ngx_http_request_t *sr) {
  ctx->own_header = ngx_palloc(ctx->r->pool, sizeof *ctx->own_header);
  if (ctx->own_header == NULL) return -1;
  *ctx->own_header = ctx->r->headers_out;
  crl_ngx_copy_header(ctx->r, sr);
  crl_ngx_lend(ctx->r, sr);
  return 0;
}

/* Notes the target, of a subrequest for an origin that is redirected: handlers of the first phases
 * that such a request goes through. */
static ngx_int_t note(ngx_http_request_t *sr, const ngx_str_t *uri, const ngx_str_t *args) {
  crl_ngx_ctx *ctx = crl_ngx_redirected(sr);
  if (ctx == NULL) return NGX_DECLINED;
  ngx_http_request_t *r = ctx->r;
  if (add_place(ctx, uri, args) != 0) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  if (ctx->is_counted) return NGX_DECLINED;
  if (sr->upstream != NULL && take_answer(ctx, sr) != 0) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  r->err_status = sr->err_status;
  r->error_page = sr->error_page;
  crl_ngx_capture_suspend(ctx->capture);
  (void)go(ctx); /* without memory the request ends by its cleanup */
  return NGX_ERROR;
}

static ngx_int_t on_uri(ngx_http_request_t *r) {
  return r == r->main ? NGX_DECLINED : note(r, &r->uri, &r->args);
}

static ngx_int_t on_name(ngx_http_request_t *r) {
  static const ngx_str_t none = ngx_null_string;
  const ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
  return r == r->main || !core->named ? NGX_DECLINED : note(r, &core->name, &none);
}

/* Their handlers run in the reverse order: these run before those of nginx's rewrite module. */
ngx_int_t crl_ngx_redirect_init(ngx_http_core_main_conf_t *core) {
  ngx_http_handler_pt *uri = ngx_array_push(&core->phases[NGX_HTTP_SERVER_REWRITE_PHASE].handlers);
  ngx_http_handler_pt *name = ngx_array_push(&core->phases[NGX_HTTP_REWRITE_PHASE].handlers);
  if (uri == NULL || name == NULL) return NGX_ERROR;
  *uri = on_uri;
  *name = on_name;
  return NGX_OK;
}

void crl_ngx_redirect_go_on(crl_ngx_ctx *ctx, ngx_http_request_t *sr) {
  if (ctx->own_header == NULL) return;
  crl_ngx_copy_header(sr, ctx->r);
  sr->upstream_states = ctx->r->upstream_states;
  ctx->r->headers_out = *ctx->own_header;
  ctx->own_header = NULL;
}

/* ---- pages --------------------------------------------------------------------------------- */

/* 0; -1: it can't be stored. */
static int add_field(crl_ngx_response *response, const place *from, ngx_pool_t *pool) {
  const ngx_str_t *uri = &from->uri, *args = &from->args;
  u_char *text = ngx_pnalloc(pool, uri->len + 1 + args->len), *at = text;
  if (text == NULL || response->count == CORRAL_PAGE_FIELDS ||
      ngx_strlchr(uri->data, uri->data + uri->len, '?') != NULL)
    return -1;
  at = ngx_cpymem(at, uri->data, uri->len);
  if (args->len > 0) {
    *at++ = '?';
    at = ngx_cpymem(at, args->data, args->len);
  }
  response->fields[response->count++] =
      (corral_page_field){.name = (const u_char *)CORRAL_PAGE_LOCATION,
                          .name_len = sizeof CORRAL_PAGE_LOCATION - 1,
                          .value = text,
                          .value_len = (size_t)(at - text)};
  return 0;
}

int crl_ngx_redirect_add(const crl_ngx_ctx *ctx, const ngx_http_request_t *sr,
                         crl_ngx_response *response) {
  ngx_uint_t count = ctx->route != NULL ? ctx->route->nelts : 0;
  const place *places = count > 0 ? ctx->route->elts : NULL;
  if (count == 1 && sr->loc_conf == ctx->home) return 0;
  for (ngx_uint_t i = 0; i < count; i++)
    if (add_field(response, &places[i], sr->pool) != 0) return -1;
  return 0;
}

/* Finds the redirect that comes next for a request. */
static int find(const crl_ngx_ctx *ctx, const corral_page *record, corral_page_field *ret) {
  ngx_uint_t before = 0;
  for (size_t at = 0; corral_page_next(record, &at, ret);)
    if (crl_ngx_redirect_is_field(ret) && before++ == ctx->moves) return 1;
  return 0;
}

int crl_ngx_redirect_is_away(const crl_ngx_ctx *ctx, const corral_page *record) {
  corral_page_field field;
  return ctx->conf->pass == NULL && find(ctx, record, &field);
}

static void release(void *data) {
  crl_ngx_ctx *ctx = data;
  corral_value_unref(ctx->value); /* NULL is allowed */
  ctx->value = NULL;
}

/* Reads a field's value. 0; -1: this server has no such place, or there is no memory. */
static int read_place(ngx_http_request_t *r, const corral_page_field *field, place *ret) {
  ngx_str_t uri = {.data = (u_char *)(uintptr_t)field->value, .len = field->value_len}, args;
  ngx_str_null(&args);
  if (uri.len == 0 || (uri.data[0] == '@' ? !is_known(r, &uri) : uri.data[0] != '/')) return -1;
  if (uri.data[0] == '/') ngx_http_split_args(r, &uri, &args);
  *ret = (place){.uri = {.data = ngx_pstrdup(r->pool, &uri), .len = uri.len},
                 .args = {.data = ngx_pstrdup(r->pool, &args), .len = args.len}};
  return ret->uri.data != NULL && ret->args.data != NULL ? 0 : -1;
}

int crl_ngx_redirect_follow(crl_ngx_ctx *ctx, const corral_page *record, corral_value *value) {
  ngx_http_request_t *r = ctx->r;
  corral_page_field field;
  place next;
  if (!crl_ngx_redirect_is_away(ctx, record) || !find(ctx, record, &field)) return 0;
  ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, 0);
  if (cleanup == NULL || read_place(r, &field, &next) != 0 ||
      add_place(ctx, &next.uri, &next.args) != 0 || go(ctx) != NGX_OK)
    return -1;
  ctx->value = value;
  cleanup->data = ctx;
  cleanup->handler = release;
  return 1;
}
