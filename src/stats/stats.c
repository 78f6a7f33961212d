/* stats.c: counting in a block, and reading what was counted. */
#include "stats/stats.h"

#include <stdlib.h>
#include <sys/mman.h>

#include "base/names.h"

/* ---- names --------------------------------------------------------------------------------- */

CRL_NAMES(result, corral_result, CORRAL_RESULT_MAP, CORRAL_RESULT_COUNT)
CRL_NAMES(time, corral_time, CORRAL_TIME_MAP, CORRAL_TIME_COUNT)
CRL_NAMES(gauge, corral_gauge, CORRAL_GAUGE_MAP, CORRAL_GAUGE_COUNT)

/* ---- the block ----------------------------------------------------------------------------- */

int crl_stats_open(crl_stats *stats) {
  void *block =
      mmap(NULL, sizeof *stats->block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (block == MAP_FAILED) return CORRAL_ENOMEM;
  crl_readers_begin();
  stats->block = block;
  return CORRAL_OK;
}

void crl_stats_close(crl_stats *stats) {
  if (stats->block != NULL) munmap(stats->block, sizeof *stats->block);
  stats->block = NULL;
  stats->times = NULL;
  free(atomic_load(&stats->base));
}

/* ---- counting ------------------------------------------------------------------------------ */

/* The first count of a thread gives it its number. */
void crl_stats_count_slow(const crl_stats *stats, size_t counter, uint64_t n) {
  if (stats->block == NULL) return;
  if (crl_reader_mine == NULL && crl_readers_enter()) crl_readers_leave();
  _Atomic uint64_t *own = crl_stats_own(stats);
  if (own != NULL)
    crl_stats_raise(&own[counter], n);
  else
    atomic_fetch_add_explicit(&stats->block->shards[CRL_STATS_SHARDS].counters[counter], n,
                              memory_order_relaxed);
}

void crl_stats_add_time(const crl_stats *stats, corral_time time, int64_t us) {
  if (stats->block != NULL) crl_histogram_add(&stats->block->times[time], us);
}

void *crl_stats_part(const crl_stats *stats, crl_part_id part, size_t *ret_size) {
  size_t at = crl_layout_part(part, ret_size);
  return stats->block == NULL ? NULL : (uint8_t *)stats->block + at;
}

/* ---- reading ------------------------------------------------------------------------------- */

static uint64_t sum_of(crl_stats_block *block, size_t counter) {
  uint64_t sum = 0;
  for (size_t i = 0; i <= CRL_STATS_SHARDS; i++)
    sum += atomic_load_explicit(&block->shards[i].counters[counter], memory_order_relaxed);
  return sum;
}

static uint64_t less(uint64_t all, uint64_t before) { return all > before ? all - before : 0; }

static crl_stats_block *base_of(const crl_stats *stats) {
  return atomic_load_explicit(&((crl_stats *)(uintptr_t)stats)->base, memory_order_acquire);
}

uint64_t crl_stats_counted(const crl_stats *stats, size_t counter) {
  if (stats->block == NULL) return 0;
  uint64_t all = sum_of(stats->block, counter);
  crl_stats_block *base = base_of(stats);
  return base == NULL ? all : less(all, sum_of(base, counter));
}

/* The longest time of earlier processes isn't this one's: then it is known to the bucket. */
static void take_away(corral_histogram *from, const corral_histogram *before) {
  size_t last = 0;
  from->count = 0;
  for (size_t i = 0; i < CORRAL_HISTOGRAM_BUCKETS; i++) {
    from->buckets[i] = less(from->buckets[i], before->buckets[i]);
    from->count += from->buckets[i];
    if (from->buckets[i] > 0) last = i;
  }
  from->sum_us = less(from->sum_us, before->sum_us);
  uint64_t bound = from->count == 0 ? 0 : corral_histogram_bound(last);
  if (from->max_us <= before->max_us && bound < from->max_us) from->max_us = bound;
}

void crl_stats_times(const crl_stats *stats, corral_time time, corral_histogram *ret) {
  *ret = (corral_histogram){.count = 0};
  if (stats->block == NULL) return;
  crl_histogram_read(&stats->block->times[time], ret);
  crl_stats_block *base = base_of(stats);
  if (base == NULL) return;
  corral_histogram before;
  crl_histogram_read(&base->times[time], &before);
  take_away(ret, &before);
}
