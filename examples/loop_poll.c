/* loop_poll.c: a line server on poll(2). "GET key" is answered with the key's row, once for each
 * connection. The first call for a row begins a query, and hundreds of other calls wait for that
 * query, without a thread. A client that hangs up leaves its call; the query goes on.
 *
 *   loop_poll [STORE]    prints its port of 127.0.0.1; ends on SIGTERM, or when its input ends
 *
 * cc loop_poll.c $(pkg-config --cflags --libs corral) -o loop_poll */
#include <corral/loop.h>
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>
#include <unistd.h>

enum { QUERY_MS = 100, CLIENTS = 1000, LINE = 256, INPUT = 0, SIGNAL, LISTENER, LOOP, FIRST };

typedef struct client {
  int fd, asks; /* fd -1: hung up; asks: it began a call whose `gone` has not come */
  corral_async_call *call;
  size_t len, left; /* bytes of `line`; of the answer, which are still to be sent */
  const char *answer;
  corral_value *value; /* has the answer; NULL: `line` has it */
  char line[LINE];
} client;

typedef struct query {
  struct query *next;
  corral_fill *fill;
  int64_t due;
} query;

static corral_loop *loop;
static client clients[CLIENTS];                 /* an element is free without fd and call */
static query *queries, **last_query = &queries; /* in the order of their ends */
static struct pollfd fds[FIRST + CLIENTS];

static int64_t now_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* Begins the query: stands for a database's asynchronous client. */
static void begin_query(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  query *q = malloc(sizeof *q);
  (void)arg, (void)key, (void)key_len;
  if (q == NULL) {
    corral_fill_abandon(fill);
    return;
  }
  *q = (query){.fill = fill, .due = now_ms() + QUERY_MS};
  *last_query = q;
  last_query = &q->next;
}

static void end_query(int answers) {
  static int number;
  char row[2 * LINE];
  query *q = queries;
  size_t len;
  const char *key = corral_fill_key(q->fill, &len);
  snprintf(row, sizeof row, "the row of %.*s, by query %d\n", (int)len, key, ++number);
  if (answers && corral_fill_bytes(q->fill, row, strlen(row)) == CORRAL_OK)
    corral_fill_done(q->fill);
  else
    corral_fill_abandon(q->fill);
  if ((queries = q->next) == NULL) last_query = &queries;
  free(q);
}

static void hang_up(client *c) {
  if (c->fd >= 0) close(c->fd);
  c->fd = -1;
  c->left = 0;
  corral_async_call_cancel(c->call);
  c->call = NULL;
  corral_value_unref(c->value);
  c->value = NULL;
}

/* Sends as much of the answer as the socket takes now; the end of it hangs up. */
static void send_some(client *c) {
  while (c->left > 0) {
    ssize_t n = send(c->fd, c->answer, c->left, MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return; /* turn() waits for room */
    if (n < 0) break;
    c->answer += n;
    c->left -= (size_t)n;
  }
  hang_up(c);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  client *c = arg;
  c->call = NULL;
  c->value = value;
  if (status != CORRAL_OK) snprintf(c->line, LINE, "%.200s\n", error->text);
  c->answer = status == CORRAL_OK ? corral_value_data(value) : c->line;
  c->left = status == CORRAL_OK ? corral_value_size(value) : strlen(c->line);
  send_some(c);
}

static void on_gone(void *arg) {
  client *c = arg;
  c->call = NULL; /* `done` was not called if the loop was closed */
  c->asks = 0;
}

static void on_input(client *c) {
  ssize_t n = recv(c->fd, c->line + c->len, LINE - c->len, MSG_DONTWAIT);
  if (n > 0) c->len += (size_t)n;
  char *end = memchr(c->line, '\n', c->len);
  if (n > 0 && (c->call != NULL || end == NULL)) return;
  const corral_async *async =
      CORRAL_ASYNC(.done = on_done, .start = begin_query, .gone = on_gone, .arg = c);
  if (n > 0 && memcmp(c->line, "GET ", 4) == 0)
    c->asks = corral_loop_get(loop, c->line + 4, (size_t)(end - c->line - 4),
                              CORRAL_CALL(.policy = CORRAL_POLICY(.swr_ms = 600000)), async,
                              &c->call) == CORRAL_OK;
  /* the client hung up, or its line is no request, or too long */
  if (!c->asks || n <= 0) hang_up(c);
}

static void welcome(int listener) {
  int fd = accept(listener, NULL, NULL), i = 0;
  while (i < CLIENTS && (clients[i].fd >= 0 || clients[i].asks)) i++;
  if (i < CLIENTS)
    clients[i] = (client){.fd = fd};
  else
    close(fd);
}

static int listen_here(void) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof here;
  int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (bind(fd, (struct sockaddr *)&here, len) != 0 || listen(fd, CLIENTS) != 0 ||
      getsockname(fd, (struct sockaddr *)&here, &len) != 0)
    exit(1);
  printf("%d\n", ntohs(here.sin_port));
  fflush(stdout);
  return fd;
}

/* One turn of the loop; 0: the end. */
static int turn(void) {
  char unused[64];
  for (int i = 0; i < CLIENTS; i++)
    fds[FIRST + i] =
        (struct pollfd){.fd = clients[i].fd, .events = clients[i].left > 0 ? POLLOUT : POLLIN};
  int64_t left = queries == NULL ? 1000 : queries->due - now_ms();
  poll(fds, FIRST + CLIENTS, left > 0 ? (int)left : 0);
  if (fds[SIGNAL].revents != 0 || (fds[INPUT].revents != 0 && read(0, unused, sizeof unused) <= 0))
    return 0;
  for (int i = 0; i < CLIENTS; i++)
    if (fds[FIRST + i].revents != 0)
      clients[i].left > 0 ? send_some(&clients[i]) : on_input(&clients[i]);
  if (fds[LISTENER].revents != 0) welcome(fds[LISTENER].fd);
  if (fds[LOOP].revents != 0) corral_loop_dispatch(loop);
  while (queries != NULL && queries->due <= now_ms()) end_query(1);
  return 1;
}

int main(int argc, char **argv) {
  corral *c;
  corral_error error;
  sigset_t term;
  sigemptyset(&term);
  sigaddset(&term, SIGTERM);
  sigprocmask(SIG_BLOCK, &term, NULL); /* before there are threads */
  signal(SIGPIPE, SIG_IGN);            /* a client that hung up is an error of send() */
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:"), &c, &error) !=
      CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  if (corral_loop_open(c, &loop, &error) != CORRAL_OK) return 1;
  const int watched[FIRST] = {0, signalfd(-1, &term, 0), listen_here(), corral_loop_fd(loop)};
  for (int i = 0; i < FIRST; i++) fds[i] = (struct pollfd){.fd = watched[i], .events = POLLIN};
  for (int i = 0; i < CLIENTS; i++) clients[i].fd = -1;
  while (turn()) {
  }
  corral_loop_close(loop);              /* ends all calls */
  while (queries != NULL) end_query(0); /* a fill outlives its loop, and must be ended */
  for (int i = 0; i < CLIENTS; i++) hang_up(&clients[i]);
  corral_close(c);
  return 0;
}
