/* histogram.c: distributions of times. */
#include "stats/histogram.h"

enum { FINE = 16, BUCKETS = CORRAL_HISTOGRAM_BUCKETS };

_Static_assert(BUCKETS == (37 - 4 + 1) * 16, "16 buckets for each doubling, up to 2^37 us");

/* ---- buckets ------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t us) {
  if (us < FINE) return (unsigned)us;
  unsigned shift = 59 - (unsigned)__builtin_clzll(us),
           bucket = 16 * shift + (unsigned)(us >> shift);
  return bucket < BUCKETS ? bucket : BUCKETS - 1;
}

uint64_t corral_histogram_bound(size_t bucket) {
  if (bucket < FINE) return bucket;
  if (bucket >= BUCKETS - 1) return UINT64_MAX;
  return ((bucket % 16 + 17) << (bucket / 16 - 1)) - 1;
}

void crl_histogram_add(crl_histogram *histogram, int64_t us) {
  uint64_t time = us < 0 ? 0 : (uint64_t)us,
           max = atomic_load_explicit(&histogram->max_us, memory_order_relaxed);
  atomic_fetch_add_explicit(&histogram->buckets[bucket_of(time)], 1, memory_order_relaxed);
  atomic_fetch_add_explicit(&histogram->sum_us, time, memory_order_relaxed);
  while (time > max &&
         !atomic_compare_exchange_weak_explicit(&histogram->max_us, &max, time,
                                                memory_order_relaxed, memory_order_relaxed)) {
  }
}

void crl_histogram_read(const crl_histogram *histogram, corral_histogram *ret) {
  crl_histogram *own = (crl_histogram *)(uintptr_t)histogram;
  ret->count = 0;
  for (size_t i = 0; i < BUCKETS; i++)
    ret->count += ret->buckets[i] = atomic_load_explicit(&own->buckets[i], memory_order_relaxed);
  ret->sum_us = atomic_load_explicit(&own->sum_us, memory_order_relaxed);
  ret->max_us = atomic_load_explicit(&own->max_us, memory_order_relaxed);
}

/* ---- public -------------------------------------------------------------------------------- */

/* A share of all as a number of times, rounded up; a share like 0.999 isn't exact. */
static uint64_t part_of(uint64_t count, double q) {
  double exact = q * (double)count;
  uint64_t part = exact >= (double)count ? count : exact > 0 ? (uint64_t)exact : 0;
  return part < count && exact - (double)part > exact * 1e-12 ? part + 1 : part;
}

uint64_t corral_histogram_quantile(const corral_histogram *histogram, double q) {
  uint64_t wanted = part_of(histogram->count, q), so_far = 0;
  if (histogram->count == 0) return 0;
  for (size_t i = 0; i < BUCKETS; i++) {
    uint64_t bound = corral_histogram_bound(i);
    so_far += histogram->buckets[i];
    if (so_far >= wanted && so_far > 0)
      return bound < histogram->max_us ? bound : histogram->max_us;
  }
  return histogram->max_us;
}

void corral_histogram_add(corral_histogram *sum, const corral_histogram *more) {
  sum->count += more->count;
  sum->sum_us += more->sum_us;
  if (more->max_us > sum->max_us) sum->max_us = more->max_us;
  for (size_t i = 0; i < BUCKETS; i++) sum->buckets[i] += more->buckets[i];
}
