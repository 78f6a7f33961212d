/* zookeeper_kit.h: lock verbs through a plugin's table, in one line each, and a proxy that loses what it is told to. For tests of the ZooKeeper plugin. */
#ifndef ZOOKEEPER_KIT_H
#define ZOOKEEPER_KIT_H

#include <sys/prctl.h>

#include "support/server_process.h"
#include "support/watch_kit.h"

enum { LEASE_MS = 60000, WISH_MS = 20000, PATIENT_MS = 10000 };

static inline void nap_ms(int64_t ms) { crl_env_sleep_until(crl_env_now_ms() + ms); }

/* A lock verb; what it left in `error` is dropped. */
static inline corral_op ask_within(const kit *k, corral_verb what, const char *key, unsigned holder, uint32_t flags, int64_t lease_ms, int64_t wish_ms,
                                   int64_t limit_ms) {
  corral_error error = {0};
  corral_op op = op_of(what, key, holder);
  op.flags = flags;
  op.lease_ms = lease_ms;
  op.ttl_ms = wish_ms;
  op.error = &error;
  op.record = (const uint8_t *)"who";
  op.record_len = 3;
  (void)k->plugin->perform(k->handle, &op, 1, k->host->now_ms() + limit_ms, &error);
  op.error = NULL;
  return op;
}

static inline corral_op ask(const kit *k, corral_verb what, const char *key, unsigned holder, uint32_t flags, int64_t wish_ms) {
  return ask_within(k, what, key, holder, flags, LEASE_MS, wish_ms, PATIENT_MS);
}

static inline int tries(const kit *k, const char *key, unsigned holder, uint32_t flags) { return ask(k, CORRAL_VERB_LOCK, key, holder, flags, 0).status; }
static inline int waits(const kit *k, const char *key, unsigned holder, uint32_t flags) {
  corral_op op = ask(k, CORRAL_VERB_LOCK, key, holder, flags, WISH_MS);
  assert_int_equal((op.flags & CORRAL_OP_QUEUED) != 0, op.status == CORRAL_EBUSY);
  return op.status;
}
static inline int extends(const kit *k, const char *key, unsigned holder) { return ask(k, CORRAL_VERB_LOCK_EXTEND, key, holder, 0, 0).status; }
static inline int unlocks(const kit *k, const char *key, unsigned holder) { return ask(k, CORRAL_VERB_UNLOCK, key, holder, 0, 0).status; }

/* How many hold it, the first of them in *first (may be NULL). */
static inline size_t shown(const kit *k, const char *key, corral_hold *first, int64_t *store_now) {
  corral_op op = ask(k, CORRAL_VERB_LOCK_SHOW, key, 0, 0, 0);
  crl_lock_head head = {0};
  if (op.status == CORRAL_EMISS) return 0;
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(crl_lock_record_read(op.found, op.found_len, &head), CORRAL_OK);
  if (first != NULL) crl_lock_record_hold(op.found, 0, first);
  if (store_now != NULL) *store_now = op.life_ms;
  done(&op);
  return head.count;
}

/* Repeats a try until it is granted; in how many ms it was. Fails after `most`. */
static inline int64_t gets_within(const kit *k, const char *key, unsigned holder, int64_t most) {
  int64_t from = k->host->now_ms();
  while (tries(k, key, holder, 0) != CORRAL_OK) {
    if (k->host->now_ms() - from > most) fail_msg("%s wasn't free within %lld ms", key, (long long)most);
    nap_ms(10);
  }
  return k->host->now_ms() - from;
}

/* ---- a proxy: one connection at a time -------------------------------------------------------------------- */

enum { PASSES = 0, LOSES_A_REPLY, HOLDS_ALL, CUTS }; /* CUTS: what was held is lost with the connection, then PASSES */

typedef struct proxy {
  int listener, client, server, port, server_port, stop[2];
  atomic_int mode;
  atomic_int lost; /* replies */
  char needle[40]; /* LOSES_A_REPLY: to the request that has this */
  pthread_t thread;
} proxy;

static inline void proxy_hang_up(proxy *p) {
  if (p->client >= 0) close(p->client);
  if (p->server >= 0) close(p->server);
  p->client = p->server = -1;
}

static inline void proxy_accept(proxy *p) {
  proxy_hang_up(p);
  p->client = accept(p->listener, NULL, NULL);
  p->server = server_process_dial(p->server_port);
  if (p->server < 0) proxy_hang_up(p);
}

/* From one side to the other; a request that has the needle is sent, and its reply is lost with the connection. */
static inline void proxy_carry(proxy *p, int from, int to) {
  static char bytes[1 << 16];
  ssize_t n = recv(from, bytes, sizeof bytes, 0);
  int found = n > 0 && from == p->client && atomic_load(&p->mode) == LOSES_A_REPLY && memmem(bytes, (size_t)n, p->needle, strlen(p->needle)) != NULL;
  if (n <= 0 || send(to, bytes, (size_t)n, MSG_NOSIGNAL) != n) {
    proxy_hang_up(p);
  } else if (found) {
    do n = recv(p->server, bytes, sizeof bytes, 0);
    while (n > 0 && memmem(bytes, (size_t)n, p->needle, strlen(p->needle)) == NULL); /* the reply names the node too */
    atomic_store(&p->mode, PASSES);
    atomic_fetch_add(&p->lost, 1);
    proxy_hang_up(p);
  }
}

static inline void *proxy_run(void *arg) {
  proxy *p = arg;
  for (;;) {
    int mode = atomic_load(&p->mode), holds = mode == HOLDS_ALL;
    if (mode == CUTS) {
      proxy_hang_up(p);
      atomic_store(&p->mode, PASSES);
    }
    struct pollfd fds[] = {{.fd = p->stop[0], .events = POLLIN}, {.fd = holds ? -1 : p->listener, .events = POLLIN},
                           {.fd = holds ? -1 : p->client, .events = POLLIN}, {.fd = holds ? -1 : p->server, .events = POLLIN}};
    poll(fds, 4, 5);
    if (fds[0].revents != 0) return NULL;
    if (fds[1].revents != 0) proxy_accept(p);
    else if (fds[2].revents != 0) proxy_carry(p, p->client, p->server);
    else if (fds[3].revents != 0) proxy_carry(p, p->server, p->client);
  }
}

static inline proxy *proxy_start(int server_port) {
  proxy *p = calloc(1, sizeof *p);
  assert_non_null(p);
  p->client = p->server = -1;
  p->server_port = server_port;
  p->listener = server_process_bind(&p->port);
  assert_int_equal(listen(p->listener, 4), 0);
  assert_int_equal(pipe(p->stop), 0);
  assert_int_equal(pthread_create(&p->thread, NULL, proxy_run, p), 0);
  return p;
}

static inline void proxy_stop(proxy *p) {
  assert_int_equal(write(p->stop[1], "", 1), 1);
  pthread_join(p->thread, NULL);
  proxy_hang_up(p);
  close(p->listener);
  close(p->stop[0]);
  close(p->stop[1]);
  free(p);
}

#endif
