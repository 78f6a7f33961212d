/* watch.c: a connection of its own on which the server tells of changed keys: client tracking, with
 * RESP3. The watch reads the first bytes of each key that it is to report (register_keys), on this
 * very connection: so the server remembers the key, and names it once in a push, when it changes,
 * or tells null: all were flushed. A connection that ends takes its registrations along, and its
 * end is seen here.
 *
 * A connection may also end without a sign. So after QUIET_MS of silence the server is asked for
 * one, and has ANSWER_MS to give it. Any reply is one, an error too: a user who may not PING gets
 * NOPERM from a live server.
 *
 * A server, or a user's rights, may lack HELLO: then there is no RESP3. Such a watch has a second
 * connection that subscribes to what the first one registers (REDIRECT). The end of either is that
 * of the watch. */
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

/* A connection of a watch. */
typedef struct line {
  crl_redis_handle *handle; /* NULL: there is none */
  crl_redis_resp in;
  /* when the last message came, and when the last PING was sent; host->now_ms */
  int64_t heard, asked;
  int pings; /* unanswered PINGs */
} line;

enum { LINES = 2 };

typedef struct crl_redis_watcher {
  crl_redis_store *store;
  line line; /* registers keys; with RESP3 it tells of them, too */
  line ear;  /* without RESP3: tells of changes */
  backlog late;
  crl_redis_on_key *on_key; /* NULL: nobody wants to know */
  void *on_key_arg;
} crl_redis_watcher;

static int strange(const crl_redis_watcher *w, corral_error *error) {
  return w->store->host->fail(error, CORRAL_EPROTOCOL, "%s: told what no watch expects",
                              w->store->name);
}

static int no_memory(const crl_redis_watcher *w, corral_error *error) {
  return w->store->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch", w->store->name);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* Reads what has come, without waiting: *got bytes, or 0 and in *want the events to poll for. */
static int take(const crl_redis_watcher *w, line *l, size_t *got, short *want,
                corral_error *error) {
  size_t size;
  char *room = crl_redis_resp_room(&l->in, &size);
  if (room == NULL) return no_memory(w, error);
  int status = crl_redis_wire_take(&l->handle->wire, room, size, got, want, error);
  if (status == CORRAL_OK) crl_redis_resp_feed(&l->in, *got);
  return status;
}

/* The next message that has come; *whole 0: none is complete. */
static int next(const crl_redis_watcher *w, line *l, crl_redis_message *m, int *whole,
                corral_error *error) {
  *whole = crl_redis_resp_next(&l->in, m);
  if (*whole > 0) l->heard = w->store->host->now_ms();
  if (*whole >= 0) return CORRAL_OK;
  return w->store->host->fail(error, CORRAL_EPROTOCOL, "%s: the reply is not one of a Redis server",
                              w->store->name);
}

/* Waits until a socket is ready for what is wanted of it, stop_fd is readable, or `until`. One of
 * which nothing is wanted may have more bytes: then only stop_fd is checked. */
static int rest(const crl_redis_watcher *w, const int *sockets, const short *want, int stop_fd,
                int64_t until, int *ret_stop, corral_error *error) {
  struct pollfd fds[1 + LINES] = {{.fd = stop_fd, .events = POLLIN}};
  int64_t left = until - w->store->host->now_ms();
  int waits = left > 0;
  for (size_t i = 0; i < LINES; i++) {
    fds[1 + i] = (struct pollfd){.fd = sockets[i], .events = want[i]};
    waits &= sockets[i] < 0 || want[i] != 0;
  }
  int n = poll(fds, waits ? 1 + LINES : 1, !waits ? 0 : left > QUIET_MS ? QUIET_MS : (int)left);
  *ret_stop = n > 0 && fds[0].revents != 0;
  return n >= 0 || errno == EINTR ? CORRAL_OK
                                  : crl_net_failed_errno(&w->store->peer, error, "poll");
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

/* The keys of a push, or null: all were flushed. */
static int hear_keys(const crl_redis_watcher *w, crl_redis_message m, listener *to,
                     corral_error *error) {
  crl_redis_token t;
  if (!crl_redis_message_next(&m, &t)) return strange(w, error);
  if (t.type == '_') {
    tell(to, 0);
    return CORRAL_OK;
  }
  if (t.type != '*') return strange(w, error);
  for (int64_t left = t.number; left > 0; left--) {
    crl_redis_token key;
    if (!crl_redis_message_next(&m, &key) || key.type != '$') return strange(w, error);
    uint64_t hash = w->store->host->hash64(key.text, key.len);
    if (w->on_key != NULL) w->on_key(w->on_key_arg, key.text, key.len, hash);
    tell(to, hash);
  }
  return CORRAL_OK;
}

/* Handles ">", "invalidate", and the keys. A push of any other kind is none of a watch's
 * business. */
static int hear_push(const crl_redis_watcher *w, crl_redis_message m, listener *to,
                     corral_error *error) {
  crl_redis_token push, t;
  (void)crl_redis_message_next(&m, &push);
  if (push.number < 1 || !crl_redis_message_next(&m, &t)) return strange(w, error);
  if (!is_text(&t, "invalidate")) return CORRAL_OK;
  return push.number == 2 ? hear_keys(w, m, to, error) : strange(w, error);
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
static int hear_reply(crl_redis_watcher *w, line *l, int stop_fd, int64_t deadline,
                      crl_redis_message *m, corral_error *error) {
  const corral_host *host = w->store->host;
  listener late = {.told = note_late, .arg = &w->late};
  for (;;) {
    size_t got;
    short want[LINES];
    int sockets[LINES] = {l->handle->wire.fd, -1};
    int whole, stop = 0;
    int status = next(w, l, m, &whole, error);
    if (status == CORRAL_OK && whole && *m->at == '>') {
      status = hear_push(w, *m, &late, error);
      if (status == CORRAL_OK) continue;
    }
    if (status != CORRAL_OK || whole) return status;
    status = take(w, l, &got, want, error);
    if (status == CORRAL_OK && got == 0)
      status = rest(w, sockets, want, stop_fd, deadline, &stop, error);
    if (status != CORRAL_OK) return status;
    if (stop) return host->fail(error, CORRAL_ECANCELLED, "%s: stopped", w->store->name);
    if (got == 0 && host->now_ms() >= deadline)
      return host->fail(error, CORRAL_EUNAVAILABLE, "%s: the watch got no reply in time",
                        w->store->name);
  }
}

static int send_out(const crl_redis_watcher *w, line *l, int64_t deadline, corral_error *error) {
  size_t sent;
  if (l->handle->out.failed) return no_memory(w, error);
  return crl_redis_out_send(&l->handle->out, &l->handle->wire, deadline, &sent, error);
}

/* ---- opening ------------------------------------------------------------------------------- */

typedef enum wish { HELLO, TRACKING, ID, SUBSCRIBE, REDIRECT, WISHES } wish;

enum { WORDS = 4 };
static const char *const wishes[WISHES][WORDS] = {
    [HELLO] = {"HELLO", "3"},
    [TRACKING] = {"CLIENT", "TRACKING", "ON"},
    [ID] = {"CLIENT", "ID"},
    [SUBSCRIBE] = {"SUBSCRIBE", "__redis__:invalidate"},
    [REDIRECT] = {"CLIENT", "TRACKING", "ON", "REDIRECT"},
};

static int refused(const crl_redis_watcher *w, wish what, const crl_redis_token *t,
                   corral_error *error) {
  char text[240];
  const crl_redis_store *s = w->store;
  redisReply reply = error_of(t, text, sizeof text);
  int is_forbidden = crl_redis_reply_is_error(&reply, "NOPERM");
  int status = crl_redis_reply_error(s, &reply, CORRAL_EUNSUPPORTED, error);
  if (status != CORRAL_EUNSUPPORTED && !is_forbidden) return status;
  return s->host->fail(
      error, CORRAL_EUNSUPPORTED, "%.80s: can't tell of changes: it refuses %s%s %s: %.80s",
      s->name, what > TRACKING ? "HELLO, and " : "", wishes[what][0], wishes[what][1], text);
}

/* The reply to HELLO is a map; a server that stays with RESP2 sends none. That to SUBSCRIBE is a
 * list. *id: the connection's number. */
static int hear_wish(const crl_redis_watcher *w, wish what, crl_redis_message m, int64_t *id,
                     corral_error *error) {
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  if (is_error(&t)) return refused(w, what, &t, error);
  *id = t.type == ':' ? t.number : 0;
  int is_right = what == HELLO       ? t.type == '%'
                 : what == ID        ? *id > 0
                 : what == SUBSCRIBE ? t.type == '*' && t.number == 3
                                     : is_text(&t, "OK");
  return is_right ? CORRAL_OK : strange(w, error);
}

/* Commands and replies go one by one: a server that refuses HELLO speaks RESP2 from then on. */
static int ask(crl_redis_watcher *w, line *l, wish what, int64_t *id, int64_t deadline,
               corral_error *error) {
  crl_redis_out *out = &l->handle->out;
  crl_redis_message m;
  size_t words = 0;
  while (words < WORDS && wishes[what][words] != NULL) words++;
  crl_redis_out_reset(out);
  crl_redis_out_command(out, words + (what == REDIRECT));
  for (size_t i = 0; i < words; i++) crl_redis_out_text(out, wishes[what][i]);
  if (what == REDIRECT) crl_redis_out_number(out, *id);
  int status = send_out(w, l, deadline, error);
  if (status == CORRAL_OK) status = hear_reply(w, l, -1, deadline, &m, error);
  return status == CORRAL_OK ? hear_wish(w, what, m, id, error) : status;
}

static int open_line(crl_redis_watcher *w, line *l, int64_t deadline, corral_error *error) {
  void *handle;
  int status = crl_redis_connect(w->store, deadline, &handle, error);
  if (status != CORRAL_OK) return status;
  l->handle = handle;
  l->heard = w->store->host->now_ms();
  if (!l->handle->is_bare) return CORRAL_OK;
  return w->store->host->fail(error, CORRAL_EUNSUPPORTED,
                              "%s: can't tell of changes: a proxy, which hangs up on HELLO",
                              w->store->name);
}

/* Keys that the first connection registers are told on a second one. */
static int open_ear(crl_redis_watcher *w, int64_t deadline, corral_error *error) {
  int64_t id = 0, unused;
  if (w->store->hold != NULL) w->store->hold(w->store);
  int status = open_line(w, &w->ear, deadline, error);
  if (status == CORRAL_OK) status = ask(w, &w->ear, ID, &id, deadline, error);
  if (status == CORRAL_OK) status = ask(w, &w->ear, SUBSCRIBE, &unused, deadline, error);
  return status == CORRAL_OK ? ask(w, &w->line, REDIRECT, &id, deadline, error) : status;
}

static int open_lines(crl_redis_watcher *w, int64_t deadline, corral_error *error) {
  int64_t unused;
  int status = open_line(w, &w->line, deadline, error);
  if (status != CORRAL_OK) return status;
  status = ask(w, &w->line, HELLO, &unused, deadline, error);
  if (status == CORRAL_EUNSUPPORTED) return open_ear(w, deadline, error);
  return status == CORRAL_OK ? ask(w, &w->line, TRACKING, &unused, deadline, error) : status;
}

static void close_line(line *l) {
  if (l->handle != NULL) crl_redis_disconnect(l->handle);
  crl_redis_resp_free(&l->in);
}

void crl_redis_unwatch(void *watch) {
  crl_redis_watcher *w = watch;
  close_line(&w->ear);
  close_line(&w->line);
  free(w->late.hashes);
  free(w);
}

int crl_redis_watch_mode(const crl_redis_store *store, int mode, const char *of,
                         corral_error *error) {
  static const char *const texts[] = {
      [CORRAL_WAKE_PUSH] = "push (RESP3)", [CORRAL_WAKE_REDIRECT] = "redirect (RESP2)"};
  store->host->fail(error, CORRAL_OK, "%s: %s%s", store->name, texts[mode], of);
  if (error != NULL) error->code = mode;
  return CORRAL_OK;
}

int crl_redis_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                    corral_error *error) {
  crl_redis_store *s = store;
  crl_redis_watcher *w = calloc(1, sizeof *w);
  (void)server;
  if (w == NULL) {
    if (s->let_go != NULL) s->let_go(s);
    return s->host->fail(error, CORRAL_ENOMEM, "%s: no memory for a watch", s->name);
  }
  w->store = s;
  int status = open_lines(w, deadline, error);
  if (status != CORRAL_OK) {
    crl_redis_unwatch(w);
    return status;
  }
  *ret_watch = w;
  return crl_redis_watch_mode(s, w->ear.handle != NULL ? CORRAL_WAKE_REDIRECT : CORRAL_WAKE_PUSH,
                              "", error);
}

void crl_redis_watch_keys(void *watch, crl_redis_on_key *on_key, void *arg) {
  crl_redis_watcher *w = watch;
  w->on_key = on_key;
  w->on_key_arg = arg;
}

int crl_redis_watch_fd(const void *watch) {
  const crl_redis_watcher *w = watch;
  return (w->ear.handle != NULL ? w->ear : w->line).handle->wire.fd;
}

/* ---- registering --------------------------------------------------------------------------- */

static int judge_key(const crl_redis_watcher *w, crl_redis_message m, corral_registration *key,
                     corral_error *error) {
  char text[240];
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  if (is_error(&t)) {
    redisReply reply = error_of(&t, text, sizeof text);
    key->status = crl_redis_reply_error(w->store, &reply, CORRAL_EREFUSED, NULL);
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
  line *l = &w->line;
  int status = CORRAL_OK;
  for (; l->pings > 0 && status == CORRAL_OK; l->pings -= status == CORRAL_OK)
    status = hear_reply(w, l, stop_fd, deadline, &m, error);
  return status;
}

/* When the next PING, or its answer, is due. */
static int64_t due(const line *l) {
  if (l->handle == NULL) return INT64_MAX;
  if (l->pings == 0) return l->heard + QUIET_MS;
  return (l->asked > l->heard ? l->asked : l->heard) + ANSWER_MS;
}

/* A registration asks for a sign of life, too; the replies to it and to an earlier PING have the
 * same time. */
static int64_t limit_of(const crl_redis_watcher *w, int64_t deadline) {
  int64_t limit = w->line.pings > 0 ? due(&w->line) : w->store->host->now_ms() + ANSWER_MS;
  return limit < deadline ? limit : deadline;
}

int crl_redis_register_keys(void *watch, corral_registration *keys, size_t count, int stop_fd,
                            int64_t deadline, corral_error *error) {
  crl_redis_watcher *w = watch;
  crl_redis_out *out = &w->line.handle->out;
  crl_redis_message m;
  deadline = limit_of(w, deadline);
  crl_redis_out_reset(out);
  for (size_t i = 0; i < count; i++) put_key(out, &keys[i]);
  int status = send_out(w, &w->line, deadline, error);
  if (status == CORRAL_OK) status = hear_pongs(w, stop_fd, deadline, error);
  for (size_t i = 0; i < count && status == CORRAL_OK; i++) {
    status = hear_reply(w, &w->line, stop_fd, deadline, &m, error);
    if (status == CORRAL_OK) status = judge_key(w, m, &keys[i], error);
  }
  return status;
}

/* ---- listening ----------------------------------------------------------------------------- */

/* The PING of a subscriber is answered by a list. */
static int is_pong(crl_redis_message m) {
  crl_redis_token t;
  (void)crl_redis_message_next(&m, &t);
  if (t.type == '*' && t.number == 2) (void)crl_redis_message_next(&m, &t);
  return is_error(&t) || is_text(&t, "PONG") || is_text(&t, "pong");
}

/* A message to a subscriber: "message", the channel, and the keys. */
static int hear_message(const crl_redis_watcher *w, crl_redis_message m, listener *to,
                        corral_error *error) {
  crl_redis_token list, t;
  (void)crl_redis_message_next(&m, &list);
  if (list.type != '*' || list.number != 3 || !crl_redis_message_next(&m, &t) ||
      !is_text(&t, "message") || !crl_redis_message_next(&m, &t))
    return strange(w, error);
  return hear_keys(w, m, to, error);
}

/* Handles all complete messages of a connection. */
static int hear_all(crl_redis_watcher *w, line *l, listener *to, corral_error *error) {
  for (;;) {
    crl_redis_message m;
    int whole, status = next(w, l, &m, &whole, error);
    if (status != CORRAL_OK || !whole) return status;
    if (l->pings > 0 && *m.at != '>' && is_pong(m))
      l->pings--;
    else if (l == &w->ear)
      status = hear_message(w, m, to, error);
    else
      status = *m.at == '>' ? hear_push(w, m, to, error) : strange(w, error);
    if (status != CORRAL_OK) return status;
  }
}

int64_t crl_redis_watch_due(const void *watch) {
  const crl_redis_watcher *w = watch;
  return due(&w->ear) < due(&w->line) ? due(&w->ear) : due(&w->line);
}

/* Sends the PING that is due; an overdue answer means that the connection is dead. */
static int ping(const crl_redis_watcher *w, line *l, int64_t now, corral_error *error) {
  crl_redis_out *out = &l->handle->out;
  if (l->pings > 0)
    return w->store->host->fail(error, CORRAL_EUNAVAILABLE, "%s: the watch got no sign of life",
                                w->store->name);
  crl_redis_out_reset(out);
  crl_redis_out_command(out, 1);
  crl_redis_out_text(out, "PING");
  l->pings++;
  l->asked = now;
  return send_out(w, l, CRL_NET_AT_ONCE, error);
}

/* Reads once from a connection; *want: what to poll for, 0: it may have more bytes. */
static int look(crl_redis_watcher *w, line *l, listener *to, short *want, corral_error *error) {
  size_t got;
  int status = take(w, l, &got, want, error);
  if (status == CORRAL_OK && got > 0) *want = 0;
  if (status == CORRAL_OK) status = hear_all(w, l, to, error);
  if (status != CORRAL_OK || to->count > 0) return status;
  int64_t now = w->store->host->now_ms();
  return now >= due(l) ? ping(w, l, now, error) : CORRAL_OK;
}

/* Looks at all connections, and waits if nothing has come; *ret_stop: the caller must return. */
static int look_all(crl_redis_watcher *w, int stop_fd, int64_t until, listener *to, int *ret_stop,
                    corral_error *error) {
  line *lines[LINES] = {&w->line, &w->ear};
  short want[LINES] = {0};
  int sockets[LINES] = {-1, -1}, status = CORRAL_OK;
  for (size_t i = 0; i < LINES && status == CORRAL_OK; i++) {
    if (lines[i]->handle == NULL) continue;
    sockets[i] = lines[i]->handle->wire.fd;
    status = look(w, lines[i], to, &want[i], error);
  }
  if (status != CORRAL_OK || to->count > 0) return status;
  int64_t now = w->store->host->now_ms(), next_due = crl_redis_watch_due(w);
  status = rest(w, sockets, want, stop_fd, next_due < until ? next_due : until, ret_stop, error);
  if (now >= until) *ret_stop = 1;
  return status;
}

int crl_redis_changes(void *watch, int stop_fd, int64_t until,
                      void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  crl_redis_watcher *w = watch;
  listener to = {.told = told, .arg = arg};
  int stop = 0;
  tell_late(w, &to);
  int status = hear_all(w, &w->line, &to, error);
  while (status == CORRAL_OK && !stop && to.count == 0)
    status = look_all(w, stop_fd, until, &to, &stop, error);
  return status;
}
