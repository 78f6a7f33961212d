/* test_checks_near.c: broken invariants of the near tier end the process (base/check.h). Its source
 * is included, since nobody else reaches its queues. */
#define crl_near_clear own_near_clear
#define crl_near_confirm own_near_confirm
#define crl_near_copy_clean own_near_copy_clean
#define crl_near_count own_near_count
#define crl_near_drop own_near_drop
#define crl_near_epoch own_near_epoch
#define crl_near_free own_near_free
#define crl_near_get own_near_get
#define crl_near_new own_near_new
#define crl_near_put own_near_put
#define crl_near_weight own_near_weight
#include "near/near.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/breaks_kit.h"

static void break_the_near_tier(int which) {
  entry *copies[2] = {calloc(1, sizeof(entry)), calloc(1, sizeof(entry))};
  crl_near *near = own_near_new(1 << 20);
  shard *s = &near->shards[0];
  queue *small = &s->queues[SMALL];
  lock(s);
  copies[0]->newer = small->newest = copies[1];
  copies[1]->older = small->oldest = copies[0];
  small->weight = copies[0]->weight = 10;
  switch (which) {
    case 0: small->newest = NULL; break;
    case 1: copies[1]->in = MAIN; break;
    case 2: copies[1]->hits = HITS_MOST + 1; break;
    case 3: copies[0]->older = copies[1]; break;
    case 4: copies[1]->older = copies[1]; break;
    default: small->weight = 11;
  }
  unlock(s);
}

static void of_the_near_tier(void **state) {
  (void)state;
  breaks(break_the_near_tier, 0, "a queue has both ends or none");
  breaks(break_the_near_tier, 1, "a copy is in its own queue");
  breaks(break_the_near_tier, 2, "hits are counted up to HITS_MOST");
  breaks(break_the_near_tier, 3, "the oldest has none before it");
  breaks(break_the_near_tier, 4, "neighbours know each other");
  breaks(break_the_near_tier, 5, "a queue knows the weight of its copies");
}

int main(void) {
#ifndef CORRAL_CHECKS
  printf("SKIPPED: built without CORRAL_CHECKS\n");
  return 77;
#endif
  const struct CMUnitTest tests[] = {cmocka_unit_test(of_the_near_tier)};
  return cmocka_run_group_tests_name("checks of the near tier", tests, NULL, NULL);
}
