/* zookeeper_kit.h: one-line helpers for lock verbs through a plugin's table, on a real server that
 * the test can inspect through a client of its own. For tests of the ZooKeeper plugin. */
#ifndef ZOOKEEPER_KIT_H
#define ZOOKEEPER_KIT_H

#define THREADED /* declares the library's blocking calls */
#include <corral/lock.h>

#include "../plugins/zookeeper/zk.h"
#include "record/lock_record.h"
#include "support/watch_kit.h"
#include "support/zookeeper_server.h"
#include "support/op_kit.h"

enum { LEASE_MS = 60000, WISH_MS = 20000, PATIENT_MS = 30000 };

static inline void nap_ms(int64_t ms) { crl_env_sleep_until(crl_env_now_ms() + ms); }

/* Performs a lock verb; the text in `error` is dropped. */
static inline corral_op ask_within(const kit *k, corral_verb what, const char *key, unsigned holder,
                                   uint32_t flags, int64_t lease_ms, int64_t wish_ms,
                                   int64_t limit_ms) {
  corral_error error = {0};
  corral_op op = op_of(what, key, holder);
  op.flags = flags;
  op_lasts(&op, lease_ms);
  op_notes(&op, "who");
  if (what == CORRAL_VERB_LOCK) op.lock.wish_ms = wish_ms;
  op.error = &error;
  (void)perform_ops(k->plugin, k->handle, &op, 1, k->host->now_ms() + limit_ms, &error);
  op.error = NULL;
  return op;
}

static inline corral_op ask(const kit *k, corral_verb what, const char *key, unsigned holder,
                            uint32_t flags, int64_t wish_ms) {
  return ask_within(k, what, key, holder, flags, LEASE_MS, wish_ms, PATIENT_MS);
}

static inline int tries(const kit *k, const char *key, unsigned holder, uint32_t flags) {
  return ask(k, CORRAL_VERB_LOCK, key, holder, flags, 0).status;
}
static inline int waits(const kit *k, const char *key, unsigned holder, uint32_t flags) {
  corral_op op = ask(k, CORRAL_VERB_LOCK, key, holder, flags, WISH_MS);
  assert_int_equal((op.flags & CORRAL_OP_QUEUED) != 0, op.status == CORRAL_EBUSY);
  return op.status;
}
static inline int extends(const kit *k, const char *key, unsigned holder) {
  return ask(k, CORRAL_VERB_LOCK_EXTEND, key, holder, 0, 0).status;
}
static inline int unlocks(const kit *k, const char *key, unsigned holder) {
  return ask(k, CORRAL_VERB_UNLOCK, key, holder, 0, 0).status;
}

/* Returns the number of holds; the first of them goes to *first (may be NULL). */
static inline size_t shown(const kit *k, const char *key, corral_hold *first, int64_t *store_now) {
  corral_op op = ask(k, CORRAL_VERB_LOCK_SHOW, key, 0, 0, 0);
  crl_lock_head head = {0};
  if (op.status == CORRAL_EMISS) return 0;
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(crl_lock_record_read(op.found.record, op.found.len, &head), CORRAL_OK);
  if (first != NULL) crl_lock_record_hold(op.found.record, 0, first);
  if (store_now != NULL) *store_now = op.lock_state.now;
  done(&op);
  return head.count;
}

/* Repeats LOCK until it is granted. Returns the ms until then; fails the test after `most` ms. */
static inline int64_t gets_within(const kit *k, const char *key, unsigned holder, int64_t most) {
  int64_t from = k->host->now_ms();
  while (tries(k, key, holder, 0) != CORRAL_OK) {
    if (k->host->now_ms() - from > most)
      fail_msg("%s wasn't free within %lld ms", key, (long long)most);
    nap_ms(10);
  }
  return k->host->now_ms() - from;
}

/* ---- the server ---------------------------------------------------------------------------- */

enum { LONG_MS = 4000, SESSION_MS = 1000, TICK_MS = 100, SLACK_MS = 15000 };

static zookeeper_server *server;

static inline const char *uri_of(int port, const char *rest) {
  static char uri[200];
  snprintf(uri, sizeof uri, "zookeeper://127.0.0.1:%d%s", port, rest);
  return uri;
}

static inline kit begin(void) {
  return opened(uri_of(zookeeper_server_port(server), "?session=4s"));
}

static inline int setup(void **state) {
  (void)state;
  return zookeeper_server_start(&server, NULL) ? 0 : -1;
}

static inline int teardown(void **state) {
  (void)state;
  zookeeper_server_stop(server);
  return 0;
}

/* ---- a second client, to inspect the server ------------------------------------------------ */

static inline void ignore(zhandle_t *zh, int type, int state, const char *path, void *arg) {
  (void)zh, (void)type, (void)state, (void)path, (void)arg;
}
static inline void silent(const char *message) { (void)message; }

static inline zhandle_t *outsider_of(int port) {
  char at[40];
  snprintf(at, sizeof at, "127.0.0.1:%d", port);
  zhandle_t *zh = zookeeper_init2(at, ignore, 4000, NULL, NULL, ZOO_NO_LOG_CLIENTENV, silent);
  assert_non_null(zh);
  return zh;
}

static inline zhandle_t *outsider(void) { return outsider_of(zookeeper_server_port(server)); }

static inline void dropped(int rc, const char *path, const void *data) {
  (void)rc, (void)path, (void)data;
}

static inline int nodes_in(zhandle_t *zh, const char *dir) {
  struct String_vector names = {0};
  int rc = zoo_get_children(zh, dir, 0, &names), count = names.count;
  if (rc == ZNONODE) return 0;
  assert_int_equal(rc, ZOK);
  deallocate_String_vector(&names);
  return count;
}

static inline void come_to(zhandle_t *zh, const char *dir, int count) {
  int64_t until = crl_env_now_ms() + PATIENT_MS;
  while (nodes_in(zh, dir) != count) {
    if (crl_env_now_ms() > until)
      fail_msg("%s has %d nodes, not %d", dir, nodes_in(zh, dir), count);
    nap_ms(10);
  }
}

#endif
