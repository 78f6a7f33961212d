/* test_unwind.c: threads that are cancelled or exit inside a compute. Leases last a minute, so
 * another call can lead only if the lease was given back. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <corral/loop.h>

#include "os/env.h"

enum { WATCHDOG_S = 60, LEASE_MS = 60000, WAIT_MS = 30000 };

static corral *a, *b; /* two corrals on one store */
static corral_error error;
static atomic_int begun;  /* computes begun */
static atomic_int leaves; /* number of computes that still have to leave their thread */
static atomic_int gate;   /* exiting computes may leave */
/* 1: these computes call pthread_exit; 0: they wait for their cancellation */
static int exits;

static corral *open_with(int64_t max_computes, corral_compute *compute) {
  static int number;
  static char uri[64];
  corral *c = NULL;
  if (max_computes == 0) snprintf(uri, sizeof uri, "memory:unwind%d", number++);
  int status = corral_open(
      CORRAL_OPTIONS(.store = uri, .workers = 1, .max_computes = max_computes, .compute = compute,
                     .policy = CORRAL_POLICY(.lease_ms = LEASE_MS, .lease_min_ms = LEASE_MS,
                                             .wait_ms = WAIT_MS)),
      &c, &error);
  if (status != CORRAL_OK) fail_msg("%s", error.text);
  return c;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg);

static int setup(void **state) {
  (void)state;
  alarm(WATCHDOG_S);
  atomic_store(&begun, 0);
  atomic_store(&leaves, 1);
  atomic_store(&gate, 0);
  exits = 0;
  b = open_with(0, NULL);
  a = open_with(1, compute);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  corral_close(a);
  corral_close(b);
  return 0;
}

static void await(atomic_int *counter, int least) {
  while (atomic_load(counter) < least) crl_env_pause_us(200);
}

static void await_event(corral *c, corral_event event, uint64_t least) {
  while (corral_counter(c, event) < least) crl_env_pause_us(200);
}

/* Runs until the thread is cancelled. */
static void await_cancel(void) {
  for (;;) {
    pthread_testcancel();
    sched_yield();
  }
}

/* Doesn't return if this compute has to leave. */
static void maybe_leave(void) {
  if (atomic_fetch_sub(&leaves, 1) <= 0) return;
  atomic_fetch_add(&begun, 1);
  if (exits) {
    await(&gate, 1);
    pthread_exit(NULL);
  }
  await_cancel();
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  maybe_leave();
  atomic_fetch_add(&begun, 1);
  return corral_fill_bytes(fill, "answer", 6);
}

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  maybe_leave();
  for (size_t i = 0; i < count; i++) (void)corral_fill_bytes(fills[i], "answer", 6);
  return CORRAL_OK;
}

static int ask(corral *c, const char *key) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.error = &error), compute,
                                     NULL, &value);
  corral_value_unref(value);
  return status;
}

static void *asker(void *key) { return (void *)(intptr_t)ask(a, key); }

static pthread_t start(void *(*run)(void *), void *arg) {
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, run, arg), 0);
  return thread;
}

/* Waits until the thread's compute has begun, makes it leave (by_itself: by pthread_exit, else by
 * cancellation), and joins it. */
static void leave_by(pthread_t thread, int by_itself) {
  void *result = NULL;
  await(&begun, 1);
  if (by_itself)
    atomic_store(&gate, 1);
  else
    pthread_cancel(thread);
  pthread_join(thread, &result);
  assert_true(by_itself ? result == NULL : result == PTHREAD_CANCELED);
}

/* ---- on the caller's thread ---------------------------------------------------------------- */

static void the_lease_of_a_cancelled_leader_is_given_back_and_its_place_too(void **state) {
  (void)state;
  leave_by(start(asker, "key"), 0);
  assert_int_equal(ask(b, "key"), CORRAL_OK);
  assert_int_equal(begun, 2);
  /* only possible when the place under max_computes was given back */
  assert_int_equal(ask(a, "another"), CORRAL_OK);
}

static void the_lease_of_a_leader_whose_thread_ends_inside_its_compute_is_given_back(void **state) {
  (void)state;
  exits = 1;
  leave_by(start(asker, "key"), 1);
  assert_int_equal(ask(b, "key"), CORRAL_OK);
  assert_int_equal(begun, 2);
}

static void who_joined_a_cancelled_leader_leads_on(void **state) {
  (void)state;
  void *result = NULL;
  pthread_t leader = start(asker, "key");
  await(&begun, 1);
  pthread_t joiner = start(asker, "key");
  await_event(a, CORRAL_EVENT_JOIN, 1);
  leave_by(leader, 0);
  pthread_join(joiner, &result);
  assert_int_equal((intptr_t)result, CORRAL_OK);
  assert_int_equal(begun, 2);
}

static int ask_inside(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  (void)ask(b, "inner");
  return corral_fill_bytes(fill, "answer", 6);
}

static void *outer_asker(void *arg) {
  corral_value *value = NULL;
  (void)arg;
  return (void *)(intptr_t)corral_get_or_compute(a, "outer", 5, NULL, ask_inside, NULL, &value);
}

static void a_compute_within_a_compute_gives_both_leases_back(void **state) {
  (void)state;
  leave_by(start(outer_asker, NULL), 0);
  assert_int_equal(ask(b, "outer"), CORRAL_OK);
  assert_int_equal(ask(b, "inner"), CORRAL_OK);
}

static void *many_asker(void *arg) {
  corral_item items[] = {
      {.key = "one", .key_len = 3}, {.key = "two", .key_len = 3}, {.key = "one", .key_len = 3}};
  (void)arg;
  (void)corral_get_many(a, items, 3, NULL, compute_many, NULL);
  return NULL;
}

static void all_leases_of_a_cancelled_call_for_many_keys_are_given_back(void **state) {
  (void)state;
  leave_by(start(many_asker, NULL), 0);
  assert_int_equal(ask(b, "one"), CORRAL_OK);
  assert_int_equal(ask(b, "two"), CORRAL_OK);
  assert_int_equal(ask(a, "three"), CORRAL_OK);
}

/* Waits for the leader's compute; the cancellation takes effect only after the call has
 * returned. */
static void *late_asker(void *status) {
  *(atomic_int *)status = 1 + ask(a, "key");
  await_cancel();
  return NULL;
}

static void a_cancelled_waiter_ends_when_its_call_has_returned(void **state) {
  (void)state;
  void *result = NULL;
  atomic_int status = 0;
  pthread_t leader = start(asker, "key");
  await(&begun, 1);
  pthread_t waiter = start(late_asker, &status);
  await_event(a, CORRAL_EVENT_JOIN, 1);
  pthread_cancel(waiter);
  leave_by(leader, 0);
  pthread_join(waiter, &result);
  assert_ptr_equal(result, PTHREAD_CANCELED);
  /* 0: it led and was cancelled inside its compute; else it got the value */
  assert_true(status == 0 || status == 1 + CORRAL_OK);
  assert_int_equal(ask(b, "key"), CORRAL_OK);
}

/* ---- on the library's threads -------------------------------------------------------------- */

static void a_bound_compute_that_ends_its_thread_is_begun_anew_on_another(void **state) {
  (void)state;
  corral_value *value = NULL;
  exits = 1;
  atomic_store(&gate, 1);
  atomic_store(&leaves, 3);
  assert_int_equal(corral_get(a, "key", 3, CORRAL_CALL(.error = &error), &value), CORRAL_OK);
  corral_value_unref(value);
  assert_int_equal(begun, 4);
}

typedef struct ending {
  int status, done;
} ending;

static void on_done(void *arg, int status, corral_value *value, const corral_error *detail) {
  ending *e = arg;
  (void)detail;
  corral_value_unref(value);
  *e = (ending){.status = status, .done = 1};
}

static int work_and_exit(corral *c, void *arg, corral_error *detail) {
  (void)c;
  (void)arg;
  (void)detail;
  pthread_exit(NULL);
  return CORRAL_OK;
}

static void dispatch_until_done(corral_loop *loop, const ending *e) {
  while (!e->done) {
    crl_env_pause_us(200);
    corral_loop_dispatch(loop);
  }
}

static void a_loop_s_compute_and_function_that_end_their_thread_are_told(void **state) {
  (void)state;
  corral_loop *loop = NULL;
  ending e = {0};
  exits = 1;
  atomic_store(&gate, 1);
  assert_int_equal(corral_loop_open(a, &loop, &error), CORRAL_OK);
  assert_int_equal(
      corral_loop_get(loop, "key", 3, NULL, CORRAL_ASYNC(.done = on_done, .arg = &e), NULL),
      CORRAL_OK);
  dispatch_until_done(loop, &e);
  assert_int_equal(e.status, CORRAL_OK);
  assert_int_equal(begun, 2);
  e = (ending){0};
  assert_int_equal(
      corral_loop_run(loop, work_and_exit, CORRAL_ASYNC(.done = on_done, .arg = &e), NULL, NULL),
      CORRAL_OK);
  dispatch_until_done(loop, &e);
  assert_int_equal(e.status, CORRAL_ECANCELLED);
  corral_loop_close(loop);
}

static void hit(corral *c) {
  corral_value *value = NULL;
  const corral_policy *policy = CORRAL_POLICY(.verify_ppm = 1000000);
  assert_int_equal(corral_get(c, "key", 3, CORRAL_CALL(.policy = policy), &value), CORRAL_OK);
  corral_value_unref(value);
}

static void a_verification_whose_thread_ends_gives_its_place_back_and_others_follow(void **state) {
  (void)state;
  exits = 1;
  atomic_store(&gate, 1);
  atomic_store(&leaves, 0);
  hit(a);
  atomic_store(&begun, 0);
  atomic_store(&leaves, 1);
  while (corral_counter(a, CORRAL_EVENT_VERIFIED) == 0) {
    hit(a);
    crl_env_pause_us(200);
  }
  /* each but the one that left tells a verdict; another one may have followed */
  while ((uint64_t)begun != 1 + corral_counter(a, CORRAL_EVENT_VERIFIED)) crl_env_pause_us(200);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_DIFFERS), 0);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_UNVERIFIED), 0);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, tear_down)
  const struct CMUnitTest tests[] = {
      T(the_lease_of_a_cancelled_leader_is_given_back_and_its_place_too),
      T(the_lease_of_a_leader_whose_thread_ends_inside_its_compute_is_given_back),
      T(who_joined_a_cancelled_leader_leads_on),
      T(a_compute_within_a_compute_gives_both_leases_back),
      T(all_leases_of_a_cancelled_call_for_many_keys_are_given_back),
      T(a_cancelled_waiter_ends_when_its_call_has_returned),
      T(a_bound_compute_that_ends_its_thread_is_begun_anew_on_another),
      T(a_loop_s_compute_and_function_that_end_their_thread_are_told),
      T(a_verification_whose_thread_ends_gives_its_place_back_and_others_follow),
  };
  return cmocka_run_group_tests_name("unwind", tests, NULL, NULL);
}
