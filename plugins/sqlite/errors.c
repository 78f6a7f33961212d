/* errors.c: SQLite's codes as statuses of corral, with texts that say what to do. */
#include <stdio.h>

#include "sqlite.h"

void crl_sqlite_remember(crl_sqlite_handle *h) {
  snprintf(h->why, sizeof h->why, "%s", sqlite3_errmsg(h->db));
  h->system = sqlite3_system_errno(h->db);
}

/* Failures of the file and its disk. */
static int fail_file(const crl_sqlite_handle *h, int code, corral_error *error) {
  const corral_host *host = h->st->host;
  const char *path = h->st->path, *text = h->why;
  const char *cause = h->system != 0 ? strerror(h->system) : "no detail";
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
      return host->fail(error, CORRAL_EIO,
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

static int fail_as(const crl_sqlite_handle *h, int code, corral_error *error) {
  const corral_host *host = h->st->host;
  const char *path = h->st->path;
  if (code == SQLITE_READONLY_DBMOVED) code = CRL_SQLITE_GONE;
  if (code == CRL_SQLITE_GONE)
    return host->fail(
        error, CORRAL_EUNAVAILABLE,
        "%.120s: the file or its table %s was removed or replaced: it is to be opened again", path,
        h->st->table);
  if (code == CRL_SQLITE_OTHER_HOST)
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
      return host->fail(error, CORRAL_EIO, "%.100s: the table %s is not one of corral: %.60s", path,
                        h->st->table, h->why);
    default: return fail_file(h, code, error);
  }
}

int crl_sqlite_fail(crl_sqlite_handle *h, int code, corral_error *error) {
  if (h->why[0] == '\0') crl_sqlite_remember(h);
  int status = fail_as(h, code, error);
  h->why[0] = '\0';
  return status;
}
