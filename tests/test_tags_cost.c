/* test_tags_cost.c: round trips of looks at values with tags, counted by the Redis server:
 * total_reads_processed grows by one for each batch. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>

#include "support/redis_server.h"

enum { KEYS = 10 };

static redis_server *server;
static corral *maker, *reader; /* as two processes: each knows what it has seen itself */
static int fills;

/* Sets the tags that `arg` lists, separated by spaces. */
static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  fills++;
  for (const char *at = arg; *at != '\0';) {
    size_t len = strcspn(at, " ");
    assert_int_equal(corral_fill_tag(fill, at, len), CORRAL_OK);
    at += len + strspn(at + len, " ");
  }
  return corral_fill_bytes(fill, "42", 2);
}

static corral_how ask(corral *c, const char *key, const char *tags) {
  corral_value *value = NULL;
  assert_int_equal(
      corral_get_or_compute(c, key, strlen(key), NULL, compute, (void *)(uintptr_t)tags, &value),
      CORRAL_OK);
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

/* The server's count of reads; the INFO request adds one. */
static long long reads(void) { return redis_server_info(server, "total_reads_processed"); }

/* Reads of the server during one call that must end so. */
static long long cost_of(corral *c, const char *key, const char *tags, corral_how how) {
  long long before = reads();
  assert_int_equal(ask(c, key, tags), how);
  return reads() - before - 1;
}

static corral *open_one(void) {
  corral *c;
  corral_error error;
  /* a busy machine has no request repeated, and no lease extended */
  const corral_policy *policy = CORRAL_POLICY(.lease_ms = 60000, .lease_min_ms = 60000);
  if (corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .handles = 1, .op_ms = 20000,
                                 .policy = policy),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

/* Connects, and loads the scripts into the server. */
static int begin(void **state) {
  (void)state;
  maker = open_one();
  reader = open_one();
  ask(maker, "warm up", "warm");
  ask(reader, "warm up", "warm");
  fills = 0;
  return 0;
}

static int end(void **state) {
  (void)state;
  corral_close(maker);
  corral_close(reader);
  redis_server_ask(server, "FLUSHALL");
  return 0;
}

static void from_the_second_look_on_the_versions_come_with_the_value(void **state) {
  (void)state;
  ask(maker, "k", "a b");
  assert_int_equal(cost_of(reader, "k", "", CORRAL_FRESH), 2);
  for (int i = 0; i < 10; i++) assert_int_equal(cost_of(reader, "k", "", CORRAL_FRESH), 1);
}

static void the_maker_of_a_value_knows_its_tags(void **state) {
  (void)state;
  ask(maker, "k", "a b");
  assert_int_equal(cost_of(maker, "k", "", CORRAL_FRESH), 1);
}

static void tags_that_are_new_to_the_value_are_asked_after_once(void **state) {
  (void)state;
  ask(maker, "k", "a");
  ask(reader, "k", "");
  corral_invalidate(maker, "k", 1, NULL);
  ask(maker, "k", "a b c");
  assert_int_equal(cost_of(reader, "k", "", CORRAL_FRESH), 2);
  assert_int_equal(cost_of(reader, "k", "", CORRAL_FRESH), 1);
  corral_invalidate(maker, "k", 1, NULL);
  ask(maker, "k", "c");
  assert_int_equal(cost_of(reader, "k", "", CORRAL_FRESH), 1);
}

/* Counts the server's GETRANGEs of one look. */
static void expect_looks(const char *key, int count) {
  char line[64];
  snprintf(line, sizeof line, "cmdstat_getrange:calls=%d,", count);
  redis_server_ask(server, "CONFIG RESETSTAT");
  assert_int_equal(ask(reader, key, ""), CORRAL_FRESH);
  if (strstr(redis_server_ask(server, "INFO commandstats"), line) == NULL)
    fail_msg("not %d looks", count);
}

static void tags_that_the_value_has_no_more_are_forgotten(void **state) {
  (void)state;
  ask(maker, "k", "a b");
  ask(reader, "k", "");
  expect_looks("k", 3);
  corral_invalidate(maker, "k", 1, NULL);
  ask(maker, "k", "");
  expect_looks("k", 3);
  expect_looks("k", 1);
}

static void a_value_without_tags_costs_one_command(void **state) {
  (void)state;
  ask(maker, "tagged", "a");
  ask(reader, "tagged", "");
  ask(maker, "plain", "");
  expect_looks("plain", 1);
}

/* Claim and settle besides; the version was read before the compute began. */
static void a_miss_with_known_tags_asks_for_no_version_again(void **state) {
  (void)state;
  ask(maker, "k", "a b");
  corral_invalidate(maker, "k", 1, NULL);
  assert_int_equal(cost_of(maker, "k", "a b", CORRAL_COMPUTED), 3);
}

static void an_invalidated_tag_is_seen_by_the_very_next_look(void **state) {
  (void)state;
  ask(maker, "k", "a b");
  for (int turn = 1; turn <= 5; turn++) {
    assert_int_equal(ask(reader, "k", "a b"), CORRAL_FRESH);
    assert_int_equal(fills, turn);
    assert_int_equal(corral_invalidate_tag(maker, turn % 2 ? "a" : "b", 1, NULL), CORRAL_OK);
    assert_int_equal(ask(reader, "k", "a b"), CORRAL_COMPUTED);
  }
}

static int compute_none(corral_fill *const *keys, size_t count, void *arg) {
  (void)keys;
  (void)count;
  (void)arg;
  fills++;
  return CORRAL_OK;
}

static long long cost_of_many(void) {
  corral_item items[KEYS];
  char keys[KEYS][8];
  memset(items, 0, sizeof items);
  for (int i = 0; i < KEYS; i++) {
    items[i].key_len = (size_t)snprintf(keys[i], sizeof keys[i], "%d", i);
    items[i].key = keys[i];
  }
  long long before = reads();
  assert_int_equal(corral_get_many(reader, items, KEYS, NULL, compute_none, NULL), CORRAL_OK);
  long long cost = reads() - before - 1;
  for (int i = 0; i < KEYS; i++) {
    assert_int_equal(items[i].status, CORRAL_OK);
    corral_value_unref(items[i].value);
  }
  return cost;
}

static void many_keys_take_one_round_trip_with_their_versions_each_once(void **state) {
  (void)state;
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "%d", i);
    ask(maker, key, i % 2 ? "odd all" : "even all");
  }
  fills = 0;
  assert_int_equal(cost_of_many(), 2);
  redis_server_ask(server, "CONFIG RESETSTAT");
  (void)cost_of_many();
  assert_non_null(
      strstr(redis_server_ask(server, "INFO commandstats"), "cmdstat_getrange:calls=13,"));
  assert_int_equal(cost_of_many(), 1);
  assert_int_equal(fills, 0);
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(from_the_second_look_on_the_versions_come_with_the_value),
      T(the_maker_of_a_value_knows_its_tags),
      T(tags_that_are_new_to_the_value_are_asked_after_once),
      T(tags_that_the_value_has_no_more_are_forgotten),
      T(a_value_without_tags_costs_one_command),
      T(a_miss_with_known_tags_asks_for_no_version_again),
      T(an_invalidated_tag_is_seen_by_the_very_next_look),
      T(many_keys_take_one_round_trip_with_their_versions_each_once),
  };
  if (!redis_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("tags' cost", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
