/* lookout.h: looks without waiting: a handle beside those of the server, of one thread, on which
 * one batch of looks at a time is under way.
 *
 * It serves well servers alone, and judges nothing of their health: a look that it can't answer is
 * made once more by the pool. */
#ifndef CRL_LOOKOUT_H
#define CRL_LOOKOUT_H

#include "store/pool.h"

enum { CRL_LOOKOUT_OPS = 128 };

/* Zero before crl_lookout_open. */
typedef struct crl_lookout {
  const corral_store *plugin;
  void *handle;     /* NULL: none */
  int fd;           /* its descriptor */
  size_t count;     /* of looks under way */
  int64_t began_us; /* of these */
  const crl_pool_options *options;
  corral_batch batch;
  corral_op *own[CRL_LOOKOUT_OPS]; /* of the caller, by number in the batch */
} crl_lookout;

/* True for a store of one server whose plugin can look without waiting. */
int crl_lookout_is_offered(const crl_pool *pool);
/* Connects, by op_ms; blocks. CORRAL_OK; CORRAL_EUNSUPPORTED: it never will. */
int crl_lookout_open(crl_lookout *lookout, const crl_pool *pool);
/* Disconnects, if it is connected. Looks under way end as by crl_lookout_finish. */
void crl_lookout_close(crl_lookout *lookout);
/* Sends 1 to CRL_LOOKOUT_OPS looks; none may be under way. The ops stay until they have ended.
 * CORRAL_OK, or any other status: it is to be closed. */
int crl_lookout_begin(crl_lookout *lookout, corral_op *const *ops, size_t count, int64_t now);
/* Takes what has come. 1: all looks under way, if any, have ended: with CORRAL_OK, CORRAL_EMISS or,
 * where nothing is known, CORRAL_EINDOUBT. 0: not yet. -1: as 1, and it is to be closed. */
int crl_lookout_finish(crl_lookout *lookout);

#endif
