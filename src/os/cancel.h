/* cancel.h: cancel tokens, which end calls from another thread. */
#ifndef CRL_CANCEL_H
#define CRL_CANCEL_H

#include <corral.h>

#include "os/wait.h"

/* A call's place in a cancel token, in its owner's memory. */
typedef struct crl_canceller {
  struct crl_canceller *next, **link;
  /* for corral_cancel_token_cancel, on the cancelling thread, under the cancel token's mutex: must
   * not use the cancel token */
  void (*wake)(void *arg);
  void *arg;
} crl_canceller;

/* A NULL cancel token is never cancelled. */
int crl_cancelled(const corral_cancel_token *cancel_token);
void crl_cancel_join(corral_cancel_token *cancel_token, crl_canceller *canceller,
                     void (*wake)(void *arg), void *arg);
/* The same for a waiter. */
void crl_cancel_join_waiter(corral_cancel_token *cancel_token, crl_canceller *canceller,
                            crl_waiter *waiter);
/* No wake is under way when this returns, and none will come. */
void crl_cancel_leave(corral_cancel_token *cancel_token, crl_canceller *canceller);

#endif
