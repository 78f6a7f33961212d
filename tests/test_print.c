/* test_print.c: messages that show where something was left out (base/print.h, base/status.h). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <limits.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "base/print.h"
#include "base/status.h"
#include "record/fill.h"

static char text[64];

static const char *fit(const char *long_text, size_t size) {
  memset(text, 'x', sizeof text);
  crl_print_fit(text, size, long_text);
  return text;
}

static void a_text_that_fits_stays(void **state) {
  (void)state;
  assert_string_equal(fit("", 8), "");
  assert_string_equal(fit("1234567", 8), "1234567");
}

static void one_that_does_not_is_shortened_in_its_middle(void **state) {
  (void)state;
  assert_string_equal(fit("12345678", 8), "12...78");
  assert_string_equal(fit("/a/very/long/path/of/a/file.db", 20), "/a/very/.../file.db");
}

static void characters_stay_whole(void **state) {
  (void)state;
  assert_string_equal(fit("\u00e9\u00e9\u00e9\u00e9\u00e9\u00e9", 9), "\u00e9...\u00e9");
}

static void a_foreign_part_is_shortened_and_the_message_stays(void **state) {
  (void)state;
  corral_error error;
  (void)crl_status_fail(&error, CORRAL_EIO, "%.12s: %s; accepted: %d to %lld%s",
                        "/a/long/path/to/x.db", "no such file", 1, 5LL, "%");
  assert_string_equal(error.text, "/a/lo...x.db: no such file; accepted: 1 to 5%");
}

static void a_message_that_is_too_long_keeps_both_its_ends(void **state) {
  (void)state;
  char long_text[3000];
  corral_error error;
  for (size_t len = 200; len < sizeof long_text - 1; len += 39) {
    memset(long_text, 'k', len);
    long_text[len] = '\0';
    (void)crl_status_fail(&error, CORRAL_EIO, "begin %s end", long_text);
    assert_int_equal(strncmp(error.text, "begin kkk", 9), 0);
    bool is_whole = len + 10 < sizeof error.text;
    assert_int_equal(strstr(error.text, "...") == NULL, is_whole);
    if (len + 10 < CRL_PRINT_MOST)
      assert_string_equal(error.text + strlen(error.text) - 5, "k end");
  }
  assert_string_equal(error.text + strlen(error.text) - 3, "...");
}

static const char *said(const char *format, ...) __attribute__((format(printf, 1, 2)));
static const char *said(const char *format, ...) {
  static char all[300];
  va_list args;
  va_start(args, format);
  crl_print(all, sizeof all, format, args);
  va_end(args);
  return all;
}

/* Each conversion, beside what snprintf makes of it. */
#define SAME(...)                                                                                  \
  do {                                                                                             \
    char wanted[300];                                                                              \
    (void)snprintf(wanted, sizeof wanted, __VA_ARGS__);                                            \
    assert_string_equal(said(__VA_ARGS__), wanted);                                                \
  } while (0)

static void conversions_are_those_of_printf(void **state) {
  (void)state;
  SAME("%d %i %u %x %X %o %c%%", -1, INT_MIN, UINT_MAX, 255u, 255u, 8u, 'c');
  SAME("%ld %lu %lld %llu %zu %jd %td", LONG_MIN, ULONG_MAX, LLONG_MIN, ULLONG_MAX, SIZE_MAX,
       INTMAX_MIN, (ptrdiff_t)-1);
  SAME("%5d|%-5d|%05d|%+d|%02x|%016llx|%02lld", 1, 2, 3, 4, 10u, 11ull, 7ll);
  SAME("%g %.2f %s %.*s|%.*s|%p", 0.5, 1.25, "text", 2, "part", 9, "all", (void *)text);
  SAME("%.7s %s", "exactly", "");
}

static void the_reason_of_a_failure_is_shortened_too(void **state) {
  (void)state;
  corral_fill fill = {0};
  char reason[600];
  memset(reason, 'r', sizeof reason - 1);
  memcpy(reason + sizeof reason - 5, "end", 4);
  corral_fill_fail(&fill, 1, reason);
  assert_int_equal(strlen(fill.text), sizeof fill.text - 1);
  assert_non_null(strstr(fill.text, "r...r"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_text_that_fits_stays),
      cmocka_unit_test(one_that_does_not_is_shortened_in_its_middle),
      cmocka_unit_test(characters_stay_whole),
      cmocka_unit_test(a_foreign_part_is_shortened_and_the_message_stays),
      cmocka_unit_test(a_message_that_is_too_long_keeps_both_its_ends),
      cmocka_unit_test(conversions_are_those_of_printf),
      cmocka_unit_test(the_reason_of_a_failure_is_shortened_too),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
