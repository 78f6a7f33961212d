/* test_anew.c: the option anew: a call rebuilds even a fresh value, and when that fails the value
 * stays. As stories of a flight, and with a store and copies of this process. */
#include "support/flight_story.h"

#include <corral.h>

static char *told(crl_flight_plan plan, const char *const *lines) {
  static story s;
  s = begin_with(&usual, plan);
  play(&s, lines);
  return s.log;
}
#define TOLD(plan, ...)                                                                            \
  told((crl_flight_plan){.can_compute = 1, .anew = 1, plan},                                       \
       (const char *const[]){__VA_ARGS__, NULL})
#define PLAIN .early = 0

static void a_fresh_value_is_rebuilt_before_the_answer(void **state) {
  (void)state;
  assert_string_equal(TOLD(PLAIN, "ok fresh 100 value 1", "ok fresh 99 value 1", "ok", "ok"),
                      "0 get: ok fresh 100 value 1\n"
                      "1 claim: ok fresh 99 value 1\n"
                      "2 compute: ok\n"
                      "3 settle: ok\n"
                      "4 answer computed, kept\n"
                      "4 done\n");
}

static void behind_a_background_compute_there_is_no_answer_either(void **state) {
  (void)state;
  assert_string_equal(TOLD(.background = 1, "ok swr 50 value 1", "ok swr 49 value 1", "ok", "ok"),
                      "0 get: ok swr 50 value 1\n"
                      "1 claim: ok swr 49 value 1\n"
                      "2 compute: ok\n"
                      "3 settle: ok\n"
                      "4 answer computed, kept\n"
                      "4 done\n");
}

static void a_rebuild_that_fails_leaves_the_fresh_value_as_it_is(void **state) {
  (void)state;
  assert_string_equal(TOLD(PLAIN, "ok fresh 100 value 1", "ok fresh 99 value 1", "failure", "ok"),
                      "0 get: ok fresh 100 value 1\n"
                      "1 claim: ok fresh 99 value 1\n"
                      "2 compute: failure\n"
                      "3 release with a verdict: ok\n"
                      "4 answer stored\n"
                      "4 done\n");
}

static void a_failure_that_is_remembered_leaves_it_too(void **state) {
  (void)state;
  assert_string_equal(TOLD(PLAIN, "ok fresh 100 retry 50 value 1"),
                      "0 get: ok fresh 100 retry 50 value 1\n"
                      "1 answer stored\n"
                      "1 done\n");
}

static void nobody_waits_for_another_s_rebuild(void **state) {
  (void)state;
  assert_string_equal(TOLD(PLAIN, "ok fresh 100 lease 50 value 1"),
                      "0 get: ok fresh 100 lease 50 value 1\n"
                      "1 answer error EBUSY\n"
                      "1 done\n");
  assert_string_equal(TOLD(PLAIN, "ok fresh 100 value 1", "busy fresh 99 lease 50 value 1"),
                      "0 get: ok fresh 100 value 1\n"
                      "1 claim: busy fresh 99 lease 50 value 1\n"
                      "2 answer error EBUSY\n"
                      "2 done\n");
  assert_string_equal(TOLD(.ladder = 1, "ok fresh 100 value 1", "busy"),
                      "0 get: ok fresh 100 value 1\n"
                      "1 host: busy\n"
                      "2 answer error EBUSY\n"
                      "2 done\n");
}

static void without_the_store_a_copy_is_an_answer_only_if_that_fails(void **state) {
  (void)state;
  static story s;
  corral_policy policy = usual;
  policy.when_away = CORRAL_AWAY_STALE;
  s = begin_with(&policy, (crl_flight_plan){.can_compute = 1, .anew = 1});
  play(&s, (const char *const[]){"away", "ok fresh 100", "failure", NULL});
  assert_string_equal(s.log, "0 get: away\n"
                             "1 held: ok fresh 100\n"
                             "2 compute without a lease: failure\n"
                             "3 answer stored\n"
                             "3 done\n");
}

/* ---- with a store -------------------------------------------------------------------------- */

static int computes, fails;

/* A failure is remembered for longer than a test takes. */
static corral_policy lasting(int64_t anew) {
  return *CORRAL_POLICY(.ttl_ms = 3600000, .retry_ms = 3600000, .anew = anew);
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  char text[16];
  (void)key;
  (void)key_len;
  (void)arg;
  computes++;
  if (fails) corral_fill_fail(fill, 7, "no");
  if (fails) return CORRAL_OK;
  snprintf(text, sizeof text, "page %d", computes);
  return corral_fill_bytes(fill, text, strlen(text));
}

static void gets(corral *c, int64_t anew, const char *text, corral_how how) {
  corral_value *value;
  corral_error error;
  corral_policy policy = lasting(anew);
  const corral_call *call = CORRAL_CALL(.policy = &policy, .error = &error);
  if (corral_get_or_compute(c, "k", 1, call, compute, NULL, &value) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(corral_value_size(value), strlen(text));
  assert_memory_equal(corral_value_data(value), text, strlen(text));
  assert_int_equal(corral_value_how(value), how);
  corral_value_unref(value);
}

/* With copies in the process, or without. */
static corral *opened(int near) {
  corral *c;
  computes = fails = 0;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .near_bytes = near ? 1 << 20 : CORRAL_OFF), &c,
                  NULL),
      CORRAL_OK);
  return c;
}

static void what_is_stored_and_copied_is_replaced_or_stays(void **state) {
  (void)state;
  for (int near = 0; near < 2; near++) {
    corral *c = opened(near);
    gets(c, 1, "page 1", CORRAL_COMPUTED);
    gets(c, 0, "page 1", CORRAL_FRESH);
    gets(c, 1, "page 2", CORRAL_COMPUTED);
    gets(c, 0, "page 2", CORRAL_FRESH);
    fails = 1;
    gets(c, 1, "page 2", CORRAL_FRESH);
    assert_int_equal(computes, 3);
    gets(c, 1, "page 2", CORRAL_FRESH); /* the failure is remembered */
    gets(c, 0, "page 2", CORRAL_FRESH);
    assert_int_equal(computes, 3);
    corral_close(c);
  }
}

/* ---- many keys ----------------------------------------------------------------------------- */

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count; i++) (void)compute(fills[i], NULL, 0, NULL);
  return CORRAL_OK;
}

/* Asks for the keys a, b and a again, which have these pages. */
static void get_many(corral *c, int64_t anew, int of_a, int of_b, corral_how how) {
  corral_item items[3] = {
      {.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}, {.key = "a", .key_len = 1}};
  corral_policy policy = lasting(anew);
  const corral_call *call = CORRAL_CALL(.policy = &policy);
  assert_int_equal(corral_get_many(c, items, 3, call, compute_many, NULL), CORRAL_OK);
  for (int i = 0; i < 3; i++) {
    char text[16];
    snprintf(text, sizeof text, "page %d", i == 1 ? of_b : of_a);
    if (items[i].status != CORRAL_OK) fail_msg("%d: %s", i, items[i].error.text);
    assert_int_equal(corral_value_size(items[i].value), strlen(text));
    assert_memory_equal(corral_value_data(items[i].value), text, strlen(text));
    assert_int_equal(corral_value_how(items[i].value), how);
    corral_value_unref(items[i].value);
  }
}

static void each_key_of_a_batch_is_replaced_once_or_stays(void **state) {
  (void)state;
  for (int near = 0; near < 2; near++) {
    corral *c = opened(near);
    get_many(c, 1, 1, 2, CORRAL_COMPUTED);
    get_many(c, 0, 1, 2, CORRAL_FRESH);
    get_many(c, 1, 3, 4, CORRAL_COMPUTED);
    get_many(c, 0, 3, 4, CORRAL_FRESH);
    fails = 1;
    get_many(c, 1, 3, 4, CORRAL_FRESH);
    assert_int_equal(computes, 6);
    get_many(c, 1, 3, 4, CORRAL_FRESH); /* the failure is remembered */
    get_many(c, 0, 3, 4, CORRAL_FRESH);
    assert_int_equal(computes, 6);
    corral_close(c);
  }
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_fresh_value_is_rebuilt_before_the_answer),
      T(behind_a_background_compute_there_is_no_answer_either),
      T(a_rebuild_that_fails_leaves_the_fresh_value_as_it_is),
      T(a_failure_that_is_remembered_leaves_it_too),
      T(nobody_waits_for_another_s_rebuild),
      T(without_the_store_a_copy_is_an_answer_only_if_that_fails),
      T(what_is_stored_and_copied_is_replaced_or_stays),
      T(each_key_of_a_batch_is_replaced_once_or_stays),
  };
  return cmocka_run_group_tests_name("anew", tests, NULL, NULL);
}
