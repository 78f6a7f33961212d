/* body_proxy.c: a proxy that interferes in the middle of a body, or between requests. Two threads
 * for each connection. */
#include "support/body_proxy.h"

#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "support/server_process.h"

enum { LINES = 128, CHUNK = 32 << 10, PAUSE_MS = 8 };

typedef struct line {
  body_proxy *proxy;
  int client, server;
  size_t passed; /* bytes of replies so far */
  atomic_int watches, is_silent;
  pthread_t up, down;
} line;

struct body_proxy {
  int listener, port, server_port;
  body_way way;
  size_t after;
  void (*then)(void *arg);
  void *arg;
  pthread_t acceptor;
  line lines[LINES];
  atomic_int count;
  atomic_int strikes, stopping, holding;
};

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000L}, NULL); }
static void waiter(void) { pause_ms(PAUSE_MS); }

static int give(int fd, const char *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
    if (n <= 0) return 0;
    bytes += n;
    size -= (size_t)n;
  }
  return 1;
}

static void part(const line *l) {
  shutdown(l->client, SHUT_RDWR);
  shutdown(l->server, SHUT_RDWR);
}

static int has_hung_up(const line *l) {
  struct pollfd client = {.fd = l->client, .events = POLLRDHUP};
  return poll(&client, 1, 0) > 0;
}

/* Keeps a request back as long as the proxy's way says. 0: its client has hung up meanwhile. */
static int keep_back(line *l) {
  body_proxy *p = l->proxy;
  if (p->way == BODY_LAGS) pause_ms(BODY_LAG_MS);
  if (p->way == BODY_HOLDS && atomic_load(&p->holding)) atomic_fetch_add(&p->strikes, 1);
  while (p->way == BODY_HOLDS && atomic_load(&p->holding) && !atomic_load(&p->stopping)) waiter();
  return (p->way != BODY_HOLDS && p->way != BODY_LAGS) || !has_hung_up(l);
}

/* 1: these bytes are lost. Notes a connection that becomes a watch. */
static int is_silenced(line *l, const char *bytes, size_t size) {
  if (l->proxy->way != BODY_SILENCES_WATCHES) return 0;
  if (memmem(bytes, size, "TRACKING", 8) != NULL) atomic_store(&l->watches, 1);
  return atomic_load(&l->is_silent);
}

static void *go_up(void *arg) {
  line *l = arg;
  static _Thread_local char bytes[CHUNK];
  for (ssize_t n; (n = recv(l->client, bytes, sizeof bytes, 0)) > 0;) {
    if (is_silenced(l, bytes, (size_t)n)) continue;
    if (!keep_back(l) || !give(l->server, bytes, (size_t)n)) break;
    if (l->proxy->way == BODY_GOES_SLOWLY && n == sizeof bytes) waiter();
  }
  part(l);
  return NULL;
}

/* Applies the proxy's way to these bytes. 0: the connection passes nothing more. */
static int strike(line *l, const char *bytes, size_t size) {
  body_proxy *p = l->proxy;
  if (atomic_fetch_add(&p->strikes, 1) == 0 && p->way == BODY_TELLS) p->then(p->arg);
  if (p->way == BODY_TELLS) return give(l->client, bytes, size);
  for (size_t i = 0; !atomic_load(&p->stopping); i = (i + 1) % size) {
    waiter();
    if (p->way == BODY_TRICKLES && !give(l->client, bytes + i, 1)) break;
  }
  return 0;
}

static void *go_down(void *arg) {
  line *l = arg;
  body_proxy *p = l->proxy;
  static _Thread_local char bytes[CHUNK];
  for (ssize_t n; (n = recv(l->server, bytes, sizeof bytes, 0)) > 0;) {
    int was_struck = l->passed >= p->after;
    if (is_silenced(l, bytes, (size_t)n)) {
      atomic_fetch_add(&p->strikes, 1);
      continue;
    }
    l->passed += (size_t)n;
    int strikes = p->way < BODY_GOES_SLOWLY && !was_struck && l->passed >= p->after;
    if (!(strikes ? strike(l, bytes, (size_t)n) : give(l->client, bytes, (size_t)n))) break;
  }
  part(l);
  return NULL;
}

static void *accept_all(void *arg) {
  body_proxy *p = arg;
  for (int fd; (fd = accept(p->listener, NULL, NULL)) >= 0;) {
    int server = server_process_dial(p->server_port);
    if (server < 0 || p->count == LINES || atomic_load(&p->stopping)) {
      if (server >= 0) close(server);
      close(fd);
      continue;
    }
    line *l = &p->lines[p->count];
    *l = (line){.proxy = p, .client = fd, .server = server};
    atomic_fetch_add(&p->count, 1);
    if (pthread_create(&l->up, NULL, go_up, l) != 0 ||
        pthread_create(&l->down, NULL, go_down, l) != 0)
      server_process_die("proxy", "thread");
  }
  return NULL;
}

body_proxy *body_proxy_start(int server_port, body_way way, size_t after, void (*then)(void *arg),
                             void *arg) {
  body_proxy *p = calloc(1, sizeof *p);
  if (p == NULL) server_process_die("proxy", "calloc");
  p->server_port = server_port;
  p->way = way;
  p->after = after;
  p->then = then;
  p->arg = arg;
  p->listener = server_process_bind(&p->port);
  if (listen(p->listener, 16) != 0 || pthread_create(&p->acceptor, NULL, accept_all, p) != 0)
    server_process_die("proxy", "start");
  return p;
}

int body_proxy_port(const body_proxy *proxy) { return proxy->port; }

int body_proxy_strikes(body_proxy *proxy) { return atomic_load(&proxy->strikes); }

void body_proxy_hold(body_proxy *proxy) {
  for (int i = 0; i < atomic_load(&proxy->count); i++)
    if (atomic_load(&proxy->lines[i].watches)) atomic_store(&proxy->lines[i].is_silent, 1);
  atomic_store(&proxy->holding, 1);
}

void body_proxy_pass(body_proxy *proxy) { atomic_store(&proxy->holding, 0); }

void body_proxy_stop(body_proxy *proxy) {
  atomic_store(&proxy->stopping, 1);
  shutdown(proxy->listener, SHUT_RDWR);
  pthread_join(proxy->acceptor, NULL);
  for (int i = 0; i < proxy->count; i++) {
    line *l = &proxy->lines[i];
    part(l);
    pthread_join(l->up, NULL);
    pthread_join(l->down, NULL);
    close(l->client);
    close(l->server);
  }
  close(proxy->listener);
  free(proxy);
}
