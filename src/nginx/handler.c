/* handler.c: the way of a request through a location with `corral NAME`. */
#include "stream.h"

static void ctx_mark(void *data) { (void)data; } /* its address marks a context in the pool */

crl_ngx_ctx *crl_ngx_ctx_of(ngx_http_request_t *r) {
  crl_ngx_ctx *ctx = ngx_http_get_module_ctx(r, ngx_http_corral_module);
  if (ctx != NULL) return ctx;
  if (!r->internal && !r->filter_finalize) return NULL;
  for (ngx_pool_cleanup_t *cleanup = r->pool->cleanup; cleanup != NULL; cleanup = cleanup->next) {
    if (cleanup->handler != ctx_mark || ((crl_ngx_ctx *)cleanup->data)->r != r) continue;
    ngx_http_set_ctx(r, cleanup->data, ngx_http_corral_module);
    return cleanup->data;
  }
  return NULL;
}

static crl_ngx_ctx *ctx_new(ngx_http_request_t *r, crl_ngx_conf *conf) {
  ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, sizeof(crl_ngx_ctx));
  if (cleanup == NULL) return NULL;
  crl_ngx_ctx *ctx = cleanup->data;
  ngx_memzero(ctx, sizeof *ctx);
  cleanup->handler = ctx_mark;
  ctx->r = r;
  ctx->zone = conf->zone;
  ctx->conf = conf;
  ctx->home = r->loc_conf;
  ctx->begun = ngx_current_msec;
  ctx->purges = ctx->zone->counters->purges;
  ngx_http_set_ctx(r, ctx, ngx_http_corral_module);
  return ctx;
}

/* ---- the key ------------------------------------------------------------------------------- */

enum { KEY_LONGEST = CORRAL_KEY_MAX };

/* "$scheme$host$request_uri", without running a script. */
static int default_key(ngx_http_request_t *r, ngx_str_t *ret) {
  ngx_str_t scheme = ngx_string("http"), *host = &r->headers_in.server, *uri = &r->unparsed_uri;
#if (NGX_HTTP_SSL)
  if (r->connection->ssl != NULL) {
    ngx_str_set(&scheme, "https");
  }
#endif
  if (host->len == 0)
    host = &((ngx_http_core_srv_conf_t *)ngx_http_get_module_srv_conf(r, ngx_http_core_module))
                ->server_name;
  if (r != r->main) uri = &r->uri; /* a subrequest has the unparsed URI of its parent */
  ngx_uint_t with_args = r != r->main && r->args.len > 0;
  ret->len = scheme.len + host->len + uri->len + (with_args ? 1 + r->args.len : 0);
  ret->data = ngx_pnalloc(r->pool, ret->len);
  if (ret->data == NULL) return -1;
  u_char *at = ngx_cpymem(ret->data, scheme.data, scheme.len);
  at = ngx_cpymem(at, host->data, host->len);
  at = ngx_cpymem(at, uri->data, uri->len);
  if (with_args) {
    *at++ = '?';
    ngx_memcpy(at, r->args.data, r->args.len);
  }
  return 0;
}

/* 0; -1 without memory, or for a key that is empty or too long. */
static int make_key(crl_ngx_ctx *ctx) {
  ngx_http_request_t *r = ctx->r;
  if (ctx->conf->key == NULL ? default_key(r, &ctx->key) != 0
                             : ngx_http_complex_value(r, ctx->conf->key, &ctx->key) != NGX_OK)
    return -1;
  if (ctx->key.len > 0 && ctx->key.len <= KEY_LONGEST) return 0;
  ngx_log_error(NGX_LOG_WARN, r->connection->log, 0,
                "corral: a key of %uz bytes; accepted are 1 to %d", ctx->key.len, (int)KEY_LONGEST);
  return -1;
}

/* ---- steps --------------------------------------------------------------------------------- */

static crl_ngx_step own_way(crl_ngx_ctx *ctx, crl_ngx_outcome outcome, const char *detail) {
  ctx->outcome = outcome;
  if (detail != NULL) ctx->detail = detail;
  return CRL_NGX_OWN_WAY;
}

static crl_ngx_step fail(crl_ngx_ctx *ctx, ngx_int_t status, const char *detail, ngx_int_t *rc) {
  ctx->outcome = CRL_NGX_ERROR;
  ctx->detail = detail;
  *rc = status;
  return CRL_NGX_REPLIED;
}

static crl_ngx_outcome outcome_of(const crl_ngx_ctx *ctx, corral_how how,
                                  const corral_page *record) {
  switch (how) {
    case CORRAL_OUTBOX:
      if (ctx->age_ms <= ctx->ttl_ms) return CRL_NGX_HIT;
      /* fall through */
    case CORRAL_STALE:
      return ctx->age_ms <= ctx->ttl_ms + record->swr_ms ? CRL_NGX_UPDATING : CRL_NGX_STALE;
    case CORRAL_COMPUTED:
      if (ctx->is_refresh) return CRL_NGX_BYPASS;
      if (ctx->is_pass) return CRL_NGX_PASS;
      if (!ctx->had_old) return CRL_NGX_MISS;
      return ctx->fwd_status == NGX_HTTP_NOT_MODIFIED ? CRL_NGX_REVALIDATED : CRL_NGX_EXPIRED;
    case CORRAL_JOINED: return CRL_NGX_COLLAPSED;
    default: return CRL_NGX_HIT;
  }
}

enum { VARIANTS = 4 };

void crl_ngx_describe(crl_ngx_ctx *ctx, const corral_page *record, int64_t age_ms, corral_how how) {
  ctx->age_ms = age_ms;
  ctx->ttl_ms = record->ttl_ms + (int64_t)record->age_s * 1000;
  ctx->outcome = outcome_of(ctx, how, record);
  ctx->is_answered = 1;
  if (ctx->fwd_status != NGX_HTTP_NOT_MODIFIED) ctx->fwd_status = record->status;
  crl_ngx_count(ctx);
}

static crl_ngx_step ask(crl_ngx_ctx *ctx, ngx_int_t *rc);

/* The record is of another variant than this request wants: the variant with that hash is the right
 * one. */
static crl_ngx_step ask_variant(crl_ngx_ctx *ctx, const unsigned char *hash, ngx_int_t *rc) {
  /* each time the origin's Vary has other names than before */
  if (ctx->variants++ == VARIANTS) return own_way(ctx, CRL_NGX_PASS, "vary");
  (void)ngx_hex_dump(ctx->variant, (u_char *)(uintptr_t)hash, CORRAL_PAGE_HASH);
  ctx->is_variant = 1;
  ctx->has_led = ctx->had_old = ctx->is_pass = 0;
  if (crl_ngx_is_led_in_front(ctx)) return own_way(ctx, CRL_NGX_PASS, "loop");
  return ask(ctx, rc);
}

/* A value that can't be sent. A record that claims to be a page, but can't be one, is removed from
 * the store once, so that the page is made anew. Any other value under this key is a stranger's or
 * a newer version's, and stays. */
static crl_ngx_step refuse(crl_ngx_ctx *ctx, int why) {
  if (why != CORRAL_ECORRUPT || ctx->has_dropped) return own_way(ctx, CRL_NGX_PASS, "unreadable");
  ctx->has_dropped = 1;
  ctx->outcome = CRL_NGX_PASS;
  ctx->detail = "unreadable";
  (void)ngx_atomic_fetch_add(&ctx->zone->counters->events[CORRAL_EVENT_FOREIGN], 1);
  ngx_log_error(crl_ngx_level(CORRAL_EVENT_FOREIGN), ctx->r->connection->log, 0,
                "corral: what the store has as a page can't be sent: somebody else wrote it; it is "
                "made anew");
  return crl_ngx_drop_begin(ctx);
}

/* Answers as the origin failed. */
static crl_ngx_step fail_as(crl_ngx_ctx *ctx, ngx_int_t code, ngx_int_t *rc) {
  return fail(ctx, code >= 400 && code <= 599 ? code : NGX_HTTP_BAD_GATEWAY, "failed", rc);
}

/* The request has waited as long as it may. One that leads waits for its own origin; one whose
 * origin has failed doesn't wait for the store's word about that, nor asks its origin again. */
static crl_ngx_step run_out(crl_ngx_ctx *ctx, ngx_int_t *rc) {
  if (ctx->is_leading) return ctx->is_late = 1, CRL_NGX_WAITS;
  if (ctx->led_status != 0) return fail_as(ctx, ctx->led_status, rc);
  if (ctx->conf->policy.at_deadline == CORRAL_DEADLINE_COMPUTE && crl_ngx_flights_pass(ctx))
    return own_way(ctx, CRL_NGX_PASS, "lock-timeout");
  return fail(ctx, NGX_HTTP_GATEWAY_TIME_OUT, "lock-timeout", rc);
}

static int is_frozen(const crl_ngx_zone *zone) {
  corral_control_state now = {.size = sizeof now};
  return corral_control_followed(zone->c, &now) == CORRAL_OK && now.verb == CORRAL_CONTROL_FREEZE;
}

static crl_ngx_step fail_frozen(crl_ngx_ctx *ctx, ngx_int_t *rc) {
  return fail(ctx, NGX_HTTP_SERVICE_UNAVAILABLE, "frozen", rc);
}

/* The page is kept for its revalidation, and may not be sent stale (RFC 9111, 4.2.4). After a
 * failure the answer is that failure; with corral_soft somebody may still rebuild the page. */
static crl_ngx_step refuse_stale(crl_ngx_ctx *ctx, int32_t failure, ngx_int_t *rc) {
  if (is_frozen(ctx->zone)) return fail_frozen(ctx, rc);
  if (failure != 0) return fail_as(ctx, failure, rc);
  if (ctx->conf->policy.soft_ms > 0 && !ctx->is_strict) {
    ctx->is_strict = 1;
    return ask(ctx, rc);
  }
  return run_out(ctx, rc);
}

/* ---- corral_refresh ------------------------------------------------------------------------ */

/* Answers by a new page, in place of the one that is stored, which is there until then. */
static crl_ngx_step refresh(crl_ngx_ctx *ctx) {
  if (ctx->is_lookup) return own_way(ctx, CRL_NGX_BYPASS, NULL);
  ctx->is_anew = 1;
  return crl_ngx_call_begin(ctx);
}

/* Somebody else is rebuilding the page. That is voided, as it began before this request came; what
 * is stored stays, as an expired page. The next one begins later: it is waited for. */
static crl_ngx_step overtake(crl_ngx_ctx *ctx, ngx_int_t *rc) {
  ctx->is_anew = 0;
  if (ctx->has_overtaken) return ask(ctx, rc);
  ctx->has_overtaken = 1;
  ctx->outcome = CRL_NGX_BYPASS;
  return crl_ngx_drop_begin(ctx);
}

/* Takes a value: answers with it, or goes on without it. */
static crl_ngx_step take(crl_ngx_ctx *ctx, corral_value *value, ngx_int_t *rc) {
  corral_page record;
  unsigned char hash[CORRAL_PAGE_HASH];
  size_t size = corral_value_size(value);
  int bad = size == 0 ? 0 : corral_page_read(corral_value_data(value), size, &record);
  if (size == 0 || bad != 0) {
    corral_value_unref(value);
    return size == 0 ? own_way(ctx, ctx->is_refresh ? CRL_NGX_BYPASS : CRL_NGX_PASS, NULL)
                     : refuse(ctx, bad);
  }
  corral_how how = corral_value_how(value);
  if (record.vary_len > 0 && !(how == CORRAL_COMPUTED && ctx->has_led)) {
    if (crl_ngx_vary_hash(ctx->r, record.vary, record.vary_len, hash) != 0) {
      corral_value_unref(value);
      return own_way(ctx, CRL_NGX_PASS, "vary");
    }
    if (ngx_memcmp(hash, record.hash, sizeof hash) != 0) {
      corral_value_unref(value);
      return ask_variant(ctx, hash, rc);
    }
  }
  if (crl_ngx_only_looks(ctx)) { /* its variant is known now */
    corral_value_unref(value);
    return refresh(ctx);
  }
  int64_t kept_ms = corral_value_age_ms(value);
  if ((how == CORRAL_STALE || (how == CORRAL_OUTBOX && kept_ms > record.ttl_ms)) &&
      !corral_page_may_be_stale(&record, kept_ms)) {
    int32_t failure = corral_value_failure(value);
    corral_value_unref(value);
    return refuse_stale(ctx, failure, rc);
  }
  int moved = crl_ngx_redirect_follow(ctx, &record, value);
  if (moved > 0) return CRL_NGX_WAITS;
  if (moved < 0) {
    corral_value_unref(value);
    return own_way(ctx, CRL_NGX_PASS, "redirect");
  }
  crl_ngx_describe(ctx, &record, kept_ms + (int64_t)record.age_s * 1000, how);
  ctx->is_stored = corral_value_kept(value) == CORRAL_KEPT && !ctx->is_pass;
  if (how == CORRAL_OUTBOX) ctx->detail = "outbox";
  if (ctx->is_anew && how != CORRAL_COMPUTED) ctx->detail = "refresh-failed";
  *rc = crl_ngx_reply(ctx, value, &record);
  return CRL_NGX_REPLIED;
}

/* Answers with the worker's own copy, joins an answer that is coming, or begins a call. */
static crl_ngx_step ask(crl_ngx_ctx *ctx, ngx_int_t *rc) {
  corral_value *value;
  corral_policy policy;
  corral_call call = crl_ngx_call(ctx, &policy);
  if (corral_peek(ctx->zone->c, ctx->key.data, ctx->key.len, &call, &value) == CORRAL_OK)
    return take(ctx, value, rc);
  return crl_ngx_stream_join(ctx) ? CRL_NGX_WAITS : crl_ngx_call_begin(ctx);
}

/* Answers by a status of corral. A failure other than the origin's never fails a request: it goes
 * its own way. */
static crl_ngx_step take_status(crl_ngx_ctx *ctx, int status, const corral_error *error,
                                ngx_int_t *rc) {
  int32_t code = error != NULL ? error->code : 0;
  if (crl_ngx_only_looks(ctx)) return refresh(ctx);
  switch (status) {
    case CORRAL_EFAILED: return fail_as(ctx, code, rc);
    case CORRAL_EABANDONED:
      if (ctx->is_leading) return ctx->is_late = 1, CRL_NGX_WAITS;
      return fail(ctx, NGX_HTTP_GATEWAY_TIME_OUT, "abandoned", rc);
    case CORRAL_ENOTFOUND: return fail(ctx, NGX_HTTP_NOT_FOUND, "negative", rc);
    case CORRAL_EDEADLINE: return run_out(ctx, rc);
    case CORRAL_EBUSY: return overtake(ctx, rc);
    case CORRAL_EFROZEN: return fail_frozen(ctx, rc);
    case CORRAL_EMISS: return own_way(ctx, CRL_NGX_MISS, NULL);
    default:
      ngx_log_error(NGX_LOG_WARN, ctx->r->connection->log, 0, "corral: %s",
                    error != NULL && error->text[0] != '\0' ? error->text
                                                            : corral_status_text(status));
      return own_way(ctx, CRL_NGX_PASS, "unavailable");
  }
}

/* ---- going on ------------------------------------------------------------------------------ */

/* With corral_pass the request is redirected to its origin. This is its last step here. */
static void redirect(crl_ngx_ctx *ctx) {
  ngx_http_request_t *r = ctx->r;
  ngx_str_t to, args;
  if (ngx_http_complex_value(r, ctx->conf->pass, &to) != NGX_OK || to.len == 0) {
    ngx_http_finalize_request(r, NGX_HTTP_INTERNAL_SERVER_ERROR);
    return;
  }
  if (to.data[0] == '@') {
    (void)ngx_http_named_location(r, &to);
  } else {
    args = r->args;
    ngx_http_split_args(r, &to, &args);
    (void)ngx_http_internal_redirect(r, &to, &args);
  }
  ngx_http_finalize_request(r, NGX_DONE);
}

/* Resumes a suspended request. */
static void finish(crl_ngx_ctx *ctx, crl_ngx_step step, ngx_int_t rc) {
  ngx_http_request_t *r = ctx->r;
  crl_ngx_count(ctx);
  r->write_event_handler = ngx_http_core_run_phases;
  if (r == r->main) r->read_event_handler = ngx_http_block_reading;
  if (step == CRL_NGX_REPLIED) {
    r->write_event_handler = ngx_http_request_empty_handler;
    ngx_http_finalize_request(r, rc);
  } else if (ctx->conf->pass != NULL) {
    redirect(ctx);
  } else {
    ngx_http_core_run_phases(r);
  }
}

void crl_ngx_answered(crl_ngx_ctx *ctx, int status, corral_value *value,
                      const corral_error *error) {
  ngx_int_t rc = NGX_ERROR;
  /* on the way to another location, which decides first whether this client gets anything */
  int is_away = crl_ngx_capture_is_suspended(ctx);
  if (is_away) ctx->is_late = 1;
  if (is_away || crl_ngx_capture_settled(ctx, status == CORRAL_OK)) {
    corral_value_unref(value);
    return;
  }
  ctx->waited = ngx_current_msec - ctx->begun;
  crl_ngx_step step =
      status == CORRAL_OK ? take(ctx, value, &rc) : take_status(ctx, status, error, &rc);
  if (step != CRL_NGX_WAITS) finish(ctx, step, rc);
}

void crl_ngx_dropped(crl_ngx_ctx *ctx, int status) {
  ngx_int_t rc = NGX_ERROR;
  ctx->purges = ctx->zone->counters->purges;
  crl_ngx_step step =
      ctx->has_overtaken && !ctx->has_dropped
          ? (status == CORRAL_OK ? refresh(ctx) : own_way(ctx, CRL_NGX_BYPASS, NULL))
      : status == CORRAL_OK ? ask(ctx, &rc)
                            : own_way(ctx, CRL_NGX_PASS, "unreadable");
  if (step != CRL_NGX_WAITS) finish(ctx, step, rc);
}

static void on_end(ngx_http_request_t *r) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  /* a subrequest of a filter's (SSI) may have ended before: what comes after it is sent now */
  if (r->postponed != NULL && ctx->late_status == NGX_OK)
    ctx->late_status = ngx_http_output_filter(r, NULL);
  r->write_event_handler = ngx_http_request_empty_handler;
  if (r == r->main) r->read_event_handler = ngx_http_block_reading;
  ngx_http_finalize_request(r, ctx->late_status);
}

void crl_ngx_end_later(crl_ngx_ctx *ctx, ngx_int_t rc) {
  ctx->late_status = rc;
  ctx->r->write_event_handler = on_end;
  if (ngx_http_post_request(ctx->r, NULL) != NGX_OK) ngx_http_finalize_request(ctx->r, NGX_ERROR);
}

void crl_ngx_led(crl_ngx_ctx *ctx, ngx_int_t status) {
  ngx_int_t rc;
  ctx->is_leading = 0;
  ctx->led_status = status;
  if (!ctx->is_late) return;
  ctx->is_late = 0;
  ctx->waited = ngx_current_msec - ctx->begun;
  (void)fail(ctx, status, "failed", &rc);
  crl_ngx_count(ctx);
  crl_ngx_end_later(ctx, rc);
}

/* Like finish, from within nginx's phases. */
static ngx_int_t go_on(crl_ngx_ctx *ctx, crl_ngx_step step, ngx_int_t rc) {
  ngx_http_request_t *r = ctx->r;
  if (step == CRL_NGX_WAITS) return NGX_DONE;
  crl_ngx_count(ctx);
  if (step == CRL_NGX_OWN_WAY && ctx->conf->pass == NULL) return NGX_DECLINED;
  if (step == CRL_NGX_OWN_WAY) {
    redirect(ctx);
  } else {
    r->write_event_handler = ngx_http_request_empty_handler;
    ngx_http_finalize_request(r, rc);
  }
  return NGX_DONE;
}

static unsigned holds(ngx_http_request_t *r, ngx_array_t *conditions) {
  return conditions != NULL && ngx_http_test_predicates(r, conditions) == NGX_DECLINED;
}

/* The body may decide the answer: it goes to the origin, and the answer to this client alone. One
 * of unknown length counts as chunked, under HTTP/2 and HTTP/3 too. */
static int has_body(const ngx_http_request_t *r) {
  if (r != r->main) return 0;
  return r->headers_in.content_length_n > 0 || r->headers_in.chunked;
}

/* The connection is to become one of another protocol (a websocket): it is of one client. The
 * upgrade to HTTP/2, which a client may offer with any request, is not done by nginx. */
static int wants_upgrade(const ngx_http_request_t *r) {
  const ngx_table_elt_t *upgrade = r->headers_in.upgrade;
  return r == r->main && upgrade != NULL &&
         ngx_strncasecmp(upgrade->value.data, (u_char *)"h2c", 3) != 0;
}

/* True for a subrequest of auth_request: its answer is about one client, and its variables are
 * those of an upstream. */
static unsigned is_auth(const ngx_http_request_t *r) { return r != r->main && r->header_only; }

/* nginx chooses between a file and its compressed form for a client's own request alone. */
static unsigned sends_compressed_files(ngx_http_request_t *r, const crl_ngx_conf *conf) {
  const ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
  return conf->has_gzip_static && core->handler == NULL && conf->pass == NULL;
}

static ngx_int_t purge(crl_ngx_ctx *ctx) {
  ngx_int_t rc = make_key(ctx) == 0 ? crl_ngx_purge_page(ctx->r, &ctx->key)
                                    : crl_ngx_purge_refuse(ctx->r, NGX_HTTP_BAD_REQUEST, "no key");
  if (rc != NGX_DONE) ngx_http_finalize_request(ctx->r, rc);
  return NGX_DONE;
}

/* Goes on with a request that was redirected; see redirect.c. */
static ngx_int_t arrive(crl_ngx_ctx *ctx) {
  ngx_int_t rc = NGX_ERROR;
  corral_value *value = ctx->value;
  ctx->value = NULL;
  if (value != NULL) {
    crl_ngx_step step = take(ctx, value, &rc);
    return go_on(ctx, step, rc);
  }
  if (!crl_ngx_capture_is_suspended(ctx) || crl_ngx_conf_of(ctx->r)->is_off) return NGX_DECLINED;
  ctx->r->write_event_handler = ngx_http_request_empty_handler;
  crl_ngx_capture_resume(ctx);
  return NGX_DONE;
}

ngx_int_t crl_ngx_handler(ngx_http_request_t *r) {
  crl_ngx_conf *conf = crl_ngx_conf_of(r);
  ngx_int_t rc = NGX_ERROR;
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  if (ctx != NULL) return arrive(ctx);
  if (conf->zone == NULL || r->background || r->subrequest_in_memory || is_auth(r) ||
      crl_ngx_capture_of(r) != NULL || sends_compressed_files(r, conf))
    return NGX_DECLINED;
  ctx = ctx_new(r, conf);
  if (ctx == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  if (conf->with_purge && crl_ngx_is_purge(r)) return purge(ctx);
  if (!(r->method & conf->methods & (NGX_HTTP_GET | NGX_HTTP_HEAD))) {
    ctx->is_unsafe = crl_ngx_is_unsafe(r) && conf->zone->loop != NULL && make_key(ctx) == 0;
    return go_on(ctx, own_way(ctx, CRL_NGX_BYPASS, "method"), rc);
  }
  if (has_body(r)) return go_on(ctx, own_way(ctx, CRL_NGX_BYPASS, "body"), rc);
  if (wants_upgrade(r)) return go_on(ctx, own_way(ctx, CRL_NGX_BYPASS, "upgrade"), rc);
  if (conf->zone->loop == NULL) return go_on(ctx, own_way(ctx, CRL_NGX_PASS, "unavailable"), rc);
  if (holds(r, conf->bypass)) return go_on(ctx, own_way(ctx, CRL_NGX_BYPASS, NULL), rc);
  if (make_key(ctx) != 0) return go_on(ctx, own_way(ctx, CRL_NGX_PASS, "key"), rc);
  if (crl_ngx_is_led_in_front(ctx)) return go_on(ctx, own_way(ctx, CRL_NGX_PASS, "loop"), rc);
  unsigned is_rare = conf->min_uses > 1 && crl_ngx_is_rare(ctx);
  ctx->is_lookup = (is_rare || holds(r, conf->no_store)) & 1;
  ctx->is_refresh = (!is_rare && holds(r, conf->refresh)) & 1;
  crl_ngx_step step = ask(ctx, &rc);
  return go_on(ctx, step, rc);
}
