/* follower.c: the broken invariant of the follower of orders. */
#include "control/follower.c" /* NOLINT(bugprone-suspicious-include) */

#include "checks/checks.h"

static void break_the_follower(int which) {
  (void)which;
  static crl_context context;
  context.space.max_key = CORRAL_KEY_MAX;
  crl_follower *f = crl_follower_new(&context);
  f->order.verb = CORRAL_CONTROL_FREEZE;
  crl_follower_deafen(f);
}

void of_the_follower(void **state) {
  (void)state;
  breaks(break_the_follower, 0, "follower: an order in force has an end");
}
