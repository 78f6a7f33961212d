/* variables.c: $corral_status, $corral_age, $corral_wait, and the Cache-Status header (RFC
 * 9211). */
#include "module.h"

const char *crl_ngx_outcome_name(crl_ngx_outcome outcome) {
  static const char *const names[CRL_NGX_OUTCOMES] = {
      "-",      "HIT",  "STALE",   "UPDATING",    "MISS", "COLLAPSED",
      "BYPASS", "PASS", "EXPIRED", "REVALIDATED", "ERROR"};
  return names[outcome];
}

static ngx_int_t set_text(ngx_http_variable_value_t *v, const char *text) {
  v->data = (u_char *)text;
  v->len = (unsigned)ngx_strlen(text) & 0xfffffff;
  v->valid = 1;
  v->no_cacheable = 0;
  v->not_found = 0;
  return NGX_OK;
}

static ngx_int_t set_number(ngx_http_request_t *r, ngx_http_variable_value_t *v, int64_t number) {
  u_char *text = ngx_pnalloc(r->pool, NGX_INT64_LEN + 1);
  if (text == NULL) return NGX_ERROR;
  *ngx_sprintf(text, "%L", number) = '\0';
  return set_text(v, (char *)text);
}

static ngx_int_t not_found(ngx_http_variable_value_t *v) {
  v->not_found = 1;
  return NGX_OK;
}

static ngx_int_t get_status(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  (void)data;
  return ctx != NULL && ctx->outcome != CRL_NGX_NONE
             ? set_text(v, crl_ngx_outcome_name(ctx->outcome))
             : not_found(v);
}

static ngx_int_t get_age(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  (void)data;
  return ctx != NULL && ctx->is_answered ? set_number(r, v, ctx->age_ms / 1000) : not_found(v);
}

static ngx_int_t get_wait(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  (void)data;
  return ctx != NULL ? set_number(r, v, (int64_t)ctx->waited) : not_found(v);
}

static ngx_int_t get_key(ngx_http_request_t *r, ngx_http_variable_value_t *v, uintptr_t data) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  (void)data;
  if (ctx == NULL || ctx->key.data == NULL) return not_found(v);
  v->data = ctx->key.data;
  v->len = (unsigned)ctx->key.len & 0xfffffff;
  v->valid = 1;
  v->no_cacheable = v->not_found = 0;
  return NGX_OK;
}

ngx_int_t crl_ngx_variables_add(ngx_conf_t *cf) {
  static const struct {
    ngx_str_t name;
    ngx_http_get_variable_pt get;
  } rows[] = {{ngx_string("corral_status"), get_status},
              {ngx_string("corral_age"), get_age},
              {ngx_string("corral_wait"), get_wait},
              {ngx_string("corral_key"), get_key}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    ngx_str_t name = rows[i].name;
    ngx_http_variable_t *variable = ngx_http_add_variable(cf, &name, NGX_HTTP_VAR_NOCACHEABLE);
    if (variable == NULL) return NGX_ERROR;
    variable->get_handler = rows[i].get;
  }
  return NGX_OK;
}

/* ---- Cache-Status -------------------------------------------------------------------------- */

static ngx_uint_t is_token(const u_char *text, size_t len) {
  if (len == 0 || !((text[0] >= 'a' && text[0] <= 'z') || (text[0] >= 'A' && text[0] <= 'Z')))
    return 0;
  for (size_t i = 0; i < len; i++)
    if (!((text[i] >= 'a' && text[i] <= 'z') || (text[i] >= 'A' && text[i] <= 'Z') ||
          (text[i] >= '0' && text[i] <= '9') || strchr("_-.:", text[i]) != NULL))
      return 0;
  return 1;
}

static u_char *put_name(u_char *at, u_char *end, const ngx_str_t *name) {
  return ngx_slprintf(at, end, is_token(name->data, name->len) ? "%V" : "\"%V\"", name);
}

/* The rest of the fresh life in seconds; below zero for a stale page. */
static int64_t ttl_of(const crl_ngx_ctx *ctx) {
  int64_t left_ms = ctx->ttl_ms - ctx->age_ms;
  return left_ms >= 0 ? left_ms / 1000 : -((-left_ms + 999) / 1000);
}

/* The reason for going to the origin. */
static const char *forward_of(const crl_ngx_ctx *ctx) {
  if (ctx->outcome == CRL_NGX_EXPIRED || ctx->outcome == CRL_NGX_REVALIDATED) return "stale";
  if (ctx->is_refresh) return "request";
  if (ctx->outcome == CRL_NGX_BYPASS)
    return ctx->detail != NULL && ngx_strcmp(ctx->detail, "method") == 0 ? "method" : "bypass";
  return ctx->is_variant ? "vary-miss" : "miss";
}

static u_char *put_forward(u_char *at, u_char *end, ngx_http_request_t *r, const crl_ngx_ctx *ctx) {
  ngx_uint_t is_own = !ctx->is_answered && ctx->outcome != CRL_NGX_ERROR;
  ngx_uint_t status = is_own ? r->headers_out.status : ctx->fwd_status;
  at = ngx_slprintf(at, end, "; fwd=%s", forward_of(ctx));
  if (status > 0 && ctx->outcome != CRL_NGX_COLLAPSED)
    at = ngx_slprintf(at, end, "; fwd-status=%ui", status);
  if (ctx->is_stored && ctx->is_answered)
    at = ngx_slprintf(at, end, "; stored; ttl=%L", ttl_of(ctx));
  if (ctx->outcome == CRL_NGX_COLLAPSED) at = ngx_slprintf(at, end, "; collapsed");
  return at;
}

ngx_int_t crl_ngx_cache_status(ngx_http_request_t *r, crl_ngx_ctx *ctx) {
  const ngx_str_t *name = &ctx->conf->cache_status;
  enum { ROOM = 256 };
  if (name->len == 0 || ctx->outcome == CRL_NGX_NONE) return NGX_OK;
  if (name->len == 2 && ngx_strncmp(name->data, "on", 2) == 0) name = &ctx->zone->name;
  ngx_table_elt_t *line = ngx_list_push(&r->headers_out.headers);
  u_char *text = ngx_pnalloc(r->pool, ROOM + name->len), *end = text + ROOM + name->len;
  if (line == NULL) return NGX_ERROR;
  ngx_memzero(line, sizeof *line);
  if (text == NULL) return NGX_ERROR;
  u_char *at = put_name(text, end, name);
  if (ctx->outcome == CRL_NGX_HIT || ctx->outcome == CRL_NGX_STALE ||
      ctx->outcome == CRL_NGX_UPDATING)
    at = ngx_slprintf(at, end, "; hit; ttl=%L", ttl_of(ctx));
  else
    at = put_forward(at, end, r, ctx);
  if (ctx->outcome == CRL_NGX_STALE) at = ngx_slprintf(at, end, "; detail=stale-if-error");
  if (ctx->detail != NULL && ctx->outcome != CRL_NGX_BYPASS) {
    ngx_str_t detail = {.data = (u_char *)ctx->detail, .len = ngx_strlen(ctx->detail)};
    at = put_name(ngx_slprintf(at, end, "; detail="), end, &detail);
  }
  line->hash = 1;
  ngx_str_set(&line->key, "Cache-Status");
  line->value.data = text;
  line->value.len = (size_t)(at - text);
  return NGX_OK;
}
