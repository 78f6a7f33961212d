/* batch.h: the store operations of several runs, or of several first looks, performed together. */
#ifndef CRL_BATCH_H
#define CRL_BATCH_H

#include "run/run.h"

/* Room for one batch, used by one thread at a time. */
typedef struct crl_batch {
  crl_context *context;
  size_t most; /* runs of one batch, at most */
  crl_request *requests;
  corral_op *ops;
  crl_found **found; /* by request */
  crl_found *looks;  /* room for first looks; NULL until the first one */
} crl_batch;

/* Makes room for batches of up to `runs` runs. 0 without memory; crl_batch_clean in any case. */
int crl_batch_make(crl_batch *batch, crl_context *context, size_t runs);
void crl_batch_clean(crl_batch *batch);
/* Performs the asks of all runs, each of them GET, CLAIM, SETTLE or RELEASE, in as many batches as
 * it takes, and steps each run. A run whose operation must be repeated isn't stepped and keeps its
 * ask. */
void crl_batch_perform(crl_batch *batch, crl_run *const *runs, size_t count);
/* Makes the first looks of as many calls (all of them in CRL_JOIN_LOOKS) as one batch takes;
 * returns how many. Of each that hasn't ended by then, told[i] and batch->found[i] are to be given
 * to crl_join_looked. 0 without memory. */
size_t crl_batch_look(crl_batch *batch, crl_join *const *joins, size_t count, crl_told *told);

#endif
