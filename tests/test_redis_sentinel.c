/* test_redis_sentinel.c: corral on a real set of three sentinels, a primary and a replica, while
 * the replica is promoted. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/lock.h>

#include "support/moving_kit.h"
#include "support/redis_sentinels.h"

enum { KEYS = 20 };

/* On a busy machine as much is stored. */
static const corral_options patient = {.op_ms = 10000};

static redis_sentinels *set;

static const char *store_uri(void) { return redis_sentinels_uri(set); }

static redis_server *server_of(int number) { return redis_sentinels_server(set, number); }

static int start(void **state) {
  if (set == NULL && !redis_sentinels_start(&set)) skip();
  redis_sentinels_await_well(set);
  redis_server_ask(server_of(redis_sentinels_primary(set)), "FLUSHALL");
  atomic_store(&computes, 0);
  return history_room_open(state);
}

static int stop(void **state) {
  (void)state;
  redis_sentinels_stop(set);
  set = NULL;
  return 0;
}

static const char *of_number(int number) {
  static char key[24];
  snprintf(key, sizeof key, "key %d", number);
  return key;
}

static int has(int number, const char *key) {
  return *redis_server_ask(server_of(number), "EXISTS %s", key) == '1';
}

/* Waits until the replica has all that the primary answered: WAIT is for what its own connection
 * wrote, and before. */
static void replicate(int primary) {
  redis_server_ask(server_of(primary), "SET mark x");
  assert_string_equal(redis_server_ask(server_of(primary), "WAIT 1 20000"), "1");
}

/* Until the promoted server's value comes. */
static void await_return(corral *c, const char *key) {
  for (int i = 0; i < 3000; i++) {
    if (gets(c, key, NULL) == CORRAL_FRESH) return;
    lab_sleep_ms(10);
  }
  fail_msg("the promoted server is not asked");
}

static corral *opened_at(const char *uri) {
  corral *c = NULL;
  corral_error error = {0};
  corral_options options = {.size = sizeof options, .store = uri, .breaker_failures = 1000};
  if (corral_open(&options, &c, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return c;
}

static void pause_sentinels(void) {
  for (int i = 0; i < REDIS_SENTINELS; i++) redis_server_pause(redis_sentinels_sentinel(set, i));
}

static void resume_sentinels(void) {
  for (int i = 0; i < REDIS_SENTINELS; i++) redis_server_resume(redis_sentinels_sentinel(set, i));
}

/* ---- every kind of call -------------------------------------------------------------------- */

static void values_tags_and_locks_are_on_the_primary(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  corral *a = opened(&patient), *b = opened(&patient);
  corral_lock *lock = NULL, *other = NULL;
  for (int i = 0; i < KEYS; i++) assert_int_equal(gets(a, of_number(i), "t"), CORRAL_COMPUTED);
  for (int i = 0; i < KEYS; i++) assert_int_equal(gets(b, of_number(i), "t"), CORRAL_FRESH);
  assert_true(has(primary, "key 7"));
  assert_int_equal(corral_invalidate(b, "key 7", 5, NULL), CORRAL_OK);
  assert_int_equal(gets(a, "key 7", "t"), CORRAL_COMPUTED);
  assert_int_equal(corral_invalidate_tag(a, "t", 1, NULL), CORRAL_OK);
  assert_int_equal(gets(b, "key 3", "t"), CORRAL_COMPUTED);
  assert_int_equal(corral_lock_take(a, "L", 1, CORRAL_LOCK(.ttl_ms = LONG_MS), &lock, NULL),
                   CORRAL_OK);
  assert_int_equal(corral_lock_take(b, "L", 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF), &other, NULL),
                   CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  corral_close(a);
  corral_close(b);
}

static void the_database_of_the_uri_is_used(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  char uri[200];
  snprintf(uri, sizeof uri, "%s/3", store_uri());
  corral_options options = {.size = sizeof options, .store = uri, .op_ms = 10000};
  assert_int_equal(corral_open(&options, &c, &error), CORRAL_OK);
  sets(c, "in three", 10);
  corral_close(c);
  redis_server *primary = server_of(redis_sentinels_primary(set));
  assert_string_equal(redis_server_ask(primary, "EXISTS %s", "in three"), "0");
  redis_server_ask(primary, "SELECT 3");
  assert_string_equal(redis_server_ask(primary, "EXISTS %s", "in three"), "1");
  redis_server_ask(primary, "SELECT 0");
}

/* ---- failovers ----------------------------------------------------------------------------- */

/* The server that fails is replaced within away_ms, so calls wait for its successor, whatever they
 * get from a store that is away. */
static void fails_over_under_load(void (*fail_over)(int primary), int64_t when_away) {
  traffic lasting = {.policy = {.size = sizeof(corral_policy),
                                .ttl_ms = LONG_MS,
                                .wait_ms = 90000,
                                .when_away = when_away},
                     .may_degrade = 1};
  int primary = redis_sentinels_primary(set);
  spawn_load_with(&lasting, &(corral_options){.op_ms = 250,
                                              .away_ms = 60000,
                                              .breaker_rest_ms = 100,
                                              .host_lock = 1,
                                              .host_dir = current->folder});
  replicate(primary);
  fail_over(primary);
  redis_sentinels_await_primary(set, 1 - primary);
  let_pass(2000);
  end_load();
  for (int i = 0; i < 8; i++)
    if (current->keys[i].computes > 1)
      fail_msg("key %d has %d computes", i, current->keys[i].computes);
}

static void kill_it(int primary) { redis_server_kill(server_of(primary)); }
static void pause_it(int primary) { redis_server_pause(server_of(primary)); }
static void depose_it(int primary) {
  (void)primary;
  (void)redis_sentinels_fail_over(set);
}

static void a_killed_primary_costs_no_error_and_no_compute(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  fails_over_under_load(kill_it, CORRAL_AWAY_COMPUTE);
  redis_server_restart(server_of(primary));
}

static void nor_where_calls_may_be_given_what_is_stale(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  fails_over_under_load(kill_it, CORRAL_AWAY_STALE);
  redis_server_restart(server_of(primary));
}

static void a_primary_that_hangs_costs_no_error_and_no_compute(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  fails_over_under_load(pause_it, CORRAL_AWAY_COMPUTE);
  redis_server_resume(server_of(primary));
}

static void a_planned_failover_costs_no_error_and_no_compute(void **state) {
  (void)state;
  fails_over_under_load(depose_it, CORRAL_AWAY_COMPUTE);
}

/* It takes writes until sentinels reach it, which they do seconds later. */
static void a_former_primary_that_comes_back_is_not_written_to(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  corral *c = opened(&(corral_options){.op_ms = 250});
  sets(c, "before", 10);
  replicate(primary);
  redis_server_pause(server_of(primary));
  redis_sentinels_await_primary(set, 1 - primary);
  pause_sentinels();
  redis_server_resume(server_of(primary));
  assert_memory_equal(redis_server_ask(server_of(primary), "ROLE"), "master", 6);
  lab_sleep_ms(200); /* a batch looks at what sentinels tell when it hasn't done so for a while */
  for (int i = 0; i < KEYS; i++) {
    while (corral_set(c, of_number(i), strlen(of_number(i)), NULL, "x", 1) != CORRAL_OK)
      lab_sleep_ms(10);
    assert_false(has(primary, of_number(i)));
    assert_true(has(1 - primary, of_number(i)));
  }
  assert_memory_equal(redis_server_ask(server_of(primary), "ROLE"), "master", 6);
  resume_sentinels();
  corral_close(c);
}

/* Nothing fails: only the sentinels tell that there is another primary. */
static void a_deposed_primary_is_left_before_it_knows(void **state) {
  (void)state;
  corral *c = opened(&patient);
  sets(c, "before", 10);
  int former = redis_sentinels_primary(set), now = redis_sentinels_fail_over(set);
  pause_sentinels();
  assert_memory_equal(redis_server_ask(server_of(former), "ROLE"), "master", 6);
  lab_sleep_ms(200);
  for (int i = 0; i < KEYS; i++) {
    sets(c, of_number(i), 10);
    assert_false(has(former, of_number(i)));
    assert_true(has(now, of_number(i)));
  }
  resume_sentinels();
  corral_close(c);
}

static void an_invalidation_that_came_to_the_replica_is_not_undone(void **state) {
  (void)state;
  int primary = redis_sentinels_primary(set);
  corral *c = opened(&patient), *other = opened(&patient);
  for (int i = 0; i < KEYS; i++) (void)gets(c, of_number(i), NULL);
  for (int i = 0; i < KEYS; i += 2)
    assert_int_equal(corral_invalidate(c, of_number(i), strlen(of_number(i)), NULL), CORRAL_OK);
  replicate(primary);
  redis_server_kill(server_of(primary));
  redis_sentinels_await_primary(set, 1 - primary);
  await_return(other, of_number(1));
  for (int i = 0; i < KEYS; i++)
    assert_int_equal(gets(other, of_number(i), NULL), i % 2 == 0 ? CORRAL_COMPUTED : CORRAL_FRESH);
  corral_close(c);
  corral_close(other);
  redis_server_restart(server_of(primary));
}

/* Nobody asks for anything while the replica is promoted. */
static void an_invalidation_that_a_dead_primary_did_not_hear_reaches_the_promoted_one(void **s) {
  (void)s;
  int primary = redis_sentinels_primary(set);
  corral *c = opened(&(corral_options){.op_ms = 250});
  (void)gets(c, "unheard", NULL);
  replicate(primary);
  redis_server_kill(server_of(primary));
  assert_int_not_equal(corral_invalidate(c, "unheard", 7, NULL), CORRAL_OK);
  redis_sentinels_await_primary(set, 1 - primary);
  for (int i = 0; i < 3000 && has(1 - primary, "unheard"); i++) lab_sleep_ms(10);
  assert_false(has(1 - primary, "unheard"));
  corral_close(c);
  redis_server_restart(server_of(primary));
}

/* The stopped replica is promoted, without what its primary had not told it. */
static void an_invalidation_in_doubt_is_repeated_to_the_promoted_server(void **state) {
  (void)state;
  char uri[200];
  corral_error error = {0};
  int primary = redis_sentinels_primary(set);
  snprintf(uri, sizeof uri, "%s?confirm_replicas=1&wait_ms=100", store_uri());
  corral *c = opened_at(uri);
  (void)gets(c, "doubtful", NULL);
  replicate(primary);
  redis_server_pause(server_of(1 - primary));
  redis_server_ask(server_of(primary), "CLIENT KILL TYPE replica");
  assert_int_equal(corral_invalidate(c, "doubtful", 8, CORRAL_CALL(.error = &error)),
                   CORRAL_EINDOUBT);
  redis_server_kill(server_of(primary));
  redis_server_resume(server_of(1 - primary));
  /* this process may be held up until the invalidation has come to the promoted one */
  assert_true(has(1 - primary, "doubtful") ||
              strstr(redis_server_ask(server_of(1 - primary), "INFO replication"), "role:master"));
  redis_sentinels_await_primary(set, 1 - primary);
  for (int i = 0; i < 3000 && has(1 - primary, "doubtful"); i++) lab_sleep_ms(10);
  assert_false(has(1 - primary, "doubtful"));
  corral_close(c);
  redis_server_restart(server_of(primary));
}

/* ---- sentinels ----------------------------------------------------------------------------- */

/* 1: a sentinel other than the first has the bell. */
static int another_is_listened_to(void) {
  int count = 0;
  for (int i = 1; i < REDIS_SENTINELS; i++)
    count += strstr(redis_server_ask(redis_sentinels_sentinel(set, i), "CLIENT LIST"),
                    "name=corral") != NULL;
  return count > 0;
}

/* The first is asked first, and has the bell. */
static void a_sentinel_that_goes_is_replaced_by_another(void **state) {
  (void)state;
  corral *c = opened(&patient);
  sets(c, "before", 10);
  redis_server_kill(redis_sentinels_sentinel(set, 0));
  for (int i = 0; i < 30 || (i < 600 && !another_is_listened_to()); i++) {
    sets(c, of_number(i), 10);
    lab_sleep_ms(50);
  }
  assert_true(another_is_listened_to());
  redis_server_restart(redis_sentinels_sentinel(set, 0));
  corral_close(c);
}

/* ---- copies of this process ---------------------------------------------------------------- */

static void a_copy_is_dropped_when_another_process_changes_its_value(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e), *other = opened(&patient);
  for (int i = 0; i < KEYS; i++) await_copy(c, &e, of_number(i));
  for (int i = 0; i < KEYS; i++) {
    const char *key = of_number(i);
    assert_int_equal(corral_invalidate(other, key, strlen(key), NULL), CORRAL_OK);
    await_compute(c, key);
  }
  corral_close(c);
  corral_close(other);
}

static void a_copy_is_dropped_when_its_primary_is_killed(void **state) {
  (void)state;
  ear e = {0};
  int primary = redis_sentinels_primary(set);
  corral *c = near_of(&e);
  await_copy(c, &e, "killed");
  replicate(primary);
  redis_server_kill(server_of(primary));
  redis_sentinels_await_primary(set, 1 - primary);
  redis_server_ask(server_of(1 - primary), "DEL killed");
  await_compute(c, "killed");
  await_copy(c, &e, "killed");
  corral_close(c);
  redis_server_restart(server_of(primary));
}

/* The former primary goes on to push, and no call goes to the store. */
static void a_copy_is_dropped_when_its_primary_is_deposed(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e);
  await_copy(c, &e, "deposed");
  replicate(redis_sentinels_primary(set));
  int now = redis_sentinels_fail_over(set);
  pause_sentinels();
  redis_server_ask(server_of(now), "DEL deposed");
  await_compute(c, "deposed");
  assert_memory_equal(redis_server_ask(server_of(1 - now), "ROLE"), "master", 6);
  resume_sentinels();
  await_copy(c, &e, "deposed");
  corral_close(c);
}

/* ---- other URIs ---------------------------------------------------------------------------- */

/* Sets a value, which must fail, with this text. */
static void complains(corral *c, const char *text) {
  corral_error error = {0};
  assert_int_not_equal(corral_set(c, "k", 1, CORRAL_CALL(.error = &error), "x", 1), CORRAL_OK);
  if (strstr(error.text, text) == NULL) fail_msg("%s", error.text);
}

static void a_uri_that_meets_a_sentinel_says_what_to_write(void **state) {
  (void)state;
  char wanted[80];
  redis_server *sentinel = redis_sentinels_sentinel(set, 0);
  corral *c = opened_at(redis_server_uri(sentinel));
  snprintf(wanted, sizeof wanted, "write redis+sentinel://127.0.0.1:%d/NAME",
           redis_server_port(sentinel));
  complains(c, wanted);
  corral_close(c);
}

static void a_uri_of_sentinels_that_meets_a_server_says_what_to_write(void **state) {
  (void)state;
  char uri[80], wanted[80];
  int port = redis_server_port(server_of(redis_sentinels_primary(set)));
  snprintf(uri, sizeof uri, "redis+sentinel://127.0.0.1:%d/main", port);
  snprintf(wanted, sizeof wanted, "write redis://127.0.0.1:%d", port);
  corral *c = opened_at(uri);
  complains(c, wanted);
  corral_close(c);
}

static void a_uri_that_meets_a_replica_says_where_the_primary_is(void **state) {
  (void)state;
  char wanted[80];
  int primary = redis_sentinels_primary(set);
  snprintf(wanted, sizeof wanted, "is a replica: write %s", redis_server_uri(server_of(primary)));
  corral *c = opened_at(redis_server_uri(server_of(1 - primary)));
  complains(c, "this server is a replica");
  complains(c, wanted);
  corral_close(c);
}

/* As where a name, or a proxy, leads to the primary: the next connection is as good as any. */
static void a_server_that_is_a_replica_for_a_while_is_used_again(void **state) {
  (void)state;
  redis_server *other = NULL, *server = NULL;
  if (!redis_server_start(&other, NULL) || !redis_server_start(&server, NULL)) skip();
  corral *c = opened_at(redis_server_uri(server));
  sets(c, "k", 10);
  redis_server_ask(server, "REPLICAOF 127.0.0.1 %d", redis_server_port(other));
  complains(c, "this server is a replica");
  complains(c, "is a replica: write redis://");
  redis_server_ask(server, "REPLICAOF NO ONE");
  sets(c, "k", 10);
  corral_close(c);
  redis_server_stop(server);
  redis_server_stop(other);
}

typedef struct warnings {
  _Atomic int count;
  char text[240];
} warnings;

static void on_warning(const corral_event_info *info, void *arg) {
  warnings *w = arg;
  if (info->event != CORRAL_EVENT_WARNING) return;
  snprintf(w->text, sizeof w->text, "%s", info->detail);
  atomic_fetch_add(&w->count, 1);
}

/* Both before its name is known, and after. */
static void a_primary_that_goes_on_without_its_replica_is_warned_of_once(void **state) {
  (void)state;
  static warnings w;
  char wanted[60];
  redis_server *primary = server_of(redis_sentinels_primary(set));
  corral *c = opened(&(corral_options){.on_event = on_warning, .event_arg = &w});
  for (int i = 0; i < KEYS; i++) gets(c, of_number(i), NULL);
  assert_int_equal(atomic_load(&w.count), 1);
  snprintf(wanted, sizeof wanted, ":%d: min-replicas-to-write isn't set",
           redis_server_port(primary));
  assert_non_null(strstr(w.text, wanted));
  corral_close(c);
  redis_server_ask(primary, "CONFIG SET min-replicas-to-write 1");
  c = opened(&(corral_options){.on_event = on_warning, .event_arg = &w});
  for (int i = 0; i < KEYS; i++) gets(c, of_number(i), NULL);
  assert_int_equal(atomic_load(&w.count), 1);
  corral_close(c);
  redis_server_ask(primary, "CONFIG SET min-replicas-to-write 0");
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, start, history_room_close)
  const struct CMUnitTest tests[] = {
      T(values_tags_and_locks_are_on_the_primary),
      T(the_database_of_the_uri_is_used),
      T(a_primary_that_goes_on_without_its_replica_is_warned_of_once),
      T(a_copy_is_dropped_when_another_process_changes_its_value),
      T(a_sentinel_that_goes_is_replaced_by_another),
      T(a_killed_primary_costs_no_error_and_no_compute),
      T(nor_where_calls_may_be_given_what_is_stale),
      T(a_primary_that_hangs_costs_no_error_and_no_compute),
      T(a_planned_failover_costs_no_error_and_no_compute),
      T(a_former_primary_that_comes_back_is_not_written_to),
      T(a_deposed_primary_is_left_before_it_knows),
      T(an_invalidation_that_came_to_the_replica_is_not_undone),
      T(an_invalidation_that_a_dead_primary_did_not_hear_reaches_the_promoted_one),
      T(an_invalidation_in_doubt_is_repeated_to_the_promoted_server),
      T(a_copy_is_dropped_when_its_primary_is_killed),
      T(a_copy_is_dropped_when_its_primary_is_deposed),
      T(a_uri_that_meets_a_sentinel_says_what_to_write),
      T(a_uri_of_sentinels_that_meets_a_server_says_what_to_write),
      T(a_uri_that_meets_a_replica_says_where_the_primary_is),
      T(a_server_that_is_a_replica_for_a_while_is_used_again),
  };
  return cmocka_run_group_tests_name("redis_sentinel", tests, NULL, stop);
}
