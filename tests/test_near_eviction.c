/* test_near_eviction.c: eviction from the near tier. */
#include "support/near_kit.h"

/* ---- order of eviction --------------------------------------------------------------------- */

static void it_is_filled_before_anybody_leaves(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  put_many(near, "k", room_for());
  assert_int_equal(crl_near_count(near), room_for());
  assert_true(put(near, numbered("k", room_for()), 'm'));
  assert_int_equal(crl_near_count(near), room_for());
  crl_near_free(near);
}

static void those_who_came_once_and_were_never_asked_for_leave_first(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t half = room_for() / 2;
  put_many(near, "h", half);
  put_many(near, "o", room_for() - half);
  get_many(near, "h", half, 2);
  put_many(near, "n", room_for() - half - room_for() / 10);
  assert_int_equal(found_of(near, "h", half), half);
  assert_in_range(found_of(near, "o", room_for() - half), 0, room_for() / 5);
  crl_near_free(near);
}

static void of_those_that_were_never_asked_for_the_oldest_leaves(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  put_many(near, "k", room_for() + 3);
  for (size_t i = 0; i < 3; i++) assert_int_equal(got(near, numbered("k", i)), '-');
  assert_int_equal(got(near, numbered("k", 3)), 'm');
  crl_near_free(near);
}

static void one_hit_is_not_enough_to_stay(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  put_many(near, "k", room_for());
  assert_int_equal(got(near, numbered("k", 0)), 'm');
  (void)got(near, numbered("k", 1)), (void)got(near, numbered("k", 1));
  put_many(near, "n", 2);
  assert_int_equal(got(near, numbered("k", 0)), '-');
  assert_int_equal(got(near, numbered("k", 1)), 'm');
  crl_near_free(near);
}

static void a_long_scan_does_not_flush_those_that_are_hot(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t hot = room_for() / 2;
  put_many(near, "h", hot);
  get_many(near, "h", hot, 2);
  put_many(near, "s", 50 * room_for());
  assert_int_equal(found_of(near, "h", hot), hot);
  crl_near_free(near);
}

/* The near tier is full of main-queue copies with the most marks; then other keys become hot and
 * must replace them. */
static void the_hot_ones_change(crl_near *near) {
  size_t all = room_for(), most = all * 3 / 4;
  put_many(near, "h", all);
  get_many(near, "h", all, 3);
  put_many(near, "n", all);
  get_many(near, "h", all, 3);
  for (int turn = 0; turn < 6; turn++) {
    put_many(near, "n", most);
    get_many(near, "n", most, 2);
  }
  assert_in_range(found_of(near, "n", most), all / 2, all);
}

static void those_that_are_no_longer_hot_leave_in_the_end(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  the_hot_ones_change(near);
  crl_near_free(near);
}

static void the_queues_are_weighed_right_after_copies_were_renewed_with_other_sizes(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  for (size_t turn = 0; turn < 100; turn++) {
    assert_true(put_sized(near, "k", 9000));
    assert_true(put_sized(near, "k", 10));
    crl_near_drop(near, hash_of("k"));
  }
  the_hot_ones_change(near);
  crl_near_free(near);
}

static void one_that_left_lately_comes_back_to_stay(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t all = room_for();
  put_many(near, "k", all + 1); /* evicts k0 */
  assert_int_equal(got(near, numbered("k", 0)), '-');
  assert_true(put(near, numbered("k", 0), 'b'));
  put_many(near, "s", 5 * all);
  assert_int_equal(got(near, numbered("k", 0)), 'b');
  assert_int_equal(found_of(near, "k", all), 1);
  crl_near_free(near);
}

static void those_that_left_long_ago_come_back_as_newcomers(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t all = room_for(), some = all / 4;
  put_many(near, "k", some);
  put_many(near, "s", all);        /* evicts all k */
  put_many(near, "t", all + some); /* evicts enough further keys to push k out of the ghosts */
  put_many(near, "k", some);
  put_many(near, "u", all);
  assert_int_equal(found_of(near, "k", some), 0);
  crl_near_free(near);
}

/* The copy ends by a drop or at the end of its life. */
static void a_popular_one_ends_and_is_put_again(int by_drop) {
  crl_near *near = near_of(MOST);
  const char *key = "popular";
  assert_true(put(near, key, 'a'));
  (void)got(near, key), (void)got(near, key);
  if (by_drop) crl_near_drop(near, hash_of(key));
  assert_int_equal(got_at(near, key, LIFE), '-');
  assert_int_equal(crl_near_count(near), 0);
  put_many(near, "o", 1);
  assert_true(put(near, key, 'b'));
  put_many(near, "s", 5 * room_for());
  assert_int_equal(got(near, key), 'b');
  crl_near_free(near);
}

static void what_takes_the_place_of_a_popular_one_is_as_popular(void **state) {
  (void)state;
  a_popular_one_ends_and_is_put_again(0);
  a_popular_one_ends_and_is_put_again(1);
}

static void one_that_was_dropped_before_it_was_popular_comes_back_as_a_newcomer(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put(near, "k", 'a'));
  assert_int_equal(got(near, "k"), 'a');
  crl_near_drop(near, hash_of("k"));
  put_many(near, "o", 1);
  assert_true(put(near, "k", 'b'));
  put_many(near, "s", room_for());
  assert_int_equal(got(near, "k"), '-');
  crl_near_free(near);
}

static void a_renewed_copy_keeps_its_marks(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  assert_true(put(near, "hot", 'a'));
  (void)got(near, "hot"), (void)got(near, "hot");
  assert_true(put(near, "hot", 'b'));
  put_many(near, "s", 5 * room_for());
  assert_int_equal(got(near, "hot"), 'b');
  crl_near_free(near);
}

static void one_whose_lives_are_over_leaves_however_often_it_was_asked_for(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t all = room_for();
  put_many(near, "k", all);
  get_many(near, "k", all, 3);
  for (size_t i = 0; i < all; i++)
    assert_true(put_copy(near, numbered("n", i), CRL_KIND_VALUE, 'n', SIZE, LIFE,
                         epoch(near, numbered("n", i))));
  size_t found = 0;
  for (size_t i = 0; i < all; i++) found += got_at(near, numbered("n", i), LIFE) != '-';
  assert_int_equal(found, all);
  crl_near_free(near);
}

static void one_put_of_a_tenth_makes_the_room_it_needs(void **state) {
  (void)state;
  crl_near *near = near_of(8 << 20);
  for (size_t i = 0; crl_near_weight(near) < 7 << 20; i++)
    assert_true(put(near, numbered("k", i), 'm'));
  assert_true(put_sized(near, "large", 800000));
  assert_int_equal(got(near, "large"), 's');
  assert_in_range(crl_near_weight(near), 0, 8 << 20);
  crl_near_free(near);
}

/* ---- negatives ----------------------------------------------------------------------------- */

static void negatives_take_a_tenth_and_evict_each_other_but_never_values(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t all = room_for(), tenth = (size_t)(MOST / 10) / weight_of_one();
  put_many(near, "k", all);
  size_t values = crl_near_weight(near);
  for (size_t i = 0; i < 3 * all; i++) assert_true(put_negative(near, numbered("n", i)));
  assert_int_equal(crl_near_count(near), all + tenth);
  assert_in_range(crl_near_weight(near) - values, 1, MOST / 10);
  assert_int_equal(found_of(near, "k", all), all);
  assert_int_equal(got(near, numbered("n", 3 * all - 1)), 'n');
  assert_int_equal(got(near, numbered("n", 0)), '-');
  crl_near_free(near);
}

static void values_never_evict_negatives(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t tenth = (size_t)(MOST / 10) / weight_of_one();
  for (size_t i = 0; i < tenth; i++) assert_true(put_negative(near, numbered("n", i)));
  put_many(near, "k", 5 * room_for());
  assert_int_equal(found_of(near, "n", tenth), tenth);
  crl_near_free(near);
}

static void a_value_that_was_a_negative_is_no_longer_evicted_by_negatives(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t tenth = (size_t)(MOST / 10) / weight_of_one();
  for (size_t i = 0; i < tenth; i++) assert_true(put_negative(near, numbered("k", i)));
  put_many(near, "k", tenth);
  for (size_t i = 0; i < 2 * tenth; i++) assert_true(put_negative(near, numbered("n", i)));
  assert_int_equal(found_of(near, "k", tenth), tenth);
  assert_int_equal(crl_near_count(near), 2 * tenth);
  crl_near_free(near);
}

static void a_negative_that_is_asked_for_stays_longer_than_one_that_is_not(void **state) {
  (void)state;
  crl_near *near = near_of(MOST);
  size_t tenth = (size_t)(MOST / 10) / weight_of_one();
  for (size_t i = 0; i < tenth; i++) assert_true(put_negative(near, numbered("n", i)));
  assert_int_equal(got(near, numbered("n", 0)), 'n');
  for (size_t i = 0; i < tenth - 1; i++) assert_true(put_negative(near, numbered("m", i)));
  assert_int_equal(got(near, numbered("n", 0)), 'n');
  assert_int_equal(got(near, numbered("n", 1)), '-');
  crl_near_free(near);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(it_is_filled_before_anybody_leaves),
      cmocka_unit_test(those_who_came_once_and_were_never_asked_for_leave_first),
      cmocka_unit_test(of_those_that_were_never_asked_for_the_oldest_leaves),
      cmocka_unit_test(one_hit_is_not_enough_to_stay),
      cmocka_unit_test(a_long_scan_does_not_flush_those_that_are_hot),
      cmocka_unit_test(those_that_are_no_longer_hot_leave_in_the_end),
      cmocka_unit_test(the_queues_are_weighed_right_after_copies_were_renewed_with_other_sizes),
      cmocka_unit_test(one_that_left_lately_comes_back_to_stay),
      cmocka_unit_test(those_that_left_long_ago_come_back_as_newcomers),
      cmocka_unit_test(what_takes_the_place_of_a_popular_one_is_as_popular),
      cmocka_unit_test(one_that_was_dropped_before_it_was_popular_comes_back_as_a_newcomer),
      cmocka_unit_test(a_renewed_copy_keeps_its_marks),
      cmocka_unit_test(one_whose_lives_are_over_leaves_however_often_it_was_asked_for),
      cmocka_unit_test(one_put_of_a_tenth_makes_the_room_it_needs),
      cmocka_unit_test(negatives_take_a_tenth_and_evict_each_other_but_never_values),
      cmocka_unit_test(values_never_evict_negatives),
      cmocka_unit_test(a_value_that_was_a_negative_is_no_longer_evicted_by_negatives),
      cmocka_unit_test(a_negative_that_is_asked_for_stays_longer_than_one_that_is_not),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
