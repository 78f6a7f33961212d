/* near.c: broken invariants of the near tier. */
#include "near/shard.h"
#include "checks/checks.h"

static void break_the_near_tier(int which) {
  crl_copied *copies[2] = {calloc(1, sizeof(crl_copied)), calloc(1, sizeof(crl_copied))};
  static crl_shard shard;
  crl_shard *s = &shard;
  crl_shard_queue *small = &s->queues[CRL_SMALL];
  if (!crl_shard_init(s)) abort();
  crl_shard_lock(s);
  copies[0]->newer = small->newest = copies[1];
  copies[1]->older = small->oldest = copies[0];
  small->weight = copies[0]->gone.weight = 10;
  switch (which) {
    case 0: small->newest = NULL; break;
    case 1: copies[1]->in = CRL_MAIN; break;
    case 2: copies[1]->hits = CRL_SHARD_HITS + 1; break;
    case 3: copies[0]->older = copies[1]; break;
    case 4: copies[1]->older = copies[1]; break;
    default: small->weight = 11;
  }
  crl_shard_unlock(s);
}

void of_the_near_tier(void **state) {
  (void)state;
  breaks(break_the_near_tier, 0, "near: a queue has both ends or none");
  breaks(break_the_near_tier, 1, "near: a copy is in its own queue");
  breaks(break_the_near_tier, 2, "near: hits are counted up to their most");
  breaks(break_the_near_tier, 3, "near: the oldest has none before it");
  breaks(break_the_near_tier, 4, "near: neighbours know each other");
  breaks(break_the_near_tier, 5, "near: a queue knows the weight of its copies");
}
