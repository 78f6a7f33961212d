/* test_refresh.c: when a store is asked anew which server has which keys. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/refresh.h"

enum { BEGIN = 1000 };

/* Runs the refreshes that are due up to `until`, with no wish after the first. Returns how many;
 * *now is when the last one was. */
static int runs(crl_refresh *r, int64_t until, int64_t *now, int changed) {
  int count = 0;
  for (int64_t at; (at = crl_refresh_at(r)) <= until; count++) {
    if (at < *now) at = *now;
    *now = at;
    assert_true(crl_refresh_begin(r, at));
    crl_refresh_end(r, at, changed, 0);
  }
  return count;
}

static void many_wishes_are_one_refresh(void **state) {
  (void)state;
  crl_refresh r = {0};
  int64_t at = 0, now = BEGIN;
  assert_int_equal(crl_refresh_at(&r), INT64_MAX);
  assert_true(crl_refresh_want(&r, now, &at));
  assert_int_equal(at, BEGIN);
  for (int i = 0; i < 1000; i++) assert_false(crl_refresh_want(&r, now, &at));
  assert_true(crl_refresh_begin(&r, now));
  crl_refresh_end(&r, now, 1, 0);
  assert_false(crl_refresh_begin(&r, now + CRL_REFRESH_ALONE_MOST_MS));
}

static void one_that_is_wished_for_again_waits_longer_and_longer_while_nothing_changes(void **s) {
  (void)s;
  static const int64_t pauses[] = {100, 200, 400, 500, 500};
  crl_refresh r = {0};
  int64_t at, now = BEGIN;
  for (size_t i = 0; i < sizeof pauses / sizeof *pauses; i++) {
    (void)crl_refresh_want(&r, now, &at);
    assert_true(crl_refresh_begin(&r, now));
    crl_refresh_end(&r, now, 0, 0);
    (void)crl_refresh_want(&r, now, &at);
    assert_int_equal(at, now + pauses[i]);
    assert_int_equal(crl_refresh_at(&r), at);
    assert_false(crl_refresh_begin(&r, at - 1));
    now = at;
  }
  assert_true(crl_refresh_begin(&r, now));
  crl_refresh_end(&r, now, 1, 0);
  (void)crl_refresh_want(&r, now, &at);
  assert_int_equal(at, now + CRL_REFRESH_LEAST_MS);
}

static void it_is_due_since_the_first_wish_that_it_was_not_begun_for(void **state) {
  (void)state;
  crl_refresh r = {0};
  int64_t at;
  (void)crl_refresh_want(&r, BEGIN, &at);
  (void)crl_refresh_want(&r, BEGIN + 50, &at);
  assert_int_equal(crl_refresh_since(&r), BEGIN);
  assert_true(crl_refresh_begin(&r, BEGIN + 60));
  (void)crl_refresh_want(&r, BEGIN + 70, &at);
  crl_refresh_end(&r, BEGIN + 80, 1, 0);
  assert_int_equal(crl_refresh_since(&r), BEGIN + 70);
  assert_true(crl_refresh_begin(&r, BEGIN + 500));
  crl_refresh_end(&r, BEGIN + 500, 0, 0);
  assert_int_equal(crl_refresh_since(&r), crl_refresh_at(&r)); /* without a wish */
}

static void after_the_last_wish_it_goes_on_for_half_a_minute_at_most(void **state) {
  (void)state;
  crl_refresh r = {0};
  int64_t at, now = BEGIN;
  assert_true(crl_refresh_want(&r, now, &at));
  assert_int_equal(runs(&r, INT64_MAX - 1, &now, 0), 1 + CRL_REFRESH_ALONE);
  assert_true(now > BEGIN + 10000 && now < BEGIN + 30000);
}

static void after_a_change_it_is_quiet(void **state) {
  (void)state;
  crl_refresh r = {0};
  int64_t at, now = BEGIN;
  assert_true(crl_refresh_want(&r, now, &at));
  assert_int_equal(runs(&r, INT64_MAX - 1, &now, 1), 1);
}

static void processes_do_not_ask_together(void **state) {
  (void)state;
  int64_t least = INT64_MAX, most = 0;
  for (uint64_t dice = 0; dice < 1000; dice++) {
    crl_refresh r = {0};
    int64_t at;
    (void)crl_refresh_want(&r, BEGIN, &at);
    (void)crl_refresh_begin(&r, BEGIN);
    crl_refresh_end(&r, BEGIN, 0, dice);
    (void)crl_refresh_want(&r, BEGIN, &at);
    if (at < least) least = at;
    if (at > most) most = at;
  }
  assert_int_equal(least, BEGIN + CRL_REFRESH_LEAST_MS);
  assert_true(most > BEGIN + CRL_REFRESH_LEAST_MS + CRL_REFRESH_LEAST_MS / 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(many_wishes_are_one_refresh),
      cmocka_unit_test(it_is_due_since_the_first_wish_that_it_was_not_begun_for),
      cmocka_unit_test(one_that_is_wished_for_again_waits_longer_and_longer_while_nothing_changes),
      cmocka_unit_test(after_the_last_wish_it_goes_on_for_half_a_minute_at_most),
      cmocka_unit_test(after_a_change_it_is_quiet),
      cmocka_unit_test(processes_do_not_ask_together),
  };
  return cmocka_run_group_tests_name("refresh", tests, NULL, NULL);
}
