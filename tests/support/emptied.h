/* emptied.h: the URI of a test's server, without any key in it. Skips the test if there is no such
 * server. */
#ifndef TESTS_EMPTIED_H
#define TESTS_EMPTIED_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "support/memcached_server.h"
#include "support/redis_server.h"

static inline const char *emptied_redis(redis_server *server) {
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  return redis_server_unix_uri(server);
}

static inline const char *emptied_memcached(memcached_server *server) {
  if (server == NULL) skip();
  memcached_server_ask(server, "flush_all");
  return memcached_server_uri(server);
}

#endif
