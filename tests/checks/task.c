/* task.c: the broken invariant of a task. */
#include "os/task.h"
#include "checks/checks.h"

static int64_t run_never(crl_task *task) { return (void)task, INT64_MAX; }

static void break_the_task(int which) {
  (void)which;
  static crl_task task;
  crl_threads threads = {.timers = crl_timers_new(), .workers = crl_workers_new()};
  crl_task_init(&task, &threads, run_never);
  task.stopped = 1;
  task.at = 5;
  crl_task_at(&task, 9);
}

void of_the_task(void **state) {
  (void)state;
  breaks(break_the_task, 0, "task: none is due once it is stopped");
}
