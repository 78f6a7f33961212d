/* listen.h: a thread that follows the changes of the data, for all processes that share the store,
 * and expires the reports computed before them. */
#ifndef BACKEND_LISTEN_H
#define BACKEND_LISTEN_H

#include <corral.h>

typedef struct listener listener;

typedef struct listener_options {
  corral *reports;      /* with the option `generation`; must outlive the listener */
  const char *conninfo; /* of libpq; must outlive the listener */
  int64_t pace_ms;      /* shortest pause between two expiries of a report */
  int is_private;       /* no other process shares the reports, which end with this one */
  int stop_fd;          /* readable: the thread ends */
} listener_options;

/* Starts the thread. NULL: none can be had. */
listener *listener_start(const listener_options *options);
/* Waits for the thread's end, which stop_fd causes. NULL is allowed. */
void listener_join(listener *l);
/* 1: this process follows the changes, or stands by for the one that does. 0: the database or the
 * store is away, or what has changed could not be expired yet. Any thread. */
int listener_hears(const listener *l);
/* 1: this process is the one that follows the changes. Any thread. */
int listener_leads(const listener *l);
/* Number of changes that this process has read, noted and recorded, or, while it stands by, of
 * wake-ups that it has heeded. Any thread. */
unsigned long long listener_heard(const listener *l);

#endif
