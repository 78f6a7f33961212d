/* ticket.c: tickets, which cancel calls from another thread; and naps, the waits that they end. */
#include "os/ticket.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

struct corral_ticket {
  pthread_mutex_t mutex;
  crl_leaver *leavers;
  _Atomic int cancelled;
};

/* ---- naps ---------------------------------------------------------------------------------- */

void crl_nap_init(crl_nap *nap) {
  pthread_mutex_init(&nap->mutex, NULL);
  crl_env_cond_init(&nap->cond);
  nap->woken = 0;
  nap->hook = NULL;
}

void crl_nap_init_hook(crl_nap *nap, void (*hook)(crl_nap *nap)) {
  crl_nap_init(nap);
  nap->hook = hook;
}

void crl_nap_clean(crl_nap *nap) {
  pthread_cond_destroy(&nap->cond);
  pthread_mutex_destroy(&nap->mutex);
}

void crl_nap_wake(crl_nap *nap) {
  if (nap->hook != NULL) {
    nap->hook(nap);
    return;
  }
  pthread_mutex_lock(&nap->mutex);
  nap->woken = 1;
  pthread_cond_signal(&nap->cond);
  pthread_mutex_unlock(&nap->mutex);
}

int crl_nap_until(crl_nap *nap, int64_t until) {
  pthread_mutex_lock(&nap->mutex);
  while (!nap->woken && crl_env_cond_wait(&nap->cond, &nap->mutex, until)) {
  }
  int woken = nap->woken;
  nap->woken = 0;
  pthread_mutex_unlock(&nap->mutex);
  return woken;
}

/* ---- tickets ------------------------------------------------------------------------------- */

corral_ticket *corral_ticket_new(void) {
  corral_ticket *ticket = crl_alloc(sizeof *ticket);
  if (ticket != NULL) pthread_mutex_init(&ticket->mutex, NULL);
  return ticket;
}

void corral_ticket_free(corral_ticket *ticket) {
  if (ticket == NULL) return;
  pthread_mutex_destroy(&ticket->mutex);
  free(ticket);
}

void corral_cancel(corral_ticket *ticket) {
  if (ticket == NULL) return;
  atomic_store(&ticket->cancelled, 1);
  pthread_mutex_lock(&ticket->mutex);
  for (crl_leaver *leaver = ticket->leavers; leaver != NULL; leaver = leaver->next)
    leaver->wake(leaver->arg);
  pthread_mutex_unlock(&ticket->mutex);
}

int crl_ticket_cancelled(const corral_ticket *ticket) {
  return ticket != NULL && atomic_load(&((corral_ticket *)(uintptr_t)ticket)->cancelled);
}

void crl_ticket_join(corral_ticket *ticket, crl_leaver *leaver, void (*wake)(void *arg),
                     void *arg) {
  if (ticket == NULL) return;
  leaver->wake = wake;
  leaver->arg = arg;
  pthread_mutex_lock(&ticket->mutex);
  leaver->next = ticket->leavers;
  leaver->link = &ticket->leavers;
  if (leaver->next != NULL) leaver->next->link = &leaver->next;
  ticket->leavers = leaver;
  pthread_mutex_unlock(&ticket->mutex);
}

static void wake(void *nap) { crl_nap_wake(nap); }

void crl_ticket_join_nap(corral_ticket *ticket, crl_leaver *leaver, crl_nap *nap) {
  crl_ticket_join(ticket, leaver, wake, nap);
}

void crl_ticket_leave(corral_ticket *ticket, crl_leaver *leaver) {
  if (ticket == NULL) return;
  pthread_mutex_lock(&ticket->mutex);
  *leaver->link = leaver->next;
  if (leaver->next != NULL) leaver->next->link = leaver->link;
  pthread_mutex_unlock(&ticket->mutex);
}
