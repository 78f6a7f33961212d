/* status.c: the handler of corral_status: the counters of all zones, of all workers together, as
 * JSON, or as Prometheus' text with ?format=prometheus. */
#include "module.h"

ngx_int_t crl_ngx_send_text(ngx_http_request_t *r, ngx_uint_t status, const char *type,
                            const ngx_str_t *text) {
  ngx_buf_t *body = ngx_calloc_buf(r->pool);
  if (body == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  r->headers_out.status = status;
  r->headers_out.content_type.data = (u_char *)type;
  r->headers_out.content_type.len = r->headers_out.content_type_len = ngx_strlen(type);
  r->headers_out.content_type_lowcase = NULL;
  r->headers_out.content_length_n = (off_t)text->len;
  ngx_int_t rc = ngx_http_send_header(r);
  if (rc == NGX_ERROR || rc > NGX_OK || r->header_only) return rc;
  body->pos = text->data;
  body->last = text->data + text->len;
  body->memory = 1;
  body->last_buf = r == r->main;
  body->last_in_chain = 1;
  ngx_chain_t out = {.buf = body};
  return ngx_http_output_filter(r, &out);
}

/* Writes a zone's name for both JSON and Prometheus: quotes, backslashes and controls become
 * '_'. */
static u_char *put_name(u_char *at, const ngx_str_t *name) {
  for (size_t i = 0; i < name->len; i++)
    *at++ =
        name->data[i] < ' ' || name->data[i] == '"' || name->data[i] == '\\' ? '_' : name->data[i];
  return at;
}

enum { ROW = 96 }; /* a counter's name and number, with the text around them */

static u_char *put_json(u_char *at, const crl_ngx_zone *zone) {
  at = put_name(ngx_cpymem(at, "\"", 1), &zone->name);
  at = ngx_sprintf(at, "\":{\"requests\":{");
  for (ngx_uint_t i = 1; i < CRL_NGX_OUTCOMES; i++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", i > 1 ? "," : "", crl_ngx_outcome_name((crl_ngx_outcome)i),
                     zone->counters->requests[i]);
  at = ngx_sprintf(at, "},\"events\":{");
  for (ngx_uint_t i = 0; i < CORRAL_EVENT_COUNT; i++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", i > 0 ? "," : "", corral_event_name((corral_event)i),
                     zone->counters->events[i]);
  return ngx_sprintf(at, "}}");
}

static u_char *put_row(u_char *at, const crl_ngx_zone *zone, const char *family, const char *label,
                       const char *name, ngx_atomic_uint_t number) {
  at = put_name(ngx_sprintf(at, "%s{zone=\"", family), &zone->name);
  return ngx_sprintf(at, "\",%s=\"%s\"} %uA\n", label, name, number);
}

static u_char *put_prometheus(u_char *at, crl_ngx_zone **zones, ngx_uint_t count) {
  at = ngx_sprintf(at, "# HELP corral_requests_total Requests, by how they were answered.\n# TYPE "
                       "corral_requests_total counter\n");
  for (ngx_uint_t z = 0; z < count; z++)
    for (ngx_uint_t i = 1; i < CRL_NGX_OUTCOMES; i++)
      at = put_row(at, zones[z], "corral_requests_total", "status",
                   crl_ngx_outcome_name((crl_ngx_outcome)i), zones[z]->counters->requests[i]);
  at = ngx_sprintf(at, "# HELP corral_events_total Events of the cache, by their name.\n# TYPE "
                       "corral_events_total counter\n");
  for (ngx_uint_t z = 0; z < count; z++)
    for (ngx_uint_t i = 0; i < CORRAL_EVENT_COUNT; i++)
      at = put_row(at, zones[z], "corral_events_total", "event", corral_event_name((corral_event)i),
                   zones[z]->counters->events[i]);
  return at;
}

ngx_int_t crl_ngx_status_handler(ngx_http_request_t *r) {
  crl_ngx_main_conf *conf = ngx_http_get_module_main_conf(r, ngx_http_corral_module);
  crl_ngx_zone **zones = conf->zones.elts;
  ngx_str_t text, format = ngx_null_string;
  if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD))) return NGX_HTTP_NOT_ALLOWED;
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  size_t room = 512;
  for (ngx_uint_t z = 0; z < conf->zones.nelts; z++)
    room += (ROW + zones[z]->name.len) * (CORRAL_EVENT_COUNT + CRL_NGX_OUTCOMES + 2);
  text.data = ngx_pnalloc(r->pool, room);
  if (text.data == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  (void)ngx_http_arg(r, (u_char *)"format", 6, &format);
  ngx_uint_t is_prometheus = format.len == 10 && ngx_strncmp(format.data, "prometheus", 10) == 0;
  u_char *at = text.data;
  if (is_prometheus) {
    at = put_prometheus(at, zones, conf->zones.nelts);
  } else {
    at = ngx_sprintf(at, "{\"version\":\"%s\",\"zones\":{", corral_version());
    for (ngx_uint_t z = 0; z < conf->zones.nelts; z++)
      at = put_json(z > 0 ? ngx_cpymem(at, ",", 1) : at, zones[z]);
    at = ngx_sprintf(at, "}}\n");
  }
  text.len = (size_t)(at - text.data);
  return crl_ngx_send_text(r, NGX_HTTP_OK,
                           is_prometheus ? "text/plain; version=0.0.4" : "application/json", &text);
}
