/* timers.h: the one clock of timers: polls of parked runs, deadlines of calls, and tasks
 * (task.h). */
#ifndef CRL_TIMERS_H
#define CRL_TIMERS_H

#include "base/heap.h"

typedef struct crl_timers crl_timers;

/* One timer, in its owner's memory; zero before its first use. */
typedef struct crl_timer {
  crl_heap_node node; /* when it rings (crl_env_now_ms) */
  /* Called when the timer rings, on the thread of the timers and under their mutex: must not call
   * crl_timers_*. Returns when it rings again; INT64_MAX: it doesn't. Set by the owner before the
   * first crl_timers_set. */
  int64_t (*ring)(struct crl_timer *timer);
} crl_timer;

/* Starts no thread. NULL without memory. */
crl_timers *crl_timers_new(void);
/* No timer may be set. */
void crl_timers_free(crl_timers *timers);
/* Lets a timer ring once, at `at` or soon after, unless it is set anew or cleared before.
 * CORRAL_OK; CORRAL_EIO (no thread): the timer is not set. */
int crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at);
/* When this returns the timer is not ringing and will not ring. */
void crl_timers_clear(crl_timers *timers, crl_timer *timer);

#endif
