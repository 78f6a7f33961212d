/* origin.c: runs the origin of a location for a fill, as a background subrequest of the leading
 * request.
 *
 * Without corral_pass it is a clone, which goes on from the request's present phase to the
 * location's own content handler. It is a GET without a body, and without the header fields that
 * would make the answer one for this client only: ranges, conditions, Accept-Encoding. The
 * conditions of a revalidation are its own. */
#include "module.h"

static const ngx_str_t dropped[] = {
    ngx_string("range"),    ngx_string("if-range"),          ngx_string("if-modified-since"),
    ngx_string("if-match"), ngx_string("if-none-match"),     ngx_string("if-unmodified-since"),
    ngx_string("expect"),   ngx_string("accept-encoding"),   ngx_string("content-length"),
    ngx_string("upgrade"),  ngx_string("transfer-encoding"), ngx_string("te")};

static ngx_uint_t is_dropped(const u_char *name, size_t len) {
  for (size_t i = 0; i < sizeof dropped / sizeof dropped[0]; i++)
    if (dropped[i].len == len && ngx_strncasecmp(dropped[i].data, (u_char *)name, len) == 0)
      return 1;
  return 0;
}

/* Gives the subrequest a header of its own instead of its parent's. */
static ngx_int_t own_header(ngx_http_request_t *sr) {
  ngx_http_headers_in_t *in = &sr->headers_in;
  ngx_list_part_t *part = &sr->parent->headers_in.headers.part;
  if (ngx_list_init(&in->headers, sr->pool, 20, sizeof(ngx_table_elt_t)) != NGX_OK)
    return NGX_ERROR;
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *from = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      if (is_dropped(from[i].key.data, from[i].key.len)) continue;
      ngx_table_elt_t *to = ngx_list_push(&in->headers);
      if (to == NULL) return NGX_ERROR;
      *to = from[i];
    }
  }
  in->range = in->if_range = in->if_modified_since = in->if_unmodified_since = in->if_match =
      in->if_none_match = NULL;
  in->expect = in->content_length = in->upgrade = in->transfer_encoding = in->te = NULL;
#if (NGX_HTTP_GZIP || NGX_HTTP_HEADERS)
  in->accept_encoding = NULL;
#endif
  in->content_length_n = -1;
  in->chunked = 0;
  return NGX_OK;
}

/* True for variables of dropped fields: "http_if_range" is "if-range". */
static ngx_uint_t is_dropped_variable(const ngx_str_t *name) {
  u_char header[32];
  if (name->len <= 5 || name->len - 5 > sizeof header || ngx_strncmp(name->data, "http_", 5) != 0)
    return 0;
  for (size_t i = 5; i < name->len; i++) header[i - 5] = name->data[i] == '_' ? '-' : name->data[i];
  return is_dropped(header, name->len - 5);
}

/* Keeps the range of the slice that is asked for: nginx's filter of slices has it for the parent
 * alone, and writes the next one over it. */
static ngx_int_t keep_slice(ngx_http_request_t *sr, ngx_uint_t index,
                            ngx_http_variable_value_t *own) {
  const ngx_http_variable_value_t *range = ngx_http_get_flushed_variable(sr->parent, index);
  if (range == NULL || range->not_found) return NGX_OK;
  u_char *text = ngx_pnalloc(sr->pool, range->len);
  if (text == NULL) return NGX_ERROR;
  *own = *range;
  own->data = ngx_cpymem(text, range->data, range->len) - range->len;
  own->no_cacheable = 0;
  return NGX_OK;
}

/* Subrequests share their parent's table of variables that were evaluated. This one gets a table of
 * its own, without the variables of dropped header fields. */
static ngx_int_t own_variables(ngx_http_request_t *sr) {
  ngx_http_core_main_conf_t *core = ngx_http_get_module_main_conf(sr, ngx_http_core_module);
  ngx_http_variable_t *all = core->variables.elts;
  ngx_uint_t count = core->variables.nelts;
  ngx_http_variable_value_t *own = ngx_palloc(sr->pool, (count + 1) * sizeof *own);
  if (own == NULL) return NGX_ERROR;
  ngx_memcpy(own, sr->variables, count * sizeof *own);
  for (ngx_uint_t i = 0; i < count; i++) {
    if (is_dropped_variable(&all[i].name)) own[i].valid = own[i].not_found = 0;
    if (all[i].name.len == 11 && ngx_strncmp(all[i].name.data, "slice_range", 11) == 0 &&
        keep_slice(sr, i, &own[i]) != NGX_OK)
      return NGX_ERROR;
  }
  sr->variables = own;
  return NGX_OK;
}

/* The write handler of a subrequest for a named location. */
static void enter_named(ngx_http_request_t *sr) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(sr->parent);
  ngx_str_t name;
  if (ctx == NULL || ngx_http_complex_value(sr, ctx->conf->pass, &name) != NGX_OK) {
    ngx_http_finalize_request(sr, NGX_HTTP_INTERNAL_SERVER_ERROR);
    return;
  }
  (void)ngx_http_named_location(sr, &name);
  ngx_http_finalize_request(sr, NGX_DONE);
}

static ngx_http_request_t *subrequest(crl_ngx_ctx *ctx, ngx_http_post_subrequest_t *after) {
  ngx_http_request_t *r = ctx->r, *sr;
  ngx_str_t uri = r->uri, args = r->args, to = ngx_null_string;
  ngx_uint_t flags = NGX_HTTP_SUBREQUEST_BACKGROUND;
  if (ctx->conf->pass == NULL) {
    flags |= NGX_HTTP_SUBREQUEST_CLONE;
  } else {
    if (ngx_http_complex_value(r, ctx->conf->pass, &to) != NGX_OK || to.len == 0) return NULL;
    if (to.data[0] != '@') {
      uri = to;
      ngx_http_split_args(r, &uri, &args);
    }
  }
  if (ngx_http_subrequest(r, &uri, &args, &sr, after, flags) != NGX_OK) return NULL;
  if (to.len > 0 && to.data[0] == '@') sr->write_event_handler = enter_named;
#if (NGX_PCRE)
  sr->captures = r->captures;
  sr->captures_data = r->captures_data;
  sr->ncaptures = r->ncaptures;
  sr->realloc_captures = 1;
#endif
  return sr;
}

void crl_ngx_origin_begin(crl_ngx_ctx *ctx, corral_fill *fill) {
  crl_ngx_renew_begin(ctx, fill);
  crl_ngx_origin_run(ctx, fill);
}

/* The write handler of a leading request before its answer comes. A handler other than an
 * upstream's may wait for a timer of the client's connection. */
static void on_event(ngx_http_request_t *r) {
  crl_ngx_ctx *ctx = crl_ngx_ctx_of(r);
  ngx_http_request_t *sr = ctx->is_leading ? ctx->origin : NULL;
  if (sr != NULL && !sr->done && sr->upstream == NULL) sr->write_event_handler(sr);
}

void crl_ngx_origin_run(crl_ngx_ctx *ctx, corral_fill *fill) {
  ngx_http_post_subrequest_t *after;
  crl_ngx_capture *capture = crl_ngx_capture_new(ctx, fill, &after);
  if (capture == NULL) {
    corral_fill_fail(fill, NGX_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
    corral_fill_done(fill);
    return;
  }
  ngx_http_request_t *sr = subrequest(ctx, after);
  if (sr == NULL) {
    crl_ngx_capture_fail(capture, NGX_HTTP_INTERNAL_SERVER_ERROR,
                         "the origin's subrequest can't be made");
    return;
  }
  ctx->is_leading = 1;
  ctx->origin = sr;
  if (!ctx->is_counted) ctx->r->write_event_handler = on_event;
  sr->method = NGX_HTTP_GET;
  sr->method_name = ngx_http_core_get_method;
  sr->request_body = NULL;
  crl_ngx_redirect_go_on(ctx, sr);
  sr->err_status = ctx->r->err_status; /* of an error_page that the request was redirected to */
  if (own_header(sr) != NGX_OK || crl_ngx_renew_ask(ctx, &sr->headers_in, sr->pool) != NGX_OK ||
      own_variables(sr) != NGX_OK || crl_ngx_mark_led(ctx, sr) != NGX_OK) {
    crl_ngx_capture_fail(capture, NGX_HTTP_INTERNAL_SERVER_ERROR, "out of memory");
    return;
  }
  /* Other requests wait for this answer, too: it doesn't end when the client leaves. */
  if (ctx->r == ctx->r->main && !ctx->r->done) ctx->r->read_event_handler = ngx_http_block_reading;
}
