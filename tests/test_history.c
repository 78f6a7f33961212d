/* test_history.c: the checker of histories (support/history.c), by histories written by hand. Times
 * are in ms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/history.h"

#define MS(n) ((n)*INT64_C(1000000))
#define TIMES(from, to) .begun = MS(from), .ended = MS(to)

#define CHANGE(from, to, its_version)                                                              \
  { .kind = HISTORY_CHANGE, TIMES(from, to), .version = (its_version) }
#define INVALIDATE(from, to, its_version)                                                          \
  { .kind = HISTORY_INVALIDATE, TIMES(from, to), .version = (its_version) }
#define COMPUTE(from, to, its_version)                                                             \
  { .kind = HISTORY_COMPUTE, TIMES(from, to), .version = (its_version) }
/* The value of the compute with this index. */
#define CALL(from, to, its_how, its_version, its_compute)                                          \
  {                                                                                                \
    .kind = HISTORY_CALL, TIMES(from, to), .how = CORRAL_##its_how, .version = (its_version),      \
    .compute = (its_compute)                                                                       \
  }

#define CHECK(rules, ...)                                                                          \
  history_check((const history_entry[]){__VA_ARGS__},                                              \
                sizeof((const history_entry[]){__VA_ARGS__}) / sizeof(history_entry), &(rules))

static const history_rules strict = {0}, near_tier = {.near_ns = MS(50)};

static void expect_good(history_verdict verdict) {
  if (verdict.wrong > 0) fail_msg("%s", verdict.first);
}

static void expect_wrong(history_verdict verdict, const char *rule) {
  assert_int_equal(verdict.wrong, 1);
  if (strstr(verdict.first, rule) == NULL) fail_msg("not by %s: %s", rule, verdict.first);
}

/* ---- the source ---------------------------------------------------------------------------- */

static void an_empty_history_is_good(void **state) {
  (void)state;
  expect_good(history_check(NULL, 0, &strict));
}

static void a_source_that_goes_back_is_found(void **state) {
  (void)state;
  expect_good(CHECK(strict, CHANGE(1, 2, 1), CHANGE(3, 4, 2)));
  expect_good(CHECK(strict, CHANGE(1, 4, 2), CHANGE(3, 5, 1)));
  expect_wrong(CHECK(strict, CHANGE(1, 2, 2), CHANGE(3, 4, 1)), "S1");
  expect_wrong(CHECK(strict, CHANGE(1, 2, 1), CHANGE(3, 4, 1)), "S1");
}

static void a_compute_reads_what_the_source_has_within_it(void **state) {
  (void)state;
  expect_good(CHECK(strict, CHANGE(1, 2, 1), COMPUTE(3, 9, 1), CHANGE(5, 6, 2)));
  expect_good(CHECK(strict, CHANGE(1, 2, 1), COMPUTE(3, 9, 2), CHANGE(5, 6, 2)));
  expect_wrong(CHECK(strict, CHANGE(1, 2, 1), COMPUTE(3, 9, 0)), "S2");
  expect_wrong(CHECK(strict, COMPUTE(3, 9, 1), CHANGE(10, 11, 1)), "S2");
  /* the process was killed after its change, before it could record the end */
  expect_good(CHECK(strict, CHANGE(1, 0, 1), COMPUTE(30, 31, 1)));
  expect_good(CHECK(strict, CHANGE(1, 0, 1), COMPUTE(30, 31, 0)));
}

/* ---- who made it --------------------------------------------------------------------------- */

static void a_value_that_no_compute_made_is_found(void **state) {
  (void)state;
  expect_good(CHECK(strict, COMPUTE(1, 2, 0), CALL(3, 4, FRESH, 0, 0)));
  expect_wrong(CHECK(strict, COMPUTE(5, 6, 0), CALL(3, 4, FRESH, 0, 0)), "A1");
  expect_wrong(CHECK(strict, CHANGE(1, 2, 1), COMPUTE(2, 3, 1), CALL(3, 4, FRESH, 0, 1)), "A1");
  expect_wrong(CHECK(strict, CALL(3, 4, FRESH, 0, 9)), "A1");
  expect_wrong(CHECK(strict, COMPUTE(1, 2, 0),
                     {.key = 1, .kind = HISTORY_CALL, TIMES(3, 4), .how = CORRAL_FRESH}),
               "A1");
}

static void a_stranger_s_value_that_is_called_the_caller_s_own_is_found(void **state) {
  (void)state;
  expect_good(CHECK(strict, COMPUTE(4, 6, 0), CALL(3, 9, COMPUTED, 0, 0)));
  expect_wrong(CHECK(strict, COMPUTE(1, 6, 0), CALL(3, 9, COMPUTED, 0, 0)), "A2");
  expect_wrong(CHECK(strict, {.process = 1, .kind = HISTORY_COMPUTE, TIMES(4, 6)},
                     CALL(3, 9, COMPUTED, 0, 0)),
               "A2");
}

/* ---- invalidations ------------------------------------------------------------------------- */

static void a_value_from_before_a_returned_invalidation_is_found(void **state) {
  (void)state;
  static const corral_how hows[] = {CORRAL_FRESH, CORRAL_STALE, CORRAL_JOINED};
  for (size_t i = 0; i < sizeof hows / sizeof *hows; i++) {
    history_entry call = CALL(20, 21, FRESH, 0, 0);
    call.how = hows[i];
    expect_wrong(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), INVALIDATE(4, 5, 1), call), "A3");
    /* by who began before the return, it may be had */
    call.begun = MS(5);
    expect_good(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), INVALIDATE(4, 5, 1), call));
  }
}

static void the_latest_version_that_was_invalidated_counts(void **state) {
  (void)state;
  expect_wrong(CHECK(strict, CHANGE(1, 2, 1), COMPUTE(2, 3, 1), CHANGE(4, 5, 2), CHANGE(5, 6, 3),
                     INVALIDATE(7, 8, 3), INVALIDATE(6, 9, 2), CALL(10, 11, FRESH, 1, 1)),
               "A3");
  expect_good(CHECK(strict, CHANGE(1, 2, 1), INVALIDATE(2, 3, 1), COMPUTE(3, 4, 1),
                    CALL(10, 11, FRESH, 1, 2)));
}

static void an_invalidation_that_failed_or_never_returned_proves_nothing(void **state) {
  (void)state;
  history_entry failed = INVALIDATE(4, 5, 1);
  failed.process = 1;
  failed.status = CORRAL_EINDOUBT;
  expect_good(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), failed, CALL(20, 21, FRESH, 0, 0)));
  expect_good(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), INVALIDATE(4, 0, 1),
                    CALL(20, 21, FRESH, 0, 0)));
}

static void a_key_s_invalidation_is_no_other_key_s(void **state) {
  (void)state;
  expect_good(CHECK(strict, COMPUTE(1, 9, 0), CALL(20, 21, FRESH, 0, 0),
                    {.key = 1, .kind = HISTORY_CHANGE, TIMES(2, 3), .version = 1},
                    {.key = 1, .kind = HISTORY_INVALIDATE, TIMES(4, 5), .version = 1}));
}

/* ---- what is stored ------------------------------------------------------------------------ */

static void a_store_that_goes_back_is_found(void **state) {
  (void)state;
  expect_wrong(CHECK(strict, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), COMPUTE(5, 6, 1),
                     CALL(7, 8, FRESH, 1, 2), CALL(9, 10, FRESH, 0, 0)),
               "A4");
  /* both calls at the same time: the second may have been answered first */
  expect_good(CHECK(strict, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), COMPUTE(5, 6, 1),
                    CALL(7, 8, FRESH, 1, 2), CALL(8, 10, FRESH, 0, 0)));
}

static void a_value_that_was_not_stored_proves_nothing_of_the_store(void **state) {
  (void)state;
  history_entry fenced = CALL(5, 8, COMPUTED, 1, 2);
  fenced.kept = CORRAL_KEPT_FENCED;
  expect_good(CHECK(strict, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), COMPUTE(5, 6, 1), fenced,
                    CALL(9, 10, FRESH, 0, 0)));
  fenced.kept = CORRAL_KEPT;
  expect_wrong(CHECK(strict, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), COMPUTE(5, 6, 1), fenced,
                     CALL(9, 10, FRESH, 0, 0)),
               "A4");
}

/* ---- answers of a process alone ------------------------------------------------------------ */

static void an_answer_of_the_process_alone_obeys_its_own_invalidations(void **state) {
  (void)state;
  history_entry outbox = CALL(20, 21, OUTBOX, 0, 0), joined = CALL(20, 21, JOINED, 0, 0),
                others = INVALIDATE(4, 5, 1), own = INVALIDATE(4, 5, 1);
  joined.kept = CORRAL_KEPT_NOT;
  others.process = 1;
  own.status = CORRAL_EUNAVAILABLE;
  expect_good(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), others, outbox));
  expect_good(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), others, joined));
  expect_wrong(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), own, outbox), "A5");
  expect_wrong(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), own, joined), "A5");
  /* a value of a fenced compute was not confirmed either, and may not be shared */
  joined.kept = CORRAL_KEPT_FENCED;
  expect_wrong(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), others, joined), "A3");
}

/* ---- values that are not settled yet -------------------------------------------------------- */

/* A call that got the value of a compute from before another process's invalidation. */
#define UNSETTLED(from, to, its_deadline)                                                          \
  {                                                                                                \
    .kind = HISTORY_CALL, TIMES(from, to), .deadline = MS(its_deadline), .how = CORRAL_JOINED,     \
    .kept = CORRAL_KEPT_UNKNOWN                                                                    \
  }
#define VOIDED COMPUTE(1, 9, 0), CHANGE(2, 3, 1), others

static void an_unsettled_value_is_for_those_who_came_before_or_whose_deadline_has_come(void **s) {
  (void)s;
  history_entry others = INVALIDATE(4, 5, 1);
  others.process = 1;
  expect_good(CHECK(strict, VOIDED, UNSETTLED(5, 10, 90))); /* began before the return */
  expect_wrong(CHECK(strict, VOIDED, UNSETTLED(6, 10, 90)), "A3");
  expect_wrong(CHECK(strict, VOIDED, UNSETTLED(6, 89, 90)), "A3");
  expect_good(CHECK(strict, VOIDED, UNSETTLED(6, 90, 90)));
  /* a deadline that was not recorded has not come */
  expect_wrong(CHECK(strict, VOIDED, UNSETTLED(6, 90, 0)), "A3");
  /* nor may it be older than what is known to be stored */
  expect_wrong(CHECK(strict, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), COMPUTE(5, 6, 1),
                     CALL(7, 8, FRESH, 1, 2), UNSETTLED(9, 10, 90)),
               "A4");
}

static void at_its_deadline_a_call_obeys_its_own_process_s_invalidations(void **state) {
  (void)state;
  history_entry own = INVALIDATE(4, 5, 1);
  own.status = CORRAL_EUNAVAILABLE;
  expect_wrong(CHECK(strict, COMPUTE(1, 9, 0), CHANGE(2, 3, 1), own, UNSETTLED(6, 90, 90)), "A5");
}

/* The settle may have failed, and then nobody has another word about it. */
static void in_a_fault_an_unsettled_value_is_the_process_s_own(void **state) {
  (void)state;
  history_entry others = INVALIDATE(4, 5, 1);
  others.process = 1;
#define FAULT(from, to) {.kind = HISTORY_FAULT, .key = -1, TIMES(from, to)}
  expect_good(CHECK(strict, VOIDED, FAULT(8, 9), UNSETTLED(6, 10, 90)));
  expect_good(CHECK(strict, VOIDED, FAULT(3, 6), UNSETTLED(6, 10, 90)));
  expect_good(CHECK(strict, VOIDED, FAULT(3, 0), UNSETTLED(6, 10, 90)));
  expect_wrong(CHECK(strict, VOIDED, FAULT(3, 5), UNSETTLED(6, 10, 90)), "A3");
  expect_wrong(CHECK(strict, VOIDED, FAULT(11, 12), UNSETTLED(6, 10, 90)), "A3");
  /* it excuses no other answer */
  expect_wrong(CHECK(strict, VOIDED, FAULT(3, 90), CALL(6, 10, JOINED, 0, 0)), "A3");
}

/* ---- the near tier ------------------------------------------------------------------------- */

static void a_near_copy_may_be_as_late_as_its_bound(void **state) {
  (void)state;
  history_entry invalidated = INVALIDATE(4, 5, 1);
  invalidated.process = 1;
  expect_good(
      CHECK(near_tier, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), invalidated, CALL(55, 56, FRESH, 0, 0)));
  expect_wrong(
      CHECK(near_tier, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), invalidated, CALL(56, 57, FRESH, 0, 0)),
      "A3");
  /* answers that don't come from a copy may not */
  expect_wrong(
      CHECK(near_tier, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), invalidated, CALL(6, 7, JOINED, 0, 0)),
      "A3");
  expect_wrong(
      CHECK(near_tier, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), invalidated, CALL(6, 7, STALE, 0, 0)),
      "A3");
}

static void a_near_copy_obeys_the_invalidations_of_its_own_process_at_once(void **state) {
  (void)state;
  expect_wrong(CHECK(near_tier, COMPUTE(1, 2, 0), CHANGE(3, 4, 1), INVALIDATE(4, 5, 1),
                     CALL(6, 7, FRESH, 0, 0)),
               "A5");
}

static void the_verdict_counts_what_it_has_judged(void **state) {
  (void)state;
  history_entry failed = CALL(5, 6, FRESH, 0, 0);
  failed.status = CORRAL_EDEADLINE;
  history_verdict seen =
      CHECK(strict, COMPUTE(1, 2, 0), CALL(1, 3, COMPUTED, 0, 0), CALL(3, 4, FRESH, 0, 0), failed,
            CHANGE(7, 8, 1), INVALIDATE(8, 9, 1), COMPUTE(11, 12, 1), CALL(10, 12, COMPUTED, 1, 6));
  expect_good(seen);
  assert_int_equal(seen.calls, 3);
  assert_int_equal(seen.bound, 1);
  assert_int_equal(seen.how[CORRAL_COMPUTED], 2);
  assert_int_equal(seen.how[CORRAL_FRESH], 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(an_empty_history_is_good),
      cmocka_unit_test(a_source_that_goes_back_is_found),
      cmocka_unit_test(a_compute_reads_what_the_source_has_within_it),
      cmocka_unit_test(a_value_that_no_compute_made_is_found),
      cmocka_unit_test(a_stranger_s_value_that_is_called_the_caller_s_own_is_found),
      cmocka_unit_test(a_value_from_before_a_returned_invalidation_is_found),
      cmocka_unit_test(the_latest_version_that_was_invalidated_counts),
      cmocka_unit_test(an_invalidation_that_failed_or_never_returned_proves_nothing),
      cmocka_unit_test(a_key_s_invalidation_is_no_other_key_s),
      cmocka_unit_test(a_store_that_goes_back_is_found),
      cmocka_unit_test(a_value_that_was_not_stored_proves_nothing_of_the_store),
      cmocka_unit_test(an_answer_of_the_process_alone_obeys_its_own_invalidations),
      cmocka_unit_test(an_unsettled_value_is_for_those_who_came_before_or_whose_deadline_has_come),
      cmocka_unit_test(at_its_deadline_a_call_obeys_its_own_process_s_invalidations),
      cmocka_unit_test(in_a_fault_an_unsettled_value_is_the_process_s_own),
      cmocka_unit_test(a_near_copy_may_be_as_late_as_its_bound),
      cmocka_unit_test(a_near_copy_obeys_the_invalidations_of_its_own_process_at_once),
      cmocka_unit_test(the_verdict_counts_what_it_has_judged),
  };
  return cmocka_run_group_tests_name("history", tests, NULL, NULL);
}
