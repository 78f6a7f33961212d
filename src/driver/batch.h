/* batch.h: the store operations of several runs, performed together. */
#ifndef CRL_BATCH_H
#define CRL_BATCH_H

#include "run/run.h"

/* Room for one batch, used by one thread at a time. */
typedef struct crl_batch {
  crl_context *context;
  size_t most; /* runs of one batch, at most */
  crl_request *requests;
  corral_op *ops;
} crl_batch;

/* Makes room for batches of up to `runs` runs. 0 without memory; crl_batch_clean in any case. */
int crl_batch_make(crl_batch *batch, crl_context *context, size_t runs);
void crl_batch_clean(crl_batch *batch);
/* Performs the asks of all runs, each of them GET, CLAIM, SETTLE or RELEASE, in as many batches as
 * it takes, and steps each run. A run whose operation must be repeated isn't stepped and keeps its
 * ask. */
void crl_batch_perform(crl_batch *batch, crl_run *const *runs, size_t count);

#endif
