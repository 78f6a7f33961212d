/* test_hot.c: the sketch of the heaviest keys: what it promises of any stream, how heat passes, and
 * which keys are hot. The time is an argument; threads are used only in the last test. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "os/hash.h"
#include "stats/hot.h"
#include "support/zipf_kit.h"

enum { GETS = 100000, TABLES = 5, THREADS = 4 };

/* ---- one line for each call ---------------------------------------------------------------- */

typedef struct named {
  char text[32];
  crl_hot_get get;
} named;

static const crl_hot_get *get_of(named *room, int key) {
  int len = snprintf(room->text, sizeof room->text, "key %d", key);
  room->get = (crl_hot_get){
      .stored = room->text, .key = room->text, .stored_len = (size_t)len, .key_len = (size_t)len};
  room->get.hash = crl_hash(room->text, (size_t)len);
  return &room->get;
}

static void count(crl_hot_table *table, int key) {
  named room;
  (void)crl_hot_count(table, get_of(&room, key), 1);
}

static void add(crl_hot *hot, int key, int times, int64_t now) {
  named room;
  for (int i = 0; i < times; i++) crl_hot_add(hot, get_of(&room, key), now);
}

static int is_hot(const crl_hot *hot, int key) {
  named room;
  return crl_hot_has(hot, get_of(&room, key)->hash);
}

/* The key of a counter; -1: it is free. */
static int key_of(const crl_hot_table *table, size_t i) {
  int key = -1;
  crl_hot_name name = crl_hot_name_of(table, i);
  if (table->counts[i] > 0) assert_int_equal(sscanf((const char *)name.key, "key %d", &key), 1);
  return key;
}

static size_t counter_of(const crl_hot_table *table, int key) {
  size_t i = 0;
  while (i < CRL_HOT_KEYS && key_of(table, i) != key) i++;
  return i;
}

/* ---- the promises -------------------------------------------------------------------------- */

/* The bounds of space-saving, of counts that are real numbers; `slack`: what rounding costs. */
static void keeps_its_promises(const crl_hot_table *table, const double *gets, double slack) {
  double all = 0, sum = 0;
  for (int key = 0; key < ZIPF_KEYS; key++) all += gets[key];
  for (int key = 0; key < ZIPF_KEYS; key++)
    if (gets[key] > all / CRL_HOT_KEYS + slack && counter_of(table, key) == CRL_HOT_KEYS)
      fail_msg("key %d has %.0f of %.0f gets, and no counter", key, gets[key], all);
  for (size_t i = 0; i < CRL_HOT_KEYS; i++) {
    int key = key_of(table, i);
    double most = (double)table->counts[i], error = (double)table->errors[i];
    sum += most;
    if (key < 0) continue;
    if (gets[key] > most + slack || gets[key] < most - error - slack || error > most)
      fail_msg("key %d has %.1f gets: counted %.0f, with an error of %.0f", key, gets[key], most,
               error);
    if (error > all / CRL_HOT_KEYS + slack) fail_msg("an error of %.0f in %.0f gets", error, all);
  }
  if (sum > all + slack || sum < all - slack * CRL_HOT_KEYS || sum != (double)table->total)
    fail_msg("%.0f gets have counts of %.0f, and a total of %llu", all, sum,
             (unsigned long long)table->total);
}

static void each_key_with_a_64th_of_the_gets_is_counted_within_the_bounds(void **state) {
  (void)state;
  static crl_hot_table table;
  static zipf z;
  for (uint64_t seed = 1; seed <= 5; seed++) {
    double gets[ZIPF_KEYS] = {0};
    memset(&table, 0, sizeof table);
    zipf_init(&z, seed);
    for (int i = 0; i < GETS; i++) {
      int key = zipf_next(&z);
      gets[key]++;
      count(&table, key);
      if ((i & (i + 1)) == 0) keeps_its_promises(&table, gets, 0); /* while it fills, too */
    }
    keeps_its_promises(&table, gets, 0);
    uint8_t order[CRL_HOT_KEYS];
    assert_int_equal(crl_hot_order(&table, order), CRL_HOT_KEYS);
    for (int i = 0; i < 5; i++) assert_int_equal(key_of(&table, order[i]), i);
    for (int i = 1; i < CRL_HOT_KEYS; i++)
      assert_true(table.counts[order[i - 1]] >= table.counts[order[i]]);
  }
}

/* The worst order for the sketch: light keys in turns, between those of heavy ones. */
static void an_adversary_does_not_hide_a_heavy_key(void **state) {
  (void)state;
  static crl_hot_table table;
  double gets[ZIPF_KEYS] = {0};
  memset(&table, 0, sizeof table);
  for (int i = 0; i < GETS; i++) {
    int key = i % 60 == 0 ? 999 : i % 999;
    gets[key]++;
    count(&table, key);
  }
  keeps_its_promises(&table, gets, 0);
  assert_true(counter_of(&table, 999) < CRL_HOT_KEYS);
}

static void halving_halves_all_and_keeps_the_bounds(void **state) {
  (void)state;
  static crl_hot_table table;
  static zipf z;
  double gets[ZIPF_KEYS] = {0};
  int64_t now = 1000000;
  memset(&table, 0, sizeof table);
  zipf_init(&z, 7);
  crl_hot_settle(&table, now);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < GETS / 10; i++) {
      int key = zipf_next(&z);
      gets[key]++;
      count(&table, key);
    }
    int times = 1 + round % 3;
    now += times * CRL_HOT_HALF_MS;
    crl_hot_settle(&table, now - 1); /* one less is due */
    crl_hot_settle(&table, now);
    for (int key = 0; key < ZIPF_KEYS; key++) gets[key] /= 1 << times;
    keeps_its_promises(&table, gets, 2);
  }
  crl_hot_settle(&table, now + 40 * CRL_HOT_HALF_MS);
  assert_int_equal(table.total, 0);
}

static void tables_of_a_clock_that_began_anew_are_empty(void **state) {
  (void)state;
  static crl_hot_table table;
  memset(&table, 0, sizeof table);
  crl_hot_settle(&table, 5000000);
  count(&table, 1);
  crl_hot_settle(&table, 5000000);
  assert_int_equal(table.total, 1);
  crl_hot_settle(&table, 4000000);
  assert_int_equal(table.total, 0);
  table.counts[0] = table.total = 1;
  table.halved = (uint64_t)INT64_MIN;
  crl_hot_settle(&table, 4000000);
  assert_int_equal(table.halved, 4000000);
}

static void a_sum_of_tables_has_the_bounds_of_all_gets(void **state) {
  (void)state;
  static crl_hot_table table, sum;
  static zipf z;
  double gets[ZIPF_KEYS] = {0};
  memset(&sum, 0, sizeof sum);
  zipf_init(&z, 3);
  for (int t = 0; t < TABLES; t++) {
    memset(&table, 0, sizeof table);
    for (int i = 0; i < GETS / TABLES; i++) {
      int key = (zipf_next(&z) + t * 2) % ZIPF_KEYS; /* each has other keys in front */
      gets[key]++;
      count(&table, key);
    }
    for (size_t i = 0; i < CRL_HOT_KEYS; i++) table.hashes[i] = (uint64_t)t; /* are no names */
    crl_hot_merge(&sum, &table);
  }
  assert_int_equal(sum.total, GETS);
  double all = 0;
  for (int key = 0; key < ZIPF_KEYS; key++) all += gets[key];
  for (int key = 0; key < ZIPF_KEYS; key++) {
    size_t i = counter_of(&sum, key);
    if (i == CRL_HOT_KEYS && gets[key] > all / CRL_HOT_KEYS) fail_msg("key %d is missing", key);
    if (i == CRL_HOT_KEYS) continue;
    double most = (double)sum.counts[i], error = (double)sum.errors[i];
    if (gets[key] > most || gets[key] < most - error || error > all / CRL_HOT_KEYS)
      fail_msg("key %d has %.0f gets: counted %.0f, error %.0f", key, gets[key], most, error);
  }
}

/* Keys with the same first bytes, and others that are as long. */
static void keys_are_told_apart_by_all_their_bytes(void **state) {
  (void)state;
  static crl_hot_table one, other;
  char text[2][200];
  memset(&one, 0, sizeof one);
  memset(&other, 0, sizeof other);
  for (int k = 0; k < 2; k++) {
    memset(text[k], 'x', sizeof text[k]);
    text[k][150] = (char)('a' + k);
    crl_hot_get get = {.hash = crl_hash(text[k], 200),
                       .stored = text[k],
                       .key = text[k],
                       .stored_len = 200,
                       .key_len = 200};
    (void)crl_hot_count(&one, &get, 2);
    (void)crl_hot_count(k == 0 ? &one : &other, &get, 2);
  }
  crl_hot_merge(&one, &other);
  assert_int_equal(one.counts[0], 4);
  assert_int_equal(one.counts[1], 4);
  assert_int_equal(one.counts[2], 0);
  assert_int_equal(crl_hot_name_of(&one, 0).key_len, 200);
}

/* ---- hot keys ------------------------------------------------------------------------------ */

static crl_hot_table room;

static crl_hot hot_from(int64_t percent) {
  memset(&room, 0, sizeof room);
  return (crl_hot){.table = &room, .percent = percent};
}

static void a_key_with_its_share_of_the_gets_is_hot(void **state) {
  (void)state;
  crl_hot hot = hot_from(5);
  assert_false(crl_hot_any(&hot));
  for (int i = 0; i < 3000; i++) {
    add(&hot, i % 10 == 0 ? 1 : 1000 + i, 1, 1000);
    if (i % 25 == 0) add(&hot, 2, 1, 1000);
  }
  assert_true(is_hot(&hot, 1));  /* 9.6 % */
  assert_false(is_hot(&hot, 2)); /* 3.9 % */
  assert_int_equal(atomic_load(&hot.marked), 1);
}

static void a_few_gets_make_no_key_hot(void **state) {
  (void)state;
  crl_hot hot = hot_from(5);
  add(&hot, 1, CRL_HOT_LEAST / CRL_HOT_EVERY - 1, 1000);
  assert_false(is_hot(&hot, 1));
  add(&hot, 1, 1, 1000);
  assert_true(is_hot(&hot, 1));
}

static void without_a_threshold_no_key_is_hot(void **state) {
  (void)state;
  crl_hot hot = hot_from(-1);
  add(&hot, 1, 1000, 1000);
  assert_false(is_hot(&hot, 1));
  assert_int_equal(room.total, 1000 * CRL_HOT_EVERY);
}

/* The last key of the table is an error of others': nothing of it is certain. */
static void what_may_be_an_error_makes_no_key_hot(void **state) {
  (void)state;
  crl_hot hot = hot_from(1);
  for (int round = 0; round < 40; round++)
    for (int key = 0; key < 200; key++) add(&hot, key, 1, 1000); /* counted as 1.6 %, are 0.5 % */
  for (int key = 0; key < 200; key++) assert_false(is_hot(&hot, key));
}

/* Half of what makes a key hot keeps it so: it doesn't come and go by chance. */
static void heat_passes(void **state) {
  (void)state;
  crl_hot hot = hot_from(10);
  int64_t now = 1000;
  add(&hot, 1, 100, now);
  add(&hot, 2, 700, now);
  assert_true(is_hot(&hot, 1) && is_hot(&hot, 2));
  for (int i = 0; i < 2; i++) { /* with 6 % of the gets it stays hot */
    now += CRL_HOT_HALF_MS;
    add(&hot, 2, 750, now);
    add(&hot, 1, 45, now);
    assert_true(is_hot(&hot, 1));
  }
  for (int i = 0; i < 4; i++) add(&hot, 2, 700, now += CRL_HOT_HALF_MS);
  assert_false(is_hot(&hot, 1));
  assert_true(is_hot(&hot, 2));
  now += 100 * CRL_HOT_HALF_MS; /* a day when nobody came */
  add(&hot, 3, 1, now);
  assert_false(crl_hot_any(&hot));
  assert_int_equal(room.total, CRL_HOT_EVERY);
}

static void one_call_in_a_pause_has_the_turn(void **state) {
  (void)state;
  crl_hot hot = hot_from(5);
  named a, b;
  add(&hot, 1, 100, 1000);
  add(&hot, 2, 100, 1000);
  uint64_t one = get_of(&a, 1)->hash, other = get_of(&b, 2)->hash;
  assert_true(crl_hot_turn(&hot, one, 2000, 500));
  for (int64_t now = 2000; now < 2500; now += 100) assert_false(crl_hot_turn(&hot, one, now, 500));
  assert_true(crl_hot_turn(&hot, other, 2000, 500));
  assert_true(crl_hot_turn(&hot, one, 2500, 500));
  assert_false(crl_hot_turn(&hot, 77, 9000, 500)); /* isn't hot */
}

/* ---- which gets are counted ---------------------------------------------------------------- */

/* By every 64th get keys that come in 64 turns would be one key. */
static void gets_are_counted_one_of_64_at_random(void **state) {
  (void)state;
  enum { TURNS = 64, ROUNDS = 20000, MEAN = ROUNDS / CRL_HOT_EVERY };
  int counted[TURNS] = {0}, all = 0;
  crl_readers_begin();
  for (int i = 0; i < TURNS * ROUNDS; i++)
    if (!crl_hot_passes() && crl_hot_draw()) counted[i % TURNS]++, all++;
  assert_in_range(all, TURNS * MEAN * 95 / 100, TURNS * MEAN * 105 / 100);
  for (int i = 0; i < TURNS; i++) assert_in_range(counted[i], MEAN / 2, MEAN * 3 / 2);
}

/* A process that lives shortly begins with a few keys: they are not what most calls ask for. */
static void the_first_get_of_a_thread_is_counted_no_more_often(void **state) {
  (void)state;
  int first = 0;
  crl_readers_begin();
  for (int i = 0; i < 1000; i++) {
    if (crl_reader_mine != NULL) crl_reader_mine->distance = 0; /* as of a new one */
    first += !crl_hot_passes() && crl_hot_draw();
    assert_in_range(crl_reader_mine->distance, 1, 2 * CRL_HOT_EVERY - 1);
  }
  assert_int_equal(first, 0);
}

/* ---- threads ------------------------------------------------------------------------------- */

typedef struct counting {
  crl_hot *hot;
  int number;
  _Atomic int *ended;
} counting;

static void *counts(void *arg) {
  counting *me = arg;
  named room_of_key;
  for (int i = 0; i < 20000; i++) {
    int key = i % 2 == 0 ? 7 : me->number * 100000 + i;
    crl_hot_add(me->hot, get_of(&room_of_key, key), 1000 + i / 4);
    (void)is_hot(me->hot, 7);
  }
  atomic_fetch_add(me->ended, 1);
  return NULL;
}

static void threads_count_in_one_table_and_wait_for_nobody(void **state) {
  (void)state;
  static crl_hot hot;
  enum { WORDS = sizeof(crl_hot_table) / 8 };
  static crl_hot_table seen;
  static uint64_t words[WORDS];
  _Atomic int ended = 0;
  pthread_t threads[THREADS];
  counting each[THREADS];
  hot = hot_from(5);
  for (int i = 0; i < THREADS; i++) {
    each[i] = (counting){.hot = &hot, .number = i, .ended = &ended};
    assert_int_equal(pthread_create(&threads[i], NULL, counts, &each[i]), 0);
  }
  int whole = 0;
  while (atomic_load(&ended) < THREADS || whole == 0) {
    for (size_t i = 0; i < WORDS; i++) words[i] = atomic_load((_Atomic uint64_t *)&room + i);
    if (!crl_hot_take(&seen, words)) continue; /* it was changing */
    assert_int_equal(seen.total, ((crl_hot_table *)words)->total);
    whole++;
  }
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_in_range(room.total, CRL_HOT_EVERY, THREADS * 20000 * CRL_HOT_EVERY);
  assert_true(is_hot(&hot, 7));
  assert_int_equal(room.begun, room.total / CRL_HOT_EVERY);
  assert_int_equal(room.ended, room.begun);
}

/* The lock is taken for good: as a thread that lost its processor. */
static void a_get_that_meets_another_one_is_not_counted(void **state) {
  (void)state;
  crl_hot hot = hot_from(5);
  atomic_store(&hot.locked, 1);
  add(&hot, 1, 1000, 1000);
  assert_int_equal(room.total, 0);
  atomic_store(&hot.locked, 0);
  add(&hot, 1, 1, 1000);
  assert_int_equal(room.total, CRL_HOT_EVERY);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(each_key_with_a_64th_of_the_gets_is_counted_within_the_bounds),
      T(an_adversary_does_not_hide_a_heavy_key),
      T(halving_halves_all_and_keeps_the_bounds),
      T(tables_of_a_clock_that_began_anew_are_empty),
      T(a_sum_of_tables_has_the_bounds_of_all_gets),
      T(keys_are_told_apart_by_all_their_bytes),
      T(a_key_with_its_share_of_the_gets_is_hot),
      T(a_few_gets_make_no_key_hot),
      T(without_a_threshold_no_key_is_hot),
      T(what_may_be_an_error_makes_no_key_hot),
      T(heat_passes),
      T(one_call_in_a_pause_has_the_turn),
      T(gets_are_counted_one_of_64_at_random),
      T(the_first_get_of_a_thread_is_counted_no_more_often),
      T(threads_count_in_one_table_and_wait_for_nobody),
      T(a_get_that_meets_another_one_is_not_counted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
