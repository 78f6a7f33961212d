/* worker.h: the library's threads, started when first needed: a job has a thread at once, unless
 * none can be started. How many computes run there at once is limiter.h's. */
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
crl_workers *crl_workers_new(void);
/* Drops the queued jobs, waits for the running ones, frees. */
void crl_workers_free(crl_workers *workers);
/* Hands a job to a thread: 0. Where no further thread can be started it waits for one of those that
 * there are; -1: there are none, and the job is still the caller's. */
int crl_workers_submit(crl_workers *workers, crl_job *job);
/* Called within a job that is about to end: a job that is handed over from now on may wait for this
 * thread instead of starting one. */
void crl_worker_is_ending(crl_workers *workers);
/* True within a job that said so: a compute, or a function, that has a place (limiter.h). */
int crl_worker_has_place(void);
/* Returns what was said before. */
int crl_worker_set_place(int has_place);
/* A number of the calling thread, or of the job that runs on it: the owner of what is taken
 * there. */
uint64_t crl_worker_owner(void);
/* A number that nobody has. */
uint64_t crl_worker_new_owner(void);

#endif
