/* test_lock_rows_shared.c: the flaws of the usual Redis locks, row by row (docs/locks.md has the
 * table), against a real Redis and corral's own API: rows W, shared locks. */
#include "support/lock_rows_kit.h"

/* ---- W: shared locks ----------------------------------------------------------------------- */

static void w2_w3_a_dead_readers_hold_ends_alone_and_its_release_says_lost(void **state) {
  (void)state;
  corral_lock *dead = take(a, "n", CORRAL_LOCK(.shared = 1, .ttl_ms = 100)),
              *alive = take(b, "n", CORRAL_LOCK(.shared = 1, .ttl_ms = 60000, .owner = "alive"));
  corral_lock_holder who[2];
  size_t count = 2;
  for (int64_t end = crl_env_now_ms() + 10000; count == 2 && crl_env_now_ms() < end;
       crl_env_pause_us(5000))
    assert_int_equal(corral_lock_show(b, "n", 1, who, 2, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1);
  assert_true(who[0].mine);
  assert_int_equal(corral_lock_release(dead, &error), CORRAL_ELOST);
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(alive, &error), CORRAL_OK);
  assert_int_equal(try(a, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

static void w4_taking_it_again_never_adds_up_lives(void **state) {
  (void)state;
  corral_lock *held[5];
  corral_lock_holder who;
  size_t count;
  for (int i = 0; i < 5; i++) held[i] = take(a, "n", CORRAL_LOCK(.ttl_ms = 10000, .reentrant = 1));
  assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_in_range(who.left_ms, 1, 10000);
  for (int i = 0; i < 5; i++) assert_int_equal(corral_lock_release(held[i], &error), CORRAL_OK);
}

static void w5_a_downgrade_lets_ten_waiting_readers_in(void **state) {
  (void)state;
  enum { READERS = 10 };
  waiter r[READERS] = {0};
  corral *c[READERS];
  corral_lock *writer = take(a, "n", CORRAL_LOCK(.ttl_ms = 60000));
  for (int i = 0; i < READERS; i++) {
    c[i] = open_one(NULL);
    start(&r[i], c[i], CORRAL_LOCK(.shared = 1, .wait_ms = 30000));
  }
  for (int i = 0; i < READERS; i++) until(c[i], CORRAL_EVENT_LOCK_ASKED, 3);
  assert_int_equal(corral_lock_downgrade(writer, &error), CORRAL_OK);
  for (int i = 0; i < READERS; i++) {
    pthread_join(r[i].thread, NULL);
    assert_int_equal(r[i].status, CORRAL_OK);
    corral_close(c[i]);
  }
  assert_int_equal(corral_lock_release(writer, &error), CORRAL_OK);
}

static void w6_a_reader_who_asks_to_write_is_refused_at_once(void **state) {
  (void)state;
  corral_lock *reader = take(a, "n", CORRAL_LOCK(.shared = 1)), *none = NULL;
  assert_int_equal(
      corral_lock_take(a, "n", 1, CORRAL_LOCK(.reentrant = 1, .wait_ms = 60000), &none, &error),
      CORRAL_ERECURSION);
  assert_int_equal(corral_lock_release(reader, &error), CORRAL_OK);
}

static atomic_int stop_reading;

static void *read_on_and_on(void *arg) {
  corral *c = arg;
  while (!atomic_load(&stop_reading)) {
    corral_lock *lock;
    if (corral_lock_take(c, "n", 1, CORRAL_LOCK(.shared = 1, .wait_ms = 20000), &lock, NULL) !=
        CORRAL_OK)
      continue;
    crl_env_pause_us(30000);
    corral_lock_release(lock, NULL);
  }
  return NULL;
}

/* Eight readers with overlapping holds of 30 ms; a writer that only waited for a gap would never
 * get the lock. */
static void w7_a_waiting_writer_is_not_starved_by_readers(void **state) {
  (void)state;
  enum { READERS = 8 };
  pthread_t readers[READERS];
  corral *c[READERS];
  atomic_store(&stop_reading, 0);
  for (int i = 0; i < READERS; i++) {
    c[i] = open_one(NULL);
    if (pthread_create(&readers[i], NULL, read_on_and_on, c[i]) != 0) abort();
  }
  for (int i = 0; i < READERS; i++) until(c[i], CORRAL_EVENT_LOCKED, 2);
  for (int i = 0; i < 5; i++) {
    corral_lock *writer = take(a, "n", CORRAL_LOCK(.wait_ms = 20000));
    assert_int_equal(corral_lock_release(writer, &error), CORRAL_OK);
  }
  atomic_store(&stop_reading, 1);
  for (int i = 0; i < READERS; i++) {
    pthread_join(readers[i], NULL);
    corral_close(c[i]);
  }
}

static void w8_a_lost_message_delays_a_waiter_and_no_more(void **state) {
  (void)state;
  waiter w = {0};
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = 60000));
  start(&w, b, CORRAL_LOCK(.wait_ms = 30000));
  until(b, CORRAL_EVENT_LOCK_ASKED, 3);
  redis_server_ask(server, "CLIENT KILL TYPE pubsub");
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  pthread_join(w.thread, NULL);
  assert_int_equal(w.status, CORRAL_OK);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(w2_w3_a_dead_readers_hold_ends_alone_and_its_release_says_lost),
      T(w4_taking_it_again_never_adds_up_lives),
      T(w5_a_downgrade_lets_ten_waiting_readers_in),
      T(w6_a_reader_who_asks_to_write_is_refused_at_once),
      T(w7_a_waiting_writer_is_not_starved_by_readers),
      T(w8_a_lost_message_delays_a_waiter_and_no_more),
  };
  return cmocka_run_group_tests(tests, start_server, stop_server);
}
