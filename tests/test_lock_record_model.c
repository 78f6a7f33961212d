/* test_lock_record_model.c: random verbs change a lock's record as they change a simple model. */
#include "support/lock_record_kit.h"

#include <time.h>

/* ---- a model ------------------------------------------------------------------------------- */

enum { TOKENS = 6, STEPS = 60000, NOBODY = 0 };

/* The model of a lock: for each token its mode and end; and the end of a writer's wish. */
typedef struct model {
  struct {
    int mode; /* NOBODY, CORRAL_LOCK_EXCLUSIVE, ... */
    int64_t until, since;
    uint64_t fence;
  } of[TOKENS];
  int64_t wish;
  uint64_t largest; /* largest fencing token ever granted, also before the record expired */
} model;

typedef struct answer {
  int status;
  int64_t until_ms;
  uint64_t fence;
} answer;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

static void model_time(model *m, int64_t now) {
  for (unsigned i = 0; i < TOKENS; i++)
    if (m->of[i].until <= now) m->of[i].mode = NOBODY;
  if (m->wish <= now) m->wish = 0;
}

/* The latest end of holds by other tokens, of one mode or (NOBODY) of any; 0: none. */
static int64_t ends(const model *m, unsigned me, int mode) {
  int64_t last = 0;
  for (unsigned i = 0; i < TOKENS; i++)
    if (i != me && m->of[i].mode != NOBODY && (mode == NOBODY || m->of[i].mode == mode))
      last = max64(last, m->of[i].until);
  return last;
}

/* Of `most` permits: 0 if one is free, else the first end of another token's. */
static int64_t no_permit_until(const model *m, unsigned me, uint32_t most) {
  uint32_t taken = 0;
  int64_t first = INT64_MAX;
  for (unsigned i = 0; i < TOKENS; i++) {
    if (i == me || m->of[i].mode != CORRAL_LOCK_PERMIT) continue;
    taken++;
    if (m->of[i].until < first) first = m->of[i].until;
  }
  return taken < most ? 0 : first;
}

static int64_t way_of(const model *m, unsigned me, int mode, uint32_t most) {
  int64_t writers = max64(ends(m, me, CORRAL_LOCK_EXCLUSIVE), m->wish);
  switch (mode) {
    case CORRAL_LOCK_EXCLUSIVE: return ends(m, me, NOBODY);
    case CORRAL_LOCK_SHARED: return max64(writers, ends(m, me, CORRAL_LOCK_PERMIT));
    default:
      return max64(max64(writers, ends(m, me, CORRAL_LOCK_SHARED)), no_permit_until(m, me, most));
  }
}

static answer model_take(model *m, unsigned me, int mode, const corral_op *op, int64_t now) {
  int64_t way = way_of(m, me, mode, op->lock.permits), wish = op->lock.wish_ms;
  int alone = mode == CORRAL_LOCK_EXCLUSIVE;
  if (m->of[me].mode == NOBODY && way != 0) {
    if (alone && ends(m, me, CORRAL_LOCK_EXCLUSIVE) == 0 && wish > 0 && m->wish < now + wish / 2)
      m->wish = now + wish;
    return (answer){CORRAL_EBUSY, way - now, 0};
  }
  if (m->of[me].mode == NOBODY) {
    m->of[me].mode = mode;
    m->of[me].since = m->of[me].until = now;
    m->of[me].fence = m->largest + 1 > (uint64_t)now * 1000 ? m->largest + 1 : (uint64_t)now * 1000;
    m->largest = m->of[me].fence;
    if (alone) m->wish = 0;
  }
  m->of[me].until = max64(m->of[me].until, now + op->lock.hold_ms);
  return (answer){CORRAL_OK, m->of[me].until - now, m->of[me].fence};
}

static answer model_extend(model *m, unsigned me, int shared, int64_t lease, uint64_t raise,
                           int64_t now) {
  if (m->of[me].mode == NOBODY)
    return (answer){CORRAL_ELOST, ends(m, me, NOBODY) > 0 ? ends(m, me, NOBODY) - now : 0, 0};
  if (shared && m->of[me].mode != CORRAL_LOCK_PERMIT) m->of[me].mode = CORRAL_LOCK_SHARED;
  if (raise > m->of[me].fence) m->of[me].fence = raise;
  if (m->of[me].fence > m->largest) m->largest = m->of[me].fence;
  m->of[me].until = max64(m->of[me].until, now + lease);
  return (answer){CORRAL_OK, m->of[me].until - now, m->of[me].fence};
}

static answer model_unlock(model *m, unsigned me, int64_t now) {
  int mine = m->of[me].mode != NOBODY;
  m->of[me].mode = NOBODY;
  if (mine) return (answer){CORRAL_OK, 0, 0};
  return (answer){CORRAL_ELOST, ends(m, me, NOBODY) > 0 ? ends(m, me, NOBODY) - now : 0, 0};
}

static uint64_t dice(uint64_t *seed, uint64_t sides) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (*seed >> 33) % sides;
}

/* The live holds of the record must be the model's, and the record must outlive them. */
static void same_holds(const lab *l, const model *m) {
  crl_lock_head head = head_of(l);
  corral_hold hold;
  unsigned live = 0, expected = 0;
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(l->record, i, &hold);
    if (hold.until <= l->now) continue;
    unsigned who;
    memcpy(&who, hold.token, sizeof who);
    live++;
    assert_true(who < TOKENS);
    assert_int_equal(hold.mode, m->of[who].mode);
    assert_int_equal(hold.until, m->of[who].until);
    assert_int_equal(hold.since, m->of[who].since);
    assert_int_equal(hold.fence, m->of[who].fence);
    assert_true(l->expires >= hold.until + CORRAL_LOCK_MEMORY_MS);
  }
  for (unsigned i = 0; i < TOKENS; i++) expected += m->of[i].mode != NOBODY;
  assert_int_equal(live, expected);
  assert_int_equal(head.wish_until > l->now ? head.wish_until : 0, m->wish);
}

static answer step(lab *l, model *m, corral_op *op, unsigned me, uint64_t *seed) {
  int mode = CORRAL_LOCK_EXCLUSIVE + (int)dice(seed, 3);
  int64_t hold_ms = 1 + (int64_t)dice(seed, 200);
  op_lasts(op, hold_ms);
  op->flags = mode == CORRAL_LOCK_SHARED ? CORRAL_OP_SHARED : 0;
  switch (op->verb) {
    case CORRAL_VERB_LOCK:
      if (mode == CORRAL_LOCK_PERMIT) op->lock.permits = 1 + (uint32_t)dice(seed, TOKENS - 1);
      op->lock.wish_ms = dice(seed, 2) ? 1 + (int64_t)dice(seed, 100) : 0;
      return model_take(m, me, mode, op, l->now);
    case CORRAL_VERB_LOCK_EXTEND:
      if (dice(seed, 4) != 0) op->flags = 0;
      if (dice(seed, 8) == 0) op->lock_extend.fence = m->largest + dice(seed, 3);
      return model_extend(m, me, op->flags != 0, hold_ms, op->lock_extend.fence, l->now);
    case CORRAL_VERB_UNLOCK: return model_unlock(m, me, l->now);
    default:
      return (answer){l->record != NULL && l->expires > l->now ? CORRAL_OK : CORRAL_EMISS, 0, 0};
  }
}

static void whatever_is_done_a_lock_is_as_the_model_says(void **state) {
  (void)state;
  const char *given = getenv("SEED");
  uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : (uint64_t)time(NULL), first = seed;
  lab l = {.now = NOW};
  model m = {.largest = 0};
  print_message("SEED=%llu\n", (unsigned long long)first);
  for (unsigned i = 0; i < STEPS; i++) {
    /* sometimes the record expires */
    l.now += dice(&seed, 400) == 0 ? 2 * CORRAL_LOCK_MEMORY_MS : (int64_t)dice(&seed, 30);
    model_time(&m, l.now);
    unsigned me = (unsigned)dice(&seed, TOKENS);
    static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                        CORRAL_VERB_UNLOCK, CORRAL_VERB_LOCK_SHOW};
    corral_op op = op_of(verbs[dice(&seed, 5)], me);
    answer expected = step(&l, &m, &op, me, &seed);
    int changes = expected.status == CORRAL_OK && op.verb != CORRAL_VERB_LOCK_SHOW;
    (void)does(&l, &op);
    if (op.status != expected.status || op.lock_state.left_ms != expected.until_ms ||
        (expected.fence != 0 && op.lock_state.fence != expected.fence))
      fail_msg("seed %llu, step %u: verb %u by %u: expected %s, %lld ms, fence %llu; came %s, %lld "
               "ms, fence %llu",
               (unsigned long long)first, i, op.verb, me, corral_status_name(expected.status),
               (long long)expected.until_ms, (unsigned long long)expected.fence,
               corral_status_name(op.status), (long long)op.lock_state.left_ms,
               (unsigned long long)op.lock_state.fence);
    if (changes)
      assert_int_equal(l.change.action, CORRAL_ACTION_REPLACE);
    else if (op.verb != CORRAL_VERB_LOCK)
      assert_int_equal(l.change.action, CORRAL_ACTION_KEEP);
    same_holds(&l, &m);
  }
  free(l.record);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(whatever_is_done_a_lock_is_as_the_model_says),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
