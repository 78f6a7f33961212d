/* task.h: work that comes due again and again, such as renewals and probes: a timer tells when, and
 * a thread of the library does it, because it may block. One run of a task at a time. */
#ifndef CRL_TASK_H
#define CRL_TASK_H

#include <pthread.h>

#include "os/timers.h"
#include "os/worker.h"

/* The threads of one corral. */
typedef struct crl_threads {
  crl_timers *timers;
  crl_workers *workers;
} crl_threads;

/* In its owner's memory. */
typedef struct crl_task {
  const crl_threads *threads;
  /* Does all that is due. Returns the moment (crl_env_now_ms) when something is due again, or
   * INT64_MAX. */
  int64_t (*run)(struct crl_task *task);
  crl_timer timer;
  crl_job job;
  pthread_mutex_t mutex;
  pthread_cond_t idle; /* the job has ended */
  int64_t at;          /* the next run; INT64_MAX: none */
  int stopped;
  _Atomic int queued; /* the job is queued, or runs */
} crl_task;

void crl_task_init(crl_task *task, const crl_threads *threads, int64_t (*run)(crl_task *task));
/* Lets the task run at that moment, unless it does so before. CORRAL_OK; CORRAL_EIO (no thread):
 * it won't. Any thread, also within its run. */
int crl_task_at(crl_task *task, int64_t at);
/* Waits for the present run, if any; there is none after that. Not within its run. */
void crl_task_stop(crl_task *task);

#endif
