/* db.h: libpq with a limit to every call: a deadline, the server's stop, or that the answer has no
 * user any more.
 *
 * A call that ended so leaves its connection in an unknown state: it is closed, and the server,
 * which checks its client every half second (client_connection_check_interval, PostgreSQL 14), ends
 * the query. */
#ifndef BACKEND_DB_H
#define BACKEND_DB_H

#include <corral.h>
#include <libpq-fe.h>

/* Limits of a call. */
typedef struct db_limit {
  int64_t until; /* db_now_ms */
  int stop_fd;   /* readable when the program ends */
  const corral_fill
      *fill; /* the compute that the call is for (corral_fill_should_stop); NULL: none */
} db_limit;

/* A few connections, each used by one thread at a time. */
typedef struct db_pool db_pool;

int64_t db_now_ms(void);
/* Connects; the result is to be given to PQfinish. NULL: see `text`. The system's resolver looks up
 * a name, with limits of its own. */
PGconn *db_connect(const char *conninfo, const db_limit *limit, char *text, size_t size);
/* Asks, and returns the last result, the caller's to clear; NULL: given up. Values are bound, never
 * part of the text. */
PGresult *db_ask(PGconn *conn, const char *sql, const char *const *values, int count,
                 const db_limit *limit);

/* `conninfo` must outlive the pool. NULL without memory. */
db_pool *db_pool_new(const char *conninfo, int most);
/* Frees the pool, after all connections were given back. NULL is allowed. */
void db_pool_free(db_pool *pool);
/* Takes an idle connection, or a new one. NULL: none can be had, `text` says why. */
PGconn *db_take(db_pool *pool, const db_limit *limit, char *text, size_t size);
/* Gives a connection back. `works`: it may be used again. */
void db_give(db_pool *pool, PGconn *conn, int works);

#endif
