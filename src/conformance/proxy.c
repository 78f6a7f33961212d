/* proxy.c: a proxy in front of the store's server that closes, hangs and trickles on demand.
 *
 * One thread accepts; each connection has a thread for each direction. A connection that was hit by
 * a fault is never whole again: it is closed when the fault ends. */
#include "conformance.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "os/env.h"

enum { SERVERS = 64, LINES = 256, CHUNK = 65536, SMALL = 32768, DRIP_MS = 20, URI_ROOM = 2048 };

typedef struct proxy {
  int listener;
  pthread_t acceptor;
  char host[256], port[8]; /* of the server behind it */
} proxy;

/* One connection through a proxy. */
typedef struct line {
  int client, server;
  pthread_t up, down;
} line;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static proxy proxies[SERVERS];
static size_t proxy_count;
static line lines[LINES];
static size_t line_count;
static size_t left; /* bytes of replies until the fault strikes */
static atomic_int mode;
static atomic_size_t replied, connections;
static atomic_bool stopping;

/* ---- the URI ------------------------------------------------------------------------------- */

/* The start of "host:port,host:port" in a URI, and its length; NULL: there is none. */
static const char *hosts_of(const char *uri, size_t *len) {
  const char *at = strstr(uri, "://");
  if (at == NULL) return NULL;
  at += 3;
  size_t all = strcspn(at, "/?");
  for (size_t i = all; i > 0; i--) {
    if (at[i - 1] != '@') continue;
    *len = all - i;
    return at + i;
  }
  *len = all;
  return at;
}

/* Reads the first of a list, "host:port" or "[host]:port"; 0 when it has no port. */
static int read_host(const char *at, size_t len, proxy *p) {
  size_t colon = len;
  while (colon > 0 && at[colon - 1] != ':' && at[colon - 1] != ']') colon--;
  if (colon == 0 || at[colon - 1] != ':') return 0;
  size_t host_len = colon - 1, port_len = len - colon;
  if (host_len >= 2 && at[0] == '[' && at[host_len - 1] == ']') {
    at++;
    host_len -= 2;
    colon -= 1;
  }
  if (host_len >= sizeof p->host || port_len >= sizeof p->port || port_len == 0) return 0;
  snprintf(p->host, sizeof p->host, "%.*s", (int)host_len, host_len == 0 ? "127.0.0.1" : at);
  snprintf(p->port, sizeof p->port, "%.*s", (int)port_len, at + colon);
  if (host_len == 0) snprintf(p->host, sizeof p->host, "127.0.0.1");
  return 1;
}

const char *proxies_refuse(const char *uri) {
  size_t len = 0;
  const char *at = hosts_of(uri, &len);
  const char *unix_scheme = strstr(uri, "+unix:");
  if (unix_scheme != NULL && unix_scheme < strstr(uri, ":"))
    return "the server is at a unix socket";
  if (at == NULL || len == 0) return "the URI names no server";
  proxy_count = 0;
  while (len > 0) {
    size_t one = strcspn(at, ",");
    if (one > len) one = len;
    if (proxy_count == SERVERS) return "the URI names more than 64 servers";
    if (!read_host(at, one, &proxies[proxy_count++]))
      return "the URI doesn't tell the port of each server";
    at += one;
    len -= one;
    if (len > 0) at++, len--;
  }
  return NULL;
}

/* A socket bound to a free port of this host. */
static int bound(int *port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof at;
  int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), small = SMALL;
  check(fd >= 0, "this system gives no further socket");
  (void)setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small);
  check(bind(fd, (struct sockaddr *)&at, sizeof at) == 0 &&
            getsockname(fd, (struct sockaddr *)&at, &len) == 0,
        "this host has no free port: %s", strerror(errno));
  *port = ntohs(at.sin_port);
  return fd;
}

/* Replaces the hosts in the case's URI by ports of this host, one for each server. */
static void replace_hosts(const int *ports) {
  size_t len = 0, used;
  const char *uri = world_uri(), *at = hosts_of(uri, &len);
  char *text = room(URI_ROOM);
  used = (size_t)snprintf(text, URI_ROOM, "%.*s", (int)(at - uri), uri);
  for (size_t i = 0; i < proxy_count && used < URI_ROOM; i++)
    used += (size_t)snprintf(text + used, URI_ROOM - used, "%s127.0.0.1:%d", i > 0 ? "," : "",
                             ports[i]);
  if (used < URI_ROOM) used += (size_t)snprintf(text + used, URI_ROOM - used, "%s", at + len);
  check(used < URI_ROOM, "the URI is longer than %d bytes", URI_ROOM);
  world_set(text, declared());
}

/* ---- connections --------------------------------------------------------------------------- */

static void part(const line *l) {
  shutdown(l->client, SHUT_RDWR);
  shutdown(l->server, SHUT_RDWR);
}

static bool give(int fd, const uint8_t *bytes, size_t size) {
  while (size > 0) {
    ssize_t n = send(fd, bytes, size, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    bytes += n;
    size -= (size_t)n;
  }
  return true;
}

static ssize_t take(int fd, uint8_t *bytes) {
  ssize_t n;
  do n = recv(fd, bytes, CHUNK, 0);
  while (n < 0 && errno == EINTR);
  return n;
}

static void wait_while(int what) {
  while (atomic_load(&mode) == what && !atomic_load(&stopping)) crl_env_sleep_until(now_ms() + 1);
}

static void *go_up(void *arg) {
  const line *l = arg;
  uint8_t bytes[CHUNK];
  for (ssize_t n; (n = take(l->client, bytes)) > 0;) {
    if (atomic_load(&mode) == FAULT_DEAF) {
      wait_while(FAULT_DEAF);
      break;
    }
    if (!give(l->server, bytes, (size_t)n)) break;
  }
  part(l);
  return NULL;
}

static void trickle(int fd, const uint8_t *bytes, size_t size) {
  for (size_t i = 0; i < size && atomic_load(&mode) == FAULT_TRICKLE && !atomic_load(&stopping);
       i++) {
    if (!give(fd, bytes + i, 1)) return;
    pause_ms(DRIP_MS);
  }
  wait_while(FAULT_TRICKLE);
}

/* Passes bytes of a reply to the client, or applies the fault. False: the connection is to end. */
static bool pass_down(const line *l, const uint8_t *bytes, size_t size) {
  int what = atomic_load(&mode);
  atomic_fetch_add(&replied, size);
  if (what == FAULT_NONE || what == FAULT_DEAF) return give(l->client, bytes, size);
  pthread_mutex_lock(&lock);
  size_t pass = size < left ? size : left;
  left -= pass;
  bool strikes = left == 0;
  pthread_mutex_unlock(&lock);
  if (!give(l->client, bytes, pass)) return false;
  if (!strikes) return true;
  if (what == FAULT_HANG) wait_while(FAULT_HANG);
  if (what == FAULT_TRICKLE) trickle(l->client, bytes + pass, size - pass);
  return false;
}

static void *go_down(void *arg) {
  const line *l = arg;
  uint8_t bytes[CHUNK];
  for (ssize_t n; (n = take(l->server, bytes)) > 0;)
    if (!pass_down(l, bytes, (size_t)n)) break;
  part(l);
  return NULL;
}

static int connect_server(const proxy *p) {
  struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list = NULL;
  int fd = -1;
  if (getaddrinfo(p->host, p->port, &hints, &list) != 0) return -1;
  for (struct addrinfo *at = list; at != NULL && fd < 0; at = at->ai_next) {
    fd = socket(at->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, at->ai_addr, at->ai_addrlen) == 0) continue;
    close(fd);
    fd = -1;
  }
  freeaddrinfo(list);
  return fd;
}

static void join_both(const proxy *p, int fd) {
  const int on = 1;
  int server = connect_server(p);
  pthread_mutex_lock(&lock);
  line *l = &lines[line_count];
  if (server < 0 || line_count == LINES || atomic_load(&stopping)) {
    if (server >= 0) close(server);
    close(fd);
  } else {
    line_count++;
    *l = (line){.client = fd, .server = server};
    (void)setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    (void)setsockopt(server, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (crl_env_thread(&l->up, go_up, l) != 0 || crl_env_thread(&l->down, go_down, l) != 0) abort();
  }
  pthread_mutex_unlock(&lock);
}

static void *accept_all(void *arg) {
  const proxy *p = arg;
  while (!atomic_load(&stopping)) {
    int fd = accept4(p->listener, NULL, NULL, SOCK_CLOEXEC);
    atomic_fetch_add(&connections, fd >= 0);
    if (fd >= 0)
      join_both(p, fd);
    else if (errno != EINTR && errno != ECONNABORTED)
      break;
  }
  return NULL;
}

/* ---- all proxies --------------------------------------------------------------------------- */

static void stop_all(void *unused) {
  (void)unused;
  atomic_store(&stopping, true);
  for (size_t i = 0; i < proxy_count; i++) {
    shutdown(proxies[i].listener, SHUT_RDWR);
    pthread_join(proxies[i].acceptor, NULL);
    close(proxies[i].listener);
  }
  proxies_cut();
  for (size_t i = 0; i < line_count; i++) {
    pthread_join(lines[i].up, NULL);
    pthread_join(lines[i].down, NULL);
    close(lines[i].client);
    close(lines[i].server);
  }
}

static void close_all(void *unused) {
  (void)unused;
  for (size_t i = 0; i < proxy_count; i++) close(proxies[i].listener);
}

void proxies_start(void) {
  int ports[SERVERS];
  check(proxies_refuse(world_uri()) == NULL, "no proxy is possible");
  for (size_t i = 0; i < proxy_count; i++) {
    proxies[i].listener = bound(&ports[i]);
    check(listen(proxies[i].listener, LINES) == 0, "listen: %s", strerror(errno));
  }
  for (size_t i = 0; i < proxy_count; i++)
    check(crl_env_thread(&proxies[i].acceptor, accept_all, &proxies[i]) == 0,
          "this system starts no further thread");
  undo_later(stop_all, NULL);
  replace_hosts(ports);
}

void nobody_listens(void) {
  int ports[SERVERS];
  check(proxies_refuse(world_uri()) == NULL, "no proxy is possible");
  for (size_t i = 0; i < proxy_count; i++) proxies[i].listener = bound(&ports[i]);
  undo_later(close_all, NULL);
  replace_hosts(ports);
}

void proxies_set(fault what, size_t after) {
  pthread_mutex_lock(&lock);
  left = after;
  atomic_store(&replied, 0);
  atomic_store(&mode, (int)what);
  pthread_mutex_unlock(&lock);
}

size_t proxies_replied(void) { return atomic_load(&replied); }
size_t proxies_connections(void) { return atomic_load(&connections); }

void proxies_cut(void) {
  pthread_mutex_lock(&lock);
  for (size_t i = 0; i < line_count; i++) part(&lines[i]);
  pthread_mutex_unlock(&lock);
}
