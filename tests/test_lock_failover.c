/* test_lock_failover.c: locks when servers fail over: the guarantees that a primary with a replica
 * can't give, fencing tokens that limit the damage, and the guarantees of several independent
 * servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>
#include <sqlite3.h>

#include "os/env.h"
#include "support/redis_server.h"
#include "support/server_process.h"

static corral_error error;

static corral *open_one(const char *uri) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 10000), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static corral_lock *take(corral *c, corral_lock_options *options) {
  corral_lock *lock = NULL;
  if (corral_lock_take(c, "n", 1, options, &lock, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return lock;
}

static int try(corral *c) {
  corral_lock *lock = NULL;
  int status = corral_lock_take(c, "n", 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF, .owner = "try"),
                                &lock, &error);
  if (status == CORRAL_OK) corral_lock_release(lock, NULL);
  return status;
}

static void until_says(redis_server *server, const char *what, const char *says) {
  for (int64_t end = crl_env_now_ms() + 30000;
       strstr(redis_server_ask(server, "INFO replication"), says) == NULL; crl_env_pause_us(2000))
    if (crl_env_now_ms() > end) fail_msg("%s: never %s", what, says);
}

/* Makes a server a replica; returns once it is in sync. */
static void follow(redis_server *replica, redis_server *primary) {
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(primary));
  until_says(replica, "replica", "master_link_status:up");
}

/* ---- a row of a table that compares fencing tokens ----------------------------------------- */

static sqlite3 *account;

static void account_open(void) {
  assert_int_equal(sqlite3_open(":memory:", &account), SQLITE_OK);
  assert_int_equal(sqlite3_exec(account,
                                "CREATE TABLE account (balance INTEGER, fence INTEGER); INSERT "
                                "INTO account VALUES (0, 0)",
                                NULL, NULL, NULL),
                   SQLITE_OK);
}

/* Returns 1 when the row accepted the write. */
static int account_set(int balance, uint64_t fence) {
  char sql[160];
  snprintf(sql, sizeof sql, "UPDATE account SET balance = %d, fence = %llu WHERE fence <= %llu",
           balance, (unsigned long long)fence, (unsigned long long)fence);
  assert_int_equal(sqlite3_exec(account, sql, NULL, NULL, NULL), SQLITE_OK);
  return sqlite3_changes(account);
}

/* ---- H1, H2: a primary with a replica ------------------------------------------------------ */

static void
h1_a_failover_grants_twice_and_the_fenced_resource_refuses_the_older_holder(void **state) {
  (void)state;
  redis_server *primary, *replica = NULL;
  if (!redis_server_start(&primary, NULL) || !redis_server_start(&replica, NULL)) skip();
  account_open();
  follow(replica, primary);
  corral *a = open_one(redis_server_uri(primary)), *b = open_one(redis_server_uri(replica));
  /* The replication link is cut: the replica misses the primary's next grant. */
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", server_process_free_port());
  corral_lock *first = take(a, CORRAL_LOCK(.ttl_ms = 60000));
  redis_server_kill(primary);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  corral_lock *second = take(b, CORRAL_LOCK(.ttl_ms = 60000));
  /* two clients believe that they hold the lock */
  assert_true(corral_lock_left_ms(first) > 0);
  assert_true(corral_lock_left_ms(second) > 0);
  assert_true(corral_lock_fence(second) > corral_lock_fence(first));
  assert_int_equal(account_set(2, corral_lock_fence(second)), 1);
  assert_int_equal(account_set(1, corral_lock_fence(first)), 0);
  corral_lock_release(first, NULL);
  assert_int_equal(corral_lock_release(second, &error), CORRAL_OK);
  corral_close(a);
  corral_close(b);
  sqlite3_close(account);
  redis_server_stop(primary);
  redis_server_stop(replica);
}

static void
h1_a_primary_that_waits_for_its_replica_grants_nothing_while_the_link_is_stopped(void **state) {
  (void)state;
  redis_server *primary, *replica = NULL;
  char uri[128];
  if (!redis_server_start(&primary, NULL) || !redis_server_start(&replica, NULL)) skip();
  follow(replica, primary);
  snprintf(uri, sizeof uri, "%s?wait_replicas=1&wait_ms=1s", redis_server_uri(primary));
  corral *a = open_one(uri), *b = open_one(redis_server_uri(replica));
  corral_lock *lock = take(a, CORRAL_LOCK(.ttl_ms = 60000));
  redis_server_kill(primary);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  assert_int_equal(try(b), CORRAL_EBUSY); /* the replica had the lock */
  corral_lock_release(lock, NULL);
  redis_server_restart(primary);
  redis_server_ask(primary, "FLUSHALL");
  until_says(primary, "primary", "connected_slaves:0");
  assert_int_equal(try(a), CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "replica"));
  corral_close(a);
  corral_close(b);
  redis_server_stop(primary);
  redis_server_stop(replica);
}

/* The old primary was cut off while its replica was promoted, and continues to grant; with
 * min-replicas-to-write it stops. */
static void h2_a_resumed_old_primary_grants_only_as_long_as_min_replicas_lets_it(void **state) {
  (void)state;
  redis_server *old, *promoted = NULL;
  if (!redis_server_start(&old, NULL) || !redis_server_start(&promoted, NULL)) skip();
  follow(promoted, old);
  corral *a = open_one(redis_server_uri(old)), *b = open_one(redis_server_uri(promoted));
  redis_server_pause(old);
  redis_server_ask(promoted, "REPLICAOF NO ONE");
  corral_lock *lock = take(b, CORRAL_LOCK(.ttl_ms = 60000));
  redis_server_resume(old);
  corral_lock *beside = take(a, CORRAL_LOCK(.ttl_ms = 60000)); /* granted twice */
  corral_lock_release(beside, NULL);
  redis_server_ask(old, "CONFIG SET min-replicas-to-write 1");
  redis_server_ask(old, "CONFIG SET min-replicas-max-lag 1");
  int64_t begun = crl_env_now_ms();
  int status = CORRAL_OK;
  while ((status = try(a)) == CORRAL_OK)
    if (crl_env_now_ms() - begun > 60000) fail_msg("it goes on granting");
  assert_int_equal(status, CORRAL_EREFUSED);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  corral_close(a);
  corral_close(b);
  redis_server_stop(old);
  redis_server_stop(promoted);
}

/* ---- H3, H4: independent servers ----------------------------------------------------------- */

static void h4_redlock_over_five_with_two_killed_grants_once(void **state) {
  (void)state;
  redis_server *servers[5];
  char uri[240] = "redlock://";
  for (int i = 0; i < 5; i++) {
    if (!redis_server_start(&servers[i], NULL)) skip();
    size_t used = strlen(uri);
    snprintf(uri + used, sizeof uri - used, "%s127.0.0.1:%d", i > 0 ? "," : "",
             redis_server_port(servers[i]));
  }
  snprintf(uri + strlen(uri), sizeof uri - strlen(uri), "?server_ms=10s");
  account_open();
  corral *a = open_one(uri), *b = open_one(uri);
  corral_lock *first = take(a, CORRAL_LOCK(.ttl_ms = 60000));
  redis_server_kill(servers[0]);
  redis_server_kill(servers[3]);
  assert_int_equal(try(b), CORRAL_EBUSY);
  assert_int_equal(corral_lock_extend(first, 0, &error), CORRAL_OK);
  assert_int_equal(account_set(1, corral_lock_fence(first)), 1);
  uint64_t fence = corral_lock_fence(first);
  assert_int_equal(corral_lock_release(first, &error), CORRAL_OK);
  corral_lock *second = take(b, CORRAL_LOCK(.ttl_ms = 60000));
  assert_true(corral_lock_fence(second) > fence);
  assert_int_equal(account_set(2, corral_lock_fence(second)), 1);
  assert_int_equal(corral_lock_release(second, &error), CORRAL_OK);
  corral_close(a);
  corral_close(b);
  sqlite3_close(account);
  for (int i = 0; i < 5; i++) redis_server_stop(servers[i]);
}

static void h3_a_lock_over_two_primaries_needs_both(void **state) {
  (void)state;
  redis_server *one, *two = NULL;
  char both[160], alone[80];
  if (!redis_server_start(&one, NULL) || !redis_server_start(&two, NULL)) skip();
  snprintf(both, sizeof both, "redlock://127.0.0.1:%d,127.0.0.1:%d?grant=all&server_ms=10s",
           redis_server_port(one), redis_server_port(two));
  snprintf(alone, sizeof alone, "redis://127.0.0.1:%d", redis_server_port(two));
  corral *a = open_one(both), *b = open_one(alone);
  corral_lock *lock = take(b, CORRAL_LOCK(0));
  assert_int_equal(try(a), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  lock = take(a, CORRAL_LOCK(0));
  assert_int_equal(try(b), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  redis_server_kill(one);
  assert_int_equal(try(a), CORRAL_EUNAVAILABLE);
  lock = take(b, CORRAL_LOCK(.wait_ms = 5000)); /* no hold is left on the surviving server */
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  corral_close(a);
  corral_close(b);
  redis_server_stop(one);
  redis_server_stop(two);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(h1_a_failover_grants_twice_and_the_fenced_resource_refuses_the_older_holder),
      cmocka_unit_test(
          h1_a_primary_that_waits_for_its_replica_grants_nothing_while_the_link_is_stopped),
      cmocka_unit_test(h2_a_resumed_old_primary_grants_only_as_long_as_min_replicas_lets_it),
      cmocka_unit_test(h3_a_lock_over_two_primaries_needs_both),
      cmocka_unit_test(h4_redlock_over_five_with_two_killed_grants_once),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
