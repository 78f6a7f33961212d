/* test_lock_turns.c: turns in a lock's record: who waits `fair` gets the lock in the order of
 * arrival, in single cases. The random ones: test_lock_record_model.c, test_redis_lock.c. */
#include "record/record.h"
#include "support/lock_record_kit.h"

enum { TURN = CORRAL_LOCK_TURN_MS, PLACE = CORRAL_LOCK_PLACE_MS };

static corral_op fair_op(unsigned holder, unsigned flags) {
  corral_op op = op_of(CORRAL_VERB_LOCK, holder);
  op.flags = CORRAL_OP_FAIR | flags;
  op.lock.wish_ms = WISH;
  return op;
}

static int asks(lab *l, unsigned holder, unsigned flags) {
  corral_op op = fair_op(holder, flags);
  return does(l, &op);
}

/* Asks, is refused, and gets this place. */
static void waits_at(lab *l, unsigned holder, unsigned flags, uint64_t place) {
  corral_op op = fair_op(holder, flags);
  assert_int_equal(does(l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.fence, place);
}

static int unlocks(lab *l, unsigned holder) { return simply(l, CORRAL_VERB_UNLOCK, holder, 0); }

/* Token 1 has the lock, and 2 to `last` wait, in this order. */
static lab crowded(unsigned last) {
  lab l = {.now = NOW};
  assert_int_equal(asks(&l, 1, ALONE), CORRAL_OK);
  for (unsigned i = 2; i <= last; i++) waits_at(&l, i, ALONE, i - 1);
  return l;
}

static void turns_go_round_in_the_order_of_arrival(void **state) {
  (void)state;
  enum { CROWD = 5, ROUNDS = 4 };
  lab l = crowded(CROWD);
  for (unsigned turn = 0; turn < CROWD * ROUNDS; turn++) {
    unsigned holder = turn % CROWD + 1, next = holder % CROWD + 1;
    assert_int_equal(unlocks(&l, holder), CORRAL_OK);
    assert_int_equal(head_of(&l).turn_until, l.now + TURN);
    waits_at(&l, holder, ALONE, CROWD); /* who had it goes to the end */
    for (unsigned other = 1; other <= CROWD; other++)
      if (other != next) assert_int_equal(asks(&l, other, ALONE), CORRAL_EBUSY);
    l.now += 10;
    assert_int_equal(asks(&l, next, ALONE), CORRAL_OK);
    assert_int_equal(head_of(&l).turn_until, 0);
    assert_int_equal(head_of(&l).count, CROWD);
  }
  free(l.record);
}

static void who_asks_again_keeps_its_place_and_writes_seldom(void **state) {
  (void)state;
  lab l = crowded(3);
  corral_op hold = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op_lasts(&hold, 10 * PLACE);
  assert_int_equal(does(&l, &hold), CORRAL_OK);
  l.now += PLACE / 2;
  waits_at(&l, 2, ALONE, 1);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  l.now++;
  waits_at(&l, 2, ALONE, 1);
  assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
  waits_at(&l, 3, ALONE, 2);
  l.now += PLACE - 1;
  waits_at(&l, 3, ALONE, 2);
  free(l.record);
}

static void a_turn_that_isnt_taken_passes_on_and_costs_no_more(void **state) {
  (void)state;
  lab l = crowded(4);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  l.now += TURN - 1;
  corral_op op = fair_op(4, ALONE);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, 1);
  l.now++;
  op = fair_op(4, ALONE);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY); /* now it is 3's turn */
  assert_int_equal(op.lock_state.left_ms, TURN);
  assert_int_equal(op.lock_state.fence, 2);
  l.now += TURN;
  assert_int_equal(asks(&l, 4, ALONE), CORRAL_OK); /* 3 is dead, too */
  assert_int_equal(head_of(&l).count, 1);
  waits_at(&l, 2, ALONE, 1); /* who comes late is at the end */
  free(l.record);
}

static void a_turn_that_is_over_is_still_taken_when_nobody_else_came(void **state) {
  (void)state;
  lab l = crowded(3);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  l.now += 10 * TURN;
  assert_int_equal(asks(&l, 2, ALONE), CORRAL_OK);
  waits_at(&l, 3, ALONE, 1);
  free(l.record);
}

static void a_holder_that_dies_leaves_the_turn_to_the_first(void **state) {
  (void)state;
  lab l = crowded(3);
  l.now += LEASE;
  corral_op op = fair_op(3, ALONE);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, TURN);
  assert_int_equal(asks(&l, 2, ALONE), CORRAL_OK);
  free(l.record);
}

static void who_gives_up_leaves_the_queue_at_once(void **state) {
  (void)state;
  lab l = crowded(4);
  assert_int_equal(unlocks(&l, 3), CORRAL_OK);
  waits_at(&l, 4, ALONE, 2);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  l.now += 100;
  assert_int_equal(unlocks(&l, 2), CORRAL_OK); /* in its own turn, which is 4's from now on */
  assert_int_equal(head_of(&l).turn_until, l.now + TURN);
  waits_at(&l, 5, ALONE, 2);
  assert_int_equal(asks(&l, 4, ALONE), CORRAL_OK);
  assert_int_equal(unlocks(&l, 2), CORRAL_ELOST);
  free(l.record);
}

static void a_place_that_isnt_asked_for_ends(void **state) {
  (void)state;
  lab l = crowded(2);
  corral_op hold = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op_lasts(&hold, 10 * PLACE);
  assert_int_equal(does(&l, &hold), CORRAL_OK);
  l.now += PLACE - 1;
  waits_at(&l, 3, ALONE, 2);
  l.now++;
  waits_at(&l, 3, ALONE, 1);
  free(l.record);
}

static void nobody_without_a_turn_overtakes_the_queue(void **state) {
  (void)state;
  lab l = crowded(2);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  assert_int_equal(takes(&l, 9, ALONE, WISH), CORRAL_EBUSY);
  assert_int_equal(takes(&l, 9, SHARED, 0), CORRAL_EBUSY);
  assert_int_equal(head_of(&l).count, 1); /* and gets no place */
  assert_int_equal(asks(&l, 2, ALONE), CORRAL_OK);
  assert_int_equal(unlocks(&l, 2), CORRAL_OK);
  assert_int_equal(takes(&l, 9, ALONE, 0), CORRAL_OK);
  free(l.record);
}

static void one_try_gets_no_place(void **state) {
  (void)state;
  lab l = crowded(1);
  corral_op op = fair_op(2, ALONE);
  op.lock.wish_ms = 0;
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.fence, 0);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  free(l.record);
}

static void readers_in_a_row_read_together_and_a_writer_between_has_its_turn(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(asks(&l, 1, SHARED), CORRAL_OK);
  waits_at(&l, 2, ALONE, 1);
  waits_at(&l, 3, SHARED, 2); /* behind the writer, though it could read with 1 */
  waits_at(&l, 4, SHARED, 3);
  waits_at(&l, 5, ALONE, 4);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  assert_int_equal(asks(&l, 2, ALONE), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 2, SHARED), CORRAL_OK); /* a reader now */
  assert_int_equal(head_of(&l).turn_until, l.now + TURN);
  waits_at(&l, 4, SHARED, 2);
  assert_int_equal(asks(&l, 3, SHARED), CORRAL_OK);
  assert_int_equal(asks(&l, 4, SHARED), CORRAL_OK);
  waits_at(&l, 5, ALONE, 1);
  waits_at(&l, 6, SHARED, 2);
  for (unsigned reader = 2; reader <= 4; reader++) assert_int_equal(unlocks(&l, reader), CORRAL_OK);
  assert_int_equal(asks(&l, 5, ALONE), CORRAL_OK);
  free(l.record);
}

static corral_op permit_op(unsigned holder) {
  corral_op op = fair_op(holder, ALONE);
  op.lock.permits = 2;
  return op;
}

static int asks_permit(lab *l, unsigned holder) {
  corral_op op = permit_op(holder);
  return does(l, &op);
}

static void permits_go_in_turn_and_a_writer_between_has_its_own(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(asks_permit(&l, 1), CORRAL_OK);
  assert_int_equal(asks_permit(&l, 2), CORRAL_OK);
  assert_int_equal(asks_permit(&l, 3), CORRAL_EBUSY);
  waits_at(&l, 4, ALONE, 2);
  assert_int_equal(asks_permit(&l, 5), CORRAL_EBUSY);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  assert_int_equal(head_of(&l).turn_until, l.now + TURN); /* one permit is free: 3's */
  assert_int_equal(asks_permit(&l, 5), CORRAL_EBUSY);
  assert_int_equal(asks_permit(&l, 3), CORRAL_OK);
  assert_int_equal(unlocks(&l, 2), CORRAL_OK);
  assert_int_equal(head_of(&l).turn_until, 0); /* 4 wants all of them */
  assert_int_equal(asks_permit(&l, 5), CORRAL_EBUSY);
  assert_int_equal(unlocks(&l, 3), CORRAL_OK);
  assert_int_equal(asks(&l, 4, ALONE), CORRAL_OK);
  assert_int_equal(unlocks(&l, 4), CORRAL_OK);
  assert_int_equal(asks_permit(&l, 5), CORRAL_OK);
  free(l.record);
}

static void a_wish_doesnt_bar_the_queue(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes(&l, 1, SHARED, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 2, ALONE, WISH), CORRAL_EBUSY);
  waits_at(&l, 3, SHARED, 1);
  assert_int_equal(asks(&l, 3, SHARED), CORRAL_OK);
  free(l.record);
}

/* Versions without turns write 0 where the end of the turn is. */
static void a_turn_that_an_older_corral_took_away_begins_anew(void **state) {
  (void)state;
  lab l = crowded(3);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  memset(l.record + 24, 0, 8);
  l.now += 10 * TURN;
  corral_op op = fair_op(3, ALONE);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, TURN);
  assert_int_equal(asks(&l, 2, ALONE), CORRAL_OK);
  free(l.record);
}

static void a_turn_that_cant_be_right_is_dated_anew(void **state) {
  (void)state;
  lab l = crowded(3);
  assert_int_equal(unlocks(&l, 1), CORRAL_OK);
  crl_record_put(l.record + 24, (uint64_t)l.now + 3600000, 8);
  corral_op op = fair_op(3, ALONE);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, TURN);
  assert_int_equal(head_of(&l).turn_until, l.now + TURN);
  free(l.record);
}

/* A stranger, or damage, wrote it. */
static void a_place_whose_number_of_permits_cant_be_right_holds_nobody_up(void **state) {
  (void)state;
  static const uint64_t numbers[] = {0, UINT64_C(1) << 53, INT64_MAX, UINT64_MAX};
  for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
    lab l = crowded(1);
    assert_int_equal(asks_permit(&l, 2), CORRAL_EBUSY);
    waits_at(&l, 3, ALONE, 2);
    crl_record_put(l.record + CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD + 40, numbers[i], 8);
    assert_int_equal(unlocks(&l, 1), CORRAL_OK);
    assert_int_equal(head_of(&l).turn_until, l.now + TURN);
    waits_at(&l, 3, ALONE, 2);
    l.now += TURN;
    assert_int_equal(asks(&l, 3, ALONE), CORRAL_OK);
    free(l.record);
  }
}

static void a_queue_has_so_many_places(void **state) {
  (void)state;
  lab l = crowded(CORRAL_LOCK_PLACES + 1);
  waits_at(&l, 1000, ALONE, 0);
  assert_int_equal(head_of(&l).count, CORRAL_LOCK_PLACES + 1);
  assert_int_equal(unlocks(&l, 7), CORRAL_OK);
  waits_at(&l, 1000, ALONE, CORRAL_LOCK_PLACES);
  free(l.record);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(turns_go_round_in_the_order_of_arrival),
      cmocka_unit_test(who_asks_again_keeps_its_place_and_writes_seldom),
      cmocka_unit_test(a_turn_that_isnt_taken_passes_on_and_costs_no_more),
      cmocka_unit_test(a_turn_that_is_over_is_still_taken_when_nobody_else_came),
      cmocka_unit_test(a_holder_that_dies_leaves_the_turn_to_the_first),
      cmocka_unit_test(who_gives_up_leaves_the_queue_at_once),
      cmocka_unit_test(a_place_that_isnt_asked_for_ends),
      cmocka_unit_test(nobody_without_a_turn_overtakes_the_queue),
      cmocka_unit_test(one_try_gets_no_place),
      cmocka_unit_test(readers_in_a_row_read_together_and_a_writer_between_has_its_turn),
      cmocka_unit_test(permits_go_in_turn_and_a_writer_between_has_its_own),
      cmocka_unit_test(a_wish_doesnt_bar_the_queue),
      cmocka_unit_test(a_turn_that_an_older_corral_took_away_begins_anew),
      cmocka_unit_test(a_turn_that_cant_be_right_is_dated_anew),
      cmocka_unit_test(a_place_whose_number_of_permits_cant_be_right_holds_nobody_up),
      cmocka_unit_test(a_queue_has_so_many_places),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
