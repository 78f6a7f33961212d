/* timers.c: timers on one thread; a binary heap by time, with the earliest at the root. */
#include "os/timers.h"

#include <corral.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"
#include "base/check.h"

struct crl_timers {
  pthread_mutex_t mutex;
  pthread_cond_t earlier; /* signalled when the root changed or `over` was set */
  pthread_t thread;
  int started, over;
  crl_timer **heap; /* indexed from 1 */
  size_t count, room;
};

crl_timers *crl_timers_new(void) {
  crl_timers *timers = crl_alloc(sizeof *timers);
  if (timers == NULL) return NULL;
  pthread_mutex_init(&timers->mutex, NULL);
  crl_env_cond_init(&timers->earlier);
  return timers;
}

void crl_timers_free(crl_timers *timers) {
  pthread_mutex_lock(&timers->mutex);
  timers->over = 1;
  pthread_cond_signal(&timers->earlier);
  pthread_mutex_unlock(&timers->mutex);
  if (timers->started) pthread_join(timers->thread, NULL);
  pthread_cond_destroy(&timers->earlier);
  pthread_mutex_destroy(&timers->mutex);
  free(timers->heap);
  free(timers);
}

#ifdef CORRAL_CHECKS
static void check(const crl_timers *timers) {
  CRL_MUST(timers->count == 0 || timers->count < timers->room, "timers: the heap has room");
  for (size_t i = 1; i <= timers->count && i <= CRL_CHECK_MOST; i++) {
    CRL_MUST(timers->heap[i]->place == i, "timers: a timer knows its place");
    CRL_MUST(i == 1 || timers->heap[i / 2]->at <= timers->heap[i]->at,
             "timers: none rings before its parent");
  }
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

/* ---- the heap; under the mutex ------------------------------------------------------------- */

static void put(crl_timers *timers, size_t place, crl_timer *timer) {
  timers->heap[place] = timer;
  timer->place = place;
}

static void rise(crl_timers *timers, crl_timer *timer) {
  size_t place = timer->place;
  for (; place > 1 && timers->heap[place / 2]->at > timer->at; place /= 2)
    put(timers, place, timers->heap[place / 2]);
  put(timers, place, timer);
}

static void sink(crl_timers *timers, crl_timer *timer) {
  size_t place = timer->place;
  for (size_t child; (child = 2 * place) <= timers->count; place = child) {
    if (child < timers->count && timers->heap[child + 1]->at < timers->heap[child]->at) child++;
    if (timers->heap[child]->at >= timer->at) break;
    put(timers, place, timers->heap[child]);
  }
  put(timers, place, timer);
}

static void take_out(crl_timers *timers, crl_timer *timer) {
  size_t place = timer->place;
  if (place == 0) return;
  crl_timer *last = timers->heap[timers->count--];
  timer->place = 0;
  if (last == timer) return;
  put(timers, place, last);
  rise(timers, last);
  sink(timers, last);
}

static int make_room(crl_timers *timers) {
  if (timers->count + 1 < timers->room) return 1;
  size_t room = timers->room == 0 ? 64 : 2 * timers->room;
  crl_timer **heap = crl_alloc_more(timers->heap, room * sizeof *heap);
  if (heap == NULL) return 0;
  timers->heap = heap;
  timers->room = room;
  return 1;
}

/* There must be room. */
static void insert(crl_timers *timers, crl_timer *timer, int64_t at) {
  timer->at = at;
  put(timers, ++timers->count, timer);
  rise(timers, timer);
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void ring(crl_timers *timers, crl_timer *timer) {
  take_out(timers, timer);
  int64_t again = timer->ring(timer);
  if (again != INT64_MAX) insert(timers, timer, again);
}

static void *run(void *arg) {
  crl_timers *timers = arg;
  crl_env_thread_name("corral-timers");
  pthread_mutex_lock(&timers->mutex);
  while (!timers->over) {
    crl_timer *next = timers->count > 0 ? timers->heap[1] : NULL;
    if (next == NULL)
      pthread_cond_wait(&timers->earlier, &timers->mutex);
    else if (next->at > crl_env_now_ms())
      crl_env_cond_wait(&timers->earlier, &timers->mutex, next->at);
    else
      ring(timers, next);
  }
  pthread_mutex_unlock(&timers->mutex);
  return NULL;
}

static int has_thread(crl_timers *timers) {
  if (!timers->started) timers->started = crl_env_thread(&timers->thread, run, timers) == 0;
  return timers->started;
}

/* ---- public -------------------------------------------------------------------------------- */

int crl_timers_set(crl_timers *timers, crl_timer *timer, int64_t at) {
  int status = CORRAL_OK;
  lock(timers);
  take_out(timers, timer);
  if (!has_thread(timers))
    status = CORRAL_EIO;
  else if (!make_room(timers))
    status = CORRAL_ENOMEM;
  if (status == CORRAL_OK) {
    insert(timers, timer, at);
    if (timer->place == 1) pthread_cond_signal(&timers->earlier);
  }
  unlock(timers);
  return status;
}

void crl_timers_clear(crl_timers *timers, crl_timer *timer) {
  lock(timers);
  take_out(timers, timer);
  unlock(timers);
}
