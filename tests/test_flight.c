/* test_flight.c: every path of a flight as a story, and a walk through all results at every ask. */
#include <limits.h>

#include "support/flight_story.h"

/* ---- hits and misses ----------------------------------------------------------------------- */

static void a_fresh_value_costs_one_look(void **state) {
  (void)state;
  STORY(1, 0, "0 get: 2 ok fresh 500\n2 answer stored\n2 done\n", "2 ok fresh 500");
}

static void the_leader_of_a_cold_key_computes_stores_and_answers(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: 40 value\n42 settle: ok\n43 answer computed, "
        "kept\n43 done\n",
        "miss", "ok", "40 value", "ok");
}

static void a_waiter_polls_until_the_leader_has_stored(void **state) {
  (void)state;
  story s = begin(1, 0);
  tell(&s, "miss");
  tell(&s, "busy lease 150");
  assert_int_equal(s.ask, CRL_ASK_WAIT);
  assert_in_range(s.flight.until, s.now + 1, s.now + 4);
  tell(&s, "1 cut");
  tell(&s, "ok lease 140");
  assert_in_range(s.flight.until, s.now + 1, s.now + 8);
  tell(&s, "1 cut");
  tell(&s, "ok fresh 900");
  assert_string_equal(s.log,
                      "0 get: miss\n1 claim: busy lease 150\n2 wait: 1 cut\n3 get: ok lease 140\n"
                      "4 wait: 1 cut\n5 get: ok fresh 900\n6 answer stored\n6 done\n");
}

static void a_waiter_that_knows_the_cost_sleeps_towards_the_end_and_then_looks_often(void **state) {
  (void)state;
  story s = begin(1, 0);
  tell(&s, "ok lease 150 expect 40");
  /* until the expected end; poll_ms is 4 */
  assert_in_range(s.flight.until, s.now + 41, s.now + 44);
  tell(&s, "till");
  tell(&s, "ok lease 150 expect -3");
  assert_in_range(s.flight.until, s.now + 1, s.now + 4);
  tell(&s, "till");
  tell(&s, "ok lease 150 expect -80"); /* overdue: the pauses grow */
  assert_in_range(s.flight.until, s.now + 1, s.now + 20);
  tell(&s, "till");
  tell(&s, "ok lease 190 expect 500");
  /* poll_max_ms, because the compute may fail earlier */
  assert_int_equal(s.flight.until, s.now + 64);
  tell(&s, "till");
  tell(&s, "ok lease 10 expect 500");
  /* or the end of the lease, because the leader may die */
  assert_int_equal(s.flight.until, s.now + 11);
}

static void a_look_under_the_lease_that_finds_a_value_gives_the_lease_back(void **state) {
  (void)state;
  STORY(1, 0, "0 get: miss\n1 claim: ok fresh 900\n2 answer stored\n2 release: ok\n3 done\n",
        "miss", "ok fresh 900", "ok");
}

static void a_value_that_may_not_be_stored_is_answered_and_the_lease_given_back(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: unkept\n3 release: ok\n4 answer computed, not "
        "kept\n4 done\n",
        "miss", "ok", "unkept", "ok");
}

static void somebody_else_s_value_found_while_claiming_is_the_answer(void **state) {
  (void)state;
  STORY(1, 0, "0 get: miss\n1 claim: busy fresh 10 lease 5\n2 answer stored\n2 done\n", "miss",
        "busy fresh 10 lease 5");
}

static void a_flight_that_only_looks_answers_what_there_is(void **state) {
  (void)state;
  STORY(0, 0, "0 get: miss\n1 answer error EMISS\n1 done\n", "miss");
  STORY(0, 0, "0 get: ok swr 5 sie 5\n1 answer stale\n1 done\n", "ok swr 5 sie 5");
  STORY(0, 0, "0 get: ok sie 5\n1 answer error EMISS\n1 done\n", "ok sie 5");
  STORY(0, 0, "0 get: away\n1 answer error EUNAVAILABLE\n1 done\n", "away");
  STORY(0, 0, "0 get: ok retry 50\n1 answer verdict\n1 done\n", "ok retry 50");
}

/* From a step on an operator's order keeps it from computing. */
static void a_flight_that_freezes_takes_what_there_is_and_holds_on_to_nothing(void **state) {
  (void)state;
  STORY(1, 0, "0 get: miss frozen 1\n1 answer error EFROZEN\n1 done\n", "miss frozen 1");
  STORY(1, 0, "0 get: ok sie 5 frozen 1\n1 answer stale\n1 done\n", "ok sie 5 frozen 1");
  STORY(1, 1, "0 get: ok swr 5 sie 5 frozen 1\n1 answer stale\n1 done\n",
        "ok swr 5 sie 5 frozen 1");
  STORY(1, 0, "0 get: ok pass 1 frozen 1\n1 answer error EFROZEN\n1 done\n", "ok pass 1 frozen 1");
  STORY(1, 0, "0 get: ok lease 50 frozen 1\n1 answer error EFROZEN\n1 done\n",
        "ok lease 50 frozen 1");
  STORY(1, 0, "0 get: away frozen 1\n1 answer error EUNAVAILABLE\n1 done\n", "away frozen 1");
  STORY(1, 0, "0 get: miss\n1 claim: ok frozen 1\n2 release: ok\n3 answer error EFROZEN\n3 done\n",
        "miss", "ok frozen 1", "ok");
  STORY(1, 0,
        "0 get: ok sie 50\n1 claim: ok sie 49 frozen 1\n2 release: ok\n3 answer stale\n3 done\n",
        "ok sie 50", "ok sie 49 frozen 1", "ok");
  /* behind an answer */
  STORY(1, 1,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 claim: ok swr 49 frozen 1\n2 release: ok\n"
        "3 done\n",
        "ok swr 50 sie 50", "ok swr 49 frozen 1", "ok");
  /* a compute that is under way ends as ever */
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value frozen 1\n3 settle: ok\n"
        "4 answer computed, kept\n4 done\n",
        "miss", "ok", "value frozen 1", "ok");
}

static crl_flight_plan expects_none(void) {
  return (crl_flight_plan){.can_compute = 1, .expects_none = 1};
}

static void where_nothing_is_expected_the_claim_is_the_first_look(void **state) {
  (void)state;
  static const struct {
    const char *told[5], *log;
  } all[] = {
      {{"ok", "value", "ok"},
       "0 claim: ok\n1 compute: value\n2 settle: ok\n3 answer computed, kept\n3 done\n"},
      {{"busy fresh 900"}, "0 claim: busy fresh 900\n1 answer stored\n1 done\n"},
      {{"busy retry 50"}, "0 claim: busy retry 50\n1 answer verdict\n1 done\n"},
      {{"busy lease 90", "2 cut", "ok fresh 9"},
       "0 claim: busy lease 90\n1 wait: 2 cut\n3 get: ok fresh 9\n4 answer stored\n4 done\n"},
      {{"busy sie 50", "ok sie 49", "value", "ok"},
       "0 claim: busy sie 50\n1 claim: ok sie 49\n2 compute: value\n3 settle: ok\n"
       "4 answer computed, kept\n4 done\n"},
      {{"busy sie 50", "busy fresh 900 lease 5"},
       "0 claim: busy sie 50\n1 claim: busy fresh 900 lease 5\n2 answer stored\n2 done\n"},
      {{"ok fresh 900", "ok"}, "0 claim: ok fresh 900\n1 answer stored\n1 release: ok\n2 done\n"},
  };
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    story s = begin_with(&usual, expects_none());
    for (int n = 0; n < 5 && all[i].told[n] != NULL; n++) tell(&s, all[i].told[n]);
    assert_string_equal(s.log, all[i].log);
  }
}

/* A rung before the claim takes time: the look comes first. */
static void a_rung_is_not_climbed_blindly(void **state) {
  (void)state;
  crl_flight flight;
  crl_flight_plan plan = expects_none();
  assert_int_equal(crl_flight_start(&flight, &usual, &plan), CRL_ASK_CLAIM);
  plan.limited = 1;
  assert_int_equal(crl_flight_start(&flight, &usual, &plan), CRL_ASK_GET);
  plan.limited = 0;
  plan.ladder = 1;
  assert_int_equal(crl_flight_start(&flight, &usual, &plan), CRL_ASK_GET);
  plan.ladder = 0;
  plan.can_compute = 0;
  assert_int_equal(crl_flight_start(&flight, &usual, &plan), CRL_ASK_GET);
}

/* ---- stale --------------------------------------------------------------------------------- */

static void who_meets_a_stale_value_under_rebuild_takes_it(void **state) {
  (void)state;
  STORY(1, 0, "0 get: ok swr 50 sie 50 lease 100\n1 answer stale\n1 done\n",
        "ok swr 50 sie 50 lease 100");
  STORY(1, 0,
        "0 get: ok swr 50 sie 50\n1 claim: busy swr 49 sie 49 lease 100\n2 answer stale\n2 done\n",
        "ok swr 50 sie 50", "busy swr 49 sie 49 lease 100");
}

static void the_one_who_gets_the_lease_lends_the_stale_value_and_computes(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok swr 50 sie 50\n1 claim: ok swr 49 sie 49\n2 answer stale\n2 compute: 30 "
        "value\n32 settle: ok\n33 done\n",
        "ok swr 50 sie 50", "ok swr 49 sie 49", "30 value", "ok");
}

static void a_bound_compute_refreshes_behind_the_answer(void **state) {
  (void)state;
  STORY(1, 1,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 claim: ok swr 49 sie 49\n2 compute: 30 "
        "value\n32 settle: ok\n33 done\n",
        "ok swr 50 sie 50", "ok swr 49 sie 49", "30 value", "ok");
  STORY(1, 1,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 claim: busy swr 49 sie 49 lease 9\n2 done\n",
        "ok swr 50 sie 50", "busy swr 49 sie 49 lease 9");
  STORY(1, 1,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 claim: ok fresh 900\n2 release: ok\n3 done\n",
        "ok swr 50 sie 50", "ok fresh 900", "ok");
  STORY(1, 1, "0 get: ok swr 50 sie 50\n1 answer stale\n1 claim: away\n2 done\n",
        "ok swr 50 sie 50", "away");
}

/* Past swr_ms the caller waits for the rebuild; within sie_ms the stale value is served only if the
 * rebuild fails. */
static void in_the_grace_for_errors_the_caller_waits_for_the_rebuild(void **state) {
  (void)state;
  STORY(1, 1,
        "0 get: ok sie 500\n1 claim: ok sie 499\n2 compute: value\n3 settle: ok\n4 answer "
        "computed, kept\n4 done\n",
        "ok sie 500", "ok sie 499", "value", "ok");
}

/* ---- failures ------------------------------------------------------------------------------ */

static void a_failing_compute_leaves_a_verdict(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: failure\n3 release with a verdict: ok\n4 answer "
        "failed\n4 done\n",
        "miss", "ok", "failure", "ok");
}

static void a_failing_compute_is_answered_by_a_stale_value(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok sie 500\n1 claim: ok sie 499\n2 compute: failure\n3 release with a verdict: "
        "ok\n4 answer stale\n4 done\n",
        "ok sie 500", "ok sie 499", "failure", "ok");
  /* the grace ended during the compute */
  STORY(1, 0,
        "0 get: ok sie 50\n1 claim: ok sie 49\n2 compute: 60 failure\n62 release with a verdict: "
        "ok\n63 answer failed\n63 done\n",
        "ok sie 50", "ok sie 49", "60 failure", "ok");
}

static void a_verdict_is_the_answer_unless_there_is_a_stale_value(void **state) {
  (void)state;
  STORY(1, 0, "0 get: ok retry 80\n1 answer verdict\n1 done\n", "ok retry 80");
  STORY(1, 0, "0 get: ok retry 80 sie 10\n1 answer stale\n1 done\n", "ok retry 80 sie 10");
  STORY(1, 0, "0 get: ok retry 80 swr 10\n1 answer stale\n1 done\n", "ok retry 80 swr 10");
  STORY(1, 0, "0 get: miss\n1 claim: busy retry 80\n2 answer verdict\n2 done\n", "miss",
        "busy retry 80");
}

static corral_policy waiting_out(void) {
  corral_policy policy = usual;
  policy.at_failure = CORRAL_FAILURE_WAIT;
  return policy;
}

static void a_call_that_comes_in_a_short_pause_can_wait_for_the_next_try(void **state) {
  (void)state;
  static const struct {
    const char *told[6], *log;
  } all[] = {
      {{"ok retry 80 failures 1", "till", "miss", "ok", "value", "ok"},
       "0 get: ok retry 80 failures 1\n1 wait: till\n82 get: miss\n83 claim: ok\n84 compute: "
       "value\n85 settle: ok\n86 answer computed, kept\n86 done\n"},
      /* the store's clock differs: this failure's pause isn't over */
      {{"ok retry 80 failures 1", "till", "ok retry 2 failures 1", "till", "ok fresh 9"},
       "0 get: ok retry 80 failures 1\n1 wait: till\n82 get: ok retry 2 failures 1\n83 wait: "
       "till\n86 get: ok fresh 9\n87 answer stored\n87 done\n"},
      /* the next try has failed, too */
      {{"ok retry 80 failures 1", "till", "ok retry 80 failures 2"},
       "0 get: ok retry 80 failures 1\n1 wait: till\n82 get: ok retry 80 failures 2\n83 answer "
       "verdict\n83 done\n"},
      /* a call that came before the failure */
      {{"ok lease 50", "3 cut", "ok retry 80 failures 1"},
       "0 get: ok lease 50\n1 wait: 3 cut\n4 get: ok retry 80 failures 1\n5 answer verdict\n"
       "5 done\n"},
      /* a long pause */
      {{"ok retry 101 failures 4"}, "0 get: ok retry 101 failures 4\n1 answer verdict\n1 done\n"},
      {{"ok retry 80 failures 1 sie 10"},
       "0 get: ok retry 80 failures 1 sie 10\n1 answer stale\n1 done\n"},
  };
  corral_policy policy = waiting_out();
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1});
    for (size_t k = 0; k < 6 && all[i].told[k] != NULL; k++) tell(&s, all[i].told[k]);
    assert_string_equal(s.log, all[i].log);
  }
  story s = begin_with(&policy, (crl_flight_plan){.can_compute = 0});
  tell(&s, "ok retry 80 failures 1");
  assert_string_equal(s.log, "0 get: ok retry 80 failures 1\n1 answer verdict\n1 done\n");
}

static void the_pause_after_failures_is_flat_then_doubles_to_its_limit(void **state) {
  (void)state;
  static const int64_t most[] = {100, 100, 100, 400, 500};
  corral_policy patient = usual;
  patient.retry_max_ms = 500;
  for (int before = 0; before < 5; before++) {
    char look[64];
    story s = begin_with(&patient, (crl_flight_plan){.can_compute = 1});
    tell(&s, "miss");
    snprintf(look, sizeof look, "ok failures %d", before);
    tell(&s, look);
    tell(&s, "failure");
    assert_int_equal(s.ask, CRL_ASK_RELEASE);
    assert_int_equal(s.flight.failures, before + 1);
    assert_in_range(s.flight.retry_ms, most[before] / 8 * 7, most[before]);
  }
}

/* ---- leaders that die, deadlines ----------------------------------------------------------- */

static void a_dead_leader_is_replaced_when_its_lease_ends(void **state) {
  (void)state;
  story s = begin(1, 0);
  tell(&s, "miss");
  tell(&s, "busy lease 1");
  assert_in_range(s.flight.until, s.now + 1, s.now + 2); /* shortly after the end of the lease */
  tell(&s, "2 cut");
  tell(&s, "miss");
  tell(&s, "ok");
  assert_string_equal(
      s.log,
      "0 get: miss\n1 claim: busy lease 1\n2 wait: 2 cut\n4 get: miss\n5 claim: ok\n6 compute: ");
}

/* Says what a look finds under a lease that began at 0 and is not extended. */
static const char *under_lease(const story *s, const char *status, int64_t lease, int watched) {
  static char line[64];
  int64_t left = lease - (s->now + 1);
  if (left <= 0) return "1 miss";
  snprintf(line, sizeof line, "1 %s lease %lld watched %d", status, (long long)left, watched);
  return line;
}

static void a_leader_that_dies_in_its_first_lease_is_replaced_at_its_end(void **state) {
  (void)state;
  corral_policy policy;
  assert_int_equal(crl_policy_resolve(&policy, NULL, NULL, NULL), CORRAL_OK);
  const int64_t lease = crl_policy_lease(&policy, 0, 0);
  assert_int_equal(lease, 750);
  for (uint64_t dice = 0; dice < 200; dice++) {
    int watched = dice % 2 != 0;
    story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1});
    s.flight.dice = dice;
    s.now = (int64_t)(dice * 3); /* this waiter came later than the leader */
    tell(&s, "1 miss");
    tell(&s, under_lease(&s, "busy", lease, watched));
    while (s.ask == CRL_ASK_WAIT) {
      tell(&s, "till");
      assert_int_equal(s.ask, CRL_ASK_GET);
      tell(&s, under_lease(&s, "ok", lease, watched));
    }
    assert_int_equal(s.ask, CRL_ASK_CLAIM);
    assert_in_range(s.now, lease, lease + 2);
  }
}

static void at_the_deadline_there_is_one_last_look(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok lease 5000\n1 wait: 999 cut\n1000 get: ok fresh 9\n1001 answer stored\n1001 "
        "done\n",
        "ok lease 5000", "999 cut", "ok fresh 9");
  STORY(1, 0,
        "0 get: ok lease 5000\n1 wait: 999 cut\n1000 get: ok lease 4000\n1001 answer error "
        "EDEADLINE\n1001 done\n",
        "ok lease 5000", "999 cut", "ok lease 4000");
  STORY(1, 0,
        "0 get: ok lease 5000\n1 wait: 999 cut\n1000 get: miss\n1001 answer error EDEADLINE\n1001 "
        "done\n",
        "ok lease 5000", "999 cut", "miss");
  STORY(1, 0,
        "0 get: ok lease 5000\n1 wait: 999 cut\n1000 get: away\n1001 answer error EDEADLINE\n1001 "
        "done\n",
        "ok lease 5000", "999 cut", "away");
}

static void at_the_deadline_a_stale_value_beats_an_error(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok sie 3000 lease 5000\n1 wait: 999 cut\n1000 get: ok sie 2000 lease 4000\n1001 "
        "answer stale\n1001 done\n",
        "ok sie 3000 lease 5000", "999 cut", "ok sie 2000 lease 4000");
  STORY(1, 0,
        "0 get: ok sie 3000 lease 5000\n1 wait: 999 cut\n1000 get: away\n1001 answer stale\n1001 "
        "done\n",
        "ok sie 3000 lease 5000", "999 cut", "away");
}

/* ---- the store is away --------------------------------------------------------------------- */

static void without_a_store_the_value_is_computed_and_not_stored(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: away\n1 compute without a lease: value\n2 answer computed, not kept\n2 done\n",
        "away", "value");
  STORY(1, 0, "0 get: away\n1 compute without a lease: failure\n2 answer failed\n2 done\n", "away",
        "failure");
  STORY(1, 0,
        "0 get: miss\n1 claim: away\n2 compute without a lease: value\n3 answer computed, not "
        "kept\n3 done\n",
        "miss", "away", "value");
  STORY(1, 0, "0 get: ok swr 9 sie 9\n1 claim: away\n2 answer stale\n2 done\n", "ok swr 9 sie 9",
        "away");
}

/* The second CLAIM has another token: the lost one may still arrive, even after an invalidation. */
static void a_claim_whose_reply_was_lost_is_given_up_and_tried_once_more(void **state) {
  (void)state;
  STORY(
      1, 0,
      "0 get: miss\n1 claim: unknown\n2 release: ok\n3 claim: ok\n4 compute: value\n5 settle: ok\n"
      "6 answer computed, kept\n6 done\n",
      "miss", "unknown", "ok", "ok", "value", "ok");
}

static void a_claim_that_stays_unknown_is_given_up_and_computing_goes_on_without(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown\n2 release: unknown\n3 compute without a lease: value\n"
        "4 answer computed, not kept\n4 done\n",
        "miss", "unknown", "unknown", "value");
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown\n2 release: ok\n3 claim: unknown\n4 release: ok\n"
        "5 compute without a lease: value\n6 answer computed, not kept\n6 done\n",
        "miss", "unknown", "ok", "unknown", "ok", "value");
}

static void a_lost_claim_that_turns_out_busy_is_not_ours(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok swr 9 sie 9\n1 claim: unknown\n2 release: lost\n3 claim: busy swr 8 sie 8 lease "
        "50\n4 answer stale\n4 done\n",
        "ok swr 9 sie 9", "unknown", "lost", "busy swr 8 sie 8 lease 50");
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown\n2 release: lost\n3 claim: busy fresh 80\n4 answer "
        "stored\n4 done\n",
        "miss", "unknown", "lost", "busy fresh 80");
}

static void a_lost_claim_and_then_no_store_gives_the_lease_back_once(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown\n2 release: lost\n3 claim: away\n4 compute without a lease: "
        "value\n"
        "5 answer computed, not kept\n5 done\n",
        "miss", "unknown", "lost", "away", "value");
}

/* ---- the walk: every result at every ask --------------------------------------------------- */

static const crl_told looks[] = {
    {.status = CORRAL_EMISS},
    {.look = {.lives = {.fresh = 40, .swr = 50, .sie = 60}, .ttl = 100}},
    {.look = {.lives = {.swr = 50, .sie = 60}}},
    {.look = {.lives = {.sie = 400}}},
    {.look = {.lives = {.swr = 50}, .lease_left = 30}},
    {.look = {.lease_left = 30}},
    {.look = {.retry_left = 30, .failures = 2}},
    {.look = {.retry_left = 30, .lives = {.sie = 5}, .failures = 2}},
    {.status = CORRAL_EUNAVAILABLE},
    {.status = CORRAL_EUNAVAILABLE, .look = {.retry_left = 30, .failures = 2}},
    {.status = CORRAL_EINDOUBT},
    {.status = CORRAL_EINDOUBT, .slow = 1},
    {.status = CORRAL_EUNAVAILABLE, .look = {.pause_left = 40}},
    {.look = {.pass = 1, .lease_left = 30}},
    {.look = {.lease_left = 30, .lives = {.sie = 400}, .watched = 1}},
    {.left = 1},
};

static const crl_told claims[] = {
    {.status = CORRAL_OK},
    {.look = {.lives = {.fresh = 40}}},
    {.look = {.lives = {.swr = 50, .sie = 60}}},
    {.look = {.lives = {.sie = 60}, .failures = 1}},
    {.status = CORRAL_EBUSY, .look = {.lease_left = 30}},
    {.status = CORRAL_EBUSY, .look = {.lease_left = 30, .lives = {.swr = 40}}},
    {.status = CORRAL_EBUSY, .look = {.lease_left = 30, .lives = {.fresh = 40}}},
    {.status = CORRAL_EBUSY, .look = {.retry_left = 30}},
    {.status = CORRAL_EBUSY, .look = {.lives = {.fresh = 40}}},
    {.status = CORRAL_EBUSY, .look = {.lives = {.swr = 50, .sie = 60}}},
    {.status = CORRAL_EUNAVAILABLE},
    {.status = CORRAL_EINDOUBT},
    {.status = CORRAL_EINDOUBT, .slow = 1},
};

static const crl_told made[] = {{.made = CRL_MADE_VALUE},
                                {.made = CRL_MADE_UNKEPT},
                                {.made = CRL_MADE_FAILURE},
                                {.made = CRL_MADE_PASS},
                                {.made = CRL_MADE_OLDER, .left = 1}};
static const crl_told ended[] = {{.status = CORRAL_OK},
                                 {.status = CORRAL_ELOST},
                                 {.status = CORRAL_EINDOUBT},
                                 {.status = CORRAL_EUNAVAILABLE}};
static const crl_told nothing[] = {{.status = CORRAL_OK}};
static const crl_told waits[] = {{.status = CORRAL_OK}, {.left = 1}};
static const crl_told slots[] = {
    {.status = CORRAL_OK}, {.status = CORRAL_EBUSY}, {.status = CORRAL_OK, .left = 1}};
static const crl_told hosts[] = {{.status = CORRAL_OK},
                                 {.status = CORRAL_EBUSY},
                                 {.status = CORRAL_EBUSY, .passed = 1},
                                 {.status = CORRAL_EIO},
                                 {.status = CORRAL_OK, .left = 1}};
static const crl_told held[] = {{.status = CORRAL_OK, .look.lives.fresh = 5},
                                {.status = CORRAL_OK, .look.lives = {.swr = 5, .sie = 9}},
                                {.status = CORRAL_OK, .look.lives.sie = 9},
                                {.status = CORRAL_EMISS}};
static const int64_t pauses[] = {0, 3, 10000}; /* cut short, usual, beyond the deadline */

/* The walker's own model of a flight's state. */
typedef struct walk {
  crl_flight flight;
  crl_ask ask;
  int64_t now;
  int answers, granted, perhaps, late, depth, slot, host, no_host, slow;
  crl_ask path[32];
} walk;

static unsigned long walks;
/* from this step on the flight is told that it is frozen */
static int freezes_at = INT_MAX;

static void broken(const walk *w, const char *promise) {
  char text[512] = "";
  for (int i = 0; i < w->depth; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, " %s", ask_names[w->path[i]]);
  }
  fail_msg("%s: after%s", promise, text);
}

static void check(const walk *w) {
  const crl_flight *f = &w->flight;
  if (w->answers > 1) broken(w, "answered twice");
  switch (w->ask) {
    case CRL_ASK_SETTLE:
      if (!w->granted) broken(w, "SETTLE without a lease");
      break;
    case CRL_ASK_COMPUTE:
      if (w->slow && !f->alone) broken(w, "COMPUTE while the store is slow");
      if (w->late && f->alone != CRL_ALONE_DEADLINE) broken(w, "COMPUTE after the last look");
      if (f->alone && f->leased) broken(w, "COMPUTE alone with a lease");
      if (!f->plan.can_compute) broken(w, "COMPUTE without a compute");
      if (f->plan.limited && !w->slot) broken(w, "COMPUTE without a slot");
      if (f->plan.ladder && !w->host && !w->no_host && !f->alone)
        broken(w, "COMPUTE without the host's lock");
      if (f->leased != w->granted)
        broken(w, "COMPUTE believes in a lease that is not there, or the other way round");
      if (w->perhaps) broken(w, "COMPUTE while a lease of its own may stand in its way");
      break;
    case CRL_ASK_WAIT:
      if (f->until > f->plan.deadline) broken(w, "WAIT beyond the deadline");
      if (f->until <= w->now) broken(w, "WAIT for nothing");
      if (w->answers) broken(w, "WAIT after the answer");
      if (f->has_slot) broken(w, "WAIT with a slot");
      break;
    case CRL_ASK_RELEASE:
      if (!w->granted && !w->perhaps) broken(w, "RELEASE without a lease");
      break;
    case CRL_ASK_SLOT:
      if (!f->plan.limited || w->slot) broken(w, "SLOT without need");
      if (f->until > f->plan.deadline) broken(w, "SLOT beyond the deadline");
      break;
    case CRL_ASK_HOST:
      if (!f->plan.ladder || w->host) broken(w, "HOST without need");
      break;
    case CRL_ASK_CLAIM:
      if (f->plan.limited && !w->slot) broken(w, "CLAIM without a slot");
      if (f->plan.ladder && !w->host && !w->no_host) broken(w, "CLAIM without the host's lock");
      break;
    case CRL_ASK_DONE:
      if (w->answers != 1) broken(w, "DONE without an answer");
      if (f->has_slot || f->on_host) broken(w, "DONE with a slot or the host's lock");
      if (w->granted || w->perhaps)
        broken(w, "DONE with a lease that was neither settled nor released");
      break;
    default: break;
  }
}

/* Updates the model of the lease, slot and host lock. */
static void keep_books(walk *w, const crl_told *told) {
  if (w->ask == CRL_ASK_ANSWER) w->answers++;
  if (w->ask == CRL_ASK_GET || w->ask == CRL_ASK_CLAIM ||
      (w->ask == CRL_ASK_RELEASE && told->status < 0 && told->status != CORRAL_ELOST))
    w->slow = told->slow;
  if (w->ask == CRL_ASK_SLOT) w->slot = told->status == CORRAL_OK;
  if (w->ask == CRL_ASK_HOST) {
    w->host = told->status == CORRAL_OK;
    int64_t shut = w->flight.shut_at > 0 ? told->now - w->flight.shut_at : 0;
    int hangs = told->passed || w->flight.shut_ms + shut > LEASE;
    w->no_host |= told->status == CORRAL_EIO || (told->status == CORRAL_EBUSY && hangs);
  }
  if (w->ask == CRL_ASK_WAIT && told->now >= w->flight.plan.deadline) w->late = 1;
  if (w->ask == CRL_ASK_CLAIM) {
    if (told->status == CORRAL_OK) w->granted = 1;
    if (told->status == CORRAL_EINDOUBT) w->perhaps = 1;
    if (told->status == CORRAL_OK || told->status == CORRAL_EBUSY) w->perhaps = 0;
  }
  if (w->ask == CRL_ASK_SETTLE && (told->status == CORRAL_OK || told->status == CORRAL_ELOST))
    w->granted = 0;
  if (w->ask == CRL_ASK_RELEASE) w->granted = w->perhaps = 0;
}

static walk stepped(const walk *from, const crl_told *choice, int64_t passed) {
  walk w = *from;
  crl_told told = *choice;
  told.now = w.now += passed;
  told.frozen = w.depth >= freezes_at;
  keep_books(&w, &told);
  w.path[w.depth++] = w.ask;
  w.ask = crl_flight_step(&w.flight, &told);
  /* As the driver does: gives back what the flight no longer uses. */
  w.slot &= w.flight.has_slot;
  w.host &= w.flight.on_host;
  walks++;
  check(&w);
  return w;
}

static const crl_told *choices(crl_ask ask, size_t *count) {
#define LIST(list) (*count = sizeof(list) / sizeof *(list), (list))
  switch (ask) {
    case CRL_ASK_GET: return LIST(looks);
    case CRL_ASK_CLAIM: return LIST(claims);
    case CRL_ASK_COMPUTE: return LIST(made);
    case CRL_ASK_SETTLE:
    case CRL_ASK_RELEASE: return LIST(ended);
    case CRL_ASK_SLOT: return LIST(slots);
    case CRL_ASK_HOST: return LIST(hosts);
    case CRL_ASK_OUTBOX: return LIST(held);
    case CRL_ASK_WAIT: return LIST(waits);
    default: return LIST(nothing);
  }
#undef LIST
}

/* From here on time passes, looks miss, and all else succeeds; a flight must end within a few
 * asks. */
static void land(walk w) {
  while (w.ask != CRL_ASK_DONE) {
    if (w.depth > 28) broken(&w, "no end");
    w = stepped(&w, w.ask == CRL_ASK_COMPUTE ? made : nothing,
                w.ask == CRL_ASK_WAIT ? DEADLINE : 1);
  }
}

static void walk_on(const walk *w, int depth) {
  if (w->ask == CRL_ASK_DONE) return;
  if (depth == 0) {
    land(*w);
    return;
  }
  size_t count;
  const crl_told *list = choices(w->ask, &count);
  for (size_t i = 0; i < count; i++) {
    size_t times = w->ask == CRL_ASK_WAIT ? sizeof pauses / sizeof *pauses : 1;
    for (size_t p = 0; p < times; p++) {
      walk next = stepped(w, &list[i], w->ask == CRL_ASK_WAIT ? pauses[p] : 1);
      walk_on(&next, depth - 1);
    }
  }
  if (w->ask == CRL_ASK_COMPUTE) { /* a compute that outlives every grace */
    walk next = stepped(w, &made[2], 500);
    walk_on(&next, depth - 1);
  }
}

/* All walks, of some steps less than usual. */
static void walk_all(int less) {
  static const struct {
    crl_flight_plan plan;
    int64_t when_away;
    int depth;
    int64_t early_pct, at_deadline;
  } all[] = {
      {{.can_compute = 0}, 0, 11, 0, 0},
      {{.can_compute = 1}, 0, 10, 0, 0},
      {{.can_compute = 1, .background = 1}, 0, 10, 0, 0},
      {{.can_compute = 1, .expects_none = 1}, 0, 9, 90, 0},
      {{.can_compute = 1, .expects_none = 1, .background = 1}, CORRAL_AWAY_STALE, 9, 0, 0},
      {{.can_compute = 1, .soft_until = DEADLINE / 2}, 0, 10, 0, CORRAL_DEADLINE_COMPUTE},
      {{.can_compute = 1, .limited = 1, .alone = CRL_ALONE_PASS}, 0, 8, 0, CORRAL_DEADLINE_COMPUTE},
      {{.can_compute = 1, .limited = 1, .ladder = 1}, 0, 9, 0, CORRAL_DEADLINE_COMPUTE},
      {{.can_compute = 1, .limited = 1}, CORRAL_AWAY_STALE, 9, 0, 0},
      {{.can_compute = 1, .ladder = 1}, CORRAL_AWAY_ERROR, 9, 0, 0},
      {{.can_compute = 1, .limited = 1, .ladder = 1}, CORRAL_AWAY_COMPUTE, 9, 0, 0},
      {{.can_compute = 1, .background = 1, .limited = 1, .ladder = 1}, CORRAL_AWAY_STALE, 9, 0, 0},
      {{.can_compute = 1}, 0, 10, 90, 0},
      {{.can_compute = 1, .anew = 1, .background = 1}, CORRAL_AWAY_STALE, 8, 0, 0},
      {{.can_compute = 1, .anew = 1, .limited = 1, .ladder = 1}, 0, 8, 0, CORRAL_DEADLINE_COMPUTE},
      {{.can_compute = 1, .background = 1}, CORRAL_AWAY_STALE, 10, 90, 0},
      {{.can_compute = 1, .limited = 1, .ladder = 1}, CORRAL_AWAY_COMPUTE, 9, 90, 0}};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    walk w;
    memset(&w, 0, sizeof w);
    corral_policy policy = usual;
    crl_flight_plan plan = all[i].plan;
    policy.when_away = all[i].when_away;
    policy.early_pct = all[i].early_pct;
    policy.at_deadline = all[i].at_deadline;
    plan.deadline = DEADLINE;
    plan.dice = 3;
    w.ask = crl_flight_start(&w.flight, &policy, &plan);
    walk_on(&w, all[i].depth - less);
  }
}

static void whatever_a_flight_is_told_its_promises_hold(void **state) {
  (void)state;
  walks = 0;
  walk_all(0);
  assert_true(walks > 10000);
}

static void whenever_a_flight_freezes_its_promises_hold_and_it_computes_no_more(void **state) {
  (void)state;
  walks = 0;
  for (freezes_at = 0; freezes_at < 6; freezes_at++) walk_all(3);
  freezes_at = INT_MAX;
  assert_true(walks > 10000);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_fresh_value_costs_one_look),
      T(the_leader_of_a_cold_key_computes_stores_and_answers),
      T(a_waiter_polls_until_the_leader_has_stored),
      T(a_waiter_that_knows_the_cost_sleeps_towards_the_end_and_then_looks_often),
      T(a_look_under_the_lease_that_finds_a_value_gives_the_lease_back),
      T(a_value_that_may_not_be_stored_is_answered_and_the_lease_given_back),
      T(somebody_else_s_value_found_while_claiming_is_the_answer),
      T(a_flight_that_only_looks_answers_what_there_is),
      T(a_flight_that_freezes_takes_what_there_is_and_holds_on_to_nothing),
      T(where_nothing_is_expected_the_claim_is_the_first_look),
      T(a_rung_is_not_climbed_blindly),
      T(who_meets_a_stale_value_under_rebuild_takes_it),
      T(the_one_who_gets_the_lease_lends_the_stale_value_and_computes),
      T(a_bound_compute_refreshes_behind_the_answer),
      T(in_the_grace_for_errors_the_caller_waits_for_the_rebuild),
      T(a_failing_compute_leaves_a_verdict),
      T(a_failing_compute_is_answered_by_a_stale_value),
      T(a_verdict_is_the_answer_unless_there_is_a_stale_value),
      T(a_call_that_comes_in_a_short_pause_can_wait_for_the_next_try),
      T(the_pause_after_failures_is_flat_then_doubles_to_its_limit),
      T(a_dead_leader_is_replaced_when_its_lease_ends),
      T(a_leader_that_dies_in_its_first_lease_is_replaced_at_its_end),
      T(at_the_deadline_there_is_one_last_look),
      T(at_the_deadline_a_stale_value_beats_an_error),
      T(without_a_store_the_value_is_computed_and_not_stored),
      T(a_claim_whose_reply_was_lost_is_given_up_and_tried_once_more),
      T(a_claim_that_stays_unknown_is_given_up_and_computing_goes_on_without),
      T(a_lost_claim_that_turns_out_busy_is_not_ours),
      T(a_lost_claim_and_then_no_store_gives_the_lease_back_once),
      T(whatever_a_flight_is_told_its_promises_hold),
      T(whenever_a_flight_freezes_its_promises_hold_and_it_computes_no_more),
  };
  return cmocka_run_group_tests_name("flight", tests, NULL, NULL);
}
