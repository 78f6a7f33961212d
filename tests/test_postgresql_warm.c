/* test_postgresql_warm.c: corral warm --pg, with the test's own PostgreSQL. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/postgresql_server.h"
#include "support/warm_kit.h"

static postgresql_server *server;

static const char *ask(const char *sql) { return postgresql_server_ask(server, "%s", sql); }

static void a_row_is_the_value_and_no_row_is_remembered(void **state) {
  (void)state;
  assert_string_equal(
      postgresql_server_ask(server, "CREATE TABLE page(id int PRIMARY KEY, body text, raw bytea)"),
      "");
  (void)postgresql_server_ask(
      server, "INSERT INTO page VALUES(1, 'one', 'a'), (2, E'two\\n', '\\x0041'), (3, NULL, NULL)");
  assert_int_equal(run("printf '1\\n2\\n3\\n7\\n' | $CORRAL_COMMAND --json warm --pg \"$DB\" "
                       "--query 'SELECT body FROM page WHERE id = $1'"),
                   0);
  has("\"computed\":2,\"negative\":2,");
  is_stored("2", "two\n");
  assert_int_equal(run("$CORRAL_COMMAND get 3"), 1);
  assert_int_equal(run("printf '1\\n2\\n3\\n7\\n' | $CORRAL_COMMAND --json warm --pg \"$DB\" "
                       "--query 'SELECT body FROM page WHERE id = $1'"),
                   0);
  has("\"fresh\":2,\"computed\":0,\"negative\":2,");
}

static void a_bytea_is_its_bytes(void **state) {
  (void)state;
  assert_int_equal(run("printf '2' | $CORRAL_COMMAND --namespace raw warm --pg \"$DB\" --query "
                       "'SELECT raw FROM page WHERE id = $1'"),
                   0);
  assert_int_equal(run("$CORRAL_COMMAND --namespace raw get 2 | od -An -tx1"), 0);
  has(" 00 41\n");
}

static void keys_come_from_a_statement_in_its_order(void **state) {
  (void)state;
  assert_int_equal(run("$CORRAL_COMMAND --namespace keys warm -j 1 --pg \"$DB\" --keys "
                       "'SELECT id FROM page ORDER BY id DESC' --exec 'echo $1 >>$OUT.keys'; "
                       "tr '\\n' ' ' <$OUT.keys"),
                   0);
  has("3 2 1 ");
  assert_int_equal(run("$CORRAL_COMMAND --json --namespace both warm --pg \"$DB\" --keys "
                       "'SELECT id FROM page' --query 'SELECT body FROM page WHERE id = $1'"),
                   0);
  has("\"computed\":2,\"negative\":1,");
  assert_int_equal(run("$CORRAL_COMMAND warm --pg \"$DB\" --keys 'SELEC' -- true"), 125);
  has("--keys: ERROR:  syntax error");
}

static void a_key_that_the_statement_does_not_take_fails_alone(void **state) {
  (void)state;
  assert_int_equal(run("printf 'x\\n1\\n' | $CORRAL_COMMAND --json --namespace odd warm -j 1 --pg "
                       "\"$DB\" --query 'SELECT body FROM page WHERE id = $1'"),
                   1);
  has("\"computed\":1,\"negative\":0,\"failed\":1,");
  has("x: failed: ERROR:  invalid input syntax for type integer");
}

static void a_wrong_statement_is_refused_before_anything_is_done(void **state) {
  (void)state;
  assert_int_equal(
      run("echo 1 | $CORRAL_COMMAND warm --pg \"$DB\" --query 'SELECT body FROM page'"), 125);
  has("has 0 parameters and 1 columns");
  assert_int_equal(run("echo 1 | $CORRAL_COMMAND warm --pg \"$DB\" --query 'SELEC $1'"), 125);
  has("syntax error");
  assert_int_equal(
      run("echo 1 | $CORRAL_COMMAND warm --pg 'host=127.0.0.1 port=1' --query 'SELECT $1'"), 125);
  has("--pg: ");
}

static void a_statement_that_takes_too_long_is_ended_on_the_server(void **state) {
  (void)state;
  assert_int_equal(run("echo slow | $CORRAL_COMMAND warm --compute 200ms --pg \"$DB\" --query "
                       "'SELECT $1::text FROM pg_sleep(600)'"),
                   1);
  has("slow: failed: the statement was ended");
  await("SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_sleep(600)' AND state = "
        "'active'",
        "0");
}

static void a_connection_that_broke_is_made_anew(void **state) {
  (void)state;
  FILE *f = popen(
      "$CORRAL_COMMAND warm -j 1 --pg \"$DB\" --query \"SELECT 'value ' || \\$1::text\" 2>$OUT",
      "w");
  assert_non_null(f);
  (void)fputs("before\n", f);
  (void)fflush(f);
  await("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'corral warm' AND state = "
        "'idle' AND query LIKE 'SELECT ''value %'",
        "1");
  await_stored("before");
  (void)postgresql_server_ask(server, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                                      "WHERE application_name = 'corral warm'");
  await("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'corral warm'", "0");
  (void)fputs("after\n", f);
  assert_int_equal(pclose(f), 0);
  is_stored("after", "value after");
}

/* The first warmer's pass stands still at its second key, for which it waits for a lock. */
static void warmers_of_two_databases_share_no_pass(void **state) {
  (void)state;
  static const char warm[] =
      "printf 'one\\ntwo\\n' >$OUT.two; $CORRAL_COMMAND --json --namespace two warm $OUT.two -j 1 "
      "--ttl 1ms --spread 0 --wait 100ms --pg \"$DB %s\" --query \"SELECT current_database() || "
      "CASE WHEN "
      "\\$1 = 'two' AND current_database() = 'postgres' THEN pg_advisory_lock(7)::text ELSE '' "
      "END\" 2>&1 >$OUT.%s";
  char command[SHELL_COMMAND];
  (void)postgresql_server_ask(server, "CREATE DATABASE other");
  (void)postgresql_server_ask(server, "SELECT pg_advisory_lock(7)");
  (void)snprintf(command, sizeof command, warm, "", "first");
  FILE *f = popen(command, "r");
  assert_non_null(f);
  await("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "1");
  int status = run(warm, "dbname=other", "second");
  (void)postgresql_server_ask(server, "SELECT pg_advisory_unlock(7)");
  (void)pclose(f);
  assert_int_equal(status, 1);
  assert_int_equal(run("cat $OUT.second"), 0);
  has("\"computed\":1,");
  has("\"busy\":1,");
}

static void kill_server(void) { postgresql_server_kill(server); }

static void a_server_that_is_gone_fails_the_keys_and_ends(void **state) {
  (void)state;
  loses_its_server(
      "$CORRAL_COMMAND warm -j 1 --pg \"$DB\" --query \"SELECT 'value ' || \\$1::text\" 2>$OUT",
      kill_server);
  postgresql_server_restart(server);
}

static int begin(void **state) {
  (void)state;
  warm_ask = ask;
  warm_begin(postgresql_server_conninfo(server));
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_is_the_value_and_no_row_is_remembered),
      cmocka_unit_test(a_bytea_is_its_bytes),
      cmocka_unit_test(keys_come_from_a_statement_in_its_order),
      cmocka_unit_test(a_key_that_the_statement_does_not_take_fails_alone),
      cmocka_unit_test(a_wrong_statement_is_refused_before_anything_is_done),
      cmocka_unit_test(a_statement_that_takes_too_long_is_ended_on_the_server),
      cmocka_unit_test(a_connection_that_broke_is_made_anew),
      cmocka_unit_test(warmers_of_two_databases_share_no_pass),
      cmocka_unit_test(a_server_that_is_gone_fails_the_keys_and_ends),
  };
  if (getenv("CORRAL_COMMAND") == NULL)
    return (void)fputs("SKIPPED: CORRAL_COMMAND is not set\n", stderr), 77;
  if (!postgresql_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests(tests, begin, warm_end);
  postgresql_server_stop(server);
  return failed;
}
