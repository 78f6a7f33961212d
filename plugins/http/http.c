/* http.c: values from an HTTP server: `origin = "https://host/base/{key}?fixed=1#total=10s"`.
 *
 * {key} is the key's first line, percent-encoded but for '/'; {key:raw} is that line as a part of a
 * URL, which may have a query; {uri} is that from its first slash on. Further lines of a key,
 * "Name: value", are sent as header fields when vary= lists their names; so variants are keys of
 * their own.
 *
 * Parameters behind '#', with & between, percent-encoded: connect=5s, total=30s (never past the
 * compute's deadline), max=BYTES (of the decoded body, at most max_value), connections=256,
 * redirects=3, keep=200,203,204, negative=404,410, page=1 (the value is a page: see page.c), tags=
 * and path_tags= (of pages), allow= and deny= (networks: see address.c), vary=NAME,NAME,
 * header=Name:value (for every request, but not to another server), ca=FILE, compressed=1 (asks for
 * compressed bodies, and decompresses them).
 *
 * Lives come from the response, by RFC 9111 and RFC 5861 for a shared cache
 * (src/http/rules.h); a life that it doesn't state is the policy's. An answer that may be for
 * one user alone (private, no-store, no-cache, Set-Cookie, Vary on a field that is neither in vary=
 * nor always sent alike, an answer to a request with Authorization without public) is passed: it
 * goes to no other caller. A negative of that kind isn't kept. An answer without life (max-age=0)
 * and grace goes to the callers that waited for it, and isn't kept. A redirect on the way with a
 * shorter life shortens the answer's, and one that may be for one user alone makes it passed. All
 * other statuses are failures with the status as their code; 502: no whole answer came, 504: not in
 * time.
 *
 * One thread, started by the first fetch, moves all transfers; connections are kept and used again.
 * HTTP/1.1; no proxy, no cookies, no netrc. */
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>

#include "http.h"

enum { LOOK_MS = 20, IDLE_MS = 60000 };

extern const corral_origin crl_origin_http;

/* ---- the thread ---------------------------------------------------------------------------- */

static void end_transfer(crl_http_transfer *t) {
  *(t->previous != NULL ? &t->previous->next : &t->origin->running) = t->next;
  if (t->next != NULL) t->next->previous = t->previous;
  crl_http_transfer_free(t);
}

static void abandon(crl_http_transfer *t) {
  const crl_http_origin *o = t->origin;
  if (t->easy != NULL) curl_multi_remove_handle(o->multi, t->easy);
  o->calls->abandon(t->fill);
  end_transfer(t);
}

/* Begins the queued transfers, in order; 1: the origin is being closed. */
static int take_queue(crl_http_origin *o) {
  pthread_mutex_lock(&o->mutex);
  crl_http_transfer *last_first = o->queue, *first = NULL;
  int is_closing = o->is_closing;
  o->queue = NULL;
  pthread_mutex_unlock(&o->mutex);
  for (crl_http_transfer *t; (t = last_first) != NULL; first = t) {
    last_first = t->next;
    t->next = first;
  }
  for (crl_http_transfer *t; (t = first) != NULL;) {
    first = t->next;
    t->previous = NULL;
    t->next = o->running;
    if (t->next != NULL) t->next->previous = t;
    o->running = t;
    if (!is_closing && !crl_http_begin(t)) end_transfer(t);
  }
  return is_closing;
}

static void take_ends(crl_http_origin *o) {
  CURLMsg *message;
  for (int left; (message = curl_multi_info_read(o->multi, &left)) != NULL;) {
    crl_http_transfer *t = NULL;
    if (message->msg != CURLMSG_DONE) continue;
    curl_easy_getinfo(message->easy_handle, CURLINFO_PRIVATE, (char **)&t);
    if (!crl_http_ended(t, message->data.result)) end_transfer(t);
  }
}

static void leave_stopped(crl_http_origin *o) {
  for (crl_http_transfer *t = o->running, *next; t != NULL; t = next) {
    next = t->next;
    if (o->calls->should_stop(t->fill)) abandon(t);
  }
}

static void *run(void *arg) {
  crl_http_origin *o = arg;
  int64_t looked = 0;
  while (!take_queue(o)) {
    int active;
    curl_multi_perform(o->multi, &active);
    take_ends(o);
    int64_t now = o->host->now_ms();
    if (now - looked >= LOOK_MS) {
      leave_stopped(o);
      looked = now;
    }
    curl_multi_poll(o->multi, NULL, 0, o->running != NULL ? LOOK_MS : IDLE_MS, NULL);
  }
  while (o->running != NULL) abandon(o->running);
  return NULL;
}

/* NULL without memory, and without descriptors to wake it by: queued fetches and closing would wait
 * for its next turn. */
static CURLM *new_multi(void) {
  CURLM *multi = curl_multi_init();
  if (multi == NULL || curl_multi_wakeup(multi) == CURLM_OK) return multi;
  curl_multi_cleanup(multi);
  return NULL;
}

/* Starts the thread, with all its signals blocked; under the mutex. 0: no thread can be had. */
static int start(crl_http_origin *o) {
  sigset_t all, before;
  if (o->has_thread) return 1;
  o->host->guard_standard();
  if (o->multi == NULL && (o->multi = new_multi()) == NULL) return 0;
  curl_multi_setopt(o->multi, CURLMOPT_MAX_TOTAL_CONNECTIONS, (long)o->connections);
  curl_multi_setopt(o->multi, CURLMOPT_MAXCONNECTS, (long)o->connections);
  curl_multi_setopt(o->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  o->has_thread = pthread_create(&o->thread, NULL, run, o) == 0;
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  return o->has_thread;
}

/* ---- the table ----------------------------------------------------------------------------- */

static CURLcode global_status;
/* never undone: other code in the process may use libcurl */
static void init_curl(void) { global_status = curl_global_init(CURL_GLOBAL_DEFAULT); }

static int http_open(const corral_host *host, const char *url, uint64_t max_value,
                     void **ret_origin, corral_error *error) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, init_curl);
  if (global_status != CURLE_OK)
    return host->fail(error, CORRAL_EIO, "libcurl: %s", curl_easy_strerror(global_status));
  crl_http_origin *o = calloc(1, sizeof *o);
  if (o == NULL) return host->fail(error, CORRAL_ENOMEM, "out of memory");
  o->host = host;
  o->calls = host->fill;
  int status = crl_http_options(o, url, max_value, error);
  if (status != CORRAL_OK) {
    crl_http_options_free(o);
    free(o);
    return status;
  }
  pthread_mutex_init(&o->mutex, NULL);
  *ret_origin = o;
  return CORRAL_OK;
}

static void http_close(void *origin) {
  crl_http_origin *o = origin;
  pthread_mutex_lock(&o->mutex);
  o->is_closing = 1;
  int has_thread = o->has_thread;
  pthread_mutex_unlock(&o->mutex);
  if (has_thread) {
    curl_multi_wakeup(o->multi);
    pthread_join(o->thread, NULL);
  }
  curl_multi_cleanup(o->multi);
  pthread_mutex_destroy(&o->mutex);
  crl_http_options_free(o);
  free(o);
}

static void http_fetch(void *origin, corral_fill *fill, const void *key, size_t key_len,
                       int64_t deadline) {
  crl_http_origin *o = origin;
  crl_http_transfer *t = calloc(1, sizeof *t);
  if (t == NULL) {
    o->calls->failed(fill, CORRAL_ENOMEM, "out of memory");
    return;
  }
  *t = (crl_http_transfer){
      .origin = o, .fill = fill, .key = key, .key_len = key_len, .deadline = deadline};
  pthread_mutex_lock(&o->mutex);
  int has_thread = start(o);
  if (has_thread) {
    t->next = o->queue;
    o->queue = t;
    curl_multi_wakeup(o->multi); /* under the mutex, so that close can't free `multi` before */
  }
  pthread_mutex_unlock(&o->mutex);
  if (has_thread) return;
  crl_http_fail(t, CORRAL_EIO, "no thread for the origin: out of memory?");
  crl_http_transfer_free(t);
}

const corral_origin crl_origin_http = {
    .size = sizeof(corral_origin),
    .abi = CORRAL_PLUGIN_ABI,
    .name = "http",
    .schemes = "http https",
    .summary = "Values from an HTTP server",
    .open = http_open,
    .close = http_close,
    .fetch = http_fetch,
};

CORRAL_ORIGIN(crl_origin_http)
