/* test_redlock.c: locks over several Redis servers by their majority, on five real ones that are killed, restarted and stopped. */
#include <pthread.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "support/client_kit.h"
#include "support/redis_server.h"

enum { SERVERS = 5, LEASE = 60000, LIMIT = 20000, SLACK = 3000, PATIENCE = 15000 };

extern const corral_store crl_plugin_redis;

static redis_server *servers[SERVERS];
static int down[SERVERS], paused[SERVERS];

/* ---- servers --------------------------------------------------------------------------------------------- */

static void kill_server(size_t i) {
  redis_server_kill(servers[i]);
  down[i] = 1;
}

/* It has forgotten everything. */
static void restart_server(size_t i) {
  redis_server_restart(servers[i]);
  down[i] = 0;
}

static void pause_server(size_t i) {
  redis_server_pause(servers[i]);
  paused[i] = 1;
}

static void resume_server(size_t i) {
  redis_server_resume(servers[i]);
  paused[i] = 0;
}

static uint64_t number_at(const char *at, unsigned bytes) {
  uint64_t number = 0;
  for (unsigned i = 0; i < bytes; i++) number |= (uint64_t)(uint8_t)at[i] << (8 * i);
  return number;
}

static uint64_t wall_us(size_t i) {
  redisReply *reply = redis_server_command(servers[i], "TIME");
  uint64_t us = strtoull(reply->element[0]->str, NULL, 10) * 1000000 + strtoull(reply->element[1]->str, NULL, 10);
  freeReplyObject(reply);
  return us;
}

/* How many holds are alive in the record on one server; -1: there is no record. */
static int holds_on(size_t i, const char *key) {
  int live = -1;
  uint64_t now = wall_us(i) / 1000;
  redisReply *reply = redis_server_command(servers[i], "GET %s", key);
  if (reply->type == REDIS_REPLY_STRING) {
    assert_true(reply->len >= CORRAL_LOCK_HEAD);
    assert_memory_equal(reply->str, "crk1", 4);
    live = 0;
    for (uint64_t h = 0; h < number_at(reply->str + 4, 2); h++)
      live += number_at(reply->str + CORRAL_LOCK_HEAD + h * CORRAL_LOCK_HOLD + 24, 8) > now;
  }
  freeReplyObject(reply);
  return live;
}

static int64_t now_ms(void) { return crl_registry_host()->now_ms(); }

/* Waits until there are so many holds in the record of that server. */
static void awaits_holds(size_t i, const char *key, int expected) {
  int64_t until = now_ms() + PATIENCE;
  while (holds_on(i, key) != expected) {
    if (now_ms() > until) fail_msg("server %zu has %d holds of %s, not %d", i, holds_on(i, key), key, expected);
    poll(NULL, 0, 1);
  }
}

/* Waits until that server has no hold, and perhaps no record. */
static void awaits_freedom(size_t i, const char *key) {
  int64_t until = now_ms() + PATIENCE;
  while (holds_on(i, key) > 0) {
    if (now_ms() > until) fail_msg("server %zu still has a hold of %s", i, key);
    poll(NULL, 0, 1);
  }
}

/* ---- a store --------------------------------------------------------------------------------------------- */

static int try_open(client *c, const char *text) { return client_begin(c, &crl_plugin_redis, text, LIMIT); }

static client opened(const char *text) {
  client c;
  if (try_open(&c, text) != CORRAL_OK) fail_msg("%s: %s", text, c.error.text);
  return c;
}

/* Servers from..to-1 as one store; without params they may take long, for where time doesn't matter. */
static client redlock(size_t from, size_t to, const char *params) {
  char text[400] = "redlock://";
  for (size_t i = from; i < to; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s127.0.0.1:%d", i > from ? "," : "", redis_server_port(servers[i]));
  }
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used, "?%s", params[0] != '\0' ? params : "server_ms=5s");
  return opened(text);
}

static void closed(client *c) { client_end(c); }

static const uint8_t *token(unsigned number) {
  static uint8_t tokens[256][CORRAL_TOKEN];
  memset(tokens[number & 255], (int)(number & 255) + 1, CORRAL_TOKEN);
  return tokens[number & 255];
}

static corral_op op_of(corral_verb verb, const char *key, unsigned holder, int64_t lease_ms) {
  return (corral_op){.verb = (uint32_t)verb, .key = key, .key_len = strlen(key), .token = token(holder), .lease_ms = lease_ms,
                     .record = (const uint8_t *)"a note", .record_len = verb == CORRAL_VERB_LOCK ? 6 : 0};
}

static void performed(client *c, corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = CORRAL_EUNKNOWN;
    ops[i].error = &c->error;
  }
  memset(&c->error, 0, sizeof c->error);
  assert_int_equal(crl_plugin_redis.perform(c->handle, ops, count, now_ms() + LIMIT, &c->error), CORRAL_OK);
}

static corral_op does(client *c, corral_verb verb, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(verb, key, holder, lease_ms);
  performed(c, &op, 1);
  return op;
}

#define IS(op, expected) \
  do { \
    if ((op).status != (expected)) fail_msg("line %d: status %d, not %d: %s", __LINE__, (op).status, (expected), (op).error->text); \
  } while (0)

/* The fencing token. */
static uint64_t locks(client *c, const char *key, unsigned holder) {
  corral_op op = does(c, CORRAL_VERB_LOCK, key, holder, LEASE);
  IS(op, CORRAL_OK);
  assert_true(op.seen > 0);
  return op.seen;
}

static void unlocks(client *c, const char *key, unsigned holder) { IS(does(c, CORRAL_VERB_UNLOCK, key, holder, 0), CORRAL_OK); }

static void is_busy(client *c, const char *key, unsigned holder) { IS(does(c, CORRAL_VERB_LOCK, key, holder, LEASE), CORRAL_EBUSY); }

/* ---- setting up ------------------------------------------------------------------------------------------ */

static int start_servers(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++)
    if (!redis_server_start(&servers[i], NULL)) exit(77);
  for (unsigned i = 0; i < 256; i++) token(i);
  return 0;
}

static int stop_servers(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++) redis_server_stop(servers[i]);
  return 0;
}

/* After each test: all run, and are empty. */
static int repair(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++) {
    if (paused[i]) resume_server(i);
    if (down[i]) restart_server(i);
    redis_server_ask(servers[i], "ACL SETUSER default +@all");
    redis_server_ask(servers[i], "FLUSHALL");
  }
  return 0;
}

/* ---- all is well ----------------------------------------------------------------------------------------- */

static void five_servers_give_one_lock(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  assert_int_equal(c.info.locks_only, 1);
  corral_op op = does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE);
  IS(op, CORRAL_OK);
  assert_in_range(op.until_ms, LEASE - LEASE / 100 - 2 - SLACK, LEASE - LEASE / 100 - 2);
  uint64_t fence = op.seen;
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  op = does(&c, CORRAL_VERB_LOCK, "k", 2, LEASE);
  IS(op, CORRAL_EBUSY);
  assert_in_range(op.until_ms, LEASE - SLACK, LEASE);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 2, LEASE);
  IS(op, CORRAL_ELOST);
  assert_in_range(op.until_ms, 1, LEASE);
  op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, 2 * LEASE);
  op.seen = fence;
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  assert_in_range(op.until_ms, 2 * LEASE - 2 * LEASE / 100 - 2 - SLACK, 2 * LEASE - 2 * LEASE / 100 - 2);
  assert_true(op.seen == fence);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, 1000); /* shortens nothing */
  IS(op, CORRAL_OK);
  assert_in_range(op.until_ms, LEASE, 2 * LEASE - 2 * LEASE / 100 - 2);
  unlocks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "k");
  op = does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0);
  IS(op, CORRAL_ELOST);
  assert_int_equal(op.until_ms, 0);
  assert_true(locks(&c, "k", 2) > fence);
  op = does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0);
  IS(op, CORRAL_ELOST);
  assert_in_range(op.until_ms, 1, LEASE);
  closed(&c);
}

static void the_holder_that_a_majority_agrees_on_is_shown(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  uint64_t fence = locks(&c, "k", 1);
  corral_op op = does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0);
  IS(op, CORRAL_OK);
  assert_int_equal(op.found_len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  const char *hold = (const char *)op.found + CORRAL_LOCK_HEAD;
  assert_memory_equal(op.found, "crk1\1", 5);
  assert_memory_equal(hold, token(1), CORRAL_TOKEN);
  assert_memory_equal(hold + 48, "a note", 7);
  assert_in_range((int64_t)number_at(hold + 24, 8) - op.life_ms, LEASE - SLACK, LEASE);
  assert_in_range(op.life_ms - (int64_t)number_at(hold + 32, 8), 0, SLACK);
  assert_true(number_at(hold + 40, 8) <= fence);
  op.found_free(op.found_owner);
  unlocks(&c, "k", 1);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  /* A hold on two of five is nobody's lock. */
  client minority = redlock(0, 2, "");
  locks(&minority, "k", 7);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 0, 0), CORRAL_EMISS);
  closed(&minority);
  closed(&c);
}

static void operations_of_one_batch_keep_their_order(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  corral_op ops[] = {op_of(CORRAL_VERB_LOCK, "a", 1, LEASE),   op_of(CORRAL_VERB_LOCK, "b", 2, LEASE), op_of(CORRAL_VERB_LOCK, "a", 3, LEASE),
                     op_of(CORRAL_VERB_UNLOCK, "a", 1, LEASE), op_of(CORRAL_VERB_LOCK, "a", 3, LEASE), op_of(CORRAL_VERB_GET, "a", 3, LEASE)};
  int expected[] = {CORRAL_OK, CORRAL_OK, CORRAL_EBUSY, CORRAL_OK, CORRAL_OK, CORRAL_EUNSUPPORTED};
  performed(&c, ops, 6);
  for (size_t i = 0; i < 6; i++) IS(ops[i], expected[i]);
  closed(&c);
}

static void many_operations_go_at_once(void **state) {
  (void)state;
  enum { MANY = 150 };
  static corral_op ops[MANY];
  char keys[MANY][16];
  client c = redlock(0, 5, "server_ms=5s");
  for (unsigned i = 0; i < MANY; i++) {
    snprintf(keys[i], sizeof keys[i], "many%u", i);
    ops[i] = op_of(CORRAL_VERB_LOCK, keys[i], i, LEASE);
  }
  performed(&c, ops, MANY);
  for (size_t i = 0; i < MANY; i++) IS(ops[i], CORRAL_OK);
  for (unsigned i = 0; i < MANY; i++) ops[i] = op_of(CORRAL_VERB_UNLOCK, keys[i], i, 0);
  performed(&c, ops, MANY);
  for (size_t i = 0; i < MANY; i++) IS(ops[i], CORRAL_OK);
  closed(&c);
  for (size_t i = 0; i < SERVERS; i++) assert_int_equal(holds_on(i, "many149"), 0);
}

static void what_redlock_has_not_is_told(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  corral_op op = op_of(CORRAL_VERB_LOCK, "k", 1, LEASE);
  op.flags = CORRAL_OP_SHARED;
  performed(&c, &op, 1);
  IS(op, CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(c.error.text, "exclusive locks only"));
  IS(does(&c, CORRAL_VERB_CLAIM, "k", 1, LEASE), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(c.error.text, "locks only, no values"));
  void *watch;
  assert_int_equal(crl_plugin_redis.watch(c.store, 0, now_ms() + LIMIT, &watch, NULL), CORRAL_EUNSUPPORTED);
  closed(&c);
}

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"redlock:", "accepted are 1 to 15 servers"},
      {"redlock://", "accepted are 1 to 15 servers"},
      {"redlock://a,,b", "accepted are 1 to 15 servers"},
      {"redlock://a,b,", "accepted are 1 to 15 servers"},
      {"redlock://a,b:99999", "accepted are 1 to 15 servers"},
      {"redlock://a,[::1", "accepted are 1 to 15 servers"},
      {"redlock://a,b,c,d,e,f,g,h,i,j,k,l,m,n,o,p", "accepted are 1 to 15 servers"},
      {"redlock://a,b:6379,b", "named twice"},
      {"redlock://a,b,c/x", "only /DB may follow"},
      {"redlock://a,b,c?grant=some", "grant accepts majority"},
      {"redlock://a,b,c?server_ms=0", "accepted: 1 to 10000"},
      {"redlock://a,b,c?server_ms=11s", "accepted: 1 to 10000"},
      {"redlock://a,b,c?scripts=maybe", "scripts"},
      {"redlock://a,b,c?tls_ca=x", "accepted: server_ms grant db client_name scripts"},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    client c;
    assert_int_equal(try_open(&c, rows[i][0]), CORRAL_EURI);
    if (strstr(c.error.text, rows[i][1]) == NULL) fail_msg("%s: %s", rows[i][0], c.error.text);
  }
}

static void user_password_and_db_are_those_of_each_server(void **state) {
  (void)state;
  char text[240];
  int ports[3];
  for (size_t i = 0; i < 3; i++) {
    ports[i] = redis_server_port(servers[i]);
    redis_server_ask(servers[i], "CONFIG SET requirepass s3cret");
    redis_server_ask(servers[i], "AUTH s3cret");
  }
  snprintf(text, sizeof text, "redlock://:s3cret@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/3?server_ms=5s", ports[0], ports[1], ports[2]);
  client c = opened(text);
  locks(&c, "k", 1);
  closed(&c);
  snprintf(text, sizeof text, "redlock://:wrong@127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/3?server_ms=5s", ports[0], ports[1], ports[2]);
  c = opened(text);
  IS(does(&c, CORRAL_VERB_LOCK, "k", 2, LEASE), CORRAL_EAUTH);
  closed(&c);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(holds_on(i, "k"), -1);
    redis_server_ask(servers[i], "SELECT 3");
    assert_int_equal(holds_on(i, "k"), 1);
    redis_server_ask(servers[i], "SELECT 0");
    redis_server_ask(servers[i], "CONFIG SET requirepass %s", "");
  }
}

/* ---- servers that are away ------------------------------------------------------------------------------- */

static void two_dead_servers_of_five_cost_nothing(void **state) {
  (void)state;
  client c = redlock(0, 5, ""), other = redlock(0, 5, "");
  kill_server(1);
  kill_server(4);
  uint64_t fence = locks(&c, "k", 1);
  is_busy(&other, "k", 2);
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_OK);
  unlocks(&c, "k", 1);
  assert_true(locks(&other, "k", 2) > fence);
  closed(&c);
  closed(&other);
}

static void without_a_majority_nothing_is_taken_and_nothing_left(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=3s");
  for (size_t i = 2; i < 5; i++) kill_server(i);
  int64_t before = now_ms();
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  assert_true(now_ms() - before < 3000 + SLACK);
  if (strstr(c.error.text, "redlock: 2 of 5 servers granted, 0 refused, 3 didn't answer; needed: 3") == NULL) fail_msg("%s", c.error.text);
  for (size_t i = 0; i < 2; i++) awaits_freedom(i, "k");
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_EUNKNOWN);
  IS(does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0), CORRAL_EUNKNOWN);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, 0), CORRAL_EUNAVAILABLE);
  closed(&c);
}

static void a_stopped_server_is_not_waited_for_where_others_are_enough(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=10s");
  locks(&c, "warm", 1); /* connected to all */
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "warm", 1);
  pause_server(2);
  int64_t before = now_ms();
  locks(&c, "k", 1);
  assert_true(now_ms() - before < SLACK);
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_OK);
  unlocks(&c, "k", 1);
  assert_true(now_ms() - before < SLACK);
  resume_server(2);
  awaits_holds(2, "k", 0); /* it took the lock from its socket, and what came behind */
  closed(&c);
}

static void a_lock_that_stopped_servers_take_too_late_is_released(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=1s");
  locks(&c, "warm", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "warm", 1);
  for (size_t i = 2; i < 5; i++) pause_server(i);
  int64_t before = now_ms();
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  assert_in_range(now_ms() - before, 999, 1000 + SLACK);
  for (size_t i = 0; i < 2; i++) awaits_holds(i, "k", 0);
  for (size_t i = 2; i < 5; i++) resume_server(i);
  for (size_t i = 2; i < 5; i++) awaits_holds(i, "k", 0); /* a record: it was taken */
  locks(&c, "k", 2);
  closed(&c);
}

static void an_unlock_reaches_a_server_when_it_is_back(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=500ms");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  pause_server(3);
  unlocks(&c, "k", 1);
  IS(does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0), CORRAL_ELOST);
  int64_t until = now_ms() + 1500; /* longer than it is waited for, and tried again */
  while (now_ms() < until) poll(NULL, 0, 10);
  resume_server(3);
  awaits_holds(3, "k", 0);
  closed(&c);
}

static void an_unlock_that_a_server_refuses_for_a_while_is_repeated(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=5s&scripts=yes");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  redis_server_ask(servers[3], "ACL SETUSER default -@scripting");
  unlocks(&c, "k", 1);
  int64_t until = now_ms() + PATIENCE;
  while (redis_server_info(servers[3], "errorstat_NOPERM") < 0 && now_ms() < until) poll(NULL, 0, 1);
  assert_int_equal(holds_on(3, "k"), 1);
  redis_server_ask(servers[3], "ACL SETUSER default +@all");
  awaits_holds(3, "k", 0);
  closed(&c);
}

static void an_unlock_that_is_owed_is_forgotten_when_the_hold_is_over(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, 1500), CORRAL_OK);
  for (size_t i = 0; i < 3; i++) awaits_holds(i, "k", 1);
  kill_server(2);
  unlocks(&c, "k", 1);
  int64_t until = now_ms() + 1600;
  while (now_ms() < until) poll(NULL, 0, 10);
  restart_server(2);
  until = now_ms() + PATIENCE;
  while (redis_server_info(servers[2], "cmdstat_pttl") < 0 && now_ms() < until) IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, 0), CORRAL_EMISS);
  assert_int_equal(redis_server_info(servers[2], "cmdstat_pttl"), 0); /* it was asked, and for nothing else */
  assert_int_equal(redis_server_info(servers[2], "cmdstat_evalsha"), -1);
  closed(&c);
}

static void closing_sends_what_was_not_sent_and_waits_for_no_stopped_server(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  unlocks(&c, "k", 1);
  closed(&c);
  for (size_t i = 0; i < SERVERS; i++) assert_int_equal(holds_on(i, "k"), 0);
  c = redlock(0, 5, "server_ms=1s");
  locks(&c, "k", 1);
  pause_server(0);
  int64_t before = now_ms();
  unlocks(&c, "k", 1);
  closed(&c);
  assert_true(now_ms() - before < 2000 + SLACK);
}

static void a_call_keeps_its_deadline(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=10s");
  pause_server(0);
  pause_server(1);
  corral_op op = op_of(CORRAL_VERB_LOCK, "k", 1, LEASE);
  op.error = &c.error;
  int64_t before = now_ms();
  assert_int_equal(crl_plugin_redis.perform(c.handle, &op, 1, before + 100, NULL), CORRAL_OK);
  IS(op, CORRAL_EUNAVAILABLE);
  assert_in_range(now_ms() - before, 99, 100 + SLACK);
  op.status = CORRAL_EUNKNOWN;
  assert_int_equal(crl_plugin_redis.perform(c.handle, &op, 1, before, NULL), CORRAL_OK);
  IS(op, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "before anything was sent"));
  resume_server(0);
  resume_server(1);
  closed(&c);
}

/* ---- servers that forget --------------------------------------------------------------------------------- */

static void a_hold_outlives_two_restarts_of_five_and_not_three(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  uint64_t fence = locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  restart_server(0);
  restart_server(3);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  op.seen = fence;
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  restart_server(4);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  IS(op, CORRAL_ELOST);
  assert_int_equal(op.until_ms, 0);
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "k"); /* what was left of it is in nobody's way */
  closed(&c);
}

/* What Redlock doesn't promise: a server that granted, crashed, and is back at once without its memory. */
static void a_server_that_forgets_its_grant_lets_two_in_and_the_fencing_tokens_tell_them_apart(void **state) {
  (void)state;
  client c = redlock(0, 3, ""), other = redlock(0, 3, "");
  kill_server(2);
  uint64_t first = locks(&c, "k", 1); /* by exactly two */
  restart_server(2);
  is_busy(&other, "k", 2);
  restart_server(1);
  uint64_t second = locks(&other, "k", 2);
  assert_int_equal(holds_on(0, "k"), 1);
  assert_true(second > first);
  closed(&c);
  closed(&other);
}

/* A record without holds that knows a fencing token. */
static void write_fence(size_t i, const char *key, uint64_t fence) {
  uint8_t record[CORRAL_LOCK_HEAD];
  crl_registry_host()->lock_write(fence, NULL, 0, record);
  redis_server_ask(servers[i], "SET %s %b PX 600000", key, record, sizeof record);
}

static void tokens_grow_also_when_the_server_with_the_fastest_clock_dies(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  uint64_t ahead = wall_us(0) + UINT64_C(3600000000);
  write_fence(0, "k", ahead);
  kill_server(3);
  kill_server(4); /* so that server 0 is needed */
  uint64_t first = locks(&c, "k", 1);
  assert_true(first > ahead);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  assert_true(op.seen == first); /* all that hold it know it */
  unlocks(&c, "k", 1);
  kill_server(0);
  restart_server(3);
  uint64_t second = locks(&c, "k", 2);
  assert_true(second > first);
  closed(&c);
}

static void a_token_that_all_gave_needs_no_second_round(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=5s");
  uint64_t ahead = wall_us(0) + UINT64_C(3600000000);
  locks(&c, "warm", 1);
  for (size_t i = 0; i < 3; i++) {
    awaits_holds(i, "warm", 1);
    write_fence(i, "k", ahead);
  }
  assert_true(locks(&c, "k", 1) == ahead + 1);
  for (size_t i = 0; i < 3; i++) awaits_holds(i, "k", 1);
  closed(&c);
}

/* ---- holds ----------------------------------------------------------------------------------------------- */

static void a_hold_of_which_nothing_is_left_is_not_granted(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=5s");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, 2), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "nothing is left of a hold of 2 ms"));
  for (size_t i = 0; i < 3; i++) awaits_freedom(i, "k");
  closed(&c);
}

static void all_of_two_must_grant_where_it_is_asked_for(void **state) {
  (void)state;
  client both = redlock(0, 2, "grant=all&server_ms=5s"), left = redlock(0, 1, ""), right = redlock(1, 2, "");
  locks(&both, "k", 1);
  is_busy(&left, "k", 2);
  is_busy(&right, "k", 2);
  unlocks(&both, "k", 1);
  locks(&left, "k", 2);
  is_busy(&both, "k", 1);
  unlocks(&left, "k", 2);
  awaits_freedom(1, "k");
  locks(&right, "k", 2);
  is_busy(&both, "k", 1);
  unlocks(&right, "k", 2);
  awaits_freedom(0, "k");
  locks(&both, "k", 1);
  unlocks(&both, "k", 1);
  kill_server(1);
  IS(does(&both, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  awaits_freedom(0, "k");
  closed(&both);
  closed(&left);
  closed(&right);
  client three = redlock(2, 5, "grant=all&server_ms=5s");
  kill_server(4);
  IS(does(&three, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  closed(&three);
}

static void what_others_left_at_the_key_is_told_by_a_majority_only(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  redis_server_ask(servers[0], "SET k foreign");
  locks(&c, "k", 1);
  unlocks(&c, "k", 1);
  awaits_freedom(2, "k");
  redis_server_ask(servers[1], "SET k foreign");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EFOREIGN);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, LEASE), CORRAL_EFOREIGN);
  closed(&c);
}

/* ---- contenders ------------------------------------------------------------------------------------------ */

enum { CONTENDERS = 8, ACQUISITIONS = 2000 };

static atomic_int holders, doubles, backwards, acquired, odd;
static uint64_t last_fence; /* the holder's */

typedef struct contender {
  client *store;
  unsigned number;
  pthread_t thread;
} contender;

/* No assertion here: it would leave the thread by longjmp. */
static void *contends(void *arg) {
  contender *own = arg;
  void *handle;
  unsigned random = own->number * 2654435761u + 1;
  if (crl_plugin_redis.connect(own->store->store, now_ms() + LIMIT, &handle, NULL) != CORRAL_OK) return NULL;
  while (atomic_load(&acquired) < ACQUISITIONS) {
    corral_op op = op_of(CORRAL_VERB_LOCK, "contended", own->number, LEASE);
    op.status = CORRAL_EUNKNOWN;
    crl_plugin_redis.perform(handle, &op, 1, now_ms() + LIMIT, NULL);
    if (op.status == CORRAL_OK) {
      if (atomic_fetch_add(&holders, 1) != 0) atomic_fetch_add(&doubles, 1);
      if (op.seen <= last_fence) atomic_fetch_add(&backwards, 1);
      last_fence = op.seen;
      atomic_fetch_sub(&holders, 1);
      op = op_of(CORRAL_VERB_UNLOCK, "contended", own->number, 0);
      crl_plugin_redis.perform(handle, &op, 1, now_ms() + LIMIT, NULL);
      if (op.status == CORRAL_OK) atomic_fetch_add(&acquired, 1);
    }
    if (op.status != CORRAL_OK && op.status != CORRAL_EBUSY) atomic_fetch_add(&odd, 1);
    random = random * 1103515245u + 12345u;
    poll(NULL, 0, (int)(random >> 16) % 8);
  }
  crl_plugin_redis.disconnect(handle);
  return NULL;
}

static void contenders_never_have_the_lock_together(void **state) {
  (void)state;
  client stores[2] = {redlock(0, 5, "server_ms=5s"), redlock(0, 5, "server_ms=5s")};
  contender all[CONTENDERS];
  int64_t before = now_ms();
  for (unsigned i = 0; i < CONTENDERS; i++) {
    all[i] = (contender){.store = &stores[i % 2], .number = i + 1};
    assert_int_equal(pthread_create(&all[i].thread, NULL, contends, &all[i]), 0);
  }
  for (unsigned i = 0; i < CONTENDERS; i++) pthread_join(all[i].thread, NULL);
  print_message("%d acquisitions in %lld ms\n", acquired, (long long)(now_ms() - before));
  assert_int_equal(doubles, 0);
  assert_int_equal(backwards, 0);
  assert_int_equal(odd, 0);
  assert_true(acquired >= ACQUISITIONS);
  closed(&stores[0]);
  closed(&stores[1]);
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "contended");
}

#define TEST(name) cmocka_unit_test_teardown(name, repair)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(five_servers_give_one_lock),
      TEST(the_holder_that_a_majority_agrees_on_is_shown),
      TEST(operations_of_one_batch_keep_their_order),
      TEST(many_operations_go_at_once),
      TEST(what_redlock_has_not_is_told),
      TEST(a_wrong_uri_is_refused_with_what_is_accepted),
      TEST(user_password_and_db_are_those_of_each_server),
      TEST(two_dead_servers_of_five_cost_nothing),
      TEST(without_a_majority_nothing_is_taken_and_nothing_left),
      TEST(a_stopped_server_is_not_waited_for_where_others_are_enough),
      TEST(a_lock_that_stopped_servers_take_too_late_is_released),
      TEST(an_unlock_reaches_a_server_when_it_is_back),
      TEST(an_unlock_that_a_server_refuses_for_a_while_is_repeated),
      TEST(an_unlock_that_is_owed_is_forgotten_when_the_hold_is_over),
      TEST(closing_sends_what_was_not_sent_and_waits_for_no_stopped_server),
      TEST(a_call_keeps_its_deadline),
      TEST(a_hold_outlives_two_restarts_of_five_and_not_three),
      TEST(a_server_that_forgets_its_grant_lets_two_in_and_the_fencing_tokens_tell_them_apart),
      TEST(tokens_grow_also_when_the_server_with_the_fastest_clock_dies),
      TEST(a_token_that_all_gave_needs_no_second_round),
      TEST(a_hold_of_which_nothing_is_left_is_not_granted),
      TEST(all_of_two_must_grant_where_it_is_asked_for),
      TEST(what_others_left_at_the_key_is_told_by_a_majority_only),
      TEST(contenders_never_have_the_lock_together),
  };
  return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
