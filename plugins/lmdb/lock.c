/* lock.c: users' locks in an LMDB store: their records are kept as those of values, and changed
 * inside the same transactions.
 *
 * A hold ends by its time alone, even if its process was killed: it belongs to a token, which
 * another process may know. So it has no byte in PATH-lease. A held lock is never evicted.
 *
 * The floor of fencing tokens: when the file is made, the difference of wall clock and boot clock
 * is written into it (env.c); the boot clock carries that on. So it is one clock for all processes,
 * and it doesn't jump while the file lives, which is until the next boot at most. */
#include "lmdb.h"

#include <errno.h>
#include <stdlib.h>

int crl_lmdb_is_lock(const corral_op *op) {
  return op->verb >= CORRAL_VERB_LOCK && op->verb <= CORRAL_VERB_LOCK_SHOW;
}

/* Reads the record, for host->record_drop; *ret is NULL when there is none. An LMDB code. */
static int read_record(crl_lmdb_tx *tx, const corral_op *op, crl_lmdb_front *front, uint8_t **ret) {
  *ret = NULL;
  int code = crl_lmdb_kv_find(tx, op->key, op->key_len, front);
  if (code == 0) code = crl_lmdb_kv_read(tx, op->key, op->key_len, front, ret);
  return code == MDB_NOTFOUND ? 0 : code;
}

static void decide(crl_lmdb_tx *tx, corral_op *op, const crl_lmdb_front *front,
                   const uint8_t *record, uint8_t *room, corral_lock_change *change) {
  uint64_t floor = (uint64_t)(tx->now + tx->env->wall_ahead) * 1000;
  tx->env->host->lock_decide(op, record, record != NULL ? front->len : 0, tx->now, floor, room,
                             change);
  if (op->status == CORRAL_EFOREIGN) op->lock_state.left_ms = front->expires - tx->now;
}

int crl_lmdb_lock_show(crl_lmdb_tx *tx, corral_op *op) {
  crl_lmdb_front front;
  corral_lock_change change;
  uint8_t *record;
  int code = read_record(tx, op, &front, &record);
  if (code != 0) return code;
  decide(tx, op, &front, record, NULL, &change);
  if (op->status == CORRAL_OK) {
    op->found = (corral_found){
        .record = record, .len = front.len, .drop = tx->env->host->record_drop, .owner = record};
  } else {
    tx->env->host->record_drop(record);
  }
  return 0;
}

/* 1: LOCKs of other tokens may be possible now. */
static int frees(const corral_op *op) {
  switch (op->verb) {
    case CORRAL_VERB_UNLOCK: return 1;
    case CORRAL_VERB_LOCK_EXTEND: return (op->flags & CORRAL_OP_SHARED) != 0;
    /* after a turn that leaves room, it is the next one's */
    case CORRAL_VERB_LOCK:
      return op->status == CORRAL_OK && op->flags & CORRAL_OP_FAIR &&
             (op->flags & CORRAL_OP_SHARED || op->lock.permits > 0);
    default: return 0;
  }
}

/* 1: a LOCK needs more room and gets none: a waiter has no place then, and another one is refused.
 * The room that is left is for UNLOCK and LOCK_EXTEND. */
static int is_refused(crl_lmdb_tx *tx, corral_op *op, size_t old,
                      const corral_lock_change *change) {
  if (!tx->full || op->verb != CORRAL_VERB_LOCK || change->size <= old) return 0;
  op->lock_state.fence = 0;
  if (op->status == CORRAL_EBUSY) return 1;
  op->lock_state.left_ms = 0;
  op->status = tx->env->host->fail(
      op->error, CORRAL_EREFUSED, "%.100s: held locks take all of size=: a larger one accepts more",
      tx->env->path);
  return 1;
}

int crl_lmdb_lock_change(crl_lmdb_tx *tx, corral_op *op) {
  crl_lmdb_front front;
  corral_lock_change change;
  uint8_t *record;
  int code = read_record(tx, op, &front, &record);
  if (code != 0) return code;
  size_t len = record != NULL ? front.len : 0;
  uint8_t *room = malloc(len + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD);
  if (room == NULL) {
    tx->env->host->record_drop(record);
    return ENOMEM;
  }
  decide(tx, op, &front, record, room, &change);
  if (change.action == CORRAL_ACTION_REPLACE && !is_refused(tx, op, len, &change)) {
    code = crl_lmdb_kv_put(tx, op->key, op->key_len, room, change.size, change.expires);
    if (frees(op)) crl_lmdb_note(tx->env, tx->news, op->key, op->key_len);
  }
  free(room);
  tx->env->host->record_drop(record);
  return code;
}
