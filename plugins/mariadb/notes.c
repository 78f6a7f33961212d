/* notes.c: what other processes are told of a holder: a row in the table corral_lock of the URI's
 * database, one for each name that was locked.
 *
 * The holder's connection writes the row behind GET_LOCK, and it is believed only while
 * IS_USED_LOCK names that connection. Nothing else depends on it: where the table isn't there and
 * can't be made, or may not be written, others see the connection alone. A row stays after its
 * hold. The table is in memory, since it is of no more use than the locks after the server's end;
 * when it is full, the rows of free locks go. A connection that takes a lock once more is seen with
 * the row of the time before, until it has written. */
#include <mysqld_error.h>
#include <stdio.h>
#include <stdlib.h>

#include "mariadb.h"

enum { AT_ID = 0, AT_USER, AT_FROM, AT_SILENT, AT_NOTE, AT_FENCE, AT_HELD };

static const char MAKE[] =
    "CREATE TABLE IF NOT EXISTS corral_lock (name VARBINARY(48) PRIMARY KEY, connection BIGINT "
    "UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL, since DATETIME(3) NOT NULL, note "
    "VARBINARY(80) NOT NULL) ENGINE=MEMORY";
static const char SWEEP[] = "DELETE FROM corral_lock WHERE IS_USED_LOCK(name) IS NULL";

/* ---- errors -------------------------------------------------------------------------------- */

static int may_have(crl_mariadb_store *st) { return st->db != NULL && !atomic_load(&st->no_notes); }

/* Performs a statement about the table; returns the server's error, 0: none, or no answer yet, for
 * which the next statement waits. */
static unsigned ask(crl_mariadb_session *s, const char *sql, int64_t deadline) {
  int status = crl_mariadb_ask(s, sql, deadline, NULL);
  if (status == CORRAL_OK || s->broken || s->stage != CRL_MARIADB_READY) return 0;
  return mysql_errno(s->mysql);
}

/* A table that can't be had isn't asked for again. */
static void judge(crl_mariadb_store *st, unsigned code) {
  int passes = code == 0 || code == ER_NO_SUCH_TABLE || code == ER_LOCK_WAIT_TIMEOUT ||
               code == ER_RECORD_FILE_FULL || code == ER_QUERY_INTERRUPTED;
  if (!passes) atomic_store(&st->no_notes, 1);
}

/* ---- the holder's side --------------------------------------------------------------------- */

static void write_row(const crl_mariadb_session *s, char sql[CRL_MARIADB_SQL]) {
  size_t len = strnlen(s->hold.note, sizeof s->hold.note);
  int used = snprintf(sql, CRL_MARIADB_SQL,
                      "REPLACE INTO corral_lock (name, connection, fence, since, note) VALUES "
                      "('%s', CONNECTION_ID(), %llu, UTC_TIMESTAMP(3), X'",
                      s->name, (unsigned long long)s->hold.fence);
  for (size_t i = 0; i < len; i++)
    used += snprintf(sql + used, (size_t)(CRL_MARIADB_SQL - used), "%02x",
                     (unsigned char)s->hold.note[i]);
  snprintf(sql + used, (size_t)(CRL_MARIADB_SQL - used), "')");
}

void crl_mariadb_note_write(crl_mariadb_session *s, int64_t deadline) {
  char sql[CRL_MARIADB_SQL];
  if (!may_have(s->st)) return;
  write_row(s, sql);
  unsigned code = ask(s, sql, deadline);
  if (code == ER_NO_SUCH_TABLE || code == ER_RECORD_FILE_FULL) {
    code = ask(s, code == ER_NO_SUCH_TABLE ? MAKE : SWEEP, deadline);
    if (code == 0) code = ask(s, sql, deadline);
  }
  judge(s->st, code);
}

/* ---- the other side ------------------------------------------------------------------------ */

/* Asks who holds the lock, with or without the table. Statuses as crl_mariadb_ask. */
static int look(crl_mariadb_session *s, const char *name, int noted, int64_t deadline,
                corral_error *error) {
  char sql[CRL_MARIADB_SQL], join[160] = "";
  if (noted)
    snprintf(join, sizeof join, " LEFT JOIN corral_lock n ON n.name = '%s' AND n.connection = u.id",
             name);
  snprintf(sql, sizeof sql,
           "SELECT u.id, p.USER, p.HOST, p.TIME, %s FROM (SELECT IS_USED_LOCK('%s') AS id) u LEFT "
           "JOIN information_schema.PROCESSLIST p ON p.ID = u.id%s",
           noted ? "n.note, n.fence, TIMESTAMPDIFF(MICROSECOND, n.since, UTC_TIMESTAMP(3)) DIV 1000"
                 : "NULL, NULL, NULL",
           name, join);
  return crl_mariadb_ask(s, sql, deadline, error);
}

int crl_mariadb_note_ask(crl_mariadb_session *s, const char *name, int64_t deadline,
                         corral_error *error) {
  if (may_have(s->st)) {
    int status = look(s, name, 1, deadline, error);
    if (status == CORRAL_OK || s->broken || s->stage != CRL_MARIADB_READY) return status;
    judge(s->st, mysql_errno(s->mysql));
  }
  return look(s, name, 0, deadline, error);
}

void crl_mariadb_note_name(const char *note, unsigned long id, corral_hold *hold) {
  char which[40], text[CORRAL_LOCK_NOTE + 1];
  int len = snprintf(which, sizeof which, "%sconnection %lu", note[0] != '\0' ? ", " : "", id);
  snprintf(text, sizeof text, "%.*s%s", CORRAL_LOCK_NOTE - len, note, which);
  memcpy(hold->token, &id, sizeof id);
  memcpy(hold->note, text, strnlen(text, sizeof hold->note));
}

void crl_mariadb_note_read(const crl_mariadb_session *s, corral_hold *hold) {
  const char *user = crl_mariadb_cell(s, AT_USER), *from = crl_mariadb_cell(s, AT_FROM),
             *silent = crl_mariadb_cell(s, AT_SILENT), *note = crl_mariadb_cell(s, AT_NOTE),
             *fence = crl_mariadb_cell(s, AT_FENCE), *held = crl_mariadb_cell(s, AT_HELD);
  unsigned long id = strtoul(crl_mariadb_cell(s, AT_ID), NULL, 10);
  char text[3 * CORRAL_LOCK_NOTE];
  *hold = (corral_hold){.mode = CORRAL_LOCK_EXCLUSIVE};
  crl_mariadb_note_name(note != NULL ? note : "", id, hold);
  if (note != NULL) {
    int64_t ms = held != NULL ? strtoll(held, NULL, 10) : 0;
    hold->fence = fence != NULL ? strtoull(fence, NULL, 10) : 0;
    hold->since = s->st->host->now_ms() - (ms > 0 ? ms : 0);
  } else if (user != NULL) {
    snprintf(text, sizeof text, "connection %lu of %.16s from %.21s, silent %.10s s", id, user,
             from != NULL ? from : "?", silent != NULL ? silent : "?");
    memcpy(hold->note, text, strnlen(text, sizeof hold->note));
  }
}
