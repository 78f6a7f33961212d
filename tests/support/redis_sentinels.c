/* redis_sentinels.c: a real set of three sentinels, a primary and its replica. */
#include "redis_sentinels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "server_process.h"

enum { STEP_US = 20000, STEPS = 3000, AGAIN = 100 };

struct redis_sentinels {
  redis_server *servers[REDIS_SENTINEL_SERVERS], *sentinels[REDIS_SENTINELS];
  char uri[120];
};

_Noreturn static void die(const char *what) { server_process_die("redis_sentinels", what); }

const char *redis_sentinels_uri(const redis_sentinels *s) { return s->uri; }
redis_server *redis_sentinels_server(const redis_sentinels *s, int number) {
  return s->servers[number];
}
redis_server *redis_sentinels_sentinel(const redis_sentinels *s, int number) {
  return s->sentinels[number];
}

/* Waits for a condition of the whole set. */
static void await(redis_sentinels *s, int (*holds)(redis_sentinels *s, int arg), int arg,
                  const char *what) {
  for (int i = 0; i < STEPS; i++) {
    if (holds(s, arg)) return;
    usleep(STEP_US);
  }
  for (int i = 0; i < REDIS_SENTINELS; i++)
    fprintf(stderr, "sentinel %d:\n%s\n%s\n", i, redis_server_ask(s->sentinels[i], "INFO sentinel"),
            redis_server_ask(s->sentinels[i], "SENTINEL REPLICAS main"));
  die(what);
}

/* ---- the primary --------------------------------------------------------------------------- */

static int all_name(redis_sentinels *s, int number) {
  char place[40];
  snprintf(place, sizeof place, "127.0.0.1\n%d", redis_server_port(s->servers[number]));
  for (int i = 0; i < REDIS_SENTINELS; i++)
    if (strcmp(redis_server_ask(s->sentinels[i], "SENTINEL get-master-addr-by-name main"), place) !=
        0)
      return 0;
  return 1;
}

static int some_is_named(redis_sentinels *s, int unused) {
  (void)unused;
  return all_name(s, 0) || all_name(s, 1);
}

int redis_sentinels_primary(redis_sentinels *s) {
  await(s, some_is_named, 0, "the sentinels don't agree");
  return all_name(s, 0) ? 0 : 1;
}

void redis_sentinels_await_primary(redis_sentinels *s, int number) {
  await(s, all_name, number, "the server is not promoted");
}

/* ---- well ---------------------------------------------------------------------------------- */

static int sees_all_well(redis_server *sentinel) {
  return strstr(redis_server_ask(sentinel, "INFO sentinel"), "status=ok,address=127.0.0.1:") !=
             NULL &&
         strstr(redis_server_ask(sentinel, "INFO sentinel"), "slaves=1,sentinels=3") != NULL &&
         strstr(redis_server_ask(sentinel, "SENTINEL REPLICAS main"), "\nflags\nslave\n") != NULL &&
         strstr(redis_server_ask(sentinel, "SENTINEL REPLICAS main"),
                "\nmaster-link-status\nok\n") != NULL;
}

static int is_well(redis_sentinels *s, int unused) {
  (void)unused;
  if (!some_is_named(s, 0)) return 0;
  int primary = all_name(s, 0) ? 0 : 1;
  if (strncmp(redis_server_ask(s->servers[primary], "ROLE"), "master", 6) != 0 ||
      strncmp(redis_server_ask(s->servers[1 - primary], "ROLE"), "slave", 5) != 0 ||
      strstr(redis_server_ask(s->servers[primary], "INFO replication"), "state=online") == NULL)
    return 0;
  for (int i = 0; i < REDIS_SENTINELS; i++)
    if (!sees_all_well(s->sentinels[i])) return 0;
  return 1;
}

/* Sentinels look after a second what they look after in ten otherwise; for the tests' sake. */
static void hurry(redis_sentinels *s) {
  for (int i = 0; i < REDIS_SENTINELS; i++)
    redis_server_ask(s->sentinels[i], "SENTINEL DEBUG info-period 500 publish-period 500");
}

void redis_sentinels_await_well(redis_sentinels *s) {
  hurry(s);
  await(s, is_well, 0, "the servers are not well");
}

/* ---- starting ------------------------------------------------------------------------------ */

static void start_sentinel(redis_sentinels *s, int number) {
  char config[400];
  snprintf(config, sizeof config,
           "sentinel monitor main 127.0.0.1 %d 2\n"
           "sentinel down-after-milliseconds main 1000\n"
           "sentinel failover-timeout main 2000\n",
           redis_server_port(s->servers[0]));
  if (!redis_server_start_sentinel(&s->sentinels[number], config)) die("no sentinel");
}

int redis_sentinels_start(redis_sentinels **ret) {
  static const char *const args[] = {"--repl-diskless-sync-delay", "0", NULL};
  redis_sentinels *s = calloc(1, sizeof *s);
  if (s == NULL) die("calloc");
  for (int i = 0; i < REDIS_SENTINEL_SERVERS; i++)
    if (!redis_server_start(&s->servers[i], args)) {
      free(s);
      return 0;
    }
  /* sentinels close the connections of a server that they make a replica */
  for (int i = 0; i < REDIS_SENTINEL_SERVERS; i++) redis_server_may_hang_up(s->servers[i]);
  redis_server_ask(s->servers[1], "REPLICAOF 127.0.0.1 %d", redis_server_port(s->servers[0]));
  for (int i = 0; i < REDIS_SENTINELS; i++) start_sentinel(s, i);
  snprintf(s->uri, sizeof s->uri, "redis+sentinel://127.0.0.1:%d,127.0.0.1:%d,127.0.0.1:%d/main",
           redis_server_port(s->sentinels[0]), redis_server_port(s->sentinels[1]),
           redis_server_port(s->sentinels[2]));
  redis_sentinels_await_well(s);
  *ret = s;
  return 1;
}

void redis_sentinels_stop(redis_sentinels *s) {
  if (s == NULL) return;
  for (int i = 0; i < REDIS_SENTINELS; i++) redis_server_stop(s->sentinels[i]);
  for (int i = 0; i < REDIS_SENTINEL_SERVERS; i++) redis_server_stop(s->servers[i]);
  free(s);
}

/* A sentinel refuses while the last failover isn't over. */
int redis_sentinels_fail_over(redis_sentinels *s) {
  int to = 1 - redis_sentinels_primary(s);
  for (int i = 0; i < REDIS_SENTINELS; i++)
    redis_server_ask(s->sentinels[i], "SENTINEL DEBUG publish-period 2000"); /* as by default */
  for (int i = 0; i < STEPS && !all_name(s, to); i++) {
    if (i % AGAIN == 0) redis_server_ask(s->sentinels[0], "SENTINEL FAILOVER main");
    usleep(STEP_US);
  }
  redis_sentinels_await_primary(s, to);
  return to;
}
