/* pool_options.h: the store behind a pool and its servers, and their limits; and what a pool says
 * of an operation besides its status. */
#ifndef CRL_POOL_OPTIONS_H
#define CRL_POOL_OPTIONS_H

#include <corral/plugin.h>

#include "stats/event.h"
#include "os/task.h"

struct crl_pool;

/* A flag of an operation that failed because its time ran out while its server is not known to be
 * away: the server is slow. Plugins don't see it. */
#define CRL_OP_SLOW (UINT32_C(1) << 31)
/* A flag of an operation whose handle broke before its answer. An operation in doubt without this
 * flag was performed by the server, but not confirmed by its replicas. */
#define CRL_OP_UNANSWERED (UINT32_C(1) << 30)

/* True when the server may not have heard of an operation that failed. */
static inline int crl_op_is_unheard(const corral_op *op) {
  return op->status == CORRAL_EUNAVAILABLE ||
         (op->status == CORRAL_EINDOUBT && (op->flags & CRL_OP_UNANSWERED) != 0);
}

/* A handle that nobody has used between two sweeps is closed, so within twice this time: before
 * balancers and firewalls, which allow a silence of 4 minutes and more, forget it. */
enum { CRL_SWEEP_MS = 60000 };

typedef enum crl_turn {
  CRL_TURN_ASK,  /* the store is to be asked now */
  CRL_TURN_HAVE, /* another process has just asked, and this is its map */
  CRL_TURN_LATER /* another one is asking, has learnt nothing, or has a map that is too old */
} crl_turn;

/* The things that the processes of a host share of a store whose servers come and go. */
typedef struct crl_sharing {
  void *arg;
  /* a map that was asked for `age_ms` ago, or earlier, is too old */
  crl_turn (*take)(void *arg, int64_t age_ms, void *room, size_t size, size_t *len);
  /* tells the others the map that was learnt by CRL_TURN_ASK */
  void (*tell)(void *arg, const void *map, size_t len);
} crl_sharing;

typedef struct crl_pool_options {
  const corral_store *plugin;
  void *store; /* of plugin->open; closed by crl_pool_free */
  corral_store_info info;
  int64_t handles, op_ms, breaker_failures, breaker_rest_ms, away_ms;
  const char *probe_key; /* the key of a probe's GET; outlives the pool */
  crl_events *events;
  const crl_threads *threads; /* for probes; NULL: callers probe */
  crl_task *sweeper; /* the pool's: due CRL_SWEEP_MS after a handle is opened. NULL: none */
  /* Called on the probing thread when a resting or silent server answers again, before callers may
   * look there; returns 0 when the server failed once more. May be NULL. Not called for stores
   * whose handle all threads share. */
  int (*on_return)(void *arg, struct crl_pool *pool, size_t server);
  void *return_arg;
  /* Called on a thread of the library after keys have moved to other servers: crl_pool_doubt names
   * those that didn't hear something. May be NULL. */
  void (*on_moved)(void *arg, struct crl_pool *pool);
} crl_pool_options;

#endif
