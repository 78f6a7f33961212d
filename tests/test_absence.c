/* test_absence.c: since when a server has been of no use. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "store/absence.h"

enum { BEGIN = 1000, PAUSE = 100 };

static void it_lasts_from_the_first_failure_to_the_next_answer(void **state) {
  (void)state;
  crl_absence a = {0};
  assert_int_equal(crl_absence_note(&a, BEGIN, PAUSE), 0);
  assert_int_equal(crl_absence_note(&a, BEGIN + 60, PAUSE), 60);
  assert_int_equal(crl_absence_note(&a, BEGIN + 150, PAUSE), 150);
  crl_absence_end(&a);
  assert_int_equal(crl_absence_note(&a, BEGIN + 160, PAUSE), 0);
}

static void a_pause_in_which_nobody_asked_is_no_part_of_it(void **state) {
  (void)state;
  crl_absence a = {0};
  (void)crl_absence_note(&a, BEGIN, PAUSE);
  assert_int_equal(crl_absence_note(&a, BEGIN + PAUSE, PAUSE), PAUSE);
  assert_int_equal(crl_absence_note(&a, BEGIN + 2 * PAUSE + 1, PAUSE), 0);
  assert_int_equal(crl_absence_note(&a, BEGIN + 2 * PAUSE + 11, PAUSE), 10);
  assert_int_equal(crl_absence_note(&a, BEGIN + 9 * PAUSE, INT64_MAX), 7 * PAUSE - 1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_lasts_from_the_first_failure_to_the_next_answer),
      cmocka_unit_test(a_pause_in_which_nobody_asked_is_no_part_of_it),
  };
  return cmocka_run_group_tests_name("absence", tests, NULL, NULL);
}
