/* test_loop.c: event loops: the callbacks of a call, their arguments and their order, for every
 * kind of compute. */
#include "support/loop_kit.h"

#include <sys/resource.h>
#include <dirent.h>

#include "support/herd_lab.h"
#include "base/value.h"

static loop_desk opened(const corral_policy *policy) {
  return desk_open(CORRAL_OPTIONS(.store = store, .policy = policy));
}

/* ---- one call ------------------------------------------------------------------------------ */

static void a_call_is_answered_by_a_dispatch_and_never_within_itself(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request r = {.makes = "one"};
  ask(d.loop, "a", NULL, &r);
  assert_int_equal(r.dones + r.starts, 0);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_int_equal(r.dones, 1);
  assert_int_equal(r.starts, 1);
  assert_string_equal(r.text, "one");
  assert_int_equal(r.how, CORRAL_COMPUTED);
  request again = {.makes = "two"};
  ask(d.loop, "a", NULL, &again);
  RUN_UNTIL(d.loop, again.gones, 1);
  assert_string_equal(again.text, "one");
  assert_int_equal(again.how, CORRAL_FRESH);
  assert_int_equal(again.starts, 0);
  closed(&d);
}

static void *end_elsewhere(void *arg) {
  make(arg, "from elsewhere");
  return NULL;
}

static void a_compute_may_end_on_another_thread(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request r = {0};
  pthread_t thread;
  ask(d.loop, "a", NULL, &r);
  RUN_UNTIL(d.loop, r.starts, 1);
  assert_int_equal(r.dones, 0);
  pthread_create(&thread, NULL, end_elsewhere, &r);
  RUN_UNTIL(d.loop, r.gones, 1);
  pthread_join(thread, NULL);
  assert_string_equal(r.text, "from elsewhere");
  closed(&d);
}

static void a_failure_is_told_with_its_code_and_remembered(void **state) {
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.retry_ms = 60000, .retry_max_ms = 60000));
  request first = {0}, second = {.makes = "never"};
  ask(d.loop, "a", NULL, &first);
  RUN_UNTIL(d.loop, first.starts, 1);
  corral_fill_fail(first.fill, 42, "the database is gone");
  corral_fill_done(first.fill);
  RUN_UNTIL(d.loop, first.gones, 1);
  assert_int_equal(first.status, CORRAL_EFAILED);
  assert_int_equal(first.code, 42);
  assert_string_equal(first.text, "the database is gone");
  ask(d.loop, "a", NULL, &second);
  RUN_UNTIL(d.loop, second.gones, 1);
  assert_int_equal(second.starts, 0);
  assert_int_equal(second.status, CORRAL_EFAILED);
  closed(&d);
}

static void without_a_compute_a_call_only_looks(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request r = {0};
  assert_int_equal(ask_as(d.loop, "a", NULL, &r, 0), CORRAL_OK);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_int_equal(r.status, CORRAL_EMISS);
  assert_int_equal(r.starts, 0);
  closed(&d);
}

static void a_stale_value_is_answered_first_and_rebuilt_behind_the_answer(void **state) {
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.swr_ms = 600000));
  request r = {0}, fresh = {0};
  assert_int_equal(corral_set(d.c, "a", 1, NULL, "old", 3), CORRAL_OK);
  assert_int_equal(corral_expire(d.c, "a", 1, NULL), CORRAL_OK);
  ask(d.loop, "a", NULL, &r);
  RUN_UNTIL(d.loop, r.starts, 1);
  assert_int_equal(r.dones, 1);
  assert_string_equal(r.text, "old");
  assert_int_equal(r.how, CORRAL_STALE);
  assert_int_equal(r.gones, 0);
  make(&r, "new");
  RUN_UNTIL(d.loop, r.gones, 1);
  ask(d.loop, "a", NULL, &fresh);
  RUN_UNTIL(d.loop, fresh.gones, 1);
  assert_string_equal(fresh.text, "new");
  closed(&d);
}

static void a_call_ends_by_its_deadline_though_its_compute_hangs(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request leader = {0}, waiter = {0};
  const corral_policy *short_one = CORRAL_POLICY(.wait_ms = 30);
  ask(d.loop, "a", short_one, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", short_one, &waiter);
  RUN_UNTIL(d.loop, leader.dones + waiter.dones, 2);
  assert_int_equal(leader.status, CORRAL_EDEADLINE);
  assert_int_equal(waiter.status, CORRAL_EDEADLINE);
  RUN_UNTIL(d.loop, waiter.gones, 1); /* mail of its timer may still have been under way */
  request late = {0};
  ask(d.loop, "a", NULL, &late);
  make(&leader, "late");
  RUN_UNTIL(d.loop, late.gones + leader.gones, 2);
  assert_string_equal(late.text, "late");
  closed(&d);
}

static void at_its_deadline_a_call_may_compute_for_itself(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request leader = {0}, waiter = {.makes = "my own"};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", CORRAL_POLICY(.wait_ms = 20, .at_deadline = CORRAL_DEADLINE_COMPUTE), &waiter);
  RUN_UNTIL(d.loop, waiter.gones, 1);
  assert_string_equal(waiter.text, "my own");
  assert_true(waiter.is_alone);
  make(&leader, "everybody's");
  RUN_UNTIL(d.loop, leader.gones, 1);
  assert_string_equal(leader.text, "everybody's");
  closed(&d);
}

static void after_soft_ms_a_waiter_takes_what_is_stale(void **state) {
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.sie_ms = 600000));
  request leader = {0}, waiter = {0};
  assert_int_equal(corral_set(d.c, "a", 1, NULL, "old", 3), CORRAL_OK);
  assert_int_equal(corral_expire(d.c, "a", 1, NULL), CORRAL_OK);
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", CORRAL_POLICY(.soft_ms = 20), &waiter);
  RUN_UNTIL(d.loop, waiter.gones, 1);
  assert_string_equal(waiter.text, "old");
  assert_int_equal(leader.dones, 0);
  make(&leader, "new");
  RUN_UNTIL(d.loop, leader.gones, 1);
  assert_string_equal(leader.text, "new");
  closed(&d);
}

static void what_cant_be_cached_is_computed_by_each_for_itself(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request leader = {0}, waiter = {.makes = "his"};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  assert_false(leader.is_alone);
  ask(d.loop, "a", NULL, &waiter);
  corral_fill_pass(leader.fill);
  make(&leader, "mine");
  RUN_UNTIL(d.loop, leader.gones + waiter.gones, 2);
  assert_string_equal(leader.text, "mine");
  assert_string_equal(waiter.text, "his");
  assert_true(waiter.is_alone);
  closed(&d);
}

/* ---- many ---------------------------------------------------------------------------------- */

static int count_threads(void) {
  int count = 0;
  DIR *dir = opendir("/proc/self/task");
  while (readdir(dir) != NULL) count++;
  closedir(dir);
  return count - 2;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
size_t __sanitizer_get_current_allocated_bytes(void);
static size_t allocated(void) { return __sanitizer_get_current_allocated_bytes(); }
#else
#include <malloc.h>
static size_t allocated(void) { return mallinfo2().uordblks; }
#endif

static void ten_thousand_waiters_are_one_flight_and_no_threads(void **state) {
  enum { CROWD = 10000 };
  (void)state;
  loop_desk d = opened(NULL);
  request *crowd = calloc(CROWD, sizeof *crowd);
  request leader = {0};
  ask(d.loop, "a", CORRAL_POLICY(.wait_ms = 60000), &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  size_t before = allocated();
  for (int i = 0; i < CROWD; i++) ask(d.loop, "a", CORRAL_POLICY(.wait_ms = 60000), &crowd[i]);
  corral_loop_dispatch(d.loop);
  size_t each = (allocated() - before) / CROWD;
  int threads = count_threads();
  make(&leader, "x");
  RUN_UNTIL(d.loop, crowd[CROWD - 1].dones, 1);
  for (int i = 0; i < CROWD; i++) RUN_UNTIL(d.loop, crowd[i].dones, 1);
  print_message("[          ] %zu bytes a waiter, %d threads\n", each, threads);
  for (int i = 0; i < CROWD; i++) {
    assert_int_equal(crowd[i].starts, 0);
    assert_int_equal(crowd[i].how, CORRAL_JOINED);
    assert_string_equal(crowd[i].text, "x");
  }
  assert_true(each < 1024);
  assert_true(threads < 10);
  assert_int_equal(corral_counter(d.c, CORRAL_EVENT_COMPUTE), 1);
  RUN_UNTIL(d.loop, leader.gones, 1);
  free(crowd);
  closed(&d);
}

static void calls_of_another_corral_wait_without_threads(void **state) {
  enum { KEYS = 300 };
  (void)state;
  loop_desk d = opened(CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 60000)),
            other = opened(CORRAL_POLICY(.wait_ms = 60000));
  static request here[KEYS], there[KEYS];
  memset(here, 0, sizeof here);
  memset(there, 0, sizeof there);
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    ask(d.loop, key, NULL, &here[i]);
    RUN_UNTIL(d.loop, here[i].starts, 1);
    ask(other.loop, key, NULL, &there[i]);
  }
  await_counter(other.c, CORRAL_EVENT_WAIT, KEYS);
  assert_true(count_threads() < 16);
  for (int i = 0; i < KEYS; i++) make(&here[i], "x");
  for (int i = 0; i < KEYS; i++) RUN_UNTIL(other.loop, there[i].gones, 1);
  for (int i = 0; i < KEYS; i++) {
    assert_string_equal(there[i].text, "x");
    assert_int_equal(there[i].starts, 0);
  }
  for (int i = 0; i < KEYS; i++) RUN_UNTIL(d.loop, here[i].gones, 1);
  closed(&other);
  closed(&d);
}

static void at_max_computes_calls_wait_for_a_place_without_threads(void **state) {
  enum { KEYS = 40 };
  (void)state;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store, .max_computes = 3));
  request r[KEYS] = {{0}};
  int made = 0;
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    ask(d.loop, key, CORRAL_POLICY(.wait_ms = 60000), &r[i]);
  }
  while (made < KEYS) {
    int open = 0;
    turn(d.loop, crl_env_now_ms() + 50);
    for (int i = 0; i < KEYS; i++) open += r[i].fill != NULL;
    assert_true(open <= 3);
    for (int i = 0; i < KEYS; i++) {
      if (r[i].fill == NULL) continue;
      make(&r[i], "x");
      made++;
      break;
    }
  }
  for (int i = 0; i < KEYS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  for (int i = 0; i < KEYS; i++) assert_string_equal(r[i].text, "x");
  closed(&d);
}

/* ---- beside blocking callers --------------------------------------------------------------- */

static void *get_blocking(void *arg) {
  corral_value *value = NULL;
  int status = corral_get((corral *)arg, "a", 1, NULL, &value);
  assert_int_equal(status, CORRAL_OK);
  return value;
}

static int bound(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  atomic_int *count = arg;
  (void)key;
  (void)key_len;
  lab_add(count, 1);
  return corral_fill_bytes(fill, "bound", 5);
}

static void a_bound_compute_serves_loops_and_blocking_callers_alike(void **state) {
  (void)state;
  atomic_int count = 0;
  request r = {0}, stale = {0};
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store, .compute = bound, .compute_arg = &count,
                                         .policy = CORRAL_POLICY(.swr_ms = 600000)));
  assert_int_equal(ask_as(d.loop, "a", NULL, &r, 0), CORRAL_OK);
  corral_value *value = get_blocking(d.c);
  assert_memory_equal(corral_value_data(value), "bound", 5);
  corral_value_unref(value);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_string_equal(r.text, "bound");
  assert_int_equal(count, 1);
  corral_expire(d.c, "a", 1, NULL);
  assert_int_equal(ask_as(d.loop, "a", NULL, &stale, 0), CORRAL_OK);
  RUN_UNTIL(d.loop, stale.gones, 1);
  assert_int_equal(stale.how, CORRAL_STALE);
  assert_int_equal(count, 2);
  closed(&d);
}

static void a_blocking_caller_joins_the_flight_of_a_loop(void **state) {
  (void)state;
  atomic_int count = 0;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store, .compute = bound, .compute_arg = &count));
  request r = {0};
  pthread_t thread;
  void *value;
  ask(d.loop, "a", NULL, &r);
  RUN_UNTIL(d.loop, r.starts, 1);
  pthread_create(&thread, NULL, get_blocking, d.c);
  await_counter(d.c, CORRAL_EVENT_JOIN, 1);
  make(&r, "the loop's");
  pthread_join(thread, &value);
  assert_memory_equal(corral_value_data(value), "the loop's", 10);
  assert_int_equal(count, 0);
  corral_value_unref(value);
  RUN_UNTIL(d.loop, r.gones, 1);
  closed(&d);
}

static int invalidate(corral *c, void *arg, corral_error *error) {
  request *r = arg;
  return corral_invalidate(c, r->arg, strlen(r->arg), CORRAL_CALL(.error = error));
}

static void blocking_functions_are_had_by_run_async(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  char key[] = "a";
  request r = {.arg = key, .is_work = 1}, wrong = {.arg = key + 1, .is_work = 1};
  corral_set(d.c, "a", 1, NULL, "x", 1);
  assert_int_equal(
      corral_loop_run(d.loop, invalidate,
                      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r), NULL,
                      NULL),
      CORRAL_OK);
  assert_int_equal(
      corral_loop_run(d.loop, invalidate,
                      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &wrong), NULL,
                      NULL),
      CORRAL_OK);
  RUN_UNTIL(d.loop, r.gones + wrong.gones, 2);
  corral_value *value;
  assert_int_equal(corral_get(d.c, "a", 1, NULL, &value), CORRAL_EMISS);
  assert_int_equal(wrong.status, CORRAL_EINVAL);
  assert_string_equal(wrong.text, "the key is empty; accepted: 1 to 65536 bytes");
  closed(&d);
}

static void a_peek_never_leaves_the_thread(void **state) {
  (void)state;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store, .near_bytes = 1 << 20));
  corral_value *value = NULL;
  request r = {.makes = "x"};
  assert_int_equal(corral_peek(d.c, "a", 1, NULL, &value), CORRAL_EMISS);
  ask(d.loop, "a", NULL, &r);
  RUN_UNTIL(d.loop, r.gones, 1);
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  /* a look leaves a copy once the watch is open */
  while (corral_peek(d.c, "a", 1, NULL, &value) != CORRAL_OK) {
    request look = {0};
    assert_true(crl_env_now_ms() < until);
    ask(d.loop, "a", NULL, &look);
    RUN_UNTIL(d.loop, look.gones, 1);
  }
  assert_memory_equal(corral_value_data(value), "x", 1);
  corral_value_unref(value);
  assert_true(corral_counter(d.c, CORRAL_EVENT_NEAR) > 0);
  request near = {0};
  ask(d.loop, "a", NULL, &near);
  assert_int_equal(near.dones, 0);
  RUN_UNTIL(d.loop, near.gones, 1);
  assert_string_equal(near.text, "x");
  closed(&d);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void ask_itself(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  request *r = arg;
  request inner = {0};
  r->inner = corral_loop_get(
      r->arg, key, key_len, NULL,
      CORRAL_ASYNC(.done = request_done, .start = request_start, .arg = &inner), NULL);
  corral_fill_bytes(fill, "x", 1);
  corral_fill_done(fill);
  r->starts++;
}

static void bad_input_is_refused_before_any_callback(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  corral_error error;
  request r = {0};
  corral_async none = {.size = sizeof none};
  struct {
    corral_async known;
    int64_t unknown;
  } newer = {.known = {.size = sizeof newer, .done = request_done}, .unknown = 1};
  assert_int_equal(corral_loop_get(d.loop, "", 0, CORRAL_CALL(.error = &error),
                                   CORRAL_ASYNC(.done = request_done), NULL),
                   CORRAL_EINVAL);
  assert_string_equal(error.text, "the key is empty; accepted: 1 to 65536 bytes");
  assert_int_equal(corral_loop_get(d.loop, "a", 1, CORRAL_CALL(.error = &error), &none, NULL),
                   CORRAL_EINVAL);
  assert_string_equal(error.text, "no callback `done`");
  assert_int_equal(corral_loop_get(d.loop, "a", 1, NULL, NULL, NULL), CORRAL_EINVAL);
  assert_int_equal(corral_loop_get(d.loop, "a", 1, NULL, &newer.known, NULL), CORRAL_EOPTION);
  assert_int_equal(corral_loop_get(NULL, "a", 1, NULL, CORRAL_ASYNC(.done = request_done), NULL),
                   CORRAL_EINVAL);
  assert_int_equal(
      corral_loop_get(d.loop, "a", 1,
                      CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = -5), .error = &error),
                      CORRAL_ASYNC(.done = request_done), NULL),
      CORRAL_EINVAL);
  assert_int_equal(corral_loop_run(d.loop, NULL, CORRAL_ASYNC(.done = request_done), NULL, NULL),
                   CORRAL_EINVAL);
  assert_int_equal(corral_loop_open(NULL, &d.loop, &error), CORRAL_EINVAL);
  assert_int_equal(corral_loop_dispatch(d.loop), 0);
  r.arg = d.loop;
  assert_int_equal(corral_loop_get(d.loop, "a", 1, NULL,
                                   CORRAL_ASYNC(.done = request_done, .start = ask_itself,
                                                .gone = request_gone, .arg = &r),
                                   NULL),
                   CORRAL_OK);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_int_equal(r.starts, 1);
  assert_int_equal(r.inner, CORRAL_ERECURSION);
  closed(&d);
}

/* Of a newer header, whose new members are not used. */
static void longer_callbacks_are_accepted_if_their_tail_is_zero(void **state) {
  (void)state;
  loop_desk d = opened(NULL);
  request r = {.makes = "x"};
  struct {
    corral_async known;
    int64_t unknown;
  } newer = {.known = {.size = sizeof newer,
                       .done = request_done,
                       .start = request_start,
                       .gone = request_gone,
                       .arg = &r}};
  assert_int_equal(corral_loop_get(d.loop, "a", 1, NULL, &newer.known, NULL), CORRAL_OK);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_string_equal(r.text, "x");
  closed(&d);
}

static void without_memory_a_call_is_refused_or_answered(void **state) {
  (void)state;
  int refused = 0, answered = 0;
  for (int nth = 0; nth < 60; nth++) {
    char key[16];
    loop_desk d = opened(NULL);
    request r = {.makes = "x"};
    snprintf(key, sizeof key, "k%d", nth);
    atomic_store(&crl_alloc_countdown, nth);
    int status = ask_as(d.loop, key, NULL, &r, 1);
    if (status == CORRAL_OK) RUN_UNTIL(d.loop, r.gones, 1);
    atomic_store(&crl_alloc_countdown, -1);
    if (status != CORRAL_OK) {
      assert_int_equal(status, CORRAL_ENOMEM);
      assert_int_equal(r.dones + r.gones + r.starts, 0);
      refused++;
    } else {
      assert_int_equal(r.dones, 1);
      answered++;
    }
    closed(&d);
  }
  assert_true(refused > 0);
  assert_true(answered > 20);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_call_is_answered_by_a_dispatch_and_never_within_itself),
      TEST(a_compute_may_end_on_another_thread),
      TEST(a_failure_is_told_with_its_code_and_remembered),
      TEST(without_a_compute_a_call_only_looks),
      TEST(a_stale_value_is_answered_first_and_rebuilt_behind_the_answer),
      TEST(a_call_ends_by_its_deadline_though_its_compute_hangs),
      TEST(at_its_deadline_a_call_may_compute_for_itself),
      TEST(after_soft_ms_a_waiter_takes_what_is_stale),
      TEST(what_cant_be_cached_is_computed_by_each_for_itself),
      TEST(ten_thousand_waiters_are_one_flight_and_no_threads),
      TEST(calls_of_another_corral_wait_without_threads),
      TEST(at_max_computes_calls_wait_for_a_place_without_threads),
      TEST(a_bound_compute_serves_loops_and_blocking_callers_alike),
      TEST(a_blocking_caller_joins_the_flight_of_a_loop),
      TEST(blocking_functions_are_had_by_run_async),
      TEST(a_peek_never_leaves_the_thread),
      TEST(bad_input_is_refused_before_any_callback),
      TEST(longer_callbacks_are_accepted_if_their_tail_is_zero),
      TEST(without_memory_a_call_is_refused_or_answered),
  };
  return cmocka_run_group_tests_name("loop", tests, NULL, NULL);
}
