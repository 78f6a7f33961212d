/* status.c: the handler of corral_status: what was counted of all zones, by all workers together,
 * as JSON, or as Prometheus' text with ?format=prometheus. */
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

u_char *crl_ngx_put_name(u_char *at, const ngx_str_t *name) {
  for (size_t i = 0; i < name->len; i++)
    *at++ =
        name->data[i] < ' ' || name->data[i] == '"' || name->data[i] == '\\' ? '_' : name->data[i];
  return at;
}

static const struct {
  const char *name, *family, *text;
} times[CRL_NGX_TIMES] = {
    {"wait", "corral_wait_seconds", "Time that requests spent waiting for others."},
    {"origin", "corral_origin_seconds", "Time that the origin took."},
    {"store", "corral_store_seconds", "Time that operations on the store took, with queues."}};

static const char *const wakes[CORRAL_WAKE_COUNT] = {
#define NAME(id, name) name,
    CORRAL_WAKE_MAP(NAME)
#undef NAME
};

enum { GAUGES = 6 };

/* Bytes of a row at most, but for its zone's name, and rows of a zone. */
enum { ROW = 128 };
enum {
  ROWS = CORRAL_EVENT_COUNT + CRL_NGX_OUTCOMES + CRL_NGX_TIMES * (CRL_NGX_BUCKETS + 4) + GAUGES +
         CORRAL_WAKE_COUNT + CORRAL_CONTROL_COUNT
};

/* ---- JSON ---------------------------------------------------------------------------------- */

static u_char *put_times(u_char *at, const crl_ngx_zone *zone) {
  for (ngx_uint_t t = 0; t < CRL_NGX_TIMES; t++) {
    const crl_ngx_histogram *histogram = &zone->counters->times[t];
    at = ngx_sprintf(at, "%s\"%s\":{\"sum_us\":%uA,\"le_ms\":{", t > 0 ? "," : "", times[t].name,
                     histogram->sum_us);
    for (ngx_uint_t i = 0; i < CRL_NGX_BUCKETS; i++)
      at = ngx_sprintf(at, "\"%uD\":%uA,", crl_ngx_bucket_ms[i], histogram->counts[i]);
    at = ngx_sprintf(at, "\"inf\":%uA}}", histogram->counts[CRL_NGX_BUCKETS]);
  }
  return at;
}

static u_char *put_json(u_char *at, const crl_ngx_zone *zone) {
  crl_ngx_gauges now = crl_ngx_gauges_of(zone);
  at = crl_ngx_put_name(ngx_cpymem(at, "\"", 1), &zone->name);
  at = ngx_sprintf(at, "\":{\"requests\":{");
  for (ngx_uint_t i = 1; i < CRL_NGX_OUTCOMES; i++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", i > 1 ? "," : "", crl_ngx_outcome_name((crl_ngx_outcome)i),
                     zone->counters->requests[i]);
  at = ngx_sprintf(at, "},\"events\":{");
  for (ngx_uint_t i = 0; i < CORRAL_EVENT_COUNT; i++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", i > 0 ? "," : "", corral_event_name((corral_event)i),
                     zone->counters->events[i]);
  at = ngx_sprintf(at,
                   "},\"now\":{\"calls\":%uA,\"leading\":%uA,\"waiting\":%uA,\"near\":%uA,"
                   "\"breaker\":%uA,\"store_up\":%s,\"wake\":{",
                   now.calls, now.leading, now.waiting, now.near, now.down,
                   now.down == 0 ? "true" : "false");
  for (ngx_uint_t w = 0; w < CORRAL_WAKE_COUNT; w++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", w > 0 ? "," : "", wakes[w], now.wake[w]);
  at = ngx_sprintf(at, "},\"orders\":{");
  for (int v = 1; v < CORRAL_CONTROL_DROP_NEAR; v++)
    at = ngx_sprintf(at, "%s\"%s\":%uA", v > 1 ? "," : "", corral_control_name((corral_control)v),
                     now.order[v]);
  at = ngx_sprintf(at, "}},\"times\":{");
  return ngx_sprintf(put_times(at, zone), "}}");
}

/* ---- Prometheus ---------------------------------------------------------------------------- */

static u_char *put_head(u_char *at, const char *family, const char *type, const char *text) {
  return ngx_sprintf(at, "# HELP %s %s\n# TYPE %s %s\n", family, text, family, type);
}

static u_char *put_zone(u_char *at, const char *family, const char *suffix,
                        const crl_ngx_zone *zone) {
  return ngx_sprintf(crl_ngx_put_name(ngx_sprintf(at, "%s%s{zone=\"", family, suffix), &zone->name),
                     "\"");
}

static u_char *put_row(u_char *at, const crl_ngx_zone *zone, const char *family, const char *label,
                       const char *name, ngx_atomic_uint_t number) {
  return ngx_sprintf(put_zone(at, family, "", zone), ",%s=\"%s\"} %uA\n", label, name, number);
}

static u_char *put_histogram(u_char *at, const crl_ngx_zone *zone, ngx_uint_t t) {
  const crl_ngx_histogram *histogram = &zone->counters->times[t];
  ngx_atomic_uint_t sum = 0, us = histogram->sum_us;
  for (ngx_uint_t i = 0; i < CRL_NGX_BUCKETS; i++) {
    sum += histogram->counts[i];
    at = ngx_sprintf(put_zone(at, times[t].family, "_bucket", zone), ",le=\"%uD.%03uD\"} %uA\n",
                     crl_ngx_bucket_ms[i] / 1000, crl_ngx_bucket_ms[i] % 1000, sum);
  }
  sum += histogram->counts[CRL_NGX_BUCKETS];
  at = ngx_sprintf(put_zone(at, times[t].family, "_bucket", zone), ",le=\"+Inf\"} %uA\n", sum);
  at = ngx_sprintf(put_zone(at, times[t].family, "_count", zone), "} %uA\n", sum);
  return ngx_sprintf(put_zone(at, times[t].family, "_sum", zone), "} %uA.%06uA\n", us / 1000000,
                     us % 1000000);
}

static u_char *put_gauge(u_char *at, crl_ngx_zone **zones, ngx_uint_t count, ngx_uint_t which) {
  static const char *const rows[GAUGES][2] = {
      {"corral_calls", "Requests under way: leading, waiting, or asking the store."},
      {"corral_leading", "Requests of these whose origin is being asked."},
      {"corral_waiting", "Requests of these that wait for another's, or for the store."},
      {"corral_near_bytes", "Room that copies in the workers take."},
      {"corral_breaker_open", "Servers of the store that rest, summed over the workers."},
      {"corral_store_up", "1: no worker finds a server of the store away."}};
  at = put_head(at, rows[which][0], "gauge", rows[which][1]);
  for (ngx_uint_t z = 0; z < count; z++) {
    crl_ngx_gauges now = crl_ngx_gauges_of(zones[z]);
    ngx_atomic_uint_t numbers[GAUGES] = {now.calls, now.leading, now.waiting,
                                         now.near,  now.down,    now.down == 0};
    at = ngx_sprintf(put_zone(at, rows[which][0], "", zones[z]), "} %uA\n", numbers[which]);
  }
  return at;
}

static u_char *put_prometheus(u_char *at, crl_ngx_zone **zones, ngx_uint_t count) {
  at = put_head(at, "corral_requests_total", "counter", "Requests, by how they were answered.");
  for (ngx_uint_t z = 0; z < count; z++)
    for (ngx_uint_t i = 1; i < CRL_NGX_OUTCOMES; i++)
      at = put_row(at, zones[z], "corral_requests_total", "status",
                   crl_ngx_outcome_name((crl_ngx_outcome)i), zones[z]->counters->requests[i]);
  at = put_head(at, "corral_events_total", "counter", "Events of the cache, by their name.");
  for (ngx_uint_t z = 0; z < count; z++)
    for (ngx_uint_t i = 0; i < CORRAL_EVENT_COUNT; i++)
      at = put_row(at, zones[z], "corral_events_total", "event", corral_event_name((corral_event)i),
                   zones[z]->counters->events[i]);
  for (ngx_uint_t which = 0; which < GAUGES; which++) at = put_gauge(at, zones, count, which);
  at = put_head(at, "corral_wake", "gauge", "Workers, by how they learn of changes in the store.");
  for (ngx_uint_t z = 0; z < count; z++)
    for (ngx_uint_t w = 0; w < CORRAL_WAKE_COUNT; w++)
      at = put_row(at, zones[z], "corral_wake", "mode", wakes[w],
                   crl_ngx_gauges_of(zones[z]).wake[w]);
  at = put_head(at, "corral_order", "gauge", "Workers that follow an operator's order.");
  for (ngx_uint_t z = 0; z < count; z++)
    for (int v = 1; v < CORRAL_CONTROL_DROP_NEAR; v++)
      at = put_row(at, zones[z], "corral_order", "order", corral_control_name((corral_control)v),
                   crl_ngx_gauges_of(zones[z]).order[v]);
  for (ngx_uint_t t = 0; t < CRL_NGX_TIMES; t++) {
    at = put_head(at, times[t].family, "histogram", times[t].text);
    for (ngx_uint_t z = 0; z < count; z++) at = put_histogram(at, zones[z], t);
  }
  return at;
}

/* ---- the handler --------------------------------------------------------------------------- */

ngx_int_t crl_ngx_status_handler(ngx_http_request_t *r) {
  crl_ngx_main_conf *conf = ngx_http_get_module_main_conf(r, ngx_http_corral_module);
  crl_ngx_zone **zones = conf->zones.elts;
  ngx_str_t text, format = ngx_null_string;
  if (!(r->method & (NGX_HTTP_GET | NGX_HTTP_HEAD))) return NGX_HTTP_NOT_ALLOWED;
  ngx_int_t rc = ngx_http_discard_request_body(r);
  if (rc != NGX_OK) return rc;
  size_t room = 4096;
  for (ngx_uint_t z = 0; z < conf->zones.nelts; z++) room += (ROW + zones[z]->name.len) * ROWS;
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
