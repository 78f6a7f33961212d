/* watch.c: a connection of its own on which the server tells of changed keys: client tracking, with
 * RESP3. The watch reads the first bytes of each key that it is to report (register_keys), on this
 * very connection: so the server remembers the key, and names it once in a push, when it changes,
 * or tells null: all were flushed. A connection that ends takes its registrations along, and its
 * end is seen here.
 *
 * A connection may also end without a sign. So after QUIET_MS of silence the server is asked for
 * one, and has ANSWER_MS to give it. Any reply is one, an error too: a user who may not PING gets
 * NOPERM from a live server. */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "redis.h"

enum { QUIET_MS = CORRAL_SILENCE_MS / 2, ANSWER_MS = CORRAL_SILENCE_MS - QUIET_MS };

/* Keys that changed while others were being registered, for the next `changes`. */
typedef struct backlog {
  uint64_t *hashes;
  size_t count, room;
  int any; /* 1: without memory for all of them */
} backlog;

typedef struct crl_redis_watcher {
  crl_redis_handle *handle;
  crl_redis_resp in;
  /* when the last message came, and when the last PING was sent; host->now_ms */
  int64_t heard, asked;
  int pings; /* unanswered PINGs */
  backlog late;
  crl_redis_on_key *on_key; /* NULL: nobody wants to know */
  void *on_key_arg;
} crl_redis_watcher;

static int strange(const crl_redis_watcher *w, corral_error *error) {
  return w->handle->store->host->fail(error, CORRAL_EPROTOCOL, "%s: told what no watch expects",
                                      w->handle->store->name);
}

static int no_memory(const crl_redis_watcher *w, corral_error *error) {
  return w->handle->store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch",
                                      w->handle->store->name);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Reads what has come, without waiting: *got bytes, or 0 and in *want the events to poll for. */
static int take(crl_redis_watcher *w, size_t *got, short *want, corral_error *error) {
  size_t size;
  char *room = crl_redis_resp_room(&w->in, &size);
  if (room == NULL) return no_memory(w, error);
  int status = crl_redis_wire_take(&w->handle->wire, room, size, got, want, error);
  if (status == CORRAL_OK) crl_redis_resp_feed(&w->in, *got);
  return status;
}

/* The next message that has come; *whole 0: none is complete. */
static int next(crl_redis_watcher *w, crl_redis_message *m, int *whole, corral_error *error) {
  *whole = crl_redis_resp_next(&w->in, m);
  if (*whole > 0) w->heard = w->handle->store->host->now_ms();
  if (*whole >= 0) return CORRAL_OK;
  return w->handle->store->host->fail(error, CORRAL_EPROTOCOL,
                                      "%s: the reply is not one of a Redis server",
                                      w->handle->store->name);
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

/* ---- pushes -------------------------------------------------------------------------------- */

typedef struct listener {
  void (*told)(void *arg, uint64_t hash);
  void *arg;
  int count; /* number of reports */
} listener;

static void tell(listener *to, uint64_t hash) {
  to->told(to->arg, hash);
  to->count++;
}

static int is_text(const crl_redis_token *t, const char *text) {
  return (t->type == '$' || t->type == '+') && t->len == strlen(text) &&
         memcmp(t->text, text, t->len) == 0;
}

/* Handles ">", "invalidate", and the keys or null. A push of any other kind is none of a watch's
 * business. */
static int hear_push(const crl_redis_watcher *w, crl_redis_message m, listener *to,
                     corral_error *error) {
  crl_redis_token push, t;
  (void)crl_redis_message_next(&m, &push);
  if (push.number < 1 || !crl_redis_message_next(&m, &t)) return strange(w, error);
  if (!is_text(&t, "invalidate")) return CORRAL_OK;
  if (push.number != 2 || !crl_redis_message_next(&m, &t)) return strange(w, error);
  if (t.type == '_') {
    tell(to, 0);
    return CORRAL_OK;
  }
  if (t.type != '*') return strange(w, error);
  for (int64_t left = t.number; left > 0; left--) {
    crl_redis_token key;
    if (!crl_redis_message_next(&m, &key) || key.type != '$') return strange(w, error);
    uint64_t hash = w->handle->store->host->hash64(key.text, key.len);
    if (w->on_key != NULL) w->on_key(w->on_key_arg, key.text, key.len, hash);
    tell(to, hash);
  }
  return CORRAL_OK;
}

static void note_late(void *arg, uint64_t hash) {
  backlog *late = arg;
  if (late->count == late->room && !late->any) {
    size_t room = 2 * late->room + 64;
    uint64_t *hashes = realloc(late->hashes, room * sizeof *hashes);
    if (hashes == NULL) {
      late->any = 1;
      return;
    }
    late->hashes = hashes;
    late->room = room;
  }
  if (!late->any) late->hashes[late->count++] = hash;
}

static void tell_late(crl_redis_watcher *w, listener *to) {
  backlog *late = &w->late;
  for (size_t i = 0; i < late->count; i++) tell(to, late->hashes[i]);
  if (late->any) tell(to, 0);
  late->count = 0;
  late->any = 0;
}

/* ---- replies ------------------------------------------------------------------------------- */

/* An error reply, in hiredis' shape: `text` is its room. */
static redisReply error_of(const crl_redis_token *t, char *text, size_t size) {
  size_t len = t->len < size - 1 ? t->len : size - 1;
  memcpy(text, t->text, len);
  text[len] = '\0';
  return (redisReply){.type = REDIS_REPLY_ERROR, .str = text, .len = len};
}

static int is_error(const crl_redis_token *t) { return t->type == '-' || t->type == '!'; }

/* Waits for the next message that is no push; those go to the backlog. */
static int hear_reply(crl_redis_watcher *w, int stop_fd, int64_t deadline, crl_redis_message *m,
                      corral_error *error) {
  const corral_host *host = w->handle->store->host;
  listener late = {.told = note_late, .arg = &w->late};
  for (;;) {
    size_t got;
    short want;
    int whole, stop = 0;
    int status = next(w, m, &whole, error);
    if (status == CORRAL_OK && whole && *m->at == '>') {
      status = hear_push(w, *m, &late, error);
      if (status == CORRAL_OK) continue;
    }
    if (status != CORRAL_OK || whole) return status;
    status = take(w, &got, &want, error);
    if (status == CORRAL_OK && got == 0) status = rest(w, want, stop_fd, deadline, &stop, error);
    if (status != CORRAL_OK) return status;
    if (stop) return host->fail(error, CORRAL_ECANCELLED, "%s: stopped", w->handle->store->name);
    if (got == 0 && host->now_ms() >= deadline)
      return host->fail(error, CORRAL_EUNAVAILABLE, "%s: the watch got no reply in time",
                        w->handle->store->name);
  }
}

static int send_out(crl_redis_watcher *w, int64_t deadline, corral_error *error) {
  size_t sent;
  if (w->handle->out.failed) return no_memory(w, error);
  return crl_redis_out_send(&w->handle->out, &w->handle->wire, deadline, &sent, error);
}

/* ---- opening ------------------------------------------------------------------------------- */

typedef enum wish { HELLO, TRACKING, WISHES } wish;

static const char *const wishes[WISHES][3] = {
    [HELLO] = {"HELLO", "3"},
    [TRACKING] = {"CLIENT", "TRACKING", "ON"},
};

static int refused(const crl_redis_watcher *w, wish what, const crl_redis_token *t,
                   corral_error *error) {
  char text[240];
  const crl_redis_store *s = w->handle->store;
  redisReply reply = error_of(t, text, sizeof text);
  int is_forbidden = crl_redis_reply_is_error(&reply, "NOPERM");
  int status = crl_redis_reply_error(s, &reply, CORRAL_EUNSUPPORTED, error);
  if (status != CORRAL_EUNSUPPORTED && !is_forbidden) return status;
  return s->host->fail(error, CORRAL_EUNSUPPORTED,
                       "%.80s: can't tell of changes: it refuses %s %s: %.80s", s->name,
                       wishes[what][0], wishes[what][1], text);
}

/* The reply to HELLO is a map; a server that stays with RESP2 sends none. */
static int hear_wish(const crl_redis_watcher *w, wish what, crl_redis_message m,
                     corral_error *error) {
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  if (is_error(&t)) return refused(w, what, &t, error);
  if (what == HELLO ? t.type == '%' : is_text(&t, "OK")) return CORRAL_OK;
  return strange(w, error);
}

/* Commands and replies go one by one: a server that refuses HELLO speaks RESP2 from then on. */
static int ask(crl_redis_watcher *w, int64_t deadline, corral_error *error) {
  crl_redis_out *out = &w->handle->out;
  int status = CORRAL_OK;
  for (wish what = HELLO; what < WISHES && status == CORRAL_OK; what++) {
    crl_redis_message m;
    size_t words = wishes[what][2] != NULL ? 3 : 2;
    crl_redis_out_reset(out);
    crl_redis_out_command(out, words);
    for (size_t i = 0; i < words; i++) crl_redis_out_text(out, wishes[what][i]);
    status = send_out(w, deadline, error);
    if (status == CORRAL_OK) status = hear_reply(w, -1, deadline, &m, error);
    if (status == CORRAL_OK) status = hear_wish(w, what, m, error);
  }
  return status;
}

void crl_redis_unwatch(void *watch) {
  crl_redis_watcher *w = watch;
  crl_redis_disconnect(w->handle);
  crl_redis_resp_free(&w->in);
  free(w->late.hashes);
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
  status = ask(w, deadline, error);
  if (status != CORRAL_OK) {
    crl_redis_unwatch(w);
    return status;
  }
  w->heard = s->host->now_ms();
  *ret_watch = w;
  return s->host->fail(error, CORRAL_OK, "%s: push (RESP3)", s->name);
}

void crl_redis_watch_keys(void *watch, crl_redis_on_key *on_key, void *arg) {
  crl_redis_watcher *w = watch;
  w->on_key = on_key;
  w->on_key_arg = arg;
}

int crl_redis_watch_fd(const void *watch) {
  return ((const crl_redis_watcher *)watch)->handle->wire.fd;
}

/* ---- registering --------------------------------------------------------------------------- */

static int judge_key(const crl_redis_watcher *w, crl_redis_message m, corral_registration *key,
                     corral_error *error) {
  char text[240];
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  if (is_error(&t)) {
    redisReply reply = error_of(&t, text, sizeof text);
    key->status = crl_redis_reply_error(w->handle->store, &reply, CORRAL_EREFUSED, NULL);
    return CORRAL_OK;
  }
  if (t.type != '$' || t.len > CORRAL_HEAD) return strange(w, error);
  memcpy(key->head, t.text, t.len);
  key->head_len = t.len;
  key->status = t.len > 0 ? CORRAL_OK : CORRAL_EMISS;
  return CORRAL_OK;
}

static void put_key(crl_redis_out *out, const corral_registration *key) {
  crl_redis_out_command(out, 4);
  crl_redis_out_text(out, "GETRANGE");
  crl_redis_out_word(out, key->key, key->key_len);
  crl_redis_out_number(out, 0);
  crl_redis_out_number(out, CORRAL_HEAD - 1);
}

/* Replies to earlier PINGs. */
static int hear_pongs(crl_redis_watcher *w, int stop_fd, int64_t deadline, corral_error *error) {
  crl_redis_message m;
  int status = CORRAL_OK;
  for (; w->pings > 0 && status == CORRAL_OK; w->pings -= status == CORRAL_OK)
    status = hear_reply(w, stop_fd, deadline, &m, error);
  return status;
}

/* When the next PING, or its answer, is due. */
static int64_t due(const crl_redis_watcher *w) {
  if (w->pings == 0) return w->heard + QUIET_MS;
  return (w->asked > w->heard ? w->asked : w->heard) + ANSWER_MS;
}

/* A registration asks for a sign of life, too; the replies to it and to an earlier PING have the
 * same time. */
static int64_t limit_of(const crl_redis_watcher *w, int64_t deadline) {
  int64_t limit = w->pings > 0 ? due(w) : w->handle->store->host->now_ms() + ANSWER_MS;
  return limit < deadline ? limit : deadline;
}

int crl_redis_register_keys(void *watch, corral_registration *keys, size_t count, int stop_fd,
                            int64_t deadline, corral_error *error) {
  crl_redis_watcher *w = watch;
  crl_redis_message m;
  deadline = limit_of(w, deadline);
  crl_redis_out_reset(&w->handle->out);
  for (size_t i = 0; i < count; i++) put_key(&w->handle->out, &keys[i]);
  int status = send_out(w, deadline, error);
  if (status == CORRAL_OK) status = hear_pongs(w, stop_fd, deadline, error);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    status = hear_reply(w, stop_fd, deadline, &m, error);
    if (status == CORRAL_OK) status = judge_key(w, m, &keys[i], error);
  }
  return status;
}

/* ---- listening ----------------------------------------------------------------------------- */

static int is_pong(crl_redis_message m) {
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  return is_error(&t) || is_text(&t, "PONG");
}

/* Handles all complete messages. */
static int hear_all(crl_redis_watcher *w, listener *to, corral_error *error) {
  for (;;) {
    crl_redis_message m;
    int whole, status = next(w, &m, &whole, error);
    if (status != CORRAL_OK || !whole) return status;
    if (*m.at == '>')
      status = hear_push(w, m, to, error);
    else if (w->pings > 0 && is_pong(m))
      w->pings--;
    else
      status = strange(w, error);
    if (status != CORRAL_OK) return status;
  }
}

int64_t crl_redis_watch_due(const void *watch) { return due(watch); }

/* Sends the PING that is due; an overdue answer means that the connection is dead. */
static int ping(crl_redis_watcher *w, int64_t now, corral_error *error) {
  crl_redis_handle *h = w->handle;
  if (w->pings > 0)
    return h->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: the watch got no sign of life",
                                h->store->name);
  crl_redis_out_reset(&h->out);
  crl_redis_out_command(&h->out, 1);
  crl_redis_out_text(&h->out, "PING");
  w->pings++;
  w->asked = now;
  return send_out(w, CRL_NET_AT_ONCE, error);
}

/* Reads once from the socket, and waits if nothing has come; *ret_stop: the caller must return. */
static int look(crl_redis_watcher *w, int stop_fd, int64_t until, listener *to, int *ret_stop,
                corral_error *error) {
  size_t got;
  short want;
  int status = take(w, &got, &want, error);
  if (status == CORRAL_OK) status = hear_all(w, to, error);
  if (status != CORRAL_OK || to->count > 0) return status;
  int64_t now = w->handle->store->host->now_ms();
  if (now >= due(w)) status = ping(w, now, error);
  int64_t next_due = due(w) < until ? due(w) : until;
  if (status == CORRAL_OK) status = rest(w, got > 0 ? 0 : want, stop_fd, next_due, ret_stop, error);
  if (now >= until) *ret_stop = 1;
  return status;
}

int crl_redis_changes(void *watch, int stop_fd, int64_t until,
                      void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  crl_redis_watcher *w = watch;
  listener to = {.told = told, .arg = arg};
  int stop = 0;
  tell_late(w, &to);
  int status = hear_all(w, &to, error);
  while (status == CORRAL_OK && !stop && to.count == 0)
    status = look(w, stop_fd, until, &to, &stop, error);
  return status;
}
