/* test_cost.c: round trips on Redis, counted by the server: total_reads_processed grows by one for
 * each batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>
#include <corral.h>

#include "support/redis_server.h"

static redis_server *server;
static corral *cache;

static int answer_42(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "42", 2);
}

static int no_such_thing(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_negative(fill);
  return CORRAL_OK;
}

static int failing(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  corral_fill_fail(fill, 1, "no");
  return CORRAL_OK;
}

/* The server's count of reads; the INFO request adds one. */
static long long reads(void) {
  long long n = redis_server_info(server, "total_reads_processed");
  assert_true(n >= 0);
  return n;
}

static int ask(const char *key, corral_compute *compute, corral_how how) {
  corral_value *value = NULL;
  /* no lease is so short that it is extended */
  const corral_policy *policy =
      CORRAL_POLICY(.swr_ms = 60000, .retry_ms = 60000, .lease_ms = 30000, .lease_min_ms = 30000);
  int status = corral_get_or_compute(cache, key, strlen(key), CORRAL_CALL(.policy = policy),
                                     compute, NULL, &value);
  if (status != CORRAL_OK) return status;
  assert_int_equal(corral_value_how(value), how);
  corral_value_unref(value);
  return status;
}

/* Reads of the server during one call, without the INFO request. */
static long long cost_of(const char *key, corral_compute *compute, int status, corral_how how) {
  long long before = reads();
  assert_int_equal(ask(key, compute, how), status);
  return reads() - before - 1;
}

/* Opens the corral, connects, and loads the scripts into the server. */
static int set_up(void **state) {
  (void)state;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .handles = 1, .op_ms = 20000),
                  &cache, &error) != CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return -1;
  }
  corral_set(cache, "warm", 4, NULL, "x", 1);
  ask("warm up", answer_42, CORRAL_COMPUTED);
  ask("warm up failing", failing, CORRAL_COMPUTED);
  corral_expire(cache, "warm", 4, NULL);
  corral_invalidate(cache, "warm", 4, NULL);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  corral_close(cache);
  return 0;
}

static void the_count_itself_costs_one_read(void **state) {
  (void)state;
  long long before = reads();
  assert_int_equal(reads() - before, 1);
}

static void a_cold_miss_costs_its_leader_three_round_trips_and_a_hit_one(void **state) {
  (void)state;
  assert_int_equal(cost_of("cold", answer_42, CORRAL_OK, CORRAL_COMPUTED), 3);
  for (int i = 0; i < 10; i++)
    assert_int_equal(cost_of("cold", answer_42, CORRAL_OK, CORRAL_FRESH), 1);
}

static void a_hundred_hits_cost_a_hundred_round_trips(void **state) {
  (void)state;
  ask("hot", answer_42, CORRAL_COMPUTED);
  long long before = reads();
  for (int i = 0; i < 100; i++) ask("hot", answer_42, CORRAL_FRESH);
  assert_int_equal(reads() - before - 1, 100);
}

static void a_remembered_no_such_thing_costs_one(void **state) {
  (void)state;
  assert_int_equal(cost_of("nothing", no_such_thing, CORRAL_ENOTFOUND, CORRAL_FRESH), 3);
  assert_int_equal(cost_of("nothing", no_such_thing, CORRAL_ENOTFOUND, CORRAL_FRESH), 1);
}

static void a_remembered_failure_costs_one(void **state) {
  (void)state;
  assert_int_equal(cost_of("broken", failing, CORRAL_EFAILED, CORRAL_FRESH), 3);
  assert_int_equal(cost_of("broken", failing, CORRAL_EFAILED, CORRAL_FRESH), 1);
}

static void a_look_inside_an_invalidate_an_expire_and_a_set_cost_one_each(void **state) {
  (void)state;
  corral_inspection seen = {.size = sizeof seen};
  long long before = reads();
  assert_int_equal(corral_set(cache, "k", 1, NULL, "v", 1), CORRAL_OK);
  assert_int_equal(reads() - before - 1, 1);
  before = reads();
  assert_int_equal(corral_inspect(cache, "k", 1, NULL, &seen), CORRAL_OK);
  assert_int_equal(reads() - before - 1, 1);
  before = reads();
  assert_int_equal(corral_expire(cache, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(reads() - before - 1, 1);
  before = reads();
  assert_int_equal(corral_invalidate(cache, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(reads() - before - 1, 1);
}

static void a_hit_runs_no_script(void **state) {
  (void)state;
  ask("plain", answer_42, CORRAL_COMPUTED);
  const char *stats = "cmdstat_pttl";
  /* a stall of this machine costs a PTTL for a second */
  for (int i = 0; i < 100 && strstr(stats, "cmdstat_pttl") != NULL; i++) {
    if (i > 0) usleep(100000);
    redis_server_ask(server, "CONFIG RESETSTAT");
    ask("plain", answer_42, CORRAL_FRESH);
    stats = redis_server_ask(server, "INFO commandstats");
    assert_non_null(strstr(stats, "cmdstat_getrange:calls=1,"));
    assert_null(strstr(stats, "cmdstat_eval"));
  }
  assert_null(strstr(stats, "cmdstat_pttl"));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_count_itself_costs_one_read),
      cmocka_unit_test(a_cold_miss_costs_its_leader_three_round_trips_and_a_hit_one),
      cmocka_unit_test(a_hundred_hits_cost_a_hundred_round_trips),
      cmocka_unit_test(a_remembered_no_such_thing_costs_one),
      cmocka_unit_test(a_remembered_failure_costs_one),
      cmocka_unit_test(a_look_inside_an_invalidate_an_expire_and_a_set_cost_one_each),
      cmocka_unit_test(a_hit_runs_no_script),
  };
  if (!redis_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("cost", tests, set_up, tear_down);
  redis_server_stop(server);
  return failed;
}
