/* cancel.h: cancel tokens, which cancel calls from another thread; and waiters, which sleep until
 * they are woken. */
#ifndef CRL_CANCEL_H
#define CRL_CANCEL_H

#include <corral.h>
#include <pthread.h>

/* One wait of a call, ended by crl_waiter_wake; a wake that comes early isn't lost. */
typedef struct crl_waiter {
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  int woken;
  /* not NULL: called for each wake, on the waking thread, under any mutex that it holds; nothing
   * sleeps on this waiter */
  void (*hook)(struct crl_waiter *waiter);
} crl_waiter;

void crl_waiter_init(crl_waiter *waiter);
void crl_waiter_init_hook(crl_waiter *waiter, void (*hook)(crl_waiter *waiter));
void crl_waiter_clean(crl_waiter *waiter);
void crl_waiter_wake(crl_waiter *waiter);
/* Waits for a wake, which it uses up, or until `until` (crl_env_now_ms). 1 when woken. */
int crl_waiter_sleep(crl_waiter *waiter, int64_t until);

/* A call's place in a cancel token, in its owner's memory. */
typedef struct crl_canceller {
  struct crl_canceller *next, **link;
  /* for corral_cancel_token_cancel, on the cancelling thread, under the cancel token's mutex: must
   * not use the cancel token */
  void (*wake)(void *arg);
  void *arg;
} crl_canceller;

/* A NULL cancel token is never cancelled. */
int crl_cancelled(const corral_cancel_token *cancel_token);
void crl_cancel_join(corral_cancel_token *cancel_token, crl_canceller *canceller,
                     void (*wake)(void *arg), void *arg);
/* The same for a waiter. */
void crl_cancel_join_waiter(corral_cancel_token *cancel_token, crl_canceller *canceller,
                            crl_waiter *waiter);
/* No wake is under way when this returns, and none will come. */
void crl_cancel_leave(corral_cancel_token *cancel_token, crl_canceller *canceller);

#endif
