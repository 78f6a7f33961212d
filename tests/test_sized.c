/* test_sized.c: the one rule of sized structs, shorter and longer than this library knows. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/sized.h"

/* The struct as this library knows it, an older and a newer one. */
typedef struct known {
  size_t size;
  int64_t first, second;
} known;
typedef struct older {
  size_t size;
  int64_t first;
} older;
typedef struct newer {
  known known;
  char unknown[24];
} newer;

static void a_shorter_struct_reads_as_zeroes_beyond_its_end(void **state) {
  (void)state;
  older user = {.size = sizeof user, .first = 7};
  known read = {.second = 9};
  assert_int_equal(crl_sized_read(&read, &user, sizeof read, "it", NULL), CORRAL_OK);
  assert_int_equal(read.first, 7);
  assert_int_equal(read.second, 0);
}

static void a_longer_struct_is_read_if_its_unknown_tail_is_zero(void **state) {
  (void)state;
  newer user = {.known = {.size = sizeof user, .first = 7, .second = 8}};
  known read = {0};
  assert_int_equal(crl_sized_read(&read, &user, sizeof read, "it", NULL), CORRAL_OK);
  assert_int_equal(read.second, 8);
}

static void a_longer_struct_is_refused_for_any_byte_of_its_unknown_tail(void **state) {
  (void)state;
  for (size_t i = 0; i < sizeof((newer *)0)->unknown; i++) {
    newer user = {.known = {.size = sizeof user}};
    known read = {.first = 1};
    corral_error error = {0};
    user.unknown[i] = 1;
    assert_int_equal(crl_sized_read(&read, &user, sizeof read, "it", &error), CORRAL_EOPTION);
    assert_non_null(strstr(error.text, CORRAL_VERSION));
    assert_int_equal(read.first, 1);
  }
}

static void a_struct_whose_size_is_not_set_is_refused(void **state) {
  (void)state;
  known user = {.first = 7}, read = {0};
  corral_error error = {0};
  assert_int_equal(crl_sized_read(&read, &user, sizeof read, "it", &error), CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "it: its size is not set"));
}

static void a_struct_that_is_filled_has_all_of_its_size_set(void **state) {
  (void)state;
  known from = {.size = sizeof from, .first = 1, .second = 2};
  newer user;
  memset(&user, 0x5a, sizeof user);
  user.known.size = sizeof user;
  crl_sized_write(&user, &from, sizeof from);
  assert_int_equal(user.known.size, sizeof user);
  assert_int_equal(user.known.second, 2);
  for (size_t i = 0; i < sizeof user.unknown; i++) assert_int_equal(user.unknown[i], 0);
}

static void a_shorter_struct_is_filled_up_to_its_end(void **state) {
  (void)state;
  known from = {.size = sizeof from, .first = 1, .second = 2};
  struct {
    older user;
    int64_t behind;
  } room = {.user = {.size = sizeof room.user}, .behind = 77};
  crl_sized_write(&room.user, &from, sizeof from);
  assert_int_equal(room.user.first, 1);
  assert_int_equal(room.behind, 77);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_shorter_struct_reads_as_zeroes_beyond_its_end),
      cmocka_unit_test(a_longer_struct_is_read_if_its_unknown_tail_is_zero),
      cmocka_unit_test(a_longer_struct_is_refused_for_any_byte_of_its_unknown_tail),
      cmocka_unit_test(a_struct_whose_size_is_not_set_is_refused),
      cmocka_unit_test(a_struct_that_is_filled_has_all_of_its_size_set),
      cmocka_unit_test(a_shorter_struct_is_filled_up_to_its_end),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
