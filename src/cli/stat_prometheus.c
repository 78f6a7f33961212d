/* stat_prometheus.c: the counts of this host as Prometheus' text, for node_exporter's collector of
 * text files. No key is a label. Families have the names of nginx' status where they tell the
 * same. */
#include "stat.h"

/* Bounds of the buckets, in us. A time is counted by the bucket of the library that it was in,
 * which is 6 % wide at most. */
static const uint64_t bounds_us[] = {
    100,    250,    500,     1000,    2500,    5000,     10000,    25000,    50000,    100000,
    250000, 500000, 1000000, 2500000, 5000000, 10000000, 30000000, 60000000, 300000000};

enum { BOUNDS = sizeof bounds_us / sizeof bounds_us[0] };

/* A writing. `all` has the caches at each store, `named` the sums by name. */
typedef struct page {
  FILE *f;
  const stat_host *all, *named;
} page;

/* ---- lines --------------------------------------------------------------------------------- */

static void head(const page *p, const char *family, const char *type, const char *text) {
  (void)fprintf(p->f, "# HELP %s %s\n# TYPE %s %s\n", family, text, family, type);
}

/* Texts have no line ends. */
static void label(const page *p, const char *before, const char *name, const char *value) {
  (void)fprintf(p->f, "%s%s=\"", before, name);
  for (; *value != '\0'; value++) {
    if (*value == '"' || *value == '\\') (void)fputc('\\', p->f);
    (void)fputc(*value, p->f);
  }
  (void)fputc('"', p->f);
}

/* The family with the labels of the cache, and one more (`name` NULL: none). */
static void begin(const page *p, const char *family, const char *suffix, const stat_cache *c,
                  const char *name, const char *value) {
  (void)fprintf(p->f, "%s%s", family, suffix);
  label(p, "{", "cache", c->name);
  if (c->store != NULL) label(p, ",", "store", c->store);
  if (name != NULL) label(p, ",", name, value);
}

static void number(const page *p, uint64_t n) {
  (void)fprintf(p->f, "} %llu\n", (unsigned long long)n);
}

static void seconds(const page *p, uint64_t us) {
  (void)fprintf(p->f, "} %llu.%06llu\n", (unsigned long long)(us / 1000000),
                (unsigned long long)(us % 1000000));
}

/* ---- counters ------------------------------------------------------------------------------ */

static void gets(const page *p) {
  head(p, "corral_gets_total", "counter", "Calls for one value, by how they ended.");
  for (size_t i = 0; i < p->named->cache_count; i++)
    for (unsigned r = 0; r < CORRAL_RESULT_COUNT; r++) {
      begin(p, "corral_gets_total", "", p->named->caches[i], "result",
            corral_result_name((corral_result)r));
      number(p, p->named->caches[i]->counts.results[r]);
    }
}

static void events(const page *p) {
  head(p, "corral_events_total", "counter", "Events of the cache, by their name.");
  for (size_t i = 0; i < p->named->cache_count; i++)
    for (unsigned e = 0; e < CORRAL_EVENT_COUNT; e++) {
      begin(p, "corral_events_total", "", p->named->caches[i], "event",
            corral_event_name((corral_event)e));
      number(p, p->named->caches[i]->counts.events[e]);
    }
}

static void refused(const page *p) {
  static const corral_event reasons[] = {CORRAL_EVENT_FENCED, CORRAL_EVENT_UNSTORED,
                                         CORRAL_EVENT_OLDER};
  head(p, "corral_fills_refused_total", "counter", "Computed values that were not stored.");
  for (size_t i = 0; i < p->named->cache_count; i++)
    for (size_t r = 0; r < sizeof reasons / sizeof reasons[0]; r++) {
      begin(p, "corral_fills_refused_total", "", p->named->caches[i], "reason",
            corral_event_name(reasons[r]));
      number(p, p->named->caches[i]->counts.events[reasons[r]]);
    }
}

static void saved(const page *p) {
  head(p, "corral_origin_seconds_saved_total", "counter",
       "Time that the answers without a compute would have taken the origin.");
  for (size_t i = 0; i < p->named->cache_count; i++) {
    begin(p, "corral_origin_seconds_saved_total", "", p->named->caches[i], NULL, NULL);
    seconds(p, p->named->caches[i]->counts.saved_us);
  }
}

/* ---- histograms ---------------------------------------------------------------------------- */

/* Times in the buckets that end by `us`; `*at` goes on with the next one. */
static uint64_t times_until(const corral_histogram *h, uint64_t us, size_t *at) {
  uint64_t sum = 0;
  for (; *at < CORRAL_HISTOGRAM_BUCKETS && corral_histogram_bound(*at) <= us; ++*at)
    sum += h->buckets[*at];
  return sum;
}

/* A histogram without a time yet is left out. `verb` NULL: without that label. */
static void histogram(const page *p, const char *family, const stat_cache *c, corral_time time,
                      const char *verb) {
  const corral_histogram *h = &c->counts.times[time];
  const char *name = verb != NULL ? "verb" : NULL;
  uint64_t sum = 0;
  size_t at = 0;
  if (h->count == 0) return;
  for (size_t i = 0; i < BOUNDS; i++) {
    sum += times_until(h, bounds_us[i], &at);
    begin(p, family, "_bucket", c, name, verb);
    (void)fprintf(p->f, ",le=\"%g\"", (double)bounds_us[i] / 1e6);
    number(p, sum);
  }
  sum += times_until(h, UINT64_MAX, &at);
  begin(p, family, "_bucket", c, name, verb);
  (void)fputs(",le=\"+Inf\"", p->f);
  number(p, sum);
  begin(p, family, "_sum", c, name, verb);
  seconds(p, h->sum_us);
  begin(p, family, "_count", c, name, verb);
  number(p, sum);
}

static void time_of(const page *p, const char *family, corral_time time, const char *text) {
  head(p, family, "histogram", text);
  for (size_t i = 0; i < p->named->cache_count; i++)
    histogram(p, family, p->named->caches[i], time, NULL);
}

static void times(const page *p) {
  static const corral_time verbs[] = {CORRAL_TIME_GET,        CORRAL_TIME_CLAIM,
                                      CORRAL_TIME_SETTLE,     CORRAL_TIME_EXTEND,
                                      CORRAL_TIME_INVALIDATE, CORRAL_TIME_LOCK};
  time_of(p, "corral_compute_seconds", CORRAL_TIME_COMPUTE, "Time that computes took.");
  time_of(p, "corral_wait_seconds", CORRAL_TIME_WAIT,
          "Time spent waiting for a compute elsewhere, or for a slow store.");
  time_of(p, "corral_lock_wait_seconds", CORRAL_TIME_LOCK_WAIT,
          "Time from asking for a lock to its grant.");
  time_of(p, "corral_lock_hold_seconds", CORRAL_TIME_LOCK_HOLD, "Time that locks were held.");
  head(p, "corral_store_op_seconds", "histogram", "Time that operations on the store took.");
  for (size_t i = 0; i < p->all->cache_count; i++)
    for (size_t v = 0; v < sizeof verbs / sizeof verbs[0]; v++)
      histogram(p, "corral_store_op_seconds", p->all->caches[i], verbs[v],
                corral_time_name(verbs[v]));
}

/* ---- gauges -------------------------------------------------------------------------------- */

static void gauge(const page *p, const stat_host *h, const char *family, corral_gauge which,
                  const char *text) {
  head(p, family, "gauge", text);
  for (size_t i = 0; i < h->cache_count; i++) {
    int64_t now = h->caches[i]->gauges[which];
    begin(p, family, "", h->caches[i], NULL, NULL);
    number(p, now > 0 ? (uint64_t)now : 0);
  }
}

/* The longest is told first. */
static int take_compute(const corral_flight *flight, void *arg) {
  int64_t *longest_ms = arg;
  if (flight->state != CORRAL_FLIGHT_COMPUTE) return 0;
  *longest_ms = flight->since_ms;
  return 1;
}

static void oldest(const page *p) {
  static const char family[] = "corral_oldest_flight_seconds";
  head(p, family, "gauge", "Time since the oldest compute under way began.");
  for (size_t i = 0; i < p->named->cache_count; i++) {
    int64_t longest_ms = 0;
    (void)corral_stats_flights(p->named->caches[i]->sum, take_compute, &longest_ms);
    begin(p, family, "", p->named->caches[i], NULL, NULL);
    seconds(p, longest_ms > 0 ? (uint64_t)longest_ms * 1000 : 0);
  }
}

static void wake(const page *p) {
  head(p, "corral_wake", "gauge", "Processes, by how they learn of changes in the store.");
  for (size_t i = 0; i < p->all->cache_count; i++)
    for (size_t w = 0; w < CORRAL_WAKE_COUNT; w++) {
      begin(p, "corral_wake", "", p->all->caches[i], "mode", stat_wake_names[w]);
      number(p, p->all->caches[i]->wake[w]);
    }
}

static void processes(const page *p) {
  head(p, "corral_processes", "gauge", "Processes with an open corral, by its version.");
  if (p->all->process_count == 0) {
    label(p, "corral_processes{", "version", corral_version());
    number(p, 0);
  }
  for (size_t i = 0; i < p->all->process_count; i++) {
    bool is_first;
    size_t count = stat_of_version(p->all, i, &is_first);
    if (!is_first) continue;
    label(p, "corral_processes{", "version", p->all->processes[i].version);
    number(p, count);
  }
}

/* ---- the page ------------------------------------------------------------------------------ */

bool stat_print_prometheus(const stat_host *h, FILE *f, corral_error *error) {
  stat_host named;
  page p = {.f = f, .all = h, .named = &named};
  bool ok = stat_by_name(h, &named, error);
  processes(&p);
  if (ok && h->cache_count > 0) {
    gets(&p);
    events(&p);
    refused(&p);
    saved(&p);
    times(&p);
    gauge(&p, &named, "corral_flights", CORRAL_GAUGE_FLIGHTS, "Computes under way.");
    gauge(&p, &named, "corral_waiting", CORRAL_GAUGE_WAITING, "Calls that wait for a compute.");
    oldest(&p);
    gauge(&p, &named, "corral_near_bytes", CORRAL_GAUGE_NEAR_BYTES,
          "Room that copies in the processes take.");
    gauge(&p, &named, "corral_outbox_bytes", CORRAL_GAUGE_OUTBOX_BYTES,
          "Room that the outboxes take.");
    gauge(&p, &named, "corral_locks_held", CORRAL_GAUGE_LOCKS_HELD, "Locks that are held.");
    gauge(&p, h, "corral_breaker_open", CORRAL_GAUGE_BREAKERS_OPEN,
          "Servers of the store that rest, summed over the processes.");
    wake(&p);
  }
  stat_drop(&named);
  return ok;
}
