/* test_swarm_places.c: random calls in a simulated world of places to compute: several processes
 * with few threads and few computes at once, keys whose computes get other keys without a cycle, a
 * store that is well. An oracle checks that nothing stalls, that each key is computed once, and
 * that the limits hold.
 *
 * One seed is one world: CORRAL_SEED=n repeats that one. CORRAL_SEEDS=n sets the number of worlds
 * (2000), CORRAL_SEED_FROM=n (1) the first seed. */
#include "support/swarm_places.h"

/* ---- one world ----------------------------------------------------------------------------- */

static void on_event(world *w, event *e) {
  call *c = &w->calls[e->call];
  int current = e->ask_number == c->ask_number;
  switch (e->what) {
    case ARRIVES: on_arrives(w, e); break;
    case TOLD:
      if (current && c->flying) step(w, c, &e->told);
      break;
    case WOKEN: on_woken(w, c); break;
    case GOES_ON: go_on(w, c); break;
  }
}

/* Dependencies lead to keys of higher numbers only. */
static void make_key(world *w, int number) {
  key_state *k = &w->keys[number];
  k->holder = k->host_holder[0] = k->host_holder[1] = NOBODY;
  if (number + 1 < KEYS) k->dep_count = (int)between(w, 0, DEPS);
  for (int i = 0; i < k->dep_count; i++) k->deps[i] = (int)between(w, number + 1, KEYS - 1);
  k->is_stale = chance(w, 20);
  k->is_usable = !k->is_stale && chance(w, 10);
}

static void make_process(world *w, process *p) {
  p->most = chance(w, 70) ? between(w, 1, 2) : 0;
  p->threads = chance(w, 70) ? between(w, 1, 2) : 0;
  p->limiter = crl_limiter_new(p->most, p->threads, 0);
  assert_non_null(p->limiter);
  for (int i = 0; i < KEYS; i++) p->leads[i] = NOBODY;
}

static kind any_kind(world *w) { return chance(w, 15) ? FUNCTION : chance(w, 50) ? BOUND : PLAIN; }

static void make_world(world *w, uint64_t seed, control broken) {
  memset(w, 0, sizeof *w);
  w->dice = seed;
  w->control = broken;
  w->now = 1;
  w->policy = (corral_policy){.size = sizeof w->policy,
                              .ttl_ms = FAR_MS,
                              .retry_ms = 60,
                              .retry_max_ms = 200,
                              .lease_ms = LEASE_MS,
                              .poll_ms = 2,
                              .poll_max_ms = 40};
  w->ladder = chance(w, 30);
  for (int i = 0; i < KEYS; i++) make_key(w, i);
  for (int i = 0; i < PROCESSES; i++) make_process(w, &w->processes[i]);
}

/* Goes on until the given time, or until nothing is left to happen. */
static void live_until(world *w, int64_t until) {
  while (w->events > 0 && w->heap[0].at <= until) {
    event e = next_event(w);
    w->now = e.at;
    on_event(w, &e);
  }
  if (w->now < until && w->events > 0) w->now = until;
}

static world *live(uint64_t seed, control broken) {
  world *w = &the_world;
  make_world(w, seed, broken);
  int processes = (int)between(w, 1, PROCESSES), calls = (int)between(w, 4, 40);
  for (int i = 0; i < calls; i++) {
    begin_call(w, any_kind(w), (int)between(w, 0, processes - 1), (int)between(w, 0, KEYS - 1),
               NOBODY);
    if (chance(w, 60)) live_until(w, w->now + between(w, 0, 15));
  }
  live_until(w, LIMIT_MS);
  for (int i = 0; i < w->count; i++)
    expect(w, w->calls[i].ended && !w->calls[i].flying, "1: a call stalled", w->calls[i].key);
  for (int i = 0; i < PROCESSES; i++) {
    size_t taken = crl_limiter_inside(w->processes[i].limiter);
    expect(w, w->violations > 0 || (taken == 0 && w->processes[i].active == 0),
           "3: a place was left taken", NOBODY);
    crl_limiter_free(w->processes[i].limiter);
  }
  return w;
}

/* ---- tests --------------------------------------------------------------------------------- */

static uint64_t number_of(const char *name, uint64_t otherwise) {
  const char *text = getenv(name);
  return text == NULL ? otherwise : strtoull(text, NULL, 10);
}

static void nothing_stalls_without_a_cycle_and_each_key_is_computed_once(void **state) {
  (void)state;
  uint64_t first = number_of("CORRAL_SEED", number_of("CORRAL_SEED_FROM", 1)),
           count = getenv("CORRAL_SEED") != NULL ? 1 : number_of("CORRAL_SEEDS", 2000);
  unsigned computes = 0, joins = 0, borrowed = 0, queued = 0, functions = 0, refreshes = 0;
  for (uint64_t seed = first; seed < first + count; seed++) {
    const world *w = live(seed, SOUND);
    if (w->violations > 0)
      fail_msg("CORRAL_SEED=%llu: %u violations, the first: promise %s", (unsigned long long)seed,
               w->violations, w->first);
    computes += w->computes, joins += w->joins, borrowed += w->borrowed;
    queued += w->queued, functions += w->functions, refreshes += w->refreshes;
  }
  printf(
      "%llu worlds, %u computes, %u joined, %u borrowed, %u queued, %u functions, %u refreshes\n",
      (unsigned long long)count, computes, joins, borrowed, queued, functions, refreshes);
  if (count < 100) return;
  assert_true(computes > 4 * count && joins > count && borrowed > count && queued > count);
  assert_true(functions > count && refreshes > count / 2);
}

static void a_seed_makes_the_same_world_again(void **state) {
  (void)state;
  for (uint64_t seed = 1; seed < 10; seed++) {
    const world *w = live(seed, SOUND);
    uint64_t order = w->order, dice = w->dice;
    int64_t now = w->now;
    live(seed, SOUND);
    assert_true(w->order == order && w->dice == dice && w->now == now);
  }
}

/* Control runs: each has a deliberate defect that the oracle must detect. Returns how many worlds
 * break this promise first. */
static unsigned broken_worlds(control broken, char promise, uint64_t seeds) {
  unsigned count = 0;
  for (uint64_t seed = 1; seed <= seeds; seed++) {
    const world *w = live(seed, broken);
    count += w->violations > 0 && w->first[0] == promise;
  }
  printf("%u worlds\n", count);
  return count;
}

static void a_lease_that_queues_lets_a_key_be_computed_twice(void **state) {
  (void)state;
  assert_true(broken_worlds(CLAIM_BEFORE_PLACE, '2', 400) > 10);
}

static void a_lease_that_is_extended_while_it_queues_stalls_processes(void **state) {
  (void)state;
  assert_true(broken_worlds(CLAIM_KEPT_BEFORE_PLACE, '1', 400) > 10);
}

static void a_nested_get_that_does_not_borrow_stalls(void **state) {
  (void)state;
  assert_true(broken_worlds(NO_BORROWING, '1', 400) > 10);
}

static void one_that_joins_and_does_not_lend_stalls(void **state) {
  (void)state;
  assert_true(broken_worlds(NO_LENDING_BY_JOINING, '1', 400) > 10);
}

static void a_function_that_lends_what_it_has_not_exceeds_the_limit(void **state) {
  (void)state;
  assert_true(broken_worlds(FUNCTIONS_LEND_ALL, '3', 400) > 10);
}

static void one_that_joins_and_lends_to_a_refresh_exceeds_the_limit(void **state) {
  (void)state;
  assert_true(broken_worlds(LENDING_TO_THE_HASTY, '3', 3000) > 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(nothing_stalls_without_a_cycle_and_each_key_is_computed_once),
      cmocka_unit_test(a_seed_makes_the_same_world_again),
      cmocka_unit_test(a_lease_that_queues_lets_a_key_be_computed_twice),
      cmocka_unit_test(a_lease_that_is_extended_while_it_queues_stalls_processes),
      cmocka_unit_test(a_nested_get_that_does_not_borrow_stalls),
      cmocka_unit_test(one_that_joins_and_does_not_lend_stalls),
      cmocka_unit_test(a_function_that_lends_what_it_has_not_exceeds_the_limit),
      cmocka_unit_test(one_that_joins_and_lends_to_a_refresh_exceeds_the_limit),
  };
  return cmocka_run_group_tests_name("swarm of places", tests, NULL, NULL);
}
