/* test_early.c: rebuilding ahead of expiry: when (by the XFetch paper's rule or a share of the
 * life), and by whom (a claim that never waits). */
#include "support/flight_story.h"

static corral_policy by_share(int64_t pct) {
  corral_policy policy = usual;
  policy.early_pct = pct;
  return policy;
}

#define EARLY(policy, plan, expected, ...)                                                         \
  do {                                                                                             \
    story s_ = begin_with(policy, (crl_flight_plan)plan);                                          \
    play(&s_, (const char *const[]){__VA_ARGS__, NULL});                                           \
    assert_string_equal(s_.log, expected);                                                         \
  } while (0)

#define INLINE                                                                                     \
  { .can_compute = 1 }
#define BEHIND                                                                                     \
  { .can_compute = 1, .background = 1 }
#define CLIMBS                                                                                     \
  { .can_compute = 1, .limited = 1, .ladder = 1 }

/* ---- when ---------------------------------------------------------------------------------- */

static uint64_t next(uint64_t *dice) {
  *dice = *dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return *dice ^ *dice >> 29;
}

/* Share of 100,000 draws that rebuild early, in percent. */
static double share(int64_t beta, int64_t left_ms, uint64_t cost_us) {
  uint64_t dice = 20151;
  int yes = 0;
  corral_policy policy = usual;
  policy.early_beta = beta;
  for (int i = 0; i < 100000; i++)
    yes += crl_policy_early(&policy, 60000, left_ms, cost_us,
                            next(&dice) * UINT64_C(0x9e3779b97f4a7c15));
  return yes / 1000.0;
}

static void is_about(double got, double expected) {
  if (got < expected - 0.7 || got > expected + 0.7)
    fail_msg("%.2f %% instead of %.2f %%", got, expected);
}

/* P = exp(-left / (beta * cost)) */
static void chance_follows_the_paper(void **state) {
  (void)state;
  is_about(share(100, 0, 100000), 100);
  is_about(share(100, 10, 100000), 90.48);
  is_about(share(100, 100, 100000), 36.79);
  is_about(share(200, 100, 100000), 60.65);
  is_about(share(50, 100, 100000), 13.53);
  is_about(share(100, 300, 100000), 4.98);
  is_about(share(100, 700, 100000), 0.09);
  is_about(share(100, 3701, 100000), 0);
  is_about(share(100, 100, 0), 0); /* a compute without cost is never early */
  is_about(share(0, 0, 100000), 0);
  is_about(share(CORRAL_OFF, 0, 100000), 0);
}

static void a_share_of_the_life_is_a_moment(void **state) {
  (void)state;
  corral_policy policy = by_share(20);
  assert_false(crl_policy_early(&policy, 1000, 200, 0, 1));
  assert_true(crl_policy_early(&policy, 1000, 199, 0, 1));
  policy.early_pct = CORRAL_OFF;
  assert_false(crl_policy_early(&policy, 1000, 1, 0, 1));
}

/* A record may contain any time. */
static void moments_however_far_away_are_judged(void **state) {
  (void)state;
  corral_policy policy;
  assert_int_equal(crl_policy_resolve(&policy, CORRAL_POLICY(.early_beta = 100), NULL, NULL),
                   CORRAL_OK);
  assert_true(crl_policy_early(&policy, 1000, INT64_MIN, 1, 1));
  assert_false(crl_policy_early(&policy, 1000, INT64_MAX, 1, 1));
  int64_t longest = policy.poll_max_ms;
  assert_int_equal(crl_policy_towards(&policy, INT64_MAX, UINT64_MAX), longest);
  assert_in_range(crl_policy_towards(&policy, INT64_MIN, UINT64_MAX), 1, longest);
}

/* ---- by whom ------------------------------------------------------------------------------- */

static void the_one_who_wins_the_claim_rebuilds_and_lends_the_fresh_value(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, INLINE,
        "0 get: ok fresh 400 ttl 1000\n1 claim: ok fresh 399\n2 answer stored\n2 compute: 30 "
        "value\n32 settle: ok\n33 done\n",
        "ok fresh 400 ttl 1000", "ok fresh 399", "30 value", "ok");
}

static void who_loses_it_has_the_fresh_value_at_once(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, INLINE,
        "0 get: ok fresh 400 ttl 1000\n1 claim: busy fresh 399 lease 90\n2 answer stored\n2 done\n",
        "ok fresh 400 ttl 1000", "busy fresh 399 lease 90");
  EARLY(&policy, INLINE, "0 get: ok fresh 400 ttl 1000 lease 90\n1 answer stored\n1 done\n",
        "ok fresh 400 ttl 1000 lease 90");
  EARLY(&policy, INLINE, "0 get: ok fresh 400 ttl 1000\n1 claim: away\n2 answer stored\n2 done\n",
        "ok fresh 400 ttl 1000", "away");
}

static void a_bound_compute_rebuilds_behind_the_answer(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, BEHIND,
        "0 get: ok fresh 400 ttl 1000\n1 answer stored\n1 claim: ok fresh 399\n2 compute: 30 "
        "value\n32 settle: ok\n33 done\n",
        "ok fresh 400 ttl 1000", "ok fresh 399", "30 value", "ok");
  EARLY(&policy, BEHIND, "0 get: ok fresh 400 ttl 1000\n1 answer stored\n1 claim: away\n2 done\n",
        "ok fresh 400 ttl 1000", "away");
}

static void what_somebody_rebuilt_meanwhile_is_not_rebuilt_again(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, INLINE,
        "0 get: ok fresh 400 ttl 1000\n1 claim: ok fresh 990\n2 answer stored\n2 release: ok\n3 "
        "done\n",
        "ok fresh 400 ttl 1000", "ok fresh 990", "ok");
}

/* A thread that is held up between the store's answer and its clock finds a longer life. */
static void a_life_that_a_later_look_takes_for_longer_is_rebuilt(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, INLINE,
        "0 get: ok fresh 400 ttl 1000\n1 claim: ok fresh 450 ttl 1000\n2 answer stored\n2 "
        "compute: 30 value\n32 settle: ok\n33 done\n",
        "ok fresh 400 ttl 1000", "ok fresh 450 ttl 1000", "30 value", "ok");
}

static void no_rung_is_waited_for(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, CLIMBS, "0 get: ok fresh 400 ttl 1000\n1 slot: busy\n2 answer stored\n2 done\n",
        "ok fresh 400 ttl 1000", "busy");
  EARLY(&policy, CLIMBS,
        "0 get: ok fresh 400 ttl 1000\n1 slot: ok\n2 host: busy\n3 answer stored\n3 done\n",
        "ok fresh 400 ttl 1000", "ok", "busy");
}

static void a_failure_ahead_of_time_costs_nobody_the_fresh_value(void **state) {
  (void)state;
  corral_policy policy = by_share(50);
  EARLY(&policy, INLINE,
        "0 get: ok fresh 400 ttl 1000\n1 claim: ok fresh 399\n2 answer stored\n2 compute: "
        "failure\n3 release with a verdict: ok\n"
        "4 done\n",
        "ok fresh 400 ttl 1000", "ok fresh 399", "failure", "ok");
  EARLY(&policy, INLINE, "0 get: ok fresh 400 ttl 1000 retry 50\n1 answer stored\n1 done\n",
        "ok fresh 400 ttl 1000 retry 50");
}

/* ---- one rebuild per expiry ---------------------------------------------------------------- */

enum { TTL = 1000, COST_MS = 50, LIVES = 200 };

/* One request per ms for one key, whose compute takes COST_MS. */
typedef struct world {
  corral_policy policy;
  crl_flight leader;
  int64_t now, born, done_at; /* done_at: end of the running compute; 0: none */
  unsigned computes, expired;
} world;

static crl_told look_at(const world *w) {
  crl_told told = {.now = w->now, .look = {.ttl = TTL, .cost_us = COST_MS * 1000, .has_value = 1}};
  told.look.lives.fresh = w->born + TTL > w->now ? w->born + TTL - w->now : 0;
  told.look.lease_left = w->done_at != 0 ? 100 : 0;
  return told;
}

static void end_compute(world *w) {
  crl_told made = {.now = w->now, .made = CRL_MADE_VALUE}, ok = {.now = w->now};
  assert_int_equal(crl_flight_step(&w->leader, &made), CRL_ASK_PUBLISH);
  assert_int_equal(crl_flight_step(&w->leader, &ok), CRL_ASK_SETTLE);
  assert_int_equal(crl_flight_step(&w->leader, &ok), CRL_ASK_DONE);
  w->born = w->now;
  w->done_at = 0;
}

static void one_request(world *w) {
  crl_flight f;
  crl_flight_plan plan = {
      .deadline = w->now + 1000, .dice = (uint64_t)w->now * 7919, .can_compute = 1};
  crl_told told = look_at(w);
  crl_flight_start(&f, &w->policy, &plan);
  w->expired += told.look.lives.fresh == 0;
  crl_ask ask = crl_flight_step(&f, &told);
  if (ask != CRL_ASK_CLAIM) return;
  assert_int_equal(w->done_at, 0); /* a key that is being rebuilt isn't claimed */
  assert_int_equal(crl_flight_step(&f, &told), CRL_ASK_ANSWER);
  assert_int_equal(f.answer, CRL_ANSWER_STORED);
  assert_int_equal(crl_flight_step(&f, &told), CRL_ASK_COMPUTE);
  w->computes++;
  w->leader = f;
  w->done_at = w->now + COST_MS;
}

static void with_a_claim_there_is_one_rebuild_an_expiry(void **state) {
  (void)state;
  world w = {.policy = usual, .now = 1, .born = 1};
  w.policy.early_beta = 100;
  int64_t shortest = TTL, before = w.born;
  for (unsigned lives = 0; lives < LIVES; w.now++) {
    if (w.done_at != 0 && w.now >= w.done_at) {
      end_compute(&w);
      if (w.born - before < shortest) shortest = w.born - before;
      before = w.born;
      lives++;
    }
    one_request(&w);
  }
  print_message("           %u lives of %d ms: %u computes, the shortest life %lld ms, %u requests "
                "after an expiry\n",
                LIVES, TTL, w.computes, (long long)shortest, w.expired);
  assert_in_range(w.computes, LIVES, LIVES + 1); /* the last compute may still run */
  assert_int_equal(w.expired, 0);
  assert_true(shortest > TTL / 4);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(chance_follows_the_paper),
      T(a_share_of_the_life_is_a_moment),
      T(moments_however_far_away_are_judged),
      T(the_one_who_wins_the_claim_rebuilds_and_lends_the_fresh_value),
      T(who_loses_it_has_the_fresh_value_at_once),
      T(a_bound_compute_rebuilds_behind_the_answer),
      T(what_somebody_rebuilt_meanwhile_is_not_rebuilt_again),
      T(a_life_that_a_later_look_takes_for_longer_is_rebuilt),
      T(no_rung_is_waited_for),
      T(a_failure_ahead_of_time_costs_nobody_the_fresh_value),
      T(with_a_claim_there_is_one_rebuild_an_expiry),
  };
  return cmocka_run_group_tests_name("early", tests, NULL, NULL);
}
