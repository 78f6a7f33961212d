/* test_redis_cost.c: what a process costs the nodes of a real Redis Cluster: commands, questions
 * for the map, connections, and keys that are tracked. docs/scale.md reckons with these counts. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <pthread.h>
#include <stdatomic.h>

#include "support/moving_kit.h"
#include "support/redis_cluster.h"

enum {
  KEYS = 60,
  ATTEMPTS = 50,
  CROWD = 32,
  HANDLES = 2,
  MANY = 64,
  HITS = 60,
  MESSAGES = 400 /* for 1,000 hits; 1,000 where each goes alone */
};

static redis_cluster *cluster;
static redis_server *alone;
static char uri[200];

static const char *store_uri(void) { return uri; }

static redis_server *primary(int shard) {
  return redis_cluster_node(cluster, redis_cluster_primary(cluster, shard));
}

static int on_a_cluster(void **state) {
  if (cluster == NULL && !redis_cluster_start(&cluster)) skip();
  redis_cluster_empty(cluster);
  for (int i = 0; i < REDIS_CLUSTER_NODES; i++)
    redis_server_ask(redis_cluster_node(cluster, i), "CONFIG RESETSTAT");
  snprintf(uri, sizeof uri, "%s?client_name=payer", redis_cluster_uri(cluster));
  return history_room_open(state);
}

static int stop(void **state) {
  (void)state;
  redis_cluster_stop(cluster);
  redis_server_stop(alone);
  return 0;
}

static const char *of_number(int number) {
  static char key[24];
  snprintf(key, sizeof key, "key %d", number);
  return key;
}

/* ---- counts -------------------------------------------------------------------------------- */

static long count_in(const char *text, const char *what) {
  long count = 0;
  for (const char *at = text; (at = strstr(at, what)) != NULL; at++) count++;
  return count;
}

static long calls_at(redis_server *server, const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *found = strstr(redis_server_ask(server, "INFO commandstats"), name);
  return found == NULL ? 0 : strtol(found + strlen(name), NULL, 10);
}

/* Of all primaries. */
static long calls(const char *command) {
  long sum = 0;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) sum += calls_at(primary(i), command);
  return sum;
}

static long connections_of(int shard) {
  return count_in(redis_server_ask(primary(shard), "CLIENT LIST"), " name=payer ");
}

static long tracked(void) {
  long long sum = 0;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    sum += redis_server_info(primary(i), "tracking_total_keys");
  return (long)sum;
}

/* ---- the map ------------------------------------------------------------------------------- */

/* While nothing moves; longer than the first pauses of a process that asks again. */
static void a_process_asks_for_the_map_once(void **state) {
  (void)state;
  corral *c = opened(&(corral_options){.op_ms = 10000});
  int64_t begun = lab_now_us();
  for (int i = 0; lab_now_us() - begun < 1500000; i++) (void)gets(c, of_number(i % KEYS), NULL);
  assert_int_equal(calls("cluster|slots"), 1);
  corral_close(c);
}

static void a_slot_that_has_moved_is_asked_about_until_the_map_says_so(void **state) {
  (void)state;
  corral *c = opened(&(corral_options){.op_ms = 10000});
  for (int i = 0; i < KEYS; i++) (void)gets(c, of_number(i), NULL);
  int slot = redis_cluster_slot(cluster, "key 1");
  redis_cluster_move(cluster, slot, redis_cluster_next(cluster, slot));
  long before = calls("cluster|slots");
  assert_int_equal(gets(c, "key 1", NULL), CORRAL_FRESH);
  for (int i = 0; i < 3000 && calls("cluster|slots") == before; i++) lab_sleep_ms(10);
  assert_true(calls("cluster|slots") > before);
  corral_close(c);
}

/* ---- commands ------------------------------------------------------------------------------ */

static const char *const commands[] = {"getrange", "pttl",     "set",    "get",    "eval",
                                       "evalsha",  "setrange", "rename", "pexpire"};
enum { COMMANDS = sizeof commands / sizeof *commands };

typedef struct bill {
  long of[COMMANDS];
} bill;

static bill bill_of_one(void) {
  bill b;
  for (size_t i = 0; i < COMMANDS; i++) b.of[i] = calls_at(alone, commands[i]);
  return b;
}

static bill bill_of_all(void) {
  bill b;
  for (size_t i = 0; i < COMMANDS; i++) b.of[i] = calls(commands[i]);
  return b;
}

/* KEYS misses, hits, and invalidations. */
static void work(corral *c, int turn) {
  char key[32];
  for (int i = 0; i < 3 * KEYS; i++) {
    snprintf(key, sizeof key, "work %d %d", turn, i % KEYS);
    if (i < 2 * KEYS)
      assert_int_equal(gets(c, key, NULL), i < KEYS ? CORRAL_COMPUTED : CORRAL_FRESH);
    else
      assert_int_equal(corral_invalidate(c, key, strlen(key), NULL), CORRAL_OK);
  }
}

static bill spent(corral *c, bill (*read)(void), int turn) {
  bill before = read(), after;
  work(c, turn);
  after = read();
  for (size_t i = 0; i < COMMANDS; i++) after.of[i] -= before.of[i];
  return after;
}

/* A stall of the machine may leave a server's clock unknown, and then costs a PTTL. */
static void each_call_costs_the_nodes_the_commands_that_it_costs_one_server(void **state) {
  (void)state;
  bill one = {0}, all = {0};
  corral *c = opened(&(corral_options){.op_ms = 10000}), *d;
  if (alone == NULL && !redis_server_start(&alone, NULL)) skip();
  snprintf(uri, sizeof uri, "%s", redis_server_uri(alone));
  d = opened(&(corral_options){.op_ms = 10000});
  work(c, -1); /* each node gets its scripts */
  work(d, -1);
  for (int turn = 0; turn < ATTEMPTS; turn++) {
    all = spent(c, bill_of_all, turn);
    one = spent(d, bill_of_one, turn);
    if (memcmp(&one, &all, sizeof one) == 0 && one.of[1] == 0) break;
  }
  for (size_t i = 0; i < COMMANDS; i++) {
    print_message("           %s: %ld, %ld on one server\n", commands[i], all.of[i], one.of[i]);
    assert_int_equal(all.of[i], one.of[i]);
  }
  /* a look of each miss and hit, and one by the scripts that settle and invalidate */
  assert_int_equal(one.of[0], 4 * KEYS);
  corral_close(c);
  corral_close(d);
}

/* ---- connections, and tracked keys --------------------------------------------------------- */

static long connections(long *most) {
  long sum = 0;
  *most = 0;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) {
    long count = connections_of(i);
    sum += count;
    if (count > *most) *most = count;
  }
  return sum;
}

static void a_thread_needs_one_connection_to_each_node_and_the_first(void **state) {
  (void)state;
  long most;
  /* no lease is extended by another thread */
  corral *c = opened(&(corral_options){
      .op_ms = 10000, .policy = CORRAL_POLICY(.lease_ms = LONG_MS, .lease_min_ms = LONG_MS)});
  for (int i = 0; i < 2 * KEYS; i++) (void)gets(c, of_number(i % KEYS), NULL);
  assert_int_equal(connections(&most), REDIS_CLUSTER_PRIMARIES + 1);
  corral_close(c);
}

/* Returns its argument when all were answered. */
static void *hit_all(void *c) {
  int answers = 0;
  for (int i = 0; i < 10 * KEYS; i++) {
    char key[24];
    corral_value *value = NULL;
    snprintf(key, sizeof key, "key %d", i % KEYS);
    answers += corral_get_or_compute(c, key, strlen(key), NULL, echo, NULL, &value) == CORRAL_OK;
    corral_value_unref(value);
  }
  return answers == 10 * KEYS ? c : NULL;
}

static void many_threads_have_no_more_than_the_handles_of_each_node(void **state) {
  (void)state;
  long most;
  pthread_t threads[CROWD];
  corral *c = opened(&(corral_options){.op_ms = 10000});
  for (int i = 0; i < CROWD; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, hit_all, c), 0);
  for (int i = 0; i < CROWD; i++) {
    void *answered;
    pthread_join(threads[i], &answered);
    assert_ptr_equal(answered, c);
  }
  (void)connections(&most);
  assert_in_range(most, 1, 2 * HANDLES); /* the first node has those that asked for the map, too */
  corral_close(c);
}

/* ---- messages ------------------------------------------------------------------------------ */

static pthread_barrier_t all_are_there;

/* A thread has keys of its own: a call that joins another's flight is no look. Returns its argument
 * when all were answered. */
static void *hit_own(void *c) {
  static _Atomic int threads;
  int me = atomic_fetch_add(&threads, 1) % MANY, answers = 0;
  for (int i = -3; i < HITS; i++) {
    char key[24];
    corral_value *value = NULL;
    if (i == 0) pthread_barrier_wait(&all_are_there);
    snprintf(key, sizeof key, "key %d of %d", (i + 3) % 3, me);
    answers += corral_get_or_compute(c, key, strlen(key), NULL, echo, NULL, &value) == CORRAL_OK;
    corral_value_unref(value);
  }
  return answers == HITS + 3 ? c : NULL;
}

/* What the primaries have read. Each question is a message itself. */
static long messages(void) {
  long long sum = 0;
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    sum += redis_server_info(primary(i), "total_reads_processed");
  return (long)sum - REDIS_CLUSTER_PRIMARIES;
}

/* Messages for each 1,000 hits of many threads. */
static long messages_of(corral *c) {
  pthread_t threads[MANY];
  pthread_barrier_init(&all_are_there, NULL, MANY + 1);
  for (int i = 0; i < MANY; i++) assert_int_equal(pthread_create(&threads[i], NULL, hit_own, c), 0);
  long before = messages();
  pthread_barrier_wait(&all_are_there);
  for (int i = 0; i < MANY; i++) {
    void *answered;
    pthread_join(threads[i], &answered);
    assert_ptr_equal(answered, c);
  }
  long sent = messages() - before;
  pthread_barrier_destroy(&all_are_there);
  return sent * 1000 / (MANY * HITS);
}

/* How many go together depends on when their threads run: the exact rules are in test_seats. */
static void hits_of_many_threads_go_together(void **state) {
  (void)state;
  corral *c = opened(&(corral_options){.op_ms = 10000});
  long count = 1000;
  for (int i = 0; i < 2 * ATTEMPTS && count > MESSAGES; i++) {
    count = messages_of(c);
    print_message("           %d threads: %ld messages for 1,000 hits\n", MANY, count);
  }
  assert_in_range(count, 1, MESSAGES);
  corral_close(c);
}

static void a_copy_is_one_tracked_key_until_it_is_told_of(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e), *other = opened(&(corral_options){.op_ms = 10000});
  for (int i = 0; i < KEYS; i++) await_copy(c, &e, of_number(i));
  assert_int_equal(tracked(), KEYS);
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    assert_int_equal(redis_server_info(primary(i), "tracking_clients"), 1);
  for (int i = 0; i < KEYS; i++) {
    const char *key = of_number(i);
    assert_int_equal(corral_invalidate(other, key, strlen(key), NULL), CORRAL_OK);
  }
  assert_int_equal(tracked(), 0);
  corral_close(c);
  corral_close(other);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, on_a_cluster, history_room_close)
  const struct CMUnitTest tests[] = {
      T(a_process_asks_for_the_map_once),
      T(a_slot_that_has_moved_is_asked_about_until_the_map_says_so),
      T(each_call_costs_the_nodes_the_commands_that_it_costs_one_server),
      T(a_thread_needs_one_connection_to_each_node_and_the_first),
      T(many_threads_have_no_more_than_the_handles_of_each_node),
      T(hits_of_many_threads_go_together),
      T(a_copy_is_one_tracked_key_until_it_is_told_of),
  };
  return cmocka_run_group_tests_name("redis_cost", tests, NULL, stop);
}
