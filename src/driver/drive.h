/* drive.h: the drivers, which perform the asks of flights, of one key or of several at once. They
 * call the user's computes, and make no decisions. */
#ifndef CRL_DRIVE_H
#define CRL_DRIVE_H

#include "run/run.h"

/* Performs a call to its end: its status and, on CORRAL_OK, *ret. Sets call->early and
 * call->cancel. */
int crl_drive_call(crl_context *context, crl_call *call, corral_value **ret);

/* drive_many.c: performs a call of several keys; `call` holds for each, except for its key. Items
 * whose status is not CORRAL_OK already are left as they are. CORRAL_OK: each item has its own
 * status. CORRAL_ENOMEM: no key was asked for. */
int crl_drive_many(crl_context *context, const crl_call *call, corral_item *items, size_t count);

#endif
