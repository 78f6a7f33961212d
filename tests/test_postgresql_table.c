/* test_postgresql_table.c: the table of locks in a real PostgreSQL: how it is made, rows that are
 * locked or changed by others, and the errors of statements. */
#include <pthread.h>

#include "support/postgresql_kit.h"

/* ---- waits for a row ----------------------------------------------------------------------- */

typedef struct waiter {
  pthread_t thread;
  const kit *k;
  corral_op op;
  uint8_t token[CORRAL_TOKEN];
  int64_t deadline;
  answer got;
} waiter;

static void *wait_for_row(void *arg) {
  waiter *w = arg;
  w->got = act(w->k, w->op, w->deadline);
  return NULL;
}

#define WAITING "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

/* Sends a verb, and returns when it waits. */
static void comes_to_wait(waiter *w, const kit *k, corral_op op, int64_t deadline) {
  *w = (waiter){.k = k, .op = op, .deadline = deadline};
  memcpy(w->token, op.token, sizeof w->token);
  w->op.token = w->token;
  assert_int_equal(pthread_create(&w->thread, NULL, wait_for_row, w), 0);
  eventually(WAITING, "1");
}

/* Sends a verb while the hold lives; another transaction locks the row until the hold is over.
 * Returns the verb's result. */
static answer after_a_wait(const kit *k, corral_verb verb, unsigned holder) {
  waiter w;
  expect("lock", lock(k, "row", 1, 5000), CORRAL_OK);
  kit other = open_at(TABLE);
  expect("warm", lock(&other, "row", 9, 5000), CORRAL_EBUSY);
  expect("warm", extend(&other, "row", 9, 5000), CORRAL_ELOST);
  expect("warm", unlock(&other, "row", 9), CORRAL_ELOST);
  postgresql_server_ask(server, "BEGIN");
  assert_string_equal(
      postgresql_server_ask(
          server,
          "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row' FOR UPDATE"),
      "t");
  comes_to_wait(&w, &other, op_of(verb, "row", holder), INT64_MAX);
  assert_string_equal(
      postgresql_server_ask(server,
                            "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row'"),
      "t");
  eventually("SELECT until < clock_timestamp() FROM corral_lock WHERE name = 'row'", "t");
  postgresql_server_ask(server, "COMMIT");
  pthread_join(w.thread, NULL);
  closed(&other);
  return w.got;
}

static void a_statement_that_waited_for_the_row_judges_by_the_time_after(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  answer taken = after_a_wait(&k, CORRAL_VERB_LOCK, 2);
  expect("lock", taken, CORRAL_OK);
  assert_in_range(taken.until_ms, 56000, 60000); /* it waited for most of 5 s */
  expect("unlock", unlock(&k, "row", 2), CORRAL_OK);
  answer late = after_a_wait(&k, CORRAL_VERB_LOCK_EXTEND, 1);
  expect("extend", late, CORRAL_ELOST);
  assert_int_equal(late.until_ms, 0);
  late = after_a_wait(&k, CORRAL_VERB_UNLOCK, 1);
  expect("unlock", late, CORRAL_ELOST);
  assert_int_equal(late.until_ms, 0);
  closed(&k);
}

static void a_deadline_ends_the_wait_and_the_server_forgets_the_statement(void **state) {
  (void)state;
  enum { LIMIT_MS = 5000 }; /* more than a busy server takes to come to wait */
  waiter w;
  kit k = open_at(TABLE), other = open_at(TABLE);
  expect("lock", lock(&k, "stuck", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "stuck", 1), CORRAL_OK);
  postgresql_server_ask(server, "BEGIN");
  postgresql_server_ask(server, "SELECT 1 FROM corral_lock WHERE name = 'stuck' FOR UPDATE");
  int64_t from = crl_env_now_ms();
  comes_to_wait(&w, &other, op_of(CORRAL_VERB_LOCK, "stuck", 2), from + LIMIT_MS);
  pthread_join(w.thread, NULL);
  assert_true(crl_env_now_ms() - from >= LIMIT_MS - 1);
  expect("no reply", w.got, CORRAL_EINDOUBT);
  assert_int_not_equal(w.got.performed, CORRAL_OK);
  assert_non_null(strstr(w.got.error.text, "the time allowed is over"));
  closed(&other);
  eventually(WAITING, "0");
  postgresql_server_ask(server, "COMMIT");
  expect("nobody took it", lock(&k, "stuck", 3, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "stuck", 3), CORRAL_OK);
  closed(&k);
}

/* ---- the table ----------------------------------------------------------------------------- */

static void a_table_that_is_missing_is_made_or_told_how_to(void **state) {
  char uri[256];
  (void)state;
  kit k = open_at("?table=no_such&create=no");
  answer a = lock(&k, "k", 1, 60000);
  expect("create=no", a, CORRAL_EREFUSED);
  assert_non_null(strstr(
      a.error.text, "CREATE TABLE \"no_such\" (name bytea PRIMARY KEY, token bytea, fence bigint "
                    "NOT NULL, until timestamptz NOT NULL, since timestamptz, note text)"));
  closed(&k);
  postgresql_server_ask(server, "CREATE ROLE poor LOGIN");
  postgresql_server_ask(server, "CREATE SCHEMA apart");
  postgresql_server_ask(
      server, "CREATE TABLE apart.other (name bytea PRIMARY KEY, token bytea, fence bigint NOT "
              "NULL, until timestamptz NOT NULL, since timestamptz, note text)");
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?table=mine",
           postgresql_server_port(server));
  k = opened(uri);
  a = lock(&k, "k", 1, 60000);
  expect("may not create", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "an administrator runs: CREATE TABLE \"mine\" ("));
  closed(&k);
  postgresql_server_ask(server, "GRANT USAGE ON SCHEMA apart TO poor");
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?table=apart.other",
           postgresql_server_port(server));
  k = opened(uri);
  a = lock(&k, "k", 1, 60000);
  expect("may not write", a, CORRAL_EAUTH);
  assert_non_null(strstr(a.error.text, "GRANT SELECT, INSERT, UPDATE ON \"apart\".\"other\" TO"));
  postgresql_server_ask(server, "GRANT SELECT, INSERT, UPDATE ON apart.other TO poor");
  expect("may", lock(&k, "k", 1, 60000), CORRAL_OK);
  expect("may", extend(&k, "k", 1, 60000), CORRAL_OK);
  expect("may", unlock(&k, "k", 1), CORRAL_OK);
  assert_string_equal(
      postgresql_server_ask(server, "SELECT encode(name, 'escape') FROM apart.other"), "k");
  closed(&k);
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?locks=advisory",
           postgresql_server_port(server));
  k = opened(uri);
  expect("advisory", lock(&k, "k", 1, 60000), CORRAL_OK);
  expect("advisory", extend(&k, "k", 1, 60000), CORRAL_OK);
  expect("advisory", unlock(&k, "k", 1), CORRAL_OK);
  closed(&k);
  postgresql_server_ask(server, "CREATE TABLE strange (name text PRIMARY KEY, value int)");
  k = open_at("?table=strange");
  expect("another table", lock(&k, "k", 1, 60000), CORRAL_EFOREIGN);
  closed(&k);
}

static void *make_it(void *arg) {
  kit *k = arg;
  return lock(k, "k", 1, 60000).status == CORRAL_OK || lock(k, "k", 1, 60000).status == CORRAL_EBUSY
             ? NULL
             : arg;
}

static void many_make_the_table_at_once(void **state) {
  (void)state;
  for (int round = 0; round < 5; round++) {
    kit kits[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) kits[i] = open_at("?table=many");
    for (int i = 0; i < 4; i++)
      assert_int_equal(pthread_create(&threads[i], NULL, make_it, &kits[i]), 0);
    for (int i = 0; i < 4; i++) {
      void *wrong;
      pthread_join(threads[i], &wrong);
      assert_null(wrong);
      closed(&kits[i]);
    }
    postgresql_server_ask(server, "DROP TABLE many");
  }
}

/* The table is dropped while a connection has prepared statements for it. */
static void a_table_that_was_dropped_is_made_again(void **state) {
  (void)state;
  kit k = open_at("?table=goes");
  expect("lock", lock(&k, "k", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "DROP TABLE goes");
  expect("extend", extend(&k, "k", 1, 60000), CORRAL_ELOST);
  expect("lock", lock(&k, "k", 2, 60000), CORRAL_OK);
  closed(&k);
}

/* Ends as if the server's clock had been set back after the lock was taken, and ends in rows of
 * foreign writers. */
static void an_end_that_time_contradicts_comes_after_one_length(void **state) {
  (void)state;
  static const char *const changes[] = {
      "until = until + interval '1 hour', since = since + interval '1 hour'",
      "until = 'infinity', since = clock_timestamp() - interval '3 days'",
      "until = 'infinity', since = '-infinity'",
      "until = until + interval '9 years', since = NULL"};
  static const int64_t lengths[] = {500, 86400000, 86400000, 86400000};
  kit k = open_at(TABLE);
  for (size_t i = 0; i < sizeof changes / sizeof *changes; i++) {
    answer got;
    postgresql_server_ask(server, "DELETE FROM corral_lock WHERE name = 'far'");
    expect("lock", lock(&k, "far", 1, 500), CORRAL_OK);
    postgresql_server_ask(server, "UPDATE corral_lock SET %s WHERE name = 'far'", changes[i]);
    int64_t now;
    corral_hold hold;
    assert_int_equal(shown(&k, "far", 3, &hold, 1, &now), 1);
    got = lock(&k, "far", 2, 60000);
    expect("another", got, CORRAL_EBUSY);
    assert_true(got.until_ms > 0 && got.until_ms <= lengths[i]);
    got = lock(&k, "far", 2, 60000);
    if (got.status == CORRAL_EBUSY) assert_true(got.until_ms <= lengths[i]);
    if (i == 0) lock_at_last(&k, "far", 2, &got);
  }
  closed(&k);
}

static void a_living_holder_in_a_table_keeps_its_lock_when_the_clock_was_set_back(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  expect("lock", lock(&k, "alive", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "UPDATE corral_lock SET until = until + interval '1 hour', since = "
                                "since + interval '1 hour' WHERE name = 'alive'");
  answer got = lock(&k, "alive", 2, 60000);
  expect("another", got, CORRAL_EBUSY);
  assert_true(got.until_ms <= 60000);
  expect("extend", extend(&k, "alive", 1, 60000), CORRAL_OK);
  expect("another", lock(&k, "alive", 2, 60000), CORRAL_EBUSY);
  expect("unlock", unlock(&k, "alive", 1), CORRAL_OK);
  closed(&k);
}

static void a_fencing_token_without_a_next_one_in_a_table_begins_anew(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  answer first = lock(&k, "full", 1, 60000);
  expect("unlock", unlock(&k, "full", 1), CORRAL_OK);
  postgresql_server_ask(server,
                        "UPDATE corral_lock SET fence = 9223372036854775807 WHERE name = 'full'");
  answer next = lock(&k, "full", 2, 60000);
  expect("lock", next, CORRAL_OK);
  assert_true(next.seen > first.seen && next.seen < UINT64_C(1) << 53);
  expect("unlock", unlock(&k, "full", 2), CORRAL_OK);
  closed(&k);
}

static answer take_over(const kit *k, unsigned holder, unsigned from) {
  uint8_t mine[CORRAL_TOKEN], of[CORRAL_TOKEN];
  memcpy(of, token(from), sizeof of);
  memcpy(mine, token(holder), sizeof mine);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "over", holder);
  op.token = mine;
  op.lock_extend.hold_ms = 20000;
  op.lock_extend.from = of;
  op.lock_extend.note = "an h\xc3\xa9ir";
  op.lock_extend.note_len = 8;
  return act(k, op, INT64_MAX);
}

static void a_row_is_taken_over_by_one(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  answer first = lock(&k, "over", 1, 60000);
  expect("lock", first, CORRAL_OK);
  answer heir = take_over(&k, 2, 1);
  expect("take over", heir, CORRAL_OK);
  assert_true(heir.seen > first.seen && heir.until_ms > 20000);
  assert_string_equal(
      postgresql_server_ask(server, "SELECT note FROM corral_lock WHERE name = 'over'"),
      "an h\xc3\xa9ir");
  answer again = take_over(&k, 2, 1);
  expect("the same again", again, CORRAL_OK);
  assert_true(again.seen == heir.seen);
  expect("another heir", take_over(&k, 3, 1), CORRAL_ELOST);
  expect("unlock by the first", unlock(&k, "over", 1), CORRAL_ELOST);
  expect("unlock", unlock(&k, "over", 2), CORRAL_OK);
  expect("an heir of nothing", take_over(&k, 3, 2), CORRAL_ELOST);
  answer next = lock(&k, "over", 3, 60000);
  expect("lock", next, CORRAL_OK);
  assert_true(next.seen > heir.seen);
  expect("unlock", unlock(&k, "over", 3), CORRAL_OK);
  closed(&k);
}

/* Makes the server raise an error, by a trigger of the table. */
static void set_trigger(const char *body) {
  const char *said = postgresql_server_ask(server,
                                           "CREATE OR REPLACE FUNCTION odd() RETURNS trigger "
                                           "LANGUAGE plpgsql AS $$ BEGIN %s RETURN NEW; END $$;"
                                           "CREATE OR REPLACE TRIGGER odd BEFORE INSERT OR UPDATE "
                                           "ON odd FOR EACH ROW EXECUTE FUNCTION odd()",
                                           body);
  if (*said != '\0') fail_msg("%s", said);
}

static void what_the_server_says_of_a_statement_is_understood(void **state) {
  (void)state;
  kit k = open_at("?table=odd");
  expect("lock", lock(&k, "k", 1, 60000), CORRAL_OK);
  expect("extend", extend(&k, "k", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "CREATE SEQUENCE tries");
  set_trigger(
      "IF nextval('tries') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF;");
  expect("serialization failure", extend(&k, "k", 1, 60000), CORRAL_OK);
  assert_string_equal(postgresql_server_ask(server, "SELECT last_value FROM tries"), "3");
  set_trigger("RAISE EXCEPTION 'again' USING ERRCODE = '40001';");
  int64_t from = crl_env_now_ms();
  answer a = act(&k, op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1), from + 100);
  assert_true(a.status == CORRAL_EUNAVAILABLE || a.status == CORRAL_EINDOUBT);
  assert_true(crl_env_now_ms() - from >= 99);
  closed(&k);
  k = open_at("?table=odd");
  set_trigger("RAISE EXCEPTION 'No space left on device' USING ERRCODE = '53100';");
  a = extend(&k, "k", 1, 60000);
  expect("disk full", a, CORRAL_EREFUSED);
  assert_int_equal(a.performed, CORRAL_OK);
  assert_non_null(strstr(a.error.text, "No space left on device"));
  set_trigger("RAISE EXCEPTION 'canceled' USING ERRCODE = '57014';");
  expect("cancelled", extend(&k, "k", 1, 60000), CORRAL_EUNAVAILABLE);
  set_trigger("EXECUTE 'DEALLOCATE ALL';");
  for (int i = 0; i < 4; i++)
    expect("without prepared statements", extend(&k, "k", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "k", 1), CORRAL_OK);
  closed(&k);
}

static void an_end_at_infinity_is_no_later_than_a_day(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  expect("lock", lock(&k, "inf", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "UPDATE corral_lock SET until = 'infinity' WHERE name = 'inf'");
  answer a = lock(&k, "inf", 2, 60000);
  expect("held", a, CORRAL_EBUSY);
  assert_in_range(a.until_ms, 1, 86400000);
  assert_int_equal(shown(&k, "inf", 3, NULL, 0, NULL), 1);
  expect("unlock", unlock(&k, "inf", 1), CORRAL_OK);
  closed(&k);
}

int main(void) {
  if (!postgresql_server_start(&server, NULL)) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_statement_that_waited_for_the_row_judges_by_the_time_after),
      cmocka_unit_test(a_deadline_ends_the_wait_and_the_server_forgets_the_statement),
      cmocka_unit_test(a_table_that_is_missing_is_made_or_told_how_to),
      cmocka_unit_test(an_end_that_time_contradicts_comes_after_one_length),
      cmocka_unit_test(a_living_holder_in_a_table_keeps_its_lock_when_the_clock_was_set_back),
      cmocka_unit_test(a_fencing_token_without_a_next_one_in_a_table_begins_anew),
      cmocka_unit_test(a_row_is_taken_over_by_one),
      cmocka_unit_test(many_make_the_table_at_once),
      cmocka_unit_test(a_table_that_was_dropped_is_made_again),
      cmocka_unit_test(what_the_server_says_of_a_statement_is_understood),
      cmocka_unit_test(an_end_at_infinity_is_no_later_than_a_day),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
