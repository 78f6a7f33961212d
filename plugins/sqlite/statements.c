/* statements.c: the SQL: the table, and the statements of a handle. */
#include <stdio.h>

#include "sqlite.h"

enum {
  SQL_MOST = 700, /* bytes of any of the statements, with the table's name */
  SWEEP = 8       /* rows that are deleted at a time */
};

/* Each @ stands for the table's name. */
static const char *const sql_of[CRL_SQLITE_STATEMENTS] = {
    [CRL_SQLITE_LOOK] =
        "SELECT name, record, fence FROM \"@\" WHERE name IN (x'', ?1) ORDER BY name",
    [CRL_SQLITE_PUT] =
        ("INSERT INTO \"@\"(name, record, fence, holds, expires_ms, who) VALUES(?1, ?2, ?3, ?4, "
         "?5, ?6) ON CONFLICT(name) DO UPDATE SET "
         "record = excluded.record, fence = excluded.fence, holds = excluded.holds, expires_ms "
         "= excluded.expires_ms, who = excluded.who"),
    [CRL_SQLITE_SWEEP_UP] =
        ("DELETE FROM \"@\" WHERE name IN (SELECT name FROM \"@\" WHERE expires_ms <= ?1 "
         "AND name <> x'' LIMIT ?2) RETURNING fence"),
    [CRL_SQLITE_RAISE] = "UPDATE \"@\" SET fence = ?1 WHERE name = x''",
    [CRL_SQLITE_BEGIN] = "BEGIN IMMEDIATE",
    [CRL_SQLITE_COMMIT] = "COMMIT",
    [CRL_SQLITE_ROLLBACK] = "ROLLBACK",
};

static const char create_sql[] =
    "CREATE TABLE IF NOT EXISTS \"@\"(name BLOB PRIMARY KEY NOT NULL, record BLOB NOT NULL, fence "
    "INTEGER NOT NULL, holds INTEGER NOT NULL, "
    "expires_ms INTEGER NOT NULL, who TEXT) WITHOUT ROWID; "
    "CREATE INDEX IF NOT EXISTS \"@_expires\" ON \"@\"(expires_ms)";

/* Writes the row of the empty name. A fence is unsigned, SQLite's integers are not: negative ones
 * are the highest. */
static const char boot_sql[] =
    "INSERT INTO \"@\"(name, record, fence, holds, expires_ms, who) "
    "SELECT x'', ?1, coalesce(max(CASE WHEN fence < 0 THEN fence END), max(fence), 0), 0, "
    "9223372036854775807, "
    "'of corral itself: the boot, and the highest fence of rows that are gone' FROM \"@\" WHERE "
    "true "
    "ON CONFLICT(name) DO UPDATE SET record = excluded.record, fence = excluded.fence";

/* `text` with the table's name for each @. */
static const char *with_table(const crl_sqlite_handle *h, const char *text, char sql[SQL_MOST]) {
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

static int prepare(crl_sqlite_handle *h, crl_sqlite_statement which) {
  char sql[SQL_MOST];
  if (h->prepared[which] != NULL) return SQLITE_OK;
  with_table(h, sql_of[which], sql);
  return sqlite3_prepare_v3(h->db, sql, -1, SQLITE_PREPARE_PERSISTENT, &h->prepared[which], NULL);
}

int crl_sqlite_run(crl_sqlite_handle *h, crl_sqlite_statement which) {
  sqlite3_stmt *s = h->prepared[which];
  int code = sqlite3_step(s);
  sqlite3_reset(s);
  sqlite3_clear_bindings(s);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

void crl_sqlite_roll_back(crl_sqlite_handle *h) {
  crl_sqlite_remember(h);
  if (!sqlite3_get_autocommit(h->db)) crl_sqlite_run(h, CRL_SQLITE_ROLLBACK);
}

int crl_sqlite_look(crl_sqlite_handle *h, const corral_op *op, crl_sqlite_row *at) {
  sqlite3_stmt *s = h->prepared[CRL_SQLITE_LOOK];
  *at = (crl_sqlite_row){.record = NULL};
  sqlite3_bind_blob64(s, 1, op->key, op->key_len, SQLITE_STATIC);
  int code = sqlite3_step(s);
  if (code == SQLITE_ROW && sqlite3_column_bytes(s, 0) == 0) {
    at->forgotten = (uint64_t)sqlite3_column_int64(s, 2);
    const void *boot = sqlite3_column_blob(s, 1);
    if (sqlite3_column_bytes(s, 1) != CRL_SQLITE_BOOT ||
        memcmp(boot, h->boot, CRL_SQLITE_BOOT) != 0)
      code = CRL_SQLITE_OTHER_HOST;
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
    code = CRL_SQLITE_GONE;
  }
  if (code == SQLITE_DONE) return SQLITE_OK;
  sqlite3_reset(s);
  /* SQLITE_ERROR says "no such table": the table was there when the handle was made */
  return code == SQLITE_ERROR ? CRL_SQLITE_GONE : code;
}

void crl_sqlite_look_done(crl_sqlite_handle *h) {
  sqlite3_reset(h->prepared[CRL_SQLITE_LOOK]);
  sqlite3_clear_bindings(h->prepared[CRL_SQLITE_LOOK]);
}

/* Counts the holds of a record, without places in the queue; *ret_who is the first one's note. */
static int count_holds(const uint8_t *record, size_t size, const char **ret_who) {
  enum { AT_MODE = 16, AT_NOTE = 48 };
  int holds = 0;
  for (size_t at = CORRAL_LOCK_HEAD; at < size; at += CORRAL_LOCK_HOLD)
    if (record[at + AT_MODE] < CORRAL_LOCK_WAITING && holds++ == 0)
      *ret_who = (const char *)record + at + AT_NOTE;
  return holds;
}

int crl_sqlite_put(crl_sqlite_handle *h, const corral_op *op, const corral_lock_change *change) {
  sqlite3_stmt *s = h->prepared[CRL_SQLITE_PUT];
  uint64_t fence = 0;
  const char *who = NULL;
  int holds = count_holds(h->room, change->size, &who);
  for (int i = 7; i >= 0; i--) fence = fence << 8 | h->room[8 + i];
  sqlite3_bind_blob64(s, 1, op->key, op->key_len, SQLITE_STATIC);
  sqlite3_bind_blob64(s, 2, h->room, change->size, SQLITE_STATIC);
  sqlite3_bind_int64(s, 3, (sqlite3_int64)fence);
  sqlite3_bind_int64(s, 4, holds);
  sqlite3_bind_int64(s, 5, change->expires);
  if (holds > 0) sqlite3_bind_text(s, 6, who, (int)strnlen(who, CORRAL_LOCK_NOTE), SQLITE_STATIC);
  return crl_sqlite_run(h, CRL_SQLITE_PUT);
}

int crl_sqlite_sweep_up(crl_sqlite_handle *h, int64_t now, uint64_t forgotten) {
  sqlite3_stmt *s = h->prepared[CRL_SQLITE_SWEEP_UP];
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
  sqlite3_bind_int64(h->prepared[CRL_SQLITE_RAISE], 1, (sqlite3_int64)highest);
  return crl_sqlite_run(h, CRL_SQLITE_RAISE);
}

int crl_sqlite_list(crl_sqlite_handle *h, const corral_listing *l) {
  static const char held[] = "SELECT name FROM \"@\" WHERE name >= ?1 AND holds > 0 ORDER BY name";
  char sql[SQL_MOST];
  sqlite3_stmt *s = NULL;
  int code = sqlite3_prepare_v2(h->db, with_table(h, held, sql), -1, &s, NULL);
  if (code == SQLITE_OK) sqlite3_bind_blob64(s, 1, l->prefix, l->prefix_len, SQLITE_STATIC);
  while (code == SQLITE_OK && (code = sqlite3_step(s)) == SQLITE_ROW) {
    const void *name = sqlite3_column_blob(s, 0);
    size_t len = (size_t)sqlite3_column_bytes(s, 0);
    int is_one = len > 0 && len >= l->prefix_len && memcmp(name, l->prefix, l->prefix_len) == 0;
    code = is_one && l->tell(l->arg, name, len) == 0 ? SQLITE_OK : SQLITE_DONE;
  }
  sqlite3_finalize(s);
  return code == SQLITE_DONE ? SQLITE_OK : code;
}

/* ---- the table ----------------------------------------------------------------------------- */

static int pragma(crl_sqlite_handle *h, const char *sql, int *number) {
  sqlite3_stmt *s = NULL;
  int code = sqlite3_prepare_v2(h->db, sql, -1, &s, NULL);
  if (code == SQLITE_OK) code = sqlite3_step(s);
  if (code == SQLITE_ROW && number != NULL) *number = sqlite3_column_int(s, 0);
  sqlite3_finalize(s);
  return code == SQLITE_ROW || code == SQLITE_DONE ? SQLITE_OK : code;
}

/* Writes the row of the empty name for this boot, with the highest fence of all rows, and deletes
 * the others. */
static int begin_boot(crl_sqlite_handle *h) {
  char sql[SQL_MOST];
  sqlite3_stmt *s = NULL;
  int code = sqlite3_prepare_v2(h->db, with_table(h, boot_sql, sql), -1, &s, NULL);
  if (code == SQLITE_OK) sqlite3_bind_blob(s, 1, h->boot, CRL_SQLITE_BOOT, SQLITE_STATIC);
  if (code == SQLITE_OK) code = sqlite3_step(s);
  sqlite3_finalize(s);
  if (code != SQLITE_DONE) return code;
  return sqlite3_exec(h->db, with_table(h, "DELETE FROM \"@\" WHERE name <> x''", sql), NULL, NULL,
                      NULL);
}

static int prepare_all(crl_sqlite_handle *h) {
  int code = SQLITE_OK;
  for (int i = 0; i < CRL_SQLITE_STATEMENTS && code == SQLITE_OK; i++)
    code = prepare(h, (crl_sqlite_statement)i);
  return code;
}

/* SQLITE_OK when the table is there, and of this boot. */
static int look_at_boot(crl_sqlite_handle *h) {
  const corral_op nothing = {.key = "", .key_len = 0};
  crl_sqlite_row at;
  int code = crl_sqlite_look(h, &nothing, &at);
  if (code == SQLITE_OK) crl_sqlite_look_done(h);
  return code;
}

static int make_table(crl_sqlite_handle *h) {
  char sql[SQL_MOST];
  int code = prepare(h, CRL_SQLITE_ROLLBACK);
  if (code == SQLITE_OK) code = prepare(h, CRL_SQLITE_BEGIN);
  if (code == SQLITE_OK) code = crl_sqlite_run(h, CRL_SQLITE_BEGIN);
  if (code != SQLITE_OK) return code;
  code = sqlite3_exec(h->db, with_table(h, create_sql, sql), NULL, NULL, NULL);
  if (code == SQLITE_OK) code = prepare_all(h);
  if (code == SQLITE_OK) {
    code = look_at_boot(h); /* another process may have made it meanwhile */
    if (code == CRL_SQLITE_GONE || code == CRL_SQLITE_OTHER_HOST) code = begin_boot(h);
  }
  if (code == SQLITE_OK) code = crl_sqlite_run(h, CRL_SQLITE_COMMIT);
  if (code != SQLITE_OK) crl_sqlite_roll_back(h);
  return code;
}

int crl_sqlite_set_up(crl_sqlite_handle *h) {
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
