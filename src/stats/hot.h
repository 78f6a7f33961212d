/* hot.h: the heaviest keys of a corral, by a sketch of CRL_HOT_KEYS counters: space-saving
 * (Metwally, Agrawal, El Abbadi: "Efficient Computation of Frequent and Top-k Elements in Data
 * Streams", ICDT 2005). And the hot keys: those whose share of the gets reaches a threshold.
 *
 * Of n gets that were counted a key with more than n / CRL_HOT_KEYS has a counter. Its count is no
 * less than its gets, and more by its error at most; no error is more than n / CRL_HOT_KEYS. All
 * counts are halved every CRL_HOT_HALF_MS, which rounds them down by less than 2 gets in all.
 *
 * One of CRL_HOT_EVERY gets is counted, for as many, at random distances: a key with f gets is
 * counted with a standard deviation of about the root of CRL_HOT_EVERY * f. A get that comes while
 * another one is being counted is not waited with, and not counted.
 *
 * The table lies in memory that other processes read while it changes; all else is private. */
#ifndef CRL_HOT_H
#define CRL_HOT_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

#include "os/readers.h"

enum {
  CRL_HOT_KEYS = 64,
  CRL_HOT_NAME = 63, /* bytes of a key that are kept */
  CRL_HOT_EVERY = 64,
  CRL_HOT_HALF_MS = 10000,
  /* A key is not hot with fewer gets than this, however large its share. */
  CRL_HOT_LEAST = 8 * CRL_HOT_EVERY
};

/* A key as it is told. */
typedef struct crl_hot_name {
  uint64_t sum; /* of the stored key: the same in all processes */
  uint32_t key_len;
  uint8_t key[CRL_HOT_NAME]; /* the first bytes of the user's key */
} crl_hot_name;

enum { CRL_HOT_WORDS = (sizeof(crl_hot_name) + 7) / 8 };

/* Zero at first. Whoever reads it from its first word to its last one has what it was at one
 * moment, if `ended` and `begun` are the same then. */
typedef struct crl_hot_table {
  _Atomic uint64_t ended;  /* changes, and `begun` behind all that they change */
  _Atomic uint64_t halved; /* up to when it was halved; crl_env_now_ms of the host. 0: never */
  _Atomic uint64_t total;  /* gets: the sum of the counts */
  _Atomic uint64_t counts[CRL_HOT_KEYS]; /* 0: the counter is free */
  _Atomic uint64_t errors[CRL_HOT_KEYS];
  _Atomic uint64_t hashes[CRL_HOT_KEYS]; /* of the stored keys, in the process that counts */
  _Atomic uint64_t names[CRL_HOT_KEYS][CRL_HOT_WORDS];
  _Atomic uint64_t begun;
} crl_hot_table;

/* A key that is counted. */
typedef struct crl_hot_get {
  uint64_t hash; /* crl_key_hash */
  const void *stored, *key;
  size_t stored_len, key_len;
} crl_hot_get;

/* ---- the table: pure, the caller locks ------------------------------------------------------- */

/* Counts `weight` gets; the index of the key's counter. */
size_t crl_hot_count(crl_hot_table *table, const crl_hot_get *asked, uint64_t weight);
/* Halves all counts as often as it is due. `now`: crl_env_now_ms; what was halved in the future, by
 * the clock before a restart of the host, counts no more. */
void crl_hot_settle(crl_hot_table *table, int64_t now);
/* Adds the counts of another table, by the keys' sums and names; both were settled. What is left
 * has the same bounds, of the gets of both. Source: Agarwal, Cormode, Huang, Phillips, Wei, Yi,
 * "Mergeable Summaries", PODS 2012. */
void crl_hot_merge(crl_hot_table *sum, const crl_hot_table *more);
/* The indexes of the counters in use, the largest count first; their number. */
size_t crl_hot_order(const crl_hot_table *table, uint8_t ret[CRL_HOT_KEYS]);
/* The key of a counter in use. */
crl_hot_name crl_hot_name_of(const crl_hot_table *table, size_t i);
/* Reads the bytes of a table, which may have been written by anybody, into one that keeps to the
 * bounds. 0: it was being changed. */
int crl_hot_take(crl_hot_table *ret, const void *bytes);

/* ---- a corral's hot keys --------------------------------------------------------------------- */

/* A hot key; `hash` 0: none. `turn`: when the next caller may do what one does for all. */
typedef struct crl_hot_mark {
  _Atomic uint64_t hash;
  _Atomic int64_t turn;
} crl_hot_mark;

/* Zero but for its table and threshold. */
typedef struct crl_hot {
  crl_hot_table *_Atomic table; /* NULL: nothing is counted */
  int64_t percent;              /* of the gets, from which on a key is hot; 0 or less: none is */
  _Atomic int locked;
  _Atomic uint32_t marked; /* hot keys; they stand at the beginning */
  crl_hot_mark marks[CRL_HOT_KEYS];
} crl_hot;

/* 0: crl_hot_draw tells whether the call is counted. */
static inline int crl_hot_passes(void) {
  crl_reader *r = crl_reader_mine;
  return r != NULL && --r->distance > 0;
}
/* True once in CRL_HOT_EVERY calls of a thread, at random. */
int crl_hot_draw(void);

/* Counts a get for CRL_HOT_EVERY of them, unless another thread counts one just now. */
void crl_hot_add(crl_hot *hot, const crl_hot_get *asked, int64_t now);

static inline int crl_hot_any(const crl_hot *hot) {
  return atomic_load_explicit(&((crl_hot *)(uintptr_t)hot)->marked, memory_order_relaxed) > 0;
}
/* True for a hot key, by its hash. A key may be missed while another one's mark is removed. */
int crl_hot_has(const crl_hot *hot, uint64_t hash);
/* True for a hot key whose turn is due: once in `pause` ms. */
int crl_hot_turn(crl_hot *hot, uint64_t hash, int64_t now, int64_t pause);

#endif
