/* dialogue.c: batches of operations through a plugin's table. See dialogue.h.
 *
 * Input: one byte for the number of batches (1 to 3), one for the sizes of the batches (1 to 4);
 * then for each operation a byte for its verb, and one for flags, key and numbers. */
#include "dialogue.h"

#include "store/uri.h"
#include "../tests/support/op_kit.h"

enum { OPS = 4, BODY = 200, BATCHES = 3 };

int fuzz_dialogue_begin(fuzz_dialogue *d, const corral_store *plugin, const char *uri) {
  crl_uri parsed;
  memset(d, 0, sizeof *d);
  d->host = fuzz_wire_host();
  d->plugin = plugin;
  d->info = (corral_store_info){.size = sizeof d->info, .max_key = 65536, .servers = 1, .name = ""};
  MUST(crl_uri_parse(&parsed, uri, &d->error) == CORRAL_OK);
  MUST(plugin->open(d->host, &parsed.view, &d->store, &d->info, &d->error) == CORRAL_OK);
  crl_uri_free(&parsed);
  int status = plugin->connect(d->store, d->host->now_ms() + FUZZ_LIMIT_MS, &d->handle, &d->error);
  MUST_BE_PLAIN(d->error.text);
  MUST(status <= 0);
  return status == CORRAL_OK;
}

void fuzz_dialogue_end(fuzz_dialogue *d) {
  if (d->handle != NULL) d->plugin->disconnect(d->handle);
  d->plugin->close(d->store);
}

/* ---- a batch ------------------------------------------------------------------------------- */

static uint8_t record[CORRAL_FRONT + BODY];
static uint8_t token[CORRAL_TOKEN] = "0123456789abcde";

static corral_op make_op(fuzz_input *in, corral_error *error) {
  uint8_t verb = fuzz_byte(in), shape = fuzz_byte(in);
  corral_op op = {.verb = CORRAL_VERB_GET + verb % 12,
                  .key = shape & 1 ? "key" : "another key",
                  .token = token,
                  .error = error};
  op.key_len = strlen(op.key);
  op.status = CORRAL_EINDOUBT;
  op_lasts(&op, shape & 2 ? 2000 : 3600000);
  op_keeps(&op, shape & 4 ? 60000 : 0);
  op_notes(&op, "note");
  if (op.verb == CORRAL_VERB_CLAIM) op.claim.seen = shape & 8 ? 77 : 0;
  if (op.verb == CORRAL_VERB_LOCK) op.lock.wish_ms = shape & 4 ? 60000 : 0;
  if (op.verb == CORRAL_VERB_LOCK) op.lock.permits = shape & 8 ? 2 : 0;
  if (op.verb == CORRAL_VERB_LOCK_EXTEND) op.lock_extend.fence = shape & 8 ? 77 : 0;
  op.flags = shape >> 4 & (CORRAL_OP_WATCH | CORRAL_OP_SHARED | CORRAL_OP_REPAIR);
  if (op.verb == CORRAL_VERB_LOCK && shape & 32) op.flags |= CORRAL_OP_FAIR;
  if (op.verb != CORRAL_VERB_RELEASE || shape & 16)
    op_brings(&op, record, op.verb == CORRAL_VERB_SETTLE ? CORRAL_HEAD + BODY : CORRAL_HEAD);
  return op;
}

/* An operation's answer is never longer than the bytes sent by the server, plus a fixed room for a
 * record or lock record made by the plugin. */
static void check_op(corral_op *op, size_t most) {
  MUST(op->status <= 0 && op->status != CORRAL_EINVAL);
  if (op->verb >= CORRAL_VERB_LOCK)
    MUST(op->lock_state.left_ms >= -1);
  else
    MUST(op->state.life_ms >= -1 && op->state.left_ms >= -1);
  MUST(op->found.len <= most && (op->found.record != NULL || op->found.len == 0));
  if (op->error != NULL) MUST_BE_PLAIN(op->error->text);
  uint8_t sum = 0;
  for (size_t i = 0; i < op->found.len; i++) sum = (uint8_t)(sum + op->found.record[i]);
  (void)*(volatile uint8_t *)&sum;
  if (op->found.record != NULL && op->found.drop != NULL) op->found.drop(op->found.owner);
}

void fuzz_dialogue_perform(fuzz_dialogue *d, fuzz_input *in) {
  corral_header free_header = {.state = CORRAL_FREE, .body = BODY, .stamp = 1};
  size_t batches = 1 + fuzz_byte(in) % BATCHES;
  uint8_t counts = fuzz_byte(in);
  corral_op ops[BATCHES][OPS];
  corral_error errors[BATCHES][OPS] = {0};
  size_t count[BATCHES];
  (void)d->host->header_write(&free_header, record);
  for (size_t b = 0; b < batches; b++) {
    count[b] = 1 + (counts >> 2 * b & 3);
    for (size_t i = 0; i < count[b]; i++) ops[b][i] = make_op(in, &errors[b][i]);
  }
  size_t most = in->left + sizeof record + CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD;
  int status = CORRAL_OK;
  for (size_t b = 0; b < batches && status == CORRAL_OK; b++) {
    status = perform_ops(d->plugin, d->handle, ops[b], count[b], d->host->now_ms() + FUZZ_LIMIT_MS,
                         &d->error);
    MUST(status <= 0);
    MUST_BE_PLAIN(d->error.text);
    for (size_t i = 0; i < count[b]; i++) check_op(&ops[b][i], most);
  }
}
