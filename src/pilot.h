/* pilot.h: flies runs without a thread of their own.
 *
 * A few threads, the couriers, take what is ready to go on: they perform together what those runs
 * ask of the store, and step them. A run that waits is parked until its time comes or somebody
 * wakes it; one whose compute is under way is nobody's until that has ended. */
#ifndef CRL_PILOT_H
#define CRL_PILOT_H

#include "run.h"

typedef struct crl_pilot crl_pilot;

/* Starts no thread. NULL without memory. */
crl_pilot *crl_pilot_new(crl_station *station);
/* From now on nothing waits and no compute is begun: such flights are given up. Returns when there
 * are none left but those whose compute is under way. */
void crl_pilot_close(crl_pilot *pilot);
/* After that, and when all computes have ended: waits for the rest, frees. */
void crl_pilot_free(crl_pilot *pilot);
/* Flies a run from where it is to its end, and frees it. `ticket`: of its caller, may be NULL.
 * CORRAL_OK; CORRAL_EIO, CORRAL_ENOMEM: there is no thread to be had, or no memory, and the run is
 * still the caller's. */
int crl_pilot_fly(crl_pilot *pilot, crl_run *r, corral_ticket *ticket);
/* The compute that its caller began, or was to begin, has ended; or, if abandoned, there will be
 * none. */
void crl_pilot_ended(crl_run *r, int abandoned);
/* Goes on with a parked run. */
void crl_pilot_wake(crl_run *r);
/* Its compute is under way, and won't be waited for: the flight is given up here and now, but the
 * run, in which the fill is, stays: the caller's, to be given to crl_run_free. */
void crl_pilot_orphan(crl_run *r);
/* For others who wait. */
crl_alarms *crl_pilot_alarms(crl_pilot *pilot);

#endif
