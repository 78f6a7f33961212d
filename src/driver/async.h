/* async.h: the asynchronous scheduler: drives runs that have no thread of their own.
 *
 * Runs that are ready are driven by a few jobs on the library's threads (couriers), which perform
 * the runs' store operations together. A run that waits is parked until its time comes or it is
 * woken. A compute has a thread of the library for itself, or none, if it ends later. */
#ifndef CRL_SCHEDULER_H
#define CRL_SCHEDULER_H

#include "run/run.h"

typedef struct crl_scheduler crl_scheduler;

/* Starts no thread. NULL without memory. */
crl_scheduler *crl_scheduler_new(crl_context *context);
/* From now on no run waits and no compute begins: flights that need either are given up. Returns
 * when only runs with a compute under way are left. */
void crl_scheduler_close(crl_scheduler *scheduler);
/* After crl_scheduler_close: waits for the remaining runs, whose computes go on to their end. */
void crl_scheduler_drain(crl_scheduler *scheduler);
/* After crl_scheduler_drain, and after the end of the library's threads. */
void crl_scheduler_free(crl_scheduler *scheduler);
/* Flies a run from its present state to its end, and frees it. `cancel_token`: the caller's, may
 * be NULL. CORRAL_OK; CORRAL_EIO (no thread to be had), CORRAL_ENOMEM: the run is still the
 * caller's. */
int crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *cancel_token);
/* Ends the compute of a run that its caller began or was to begin; `abandoned`: without a
 * result. */
void crl_scheduler_ended(crl_run *r, int abandoned);
/* Resumes a parked run; one that isn't parked yet won't be parked next time. */
void crl_scheduler_wake(crl_run *r);
/* Gives up the flight of a run whose compute is under way and won't be waited for. The run stays,
 * for its fill is in use: it is the caller's, to be given to crl_run_free. */
void crl_scheduler_orphan(crl_run *r);

#endif
