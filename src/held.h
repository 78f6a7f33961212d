/* held.h: what this process knows of a store that is away: the newest fill of each key, and which
 * keys are to be invalidated.
 *
 * A fill answers here while the store is away. When that is back, invalidations are replayed; a
 * fill only if it has a version, which can be compared with the store's (offer.c). A key is
 * forgotten when it is older than held_ms, when it is invalidated or filled in the store, when its
 * fill's own life is over, and, the oldest first, when all of them weigh more than held_bytes. */
#ifndef CRL_HELD_H
#define CRL_HELD_H

#include "value.h"

typedef struct crl_held crl_held;

/* A fill. */
typedef struct crl_held_fill {
  crl_bytes *record;
  uint64_t version; /* of the value; 0: none */
  int64_t hard_ttl; /* what a store is to keep it for, counted from `made` */
  int64_t began;    /* when its compute began (crl_env_now_ms) */
  int64_t made;     /* when it was finished */
} crl_held_fill;

/* The change to replay for a key: an invalidation, or a fill. */
typedef struct crl_held_entry {
  const uint8_t *key; /* as the store has it; within `memory` */
  size_t key_len;
  int invalidates; /* else it has a fill */
  int64_t began;   /* of the invalidation: when it was wished for */
  /* of the invalidation: what is stored in place of what goes; NULL: nothing */
  crl_bytes *successor;
  crl_held_fill fill; /* with a reference of the caller's */
  void *memory;       /* to be freed by crl_held_entry_clean */
} crl_held_entry;

/* NULL without memory. */
crl_held *crl_held_new(int64_t held_bytes, int64_t held_ms);
void crl_held_free(crl_held *held);
/* Keeps a fill (one more reference of its record) in place of an earlier one, unless its compute
 * began before the key was invalidated here. Without memory nothing is kept. */
void crl_held_keep(crl_held *held, const void *key, size_t key_len, const crl_held_fill *fill);
/* The key is to be invalidated, at `now`; its fill is forgotten. `successor`: a record that is to
 * take the place of what goes (one more reference of it), or NULL. */
void crl_held_invalidate(crl_held *held, const void *key, size_t key_len, crl_bytes *successor,
                         int64_t now);
/* The key was invalidated in the store, by `now`: it is forgotten, and fills are not kept whose
 * compute began by then. */
void crl_held_invalidated(crl_held *held, const void *key, size_t key_len, int64_t now);
/* Forgets a key. */
void crl_held_drop(crl_held *held, const void *key, size_t key_len);
/* Forgets the fill of a key; a wish to invalidate it stays. */
void crl_held_drop_fill(crl_held *held, const void *key, size_t key_len);
/* The key was filled in the store by a compute that began then: earlier fills and wishes are
 * forgotten. */
void crl_held_filled(crl_held *held, const void *key, size_t key_len, int64_t began);
/* Forgets all fills that `wanted` accepts (called with the mutex held); fills are not kept whose
 * compute began by `now`. */
void crl_held_drop_if(crl_held *held, int64_t now,
                      int (*wanted)(void *arg, const crl_bytes *record), void *arg);
/* The fill of a key: 1 and *ret (its record referenced), else 0. */
int crl_held_find(crl_held *held, const void *key, size_t key_len, int64_t now, crl_held_fill *ret);
/* Up to `most` keys with something to replay, oldest first, made by `now`, that were not given out
 * before and whose key `wanted` accepts (called with the mutex held: quick, no calls back); tells
 * how many. Fills are still found. The caller cleans the entries. */
size_t crl_held_replay(crl_held *held, int64_t now,
                       int (*wanted)(void *arg, const void *key, size_t key_len), void *arg,
                       crl_held_entry *ret, size_t most);
/* An entry could not be replayed after all: it may be given out again. */
void crl_held_return(crl_held *held, const crl_held_entry *entry);
/* An invalidation was replayed. */
void crl_held_replayed(crl_held *held, const crl_held_entry *entry);
void crl_held_entry_clean(crl_held_entry *entry);
/* Keys and their bytes (records, keys and a fixed overhead each); for tests. */
size_t crl_held_count(crl_held *held);
size_t crl_held_weight(crl_held *held);

#endif
