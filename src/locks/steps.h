/* steps.h: what event loops ask of a lock's store, on a few threads of the library: one step of a
 * taking, a release, an extension. Each blocks while the store is asked; nothing waits there. */
#ifndef CRL_LOCK_STEPS_H
#define CRL_LOCK_STEPS_H

#include "os/worker.h"

typedef struct crl_lock_steps crl_lock_steps;

/* In its owner's memory; its owner's again when `make` is called. */
typedef struct crl_lock_step {
  struct crl_lock_step *next;
  void (*make)(struct crl_lock_step *step);
} crl_lock_step;

/* Starts no thread. NULL without memory. */
crl_lock_steps *crl_lock_steps_new(crl_workers *workers);
/* Waits until all steps are made. */
void crl_lock_steps_free(crl_lock_steps *steps);
/* Steps are begun in the order in which they were added. 0: there is no thread to be had, and the
 * step is still the caller's. Any thread, under any mutex but those of this file and of workers. */
int crl_lock_steps_add(crl_lock_steps *steps, crl_lock_step *step);

#endif
