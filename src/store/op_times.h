/* op_times.h: how long operations of a store last that asks another process. */
#ifndef CRL_OP_TIMES_H
#define CRL_OP_TIMES_H

#include "store/pool_options.h"

static inline int crl_op_is_timed(const crl_pool_options *options) {
  return options->events != NULL && options->events->stats.times != NULL &&
         (options->info.reach == CORRAL_REACH_FLEET ||
          options->plugin->threads != CORRAL_THREADS_PARALLEL);
}

/* The begin of operations; 0: they aren't measured. */
static inline int64_t crl_op_clock(const crl_pool_options *options) {
  return crl_op_is_timed(options) ? crl_env_now_us() : 0;
}

/* All these have lasted from then until now: each is a time of its verb. */
void crl_op_took_all(const crl_pool_options *options, const corral_op *ops, size_t count,
                     int64_t began_us);
static inline void crl_op_took(const crl_pool_options *options, const corral_op *ops, size_t count,
                               int64_t began_us) {
  if (began_us != 0) crl_op_took_all(options, ops, count, began_us);
}
/* The same for looks, if they are measured. */
void crl_op_looked(const crl_pool_options *options, size_t count, int64_t began_us);

#endif
