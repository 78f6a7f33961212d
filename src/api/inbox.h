/* inbox.h: an event loop: its mail, the bell that tells of it, and what keeps the loop from being
 * closed or freed. */
#ifndef CRL_INBOX_H
#define CRL_INBOX_H

#include <corral/loop.h>

#include "base/check.h"
#include "run/run.h"

/* One item of a loop's inbox: a call to move on, or a run whose compute is to be started. */
typedef struct crl_mail {
  struct crl_mail *next;
  crl_run *starts; /* the run to start; NULL: the mail of a call */
  int is_posted;
} crl_mail;

struct corral_loop {
  uint32_t magic;
  corral *c;
  crl_context *context;
  pthread_mutex_t mutex;
  int bell;                /* an eventfd: there is mail, or looks.h has something to do */
  int fd;                  /* the caller's: the bell, or an epoll descriptor of it and `looks` */
  struct crl_looks *looks; /* NULL: none, as the store can't look without waiting */
  int is_rung, is_closed;
  int is_dispatched; /* within corral_loop_dispatch; of the loop's thread */
  crl_mail *head, **tail;
  /* Changed by the loop's thread alone: all calls but those that are due (due.h), and these. */
  corral_async_call *calls, *due, **due_tail;
  size_t due_count;
  crl_run *computing; /* runs whose compute `start` began and that has not ended */
  size_t working;     /* number of functions of corral_loop_run that run */
  pthread_cond_t fewer;
  size_t refs; /* the loop's own, and one for each call that isn't freed */
};

#ifdef CORRAL_CHECKS
void crl_inbox_check(const corral_loop *loop);
#endif

/* The loop's mutex. */
static inline void crl_inbox_lock(corral_loop *loop) {
  pthread_mutex_lock(&loop->mutex);
  CRL_CHECK_BY(crl_inbox_check, loop);
}

static inline void crl_inbox_unlock(corral_loop *loop) {
  CRL_CHECK_BY(crl_inbox_check, loop);
  pthread_mutex_unlock(&loop->mutex);
}

/* CORRAL_EINVAL (not an open loop), CORRAL_EFORKED, CORRAL_ECLOSED. */
int crl_inbox_check_open(const corral_loop *loop, corral_error *error);
/* Makes the loop's descriptor readable. */
void crl_inbox_ring(corral_loop *loop);
/* A thread of the library is about to work for the loop, whose close waits until
 * crl_inbox_has_worked. 0: the loop is closed. Any thread. */
int crl_inbox_may_work(corral_loop *loop);
void crl_inbox_has_worked(corral_loop *loop);
/* Queues mail and makes the loop's descriptor readable; no effect when it is queued already or the
 * loop is closed. Called with the loop's mutex held. */
void crl_inbox_post(corral_loop *loop, crl_mail *mail);
/* Gives up references; the last one frees the loop. */
void crl_inbox_unref(corral_loop *loop, size_t count);

#endif
