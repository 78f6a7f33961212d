/* store.c: judges an answer (kept, for how long, for which requests; or not to be kept), and puts
 * what is kept into the fill. */
#include "judge.h"

/* ---- rules --------------------------------------------------------------------------------- */

static ngx_uint_t is_ignored(const crl_ngx_conf *conf, const corral_page_field *field) {
  static const struct {
    const char *name;
    ngx_uint_t bit;
  } rows[] = {{"x-accel-expires", CRL_NGX_IGNORE_ACCEL}, {"expires", CRL_NGX_IGNORE_EXPIRES},
              {"cache-control", CRL_NGX_IGNORE_CONTROL}, {"cdn-cache-control", CRL_NGX_IGNORE_CDN},
              {"pragma", CRL_NGX_IGNORE_CONTROL},        {"vary", CRL_NGX_IGNORE_VARY}};
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if ((conf->ignore & rows[i].bit) && crl_ngx_field_is(field, rows[i].name)) return 1;
  return 0;
}

/* In an upstream's own list nginx (from 1.23 on) takes the hash from a field that came twice. */
static void read_list(crl_http_rules *rules, const crl_ngx_conf *conf, ngx_list_part_t *part,
                      ngx_uint_t is_raw, ngx_uint_t only_cookies) {
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *from = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      corral_page_field field = {.name = from[i].key.data,
                                 .name_len = from[i].key.len,
                                 .value = from[i].value.data,
                                 .value_len = from[i].value.len};
      if ((from[i].hash == 0 && !is_raw) || is_ignored(conf, &field) ||
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
  if (has_raw) read_list(rules, conf, &upstream->headers_in.headers.part, 1, 0);
  read_list(rules, conf, &sr->headers_out.headers.part, 0, has_raw);
}

static crl_http_verdict judge(const crl_http_rules *rules, crl_ngx_ctx *ctx, ngx_uint_t status) {
  return crl_http_rules_judge(
      rules, &(crl_http_terms){.is_authorized = ctx->r->headers_in.authorization != NULL,
                               .with_accel = 1,
                               .with_cdn = 1,
                               .with_cookies = (ctx->conf->ignore & CRL_NGX_IGNORE_COOKIE) != 0,
                               .status = (int)status,
                               .guess_pct = (int)ctx->conf->heuristic});
}

/* True when corral_valid names exactly this status. */
static int is_named(const crl_ngx_conf *conf, ngx_uint_t status) {
  ngx_http_cache_valid_t *valid = conf->valid != NULL ? conf->valid->elts : NULL;
  for (ngx_uint_t i = 0; valid != NULL && i < conf->valid->nelts; i++)
    if (valid[i].status == status) return 1;
  return 0;
}

int crl_ngx_store_is_answer(crl_ngx_ctx *ctx, ngx_http_request_t *sr, ngx_uint_t status) {
  crl_http_rules rules;
  if (is_named(ctx->conf, status)) return 1;
  if (ctx->had_old) return 0;
  read_rules(&rules, ctx->conf, sr);
  crl_http_verdict verdict = judge(&rules, ctx, status);
  return verdict.is_storable && (verdict.fresh_ms > 0 || verdict.guess_ms > 0);
}

/* A 5xx that lives by its own header alone: no longer than a failure is remembered. */
static int is_brief(const crl_ngx_conf *conf, ngx_uint_t status) {
  return status >= NGX_HTTP_INTERNAL_SERVER_ERROR && !is_named(conf, status);
}

/* The life of a response that says none: corral_valid's, else a guess. */
static int64_t unsaid_life(const crl_http_verdict *verdict, const crl_ngx_conf *conf,
                           ngx_uint_t status) {
  if (conf->valid != NULL) {
    int64_t life = (int64_t)ngx_http_file_cache_valid(conf->valid, status) * 1000;
    if (life > 0 || is_named(conf, status)) return life;
  }
  return verdict->guess_ms;
}

/* The fresh life in ms; 0: not to be kept, *why tells the reason. A response that lives by its
 * grace alone gets 1 ms, the shortest life. */
static int64_t fresh_life(const crl_http_verdict *verdict, const crl_ngx_conf *conf,
                          ngx_uint_t status, const char **why) {
  *why = verdict->why_not;
  if (!verdict->is_storable) return 0;
  *why = "status";
  if (status == NGX_HTTP_NOT_MODIFIED) return 0;
  if (status == NGX_HTTP_PARTIAL_CONTENT && !is_named(conf, status)) return 0; /* no slice */
  *why = verdict->must_ask ? "no-cache" : "no lifetime";
  if (verdict->must_ask) return 0;
  if (verdict->fresh_ms > 0) return verdict->fresh_ms;
  if (verdict->fresh_ms == CRL_HTTP_NONE) return verdict->swr_ms > 0 ? 1 : 0;
  return unsaid_life(verdict, conf, status);
}

/* ---- the record ---------------------------------------------------------------------------- */

static void drop_cookies(crl_ngx_response *response) {
  size_t kept = 0;
  for (size_t i = 0; i < response->count; i++)
    if (!crl_ngx_field_is(&response->fields[i], "set-cookie"))
      response->fields[kept++] = response->fields[i];
  response->count = kept;
}

static int64_t life(int64_t ms) {
  return ms == CRL_HTTP_NONE ? CORRAL_OFF : ngx_min(ms, CORRAL_PAGE_LONGEST_MS);
}

static ngx_uint_t has_validator(const crl_ngx_response *response) {
  for (size_t i = 0; i < response->count; i++)
    if (crl_ngx_field_is(&response->fields[i], "etag") ||
        crl_ngx_field_is(&response->fields[i], "last-modified"))
      return 1;
  return 0;
}

/* A page with a validator stays in the store for corral_revalidate, longer than it may be sent. */
static void set_lives(crl_ngx_verdict *verdict, const crl_ngx_conf *conf,
                      const crl_ngx_response *response) {
  corral_page *record = &verdict->record;
  int is_stale_never = is_brief(conf, response->status);
  int64_t swr = is_stale_never ? CORRAL_OFF : life(verdict->lives.swr_ms);
  int64_t sie = is_stale_never ? CORRAL_OFF : life(verdict->lives.sie_ms);
  int64_t kept = has_validator(response) && !is_stale_never ? (int64_t)conf->revalidate : 0;
  record->ttl_ms = life(record->ttl_ms);
  record->swr_ms = swr == CORRAL_OFF ? 0 : swr > 0 ? swr : ngx_max(conf->policy.swr_ms, 0);
  record->sie_ms = sie == 0 ? conf->policy.sie_ms : sie;
  if (record->sie_ms > kept) kept = record->sie_ms;
  verdict->swr_ms = swr;
  verdict->kept_ms = kept > 0 ? kept : CORRAL_OFF;
}

int crl_ngx_store(corral_fill *fill, crl_ngx_verdict *verdict, const crl_ngx_response *response,
                  const crl_ngx_body *body) {
  corral_page *record = &verdict->record;
  record->body_len = (size_t)body->size;
  corral_fill_lives(fill, record->ttl_ms, verdict->swr_ms, verdict->kept_ms);
  size_t room = corral_page_size(record, response->fields, response->count);
  unsigned char *to = room > 0 ? corral_fill_reserve(fill, room) : NULL;
  if (to == NULL) return -1;
  crl_ngx_body_copy(body, corral_page_write(to, record, response->fields, response->count));
  corral_fill_done(fill);
  return 0;
}

/* ---- judgement ----------------------------------------------------------------------------- */

static ngx_uint_t is_unwanted(ngx_http_request_t *sr, const crl_ngx_conf *conf) {
  return conf->no_store != NULL && ngx_http_test_predicates(sr, conf->no_store) == NGX_DECLINED;
}

enum { BRIEF_MS = 30000 }; /* the default of corral_retry_max */

/* The life of an answer that may be kept; 0: not to be kept, *why tells the reason. */
static int64_t judge_life(crl_ngx_ctx *ctx, ngx_http_request_t *sr, const crl_http_verdict *verdict,
                          const crl_ngx_response *response, const char **why) {
  int64_t ttl = fresh_life(verdict, ctx->conf, response->status, why);
  /* the old page's life may have come from a field that isn't stored, or sent to clients */
  if (ttl == 0 && verdict->is_storable && verdict->fresh_ms == CRL_HTTP_UNSAID &&
      !verdict->must_ask)
    ttl = crl_ngx_renew_ttl(ctx);
  int64_t most = ctx->conf->policy.retry_max_ms > 0 ? ctx->conf->policy.retry_max_ms : BRIEF_MS;
  if (is_brief(ctx->conf, response->status)) ttl = ngx_min(ttl, most);
  if (ttl == 0 || !is_unwanted(sr, ctx->conf)) return ttl;
  *why = "corral_no_store";
  return 0;
}

ngx_uint_t crl_ngx_is_endless(const ngx_http_request_t *sr) {
  static const ngx_str_t types[] = {ngx_string("text/event-stream"),
                                    ngx_string("multipart/x-mixed-replace")};
  const ngx_str_t *type = &sr->headers_out.content_type;
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    if (type->len >= types[i].len && ngx_strncasecmp(type->data, types[i].data, types[i].len) == 0)
      return 1;
  return 0;
}

/* Judges a header whose rules were read. */
static const char *judge_header(crl_ngx_ctx *ctx, ngx_http_request_t *sr,
                                crl_ngx_response *response, const crl_http_rules *rules,
                                crl_ngx_verdict *verdict) {
  corral_page *record = &verdict->record;
  const char *why;
  verdict->lives = judge(rules, ctx, response->status);
  record->status = (uint32_t)response->status;
  record->date_ms = crl_http_date_apart(rules, CORRAL_PAGE_LONGEST_MS);
  record->age_s = (uint32_t)ngx_min(ngx_max(rules->age, 0), 0x7fffffff);
  record->ttl_ms = judge_life(ctx, sr, &verdict->lives, response, &why);
  if (record->ttl_ms <= 0) return why;
  set_lives(verdict, ctx->conf, response);
  record->vary = verdict->names;
  record->vary_len = crl_http_vary_names(rules->vary, verdict->names);
  if (record->vary_len > 0 &&
      crl_ngx_vary_hash(ctx->r, verdict->names, record->vary_len, record->hash) != 0)
    return "unkeepable";
  drop_cookies(response);
  return NULL;
}

const char *crl_ngx_judge(crl_ngx_ctx *ctx, ngx_http_request_t *sr, crl_ngx_response *response,
                          corral_fill *fill, crl_ngx_verdict *verdict) {
  crl_http_rules rules;
  read_rules(&rules, ctx->conf, sr);
  if (crl_ngx_is_endless(sr)) return "endless";
  verdict->is_large = sr->headers_out.content_length_n > (off_t)ctx->conf->max_size;
  const char *why = judge_header(ctx, sr, response, &rules, verdict);
  if (why != NULL) return why;
  return crl_ngx_tags_add(ctx, fill, sr, response) == 0 ? NULL : "tags";
}

/* ---- renewal ------------------------------------------------------------------------------- */

/* Gives the fill the old page, whose life begins anew; else the new page. 0; -1: no room. */
static int give(corral_fill *fill, int is_same, const corral_page *record,
                const crl_ngx_response *response, const unsigned char *body) {
  if (is_same) return corral_fill_not_modified(fill) == CORRAL_OK ? 0 : -1;
  size_t room = corral_page_size(record, response->fields, response->count);
  unsigned char *to = room > 0 ? corral_fill_reserve(fill, room) : NULL;
  if (to == NULL) return -1;
  to = corral_page_write(to, record, response->fields, response->count);
  ngx_memcpy(to, body, record->body_len);
  return 0;
}

int crl_ngx_store_renewed(crl_ngx_ctx *ctx, corral_fill *fill, ngx_http_request_t *sr,
                          crl_ngx_response *response) {
  crl_http_rules rules;
  crl_ngx_verdict verdict = {.record = {0}};
  const unsigned char *body;
  read_rules(&rules, ctx->conf, sr);
  if (crl_ngx_fields_collect(ctx, sr, response) != 0 ||
      crl_ngx_renew_merge(ctx, response, &rules) != 0)
    return -1;
  const char *why = judge_header(ctx, sr, response, &rules, &verdict);
  verdict.record.body_len = crl_ngx_renew_body(ctx, &body);
  int is_same = why == NULL && crl_ngx_renew_is_same(ctx, &verdict.record, response);
  int tags = why == NULL ? crl_ngx_tags_renew(ctx, fill, sr, response, is_same) : 0;
  if (tags == CRL_NGX_UNKNOWN) return -1;
  if (tags != 0) why = "tags";
  ctx->is_pass = why != NULL;
  if (give(fill, is_same && why == NULL, &verdict.record, response, body) != 0)
    return ctx->is_pass = 0, -1;
  if (why != NULL) {
    ctx->detail = why;
    corral_fill_pass(fill);
  } else {
    corral_fill_lives(fill, verdict.record.ttl_ms, verdict.swr_ms, verdict.kept_ms);
  }
  corral_fill_done(fill);
  crl_ngx_led(ctx, NGX_HTTP_GATEWAY_TIME_OUT);
  return 0;
}
