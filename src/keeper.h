/* keeper.h: one thread that keeps the leases of running computes, and users' locks, alive, and ends
 * those that take too long.
 *
 * A thread of its own, since workers are busy with the very computes whose leases must not lapse.
 * All extends that are due go as one batch. No callback of the user is called there: it might be
 * slow, and may release what is being extended. */
#ifndef CRL_KEEPER_H
#define CRL_KEEPER_H

#include "pool.h"

typedef struct crl_keeper crl_keeper;

/* One running compute; in its owner's memory between hold and drop. */
typedef struct crl_kept_lease {
  struct crl_kept_lease *next, **link;
  const void *key; /* as the store has it */
  size_t key_len;
  const void *user_key; /* for events */
  size_t user_key_len;
  const uint8_t *token; /* NULL: no lease, only the limit */
  int64_t lease_ms;
  int64_t limit; /* crl_env_now_ms: when the compute has taken too long */
  /* Called once at most, on the keeper's thread: the lease isn't this token's any more / the limit
   * came. Until they return, crl_keeper_drop waits. */
  void (*on_lost)(struct crl_kept_lease *lease);
  void (*on_limit)(struct crl_kept_lease *lease);
  /* A user's lock: kept by LOCK_EXTEND. It may move the limit, and set the token to NULL, when it
   * was extended by a request sent at `sent` (crl_env_boot_ms); may be NULL. */
  int is_lock;
  uint64_t fence;
  void (*on_extended)(struct crl_kept_lease *lease, const corral_op *op, int64_t sent);
  int64_t other_ms; /* for on_lost: until_ms of what said so */
  int64_t next_at;  /* the keeper's own */
  int busy, over, doubles;
} crl_kept_lease;

/* Starts no thread. NULL without memory. */
crl_keeper *crl_keeper_new(crl_pool *pool, crl_events *events);
/* Nothing may be held. */
void crl_keeper_free(crl_keeper *keeper);
/* Extends the lease every third of it, the first time a third after `since` (when its claim was
 * sent). Without a thread to be had the lease simply isn't extended. */
void crl_keeper_hold(crl_keeper *keeper, crl_kept_lease *lease, int64_t since);
/* A held lease's new limit. */
void crl_keeper_move(crl_keeper *keeper, crl_kept_lease *lease, int64_t limit);
/* The compute has ended and its record is on its way to the store: the lease has no limit any more,
 * and each extension is twice as long as the one before. Where a fill is guarded by a version of
 * the record, an extension makes it begin anew: so at last one is long enough. */
void crl_keeper_outlast(crl_keeper *keeper, crl_kept_lease *lease);
/* No extend is under way when this returns, and none will come. */
void crl_keeper_drop(crl_keeper *keeper, crl_kept_lease *lease);

#endif
