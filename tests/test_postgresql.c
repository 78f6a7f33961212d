/* test_postgresql.c: locks in a real PostgreSQL, in a table and as advisory locks, through the plugin's table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/postgresql_server.h"
#include "support/store_kit.h"
#include "support/watch_kit.h"

#define TABLE "?locks=table"
#define ADVISORY "?locks=advisory"

static postgresql_server *server;
static const char *const modes[] = {TABLE, ADVISORY};

static kit open_at(const char *params) { return opened(postgresql_server_uri(server, params)); }
static int is_advisory(const char *mode) { return strcmp(mode, ADVISORY) == 0; }

/* ---- one line for each verb ------------------------------------------------------------------------------ */

typedef struct answer {
  int status, performed;
  uint64_t seen;
  int64_t until_ms;
  corral_error error;
} answer;

static answer act(const kit *k, corral_op op, int64_t deadline) {
  answer a = {0};
  op.error = &a.error;
  op.ttl_ms = 0;
  op.status = CORRAL_EUNKNOWN;
  a.performed = k->plugin->perform(k->handle, &op, 1, deadline, NULL);
  a.status = op.status;
  a.seen = op.seen;
  a.until_ms = op.until_ms;
  return a;
}

static answer lock(const kit *k, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK, key, holder);
  op.lease_ms = lease_ms;
  op.record = (const uint8_t *)"host/1/1 note";
  op.record_len = 13;
  return act(k, op, INT64_MAX);
}

static answer lock_shared(const kit *k, const char *key, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, key, holder);
  op.flags = CORRAL_OP_SHARED;
  return act(k, op, INT64_MAX);
}

static answer extend(const kit *k, const char *key, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, key, holder);
  op.lease_ms = lease_ms;
  return act(k, op, INT64_MAX);
}

static answer unlock(const kit *k, const char *key, unsigned holder) { return act(k, op_of(CORRAL_VERB_UNLOCK, key, holder), INT64_MAX); }

static void expect(const char *what, answer a, int status) {
  if (a.status != status) fail_msg("%s: %s instead of %s: %s", what, corral_status_name(a.status), corral_status_name(status), a.error.text);
}

/* The holds that are shown; `room` of them. -1: EMISS. */
static int shown(const kit *k, const void *key, size_t key_len, corral_hold *holds, int room, int64_t *now) {
  corral_op op = {.verb = CORRAL_VERB_LOCK_SHOW, .key = key, .key_len = key_len, .status = CORRAL_EUNKNOWN};
  int status = run(k, &op);
  if (status == CORRAL_EMISS) return -1;
  assert_int_equal(status, CORRAL_OK);
  int count = op.found[4] | op.found[5] << 8;
  assert_int_equal(op.found_len, CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD);
  for (int i = 0; i < count && i < room; i++) {
    const uint8_t *at = op.found + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD;
    memcpy(holds[i].token, at, CORRAL_TOKEN);
    holds[i].mode = at[16];
    memcpy(&holds[i].until, at + 24, 8);
    memcpy(&holds[i].since, at + 32, 8);
    memcpy(&holds[i].fence, at + 40, 8);
    memcpy(holds[i].note, at + 48, CORRAL_LOCK_NOTE);
  }
  if (now != NULL) *now = op.life_ms;
  done(&op);
  return count;
}

static void eventually(const char *sql, const char *expected) {
  int64_t until = crl_env_now_ms() + 15000;
  while (strcmp(postgresql_server_ask(server, "%s", sql), expected) != 0) {
    if (crl_env_now_ms() > until) fail_msg("%s: still %s", sql, postgresql_server_ask(server, "%s", sql));
    sched_yield();
  }
}

/* Until it is granted; ms. */
static int64_t lock_at_last(const kit *k, const char *key, unsigned holder, answer *got) {
  int64_t from = crl_env_now_ms();
  while ((*got = lock(k, key, holder, 60000)).status == CORRAL_EBUSY)
    if (crl_env_now_ms() > from + 20000) fail_msg("%s is never free", key);
  expect("lock", *got, CORRAL_OK);
  return crl_env_now_ms() - from;
}

/* ---- what the verbs do ----------------------------------------------------------------------------------- */

static void a_lock_is_granted_to_one_token_at_a_time(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer first = lock(&k, "one", 1, 30000);
    expect("first", first, CORRAL_OK);
    assert_in_range(first.until_ms, 29000, 30000);
    answer second = lock(&k, "one", 2, 30000);
    expect("second", second, CORRAL_EBUSY);
    if (is_advisory(modes[i])) assert_int_equal(second.until_ms, -1);
    else assert_in_range(second.until_ms, 28000, 30000);
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
    answer first = lock(&k, "again", 1, 2000), second = lock(&k, "again", 1, 50000), third = lock(&k, "again", 1, 1000);
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
    if (is_advisory(modes[i])) eventually("SELECT application_name >= '5' AND application_name LIKE '%ms host/1/1 note' FROM pg_stat_activity WHERE application_name LIKE '%note'", "t");
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
    print_message("%s: a silent hold of 300 ms was replaced after %lld ms\n", modes[i], (long long)ms);
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

/* A later hold of the same token is another hold. */
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
    /* By another process' store. */
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
  static const uint8_t note[] = "caf\xc3\xa9 \xff\xc3 \xe2\x82\xac \xed\xa0\x80 '; DROP TABLE corral_lock; -- x\xc3";
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
    if (!is_advisory(modes[i])) assert_string_equal(hold.note, "caf\xc3\xa9 ?? \xe2\x82\xac ??? '; DROP TABLE corral_lock; -- x?");
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
    corral_op ops[] = {{.verb = CORRAL_VERB_LOCK, .token = one}, {.verb = CORRAL_VERB_LOCK, .token = two},   {.verb = CORRAL_VERB_GET},
                       {.verb = CORRAL_VERB_UNLOCK, .token = one}, {.verb = CORRAL_VERB_LOCK, .token = two}, {.verb = CORRAL_VERB_UNLOCK, .token = two}};
    static const int expected[] = {CORRAL_OK, CORRAL_EBUSY, CORRAL_EUNSUPPORTED, CORRAL_OK, CORRAL_OK, CORRAL_OK};
    for (size_t j = 0; j < 6; j++) ops[j].key = "batch", ops[j].key_len = 5, ops[j].lease_ms = 5000, ops[j].status = CORRAL_EUNKNOWN;
    corral_error why = {0};
    ops[2].error = &why;
    assert_int_equal(k.plugin->perform(k.handle, ops, 6, INT64_MAX, NULL), CORRAL_OK);
    for (size_t j = 0; j < 6; j++) assert_int_equal(ops[j].status, expected[j]);
    assert_non_null(strstr(why.text, "has locks only, no values"));
    closed(&k);
  }
}

/* ---- fencing tokens -------------------------------------------------------------------------------------- */

static void fencing_tokens_grow_also_when_rows_vanish_and_the_clock_is_behind(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    uint64_t last = 0;
    for (unsigned n = 0; n < 1000; n++) {
      answer a = lock(&k, "grows", n, 1000);
      expect("lock", a, CORRAL_OK);
      if (a.seen <= last) fail_msg("%llu after %llu", (unsigned long long)a.seen, (unsigned long long)last);
      last = a.seen;
      expect("unlock", unlock(&k, "grows", n), CORRAL_OK);
      if (n % 100 == 50) postgresql_server_ask(server, "DELETE FROM corral_lock WHERE name = 'grows'");
      if (n == 720) postgresql_server_ask(server, "UPDATE corral_lock SET fence = fence + 3600000000 WHERE name = 'grows'"), last += is_advisory(modes[i]) ? 0 : 3600000000;
      if (n == 730) postgresql_server_ask(server, "UPDATE corral_lock SET fence = fence - 3600000000 WHERE name = 'grows'"), last -= is_advisory(modes[i]) ? 0 : 3600000000;
    }
    closed(&k);
  }
}

/* Transaction ids that never reached the disk come again. */
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
      if (after.seen <= before.seen) fail_msg("%s: %llu after %llu", modes[i], (unsigned long long)after.seen, (unsigned long long)before.seen);
      expect("unlock", unlock(&k, "crash", 99), CORRAL_OK);
      closed(&k);
    }
}

/* ---- waiting for a row ----------------------------------------------------------------------------------- */

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

/* What a verb answers when it was sent while the hold lived, and had to wait for the row until after its end. */
static answer after_a_wait(const kit *k, corral_verb verb, unsigned holder) {
  pthread_t thread;
  expect("lock", lock(k, "row", 1, 700), CORRAL_OK);
  kit other = open_at(TABLE);
  expect("warm", lock(&other, "row", 9, 700), CORRAL_EBUSY);
  expect("warm", extend(&other, "row", 9, 700), CORRAL_ELOST);
  expect("warm", unlock(&other, "row", 9), CORRAL_ELOST);
  postgresql_server_ask(server, "BEGIN");
  assert_string_equal(postgresql_server_ask(server, "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row' FOR UPDATE"), "t");
  waiter w = {.k = &other, .op = op_of(verb, "row", holder), .deadline = INT64_MAX};
  uint8_t mine[CORRAL_TOKEN];
  memcpy(mine, w.op.token, sizeof mine);
  w.op.token = mine;
  assert_int_equal(pthread_create(&thread, NULL, wait_for_row, &w), 0);
  eventually(WAITING, "1");
  assert_string_equal(postgresql_server_ask(server, "SELECT until > clock_timestamp() FROM corral_lock WHERE name = 'row'"), "t");
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

/* ---- processes ------------------------------------------------------------------------------------------- */

/* A child that locks `key` and then waits; when it is told to, it extends and tells what came of it. */
typedef struct child {
  pid_t pid;
  int to, from;
} child;

static void be_child(const char *params, const char *key, int64_t lease_ms, int from, int to) {
  char byte;
  kit k = open_at(params);
  answer a = lock(&k, key, 77, lease_ms);
  if (write(to, &a.status, sizeof a.status) != sizeof a.status || read(from, &byte, 1) != 1) _exit(1);
  a = extend(&k, key, 77, 60000);
  if (write(to, &a.status, sizeof a.status) != sizeof a.status) _exit(1);
  _exit(0);
}

static int hear(const child *c) {
  int status = 1;
  assert_int_equal(read(c->from, &status, sizeof status), sizeof status);
  return status;
}

static child a_holder(const char *params, const char *key, int64_t lease_ms) {
  int to[2], from[2];
  child c;
  assert_true(pipe(to) == 0 && pipe(from) == 0);
  pid_t parent = getpid();
  c.pid = fork();
  assert_true(c.pid >= 0);
  if (c.pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    be_child(params, key, lease_ms, to[0], from[1]);
  }
  close(to[0]);
  close(from[1]);
  c.to = to[1];
  c.from = from[0];
  assert_int_equal(hear(&c), CORRAL_OK);
  return c;
}

static void ended(child *c) {
  kill(c->pid, SIGKILL);
  waitpid(c->pid, NULL, 0);
  close(c->to);
  close(c->from);
}

static void a_dead_holder_is_replaced_when_its_hold_ends_or_at_once_when_its_session_does(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer got;
    child c = a_holder(modes[i], "dead", 1500);
    expect("held", lock(&k, "dead", 1, 1000), CORRAL_EBUSY);
    ended(&c);
    int64_t ms = lock_at_last(&k, "dead", 1, &got);
    print_message("%s: after kill -9 of who held for 1500 ms: %lld ms\n", modes[i], (long long)ms);
    if (is_advisory(modes[i])) assert_in_range(ms, 0, 1000);
    else assert_in_range(ms, 1000, 3000);
    expect("unlock", unlock(&k, "dead", 1), CORRAL_OK);
    closed(&k);
  }
}

static void a_stopped_holder_is_replaced_and_told_so(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]);
    answer got;
    child c = a_holder(modes[i], "stopped", 600);
    kill(c.pid, SIGSTOP);
    int64_t ms = lock_at_last(&k, "stopped", 1, &got);
    print_message("%s: after SIGSTOP of who held for 600 ms: %lld ms\n", modes[i], (long long)ms);
    assert_in_range(ms, 400, 3000);
    kill(c.pid, SIGCONT);
    assert_int_equal(write(c.to, "x", 1), 1);
    assert_int_equal(hear(&c), CORRAL_ELOST);
    ended(&c);
    expect("unlock", unlock(&k, "stopped", 1), CORRAL_OK);
    closed(&k);
  }
}

/* ---- a race ---------------------------------------------------------------------------------------------- */

enum { PROCESSES = 2, THREADS = 4, ROUNDS = 60 };

typedef struct arena {
  atomic_int inside, overlaps, wrong, readers;
  _Atomic uint64_t fence;
  long counter; /* not atomic: the lock guards it */
} arena;

typedef struct racer {
  const kit *k;
  arena *a;
  unsigned number;
} racer;

static void race_once(const racer *me, const kit *k, unsigned holder) {
  answer got;
  while ((got = lock(k, "race", holder, 30000)).status == CORRAL_EBUSY) sched_yield();
  if (got.status != CORRAL_OK) {
    print_message("racer %u: %s: %s\n", me->number, corral_status_name(got.status), got.error.text);
    atomic_fetch_add(&me->a->wrong, 1);
    return;
  }
  if (atomic_fetch_add(&me->a->inside, 1) != 0) atomic_fetch_add(&me->a->overlaps, 1);
  if (atomic_load(&me->a->fence) >= got.seen) atomic_fetch_add(&me->a->wrong, 1);
  atomic_store(&me->a->fence, got.seen);
  long before = *(volatile long *)&me->a->counter;
  sched_yield();
  *(volatile long *)&me->a->counter = before + 1;
  atomic_fetch_sub(&me->a->inside, 1);
  if (unlock(k, "race", holder).status != CORRAL_OK) atomic_fetch_add(&me->a->wrong, 1);
}

static void *race(void *arg) {
  const racer *me = arg;
  kit k = *me->k;
  corral_error error = {0};
  if (k.plugin->connect(k.store, INT64_MAX, &k.handle, &error) != CORRAL_OK) {
    print_message("%s\n", error.text);
    atomic_fetch_add(&me->a->wrong, 1);
    return NULL;
  }
  for (unsigned i = 0; i < ROUNDS; i++) race_once(me, &k, me->number * 1000 + i);
  k.plugin->disconnect(k.handle);
  return NULL;
}

static void race_threads(const char *params, arena *a, unsigned process) {
  kit k = open_at(params);
  pthread_t threads[THREADS];
  racer racers[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    racers[i] = (racer){.k = &k, .a = a, .number = process * THREADS + i + 1};
    if (pthread_create(&threads[i], NULL, race, &racers[i]) != 0) abort();
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  closed(&k);
}

static void race_processes(const char *params) {
  arena *a = mmap(NULL, sizeof *a, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  pid_t pids[PROCESSES], parent = getpid();
  assert_true(a != MAP_FAILED);
  int64_t from = crl_env_now_ms();
  for (unsigned i = 0; i < PROCESSES; i++)
    if ((pids[i] = fork()) == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) _exit(1);
      race_threads(params, a, i);
      _exit(0);
    }
  for (unsigned i = 0; i < PROCESSES; i++) {
    int status = -1;
    waitpid(pids[i], &status, 0);
    assert_int_equal(status, 0);
  }
  print_message("%s: %d acquisitions by %d processes of %d threads in %lld ms\n", params, PROCESSES * THREADS * ROUNDS, PROCESSES, THREADS,
                (long long)(crl_env_now_ms() - from));
  assert_int_equal(atomic_load(&a->overlaps), 0);
  assert_int_equal(atomic_load(&a->wrong), 0);
  assert_int_equal(a->counter, PROCESSES * THREADS * ROUNDS);
  munmap(a, sizeof *a);
}

static void no_two_hold_at_once(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) race_processes(modes[i]);
  race_processes("?locks=table&notify=no");
}

static void a_database_that_defaults_to_serializable_and_no_sync_locks_as_well(void **state) {
  (void)state;
  postgresql_server_ask(server, "ALTER ROLE postgres SET default_transaction_isolation = 'serializable'");
  postgresql_server_ask(server, "ALTER ROLE postgres SET synchronous_commit = off");
  kit k = open_at(TABLE);
  expect("lock", lock(&k, "serial", 1, 1000), CORRAL_OK);
  expect("unlock", unlock(&k, "serial", 1), CORRAL_OK);
  race_processes(TABLE);
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
  closed(&k);
}

/* A keeper extends while somebody else unlocks, through handles of their own. */
static void *extend_all_the_time(void *arg) {
  const racer *me = arg;
  kit k = *me->k;
  corral_error error = {0};
  if (k.plugin->connect(k.store, INT64_MAX, &k.handle, &error) != CORRAL_OK) abort();
  for (unsigned i = 0; i < 200; i++) {
    answer a = extend(&k, "kept", atomic_load(&me->a->inside) % 100 == 0 ? 100 : (unsigned)atomic_load(&me->a->inside), 30000);
    if (a.status != CORRAL_OK && a.status != CORRAL_ELOST) atomic_fetch_add(&me->a->wrong, 1);
  }
  k.plugin->disconnect(k.handle);
  return NULL;
}

static void extending_and_unlocking_at_once_is_orderly(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    arena a = {0};
    kit k = open_at(modes[i]);
    racer me = {.k = &k, .a = &a};
    pthread_t threads[2];
    for (int j = 0; j < 2; j++) assert_int_equal(pthread_create(&threads[j], NULL, extend_all_the_time, &me), 0);
    for (int n = 1; n < 60; n++) {
      atomic_store(&a.inside, n);
      expect("lock", lock(&k, "kept", (unsigned)n, 30000), CORRAL_OK);
      expect("unlock", unlock(&k, "kept", (unsigned)n), CORRAL_OK);
    }
    for (int j = 0; j < 2; j++) pthread_join(threads[j], NULL);
    assert_int_equal(atomic_load(&a.wrong), 0);
    closed(&k);
  }
}

/* ---- the server goes away -------------------------------------------------------------------------------- */

static answer extend_at_last(kit *k, const char *key, unsigned holder) {
  answer a = extend(k, key, holder, 60000);
  if (a.performed != CORRAL_OK) {
    k->plugin->disconnect(k->handle);
    corral_error error = {0};
    if (k->plugin->connect(k->store, INT64_MAX, &k->handle, &error) != CORRAL_OK) fail_msg("%s", error.text);
    if (a.status != CORRAL_EUNAVAILABLE && a.status != CORRAL_EUNKNOWN) return a;
    a = extend(k, key, holder, 60000);
  }
  return a;
}

static void holds_of_a_table_outlive_the_server_and_advisory_ones_are_lost(void **state) {
  (void)state;
  for (int in_order = 0; in_order < 2; in_order++) {
    kit table = open_at(TABLE), advisory = open_at(ADVISORY);
    answer first = lock(&table, "outlives", 1, 60000);
    expect("lock", first, CORRAL_OK);
    expect("lock", lock(&advisory, "outlives", 1, 60000), CORRAL_OK);
    if (in_order) postgresql_server_shut(server);
    postgresql_server_restart(server);
    answer a = extend_at_last(&table, "outlives", 1);
    expect("table", a, CORRAL_OK);
    assert_true(a.seen == first.seen);
    expect("others", lock(&table, "outlives", 2, 1000), CORRAL_EBUSY);
    a = extend_at_last(&advisory, "outlives", 1);
    expect("advisory", a, CORRAL_ELOST);
    assert_int_equal(a.until_ms, 0);
    expect("advisory", unlock(&advisory, "outlives", 1), CORRAL_ELOST);
    expect("advisory", lock(&advisory, "outlives", 2, 1000), CORRAL_OK);
    expect("unlock", unlock(&advisory, "outlives", 2), CORRAL_OK);
    expect("unlock", unlock(&table, "outlives", 1), CORRAL_OK);
    closed(&table);
    closed(&advisory);
  }
}

static void a_session_that_an_administrator_ended_is_noticed_before_anything_is_sent(void **state) {
  (void)state;
  kit k = open_at(TABLE), advisory = open_at(ADVISORY);
  expect("lock", lock(&k, "admin", 1, 60000), CORRAL_OK);
  expect("lock", lock(&advisory, "admin", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "SELECT count(pg_terminate_backend(pid, 5000)) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()");
  answer a = extend(&k, "admin", 1, 60000);
  expect("extend", a, CORRAL_EUNAVAILABLE);
  assert_int_not_equal(a.performed, CORRAL_OK);
  a = extend(&advisory, "admin", 1, 60000);
  expect("extend", a, CORRAL_ELOST);
  assert_int_equal(a.until_ms, 0);
  closed(&k);
  closed(&advisory);
}

static void a_server_that_is_slow_loses_no_advisory_hold_and_an_unlock_may_be_asked_twice(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  expect("warm", extend(&k, "slow", 1, 60000), CORRAL_OK);
  pid_t backend = (pid_t)strtol(postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL, 10);
  assert_true(backend > 1);
  kill(backend, SIGSTOP);
  int64_t from = crl_env_now_ms();
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "slow", 1);
  expect("extend", act(&k, op, from + 100), CORRAL_EUNKNOWN);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 1);
  assert_in_range(crl_env_now_ms() - from, 99, 1500);
  kill(backend, SIGCONT);
  expect("extend", extend(&k, "slow", 1, 60000), CORRAL_OK);
  expect("warm", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 1, 60000), CORRAL_OK);
  backend = (pid_t)strtol(postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL, 10);
  kill(backend, SIGSTOP);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 1);
  expect("unlock", act(&k, op, crl_env_now_ms() + 100), CORRAL_EUNKNOWN);
  kill(backend, SIGCONT);
  expect("asked again", unlock(&k, "slow", 1), CORRAL_OK);
  expect("lock", lock(&k, "slow", 2, 60000), CORRAL_OK);
  backend = (pid_t)strtol(postgresql_server_ask(server, "SELECT pid FROM pg_locks WHERE locktype = 'advisory'"), NULL, 10);
  kill(backend, SIGSTOP);
  op = op_of(CORRAL_VERB_UNLOCK, "slow", 2);
  expect("unlock", act(&k, op, crl_env_now_ms() + 100), CORRAL_EUNKNOWN);
  expect("asked again", act(&k, op, crl_env_now_ms() + 100), CORRAL_EUNKNOWN);
  kill(backend, SIGCONT);
  eventually("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'", "0");
  closed(&k);
}

/* ---- connections ----------------------------------------------------------------------------------------- */

#define OURS "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"

static void each_advisory_hold_has_a_connection_and_their_number_is_bounded(void **state) {
  (void)state;
  kit k = open_at(ADVISORY "&max_holds=3");
  eventually(OURS, "1");
  for (unsigned i = 1; i <= 3; i++) {
    char key[8];
    snprintf(key, sizeof key, "max%u", i);
    expect("lock", lock(&k, key, i, 60000), CORRAL_OK);
  }
  answer a = lock(&k, "max4", 4, 60000);
  expect("one too many", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "max_holds"));
  eventually(OURS, "3");
  expect("refused", lock(&k, "max1", 1, 60000), CORRAL_OK);
  for (unsigned i = 1; i <= 3; i++) {
    char key[8];
    snprintf(key, sizeof key, "max%u", i);
    expect("unlock", unlock(&k, key, i), CORRAL_OK);
  }
  for (unsigned i = 0; i < 50; i++) {
    expect("lock", lock(&k, "max1", i, 60000), CORRAL_OK);
    expect("held", lock(&k, "max1", i + 100, 60000), CORRAL_EBUSY);
    expect("unlock", unlock(&k, "max1", i), CORRAL_OK);
  }
  eventually(OURS, "3");
  eventually("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'corral'", "3");
  closed(&k);
  eventually(OURS, "0");
}

/* A session that once held for a short time and rests now isn't ended for its silence. */
static void an_idle_connection_stays(void **state) {
  (void)state;
  kit k = open_at(ADVISORY);
  expect("lock", lock(&k, "idle", 1, 200), CORRAL_OK);
  expect("unlock", unlock(&k, "idle", 1), CORRAL_OK);
  const char *rested = "SELECT clock_timestamp() - state_change > '700 ms' FROM pg_stat_activity WHERE application_name = 'corral'";
  eventually(rested, "t");
  eventually(OURS, "1");
  expect("lock", lock(&k, "idle", 2, 200), CORRAL_OK);
  expect("unlock", unlock(&k, "idle", 2), CORRAL_OK);
  closed(&k);
}

static answer connected(const char *uri) {
  kit k;
  answer a = {0};
  corral_error error = {0};
  a.status = kit_open(&k, uri, &error);
  a.error = error;
  if (a.status == CORRAL_OK) closed(&k);
  else if (k.store != NULL) k.plugin->close(k.store);
  return a;
}

static void refuses(const char *uri, int status, const char *text) {
  answer a = connected(uri);
  expect(uri, a, status);
  if (strstr(a.error.text, text) == NULL) fail_msg("%s: %s", uri, a.error.text);
}

static void what_is_wrong_with_a_uri_is_said(void **state) {
  static const char *const wrong[][2] = {
      {"postgresql:db", "accepted is postgresql://"},
      {"postgresql://a,b/db", "one host"},
      {"postgresql://a/db/more", "after the host nothing but /DATABASE"},
      {"postgresql://a/db?host=/tmp", "named twice"},
      {"postgresql:///db?host=tmp", "begins with '/'"},
      {"postgresql://a/db?locks=none", "table or advisory"},
      {"postgresql://a/db?create=1", "create accepts yes or no"},
      {"postgresql://a/db?notify=maybe", "notify accepts yes or no"},
      {"postgresql://a/db?table=Name", "table accepts"},
      {"postgresql://a/db?table=a.b.c", "table accepts"},
      {"postgresql://a/db?table=.b", "table accepts"},
      {"postgresql://a/db?table=a.", "table accepts"},
      {"postgresql://a/db?table=", "table accepts"},
      {"postgresql://a/db?table=x%22y", "table accepts"},
      {"postgresql://a/db?table=1a", "table accepts"},
      {"postgresql://a/db?max_holds=0", "accepted: 1 to 10000"},
      {"postgresql://a/db?sslmode=on", "sslmode accepts"},
      {"postgresql://a/db?sslmode=disable%20allow", "sslmode accepts"},
      {"postgresql://a/db?timeout=3", "unknown parameter 'timeout'; accepted: locks table"},
  };
  (void)state;
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) refuses(wrong[i][0], CORRAL_EURI, wrong[i][1]);
}

static void why_no_connection_came_is_said(void **state) {
  char uri[256];
  (void)state;
  int port = postgresql_server_port(server);
  snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%d/none", port);
  refuses(uri, CORRAL_EAUTH, "database \"none\" does not exist");
  refuses("postgresql://127.0.0.1:1/db", CORRAL_EUNAVAILABLE, "refused");
  snprintf(uri, sizeof uri, "postgresql:///postgres?host=%s", "/tmp");
  refuses(uri, CORRAL_EUNAVAILABLE, "No such file");
  snprintf(uri, sizeof uri, "postgresql://postgres@127.0.0.1:%d/postgres?sslmode=require", port);
  refuses(uri, CORRAL_EUNAVAILABLE, "SSL");
  snprintf(uri, sizeof uri, "postgresql://postgres@:%d/postgres?host=%s&sslmode=disable", port, postgresql_server_folder(server));
  expect("by its socket", connected(uri), CORRAL_OK);
  postgresql_server_ask(server, "CREATE ROLE ann LOGIN PASSWORD 'p%%ss @1'");
  postgresql_server_hba(server, "host all ann 127.0.0.1/32 scram-sha-256\nhost all postgres 127.0.0.1/32 trust");
  snprintf(uri, sizeof uri, "postgresql://ann:p%%25ss%%20%%401@127.0.0.1:%d/postgres", port);
  expect("with a password", connected(uri), CORRAL_OK);
  snprintf(uri, sizeof uri, "postgresql://ann:wrong@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "password authentication failed");
  snprintf(uri, sizeof uri, "postgresql://ann@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "password");
  snprintf(uri, sizeof uri, "postgresql://bob@127.0.0.1:%d/postgres", port);
  refuses(uri, CORRAL_EAUTH, "no pg_hba.conf entry");
  postgresql_server_hba(server, "host all all 127.0.0.1/32 trust");
}

/* A listener that says nothing. */
static void a_server_that_says_nothing_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  void *handle = NULL;
  corral_error error = {0};
  kill(postgresql_server_pid(server), SIGSTOP);
  int64_t from = crl_env_now_ms();
  assert_int_equal(k.plugin->connect(k.store, from + 200, &handle, &error), CORRAL_EUNAVAILABLE);
  assert_in_range(crl_env_now_ms() - from, 199, 1500);
  kill(postgresql_server_pid(server), SIGCONT);
  assert_non_null(strstr(error.text, "the time allowed is over"));
  closed(&k);
}

/* ---- the table ------------------------------------------------------------------------------------------- */

static void a_table_that_is_missing_is_made_or_told_how_to(void **state) {
  char uri[256];
  (void)state;
  kit k = open_at("?table=no_such&create=no");
  answer a = lock(&k, "k", 1, 1000);
  expect("create=no", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "CREATE TABLE \"no_such\" (name bytea PRIMARY KEY, token bytea, fence bigint NOT NULL, until timestamptz NOT NULL, since timestamptz, note text)"));
  closed(&k);
  postgresql_server_ask(server, "CREATE ROLE poor LOGIN");
  postgresql_server_ask(server, "CREATE SCHEMA apart");
  postgresql_server_ask(server, "CREATE TABLE apart.other (name bytea PRIMARY KEY, token bytea, fence bigint NOT NULL, until timestamptz NOT NULL, since timestamptz, note text)");
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?table=mine", postgresql_server_port(server));
  k = opened(uri);
  a = lock(&k, "k", 1, 1000);
  expect("may not create", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "an administrator runs: CREATE TABLE \"mine\" ("));
  closed(&k);
  postgresql_server_ask(server, "GRANT USAGE ON SCHEMA apart TO poor");
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?table=apart.other", postgresql_server_port(server));
  k = opened(uri);
  a = lock(&k, "k", 1, 1000);
  expect("may not write", a, CORRAL_EAUTH);
  assert_non_null(strstr(a.error.text, "GRANT SELECT, INSERT, UPDATE ON \"apart\".\"other\" TO"));
  postgresql_server_ask(server, "GRANT SELECT, INSERT, UPDATE ON apart.other TO poor");
  expect("may", lock(&k, "k", 1, 1000), CORRAL_OK);
  expect("may", extend(&k, "k", 1, 1000), CORRAL_OK);
  expect("may", unlock(&k, "k", 1), CORRAL_OK);
  assert_string_equal(postgresql_server_ask(server, "SELECT encode(name, 'escape') FROM apart.other"), "k");
  closed(&k);
  snprintf(uri, sizeof uri, "postgresql://poor@127.0.0.1:%d/postgres?locks=advisory", postgresql_server_port(server));
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
  return lock(k, "k", 1, 1000).status == CORRAL_OK || lock(k, "k", 1, 1000).status == CORRAL_EBUSY ? NULL : arg;
}

static void many_make_the_table_at_once(void **state) {
  (void)state;
  for (int round = 0; round < 5; round++) {
    kit kits[4];
    pthread_t threads[4];
    for (int i = 0; i < 4; i++) kits[i] = open_at("?table=many");
    for (int i = 0; i < 4; i++) assert_int_equal(pthread_create(&threads[i], NULL, make_it, &kits[i]), 0);
    for (int i = 0; i < 4; i++) {
      void *wrong;
      pthread_join(threads[i], &wrong);
      assert_null(wrong);
      closed(&kits[i]);
    }
    postgresql_server_ask(server, "DROP TABLE many");
  }
}

/* A table that goes and comes while a connection has its statements prepared. */
static void a_table_that_was_dropped_is_made_again(void **state) {
  (void)state;
  kit k = open_at("?table=goes");
  expect("lock", lock(&k, "k", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "DROP TABLE goes");
  expect("extend", extend(&k, "k", 1, 60000), CORRAL_ELOST);
  expect("lock", lock(&k, "k", 2, 60000), CORRAL_OK);
  closed(&k);
}

/* A trigger of the table stands for what the server may say. */
static void set_trigger(const char *body) {
  const char *said = postgresql_server_ask(server,
      "CREATE OR REPLACE FUNCTION odd() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN %s RETURN NEW; END $$;"
      "CREATE OR REPLACE TRIGGER odd BEFORE INSERT OR UPDATE ON odd FOR EACH ROW EXECUTE FUNCTION odd()", body);
  if (*said != '\0') fail_msg("%s", said);
}

static void what_the_server_says_of_a_statement_is_understood(void **state) {
  (void)state;
  kit k = open_at("?table=odd");
  expect("lock", lock(&k, "k", 1, 60000), CORRAL_OK);
  expect("extend", extend(&k, "k", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "CREATE SEQUENCE tries");
  set_trigger("IF nextval('tries') < 3 THEN RAISE EXCEPTION 'again' USING ERRCODE = '40001'; END IF;");
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
  for (int i = 0; i < 4; i++) expect("without prepared statements", extend(&k, "k", 1, 60000), CORRAL_OK);
  expect("unlock", unlock(&k, "k", 1), CORRAL_OK);
  closed(&k);
}

static void an_end_at_infinity_is_a_long_time(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  expect("lock", lock(&k, "inf", 1, 60000), CORRAL_OK);
  postgresql_server_ask(server, "UPDATE corral_lock SET until = 'infinity' WHERE name = 'inf'");
  answer a = lock(&k, "inf", 2, 60000);
  expect("held", a, CORRAL_EBUSY);
  assert_true(a.until_ms > INT64_C(31536000000));
  assert_int_equal(shown(&k, "inf", 3, NULL, 0, NULL), 1);
  expect("unlock", unlock(&k, "inf", 1), CORRAL_OK);
  closed(&k);
}

/* ---- the watch ------------------------------------------------------------------------------------------- */

static void an_unlock_is_told(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) {
    kit k = open_at(modes[i]), other = open_at(modes[i]);
    ear *e = ear_open(&k);
    int64_t us[40];
    for (unsigned n = 0; n < 40; n++) {
      expect("lock", lock(&other, "told", n, 60000), CORRAL_OK);
      expect("refused unlock", unlock(&other, "told", n + 1000), CORRAL_ELOST);
      catch_up(e);
      assert_int_equal(e->count, 0);
      us[n] = crl_env_now_us();
      expect("unlock", unlock(&other, "told", n), CORRAL_OK);
      is_told(e, "told");
      us[n] = crl_env_now_us() - us[n];
      e->count = 0;
    }
    check_times("unlocked and told", us, 40);
    ear_close(e);
    check_end(&k);
    check_rest(&k);
    closed(&k);
    closed(&other);
  }
  kit quiet = open_at("?notify=no");
  void *watch;
  corral_error error = {0};
  assert_int_equal(quiet.plugin->watch(quiet.store, 0, INT64_MAX, &watch, &error), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "notify=no"));
  closed(&quiet);
}

static void ignore(void *arg, uint64_t hash) { (void)arg, (void)hash; }

static void a_watch_that_broke_is_reported(void **state) {
  (void)state;
  kit k = open_at(TABLE);
  ear *e = ear_open(&k);
  corral_error error = {0};
  postgresql_server_ask(server, "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE query = 'LISTEN corral_lock'");
  assert_int_equal(k.plugin->changes(e->watch, -1, crl_env_now_ms() + 10000, ignore, NULL, &error), CORRAL_EUNAVAILABLE);
  ear_close(e);
  /* Without a sign. */
  e = ear_open(&k);
  pid_t backend = (pid_t)strtol(postgresql_server_ask(server, "SELECT pid FROM pg_stat_activity WHERE query = 'LISTEN corral_lock'"), NULL, 10);
  assert_true(backend > 1);
  kill(backend, SIGSTOP);
  int64_t from = crl_env_now_ms();
  assert_int_equal(k.plugin->changes(e->watch, -1, from + 20000, ignore, NULL, &error), CORRAL_EUNAVAILABLE);
  assert_in_range(crl_env_now_ms() - from, 1000, 8000);
  ear_close(e);
  kill(backend, SIGCONT);
  /* A quiet one that lives is kept; what isn't a number may mean any. */
  e = ear_open(&k);
  (void)listen_until(e, -1, crl_env_now_ms() + 2500);
  postgresql_server_ask(server, "NOTIFY corral_lock, 'strange'");
  assert_int_equal(listen_until(e, -1, crl_env_now_ms() + 10000), 1);
  assert_true(any_told(e));
  ear_close(e);
  closed(&k);
}

/* ---- a standby ------------------------------------------------------------------------------------------- */

static void a_standby_is_refused_and_so_is_a_database_for_reading(void **state) {
  char file[160];
  (void)state;
  kit k = open_at(TABLE);
  postgresql_server_ask(server, "ALTER ROLE postgres SET default_transaction_read_only = on");
  kit reader = open_at(TABLE);
  answer a = lock(&reader, "k", 1, 1000);
  expect("read only", a, CORRAL_EREFUSED);
  assert_non_null(strstr(a.error.text, "a standby can't lock"));
  closed(&reader);
  postgresql_server_ask(server, "SET default_transaction_read_only = off");
  postgresql_server_ask(server, "ALTER ROLE postgres RESET ALL");
  closed(&k);
  postgresql_server_shut(server);
  snprintf(file, sizeof file, "%s/standby.signal", postgresql_server_data(server));
  FILE *f = fopen(file, "w");
  assert_non_null(f);
  fclose(f);
  postgresql_server_restart(server);
  for (int i = 0; i < 2; i++) refuses(postgresql_server_uri(server, modes[i]), CORRAL_EREFUSED, "a standby can't lock");
  postgresql_server_shut(server);
  unlink(file);
  postgresql_server_restart(server);
}

/* ---- with the library ------------------------------------------------------------------------------------ */

/* examples/fenced.c: it exits with 0 when the late clerk booked and the early one was refused. */
static void a_resource_refuses_a_holder_who_is_late(void **state) {
  (void)state;
  const char *program = getenv("CORRAL_EXAMPLE_FENCED");
  if (program == NULL) skip();
  for (int i = 0; i < 2; i++) {
    int status = -1;
    postgresql_server_ask(server, "DROP TABLE IF EXISTS account");
    pid_t pid = fork();
    if (pid == 0) {
      execl(program, program, postgresql_server_uri(server, modes[i]), postgresql_server_conninfo(server), (char *)NULL);
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
      cmocka_unit_test(a_dead_holder_is_replaced_when_its_hold_ends_or_at_once_when_its_session_does),
      cmocka_unit_test(a_stopped_holder_is_replaced_and_told_so),
      cmocka_unit_test(no_two_hold_at_once),
      cmocka_unit_test(a_database_that_defaults_to_serializable_and_no_sync_locks_as_well),
      cmocka_unit_test(extending_and_unlocking_at_once_is_orderly),
      cmocka_unit_test(holds_of_a_table_outlive_the_server_and_advisory_ones_are_lost),
      cmocka_unit_test(a_session_that_an_administrator_ended_is_noticed_before_anything_is_sent),
      cmocka_unit_test(a_server_that_is_slow_loses_no_advisory_hold_and_an_unlock_may_be_asked_twice),
      cmocka_unit_test(each_advisory_hold_has_a_connection_and_their_number_is_bounded),
      cmocka_unit_test(an_idle_connection_stays),
      cmocka_unit_test(what_is_wrong_with_a_uri_is_said),
      cmocka_unit_test(why_no_connection_came_is_said),
      cmocka_unit_test(a_server_that_says_nothing_costs_no_more_than_the_deadline),
      cmocka_unit_test(a_table_that_is_missing_is_made_or_told_how_to),
      cmocka_unit_test(many_make_the_table_at_once),
      cmocka_unit_test(a_table_that_was_dropped_is_made_again),
      cmocka_unit_test(what_the_server_says_of_a_statement_is_understood),
      cmocka_unit_test(an_end_at_infinity_is_a_long_time),
      cmocka_unit_test(an_unlock_is_told),
      cmocka_unit_test(a_watch_that_broke_is_reported),
      cmocka_unit_test(a_resource_refuses_a_holder_who_is_late),
      cmocka_unit_test(a_standby_is_refused_and_so_is_a_database_for_reading),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
