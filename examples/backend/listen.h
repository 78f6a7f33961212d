/* listen.h: a thread that hears of changes from the database, and voids what was computed from
 * before. */
#ifndef BACKEND_LISTEN_H
#define BACKEND_LISTEN_H

#include <corral.h>

typedef struct listener listener;

/* `conninfo` and `reports`, which needs the option `generation`, must outlive it. It ends when
 * `stop_fd` is readable. NULL: no thread to be had. */
listener *listener_start(corral *reports, const char *conninfo, int stop_fd);
/* Waits for its end, which stop_fd brings about. NULL is allowed. */
void listener_join(listener *l);
/* Whether changes are heard of now, and nothing is left to be voided. Any thread. */
int listener_hears(const listener *l);
/* How many notifications have come, and were acted upon. Any thread. */
unsigned long long listener_heard(const listener *l);

#endif
