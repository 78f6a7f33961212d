/* test_lock_fence.c: fencing tokens that a second store counts, while a real Redis forgets them and
 * its clock is behind. */
#include <unistd.h>

#include "support/folder_kit.h"
#include "support/lock_kit.h"
#include "support/redis_server.h"

static redis_server *ahead, *server;
static char counters[ROOM_PATH + 32];

/* Takes the lock in a corral that has seen no fencing token yet: *ret is the one it is given. */
static int fence_of(const redis_server *of, const char *counted, int shared, uint64_t *ret) {
  corral *c, *by = NULL;
  corral_lock *lock;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = redis_server_uri(of), .op_ms = 10000,
                                              .on_event = on_event, .event_arg = &a_lost),
                               &c, &error),
                   CORRAL_OK);
  if (counted != NULL)
    assert_int_equal(corral_open(CORRAL_OPTIONS(.store = counted, .op_ms = 10000), &by, &error),
                     CORRAL_OK);
  int status = corral_lock_take(
      c, "n", 1, CORRAL_LOCK(.fence = by, .wait_ms = CORRAL_OFF, .shared = shared), &lock, &error);
  if (status == CORRAL_OK) {
    *ret = corral_lock_fence(lock);
    assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  }
  corral_close(by);
  corral_close(c);
  return status;
}

/* The first server stands for the one before its restart, an hour ahead of the one after it. */
static int start(void **state) {
  (void)state;
  const char *odd = getenv("CORRAL_ODD_CLOCK");
#if !CORRAL_HAVE_sqlite
  exit(77);
#endif
  assert_non_null(odd);
  if (!redis_server_start(&server, NULL)) exit(77);
  make_folder(NULL);
  setenv("LD_PRELOAD", odd, 1);
  setenv("CORRAL_ODD_CLOCK_MS", "3600000", 1);
  assert_int_equal(redis_server_start(&ahead, NULL), 1);
  unsetenv("LD_PRELOAD");
  unsetenv("CORRAL_ODD_CLOCK_MS");
  return 0;
}

static int stop(void **state) {
  redis_server_stop(server);
  redis_server_stop(ahead);
  return remove_folder(state);
}

static int setup(void **state) {
  (void)state;
  static unsigned number;
  redis_server_ask(server, "FLUSHALL");
  redis_server_ask(ahead, "FLUSHALL");
  snprintf(counters, sizeof counters, "sqlite:%s/%u.db", folder, number++);
  return 0;
}

static void
a_server_that_forgot_and_is_behind_gives_larger_tokens_where_another_store_counts(void **state) {
  (void)state;
  uint64_t before, after, last;
  assert_int_equal(fence_of(ahead, NULL, -1, &before), CORRAL_OK);
  assert_int_equal(fence_of(server, NULL, -1, &after), CORRAL_OK);
  assert_true(after < before); /* without a counter */
  assert_int_equal(fence_of(ahead, counters, -1, &last), CORRAL_OK);
  assert_true(last > before);
  for (int i = 0; i < 4; i++) {
    redis_server_ask(server, "FLUSHALL");
    assert_int_equal(fence_of(server, counters, i % 2 ? 1 : -1, &after), CORRAL_OK);
    assert_true(after > last);
    last = after;
  }
  /* the lock's own store has it, for those without a counter */
  assert_int_equal(fence_of(server, NULL, -1, &after), CORRAL_OK);
  assert_true(after > last);
}

static void where_the_counter_cant_be_asked_the_hold_is_given_back(void **state) {
  (void)state;
  uint64_t fence = 0;
  assert_int_equal(fence_of(server, "redis+unix:///proc/no", -1, &fence), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "the fencing counter: "));
  assert_int_equal(fence_of(server, NULL, -1, &fence), CORRAL_OK); /* it is free */
}

static void a_store_does_not_count_for_its_own_locks(void **state) {
  (void)state;
  corral *c;
  corral_lock *lock;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = counters), &c, &error), CORRAL_OK);
  assert_int_equal(corral_lock_take(c, "n", 1, CORRAL_LOCK(.fence = c), &lock, &error),
                   CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "another store"));
  corral_close(c);
}

enum { READERS = 8 };

static corral *by;

static void *read_and_count(void *arg) {
  corral_lock *lock;
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 10000), &c, NULL) !=
      CORRAL_OK)
    abort();
  if (corral_lock_take(c, "n", 1, CORRAL_LOCK(.fence = by, .shared = 1, .wait_ms = 30000), &lock,
                       NULL) == CORRAL_OK) {
    *(uint64_t *)arg = corral_lock_fence(lock);
    corral_lock_release(lock, NULL);
  }
  corral_close(c);
  return NULL;
}

static void readers_that_count_at_the_same_time_have_tokens_of_their_own(void **state) {
  (void)state;
  uint64_t fences[READERS] = {0};
  pthread_t threads[READERS];
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = counters, .op_ms = 10000), &by, &error),
                   CORRAL_OK);
  for (int i = 0; i < READERS; i++)
    if (pthread_create(&threads[i], NULL, read_and_count, &fences[i]) != 0) abort();
  for (int i = 0; i < READERS; i++) pthread_join(threads[i], NULL);
  corral_close(by);
  for (int i = 0; i < READERS; i++) {
    assert_true(fences[i] > 0);
    for (int j = 0; j < i; j++) assert_true(fences[i] != fences[j]);
  }
}

int main(void) {
#define T(name) cmocka_unit_test_setup(name, setup)
  const struct CMUnitTest tests[] = {
      T(a_server_that_forgot_and_is_behind_gives_larger_tokens_where_another_store_counts),
      T(where_the_counter_cant_be_asked_the_hold_is_given_back),
      T(a_store_does_not_count_for_its_own_locks),
      T(readers_that_count_at_the_same_time_have_tokens_of_their_own),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
