/* mariadb.c: MariaDB's session locks (GET_LOCK): `mariadb://[user[:password]@]host[:port]/[db]`, or
 * `?socket=PATH` without a host.
 *
 * Defaults: 127.0.0.1, 3306, the system's user name. A database is needed only for what others see
 * of a holder, and for users that may not connect without one. connections=64: most connections,
 * and so most locks held, or waited for in turn, at a time; one more connection is used for looks.
 * Exclusive locks only.
 *
 * A hold is a connection that has GET_LOCK("corral:" + 128 bits of the name's hash), because the
 * server's names have 64 characters and ignore case. So
 *   - a holder that is killed loses it at once, when the server sees the connection end, unless a
 *     forked child of it keeps the socket open;
 *   - a holder that is stopped, or cut off, loses it after lease_ms of silence, rounded up to
 *     seconds: the session's wait_timeout. A hold may last longer than asked for, never shorter.
 *     Every statement, LOCK_EXTEND too, begins the time anew;
 *   - KILL, a restart of the server, and a broken network end it: the next LOCK_EXTEND or UNLOCK
 *     is ELOST.
 * A waiter in turn is a connection, too (turns.c). A release needs none but its hold's own.
 * Connections without a hold are used again; those that the server has ended meanwhile are noticed
 * before they are used.
 *
 * Fencing tokens are UUID_SHORT(), taken after the grant: server_id (8 bits), the second in which
 * the server started (32), a counter (24). They grow as long as server_id stays and the server's
 * clock isn't set back across a restart. So that two starts can't share a second, nothing is
 * granted in the second in which the server started (EBUSY). LOCK_EXTEND can't raise them.
 *
 * Limits. The server knows the holder of a lock as a connection; it shows the connection's user,
 * address and time of silence to users with PROCESS, or of the same account. Its note and fencing
 * token, and since when it holds, are told where the URI names a database (notes.c). Locks are not
 * replicated, neither by Galera (each node has its own) nor to replicas: all users must name one
 * server. No proxy that shares sessions among clients may stand between. No TLS.
 *
 * MariaDB 10.0.2 or later: before, a second GET_LOCK ended the first one. All waiting is done here,
 * by poll and by deadline, because the library's own time limits are whole seconds. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>

#include "mariadb.h"

enum { PORT = 3306, CONNECTIONS = 64, CONNECTIONS_MOST = 10000 };

/* ---- verbs --------------------------------------------------------------------------------- */

static void name_of(const crl_mariadb_store *st, const corral_op *op, char name[CRL_MARIADB_NAME]) {
  uint8_t hash[16];
  st->host->digest(op->key, op->key_len, hash);
  int used = snprintf(name, CRL_MARIADB_NAME, "corral:");
  for (int i = 0; i < 16; i++)
    used += snprintf(name + used, (size_t)(CRL_MARIADB_NAME - used), "%02x", hash[i]);
}

/* Notes a statement's failure if it is the server's; returns `status`. */
static int note(crl_mariadb_batch *b, const crl_mariadb_session *s, int status) {
  if (s->broken)
    b->sick = CORRAL_EUNAVAILABLE;
  else if (status == CORRAL_EINDOUBT)
    b->sick = status;
  return status;
}

/* Returns ELOST, with left_ms 0: the lock is free, or -1: it is held. */
static int lost(crl_mariadb_batch *b, corral_op *op) {
  char name[CRL_MARIADB_NAME], sql[CRL_MARIADB_SQL];
  crl_mariadb_session *s = NULL;
  op->lock_state.left_ms = 0;
  if (crl_mariadb_take_session(b, 1, &s, NULL) != CORRAL_OK) return CORRAL_ELOST;
  name_of(b->st, op, name);
  snprintf(sql, sizeof sql, "SELECT IS_USED_LOCK('%s') IS NOT NULL", name);
  if (note(b, s, crl_mariadb_ask(s, sql, b->deadline, NULL)) == CORRAL_OK && crl_mariadb_is_one(s))
    op->lock_state.left_ms = -1;
  crl_mariadb_put_idle(s);
  return CORRAL_ELOST;
}

static void granted(crl_mariadb_session *s, corral_op *op, int64_t from) {
  pthread_mutex_lock(&s->st->mutex); /* LOCK_SHOW may be reading the hold */
  int64_t until = from + corral_op_hold_ms(op);
  if (s->hold.until < until) s->hold.until = until;
  pthread_mutex_unlock(&s->st->mutex);
  op->lock_state.fence = s->hold.fence;
  op->lock_state.left_ms = s->hold.until - from;
}

/* Extends a hold. Any statement begins the silence anew; this one also checks that the lock is
 * still held. `s` is given back, or dropped. */
static int prolong(crl_mariadb_batch *b, crl_mariadb_session *s, corral_op *op) {
  char sql[CRL_MARIADB_SQL];
  int64_t now = b->st->host->now_ms(), rest = s->hold.until - now, life = corral_op_hold_ms(op);
  snprintf(sql, sizeof sql, "SELECT IS_USED_LOCK('%s') = CONNECTION_ID()", s->name);
  int status = crl_mariadb_set_timeout(s, rest > life ? rest : life, b->deadline, op->error);
  if (status == CORRAL_OK) status = crl_mariadb_ask(s, sql, b->deadline, op->error);
  if (s->broken || (status == CORRAL_OK && !crl_mariadb_is_one(s))) {
    crl_mariadb_drop(s);
    return CORRAL_ELOST;
  }
  if (status == CORRAL_OK) granted(s, op, now);
  note(b, s, status);
  crl_mariadb_put_held(s);
  return status;
}

/* 1: the server started in this second, and could start again in it, which would give its fencing
 * tokens twice. */
static int is_too_young(const crl_mariadb_session *s) {
  uint64_t now = crl_mariadb_cell(s, 1) == NULL ? 0 : strtoull(crl_mariadb_cell(s, 1), NULL, 10);
  return (s->hold.fence >> 24 & 0xffffffff) == (now & 0xffffffff);
}

/* Begins the hold of the token to which GET_LOCK's answer, the session's row, grants it; it lasts
 * from `from`, which is before the answer came. EBUSY: nothing is granted. */
static int begin(crl_mariadb_batch *b, crl_mariadb_session *s, corral_op *op, int64_t from) {
  char sql[CRL_MARIADB_SQL];
  s->hold.fence = crl_mariadb_cell(s, 0) == NULL ? 0 : strtoull(crl_mariadb_cell(s, 0), NULL, 10);
  op->lock_state.left_ms = -1;
  if (s->hold.fence == 0) return CORRAL_EBUSY;
  if (is_too_young(s)) {
    op->lock_state.left_ms = 1000;
    snprintf(sql, sizeof sql, "SELECT RELEASE_LOCK('%s')", s->name);
    /* the lock that it got ends with it */
    if (crl_mariadb_ask(s, sql, b->deadline, NULL) != CORRAL_OK) s->broken = 1;
    return CORRAL_EBUSY;
  }
  int status = crl_mariadb_set_timeout(s, op->lock.hold_ms, b->deadline, op->error);
  if (status != CORRAL_OK) return status;
  s->hold.since = from;
  granted(s, op, from);
  crl_mariadb_note_write(s, b->deadline);
  if (!s->broken) return CORRAL_OK;
  return b->st->host->fail(op->error, CORRAL_EUNAVAILABLE,
                           "%s: the connection ended, and the hold with it", b->st->label);
}

static int try_lock(crl_mariadb_batch *b, crl_mariadb_session *s, corral_op *op) {
  char sql[CRL_MARIADB_SQL];
  size_t len = op->lock.note_len < CORRAL_LOCK_NOTE ? op->lock.note_len : CORRAL_LOCK_NOTE;
  s->hold = (corral_hold){.mode = CORRAL_LOCK_EXCLUSIVE};
  memcpy(s->hold.token, op->token, CORRAL_TOKEN);
  if (len > 0) memcpy(s->hold.note, op->lock.note, len);
  name_of(b->st, op, s->name);
  int status = crl_mariadb_set_timeout(s, op->lock.hold_ms, b->deadline, op->error);
  int64_t now = b->st->host->now_ms();
  /* IF evaluates its first argument once and before the others, so no number is made unless the
   * lock was granted */
  snprintf(sql, sizeof sql,
           "SELECT IF(GET_LOCK('%s', 0), UUID_SHORT(), 0), UNIX_TIMESTAMP(SYSDATE())", s->name);
  if (status == CORRAL_OK) status = crl_mariadb_ask(s, sql, b->deadline, op->error);
  return note(b, s, status == CORRAL_OK ? begin(b, s, op, now) : status);
}

/* Sets whether a session in the list waits, which LOCK_SHOW may be reading. */
static void waits(crl_mariadb_session *s, int does) {
  pthread_mutex_lock(&s->st->mutex);
  s->waits = does;
  pthread_mutex_unlock(&s->st->mutex);
}

/* LOCK of a token that waits for its turn. `s` is given back, or dropped. ELOST: the turn, or the
 * place, is lost. */
static int in_turn(crl_mariadb_batch *b, crl_mariadb_session *s, corral_op *op) {
  int status = crl_mariadb_turn(b, s);
  if (status == CORRAL_EBUSY) {
    op->flags |= CORRAL_OP_QUEUED;
    op->lock_state.left_ms = -1;
    op->lock_state.fence = s->place;
    crl_mariadb_put_held(s);
    return status;
  }
  if (status == CORRAL_OK) {
    /* the server's answer to this shows that the session, and so the hold, has not ended since */
    s->timeout_s = 0;
    status = begin(b, s, op, b->st->host->now_ms());
    if (!s->broken && status != CORRAL_OK) note(b, s, status);
    if (s->broken) status = CORRAL_ELOST;
  }
  if (status != CORRAL_ELOST) waits(s, 0);
  if (status == CORRAL_OK)
    crl_mariadb_put_held(s);
  else if (status == CORRAL_EBUSY)
    crl_mariadb_put_idle(s);
  else
    crl_mariadb_drop(s);
  return status;
}

/* A LOCK in turn was refused, on `s`: it gets a place at the end of the queue. */
static int queue(crl_mariadb_batch *b, crl_mariadb_session *s, corral_op *op) {
  int status = crl_mariadb_turn_begin(b, s, op->error);
  if (status != CORRAL_OK) {
    note(b, s, status);
    crl_mariadb_drop(s);
    return status;
  }
  status = in_turn(b, s, op);
  return status == CORRAL_ELOST ? CORRAL_EBUSY : status;
}

static int lock(crl_mariadb_batch *b, corral_op *op) {
  crl_mariadb_session *s = NULL;
  int status = crl_mariadb_take_held(b, op, &s);
  if (status != CORRAL_OK) return status;
  if (s != NULL) status = s->waits ? in_turn(b, s, op) : prolong(b, s, op);
  if (s != NULL && status != CORRAL_ELOST) return status;
  status = crl_mariadb_take_session(b, 0, &s, op->error);
  if (status != CORRAL_OK) return status;
  status = try_lock(b, s, op);
  int is_held = status == CORRAL_EBUSY && s->hold.fence == 0;
  if (is_held && op->flags & CORRAL_OP_FAIR && op->lock.wish_ms > 0) return queue(b, s, op);
  if (status == CORRAL_OK)
    crl_mariadb_add_held(s, 0);
  else if (status == CORRAL_EBUSY)
    crl_mariadb_put_idle(s);
  else
    crl_mariadb_drop(s); /* a grant that may be on its way ends with the connection */
  return status;
}

static int extend(crl_mariadb_batch *b, corral_op *op) {
  crl_mariadb_session *s = NULL;
  int status = crl_mariadb_take_held(b, op, &s);
  if (status != CORRAL_OK) return status;
  if (s != NULL && s->waits) {
    crl_mariadb_put_held(s);
    s = NULL;
  }
  if (s == NULL) return lost(b, op);
  if (op->lock_extend.fence > s->hold.fence) {
    crl_mariadb_put_held(s);
    return b->st->host->fail(op->error, CORRAL_EUNSUPPORTED,
                             "%s: fencing tokens are the server's, and can't be raised",
                             b->st->label);
  }
  status = prolong(b, s, op);
  return status == CORRAL_ELOST ? lost(b, op) : status;
}

static int unlock(crl_mariadb_batch *b, corral_op *op) {
  char sql[CRL_MARIADB_SQL];
  crl_mariadb_session *s = NULL;
  int status = crl_mariadb_take_held(b, op, &s);
  if (status != CORRAL_OK) return status;
  if (s == NULL) return lost(b, op);
  op->lock_state.left_ms = 0;
  if (s->waits) {
    crl_mariadb_turn_end(b, s);
    return CORRAL_OK;
  }
  snprintf(sql, sizeof sql, "SELECT RELEASE_LOCK('%s')", s->name);
  status = note(b, s, crl_mariadb_ask(s, sql, b->deadline, op->error));
  int ended = crl_mariadb_is_one(s);
  if (status != CORRAL_OK) {
    crl_mariadb_drop(s);
    /* the hold ends with the connection; whether it lasted until now isn't known */
    return CORRAL_EINDOUBT;
  }
  crl_mariadb_put_idle(s);
  return ended ? CORRAL_OK : lost(b, op);
}

/* Describes a holder: a hold of this store, or what the server tells. */
static void describe(crl_mariadb_session *s, corral_hold *hold) {
  crl_mariadb_store *st = s->st;
  unsigned long id = strtoul(crl_mariadb_cell(s, 0), NULL, 10);
  crl_mariadb_note_read(s, hold);
  pthread_mutex_lock(&st->mutex);
  for (const crl_mariadb_session *own = st->held; own != NULL; own = own->next)
    if (own->id == id && !own->waits) *hold = own->hold;
  pthread_mutex_unlock(&st->mutex);
}

/* Hands out a record of the holder, whom the session's row names, and of those that wait. */
static int give(crl_mariadb_batch *b, crl_mariadb_session *s, const char *name, corral_op *op) {
  corral_hold *holds = calloc(1 + CRL_MARIADB_LISTED, sizeof *holds);
  uint8_t *record = malloc(CORRAL_LOCK_HEAD + (1 + CRL_MARIADB_LISTED) * CORRAL_LOCK_HOLD);
  size_t count = crl_mariadb_cell(s, 0) != NULL;
  if (holds == NULL || record == NULL) {
    free(holds);
    free(record);
    return b->st->host->fail(op->error, CORRAL_ENOMEM, "no memory for a record");
  }
  if (count > 0) describe(s, holds);
  count += crl_mariadb_turn_list(s, name, b->deadline, holds + count);
  b->st->host->lock_write(holds[0].fence, holds, count, record);
  free(holds);
  if (count == 0) {
    free(record);
    return CORRAL_EMISS;
  }
  op->found.record = op->found.owner = record;
  op->found.len = CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD;
  op->found.drop = free;
  op->lock_state.now = b->st->host->now_ms();
  return CORRAL_OK;
}

static int show(crl_mariadb_batch *b, corral_op *op) {
  char name[CRL_MARIADB_NAME];
  crl_mariadb_session *s = NULL;
  int status = crl_mariadb_take_session(b, 1, &s, op->error);
  if (status != CORRAL_OK) return status;
  name_of(b->st, op, name);
  status = note(b, s, crl_mariadb_note_ask(s, name, b->deadline, op->error));
  if (status == CORRAL_OK) status = give(b, s, name, op);
  crl_mariadb_put_idle(s);
  return status;
}

static int perform_one(crl_mariadb_batch *b, corral_op *op) {
  const corral_host *host = b->st->host;
  int shared = (op->flags & CORRAL_OP_SHARED) != 0 &&
               (op->verb == CORRAL_VERB_LOCK || op->verb == CORRAL_VERB_LOCK_EXTEND);
  if (shared) return host->fail(op->error, CORRAL_EUNSUPPORTED, "mariadb has exclusive locks only");
  switch (op->verb) {
    case CORRAL_VERB_LOCK: return lock(b, op);
    case CORRAL_VERB_LOCK_EXTEND: return extend(b, op);
    case CORRAL_VERB_UNLOCK: return unlock(b, op);
    case CORRAL_VERB_LOCK_SHOW: return show(b, op);
    default: return host->fail(op->error, CORRAL_EUNSUPPORTED, "mariadb has locks only, no values");
  }
}

static int store_perform(void *handle, const corral_batch *ops, int64_t deadline,
                         corral_error *error) {
  crl_mariadb_batch b = {.st = handle, .deadline = deadline, .sick = CORRAL_OK};
  for (size_t i = 0; i < ops->count; i++) {
    corral_op *op = corral_batch_op(ops, i);
    int late = b.sick != CORRAL_OK || b.st->host->now_ms() >= deadline;
    if (late)
      op->status = b.st->host->fail(
          op->error, CORRAL_EUNAVAILABLE,
          "%s: not asked: the time allowed is over, or the server failed before", b.st->label);
    else
      op->status = perform_one(&b, op);
  }
  return b.sick == CORRAL_OK
             ? CORRAL_OK
             : b.st->host->fail(error, b.sick,
                                "%s: the server can't be reached, refuses, or doesn't answer",
                                b.st->label);
}

/* ---- the store ----------------------------------------------------------------------------- */

/* Makes a new connection, since idle ones say nothing about the server. The handle is the store,
 * because holds outlive handles. */
static int store_connect(void *arg, int64_t deadline, void **ret_handle, corral_error *error) {
  crl_mariadb_batch b = {.st = arg, .deadline = deadline};
  crl_mariadb_session *s = NULL;
  crl_mariadb_close_all(crl_mariadb_take_all_idle(b.st));
  int status = crl_mariadb_take_session(&b, 1, &s, error);
  if (status != CORRAL_OK) return status;
  crl_mariadb_put_idle(s);
  *ret_handle = b.st;
  return CORRAL_OK;
}

static void store_disconnect(void *handle) { (void)handle; }

/* Wipes and frees a text that may be a secret. */
static void forget(char *text) {
  if (text != NULL) explicit_bzero(text, strlen(text));
  free(text);
}

static void free_store(crl_mariadb_store *st) {
  forget(st->user);
  forget(st->password);
  free(st->db);
  free(st->socket);
  free(st);
}

static void store_close(void *arg) {
  crl_mariadb_store *st = arg;
  crl_mariadb_close_all(st->idle);
  crl_mariadb_close_all(st->held);
  crl_net_ends_close(&st->ends);
  pthread_cond_destroy(&st->changed);
  pthread_mutex_destroy(&st->mutex);
  free_store(st);
}

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

static int check(const corral_host *host, const corral_uri *uri, corral_error *error) {
  struct sockaddr_un un;
  const char *path = host->uri_get(uri, "socket"), *db = uri->path;
  int status = host->uri_check(uri, "socket connections", error);
  if (status != CORRAL_OK) return status;
  if (uri->hosts == NULL)
    return bad_uri(host, uri, error,
                   "accepted is mariadb://[USER[:PASSWORD]@]HOST[:PORT]/[DB], or ?socket=PATH in "
                   "place of a host");
  if (strchr(uri->hosts, ',') != NULL)
    return bad_uri(host, uri, error,
                   "more than one host: locks are not replicated, so all must use the same one");
  if (strlen(uri->host) >= sizeof((crl_mariadb_store *)0)->server)
    return bad_uri(host, uri, error, "a host's name has 127 bytes at most");
  if (db[0] == '/' && strchr(db + 1, '/') != NULL)
    return bad_uri(host, uri, error, "after the host no more than /DB may follow");
  if (path != NULL && uri->hosts[0] != '\0')
    return bad_uri(host, uri, error, "a host and socket= exclude each other");
  if (path != NULL && (path[0] != '/' || strlen(path) >= sizeof un.sun_path))
    return bad_uri(host, uri, error, "socket= must be an absolute path of at most 107 bytes");
  return CORRAL_OK;
}

/* Copies a text; NULL stays NULL. 0: no memory. */
static int copy(char **to, const char *from) {
  if (from != NULL) *to = strdup(from);
  return from == NULL || *to != NULL;
}

static void name_store(crl_mariadb_store *st, const corral_uri *uri) {
  snprintf(st->server, sizeof st->server, "%s", uri->host[0] != '\0' ? uri->host : "127.0.0.1");
  st->peer = (crl_net_peer){.host = st->host,
                            .name = st->label,
                            .server = st->server,
                            .port = uri->port != 0 ? uri->port : PORT};
  if (st->socket != NULL)
    snprintf(st->label, sizeof st->label, "mariadb %s", st->socket);
  else
    snprintf(st->label, sizeof st->label,
             strchr(st->server, ':') != NULL ? "mariadb [%s]:%d" : "mariadb %s:%d", st->server,
             st->peer.port);
}

static int store_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                      corral_store_info *info, corral_error *error) {
  const char *db = uri->path[0] == '/' && uri->path[1] != '\0' ? uri->path + 1 : NULL;
  pthread_condattr_t monotonic;
  int64_t most = CONNECTIONS;
  int status = check(host, uri, error);
  if (status == CORRAL_OK)
    status = host->uri_number(uri, "connections", "", 1, CONNECTIONS_MOST, &most, error);
  if (status != CORRAL_OK) return status;
  crl_mariadb_store *st = calloc(1, sizeof *st);
  if (st == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  if (!copy(&st->user, uri->user) || !copy(&st->password, uri->password) || !copy(&st->db, db) ||
      !copy(&st->socket, host->uri_get(uri, "socket"))) {
    free_store(st);
    return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  }
  st->host = host;
  st->ends.fd = -1;
  st->most = (size_t)most;
  name_store(st, uri);
  pthread_mutex_init(&st->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* the clock of host->now_ms */
  pthread_cond_init(&st->changed, &monotonic);
  pthread_condattr_destroy(&monotonic);
  info->name = st->label;
  info->locks_only = 1;
  info->turns = 1;
  *ret_store = st;
  return CORRAL_OK;
}

extern const corral_store crl_plugin_mariadb;
const corral_store crl_plugin_mariadb = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_PARALLEL,
    .op_size = sizeof(corral_op),
    .name = "mariadb",
    .schemes = "mariadb",
    .summary = "locks only: GET_LOCK of one MariaDB server, a connection for each hold",
    .open = store_open,
    .close = store_close,
    .connect = store_connect,
    .disconnect = store_disconnect,
    .perform = store_perform,
    .inspect = crl_mariadb_inspect,
    .attend = crl_mariadb_attend,
    .ends = crl_mariadb_ends,
};

CORRAL_PLUGIN(crl_plugin_mariadb)
