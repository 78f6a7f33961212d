/* stream.c: the first byte of a slow answer through nginx with the module, for one client and for
 * 21 at once, beside the same nginx with proxy_pass alone.
 *
 *   bench_stream [MODULE]
 *
 * The origin sends ten parts, 300 ms apart, the first one 300 ms after the request. Rounds take
 * turns; each figure is the median of its rounds. The goal is a ratio of 1.1, else the exit status
 * is 1. */
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "kit.h"

#include "support/nginx_server.h"
#include "support/redis_server.h"
#include "support/server_process.h"

enum { CLIENTS = 21, ROUNDS = 3, PARTS = 10, PART_MS = 300 };

/* ---- the origin ---------------------------------------------------------------------------- */

static atomic_int asked;

static void *answer(void *arg) {
  int fd = (int)(intptr_t)arg;
  char request[4096];
  size_t size = 0;
  ssize_t n = 1;
  static const char header[] = "HTTP/1.1 200 OK\r\nCache-Control: max-age=60\r\n"
                               "Content-Length: 10\r\n\r\n";
  request[0] = '\0';
  while (n > 0 && strstr(request, "\r\n\r\n") == NULL && size < sizeof request - 1) {
    n = recv(fd, request + size, sizeof request - 1 - size, 0);
    if (n > 0) size += (size_t)n;
    request[size] = '\0';
  }
  atomic_fetch_add(&asked, 1);
  for (int i = 0; i < PARTS; i++) {
    nanosleep(&(struct timespec){.tv_nsec = PART_MS * 1000000L}, NULL);
    if (i == 0) n = send(fd, header, sizeof header - 1, MSG_NOSIGNAL | MSG_MORE);
    n = send(fd, "x", 1, MSG_NOSIGNAL);
  }
  close(fd);
  return NULL;
}

static void *accept_all(void *arg) {
  int fd = (int)(intptr_t)arg, one;
  pthread_t thread;
  while ((one = accept(fd, NULL, NULL)) >= 0) {
    if (pthread_create(&thread, NULL, answer, (void *)(intptr_t)one) != 0) die("pthread_create");
    pthread_detach(thread);
  }
  return NULL;
}

static int start_origin(void) {
  int port, fd = server_process_bind(&port);
  pthread_t thread;
  if (listen(fd, 128) != 0) die("listen");
  if (pthread_create(&thread, NULL, accept_all, (void *)(intptr_t)fd) != 0) die("pthread_create");
  pthread_detach(thread);
  return port;
}

/* ---- clients ------------------------------------------------------------------------------- */

typedef struct client {
  int fd;
  size_t size;
  char text[2048];
  double first_us; /* of the body's first byte, since the request; 0: not yet */
} client;

/* True at the end. */
static int reads(client *c, double begun) {
  ssize_t n = recv(c->fd, c->text + c->size, sizeof c->text - 1 - c->size, 0);
  if (n > 0) c->size += (size_t)n;
  c->text[c->size] = '\0';
  const char *body = strstr(c->text, "\r\n\r\n");
  if (c->first_us == 0 && body != NULL && body[4] != '\0') c->first_us = now_us() - begun;
  if (n > 0) return 0;
  if (body == NULL || strcmp(body + 4, "xxxxxxxxxx") != 0) die("not the whole answer");
  close(c->fd);
  c->fd = -1;
  return 1;
}

/* All ask for this path at once. Returns when the last one has the first byte, in us. */
static double first_byte(int port, const char *path, int count) {
  static client clients[CLIENTS];
  struct pollfd fds[CLIENTS];
  char request[256];
  double last = 0;
  int len = snprintf(request, sizeof request,
                     "GET %s HTTP/1.1\r\nHost: bench\r\nConnection: close\r\n\r\n", path);
  for (int i = 0; i < count; i++) {
    clients[i] = (client){.fd = server_process_dial(port)};
    fds[i] = (struct pollfd){.fd = clients[i].fd, .events = POLLIN};
  }
  double begun = now_us();
  for (int i = 0; i < count; i++)
    if (send(clients[i].fd, request, (size_t)len, 0) != len) die("send");
  for (int left = count; left > 0;) {
    if (poll(fds, (nfds_t)count, 30000) <= 0) die("no answer");
    for (int i = 0; i < count; i++)
      if (fds[i].revents != 0 && reads(&clients[i], begun)) fds[i].fd = -1, left--;
  }
  for (int i = 0; i < count; i++)
    if (clients[i].first_us > last) last = clients[i].first_us;
  return last;
}

/* ---- both ---------------------------------------------------------------------------------- */

static nginx_server *start_nginx(const char *module, const char *store, int origin) {
  nginx_server *server;
  char main_lines[4096], http[4096];
  snprintf(main_lines, sizeof main_lines, "load_module %s;", module);
  snprintf(http, sizeof http,
           "corral_zone pages store=%s near=off;\n"
           "server { listen 127.0.0.1:%%PORT%%;\n"
           "  proxy_buffering off;\n"
           "  location /plain/ { proxy_pass http://127.0.0.1:%d; }\n"
           "  location /corral/ { corral pages; proxy_pass http://127.0.0.1:%d; } }",
           store, origin, origin);
  return nginx_server_start(&server, &(nginx_plan){.http = http, .main = main_lines}) ? server
                                                                                      : NULL;
}

/* Prints a line; returns the ratio. */
static double compare(int port, const char *what, int count) {
  double plain[ROUNDS], corral[ROUNDS];
  char path[64];
  int requests = 0;
  for (int i = 0; i < ROUNDS; i++) {
    snprintf(path, sizeof path, "/plain/%d/%d", count, i);
    plain[i] = first_byte(port, path, count);
    int before = atomic_load(&asked);
    snprintf(path, sizeof path, "/corral/%d/%d", count, i);
    corral[i] = first_byte(port, path, count);
    requests += atomic_load(&asked) - before;
  }
  double floor = median(plain, ROUNDS), now = median(corral, ROUNDS);
  printf("%-26s proxy_pass %.1f ms, corral %.1f ms, ratio %.3f, of %d rounds, requests %d\n", what,
         floor / 1000, now / 1000, now / floor, ROUNDS, requests);
  return now / floor;
}

int main(int argc, char **argv) {
  const char *module = argc > 1 ? argv[1] : BENCH_NGINX_MODULE;
  redis_server *redis;
  if (!redis_server_start(&redis, NULL)) return 77;
  nginx_server *server = start_nginx(module, redis_server_unix_uri(redis), start_origin());
  if (server == NULL) return 77;
  int port = nginx_server_port(server);
  double alone = compare(port, "alone", 1), all = compare(port, "the last of 21 at once", CLIENTS);
  nginx_server_stop(server);
  redis_server_stop(redis);
  return alone <= 1.1 && all <= 1.1 ? 0 : 1;
}
