/* test_lock_record_model.c: random verbs change a lock's record as they change a simple model. */
#include "support/lock_record_kit.h"

#include <time.h>

/* ---- a model ------------------------------------------------------------------------------- */

enum { TOKENS = 6, STEPS = 60000, NOBODY = 0 };

/* A place in the queue. */
typedef struct place {
  unsigned who;
  int mode;
  uint32_t permits;
  int64_t until, since;
} place;

/* The model of a lock: for each token its mode and end; the end of a writer's wish; and the queue,
 * with the end of its first place's turn, 0 when that hasn't begun. */
typedef struct model {
  struct {
    int mode; /* NOBODY, CORRAL_LOCK_EXCLUSIVE, ... */
    int64_t until, since;
    uint64_t fence;
  } of[TOKENS];
  int64_t wish;
  place queue[TOKENS];
  unsigned waiting;
  int64_t turn;
  int writes;       /* the verb changes the record */
  uint64_t largest; /* largest fencing token ever granted, also before the record expired */
} model;

typedef struct answer {
  int status;
  int64_t until_ms;
  uint64_t fence;
} answer;

static int64_t max64(int64_t a, int64_t b) { return a > b ? a : b; }

/* Takes place number `i` away; the next one's turn hasn't begun. */
static void model_leaves(model *m, unsigned i) {
  m->waiting--;
  for (unsigned j = i; j < m->waiting; j++) m->queue[j] = m->queue[j + 1];
  if (i == 0) m->turn = 0;
}

static unsigned model_place(const model *m, unsigned who) {
  unsigned i = 0;
  while (i < m->waiting && m->queue[i].who != who) i++;
  return i;
}

static void model_time(model *m, int64_t now) {
  for (unsigned i = m->waiting; i-- > 0;)
    if (m->queue[i].until <= now) model_leaves(m, i);
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
  int64_t writers = max64(ends(m, me, CORRAL_LOCK_EXCLUSIVE), m->waiting > 0 ? 0 : m->wish);
  switch (mode) {
    case CORRAL_LOCK_EXCLUSIVE: return ends(m, me, NOBODY);
    case CORRAL_LOCK_SHARED: return max64(writers, ends(m, me, CORRAL_LOCK_PERMIT));
    default:
      return max64(max64(writers, ends(m, me, CORRAL_LOCK_SHARED)), no_permit_until(m, me, most));
  }
}

/* 1: no hold is in the way of the first of the queue. */
static int model_open(const model *m) {
  return m->waiting > 0 &&
         way_of(m, TOKENS, m->queue[0].mode - CORRAL_LOCK_WAITING, m->queue[0].permits) == 0;
}

/* After a change of the record. */
static void model_settle(model *m, int64_t now) {
  if (!model_open(m))
    m->turn = 0;
  else if (m->turn == 0)
    m->turn = now + CORRAL_LOCK_TURN_MS;
}

/* When the places before one may have been served; 0: there is none. Passes a turn that is over
 * on. */
static int64_t model_turns(model *m, unsigned me, int64_t now) {
  unsigned ahead = model_place(m, me);
  if (ahead == 0) return 0;
  if (!model_open(m)) return ends(m, me, NOBODY);
  if (m->turn > now) return m->turn;
  m->writes = 1;
  if (m->turn == 0) return now + CORRAL_LOCK_TURN_MS;
  model_leaves(m, 0);
  return ahead == 1 ? 0 : now + CORRAL_LOCK_TURN_MS;
}

/* Returns the place. */
static uint64_t model_queues(model *m, unsigned me, int mode, const corral_op *op, int64_t now) {
  unsigned at = model_place(m, me);
  place *p = &m->queue[at];
  if (at == m->waiting && op->lock.wish_ms == 0) return 0;
  if (at == m->waiting) {
    *p = (place){me, CORRAL_LOCK_WAITING + mode, op->lock.permits, 0, now};
    m->waiting++;
  }
  if (p->until - now < CORRAL_LOCK_PLACE_MS / 2)
    p->until = now + CORRAL_LOCK_PLACE_MS, m->writes = 1;
  return at + 1;
}

static answer model_take(model *m, unsigned me, int mode, const corral_op *op, int64_t now) {
  int64_t way = way_of(m, me, mode, op->lock.permits), wish = op->lock.wish_ms;
  int alone = mode == CORRAL_LOCK_EXCLUSIVE, had_queue = m->waiting > 0;
  if (m->of[me].mode == NOBODY) way = max64(way, model_turns(m, me, now));
  if (m->of[me].mode == NOBODY && way != 0) {
    uint64_t at = 0;
    if (op->flags & CORRAL_OP_FAIR)
      at = model_queues(m, me, mode, op, now);
    else if (alone && ends(m, me, CORRAL_LOCK_EXCLUSIVE) == 0 && wish > 0 &&
             m->wish < now + wish / 2 && !had_queue)
      m->wish = now + wish, m->writes = 1;
    return (answer){CORRAL_EBUSY, way - now, at};
  }
  if (m->of[me].mode == NOBODY) {
    unsigned at = model_place(m, me);
    if (at < m->waiting) model_leaves(m, at);
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
  unsigned at = model_place(m, me);
  int mine = m->of[me].mode != NOBODY || at < m->waiting;
  if (at < m->waiting) model_leaves(m, at);
  m->of[me].mode = NOBODY;
  if (mine) return (answer){CORRAL_OK, 0, 0};
  return (answer){CORRAL_ELOST, ends(m, me, NOBODY) > 0 ? ends(m, me, NOBODY) - now : 0, 0};
}

static uint64_t dice(uint64_t *seed, uint64_t sides) {
  *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
  return (*seed >> 33) % sides;
}

static void same_place(const lab *l, const corral_hold *hold, const place *p) {
  assert_memory_equal(hold->token, token(p->who), CORRAL_TOKEN);
  assert_int_equal(hold->mode, p->mode);
  assert_int_equal(hold->fence, p->permits);
  assert_int_equal(hold->until, p->until);
  assert_int_equal(hold->since, p->since);
  assert_true(l->expires >= hold->until + CORRAL_LOCK_MEMORY_MS);
}

/* The live holds and places of the record must be the model's, and the record must outlive them. */
static void same_holds(const lab *l, const model *m) {
  crl_lock_head head = head_of(l);
  corral_hold hold;
  unsigned live = 0, expected = 0, waiting = 0;
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(l->record, i, &hold);
    if (hold.until <= l->now) continue;
    if (crl_lock_record_waits(&hold)) {
      assert_true(waiting < m->waiting);
      same_place(l, &hold, &m->queue[waiting++]);
      continue;
    }
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
  assert_int_equal(waiting, m->waiting);
  if (m->writes) assert_int_equal(head.turn_until, m->turn);
  assert_int_equal(head.wish_until > l->now ? head.wish_until : 0, m->wish);
}

static answer step(lab *l, model *m, corral_op *op, unsigned me, uint64_t *seed) {
  int mode = CORRAL_LOCK_EXCLUSIVE + (int)dice(seed, 3);
  int64_t hold_ms = 1 + (int64_t)dice(seed, 200);
  op_lasts(op, hold_ms);
  op->flags = mode == CORRAL_LOCK_SHARED ? CORRAL_OP_SHARED : 0;
  m->writes = op->verb != CORRAL_VERB_LOCK && op->verb != CORRAL_VERB_LOCK_SHOW;
  switch (op->verb) {
    case CORRAL_VERB_LOCK:
      if (mode == CORRAL_LOCK_PERMIT) op->lock.permits = 1 + (uint32_t)dice(seed, TOKENS - 1);
      op->lock.wish_ms = dice(seed, 2) ? 1 + (int64_t)dice(seed, 100) : 0;
      if (dice(seed, 2)) op->flags |= CORRAL_OP_FAIR;
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
    if (dice(&seed, 20) == 0) l.now += (int64_t)dice(&seed, 2) * CORRAL_LOCK_PLACE_MS / 3;
    model_time(&m, l.now);
    unsigned me = (unsigned)dice(&seed, TOKENS);
    static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                        CORRAL_VERB_UNLOCK, CORRAL_VERB_LOCK_SHOW};
    corral_op op = op_of(verbs[dice(&seed, 5)], me);
    answer expected = step(&l, &m, &op, me, &seed);
    int changes = (expected.status == CORRAL_OK && op.verb != CORRAL_VERB_LOCK_SHOW) ||
                  (op.verb == CORRAL_VERB_LOCK && m.writes);
    m.writes = changes;
    if (changes) model_settle(&m, l.now);
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
    else
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
