/* test_pool.c: the handles of a pool: batches of several callers, large records on handles of their
 * own, and handles that break. */
#include "support/pool_kit.h"

/* ---- batches ------------------------------------------------------------------------------- */

static void one_caller_alone_uses_one_handle_again_and_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  for (int i = 0; i < 5; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.connects, 1);
  assert_int_equal(the_fake.batch_count, 5);
  pool_end(pool);
}

static void whoever_queued_meanwhile_goes_as_one_batch(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[CALLERS];
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&others[i], pool, op_of(CORRAL_VERB_GET, (size_t)i + 2));
  until_queued(pool, CALLERS);
  set_gate(0);
  pthread_join(first.thread, NULL);
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(others[i].thread, NULL);
    assert_int_equal(others[i].op.status, CORRAL_OK);
    assert_int_equal(others[i].op.state.life_ms, i + 2);
  }
  assert_int_equal(the_fake.batch_count, 2);
  assert_int_equal(the_fake.batches[0], 1);
  assert_int_equal(the_fake.batches[1], CALLERS);
  assert_int_equal(the_fake.connects, 1);
  pool_end(pool);
}

static void a_large_record_goes_alone(void **state) {
  (void)state;
  static const uint8_t large[100 << 10];
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[3];
  corral_op big = op_of(CORRAL_VERB_SETTLE, 3);
  big.settle.record = large;
  big.settle.record_len = sizeof large;
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  for (int i = 0; i < 3; i++) {
    start(&others[i], pool, i == 1 ? big : op_of(CORRAL_VERB_GET, 2));
    until_queued(pool, i + 1);
  }
  set_gate(0);
  pthread_join(first.thread, NULL);
  for (int i = 0; i < 3; i++) pthread_join(others[i].thread, NULL);
  assert_int_equal(the_fake.batch_count, 3);
  /* the head of the queue took the other small operation along, past the large one */
  assert_int_equal(the_fake.batches[1], 2);
  assert_int_equal(the_fake.batches[2], 1);
  pool_end(pool);
}

static void there_are_never_more_handles_than_the_limit(void **state) {
  (void)state;
  crl_pool *pool = pool_of(3, FAR);
  caller callers[CALLERS];
  set_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&callers[i], pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(3);
  until_queued(pool, CALLERS - 3);
  set_gate(0);
  for (int i = 0; i < CALLERS; i++) pthread_join(callers[i].thread, NULL);
  assert_int_equal(the_fake.most_open, 3);
  assert_int_equal(the_fake.most_inside, 3);
  pool_end(pool);
}

static void who_is_still_queued_at_the_deadline_is_told_so(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first;
  corral_error error = {0};
  corral_op op = op_of(CORRAL_VERB_GET, 2);
  op.error = &error;
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  crl_pool_perform(pool, &op, 1, crl_env_now_ms());
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(error.text, "in time"));
  until_queued(pool, 0);
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_OK);
  assert_int_equal(the_fake.batch_count, 1);
  pool_end(pool);
}

static void a_record_that_the_store_would_not_take_is_not_sent(void **state) {
  (void)state;
  static const uint8_t byte[1];
  crl_pool *pool = pool_of(1, FAR);
  corral_op op = op_of(CORRAL_VERB_SETTLE, 1);
  op.settle.record = byte;
  op.settle.record_len = MOST + 1;
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  assert_int_equal(op.status, CORRAL_ETOOBIG);
  assert_int_equal(the_fake.connects, 0);
  pool_end(pool);
}

/* ---- bodies -------------------------------------------------------------------------------- */

static void a_large_record_is_in_nobodys_way(void **state) {
  (void)state;
  static const uint8_t large[LARGE];
  crl_pool *pool = pool_of(1, FAR);
  caller first;
  corral_op big = op_of(CORRAL_VERB_SETTLE, 3);
  big.settle.record = large;
  big.settle.record_len = sizeof large;
  set_gate(2);
  start(&first, pool, big);
  until_at_gate(1);
  for (int i = 0; i < 3; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(the_fake.most_open, 2);
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_OK);
  pool_end(pool);
}

static void a_look_that_meets_a_large_record_is_repeated_alone(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, 1), op_of(CORRAL_VERB_GET, 2),
                     op_of(CORRAL_VERB_GET, 3)};
  the_fake.large_len = 2;
  crl_pool_perform(pool, ops, 3, INT64_MAX);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ops[i].status, CORRAL_OK);
    assert_int_equal(ops[i].flags, 0);
    assert_int_equal(ops[i].state.life_ms, i + 1);
  }
  assert_int_equal(the_fake.reads_whole, 1);
  assert_int_equal(the_fake.batch_count, 2);
  assert_int_equal(the_fake.connects, 2);
  pool_end(pool);
}

static int batches_of(crl_pool *pool, size_t key_len) {
  corral_op op = op_of(CORRAL_VERB_GET, key_len);
  int before = the_fake.batch_count;
  crl_pool_perform(pool, &op, 1, INT64_MAX);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.flags, 0);
  return the_fake.batch_count - before;
}

static void a_key_whose_record_was_large_is_read_whole_at_once(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.large_len = 2;
  assert_int_equal(batches_of(pool, 2), 2);
  for (int i = 0; i < 3; i++) assert_int_equal(batches_of(pool, 2), 1);
  assert_int_equal(the_fake.reads_whole, 4);
  /* another key's look may ride along, and so may this one's once its record is small again */
  assert_int_equal(batches_of(pool, 3), 1);
  the_fake.large_len = 0;
  assert_int_equal(batches_of(pool, 2), 1);
  the_fake.large_len = 2;
  assert_int_equal(batches_of(pool, 2), 2);
  assert_int_equal(the_fake.reads_whole, 5);
  pool_end(pool);
}

static void what_was_cut_in_the_middle_of_anothers_body_is_asked_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  caller first, others[CALLERS];
  set_gate(1);
  start(&first, pool, op_of(CORRAL_VERB_CLAIM, 1));
  until_at_gate(1);
  for (int i = 0; i < CALLERS; i++) start(&others[i], pool, op_of(CORRAL_VERB_GET, (size_t)i + 2));
  until_queued(pool, CALLERS);
  the_fake.body_next = 2; /* the first caller's batch, and that of the others */
  set_gate(0);
  pthread_join(first.thread, NULL);
  assert_int_equal(first.op.status, CORRAL_EINDOUBT); /* the claim may have been granted */
  for (int i = 0; i < CALLERS; i++) {
    pthread_join(others[i].thread, NULL);
    assert_int_equal(others[i].op.status, CORRAL_OK);
  }
  assert_int_equal(the_fake.batches[1], CALLERS);
  pool_end(pool);
}

static void failures_in_the_middle_of_bodies_do_not_open_the_breaker(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.body_next = 10;
  for (int i = 0; i < 10; i++) assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EINDOUBT);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_int_equal(crl_event_counted(&events, CORRAL_EVENT_STORE_DOWN), 0);
  pool_end(pool);
}

/* ---- broken handles ------------------------------------------------------------------------ */

static void a_broken_handle_is_closed_and_replaced(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.break_next = 1;
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_EINDOUBT);
  assert_int_equal(the_fake.disconnects, 1);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_int_equal(the_fake.connects, 2);
  assert_int_equal(the_fake.most_open, 1);
  pool_end(pool);
}

/* Number of times a verb is sent when the idle handle breaks with the status `left`. */
static int sent_times(corral_verb verb, int left, int breaks) {
  crl_pool *pool = pool_of(1, FAR);
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  the_fake.break_next = breaks;
  the_fake.broken_status = left;
  assert_int_equal(one(pool, verb),
                   breaks > 1 || (left == CORRAL_EINDOUBT && verb != CORRAL_VERB_GET) ? left
                                                                                      : CORRAL_OK);
  int sent = the_fake.batch_count - 1;
  pool_end(pool);
  return sent;
}

static void what_was_not_sent_or_does_no_harm_is_sent_again_once(void **state) {
  (void)state;
  assert_int_equal(sent_times(CORRAL_VERB_CLAIM, CORRAL_EUNAVAILABLE, 1), 2);
  assert_int_equal(sent_times(CORRAL_VERB_GET, CORRAL_EINDOUBT, 1), 2);
  assert_int_equal(sent_times(CORRAL_VERB_SETTLE, CORRAL_EINDOUBT, 1), 1);
  assert_int_equal(sent_times(CORRAL_VERB_GET, CORRAL_EUNAVAILABLE, 9), 2);
}

static void a_fresh_handle_that_breaks_is_not_tried_again(void **state) {
  (void)state;
  crl_pool *pool = pool_of(1, FAR);
  the_fake.break_next = 1;
  the_fake.broken_status = CORRAL_EUNAVAILABLE;
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_EUNAVAILABLE);
  assert_int_equal(the_fake.batch_count, 1);
  pool_end(pool);
}

/* ---- idle handles -------------------------------------------------------------------------- */

/* So many callers at once; each leaves an idle handle. */
static void leave_handles(crl_pool *pool, int count) {
  caller callers[CALLERS];
  set_gate(1);
  for (int i = 0; i < count; i++) start(&callers[i], pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(count);
  set_gate(0);
  for (int i = 0; i < count; i++) pthread_join(callers[i].thread, NULL);
}

static void the_first_handle_makes_a_sweep_due(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  assert_true(pool->sweeper.at == INT64_MAX);
  int64_t before = crl_env_now_ms();
  assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_in_range(pool->sweeper.at, before + CRL_SWEEP_MS, crl_env_now_ms() + CRL_SWEEP_MS);
  pool_end(pool);
}

static void handles_that_nobody_used_between_two_sweeps_are_closed(void **state) {
  (void)state;
  crl_pool *pool = pool_of(3, FAR);
  leave_handles(pool, 3);
  assert_true(sweep(&pool->sweeper) != INT64_MAX);
  assert_int_equal(the_fake.disconnects, 0);
  for (int i = 0; i < 5; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_true(sweep(&pool->sweeper) != INT64_MAX);
  assert_int_equal(the_fake.disconnects, 2);
  assert_int_equal(one(pool, CORRAL_VERB_CLAIM), CORRAL_OK);
  assert_true(sweep(&pool->sweeper) != INT64_MAX);
  assert_int_equal(the_fake.disconnects, 2);
  /* without handles there is nothing to sweep */
  assert_true(sweep(&pool->sweeper) == INT64_MAX);
  assert_int_equal(the_fake.open, 0);
  /* the limit is as before */
  leave_handles(pool, 3);
  assert_int_equal(the_fake.connects, 6);
  assert_int_equal(the_fake.most_open, 3);
  pool_end(pool);
}

static void a_handle_in_use_is_not_closed(void **state) {
  (void)state;
  crl_pool *pool = pool_of(2, FAR);
  caller one_caller;
  leave_handles(pool, 2);
  set_gate(1);
  start(&one_caller, pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
  for (int i = 0; i < 3; i++) assert_true(sweep(&pool->sweeper) != INT64_MAX);
  assert_int_equal(the_fake.disconnects, 1);
  set_gate(0);
  pthread_join(one_caller.thread, NULL);
  assert_int_equal(one_caller.op.status, CORRAL_OK);
  pool_end(pool);
}

static void handles_of_large_records_and_of_all_servers_are_swept(void **state) {
  (void)state;
  static const uint8_t large[LARGE];
  crl_pool *pool = pool_with(&spread, 2, 2, FAR);
  for (size_t key_len = 1; key_len <= 2; key_len++) {
    corral_op small = op_of(CORRAL_VERB_GET, key_len), big = op_of(CORRAL_VERB_SETTLE, key_len);
    big.settle.record = large;
    big.settle.record_len = sizeof large;
    crl_pool_perform(pool, &small, 1, INT64_MAX);
    crl_pool_perform(pool, &big, 1, INT64_MAX);
  }
  assert_int_equal(the_fake.open, 4);
  for (int i = 0; i < 2; i++) (void)sweep(&pool->sweeper);
  assert_int_equal(the_fake.open, 0);
  pool_end(pool);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void without_memory_the_store_stays_its_caller_s(void **state) {
  (void)state;
  crl_pool_options options = {
      .plugin = &handled, .store = &the_fake, .events = &events, .info = {.servers = 1}};
  the_fake.closed = 0;
  crl_alloc_countdown = 0;
  assert_null(crl_pool_new(&options));
  crl_alloc_countdown = 1; /* the server's allocation fails */
  assert_null(crl_pool_new(&options));
  assert_int_equal(the_fake.closed, 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(one_caller_alone_uses_one_handle_again_and_again),
      cmocka_unit_test(whoever_queued_meanwhile_goes_as_one_batch),
      cmocka_unit_test(a_large_record_goes_alone),
      cmocka_unit_test(there_are_never_more_handles_than_the_limit),
      cmocka_unit_test(who_is_still_queued_at_the_deadline_is_told_so),
      cmocka_unit_test(a_record_that_the_store_would_not_take_is_not_sent),
      cmocka_unit_test(a_large_record_is_in_nobodys_way),
      cmocka_unit_test(a_look_that_meets_a_large_record_is_repeated_alone),
      cmocka_unit_test(a_key_whose_record_was_large_is_read_whole_at_once),
      cmocka_unit_test(what_was_cut_in_the_middle_of_anothers_body_is_asked_again),
      cmocka_unit_test(failures_in_the_middle_of_bodies_do_not_open_the_breaker),
      cmocka_unit_test(a_broken_handle_is_closed_and_replaced),
      cmocka_unit_test(what_was_not_sent_or_does_no_harm_is_sent_again_once),
      cmocka_unit_test(a_fresh_handle_that_breaks_is_not_tried_again),
      cmocka_unit_test(the_first_handle_makes_a_sweep_due),
      cmocka_unit_test(handles_that_nobody_used_between_two_sweeps_are_closed),
      cmocka_unit_test(a_handle_in_use_is_not_closed),
      cmocka_unit_test(handles_of_large_records_and_of_all_servers_are_swept),
      cmocka_unit_test(without_memory_the_store_stays_its_caller_s),
  };
  return cmocka_run_group_tests_name("pool", tests, NULL, NULL);
}
