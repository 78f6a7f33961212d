/* renewer.h: extends the leases of running computes and users' locks, and ends those that take too
 * long.
 *
 * All extends that are due go as one batch. No callback of the user is called meanwhile: it might
 * be slow, and might release what is being extended. */
#ifndef CRL_RENEWER_H
#define CRL_RENEWER_H

#include "base/heap.h"
#include "os/task.h"
#include "store/pool.h"

typedef struct crl_renewer crl_renewer;

/* The lease of one running compute, or a user's lock; in its owner's memory between hold and
 * drop. */
typedef struct crl_renewed_lease {
  const void *key; /* as the store has it */
  size_t key_len;
  const void *user_key; /* for events */
  size_t user_key_len;
  const uint8_t *token;  /* NULL: no lease, only the limit */
  int64_t lease_ms;      /* what the lease was last taken for */
  int64_t lease_most_ms; /* each extension doubles the length, up to this; 0: it stays as it is */
  int64_t limit;         /* crl_env_now_ms: end of the compute's time, or of the lock */
  /* Each is called once at most, on a thread of the library: on_lost when the lease isn't this
   * token's any more, on_limit when the limit has come. crl_renewer_drop waits until they have
   * returned. */
  void (*on_lost)(struct crl_renewed_lease *lease);
  void (*on_limit)(struct crl_renewed_lease *lease);
  /* A user's lock: extended by LOCK_EXTEND. `confirms`: that doesn't lengthen it, but tells how
   * long it lasts at least (CORRAL_OP_MORE). */
  int is_lock, confirms;
  /* A lease: the next tick of `ticks` is noted before each extension is sent; NULL: none. */
  _Atomic uint64_t *ticks;
  uint64_t tick;
  uint64_t fence;
  /* May be NULL. Called after an extension by a request sent at `sent` (crl_env_boot_ms); it may
   * move the limit, and set the token to NULL. */
  void (*on_extended)(struct crl_renewed_lease *lease, const corral_op *op, int64_t sent);
  int64_t other_ms; /* a lock, for on_lost: left_ms of the reply that told the loss */
  /* A lock: on_warn is called, on a thread of the library, when less than warn_ms is left of one
   * that isn't extended, or whose extensions fail; again after each extension. 0: never. */
  int64_t warn_ms;
  void (*on_warn)(struct crl_renewed_lease *lease);
  /* the renewer's own */
  int64_t next_at;
  crl_heap_node due, end;
  int busy, over;
  int fails;  /* the last extension had no success */
  int warned; /* since the last extension */
} crl_renewed_lease;

/* Starts no thread. NULL without memory. */
crl_renewer *crl_renewer_new(crl_pool *pool, crl_events *events, const crl_threads *threads);
/* No lease may be held. */
void crl_renewer_free(crl_renewer *renewer);
/* Extends the lease a third of its length after it was last taken, the first time at `since` (when
 * its claim was sent). If no thread can be started the lease isn't extended. */
void crl_renewer_hold(crl_renewer *renewer, crl_renewed_lease *lease, int64_t since);
/* Sets the new limit of a held lease. */
void crl_renewer_move(crl_renewer *renewer, crl_renewed_lease *lease, int64_t limit);
/* From now on warn_ms of a held lock is this. */
void crl_renewer_warn(crl_renewer *renewer, crl_renewed_lease *lease, int64_t warn_ms);
/* From now on extends a lock that was not extended yet, or extends it to more; or `confirms` it, if
 * it isn't extended anyway. */
void crl_renewer_keep(crl_renewer *renewer, crl_renewed_lease *lease, const uint8_t *token,
                      int64_t lease_ms, int confirms);
/* Called when the compute has ended and its record is on its way to the store: the lease has no
 * limit any more, and its length doubles beyond lease_most_ms. A store that guards a fill by the
 * record's version restarts the fill after an extension; doubling makes one long enough in the
 * end. */
void crl_renewer_outlast(crl_renewer *renewer, crl_renewed_lease *lease);
/* When this returns no extend is under way, and none will come. */
void crl_renewer_drop(crl_renewer *renewer, crl_renewed_lease *lease);

#endif
