/* test_stats_crowd.c: many corrals of one namespace and store at once each find a stats file without
 * looking through those of all others. Judged by the number of calls of openat and fstatat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <corral.h>

#include "support/stats_kit.h"

enum { CROWD = 400, LINE = 32, FOLDER_CALLS_EACH = 100 };

static int calls;

int __real_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...);
int __wrap_openat(int dir, const char *name, int flags, ...) {
  va_list rest;
  va_start(rest, flags);
  mode_t mode = flags & O_CREAT ? va_arg(rest, mode_t) : 0;
  va_end(rest);
  calls++;
  return __real_openat(dir, name, flags, mode);
}

int __real_fstatat(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags);
int __wrap_fstatat(int dir, const char *name, struct stat *st, int flags) {
  calls++;
  return __real_fstatat(dir, name, st, flags);
}

static void open_crowd(corral **crowd, int count) {
  for (int i = 0; i < count; i++) {
    crowd[i] = open_counting(folder, 0, 0);
    compute_some(crowd[i], 1);
  }
}

static void close_crowd(corral **crowd, int count) {
  for (int i = 0; i < count; i++) corral_close(crowd[i]);
}

static void a_crowd_finds_its_files_with_few_calls_each(void **state) {
  static corral *crowd[CROWD];
  (void)state;
  calls = 0;
  open_crowd(crowd, CROWD);
  assert_in_range(calls, CROWD, CROWD * FOLDER_CALLS_EACH);
  assert_int_equal(count_files(folder), CROWD);
  seen s = see_host(folder);
  assert_int_equal(s.living, CROWD);
  assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), CROWD);
  corral_stats_free(s.sum);
  close_crowd(crowd, CROWD);
}

static void few_take_the_lowest_numbers_and_later_ones_go_on_with_them(void **state) {
  static corral *few[LINE];
  (void)state;
  for (int round = 1; round <= 3; round++) {
    open_crowd(few, LINE);
    assert_int_equal(count_files(folder), LINE);
    seen s = see_host(folder);
    assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), round * LINE);
    corral_stats_free(s.sum);
    close_crowd(few, LINE);
  }
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_crowd_finds_its_files_with_few_calls_each),
      TEST(few_take_the_lowest_numbers_and_later_ones_go_on_with_them),
  };
  return cmocka_run_group_tests_name("stats_crowd", tests, NULL, NULL);
}
