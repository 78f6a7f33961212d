/* test_doctor_fleet.c: corral doctor on a real Redis Cluster, a real set of sentinels, and Redlock:
 * each server is looked at, and those that are down are named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/doctor_kit.h"
#include "support/redis_cluster.h"
#include "support/redis_sentinels.h"

/* ---- cluster ------------------------------------------------------------------------------- */

static redis_cluster *cluster;

static int start_cluster(void **state) {
  (void)state;
  if (!redis_cluster_start(&cluster)) skip();
  redis_cluster_await_well(cluster);
  return 0;
}

static int stop_cluster(void **state) {
  (void)state;
  redis_cluster_stop(cluster);
  cluster = NULL;
  return 0;
}

static const char *name_of(const redis_server *server) {
  static char name[40];
  (void)snprintf(name, sizeof name, "redis 127.0.0.1:%d\n", redis_server_port(server));
  return name;
}

static void each_primary_of_a_cluster_is_looked_at(void **state) {
  (void)state;
  await_doctor(redis_cluster_uri(cluster), 0, "  state                  ok\n");
  for (int i = 0; i < REDIS_CLUSTER_PRIMARIES; i++)
    has(name_of(redis_cluster_node(cluster, redis_cluster_primary(cluster, i))));
  assert_int_equal(count_of("  role                   primary\n"), 3);
  assert_int_equal(count_of("  rights                 all\n"), 3);
  assert_int_equal(count_of("  wake                   push\n"), 3);
  assert_int_equal(count_of("  slots   "), 3);
  tells("slots_uncovered", "0");
  tells("failed_nodes", "0");
  tells("known_nodes", "6");
  has("fit");
}

static void a_node_of_a_cluster_names_the_uri_to_write(void **state) {
  (void)state;
  char text[80];
  redis_server *node = redis_cluster_node(cluster, 0);
  assert_int_equal(doctor("%s", redis_server_uri(node)), 1);
  (void)snprintf(text, sizeof text,
                 ": mode cluster. Write redis+cluster://127.0.0.1:%d/: ", redis_server_port(node));
  has(text);
}

static void a_cluster_that_has_lost_a_shard_is_not_fit(void **state) {
  (void)state;
  redis_cluster_kill(cluster, 3 + 2);
  await_doctor(redis_cluster_uri(cluster), 0, "  failed_nodes           1 127.0.0.1:");
  has("warning: cluster: failed_nodes 1 127.0.0.1:");
  redis_cluster_kill(cluster, 2);
  await_doctor(redis_cluster_uri(cluster), 1, ": reached no: can't connect: Connection refused. ");
  has("not fit: redis 127.0.0.1:");
  assert_int_equal(count_of("  role                   primary\n"), 2);
}

/* ---- sentinels ----------------------------------------------------------------------------- */

static redis_sentinels *set;

static int start_set(void **state) {
  (void)state;
  if (!redis_sentinels_start(&set)) skip();
  redis_sentinels_await_well(set);
  return 0;
}

static int stop_set(void **state) {
  (void)state;
  redis_sentinels_stop(set);
  set = NULL;
  return 0;
}

static void each_sentinel_and_the_primary_are_looked_at(void **state) {
  (void)state;
  char primary[40];
  redis_server *server = redis_sentinels_server(set, redis_sentinels_primary(set));
  (void)snprintf(primary, sizeof primary, "127.0.0.1:%d", redis_server_port(server));
  await_doctor(redis_sentinels_uri(set), 0, "fit");
  assert_int_equal(count_of("\n  quorum                 OK 3 usable Sentinels"), 3);
  tells("primary", primary);
  has(name_of(server));
  tells("role", "primary");
  tells("replicas", "1");
  tells("wake", "push");
  has(": min_replicas_to_write 0. Set min-replicas-to-write 1");
}

static void a_sentinel_by_a_plain_uri_is_not_fit(void **state) {
  (void)state;
  redis_server *sentinel = redis_sentinels_sentinel(set, 0);
  /* as every command of corral fails there */
  await_doctor(redis_server_uri(sentinel), 125, "redis+sentinel://");
}

static void sentinels_without_a_quorum_are_not_fit(void **state) {
  (void)state;
  redis_server_kill(redis_sentinels_sentinel(set, 0));
  assert_int_equal(doctor("%s", redis_sentinels_uri(set)), 0);
  has("warning: sentinel 127.0.0.1:");
  has(": reached no: can't connect: Connection refused. Start that sentinel");
  redis_server_kill(redis_sentinels_sentinel(set, 1));
  await_doctor(redis_sentinels_uri(set), 1, ": quorum NOQUORUM ");
  redis_server_kill(redis_sentinels_sentinel(set, 2));
  assert_int_equal(doctor("%s", redis_sentinels_uri(set)), 125);
}

/* ---- redlock ------------------------------------------------------------------------------- */

enum { MEMBERS = 3 };
static redis_server *members[MEMBERS];

static int start_members(void **state) {
  (void)state;
  for (int i = 0; i < MEMBERS; i++)
    if (!redis_server_start(&members[i], NULL)) skip();
  return 0;
}

static int stop_members(void **state) {
  (void)state;
  for (int i = 0; i < MEMBERS; i++) redis_server_stop(members[i]);
  return 0;
}

static void redlock_is_fit_as_long_as_a_majority_is_up(void **state) {
  (void)state;
  char uri[120];
  (void)snprintf(uri, sizeof uri, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d",
                 redis_server_port(members[0]), redis_server_port(members[1]),
                 redis_server_port(members[2]));
  assert_int_equal(doctor("%s", uri), 0);
  tells("servers", "3 of 3, 2 needed");
  assert_int_equal(count_of("  rights                 all\n"), 3);
  has(": appendonly no. Set appendonly yes, or let the server restart later");
  has(": fit, ");
  redis_server_kill(members[0]);
  assert_int_equal(doctor("%s", uri), 0);
  tells("servers", "2 of 3, 2 needed");
  has("warning: redis 127.0.0.1:");
  redis_server_kill(members[1]);
  assert_int_equal(doctor("%s", uri), 1);
  has(": servers 1 of 3, 2 needed. Start the others: no lock is granted.");
  redis_server_kill(members[2]);
  assert_int_equal(doctor("%s", uri), 125);
}

int main(void) {
  const struct CMUnitTest of_cluster[] = {
      cmocka_unit_test(each_primary_of_a_cluster_is_looked_at),
      cmocka_unit_test(a_node_of_a_cluster_names_the_uri_to_write),
      cmocka_unit_test(a_cluster_that_has_lost_a_shard_is_not_fit),
  };
  const struct CMUnitTest of_sentinels[] = {
      cmocka_unit_test(each_sentinel_and_the_primary_are_looked_at),
      cmocka_unit_test(a_sentinel_by_a_plain_uri_is_not_fit),
      cmocka_unit_test(sentinels_without_a_quorum_are_not_fit),
  };
  const struct CMUnitTest of_redlock[] = {
      cmocka_unit_test_setup_teardown(redlock_is_fit_as_long_as_a_majority_is_up, start_members,
                                      stop_members),
  };
  return cmocka_run_group_tests(of_cluster, start_cluster, stop_cluster) +
         cmocka_run_group_tests(of_sentinels, start_set, stop_set) +
         cmocka_run_group_tests(of_redlock, NULL, NULL);
}
