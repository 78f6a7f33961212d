/* cancel.c: cancel tokens, which end calls from another thread. */
#include "os/cancel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

struct corral_cancel_token {
  pthread_mutex_t mutex;
  crl_canceller *cancellers;
  _Atomic int cancelled;
};

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
