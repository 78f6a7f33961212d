/* test_answers_live.c: test_answers.c on real servers: Redis by a unix socket, memcached with two servers. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#define LIVE
#include "support/memcached_server.h"
#include "support/redis_server.h"

static redis_server *redis;
static memcached_server *pair[2];

static void start_servers(void) {
  redis_server_start(&redis, NULL);
  for (int i = 0; i < 2; i++) memcached_server_start(&pair[i], NULL);
}

static void stop_servers(void) {
  redis_server_stop(redis);
  for (int i = 0; i < 2; i++) memcached_server_stop(pair[i]);
}

static void on_each_that_tells(void (*story)(const char *uri)) {
  if (redis == NULL) return;
  redis_server_ask(redis, "FLUSHALL");
  story(redis_server_unix_uri(redis));
}

static void on_each(void (*story)(const char *uri)) {
  on_each_that_tells(story);
  const char *uri = memcached_server_pair_uri(pair);
  if (uri != NULL) story(uri);
}

#include "test_answers.c"
