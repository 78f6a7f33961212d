/* loop_guard.c: CDN-Loop (RFC 8586): the requests of the origin say which page they lead.
 *
 * An origin may be another nginx on the same store, with the same key for the page. It would wait
 * for the page that it is itself asked for. The mark is a hash of store, namespace, key and
 * variant: a tier with a store of its own waits and caches as ever. */
#include "module.h"
#include <ngx_sha1.h>

enum { MARK_HASH = 8, SHA = 20 };

/* "corral-" and a hash; returns the length, CRL_NGX_MARK at most. */
static size_t make_mark(const crl_ngx_ctx *ctx, u_char *mark) {
  char store[512];
  u_char hash[SHA];
  ngx_sha1_t sha;
  const char *space = ctx->zone->options.name_space;
  corral_uri_show(ctx->zone->options.store, store, sizeof store); /* without its password */
  ngx_sha1_init(&sha);
  ngx_sha1_update(&sha, store, ngx_strlen(store) + 1);
  if (space != NULL) ngx_sha1_update(&sha, space, ngx_strlen(space));
  ngx_sha1_update(&sha, "", 1);
  ngx_sha1_update(&sha, ctx->key.data, ctx->key.len);
  if (ctx->is_variant) ngx_sha1_update(&sha, ctx->variant, sizeof ctx->variant);
  ngx_sha1_final(hash, &sha);
  return (size_t)(ngx_hex_dump(ngx_cpymem(mark, "corral-", 7), hash, MARK_HASH) - mark);
}

static ngx_uint_t is_field(const ngx_table_elt_t *line) {
  return line->hash != 0 && line->key.len == sizeof "CDN-Loop" - 1 &&
         ngx_strncasecmp(line->key.data, (u_char *)"CDN-Loop", line->key.len) == 0;
}

ngx_uint_t crl_ngx_is_led_in_front(const crl_ngx_ctx *ctx) {
  u_char mark[CRL_NGX_MARK];
  size_t len = 0;
  for (ngx_list_part_t *part = &ctx->r->headers_in.headers.part; part != NULL; part = part->next) {
    ngx_table_elt_t *line = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      if (!is_field(&line[i])) continue;
      if (len == 0) len = make_mark(ctx, mark);
      if (ngx_strnstr(line[i].value.data, (char *)mark, line[i].value.len) != NULL) return 1;
    }
  }
  return 0;
}

ngx_int_t crl_ngx_mark_led(const crl_ngx_ctx *ctx, ngx_http_request_t *sr) {
  ngx_table_elt_t *line = ngx_list_push(&sr->headers_in.headers);
  u_char *mark = ngx_pnalloc(sr->pool, CRL_NGX_MARK);
  if (line == NULL) return NGX_ERROR;
  ngx_memzero(line, sizeof *line);
  if (mark == NULL) return NGX_ERROR;
  line->hash = 1;
  ngx_str_set(&line->key, "CDN-Loop");
  line->lowcase_key = (u_char *)"cdn-loop";
  line->value.data = mark;
  line->value.len = make_mark(ctx, mark);
  return NGX_OK;
}
