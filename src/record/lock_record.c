/* lock_record.c: the record of a user's lock, and the effect of each verb on it.
 *
 * This file alone defines lock, extend and unlock. Stores that can change bytes atomically use it
 * through corral_host.lock_decide; the scripts of the Redis plugin repeat it in Lua. */
#include "record/lock_record.h"

#include "record/record.h"

enum { AT_COUNT = 4, AT_FENCE = 8, AT_WISH = 16 };
enum {
  AT_MODE = 16,
  AT_LENGTH = 20,
  AT_UNTIL = 24,
  AT_SINCE = 32,
  AT_HOLD_FENCE = 40,
  AT_NOTE = 48
};

/* Bound of times in ms and of fencing tokens in microseconds, which reach it in 2255; numbers of
 * the Redis scripts are exact up to it. */
static const int64_t exact = INT64_C(1) << 53;

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t sooner(int64_t a, int64_t b) { return a < b ? a : b; }

int crl_lock_record_read(const uint8_t *record, size_t size, crl_lock_head *head) {
  if (size < CORRAL_LOCK_HEAD || memcmp(record, "crk1", 4) != 0) return CORRAL_EFOREIGN;
  head->count = (size_t)crl_record_take(record + AT_COUNT, 2);
  head->fence = crl_record_take(record + AT_FENCE, 8);
  head->wish_until = (int64_t)crl_record_take(record + AT_WISH, 8);
  return size == CORRAL_LOCK_HEAD + head->count * CORRAL_LOCK_HOLD ? CORRAL_OK : CORRAL_EFOREIGN;
}

void crl_lock_record_hold(const uint8_t *record, size_t index, corral_hold *hold) {
  const uint8_t *at = record + CORRAL_LOCK_HEAD + index * CORRAL_LOCK_HOLD;
  memcpy(hold->token, at, CORRAL_TOKEN);
  hold->mode = at[AT_MODE];
  hold->length_ms = (uint32_t)crl_record_take(at + AT_LENGTH, 4);
  hold->until = (int64_t)crl_record_take(at + AT_UNTIL, 8);
  hold->since = (int64_t)crl_record_take(at + AT_SINCE, 8);
  hold->fence = crl_record_take(at + AT_HOLD_FENCE, 8);
  memcpy(hold->note, at + AT_NOTE, CORRAL_LOCK_NOTE);
}

static void put_head(const crl_lock_head *head, uint8_t *record) {
  memset(record, 0, CORRAL_LOCK_HEAD);
  memcpy(record, "crk1", 4);
  crl_record_put(record + AT_COUNT, head->count, 2);
  crl_record_put(record + AT_FENCE, head->fence, 8);
  crl_record_put(record + AT_WISH, (uint64_t)head->wish_until, 8);
}

static void put_hold(const corral_hold *hold, uint8_t *at) {
  memset(at, 0, CORRAL_LOCK_HOLD);
  memcpy(at, hold->token, CORRAL_TOKEN);
  at[AT_MODE] = (uint8_t)hold->mode;
  crl_record_put(at + AT_LENGTH, hold->length_ms, 4);
  crl_record_put(at + AT_UNTIL, (uint64_t)hold->until, 8);
  crl_record_put(at + AT_SINCE, (uint64_t)hold->since, 8);
  crl_record_put(at + AT_HOLD_FENCE, hold->fence, 8);
  memcpy(at + AT_NOTE, hold->note, CORRAL_LOCK_NOTE);
}

void crl_lock_record_write(uint64_t fence, const corral_hold *holds, size_t count,
                           uint8_t *record) {
  put_head(&(crl_lock_head){.count = count, .fence = fence}, record);
  for (size_t i = 0; i < count; i++)
    put_hold(&holds[i], record + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD);
}

/* ---- implausible numbers ------------------------------------------------------------------- */

/* A fencing token too large to come from lock_decide counts as 0. */
static uint64_t believed(uint64_t fence) { return fence < (uint64_t)exact ? fence : 0; }

/* Length of a hold in ms, from its taking or its last extension. Records of older versions lack it:
 * then the time from taking to end. */
static int64_t length_of(const corral_hold *hold) {
  int64_t length = hold->length_ms;
  if (length == 0)
    length = hold->since > 0 && hold->since < exact && hold->since < hold->until
                 ? hold->until - hold->since
                 : CORRAL_LOCK_LONGEST_MS;
  return sooner(length, CORRAL_LOCK_LONGEST_MS);
}

/* Corrects an end further away than the hold's length plus CORRAL_LOCK_SLACK_MS, written by another
 * clock or by a stranger: the new end is one length from now. Returns 1 when corrected. */
static int redate(corral_hold *hold, int64_t now) {
  int64_t length = length_of(hold);
  if (hold->until <= now || hold->until - now <= length + CORRAL_LOCK_SLACK_MS) return 0;
  hold->until = now + length;
  hold->since = sooner(hold->since, now);
  return 1;
}

/* ---- deciding ------------------------------------------------------------------------------ */

/* The lock as a verb finds it at `now`; holds past their end don't count. */
typedef struct now_here {
  const uint8_t *record;
  crl_lock_head head;
  int64_t now;
  uint64_t floor;
  int mine; /* the op's token has a hold */
  corral_hold own;
  size_t live;
  int64_t until;           /* latest end of the other holds */
  int64_t exclusive_until; /* end of another exclusive hold; 0: none */
  /* the record has an implausible end; `until`, `own` and the wish are corrected, and the record is
   * to be replaced */
  int is_redated;
  const uint8_t *from; /* `own` is the hold of this token, which is to become the op's */
} now_here;

/* Hold number `i`, with implausible numbers corrected. */
static void hold_at(now_here *here, size_t i, corral_hold *hold) {
  crl_lock_record_hold(here->record, i, hold);
  hold->fence = believed(hold->fence);
  if (redate(hold, here->now)) here->is_redated = 1;
}

static void check_head(now_here *here) {
  int64_t wish = here->head.wish_until;
  here->head.fence = believed(here->head.fence);
  if (wish <= here->now || wish - here->now <= CORRAL_LOCK_WISH_MS + CORRAL_LOCK_SLACK_MS) return;
  here->head.wish_until = here->now + CORRAL_LOCK_WISH_MS;
  here->is_redated = 1;
}

static void look(now_here *here, const uint8_t *token) {
  corral_hold hold;
  check_head(here);
  for (size_t i = 0; i < here->head.count; i++) {
    hold_at(here, i, &hold);
    if (hold.until <= here->now) continue;
    here->live++;
    if (token != NULL && memcmp(hold.token, token, CORRAL_TOKEN) == 0) {
      here->mine = 1;
      here->own = hold;
      continue;
    }
    here->until = later(here->until, hold.until);
    if (hold.mode == CORRAL_LOCK_EXCLUSIVE) here->exclusive_until = hold.until;
  }
}

/* Writes the new record to `room`: the holds of other tokens and, if keeps_own, here->own. */
static void replace(now_here *here, int keeps_own, const uint8_t *token, uint8_t *room,
                    corral_lock_change *change) {
  crl_lock_head head = here->head;
  corral_hold hold;
  int64_t last = later(here->now, here->head.wish_until);
  uint8_t *at = room + CORRAL_LOCK_HEAD;
  for (size_t i = 0; i < here->head.count; i++) {
    hold_at(here, i, &hold);
    if (hold.until <= here->now || memcmp(hold.token, token, CORRAL_TOKEN) == 0) continue;
    last = later(last, hold.until);
    put_hold(&hold, at);
    at += CORRAL_LOCK_HOLD;
  }
  if (keeps_own) {
    last = later(last, here->own.until);
    put_hold(&here->own, at);
    at += CORRAL_LOCK_HOLD;
  }
  head.count = (size_t)(at - room - CORRAL_LOCK_HEAD) / CORRAL_LOCK_HOLD;
  put_head(&head, room);
  *change = (corral_lock_change){.action = CORRAL_ACTION_REPLACE,
                                 .size = (size_t)(at - room),
                                 .expires = last + CORRAL_LOCK_MEMORY_MS};
}

/* True when the token has a hold in the record, be it over. */
static int has_had(const now_here *here, const uint8_t *token) {
  const uint8_t *at = here->record + CORRAL_LOCK_HEAD;
  size_t i = 0;
  while (i < here->head.count && memcmp(at + i * CORRAL_LOCK_HOLD, token, CORRAL_TOKEN) != 0) i++;
  return i < here->head.count;
}

/* Looks for the hold of lock_extend.from, where the op's token has had none. */
static void look_from(now_here *here, const corral_op *op) {
  const uint8_t *from = op->lock_extend.from;
  now_here other = {.record = here->record, .head = here->head, .now = here->now};
  if (from == NULL || has_had(here, op->token)) return;
  look(&other, from);
  if (!other.mine || (other.own.mode == CORRAL_LOCK_SHARED && !(op->flags & CORRAL_OP_SHARED)))
    return;
  *here = other;
  here->from = from;
}

/* The hold of another token becomes the op's: a new fencing token, and a new note. */
static void take_over(const corral_op *op, now_here *here) {
  size_t len =
      op->lock_extend.note_len < CORRAL_LOCK_NOTE ? op->lock_extend.note_len : CORRAL_LOCK_NOTE;
  memcpy(here->own.token, op->token, CORRAL_TOKEN);
  here->own.fence = here->head.fence + 1;
  memset(here->own.note, 0, sizeof here->own.note);
  if (len > 0) memcpy(here->own.note, op->lock_extend.note, len);
}

static void grant(corral_op *op, now_here *here, int64_t hold_ms) {
  int64_t until = here->now + hold_ms;
  here->own.since = sooner(here->own.since, here->now);
  if (until >= here->own.until) {
    here->own.until = until;
    here->own.length_ms = (uint32_t)sooner(hold_ms, CORRAL_LOCK_LONGEST_MS);
  }
  op->status = CORRAL_OK;
  op->lock_state.fence = here->own.fence;
  op->lock_state.left_ms = here->own.until - here->now;
}

static void begin(corral_op *op, now_here *here) {
  uint64_t next = here->head.fence + 1;
  size_t len = op->lock.note_len < CORRAL_LOCK_NOTE ? op->lock.note_len : CORRAL_LOCK_NOTE;
  here->own = (corral_hold){.mode = op->flags & CORRAL_OP_SHARED ? CORRAL_LOCK_SHARED
                                                                 : CORRAL_LOCK_EXCLUSIVE,
                            .since = here->now};
  memcpy(here->own.token, op->token, CORRAL_TOKEN);
  if (len > 0) memcpy(here->own.note, op->lock.note, len);
  here->own.fence = here->head.fence = next > here->floor ? next : here->floor;
  if (here->own.mode == CORRAL_LOCK_EXCLUSIVE) here->head.wish_until = 0;
}

/* Sets the wish of a refused writer; returns 1 when the record has to change. The wish bars new
 * readers only while readers have the lock; it is renewed when less than half of it is left. */
static int wishes(const corral_op *op, now_here *here) {
  if (op->flags & CORRAL_OP_SHARED || op->lock.wish_ms <= 0 || here->exclusive_until != 0) return 0;
  if (here->head.wish_until > here->now &&
      here->head.wish_until - here->now >= op->lock.wish_ms / 2)
    return 0;
  here->head.wish_until = here->now + op->lock.wish_ms;
  return 1;
}

static void lock(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  int shared = (op->flags & CORRAL_OP_SHARED) != 0;
  int64_t in_the_way = shared ? later(here->exclusive_until, here->head.wish_until) : here->until;
  if (!here->mine && in_the_way > here->now) {
    op->status = CORRAL_EBUSY;
    op->lock_state.left_ms = in_the_way - here->now;
    if (wishes(op, here) || here->is_redated) replace(here, 0, op->token, room, change);
    return;
  }
  if (!here->mine && here->live >= CORRAL_LOCK_HOLDS) {
    op->status = CORRAL_EREFUSED;
    if (here->is_redated) replace(here, 0, op->token, room, change);
    return;
  }
  if (!here->mine) begin(op, here);
  grant(op, here, op->lock.hold_ms);
  replace(here, 1, op->token, room, change);
}

static void lost(corral_op *op, const now_here *here) {
  op->status = CORRAL_ELOST;
  op->lock_state.left_ms = here->until > here->now ? here->until - here->now : 0;
}

static void extend(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  look_from(here, op);
  if (!here->mine) {
    lost(op, here);
    return;
  }
  if (here->from != NULL) take_over(op, here);
  if (op->flags & CORRAL_OP_SHARED) here->own.mode = CORRAL_LOCK_SHARED;
  if (op->lock_extend.fence > here->own.fence) here->own.fence = op->lock_extend.fence;
  if (here->own.fence > here->head.fence) here->head.fence = here->own.fence;
  grant(op, here, op->lock_extend.hold_ms);
  replace(here, 1, here->from != NULL ? here->from : op->token, room, change);
}

static void unlock(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  if (!here->mine) {
    lost(op, here);
    return;
  }
  op->status = CORRAL_OK;
  op->lock_state.left_ms = 0;
  replace(here, 0, op->token, room, change);
}

void crl_lock_record_decide(corral_op *op, const uint8_t *record, size_t size, int64_t now,
                            uint64_t floor, uint8_t *room, corral_lock_change *change) {
  now_here here = {.record = record, .now = now, .floor = floor};
  *change = (corral_lock_change){.action = CORRAL_ACTION_KEEP};
  op->lock_state = (corral_lock_state){.fence = 0};
  if (record != NULL && crl_lock_record_read(record, size, &here.head) != CORRAL_OK) {
    op->status = CORRAL_EFOREIGN;
    op->lock_state.left_ms = -1;
    return;
  }
  look(&here, op->token);
  switch (op->verb) {
    case CORRAL_VERB_LOCK: lock(op, &here, room, change); break;
    case CORRAL_VERB_LOCK_EXTEND: extend(op, &here, room, change); break;
    case CORRAL_VERB_UNLOCK: unlock(op, &here, room, change); break;
    case CORRAL_VERB_LOCK_SHOW:
      op->status = record != NULL ? CORRAL_OK : CORRAL_EMISS;
      op->lock_state.now = now;
      break;
    default: op->status = CORRAL_EUNSUPPORTED; break;
  }
}
