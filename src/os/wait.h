/* wait.h: the one primitive that somebody sleeps on and is woken by: a word, or a callback. */
#ifndef CRL_WAIT_H
#define CRL_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* In its owner's memory; zero before its first use, and then for one sleeper at a time. It needs no
 * cleaning. A wake that comes before the sleep isn't lost. */
typedef struct crl_waiter {
  _Atomic uint32_t woken; /* futex(2), private */
  /* not NULL: called for each wake, on the waking thread, under any mutex that it holds; nobody
   * sleeps on this waiter */
  void (*hook)(struct crl_waiter *waiter);
} crl_waiter;

/* Wakes the sleeper, or calls the hook. Nothing of the waiter is read or written after the sleeper
 * could have seen the wake. Any thread. */
void crl_waiter_wake(crl_waiter *waiter);
/* Sleeps until a wake, which it uses up, or until `until` (crl_env_now_ms; INT64_MAX: no limit; a
 * past moment: only looks). 1 when woken. */
int crl_waiter_sleep(crl_waiter *waiter, int64_t until);

#endif
