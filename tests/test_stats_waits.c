/* test_stats_waits.c: flights that wait for another process, or for a store, are listed as such.
 *
 * On a Redis of the test's own, which is stopped by a signal to be slow. Two corrals of one process
 * are to one another what two processes are. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include <corral/stats.h>

#include "os/env.h"
#include "support/redis_server.h"
#include "support/room.h"

enum { PATIENCE_MS = 30000, SHORT_OP = 300, LONG_OP = 40000 };

static redis_server *server;
static char folder[ROOM_PATH];

typedef struct calling {
  pthread_t thread;
  corral *c;
  atomic_int inside, open; /* the compute has begun; may end */
  int status;
} calling;

static corral *opened(int64_t host_lock, int64_t op_ms) {
  corral *c = NULL;
  corral_error error = {0};
  if (server == NULL) skip();
  corral_policy policy = {
      .size = sizeof policy, .wait_ms = 60000, .lease_ms = 60000, .lease_min_ms = 60000};
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .stats_dir = folder,
                                 .host_lock = host_lock, .op_ms = op_ms, .away_ms = 60000,
                                 .policy = &policy),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  calling *call = arg;
  atomic_store(&call->inside, 1);
  while (!atomic_load(&call->open)) crl_env_pause_us(1000);
  return corral_fill_bytes(fill, key, key_len);
}

static void *get(void *arg) {
  calling *call = arg;
  corral_value *value = NULL;
  call->status = corral_get_or_compute(call->c, "key", 3, NULL, compute, call, &value);
  corral_value_unref(value);
  return NULL;
}

static void begin(calling *call, int64_t host_lock) {
  *call = (calling){.c = opened(host_lock, LONG_OP)};
  redis_server_ask(server, "FLUSHALL");
  assert_int_equal(pthread_create(&call->thread, NULL, get, call), 0);
}

static void end(calling *call) {
  pthread_join(call->thread, NULL);
  assert_int_equal(call->status, CORRAL_OK);
  corral_close(call->c);
}

static int see(const corral_flight *flight, void *arg) {
  *(int *)arg = (int)flight->state;
  return 0;
}

/* The state of the only flight; -1: there is none. */
static int state_of(corral *c) {
  int state = -1;
  corral_stats *stats = NULL;
  assert_int_equal(corral_stats_read(c, &stats, NULL), CORRAL_OK);
  assert_true(corral_stats_flights(stats, see, &state) <= 1);
  corral_stats_free(stats);
  return state;
}

static void await_state(const calling *call, corral_flight_state state) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (state_of(call->c) != (int)state && crl_env_now_ms() < until) crl_env_pause_us(1000);
  assert_string_equal(corral_flight_name((corral_flight_state)state_of(call->c)),
                      corral_flight_name(state));
}

static void one_waits_for_another(int64_t host_lock) {
  calling leader, waiter;
  begin(&leader, host_lock);
  await_state(&leader, CORRAL_FLIGHT_COMPUTE);
  waiter = (calling){.c = opened(host_lock, LONG_OP)};
  assert_int_equal(pthread_create(&waiter.thread, NULL, get, &waiter), 0);
  await_state(&waiter, CORRAL_FLIGHT_WAIT);
  assert_int_equal(state_of(leader.c), CORRAL_FLIGHT_COMPUTE);
  atomic_store(&leader.open, 1);
  end(&leader);
  end(&waiter);
  assert_int_equal(waiter.inside, 0);
}

static void a_flight_that_waits_for_a_lease_is_listed_as_waiting(void **state) {
  (void)state;
  one_waits_for_another(CORRAL_OFF);
}

static void one_that_waits_for_the_hosts_lock_is_too(void **state) {
  (void)state;
  one_waits_for_another(1);
}

static void one_that_waits_for_a_slow_store_is_listed_as_slow(void **state) {
  (void)state;
  calling call = {.c = opened(CORRAL_OFF, SHORT_OP), .open = 1};
  redis_server_ask(server, "FLUSHALL");
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(call.c, "first", 5, NULL, compute, &call, &value),
                   CORRAL_OK); /* connects */
  corral_value_unref(value);
  redis_server_pause(server);
  assert_int_equal(pthread_create(&call.thread, NULL, get, &call), 0);
  await_state(&call, CORRAL_FLIGHT_SLOW);
  redis_server_resume(server);
  end(&call);
}

static void what_was_computed_is_listed_until_it_is_stored(void **state) {
  (void)state;
  calling call;
  begin(&call, CORRAL_OFF);
  await_state(&call, CORRAL_FLIGHT_COMPUTE);
  redis_server_pause(server);
  atomic_store(&call.open, 1);
  await_state(&call, CORRAL_FLIGHT_SETTLE);
  redis_server_resume(server);
  end(&call);
}

static int start(void **state) {
  (void)state;
  room_folder(folder, "stats");
  (void)redis_server_start(&server, NULL);
  return 0;
}

static int stop(void **state) {
  (void)state;
  if (server != NULL) redis_server_stop(server);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_flight_that_waits_for_a_lease_is_listed_as_waiting),
      cmocka_unit_test(one_that_waits_for_the_hosts_lock_is_too),
      cmocka_unit_test(one_that_waits_for_a_slow_store_is_listed_as_slow),
      cmocka_unit_test(what_was_computed_is_listed_until_it_is_stored),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
