/* test_stats_crowd.c: many corrals of one namespace and store at once each find a stats file, and
 * don't look through those of all others. Judged by the number of calls of openat and fstatat. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>
#include <corral.h>

#include "stats/folder.h"
#include "support/stats_kit.h"

enum { CROWD = 400, LATER = 300, LINE = 32, CALLS_EACH = 120, FEW = 16 };

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

static void
a_crowd_finds_its_files_with_few_calls_each_and_a_later_one_goes_on_with_them(void **state) {
  static corral *crowd[CROWD];
  (void)state;
  calls = 0;
  open_crowd(crowd, CROWD);
  assert_in_range(calls, CROWD, CROWD * CALLS_EACH);
  assert_int_equal(count_files(folder), CROWD);
  seen s = see_host(folder);
  assert_int_equal(s.living, CROWD);
  assert_int_equal(corral_stats_events(s.sum, CORRAL_EVENT_COMPUTE), CROWD);
  corral_stats_free(s.sum);
  close_crowd(crowd, CROWD);
  open_crowd(crowd, LATER);
  assert_in_range(count_files(folder), CRL_STATS_FOLDER_MOST, CROWD + FEW);
  close_crowd(crowd, LATER);
}

static void few_have_no_more_files_than_they_are(void **state) {
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
      TEST(a_crowd_finds_its_files_with_few_calls_each_and_a_later_one_goes_on_with_them),
      TEST(few_have_no_more_files_than_they_are),
  };
  return cmocka_run_group_tests_name("stats_crowd", tests, NULL, NULL);
}
