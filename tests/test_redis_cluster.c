/* test_redis_cluster.c: corral on a real Redis Cluster of three primaries and three replicas, while
 * slots move and primaries fail. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <corral/lock.h>

#include "support/moving_kit.h"
#include "support/redis_cluster.h"

enum { KEYS = 200, MOVES = 20 };

static redis_cluster *cluster;

static const char *store_uri(void) { return redis_cluster_uri(cluster); }

static int start(void **state) {
  if (cluster == NULL && !redis_cluster_start(&cluster)) skip();
  redis_cluster_await_well(cluster);
  redis_cluster_empty(cluster);
  atomic_store(&computes, 0);
  return history_room_open(state);
}

static int stop(void **state) {
  (void)state;
  redis_cluster_stop(cluster);
  cluster = NULL;
  return 0;
}

static const char *of_number(int number) {
  static char key[24];
  snprintf(key, sizeof key, "key %d", number);
  return key;
}

/* The name of a key of this shard, with a stem of its own. */
static const char *of_shard(const char *stem, int shard) {
  static char key[48];
  int node = redis_cluster_primary(cluster, shard);
  for (int i = 0;; i++) {
    snprintf(key, sizeof key, "%s %d", stem, i);
    if (redis_cluster_owner(cluster, redis_cluster_slot(cluster, key)) == node) return key;
  }
}

static int other_of_shard(int node) {
  return (node + REDIS_CLUSTER_PRIMARIES) % REDIS_CLUSTER_NODES;
}

/* ---- every kind of call -------------------------------------------------------------------- */

static long keys_of_shard(int shard) {
  redis_server *node = redis_cluster_node(cluster, redis_cluster_primary(cluster, shard));
  return strtol(redis_server_ask(node, "DBSIZE"), NULL, 10);
}

/* On a busy machine as much is stored. */
static const corral_options patient = {.op_ms = 10000};

static void each_node_has_its_share_of_the_values(void **state) {
  (void)state;
  corral *a = opened(&patient), *b = opened(&patient);
  for (int i = 0; i < KEYS; i++) assert_int_equal(gets(a, of_number(i), NULL), CORRAL_COMPUTED);
  for (int i = 0; i < KEYS; i++) assert_int_equal(gets(b, of_number(i), NULL), CORRAL_FRESH);
  assert_int_equal(computes, KEYS);
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++) assert_true(keys_of_shard(i) > KEYS / 10);
  assert_int_equal(corral_invalidate(b, "key 7", 5, NULL), CORRAL_OK);
  assert_int_equal(gets(a, "key 7", NULL), CORRAL_COMPUTED);
  corral_close(a);
  corral_close(b);
}

static int echo_many(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    atomic_fetch_add(&computes, 1);
    corral_fill_bytes(fills[i], key, len);
  }
  return CORRAL_OK;
}

static void asks_for_many(corral *c, int expected) {
  static char names[KEYS][24];
  corral_item items[KEYS];
  atomic_store(&computes, 0);
  for (int i = 0; i < KEYS; i++)
    items[i] =
        (corral_item){.key = names[i], .key_len = (size_t)snprintf(names[i], 24, "many %d", i)};
  assert_int_equal(corral_get_many(c, items, KEYS, NULL, echo_many, NULL), CORRAL_OK);
  for (int i = 0; i < KEYS; i++) {
    if (items[i].status != CORRAL_OK) fail_msg("%s", items[i].error.text);
    assert_memory_equal(corral_value_data(items[i].value), names[i], items[i].key_len);
    corral_value_unref(items[i].value);
  }
  assert_int_equal(computes, expected);
}

static void many_keys_are_got_from_all_nodes_by_one_call(void **state) {
  (void)state;
  corral *a = opened(&patient), *b = opened(&patient);
  asks_for_many(a, KEYS);
  asks_for_many(b, 0);
  int slot = redis_cluster_slot(cluster, "many 5");
  redis_cluster_move(cluster, slot, redis_cluster_next(cluster, slot));
  asks_for_many(b, 0);
  corral_close(a);
  corral_close(b);
}

static void a_tag_voids_values_on_all_nodes(void **state) {
  (void)state;
  corral *a = opened(&patient), *b = opened(&patient);
  for (int i = 0; i < 30; i++) assert_int_equal(gets(a, of_number(i), "t"), CORRAL_COMPUTED);
  for (int i = 0; i < 30; i++) assert_int_equal(gets(b, of_number(i), "t"), CORRAL_FRESH);
  assert_int_equal(corral_invalidate_tag(a, "t", 1, NULL), CORRAL_OK);
  for (int i = 0; i < 30; i++) assert_int_equal(gets(b, of_number(i), "t"), CORRAL_COMPUTED);
  corral_close(a);
  corral_close(b);
}

static void locks_exclude_each_other_also_while_their_slots_move(void **state) {
  (void)state;
  corral *a = opened(&patient), *b = opened(&patient);
  corral_error error = {0};
  for (int i = 0; i < 12; i++) {
    corral_lock *lock = NULL, *other = NULL;
    char name[16], stored[40];
    snprintf(name, sizeof name, "L%d", i);
    snprintf(stored, sizeof stored, "~lock::%s", name);
    if (corral_lock_take(a, name, strlen(name), CORRAL_LOCK(.ttl_ms = LONG_MS, .keep = 1), &lock,
                         &error) != CORRAL_OK)
      fail_msg("%s", error.text);
    int slot = redis_cluster_slot(cluster, stored), to = redis_cluster_next(cluster, slot);
    redis_cluster_begin(cluster, slot, to);
    if (i % 2 == 0) assert_int_equal(redis_cluster_carry(cluster, slot, to, 100), 1);
    assert_int_equal(
        corral_lock_take(b, name, strlen(name), CORRAL_LOCK(.wait_ms = CORRAL_OFF), &other, NULL),
        CORRAL_EBUSY);
    assert_int_equal(corral_lock_extend(lock, LONG_MS, NULL), CORRAL_OK);
    while (redis_cluster_carry(cluster, slot, to, 100) > 0) continue;
    redis_cluster_end(cluster, slot, to);
    assert_int_equal(
        corral_lock_take(b, name, strlen(name), CORRAL_LOCK(.wait_ms = CORRAL_OFF), &other, NULL),
        CORRAL_EBUSY);
    assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
    assert_int_equal(
        corral_lock_take(b, name, strlen(name), CORRAL_LOCK(.ttl_ms = LONG_MS), &other, NULL),
        CORRAL_OK);
    assert_int_equal(corral_lock_release(other, NULL), CORRAL_OK);
  }
  corral_close(a);
  corral_close(b);
}

/* ---- a slot on its way --------------------------------------------------------------------- */

static int fill_with(corral_fill *fill, const void *key, size_t len, void *arg) {
  size_t size = *(size_t *)arg;
  (void)key, (void)len;
  void *data = corral_fill_reserve(fill, size);
  if (data != NULL) memset(data, 'y', size);
  return CORRAL_OK;
}

/* Ends the fresh life of a value that is there, and computes another one: claimed and settled where
 * the former one is. */
static void renews(corral *c, const char *key, size_t size) {
  corral_value *value = NULL;
  corral_error error = {0};
  assert_int_equal(corral_expire(c, key, strlen(key), NULL), CORRAL_OK);
  int status = corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.error = &error), fill_with,
                                     &size, &value);
  if (status != CORRAL_OK) fail_msg("%s: %s", corral_status_name(status), error.text);
  assert_int_equal(corral_value_how(value), CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(value), CORRAL_KEPT);
  corral_value_unref(value);
}

/* Small ones, those that are staged, and those that are read in pieces. */
static void values_of_every_size_are_stored_and_read_while_their_slot_is_on_its_way(void **state) {
  (void)state;
  static const size_t sizes[] = {10, 20000, 3 << 20};
  corral *c = opened(&(corral_options){.op_ms = 5000});
  for (int i = 0; i < 3; i++) {
    const char *key = "{moving} k";
    int slot = redis_cluster_slot(cluster, key), to = redis_cluster_next(cluster, slot);
    sets(c, key, sizes[i]);
    redis_cluster_begin(cluster, slot, to);
    renews(c, key, sizes[i] + 1); /* it is still on the old node */
    assert_int_equal(size_of(c, key), sizes[i] + 1);
    assert_int_equal(redis_cluster_carry(cluster, slot, to, 100), 1);
    assert_int_equal(size_of(c, key), sizes[i] + 1); /* now on the new one, by ASKING */
    renews(c, key, sizes[i] + 2);
    assert_int_equal(size_of(c, key), sizes[i] + 2);
    sets(c, key, sizes[i] + 3);
    sets(c, "{moving} another", sizes[i]);
    assert_int_equal(size_of(c, "{moving} another"), sizes[i]);
    assert_int_equal(corral_invalidate(c, "{moving} another", 16, NULL), CORRAL_OK);
    assert_int_equal(size_of(c, "{moving} another"), 0);
    redis_cluster_end(cluster, slot, to);
    assert_int_equal(size_of(c, key), sizes[i] + 3);
  }
  corral_close(c);
}

/* ---- load ---------------------------------------------------------------------------------- */

/* Slots of keys 0 to 3 go round, with and without a pause on their way. */
static void move_slots(void) {
  for (int i = 0; i < MOVES; i++) {
    char key[16];
    lab_key_name(key, i % 4);
    int slot = redis_cluster_slot(cluster, key), to = redis_cluster_next(cluster, slot);
    redis_cluster_begin(cluster, slot, to);
    let_pass(100);
    while (redis_cluster_carry(cluster, slot, to, 100) > 0) continue;
    let_pass(100);
    redis_cluster_end(cluster, slot, to);
    let_pass(100);
  }
}

static void a_slot_that_goes_to_and_fro_costs_no_error_and_no_compute(void **state) {
  (void)state;
  static const traffic lasting = {{.size = sizeof(corral_policy), .ttl_ms = LONG_MS}, 0, 0};
  spawn_load(&lasting);
  move_slots();
  end_load();
  for (int i = 0; i < 8; i++) assert_int_equal(current->keys[i].computes, 1);
}

static void a_slot_that_goes_to_and_fro_has_one_compute_of_a_key_at_a_time(void **state) {
  (void)state;
  static const traffic brief = {
      {.size = sizeof(corral_policy), .ttl_ms = 20, .wait_ms = 20000}, 3, 0};
  spawn_load(&brief);
  move_slots();
  end_load();
  for (int i = 0; i < 8; i++) assert_int_equal(current->keys[i].most, 1);
}

/* A node that was just promoted may say for a moment that the cluster is down. */
static void a_planned_failover_costs_no_error_and_no_value(void **state) {
  (void)state;
  static const traffic lasting = {{.size = sizeof(corral_policy), .ttl_ms = LONG_MS}, 0, 1};
  spawn_load(&lasting);
  for (int i = 0; i < 4; i++) {
    (void)redis_cluster_fail_over(cluster, i % REDIS_CLUSTER_PRIMARIES);
    let_pass(500);
    redis_cluster_await_well(cluster);
  }
  end_load();
  corral *c = opened(&patient);
  for (int i = 0; i < 8; i++) {
    char key[16];
    lab_key_name(key, i);
    assert_true(size_of(c, key) > 0);
  }
  corral_close(c);
}

/* ---- failures ------------------------------------------------------------------------------ */

/* Computes what node 0 has until a value of a promoted replica comes. */
static void await_return(corral *c, const char *key) {
  for (int i = 0; i < 3000; i++) {
    if (gets(c, key, NULL) == CORRAL_FRESH) return;
    lab_sleep_ms(10);
  }
  fail_msg("the promoted replica is not asked");
}

/* Every node refuses every key until the replica is promoted, as by default, and then it is on
 * another server: calls wait for that. */
static void a_killed_primary_costs_no_error_and_no_compute_of_a_replicated_value(void **state) {
  (void)state;
  static const traffic lasting = {
      {.size = sizeof(corral_policy), .ttl_ms = LONG_MS, .wait_ms = 90000}, 0, 1};
  int primary = redis_cluster_primary(cluster, 0), replica = other_of_shard(primary);
  spawn_load_with(&lasting, &(corral_options){.op_ms = 250,
                                              .away_ms = 60000,
                                              .breaker_rest_ms = 100,
                                              .host_lock = 1,
                                              .host_dir = current->folder});
  redis_server_ask(redis_cluster_node(cluster, primary), "SET mark x");
  redis_server_ask(redis_cluster_node(cluster, primary), "WAIT 1 20000");
  redis_cluster_kill(cluster, primary);
  redis_cluster_await_primary(cluster, replica);
  let_pass(2000);
  end_load();
  int of_the_dead = 0;
  for (int i = 0; i < 8; i++) {
    char key[16];
    lab_key_name(key, i);
    assert_int_equal(current->keys[i].computes, 1);
    of_the_dead += redis_cluster_owner(cluster, redis_cluster_slot(cluster, key)) == replica;
  }
  assert_true(of_the_dead > 0);
  redis_cluster_restart(cluster, primary);
  redis_cluster_await_well(cluster);
}

static void full_coverage(const char *value) {
  for (int i = 0; i < REDIS_CLUSTER_NODES; i++)
    redis_server_ask(redis_cluster_node(cluster, i), "CONFIG SET cluster-require-full-coverage %s",
                     value);
}

static void a_killed_primary_costs_its_own_keys_until_the_failover_and_others_nothing(void **s) {
  (void)s;
  full_coverage("no");
  corral *c = opened(&patient);
  char lost[48], others[20][48];
  snprintf(lost, sizeof lost, "%s", of_shard("lost", 0));
  for (int i = 0; i < 20; i++) {
    char stem[24];
    snprintf(stem, sizeof stem, "other%d", i);
    snprintf(others[i], sizeof others[i], "%s", of_shard(stem, 1 + i % 2));
    gets(c, others[i], NULL);
  }
  gets(c, lost, NULL);
  int primary = redis_cluster_primary(cluster, 0), replica = other_of_shard(primary);
  redis_server_ask(redis_cluster_node(cluster, primary), "WAIT 1 5000");
  redis_cluster_kill(cluster, primary);
  atomic_store(&computes, 0);
  for (int i = 0; i < 200; i++) assert_int_equal(gets(c, others[i % 20], NULL), CORRAL_FRESH);
  assert_int_equal(computes, 0);
  await_return(c, lost);
  assert_int_equal(redis_cluster_primary(cluster, 0), replica);

  corral_close(c);
  redis_cluster_restart(cluster, primary);
  redis_cluster_await_well(cluster);
  full_coverage("yes");
}

/* Nobody asks for anything while the replica is promoted. */
static void an_invalidation_that_a_dead_primary_did_not_hear_reaches_the_promoted_one(void **s) {
  (void)s;
  corral *c = opened(&(corral_options){0});
  char key[48];
  snprintf(key, sizeof key, "%s", of_shard("unheard", 2));
  gets(c, key, NULL);
  int primary = redis_cluster_primary(cluster, 2), replica = other_of_shard(primary);
  redis_server_ask(redis_cluster_node(cluster, primary), "WAIT 1 5000");
  redis_cluster_kill(cluster, primary);
  assert_int_not_equal(corral_invalidate(c, key, strlen(key), NULL), CORRAL_OK);
  redis_cluster_await_primary(cluster, replica);
  redis_server *promoted = redis_cluster_node(cluster, replica);
  for (int i = 0; i < 3000 && *redis_server_ask(promoted, "EXISTS %s", key) == '1'; i++)
    lab_sleep_ms(10);
  assert_string_equal(redis_server_ask(promoted, "EXISTS %s", key), "0");
  corral_close(c);
  redis_cluster_restart(cluster, primary);
  redis_cluster_await_well(cluster);
}

static void a_shard_that_hangs_costs_the_keys_of_others_nothing(void **state) {
  (void)state;
  full_coverage("no");
  corral *c = opened(&(corral_options){.op_ms = 250});
  int owner = redis_cluster_primary(cluster, 0), replica = other_of_shard(owner);
  char lost[48], other[48];
  snprintf(lost, sizeof lost, "%s", of_shard("hangs", 0));
  snprintf(other, sizeof other, "%s", of_shard("well", 1));
  gets(c, lost, NULL);
  gets(c, other, NULL);
  redis_server_pause(redis_cluster_node(cluster, owner));
  redis_server_pause(redis_cluster_node(cluster, replica));
  atomic_store(&computes, 0);
  for (int i = 0; i < 50; i++) {
    assert_int_equal(gets(c, other, NULL), CORRAL_FRESH);
    if (i % 10 == 0) (void)gets(c, lost, NULL);
    assert_int_equal(gets(c, other, NULL), CORRAL_FRESH);
  }
  assert_true(computes > 0); /* of the lost key */
  redis_server_resume(redis_cluster_node(cluster, owner));
  redis_server_resume(redis_cluster_node(cluster, replica));
  redis_cluster_await_well(cluster);
  await_return(c, lost);
  corral_close(c);
  full_coverage("yes");
}

/* ---- copies of this process ---------------------------------------------------------------- */

static void a_copy_is_dropped_when_another_process_changes_its_value(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e), *other = opened(&patient);
  for (int i = 0; i < 12; i++) await_copy(c, &e, of_number(i));
  for (int i = 0; i < 12; i++) {
    const char *key = of_number(i);
    assert_int_equal(corral_invalidate(other, key, strlen(key), NULL), CORRAL_OK);
    await_compute(c, key);
  }
  corral_close(c);
  corral_close(other);
}

/* The new node has no keys of the slot, and the old one tells nothing of that. */
static void a_copy_is_dropped_when_its_slot_has_another_node(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e);
  const char *key = "{seized} a", *neighbour = "{seized} b";
  await_copy(c, &e, key);
  int slot = redis_cluster_slot(cluster, key);
  redis_cluster_seize(cluster, slot, redis_cluster_next(cluster, slot));
  (void)size_of(c, neighbour); /* the process learns of it */
  await_compute(c, key);
  corral_close(c);
}

static void a_copy_is_dropped_when_the_connection_that_watches_it_ends(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e);
  char cut[48], other[48];
  snprintf(cut, sizeof cut, "%s", of_shard("cut", 0));
  snprintf(other, sizeof other, "%s", of_shard("uncut", 2));
  await_copy(c, &e, cut);
  await_copy(c, &e, other);
  redis_server *node = redis_cluster_node(cluster, redis_cluster_primary(cluster, 0));
  redis_server_ask(node, "CLIENT KILL TYPE normal");
  assert_string_equal(redis_server_ask(node, "DEL %s", cut), "1");
  await_compute(c, cut);
  int before = atomic_load(&e.near);
  assert_int_equal(gets(c, other, NULL), CORRAL_FRESH);
  assert_int_equal(atomic_load(&e.near), before + 1);
  corral_close(c);
}

static void a_copy_is_dropped_when_its_node_is_killed_and_those_of_others_stay(void **state) {
  (void)state;
  ear e = {0};
  corral *c = near_of(&e);
  char lost[48], other[48];
  int owner = redis_cluster_primary(cluster, 1), replica = other_of_shard(owner);
  snprintf(lost, sizeof lost, "%s", of_shard("killed", 1));
  snprintf(other, sizeof other, "%s", of_shard("alive", 2));
  await_copy(c, &e, lost);
  await_copy(c, &e, other);
  redis_server_ask(redis_cluster_node(cluster, owner), "WAIT 1 5000");
  redis_cluster_kill(cluster, owner);
  redis_cluster_await_primary(cluster, replica);
  redis_server_ask(redis_cluster_node(cluster, replica), "DEL %s", lost);
  await_compute(c, lost);
  int before = atomic_load(&e.near);
  assert_int_equal(gets(c, other, NULL), CORRAL_FRESH);
  assert_int_equal(atomic_load(&e.near), before + 1);
  await_copy(c, &e, lost);
  corral_close(c);
  redis_cluster_restart(cluster, owner);
  redis_cluster_await_well(cluster);
}

/* Until the watch's connection has ended, the copy answers as a fresh one. */
static int get_unwatched(corral *c, const char *key, corral_value **value, corral_error *error) {
  static const corral_policy content = {.size = sizeof content,
                                        .ttl_ms = LONG_MS,
                                        .near_ms = LONG_MS,
                                        .wait_ms = 300,
                                        .when_away = CORRAL_AWAY_STALE};
  int status = CORRAL_OK;
  for (int i = 0; i < 3000; i++) {
    lab_sleep_ms(10);
    corral_value_unref(*value);
    *value = NULL;
    status = corral_get_or_compute(
        c, key, strlen(key), CORRAL_CALL(.policy = &content, .error = error), echo, NULL, value);
    if (status != CORRAL_OK || corral_value_how(*value) != CORRAL_FRESH) break;
  }
  return status;
}

/* Nothing tells whether it has changed, so it answers where nothing else can. */
static void a_copy_of_a_killed_node_serves_until_there_is_a_successor(void **state) {
  (void)state;
  ear e = {0};
  corral *c = opened(&(corral_options){
      .near_bytes = 1 << 20, .away_ms = 60000, .on_event = hear, .event_arg = &e});
  corral_value *value = NULL;
  corral_error error = {0};
  char key[48];
  int owner = redis_cluster_primary(cluster, 0), replica = other_of_shard(owner);
  snprintf(key, sizeof key, "%s", of_shard("kept", 0));
  await_copy(c, &e, key);
  redis_server_pause(redis_cluster_node(cluster, replica));
  redis_cluster_kill(cluster, owner);
  int status = get_unwatched(c, key, &value, &error);
  redis_server_resume(redis_cluster_node(cluster, replica));
  if (status != CORRAL_OK) fail_msg("%s: %s", corral_status_name(status), error.text);
  assert_int_equal(corral_value_how(value), CORRAL_OUTBOX);
  corral_value_unref(value);
  corral_close(c);
  redis_cluster_await_primary(cluster, replica);
  redis_cluster_restart(cluster, owner);
  redis_cluster_await_well(cluster);
}

/* ---- waiters ------------------------------------------------------------------------------- */

static const char waited_for[] = "{waited} for";

typedef struct leader {
  corral *c;
  pthread_t thread;
  atomic_int inside, let_go;
} leader;

static int holds_on(corral_fill *fill, const void *key, size_t len, void *arg) {
  leader *l = arg;
  atomic_store(&l->inside, 1);
  while (!atomic_load(&l->let_go)) lab_sleep_ms(5);
  return corral_fill_bytes(fill, key, len);
}

static void *leads(void *arg) {
  leader *l = arg;
  corral_value *value = NULL;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = LONG_MS, .lease_ms = LONG_MS, .lease_min_ms = LONG_MS);
  if (corral_get_or_compute(l->c, waited_for, sizeof waited_for - 1, CORRAL_CALL(.policy = policy),
                            holds_on, l, &value) != CORRAL_OK)
    return NULL;
  corral_value_unref(value);
  return l;
}

typedef struct waiter {
  corral *c;
  pthread_t thread;
  atomic_int how; /* of its answer, + 1 */
} waiter;

/* Looks again when it is told to, or after half a minute at the earliest. */
static void *waits(void *arg) {
  waiter *w = arg;
  corral_value *value = NULL;
  const corral_policy *policy =
      CORRAL_POLICY(.ttl_ms = LONG_MS, .wait_ms = LONG_MS, .poll_ms = 60000, .poll_max_ms = 60000);
  if (corral_get_or_compute(w->c, waited_for, sizeof waited_for - 1, CORRAL_CALL(.policy = policy),
                            echo, NULL, &value) == CORRAL_OK)
    atomic_store(&w->how, (int)corral_value_how(value) + 1);
  corral_value_unref(value);
  return NULL;
}

static void until(int (*holds)(void *arg), void *arg, const char *what) {
  for (int i = 0; i < 2500; i++) {
    if (holds(arg)) return;
    lab_sleep_ms(10);
  }
  fail_msg("%s", what);
}

static int leader_is_inside(void *arg) { return atomic_load(&((leader *)arg)->inside); }
static int is_tracked(void *arg) { return redis_server_info(arg, "tracking_total_keys") > 0; }
static int is_answered(void *arg) { return atomic_load(&((waiter *)arg)->how) > 0; }

/* The new node has no lease, and the old one tells nothing of that. */
static void a_waiter_is_told_when_its_slot_has_another_node(void **state) {
  (void)state;
  const corral_options alone = {.host_lock = CORRAL_OFF, .op_ms = 10000};
  static leader l;
  static waiter w;
  l = (leader){.c = opened(&alone)};
  w = (waiter){.c = opened(&alone)};
  int slot = redis_cluster_slot(cluster, waited_for);
  redis_server *owner = redis_cluster_node(cluster, redis_cluster_owner(cluster, slot));
  assert_int_equal(pthread_create(&l.thread, NULL, leads, &l), 0);
  until(leader_is_inside, &l, "nobody computes");
  assert_int_equal(pthread_create(&w.thread, NULL, waits, &w), 0);
  until(is_tracked, owner, "the waiter's key is never registered");
  redis_cluster_seize(cluster, slot, redis_cluster_next(cluster, slot));
  assert_false(is_answered(&w));
  (void)size_of(w.c, "{waited} neighbour"); /* the process learns of it */
  until(is_answered, &w, "the waiter isn't told");
  assert_int_equal(w.how, CORRAL_COMPUTED + 1);
  assert_int_equal(computes, 1);
  atomic_store(&l.let_go, 1);
  void *answered;
  pthread_join(w.thread, NULL);
  pthread_join(l.thread, &answered);
  assert_ptr_equal(answered, &l);
  corral_close(w.c);
  corral_close(l.c);
}

/* ---- the history --------------------------------------------------------------------------- */

static unsigned roll(unsigned *dice) {
  *dice = *dice * 1664525u + 1013904223u;
  return *dice >> 8;
}

static void come_and_go(lab_seat *seat) {
  lab *l = seat->lab;
  static const corral_policy policy = {
      .size = sizeof policy, .ttl_ms = 100, .swr_ms = 100, .wait_ms = 2000, .near_ms = LONG_MS};
  unsigned dice = (unsigned)(seat->process * THREADS + seat->thread + 1);
  while (l->marks[STOP] == 0 && entries->count < HISTORY_ROOM * 3 / 4) {
    history_call call = {.history = entries,
                         .seat = seat,
                         .key = (int)(roll(&dice) % 4),
                         .cost_ms = roll(&dice) % 6};
    if (roll(&dice) % 100 < 3)
      (void)history_invalidate(entries, seat, call.key);
    else if (history_ask(&call, &policy) != CORRAL_OK)
      lab_wrong(l, "key-%d", call.key);
    lab_add(&l->marks[CALLS], 1);
    lab_sleep_ms(1);
  }
}

static void run_history(const corral_options *options, int64_t bound_ms) {
  lab_spawn(current, &(lab_plan){.uri = redis_cluster_uri(cluster),
                                 .processes = PROCESSES,
                                 .threads = 4,
                                 .options = *options,
                                 .body = come_and_go});
  let_pass(500);
  move_slots();
  end_load();
  history_verdict seen = history_judge(entries, &(history_rules){.near_ns = bound_ms * 1000000});
  assert_true(seen.bound > 500);
  if (seen.wrong > 0) fail_msg("%zu wrong: %s", seen.wrong, seen.first);
}

static void an_invalidation_is_not_undone_by_a_slot_that_moves(void **state) {
  (void)state;
  run_history(&(corral_options){.op_ms = 1000}, 0);
}

/* A copy is a push late, or the time until the process learns that its slot has moved. */
static void a_watched_copy_is_soon_dropped_while_slots_move(void **state) {
  (void)state;
  run_history(&(corral_options){.op_ms = 1000, .near_bytes = 1 << 20}, 4000);
}

/* ---- other URIs ---------------------------------------------------------------------------- */

typedef struct warnings {
  pthread_mutex_t mutex;
  int count;
  char text[8][240];
} warnings;

static void on_warning(const corral_event_info *info, void *arg) {
  warnings *w = arg;
  if (info->event != CORRAL_EVENT_WARNING) return;
  pthread_mutex_lock(&w->mutex);
  snprintf(w->text[w->count++ % 8], sizeof w->text[0], "%s", info->detail);
  pthread_mutex_unlock(&w->mutex);
}

static void each_primary_that_goes_on_without_its_replica_is_warned_of_once(void **state) {
  (void)state;
  warnings w = {.mutex = PTHREAD_MUTEX_INITIALIZER};
  corral *c = opened(&(corral_options){.on_event = on_warning, .event_arg = &w});
  for (int i = 0; i < 90; i++) {
    char key[24];
    snprintf(key, sizeof key, "warned%d", i);
    gets(c, key, NULL);
  }
  assert_int_equal(w.count, REDIS_CLUSTER_PRIMARIES);
  for (int shard = 0; shard < REDIS_CLUSTER_PRIMARIES; shard++) {
    char place[40];
    int said = 0;
    redis_server *node = redis_cluster_node(cluster, redis_cluster_primary(cluster, shard));
    snprintf(place, sizeof place, ":%d: min-replicas-to-write", redis_server_port(node));
    for (int i = 0; i < w.count; i++) said += strstr(w.text[i], place) != NULL;
    assert_int_equal(said, 1);
  }
  corral_close(c);
}

static void a_uri_without_cluster_says_what_to_write(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  corral_options options = {.size = sizeof options, .store = NULL};
  options.store = redis_server_uri(redis_cluster_node(cluster, redis_cluster_primary(cluster, 1)));
  assert_int_equal(corral_open(&options, &c, &error), CORRAL_OK);
  char key[48];
  snprintf(key, sizeof key, "%s", of_shard("elsewhere", 2));
  assert_int_equal(corral_set(c, key, strlen(key), CORRAL_CALL(.error = &error), "x", 1),
                   CORRAL_EUNAVAILABLE);
  char wanted[60]; /* the server that was asked is one of the cluster's */
  snprintf(wanted, sizeof wanted, "write redis+cluster://%s in", strchr(options.store, '/') + 2);
  assert_non_null(strstr(error.text, wanted));
  corral_close(c);
}

static void a_server_without_a_cluster_says_what_to_write(void **state) {
  (void)state;
  redis_server *plain;
  char uri[80];
  corral *c = NULL;
  corral_error error = {0};
  if (!redis_server_start(&plain, NULL)) skip();
  snprintf(uri, sizeof uri, "redis+cluster://127.0.0.1:%d/", redis_server_port(plain));
  corral_options options = {.size = sizeof options, .store = uri};
  assert_int_equal(corral_open(&options, &c, &error), CORRAL_OK);
  assert_int_not_equal(corral_set(c, "k", 1, CORRAL_CALL(.error = &error), "x", 1), CORRAL_OK);
  char wanted[60];
  snprintf(wanted, sizeof wanted, "write redis://127.0.0.1:%d in", redis_server_port(plain));
  assert_non_null(strstr(error.text, wanted));
  corral_close(c);
  redis_server_stop(plain);
}

int main(void) {
#define T(test) cmocka_unit_test_setup_teardown(test, start, history_room_close)
  const struct CMUnitTest tests[] = {
      T(each_node_has_its_share_of_the_values),
      T(many_keys_are_got_from_all_nodes_by_one_call),
      T(a_tag_voids_values_on_all_nodes),
      T(locks_exclude_each_other_also_while_their_slots_move),
      T(values_of_every_size_are_stored_and_read_while_their_slot_is_on_its_way),
      T(a_slot_that_goes_to_and_fro_costs_no_error_and_no_compute),
      T(a_slot_that_goes_to_and_fro_has_one_compute_of_a_key_at_a_time),
      T(a_planned_failover_costs_no_error_and_no_value),
      T(a_copy_is_dropped_when_another_process_changes_its_value),
      T(a_copy_is_dropped_when_its_slot_has_another_node),
      T(a_waiter_is_told_when_its_slot_has_another_node),
      T(a_copy_is_dropped_when_the_connection_that_watches_it_ends),
      T(an_invalidation_is_not_undone_by_a_slot_that_moves),
      T(a_watched_copy_is_soon_dropped_while_slots_move),
      T(each_primary_that_goes_on_without_its_replica_is_warned_of_once),
      T(a_uri_without_cluster_says_what_to_write),
      T(a_server_without_a_cluster_says_what_to_write),
      T(a_killed_primary_costs_no_error_and_no_compute_of_a_replicated_value),
      T(a_killed_primary_costs_its_own_keys_until_the_failover_and_others_nothing),
      T(a_copy_of_a_killed_node_serves_until_there_is_a_successor),
      T(an_invalidation_that_a_dead_primary_did_not_hear_reaches_the_promoted_one),
      T(a_shard_that_hangs_costs_the_keys_of_others_nothing),
      T(a_copy_is_dropped_when_its_node_is_killed_and_those_of_others_stay),
  };
  return cmocka_run_group_tests_name("redis_cluster", tests, NULL, stop);
}
