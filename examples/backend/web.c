/* web.c: requests and answers, by libmicrohttpd, on an event loop of two: MHD's sockets, and the
 * corral's calls.
 *
 * A request whose report isn't at hand is suspended, and resumed when its call is done: meanwhile
 * it holds a connection and a few hundred bytes, but no thread. Reports in the near tier are
 * answered at once. */
#include "web.h"

#include <arpa/inet.h>
#include <corral/loop.h>
#include <errno.h>
#include <limits.h>
#include <microhttpd.h>
#include <poll.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "report.h"

enum { CONNECTIONS = 10000, IDLE_S = 30, HEAD_BYTES = 16384 };

typedef struct MHD_Connection connection;
typedef struct MHD_Response response;

struct web {
  corral *reports;
  const listener *hears;
  corral_cancel_token *cancel_token; /* for all calls; cancelled at the end */
  corral_loop *loop;
  struct MHD_Daemon *daemon;
  unsigned active; /* number of requests under way */
};

/* A request, from its head to the end of its answer. */
typedef struct request {
  web *web;
  connection *from;
  int is_done; /* its call is done; the result is in the next fields */
  int status;
  corral_value *value; /* owned until it is answered */
  int64_t retry_after_ms;
} request;

static enum MHD_Result send_and_drop(connection *to, unsigned code, response *r) {
  if (r == NULL) return MHD_NO; /* out of memory: the connection is closed */
  MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
  enum MHD_Result queued = MHD_queue_response(to, code, r);
  MHD_destroy_response(r);
  return queued;
}

static response *text_response(const char *text) {
  return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text,
                                         MHD_RESPMEM_MUST_COPY);
}

/* Answers with an error; `text` must have no quotes. */
static enum MHD_Result refuse(connection *to, unsigned code, const char *text, const char *header,
                              const char *value) {
  char body[256];
  snprintf(body, sizeof body, "{\"error\": \"%s\"}\n", text);
  response *r = text_response(body);
  if (r != NULL && header != NULL) MHD_add_response_header(r, header, value);
  if (r != NULL) MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  return send_and_drop(to, code, r);
}

/* ---- /report ------------------------------------------------------------------------------- */

/* Cache-Status, RFC 9211. */
static const char *cache_status(const corral_value *value) {
  switch (corral_value_how(value)) {
    case CORRAL_FRESH: return "corral; hit";
    case CORRAL_STALE: return "corral; hit; detail=stale";
    case CORRAL_OUTBOX: return "corral; hit; detail=held";
    case CORRAL_JOINED: return "corral; fwd=miss; collapsed";
    case CORRAL_COMPUTED: break;
  }
  return corral_value_kept(value) == CORRAL_KEPT ? "corral; fwd=miss; stored" : "corral; fwd=miss";
}

/* 1: If-None-Match, a list of tags or a star, has this tag. */
static int is_known(connection *to, const char *etag) {
  const char *known =
      MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
  return known != NULL && (strcmp(known, "*") == 0 || strstr(known, etag) != NULL);
}

static void drop_value(void *value) { corral_value_unref(value); }

/* Answers with a value. Its bytes aren't copied: the response takes over the value. */
static enum MHD_Result send_report(connection *to, corral_value *value) {
  char etag[24], age[24];
  const void *data = corral_value_data(value);
  size_t size = corral_value_size(value);
  snprintf(etag, sizeof etag, "\"%016llx\"", (unsigned long long)XXH3_64bits(data, size));
  snprintf(age, sizeof age, "%lld", (long long)(corral_value_age_ms(value) / 1000));
  response *r = MHD_create_response_from_buffer_with_free_callback_cls(
      size, (void *)(uintptr_t)data, drop_value, value);
  if (r == NULL) {
    corral_value_unref(value);
    return MHD_NO;
  }
  MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag);
  MHD_add_response_header(r, MHD_HTTP_HEADER_AGE, age);
  MHD_add_response_header(r, "Cache-Status", cache_status(value));
  /* other caches may keep it, but must ask whether it still holds, since they get no
   * notifications */
  MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  return send_and_drop(to, is_known(to, etag) ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r);
}

static int is_region(const char *text, size_t len) {
  return text != NULL && len >= 1 && len <= REGION_MOST &&
         strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

/* Answers with a failure. The database's text goes to the log (main.c), not to clients. */
static enum MHD_Result send_failure(const request *r) {
  char seconds[24];
  if (r->status == CORRAL_ENOTFOUND)
    return refuse(r->from, MHD_HTTP_NOT_FOUND, "there is no such region", NULL, NULL);
  snprintf(seconds, sizeof seconds, "%lld",
           (long long)(r->retry_after_ms > 0 ? (r->retry_after_ms + 999) / 1000 : 1));
  return refuse(r->from, MHD_HTTP_SERVICE_UNAVAILABLE, "the report can't be had now",
                MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

static enum MHD_Result send_outcome(request *r) {
  corral_value *value = r->value;
  r->value = NULL;
  return r->status == CORRAL_OK ? send_report(r->from, value) : send_failure(r);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  request *r = arg;
  r->is_done = 1;
  r->status = status;
  r->value = value;
  r->retry_after_ms = error->retry_after_ms;
  MHD_resume_connection(r->from); /* on_request is called again then */
}

static enum MHD_Result report(request *r) {
  web *w = r->web;
  const char *region = NULL;
  size_t len = 0;
  const corral_call *call = CORRAL_CALL(.cancel_token = w->cancel_token);
  MHD_lookup_connection_value_n(r->from, MHD_GET_ARGUMENT_KIND, "region", 6, &region, &len);
  if (!is_region(region, len))
    return refuse(r->from, MHD_HTTP_BAD_REQUEST,
                  "region: accepted: 1 to 32 of a to z, 0 to 9 and -", NULL, NULL);
  r->status = corral_peek(w->reports, region, len, call, &r->value);
  if (r->status == CORRAL_OK || r->status == CORRAL_ENOTFOUND) return send_outcome(r);
  r->status =
      corral_loop_get(w->loop, region, len, call, CORRAL_ASYNC(.done = on_done, .arg = r), NULL);
  if (r->status != CORRAL_OK) return send_failure(r);
  MHD_suspend_connection(r->from);
  return MHD_YES;
}

/* ---- /status ------------------------------------------------------------------------------- */

static enum MHD_Result show_status(web *w, connection *to) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) return MHD_NO;
  fprintf(out, "{\"listening\": %s, \"leading\": %s, \"heard\": %llu",
          listener_hears(w->hears) ? "true" : "false", listener_leads(w->hears) ? "true" : "false",
          listener_heard(w->hears));
  for (int i = 0; i < CORRAL_EVENT_COUNT; i++)
    fprintf(out, ", \"%s\": %llu", corral_event_name((corral_event)i),
            (unsigned long long)corral_counter(w->reports, (corral_event)i));
  fprintf(out, "}\n");
  if (fclose(out) != 0) {
    free(text);
    return MHD_NO;
  }
  response *r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
  if (r == NULL)
    free(text);
  else
    MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  return send_and_drop(to, MHD_HTTP_OK, r);
}

/* ---- requests ------------------------------------------------------------------------------ */

static enum MHD_Result answer(request *r, const char *url, const char *method) {
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
    return refuse(r->from, MHD_HTTP_METHOD_NOT_ALLOWED, "accepted: GET and HEAD",
                  MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  if (strcmp(url, "/report") == 0) return report(r);
  if (strcmp(url, "/status") == 0) return show_status(r->web, r->from);
  return refuse(r->from, MHD_HTTP_NOT_FOUND, "there are /report?region=NAME and /status", NULL,
                NULL);
}

/* Called when the head has come, for each part of a body (ignored here), when all of the body has
 * come, and when the request is resumed. */
static enum MHD_Result on_request(void *arg, connection *from, const char *url, const char *method,
                                  const char *version, const char *body, size_t *body_size,
                                  void **state) {
  web *w = arg;
  request *r = *state;
  (void)version, (void)body;
  if (r == NULL) {
    *state = r = calloc(1, sizeof *r);
    if (r == NULL) return MHD_NO;
    *r = (request){.web = w, .from = from};
    w->active++;
    return MHD_YES;
  }
  if (*body_size > 0) {
    *body_size = 0;
    return MHD_YES;
  }
  return r->is_done ? send_outcome(r) : answer(r, url, method);
}

/* Called at the end of a request, never while it is suspended. */
static void on_end(void *arg, connection *from, void **state, enum MHD_RequestTerminationCode how) {
  web *w = arg;
  request *r = *state;
  (void)from, (void)how;
  if (r == NULL) return;
  corral_value_unref(r->value);
  free(r);
  *state = NULL;
  w->active--;
}

/* ---- open, run, close ---------------------------------------------------------------------- */

static int open_daemon(web *w, int port) {
  struct sockaddr_in at = {.sin_family = AF_INET,
                           .sin_port = htons((uint16_t)port),
                           .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  w->daemon = MHD_start_daemon(
      MHD_USE_EPOLL | MHD_ALLOW_SUSPEND_RESUME | MHD_USE_ITC, (uint16_t)port, NULL, NULL,
      on_request, w, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at, MHD_OPTION_CONNECTION_LIMIT,
      (unsigned)CONNECTIONS, MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES, MHD_OPTION_NOTIFY_COMPLETED, on_end,
      w, MHD_OPTION_END);
  return w->daemon != NULL;
}

web *web_open(corral *reports, const listener *hears, int port, char *text, size_t size) {
  corral_error error = {0};
  web *w = calloc(1, sizeof *w);
  snprintf(text, size, "out of memory");
  if (w == NULL) return NULL;
  w->reports = reports;
  w->hears = hears;
  w->cancel_token = corral_cancel_token_new();
  if (w->cancel_token == NULL) goto failed;
  if (corral_loop_open(reports, &w->loop, &error) != CORRAL_OK) {
    snprintf(text, size, "%s", error.text);
    goto failed;
  }
  if (open_daemon(w, port)) return w;
  snprintf(text, size, "can't listen on 127.0.0.1:%d: %s", port, strerror(errno));
failed:
  web_close(w);
  return NULL;
}

int web_port(const web *w) {
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info == NULL ? 0 : info->port;
}

/* Waits for the next event, at most until `until`, and handles it. 1: stop_fd is readable. */
static int turn(web *w, int stop_fd, int64_t until) {
  MHD_UNSIGNED_LONG_LONG idle;
  int64_t left = until - db_now_ms();
  struct pollfd fds[] = {
      {.fd = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_EPOLL_FD)->epoll_fd, .events = POLLIN},
      {.fd = corral_loop_fd(w->loop), .events = POLLIN},
      {.fd = stop_fd, .events = POLLIN}};
  left = left < 0 ? 0 : left > INT_MAX ? INT_MAX : left;
  if (MHD_get_timeout(w->daemon, &idle) == MHD_YES && idle < (MHD_UNSIGNED_LONG_LONG)left)
    left = (int64_t)idle;
  poll(fds, 3, (int)left);
  corral_loop_dispatch(w->loop);
  MHD_run(w->daemon);
  return fds[2].revents != 0;
}

/* Runs until no request is under way, or `until`. */
static void run_out(web *w, int64_t until) {
  while (w->active > 0 && db_now_ms() < until) turn(w, -1, until);
}

void web_run(web *w, int stop_fd, int grace_ms) {
  while (!turn(w, stop_fd, INT64_MAX)) continue;
  MHD_socket listening = MHD_quiesce_daemon(w->daemon);
  if (listening != MHD_INVALID_SOCKET) close(listening);
  run_out(w, db_now_ms() + grace_ms);
  corral_cancel_token_cancel(w->cancel_token); /* ends the calls that still wait */
  run_out(w, db_now_ms() + grace_ms);
}

void web_close(web *w) {
  if (w == NULL) return;
  /* no request may be suspended now: MHD would wait for it */
  if (w->daemon != NULL) MHD_stop_daemon(w->daemon);
  corral_loop_close(w->loop);
  corral_cancel_token_free(w->cancel_token);
  free(w);
}
