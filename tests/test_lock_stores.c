/* test_lock_stores.c: users' locks in memory: and lmdb: through their tables: cases that
 * corral-conformance can't test. */
#include "support/hold_kit.h"

#include "support/folder_kit.h"
#include "support/watch_kit.h"

enum { SHARED = CORRAL_OP_SHARED, HOUR = 3600000 };

static char uri[160];

/* The URI of a new lmdb: file. */
static const char *lmdb_uri(const char *params) {
  static unsigned number;
  snprintf(uri, sizeof uri, "lmdb:%s/%u%s", folder, number++, params);
  return uri;
}

/* ---- the wall clock ------------------------------------------------------------------------ */

static corral_host odd_host;
static int64_t jump_ms;

static int64_t odd_wall_ms(void) { return crl_registry_host()->wall_ms() + jump_ms; }

/* Opens a store with the test's wall clock. */
static kit odd_open(const char *text) {
  kit k = {.host = &odd_host};
  crl_uri parsed;
  corral_store_info info = {.size = sizeof info, .max_key = 65536};
  corral_error error = {0};
  odd_host = *crl_registry_host();
  odd_host.wall_ms = odd_wall_ms;
  assert_int_equal(crl_uri_parse(&parsed, text, &error), CORRAL_OK);
  assert_int_equal(crl_registry_find(parsed.view.scheme, &k.plugin, &error), CORRAL_OK);
  assert_int_equal(k.plugin->open(&odd_host, &parsed.view, &k.store, &info, &error), CORRAL_OK);
  crl_uri_free(&parsed);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, &error), CORRAL_OK);
  return k;
}

/* Fencing tokens come from the wall clock in microseconds. The clock goes back by an hour while the
 * store is open, and the store is then opened again. Each lock has another name, so no earlier
 * token is remembered for it. */
static void tokens_grow_on(const char *text) {
  jump_ms = 0;
  uint64_t wall = (uint64_t)crl_registry_host()->wall_ms() * 1000;
  kit k = odd_open(text);
  uint64_t first = fence_of(&k, "first", 1);
  assert_in_range(first, wall - 60000000, wall + 60000000);
  jump_ms = -HOUR;
  uint64_t second = fence_of(&k, "second", 1);
  assert_true(second >= first);
  closed(&k);
  k = odd_open(text);
  assert_true(fence_of(&k, "third", 1) >= second);
  closed(&k);
  jump_ms = 0;
}

static void a_wall_clock_that_goes_back_takes_no_fencing_token_with_it(void **state) {
  (void)state;
  tokens_grow_on("memory:clock");
  tokens_grow_on(lmdb_uri(""));
}

/* ---- held locks and eviction --------------------------------------------------------------- */

enum { HELD = 100 };

static void survives_a_flood(const char *text, unsigned flood) {
  kit k = opened(text);
  char key[32];
  for (unsigned i = 0; i < HELD; i++)
    assert_int_equal(takes(&k, numbered(key, "held", i), 1, 0), CORRAL_OK);
  for (unsigned i = 0; i < flood; i++) put(&k, numbered(key, "value", i), 'x', 2000);
  for (unsigned i = 0; i < flood; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, numbered(key, "lease", i), 1), CORRAL_OK);
  for (unsigned i = 0; i < HELD; i++) {
    assert_int_equal(takes(&k, numbered(key, "held", i), 2, 0), CORRAL_EBUSY);
    assert_int_equal(verb(&k, CORRAL_VERB_LOCK_EXTEND, key, 1), CORRAL_OK);
    assert_int_equal(unlocks(&k, key, 1), CORRAL_OK);
  }
  closed(&k);
}

static void a_held_lock_is_not_evicted_whatever_is_written(void **state) {
  (void)state;
  survives_a_flood("memory:?size=256k", 2000);
  survives_a_flood(lmdb_uri("?size=1m"), 3000);
}

/* A waiter for which there is no room has no place, and waits for the lock as others do. */
static void waits_without_a_place(const kit *k, const char *name) {
  corral_op op = take_op(name, 2, CORRAL_OP_FAIR);
  op.lock.wish_ms = CORRAL_LOCK_WISH_MS;
  assert_int_equal(run(k, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.fence, 0);
  assert_in_range(op.lock_state.left_ms, 1, HOUR);
}

/* Takes locks until the store is full: further ones are refused, none is lost, and releases make
 * room again. */
static void refuses_when_full(const char *text, unsigned most) {
  kit k = opened(text);
  char key[32];
  corral_error error = {0};
  unsigned held = 0;
  corral_op op = take_op(numbered(key, "held", 0), 1, 0);
  for (; held < most && run(&k, &op) == CORRAL_OK; held++) {
    op = take_op(numbered(key, "held", held + 1), 1, 0);
    op.error = &error;
  }
  assert_in_range(held, 50, most - 1);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  assert_non_null(strstr(error.text, "size="));
  waits_without_a_place(&k, "held0");
  for (unsigned i = 0; i < held; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_LOCK_EXTEND, numbered(key, "held", i), 1), CORRAL_OK);
  assert_int_equal(takes(&k, "held0", 1, 0), CORRAL_OK); /* this token has a hold already */
  for (unsigned i = 0; i < held; i++)
    assert_int_equal(unlocks(&k, numbered(key, "held", i), 1), CORRAL_OK);
  assert_int_equal(takes(&k, "another", 1, 0), CORRAL_OK);
  put(&k, "value", 'x', 2000);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "value", 0), CORRAL_OK);
  closed(&k);
}

static void nothing_but_held_locks_is_bounded_by_refusing_more(void **state) {
  (void)state;
  refuses_when_full("memory:?size=64k", 3000);
  refuses_when_full(lmdb_uri("?size=1m"), 8000); /* refused before the map is full */
}

/* ---- one lock with many holds -------------------------------------------------------------- */

static void has_so_many_holds(const char *text) {
  kit k = opened(text);
  for (unsigned i = 0; i < CORRAL_LOCK_HOLDS; i++)
    assert_int_equal(takes(&k, "crowd", i + 1, SHARED), CORRAL_OK);
  assert_int_equal(takes(&k, "crowd", 5000, SHARED), CORRAL_EREFUSED);
  corral_op op = op_of(CORRAL_VERB_LOCK_SHOW, "crowd", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLDS * CORRAL_LOCK_HOLD);
  done(&op);
  for (unsigned i = 0; i < CORRAL_LOCK_HOLDS; i++)
    assert_int_equal(unlocks(&k, "crowd", i + 1), CORRAL_OK);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_LOCK_HEAD);
  done(&op);
  assert_int_equal(takes(&k, "crowd", 1, 0), CORRAL_OK);
  closed(&k);
}

static void a_lock_may_have_a_thousand_readers(void **state) {
  (void)state;
  has_so_many_holds("memory:");
  has_so_many_holds(lmdb_uri(""));
}

static void a_reader_of_the_record_keeps_its_bytes(void **state) {
  (void)state;
  const char *const texts[] = {"memory:", lmdb_uri("")};
  for (size_t i = 0; i < 2; i++) {
    kit k = opened(texts[i]);
    uint8_t before[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD];
    assert_int_equal(takes(&k, "k", 1, 0), CORRAL_OK);
    corral_op op = op_of(CORRAL_VERB_LOCK_SHOW, "k", 0);
    assert_int_equal(run(&k, &op), CORRAL_OK);
    assert_int_equal(op.found.len, sizeof before);
    memcpy(before, op.found.record, sizeof before);
    assert_int_equal(unlocks(&k, "k", 1), CORRAL_OK);
    assert_int_equal(takes(&k, "k", 2, 0), CORRAL_OK);
    assert_memory_equal(op.found.record, before, sizeof before);
    done(&op);
    closed(&k);
  }
}

static void a_key_of_a_value_tells_how_long_it_will_be_one(void **state) {
  (void)state;
  const char *const texts[] = {"memory:", lmdb_uri("")};
  for (size_t i = 0; i < 2; i++) {
    kit k = opened(texts[i]);
    put(&k, "k", 'x', 10);
    corral_op op = take_op("k", 1, 0);
    assert_int_equal(run(&k, &op), CORRAL_EFOREIGN);
    assert_in_range(op.lock_state.left_ms, 500000, 700000);
    op = op_of(CORRAL_VERB_LOCK_SHOW, "k", 1);
    assert_int_equal(run(&k, &op), CORRAL_EFOREIGN);
    assert_null(op.found.record);
    closed(&k);
  }
}

/* ---- watches ------------------------------------------------------------------------------- */

static void tells_what_frees(const char *text) {
  kit k = opened(text);
  ear *e = ear_open(&k);
  corral_op op;
  assert_int_equal(takes(&k, "k", 1, SHARED), CORRAL_OK);
  assert_int_equal(takes(&k, "k", 2, SHARED), CORRAL_OK);
  op = take_op("k", 3, 0);
  op.lock.wish_ms = 1; /* a wish is written */
  assert_int_equal(run(&k, &op), CORRAL_EBUSY);
  assert_int_equal(verb(&k, CORRAL_VERB_LOCK_EXTEND, "k", 1), CORRAL_OK);
  assert_int_equal(unlocks(&k, "k", 3), CORRAL_ELOST);
  catch_up(e);
  assert_int_equal(e->count, 0); /* none of these changes lets another token in */
  assert_int_equal(unlocks(&k, "k", 2), CORRAL_OK);
  is_told(e, "k");
  assert_int_equal(unlocks(&k, "k", 1), CORRAL_OK);
  assert_int_equal(takes(&k, "k", 4, 0), CORRAL_OK);
  forget(e);
  op = op_of(CORRAL_VERB_LOCK_EXTEND, "k", 4);
  op.flags = SHARED;
  assert_int_equal(run(&k, &op), CORRAL_OK);
  is_told(e, "k");
  ear_close(e);
  closed(&k);
}

static void what_lets_others_in_is_told_and_nothing_else(void **state) {
  (void)state;
  tells_what_frees("memory:");
  tells_what_frees(lmdb_uri(""));
}

/* ---- lmdb: holds belong to tokens ---------------------------------------------------------- */

static void take_and_end(const char *text, atomic_int *unused) {
  (void)unused;
  kit k;
  if (kit_open(&k, text, NULL) != CORRAL_OK || takes(&k, "k", 1, 0) != CORRAL_OK) _exit(1);
  _exit(0); /* without closing anything, like a killed process */
}

static void a_hold_outlives_its_process_and_another_may_end_it(void **state) {
  (void)state;
  const char *text = lmdb_uri("");
  gone(other(take_and_end, text, NULL), 0);
  kit k = opened(text);
  assert_int_equal(takes(&k, "k", 2, 0), CORRAL_EBUSY);
  assert_int_equal(unlocks(&k, "k", 1), CORRAL_OK);
  assert_int_equal(takes(&k, "k", 2, 0), CORRAL_OK);
  closed(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      /* must run first: the memory: store reads the wall clock once per process */
      cmocka_unit_test(a_wall_clock_that_goes_back_takes_no_fencing_token_with_it),
      cmocka_unit_test(a_held_lock_is_not_evicted_whatever_is_written),
      cmocka_unit_test(nothing_but_held_locks_is_bounded_by_refusing_more),
      cmocka_unit_test(a_lock_may_have_a_thousand_readers),
      cmocka_unit_test(a_reader_of_the_record_keeps_its_bytes),
      cmocka_unit_test(a_key_of_a_value_tells_how_long_it_will_be_one),
      cmocka_unit_test(what_lets_others_in_is_told_and_nothing_else),
      cmocka_unit_test(a_hold_outlives_its_process_and_another_may_end_it),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
