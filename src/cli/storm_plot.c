/* storm_plot.c: prints the results of `corral storm`: a table, a plot in the terminal, or JSON.
 *
 * The plot uses eighths of Unicode blocks if the locale is UTF-8, else ASCII; a column with any
 * compute shows at least the smallest mark. Colours only on a terminal and without NO_COLOR. */
#include "storm.h"

#include <errno.h>
#include <langinfo.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { HEIGHT = 8, EIGHTHS = 8, LABEL = 6, COLUMNS_ONE = 64, COLUMNS_TWO = 32, NAME = 24 };

/* ---- table --------------------------------------------------------------------------------- */

static void print_row(const storm *s, storm_mode mode) {
  static const double shares[] = {0.5, 0.9, 0.99, 0.999, 1};
  const storm_result *r = &s->shared->results[mode];
  char text[CLI_TIME_TEXT];
  (void)printf("%-6s %9llu %8llu", storm_mode_names[mode], atomic_load(&r->requests),
               atomic_load(&r->computes));
  for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
    (void)printf(" %7s", cli_time_text(text, storm_quantile(&s->waits[mode], shares[i])));
  (void)printf(" %6llu %6llu\n", atomic_load(&r->late), atomic_load(&r->errors));
}

static void print_notes(const storm *s, storm_mode mode) {
  const storm_result *r = &s->shared->results[mode];
  unsigned long long wrong = atomic_load(&r->wrong);
  size_t unanswered = s->waits[mode].unanswered;
  unsigned kills = atomic_load(&r->kills);
  unsigned recoveries = atomic_load(&r->recoveries);
  if (wrong > 0) (void)printf("%s: %llu values were wrong\n", storm_mode_names[mode], wrong);
  if (unanswered > 0)
    (void)printf("%s: %zu requests had no answer at the end; their wait until then counts\n",
                 storm_mode_names[mode], unanswered);
  if (atomic_load(&r->errors) > 0)
    (void)printf("%s: the last error: %s\n", storm_mode_names[mode],
                 corral_status_text(r->last_status));
  if (recoveries > 0)
    (void)printf("%s: killed while computing: %u; a value in %.0f ms on average, %.0f at most\n",
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
  int buckets; /* of each column */
  unsigned top;
  bool unicode;
  bool colour;
} plot;

static const char *const blocks[EIGHTHS + 1] = {" ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
static const char *const letters[EIGHTHS + 1] = {" ", ".", ".", ":", ":", "|", "|", "#", "#"};
static const char *const paint[STORM_MODES] = {"\033[31m", "\033[32m"};

static unsigned begun(const plot *p, storm_mode mode, int column) {
  unsigned sum = 0;
  for (int i = column * p->buckets; i < (column + 1) * p->buckets && i < STORM_COLUMNS; i++)
    sum += atomic_load(&p->s->shared->results[mode].begun[i]);
  return sum;
}

static plot make_plot(const storm *s) {
  const char *no_color = getenv("NO_COLOR");
  plot p = {.s = s, .top = 1};
  p.unicode = strcmp(nl_langinfo(CODESET), "UTF-8") == 0;
  p.colour = isatty(STDOUT_FILENO) && (no_color == NULL || no_color[0] == '\0');
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    if (s->options.modes[mode]) p.modes[p.panels++] = mode;
  int buckets = storm_columns(s);
  int room = p.panels > 1 ? COLUMNS_TWO : COLUMNS_ONE;
  p.buckets = (buckets + room - 1) / room;
  p.columns = (buckets + p.buckets - 1) / p.buckets;
  for (int panel = 0; panel < p.panels; panel++)
    for (int i = 0; i < p.columns; i++) {
      unsigned n = begun(&p, p.modes[panel], i);
      p.top = n > p.top ? n : p.top;
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
    for (int i = 0; i < p->columns; i++) (void)fputs(mark(p, begun(p, mode, i), row), stdout);
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
    (void)snprintf(end, sizeof end, "%.1f s",
                   (double)(p->columns * p->buckets * p->s->shared->bucket_ms) / 1000);
    (void)printf(" 0%*s%s", p->columns > 1 ? p->columns - 1 : 1, end,
                 panel + 1 < p->panels ? "  " : "\n");
  }
}

static void draw(const storm *s) {
  plot p = make_plot(s);
  (void)printf("\nComputes begun per %lld ms\n%*s ", (long long)p.buckets * s->shared->bucket_ms,
               LABEL, "");
  for (int panel = 0; panel < p.panels; panel++)
    (void)printf(" %-*s%s", p.columns, storm_mode_names[p.modes[panel]],
                 panel + 1 < p.panels ? "  " : "\n");
  for (int row = HEIGHT - 1; row >= 0; row--) draw_row(&p, row);
  draw_axis(&p);
}

/* ---- report -------------------------------------------------------------------------------- */

static void print_database(const storm *s) {
  (void)fputs("In the database:", stdout);
  const char *between = " ";
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    if (!s->options.modes[mode]) continue;
    (void)printf("%s%s %.1f s", between, storm_mode_names[mode],
                 (double)atomic_load(&s->shared->results[mode].database_us) / 1e6);
    between = ", ";
  }
  (void)puts(".");
}

/* The commands to type next, by the name that this one was called by. */
static void print_next(const storm *s) {
  static const char *const next[][2] = {
      {"storm --stale 1s", "old values meanwhile"},
      {"storm --kill-leader", "leaders die"},
      {"storm --html storm.html", "as a page, with plots"},
      {"run --ttl 5m -- ./report.sh", "guards your command"},
  };
  char name[2 * STORM_PATH];
  if (s->cli->quiet) return;
  (void)cli_visible(name, sizeof name, program_invocation_name, strlen(program_invocation_name));
  (void)puts("\nTry next:");
  for (size_t i = 0; i < sizeof next / sizeof next[0]; i++)
    (void)printf("  %s %-28s # %s\n", strlen(name) <= NAME ? name : "corral", next[i][0],
                 next[i][1]);
}

void storm_report(const storm *s) {
  char text[160];
  (void)puts("\nHow long requests waited, from the moment they were due to their answer:");
  (void)printf("%-6s %9s %8s %7s %7s %7s %7s %7s %6s %6s\n", "mode", "requests", "computes", "p50",
               "p90", "p99", "p99.9", "max", "late", "errors");
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    if (s->options.modes[mode]) print_row(s, mode);
  storm_reading(s, text, sizeof text);
  (void)printf("p99: %s\n", text);
  bool both = s->options.modes[STORM_NONE] && s->options.modes[STORM_CORRAL];
  (void)printf("late: due while all threads were busy.%s\n",
               both ? " Both modes had the same schedule." : "");
  print_database(s);
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    if (s->options.modes[mode]) print_notes(s, mode);
  draw(s);
  print_next(s);
}

/* ---- JSON ---------------------------------------------------------------------------------- */

static void json_timeline(const storm *s, const char *name, const atomic_uint *timeline) {
  (void)printf(",\"%s\":[", name);
  for (int i = 0; i < storm_columns(s); i++)
    (void)printf("%s%u", i > 0 ? "," : "", atomic_load(&timeline[i]));
  (void)putchar(']');
}

static void json_mode(const storm *s, storm_mode mode) {
  const storm_result *r = &s->shared->results[mode];
  const storm_waits *w = &s->waits[mode];
  (void)printf("{\"mode\":\"%s\",\"ran_ms\":%lld,\"requests\":%llu,\"computes\":%llu,\"errors\":%"
               "llu,\"wrong\":%llu,\"late\":%llu,\"cut_off\":%zu,",
               storm_mode_names[mode], (long long)r->ran_ms, atomic_load(&r->requests),
               atomic_load(&r->computes), atomic_load(&r->errors), atomic_load(&r->wrong),
               atomic_load(&r->late), w->unanswered);
  (void)printf("\"p50_us\":%lld,\"p90_us\":%lld,\"p99_us\":%lld,\"p999_us\":%lld,\"max_us\":%lld,"
               "\"database_us\":%llu,",
               (long long)storm_quantile(w, 0.5), (long long)storm_quantile(w, 0.9),
               (long long)storm_quantile(w, 0.99), (long long)storm_quantile(w, 0.999),
               (long long)storm_quantile(w, 1), atomic_load(&r->database_us));
  (void)printf("\"kills\":%u,\"recoveries\":%u,\"recovery_sum_us\":%lld,\"recovery_max_us\":%lld",
               atomic_load(&r->kills), atomic_load(&r->recoveries),
               (long long)atomic_load(&r->recovery_sum_us),
               (long long)atomic_load(&r->recovery_max_us));
  json_timeline(s, "timeline", r->begun);
  json_timeline(s, "at_once", r->at_once);
  (void)putchar('}');
}

void storm_report_json(const storm *s) {
  const storm_options *o = &s->options;
  char store[sizeof s->store];
  corral_uri_show(s->store, store, sizeof store);
  (void)printf("{\"store\":");
  cli_json_string(stdout, store, strlen(store));
  (void)printf(",\"processes\":%lld,\"threads\":%lld,\"keys\":%lld,\"zipf\":%g,\"ttl_ms\":%lld,"
               "\"stale_ms\":%lld,"
               "\"rate\":%lld,\"duration_ms\":%lld,\"rows\":%lld,\"query_us\":%lld,\"bucket_"
               "ms\":%lld,\"modes\":[",
               (long long)o->processes, (long long)o->threads, (long long)o->keys, o->zipf,
               (long long)o->ttl_ms, (long long)o->stale_ms, (long long)o->rate,
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
