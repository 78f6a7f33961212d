/* redlock_kit.h: five real Redis servers, the locks stored on each, and a one-line helper for each
 * verb of the redlock store over them. */
#ifndef REDLOCK_KIT_H
#define REDLOCK_KIT_H

#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/client_kit.h"
#include "support/redis_server.h"
#include "support/op_kit.h"

enum { SERVERS = 5, LEASE = 60000, LIMIT = 60000, SLACK = 15000, PATIENCE = 30000 };

extern const corral_store crl_plugin_redlock;

static redis_server *servers[SERVERS];
static int down[SERVERS], paused[SERVERS];

/* ---- servers ------------------------------------------------------------------------------- */

static inline void kill_server(size_t i) {
  redis_server_kill(servers[i]);
  down[i] = 1;
}

/* The restarted server has lost its data. */
static inline void restart_server(size_t i) {
  redis_server_restart(servers[i]);
  down[i] = 0;
}

static inline void pause_server(size_t i) {
  redis_server_pause(servers[i]);
  paused[i] = 1;
}

static inline void resume_server(size_t i) {
  redis_server_resume(servers[i]);
  paused[i] = 0;
}

static inline uint64_t number_at(const char *at, unsigned bytes) {
  uint64_t number = 0;
  for (unsigned i = 0; i < bytes; i++) number |= (uint64_t)(uint8_t)at[i] << (8 * i);
  return number;
}

static inline uint64_t wall_us(size_t i) {
  redisReply *reply = redis_server_command(servers[i], "TIME");
  uint64_t us = strtoull(reply->element[0]->str, NULL, 10) * 1000000 +
                strtoull(reply->element[1]->str, NULL, 10);
  freeReplyObject(reply);
  return us;
}

/* Number of live holds in the record on one server; -1: there is no record. */
static inline int holds_on(size_t i, const char *key) {
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

static inline int64_t now_ms(void) { return crl_registry_host()->now_ms(); }

/* Waits until the record on that server has `expected` live holds; -1: until there is no record. */
static inline void awaits_holds(size_t i, const char *key, int expected) {
  int64_t until = now_ms() + PATIENCE;
  while (holds_on(i, key) != expected) {
    if (now_ms() > until)
      fail_msg("server %zu has %d holds of %s, not %d", i, holds_on(i, key), key, expected);
    poll(NULL, 0, 1);
  }
}

/* Waits until that server has no live hold; a record may remain. */
static inline void awaits_freedom(size_t i, const char *key) {
  int64_t until = now_ms() + PATIENCE;
  while (holds_on(i, key) > 0) {
    if (now_ms() > until) fail_msg("server %zu still has a hold of %s", i, key);
    poll(NULL, 0, 1);
  }
}

/* ---- a store ------------------------------------------------------------------------------- */

static inline int try_open(client *c, const char *text) {
  return client_begin(c, &crl_plugin_redlock, text, LIMIT);
}

static inline client opened(const char *text) {
  client c;
  if (try_open(&c, text) != CORRAL_OK) fail_msg("%s: %s", text, c.error.text);
  return c;
}

/* Servers from..to-1 as one store; without params each server has 5 s, for tests in which time
 * doesn't matter. */
static inline client redlock(size_t from, size_t to, const char *params) {
  char text[400] = "redlock://";
  for (size_t i = from; i < to; i++) {
    size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s127.0.0.1:%d", i > from ? "," : "",
             redis_server_port(servers[i]));
  }
  size_t used = strlen(text);
  snprintf(text + used, sizeof text - used, "?%s", params[0] != '\0' ? params : "server_ms=5s");
  return opened(text);
}

static inline void closed(client *c) { client_end(c); }

static inline const uint8_t *token(unsigned number) {
  static uint8_t tokens[256][CORRAL_TOKEN];
  memset(tokens[number & 255], (int)(number & 255) + 1, CORRAL_TOKEN);
  return tokens[number & 255];
}

static inline corral_op op_of(corral_verb verb, const char *key, unsigned holder,
                              int64_t lease_ms) {
  corral_op op = {
      .verb = (uint32_t)verb, .key = key, .key_len = strlen(key), .token = token(holder)};
  op_lasts(&op, lease_ms);
  op_notes(&op, "a note");
  return op;
}

static inline void performed(client *c, corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = CORRAL_EINDOUBT;
    ops[i].error = &c->error;
  }
  memset(&c->error, 0, sizeof c->error);
  assert_int_equal(
      perform_ops(&crl_plugin_redlock, c->handle, ops, count, now_ms() + LIMIT, &c->error),
      CORRAL_OK);
}

static inline corral_op does(client *c, corral_verb verb, const char *key, unsigned holder,
                             int64_t lease_ms) {
  corral_op op = op_of(verb, key, holder, lease_ms);
  performed(c, &op, 1);
  return op;
}

#define IS(op, expected)                                                                           \
  do {                                                                                             \
    if ((op).status != (expected))                                                                 \
      fail_msg("line %d: status %d, not %d: %s", __LINE__, (op).status, (expected),                \
               (op).error->text);                                                                  \
  } while (0)

/* LOCK that must be granted. Returns the fencing token. */
static inline uint64_t locks(client *c, const char *key, unsigned holder) {
  corral_op op = does(c, CORRAL_VERB_LOCK, key, holder, LEASE);
  IS(op, CORRAL_OK);
  assert_true(op.lock_state.fence > 0);
  return op.lock_state.fence;
}

static inline void unlocks(client *c, const char *key, unsigned holder) {
  IS(does(c, CORRAL_VERB_UNLOCK, key, holder, 0), CORRAL_OK);
}

static inline void is_busy(client *c, const char *key, unsigned holder) {
  IS(does(c, CORRAL_VERB_LOCK, key, holder, LEASE), CORRAL_EBUSY);
}

/* ---- setup --------------------------------------------------------------------------------- */

static inline int start_servers(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++)
    if (!redis_server_start(&servers[i], NULL)) exit(77);
  for (unsigned i = 0; i < 256; i++) token(i);
  return 0;
}

static inline int stop_servers(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++) redis_server_stop(servers[i]);
  return 0;
}

/* Teardown of each test: all servers run again and are empty. */
static inline int repair(void **state) {
  (void)state;
  for (size_t i = 0; i < SERVERS; i++) {
    if (paused[i]) resume_server(i);
    if (down[i]) restart_server(i);
    redis_server_ask(servers[i], "ACL SETUSER default +@all");
    redis_server_ask(servers[i], "FLUSHALL");
  }
  return 0;
}

#endif
