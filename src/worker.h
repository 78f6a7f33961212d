/* worker.h: a queue of jobs and the threads that do them, started when first needed. */
#ifndef CRL_WORKER_H
#define CRL_WORKER_H

#include <stdint.h>

typedef struct crl_workers crl_workers;

/* A job lives in its owner's memory, and is the owner's again when `run` is called. */
typedef struct crl_job {
  struct crl_job *next;
  void (*run)(struct crl_job *job);
  /* called instead of run when the workers are closed before its turn */
  void (*drop)(struct crl_job *job);
} crl_job;

/* Starts no thread. NULL without memory. */
crl_workers *crl_workers_new(int64_t most);
/* Drops the jobs that are queued, waits for those that run, frees. */
void crl_workers_free(crl_workers *workers);
/* Queues a job; 0, or -1 when no thread can be had at all: then the job is still the caller's. */
int crl_workers_submit(crl_workers *workers, crl_job *job);
/* True on a thread of any crl_workers: its jobs do their own computes inline. */
int crl_worker_here(void);
/* Around a wait for somebody else's job: a worker that waits doesn't count, another thread takes
 * its place, so that few threads can't wait for each other's for ever. No effect on other
 * threads. */
void crl_worker_wait_begin(void);
void crl_worker_wait_end(void);

#endif
