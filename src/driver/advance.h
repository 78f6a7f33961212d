/* advance.h: drives one run as far as it goes without waiting: the one place that performs what a
 * flight asks, and the one place that calls a compute. Three schedulers carry what is left: block.c
 * one run on its caller's thread, many.c several runs of one call, async.c runs without a thread.
 * Makes no decisions. */
#ifndef CRL_ADVANCE_H
#define CRL_ADVANCE_H

#include "run/run.h"

/* The condition on which a run goes on. */
typedef enum crl_need {
  CRL_NEED_STORE = 1, /* the ask is GET, CLAIM, SETTLE or RELEASE: see batch.h */
  CRL_NEED_WAKE,      /* a wake of r->waiter, or the moment *until */
  CRL_NEED_HOST,      /* the host lock is free, or a wake, or the moment *until */
  CRL_NEED_COMPUTE,   /* its compute is due: crl_advance_compute */
  CRL_NEED_ELSEWHERE, /* its compute is due on a thread of the library, or its caller was answered:
                         crl_block_hand_over */
  CRL_NEED_NOTHING    /* the flight has ended */
} crl_need;

/* Performs the outstanding asks until something is needed. `woken`: what the run waited for has
 * come. */
crl_need crl_advance(crl_run *r, int woken, int64_t *until);
/* Calls the compute of runs that ask for COMPUTE, on this thread, and steps them. All leases are
 * kept until all fills are finished. `fills`: room for `count`. */
void crl_advance_compute(crl_run *const *runs, corral_fill **fills, size_t count);
/* Takes the result of a compute that `start` began and that ended at `ended_us`, and steps the
 * run. */
void crl_advance_computed(crl_run *r, int64_t ended_us);

#endif
