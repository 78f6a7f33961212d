/* block.h: calls of one key, or of several at once, driven on the caller's thread. */
#ifndef CRL_BLOCK_H
#define CRL_BLOCK_H

#include "run/run.h"

/* Performs a call to its end: its status and, on CORRAL_OK, *ret. Sets call->cancel. */
int crl_block_call(crl_context *context, crl_call *call, const void *key, size_t key_len,
                   corral_value **ret);

/* A run that needs to go on elsewhere: the library's threads have it from now on. The call is over,
 * or waits on the entry. */
void crl_block_hand_over(crl_join *join);

/* many.c: performs a call of several keys. Items whose status is not CORRAL_OK already are left as
 * they are. CORRAL_OK: each item has its own status. CORRAL_ENOMEM: no key was asked for. */
int crl_many_call(crl_context *context, crl_call *call, corral_item *items, size_t count);

#endif
