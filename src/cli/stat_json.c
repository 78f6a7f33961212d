/* stat_json.c: the counts of this host as one object of JSON. */
#include "stat.h"

#include <string.h>

static void text(const char *before, const char *value) {
  (void)fputs(before, stdout);
  cli_json_string(stdout, value, strlen(value));
}

static void number(const char *before, const char *name, uint64_t n) {
  (void)printf("%s\"%s\":%llu", before, name, (unsigned long long)n);
}

static void put_times(const stat_counts *c) {
  static const struct {
    const char *name;
    double share;
  } quantiles[] = {
      {"p50_us", .5}, {"p90_us", .9}, {"p99_us", .99}, {"p999_us", .999}, {"max_us", 1}};
  for (unsigned t = 0; t < CORRAL_TIME_COUNT; t++) {
    const corral_histogram *h = &c->times[t];
    text(t > 0 ? "," : "", corral_time_name((corral_time)t));
    number(":{", "count", h->count);
    number(",", "sum_us", h->sum_us);
    for (size_t q = 0; q < sizeof quantiles / sizeof quantiles[0]; q++)
      number(",", quantiles[q].name, corral_histogram_quantile(h, quantiles[q].share));
    (void)putchar('}');
  }
}

static void put_now(const stat_cache *c) {
  number("", "processes", c->processes);
  for (unsigned g = 0; g < CORRAL_GAUGE_COUNT; g++)
    if (g != CORRAL_GAUGE_WAKE)
      number(",", corral_gauge_name((corral_gauge)g),
             c->gauges[g] > 0 ? (uint64_t)c->gauges[g] : 0);
  (void)fputs(",\"wake\":{", stdout);
  for (unsigned w = 0; w < CORRAL_WAKE_COUNT; w++)
    number(w > 0 ? "," : "", stat_wake_names[w], c->wake[w]);
  (void)putchar('}');
}

static void put_cache(const stat_cache *c) {
  uint64_t all = stat_gets(&c->counts);
  text("{\"cache\":", c->name);
  text(",\"store\":", c->store);
  number(",", "gets", all);
  (void)fputs(",\"results\":{", stdout);
  for (unsigned r = 0; r < CORRAL_RESULT_COUNT; r++)
    number(r > 0 ? "," : "", corral_result_name((corral_result)r), c->counts.results[r]);
  if (all > 0)
    (void)printf("},\"hit_ratio\":%.6f", (double)stat_hits(&c->counts) / (double)all);
  else
    (void)fputs("},\"hit_ratio\":null", stdout);
  number(",", "computes", c->counts.events[CORRAL_EVENT_COMPUTE]);
  number(",", "computes_saved", stat_spared(&c->counts));
  number(",", "origin_saved_us", c->counts.saved_us);
  (void)fputs(",\"now\":{", stdout);
  put_now(c);
  (void)fputs("},\"times\":{", stdout);
  put_times(&c->counts);
  (void)fputs("},\"events\":{", stdout);
  for (unsigned e = 0; e < CORRAL_EVENT_COUNT; e++)
    number(e > 0 ? "," : "", corral_event_name((corral_event)e), c->counts.events[e]);
  (void)fputs("}}", stdout);
}

static void put_processes(const stat_host *h) {
  for (size_t i = 0; i < h->process_count; i++) {
    const stat_process *p = &h->processes[i];
    (void)printf("%s{\"pid\":%lld,\"started_ms\":%lld", i > 0 ? "," : "", (long long)p->pid,
                 (long long)p->started_ms);
    text(",\"program\":", p->program);
    text(",\"version\":", p->version);
    (void)putchar('}');
  }
}

void stat_print_json(const stat_host *h) {
  (void)fputs("{\"processes\":[", stdout);
  put_processes(h);
  (void)fputs("],\"caches\":[", stdout);
  for (size_t i = 0; i < h->cache_count; i++) {
    if (i > 0) (void)putchar(',');
    put_cache(h->caches[i]);
  }
  (void)fputs("]}\n", stdout);
}

/* ---- rates --------------------------------------------------------------------------------- */

static void put_rate(const char *name, uint64_t count, double seconds) {
  (void)printf(",\"%s\":%.3f", name, seconds > 0 ? (double)count / seconds : 0);
}

static void put_cache_rates(const stat_cache *c, const stat_cache *before, double seconds) {
  static stat_counts d;
  uint64_t all;
  stat_since(&c->counts, before != NULL ? &before->counts : NULL, &d);
  all = stat_gets(&d);
  text("{\"cache\":", c->name);
  put_rate("gets_per_s", all, seconds);
  if (all > 0)
    (void)printf(",\"hit_ratio\":%.6f", (double)stat_hits(&d) / (double)all);
  else
    (void)fputs(",\"hit_ratio\":null", stdout);
  put_rate("computes_per_s", d.events[CORRAL_EVENT_COMPUTE], seconds);
  put_rate("computes_saved_per_s", stat_spared(&d), seconds);
  put_rate("origin_saved_s_per_s", d.saved_us, seconds * 1e6);
  (void)fputs(",\"now\":{", stdout);
  put_now(c);
  (void)fputs("}}", stdout);
}

void stat_print_json_rates(const stat_host *now, const stat_host *before, double seconds) {
  (void)printf("{\"interval_s\":%.3f,\"caches\":[", seconds);
  for (size_t i = 0; i < now->cache_count; i++) {
    if (i > 0) (void)putchar(',');
    put_cache_rates(now->caches[i], stat_find(before, now->caches[i]->name, NULL), seconds);
  }
  (void)printf("]}\n");
}
