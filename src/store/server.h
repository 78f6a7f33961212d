/* server.h: one server of a store: its handles, the queue for them, and its breaker. A server
 * combines callers' operations into batches, closes broken handles, and lets a failing server rest.
 *
 * Records of more than a MiB have handles and a queue of their own, as many again: they are never
 * in front of anything else.
 *
 * A server has no thread of its own: a caller takes a free handle and sends all that is queued, its
 * own operations first; without a free handle it queues. A caller that is done hands its handle to
 * the head of the queue. The more callers wait, the larger the batches; a caller alone pays
 * nothing. */
#ifndef CRL_SERVER_H
#define CRL_SERVER_H

#include "store/pool_options.h"

struct crl_pool;
typedef struct crl_server crl_server;

/* `options` must outlive the server. No I/O. NULL without memory. */
crl_server *crl_server_new(const crl_pool_options *options, size_t number);
/* No operation may be under way. */
void crl_server_free(crl_server *server);
size_t crl_server_number(const crl_server *server);
/* Performs operations on this server: see crl_pool_perform. True when a failure made the server
 * rest, or put it in doubt: a probe is due. Sets CRL_OP_SLOW. */
int crl_server_perform(crl_server *server, corral_op *ops, size_t count, int64_t deadline);
/* The same for one GET at `now`: see crl_pool_look. */
int crl_server_look(crl_server *server, corral_op *op, int64_t now, int64_t deadline,
                    corral_error *why);
/* True when a look may go to the server past its handles and queue (lookout.h): the server is well,
 * and the record isn't known to be large. */
int crl_server_is_well_for(crl_server *server, const corral_op *op);
/* Bytes of the record that an operation sends to be stored. */
static inline size_t crl_server_record_len(const corral_op *op) {
  return op->verb == CORRAL_VERB_SETTLE ? op->settle.record_len : 0;
}
/* Closes the handles that nobody has used since the last sweep. True while others are open. */
int crl_server_sweep(crl_server *server);
/* Sets whether one of the callers probes when a rest is over. If not, crl_server_probe is to be
 * called then. */
void crl_server_self_probing(crl_server *server, int self_probing);
/* The server may have missed what callers sent: it is probed, and on_return is called, before looks
 * and claims are let to it. */
void crl_server_doubt(crl_server *server);
/* When the next probe is due; INT64_MAX: the server isn't in doubt, or its callers probe. */
int64_t crl_server_probe_at(crl_server *server);
/* In a store whose servers come and go: an operation was answered; one failed. The latter returns 1
 * as long as the server may only be on its way to another place, and so is slow (absence.h). */
void crl_server_answered(crl_server *server);
int crl_server_failed(crl_server *server, int64_t now);
/* Failures in a row, and one more in a silence and in an absence: 0 for a server that answers. */
int64_t crl_server_failures(crl_server *server);
/* Asks the server for the probe's key, over a handle for probes. When a resting server answers,
 * on_return is called; after that, if it found the server still working, callers are let to it
 * again. A server in doubt is probed until it answers, or is away. */
void crl_server_probe(crl_server *server, struct crl_pool *pool);
/* Within on_return: performs on the probe's handle. 0 when it broke. */
int crl_server_perform_probe(crl_server *server, corral_op *ops, size_t count);

#endif
