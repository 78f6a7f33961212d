/* test_redis_lock_exec.c: locks on a real Redis, with scripts and without: foreign keys, full
 * servers, users without scripts, reports of a watch. */
#include <unistd.h>

#include "redis/redis.h"
#include "support/redis_lock_kit.h"

static long long calls(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:calls=", command);
  const char *at = strstr(redis_server_ask(server, "INFO commandstats"), name);
  return at != NULL ? strtoll(at + strlen(name), NULL, 10) : 0;
}

/* ---- foreign keys -------------------------------------------------------------------------- */

static void a_lock_without_ttl_of_others_is_told_and_healed_once_and_only_on_request(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    redis_server_ask(server, "SETNX naive 1");
    corral_op op = lock_op(CORRAL_VERB_LOCK, "naive", 1, 0);
    assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
    assert_int_equal(op.lock_state.left_ms, -1);
    assert_non_null(strstr(c.error.text, "a lock without TTL that corral did not write"));
    op = lock_op(CORRAL_VERB_LOCK_SHOW, "naive", 1, 0);
    assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
    assert_int_equal(op.lock_state.left_ms, -1);
    assert_int_equal(pttl("naive"), -1);
    op = lock_op(CORRAL_VERB_LOCK_SHOW, "naive", 1, CORRAL_OP_REPAIR);
    assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
    assert_near(op.lock_state.left_ms, HOUR);
    assert_near(pttl("naive"), HOUR);
    op = lock_op(CORRAL_VERB_LOCK_SHOW, "naive", 1, CORRAL_OP_REPAIR);
    op.lock_show.foreign_ms = 1000;
    assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
    assert_near(pttl("naive"), HOUR);
    assert_string_equal(redis_server_ask(server, "GET naive"), "1");
    assert_int_equal(unlocks(&c, "naive", 1), CORRAL_EFOREIGN);
    closed(&c);
  }
}

static void repair_leaves_alone_what_is_corrals_what_has_an_end_and_what_is_absent(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    corral_op op = lock_op(CORRAL_VERB_LOCK_SHOW, "mine", 1, CORRAL_OP_REPAIR);
    assert_int_equal(done(&c, &op), CORRAL_EMISS);
    assert_int_equal(locks(&c, "mine", 1, 0), CORRAL_OK);
    redis_server_ask(server, "PERSIST mine");
    op = lock_op(CORRAL_VERB_LOCK_SHOW, "mine", 1, CORRAL_OP_REPAIR);
    assert_int_equal(done(&c, &op), CORRAL_OK);
    assert_int_equal(pttl("mine"), -1);
    redis_server_ask(server, "RPUSH list a");
    op = lock_op(CORRAL_VERB_LOCK_SHOW, "list", 1, CORRAL_OP_REPAIR);
    assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
    assert_near(pttl("list"), HOUR);
    closed(&c);
  }
}

static void a_key_of_another_type_is_foreign_and_stays_as_it_is(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND, CORRAL_VERB_UNLOCK,
                                      CORRAL_VERB_LOCK_SHOW};
  static const char *const values[] = {"crk1", "", "crk1\1...........................", "crl1"};
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    redis_server_ask(server, "RPUSH list a");
    redis_server_ask(server, "PEXPIRE list %d", HOUR);
    for (size_t v = 0; v < sizeof verbs / sizeof *verbs; v++) {
      corral_op op = lock_op(verbs[v], "list", 1, 0);
      assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
      assert_near(op.lock_state.left_ms, HOUR);
      for (size_t i = 0; i < sizeof values / sizeof *values; i++) {
        redis_server_ask(server, "SET other %s", values[i]);
        op = lock_op(verbs[v], "other", 1, 0);
        assert_int_equal(done(&c, &op), CORRAL_EFOREIGN);
        assert_int_equal(op.lock_state.left_ms, -1);
        assert_string_equal(redis_server_ask(server, "GET other"), values[i]);
      }
    }
    assert_string_equal(redis_server_ask(server, "LRANGE list 0 -1"), "a");
    closed(&c);
  }
}

/* ---- servers that refuse ------------------------------------------------------------------- */

static int waits_in_turn(client *c, const char *key, unsigned holder) {
  corral_op op = lock_op(CORRAL_VERB_LOCK, key, holder, CORRAL_OP_FAIR);
  op.lock.wish_ms = CORRAL_LOCK_WISH_MS;
  return done(c, &op);
}

/* With scripts a hold can be lengthened and released on a full server, and a place be given back;
 * without scripts they stay until their end. The lock's record is never damaged. */
static void a_full_server_refuses_new_holds_and_by_scripts_lets_old_ones_go(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    assert_int_equal(locks(&c, "old", 1, 0), CORRAL_OK);
    assert_int_equal(locks(&c, "queue", 1, 0), CORRAL_OK);
    assert_int_equal(waits_in_turn(&c, "queue", 2), CORRAL_EBUSY);
    redis_server_ask(server, "CONFIG SET maxmemory 1");
    assert_int_equal(waits_in_turn(&c, "queue", 3), CORRAL_EBUSY);
    assert_int_equal(unlocks(&c, "queue", 2), way == 0 ? CORRAL_OK : CORRAL_EREFUSED);
    assert_int_equal(locks(&c, "new", 1, 0), CORRAL_EREFUSED);
    assert_non_null(strstr(c.error.text, "OOM"));
    assert_int_equal(pttl("new"), -2);
    assert_int_equal(locks(&c, "old", 2, 0), CORRAL_EBUSY);
    assert_int_equal(extends(&c, "old", 1, 2 * HOUR), way == 0 ? CORRAL_OK : CORRAL_EREFUSED);
    assert_near(pttl("old"), (way == 0 ? 2 : 1) * HOUR + CORRAL_LOCK_MEMORY_MS);
    assert_int_equal(unlocks(&c, "old", 1), way == 0 ? CORRAL_OK : CORRAL_EREFUSED);
    redis_server_ask(server, "CONFIG SET maxmemory 0");
    assert_int_equal(holds(&c, "old"), way);
    assert_int_equal(locks(&c, "new", 1, 0), CORRAL_OK);
    closed(&c);
  }
}

static void no_more_than_1024_hold_a_lock_at_once(void **state) {
  (void)state;
  static corral_hold hold[CORRAL_LOCK_HOLDS];
  static uint8_t record[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLDS * CORRAL_LOCK_HOLD];
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    for (size_t i = 0; i < CORRAL_LOCK_HOLDS; i++) {
      memset(hold[i].token, 0xee, CORRAL_TOKEN);
      hold[i].token[0] = (uint8_t)i;
      hold[i].token[1] = (uint8_t)(i >> 8);
      hold[i].mode = CORRAL_LOCK_SHARED;
      hold[i].until = server_now() + HOUR;
    }
    crl_lock_record_write(1, hold, CORRAL_LOCK_HOLDS, record);
    redis_server_ask(server, "SET full %b PX %d", record, sizeof record, HOUR);
    assert_int_equal(locks(&c, "full", 1, CORRAL_OP_SHARED), CORRAL_EREFUSED);
    assert_non_null(strstr(c.error.text, "no room"));
    assert_int_equal(locks(&c, "full", 1, 0), CORRAL_EBUSY);
    redis_server_ask(server, "SETRANGE full %d %b", CORRAL_LOCK_HEAD + 24, "\0\0\0\0\0\0\0\0",
                     (size_t)8);
    assert_int_equal(locks(&c, "full", 1, CORRAL_OP_SHARED), CORRAL_OK);
    assert_int_equal(holds(&c, "full"), CORRAL_LOCK_HOLDS);
    closed(&c);
  }
}

static void a_lease_or_a_fencing_token_out_of_range_is_refused_unsent(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
    op.lock.hold_ms = 0;
    assert_int_equal(done(&c, &op), CORRAL_EINVAL);
    op.lock.hold_ms = INT64_MAX;
    assert_int_equal(done(&c, &op), CORRAL_EINVAL);
    op = lock_op(CORRAL_VERB_LOCK_EXTEND, "k", 1, 0);
    op.lock_extend.fence = UINT64_MAX;
    assert_int_equal(done(&c, &op), CORRAL_EINVAL);
    assert_int_equal(pttl("k"), -2);
    closed(&c);
  }
}

/* ---- lost or forbidden scripts ------------------------------------------------------------- */

static void a_flush_of_scripts_in_the_middle_is_not_noticed(void **state) {
  (void)state;
  client c = begin_as("scripts=yes");
  for (int i = 0; i < 20; i++) {
    corral_op ops[] = {lock_op(CORRAL_VERB_LOCK, "k", 1, CORRAL_OP_SHARED),
                       lock_op(CORRAL_VERB_LOCK, "k", 2, CORRAL_OP_SHARED),
                       lock_op(CORRAL_VERB_LOCK_EXTEND, "k", 2, 0),
                       lock_op(CORRAL_VERB_UNLOCK, "k", 1, 0)};
    redis_server_ask(server, "SCRIPT FLUSH");
    for (int id = CRL_REDIS_LOCK; id <= CRL_REDIS_UNLOCK; id++)
      if ((i >> (id - CRL_REDIS_LOCK) & 1) != 0)
        redis_server_ask(server, "SCRIPT LOAD %s",
                         crl_redis_script_get((crl_redis_script_id)id)->text);
    assert_int_equal(perform(&c, ops, 4), CORRAL_OK);
    for (size_t at = 0; at < 4; at++)
      if (ops[at].status != CORRAL_OK)
        fail_msg("scripts %d, op %zu: %s", i, at, corral_status_name(ops[at].status));
    assert_int_equal(unlocks(&c, "k", 2), CORRAL_OK);
  }
  closed(&c);
}

static client opened_for(const char *user, const char *params) {
  char uri[200];
  snprintf(uri, sizeof uri, "redis://%s:x@127.0.0.1:%d?%s", user, redis_server_port(server),
           params);
  return opened(uri);
}

static void a_user_without_scripts_has_locks_all_the_same_unless_told_otherwise(void **state) {
  (void)state;
  start(NULL);
  redis_server_ask(server, "ACL SETUSER plain on >x ~* +@all -eval -evalsha");
  client c = opened_for("plain", "scripts=auto"), strict = opened_for("plain", "scripts=yes"),
         other = opened(redis_server_uri(server));
  corral_op batch[] = {lock_op(CORRAL_VERB_LOCK_SHOW, "k", 1, 0),
                       lock_op(CORRAL_VERB_LOCK, "k", 1, 0),
                       lock_op(CORRAL_VERB_LOCK_SHOW, "k", 1, 0)};
  assert_int_equal(perform(&c, batch, 3), CORRAL_OK);
  assert_int_equal(batch[0].status, CORRAL_EMISS);
  assert_int_equal(batch[1].status, CORRAL_OK);
  assert_int_equal(batch[2].status, CORRAL_OK);
  dropped(&batch[2]);
  assert_int_equal(locks(&strict, "k", 2, 0), CORRAL_EAUTH);
  assert_int_equal(locks(&other, "k", 2, 0), CORRAL_EBUSY);
  long long before = calls("evalsha");
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
  assert_int_equal(calls("evalsha"), before);
  assert_int_equal(locks(&other, "k", 2, 0), CORRAL_OK);
  assert_int_equal(locks(&c, "k", 1, 0), CORRAL_EBUSY);
  redis_server_ask(server, "ACL SETUSER bound on >x ~mine:* +@all");
  client bound = opened_for("bound", "scripts=auto");
  assert_int_equal(locks(&bound, "k", 1, 0), CORRAL_EAUTH);
  assert_int_equal(locks(&bound, "mine:k", 1, 0), CORRAL_OK);
  assert_true(calls("evalsha") > before + 1);
  closed(&bound);
  closed(&other);
  closed(&strict);
  closed(&c);
}

/* If only MULTI were refused, the SET behind it would overwrite another token's lock. */
static void a_user_without_transactions_overwrites_nothing(void **state) {
  (void)state;
  static const char *const denied[] = {"multi", "watch", "exec", "set", "get", "time"};
  for (size_t i = 0; i < sizeof denied / sizeof *denied; i++) {
    start(NULL);
    redis_server_ask(server, "ACL SETUSER poor reset");
    redis_server_ask(server, "ACL SETUSER poor on >x ~* +@all -%s", denied[i]);
    client c = opened_for("poor", "scripts=no");
    corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
    (void)perform(&c, &op, 1);
    if (op.status != CORRAL_EAUTH)
      fail_msg("without %s: %s", denied[i], corral_status_name(op.status));
    assert_int_equal(pttl("k"), -2);
    closed(&c);
  }
}

static void the_parameters_of_locks_are_checked(void **state) {
  (void)state;
  static const char *const wrong[] = {"redis://h?scripts=maybe", "redis://h?wait_replicas=0",
                                      "redis://h?wait_replicas=101", "redis://h?wait_ms=5",
                                      "redis://h?wait_replicas=1&wait_ms=0"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    client c;
    if (try_open(&c, wrong[i]) != CORRAL_EURI || c.error.text[0] == '\0')
      fail_msg("%s was not refused", wrong[i]);
  }
}

/* ---- WATCH --------------------------------------------------------------------------------- */

static void a_token_mismatch_returns_within_one_pass_and_leaves_no_watch(void **state) {
  (void)state;
  client c = begin_as("scripts=no"), other = opened_as("scripts=yes");
  assert_int_equal(locks(&other, "k", 2, 0), CORRAL_OK);
  redis_server_ask(server, "CONFIG RESETSTAT");
  assert_int_equal(unlocks(&c, "k", 1), CORRAL_ELOST);
  assert_int_equal(calls("watch"), 1);
  assert_int_equal(locks(&c, "k", 1, 0), CORRAL_EBUSY);
  assert_int_equal(extends(&c, "k", 1, HOUR), CORRAL_ELOST);
  assert_int_equal(calls("watch"), 3);
  assert_int_equal(calls("exec"), 0);
  /* a WATCH left open would fail the next EXEC */
  assert_int_equal(unlocks(&other, "k", 2), CORRAL_OK);
  assert_int_equal(locks(&c, "free", 1, 0), CORRAL_OK);
  assert_int_equal(calls("exec"), 1);
  assert_int_equal(calls("watch"), 4);
  closed(&other);
  closed(&c);
}

static void an_uncontended_lock_is_one_command_by_scripts_and_two_pipelines_without(void **state) {
  (void)state;
  static const char *const commands[WAYS][2] = {{"evalsha", "eval"}, {"watch", "exec"}};
  static const long long wanted[WAYS][2] = {{2, 0}, {2, 2}};
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]);
    assert_int_equal(locks(&c, "k", 1, 0), CORRAL_OK);
    assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
    redis_server_ask(server, "CONFIG RESETSTAT");
    assert_int_equal(locks(&c, "k", 1, 0), CORRAL_OK);
    assert_int_equal(unlocks(&c, "k", 1), CORRAL_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(calls(commands[way][i]), wanted[way][i]);
    closed(&c);
  }
}

/* Takes the lock for that long, and returns the UNLOCK of it, with all that its holder knows. */
static corral_op release_of(client *c, int64_t ms) {
  corral_op op = lock_op(CORRAL_VERB_LOCK, "k", 1, 0);
  op_lasts(&op, ms);
  assert_int_equal(perform(c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  uint64_t fence = op.lock_state.fence;
  op = lock_op(CORRAL_VERB_UNLOCK, "k", 1, 0);
  op.unlock.fence = fence;
  return op;
}

static void a_hold_that_is_over_is_lost_though_its_record_is_there(void **state) {
  (void)state;
  client c = begin_as(ways[0]);
  corral_op op = release_of(&c, 50);
  while (pttl("k") > CORRAL_LOCK_MEMORY_MS) usleep(5000);
  assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, 0);
  closed(&c);
}

static void a_long_hold_that_is_released_early_is_remembered_for_a_minute(void **state) {
  (void)state;
  client c = begin_as(ways[0]);
  corral_op op = release_of(&c, HOUR);
  assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  assert_in_range(pttl("k"), 1, CORRAL_LOCK_MEMORY_MS);
  closed(&c);
}

/* Within the scripts: TIME, GET and SET to take it, GET, PTTL and SET to release it. */
static void an_uncontended_lock_costs_the_server_few_commands(void **state) {
  (void)state;
  static const char *const commands[] = {"time", "get", "set", "pttl", "pexpire"};
  static const long long wanted[] = {1, 2, 2, 1, 0};
  client c = begin_as(ways[0]);
  for (int i = 0; i < 2; i++) { /* the first loads the scripts, and leaves a record */
    redis_server_ask(server, "CONFIG RESETSTAT");
    corral_op op = release_of(&c, 10000);
    assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
  }
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++)
    if (calls(commands[i]) != wanted[i]) fail_msg("%lld %s", calls(commands[i]), commands[i]);
  assert_in_range(pttl("k"), CORRAL_LOCK_MEMORY_MS, CORRAL_LOCK_MEMORY_MS + 10000);
  closed(&c);
}

/* ---- reports of a watch -------------------------------------------------------------------- */

static void *hearing(client *c) {
  void *watch;
  if (crl_plugin_redis.watch(c->store, 0, c->host->now_ms() + LIMIT, &watch, &c->error) !=
      CORRAL_OK)
    fail_msg("%s", c->error.text);
  return watch;
}

static int registers(client *c, void *watch, const char *key) {
  corral_registration r = {.key = key, .key_len = strlen(key), .status = CORRAL_EINDOUBT};
  if (crl_plugin_redis.register_keys(watch, &r, 1, -1, c->host->now_ms() + LIMIT, &c->error) !=
      CORRAL_OK)
    fail_msg("%s", c->error.text);
  return r.status;
}

typedef struct ear {
  uint64_t hash;
  int heard;
} ear;

static void hears(void *arg, uint64_t hash) {
  ear *e = arg;
  e->heard += hash == e->hash;
}

/* Waits up to `ms` for a report of `key`. Returns the number of reports. */
static int heard(client *c, void *watch, const char *key, int64_t ms) {
  ear e = {.hash = c->host->hash64(key, strlen(key))};
  int64_t until = c->host->now_ms() + ms;
  while (e.heard == 0 && c->host->now_ms() < until)
    if (crl_plugin_redis.changes(watch, -1, until, hears, &e, &c->error) != CORRAL_OK)
      fail_msg("%s", c->error.text);
  return e.heard;
}

static void a_watch_is_told_of_grants_and_releases_and_not_of_refusals(void **state) {
  (void)state;
  for (int way = 0; way < WAYS; way++) {
    client c = begin_as(ways[way]), other = opened_as(ways[1 - way]);
    void *watch = hearing(&c);
    assert_int_equal(locks(&other, "k", 1, 0), CORRAL_OK);
    assert_int_equal(registers(&c, watch, "k"), CORRAL_OK);
    assert_int_equal(locks(&other, "k", 2, 0), CORRAL_EBUSY);
    assert_int_equal(unlocks(&other, "k", 2), CORRAL_ELOST);
    assert_int_equal(extends(&other, "k", 2, HOUR), CORRAL_ELOST);
    assert_int_equal(heard(&c, watch, "k", 50), 0);
    assert_int_equal(unlocks(&other, "k", 1), CORRAL_OK);
    assert_int_equal(heard(&c, watch, "k", LIMIT), 1);
    assert_int_equal(registers(&c, watch, "absent"), CORRAL_EMISS);
    assert_int_equal(locks(&other, "absent", 1, 0), CORRAL_OK);
    assert_int_equal(heard(&c, watch, "absent", LIMIT), 1);
    crl_plugin_redis.unwatch(watch);
    closed(&other);
    closed(&c);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lock_without_ttl_of_others_is_told_and_healed_once_and_only_on_request),
      cmocka_unit_test(repair_leaves_alone_what_is_corrals_what_has_an_end_and_what_is_absent),
      cmocka_unit_test(a_key_of_another_type_is_foreign_and_stays_as_it_is),
      cmocka_unit_test(a_full_server_refuses_new_holds_and_by_scripts_lets_old_ones_go),
      cmocka_unit_test(no_more_than_1024_hold_a_lock_at_once),
      cmocka_unit_test(a_lease_or_a_fencing_token_out_of_range_is_refused_unsent),
      cmocka_unit_test(a_flush_of_scripts_in_the_middle_is_not_noticed),
      cmocka_unit_test(a_user_without_scripts_has_locks_all_the_same_unless_told_otherwise),
      cmocka_unit_test(a_user_without_transactions_overwrites_nothing),
      cmocka_unit_test(the_parameters_of_locks_are_checked),
      cmocka_unit_test(a_token_mismatch_returns_within_one_pass_and_leaves_no_watch),
      cmocka_unit_test(a_hold_that_is_over_is_lost_though_its_record_is_there),
      cmocka_unit_test(a_long_hold_that_is_released_early_is_remembered_for_a_minute),
      cmocka_unit_test(an_uncontended_lock_costs_the_server_few_commands),
      cmocka_unit_test(an_uncontended_lock_is_one_command_by_scripts_and_two_pipelines_without),
      cmocka_unit_test(a_watch_is_told_of_grants_and_releases_and_not_of_refusals),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
