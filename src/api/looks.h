/* looks.h: the first looks of an event loop's calls, made on the loop's own thread where the store
 * can do without waiting (store/lookout.h): one batch is under way, the looks of later calls are
 * the next one.
 *
 * The connection is made on a thread of the library, from a loop's second look on. Until it is
 * there, when the server isn't well, or gives no answer in op_ms, a call's look is its run's. So is
 * it for whatever is no plain hit (run/hit.h), or can't be told by one answer.
 *
 * On the loop's thread, but for crl_looks_open's timer and job. */
#ifndef CRL_LOOKS_H
#define CRL_LOOKS_H

#include "api/inbox.h"
#include "run/hit.h"
#include "store/lookout.h"

/* One look, until it was answered; of a cancelled call too, whose key it uses. */
typedef struct crl_async_look {
  struct crl_async_look *next;
  void *call;
  crl_hit hit;
  uint8_t key[CRL_HIT_KEY]; /* hit.key */
} crl_async_look;
typedef struct crl_looks crl_looks;

/* Sets loop->looks and returns the loop's descriptor; -1: none left, or no memory. `told` is called
 * for each look that has ended, within the two functions below. */
int crl_looks_open(corral_loop *loop, void (*told)(void *call, crl_async_look *look));
/* After the end of the loop's work: ends all looks, whose calls were cancelled. */
void crl_looks_close(crl_looks *looks);
/* Ends the looks that were answered, and sends those that are due; `idle`: nothing else had made
 * the descriptor readable. Returns how many ended. */
int crl_looks_dispatch(crl_looks *looks, int idle);
/* Begins the look of a call, whose key and settings stay until it has ended. NULL: there is none;
 * the call is to go on by its join, if that has a state, or else begins with it. */
crl_async_look *crl_looks_begin(crl_looks *looks, const crl_call *asked, crl_join *join,
                                void *call);
/* Both free a look that has ended. judge: 1: its call has ended, with *ret; 0: it goes on by
 * `join`. */
int crl_looks_judge(crl_async_look *look, crl_join *join, corral_value **ret);
void crl_looks_drop(crl_async_look *look);

#endif
