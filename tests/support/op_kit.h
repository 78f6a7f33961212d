/* op_kit.h: performs an array of operations on a plugin's handle, and sets arguments by the verb of
 * an operation. Verbs without such an argument are left as they are. */
#ifndef OP_KIT_H
#define OP_KIT_H

#include <corral/plugin.h>

static inline int perform_ops(const corral_store *plugin, void *handle, corral_op *ops,
                              size_t count, int64_t deadline, corral_error *error) {
  corral_batch batch = {ops, count, sizeof *ops, 0};
  return plugin->perform(handle, &batch, deadline, error);
}

/* Sets the life of the lease, the verdict, the hold or the foreign data. */
static inline void op_lasts(corral_op *op, int64_t ms) {
  switch (op->verb) {
    case CORRAL_VERB_CLAIM: op->claim.lease_ms = ms; break;
    case CORRAL_VERB_EXTEND: op->extend.lease_ms = ms; break;
    case CORRAL_VERB_RELEASE: op->release.verdict_ms = ms; break;
    case CORRAL_VERB_LOCK: op->lock.hold_ms = ms; break;
    case CORRAL_VERB_LOCK_EXTEND: op->lock_extend.hold_ms = ms; break;
    case CORRAL_VERB_LOCK_SHOW: op->lock_show.foreign_ms = ms; break;
    default: break;
  }
}

/* Sets the time for which the body, or the key of a verdict, is kept. */
static inline void op_keeps(corral_op *op, int64_t ms) {
  switch (op->verb) {
    case CORRAL_VERB_SETTLE: op->settle.ttl_ms = ms; break;
    case CORRAL_VERB_RENEW: op->renew.ttl_ms = ms; break;
    case CORRAL_VERB_RELEASE: op->release.keep_ms = ms; break;
    default: break;
  }
}

/* A record, or the front of a lease or verdict. */
static inline void op_brings(corral_op *op, const uint8_t *bytes, size_t len) {
  switch (op->verb) {
    case CORRAL_VERB_CLAIM: op->claim.front = bytes, op->claim.front_len = len; break;
    case CORRAL_VERB_SETTLE: op->settle.record = bytes, op->settle.record_len = len; break;
    case CORRAL_VERB_RELEASE: op->release.verdict = bytes, op->release.verdict_len = len; break;
    default: break;
  }
}

static inline void op_notes(corral_op *op, const char *note) {
  if (op->verb != CORRAL_VERB_LOCK) return;
  op->lock.note = note;
  op->lock.note_len = strlen(note);
}

#endif
