/* storm_db.c: the origin of the storm: a SQLite database, and a query that joins and sorts on
 * purpose.
 *
 * The query reads the first `rows` orders, so its cost grows with them. A connection belongs to one
 * thread. */
#include "sqlite.h"
#include "storm.h"

#include <stdlib.h>

struct storm_db {
  sqlite3 *sqlite;
  sqlite3_stmt *query;
  atomic_int *stop;
};

enum { ROWS_FIRST = 5000, ROWS_MOST = 5000000, TARGET_US = 20000, PROGRESS_STEPS = 20000 };

static const char schema[] =
    "PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;"
    "CREATE TABLE customers(id INTEGER PRIMARY KEY, region TEXT, discount INTEGER);"
    "CREATE TABLE products(id INTEGER PRIMARY KEY, maker TEXT, price INTEGER);"
    "CREATE TABLE orders(id INTEGER PRIMARY KEY, customer INTEGER, product INTEGER, amount "
    "INTEGER);"
    "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n WHERE i < 1999)"
    " INSERT INTO customers SELECT i, 'region ' || (i * 7919 % 50), i % 30 FROM n;"
    "WITH RECURSIVE n(i) AS (VALUES(0) UNION ALL SELECT i+1 FROM n WHERE i < 499)"
    " INSERT INTO products SELECT i, 'maker ' || (i * 104729 % 40), 100 + i * 31 % 900 FROM n;";

static const char insert[] =
    "WITH RECURSIVE n(i) AS (SELECT ?1 WHERE ?1 < ?2 UNION ALL SELECT i+1 FROM n WHERE i+1 < ?2)"
    " INSERT INTO orders SELECT i, i * 7907 % 2000, i * 6373 % 500, 1 + i * 17 % 9 FROM n";

static const char aggregate[] =
    "SELECT sum(total) FROM (SELECT c.region, p.maker, sum(o.amount * p.price * (100 - c.discount) "
    "+ ?2) AS total"
    " FROM orders o JOIN customers c ON c.id = o.customer JOIN products p ON p.id = o.product"
    " WHERE o.id < ?1 GROUP BY c.region, p.maker ORDER BY total DESC)";

static int progress(void *arg) {
  return atomic_load_explicit((atomic_int *)arg, memory_order_relaxed);
}

void storm_db_close(storm_db *db) {
  if (db == NULL) return;
  (void)cli_sqlite.finalize(db->query);
  (void)cli_sqlite.close(db->sqlite);
  free(db);
}

static storm_db *open_as(const char *path, int flags, atomic_int *stop) {
  storm_db *db = calloc(1, sizeof *db);
  if (db == NULL) return NULL;
  db->stop = stop;
  if (cli_sqlite.open_v2(path, &db->sqlite, flags | SQLITE_OPEN_NOMUTEX, NULL) == SQLITE_OK) {
    cli_sqlite.progress_handler(db->sqlite, PROGRESS_STEPS, progress, stop);
    return db;
  }
  storm_db_close(db);
  return NULL;
}

static bool prepare(storm_db *db) {
  return cli_sqlite.prepare_v2(db->sqlite, aggregate, -1, &db->query, NULL) == SQLITE_OK;
}

storm_db *storm_db_open(const char *path, atomic_int *stop) {
  storm_db *db = open_as(path, SQLITE_OPEN_READONLY, stop);
  if (db != NULL && prepare(db)) return db;
  storm_db_close(db);
  return NULL;
}

bool storm_db_query(storm_db *db, int64_t rows, unsigned key, int64_t *ret) {
  (void)cli_sqlite.reset(db->query);
  bool ok = cli_sqlite.bind_int64(db->query, 1, rows) == SQLITE_OK &&
            cli_sqlite.bind_int64(db->query, 2, key) == SQLITE_OK &&
            cli_sqlite.step(db->query) == SQLITE_ROW;
  if (ok) *ret = cli_sqlite.column_int64(db->query, 0);
  (void)cli_sqlite.reset(db->query);
  return ok;
}

static bool add_rows(storm_db *db, int64_t from, int64_t to) {
  sqlite3_stmt *statement = NULL;
  bool ok = cli_sqlite.prepare_v2(db->sqlite, insert, -1, &statement, NULL) == SQLITE_OK &&
            cli_sqlite.bind_int64(statement, 1, from) == SQLITE_OK &&
            cli_sqlite.bind_int64(statement, 2, to) == SQLITE_OK &&
            cli_sqlite.step(statement) == SQLITE_DONE;
  (void)cli_sqlite.finalize(statement);
  return ok;
}

/* Time of the quicker one of two queries, which has warm caches, in us; -1 when one failed. */
static int64_t measure(storm_db *db, int64_t rows) {
  int64_t best = -1;
  for (int i = 0; i < 2; i++) {
    int64_t sum = 0;
    int64_t begin = cli_now_ns();
    if (!storm_db_query(db, rows, 0, &sum)) return -1;
    int64_t us = (cli_now_ns() - begin) / 1000;
    if (best < 0 || us < best) best = us;
  }
  return best < 1 ? 1 : best;
}

static bool build(storm *s, storm_db *db) {
  bool calibrate = s->options.load == 0;
  int64_t rows = calibrate ? ROWS_FIRST : s->options.load;
  if (cli_sqlite.exec(db->sqlite, schema, NULL, NULL, NULL) != SQLITE_OK ||
      !add_rows(db, 0, rows) || !prepare(db))
    return false;
  s->query_us = measure(db, rows);
  if (calibrate && s->query_us > 0 && s->query_us < TARGET_US) {
    int64_t wanted = rows * TARGET_US / s->query_us;
    wanted = wanted < ROWS_MOST ? wanted : ROWS_MOST;
    if (!add_rows(db, rows, wanted)) return false;
    rows = wanted;
    s->query_us = measure(db, rows);
  }
  s->options.load = rows;
  return s->query_us > 0;
}

bool storm_db_make(storm *s) {
  /* once, in the parent of the herd */
  if (!cli_sqlite_load("storm")) return false;
  storm_db *db = open_as(s->database, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, &s->shared->stop);
  bool ok = db != NULL && build(s, db);
  if (!ok && atomic_load(&s->shared->stop) == 0)
    cli_say("storm: %s: %s", s->database,
            db != NULL ? cli_sqlite.errmsg(db->sqlite) : "can't be made");
  storm_db_close(db);
  return ok;
}
