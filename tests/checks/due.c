/* due.c: broken invariants of an event loop's calls that are due. */
#include "api/due.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_due(int which) {
  static corral_loop loop;
  static corral_async_call first, second;
  corral_async_call *calls[] = {&first, &second};
  loop = (corral_loop){.due_tail = &loop.due, .is_dispatched = 1};
  for (int i = 0; i < 2; i++) {
    calls[i]->loop = &loop;
    calls[i]->state = CRL_ASYNC_DUE;
    put(calls[i]);
  }
  switch (which) {
    case 0: second.state = CRL_ASYNC_FLIES; break;
    case 1: loop.due_tail = &loop.due; break;
    default: loop.due_count = 1;
  }
  (void)take(&loop);
}

void of_the_due(void **state) {
  (void)state;
  breaks(break_the_due, 0, "due: a call in the queue is due, or cancelled");
  breaks(break_the_due, 1, "due: the queue knows its end");
  breaks(break_the_due, 2, "due: the calls are counted");
}
