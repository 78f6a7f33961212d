/* chart.c: the chart, an SVG: a panel for each scenario, with a line for each guard: which share of
 * the calls that were to begin at each moment was good. Behind it the trigger, and which share the
 * origin could answer by itself. */
#include "weather.h"

#include <stdlib.h>
#include <string.h>

#include "../kit.h"

enum { LEFT = 48, PLOT = 540, TOP = 96, HEIGHT = 112, PITCH = 172, WIDTH = 1000 };

struct chart {
  FILE *file;
  const plan *plan;
  double load;
  char *panels; /* written behind the head, when their number is known */
  size_t size;
  FILE *body;
  int count;
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
  chart *c = calloc(1, sizeof *c);
  if (c == NULL) die("no memory");
  c->plan = p;
  c->load = load;
  if ((c->file = fopen(path, "w")) == NULL) die("the chart can't be written");
  if ((c->body = open_memstream(&c->panels, &c->size)) == NULL) die("no memory");
  return c;
}

/* ---- one panel ----------------------------------------------------------------------------- */

static double across(const figures *f, double step) { return LEFT + PLOT * step / f->steps; }

static double down(double share) { return HEIGHT * (1 - (share > 1 ? 1 : share)); }

static void text(FILE *out, double x, double y, const char *anchor, const char *words) {
  fprintf(out, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor, words);
}

static void draw_frame(const chart *c, const scenario *s, const figures *f) {
  FILE *out = c->body;
  double begin = (double)c->plan->before_us / STEP_US, width = (double)s->lasts_us / STEP_US;
  double able = report_capacity(s) / c->load;
  double x = across(f, begin), to = across(f, begin + width);
  fprintf(out, "<text x=\"%d\" y=\"-8\" class=\"title\">%s</text>\n", LEFT, s->title);
  fprintf(out, "<rect x=\"%d\" width=\"%d\" height=\"%d\" class=\"plot\"/>\n", LEFT, PLOT, HEIGHT);
  fprintf(out, "<rect x=\"%.1f\" width=\"%.1f\" height=\"%d\" class=\"trigger\"/>\n", x,
          to - x < 2 ? 2 : to - x, HEIGHT);
  fprintf(out, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"able\"/>\n", x,
          to - x < 40 ? x + 40 : to, down(able), down(able));
  text(out, LEFT - 6, 10, "end", "100 %");
  text(out, LEFT - 6, HEIGHT, "end", "0");
  for (int at = 0; at * (int64_t)STEP_US <= f->steps * (int64_t)STEP_US; at += 8) {
    char seconds[32];
    snprintf(seconds, sizeof seconds, "%.0f s",
             at * (STEP_US / 1e6) - (double)c->plan->before_us / 1e6);
    if (at <= f->steps) text(out, across(f, at), HEIGHT + 14, "middle", seconds);
  }
}

static void draw_line(const chart *c, const figures *f) {
  fprintf(c->body, "<polyline stroke=\"%s\" points=\"", colour(f->guard));
  for (int i = 0; i < f->steps; i++)
    fprintf(c->body, "%.1f,%.1f ", across(f, i + 0.5), down(f->share[i]));
  fprintf(c->body, "\"/>\n");
}

static void draw_words(const chart *c, const figures *f, int row) {
  char back[32] = "never back", words[160];
  if (f->back_s >= 0) snprintf(back, sizeof back, "back after %.1f s", f->back_s);
  snprintf(words, sizeof words, "%s: %.0f %% good, %s, %d computes", title(f->guard),
           100.0 * f->good / (f->offered > 0 ? f->offered : 1), back, f->computes);
  fprintf(c->body, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", LEFT + PLOT + 12,
          14 + 18 * row, colour(f->guard), words);
}

void chart_add(chart *c, const scenario *s, const figures *f, int count) {
  int row = 0;
  fprintf(c->body, "<g transform=\"translate(0,%d)\">\n", TOP + PITCH * c->count++);
  for (int i = 0; i < count; i++) {
    if (f[i].load != c->load) continue;
    if (row == 0) draw_frame(c, s, &f[i]);
    draw_line(c, &f[i]);
    draw_words(c, &f[i], row++);
  }
  fprintf(c->body, "</g>\n");
}

int chart_end(chart *c) {
  FILE *out = c->file;
  int height = TOP + PITCH * c->count;
  fclose(c->body);
  fprintf(out,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
          "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
          "<style>.plot{fill:#fafafa;stroke:#999}.trigger{fill:#bbb;opacity:.45}"
          ".able{stroke:#555;stroke-dasharray:4 3}.title{font-weight:bold;font-size:14px}"
          "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}</style>\n"
          "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
          WIDTH, height, WIDTH, height, WIDTH, height);
  fprintf(out,
          "<text x=\"%d\" y=\"28\" class=\"title\">Calls answered in time, at %.1f times the "
          "origin's capacity</text>\n"
          "<text x=\"%d\" y=\"48\">Grey: the trigger. Dashed: what the origin could answer by "
          "itself. Seconds from the trigger on.</text>\n",
          LEFT, c->load, LEFT);
  fwrite(c->panels, 1, c->size, out);
  fprintf(out, "</svg>\n");
  int fine = !ferror(out);
  fine &= fclose(out) == 0;
  free(c->panels);
  free(c);
  return fine;
}
