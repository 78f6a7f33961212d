/* batch.h: what several runs ask of the store, performed together. */
#ifndef CRL_BATCH_H
#define CRL_BATCH_H

#include "run.h"

/* Room for one batch, used by one thread at a time. */
typedef struct crl_batch {
  crl_station *station;
  size_t most; /* runs */
  crl_errand *errands;
  corral_op *ops;
} crl_batch;

/* For so many runs at once, or fewer. 0 without memory; crl_batch_clean in any case. */
int crl_batch_make(crl_batch *batch, crl_station *station, size_t runs);
void crl_batch_clean(crl_batch *batch);
/* All of them ask for GET, CLAIM, SETTLE or RELEASE. Performs that, in as many batches as it takes,
 * and steps each; one that is to be asked once more still asks for the same. */
void crl_batch_perform(crl_batch *batch, crl_run *const *runs, size_t count);

#endif
