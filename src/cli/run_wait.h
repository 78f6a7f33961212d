/* run_wait.h: says once for whom a call waits, from a thread of its own, since a hook may not ask
 * the store. */
#ifndef CORRAL_CLI_RUN_WAIT_H
#define CORRAL_CLI_RUN_WAIT_H

#include "run.h"

#include <pthread.h>

typedef struct run_wait {
  corral *corral;
  const run_key *key;
  const char *name; /* of the key, for the message */
  bool at_once;     /* else only of a wait of a second */
  int quit;         /* eventfd; set by run_wait_begin */
  bool is_begun;
  pthread_t thread;
} run_wait;

/* Begins to look whether calls on the corral wait. Without memory nothing is said. */
void run_wait_begin(run_wait *w);
void run_wait_end(run_wait *w);

#endif
