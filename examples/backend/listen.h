/* listen.h: a thread that hears of changes from the database, and voids the reports computed before
 * them. */
#ifndef BACKEND_LISTEN_H
#define BACKEND_LISTEN_H

#include <corral.h>

typedef struct listener listener;

/* Starts the thread, which ends when `stop_fd` is readable. `conninfo` and `reports`, which needs
 * the option `generation`, must outlive it. NULL: no thread can be had. */
listener *listener_start(corral *reports, const char *conninfo, int stop_fd);
/* Waits for the thread's end, which stop_fd causes. NULL is allowed. */
void listener_join(listener *l);
/* 1: changes are heard of now, and nothing is left to be voided. Any thread. */
int listener_hears(const listener *l);
/* Number of notifications that came and were handled. Any thread. */
unsigned long long listener_heard(const listener *l);

#endif
