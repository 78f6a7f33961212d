/* refresh.h: when a store is asked anew which server has which keys: not before LEAST_MS after the
 * last time, and less and less often while the answer stays the same.
 *
 * A server that fails may have a successor only some seconds later, when nobody asks for its keys
 * any more, though they missed a change. So after the last wish, refreshes go on for a while, until
 * the answer is another one. */
#ifndef CRL_REFRESH_H
#define CRL_REFRESH_H

#include <stdatomic.h>
#include <stdint.h>

enum {
  CRL_REFRESH_LEAST_MS = 100,
  CRL_REFRESH_MOST_MS = 500,  /* while it is wished for */
  CRL_REFRESH_ALONE_MS = 250, /* then; doubled up to the next, so many times */
  CRL_REFRESH_ALONE_MOST_MS = 4000,
  CRL_REFRESH_ALONE = 8
};

/* All zero at the begin. The first two are any thread's, the rest is that of whoever refreshes. */
typedef struct crl_refresh {
  _Atomic int wanted;
  _Atomic int64_t wished; /* when it was first wished for, since the last one began */
  _Atomic int64_t next;   /* not before then; crl_env_now_ms */
  int64_t pause_ms;       /* after the last one */
  int alone;              /* how many there were since the last wish */
  int64_t again;          /* when the next one is due without a wish; 0: none is */
} crl_refresh;

/* Asks for a refresh. 1: none was asked for before; it is to be begun at *ret_at. Any thread. */
int crl_refresh_want(crl_refresh *refresh, int64_t now, int64_t *ret_at);
/* Before a refresh begins: what is wanted from now on is another one. 0: none is due yet. */
int crl_refresh_begin(crl_refresh *refresh, int64_t now);
/* After it: whether the answer was another one than before. `dice`: random. */
void crl_refresh_end(crl_refresh *refresh, int64_t now, int changed, uint64_t dice);
/* When the next one is to begin; INT64_MAX: none is. */
int64_t crl_refresh_at(const crl_refresh *refresh);
/* Of one that is due: an answer that was asked for up to then doesn't know why it is. */
int64_t crl_refresh_since(const crl_refresh *refresh);

#endif
