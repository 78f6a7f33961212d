/* warm_pg.c: values from a PostgreSQL database: the first column of the first row. No row, or NULL,
 * is "no such thing".
 *
 * libpq is loaded here, not linked, so that other subcommands don't pay for it. */
#include "run.h"
#include "warm.h"

#ifdef CORRAL_PQ

#include <dlfcn.h>
#include <libpq-fe.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#define FUNCTIONS(X)                                                                               \
  X(cancel)                                                                                        \
  X(clear)                                                                                         \
  X(connectdbParams)                                                                               \
  X(conninfo)                                                                                      \
  X(conninfoFree)                                                                                  \
  X(consumeInput)                                                                                  \
  X(describePrepared)                                                                              \
  X(errorMessage)                                                                                  \
  X(finish)                                                                                        \
  X(freeCancel)                                                                                    \
  X(freemem)                                                                                       \
  X(ftype)                                                                                         \
  X(getCancel)                                                                                     \
  X(getResult)                                                                                     \
  X(getisnull)                                                                                     \
  X(getlength)                                                                                     \
  X(getvalue)                                                                                      \
  X(isBusy)                                                                                        \
  X(nfields)                                                                                       \
  X(nparams)                                                                                       \
  X(ntuples)                                                                                       \
  X(prepare)                                                                                       \
  X(resultErrorMessage)                                                                            \
  X(resultStatus)                                                                                  \
  X(sendQuery)                                                                                     \
  X(sendQueryPrepared)                                                                             \
  X(setNoticeProcessor)                                                                            \
  X(setSingleRowMode)                                                                              \
  X(socket)                                                                                        \
  X(status)                                                                                        \
  X(unescapeBytea)

static struct {
#define FIELD(name) __typeof__(PQ##name) *name;
  FUNCTIONS(FIELD)
#undef FIELD
} pq;

enum {
  TICK_MS = 50,
  MERCY_MS = 2000,
  BYTEA = 17 /* the type's OID, the same on all servers */
};

static const char statement[] = "corral_warm";
static const char connect_seconds[] = "10";

bool warm_pg_load(void) {
  void *library = dlopen("libpq.so.5", RTLD_NOW | RTLD_LOCAL);
  /* the path known at build time */
  if (library == NULL) library = dlopen(CORRAL_PQ, RTLD_NOW | RTLD_LOCAL);
  bool ok = library != NULL;
#define LOAD(name) ok = ok && (*(void **)&pq.name = dlsym(library, "PQ" #name)) != NULL;
  FUNCTIONS(LOAD)
#undef LOAD
  if (!ok)
    cli_say("warm: --pg needs PostgreSQL's client library (Debian has it in libpq5): %s",
            dlerror());
  return ok;
}

/* Copies the first line of a message from the server or from libpq. */
static void first_line(const char *message, char *text, size_t size) {
  (void)snprintf(text, size, "%.*s", (int)strcspn(message, "\n"), message);
}

static void quiet(void *arg, const char *message) {
  (void)arg;
  (void)message;
}

/* NULL with the reason in `text`. Waits 10 s at most, unless the conninfo says otherwise. `sql` is
 * prepared, unless it is NULL. */
static void *connect_to(const warm_options *o, const char *sql, char *text, size_t size) {
  const char *const names[] = {"connect_timeout", "fallback_application_name", "dbname", NULL};
  const char *const values[] = {connect_seconds, "corral warm", o->pg, NULL};
  PGconn *pg = pq.connectdbParams(names, values, 1);
  if (pg == NULL) return (void)snprintf(text, size, "out of memory"), NULL;
  (void)pq.setNoticeProcessor(pg, quiet, NULL);
  if (pq.status(pg) == CONNECTION_OK && sql == NULL) return pg;
  if (pq.status(pg) == CONNECTION_OK) {
    PGresult *result = pq.prepare(pg, statement, sql, 0, NULL);
    bool ok = pq.resultStatus(result) == PGRES_COMMAND_OK;
    if (!ok) first_line(pq.errorMessage(pg), text, size);
    pq.clear(result);
    if (ok) return pg;
  } else {
    first_line(pq.errorMessage(pg), text, size);
  }
  pq.finish(pg);
  return NULL;
}

/* The database that the connection reads from, also where the environment or a service file says
 * it; to be freed. NULL: no memory. */
static char *database_of(PGconn *pg) {
  static const char *const names[] = {"host", "hostaddr", "port", "dbname", "user", "options"};
  char *text = NULL;
  size_t size = 0;
  PQconninfoOption *all = pq.conninfo(pg);
  FILE *f = all != NULL ? open_memstream(&text, &size) : NULL;
  for (const PQconninfoOption *o = all; f != NULL && o->keyword != NULL; o++)
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
      if (strcmp(o->keyword, names[i]) == 0)
        (void)fprintf(f, "%s=%s\n", names[i], o->val != NULL ? o->val : "");
  pq.conninfoFree(all);
  if (f != NULL && fclose(f) == 0) return text;
  free(text);
  return NULL;
}

static bool check(warm *w) {
  char text[WARM_REASON];
  if (!warm_pg_load()) return false;
  PGconn *pg = connect_to(&w->o, w->o.query, text, sizeof text);
  if (pg == NULL) return cli_say("warm: --pg: %s", text), false;
  PGresult *result = pq.describePrepared(pg, statement);
  bool ok = pq.resultStatus(result) == PGRES_COMMAND_OK;
  int parameters = ok ? pq.nparams(result) : 0;
  int columns = ok ? pq.nfields(result) : 0;
  pq.clear(result);
  w->database = database_of(pg);
  pq.finish(pg);
  if (w->database == NULL) return cli_say("warm: out of memory"), false;
  return warm_server_accepts((unsigned)parameters, (unsigned)columns, "$1");
}

static void disconnect(void *connection) { pq.finish(connection); }

static bool is_broken(const void *connection) { return pq.status(connection) != CONNECTION_OK; }

static void cancel(PGconn *pg) {
  char text[256];
  PGcancel *c = pq.getCancel(pg);
  if (c == NULL) return;
  (void)pq.cancel(c, text, sizeof text);
  pq.freeCancel(c);
}

/* Waits for the result; false when the connection has become useless. *ret_ended: the statement was
 * cancelled. */
static bool await(warm_seat *seat, PGconn *pg, int64_t until_ms, bool *ret_ended) {
  int64_t give_up_ms = 0;
  while (pq.isBusy(pg)) {
    struct pollfd fd = {pq.socket(pg), POLLIN, 0};
    int n = poll(&fd, 1, TICK_MS);
    if (n > 0 && !pq.consumeInput(pg)) return false;
    if (give_up_ms != 0 && cli_now_ms() >= give_up_ms) return false;
    if (give_up_ms != 0 || !warm_should_stop(seat, until_ms)) continue;
    *ret_ended = true;
    cancel(pg);
    give_up_ms = cli_now_ms() + MERCY_MS;
  }
  return true;
}

static void answer(warm_seat *seat, corral_fill *fill, const PGresult *result) {
  if (pq.ntuples(result) == 0 || pq.getisnull(result, 0, 0)) {
    corral_fill_negative(fill);
    return;
  }
  const char *data = pq.getvalue(result, 0, 0);
  size_t size = (size_t)pq.getlength(result, 0, 0);
  unsigned char *bytes = NULL;
  if (pq.ftype(result, 0) == BYTEA) bytes = pq.unescapeBytea((const unsigned char *)data, &size);
  bool is_lost = bytes == NULL && pq.ftype(result, 0) == BYTEA;
  int status = is_lost ? CORRAL_ENOMEM
                       : corral_fill_bytes(fill, bytes != NULL ? (const char *)bytes : data, size);
  if (status != CORRAL_OK)
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", corral_status_text(status));
  pq.freemem(bytes);
}

static bool query(warm_seat *seat, corral_fill *fill, void *connection, const void *key,
                  size_t key_len, char *text, size_t size) {
  PGconn *pg = connection;
  const char *const values[] = {key};
  (void)key_len;
  bool is_ended = false;
  int64_t until_ms = cli_now_ms() + seat->w->o.limit_ms;
  bool ok = pq.sendQueryPrepared(pg, statement, 1, values, NULL, NULL, 0) &&
            await(seat, pg, until_ms, &is_ended);
  PGresult *result = ok ? pq.getResult(pg) : NULL;
  ExecStatusType kind = pq.resultStatus(result);
  PGresult *rest = NULL;
  /* shows, too, whether the server has hung up */
  while (ok && (rest = pq.getResult(pg)) != NULL) pq.clear(rest);
  first_line(result != NULL && kind != PGRES_TUPLES_OK ? pq.resultErrorMessage(result)
                                                       : pq.errorMessage(pg),
             text, size);
  bool is_lost =
      !is_ended && kind != PGRES_TUPLES_OK && (result == NULL || pq.status(pg) != CONNECTION_OK);
  if (is_lost) {
    pq.clear(result);
    return false;
  }
  if (kind == PGRES_TUPLES_OK)
    answer(seat, fill, result);
  else if (is_ended)
    warm_server_ended(seat, fill);
  else
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s",
              text[0] != '\0' ? text : "the statement answers no rows");
  pq.clear(result);
  return true;
}

static void compute(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len) {
  static const warm_server pg = {connect_to, query, is_broken, disconnect};
  char *copy = strndup(key, key_len);
  if (copy != NULL && strlen(copy) == key_len)
    warm_server_compute(&pg, seat, fill, copy, key_len);
  else
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s",
              copy == NULL ? "out of memory" : "a key with a NUL byte is no text for PostgreSQL");
  free(copy);
}

const warm_source warm_pg = {check, compute, warm_server_close};

/* ---- keys ---------------------------------------------------------------------------------- */

/* Waits for more of the answer. False: the connection broke, or reading is to end. */
static bool await_rows(const warm_reading *r, PGconn *pg) {
  while (pq.isBusy(pg)) {
    struct pollfd fd = {pq.socket(pg), POLLIN, 0};
    int n = poll(&fd, 1, TICK_MS);
    if (warm_reading_is_stopped(r) || (n > 0 && !pq.consumeInput(pg))) return false;
  }
  return true;
}

/* Adds the first column of each row; NULL is none. */
static bool add_rows(warm_reading *r, const PGresult *result) {
  bool ok = true;
  for (int row = 0; ok && pq.nfields(result) > 0 && row < pq.ntuples(result); row++) {
    const char *data = pq.getvalue(result, row, 0);
    size_t size = (size_t)pq.getlength(result, row, 0);
    unsigned char *bytes = NULL;
    if (pq.ftype(result, 0) == BYTEA) bytes = pq.unescapeBytea((const unsigned char *)data, &size);
    ok = warm_reading_add(r, bytes != NULL ? (const char *)bytes : data, size);
    pq.freemem(bytes);
  }
  return ok;
}

/* Row by row: the answer isn't kept as a whole. */
static bool read_rows(warm_reading *r, PGconn *pg, const char *sql, char *text, size_t size) {
  bool ok = pq.sendQuery(pg, sql) && pq.setSingleRowMode(pg);
  while (ok && await_rows(r, pg)) {
    PGresult *result = pq.getResult(pg);
    if (result == NULL) return true;
    ExecStatusType kind = pq.resultStatus(result);
    ok = kind == PGRES_TUPLES_OK || kind == PGRES_SINGLE_TUPLE;
    if (!ok) first_line(pq.resultErrorMessage(result), text, size);
    if (!ok && text[0] == '\0') (void)snprintf(text, size, "the statement answers no rows");
    ok = ok && add_rows(r, result);
    pq.clear(result);
  }
  if (text[0] == '\0') first_line(pq.errorMessage(pg), text, size);
  if (warm_reading_is_stopped(r)) cancel(pg);
  return false;
}

bool warm_pg_keys(warm_reading *r, const char *sql) {
  char text[WARM_REASON] = "";
  PGconn *pg = connect_to(warm_reading_options(r), NULL, text, sizeof text);
  bool ok = pg != NULL && read_rows(r, pg, sql, text, sizeof text);
  if (!ok && text[0] != '\0') warm_say("warm: --keys: %s", text);
  if (pg != NULL) pq.finish(pg);
  return ok;
}

#else

bool warm_pg_keys(warm_reading *r, const char *sql) {
  (void)r;
  (void)sql;
  return false;
}

bool warm_pg_load(void) {
  cli_say("warm: --pg: this corral was built without PostgreSQL's client library (libpq-dev)");
  return false;
}

static bool check(warm *w) {
  (void)w;
  return warm_pg_load();
}

const warm_source warm_pg = {check, NULL, NULL};

#endif
