/* block.h: the drivers, which perform the asks of flights, of one key or of several at once. They
 * call the user's computes, and make no decisions. */
#ifndef CRL_BLOCK_H
#define CRL_BLOCK_H

#include "run/run.h"

/* Performs a call to its end: its status and, on CORRAL_OK, *ret. Sets call->early and
 * call->cancel. */
int crl_block_call(crl_context *context, crl_call *call, corral_value **ret);

/* many.c: performs a call of several keys; `call` holds for each, except for its key. Items
 * whose status is not CORRAL_OK already are left as they are. CORRAL_OK: each item has its own
 * status. CORRAL_ENOMEM: no key was asked for. */
int crl_many_call(crl_context *context, const crl_call *call, corral_item *items, size_t count);

#endif
