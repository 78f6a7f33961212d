/* put.c: stores a record whatever the key has, in one batch: INVALIDATE, CLAIM, SETTLE. Another
 * claim may come between: then the batch is repeated, until the deadline. A record that is replaced
 * without a gap isn't invalidated; the lease is taken over from its holder. With a version, SETTLE
 * follows when CLAIM has shown that the stored value has no later one. */
#include "store/put.h"

#include "os/env.h"
#include "record/envelope.h"
#include "record/record.h"
#include "base/status.h"

enum {
  EAGER = 3, /* failures after which a pause comes before the next try */
  PAUSE_US = 500,
  /* bytes per ms: the lease lasts long enough to send the record, since the renewer doesn't extend
   * it */
  LEASED_A_MS = 10000
};

int crl_put_say(const corral_op *op, corral_error *error) {
  if (op->status == CORRAL_OK || op->error == NULL || op->error->text[0] == '\0')
    return crl_status_plain(error, op->status);
  return crl_status_fail(error, op->status, "%s", op->error->text);
}

size_t crl_put_wish(const uint8_t *digest, uint32_t cost_ms, uint8_t front[CORRAL_FRONT]) {
  corral_header wish;
  memset(&wish, 0, sizeof wish);
  wish.state = CORRAL_LEASED;
  wish.cost_ms = cost_ms;
  memcpy(wish.digest, digest, CORRAL_DIGEST);
  (void)crl_env_holder(wish.note, sizeof wish.note);
  return crl_record_write(&wish, front);
}

static void give_up(crl_pool *pool, const crl_put *put, const uint8_t *token) {
  corral_op op = {
      .verb = CORRAL_VERB_RELEASE, .key = put->key, .key_len = put->key_len, .token = token};
  crl_pool_perform(pool, &op, 1, crl_env_now_ms() + put->op_ms);
}

/* The token of the lease that a claim found in its way; NULL: none. */
static const uint8_t *token_in_the_way(const corral_op *claim, uint8_t token[CORRAL_TOKEN]) {
  corral_header header;
  if (claim->status != CORRAL_EBUSY || claim->found.record == NULL ||
      crl_record_read_found(claim, &header) != CORRAL_OK)
    return NULL;
  if (header.state != CORRAL_LEASED) return NULL;
  memcpy(token, header.token, CORRAL_TOKEN);
  return token;
}

/* True when the record that the claim found has a value, of a later version. Tags don't matter: a
 * value that they void was as late. */
static int is_older(const crl_put *put, const corral_op *claim) {
  crl_envelope envelope;
  return claim->found.record != NULL && claim->state.life_ms != 0 &&
         crl_envelope_read(claim->found.record, claim->found.len, crl_record_digest(put->record),
                           &envelope) == CORRAL_OK &&
         envelope.version > put->version;
}

static void drop_found(corral_op *op) {
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found.drop = NULL;
}

/* Performs CLAIM, and SETTLE unless the record that it found has a later version: then ops[1] has
 * CORRAL_EOLDER. */
static void perform_in_order(crl_pool *pool, const crl_put *put, corral_op ops[2],
                             int64_t deadline) {
  crl_pool_perform(pool, ops, 1, deadline);
  if (ops[0].status == CORRAL_OK && !is_older(put, &ops[0])) {
    crl_pool_perform(pool, ops + 1, 1, deadline);
    return;
  }
  ops[1].status = ops[0].status == CORRAL_OK ? CORRAL_EOLDER : ops[0].status;
  ops[1].error = ops[0].error;
}

/* One try, with a fresh token. *over: token of the lease to take over, NULL: none; set to that of
 * the lease in the way. */
static int try_once(crl_pool *pool, const crl_put *put, const uint8_t *token, const uint8_t **over,
                    uint8_t other[CORRAL_TOKEN], int64_t deadline, corral_error *error) {
  uint8_t wish[CORRAL_FRONT];
  corral_error details[3] = {0};
  corral_op ops[3];
  for (size_t i = 0; i < 3; i++)
    ops[i] =
        (corral_op){.key = put->key, .key_len = put->key_len, .token = token, .error = &details[i]};
  ops[0].verb = CORRAL_VERB_INVALIDATE;
  ops[1].verb = CORRAL_VERB_CLAIM;
  ops[1].claim =
      (corral_claim_args){.lease_ms = put->lease_ms + (int64_t)(put->record_len / LEASED_A_MS),
                          .front = wish,
                          .front_len = crl_put_wish(crl_record_digest(put->record), 0, wish),
                          .over = *over};
  ops[2].verb = CORRAL_VERB_SETTLE;
  ops[2].settle = (corral_settle_args){
      .record = put->record, .record_len = put->record_len, .ttl_ms = put->hard_ttl};
  if (put->unheard != NULL) ops[2].flags = CORRAL_OP_CONFIRM;
  int replaces = put->replaces || put->version != 0;
  if (replaces) ops[0].status = CORRAL_OK;
  if (!replaces) ops[1].flags = CORRAL_OP_ABSENT;
  if (put->version != 0)
    perform_in_order(pool, put, ops + 1, deadline);
  else
    crl_pool_perform(pool, replaces ? ops + 1 : ops, replaces ? 2 : 3, deadline);
  if (put->unheard != NULL) *put->unheard = crl_op_is_unheard(&ops[2]);
  *over = replaces ? token_in_the_way(&ops[1], other) : NULL;
  drop_found(&ops[1]);
  int status = ops[0].status != CORRAL_OK   ? crl_put_say(&ops[0], error)
               : ops[2].status != CORRAL_OK ? crl_put_say(&ops[2], error)
                                            : CORRAL_OK;
  if (status != CORRAL_OK && ops[1].status == CORRAL_OK) give_up(pool, put, token);
  return status;
}

/* Time for others to finish: none after the first failures, then longer and longer. */
static void let_others_pass(int failures) {
  int64_t most = failures < EAGER ? 0 : PAUSE_US << (failures - EAGER < 5 ? failures - EAGER : 5);
  if (most > 0) crl_env_pause_us((int64_t)(crl_env_dice() % (uint64_t)most));
}

int crl_put_record(crl_pool *pool, const crl_put *put, int64_t deadline, corral_error *error) {
  uint8_t token[CORRAL_TOKEN], other[CORRAL_TOKEN];
  const uint8_t *over = NULL;
  for (int failures = 1;; failures++) {
    if (crl_env_random(token, sizeof token) != CORRAL_OK)
      return crl_status_fail(error, CORRAL_EIO, "no randomness from the kernel");
    int status = try_once(pool, put, token, &over, other, deadline, error);
    if ((status != CORRAL_EBUSY && status != CORRAL_ELOST) || crl_env_now_ms() >= deadline)
      return status;
    let_others_pass(failures);
  }
}
