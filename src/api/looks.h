/* looks.h: the first looks of an event loop's calls, made on the loop's own thread where the store
 * can do without waiting (store/lookout.h): one batch is under way, the looks of later calls are the
 * next one.
 *
 * The connection is made on a thread of the library, from a loop's second look on. Until it is
 * there, when the server isn't well, or gives no answer in op_ms, a call's look is its run's. So is
 * it for whatever is no plain hit (run/hit.h), or can't be told by one answer.
 *
 * On the loop's thread, but for crl_looks_open's timer and job. */
#ifndef CRL_LOOKS_H
#define CRL_LOOKS_H

#include "api/async.h"
#include "run/hit.h"
#include "store/lookout.h"

/* One look, until it was answered; of a cancelled call too, whose key it uses. */
typedef struct crl_async_look {
  struct crl_async_look *next;
  corral_async_call *call;
  crl_hit hit;
} crl_async_look;

/* Sets loop->looks and returns the loop's descriptor; -1: none left, or no memory. */
int crl_looks_open(corral_loop *loop);
/* After the end of the loop's work: ends all looks, whose calls were cancelled. */
void crl_looks_close(struct crl_looks *looks);
/* 1: the call's look is under way, and crl_async_looked will end it. 0: the call is to go on by its
 * join, if that has a state, else to begin. */
int crl_looks_begin(corral_async_call *call);
/* Ends the looks that were answered, and sends those that are due; `idle`: nothing else had made the
 * descriptor readable. Returns how many ended. */
int crl_looks_dispatch(struct crl_looks *looks, int idle);
/* Both free a look that has ended. judge: 1: its call has ended, with *ret; 0: it goes on by
 * `join`. */
int crl_looks_judge(crl_async_look *look, crl_join *join, corral_value **ret);
void crl_looks_drop(crl_async_look *look);

#endif
