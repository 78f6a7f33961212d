/* db.h: libpq with an end to every call: by a deadline, by the server's stop, or because nobody
 * wants the answer any more.
 *
 * A call that ended so leaves its connection in an unknown state: it is closed, and the server,
 * which looks after its client every half a second (client_connection_check_interval, PostgreSQL
 * 14), ends the query. */
#ifndef BACKEND_DB_H
#define BACKEND_DB_H

#include <corral.h>
#include <libpq-fe.h>

/* When to give up. */
typedef struct db_limit {
  int64_t until;           /* db_now_ms */
  int stop_fd;             /* readable when the program ends */
  const corral_fill *fill; /* what it is for: corral_should_stop; NULL: nothing */
} db_limit;

/* A few connections, each in one thread's hands at a time. */
typedef struct db_pool db_pool;

int64_t db_now_ms(void);
/* The caller's, to be given to PQfinish; NULL: see `text`. A name is looked up by the system's
 * resolver, which has limits of its own. */
PGconn *db_connect(const char *conninfo, const db_limit *limit, char *text, size_t size);
/* The last result, the caller's; NULL when it was given up. Values are bound, never part of the
 * text. */
PGresult *db_ask(PGconn *conn, const char *sql, const char *const *values, int count,
                 const db_limit *limit);

/* `conninfo` must outlive it. NULL without memory. */
db_pool *db_pool_new(const char *conninfo, int most);
/* When all are given back. NULL is allowed. */
void db_pool_free(db_pool *pool);
/* An idle connection, or a new one. NULL: none to be had, `text` says why. */
PGconn *db_take(db_pool *pool, const db_limit *limit, char *text, size_t size);
/* `works`: whether somebody else may use it. */
void db_give(db_pool *pool, PGconn *conn, int works);

#endif
