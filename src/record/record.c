/* record.c: the front of a record, and the effect of each verb on a record.
 *
 * This file alone defines claim, settle, release, extend, invalidate and expire. Stores that can
 * change a record atomically use it through corral_host.decide; the scripts of the Redis plugin
 * repeat it in Lua.
 *
 * Anybody may have written the record: lengths, times and numbers are bounded before use. */
#include "record/record.h"

enum { LEASE_LENGTH = 4, LEASE_UNTIL = 8, LEASE_SINCE = 16, LEASE_TOKEN = 24 };
enum { PART_NOTE = 1, PART_COST = 2, PART_CODE = 3, PART_HEAD = 2, NUMBER = 4 };

_Static_assert(CORRAL_HEAD + CORRAL_LEASE + PART_HEAD + CORRAL_NOTE + 2 * (PART_HEAD + NUMBER) <=
                   CORRAL_FRONT,
               "room for all parts");

_Static_assert(sizeof(corral_record_state) == sizeof(corral_lock_state),
               "resetting one resets the other");
_Static_assert(offsetof(corral_op, status) == offsetof(corral_op, args) + CORRAL_OP_ARGS,
               "the arguments of each verb fit");

/* ---- reading ------------------------------------------------------------------------------- */

/* Size of the lease; 0 when the bytes are no lease. */
static size_t lease_size(const uint8_t *lease, size_t size) {
  if (size < CORRAL_LEASE) return 0;
  size_t all = (size_t)crl_record_take(lease, 2);
  return all >= CORRAL_LEASE && all <= size && all <= CORRAL_FRONT - CORRAL_HEAD ? all : 0;
}

size_t crl_record_front(const void *record, size_t size, uint8_t front[CORRAL_FRONT]) {
  const uint8_t *at = record;
  size_t head = size < CORRAL_HEAD ? size : CORRAL_HEAD;
  memcpy(front, at, head);
  if (crl_record_judge(at, size) != CORRAL_OK) return head;
  uint64_t body = crl_record_take(at + CRL_AT_BODY, 4);
  if (body > size - CORRAL_HEAD) { /* cut short: see crl_record_read_whole */
    front[CRL_AT_STATE] = CORRAL_FREE;
    memset(front + CRL_AT_LIFE, 0, CRL_AT_FAILURES - CRL_AT_LIFE);
    return head;
  }
  const uint8_t *lease = at + CORRAL_HEAD + body;
  size_t more =
      at[CRL_AT_STATE] == CORRAL_FREE ? 0 : lease_size(lease, size - CORRAL_HEAD - (size_t)body);
  memcpy(front + CORRAL_HEAD, lease, more);
  return CORRAL_HEAD + more;
}

/* A note ends at its first NUL; of several the last one counts. */
static void read_note(const uint8_t *part, size_t len, corral_header *header) {
  memset(header->note, 0, CORRAL_NOTE);
  memcpy(header->note, part, strnlen((const char *)part, len < CORRAL_NOTE ? len : CORRAL_NOTE));
}

static void read_parts(const uint8_t *at, size_t size, corral_header *header) {
  while (size >= PART_HEAD && at[1] <= size - PART_HEAD) {
    const uint8_t *part = at + PART_HEAD;
    size_t len = at[1];
    if (at[0] == PART_NOTE) read_note(part, len, header);
    if (at[0] == PART_COST && len == NUMBER)
      header->cost_ms = (uint32_t)crl_record_take(part, NUMBER);
    if (at[0] == PART_CODE && len == NUMBER)
      header->code = (int32_t)(uint32_t)crl_record_take(part, NUMBER);
    at += PART_HEAD + len;
    size -= PART_HEAD + len;
  }
}

/* A state without a valid lease behind it reads as FREE. */
static void read_lease(const uint8_t *lease, size_t size, corral_header *header) {
  size_t all = lease_size(lease, size);
  if (all == 0) {
    header->state = CORRAL_FREE;
    return;
  }
  header->length_ms = (uint32_t)crl_record_take(lease + LEASE_LENGTH, 4);
  header->until = (int64_t)crl_record_take(lease + LEASE_UNTIL, 8);
  header->since = (int64_t)crl_record_take(lease + LEASE_SINCE, 8);
  memcpy(header->token, lease + LEASE_TOKEN, CORRAL_TOKEN);
  read_parts(lease + CORRAL_LEASE, all - CORRAL_LEASE, header);
}

/* Reads a head, all of it, and the lease. */
static void read_front(const uint8_t *at, const uint8_t *lease, size_t size,
                       corral_header *header) {
  memset(&header->until, 0, sizeof *header - offsetof(corral_header, until));
  header->state = at[CRL_AT_STATE];
  header->flags = at[CRL_AT_FLAGS];
  header->kind = at[CRL_AT_KIND];
  header->encoding = at[CRL_AT_ENCODING];
  header->life_end = (int64_t)crl_record_take(at + CRL_AT_LIFE, 8);
  header->body = (uint32_t)crl_record_take(at + CRL_AT_BODY, 4);
  header->metadata = (uint16_t)crl_record_take(at + CRL_AT_METADATA, 2);
  header->failures = (uint32_t)crl_record_take(at + CRL_AT_FAILURES, 2);
  memcpy(header->digest, at + CRL_AT_DIGEST, CORRAL_DIGEST);
  header->stamp = crl_record_take(at + CRL_AT_STAMP, 8);
  if (header->state != CORRAL_FREE) read_lease(lease, size, header);
}

int crl_record_read(const void *front, size_t size, corral_header *header) {
  const uint8_t *at = front;
  int status = crl_record_judge(at, size);
  if (status == CORRAL_OK) read_front(at, at + CORRAL_HEAD, size - CORRAL_HEAD, header);
  return status;
}

int crl_record_read_whole(const void *record, size_t size, corral_header *header) {
  const uint8_t *at = record;
  int status = crl_record_judge(at, size);
  if (status != CORRAL_OK) return status;
  size_t body = (size_t)crl_record_take(at + CRL_AT_BODY, 4), behind = size - CORRAL_HEAD;
  int is_cut = body > behind; /* neither body nor lease is used */
  read_front(at, is_cut ? at : at + CORRAL_HEAD + body, is_cut ? 0 : behind - body, header);
  if (is_cut) {
    header->life_end = 0;
    header->body = header->metadata = 0;
  }
  return status;
}

int crl_record_read_found(const corral_op *op, corral_header *header) {
  return op->state.same ? crl_record_read(op->found.record, op->found.len, header)
                        : crl_record_read_whole(op->found.record, op->found.len, header);
}

uint64_t crl_record_stamp(const void *record, size_t size) {
  corral_header header;
  return crl_record_read_whole(record, size, &header) == CORRAL_OK ? header.stamp : 0;
}

/* ---- writing ------------------------------------------------------------------------------- */

static uint8_t *write_part(uint8_t *at, uint8_t kind, const void *bytes, size_t len) {
  at[0] = kind;
  at[1] = (uint8_t)len;
  memcpy(at + PART_HEAD, bytes, len);
  return at + PART_HEAD + len;
}

static uint8_t *write_number(uint8_t *at, uint8_t kind, uint32_t number) {
  uint8_t bytes[NUMBER];
  if (number == 0) return at;
  crl_record_put(bytes, number, NUMBER);
  return write_part(at, kind, bytes, NUMBER);
}

static size_t write_lease(const corral_header *header, uint8_t *lease) {
  size_t note = strnlen(header->note, CORRAL_NOTE);
  uint8_t *end = lease + CORRAL_LEASE;
  memset(lease, 0, CORRAL_LEASE);
  crl_record_put(lease + LEASE_LENGTH, header->length_ms, 4);
  crl_record_put(lease + LEASE_UNTIL, (uint64_t)header->until, 8);
  crl_record_put(lease + LEASE_SINCE, (uint64_t)header->since, 8);
  memcpy(lease + LEASE_TOKEN, header->token, CORRAL_TOKEN);
  if (note > 0) end = write_part(end, PART_NOTE, header->note, note);
  end = write_number(end, PART_COST, header->cost_ms);
  end = write_number(end, PART_CODE, (uint32_t)header->code);
  crl_record_put(lease, (uint64_t)(end - lease), 2);
  return (size_t)(end - lease);
}

size_t crl_record_write(const corral_header *header, uint8_t front[CORRAL_FRONT]) {
  memset(front, 0, CORRAL_HEAD);
  memcpy(front, CRL_MAGIC, CRL_AT_FORMAT);
  front[CRL_AT_FORMAT] = CRL_FORMAT;
  front[CRL_AT_STATE] = header->state;
  front[CRL_AT_FLAGS] = header->flags;
  front[CRL_AT_KIND] = header->kind;
  front[CRL_AT_ENCODING] = header->encoding;
  crl_record_put(front + CRL_AT_LIFE, (uint64_t)header->life_end, 8);
  crl_record_put(front + CRL_AT_BODY, header->body, 4);
  crl_record_put(front + CRL_AT_METADATA, header->metadata, 2);
  crl_record_put(front + CRL_AT_FAILURES,
                 header->failures < UINT16_MAX ? header->failures : UINT16_MAX, 2);
  memcpy(front + CRL_AT_DIGEST, header->digest, CORRAL_DIGEST);
  crl_record_put(front + CRL_AT_STAMP, header->stamp, 8);
  return CORRAL_HEAD +
         (header->state == CORRAL_FREE ? 0 : write_lease(header, front + CORRAL_HEAD));
}

void crl_record_join(const corral_change *change, const uint8_t *body, uint8_t *record) {
  memcpy(record, change->front, CORRAL_HEAD);
  if (change->body_len > 0) memcpy(record + CORRAL_HEAD, body, change->body_len);
  memcpy(record + CORRAL_HEAD + change->body_len, change->front + CORRAL_HEAD,
         change->front_len - CORRAL_HEAD);
}

/* ---- verbs --------------------------------------------------------------------------------- */

/* The record as a verb finds it at `now`. */
typedef struct now_here {
  corral_header header;
  int body; /* it has one, within its life */
  int64_t now;
} now_here;

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

/* a - b, saturated. */
static int64_t difference(int64_t a, int64_t b) {
  int64_t result;
  if (!__builtin_sub_overflow(a, b, &result)) return result;
  return a > b ? INT64_MAX : INT64_MIN;
}

/* Longest plausible time left of the lease or verdict, in ms. */
static int64_t longest(const corral_header *header) {
  int64_t most = header->state == CORRAL_LEASED ? CRL_RECORD_LEASE_MOST : CRL_RECORD_VERDICT_MOST;
  int64_t length = header->length_ms > 0 ? header->length_ms : 1;
  return length < most ? length : most;
}

/* Time left of the lease or verdict in ms; 0: over, or none. */
static int64_t left_of(const now_here *here) {
  if (here->header.state == CORRAL_FREE) return 0;
  return later(difference(here->header.until, here->now), 0);
}

/* True when more time is left than the lease was ever taken for, or when it began in the future: a
 * clock was stepped, or the record is forged. */
static int contradicts(const now_here *here) {
  return left_of(here) > longest(&here->header) + CRL_RECORD_STEP_MS ||
         difference(here->header.since, here->now) > CRL_RECORD_STEP_MS;
}

/* When the store drops the key. That of a lease outlives it, so that its holder may be late. */
static int64_t end_of(const corral_header *header) {
  int64_t kept = header->state == CORRAL_LEASED ? CORRAL_LEASE_KEPT_MS : 0;
  return header->state == CORRAL_FREE ? header->life_end
                                      : later(header->life_end, header->until + kept);
}

/* Writes the header into *change. Without a body, the header's fields on the body are cleared. */
static void edit(now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  change->action = here->body ? CORRAL_ACTION_EDIT : CORRAL_ACTION_REPLACE;
  if (!here->body) {
    header->life_end = 0;
    header->flags = header->kind = header->encoding = 0;
    header->body = header->metadata = 0;
    header->stamp = 0;
  }
  change->expires = end_of(header);
  change->front_len = crl_record_write(header, change->front);
  change->body_len = header->body;
}

static void let_go(corral_header *header) {
  header->state = CORRAL_FREE;
  memset(header->token, 0, CORRAL_TOKEN);
  header->until = header->since = 0;
  header->length_ms = header->cost_ms = 0;
  header->code = 0;
  memset(header->note, 0, CORRAL_NOTE);
}

static int is_leased_by(const now_here *here, const uint8_t *token) {
  return here->header.state == CORRAL_LEASED &&
         memcmp(here->header.token, token, CORRAL_TOKEN) == 0;
}

static int holds(const now_here *here, const corral_op *op) {
  return is_leased_by(here, op->token);
}

/* Ends the lease or verdict length_ms from now. */
static void date(now_here *here, int64_t length_ms) {
  here->header.length_ms = length_ms < UINT32_MAX ? (uint32_t)length_ms : UINT32_MAX;
  here->header.until = here->now + length_ms;
}

/* CORRAL_EBUSY for a lease or verdict that isn't over. An implausible end is moved to one length
 * from now, so that it comes. */
static int refuse(now_here *here, corral_change *change) {
  if (!contradicts(here)) return CORRAL_EBUSY;
  here->header.since = here->now;
  date(here, longest(&here->header));
  edit(here, change);
  return CORRAL_EBUSY;
}

/* A body that was stored for another key counts as none. */
static void adopt(now_here *here, const corral_header *wish) {
  if (memcmp(here->header.digest, wish->digest, CORRAL_DIGEST) != 0) here->body = 0;
  memcpy(here->header.digest, wish->digest, CORRAL_DIGEST);
}

static int claim(corral_op *op, now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  corral_header wish;
  int is_dead = op->claim.over != NULL && is_leased_by(here, op->claim.over);
  if (left_of(here) > 0 && !is_dead) return holds(here, op) ? CORRAL_OK : refuse(here, change);
  let_go(header);
  header->state = CORRAL_LEASED;
  memcpy(header->token, op->token, CORRAL_TOKEN);
  header->since = here->now;
  date(here, op->claim.lease_ms);
  if (op->claim.front != NULL &&
      crl_record_read(op->claim.front, op->claim.front_len, &wish) == CORRAL_OK) {
    adopt(here, &wish);
    header->cost_ms = wish.cost_ms;
    memcpy(header->note, wish.note, CORRAL_NOTE);
  }
  edit(here, change);
  return CORRAL_OK;
}

static int settle(corral_op *op, now_here *here, corral_change *change) {
  corral_header header;
  if (!holds(here, op)) return CORRAL_ELOST;
  if (crl_record_read_whole(op->settle.record, op->settle.record_len, &header) != CORRAL_OK ||
      header.state != CORRAL_FREE)
    return CORRAL_EINVAL;
  header.life_end = here->now + op->settle.ttl_ms;
  change->action = CORRAL_ACTION_REPLACE;
  change->body = op->settle.record + CORRAL_HEAD;
  change->body_len = header.body;
  change->expires = header.life_end;
  change->front_len = crl_record_write(&header, change->front);
  return CORRAL_OK;
}

/* Gives a body that is still valid a new life, as if it were stored now. */
static int renew(corral_op *op, now_here *here, corral_change *change) {
  if (!holds(here, op)) return CORRAL_ELOST;
  if (!here->body) return CORRAL_EMISS;
  let_go(&here->header);
  here->header.flags = 0;
  here->header.failures = 0;
  here->header.life_end = here->now + op->renew.ttl_ms;
  edit(here, change);
  return CORRAL_OK;
}

static int release(corral_op *op, now_here *here, corral_change *change) {
  corral_header *header = &here->header;
  corral_header verdict;
  if (!holds(here, op)) return CORRAL_ELOST;
  let_go(header);
  if (op->release.verdict != NULL &&
      crl_record_read(op->release.verdict, op->release.verdict_len, &verdict) == CORRAL_OK) {
    header->state = CORRAL_VERDICT;
    header->since = here->now;
    date(here, op->release.verdict_ms);
    header->code = verdict.code;
    header->failures = verdict.failures;
    memcpy(header->note, verdict.note, CORRAL_NOTE);
    edit(here, change);
    if (!here->body) change->expires = later(change->expires, here->now + op->release.keep_ms);
  } else if (here->body) {
    edit(here, change);
  } else {
    change->action = CORRAL_ACTION_REMOVE;
  }
  return CORRAL_OK;
}

static int extend(corral_op *op, now_here *here, corral_change *change) {
  if (!holds(here, op)) return CORRAL_ELOST;
  date(here, op->extend.lease_ms);
  if (here->header.since > here->now) here->header.since = here->now;
  edit(here, change);
  return CORRAL_OK;
}

static int expire(now_here *here, corral_change *change) {
  change->action = CORRAL_ACTION_REMOVE;
  if (!here->body) return CORRAL_OK;
  let_go(&here->header);
  here->header.flags |= CORRAL_FLAG_EXPIRED;
  edit(here, change);
  return CORRAL_OK;
}

static int remove_key(corral_change *change) {
  change->action = CORRAL_ACTION_REMOVE;
  return CORRAL_OK;
}

/* The key is absent or, with is_there, has a record that counts as absent. */
static int decide_absent(corral_op *op, now_here *here, int is_there, corral_change *change) {
  switch (op->verb) {
    case CORRAL_VERB_GET: return CORRAL_EMISS;
    case CORRAL_VERB_CLAIM: return claim(op, here, change);
    case CORRAL_VERB_SETTLE:
    case CORRAL_VERB_RELEASE:
    case CORRAL_VERB_RENEW:
    case CORRAL_VERB_EXTEND: return CORRAL_ELOST;
    case CORRAL_VERB_INVALIDATE:
    case CORRAL_VERB_EXPIRE: return is_there ? remove_key(change) : CORRAL_OK;
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
    case CORRAL_VERB_INVALIDATE: return remove_key(change);
    case CORRAL_VERB_EXPIRE: return expire(here, change);
    case CORRAL_VERB_RENEW: return renew(op, here, change);
    default: return CORRAL_EUNSUPPORTED;
  }
}

/* The record of a later version of corral can only be removed. */
static int decide_newer(const corral_op *op, corral_change *change) {
  switch (op->verb) {
    case CORRAL_VERB_GET:
    case CORRAL_VERB_CLAIM: return CORRAL_ENEWER;
    case CORRAL_VERB_INVALIDATE:
    case CORRAL_VERB_EXPIRE: return remove_key(change);
    default: return CORRAL_ELOST;
  }
}

/* left_ms of the reply. An implausible end counts as over for GET, so that a caller claims. */
static int64_t told_left(const corral_op *op, const now_here *here) {
  if (!contradicts(here)) return left_of(here);
  return op->verb == CORRAL_VERB_GET ? 0 : longest(&here->header);
}

void crl_record_decide(corral_op *op, const uint8_t *front, size_t size, int64_t now,
                       corral_change *change) {
  now_here here;
  memset(&here, 0, sizeof here);
  memset(change, 0, offsetof(corral_change, front));
  change->front_len = change->body_len = 0;
  change->body = NULL;
  change->expires = 0;
  op->state = (corral_record_state){.life_ms = 0};
  here.now = now;
  int read = front == NULL ? CORRAL_EMISS : crl_record_read(front, size, &here.header);
  here.body = read == CORRAL_OK && here.header.body > 0 && here.header.life_end > now &&
              difference(here.header.life_end, now) <= CRL_RECORD_LIFE_MOST;
  switch (read) {
    case CORRAL_OK: op->status = decide_present(op, &here, change); break;
    case CORRAL_EMISS: op->status = decide_absent(op, &here, front != NULL, change); break;
    case CORRAL_ENEWER: op->status = decide_newer(op, change); break;
    default: op->status = CORRAL_EFOREIGN; return;
  }
  if (here.body) op->state.life_ms = difference(here.header.life_end, now);
  op->state.same = op->verb == CORRAL_VERB_CLAIM && here.body && op->claim.seen != 0 &&
                   here.header.stamp == op->claim.seen;
  op->state.left_ms = told_left(op, &here);
}

/* Apart, for its room. */
static __attribute__((noinline)) int look_closely(corral_op *op, const void *record, size_t size,
                                                  int64_t now) {
  uint8_t front[CORRAL_FRONT];
  corral_change change;
  size_t len = crl_record_front(record, size, front);
  crl_record_decide(op, front, len, now, &change);
  return op->status;
}

/* Most records that are looked at are free, and have a body within its life. */
int crl_record_look(corral_op *op, const void *record, size_t size, int64_t now) {
  const uint8_t *at = record;
  if (crl_record_judge(at, size) == CORRAL_OK && at[CRL_AT_STATE] == CORRAL_FREE) {
    uint64_t body = crl_record_take(at + CRL_AT_BODY, 4);
    int64_t end = (int64_t)crl_record_take(at + CRL_AT_LIFE, 8);
    if (body > 0 && body <= size - CORRAL_HEAD && end > now &&
        difference(end, now) <= CRL_RECORD_LIFE_MOST) {
      op->state = (corral_record_state){.life_ms = end - now};
      return op->status = CORRAL_OK;
    }
  }
  return look_closely(op, record, size, now);
}
