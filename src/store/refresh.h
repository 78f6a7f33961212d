/* refresh.h: when a store is asked anew which server has which keys: not before LEAST_MS after the
 * last time, and less and less often while the answer stays the same. Pure, but for the flag that
 * any thread may set. */
#ifndef CRL_REFRESH_H
#define CRL_REFRESH_H

#include <stdatomic.h>
#include <stdint.h>

enum { CRL_REFRESH_LEAST_MS = 100, CRL_REFRESH_MOST_MS = 500 };

/* All zero at the begin. */
typedef struct crl_refresh {
  _Atomic int wanted;
  _Atomic int64_t next; /* not before then; crl_env_now_ms */
  int64_t pause_ms;     /* after the last one */
} crl_refresh;

/* Asks for a refresh. 1: none was asked for before; it is to be begun at *ret_at. Any thread. */
int crl_refresh_want(crl_refresh *refresh, int64_t now, int64_t *ret_at);
/* Before a refresh begins: what is wanted from now on is another one. 0: none is wanted, or not
 * yet. */
int crl_refresh_begin(crl_refresh *refresh, int64_t now);
/* After it: whether the answer was another one than before. `dice`: random. */
void crl_refresh_end(crl_refresh *refresh, int64_t now, int changed, uint64_t dice);
/* When the next one is to begin; INT64_MAX: none is wanted. */
int64_t crl_refresh_at(const crl_refresh *refresh);

#endif
