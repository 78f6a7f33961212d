/* lane.h: one server of a store: its handles, the queue for them, and its breaker. A lane combines
 * callers' operations into batches, closes broken handles, and lets a failing server rest.
 *
 * Records of more than a MiB have handles and a queue of their own, as many again: they are never
 * in front of anything else.
 *
 * A lane has no thread of its own: a caller takes a free handle and sends all that is queued, its
 * own operations first; without a free handle it queues. A caller that is done hands its handle to
 * the head of the queue. The more callers wait, the larger the batches; a caller alone pays
 * nothing. */
#ifndef CRL_LANE_H
#define CRL_LANE_H

#include "store/pool_options.h"

struct crl_pool;
typedef struct crl_lane crl_lane;

/* `options` must outlive the lane. No I/O. NULL without memory. */
crl_lane *crl_lane_new(const crl_pool_options *options, size_t server);
/* No operation may be under way. */
void crl_lane_free(crl_lane *lane);
/* Performs operations on this server: see crl_pool_perform. True when a failure made the server
 * rest, or put it in doubt: a probe is due. */
int crl_lane_perform(crl_lane *lane, corral_op *ops, size_t count, int64_t deadline);
/* Sets whether one of the callers probes when a rest is over. If not, crl_lane_probe is to be
 * called then. */
void crl_lane_self_probing(crl_lane *lane, int self_probing);
/* When the next probe is due; INT64_MAX: the server isn't in doubt, or its callers probe. */
int64_t crl_lane_probe_at(crl_lane *lane);
/* Failures in a row. */
int64_t crl_lane_failures(crl_lane *lane);
/* Asks the server for the probe's key, over a handle for probes. When a resting server answers,
 * on_return is called; after that, if it found the server still working, callers are let to it
 * again. A server in doubt begins to rest when it doesn't answer. */
void crl_lane_probe(crl_lane *lane, struct crl_pool *pool);
/* Within on_return: performs on the probe's handle. 0 when it broke. */
int crl_lane_perform_probe(crl_lane *lane, corral_op *ops, size_t count);

#endif
