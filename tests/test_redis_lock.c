/* test_redis_lock.c: locks on a real Redis, with scripts and without: each verb must leave exactly
 * the bytes that lock_decide gives. */
#include "support/redis_lock_kit.h"

enum {
  KEYS = 3,
  TOKENS = 5,
  STEPS = 2500,
  ROOM = CORRAL_LOCK_HEAD + (CORRAL_LOCK_HOLDS + 1) * CORRAL_LOCK_HOLD
};

/* ---- model --------------------------------------------------------------------------------- */

typedef struct model {
  size_t size; /* 0: no record */
  uint8_t record[ROOM];
} model;

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

static int64_t server_us(void) {
  redisReply *reply = redis_server_command(server, "TIME");
  int64_t us = strtoll(reply->element[0]->str, NULL, 10) * 1000000 +
               strtoll(reply->element[1]->str, NULL, 10);
  freeReplyObject(reply);
  return us;
}

/* Copies the server's record to `m`. */
static void fetch(const char *key, model *m) {
  redisReply *reply = redis_server_command(server, "GET %s", key);
  assert_true(reply->type == REDIS_REPLY_NIL ||
              (reply->type == REDIS_REPLY_STRING && (size_t)reply->len <= sizeof m->record));
  m->size = reply->type == REDIS_REPLY_NIL ? 0 : (size_t)reply->len;
  if (m->size > 0) memcpy(m->record, reply->str, m->size);
  freeReplyObject(reply);
}

/* An end that must be rejected, or one just inside the limit, for a hold of this length. */
static int64_t far_end(int64_t now, int64_t length) {
  switch (pick(4)) {
    case 0: return INT64_MAX;
    case 1: return now + 1 + (int64_t)pick(3) * HOUR;
    default: return now + length + CORRAL_LOCK_SLACK_MS + (int64_t)pick(4);
  }
}

static int64_t any_since(int64_t now) {
  const int64_t times[] = {now - 5000, now - 5000, now + HOUR, now + 2 * HOUR,
                           0,          INT64_MIN,  INT64_MAX};
  return times[pick(sizeof times / sizeof *times)];
}

static int any_mode(int mode) {
  static const int foreign[] = {0, CORRAL_LOCK_WAITING, CORRAL_LOCK_WAITING + 4, UINT8_MAX};
  if (pick(16) == 0) return foreign[pick(sizeof foreign / sizeof *foreign)];
  return pick(3) == 0 ? mode + CORRAL_LOCK_WAITING : mode;
}

/* Number of permits of a place. */
static uint64_t any_limit(void) {
  static const uint64_t foreign[] = {0, UINT64_C(1) << 53, INT64_MAX, UINT64_MAX};
  return pick(8) == 0 ? foreign[pick(sizeof foreign / sizeof *foreign)] : 1 + pick(3);
}

/* Stores a random record: holds and places of all modes and tokens that are over, alive or about to
 * end; ends and fencing tokens in the past and the future; wishes and turns. Its key lives a minute
 * longer than its last hold, as that of each record does. */
static void plant(model *m, const char *key, int64_t now) {
  corral_hold hold[TOKENS + 2] = {0};
  size_t count = pick(TOKENS + 1);
  uint64_t fence = (uint64_t)now * 1000 + (pick(2) == 0 ? 7200000000 : 0) - 3600000000;
  int64_t wish = pick(2) == 0 ? 0 : now + (int64_t)pick(2000) - 1000;
  if (pick(8) == 0) fence = pick(2) == 0 ? UINT64_MAX : UINT64_C(1) << 53;
  if (pick(8) == 0) wish = far_end(now, CORRAL_LOCK_WISH_MS);
  int64_t turn = pick(2) == 0 ? 0 : now + (int64_t)pick(500) - 250;
  if (pick(8) == 0) turn = far_end(now, CORRAL_LOCK_TURN_MS);
  int64_t last = wish > now ? wish : now;
  int most = pick(2) == 0 ? CORRAL_LOCK_SHARED : CORRAL_LOCK_PERMIT;
  for (size_t i = 0; i < count; i++) {
    memcpy(hold[i].token, token((unsigned)i), CORRAL_TOKEN);
    hold[i].mode = count == 1 || pick(6) == 0 ? CORRAL_LOCK_EXCLUSIVE
                   : pick(8) == 0             ? CORRAL_LOCK_SHARED
                                              : most;
    hold[i].mode = any_mode(hold[i].mode);
    hold[i].until = now + (int64_t)pick(3) * 1000 - 1000 + (int64_t)pick(30);
    hold[i].since = any_since(now);
    hold[i].fence = hold[i].mode >= CORRAL_LOCK_WAITING ? any_limit() : (uint64_t)now * 1000 - i;
    hold[i].length_ms = pick(2) == 0 ? 0 : 1 + pick(HOUR);
    if (pick(4) == 0) hold[i].until = far_end(now, hold[i].length_ms);
    if (hold[i].until > last) last = hold[i].until;
    memset(hold[i].note, 'a' + (int)i, pick(CORRAL_LOCK_NOTE + 1));
  }
  crl_lock_record_write(fence, hold, count, m->record);
  for (unsigned i = 0; i < 8; i++) {
    m->record[16 + i] = (uint8_t)((uint64_t)wish >> (8 * i));
    m->record[24 + i] = (uint8_t)((uint64_t)turn >> (8 * i));
  }
  m->size = CORRAL_LOCK_HEAD + count * CORRAL_LOCK_HOLD;
  if (last > now + 10LL * HOUR) last = now + 10LL * HOUR;
  redis_server_ask(server, "SET %s %b", key, m->record, m->size);
  redis_server_ask(server, "PEXPIREAT %s %lld", key, (long long)last + CORRAL_LOCK_MEMORY_MS);
}

/* `fence`: of the key's record. */
static corral_op random_op(const char *key, uint64_t fence, char note[100]) {
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_UNLOCK, CORRAL_VERB_LOCK_SHOW};
  corral_op op = lock_op(verbs[pick(5)], key, pick(TOKENS), pick(2) == 0 ? CORRAL_OP_SHARED : 0);
  memset(note, 'A' + (int)pick(26), 100);
  op_lasts(&op, pick(3) == 0 ? 1 + pick(10) : 1 + pick(pick(2) == 0 ? HOUR : HOUR / 6));
  if (op.verb == CORRAL_VERB_LOCK) {
    op.lock.note = note;
    op.lock.note_len = pick(100);
    op.lock.wish_ms = pick(3) == 0 ? 0 : 1 + pick(4000);
    if (pick(2) == 0) op.flags |= CORRAL_OP_FAIR;
    if (!(op.flags & CORRAL_OP_SHARED) && pick(2) == 0) op.lock.permits = 1 + pick(TOKENS + 1);
  }
  if (op.verb == CORRAL_VERB_UNLOCK && pick(4) != 0) op.unlock.fence = fence;
  if (op.verb == CORRAL_VERB_LOCK_EXTEND && pick(2) != 0)
    op.lock_extend.fence = (uint64_t)server_us() + pick(2) * UINT64_C(1000000000);
  if (op.verb == CORRAL_VERB_LOCK_EXTEND && pick(2) != 0) {
    static uint8_t from[CORRAL_TOKEN];
    memcpy(from, token(pick(TOKENS)), sizeof from);
    op.lock_extend.from = from;
    op.lock_extend.note = note;
    op.lock_extend.note_len = pick(100);
  }
  return op;
}

/* The observed effects of one step. */
typedef struct step {
  corral_op asked, real;
  int64_t from_us, to_us; /* server time before and after */
  model after;
  int64_t pttl;
  int64_t writes;
} step;

/* True when a release by a shortcut may have left the record, which has its TTL from before. */
static int has_kept_ttl(const step *s, const model *before) {
  crl_lock_head head = {0};
  if (before->size > 0) crl_lock_record_read(before->record, before->size, &head);
  return s->real.verb == CORRAL_VERB_UNLOCK && head.wish_until == 0 &&
         s->real.status == CORRAL_OK && before->size == CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD &&
         s->pttl > CORRAL_LOCK_MEMORY_MS && s->pttl <= CORRAL_LOCK_MEMORY_MS + 600000;
}

/* Returns NULL when the step matches lock_decide at `now`, else the part that differs. */
static const char *differs(const step *s, const model *before, int64_t now, uint64_t floor) {
  static uint8_t room[ROOM];
  corral_op wanted = s->asked;
  corral_lock_change change;
  crl_lock_record_decide(&wanted, before->size > 0 ? before->record : NULL, before->size, now,
                         floor, room, &change);
  int keeps = change.action == CORRAL_ACTION_KEEP;
  const uint8_t *record = keeps ? before->record : room;
  size_t size = keeps ? before->size : change.size;
  if (s->real.status != wanted.status) return "status";
  if (s->real.lock_state.left_ms != wanted.lock_state.left_ms) return "left_ms";
  if (s->real.verb == CORRAL_VERB_LOCK_SHOW && s->real.lock_state.now != wanted.lock_state.now)
    return "now";
  int has_fence = wanted.status == CORRAL_EBUSY ||
                  (wanted.status == CORRAL_OK && wanted.verb != CORRAL_VERB_UNLOCK);
  if (has_fence && s->real.lock_state.fence != wanted.lock_state.fence) return "fence";
  if (keeps && s->writes != 0) return "the number of writes";
  if (size != s->after.size || memcmp(record, s->after.record, size) != 0) return "the record";
  if (!keeps && !has_kept_ttl(s, before) &&
      (s->pttl > change.expires - s->from_us / 1000 ||
       s->pttl < change.expires - s->to_us / 1000 - 1))
    return "the TTL";
  return NULL;
}

static uint64_t fence_of(const model *m) {
  crl_lock_head head = {0};
  if (m->size > 0) assert_int_equal(crl_lock_record_read(m->record, m->size, &head), CORRAL_OK);
  return head.fence;
}

static void take_step(client *c, step *s, const char *key, uint64_t fence) {
  static char note[100];
  long long changes = redis_server_info(server, "rdb_changes_since_last_save");
  s->real = s->asked = random_op(key, fence, note);
  s->from_us = server_us();
  assert_int_equal(perform(c, &s->real, 1), CORRAL_OK);
  s->pttl = pttl(key);
  s->to_us = server_us();
  fetch(key, &s->after);
  s->writes = redis_server_info(server, "rdb_changes_since_last_save") - changes;
  if (s->real.found.record != NULL &&
      (s->real.found.len != s->after.size ||
       memcmp(s->real.found.record, s->after.record, s->after.size) != 0))
    fail_msg("seed %u: LOCK_SHOW found another record", seed);
  dropped(&s->real);
}

/* The server's time of the decision is unknown but lies between two known times; a new fencing
 * token tells its microseconds. */
static void check_step(const step *s, const model *before, uint32_t first, int number) {
  uint64_t floor = fence_of(&s->after);
  const char *what = "?";
  if (floor != 0 && floor != fence_of(before) && floor != fence_of(before) + 1 &&
      s->real.verb == CORRAL_VERB_LOCK)
    assert_in_range(floor, s->from_us, s->to_us);
  for (int64_t now = s->from_us / 1000; now <= s->to_us / 1000 && what != NULL; now++)
    what = differs(s, before, now, floor);
  if (what != NULL)
    fail_msg("seed %u, step %d: verb %u: %s differs: %s, until %lld, TTL %lld", first, number,
             s->real.verb, what, corral_status_name(s->real.status),
             (long long)s->real.lock_state.left_ms, (long long)s->pttl);
}

/* Returns how many releases were shortcuts. */
static int model_run(const char *way) {
  int kept = 0;
  static const char *const keys[KEYS] = {"a", "b", "lock:{c}"};
  static step s;
  static model before;
  client c = begin_as(way);
  uint32_t first = seed = (uint32_t)server_us();
  print_message("%s: seed %u\n", way, first);
  for (int i = 0; i < STEPS; i++) {
    const char *key = keys[pick(KEYS)];
    s.asked.verb = 0;
    if (pick(6) == 0) plant(&before, key, server_us() / 1000);
    /* a lock without contention, for the shortcuts */
    if (pick(6) == 0) redis_server_ask(server, "DEL %s", key);
    fetch(key, &before);
    take_step(&c, &s, key, fence_of(&before));
    check_step(&s, &before, first, i);
    kept += has_kept_ttl(&s, &before);
  }
  closed(&c);
  print_message("%d releases by the shortcut\n", kept);
  return kept;
}

static void random_ops_leave_the_bytes_that_lock_decide_decides_by_scripts(void **state) {
  (void)state;
  assert_in_range(model_run(ways[0]), 1, STEPS);
}

static void random_ops_leave_the_bytes_that_lock_decide_decides_without_scripts(void **state) {
  (void)state;
  assert_int_equal(model_run(ways[1]), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(random_ops_leave_the_bytes_that_lock_decide_decides_by_scripts),
      cmocka_unit_test(random_ops_leave_the_bytes_that_lock_decide_decides_without_scripts),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
