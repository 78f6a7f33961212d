/* inbox.c: an event loop's mail, and its life. */
#include "api/inbox.h"

#include <stdlib.h>
#include <unistd.h>

#ifdef CORRAL_CHECKS
static void check_mail(const corral_loop *loop) {
  crl_mail *const *link = &loop->head;
  int left = CRL_CHECK_MOST;
  for (; *link != NULL && left > 0; link = &(*link)->next, left--)
    CRL_MUST((*link)->is_posted, "loop: mail in the queue is posted");
  CRL_MUST(*link != NULL || loop->tail == link, "loop: the queue knows its end");
  CRL_MUST(loop->head == NULL || loop->is_rung, "loop: mail rings the bell");
}

void crl_inbox_check(const corral_loop *loop) {
  crl_run *const *link = &loop->computing;
  check_mail(loop);
  for (int left = CRL_CHECK_MOST; *link != NULL && left > 0; link = &(*link)->flown.next, left--)
    CRL_MUST((*link)->flown.link == link, "loop: a compute under way knows the link to it");
  CRL_MUST(!loop->is_closed || (loop->head == NULL && loop->computing == NULL),
           "loop: once closed it has neither mail nor computes");
  CRL_MUST(loop->is_closed || loop->refs > 0, "loop: while open it has a reference");
}
#endif

/* Called with the loop's mutex held, like crl_inbox_post. */
static void ring(corral_loop *loop) {
  uint64_t one = 1;
  if (loop->is_rung || loop->is_closed) return;
  loop->is_rung = 1;
  ssize_t n = write(loop->bell, &one, sizeof one);
  (void)n; /* the counter is at most 1: the write can't block */
}

void crl_inbox_ring(corral_loop *loop) {
  crl_inbox_lock(loop);
  ring(loop);
  crl_inbox_unlock(loop);
}

void crl_inbox_post(corral_loop *loop, crl_mail *m) {
  if (m->is_posted || loop->is_closed) return;
  m->is_posted = 1;
  m->next = NULL;
  *loop->tail = m;
  loop->tail = &m->next;
  ring(loop);
}

void crl_inbox_unref(corral_loop *loop, size_t count) {
  crl_inbox_lock(loop);
  loop->refs -= count;
  int last = loop->refs == 0;
  crl_inbox_unlock(loop);
  if (!last) return;
  pthread_cond_destroy(&loop->fewer);
  pthread_mutex_destroy(&loop->mutex);
  free(loop->looks);
  free(loop);
}

int crl_inbox_may_work(corral_loop *loop) {
  crl_inbox_lock(loop);
  int may = !loop->is_closed;
  if (may) loop->working++;
  crl_inbox_unlock(loop);
  return may;
}

void crl_inbox_has_worked(corral_loop *loop) {
  crl_inbox_lock(loop);
  loop->working--;
  pthread_cond_signal(&loop->fewer);
  crl_inbox_unlock(loop);
}
