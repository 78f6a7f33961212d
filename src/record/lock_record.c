/* lock_record.c: the record of a user's lock, and the effect of each verb on it.
 *
 * This file alone defines lock, extend and unlock. Stores that can change bytes atomically use it
 * through corral_host.lock_decide; the scripts of the Redis plugin repeat it in Lua. */
#include "record/lock_record.h"

#include "record/record.h"

enum { AT_COUNT = 4, AT_FENCE = 8, AT_WISH = 16, AT_TURN = 24 };
enum {
  AT_MODE = 16,
  AT_TIED = 17,
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
  head->turn_until = (int64_t)crl_record_take(record + AT_TURN, 8);
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
  crl_record_put(record + AT_TURN, (uint64_t)head->turn_until, 8);
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

/* The lock as a verb finds it at `now`; holds past their end don't count. The places of the queue
 * stand in the record in their order. */
typedef struct now_here {
  const uint8_t *record;
  crl_lock_head head;
  int64_t now;
  uint64_t floor;
  int mine;        /* the op's token has a hold */
  corral_hold own; /* that hold, or its place in the queue */
  int own_tied;    /* it is tied to its process */
  size_t live;
  /* Of the other holds: latest ends, 0: none; number and earliest end of permits. */
  int64_t until, exclusive_until, shared_until;
  uint32_t permits;
  int64_t permit_first;
  size_t waiting;    /* places in the queue */
  size_t place;      /* that of the op's token; the first is 1; 0: none */
  corral_hold first; /* the first place */
  int passes;        /* the first place's turn is over: the place goes */
  int joins;         /* the op's token gets a place at the end */
  /* The record is to be replaced, also by a refusal: for an implausible end, of which `until`,
   * `own` and the head are corrected, or for the queue. */
  int is_changed;
  const uint8_t *from; /* `own` is the hold of this token, which is to become the op's */
} now_here;

/* Hold number `i`, with implausible numbers corrected. */
static void hold_at(now_here *here, size_t i, corral_hold *hold) {
  crl_lock_record_hold(here->record, i, hold);
  if (!crl_lock_record_waits(hold)) hold->fence = believed(hold->fence);
  if (redate(hold, here->now)) here->is_changed = 1;
}

static int is_tied(const now_here *here, size_t i) {
  return here->record[CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD + AT_TIED] == 1;
}

/* Corrects an end in the head that is further than `longest` away. */
static void check_end(now_here *here, int64_t *end, int64_t longest) {
  if (*end <= here->now || *end - here->now <= longest + CORRAL_LOCK_SLACK_MS) return;
  *end = here->now + longest;
  here->is_changed = 1;
}

static void look_at_place(now_here *here, const corral_hold *hold, int is_own) {
  if (++here->waiting == 1) here->first = *hold;
  if (!is_own) return;
  here->place = here->waiting;
  if (!here->mine) here->own = *hold;
}

static void look_at_permit(now_here *here, int64_t until) {
  here->permit_first = here->permits == 0 ? until : sooner(here->permit_first, until);
  here->permits++;
}

static void look(now_here *here, const uint8_t *token) {
  corral_hold hold;
  here->head.fence = believed(here->head.fence);
  check_end(here, &here->head.wish_until, CORRAL_LOCK_WISH_MS);
  check_end(here, &here->head.turn_until, CORRAL_LOCK_TURN_MS);
  for (size_t i = 0; i < here->head.count; i++) {
    hold_at(here, i, &hold);
    int is_own = token != NULL && memcmp(hold.token, token, CORRAL_TOKEN) == 0;
    if (hold.until <= here->now) {
      /* the turn was that of a place that is over */
      if (crl_lock_record_waits(&hold) && here->waiting == 0) here->head.turn_until = 0;
      continue;
    }
    if (is_own) here->own_tied = is_tied(here, i);
    if (crl_lock_record_waits(&hold)) {
      look_at_place(here, &hold, is_own);
      continue;
    }
    here->live++;
    if (is_own) {
      here->mine = 1;
      here->own = hold;
      continue;
    }
    here->until = later(here->until, hold.until);
    if (hold.mode == CORRAL_LOCK_EXCLUSIVE) here->exclusive_until = hold.until;
    if (hold.mode == CORRAL_LOCK_SHARED) here->shared_until = later(here->shared_until, hold.until);
    if (hold.mode == CORRAL_LOCK_PERMIT) look_at_permit(here, hold.until);
  }
}

/* The part of the op's token that stays in the record after the verb. */
typedef enum keeps { NOTHING, ITS_HOLD, ITS_PLACE } keeps;

/* Holds that may be in the way of a place. */
typedef struct crowd {
  int any, writer, reader;
  uint64_t permits;
} crowd;

/* The number of permits that a place may be for; a number that can't be right is the largest. */
static uint64_t most_for(const corral_hold *place) {
  return (int64_t)place->fence > 0 ? place->fence : CORRAL_LOCK_HOLDS;
}

static int is_barred(const corral_hold *place, const crowd *holds) {
  switch (place->mode - CORRAL_LOCK_WAITING) {
    case CORRAL_LOCK_SHARED: return holds->writer || holds->permits > 0;
    case CORRAL_LOCK_PERMIT:
      return holds->writer || holds->reader || holds->permits >= most_for(place);
    default: return holds->any;
  }
}

/* A record while it is written. */
typedef struct written {
  uint8_t *at;
  int64_t last; /* latest end */
  crowd holds;
  int has_place;
  corral_hold first; /* the first place */
} written;

static void add(written *w, const corral_hold *hold, int tied) {
  put_hold(hold, w->at);
  w->at[AT_TIED] = tied != 0;
  w->at += CORRAL_LOCK_HOLD;
  w->last = later(w->last, hold->until);
  if (!crl_lock_record_waits(hold)) {
    w->holds.any = 1;
    w->holds.writer |= hold->mode == CORRAL_LOCK_EXCLUSIVE;
    w->holds.reader |= hold->mode == CORRAL_LOCK_SHARED;
    w->holds.permits += hold->mode == CORRAL_LOCK_PERMIT;
  } else if (!w->has_place) {
    w->has_place = 1;
    w->first = *hold;
  }
}

/* End of the first place's turn, which begins when no hold is in its way; 0: none. */
static int64_t turn_of(const now_here *here, const written *w) {
  if (!w->has_place || is_barred(&w->first, &w->holds)) return 0;
  int is_same = here->waiting > 0 && memcmp(w->first.token, here->first.token, CORRAL_TOKEN) == 0;
  return is_same && here->head.turn_until > 0 ? here->head.turn_until
                                              : here->now + CORRAL_LOCK_TURN_MS;
}

/* Writes the new record to `room`: the holds and places of other tokens, except a first place whose
 * turn is over, and what the op's token keeps. */
static void replace(now_here *here, keeps own, const uint8_t *token, uint8_t *room,
                    corral_lock_change *change) {
  crl_lock_head head = here->head;
  corral_hold hold;
  written w = {.at = room + CORRAL_LOCK_HEAD, .last = later(here->now, here->head.wish_until)};
  size_t place = 0;
  for (size_t i = 0; i < here->head.count; i++) {
    hold_at(here, i, &hold);
    if (hold.until <= here->now) continue;
    int waits = crl_lock_record_waits(&hold), is_own = memcmp(hold.token, token, CORRAL_TOKEN) == 0;
    if (waits && ++place == 1 && here->passes) continue;
    if (!is_own)
      add(&w, &hold, is_tied(here, i));
    else if (own == ITS_PLACE && waits && place == here->place)
      add(&w, &here->own, here->own_tied);
  }
  if (own == ITS_HOLD || (own == ITS_PLACE && here->joins)) add(&w, &here->own, here->own_tied);
  head.count = (size_t)(w.at - room - CORRAL_LOCK_HEAD) / CORRAL_LOCK_HOLD;
  head.turn_until = turn_of(here, &w);
  put_head(&head, room);
  *change = (corral_lock_change){.action = CORRAL_ACTION_REPLACE,
                                 .size = (size_t)(w.at - room),
                                 .expires = w.last + CORRAL_LOCK_MEMORY_MS};
}

/* True when the token has a hold or a place in the record, be it over. */
static int has_had(const now_here *here, const uint8_t *token) {
  for (size_t i = 0; i < here->head.count; i++)
    if (memcmp(here->record + CORRAL_LOCK_HEAD + i * CORRAL_LOCK_HOLD, token, CORRAL_TOKEN) == 0)
      return 1;
  return 0;
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

/* The mode of the hold that a LOCK asks for. */
static int mode_of(const corral_op *op) {
  if (op->flags & CORRAL_OP_SHARED) return CORRAL_LOCK_SHARED;
  return op->lock.permits > 0 ? CORRAL_LOCK_PERMIT : CORRAL_LOCK_EXCLUSIVE;
}

/* Makes `own` a new hold, or with CORRAL_LOCK_WAITING a new place. */
static void make_own(const corral_op *op, now_here *here, int waiting) {
  size_t len = op->lock.note_len < CORRAL_LOCK_NOTE ? op->lock.note_len : CORRAL_LOCK_NOTE;
  here->own = (corral_hold){.mode = mode_of(op) + waiting, .since = here->now};
  memcpy(here->own.token, op->token, CORRAL_TOKEN);
  if (len > 0) memcpy(here->own.note, op->lock.note, len);
}

static void begin(const corral_op *op, now_here *here) {
  uint64_t next = here->head.fence + 1;
  make_own(op, here, 0);
  here->own.fence = here->head.fence = next > here->floor ? next : here->floor;
  if (here->own.mode == CORRAL_LOCK_EXCLUSIVE) here->head.wish_until = 0;
}

/* ---- turns --------------------------------------------------------------------------------- */

/* Until when the places before the op's token's own, or before one at the end, are in its way at
 * least; 0: none is. The turn of the first one begins here if it has not before, and is passed on
 * if it is over. */
static int64_t turns_before(now_here *here) {
  size_t ahead = here->place > 0 ? here->place - 1 : here->waiting;
  int64_t turn = here->head.turn_until;
  if (ahead == 0) return 0;
  crowd holds = {.any = here->until != 0,
                 .writer = here->exclusive_until != 0,
                 .reader = here->shared_until != 0,
                 .permits = here->permits};
  if (is_barred(&here->first, &holds)) return here->until;
  if (turn > here->now) return turn;
  here->is_changed = 1;
  here->passes = turn > 0;
  return here->passes && ahead == 1 ? 0 : here->now + CORRAL_LOCK_TURN_MS;
}

/* The place of a refused token: a new one at the end, or its own, which is prolonged when less than
 * half of its life is left. */
static void queue(corral_op *op, now_here *here) {
  size_t waiting = here->waiting - (size_t)here->passes;
  if (here->place == 0) {
    if (op->lock.wish_ms <= 0 || waiting >= CORRAL_LOCK_PLACES) return;
    make_own(op, here, CORRAL_LOCK_WAITING);
    if (mode_of(op) == CORRAL_LOCK_PERMIT) here->own.fence = op->lock.permits;
    here->joins = 1;
  }
  op->lock_state.fence = here->joins ? waiting + 1 : here->place - (size_t)here->passes;
  if (!here->joins && here->own.until - here->now >= CORRAL_LOCK_PLACE_MS / 2) return;
  here->own.until = here->now + CORRAL_LOCK_PLACE_MS;
  here->own.length_ms = CORRAL_LOCK_PLACE_MS;
  here->is_changed = 1;
}

/* Sets the wish of a refused writer. It bars new readers and permits only while such have the
 * lock and nobody waits for a turn; it is renewed when less than half of it is left. */
static void wish(const corral_op *op, now_here *here) {
  if (mode_of(op) != CORRAL_LOCK_EXCLUSIVE || op->lock.wish_ms <= 0 || here->exclusive_until != 0 ||
      here->waiting > 0)
    return;
  if (here->head.wish_until > here->now &&
      here->head.wish_until - here->now >= op->lock.wish_ms / 2)
    return;
  here->head.wish_until = here->now + op->lock.wish_ms;
  here->is_changed = 1;
}

/* ---- verbs --------------------------------------------------------------------------------- */

static void refuse(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  if (here->is_changed)
    replace(here, here->place > 0 || here->joins ? ITS_PLACE : NOTHING, op->token, room, change);
}

/* When what is in the way of a LOCK may be over. */
static int64_t way_of(const corral_op *op, now_here *here) {
  int64_t writers = later(here->exclusive_until, here->waiting > 0 ? 0 : here->head.wish_until);
  int64_t permits = here->permits >= op->lock.permits ? here->permit_first : 0;
  int64_t turns = turns_before(here);
  switch (mode_of(op)) {
    case CORRAL_LOCK_SHARED:
      return later(turns, here->permits == 0 ? writers : later(writers, here->until));
    case CORRAL_LOCK_PERMIT:
      return later(turns, later(writers, later(here->shared_until, permits)));
    default: return later(turns, here->until);
  }
}

static void lock(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  int64_t in_the_way = here->mine ? 0 : way_of(op, here);
  here->own_tied = (op->flags & CORRAL_OP_TIED) != 0;
  if (!here->mine && in_the_way > here->now) {
    op->status = CORRAL_EBUSY;
    op->lock_state.left_ms = in_the_way - here->now;
    if (op->flags & CORRAL_OP_FAIR)
      queue(op, here);
    else
      wish(op, here);
    refuse(op, here, room, change);
    return;
  }
  if (!here->mine && here->live >= CORRAL_LOCK_HOLDS) {
    op->status = CORRAL_EREFUSED;
    refuse(op, here, room, change);
    return;
  }
  if (!here->mine) begin(op, here);
  grant(op, here, op->lock.hold_ms);
  replace(here, ITS_HOLD, op->token, room, change);
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
  if (here->from != NULL || op->flags & CORRAL_OP_LOOSE)
    here->own_tied = (op->flags & CORRAL_OP_TIED) != 0;
  if (op->flags & CORRAL_OP_SHARED && here->own.mode != CORRAL_LOCK_PERMIT)
    here->own.mode = CORRAL_LOCK_SHARED;
  if (op->lock_extend.fence > here->own.fence) here->own.fence = op->lock_extend.fence;
  if (here->own.fence > here->head.fence) here->head.fence = here->own.fence;
  grant(op, here, op->lock_extend.hold_ms);
  replace(here, ITS_HOLD, here->from != NULL ? here->from : op->token, room, change);
}

static void unlock(corral_op *op, now_here *here, uint8_t *room, corral_lock_change *change) {
  if (!here->mine && here->place == 0) {
    lost(op, here);
    return;
  }
  op->status = CORRAL_OK;
  op->lock_state.left_ms = 0;
  replace(here, NOTHING, op->token, room, change);
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
