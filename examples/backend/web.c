/* web.c: requests and answers, by libmicrohttpd, with a thread for each connection: a request that waits for a report holds its thread, and no
 * connection to the database. */
#include "web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <microhttpd.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "report.h"

enum { CONNECTIONS = 1000, IDLE_S = 30, HEAD_BYTES = 16384, STACK = 262144 };

struct web {
  corral *reports;
  const listener *hears;
  corral_ticket *ticket; /* of all calls: cancelled at the end */
  struct MHD_Daemon *daemon;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  unsigned active; /* requests */
};

typedef struct MHD_Connection connection;
typedef struct MHD_Response response;

static enum MHD_Result send_and_drop(connection *to, unsigned code, response *r) {
  if (r == NULL) return MHD_NO; /* out of memory: the connection is closed */
  MHD_add_response_header(r, MHD_HTTP_HEADER_CONTENT_TYPE, "application/json");
  enum MHD_Result queued = MHD_queue_response(to, code, r);
  MHD_destroy_response(r);
  return queued;
}

static response *text_response(const char *text) { return MHD_create_response_from_buffer(strlen(text), (void *)(uintptr_t)text, MHD_RESPMEM_MUST_COPY); }

/* `text`: in plain words, without quotes. */
static enum MHD_Result refuse(connection *to, unsigned code, const char *text, const char *header, const char *value) {
  char body[256];
  snprintf(body, sizeof body, "{\"error\": \"%s\"}\n", text);
  response *r = text_response(body);
  if (r != NULL && header != NULL) MHD_add_response_header(r, header, value);
  if (r != NULL) MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  return send_and_drop(to, code, r);
}

/* ---- /report --------------------------------------------------------------------------------------------- */

/* RFC 9211. */
static const char *cache_status(const corral_value *value) {
  switch (corral_value_how(value)) {
    case CORRAL_FRESH: return "corral; hit";
    case CORRAL_STALE: return "corral; hit; detail=stale";
    case CORRAL_HELD: return "corral; hit; detail=held";
    case CORRAL_JOINED: return "corral; fwd=miss; collapsed";
    case CORRAL_COMPUTED: break;
  }
  return corral_value_kept(value) == CORRAL_KEPT ? "corral; fwd=miss; stored" : "corral; fwd=miss";
}

/* If-None-Match: a list of tags, or a star. */
static int is_known(connection *to, const char *etag) {
  const char *known = MHD_lookup_connection_value(to, MHD_HEADER_KIND, MHD_HTTP_HEADER_IF_NONE_MATCH);
  return known != NULL && (strcmp(known, "*") == 0 || strstr(known, etag) != NULL);
}

static void drop_value(void *value) { corral_value_unref(value); }

/* The bytes aren't copied: the response owns the value. */
static enum MHD_Result send_report(connection *to, corral_value *value) {
  char etag[24], age[24];
  const void *data = corral_value_data(value);
  size_t size = corral_value_size(value);
  snprintf(etag, sizeof etag, "\"%016llx\"", (unsigned long long)XXH3_64bits(data, size));
  snprintf(age, sizeof age, "%lld", (long long)(corral_value_age_ms(value) / 1000));
  response *r = MHD_create_response_from_buffer_with_free_callback_cls(size, (void *)(uintptr_t)data, drop_value, value);
  if (r == NULL) {
    corral_value_unref(value);
    return MHD_NO;
  }
  MHD_add_response_header(r, MHD_HTTP_HEADER_ETAG, etag);
  MHD_add_response_header(r, MHD_HTTP_HEADER_AGE, age);
  MHD_add_response_header(r, "Cache-Status", cache_status(value));
  /* Others may keep it, but have to ask whether it still holds: nobody notifies them. */
  MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  return send_and_drop(to, is_known(to, etag) ? MHD_HTTP_NOT_MODIFIED : MHD_HTTP_OK, r);
}

static int is_region(const char *text, size_t len) {
  return text != NULL && len >= 1 && len <= REGION_MOST && strspn(text, "abcdefghijklmnopqrstuvwxyz0123456789-") == len;
}

/* What the database said goes to the log (main.c), not to strangers. */
static enum MHD_Result send_failure(connection *to, int status, const corral_error *error) {
  char seconds[24];
  int64_t ms = error->retry_after_ms;
  if (status == CORRAL_ENOTFOUND) return refuse(to, MHD_HTTP_NOT_FOUND, "there is no such region", NULL, NULL);
  snprintf(seconds, sizeof seconds, "%lld", (long long)(ms > 0 ? (ms + 999) / 1000 : 1));
  return refuse(to, MHD_HTTP_SERVICE_UNAVAILABLE, "the report can't be had now", MHD_HTTP_HEADER_RETRY_AFTER, seconds);
}

static enum MHD_Result report(web *w, connection *to) {
  const char *region = NULL;
  size_t len = 0;
  corral_error error = {0};
  corral_value *value;
  MHD_lookup_connection_value_n(to, MHD_GET_ARGUMENT_KIND, "region", 6, &region, &len);
  if (!is_region(region, len))
    return refuse(to, MHD_HTTP_BAD_REQUEST, "region: accepted: 1 to 32 of a to z, 0 to 9 and -", NULL, NULL);
  int status = corral_get(w->reports, region, len, CORRAL_POLICY(.error = &error, .ticket = w->ticket), &value);
  return status == CORRAL_OK ? send_report(to, value) : send_failure(to, status, &error);
}

/* ---- /status --------------------------------------------------------------------------------------------- */

static enum MHD_Result show_status(web *w, connection *to) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out == NULL) return MHD_NO;
  fprintf(out, "{\"listening\": %s", listener_hears(w->hears) ? "true" : "false");
  for (int i = 0; i < CORRAL_EVENT_COUNT; i++)
    fprintf(out, ", \"%s\": %llu", corral_event_name((corral_event)i), (unsigned long long)corral_counter(w->reports, (corral_event)i));
  fprintf(out, "}\n");
  if (fclose(out) != 0) {
    free(text);
    return MHD_NO;
  }
  response *r = MHD_create_response_from_buffer(size, text, MHD_RESPMEM_MUST_FREE);
  if (r == NULL) free(text);
  else MHD_add_response_header(r, MHD_HTTP_HEADER_CACHE_CONTROL, "no-store");
  return send_and_drop(to, MHD_HTTP_OK, r);
}

/* ---- requests -------------------------------------------------------------------------------------------- */

static enum MHD_Result answer(web *w, connection *to, const char *url, const char *method) {
  if (strcmp(method, MHD_HTTP_METHOD_GET) != 0 && strcmp(method, MHD_HTTP_METHOD_HEAD) != 0)
    return refuse(to, MHD_HTTP_METHOD_NOT_ALLOWED, "accepted: GET and HEAD", MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  if (strcmp(url, "/report") == 0) return report(w, to);
  if (strcmp(url, "/status") == 0) return show_status(w, to);
  return refuse(to, MHD_HTTP_NOT_FOUND, "there are /report?region=NAME and /status", NULL, NULL);
}

/* Called when the head is there, for each part of a body, which nobody wants here, and when all of it was. */
static enum MHD_Result on_request(void *arg, connection *to, const char *url, const char *method, const char *version, const char *body, size_t *body_size,
                                  void **state) {
  web *w = arg;
  (void)version, (void)body;
  if (*state == NULL) {
    *state = w;
    pthread_mutex_lock(&w->mutex);
    w->active++;
    pthread_mutex_unlock(&w->mutex);
    return MHD_YES;
  }
  if (*body_size > 0) {
    *body_size = 0;
    return MHD_YES;
  }
  return answer(w, to, url, method);
}

static void on_end(void *arg, connection *to, void **state, enum MHD_RequestTerminationCode how) {
  web *w = arg;
  (void)to, (void)how;
  if (*state == NULL) return;
  pthread_mutex_lock(&w->mutex);
  if (--w->active == 0) pthread_cond_broadcast(&w->ended);
  pthread_mutex_unlock(&w->mutex);
}

/* ---- start, stop ----------------------------------------------------------------------------------------- */

static void web_free(web *w) {
  corral_ticket_free(w->ticket);
  pthread_cond_destroy(&w->ended);
  pthread_mutex_destroy(&w->mutex);
  free(w);
}

web *web_start(corral *reports, const listener *hears, int port, char *text, size_t size) {
  struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
  web *w = calloc(1, sizeof *w);
  if (w == NULL) {
    snprintf(text, size, "out of memory");
    return NULL;
  }
  pthread_mutex_init(&w->mutex, NULL);
  pthread_cond_init(&w->ended, NULL);
  w->reports = reports;
  w->hears = hears;
  w->ticket = corral_ticket_new();
  if (w->ticket != NULL)
    w->daemon = MHD_start_daemon(MHD_USE_THREAD_PER_CONNECTION | MHD_USE_INTERNAL_POLLING_THREAD | MHD_USE_POLL | MHD_USE_ITC, (uint16_t)port, NULL, NULL,
                                 on_request, w, MHD_OPTION_SOCK_ADDR, (struct sockaddr *)&at, MHD_OPTION_CONNECTION_LIMIT, (unsigned)CONNECTIONS,
                                 MHD_OPTION_CONNECTION_TIMEOUT, (unsigned)IDLE_S, MHD_OPTION_CONNECTION_MEMORY_LIMIT, (size_t)HEAD_BYTES,
                                 MHD_OPTION_THREAD_STACK_SIZE, (size_t)STACK, MHD_OPTION_NOTIFY_COMPLETED, on_end, w, MHD_OPTION_END);
  if (w->daemon != NULL) return w;
  snprintf(text, size, "can't listen on 127.0.0.1:%d: %s", port, strerror(errno));
  web_free(w);
  return NULL;
}

int web_port(const web *w) {
  const union MHD_DaemonInfo *info = MHD_get_daemon_info(w->daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info == NULL ? 0 : info->port;
}

/* Until no request is under way, or the time is over. */
static void await_end(web *w, int ms) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += ms / 1000;
  until.tv_nsec += ms % 1000 * 1000000L;
  if (until.tv_nsec >= 1000000000L) until.tv_sec++, until.tv_nsec -= 1000000000L;
  pthread_mutex_lock(&w->mutex);
  while (w->active > 0 && pthread_cond_timedwait(&w->ended, &w->mutex, &until) == 0) continue;
  pthread_mutex_unlock(&w->mutex);
}

void web_stop(web *w, int grace_ms) {
  MHD_socket listening = MHD_quiesce_daemon(w->daemon);
  if (listening != MHD_INVALID_SOCKET) close(listening);
  await_end(w, grace_ms);
  corral_cancel(w->ticket);
  await_end(w, grace_ms);
  MHD_stop_daemon(w->daemon);
  web_free(w);
}
