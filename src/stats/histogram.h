/* histogram.h: distributions of times, with buckets that grow by a sixteenth, so that a quantile is
 * right to 6 %. No clock. Any thread, without a mutex. What is public of them, and the buckets, is
 * in corral/stats.h. */
#ifndef CRL_HISTOGRAM_H
#define CRL_HISTOGRAM_H

#include <corral/stats.h>
#include <stdatomic.h>

/* Zero before its first use. */
typedef struct crl_histogram {
  _Atomic uint64_t sum_us, max_us;
  _Atomic uint64_t buckets[CORRAL_HISTOGRAM_BUCKETS];
} crl_histogram;

void crl_histogram_add(crl_histogram *histogram, int64_t us);
/* All that was added until now; what is added meanwhile counts, or doesn't. */
void crl_histogram_read(const crl_histogram *histogram, corral_histogram *ret);

#endif
