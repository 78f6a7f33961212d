/* store.c: puts the captured answer into the fill: kept, for how long, for which requests; or not
 * to be kept. */
#include "module.h"

#include "http/rules.h"

/* ---- rules --------------------------------------------------------------------------------- */

static ngx_uint_t is_ignored(const crl_ngx_conf *conf, const crl_ngx_field *field) {
  static const struct {
    const char *name;
    ngx_uint_t bit;
  } rows[] = {{"x-accel-expires", CRL_NGX_IGNORE_ACCEL},
              {"expires", CRL_NGX_IGNORE_EXPIRES},
              {"cache-control", CRL_NGX_IGNORE_CONTROL},
              {"pragma", CRL_NGX_IGNORE_CONTROL},
              {"vary", CRL_NGX_IGNORE_VARY}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if ((conf->ignore & rows[i].bit) && crl_ngx_field_is(field, rows[i].name)) return 1;
  return 0;
}

static void read_list(crl_http_rules *rules, const crl_ngx_conf *conf, ngx_list_part_t *part,
                      ngx_uint_t only_cookies) {
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *from = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      crl_ngx_field field = {.name = from[i].key.data,
                             .name_len = from[i].key.len,
                             .value = from[i].value.data,
                             .value_len = from[i].value.len};
      if (from[i].hash == 0 || is_ignored(conf, &field) ||
          (only_cookies && !crl_ngx_field_is(&field, "set-cookie")))
        continue;
      crl_http_rules_field(rules, (const char *)field.name, field.name_len,
                           (const char *)field.value, field.value_len);
    }
  }
}

/* Reads an upstream's header as it came, if there is one: fields that proxy_hide_header hides from
 * clients count, too. */
static void read_rules(crl_http_rules *rules, const crl_ngx_conf *conf, ngx_http_request_t *sr) {
  ngx_time_t *now = ngx_timeofday();
  ngx_http_upstream_t *upstream = sr->upstream;
  ngx_uint_t has_raw = upstream != NULL && upstream->headers_in.headers.part.nelts > 0;
  crl_http_rules_begin(rules, (int64_t)now->sec * 1000 + (int64_t)now->msec);
  if (has_raw) read_list(rules, conf, &upstream->headers_in.headers.part, 0);
  read_list(rules, conf, &sr->headers_out.headers.part, has_raw);
}

static crl_http_verdict judge(const crl_http_rules *rules, crl_ngx_ctx *ctx) {
  return crl_http_rules_judge(
      rules, &(crl_http_terms){.is_authorized = ctx->r->headers_in.authorization != NULL,
                               .with_accel = 1,
                               .with_cookies = (ctx->conf->ignore & CRL_NGX_IGNORE_COOKIE) != 0});
}

int crl_ngx_store_is_named(const crl_ngx_conf *conf, ngx_uint_t status) {
  ngx_http_cache_valid_t *valid = conf->valid != NULL ? conf->valid->elts : NULL;
  for (ngx_uint_t i = 0; valid != NULL && i < conf->valid->nelts; i++)
    if (valid[i].status == status) return 1;
  return 0;
}

/* The fresh life in ms; 0: not to be kept, *why tells the reason. A response that lives by its
 * grace alone gets 1 ms, the shortest life. */
static int64_t fresh_life(const crl_http_verdict *verdict, const crl_ngx_conf *conf,
                          ngx_uint_t status, const char **why) {
  *why = verdict->why_not;
  if (!verdict->is_storable) return 0;
  *why = "status";
  if (status == NGX_HTTP_PARTIAL_CONTENT || status == NGX_HTTP_NOT_MODIFIED) return 0;
  *why = verdict->must_ask ? "no-cache" : "no lifetime";
  if (verdict->must_ask) return 0;
  if (verdict->fresh_ms > 0) return verdict->fresh_ms;
  if (verdict->fresh_ms == CRL_HTTP_NONE) return verdict->swr_ms > 0 ? 1 : 0;
  return conf->valid != NULL ? (int64_t)ngx_http_file_cache_valid(conf->valid, status) * 1000 : 0;
}

/* Copies all names but Accept-Encoding, which no request to an origin has. */
static size_t vary_names(const char *vary, unsigned char *names) {
  size_t len = 0;
  while (*vary != '\0') {
    size_t word = strcspn(vary, " ");
    if (word > 0 && !(word == 15 && ngx_strncmp(vary, "accept-encoding", 15) == 0)) {
      if (len > 0) names[len++] = ' ';
      ngx_memcpy(names + len, vary, word);
      len += word;
    }
    vary += word;
    if (*vary == ' ') vary++;
  }
  return len;
}

/* ---- the record ---------------------------------------------------------------------------- */

static void drop_cookies(crl_ngx_response *response) {
  size_t kept = 0;
  for (size_t i = 0; i < response->count; i++)
    if (!crl_ngx_field_is(&response->fields[i], "set-cookie"))
      response->fields[kept++] = response->fields[i];
  response->count = kept;
}

/* 0; -1: `to` is NULL, there was no room. */
static int write_record(unsigned char *to, const crl_ngx_record *record,
                        const crl_ngx_response *response) {
  if (to == NULL) return -1;
  to = crl_ngx_record_write(to, record, response->fields, response->count);
  for (ngx_chain_t *link = response->body; link != NULL; link = link->next)
    to = ngx_cpymem(to, link->buf->pos, (size_t)(link->buf->last - link->buf->pos));
  return 0;
}

static int64_t life(int64_t ms) {
  return ms == CRL_HTTP_NONE ? CORRAL_OFF : ngx_min(ms, CRL_NGX_LONGEST_MS);
}

static void set_lives(corral_fill *fill, const crl_http_verdict *verdict, crl_ngx_record *record,
                      const crl_ngx_conf *conf) {
  int64_t swr = life(verdict->swr_ms), sie = life(verdict->sie_ms);
  record->ttl_ms = life(record->ttl_ms);
  corral_fill_lives(fill, record->ttl_ms, swr, sie);
  record->swr_ms = swr == CORRAL_OFF ? 0 : swr > 0 ? swr : ngx_max(conf->policy.swr_ms, 0);
}

void crl_ngx_store_nothing(crl_ngx_ctx *ctx, corral_fill *fill, const char *detail) {
  ctx->is_pass = 1;
  ctx->detail = detail;
  corral_fill_pass(fill);
  (void)corral_fill_bytes(fill, "", 0);
  corral_fill_done(fill);
  crl_ngx_led(ctx, NGX_DECLINED);
}

/* The record for a leading request whose call is over, in the request's pool. 0, or a status. */
static ngx_int_t late_record(crl_ngx_ctx *ctx, size_t room, const crl_ngx_record *record,
                             const crl_ngx_response *response) {
  unsigned char *bytes = ngx_palloc(ctx->r->pool, room);
  if (write_record(bytes, record, response) != 0 ||
      crl_ngx_record_read(bytes, room, &ctx->late) != 0)
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  return 0;
}

static void put(crl_ngx_ctx *ctx, corral_fill *fill, const crl_ngx_record *record,
                const crl_ngx_response *response) {
  size_t room = crl_ngx_record_room(record, response->fields, response->count);
  if (room == 0 || write_record(corral_fill_reserve(fill, room), record, response) != 0) {
    crl_ngx_store_nothing(ctx, fill, "unkeepable");
    return;
  }
  corral_fill_done(fill);
  crl_ngx_led(ctx, ctx->is_late ? late_record(ctx, room, record, response) : 0);
}

static ngx_uint_t is_unwanted(ngx_http_request_t *sr, const crl_ngx_conf *conf) {
  return conf->no_store != NULL && ngx_http_test_predicates(sr, conf->no_store) == NGX_DECLINED;
}

void crl_ngx_store(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                   crl_ngx_response *response) {
  unsigned char names[CRL_HTTP_VARY];
  crl_http_rules rules;
  const char *why;
  read_rules(&rules, ctx->conf, sr);
  crl_http_verdict verdict = judge(&rules, ctx);
  crl_ngx_record record = {
      .status = (uint32_t)response->status, .body_len = response->body_len, .vary = names};
  record.age_s = (uint32_t)ngx_min(ngx_max(rules.age, 0), 0x7fffffff);
  record.ttl_ms = fresh_life(&verdict, ctx->conf, response->status, &why);
  if (record.ttl_ms > 0 && is_unwanted(sr, ctx->conf)) {
    record.ttl_ms = 0;
    why = "corral_no_store";
  }
  if (record.ttl_ms > 0 && crl_ngx_tags_add(ctx, fill, sr) != 0) {
    record.ttl_ms = 0;
    why = "tags";
  }
  ctx->fwd_status = response->status;
  if (record.ttl_ms > 0) {
    record.vary_len = vary_names(rules.vary, names);
    if (record.vary_len > 0) crl_ngx_vary_hash(ctx->r, names, record.vary_len, record.hash);
    drop_cookies(response);
    set_lives(fill, &verdict, &record, ctx->conf);
  } else {
    ctx->is_pass = 1;
    ctx->detail = why;
    corral_fill_pass(fill);
  }
  put(ctx, fill, &record, response);
}
