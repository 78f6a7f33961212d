/* test_lease.c: the first lease of a compute: a leader that is stopped for longer than it stores
 * its value all the same when nobody took over; one that is killed is replaced at its end, long
 * before lease_ms. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include "policy/policy.h"
#include "record/record.h"
#include "support/herd_lab.h"
#include "support/memcached_server.h"
#include "support/redis_server.h"

enum { GATE, DONE, STORED }; /* lab marks */
enum { STOP_MS = 1000, LONG_LEASE_MS = 60000, TRIES = 5 };

static redis_server *redis;
static memcached_server *memcached;

static const corral_policy defaults = {.size = sizeof(corral_policy), .wait_ms = 50000},
                           long_lease = {.size = sizeof(corral_policy),
                                         .wait_ms = 50000,
                                         .lease_ms = LONG_LEASE_MS};

/* ---- stopped ------------------------------------------------------------------------------- */

static void lead(lab_seat *seat) {
  lab *l = seat->lab;
  lab_work work = {.key = 0, .gate = &l->marks[GATE]};
  lab_answer answer = lab_ask(seat, &defaults, &work);
  if (answer.status != CORRAL_OK || answer.number != 1)
    lab_wrong(l, "%s: %s", corral_status_name(answer.status), answer.error.text);
  lab_add(&l->marks[STORED], answer.kept == CORRAL_KEPT);
  lab_add(&l->marks[DONE], 1);
}

static int64_t lease_left(corral *c) {
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(corral_inspect(c, "key-0", 5, NULL, &seen), CORRAL_OK);
  return seen.lease_left_ms;
}

/* Stops the leader for STOP_MS and until its lease is over. Returns 1 when its value was stored, 0
 * when this machine was so slow that the key was gone before. */
static int stop_once(lab *l, const char *uri) {
  corral *c = NULL;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, NULL), CORRAL_OK);
  assert_int_equal(corral_invalidate(c, "key-0", 5, NULL), CORRAL_OK);
  int64_t over = lab_now_us(); /* the lease wasn't over before */
  lab_spawn(l, &(lab_plan){.uri = uri, .processes = 1, .threads = 1, .body = lead});
  lab_await(l, &l->keys[0].computes, 1);
  lab_stop(l, 0);
  int64_t stopped = lab_now_us();
  for (int64_t looked = stopped; lease_left(c) > 0; looked = lab_now_us()) {
    over = looked;
    lab_sleep_ms(2);
  }
  lab_sleep_until_us(stopped + 1000 * STOP_MS);
  lab_continue(l, 0);
  lab_add(&l->marks[GATE], 1);
  lab_await(l, &l->marks[DONE], 1);
  int64_t late_ms = (lab_now_us() - over) / 1000;
  lab_end(l);
  int stored = atomic_load(&l->marks[STORED]), status = lab_look(l, c, 0).status;
  assert_true(stored || late_ms >= CORRAL_LEASE_KEPT_MS);
  assert_int_equal(status, stored ? CORRAL_OK : CORRAL_EMISS);
  assert_int_equal(l->keys[0].computes, 1);
  assert_int_equal(l->events[0][CORRAL_EVENT_FILL], stored);
  if (stored) assert_int_equal(l->events[0][CORRAL_EVENT_LEASE_LOST], 0);
  corral_close(c);
  return stored;
}

/* `uri` NULL: lmdb. */
static void stop_a_leader(const char *uri) {
  int stored = 0;
  for (int i = 0; i < TRIES && !stored; i++) {
    lab *l = lab_new();
    stored = stop_once(l, uri != NULL ? uri : lab_lmdb(l, "store"));
    lab_free(l);
  }
  assert_true(stored);
}

static void a_leader_stopped_beyond_its_first_lease_stores_its_value_on_redis(void **state) {
  (void)state;
  if (redis == NULL) skip();
  stop_a_leader(redis_server_unix_uri(redis));
}

static void a_leader_stopped_beyond_its_first_lease_stores_its_value_on_memcached(void **state) {
  (void)state;
  if (memcached == NULL) skip();
  stop_a_leader(memcached_server_uri(memcached));
}

static void a_leader_stopped_beyond_its_first_lease_stores_its_value_on_lmdb(void **state) {
  (void)state;
  stop_a_leader(NULL);
}

/* ---- killed -------------------------------------------------------------------------------- */

/* The second process asks when the first one computes. */
static void lead_or_wait(lab_seat *seat) {
  lab *l = seat->lab;
  lab_work work = {.key = 0, .gate = &l->marks[GATE]};
  if (seat->process > 0) lab_await(l, &l->keys[0].computes, 1);
  lab_answer answer = lab_ask(seat, &long_lease, &work);
  if (answer.status != CORRAL_OK || answer.kept != CORRAL_KEPT)
    lab_wrong(l, "process %d: %s: %s", seat->process, corral_status_name(answer.status),
              answer.error.text);
}

/* The record in the server. The key's TTL is the end of a lease that tells none. */
static corral_header header_now(void) {
  corral_header header = {0};
  redisReply *time = redis_server_command(redis, "TIME");
  int64_t now = strtoll(time->element[0]->str, NULL, 10) * 1000 +
                strtoll(time->element[1]->str, NULL, 10) / 1000;
  freeReplyObject(time);
  redisReply *reply = redis_server_command(redis, "GET key-0");
  if (reply->type == REDIS_REPLY_STRING)
    assert_int_equal(crl_record_read_whole(reply->str, reply->len, &header), CORRAL_OK);
  freeReplyObject(reply);
  if (header.state == CORRAL_LEASED && header.until == 0) {
    int64_t left = strtoll(redis_server_ask(redis, "PTTL key-0"), NULL, 10);
    header.until = now + left - CORRAL_LEASE_KEPT_MS;
    header.since = header.until - header.length_ms;
  }
  return header;
}

/* Returns 0 when this machine was too slow to kill the leader in its first lease. */
static int kill_once(lab *l) {
  redis_server_ask(redis, "FLUSHALL");
  lab_spawn(l, &(lab_plan){.uri = redis_server_unix_uri(redis),
                           .processes = 2,
                           .threads = 1,
                           .body = lead_or_wait});
  lab_await(l, &l->keys[0].computes, 1);
  lab_kill(l, 0);
  corral_header dead = header_now();
  /* an extended lease is longer, and so is one of the waiter that computes in a moment */
  int in_time = atomic_load(&l->keys[0].computes) == 1 &&
                atomic_load(&l->events[0][CORRAL_EVENT_EXTEND]) == 0 &&
                dead.state == CORRAL_LEASED && dead.length_ms == CRL_LEASE_FIRST_MS;
  lab_await(l, &l->keys[0].computes, 2);
  corral_header next = header_now();
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  if (!in_time) return 0;
  assert_int_equal(next.state, CORRAL_LEASED);
  assert_memory_not_equal(next.token, dead.token, CORRAL_TOKEN);
  assert_true(next.since + 1 >= dead.until); /* ends are in whole ms */
  assert_true(next.since - dead.since < LONG_LEASE_MS);
  assert_true(next.length_ms >= 2 * dead.length_ms);
  assert_int_equal(l->keys[0].computes, 2);
  assert_int_equal(l->events[1][CORRAL_EVENT_FILL], 1);
  print_message("           replaced %lld ms after its claim\n",
                (long long)(next.since - dead.since));
  return 1;
}

/* By the server's clock, and by the length of the lease in the server: a waiter computes when the
 * first lease ends, not when one of lease_ms would; and by a lease of twice the length. */
static void a_leader_killed_in_its_first_lease_is_replaced_at_its_end(void **state) {
  (void)state;
  int killed = 0;
  if (redis == NULL) skip();
  for (int i = 0; i < TRIES && !killed; i++) {
    lab *l = lab_new();
    killed = kill_once(l);
    lab_free(l);
  }
  assert_true(killed);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_leader_stopped_beyond_its_first_lease_stores_its_value_on_redis),
      cmocka_unit_test(a_leader_stopped_beyond_its_first_lease_stores_its_value_on_memcached),
      cmocka_unit_test(a_leader_stopped_beyond_its_first_lease_stores_its_value_on_lmdb),
      cmocka_unit_test(a_leader_killed_in_its_first_lease_is_replaced_at_its_end),
  };
  redis_server_start(&redis, NULL);
  memcached_server_start(&memcached, NULL);
  int failed = cmocka_run_group_tests_name("lease", tests, NULL, NULL);
  redis_server_stop(redis);
  memcached_server_stop(memcached);
  return failed;
}
