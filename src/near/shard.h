/* shard.h: a part of the near tier, with a lock, a hash table and three queues; near.c alone has
 * shards. Readers use crl_shard_find without the lock, all else is done under it. */
#ifndef CRL_SHARD_H
#define CRL_SHARD_H

#include <string.h>

#include "near/copy.h"
#include "os/readers.h"

enum {
  CRL_SHARD_LINE = 64,     /* bytes of a cache line */
  CRL_SHARD_COUNTERS = 16, /* of drops */
  CRL_SHARD_HITS = 3,      /* most hits that are counted: two bits, as in S3-FIFO */
  CRL_SHARD_PART = 10      /* the tenth that the small queue may take */
};

enum { CRL_SMALL, CRL_MAIN, CRL_NEGATIVES, CRL_QUEUES };

/* Readers follow `chain`, also from an entry that was removed. */
typedef struct crl_copied {
  crl_gone gone; /* its weight; its place in a list of removed entries, and in the limbo */
  struct crl_copied *older, *newer; /* its neighbours in the queue */
  crl_near_copy copy;
  int64_t over;                     /* end of its last life; crl_env_now_ms */
  uint32_t in;                      /* index of its queue */
  _Atomic uint32_t hits;            /* up to CRL_SHARD_HITS */
  struct crl_copied *_Atomic chain; /* the next in its bucket */
  uint64_t spot;
  size_t key_len;
  uint8_t key[]; /* and a small value behind it */
} crl_copied;

/* The tables that one has replaced are kept: readers may be in them, and together they are no
 * larger. */
typedef struct crl_shard_table {
  size_t buckets; /* a power of two */
  struct crl_shard_table *former;
  crl_copied *_Atomic bucket[];
} crl_shard_table;

typedef struct crl_shard_queue {
  crl_copied *oldest, *newest;
  size_t weight;
} crl_shard_queue;

/* A remembered hash: `print` is its upper half, its lower bits are the index; `when`: the ghost
 * clock, 0: empty. */
typedef struct crl_shard_ghost {
  uint32_t print, when;
} crl_shard_ghost;

typedef struct crl_shard {
  _Alignas(CRL_SHARD_LINE) _Atomic int locked;
  uint32_t ghost_clock;
  size_t count;
  crl_shard_table *_Atomic table;
  crl_shard_ghost *ghosts; /* as many as buckets; one counts until `count` others came after it */
  crl_shard_queue queues[CRL_QUEUES];
  _Atomic uint64_t drops[CRL_SHARD_COUNTERS];
} crl_shard;

/* 0 without memory; crl_shard_free all the same. */
int crl_shard_init(crl_shard *s);
/* Empty by now. */
void crl_shard_free(crl_shard *s);

/* The lock is held for under 1 us as a rule. */
void crl_shard_lock(crl_shard *s);
void crl_shard_unlock(crl_shard *s);

/* ---- the table ----------------------------------------------------------------------------- */

static inline crl_shard_table *crl_shard_table_of(const crl_shard *s) {
  return atomic_load_explicit(&((crl_shard *)(uintptr_t)s)->table, memory_order_acquire);
}

static inline crl_copied *_Atomic *crl_shard_bucket_in(crl_shard_table *t, uint64_t spot) {
  return &t->bucket[spot & (t->buckets - 1)];
}

static inline crl_copied *_Atomic *crl_shard_bucket_of(const crl_shard *s, uint64_t spot) {
  return crl_shard_bucket_in(crl_shard_table_of(s), spot);
}

static inline crl_copied *crl_shard_follow(crl_copied *_Atomic *link) {
  return atomic_load_explicit(link, memory_order_acquire);
}

static inline void crl_shard_point(crl_copied *_Atomic *link, crl_copied *e) {
  atomic_store_explicit(link, e, memory_order_release);
}

static inline crl_copied *crl_shard_find(const crl_shard *s, uint64_t spot, const void *key,
                                         size_t key_len) {
  crl_copied *e = crl_shard_follow(crl_shard_bucket_of(s, spot));
  while (e != NULL &&
         (e->spot != spot || e->key_len != key_len || memcmp(e->key, key, key_len) != 0))
    e = crl_shard_follow(&e->chain);
  return e;
}

/* ---- hits: written by readers, at once by several; one may be lost ------------------------- */

static inline uint32_t crl_shard_hits(const crl_copied *e) {
  return atomic_load_explicit(&((crl_copied *)(uintptr_t)e)->hits, memory_order_relaxed);
}

static inline void crl_shard_set_hits(crl_copied *e, uint32_t hits) {
  atomic_store_explicit(&e->hits, hits, memory_order_relaxed);
}

/* The link to an entry of the shard; under the lock. */
crl_copied *_Atomic *crl_shard_link(crl_shard *s, const crl_copied *e);

/* ---- under the lock; what is removed goes to the head of a list ------------------------------ */

/* Puts an entry at the head of a list. */
void crl_shard_list(crl_copied *e, crl_gone **gone);
/* Removes an entry for a reason other than disuse: a popular one leaves a ghost. */
void crl_shard_forget(crl_shard *s, crl_copied *e, crl_gone **gone);
/* Replaces `there` (NULL: none) by e; with e of NULL it only removes `there`. */
void crl_shard_replace(crl_shard *s, crl_copied *there, crl_copied *e, crl_gone **gone);
/* Makes room: removes the oldest value or negative, or moves it on: to the main queue, or to the
 * end of its own with one hit less. 0: there is none. */
int crl_shard_judge(crl_shard *s, int negatives, int64_t now, crl_gone **gone);
/* Removes all; popular ones leave ghosts. */
void crl_shard_clear(crl_shard *s, crl_gone **gone);

#endif
