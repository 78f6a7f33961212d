/* test_results.c: each call for a value has one result, whatever its way: counted once, with the
 * time of the origin that it saved. */
#include "support/loop_kit.h"

#include <corral.h>
#include <sched.h>
#include <unistd.h>

#include "support/stats_kit.h"

enum { HOUR_MS = 3600000 };

static const char *const off = "off";

/* ---- one call, one result ------------------------------------------------------------------ */

typedef struct counts {
  uint64_t all, results[CORRAL_RESULT_COUNT], saved;
} counts;

static counts counted(corral *c) {
  counts ret = {.all = 0};
  corral_stats *s = read_of(c);
  for (int i = 0; i < CORRAL_RESULT_COUNT; i++)
    ret.all += ret.results[i] = corral_stats_results(s, (corral_result)i);
  ret.saved = corral_stats_saved(s);
  corral_stats_free(s);
  return ret;
}

/* Since `before`, so many calls have ended, all with this result. */
static void ended(corral *c, const counts *before, corral_result result, uint64_t calls) {
  counts now = counted(c);
  if (now.all - before->all != calls || now.results[result] - before->results[result] != calls)
    for (int i = 0; i < CORRAL_RESULT_COUNT; i++)
      if (now.results[i] != before->results[i])
        print_message("%s: %d\n", corral_result_name((corral_result)i),
                      (int)(now.results[i] - before->results[i]));
  assert_int_equal(now.all - before->all, calls);
  assert_int_equal(now.results[result] - before->results[result], calls);
}

static size_t value_size = 5; /* the near tier copies small values, and refers to large ones */

static int compute_slowly(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  static const char value[4096];
  int64_t until = crl_env_now_us() + 3000;
  (void)key;
  (void)key_len;
  (void)arg;
  while (crl_env_now_us() < until) sched_yield();
  return corral_fill_bytes(fill, value, value_size);
}

static int compute_none(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_negative(fill);
  return CORRAL_OK;
}

static int compute_failing(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_fail(fill, 7, "no");
  return CORRAL_OK;
}

static int get_by(corral *c, const char *key, const corral_policy *policy,
                  corral_compute *compute) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = policy), compute,
                                     NULL, &value);
  corral_value_unref(value);
  return status;
}

/* Copies of looks made before the store's watch is up don't answer by themselves. */
static void await_near(corral *c, const char *key, const corral_policy *policy) {
  uint64_t before = counted(c).results[CORRAL_RESULT_NEAR];
  while (counted(c).results[CORRAL_RESULT_NEAR] == before)
    assert_int_equal(get_by(c, key, policy, compute_one), CORRAL_OK);
}

static void a_call_that_computes_saves_nothing_and_a_hit_saves_its_time(void **state) {
  (void)state;
  for (int which = 0; which < 4; which++) {
    int near = which % 2;
    value_size = which < 2 ? 5 : 4096;
    corral *c = open_counting(off, near ? 1 << 20 : 0, 0);
    const corral_policy *policy = CORRAL_POLICY(.ttl_ms = HOUR_MS, .near_ms = HOUR_MS);
    counts before = counted(c);
    assert_int_equal(get_by(c, "k", policy, compute_slowly), CORRAL_OK);
    ended(c, &before, CORRAL_RESULT_COMPUTED, 1);
    assert_int_equal(counted(c).saved, 0);
    if (near) await_near(c, "k", policy);
    do { /* the store's watch may tell of the fill, which ends the copy, until here */
      before = counted(c);
      for (int i = 0; i < 3; i++)
        assert_int_equal(get_by(c, "k", policy, compute_slowly), CORRAL_OK);
    } while (near &&
             counted(c).results[CORRAL_RESULT_FRESH] != before.results[CORRAL_RESULT_FRESH]);
    ended(c, &before, near ? CORRAL_RESULT_NEAR : CORRAL_RESULT_FRESH, 3);
    counts after = counted(c);
    uint64_t saved = after.saved - before.saved;
    assert_true(saved >= 9000 && saved % 3 == 0);
    corral_close(c);
  }
}

static void no_such_thing_and_nothing_there_are_results(void **state) {
  corral *c = open_counting(off, 0, 0);
  corral_value *value = NULL;
  (void)state;
  counts before = counted(c);
  assert_int_equal(get_by(c, "n", NULL, compute_none), CORRAL_ENOTFOUND);
  ended(c, &before, CORRAL_RESULT_COMPUTED, 1);
  before = counted(c);
  for (int i = 0; i < 2; i++)
    assert_int_equal(get_by(c, "n", NULL, compute_none), CORRAL_ENOTFOUND);
  ended(c, &before, CORRAL_RESULT_NEGATIVE, 2);
  before = counted(c);
  assert_int_equal(corral_get(c, "m", 1, NULL, &value), CORRAL_EMISS);
  ended(c, &before, CORRAL_RESULT_MISS, 1);
  corral_close(c);
}

static void a_failure_and_its_memory_are_failed(void **state) {
  corral *c = open_counting(off, 0, 0);
  (void)state;
  counts before = counted(c);
  for (int i = 0; i < 3; i++)
    assert_int_equal(get_by(c, "f",
                            CORRAL_POLICY(.retry_ms = HOUR_MS / 60, .retry_max_ms = HOUR_MS / 60),
                            compute_failing),
                     CORRAL_EFAILED);
  ended(c, &before, CORRAL_RESULT_FAILED, 3);
  corral_close(c);
}

static void a_value_past_its_life_is_stale(void **state) {
  corral *c = open_counting(off, 0, 0);
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = HOUR_MS, .sie_ms = HOUR_MS);
  (void)state;
  assert_int_equal(get_by(c, "s", policy, compute_slowly), CORRAL_OK);
  assert_int_equal(corral_expire(c, "s", 1, NULL), CORRAL_OK);
  counts before = counted(c);
  assert_int_equal(get_by(c, "s", policy, compute_failing), CORRAL_OK);
  ended(c, &before, CORRAL_RESULT_STALE, 1);
  assert_true(counted(c).saved >= before.saved + 3000);
  corral_close(c);
}

static void a_call_that_is_refused_has_no_result(void **state) {
  corral *c = open_counting(off, 0, 0);
  corral_value *value = NULL;
  (void)state;
  counts before = counted(c);
  assert_int_equal(corral_get(c, "", 0, NULL, &value), CORRAL_EINVAL);
  assert_int_equal(get_by(c, "k", CORRAL_POLICY(.ttl_ms = -7), compute_one), CORRAL_EINVAL);
  assert_int_equal(counted(c).all, before.all);
  corral_close(c);
}

static void each_key_of_several_has_a_result(void **state) {
  corral *c = open_counting(off, 0, 0);
  corral_item items[4] = {{.key = "a", .key_len = 1},
                          {.key = "b", .key_len = 1},
                          {.key = "c", .key_len = 1},
                          {.key = "", .key_len = 0}};
  (void)state;
  assert_int_equal(get_by(c, "a", NULL, compute_one), CORRAL_OK);
  counts before = counted(c);
  assert_int_equal(corral_get_many(c, items, 4, NULL, NULL, NULL), CORRAL_OK);
  corral_value_unref(items[0].value);
  counts after = counted(c);
  assert_int_equal(after.all - before.all, 3);
  assert_int_equal(after.results[CORRAL_RESULT_FRESH] - before.results[CORRAL_RESULT_FRESH], 1);
  assert_int_equal(after.results[CORRAL_RESULT_MISS] - before.results[CORRAL_RESULT_MISS], 2);
  corral_close(c);
}

/* ---- several callers ----------------------------------------------------------------------- */

enum { CALLERS = 6 };
static _Atomic int computing, may_end;

static int compute_when_told(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  atomic_store(&computing, 1);
  while (!atomic_load(&may_end)) sched_yield();
  return corral_fill_bytes(fill, "value", 5);
}

static void *get_joined(void *c) {
  return get_by(c, "j", CORRAL_POLICY(.ttl_ms = HOUR_MS), compute_when_told) == CORRAL_OK ? NULL
                                                                                          : c;
}

/* Callers may wait before the first of them has its lease: computes begin later. */
static void wait_for_gauges(corral *c, int64_t waiting, int64_t flights) {
  for (int is_so = 0; !is_so; sched_yield()) {
    corral_stats *s = read_of(c);
    is_so = corral_stats_gauge(s, CORRAL_GAUGE_WAITING) == waiting &&
            corral_stats_gauge(s, CORRAL_GAUGE_FLIGHTS) == flights;
    corral_stats_free(s);
  }
}

static void callers_who_wait_have_joined_and_are_a_gauge(void **state) {
  pthread_t threads[CALLERS];
  void *failed;
  corral *c = open_counting(off, 0, 0);
  (void)state;
  atomic_store(&computing, 0);
  atomic_store(&may_end, 0);
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, get_joined, c), 0);
  wait_for_gauges(c, CALLERS - 1, 1);
  atomic_store(&may_end, 1);
  for (int i = 0; i < CALLERS; i++) {
    assert_int_equal(pthread_join(threads[i], &failed), 0);
    assert_null(failed);
  }
  counts after = counted(c);
  assert_int_equal(after.all, CALLERS);
  assert_int_equal(after.results[CORRAL_RESULT_COMPUTED], 1);
  assert_int_equal(after.results[CORRAL_RESULT_JOINED], CALLERS - 1);
  assert_true(after.saved > 0 && after.saved % (CALLERS - 1) == 0);
  corral_stats *s = read_of(c);
  assert_int_equal(corral_stats_gauge(s, CORRAL_GAUGE_WAITING), 0);
  assert_int_equal(corral_stats_gauge(s, CORRAL_GAUGE_FLIGHTS), 0);
  corral_stats_free(s);
  corral_close(c);
}

static int compute_and_leave(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)fill;
  (void)key;
  (void)key_len;
  (void)arg;
  pthread_exit(NULL);
}

static void *get_and_leave(void *c) {
  (void)get_by(c, "left", NULL, compute_and_leave);
  return NULL;
}

static void a_call_whose_thread_ends_within_it_is_an_error(void **state) {
  pthread_t thread;
  corral *c = open_counting(off, 0, 0);
  (void)state;
  assert_int_equal(pthread_create(&thread, NULL, get_and_leave, c), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  counts after = counted(c);
  assert_int_equal(after.all, 1);
  assert_int_equal(after.results[CORRAL_RESULT_ERROR], 1);
  corral_stats *s = read_of(c);
  assert_int_equal(corral_stats_gauge(s, CORRAL_GAUGE_FLIGHTS), 0);
  corral_stats_free(s);
  corral_close(c);
}

static void a_deadline_and_a_cancelled_call_are_told_apart(void **state) {
  pthread_t thread;
  corral *c = open_counting(off, 0, 0);
  corral_cancel_token *token = corral_cancel_token_new();
  corral_value *value = NULL;
  void *failed;
  (void)state;
  atomic_store(&computing, 0);
  atomic_store(&may_end, 0);
  assert_int_equal(pthread_create(&thread, NULL, get_joined, c), 0);
  while (!atomic_load(&computing)) sched_yield();
  counts before = counted(c);
  assert_int_equal(get_by(c, "j", CORRAL_POLICY(.wait_ms = 1), compute_one), CORRAL_EDEADLINE);
  ended(c, &before, CORRAL_RESULT_DEADLINE, 1);
  before = counted(c);
  corral_cancel_token_cancel(token);
  assert_int_equal(corral_get_or_compute(c, "j", 1, CORRAL_CALL(.cancel_token = token), compute_one,
                                         NULL, &value),
                   CORRAL_ECANCELLED);
  ended(c, &before, CORRAL_RESULT_ERROR, 1);
  atomic_store(&may_end, 1);
  assert_int_equal(pthread_join(thread, &failed), 0);
  corral_cancel_token_free(token);
  corral_close(c);
}

/* ---- event loops --------------------------------------------------------------------------- */

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)error;
  *(int *)arg = status == CORRAL_OK ? 1 : status;
  corral_value_unref(value);
}

static void dispatch_until(corral_loop *loop, const int *done) {
  struct pollfd ready = {.fd = corral_loop_fd(loop), .events = POLLIN};
  while (*done == 0) {
    assert_int_equal(poll(&ready, 1, LOOP_PATIENCE_MS), 1);
    corral_loop_dispatch(loop);
  }
}

/* The one result that was counted since `before`. */
static corral_result result_since(corral *c, const counts *before) {
  counts now = counted(c);
  corral_result ret = CORRAL_RESULT_ERROR;
  assert_int_equal(now.all - before->all, 1);
  for (int i = 0; i < CORRAL_RESULT_COUNT; i++)
    if (now.results[i] != before->results[i]) ret = (corral_result)i;
  return ret;
}

static corral_result got_in_loop(corral *c, corral_loop *loop) {
  int done = 0;
  counts before = counted(c);
  assert_int_equal(
      corral_loop_get(loop, "k", 1, NULL, CORRAL_ASYNC(.done = on_done, .arg = &done), NULL),
      CORRAL_OK);
  dispatch_until(loop, &done);
  return result_since(c, &before);
}

/* A peek that finds no copy may find nothing. */
static corral_result peeked(corral *c, corral_loop *loop) {
  corral_value *value = NULL;
  counts before = counted(c);
  (void)loop;
  if (corral_peek(c, "k", 1, NULL, &value) == CORRAL_EMISS) return CORRAL_RESULT_MISS;
  corral_value_unref(value);
  return result_since(c, &before);
}

/* The word of the value's own fill comes late from the watch, and ends a copy once. */
static void hits(corral *c, corral_loop *loop, int near,
                 corral_result (*call)(corral *c, corral_loop *loop)) {
  corral_result result = CORRAL_RESULT_MISS;
  for (int i = 0; i < 10 && near && result != CORRAL_RESULT_NEAR; i++) {
    await_near(c, "k", NULL);
    result = call(c, loop);
  }
  if (!near) result = call(c, loop);
  assert_int_equal(result, near ? CORRAL_RESULT_NEAR : CORRAL_RESULT_FRESH);
}

static void calls_of_a_loop_have_a_result_each(void **state) {
  (void)state;
  for (int near = 0; near < 2; near++) {
    corral *c;
    corral_loop *loop;
    corral_value *value = NULL;
    assert_int_equal(
        corral_open(CORRAL_OPTIONS(.store = "memory:", .stats_dir = off, .compute = compute_one,
                                   .near_bytes = near ? 1 << 20 : 0,
                                   .policy = CORRAL_POLICY(.ttl_ms = HOUR_MS, .near_ms = HOUR_MS)),
                    &c, NULL),
        CORRAL_OK);
    assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
    counts before = counted(c);
    assert_int_equal(corral_peek(c, "k", 1, NULL, &value), CORRAL_EMISS);
    assert_int_equal(counted(c).all, before.all); /* the call comes after it */
    assert_int_equal(got_in_loop(c, loop), CORRAL_RESULT_COMPUTED);
    hits(c, loop, near, got_in_loop);
    hits(c, loop, near, peeked);
    corral_loop_close(loop);
    corral_close(c);
  }
}

static void a_call_of_a_loop_that_is_cancelled_is_an_error(void **state) {
  corral *c;
  corral_loop *loop;
  corral_async_call *call;
  int done = 0;
  (void)state;
  atomic_store(&computing, 0);
  atomic_store(&may_end, 0);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:", .stats_dir = off,
                                              .compute = compute_when_told),
                               &c, NULL),
                   CORRAL_OK);
  assert_int_equal(corral_loop_open(c, &loop, NULL), CORRAL_OK);
  counts before = counted(c);
  assert_int_equal(
      corral_loop_get(loop, "k", 1, NULL, CORRAL_ASYNC(.done = on_done, .arg = &done), &call),
      CORRAL_OK);
  while (!atomic_load(&computing)) sched_yield();
  corral_async_call_cancel(call);
  atomic_store(&may_end, 1);
  corral_loop_close(loop);
  ended(c, &before, CORRAL_RESULT_ERROR, 1);
  assert_int_equal(done, 0);
  corral_close(c);
}

static void every_row_has_a_name_and_a_sentence(void **state) {
  (void)state;
  for (int i = 0; i < CORRAL_RESULT_COUNT; i++) {
    assert_true(strlen(corral_result_name((corral_result)i)) > 1);
    assert_true(strlen(corral_result_text((corral_result)i)) > 10);
  }
  for (int i = 0; i < CORRAL_TIME_COUNT; i++) {
    assert_true(strlen(corral_time_name((corral_time)i)) > 1);
    assert_true(strlen(corral_time_text((corral_time)i)) > 10);
  }
  for (int i = 0; i < CORRAL_GAUGE_COUNT; i++) {
    assert_true(strlen(corral_gauge_name((corral_gauge)i)) > 1);
    assert_true(strlen(corral_gauge_text((corral_gauge)i)) > 9);
  }
  assert_string_equal(corral_result_name(CORRAL_RESULT_COUNT), "?");
  assert_string_equal(corral_time_text(CORRAL_TIME_COUNT), "?");
  assert_string_equal(corral_gauge_name(CORRAL_GAUGE_COUNT), "?");
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_call_that_computes_saves_nothing_and_a_hit_saves_its_time),
      cmocka_unit_test(no_such_thing_and_nothing_there_are_results),
      cmocka_unit_test(a_failure_and_its_memory_are_failed),
      cmocka_unit_test(a_value_past_its_life_is_stale),
      cmocka_unit_test(a_call_that_is_refused_has_no_result),
      cmocka_unit_test(each_key_of_several_has_a_result),
      cmocka_unit_test(callers_who_wait_have_joined_and_are_a_gauge),
      cmocka_unit_test(a_call_whose_thread_ends_within_it_is_an_error),
      cmocka_unit_test(a_deadline_and_a_cancelled_call_are_told_apart),
      cmocka_unit_test(calls_of_a_loop_have_a_result_each),
      cmocka_unit_test(a_call_of_a_loop_that_is_cancelled_is_an_error),
      cmocka_unit_test(every_row_has_a_name_and_a_sentence),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
