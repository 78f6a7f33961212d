/* test_warm_pass.c: the record of a pass that several warmers share. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli/warm_pass.c" /* NOLINT(bugprone-suspicious-include) */

static warm_pass pass, again;
static char text[WARM_PASS_TEXT + 1], other[WARM_PASS_TEXT + 1];

static const char *written(const warm_pass *p) {
  size_t size = warm_pass_write(p, text);
  assert_in_range(size, 1, WARM_PASS_TEXT - 1);
  text[size] = '\0';
  return text;
}

static void read_text(const char *record) { warm_pass_read(&pass, record, strlen(record)); }

static warm_range taken(uint64_t warmer) {
  warm_range range = {0};
  assert_true(warm_pass_take(&pass, warmer, 1, &range));
  assert_int_equal(range.owner, warmer);
  return range;
}

static void a_record_is_read_as_it_was_written(void **state) {
  (void)state;
  static const char record[] = "corral-warm 1\npass abc 100 70\nfree 5-9\nwarmer 1f 7 0-5 40-60\n"
                               "warmer ffffffffffffffff 0\n";
  read_text(record);
  assert_int_equal(pass.id, 0xabc);
  assert_int_equal(pass.warmer_count, 2);
  assert_int_equal(pass.range_count, 3);
  assert_string_equal(written(&pass), record);
}

static void two_warmers_take_each_key_once_and_small_ranges_at_the_end(void **state) {
  (void)state;
  pass = (warm_pass){.id = 1, .total = 10000};
  uint64_t next = 0, steps = 0;
  warm_range range = {0};
  for (; warm_pass_take(&pass, 1 + steps % 2, 4, &range); steps++) {
    assert_int_equal(range.begin, next);
    assert_in_range(range.end - range.begin, 1, WARM_PASS_LARGEST);
    next = range.end;
    warm_pass_done(&pass, range);
  }
  assert_int_equal(next, 10000);
  assert_int_equal(range.end - range.begin, 1);
  assert_in_range(steps, 40, 300);
  assert_true(warm_pass_is_done(&pass));
}

static void the_ranges_of_one_that_leaves_are_taken_first(void **state) {
  (void)state;
  pass = (warm_pass){.id = 1, .total = 640};
  assert_true(warm_pass_beat(&pass, 1, 1) && warm_pass_beat(&pass, 2, 1));
  warm_range first = taken(1), second = taken(2), third = taken(1);
  warm_pass_done(&pass, second);
  warm_pass_leave(&pass, 1);
  assert_false(warm_pass_has(&pass, 1));
  assert_true(warm_pass_has(&pass, 2));
  assert_int_equal(taken(2).begin, first.begin);
  assert_int_equal(taken(2).begin, third.begin);
  assert_true(taken(2).begin > third.begin);
  assert_false(warm_pass_is_done(&pass));
}

static void a_pass_is_over_when_all_that_was_taken_is_done(void **state) {
  (void)state;
  pass = (warm_pass){.id = 1, .total = 1};
  warm_range range = taken(1);
  assert_false(warm_pass_take(&pass, 2, 4, &range));
  assert_false(warm_pass_is_done(&pass));
  warm_pass_done(&pass, range);
  assert_true(warm_pass_is_done(&pass));
}

static void the_fullest_record_has_room(void **state) {
  (void)state;
  const uint64_t far = 999999999999000;
  pass = (warm_pass){.id = UINT64_MAX, .total = far, .next = far};
  for (uint64_t i = 0; i < WARM_PASS_WARMERS; i++)
    assert_true(warm_pass_beat(&pass, UINT64_MAX - i, far));
  assert_false(warm_pass_beat(&pass, 1, 1));
  for (uint64_t i = 0; i < WARM_PASS_RANGES; i++)
    pass.ranges[pass.range_count++] =
        (warm_range){far - 2 * i - 1, far - 2 * i, UINT64_MAX - i % WARM_PASS_WARMERS};
  memcpy(other, written(&pass), sizeof other);
  warm_pass_read(&again, other, strlen(other));
  assert_int_equal(again.range_count, WARM_PASS_RANGES);
  assert_string_equal(written(&again), other);
}

static void what_is_no_record_is_none(void **state) {
  (void)state;
  static const char *const records[] = {
      "",
      "corral-warm 2\npass 1 1 0\nfree\n",
      "corral-warm 1\npass 1 1 0\n",
      "corral-warm 1\npass 1 1 2\nfree\n",
      "corral-warm 1\npass 1 9 5\nfree 4-6\n",
      "corral-warm 1\npass 1 9 5\nfree 3-3\n",
      "corral-warm 1\npass 1 9 5\nfree 4-3\n",
      "corral-warm 1\npass 1 9 5\nfree 1-3 2-4\n",
      "corral-warm 1\npass 1 9 5\nfree 1-3\nwarmer 1 1 0-2\n",
      "corral-warm 1\npass 1 9 5\nfree\nwarmer 0 1\n",
      "corral-warm 1\npass 1 9 5\nfree\nwarmer 1 1\nwarmer 1 2\n",
      "corral-warm 1\npass 1 9 5\nfree\nwarmer 1 1",
      "corral-warm 1\npass 1 9999999999999999 5\nfree\n",
      "corral-warm 1\npass 10000000000000000 9 5\nfree\n",
      "corral-warm 1\npass 1 9 5\nfree\nrubbish",
      "corral-warm 1\npass 0 9 5\nfree\nwarmer 1 1\n",
  };
  for (size_t i = 0; i < sizeof records / sizeof records[0]; i++) {
    read_text(records[i]);
    if (pass.id != 0 || pass.range_count != 0 || pass.warmer_count != 0)
      fail_msg("it was read: %s", records[i]);
  }
}

static void damaged_records_do_no_harm(void **state) {
  (void)state;
  static const char record[] = "corral-warm 1\npass abc 100 70\nfree 5-9\nwarmer 1f 7 0-5 40-60\n";
  char damaged[sizeof record];
  srand(1);
  for (int round = 0; round < 20000; round++) {
    memcpy(damaged, record, sizeof record);
    for (int n = 0; n <= round % 4; n++)
      damaged[rand() % (int)(sizeof record - 1)] = " -\n0123456789abcdef"[rand() % 19];
    warm_pass_read(&pass, damaged, (size_t)rand() % sizeof record);
    if (pass.id == 0) continue;
    for (size_t i = 0; i < pass.range_count; i++)
      assert_true(pass.ranges[i].begin < pass.ranges[i].end && pass.ranges[i].end <= pass.next);
    (void)written(&pass);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_record_is_read_as_it_was_written),
      cmocka_unit_test(two_warmers_take_each_key_once_and_small_ranges_at_the_end),
      cmocka_unit_test(the_ranges_of_one_that_leaves_are_taken_first),
      cmocka_unit_test(a_pass_is_over_when_all_that_was_taken_is_done),
      cmocka_unit_test(the_fullest_record_has_room),
      cmocka_unit_test(what_is_no_record_is_none),
      cmocka_unit_test(damaged_records_do_no_harm),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
