/* outbox.h: changes that this process holds for a store that is away: the newest fill of each key,
 * and keys to invalidate.
 *
 * A held fill answers calls while the store is away. When the store is back, invalidations are
 * replayed, and fills that have a version, which can be compared with the store's (replay.c). A key
 * is forgotten when it is older than outbox_ms, when it is invalidated or filled in the store, when
 * its fill's own life is over, and, the oldest first, when all keys together weigh more than
 * outbox_bytes. A fill that was made since the store went away may be older: it serves until the
 * store is back. */
#ifndef CRL_OUTBOX_H
#define CRL_OUTBOX_H

#include <stdatomic.h>

#include "base/value.h"

typedef struct crl_outbox crl_outbox;

/* One held fill. */
typedef struct crl_outbox_fill {
  crl_bytes *record;
  uint64_t version; /* of the value; 0: none */
  int64_t hard_ttl; /* how long a store keeps it, ms from `made` */
  int64_t began;    /* when its compute began (crl_env_now_ms) */
  int64_t made;     /* when it was finished */
} crl_outbox_fill;

/* The change to replay for a key: an invalidation, or a fill. */
typedef struct crl_outbox_entry {
  const uint8_t *key; /* as the store has it; within `memory` */
  size_t key_len;
  int invalidates; /* 1: an invalidation; 0: a fill */
  int64_t began;   /* invalidation: when it was requested */
  /* invalidation: the record to store in place of the old one; NULL: none */
  crl_bytes *successor;
  crl_outbox_fill fill; /* with a reference of the caller's */
  void *memory;         /* to be freed by crl_outbox_entry_clean */
} crl_outbox_entry;

/* NULL without memory. */
crl_outbox *crl_outbox_new(int64_t outbox_bytes, int64_t outbox_ms);
void crl_outbox_free(crl_outbox *outbox);
/* From now on *gauge, which outlives the outbox, is the weight of all keys. */
void crl_outbox_show(crl_outbox *outbox, _Atomic int64_t *gauge);
/* Keeps a fill (one more reference of its record) in place of an earlier one, unless its compute
 * began before the key was invalidated here. Without memory nothing is kept of the key. */
void crl_outbox_keep(crl_outbox *outbox, const void *key, size_t key_len,
                     const crl_outbox_fill *fill);
/* Holds an invalidation of the key, requested at `now`, and forgets its fill. `successor`: the
 * record to store in place of the old one (one more reference of it), or NULL. */
void crl_outbox_invalidate(crl_outbox *outbox, const void *key, size_t key_len,
                           crl_bytes *successor, int64_t now);
/* Forgets a key that was invalidated in the store by `now`; fills whose compute began by then are
 * refused from now on. */
void crl_outbox_invalidated(crl_outbox *outbox, const void *key, size_t key_len, int64_t now);
/* Forgets a key. */
void crl_outbox_drop(crl_outbox *outbox, const void *key, size_t key_len);
/* Forgets the fill of a key; an invalidation stays. */
void crl_outbox_drop_fill(crl_outbox *outbox, const void *key, size_t key_len);
/* The key was filled in the store by a compute that began at `began`: forgets the key, unless an
 * invalidation was requested since then. */
void crl_outbox_filled(crl_outbox *outbox, const void *key, size_t key_len, int64_t began);
/* Forgets all fills that `wanted` accepts (called with the mutex held); fills whose compute began
 * by `now` are refused from now on. */
void crl_outbox_drop_if(crl_outbox *outbox, int64_t now,
                        int (*wanted)(void *arg, const crl_bytes *record), void *arg);
/* The fill of a key: 1 and *ret (its record referenced), else 0. */
int crl_outbox_find(crl_outbox *outbox, const void *key, size_t key_len, int64_t now,
                    crl_outbox_fill *ret);
/* Gives out up to `most` changes to replay, oldest first: made by `now`, not given out before, and
 * of keys that `wanted` accepts (called with the mutex held: quick, no calls back). Returns how
 * many. Fills are still found. The caller cleans the entries. */
size_t crl_outbox_replay(crl_outbox *outbox, int64_t now,
                         int (*wanted)(void *arg, const void *key, size_t key_len), void *arg,
                         crl_outbox_entry *ret, size_t most);
/* Calls `visit` for each key of which crl_outbox_replay would give out the change (with the mutex
 * held: quick, no calls back). */
void crl_outbox_visit(crl_outbox *outbox, int64_t now,
                      void (*visit)(void *arg, const void *key, size_t key_len), void *arg);
/* Makes an entry that could not be replayed ready to be given out again. */
void crl_outbox_return(crl_outbox *outbox, const crl_outbox_entry *entry);
/* Removes an invalidation that was replayed. */
void crl_outbox_replayed(crl_outbox *outbox, const crl_outbox_entry *entry);
void crl_outbox_entry_clean(crl_outbox_entry *entry);
/* Keys and their bytes (records, keys and a fixed overhead each); for tests. */
size_t crl_outbox_count(crl_outbox *outbox);
size_t crl_outbox_weight(crl_outbox *outbox);

#endif
