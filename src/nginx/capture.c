/* capture.c: takes the answer of a subrequest that runs the origin, instead of the client.
 *
 * Two filters, before those of gzip and those that write. The header decides: the answer is kept
 * (its bytes go to a stream, and at the end to the fill), or it goes to the leading request's
 * client alone, and the fill ends at once. nginx reports a body that ended early only by the lack
 * of its last buffer: a body of unknown length without one is a failure, and is never stored. */
#include "stream.h"

struct crl_ngx_capture {
  crl_ngx_ctx *ctx;
  corral_fill *fill; /* NULL once it has ended */
  ngx_http_cleanup_t *cleanup;
  crl_ngx_response response;
  crl_ngx_verdict verdict;
  crl_ngx_stream *stream; /* NULL: nothing is kept */
  ngx_chain_t *held;      /* waits for room in the stream */
  ngx_event_t patience;   /* a timer while all there is waits for the store's answer */
  off_t expected, taken;  /* the body's size by its header, -1 unknown; bytes that came */
  unsigned has_header : 1;
  unsigned is_forwarded : 1;
  unsigned has_last : 1;
  unsigned is_renewal : 1; /* a 304 that was asked for */
  unsigned is_suspended : 1;
};

static ngx_http_output_header_filter_pt next_header_filter;
static ngx_http_output_body_filter_pt next_body_filter;

/* ---- the fill ------------------------------------------------------------------------------ */

/* The end of an answer waits so long for the store: then a client that has it finds the page in the
 * store, too. A store that is silent keeps nobody waiting. */
enum { PATIENCE_MS = 200 };

static corral_fill *take_fill(crl_ngx_capture *capture) {
  corral_fill *fill = capture->fill;
  capture->fill = NULL;
  return fill;
}

static crl_ngx_stream *take_stream(crl_ngx_capture *capture) {
  crl_ngx_stream *stream = capture->stream;
  capture->stream = NULL;
  if (capture->patience.timer_set) ngx_del_timer(&capture->patience);
  return stream;
}

/* The answer won't come, or nobody is to get it by the stream. */
static void drop_stream(crl_ngx_capture *capture) {
  crl_ngx_stream *stream = take_stream(capture);
  if (stream == NULL) return;
  crl_ngx_stream_hold(stream);
  crl_ngx_stream_leave(stream);
}

static void end_stream(crl_ngx_capture *capture, ngx_uint_t is_whole) {
  crl_ngx_stream *stream = take_stream(capture);
  crl_ngx_stream_end(stream, is_whole);
  crl_ngx_stream_leave(stream);
}

void crl_ngx_capture_fail(crl_ngx_capture *capture, ngx_uint_t status, const char *text) {
  corral_fill *fill = take_fill(capture);
  capture->ctx->fwd_status = status;
  drop_stream(capture);
  if (fill == NULL) return;
  corral_fill_fail(fill, (int32_t)status, text);
  corral_fill_done(fill);
  crl_ngx_led(capture->ctx, (ngx_int_t)status);
}

/* The answer can't be kept: for a while all requests ask the origin themselves. */
static void let_go(crl_ngx_capture *capture, const char *why) {
  corral_fill *fill = take_fill(capture);
  capture->ctx->is_pass = 1;
  capture->ctx->detail = why;
  if (capture->stream != NULL) crl_ngx_stream_let_go(capture->stream);
  corral_fill_pass(fill);
  (void)corral_fill_bytes(fill, "", 0);
  corral_fill_done(fill);
}

/* ---- end ----------------------------------------------------------------------------------- */

/* Gives the clients the end of a whole answer; 0: the leading request doesn't want one. */
static int give_end(crl_ngx_capture *capture) {
  if (crl_ngx_stream_start(capture->stream)) {
    end_stream(capture, 1);
    return 1;
  }
  drop_stream(capture);
  return 0;
}

int crl_ngx_capture_settled(crl_ngx_ctx *ctx, ngx_uint_t has_value) {
  crl_ngx_capture *capture = ctx->capture;
  if (capture == NULL || capture->stream == NULL || capture->fill != NULL || ctx->is_leading)
    return ctx->is_sent;
  if (!has_value || ctx->is_sent) return give_end(capture) || ctx->is_sent;
  drop_stream(capture);
  return 0;
}

/* The store is silent: the clients needn't know. */
static void on_silence(ngx_event_t *event) {
  crl_ngx_capture *capture = event->data;
  crl_ngx_ctx *ctx = capture->ctx;
  ngx_connection_t *connection = ctx->r->connection;
  ngx_http_set_log_request(connection->log, ctx->r);
  if (give_end(capture)) crl_ngx_call_part(ctx);
  ngx_http_run_posted_requests(connection);
}

static void await_store(crl_ngx_capture *capture) {
  capture->patience.handler = on_silence;
  capture->patience.data = capture;
  capture->patience.log = ngx_cycle->log;
  ngx_add_timer(&capture->patience, PATIENCE_MS);
}

/* nginx ends the request, and the subrequest with it. */
static void on_cleanup(void *data) {
  crl_ngx_capture *capture = data;
  corral_fill *fill = take_fill(capture);
  ngx_uint_t is_whole = !capture->ctx->is_leading;
  if (fill != NULL) corral_fill_abandon(fill);
  if (capture->stream != NULL && crl_ngx_stream_is_started(capture->stream))
    end_stream(capture, is_whole);
  drop_stream(capture);
  capture->ctx->capture = NULL;
}

/* An answer that broke off: clients that have its header are cut off, the others elect anew. */
static void break_off(crl_ngx_capture *capture) {
  if (!crl_ngx_stream_is_started(capture->stream)) {
    crl_ngx_capture_fail(capture, NGX_HTTP_BAD_GATEWAY, "the origin's answer ended early");
    return;
  }
  corral_fill *fill = take_fill(capture);
  crl_ngx_call_leave(capture->ctx);
  if (fill != NULL) corral_fill_abandon(fill);
  end_stream(capture, 0);
}

static void end_whole(crl_ngx_capture *capture) {
  crl_ngx_ctx *ctx = capture->ctx;
  if (capture->fill != NULL) {
    crl_ngx_stream_hold(capture->stream);
    if (crl_ngx_store(capture->fill, &capture->verdict, &capture->response,
                      crl_ngx_stream_body(capture->stream)) == 0)
      (void)take_fill(capture);
    else
      let_go(capture, "unkeepable");
  }
  ctx->is_leading = 0;
  if (ctx->is_counted && !crl_ngx_stream_is_started(capture->stream))
    drop_stream(capture);
  else if (ctx->is_pass || ctx->is_late || !crl_ngx_call_is_open(ctx))
    (void)give_end(capture);
  else
    await_store(capture);
}

/* The old page holds. When the 304 is about another one, the origin is asked without conditions. */
static void end_renewal(crl_ngx_capture *capture, ngx_http_request_t *sr) {
  crl_ngx_ctx *ctx = capture->ctx;
  corral_fill *fill = take_fill(capture);
  if (fill == NULL) return;
  ctx->is_leading = 0;
  ctx->fwd_status = NGX_HTTP_NOT_MODIFIED;
  if (crl_ngx_store_renewed(ctx, fill, sr, &capture->response) == 0) return;
  ctx->renewal = NULL;
  ctx->fwd_status = 0;
  crl_ngx_origin_run(ctx, fill);
}

static ngx_uint_t is_whole(const crl_ngx_capture *capture) {
  return capture->expected >= 0 ? capture->taken == capture->expected : capture->has_last;
}

/* The answer of a page's fragment is nginx's page for this status: whose fragment it is decides
 * whether that is sent. 0: the answer is of a request by itself. */
static int end_fragment(crl_ngx_capture *capture, ngx_int_t status) {
  crl_ngx_ctx *ctx = capture->ctx;
  if (ctx->r == ctx->r->main || ctx->is_counted || capture->fill == NULL) return 0;
  let_go(capture, "status");
  ctx->is_leading = ctx->is_late = 0;
  ctx->is_sent = 1;
  ctx->outcome = CRL_NGX_PASS;
  ctx->fwd_status = (ngx_uint_t)status;
  crl_ngx_count(ctx);
  crl_ngx_end_later(ctx, status);
  return 1;
}

/* Called at the end of the subrequest. If it ended by a status without an answer, nginx makes a
 * page for that status, and calls again. */
static ngx_int_t on_end(ngx_http_request_t *sr, void *data, ngx_int_t rc) {
  crl_ngx_capture *capture = data;
  if (capture->is_suspended) return NGX_OK;
  if (rc != NGX_ERROR && sr->buffered && (capture->is_forwarded || capture->held != NULL))
    return rc;
  /* for the access log of the leading request */
  if (sr->main->upstream_states == NULL) sr->main->upstream_states = sr->upstream_states;
  if (capture->is_forwarded) {
    crl_ngx_forward_end(capture->ctx, rc != NGX_ERROR && is_whole(capture));
    return NGX_OK;
  }
  if (capture->is_renewal) end_renewal(capture, sr);
  if (capture->fill == NULL && capture->stream == NULL) return NGX_OK;
  if (!capture->has_header && rc != NGX_HTTP_CLOSE && rc != NGX_HTTP_REQUEST_TIME_OUT &&
      rc != NGX_HTTP_CLIENT_CLOSED_REQUEST &&
      (rc == NGX_HTTP_CREATED || rc == NGX_HTTP_NO_CONTENT ||
       (rc >= NGX_HTTP_SPECIAL_RESPONSE && rc < NGX_HTTP_INTERNAL_SERVER_ERROR)))
    return end_fragment(capture, rc) ? NGX_OK : rc;
  if (capture->stream == NULL && rc >= NGX_HTTP_INTERNAL_SERVER_ERROR)
    crl_ngx_capture_fail(capture, (ngx_uint_t)rc, "the origin can't be asked");
  else if (capture->stream == NULL)
    crl_ngx_capture_fail(capture, NGX_HTTP_BAD_GATEWAY, "the origin gave no answer");
  else if (rc == NGX_ERROR || rc >= NGX_HTTP_SPECIAL_RESPONSE || !is_whole(capture))
    break_off(capture);
  else
    end_whole(capture);
  capture->ctx->is_leading = 0;
  return NGX_OK;
}

/* ---- begin --------------------------------------------------------------------------------- */

crl_ngx_capture *crl_ngx_capture_of(ngx_http_request_t *r) {
  return r != r->main && r->post_subrequest != NULL && r->post_subrequest->handler == on_end
             ? r->post_subrequest->data
             : NULL;
}

crl_ngx_capture *crl_ngx_capture_new(crl_ngx_ctx *ctx, corral_fill *fill,
                                     ngx_http_post_subrequest_t **ret) {
  ngx_http_request_t *r = ctx->r;
  crl_ngx_capture *capture = ngx_pcalloc(r->pool, sizeof *capture);
  ngx_http_post_subrequest_t *after = ngx_palloc(r->pool, sizeof *after);
  ngx_http_cleanup_t *cleanup = ngx_http_cleanup_add(r, 0);
  if (capture == NULL || after == NULL || cleanup == NULL) return NULL;
  capture->ctx = ctx;
  capture->fill = fill;
  capture->expected = -1;
  ctx->capture = capture;
  capture->cleanup = cleanup;
  cleanup->data = capture;
  cleanup->handler = on_cleanup;
  after->data = capture;
  after->handler = on_end;
  *ret = after;
  return capture;
}

/* ---- redirects ----------------------------------------------------------------------------- */

crl_ngx_ctx *crl_ngx_redirected(ngx_http_request_t *r) {
  crl_ngx_capture *capture = crl_ngx_capture_of(r);
  return capture != NULL && capture->fill != NULL && !capture->has_header &&
                 capture->ctx->conf->pass == NULL
             ? capture->ctx
             : NULL;
}

void crl_ngx_capture_suspend(crl_ngx_capture *capture) { capture->is_suspended = 1; }

int crl_ngx_capture_is_suspended(const crl_ngx_ctx *ctx) {
  return ctx->capture != NULL && ctx->capture->is_suspended && ctx->capture->fill != NULL;
}

void crl_ngx_capture_resume(crl_ngx_ctx *ctx) { crl_ngx_origin_run(ctx, take_fill(ctx->capture)); }

void crl_ngx_capture_give_up(crl_ngx_ctx *ctx) {
  corral_fill *fill = take_fill(ctx->capture);
  ctx->is_leading = ctx->is_late = 0;
  ctx->is_sent = 1;
  ctx->outcome = CRL_NGX_PASS;
  ctx->detail = "redirect";
  crl_ngx_count(ctx);
  crl_ngx_call_leave(ctx);
  corral_fill_abandon(fill);
}

/* ---- filters ------------------------------------------------------------------------------- */

/* An upstream's answer is passed on as it comes: nginx would keep the buffers of a background
 * subrequest until the end, in a file. Answers that nginx's own cache stores are buffered in any
 * case. */
static void dont_buffer(ngx_http_request_t *sr) {
  if (sr->upstream != NULL && !sr->upstream->cacheable && !sr->upstream->store)
    sr->upstream->buffering = 0;
}

/* Sends the answer to the leading request's client alone, if that still waits. NGX_ERROR ends the
 * subrequest. */
static ngx_int_t forward(crl_ngx_capture *capture, ngx_http_request_t *sr,
                         crl_ngx_outcome outcome) {
  if (capture->ctx->is_counted) return NGX_ERROR;
  capture->is_forwarded = 1;
  capture->ctx->outcome = outcome;
  return crl_ngx_forward_header(capture->ctx, sr);
}

/* A failure is remembered, and answered by a stale page where there is one. */
static ngx_int_t forward_failure(crl_ngx_capture *capture, ngx_http_request_t *sr) {
  ngx_uint_t status = capture->response.status;
  int has_old = capture->ctx->is_anew ? corral_fill_has_stale(capture->fill)
                                      : crl_ngx_has_stale(capture->fill);
  if (has_old || capture->ctx->is_counted) {
    crl_ngx_capture_fail(capture, status, "the origin's status");
    return NGX_ERROR;
  }
  corral_fill *fill = take_fill(capture);
  capture->ctx->detail = "failed";
  ngx_int_t rc = forward(capture, sr, CRL_NGX_ERROR);
  corral_fill_fail(fill, (int32_t)status, "the origin's status");
  corral_fill_done(fill);
  return rc;
}

/* An answer that is too large to be kept, and may be sent to others: to those of this worker that
 * wait for it. 0: the leading request doesn't want one. */
static int share(crl_ngx_capture *capture) {
  if (!crl_ngx_stream_start(capture->stream)) {
    drop_stream(capture);
    return 0;
  }
  let_go(capture, "too-big");
  return 1;
}

static ngx_int_t take_header(crl_ngx_capture *capture, ngx_http_request_t *sr) {
  crl_ngx_ctx *ctx = capture->ctx;
  crl_ngx_response *response = &capture->response;
  capture->expected = sr->headers_out.content_length_n;
  response->status = sr->headers_out.status;
  dont_buffer(sr);
  if (response->status >= NGX_HTTP_INTERNAL_SERVER_ERROR &&
      !crl_ngx_store_is_answer(ctx, sr, response->status))
    return forward_failure(capture, sr);
  if (crl_ngx_renew_is_answer(ctx, response)) {
    capture->is_renewal = 1;
    return NGX_OK;
  }
  ctx->renewal = NULL;
  const char *why = crl_ngx_conf_of(sr)->is_off ? "off"
                    : crl_ngx_fields_collect(ctx, sr, response) != 0
                        ? "unkeepable"
                        : crl_ngx_judge(ctx, sr, response, capture->fill, &capture->verdict);
  ngx_uint_t is_large = capture->verdict.is_large;
  if (why == NULL && is_large && crl_ngx_flights_next(ctx, NULL) == NULL) why = "too-big";
  if (why == NULL) {
    capture->stream = crl_ngx_stream_new(ctx, sr, capture->fill, &capture->verdict, response);
    if (capture->stream == NULL) why = "unkeepable";
  }
  if (why == NULL && is_large && !share(capture)) why = "too-big";
  if (why == NULL) {
    sr->filter_need_in_memory = 1;
    return NGX_OK;
  }
  let_go(capture, why);
  return forward(capture, sr, ctx->is_refresh ? CRL_NGX_BYPASS : CRL_NGX_PASS);
}

static ngx_int_t header_filter(ngx_http_request_t *r) {
  crl_ngx_capture *capture = crl_ngx_capture_of(r);
  if (capture == NULL) {
    crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
    if (ctx != NULL && crl_ngx_capture_is_suspended(ctx)) crl_ngx_capture_give_up(ctx);
    if (ctx == NULL || r != r->main) return next_header_filter(r);
    if (crl_ngx_is_endless(r)) dont_buffer(r);
    return crl_ngx_cache_status(r, ctx) == NGX_OK ? next_header_filter(r) : NGX_ERROR;
  }
  r->header_sent = 1;
  if (capture->has_header) return NGX_OK;
  capture->has_header = 1;
  crl_ngx_lend(r->parent, r);
  return take_header(capture, r);
}

/* The client that the rest of the answer is for is gone, and it isn't to be kept. */
static void stop(crl_ngx_capture *capture, ngx_http_request_t *sr) {
  if (capture->fill != NULL || crl_ngx_stream_is_read(capture->stream)) return;
  if (sr->upstream != NULL && !sr->upstream->buffering) sr->upstream->error = 1;
}

/* Takes a buffer's bytes: 0. 1: there is no room yet; -1: no memory. */
static int keep(crl_ngx_capture *capture, ngx_http_request_t *sr, ngx_buf_t *b) {
  size_t size = ngx_buf_in_memory(b) ? (size_t)(b->last - b->pos) : 0;
  if (capture->fill != NULL && size > 0) {
    const char *why = capture->taken + (off_t)size > (off_t)capture->ctx->conf->max_size ? "too-big"
                      : !crl_ngx_stream_has_room(capture->stream, size)                  ? "no-room"
                                                                                         : NULL;
    if (why != NULL) {
      (void)crl_ngx_stream_start(capture->stream);
      let_go(capture, why);
    }
  }
  int result = size > 0 ? crl_ngx_stream_append(capture->stream, b->pos, size) : 0;
  if (result != 0) return result;
  capture->taken += (off_t)size;
  if (b->last_buf || b->last_in_chain) capture->has_last = 1;
  b->pos = b->last;
  b->file_pos = b->file_last;
  stop(capture, sr);
  return 0;
}

static ngx_int_t take_body(crl_ngx_capture *capture, ngx_http_request_t *sr, ngx_chain_t *in) {
  int result = 0;
  if (ngx_chain_add_copy(sr->pool, &capture->held, in) != NGX_OK) return NGX_ERROR;
  while (capture->held != NULL && (result = keep(capture, sr, capture->held->buf)) == 0) {
    ngx_chain_t *link = capture->held;
    capture->held = link->next;
    ngx_free_chain(sr->pool, link);
  }
  return result == 0 ? NGX_OK : result > 0 ? NGX_AGAIN : NGX_ERROR;
}

/* Throws away what nobody wants any more. */
static void discard(ngx_chain_t *in) {
  for (; in != NULL; in = in->next) {
    in->buf->pos = in->buf->last;
    in->buf->file_pos = in->buf->file_last;
  }
}

static void count_forwarded(crl_ngx_capture *capture, const ngx_chain_t *in) {
  for (; in != NULL; in = in->next) {
    capture->taken += ngx_buf_size(in->buf);
    if (in->buf->last_buf || in->buf->last_in_chain) capture->has_last = 1;
  }
}

static ngx_int_t body_filter(ngx_http_request_t *r, ngx_chain_t *in) {
  crl_ngx_capture *capture = crl_ngx_capture_of(r);
  if (capture == NULL) return next_body_filter(r, in);
  if (capture->is_forwarded) {
    count_forwarded(capture, in);
    return crl_ngx_forward_body(capture->ctx, in);
  }
  if (capture->stream != NULL) return take_body(capture, r, in);
  discard(in);
  return NGX_OK;
}

ngx_int_t crl_ngx_capture_init(ngx_conf_t *cf) {
  (void)cf;
  next_header_filter = ngx_http_top_header_filter;
  ngx_http_top_header_filter = header_filter;
  next_body_filter = ngx_http_top_body_filter;
  ngx_http_top_body_filter = body_filter;
  return NGX_OK;
}
