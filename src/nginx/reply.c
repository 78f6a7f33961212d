/* reply.c: sends a record as the answer of a request. nginx's own filters do the rest: ranges,
 * conditions, gzip, HEAD. */
#include "module.h"

static void release(void *value) { corral_value_unref(value); } /* NULL is allowed */

/* Splits "text/html; charset=utf-8" into a type and a charset for nginx's filters, as nginx's
 * upstreams do. */
static void set_type(ngx_http_headers_out_t *out, const corral_page_field *field) {
  u_char *value = (u_char *)field->value, *end = value + field->value_len;
  out->content_type.data = value;
  out->content_type.len = out->content_type_len = field->value_len;
  out->content_type_lowcase = NULL;
  for (u_char *at = value; at < end; at++) {
    if (*at != ';') continue;
    u_char *name = at + 1;
    while (name < end && *name == ' ') name++;
    if (end - name < 8 || ngx_strncasecmp(name, (u_char *)"charset=", 8) != 0) continue;
    u_char *from = name + 8, *to = end;
    if (from < to && *from == '"') from++;
    if (to > from && to[-1] == '"') to--;
    out->content_type_len = (size_t)(at - value);
    out->charset.data = from;
    out->charset.len = (size_t)(to - from);
    return;
  }
}

#if (nginx_version >= 1023000)
static int add_line(ngx_http_request_t *r, ngx_table_elt_t **list, ngx_table_elt_t *line) {
  (void)r;
  while (*list != NULL) list = &(*list)->next;
  *list = line;
  return 0;
}
#else
static int add_line(ngx_http_request_t *r, ngx_array_t *list, ngx_table_elt_t *line) {
  if (list->elts == NULL && ngx_array_init(list, r->pool, 2, sizeof(ngx_table_elt_t *)) != NGX_OK)
    return -1;
  ngx_table_elt_t **slot = ngx_array_push(list);
  if (slot == NULL) return -1;
  *slot = line;
  return 0;
}
#endif

/* nginx's filter of slices reads this value up to its NUL. */
static int end_by_nul(ngx_http_request_t *r, ngx_table_elt_t *line) {
  u_char *text = ngx_pnalloc(r->pool, line->value.len + 1);
  if (text == NULL) return -1;
  *ngx_cpymem(text, line->value.data, line->value.len) = '\0';
  line->value.data = text;
  return 0;
}

/* nginx's filters look for some fields in places of their own. */
static int set_place(ngx_http_request_t *r, const corral_page_field *field, ngx_table_elt_t *line) {
  ngx_http_headers_out_t *out = &r->headers_out;
  const struct {
    const char *name;
    ngx_table_elt_t **place;
  } rows[] = {{"etag", &out->etag},         {"last-modified", &out->last_modified},
              {"location", &out->location}, {"content-encoding", &out->content_encoding},
              {"expires", &out->expires},   {"www-authenticate", &out->www_authenticate},
              {"refresh", &out->refresh},   {"content-range", &out->content_range}};
  if (crl_ngx_field_is(field, "cache-control")) return add_line(r, &out->cache_control, line);
  if (crl_ngx_field_is(field, "link")) return add_line(r, &out->link, line);
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++)
    if (crl_ngx_field_is(field, rows[i].name)) *rows[i].place = line;
  if (line == out->content_range) return end_by_nul(r, line);
  if (line == out->last_modified)
    out->last_modified_time = ngx_parse_http_time(line->value.data, line->value.len);
  return 0;
}

static int set_fields(ngx_http_request_t *r, const corral_page *record) {
  corral_page_field field;
  for (size_t at = 0; corral_page_next(record, &at, &field);) {
    if (crl_ngx_redirect_is_field(&field)) continue;
    if (crl_ngx_field_is(&field, "content-type")) {
      set_type(&r->headers_out, &field);
      continue;
    }
    ngx_table_elt_t *line = ngx_list_push(&r->headers_out.headers);
    if (line == NULL) return -1;
    ngx_memzero(line, sizeof *line);
    line->hash = 1;
    line->key.data = (u_char *)field.name;
    line->key.len = field.name_len;
    line->value.data = (u_char *)field.value;
    line->value.len = field.value_len;
    if (set_place(r, &field, line) != 0) return -1;
  }
  return 0;
}

/* Adds a line whose value has room for `room` bytes; the caller writes it. NULL without memory. */
static ngx_table_elt_t *add_own(ngx_http_request_t *r, const char *name, size_t room) {
  ngx_table_elt_t *line = ngx_list_push(&r->headers_out.headers);
  u_char *text = ngx_pnalloc(r->pool, room);
  if (line == NULL) return NULL;
  ngx_memzero(line, sizeof *line);
  if (text == NULL) return NULL;
  line->hash = 1;
  line->key.data = (u_char *)name;
  line->key.len = ngx_strlen(name);
  line->value.data = text;
  return line;
}

/* Sets the Age (RFC 9111, 5.1), of the first answer too: a cache behind this one, and a browser,
 * then count on from it. */
static int set_age(ngx_http_request_t *r, const crl_ngx_ctx *ctx) {
  ngx_table_elt_t *line = add_own(r, "Age", NGX_INT64_LEN);
  if (line == NULL) return -1;
  line->value.len =
      (size_t)(ngx_sprintf(line->value.data, "%L", ctx->age_ms / 1000) - line->value.data);
  return 0;
}

/* The Date of the origin's answer, in seconds since 1970. */
static time_t date_of(const crl_ngx_ctx *ctx, const corral_page *record) {
  const ngx_time_t *now = ngx_timeofday();
  int64_t kept_ms = ngx_max(ctx->age_ms - (int64_t)record->age_s * 1000, 0);
  int64_t date_ms = (int64_t)now->sec * 1000 + (int64_t)now->msec - kept_ms + record->date_ms;
  return (time_t)((date_ms + 500) / 1000);
}

/* Sets the Date of the origin's answer: a cache doesn't renew it (RFC 9110, 6.6.1). */
static int set_date(ngx_http_request_t *r, const crl_ngx_ctx *ctx, const corral_page *record) {
  ngx_table_elt_t *line = add_own(r, "Date", sizeof "Mon, 28 Sep 1970 06:00:00 GMT");
  if (line == NULL) return -1;
  line->value.len =
      (size_t)(ngx_http_time(line->value.data, date_of(ctx, record)) - line->value.data);
  r->headers_out.date = line;
  return 0;
}

/* nginx's filter looks at all conditions; RFC 9110, 13.2.2: those by date count only where there is
 * none by entity tag. */
static void choose_conditions(ngx_http_headers_in_t *in) {
  if (in->if_match != NULL) in->if_unmodified_since = NULL;
  if (in->if_none_match != NULL) in->if_modified_since = NULL;
}

/* True for a condition by date about a page without Last-Modified, whose Date counts instead (RFC
 * 9111, 4.3.2), when that doesn't ask for the page. nginx's filter knows Last-Modified alone. */
static int is_known_by_date(ngx_http_request_t *r, const crl_ngx_ctx *ctx,
                            const corral_page *record) {
  const ngx_http_core_loc_conf_t *core = ngx_http_get_module_loc_conf(r, ngx_http_core_module);
  const ngx_table_elt_t *since = r->headers_in.if_modified_since;
  if (r != r->main || record->status != NGX_HTTP_OK || since == NULL || r->disable_not_modified ||
      r->headers_in.if_match != NULL || r->headers_in.if_unmodified_since != NULL ||
      core->if_modified_since == NGX_HTTP_IMS_OFF || r->headers_out.last_modified_time != -1)
    return 0;
  time_t moment = ngx_parse_http_time(since->value.data, since->value.len);
  return moment != NGX_ERROR && date_of(ctx, record) <= moment;
}

static void set_not_modified(ngx_http_request_t *r) {
  r->headers_out.status = NGX_HTTP_NOT_MODIFIED;
  r->headers_out.content_type.len = 0;
  r->allow_ranges = 0;
  ngx_http_clear_content_length(r);
  if (r->headers_out.content_encoding != NULL) r->headers_out.content_encoding->hash = 0;
}

ngx_int_t crl_ngx_reply_header(crl_ngx_ctx *ctx, const corral_page *record, off_t length) {
  ngx_http_request_t *r = ctx->r;
  ngx_int_t rc = r == r->main ? ngx_http_discard_request_body(r) : NGX_OK;
  if (rc != NGX_OK) return rc;
  r->err_status = 0; /* the page has the final one, and its own Location */
  ngx_http_clear_location(r);
  r->headers_out.status = record->status;
  r->headers_out.content_length_n = length;
  r->allow_ranges = 1;
  choose_conditions(&r->headers_in);
  if (set_fields(r, record) != 0 || set_age(r, ctx) != 0 || set_date(r, ctx, record) != 0)
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  if (is_known_by_date(r, ctx, record)) set_not_modified(r);
  return ngx_http_send_header(r);
}

ngx_int_t crl_ngx_reply(crl_ngx_ctx *ctx, corral_value *value, const corral_page *record) {
  ngx_http_request_t *r = ctx->r;
  ngx_pool_cleanup_t *cleanup = ngx_pool_cleanup_add(r->pool, 0);
  if (cleanup == NULL) {
    corral_value_unref(value);
    return NGX_HTTP_INTERNAL_SERVER_ERROR;
  }
  cleanup->data = value;
  cleanup->handler = release;
  ngx_int_t rc = crl_ngx_reply_header(ctx, record, (off_t)record->body_len);
  if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) return rc;
  ngx_buf_t *body = ngx_calloc_buf(r->pool);
  if (body == NULL) return NGX_ERROR;
  body->pos = body->start = (u_char *)record->body;
  body->last = body->end = body->pos + record->body_len;
  body->memory = record->body_len > 0;
  body->last_buf = r == r->main;
  body->last_in_chain = 1;
  body->sync = body->memory == 0 && !body->last_buf;
  ngx_chain_t out = {.buf = body};
  return ngx_http_output_filter(r, &out);
}
