/* test_mariadb_warm.c: corral warm --mariadb, with the test's own MariaDB. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "support/mariadb_server.h"
#include "support/warm_kit.h"

static mariadb_server *server;
static char conninfo[200];

static const char *ask(const char *sql) { return mariadb_server_ask(server, "%s", sql); }

static void a_row_is_the_value_and_no_row_is_remembered(void **state) {
  (void)state;
  (void)ask("CREATE TABLE shop.page(id int PRIMARY KEY, body text, raw blob, price double)");
  (void)ask("INSERT INTO shop.page VALUES (1, 'one', 'a', 1.25), (2, 'two \u00e9\n', x'0041ff', "
            "3e9), (3, NULL, NULL, NULL)");
  for (int i = 0; i < 2; i++) {
    assert_int_equal(
        run("printf '1\\n2\\n3\\n7\\n' | $CORRAL_COMMAND --json warm --mariadb \"$DB\" "
            "--query 'SELECT body, raw FROM page WHERE id = ?'"),
        0);
    has(i == 0 ? "\"computed\":2,\"negative\":2," : "\"fresh\":2,\"computed\":0,\"negative\":2,");
  }
  is_stored("2", "two \u00e9\n");
  assert_int_equal(run("$CORRAL_COMMAND get 3"), 1);
}

static void bytes_numbers_and_large_texts_are_whole(void **state) {
  (void)state;
  assert_int_equal(
      run("printf '2' | $CORRAL_COMMAND --namespace raw warm --mariadb \"$DB\" --query "
          "'SELECT raw FROM page WHERE id = ?'"),
      0);
  assert_int_equal(run("$CORRAL_COMMAND --namespace raw get 2 | od -An -tx1"), 0);
  has(" 00 41 ff\n");
  assert_int_equal(
      run("printf '1' | $CORRAL_COMMAND --namespace num warm --mariadb \"$DB\" --query "
          "'SELECT price FROM page WHERE id = ?'; $CORRAL_COMMAND --namespace num get 1"),
      0);
  has("1.25");
  assert_int_equal(run("echo k | $CORRAL_COMMAND --namespace big warm --mariadb \"$DB\" --query "
                       "\"SELECT CONCAT(?, REPEAT('x', 3000000))\"; "
                       "$CORRAL_COMMAND --namespace big get k | tr -d x; "
                       "$CORRAL_COMMAND --namespace big get k | wc -c"),
                   0);
  has("k3000001\n");
}

static void a_key_is_bytes_and_never_a_part_of_the_statement(void **state) {
  (void)state;
  assert_int_equal(
      run("printf \"' OR 1 --\\0a\\\\b\\0\" | $CORRAL_COMMAND --namespace odd --json warm -0 "
          "--mariadb \"$DB\" --query 'SELECT HEX(?)'; "
          "$CORRAL_COMMAND --namespace odd get \"' OR 1 --\""),
      0);
  has("\"computed\":2,");
  has("27204F522031202D2D");
}

static void keys_come_from_a_statement_in_its_order(void **state) {
  (void)state;
  assert_int_equal(run("$CORRAL_COMMAND --namespace keys warm -j 1 --mariadb \"$DB\" --keys "
                       "'SELECT id FROM page ORDER BY id DESC' --exec 'echo $1 >>$OUT.keys'; "
                       "tr '\\n' ' ' <$OUT.keys"),
                   0);
  has("3 2 1 ");
  assert_int_equal(run("$CORRAL_COMMAND --json --namespace both warm --mariadb \"$DB\" --keys "
                       "'SELECT id FROM page' --query 'SELECT body FROM page WHERE id = ?'"),
                   0);
  has("\"computed\":2,\"negative\":1,");
  assert_int_equal(run("$CORRAL_COMMAND warm --mariadb \"$DB\" --keys 'SELEC' -- true"), 125);
  has("--keys: You have an error in your SQL syntax");
  assert_int_equal(run("$CORRAL_COMMAND warm --mariadb \"$DB\" --keys 'DO 1' -- true"), 125);
  has("--keys: the statement answers no rows");
}

static void a_wrong_statement_is_refused_before_anything_is_done(void **state) {
  (void)state;
  assert_int_equal(
      run("echo 1 | $CORRAL_COMMAND warm --mariadb \"$DB\" --query 'SELECT body FROM page'"), 125);
  has("has 0 parameters and 1 columns: a statement with ?, the key,");
  assert_int_equal(run("echo 1 | $CORRAL_COMMAND warm --mariadb \"$DB\" --query 'SELEC ?'"), 125);
  has("error in your SQL syntax");
  assert_int_equal(
      run("echo 1 | $CORRAL_COMMAND warm --mariadb 'host=127.0.0.1;port=1' --query 'SELECT ?'"),
      125);
  has("--mariadb: Can't connect");
}

static void a_key_that_the_statement_does_not_take_fails_alone(void **state) {
  (void)state;
  assert_int_equal(run("printf '[\\n1\\n' | $CORRAL_COMMAND --json --namespace alone warm -j 1 "
                       "--mariadb \"$DB\" --query \"SELECT 'a' REGEXP ?\""),
                   1);
  has("\"computed\":1,\"negative\":0,\"failed\":1,");
  has("[: failed: ");
}

static void a_statement_that_takes_too_long_is_ended_on_the_server(void **state) {
  (void)state;
  int status = 0;
  for (int i = 0; i < 20 && status != 125; i++) { /* until its pause is over the failure is known */
    assert_int_equal(
        run("echo slow | $CORRAL_COMMAND warm --compute 200ms --mariadb \"$DB\" --query "
            "'SELECT CONCAT(?, SLEEP(600))'"),
        1);
    has("slow: failed: the statement was ended");
    status = run("$CORRAL_COMMAND get slow");
  }
  assert_int_equal(status, 125);
  await("SELECT count(*) FROM information_schema.PROCESSLIST WHERE INFO LIKE '%SLEEP(600)%' AND ID "
        "<> CONNECTION_ID()",
        "0");
}

static void a_password_comes_from_the_users_own_file(void **state) {
  (void)state;
  assert_int_equal(
      run("umask 077; printf '[client]\\nhost=127.0.0.1\\nport=%d\\nuser=warmer\\n"
          "password=\"se cret\"\\ndatabase=shop\\n' >%s/.my.cnf; "
          "echo 1 | HOME=%s $CORRAL_COMMAND --namespace file warm --mariadb '' --query "
          "'SELECT body FROM page WHERE id = ?'; $CORRAL_COMMAND --namespace file get 1",
          mariadb_server_port(server), warm_folder, warm_folder),
      0);
  has("one");
}

/* A conninfo goes before the file, also when it is one word alone. */
static void the_conninfo_goes_before_the_file(void **state) {
  (void)state;
  assert_int_equal(
      run("umask 077; printf '[client]\\nhost=127.0.0.1\\nport=%d\\nuser=warmer\\n"
          "password=\"se cret\"\\ndatabase=other\\n' >%s/.my.cnf; "
          "for text in '' database=shop 'database=shop;'; do "
          "echo 1 | HOME=%s $CORRAL_COMMAND -q --namespace \"first$text\" warm --mariadb "
          "\"$text\" --query 'SELECT CONCAT(DATABASE(), ?, \" \")'; "
          "$CORRAL_COMMAND --namespace \"first$text\" get 1; done",
          mariadb_server_port(server), warm_folder, warm_folder),
      0);
  assert_string_equal(out, "other1 shop1 shop1 ");
}

static void what_the_conninfo_can_not_say_is_refused_without_its_value(void **state) {
  (void)state;
  static const char *const texts[] = {"host=h;passwrd=hush", "hush", "mariadb://u:hush@h/db"};
  for (int i = 0; i < 3; i++) {
    assert_int_equal(
        run("echo 1 | $CORRAL_COMMAND warm --mariadb '%s' --query 'SELECT ?'", texts[i]), 125);
    has("is not accepted: host=, port=,");
    assert_null(strstr(out, "hush"));
  }
}

static void a_connection_that_broke_is_made_anew(void **state) {
  (void)state;
  await("SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'warmer'", "0");
  FILE *f = popen("$CORRAL_COMMAND warm -j 1 --mariadb \"$DB\" --query \"SELECT CONCAT('value ', "
                  "?)\" 2>$OUT",
                  "w");
  assert_non_null(f);
  (void)fputs("before\n", f);
  (void)fflush(f);
  await_stored("before");
  long id =
      strtol(ask("SELECT ID FROM information_schema.PROCESSLIST WHERE USER = 'warmer'"), NULL, 10);
  (void)mariadb_server_ask(server, "KILL %ld", id);
  await("SELECT count(*) FROM information_schema.PROCESSLIST WHERE USER = 'warmer'", "0");
  (void)fputs("after\n", f);
  assert_int_equal(pclose(f), 0);
  is_stored("after", "value after");
}

/* The first warmer's pass stands still at its second key, whose statement sleeps. */
static void warmers_of_two_databases_share_no_pass(void **state) {
  (void)state;
  static const char warm[] =
      "printf 'one\\ntwo\\n' >$OUT.two; $CORRAL_COMMAND --json --namespace two warm $OUT.two -j 1 "
      "--ttl 1ms --spread 0 --wait 100ms --mariadb \"${DB%%shop}%s\" --query \"SELECT IF(CONCAT("
      "DATABASE(), ?) = 'shoptwo', SLEEP(600), 1)\" 2>&1 >$OUT.%s";
  static const char sleeping[] = "FROM information_schema.PROCESSLIST WHERE STATE = 'User sleep'";
  char command[SHELL_COMMAND], sql[200];
  (void)snprintf(command, sizeof command, warm, "shop", "first");
  FILE *f = popen(command, "r");
  assert_non_null(f);
  (void)snprintf(sql, sizeof sql, "SELECT count(*) %s", sleeping);
  await(sql, "1");
  int status = run(warm, "other", "second");
  (void)snprintf(sql, sizeof sql, "SELECT ID %s", sleeping);
  long id = strtol(ask(sql), NULL, 10);
  (void)mariadb_server_ask(server, "KILL QUERY %ld", id);
  (void)pclose(f);
  assert_int_equal(status, 1);
  assert_int_equal(run("cat $OUT.second"), 0);
  has("\"computed\":1,");
  has("\"busy\":1,");
}

static void kill_server(void) { mariadb_server_kill(server); }

static void a_server_that_is_gone_fails_the_keys_and_ends(void **state) {
  (void)state;
  loses_its_server("$CORRAL_COMMAND warm -j 1 --mariadb \"$DB\" --query \"SELECT CONCAT('value ', "
                   "?)\" 2>$OUT",
                   kill_server);
  mariadb_server_restart(server);
}

static int begin(void **state) {
  (void)state;
  warm_ask = ask;
  (void)ask("CREATE DATABASE shop");
  (void)ask("CREATE DATABASE other");
  (void)ask("CREATE USER warmer@'%' IDENTIFIED BY 'se cret'");
  (void)ask("GRANT ALL ON *.* TO warmer@'%'");
  (void)snprintf(conninfo, sizeof conninfo, "host=127.0.0.1;port=%d;user=warmer;password=se cret",
                 mariadb_server_port(server));
  (void)snprintf(conninfo + strlen(conninfo), sizeof conninfo - strlen(conninfo), ";database=shop");
  warm_begin(conninfo);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_row_is_the_value_and_no_row_is_remembered),
      cmocka_unit_test(bytes_numbers_and_large_texts_are_whole),
      cmocka_unit_test(a_key_is_bytes_and_never_a_part_of_the_statement),
      cmocka_unit_test(keys_come_from_a_statement_in_its_order),
      cmocka_unit_test(a_wrong_statement_is_refused_before_anything_is_done),
      cmocka_unit_test(a_key_that_the_statement_does_not_take_fails_alone),
      cmocka_unit_test(a_statement_that_takes_too_long_is_ended_on_the_server),
      cmocka_unit_test(a_password_comes_from_the_users_own_file),
      cmocka_unit_test(what_the_conninfo_can_not_say_is_refused_without_its_value),
      cmocka_unit_test(the_conninfo_goes_before_the_file),
      cmocka_unit_test(a_connection_that_broke_is_made_anew),
      cmocka_unit_test(warmers_of_two_databases_share_no_pass),
      cmocka_unit_test(a_server_that_is_gone_fails_the_keys_and_ends),
  };
  if (getenv("CORRAL_COMMAND") == NULL)
    return (void)fputs("SKIPPED: CORRAL_COMMAND is not set\n", stderr), 77;
  if (!mariadb_server_start(&server)) return 77;
  int failed = cmocka_run_group_tests(tests, begin, warm_end);
  mariadb_server_stop(server);
  return failed;
}
