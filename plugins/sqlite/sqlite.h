/* sqlite.h: the parts of the sqlite: store. Internal to plugins/sqlite/. From below:
 *
 *   errors.c       SQLite's codes as statuses, with texts for people
 *   statements.c   the SQL: the table, and the statements of a handle
 *   verbs.c        the lock verbs
 *   sqlite.c       handles, the URI, the table of the plugin
 *
 * Functions without a comment on it return one of SQLite's codes, or CRL_SQLITE_GONE,
 * CRL_SQLITE_OTHER_HOST. A deadline is host->now_ms time. */
#ifndef CRL_SQLITE_H
#define CRL_SQLITE_H

#include <corral/plugin.h>
#include <sqlite3.h>

enum {
  CRL_SQLITE_BOOT = 36,       /* bytes of a boot's id */
  CRL_SQLITE_TABLE_MOST = 60, /* bytes of a table's name */
  CRL_SQLITE_GONE = 10001,    /* beside SQLite's codes: file or table were removed or replaced */
  CRL_SQLITE_OTHER_HOST       /* another boot's id is in the file */
};

typedef enum crl_sqlite_statement {
  CRL_SQLITE_LOOK,
  CRL_SQLITE_PUT,
  CRL_SQLITE_SWEEP_UP,
  CRL_SQLITE_RAISE,
  CRL_SQLITE_BEGIN,
  CRL_SQLITE_COMMIT,
  CRL_SQLITE_ROLLBACK,
  CRL_SQLITE_STATEMENTS
} crl_sqlite_statement;

typedef struct crl_sqlite_store {
  const corral_host *host;
  char table[CRL_SQLITE_TABLE_MOST + 1];
  char *path;   /* within label */
  char label[]; /* "sqlite PATH" */
} crl_sqlite_store;

typedef struct crl_sqlite_handle {
  crl_sqlite_store *st;
  sqlite3 *db;
  sqlite3_stmt *prepared[CRL_SQLITE_STATEMENTS];
  int64_t deadline; /* of the operations under way */
  char boot[CRL_SQLITE_BOOT];
  uint8_t *room; /* a record that is to be written */
  size_t room_size;
  char why[80]; /* SQLite's and the system's words for a failure, from before the roll-back */
  int system;
} crl_sqlite_handle;

/* The row that a look found, valid until crl_sqlite_look_done. */
typedef struct crl_sqlite_row {
  const uint8_t *record; /* NULL: none */
  size_t size;
  uint64_t forgotten; /* the highest fencing token of rows that are gone */
} crl_sqlite_row;

/* ---- errors.c ------------------------------------------------------------------------------ */

/* Keeps SQLite's and the system's words for the last failure, which a roll-back would replace. */
void crl_sqlite_remember(crl_sqlite_handle *h);
/* The status of one of the codes, with a text; forgets the words that were kept. */
int crl_sqlite_fail(crl_sqlite_handle *h, int code, corral_error *error);

/* ---- statements.c -------------------------------------------------------------------------- */

/* Makes the table where it is missing, begins it anew after a reboot, and prepares all
 * statements. */
int crl_sqlite_set_up(crl_sqlite_handle *h);
/* Runs a statement that has no rows. */
int crl_sqlite_run(crl_sqlite_handle *h, crl_sqlite_statement which);
/* Ends a transaction, if there is one, and keeps the words for what failed. */
void crl_sqlite_roll_back(crl_sqlite_handle *h);
/* Reads the row of op's name and that of the empty name, at one moment. After SQLITE_OK the caller
 * calls crl_sqlite_look_done. */
int crl_sqlite_look(crl_sqlite_handle *h, const corral_op *op, crl_sqlite_row *at);
void crl_sqlite_look_done(crl_sqlite_handle *h);
/* Writes the record in h->room as the row of op's name. */
int crl_sqlite_put(crl_sqlite_handle *h, const corral_op *op, const corral_lock_change *change);
/* Deletes a few rows whose time is over; the row of the empty name keeps their highest fencing
 * token. */
int crl_sqlite_sweep_up(crl_sqlite_handle *h, int64_t now, uint64_t forgotten);

/* Tells the names of locks with holds: see corral_store.list. */
int crl_sqlite_list(crl_sqlite_handle *h, const corral_listing *listing);

/* ---- verbs.c ------------------------------------------------------------------------------- */

/* See corral_store.perform. */
int crl_sqlite_perform(void *handle, const corral_batch *batch, int64_t deadline,
                       corral_error *error);

#endif
