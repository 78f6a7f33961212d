/* task.c: work that comes due again and again, on a thread of the library. */
#include "os/task.h"

#include <corral.h>
#include <stddef.h>

#include "base/check.h"
#include "os/env.h"

enum { RETRY_MS = 5 };

#ifdef CORRAL_CHECKS
static void check(const crl_task *task) {
  CRL_MUST(!task->stopped || task->at == INT64_MAX, "task: none is due once it is stopped");
}
#endif

static void lock(crl_task *task) {
  pthread_mutex_lock(&task->mutex);
  CRL_CHECK(task);
}

static void unlock(crl_task *task) {
  CRL_CHECK(task);
  pthread_mutex_unlock(&task->mutex);
}

/* Under the task's mutex. */
static int plan(crl_task *task, int64_t at) {
  if (at >= task->at || task->stopped) return CORRAL_OK;
  int status = crl_timers_set(task->threads->timers, &task->timer, at);
  if (status == CORRAL_OK) task->at = at;
  return status;
}

static void run(crl_job *job) {
  crl_task *task = (crl_task *)(void *)((char *)job - offsetof(crl_task, job));
  lock(task);
  task->at = INT64_MAX;
  int runs = !task->stopped;
  unlock(task);
  int64_t next = runs ? task->run(task) : INT64_MAX;
  lock(task);
  atomic_store(&task->queued, 0);
  if (next < task->at) (void)plan(task, next);
  pthread_cond_broadcast(&task->idle);
  unlock(task);
}

/* The threads are closed: the task was stopped before. */
static void drop(crl_job *job) { (void)job; }

/* The timer rings again soon while the task runs, or where no thread can be had. */
static int64_t ring(crl_timer *timer) {
  crl_task *task = (crl_task *)(void *)((char *)timer - offsetof(crl_task, timer));
  if (atomic_exchange(&task->queued, 1)) return crl_env_now_ms() + RETRY_MS;
  if (crl_workers_submit(task->threads->workers, &task->job) == 0) return INT64_MAX;
  atomic_store(&task->queued, 0);
  return crl_env_now_ms() + RETRY_MS;
}

void crl_task_init(crl_task *task, const crl_threads *threads,
                   int64_t (*function)(crl_task *task)) {
  *task = (crl_task){.threads = threads,
                     .run = function,
                     .timer = {.ring = ring},
                     .job = {.run = run, .drop = drop},
                     .at = INT64_MAX};
  pthread_mutex_init(&task->mutex, NULL);
  crl_env_cond_init(&task->idle);
}

int crl_task_at(crl_task *task, int64_t at) {
  lock(task);
  int status = plan(task, at);
  unlock(task);
  return status;
}

void crl_task_stop(crl_task *task) {
  lock(task);
  task->stopped = 1;
  task->at = INT64_MAX;
  unlock(task);
  crl_timers_clear(task->threads->timers, &task->timer);
  lock(task);
  while (atomic_load(&task->queued)) pthread_cond_wait(&task->idle, &task->mutex);
  unlock(task);
  pthread_cond_destroy(&task->idle);
  pthread_mutex_destroy(&task->mutex);
}
