/* test_redis_lock_fleet.c: locks on more than one real Redis: with a replica that confirms them,
 * and on a cluster of two nodes. */
#include "support/redis_lock_kit.h"
#include "support/server_process.h"

#include "redis/redis.h"

/* ---- replicas ------------------------------------------------------------------------------ */

/* Starts a replica and waits until it is in sync; skips the test when there is no server. */
static redis_server *replica_of_server(void) {
  redis_server *replica;
  if (!redis_server_start(&replica, NULL)) skip();
  redis_server_ask(server, "CONFIG SET repl-diskless-sync-delay 0");
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(server));
  int64_t until = crl_registry_host()->now_ms() + 30000;
  while (strcmp(redis_server_ask(server, "WAIT 1 100"), "1") != 0 ||
         strstr(redis_server_ask(replica, "INFO replication"), "master_link_status:up") == NULL)
    if (crl_registry_host()->now_ms() > until) fail_msg("the replica isn't in step");
  return replica;
}

static void a_lock_is_held_when_enough_replicas_confirm_it(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    char params[80];
    start(NULL);
    redis_server *replica = replica_of_server();
    snprintf(params, sizeof params, "%s&wait_replicas=1&wait_ms=10s", ways[way]);
    client c = opened_as(params);
    assert_int_equal(locks(&c, "k", 1, 0), CORRAL_OK);
    assert_string_equal(redis_server_ask(replica, "EXISTS k"), "1");
    assert_int_equal(locks(&c, "k", 2, 0), CORRAL_EBUSY);
    assert_int_equal(extends(&c, "k", 1, HOUR), CORRAL_OK);
    assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
    closed(&c);
    redis_server_stop(replica);
  }
}

static void a_lock_that_too_few_replicas_confirm_is_refused_and_can_be_ended(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    char params[80];
    start(NULL);
    redis_server *replica = replica_of_server();
    snprintf(params, sizeof params, "%s&wait_replicas=1&wait_ms=50ms", ways[way]);
    client c = opened_as(params), asks_no_replica = opened_as(ways[way]);
    assert_int_equal(locks(&asks_no_replica, "other", 1, 0), CORRAL_OK);
    closed(&asks_no_replica);
    redis_server_pause(replica);
    corral_op ops[] = {lock_op(CORRAL_VERB_LOCK, "k", 1, 0), lock_op(CORRAL_VERB_LOCK, "k", 2, 0),
                       lock_op(CORRAL_VERB_LOCK_EXTEND, "other", 1, 0)};
    assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
    assert_int_equal(ops[0].status, CORRAL_EREFUSED);
    assert_int_equal(ops[1].status, CORRAL_EBUSY);
    assert_int_equal(ops[2].status, CORRAL_EREFUSED);
    assert_non_null(
        strstr(c.error.text, "granted by the primary, confirmed by 0 of 1 replicas: not held"));
    assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
    assert_int_equal(holds(&c, "k"), 0);
    redis_server_resume(replica);
    closed(&c);
    redis_server_stop(replica);
  }
}

/* WAIT gets a timeout before the deadline, so that its reply arrives in time. */
static void waiting_for_replicas_respects_the_deadline(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    char params[80];
    snprintf(params, sizeof params, "%s&wait_replicas=100&wait_ms=10s", ways[way]);
    client c = begin_as(params);
    corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
    op.status = CORRAL_EINDOUBT;
    assert_int_equal(
        perform_ops(&crl_plugin_redis, c.handle, &op, 1, c.host->now_ms() + 9900, &c.error),
        CORRAL_OK);
    assert_int_equal(op.status, CORRAL_EREFUSED);
    closed(&c);
  }
}

static void a_user_who_may_not_wait_gets_no_lock(void **state) {
  (void)state;
  start(NULL);
  redis_server_ask(server, "ACL SETUSER hasty on >x ~* +@all -wait");
  for (int way = 0; way < WAYS; way++) {
    char uri[160];
    snprintf(uri, sizeof uri, "redis://hasty:x@127.0.0.1:%d?%s&wait_replicas=1",
             redis_server_port(server), ways[way]);
    client c = opened(uri);
    assert_int_equal(locks(&c, "k", 1, 0), CORRAL_EREFUSED);
    assert_non_null(strstr(c.error.text, "WAIT"));
    assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
    closed(&c);
  }
}

/* ---- a cluster ----------------------------------------------------------------------------- */

static void wait_for(redis_server *node, const char *text) {
  int64_t until = crl_registry_host()->now_ms() + 30000;
  while (strstr(redis_server_ask(node, "CLUSTER INFO"), text) == NULL)
    if (crl_registry_host()->now_ms() > until)
      fail_msg("the cluster isn't there: %s", redis_server_ask(node, "CLUSTER INFO"));
}

/* Starts two nodes with half of the slots each. The cluster bus has a port of its own, also below
 * 32768. */
static void start_cluster(redis_server *nodes[2]) {
  for (int i = 0; i < 2; i++) {
    char bus[12];
    snprintf(bus, sizeof bus, "%d", server_process_free_port());
    const char *const args[] = {"--cluster-enabled", "yes", "--cluster-port", bus, NULL};
    if (!redis_server_start(&nodes[i], args)) skip();
    redis_server_ask(nodes[i], "CLUSTER ADDSLOTSRANGE %d %d", i * 8192, i * 8192 + 8191);
    if (i == 1)
      redis_server_ask(nodes[0], "CLUSTER MEET 127.0.0.1 %d %s", redis_server_port(nodes[1]), bus);
  }
  for (int i = 0; i < 2; i++) wait_for(nodes[i], "cluster_state:ok");
}

static void every_script_keeps_to_its_one_key_on_both_nodes_of_a_cluster(void **state) {
  (void)state;
  redis_server *nodes[2] = {NULL};
  start_cluster(nodes);
  for (int i = 0; i < 2; i++) {
    for (int way = 0; way < WAYS; way++) {
      char uri[160], name[64];
      int tried = 0, found = 0;
      snprintf(uri, sizeof uri, "%s?%s", redis_server_uri(nodes[i]), ways[way]);
      client c = opened(uri);
      for (; found < 5 && tried < 200; tried++) {
        snprintf(name, sizeof name, "lock:%d", tried);
        long slot = strtol(redis_server_ask(nodes[i], "CLUSTER KEYSLOT %s", name), NULL, 10);
        int is_here = slot / 8192 == i;
        int status = locks(&c, name, 1, CORRAL_OP_SHARED);
        assert_int_equal(status, is_here ? CORRAL_OK : CORRAL_EUNAVAILABLE);
        if (!is_here) continue;
        found++;
        assert_int_equal(locks(&c, name, 2, CORRAL_OP_SHARED), CORRAL_OK);
        assert_int_equal(extends(&c, name, 2, HOUR), CORRAL_OK);
        corral_op op = lock_op(CORRAL_VERB_LOCK_SHOW, name, 1, CORRAL_OP_REPAIR);
        assert_int_equal(done(&c, &op), CORRAL_OK);
        assert_int_equal(unlocks(&c, name, 1), CORRAL_OK);
        assert_int_equal(unlocks(&c, name, 2), CORRAL_OK);
      }
      assert_int_equal(found, 5);
      closed(&c);
    }
  }
  for (int i = 0; i < 2; i++) redis_server_stop(nodes[i]);
}

static void every_script_is_one_that_the_server_takes(void **state) {
  (void)state;
  start(NULL);
  redis_server_ask(server, "SCRIPT FLUSH");
  for (int id = CRL_REDIS_LOCK; id < CRL_REDIS_SCRIPTS; id++) {
    const crl_redis_script *script = crl_redis_script_get((crl_redis_script_id)id);
    assert_string_equal(redis_server_ask(server, "SCRIPT LOAD %s", script->text), script->sha1);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_script_is_one_that_the_server_takes),
      cmocka_unit_test(a_lock_is_held_when_enough_replicas_confirm_it),
      cmocka_unit_test(a_lock_that_too_few_replicas_confirm_is_refused_and_can_be_ended),
      cmocka_unit_test(waiting_for_replicas_respects_the_deadline),
      cmocka_unit_test(a_user_who_may_not_wait_gets_no_lock),
      cmocka_unit_test(every_script_keeps_to_its_one_key_on_both_nodes_of_a_cluster),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
