/* redis_watch_kit.h: a watch of the Redis plugin, and the hashes that it reported. */
#ifndef REDIS_WATCH_KIT_H
#define REDIS_WATCH_KIT_H

#include "support/redis_kit.h"

enum { SOON = 30000, NOTED = 256 };

typedef struct notes {
  uint64_t hashes[NOTED];
  size_t count;
} notes;

static inline void note(void *arg, uint64_t hash) {
  notes *n = arg;
  n->hashes[n->count++ % NOTED] = hash;
}

static inline int has(const notes *n, uint64_t hash) {
  for (size_t i = 0; i < n->count && i < NOTED; i++)
    if (n->hashes[i] == hash) return 1;
  return 0;
}

static inline uint64_t hash_of(const char *key) {
  return crl_registry_host()->hash64(key, strlen(key));
}

static inline int watches(client *c, void **ret) {
  return crl_plugin_redis.watch(c->store, 0, c->host->now_ms() + LIMIT, ret, &c->error);
}

static inline void *watching(client *c) {
  void *watch = NULL;
  if (watches(c, &watch) != CORRAL_OK) fail_msg("%s", c->error.text);
  return watch;
}

/* Calls `changes` for `ms`; adds the reported hashes to `n`. */
static inline int hears(client *c, void *watch, int64_t ms, notes *n) {
  return crl_plugin_redis.changes(watch, -1, c->host->now_ms() + ms, note, n, &c->error);
}

/* Waits up to SOON ms for `hash`; returns true when it is reported. All reported hashes go to
 * `n`. */
static inline int told(client *c, void *watch, uint64_t hash, notes *n) {
  int64_t until = c->host->now_ms() + SOON;
  while (!has(n, hash) && c->host->now_ms() < until)
    if (hears(c, watch, until - c->host->now_ms(), n) != CORRAL_OK) fail_msg("%s", c->error.text);
  return has(n, hash);
}

static inline int told_of(client *c, void *watch, const char *key) {
  notes n = {.count = 0};
  return told(c, watch, hash_of(key), &n);
}

/* Registers keys; the status of the registration as a whole. */
static inline int registers(client *c, void *watch, corral_registration *keys, size_t count) {
  for (size_t i = 0; i < count; i++) keys[i].status = CORRAL_EINDOUBT;
  return crl_plugin_redis.register_keys(watch, keys, count, -1, c->host->now_ms() + LIMIT,
                                        &c->error);
}

/* Registers a key; the status of the key. */
static inline int follows_bytes(client *c, void *watch, const void *key, size_t key_len) {
  corral_registration r = {.key = key, .key_len = key_len};
  if (registers(c, watch, &r, 1) != CORRAL_OK) fail_msg("%s", c->error.text);
  return r.status;
}

/* True when the watch will report the key's next change. */
static inline int follows(client *c, void *watch, const char *key) {
  int status = follows_bytes(c, watch, key, strlen(key));
  return status == CORRAL_OK || status == CORRAL_EMISS || status == CORRAL_EFOREIGN;
}

/* Closes the connections of watches, or all other ones, on the server's side. */
static inline void kill_clients(int watches_only) {
  char *list = strdup(redis_server_ask(server, "CLIENT LIST")), *rest = NULL;
  for (char *line = strtok_r(list, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
    int is_watch = strstr(line, " flags=t") != NULL;
    char command[64];
    if (is_watch != watches_only || strstr(line, "name=corral") == NULL) continue;
    snprintf(command, sizeof command, "CLIENT KILL ID %lld", strtoll(line + 3, NULL, 10));
    redis_server_ask(server, command);
  }
  free(list);
}

static inline void kill_watches(void) { kill_clients(1); }
static inline void kill_handles(void) { kill_clients(0); }

/* All hashes reported so far: registers and changes a key "fence", and listens until that is
 * reported. */
static inline notes told_so_far(client *c, void *watch) {
  notes n = {.count = 0};
  redis_server_ask(server, "DEL fence");
  assert_true(follows(c, watch, "fence"));
  redis_server_ask(server, "SET fence x");
  assert_true(told(c, watch, hash_of("fence"), &n));
  return n;
}

/* Executions of a command, or of "client|caching" and the like; rejected ones count. */
static inline long long calls(const char *command) {
  char name[64];
  snprintf(name, sizeof name, "cmdstat_%s:", command);
  const char *line = strstr(redis_server_ask(server, "INFO commandstats"), name);
  if (line == NULL) return 0;
  const char *rejected = strstr(line, "rejected_calls=");
  return strtoll(strstr(line, "calls=") + 6, NULL, 10) +
         (rejected != NULL ? strtoll(rejected + 15, NULL, 10) : 0);
}

#endif
