/* test_lock_record.c: the change of a lock's record by each verb, in single cases. */
#include "record/record.h"
#include "support/lock_record_kit.h"

/* ---- single cases -------------------------------------------------------------------------- */

static void a_lock_is_one_holders_until_it_is_given_back(void **state) {
  (void)state;
  lab l = {.now = NOW};
  corral_op op = op_of(CORRAL_VERB_LOCK, 1);
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, LEASE);
  assert_int_equal(op.lock_state.fence, (uint64_t)NOW * 1000);
  l.now += 300;
  op = op_of(CORRAL_VERB_LOCK, 2);
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, LEASE - 300);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  op = op_of(CORRAL_VERB_UNLOCK, 2);
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, LEASE - 300);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_OK);
  op = op_of(CORRAL_VERB_UNLOCK, 1);
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, 0);
  assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_OK);
  free(l.record);
}

static void a_hold_is_over_at_its_very_end_and_not_before(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  l.now += LEASE - 1;
  assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_EBUSY);
  l.now++;
  assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0), CORRAL_ELOST);
  assert_int_equal(head_of(&l).count, 1);
  free(l.record);
}

static void an_extend_never_shortens(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op.lock_extend.hold_ms = 10;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, LEASE);
  op.lock_extend.hold_ms = 5 * LEASE;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, 5 * LEASE);
  assert_int_equal(l.expires, NOW + 5 * LEASE + CORRAL_LOCK_MEMORY_MS);
  free(l.record);
}

static void a_fencing_token_may_be_raised_and_the_next_is_larger(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op.lock_extend.fence = UINT64_C(1) << 40;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_true(op.lock_state.fence == UINT64_C(1) << 40);
  op.lock_extend.fence = 5; /* never lowered */
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_true(op.lock_state.fence == UINT64_C(1) << 40);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_OK);
  op = op_of(CORRAL_VERB_LOCK, 2);
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_true(op.lock_state.fence == (UINT64_C(1) << 40) + 1);
  free(l.record);
}

static corral_op take_over(unsigned holder, unsigned from) {
  static uint8_t of[CORRAL_TOKEN];
  memcpy(of, token(from), sizeof of);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, holder);
  op.lock_extend.from = of;
  op.lock_extend.note = "heir";
  op.lock_extend.note_len = 4;
  return op;
}

static void a_hold_that_is_taken_over_has_another_token_and_note_and_a_larger_fence(void **state) {
  (void)state;
  lab l = {.now = NOW};
  corral_hold hold;
  corral_op op = op_of(CORRAL_VERB_LOCK, 1);
  assert_int_equal(does(&l, &op), CORRAL_OK);
  uint64_t fence = op.lock_state.fence;
  l.now += 10;
  for (int repeats = 0; repeats < 2; repeats++) {
    op = take_over(2, 1);
    assert_int_equal(does(&l, &op), CORRAL_OK);
    assert_int_equal(op.lock_state.fence, fence + 1);
    assert_int_equal(op.lock_state.left_ms, LEASE);
    assert_int_equal(head_of(&l).count, 1);
    assert_int_equal(head_of(&l).fence, fence + 1);
  }
  crl_lock_record_hold(l.record, 0, &hold);
  assert_memory_equal(hold.token, token(2), CORRAL_TOKEN);
  assert_string_equal(hold.note, "heir");
  assert_int_equal(hold.since, NOW);
  op = take_over(3, 1);
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  assert_int_equal(op.lock_state.left_ms, LEASE);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_ELOST);
  l.now += LEASE; /* the hold is over: the repeated request doesn't find another one */
  op = take_over(2, 1);
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  free(l.record);
}

static void a_shared_hold_is_taken_over_by_who_knows_that_it_is_one(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, CORRAL_OP_SHARED, 0);
  takes(&l, 2, CORRAL_OP_SHARED, 0);
  uint64_t last = head_of(&l).fence;
  corral_op op = take_over(3, 1);
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  op.flags = CORRAL_OP_SHARED;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.fence, last + 1);
  assert_int_equal(head_of(&l).count, 2);
  free(l.record);
}

static corral_hold hold_at(const lab *l, size_t index) {
  corral_hold hold;
  assert_true(index < head_of(l).count);
  crl_lock_record_hold(l->record, index, &hold);
  return hold;
}

static void a_permit_that_is_taken_over_stays_one_of_so_many(void **state) {
  (void)state;
  static const unsigned flags[] = {ALONE, SHARED};
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 2, LEASE), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 2, 2, LEASE), CORRAL_OK);
  for (unsigned i = 0; i < 2; i++) {
    uint64_t last = head_of(&l).fence;
    corral_op op = take_over(3 + i, i == 0 ? 1 : 3);
    op.flags = flags[i];
    assert_int_equal(does(&l, &op), CORRAL_OK);
    assert_int_equal(op.lock_state.fence, last + 1);
    assert_int_equal(head_of(&l).count, 2);
    assert_int_equal(hold_at(&l, 1).mode, CORRAL_LOCK_PERMIT);
    assert_memory_equal(hold_at(&l, 1).token, token(3 + i), CORRAL_TOKEN);
  }
  assert_int_equal(takes_permit(&l, 5, 2, LEASE), CORRAL_EBUSY);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_ELOST);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 4, 0), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 5, 2, LEASE), CORRAL_OK);
  free(l.record);
}

static corral_op asks_in_turn(lab *l, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, holder);
  op.flags = CORRAL_OP_FAIR;
  op.lock.wish_ms = WISH;
  does(l, &op);
  return op;
}

static void a_hold_that_is_taken_over_leaves_the_queue_and_its_turns_as_they_are(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(asks_in_turn(&l, 1).status, CORRAL_OK);
  for (unsigned i = 2; i <= 3; i++) assert_int_equal(asks_in_turn(&l, i).lock_state.fence, i - 1);
  corral_op op = take_over(4, 2); /* a place is no hold */
  assert_int_equal(does(&l, &op), CORRAL_ELOST);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  op = take_over(4, 1);
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(head_of(&l).count, 3);
  assert_int_equal(head_of(&l).turn_until, 0); /* the lock wasn't free in between */
  for (unsigned i = 2; i <= 3; i++) assert_int_equal(asks_in_turn(&l, i).lock_state.fence, i - 1);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_ELOST);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 4, 0), CORRAL_OK);
  assert_int_equal(head_of(&l).turn_until, NOW + CORRAL_LOCK_TURN_MS);
  assert_int_equal(asks_in_turn(&l, 3).status, CORRAL_EBUSY);
  assert_int_equal(asks_in_turn(&l, 2).status, CORRAL_OK);
  free(l.record);
}

static int is_tied(const lab *l, size_t index) {
  assert_true(index < head_of(l).count);
  return l->record[CORRAL_LOCK_HEAD + index * CORRAL_LOCK_HOLD + 17];
}

static void a_tie_outlasts_what_others_write_until_it_is_loosed(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, SHARED | CORRAL_OP_TIED, 0);
  takes(&l, 2, SHARED, 0);
  assert_true(is_tied(&l, 0) && !is_tied(&l, 1));
  simply(&l, CORRAL_VERB_LOCK_EXTEND, 2, CORRAL_OP_SHARED);
  assert_true(is_tied(&l, 0) && !is_tied(&l, 1));
  simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0); /* it is the last one now */
  assert_true(!is_tied(&l, 0) && is_tied(&l, 1));
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op.flags = CORRAL_OP_LOOSE;
  op.lock_extend.hold_ms = 1;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, LEASE);
  assert_true(!is_tied(&l, 0) && !is_tied(&l, 1));
  simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0);
  assert_false(is_tied(&l, 1));
  op = take_over(3, 1);
  op.flags = SHARED | CORRAL_OP_TIED;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_true(!is_tied(&l, 0) && is_tied(&l, 1));
  op = take_over(4, 3);
  op.flags = SHARED;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_true(!is_tied(&l, 0) && !is_tied(&l, 1));
  free(l.record);
}

static void a_place_is_tied_as_its_hold_will_be(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  for (unsigned i = 2; i <= 3; i++)
    assert_int_equal(takes(&l, i, CORRAL_OP_FAIR | (i == 2 ? CORRAL_OP_TIED : 0), WISH),
                     CORRAL_EBUSY);
  assert_true(!is_tied(&l, 0) && is_tied(&l, 1) && !is_tied(&l, 2));
  simply(&l, CORRAL_VERB_UNLOCK, 1, 0);
  assert_true(is_tied(&l, 0) && !is_tied(&l, 1));
  assert_int_equal(takes(&l, 2, CORRAL_OP_FAIR | CORRAL_OP_TIED, WISH), CORRAL_OK);
  assert_true(!is_tied(&l, 0) && is_tied(&l, 1));
  assert_int_equal(takes(&l, 2, CORRAL_OP_FAIR, WISH), CORRAL_OK); /* taken anew */
  assert_true(!is_tied(&l, 0) && !is_tied(&l, 1));
  free(l.record);
}

static void a_wish_bars_readers_until_it_passes(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, SHARED, 0);
  assert_int_equal(takes(&l, 2, SHARED, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 3, ALONE, 0), CORRAL_EBUSY); /* without a wish */
  assert_int_equal(takes(&l, 4, SHARED, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 3, ALONE, WISH), CORRAL_EBUSY);
  corral_op op = op_of(CORRAL_VERB_LOCK, 5);
  op.flags = SHARED;
  assert_int_equal(does(&l, &op), CORRAL_EBUSY);
  assert_int_equal(op.lock_state.left_ms, WISH);
  assert_int_equal(takes(&l, 1, SHARED, 0), CORRAL_OK); /* this token has a hold already */
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 2, 0), CORRAL_OK);
  l.now += WISH - 1;
  assert_int_equal(takes(&l, 5, SHARED, 0), CORRAL_EBUSY);
  l.now++;
  assert_int_equal(takes(&l, 5, SHARED, 0), CORRAL_OK);
  free(l.record);
}

static void a_wish_is_written_again_when_half_of_it_has_passed(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, SHARED, 0);
  takes(&l, 2, ALONE, WISH);
  assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
  l.now += WISH / 2;
  takes(&l, 2, ALONE, WISH);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  l.now++;
  takes(&l, 2, ALONE, WISH);
  assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
  assert_int_equal(head_of(&l).wish_until, l.now + WISH);
  free(l.record);
}

static void a_writer_that_is_granted_ends_the_wish(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, SHARED, 0);
  takes(&l, 2, ALONE, WISH);
  simply(&l, CORRAL_VERB_UNLOCK, 1, 0);
  assert_int_equal(takes(&l, 2, ALONE, WISH), CORRAL_OK);
  /* a held exclusive lock bars all others anyway, so no wish is written */
  assert_int_equal(takes(&l, 3, ALONE, WISH), CORRAL_EBUSY);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  simply(&l, CORRAL_VERB_UNLOCK, 2, 0);
  assert_int_equal(takes(&l, 4, SHARED, 0), CORRAL_OK);
  free(l.record);
}

static void a_wish_keeps_the_record_alive(void **state) {
  (void)state;
  lab l = {.now = NOW};
  corral_op op = op_of(CORRAL_VERB_LOCK, 1);
  op.flags = SHARED;
  op.lock.hold_ms = 10;
  does(&l, &op);
  takes(&l, 2, ALONE, WISH);
  assert_int_equal(l.expires, NOW + WISH + CORRAL_LOCK_MEMORY_MS);
  free(l.record);
}

static void a_downgrade_lets_readers_in_and_writers_not(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  uint64_t fence = head_of(&l).fence;
  assert_int_equal(takes(&l, 2, SHARED, 0), CORRAL_EBUSY);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op.flags = SHARED;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.fence, fence);
  assert_int_equal(takes(&l, 2, SHARED, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 3, ALONE, 0), CORRAL_EBUSY);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 2, 0), CORRAL_OK);
  /* extending a shared hold doesn't make it exclusive */
  assert_int_equal(takes(&l, 4, SHARED, 0), CORRAL_OK);
  free(l.record);
}

static int64_t refused_for(lab *l, uint32_t permits) {
  corral_op op = op_of(CORRAL_VERB_LOCK, 99);
  op.lock.permits = permits;
  assert_int_equal(does(l, &op), CORRAL_EBUSY);
  assert_int_equal(l->change.action, CORRAL_ACTION_KEEP);
  return op.lock_state.left_ms;
}

static void permits_are_so_many_and_a_refusal_tells_when_the_first_one_ends(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 3, 500), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 2, 3, 300), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 3, 3, 400), CORRAL_OK);
  assert_int_equal(refused_for(&l, 3), 300);
  assert_int_equal(takes_permit(&l, 2, 3, 300), CORRAL_OK); /* this token has one already */
  assert_int_equal(head_of(&l).count, 3);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 3, 0), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 4, 3, 1000), CORRAL_OK);
  assert_int_equal(refused_for(&l, 3), 300);
  l.now += 300; /* one ends, and the others stand */
  assert_int_equal(takes_permit(&l, 5, 3, 1000), CORRAL_OK);
  assert_int_equal(refused_for(&l, 3), 200);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 2, 0), CORRAL_ELOST);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0), CORRAL_OK);
  free(l.record);
}

static void each_taker_counts_the_permits_by_its_own_number(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 2, LEASE), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 2, 2, LEASE), CORRAL_OK);
  assert_int_equal(refused_for(&l, 1), LEASE);
  assert_int_equal(refused_for(&l, 2), LEASE);
  assert_int_equal(takes_permit(&l, 3, 3, LEASE), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 3, 0), CORRAL_OK);
  assert_int_equal(refused_for(&l, 2), LEASE);
  free(l.record);
}

static void permits_exclude_other_holds_and_are_excluded_by_them(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 9, 200), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 2, 9, 500), CORRAL_OK);
  for (unsigned flags = ALONE; flags <= SHARED; flags += SHARED) {
    corral_op op = op_of(CORRAL_VERB_LOCK, 3);
    op.flags = flags;
    assert_int_equal(does(&l, &op), CORRAL_EBUSY);
    assert_int_equal(op.lock_state.left_ms, 500); /* all of them must end */
  }
  l.now += 500;
  assert_int_equal(takes(&l, 3, SHARED, 0), CORRAL_OK);
  assert_int_equal(refused_for(&l, 9), LEASE);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 3, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 3, ALONE, 0), CORRAL_OK);
  assert_int_equal(refused_for(&l, 9), LEASE);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 3, SHARED), CORRAL_OK);
  assert_int_equal(refused_for(&l, 9), LEASE);
  free(l.record);
}

static void a_writer_that_waits_bars_new_permits(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 9, LEASE), CORRAL_OK);
  assert_int_equal(takes(&l, 2, ALONE, WISH), CORRAL_EBUSY);
  assert_int_equal(refused_for(&l, 9), WISH);
  assert_int_equal(takes_permit(&l, 1, 9, LEASE), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 1, 0), CORRAL_OK);
  assert_int_equal(takes(&l, 2, ALONE, WISH), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 2, 0), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 3, 9, LEASE), CORRAL_OK);
  free(l.record);
}

/* A shared one beside other permits would be a hold that nobody can have asked for. */
static void a_permit_stays_one_when_it_is_downgraded(void **state) {
  (void)state;
  lab l = {.now = NOW};
  assert_int_equal(takes_permit(&l, 1, 2, LEASE), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, SHARED), CORRAL_OK);
  corral_hold hold;
  crl_lock_record_hold(l.record, 0, &hold);
  assert_int_equal(hold.mode, CORRAL_LOCK_PERMIT);
  free(l.record);
}

static void a_lock_has_room_for_so_many_holds(void **state) {
  (void)state;
  lab l = {.now = NOW};
  for (unsigned i = 0; i < CORRAL_LOCK_HOLDS; i++)
    assert_int_equal(takes(&l, i, SHARED, 0), CORRAL_OK);
  assert_int_equal(head_of(&l).count, CORRAL_LOCK_HOLDS);
  assert_int_equal(takes(&l, CORRAL_LOCK_HOLDS, SHARED, 0), CORRAL_EREFUSED);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  assert_int_equal(takes(&l, 77, SHARED, 0), CORRAL_OK);
  assert_int_equal(simply(&l, CORRAL_VERB_UNLOCK, 77, 0), CORRAL_OK);
  assert_int_equal(takes(&l, CORRAL_LOCK_HOLDS, SHARED, 0), CORRAL_OK);
  l.now += LEASE;
  assert_int_equal(takes(&l, 5000, SHARED, 0), CORRAL_OK);
  assert_int_equal(head_of(&l).count, 1); /* expired holds are dropped */
  l.now += LEASE;
  for (unsigned i = 0; i < CORRAL_LOCK_HOLDS; i++)
    assert_int_equal(takes_permit(&l, i, CORRAL_LOCK_HOLDS, LEASE), CORRAL_OK);
  assert_int_equal(takes_permit(&l, 5000, CORRAL_LOCK_HOLDS, LEASE), CORRAL_EBUSY);
  free(l.record);
}

static void the_record_outlives_its_last_hold(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  assert_int_equal(l.expires, NOW + LEASE + CORRAL_LOCK_MEMORY_MS);
  uint64_t fence = head_of(&l).fence;
  l.now += 100;
  simply(&l, CORRAL_VERB_UNLOCK, 1, 0);
  assert_int_equal(l.size, CORRAL_LOCK_HEAD);
  assert_int_equal(l.expires, NOW + 100 + CORRAL_LOCK_MEMORY_MS);
  assert_int_equal(head_of(&l).fence, fence);
  free(l.record);
}

static void what_is_foreign_is_left_alone(void **state) {
  (void)state;
  uint8_t value[CORRAL_HEAD] = "crl1", good[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD], room[512];
  corral_hold hold = {.mode = CORRAL_LOCK_EXCLUSIVE, .until = NOW + 5, .fence = 9};
  corral_lock_change change;
  crl_lock_record_write(9, &hold, 1, good);
  for (int verb = CORRAL_VERB_LOCK; verb <= CORRAL_VERB_LOCK_SHOW; verb++) {
    corral_op op = op_of((corral_verb)verb, 1);
    crl_lock_record_decide(&op, value, sizeof value, NOW, 0, room, &change);
    assert_int_equal(op.status, CORRAL_EFOREIGN);
    assert_int_equal(op.lock_state.left_ms, -1);
    assert_int_equal(change.action, CORRAL_ACTION_KEEP);
    /* cut records, whose number of holds is wrong */
    for (size_t size = 0; size < sizeof good; size++) {
      uint8_t *cut = malloc(size > 0 ? size : 1);
      memcpy(cut, good, size);
      op = op_of((corral_verb)verb, 1);
      crl_lock_record_decide(&op, cut, size, NOW, 0, room, &change);
      free(cut);
      assert_int_equal(op.status, CORRAL_EFOREIGN);
      assert_int_equal(change.action, CORRAL_ACTION_KEEP);
    }
  }
  good[4] = 2;
  crl_lock_head head;
  assert_int_equal(crl_lock_record_read(good, sizeof good, &head), CORRAL_EFOREIGN);
}

/* Numbers in a record are little-endian on each machine. */
static int number_at(const uint8_t *at, size_t bytes, uint64_t number) {
  for (size_t i = 0; i < bytes; i++, number >>= 8)
    if (at[i] != (uint8_t)number) return 0;
  return 1;
}

static void the_bytes_are_where_the_header_says(void **state) {
  (void)state;
  char note[100];
  lab l = {.now = NOW};
  memset(note, 'n', sizeof note);
  corral_op op = op_of(CORRAL_VERB_LOCK, 7);
  op.lock.note = note;
  op.lock.note_len = sizeof note;
  op.flags = SHARED;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  takes(&l, 8, ALONE, WISH);
  assert_int_equal(l.size, 160);
  const uint8_t *r = l.record;
  assert_memory_equal(r, "crk1\1\0\0\0", 8);
  assert_true(number_at(r + 8, 8, (uint64_t)NOW * 1000));
  assert_true(number_at(r + 16, 8, NOW + WISH));
  assert_memory_equal(r + 24, "\0\0\0\0\0\0\0", 8);
  assert_memory_equal(r + 32, token(7), 16);
  assert_memory_equal(r + 48, "\2\0\0\0", 4);
  assert_true(number_at(r + 52, 4, LEASE));
  assert_true(number_at(r + 56, 8, NOW + LEASE));
  assert_true(number_at(r + 64, 8, NOW));
  assert_true(number_at(r + 72, 8, (uint64_t)NOW * 1000));
  assert_memory_equal(r + 80, note, 80);
  free(l.record);
}

static void a_look_changes_nothing_and_tells_the_time(void **state) {
  (void)state;
  lab l = {.now = NOW};
  corral_op op = op_of(CORRAL_VERB_LOCK_SHOW, 0);
  op.token = NULL;
  assert_int_equal(does(&l, &op), CORRAL_EMISS);
  takes(&l, 1, ALONE, 0);
  l.now += LEASE + 5;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(op.lock_state.now, l.now);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  op = op_of(CORRAL_VERB_GET, 0);
  assert_int_equal(does(&l, &op), CORRAL_EUNSUPPORTED);
  free(l.record);
}

/* ---- impossible ends ----------------------------------------------------------------------- */

enum { STEP_BACK = 3600000 };

static corral_hold only_hold(const lab *l) {
  corral_hold hold;
  assert_int_equal(head_of(l).count, 1);
  crl_lock_record_hold(l->record, 0, &hold);
  return hold;
}

/* A record with one hold by a foreign writer. */
static lab stranger(corral_hold hold) {
  lab l = {.now = NOW, .expires = INT64_MAX, .size = CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD};
  l.record = malloc(l.size);
  memcpy(hold.token, token(99), CORRAL_TOKEN);
  crl_lock_record_write(hold.fence, &hold, 1, l.record);
  return l;
}

static int64_t told_when_taking(lab *l, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_LOCK, holder);
  assert_int_equal(does(l, &op), CORRAL_EBUSY);
  return op.lock_state.left_ms;
}

static void a_dead_holder_is_gone_after_one_length_though_the_clock_was_set_back(void **state) {
  (void)state;
  lab l = {.now = NOW + STEP_BACK};
  takes(&l, 1, ALONE, 0);
  l.now = NOW;
  assert_int_equal(told_when_taking(&l, 2), LEASE);
  assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
  assert_int_equal(l.expires, NOW + LEASE + CORRAL_LOCK_MEMORY_MS);
  assert_int_equal(only_hold(&l).since, NOW);
  l.now += LEASE - 1;
  assert_int_equal(told_when_taking(&l, 2), 1);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  l.now++;
  assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_OK);
  free(l.record);
}

static void a_living_holder_keeps_its_hold_though_the_clock_was_set_back(void **state) {
  (void)state;
  lab l = {.now = NOW + STEP_BACK};
  takes(&l, 1, ALONE, 0);
  l.now = NOW;
  for (int i = 0; i < 20; i++) {
    assert_int_equal(told_when_taking(&l, 2), LEASE);
    assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0), CORRAL_OK);
    l.now += LEASE / 3;
    assert_true(told_when_taking(&l, 2) > 0);
    assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 1, 0), CORRAL_OK);
  }
  l.now += LEASE;
  assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_OK);
  free(l.record);
}

static void the_length_is_that_of_the_last_extending(void **state) {
  (void)state;
  lab l = {.now = NOW + STEP_BACK};
  takes(&l, 1, ALONE, 0);
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, 1);
  op.lock_extend.hold_ms = 5 * LEASE;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(only_hold(&l).length_ms, 5 * LEASE);
  op.lock_extend.hold_ms = LEASE;
  assert_int_equal(does(&l, &op), CORRAL_OK);
  assert_int_equal(only_hold(&l).length_ms, 5 * LEASE);
  l.now = NOW;
  assert_int_equal(told_when_taking(&l, 2), 5 * LEASE);
  free(l.record);
}

static void a_small_step_of_the_clock_writes_nothing_and_ends_nothing(void **state) {
  (void)state;
  lab l = {.now = NOW};
  takes(&l, 1, ALONE, 0);
  l.now -= CORRAL_LOCK_SLACK_MS;
  assert_int_equal(told_when_taking(&l, 2), LEASE + CORRAL_LOCK_SLACK_MS);
  assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
  l.now--;
  assert_int_equal(told_when_taking(&l, 2), LEASE);
  assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
  free(l.record);
}

static void a_strangers_end_comes_after_its_length_or_a_day(void **state) {
  (void)state;
  static const struct {
    corral_hold hold;
    int64_t length;
  } rows[] = {
      {{.mode = CORRAL_LOCK_EXCLUSIVE, .until = INT64_MAX}, CORRAL_LOCK_LONGEST_MS},
      {{.mode = CORRAL_LOCK_EXCLUSIVE,
        .until = INT64_MAX,
        .since = INT64_MIN,
        .length_ms = UINT32_MAX},
       CORRAL_LOCK_LONGEST_MS},
      {{.mode = CORRAL_LOCK_EXCLUSIVE, .until = INT64_MAX, .since = INT64_MAX, .length_ms = LEASE},
       LEASE},
      /* written by an older version of corral, without length_ms */
      {{.mode = CORRAL_LOCK_EXCLUSIVE, .until = NOW + STEP_BACK + LEASE, .since = NOW + STEP_BACK},
       LEASE},
      {{.mode = 0, .until = NOW + STEP_BACK, .since = 1, .length_ms = LEASE}, LEASE},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    lab l = stranger(rows[i].hold);
    assert_int_equal(told_when_taking(&l, 2), rows[i].length);
    l.now += rows[i].length;
    assert_int_equal(takes(&l, 2, ALONE, 0), CORRAL_OK);
    free(l.record);
  }
}

static void a_wish_is_over_after_the_longest_wish_whatever_it_says(void **state) {
  (void)state;
  static const int64_t ends[] = {INT64_MAX, NOW + STEP_BACK};
  for (size_t i = 0; i < 2; i++) {
    lab l = {.now = NOW};
    takes(&l, 1, SHARED, 0);
    crl_record_put(l.record + 16, (uint64_t)ends[i], 8);
    corral_op op = op_of(CORRAL_VERB_LOCK, 2);
    op.flags = SHARED;
    assert_int_equal(does(&l, &op), CORRAL_EBUSY);
    assert_int_equal(op.lock_state.left_ms, CORRAL_LOCK_WISH_MS);
    assert_int_equal(l.expires, NOW + CORRAL_LOCK_WISH_MS + CORRAL_LOCK_MEMORY_MS);
    l.now += CORRAL_LOCK_WISH_MS;
    assert_int_equal(takes(&l, 2, SHARED, 0), CORRAL_OK);
    free(l.record);
  }
}

static void holds_without_end_dont_fill_a_lock_for_good(void **state) {
  (void)state;
  static corral_hold holds[CORRAL_LOCK_HOLDS];
  lab l = {.now = NOW,
           .expires = INT64_MAX,
           .size = CORRAL_LOCK_HEAD + sizeof holds / sizeof *holds * CORRAL_LOCK_HOLD};
  for (unsigned i = 0; i < CORRAL_LOCK_HOLDS; i++) {
    holds[i] = (corral_hold){.mode = CORRAL_LOCK_SHARED, .until = INT64_MAX, .length_ms = LEASE};
    memcpy(holds[i].token, token(1000 + i), CORRAL_TOKEN);
  }
  l.record = malloc(l.size);
  crl_lock_record_write(1, holds, CORRAL_LOCK_HOLDS, l.record);
  assert_int_equal(takes(&l, 1, SHARED, 0), CORRAL_EREFUSED);
  l.now += LEASE;
  assert_int_equal(takes(&l, 1, SHARED, 0), CORRAL_OK);
  free(l.record);
}

static void a_fencing_token_that_cant_have_been_given_is_none(void **state) {
  (void)state;
  static const uint64_t fences[] = {UINT64_MAX, (uint64_t)INT64_MAX, (uint64_t)INT64_MAX + 1,
                                    UINT64_C(1) << 53};
  for (size_t i = 0; i < sizeof fences / sizeof *fences; i++) {
    lab l = stranger((corral_hold){.mode = CORRAL_LOCK_EXCLUSIVE,
                                   .until = NOW + LEASE,
                                   .since = NOW,
                                   .length_ms = LEASE,
                                   .fence = fences[i]});
    assert_int_equal(simply(&l, CORRAL_VERB_LOCK_EXTEND, 99, 0), CORRAL_OK);
    l.now += LEASE;
    corral_op op = op_of(CORRAL_VERB_LOCK, 2);
    assert_int_equal(does(&l, &op), CORRAL_OK);
    assert_int_equal(op.lock_state.fence, (uint64_t)l.now * 1000);
    free(l.record);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_lock_is_one_holders_until_it_is_given_back),
      cmocka_unit_test(a_hold_is_over_at_its_very_end_and_not_before),
      cmocka_unit_test(an_extend_never_shortens),
      cmocka_unit_test(a_fencing_token_may_be_raised_and_the_next_is_larger),
      cmocka_unit_test(a_hold_that_is_taken_over_has_another_token_and_note_and_a_larger_fence),
      cmocka_unit_test(a_shared_hold_is_taken_over_by_who_knows_that_it_is_one),
      cmocka_unit_test(a_permit_that_is_taken_over_stays_one_of_so_many),
      cmocka_unit_test(a_hold_that_is_taken_over_leaves_the_queue_and_its_turns_as_they_are),
      cmocka_unit_test(a_tie_outlasts_what_others_write_until_it_is_loosed),
      cmocka_unit_test(a_place_is_tied_as_its_hold_will_be),
      cmocka_unit_test(a_wish_bars_readers_until_it_passes),
      cmocka_unit_test(a_wish_is_written_again_when_half_of_it_has_passed),
      cmocka_unit_test(a_writer_that_is_granted_ends_the_wish),
      cmocka_unit_test(a_wish_keeps_the_record_alive),
      cmocka_unit_test(a_downgrade_lets_readers_in_and_writers_not),
      cmocka_unit_test(permits_are_so_many_and_a_refusal_tells_when_the_first_one_ends),
      cmocka_unit_test(each_taker_counts_the_permits_by_its_own_number),
      cmocka_unit_test(permits_exclude_other_holds_and_are_excluded_by_them),
      cmocka_unit_test(a_writer_that_waits_bars_new_permits),
      cmocka_unit_test(a_permit_stays_one_when_it_is_downgraded),
      cmocka_unit_test(a_lock_has_room_for_so_many_holds),
      cmocka_unit_test(the_record_outlives_its_last_hold),
      cmocka_unit_test(what_is_foreign_is_left_alone),
      cmocka_unit_test(the_bytes_are_where_the_header_says),
      cmocka_unit_test(a_look_changes_nothing_and_tells_the_time),
      cmocka_unit_test(a_dead_holder_is_gone_after_one_length_though_the_clock_was_set_back),
      cmocka_unit_test(a_living_holder_keeps_its_hold_though_the_clock_was_set_back),
      cmocka_unit_test(the_length_is_that_of_the_last_extending),
      cmocka_unit_test(a_small_step_of_the_clock_writes_nothing_and_ends_nothing),
      cmocka_unit_test(a_strangers_end_comes_after_its_length_or_a_day),
      cmocka_unit_test(a_wish_is_over_after_the_longest_wish_whatever_it_says),
      cmocka_unit_test(holds_without_end_dont_fill_a_lock_for_good),
      cmocka_unit_test(a_fencing_token_that_cant_have_been_given_is_none),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
