/* counters.c: what is counted of a zone, in shared memory: for all workers of this host together,
 * and across reloads. Gauges are each worker's own; those of a worker that died end when its
 * successor begins. */
#include "module.h"

const uint32_t crl_ngx_bucket_ms[CRL_NGX_BUCKETS] = {1,   2,   5,    10,   25,   50,   100,
                                                     250, 500, 1000, 2500, 5000, 10000};

static ngx_int_t init_shared(ngx_shm_zone_t *shared, void *before) {
  crl_ngx_zone *zone = shared->data, *older = before;
  ngx_slab_pool_t *slab = (ngx_slab_pool_t *)shared->shm.addr;
  if (older != NULL) {
    zone->counters = older->counters;
    return NGX_OK;
  }
  if (shared->shm.exists) {
    zone->counters = slab->data;
    return NGX_OK;
  }
  zone->counters = ngx_slab_calloc(slab, sizeof *zone->counters);
  slab->data = zone->counters;
  return zone->counters != NULL ? NGX_OK : NGX_ERROR;
}

char *crl_ngx_zone_declare(ngx_conf_t *cf, crl_ngx_zone *zone) {
  ngx_str_t name = {.len = sizeof "corral:" - 1 + zone->name.len};
  name.data = ngx_pnalloc(cf->pool, name.len);
  if (name.data == NULL) return NGX_CONF_ERROR;
  ngx_memcpy(ngx_cpymem(name.data, "corral:", sizeof "corral:" - 1), zone->name.data,
             zone->name.len);
  ngx_shm_zone_t *shared =
      ngx_shared_memory_add(cf, &name, 2 * sizeof *zone->counters, &ngx_http_corral_module);
  if (shared == NULL) return NGX_CONF_ERROR;
  shared->init = init_shared;
  shared->data = zone;
  return NGX_CONF_OK;
}

/* ---- histograms ---------------------------------------------------------------------------- */

static void note_time(crl_ngx_zone *zone, crl_ngx_time what, int64_t us) {
  crl_ngx_histogram *histogram = &zone->counters->times[what];
  ngx_uint_t i = 0;
  if (us < 0) return;
  while (i < CRL_NGX_BUCKETS && us > (int64_t)crl_ngx_bucket_ms[i] * 1000) i++;
  (void)ngx_atomic_fetch_add(&histogram->counts[i], 1);
  (void)ngx_atomic_fetch_add(&histogram->sum_us, (ngx_atomic_int_t)us);
}

static void note_duration(crl_ngx_zone *zone, const corral_event_info *info) {
  switch (info->event) {
    case CORRAL_EVENT_COMPUTED:
    case CORRAL_EVENT_FAILURE: note_time(zone, CRL_NGX_TIME_ORIGIN, info->duration_us); break;
    case CORRAL_EVENT_HIT:
    case CORRAL_EVENT_CLAIM:
    case CORRAL_EVENT_FILL:
    case CORRAL_EVENT_REFRESH:
    case CORRAL_EVENT_STORE_ERROR: note_time(zone, CRL_NGX_TIME_STORE, info->duration_us); break;
    default: break;
  }
}

/* ---- purges -------------------------------------------------------------------------------- */

void crl_ngx_zone_purged(crl_ngx_zone *zone) {
  (void)ngx_atomic_fetch_add(&zone->counters->purges, 1);
}

/* ---- gauges -------------------------------------------------------------------------------- */

static crl_ngx_gauges *own_gauges(crl_ngx_zone *zone) {
  ngx_uint_t slot = (ngx_uint_t)ngx_process_slot;
  return &zone->counters->gauges[slot < CRL_NGX_PROCESSES ? slot : 0];
}

void crl_ngx_gauges_reset(crl_ngx_zone *zone) {
  crl_ngx_gauges *own = own_gauges(zone);
  ngx_memzero(own, sizeof *own);
}

void crl_ngx_gauge_calls(crl_ngx_zone *zone) {
  crl_ngx_gauges *own = own_gauges(zone);
  own->calls = zone->calls;
  if (!zone->is_closing) own->near = corral_near_used(zone->c);
}

void crl_ngx_gauge_leading(crl_ngx_zone *zone, int more) {
  (void)ngx_atomic_fetch_add(&own_gauges(zone)->leading, (ngx_atomic_int_t)more);
}

void crl_ngx_gauge_waiting(crl_ngx_zone *zone, int more) {
  (void)ngx_atomic_fetch_add(&own_gauges(zone)->waiting, (ngx_atomic_int_t)more);
}

crl_ngx_gauges crl_ngx_gauges_of(const crl_ngx_zone *zone) {
  crl_ngx_gauges sum;
  ngx_memzero(&sum, sizeof sum);
  for (ngx_uint_t i = 0; i < CRL_NGX_PROCESSES; i++) {
    sum.calls += zone->counters->gauges[i].calls;
    sum.leading += zone->counters->gauges[i].leading;
    sum.waiting += zone->counters->gauges[i].waiting;
    sum.down += zone->counters->gauges[i].down;
    sum.near += zone->counters->gauges[i].near;
    for (ngx_uint_t w = 0; w < CORRAL_WAKE_COUNT; w++)
      sum.wake[w] += zone->counters->gauges[i].wake[w];
    for (ngx_uint_t v = 0; v < CORRAL_CONTROL_COUNT; v++)
      sum.order[v] += zone->counters->gauges[i].order[v];
  }
  return sum;
}

/* ---- events -------------------------------------------------------------------------------- */

static void note_wake(crl_ngx_zone *zone, int wake) {
  for (int w = 0; w < CORRAL_WAKE_COUNT; w++) own_gauges(zone)->wake[w] = w == wake;
}

/* None is counted as long as the worker follows no order. */
static void note_order(crl_ngx_zone *zone) {
  corral_control_state now = {.size = sizeof now};
  if (corral_control_followed(zone->c, &now) != CORRAL_OK) return;
  for (int v = 1; v < CORRAL_CONTROL_COUNT; v++) own_gauges(zone)->order[v] = v == (int)now.verb;
}

/* Called from any thread. */
void crl_ngx_count_event(const corral_event_info *info, void *arg) {
  crl_ngx_zone *zone = arg;
  (void)ngx_atomic_fetch_add(&zone->counters->events[info->event], 1);
  note_duration(zone, info);
  if (info->event == CORRAL_EVENT_WARNING || info->event == CORRAL_EVENT_CONTROL)
    ngx_log_error(crl_ngx_level(info->event), ngx_cycle->log, 0, "corral_zone \"%V\": %s%s",
                  &zone->name, info->event == CORRAL_EVENT_CONTROL ? "an operator's order: " : "",
                  info->detail);
  if (info->event == CORRAL_EVENT_CONTROL) note_order(zone);
  if (info->event == CORRAL_EVENT_WATCH) note_wake(zone, info->wake);
  if (info->event != CORRAL_EVENT_STORE_DOWN && info->event != CORRAL_EVENT_STORE_UP) return;
  (void)ngx_atomic_fetch_add(info->event == CORRAL_EVENT_STORE_DOWN ? &zone->downs : &zone->ups, 1);
  ngx_atomic_uint_t downs = zone->downs, ups = zone->ups;
  own_gauges(zone)->down = downs > ups ? downs - ups : 0;
}

/* ---- requests ------------------------------------------------------------------------------ */

/* The reason for an answer that isn't the usual one; NULL: there is nothing to tell. */
static const char *reason_of(const crl_ngx_ctx *ctx) {
  switch (ctx->outcome) {
    case CRL_NGX_PASS: return ctx->detail != NULL ? ctx->detail : "it can't be kept";
    case CRL_NGX_ERROR: return ctx->detail != NULL ? ctx->detail : "failed";
    case CRL_NGX_STALE: return "rebuilding fails";
    default: return NULL;
  }
}

void crl_ngx_count(crl_ngx_ctx *ctx) {
  const char *reason = reason_of(ctx);
  if (ctx->is_counted) return;
  ctx->is_counted = 1;
  (void)ngx_atomic_fetch_add(&ctx->zone->counters->requests[ctx->outcome], 1);
  if (ctx->outcome == CRL_NGX_COLLAPSED || (ctx->waited > 0 && !ctx->has_led))
    note_time(ctx->zone, CRL_NGX_TIME_WAIT, (int64_t)ctx->waited * 1000);
  if (reason != NULL)
    ngx_log_error(NGX_LOG_INFO, ctx->r->connection->log, 0, "corral: %s (%s): \"%V\"",
                  crl_ngx_outcome_name(ctx->outcome), reason, &ctx->key);
}
