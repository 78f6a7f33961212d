/* test_redlock_away.c: locks granted by the majority of five real Redis servers that are killed,
 * restarted and stopped. */
#include "support/redlock_kit.h"

/* ---- servers that are away ----------------------------------------------------------------- */

static void two_dead_servers_of_five_cost_nothing(void **state) {
  (void)state;
  client c = redlock(0, 5, ""), other = redlock(0, 5, "");
  kill_server(1);
  kill_server(4);
  uint64_t fence = locks(&c, "k", 1);
  is_busy(&other, "k", 2);
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_OK);
  unlocks(&c, "k", 1);
  assert_true(locks(&other, "k", 2) > fence);
  closed(&c);
  closed(&other);
}

static void without_a_majority_nothing_is_taken_and_nothing_left(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=3s");
  for (size_t i = 2; i < 5; i++) kill_server(i);
  int64_t before = now_ms();
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  assert_true(now_ms() - before < 3000 + SLACK);
  if (strstr(c.error.text,
             "redlock: 2 of 5 servers granted, 0 refused, 3 didn't answer; needed: 3") == NULL)
    fail_msg("%s", c.error.text);
  for (size_t i = 0; i < 2; i++) awaits_freedom(i, "k");
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_EINDOUBT);
  IS(does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0), CORRAL_EINDOUBT);
  IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, 0), CORRAL_EUNAVAILABLE);
  closed(&c);
}

static void a_stopped_server_is_not_waited_for_where_others_are_enough(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=10s");
  locks(&c, "warm", 1); /* connects to all servers */
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "warm", 1);
  pause_server(2);
  int64_t before = now_ms();
  locks(&c, "k", 1);
  IS(does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE), CORRAL_OK);
  unlocks(&c, "k", 1);
  assert_true(now_ms() - before < 3 * 10000 - 5000); /* each of the three would wait for 10 s */
  resume_server(2);
  awaits_holds(2, "k", 0); /* the resumed server processed LOCK and the requests behind it */
  closed(&c);
}

static void a_lock_that_stopped_servers_take_too_late_is_released(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=4s");
  locks(&c, "warm", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "warm", 1);
  for (size_t i = 2; i < 5; i++) pause_server(i);
  int64_t before = now_ms();
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, LEASE), CORRAL_EUNAVAILABLE);
  assert_in_range(now_ms() - before, 3999, 4000 + SLACK);
  for (size_t i = 0; i < 2; i++) awaits_holds(i, "k", 0);
  for (size_t i = 2; i < 5; i++) resume_server(i);
  /* a record without a hold: LOCK was processed, and released */
  for (size_t i = 2; i < 5; i++) awaits_holds(i, "k", 0);
  locks(&c, "k", 2);
  closed(&c);
}

static void an_unlock_reaches_a_server_when_it_is_back(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=4s");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  pause_server(3);
  unlocks(&c, "k", 1);
  IS(does(&c, CORRAL_VERB_UNLOCK, "k", 1, 0), CORRAL_ELOST);
  int64_t until = now_ms() + 5000; /* longer than server_ms and a retry */
  while (now_ms() < until) poll(NULL, 0, 10);
  resume_server(3);
  awaits_holds(3, "k", 0);
  closed(&c);
}

static void an_unlock_that_a_server_refuses_for_a_while_is_repeated(void **state) {
  (void)state;
  client c = redlock(0, 5, "server_ms=5s&scripts=yes");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  redis_server_ask(servers[3], "ACL SETUSER default -@scripting");
  unlocks(&c, "k", 1);
  int64_t until = now_ms() + PATIENCE;
  while (redis_server_info(servers[3], "errorstat_NOPERM") < 0 && now_ms() < until)
    poll(NULL, 0, 1);
  assert_int_equal(holds_on(3, "k"), 1);
  redis_server_ask(servers[3], "ACL SETUSER default +@all");
  awaits_holds(3, "k", 0);
  closed(&c);
}

static void an_unlock_that_is_owed_is_forgotten_when_the_hold_is_over(void **state) {
  (void)state;
  client c = redlock(0, 3, "");
  IS(does(&c, CORRAL_VERB_LOCK, "k", 1, 8000), CORRAL_OK);
  for (size_t i = 0; i < 3; i++) awaits_holds(i, "k", 1);
  kill_server(2);
  unlocks(&c, "k", 1);
  int64_t until = now_ms() + 8100;
  while (now_ms() < until) poll(NULL, 0, 10);
  restart_server(2);
  until = now_ms() + PATIENCE;
  while (redis_server_info(servers[2], "cmdstat_pttl") < 0 && now_ms() < until)
    IS(does(&c, CORRAL_VERB_LOCK_SHOW, "k", 1, 0), CORRAL_EMISS);
  /* the server was sent LOCK_SHOW, and no script */
  assert_int_equal(redis_server_info(servers[2], "cmdstat_pttl"), 0);
  assert_int_equal(redis_server_info(servers[2], "cmdstat_evalsha"), -1);
  closed(&c);
}

static void closing_sends_what_was_not_sent_and_waits_for_no_stopped_server(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  unlocks(&c, "k", 1);
  closed(&c);
  for (size_t i = 0; i < SERVERS; i++) assert_int_equal(holds_on(i, "k"), 0);
  c = redlock(0, 5, "server_ms=4s");
  locks(&c, "k", 1);
  pause_server(0);
  int64_t before = now_ms();
  unlocks(&c, "k", 1);
  closed(&c);
  assert_true(now_ms() - before < 2000 + SLACK);
}

static void a_call_keeps_its_deadline(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=10s");
  pause_server(0);
  pause_server(1);
  corral_op op = op_of(CORRAL_VERB_LOCK, "k", 1, LEASE);
  op.error = &c.error;
  int64_t before = now_ms();
  assert_int_equal(perform_ops(&crl_plugin_redlock, c.handle, &op, 1, before + 100, NULL),
                   CORRAL_OK);
  IS(op, CORRAL_EUNAVAILABLE);
  assert_in_range(now_ms() - before, 99, 100 + SLACK);
  op.status = CORRAL_EINDOUBT;
  assert_int_equal(perform_ops(&crl_plugin_redlock, c.handle, &op, 1, before, NULL), CORRAL_OK);
  IS(op, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "before anything was sent"));
  resume_server(0);
  resume_server(1);
  closed(&c);
}

/* ---- servers that forget ------------------------------------------------------------------- */

static void a_hold_outlives_two_restarts_of_five_and_not_three(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  uint64_t fence = locks(&c, "k", 1);
  for (size_t i = 0; i < SERVERS; i++) awaits_holds(i, "k", 1);
  restart_server(0);
  restart_server(3);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  op.lock_extend.fence = fence;
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  restart_server(4);
  op = does(&c, CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  IS(op, CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, 0);
  /* remaining holds must be over or released */
  for (size_t i = 0; i < SERVERS; i++) awaits_freedom(i, "k");
  closed(&c);
}

/* A case that Redlock doesn't protect against: a server grants, crashes, and restarts at once
 * without its data. */
static void
a_server_that_forgets_its_grant_lets_two_in_and_the_fencing_tokens_tell_them_apart(void **state) {
  (void)state;
  client c = redlock(0, 3, ""), other = redlock(0, 3, "");
  kill_server(2);
  uint64_t first = locks(&c, "k", 1); /* granted by exactly two servers */
  restart_server(2);
  is_busy(&other, "k", 2);
  restart_server(1);
  /* what the refused try left on the third server may still be on its way back */
  corral_op op;
  int64_t patience = now_ms() + 60000;
  do op = does(&other, CORRAL_VERB_LOCK, "k", 2, LEASE);
  while (op.status == CORRAL_EBUSY && now_ms() < patience);
  IS(op, CORRAL_OK);
  assert_int_equal(holds_on(0, "k"), 1);
  assert_true(op.lock_state.fence > first);
  closed(&c);
  closed(&other);
}

/* Stores a record without holds, with this fencing token. */
static void write_fence(size_t i, const char *key, uint64_t fence) {
  uint8_t record[CORRAL_LOCK_HEAD];
  crl_registry_host()->lock_write(fence, NULL, 0, record);
  redis_server_ask(servers[i], "SET %s %b PX 600000", key, record, sizeof record);
}

static void tokens_grow_also_when_the_server_with_the_fastest_clock_dies(void **state) {
  (void)state;
  client c = redlock(0, 5, "");
  uint64_t ahead = wall_us(0) + UINT64_C(3600000000);
  write_fence(0, "k", ahead);
  kill_server(3);
  kill_server(4); /* server 0 is needed for a majority */
  uint64_t first = locks(&c, "k", 1);
  assert_true(first > ahead);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 1, LEASE);
  performed(&c, &op, 1);
  IS(op, CORRAL_OK);
  assert_true(op.lock_state.fence == first); /* all servers with the hold have this token */
  unlocks(&c, "k", 1);
  kill_server(0);
  restart_server(3);
  uint64_t second = locks(&c, "k", 2);
  assert_true(second > first);
  closed(&c);
}

static void a_token_that_all_gave_needs_no_second_round(void **state) {
  (void)state;
  client c = redlock(0, 3, "server_ms=5s");
  uint64_t ahead = wall_us(0) + UINT64_C(3600000000);
  locks(&c, "warm", 1);
  for (size_t i = 0; i < 3; i++) {
    awaits_holds(i, "warm", 1);
    write_fence(i, "k", ahead);
  }
  assert_true(locks(&c, "k", 1) == ahead + 1);
  for (size_t i = 0; i < 3; i++) awaits_holds(i, "k", 1);
  closed(&c);
}

#define TEST(name) cmocka_unit_test_teardown(name, repair)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(two_dead_servers_of_five_cost_nothing),
      TEST(without_a_majority_nothing_is_taken_and_nothing_left),
      TEST(a_stopped_server_is_not_waited_for_where_others_are_enough),
      TEST(a_lock_that_stopped_servers_take_too_late_is_released),
      TEST(an_unlock_reaches_a_server_when_it_is_back),
      TEST(an_unlock_that_a_server_refuses_for_a_while_is_repeated),
      TEST(an_unlock_that_is_owed_is_forgotten_when_the_hold_is_over),
      TEST(closing_sends_what_was_not_sent_and_waits_for_no_stopped_server),
      TEST(a_call_keeps_its_deadline),
      TEST(a_hold_outlives_two_restarts_of_five_and_not_three),
      TEST(a_server_that_forgets_its_grant_lets_two_in_and_the_fencing_tokens_tell_them_apart),
      TEST(tokens_grow_also_when_the_server_with_the_fastest_clock_dies),
      TEST(a_token_that_all_gave_needs_no_second_round),
  };
  return cmocka_run_group_tests(tests, start_servers, stop_servers);
}
