/* test_lock_times.c: the histograms of waits and holds. Pure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "locks/times.h"

static crl_times times;

static int empty(void **state) {
  (void)state;
  memset(&times, 0, sizeof times);
  return 0;
}

static void no_time_is_all_zero(void **state) {
  static const corral_lock_times none;
  (void)state;
  corral_lock_times read = crl_times_read(&times);
  assert_memory_equal(&read, &none, sizeof none);
}

/* Half of the times is the one, half is a longer one. */
static void a_quantile_is_no_less_than_its_time_and_a_sixteenth_more_at_most(void **state) {
  for (int64_t us = 0; us < INT64_C(1) << 36; us += 1 + us / 7) {
    empty(state);
    crl_times_add(&times, us);
    crl_times_add(&times, INT64_C(1) << 36);
    corral_lock_times read = crl_times_read(&times);
    if (read.p50_us < us || read.p50_us > us + us / 16)
      fail_msg("%lld for %lld", (long long)read.p50_us, (long long)us);
    assert_int_equal(read.count, 2);
    assert_int_equal(read.p90_us, INT64_C(1) << 36);
    assert_int_equal(read.max_us, INT64_C(1) << 36);
  }
}

static void each_quantile_is_that_of_its_part(void **state) {
  (void)state;
  for (int64_t us = 10000; us > 0; us--) crl_times_add(&times, us);
  corral_lock_times read = crl_times_read(&times);
  assert_int_equal(read.count, 10000);
  assert_in_range(read.p50_us, 5000, 5000 + 5000 / 16);
  assert_in_range(read.p90_us, 9000, 9000 + 9000 / 16);
  assert_in_range(read.p99_us, 9900, 10000); /* no quantile is above the longest */
  assert_in_range(read.p999_us, 9990, 10000);
  assert_int_equal(read.max_us, 10000);
}

static void times_that_no_bucket_is_for_are_counted_at_the_ends(void **state) {
  (void)state;
  crl_times_add(&times, -5);
  crl_times_add(&times, INT64_MAX);
  corral_lock_times read = crl_times_read(&times);
  assert_int_equal(read.count, 2);
  assert_int_equal(read.p50_us, 0);
  assert_int_equal(read.p999_us, INT64_MAX);
  assert_int_equal(read.max_us, INT64_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(no_time_is_all_zero, empty),
      cmocka_unit_test_setup(a_quantile_is_no_less_than_its_time_and_a_sixteenth_more_at_most,
                             empty),
      cmocka_unit_test_setup(each_quantile_is_that_of_its_part, empty),
      cmocka_unit_test_setup(times_that_no_bucket_is_for_are_counted_at_the_ends, empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
