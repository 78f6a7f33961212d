/* test_postgresql.c: locks in a real PostgreSQL, in a table and as advisory locks, through the
 * plugin's table: the verbs, fencing tokens, and a resource that checks them. */
#include <sys/wait.h>

#include "support/postgresql_kit.h"
#include "support/watch_kit.h"
#include "support/fork_kit.h"

/* ---- verbs --------------------------------------------------------------------------------- */

static void a_lock_is_granted_to_one_token_at_a_time(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "one", 1, 30000);
    expect("first", first, CORRAL_OK);
    assert_in_range(first.until_ms, 10000, 30000);
    answer second = lock(&k, "one", 2, 30000);
    expect("second", second, CORRAL_EBUSY);
    if (is_advisory(modes[i]))
      assert_int_equal(second.until_ms, -1);
    else
      assert_in_range(second.until_ms, 10000, 30000);
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
    answer first = lock(&k, "again", 1, 40000), second = lock(&k, "again", 1, 50000),
           third = lock(&k, "again", 1, 1000);
    expect("again", second, CORRAL_OK);
    assert_true(first.seen == second.seen && third.seen == first.seen);
    assert_in_range(second.until_ms, 40001, 50000);
    assert_in_range(third.until_ms, 30000, 50000);
    expect("unlock", unlock(&k, "again", 1), CORRAL_OK);
    expect("free", lock(&k, "again", 2, 60000), CORRAL_OK);
    expect("unlock", unlock(&k, "again", 2), CORRAL_OK);
    closed(&k);
  }
}

static void an_extension_lengthens_a_hold_and_never_shortens_it(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "longer", 1, 20000);
    answer more = extend(&k, "longer", 1, 60000), less = extend(&k, "longer", 1, 1000);
    expect("more", more, CORRAL_OK);
    expect("less", less, CORRAL_OK);
    assert_true(more.seen == first.seen && less.seen == first.seen);
    assert_in_range(more.until_ms, 40000, 60000);
    assert_in_range(less.until_ms, 30000, 60000);
    if (is_advisory(modes[i]))
      eventually("SELECT application_name >= '5' AND application_name LIKE '%ms %.% host/1/1 note' "
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
    op.lock_extend.fence = first.seen + 1000000000;
    answer raised = act(&k, op, INT64_MAX);
    expect("raise", raised, is_advisory(modes[i]) ? CORRAL_EUNSUPPORTED : CORRAL_OK);
    if (!is_advisory(modes[i])) assert_true(raised.seen == op.lock_extend.fence);
    op.lock_extend.fence = first.seen - 1;
    raised = act(&k, op, INT64_MAX);
    expect("less", raised, CORRAL_OK);
    assert_true(raised.seen >= first.seen);
    if (!is_advisory(modes[i])) {
      op.lock_extend.fence = UINT64_MAX;
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
    answer first = lock(&k, "ends", 1, 3000), got;
    expect("first", first, CORRAL_OK);
    lock_at_last(&other, "ends", 2, &got);
    assert_true(got.seen > first.seen);
    answer late = extend(&k, "ends", 1, 1000);
    expect("late extend", late, CORRAL_ELOST);
    assert_int_not_equal(late.until_ms, 0);
    expect("late unlock", unlock(&k, "ends", 1), CORRAL_ELOST);
    expect("still theirs", extend(&other, "ends", 2, 60000), CORRAL_OK);
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
    int64_t until = crl_env_now_ms() + 30000;
    while (shown(&other, "ended", 5, NULL, 0, NULL) > 0) assert_true(crl_env_now_ms() < until);
    answer gone = extend(&k, "ended", 1, 1000);
    if (!is_advisory(modes[i])) assert_int_equal(gone.until_ms, 0);
    expect("extend", gone, CORRAL_ELOST);
    answer second = lock(&k, "ended", 1, 5000);
    expect("second", second, CORRAL_OK);
    assert_true(second.seen > first.seen);
    assert_in_range(second.until_ms, 1, 5000);
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
  expect("writer", lock(&k, "rw", 5, 60000), CORRAL_OK);
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
    assert_in_range(hold.until - now, 10000, 30000);
    assert_in_range(now - hold.since, 0, 20000);
    /* read through the store of another process */
    assert_int_equal(shown(&other, "shown", 5, &hold, 1, &now), 1);
    assert_string_equal(hold.note, "host/1/1 note");
    assert_true(hold.fence == got.seen);
    assert_in_range(hold.until - now, 10000, 30000);
    assert_in_range(now - hold.since, 0, 20000);
    /* an extension doesn't make it younger */
    int64_t since = hold.since;
    expect("extend", extend(&k, "shown", 1, 60000), CORRAL_OK);
    assert_int_equal(shown(&other, "shown", 5, &hold, 1, &now), 1);
    assert_true(hold.fence == got.seen && hold.since == since);
    assert_in_range(hold.until - now, 31000, 60000);
    assert_string_equal(hold.note, "host/1/1 note");
    assert_in_range(k.host->wall_ms() + 100000 - now, 0, 200000);
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
    op_notes(&op, (const char *)note);
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
      ops[j].key = "batch", ops[j].key_len = 5, op_lasts(&ops[j], 5000),
      ops[j].status = CORRAL_EINDOUBT;
    corral_error why = {0};
    ops[2].error = &why;
    assert_int_equal(perform_ops(k.plugin, k.handle, ops, 6, INT64_MAX, NULL), CORRAL_OK);
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
      answer a = lock(&k, "grows", n, 60000);
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
        before = lock(&k, "crash", n, 60000);
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
    pid_t pid = fork_at_rest();
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
      cmocka_unit_test(a_resource_refuses_a_holder_who_is_late),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
