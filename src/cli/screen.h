/* screen.h: a terminal as a screen that is drawn anew again and again, by plain escape sequences.
 * What it was before comes back when the screen is closed, also before a stop by Ctrl-Z. */
#ifndef CORRAL_CLI_SCREEN_H
#define CORRAL_CLI_SCREEN_H

#include <stdbool.h>
#include <stddef.h>

enum { SCREEN_ROWS = 100, SCREEN_COLUMNS = 250, SCREEN_LINE = 4 * SCREEN_COLUMNS + 1 };

/* A page. Each line is fit to be shown, and has the page's columns at most. */
typedef struct screen_page {
  size_t rows, columns; /* of the terminal */
  size_t count;         /* lines */
  char lines[SCREEN_ROWS][SCREEN_LINE];
  bool is_title[SCREEN_ROWS]; /* in reverse */
} screen_page;

/* True when standard input and output are a terminal that obeys escape sequences. */
bool screen_is_possible(void);
/* Sets the size of a page by the terminal's, and its lines to none; 80 columns and 24 lines where
 * there is no terminal. */
void screen_begin(screen_page *page);
/* False with errno set. */
bool screen_open(void);
void screen_close(void);
/* False with errno set: the terminal is gone. */
bool screen_draw(const screen_page *page);

typedef enum screen_event {
  SCREEN_TIME,    /* the time is over */
  SCREEN_KEY,     /* *ret is a byte that was typed; without those of cursor keys and the like */
  SCREEN_CHANGED, /* the size may be another one: to be drawn anew */
  SCREEN_SIGNAL,  /* *ret is a signal that is to end the process */
  SCREEN_GONE     /* the terminal is gone */
} screen_event;
/* The next event, until `at_ns` of cli_now_ns. Also without an open screen, then without keys. */
screen_event screen_next(int signals, long long at_ns, int *ret);

#endif
