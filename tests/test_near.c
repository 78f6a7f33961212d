/* test_near.c: the near tier: looks, weights, epochs. The time is an argument; threads are used
 * only in tests of races. */
#include <pthread.h>
#include <sched.h>

#include "support/near_kit.h"

/* LARGE: the size of a value that is not copied. HEAVY: of one that is freed as soon as it is out
 * of a tier of MOST bytes and nobody reads. */
enum { LARGE = CRL_NEAR_SMALL + 1, HEAVY = MOST / 15 };

/* ---- looks --------------------------------------------------------------------------------- */

static void a_copy_that_was_put_is_found_with_all_that_is_told_of_it(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy ret, copy = {.bytes = bytes_of('v', 50),
                             .offset = 10,
                             .size = 30,
                             .metadata = bytes_of('x', 5),
                             .kind = CRL_KIND_VALUE,
                             .looked = 1,
                             .made = 2,
                             .fresh_until = 30,
                             .swr_until = 40,
                             .sie_until = 50,
                             .retry_until = 60,
                             .ttl = 28,
                             .cost_us = 9,
                             .version = 10,
                             .print = 11};
  assert_true(crl_near_put(near, 77, "key", 3, &copy, crl_near_epoch(near, 77)));
  assert_true(get_copy(near, 77, "key", 3, 3, &ret));
  assert_int_equal(ret.size, 30);
  assert_memory_equal(ret.data, copy.bytes->data + 10, 30);
  assert_ptr_equal(ret.metadata, copy.metadata);
  assert_true(ret.kind == CRL_KIND_VALUE && ret.looked == 1 && ret.made == 2 && ret.ttl == 28);
  assert_true(ret.fresh_until == 30 && ret.swr_until == 40 && ret.sie_until == 50);
  assert_true(ret.retry_until == 60 && ret.cost_us == 9 && ret.version == 10 && ret.print == 11);
  assert_int_equal(ret.confirmed, 0);
  copy_clean(&ret);
  copy_clean(&copy);
  crl_near_free(near);
}

static void a_key_is_its_bytes_and_not_its_hash(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy ret,
      copy = {.bytes = bytes_of('v', 50), .size = 50, .kind = CRL_KIND_VALUE, .fresh_until = LIFE};
  assert_true(crl_near_put(near, 77, "key", 3, &copy, crl_near_epoch(near, 77)));
  assert_false(get_copy(near, 77, "kez", 3, 0, &ret));
  assert_false(get_copy(near, 77, "keys", 4, 0, &ret));
  assert_false(get_copy(near, 77, "ke", 2, 0, &ret));
  assert_false(get_copy(near, 78, "key", 3, 0, &ret));
  copy_clean(&copy);
  crl_near_free(near);
}

static void nothing_is_written_when_nothing_is_found(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy ret, before;
  memset(&ret, 0x5a, sizeof ret);
  before = ret;
  assert_false(get_copy(near, 1, "key", 3, 0, &ret));
  assert_memory_equal(&ret, &before, sizeof ret);
  crl_near_free(near);
}

/* Two looks at once; the earlier one is put last. It may have seen an older value, so it must not
 * replace the copy. */
static void an_earlier_look_does_not_take_the_place_of_a_later_one(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  uint64_t early = epoch(near, "k");
  assert_true(put_copy(near, "k", CRL_KIND_VALUE, 'b', SIZE, 20, epoch(near, "k")));
  assert_false(put_copy(near, "k", CRL_KIND_VALUE, 'a', SIZE, 10, early));
  assert_int_equal(got_at(near, "k", 20), 'b');
  assert_true(put_copy(near, "k", CRL_KIND_VALUE, 'c', SIZE, 20, epoch(near, "k")));
  assert_int_equal(got_at(near, "k", 20), 'c');
  crl_near_free(near);
}

static void a_put_takes_the_place_of_what_there_is(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put(near, "k", 'a'));
  size_t weight = crl_near_weight(near);
  assert_true(put(near, "k", 'b'));
  assert_int_equal(got(near, "k"), 'b');
  assert_int_equal(crl_near_count(near), 1);
  assert_int_equal(crl_near_weight(near), weight);
  assert_true(put_sized(near, "k", SIZE + 11));
  assert_int_equal(crl_near_weight(near), weight + 11);
  crl_near_free(near);
}

static void a_value_takes_the_place_of_a_negative_and_the_other_way_round(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  for (int turn = 0; turn < 3; turn++) {
    assert_true(put(near, "k", 'a'));
    assert_int_equal(got(near, "k"), 'a');
    assert_true(put_negative(near, "k"));
    assert_int_equal(got(near, "k"), 'n');
    assert_int_equal(crl_near_count(near), 1);
  }
  crl_near_drop(near, hash_of("k"));
  assert_int_equal(crl_near_weight(near), 0);
  crl_near_free(near);
}

static void a_copy_answers_as_long_as_any_of_its_lives_and_is_forgotten_then(void **state) {
  (void)state;
  static const int64_t lives[][4] = {{10, 0, 0, 10},  {10, 20, 0, 20}, {10, 20, 30, 30},
                                     {10, 0, 30, 30}, {0, 20, 0, 20},  {0, 0, 0, 0}};
  crl_near *near = near_of(MOST);
  for (size_t i = 0; i < sizeof lives / sizeof *lives; i++) {
    const int64_t *life = lives[i];
    crl_near_copy copy = {.bytes = bytes_of('v', 9),
                          .size = 9,
                          .kind = CRL_KIND_VALUE,
                          .fresh_until = life[0],
                          .swr_until = life[1],
                          .sie_until = life[2]};
    assert_true(crl_near_put(near, hash_of("k"), "k", 1, &copy, epoch(near, "k")));
    copy_clean(&copy);
    if (life[3] > 0) assert_int_equal(got_at(near, "k", life[3] - 1), 'v');
    assert_int_equal(crl_near_count(near), 1);
    assert_int_equal(got_at(near, "k", life[3]), '-');
    assert_int_equal(crl_near_count(near), 0);
    assert_int_equal(crl_near_weight(near), 0);
  }
  crl_near_free(near);
}

static void a_found_copy_stays_whole_when_it_is_dropped_and_all_is_freed(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy ret;
  freed = 0;
  assert_true(put_sized(near, "k", LARGE));
  assert_true(get_copy(near, hash_of("k"), "k", 1, 0, &ret));
  crl_near_drop(near, hash_of("k"));
  crl_near_free(near);
  assert_int_equal(freed, 0);
  assert_int_equal(ret.bytes->data[LARGE - 1], 's');
  copy_clean(&ret);
  assert_int_equal(freed, 1);
  copy_clean(&ret); /* a second call does nothing */
}

static void the_table_grows_with_its_keys(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  crl_alloc_countdown = PLENTY;
  put_many(near, "k", KEYS * 5);
  long used = PLENTY - crl_alloc_countdown;
  crl_alloc_countdown = -1;
  /* besides one allocation per copy: each of 64 shards grows from 16 to 512 buckets, its table and
   * its ghosts separately */
  assert_in_range(used - KEYS * 5, 64 * 2 * 4, 64 * 2 * 5);
  assert_int_equal(crl_near_count(near), KEYS * 5);
  assert_int_equal(found_of(near, "k", KEYS * 5), KEYS * 5);
  assert_int_equal(found_of(near, "other", KEYS), 0);
  crl_near_free(near);
}

/* ---- weights ------------------------------------------------------------------------------- */

static void a_small_value_weighs_itself_and_not_its_record(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy copy = {.bytes = bytes_of('v', 9000),
                        .offset = 90,
                        .size = 10,
                        .kind = CRL_KIND_VALUE,
                        .fresh_until = LIFE};
  freed = 0;
  assert_true(crl_near_put(near, 1, "k", 1, &copy, crl_near_epoch(near, 1)));
  assert_in_range(crl_near_weight(near), 11, 400);
  copy_clean(&copy);
  assert_int_equal(freed, 1); /* the record is needed no more */
  crl_near_free(near);
}

static void a_copy_weighs_its_whole_bytes_its_metadata_its_key_and_a_fixed_overhead(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy copy = {.bytes = bytes_of('v', 1000),
                        .offset = 50,
                        .size = LARGE,
                        .kind = CRL_KIND_VALUE,
                        .fresh_until = LIFE};
  assert_true(crl_near_put(near, 1, "k", 1, &copy, crl_near_epoch(near, 1)));
  size_t one = crl_near_weight(near);
  assert_in_range(one, 1001, 1400);
  assert_true(crl_near_put(near, 2, "key", 3, &copy, crl_near_epoch(near, 2)));
  assert_int_equal(crl_near_weight(near), 2 * one + 2);
  copy.metadata = bytes_of('x', 200);
  assert_true(crl_near_put(near, 3, "k", 1, &copy, crl_near_epoch(near, 3)));
  assert_int_equal(crl_near_weight(near), 3 * one + 2 + 200 + sizeof(crl_bytes));
  assert_int_equal(crl_near_count(near), 3);
  crl_near_drop(near, 3);
  crl_near_drop(near, 2);
  assert_int_equal(crl_near_weight(near), one);
  copy_clean(&copy);
  crl_near_free(near);
}

static void the_budget_is_never_exceeded_by_copies_of_any_size_and_kind(void **state) {
  (void)state;
  static const int64_t budgets[] = {5000, MOST, 3 << 20};
  uint64_t dice = 1;
  for (size_t b = 0; b < sizeof budgets / sizeof *budgets; b++) {
    crl_near *near = near_of(budgets[b]);
    size_t kept = 0;
    for (size_t i = 0; i < 6000; i++) {
      dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
      size_t size = 1 + (size_t)(dice >> 33) % (size_t)(budgets[b] / 9);
      uint8_t kind = (dice >> 60) == 0 ? CRL_KIND_NEGATIVE : CRL_KIND_VALUE;
      const char *key = numbered("k", (size_t)(dice >> 40) % 500);
      kept += (size_t)put_copy(near, key, kind, 'r', size, 0, epoch(near, key));
      assert_in_range(crl_near_weight(near), 0, budgets[b]);
      if (i % 3 == 0) (void)got(near, numbered("k", i % 500));
    }
    assert_in_range(kept, 500, 5999);
    assert_in_range(crl_near_weight(near), budgets[b] / 2, budgets[b]); /* the budget is used */
    crl_near_clear(near);
    assert_int_equal(crl_near_weight(near), 0);
    crl_near_free(near);
  }
}

static void a_copy_of_more_than_a_tenth_is_refused_and_what_it_would_replace_goes(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  /* overhead of a copy of a large value, with a key of one letter */
  size_t rest = weight_of_one() + sizeof(crl_bytes) - SIZE - 6;
  assert_true(put_sized(near, "k", MOST / 10 - rest));
  assert_int_equal(crl_near_weight(near), MOST / 10);
  assert_false(put_sized(near, "k", MOST / 10 - rest + 1));
  assert_int_equal(got(near, "k"), '-');
  assert_int_equal(crl_near_weight(near), 0);
  /* with a void epoch the existing copy may be newer, so it stays */
  uint64_t old = epoch(near, "k");
  crl_near_drop(near, hash_of("k"));
  assert_true(put(near, "k", 'a'));
  assert_false(put_copy(near, "k", CRL_KIND_VALUE, 'l', MOST, 0, old));
  assert_int_equal(got(near, "k"), 'a');
  crl_near_free(near);
}

static void without_a_budget_nothing_is_kept(void **state) {
  (void)state;
  static const int64_t budgets[] = {0, -1, 100};
  for (size_t b = 0; b < 3; b++) {
    crl_near *near = near_of(budgets[b]);
    assert_false(put(near, "k", 'a'));
    assert_false(put_negative(near, "k"));
    assert_int_equal(got(near, "k"), '-');
    crl_near_free(near);
  }
}

/* ---- epochs, drop, clear ------------------------------------------------------------------- */

static void a_epoch_from_before_a_drop_is_refused_and_one_from_after_it_is_not(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  uint64_t before = epoch(near, "k");
  crl_near_drop(near, hash_of("k")); /* also for a key without a copy */
  uint64_t after = epoch(near, "k");
  assert_false(put_copy(near, "k", CRL_KIND_VALUE, 'a', SIZE, 0, before));
  assert_int_equal(got(near, "k"), '-');
  assert_int_equal(crl_near_weight(near), 0);
  assert_true(put_copy(near, "k", CRL_KIND_VALUE, 'b', SIZE, 0, after));
  assert_true(put_copy(near, "k", CRL_KIND_VALUE, 'c', SIZE, 0, after)); /* a put voids no epoch */
  assert_int_equal(got(near, "k"), 'c');
  crl_near_free(near);
}

static void a_refused_put_makes_nobody_leave(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  uint64_t before = epoch(near, "late");
  crl_near_drop(near, hash_of("late"));
  put_many(near, "k", room_for());
  assert_false(put_copy(near, "late", CRL_KIND_VALUE, 'l', SIZE, 0, before));
  assert_int_equal(crl_near_count(near), room_for());
  crl_near_free(near);
}

static crl_near *dropping;

static void drop_late(void *owner) {
  free(owner);
  crl_near_drop(dropping, hash_of("late"));
}

static void a_drop_while_a_put_makes_room_for_itself_refuses_it(void **state) {
  (void)state;
  crl_near *near = dropping = near_of(MOST);
  uint8_t *data = calloc(1, HEAVY);
  crl_near_copy copy = {.bytes = crl_bytes_wrap(data, HEAVY, drop_late, data),
                        .size = HEAVY,
                        .kind = CRL_KIND_VALUE,
                        .fresh_until = LIFE};
  assert_true(crl_near_put(near, 1, "first to leave", 14, &copy, crl_near_epoch(near, 1)));
  copy_clean(&copy);
  while (crl_near_weight(near) + weight_of_one() <= MOST - MOST / 10)
    assert_true(put(near, numbered("k", crl_near_count(near)), 'k'));
  uint64_t before = epoch(near, "late");
  assert_false(put(near, "late", 'l'));
  assert_int_not_equal(epoch(near, "late"), before);
  assert_int_equal(got(near, "late"), '-');
  size_t weight = crl_near_weight(near);
  assert_true(put(near, "late", 'l'));
  assert_in_range(crl_near_weight(near), weight + SIZE, MOST - MOST / 10);
  crl_near_free(near);
}

static void a_drop_leaves_most_epochs_of_other_keys_good(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  uint64_t epochs[200];
  size_t kept = 0;
  for (size_t i = 0; i < 200; i++) epochs[i] = epoch(near, numbered("k", i));
  crl_near_drop(near, hash_of("other"));
  for (size_t i = 0; i < 200; i++)
    kept += (size_t)put_copy(near, numbered("k", i), CRL_KIND_VALUE, 'k', SIZE, 0, epochs[i]);
  assert_in_range(kept, 190, 200);
  crl_near_free(near);
}

static void a_drop_forgets_all_keys_of_its_hash_and_no_other(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  crl_near_copy ret,
      copy = {.bytes = bytes_of('v', 50), .size = 50, .kind = CRL_KIND_VALUE, .fresh_until = LIFE};
  uint64_t at = crl_near_epoch(near, 77);
  assert_true(crl_near_put(near, 77, "one", 3, &copy, at));
  copy.kind = CRL_KIND_NEGATIVE;
  assert_true(crl_near_put(near, 77, "two", 3, &copy, at));
  put_many(near, "k", 50);
  assert_true(get_copy(near, 77, "one", 3, 0, &ret));
  copy_clean(&ret);
  assert_true(get_copy(near, 77, "two", 3, 0, &ret));
  copy_clean(&ret);
  crl_near_drop(near, 77);
  assert_false(get_copy(near, 77, "one", 3, 0, &ret));
  assert_false(get_copy(near, 77, "two", 3, 0, &ret));
  assert_false(crl_near_put(near, 77, "one", 3, &copy, at));
  assert_false(crl_near_put(near, 77, "two", 3, &copy, at));
  assert_int_equal(found_of(near, "k", 50), 50);
  copy_clean(&copy);
  crl_near_free(near);
}

static void a_drop_leaves_the_neighbours_of_its_hash(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  put_many(near, "k", KEYS);
  for (size_t i = 0; i < KEYS; i += 2) crl_near_drop(near, hash_of(numbered("k", i)));
  for (size_t i = 0; i < KEYS; i++)
    assert_int_equal(got(near, numbered("k", i)), i % 2 == 0 ? '-' : 'm');
  crl_near_free(near);
}

static void of_keys_that_were_made_to_share_a_hash_only_a_few_stay(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  crl_near_copy ret,
      copy = {.bytes = bytes_of('v', 50), .size = 50, .kind = CRL_KIND_VALUE, .fresh_until = LIFE};
  for (size_t i = 0; i < 1000; i++) {
    const char *key = numbered("k", i);
    assert_true(crl_near_put(near, 77, key, strlen(key), &copy, crl_near_epoch(near, 77)));
    assert_true(get_copy(near, 77, key, strlen(key), 0, &ret));
    copy_clean(&ret);
    assert_in_range(crl_near_count(near), 1, 4);
  }
  copy_clean(&copy);
  crl_near_free(near);
}

static void a_clear_forgets_all_and_voids_all_tickets(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  uint64_t epochs[500];
  for (size_t i = 0; i < 500; i++) assert_true(put_sized(near, numbered("k", i), LARGE));
  for (size_t i = 0; i < 100; i++) assert_true(put_negative(near, numbered("n", i)));
  for (size_t i = 0; i < 500; i++) epochs[i] = epoch(near, numbered("t", i));
  freed = 0;
  crl_near_clear(near);
  assert_int_equal(freed, 500);
  assert_int_equal(crl_near_removed(near), 0);
  assert_int_equal(crl_near_count(near), 0);
  assert_int_equal(crl_near_weight(near), 0);
  for (size_t i = 0; i < 500; i++)
    assert_false(put_copy(near, numbered("t", i), CRL_KIND_VALUE, 't', SIZE, 0, epochs[i]));
  put_many(near, "k", 500);
  assert_int_equal(found_of(near, "k", 500), 500);
  crl_near_free(near);
}

/* ---- without memory ------------------------------------------------------------------------ */

static void a_near_tier_is_made_whole_or_not_at_all(void **state) {
  (void)state;
  long index = 0;
  crl_near *near = NULL;
  for (; near == NULL; index++) {
    crl_alloc_countdown = index;
    near = crl_near_new(2 << 20);
    crl_alloc_countdown = -1;
  }
  assert_in_range(index, 3, 100);
  assert_true(put(near, "k", 'a'));
  crl_near_free(near);
}

static void a_put_without_memory_is_refused_and_leaves_all_in_order(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t refused = 0, one = weight_of_one();
  for (size_t i = 0; i < 100; i++) {
    const char *key = numbered("k", i);
    size_t count = crl_near_count(near);
    /* in turn fails the allocation of the entry, the table, the ghosts, none */
    crl_alloc_countdown = (long)(i % 4);
    int kept = put(near, key, 'a');
    crl_alloc_countdown = -1;
    refused += !kept;
    assert_int_equal(got(near, key), kept ? 'a' : '-');
    assert_int_equal(crl_near_count(near), count + (size_t)kept);
    assert_int_equal(crl_near_weight(near), (count + (size_t)kept) * one);
  }
  assert_int_equal(refused, 25);
  crl_near_free(near);
}

static void a_put_without_memory_forgets_what_it_would_have_replaced(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put(near, "k", 'a'));
  crl_alloc_countdown = 0;
  assert_false(put(near, "k", 'b'));
  crl_alloc_countdown = -1;
  assert_int_equal(got(near, "k"), '-');
  assert_int_equal(crl_near_weight(near), 0);
  crl_near_free(near);
}

static void a_table_that_could_not_grow_finds_all_the_same(void **state) {
  (void)state;
  crl_near *near = near_of(WIDE);
  for (size_t i = 0; i < KEYS; i++) {
    /* the entry gets memory, the table or its ghosts don't */
    crl_alloc_countdown = 1 + (long)(i % 2);
    assert_true(put(near, numbered("k", i), 'm'));
  }
  crl_alloc_countdown = -1;
  assert_int_equal(found_of(near, "k", KEYS), KEYS);
  put_many(near, "n", KEYS);
  assert_int_equal(found_of(near, "k", KEYS), KEYS);
  crl_near_free(near);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, TURNS = 20000, TURNS_MOST = 100 * TURNS, RACED = 8 };

/* A simulated store: a version per key. The writer changes a version, then drops the key from the
 * near tier; after that no older version may be found. */
typedef struct race {
  crl_near *near;
  /* current version; version of the latest drop that has returned */
  _Atomic uint64_t store[RACED], dropped[RACED];
  atomic_int wrong, kept, refused, hits, stop;
} race;

static uint64_t version_in(const crl_near_copy *copy) {
  uint64_t version;
  memcpy(&version, copy->bytes->data, sizeof version);
  return version;
}

static int put_version(crl_near *near, const char *key, uint64_t version, uint64_t with) {
  crl_bytes *bytes = bytes_of(0, SIZE);
  memcpy(bytes->owner, &version, sizeof version);
  crl_near_copy copy = {.bytes = bytes,
                        .size = SIZE,
                        .kind = version % 5 == 0 ? CRL_KIND_NEGATIVE : CRL_KIND_VALUE,
                        .fresh_until = LIFE};
  int kept = crl_near_put(near, hash_of(key), key, strlen(key), &copy, with);
  copy_clean(&copy);
  return kept;
}

static void read_through(race *r, size_t number, const char *key) {
  crl_near_copy copy;
  uint64_t least = atomic_load(&r->dropped[number]);
  if (get_copy(r->near, hash_of(key), key, strlen(key), 0, &copy)) {
    if (version_in(&copy) < least) atomic_store(&r->wrong, 1);
    copy_clean(&copy);
    atomic_fetch_add(&r->hits, 1);
    return;
  }
  uint64_t with = epoch(r->near, key);
  uint64_t version = atomic_load(&r->store[number]);
  if (version % 3 == 0) sched_yield(); /* simulates the time of the reply */
  atomic_fetch_add(put_version(r->near, key, version, with) ? &r->kept : &r->refused, 1);
}

static int has_seen_all(race *r) {
  return atomic_load(&r->kept) > 0 && atomic_load(&r->refused) > 0 && atomic_load(&r->hits) > 0;
}

static void *read_on(void *arg) {
  race *r = arg;
  for (size_t i = 0; i < TURNS || (!has_seen_all(r) && i < TURNS_MOST); i++)
    read_through(r, i % RACED, numbered("r", i % RACED));
  return NULL;
}

static void *change_on(void *arg) {
  race *r = arg;
  for (size_t i = 0; !atomic_load(&r->stop); i++) {
    size_t number = i % RACED;
    uint64_t version = atomic_fetch_add(&r->store[number], 1) + 1;
    crl_near_drop(r->near, hash_of(numbered("r", number)));
    atomic_store(&r->dropped[number], version);
    if (i % 1000 == 0) crl_near_clear(r->near);
    sched_yield();
  }
  return NULL;
}

static void what_a_look_brings_back_after_a_drop_is_never_found(void **state) {
  (void)state;
  static race r;
  pthread_t readers[THREADS - 1], writer;
  r.near = near_of(MOST);
  assert_int_equal(pthread_create(&writer, NULL, change_on, &r), 0);
  for (size_t i = 0; i < THREADS - 1; i++)
    assert_int_equal(pthread_create(&readers[i], NULL, read_on, &r), 0);
  for (size_t i = 0; i < THREADS - 1; i++) pthread_join(readers[i], NULL);
  atomic_store(&r.stop, 1);
  pthread_join(writer, NULL);
  assert_false(r.wrong);
  assert_true(has_seen_all(&r));
  crl_near_clear(r.near);
  assert_int_equal(crl_near_weight(r.near), 0);
  crl_near_free(r.near);
}

typedef struct crowd {
  crl_near *near;
  size_t number, most;
  atomic_int *wrong;
} crowd;

static void *crowd_run(void *arg) {
  crowd *me = arg;
  uint64_t dice = me->number;
  for (size_t i = 0; i < TURNS; i++) {
    dice = dice * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    const char *key = numbered("k", (size_t)(dice >> 40) % 1000);
    size_t what = (size_t)(dice >> 33) % 64;
    if (what == 0)
      crl_near_drop(me->near, hash_of(key));
    else if (what < 16)
      put_copy(me->near, key, what < 4 ? CRL_KIND_NEGATIVE : CRL_KIND_VALUE, 'c', 1 + what * 500, 0,
               epoch(me->near, key));
    else if (what == 16 && i % 100 == 0)
      crl_near_clear(me->near);
    else if (strchr("c-", got(me->near, key)) == NULL)
      atomic_store(me->wrong, 1);
    if (crl_near_weight(me->near) > me->most) atomic_store(me->wrong, 1);
  }
  return NULL;
}

static void a_crowd_never_exceeds_the_budget_and_leaves_nothing_behind(void **state) {
  (void)state;
  static const int64_t budgets[] = {MOST, 2 << 20};
  for (size_t b = 0; b < 2; b++) {
    atomic_int wrong = 0;
    pthread_t threads[THREADS];
    crowd crowds[THREADS];
    crl_near *near = near_of(budgets[b]);
    for (size_t i = 0; i < THREADS; i++) {
      crowds[i] = (crowd){.near = near, .number = i, .most = (size_t)budgets[b], .wrong = &wrong};
      assert_int_equal(pthread_create(&threads[i], NULL, crowd_run, &crowds[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    assert_false(wrong);
    assert_true(crl_near_count(near) > 0);
    for (size_t i = 0; i < 1000; i++) crl_near_drop(near, hash_of(numbered("k", i)));
    assert_int_equal(crl_near_count(near), 0);
    assert_int_equal(crl_near_weight(near), 0);
    crl_near_free(near);
  }
}

static int put_print(crl_near *near, const char *key, uint64_t print) {
  crl_near_copy copy = {.bytes = bytes_of('p', SIZE),
                        .size = SIZE,
                        .kind = CRL_KIND_VALUE,
                        .fresh_until = LIFE,
                        .ttl = LIFE,
                        .print = print};
  int kept = crl_near_put(near, hash_of(key), key, strlen(key), &copy, epoch(near, key));
  copy_clean(&copy);
  return kept;
}

/* 1 confirmed, 0 not, -1 no copy. */
static int is_confirmed(crl_near *near, const char *key) {
  crl_near_copy copy;
  if (!get_copy(near, hash_of(key), key, strlen(key), 0, &copy)) return -1;
  int confirmed = copy.confirmed;
  copy_clean(&copy);
  return confirmed;
}

static void a_copy_is_confirmed_by_the_print_of_its_record(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put_print(near, "k", 7) && put_print(near, "other", 7));
  assert_int_equal(is_confirmed(near, "k"), 0);
  crl_near_confirm(near, hash_of("k"), 7);
  assert_int_equal(is_confirmed(near, "k"), 1);
  assert_int_equal(is_confirmed(near, "other"), 0);
  assert_true(put_print(near, "k", 7)); /* of a later look */
  assert_int_equal(is_confirmed(near, "k"), 0);
  crl_near_free(near);
}

static void a_copy_of_another_record_than_the_registered_one_is_forgotten(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put_print(near, "k", 7) && put_print(near, "other", 7));
  crl_near_confirm(near, hash_of("k"), 8);
  assert_int_equal(is_confirmed(near, "k"), -1);
  assert_int_equal(is_confirmed(near, "other"), 0);
  crl_near_confirm(near, hash_of("k"), 8);
  crl_near_free(near);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_copy_that_was_put_is_found_with_all_that_is_told_of_it),
      cmocka_unit_test(a_key_is_its_bytes_and_not_its_hash),
      cmocka_unit_test(nothing_is_written_when_nothing_is_found),
      cmocka_unit_test(a_put_takes_the_place_of_what_there_is),
      cmocka_unit_test(an_earlier_look_does_not_take_the_place_of_a_later_one),
      cmocka_unit_test(a_value_takes_the_place_of_a_negative_and_the_other_way_round),
      cmocka_unit_test(a_copy_answers_as_long_as_any_of_its_lives_and_is_forgotten_then),
      cmocka_unit_test(a_found_copy_stays_whole_when_it_is_dropped_and_all_is_freed),
      cmocka_unit_test(the_table_grows_with_its_keys),
      cmocka_unit_test(a_small_value_weighs_itself_and_not_its_record),
      cmocka_unit_test(a_copy_weighs_its_whole_bytes_its_metadata_its_key_and_a_fixed_overhead),
      cmocka_unit_test(the_budget_is_never_exceeded_by_copies_of_any_size_and_kind),
      cmocka_unit_test(a_copy_of_more_than_a_tenth_is_refused_and_what_it_would_replace_goes),
      cmocka_unit_test(without_a_budget_nothing_is_kept),
      cmocka_unit_test(a_epoch_from_before_a_drop_is_refused_and_one_from_after_it_is_not),
      cmocka_unit_test(a_refused_put_makes_nobody_leave),
      cmocka_unit_test(a_drop_while_a_put_makes_room_for_itself_refuses_it),
      cmocka_unit_test(a_drop_leaves_most_epochs_of_other_keys_good),
      cmocka_unit_test(a_drop_forgets_all_keys_of_its_hash_and_no_other),
      cmocka_unit_test(a_drop_leaves_the_neighbours_of_its_hash),
      cmocka_unit_test(of_keys_that_were_made_to_share_a_hash_only_a_few_stay),
      cmocka_unit_test(a_clear_forgets_all_and_voids_all_tickets),
      cmocka_unit_test(a_copy_is_confirmed_by_the_print_of_its_record),
      cmocka_unit_test(a_copy_of_another_record_than_the_registered_one_is_forgotten),
      cmocka_unit_test(a_near_tier_is_made_whole_or_not_at_all),
      cmocka_unit_test(a_put_without_memory_is_refused_and_leaves_all_in_order),
      cmocka_unit_test(a_put_without_memory_forgets_what_it_would_have_replaced),
      cmocka_unit_test(a_table_that_could_not_grow_finds_all_the_same),
      cmocka_unit_test(what_a_look_brings_back_after_a_drop_is_never_found),
      cmocka_unit_test(a_crowd_never_exceeds_the_budget_and_leaves_nothing_behind),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
