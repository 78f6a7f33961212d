/* forward.c: sends an answer that can't be kept to the leading request's client, as it comes.
 *
 * The subrequest's buffers themselves go through the filters of the leading request: what its
 * client doesn't take, the origin isn't asked for. A client that leaves ends the origin's
 * request. */
#include "module.h"

void crl_ngx_copy_header(ngx_http_request_t *to, const ngx_http_request_t *from) {
  const ngx_http_headers_out_t *out = &from->headers_out;
  to->headers_out = *out;
  if (out->headers.last == &out->headers.part)
    to->headers_out.headers.last = &to->headers_out.headers.part;
  if (out->trailers.last == &out->trailers.part)
    to->headers_out.trailers.last = &to->headers_out.trailers.part;
}

static void take_header(ngx_http_request_t *r, const ngx_http_request_t *sr) {
  crl_ngx_copy_header(r, sr);
  r->err_status = 0; /* the header has the final one */
  r->allow_ranges = sr->allow_ranges;
  r->single_range = sr->single_range;
  /* nginx limits no answer of an upstream that it doesn't buffer: the timer would be lost */
  int is_unlimited = sr->upstream != NULL && !sr->upstream->buffering;
  r->limit_rate = is_unlimited ? 0 : sr->limit_rate;
  r->limit_rate_set = is_unlimited || sr->limit_rate_set;
}

static void on_write(ngx_http_request_t *r) {
  ngx_connection_t *connection = r->connection;
  ngx_http_request_t *sr = crl_ngx_ctx_of(r)->sr;
  if (connection->write->timedout) {
    ngx_log_error(NGX_LOG_INFO, connection->log, NGX_ETIMEDOUT, "client timed out");
    connection->timedout = 1;
    ngx_http_finalize_request(r, NGX_HTTP_REQUEST_TIME_OUT);
    return;
  }
  if (ngx_http_output_filter(r, NULL) == NGX_ERROR) {
    ngx_http_finalize_request(r, NGX_ERROR);
    return;
  }
  if (sr != NULL) sr->write_event_handler(sr);
}

ngx_int_t crl_ngx_forward_header(crl_ngx_ctx *ctx, ngx_http_request_t *sr) {
  ngx_http_request_t *r = ctx->r;
  ctx->is_sent = 1;
  ctx->is_late = 0;
  ctx->is_pass = 1;
  ctx->fwd_status = sr->headers_out.status;
  ctx->waited = ngx_current_msec - ctx->begun;
  ctx->sr = sr;
  crl_ngx_count(ctx);
  take_header(r, sr);
  r->write_event_handler = on_write;
  ngx_int_t rc = r == r->main ? ngx_http_discard_request_body(r) : NGX_OK;
  if (rc == NGX_OK && !r->discard_body && crl_ngx_notice_leaving(r) != 0) rc = NGX_ERROR;
  if (rc == NGX_OK) rc = ngx_http_send_header(r);
  sr->headers_out.charset = r->headers_out.charset; /* nginx's lists of files count by it */
  if (rc == NGX_OK && !r->header_only) return NGX_OK;
  ctx->sr = NULL;
  crl_ngx_end_later(ctx, rc);
  return NGX_ERROR;
}

ngx_int_t crl_ngx_forward_body(crl_ngx_ctx *ctx, ngx_chain_t *in) {
  ngx_http_request_t *r = ctx->r;
  ngx_int_t rc = ngx_http_output_filter(r, in);
  if (rc != NGX_ERROR && r == r->connection->data &&
      ngx_handle_write_event(r->connection->write, 0) != NGX_OK)
    return NGX_ERROR;
  return rc;
}

void crl_ngx_forward_end(crl_ngx_ctx *ctx, ngx_uint_t is_whole) {
  if (ctx->sr == NULL) return; /* ended with the header */
  ctx->sr = NULL;
  if (is_whole) {
    crl_ngx_end_later(ctx, ngx_http_send_special(ctx->r, NGX_HTTP_LAST));
  } else {
    ctx->r->keepalive = 0;
    crl_ngx_end_later(ctx, NGX_ERROR);
  }
}
