/* svg.c: the drawing of charts. */
#include "svg.h"

#include <stdlib.h>
#include <string.h>

#include "kit.h"

enum { TOP = 96, PITCH = 172, WIDTH = 1000 };

struct svg {
  FILE *file;
  char *title, *below, *style;
  char *panels; /* written behind the head, when their number is known */
  size_t size;
  FILE *body;
  int count;
};

static char *copy(const char *text) {
  char *own = strdup(text);
  if (own == NULL) die("no memory");
  return own;
}

svg *svg_begin(const char *path, const char *title, const char *below, const char *style) {
  svg *s = calloc(1, sizeof *s);
  if (s == NULL) die("no memory");
  s->title = copy(title);
  s->below = copy(below);
  s->style = copy(style);
  if ((s->file = fopen(path, "w")) == NULL) die("the chart can't be written");
  if ((s->body = open_memstream(&s->panels, &s->size)) == NULL) die("no memory");
  return s;
}

void svg_panel(svg *s, const char *title) {
  if (s->count > 0) fprintf(s->body, "</g>\n");
  fprintf(s->body, "<g transform=\"translate(0,%d)\">\n", TOP + PITCH * s->count++);
  fprintf(s->body, "<text x=\"%d\" y=\"-8\" class=\"title\">%s</text>\n", SVG_LEFT, title);
  fprintf(s->body, "<rect x=\"%d\" width=\"%d\" height=\"%d\" class=\"plot\"/>\n", SVG_LEFT,
          SVG_PLOT, SVG_HEIGHT);
}

FILE *svg_out(svg *s) { return s->body; }

void svg_text(svg *s, double x, double y, const char *anchor, const char *words) {
  fprintf(s->body, "<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
          words);
}

void svg_line(svg *s, const char *colour, const double *x, const double *y, int count) {
  fprintf(s->body, "<polyline stroke=\"%s\" points=\"", colour);
  for (int i = 0; i < count; i++) fprintf(s->body, "%.1f,%.1f ", x[i], y[i]);
  fprintf(s->body, "\"/>\n");
}

void svg_words(svg *s, int row, const char *colour, const char *words) {
  fprintf(s->body, "<text x=\"%d\" y=\"%d\" fill=\"%s\">%s</text>\n", SVG_LEFT + SVG_PLOT + 12,
          14 + 18 * row, colour, words);
}

static void write_head(const svg *s) {
  int height = TOP + PITCH * s->count;
  fprintf(s->file,
          "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" "
          "viewBox=\"0 0 %d %d\" font-family=\"sans-serif\" font-size=\"12\">\n"
          "<style>.plot{fill:#fafafa;stroke:#999}%s.title{font-weight:bold;font-size:14px}"
          "polyline{fill:none;stroke-width:1.8;stroke-linejoin:round}</style>\n"
          "<rect width=\"%d\" height=\"%d\" fill=\"#fff\"/>\n",
          WIDTH, height, WIDTH, height, s->style, WIDTH, height);
  fprintf(s->file,
          "<text x=\"%d\" y=\"28\" class=\"title\">%s</text>\n"
          "<text x=\"%d\" y=\"48\">%s</text>\n",
          SVG_LEFT, s->title, SVG_LEFT, s->below);
}

int svg_end(svg *s) {
  if (s->count > 0) fprintf(s->body, "</g>\n");
  fclose(s->body);
  write_head(s);
  fwrite(s->panels, 1, s->size, s->file);
  fprintf(s->file, "</svg>\n");
  int fine = !ferror(s->file);
  fine &= fclose(s->file) == 0;
  free(s->panels);
  free(s->title);
  free(s->below);
  free(s->style);
  free(s);
  return fine;
}
