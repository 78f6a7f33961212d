/* follower.h: follows an operator's orders (corral/control.h) in this process.
 *
 * While calls come it looks at the control record every CORRAL_CONTROL_EVERY_MS; where a watch of
 * the store that is up tells of the record's changes, at each change, and every 5 s besides. After
 * 10 s without a call it looks no more, unless the watch tells of a change: then the next call
 * looks first, except one of an event loop, which may not wait. A look that fails leaves the order
 * as it is, until its own end by the local clock.
 *
 * A call costs one relaxed load of context->orders. */
#ifndef CRL_FOLLOWER_H
#define CRL_FOLLOWER_H

#include "control/desk.h"

typedef struct crl_follower crl_follower;

/* Starts no thread, asks no store; context->orders is set so that the first call looks. NULL
 * without memory. */
crl_follower *crl_follower_new(crl_context *context);
/* From now on it leaves the store's watch alone, which may be freed. */
void crl_follower_deafen(crl_follower *follower);
/* After the end of the watch. No look is under way when this returns. */
void crl_follower_free(crl_follower *follower);
/* A call begins, and context->orders isn't 0. It waits for a look until `limit`, or until it is
 * cancelled; 0: it doesn't wait. */
void crl_follower_use(crl_follower *follower, int64_t limit, corral_cancel_token *cancel_token);
/* For the callbacks of the store's watch, by the hash of a stored key; hash 0: any. */
void crl_follower_changed(crl_follower *follower, uint64_t hash);
void crl_follower_registered(crl_follower *follower, uint64_t hash, uint64_t print);
/* Another look at the record, which has just ended, found this: it is followed. */
void crl_follower_take(crl_follower *follower, const crl_desk_found *found);
/* The order in force, and what is left of it. */
crl_order crl_follower_order(crl_follower *follower, int64_t *ret_left_ms);

#endif
