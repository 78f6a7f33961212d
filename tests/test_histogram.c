/* test_histogram.c: the histograms of times. Pure. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "stats/histogram.h"

static crl_histogram times;

static corral_histogram read_times(void) {
  corral_histogram ret;
  crl_histogram_read(&times, &ret);
  return ret;
}

static uint64_t quantile(double q) {
  corral_histogram h = read_times();
  return corral_histogram_quantile(&h, q);
}

static int empty(void **state) {
  (void)state;
  memset(&times, 0, sizeof times);
  return 0;
}

static void no_time_is_all_zero(void **state) {
  static const corral_histogram none;
  (void)state;
  corral_histogram read = read_times();
  assert_memory_equal(&read, &none, sizeof none);
  assert_int_equal(quantile(0.5), 0);
  assert_int_equal(quantile(1), 0);
}

/* Half of the times is the one, half is a longer one. */
static void a_quantile_is_no_less_than_its_time_and_a_sixteenth_more_at_most(void **state) {
  for (uint64_t us = 0; us < UINT64_C(1) << 36; us += 1 + us / 7) {
    empty(state);
    crl_histogram_add(&times, (int64_t)us);
    crl_histogram_add(&times, INT64_C(1) << 36);
    corral_histogram read = read_times();
    if (quantile(0.5) < us || quantile(0.5) > us + us / 16)
      fail_msg("%llu for %llu", (unsigned long long)quantile(0.5), (unsigned long long)us);
    assert_int_equal(read.count, 2);
    assert_int_equal(read.sum_us, us + (UINT64_C(1) << 36));
    assert_int_equal(quantile(0.9), INT64_C(1) << 36);
    assert_int_equal(read.max_us, INT64_C(1) << 36);
  }
}

static void each_quantile_is_that_of_its_part(void **state) {
  (void)state;
  for (int64_t us = 10000; us > 0; us--) crl_histogram_add(&times, us);
  corral_histogram read = read_times();
  assert_int_equal(read.count, 10000);
  assert_in_range(quantile(0.5), 5000, 5000 + 5000 / 16);
  assert_in_range(quantile(0.9), 9000, 9000 + 9000 / 16);
  assert_in_range(quantile(0.99), 9900, 10000); /* no quantile is above the longest */
  assert_in_range(quantile(0.999), 9990, 10000);
  assert_int_equal(read.max_us, 10000);
}

static void times_that_no_bucket_is_for_are_counted_at_the_ends(void **state) {
  (void)state;
  crl_histogram_add(&times, -5);
  crl_histogram_add(&times, INT64_MAX);
  corral_histogram read = read_times();
  assert_int_equal(read.count, 2);
  assert_int_equal(quantile(0.5), 0);
  assert_int_equal(quantile(0.999), INT64_MAX);
  assert_int_equal(read.max_us, INT64_MAX);
}

static void each_bucket_begins_where_the_one_before_ends(void **state) {
  (void)state;
  for (size_t i = 0; i + 2 < CORRAL_HISTOGRAM_BUCKETS; i++) {
    empty(state);
    crl_histogram_add(&times, (int64_t)corral_histogram_bound(i));
    crl_histogram_add(&times, (int64_t)corral_histogram_bound(i) + 1);
    corral_histogram read = read_times();
    assert_int_equal(read.buckets[i], 1);
    assert_int_equal(read.buckets[i + 1], 1);
  }
  assert_true(corral_histogram_bound(CORRAL_HISTOGRAM_BUCKETS - 1) == UINT64_MAX);
}

static void a_sum_has_the_times_of_both(void **state) {
  (void)state;
  for (int64_t us = 0; us < 1000; us++) crl_histogram_add(&times, us);
  corral_histogram sum = read_times(), more = read_times();
  more.max_us = 5000;
  corral_histogram_add(&sum, &more);
  assert_int_equal(sum.count, 2000);
  assert_int_equal(sum.sum_us, 999000);
  assert_int_equal(sum.max_us, 5000);
  for (size_t i = 0; i < CORRAL_HISTOGRAM_BUCKETS; i++)
    assert_int_equal(sum.buckets[i], 2 * more.buckets[i]);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup(no_time_is_all_zero, empty),
      cmocka_unit_test_setup(a_quantile_is_no_less_than_its_time_and_a_sixteenth_more_at_most,
                             empty),
      cmocka_unit_test_setup(each_quantile_is_that_of_its_part, empty),
      cmocka_unit_test_setup(each_bucket_begins_where_the_one_before_ends, empty),
      cmocka_unit_test_setup(a_sum_has_the_times_of_both, empty),
      cmocka_unit_test_setup(times_that_no_bucket_is_for_are_counted_at_the_ends, empty),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
