/* cancel.c: cancel tokens, which end calls from another thread. */
#include "os/cancel.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/check.h"
#include "base/value.h"

struct corral_cancel_token {
  pthread_mutex_t mutex;
  crl_canceller *cancellers;
  _Atomic int cancelled;
};

#ifdef CORRAL_CHECKS
static void check(const corral_cancel_token *cancel_token) {
  crl_canceller *const *link = &cancel_token->cancellers;
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->next, left--) {
    CRL_MUST((*link)->link == link, "cancel token: a call knows the link to it");
    CRL_MUST((*link)->wake != NULL, "cancel token: a call can be woken");
  }
}
#endif

static void lock(corral_cancel_token *cancel_token) {
  pthread_mutex_lock(&cancel_token->mutex);
  CRL_CHECK(cancel_token);
}

static void unlock(corral_cancel_token *cancel_token) {
  CRL_CHECK(cancel_token);
  pthread_mutex_unlock(&cancel_token->mutex);
}

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
  lock(cancel_token);
  for (crl_canceller *canceller = cancel_token->cancellers; canceller != NULL;
       canceller = canceller->next)
    canceller->wake(canceller->arg);
  unlock(cancel_token);
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
  lock(cancel_token);
  canceller->next = cancel_token->cancellers;
  canceller->link = &cancel_token->cancellers;
  if (canceller->next != NULL) canceller->next->link = &canceller->next;
  cancel_token->cancellers = canceller;
  unlock(cancel_token);
}

static void wake(void *waiter) { crl_waiter_wake(waiter); }

void crl_cancel_join_waiter(corral_cancel_token *cancel_token, crl_canceller *canceller,
                            crl_waiter *waiter) {
  crl_cancel_join(cancel_token, canceller, wake, waiter);
}

void crl_cancel_leave(corral_cancel_token *cancel_token, crl_canceller *canceller) {
  if (cancel_token == NULL) return;
  lock(cancel_token);
  *canceller->link = canceller->next;
  if (canceller->next != NULL) canceller->next->link = canceller->link;
  unlock(cancel_token);
}
