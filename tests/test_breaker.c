/* test_breaker.c: when a failing server rests, and when it is tried again. The time is an
 * argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/breaker.h"

enum { MOST = 3, REST = 100 };

static crl_breaker opened(int64_t now) {
  crl_breaker b;
  crl_breaker_start(&b, MOST, REST);
  for (int i = 1; i < MOST; i++)
    assert_int_equal(crl_breaker_note(&b, 0, 0, now), CRL_BREAKER_SAME);
  assert_true(crl_breaker_lets(&b));
  assert_int_equal(crl_breaker_note(&b, 0, 0, now), CRL_BREAKER_OPENED);
  assert_false(crl_breaker_lets(&b));
  return b;
}

static void so_many_failures_in_a_row_open_it(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_int_equal(b.rest_until, 1000 + REST);
}

static void a_success_starts_the_count_again(void **state) {
  (void)state;
  crl_breaker b;
  crl_breaker_start(&b, MOST, REST);
  for (int round = 0; round < 4; round++) {
    for (int i = 1; i < MOST; i++)
      assert_int_equal(crl_breaker_note(&b, 0, 0, 5), CRL_BREAKER_SAME);
    assert_int_equal(crl_breaker_note(&b, 1, 0, 5), CRL_BREAKER_SAME);
  }
  assert_true(crl_breaker_lets(&b));
}

static void nobody_probes_before_the_rest_is_over_and_then_one_does(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_false(crl_breaker_probe(&b, 1000 + REST - 1));
  assert_true(crl_breaker_probe(&b, 1000 + REST));
  assert_false(crl_breaker_probe(&b, 1000 + REST));
  assert_false(crl_breaker_lets(&b));
}

static void the_probe_closes_it_or_gives_it_another_rest(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_true(crl_breaker_probe(&b, 1200));
  assert_int_equal(crl_breaker_note(&b, 0, 1, 1210), CRL_BREAKER_SAME);
  assert_false(crl_breaker_probe(&b, 1210 + REST - 1));
  assert_true(crl_breaker_probe(&b, 1210 + REST));
  assert_int_equal(crl_breaker_note(&b, 1, 1, 1400), CRL_BREAKER_CLOSED);
  assert_true(crl_breaker_lets(&b));
  assert_false(crl_breaker_probe(&b, 9999));
}

static void late_failures_of_calls_from_before_do_not_lengthen_the_rest(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_int_equal(crl_breaker_note(&b, 0, 0, 1090), CRL_BREAKER_SAME);
  assert_true(crl_breaker_probe(&b, 1000 + REST));
}

static void a_late_success_ends_the_rest_but_lets_nobody_through_before_the_probe(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_int_equal(crl_breaker_note(&b, 1, 0, 1010), CRL_BREAKER_SAME);
  assert_false(crl_breaker_lets(&b));
  assert_true(crl_breaker_probe(&b, 1010));
  assert_int_equal(crl_breaker_note(&b, 1, 1, 1011), CRL_BREAKER_CLOSED);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(so_many_failures_in_a_row_open_it),
      cmocka_unit_test(a_success_starts_the_count_again),
      cmocka_unit_test(nobody_probes_before_the_rest_is_over_and_then_one_does),
      cmocka_unit_test(the_probe_closes_it_or_gives_it_another_rest),
      cmocka_unit_test(late_failures_of_calls_from_before_do_not_lengthen_the_rest),
      cmocka_unit_test(a_late_success_ends_the_rest_but_lets_nobody_through_before_the_probe),
  };
  return cmocka_run_group_tests_name("breaker", tests, NULL, NULL);
}
