/* lock.c: users' locks in a memory: their records are entries as those of values, with a lock's
 * bytes in the block.
 *
 * A held lock is never evicted, however little room there is, because another holder could then
 * come beside its own. So where held locks alone take the whole size, a LOCK that needs more room
 * is refused. A lock without a hold may be evicted; its next fencing token is still larger because
 * of the floor: the wall clock as it was when this process had its first memory, carried on by the
 * boot clock. */
#include "memory.h"

#include <stdlib.h>

enum { FEW = CORRAL_LOCK_HEAD + 8 * CORRAL_LOCK_HOLD };

/* Wall clock minus boot clock, in ms, as measured once per process, so that a memory that is made
 * anew under its old name has no lower floor. */
static int64_t wall_ahead(const corral_host *host) {
  static _Atomic int64_t ahead;
  int64_t none = 0;
  if (atomic_load(&ahead) == 0)
    atomic_compare_exchange_strong(&ahead, &none, host->wall_ms() - host->boot_ms());
  return atomic_load(&ahead);
}

int crl_memory_is_lock(const corral_op *op) {
  return op->verb >= CORRAL_VERB_LOCK && op->verb <= CORRAL_VERB_LOCK_SHOW;
}

/* Writes the decided record to the entry, or to a new one (`e` NULL). Under the shard's lock. */
static int store(crl_memory *m, crl_memory_shard *s, uint64_t hash, const corral_op *op,
                 crl_memory_entry *e, const uint8_t *room, const corral_lock_change *change) {
  crl_memory_block *record = crl_memory_block_new(change->size);
  if (record == NULL) return CORRAL_ENOMEM;
  memcpy(record->bytes, room, change->size);
  if (e != NULL)
    crl_memory_entry_swap(m, e, record);
  else if (crl_memory_entry_add(m, s, hash, op, record, &e) != CORRAL_OK)
    return CORRAL_ENOMEM;
  e->expires = change->expires;
  e->leased_until = 0;
  e->held_until = change->expires - CORRAL_LOCK_MEMORY_MS;
  return CORRAL_OK;
}

/* A refusal stands without the place in the queue that there is no room for. */
static void give_up(const crl_memory *m, corral_op *op, int status) {
  op->lock_state.fence = 0;
  if (op->status == CORRAL_EBUSY) return;
  op->lock_state.left_ms = 0;
  if (status == CORRAL_ENOMEM)
    op->status = m->host->fail(op->error, status, "no memory for a lock");
  else
    op->status = m->host->fail(
        op->error, status, "held locks take all of the store's size: a larger size= accepts more");
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

/* Performs a verb, under the shard's lock. 1: the watches must be told, because another LOCK may
 * have become possible. */
static int decide(crl_memory *m, crl_memory_shard *s, uint64_t hash, corral_op *op,
                  crl_memory_entry *e, int64_t now, int full) {
  uint8_t few[FEW + CORRAL_LOCK_HOLD], *room = few;
  size_t len = e != NULL ? e->record->len : 0, need = len + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD;
  int status = CORRAL_OK;
  corral_lock_change change;
  if (need > sizeof few && (room = malloc(need)) == NULL) {
    give_up(m, op, CORRAL_ENOMEM);
    return 0;
  }
  m->host->lock_decide(op, e != NULL ? e->record->bytes : NULL, len, now,
                       (uint64_t)(now + wall_ahead(m->host)) * 1000, room, &change);
  if (op->status == CORRAL_EFOREIGN && e != NULL) op->lock_state.left_ms = e->expires - now;
  if (change.action == CORRAL_ACTION_REPLACE) {
    if (full && op->verb == CORRAL_VERB_LOCK && change.size > len)
      status = CORRAL_EREFUSED;
    else
      status = store(m, s, hash, op, e, room, &change);
    if (status != CORRAL_OK) give_up(m, op, status);
  }
  if (room != few) free(room);
  if (change.action != CORRAL_ACTION_REPLACE || status != CORRAL_OK) return 0;
  return frees(op);
}

static void show(corral_op *op, crl_memory_entry *e) {
  if (op->verb != CORRAL_VERB_LOCK_SHOW || op->status != CORRAL_OK) return;
  atomic_fetch_add_explicit(&e->record->refs, 1, memory_order_relaxed);
  op->found.record = e->record->bytes;
  op->found.len = e->record->len;
  op->found.drop = crl_memory_block_drop;
  op->found.owner = e->record;
}

static int is_over_budget(crl_memory *m) { return atomic_load(&m->used) > atomic_load(&m->budget); }

__attribute__((noinline)) void crl_memory_lock_verb(crl_memory *m, crl_memory_shard *s,
                                                    uint64_t hash, corral_op *op) {
  if (is_over_budget(m)) crl_memory_make_room(m, hash, m->host->boot_ms());
  int full = is_over_budget(m);
  pthread_mutex_lock(&s->lock);
  int64_t now = m->host->boot_ms();
  crl_memory_entry *e = *crl_memory_find(s, hash, op->key, op->key_len);
  if (e != NULL && e->expires <= now) {
    crl_memory_entry_remove(m, s, e);
    e = NULL;
  }
  int news = decide(m, s, hash, op, e, now, full), watched = crl_memory_is_watched(&m->watches);
  show(op, e);
  pthread_mutex_unlock(&s->lock);
  if (news && watched) crl_memory_tell(&m->watches, op->key, op->key_len);
  if (is_over_budget(m)) crl_memory_make_room(m, hash, now);
}
