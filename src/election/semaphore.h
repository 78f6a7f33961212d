/* semaphore.h: limits the computes that burden one origin: so many at once in this process, and so
 * many in the whole fleet.
 *
 * The fleet's slots are keys of the store (key.h), made of a number and the origin's name. Each is
 * held under a lease that the renewer extends while the compute runs, so a slot ends with its
 * holder. While the store is away only the limit of the process applies. */
#ifndef CRL_SEMAPHORE_H
#define CRL_SEMAPHORE_H

#include "election/limiter.h"
#include "store/renewer.h"
#include "record/key.h"

typedef struct crl_semaphore crl_semaphore;

typedef struct crl_semaphore_options {
  crl_pool *pool;
  crl_renewer *renewer;
  const char *name;         /* copied */
  int64_t most, fleet_most; /* 0 or less: no limit */
  int64_t lease_ms, op_ms;
  int64_t poll_ms, poll_max_ms; /* pauses between looks for a slot of the fleet */
} crl_semaphore_options;

/* One slot, in its owner's memory while it is held. */
typedef struct crl_slot {
  crl_renewed_lease lease;
  uint8_t token[CORRAL_TOKEN];
  crl_key key;
  int fleet; /* a slot of the fleet is held, too */
} crl_slot;

/* NULL without memory. */
crl_semaphore *crl_semaphore_new(const crl_semaphore_options *options);
/* No slot may be held. */
void crl_semaphore_free(crl_semaphore *semaphore);
/* True when there is a limit. */
int crl_semaphore_limits(const crl_semaphore *semaphore);
/* CORRAL_OK: *slot is held, to be given to crl_semaphore_leave. CORRAL_EBUSY: no slot was free
 * until `until` (crl_env_now_ms; a past one means a single try), or `cancel token` (may be NULL)
 * was cancelled. *waited: 1 when all slots were taken at first. Blocks; any thread. */
int crl_semaphore_enter(crl_semaphore *semaphore, crl_rank rank, int64_t until,
                        corral_cancel_token *cancel_token, crl_slot *slot, int *waited);
void crl_semaphore_leave(crl_semaphore *semaphore, crl_slot *slot);

#endif
