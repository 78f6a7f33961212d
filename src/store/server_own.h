/* server_own.h: what the files of a server share among themselves. */
#ifndef CRL_SERVER_OWN_H
#define CRL_SERVER_OWN_H

#include "base/check.h"
#include "base/marks.h"
#include "store/absence.h"
#include "store/health.h"
#include "store/pace.h"
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
  crl_absence absence; /* of a store whose servers come and go */
  void *probe_handle;  /* the probing thread's */
};

/* Looks on an idle handle, without a seat. */
typedef struct crl_lone {
  corral_op *ops;
  size_t count;
  void *handle;
  crl_pace pace;
} crl_lone;

/* Takes an idle handle for looks at `now`, if the server is well, and there is as much time as
 * op_ms: 1. Nobody goes along. */
int crl_server_lone_take(crl_server *server, crl_lone *lone, int64_t now, int64_t latest);
/* After lone looks: repeats them if their handle broke and there is time, tells the breaker, and
 * hands the handle on. `status`: of the handle, with `why`. *opened becomes true where
 * crl_server_perform returns true. */
void crl_server_lone_end(crl_server *server, crl_lone *lone, int status, const corral_error *why,
                         int *opened);
/* Asks for records that were left unread, on a handle for large ones; remembers whose they are. */
void crl_server_read_large(crl_server *server, corral_op *ops, size_t count, int64_t deadline,
                           int *opened);

#ifdef CORRAL_CHECKS
void crl_server_check(const crl_server *server);
#endif

static inline void crl_server_lock(crl_server *server) {
  crl_latch_take(&server->latch);
  CRL_CHECK_BY(crl_server_check, server);
}

static inline void crl_server_unlock(crl_server *server) {
  CRL_CHECK_BY(crl_server_check, server);
  crl_latch_give(&server->latch);
}

/* Performs operations that are preset on the shared handle, which it opens if there is none. `why`:
 * room for what the handle has to say. */
void crl_server_perform_shared(crl_server *server, corral_op *ops, size_t count, int64_t now,
                               int64_t deadline, corral_error *why);

#endif
