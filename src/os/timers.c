/* timers.c: timers on one thread, in a heap by time. */
#include "os/timers.h"

#include <corral.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"
#include "base/check.h"

struct crl_timers {
  pthread_mutex_t mutex;
  pthread_cond_t earlier; /* signalled for a timer before wakes_at, and when `over` was set */
  pthread_t thread;
  int started, over;
  int64_t wakes_at; /* the thread looks at the heap then at the latest; INT64_MAX: it doesn't */
  crl_heap heap;
};

crl_timers *crl_timers_new(void) {
  crl_timers *timers = crl_alloc(sizeof *timers);
  if (timers == NULL) return NULL;
  pthread_mutex_init(&timers->mutex, NULL);
  crl_env_cond_init(&timers->earlier);
  return timers;
}

static crl_timer *timer_of(crl_heap_node *node) {
  return (crl_timer *)(void *)((char *)node - offsetof(crl_timer, node));
}

#ifdef CORRAL_CHECKS
static void check(const crl_timers *timers) {
  CRL_MUST(timers->heap.first == NULL || timers->started, "timers: a thread waits for the first");
  CRL_MUST(timers->heap.first == NULL || timer_of(timers->heap.first)->ring != NULL,
           "timers: a timer can ring");
}
#endif

static void lock(crl_timers *timers) {
  pthread_mutex_lock(&timers->mutex);
  CRL_CHECK(timers);
}

static void unlock(crl_timers *timers) {
  CRL_CHECK(timers);
  pthread_mutex_unlock(&timers->mutex);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void ring(crl_timers *timers, crl_timer *timer) {
  crl_heap_take(&timers->heap, &timer->node);
  int64_t again = timer->ring(timer);
  if (again != INT64_MAX) crl_heap_put(&timers->heap, &timer->node, again);
}

static void *run(void *arg) {
  crl_timers *timers = arg;
  crl_env_thread_name("corral-timers");
  lock(timers);
  while (!timers->over) {
    crl_heap_node *next = timers->heap.first;
    timers->wakes_at = next != NULL ? next->at : INT64_MAX;
    if (next == NULL)
      pthread_cond_wait(&timers->earlier, &timers->mutex);
    else if (next->at > crl_env_now_ms())
      crl_env_cond_wait(&timers->earlier, &timers->mutex, next->at);
    else
      ring(timers, timer_of(next));
  }
  unlock(timers);
  return NULL;
}

static int has_thread(crl_timers *timers) {
  if (!timers->started) timers->started = crl_env_thread(&timers->thread, run, timers) == 0;
  return timers->started;
}

/* ---- public -------------------------------------------------------------------------------- */

void crl_timers_free(crl_timers *timers) {
  lock(timers);
  timers->over = 1;
  pthread_cond_signal(&timers->earlier);
  unlock(timers);
  if (timers->started) pthread_join(timers->thread, NULL);
  pthread_cond_destroy(&timers->earlier);
  pthread_mutex_destroy(&timers->mutex);
  free(timers);
}

int crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at) {
  lock(timers);
  crl_heap_take(&timers->heap, &timer->node);
  int status = has_thread(timers) ? CORRAL_OK : CORRAL_EIO;
  if (status == CORRAL_OK) {
    crl_heap_put(&timers->heap, &timer->node, at);
    if (at < timers->wakes_at) pthread_cond_signal(&timers->earlier);
  }
  unlock(timers);
  return status;
}

void crl_timers_clear(crl_timers *timers, crl_timer *timer) {
  lock(timers);
  crl_heap_take(&timers->heap, &timer->node);
  unlock(timers);
}
