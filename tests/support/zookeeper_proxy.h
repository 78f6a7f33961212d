/* zookeeper_proxy.h: a proxy that loses messages on demand. One connection at a time. */
#ifndef ZOOKEEPER_PROXY_H
#define ZOOKEEPER_PROXY_H

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <unistd.h>

#include "support/server_process.h"
#include "support/zookeeper_kit.h"

/* CUTS: the connection is closed, held bytes are dropped, then PASSES */
enum { PASSES = 0, LOSES_A_REPLY, HOLDS_ALL, CUTS };

typedef struct proxy {
  int listener, client, server, port, server_port, stop[2];
  atomic_int mode;
  atomic_int lost; /* lost replies */
  char needle[40]; /* LOSES_A_REPLY: bytes of the request whose reply is lost */
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

/* Carries bytes from one side to the other. A request with the needle is sent to the server; its
 * reply is dropped, and the connection closed. */
static inline void proxy_carry(proxy *p, int from, int to) {
  static char bytes[1 << 16];
  ssize_t n = recv(from, bytes, sizeof bytes, 0);
  int found = n > 0 && from == p->client && atomic_load(&p->mode) == LOSES_A_REPLY &&
              memmem(bytes, (size_t)n, p->needle, strlen(p->needle)) != NULL;
  if (n <= 0 || send(to, bytes, (size_t)n, MSG_NOSIGNAL) != n) {
    proxy_hang_up(p);
  } else if (found) {
    do n = recv(p->server, bytes, sizeof bytes, 0);
    /* the reply contains the node's name too */
    while (n > 0 && memmem(bytes, (size_t)n, p->needle, strlen(p->needle)) == NULL);
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
    struct pollfd fds[] = {{.fd = p->stop[0], .events = POLLIN},
                           {.fd = holds ? -1 : p->listener, .events = POLLIN},
                           {.fd = holds ? -1 : p->client, .events = POLLIN},
                           {.fd = holds ? -1 : p->server, .events = POLLIN}};
    poll(fds, 4, 5);
    if (fds[0].revents != 0) return NULL;
    if (fds[1].revents != 0)
      proxy_accept(p);
    else if (fds[2].revents != 0)
      proxy_carry(p, p->client, p->server);
    else if (fds[3].revents != 0)
      proxy_carry(p, p->server, p->client);
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
