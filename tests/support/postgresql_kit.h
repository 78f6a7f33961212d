/* postgresql_kit.h: locks in a PostgreSQL through the plugin's table, with a one-line helper for
 * each verb. For tests of that plugin. */
#ifndef POSTGRESQL_KIT_H
#define POSTGRESQL_KIT_H

#include "os/env.h"
#include "support/postgresql_server.h"
#include "support/store_kit.h"
#include "support/op_kit.h"

#define TABLE "?locks=table"
#define ADVISORY "?locks=advisory"

static postgresql_server *server;
static const char *const modes[] = {TABLE, ADVISORY};

static inline kit open_at(const char *params) {
  return opened(postgresql_server_uri(server, params));
}
static inline int is_advisory(const char *mode) { return strcmp(mode, ADVISORY) == 0; }

/* ---- one line for each verb ---------------------------------------------------------------- */

typedef struct answer {
  int status, performed;
  uint64_t seen;
  int64_t until_ms;
  corral_error error;
} answer;

static inline answer act(const kit *k, corral_op op, int64_t deadline) {
  answer a = {0};
  op.error = &a.error;
  op.status = CORRAL_EINDOUBT;
  a.performed = perform_ops(k->plugin, k->handle, &op, 1, deadline, NULL);
  a.status = op.status;
  a.seen = op.lock_state.fence;
  a.until_ms = op.lock_state.left_ms;
  return a;
}

static inline answer lock(const kit *k, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK, key, holder);
  op.lock.hold_ms = lease_ms;
  op_notes(&op, "host/1/1 note");
  return act(k, op, INT64_MAX);
}

static inline answer lock_shared(const kit *k, const char *key, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, key, holder);
  op.flags = CORRAL_OP_SHARED;
  return act(k, op, INT64_MAX);
}

static inline answer extend(const kit *k, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, key, holder);
  op.lock_extend.hold_ms = lease_ms;
  return act(k, op, INT64_MAX);
}

static inline answer unlock(const kit *k, const char *key, unsigned holder) {
  return act(k, op_of(CORRAL_VERB_UNLOCK, key, holder), INT64_MAX);
}

static inline void expect(const char *what, answer a, int status) {
  if (a.status != status)
    fail_msg("%s: %s instead of %s: %s", what, corral_status_name(a.status),
             corral_status_name(status), a.error.text);
}

/* Reads at most `room` holds from LOCK_SHOW. Returns the number of holds; -1: EMISS. */
static inline int shown(const kit *k, const void *key, size_t key_len, corral_hold *holds, int room,
                        int64_t *now) {
  corral_op op = {
      .verb = CORRAL_VERB_LOCK_SHOW, .key = key, .key_len = key_len, .status = CORRAL_EINDOUBT};
  int status = run(k, &op);
  if (status == CORRAL_EMISS) return -1;
  assert_int_equal(status, CORRAL_OK);
  int count = op.found.record[4] | op.found.record[5] << 8;
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD);
  for (int i = 0; i < count && i < room; i++) {
    const uint8_t *at = op.found.record + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD;
    memcpy(holds[i].token, at, CORRAL_TOKEN);
    holds[i].mode = at[16];
    memcpy(&holds[i].until, at + 24, 8);
    memcpy(&holds[i].since, at + 32, 8);
    memcpy(&holds[i].fence, at + 40, 8);
    memcpy(holds[i].note, at + 48, CORRAL_LOCK_NOTE);
  }
  if (now != NULL) *now = op.lock_state.now;
  done(&op);
  return count;
}

static inline void eventually(const char *sql, const char *expected) {
  int64_t until = crl_env_now_ms() + 30000;
  while (strcmp(postgresql_server_ask(server, "%s", sql), expected) != 0) {
    if (crl_env_now_ms() > until)
      fail_msg("%s: still %s", sql, postgresql_server_ask(server, "%s", sql));
    sched_yield();
  }
}

/* Repeats LOCK until it is granted. Returns the ms until then. */
static inline int64_t lock_at_last(const kit *k, const char *key, unsigned holder, answer *got) {
  int64_t from = crl_env_now_ms();
  while ((*got = lock(k, key, holder, 60000)).status == CORRAL_EBUSY)
    if (crl_env_now_ms() > from + 60000) fail_msg("%s is never free", key);
  expect("lock", *got, CORRAL_OK);
  return crl_env_now_ms() - from;
}

#endif
