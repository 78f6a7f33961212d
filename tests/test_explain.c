/* test_explain.c: corral_policy_explain: a policy as sentences, and its warnings. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>

static char text[4096];

static void explained(const corral_policy *policy) {
  assert_int_equal(corral_policy_explain(policy, text, sizeof text, NULL), CORRAL_OK);
}

static void says(const char *what) {
  if (strstr(text, what) == NULL) fail_msg("'%s' is not in:\n%s", what, text);
}

static void does_not_say(const char *what) {
  if (strstr(text, what) != NULL) fail_msg("'%s' is in:\n%s", what, text);
}

static void the_defaults_are_told_without_a_warning(void **state) {
  (void)state;
  explained(NULL);
  assert_string_equal(
      text, "A value is fresh for 1m, less up to 10 % by chance, so that what was made together "
            "does not end together.\n"
            "After that callers wait for the one who rebuilds it.\n"
            "When rebuilding fails, there is nothing to serve in its place.\n"
            "The store forgets it after 1m.\n"
            "\"No such thing\" is remembered for 10s.\n"
            "After a \"can't be cached\" everybody computes for himself, in parallel, for 10s.\n"
            "After a failed compute nobody tries again for about 500ms, from the fourth failure in "
            "a row on for 4 times, 8 times ... that, up to 30s; until then callers get a stale "
            "value in its grace, else that failure.\n"
            "A leader that dies is replaced when its lease ends: 750ms at first, or 4 times what "
            "computing the key usually takes if that is less, but at least 500ms; while it lives "
            "it extends it every third of that, to twice as long each time, up to 2s.\n"
            "A compute that takes longer than 30s is given up, and its result not stored.\n"
            "A call waits up to 30s for somebody else's compute, woken where the store can, else "
            "looking again after up to 5ms, doubling up to 250ms; "
            "then it takes a stale value in its grace, else an error.\n"
            "With near_bytes, a copy in this process answers for 1s without a look at the store.\n"
            "While the store is away computes run, one at a time per key and process.\n");
}

static void lives_and_graces_are_told(void **state) {
  (void)state;
  explained(CORRAL_POLICY(.ttl_ms = 90000, .swr_ms = 600000, .sie_ms = 86400000,
                          .jitter_pct = CORRAL_OFF, .early_pct = 10, .early_beta = 150));
  says("fresh for 90s.\n");
  says("For 10m after that it is served stale");
  says("For 1d after its fresh life");
  says("forgets it after 86490s");
  says("In the last 9s of its fresh life");
  says("exp(-left / (1.50 * cost))");
  does_not_say("warning");
}

static void what_is_off_is_told(void **state) {
  (void)state;
  explained(CORRAL_POLICY(.negative_ttl_ms = CORRAL_OFF, .retry_ms = CORRAL_OFF,
                          .when_away = CORRAL_AWAY_ERROR, .warm = 1));
  says("and not remembered");
  says("tries again at once");
  says("calls get an error");
  says("everybody else goes first");
  says("warning: retry_ms is off");
}

static void when_a_call_returns_is_told(void **state) {
  (void)state;
  explained(NULL);
  does_not_say("before that is stored");
  explained(CORRAL_POLICY(.anew = 1));
  says("A call rebuilds even a fresh value; if that fails, it gets that value, which stays.\n");
  explained(CORRAL_POLICY(.verify_ppm = 500));
  says("With a bound compute 0.05% of the hits are computed anew behind the answer, and "
       "compared.\n");
  says("Set: verify=0.05%.\n");
  explained(CORRAL_POLICY(.settle_behind = 1));
  says("A call returns what it computed before that is stored, unless the store is local.\n");
  says("Set: settle_behind=on.\n");
}

static void the_growth_of_a_lease_is_told(void **state) {
  (void)state;
  explained(CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 5000));
  says("when its lease ends: 5s at first; while it lives it extends it every third of that, to "
       "twice as long each time, up to 1m.\n");
  explained(CORRAL_POLICY(.lease_ms = 500));
  says("when its lease ends: 500ms; while it lives it extends it every third of that.\n");
}

static void what_makes_no_sense_is_warned_of(void **state) {
  (void)state;
  explained(CORRAL_POLICY(.retry_ms = CORRAL_OFF, .early_pct = 60, .jitter_pct = 60));
  says("warning: retry_ms is off");
  says("warning: early_pct is 60");
  says("warning: jitter_pct is 60");
}

/* No warning is of the same two options: "ONE (5s) is below OTHER (30s)". */
static void does_not_warn_of(const char *warning) {
  char begin[64], other[64];
  const char *end = strchr(strchr(warning, ')'), '(');
  snprintf(begin, sizeof begin, "warning: %.*s(", (int)strcspn(warning, "("), warning);
  for (end--; end[-1] != ' ';) end--;
  snprintf(other, sizeof other, " %.*s(", (int)strcspn(end, "("), end);
  for (const char *at = text; (at = strstr(at, begin)) != NULL; at++) {
    const char *found = strstr(at, other);
    if (found != NULL && found < at + strcspn(at, "\n")) fail_msg("'%s' in:\n%s", other, text);
  }
}

/* Each pair: warned of, and not where it doesn't contradict itself. */
static void each_pair_that_contradicts_itself_is_warned_of(void **state) {
  (void)state;
  const struct {
    const char *warning;
    const corral_policy *bad, *good;
  } rows[] = {
      {"wait_ms (5s) is below compute_ms (30s)", CORRAL_POLICY(.wait_ms = 5000),
       CORRAL_POLICY(.wait_ms = 5000, .sie_ms = 60000)},
      {"wait_ms (5s) is below compute_ms (30s)", CORRAL_POLICY(.wait_ms = 5000),
       CORRAL_POLICY(.wait_ms = 5000, .at_deadline = CORRAL_DEADLINE_COMPUTE)},
      {"wait_ms (5s) is below compute_ms (30s)", CORRAL_POLICY(.wait_ms = 5000),
       CORRAL_POLICY(.wait_ms = 30000)},
      {"wait_ms (700ms) is below lease_ms (2s)", CORRAL_POLICY(.wait_ms = 700),
       CORRAL_POLICY(.wait_ms = 800)},
      {"wait_ms (400ms) is below poll_ms (500ms)",
       CORRAL_POLICY(.wait_ms = 400, .poll_ms = 500, .poll_max_ms = 500),
       CORRAL_POLICY(.wait_ms = 500, .poll_ms = 500, .poll_max_ms = 500)},
      {"wait_ms (1.500s) is not above away_ms (1.500s by default)", CORRAL_POLICY(.wait_ms = 1500),
       CORRAL_POLICY(.wait_ms = 1501)},
      {"wait_ms (1s) is not above away_ms (1.500s by default)", CORRAL_POLICY(.wait_ms = 1000),
       CORRAL_POLICY(.wait_ms = 1000, .at_deadline = CORRAL_DEADLINE_COMPUTE)},
      {"wait_ms (1s) is not above away_ms (1.500s by default)",
       CORRAL_POLICY(.wait_ms = 1000, .when_away = CORRAL_AWAY_STALE, .sie_ms = 60000),
       CORRAL_POLICY(.wait_ms = 1000, .when_away = CORRAL_AWAY_ERROR, .sie_ms = 60000)},
      {"soft_ms (30s) is not below wait_ms (30s)", CORRAL_POLICY(.soft_ms = 30000, .sie_ms = 60000),
       CORRAL_POLICY(.soft_ms = 29000, .sie_ms = 60000)},
      {"sie_ms (off) is not above swr_ms (off)", CORRAL_POLICY(.soft_ms = 100),
       CORRAL_POLICY(.soft_ms = 100, .sie_ms = 60000)},
      {"sie_ms (1m) is not above swr_ms (1m)",
       CORRAL_POLICY(.soft_ms = 100, .sie_ms = 60000, .swr_ms = 60000),
       CORRAL_POLICY(.soft_ms = 100, .sie_ms = 60001, .swr_ms = 60000)},
      {"sie_ms (1m) is below swr_ms (2m)", CORRAL_POLICY(.sie_ms = 60000, .swr_ms = 120000),
       CORRAL_POLICY(.sie_ms = 120000, .swr_ms = 120000)},
      {"lease_ms (1m) is above compute_ms (30s)", CORRAL_POLICY(.lease_ms = 60000),
       CORRAL_POLICY(.lease_ms = 30000)},
      {"lease_min_ms (3s) is above lease_ms (2s)", CORRAL_POLICY(.lease_min_ms = 3000),
       CORRAL_POLICY(.lease_min_ms = 2000)},
      {"poll_max_ms (100ms) is below poll_ms (500ms)",
       CORRAL_POLICY(.poll_ms = 500, .poll_max_ms = 100), CORRAL_POLICY(.poll_ms = 250)},
      {"ttl_ms (200ms) is below poll_max_ms (250ms)",
       CORRAL_POLICY(.ttl_ms = 200, .negative_ttl_ms = 200),
       CORRAL_POLICY(.ttl_ms = 250, .negative_ttl_ms = 200)},
      {"retry_max_ms (30s) is below retry_ms (1m)", CORRAL_POLICY(.retry_ms = 60000),
       CORRAL_POLICY(.retry_ms = 30000)},
      {"negative_ttl_ms (2m) is above ttl_ms (1m)", CORRAL_POLICY(.negative_ttl_ms = 120000),
       CORRAL_POLICY(.negative_ttl_ms = 60000)},
      {"near_ms (2m) is above ttl_ms (1m)", CORRAL_POLICY(.near_ms = 120000),
       CORRAL_POLICY(.near_ms = 60000)},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    explained(rows[i].bad);
    says("warning: ");
    says(rows[i].warning);
    explained(rows[i].good);
    does_not_warn_of(rows[i].warning);
  }
}

static void a_wait_that_is_not_set_is_no_shorter_than_the_compute(void **state) {
  (void)state;
  explained(CORRAL_POLICY(.compute_ms = 90000));
  says("A call waits up to 90s ");
  does_not_say("warning");
  explained(CORRAL_POLICY(.compute_ms = 10000));
  says("A call waits up to 30s ");
  explained(CORRAL_POLICY(.compute_ms = 90000, .wait_ms = 1000));
  says("A call waits up to 1s ");
  corral_policy older = {.size = offsetof(corral_policy, wait_ms), .compute_ms = 90000};
  explained(&older);
  says("A call waits up to 90s ");
}

static void too_little_room_cuts_and_a_wrong_policy_writes_nothing(void **state) {
  (void)state;
  char little[16];
  corral_error error = {0};
  assert_int_equal(corral_policy_explain(NULL, little, sizeof little, NULL), CORRAL_OK);
  assert_string_equal(little, "A value is fres");
  assert_int_equal(
      corral_policy_explain(CORRAL_POLICY(.ttl_ms = -5), little, sizeof little, &error),
      CORRAL_EINVAL);
  assert_string_equal(little, "A value is fres");
  assert_non_null(strstr(error.text, "ttl_ms = -5"));
  assert_int_equal(corral_policy_explain(NULL, NULL, 10, &error), CORRAL_EINVAL);
  assert_int_equal(corral_policy_explain(NULL, little, 0, &error), CORRAL_EINVAL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_defaults_are_told_without_a_warning),
      cmocka_unit_test(lives_and_graces_are_told),
      cmocka_unit_test(what_is_off_is_told),
      cmocka_unit_test(when_a_call_returns_is_told),
      cmocka_unit_test(the_growth_of_a_lease_is_told),
      cmocka_unit_test(what_makes_no_sense_is_warned_of),
      cmocka_unit_test(each_pair_that_contradicts_itself_is_warned_of),
      cmocka_unit_test(a_wait_that_is_not_set_is_no_shorter_than_the_compute),
      cmocka_unit_test(too_little_room_cuts_and_a_wrong_policy_writes_nothing),
  };
  return cmocka_run_group_tests_name("explain", tests, NULL, NULL);
}
