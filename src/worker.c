/* worker.c: a queue of jobs and the threads that do them, started when first needed. */
#include "worker.h"

#include <pthread.h>
#include <stdlib.h>

#include "env.h"
#include "value.h"

enum { WORKERS = 256 };

struct crl_workers {
  pthread_mutex_t mutex;
  pthread_cond_t work;
  crl_job *head, **tail;
  pthread_t threads[WORKERS];
  int64_t most, started, idle;
  int closing;
};

static _Thread_local int here;

int crl_worker_here(void) { return here; }

crl_workers *crl_workers_new(int64_t most) {
  crl_workers *workers = crl_alloc(sizeof *workers);
  if (workers == NULL) return NULL;
  pthread_mutex_init(&workers->mutex, NULL);
  crl_env_cond_init(&workers->work);
  workers->tail = &workers->head;
  workers->most = most < WORKERS ? most : WORKERS;
  return workers;
}

static void *work(void *arg) {
  crl_workers *workers = arg;
  here = 1;
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
    pthread_mutex_unlock(&workers->mutex);
    job->run(job);
    pthread_mutex_lock(&workers->mutex);
  }
  pthread_mutex_unlock(&workers->mutex);
  return NULL;
}

int crl_workers_submit(crl_workers *workers, crl_job *job) {
  int status = 0;
  pthread_mutex_lock(&workers->mutex);
  if (workers->idle == 0 && workers->started < workers->most) {
    if (crl_env_thread(&workers->threads[workers->started], "corral-worker", work, workers) == 0) workers->started++;
  }
  if (workers->started == 0) {
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

void crl_workers_free(crl_workers *workers) {
  pthread_mutex_lock(&workers->mutex);
  workers->closing = 1;
  pthread_cond_broadcast(&workers->work);
  pthread_mutex_unlock(&workers->mutex);
  for (int64_t i = 0; i < workers->started; i++) pthread_join(workers->threads[i], NULL);
  while (workers->head != NULL) {
    crl_job *job = workers->head;
    workers->head = job->next;
    job->drop(job);
  }
  pthread_cond_destroy(&workers->work);
  pthread_mutex_destroy(&workers->mutex);
  free(workers);
}
