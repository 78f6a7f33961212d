/* loop_libuv.c: a line server on libuv. "GET key" is answered with the key's row, once for each
 * connection. The first call for a row begins a query, and hundreds of other calls wait for that
 * query, without a thread. A client that hangs up leaves its call; the query goes on.
 *
 *   loop_libuv [STORE]    prints its port of 127.0.0.1; ends on SIGTERM, or when its input ends
 *
 * cc loop_libuv.c $(pkg-config --cflags --libs corral libuv) -o loop_libuv */
#include <corral/loop.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { QUERY_MS = 100, CLIENTS = 1000, LINE = 256 };

typedef struct client {
  uv_tcp_t socket; /* its `data` is the client */
  uv_write_t write;
  corral_value *value; /* being written */
  corral_async_call *call;
  int asks, is_open; /* it began a call whose `gone` has not come; its socket isn't closed */
  size_t len;
  char line[LINE];
} client;

typedef struct query {
  uv_timer_t timer; /* first */
  corral_fill *fill;
} query;

static uv_loop_t *uv;
static corral_loop *loop;
static void free_query(uv_handle_t *timer) { free(timer); }

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
  uv_close((uv_handle_t *)&q->timer, free_query);
}

static void on_timer(uv_timer_t *timer) { end_query((query *)timer, 1); }

/* Begins the query: stands for a database's asynchronous client. */
static void begin_query(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  query *q = calloc(1, sizeof *q);
  (void)arg, (void)key, (void)key_len;
  if (q == NULL) {
    corral_fill_abandon(fill);
    return;
  }
  q->fill = fill;
  uv_timer_init(uv, &q->timer);
  uv_timer_start(&q->timer, on_timer, QUERY_MS, 0);
}

/* Frees a client once its socket is closed and its call is gone. */
static void free_client(client *c) {
  if (c->is_open || c->asks) return;
  corral_value_unref(c->value);
  free(c);
}

static void on_closed(uv_handle_t *socket) {
  client *c = socket->data;
  c->is_open = 0;
  free_client(c);
}

static void hang_up(client *c) {
  corral_async_call_cancel(c->call);
  c->call = NULL;
  if (!uv_is_closing((uv_handle_t *)&c->socket)) uv_close((uv_handle_t *)&c->socket, on_closed);
}

static void on_gone(void *arg) {
  client *c = arg;
  c->call = NULL; /* `done` was not called if the loop was closed */
  c->asks = 0;
  free_client(c);
}

static void on_written(uv_write_t *write, int status) {
  (void)status;
  hang_up(write->data);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  client *c = arg;
  c->call = NULL;
  c->value = value;
  uv_read_stop((uv_stream_t *)&c->socket); /* so that `line` has room for a text */
  int len = status == CORRAL_OK ? 0 : snprintf(c->line, LINE, "%.200s\n", error->text);
  uv_buf_t text = uv_buf_init(c->line, (unsigned)len);
  if (status == CORRAL_OK)
    text = uv_buf_init((char *)(uintptr_t)corral_value_data(value),
                       (unsigned)corral_value_size(value));
  c->write.data = c;
  if (uv_write(&c->write, (uv_stream_t *)&c->socket, &text, 1, on_written) != 0) hang_up(c);
}

static void give_room(uv_handle_t *socket, size_t size, uv_buf_t *room) {
  client *c = socket->data;
  (void)size;
  *room = uv_buf_init(c->line + c->len, (unsigned)(LINE - c->len));
}

static void on_input(uv_stream_t *socket, ssize_t n, const uv_buf_t *unused) {
  client *c = socket->data;
  (void)unused;
  if (n > 0) c->len += (size_t)n;
  char *end = memchr(c->line, '\n', c->len);
  if (n == 0 || (n > 0 && (c->asks || end == NULL))) return;
  const corral_async *async =
      CORRAL_ASYNC(.done = on_done, .start = begin_query, .gone = on_gone, .arg = c);
  if (n > 0 && memcmp(c->line, "GET ", 4) == 0)
    c->asks = corral_loop_get(loop, c->line + 4, (size_t)(end - c->line - 4),
                              CORRAL_CALL(.policy = CORRAL_POLICY(.swr_ms = 600000)), async,
                              &c->call) == CORRAL_OK;
  /* the client hung up, or its line is no request, or too long */
  if (!c->asks || n < 0) hang_up(c);
}

static void on_client(uv_stream_t *listener, int status) {
  client *c = status == 0 ? calloc(1, sizeof *c) : NULL;
  if (c == NULL) return;
  uv_tcp_init(uv, &c->socket);
  c->socket.data = c;
  c->is_open = 1;
  if (uv_accept(listener, (uv_stream_t *)&c->socket) != 0 ||
      uv_read_start((uv_stream_t *)&c->socket, give_room, on_input) != 0)
    hang_up(c);
}

static void listen_here(uv_tcp_t *listener) {
  struct sockaddr_in here = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  int len = sizeof here;
  uv_tcp_init(uv, listener);
  if (uv_tcp_bind(listener, (struct sockaddr *)&here, 0) != 0 ||
      uv_listen((uv_stream_t *)listener, CLIENTS, on_client) != 0)
    exit(1);
  uv_tcp_getsockname(listener, (struct sockaddr *)&here, &len);
  printf("%d\n", ntohs(here.sin_port));
  fflush(stdout);
}

static void on_mail(uv_poll_t *mail, int status, int events) {
  (void)mail, (void)status, (void)events;
  corral_loop_dispatch(loop);
}

static void on_term(uv_signal_t *term, int number) {
  (void)term, (void)number;
  uv_stop(uv);
}

static void on_stdin(uv_poll_t *input, int status, int events) {
  char unused[64];
  (void)input, (void)events;
  if (status < 0 || read(0, unused, sizeof unused) <= 0) uv_stop(uv);
}

/* Closes what is open at the end: queries, by their timers, and clients; main closes the rest. */
static void close_handle(uv_handle_t *handle, void *unused) {
  (void)unused;
  if (uv_is_closing(handle)) return;
  /* a fill outlives its loop, and must be ended */
  if (uv_handle_get_type(handle) == UV_TIMER)
    end_query((query *)handle, 0);
  else if (handle->data != NULL)
    hang_up(handle->data);
  else
    uv_close(handle, NULL);
}

int main(int argc, char **argv) {
  corral *c;
  corral_error error;
  uv_tcp_t listener = {0};
  uv_signal_t term = {0};
  uv_poll_t mail = {0}, input = {0};
  signal(SIGPIPE, SIG_IGN); /* a client that hung up is an error of the write */
  uv = uv_default_loop();
  if (corral_open(CORRAL_OPTIONS(.store = argc > 1 ? argv[1] : "memory:"), &c, &error) !=
      CORRAL_OK) {
    fprintf(stderr, "%s\n", error.text);
    return 1;
  }
  if (corral_loop_open(c, &loop, &error) != CORRAL_OK) return 1;
  uv_poll_init(uv, &mail, corral_loop_fd(loop));
  uv_poll_start(&mail, UV_READABLE, on_mail);
  uv_signal_init(uv, &term);
  uv_signal_start(&term, on_term, SIGTERM);
  /* only a pipe or a terminal can be watched */
  if (uv_poll_init(uv, &input, 0) == 0) uv_poll_start(&input, UV_READABLE, on_stdin);
  listen_here(&listener);
  uv_run(uv, UV_RUN_DEFAULT);
  uv_poll_stop(&mail);
  corral_loop_close(loop); /* ends all calls */
  uv_walk(uv, close_handle, NULL);
  uv_run(uv, UV_RUN_DEFAULT);
  corral_close(c);
  return uv_loop_close(uv) == 0 ? 0 : 1;
}
