/* svg.h: charts of the benchmarks: panels one below the other, each with a plot and, beside it, a
 * row of words for each line.
 *
 * Within a panel, x is that of the chart and y begins at the plot's upper edge. */
#ifndef BENCH_SVG_H
#define BENCH_SVG_H

#include <stdio.h>

enum { SVG_LEFT = 48, SVG_PLOT = 540, SVG_HEIGHT = 112 };

typedef struct svg svg;

/* Begins a chart in a new file, under two lines of text; `style`: CSS besides its own. Ends the
 * process where the file can't be written. */
svg *svg_begin(const char *path, const char *title, const char *below, const char *style);
/* Begins a panel: its title, and the plot's frame. All that follows belongs to it. */
void svg_panel(svg *s, const char *title);
/* For shapes of the panel that are the caller's own. */
FILE *svg_out(svg *s);
/* `anchor`: "start", "middle" or "end". */
void svg_text(svg *s, double x, double y, const char *anchor, const char *words);
/* A line through `count` points. */
void svg_line(svg *s, const char *colour, const double *x, const double *y, int count);
/* A row of words beside the plot, from 0. */
void svg_words(svg *s, int row, const char *colour, const char *words);
/* Writes the chart: 0 when that failed. */
int svg_end(svg *s);

#endif
