/* test_breaker.c: when a failing server rests, and when it is tried again. The time is an
 * argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "store/breaker.h"

enum { MOST = 3, REST = 100, AWAY = 1500, OP = 250 };

static crl_breaker opened(int64_t now) {
  crl_breaker b;
  crl_breaker_start(&b, MOST, REST, AWAY);
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
  crl_breaker_start(&b, MOST, REST, AWAY);
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

/* ---- silence ------------------------------------------------------------------------------- */

static crl_breaker silent(void) {
  crl_breaker b;
  crl_breaker_start(&b, MOST, REST, AWAY);
  crl_breaker_note(&b, 1, 0, 1000);
  return b;
}

/* Asks sent at `began` and unanswered after OP. */
static crl_breaker_turn unanswered(crl_breaker *b, int64_t began) {
  return crl_breaker_note_silence(b, began, began + OP, 0, began + OP);
}

static void any_number_of_timeouts_within_one_stall_count_once(void **state) {
  (void)state;
  crl_breaker b = silent();
  assert_false(crl_breaker_is_slow(&b));
  for (int i = 0; i < 100; i++) assert_int_equal(unanswered(&b, 2000), CRL_BREAKER_SAME);
  for (int i = 0; i < 100; i++) assert_int_equal(unanswered(&b, 2001 + i), CRL_BREAKER_SAME);
  assert_true(crl_breaker_lets(&b));
  assert_true(crl_breaker_is_slow(&b));
  assert_int_equal(b.silent_ms, 100 + OP);
}

static void a_silence_of_away_ms_opens_it(void **state) {
  (void)state;
  crl_breaker b = silent();
  for (int64_t at = 2000; at < 2000 + AWAY - OP; at += OP)
    assert_int_equal(unanswered(&b, at), CRL_BREAKER_SAME);
  assert_int_equal(unanswered(&b, 2000 + AWAY - OP), CRL_BREAKER_OPENED);
  assert_false(crl_breaker_lets(&b));
  assert_false(crl_breaker_is_slow(&b));
  assert_int_equal(b.rest_until, 2000 + AWAY + REST);
}

static void an_answer_ends_the_silence_also_of_asks_sent_before_it(void **state) {
  (void)state;
  crl_breaker b = silent();
  for (int64_t at = 2000; at < 2000 + AWAY - OP; at += OP) unanswered(&b, at);
  crl_breaker_note(&b, 1, 0, 3300);
  assert_false(crl_breaker_is_slow(&b));
  assert_int_equal(unanswered(&b, 3200), CRL_BREAKER_SAME);
  assert_int_equal(b.silent_ms, 3200 + OP - 3300);
}

static void a_process_that_came_late_itself_blames_nobody(void **state) {
  (void)state;
  crl_breaker b = silent();
  assert_int_equal(crl_breaker_note_silence(&b, 2000, 2250, 0, 9000), CRL_BREAKER_SAME);
  assert_int_equal(b.silent_ms, 250);
  /* and a pause in which nobody asked counts for nothing either */
  assert_int_equal(unanswered(&b, 2250 + AWAY), CRL_BREAKER_SAME);
  assert_int_equal(b.silent_ms, 250 + OP);
}

static void one_timeout_now_and_then_is_no_silence(void **state) {
  (void)state;
  crl_breaker b = silent();
  for (int i = 0; i < 50; i++)
    assert_int_equal(unanswered(&b, 2000 + (int64_t)i * 3600000), CRL_BREAKER_SAME);
}

static void a_refused_connection_ends_the_silence_and_opens_it_by_count(void **state) {
  (void)state;
  crl_breaker b = silent();
  unanswered(&b, 2000);
  assert_int_equal(crl_breaker_note(&b, 0, 0, 2300), CRL_BREAKER_SAME);
  assert_false(crl_breaker_is_slow(&b));
  crl_breaker_note(&b, 0, 0, 2300);
  assert_int_equal(crl_breaker_note(&b, 0, 0, 2300), CRL_BREAKER_OPENED);
}

static void a_probe_that_stays_unanswered_gives_another_rest(void **state) {
  (void)state;
  crl_breaker b = opened(1000);
  assert_true(crl_breaker_probe(&b, 1200));
  assert_int_equal(crl_breaker_note_silence(&b, 1200, 1450, 1, 1450), CRL_BREAKER_SAME);
  assert_false(crl_breaker_lets(&b));
  assert_false(crl_breaker_probe(&b, 1450 + REST - 1));
  assert_true(crl_breaker_probe(&b, 1450 + REST));
}

static void a_silent_server_is_sent_few_probes_whose_time_ends_with_the_silence(void **state) {
  (void)state;
  crl_breaker b = silent();
  int64_t at = 2000;
  int asks = 1;
  assert_int_equal(crl_breaker_patience(&b, OP), OP);
  unanswered(&b, at);
  for (at += OP; crl_breaker_is_slow(&b); asks++) {
    int64_t limit = at + crl_breaker_patience(&b, OP);
    crl_breaker_note_silence(&b, at, limit, 0, limit);
    at = limit;
  }
  assert_int_equal(at, 2000 + AWAY);
  assert_in_range(asks, 3, 4);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(so_many_failures_in_a_row_open_it),
      cmocka_unit_test(a_success_starts_the_count_again),
      cmocka_unit_test(nobody_probes_before_the_rest_is_over_and_then_one_does),
      cmocka_unit_test(the_probe_closes_it_or_gives_it_another_rest),
      cmocka_unit_test(late_failures_of_calls_from_before_do_not_lengthen_the_rest),
      cmocka_unit_test(a_late_success_ends_the_rest_but_lets_nobody_through_before_the_probe),
      cmocka_unit_test(any_number_of_timeouts_within_one_stall_count_once),
      cmocka_unit_test(a_silence_of_away_ms_opens_it),
      cmocka_unit_test(an_answer_ends_the_silence_also_of_asks_sent_before_it),
      cmocka_unit_test(a_process_that_came_late_itself_blames_nobody),
      cmocka_unit_test(one_timeout_now_and_then_is_no_silence),
      cmocka_unit_test(a_refused_connection_ends_the_silence_and_opens_it_by_count),
      cmocka_unit_test(a_probe_that_stays_unanswered_gives_another_rest),
      cmocka_unit_test(a_silent_server_is_sent_few_probes_whose_time_ends_with_the_silence),
  };
  return cmocka_run_group_tests_name("breaker", tests, NULL, NULL);
}
