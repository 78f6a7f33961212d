/* sentinel.h: Redis Sentinel, shared by the sentinel_ files. Internal to plugins/redis.
 *
 *   sentinel.c      the table of redis+sentinel:; the URI
 *   sentinel_ask.c  asking sentinels for the primary, and hearing of another one
 *
 * The servers that sentinels name are the nodes of a cluster in which all keys are in slot 0, and
 * the node of that slot is the primary (cluster.h). */
#ifndef CRL_REDIS_SENTINEL_H
#define CRL_REDIS_SENTINEL_H

#include "cluster.h"

enum { CRL_REDIS_MASTER = 128 /* bytes of a primary's name among sentinels */ };

typedef struct crl_redis_sentinel {
  crl_redis_cluster cluster;
  crl_redis_store *guards; /* what the connections to all sentinels have in common */
  char master[CRL_REDIS_MASTER];
  _Atomic size_t first;     /* index of the sentinel to be asked first */
  _Atomic int untold;       /* 1: a primary was learnt of that `refresh` hasn't told of */
  _Atomic int64_t asked_at; /* when the sentinels were last asked, host->now_ms */
  /* The bell: a connection on which a sentinel tells of each change. Its bytes are read under the
   * mutex. The descriptor is also that of poll; -1: there is no bell. */
  pthread_mutex_t mutex;
  crl_redis_handle *bell;
  crl_redis_resp rung;
  _Atomic int bell_fd;
  _Atomic int64_t heard_at; /* when it was last listened to, host->now_ms */
} crl_redis_sentinel;

/* ---- sentinel_ask.c ------------------------------------------------------------------------ */

extern const crl_redis_ways crl_redis_sentinel_ways;

/* Reads the reply to SENTINEL get-master-addr-by-name. 1: *ret is the place; 0: the sentinel knows
 * none of that name; -1: it is no such reply. */
int crl_redis_sentinel_place(crl_redis_message message, crl_redis_place *ret);
/* Reads what a subscriber of +switch-master is told. 1: *ret is the new place of this primary. */
int crl_redis_sentinel_told(crl_redis_message message, const char *master, crl_redis_place *ret);
/* Ends the bell. */
void crl_redis_sentinel_unhang(crl_redis_sentinel *s);

/* ---- sentinel.c ---------------------------------------------------------------------------- */

extern const corral_store crl_plugin_redis_sentinel;

#endif
