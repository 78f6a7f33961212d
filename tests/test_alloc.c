/* test_alloc.c: every allocation of the core fails once, in turn. Each call returns a status or a
 * value, nothing leaks (under ASan), and the corral works again afterwards. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "base/value.h"

enum { PLENTY = 1000000, FAILS_MOST = 4000 };

static int give(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

static int give_nothing(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  corral_fill_negative(fill);
  return CORRAL_OK;
}

static int give_failure(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key, (void)key_len, (void)arg;
  corral_fill_fail(fill, 7, "no");
  return CORRAL_OK;
}

static int give_for_this_call(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  corral_fill_lives(fill, CORRAL_OFF, 0, 0);
  return corral_fill_bytes(fill, key, key_len);
}

/* Requires a known status, or CORRAL_OK with an undamaged value. */
static void check(int status, corral_value *value, const char *key) {
  assert_in_range(-status, 0, 25);
  if (status != CORRAL_OK) return;
  assert_non_null(value);
  assert_int_equal(corral_value_size(value), strlen(key));
  assert_memory_equal(corral_value_data(value), key, strlen(key));
  corral_value_unref(value);
}

static void get(corral *c, const char *key, corral_compute *compute) {
  corral_value *value = NULL;
  corral_error error = {0};
  const corral_policy *policy = CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 60000, .sie_ms = 60000);
  int status = corral_get_or_compute(
      c, key, strlen(key), CORRAL_CALL(.policy = policy, .error = &error), compute, NULL, &value);
  check(status, value, key);
}

static void look(corral *c, const char *key) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), NULL, &value);
  check(status, value, key);
}

/* A compute that sets a tag, a validator and a version too. */
static int give_all(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  int status = corral_fill_tag(fill, "tag", 3);
  if (status == CORRAL_OK) status = corral_fill_validator(fill, "validator", 9);
  corral_fill_version(fill, 1);
  return status == CORRAL_OK ? give(fill, key, key_len, arg) : status;
}

static int give_the_old(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  return corral_fill_not_modified(fill) == CORRAL_OK ? CORRAL_OK
                                                     : give_all(fill, key, key_len, arg);
}

static int give_in_private(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  corral_fill_pass(fill);
  return give(fill, key, key_len, arg);
}

/* The other features: tags, a generation, copies, packed values. */
static void rich_tour(corral *c) {
  corral_error error;
  corral_inspection inspection = {.size = sizeof inspection};
  for (int i = 0; i < 3; i++) get(c, "rich", give_all);
  assert_in_range(-corral_expire_tag(c, "tag", 3, &error), 0, 25);
  get(c, "rich", give_the_old);
  assert_in_range(-corral_inspect(c, "rich", 4, CORRAL_CALL(.error = &error), &inspection), 0, 25);
  assert_in_range(-corral_invalidate_tag(c, "tag", 3, &error), 0, 25);
  get(c, "rich", give_the_old);
  get(c, "private", give_in_private);
  get(c, "private", give_in_private);
  assert_in_range(-corral_invalidate_all(c, &error), 0, 25);
  corral_cancel_token_free(corral_cancel_token_new());
}

static int whole_tour; /* the last tour had no failed allocation */

/* Calls most public functions. Returns 0 when corral_open failed. */
static int tour(int bound) {
  corral *c = NULL;
  corral_error error = {0};
  corral_inspection inspection = {.size = sizeof inspection};
  int status = corral_open(CORRAL_OPTIONS(.store = "memory:", .name_space = "n",
                                          .compute = bound ? give : NULL, .max_computes = 3,
                                          .fleet_max_computes = 2, .near_bytes = 1 << 20,
                                          .generation = 1, .compress_min = 1),
                           &c, &error);
  if (status != CORRAL_OK) {
    assert_int_equal(status, CORRAL_ENOMEM);
    assert_null(c);
    return 0;
  }
  get(c, "cold", give);
  get(c, "cold", give);
  get(c, "nothing", give_nothing);
  get(c, "failing", give_failure);
  get(c, "passing", give_for_this_call);
  assert_in_range(-corral_set(c, "set", 3, NULL, "set", 3), 0, 25);
  look(c, "set");
  look(c, "absent");
  assert_in_range(-corral_expire(c, "cold", 4, CORRAL_CALL(.error = &error)), 0, 25);
  get(c, "cold", give); /* stale */
  assert_in_range(-corral_inspect(c, "cold", 4, CORRAL_CALL(.error = &error), &inspection), 0, 25);
  assert_in_range(-corral_invalidate(c, "cold", 4, CORRAL_CALL(.error = &error)), 0, 25);
  look(c, "cold");
  rich_tour(c);
  whole_tour = crl_alloc_countdown >= 0;
  /* the corral works again with memory */
  crl_alloc_countdown = -1;
  corral_value *value = NULL;
  assert_int_equal(corral_invalidate(c, "cold", 4, CORRAL_CALL(.error = &error)), CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "cold", 4, NULL, give, NULL, &value), CORRAL_OK);
  check(CORRAL_OK, value, "cold");
  assert_int_equal(corral_get(c, "cold", 4, NULL, &value), CORRAL_OK);
  assert_int_equal(corral_value_how(value), CORRAL_FRESH);
  check(CORRAL_OK, value, "cold");
  corral_close(c);
  return 1;
}

static void fail_each_in_turn(int bound) {
  long opened = 0, fails = 0;
  /* Each allocation fails in turn, until a tour has fewer than that. */
  for (long index = 0; index < FAILS_MOST; index++) {
    crl_alloc_countdown = index;
    int open = tour(bound);
    opened += open;
    fails = index;
    if (open && whole_tour) break;
  }
  crl_alloc_countdown = -1;
  assert_true(whole_tour && fails > 20 && opened > 20);
}

#ifdef CORRAL_HAVE_redis
/* A tour while the store is away: no server listens on that port. */
static int tour_away(void) {
  corral *c = NULL;
  corral_error error = {0};
  corral_value *value = NULL;
  int status = corral_open(CORRAL_OPTIONS(.store = "redis://127.0.0.1:9", .host_lock = 1,
                                          .max_computes = 2, .fleet_max_computes = 2),
                           &c, &error);
  if (status != CORRAL_OK) {
    assert_int_equal(status, CORRAL_ENOMEM);
    return 0;
  }
  for (int i = 0; i < 2; i++) get(c, "cold", give);
  assert_int_not_equal(corral_invalidate(c, "cold", 4, CORRAL_CALL(.error = &error)), CORRAL_OK);
  status = corral_get_or_compute(
      c, "other", 5, CORRAL_CALL(.policy = CORRAL_POLICY(.when_away = CORRAL_AWAY_STALE)), give,
      NULL, &value);
  check(status, value, "other");
  crl_alloc_countdown = -1;
  for (int i = 0; i < 2; i++) {
    assert_int_equal(
        corral_get_or_compute(c, "third", 5,
                              CORRAL_CALL(.policy = CORRAL_POLICY(.when_away = CORRAL_AWAY_STALE)),
                              give, NULL, &value),
        CORRAL_OK);
    check(CORRAL_OK, value, "third");
  }
  assert_int_equal(corral_counter(c, CORRAL_EVENT_OUTBOX_HIT) > 0, 1);
  corral_close(c);
  return 1;
}

static void so_it_is_while_the_store_is_away(void **state) {
  (void)state;
  long opened = 0;
  for (long index = 0; index < 60; index++) {
    crl_alloc_countdown = index;
    opened += tour_away();
  }
  crl_alloc_countdown = -1;
  assert_true(opened > 10);
}
#endif

static long count_tour(void) {
  corral *c = NULL;
  corral_value *value = NULL;
  crl_alloc_countdown = PLENTY;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL), CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, give, NULL, &value), CORRAL_OK);
  corral_value_unref(value);
  corral_close(c);
  long used = PLENTY - crl_alloc_countdown;
  crl_alloc_countdown = -1;
  return used;
}

static void the_countdown_counts_every_allocation(void **state) {
  (void)state;
  assert_in_range(count_tour(), 8, 40);
}

static void opening_without_memory_says_so_and_leaves_nothing(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  crl_alloc_countdown = PLENTY;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, NULL), CORRAL_OK);
  long used = PLENTY - crl_alloc_countdown;
  corral_close(c);
  for (long index = 0; index < used; index++) {
    c = NULL;
    crl_alloc_countdown = index;
    assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), &c, &error), CORRAL_ENOMEM);
    assert_int_equal(error.status, CORRAL_ENOMEM);
    assert_null(c);
  }
  crl_alloc_countdown = -1;
}

static void a_failed_allocation_costs_one_call_at_most(void **state) {
  (void)state;
  fail_each_in_turn(0);
}

static void so_it_is_with_a_compute_bound_at_open(void **state) {
  (void)state;
  fail_each_in_turn(1);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_countdown_counts_every_allocation),
      cmocka_unit_test(opening_without_memory_says_so_and_leaves_nothing),
      cmocka_unit_test(a_failed_allocation_costs_one_call_at_most),
      cmocka_unit_test(so_it_is_with_a_compute_bound_at_open),
#ifdef CORRAL_HAVE_redis
      cmocka_unit_test(so_it_is_while_the_store_is_away),
#endif
  };
  return cmocka_run_group_tests_name("alloc", tests, NULL, NULL);
}
