/* limiter.h: places to run computes in one process: at most so many computes at once, and at most
 * so many of them on threads of the library. Whoever waits for a place is woken, by rank, then in
 * the order of arrival: threads, calls of several keys and calls of event loops in one queue. With
 * a ramp (ramp.h) the limit of computes is learned, and under a queue that stands the newest goes
 * first. */
#ifndef CRL_LIMITER_H
#define CRL_LIMITER_H

#include <stddef.h>
#include <stdint.h>

#include "os/wait.h"
#include "policy/policy.h"

typedef struct crl_limiter crl_limiter;

typedef enum crl_place_state {
  CRL_PLACE_NONE = 0,
  CRL_PLACE_QUEUED,
  CRL_PLACE_TAKEN,
  CRL_PLACE_BORROWED /* of a compute that waits for this one: not counted */
} crl_place_state;

/* The parts of a place. */
enum {
  CRL_PLACE_COMPUTE = 1, /* one of the computes at once */
  CRL_PLACE_THREAD = 2,  /* one of the threads of the library */
  CRL_PLACE_KINDS = 4
};

/* One place, taken or waited for, in its owner's memory; zero before its first use. */
typedef struct crl_place {
  struct crl_place *next, **link;
  crl_waiter *waiter;
  uint64_t arrival;
  crl_rank rank;
  unsigned needs;
  _Atomic int state;
} crl_place;

/* `most`: computes at once; `threads`: of the library. 0 or less: no limit. `ramps`: fewer than
 * `most`, as ramp.h has it. NULL without memory. */
crl_limiter *crl_limiter_new(int64_t most, int64_t threads, int ramps);
/* No place may be taken or waited for. */
void crl_limiter_free(crl_limiter *limiter);
/* True when something of `needs` is limited. */
int crl_limiter_limits(const crl_limiter *limiter, unsigned needs);
/* From now on there are `most` computes at once (0: as many as when it was made); those under way
 * go on. Any thread. */
void crl_limiter_cap(crl_limiter *limiter, int64_t most);
/* Asks for a place: 1: taken. 0: queued; `waiter` is woken, under the limiter's mutex, when it is
 * taken; it stays until the place was left, since the place shows that before the wake. No caller
 * overtakes one of the same or a more urgent rank that wants the same. */
int crl_limiter_ask(crl_limiter *limiter, crl_place *place, crl_rank rank, unsigned needs,
                    crl_waiter *waiter);
/* Changes the needs of a place that is waited for; its turn stays. */
void crl_limiter_change(crl_limiter *limiter, crl_place *place, unsigned needs);
/* Tells of a compute that has ended (crl_env_now_us), for the ramp. */
void crl_limiter_ended(crl_limiter *limiter, int64_t began_us, int64_t ended_us, int failed);
/* Takes a place without counting it. */
void crl_limiter_borrow(crl_limiter *limiter, crl_place *place);
/* True when the place is taken or borrowed. */
int crl_limiter_has(const crl_place *place);
/* Gives the place back, or leaves the queue. When this returns no wake is under way, and none will
 * come. */
void crl_limiter_leave(crl_limiter *limiter, crl_place *place);
/* Leaves the queue: 1. 0: the place isn't waited for. */
int crl_limiter_withdraw(crl_limiter *limiter, crl_place *place);
/* For tests. */
size_t crl_limiter_inside(crl_limiter *limiter);
size_t crl_limiter_waiting(crl_limiter *limiter, crl_rank rank);

#endif
