/* test_flood.c: keys chosen to collide under XXH3 with its public secret are spread evenly by every
 * table.
 *
 * XXH3 of 17 to 32 bytes multiplies the two halves of the first 16 bytes, and the two halves of the
 * last 16, each half first combined with the secret. A half that equals the secret makes the
 * product 0, whatever the other half is. The test counts the key comparisons of each table by
 * wrapping memcmp. */
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <corral/lock.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "record/envelope.h"
#include "outbox/outbox.h"
#include "herd/herd.h"
#include "record/key.h"
#include "near/near.h"
#include "os/readers.h"
#include "base/value.h"

enum {
  FLOOD = 2000,
  LEN = 24,
  SECRET_AT = 16,
  EACH = 24 /* highest average number of comparisons in one call */
};

static char keys[FLOOD][LEN];
static _Atomic uint64_t comparisons;

int __real_memcmp(const void *a, const void *b, size_t size);
int __wrap_memcmp(const void *a, const void *b, size_t size);

int __wrap_memcmp(const void *a, const void *b, size_t size) {
  atomic_fetch_add_explicit(&comparisons, 1, memory_order_relaxed);
  return __real_memcmp(a, b, size);
}

static int make_keys(void **state) {
  (void)state;
  for (int i = 0; i < FLOOD; i++) {
    char free_half[16];
    snprintf(free_half, sizeof free_half, "%08d", i);
    memset(keys[i], 'k', 8);
    memcpy(keys[i] + 8, XXH3_kSecret + SECRET_AT, 8);
    memcpy(keys[i] + 16, free_half, 8);
  }
  return 0;
}

/* Fails when the comparisons since `before` exceed EACH for each of the `calls`. */
static void expect_few(const char *table, uint64_t before, uint64_t calls) {
  uint64_t made = atomic_load(&comparisons) - before;
  print_message("%s: %.2f comparisons a call\n", table, (double)made / (double)calls);
  if (made > calls * EACH)
    fail_msg("%s: %llu comparisons in %llu calls", table, (unsigned long long)made,
             (unsigned long long)calls);
}

static crl_name name_of(int i) { return (crl_name){.key = keys[i], .key_len = LEN}; }

/* ---- the colliding keys -------------------------------------------------------------------- */

static uint64_t public_hash(const crl_key *key) {
  return XXH3_64bits(key->stored, key->stored_len);
}

/* As a plain key, a key in a namespace, a lock and a tag. */
static void the_keys_collide_under_xxh3_with_its_public_secret(void **state) {
  (void)state;
  static const struct {
    const char *name_space;
    crl_key_kind kind;
  } rows[] = {
      {NULL, CRL_KEY_VALUE}, {"shop", CRL_KEY_VALUE}, {NULL, CRL_KEY_LOCK}, {NULL, CRL_KEY_TAG}};
  for (size_t r = 0; r < sizeof rows / sizeof rows[0]; r++) {
    crl_key_space space = {.max_key = 1024};
    crl_key first, other;
    assert_int_equal(crl_key_space_make(&space, rows[r].name_space), CORRAL_OK);
    crl_name name = name_of(0);
    assert_int_equal(crl_key_make(&first, rows[r].kind, &space, &name), CORRAL_OK);
    for (int i = 1; i < FLOOD; i++) {
      name = name_of(i);
      assert_int_equal(crl_key_make(&other, rows[r].kind, &space, &name), CORRAL_OK);
      assert_true(public_hash(&other) == public_hash(&first));
      crl_key_clean(&other);
    }
    crl_key_clean(&first);
    free(space.prefix);
  }
}

/* The watch, the lock table, costs and ghosts find entries by this hash alone. */
static void their_hashes_fill_the_buckets_of_any_table(void **state) {
  (void)state;
  enum { BUCKETS = 256 };
  size_t counts[2][BUCKETS] = {{0}}, longest = 0;
  crl_key_space space = {.max_key = 1024};
  for (int i = 0; i < FLOOD; i++) {
    crl_key key;
    crl_name name = name_of(i);
    assert_int_equal(crl_key_make(&key, CRL_KEY_VALUE, &space, &name), CORRAL_OK);
    counts[0][crl_key_hash(&key) % BUCKETS]++;
    counts[1][crl_name_hash(&name) % BUCKETS]++;
    crl_key_clean(&key);
  }
  for (size_t i = 0; i < 2 * BUCKETS; i++)
    if (counts[i / BUCKETS][i % BUCKETS] > longest) longest = counts[i / BUCKETS][i % BUCKETS];
  print_message("the longest of %d chains has %zu, the mean %d\n", BUCKETS, longest,
                FLOOD / BUCKETS);
  assert_true(longest < 5 * FLOOD / BUCKETS);
}

/* ---- tables of the core -------------------------------------------------------------------- */

static void the_herd_spreads_them(void **state) {
  (void)state;
  static crl_entry *entries[FLOOD];
  crl_herd *herd = crl_herd_new();
  uint64_t before = atomic_load(&comparisons);
  uint64_t tick;
  for (int i = 0; i < FLOOD; i++) {
    crl_name name = name_of(i);
    crl_entrance entrance = {.name = &name, .hash = crl_name_hash(&name)};
    assert_int_equal(crl_herd_enter(herd, &entrance, &entries[i], &tick), CRL_ENTER_LEADS);
  }
  expect_few("herd", before, FLOOD);
  for (int i = 0; i < FLOOD; i++) crl_entry_unref(entries[i]);
  crl_herd_free(herd);
}

static void what_is_held_for_the_stores_return_is_spread(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(64 << 20, 60000);
  uint64_t before = atomic_load(&comparisons);
  for (int i = 0; i < FLOOD; i++) crl_outbox_invalidate(held, keys[i], LEN, NULL, 1);
  for (int i = 0; i < FLOOD; i++) crl_outbox_drop(held, keys[i], LEN);
  expect_few("held", before, (uint64_t)2 * FLOOD);
  crl_outbox_free(held);
}

/* The near tier keeps only a few copies for one hash, so all copies stay only if their hashes
 * differ. */
static void the_near_tier_keeps_all_of_them(void **state) {
  (void)state;
  crl_near *near = crl_near_new(64 << 20);
  uint8_t *data = malloc(1);
  crl_bytes *bytes = crl_bytes_wrap(data, 1, free, data);
  crl_near_copy copy = {.bytes = bytes,
                        .size = 1,
                        .kind = CRL_KIND_VALUE,
                        .looked = 1,
                        .made = 1,
                        .fresh_until = 100000,
                        .ttl = 100000};
  uint64_t before = atomic_load(&comparisons);
  int kept = 0;
  for (int i = 0; i < FLOOD; i++) {
    uint64_t hash = crl_hash(keys[i], LEN);
    crl_near_put(near, hash, keys[i], LEN, &copy, crl_near_epoch(near, hash));
  }
  for (int i = 0; i < FLOOD; i++) {
    assert_true(crl_readers_enter());
    kept += crl_near_look(near, crl_hash(keys[i], LEN), keys[i], LEN, 2) != NULL;
    crl_readers_leave();
  }
  expect_few("near", before, (uint64_t)2 * FLOOD);
  assert_int_equal(kept, FLOOD);
  crl_bytes_unref(bytes);
  crl_near_free(near);
}

/* ---- public functions, on the memory: store ------------------------------------------------ */

static void the_memory_store_spreads_them(void **state) {
  (void)state;
  corral *c = NULL;
  corral_value *value;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL), CORRAL_OK);
  uint64_t before = atomic_load(&comparisons);
  for (int i = 0; i < FLOOD; i++)
    assert_int_equal(corral_set(c, keys[i], LEN, NULL, "x", 1), CORRAL_OK);
  for (int i = 0; i < FLOOD; i++) {
    assert_int_equal(corral_get(c, keys[i], LEN, NULL, &value), CORRAL_OK);
    corral_value_unref(value);
  }
  expect_few("memory:", before, (uint64_t)2 * FLOOD);
  corral_close(c);
}

static void a_batch_spreads_them(void **state) {
  (void)state;
  static corral_item items[FLOOD];
  corral *c = NULL;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL), CORRAL_OK);
  for (int i = 0; i < FLOOD; i++) items[i] = (corral_item){.key = keys[i], .key_len = LEN};
  uint64_t before = atomic_load(&comparisons);
  assert_int_equal(corral_get_many(c, items, FLOOD, NULL, NULL, NULL), CORRAL_OK);
  expect_few("corral_get_many", before, FLOOD);
  for (int i = 0; i < FLOOD; i++) assert_int_equal(items[i].status, CORRAL_EMISS);
  corral_close(c);
}

/* With an owner, each taking searches the lock table for an existing hold. */
static void locks_spread_them(void **state) {
  (void)state;
  static corral_lock *locks[FLOOD];
  corral *c = NULL;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL), CORRAL_OK);
  uint64_t before = atomic_load(&comparisons);
  for (int i = 0; i < FLOOD; i++)
    assert_int_equal(corral_lock_take(c, keys[i], LEN, CORRAL_LOCK(.owner = "o"), &locks[i], NULL),
                     CORRAL_OK);
  expect_few("locks", before, FLOOD);
  for (int i = 0; i < FLOOD; i++) assert_int_equal(corral_lock_release(locks[i], NULL), CORRAL_OK);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_keys_collide_under_xxh3_with_its_public_secret),
      cmocka_unit_test(their_hashes_fill_the_buckets_of_any_table),
      cmocka_unit_test(the_herd_spreads_them),
      cmocka_unit_test(what_is_held_for_the_stores_return_is_spread),
      cmocka_unit_test(the_near_tier_keeps_all_of_them),
      cmocka_unit_test(the_memory_store_spreads_them),
      cmocka_unit_test(a_batch_spreads_them),
      cmocka_unit_test(locks_spread_them),
  };
  return cmocka_run_group_tests(tests, make_keys, NULL);
}
