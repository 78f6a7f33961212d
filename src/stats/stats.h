/* stats.h: in what a corral counts and measures: the block, which is memory of this process alone
 * until the first use of the corral, and from then on the mapping of its stats file, if it has one
 * (file.h). The block's address stays.
 *
 * A thread with a reader's number (os/readers.h) below CRL_STATS_SHARDS counts by a plain addition
 * in a shard of its own; others add atomically in a common one. Any thread. */
#ifndef CRL_STATS_H
#define CRL_STATS_H

#include "os/env.h"
#include "os/readers.h"
#include "stats/layout.h"

struct crl_stats_file;

/* All zero: nothing is counted. */
typedef struct crl_stats {
  crl_stats_block *block;
  crl_histogram *times; /* of the block, where there is a stats file: else nothing is timed */
  crl_stats_block *_Atomic base; /* what the file had already; NULL: nothing */
  struct crl_stats_file *file;
} crl_stats;

/* Makes the block. CORRAL_ENOMEM. */
int crl_stats_open(crl_stats *stats);
/* The counts end; crl_stats_file_close comes before. */
void crl_stats_close(crl_stats *stats);

/* ---- counting ------------------------------------------------------------------------------ */

void crl_stats_count_slow(const crl_stats *stats, size_t counter, uint64_t n);

/* The counters of this thread alone; NULL: it has none yet. */
static inline _Atomic uint64_t *crl_stats_own(const crl_stats *stats) {
  const crl_reader *r = crl_reader_mine;
  if (r == NULL || r->number >= CRL_STATS_SHARDS || stats->block == NULL) return NULL;
  return stats->block->shards[r->number].counters;
}

static inline void crl_stats_raise(_Atomic uint64_t *own, uint64_t n) {
  atomic_store_explicit(own, atomic_load_explicit(own, memory_order_relaxed) + n,
                        memory_order_relaxed);
}

static inline void crl_stats_count(const crl_stats *stats, size_t counter, uint64_t n) {
  _Atomic uint64_t *own = crl_stats_own(stats);
  if (own != NULL)
    crl_stats_raise(&own[counter], n);
  else
    crl_stats_count_slow(stats, counter, n);
}

/* Raises a counter by one, and adds the origin's time that was saved. */
static inline void crl_stats_count_saving(const crl_stats *stats, size_t counter,
                                          uint64_t saved_us) {
  _Atomic uint64_t *own = crl_stats_own(stats);
  if (own == NULL) {
    crl_stats_count_slow(stats, counter, 1);
    crl_stats_count_slow(stats, CRL_COUNTER_SAVED, saved_us);
    return;
  }
  crl_stats_raise(&own[counter], 1);
  crl_stats_raise(&own[CRL_COUNTER_SAVED], saved_us);
}

/* Counts how a call ended, but for CORRAL_RESULT_NEAR, which its event counts. */
static inline void crl_stats_result(const crl_stats *stats, corral_result result,
                                    uint64_t saved_us) {
  crl_stats_count_saving(stats, CRL_COUNTER_RESULT + (size_t)result, saved_us);
}

/* ---- times --------------------------------------------------------------------------------- */

/* Adds to a distribution, whether times are measured or not. */
void crl_stats_add_time(const crl_stats *stats, corral_time time, int64_t us);

/* The begin of what is to be measured; 0: nothing is. */
static inline int64_t crl_stats_clock(const crl_stats *stats) {
  return stats->times == NULL ? 0 : crl_env_now_us();
}

/* Its end. `began`: of crl_stats_clock. */
static inline void crl_stats_took(const crl_stats *stats, corral_time time, int64_t began) {
  if (began != 0 && stats->times != NULL)
    crl_histogram_add(&stats->times[time], crl_env_now_us() - began);
}

/* ---- gauges, parts ------------------------------------------------------------------------- */

static inline void crl_stats_move_gauge(const crl_stats *stats, corral_gauge gauge, int64_t by) {
  if (stats->block == NULL) return;
  atomic_fetch_add_explicit(&stats->block->gauges[gauge], by, memory_order_relaxed);
}

static inline void crl_stats_set_gauge(const crl_stats *stats, corral_gauge gauge, int64_t to) {
  if (stats->block == NULL) return;
  atomic_store_explicit(&stats->block->gauges[gauge], to, memory_order_relaxed);
}

/* The gauge itself; NULL: nothing is counted. It stays where it is. */
static inline _Atomic int64_t *crl_stats_gauge(const crl_stats *stats, corral_gauge gauge) {
  return stats->block == NULL ? NULL : &stats->block->gauges[gauge];
}

/* A part of the block, aligned to a line, and its size; NULL: nothing is counted. Its bytes are
 * zero at the first use of the corral, but for the ring's. What is written there is read by other
 * processes, and word by word by atomic loads of this one. */
void *crl_stats_part(const crl_stats *stats, crl_part_id part, size_t *ret_size);

/* ---- reading ------------------------------------------------------------------------------- */

/* Since the corral was opened. */
uint64_t crl_stats_counted(const crl_stats *stats, size_t counter);
void crl_stats_times(const crl_stats *stats, corral_time time, corral_histogram *ret);

#endif
