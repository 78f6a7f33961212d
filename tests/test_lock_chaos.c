/* test_lock_chaos.c: 50 processes take one lock 2,000 times ($CORRAL_ACQUISITIONS; 600 on slow
 * stores), on each store (or only on $CORRAL_CHAOS): the first half without faults, then with
 * holders killed and stopped. With $CORRAL_FAIR they wait in turn. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/etcd_server.h"
#include "support/herd_lab.h"
#include "support/lock_chaos.h"
#include "support/mariadb_server.h"
#include "support/memcached_server.h"
#include "support/postgresql_server.h"
#include "support/redis_server.h"
#include "support/zookeeper_server.h"

enum { PROCESSES = 50, MANY = 2000, SOME = 600 };

static void holds(const char *uri, int64_t ttl_ms, int faults, int acquisitions) {
  const char *wish = getenv("CORRAL_ACQUISITIONS");
  if (wish != NULL) acquisitions = (int)strtol(wish, NULL, 10);
  lock_chaos plan = {.uri = uri,
                     .processes = PROCESSES,
                     .acquisitions = acquisitions,
                     .ttl_ms = ttl_ms,
                     .fair = getenv("CORRAL_FAIR") != NULL,
                     .kills = faults,
                     .stops = faults};
  lock_chaos_outcome o = lock_chaos_run(&plan);
  printf(
      "%-40.40s %5lld ms, inside at once %d; then %d killed and %d stopped: refused %d, lost %d\n",
      uri, (long long)o.took_ms, o.most, faults, faults, o.refused, o.lost);
  printf("%-40.40s %s: %d to the last holder, longest wait %lld ms, %d to %d each\n", uri,
         plan.fair ? "in turn" : "any way", o.to_last, (long long)o.longest_ms, o.fewest,
         o.most_of_one);
  if (o.errors > 0) fail_msg("%s: %s", uri, o.error);
  assert_int_equal(o.most, 1);
  assert_int_equal(o.counter, o.accepted);
  assert_true(o.accepted + o.refused <= o.taken);
  assert_true(o.accepted >= o.taken - o.refused - 2 * faults);
}

static void no_two_holders_and_a_right_counter_on_lmdb(void **state) {
  (void)state;
  holds(lab_lmdb(lab_room, "locks"), 300, 6, MANY);
}

static void no_two_holders_and_a_right_counter_on_memcached(void **state) {
  (void)state;
  memcached_server *pair[2] = {0};
  if (!memcached_server_start(&pair[0], NULL) || !memcached_server_start(&pair[1], NULL)) skip();
  holds(memcached_server_pair_uri(pair), 300, 6, MANY);
  memcached_server_stop(pair[0]);
  memcached_server_stop(pair[1]);
}

static void no_two_holders_and_a_right_counter_on_redis(void **state) {
  (void)state;
  redis_server *server;
  if (!redis_server_start(&server, NULL)) skip();
  holds(redis_server_uri(server), 300, 6, MANY);
  redis_server_stop(server);
}

static void no_two_holders_and_a_right_counter_on_redis_without_scripts(void **state) {
  (void)state;
  redis_server *server;
  char uri[96];
  if (!redis_server_start(&server, NULL)) skip();
  snprintf(uri, sizeof uri, "%s?scripts=no", redis_server_uri(server));
  holds(uri, 300, 6, SOME);
  redis_server_stop(server);
}

static void no_two_holders_and_a_right_counter_on_sqlite(void **state) {
  (void)state;
  char uri[160];
  snprintf(uri, sizeof uri, "sqlite:%s/locks", lab_room->folder);
  holds(uri, 300, 6, MANY);
}

/* A late reply counts as an absent server; with 50 processes on 2 cores and a short limit all
 * replies would be late. */
static void no_two_holders_and_a_right_counter_on_redlock(void **state) {
  (void)state;
  redis_server *servers[3];
  char uri[160];
  for (int i = 0; i < 3; i++)
    if (!redis_server_start(&servers[i], NULL)) skip();
  snprintf(uri, sizeof uri, "redlock://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d?server_ms=2s",
           redis_server_port(servers[0]), redis_server_port(servers[1]),
           redis_server_port(servers[2]));
  holds(uri, 400, 6, SOME);
  for (int i = 0; i < 3; i++) redis_server_stop(servers[i]);
}

#ifdef CORRAL_HAVE_postgresql
static const char *const crowd[] = {"max_connections=300", NULL};

static void no_two_holders_and_a_right_counter_on_postgresql(void **state) {
  (void)state;
  postgresql_server *server;
  if (!postgresql_server_start(&server, crowd)) skip();
  holds(postgresql_server_uri(server, ""), 300, 6, SOME);
  postgresql_server_stop(server);
}

static void no_two_holders_and_a_right_counter_on_postgresql_advisory(void **state) {
  (void)state;
  postgresql_server *server;
  if (!postgresql_server_start(&server, crowd)) skip();
  holds(postgresql_server_uri(server, "?locks=advisory"), 300, 6, SOME);
  postgresql_server_stop(server);
}
#endif

#ifdef CORRAL_HAVE_zookeeper
static void no_two_holders_and_a_right_counter_on_zookeeper(void **state) {
  (void)state;
  zookeeper_server *server;
  if (!zookeeper_server_start(&server, NULL)) skip();
  char uri[64];
  snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d?session=1s", zookeeper_server_port(server));
  holds(uri, 1000, 4, SOME);
  zookeeper_server_stop(server);
}
#endif

#ifdef CORRAL_HAVE_mariadb
static void no_two_holders_and_a_right_counter_on_mariadb(void **state) {
  (void)state;
  mariadb_server *server;
  if (!mariadb_server_start(&server)) skip();
  mariadb_server_ask(server, "SET GLOBAL max_connections = 300");
  holds(mariadb_server_uri(server), 1000, 4, SOME);
  mariadb_server_stop(server);
}

#endif

#ifdef CORRAL_HAVE_etcd
static void no_two_holders_and_a_right_counter_on_etcd(void **state) {
  (void)state;
  etcd_server *server;
  if (!etcd_server_start(&server, NULL)) skip();
  holds(etcd_server_uri(server), 1000, 4, SOME);
  etcd_server_stop(server);
}
#endif

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
#define T(name) cmocka_unit_test_setup_teardown(name, lab_make_room, lab_leave_room)
  const struct CMUnitTest tests[] = {
      T(no_two_holders_and_a_right_counter_on_lmdb),
      T(no_two_holders_and_a_right_counter_on_memcached),
      T(no_two_holders_and_a_right_counter_on_redis),
      T(no_two_holders_and_a_right_counter_on_redis_without_scripts),
      T(no_two_holders_and_a_right_counter_on_sqlite),
      T(no_two_holders_and_a_right_counter_on_redlock),
#ifdef CORRAL_HAVE_postgresql
      T(no_two_holders_and_a_right_counter_on_postgresql),
      T(no_two_holders_and_a_right_counter_on_postgresql_advisory),
#endif
#ifdef CORRAL_HAVE_mariadb
      T(no_two_holders_and_a_right_counter_on_mariadb),
#endif
#ifdef CORRAL_HAVE_zookeeper
      T(no_two_holders_and_a_right_counter_on_zookeeper),
#endif
#ifdef CORRAL_HAVE_etcd
      T(no_two_holders_and_a_right_counter_on_etcd),
#endif
  };
  char only[96];
  const char *store = getenv("CORRAL_CHAOS");
  if (store != NULL && snprintf(only, sizeof only, "*_on_%s", store) < (int)sizeof only)
    cmocka_set_test_filter(only);
  return cmocka_run_group_tests(tests, NULL, NULL);
}
