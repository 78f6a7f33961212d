/* times.c: histograms of times. */
#include "locks/times.h"

/* ---- buckets ------------------------------------------------------------------------------- */

static unsigned bucket_of(uint64_t us) {
  if (us < CRL_TIMES_FINE) return (unsigned)us;
  unsigned shift = 59 - (unsigned)__builtin_clzll(us),
           bucket = 16 * shift + (unsigned)(us >> shift);
  return bucket < CRL_TIMES_BUCKETS ? bucket : CRL_TIMES_BUCKETS - 1;
}

/* The longest time of a bucket. */
static int64_t end_of(unsigned bucket) {
  if (bucket < CRL_TIMES_FINE) return bucket;
  return (((int64_t)(bucket % 16) + 17) << (bucket / 16 - 1)) - 1;
}

void crl_times_add(crl_times *times, int64_t us) {
  int64_t max = atomic_load_explicit(&times->max_us, memory_order_relaxed);
  if (us < 0) us = 0;
  atomic_fetch_add_explicit(&times->buckets[bucket_of((uint64_t)us)], 1, memory_order_relaxed);
  while (us > max && !atomic_compare_exchange_weak_explicit(
                         &times->max_us, &max, us, memory_order_relaxed, memory_order_relaxed)) {
  }
}

/* ---- quantiles ----------------------------------------------------------------------------- */

/* The time that `per_mille` of a thousand don't exceed. */
static int64_t quantile(const uint64_t counts[CRL_TIMES_BUCKETS], uint64_t count, int64_t max,
                        uint64_t per_mille) {
  uint64_t wanted = (count * per_mille + 999) / 1000, so_far = 0;
  for (unsigned i = 0; i < CRL_TIMES_BUCKETS && count > 0; i++) {
    so_far += counts[i];
    if (so_far >= wanted) return i + 1 < CRL_TIMES_BUCKETS && end_of(i) < max ? end_of(i) : max;
  }
  return max;
}

corral_lock_times crl_times_read(const crl_times *times) {
  crl_times *own = (crl_times *)(uintptr_t)times;
  uint64_t counts[CRL_TIMES_BUCKETS], count = 0;
  for (unsigned i = 0; i < CRL_TIMES_BUCKETS; i++)
    count += counts[i] = atomic_load_explicit(&own->buckets[i], memory_order_relaxed);
  int64_t max = atomic_load_explicit(&own->max_us, memory_order_relaxed);
  return (corral_lock_times){.count = count,
                             .p50_us = quantile(counts, count, max, 500),
                             .p90_us = quantile(counts, count, max, 900),
                             .p99_us = quantile(counts, count, max, 990),
                             .p999_us = quantile(counts, count, max, 999),
                             .max_us = max};
}
