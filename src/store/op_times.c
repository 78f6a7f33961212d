/* op_times.c: how long operations of a store last. */
#include "store/op_times.h"

static const uint8_t times[] = {[CORRAL_VERB_GET] = CORRAL_TIME_GET,
                                [CORRAL_VERB_CLAIM] = CORRAL_TIME_CLAIM,
                                [CORRAL_VERB_SETTLE] = CORRAL_TIME_SETTLE,
                                [CORRAL_VERB_RENEW] = CORRAL_TIME_SETTLE,
                                [CORRAL_VERB_RELEASE] = CORRAL_TIME_SETTLE,
                                [CORRAL_VERB_EXTEND] = CORRAL_TIME_EXTEND,
                                [CORRAL_VERB_INVALIDATE] = CORRAL_TIME_INVALIDATE,
                                [CORRAL_VERB_EXPIRE] = CORRAL_TIME_INVALIDATE,
                                [CORRAL_VERB_LOCK] = CORRAL_TIME_LOCK,
                                [CORRAL_VERB_LOCK_EXTEND] = CORRAL_TIME_LOCK,
                                [CORRAL_VERB_UNLOCK] = CORRAL_TIME_LOCK,
                                [CORRAL_VERB_LOCK_SHOW] = CORRAL_TIME_LOCK};

void crl_op_took_all(const crl_pool_options *options, const corral_op *ops, size_t count,
                     int64_t began_us) {
  int64_t took_us = crl_env_now_us() - began_us;
  for (size_t i = 0; i < count; i++)
    crl_stats_add_time(&options->events->stats, (corral_time)times[ops[i].verb], took_us);
}

void crl_op_looked(const crl_pool_options *options, size_t count, int64_t began_us) {
  if (!crl_op_is_timed(options)) return;
  crl_histogram *looks = &options->events->stats.times[CORRAL_TIME_GET];
  int64_t took_us = crl_env_now_us() - began_us;
  for (size_t i = 0; i < count; i++) crl_histogram_add(looks, took_us);
}
