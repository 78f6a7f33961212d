/* test_leave.c: flights that don't end with a shared value: "can't be cached", a soft limit, a
 * deadline with an own compute, a caller that leaves, an older version, and watched waits. Stories
 * on simulated time. */
#include "support/flight_story.h"

static story began(const corral_policy *policy, crl_flight_plan plan) {
  plan.can_compute = 1;
  return begin_with(policy, plan);
}

#define TOLD(s, ...) play(&(s), (const char *const[]){__VA_ARGS__, NULL})

/* ---- "can't be cached" --------------------------------------------------------------------- */

static void what_can_t_be_cached_is_remembered_without_the_value(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: private\n3 settle: ok\n4 answer computed, not "
        "kept\n4 done\n",
        "miss", "ok", "private", "ok");
}

static void who_finds_that_computes_alone_and_at_once(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok pass 1 lease 90\n1 compute alone: ok\n2 answer computed, not kept\n2 done\n",
        "ok pass 1 lease 90", "ok");
}

static void a_waiter_does_so_too(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok lease 90\n1 wait: 1 ok\n2 get: ok pass 1\n3 compute alone: failure\n4 answer "
        "failed\n4 done\n",
        "ok lease 90", "1 ok", "ok pass 1", "failure");
}

static void who_may_not_compute_misses(void **state) {
  (void)state;
  STORY(0, 0, "0 get: ok pass 1\n1 answer error EMISS\n1 done\n", "ok pass 1");
}

static void computes_alone_are_limited_like_others(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.limited = 1, .ladder = 1});
  TOLD(s, "ok pass 1", "50 ok", "ok");
  assert_string_equal(s.log, "0 get: ok pass 1\n1 slot: 50 ok\n51 compute alone: ok\n52 answer "
                             "computed, not kept\n52 done\n");
}

static void who_was_told_to_pass_asks_nobody(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.alone = CRL_ALONE_PASS, .ladder = 1});
  TOLD(s, "ok");
  assert_string_equal(s.log, "0 compute alone: ok\n1 answer computed, not kept\n1 done\n");
}

/* ---- soft limit, deadline ------------------------------------------------------------------ */

static void after_the_soft_limit_a_stale_value_will_do(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.soft_until = 30});
  TOLD(s, "ok sie 500 lease 100 watched 1", "till", "ok sie 400 lease 70", "till",
       "ok sie 400 lease 70 watched 1");
  assert_non_null(strstr(s.log, "30 get: "));
  assert_non_null(strstr(s.log, "answer stale\n"));
  assert_true(s.now <= 32);
}

static void without_one_the_soft_limit_is_none(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.soft_until = 2});
  TOLD(s, "ok lease 100", "till", "ok lease 90", "till", "ok fresh 100");
  assert_non_null(strstr(s.log, "answer stored"));
}

static void at_the_host_the_soft_limit_holds_too(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.soft_until = 20, .ladder = 1});
  TOLD(s, "ok sie 500", "busy", "till", "ok sie 480", "busy");
  assert_string_equal(s.log, "0 get: ok sie 500\n1 host: busy\n2 wait at the host: till\n20 get: "
                             "ok sie 480\n21 host: busy\n22 answer stale\n22 done\n");
}

static corral_policy computing_at_the_deadline(void) {
  corral_policy policy = usual;
  policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
  return policy;
}

static void at_its_deadline_a_call_may_compute_for_itself(void **state) {
  (void)state;
  corral_policy policy = computing_at_the_deadline();
  story s = began(&policy, (crl_flight_plan){0});
  TOLD(s, "ok lease 5000 expect 5000", "1000 ok", "ok lease 4000", "ok");
  assert_string_equal(s.log, "0 get: ok lease 5000 expect 5000\n1 wait: 1000 ok\n1001 get: ok "
                             "lease 4000\n1002 compute alone: ok\n"
                             "1003 answer computed, not kept\n1003 done\n");
}

static void but_not_when_there_is_a_stale_value(void **state) {
  (void)state;
  corral_policy policy = computing_at_the_deadline();
  story s = began(&policy, (crl_flight_plan){0});
  TOLD(s, "ok lease 5000 sie 9000", "1000 ok", "ok lease 4000 sie 8000");
  assert_non_null(strstr(s.log, "1002 answer stale\n"));
}

static void nor_when_the_value_has_just_come(void **state) {
  (void)state;
  corral_policy policy = computing_at_the_deadline();
  story s = began(&policy, (crl_flight_plan){0});
  TOLD(s, "ok lease 5000", "1000 ok", "ok fresh 10");
  assert_non_null(strstr(s.log, "1002 answer stored\n"));
}

static void and_only_where_there_is_a_slot(void **state) {
  (void)state;
  corral_policy policy = computing_at_the_deadline();
  story s = began(&policy, (crl_flight_plan){.limited = 1});
  TOLD(s, "miss", "1000 busy", "miss", "busy");
  assert_string_equal(s.log, "0 get: miss\n1 slot: 1000 busy\n1001 get: miss\n1002 slot: "
                             "busy\n1003 answer error EDEADLINE\n1003 done\n");
}

/* ---- a caller leaves ----------------------------------------------------------------------- */

static void a_caller_leaves_a_wait_at_once(void **state) {
  (void)state;
  STORY(1, 0, "0 get: ok lease 90\n1 wait: 1 ok left 1\n2 answer error ECANCELLED\n2 done\n",
        "ok lease 90", "1 ok left 1");
}

static void who_leaves_while_he_queues_for_a_slot_gives_it_back(void **state) {
  (void)state;
  story s = began(&usual, (crl_flight_plan){.limited = 1});
  TOLD(s, "miss", "ok left 1");
  assert_string_equal(s.log, "0 get: miss\n1 slot: ok left 1\n2 answer error ECANCELLED\n2 done\n");
  assert_false(s.flight.has_slot);
}

/* The computed value is stored and answered nevertheless. */
static void a_compute_that_ran_counts_although_its_caller_left(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: ok left 1\n3 settle: ok left 1\n4 answer computed, "
        "kept\n4 done\n",
        "miss", "ok", "ok left 1", "ok left 1");
}

static void a_lease_that_is_granted_to_one_who_left_is_used(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok left 1\n2 compute: ok\n3 settle: ok\n4 answer computed, kept\n4 "
        "done\n",
        "miss", "ok left 1", "ok", "ok");
}

/* ---- versions, tags ------------------------------------------------------------------------ */

static void an_older_version_is_its_caller_s_and_the_fleet_pauses(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok value 1\n1 claim: ok value 1\n2 compute: older\n3 release with a verdict: ok\n4 "
        "answer computed, older\n4 done\n",
        "ok value 1", "ok value 1", "older", "ok");
}

static void a_value_whose_tag_was_invalidated_meanwhile_is_not_stored(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: voided\n3 release: ok\n4 answer computed, fenced\n4 "
        "done\n",
        "miss", "ok", "voided", "ok");
}

/* ---- watched waits ------------------------------------------------------------------------- */

static void who_will_be_woken_looks_seldom(void **state) {
  (void)state;
  for (uint64_t dice = 1; dice < 50; dice++) {
    corral_policy policy = usual;
    crl_flight flight;
    crl_flight_plan plan = {.deadline = DEADLINE, .dice = dice, .can_compute = 1};
    crl_told told = {.now = 1,
                     .look = {.lease_left = 900, .watched = 1, .expects = 1, .expect_left = 3}};
    crl_flight_start(&flight, &policy, &plan);
    assert_int_equal(crl_flight_step(&flight, &told), CRL_ASK_WAIT);
    assert_in_range(flight.until - 1, policy.poll_max_ms / 2, policy.poll_max_ms);
  }
}

static void but_never_later_than_the_lease_that_is_left(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: ok lease 7 watched 1\n1 wait: till\n9 get: miss\n10 claim: ok\n11 compute: ok\n12 "
        "settle: ok\n13 answer computed, kept\n13 done\n",
        "ok lease 7 watched 1", "till", "miss", "ok", "ok", "ok");
}

/* ---- length of a lease --------------------------------------------------------------------- */

static void the_first_lease_is_short_and_follows_a_low_cost_within_bounds(void **state) {
  (void)state;
  const corral_policy policy = {.lease_ms = 2000, .lease_min_ms = 300},
                      narrow = {.lease_ms = 200, .lease_min_ms = 500},
                      wide = {.lease_ms = 60000, .lease_min_ms = 5000};
  static const int64_t costs[][2] = {{0, 750},   {1, 300},   {75, 300},  {76, 304},
                                     {100, 400}, {187, 748}, {188, 750}, {INT64_MAX, 750}};
  for (size_t i = 0; i < sizeof costs / sizeof *costs; i++)
    assert_int_equal(crl_policy_lease(&policy, costs[i][0], 0), costs[i][1]);
  assert_int_equal(crl_policy_lease(&policy, 0, 750), 1500);
  assert_int_equal(crl_policy_lease(&policy, 10, 750), 1500);
  assert_int_equal(crl_policy_lease(&policy, 0, 10), 750);
  assert_int_equal(crl_policy_lease(&policy, 0, UINT32_MAX), policy.lease_ms);
  assert_int_equal(crl_policy_lease(&narrow, 1, 0), 200);
  assert_int_equal(crl_policy_lease(&narrow, 0, 0), 200);
  assert_int_equal(crl_policy_lease(&wide, 0, 0), 5000);
  assert_int_equal(crl_policy_lease(&wide, 4000, 0), 5000);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(what_can_t_be_cached_is_remembered_without_the_value),
      T(who_finds_that_computes_alone_and_at_once),
      T(a_waiter_does_so_too),
      T(who_may_not_compute_misses),
      T(computes_alone_are_limited_like_others),
      T(who_was_told_to_pass_asks_nobody),
      T(after_the_soft_limit_a_stale_value_will_do),
      T(without_one_the_soft_limit_is_none),
      T(at_the_host_the_soft_limit_holds_too),
      T(at_its_deadline_a_call_may_compute_for_itself),
      T(but_not_when_there_is_a_stale_value),
      T(nor_when_the_value_has_just_come),
      T(and_only_where_there_is_a_slot),
      T(a_caller_leaves_a_wait_at_once),
      T(who_leaves_while_he_queues_for_a_slot_gives_it_back),
      T(a_compute_that_ran_counts_although_its_caller_left),
      T(a_lease_that_is_granted_to_one_who_left_is_used),
      T(an_older_version_is_its_caller_s_and_the_fleet_pauses),
      T(a_value_whose_tag_was_invalidated_meanwhile_is_not_stored),
      T(who_will_be_woken_looks_seldom),
      T(but_never_later_than_the_lease_that_is_left),
      T(the_first_lease_is_short_and_follows_a_low_cost_within_bounds),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
