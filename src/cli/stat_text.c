/* stat_text.c: the counts of this host for a reader: a block for each cache at each store, and the
 * lines of rates of --watch. No line has more than 80 columns. */
#include "stat.h"

#include <limits.h>
#include <stdarg.h>
#include <string.h>
#include <time.h>
#include <wchar.h>

enum {
  COLUMNS = 80,
  INDENT = 12,
  ITEM = 64,
  NAME = 24,
  STORE = 46,
  HOTTEST = 3,
  HOT_LEAST = 512,
  KEY_COLUMNS = 40
};

/* ---- columns ------------------------------------------------------------------------------- */

/* Length of the next character, and its columns. */
static size_t next_character(const char *text, size_t *ret_columns) {
  wchar_t wide;
  mbstate_t state = {0};
  size_t n = mbrtowc(&wide, text, strnlen(text, MB_LEN_MAX), &state);
  int columns = n > 0 && n <= MB_LEN_MAX ? wcwidth(wide) : 1;
  *ret_columns = columns > 0 ? (size_t)columns : columns < 0;
  return n > 0 && n <= MB_LEN_MAX ? n : 1;
}

/* Bytes of `text` that fit in `columns`, whose number becomes *ret. */
static size_t bytes_in(const char *text, size_t columns, size_t *ret) {
  size_t used = 0, len, wide;
  for (*ret = 0; text[used] != '\0'; used += len, *ret += wide) {
    len = next_character(text + used, &wide);
    if (*ret + wide > columns) break;
  }
  return used;
}

const char *stat_fit(char *to, size_t room, const char *text, size_t columns, bool pads) {
  size_t wide, used = bytes_in(text, columns, &wide);
  if (text[used] != '\0' && columns > 3) used = bytes_in(text, columns - 3, &wide);
  const char *dots = text[used] != '\0' && columns > 3 ? "..." : "";
  size_t pad = pads ? columns - wide - strlen(dots) : 0;
  (void)snprintf(to, room, "%.*s%s%*s", (int)used, text, dots, (int)pad, "");
  return to;
}

/* ---- lists --------------------------------------------------------------------------------- */

/* A line "  name       item, item", which goes on in the same column. */
typedef struct list {
  const char *name;
  size_t column, count;
} list;

static void item(list *l, const char *text) {
  size_t len = strlen(text);
  if (l->count == 0) {
    (void)printf("  %-*s", INDENT - 2, l->name);
    l->column = INDENT;
  } else if (l->column + 3 + len > COLUMNS) {
    (void)printf(",\n%*s", INDENT, "");
    l->column = INDENT;
  } else {
    (void)printf(", ");
    l->column += 2;
  }
  (void)fputs(text, stdout);
  l->column += len;
  l->count++;
}

static void __attribute__((format(printf, 2, 3))) add(list *l, const char *format, ...) {
  char text[ITEM];
  va_list args;
  va_start(args, format);
  (void)vsnprintf(text, sizeof text, format, args);
  va_end(args);
  item(l, text);
}

static void add_count(list *l, const char *name, uint64_t count) {
  if (count > 0) add(l, "%s %llu", name, (unsigned long long)count);
}

static void end(const list *l) {
  if (l->count > 0) (void)putchar('\n');
}

/* ---- a cache ------------------------------------------------------------------------------- */

static void print_name(const stat_cache *c) {
  char name[4 * NAME + 1], store[4 * STORE + 1];
  (void)printf("\n%s at %s\n", stat_fit(name, sizeof name, stat_cache_name(c), NAME, false),
               stat_fit(store, sizeof store, c->store, STORE, false));
}

static void print_results(const stat_cache *c) {
  list l = {.name = ""};
  for (unsigned r = 0; r < CORRAL_RESULT_COUNT; r++)
    add_count(&l, corral_result_name((corral_result)r), c->counts.results[r]);
  end(&l);
}

/* A time that may be days. */
static const char *long_text(char text[CLI_TIME_TEXT], uint64_t us) {
  double hours = (double)us / 3.6e9;
  if (hours < .25) return cli_time_text(text, (int64_t)us);
  (void)snprintf(text, CLI_TIME_TEXT, "%.1f %s", hours < 48 ? hours : hours / 24,
                 hours < 48 ? "hours" : "days");
  return text;
}

static void print_computes(const stat_cache *c) {
  char saved[CLI_TIME_TEXT];
  list l = {.name = "computes"};
  add(&l, "%llu", (unsigned long long)c->counts.events[CORRAL_EVENT_COMPUTE]);
  add(&l, "saved %llu", (unsigned long long)stat_spared(&c->counts));
  add(&l, "the origin saved %s", long_text(saved, c->counts.saved_us));
  end(&l);
}

static void print_gets(const stat_cache *c) {
  char ratio[STAT_RATIO_TEXT];
  uint64_t all = stat_gets(&c->counts);
  list l = {.name = "gets"};
  add(&l, "%llu", (unsigned long long)all);
  add(&l, "hit ratio %s", stat_ratio(ratio, stat_hits(&c->counts), all));
  end(&l);
}

static void add_wake(list *l, const stat_cache *c) {
  char text[ITEM] = "";
  size_t used = 0;
  for (unsigned w = 0; w < CORRAL_WAKE_COUNT && used < sizeof text; w++)
    if (c->wake[w] > 0)
      used +=
          (size_t)snprintf(text + used, sizeof text - used, "%s %s %llu", used == 0 ? "wake" : "",
                           stat_wake_names[w], (unsigned long long)c->wake[w]);
  if (used > 0) item(l, text);
}

static void print_now(const stat_cache *c) {
  list l = {.name = "now"};
  add(&l, "%zu process%s", c->processes, c->processes == 1 ? "" : "es");
  add_wake(&l, c);
  for (unsigned g = 0; g < CORRAL_GAUGE_COUNT; g++)
    if (g != CORRAL_GAUGE_WAKE && g != CORRAL_GAUGE_SERVERS && g != CORRAL_GAUGE_CONTROL &&
        c->gauges[g] > 0)
      add_count(&l, corral_gauge_name((corral_gauge)g), (uint64_t)c->gauges[g]);
  if (c->gauges[CORRAL_GAUGE_CONTROL] > 0) add(&l, "an operator's order: %s", stat_order(c));
  end(&l);
}

/* The share of true hits, where the option verify asks for it. */
static void print_truth(const stat_cache *c) {
  uint64_t same = c->counts.events[CORRAL_EVENT_VERIFIED];
  uint64_t differ = c->counts.events[CORRAL_EVENT_DIFFERS];
  uint64_t all = same + differ;
  char ratio[STAT_RATIO_TEXT];
  list l = {.name = "true"};
  if (all == 0) return;
  add(&l, "%s of %llu verified", stat_ratio(ratio, same, all), (unsigned long long)all);
  add_count(&l, "nines", stat_nines(same, differ));
  add_count(&l, "differs", differ);
  end(&l);
}

typedef struct hottest {
  list list;
  size_t count;
} hottest;

static int add_hot(const corral_hot_key *hot, void *arg) {
  hottest *h = arg;
  if (hot->count < hot->error + HOT_LEAST) return 0;
  char key[4 * KEY_COLUMNS + 1];
  char shown[CLI_KEY_TEXT];
  (void)cli_key_text(shown, hot->key, hot->key_kept);
  add(&h->list, "%s %llu", stat_fit(key, sizeof key, shown, KEY_COLUMNS, false),
      (unsigned long long)hot->count);
  return ++h->count == HOTTEST;
}

/* The keys that are asked for most of late, with their calls, at most. A few calls say nothing. */
static void print_hot(const stat_cache *c) {
  hottest h = {.list = {.name = "hot keys"}};
  (void)corral_stats_hot(c->sum, add_hot, &h);
  end(&h.list);
}

static void print_trouble(const stat_cache *c) {
  list l = {.name = "trouble"};
  for (size_t i = 0; i < STAT_TROUBLES; i++)
    add_count(&l, corral_event_name(stat_troubles[i]), c->counts.events[stat_troubles[i]]);
  end(&l);
}

static void print_times(const stat_cache *c) {
  static const double shares[] = {.5, .9, .99, .999, 1};
  bool is_first = true;
  char text[CLI_TIME_TEXT];
  for (unsigned t = 0; t < CORRAL_TIME_COUNT; t++) {
    const corral_histogram *h = &c->counts.times[t];
    if (h->count == 0) continue;
    if (is_first)
      (void)printf("  %-10s %11s %8s %8s %8s %8s %8s\n", "time", "count", "p50", "p90", "p99",
                   "p99.9", "max");
    is_first = false;
    (void)printf("  %-10s %11llu", corral_time_name((corral_time)t), (unsigned long long)h->count);
    for (size_t i = 0; i < sizeof shares / sizeof shares[0]; i++)
      (void)printf(" %8s", cli_time_text(text, (int64_t)corral_histogram_quantile(h, shares[i])));
    (void)putchar('\n');
  }
}

static void print_processes(const stat_host *h) {
  list l = {.name = ""};
  (void)printf("%zu process%s", h->process_count, h->process_count == 1 ? "" : "es");
  l.column = 16;
  for (size_t i = 0; i < h->process_count; i++) {
    char version[4 * NAME + 1];
    bool is_first;
    size_t count = stat_of_version(h, i, &is_first);
    l.count = 1;
    (void)stat_fit(version, sizeof version, h->processes[i].version, NAME, false);
    if (is_first) add(&l, "corral %s: %zu", version, count);
  }
  (void)putchar('\n');
}

void stat_print_text(const stat_host *h) {
  print_processes(h);
  for (size_t i = 0; i < h->cache_count; i++) {
    const stat_cache *c = h->caches[i];
    print_name(c);
    print_gets(c);
    print_results(c);
    print_computes(c);
    print_now(c);
    print_hot(c);
    print_truth(c);
    print_trouble(c);
    print_times(c);
  }
}

/* ---- rates --------------------------------------------------------------------------------- */

const char *stat_rate(char text[STAT_RATE_TEXT], uint64_t count, double seconds) {
  double rate = seconds > 0 ? (double)count / seconds : 0;
  if (rate >= 99999.5)
    (void)snprintf(text, STAT_RATE_TEXT, "%.1fM", rate / 1e6);
  else
    (void)snprintf(text, STAT_RATE_TEXT, "%.*f", rate > 0 && rate < 99.95 ? 1 : 0, rate);
  return text;
}

const char *stat_clock(char text[STAT_CLOCK_TEXT]) {
  time_t now = time(NULL);
  struct tm parts;
  text[0] = '\0';
  if (localtime_r(&now, &parts) != NULL) (void)strftime(text, STAT_CLOCK_TEXT, "%H:%M:%S", &parts);
  return text;
}

static void print_rate(const stat_cache *c, const stat_cache *before, double seconds) {
  char clock[STAT_CLOCK_TEXT], name[64], ratio[STAT_RATIO_TEXT], r[4][STAT_RATE_TEXT];
  static stat_counts d;
  stat_since(&c->counts, before != NULL ? &before->counts : NULL, &d);
  (void)printf(
      "%-8s %s %8s %7s %10s %8s %8s %7lld\n", stat_clock(clock),
      stat_fit(name, sizeof name, stat_cache_name(c), 14, true),
      stat_rate(r[0], stat_gets(&d), seconds), stat_ratio(ratio, stat_hits(&d), stat_gets(&d)),
      stat_rate(r[1], d.events[CORRAL_EVENT_COMPUTE], seconds),
      stat_rate(r[2], stat_spared(&d), seconds), stat_rate(r[3], d.saved_us, seconds * 1e6),
      (long long)c->gauges[CORRAL_GAUGE_WAITING]);
}

void stat_print_rates(const stat_host *now, const stat_host *before, double seconds, bool header) {
  if (header)
    (void)printf("%-8s %-14s %8s %7s %10s %8s %8s %7s\n", "time", "cache", "gets/s", "hits",
                 "computes/s", "saved/s", "origin", "waiting");
  for (size_t i = 0; i < now->cache_count; i++)
    print_rate(now->caches[i], stat_find(before, now->caches[i]->name, NULL), seconds);
}
