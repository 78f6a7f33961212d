/* test_many.c: corral_get_many: several keys, one compute for the keys that the call leads. */
#include "support/many_kit.h"

/* ---- on one thread ------------------------------------------------------------------------- */

static void cold_keys_are_one_compute_and_warm_ones_none(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "c", "d");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  for (size_t i = 0; i < n; i++) is_own(&items[i], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[3].value), CORRAL_KEPT);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  n = ITEMS("a", "b", "c", "d");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  for (size_t i = 0; i < n; i++) is_own(&items[i], CORRAL_FRESH);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_COMPUTE), 4);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_HIT), 4);
}

static void each_key_of_a_mixed_batch_gets_its_own_answer(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("fresh", "stale", "fail-known", "none-known");
  assert_int_equal(corral_get_many(r->c, items, 2, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  drop(items, 2);
  n = ITEMS("x-fresh", "x-stale", "f-known", "n-known");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  drop(items, n);
  assert_int_equal(corral_expire(r->c, "x-stale", 7, NULL), CORRAL_OK);
  atomic_store(&r->calls, 0);
  atomic_store(&r->computes, 0);
  n = ITEMS("x-fresh", "x-stale", "missing", "f-new", "n-new", "empty", "f-known", "n-known", "x");
  items[8].key_len = 0;
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  is_own(&items[0], CORRAL_FRESH);
  is_own(&items[1], CORRAL_COMPUTED);
  is_own(&items[2], CORRAL_COMPUTED);
  is_error(&items[3], CORRAL_EFAILED);
  assert_int_equal(items[3].error.code, 7);
  assert_string_equal(items[3].error.text, "broken");
  is_error(&items[4], CORRAL_ENOTFOUND);
  is_error(&items[5], CORRAL_EFAILED);
  assert_string_equal(items[5].error.text, "compute returned without a value");
  is_error(&items[6], CORRAL_EFAILED);
  assert_true(items[6].error.retry_after_ms > 0);
  is_error(&items[7], CORRAL_ENOTFOUND);
  is_error(&items[8], CORRAL_EINVAL);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(r->computes, 5);
}

static void a_failure_of_a_stale_key_leaves_its_value(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("f-old", "good");
  corral_set(r->c, "f-old", 5, CORRAL_CALL(.policy = usual()), "f-old", 5);
  corral_expire(r->c, "f-old", 5, NULL);
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  is_own(&items[0], CORRAL_STALE);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
}

static void a_negative_return_value_fails_those_that_were_given_nothing(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "c", "d");
  assert_int_equal(
      corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), give_up_halfway, r),
      CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_own(&items[1], CORRAL_COMPUTED);
  is_error(&items[2], CORRAL_EFAILED);
  is_error(&items[3], CORRAL_EFAILED);
  assert_int_equal(items[3].error.code, CORRAL_EIO);
  drop(items, n);
}

static void a_key_that_appears_twice_is_computed_once(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "a", "f", "a", "f", "p", "p");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  for (size_t i = 0; i < 5; i++)
    if (i != 3) is_own(&items[i], CORRAL_COMPUTED);
  assert_ptr_equal(items[0].value, items[4].value);
  is_error(&items[3], CORRAL_EFAILED);
  is_error(&items[5], CORRAL_EFAILED);
  is_own(&items[7], CORRAL_COMPUTED);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(r->computes, 4);
}

/* The flight of a key with "can't be cached" takes fewer steps to its compute. */
static void what_cant_be_cached_is_computed_along_with_the_rest(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("p", "a");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  drop(items, n);
  n = ITEMS("p", "b", "a");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[0].value), CORRAL_KEPT_NOT);
  is_own(&items[1], CORRAL_COMPUTED);
  is_own(&items[2], CORRAL_FRESH);
  drop(items, n);
  assert_int_equal(r->calls, 2);
}

static void without_a_compute_it_only_looks(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("set", "missing", "stale");
  corral_set(r->c, "set", 3, CORRAL_CALL(.policy = usual()), "set", 3);
  corral_set(r->c, "stale", 5, CORRAL_CALL(.policy = usual()), "stale", 5);
  corral_expire(r->c, "stale", 5, NULL);
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), NULL, NULL),
                   CORRAL_OK);
  is_own(&items[0], CORRAL_FRESH);
  is_error(&items[1], CORRAL_EMISS);
  is_own(&items[2], CORRAL_STALE);
  drop(items, n);
}

static void what_concerns_the_call_is_its_status_and_that_of_each_item(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  corral_error error = {0};
  size_t n = ITEMS("a", "b");
  assert_int_equal(corral_get_many(r->c, items, 0, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  assert_int_equal(corral_get_many(r->c, NULL, 0, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  assert_int_equal(corral_get_many(r->c, NULL, 1, CORRAL_CALL(.error = &error), by_letter, r),
                   CORRAL_EINVAL);
  assert_int_equal(error.status, CORRAL_EINVAL);
  assert_int_equal(corral_get_many(NULL, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_EINVAL);
  is_error(&items[1], CORRAL_EINVAL);
  assert_int_equal(corral_get_many(r->c, items, n,
                                   CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = -5)), by_letter,
                                   r),
                   CORRAL_EINVAL);
  is_error(&items[0], CORRAL_EINVAL);
  assert_int_equal(r->calls, 0);
}

static int ask_for_own_keys(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  corral_item items[KEYS];
  corral_value *value = NULL;
  size_t n = ITEMS("a", "inner", "b");
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  is_error(&items[0], CORRAL_ERECURSION);
  is_own(&items[1], CORRAL_COMPUTED);
  is_error(&items[2], CORRAL_ERECURSION);
  drop(items, n);
  assert_int_equal(
      corral_get_or_compute(r->c, "b", 1, CORRAL_CALL(.policy = usual()), give, NULL, &value),
      CORRAL_ERECURSION);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  return CORRAL_OK;
}

static int ask_for_a_batch(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  room *r = arg;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "outer", "b");
  assert_int_equal(
      corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), ask_for_own_keys, r),
      CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_error(&items[1], CORRAL_ERECURSION);
  is_own(&items[2], CORRAL_COMPUTED);
  drop(items, n);
  return corral_fill_bytes(fill, key, key_len);
}

static void a_compute_that_asks_for_one_of_its_own_keys_is_told_so(void **state) {
  room *r = *state;
  corral_value *value;
  assert_int_equal(corral_get_or_compute(r->c, "outer", 5, CORRAL_CALL(.policy = usual()),
                                         ask_for_a_batch, r, &value),
                   CORRAL_OK);
  corral_value_unref(value);
}

static void a_thousand_keys_are_one_compute(void **state) {
  room *r = *state;
  static corral_item items[1000];
  static char names[1000][16];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 1000; i++)
      items[i] = (corral_item){.key = names[i],
                               .key_len = (size_t)snprintf(names[i], sizeof *names, "key-%d", i)};
    assert_int_equal(
        corral_get_many(r->c, items, 1000, CORRAL_CALL(.policy = usual()), by_letter, r),
        CORRAL_OK);
    for (int i = 0; i < 1000; i++) is_own(&items[i], round == 0 ? CORRAL_COMPUTED : CORRAL_FRESH);
    drop(items, 1000);
  }
  assert_int_equal(r->calls, 1);
}

static void tags_and_the_whole_namespace_are_heeded(void **state) {
  (void)state;
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .generation = 1, .name_space = "n"));
  for (int round = 0; round < 4; round++) {
    size_t n = ITEMS("t1", "t2", "bare");
    assert_int_equal(corral_get_many(r.c, items, n, CORRAL_CALL(.policy = usual()), by_letter, &r),
                     CORRAL_OK);
    is_own(&items[0], round == 1 ? CORRAL_FRESH : CORRAL_COMPUTED);
    is_own(&items[1], round == 1 ? CORRAL_FRESH : CORRAL_COMPUTED);
    is_own(&items[2], round == 1 || round == 2 ? CORRAL_FRESH : CORRAL_COMPUTED);
    drop(items, n);
    if (round == 1) assert_int_equal(corral_invalidate_tag(r.c, "tag", 3, NULL), CORRAL_OK);
    if (round == 2) assert_int_equal(corral_invalidate_all(r.c, NULL), CORRAL_OK);
  }
  corral_close(r.c);
}

static void copies_of_this_process_answer_without_the_store(void **state) {
  (void)state;
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  for (int round = 0; round < 3; round++) {
    size_t n = ITEMS("a", "t", "n");
    assert_int_equal(corral_get_many(r.c, items, n,
                                     CORRAL_CALL(.policy = CORRAL_POLICY(.near_ms = 60000)),
                                     by_letter, &r),
                     CORRAL_OK);
    is_own(&items[0], round == 0 ? CORRAL_COMPUTED : CORRAL_FRESH);
    is_error(&items[2], CORRAL_ENOTFOUND);
    drop(items, n);
  }
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_NEAR) >= 2, 1);
  corral_close(r.c);
}

/* ---- memory -------------------------------------------------------------------------------- */

static void check_any(const corral_item *items, size_t n) {
  for (size_t i = 0; i < n; i++) {
    assert_in_range(-items[i].status, 0, 26);
    assert_int_equal(items[i].status == CORRAL_OK, items[i].value != NULL);
    if (items[i].value == NULL) continue;
    assert_int_equal(corral_value_size(items[i].value), items[i].key_len);
    assert_memory_equal(corral_value_data(items[i].value), items[i].key, items[i].key_len);
  }
}

/* Returns 1 when no allocation failed. */
static int tour(long index) {
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .generation = 1, .max_computes = 2,
                               .near_bytes = 1 << 16));
  crl_alloc_countdown = index;
  for (int round = 0; round < 2; round++) {
    size_t n = ITEMS("a", "f", "n", "e", "p", "t", "a");
    int status = corral_get_many(
        r.c, items, n,
        CORRAL_CALL(.policy = CORRAL_POLICY(.near_ms = round == 0 ? CORRAL_OFF : 1000)), by_letter,
        &r);
    assert_true(status == CORRAL_OK || status == CORRAL_ENOMEM);
    check_any(items, n);
    drop(items, n);
  }
  int whole = crl_alloc_countdown >= 0;
  crl_alloc_countdown = -1;
  size_t n = ITEMS("a", "b");
  corral_invalidate(r.c, "a", 1, NULL);
  assert_int_equal(corral_get_many(r.c, items, n,
                                   CORRAL_CALL(.policy = CORRAL_POLICY(.retry_ms = 1)), by_letter,
                                   &r),
                   CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
  corral_close(r.c);
  return whole;
}

static void a_failed_allocation_costs_its_keys_at_most(void **state) {
  (void)state;
  long index = 0;
  while (index < FAILS_MOST && !tour(index)) index++;
  print_message("           %ld allocations\n", index);
  assert_in_range(index, 50, FAILS_MOST - 1);
}

#define IN_ROOM(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOM(cold_keys_are_one_compute_and_warm_ones_none),
      IN_ROOM(each_key_of_a_mixed_batch_gets_its_own_answer),
      IN_ROOM(a_failure_of_a_stale_key_leaves_its_value),
      IN_ROOM(a_negative_return_value_fails_those_that_were_given_nothing),
      IN_ROOM(a_key_that_appears_twice_is_computed_once),
      IN_ROOM(what_cant_be_cached_is_computed_along_with_the_rest),
      IN_ROOM(without_a_compute_it_only_looks),
      IN_ROOM(what_concerns_the_call_is_its_status_and_that_of_each_item),
      IN_ROOM(a_compute_that_asks_for_one_of_its_own_keys_is_told_so),
      IN_ROOM(a_thousand_keys_are_one_compute),
      cmocka_unit_test(tags_and_the_whole_namespace_are_heeded),
      cmocka_unit_test(copies_of_this_process_answer_without_the_store),
      cmocka_unit_test(a_failed_allocation_costs_its_keys_at_most),
  };
  return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
