/* test_mariadb_notes.c: what others see of a lock's holder on a real MariaDB: the table of notes,
 * where there is one, and what is left where there is none. */
#include "support/hold_kit.h"

#include "support/mariadb_server.h"

enum { SMALL = 16384, NAMES = 300, STUCK_S = 4 };

static mariadb_server *server;
static char uri[256], bare[200];

static int setup(void **state) {
  (void)state;
  mariadb_server_ask(server, "DROP DATABASE IF EXISTS locks");
  mariadb_server_ask(server, "CREATE DATABASE locks");
  mariadb_server_ask(server, "REVOKE ALL PRIVILEGES, GRANT OPTION FROM 'lock user'@'%%'");
  mariadb_server_ask(server, "GRANT ALL ON locks.* TO 'lock user'@'%%'");
  return 0;
}

/* Takes lock "n" with a note; returns its fencing token. */
static uint64_t noted(const kit *k, unsigned holder, const char *note) {
  corral_op op = hold_op(CORRAL_VERB_LOCK, "n", holder, 60000);
  op_notes(&op, note);
  assert_int_equal(by(k, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  return op.lock_state.fence;
}

/* Reads the one holder's note, fence and time, as others see them; `*held_ms` -1: unknown. */
static uint64_t seen(const kit *k, char note[CORRAL_LOCK_NOTE + 1], int64_t *held_ms) {
  corral_op op = hold_op(CORRAL_VERB_LOCK_SHOW, "n", 0, 0);
  uint64_t fence = 0;
  int64_t since = 0;
  assert_int_equal(by(k, &op, HOLD_PATIENCE_MS), CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD);
  const uint8_t *at = op.found.record + CORRAL_LOCK_HEAD;
  for (int i = 7; i >= 0; i--) since = (int64_t)((uint64_t)since << 8 | at[32 + i]);
  for (int i = 7; i >= 0; i--) fence = fence << 8 | at[40 + i];
  *held_ms = since == 0 ? -1 : op.lock_state.now - since;
  memcpy(note, at + 48, CORRAL_LOCK_NOTE);
  note[CORRAL_LOCK_NOTE] = '\0';
  done(&op);
  return fence;
}

/* Nothing but the connection is seen. */
static void only_a_connection_is_seen(const kit *k) {
  char note[CORRAL_LOCK_NOTE + 1];
  int64_t held_ms;
  assert_int_equal(seen(k, note, &held_ms), 0);
  assert_int_equal(held_ms, -1);
  if (strncmp(note, "connection ", 11) != 0 || strstr(note, " of lock user from ") == NULL)
    fail_msg("'%s'", note);
}

static int rows(void) {
  return (int)strtol(mariadb_server_ask(server, "SELECT COUNT(*) FROM locks.corral_lock"), NULL,
                     10);
}

static void others_see_note_token_and_beginning_of_a_holder(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1], wanted[CORRAL_LOCK_NOTE + 1];
  int64_t held_ms, first_ms;
  kit a = opened(uri), b = opened(uri);
  uint64_t fence = noted(&a, 1, "here/1/2 a 'note' \\ \xc3\xa4");
  assert_int_equal(seen(&b, note, &first_ms), fence);
  snprintf(wanted, sizeof wanted, "here/1/2 a 'note' \\ \xc3\xa4, connection %s",
           mariadb_server_ask(server, "SELECT IS_USED_LOCK(name) FROM locks.corral_lock"));
  assert_string_equal(note, wanted);
  assert_true(first_ms >= 0);
  assert_int_equal(extend(&a, "n", 1, 90000), CORRAL_OK);
  poll(NULL, 0, 20);
  assert_int_equal(seen(&b, note, &held_ms), fence); /* an extension is no new beginning */
  assert_true(held_ms >= first_ms + 20);
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  char full[CORRAL_LOCK_NOTE + 1];
  memset(full, 'x', CORRAL_LOCK_NOTE);
  full[CORRAL_LOCK_NOTE] = '\0';
  fence = noted(&b, 2, full);
  assert_int_equal(seen(&a, note, &held_ms), fence);
  assert_int_equal(strlen(note), CORRAL_LOCK_NOTE);
  assert_non_null(strstr(note, "xxx, connection "));
  assert_int_equal(rows(), 1);
  closed(&a);
  closed(&b);
}

static void the_row_of_an_earlier_holder_is_not_believed(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(uri), c = opened(bare);
  (void)noted(&a, 1, "earlier");
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  assert_int_equal(rows(), 1);
  (void)noted(&c, 2, "without a database");
  only_a_connection_is_seen(&b);
  only_a_connection_is_seen(&a);
  closed(&a);
  closed(&b);
  closed(&c);
}

static int64_t writes(void) {
  return strtoll(
      mariadb_server_ask(server, "SELECT SUM(VARIABLE_VALUE) FROM information_schema.GLOBAL_STATUS "
                                 "WHERE VARIABLE_NAME IN ('COM_REPLACE', 'COM_CREATE_TABLE')"),
      NULL, 10);
}

static void who_may_not_have_the_table_has_locks_and_asks_for_it_once(void **state) {
  (void)state;
  mariadb_server_ask(server, "REVOKE ALL ON locks.* FROM 'lock user'@'%%'");
  mariadb_server_ask(server, "GRANT SELECT ON locks.* TO 'lock user'@'%%'");
  kit a = opened(uri), b = opened(uri);
  (void)noted(&a, 1, "unseen");
  only_a_connection_is_seen(&b);
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  int64_t before = writes();
  for (unsigned i = 0; i < 5; i++) {
    (void)noted(&a, 1, "unseen");
    assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  }
  assert_int_equal(writes(), before);
  closed(&a);
  closed(&b);
}

static void a_table_that_an_operator_has_made_is_as_good(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1];
  int64_t held_ms;
  mariadb_server_ask(server, "REVOKE ALL ON locks.* FROM 'lock user'@'%%'");
  mariadb_server_ask(
      server, "CREATE TABLE locks.corral_lock (name VARBINARY(48) PRIMARY KEY, connection BIGINT "
              "UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL, since DATETIME(3) NOT NULL, note "
              "VARBINARY(80) NOT NULL) ENGINE=MEMORY");
  mariadb_server_ask(server,
                     "GRANT SELECT, INSERT, DELETE ON locks.corral_lock TO 'lock user'@'%%'");
  kit a = opened(uri), b = opened(uri);
  uint64_t fence = noted(&a, 1, "seen");
  assert_int_equal(seen(&b, note, &held_ms), fence);
  assert_non_null(strstr(note, "seen, connection "));
  closed(&a);
  closed(&b);
}

/* A transaction that stays open would keep its row, and the table, from others. */
static void a_server_that_commits_nothing_by_itself_keeps_no_note_back(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1];
  int64_t held_ms;
  mariadb_server_ask(
      server, "CREATE TABLE locks.corral_lock (name VARBINARY(48) PRIMARY KEY, connection BIGINT "
              "UNSIGNED NOT NULL, fence BIGINT UNSIGNED NOT NULL, since DATETIME(3) NOT NULL, note "
              "VARBINARY(80) NOT NULL) ENGINE=InnoDB");
  mariadb_server_ask(server, "SET GLOBAL autocommit = 0");
  kit a = opened(uri), b = opened(uri);
  uint64_t fence = noted(&a, 1, "first");
  assert_int_equal(seen(&b, note, &held_ms), fence);
  assert_non_null(strstr(note, "first, connection "));
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  fence = noted(&b, 2, "second");
  assert_int_equal(seen(&a, note, &held_ms), fence);
  assert_non_null(strstr(note, "second, connection "));
  mariadb_server_ask(server, "SET GLOBAL autocommit = 1");
  closed(&a);
  closed(&b);
}

static void a_full_table_loses_the_rows_of_free_locks(void **state) {
  (void)state;
  char note[CORRAL_LOCK_NOTE + 1], name[16];
  int64_t held_ms;
  mariadb_server_ask(server, "SET GLOBAL max_heap_table_size = %d", SMALL);
  kit a = opened(uri), b = opened(uri);
  for (unsigned i = 0; i < NAMES; i++) {
    snprintf(name, sizeof name, "name%u", i);
    assert_int_equal(take(&a, name, 1, 60000), CORRAL_OK);
    assert_int_equal(unlock(&a, name, 1), CORRAL_OK);
  }
  assert_true(rows() < NAMES);
  uint64_t fence = noted(&a, 1, "the last");
  assert_int_equal(seen(&b, note, &held_ms), fence);
  closed(&a);
  closed(&b);
  mariadb_server_ask(server, "SET GLOBAL max_heap_table_size = DEFAULT");
}

static void keep_the_table(const char *unused, atomic_int *shared) {
  (void)unused, (void)shared;
  mariadb_server_ask(server,
                     "INSERT INTO locks.corral_lock SELECT 'x', 0, 0, UTC_TIMESTAMP(), SLEEP(%d)",
                     STUCK_S);
}

/* The row that can't be written, or not in time, costs no lock. */
static void a_table_that_others_keep_costs_no_lock(void **state) {
  (void)state;
  kit a = opened(uri);
  (void)noted(&a, 1, "before");
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  pid_t pid = other(keep_the_table, uri, NULL);
  while (strcmp(mariadb_server_ask(server, "SELECT COUNT(*) FROM information_schema.PROCESSLIST "
                                           "WHERE INFO LIKE 'INSERT INTO locks%%SLEEP%%'"),
                "0") == 0)
    poll(NULL, 0, 10);
  corral_op op;
  do { /* before the server gives the write up, unless GET_LOCK takes as long */
    op = hold_op(CORRAL_VERB_LOCK, "n", 2, 60000);
    (void)by(&a, &op, 300);
    /* EBUSY: the server hasn't seen yet that the connection before this one has ended */
  } while (op.status == CORRAL_EINDOUBT || op.status == CORRAL_EUNAVAILABLE ||
           op.status == CORRAL_EBUSY);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(extend(&a, "n", 2, 60000), CORRAL_OK);
  assert_int_equal(take(&a, "m", 3, 60000), CORRAL_OK);
  assert_int_equal(unlock(&a, "n", 2), CORRAL_OK);
  assert_int_equal(unlock(&a, "m", 3), CORRAL_OK);
  gone(pid, 0);
  (void)noted(&a, 1, "after");
  closed(&a);
}

static void a_connection_that_ends_while_it_writes_holds_nothing(void **state) {
  (void)state;
  kit a = opened(uri), b = opened(bare);
  (void)noted(&a, 1, "before");
  assert_int_equal(unlock(&a, "n", 1), CORRAL_OK);
  /* the trigger ends the connection that writes */
  mariadb_server_ask(server, "GRANT CONNECTION ADMIN, SUPER ON *.* TO 'lock user'@'%%'");
  mariadb_server_ask(server, "DROP TABLE locks.corral_lock");
  mariadb_server_ask(server,
                     "CREATE TABLE locks.corral_lock (name VARBINARY(48) PRIMARY KEY, connection "
                     "BIGINT, fence BIGINT UNSIGNED, since DATETIME(3), note VARBINARY(80))");
  mariadb_server_ask(server, "CREATE TRIGGER locks.ends BEFORE INSERT ON locks.corral_lock FOR "
                             "EACH ROW BEGIN KILL CONNECTION_ID(); END");
  corral_op op = hold_op(CORRAL_VERB_LOCK, "n", 2, 60000);
  assert_int_equal(by(&a, &op, HOLD_PATIENCE_MS), CORRAL_EUNAVAILABLE);
  take_when_free(&b, "n", 3, 5000);
  is_lost(&a, CORRAL_VERB_UNLOCK, "n", 2, 1);
  closed(&a);
  closed(&b);
}

int main(void) {
#define T(name) cmocka_unit_test_setup(name, setup)
  const struct CMUnitTest tests[] = {
      T(others_see_note_token_and_beginning_of_a_holder),
      T(the_row_of_an_earlier_holder_is_not_believed),
      T(who_may_not_have_the_table_has_locks_and_asks_for_it_once),
      T(a_table_that_an_operator_has_made_is_as_good),
      T(a_server_that_commits_nothing_by_itself_keeps_no_note_back),
      T(a_full_table_loses_the_rows_of_free_locks),
      T(a_table_that_others_keep_costs_no_lock),
      T(a_connection_that_ends_while_it_writes_holds_nothing),
  };
  if (!mariadb_server_start(&server)) return 77;
  snprintf(bare, sizeof bare, "%s", mariadb_server_uri(server));
  snprintf(uri, sizeof uri, "%slocks", bare);
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  mariadb_server_stop(server);
  return failed;
}
