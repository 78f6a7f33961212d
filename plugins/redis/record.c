/* record.c: status, life and lease of a record in Redis, by its front, the key's TTL and the
 * server's time.
 *
 * A lease that was taken by SET NX GET tells no end: it ends CORRAL_LEASE_KEPT_MS before its key.
 * A reader of such a record asks for the key's TTL, and dates the lease. */
#include <endian.h>
#include <stdlib.h>

#include "redis.h"

enum {
  STEP_MS = 2000, /* most that the server's time, as known here, may be off */
  TAG_VERSION = 4 /* a kind: see docs/record.md */
};

#define LONGEST_LIFE INT64_C(946080000000) /* as host->decide has it */

void crl_redis_record_refuse(const crl_redis_handle *h, corral_op *op) {
  static const char foreign[] =
      "the key holds data that corral did not write: give corral a name space of its own";
  static const char newer[] =
      "the key holds a record of a later version of corral, which is left alone";
  crl_redis_result_fail(h, op, op->status, op->status == CORRAL_EFOREIGN ? foreign : newer);
}

/* A CLAIM is judged as if it were repeated. */
void crl_redis_record_judge(const crl_redis_handle *h, corral_op *op, const uint8_t *front,
                            size_t len, int64_t now) {
  corral_op look = {.verb = op->verb, .token = op->token};
  corral_change change;
  if (op->verb == CORRAL_VERB_CLAIM) look.claim.lease_ms = op->claim.lease_ms;
  h->store->host->decide(&look, front, len, now, &change);
  op->status = look.status;
  op->state.life_ms = look.state.life_ms;
  op->state.left_ms = look.state.left_ms;
}

/* When the key of a lease or verdict ends, body or not. */
static int64_t end_of(const corral_header *header) {
  int64_t end = header->until;
  int kept = header->state == CORRAL_LEASED ? CORRAL_LEASE_KEPT_MS : 0;
  return __builtin_add_overflow(end, kept, &end) ? INT64_MAX : end;
}

/* Time left of the lease or verdict. The TTL of a lease that is alone tells it to the millisecond,
 * unless another program has changed it: then its own end counts, by the server's time as far as
 * that is known. -1: unknown. */
static int64_t left_by_ttl(const crl_redis_handle *h, const corral_header *header, int64_t by_end,
                           int64_t pttl) {
  int64_t unknown = h->time.known ? by_end : -1;
  if (header->state != CORRAL_LEASED || header->body > 0 || pttl < 0) return unknown;
  int64_t left = pttl > CORRAL_LEASE_KEPT_MS ? pttl - CORRAL_LEASE_KEPT_MS : 0;
  return !h->time.known || llabs(left - by_end) < STEP_MS ? left : by_end;
}

/* Life of a body by its end and by the key's TTL. The TTL is that of the body, or of a lease that
 * outlasts it: so it gives the life to the millisecond, without a clock of this host. If another
 * program has changed it, the record's own end counts, by the server's time as far as that is
 * known. */
static int64_t life_by_ttl(const crl_redis_handle *h, const corral_header *header, int64_t by_end,
                           int64_t pttl) {
  int64_t outlasts = 0;
  if (header->state != CORRAL_FREE &&
      __builtin_sub_overflow(end_of(header), header->life_end, &outlasts))
    outlasts = INT64_MAX;
  if (outlasts < 0) outlasts = 0;
  int64_t life = pttl > outlasts ? pttl - outlasts : 0;
  if (!h->time.known) return pttl >= 0 ? life : -1;
  return pttl >= 0 && llabs(life - by_end) < STEP_MS ? life : by_end;
}

/* The number of a part of up to 8 bytes: by the 8 bytes that end with it. */
static uint64_t number_of(const uint8_t *part) {
  uint64_t number;
  memcpy(&number, part + part[1] - 6, sizeof number);
  return part[1] == 0 ? 0 : le64toh(number) >> (64 - 8 * part[1]);
}

/* Life that a record was stored for, by its metadata: the last bytes of its body; 0: it doesn't
 * say. */
static int64_t whole_life(const uint8_t *record, size_t body, size_t metadata) {
  enum { TTL = 1, GRACES = 3, NUMBER = 6 };
  uint64_t lives[GRACES + 1] = {0};
  size_t left = metadata;
  if (left > body) return 0;
  const uint8_t *at = record + CORRAL_HEAD + body - left;
  while (left >= 2 && at[0] >= TTL && at[0] <= GRACES && at[1] <= left - 2 && at[1] <= NUMBER) {
    lives[at[0]] = number_of(at);
    left -= 2 + (size_t)at[1];
    at += 2 + at[1];
  }
  uint64_t grace = lives[2] > lives[3] ? lives[2] : lives[3];
  return lives[TTL] == 0 ? 0 : (int64_t)(lives[TTL] + grace);
}

/* False for more life than the record ever had. Most have a TTL in front, and no more life than
 * that. */
static int is_within(const uint8_t *record, size_t body, size_t metadata, int64_t life) {
  enum { TTL = 1, NUMBER = 6 };
  if (metadata > 2 && metadata <= body) {
    const uint8_t *at = record + CORRAL_HEAD + (body - metadata);
    if (at[0] == TTL && at[1] <= NUMBER && at[1] <= metadata - 2 && life <= (int64_t)number_of(at))
      return 1;
  }
  int64_t whole = whole_life(record, body, metadata);
  return life <= (whole > 0 ? whole : LONGEST_LIFE);
}

/* 1: it is sure whether the body's life is over, by its end and the server's clock. *life is never
 * more than what is left, and less by the clock's bounds at most. But by the age of a tag's version
 * the host judges whether a compute began after the change: that age is never more than the true
 * one, and so the life never less.
 *
 * A free record that is over would be gone: either its TTL was taken away, or the server's clock
 * has stepped. More life than the record ever had tells of such a step, too. */
static int is_sure(const corral_header *header, const uint8_t *record, int64_t least, int64_t most,
                   int64_t *life) {
  *life = 0;
  if (header->life_end <= least) return header->state != CORRAL_FREE;
  if (header->life_end <= most || __builtin_sub_overflow(header->life_end, least, life)) return 0;
  if (header->kind != TAG_VERSION) *life = header->life_end - most;
  return is_within(record, header->body, header->metadata, header->life_end - most);
}

/* 1: a lease that is alone ends within the clock's bounds. Its key's TTL tells its end exactly:
 * else a lease that was over might be found again when the bounds have changed. */
static int is_ending(const corral_header *header, int64_t least, int64_t most) {
  return header->state == CORRAL_LEASED && header->until > least && header->until <= most;
}

/* A look without PTTL. Bytes that are no record are asked for again: they may be a reply that came
 * unasked (perform.c). */
static int found_by_clock(const crl_redis_handle *h, corral_op *op, const uint8_t *front,
                          size_t len, const uint8_t *record) {
  corral_header header;
  int64_t least, most, life = 0;
  int good = crl_redis_clock_now(h, &least, &most);
  int is_read = h->store->host->header_read(front, len, &header) == CORRAL_OK;
  int has_body = is_read && header.body > 0;
  if (!good || (has_body && !is_sure(&header, record, least, most, &life)) ||
      (is_read && !has_body && is_ending(&header, least, most)))
    return 0;
  if (has_body && header.state == CORRAL_FREE) {
    op->status = CORRAL_OK;
  } else {
    crl_redis_record_judge(h, op, front, len, least + (most - least) / 2);
    good = op->status != CORRAL_EFOREIGN && op->status != CORRAL_ENEWER;
    if (!good) op->status = CORRAL_EINDOUBT;
  }
  op->state.life_ms = life;
  return good;
}

/* As found_by_clock, where that needs no header. */
int crl_redis_record_found_free(const crl_redis_handle *h, corral_op *op, const uint8_t *record,
                                size_t size) {
  enum { AT_STATE = 4, AT_KIND = 6, AT_BODY = 16, AT_METADATA = 20 };
  int64_t least, most;
  if (size < CORRAL_HEAD || record[AT_STATE] != CORRAL_FREE || record[AT_KIND] == TAG_VERSION)
    return 0;
  int good = crl_redis_clock_now(h, &least, &most) &&
             h->store->host->look(op, record, size, most) == CORRAL_OK && op->state.life_ms > 0;
  if (good) {
    uint32_t body;
    uint16_t metadata;
    memcpy(&body, record + AT_BODY, sizeof body);
    memcpy(&metadata, record + AT_METADATA, sizeof metadata);
    good = is_within(record, le32toh(body), le16toh(metadata), op->state.life_ms);
  }
  if (good) return 1;
  op->status = CORRAL_EINDOUBT;
  op->state = (corral_record_state){.life_ms = 0};
  return 0;
}

/* The server's time, as well as it is known. */
static int64_t guess_now(const crl_redis_handle *h) {
  int64_t least, most;
  (void)crl_redis_clock_now(h, &least, &most);
  return least + (most - least) / 2;
}

/* Most records aren't leased, and need no second look. */
static int is_undated(const crl_redis_handle *h, const uint8_t *record, size_t size,
                      corral_header *header) {
  enum { AT_STATE = 4 };
  return size > AT_STATE && record[AT_STATE] == CORRAL_LEASED &&
         h->store->host->header_read(record, size, header) == CORRAL_OK &&
         header->state == CORRAL_LEASED && header->body == 0 && header->until == 0;
}

int crl_redis_record_is_undated(const crl_redis_handle *h, const void *record, size_t size) {
  corral_header header;
  return is_undated(h, record, size, &header);
}

/* Writes such a lease's end, and its beginning, by its key's TTL. A key without an end gives it one
 * that is too far away to be believed. */
static void date(const crl_redis_handle *h, corral_header header, uint8_t *record, size_t size,
                 int64_t now, int64_t pttl) {
  header.until = now + (pttl < 0 ? LONGEST_LIFE : pttl - CORRAL_LEASE_KEPT_MS);
  header.since = header.until - header.length_ms;
  uint8_t front[CORRAL_FRONT];
  size_t len = h->store->host->header_write(&header, front);
  memcpy(record, front, len < size ? len : size);
}

size_t crl_redis_record_lease(const crl_redis_handle *h, const corral_op *op,
                              uint8_t front[CORRAL_FRONT]) {
  corral_header header;
  if (op->claim.front == NULL ||
      h->store->host->header_read(op->claim.front, op->claim.front_len, &header) != CORRAL_OK)
    memset(&header, 0, sizeof header);
  corral_header lease = {
      .state = CORRAL_LEASED, .length_ms = (uint32_t)op->claim.lease_ms, .cost_ms = header.cost_ms};
  memcpy(lease.digest, header.digest, CORRAL_DIGEST);
  memcpy(lease.token, op->token, CORRAL_TOKEN);
  memcpy(lease.note, header.note, CORRAL_NOTE);
  return h->store->host->header_write(&lease, front);
}

void crl_redis_record_granted(const crl_redis_handle *h, corral_op *op) {
  uint8_t *record = malloc(CORRAL_FRONT);
  op->status = CORRAL_OK;
  op->state.left_ms = op->claim.lease_ms;
  if (record == NULL) return;
  op->found = (corral_found){.record = record,
                             .len = crl_redis_record_lease(h, op, record),
                             .drop = free,
                             .owner = record};
  corral_header header;
  if (is_undated(h, record, op->found.len, &header))
    date(h, header, record, op->found.len, guess_now(h), op->claim.lease_ms + CORRAL_LEASE_KEPT_MS);
}

int crl_redis_record_found(const crl_redis_handle *h, corral_op *op, uint8_t *record, size_t size,
                           int64_t pttl) {
  uint8_t front[CORRAL_FRONT];
  corral_header header;
  int undated = is_undated(h, record, size, &header);
  if (pttl == CRL_REDIS_UNASKED)
    return !undated &&
           found_by_clock(h, op, front, h->store->host->front(record, size, front), record);
  int64_t now = guess_now(h);
  if (undated) date(h, header, record, size, now, pttl);
  size_t len = h->store->host->front(record, size, front);
  crl_redis_record_judge(h, op, front, len, now);
  if (op->status == CORRAL_EFOREIGN || op->status == CORRAL_ENEWER) crl_redis_record_refuse(h, op);
  if (op->status != CORRAL_OK || h->store->host->header_read(front, len, &header) != CORRAL_OK)
    return 1;
  if (header.state != CORRAL_FREE && !undated)
    op->state.left_ms = left_by_ttl(h, &header, op->state.left_ms, pttl);
  if (header.body > 0) op->state.life_ms = life_by_ttl(h, &header, op->state.life_ms, pttl);
  return 1;
}
