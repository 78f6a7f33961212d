/* capture.c: captures the answer of a subrequest that runs the origin, instead of sending it to the
 * client.
 *
 * Two filters, before those of gzip and those that write. nginx reports a body that ended early
 * only by the lack of its last buffer: a body without one is a failure, and is never stored. */
#include "module.h"

enum { BLOCK = 32 * 1024 };

struct crl_ngx_capture {
  crl_ngx_ctx *ctx;
  corral_fill *fill; /* NULL once it has ended */
  ngx_http_cleanup_t *cleanup;
  crl_ngx_response response;
  ngx_chain_t **tail;
  ngx_buf_t *block; /* the last one of the body */
  off_t expected;   /* the body's size by its header; -1 unknown */
  unsigned has_header : 1;
  unsigned is_whole : 1;
  unsigned is_too_big : 1;
  unsigned is_broken : 1; /* can't be kept: no memory, or a header out of bounds */
};

static ngx_http_output_header_filter_pt next_header_filter;
static ngx_http_output_body_filter_pt next_body_filter;

/* ---- end ----------------------------------------------------------------------------------- */

static corral_fill *take_fill(crl_ngx_capture *capture) {
  corral_fill *fill = capture->fill;
  capture->fill = NULL;
  if (fill != NULL) capture->cleanup->handler = NULL;
  return fill;
}

/* nginx ends the request, and the subrequest with it. */
static void on_cleanup(void *data) {
  crl_ngx_capture *capture = data;
  if (capture->fill != NULL) corral_fill_abandon(capture->fill);
  capture->fill = NULL;
}

void crl_ngx_capture_fail(crl_ngx_capture *capture, ngx_uint_t status, const char *text) {
  corral_fill *fill = take_fill(capture);
  capture->ctx->fwd_status = status;
  if (fill == NULL) return;
  corral_fill_fail(fill, (int32_t)status, text);
  corral_fill_done(fill);
  crl_ngx_led(capture->ctx, (ngx_int_t)status);
}

static void give_up(crl_ngx_capture *capture, const char *detail) {
  corral_fill *fill = take_fill(capture);
  if (fill != NULL) crl_ngx_store_nothing(capture->ctx, fill, detail);
}

/* Called at the end of the subrequest. If it ended by a status without an answer, nginx makes a
 * page for that status, and calls again. */
static ngx_int_t on_end(ngx_http_request_t *sr, void *data, ngx_int_t rc) {
  crl_ngx_capture *capture = data;
  crl_ngx_response *response = &capture->response;
  if (capture->fill == NULL) return NGX_OK;
  if (!capture->has_header && rc != NGX_HTTP_CLOSE && rc != NGX_HTTP_REQUEST_TIME_OUT &&
      rc != NGX_HTTP_CLIENT_CLOSED_REQUEST &&
      (rc == NGX_HTTP_CREATED || rc == NGX_HTTP_NO_CONTENT ||
       (rc >= NGX_HTTP_SPECIAL_RESPONSE && rc < NGX_HTTP_INTERNAL_SERVER_ERROR)))
    return rc;
  /* for the access log of the leading request */
  if (sr->main->upstream_states == NULL) sr->main->upstream_states = sr->upstream_states;
  ngx_uint_t is_failure = response->status >= NGX_HTTP_INTERNAL_SERVER_ERROR &&
                          !crl_ngx_store_is_answer(capture->ctx, sr, response->status);
  if (rc >= NGX_HTTP_INTERNAL_SERVER_ERROR) {
    crl_ngx_capture_fail(capture, (ngx_uint_t)rc, "the origin can't be asked");
  } else if (capture->is_too_big) {
    give_up(capture, "too-big");
  } else if (!capture->has_header) {
    crl_ngx_capture_fail(capture, NGX_HTTP_BAD_GATEWAY, "the origin gave no answer");
  } else if (is_failure) {
    crl_ngx_capture_fail(capture, response->status, "the origin's status");
  } else if (capture->is_broken) {
    give_up(capture, "unkeepable");
  } else if (rc == NGX_ERROR || (!capture->is_whole && capture->expected != 0) ||
             (capture->expected >= 0 && (off_t)response->body_len != capture->expected)) {
    crl_ngx_capture_fail(capture, NGX_HTTP_BAD_GATEWAY, "the origin's answer ended early");
  } else {
    crl_ngx_store(capture->ctx, take_fill(capture), sr, response);
  }
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
  capture->tail = &capture->response.body;
  capture->expected = -1;
  capture->cleanup = cleanup;
  cleanup->data = capture;
  cleanup->handler = on_cleanup;
  after->data = capture;
  after->handler = on_end;
  *ret = after;
  return capture;
}

/* ---- filters ------------------------------------------------------------------------------- */

/* An upstream's answer is passed on as it comes: nginx would keep the buffers of a background
 * subrequest until the end, in a file. Answers that nginx's own cache stores are buffered in any
 * case. */
static void dont_buffer(ngx_http_request_t *sr) {
  if (sr->upstream != NULL && !sr->upstream->cacheable && !sr->upstream->store)
    sr->upstream->buffering = 0;
}

static ngx_int_t header_filter(ngx_http_request_t *r) {
  crl_ngx_capture *capture = crl_ngx_capture_of(r);
  if (capture == NULL) {
    crl_ngx_ctx *ctx = r == r->main ? crl_ngx_ctx_of(r) : NULL;
    return ctx == NULL || crl_ngx_cache_status(r, ctx) == NGX_OK ? next_header_filter(r)
                                                                 : NGX_ERROR;
  }
  r->filter_need_in_memory = 1;
  r->header_sent = 1;
  if (capture->has_header) return NGX_OK;
  capture->has_header = 1;
  capture->expected = r->headers_out.content_length_n;
  capture->response.status = r->headers_out.status;
  /* its Content-Length is that of the page */
  if (crl_ngx_renew_is_answer(capture->ctx, &capture->response)) capture->expected = 0;
  if (crl_ngx_fields_collect(r, &capture->response, r->pool) != 0) capture->is_broken = 1;
  dont_buffer(r);
  if (capture->expected <= (off_t)capture->ctx->conf->max_size) return NGX_OK;
  capture->is_too_big = 1;
  return NGX_ERROR; /* ends the upstream; on_end tells the reason */
}

static int append(crl_ngx_capture *capture, ngx_pool_t *pool, const u_char *bytes, size_t size) {
  crl_ngx_response *response = &capture->response;
  while (size > 0) {
    ngx_buf_t *block = capture->block;
    if (block == NULL || block->last == block->end) {
      size_t room = capture->expected > 0 ? (size_t)capture->expected
                                          : ngx_max((size_t)BLOCK, response->body_len);
      ngx_chain_t *link = ngx_alloc_chain_link(pool);
      block = capture->block = ngx_create_temp_buf(pool, ngx_max(room, (size_t)BLOCK));
      if (link == NULL || block == NULL) return -1;
      link->buf = block;
      link->next = NULL;
      *capture->tail = link;
      capture->tail = &link->next;
    }
    size_t part = ngx_min(size, (size_t)(block->end - block->last));
    block->last = ngx_cpymem(block->last, bytes, part);
    response->body_len += part;
    bytes += part;
    size -= part;
  }
  return 0;
}

/* The body is larger than may be kept: the leading request doesn't wait for the rest, and the
 * origin needn't send it. */
static void stop(crl_ngx_capture *capture, ngx_http_request_t *sr) {
  capture->is_too_big = 1;
  give_up(capture, "too-big");
  if (sr->upstream != NULL && !sr->upstream->buffering) sr->upstream->error = 1;
}

static void keep(crl_ngx_capture *capture, ngx_http_request_t *sr, ngx_buf_t *b) {
  if (b->last_buf || b->last_in_chain) capture->is_whole = 1;
  if (!ngx_buf_in_memory(b)) {
    if (b->in_file && b->file_last > b->file_pos) capture->is_broken = 1;
    b->file_pos = b->file_last;
    return;
  }
  size_t size = (size_t)(b->last - b->pos);
  if (!capture->is_too_big && !capture->is_broken && capture->fill != NULL) {
    if (size > capture->ctx->conf->max_size - capture->response.body_len)
      stop(capture, sr);
    else if (append(capture, sr->pool, b->pos, size) != 0)
      capture->is_broken = 1;
  }
  b->pos = b->last;
  if (b->in_file) b->file_pos = b->file_last;
}

static ngx_int_t body_filter(ngx_http_request_t *r, ngx_chain_t *in) {
  crl_ngx_capture *capture = crl_ngx_capture_of(r);
  if (capture == NULL) return next_body_filter(r, in);
  for (; in != NULL; in = in->next) keep(capture, r, in->buf);
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
