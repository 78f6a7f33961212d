/* test_checks_worker.c: broken invariants of the threads end the process (base/check.h). Their
 * source is included, since nobody else reaches their counts. */
#define crl_worker_has_place own_worker_has_place
#define crl_worker_set_place own_worker_set_place
#define crl_workers_new own_workers_new
#define crl_workers_submit own_workers_submit
#define crl_workers_free own_workers_free
#include "os/worker.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/breaks_kit.h"

static void break_the_workers(int which) {
  static crl_job jobs[2];
  crl_workers *workers = own_workers_new();
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

static void of_the_workers(void **state) {
  (void)state;
  breaks(break_the_workers, 0, "the queue knows its end");
  breaks(break_the_workers, 1, "the queued jobs are counted");
  breaks(break_the_workers, 2, "no more threads are idle than there are");
}

int main(void) {
#ifndef CORRAL_CHECKS
  printf("SKIPPED: built without CORRAL_CHECKS\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_the_workers)};
  return cmocka_run_group_tests_name("checks of threads", tests, NULL, NULL);
}
