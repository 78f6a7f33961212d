/* http_origin.c: a scripted HTTP/1.1 origin inside the test. */
#include "http_origin.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum {
  PATHS = 256,
  ROOM = 1 << 16,
  LOOK_MS = 2,
  PATIENCE_MS = 30000,
  BACKLOG = 1024,
  STACK = 1 << 18
};

typedef struct path {
  char *name;
  http_answer answer; /* owns its texts */
  int has_answer, seen, running, most_running, released;
  char *last; /* the head of the last request */
} path;

typedef struct connection {
  http_origin *origin;
  int fd; /* -1: closed */
  int is_over;
  pthread_t thread;
  struct connection *next;
  size_t len;
  char in[ROOM + 1];
} connection;

struct http_origin {
  pthread_mutex_t mutex;
  int listener, port, is_stopping, taken;
  char url[48];
  pthread_t acceptor;
  path *paths[PATHS];
  size_t path_count;
  connection *connections;
};

static void die(const char *what) {
  perror(what);
  abort();
}

static void *needed(void *memory) {
  if (memory == NULL) die("malloc");
  return memory;
}

/* ---- paths --------------------------------------------------------------------------------- */

static path *find(http_origin *o, const char *name, size_t len) {
  for (size_t i = 0; i < o->path_count; i++)
    if (strlen(o->paths[i]->name) == len && memcmp(o->paths[i]->name, name, len) == 0)
      return o->paths[i];
  return NULL;
}

static path *find_or_make(http_origin *o, const char *name) {
  path *p = find(o, name, strlen(name));
  if (p != NULL) return p;
  if (o->path_count == PATHS) die("too many paths");
  p = needed(calloc(1, sizeof *p));
  p->name = needed(strdup(name));
  p->answer.status = 404;
  o->paths[o->path_count++] = p;
  return p;
}

static void forget_answer(http_answer *a) {
  free((char *)(uintptr_t)a->headers);
  free((char *)(uintptr_t)a->body);
  free((char *)(uintptr_t)a->etag);
}

static http_answer copy_answer(const http_answer *a) {
  http_answer copy = *a;
  if (copy.status == 0) copy.status = 200;
  if (copy.repeat == 0) copy.repeat = 1;
  if (a->body != NULL && a->body_len == 0) copy.body_len = strlen(a->body);
  if (a->headers != NULL && a->headers_len == 0) copy.headers_len = strlen(a->headers);
  char *headers = needed(malloc(copy.headers_len + 1));
  if (copy.headers_len > 0) memcpy(headers, a->headers, copy.headers_len);
  headers[copy.headers_len] = '\0';
  copy.headers = headers;
  copy.etag = a->etag != NULL ? needed(strdup(a->etag)) : NULL;
  char *body = needed(malloc(copy.body_len + 1));
  if (copy.body_len > 0) memcpy(body, a->body, copy.body_len);
  body[copy.body_len] = '\0';
  copy.body = body;
  return copy;
}

void http_origin_answer(http_origin *o, const char *name, const http_answer *answer) {
  pthread_mutex_lock(&o->mutex);
  path *p = find_or_make(o, name);
  forget_answer(&p->answer);
  p->answer = copy_answer(answer);
  p->has_answer = 1;
  p->released = 0;
  pthread_mutex_unlock(&o->mutex);
}

void http_origin_let(http_origin *o, const char *name) {
  pthread_mutex_lock(&o->mutex);
  find_or_make(o, name)->released = 1;
  pthread_mutex_unlock(&o->mutex);
}

static void count_in(path *p, const char *head) {
  p->seen++;
  if (++p->running > p->most_running) p->most_running = p->running;
  free(p->last);
  p->last = needed(strdup(head));
}

/* ---- a request ----------------------------------------------------------------------------- */

/* Copies the value of a header in `head` to `to`. Returns 0 when it is missing. */
static int header_of(const char *head, const char *name, char *to, size_t room) {
  size_t len = strlen(name);
  for (const char *line = strstr(head, "\r\n"); line != NULL && line[2] != '\r' && line[2] != '\0';
       line = strstr(line, "\r\n")) {
    line += 2;
    if (strncasecmp(line, name, len) != 0 || line[len] != ':') continue;
    line += len + 1;
    line += strspn(line, " \t");
    snprintf(to, room, "%.*s", (int)strcspn(line, "\r"), line);
    return 1;
  }
  return 0;
}

/* False when the client hangs up or the origin stops. */
static int still_there(const connection *c, int ms) {
  struct pollfd p = {.fd = c->fd, .events = POLLRDHUP};
  return poll(&p, 1, ms) == 0;
}

static void hang(const connection *c) {
  while (still_there(c, PATIENCE_MS)) continue;
}

static int put(const connection *c, const char *bytes, size_t len) {
  for (ssize_t n; len > 0; bytes += n, len -= (size_t)n)
    if ((n = send(c->fd, bytes, len, MSG_NOSIGNAL)) <= 0) return 0;
  return 1;
}

static int put_body(const connection *c, const http_answer *a, const char *body, size_t len) {
  size_t most = a->fate == HTTP_FATE_DIES_MID_BODY || a->fate == HTTP_FATE_HANGS_MID_BODY ? len / 2
                                                                                          : len,
         step = a->chunked || a->pause_ms > 0 ? (len + 3) / 4 : len;
  for (size_t at = 0; at < most; at += step) {
    if (at > 0 && a->pause_ms > 0 && !still_there(c, a->pause_ms)) return 0;
    size_t part = most - at < step ? most - at : step;
    char size[24];
    int size_len = snprintf(size, sizeof size, "%zx\r\n", part);
    if (a->chunked && !put(c, size, (size_t)size_len)) return 0;
    if (!put(c, body + at, part)) return 0;
    if (a->chunked && !put(c, "\r\n", 2)) return 0;
  }
  if (a->fate == HTTP_FATE_HANGS_MID_BODY) hang(c);
  if (most < len || a->fate == HTTP_FATE_DIES_MID_BODY) return 0;
  return !a->chunked || put(c, "0\r\n\r\n", 5);
}

static int has_etag(const http_answer *a, const char *head) {
  char given[512];
  return a->etag != NULL && header_of(head, "If-None-Match", given, sizeof given) &&
         strstr(given, a->etag) != NULL;
}

static size_t body_of(const http_answer *a, int number, char **ret) {
  size_t len = a->body_len * a->repeat;
  char *body = needed(malloc(len + 16));
  for (size_t i = 0; i < a->repeat && a->body_len > 0; i++)
    memcpy(body + i * a->body_len, a->body, a->body_len);
  if (a->numbered) len += (size_t)snprintf(body + len, 16, " %d", number);
  *ret = body;
  return len;
}

/* True when the connection may be used for the next request. */
static int answer(const connection *c, const http_answer *a, const char *head, int number) {
  char line[600], *body;
  int unchanged = has_etag(a, head), status = unchanged ? 304 : a->status;
  int has_body = !unchanged && status >= 200 && status != 204 && status != 304 &&
                 strncmp(head, "HEAD ", 5) != 0;
  if (a->fate == HTTP_FATE_DIES) return 0;
  if (a->fate == HTTP_FATE_HANGS) {
    hang(c);
    return 0;
  }
  size_t len = body_of(a, number, &body);
  int n = snprintf(line, sizeof line, "HTTP/1.1 %d Scripted\r\n", status);
  if (a->etag != NULL) n += snprintf(line + n, sizeof line - (size_t)n, "ETag: %s\r\n", a->etag);
  if (a->chunked && status != 204 && !unchanged)
    n += snprintf(line + n, sizeof line - (size_t)n, "Transfer-Encoding: chunked\r\n");
  else if (!a->unsized && status != 204 && status != 304)
    n += snprintf(line + n, sizeof line - (size_t)n, "Content-Length: %zu\r\n", len);
  if (a->closes || a->unsized)
    n += snprintf(line + n, sizeof line - (size_t)n, "Connection: close\r\n");
  int is_well = put(c, line, (size_t)n) && put(c, a->headers, a->headers_len) && put(c, "\r\n", 2);
  if (is_well && has_body) is_well = put_body(c, a, body, len);
  free(body);
  return is_well && !a->closes && !a->unsized;
}

/* Waits until the answer may begin; 0 when the client hung up. */
static int wait_for_turn(const connection *c, const path *p, const http_answer *a) {
  int waits = a->held;
  if (a->delay_ms > 0 && !still_there(c, a->delay_ms)) return 0;
  while (waits) {
    if (!still_there(c, LOOK_MS)) return 0;
    pthread_mutex_lock(&c->origin->mutex);
    waits = p->answer.held && !p->released;
    pthread_mutex_unlock(&c->origin->mutex);
  }
  return 1;
}

static int serve(connection *c, const char *head) {
  http_origin *o = c->origin;
  const char *target = head + strcspn(head, " ");
  if (*target == ' ') target++;
  pthread_mutex_lock(&o->mutex);
  path *all = find_or_make(o, "*"), *p = find(o, target, strcspn(target, " "));
  if (p == NULL) p = find(o, target, strcspn(target, " ?"));
  if (p == NULL) p = all;
  if (p != all) count_in(p, head);
  count_in(all, head);
  int number = p->seen;
  path *source = p->has_answer ? p : all;
  http_answer a = copy_answer(&source->answer);
  pthread_mutex_unlock(&o->mutex);
  int goes_on = wait_for_turn(c, source, &a) && answer(c, &a, head, number);
  pthread_mutex_lock(&o->mutex);
  if (p != all) p->running--;
  all->running--;
  pthread_mutex_unlock(&o->mutex);
  forget_answer(&a);
  return goes_on;
}

/* ---- connections --------------------------------------------------------------------------- */

/* Takes a complete request from the input and copies its head to `head`. Returns 0 when there is
 * none. */
static int take_request(connection *c, char *head) {
  char value[32];
  for (;;) {
    c->in[c->len] = '\0';
    char *end = strstr(c->in, "\r\n\r\n");
    size_t size = end != NULL ? (size_t)(end + 4 - c->in) : 0, body = 0;
    if (end != NULL) {
      memcpy(head, c->in, size);
      head[size] = '\0';
      if (header_of(head, "Content-Length", value, sizeof value)) body = strtoul(value, NULL, 10);
      if (c->len >= size + body) {
        memmove(c->in, c->in + size + body, c->len - size - body);
        c->len -= size + body;
        return 1;
      }
    }
    ssize_t n = c->len < ROOM ? recv(c->fd, c->in + c->len, ROOM - c->len, 0) : 0;
    if (n <= 0) return 0;
    c->len += (size_t)n;
  }
}

static void *run_connection(void *arg) {
  connection *c = arg;
  char *head = needed(malloc(ROOM + 1));
  while (take_request(c, head) && serve(c, head)) continue;
  free(head);
  pthread_mutex_lock(&c->origin->mutex);
  close(c->fd);
  c->fd = -1;
  c->is_over = 1;
  pthread_mutex_unlock(&c->origin->mutex);
  return NULL;
}

/* Joins the threads of connections that are over; all: every connection, each shut down before. */
static void reap(http_origin *o, int all) {
  connection *over = NULL, **at = &o->connections, *c;
  pthread_mutex_lock(&o->mutex);
  while ((c = *at) != NULL) {
    if (!all && !c->is_over) {
      at = &c->next;
      continue;
    }
    *at = c->next;
    c->next = over;
    over = c;
  }
  pthread_mutex_unlock(&o->mutex);
  while ((c = over) != NULL) {
    over = c->next;
    pthread_join(c->thread, NULL);
    free(c);
  }
}

static void take(http_origin *o, int fd) {
  int one = 1;
  pthread_attr_t attr;
  connection *c = needed(calloc(1, sizeof *c));
  c->origin = o;
  c->fd = fd;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  pthread_attr_init(&attr);
  pthread_attr_setstacksize(&attr, STACK);
  pthread_mutex_lock(&o->mutex);
  c->next = o->connections;
  o->connections = c;
  o->taken++;
  if (pthread_create(&c->thread, &attr, run_connection, c) != 0) die("pthread_create");
  pthread_mutex_unlock(&o->mutex);
  pthread_attr_destroy(&attr);
}

static void *run_acceptor(void *arg) {
  http_origin *o = arg;
  for (int fd; (fd = accept4(o->listener, NULL, NULL, SOCK_CLOEXEC)) >= 0;) {
    reap(o, 0);
    take(o, fd);
  }
  return NULL;
}

/* ---- up and down --------------------------------------------------------------------------- */

static int listens_at(http_origin *o, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int one = 1;
  at.sin_port = htons((uint16_t)port);
  o->port = port;
  o->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (o->listener < 0) die("socket");
  setsockopt(o->listener, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
  if (bind(o->listener, (struct sockaddr *)&at, sizeof at) == 0 &&
      listen(o->listener, BACKLOG) == 0)
    return 1;
  close(o->listener);
  return 0;
}

static void begin(http_origin *o) {
  if (pthread_create(&o->acceptor, NULL, run_acceptor, o) != 0) die("pthread_create");
}

http_origin *http_origin_start(void) {
  http_origin *o = needed(calloc(1, sizeof *o));
  pthread_mutex_init(&o->mutex, NULL);
  for (int i = 0, is_up = 0; !is_up; i++) {
    uint16_t random = 0;
    if (i == 200) die("no free port");
    if (getrandom(&random, sizeof random, 0) < 0) die("getrandom");
    is_up = listens_at(o, 20000 + random % 12000);
  }
  snprintf(o->url, sizeof o->url, "http://127.0.0.1:%d", o->port);
  begin(o);
  return o;
}

void http_origin_down(http_origin *o) {
  if (o->listener < 0) return;
  shutdown(o->listener, SHUT_RDWR); /* ends accept */
  pthread_join(o->acceptor, NULL);
  close(o->listener);
  o->listener = -1;
  pthread_mutex_lock(&o->mutex);
  for (connection *c = o->connections; c != NULL; c = c->next)
    if (c->fd >= 0) shutdown(c->fd, SHUT_RDWR);
  pthread_mutex_unlock(&o->mutex);
  reap(o, 1);
}

void http_origin_up(http_origin *o) {
  if (o->listener >= 0) return;
  if (!listens_at(o, o->port)) die("the port of the origin was taken");
  begin(o);
}

void http_origin_stop(http_origin *o) {
  if (o == NULL) return;
  http_origin_down(o);
  for (size_t i = 0; i < o->path_count; i++) {
    forget_answer(&o->paths[i]->answer);
    free(o->paths[i]->name);
    free(o->paths[i]->last);
    free(o->paths[i]);
  }
  pthread_mutex_destroy(&o->mutex);
  free(o);
}

int http_origin_port(const http_origin *o) { return o->port; }
const char *http_origin_url(const http_origin *o) { return o->url; }

/* ---- counters ------------------------------------------------------------------------------ */

static path counts(http_origin *o, const char *name) {
  pthread_mutex_lock(&o->mutex);
  path p = *find_or_make(o, name);
  pthread_mutex_unlock(&o->mutex);
  return p;
}

int http_origin_seen(http_origin *o, const char *name) { return counts(o, name).seen; }
int http_origin_running(http_origin *o, const char *name) { return counts(o, name).running; }
int http_origin_most_running(http_origin *o, const char *name) {
  return counts(o, name).most_running;
}

int http_origin_connections(http_origin *o) {
  pthread_mutex_lock(&o->mutex);
  int taken = o->taken;
  pthread_mutex_unlock(&o->mutex);
  return taken;
}

int http_origin_await_seen(http_origin *o, const char *name, int count) {
  for (int i = 0; i < PATIENCE_MS / LOOK_MS && http_origin_seen(o, name) < count; i++)
    poll(NULL, 0, LOOK_MS);
  return http_origin_seen(o, name) >= count;
}

int http_origin_await_running(http_origin *o, const char *name, int count) {
  for (int i = 0; i < PATIENCE_MS / LOOK_MS && http_origin_running(o, name) != count; i++)
    poll(NULL, 0, LOOK_MS);
  return http_origin_running(o, name) == count;
}

const char *http_origin_header(http_origin *o, const char *path_name, const char *name) {
  static _Thread_local char value[8192];
  int is_there = 0;
  pthread_mutex_lock(&o->mutex);
  const char *head = find_or_make(o, path_name)->last;
  if (head != NULL && name[0] == ':') {
    const char *target = head + strcspn(head, " ");
    if (strcmp(name, ":method") == 0)
      snprintf(value, sizeof value, "%.*s", (int)(target - head), head);
    else
      snprintf(value, sizeof value, "%.*s", (int)strcspn(target + 1, " \r"), target + 1);
    is_there = 1;
  } else if (head != NULL) {
    is_there = header_of(head, name, value, sizeof value);
  }
  pthread_mutex_unlock(&o->mutex);
  return is_there ? value : NULL;
}
