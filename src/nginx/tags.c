/* tags.c: the tags of a page: words of the response fields that corral_tag names, the beginnings of
 * its key (corral_path_tags), and a tag that all variants of a key have in common.
 *
 * A page that can't have all its tags isn't stored: a purge must never miss it. */
#include "module.h"

/* ---- of a page ----------------------------------------------------------------------------- */

typedef struct crl_ngx_tags {
  size_t most, count, lens[CORRAL_TAGS_MAX + 1];
  unsigned char names[CORRAL_TAGS_MAX + 1][CORRAL_TAG_MAX];
} crl_ngx_tags;

/* Where the next tag is written to. */
static unsigned char *room(crl_ngx_tags *tags) { return tags->names[tags->count]; }

/* Takes the tag that was written to its room, unless it is there already. 0; -1: one too many. */
static int take(crl_ngx_tags *tags, size_t len) {
  for (size_t i = 0; i < tags->count; i++)
    if (tags->lens[i] == len && ngx_memcmp(tags->names[i], room(tags), len) == 0) return 0;
  if (tags->count == tags->most) return -1;
  tags->lens[tags->count++] = len;
  return 0;
}

static int add(crl_ngx_tags *tags, int kind, const void *text, size_t len) {
  return take(tags, corral_page_tag(kind, text, len, room(tags)));
}

static int add_words(crl_ngx_tags *tags, const ngx_str_t *value) {
  const char *list = (const char *)value->data;
  size_t len;
  for (size_t at = 0; (len = crl_http_word(list, value->len, &at)) > 0; at += len)
    if (add(tags, CORRAL_PAGE_OF_WORD, list + at, len) != 0) return -1;
  return 0;
}

static ngx_uint_t is_tag_field(const crl_ngx_conf *conf, const ngx_str_t *field) {
  const ngx_str_t *names = conf->tags->elts;
  for (ngx_uint_t i = 0; i < conf->tags->nelts; i++)
    if (field->len == names[i].len &&
        ngx_strncasecmp(field->data, names[i].data, names[i].len) == 0)
      return 1;
  return 0;
}

static int add_list(crl_ngx_tags *tags, const crl_ngx_conf *conf, ngx_list_part_t *part) {
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *fields = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      if (fields[i].hash != 0 && is_tag_field(conf, &fields[i].key) &&
          add_words(tags, &fields[i].value) != 0)
        return -1;
  }
  return 0;
}

/* An upstream's fields count as they came, also those that proxy_hide_header hides. Those of a page
 * that is renewed are in its response alone. */
static int add_fields(crl_ngx_tags *tags, const crl_ngx_conf *conf, ngx_http_request_t *sr,
                      const crl_ngx_response *response) {
  if (conf->tags == NULL || conf->tags->nelts == 0) return 0;
  if (sr->upstream != NULL && sr->upstream->headers_in.headers.part.nelts > 0 &&
      add_list(tags, conf, &sr->upstream->headers_in.headers.part) != 0)
    return -1;
  for (size_t i = 0; i < response->count; i++) {
    const corral_page_field *field = &response->fields[i];
    ngx_str_t name = {.data = (u_char *)field->name, .len = field->name_len};
    ngx_str_t value = {.data = (u_char *)field->value, .len = field->value_len};
    if (is_tag_field(conf, &name) && add_words(tags, &value) != 0) return -1;
  }
  return add_list(tags, conf, &sr->headers_out.headers.part);
}

static int add_prefixes(crl_ngx_tags *tags, const crl_ngx_ctx *ctx) {
  const char *key = (const char *)ctx->key.data;
  size_t end = 0;
  for (ngx_int_t i = 0; i < ctx->conf->path_tags; i++) {
    end = crl_http_beginning(key, ctx->key.len, end);
    if (end == 0) break;
    if (add(tags, CORRAL_PAGE_OF_PREFIX, key, end) != 0) return -1;
  }
  return 0;
}

/* One place is kept for the tag of variants, also on a page that is none. */
int crl_ngx_tags_add(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                     const crl_ngx_response *response) {
  crl_ngx_tags tags;
  tags.count = 0;
  tags.most = CORRAL_TAGS_MAX - !ctx->is_variant;
  if (ctx->is_variant) (void)add(&tags, CORRAL_PAGE_OF_KEY, ctx->key.data, ctx->key.len);
  if (add_prefixes(&tags, ctx) != 0 || add_fields(&tags, ctx->conf, sr, response) != 0) {
    ngx_log_error(NGX_LOG_WARN, ctx->r->connection->log, 0,
                  "corral_tag: more than %d tags: the page isn't stored, since a purge could miss "
                  "it: \"%V\"",
                  CORRAL_TAGS_MAX - 1, &ctx->key);
    return -1;
  }
  for (size_t i = 0; i < tags.count; i++)
    if (corral_fill_tag(fill, tags.names[i], tags.lens[i]) != CORRAL_OK) return -1;
  return 0;
}

/* ---- of a page that is renewed ------------------------------------------------------------- */

static int has_field(ngx_list_part_t *part, const ngx_str_t *name) {
  for (; part != NULL; part = part->next) {
    const ngx_table_elt_t *fields = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      if (fields[i].hash != 0 && fields[i].key.len == name->len &&
          ngx_strncasecmp(fields[i].key.data, name->data, name->len) == 0)
        return 1;
  }
  return 0;
}

/* True when records don't have this field, because proxy_hide_header hides it. */
static int is_hidden(ngx_http_request_t *sr, const ngx_str_t *name) {
  u_char *lower = ngx_pnalloc(sr->pool, name->len);
  if (lower == NULL) return 1;
  ngx_uint_t hash = ngx_hash_strlow(lower, name->data, name->len);
  return ngx_hash_find(&sr->upstream->conf->hide_headers_hash, hash, lower, name->len) != NULL;
}

/* A 304 need not have the fields of tags. Those of the old page are in its record, unless they are
 * hidden; the store has them in any case. */
int crl_ngx_tags_renew(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                       const crl_ngx_response *response, int is_same) {
  ngx_array_t *names = ctx->conf->tags;
  ngx_uint_t given = 0, unknown = 0;
  for (ngx_uint_t i = 0; names != NULL && sr->upstream != NULL && i < names->nelts; i++) {
    const ngx_str_t *name = (const ngx_str_t *)names->elts + i;
    if (has_field(&sr->upstream->headers_in.headers.part, name))
      given = 1;
    else if (is_hidden(sr, name))
      unknown = 1;
  }
  if (is_same && !given) return 0;
  return unknown ? CRL_NGX_UNKNOWN : crl_ngx_tags_add(ctx, fill, sr, response);
}
