/* test_climb.c: the ladder of a flight as stories: slots, the host lock, the lease; and flights
 * without the store. */
#include "support/flight_story.h"

static corral_policy away(int64_t when_away) {
  corral_policy policy = usual;
  policy.when_away = when_away;
  return policy;
}

/* A whole story under a policy and a plan. */
#define CLIMB(policy, plan, expected, ...)                                                         \
  do {                                                                                             \
    story s_ = begin_with(policy, (crl_flight_plan)plan);                                          \
    play(&s_, (const char *const[]){__VA_ARGS__, NULL});                                           \
    assert_string_equal(s_.log, expected);                                                         \
  } while (0)

#define LADDER                                                                                     \
  { .can_compute = 1, .ladder = 1 }
#define LIMITED                                                                                    \
  { .can_compute = 1, .limited = 1 }
#define BOTH                                                                                       \
  { .can_compute = 1, .limited = 1, .ladder = 1 }
#define BEHIND                                                                                     \
  { .can_compute = 1, .background = 1, .limited = 1, .ladder = 1 }
#define RETURNS                                                                                    \
  { .can_compute = 1, .background = 1, .returns = 1 }

/* ---- the host lock ------------------------------------------------------------------------- */

static void the_host_is_won_and_looked_at_once_more_before_the_lease_is_claimed(void **state) {
  (void)state;
  CLIMB(&usual, LADDER,
        "0 get: miss\n1 host: ok\n2 get: miss\n3 claim: ok\n4 compute: value\n5 settle: ok\n6 "
        "answer computed, kept\n6 done\n",
        "miss", "ok", "miss", "ok", "value", "ok");
}

static void who_finds_the_host_taken_waits_there_and_sends_no_claim(void **state) {
  (void)state;
  CLIMB(&usual, LADDER,
        "0 get: miss\n1 host: busy\n2 wait at the host: 30 cut\n32 get: ok fresh 900\n33 answer "
        "stored\n33 done\n",
        "miss", "busy", "30 cut", "ok fresh 900");
}

static void a_value_that_came_before_the_host_was_won_is_the_answer(void **state) {
  (void)state;
  CLIMB(&usual, LADDER, "0 get: miss\n1 host: ok\n2 get: ok fresh 900\n3 answer stored\n3 done\n",
        "miss", "ok", "ok fresh 900");
}

static void of_those_who_wait_for_another_host_one_looks_at_the_store(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LADDER);
  tell(&s, "ok lease 150");
  tell(&s, "ok");
  tell(&s, "ok lease 149");
  assert_int_equal(s.ask, CRL_ASK_WAIT);
  assert_false(s.flight.at_host);
  assert_true(s.flight.on_host);
  tell(&s, "1 cut");
  tell(&s, "ok fresh 900");
  assert_int_equal(s.ask, CRL_ASK_DONE);
  assert_false(s.flight.on_host);
}

static void a_stale_value_is_not_waited_for_at_the_host(void **state) {
  (void)state;
  CLIMB(&usual, LADDER, "0 get: ok swr 50 sie 50\n1 host: busy\n2 answer stale\n2 done\n",
        "ok swr 50 sie 50", "busy");
}

/* Host lock busy, and no lease seen for lease_ms: its holder is stopped or hangs, and the flight
 * skips the host lock. */
static void a_leader_that_hangs_on_its_host_is_passed_by(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LADDER);
  tell(&s, "miss");
  tell(&s, "busy");
  for (int i = 0; i < 10 && s.ask == CRL_ASK_WAIT; i++) {
    tell(&s, "till");
    tell(&s, "miss");
    tell(&s, "busy");
  }
  assert_int_equal(s.ask, CRL_ASK_CLAIM);
  assert_in_range(s.now, LEASE, 2 * LEASE);
}

static void a_leader_that_has_a_lease_is_not_passed_by(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LADDER);
  tell(&s, "miss");
  tell(&s, "busy");
  while (s.ask == CRL_ASK_WAIT) {
    tell(&s, "till");
    if (s.ask == CRL_ASK_GET) tell(&s, "ok lease 190");
    if (s.ask == CRL_ASK_HOST) tell(&s, "busy");
  }
  assert_int_equal(s.ask, CRL_ASK_DONE);
  assert_int_equal(s.flight.status, CORRAL_EDEADLINE);
  assert_null(strstr(s.log, "claim"));
}

static void the_leases_of_others_do_not_excuse_a_leader_that_hangs(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LADDER);
  tell(&s, "miss");
  tell(&s, "busy");
  for (int i = 0; i < 12 && s.ask == CRL_ASK_WAIT; i++) {
    tell(&s, "till");
    tell(&s, i % 3 == 2 ? "ok lease 20" : "miss");
    tell(&s, "busy");
  }
  assert_int_equal(s.ask, CRL_ASK_CLAIM);
}

static void a_leader_that_was_passed_by_is_waited_for_no_more(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LADDER);
  tell(&s, "miss");
  tell(&s, "busy passed 1");
  assert_int_equal(s.ask, CRL_ASK_CLAIM);
  assert_true(s.flight.passed);
  CLIMB(&usual, BEHIND,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 slot: ok\n2 host: busy passed 1\n3 claim: ok "
        "swr 48 sie 48\n4 compute: value\n5 settle: ok\n6 done\n",
        "ok swr 50 sie 50", "ok", "busy passed 1", "ok swr 48 sie 48", "value", "ok");
}

static void without_the_store_a_leader_that_was_passed_by_is_waited_for(void **state) {
  (void)state;
  CLIMB(&usual, LADDER,
        "0 get: away\n1 host: busy passed 1\n2 wait at the host: 30 cut\n32 get: ok fresh 9\n33 "
        "answer stored\n33 done\n",
        "away", "busy passed 1", "30 cut", "ok fresh 9");
}

static void without_such_a_lock_the_ladder_goes_on_from_the_store(void **state) {
  (void)state;
  CLIMB(&usual, LADDER,
        "0 get: miss\n1 host: error\n2 get: miss\n3 claim: ok\n4 compute: value\n5 settle: ok\n"
        "6 answer computed, kept\n6 done\n",
        "miss", "error", "miss", "ok", "value", "ok");
}

static void with_the_store_away_the_host_still_elects_one(void **state) {
  (void)state;
  CLIMB(&usual, LADDER,
        "0 get: away\n1 host: ok\n2 compute without a lease: value\n3 answer computed, not kept\n3 "
        "done\n",
        "away", "ok", "value");
  CLIMB(&usual, LADDER,
        "0 get: away\n1 host: busy\n2 wait at the host: 30 cut\n32 get: away\n33 host: ok\n34 "
        "compute without a lease: value\n"
        "35 answer computed, not kept\n35 done\n",
        "away", "busy", "30 cut", "away", "ok", "value");
  CLIMB(&usual, LADDER,
        "0 get: away\n1 host: busy\n2 wait at the host: 30 cut\n32 get: ok fresh 9\n33 answer "
        "stored\n33 done\n",
        "away", "busy", "30 cut", "ok fresh 9");
}

/* ---- slots --------------------------------------------------------------------------------- */

static void a_compute_has_a_slot_first(void **state) {
  (void)state;
  CLIMB(&usual, BOTH,
        "0 get: miss\n1 slot: ok\n2 host: ok\n3 get: miss\n4 claim: ok\n5 compute: value\n6 "
        "settle: ok\n7 answer computed, kept\n7 done\n",
        "miss", "ok", "ok", "miss", "ok", "value", "ok");
}

static void who_queued_for_a_slot_looks_again(void **state) {
  (void)state;
  CLIMB(&usual, LIMITED,
        "0 get: miss\n1 slot: 300 ok\n301 get: ok fresh 5\n302 answer stored\n302 done\n", "miss",
        "300 ok", "ok fresh 5");
  CLIMB(&usual, LIMITED,
        "0 get: away\n1 slot: 300 ok\n301 get: miss\n302 claim: ok\n303 compute: value\n304 "
        "settle: ok\n"
        "305 answer computed, kept\n305 done\n",
        "away", "300 ok", "miss", "ok", "value", "ok");
}

static void without_a_slot_stale_is_taken_at_once(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LIMITED);
  tell(&s, "ok sie 500");
  assert_int_equal(s.ask, CRL_ASK_SLOT);
  assert_int_equal(s.flight.until, s.now); /* one try, without waiting */
  tell(&s, "busy");
  assert_int_equal(s.ask, CRL_ASK_DONE);
  assert_int_equal(s.flight.answer, CRL_ANSWER_STALE);
}

static void without_a_slot_or_anything_stale_the_caller_waits_within_its_deadline(void **state) {
  (void)state;
  story s = begin_with(&usual, (crl_flight_plan)LIMITED);
  tell(&s, "miss");
  assert_int_equal(s.flight.until, DEADLINE);
  tell(&s, "999 busy");
  tell(&s, "miss");
  assert_int_equal(s.ask, CRL_ASK_DONE);
  assert_int_equal(s.flight.status, CORRAL_EDEADLINE);
}

static void the_rank_tells_how_much_a_compute_is_needed(void **state) {
  (void)state;
  static const struct {
    const char *look;
    int rank;
  } ranks[] = {{"miss", CRL_RANK_COLD},
               {"ok value 1", CRL_RANK_EXPIRED},
               {"ok sie 9 value 1", CRL_RANK_EXPIRED},
               {"ok swr 9 sie 9 value 1", CRL_RANK_EARLY}};
  corral_policy warm = usual;
  warm.warm = 1;
  for (size_t i = 0; i < sizeof ranks / sizeof *ranks; i++) {
    story s = begin_with(&usual, (crl_flight_plan)LIMITED),
          w = begin_with(&warm, (crl_flight_plan)LIMITED);
    tell(&s, ranks[i].look);
    tell(&w, ranks[i].look);
    assert_int_equal(s.ask, CRL_ASK_SLOT);
    assert_int_equal(s.flight.rank, ranks[i].rank);
    assert_int_equal(w.flight.rank, CRL_RANK_WARM);
  }
}

static void a_refresh_behind_the_answer_climbs_too(void **state) {
  (void)state;
  CLIMB(&usual, BEHIND,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 slot: ok\n2 host: ok\n3 get: ok swr 49 sie "
        "49\n4 claim: ok swr 48 sie 48\n"
        "5 compute: value\n6 settle: ok\n7 done\n",
        "ok swr 50 sie 50", "ok", "ok", "ok swr 49 sie 49", "ok swr 48 sie 48", "value", "ok");
  CLIMB(&usual, BEHIND, "0 get: ok swr 50 sie 50\n1 answer stale\n1 slot: busy\n2 done\n",
        "ok swr 50 sie 50", "busy");
  CLIMB(&usual, BEHIND,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 slot: ok\n2 host: busy\n3 done\n",
        "ok swr 50 sie 50", "ok", "busy");
  CLIMB(&usual, BEHIND,
        "0 get: ok swr 50 sie 50\n1 answer stale\n1 slot: ok\n2 host: ok\n3 get: ok swr 9 lease "
        "9\n4 done\n",
        "ok swr 50 sie 50", "ok", "ok", "ok swr 9 lease 9");
}

/* ---- the store is away --------------------------------------------------------------------- */

static void what_this_process_holds_is_the_answer_if_the_policy_says_so(void **state) {
  (void)state;
  corral_policy policy = away(CORRAL_AWAY_STALE);
  CLIMB(&policy, LADDER, "0 get: away\n1 held: ok fresh 5\n2 answer held\n2 done\n", "away",
        "ok fresh 5");
  CLIMB(&policy, {.can_compute = 1},
        "0 get: away\n1 held: miss\n2 compute without a lease: value\n3 answer computed, not "
        "kept\n3 done\n",
        "away", "miss", "value");
  CLIMB(&policy, {.can_compute = 0},
        "0 get: away\n1 held: miss\n2 answer error EUNAVAILABLE\n2 done\n", "away", "miss");
}

static void
what_this_process_holds_is_rebuilt_behind_its_answer_when_its_fresh_life_is_over(void **state) {
  (void)state;
  corral_policy policy = away(CORRAL_AWAY_STALE);
  CLIMB(&policy, BEHIND,
        "0 get: away\n1 held: ok swr 50 sie 90\n2 answer stale\n2 slot: ok\n3 host: ok\n"
        "4 compute without a lease: value\n5 done\n",
        "away", "ok swr 50 sie 90", "ok", "ok", "value");
  CLIMB(&policy, BEHIND,
        "0 get: away\n1 held: ok swr 50\n2 answer stale\n2 slot: ok\n3 host: busy\n4 done\n",
        "away", "ok swr 50", "ok", "busy");
  CLIMB(&policy, BEHIND, "0 get: away pause 80\n1 held: ok swr 50\n2 answer stale\n2 done\n",
        "away pause 80", "ok swr 50");
  CLIMB(&policy, BEHIND, "0 get: away retry 80\n1 held: ok swr 50\n2 answer stale\n2 done\n",
        "away retry 80", "ok swr 50");
}

static void what_may_serve_on_errors_alone_serves_when_the_compute_fails(void **state) {
  (void)state;
  corral_policy policy = away(CORRAL_AWAY_STALE);
  CLIMB(&policy, {.can_compute = 1},
        "0 get: away\n1 held: ok sie 50\n2 compute without a lease: failure\n3 answer stale\n3 "
        "done\n",
        "away", "ok sie 50", "failure");
  CLIMB(&policy, {.can_compute = 1},
        "0 get: away\n1 held: ok sie 50\n2 compute without a lease: value\n3 answer computed, not "
        "kept\n3 done\n",
        "away", "ok sie 50", "value");
  CLIMB(&policy, BOTH, "0 get: away retry 80\n1 held: ok sie 50\n2 answer stale\n2 done\n",
        "away retry 80", "ok sie 50");
  CLIMB(&policy, BOTH, "0 get: away retry 80\n1 held: ok fresh 50\n2 answer held\n2 done\n",
        "away retry 80", "ok fresh 50");
  CLIMB(&policy, BOTH, "0 get: away retry 80\n1 held: miss\n2 answer verdict\n2 done\n",
        "away retry 80", "miss");
}

static void an_error_is_the_answer_if_the_policy_says_so(void **state) {
  (void)state;
  corral_policy policy = away(CORRAL_AWAY_ERROR);
  CLIMB(&policy, BOTH, "0 get: away\n1 answer error EUNAVAILABLE\n1 done\n", "away");
  CLIMB(&policy, {.can_compute = 1}, "0 get: ok sie 50\n1 claim: away\n2 answer stale\n2 done\n",
        "ok sie 50", "away");
}

/* Its caller goes back to the herd, unless this process has the answer. */
static void what_somebody_else_rebuilds_is_not_computed_without_the_store(void **state) {
  (void)state;
  corral_policy stale = away(CORRAL_AWAY_STALE), error = away(CORRAL_AWAY_ERROR);
  const crl_flight_plan plan = RETURNS;
  story s = begin_with(&usual, plan);
  tell(&s, "away");
  assert_int_equal(s.flight.answer, CRL_ANSWER_ERROR);
  assert_true(s.flight.returned);
  s = begin_with(&error, plan);
  tell(&s, "away");
  assert_int_equal(s.flight.answer, CRL_ANSWER_ERROR);
  assert_false(s.flight.returned);
  CLIMB(&stale, RETURNS, "0 get: away\n1 held: ok swr 50\n2 answer stale\n2 done\n", "away",
        "ok swr 50");
  CLIMB(&stale, RETURNS, "0 get: away\n1 held: ok sie 50\n2 answer error EUNAVAILABLE\n2 done\n",
        "away", "ok sie 50");
  CLIMB(
      &usual, RETURNS,
      "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: ok\n4 answer computed, kept\n4 done\n",
      "miss", "ok", "value", "ok");
}

static void
a_failure_that_this_process_remembers_is_the_answer_without_the_store_too(void **state) {
  (void)state;
  CLIMB(&usual, BOTH, "0 get: away retry 80 failures 1\n1 answer verdict\n1 done\n",
        "away retry 80 failures 1");
  CLIMB(&usual, {.can_compute = 1},
        "0 get: ok sie 50\n1 claim: away retry 80\n2 answer stale\n2 done\n", "ok sie 50",
        "away retry 80");
  story s = begin_with(&usual, (crl_flight_plan){.can_compute = 1});
  tell(&s, "away failures 3"); /* the pause is over, the number of failures stays */
  tell(&s, "failure");
  assert_int_equal(s.flight.failures, 4);
  assert_in_range(s.flight.retry_ms, 260, 300);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(the_host_is_won_and_looked_at_once_more_before_the_lease_is_claimed),
      T(who_finds_the_host_taken_waits_there_and_sends_no_claim),
      T(a_value_that_came_before_the_host_was_won_is_the_answer),
      T(of_those_who_wait_for_another_host_one_looks_at_the_store),
      T(a_stale_value_is_not_waited_for_at_the_host),
      T(a_leader_that_hangs_on_its_host_is_passed_by),
      T(a_leader_that_has_a_lease_is_not_passed_by),
      T(the_leases_of_others_do_not_excuse_a_leader_that_hangs),
      T(a_leader_that_was_passed_by_is_waited_for_no_more),
      T(without_the_store_a_leader_that_was_passed_by_is_waited_for),
      T(without_such_a_lock_the_ladder_goes_on_from_the_store),
      T(with_the_store_away_the_host_still_elects_one),
      T(a_compute_has_a_slot_first),
      T(who_queued_for_a_slot_looks_again),
      T(without_a_slot_stale_is_taken_at_once),
      T(without_a_slot_or_anything_stale_the_caller_waits_within_its_deadline),
      T(the_rank_tells_how_much_a_compute_is_needed),
      T(a_refresh_behind_the_answer_climbs_too),
      T(what_this_process_holds_is_the_answer_if_the_policy_says_so),
      T(what_this_process_holds_is_rebuilt_behind_its_answer_when_its_fresh_life_is_over),
      T(what_may_serve_on_errors_alone_serves_when_the_compute_fails),
      T(an_error_is_the_answer_if_the_policy_says_so),
      T(what_somebody_else_rebuilds_is_not_computed_without_the_store),
      T(a_failure_that_this_process_remembers_is_the_answer_without_the_store_too),
  };
  return cmocka_run_group_tests_name("climb", tests, NULL, NULL);
}
