/* lock_steps.c: broken invariants of the threads on which event loops' locks ask the store. */
#include "locks/steps.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_steps(int which) {
  static crl_lock_step waiting[2];
  crl_lock_steps *steps = crl_lock_steps_new(NULL);
  steps->hands[0].is_out = 1;
  steps->head = &waiting[0];
  waiting[0].next = &waiting[1];
  steps->tail = which == 0 ? &waiting[0].next : &waiting[1].next;
  if (which == 1) steps->hands[0].is_out = 0;
  lock(steps);
  unlock(steps);
}

void of_the_lock_steps(void **state) {
  (void)state;
  breaks(break_the_steps, 0, "lock steps: the queue knows its end");
  breaks(break_the_steps, 1, "lock steps: a thread is out while a step waits");
}
