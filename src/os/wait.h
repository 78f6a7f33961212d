/* wait.h: the primitives that somebody sleeps on and is woken by: a waiter, a word or a callback,
 * for one sleeper; a bell, for many at once; a latch, for those who need the same thing for a
 * moment. */
#ifndef CRL_WAIT_H
#define CRL_WAIT_H

#include <stdatomic.h>
#include <stdint.h>

/* In its owner's memory; zero before its first use, and then for one sleeper at a time. It needs no
 * cleaning. A wake that comes before the sleep isn't lost. */
typedef struct crl_waiter {
  _Atomic uint32_t word; /* futex(2), private */
  /* not NULL: called for each wake, on the waking thread, under any mutex that it holds; nobody
   * sleeps on this waiter. May be set while another thread wakes the waiter: it is called for that
   * wake, or isn't */
  void (*_Atomic hook)(struct crl_waiter *waiter);
} crl_waiter;

/* Wakes the sleeper, or calls the hook. Nothing of the waiter is read or written after the sleeper
 * could have seen the wake. Any thread. */
void crl_waiter_wake(crl_waiter *waiter);
/* Sleeps until a wake, which it uses up, or until `until` (crl_env_now_ms; INT64_MAX: no limit; a
 * past moment: only looks). 1 when woken. */
int crl_waiter_sleep(crl_waiter *waiter, int64_t until);

/* Zero before its first use; it needs no cleaning. A sleeper looks for what it waits for between
 * crl_bell_listen and crl_bell_sleep: a bell that is rung after that has changed is never slept
 * through. It outlives its sleepers and those that ring it. */
typedef struct crl_bell {
  _Atomic uint32_t word; /* futex(2), private: how often it rang, times two; + 1: somebody sleeps */
} crl_bell;

#define CRL_BELL_ALL UINT32_MAX

/* Wakes the sleepers that share a bit with `bits`, by one system call; by none where nobody
 * sleeps. */
void crl_bell_ring(crl_bell *bell, uint32_t bits);
uint32_t crl_bell_listen(crl_bell *bell);
/* Sleeps until a ring for one of `bits`, if there was none at all since `heard` was listened to; or
 * until `until`; or for no reason. */
void crl_bell_sleep(crl_bell *bell, uint32_t heard, uint32_t bits, int64_t until);

/* A mutex for what each hit enters: where nobody is in the way, it is taken and given back without
 * a call. Zero before its first use; it needs no cleaning. Not recursive.
 *
 * The second mutex of U. Drepper, "Futexes Are Tricky", 2011. */
typedef struct crl_latch {
  _Atomic uint32_t word; /* futex(2), private: 0 free, 1 held, 2 held and perhaps waited for */
} crl_latch;

void crl_latch_wait(crl_latch *latch);
void crl_latch_wake(crl_latch *latch);

static inline void crl_latch_take(crl_latch *latch) {
  uint32_t is_free = 0;
  if (!atomic_compare_exchange_strong_explicit(&latch->word, &is_free, 1, memory_order_acquire,
                                               memory_order_relaxed))
    crl_latch_wait(latch);
}

static inline void crl_latch_give(crl_latch *latch) {
  if (atomic_exchange_explicit(&latch->word, 0, memory_order_release) == 2) crl_latch_wake(latch);
}

#endif
