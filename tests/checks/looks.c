/* looks.c: broken invariants of an event loop's first looks. */
#include "api/looks.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_looks(int which) {
  static crl_looks looks;
  static crl_async_look look, other;
  empty(&looks.queued);
  empty(&looks.sent);
  empty(&looks.lost);
  put(&looks.queued, &look);
  switch (which) {
    case 0: looks.queued.tail = &looks.queued.head; break;
    case 1: looks.queued.count = 2; break;
    default: put(&looks.sent, &other);
  }
  (void)crl_looks_dispatch(&looks, 0);
}

void of_the_looks(void **state) {
  (void)state;
  breaks(break_the_looks, 0, "looks: a list knows its end");
  breaks(break_the_looks, 1, "looks: the looks of a list are counted");
  breaks(break_the_looks, 2, "looks: what was sent has a connection");
}
