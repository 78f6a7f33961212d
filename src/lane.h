/* lane.h: the handles of one server: combines callers' operations into batches, closes broken
 * handles, rests a failing server.
 *
 * Records of more than a MiB have handles and a queue of their own, as many again: they are never
 * in front of anything else.
 *
 * No thread of its own: a caller takes a free handle and sends all that is queued, its own first;
 * else it queues. Who is done hands the handle to the head of the queue. The more callers wait, the
 * larger the batches; one caller alone pays nothing. */
#ifndef CRL_LANE_H
#define CRL_LANE_H

#include "pool.h"

typedef struct crl_lane crl_lane;

/* `options` must outlive it. No I/O. NULL without memory. */
crl_lane *crl_lane_new(const crl_pool_options *options, size_t server);
/* No operation may be under way. */
void crl_lane_free(crl_lane *lane);
/* See crl_pool_perform. True when that made the server rest, or put it in doubt: a probe is due. */
int crl_lane_perform(crl_lane *lane, corral_op *ops, size_t count, int64_t deadline);
/* Set: one of the callers probes when a rest is over. Else crl_lane_probe is to be called then. */
void crl_lane_self_probing(crl_lane *lane, int self_probing);
/* When the next probe is due; INT64_MAX: the server isn't in doubt, or its callers probe. */
int64_t crl_lane_probe_at(crl_lane *lane);
/* Failures in a row. */
int64_t crl_lane_failures(crl_lane *lane);
/* Asks a server for the probe's key, over a handle of its own. When one that rests answers,
 * on_return is called; after that, if it found the server still working, callers are let to it
 * again. One in doubt begins to rest when it doesn't answer. */
void crl_lane_probe(crl_lane *lane, crl_pool *pool);
/* Within on_return: performs on the probe's handle. 0 when it broke. */
int crl_lane_perform_probe(crl_lane *lane, corral_op *ops, size_t count);

#endif
