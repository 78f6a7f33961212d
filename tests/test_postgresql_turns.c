/* test_postgresql_turns.c: turns of advisory locks in a real PostgreSQL, in single cases, through
 * the plugin's table: the server's own queue. Through the public functions:
 * test_postgresql_fair.c. */
#include <sched.h>

#include "support/postgresql_kit.h"
#include "support/watch_kit.h"

enum { ALONE = 0, SHARED = CORRAL_OP_SHARED, WISH_MS = 2000, ATTEMPTS = 8, PATIENCE_MS = 60000 };
enum { SETTLE_MS = 2000 }; /* of plugins/postgresql/queue.c */

static answer ask(const kit *k, const char *key, unsigned holder, unsigned flags) {
  corral_op op = op_of(CORRAL_VERB_LOCK, key, holder);
  op.flags = CORRAL_OP_FAIR | flags;
  op.lock.wish_ms = WISH_MS;
  op_notes(&op, "host/1/1 in turn");
  return act(k, op, INT64_MAX);
}

/* Asks, is refused, and has this place. A LOCK waits for SETTLE_MS until the server has it in the
 * queue; the next one shows the place. */
static void waits_at(const kit *k, const char *key, unsigned holder, unsigned flags,
                     uint64_t place) {
  int64_t from = crl_env_now_ms();
  answer a = ask(k, key, holder, flags);
  if (a.seen == 0 && place != 0 && crl_env_now_ms() - from >= SETTLE_MS)
    a = ask(k, key, holder, flags);
  expect("a LOCK in turn", a, CORRAL_EBUSY);
  if (a.seen != place)
    fail_msg("%u has the place %llu, not %llu", holder, (unsigned long long)a.seen,
             (unsigned long long)place);
}

static void comes(const kit *k, const char *key, unsigned holder) {
  int64_t end = crl_env_now_ms() + PATIENCE_MS;
  answer a = ask(k, key, holder, ALONE);
  for (; a.status == CORRAL_EBUSY && crl_env_now_ms() < end; crl_env_pause_us(1000))
    a = ask(k, key, holder, ALONE);
  expect("a LOCK in its turn", a, CORRAL_OK);
}

static int asks(const kit *k, const char *key, unsigned holder, unsigned flags, int status) {
  return ask(k, key, holder, flags).status == status;
}

static void nobody_is_left(const kit *k, const char *key, unsigned last) {
  for (unsigned i = 1; i <= last; i++) (void)unlock(k, key, i);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "0");
}

/* A story whose waiters have to come within CORRAL_LOCK_TURN_MS each, which a busy machine may
 * prevent; then it is told again. */
static void in_time(int (*story)(const kit *k), unsigned last) {
  kit k = open_at(ADVISORY);
  int is_told = 0;
  for (int i = 0; i < ATTEMPTS && !is_told; i++) {
    is_told = story(&k);
    nobody_is_left(&k, "n", last);
  }
  assert_true(is_told);
  closed(&k);
}

/* ---- order --------------------------------------------------------------------------------- */

enum { CROWD = 4, ROUNDS = 3 };

static int round_and_round(const kit *k) {
  expect("nobody has it", ask(k, "n", 1, ALONE), CORRAL_OK);
  for (unsigned i = 2; i <= CROWD; i++) waits_at(k, "n", i, ALONE, i - 1);
  for (unsigned turn = 0; turn < CROWD * ROUNDS; turn++) {
    unsigned holder = turn % CROWD + 1, next = holder % CROWD + 1;
    expect("unlock", unlock(k, "n", holder), CORRAL_OK);
    if (!asks(k, "n", holder, ALONE, CORRAL_EBUSY)) return 0; /* it goes to the end */
    if (!asks(k, "n", next, ALONE, CORRAL_OK)) return 0;
  }
  return 1;
}

static void turns_go_round_in_the_order_of_arrival(void **state) {
  (void)state;
  in_time(round_and_round, CROWD);
}

static int readers_behind_a_writer(const kit *k) {
  expect("a reader", ask(k, "n", 1, SHARED), CORRAL_OK);
  waits_at(k, "n", 2, ALONE, 1);
  waits_at(k, "n", 3, SHARED, 2);
  waits_at(k, "n", 4, SHARED, 3);
  expect("unlock", unlock(k, "n", 1), CORRAL_OK);
  if (!asks(k, "n", 4, SHARED, CORRAL_EBUSY) || !asks(k, "n", 2, ALONE, CORRAL_OK)) return 0;
  expect("unlock", unlock(k, "n", 2), CORRAL_OK);
  return asks(k, "n", 4, SHARED, CORRAL_OK) && asks(k, "n", 3, SHARED, CORRAL_OK);
}

static void readers_in_a_row_hold_together_behind_a_writer_that_came_before(void **state) {
  (void)state;
  in_time(readers_behind_a_writer, 4);
}

static void who_has_no_turn_gets_it_when_nobody_waits(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("a reader", lock_shared(&k, "n", 1), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  expect("a reader without a turn", lock_shared(&k, "n", 3), CORRAL_EBUSY);
  expect("a place is given back", unlock(&k, "n", 2), CORRAL_OK);
  expect("a reader without a turn", lock_shared(&k, "n", 3), CORRAL_OK);
  nobody_is_left(&k, "n", 3);
  closed(&k);
}

static answer wish(const kit *k, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, "n", holder);
  op.lock.wish_ms = PATIENCE_MS;
  return act(k, op, INT64_MAX);
}

static void a_reader_in_turn_doesnt_pass_a_writer_that_wishes(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("a reader", lock_shared(&k, "n", 1), CORRAL_OK);
  expect("a writer's wish", wish(&k, 2), CORRAL_EBUSY);
  waits_at(&k, "n", 3, SHARED, 0);
  expect("unlock", unlock(&k, "n", 1), CORRAL_OK);
  expect("the writer", wish(&k, 2), CORRAL_OK);
  waits_at(&k, "n", 3, SHARED, 1);
  nobody_is_left(&k, "n", 3);
  closed(&k);
}

/* ---- places that go ------------------------------------------------------------------------ */

static void a_place_is_given_back_at_once(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  for (unsigned i = 2; i <= 4; i++) waits_at(&k, "n", i, ALONE, i - 1);
  expect("unlock", unlock(&k, "n", 3), CORRAL_OK);
  waits_at(&k, "n", 4, ALONE, 2);
  waits_at(&k, "n", 2, ALONE, 1);
  expect("unlock", unlock(&k, "n", 2), CORRAL_OK);
  waits_at(&k, "n", 4, ALONE, 1);
  expect("unlock", unlock(&k, "n", 4), CORRAL_OK);
  expect("unlock", unlock(&k, "n", 1), CORRAL_OK);
  expect("nobody waits", lock(&k, "n", 5, 60000), CORRAL_OK);
  nobody_is_left(&k, "n", 5);
  closed(&k);
}

static void a_place_that_was_just_granted_the_lock_is_given_back_with_it(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  answer got;
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  expect("unlock", unlock(&k, "n", 1), CORRAL_OK);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "0");
  expect("a place is given back", unlock(&k, "n", 2), CORRAL_OK);
  (void)lock_at_last(&k, "n", 3, &got);
  nobody_is_left(&k, "n", 3);
  closed(&k);
}

static void a_turn_that_isnt_taken_passes_on_and_who_comes_late_goes_to_the_end(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  waits_at(&k, "n", 3, ALONE, 2);
  expect("unlock", unlock(&k, "n", 1), CORRAL_OK);
  comes(&k, "n", 3);
  waits_at(&k, "n", 2, ALONE, 1);
  expect("unlock", unlock(&k, "n", 3), CORRAL_OK);
  comes(&k, "n", 2);
  nobody_is_left(&k, "n", 3);
  closed(&k);
}

static void the_places_of_a_process_that_ends_go(void **state) {
  (void)state;
  kit k = open_at(ADVISORY), gone = open_at(ADVISORY);
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  waits_at(&gone, "n", 2, ALONE, 1);
  waits_at(&k, "n", 3, ALONE, 2);
  closed(&gone);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "1");
  waits_at(&k, "n", 3, ALONE, 1);
  nobody_is_left(&k, "n", 3);
  closed(&k);
}

/* The role's limits are longer than connecting takes, and shorter than the wait. */
static void no_time_limit_of_the_role_ends_a_wait(void **state) {
  (void)state;
  postgresql_server_ask(server, "ALTER ROLE postgres SET statement_timeout = '3s'");
  postgresql_server_ask(server, "ALTER ROLE postgres SET lock_timeout = '300ms'");
  kit k = open_at(ADVISORY);
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  waits_at(&k, "n", 3, ALONE, 2);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted AND "
             "waitstart < clock_timestamp() - interval '4 seconds'",
             "2");
  waits_at(&k, "n", 3, ALONE, 2);
  waits_at(&k, "n", 2, ALONE, 1);
  nobody_is_left(&k, "n", 3);
  closed(&k);
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
}

/* ---- what the server says of another one --------------------------------------------------- */

#define WAITING "SELECT pid FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"

/* Its sessions find these functions and views before those of the server. */
static kit opened_beside(const char *sql) {
  postgresql_server_ask(server, "CREATE SCHEMA odd");
  postgresql_server_ask(server, "%s", sql);
  postgresql_server_ask(server, "ALTER ROLE postgres SET search_path = odd, pg_catalog");
  return open_at(ADVISORY);
}

static void closed_beside(kit *k) {
  closed(k);
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
  postgresql_server_ask(server, "DROP SCHEMA odd CASCADE");
}

/* A waiter's process has ended, and its number is that of another one of the server. */
static void a_place_that_is_given_back_cancels_nothing_of_another_process(void **state) {
  char sql[200];
  (void)state;
  kit k = open_at(ADVISORY);
  expect("nobody has it", lock(&k, "other", 1, 60000), CORRAL_OK);
  waits_at(&k, "other", 2, ALONE, 1);
  snprintf(sql, sizeof sql,
           "CREATE FUNCTION odd.pg_backend_pid() RETURNS int LANGUAGE sql AS 'SELECT %.20s'",
           postgresql_server_ask(server, WAITING));
  waits_at(&k, "other", 3, ALONE, 2);
  kit odd = opened_beside(sql);
  expect("nobody has it", ask(&odd, "n", 4, ALONE), CORRAL_OK);
  waits_at(&odd, "n", 5, ALONE, 0);
  expect("a place is given back", unlock(&odd, "n", 5), CORRAL_OK);
  waits_at(&k, "other", 2, ALONE, 1);
  closed_beside(&odd);
  nobody_is_left(&k, "other", 3);
  closed(&k);
}

/* The server has ended its session, and nothing tells this side. */
static void a_waiter_that_the_queue_has_no_more_waits_anew(void **state) {
  char before[40];
  (void)state;
  kit k = opened_beside("CREATE VIEW odd.pg_locks AS SELECT * FROM pg_catalog.pg_locks");
  expect("nobody has it", lock(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  snprintf(before, sizeof before, "%s", postgresql_server_ask(server, WAITING));
  postgresql_server_ask(server, "CREATE OR REPLACE VIEW odd.pg_locks AS SELECT * FROM "
                                "pg_catalog.pg_locks WHERE granted");
  for (int i = 0; i < 2; i++) { /* it was seen in the queue; it never was */
    waits_at(&k, "n", 2, ALONE, 0);
    eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "1");
    assert_string_not_equal(postgresql_server_ask(server, WAITING), before);
    snprintf(before, sizeof before, "%s", postgresql_server_ask(server, WAITING));
  }
  nobody_is_left(&k, "n", 2);
  closed_beside(&k);
}

/* ---- beside the rest ----------------------------------------------------------------------- */

static void a_downgrade_beside_a_writer_that_waits_keeps_the_hold(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("nobody has it", ask(&k, "n", 1, ALONE), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  waits_at(&k, "n", 3, SHARED, 2);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "n", 1);
  op.flags = SHARED;
  expect("a downgrade", act(&k, op, INT64_MAX), CORRAL_OK);
  expect("extend", extend(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&k, "n", 3, SHARED, 2);
  expect("unlock", unlock(&k, "n", 2), CORRAL_OK);
  expect("unlock", unlock(&k, "n", 3), CORRAL_OK);
  expect("a reader beside it", lock_shared(&k, "n", 4), CORRAL_OK);
  nobody_is_left(&k, "n", 4);
  closed(&k);
}

/* "ERROR ...", or "" when the index was built within the time limit. */
static const char *builds_an_index(const char *limit) {
  postgresql_server_ask(server, "DROP INDEX IF EXISTS by_id");
  postgresql_server_ask(server, "SET statement_timeout = '%s'", limit);
  return postgresql_server_ask(server, "CREATE INDEX CONCURRENTLY by_id ON account (id)");
}

/* docs/locks.md advises a database of its own for such locks. */
static void an_index_built_concurrently_waits_for_waiters_of_its_database_only(void **state) {
  char elsewhere[100];
  (void)state;
  postgresql_server_ask(server, "CREATE DATABASE locks");
  postgresql_server_ask(server, "CREATE TABLE account (id int)");
  snprintf(elsewhere, sizeof elsewhere, "postgresql://postgres@127.0.0.1:%d/locks" ADVISORY,
           postgresql_server_port(server));
  kit here = open_at(ADVISORY), there = opened(elsewhere);
  expect("nobody has it", lock(&there, "n", 1, 60000), CORRAL_OK);
  waits_at(&there, "n", 2, ALONE, 1);
  assert_string_equal(builds_an_index("60s"), "");
  expect("nobody has it", lock(&here, "n", 1, 60000), CORRAL_OK);
  waits_at(&here, "n", 2, ALONE, 1);
  assert_non_null(strstr(builds_an_index("1s"), "ERROR 57014"));
  postgresql_server_ask(server, "RESET statement_timeout");
  closed(&there);
  nobody_is_left(&here, "n", 2);
  closed(&here);
}

static void a_grant_is_told_though_no_release_was(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  ear *e = ear_open(&k);
  expect("nobody has it", lock(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&k, "n", 2, ALONE, 1);
  forget(e);
  postgresql_server_ask(server, "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE "
                                "locktype = 'advisory' AND granted");
  is_told(e, "n");
  comes(&k, "n", 2);
  forget(e);
  expect("extend", extend(&k, "n", 2, 60000), CORRAL_OK);
  catch_up(e);
  assert_int_equal(e->count, 0); /* a reply to who waits no more is nobody's turn */
  ear_close(e);
  nobody_is_left(&k, "n", 2);
  closed(&k);
}

/* A LOCK that finds no room looks for sessions that have ended. */
static int is_told_in_its_turn(const kit *k) {
  kit small = open_at(ADVISORY "&max_holds=1");
  ear *e = ear_open(&small);
  expect("nobody has it", lock(k, "n", 1, 60000), CORRAL_OK);
  waits_at(&small, "n", 2, ALONE, 1);
  catch_up(e);
  expect("unlock", unlock(k, "n", 1), CORRAL_OK);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted", "0");
  for (int i = 0; i < 20; i++, crl_env_pause_us(1000)) (void)lock(&small, "other", 3, 1000);
  e->count = 0;
  while (listen_until(e, -1, 0) > 0) continue;
  int told = times_told(e, "n") > 1, came = asks(&small, "n", 2, ALONE, CORRAL_OK);
  ear_close(e);
  closed(&small);
  return told && came;
}

static void a_look_for_room_takes_no_grant_from_the_one_that_waits_for_it(void **state) {
  (void)state;
  in_time(is_told_in_its_turn, 3);
}

static void holders_and_the_queue_are_shown_to_others(void **state) {
  (void)state;
  kit k = open_at(ADVISORY), other = open_at(ADVISORY);
  corral_hold seen[3];
  int64_t now;
  expect("nobody has it", lock(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&k, "n", 2, SHARED, 1);
  waits_at(&k, "n", 3, ALONE, 2);
  assert_int_equal(shown(&other, "n", 1, seen, 3, &now), 3);
  assert_int_equal(seen[0].mode, CORRAL_LOCK_EXCLUSIVE);
  assert_int_equal(seen[1].mode, CORRAL_LOCK_WAITING + CORRAL_LOCK_SHARED);
  assert_int_equal(seen[2].mode, CORRAL_LOCK_WAITING + CORRAL_LOCK_EXCLUSIVE);
  assert_true(0 < seen[1].since && seen[1].since <= seen[2].since && seen[2].since <= now);
  assert_memory_equal(seen[1].note, "host/1/1 in turn", 17);
  assert_memory_equal(seen[0].note, "host/1/1 note", 14);
  assert_int_equal(shown(&k, "n", 1, seen, 3, &now), 3); /* by who knows their tokens */
  assert_memory_equal(seen[2].token, token(3), CORRAL_TOKEN);
  assert_memory_equal(seen[2].note, "host/1/1 in turn", 17);
  expect("extend", extend(&k, "n", 2, 1000), CORRAL_ELOST);
  nobody_is_left(&k, "n", 3);
  closed(&other);
  closed(&k);
}

static void a_place_is_one_of_max_holds(void **state) {
  (void)state;
  kit k = open_at(ADVISORY), small = open_at(ADVISORY "&max_holds=1");
  expect("nobody has it", lock(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&small, "n", 2, ALONE, 1);
  answer a = lock(&small, "other", 3, 60000);
  expect("one too many", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "max_holds"));
  for (int i = 0; i < 3; i++) {
    expect("a place is given back", unlock(&small, "n", 2), CORRAL_OK);
    waits_at(&small, "n", 2, ALONE, 1);
  }
  expect("a place is given back", unlock(&small, "n", 2), CORRAL_OK);
  expect("room again", lock(&small, "other", 3, 60000), CORRAL_OK);
  expect("unlock", unlock(&small, "other", 3), CORRAL_OK);
  closed(&small);
  nobody_is_left(&k, "n", 1);
  closed(&k);
}

static void what_the_server_has_ended_is_none_of_max_holds(void **state) {
  (void)state;
  kit k = open_at(ADVISORY), small = open_at(ADVISORY "&max_holds=1");
  answer a;
  expect("nobody has it", lock(&k, "n", 1, 60000), CORRAL_OK);
  waits_at(&small, "n", 2, ALONE, 1);
  postgresql_server_ask(server, "SELECT pg_terminate_backend(pid, 10000) FROM pg_locks WHERE "
                                "locktype = 'advisory' AND NOT granted");
  expect("a place is gone", lock(&small, "other", 3, 1000), CORRAL_OK);
  int64_t end = crl_env_now_ms() + PATIENCE_MS; /* the server ends the hold */
  while ((a = lock(&small, "third", 4, 60000)).status == CORRAL_EREFUSED && crl_env_now_ms() < end)
    crl_env_pause_us(1000);
  expect("a hold is over", a, CORRAL_OK);
  expect("unlock", unlock(&small, "third", 4), CORRAL_OK);
  closed(&small);
  nobody_is_left(&k, "n", 1);
  closed(&k);
}

int main(void) {
  if (!postgresql_server_start(&server, NULL)) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(turns_go_round_in_the_order_of_arrival),
      cmocka_unit_test(readers_in_a_row_hold_together_behind_a_writer_that_came_before),
      cmocka_unit_test(who_has_no_turn_gets_it_when_nobody_waits),
      cmocka_unit_test(a_reader_in_turn_doesnt_pass_a_writer_that_wishes),
      cmocka_unit_test(a_place_is_given_back_at_once),
      cmocka_unit_test(a_place_that_was_just_granted_the_lock_is_given_back_with_it),
      cmocka_unit_test(a_turn_that_isnt_taken_passes_on_and_who_comes_late_goes_to_the_end),
      cmocka_unit_test(the_places_of_a_process_that_ends_go),
      cmocka_unit_test(no_time_limit_of_the_role_ends_a_wait),
      cmocka_unit_test(a_place_that_is_given_back_cancels_nothing_of_another_process),
      cmocka_unit_test(a_waiter_that_the_queue_has_no_more_waits_anew),
      cmocka_unit_test(a_downgrade_beside_a_writer_that_waits_keeps_the_hold),
      cmocka_unit_test(an_index_built_concurrently_waits_for_waiters_of_its_database_only),
      cmocka_unit_test(a_grant_is_told_though_no_release_was),
      cmocka_unit_test(a_look_for_room_takes_no_grant_from_the_one_that_waits_for_it),
      cmocka_unit_test(holders_and_the_queue_are_shown_to_others),
      cmocka_unit_test(a_place_is_one_of_max_holds),
      cmocka_unit_test(what_the_server_has_ended_is_none_of_max_holds),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
