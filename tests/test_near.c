/* test_near.c: the near tier alone: what it keeps, forgets and evicts, and that a look which was overtaken leaves nothing. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>

#include "envelope.h"
#include "near.h"
#include "policy.h"

enum { NOW = 1000, LATER = 100000, KIB = 1 << 10, MIB = 1 << 20 };

static crl_near *near;

static int begin(void **state) {
  (void)state;
  near = crl_near_new(MIB, 7);
  return near == NULL;
}

/* Whatever a test leaves, its bytes are counted down to nothing. */
static int end(void **state) {
  (void)state;
  crl_near_clear(near);
  int left = crl_near_count(near) != 0 || crl_near_weight(near) != 0;
  crl_near_free(near);
  return left;
}

static uint64_t hash_of(unsigned key) { return crl_policy_mix(key + 1); }

static crl_bytes *bytes_of(size_t size, int letter) {
  uint8_t *data = malloc(size);
  memset(data, letter, size);
  return crl_bytes_wrap(data, size, free, data);
}

static crl_near_copy copy_of(uint8_t kind, size_t size, int letter) {
  return (crl_near_copy){.bytes = bytes_of(size, letter), .size = size, .kind = kind, .looked = NOW, .made = NOW, .fresh_until = LATER};
}

static int put_as(unsigned key, uint8_t kind, size_t size, int letter) {
  crl_near_copy copy = copy_of(kind, size, letter);
  int kept = crl_near_put(near, hash_of(key), &key, sizeof key, &copy, crl_near_ticket(near, hash_of(key)));
  crl_near_copy_clean(&copy);
  return kept;
}

static int put(unsigned key, size_t size) { return put_as(key, CRL_KIND_VALUE, size, 'a'); }

static int has_at(unsigned key, int64_t now) {
  crl_near_copy copy;
  if (!crl_near_get(near, hash_of(key), &key, sizeof key, now, &copy)) return 0;
  crl_near_copy_clean(&copy);
  return 1;
}

static int has(unsigned key) { return has_at(key, NOW); }

/* ---- what it keeps --------------------------------------------------------------------------------------- */

static void what_is_put_is_got_again_and_can_be_replaced(void **state) {
  (void)state;
  crl_near_copy copy = copy_of(CRL_KIND_VALUE, 100, 'x'), got;
  unsigned key = 1;
  copy.extras = bytes_of(10, 'e');
  copy.version = 9;
  copy.offset = 3;
  copy.size = 50;
  assert_false(has(1));
  assert_int_equal(crl_near_put(near, hash_of(1), &key, sizeof key, &copy, crl_near_ticket(near, hash_of(1))), 1);
  assert_int_equal(crl_near_get(near, hash_of(1), &key, sizeof key, NOW, &got), 1);
  assert_ptr_equal(got.bytes, copy.bytes);
  assert_ptr_equal(got.extras, copy.extras);
  assert_true(got.version == 9 && got.offset == 3 && got.size == 50 && got.fresh_until == LATER && got.kind == CRL_KIND_VALUE);
  crl_near_copy_clean(&copy);
  size_t before = crl_near_weight(near);
  assert_int_equal(put(1, 40), 1);
  assert_int_equal(crl_near_count(near), 1);
  assert_int_equal(crl_near_weight(near), before - 100 - 10 + 40);
  /* what was handed out is still whole */
  assert_int_equal(got.bytes->data[99], 'x');
  crl_near_copy_clean(&got);
}

static void keys_of_one_hash_are_told_apart_and_dropped_together(void **state) {
  (void)state;
  crl_near_copy copy = copy_of(CRL_KIND_VALUE, 10, 'a'), got;
  for (unsigned key = 0; key < 3; key++) assert_int_equal(crl_near_put(near, 77, &key, sizeof key, &copy, crl_near_ticket(near, 77)), 1);
  crl_near_copy_clean(&copy);
  assert_int_equal(crl_near_count(near), 3);
  for (unsigned key = 0; key < 4; key++) {
    int there = crl_near_get(near, 77, &key, sizeof key, NOW, &got);
    assert_int_equal(there, key < 3);
    if (there) crl_near_copy_clean(&got);
  }
  put(5, 10);
  crl_near_drop(near, 77);
  assert_int_equal(crl_near_count(near), 1);
  assert_true(has(5));
}

static void what_is_over_is_forgotten(void **state) {
  (void)state;
  static const int64_t lives[][3] = {{2000, 0, 0}, {0, 2000, 0}, {0, 0, 2000}, {1500, 1800, 2000}};
  for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
    crl_near_copy copy = copy_of(CRL_KIND_VALUE, 10, 'a');
    unsigned key = 1;
    copy.fresh_until = lives[i][0];
    copy.swr_until = lives[i][1];
    copy.sie_until = lives[i][2];
    assert_int_equal(crl_near_put(near, hash_of(1), &key, sizeof key, &copy, crl_near_ticket(near, hash_of(1))), 1);
    crl_near_copy_clean(&copy);
    assert_true(has_at(1, 1999));
    assert_false(has_at(1, 2000));
    assert_int_equal(crl_near_count(near), 0);
  }
}

/* ---- tickets --------------------------------------------------------------------------------------------- */

static void a_look_that_was_overtaken_leaves_nothing(void **state) {
  (void)state;
  crl_near_copy copy = copy_of(CRL_KIND_VALUE, 10, 'a');
  unsigned key = 1;
  for (int clears = 0; clears < 2; clears++) {
    uint64_t ticket = crl_near_ticket(near, hash_of(1));
    if (clears) crl_near_clear(near);
    else crl_near_drop(near, hash_of(1));
    assert_int_equal(crl_near_put(near, hash_of(1), &key, sizeof key, &copy, ticket), 0);
    assert_false(has(1));
  }
  crl_near_copy_clean(&copy);
}

enum { RACERS = 3, RACES = 20000 };

/* The truth is a number that only grows; whoever changes it drops the copy afterwards, as a store's watch does. */
typedef struct race {
  _Atomic unsigned truth;
  _Atomic int over, wrong;
  _Atomic unsigned dropped; /* the truth whose change has been told */
} race;

static void *read_and_keep(void *arg) {
  race *r = arg;
  unsigned key = 1;
  while (!atomic_load(&r->over)) {
    uint64_t ticket = crl_near_ticket(near, hash_of(1));
    unsigned told = atomic_load(&r->dropped), seen = atomic_load(&r->truth);
    crl_near_copy copy = copy_of(CRL_KIND_VALUE, 10, 'a'), got;
    copy.version = seen;
    crl_near_put(near, hash_of(1), &key, sizeof key, &copy, ticket);
    crl_near_copy_clean(&copy);
    if (!crl_near_get(near, hash_of(1), &key, sizeof key, NOW, &got)) continue;
    /* what was told before this look began can't be missing in what it finds */
    if (got.version < told) atomic_store(&r->wrong, 1);
    crl_near_copy_clean(&got);
  }
  return NULL;
}

static void nothing_outdated_stays_behind_a_drop(void **state) {
  (void)state;
  race r = {0};
  pthread_t threads[RACERS];
  for (int i = 0; i < RACERS; i++) assert_int_equal(pthread_create(&threads[i], NULL, read_and_keep, &r), 0);
  for (unsigned i = 1; i <= RACES; i++) {
    atomic_store(&r.truth, i);
    crl_near_drop(near, hash_of(1));
    atomic_store(&r.dropped, i);
  }
  atomic_store(&r.over, 1);
  for (int i = 0; i < RACERS; i++) pthread_join(threads[i], NULL);
  assert_false(r.wrong);
}

/* ---- bytes ----------------------------------------------------------------------------------------------- */

static void bytes_stay_within_the_budget(void **state) {
  (void)state;
  for (unsigned key = 0; key < 5000; key++) {
    assert_int_equal(put(key, 1 + key % 2000), 1);
    assert_true(crl_near_weight(near) <= MIB);
    assert_true(has(key)); /* the newcomer is there */
  }
  assert_true(crl_near_weight(near) > MIB / 2);
}

static void a_copy_above_a_tenth_is_refused_and_takes_the_place_of_none(void **state) {
  (void)state;
  assert_int_equal(put(1, 10), 1);
  assert_int_equal(put(1, MIB / 10), 0);
  assert_false(has(1)); /* what it would have replaced is outdated */
  assert_int_equal(put(1, MIB / 10 - KIB), 1);
}

static void negatives_and_values_never_evict_each_other(void **state) {
  (void)state;
  enum { FEW = 20 };
  for (unsigned key = 0; key < FEW; key++) assert_int_equal(put(key, KIB), 1);
  for (unsigned key = 1000; key < 6000; key++) assert_int_equal(put_as(key, CRL_KIND_NEGATIVE, 200, 'n'), 1);
  for (unsigned key = 0; key < FEW; key++) assert_true(has(key));
  size_t with_negatives = crl_near_weight(near);
  assert_true(with_negatives - FEW * KIB < MIB / 10 + FEW * KIB);
  for (unsigned key = 10000; key < 15000; key++) put(key, KIB);
  size_t negatives = 0;
  for (unsigned key = 1000; key < 6000; key++) negatives += (size_t)has(key);
  assert_true(negatives * 200 > MIB / 40);
}

typedef struct writer {
  unsigned first;
  _Atomic int *over;
} writer;

static void *write_on(void *arg) {
  writer *w = arg;
  for (unsigned key = w->first; !atomic_load(w->over); key++) {
    put(w->first + key % 3000, 1 + key % 3000);
    if (key % 7 == 0) crl_near_drop(near, hash_of(w->first + key % 1000));
    has(w->first + key % 500);
  }
  return NULL;
}

static void many_writers_stay_within_the_budget(void **state) {
  (void)state;
  _Atomic int over = 0;
  pthread_t threads[4];
  writer writers[4];
  for (unsigned i = 0; i < 4; i++) {
    writers[i] = (writer){i * 2000, &over};
    assert_int_equal(pthread_create(&threads[i], NULL, write_on, &writers[i]), 0);
  }
  for (int i = 0; i < 20000; i++) {
    size_t weight = crl_near_weight(near);
    if (weight > MIB + 4 * 4 * KIB) fail_msg("%zu bytes", weight);
  }
  atomic_store(&over, 1);
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  assert_true(crl_near_weight(near) <= MIB);
}

/* ---- who goes -------------------------------------------------------------------------------------------- */

/* A hundred keys that were hit stand a scan of ten times the budget. */
static void a_scan_does_not_flush_what_is_hit(void **state) {
  (void)state;
  enum { HOT = 100 };
  for (unsigned key = 0; key < HOT; key++) {
    assert_int_equal(put(key, KIB), 1);
    for (int i = 0; i < 3; i++) assert_true(has(key));
  }
  for (unsigned key = 1000; key < 1000 + 10 * KIB; key++) {
    put(key, KIB);
    if (key % 500 == 0)
      for (unsigned hot = 0; hot < HOT; hot++) has(hot);
  }
  unsigned left = 0;
  for (unsigned key = 0; key < HOT; key++) left += (unsigned)has(key);
  assert_true(left > HOT * 9 / 10);
}

/* Seen once, gone, and seen again soon: now it is of the main queue, and stands a scan that it didn't stand before. */
static void what_comes_back_soon_is_kept_longer(void **state) {
  (void)state;
  enum { BACK = 50 };
  unsigned next = 10000, first = 0, second = 0;
  for (unsigned key = 20000; key < 20000 + KIB; key++) {
    put(key, KIB); /* fills the main queue too: what has hits goes there */
    has(key);
    has(key);
  }
  for (unsigned key = 0; key < BACK; key++) put(key, KIB);
  for (int i = 0; i < 300; i++) put(next++, KIB);
  for (unsigned key = 0; key < BACK; key++) first += (unsigned)has(key);
  for (unsigned key = 0; key < BACK; key++) put(key, KIB);
  for (int i = 0; i < 300; i++) put(next++, KIB);
  for (unsigned key = 0; key < BACK; key++) second += (unsigned)has(key);
  if (second <= first + BACK / 4) fail_msg("%u of %u stood the first scan, %u the second", first, BACK, second);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static void without_memory_nothing_is_kept_and_nothing_breaks(void **state) {
  (void)state;
  for (long after = 0; after < 200; after++) {
    crl_alloc_countdown = after;
    crl_near *other = crl_near_new(64 * KIB, 1);
    crl_alloc_countdown = -1;
    if (other != NULL) crl_near_free(other);
  }
  for (unsigned key = 0; key < 400; key++) {
    crl_near_copy copy = copy_of(CRL_KIND_VALUE, 10, 'a');
    crl_alloc_countdown = key % 2;
    int kept = crl_near_put(near, hash_of(key), &key, sizeof key, &copy, crl_near_ticket(near, hash_of(key)));
    crl_alloc_countdown = -1;
    assert_int_equal(kept, key % 2); /* the table may fail to grow: longer chains serve as well */
    crl_near_copy_clean(&copy);
    assert_int_equal(has(key), kept);
  }
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(what_is_put_is_got_again_and_can_be_replaced), T(keys_of_one_hash_are_told_apart_and_dropped_together), T(what_is_over_is_forgotten),
      T(a_look_that_was_overtaken_leaves_nothing), T(nothing_outdated_stays_behind_a_drop), T(bytes_stay_within_the_budget),
      T(a_copy_above_a_tenth_is_refused_and_takes_the_place_of_none), T(negatives_and_values_never_evict_each_other),
      T(many_writers_stay_within_the_budget), T(a_scan_does_not_flush_what_is_hit), T(what_comes_back_soon_is_kept_longer),
      T(without_memory_nothing_is_kept_and_nothing_breaks),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
