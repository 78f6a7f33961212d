/* redis_sentinels.h: a real set of three sentinels, a primary and its replica, for one test.
 *
 *   static redis_sentinels *set;
 *   if (!redis_sentinels_start(&set)) skip();
 *   ... redis_sentinels_uri(set) ... redis_sentinels_fail_over(set) ...
 *   redis_sentinels_stop(set);
 *
 * At first server 0 is the primary and server 1 the replica. A server that is silent for 1 s is
 * down. */
#ifndef TESTS_REDIS_SENTINELS_H
#define TESTS_REDIS_SENTINELS_H

#include "support/redis_server.h"

enum { REDIS_SENTINELS = 3, REDIS_SENTINEL_SERVERS = 2 };

typedef struct redis_sentinels redis_sentinels;

/* Starts all, and waits until each sentinel has seen the others and the replica. 0: redis-server
 * isn't installed. */
int redis_sentinels_start(redis_sentinels **ret);
/* NULL is allowed. */
void redis_sentinels_stop(redis_sentinels *set);
/* "redis+sentinel://127.0.0.1:PORT,127.0.0.1:PORT,127.0.0.1:PORT/main"; owned by the set. */
const char *redis_sentinels_uri(const redis_sentinels *set);
redis_server *redis_sentinels_server(const redis_sentinels *set, int number);
redis_server *redis_sentinels_sentinel(const redis_sentinels *set, int number);
/* The server that all sentinels name; waits until they agree. */
int redis_sentinels_primary(redis_sentinels *set);
/* Waits until all sentinels name this server. */
void redis_sentinels_await_primary(redis_sentinels *set, int number);
/* Waits until the primary has its replica, and all sentinels see both well. */
void redis_sentinels_await_well(redis_sentinels *set);
/* Makes the replica the primary, as planned; returns its number. The former primary believes for
 * some seconds that it still is one. */
int redis_sentinels_fail_over(redis_sentinels *set);

#endif
