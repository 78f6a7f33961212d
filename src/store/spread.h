/* spread.h: looks on several servers of a store at once: all requests are sent before the first
 * reply is awaited. */
#ifndef CRL_SPREAD_H
#define CRL_SPREAD_H

#include <stdatomic.h>

#include "store/server.h"

enum { CRL_SPREAD_DONE = -1 }; /* in place of a server's number */

typedef struct crl_spread {
  crl_server *_Atomic *servers; /* that of each route is there */
  corral_op *ops;
  int *routes; /* the server of each operation, or CRL_SPREAD_DONE */
  size_t count;
  int64_t deadline;
  int opened; /* a probe is due */
} crl_spread;

/* True where the store's plugin can look without waiting, and all of these are looks. */
int crl_spread_is_offered(const crl_pool_options *options, const corral_op *ops, size_t count);
/* Performs the looks of those servers that are well and have an idle handle, as crl_server_perform
 * does, and sets their routes to CRL_SPREAD_DONE. The others are left to it. Blocks. */
void crl_spread_look(crl_spread *spread);

#endif
