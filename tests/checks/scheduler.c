/* scheduler.c: broken invariants of the scheduler of computes. */
#include "driver/async.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

/* One run is ready, one is parked, one computes. */
static crl_scheduler *busy_scheduler(crl_run *runs) {
  crl_scheduler *scheduler = crl_alloc(sizeof *scheduler);
  assert_non_null(scheduler);
  scheduler->most = 2;
  assert_true(has_couriers(scheduler));
  scheduler->couriers[1].is_out = 1;
  scheduler->head = &runs[0];
  scheduler->tail = &runs[0].flown.next;
  scheduler->parked = &runs[1];
  runs[1].flown.link = &scheduler->parked;
  runs[1].flown.parked = 1;
  scheduler->computing = 1;
  scheduler->aloft = 3;
  pthread_mutex_init(&scheduler->mutex, NULL);
  return scheduler;
}

static void break_the_scheduler(int which) {
  static crl_run runs[2];
  crl_scheduler *scheduler = busy_scheduler(runs);
  lock(scheduler);
  switch (which) {
    case 0: runs[0].flown.parked = 1; break;
    case 1: scheduler->tail = &scheduler->head; break;
    case 2: runs[1].flown.link = &runs[1].flown.next; break;
    case 3: runs[1].flown.parked = 0; break;
    case 4: scheduler->aloft = 2; break;
    case 5: scheduler->couriers[1].is_out = 0; break;
    default: scheduler->closing = 1;
  }
  unlock(scheduler);
}

void of_the_scheduler(void **state) {
  (void)state;
  breaks(break_the_scheduler, 0, "scheduler: a run that is ready isn't parked");
  breaks(break_the_scheduler, 1, "scheduler: the queue knows its end");
  breaks(break_the_scheduler, 2, "scheduler: a parked run knows the link to it");
  breaks(break_the_scheduler, 3, "scheduler: a run among the parked is parked");
  breaks(break_the_scheduler, 4, "scheduler: a run is ready, parked or computes, and is aloft");
  breaks(break_the_scheduler, 5, "scheduler: a courier is out while a run is ready");
  breaks(break_the_scheduler, 6, "scheduler: no run is parked once it closes");
}
