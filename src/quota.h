/* quota.h: at most so many in any span of time. Counted in two spans, this one and the one before,
 * so it may refuse a little early, never late. */
#ifndef CRL_QUOTA_H
#define CRL_QUOTA_H

#include <pthread.h>
#include <stdint.h>

typedef struct crl_quota {
  pthread_mutex_t mutex;
  int64_t most;      /* less than 0: no limit */
  int64_t span;      /* the longest that was asked for */
  int64_t began;     /* this span */
  int64_t now, last; /* how many in this one, in the one before */
} crl_quota;

void crl_quota_init(crl_quota *quota, int64_t most);
void crl_quota_clean(crl_quota *quota);
/* One more within the last `span` ms; 0 when that could be one too many. */
int crl_quota_take(crl_quota *quota, int64_t span, int64_t now);

#endif
