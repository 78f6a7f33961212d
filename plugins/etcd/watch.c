/* watch.c: a watch, on a connection of its own, which reports the keys that were removed by an
 * UNLOCK or by the end of their lease.
 *
 * The server is silent while there is nothing to report. To detect a server that hangs or is cut
 * off from its cluster, a second connection asks for a sign of life after QUIET_MS of silence: a
 * read that the cluster's majority must confirm, within ANSWER_MS. TCP detects a host that is gone
 * (wire.c). */
#include <stdio.h>
#include <stdlib.h>

#include "etcd.h"

enum {
  QUIET_MS = CORRAL_SILENCE_MS / 2,
  ANSWER_MS = CORRAL_SILENCE_MS - QUIET_MS,
  PREFIX64 = (CRL_ETCD_PREFIX + 2) / 3 * 4 + 1
};

typedef struct watcher {
  crl_etcd_handle *handle;
  /* asks for signs of life; the stream uses its login and member too */
  int open; /* counted in store->watches */
  CURL *stream;
  CURLM *multi;
  crl_etcd_text in;
  int created, asking; /* the server has confirmed the watch; a sign of life is asked for */
  int64_t heard;       /* when the last sign of life came, host->now_ms */
  char body[2 * PREFIX64 + 200], trouble[CURL_ERROR_SIZE];
} watcher;

typedef struct listener {
  void (*told)(void *arg, uint64_t hash);
  void *arg;
  size_t count;
} listener;

static int64_t now_of(const watcher *w) { return w->handle->store->host->now_ms(); }

static int dead(watcher *w, int status, const char *why, corral_error *error) {
  return w->handle->store->host->fail(error, status, "%s: the watch: %.120s",
                                      w->handle->store->name, why);
}

/* ---- messages of the server ---------------------------------------------------------------- */

static int hear_event(watcher *w, const cJSON *event, listener *to) {
  uint8_t key[CRL_ETCD_PREFIX + CRL_ETCD_KEY];
  const char *prefix = w->handle->store->prefix, *type = crl_etcd_words(event, "type");
  const char *text = crl_etcd_words(crl_etcd_part(event, "kv"), "key");
  if (text == NULL) return 0;
  if (type == NULL || strcmp(type, "DELETE") != 0) return 1;
  size_t before = strlen(prefix), size = crl_etcd_base64_read(text, key, sizeof key);
  /* a key longer than corral's is fine, any other failure is not */
  if (size == SIZE_MAX) return strlen(text) >= CRL_ETCD_KEY64;
  if (size <= before || memcmp(key, prefix, before) != 0) return 1;
  to->told(to->arg, w->handle->store->host->hash64(key + before, size - before));
  to->count++;
  return 1;
}

static int hear_line(watcher *w, const char *line, size_t len, listener *to, corral_error *error) {
  cJSON *reply = cJSON_ParseWithLength(line, len);
  const cJSON *result = crl_etcd_part(reply, "result"), *events = crl_etcd_part(result, "events"),
              *event;
  int is_right = cJSON_IsObject(result),
      is_cancelled = cJSON_IsTrue(crl_etcd_part(result, "canceled"));
  if (cJSON_IsTrue(crl_etcd_part(result, "created"))) w->created = 1;
  if (to != NULL) cJSON_ArrayForEach(event, events) is_right = is_right && hear_event(w, event, to);
  cJSON_Delete(reply);
  if (!is_right) return dead(w, CORRAL_EPROTOCOL, "a strange message", error);
  return is_cancelled ? dead(w, CORRAL_EUNAVAILABLE, "cancelled by the server", error) : CORRAL_OK;
}

/* Handles the complete lines received; without a listener, only up to the one that confirms the
 * watch. */
static int hear_all(watcher *w, listener *to, corral_error *error) {
  int status = CORRAL_OK;
  size_t used = 0;
  for (char *end; status == CORRAL_OK && (to != NULL || !w->created) && w->in.len > used &&
                  (end = memchr(w->in.bytes + used, '\n', w->in.len - used)) != NULL;) {
    size_t len = (size_t)(end - w->in.bytes) - used;
    if (len > 0) status = hear_line(w, w->in.bytes + used, len, to, error);
    used += len + 1;
    w->heard = now_of(w);
  }
  if (used > 0) memmove(w->in.bytes, w->in.bytes + used, w->in.len -= used);
  return status;
}

/* ---- both connections ---------------------------------------------------------------------- */

static int ask(watcher *w, corral_error *error) {
  crl_etcd_handle *h = w->handle;
  int64_t now = now_of(w);
  if (w->asking || now - w->heard < QUIET_MS) return CORRAL_OK;
  crl_etcd_base64((const uint8_t *)h->store->prefix, strlen(h->store->prefix), h->key);
  crl_etcd_say(h, "{\"key\":\"%s\",\"count_only\":true}", h->key);
  crl_etcd_prepare(h, "/v3/kv/range", h->body, ANSWER_MS, ANSWER_MS);
  if (curl_multi_add_handle(w->multi, h->easy) != CURLM_OK)
    return dead(w, CORRAL_ENOMEM, "no memory", error);
  w->asking = 1;
  return CORRAL_OK;
}

/* A refusal is a sign of life too; a 5xx is not, since the server may have lost its cluster. */
static int answered(watcher *w, CURLcode code, corral_error *error) {
  long http = 0;
  curl_easy_getinfo(w->handle->easy, CURLINFO_RESPONSE_CODE, &http);
  curl_multi_remove_handle(w->multi, w->handle->easy);
  w->asking = 0;
  w->heard = now_of(w);
  return code == CURLE_OK && http < 500
             ? CORRAL_OK
             : dead(w, CORRAL_EUNAVAILABLE, "no sign of life from the server", error);
}

static int ended(watcher *w, CURLcode code, corral_error *error) {
  long http = 0;
  curl_easy_getinfo(w->stream, CURLINFO_RESPONSE_CODE, &http);
  if (http == 404 || http == 501)
    return dead(w, CORRAL_EUNSUPPORTED, "this server has none", error);
  if (http == 401 || http == 403) return dead(w, CORRAL_EAUTH, "refused", error);
  return dead(w, CORRAL_EUNAVAILABLE,
              w->trouble[0] != '\0' ? w->trouble
              : code != CURLE_OK    ? curl_easy_strerror(code)
                                    : "ended by the server",
              error);
}

/* Waits at most `rest_ms`, then handles what has come. *ret_stop: stop_fd is readable. */
static int turn(watcher *w, int stop_fd, int64_t rest_ms, int *ret_stop, listener *to,
                corral_error *error) {
  struct curl_waitfd stop = {.fd = stop_fd, .events = CURL_WAIT_POLLIN};
  int running, left, status = CORRAL_OK, is_over = 0;
  CURLcode why = CURLE_OK;
  CURLMcode code = curl_multi_poll(w->multi, &stop, stop_fd >= 0 ? 1 : 0,
                                   (int)(rest_ms < 0 ? 0 : rest_ms), NULL);
  if (code == CURLM_OK) code = curl_multi_perform(w->multi, &running);
  if (code != CURLM_OK) return dead(w, CORRAL_EIO, curl_multi_strerror(code), error);
  *ret_stop = stop_fd >= 0 && stop.revents != 0;
  for (CURLMsg *message;
       status == CORRAL_OK && (message = curl_multi_info_read(w->multi, &left)) != NULL;) {
    if (message->msg != CURLMSG_DONE) continue;
    is_over |= message->easy_handle == w->stream;
    why = message->data.result;
    if (message->easy_handle != w->stream) status = answered(w, why, error);
  }
  int heard = hear_all(w, to, error);
  if (status == CORRAL_OK) status = heard;
  return status == CORRAL_OK && is_over ? ended(w, why, error) : status;
}

/* ---- the table's functions ----------------------------------------------------------------- */

void crl_etcd_unwatch(void *watch) {
  watcher *w = watch;
  if (w->open) atomic_fetch_sub(&w->handle->store->watches, 1);
  if (w->asking) curl_multi_remove_handle(w->multi, w->handle->easy);
  if (w->stream != NULL) curl_multi_remove_handle(w->multi, w->stream);
  curl_easy_cleanup(w->stream);
  curl_multi_cleanup(w->multi);
  crl_etcd_disconnect(w->handle);
  free(w->in.bytes);
  free(w);
}

/* Writes the request: a range from the prefix to the end of all keys that begin with it. */
static void make_body(watcher *w) {
  uint8_t end[CRL_ETCD_PREFIX] = {0};
  char from64[PREFIX64], end64[PREFIX64];
  const char *prefix = w->handle->store->prefix;
  size_t len = strlen(prefix), size = len;
  memcpy(end, prefix, len);
  while (size > 0 && end[size - 1] == 0xff) size--;
  if (size > 0)
    end[size - 1]++;
  else
    end[size++] = 0; /* an end of one zero byte: up to the last of all keys */
  crl_etcd_base64((const uint8_t *)prefix, len, from64);
  crl_etcd_base64(end, size, end64);
  snprintf(w->body, sizeof w->body,
           "{\"create_request\":{\"key\":\"%s\",\"range_end\":\"%s\",\"filters\":[\"NOPUT\"]}}",
           from64, end64);
}

static int start(watcher *w, corral_error *error) {
  char url[CRL_ETCD_HOST + 80];
  w->handle->store->host->guard_standard();
  w->multi = curl_multi_init();
  w->stream = w->multi != NULL ? crl_etcd_transfer(w->handle->store) : NULL;
  if (w->stream == NULL) return dead(w, CORRAL_ENOMEM, "no memory", error);
  make_body(w);
  snprintf(url, sizeof url, "%s/v3/watch", w->handle->store->bases[w->handle->at]);
  curl_easy_setopt(w->stream, CURLOPT_URL, url);
  curl_easy_setopt(w->stream, CURLOPT_HTTPHEADER, w->handle->headers);
  curl_easy_setopt(w->stream, CURLOPT_POSTFIELDS, w->body);
  curl_easy_setopt(w->stream, CURLOPT_ERRORBUFFER, w->trouble);
  curl_easy_setopt(w->stream, CURLOPT_WRITEFUNCTION, crl_etcd_take);
  curl_easy_setopt(w->stream, CURLOPT_WRITEDATA, &w->in);
  curl_easy_setopt(w->stream, CURLOPT_CONNECTTIMEOUT_MS, (long)ANSWER_MS);
  return curl_multi_add_handle(w->multi, w->stream) == CURLM_OK
             ? CORRAL_OK
             : dead(w, CORRAL_ENOMEM, "no memory", error);
}

int crl_etcd_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                   corral_error *error) {
  crl_etcd_store *s = store;
  void *handle;
  int stop;
  (void)server;
  int status = crl_etcd_connect(store, deadline, &handle, error);
  if (status != CORRAL_OK) return status;
  watcher *w = calloc(1, sizeof *w);
  if (w == NULL) {
    crl_etcd_disconnect(handle);
    return s->host->fail(error, CORRAL_ENOMEM, "no memory for a watch");
  }
  w->handle = handle;
  status = start(w, error);
  w->heard = now_of(w);
  while (status == CORRAL_OK && !w->created) {
    int64_t left = deadline - now_of(w);
    if (left <= 0)
      status = dead(w, CORRAL_EUNAVAILABLE, "no reply in time", error);
    else
      status = turn(w, -1, left < QUIET_MS ? left : QUIET_MS, &stop, NULL, error);
    if (status == CORRAL_OK && !w->created) status = ask(w, error);
  }
  if (status != CORRAL_OK) {
    crl_etcd_unwatch(w);
    return status;
  }
  w->open = 1;
  atomic_fetch_add(&s->watches, 1);
  *ret_watch = w;
  return CORRAL_OK;
}

int crl_etcd_changes(void *watch, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  watcher *w = watch;
  listener to = {.told = told, .arg = arg};
  int stop = 0, status = hear_all(w, &to, error);
  for (int is_first = 1; status == CORRAL_OK && !stop && to.count == 0; is_first = 0) {
    int64_t now = now_of(w);
    if (!is_first && now >= until) break;
    status = ask(w, error);
    int64_t due = w->asking || w->heard + QUIET_MS > until ? until : w->heard + QUIET_MS;
    if (status == CORRAL_OK) status = turn(w, stop_fd, due - now, &stop, &to, error);
  }
  return status;
}
