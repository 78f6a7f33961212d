/* ticket.h: tickets, which cancel calls from another thread; and naps, the waits that they end. */
#ifndef CRL_TICKET_H
#define CRL_TICKET_H

#include <corral.h>
#include <pthread.h>

/* One wait of a call, ended by crl_nap_wake; a wake that comes early isn't lost. */
typedef struct crl_nap {
  pthread_mutex_t mutex;
  pthread_cond_t cond;
  int woken;
  /* not NULL: called for each wake, on the waking thread, under any mutex that it holds; nothing
   * sleeps on this nap */
  void (*hook)(struct crl_nap *nap);
} crl_nap;

void crl_nap_init(crl_nap *nap);
void crl_nap_init_hook(crl_nap *nap, void (*hook)(crl_nap *nap));
void crl_nap_clean(crl_nap *nap);
void crl_nap_wake(crl_nap *nap);
/* Waits for a wake, which it uses up, or until `until` (crl_env_now_ms). 1 when woken. */
int crl_nap_until(crl_nap *nap, int64_t until);

/* A call's place in a ticket, in its owner's memory. */
typedef struct crl_leaver {
  struct crl_leaver *next, **link;
  /* for corral_cancel, on the cancelling thread, under the ticket's mutex: must not use the
   * ticket */
  void (*wake)(void *arg);
  void *arg;
} crl_leaver;

/* A NULL ticket is never cancelled. */
int crl_ticket_cancelled(const corral_ticket *ticket);
void crl_ticket_join(corral_ticket *ticket, crl_leaver *leaver, void (*wake)(void *arg), void *arg);
/* The same for a nap. */
void crl_ticket_join_nap(corral_ticket *ticket, crl_leaver *leaver, crl_nap *nap);
/* No wake is under way when this returns, and none will come. */
void crl_ticket_leave(corral_ticket *ticket, crl_leaver *leaver);

#endif
