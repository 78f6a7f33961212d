/* quota.c: at most so many events in any span of time. */
#include "election/quota.h"

#include "base/check.h"

void crl_quota_init(crl_quota *quota, int64_t most) {
  pthread_mutex_init(&quota->mutex, NULL);
  quota->most = most;
  quota->span = quota->began = quota->now = quota->last = 0;
}

void crl_quota_clean(crl_quota *quota) { pthread_mutex_destroy(&quota->mutex); }

#ifdef CORRAL_CHECKS
static void check(const crl_quota *quota) {
  CRL_MUST(quota->now >= 0 && quota->last >= 0 && quota->now + quota->last <= quota->most,
           "quota: no more events in two spans than `most`");
}
#endif

static void lock(crl_quota *quota) {
  pthread_mutex_lock(&quota->mutex);
  CRL_CHECK(quota);
}

static void unlock(crl_quota *quota) {
  CRL_CHECK(quota);
  pthread_mutex_unlock(&quota->mutex);
}

static void turn(crl_quota *quota, int64_t span, int64_t now) {
  if (span > quota->span) quota->span = span;
  if (now < quota->began + quota->span) return;
  quota->last = now < quota->began + 2 * quota->span ? quota->now : 0;
  quota->now = 0;
  quota->began = now;
}

int crl_quota_take(crl_quota *quota, int64_t span, int64_t now) {
  if (quota->most < 0) return 1;
  lock(quota);
  turn(quota, span, now);
  int fits = quota->now + quota->last < quota->most;
  quota->now += fits;
  unlock(quota);
  return fits;
}
