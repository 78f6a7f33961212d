/* quota.h: at most so many events in any span of time. Counts two spans, the present one and the
 * one before, so it may refuse a little early, never late. */
#ifndef CRL_QUOTA_H
#define CRL_QUOTA_H

#include <pthread.h>
#include <stdint.h>

typedef struct crl_quota {
  pthread_mutex_t mutex;
  int64_t most;      /* negative: no limit */
  int64_t span;      /* ms; the longest one requested */
  int64_t began;     /* start of the present span */
  int64_t now, last; /* events in the present span, in the one before */
} crl_quota;

void crl_quota_init(crl_quota *quota, int64_t most);
void crl_quota_clean(crl_quota *quota);
/* Counts one more event within the last `span` ms; 0, without counting, when that could exceed
 * `most`. */
int crl_quota_take(crl_quota *quota, int64_t span, int64_t now);

#endif
