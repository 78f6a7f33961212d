/* limiter.c: broken invariants of a limiter. */
#include "election/limiter.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_limiter(int which) {
  crl_limiter *limiter = crl_limiter_new(1, 0, 0);
  static crl_place places[4];
  crl_waiter waiter = {0};
  for (int i = 0; i < 4; i++)
    crl_limiter_ask(limiter, &places[i], CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter);
  switch (which) {
    case 0: places[2].link = &places[3].next; break;
    case 1: places[2].state = CRL_PLACE_NONE; break;
    case 2: places[2].rank = CRL_RANK_WARM; break;
    case 3: places[2].arrival = 99; break;
    case 4: queue_of(limiter, &places[1])->tail = &places[1].next; break;
    case 5: limiter->inside = 2; break;
    case 6: limiter->threaded = -1; break;
    case 7: limiter->ramp.limit = 0; break;
    default: limiter->waiting = 0;
  }
  crl_limiter_inside(limiter);
}

void of_the_limiter(void **state) {
  (void)state;
  breaks(break_the_limiter, 0, "limiter: a place knows the link to it");
  breaks(break_the_limiter, 1, "limiter: a place in a queue is queued");
  breaks(break_the_limiter, 2, "limiter: a place is in its own queue");
  breaks(break_the_limiter, 3, "limiter: a queue is in the order of arrival");
  breaks(break_the_limiter, 4, "limiter: the tail of a queue is its end");
  breaks(break_the_limiter, 5, "limiter: no more computes at once than `most`");
  breaks(break_the_limiter, 6, "limiter: no more of them on threads than there are");
  breaks(break_the_limiter, 7, "limiter: the ramp's limit is at least 1, and no more than `most`");
  breaks(break_the_limiter, 8, "limiter: it counts those who wait");
}
