/* test_flight_settle.c: how a flight ends the lease of its compute: the value is published, settled
 * and answered, and no caller waits for the store beyond its deadline. */
#include "support/flight_story.h"

static void what_was_computed_is_published_before_it_is_settled(void **state) {
  (void)state;
  story s = begin(1, 0);
  play(&s, (const char *const[]){"miss", "ok", "value", NULL});
  assert_int_equal(s.published, 1);
  assert_int_equal(s.ask, CRL_ASK_SETTLE);
}

static void a_compute_beyond_the_deadline_is_answered_before_its_fill(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: 1500 value\n1502 answer computed, perhaps kept\n"
        "1502 settle: ok\n1503 done\n",
        "miss", "ok", "1500 value", "ok");
  STORY(
      1, 0,
      "0 get: miss\n1 claim: ok\n2 compute: 1500 failure\n1502 answer failed\n1502 release with a "
      "verdict: ok\n1503 done\n",
      "miss", "ok", "1500 failure", "ok");
}

/* A failure is told when the fleet knows it, whatever PUBLISH would be told. */
static void a_caller_who_does_not_wait_for_the_fill_has_the_value_before_it(void **state) {
  (void)state;
  static const struct {
    const char *made, *log;
  } cases[] = {
      {"value", "0 get: miss\n1 claim: ok\n2 compute: value\n3 answer computed, perhaps kept\n3 "
                "settle: ok\n4 done\n"},
      {"older", "0 get: miss\n1 claim: ok\n2 compute: older\n3 answer computed, older\n3 release "
                "with a verdict: ok\n4 done\n"},
      {"failure", "0 get: miss\n1 claim: ok\n2 compute: failure\n3 release with a verdict: ok\n4 "
                  "answer failed\n4 done\n"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    story s = begin(1, 0);
    s.behind = 1;
    play(&s, (const char *const[]){"miss", "ok", cases[i].made, "ok", NULL});
    assert_string_equal(s.log, cases[i].log);
  }
}

static void behind_a_stale_answer_nothing_changes(void **state) {
  (void)state;
  story s = begin(1, 0);
  s.behind = 1;
  play(&s, (const char *const[]){"ok swr 50 sie 90", "ok swr 50 sie 90", "value", "ok", NULL});
  assert_string_equal(s.log, "0 get: ok swr 50 sie 90\n1 claim: ok swr 50 sie 90\n2 answer stale\n"
                             "2 compute: value\n3 settle: ok\n4 done\n");
}

static void a_settle_without_a_reply_is_repeated_behind_the_answer(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: 1000 unknown\n1003 answer computed, "
        "perhaps kept\n1003 settle: ok\n1004 done\n",
        "miss", "ok", "value", "1000 unknown", "ok");
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: 1000 away\n1003 answer computed, "
        "perhaps kept\n1003 settle: unknown\n1004 release: ok\n1005 done\n",
        "miss", "ok", "value", "1000 away", "unknown", "ok");
}

static void a_settle_that_was_stored_unheard_is_repeated_in_vain(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: unknown\n4 answer computed, perhaps "
        "kept\n4 settle: lost\n5 done\n",
        "miss", "ok", "value", "unknown", "lost");
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: error\n4 answer computed, not kept\n"
        "4 release: away\n5 done\n",
        "miss", "ok", "value", "error", "away");
}

static void a_refused_fill_still_answers_its_own_caller(void **state) {
  (void)state;
  STORY(1, 0,
        "0 get: miss\n1 claim: ok\n2 compute: value\n3 settle: lost\n4 answer computed, fenced\n4 "
        "done\n",
        "miss", "ok", "value", "lost");
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(what_was_computed_is_published_before_it_is_settled),
      T(a_compute_beyond_the_deadline_is_answered_before_its_fill),
      T(a_caller_who_does_not_wait_for_the_fill_has_the_value_before_it),
      T(behind_a_stale_answer_nothing_changes),
      T(a_settle_without_a_reply_is_repeated_behind_the_answer),
      T(a_settle_that_was_stored_unheard_is_repeated_in_vain),
      T(a_refused_fill_still_answers_its_own_caller),
  };
  return cmocka_run_group_tests_name("flight_settle", tests, NULL, NULL);
}
