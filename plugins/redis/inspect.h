/* inspect.h: what corral_store.inspect and list share. Internal to plugins/redis.
 *
 *   inspect_ask.c       asking, and telling
 *   inspect.c           one server: what it says of itself, its clock, memory, replicas
 *   inspect_rights.c    what the user may do there; how waiters are woken
 *   inspect_cluster.c   all nodes of a cluster
 *   inspect_sentinel.c  all sentinels of a primary, and that
 *   inspect_redlock.c   all servers of Redlock (redlock.h)
 *   list.c              the keys of one server, or of all
 *
 * Nothing here changes data: see inspect_rights.c. */
#ifndef CRL_REDIS_INSPECT_H
#define CRL_REDIS_INSPECT_H

#include <stdarg.h>

#include "sentinel.h"

/* One server while it is looked at. */
typedef struct crl_redis_exam {
  const corral_inquiry *inquiry;
  crl_redis_store *store;
  crl_redis_handle *handle;
  const redisReply *info; /* the reply to INFO; NULL: it was refused */
  corral_error *error;
} crl_redis_exam;

enum { CRL_REDIS_FACT = 256 }; /* room for a value */

/* ---- inspect_ask.c ------------------------------------------------------------------------- */

/* When a request that is sent now has to be answered. */
int64_t crl_redis_inspect_until(const crl_redis_store *store, const corral_inquiry *inquiry);
/* Sends a command of `count` words, and receives its reply, the caller's to free. */
int crl_redis_exam_ask(crl_redis_exam *x, const char *const *words, size_t count, redisReply **ret);
/* Tells a fact of `server`, with a value as of vprintf. */
__attribute__((format(printf, 6, 0))) void crl_redis_fact_tell(const corral_inquiry *q,
                                                               const char *server, const char *name,
                                                               int verdict, const char *advice,
                                                               const char *format, va_list args);
/* Tells a fact with a printf-like value; `advice` NULL: a plain one. */
void crl_redis_exam_tell(const crl_redis_exam *x, const char *name, int verdict, const char *advice,
                         const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Finds "name:value" among the lines of a text, such as a reply to INFO. 0: it isn't there. */
int crl_redis_exam_line(const redisReply *text, const char *name, char *ret, size_t size);

/* ---- inspect.c ----------------------------------------------------------------------------- */

/* See corral_store. */
int crl_redis_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);
/* Tells all about a server of several. One of a cluster must be held, and is let go. Any status but
 * CORRAL_OK: it wasn't reached, which was told with this verdict and advice. */
int crl_redis_inspect_one(crl_redis_store *store, const corral_inquiry *inquiry, int verdict,
                          const char *advice);
/* Measures round trips, and tells the clock of a server that has one. */
int crl_redis_exam_clock(crl_redis_exam *x);
/* Asks HELLO, and tells version and software. *mode and *role: "" when they aren't known. */
int crl_redis_exam_hello(crl_redis_exam *x, char mode[32], char role[32]);

/* ---- inspect_rights.c ---------------------------------------------------------------------- */

int crl_redis_exam_rights(crl_redis_exam *x);
void crl_redis_exam_wake(crl_redis_exam *x);

/* ---- inspect_cluster.c, inspect_sentinel.c -------------------------------------------------- */

int crl_redis_cluster_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);
int crl_redis_sentinel_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);

/* ---- list.c: see corral_store; of cluster and sentinels, and of one server ------------------- */

int crl_redis_cluster_list(void *store, const corral_listing *listing, corral_error *error);
int crl_redis_list(void *store, const corral_listing *listing, corral_error *error);

#endif
