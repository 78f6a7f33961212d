/* test_postgresql_transaction.c: docs/recipes.md, "Invalidate what a transaction has changed", on a
 * real PostgreSQL: the writer has a connection of its own, and so has the one that values are
 * computed from. */
#include <corral.h>
#include <libpq-fe.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/postgresql_server.h"

static postgresql_server *server;

/* ---- the application ------------------------------------------------------------------------ */

typedef struct shop {
  corral *c;
  PGconn *writer, *reader;
  int computes;
  bool commits; /* the writer does so when the next compute has read */
} shop;

static void do_sql(PGconn *pg, const char *sql) {
  PGresult *result = PQexec(pg, sql);
  if (PQresultStatus(result) != PGRES_COMMAND_OK) fail_msg("%s: %s", sql, PQerrorMessage(pg));
  PQclear(result);
}

static void invalidate(shop *s) {
  assert_int_equal(corral_invalidate(s->c, "stock", 5, NULL), CORRAL_OK);
}

/* The recipe: what was computed before the commit is voided after it. */
static void commit(shop *s) {
  do_sql(s->writer, "COMMIT");
  invalidate(s);
}

static void sell_one(shop *s) {
  do_sql(s->writer, "BEGIN");
  do_sql(s->writer, "UPDATE article SET stock = stock - 1");
}

static int read_stock(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  shop *s = arg;
  (void)key, (void)key_len;
  PGresult *result = PQexec(s->reader, "SELECT stock FROM article");
  char text[24];
  int size = snprintf(text, sizeof text, "%s", PQgetvalue(result, 0, 0));
  PQclear(result);
  s->computes++;
  bool commits = s->commits;
  s->commits = false;
  if (commits) commit(s);
  return corral_fill_bytes(fill, text, (size_t)size);
}

static long stock_of(shop *s) {
  corral_value *value;
  char text[24];
  assert_int_equal(corral_get_or_compute(s->c, "stock", 5, NULL, read_stock, s, &value), CORRAL_OK);
  (void)snprintf(text, sizeof text, "%.*s", (int)corral_value_size(value),
                 (const char *)corral_value_data(value));
  corral_value_unref(value);
  return strtol(text, NULL, 10);
}

static PGconn *connected(void) {
  PGconn *pg = PQconnectdb(postgresql_server_conninfo(server));
  if (PQstatus(pg) != CONNECTION_OK) fail_msg("%s", PQerrorMessage(pg));
  return pg;
}

/* Ten in stock, which is known to the cache. */
static shop opened(void) {
  shop s = {.writer = connected(), .reader = connected()};
  corral_error error = {0};
  if (corral_open(CORRAL_OPTIONS(.store = "memory:"), &s.c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  do_sql(s.writer, "UPDATE article SET stock = 10");
  assert_int_equal(stock_of(&s), 10);
  assert_int_equal(s.computes, 1);
  return s;
}

static void closed(shop *s) {
  corral_close(s->c);
  PQfinish(s->writer);
  PQfinish(s->reader);
}

/* ---- stories -------------------------------------------------------------------------------- */

static void after_begin_write_commit_and_invalidation_the_new_rows_are_served(void **state) {
  (void)state;
  shop s = opened();
  sell_one(&s);
  assert_int_equal(stock_of(&s), 10); /* as the database has it for all others */
  assert_int_equal(s.computes, 1);
  commit(&s);
  assert_int_equal(stock_of(&s), 9);
  assert_int_equal(stock_of(&s), 9);
  assert_int_equal(s.computes, 2);
  closed(&s);
}

static void a_rollback_needs_no_invalidation_and_bears_one(void **state) {
  (void)state;
  shop s = opened();
  sell_one(&s);
  do_sql(s.writer, "ROLLBACK");
  assert_int_equal(stock_of(&s), 10);
  assert_int_equal(s.computes, 1);
  sell_one(&s);
  invalidate(&s);
  do_sql(s.writer, "ROLLBACK");
  assert_int_equal(stock_of(&s), 10);
  assert_int_equal(s.computes, 2);
  closed(&s);
}

static void a_reader_between_the_write_and_the_commit_leaves_nothing_behind(void **state) {
  (void)state;
  shop s = opened();
  sell_one(&s);
  invalidate(&s); /* before the commit: the next one reads, and stores, what is over soon */
  assert_int_equal(stock_of(&s), 10);
  do_sql(s.writer, "COMMIT");
  assert_int_equal(stock_of(&s), 10); /* why an invalidation before the commit alone is none */
  invalidate(&s);
  assert_int_equal(stock_of(&s), 9);
  /* the same, with a commit while the compute has read and not answered */
  sell_one(&s);
  invalidate(&s);
  s.commits = true;
  int before = s.computes;
  assert_in_range(stock_of(&s), 8, 9);
  assert_int_equal(stock_of(&s), 8);
  assert_in_range(s.computes - before, 2, 3);
  closed(&s);
}

/* The lagging replica is a connection whose snapshot is older than the commit. */
static void what_a_lagging_replica_answered_is_voided_when_it_has_caught_up(void **state) {
  (void)state;
  shop s = opened();
  do_sql(s.reader, "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
  PQclear(PQexec(s.reader, "SELECT stock FROM article"));
  sell_one(&s);
  commit(&s);
  assert_int_equal(stock_of(&s), 10); /* computed after the invalidation, from the old rows */
  do_sql(s.reader, "COMMIT");
  assert_int_equal(stock_of(&s), 10); /* nobody has told the cache */
  invalidate(&s);
  assert_int_equal(stock_of(&s), 9);
  assert_int_equal(s.computes, 3);
  closed(&s);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(after_begin_write_commit_and_invalidation_the_new_rows_are_served),
      cmocka_unit_test(a_rollback_needs_no_invalidation_and_bears_one),
      cmocka_unit_test(a_reader_between_the_write_and_the_commit_leaves_nothing_behind),
      cmocka_unit_test(what_a_lagging_replica_answered_is_voided_when_it_has_caught_up),
  };
  if (!postgresql_server_start(&server, NULL)) return 77;
  (void)postgresql_server_ask(server, "CREATE TABLE article (stock int)");
  (void)postgresql_server_ask(server, "INSERT INTO article VALUES (10)");
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failed;
}
