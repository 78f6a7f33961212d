/* due.h: an event loop's calls that were answered as they began: by the near tier, or by a first
 * look at a store where nobody waits. Until a dispatch tells its answer, such a call is no more
 * than that and its callbacks: it takes part in nothing.
 *
 * On the loop's thread. */
#ifndef CRL_DUE_H
#define CRL_DUE_H

#include "api/async.h"

/* The first look of a call, made before the call itself is. Not zeroed; it must not be moved. */
typedef struct crl_first {
  int is_answered; /* by `outcome`, with a reference */
  int has_looked;  /* by `hit`, which is to be joined or dropped before this thread's next look */
  int early;       /* a fresh value is in the near tier, and is to be rebuilt */
  crl_outcome outcome;
  crl_hit *hit;
} crl_first;

/* Looks where that needs no waiting; for a call that is no recursion. */
void crl_due_look(crl_first *first, crl_context *context, const crl_call *asked, const void *key,
                  size_t key_len);
/* Makes a call that was answered, and takes over the outcome's reference. CORRAL_OK,
 * CORRAL_ENOMEM. */
int crl_due_new(corral_loop *loop, const corral_async *async, crl_outcome *outcome,
                corral_async_call **ret);
/* Tells the answers that are due, and those of some calls that begin meanwhile; returns how many.
 * Within a dispatch, as its last step. */
int crl_due_tell(corral_loop *loop);
/* Forgets the answer: the next crl_due_tell or crl_due_close calls `gone` alone. */
void crl_due_cancel(corral_async_call *call);
void crl_due_close(corral_loop *loop);

#endif
