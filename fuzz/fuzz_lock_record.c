/* fuzz_lock_record.c: records of users' locks with any content, and the changes that each verb
 * makes to them. */
#include "fuzz.h"

#include "record/lock_record.h"

/* After a change the record must be valid, with no more holds than allowed. */
static void check_change(const corral_lock_change *change, const uint8_t *room, size_t room_size,
                         int64_t now) {
  crl_lock_head head;
  corral_hold hold;
  if (change->action == CORRAL_ACTION_KEEP) return;
  MUST(change->action == CORRAL_ACTION_REPLACE && change->size <= room_size);
  MUST(crl_lock_record_read(room, change->size, &head) == CORRAL_OK);
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(room, i, &hold);
    MUST(hold.until > now);
  }
}

static void check_op(const corral_op *op) {
  switch (op->status) {
    case CORRAL_OK:
      MUST(op->verb == CORRAL_VERB_LOCK_SHOW || op->verb == CORRAL_VERB_UNLOCK ||
           op->lock_state.left_ms > 0);
      break;
    case CORRAL_EBUSY: MUST(op->verb == CORRAL_VERB_LOCK && op->lock_state.left_ms > 0); break;
    case CORRAL_ELOST: MUST(op->verb != CORRAL_VERB_LOCK && op->lock_state.left_ms >= 0); break;
    case CORRAL_EMISS: MUST(op->verb == CORRAL_VERB_LOCK_SHOW); break;
    case CORRAL_EFOREIGN: MUST(op->lock_state.left_ms == -1); break;
    default: MUST(op->status == CORRAL_EREFUSED);
  }
}

static void round_trip(const uint8_t *record, size_t size) {
  crl_lock_head head;
  if (crl_lock_record_read(record, size, &head) != CORRAL_OK) return;
  corral_hold *holds = calloc(head.count + 1, sizeof *holds);
  uint8_t *again = malloc(size);
  if (holds == NULL || again == NULL) abort();
  for (size_t i = 0; i < head.count; i++) crl_lock_record_hold(record, i, &holds[i]);
  crl_lock_record_write(head.fence, holds, head.count, again);
  crl_lock_head read;
  corral_hold hold;
  MUST(crl_lock_record_read(again, size, &read) == CORRAL_OK && read.count == head.count &&
       read.fence == head.fence);
  for (size_t i = 0; i < head.count; i++) {
    crl_lock_record_hold(again, i, &hold);
    MUST(hold.until == holds[i].until && hold.fence == holds[i].fence &&
         hold.mode == holds[i].mode);
    MUST(memcmp(hold.note, holds[i].note, sizeof hold.note) == 0);
  }
  free(holds);
  free(again);
}

static corral_op make_op(fuzz_input *in, uint8_t *token) {
  static const uint8_t from[CORRAL_TOKEN] = {0};
  memset(token, fuzz_byte(in), CORRAL_TOKEN);
  corral_op op = {.verb = CORRAL_VERB_LOCK + fuzz_byte(in) % 4, .token = token};
  uint8_t kind = fuzz_byte(in);
  uint32_t permits = kind >> 3;
  op.flags = (kind & CORRAL_OP_SHARED) | (kind & 1 ? CORRAL_OP_FAIR : 0u);
  int64_t hold_ms = 1 + (int64_t)fuzz_number(in, 4), wish_ms = (int64_t)fuzz_number(in, 4);
  uint64_t fence = fuzz_number(in, 7);
  size_t note_len = fuzz_byte(in) % 5;
  if (op.verb == CORRAL_VERB_LOCK)
    op.lock = (corral_lock_args){.hold_ms = hold_ms,
                                 .wish_ms = wish_ms,
                                 .note = "note",
                                 .note_len = note_len,
                                 .permits = permits};
  if (op.verb == CORRAL_VERB_LOCK_EXTEND)
    op.lock_extend = (corral_lock_extend_args){.hold_ms = hold_ms,
                                               .fence = fence,
                                               .from = note_len > 2 ? from : NULL,
                                               .note = "note",
                                               .note_len = note_len};
  return op;
}

/* Input: number of operations, `now`, `floor`, up to four operations, the record. Each operation
 * applies to the record that the one before left. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  enum { OPS = 4 };
  fuzz_input in = {data, size};
  uint8_t tokens[OPS][CORRAL_TOKEN] = {{0}};
  corral_op ops[OPS] = {0};
  size_t len, count = 1 + fuzz_byte(&in) % OPS;
  int64_t now = (int64_t)(fuzz_number(&in, 6) + 1);
  uint64_t floor = fuzz_number(&in, 7);
  for (size_t i = 0; i < count; i++) ops[i] = make_op(&in, tokens[i]);
  uint8_t *record = fuzz_bytes(&in, 1 << 20, &len);
  round_trip(record, len);
  uint8_t *now_there = len > 0 ? record : NULL;
  for (size_t i = 0; i < count; i++) {
    corral_lock_change change;
    size_t room_size = len + CORRAL_LOCK_HOLD + CORRAL_LOCK_HEAD;
    uint8_t *room = malloc(room_size);
    if (room == NULL) abort();
    crl_lock_record_decide(&ops[i], now_there, len, now, floor, room, &change);
    check_op(&ops[i]);
    check_change(&change, room, room_size, now);
    if (change.action == CORRAL_ACTION_REPLACE) {
      free(record);
      now_there = record = realloc(room, change.size);
      len = change.size;
    } else {
      free(room);
    }
  }
  free(record);
  return 0;
}
