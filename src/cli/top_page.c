/* top_page.c: the page of corral top: the sums of the caches that are shown, then the caches, the
 * hottest keys and the longest flights. */
#include "top.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { KEYS_MOST = 64, KEY_ROOM = 4 * (CORRAL_STATS_KEY + 1) + 16, NAME = 16 };

static const char *const sorts[TOP_SORTS] = {
#define NAME_OF(id, name) name,
    TOP_SORT_MAP(NAME_OF)
#undef NAME_OF
};

/* A cache that is shown, and what it did between two looks. */
typedef struct row {
  const stat_cache *cache;
  stat_counts change;
} row;

typedef struct hot_row {
  corral_hot_key hot;
  const stat_cache *cache;
} hot_row;

typedef struct flight_row {
  corral_flight flight;
  const stat_cache *cache;
} flight_row;

typedef struct drawing {
  screen_page *page;
  const top_view *view;
  const top_look *now, *before;
  double seconds; /* between two looks; 0: there is one */
  row *rows;
  size_t count;
  row sum; /* its cache is `sum_cache` */
  stat_cache sum_cache;
  hot_row hot[KEYS_MOST];
  flight_row flights[KEYS_MOST];
  size_t hot_count, flight_count;
  const stat_cache *at; /* whose keys are told */
} drawing;

/* ---- lines --------------------------------------------------------------------------------- */

/* A line, cut to the page. */
static void __attribute__((format(printf, 2, 3))) line(drawing *d, const char *format, ...) {
  screen_page *p = d->page;
  char text[SCREEN_LINE];
  va_list args;
  if (p->count == p->rows) return;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  size_t len = strlen(text);
  while (len > 0 && text[len - 1] == ' ') text[--len] = '\0';
  (void)stat_fit(p->lines[p->count++], SCREEN_LINE, text, p->columns, false);
}

/* A line in reverse over the whole width. */
static void title(drawing *d, const char *text) {
  screen_page *p = d->page;
  if (p->count == p->rows) return;
  p->is_title[p->count] = true;
  (void)stat_fit(p->lines[p->count++], SCREEN_LINE, text, p->columns, true);
}

static const char *rate(char text[STAT_RATE_TEXT], const drawing *d, uint64_t count) {
  if (d->seconds > 0) return stat_rate(text, count, d->seconds);
  (void)snprintf(text, STAT_RATE_TEXT, "-");
  return text;
}

/* Seconds of the origin by the second. */
static const char *origin_rate(char text[STAT_RATE_TEXT], const drawing *d, uint64_t us) {
  if (d->seconds > 0) return stat_rate(text, us, d->seconds * 1e6);
  (void)snprintf(text, STAT_RATE_TEXT, "-");
  return text;
}

/* ---- the caches that are shown ------------------------------------------------------------- */

static uint64_t weight(const row *r, top_sort sort) {
  int64_t waiting = r->cache->gauges[CORRAL_GAUGE_WAITING];
  switch (sort) {
    case TOP_SORT_GETS: return stat_gets(&r->change);
    case TOP_SORT_COMPUTES: return r->change.events[CORRAL_EVENT_COMPUTE];
    case TOP_SORT_SAVED: return r->change.saved_us;
    case TOP_SORT_WAITING: return waiting > 0 ? (uint64_t)waiting : 0;
    default: return 0;
  }
}

static top_sort sorted_by;

/* Equal ones by name, as they were. */
static int compare_rows(const void *a, const void *b) {
  const row *x = a, *y = b;
  uint64_t of_x = weight(x, sorted_by), of_y = weight(y, sorted_by);
  return of_x != of_y ? (of_x < of_y ? 1 : -1) : strcmp(x->cache->name, y->cache->name);
}

static void add_to_sum(drawing *d, const row *r) {
  for (unsigned i = 0; i < CORRAL_RESULT_COUNT; i++)
    d->sum.change.results[i] += r->change.results[i];
  for (unsigned i = 0; i < CORRAL_EVENT_COUNT; i++) d->sum.change.events[i] += r->change.events[i];
  for (unsigned i = 0; i < CORRAL_TIME_COUNT; i++)
    corral_histogram_add(&d->sum.change.times[i], &r->change.times[i]);
  for (unsigned i = 0; i < CORRAL_GAUGE_COUNT; i++) d->sum_cache.gauges[i] += r->cache->gauges[i];
  for (unsigned i = 0; i < CORRAL_WAKE_COUNT; i++) d->sum_cache.wake[i] += r->cache->wake[i];
  d->sum.change.saved_us += r->change.saved_us;
}

/* Without an earlier look nothing is known to have changed. */
static void choose(drawing *d) {
  const stat_host *h = &d->now->host;
  static const stat_counts nothing;
  d->rows = calloc(h->cache_count + 1, sizeof *d->rows);
  for (size_t i = 0; d->rows != NULL && i < h->cache_count; i++) {
    const stat_cache *c = h->caches[i];
    row *r = &d->rows[d->count];
    if (strstr(stat_cache_name(c), d->view->filter) == NULL) continue;
    const stat_cache *before =
        d->before != NULL ? stat_find(&d->before->host, c->name, NULL) : NULL;
    r->cache = c;
    if (d->before != NULL)
      stat_since(&c->counts, before != NULL ? &before->counts : &nothing, &r->change);
    add_to_sum(d, r);
    d->count++;
  }
  sorted_by = d->view->sort;
  if (d->count > 0) qsort(d->rows, d->count, sizeof *d->rows, compare_rows);
}

/* ---- keys ---------------------------------------------------------------------------------- */

/* The hottest ones stay, in their order. */
static int take_hot(const corral_hot_key *hot, void *arg) {
  drawing *d = arg;
  size_t at = d->hot_count;
  while (at > 0 && hot->count > d->hot[at - 1].hot.count) at--;
  if (at == KEYS_MOST) return 0;
  if (d->hot_count < KEYS_MOST) d->hot_count++;
  memmove(d->hot + at + 1, d->hot + at, (d->hot_count - at - 1) * sizeof *d->hot);
  d->hot[at] = (hot_row){.hot = *hot, .cache = d->at};
  return 0;
}

static int take_flight(const corral_flight *flight, void *arg) {
  drawing *d = arg;
  size_t at = d->flight_count;
  while (at > 0 && flight->since_ms > d->flights[at - 1].flight.since_ms) at--;
  if (at == KEYS_MOST) return 0;
  if (d->flight_count < KEYS_MOST) d->flight_count++;
  memmove(d->flights + at + 1, d->flights + at, (d->flight_count - at - 1) * sizeof *d->flights);
  d->flights[at] = (flight_row){.flight = *flight, .cache = d->at};
  return 0;
}

static void take_keys(drawing *d) {
  for (size_t i = 0; i < d->count; i++) {
    d->at = d->rows[i].cache;
    (void)corral_stats_hot(d->at->sum, take_hot, d);
    (void)corral_stats_flights(d->at->sum, take_flight, d);
  }
}

/* The key, cut and filled up to so many columns. */
static const char *key_text(char text[KEY_ROOM], const char *key, size_t kept, size_t len,
                            size_t columns) {
  char shown[KEY_ROOM];
  size_t size = kept < CORRAL_STATS_KEY ? kept : CORRAL_STATS_KEY;
  (void)cli_visible(shown, sizeof shown - 4, key, size);
  if (len > size) (void)snprintf(shown + strlen(shown), 4, "...");
  return stat_fit(text, KEY_ROOM, shown, columns, true);
}

/* ---- the head ------------------------------------------------------------------------------ */

static void draw_first(drawing *d) {
  char clock[STAT_CLOCK_TEXT], every[CLI_DURATION_TEXT], filter[4 * TOP_FILTER + 16];
  const top_view *v = d->view;
  bool shows = v->filter[0] != '\0' || v->is_typing;
  line(d, "corral top %s  %zu process%s  every %s  by %s%s%s%s%s", stat_clock(clock),
       d->now->host.process_count, d->now->host.process_count == 1 ? "" : "es",
       cli_duration_text(every, v->every_ms), sorts[v->sort], v->is_paused ? "  paused" : "",
       shows ? "  /" : "",
       shows ? cli_visible(filter, sizeof filter, v->filter, strlen(v->filter)) : "",
       v->is_typing ? "_" : "");
}

static void draw_rates(drawing *d) {
  char r[4][STAT_RATE_TEXT], ratio[STAT_RATIO_TEXT];
  const stat_counts *c = &d->sum.change;
  line(d, "gets/s %s  hits %s  computes/s %s  saved/s %s  origin saved %s s/s",
       rate(r[0], d, stat_gets(c)), stat_ratio(ratio, stat_hits(c), stat_gets(c)),
       rate(r[1], d, c->events[CORRAL_EVENT_COMPUTE]), rate(r[2], d, stat_spared(c)),
       origin_rate(r[3], d, c->saved_us));
}

static void draw_results(drawing *d) {
  char text[SCREEN_LINE] = "";
  const stat_counts *c = &d->sum.change;
  size_t used = 0;
  for (unsigned i = 0; i < CORRAL_RESULT_COUNT; i++) {
    char ratio[STAT_RATIO_TEXT];
    if (c->results[i] == 0) continue;
    used += (size_t)snprintf(text + used, sizeof text - used, "%s%s %s", used > 0 ? "  " : "",
                             corral_result_name((corral_result)i),
                             stat_ratio(ratio, c->results[i], stat_gets(c)));
  }
  line(d, "%s", used > 0 ? text : "no calls");
}

/* By the second; without trouble there is no line. */
static void draw_trouble(drawing *d) {
  char text[SCREEN_LINE] = "", n[STAT_RATE_TEXT];
  size_t used = 0;
  for (size_t i = 0; i < STAT_TROUBLES && used < sizeof text; i++) {
    uint64_t count = d->sum.change.events[stat_troubles[i]];
    if (count > 0)
      used += (size_t)snprintf(text + used, sizeof text - used, "  %s %s",
                               corral_event_name(stat_troubles[i]), rate(n, d, count));
  }
  if (used > 0) line(d, "trouble/s%s", text);
}

/* Of each cache whose processes follow one; without one there is no line. */
static void draw_orders(drawing *d) {
  char text[SCREEN_LINE] = "", name[4 * NAME + 1];
  size_t used = 0;
  for (size_t i = 0; i < d->count && used < sizeof text; i++) {
    const stat_cache *c = d->rows[i].cache;
    if (c->gauges[CORRAL_GAUGE_CONTROL] > 0)
      used += (size_t)snprintf(text + used, sizeof text - used, "  %s: %s",
                               stat_fit(name, sizeof name, stat_cache_name(c), NAME, false),
                               stat_order(c));
  }
  if (used > 0) line(d, "orders%s", text);
}

static void draw_now(drawing *d) {
  char text[128] = "";
  size_t used = 0;
  const int64_t *g = d->sum_cache.gauges;
  for (unsigned w = 0; w < CORRAL_WAKE_COUNT; w++)
    if (d->sum_cache.wake[w] > 0)
      used +=
          (size_t)snprintf(text + used, sizeof text - used, "%s %s %llu", used == 0 ? "  wake" : "",
                           stat_wake_names[w], (unsigned long long)d->sum_cache.wake[w]);
  line(d, "waiting %lld  computing %lld  near %.1f MB  breakers open %lld%s",
       (long long)g[CORRAL_GAUGE_WAITING], (long long)g[CORRAL_GAUGE_FLIGHTS],
       (double)g[CORRAL_GAUGE_NEAR_BYTES] / 1e6, (long long)g[CORRAL_GAUGE_BREAKERS_OPEN], text);
}

static void draw_times(drawing *d) {
  static const corral_time times[] = {CORRAL_TIME_COMPUTE, CORRAL_TIME_WAIT, CORRAL_TIME_GET,
                                      CORRAL_TIME_CLAIM, CORRAL_TIME_SETTLE};
  char text[SCREEN_LINE] = "", time[CLI_TIME_TEXT];
  size_t used = 0;
  for (size_t i = 0; i < sizeof times / sizeof times[0]; i++) {
    const corral_histogram *h = &d->sum.change.times[times[i]];
    uint64_t us = corral_histogram_quantile(h, .99);
    used += (size_t)snprintf(text + used, sizeof text - used, "  %s %s", corral_time_name(times[i]),
                             h->count > 0 ? cli_time_text(time, (int64_t)us) : "-");
  }
  line(d, "p99%s", text);
}

/* ---- the tables ---------------------------------------------------------------------------- */

static void draw_cache(drawing *d, const row *r) {
  char name[4 * NAME + 1], n[4][STAT_RATE_TEXT], ratio[STAT_RATIO_TEXT], time[CLI_TIME_TEXT];
  const stat_counts *c = &r->change;
  const corral_histogram *h = &c->times[CORRAL_TIME_COMPUTE];
  line(d, "%s %8s %7s %10s %8s %8s %7lld %9s",
       stat_fit(name, sizeof name, stat_cache_name(r->cache), NAME, true),
       rate(n[0], d, stat_gets(c)), stat_ratio(ratio, stat_hits(c), stat_gets(c)),
       rate(n[1], d, c->events[CORRAL_EVENT_COMPUTE]), rate(n[2], d, stat_spared(c)),
       origin_rate(n[3], d, c->saved_us), (long long)r->cache->gauges[CORRAL_GAUGE_WAITING],
       h->count > 0 ? cli_time_text(time, (int64_t)corral_histogram_quantile(h, .99)) : "-");
}

static void draw_caches(drawing *d, size_t most) {
  char text[SCREEN_LINE];
  (void)snprintf(text, sizeof text, "%-*s %8s %7s %10s %8s %8s %7s %9s", NAME, "CACHE", "GETS/S",
                 "HITS", "COMPUTES/S", "SAVED/S", "ORIGIN", "WAITING", "P99");
  title(d, text);
  for (size_t i = 0; i < d->count && i < most; i++) draw_cache(d, &d->rows[i]);
}

/* Columns for a key, beside so many others. */
static size_t key_columns(const drawing *d, size_t others) {
  size_t columns = d->page->columns;
  return columns < others + 12 ? 12 : columns - others < 64 ? columns - others : 64;
}

/* The calls of the last 10 to 20 seconds: counts of hot keys are halved every 10. */
static void draw_hot(drawing *d, size_t most) {
  char text[SCREEN_LINE], key[KEY_ROOM], name[4 * NAME + 1];
  size_t columns = key_columns(d, NAME + 26);
  if (most == 0) return;
  line(d, "%s", "");
  (void)snprintf(text, sizeof text, "%-*s %-*s %11s %11s", (int)columns, "HOT KEY", NAME, "CACHE",
                 "GETS LATELY", "AT LEAST");
  title(d, text);
  for (size_t i = 0; i < d->hot_count && i < most; i++) {
    const corral_hot_key *h = &d->hot[i].hot;
    line(d, "%s %s %11llu %11llu", key_text(key, h->key, h->key_kept, h->key_len, columns),
         stat_fit(name, sizeof name, stat_cache_name(d->hot[i].cache), NAME, true),
         (unsigned long long)h->count,
         (unsigned long long)(h->count > h->error ? h->count - h->error : 0));
  }
}

static void draw_flights(drawing *d, size_t most) {
  char text[SCREEN_LINE], key[KEY_ROOM], name[4 * NAME + 1], t[2][CLI_TIME_TEXT];
  size_t columns = key_columns(d, NAME + 46);
  if (most == 0) return;
  line(d, "%s", "");
  (void)snprintf(text, sizeof text, "%-*s %-*s %-8s %8s %8s %7s %9s", (int)columns, "FLIGHT", NAME,
                 "CACHE", "STATE", "FOR", "USUALLY", "WAITERS", "PID");
  title(d, text);
  for (size_t i = 0; i < d->flight_count && i < most; i++) {
    const corral_flight *f = &d->flights[i].flight;
    line(d, "%s %s %-8.8s %8s %8s %7lld %9lld",
         key_text(key, f->key, f->key_kept, f->key_len, columns),
         stat_fit(name, sizeof name, stat_cache_name(d->flights[i].cache), NAME, true),
         corral_flight_name(f->state), cli_time_text(t[0], f->since_ms * 1000),
         f->expected_ms > 0 ? cli_time_text(t[1], f->expected_ms * 1000) : "-",
         (long long)f->waiters, (long long)f->pid);
  }
}

static size_t least(size_t a, size_t b) { return a < b ? a : b; }

/* Rows of a table of `count` lines, within `room` with its title and the line before it. */
static size_t rows_of(size_t count, size_t room) { return room > 2 ? least(count, room - 2) : 0; }

/* The flights get a quarter of the room, the caches a third; the keys get the rest, of which the
 * caches take what isn't needed. */
static void draw_tables(drawing *d) {
  size_t head = d->page->count + 1; /* rows before the caches */
  size_t room = d->page->rows > head ? d->page->rows - head : 0;
  size_t flights = rows_of(least(d->flight_count, room / 4), room);
  size_t caches = least(d->count, room / 3);
  size_t taken = caches + (flights > 0 ? flights + 2 : 0);
  size_t hot = rows_of(d->hot_count, room > taken ? room - taken : 0);
  taken += hot > 0 ? hot + 2 : 0;
  draw_caches(d, caches + (room > taken ? room - taken : 0));
  draw_hot(d, hot);
  draw_flights(d, flights);
}

/* ---- the page ------------------------------------------------------------------------------ */

void top_draw(screen_page *page, const top_view *view, const top_look *now,
              const top_look *before) {
  static drawing d;
  d = (drawing){.page = page, .view = view, .now = now, .before = before};
  if (before != NULL) d.seconds = (double)(now->at_ns - before->at_ns) / 1e9;
  choose(&d);
  take_keys(&d);
  draw_first(&d);
  draw_rates(&d);
  draw_results(&d);
  draw_trouble(&d);
  draw_orders(&d);
  draw_now(&d);
  draw_times(&d);
  line(&d, "%s", "");
  draw_tables(&d);
  free(d.rows);
}
