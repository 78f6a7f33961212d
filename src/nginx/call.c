/* call.c: a call of the zone's loop on behalf of a request.
 *
 * The request may die before the call does (its client left), and the call may outlive its answer
 * (a stale one is rebuilt behind the answer). So the callbacks get a struct of their own, freed by
 * `gone`, and the request's count keeps the request until then. When nginx ends the request
 * nevertheless (the client's connection broke), the cleanup cancels the call. */
#include "stream.h"

#include <stdlib.h>

struct crl_ngx_job {
  crl_ngx_ctx *ctx; /* NULL: the request is dead */
  crl_ngx_zone *zone;
  corral_async_call *call; /* NULL from `done` on */
  ngx_http_cleanup_t *cleanup;
  unsigned leads : 1; /* its origin was asked */
};

/* The request has no call any more. */
static void part(crl_ngx_job *job) {
  crl_ngx_ctx *ctx = job->ctx;
  if (ctx == NULL || ctx->job != job) return;
  crl_ngx_flights_stop_waiting(ctx);
  ctx->job = NULL;
}

/* nginx ends the request before `gone`. */
static void on_cleanup(void *data) {
  crl_ngx_job *job = data;
  part(job);
  job->ctx = NULL;
  job->cleanup = NULL;
  if (job->call != NULL) corral_async_call_cancel(job->call);
  job->call = NULL;
}

static ngx_connection_t *enter(ngx_http_request_t *r) {
  ngx_connection_t *connection = r->connection;
  ngx_http_set_log_request(connection->log, r);
  return connection;
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  crl_ngx_job *job = arg;
  job->call = NULL;
  part(job);
  if (job->ctx == NULL) {
    corral_value_unref(value);
    return;
  }
  ngx_connection_t *connection = enter(job->ctx->r);
  crl_ngx_answered(job->ctx, status, value, error);
  ngx_http_run_posted_requests(connection);
}

/* A compute that is alone has a key that is known not to be kept: the empty value sends the request
 * on its own way. */
static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  crl_ngx_job *job = arg;
  size_t size;
  (void)key;
  (void)key_len;
  if (job->ctx == NULL) {
    corral_fill_abandon(fill);
  } else if (corral_fill_is_alone(fill)) {
    corral_fill_pass(fill);
    (void)corral_fill_bytes(fill, "", 0);
    corral_fill_done(fill);
  } else {
    ngx_connection_t *connection = enter(job->ctx->r);
    crl_ngx_flights_lead(job->ctx);
    job->ctx->has_led = job->call != NULL;
    job->ctx->had_old = corral_fill_old(fill, &size) != NULL;
    job->ctx->purges = job->zone->counters->purges;
    if (!job->leads) crl_ngx_gauge_leading(job->zone, 1);
    job->leads = 1;
    crl_ngx_origin_begin(job->ctx, fill);
    ngx_http_run_posted_requests(connection);
  }
}

static void on_gone(void *arg) {
  crl_ngx_job *job = arg;
  crl_ngx_ctx *ctx = job->ctx;
  crl_ngx_zone *zone = job->zone;
  if (job->cleanup != NULL) job->cleanup->handler = NULL;
  if (job->leads) crl_ngx_gauge_leading(zone, -1);
  free(job);
  crl_ngx_zone_release(zone);
  if (ctx == NULL || zone->is_closing) return;
  ngx_connection_t *connection = enter(ctx->r);
  ngx_http_finalize_request(ctx->r, NGX_DONE);
  ngx_http_run_posted_requests(connection);
}

void crl_ngx_call_leave(crl_ngx_ctx *ctx) {
  crl_ngx_job *job = ctx->job;
  if (job == NULL) return;
  part(job);
  if (job->call != NULL) corral_async_call_cancel(job->call);
  job->call = NULL;
}

void crl_ngx_call_part(crl_ngx_ctx *ctx) {
  crl_ngx_job *job = ctx->job;
  if (job == NULL) return;
  part(job);
  if (job->cleanup != NULL) job->cleanup->handler = NULL;
  job->cleanup = NULL;
  job->ctx = NULL;
  ngx_http_finalize_request(ctx->r, NGX_DONE);
}

int crl_ngx_call_is_open(const crl_ngx_ctx *ctx) {
  return ctx->job != NULL && ctx->job->call != NULL;
}

int crl_ngx_notice_leaving(ngx_http_request_t *r) {
  ngx_event_t *reading = r->connection->read;
  if (r != r->main) return 0;
  r->read_event_handler = ngx_http_test_reading;
  if (ngx_handle_read_event(reading, 0) != NGX_OK) return -1;
  if (reading->ready) {
    ngx_post_event(reading, &ngx_posted_events);
  }
  return 0;
}

int crl_ngx_suspend(ngx_http_request_t *r) {
  r->write_event_handler = ngx_http_request_empty_handler;
  return crl_ngx_notice_leaving(r);
}

corral_call crl_ngx_call(const crl_ngx_ctx *ctx, corral_policy *policy) {
  corral_call call = {.size = sizeof call, .policy = policy};
  *policy = ctx->conf->policy;
  policy->wait_ms = ctx->conf->wait_ms;
  /* so that those that came together with the first one have its stale page before their end */
  if (policy->soft_ms <= 0) policy->soft_ms = crl_ngx_soft(ctx);
  policy->at_deadline = CORRAL_DEADLINE_ERROR; /* handler.c sends the request on its own way */
  policy->anew = ctx->is_anew ? 1 : CORRAL_OFF;
  if (ctx->is_strict) policy->soft_ms = CORRAL_OFF;
  if (!ctx->is_variant) return call;
  call.variant = ctx->variant;
  call.variant_len = sizeof ctx->variant;
  return call;
}

crl_ngx_step crl_ngx_call_begin(crl_ngx_ctx *ctx) {
  ngx_http_request_t *r = ctx->r;
  corral_error error;
  corral_policy policy;
  corral_call call = crl_ngx_call(ctx, &policy);
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  crl_ngx_job *job = cleanup != NULL ? calloc(1, sizeof *job) : NULL;
  ctx->outcome = CRL_NGX_PASS;
  ctx->detail = "unavailable";
  ctx->led_status = 0;
  if (job == NULL || crl_ngx_suspend(r) != 0) return free(job), CRL_NGX_OWN_WAY;
  job->ctx = ctx;
  job->zone = ctx->zone;
  job->cleanup = cleanup;
  int only_looks = ctx->is_lookup || crl_ngx_only_looks(ctx);
  ngx_memzero(&error, sizeof error);
  call.error = &error;
  int status = corral_loop_get(ctx->zone->loop, ctx->key.data, ctx->key.len, &call,
                               CORRAL_ASYNC(.done = on_done, .start = only_looks ? NULL : on_start,
                                            .gone = on_gone, .arg = job),
                               &job->call);
  if (status != CORRAL_OK) {
    ngx_log_error(NGX_LOG_WARN, r->connection->log, 0, "corral: %s",
                  error.text[0] != '\0' ? error.text : corral_status_text(status));
    free(job);
    return CRL_NGX_OWN_WAY;
  }
  cleanup->data = job;
  cleanup->handler = on_cleanup;
  r->main->count++;
  ctx->job = job;
  crl_ngx_flights_wait(ctx);
  ctx->outcome = CRL_NGX_NONE;
  ctx->detail = NULL;
  crl_ngx_zone_hold(ctx->zone);
  return CRL_NGX_WAITS;
}
