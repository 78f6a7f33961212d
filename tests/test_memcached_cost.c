/* test_memcached_cost.c: round trips of whole calls on memcached, and the system calls on its
 * connection. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <sys/socket.h>

#include "support/memcached_server.h"

enum { FAR = 60000, TIMES = 20 };

/* Of the thread that calls. A round trip is a read that got something, the first since a write. */
static _Thread_local struct counts { int trips, sends, peeks; } now;
static _Thread_local int asked;

ssize_t __real_send(int fd, const void *data, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t size, int flags);
ssize_t __wrap_send(int fd, const void *data, size_t size, int flags) {
  now.sends++;
  asked = 1;
  return __real_send(fd, data, size, flags);
}

ssize_t __real_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags) {
  ssize_t n = __real_recv(fd, data, size, flags);
  now.peeks += (flags & MSG_PEEK) != 0;
  if (n > 0 && asked && (flags & MSG_PEEK) == 0) {
    now.trips++;
    asked = 0;
  }
  return n;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "42", 2);
}

static int none(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_negative(fill);
  return CORRAL_OK;
}

static corral *cache;

static struct counts cost_of(const char *key, corral_compute *how, int status, int behind) {
  corral_value *value = NULL;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = FAR, .wait_ms = FAR, .settle_behind = behind);
  struct counts before = now;
  assert_int_equal(corral_get_or_compute(cache, key, strlen(key), CORRAL_CALL(.policy = policy),
                                         how, NULL, &value),
                   status);
  corral_value_unref(value);
  return (struct counts){now.trips - before.trips, now.sends - before.sends,
                         now.peeks - before.peeks};
}

/* The cheapest of several calls: after a pause of this process one also asks for the time. */
static struct counts cheaper(struct counts a, struct counts b) { return b.trips < a.trips ? b : a; }

static void a_miss_is_four_round_trips_and_a_hit_one(void **state) {
  (void)state;
  struct counts miss = {.trips = FAR}, hit = miss;
  (void)cost_of("first", compute, CORRAL_OK, CORRAL_OFF); /* greets the server, too */
  for (int i = 0; i < TIMES; i++) {
    char key[24];
    snprintf(key, sizeof key, "key:%d", i);
    miss = cheaper(miss, cost_of(key, compute, CORRAL_OK, CORRAL_OFF));
    hit = cheaper(hit, cost_of(key, compute, CORRAL_OK, CORRAL_OFF));
  }
  assert_int_equal(miss.trips, 4);
  assert_int_equal(miss.sends, 4);
  assert_int_equal(miss.peeks, 1); /* an add can't be repeated */
  assert_int_equal(hit.trips, 1);
  assert_int_equal(hit.sends, 1);
  assert_int_equal(hit.peeks, 0);
}

static void a_no_such_thing_costs_the_same(void **state) {
  (void)state;
  struct counts miss = {.trips = FAR}, hit = miss;
  for (int i = 0; i < TIMES; i++) {
    char key[24];
    snprintf(key, sizeof key, "none:%d", i);
    miss = cheaper(miss, cost_of(key, none, CORRAL_ENOTFOUND, CORRAL_OFF));
    hit = cheaper(hit, cost_of(key, none, CORRAL_ENOTFOUND, CORRAL_OFF));
  }
  assert_int_equal(miss.trips, 4);
  assert_int_equal(hit.trips, 1);
}

static void with_settle_behind_the_caller_waits_for_two(void **state) {
  (void)state;
  int trips = 0;
  for (int i = 0; i < TIMES && trips != 2; i++) {
    char key[24];
    snprintf(key, sizeof key, "behind:%d", i);
    trips = cost_of(key, compute, CORRAL_OK, 1).trips;
  }
  assert_int_equal(trips, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_miss_is_four_round_trips_and_a_hit_one),
      cmocka_unit_test(a_no_such_thing_costs_the_same),
      cmocka_unit_test(with_settle_behind_the_caller_waits_for_two),
  };
  memcached_server *server;
  corral_error error;
  if (!memcached_server_start(&server, NULL)) return 77;
  if (corral_open(CORRAL_OPTIONS(.store = memcached_server_uri(server), .op_ms = FAR / 2), &cache,
                  &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  int failed = cmocka_run_group_tests_name("memcached_cost", tests, NULL, NULL);
  corral_close(cache);
  memcached_server_stop(server);
  return failed;
}
