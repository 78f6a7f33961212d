/* fields.c: the header fields that are stored with an answer, and sent to each client that gets it
 * from the store.
 *
 * Left out are those of one connection, with those that its Connection field names (RFC 9110,
 * 7.6.1), those that the record has elsewhere (Date, Age) or that each answer has of its own
 * (Server, Content-Length), and those meant for nginx (X-Accel-*). Fields that nginx
 * keeps outside of the list are added to it. */
#include "module.h"

int crl_ngx_field_is(const corral_page_field *field, const char *name) {
  return field->name_len == ngx_strlen(name) &&
         ngx_strncasecmp((u_char *)field->name, (u_char *)name, field->name_len) == 0;
}

/* True for fields that a page leaves out, and for those that are added from nginx's own
 * places. */
static int is_left_out(const corral_page_field *field) {
  return corral_page_leaves_out(field) || crl_ngx_redirect_is_field(field) ||
         crl_ngx_field_is(field, "content-type") || crl_ngx_field_is(field, "last-modified");
}

static int add(crl_ngx_response *response, const char *name, const u_char *value, size_t len) {
  corral_page_field field = {
      .name = (const u_char *)name, .name_len = ngx_strlen(name), .value = value, .value_len = len};
  if (response->count == CORRAL_PAGE_FIELDS) return -1;
  response->fields[response->count++] = field;
  return 0;
}

/* True when the list of a Connection field has this name. */
static int is_listed(const ngx_str_t *list, const corral_page_field *field) {
  for (const u_char *at = list->data, *end = at + list->len; at < end; at++) {
    const u_char *from = at;
    while (at < end && *at != ',' && *at != ' ' && *at != '\t') at++;
    if ((size_t)(at - from) == field->name_len &&
        ngx_strncasecmp((u_char *)from, (u_char *)field->name, field->name_len) == 0)
      return 1;
  }
  return 0;
}

/* True for fields that the origin's Connection names: they are of that connection alone (RFC 9110,
 * 7.6.1). nginx has its lines only in the raw header. */
static int is_of_connection(ngx_list_part_t *raw, const corral_page_field *field) {
  for (; raw != NULL; raw = raw->next) {
    ngx_table_elt_t *line = raw->elts;
    for (ngx_uint_t i = 0; i < raw->nelts; i++)
      if (line[i].key.len == 10 &&
          ngx_strncasecmp(line[i].key.data, (u_char *)"connection", 10) == 0 &&
          is_listed(&line[i].value, field))
        return 1;
  }
  return 0;
}

/* Adds the list of an answer's fields; `hash` 0 marks a removed one. */
static int add_list(crl_ngx_response *response, ngx_list_part_t *part, ngx_list_part_t *raw) {
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *from = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      corral_page_field field = {.name = from[i].key.data,
                                 .name_len = from[i].key.len,
                                 .value = from[i].value.data,
                                 .value_len = from[i].value.len};
      if (from[i].hash == 0 || field.name_len == 0 || is_left_out(&field) ||
          is_of_connection(raw, &field))
        continue;
      if (response->count == CORRAL_PAGE_FIELDS) return -1;
      response->fields[response->count++] = field;
    }
  }
  return 0;
}

/* With the charset, which nginx adds only when it writes the header. */
static int add_type(crl_ngx_response *response, ngx_http_headers_out_t *out, ngx_pool_t *pool) {
  ngx_str_t type = out->content_type;
  if (type.len == 0) return 0;
  if (out->charset.len > 0 && out->content_type_len == type.len) {
    u_char *text = ngx_pnalloc(pool, type.len + sizeof "; charset=" - 1 + out->charset.len);
    if (text == NULL) return -1;
    type.len =
        (size_t)(ngx_sprintf(text, "%V; charset=%V", &out->content_type, &out->charset) - text);
    type.data = text;
  }
  return add(response, "Content-Type", type.data, type.len);
}

static int add_modified(crl_ngx_response *response, ngx_http_headers_out_t *out, ngx_pool_t *pool) {
  if (out->last_modified != NULL && out->last_modified->hash != 0)
    return add(response, "Last-Modified", out->last_modified->value.data,
               out->last_modified->value.len);
  /* nginx sends the time of a file with these alone */
  if (out->last_modified_time == -1 ||
      (response->status != NGX_HTTP_OK && response->status != NGX_HTTP_PARTIAL_CONTENT))
    return 0;
  u_char *text = ngx_pnalloc(pool, sizeof "Mon, 28 Sep 1970 06:00:00 GMT");
  return text == NULL ? -1
                      : add(response, "Last-Modified", text,
                            (size_t)(ngx_http_time(text, out->last_modified_time) - text));
}

int crl_ngx_fields_collect(const crl_ngx_ctx *ctx, ngx_http_request_t *sr,
                           crl_ngx_response *response) {
  ngx_http_headers_out_t *out = &sr->headers_out;
  ngx_list_part_t *raw = sr->upstream != NULL ? &sr->upstream->headers_in.headers.part : NULL;
  return add_type(response, out, sr->pool) == 0 && add_modified(response, out, sr->pool) == 0 &&
                 crl_ngx_redirect_add(ctx, sr, response) == 0
             ? add_list(response, &out->headers.part, raw)
             : -1;
}
