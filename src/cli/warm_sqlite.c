/* warm_sqlite.c: values from a SQLite database: the first column of the first row. No row, or NULL,
 * is "no such thing".
 *
 * A connection belongs to one thread. It only reads, and is made anew after a failure. */
#include "run.h"
#include "sqlite.h"
#include "warm.h"

#include <stdlib.h>

enum { PROGRESS_STEPS = 10000, BUSY_MS = 2000 };

typedef struct connection {
  sqlite3 *db;
  sqlite3_stmt *query;
  warm_seat *seat;             /* while a value's statement runs */
  const warm_reading *reading; /* while that of the keys runs */
  int64_t until_ms;
} connection;

static void connection_free(connection *c) {
  if (c == NULL) return;
  (void)cli_sqlite.finalize(c->query);
  (void)cli_sqlite.close(c->db);
  free(c);
}

static int progress(void *arg) {
  connection *c = arg;
  if (c->reading != NULL) return warm_reading_is_stopped(c->reading);
  return c->seat != NULL && warm_should_stop(c->seat, c->until_ms);
}

/* NULL with the reason in `text`. */
static connection *connect_to(const warm_options *o, const char *sql, char *text, size_t size) {
  connection *c = calloc(1, sizeof *c);
  (void)snprintf(text, size, "out of memory");
  if (c == NULL) return NULL;
  int flags = SQLITE_OPEN_READONLY | SQLITE_OPEN_NOMUTEX;
  if (cli_sqlite.open_v2(o->sqlite, &c->db, flags, NULL) == SQLITE_OK &&
      cli_sqlite.busy_timeout(c->db, BUSY_MS) == SQLITE_OK &&
      cli_sqlite.prepare_v2(c->db, sql, -1, &c->query, NULL) == SQLITE_OK) {
    cli_sqlite.progress_handler(c->db, PROGRESS_STEPS, progress, c);
    return c;
  }
  if (c->db != NULL) (void)snprintf(text, size, "%s", cli_sqlite.errmsg(c->db));
  connection_free(c);
  return NULL;
}

static bool check(warm *w) {
  char text[WARM_REASON];
  if (!cli_sqlite_load("warm")) return false;
  connection *c = connect_to(&w->o, w->o.query, text, sizeof text);
  if (c == NULL) return cli_say("warm: --sqlite %s: %s", w->o.sqlite, text), false;
  int parameters = c->query != NULL ? cli_sqlite.bind_parameter_count(c->query) : 0;
  int columns = c->query != NULL ? cli_sqlite.column_count(c->query) : 0;
  connection_free(c);
  if (parameters == 1 && columns > 0) return true;
  cli_say("warm: --query has %d parameters and %d columns: a statement with one parameter, the "
          "key, that answers a column is accepted",
          parameters, columns);
  return false;
}

static void close_seat(warm_seat *seat) {
  connection_free(seat->own);
  seat->own = NULL;
}

static void answer(warm_seat *seat, corral_fill *fill, connection *c) {
  if (cli_sqlite.column_type(c->query, 0) == SQLITE_NULL) {
    corral_fill_negative(fill);
    return;
  }
  const void *data = cli_sqlite.column_blob(c->query, 0);
  int size = cli_sqlite.column_bytes(c->query, 0);
  int status = corral_fill_bytes(fill, size > 0 ? data : "", (size_t)size);
  if (status != CORRAL_OK)
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", corral_status_text(status));
}

static void compute(warm_seat *seat, corral_fill *fill, const void *key, size_t key_len) {
  char text[WARM_REASON];
  const warm_options *o = &seat->w->o;
  if (seat->own == NULL) seat->own = connect_to(o, o->query, text, sizeof text);
  connection *c = seat->own;
  if (c == NULL) {
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", text);
    return;
  }
  c->seat = seat;
  c->until_ms = cli_now_ms() + o->limit_ms;
  int status = cli_sqlite.bind_text(c->query, 1, key, (int)key_len, SQLITE_STATIC);
  if (status == SQLITE_OK) status = cli_sqlite.step(c->query);
  if (status == SQLITE_ROW)
    answer(seat, fill, c);
  else if (status == SQLITE_DONE)
    corral_fill_negative(fill);
  else if (status == SQLITE_INTERRUPT)
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_DEADLINE,
              "the statement was ended: it ran longer than --compute, or its lease was lost");
  else
    warm_fail(seat, fill, RUN_FAIL_CODE + CLI_FAILED, "%s", cli_sqlite.errmsg(c->db));
  (void)cli_sqlite.reset(c->query);
  (void)cli_sqlite.clear_bindings(c->query);
  c->seat = NULL;
  if (seat->failed) close_seat(seat);
}

const warm_source warm_sqlite = {check, compute, close_seat};

bool warm_sqlite_keys(warm_reading *r, const char *sql) {
  char text[WARM_REASON];
  const warm_options *o = warm_reading_options(r);
  int status = SQLITE_DONE;
  bool ok = true;
  connection *c = connect_to(o, sql, text, sizeof text);
  if (c == NULL) return warm_say("warm: --keys: %s", text), false;
  if (c->query == NULL || cli_sqlite.column_count(c->query) < 1)
    return connection_free(c), warm_say("warm: --keys: a statement that answers rows is accepted"),
           false;
  c->reading = r;
  while (ok && (status = cli_sqlite.step(c->query)) == SQLITE_ROW) {
    const char *bytes = cli_sqlite.column_blob(c->query, 0);
    ok = warm_reading_add(r, bytes, (size_t)cli_sqlite.column_bytes(c->query, 0));
  }
  bool is_bad = ok && status != SQLITE_DONE && status != SQLITE_INTERRUPT;
  if (is_bad) warm_say("warm: --keys: %s", cli_sqlite.errmsg(c->db));
  connection_free(c);
  return ok && status == SQLITE_DONE;
}
