/* top.h: what corral top shows, and the page that is made of it. */
#ifndef CORRAL_CLI_TOP_H
#define CORRAL_CLI_TOP_H

#include "screen.h"
#include "stat.h"

/* The orders of the caches. X(identifier, name). */
#define TOP_SORT_MAP(X)                                                                            \
  X(GETS, "gets")                                                                                  \
  X(COMPUTES, "computes")                                                                          \
  X(SAVED, "saved")                                                                                \
  X(WAITING, "waiting")                                                                            \
  X(NAME, "name")

typedef enum top_sort {
#define TOP_SORT_ENUM(id, name) TOP_SORT_##id,
  TOP_SORT_MAP(TOP_SORT_ENUM)
#undef TOP_SORT_ENUM
      TOP_SORTS
} top_sort;

enum { TOP_FILTER = 64 };

typedef struct top_view {
  top_sort sort;
  char filter[TOP_FILTER]; /* a part of the names of the caches that are shown */
  bool is_typing;          /* the filter */
  bool is_paused;
  int64_t every_ms;
} top_view;

/* A look, by name of the caches. */
typedef struct top_look {
  stat_host host;
  int64_t at_ns; /* by cli_now_ns */
} top_look;

/* top_page.c: fills in the lines. `before`: the look before that; NULL: there was none, and no
 * rates are known. */
void top_draw(screen_page *page, const top_view *view, const top_look *now, const top_look *before);

#endif
