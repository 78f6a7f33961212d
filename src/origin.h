/* origin.h: protection of what computes burden: at most so many at once in this process, and
 * everywhere.
 *
 * The fleet's slots are keys of the store (key.h), by number and name, each held under a lease like
 * any other, extended by the keeper while its compute runs: a slot ends with its holder. While the
 * store is away only the process's own limit holds. */
#ifndef CRL_ORIGIN_H
#define CRL_ORIGIN_H

#include "gate.h"
#include "keeper.h"
#include "key.h"

typedef struct crl_origin crl_origin;

typedef struct crl_origin_options {
  crl_pool *pool;
  crl_keeper *keeper;
  const char *name;         /* copied */
  int64_t most, fleet_most; /* 0 or less: no limit */
  int64_t lease_ms, op_ms;
  int64_t poll_ms, poll_max_ms; /* pauses between looks for a slot of the fleet */
} crl_origin_options;

/* One slot, in its owner's memory while it is held. */
typedef struct crl_slot {
  crl_kept_lease lease;
  uint8_t token[CORRAL_TOKEN];
  crl_key key;
  int fleet; /* a slot of the fleet is held too */
} crl_slot;

/* NULL without memory. */
crl_origin *crl_origin_new(const crl_origin_options *options);
/* No slot may be held. */
void crl_origin_free(crl_origin *origin);
/* True when there is a limit. */
int crl_origin_limits(const crl_origin *origin);
/* CORRAL_OK: *slot is held, to be given to crl_origin_leave. CORRAL_EBUSY: none was free until
 * `until` (crl_env_now_ms); one that has passed means: only try. *waited tells whether it was full
 * at first. EBUSY also when `ticket` (may be NULL) is cancelled. Blocks; any thread. */
int crl_origin_enter(crl_origin *origin, crl_rank rank, int64_t until, corral_ticket *ticket,
                     crl_slot *slot, int *waited);
void crl_origin_leave(crl_origin *origin, crl_slot *slot);

#endif
