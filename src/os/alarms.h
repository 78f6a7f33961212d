/* alarms.h: timers on one thread, for waits that have no thread of their own. */
#ifndef CRL_ALARMS_H
#define CRL_ALARMS_H

#include <stddef.h>
#include <stdint.h>

typedef struct crl_alarms crl_alarms;

/* One timer, in its owner's memory; zero before its first use. */
typedef struct crl_alarm {
  int64_t at;   /* when it rings (crl_env_now_ms) */
  size_t place; /* index in the heap, from 1; 0: not set */
  /* Called when the timer rings, on the thread of the alarms and under their mutex: must not call
   * crl_alarms_*. Set by the owner before the first crl_alarms_set. */
  void (*ring)(struct crl_alarm *alarm);
} crl_alarm;

/* Starts no thread. NULL without memory. */
crl_alarms *crl_alarms_new(void);
/* No timer may be set. */
void crl_alarms_free(crl_alarms *alarms);
/* Lets a timer ring once, at `at` or soon after, unless it is set anew or cleared before.
 * CORRAL_OK; CORRAL_ENOMEM, CORRAL_EIO (no thread): the timer is not set. */
int crl_alarms_set(crl_alarms *alarms, crl_alarm *alarm, int64_t at);
/* When this returns the timer is not ringing and will not ring. */
void crl_alarms_clear(crl_alarms *alarms, crl_alarm *alarm);

#endif
