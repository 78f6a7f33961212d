/* worker.c: the library's threads, started when first needed. */
#include "os/worker.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "base/check.h"
#include "os/env.h"
#include "base/value.h"

enum { WORKERS = 1024 };

struct crl_workers {
  pthread_mutex_t mutex;
  pthread_cond_t work;
  crl_job *head, **tail;
  pthread_t threads[WORKERS];
  int64_t started, idle, queued; /* idle: without a job, or about to be */
  int closing;
};

static _Thread_local int place;
static _Thread_local int is_ending;  /* its job is, and the thread counts as idle */
static _Thread_local uint64_t owner; /* 0: none yet */
static _Atomic uint64_t owners;

int crl_worker_has_place(void) { return place; }

int crl_worker_set_place(int has_place) {
  int before = place;
  place = has_place;
  return before;
}

uint64_t crl_worker_new_owner(void) { return atomic_fetch_add(&owners, 1) + 1; }

uint64_t crl_worker_owner(void) {
  if (owner == 0) owner = crl_worker_new_owner();
  return owner;
}

crl_workers *crl_workers_new(void) {
  crl_workers *workers = crl_alloc(sizeof *workers);
  if (workers == NULL) return NULL;
  pthread_mutex_init(&workers->mutex, NULL);
  crl_env_cond_init(&workers->work);
  workers->tail = &workers->head;
  return workers;
}

#ifdef CORRAL_CHECKS
static void check(const crl_workers *workers) {
  crl_job *const *link = &workers->head;
  int64_t count = 0;
  while (*link != NULL && count < CRL_CHECK_MOST) link = &(*link)->next, count++;
  CRL_MUST(*link != NULL || workers->tail == link, "workers: the queue knows its end");
  CRL_MUST(*link != NULL || workers->queued == count, "workers: the queued jobs are counted");
  CRL_MUST(workers->idle >= 0 && workers->idle <= workers->started && workers->started <= WORKERS,
           "workers: no more threads are idle than there are");
}
#endif

static void lock(crl_workers *workers) {
  pthread_mutex_lock(&workers->mutex);
  CRL_CHECK(workers);
}

static void unlock(crl_workers *workers) {
  CRL_CHECK(workers);
  pthread_mutex_unlock(&workers->mutex);
}

static void reinforce(crl_workers *workers);

/* Cleanup of a thread that ends within a job: makes room for another thread. */
static void leave(crl_workers **left) {
  crl_workers *workers = *left;
  int64_t own = 0;
  if (workers == NULL) return;
  lock(workers);
  if (!workers->closing) {
    while (!pthread_equal(workers->threads[own], pthread_self())) own++;
    workers->threads[own] = workers->threads[--workers->started];
    pthread_detach(pthread_self());
    reinforce(workers);
  }
  unlock(workers);
}

static void *work(void *arg) {
  crl_workers *workers = arg;
  __attribute__((cleanup(leave))) crl_workers *inside = workers;
  crl_env_thread_name("corral-worker");
  lock(workers);
  workers->idle--;
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
    unlock(workers);
    owner = 0;
    job->run(job);
    lock(workers);
    workers->idle -= is_ending;
    is_ending = 0;
  }
  unlock(workers);
  inside = NULL;
  return NULL;
}

/* Starts one more thread if there are more queued jobs than idle threads. Under the mutex. */
static void reinforce(crl_workers *workers) {
  if (workers->queued <= workers->idle || workers->started == WORKERS) return;
  if (crl_env_thread(&workers->threads[workers->started], work, workers) != 0) return;
  workers->started++;
  workers->idle++; /* until it begins */
}

void crl_worker_is_ending(crl_workers *workers) {
  lock(workers);
  workers->idle += !is_ending;
  is_ending = 1;
  unlock(workers);
}

int crl_workers_submit(crl_workers *workers, crl_job *job) {
  int status = 0;
  lock(workers);
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
  unlock(workers);
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
  lock(workers);
  crl_job *queued = workers->head;
  workers->head = NULL;
  workers->tail = &workers->head;
  workers->queued = 0;
  workers->closing = 1;
  pthread_cond_broadcast(&workers->work);
  unlock(workers);
  drop_queued(queued);
  for (int64_t i = 0; i < workers->started; i++) pthread_join(workers->threads[i], NULL);
  pthread_cond_destroy(&workers->work);
  pthread_mutex_destroy(&workers->mutex);
  free(workers);
}
