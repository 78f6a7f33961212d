/* test_routed.c: a corral on a store whose servers come and go, and whose keys move to other ones
 * in the middle of its batches (routed/store_routed.c). */
#include "support/many_kit.h"

/* Each 11th operation moves the bucket of its key to another server. */
static corral_options moving(void) {
  return (corral_options){
      .size = sizeof(corral_options), .store = "routed:?every=11&stay=yes", .op_ms = 20000};
}

static size_t name_all(corral_item *items) {
  static char names[KEYS][8];
  memset(items, 0xee, KEYS * sizeof *items);
  for (size_t i = 0; i < KEYS; i++) {
    snprintf(names[i], sizeof names[i], "k%zu", i);
    items[i].key = names[i];
    items[i].key_len = strlen(names[i]);
  }
  return KEYS;
}

/* All keys by one call, each of which must come in this way. */
static void get_all(room *r, corral_how how) {
  corral_item items[KEYS];
  size_t n = name_all(items);
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_CALL(.policy = usual()), by_letter, r),
                   CORRAL_OK);
  for (size_t i = 0; i < n; i++) is_own(&items[i], how);
  drop(items, n);
}

/* Looks, claims, settles and invalidations: none is lost, and none is done twice. */
static void batches_whose_keys_move_lose_no_key_and_compute_none_twice(void **state) {
  room r;
  corral_options options = moving();
  (void)state;
  open_room(&r, &options);
  for (int round = 1; round <= 5; round++) {
    corral_item items[KEYS];
    get_all(&r, CORRAL_COMPUTED);
    get_all(&r, CORRAL_FRESH);
    get_all(&r, CORRAL_FRESH);
    assert_int_equal(r.computes, round * KEYS);
    size_t n = name_all(items);
    for (size_t i = 0; i < n; i++)
      assert_int_equal(corral_invalidate(r.c, items[i].key, items[i].key_len, NULL), CORRAL_OK);
  }
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_STORE_DOWN), 0);
  corral_close(r.c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(batches_whose_keys_move_lose_no_key_and_compute_none_twice),
  };
  return cmocka_run_group_tests_name("routed", tests, NULL, NULL);
}
