/* envelope.c: the body of a record: the payload, followed by the metadata. */
#include "record/envelope.h"

#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

/* Checksum of a record's body and its description: key digest, kind, encoding, lengths. Never 0. */
static uint64_t stamp_of(const uint8_t *record, size_t body) {
  uint8_t about[CORRAL_DIGEST + 8];
  memcpy(about, record + CRL_AT_DIGEST, CORRAL_DIGEST);
  memcpy(about + CORRAL_DIGEST, record + CRL_AT_KIND, 2); /* and encoding */
  memcpy(about + CORRAL_DIGEST + 2, record + CRL_AT_METADATA, 2);
  memcpy(about + CORRAL_DIGEST + 4, record + CRL_AT_BODY, 4);
  uint64_t stamp =
      XXH3_64bits_withSeed(record + CRL_PAYLOAD_AT, body, XXH3_64bits(about, sizeof about));
  return stamp == 0 ? 1 : stamp;
}

/* ---- numbers ------------------------------------------------------------------------------- */

enum { NUMBERS = 7 };

typedef struct number {
  uint8_t kind;
  uint64_t value;
} number;

static void list_numbers(const crl_envelope *envelope, number list[NUMBERS]) {
  const number all[NUMBERS] = {
      {CRL_PART_TTL, (uint64_t)envelope->ttl_ms},
      {CRL_PART_SWR, (uint64_t)envelope->swr_ms},
      {CRL_PART_SIE, (uint64_t)envelope->sie_ms},
      {CRL_PART_CREATED, (uint64_t)envelope->created_ms},
      {CRL_PART_COST, envelope->cost_us},
      {CRL_PART_VERSION, envelope->version},
      {CRL_PART_PLAIN, envelope->encoding == CRL_ENCODING_PLAIN ? 0 : envelope->plain_len},
  };
  memcpy(list, all, sizeof all);
}

/* The number of 1 to 8 bytes at `at`, in a record: by the 8 bytes that end with it, as a head is in
 * front of all parts. */
static uint64_t number_at(const uint8_t *at, size_t len) {
  return crl_record_take(at + len - 8, 8) >> (64 - 8 * len);
}

static uint64_t number_of(const crl_part *part) {
  return part->len == 0 || part->len > 8 ? 0 : number_at(part->bytes, part->len);
}

static void take_part(const crl_part *part, crl_envelope *ret) {
  uint64_t value = number_of(part);
  switch (part->kind) {
    case CRL_PART_TTL: ret->ttl_ms = (int64_t)value; break;
    case CRL_PART_SWR: ret->swr_ms = (int64_t)value; break;
    case CRL_PART_SIE: ret->sie_ms = (int64_t)value; break;
    case CRL_PART_CREATED: ret->created_ms = (int64_t)value; break;
    case CRL_PART_COST: ret->cost_us = value; break;
    case CRL_PART_VERSION: ret->version = value; break;
    case CRL_PART_PLAIN: ret->plain_len = value < SIZE_MAX ? (size_t)value : SIZE_MAX; break;
    case CRL_PART_TAG: ret->tag_count++; break;
    case CRL_PART_VALIDATOR:
      ret->validator = part->bytes;
      ret->validator_len = part->len;
      break;
    default: break;
  }
}

/* ---- writing ------------------------------------------------------------------------------- */

size_t crl_envelope_size(crl_envelope *envelope) {
  number list[NUMBERS];
  size_t size = crl_tags_size(envelope->tags);
  list_numbers(envelope, list);
  for (size_t i = 0; i < NUMBERS; i++)
    if (list[i].value != 0) size += crl_part_size(list[i].kind, crl_number_len(list[i].value));
  if (envelope->validator != NULL)
    size += crl_part_size(CRL_PART_VALIDATOR, envelope->validator_len);
  envelope->metadata_at = CRL_PAYLOAD_AT + envelope->payload_len;
  envelope->metadata_len = size;
  if (size > UINT16_MAX || envelope->payload_len > UINT32_MAX - UINT16_MAX) return 0;
  return envelope->metadata_at + size;
}

static void write_metadata(const crl_envelope *envelope, uint8_t *at) {
  number list[NUMBERS];
  list_numbers(envelope, list);
  for (size_t i = 0; i < NUMBERS; i++) {
    size_t len = crl_number_len(list[i].value);
    if (len == 0) continue;
    at = crl_part_put(at, list[i].kind, NULL, len);
    crl_record_put(at, list[i].value, len);
    at += len;
  }
  at = crl_tags_write(envelope->tags, at);
  if (envelope->validator != NULL)
    crl_part_put(at, CRL_PART_VALIDATOR, envelope->validator, envelope->validator_len);
}

void crl_envelope_write(const crl_envelope *envelope, uint8_t *record) {
  corral_header header;
  uint8_t front[CORRAL_FRONT];
  memset(&header, 0, sizeof header);
  header.kind = envelope->kind;
  header.encoding = envelope->encoding;
  header.metadata = (uint16_t)envelope->metadata_len;
  header.body = (uint32_t)(envelope->payload_len + envelope->metadata_len);
  memcpy(header.digest, envelope->digest, CORRAL_DIGEST);
  write_metadata(envelope, record + envelope->metadata_at);
  crl_record_write(&header, front);
  memcpy(record, front, CORRAL_HEAD);
  crl_record_put(record + CRL_AT_STAMP, stamp_of(record, header.body), 8);
}

/* ---- reading ------------------------------------------------------------------------------- */

/* False for lives, a kind or an encoding that corral never writes. */
static int is_sane(const crl_envelope *envelope) {
  return (uint64_t)envelope->ttl_ms <= CRL_LIFE_MOST &&
         (uint64_t)envelope->swr_ms <= CRL_LIFE_MOST &&
         (uint64_t)envelope->sie_ms <= CRL_LIFE_MOST && envelope->kind >= CRL_KIND_VALUE &&
         envelope->kind < CRL_KINDS && envelope->encoding < CRL_ENCODINGS;
}

/* CORRAL_OK: the record has an undamaged body of this key (`digest` NULL: of any key). */
static int judge_body(const uint8_t *record, size_t size, const uint8_t *digest) {
  size_t body = (size_t)crl_record_take(record + CRL_AT_BODY, 4);
  if (body == 0 || body > size - CORRAL_HEAD) return CORRAL_EMISS; /* none, or cut short */
  if (crl_record_take(record + CRL_AT_METADATA, 2) > body) return CORRAL_ECORRUPT;
  if (digest != NULL && memcmp(record + CRL_AT_DIGEST, digest, CORRAL_DIGEST) != 0)
    return CORRAL_ECORRUPT;
  return crl_record_take(record + CRL_AT_STAMP, 8) == stamp_of(record, body) ? CORRAL_OK
                                                                             : CORRAL_ECORRUPT;
}

/* Parts of any kind, of *left bytes; 1: all of them could be read. */
static __attribute__((noinline)) int read_parts(const uint8_t *at, size_t left, crl_envelope *ret) {
  crl_part part;
  int more;
  while ((more = crl_part_next(&at, &left, &part)) > 0) take_part(&part, ret);
  return more == 0 && ret->validator_len <= CORRAL_VALIDATOR_MAX;
}

/* Most metadata are a few numbers, in the order of their kinds. */
static int read_metadata(const uint8_t *record, crl_envelope *ret) {
  static const uint8_t fields[] = {
      [CRL_PART_TTL] = offsetof(crl_envelope, ttl_ms),
      [CRL_PART_SWR] = offsetof(crl_envelope, swr_ms),
      [CRL_PART_SIE] = offsetof(crl_envelope, sie_ms),
      [CRL_PART_CREATED] = offsetof(crl_envelope, created_ms),
      [CRL_PART_COST] = offsetof(crl_envelope, cost_us),
      [CRL_PART_VERSION] = offsetof(crl_envelope, version),
  };
  const uint8_t *at = record + ret->metadata_at;
  size_t left = ret->metadata_len;
  while (left > 2 && at[0] - 1U < CRL_PART_VERSION && at[1] - 1U < 8 && at[1] <= left - 2) {
    uint64_t value = number_at(at + 2, at[1]);
    memcpy((uint8_t *)ret + fields[at[0]], &value, sizeof value);
    left -= 2U + at[1];
    at += 2U + at[1];
  }
  int is_whole = left == 0 || read_parts(at, left, ret);
  if (ret->encoding == CRL_ENCODING_PLAIN) ret->plain_len = ret->payload_len;
  return is_whole;
}

int crl_envelope_read(const uint8_t *record, size_t size, const uint8_t *digest,
                      crl_envelope *ret) {
  int status = crl_record_judge(record, size);
  if (status == CORRAL_OK) status = judge_body(record, size, digest);
  if (status != CORRAL_OK) return status;
  size_t body = (size_t)crl_record_take(record + CRL_AT_BODY, 4),
         metadata = (size_t)crl_record_take(record + CRL_AT_METADATA, 2);
  memset(ret, 0, offsetof(crl_envelope, payload_at));
  ret->kind = record[CRL_AT_KIND];
  ret->encoding = record[CRL_AT_ENCODING];
  ret->digest = record + CRL_AT_DIGEST;
  ret->payload_at = CRL_PAYLOAD_AT;
  ret->payload_len = body - metadata;
  ret->plain_len = ret->tag_count = ret->validator_len = 0;
  ret->tags = NULL;
  ret->validator = NULL;
  ret->metadata_at = CRL_PAYLOAD_AT + body - metadata;
  ret->metadata_len = metadata;
  return read_metadata(record, ret) && is_sane(ret) ? CORRAL_OK : CORRAL_ECORRUPT;
}

crl_lives crl_envelope_judge(const crl_envelope *envelope, int expired, int64_t life_ms,
                             int64_t wall_ms) {
  crl_life life = {.ttl_ms = envelope->ttl_ms,
                   .swr_ms = envelope->swr_ms,
                   .sie_ms = envelope->sie_ms,
                   .created_ms = envelope->created_ms,
                   .has_graces = envelope->kind == CRL_KIND_VALUE};
  return crl_policy_judge(&life, expired, life_ms, wall_ms);
}
