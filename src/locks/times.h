/* times.h: how long locks were waited for and held: histograms with buckets that grow by a
 * sixteenth, so that a quantile is right to 6 %. No clock. Any thread, without a mutex. */
#ifndef CRL_LOCK_TIMES_H
#define CRL_LOCK_TIMES_H

#include <corral/lock.h>
#include <stdatomic.h>

/* Up to CRL_TIMES_FINE us one bucket for each; then 16 for each power of two, up to 2^37 us, which
 * is a day and a half; what is longer is in the last one. */
enum { CRL_TIMES_FINE = 16, CRL_TIMES_BUCKETS = (37 - 4 + 1) * 16 };

/* Zero before its first use. */
typedef struct crl_times {
  _Atomic uint64_t buckets[CRL_TIMES_BUCKETS];
  _Atomic int64_t max_us;
} crl_times;

void crl_times_add(crl_times *times, int64_t us);
/* Quantiles of what was added until now; what is added meanwhile counts, or doesn't. */
corral_lock_times crl_times_read(const crl_times *times);

#endif
