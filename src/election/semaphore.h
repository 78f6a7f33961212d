/* semaphore.h: limits the computes that burden one origin: so many at once in this process
 * (limiter.h), and so many in the whole fleet.
 *
 * The fleet's slots are keys of the store (key.h), made of a number and the origin's name. Each is
 * held under a lease that the renewer extends while the compute runs, so a slot ends with its
 * holder. While the store is away only the limit of the process applies. Permits of one lock would
 * do the same with one key, for which all holders contend, and whose record is written whole, 128
 * bytes for each of them, whenever one comes, goes or extends. */
#ifndef CRL_SEMAPHORE_H
#define CRL_SEMAPHORE_H

#include "election/limiter.h"
#include "store/renewer.h"

typedef struct crl_semaphore crl_semaphore;

typedef struct crl_semaphore_options {
  crl_pool *pool;
  crl_renewer *renewer;
  const char *name;         /* copied */
  int64_t most, fleet_most; /* 0 or less: no limit */
  int64_t threads;          /* of computes on threads of the library */
  int ramps;                /* see ramp.h */
  int64_t lease_ms, op_ms;
  int64_t poll_ms, poll_max_ms; /* pauses between looks for a slot of the fleet */
} crl_semaphore_options;

/* One slot, in its owner's memory; crl_slot_init before its first use. Runs that compute together
 * share one. */
typedef struct crl_slot {
  crl_place place;
  size_t users;                 /* runs that have it */
  unsigned looks;               /* for a slot of the fleet, in vain */
  int64_t next_at;              /* of the next such look */
  struct crl_fleet_slot *fleet; /* NULL: none is held */
} crl_slot;

/* NULL without memory. */
crl_semaphore *crl_semaphore_new(const crl_semaphore_options *options);
/* No slot may be held. */
void crl_semaphore_free(crl_semaphore *semaphore);
/* True when a compute with these needs (limiter.h) needs a slot. */
int crl_semaphore_limits(const crl_semaphore *semaphore, unsigned needs);
/* The part that is in this process. */
crl_limiter *crl_semaphore_limiter(crl_semaphore *semaphore);
void crl_slot_init(crl_slot *slot);
/* Asks for the slot, by a caller who has none yet. CORRAL_OK: it has one now (users). CORRAL_EBUSY:
 * it is to ask again at *next, or when `waiter` is woken. May ask the store, if there is a limit of
 * the fleet. Any thread, one at a time for each slot. */
int crl_semaphore_ask(crl_semaphore *semaphore, crl_slot *slot, crl_rank rank, unsigned needs,
                      crl_waiter *waiter, int64_t *next);
/* Takes the slot of a compute that waits for this one: nothing is counted. */
void crl_semaphore_borrow(crl_semaphore *semaphore, crl_slot *slot);
/* One user less. The last one gives the slot back; without users it leaves the queue. */
void crl_semaphore_leave(crl_semaphore *semaphore, crl_slot *slot);

#endif
