/* test_postgresql_replica.c: docs/recipes.md, "Computes that read a replica", on a real PostgreSQL
 * with a streaming replica. Its replay stands still, or lags, while values are asked for. */
#include <corral.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os/env.h"
#include "support/postgresql_server.h"
#include "support/redis_server.h"

enum { PATIENCE_MS = 60000, STEP_MS = 2, ROUNDS = 30, LAG_MS = 40 };

static postgresql_server *primary, *replica;
static redis_server *redis;

/* Fails the test unless `condition` becomes true within PATIENCE_MS. */
#define AWAIT(condition)                                                                           \
  for (int64_t await_until = crl_env_now_ms() + PATIENCE_MS; !(condition);                         \
       crl_env_sleep_until(crl_env_now_ms() + STEP_MS))                                            \
    if (crl_env_now_ms() > await_until) fail_msg("never came: %s", #condition)

/* ---- the application ------------------------------------------------------------------------ */

/* A compute's arguments. It waits at the gate, if there is one, after it has read. */
typedef struct reading {
  postgresql_server *from;
  atomic_int *gate;
  atomic_int began;
} reading;

static long long stock_in(postgresql_server *server) {
  return strtoll(postgresql_server_ask(server, "SELECT stock FROM article"), NULL, 10);
}

static int read_stock(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  reading *r = arg;
  char text[24];
  (void)key, (void)key_len;
  int size = snprintf(text, sizeof text, "%lld", stock_in(r->from));
  atomic_store(&r->began, 1);
  if (r->gate != NULL) AWAIT(atomic_load(r->gate));
  return corral_fill_bytes(fill, text, (size_t)size);
}

static long long stock_of(corral *c, reading *r) {
  corral_value *value;
  char text[24];
  assert_int_equal(corral_get_or_compute(c, "stock", 5, NULL, read_stock, r, &value), CORRAL_OK);
  snprintf(text, sizeof text, "%.*s", (int)corral_value_size(value),
           (const char *)corral_value_data(value));
  corral_value_unref(value);
  return strtoll(text, NULL, 10);
}

/* One more in stock, and a row in the table of changes; committed. */
static void change(void) {
  assert_string_equal(postgresql_server_ask(primary, "BEGIN; UPDATE article SET stock = stock + 1; "
                                                     "INSERT INTO changes DEFAULT VALUES; COMMIT"),
                      "");
}

static void invalidate(corral *c) {
  assert_int_equal(corral_invalidate(c, "stock", 5, NULL), CORRAL_OK);
}

/* ---- the recipe's steps --------------------------------------------------------------------- */

/* Where the log is after a commit. */
static const char *position(void) {
  static char lsn[32];
  snprintf(lsn, sizeof lsn, "%s", postgresql_server_ask(primary, "SELECT pg_current_wal_lsn()"));
  return lsn;
}

static int has_replayed(const char *lsn) {
  return strcmp(
             postgresql_server_ask(replica, "SELECT pg_last_wal_replay_lsn() >= '%s'::pg_lsn", lsn),
             "t") == 0;
}

static long long changes_in(postgresql_server *server) {
  return strtoll(postgresql_server_ask(server, "SELECT count(*) FROM changes"), NULL, 10);
}

/* ---- the stage ------------------------------------------------------------------------------ */

static void hold_replay(void) {
  AWAIT(has_replayed(position()));
  assert_string_equal(postgresql_server_ask(replica, "SELECT pg_wal_replay_pause()"), "");
  AWAIT(strcmp(postgresql_server_ask(replica, "SELECT pg_get_wal_replay_pause_state()"),
               "paused") == 0);
}

static void release_replay(void) {
  assert_string_equal(postgresql_server_ask(replica, "SELECT pg_wal_replay_resume()"), "");
}

static void set_lag(int ms) {
  postgresql_server_ask(replica, "ALTER SYSTEM SET recovery_min_apply_delay = %d", ms);
  postgresql_server_ask(replica, "SELECT pg_reload_conf()");
  AWAIT(strtol(postgresql_server_ask(replica, "SELECT setting FROM pg_settings WHERE name = "
                                              "'recovery_min_apply_delay'"),
               NULL, 10) == ms);
}

static corral *opened(const char *name) {
  corral *c;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = redis_server_uri(redis), .name_space = name,
                                 .op_ms = 10000, .policy = CORRAL_POLICY(.ttl_ms = 3600000)),
                  &c, NULL),
      CORRAL_OK);
  return c;
}

/* ---- the stories ---------------------------------------------------------------------------- */

static void without_the_recipe_an_old_value_stays(void **state) {
  (void)state;
  corral *c = opened("without");
  reading r = {.from = replica};
  hold_replay();
  long long before = stock_of(c, &r);
  change();
  invalidate(c);
  assert_int_equal(stock_of(c, &r), before);
  release_replay();
  AWAIT(stock_in(replica) == before + 1);
  assert_int_equal(stock_of(c, &r), before);
  corral_close(c);
}

static void computes_from_the_primary_are_new_while_the_replica_lags(void **state) {
  (void)state;
  corral *c = opened("primary");
  reading r = {.from = primary};
  hold_replay();
  long long before = stock_of(c, &r);
  change();
  invalidate(c);
  assert_int_equal(stock_of(c, &r), before + 1);
  release_replay();
  corral_close(c);
}

static void invalidated_again_after_the_replay_nothing_old_stays(void **state) {
  (void)state;
  corral *c = opened("again");
  reading r = {.from = replica};
  hold_replay();
  long long before = stock_of(c, &r);
  change();
  const char *lsn = position();
  invalidate(c);
  assert_int_equal(stock_of(c, &r), before);
  assert_false(has_replayed(lsn));
  release_replay();
  AWAIT(has_replayed(lsn));
  invalidate(c);
  assert_int_equal(stock_of(c, &r), before + 1);
  corral_close(c);
}

typedef struct caller {
  corral *c;
  reading *r;
} caller;

static void *call(void *arg) {
  caller *k = arg;
  (void)stock_of(k->c, k->r);
  return NULL;
}

/* It has read the old rows, and ends after the second invalidation. */
static void a_compute_that_lasts_beyond_the_replay_stores_nothing_old(void **state) {
  (void)state;
  atomic_int gate = 0;
  pthread_t thread;
  corral *c = opened("beyond"), *other = opened("beyond");
  reading slow = {.from = replica, .gate = &gate}, r = {.from = replica};
  hold_replay();
  change();
  const char *lsn = position();
  invalidate(c);
  assert_int_equal(pthread_create(&thread, NULL, call, &(caller){other, &slow}), 0);
  AWAIT(atomic_load(&slow.began));
  release_replay();
  AWAIT(has_replayed(lsn));
  invalidate(c);
  atomic_store(&gate, 1);
  pthread_join(thread, NULL);
  assert_int_equal(stock_of(c, &r), stock_in(primary));
  assert_int_equal(corral_counter(other, CORRAL_EVENT_FENCED), 1);
  corral_close(other);
  corral_close(c);
}

/* The row comes to the replica with the change itself. */
static void a_listener_at_the_replica_invalidates_when_the_change_can_be_read(void **state) {
  (void)state;
  corral *c = opened("listener");
  reading r = {.from = replica};
  hold_replay();
  long long known = changes_in(replica), before = stock_of(c, &r);
  change();
  assert_int_equal(changes_in(primary), known + 1);
  assert_int_equal(changes_in(replica), known);
  assert_int_equal(stock_of(c, &r), before);
  release_replay();
  AWAIT(changes_in(replica) == known + 1);
  invalidate(c);
  assert_int_equal(stock_of(c, &r), before + 1);
  corral_close(c);
}

/* Values that are old once the writer is done, of ROUNDS changes at a replica that lags. */
static int old_values(corral *c, int with_recipe) {
  reading r = {.from = replica};
  int old = 0;
  for (int round = 0; round < ROUNDS; round++) {
    change();
    const char *lsn = position();
    invalidate(c);
    (void)stock_of(c, &r);
    AWAIT(has_replayed(lsn));
    if (with_recipe) invalidate(c);
    old += stock_of(c, &r) != stock_in(primary);
  }
  return old;
}

static void at_a_replica_that_lags_the_recipe_leaves_none_old(void **state) {
  (void)state;
  corral *c = opened("lag");
  set_lag(LAG_MS);
  int without = old_values(c, 0), with = old_values(c, 1);
  set_lag(0);
  print_message("of %d values, old without the recipe: %d, with it: %d\n", ROUNDS, without, with);
  assert_true(without > 0);
  assert_int_equal(with, 0);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(without_the_recipe_an_old_value_stays),
      cmocka_unit_test(computes_from_the_primary_are_new_while_the_replica_lags),
      cmocka_unit_test(invalidated_again_after_the_replay_nothing_old_stays),
      cmocka_unit_test(a_compute_that_lasts_beyond_the_replay_stores_nothing_old),
      cmocka_unit_test(a_listener_at_the_replica_invalidates_when_the_change_can_be_read),
      cmocka_unit_test(at_a_replica_that_lags_the_recipe_leaves_none_old),
  };
  if (!redis_server_start(&redis, NULL) || !postgresql_server_start(&primary, NULL)) return 77;
  const char *said = postgresql_server_ask(
      primary, "CREATE TABLE article AS SELECT 1 AS stock; CREATE TABLE changes (id serial)");
  if (said[0] != '\0') return fprintf(stderr, "%s\n", said) > 0;
  postgresql_server_replica(&replica, primary);
  int failed = cmocka_run_group_tests_name("postgresql_replica", tests, NULL, NULL);
  postgresql_server_stop(replica);
  postgresql_server_stop(primary);
  redis_server_stop(redis);
  return failed;
}
