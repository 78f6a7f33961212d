/* cancel.c: cancel tokens, which cancel calls from another thread; and waiters, which sleep until
 * they are woken. */
#include "os/cancel.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

struct corral_cancel_token {
  pthread_mutex_t mutex;
  crl_canceller *cancellers;
  _Atomic int cancelled;
};

/* ---- waiters ------------------------------------------------------------------------------- */

void crl_waiter_init(crl_waiter *waiter) {
  pthread_mutex_init(&waiter->mutex, NULL);
  crl_env_cond_init(&waiter->cond);
  waiter->woken = 0;
  waiter->hook = NULL;
}

void crl_waiter_init_hook(crl_waiter *waiter, void (*hook)(crl_waiter *waiter)) {
  crl_waiter_init(waiter);
  waiter->hook = hook;
}

void crl_waiter_clean(crl_waiter *waiter) {
  pthread_cond_destroy(&waiter->cond);
  pthread_mutex_destroy(&waiter->mutex);
}

void crl_waiter_wake(crl_waiter *waiter) {
  if (waiter->hook != NULL) {
    waiter->hook(waiter);
    return;
  }
  pthread_mutex_lock(&waiter->mutex);
  waiter->woken = 1;
  pthread_cond_signal(&waiter->cond);
  pthread_mutex_unlock(&waiter->mutex);
}

int crl_waiter_sleep(crl_waiter *waiter, int64_t until) {
  pthread_mutex_lock(&waiter->mutex);
  while (!waiter->woken && crl_env_cond_wait(&waiter->cond, &waiter->mutex, until)) {
  }
  int woken = waiter->woken;
  waiter->woken = 0;
  pthread_mutex_unlock(&waiter->mutex);
  return woken;
}

/* ---- cancel tokens ------------------------------------------------------------------------- */

corral_cancel_token *corral_cancel_token_new(void) {
  corral_cancel_token *cancel_token = crl_alloc(sizeof *cancel_token);
  if (cancel_token != NULL) pthread_mutex_init(&cancel_token->mutex, NULL);
  return cancel_token;
}

void corral_cancel_token_free(corral_cancel_token *cancel_token) {
  if (cancel_token == NULL) return;
  pthread_mutex_destroy(&cancel_token->mutex);
  free(cancel_token);
}

void corral_cancel_token_cancel(corral_cancel_token *cancel_token) {
  if (cancel_token == NULL) return;
  atomic_store(&cancel_token->cancelled, 1);
  pthread_mutex_lock(&cancel_token->mutex);
  for (crl_canceller *canceller = cancel_token->cancellers; canceller != NULL;
       canceller = canceller->next)
    canceller->wake(canceller->arg);
  pthread_mutex_unlock(&cancel_token->mutex);
}

int crl_cancelled(const corral_cancel_token *cancel_token) {
  return cancel_token != NULL &&
         atomic_load(&((corral_cancel_token *)(uintptr_t)cancel_token)->cancelled);
}

void crl_cancel_join(corral_cancel_token *cancel_token, crl_canceller *canceller,
                     void (*wake)(void *arg), void *arg) {
  if (cancel_token == NULL) return;
  canceller->wake = wake;
  canceller->arg = arg;
  pthread_mutex_lock(&cancel_token->mutex);
  canceller->next = cancel_token->cancellers;
  canceller->link = &cancel_token->cancellers;
  if (canceller->next != NULL) canceller->next->link = &canceller->next;
  cancel_token->cancellers = canceller;
  pthread_mutex_unlock(&cancel_token->mutex);
}

static void wake(void *waiter) { crl_waiter_wake(waiter); }

void crl_cancel_join_waiter(corral_cancel_token *cancel_token, crl_canceller *canceller,
                            crl_waiter *waiter) {
  crl_cancel_join(cancel_token, canceller, wake, waiter);
}

void crl_cancel_leave(corral_cancel_token *cancel_token, crl_canceller *canceller) {
  if (cancel_token == NULL) return;
  pthread_mutex_lock(&cancel_token->mutex);
  *canceller->link = canceller->next;
  if (canceller->next != NULL) canceller->next->link = canceller->link;
  pthread_mutex_unlock(&cancel_token->mutex);
}
