/* worker.c: broken invariants of the threads of the library. */
#include "os/worker.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_workers(int which) {
  static crl_job jobs[2];
  crl_workers *workers = crl_workers_new();
  lock(workers);
  workers->head = &jobs[0];
  jobs[0].next = &jobs[1];
  workers->tail = &jobs[1].next;
  workers->queued = 2;
  switch (which) {
    case 0: workers->tail = &jobs[0].next; break;
    case 1: workers->queued = 1; break;
    default: workers->idle = 1;
  }
  unlock(workers);
}

void of_the_workers(void **state) {
  (void)state;
  breaks(break_the_workers, 0, "workers: the queue knows its end");
  breaks(break_the_workers, 1, "workers: the queued jobs are counted");
  breaks(break_the_workers, 2, "workers: no more threads are idle than there are");
}
