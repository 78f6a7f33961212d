/* worker.c: the library's threads, started when first needed. */
#include "os/worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "os/env.h"
#include "base/value.h"

enum { WORKERS = 1024 };

struct crl_workers {
  pthread_mutex_t mutex;
  pthread_cond_t work;
  crl_job *head, **tail;
  pthread_t threads[WORKERS];
  int64_t started, idle, queued;
  int closing;
};

static _Thread_local int place;

int crl_worker_has_place(void) { return place; }

int crl_worker_set_place(int has_place) {
  int before = place;
  place = has_place;
  return before;
}

crl_workers *crl_workers_new(void) {
  crl_workers *workers = crl_alloc(sizeof *workers);
  if (workers == NULL) return NULL;
  pthread_mutex_init(&workers->mutex, NULL);
  crl_env_cond_init(&workers->work);
  workers->tail = &workers->head;
  return workers;
}

static void reinforce(crl_workers *workers);

/* Cleanup of a thread that ends within a job: makes room for another thread. */
static void leave(crl_workers **left) {
  crl_workers *workers = *left;
  int64_t own = 0;
  if (workers == NULL) return;
  pthread_mutex_lock(&workers->mutex);
  if (!workers->closing) {
    while (!pthread_equal(workers->threads[own], pthread_self())) own++;
    workers->threads[own] = workers->threads[--workers->started];
    pthread_detach(pthread_self());
    reinforce(workers);
  }
  pthread_mutex_unlock(&workers->mutex);
}

static void *work(void *arg) {
  crl_workers *workers = arg;
  __attribute__((cleanup(leave))) crl_workers *inside = workers;
  crl_env_thread_name("corral-worker");
  pthread_mutex_lock(&workers->mutex);
  while (!workers->closing) {
    crl_job *job = workers->head;
    if (job == NULL) {
      workers->idle++;
      pthread_cond_wait(&workers->work, &workers->mutex);
      workers->idle--;
      continue;
    }
    workers->head = job->next;
    if (workers->head == NULL) workers->tail = &workers->head;
    workers->queued--;
    pthread_mutex_unlock(&workers->mutex);
    job->run(job);
    pthread_mutex_lock(&workers->mutex);
  }
  pthread_mutex_unlock(&workers->mutex);
  inside = NULL;
  return NULL;
}

/* Starts one more thread if there are more queued jobs than idle threads. Under the mutex. */
static void reinforce(crl_workers *workers) {
  if (workers->queued <= workers->idle || workers->started == WORKERS) return;
  if (crl_env_thread(&workers->threads[workers->started], work, workers) == 0) workers->started++;
}

int crl_workers_submit(crl_workers *workers, crl_job *job) {
  int status = 0;
  pthread_mutex_lock(&workers->mutex);
  workers->queued++;
  reinforce(workers);
  if (workers->started == 0) {
    workers->queued--;
    status = -1;
  } else {
    job->next = NULL;
    *workers->tail = job;
    workers->tail = &job->next;
    pthread_cond_signal(&workers->work);
  }
  pthread_mutex_unlock(&workers->mutex);
  return status;
}

/* Called before the running jobs are awaited, since one of them may wait for a queued one. */
static void drop_queued(crl_job *job) {
  for (crl_job *next; job != NULL; job = next) {
    next = job->next;
    job->drop(job);
  }
}

void crl_workers_free(crl_workers *workers) {
  pthread_mutex_lock(&workers->mutex);
  crl_job *queued = workers->head;
  workers->head = NULL;
  workers->tail = &workers->head;
  workers->queued = 0;
  workers->closing = 1;
  pthread_cond_broadcast(&workers->work);
  pthread_mutex_unlock(&workers->mutex);
  drop_queued(queued);
  for (int64_t i = 0; i < workers->started; i++) pthread_join(workers->threads[i], NULL);
  pthread_cond_destroy(&workers->work);
  pthread_mutex_destroy(&workers->mutex);
  free(workers);
}
