/* test_redis_confirm.c: invalidations that replicas must confirm, on a real primary with a
 * replica. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "support/moving_kit.h"
#include "support/redis_server.h"

static redis_server *primary, *replica;
static char uri[120];

static const char *store_uri(void) { return uri; }

static int is_synced(void) {
  return strstr(redis_server_ask(replica, "INFO replication"), "master_link_status:up") != NULL;
}

/* A primary and its replica for each test. */
static int start(void **state) {
  static const char *const args[] = {"--repl-diskless-sync-delay", "0", NULL};
  if (!redis_server_start(&primary, args) || !redis_server_start(&replica, args)) skip();
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(primary));
  while (!is_synced()) lab_sleep_ms(10);
  atomic_store(&computes, 0);
  return history_room_open(state);
}

static int stop(void **state) {
  redis_server_stop(primary);
  redis_server_stop(replica);
  primary = replica = NULL;
  return history_room_close(state);
}

/* Opens a store whose invalidations must be confirmed within this time. */
static corral *confirming(int wait_ms, corral_options options) {
  snprintf(uri, sizeof uri, "%s?confirm_replicas=1&wait_ms=%d", redis_server_uri(primary), wait_ms);
  return opened(&options);
}

static int has(redis_server *server, const char *key) {
  return *redis_server_ask(server, "EXISTS %s", key) == '1';
}

static int invalidates(corral *c, const char *key, corral_error *ret_error) {
  *ret_error = (corral_error){0};
  return corral_invalidate(c, key, strlen(key), CORRAL_CALL(.error = ret_error));
}

static void replicate(void) {
  redis_server_ask(primary, "SET mark x");
  assert_string_equal(redis_server_ask(primary, "WAIT 1 20000"), "1");
}

static void an_invalidation_is_answered_once_the_replica_has_it(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(10000, (corral_options){.op_ms = 20000});
  for (int i = 0; i < 20; i++) {
    (void)gets(c, "k", NULL);
    replicate();
    assert_true(has(replica, "k"));
    if (invalidates(c, "k", &error) != CORRAL_OK) fail_msg("%s", error.text);
    assert_false(has(replica, "k"));
  }
  corral_close(c);
}

static void a_tag_is_answered_once_the_replica_has_it(void **state) {
  (void)state;
  corral *c = confirming(10000, (corral_options){.op_ms = 20000}), *other;
  char there[120];
  for (int i = 0; i < 10; i++) {
    (void)gets(c, "k", "t");
    replicate();
    assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  }
  redis_server_kill(primary);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  snprintf(there, sizeof there, "%s", redis_server_uri(replica));
  memcpy(uri, there, sizeof there);
  other = opened(&(corral_options){0});
  assert_int_equal(gets(other, "k", "t"), CORRAL_COMPUTED);
  corral_close(c);
  corral_close(other);
}

static void a_stopped_replica_leaves_an_invalidation_in_doubt(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(300, (corral_options){.op_ms = 20000});
  (void)gets(c, "k", "t");
  (void)gets(c, "l", "t");
  redis_server_pause(replica);
  assert_int_equal(invalidates(c, "k", &error), CORRAL_EINDOUBT);
  if (strstr(error.text, "confirmed by 0 of 1 replicas") == NULL) fail_msg("%s", error.text);
  assert_int_equal(corral_invalidate_tag(c, "t", 1, &error), CORRAL_EINDOUBT);
  if (strstr(error.text, "confirmed by 0 of 1 replicas") == NULL) fail_msg("%s", error.text);
  assert_false(has(primary, "k")); /* it is done here */
  assert_int_equal(gets(c, "l", "t"), CORRAL_COMPUTED);
  redis_server_resume(replica);
  (void)gets(c, "m", NULL);
  for (int i = 0; i < 1000 && invalidates(c, "m", &error) == CORRAL_EINDOUBT; i++) lab_sleep_ms(10);
  assert_int_equal(error.status, CORRAL_OK);
  corral_close(c);
}

/* A promotion undoes a write that the replica didn't hear: OK would have been a lie. */
static void what_is_in_doubt_may_be_undone_by_a_promotion(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(300, (corral_options){.op_ms = 20000});
  (void)gets(c, "k", NULL);
  replicate();
  redis_server_pause(replica);
  redis_server_ask(primary, "CLIENT KILL TYPE replica");
  assert_int_equal(invalidates(c, "k", &error), CORRAL_EINDOUBT);
  redis_server_kill(primary);
  redis_server_resume(replica);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  assert_true(has(replica, "k"));
  corral_close(c);
}

/* Kills both, and makes what the replica restarts with the only server. */
static void promote_what_restarts(void) {
  redis_server_kill(primary);
  redis_server_restart(replica);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  snprintf(uri, sizeof uri, "%s", redis_server_uri(replica));
}

/* It confirmed, and has lost its memory since then. */
static void a_replica_that_restarts_with_an_older_state_undoes_what_it_confirmed(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(10000, (corral_options){.op_ms = 20000});
  (void)gets(c, "k", NULL);
  replicate();
  assert_string_equal(redis_server_ask(replica, "SAVE"), "OK");
  assert_int_equal(invalidates(c, "k", &error), CORRAL_OK);
  assert_false(has(replica, "k"));
  promote_what_restarts();
  corral *other = opened(&(corral_options){.op_ms = 20000});
  assert_int_equal(gets(other, "k", NULL), CORRAL_FRESH);
  corral_close(other);
  corral_close(c);
}

/* Values, with and without a tag whose version is lost. */
static void a_replica_that_restarts_empty_costs_computes_and_has_no_older_value(void **state) {
  (void)state;
  corral *c = confirming(10000, (corral_options){.op_ms = 20000});
  (void)gets(c, "k", NULL);
  (void)gets(c, "l", "t");
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  promote_what_restarts();
  corral *other = opened(&(corral_options){0});
  assert_int_equal(gets(other, "k", NULL), CORRAL_COMPUTED);
  assert_int_equal(gets(other, "l", "t"), CORRAL_COMPUTED);
  corral_close(other);
  corral_close(c);
}

/* The settle was answered, and the replica had not heard of it; the invalidation before it was
 * confirmed. */
static void a_settle_that_a_failover_loses_costs_a_compute_and_no_older_value(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(10000, (corral_options){.op_ms = 20000});
  (void)gets(c, "k", NULL);
  replicate();
  assert_int_equal(invalidates(c, "k", &error), CORRAL_OK);
  redis_server_pause(replica);
  redis_server_ask(primary, "CLIENT KILL TYPE replica");
  assert_int_equal(gets(c, "k", NULL), CORRAL_COMPUTED);
  assert_true(has(primary, "k"));
  redis_server_kill(primary);
  redis_server_resume(replica);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  snprintf(uri, sizeof uri, "%s", redis_server_uri(replica));
  corral *other = opened(&(corral_options){0});
  assert_int_equal(gets(other, "k", NULL), CORRAL_COMPUTED);
  corral_close(other);
  corral_close(c);
}

static void a_server_without_replicas_leaves_each_invalidation_in_doubt(void **state) {
  (void)state;
  corral_error error;
  corral *c = confirming(50, (corral_options){.op_ms = 20000});
  redis_server_ask(replica, "REPLICAOF NO ONE");
  (void)gets(c, "k", NULL);
  for (int i = 0; i < 1000 && invalidates(c, "k", &error) == CORRAL_OK; i++) {
    (void)gets(c, "k", NULL);
    lab_sleep_ms(10);
  }
  assert_int_equal(error.status, CORRAL_EINDOUBT);
  corral_close(c);
}

typedef struct change {
  corral *c;
  int status;
} change;

static void *run_change(void *arg) {
  change *ch = arg;
  ch->status = corral_invalidate(ch->c, "slow", 4, NULL);
  return NULL;
}

/* With one connection for calls: the confirmation has another one. */
static void nobody_waits_behind_a_confirmation(void **state) {
  (void)state;
  pthread_t thread;
  change ch = {.c = confirming(10000, (corral_options){.op_ms = 60000, .handles = 1})};
  (void)gets(ch.c, "slow", NULL);
  (void)gets(ch.c, "k", NULL);
  redis_server_pause(replica);
  assert_int_equal(pthread_create(&thread, NULL, run_change, &ch), 0);
  while (redis_server_info(primary, "blocked_clients") != 1) lab_sleep_ms(5);
  for (int i = 0; i < 20; i++) assert_int_equal(gets(ch.c, "k", NULL), CORRAL_FRESH);
  sets(ch.c, "other", 10);
  assert_int_equal(redis_server_info(primary, "blocked_clients"), 1); /* it still waits */
  redis_server_resume(replica);
  pthread_join(thread, NULL);
  assert_int_equal(ch.status, CORRAL_OK);
  corral_close(ch.c);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, start, stop)
  const struct CMUnitTest tests[] = {
      T(an_invalidation_is_answered_once_the_replica_has_it),
      T(a_tag_is_answered_once_the_replica_has_it),
      T(a_stopped_replica_leaves_an_invalidation_in_doubt),
      T(what_is_in_doubt_may_be_undone_by_a_promotion),
      T(a_replica_that_restarts_with_an_older_state_undoes_what_it_confirmed),
      T(a_replica_that_restarts_empty_costs_computes_and_has_no_older_value),
      T(a_settle_that_a_failover_loses_costs_a_compute_and_no_older_value),
      T(a_server_without_replicas_leaves_each_invalidation_in_doubt),
      T(nobody_waits_behind_a_confirmation),
  };
  return cmocka_run_group_tests_name("redis_confirm", tests, NULL, NULL);
}
