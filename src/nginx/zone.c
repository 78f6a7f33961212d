/* zone.c: a zone: one corral and one corral_loop in each worker.
 *
 * The loop's descriptor is a connection of nginx without a client: level-triggered, and marked as a
 * channel, so that nginx neither closes it as idle nor waits for it when the worker shuts down. A
 * timer runs while calls are under way, since a worker that shuts down lives as long as there are
 * timers. */
#include "stream.h"

enum { HOLD_MS = 1000 };

crl_ngx_zone *crl_ngx_zone_find(crl_ngx_main_conf *conf, const ngx_str_t *name) {
  crl_ngx_zone **zones = conf->zones.elts;
  for (ngx_uint_t i = 0; i < conf->zones.nelts; i++)
    if (zones[i]->name.len == name->len &&
        ngx_memcmp(zones[i]->name.data, name->data, name->len) == 0)
      return zones[i];
  return NULL;
}

/* Logs the store's going and return, on nginx's own thread. */
static void tell(crl_ngx_zone *zone) {
  ngx_atomic_uint_t downs = ngx_atomic_fetch_add(&zone->downs, 0),
                    ups = ngx_atomic_fetch_add(&zone->ups, 0);
  if (downs != zone->told_downs)
    ngx_log_error(crl_ngx_level(CORRAL_EVENT_STORE_DOWN), ngx_cycle->log, 0,
                  "corral_zone \"%V\": the store doesn't answer: requests go on without it",
                  &zone->name);
  if (ups != zone->told_ups)
    ngx_log_error(crl_ngx_level(CORRAL_EVENT_STORE_UP), ngx_cycle->log, 0,
                  "corral_zone \"%V\": the store answers again", &zone->name);
  zone->told_downs = downs;
  zone->told_ups = ups;
}

/* ---- the loop ------------------------------------------------------------------------------ */

static void on_readable(ngx_event_t *event) {
  ngx_connection_t *connection = event->data;
  crl_ngx_zone *zone = connection->data;
  event->ready = 0;
  corral_loop_dispatch(zone->loop);
  tell(zone);
}

static void on_hold(ngx_event_t *event) {
  crl_ngx_zone *zone = event->data;
  if (zone->calls > 0) ngx_add_timer(event, HOLD_MS);
}

void crl_ngx_zone_hold(crl_ngx_zone *zone) {
  if (zone->calls++ == 0 && !zone->hold.timer_set) ngx_add_timer(&zone->hold, HOLD_MS);
  crl_ngx_gauge_calls(zone);
}

void crl_ngx_zone_release(crl_ngx_zone *zone) {
  zone->calls--;
  crl_ngx_gauge_calls(zone);
  if (zone->calls == 0 && ngx_exiting && zone->hold.timer_set) ngx_del_timer(&zone->hold);
}

/* The descriptor is the loop's, and stays open. */
static void drop(ngx_connection_t *connection) {
  ngx_free_connection(connection);
  connection->fd = (ngx_socket_t)-1;
}

static ngx_int_t watch(crl_ngx_zone *zone, ngx_cycle_t *cycle) {
  ngx_connection_t *connection = ngx_get_connection(corral_loop_fd(zone->loop), cycle->log);
  if (connection == NULL) return NGX_ERROR;
  connection->data = zone;
  connection->read->handler = on_readable;
  connection->read->log = connection->write->log = cycle->log;
  connection->read->channel = 1;
  connection->write->channel = 1;
  if (ngx_add_event(connection->read, NGX_READ_EVENT, NGX_LEVEL_EVENT) != NGX_OK) {
    drop(connection);
    return NGX_ERROR;
  }
  zone->connection = connection;
  zone->hold.handler = on_hold;
  zone->hold.data = zone;
  zone->hold.log = cycle->log;
  return NGX_OK;
}

static void close_zone(crl_ngx_zone *zone) {
  zone->is_closing = 1;
  if (zone->connection != NULL) {
    (void)ngx_del_event(zone->connection->read, NGX_READ_EVENT, 0);
    drop(zone->connection);
    zone->connection = NULL;
  }
  corral_loop_close(zone->loop);
  corral_close(zone->c);
  zone->loop = NULL;
  zone->c = NULL;
  if (zone->hold.timer_set) ngx_del_timer(&zone->hold);
}

static void open_zone(crl_ngx_zone *zone, ngx_cycle_t *cycle) {
  corral_error error;
  ngx_memzero(&error, sizeof error);
  zone->options.on_event = crl_ngx_count_event;
  zone->options.event_arg = zone;
  if (corral_open(&zone->options, &zone->c, &error) == CORRAL_OK &&
      corral_loop_open(zone->c, &zone->loop, &error) == CORRAL_OK && watch(zone, cycle) == NGX_OK &&
      crl_ngx_flights_init(zone, cycle->pool) == NGX_OK)
    return;
  ngx_log_error(NGX_LOG_ALERT, cycle->log, 0, "corral_zone \"%V\": %s; this worker goes without it",
                &zone->name, error.text[0] != '\0' ? error.text : "its loop can't be watched");
  close_zone(zone);
}

static crl_ngx_main_conf *main_conf_of(ngx_cycle_t *cycle) {
  return ngx_get_conf(cycle->conf_ctx, ngx_http_module) != NULL
             ? ngx_http_cycle_get_module_main_conf(cycle, ngx_http_corral_module)
             : NULL;
}

ngx_int_t crl_ngx_zone_init_process(ngx_cycle_t *cycle) {
  crl_ngx_main_conf *conf = main_conf_of(cycle);
  if (conf == NULL || (ngx_process != NGX_PROCESS_WORKER && ngx_process != NGX_PROCESS_SINGLE))
    return NGX_OK;
  crl_ngx_zone **zones = conf->zones.elts;
  for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
    crl_ngx_gauges_reset(zones[i]);
    open_zone(zones[i], cycle);
  }
  return NGX_OK;
}

void crl_ngx_zone_exit_process(ngx_cycle_t *cycle) {
  crl_ngx_main_conf *conf = main_conf_of(cycle);
  if (conf == NULL) return;
  crl_ngx_zone **zones = conf->zones.elts;
  for (ngx_uint_t i = 0; i < conf->zones.nelts; i++) {
    close_zone(zones[i]);
    crl_ngx_gauges_reset(zones[i]);
  }
}
