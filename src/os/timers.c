/* timers.c: timers on one thread; a binary heap by time, with the earliest at the root. */
#include "os/timers.h"

#include <corral.h>
#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

struct crl_timers {
  pthread_mutex_t mutex;
  pthread_cond_t earlier; /* signalled when the root changed or `over` was set */
  pthread_t thread;
  int started, over;
  crl_timer **heap; /* indexed from 1 */
  size_t count, room;
};

crl_timers *crl_timers_new(void) {
  crl_timers *alarms = crl_alloc(sizeof *alarms);
  if (alarms == NULL) return NULL;
  pthread_mutex_init(&alarms->mutex, NULL);
  crl_env_cond_init(&alarms->earlier);
  return alarms;
}

void crl_timers_free(crl_timers *alarms) {
  pthread_mutex_lock(&alarms->mutex);
  alarms->over = 1;
  pthread_cond_signal(&alarms->earlier);
  pthread_mutex_unlock(&alarms->mutex);
  if (alarms->started) pthread_join(alarms->thread, NULL);
  pthread_cond_destroy(&alarms->earlier);
  pthread_mutex_destroy(&alarms->mutex);
  free(alarms->heap);
  free(alarms);
}

/* ---- the heap; under the mutex ------------------------------------------------------------- */

static void put(crl_timers *alarms, size_t place, crl_timer *alarm) {
  alarms->heap[place] = alarm;
  alarm->place = place;
}

static void rise(crl_timers *alarms, crl_timer *alarm) {
  size_t place = alarm->place;
  for (; place > 1 && alarms->heap[place / 2]->at > alarm->at; place /= 2)
    put(alarms, place, alarms->heap[place / 2]);
  put(alarms, place, alarm);
}

static void sink(crl_timers *alarms, crl_timer *alarm) {
  size_t place = alarm->place;
  for (size_t child; (child = 2 * place) <= alarms->count; place = child) {
    if (child < alarms->count && alarms->heap[child + 1]->at < alarms->heap[child]->at) child++;
    if (alarms->heap[child]->at >= alarm->at) break;
    put(alarms, place, alarms->heap[child]);
  }
  put(alarms, place, alarm);
}

static void take_out(crl_timers *alarms, crl_timer *alarm) {
  size_t place = alarm->place;
  if (place == 0) return;
  crl_timer *last = alarms->heap[alarms->count--];
  alarm->place = 0;
  if (last == alarm) return;
  put(alarms, place, last);
  rise(alarms, last);
  sink(alarms, last);
}

static int make_room(crl_timers *alarms) {
  if (alarms->count + 1 < alarms->room) return 1;
  size_t room = alarms->room == 0 ? 64 : 2 * alarms->room;
  crl_timer **heap = crl_alloc_more(alarms->heap, room * sizeof *heap);
  if (heap == NULL) return 0;
  alarms->heap = heap;
  alarms->room = room;
  return 1;
}

/* ---- the thread ---------------------------------------------------------------------------- */

static void *run(void *arg) {
  crl_timers *alarms = arg;
  crl_env_thread_name("corral-timers");
  pthread_mutex_lock(&alarms->mutex);
  while (!alarms->over) {
    crl_timer *next = alarms->count > 0 ? alarms->heap[1] : NULL;
    if (next == NULL) {
      pthread_cond_wait(&alarms->earlier, &alarms->mutex);
    } else if (next->at > crl_env_now_ms()) {
      crl_env_cond_wait(&alarms->earlier, &alarms->mutex, next->at);
    } else {
      take_out(alarms, next);
      next->ring(next);
    }
  }
  pthread_mutex_unlock(&alarms->mutex);
  return NULL;
}

static int has_thread(crl_timers *alarms) {
  if (!alarms->started) alarms->started = crl_env_thread(&alarms->thread, run, alarms) == 0;
  return alarms->started;
}

/* ---- public -------------------------------------------------------------------------------- */

int crl_timers_set(crl_timers *alarms, crl_timer *alarm, int64_t at) {
  int status = CORRAL_OK;
  pthread_mutex_lock(&alarms->mutex);
  take_out(alarms, alarm);
  if (!has_thread(alarms))
    status = CORRAL_EIO;
  else if (!make_room(alarms))
    status = CORRAL_ENOMEM;
  if (status == CORRAL_OK) {
    alarm->at = at;
    put(alarms, ++alarms->count, alarm);
    rise(alarms, alarm);
    if (alarm->place == 1) pthread_cond_signal(&alarms->earlier);
  }
  pthread_mutex_unlock(&alarms->mutex);
  return status;
}

void crl_timers_clear(crl_timers *alarms, crl_timer *alarm) {
  pthread_mutex_lock(&alarms->mutex);
  take_out(alarms, alarm);
  pthread_mutex_unlock(&alarms->mutex);
}
