/* sqlite.c: locks in a table of an SQLite database, for all processes of one host:
 * `sqlite:PATH[?table=corral_lock]`.
 *
 * A row holds the lock's record, so shared locks work, and every verb means what it does elsewhere:
 * host->lock_decide, within BEGIN IMMEDIATE. What is refused changes nothing and is only read, so
 * in WAL mode waiters are in nobody's way. For people with an SQL prompt there are beside the
 * record: name, fence, holds, expires_ms and who. The row with the empty name is corral's own.
 *
 * Time is host->boot_ms, which no clock setting moves. It starts again at boot, so the row of the
 * empty name keeps the boot's id: who opens the file after a reboot finds another one there, and
 * ends all holds, whose holders are gone. Where two kernels use one file each would end the other's
 * holds: a handle that sees its boot's id replaced says so and breaks. Not on network file systems
 * (nor is SQLite), and not from containers with a time namespace of their own.
 *
 * Fencing tokens: one more than the last of this name, at least the wall clock in microseconds, and
 * above those of all rows that were forgotten, whose highest the empty name's row keeps. So a wall
 * clock that is set back doesn't lower them.
 *
 * A new file gets WAL mode; the journal of one that is there already stays what it is. synchronous
 * is NORMAL: a power failure may undo the last changes, and ends all holds anyway. The table may be
 * in a database of the user's: then their long transactions keep locks waiting, and locks theirs.
 * Nothing waits past its deadline for another process; for a disk that hangs there is no limit.
 *
 * POSIX locks belong to a process: one with two copies of SQLite in it (one linked in statically)
 * must not open the file by both, and a child that was forked while its parent had a sqlite: store
 * open is refused one of its own (EFORKED), until it execs. */
#include <corral/plugin.h>
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sqlite3.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

enum {
  BOOT_LEN = 36,
  TABLE_MOST = 60,
  SQL_MOST = 700,
  OLDEST = 3035000,
  SWEEP = 8,
  POLL_MAX_MS = 20,
  QUICK_NAPS = 20,
  NAP_MS = 5
};

/* Beside SQLite's codes. */
enum { GONE = 10001, OTHER_HOST };

typedef enum statement {
  LOOK,
  PUT,
  SWEEP_UP,
  RAISE,
  BEGIN,
  COMMIT,
  ROLLBACK,
  STATEMENTS
} statement;

/* @ is the table. */
static const char *const sql_of[STATEMENTS] = {
    [LOOK] = "SELECT name, record, fence FROM \"@\" WHERE name IN (x'', ?1) ORDER BY name",
    [PUT] = "INSERT INTO \"@\"(name, record, fence, holds, expires_ms, who) VALUES(?1, ?2, ?3, ?4, "
            "?5, ?6) ON CONFLICT(name) DO UPDATE SET "
            "record = excluded.record, fence = excluded.fence, holds = excluded.holds, expires_ms "
            "= excluded.expires_ms, who = excluded.who",
    [SWEEP_UP] = "DELETE FROM \"@\" WHERE name IN (SELECT name FROM \"@\" WHERE expires_ms <= ?1 "
                 "AND name <> x'' LIMIT ?2) RETURNING fence",
    [RAISE] = "UPDATE \"@\" SET fence = ?1 WHERE name = x''",
    [BEGIN] = "BEGIN IMMEDIATE",
    [COMMIT] = "COMMIT",
    [ROLLBACK] = "ROLLBACK",
};

static const char create_sql[] =
    "CREATE TABLE IF NOT EXISTS \"@\"(name BLOB PRIMARY KEY NOT NULL, record BLOB NOT NULL, fence "
    "INTEGER NOT NULL, holds INTEGER NOT NULL, "
    "expires_ms INTEGER NOT NULL, who TEXT) WITHOUT ROWID; "
    "CREATE INDEX IF NOT EXISTS \"@_expires\" ON \"@\"(expires_ms)";

/* A fence is unsigned, SQLite's integers are not: negative ones are the highest. */
static const char boot_sql[] =
    "INSERT INTO \"@\"(name, record, fence, holds, expires_ms, who) "
    "SELECT x'', ?1, coalesce(max(CASE WHEN fence < 0 THEN fence END), max(fence), 0), 0, "
    "9223372036854775807, "
    "'of corral itself: the boot, and the highest fence of rows that are gone' FROM \"@\" WHERE "
    "true "
    "ON CONFLICT(name) DO UPDATE SET record = excluded.record, fence = excluded.fence";

typedef struct store {
  const corral_host *host;
  char table[TABLE_MOST + 1];
  char *path;   /* within label */
  char label[]; /* "sqlite PATH" */
} store;

typedef struct handle {
  store *st;
  sqlite3 *db;
  sqlite3_stmt *prepared[STATEMENTS];
  int64_t deadline; /* of what is done now */
  char boot[BOOT_LEN];
  uint8_t *room; /* a record that is to be written */
  size_t room_size;
  char why[80]; /* SQLite's and the system's words for what failed, from before the roll-back */
  int system;
} handle;

/* What LOOK found, valid until it is reset. */
typedef struct row {
  const uint8_t *record; /* NULL: none */
  size_t size;
  uint64_t forgotten; /* the highest fencing token of rows that are gone */
} row;

/* ---- errors -------------------------------------------------------------------------------- */

static void remember(handle *h) {
  snprintf(h->why, sizeof h->why, "%s", sqlite3_errmsg(h->db));
  h->system = sqlite3_system_errno(h->db);
}

static int fail_file(const handle *h, int code, corral_error *error) {
  const corral_host *host = h->st->host;
  const char *path = h->st->path, *text = h->why;
  char room[80];
  const char *cause = h->system != 0 ? strerror_r(h->system, room, sizeof room) : "no detail";
  switch (code & 0xff) {
    case SQLITE_FULL:
      return host->fail(error, CORRAL_EREFUSED,
                        "%.120s: there is no room for more: the disk is full", path);
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return host->fail(
          error, CORRAL_EREFUSED,
          "%.120s: can't be written: this user must be able to write the file and its folder",
          path);
    case SQLITE_NOTADB:
      return host->fail(error, CORRAL_EFOREIGN,
                        "%.120s: is something else than an SQLite database: name another path",
                        path);
    case SQLITE_CORRUPT:
      return host->fail(error, CORRAL_ECORRUPT, "%.120s: the database is damaged: %.80s", path,
                        text);
    case SQLITE_NOMEM: return host->fail(error, CORRAL_ENOMEM, "%.120s: out of memory", path);
    case SQLITE_CANTOPEN:
      return host->fail(error, CORRAL_EIO,
                        "%.120s: can't be opened (%.60s): its folder must exist, and this user "
                        "must be able to write it",
                        path, cause);
    case SQLITE_IOERR:
      return host->fail(
          error, CORRAL_EIO,
          "%.100s: %.40s (%.40s): the disk fails or is full, or the file may not grow", path, text,
          cause);
    default: return host->fail(error, CORRAL_EIO, "%.120s: %.60s (%.50s)", path, text, cause);
  }
}

static int fail_as(const handle *h, int code, corral_error *error) {
  const corral_host *host = h->st->host;
  const char *path = h->st->path;
  if (code == SQLITE_READONLY_DBMOVED) code = GONE;
  if (code == GONE)
    return host->fail(
        error, CORRAL_EUNAVAILABLE,
        "%.120s: the file or its table %s was removed or replaced: it is to be opened again", path,
        h->st->table);
  if (code == OTHER_HOST)
    return host->fail(error, CORRAL_EREFUSED,
                      "%.120s: another host has opened this file and ended the holds of this one: "
                      "a file is for the processes of one host",
                      path);
  switch (code & 0xff) {
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_PROTOCOL:
      return host->fail(
          error, CORRAL_EUNAVAILABLE,
          "%.120s: others are writing it, and the time allowed is over: nothing was changed", path);
    case SQLITE_ERROR:
    case SQLITE_SCHEMA:
    case SQLITE_CONSTRAINT:
      return host->fail(error, CORRAL_EFOREIGN, "%.100s: the table %s is not one of corral: %.60s",
                        path, h->st->table, h->why);
    default: return fail_file(h, code, error);
  }
}

static int fail(handle *h, int code, corral_error *error) {
  if (h->why[0] == '\0') remember(h);
  int status = fail_as(h, code, error);
  h->why[0] = '\0';
  return status;
}

/* Others write for a fraction of a millisecond each, unless one is stuck. */
static int on_busy(void *arg, int times) {
  const handle *h = arg;
  int64_t left = h->deadline - h->st->host->now_ms(), nap = times < QUICK_NAPS ? 1 : NAP_MS;
  if (left <= 0) return 0;
  poll(NULL, 0, (int)(nap < left ? nap : left));
  return 1;
}

/* ---- statements ---------------------------------------------------------------------------- */

/* `text` with the table's name for each @; `sql` is large enough for all that are in this file. */
static const char *with_table(const handle *h, const char *text, char sql[SQL_MOST]) {
  size_t used = 0, len = strlen(h->st->table);
  for (; *text != '\0' && used + len + 1 < SQL_MOST; text++) {
    const char *from = *text == '@' ? h->st->table : text;
    size_t some = *text == '@' ? len : 1;
    memcpy(sql + used, from, some);
    used += some;
  }
  sql[used] = '\0';
  return sql;
}

static int prepare(handle *h, statement which) {
  char sql[SQL_MOST];
  if (h->prepared[which] != NULL) return SQLITE_OK;
  with_table(h, sql_of[which], sql);
  return sqlite3_prepare_v3(h->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &h->prepared[which], NULL);
}

/* One without rows. */
static int run(handle *h, statement which) {
  sqlite3_stmt *s = h->prepared[which];
  int code = sqlite3_step(s);
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

static void roll_back(handle *h) {
  remember(h);
  if (!sqlite3_get_autocommit(h->db)) run(h, ROLLBACK);
}

/* Both rows at one moment. Without an error LOOK is to be reset by the caller. */
static int look(handle *h, const corral_op *op, row *at) {
  sqlite3_stmt *s = h->prepared[LOOK];
  *at = (row){.record = NULL};
  sqlite3_bind_blob64(s, 1, op->key, op->key_len, SQLITE_STATIC);
  int code = sqlite3_step(s);
  if (code == SQLITE_ROW && sqlite3_column_bytes(s, 0) == 0) {
    at->forgotten = (uint64_t)sqlite3_column_int64(s, 2);
    const void *boot = sqlite3_column_blob(s, 1);
    if (sqlite3_column_bytes(s, 1) != BOOT_LEN || memcmp(boot, h->boot, BOOT_LEN) != 0)
      code = OTHER_HOST;
    else
      code = sqlite3_step(s);
    if (code == SQLITE_ROW) {
      static const uint8_t nothing = 0;
      at->record = sqlite3_column_blob(s, 1);
      at->size = (size_t)sqlite3_column_bytes(s, 1);
      if (at->record == NULL) at->record = &nothing;
      return SQLITE_OK;
    }
  } else if (code == SQLITE_ROW || code == SQLITE_DONE) {
    code = GONE;
  }
  if (code == SQLITE_DONE) return SQLITE_OK;
  sqlite3_reset(s);
  /* "no such table": it was there when the handle was made */
  return code == SQLITE_ERROR ? GONE : code;
}

static void look_done(handle *h) {
  sqlite3_reset(h->prepared[LOOK]);
  sqlite3_clear_bindings(h->prepared[LOOK]);
}

static int put(handle *h, const corral_op *op, const corral_lock_change *change) {
  sqlite3_stmt *s = h->prepared[PUT];
  uint64_t fence = 0;
  int holds = h->room[4] | h->room[5] << 8;
  for (int i = 7; i >= 0; i--) fence = fence << 8 | h->room[8 + i];
  const char *who = (const char *)h->room + CORRAL_LOCK_HEAD + 48;
  sqlite3_bind_blob64(s, 1, op->key, op->key_len, SQLITE_STATIC);
  sqlite3_bind_blob64(s, 2, h->room, change->size, SQLITE_STATIC);
  sqlite3_bind_int64(s, 3, (sqlite3_int64)fence);
  sqlite3_bind_int64(s, 4, holds);
  sqlite3_bind_int64(s, 5, change->expires);
  if (holds > 0) sqlite3_bind_text(s, 6, who, (int)strnlen(who, CORRAL_LOCK_NOTE), SQLITE_STATIC);
  return run(h, PUT);
}

/* Forgets a few rows whose time is over, but not how high their fencing tokens were. */
static int sweep_up(handle *h, int64_t now, uint64_t forgotten) {
  sqlite3_stmt *s = h->prepared[SWEEP_UP];
  uint64_t highest = forgotten;
  int code;
  sqlite3_bind_int64(s, 1, now);
  sqlite3_bind_int64(s, 2, SWEEP);
  while ((code = sqlite3_step(s)) == SQLITE_ROW) {
    uint64_t fence = (uint64_t)sqlite3_column_int64(s, 0);
    if (fence > highest) highest = fence;
  }
  sqlite3_reset(s);
  if (code != SQLITE_DONE) return code;
  if (highest == forgotten) return SQLITE_OK;
  sqlite3_bind_int64(h->prepared[RAISE], 1, (sqlite3_int64)highest);
  return run(h, RAISE);
}

/* ---- verbs --------------------------------------------------------------------------------- */

static int decide(handle *h, corral_op *op, const row *at, int64_t now,
                  corral_lock_change *change) {
  const corral_host *host = h->st->host;
  size_t need = at->size + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD;
  uint64_t floor = (uint64_t)host->wall_ms() * 1000;
  if (need > h->room_size) {
    uint8_t *more = realloc(h->room, need);
    if (more == NULL) return SQLITE_NOMEM;
    h->room = more;
    h->room_size = need;
  }
  host->lock_decide(op, at->record, at->size, now,
                    floor > at->forgotten ? floor : at->forgotten + 1, h->room, change);
  if (op->status == CORRAL_EFOREIGN)
    host->fail(op->error, CORRAL_EFOREIGN,
               "%.100s: the table %s has a row of this name that corral did not write; deleting it "
               "frees the lock",
               h->st->path, h->st->table);
  if (op->status == CORRAL_EREFUSED)
    host->fail(op->error, CORRAL_EREFUSED, "%.120s: this lock has %d holds, the most there may be",
               h->st->path, CORRAL_LOCK_HOLDS);
  return SQLITE_OK;
}

static int show(corral_op *op, const row *at) {
  if (op->verb != CORRAL_VERB_LOCK_SHOW || op->status != CORRAL_OK) return SQLITE_OK;
  op->found = malloc(at->size);
  if (op->found == NULL) return SQLITE_NOMEM;
  memcpy(op->found, at->record, at->size);
  op->found_len = at->size;
  op->found_free = free;
  op->found_owner = op->found;
  return SQLITE_OK;
}

/* Looks and decides; *change says whether something is to be written. */
static int consider(handle *h, corral_op *op, int64_t now, row *at, corral_lock_change *change) {
  int code = look(h, op, at);
  if (code != SQLITE_OK) return code;
  code = decide(h, op, at, now, change);
  if (code == SQLITE_OK) code = show(op, at);
  look_done(h);
  return code;
}

static int change_row(handle *h, corral_op *op, int *committing) {
  corral_lock_change change;
  row at;
  int code = run(h, BEGIN);
  if (code != SQLITE_OK) return code;
  int64_t now = h->st->host->boot_ms(); /* now, for the turn may have been long in coming */
  code = consider(h, op, now, &at, &change);
  if (code == SQLITE_OK && change.action == CORRAL_ACTION_REPLACE) code = put(h, op, &change);
  if (code == SQLITE_OK && op->verb == CORRAL_VERB_LOCK && op->status == CORRAL_OK)
    code = sweep_up(h, now, at.forgotten);
  if (code == SQLITE_OK) {
    *committing = 1;
    code = run(h, COMMIT);
  }
  if (code != SQLITE_OK) roll_back(h);
  return code;
}

static int perform_one(handle *h, corral_op *op) {
  corral_lock_change change;
  row at;
  int committing = 0;
  if (h->st->host->now_ms() >= h->deadline) {
    h->st->host->fail(op->error, op->status = CORRAL_EUNAVAILABLE,
                      "%.120s: the time allowed is over", h->st->path);
    return SQLITE_OK;
  }
  int code = consider(h, op, h->st->host->boot_ms(), &at, &change);
  if (code == SQLITE_OK && change.action == CORRAL_ACTION_REPLACE)
    code = change_row(h, op, &committing);
  if (code == SQLITE_OK) return code;
  op->status = fail(h, code, op->error);
  if (committing && op->status == CORRAL_EIO) op->status = CORRAL_EUNKNOWN;
  return code;
}

/* What leaves the handle as good as it was. */
static int is_harmless(int code) {
  int kind = code & 0xff;
  return kind == SQLITE_OK || kind == SQLITE_BUSY || kind == SQLITE_LOCKED || kind == SQLITE_FULL ||
         kind == SQLITE_NOMEM;
}

static int is_lock_verb(uint32_t verb) {
  return verb == CORRAL_VERB_LOCK || verb == CORRAL_VERB_LOCK_EXTEND ||
         verb == CORRAL_VERB_UNLOCK || verb == CORRAL_VERB_LOCK_SHOW;
}

static int sqlite_perform(void *arg, corral_op *ops, size_t count, int64_t deadline,
                          corral_error *error) {
  handle *h = arg;
  const corral_host *host = h->st->host;
  int moved = 0, code = SQLITE_OK;
  h->deadline = deadline;
  sqlite3_file_control(h->db, "main", SQLITE_FCNTL_HAS_MOVED, &moved);
  if (moved) code = GONE;
  for (size_t i = 0; i < count; i++) {
    corral_op *op = &ops[i];
    if (!is_harmless(code))
      op->status = host->fail(op->error, CORRAL_EUNAVAILABLE,
                              "%.120s: not tried, for the file failed before", h->st->path);
    else if (!is_lock_verb(op->verb))
      op->status = host->fail(op->error, CORRAL_EUNSUPPORTED, "sqlite has locks only, no values");
    else
      code = perform_one(h, op);
  }
  if (is_harmless(code)) return CORRAL_OK;
  return fail(h, code, error);
}

/* ---- handles ------------------------------------------------------------------------------- */

static int read_boot(handle *h, corral_error *error) {
  int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, h->boot, BOOT_LEN);
  if (fd >= 0) close(fd);
  if (n == BOOT_LEN) return CORRAL_OK;
  return h->st->host->fail(
      error, CORRAL_EIO, "%s can't be read: without it a reboot can't be told from none", BOOT_ID);
}

static int pragma(handle *h, const char *sql, int *number) {
  sqlite3_stmt *s = NULL;
  int code = sqlite3_prepare_v2(h->db, sql, -1, &s, NULL);
  if (code == SQLITE_OK) code = sqlite3_step(s);
  if (code == SQLITE_ROW && number != NULL) *number = sqlite3_column_int(s, 0);
  sqlite3_finalize(s);
  return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

/* The row of the empty name, for this boot: fences of all other rows are remembered, the rows are
 * not. */
static int begin_boot(handle *h) {
  char sql[SQL_MOST];
  sqlite3_stmt *s = NULL;
  int code = sqlite3_prepare_v2(h->db, with_table(h, boot_sql, sql), -1, &s, NULL);
  if (code == SQLITE_OK) sqlite3_bind_blob(s, 1, h->boot, BOOT_LEN, SQLITE_STATIC);
  if (code == SQLITE_OK) code = sqlite3_step(s);
  sqlite3_finalize(s);
  if (code != SQLITE_DONE) return code;
  return sqlite3_exec(h->db, with_table(h, "DELETE FROM \"@\" WHERE name <> x''", sql), NULL, NULL,
                      NULL);
}

static int prepare_all(handle *h) {
  int code = SQLITE_OK;
  for (int i = 0; i < STATEMENTS && code == SQLITE_OK; i++) code = prepare(h, (statement)i);
  return code;
}

static int look_at_boot(handle *h) {
  const corral_op nothing = {.key = "", .key_len = 0};
  row at;
  int code = look(h, &nothing, &at);
  if (code == SQLITE_OK) look_done(h);
  return code;
}

static int make_table(handle *h) {
  char sql[SQL_MOST];
  int code = prepare(h, ROLLBACK);
  if (code == SQLITE_OK) code = prepare(h, BEGIN);
  if (code == SQLITE_OK) code = run(h, BEGIN);
  if (code != SQLITE_OK) return code;
  code = sqlite3_exec(h->db, with_table(h, create_sql, sql), NULL, NULL, NULL);
  if (code == SQLITE_OK) code = prepare_all(h);
  if (code == SQLITE_OK) {
    code = look_at_boot(h); /* somebody else may have been sooner */
    if (code == GONE || code == OTHER_HOST) code = begin_boot(h);
  }
  if (code == SQLITE_OK) code = run(h, COMMIT);
  if (code != SQLITE_OK) roll_back(h);
  return code;
}

static int set_up(handle *h) {
  int pages = 0, code = pragma(h, "PRAGMA page_count", &pages);
  if (code == SQLITE_OK && pages == 0) code = pragma(h, "PRAGMA journal_mode=WAL", NULL);
  if (code == SQLITE_OK) code = pragma(h, "PRAGMA synchronous=NORMAL", NULL);
  if (code == SQLITE_OK) code = prepare_all(h);
  if (code == SQLITE_OK)
    code = look_at_boot(h);
  else if (code != SQLITE_ERROR)
    return code;
  return code == SQLITE_OK ? code : make_table(h);
}

/* SQLite counts its locks within a process, and a fork inherits the count without the locks. */
static pthread_mutex_t opened_mutex = PTHREAD_MUTEX_INITIALIZER;
static size_t opened_count;
static pid_t opened_by;

static void before_fork(void) { pthread_mutex_lock(&opened_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&opened_mutex); }
__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static int enter_process(const store *st, corral_error *error) {
  pthread_mutex_lock(&opened_mutex);
  if (opened_count == 0) opened_by = getpid();
  int forked = opened_by != getpid();
  if (!forked) opened_count++;
  pthread_mutex_unlock(&opened_mutex);
  if (!forked) return CORRAL_OK;
  return st->host->fail(error, CORRAL_EFORKED,
                        "%.100s: this process was forked while sqlite: was open in its parent, and "
                        "can't open it: fork before opening, or exec",
                        st->path);
}

static void leave_process(void) {
  pthread_mutex_lock(&opened_mutex);
  opened_count--;
  pthread_mutex_unlock(&opened_mutex);
}

static void sqlite_disconnect(void *arg) {
  handle *h = arg;
  leave_process();
  for (int i = 0; i < STATEMENTS; i++) sqlite3_finalize(h->prepared[i]);
  sqlite3_close(h->db);
  free(h->room);
  free(h);
}

static int sqlite_connect(void *arg, int64_t deadline, void **ret_handle, corral_error *error) {
  store *st = arg;
  int status = enter_process(st, error);
  if (status != CORRAL_OK) return status;
  handle *h = calloc(1, sizeof *h);
  if (h == NULL) {
    leave_process();
    return st->host->fail(error, CORRAL_ENOMEM, "no memory for a connection");
  }
  h->st = st;
  h->deadline = deadline;
  status = read_boot(h, error);
  if (status == CORRAL_OK) {
    st->host->guard_standard();
    int code = sqlite3_open_v2(
        st->path, &h->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK) { /* else there may be no connection at all */
      sqlite3_extended_result_codes(h->db, 1);
      sqlite3_busy_handler(h->db, on_busy, h);
      code = set_up(h);
    }
    /* Of two who switch a new file to WAL at a time one is refused at once, without on_busy. */
    while ((code & 0xff) == SQLITE_BUSY && on_busy(h, 0)) code = set_up(h);
    if (code != SQLITE_OK) status = fail(h, code, error);
  }
  if (status == CORRAL_OK)
    *ret_handle = h;
  else
    sqlite_disconnect(h);
  return status;
}

/* ---- the store ----------------------------------------------------------------------------- */

static int is_name(const char *text) {
  size_t len = strlen(text);
  if (len == 0 || len > TABLE_MOST || isdigit((unsigned char)text[0]) ||
      sqlite3_strnicmp(text, "sqlite_", 7) == 0)
    return 0;
  for (size_t i = 0; i < len; i++)
    if (!isalnum((unsigned char)text[i]) && text[i] != '_') return 0;
  return 1;
}

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

static int check(const corral_host *host, const corral_uri *uri, const char **ret_table,
                 corral_error *error) {
  const char *table = host->uri_get(uri, "table");
  int status = host->uri_check(uri, "table", error);
  if (status != CORRAL_OK) return status;
  if (sqlite3_libversion_number() < OLDEST || sqlite3_threadsafe() == 0)
    return host->fail(error, CORRAL_EUNSUPPORTED,
                      "SQLite %s: 3.35 or later is needed, built for threads",
                      sqlite3_libversion());
  if ((uri->hosts != NULL && uri->hosts[0] != '\0') || uri->user != NULL)
    return bad_uri(
        host, uri, error,
        "accepted is sqlite:PATH or sqlite:///PATH, without a host: the file is on this one");
  if (uri->path[0] == '\0' || strcmp(uri->path, ":memory:") == 0)
    return bad_uri(host, uri, error,
                   "a path is missing; accepted is for example sqlite:/var/lib/app/locks.db (for "
                   "this process alone there is memory:)");
  if (uri->path[strlen(uri->path) - 1] == '/')
    return bad_uri(host, uri, error, "the path is that of a folder; name a file inside of it");
  if (table != NULL && !is_name(table))
    return bad_uri(host, uri, error,
                   "table= must be at most 60 letters, digits and '_', beginning neither with a "
                   "digit nor with sqlite_");
  *ret_table = table != NULL ? table : "corral_lock";
  return CORRAL_OK;
}

static int sqlite_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                       corral_store_info *info, corral_error *error) {
  static const char name[] = "sqlite ";
  /* so that no path is one of SQLite's special names */
  const char *table = "", *here = uri->path[0] == '/' ? "" : "./";
  int status = check(host, uri, &table, error);
  if (status != CORRAL_OK) return status;
  size_t size = sizeof name + 2 + strlen(uri->path);
  store *st = calloc(1, sizeof *st + size);
  if (st == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  st->host = host;
  snprintf(st->label, size, "%s%s%s", name, here, uri->path);
  snprintf(st->table, sizeof st->table, "%s", table);
  st->path = st->label + sizeof name - 1;
  info->reach = CORRAL_REACH_HOST;
  info->poll_max_ms = POLL_MAX_MS;
  info->name = st->label;
  info->locks_only = 1;
  *ret_store = st;
  return CORRAL_OK;
}

extern const corral_store crl_plugin_sqlite;
const corral_store crl_plugin_sqlite = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .name = "sqlite",
    .schemes = "sqlite",
    .summary = "locks only: a table in an SQLite file shared by all processes of this host",
    .open = sqlite_open,
    .close = free,
    .connect = sqlite_connect,
    .disconnect = sqlite_disconnect,
    .perform = sqlite_perform,
};

CORRAL_PLUGIN(crl_plugin_sqlite)
