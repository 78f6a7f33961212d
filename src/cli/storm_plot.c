/* storm_plot.c: prints the results of `corral storm`: a table, a plot in the terminal, or JSON.
 *
 * The plot uses eighths of Unicode blocks if the locale is UTF-8, else ASCII; a column with any
 * compute shows at least the smallest mark. Colours only on a terminal and without NO_COLOR. */
#include "storm.h"

#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEIGHT = 8, EIGHTHS = 8, LABEL = 6 };

/* ---- histogram ----------------------------------------------------------------------------- */

/* Exact below 32 us; above, the top five bits after the leading one choose among 32 buckets of each
 * power of two. */
static size_t bucket_of(uint64_t us) {
  if (us < HISTOGRAM_FINE) return (size_t)us;
  unsigned power = 63 - (unsigned)__builtin_clzll(us);
  size_t bucket =
      (size_t)(power - 4) * HISTOGRAM_FINE + (size_t)((us >> (power - 5)) & (HISTOGRAM_FINE - 1));
  return bucket < HISTOGRAM ? bucket : HISTOGRAM - 1;
}

/* The largest value of a bucket. */
static int64_t bucket_top(size_t bucket) {
  if (bucket < HISTOGRAM_FINE) return (int64_t)bucket;
  size_t power = bucket / HISTOGRAM_FINE + 4;
  uint64_t fine = bucket % HISTOGRAM_FINE + HISTOGRAM_FINE;
  return (int64_t)(((fine + 1) << (power - 5)) - 1);
}

void storm_record(storm_histogram *h, int64_t us) {
  size_t bucket = bucket_of(us > 0 ? (uint64_t)us : 0);
  (void)atomic_fetch_add_explicit(&h->count[bucket], 1, memory_order_relaxed);
}

int64_t storm_quantile(const storm_histogram *h, double q) {
  unsigned long long total = 0;
  unsigned long long seen = 0;
  for (size_t i = 0; i < HISTOGRAM; i++) total += atomic_load(&h->count[i]);
  for (size_t i = 0; i < HISTOGRAM; i++) {
    seen += atomic_load(&h->count[i]);
    if (seen > 0 && (double)seen >= q * (double)total) return bucket_top(i);
  }
  return 0;
}

/* A quantile, at most the largest latency seen. */
static int64_t quantile_of(const storm_result *r, double q) {
  int64_t us = storm_quantile(&r->latency, q);
  int64_t most = atomic_load(&r->max_us);
  return us < most ? us : most;
}

/* ---- table --------------------------------------------------------------------------------- */

static const char *us_text(char text[CLI_DURATION_TEXT], int64_t us) {
  double ms = (double)us / 1000;
  if (us < 1000)
    (void)snprintf(text, CLI_DURATION_TEXT, "%lld us", (long long)us);
  else
    (void)snprintf(text, CLI_DURATION_TEXT, "%.*f ms", ms < 10 ? 1 : 0, ms);
  return text;
}

static void print_row(const storm *s, storm_mode mode) {
  const storm_result *r = &s->shared->results[mode];
  char p50[CLI_DURATION_TEXT];
  char p99[CLI_DURATION_TEXT];
  char most[CLI_DURATION_TEXT];
  (void)printf("%-7s %9llu %9llu %9s %9s %9s %7llu %6llu %9.1f s\n", storm_mode_names[mode],
               atomic_load(&r->requests), atomic_load(&r->computes),
               us_text(p50, quantile_of(r, 0.5)), us_text(p99, quantile_of(r, 0.99)),
               us_text(most, atomic_load(&r->max_us)), atomic_load(&r->errors),
               atomic_load(&r->wrong), (double)atomic_load(&r->database_us) / 1e6);
}

static void print_notes(const storm *s, storm_mode mode) {
  const storm_result *r = &s->shared->results[mode];
  unsigned long long cut_off = atomic_load(&r->cut_off);
  unsigned kills = atomic_load(&r->kills);
  unsigned recoveries = atomic_load(&r->recoveries);
  if (cut_off > 0)
    (void)printf("%s: %llu requests still waited at the end; their wait is in the latencies\n",
                 storm_mode_names[mode], cut_off);
  if (atomic_load(&r->errors) > 0)
    (void)printf("%s: the last error: %s\n", storm_mode_names[mode],
                 corral_status_text(r->last_status));
  if (recoveries > 0)
    (void)printf("%s: killed while computing: %u; the next value came after %.0f ms on average, "
                 "%.0f ms at most\n",
                 storm_mode_names[mode], kills,
                 (double)atomic_load(&r->recovery_sum_us) / 1000 / recoveries,
                 (double)atomic_load(&r->recovery_max_us) / 1000);
  else if (kills > 0)
    (void)printf("%s: killed while computing: %u; no value came after that\n",
                 storm_mode_names[mode], kills);
}

/* ---- plot ---------------------------------------------------------------------------------- */

typedef struct plot {
  const storm *s;
  storm_mode modes[STORM_MODES];
  int panels;
  int columns; /* of each panel */
  unsigned top;
  bool unicode;
  bool colour;
} plot;

static const char *const blocks[EIGHTHS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const letters[EIGHTHS + 1] = {" ", ".", ".", ":", ":", "|", "|", "#", "#"};
static const char *const paint[STORM_MODES] = {"\033[31m", "\033[32m"};

static plot make_plot(const storm *s) {
  const char *no_color = getenv("NO_COLOR");
  plot p = {.s = s, .top = 1};
  p.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  p.colour = isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0');
  p.columns = (int)((s->options.duration_ms + s->shared->bucket_ms - 1) / s->shared->bucket_ms);
  p.columns = p.columns < STORM_COLUMNS ? p.columns : STORM_COLUMNS;
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    if (!s->options.modes[mode]) continue;
    p.modes[p.panels++] = mode;
    for (int i = 0; i < p.columns; i++) {
      unsigned n = atomic_load(&s->shared->results[mode].timeline[i]);
      p.top = n > p.top ? n : p.top;
    }
  }
  return p;
}

static const char *mark(const plot *p, unsigned n, int row) {
  unsigned eighths = (unsigned)(((uint64_t)n * HEIGHT * EIGHTHS + p->top - 1) / p->top);
  unsigned below = (unsigned)row * EIGHTHS;
  unsigned here = eighths <= below ? 0 : eighths - below;
  return (p->unicode ? blocks : letters)[here < EIGHTHS ? here : EIGHTHS];
}

static void draw_row(const plot *p, int row) {
  if (row == HEIGHT - 1 || row == 0)
    (void)printf("%*u ", LABEL, row == 0 ? 0 : p->top);
  else
    (void)printf("%*s ", LABEL, "");
  for (int panel = 0; panel < p->panels; panel++) {
    storm_mode mode = p->modes[panel];
    (void)fputs(p->unicode ? "│" : "|", stdout);
    (void)fputs(p->colour ? paint[mode] : "", stdout);
    for (int i = 0; i < p->columns; i++)
      (void)fputs(mark(p, atomic_load(&p->s->shared->results[mode].timeline[i]), row), stdout);
    (void)fputs(p->colour ? "\033[0m" : "", stdout);
    (void)fputs(panel + 1 < p->panels ? "  " : "\n", stdout);
  }
}

static void draw_axis(const plot *p) {
  (void)printf("%*s ", LABEL, "");
  for (int panel = 0; panel < p->panels; panel++) {
    (void)fputs(p->unicode ? "└" : "+", stdout);
    for (int i = 0; i < p->columns; i++) (void)fputs(p->unicode ? "─" : "-", stdout);
    (void)fputs(panel + 1 < p->panels ? "  " : "\n", stdout);
  }
  (void)printf("%*s ", LABEL, "");
  for (int panel = 0; panel < p->panels; panel++) {
    char end[32];
    (void)snprintf(end, sizeof end, "%.1f s", (double)p->s->options.duration_ms / 1000);
    (void)printf(" 0%*s%s", p->columns > 1 ? p->columns - 1 : 1, end,
                 panel + 1 < p->panels ? "  " : "\n");
  }
}

static void draw(const storm *s) {
  plot p = make_plot(s);
  (void)printf("\nComputes begun per %lld ms\n%*s ", (long long)s->shared->bucket_ms, LABEL, "");
  for (int panel = 0; panel < p.panels; panel++)
    (void)printf(" %-*s%s", p.columns, storm_mode_names[p.modes[panel]],
                 panel + 1 < p.panels ? "  " : "\n");
  for (int row = HEIGHT - 1; row >= 0; row--) draw_row(&p, row);
  draw_axis(&p);
}

void storm_report(const storm *s) {
  (void)printf("\n%-7s %9s %9s %9s %9s %9s %7s %6s %11s\n", "mode", "requests", "computes", "p50",
               "p99", "max", "errors", "wrong", "database");
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    if (s->options.modes[mode]) print_row(s, mode);
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    if (s->options.modes[mode]) print_notes(s, mode);
  draw(s);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_mode(const storm *s, storm_mode mode) {
  const storm_result *r = &s->shared->results[mode];
  (void)printf("{\"mode\":\"%s\",\"ran_ms\":%lld,\"requests\":%llu,\"computes\":%llu,\"errors\":%"
               "llu,\"wrong\":%llu,"
               "\"cut_off\":%llu,\"p50_us\":%lld,\"p90_us\":%lld,\"p99_us\":%lld,\"max_us\":%lld,"
               "\"database_us\":%llu,",
               storm_mode_names[mode], (long long)r->ran_ms, atomic_load(&r->requests),
               atomic_load(&r->computes), atomic_load(&r->errors), atomic_load(&r->wrong),
               atomic_load(&r->cut_off), (long long)quantile_of(r, 0.5),
               (long long)quantile_of(r, 0.9), (long long)quantile_of(r, 0.99),
               (long long)atomic_load(&r->max_us), atomic_load(&r->database_us));
  (void)printf("\"kills\":%u,\"recoveries\":%u,\"recovery_sum_us\":%lld,\"recovery_max_us\":%lld,"
               "\"timeline\":[",
               atomic_load(&r->kills), atomic_load(&r->recoveries),
               (long long)atomic_load(&r->recovery_sum_us),
               (long long)atomic_load(&r->recovery_max_us));
  int64_t columns = (s->options.duration_ms + s->shared->bucket_ms - 1) / s->shared->bucket_ms;
  for (int64_t i = 0; i < columns && i < STORM_COLUMNS; i++)
    (void)printf("%s%u", i > 0 ? "," : "", atomic_load(&r->timeline[i]));
  (void)printf("]}");
}

void storm_report_json(const storm *s) {
  const storm_options *o = &s->options;
  char store[sizeof s->store];
  corral_uri_show(s->store, store, sizeof store);
  (void)printf("{\"store\":");
  cli_json_string(stdout, store, strlen(store));
  (void)printf(",\"processes\":%lld,\"threads\":%lld,\"keys\":%lld,\"zipf\":%g,\"ttl_ms\":%lld,"
               "\"stale_ms\":%lld,"
               "\"think_ms\":%lld,\"duration_ms\":%lld,\"rows\":%lld,\"query_us\":%lld,\"bucket_"
               "ms\":%lld,\"modes\":[",
               (long long)o->processes, (long long)o->threads, (long long)o->keys, o->zipf,
               (long long)o->ttl_ms, (long long)o->stale_ms, (long long)o->think_ms,
               (long long)o->duration_ms, (long long)o->load, (long long)s->query_us,
               (long long)s->shared->bucket_ms);
  bool first = true;
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    if (!o->modes[mode]) continue;
    (void)printf("%s", first ? "" : ",");
    json_mode(s, mode);
    first = false;
  }
  (void)printf("]}\n");
}
