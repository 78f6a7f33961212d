/* fuzz_record.c: records of values with any content: reading them, each verb's changes, and
 * metadata written and read again.
 *
 * Input: flags (1: the record gets the right magic and stamp; 2: the store has the record), the
 * time, up to 4 operations, the record. */
#include "fuzz.h"

#include "../src/record/envelope.c"

#include "record/compress.h"
#include "../tests/support/op_kit.h"

enum { OPS = 4, MAX_VALUE = 1 << 20, RECORD_MOST = 1 << 16 };

/* ---- reading ------------------------------------------------------------------------------- */

static void make_right(uint8_t *record, size_t size) {
  corral_header header;
  if (size < CORRAL_HEAD) return;
  memcpy(record, "crl2", 4);
  crl_record_put(record + 16, size - CORRAL_HEAD, 4);
  record[4] = CORRAL_FREE;
  if (crl_record_read_whole(record, size, &header) != CORRAL_OK || header.body == 0 ||
      header.body > size - CORRAL_HEAD)
    return;
  crl_record_put(record + 40, stamp_of(record, header.body), 8);
}

static void check_tags(const crl_tags *tags) {
  MUST(tags->count <= CORRAL_TAGS_MAX + 1);
  for (size_t i = 0; i < tags->count; i++) MUST(tags->tag[i].len <= CORRAL_TAG_MAX);
}

/* An envelope that was read can be written, and reads back equal. */
static void round_trip(const uint8_t *record, const crl_envelope *e, const crl_tags *tags) {
  crl_envelope copy = *e, again;
  corral_header header;
  copy.tags = tags;
  size_t size = crl_envelope_size(&copy);
  if (size <= CRL_PAYLOAD_AT) return; /* too large, or a record without a body */
  uint8_t *room = malloc(size);
  if (room == NULL) abort();
  memcpy(room + CRL_PAYLOAD_AT, record + e->payload_at, e->payload_len);
  crl_envelope_write(&copy, room);
  MUST(crl_record_read_whole(room, size, &header) == CORRAL_OK && header.state == CORRAL_FREE);
  MUST(crl_envelope_read(room, size, copy.digest, &again) == CORRAL_OK);
  MUST(again.kind == e->kind && again.ttl_ms == e->ttl_ms && again.swr_ms == e->swr_ms &&
       again.sie_ms == e->sie_ms);
  MUST(again.version == e->version && again.cost_us == e->cost_us &&
       again.validator_len == e->validator_len);
  MUST(again.payload_len == e->payload_len && again.plain_len == e->plain_len);
  free(room);
}

static void unpack(const uint8_t *record, const crl_envelope *e) {
  if (e->encoding != CRL_ENCODING_ZSTD || e->plain_len > MAX_VALUE) return;
  uint8_t *plain = malloc(e->plain_len > 0 ? e->plain_len : 1);
  if (plain == NULL) abort();
  (void)crl_decompress(record + e->payload_at, e->payload_len, plain, e->plain_len);
  free(plain);
}

static void check_reading(const uint8_t *record, size_t size) {
  static const uint8_t another[CORRAL_DIGEST] = "another digest";
  crl_envelope e;
  static crl_tags tags;
  MUST(crl_envelope_read(record, size, another, &e) != CORRAL_OK ||
       memcmp(crl_record_digest(record), another, CORRAL_DIGEST) == 0);
  if (crl_envelope_read(record, size, NULL, &e) != CORRAL_OK) return;
  MUST(e.payload_at <= size && e.payload_len <= size - e.payload_at);
  MUST(e.metadata_at <= size && e.metadata_len <= size - e.metadata_at);
  MUST(e.kind >= CRL_KIND_VALUE && e.kind < CRL_KINDS && e.encoding < CRL_ENCODINGS);
  MUST(e.ttl_ms >= 0 && e.swr_ms >= 0 && e.sie_ms >= 0 && e.ttl_ms <= CRL_LIFE_MOST);
  MUST(e.validator_len <= size);
  unpack(record, &e);
  int has_tags = crl_tags_read(record + e.metadata_at, e.metadata_len, &tags);
  if (has_tags) {
    check_tags(&tags);
    round_trip(record, &e, &tags);
  }
}

/* ---- deciding ------------------------------------------------------------------------------ */

typedef struct held {
  uint8_t *record; /* NULL: none */
  size_t size;
} held;

static corral_op make_op(fuzz_input *in, uint8_t *token, const uint8_t *front, size_t front_len,
                         const uint8_t *record, size_t size) {
  uint8_t shape = fuzz_byte(in);
  corral_op op = {.verb = CORRAL_VERB_GET + fuzz_byte(in) % CORRAL_VERB_RENEW,
                  .token = token,
                  .status = CORRAL_EINDOUBT};
  memset(token, shape & 3 ? 'A' + (shape & 3) : 0, CORRAL_TOKEN);
  op_lasts(&op, 1 + (int64_t)(fuzz_number(in, 3) % CRL_RECORD_LEASE_MOST));
  op_keeps(&op, 1 + (int64_t)fuzz_number(in, 5) % CRL_LIFE_MOST);
  uint64_t seen = shape & 4 ? fuzz_number(in, 8) : 0;
  if (op.verb == CORRAL_VERB_CLAIM) op.claim.seen = seen;
  int wants_front = op.verb == CORRAL_VERB_CLAIM || (op.verb == CORRAL_VERB_RELEASE && shape & 8);
  if (op.verb == CORRAL_VERB_SETTLE || wants_front)
    op_brings(&op, wants_front ? front : record, wants_front ? front_len : size);
  return op;
}

static void check_times(const corral_op *op) {
  MUST(op->status == CORRAL_OK || op->status == CORRAL_EBUSY || op->status == CORRAL_ELOST ||
       op->status == CORRAL_EMISS || op->status == CORRAL_EFOREIGN || op->status == CORRAL_ENEWER);
  MUST(op->state.life_ms >= 0 && op->state.life_ms <= CRL_RECORD_LIFE_MOST &&
       op->state.left_ms >= 0);
  MUST(op->state.left_ms <= CRL_RECORD_VERDICT_MOST + CRL_RECORD_STEP_MS);
}

/* The record after a change must be valid, and its lease or verdict must not end too far in the
 * future. */
static void apply(held *h, const corral_op *op, const corral_change *change, int64_t now) {
  corral_header header;
  if (change->action == CORRAL_ACTION_KEEP) return;
  uint8_t *next = NULL;
  size_t size = 0;
  if (change->action != CORRAL_ACTION_REMOVE) {
    MUST(change->front_len >= CORRAL_HEAD && change->front_len <= CORRAL_FRONT &&
         change->expires > now);
    MUST(change->action != CORRAL_ACTION_EDIT || change->body_len <= h->size - CORRAL_HEAD);
    size = change->front_len + change->body_len;
    next = malloc(size);
    if (next == NULL) abort();
    crl_record_join(change,
                    change->action == CORRAL_ACTION_EDIT ? h->record + CORRAL_HEAD : change->body,
                    next);
    MUST(crl_record_read_whole(next, size, &header) == CORRAL_OK);
    MUST(header.until == 0 || header.until - now <= CRL_RECORD_VERDICT_MOST + CRL_RECORD_STEP_MS);
    if (op->verb == CORRAL_VERB_CLAIM && op->status == CORRAL_OK)
      MUST(header.state == CORRAL_LEASED && memcmp(header.token, op->token, CORRAL_TOKEN) == 0 &&
           header.until > now);
  }
  free(h->record);
  *h = (held){next, size};
}

static void decide(held *h, corral_op *op, int64_t now) {
  corral_change change;
  uint8_t front[CORRAL_FRONT];
  size_t len = h->record != NULL ? crl_record_front(h->record, h->size, front) : 0;
  MUST(len <= CORRAL_FRONT);
  crl_record_decide(op, h->record != NULL ? front : NULL, len, now, &change);
  check_times(op);
  apply(h, op, &change, now);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint8_t flags = fuzz_byte(&in), tokens[OPS][CORRAL_TOKEN], front[CORRAL_FRONT];
  int64_t now = 1 + (int64_t)fuzz_number(&in, 6);
  corral_header wish = {
      .note = "wish", .cost_ms = 7, .code = 3, .failures = 2, .state = CORRAL_VERDICT};
  size_t front_len = crl_record_write(&wish, front), count = 1 + (flags >> 2) % OPS;
  corral_op ops[OPS];
  uint8_t body[CORRAL_FRONT + 8] = {0};
  corral_header settled = {.body = 8, .stamp = 1};
  (void)crl_record_write(&settled, body);
  for (size_t i = 0; i < count; i++)
    ops[i] = make_op(&in, tokens[i], front, front_len, body, CORRAL_HEAD + 8);
  held h = {0};
  uint8_t *record = fuzz_bytes(&in, RECORD_MOST, &h.size);
  if (flags & 1) make_right(record, h.size);
  check_reading(record, h.size);
  if (flags & 2)
    h.record = record;
  else
    free(record);
  for (size_t i = 0; i < count; i++) decide(&h, &ops[i], now);
  free(h.record);
  return 0;
}
