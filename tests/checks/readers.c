/* readers.c: broken invariants of a limbo. */
#include "os/readers.h"
#include "checks/checks.h"

static void break_the_limbo(int which) {
  static crl_limbo limbo;
  static crl_gone gone[3];
  crl_limbo_init(&limbo, 1000);
  for (int i = 0; i < 3; i++) {
    gone[i].weight = 10;
    assert_null(crl_limbo_add(&limbo, &gone[i]));
  }
  switch (which) {
    case 0: limbo.newest = NULL; break;
    case 1: gone[1].stamp = gone[2].stamp + 1; break;
    case 2: limbo.newest = &gone[1]; break;
    case 3: limbo.count = 2; break;
    default: gone[1].weight = 11;
  }
  (void)crl_limbo_empty(&limbo);
}

void of_the_limbo(void **state) {
  (void)state;
  breaks(break_the_limbo, 0, "limbo: it has both ends or none");
  breaks(break_the_limbo, 1, "limbo: it is in the order of its stamps");
  breaks(break_the_limbo, 2, "limbo: the newest is its end");
  breaks(break_the_limbo, 3, "limbo: it counts what it has");
  breaks(break_the_limbo, 4, "limbo: it knows the weight of what it has");
}
