/* test_pool_breaker.c: servers of a pool that fail: they rest, are probed, and cost the keys of
 * other servers nothing. */
#include "support/pool_kit.h"

#include <limits.h>

/* ---- the breaker --------------------------------------------------------------------------- */

static void after_failures_in_a_row_the_store_is_left_to_rest(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 10; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.connects, 3);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 1);
  pool_end(pool);
}

static void a_success_between_keeps_the_breaker_closed(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  for (int i = 0; i < 5; i++) {
    the_fake.break_next = 2;
    one(pool, CORRAL_VERB_CLAIM);
    one(pool, CORRAL_VERB_CLAIM);
    assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  }
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 0);
  pool_end(pool);
}

/* A look on an idle handle takes no seat; its success counts as any. */
static void so_does_a_look_of_a_caller_alone(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  crl_server *server = pool->list[0];
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(server->usual.idle_count, 1);
  server->health.breaker.failures = 2;
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(server->health.breaker.failures, 0);
  assert_int_equal(server->usual.idle_count, 1);
  pool_end(pool);
}

/* Ends the rest of a server and wakes the prober. */
static void let_rest_end(crl_pool *pool, size_t number) {
  crl_server *server = pool->list[number];
  crl_latch_take(&server->latch);
  server->health.breaker.rest_until = 0;
  crl_latch_give(&server->latch);
  assert_int_equal(crl_task_at(&pool->prober, crl_env_now_ms()), CORRAL_OK);
}

static void until_connects(int count) {
  pthread_mutex_lock(&the_fake.mutex);
  while (the_fake.connects < count) pthread_cond_wait(&the_fake.changed, &the_fake.mutex);
  pthread_mutex_unlock(&the_fake.mutex);
}

static void until_event(corral_event event, unsigned count) {
  while (crl_event_counted(&events, event) < count) sched_yield();
}

static void until_resting(crl_pool *pool) {
  for (int probing = 1; probing; sched_yield()) {
    crl_latch_take(&pool->list[0]->latch);
    probing = pool->list[0]->health.breaker.probing;
    crl_latch_give(&pool->list[0]->latch);
  }
}

static void after_the_rest_a_thread_probes_and_no_caller_waits_for_it(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) one(pool, CORRAL_VERB_GET);
  let_rest_end(pool, 0);
  until_connects(4);
  until_resting(pool); /* the probe failed, so the server rests again */
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.connects, 4);
  set_gate(1);
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 0);
  until_at_gate(1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE); /* the breaker is half open */
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_UP), 0);
  set_gate(0);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  assert_int_equal(returns, 1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.connects, 5); /* uses the probe's handle */
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 1);
  pool_end(pool);
}

static void a_server_that_fails_what_is_offered_to_it_rests_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  return_works = 0;
  for (int i = 0; i < 3; i++) one(pool, CORRAL_VERB_GET);
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 0);
  until_connects(4);
  until_resting(pool);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  return_works = 1;
  let_rest_end(pool, 0);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  assert_int_equal(returns, 2);
  pool_end(pool);
}

static int hurried(crl_pool *pool) {
  corral_op op = op_of(CORRAL_VERB_CLAIM, 1);
  crl_pool_perform(pool, &op, 1, crl_env_now_ms());
  return op.status;
}

static void callers_in_a_hurry_raise_a_doubt_that_a_probe_settles(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse = 1;
  for (int i = 0; i < 2; i++) assert_int_equal(hurried(pool), CORRAL_EUNAVAILABLE);
  the_fake.refuse = 0;
  assert_int_equal(hurried(pool), CORRAL_OK); /* the success ends the doubt */
  crl_latch_take(&pool->list[0]->latch);
  assert_int_equal(pool->list[0]->health.doubts, 0);
  crl_latch_give(&pool->list[0]->latch);
  the_fake.break_next = 1;
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EINDOUBT);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_true(pool->prober.at == INT64_MAX);
  the_fake.break_next = 1;
  one(pool, CORRAL_VERB_CLAIM);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) hurried(pool);
  until_event(CORRAL_EVENT_STORE_DOWN, 1);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  pool_end(pool);
}

static int changed(crl_pool *pool, int status) {
  corral_op op = op_of(CORRAL_VERB_INVALIDATE, 1);
  op.flags = CORRAL_OP_CONFIRM;
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  assert_int_equal(op.status, status);
  return crl_op_is_unheard(&op);
}

static void a_change_that_the_server_may_not_have_heard_of_is_told_from_one_in_doubt(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.refuse_next = 1;
  assert_true(changed(pool, CORRAL_EUNAVAILABLE));
  assert_false(changed(pool, CORRAL_OK));
  the_fake.doubt_next = 1; /* replicas haven't confirmed it */
  assert_false(changed(pool, CORRAL_EINDOUBT));
  the_fake.break_next = 1;
  assert_true(changed(pool, CORRAL_EINDOUBT));
  pool_end(pool);
}

static void a_doubted_server_that_works_is_told_what_it_did_not_hear(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  crl_pool_doubt(pool, 0);
  while (returns < 1) sched_yield();
  while (one(pool, CORRAL_VERB_GET) != CORRAL_OK) sched_yield();
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 0);
  pool_end(pool);
}

/* ---- silence ------------------------------------------------------------------------------- */

static crl_pool *pool_with_times(int64_t op, int64_t away) {
  op_ms = op;
  away_ms = away;
  crl_pool *pool = pool_of(2, FAR);
  op_ms = FAR;
  away_ms = AWAY;
  the_fake.late = 1;
  return pool;
}

/* *slow: the operation says that the server is slow. */
static int told(crl_pool *pool, corral_verb verb, int *slow) {
  corral_op op = op_of(verb, 1);
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  *slow = (op.flags & CRL_OP_SLOW) != 0;
  return op.status;
}

static void a_silent_server_is_slow_and_looks_are_held_back_until_it_answers_a_probe(void **state) {
  (void)state;
  crl_pool *pool = pool_with_times(20, AWAY);
  int slow;
  set_gate(3);
  the_fake.break_next = 1;
  assert_int_equal(told(pool, CORRAL_VERB_CLAIM, &slow), CORRAL_EINDOUBT);
  assert_true(slow);
  until_at_gate(1);
  int sent = the_fake.batch_count;
  assert_int_equal(told(pool, CORRAL_VERB_GET, &slow), CORRAL_EUNAVAILABLE);
  assert_true(slow);
  assert_int_equal(told(pool, CORRAL_VERB_CLAIM, &slow), CORRAL_EUNAVAILABLE);
  assert_true(slow);
  assert_int_equal(the_fake.batch_count, sent);
  /* what keeps a lease or ends one is sent all the same, and its answer lets no looks through */
  assert_int_equal(told(pool, CORRAL_VERB_EXTEND, &slow), CORRAL_OK);
  assert_false(slow);
  assert_int_equal(told(pool, CORRAL_VERB_GET, &slow), CORRAL_EUNAVAILABLE);
  assert_int_equal(returns, 0);
  set_gate(0);
  while (told(pool, CORRAL_VERB_GET, &slow) != CORRAL_OK) sched_yield();
  assert_false(slow);
  assert_int_equal(returns, 1); /* what it did not hear was repeated before */
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 0);
  pool_end(pool);
}

static void a_server_that_stays_silent_is_away_whatever_the_number_of_timeouts(void **state) {
  (void)state;
  crl_pool *pool = pool_with_times(5, 40);
  int slow = 1;
  the_fake.break_next = INT_MAX;
  assert_int_equal(told(pool, CORRAL_VERB_CLAIM, &slow), CORRAL_EINDOUBT);
  assert_true(slow);
  until_event(CORRAL_EVENT_STORE_DOWN, 1);
  assert_int_equal(told(pool, CORRAL_VERB_GET, &slow), CORRAL_EUNAVAILABLE);
  assert_false(slow);
  pool_end(pool);
}

/* A caller that chose op_ms a moment ago has a moment less of it: its timeout counts. Where the
 * machine takes more than that moment, it is tried again. */
static void a_moment_less_than_op_ms_is_no_hurry(void **state) {
  (void)state;
  enum { OP = 2000 };
  crl_pool *pool = pool_with_times(OP, AWAY);
  int slow = 0;
  set_gate(3);
  for (int i = 0; i < 10 && !slow; i++) {
    corral_op op = op_of(CORRAL_VERB_CLAIM, 1);
    the_fake.break_next = 1;
    crl_pool_perform(pool, &op, 1, crl_env_now_ms() + OP - 1);
    assert_int_equal(op.status, CORRAL_EINDOUBT);
    int status = told(pool, CORRAL_VERB_GET, &slow);
    assert_int_equal(status, slow ? CORRAL_EUNAVAILABLE : CORRAL_OK);
  }
  assert_true(slow); /* looks are held back until a probe is answered */
  set_gate(0);
  pool_end(pool);
}

static void a_refused_connection_is_away_at_once(void **state) {
  (void)state;
  crl_pool *pool = pool_with_times(FAR, AWAY);
  int slow = 1;
  the_fake.refuse = 1;
  assert_int_equal(told(pool, CORRAL_VERB_GET, &slow), CORRAL_EUNAVAILABLE);
  assert_false(slow);
  pool_end(pool);
}

/* ---- several servers ----------------------------------------------------------------------- */

static void a_sick_server_costs_the_keys_of_the_others_nothing(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  the_fake.refuse_server = 1;
  corral_op odd = op_of(CORRAL_VERB_GET, 1), even = op_of(CORRAL_VERB_GET, 2);
  for (int i = 0; i < 5; i++) {
    crl_pool_perform(pool, &odd, 1, INT64_MAX);
    crl_pool_perform(pool, &even, 1, INT64_MAX);
    assert_int_equal(odd.status, CORRAL_EUNAVAILABLE);
    assert_int_equal(even.status, CORRAL_OK);
  }
  assert_int_equal(the_fake.connects, 3 + 1);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 1);
  pool_end(pool);
}

static void a_batch_is_split_by_server_and_each_operation_gets_its_own_result(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  corral_op ops[6];
  the_fake.refuse_server = 1;
  for (size_t i = 0; i < 6; i++) ops[i] = op_of(CORRAL_VERB_GET, i + 1);
  crl_pool_perform(pool, ops, 6, INT64_MAX);
  for (size_t i = 0; i < 6; i++) {
    assert_int_equal(ops[i].status, i % 2 == 0 ? CORRAL_EUNAVAILABLE : CORRAL_OK);
    if (i % 2 == 1) assert_int_equal(ops[i].state.life_ms, i + 1);
  }
  assert_int_equal(the_fake.batch_count, 1);
  assert_int_equal(the_fake.batches[0], 3);
  pool_end(pool);
}

static void a_server_that_is_back_is_told_apart_from_one_that_is_not(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  corral_op odd = op_of(CORRAL_VERB_GET, 1), even = op_of(CORRAL_VERB_GET, 2);
  the_fake.refuse = 1;
  for (int i = 0; i < 3; i++) {
    crl_pool_perform(pool, &odd, 1, INT64_MAX);
    crl_pool_perform(pool, &even, 1, INT64_MAX);
  }
  pthread_mutex_lock(&the_fake.mutex);
  the_fake.refuse = 0;
  pthread_mutex_unlock(&the_fake.mutex);
  let_rest_end(pool, 1);
  until_event(CORRAL_EVENT_STORE_UP, 1);
  crl_pool_perform(pool, &odd, 1, INT64_MAX);
  crl_pool_perform(pool, &even, 1, INT64_MAX);
  assert_int_equal(odd.status, CORRAL_OK);
  assert_int_equal(even.status, CORRAL_EUNAVAILABLE);
  pool_end(pool);
}

/* Ends the rest of a server now, and each later one at once. */
static void let_be_due(crl_pool *pool, size_t number) {
  crl_server *server = pool->list[number];
  crl_latch_take(&server->latch);
  server->health.breaker.rest_until = server->health.breaker.rest_ms = 0;
  crl_latch_give(&server->latch);
}

/* A server that hangs for long at each probe keeps no other one from its turn. */
static void servers_that_are_due_are_probed_in_turn(void **state) {
  (void)state;
  crl_pool *pool = pool_with(&spread, 2, 1, FAR);
  corral_op odd = op_of(CORRAL_VERB_GET, 1), even = op_of(CORRAL_VERB_GET, 2);
  the_fake.refuse_next = 6;
  for (int i = 0; i < 3; i++) {
    crl_pool_perform(pool, &odd, 1, INT64_MAX);
    crl_pool_perform(pool, &even, 1, INT64_MAX);
  }
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 2);
  let_be_due(pool, 0);
  let_be_due(pool, 1);
  the_fake.refuse_next = 7;
  assert_true(probe(&pool->prober) == INT64_MAX);
  assert_int_equal(the_fake.connects, 6 + 9);
  for (int i = 6; i < 6 + 9; i++) assert_int_equal(the_fake.asked[i], (i + 1) % 2);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_UP), 2);
  pool_end(pool);
}

enum { PROBE_MS = 10000, SILENT_MS = 20000 };

/* The time that a probe is given in the middle of a long silence. */
static int64_t time_of_probe(const corral_store *plugin) {
  op_ms = PROBE_MS;
  crl_pool *pool = pool_with(plugin, 2, 1, FAR);
  op_ms = FAR;
  corral_op even = op_of(CORRAL_VERB_GET, 2);
  crl_pool_perform(pool, &even, 1, INT64_MAX);
  crl_server *server = pool->list[0];
  crl_latch_take(&server->latch);
  server->health.breaker.silent_ms = SILENT_MS;
  server->health.breaker.silent_until = crl_env_now_ms();
  server->health.checking = server->health.holding = 1;
  crl_latch_give(&server->latch);
  crl_server_probe(server, pool);
  assert_int_equal(returns, 1);
  pool_end(pool);
  return the_fake.probe_time_ms;
}

static void a_probe_waits_long_for_a_silent_server_that_has_no_successor(void **state) {
  (void)state;
  assert_in_range(time_of_probe(&spread), PROBE_MS + 1, SILENT_MS);
  assert_in_range(time_of_probe(&moving), 1, PROBE_MS);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(after_failures_in_a_row_the_store_is_left_to_rest),
      cmocka_unit_test(a_success_between_keeps_the_breaker_closed),
      cmocka_unit_test(so_does_a_look_of_a_caller_alone),
      cmocka_unit_test(after_the_rest_a_thread_probes_and_no_caller_waits_for_it),
      cmocka_unit_test(a_server_that_fails_what_is_offered_to_it_rests_again),
      cmocka_unit_test(callers_in_a_hurry_raise_a_doubt_that_a_probe_settles),
      cmocka_unit_test(a_silent_server_is_slow_and_looks_are_held_back_until_it_answers_a_probe),
      cmocka_unit_test(a_server_that_stays_silent_is_away_whatever_the_number_of_timeouts),
      cmocka_unit_test(a_moment_less_than_op_ms_is_no_hurry),
      cmocka_unit_test(a_refused_connection_is_away_at_once),
      cmocka_unit_test(a_sick_server_costs_the_keys_of_the_others_nothing),
      cmocka_unit_test(a_change_that_the_server_may_not_have_heard_of_is_told_from_one_in_doubt),
      cmocka_unit_test(a_doubted_server_that_works_is_told_what_it_did_not_hear),
      cmocka_unit_test(a_batch_is_split_by_server_and_each_operation_gets_its_own_result),
      cmocka_unit_test(servers_that_are_due_are_probed_in_turn),
      cmocka_unit_test(a_probe_waits_long_for_a_silent_server_that_has_no_successor),
      cmocka_unit_test(a_server_that_is_back_is_told_apart_from_one_that_is_not),
  };
  return cmocka_run_group_tests_name("pool_breaker", tests, NULL, NULL);
}
