/* loop_libevent.c: a line server on libevent. "GET key" is answered with the key's row, once for
 * each connection. The first call for a row begins a query, and hundreds of other calls wait for
 * that query, without a thread. A client that hangs up leaves its call; the query goes on.
 *
 *   loop_libevent [STORE]    prints its port of 127.0.0.1; ends on SIGTERM, or when its input ends
 *
 * cc loop_libevent.c $(pkg-config --cflags --libs corral libevent_core) -o loop_libevent */
#include <corral/loop.h>
#include <event2/buffer.h>
#include <event2/bufferevent.h>
#include <event2/event.h>
#include <event2/listener.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { QUERY_MS = 100, CLIENTS = 1000, LINE = 256 };

typedef struct client {
  struct bufferevent *socket; /* NULL: the client hung up */
  corral_async_call *call;
  int asks; /* it began a call whose `gone` has not come */
} client;

typedef struct query {
  struct query *next, **link;
  corral_fill *fill;
  struct event *timer;
} query;

static struct event_base *base;
static corral_loop *loop;
static client clients[CLIENTS]; /* an element is free without socket and call */
static query *queries;

static void end_query(query *q, int answers) {
  static int number;
  char row[2 * LINE];
  size_t len;
  const char *key = corral_fill_key(q->fill, &len);
  snprintf(row, sizeof row, "the row of %.*s, by query %d\n", (int)len, key, ++number);
  if (answers && corral_fill_bytes(q->fill, row, strlen(row)) == CORRAL_OK)
    corral_fill_done(q->fill);
  else
    corral_fill_abandon(q->fill);
  if ((*q->link = q->next) != NULL) q->next->link = q->link;
  event_free(q->timer);
  free(q);
}

static void on_timer(evutil_socket_t fd, short what, void *arg) {
  (void)fd, (void)what;
  end_query(arg, 1);
}

/* Begins the query: stands for a database's asynchronous client. */
static void begin_query(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  query *q = calloc(1, sizeof *q);
  (void)arg, (void)key, (void)key_len;
  if (q == NULL || (q->timer = evtimer_new(base, on_timer, q)) == NULL) {
    free(q);
    corral_fill_abandon(fill);
    return;
  }
  q->fill = fill;
  q->link = &queries;
  if ((q->next = queries) != NULL) q->next->link = &q->next;
  queries = q;
  evtimer_add(q->timer, &(struct timeval){.tv_usec = QUERY_MS * 1000});
}

static void hang_up(client *c) {
  if (c->socket != NULL) bufferevent_free(c->socket);
  c->socket = NULL;
  corral_async_call_cancel(c->call);
  c->call = NULL;
}

static void on_gone(void *arg) { ((client *)arg)->asks = 0; }

static void on_written(struct bufferevent *socket, void *arg) {
  (void)socket;
  hang_up(arg);
}

static void on_end(struct bufferevent *socket, short what, void *arg) {
  (void)socket, (void)what;
  hang_up(arg);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  client *c = arg;
  c->call = NULL;
  if (status == CORRAL_OK)
    bufferevent_write(c->socket, corral_value_data(value), corral_value_size(value));
  else
    evbuffer_add_printf(bufferevent_get_output(c->socket), "%s\n", error->text);
  corral_value_unref(value);
  bufferevent_setcb(c->socket, NULL, on_written, on_end, c);
}

static void on_input(struct bufferevent *socket, void *arg) {
  client *c = arg;
  size_t len;
  struct evbuffer *input = bufferevent_get_input(socket);
  char *line = c->asks ? NULL : evbuffer_readln(input, &len, EVBUFFER_EOL_LF);
  const corral_async *async =
      CORRAL_ASYNC(.done = on_done, .start = begin_query, .gone = on_gone, .arg = c);
  if (line != NULL && len < LINE && strncmp(line, "GET ", 4) == 0)
    c->asks = corral_loop_get(loop, line + 4, len - 4,
                              CORRAL_CALL(.policy = CORRAL_POLICY(.swr_ms = 600000)), async,
                              &c->call) == CORRAL_OK;
  /* the line is no request, or too long */
  if ((line != NULL && !c->asks) || evbuffer_get_length(input) > LINE) hang_up(c);
  free(line);
}

static void on_client(struct evconnlistener *listener, evutil_socket_t fd, struct sockaddr *peer,
                      int len, void *arg) {
  int i = 0;
  (void)listener, (void)peer, (void)len, (void)arg;
  while (i < CLIENTS && (clients[i].socket != NULL || clients[i].asks)) i++;
  struct bufferevent *socket =
      i < CLIENTS ? bufferevent_socket_new(base, fd, BEV_OPT_CLOSE_ON_FREE) : NULL;
  if (socket == NULL) {
    close(fd);
    return;
  }
  clients[i] = (client){.socket = socket};
  bufferevent_setcb(socket, on_input, NULL, on_end, &clients[i]);
  bufferevent_enable(socket, EV_READ | EV_WRITE);
}

static struct evconnlistener *listen_here(void) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  socklen_t len = sizeof here;
  struct evconnlistener *listener = evconnlistener_new_bind(
      base, on_client, NULL, LEV_OPT_CLOSE_ON_FREE, CLIENTS, (struct sockaddr *)&here, (int)len);
  if (listener == NULL ||
      getsockname(evconnlistener_get_fd(listener), (struct sockaddr *)&here, &len) != 0)
    exit(1);
  printf("%d\n", ntohs(here.sin_port));
  fflush(stdout);
  return listener;
}

static void on_mail(evutil_socket_t fd, short what, void *arg) {
  (void)fd, (void)what, (void)arg;
  corral_loop_dispatch(loop);
}

static void on_over(evutil_socket_t fd, short what, void *arg) {
  char unused[64];
  (void)arg;
  if ((what & EV_SIGNAL) || read(fd, unused, sizeof unused) <= 0) event_base_loopbreak(base);
}

int main(int argc, char **argv) {
  corral *c;
  corral_error error;
  signal(SIGPIPE, SIG_IGN); /* a client that hung up is an error of the write */
  base = event_base_new();
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:"), &c, &error) !=
      CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  if (corral_loop_open(c, &loop, &error) != CORRAL_OK) return 1;
  struct event *events[] = {
      event_new(base, corral_loop_fd(loop), EV_READ | EV_PERSIST, on_mail, NULL),
      evsignal_new(base, SIGTERM, on_over, NULL),
      event_new(base, 0, EV_READ | EV_PERSIST, on_over, NULL)};
  /* the last one is added only if the input can be watched: a pipe, a terminal */
  for (int i = 0; i < 3; i++) event_add(events[i], NULL);
  struct evconnlistener *listener = listen_here();
  event_base_dispatch(base);
  corral_loop_close(loop);                       /* ends all calls */
  while (queries != NULL) end_query(queries, 0); /* a fill outlives its loop, and must be ended */
  corral_close(c);
  for (int i = 0; i < CLIENTS; i++)
    if (clients[i].socket != NULL) bufferevent_free(clients[i].socket);
  for (int i = 0; i < 3; i++) event_free(events[i]);
  evconnlistener_free(listener);
  event_base_free(base);
  return 0;
}
