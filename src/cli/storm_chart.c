/* storm_chart.c: the plots of the storm's page: for each question one, with a panel for each mode,
 * on the same scales.
 *
 * A panel's shape is stretched to the panel's size; its texts are HTML above it, so they keep the
 * reader's size on a phone, too. */
#include "storm.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
  FINE = 8, /* buckets of a histogram per power of two */
  OCTAVES = 32,
  BARS = OCTAVES * FINE,
  FIRST = 3 * FINE, /* the first bucket shown ends above 8 us */
  POINTS = BARS > STORM_COLUMNS ? BARS : STORM_COLUMNS
};

/* One plot. */
typedef struct chart {
  const storm *s;
  FILE *f;
  double y[STORM_MODES][POINTS]; /* heights of the bars */
  int bars;
  double top;
} chart;

/* ---- panel --------------------------------------------------------------------------------- */

/* The height of y on a scale of 100; what isn't 0 is seen. */
static double height(const chart *c, double y) {
  double h = 100 * y / c->top;
  return y > 0 && h < 1.5 ? 1.5 : h;
}

/* The bars, as one shape. */
static void put_bars(const chart *c, storm_mode mode) {
  (void)fputs("<path d=\"M0 100", c->f);
  double last = 0;
  for (int i = 0; i < c->bars; i++) {
    double h = height(c, c->y[mode][i]);
    if (h != last) (void)fprintf(c->f, "H%dV%.1f", i, 100 - h);
    last = h;
  }
  (void)fprintf(c->f, "H%dV100Z\"/>", c->bars);
}

static void begin_panel(const chart *c, storm_mode mode, const char *about) {
  const char *name = storm_mode_names[mode];
  (void)fprintf(c->f,
                "<div class=\"panel\"><p><b class=\"%s\">%s</b>: %s</p>\n<div class=\"plot\">"
                "<svg class=\"%s\" viewBox=\"0 0 %d 100\" preserveAspectRatio=\"none\" role=\"img\""
                " aria-label=\"%s: %s\">",
                name, name, about, name, c->bars, name, about);
}

/* A number beside the plot, at that height. */
static void put_height(const chart *c, double y, const char *text) {
  (void)fprintf(c->f, "<span class=\"y\" style=\"top:%.1f%%\">%s</span>", 100 - 100 * y / c->top,
                text);
}

/* A number below the axis of a panel; `at` is 0 at its left end, 1 at its right end. */
static void put_tick(const chart *c, double at, const char *text) {
  const char *place = at < 0.04 ? " class=\"first\"" : at > 0.94 ? " class=\"last\"" : "";
  (void)fprintf(c->f, "<span%s style=\"left:%.1f%%\">%s</span>", place, 100 * at, text);
}

static void begin_axis(const chart *c) { (void)fputs("</div>\n<div class=\"axis\">", c->f); }

static void end_panel(const chart *c) { (void)fputs("</div></div>\n", c->f); }

static void begin_chart(chart *c, const char *title, const char *words) {
  (void)fprintf(c->f, "<h2>%s</h2>\n<p>%s</p>\n<figure>\n", title, words);
  c->top = 0;
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    for (int i = 0; i < c->bars && c->s->options.modes[mode]; i++)
      if (c->y[mode][i] > c->top) c->top = c->y[mode][i];
  if (c->top <= 0) c->top = 1;
}

static void end_chart(const chart *c) { (void)fputs("</figure>\n", c->f); }

/* ---- over time ----------------------------------------------------------------------------- */

/* The shortest of 1, 2, 5, 10... ms that gives at most six ticks. */
static int64_t tick_of(int64_t ms) {
  int64_t tick = 1;
  for (int i = 0; ms / tick > 5; i = (i + 1) % 3) tick = i == 1 ? tick / 2 * 5 : tick * 2;
  return tick;
}

static void put_times(const chart *c) {
  int64_t ms = c->bars * c->s->shared->bucket_ms;
  int64_t tick = tick_of(ms);
  begin_axis(c);
  for (int64_t at = 0; at <= ms; at += tick) {
    char text[32];
    (void)snprintf(text, sizeof text, "%g s", (double)at / 1000);
    put_tick(c, (double)at / (double)ms, text);
  }
}

/* `most` shows a height as a text; `about` follows it. */
static void put_timelines(const chart *c, const char *(*most)(char *text, double y),
                          const char *about) {
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    if (!c->s->options.modes[mode]) continue;
    char text[CLI_TIME_TEXT];
    char words[96];
    double peak = 0;
    for (int i = 0; i < c->bars; i++) peak = c->y[mode][i] > peak ? c->y[mode][i] : peak;
    (void)snprintf(words, sizeof words, "%s %s", most(text, peak), about);
    begin_panel(c, mode, words);
    put_bars(c, mode);
    (void)fputs("</svg>", c->f);
    put_height(c, c->top, most(text, c->top));
    put_times(c);
    end_panel(c);
  }
}

static const char *as_count(char *text, double y) {
  (void)snprintf(text, CLI_TIME_TEXT, "%.0f", y);
  return text;
}

static const char *as_time(char *text, double y) { return cli_time_text(text, (int64_t)y); }

static void set_heights(chart *c, bool at_once) {
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    const storm_result *r = &c->s->shared->results[mode];
    for (int i = 0; i < c->bars; i++)
      c->y[mode][i] = atomic_load(at_once ? &r->at_once[i] : &r->begun[i]);
  }
}

static void put_computes(chart *c) {
  char words[160];
  set_heights(c, true);
  begin_chart(
      c, "Computes at once",
      "How many queries were under way in the database. Many at once slow each other down.");
  put_timelines(c, as_count, "at once at most");
  end_chart(c);
  set_heights(c, false);
  (void)snprintf(words, sizeof words,
                 "How many queries began in each %lld ms. One per life of a value is enough.",
                 (long long)c->s->shared->bucket_ms);
  begin_chart(c, "Computes begun", words);
  put_timelines(c, as_count, "at most in one bar");
  end_chart(c);
}

/* The longest wait of the requests that were due in each bucket. */
static void put_waits_over_time(chart *c) {
  const storm *s = c->s;
  memset(c->y, 0, sizeof c->y);
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    for (size_t i = 0; i < s->due_count && s->options.modes[mode]; i++) {
      int64_t bar = s->due_us[i] / 1000 / s->shared->bucket_ms;
      double us = atomic_load(&s->answered[mode][i]);
      if (bar < c->bars && us > c->y[mode][bar]) c->y[mode][bar] = us;
    }
  begin_chart(c, "The longest wait, by the moment that a request was due",
              "What a user felt who came at that moment, at worst.");
  put_timelines(c, as_time, "at most");
  end_chart(c);
}

/* ---- histogram ----------------------------------------------------------------------------- */

/* The place of a wait on the axis, in buckets: each power of two has FINE of the same width. */
static double place_of(double us) {
  int octave = 0;
  double fraction = frexp(us < 1 ? 1 : us, &octave); /* 0.5 to 1 */
  double place = (octave - 1) * FINE + (2 * fraction - 1) * FINE;
  return place < BARS - 1 ? place : BARS - 1;
}

/* The buckets shown, from FIRST; shorter waits are in the first one. */
static int bar_of(double us) {
  int bar = (int)place_of(us) - FIRST;
  return bar > 0 ? bar : 0;
}

/* Bars of a logarithmic scale, on which one request is seen. */
static double logarithm(double count) { return count > 0 ? log10(count) + 0.5 : 0; }

static void count_waits(chart *c) {
  memset(c->y, 0, sizeof c->y);
  c->bars = 1;
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    const storm_waits *w = &c->s->waits[mode];
    for (size_t i = 0; i < w->count; i++) {
      int bar = bar_of(w->us[i]);
      c->y[mode][bar]++;
      if (bar >= c->bars) c->bars = bar + 1;
    }
  }
  for (storm_mode mode = 0; mode < STORM_MODES; mode++)
    for (int i = 0; i < c->bars; i++) c->y[mode][i] = logarithm(c->y[mode][i]);
}

static void put_grid(const chart *c) {
  for (double count = 1; logarithm(count) < c->top; count *= 10) {
    double y = 100 - 100 * logarithm(count) / c->top;
    (void)fprintf(c->f, "<path class=\"grid\" d=\"M0 %.1fH%d\"/>", y, c->bars);
  }
}

static void put_quantile(const chart *c, storm_mode mode, double q) {
  (void)fprintf(c->f, "<path class=\"mark\" d=\"M%.1f 0V100\"/>",
                bar_of((double)storm_quantile(&c->s->waits[mode], q)) + 0.5);
}

/* The name of a quantile, beside its line. */
static void put_quantile_name(const chart *c, storm_mode mode, double q, const char *name) {
  double at = (bar_of((double)storm_quantile(&c->s->waits[mode], q)) + 0.5) / c->bars;
  (void)fprintf(c->f, "<span class=\"q\" style=\"%s:calc(%.1f%% + .2rem)\">%s</span>",
                at < 0.8 ? "left" : "right", 100 * (at < 0.8 ? at : 1 - at), name);
}

static void put_scales(const chart *c) {
  for (double count = 1; logarithm(count) < c->top; count *= 10) {
    char text[CLI_TIME_TEXT];
    put_height(c, logarithm(count), as_count(text, count));
  }
  begin_axis(c);
  for (double us = 10; place_of(us) - FIRST < c->bars; us *= 10) {
    char text[32];
    (void)snprintf(text, sizeof text,
                   us < 1e3   ? "%g us"
                   : us < 1e6 ? "%g ms"
                              : "%g s",
                   us < 1e3   ? us
                   : us < 1e6 ? us / 1e3
                              : us / 1e6);
    put_tick(c, (place_of(us) - FIRST) / c->bars, text);
  }
}

static void put_histogram(chart *c) {
  count_waits(c);
  begin_chart(c, "How long requests waited",
              "Each line across is ten times as many requests as the one below it; to the right, "
              "each power of two has the same width. Dashed: p50 and p99.");
  for (storm_mode mode = 0; mode < STORM_MODES; mode++) {
    if (!c->s->options.modes[mode]) continue;
    char p50[CLI_TIME_TEXT];
    char p99[CLI_TIME_TEXT];
    char words[96];
    const storm_waits *w = &c->s->waits[mode];
    (void)snprintf(words, sizeof words, "p50 %s, p99 %s",
                   cli_time_text(p50, storm_quantile(w, 0.5)),
                   cli_time_text(p99, storm_quantile(w, 0.99)));
    begin_panel(c, mode, words);
    put_grid(c);
    put_bars(c, mode);
    put_quantile(c, mode, 0.5);
    put_quantile(c, mode, 0.99);
    (void)fputs("</svg>", c->f);
    put_quantile_name(c, mode, 0.5, "p50");
    put_quantile_name(c, mode, 0.99, "p99");
    put_scales(c);
    end_panel(c);
  }
  end_chart(c);
}

void storm_charts(const storm *s, FILE *f) {
  static chart c;
  c = (chart){.s = s, .f = f};
  put_histogram(&c);
  c.bars = storm_columns(s);
  put_waits_over_time(&c);
  put_computes(&c);
}
