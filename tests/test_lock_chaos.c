/* 50 processes, 2,000 acquisitions of one lock, on each store: first without faults, then with holders killed and stopped. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "support/herd_lab.h"
#include "support/lock_chaos.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { PROCESSES = 50, ACQUISITIONS = 2000 };

static void holds(const char *uri, int64_t ttl_ms, int faults) {
  lock_chaos calm = {.uri = uri, .processes = PROCESSES, .acquisitions = ACQUISITIONS, .ttl_ms = 20000};
  lock_chaos wild = {.uri = uri, .processes = PROCESSES, .acquisitions = ACQUISITIONS, .ttl_ms = ttl_ms, .kills = faults, .stops = faults};
  lock_chaos_outcome o = lock_chaos_run(&calm);
  printf("%-40.40s calm: %5lld ms, inside at once %d, refused %d, lost %d, errors %d\n", uri, (long long)o.took_ms, o.most, o.refused, o.lost, o.errors);
  if (o.errors > 0) fail_msg("%s: %s", uri, o.error);
  assert_int_equal(o.most, 1);
  assert_int_equal(o.lost, 0);
  assert_int_equal(o.refused, 0);
  assert_int_equal(o.counter, o.accepted);
  assert_int_equal(o.accepted, o.taken);
  o = lock_chaos_run(&wild);
  printf("%-40.40s wild: %5lld ms, refused %d, lost %d, errors %d\n", uri, (long long)o.took_ms, o.refused, o.lost, o.errors);
  if (o.errors > 0) fail_msg("%s: %s", uri, o.error);
  assert_int_equal(o.counter, o.accepted);
  assert_true(o.accepted + o.refused <= o.taken);
  assert_true(o.accepted >= o.taken - o.refused - 2 * faults);
}

static void no_two_holders_and_a_right_counter_on_lmdb(void **state) {
  (void)state;
  holds(lab_lmdb(lab_room, "locks"), 300, 6);
}

static void no_two_holders_and_a_right_counter_on_memcached(void **state) {
  (void)state;
  memcached_server *pair[2] = {0};
  if (!memcached_server_start(&pair[0], NULL) || !memcached_server_start(&pair[1], NULL)) skip();
  holds(memcached_server_pair_uri(pair), 300, 6);
  memcached_server_stop(pair[0]);
  memcached_server_stop(pair[1]);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
#define T(name) cmocka_unit_test_setup_teardown(name, lab_make_room, lab_leave_room)
  const struct CMUnitTest tests[] = {
      T(no_two_holders_and_a_right_counter_on_lmdb),
      T(no_two_holders_and_a_right_counter_on_memcached),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
