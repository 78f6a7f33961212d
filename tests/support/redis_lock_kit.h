/* redis_lock_kit.h: the lock verbs of the Redis plugin on a real server, with one-line helpers. */
#ifndef REDIS_LOCK_KIT_H
#define REDIS_LOCK_KIT_H

#include "record/lock_record.h"
#include "support/redis_kit.h"

/* Parameters for the plugin's two implementations of locks. */
static const char *const ways[] = {"scripts=yes", "scripts=no"};
enum { WAYS = 2 };

static inline client opened_as(const char *params) {
  char uri[200];
  snprintf(uri, sizeof uri, "%s?%s", redis_server_uri(server), params);
  return opened(uri);
}

/* Empties the server and opens a client of it. */
static inline client begin_as(const char *params) {
  start(NULL);
  return opened_as(params);
}

static inline corral_op lock_op(corral_verb verb, const char *key, unsigned holder,
                                uint32_t flags) {
  corral_op op = {.verb = (uint32_t)verb,
                  .key = key,
                  .key_len = strlen(key),
                  .token = token(holder),
                  .flags = flags};
  op_lasts(&op, HOUR);
  op_notes(&op, "a note");
  return op;
}

static inline int locks(client *c, const char *key, unsigned holder, uint32_t flags) {
  corral_op op = lock_op(CORRAL_VERB_LOCK, key, holder, flags);
  return done(c, &op);
}

static inline int unlocks(client *c, const char *key, unsigned holder) {
  corral_op op = lock_op(CORRAL_VERB_UNLOCK, key, holder, 0);
  return done(c, &op);
}

static inline int extends(client *c, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = lock_op(CORRAL_VERB_LOCK_EXTEND, key, holder, 0);
  op.lock_extend.hold_ms = lease_ms;
  return done(c, &op);
}

/* Number of live holds in LOCK_SHOW; its status when that isn't OK. */
static inline int holds(client *c, const char *key) {
  corral_op op = lock_op(CORRAL_VERB_LOCK_SHOW, key, 0, 0);
  assert_int_equal(perform(c, &op, 1), CORRAL_OK);
  crl_lock_head head;
  int live = 0;
  if (op.status != CORRAL_OK) return op.status;
  assert_int_equal(crl_lock_record_read(op.found.record, op.found.len, &head), CORRAL_OK);
  for (size_t i = 0; i < head.count; i++) {
    corral_hold hold;
    crl_lock_record_hold(op.found.record, i, &hold);
    live += hold.until > op.lock_state.now;
  }
  dropped(&op);
  return live;
}

#endif
