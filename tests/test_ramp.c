/* test_ramp.c: the admission ramp under a clock that the test sets. A round is told by how many
 * computes end, how long each took, and how many of them failed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "election/ramp.h"

enum { MS = 1000, SECOND = 1000 * MS, MANY = 1000 };

static int64_t now; /* microseconds */

static crl_ramp ramp_of(int64_t most) {
  crl_ramp ramp;
  now = 100 * SECOND;
  crl_ramp_init(&ramp, most);
  return ramp;
}

/* `count` computes begin together and end together, after `took_us`. */
static void compute(crl_ramp *ramp, int64_t count, int64_t took_us, int64_t failures) {
  int64_t began = now;
  now += took_us;
  for (int64_t i = 0; i < count; i++) {
    crl_ramp_reached(ramp);
    crl_ramp_ended(ramp, began, now, i < failures);
  }
  now += MS;
}

/* One round at the present limit. */
static int64_t round_of(crl_ramp *ramp, int64_t took_us) {
  int64_t limit = crl_ramp_limit(ramp, 0, now);
  compute(ramp, limit < 4 ? 4 : limit, took_us, 0);
  return crl_ramp_limit(ramp, 0, now);
}

/* ---- growing and shrinking ----------------------------------------------------------------- */

static void the_limit_begins_at_two_and_doubles_while_the_origin_is_fast(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 2);
  for (int64_t limit = 4; limit <= 64; limit *= 2)
    assert_int_equal(round_of(&ramp, 40 * MS), limit);
}

static void after_a_slow_round_it_is_half_and_grows_by_one(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 4; i++) round_of(&ramp, 40 * MS);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 32);
  assert_int_equal(round_of(&ramp, 81 * MS), 16);
  assert_int_equal(round_of(&ramp, 40 * MS), 17);
  assert_int_equal(round_of(&ramp, 79 * MS), 18);
  assert_int_equal(round_of(&ramp, 200 * MS), 9);
}

static void twice_the_fastest_is_still_good(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  assert_int_equal(round_of(&ramp, 40 * MS), 4);
  assert_int_equal(round_of(&ramp, 80 * MS), 8);
  assert_int_equal(round_of(&ramp, 82 * MS), 4);
}

static void it_never_exceeds_the_limit_that_was_given_nor_falls_below_two(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(5), least = ramp_of(1);
  assert_int_equal(crl_ramp_limit(&least, 0, now), 1);
  assert_int_equal(round_of(&least, 40 * MS), 1);
  assert_int_equal(round_of(&ramp, 40 * MS), 4);
  assert_int_equal(round_of(&ramp, 40 * MS), 5);
  assert_int_equal(round_of(&ramp, 40 * MS), 5);
  for (int64_t took = SECOND; took < 64 * SECOND; took *= 4) round_of(&ramp, took);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 2);
}

static void one_expensive_key_is_no_sign_of_a_queue(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  round_of(&ramp, 40 * MS);
  compute(&ramp, 3, SECOND, 0);
  compute(&ramp, 1, 40 * MS, 0);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 8);
}

/* ---- which computes count ------------------------------------------------------------------ */

static void a_limit_is_judged_by_computes_that_began_under_it(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  int64_t before = now;
  round_of(&ramp, 40 * MS);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 4);
  now += SECOND;
  for (int i = 0; i < 100; i++) crl_ramp_ended(&ramp, before, now, 1);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 4);
  assert_int_equal(ramp.count, 0);
}

static void a_limit_that_nobody_reached_stays(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 40; i++) {
    crl_ramp_ended(&ramp, now, now + 40 * MS, 0);
    now += 50 * MS;
  }
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 2);
  assert_int_equal(round_of(&ramp, 40 * MS), 4);
}

static void failures_halve_it_when_they_are_the_most(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 2; i++) round_of(&ramp, 40 * MS);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 8);
  compute(&ramp, 8, 40 * MS, 4);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 16);
  compute(&ramp, 16, 40 * MS, 9);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 8);
  compute(&ramp, 8, 0, 8);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 4);
  assert_int_equal(round_of(&ramp, 40 * MS), 5); /* a quick failure is no measure of the origin */
}

static void an_origin_that_only_fails_leaves_two(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 10; i++) compute(&ramp, 4, 40 * MS, 4);
  assert_int_equal(crl_ramp_limit(&ramp, 0, now), 2);
  assert_int_equal(round_of(&ramp, 40 * MS), 3);
}

/* ---- time ---------------------------------------------------------------------------------- */

static void an_origin_that_is_slow_even_for_two_is_measured_anew(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 3; i++) round_of(&ramp, 40 * MS);
  assert_int_equal(round_of(&ramp, 400 * MS), 8);
  assert_int_equal(round_of(&ramp, 400 * MS), 4);
  assert_int_equal(round_of(&ramp, 400 * MS), 2);
  assert_int_equal(round_of(&ramp, 400 * MS), 2);
  assert_int_equal(round_of(&ramp, 400 * MS), 3);
  assert_int_equal(round_of(&ramp, 40 * MS), 4); /* fast again: it is held to that */
  assert_int_equal(round_of(&ramp, 400 * MS), 2);
}

static void a_good_round_does_not_raise_the_measure(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(2);
  round_of(&ramp, 40 * MS);
  round_of(&ramp, 79 * MS);
  assert_int_equal(ramp.known_us, 40 * MS);
  round_of(&ramp, 30 * MS);
  assert_int_equal(ramp.known_us, 30 * MS);
  round_of(&ramp, 79 * MS);
  assert_int_equal(ramp.known_us, 79 * MS);
}

static void after_ten_seconds_without_computes_all_begins_anew(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 4; i++) round_of(&ramp, 40 * MS);
  int64_t last = ramp.last_us;
  assert_int_equal(crl_ramp_limit(&ramp, 0, last + 10 * SECOND), 32);
  assert_int_equal(crl_ramp_limit(&ramp, 0, last + 10 * SECOND + 1), 2);
  now = last + 11 * SECOND;
  assert_int_equal(round_of(&ramp, 4 * SECOND), 4);
  assert_int_equal(round_of(&ramp, 4 * SECOND), 8);
}

static void computes_that_take_longer_than_that_count(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  for (int i = 0; i < 2; i++) {
    int64_t began = now;
    now += 15 * SECOND;
    assert_int_equal(crl_ramp_limit(&ramp, 2, now), 2);
    for (int k = 0; k < 2; k++) {
      crl_ramp_reached(&ramp);
      crl_ramp_ended(&ramp, began, now, 0);
    }
  }
  assert_int_equal(crl_ramp_limit(&ramp, 2, now), 4);
}

static void a_queue_that_stands_serves_the_newest_first(void **state) {
  (void)state;
  crl_ramp ramp = ramp_of(MANY);
  assert_false(crl_ramp_newest_first(&ramp, now));
  crl_ramp_queue(&ramp, now);
  assert_false(crl_ramp_newest_first(&ramp, now + 100 * MS));
  assert_true(crl_ramp_newest_first(&ramp, now + 100 * MS + 1));
  crl_ramp_queue(&ramp, INT64_MAX);
  assert_false(crl_ramp_newest_first(&ramp, now + SECOND));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_limit_begins_at_two_and_doubles_while_the_origin_is_fast),
      cmocka_unit_test(after_a_slow_round_it_is_half_and_grows_by_one),
      cmocka_unit_test(twice_the_fastest_is_still_good),
      cmocka_unit_test(it_never_exceeds_the_limit_that_was_given_nor_falls_below_two),
      cmocka_unit_test(one_expensive_key_is_no_sign_of_a_queue),
      cmocka_unit_test(a_limit_is_judged_by_computes_that_began_under_it),
      cmocka_unit_test(a_limit_that_nobody_reached_stays),
      cmocka_unit_test(failures_halve_it_when_they_are_the_most),
      cmocka_unit_test(an_origin_that_only_fails_leaves_two),
      cmocka_unit_test(an_origin_that_is_slow_even_for_two_is_measured_anew),
      cmocka_unit_test(a_good_round_does_not_raise_the_measure),
      cmocka_unit_test(after_ten_seconds_without_computes_all_begins_anew),
      cmocka_unit_test(computes_that_take_longer_than_that_count),
      cmocka_unit_test(a_queue_that_stands_serves_the_newest_first),
  };
  return cmocka_run_group_tests_name("ramp", tests, NULL, NULL);
}
