/* test_flight_slow.c: flights, as stories, while the store is slow, and when it is away in the
 * end. */
#include "support/flight_story.h"

static void while_the_store_is_slow_a_newcomer_looks_again_and_does_not_compute(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: 100 unknown slow 1\n100 wait: 5 cut\n105 get: 100 away slow 1\n205 wait: 5 cut\n"
        "210 get: ok fresh 9\n211 answer stored\n211 done\n",
        "100 unknown slow 1", "5 cut", "100 away slow 1", "5 cut", "ok fresh 9");
}

static void so_does_a_waiter_that_saw_a_lease(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok lease 150\n1 wait: 2 cut\n3 get: 100 unknown slow 1\n103 wait: 2 cut\n"
        "105 get: ok lease 90\n106 wait: 2 cut\n108 get: ok fresh 9\n109 answer stored\n"
        "109 done\n",
        "ok lease 150", "2 cut", "100 unknown slow 1", "2 cut", "ok lease 90", "2 cut",
        "ok fresh 9");
}

static void the_pauses_between_looks_at_a_slow_store_grow(void **state) {
  (void)state;
  story s = begin(1, 0);
  for (int i = 0; i < 6; i++) {
    tell(&s, "unknown slow 1");
    assert_int_equal(s.ask, CRL_ASK_WAIT);
    assert_in_range(s.flight.until, s.now + 1, s.now + ((int64_t)usual.poll_ms << i));
    tell(&s, "till");
  }
}

static void a_slow_store_ends_a_call_at_its_deadline_without_one_more_look(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: 100 unknown slow 1\n100 wait: 900 cut\n1000 answer error EDEADLINE\n1000 done\n",
        "100 unknown slow 1", "900 cut");
  STORY(1, 0, "0 get: 1000 unknown slow 1\n1000 answer error EDEADLINE\n1000 done\n",
        "1000 unknown slow 1");
  corral_policy policy = usual;
  policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
  story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1});
  tell(&s, "1000 unknown slow 1");
  assert_string_equal(s.log, "0 get: 1000 unknown slow 1\n1000 compute alone: ");
}

static void a_stale_value_that_was_found_is_the_answer_when_the_store_is_slow_then(void **state) {
  (void)state;
  STORY(1, 0, "0 get: ok swr 9 sie 9\n1 claim: away slow 1\n2 answer stale\n2 done\n",
        "ok swr 9 sie 9", "away slow 1");
  STORY(1, 0, "0 get: unknown slow 1 retry 50\n1 answer verdict\n1 done\n",
        "unknown slow 1 retry 50");
}

static void a_look_alone_does_not_wait_for_a_slow_store(void **state) {
  (void)state;
  STORY(0, 0, "0 get: away slow 1\n1 answer error EUNAVAILABLE\n1 done\n", "away slow 1");
}

static void a_claim_lost_to_a_slow_store_is_given_up_and_followed_by_looks(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown slow 1\n2 release: unknown slow 1\n3 wait: 3 cut\n"
        "6 get: miss\n7 claim: ok\n8 compute: value\n9 settle: ok\n10 answer computed, kept\n"
        "10 done\n",
        "miss", "unknown slow 1", "unknown slow 1", "3 cut", "miss", "ok", "value", "ok");
  /* the second one likewise, though its release is answered */
  STORY(1, 0,
        "0 get: miss\n1 claim: unknown slow 1\n2 release: ok\n3 claim: unknown slow 1\n"
        "4 release: ok\n5 wait: 3 cut\n8 get: ok fresh 9\n9 answer stored\n9 done\n",
        "miss", "unknown slow 1", "ok", "unknown slow 1", "ok", "3 cut", "ok fresh 9");
}

/* The policy's word on a store that is away is not for one that is slow. */
static void a_slow_store_is_not_away_for_any_policy(void **state) {
  (void)state;
  for (int64_t away = CORRAL_AWAY_COMPUTE; away <= CORRAL_AWAY_ERROR; away++) {
    corral_policy policy = usual;
    policy.when_away = away;
    story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1});
    tell(&s, "unknown slow 1");
    assert_int_equal(s.ask, CRL_ASK_WAIT);
  }
}

/* A stale value of this process is better than an error. */
static void what_this_process_has_is_given_at_the_deadline_only_where_the_store_is_slow(void **s_) {
  (void)s_;
  static const struct {
    const char *found, *end;
  } cases[] = {{"ok fresh 9", "1001 answer held\n1001 done\n"},
               {"ok swr 9", "1001 answer stale\n1001 done\n"},
               {"ok sie 9", "1001 answer stale\n1001 done\n"},
               {"miss", "1001 answer error EDEADLINE\n1001 done\n"}};
  corral_policy policy = usual;
  policy.when_away = CORRAL_AWAY_STALE;
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1, .background = 1});
    tell(&s, "100 unknown slow 1");
    tell(&s, "900 cut");
    tell(&s, cases[i].found);
    const char *end = strstr(s.log, "1001 ");
    assert_string_equal(end, cases[i].end);
  }
  story joiner =
      begin_with(&policy, (crl_flight_plan){.can_compute = 1, .alone = CRL_ALONE_OUTBOX});
  tell(&joiner, "ok sie 9");
  assert_string_equal(joiner.log, "0 held: ok sie 9\n1 answer stale\n1 done\n");
  policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
  story s = begin_with(&policy, (crl_flight_plan){.can_compute = 1});
  tell(&s, "1000 unknown slow 1");
  tell(&s, "miss");
  assert_string_equal(strstr(s.log, "1001 "), "1001 compute alone: ");
}

/* All who waited learn at the same time that the store is away. */
static void who_waited_computes_after_a_random_moment_when_the_store_is_away(void **state) {
  (void)state;
  story s = begin(1, 0);
  tell(&s, "100 unknown slow 1");
  tell(&s, "till");
  tell(&s, "away");
  assert_int_equal(s.ask, CRL_ASK_WAIT);
  assert_in_range(s.flight.until, s.now + 1, s.now + usual.poll_max_ms);
  tell(&s, "till");
  assert_int_equal(s.ask, CRL_ASK_GET); /* the store may be back */
  tell(&s, "away");
  assert_int_equal(s.ask, CRL_ASK_COMPUTE);
  assert_true(s.flight.degraded);
}

static void a_key_that_was_computed_without_the_store_pauses_before_the_next_time(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: away pause 40\n1 wait: till\n41 get: away\n42 compute without a lease: value\n"
        "43 answer computed, not kept\n43 done\n",
        "away pause 40", "till", "away", "value");
  /* a longer pause leaves half of the call's time */
  STORY(1, 0,
        "0 get: away pause 5000\n1 wait: till\n500 get: away pause 4500\n"
        "501 compute without a lease: value\n502 answer computed, not kept\n502 done\n",
        "away pause 5000", "till", "away pause 4500", "value");
  STORY(1, 0, "0 get: away pause 40\n1 wait: 5 cut\n6 get: ok fresh 9\n7 answer stored\n7 done\n",
        "away pause 40", "5 cut", "ok fresh 9");
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(while_the_store_is_slow_a_newcomer_looks_again_and_does_not_compute),
      T(so_does_a_waiter_that_saw_a_lease),
      T(the_pauses_between_looks_at_a_slow_store_grow),
      T(a_slow_store_ends_a_call_at_its_deadline_without_one_more_look),
      T(a_stale_value_that_was_found_is_the_answer_when_the_store_is_slow_then),
      T(a_look_alone_does_not_wait_for_a_slow_store),
      T(a_claim_lost_to_a_slow_store_is_given_up_and_followed_by_looks),
      T(a_slow_store_is_not_away_for_any_policy),
      T(what_this_process_has_is_given_at_the_deadline_only_where_the_store_is_slow),
      T(who_waited_computes_after_a_random_moment_when_the_store_is_away),
      T(a_key_that_was_computed_without_the_store_pauses_before_the_next_time),
  };
  return cmocka_run_group_tests_name("flight_slow", tests, NULL, NULL);
}
