/* test_pool_queue.c: the queue for the handles of a server: who is woken, in which order, by how
 * many system calls, and that nobody needs the server's mutex for that. */
#include "support/pool_kit.h"
#include "support/wrapped_words.h"

enum { CROWD = 40 /* more than a word has bits */ };

/* System calls since `wakes_begin`. */
static _Atomic int waits, wake_count;
static _Atomic uint32_t wakes[LOG]; /* their bits */
/* called for each wake, by its number, on the waking thread, before anybody is woken; and after */
static void (*before_wake)(int number), (*after_wake)(int number);

void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until) {
  waits++;
  __real_crl_env_word_wait_bits(word, seen, bits, until);
}

int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits) {
  int number = wake_count++;
  if (number < LOG) wakes[number] = bits;
  if (before_wake != NULL) before_wake(number);
  int woken = __real_crl_env_word_wake_bits(word, count, bits);
  if (after_wake != NULL) after_wake(number);
  return woken;
}

static crl_pool *the_pool;
static caller first, others[CROWD];
static _Atomic int returned;

static crl_pool *begin_with(const corral_store *plugin, int64_t handles) {
  the_pool = pool_with(plugin, 1, handles, FAR);
  waits = wake_count = returned = 0;
  before_wake = after_wake = NULL;
  return the_pool;
}

static crl_pool *begin(int64_t handles) { return begin_with(&handled, handles); }

static void *call_and_count(void *arg) {
  call(arg);
  returned++;
  return NULL;
}

/* Starts a caller that will be the `nth` that is queued, and waits until it sleeps. */
static void queue_up(caller *c, corral_op op, int nth) {
  int before = waits;
  c->pool = the_pool;
  c->op = op;
  assert_int_equal(pthread_create(&c->thread, NULL, call_and_count, c), 0);
  until_queued(the_pool, nth);
  while (waits == before) sched_yield();
}

/* One caller is at the gate with the only handle. */
static void occupy(void) {
  set_gate(1);
  start(&first, the_pool, op_of(CORRAL_VERB_GET, 1));
  until_at_gate(1);
}

static void end(int count) {
  pthread_join(first.thread, NULL);
  for (int i = 0; i < count; i++) {
    pthread_join(others[i].thread, NULL);
    assert_int_equal(others[i].op.status, CORRAL_OK);
  }
  pool_end(the_pool);
}

/* ---- system calls -------------------------------------------------------------------------- */

static void where_nobody_waits_nobody_is_woken(void **state) {
  (void)state;
  crl_pool *pool = begin(2);
  for (int i = 0; i < 5; i++) assert_int_equal(one(pool, CORRAL_VERB_GET), CORRAL_OK);
  assert_int_equal(wake_count, 0);
  assert_int_equal(waits, 0);
  pool_end(pool);
}

static void one_call_wakes_all_that_a_batch_served(void **state) {
  (void)state;
  begin(1);
  occupy();
  for (int i = 0; i < CALLERS; i++) queue_up(&others[i], op_of(CORRAL_VERB_GET, 2), i + 1);
  set_gate(0);
  end(CALLERS);
  assert_int_equal(the_fake.batches[1], CALLERS);
  assert_int_equal(wake_count, 2);
  assert_int_not_equal(wakes[0], CRL_BELL_ALL); /* the leader */
  assert_int_equal(wakes[1], CRL_BELL_ALL);     /* the others */
}

static void callers_whose_bits_are_the_same_lead_one_after_the_other(void **state) {
  (void)state;
  static const uint8_t large[100 << 10];
  corral_op big = op_of(CORRAL_VERB_SETTLE, 3);
  big.settle.record = large;
  big.settle.record_len = sizeof large;
  begin(1);
  occupy();
  for (int i = 0; i < CROWD; i++) queue_up(&others[i], big, i + 1);
  set_gate(0);
  end(CROWD);
  assert_int_equal(the_fake.batch_count, 1 + CROWD);
  assert_int_equal(the_fake.most_inside, 1);
  assert_int_equal(wake_count, CROWD);
  assert_int_equal(wakes[0], wakes[32]);
  assert_int_not_equal(wakes[0], wakes[1]);
}

static void no_more_handles_are_opened_than_callers_at_once(void **state) {
  (void)state;
  crl_pool *pool = begin(4);
  caller two[2];
  for (int round = 0; round < 3; round++) {
    set_gate(1);
    for (int i = 0; i < 2; i++) start(&two[i], pool, op_of(CORRAL_VERB_GET, 1));
    until_at_gate(2);
    set_gate(0);
    for (int i = 0; i < 2; i++) pthread_join(two[i].thread, NULL);
  }
  assert_int_equal(the_fake.connects, 2);
  assert_int_equal(wake_count, 0);
  pool_end(pool);
}

/* ---- order --------------------------------------------------------------------------------- */

/* The batches of the first leader and of the second one stop at the gate. The callers that the
 * first one served are woken once the second one's batch is there. */
static void stop_both(int number) {
  if (number < 2) set_gate(1);
  if (number == 2 && wakes[2] == CRL_BELL_ALL) until_at_gate(1);
}

/* Waits until this batch is at the gate, and no other. */
static void until_batch(int number) {
  pthread_mutex_lock(&the_fake.mutex);
  while (the_fake.batch_count != number || the_fake.at_gate != 1)
    pthread_cond_wait(&the_fake.changed, &the_fake.mutex);
  pthread_mutex_unlock(&the_fake.mutex);
}

static void a_handle_is_handed_on_before_the_callers_that_it_served_are_woken(void **state) {
  (void)state;
  begin(1);
  occupy();
  for (int i = 0; i < 3; i++) queue_up(&others[i], op_of(CORRAL_VERB_GET, 2), i + 1);
  before_wake = stop_both;
  set_gate(0);
  until_batch(2);
  queue_up(&others[3], op_of(CORRAL_VERB_GET, 3), 1);
  set_gate(0);
  while (returned < 3) sched_yield(); /* the second batch is at the gate still */
  until_batch(3);
  assert_int_not_equal(wakes[1], CRL_BELL_ALL);
  assert_int_equal(wakes[2], CRL_BELL_ALL);
  set_gate(0);
  end(4);
}

/* ---- a queue that grows -------------------------------------------------------------------- */

/* A batch of CALLERS, as they have been of late, is at the gate with the only handle. */
static void stall_many(void) {
  begin_with(&pipelined, 1);
  occupy();
  for (int i = 0; i < CALLERS; i++) queue_up(&others[i], op_of(CORRAL_VERB_GET, 2), i + 1);
  set_gate(4);
  until_batch(2);
  assert_int_equal(the_fake.batches[1], CALLERS);
}

static void set_rest(int64_t until, size_t handles) {
  crl_server *server = the_pool->list[0];
  crl_latch_take(&server->latch);
  server->usual.most = handles;
  server->usual.recent = CALLERS * CRL_SEATS_RECENT;
  server->usual.rests_until = until;
  crl_latch_give(&server->latch);
}

static void nobody_waits_for_ever_behind_a_batch_that_stalls(void **state) {
  (void)state;
  stall_many();
  for (int i = 0; i < 3; i++) {
    set_rest(0, 2);
    assert_int_equal(one(the_pool, i == 1 ? CORRAL_VERB_CLAIM : CORRAL_VERB_GET), CORRAL_OK);
  }
  assert_int_equal(the_fake.at_gate, 1);
  assert_int_equal(the_fake.connects, 2);
  assert_true(the_pool->list[0]->usual.rests_until > 0);
  set_gate(0);
  end(CALLERS);
}

static void the_handle_of_a_probe_is_handed_to_the_queue(void **state) {
  (void)state;
  stall_many();
  set_rest(INT64_MAX, 1); /* so it doesn't go by itself */
  queue_up(&others[CALLERS], op_of(CORRAL_VERB_GET, 3), 1);
  set_rest(0, 2);
  crl_server_doubt(the_pool->list[0]);
  crl_server_probe(the_pool->list[0], the_pool);
  while (returned < 1) sched_yield();
  assert_int_equal(the_fake.at_gate, 1);
  assert_int_equal(the_fake.connects, 2);
  set_gate(0);
  end(CALLERS + 1);
}

/* ---- the latch ----------------------------------------------------------------------------- */

/* Nobody is woken under the latch; and nobody that was served needs it to return. */
static _Atomic int held;

static void hold_latch(int number) {
  (void)number;
  uint32_t is_free = 0;
  held += atomic_compare_exchange_strong(&the_pool->list[0]->latch.word, &is_free, 1);
}

static void keep_latch(int number) {
  if (held == number) return;
  while (number == 1 && returned < CALLERS - 1) sched_yield();
  crl_latch_give(&the_pool->list[0]->latch);
}

static void results_are_told_without_the_latch(void **state) {
  (void)state;
  begin(1);
  occupy();
  for (int i = 0; i < CALLERS; i++) queue_up(&others[i], op_of(CORRAL_VERB_GET, 2), i + 1);
  held = 0;
  before_wake = hold_latch;
  after_wake = keep_latch;
  set_gate(0);
  end(CALLERS);
  assert_int_equal(wake_count, 2);
  assert_int_equal(held, 2);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(where_nobody_waits_nobody_is_woken),
      cmocka_unit_test(one_call_wakes_all_that_a_batch_served),
      cmocka_unit_test(callers_whose_bits_are_the_same_lead_one_after_the_other),
      cmocka_unit_test(no_more_handles_are_opened_than_callers_at_once),
      cmocka_unit_test(a_handle_is_handed_on_before_the_callers_that_it_served_are_woken),
      cmocka_unit_test(nobody_waits_for_ever_behind_a_batch_that_stalls),
      cmocka_unit_test(the_handle_of_a_probe_is_handed_to_the_queue),
      cmocka_unit_test(results_are_told_without_the_latch),
  };
  return cmocka_run_group_tests_name("pool_queue", tests, NULL, NULL);
}
