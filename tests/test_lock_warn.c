/* test_lock_warn.c: what is told of a hold before it ends. */
#include <unistd.h>

#include "support/lock_kit.h"
#include "support/redis_server.h"

enum { PATIENCE_MS = 30000, MORE = 3 };

static redis_server *server;
static _Atomic int warned, lost, warned_after_loss;
static _Atomic int64_t left;
static int extends; /* times that on_warn extends the hold */

static int open_both(const char *uri) {
  atomic_store(&warned, 0);
  atomic_store(&lost, 0);
  atomic_store(&warned_after_loss, 0);
  extends = 0;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 60000, .on_event = on_event,
                                              .event_arg = &a_lost),
                               &a, &error),
                   CORRAL_OK);
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri), &b, &error), CORRAL_OK);
  return 0;
}

static int setup(void **state) {
  (void)state;
  char uri[64];
  static int number;
  snprintf(uri, sizeof uri, "memory:warn%d", number++);
  return open_both(uri);
}

static int setup_redis(void **state) {
  (void)state;
  if (!redis_server_start(&server, NULL)) exit(77);
  return open_both(redis_server_uri(server));
}

static int end_redis(void **state) {
  close_both(state);
  redis_server_stop(server);
  return 0;
}

static void on_warn(corral_lock *lock, int64_t left_ms, void *arg) {
  assert_ptr_equal(arg, &left);
  atomic_store(&left, left_ms);
  atomic_fetch_add(&warned_after_loss, atomic_load(&lost));
  if (atomic_fetch_add(&warned, 1) < extends)
    assert_int_equal(corral_lock_extend(lock, 0, NULL), CORRAL_OK);
  corral_error why;
  assert_int_equal(corral_lock_release(lock, &why), CORRAL_EINVAL);
  assert_non_null(strstr(why.text, "within on_lost or on_warn"));
}

static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)lock, (void)why, (void)arg;
  atomic_fetch_add(&lost, 1);
}

#define WARNED(...)                                                                                \
  CORRAL_LOCK(.on_warn = on_warn, .warn_arg = &left, .on_lost = on_lost, __VA_ARGS__)

static void await(const _Atomic int *number, int least) {
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; atomic_load(number) < least;
       crl_env_pause_us(1000))
    if (crl_env_now_ms() > end) fail_msg("%d of %d", atomic_load(number), least);
}

/* Waits for the loss: so many warnings came before it, and none after. */
static void is_lost_after(corral_lock *lock, int warnings) {
  await(&lost, 1);
  assert_int_equal(atomic_load(&warned), warnings);
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_ELOST);
  assert_int_equal(atomic_load(&warned), warnings);
  assert_int_equal(atomic_load(&warned_after_loss), 0);
}

static void a_hold_that_isnt_kept_is_warned_of_once_before_its_end(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", WARNED(.ttl_ms = 5000, .warn_ms = 4900));
  await(&warned, 1);
  assert_in_range(atomic_load(&left), 1, 4900);
  is_lost_after(lock, 1);
}

static void after_an_extension_it_can_be_warned_of_again(void **state) {
  (void)state;
  extends = MORE;
  corral_lock *lock = take(a, "n", WARNED(.ttl_ms = 30000, .warn_ms = 29900));
  await(&warned, 1 + MORE);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(atomic_load(&warned), 1 + MORE);
}

static void a_kept_hold_is_warned_of_when_max_has_passed(void **state) {
  (void)state;
  corral_lock *lock =
      take(a, "n", WARNED(.ttl_ms = 9000, .warn_ms = 8900, .keep = 1, .max_ms = 100));
  await(&warned, 1);
  assert_int_equal(corral_counter(a, CORRAL_EVENT_LOCK_EXTENDED), 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void a_hold_that_is_extended_is_not_warned_of(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", WARNED(.ttl_ms = 6000, .warn_ms = 60000, .keep = 1));
  until(a, CORRAL_EVENT_LOCK_EXTENDED, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(atomic_load(&warned), 0);
}

static void a_nested_taking_is_warned_of_too(void **state) {
  (void)state;
  corral_lock *outer = take(a, "n", CORRAL_LOCK(.ttl_ms = 30000)),
              *inner = take(a, "n", WARNED(.ttl_ms = 1000, .warn_ms = 29900, .reentrant = 1));
  await(&warned, 1);
  assert_int_equal(corral_lock_extend(outer, 60000, NULL), CORRAL_OK);
  assert_int_equal(corral_lock_release(inner, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(outer, &error), CORRAL_OK);
}

static void a_kept_hold_whose_extensions_fail_is_warned_of_before_its_loss(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", WARNED(.ttl_ms = 9000, .warn_ms = 60000, .keep = 1));
  redis_server_kill(server);
  is_lost_after(lock, 1);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(a_hold_that_isnt_kept_is_warned_of_once_before_its_end),
      T(after_an_extension_it_can_be_warned_of_again),
      T(a_kept_hold_is_warned_of_when_max_has_passed),
      T(a_hold_that_is_extended_is_not_warned_of),
      T(a_nested_taking_is_warned_of_too),
      cmocka_unit_test_setup_teardown(
          a_kept_hold_whose_extensions_fail_is_warned_of_before_its_loss, setup_redis, end_redis),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
