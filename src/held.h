/* held.h: what was made while the store was away, the newest per key, to be offered to the store once when it is back.
 *
 * An entry is a finished record, or the wish to invalidate. It is dropped when it is older than held_ms, when the key is invalidated or
 * filled, when its own life is over, and, the oldest first, when all of them weigh more than held_bytes. */
#ifndef CRL_HELD_H
#define CRL_HELD_H

#include "value.h"

typedef struct crl_held crl_held;

/* One entry, given out or looked at. */
typedef struct crl_held_entry {
  const uint8_t *key; /* as the store has it; within `memory` */
  size_t key_len;
  crl_bytes *record;  /* a reference of the caller's; NULL: invalidate */
  int64_t hard_ttl;   /* what the store is to keep it for, counted from `made` */
  int64_t began;      /* when its compute began (crl_env_now_ms): what was invalidated or stored after that is newer */
  int64_t made;       /* when it was finished */
  void *memory;       /* to be freed by crl_held_entry_clean */
} crl_held_entry;

/* NULL without memory. */
crl_held *crl_held_new(int64_t held_bytes, int64_t held_ms);
void crl_held_free(crl_held *held);
/* Keeps a record (one more reference of it), or, for NULL, the wish to invalidate. Replaces what there is under this key, unless that
 * began later. Without memory nothing is kept. */
void crl_held_keep(crl_held *held, const void *key, size_t key_len, crl_bytes *record, int64_t hard_ttl, int64_t began, int64_t now);
/* Forgets a key: it was invalidated or filled in the store. */
void crl_held_drop(crl_held *held, const void *key, size_t key_len);
/* Forgets all records that `wanted` accepts (called with the mutex held). */
void crl_held_drop_if(crl_held *held, int (*wanted)(void *arg, const crl_bytes *record), void *arg);
/* The record held for a key: 1 and *ret (its record referenced; key and memory unset), else 0. */
int crl_held_find(crl_held *held, const void *key, size_t key_len, int64_t now, crl_held_entry *ret);
/* Up to `most` entries, oldest first, made by `now`, that were not given out before and whose key `wanted` accepts (called with the mutex held: quick,
 * no calls back); tells how many. They are still found until crl_held_forget: the store isn't asked yet. The caller cleans them. */
size_t crl_held_offer(crl_held *held, int64_t now, int (*wanted)(void *arg, const void *key, size_t key_len), void *arg,
                      crl_held_entry *ret, size_t most);
/* An entry could not be offered after all: it may be given out again. */
void crl_held_return(crl_held *held, const crl_held_entry *entry);
/* What was given out, of the keys that `wanted` accepts, is over at `until`: the store answers for them again. */
void crl_held_forget(crl_held *held, int64_t until, int (*wanted)(void *arg, const void *key, size_t key_len), void *arg);
void crl_held_entry_clean(crl_held_entry *entry);
/* Entries and their bytes (records, keys and a fixed overhead each); for tests. */
size_t crl_held_count(crl_held *held);
size_t crl_held_weight(crl_held *held);

#endif
