/* test_redis_failover.c: what becomes of invalidations when a primary is replaced, in a real Redis
 * Cluster and behind real sentinels: those that all replicas confirmed outlive it. The checker of
 * histories judges each run.
 *
 * CORRAL_FAILOVERS=n: so many primaries of the cluster die in each run (1). */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/moving_kit.h"
#include "support/redis_cluster.h"
#include "support/redis_sentinels.h"

enum { OF_KEYS = 8, OF_THREADS = 4, COPY_LATE_MS = 4000 };

static redis_cluster *cluster;
static redis_sentinels *set;
static char uri[200];

static const char *store_uri(void) { return uri; }

static int start_cluster(void **state) {
  if (cluster == NULL && !redis_cluster_start(&cluster)) skip();
  redis_cluster_await_well(cluster);
  redis_cluster_empty(cluster);
  redis_cluster_await_empty(cluster);
  return history_room_open(state);
}

static int start_sentinels(void **state) {
  if (set == NULL && !redis_sentinels_start(&set)) skip();
  redis_sentinels_await_well(set);
  redis_server_ask(redis_sentinels_server(set, redis_sentinels_primary(set)), "FLUSHALL");
  return history_room_open(state);
}

static int stop(void **state) {
  (void)state;
  redis_cluster_stop(cluster);
  redis_sentinels_stop(set);
  return 0;
}

/* ---- traffic ------------------------------------------------------------------------------- */

static unsigned roll(unsigned *dice) {
  *dice = *dice * 1664525u + 1013904223u;
  return *dice >> 8;
}

/* A value lives until it is invalidated. */
static void come_and_go(lab_seat *seat) {
  static const corral_policy policy = {
      .size = sizeof policy, .ttl_ms = LONG_MS, .wait_ms = 90000, .near_ms = LONG_MS};
  unsigned dice = (unsigned)(seat->process * OF_THREADS + seat->thread + 1);
  while (seat->lab->marks[STOP] == 0 && entries->count < HISTORY_ROOM * 3 / 4) {
    history_call call = {.history = entries,
                         .seat = seat,
                         .key = (int)(roll(&dice) % OF_KEYS),
                         .cost_ms = roll(&dice) % 6};
    if (roll(&dice) % 100 < 5)
      (void)history_invalidate(entries, seat, call.key);
    else if (history_ask(&call, &policy) != CORRAL_OK)
      lab_wrong(seat->lab, "key-%d: %s", call.key, corral_status_name(call.status));
    lab_add(&seat->lab->marks[CALLS], 1);
    lab_sleep_ms(5);
  }
}

static void begin(const char *of, const char *parameters, int64_t near_bytes) {
  snprintf(uri, sizeof uri, "%s%s", of, parameters);
  lab_spawn(current, &(lab_plan){.uri = uri,
                                 .processes = PROCESSES,
                                 .threads = OF_THREADS,
                                 .options = {.op_ms = 1000,
                                             .away_ms = 60000,
                                             .breaker_rest_ms = 100,
                                             .near_bytes = near_bytes},
                                 .body = come_and_go});
  let_pass(500);
}

static size_t begin_fault(void) {
  return history_begin(entries, current,
                       &(history_entry){.kind = HISTORY_FAULT, .key = -1, .process = -1});
}

static void end_fault(size_t fault) {
  let_pass(500);
  history_end(entries, fault);
}

static history_verdict end(int64_t late_ms) {
  let_pass(500);
  end_load();
  return history_judge(entries,
                       &(history_rules){.loses_tail = 1, .near_ns = late_ms * INT64_C(1000000)});
}

static void expect_good(history_verdict seen) {
  assert_true(seen.bound > 500);
  if (seen.wrong > 0) fail_msg("%zu wrong: %s", seen.wrong, seen.first);
}

/* ---- a cluster ----------------------------------------------------------------------------- */

static int other_of_shard(int node) {
  return (node + REDIS_CLUSTER_PRIMARIES) % REDIS_CLUSTER_NODES;
}

/* Kills the primary of a key. Its replica is cut off before, and doesn't hear the last of it. */
static void kill_with_a_laggard(int number) {
  size_t fault = begin_fault();
  char key[16];
  lab_key_name(key, number);
  int primary = redis_cluster_owner(cluster, redis_cluster_slot(cluster, key)),
      replica = other_of_shard(primary);
  redis_cluster_pause(cluster, replica);
  redis_server_ask(redis_cluster_node(cluster, primary), "CLIENT KILL TYPE replica");
  let_pass(300);
  redis_cluster_kill(cluster, primary);
  redis_cluster_resume(cluster, replica);
  redis_cluster_await_primary(cluster, replica);
  let_pass(300);
  redis_cluster_restart(cluster, primary);
  redis_cluster_await_well(cluster);
  end_fault(fault);
}

static void hang_and_come_back(int shard) {
  size_t fault = begin_fault();
  int primary = redis_cluster_primary(cluster, shard);
  redis_cluster_pause(cluster, primary);
  redis_cluster_await_primary(cluster, other_of_shard(primary));
  let_pass(300);
  redis_cluster_resume(cluster, primary);
  redis_cluster_await_well(cluster);
  end_fault(fault);
}

static void fail_over_by_hand(void) {
  size_t fault = begin_fault();
  (void)redis_cluster_fail_over(cluster, 0);
  redis_cluster_await_well(cluster);
  (void)redis_cluster_fail_over_by(cluster, 1, "FORCE");
  redis_cluster_await_well(cluster);
  end_fault(fault);
}

static void move_slots(void) {
  for (int i = 0; i < 2 * OF_KEYS; i++) {
    char key[16];
    lab_key_name(key, i % OF_KEYS);
    int slot = redis_cluster_slot(cluster, key);
    redis_cluster_move(cluster, slot, redis_cluster_next(cluster, slot));
    let_pass(50);
  }
}

static void kill_some(void) {
  const char *text = getenv("CORRAL_FAILOVERS");
  long count = text == NULL ? 1 : strtol(text, NULL, 10);
  for (int i = 0; i < count; i++) kill_with_a_laggard(i % OF_KEYS);
}

static void trouble_cluster(void) {
  kill_some();
  hang_and_come_back(2);
  fail_over_by_hand();
  move_slots();
}

static void what_all_replicas_confirmed_outlives_the_failovers_of_a_cluster(void **state) {
  (void)state;
  begin(redis_cluster_uri(cluster), "?confirm_replicas=1&wait_ms=200", 0);
  trouble_cluster();
  expect_good(end(0));
}

/* A copy is a push late, or the time until the process learns that its slot has moved. */
static void so_it_does_where_processes_have_copies(void **state) {
  (void)state;
  begin(redis_cluster_uri(cluster), "?confirm_replicas=1&wait_ms=200", 1 << 20);
  trouble_cluster();
  expect_good(end(COPY_LATE_MS));
}

static void what_no_replica_confirmed_is_undone_by_one_that_lags(void **state) {
  (void)state;
  begin(redis_cluster_uri(cluster), "", 0);
  kill_some();
  assert_true(end(0).wrong > 0);
}

/* ---- the map ------------------------------------------------------------------------------- */

enum { FLEET = 20 };

/* The questions for the map that the running nodes were asked. */
static long count_of_refreshes(int but) {
  long count = 0;
  for (int i = 0; i < REDIS_CLUSTER_NODES; i++) {
    static const char stat[] = "cmdstat_cluster|slots:calls=";
    const char *at =
        i == but
            ? NULL
            : strstr(redis_server_ask(redis_cluster_node(cluster, i), "INFO commandstats"), stat);
    if (at != NULL) count += strtol(at + sizeof stat - 1, NULL, 10);
  }
  return count;
}

/* Each process asks for all keys, so each needs the new map. */
static void processes_of_a_host_ask_for_the_map_ten_times_a_second_together(void **state) {
  (void)state;
  static const traffic patient = {
      {.size = sizeof(corral_policy), .ttl_ms = LONG_MS, .wait_ms = 90000}, 0, 1};
  char key[16];
  lab_key_name(key, 0);
  snprintf(uri, sizeof uri, "%s", redis_cluster_uri(cluster));
  lab_spawn(current, &(lab_plan){.uri = uri,
                                 .processes = FLEET,
                                 .threads = 1,
                                 .options = {.op_ms = 1000,
                                             .away_ms = 60000,
                                             .breaker_rest_ms = 100,
                                             .host_lock = 1,
                                             .host_dir = current->folder},
                                 .body = ask_all_the_time,
                                 .arg = (void *)(uintptr_t)&patient});
  let_pass(100 * FLEET);
  int primary = redis_cluster_owner(cluster, redis_cluster_slot(cluster, key)),
      replica = other_of_shard(primary);
  long before = count_of_refreshes(primary);
  int64_t began = lab_now_us();
  redis_cluster_kill(cluster, primary);
  redis_cluster_await_primary(cluster, replica);
  let_pass(100 * FLEET);
  long asked = count_of_refreshes(primary) - before;
  long tenths = (long)((lab_now_us() - began) / 100000) + 2;
  print_message("           %ld times in %ld tenths of a second\n", asked, tenths);
  end_load();
  assert_true(asked > 0);
  if (asked > tenths) fail_msg("%ld times in %ld tenths of a second", asked, tenths);
  redis_cluster_restart(cluster, primary);
  redis_cluster_await_well(cluster);
}

/* ---- sentinels ------------------------------------------------------------------------------ */

static void what_all_replicas_confirmed_outlives_the_failovers_of_sentinels(void **state) {
  (void)state;
  begin(redis_sentinels_uri(set), "?confirm_replicas=1&wait_ms=200", 0);
  size_t fault = begin_fault();
  int primary = redis_sentinels_primary(set);
  redis_server *lost = redis_sentinels_server(set, primary),
               *replica = redis_sentinels_server(set, 1 - primary);
  redis_server_pause(replica);
  redis_server_ask(lost, "CLIENT KILL TYPE replica");
  let_pass(100);
  redis_server_kill(lost);
  redis_server_resume(replica);
  redis_sentinels_await_primary(set, 1 - primary);
  let_pass(300);
  redis_server_restart(lost);
  redis_sentinels_await_well(set);
  (void)redis_sentinels_fail_over(set);
  end_fault(fault);
  expect_good(end(0));
}

int main(void) {
#define T(test, of) cmocka_unit_test_setup_teardown(test, start_##of, history_room_close)
  const struct CMUnitTest tests[] = {
      T(what_all_replicas_confirmed_outlives_the_failovers_of_a_cluster, cluster),
      T(so_it_does_where_processes_have_copies, cluster),
      T(what_no_replica_confirmed_is_undone_by_one_that_lags, cluster),
      T(processes_of_a_host_ask_for_the_map_ten_times_a_second_together, cluster),
      T(what_all_replicas_confirmed_outlives_the_failovers_of_sentinels, sentinels),
  };
  return cmocka_run_group_tests_name("redis_failover", tests, NULL, stop);
}
