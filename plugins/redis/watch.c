/* watch.c: a connection of its own on which the server tells of changed keys: CLIENT TRACKING as a
 * RESP2 client has it. Handles have what they look at remembered (request.c), redirected to this
 * connection, which has subscribed to the channel below. There the server names each key once, when
 * it changes, or tells nil: all were flushed.
 *
 * When this connection dies, the handles aren't told. So after QUIET_MS of silence the server is
 * asked for a sign of life, and has ANSWER_MS to give it. Any reply is one, an error too: a user
 * who may not PING gets NOPERM from a live server. */
#include <errno.h>
#include <poll.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "redis.h"

#define CHANNEL "__redis__:invalidate"

enum { QUIET_MS = 1000, ANSWER_MS = 1000 };

typedef struct crl_redis_watcher {
  crl_redis_handle *handle;
  int64_t id; /* client id of this connection */
  /* when the last reply came, and when the last PING was sent; host->now_ms */
  int64_t heard, asked;
  int pings; /* unanswered PINGs */
} crl_redis_watcher;

/* ---- opening ------------------------------------------------------------------------------- */

typedef enum wish { ID, TRACKING, CACHING, SUBSCRIBE, WISHES } wish;

/* Commands of the opening. The second and third are used by the handles and change nothing here:
 * they test whether the server knows them and this user may use them. */
static const char *const wishes[WISHES][3] = {
    [ID] = {"CLIENT", "ID"},
    [TRACKING] = {"CLIENT", "TRACKING", "OFF"},
    [CACHING] = {"CLIENT", "CACHING", "YES"},
    [SUBSCRIBE] = {"SUBSCRIBE", CHANNEL},
};

static int is_text(const redisReply *reply, const char *text) {
  return reply->type == REDIS_REPLY_STRING && reply->len == strlen(text) &&
         memcmp(reply->str, text, reply->len) == 0;
}

static int strange(const crl_redis_watcher *w, corral_error *error) {
  return w->handle->store->host->fail(error, CORRAL_EPROTOCOL, "%s: told what no watch expects",
                                      w->handle->store->name);
}

static int refused(const crl_redis_watcher *w, wish what, const redisReply *reply,
                   corral_error *error) {
  const crl_redis_store *s = w->handle->store;
  int is_forbidden = crl_redis_reply_is_error(reply, "NOPERM");
  /* a known command: "only in tracking mode" */
  if (what == CACHING && !is_forbidden) return CORRAL_OK;
  int status = crl_redis_reply_error(s, reply, CORRAL_EUNSUPPORTED, error);
  if (status != CORRAL_EUNSUPPORTED && !is_forbidden) return status;
  return s->host->fail(error, CORRAL_EUNSUPPORTED,
                       "%.80s: can't tell of changes: it refuses %s %s: %.80s", s->name,
                       wishes[what][0], wishes[what][1], reply->str);
}

static int hear_wish(crl_redis_watcher *w, wish what, const redisReply *reply,
                     corral_error *error) {
  if (reply->type == REDIS_REPLY_ERROR) return refused(w, what, reply, error);
  switch (what) {
    case ID:
      w->id = reply->type == REDIS_REPLY_INTEGER ? reply->integer : 0;
      return w->id > 0 ? CORRAL_OK : strange(w, error);
    case SUBSCRIBE:
      return reply->type == REDIS_REPLY_ARRAY && reply->elements == 3 &&
                     is_text(reply->element[0], "subscribe") && is_text(reply->element[1], CHANNEL)
                 ? CORRAL_OK
                 : strange(w, error);
    default: return reply->type == REDIS_REPLY_STATUS ? CORRAL_OK : strange(w, error);
  }
}

static int ask(crl_redis_watcher *w, int64_t deadline, corral_error *error) {
  crl_redis_handle *h = w->handle;
  size_t sent;
  crl_redis_out_reset(&h->out);
  for (wish what = ID; what < WISHES; what++) {
    size_t words = wishes[what][2] != NULL ? 3 : 2;
    crl_redis_out_command(&h->out, words);
    for (size_t i = 0; i < words; i++) crl_redis_out_text(&h->out, wishes[what][i]);
  }
  if (h->out.failed)
    return h->store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch", h->store->name);
  int status = crl_redis_out_send(&h->out, &h->wire, deadline, &sent, error);
  for (wish what = ID; what < WISHES && status == CORRAL_OK; what++) {
    redisReply *reply;
    status = crl_redis_reply_next(h, deadline, &reply, error);
    if (status != CORRAL_OK) break;
    status = hear_wish(w, what, reply, error);
    freeReplyObject(reply);
  }
  return status;
}

/* Withdraws the watch from the handles. */
static void retire(crl_redis_watcher *w) {
  int64_t id = w->id;
  atomic_compare_exchange_strong(&w->handle->store->watch, &id, 0);
}

void crl_redis_unwatch(void *watch) {
  crl_redis_watcher *w = watch;
  retire(w);
  crl_redis_disconnect(w->handle);
  free(w);
}

int crl_redis_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                    corral_error *error) {
  crl_redis_store *s = store;
  void *handle;
  (void)server;
  int status = crl_redis_connect(s, deadline, &handle, error);
  if (status != CORRAL_OK) return status;
  crl_redis_watcher *w = calloc(1, sizeof *w);
  if (w == NULL) {
    crl_redis_disconnect(handle);
    return s->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch", s->name);
  }
  w->handle = handle;
  w->handle->longest = CRL_REDIS_LONGEST_PUSH;
  status = ask(w, deadline, error);
  if (status != CORRAL_OK) {
    crl_redis_unwatch(w);
    return status;
  }
  w->heard = s->host->now_ms();
  s->watch = w->id;
  *ret_watch = w;
  return CORRAL_OK;
}

/* ---- messages ------------------------------------------------------------------------------ */

typedef struct listener {
  void (*told)(void *arg, uint64_t hash);
  void *arg;
  int count; /* number of reports */
} listener;

static void tell(listener *to, uint64_t hash) {
  to->told(to->arg, hash);
  to->count++;
}

/* Handles "message", the channel, the keys. */
static int hear_message(const crl_redis_watcher *w, const redisReply *reply, listener *to,
                        corral_error *error) {
  const redisReply *keys = reply->element[2];
  if (!is_text(reply->element[1], CHANNEL)) return strange(w, error);
  /* not from the server: a client's PUBLISH */
  if (keys->type == REDIS_REPLY_STRING) return CORRAL_OK;
  if (keys->type == REDIS_REPLY_NIL) {
    tell(to, 0);
    return CORRAL_OK;
  }
  if (keys->type != REDIS_REPLY_ARRAY) return strange(w, error);
  for (size_t i = 0; i < keys->elements; i++) {
    const redisReply *key = keys->element[i];
    if (key->type != REDIS_REPLY_STRING) return strange(w, error);
    tell(to, w->handle->store->host->hash64(key->str, key->len));
  }
  return CORRAL_OK;
}

static int hear(crl_redis_watcher *w, const redisReply *reply, listener *to, corral_error *error) {
  w->heard = w->handle->store->host->now_ms();
  int is_array = reply->type == REDIS_REPLY_ARRAY && reply->elements > 0;
  if (is_array && reply->elements == 3 && is_text(reply->element[0], "message"))
    return hear_message(w, reply, to, error);
  int is_pong = is_array && reply->elements == 2 && is_text(reply->element[0], "pong");
  if (w->pings == 0 || (!is_pong && reply->type != REDIS_REPLY_ERROR)) return strange(w, error);
  w->pings--;
  return CORRAL_OK;
}

/* Handles all complete messages. */
static int hear_all(crl_redis_watcher *w, listener *to, corral_error *error) {
  for (;;) {
    redisReply *reply;
    int status = crl_redis_reply_ready(w->handle, &reply, error);
    if (status != CORRAL_OK || reply == NULL) return status;
    status = hear(w, reply, to, error);
    freeReplyObject(reply);
    if (status != CORRAL_OK) return status;
  }
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* When the next PING, or its answer, is due. */
static int64_t due(const crl_redis_watcher *w) {
  if (w->pings == 0) return w->heard + QUIET_MS;
  return (w->asked > w->heard ? w->asked : w->heard) + ANSWER_MS;
}

/* Sends the PING that is due; an overdue answer means that the connection is dead. */
static int ping(crl_redis_watcher *w, int64_t now, corral_error *error) {
  crl_redis_handle *h = w->handle;
  size_t sent;
  if (w->pings > 0)
    return h->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: the watch got no sign of life",
                                h->store->name);
  crl_redis_out_reset(&h->out);
  crl_redis_out_command(&h->out, 1);
  crl_redis_out_text(&h->out, "PING");
  if (h->out.failed)
    return h->store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a PING", h->store->name);
  w->pings++;
  w->asked = now;
  return crl_redis_out_send(&h->out, &h->wire, CRL_NET_AT_ONCE, &sent, error);
}

/* Waits until the socket is ready for `want`, stop_fd is readable, or `until`. `want` 0: only
 * checks stop_fd. */
static int rest(const crl_redis_watcher *w, short want, int stop_fd, int64_t until, int *ret_stop,
                corral_error *error) {
  struct pollfd fds[2] = {{.fd = stop_fd, .events = POLLIN},
                          {.fd = w->handle->wire.fd, .events = want}};
  int64_t left = until - w->handle->store->host->now_ms();
  int n = poll(fds, want != 0 ? 2 : 1,
               left <= 0 || want == 0 ? 0
               : left > QUIET_MS      ? QUIET_MS
                                      : (int)left);
  *ret_stop = n > 0 && fds[0].revents != 0;
  return n >= 0 || errno == EINTR ? CORRAL_OK
                                  : crl_net_failed_errno(&w->handle->store->peer, error, "poll");
}

/* Reads once from the socket, and waits if nothing has come; *ret_stop: the caller must return. */
static int look(crl_redis_watcher *w, int stop_fd, int64_t until, listener *to, int *ret_stop,
                corral_error *error) {
  crl_redis_handle *h = w->handle;
  size_t got;
  short want;
  int status = crl_redis_wire_take(&h->wire, h->in, sizeof h->in, &got, &want, error);
  if (status == CORRAL_OK && got > 0) status = crl_redis_reply_feed(h, got, error);
  if (status == CORRAL_OK) status = hear_all(w, to, error);
  if (status != CORRAL_OK || to->count > 0) return status;
  int64_t now = h->store->host->now_ms();
  if (now >= due(w)) status = ping(w, now, error);
  int64_t next = due(w) < until ? due(w) : until;
  if (status == CORRAL_OK) status = rest(w, got > 0 ? 0 : want, stop_fd, next, ret_stop, error);
  if (now >= until) *ret_stop = 1;
  return status;
}

int crl_redis_changes(void *watch, int stop_fd, int64_t until,
                      void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  crl_redis_watcher *w = watch;
  listener to = {.told = told, .arg = arg};
  int stop = 0;
  int status = hear_all(w, &to, error); /* messages that came with the answers to `ask` */
  while (status == CORRAL_OK && !stop && to.count == 0)
    status = look(w, stop_fd, until, &to, &stop, error);
  if (status != CORRAL_OK) retire(w);
  return status;
}
