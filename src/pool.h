/* pool.h: the handles of one store: combines callers' operations into batches, closes broken handles, rests a failing store.
 *
 * No thread of its own: a caller takes a free handle and sends all that is queued, its own first; else it queues. Who is done hands
 * the handle to the head of the queue. The more callers wait, the larger the batches; one caller alone pays nothing. */
#ifndef CRL_POOL_H
#define CRL_POOL_H

#include <corral/plugin.h>

#include "event.h"

typedef struct crl_pool crl_pool;

typedef struct crl_pool_options {
  const corral_store *plugin;
  void *store;                 /* of plugin->open; closed by crl_pool_free */
  corral_store_info info;
  int64_t handles, op_ms, breaker_failures, breaker_rest_ms;
  crl_events *events;
} crl_pool_options;

/* No I/O. NULL without memory; then the store is still the caller's. */
crl_pool *crl_pool_new(const crl_pool_options *options);
/* No operation may be under way. */
void crl_pool_free(crl_pool *pool);
/* Performs `count` operations in order, each by op_ms and by `deadline` (crl_env_now_ms) at the latest, and sets the result of each;
 * op->status is never left unset. Blocks. Any thread. */
void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline);
const corral_store_info *crl_pool_info(const crl_pool *pool);

#endif
