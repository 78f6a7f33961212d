/* etcd_kit.h: one client of the etcd plugin through its table, and a one-line helper for each
 * verb. */
#ifndef ETCD_KIT_H
#define ETCD_KIT_H

#include "record/lock_record.h"
#include "support/store_kit.h"
#include "support/op_kit.h"

enum { PATIENCE = 10000 };

typedef struct client {
  kit k;
  corral_store_info info;
  corral_error error; /* error of the last call */
  int performed;      /* return value of the last `perform` */
} client;

static inline int open_only(client *c, const char *text) {
  crl_uri uri;
  memset(c, 0, sizeof *c);
  c->k.host = crl_registry_host();
  c->info.size = sizeof c->info;
  int status = crl_uri_parse(&uri, text, &c->error);
  if (status != CORRAL_OK) return status;
  status = crl_registry_find(uri.view.scheme, &c->k.plugin, &c->error);
  if (status == CORRAL_OK)
    status = c->k.plugin->open(c->k.host, &uri.view, &c->k.store, &c->info, &c->error);
  crl_uri_free(&uri);
  return status;
}

static inline int connects(client *c, int64_t limit) {
  memset(&c->error, 0, sizeof c->error);
  return c->k.plugin->connect(c->k.store, c->k.host->now_ms() + limit, &c->k.handle, &c->error);
}

static inline client connected(const char *text) {
  client c;
  if (open_only(&c, text) != CORRAL_OK || connects(&c, PATIENCE) != CORRAL_OK)
    fail_msg("%s: %s", text, c.error.text);
  return c;
}

static inline void gone(client *c) {
  if (c->k.handle != NULL) c->k.plugin->disconnect(c->k.handle);
  if (c->k.store != NULL) c->k.plugin->close(c->k.store);
  memset(&c->k, 0, sizeof c->k);
}

static inline corral_op lock_op(corral_verb verb, const char *key, unsigned holder,
                                int64_t lease_ms) {
  corral_op op = {.verb = verb,
                  .key = key,
                  .key_len = strlen(key),
                  .token = token(holder),
                  .status = CORRAL_EINDOUBT};
  op_lasts(&op, lease_ms);
  return op;
}

static inline int perform(client *c, corral_op *op, int64_t limit) {
  memset(&c->error, 0, sizeof c->error);
  op->error = &c->error;
  c->performed = perform_ops(c->k.plugin, c->k.handle, op, 1, c->k.host->now_ms() + limit, NULL);
  op->error = NULL;
  return op->status;
}

/* Fails the test unless `perform` returns CORRAL_OK; op.status may be anything. */
static inline corral_op ask(client *c, corral_verb verb, const char *key, unsigned holder,
                            int64_t lease_ms) {
  corral_op op = lock_op(verb, key, holder, lease_ms);
  (void)perform(c, &op, PATIENCE);
  if (c->performed != CORRAL_OK) fail_msg("perform: %s", c->error.text);
  return op;
}

static inline int locks(client *c, const char *key, unsigned holder) {
  return ask(c, CORRAL_VERB_LOCK, key, holder, 20000).status;
}
static inline int unlocks(client *c, const char *key, unsigned holder) {
  return ask(c, CORRAL_VERB_UNLOCK, key, holder, 0).status;
}
static inline int extends(client *c, const char *key, unsigned holder) {
  return ask(c, CORRAL_VERB_LOCK_EXTEND, key, holder, 20000).status;
}

/* Reads the hold of a lock that must have exactly one. */
static inline corral_hold shown(client *c, const char *key, int64_t *ret_now) {
  corral_op op = ask(c, CORRAL_VERB_LOCK_SHOW, key, 0, 0);
  crl_lock_head head;
  corral_hold hold = {0};
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  assert_int_equal(crl_lock_record_read(op.found.record, op.found.len, &head), CORRAL_OK);
  assert_int_equal(head.count, 1);
  crl_lock_record_hold(op.found.record, 0, &hold);
  if (ret_now != NULL) *ret_now = op.lock_state.now;
  done(&op);
  return hold;
}

#endif
