/* test_postgresql.c: locks in a real PostgreSQL, in a table and as advisory locks, through the
 * plugin's table: the verbs, fencing tokens, and the table itself. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "support/postgresql_kit.h"
#include "support/watch_kit.h"

/* ---- verbs --------------------------------------------------------------------------------- */

static void a_lock_is_granted_to_one_token_at_a_time(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "one", 1, 30000);
    expect("first", first, CORRAL_OK);
    assert_in_range(first.until_ms, 29000, 30000);
    answer second = lock(&k, "one", 2, 30000);
    expect("second", second, CORRAL_EBUSY);
    if (is_advisory(modes[i]))
      assert_int_equal(second.until_ms, -1);
    else
      assert_in_range(second.until_ms, 28000, 30000);
    expect("another name", lock(&k, "two", 2, 30000), CORRAL_OK);
    answer theirs = unlock(&k, "one", 2 + 100);
    expect("a stranger's unlock", theirs, CORRAL_ELOST);
    assert_int_not_equal(theirs.until_ms, 0);
    expect("a stranger's extend", extend(&k, "one", 3, 1000), CORRAL_ELOST);
    expect("unlock", unlock(&k, "one", 1), CORRAL_OK);
    answer again = unlock(&k, "one", 1);
    expect("unlock again", again, CORRAL_ELOST);
    assert_int_equal(again.until_ms, 0);
    expect("extend after", extend(&k, "one", 1, 1000), CORRAL_ELOST);
    answer third = lock(&k, "one", 3, 30000);
    expect("third", third, CORRAL_OK);
    assert_true(third.seen > first.seen);
    expect("unlock", unlock(&k, "one", 3), CORRAL_OK);
    expect("unlock", unlock(&k, "two", 2), CORRAL_OK);
    closed(&k);
  }
}

static void a_token_that_has_a_hold_keeps_its_fence_when_it_locks_again(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "again", 1, 2000), second = lock(&k, "again", 1, 50000),
           third = lock(&k, "again", 1, 1000);
    expect("again", second, CORRAL_OK);
    assert_true(first.seen == second.seen && third.seen == first.seen);
    assert_in_range(second.until_ms, 49000, 50000);
    assert_in_range(third.until_ms, 40000, 50000);
    expect("unlock", unlock(&k, "again", 1), CORRAL_OK);
    expect("free", lock(&k, "again", 2, 1000), CORRAL_OK);
    expect("unlock", unlock(&k, "again", 2), CORRAL_OK);
    closed(&k);
  }
}

static void an_extension_lengthens_a_hold_and_never_shortens_it(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "longer", 1, 2000);
    answer more = extend(&k, "longer", 1, 60000), less = extend(&k, "longer", 1, 1000);
    expect("more", more, CORRAL_OK);
    expect("less", less, CORRAL_OK);
    assert_true(more.seen == first.seen && less.seen == first.seen);
    assert_in_range(more.until_ms, 59000, 60000);
    assert_in_range(less.until_ms, 50000, 60000);
    if (is_advisory(modes[i]))
      eventually("SELECT application_name >= '5' AND application_name LIKE '%ms host/1/1 note' "
                 "FROM pg_stat_activity WHERE application_name LIKE '%note'",
                 "t");
    expect("unlock", unlock(&k, "longer", 1), CORRAL_OK);
    closed(&k);
  }
}

static void a_fencing_token_is_raised_in_a_table_and_not_for_advisory_locks(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "raised", 1, 60000);
    corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "raised", 1);
    op.seen = first.seen + 1000000000;
    answer raised = act(&k, op, INT64_MAX);
    expect("raise", raised, is_advisory(modes[i]) ? CORRAL_EUNSUPPORTED : CORRAL_OK);
    if (!is_advisory(modes[i])) assert_true(raised.seen == op.seen);
    op.seen = first.seen - 1;
    raised = act(&k, op, INT64_MAX);
    expect("less", raised, CORRAL_OK);
    assert_true(raised.seen >= first.seen);
    if (!is_advisory(modes[i])) {
      op.seen = UINT64_MAX;
      expect("too large", act(&k, op, INT64_MAX), CORRAL_EREFUSED);
    }
    expect("unlock", unlock(&k, "raised", 1), CORRAL_OK);
    answer next = lock(&k, "raised", 2, 60000);
    assert_true(next.seen > raised.seen);
    expect("unlock", unlock(&k, "raised", 2), CORRAL_OK);
    closed(&k);
  }
}

static void a_hold_ends_by_the_servers_clock(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]), other = open_at(modes[i]);
    answer first = lock(&k, "ends", 1, 300), got;
    expect("first", first, CORRAL_OK);
    int64_t ms = lock_at_last(&other, "ends", 2, &got);
    print_message("%s: a silent hold of 300 ms was replaced after %lld ms\n", modes[i],
                  (long long)ms);
    assert_in_range(ms, 250, 3000);
    assert_true(got.seen > first.seen);
    answer late = extend(&k, "ends", 1, 1000);
    expect("late extend", late, CORRAL_ELOST);
    assert_int_not_equal(late.until_ms, 0);
    expect("late unlock", unlock(&k, "ends", 1), CORRAL_ELOST);
    expect("still theirs", extend(&other, "ends", 2, 1000), CORRAL_OK);
    expect("unlock", unlock(&other, "ends", 2), CORRAL_OK);
    late = unlock(&k, "ends", 1);
    expect("later unlock", late, CORRAL_ELOST);
    assert_int_equal(late.until_ms, 0);
    closed(&k);
    closed(&other);
  }
}

/* A later hold of the same token is a new hold. */
static void a_token_whose_hold_ended_gets_a_new_fence(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]), other = open_at(modes[i]);
    answer first = lock(&k, "ended", 1, 100);
    int64_t until = crl_env_now_ms() + 15000;
    while (shown(&other, "ended", 5, NULL, 0, NULL) > 0) assert_true(crl_env_now_ms() < until);
    answer gone = extend(&k, "ended", 1, 1000);
    if (!is_advisory(modes[i])) assert_int_equal(gone.until_ms, 0);
    expect("extend", gone, CORRAL_ELOST);
    answer second = lock(&k, "ended", 1, 5000);
    expect("second", second, CORRAL_OK);
    assert_true(second.seen > first.seen);
    assert_in_range(second.until_ms, 4000, 5000);
    expect("unlock", unlock(&k, "ended", 1), CORRAL_OK);
    closed(&k);
    closed(&other);
  }
}

static void readers_share_an_advisory_lock_and_a_writer_can_become_one(void **state) {
  (void)state;
  kit k = open_at(ADVISORY), table = open_at(TABLE);
  expect("reader", lock_shared(&k, "rw", 1), CORRAL_OK);
  expect("reader", lock_shared(&k, "rw", 2), CORRAL_OK);
  expect("writer", lock(&k, "rw", 3, 1000), CORRAL_EBUSY);
  corral_hold holds[4];
  assert_int_equal(shown(&k, "rw", 2, holds, 4, NULL), 2);
  assert_true(holds[0].mode == CORRAL_LOCK_SHARED && holds[1].mode == CORRAL_LOCK_SHARED);
  expect("reader leaves", unlock(&k, "rw", 1), CORRAL_OK);
  expect("writer", lock(&k, "rw", 3, 1000), CORRAL_EBUSY);
  expect("reader leaves", unlock(&k, "rw", 2), CORRAL_OK);
  expect("writer", lock(&k, "rw", 3, 60000), CORRAL_OK);
  expect("reader", lock_shared(&k, "rw", 4), CORRAL_EBUSY);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "rw", 3);
  op.flags = CORRAL_OP_SHARED;
  ear *e = ear_open(&k);
  expect("downgrade", act(&k, op, INT64_MAX), CORRAL_OK);
  is_told(e, "rw");
  ear_close(e);
  expect("downgrade again", act(&k, op, INT64_MAX), CORRAL_OK);
  expect("the same reader", lock_shared(&k, "rw", 3), CORRAL_OK);
  expect("reader", lock_shared(&k, "rw", 4), CORRAL_OK);
  expect("writer", lock(&k, "rw", 5, 1000), CORRAL_EBUSY);
  expect("unlock", unlock(&k, "rw", 3), CORRAL_OK);
  expect("unlock", unlock(&k, "rw", 4), CORRAL_OK);
  expect("writer", lock(&k, "rw", 5, 1000), CORRAL_OK);
  expect("unlock", unlock(&k, "rw", 5), CORRAL_OK);
  expect("in a table", lock_shared(&table, "rw", 1), CORRAL_EUNSUPPORTED);
  closed(&k);
  closed(&table);
}

static void who_holds_is_shown(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]), other = open_at(modes[i]);
    corral_hold hold;
    int64_t now = 0;
    assert_int_equal(shown(&k, "shown", 5, &hold, 1, NULL), -1);
    answer got = lock(&k, "shown", 1, 30000);
    assert_int_equal(shown(&k, "shown", 5, &hold, 1, &now), 1);
    assert_memory_equal(hold.token, token(1), CORRAL_TOKEN);
    assert_true(hold.fence == got.seen);
    assert_string_equal(hold.note, "host/1/1 note");
    assert_int_equal(hold.mode, CORRAL_LOCK_EXCLUSIVE);
    assert_in_range(hold.until - now, 25000, 30000);
    assert_in_range(now - hold.since, 0, 5000);
    /* read through the store of another process */
    assert_int_equal(shown(&other, "shown", 5, &hold, 1, &now), 1);
    assert_string_equal(hold.note, "host/1/1 note");
    assert_in_range(hold.until - now, 25000, 30000);
    assert_in_range(now - hold.since, 0, 5000);
    assert_int_equal(k.host->wall_ms() / 100000, now / 100000);
    expect("unlock", unlock(&k, "shown", 1), CORRAL_OK);
    assert_int_equal(shown(&other, "shown", 5, &hold, 1, NULL), is_advisory(modes[i]) ? -1 : 0);
    closed(&k);
    closed(&other);
  }
}

static void names_and_notes_are_bytes_of_any_value(void **state) {
  static const uint8_t name[] = {0, 255, 'a', 0, '\'', '\\', '"', 200, 0};
  static const uint8_t note[] =
      "caf\xc3\xa9 \xff\xc3 \xe2\x82\xac \xed\xa0\x80 '; DROP TABLE corral_lock; -- x\xc3";
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    corral_op op = op_of(CORRAL_VERB_LOCK, "", 1);
    op.key = name;
    op.key_len = sizeof name;
    op.record = note;
    op.record_len = sizeof note - 1;
    expect("lock", act(&k, op, INT64_MAX), CORRAL_OK);
    corral_hold hold;
    assert_int_equal(shown(&k, name, sizeof name, &hold, 1, NULL), 1);
    if (!is_advisory(modes[i]))
      assert_string_equal(hold.note,
                          "caf\xc3\xa9 ?? \xe2\x82\xac ??? '; DROP TABLE corral_lock; -- x?");
    assert_int_equal(shown(&k, name, sizeof name - 1, &hold, 1, NULL), -1);
    op.verb = CORRAL_VERB_UNLOCK;
    expect("unlock", act(&k, op, INT64_MAX), CORRAL_OK);
    char *longest = malloc(2048);
    for (int j = 0; j < 2048; j++) longest[j] = (char)rand();
    op = op_of(CORRAL_VERB_LOCK, "", 1);
    op.key = longest;
    op.key_len = 2048;
    expect("the longest name", act(&k, op, INT64_MAX), CORRAL_OK);
    op.verb = CORRAL_VERB_UNLOCK;
    expect("unlock", act(&k, op, INT64_MAX), CORRAL_OK);
    free(longest);
    closed(&k);
  }
}

static void a_batch_is_done_in_order_and_values_are_refused(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    uint8_t one[CORRAL_TOKEN], two[CORRAL_TOKEN];
    memcpy(one, token(1), sizeof one);
    memcpy(two, token(2), sizeof two);
    corral_op ops[] = {{.verb = CORRAL_VERB_LOCK, .token = one},
                       {.verb = CORRAL_VERB_LOCK, .token = two},
                       {.verb = CORRAL_VERB_GET},
                       {.verb = CORRAL_VERB_UNLOCK, .token = one},
                       {.verb = CORRAL_VERB_LOCK, .token = two},
                       {.verb = CORRAL_VERB_UNLOCK, .token = two}};
    static const int expected[] = {CORRAL_OK, CORRAL_EBUSY, CORRAL_EUNSUPPORTED,
                                   CORRAL_OK, CORRAL_OK,    CORRAL_OK};
    for (size_t j = 0; j < 6; j++)
      ops[j].key = "batch", ops[j].key_len = 5, ops[j].lease_ms = 5000,
      ops[j].status = CORRAL_EUNKNOWN;
    corral_error why = {0};
    ops[2].error = &why;
    assert_int_equal(k.plugin->perform(k.handle, ops, 6, INT64_MAX, NULL), CORRAL_OK);
    for (size_t j = 0; j < 6; j++) assert_int_equal(ops[j].status, expected[j]);
    assert_non_null(strstr(why.text, "has locks only, no values"));
    closed(&k);
  }
}

/* ---- fencing tokens ------------------------------------------------------------------------ */

static void fencing_tokens_grow_also_when_rows_vanish_and_the_clock_is_behind(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    uint64_t last = 0;
    for (unsigned n = 0; n < 1000; n++) {
      answer a = lock(&k, "grows", n, 1000);
      expect("lock", a, CORRAL_OK);
      if (a.seen <= last)
        fail_msg("%llu after %llu", (unsigned long long)a.seen, (unsigned long long)last);
      last = a.seen;
      expect("unlock", unlock(&k, "grows", n), CORRAL_OK);
      if (n % 100 == 50)
        postgresql_server_ask(server, "DELETE FROM corral_lock WHERE name = 'grows'");
      if (n == 720)
        postgresql_server_ask(
            server, "UPDATE corral_lock SET fence = fence + 3600000000 WHERE name = 'grows'"),
            last += is_advisory(modes[i]) ? 0 : 3600000000;
      if (n == 730)
        postgresql_server_ask(
            server, "UPDATE corral_lock SET fence = fence - 3600000000 WHERE name = 'grows'"),
            last -= is_advisory(modes[i]) ? 0 : 3600000000;
    }
    closed(&k);
  }
}

/* After a crash the server reuses transaction ids that weren't written to disk. */
static void fencing_tokens_grow_over_a_crash(void **state) {
  (void)state;
  for (int round = 0; round < 3; round++)
    for (int i = 0; i < 2; i++) {
      kit k = open_at(modes[i]);
      answer before = {0};
      for (unsigned n = 0; n < 40; n++) {
        before = lock(&k, "crash", n, 1000);
        expect("lock", before, CORRAL_OK);
        expect("unlock", unlock(&k, "crash", n), CORRAL_OK);
      }
      before = lock(&k, "crash", 50, 1);
      postgresql_server_restart(server);
      closed(&k);
      k = open_at(modes[i]);
      answer after;
      lock_at_last(&k, "crash", 99, &after);
      if (after.seen <= before.seen)
        fail_msg("%s: %llu after %llu", modes[i], (unsigned long long)after.seen,
                 (unsigned long long)before.seen);
      expect("unlock", unlock(&k, "crash", 99), CORRAL_OK);
      closed(&k);
    }
}

/* ---- waits for a row ----------------------------------------------------------------------- */

typedef struct waiter {
  const kit *k;
  corral_op op;
  int64_t deadline;
  answer got;
} waiter;

static void *wait_for_row(void *arg) {
  waiter *w = arg;
  w->got = act(w->k, w->op, w->deadline);
  return NULL;
}

#define WAITING "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"

/* Sends a verb while the hold lives; another transaction locks the row until the hold is over.
 * Returns the verb's result. */
static answer after_a_wait(const kit *k, corral_verb verb, unsigned holder) {
  pthread_t thread;
  expect("lock", lock(k, "row", 1, 700), CORRAL_OK);
  kit other = open_at(TABLE);
  expect("warm", lock(&other, "row", 9, 700), CORRAL_EBUSY);
  expect("warm", extend(&other, "row", 9, 700), CORRAL_ELOST);
  expect("warm", unlock(&other, "row", 9), CORRAL_ELOST);
  postgresql_server_ask(server, "BEGIN");
  assert_string_equal(
      postgresql_server_ask(
          server,
          "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row' FOR UPDATE"),
      "t");
  waiter w = {.k = &other, .op = op_of(verb, "row", holder), .deadline = INT64_MAX};
  uint8_t mine[CORRAL_TOKEN];
  memcpy(mine, w.op.token, sizeof mine);
  w.op.token = mine;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_row, &w), 0);
  eventually(WAITING, "1");
  assert_string_equal(
      postgresql_server_ask(server,
                            "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row'"),
      "t");
  eventually("SELECT until < clock_timestamp() FROM corral_lock WHERE name = 'row'", "t");
  postgresql_server_ask(server, "COMMIT");
  pthread_join(thread, NULL);
  closed(&other);
  return w.got;
}

static void a_statement_that_waited_for_the_row_judges_by_the_time_after(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  answer taken = after_a_wait(&k, CORRAL_VERB_LOCK, 2);
  expect("lock", taken, CORRAL_OK);
  assert_in_range(taken.until_ms, 59000, 60000);
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
  kit k = open_at(TABLE), other = open_at(TABLE);
  expect("lock", lock(&k, "stuck", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "stuck", 1), CORRAL_OK);
  postgresql_server_ask(server, "BEGIN");
  postgresql_server_ask(server, "SELECT 1 FROM corral_lock WHERE name = 'stuck' FOR UPDATE");
  int64_t from = crl_env_now_ms();
  answer a = act(&other, op_of(CORRAL_VERB_LOCK, "stuck", 2), from + 300);
  assert_in_range(crl_env_now_ms() - from, 299, 1500);
  expect("no reply", a, CORRAL_EUNKNOWN);
  assert_int_not_equal(a.performed, CORRAL_OK);
  assert_non_null(strstr(a.error.text, "the time allowed is over"));
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
  answer a = lock(&k, "k", 1, 1000);
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
  a = lock(&k, "k", 1, 1000);
  expect("may not create", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "an administrator runs: CREATE TABLE \"mine\" ("));
  closed(&k);
  postgresql_server_ask(server, "GRANT USAGE ON SCHEMA apart TO poor");
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?table=apart.other",
           postgresql_server_port(server));
  k = opened(uri);
  a = lock(&k, "k", 1, 1000);
  expect("may not write", a, CORRAL_EAUTH);
  assert_non_null(strstr(a.error.text, "GRANT SELECT, INSERT, UPDATE ON \"apart\".\"other\" TO"));
  postgresql_server_ask(server, "GRANT SELECT, INSERT, UPDATE ON apart.other TO poor");
  expect("may", lock(&k, "k", 1, 1000), CORRAL_OK);
  expect("may", extend(&k, "k", 1, 1000), CORRAL_OK);
  expect("may", unlock(&k, "k", 1), CORRAL_OK);
  assert_string_equal(
      postgresql_server_ask(server, "SELECT encode(name, 'escape') FROM apart.other"), "k");
  closed(&k);
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?locks=advisory",
           postgresql_server_port(server));
  k = opened(uri);
  expect("advisory", lock(&k, "k", 1, 1000), CORRAL_OK);
  expect("advisory", extend(&k, "k", 1, 1000), CORRAL_OK);
  expect("advisory", unlock(&k, "k", 1), CORRAL_OK);
  closed(&k);
  postgresql_server_ask(server, "CREATE TABLE strange (name text PRIMARY KEY, value int)");
  k = open_at("?table=strange");
  expect("another table", lock(&k, "k", 1, 1000), CORRAL_EFOREIGN);
  closed(&k);
}

static void *make_it(void *arg) {
  kit *k = arg;
  return lock(k, "k", 1, 1000).status == CORRAL_OK || lock(k, "k", 1, 1000).status == CORRAL_EBUSY
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
  assert_true(a.status == CORRAL_EUNAVAILABLE || a.status == CORRAL_EUNKNOWN);
  assert_in_range(crl_env_now_ms() - from, 99, 1500);
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

/* ---- with the library ---------------------------------------------------------------------- */

/* examples/fenced.c exits with 0 when the later clerk's booking was accepted and the earlier one's
 * refused. */
static void a_resource_refuses_a_holder_who_is_late(void **state) {
  (void)state;
  const char *program = getenv("CORRAL_EXAMPLE_FENCED");
  if (program == NULL) skip();
  for (int i = 0; i < 2; i++) {
    int status = -1;
    postgresql_server_ask(server, "DROP TABLE IF EXISTS account");
    pid_t pid = fork();
    if (pid == 0) {
      execl(program, program, postgresql_server_uri(server, modes[i]),
            postgresql_server_conninfo(server), (char *)NULL);
      _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
    assert_string_equal(postgresql_server_ask(server, "SELECT balance FROM account"), "30");
  }
}

int main(void) {
  if (!postgresql_server_start(&server, NULL)) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lock_is_granted_to_one_token_at_a_time),
      cmocka_unit_test(a_token_that_has_a_hold_keeps_its_fence_when_it_locks_again),
      cmocka_unit_test(an_extension_lengthens_a_hold_and_never_shortens_it),
      cmocka_unit_test(a_fencing_token_is_raised_in_a_table_and_not_for_advisory_locks),
      cmocka_unit_test(a_hold_ends_by_the_servers_clock),
      cmocka_unit_test(a_token_whose_hold_ended_gets_a_new_fence),
      cmocka_unit_test(readers_share_an_advisory_lock_and_a_writer_can_become_one),
      cmocka_unit_test(who_holds_is_shown),
      cmocka_unit_test(names_and_notes_are_bytes_of_any_value),
      cmocka_unit_test(a_batch_is_done_in_order_and_values_are_refused),
      cmocka_unit_test(fencing_tokens_grow_also_when_rows_vanish_and_the_clock_is_behind),
      cmocka_unit_test(fencing_tokens_grow_over_a_crash),
      cmocka_unit_test(a_statement_that_waited_for_the_row_judges_by_the_time_after),
      cmocka_unit_test(a_deadline_ends_the_wait_and_the_server_forgets_the_statement),
      cmocka_unit_test(a_table_that_is_missing_is_made_or_told_how_to),
      cmocka_unit_test(an_end_that_time_contradicts_comes_after_one_length),
      cmocka_unit_test(a_living_holder_in_a_table_keeps_its_lock_when_the_clock_was_set_back),
      cmocka_unit_test(a_fencing_token_without_a_next_one_in_a_table_begins_anew),
      cmocka_unit_test(many_make_the_table_at_once),
      cmocka_unit_test(a_table_that_was_dropped_is_made_again),
      cmocka_unit_test(what_the_server_says_of_a_statement_is_understood),
      cmocka_unit_test(an_end_at_infinity_is_no_later_than_a_day),
      cmocka_unit_test(a_resource_refuses_a_holder_who_is_late),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
