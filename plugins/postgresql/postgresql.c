/* postgresql.c: locks in a PostgreSQL database; no values.
 *
 *   postgresql://[user[:password]@][host[:port]]/DB[?parameters]
 *
 * Defaults: 127.0.0.1, 5432; user, password and DB as in libpq. Parameters: locks=table|advisory
 * (table), table=[schema.]NAME (corral_lock), create=yes|no (yes), notify=yes|no (yes), max_holds
 * (50, advisory), host (a socket's folder, in place of the host), sslmode (verify-full for a host
 * that isn't this one, else libpq's), sslrootcert (libpq's).
 *
 * locks=table. Each name that was ever locked has a row, which stays, with its fencing token; rows
 * must not be deleted while the lock may be in use. All is judged by the server's clock, with one
 * statement for each verb. clock_timestamp() is read once the row's lock is got, not before, so
 * that a statement that had to wait for the row sees the time as it is then. That is so in DO
 * UPDATE; a plain UPDATE computes its values before it waits, so EXTEND and UNLOCK lock the row in
 * a WITH part first, which is never merged into the rest. The fencing token is the server's clock
 * in microseconds, or one more than the last token where that is larger. Exclusive holds only.
 *
 * locks=advisory. Session locks: each hold has a connection of its own, kept by the store under its
 * token, and ends with that session. The server ends a session that is silent for longer than the
 * hold's life (idle_session_timeout, so PostgreSQL 14 or later). The lock's number is a 64 bit hash
 * of the name: two names may have the same one, and then exclude each other; so may another
 * program's advisory locks in this database. Exclusive and shared holds. A writer that waits has a
 * second lock, whose number is made from the first: readers pass through it, so that new ones wait.
 * With FAIR it blocks in the server's queue instead (queue.c).
 * The fencing token is a transaction id (64 bits, only grows), taken by CASE once the lock is
 * granted, in the same statement: the transaction has none before it asks, so a later grant has a
 * larger one. An empty logical message makes the server write that transaction to disk before it
 * answers; otherwise the ids of the last moments would come again after a crash. A standby that is
 * promoted without having received everything can give them again, too: there locks=table is
 * better. A lock belongs to the process that took it. PgBouncer in transaction mode gives the
 * session to other clients: never put it in between.
 *
 * Both refuse a standby. When a hold is unlocked, waiters are told by NOTIFY corral_lock with the
 * name in hex. The server handles NOTIFY one transaction at a time; notify=no is for servers where
 * that costs too much. Unlike a lock of locks=table, a LISTEN doesn't survive PgBouncer in
 * transaction mode.
 *
 * A handle is one connection, for one thread at a time. A statement whose deadline passed may still
 * run in the server, which gives it up within a second of the connection's end
 * (client_connection_check_interval). */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/un.h>
#include <time.h>

#include "postgresql.h"

enum { PORT = 5432 };

#define PARAMETERS "locks table create notify max_holds host sslmode sslrootcert"

/* ---- the URI ------------------------------------------------------------------------------- */

static int bad_uri(const crl_pg_store *s, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return s->host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

/* Reads a parameter: 1 for `yes`, 0 for `no`, `fallback` when it isn't given, -1 for another
 * word. */
static int choice(const crl_pg_store *s, const corral_uri *uri, const char *name, const char *no,
                  const char *yes, int fallback) {
  const char *value = s->host->uri_get(uri, name);
  if (value == NULL) return fallback;
  return strcmp(value, yes) == 0 ? 1 : strcmp(value, no) == 0 ? 0 : -1;
}

/* Reads the table parameter, and quotes its parts: "name" or "schema.name". */
static int read_table(crl_pg_store *s, const corral_uri *uri, corral_error *error) {
  const char *text = s->host->uri_get(uri, "table");
  if (text == NULL) text = "corral_lock";
  const char *dot = strchr(text, '.');
  size_t before = dot != NULL ? (size_t)(dot - text) : 0,
         after = strlen(dot != NULL ? dot + 1 : text);
  int is_odd = (dot != NULL && before == 0) || before > 63 || after == 0 || after > 63;
  for (const char *at = text; *at != '\0' && !is_odd; at++)
    is_odd = at != dot && *at != '_' && !islower((unsigned char)*at) &&
             (!isdigit((unsigned char)*at) || at == text || at - 1 == dot);
  if (is_odd)
    return bad_uri(
        s, uri, error,
        "table accepts NAME or SCHEMA.NAME, of small letters, digits and '_', at most 63 each");
  if (dot == NULL)
    snprintf(s->table, sizeof s->table, "\"%s\"", text);
  else
    snprintf(s->table, sizeof s->table, "\"%.*s\".\"%s\"", (int)before, text, dot + 1);
  for (int i = 0; i < CRL_PG_STATEMENTS; i++) {
    if (!crl_pg_statement_text((crl_pg_statement)i, s->table, s->sql[i], sizeof s->sql[i]))
      return bad_uri(s, uri, error, "table: the name is too long");
    snprintf(s->prepared[i], sizeof s->prepared[i], "crl_%016llx",
             (unsigned long long)corral_digest_number(s->host, s->sql[i], strlen(s->sql[i])));
  }
  return CORRAL_OK;
}

static int read_server(crl_pg_store *s, const corral_uri *uri, corral_error *error) {
  const char *folder = s->host->uri_get(uri, "host"), *server = folder != NULL ? folder
                                                                : uri->host[0] != '\0'
                                                                    ? uri->host
                                                                    : "127.0.0.1";
  int port = uri->port != 0 ? uri->port : PORT;
  if (uri->hosts == NULL)
    return bad_uri(s, uri, error,
                   "accepted is postgresql://[user[:password]@][host[:port]]/DATABASE");
  if (strchr(uri->hosts, ',') != NULL)
    return bad_uri(s, uri, error, "one host: a lock has one judge");
  if (folder != NULL &&
      (folder[0] != '/' || strlen(folder) > sizeof((struct sockaddr_un *)0)->sun_path - 20))
    return bad_uri(s, uri, error,
                   "host accepts a socket's folder, which begins with '/', of 88 bytes at most");
  if (folder != NULL && uri->host[0] != '\0')
    return bad_uri(s, uri, error, "a host is named twice");
  if (strlen(server) >= sizeof s->server)
    return bad_uri(s, uri, error, "the host's name is too long");
  if (uri->path[0] != '\0' && strchr(uri->path + 1, '/') != NULL)
    return bad_uri(s, uri, error, "after the host nothing but /DATABASE may follow");
  snprintf(s->server, sizeof s->server, "%s", server);
  snprintf(s->port, sizeof s->port, "%d", port);
  snprintf(s->name, sizeof s->name,
           folder == NULL && strchr(server, ':') != NULL ? "postgresql [%.80s]:%d"
                                                         : "postgresql %.80s:%d",
           server, port);
  return CORRAL_OK;
}

/* 1: the connection stays on this host. */
static int is_local(const crl_pg_store *s) {
  return s->server[0] == '/' || strncmp(s->server, "127.", 4) == 0 ||
         strcmp(s->server, "::1") == 0 || strcmp(s->server, "localhost") == 0;
}

/* A copy, or NULL for a text that isn't given; *failed: no memory. */
static char *copy(const char *text, int *failed) {
  char *made = text != NULL && *text != '\0' ? strdup(text) : NULL;
  *failed |= made == NULL && text != NULL && *text != '\0';
  return made;
}

static int read_uri(crl_pg_store *s, const corral_uri *uri, corral_error *error) {
  static const char *const modes = " disable allow prefer require verify-ca verify-full ";
  const char *mode = s->host->uri_get(uri, "sslmode");
  char word[16];
  int failed = 0, status = s->host->uri_check(uri, PARAMETERS, error);
  if (status == CORRAL_OK)
    status = s->host->uri_number(uri, "max_holds", "", 1, 10000, &s->max_holds, error);
  if (status == CORRAL_OK) status = read_server(s, uri, error);
  if (status == CORRAL_OK) status = read_table(s, uri, error);
  if (status != CORRAL_OK) return status;
  s->advisory = choice(s, uri, "locks", "table", "advisory", 0);
  s->create = choice(s, uri, "create", "no", "yes", 1);
  s->notify = choice(s, uri, "notify", "no", "yes", 1);
  if (s->advisory < 0) return bad_uri(s, uri, error, "locks accepts table or advisory");
  if (s->create < 0) return bad_uri(s, uri, error, "create accepts yes or no");
  if (s->notify < 0) return bad_uri(s, uri, error, "notify accepts yes or no");
  if (mode != NULL && ((size_t)snprintf(word, sizeof word, " %.12s ", mode) != strlen(mode) + 2 ||
                       strstr(modes, word) == NULL))
    return bad_uri(s, uri, error,
                   "sslmode accepts disable, allow, prefer, require, verify-ca or verify-full");
  s->user = copy(uri->user, &failed);
  s->password = copy(uri->password, &failed);
  s->database = copy(uri->path[0] != '\0' ? uri->path + 1 : NULL, &failed);
  s->sslmode = copy(mode != NULL || is_local(s) ? mode : "verify-full", &failed);
  s->sslrootcert = copy(s->host->uri_get(uri, "sslrootcert"), &failed);
  return failed ? s->host->fail(error, CORRAL_ENOMEM, "no memory for a store") : CORRAL_OK;
}

/* ---- open, close --------------------------------------------------------------------------- */

/* Wipes and frees a text that may be a secret. */
static void forget(char *text) {
  if (text != NULL) explicit_bzero(text, strlen(text));
  free(text);
}

static void close_store(void *store) {
  crl_pg_store *s = store;
  crl_pg_end_sessions(s);
  crl_net_ends_close(&s->ends);
  crl_net_ends_close(&s->turns);
  pthread_cond_destroy(&s->given_back);
  pthread_mutex_destroy(&s->mutex);
  forget(s->user);
  forget(s->password);
  free(s->database);
  free(s->sslmode);
  free(s->sslrootcert);
  free(s);
}

static int open_store(const corral_host *host, const corral_uri *uri, void **ret_store,
                      corral_store_info *info, corral_error *error) {
  pthread_condattr_t monotonic;
  if (host->size < sizeof *host)
    return host->fail(error, CORRAL_EUNSUPPORTED,
                      "the postgresql plugin is newer than this corral");
  crl_pg_store *s = calloc(1, sizeof *s);
  if (s == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  s->host = host;
  s->ends.fd = s->turns.fd = -1;
  s->max_holds = 50;
  pthread_mutex_init(&s->mutex, NULL);
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC); /* the clock of host->now_ms */
  pthread_cond_init(&s->given_back, &monotonic);
  pthread_condattr_destroy(&monotonic);
  int status = read_uri(s, uri, error);
  if (status != CORRAL_OK) {
    close_store(s);
    return status;
  }
  info->max_key = CRL_PG_KEY; /* an entry of a b-tree is at most a third of a page */
  info->handles = 4;
  info->reach = CORRAL_REACH_FLEET;
  info->locks_only = 1;
  info->adopts = !s->advisory;
  info->turns = s->advisory;
  info->name = s->name;
  *ret_store = s;
  return CORRAL_OK;
}

/* ---- handles ------------------------------------------------------------------------------- */

static void disconnect(void *handle) {
  crl_pg_handle *h = handle;
  crl_pg_hang_up(h->session);
  free(h);
}

static int connect_handle(void *store, int64_t deadline, void **ret_handle, corral_error *error) {
  crl_pg_store *s = store;
  crl_pg_handle *h = calloc(1, sizeof *h);
  if (h == NULL) return s->host->fail(error, CORRAL_ENOMEM, "no memory to connect");
  h->store = s;
  int status = crl_pg_open_session(s, deadline, &h->session, error);
  if (status == CORRAL_OK)
    *ret_handle = h;
  else
    free(h);
  return status;
}

/* The handle stays usable when only a hold's connection is lost. */
static int perform(void *handle, const corral_batch *batch, int64_t deadline, corral_error *error) {
  crl_pg_handle *h = handle;
  const crl_pg_store *s = h->store;
  int broken = CORRAL_OK;
  for (size_t i = 0; i < batch->count; i++) {
    corral_op *op = corral_batch_op(batch, i);
    corral_error why = {0}, *wanted = op->error;
    if (op->verb < CORRAL_VERB_LOCK || op->verb > CORRAL_VERB_LOCK_SHOW) {
      op->status =
          s->host->fail(op->error, CORRAL_EUNSUPPORTED, "%s has locks only, no values", s->name);
      continue;
    }
    if (broken != CORRAL_OK) {
      op->status = CORRAL_EUNAVAILABLE;
      continue;
    }
    op->error = &why;
    op->status =
        s->advisory ? crl_pg_in_sessions(h, op, deadline) : crl_pg_in_table(h, op, deadline);
    op->error = wanted;
    if (wanted != NULL && why.status != 0) *wanted = why;
    if (h->session != NULL ? crl_pg_is_broken(h->session)
                           : op->status == CORRAL_EINDOUBT || op->status == CORRAL_EUNAVAILABLE)
      broken = s->host->fail(error, CORRAL_EUNAVAILABLE, "%.200s",
                             why.text[0] != '\0' ? why.text : s->name);
  }
  return broken;
}

const corral_store crl_plugin_postgresql = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "postgresql",
    .schemes = "postgresql",
    .summary = "PostgreSQL: locks alone, as rows of a table or as advisory locks of sessions",
    .open = open_store,
    .close = close_store,
    .connect = connect_handle,
    .disconnect = disconnect,
    .perform = perform,
    .watch = crl_pg_watch,
    .changes = crl_pg_changes,
    .unwatch = crl_pg_unwatch,
    .inspect = crl_pg_inspect,
    .list = crl_pg_list,
    .attend = crl_pg_attend,
    .ends = crl_pg_ends,
};

CORRAL_PLUGIN(crl_plugin_postgresql)
