/* inbox.c: an event loop's mail, and its life. */
#include "api/inbox.h"

#include <stdlib.h>
#include <unistd.h>

/* Called with the loop's mutex held, like crl_inbox_post. */
static void ring(corral_loop *loop) {
  uint64_t one = 1;
  if (loop->is_rung || loop->is_closed) return;
  loop->is_rung = 1;
  ssize_t n = write(loop->bell, &one, sizeof one);
  (void)n; /* the counter is at most 1: the write can't block */
}

void crl_inbox_ring(corral_loop *loop) {
  pthread_mutex_lock(&loop->mutex);
  ring(loop);
  pthread_mutex_unlock(&loop->mutex);
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
  pthread_mutex_lock(&loop->mutex);
  loop->refs -= count;
  int last = loop->refs == 0;
  pthread_mutex_unlock(&loop->mutex);
  if (!last) return;
  pthread_cond_destroy(&loop->fewer);
  pthread_mutex_destroy(&loop->mutex);
  free(loop->looks);
  free(loop);
}

int crl_inbox_may_work(corral_loop *loop) {
  pthread_mutex_lock(&loop->mutex);
  int may = !loop->is_closed;
  if (may) loop->working++;
  pthread_mutex_unlock(&loop->mutex);
  return may;
}

void crl_inbox_has_worked(corral_loop *loop) {
  pthread_mutex_lock(&loop->mutex);
  loop->working--;
  pthread_cond_signal(&loop->fewer);
  pthread_mutex_unlock(&loop->mutex);
}
