/* pool.h: the way to a store: each of its servers has handles, a queue and a breaker of its own
 * (lane.h).
 *
 * A server that failed rests, and calls that need it are refused at once; a thread, started when
 * first needed, probes it, so that no caller pays for that. */
#ifndef CRL_POOL_H
#define CRL_POOL_H

#include <corral/plugin.h>

#include "event.h"

typedef struct crl_pool crl_pool;

typedef struct crl_pool_options {
  const corral_store *plugin;
  void *store; /* of plugin->open; closed by crl_pool_free */
  corral_store_info info;
  int64_t handles, op_ms, breaker_failures, breaker_rest_ms;
  const char *probe_key; /* what a resting server is asked for; outlives the pool */
  crl_events *events;
  /* A resting server answers again, on the probing thread, before callers are let to it; 0 when it
   * failed once more. May be NULL. Not called for stores whose handle all threads share. */
  int (*on_return)(void *arg, crl_pool *pool, size_t server);
  void *return_arg;
} crl_pool_options;

/* No I/O, no thread. NULL without memory; then the store is still the caller's. */
crl_pool *crl_pool_new(const crl_pool_options *options);
/* No operation may be under way. Waits for a probe. */
void crl_pool_free(crl_pool *pool);
/* Performs `count` operations, those of one server in order, each by op_ms (a body that moves:
 * pace.h) and by `deadline` (crl_env_now_ms) at the latest, and sets the result of each; op->status
 * is never left unset. Blocks. Any thread. */
void crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline);
/* Within on_return: performs on the server that is back. 0 when it failed. */
int crl_pool_perform_probe(crl_pool *pool, size_t server, corral_op *ops, size_t count);
/* The server of a key. */
size_t crl_pool_route(const crl_pool *pool, const void *key, size_t key_len);
const corral_store_info *crl_pool_info(const crl_pool *pool);

#endif
