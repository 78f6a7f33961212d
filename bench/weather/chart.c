/* chart.c: the chart, an SVG: a panel for each scenario, with a line for each guard: which share of
 * the calls that were to begin at each moment was good. Behind it the trigger, and which share the
 * origin could answer by itself. */
#include "weather.h"

#include <stdlib.h>

#include "../kit.h"
#include "../svg.h"

struct chart {
  svg *svg;
  const plan *plan;
  double load;
};

static const char *colour(guard g) {
  static const char *const colours[GUARDS] = {"#c0392b", "#d68910", "#1a6fb5", "#1e8449",
                                              "#6c3483"};
  return colours[g];
}

static const char *title(guard g) {
  static const char *const titles[GUARDS] = {"no guard", "lock and poll", "corral",
                                             "corral, near tier", "corral, ramp"};
  return titles[g];
}

chart *chart_begin(const char *path, const plan *p, double load) {
  char words[96];
  chart *c = calloc(1, sizeof *c);
  if (c == NULL) die("no memory");
  c->plan = p;
  c->load = load;
  snprintf(words, sizeof words, "Calls answered in time, at %.1f times the origin's capacity",
           load);
  c->svg = svg_begin(path, words,
                     "Grey: the trigger. Dashed: what the origin could answer by itself. Seconds "
                     "from the trigger on.",
                     ".trigger{fill:#bbb;opacity:.45}.able{stroke:#555;stroke-dasharray:4 3}");
  return c;
}

/* ---- one panel ----------------------------------------------------------------------------- */

static double across(const figures *f, double step) {
  return SVG_LEFT + SVG_PLOT * step / f->steps;
}

static double down(double share) { return SVG_HEIGHT * (1 - (share > 1 ? 1 : share)); }

static void draw_frame(const chart *c, const scenario *s, const figures *f) {
  FILE *out = svg_out(c->svg);
  double begin = (double)c->plan->before_us / STEP_US, width = (double)s->lasts_us / STEP_US;
  double able = report_capacity(s) / c->load;
  double x = across(f, begin), to = across(f, begin + width);
  fprintf(out, "<rect x=\"%.1f\" width=\"%.1f\" height=\"%d\" class=\"trigger\"/>\n", x,
          to - x < 2 ? 2 : to - x, SVG_HEIGHT);
  fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"able\"/>\n", x,
          to - x < 40 ? x + 40 : to, down(able), down(able));
  svg_text(c->svg, SVG_LEFT - 6, 10, "end", "100 %");
  svg_text(c->svg, SVG_LEFT - 6, SVG_HEIGHT, "end", "0");
  for (int at = 0; at * (int64_t)STEP_US <= f->steps * (int64_t)STEP_US; at += 8) {
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.0f s",
             at * (STEP_US / 1e6) - (double)c->plan->before_us / 1e6);
    if (at <= f->steps) svg_text(c->svg, across(f, at), SVG_HEIGHT + 14, "middle", seconds);
  }
}

static void draw_line(const chart *c, const figures *f) {
  double x[STEPS], y[STEPS];
  for (int i = 0; i < f->steps; i++) {
    x[i] = across(f, i + 0.5);
    y[i] = down(f->share[i]);
  }
  svg_line(c->svg, colour(f->guard), x, y, f->steps);
}

static void draw_words(const chart *c, const figures *f, int row) {
  char back[32] = "never back", words[160];
  if (f->back_s >= 0) snprintf(back, sizeof back, "back after %.1f s", f->back_s);
  snprintf(words, sizeof words, "%s: %.0f %% good, %s, %d computes", title(f->guard),
           100.0 * f->good / (f->offered > 0 ? f->offered : 1), back, f->computes);
  svg_words(c->svg, row, colour(f->guard), words);
}

void chart_add(chart *c, const scenario *s, const figures *f, int count) {
  int row = 0;
  svg_panel(c->svg, s->title);
  for (int i = 0; i < count; i++) {
    if (f[i].load != c->load) continue;
    if (row == 0) draw_frame(c, s, &f[i]);
    draw_line(c, &f[i]);
    draw_words(c, &f[i], row++);
  }
}

int chart_end(chart *c) {
  int fine = svg_end(c->svg);
  free(c);
  return fine;
}
