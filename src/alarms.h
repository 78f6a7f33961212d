/* alarms.h: one thread that rings at given moments, for those who wait without a thread of their
 * own. */
#ifndef CRL_ALARMS_H
#define CRL_ALARMS_H

#include <stddef.h>
#include <stdint.h>

typedef struct crl_alarms crl_alarms;

/* In its owner's memory, zeroed. */
typedef struct crl_alarm {
  int64_t at;   /* crl_env_now_ms */
  size_t place; /* in the heap, from 1; 0: not set */
  /* On the thread of the alarms, under their mutex: it must not come back to them. Set by the owner
   * before the first crl_alarms_set. */
  void (*ring)(struct crl_alarm *alarm);
} crl_alarm;

/* Starts no thread. NULL without memory. */
crl_alarms *crl_alarms_new(void);
/* None may be set. */
void crl_alarms_free(crl_alarms *alarms);
/* It rings once, at `at` or soon after, unless it is set anew or cleared before. CORRAL_OK;
 * CORRAL_ENOMEM, CORRAL_EIO (no thread): then it isn't set. */
int crl_alarms_set(crl_alarms *alarms, crl_alarm *alarm, int64_t at);
/* It isn't ringing when this returns, and won't. */
void crl_alarms_clear(crl_alarms *alarms, crl_alarm *alarm);

#endif
