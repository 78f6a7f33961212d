/* renew.c: revalidation (RFC 9111, 4.3): the origin is asked whether the old page still holds, by
 * its ETag and Last-Modified. A 304 gives the old page a new life and updates its header; where
 * nothing in the header changed, the body isn't stored again. */
#include "module.h"

struct crl_ngx_renewal {
  corral_page old; /* in the fill, as long as that runs */
  const unsigned char *bytes;
  size_t size;
  corral_page_field etag, modified; /* without a value: none */
};

static corral_page_field find(const corral_page *record, const char *name) {
  corral_page_field field;
  for (size_t at = 0; corral_page_next(record, &at, &field);)
    if (crl_ngx_field_is(&field, name)) return field;
  return (corral_page_field){0};
}

/* True when the record answers this request. A validator of another variant would prove nothing: a
 * Last-Modified doesn't tell variants apart. */
static int is_selected(ngx_http_request_t *r, const corral_page *record) {
  unsigned char hash[CORRAL_PAGE_HASH];
  if (record->vary_len == 0) return 1;
  return crl_ngx_vary_hash(r, record->vary, record->vary_len, hash) == 0 &&
         ngx_memcmp(hash, record->hash, sizeof hash) == 0;
}

void crl_ngx_renew_begin(crl_ngx_ctx *ctx, corral_fill *fill) {
  crl_ngx_renewal made;
  made.bytes = corral_fill_old(fill, &made.size);
  ctx->renewal = NULL;
  if (ctx->conf->revalidate == 0 || made.bytes == NULL ||
      corral_page_read(made.bytes, made.size, &made.old) != 0 || !is_selected(ctx->r, &made.old))
    return;
  made.etag = find(&made.old, "etag");
  made.modified = find(&made.old, "last-modified");
  if (made.etag.value_len == 0 && made.modified.value_len == 0) return;
  ctx->renewal = ngx_palloc(ctx->r->pool, sizeof made);
  if (ctx->renewal != NULL) *ctx->renewal = made; /* without memory the whole page is asked for */
}

/* ---- the request --------------------------------------------------------------------------- */

static ngx_int_t add_condition(ngx_http_headers_in_t *in, const char *name,
                               const corral_page_field *field, ngx_pool_t *pool) {
  if (field->value_len == 0) return NGX_OK;
  ngx_table_elt_t *line = ngx_list_push(&in->headers);
  u_char *value = ngx_pnalloc(pool, field->value_len + 1),
         *lower = ngx_pstrdup(pool, &(ngx_str_t){.data = (u_char *)name, .len = ngx_strlen(name)});
  if (line == NULL || value == NULL || lower == NULL) return NGX_ERROR;
  ngx_memzero(line, sizeof *line);
  line->key.data = (u_char *)name;
  line->key.len = ngx_strlen(name);
  ngx_strlow(lower, lower, line->key.len);
  line->lowcase_key = lower;
  line->hash = ngx_hash_key(lower, line->key.len);
  *ngx_cpymem(value, field->value, field->value_len) = '\0';
  line->value.data = value;
  line->value.len = field->value_len;
  return NGX_OK;
}

ngx_int_t crl_ngx_renew_ask(const crl_ngx_ctx *ctx, ngx_http_headers_in_t *in, ngx_pool_t *pool) {
  const crl_ngx_renewal *renewal = ctx->renewal;
  if (renewal == NULL) return NGX_OK;
  return add_condition(in, "If-None-Match", &renewal->etag, pool) == NGX_OK
             ? add_condition(in, "If-Modified-Since", &renewal->modified, pool)
             : NGX_ERROR;
}

/* ---- the 304 ------------------------------------------------------------------------------- */

int crl_ngx_renew_is_answer(const crl_ngx_ctx *ctx, const crl_ngx_response *response) {
  return ctx->renewal != NULL && response->status == NGX_HTTP_NOT_MODIFIED;
}

/* The opaque part of an entity tag (RFC 9110, 8.8.3.2). */
static corral_page_field opaque(corral_page_field tag) {
  if (tag.value_len > 2 && ngx_strncmp(tag.value, "W/", 2) == 0) {
    tag.value += 2;
    tag.value_len -= 2;
  }
  return tag;
}

/* RFC 9111, 4.3.4: a 304 whose entity tag isn't the stored one updates nothing. */
static int is_other(const crl_ngx_renewal *renewal, const crl_ngx_response *response) {
  corral_page_field stored = opaque(renewal->etag);
  for (size_t i = 0; i < response->count; i++) {
    if (!crl_ngx_field_is(&response->fields[i], "etag")) continue;
    corral_page_field given = opaque(response->fields[i]);
    return stored.value_len > 0 && (given.value_len != stored.value_len ||
                                    ngx_memcmp(given.value, stored.value, given.value_len) != 0);
  }
  return 0;
}

int crl_ngx_renew_merge(const crl_ngx_ctx *ctx, crl_ngx_response *response, crl_http_rules *rules) {
  const crl_ngx_renewal *renewal = ctx->renewal;
  if (is_other(renewal, response)) return CRL_NGX_OTHER_PAGE;
  response->status = renewal->old.status;
  size_t kept, count = corral_page_merge(&renewal->old, response->fields, response->count, &kept);
  if (count == 0) return -1;
  response->count = count;
  for (size_t i = 0; i < kept; i++)
    crl_http_rules_field(rules, (const char *)response->fields[i].name,
                         response->fields[i].name_len, (const char *)response->fields[i].value,
                         response->fields[i].value_len);
  return 0;
}

size_t crl_ngx_renew_body(const crl_ngx_ctx *ctx, const unsigned char **ret) {
  *ret = ctx->renewal->old.body;
  return ctx->renewal->old.body_len;
}

int crl_ngx_has_stale(corral_fill *fill) {
  corral_page old;
  size_t size;
  const void *bytes = corral_fill_old(fill, &size);
  return corral_fill_has_stale(fill) && bytes != NULL && corral_page_read(bytes, size, &old) == 0 &&
         (old.sie_ms > 0 || old.swr_ms > 0);
}

int64_t crl_ngx_renew_ttl(const crl_ngx_ctx *ctx) {
  return ctx->renewal != NULL ? ctx->renewal->old.ttl_ms : 0;
}

int crl_ngx_renew_is_same(const crl_ngx_ctx *ctx, const corral_page *record,
                          const crl_ngx_response *response) {
  const crl_ngx_renewal *renewal = ctx->renewal;
  size_t head = renewal->size - renewal->old.body_len;
  if (corral_page_size(record, response->fields, response->count) != renewal->size) return 0;
  unsigned char *made = ngx_alloc(head, ctx->r->connection->log);
  if (made == NULL) return 0;
  (void)corral_page_write(made, record, response->fields, response->count);
  int is_same = corral_page_same_head(made, renewal->bytes, head);
  ngx_free(made);
  return is_same;
}
