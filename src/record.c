/* record.c: the header of a record, and what each verb does to a record.
 *
 * This is the one place that says what claim, settle, release, extend, invalidate and expire mean; stores that can change a
 * record atomically use it through corral_host.decide, the scripts of the Redis plugin say the same in Lua. */
#include "record.h"

enum { AT_STATE = 4, AT_FLAGS = 5, AT_TOKEN = 8, AT_UNTIL = 24, AT_SINCE = 32, AT_LIFE = 40, AT_COST = 48, AT_CODE = 52,
       AT_FAILURES = 56, AT_NOTE = 64 };

void crl_record_put(uint8_t *at, uint64_t number, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++) at[i] = (uint8_t)(number >> (8 * i));
}

uint64_t crl_record_take(const uint8_t *at, unsigned bytes) {
  uint64_t number = 0;
  for (unsigned i = 0; i < bytes; i++) number |= (uint64_t)at[i] << (8 * i);
  return number;
}

int crl_record_read(const void *record, size_t size, corral_header *header) {
  const uint8_t *at = record;
  if (size < CORRAL_HEADER || memcmp(at, "crl1", 4) != 0 || at[AT_STATE] > CORRAL_VERDICT) return CORRAL_EFOREIGN;
  header->state = at[AT_STATE];
  header->flags = at[AT_FLAGS];
  memcpy(header->token, at + AT_TOKEN, CORRAL_TOKEN);
  header->until = (int64_t)crl_record_take(at + AT_UNTIL, 8);
  header->since = (int64_t)crl_record_take(at + AT_SINCE, 8);
  header->life_end = (int64_t)crl_record_take(at + AT_LIFE, 8);
  header->cost_ms = (uint32_t)crl_record_take(at + AT_COST, 4);
  header->code = (int32_t)(uint32_t)crl_record_take(at + AT_CODE, 4);
  header->failures = (uint32_t)crl_record_take(at + AT_FAILURES, 4);
  memcpy(header->note, at + AT_NOTE, CORRAL_NOTE);
  return CORRAL_OK;
}

void crl_record_write(const corral_header *header, uint8_t record[CORRAL_HEADER]) {
  memset(record, 0, CORRAL_HEADER);
  memcpy(record, "crl1", 4);
  record[AT_STATE] = header->state;
  record[AT_FLAGS] = header->flags;
  memcpy(record + AT_TOKEN, header->token, CORRAL_TOKEN);
  crl_record_put(record + AT_UNTIL, (uint64_t)header->until, 8);
  crl_record_put(record + AT_SINCE, (uint64_t)header->since, 8);
  crl_record_put(record + AT_LIFE, (uint64_t)header->life_end, 8);
  crl_record_put(record + AT_COST, header->cost_ms, 4);
  crl_record_put(record + AT_CODE, (uint32_t)header->code, 4);
  crl_record_put(record + AT_FAILURES, header->failures, 4);
  memcpy(record + AT_NOTE, header->note, CORRAL_NOTE);
}

uint64_t crl_record_stamp(const void *record, size_t size) {
  return size >= CORRAL_HEADER + 8 ? crl_record_take((const uint8_t *)record + CORRAL_HEADER, 8) : 0;
}

/* The record as a verb finds it. */
typedef struct now_here {
  corral_header header;
  int payload; /* there is one, and its life isn't over */
  int mark;    /* there is none, for it was invalidated, which is still to be remembered */
  int64_t now;
} now_here;

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* The header as it is now takes the place of the old one. life_end and flags are those of the payload or of the mark: without
 * both they end. */
static void edit(now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  change->action = here->payload ? CORRAL_ACTION_EDIT : CORRAL_ACTION_REPLACE;
  if (!here->payload && !here->mark) {
    header->life_end = 0;
    header->flags = 0;
  }
  change->expires = later(header->life_end, header->until);
  crl_record_write(header, change->header);
}

static void let_go(corral_header *header) {
  header->state = CORRAL_FREE;
  memset(header->token, 0, CORRAL_TOKEN);
  header->until = header->since = 0;
  header->cost_ms = 0;
  header->code = 0;
  memset(header->note, 0, CORRAL_NOTE);
}

static int holds(const now_here *here, const uint8_t *token) {
  return here->header.state == CORRAL_LEASED && memcmp(here->header.token, token, CORRAL_TOKEN) == 0;
}

static int claim(corral_op *op, now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  corral_header wish;
  int over = op->over != NULL && holds(here, op->over);
  if (!over && header->state != CORRAL_FREE && header->until > here->now)
    return holds(here, op->token) ? CORRAL_OK : CORRAL_EBUSY;
  if (op->record == NULL || crl_record_read(op->record, op->record_len, &wish) != CORRAL_OK) memset(&wish, 0, sizeof wish);
  header->state = CORRAL_LEASED;
  memcpy(header->token, op->token, CORRAL_TOKEN);
  header->since = here->now;
  header->until = here->now + op->lease_ms;
  header->cost_ms = wish.cost_ms;
  memcpy(header->note, wish.note, CORRAL_NOTE);
  edit(here, change);
  return CORRAL_OK;
}

static int settle(corral_op *op, now_here *here, corral_change *change) {
  corral_header header;
  if (!holds(here, op->token)) return CORRAL_ELOST;
  if (crl_record_read(op->record, op->record_len, &header) != CORRAL_OK) return CORRAL_EINVAL;
  header.life_end = here->now + op->ttl_ms;
  change->action = CORRAL_ACTION_REPLACE;
  change->body = op->record + CORRAL_HEADER;
  change->body_len = op->record_len - CORRAL_HEADER;
  change->expires = header.life_end;
  crl_record_write(&header, change->header);
  return CORRAL_OK;
}

/* What holds still is true: the payload gets a new life as if it had been stored now. */
static int renew(corral_op *op, now_here *here, corral_change *change) {
  if (!holds(here, op->token)) return CORRAL_ELOST;
  if (!here->payload) return CORRAL_EMISS;
  let_go(&here->header);
  here->header.flags = 0;
  here->header.failures = 0;
  here->header.life_end = here->now + op->ttl_ms;
  edit(here, change);
  return CORRAL_OK;
}

static int release(corral_op *op, now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  corral_header verdict;
  if (!holds(here, op->token)) return CORRAL_ELOST;
  let_go(header);
  if (op->record != NULL && crl_record_read(op->record, op->record_len, &verdict) == CORRAL_OK) {
    header->state = CORRAL_VERDICT;
    header->since = here->now;
    header->until = here->now + op->lease_ms;
    header->code = verdict.code;
    header->failures = verdict.failures;
    memcpy(header->note, verdict.note, CORRAL_NOTE);
    edit(here, change);
    if (!here->payload) change->expires = later(change->expires, here->now + op->ttl_ms);
  } else if (here->payload || here->mark) {
    edit(here, change);
  } else {
    change->action = CORRAL_ACTION_REMOVE;
  }
  return CORRAL_OK;
}

static int extend(corral_op *op, now_here *here, corral_change *change) {
  if (!holds(here, op->token)) return CORRAL_ELOST;
  here->header.until = here->now + op->lease_ms;
  edit(here, change);
  return CORRAL_OK;
}

static int expire(now_here *here, corral_change *change) {
  if (!here->payload && !here->mark) {
    change->action = CORRAL_ACTION_REMOVE;
    return CORRAL_OK;
  }
  let_go(&here->header);
  if (here->payload) here->header.flags |= CORRAL_FLAG_EXPIRED;
  edit(here, change);
  return CORRAL_OK;
}

/* Whoever computed a value where the store was out of reach learns by the mark that it is of before. */
static int invalidate(const corral_op *op, const now_here *here, corral_change *change) {
  corral_header mark = {.state = CORRAL_FREE, .flags = CORRAL_FLAG_INVALIDATED};
  mark.life_end = later(here->now + op->ttl_ms, here->mark ? here->header.life_end : 0);
  change->action = CORRAL_ACTION_REPLACE;
  change->expires = mark.life_end;
  crl_record_write(&mark, change->header);
  return CORRAL_OK;
}

/* A key that the store doesn't have. */
static int decide_absent(corral_op *op, now_here *here, corral_change *change) {
  switch (op->verb) {
    case CORRAL_VERB_GET: return CORRAL_EMISS;
    case CORRAL_VERB_CLAIM: return claim(op, here, change);
    case CORRAL_VERB_SETTLE:
    case CORRAL_VERB_RELEASE:
    case CORRAL_VERB_RENEW:
    case CORRAL_VERB_EXTEND: return CORRAL_ELOST;
    case CORRAL_VERB_INVALIDATE: return op->ttl_ms > 0 ? invalidate(op, here, change) : CORRAL_OK;
    case CORRAL_VERB_EXPIRE: return CORRAL_OK;
    default: return CORRAL_EUNSUPPORTED;
  }
}

static int decide_present(corral_op *op, now_here *here, corral_change *change) {
  switch (op->verb) {
    case CORRAL_VERB_GET: return CORRAL_OK;
    case CORRAL_VERB_CLAIM: return claim(op, here, change);
    case CORRAL_VERB_SETTLE: return settle(op, here, change);
    case CORRAL_VERB_RELEASE: return release(op, here, change);
    case CORRAL_VERB_EXTEND: return extend(op, here, change);
    case CORRAL_VERB_INVALIDATE:
      if (op->ttl_ms > 0) return invalidate(op, here, change);
      change->action = CORRAL_ACTION_REMOVE;
      return CORRAL_OK;
    case CORRAL_VERB_EXPIRE: return expire(here, change);
    case CORRAL_VERB_RENEW: return renew(op, here, change);
    default: return CORRAL_EUNSUPPORTED;
  }
}

void crl_record_decide(corral_op *op, const uint8_t *record, size_t size, int64_t now, corral_change *change) {
  now_here here;
  memset(&here, 0, sizeof here);
  memset(change, 0, sizeof *change);
  op->same = 0;
  op->life_ms = op->until_ms = 0;
  here.now = now;
  if (record == NULL) {
    op->status = decide_absent(op, &here, change);
  } else if (crl_record_read(record, size, &here.header) != CORRAL_OK) {
    op->status = CORRAL_EFOREIGN;
    return;
  } else {
    int invalidated = (here.header.flags & CORRAL_FLAG_INVALIDATED) != 0;
    here.mark = invalidated && here.header.life_end > now;
    here.payload = !invalidated && size > CORRAL_HEADER && (here.header.life_end == 0 || here.header.life_end > now);
    op->status = decide_present(op, &here, change);
    if (here.payload) op->life_ms = here.header.life_end == 0 ? -1 : here.header.life_end - now;
    op->same = op->verb == CORRAL_VERB_CLAIM && here.payload && op->seen != 0 && crl_record_stamp(record, size) == op->seen;
  }
  if (here.header.state != CORRAL_FREE && here.header.until > now) op->until_ms = here.header.until - now;
}
