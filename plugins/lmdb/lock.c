/* lock.c: users' locks in an LMDB store: their records are kept as those of values, and changed
 * inside the same transactions.
 *
 * A hold ends by its time, or, if it is tied to its process, with that: its byte in PATH-lease is
 * locked as long as the process lives (lease.c), and a LOCK that meets a hold whose byte is
 * unlocked ends it. A hold whose token another process may know, by a ticket, isn't tied. The same
 * goes for places in the queue. A held lock is never evicted.
 *
 * The floor of fencing tokens: when the file is made, the difference of wall clock and boot clock
 * is written into it (env.c); the boot clock carries that on. So it is one clock for all processes,
 * and it doesn't jump while the file lives, which is until the next boot at most. */
#include "lmdb.h"

#include <errno.h>
#include <stdlib.h>

/* Offsets within a hold (plugin.h). LOOKS: most holds that a refused LOCK looks at. */
enum { AT_MODE = 16, AT_TIED = 17, AT_UNTIL = 24, LOOKS = 64 };

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

/* ---- ties ---------------------------------------------------------------------------------- */

static size_t count_of(size_t len) { return (len - CORRAL_LOCK_HEAD) / CORRAL_LOCK_HOLD; }

static uint8_t *hold_of(uint8_t *record, size_t i) {
  return record + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD;
}

static int64_t until_of(const uint8_t *hold) {
  uint64_t until = 0;
  for (size_t i = 8; i-- > 0;) until = until << 8 | hold[AT_UNTIL + i];
  return (int64_t)until;
}

/* 1: it is tied to its process, and not over by time. */
static int is_tied(const crl_lmdb_tx *tx, const uint8_t *hold) {
  return hold[AT_TIED] == 1 && until_of(hold) > tx->now;
}

/* 1: its process has died, and it is over now, in this copy of the record. */
static int end_if_dead(crl_lmdb_tx *tx, uint8_t *hold) {
  if (!is_tied(tx, hold) || crl_lmdb_lease_alive(&tx->env->leases, hold)) return 0;
  memset(hold + AT_UNTIL, 0, 8);
  hold[AT_UNTIL] = 1; /* 0 would be an end that isn't known */
  return 1;
}

/* Ends the holds of processes that have died, and the places before the first one of a live
 * process. Of more than `most` holds that many are looked at, from another one on each time.
 * Returns how many were ended. */
static size_t end_dead(crl_lmdb_tx *tx, uint8_t *record, size_t len, size_t most) {
  size_t count = count_of(len), looks = 0, ended = 0,
         first = count > most ? (size_t)tx->now % count : 0;
  for (size_t i = 0; i < count && looks < most; i++) {
    uint8_t *hold = hold_of(record, (first + i) % count);
    if (hold[AT_MODE] >= CORRAL_LOCK_WAITING || !is_tied(tx, hold)) continue;
    looks++;
    ended += (size_t)end_if_dead(tx, hold);
  }
  for (size_t i = 0; i < count; i++) {
    uint8_t *place = hold_of(record, i);
    if (place[AT_MODE] < CORRAL_LOCK_WAITING || until_of(place) <= tx->now) continue;
    if (!end_if_dead(tx, place)) break;
    ended++;
  }
  return ended;
}

/* The hold, or place, of a token; NULL: it has none. A new one is the last. */
static uint8_t *find(uint8_t *record, size_t len, const uint8_t *token) {
  for (size_t i = count_of(len); i-- > 0;)
    if (memcmp(hold_of(record, i), token, CORRAL_TOKEN) == 0) return hold_of(record, i);
  return NULL;
}

/* Locks the byte of a hold that the new record shows as tied: before others see it, and for as long
 * as it may last. Without the byte it isn't tied. */
static void tie(crl_lmdb_tx *tx, const corral_op *op, uint8_t *record, size_t len, uint8_t *fresh) {
  uint8_t *own = find(record, len, op->token);
  int took = 0;
  if (own == NULL || own[AT_TIED] != 1) return;
  if (crl_lmdb_lease_hold(&tx->env->leases, op->token, until_of(own), tx->now, &took) != 0)
    own[AT_TIED] = 0;
  *fresh |= (uint8_t)took;
}

/* ---- verbs --------------------------------------------------------------------------------- */

int crl_lmdb_lock_show(crl_lmdb_tx *tx, corral_op *op) {
  crl_lmdb_front front;
  corral_lock_change change;
  uint8_t *record;
  int code = read_record(tx, op, &front, &record);
  if (code != 0) return code;
  decide(tx, op, &front, record, NULL, &change);
  if (op->status == CORRAL_OK) {
    (void)end_dead(tx, record, front.len, SIZE_MAX);
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

/* 1: a LOCK wasn't granted because of others. */
static int meets_others(const corral_op *op, const uint8_t *record) {
  return op->verb == CORRAL_VERB_LOCK && record != NULL &&
         (op->status == CORRAL_EBUSY || op->status == CORRAL_EREFUSED);
}

/* Decides among the living. 1: this copy of the record has holds of dead processes, which are over
 * now. */
static int decide_anew(crl_lmdb_tx *tx, corral_op *op, const crl_lmdb_front *front, uint8_t *record,
                       uint8_t *room, corral_lock_change *change) {
  int ended = 0;
  decide(tx, op, front, record, room, change);
  while (meets_others(op, record) && end_dead(tx, record, front->len, LOOKS) > 0) {
    decide(tx, op, front, record, room, change);
    ended = 1;
  }
  return ended;
}

int crl_lmdb_lock_change(crl_lmdb_tx *tx, corral_op *op, uint8_t *fresh) {
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
  int ended = decide_anew(tx, op, &front, record, room, &change);
  if (ended && change.action == CORRAL_ACTION_KEEP)
    code = crl_lmdb_kv_put(tx, op->key, op->key_len, record, len, front.expires);
  if (change.action == CORRAL_ACTION_REPLACE && !is_refused(tx, op, len, &change)) {
    tie(tx, op, room, change.size, fresh);
    code = crl_lmdb_kv_put(tx, op->key, op->key_len, room, change.size, change.expires);
    if (frees(op)) crl_lmdb_note(tx->env, tx->news, op->key, op->key_len);
  }
  free(room);
  tx->env->host->record_drop(record);
  return code;
}
