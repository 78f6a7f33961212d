/* worker.h: a queue of jobs, and threads that run them, started when first needed. */
#ifndef CRL_WORKER_H
#define CRL_WORKER_H

#include <stdint.h>

typedef struct crl_workers crl_workers;

/* A job, in its owner's memory; its owner's again when `run` or `drop` is called. */
typedef struct crl_job {
  struct crl_job *next;
  void (*run)(struct crl_job *job);
  /* called instead of run when the workers are closed first */
  void (*drop)(struct crl_job *job);
} crl_job;

/* Starts no thread. NULL without memory. */
crl_workers *crl_workers_new(int64_t most);
/* Drops the queued jobs, waits for the running ones, frees. */
void crl_workers_free(crl_workers *workers);
/* Queues a job: 0. -1: there is no thread, and none could be started; the job is still the
 * caller's. */
int crl_workers_submit(crl_workers *workers, crl_job *job);
/* True on a thread of any crl_workers; jobs run their own computes inline. */
int crl_worker_here(void);
/* Around a wait for another job: a waiting worker doesn't count towards `most`, so another thread
 * takes its place, and few threads can't wait for each other for ever. No effect on other
 * threads. */
void crl_worker_wait_begin(void);
void crl_worker_wait_end(void);

#endif
