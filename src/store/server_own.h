/* server_own.h: what the files of a server share among themselves. */
#ifndef CRL_SERVER_OWN_H
#define CRL_SERVER_OWN_H

#include "base/check.h"
#include "base/marks.h"
#include "store/health.h"
#include "store/seats.h"

typedef struct crl_server crl_server;

struct crl_server {
  const crl_pool_options *options;
  size_t number;
  crl_latch latch;
  crl_seats usual, large; /* a large body is never in the way of anything else */
  crl_marks large_keys;   /* whose record was large when it was last looked at */
  /* CORRAL_THREADS_PARALLEL: the one handle; a broken one, which is disconnected once nobody is
   * inside; how many threads are inside */
  void *_Atomic shared;
  void *retired;
  _Atomic size_t inside;
  crl_health health;
  void *probe_handle; /* the probing thread's */
};

#ifdef CORRAL_CHECKS
void crl_server_check(const crl_server *server);
#endif

static inline void crl_server_lock(crl_server *server) {
  crl_latch_take(&server->latch);
#ifdef CORRAL_CHECKS
  crl_server_check(server);
#endif
}

static inline void crl_server_unlock(crl_server *server) {
#ifdef CORRAL_CHECKS
  crl_server_check(server);
#endif
  crl_latch_give(&server->latch);
}

/* Performs operations that are preset on the shared handle, which it opens if there is none. `why`:
 * room for what the handle has to say. */
void crl_server_perform_shared(crl_server *server, corral_op *ops, size_t count, int64_t now,
                               int64_t deadline, corral_error *why);

#endif
