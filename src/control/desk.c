/* desk.c: the control record of a namespace: an ordinary record, whose payload is an order
 * (record/order.h).
 *
 * It is replaced under its lease, which is taken over from whoever has it: the last order wins, and
 * keeps the number of the last drop. NORMAL is a record, too: a drop that came before it is still
 * heard of. */
#include "control/desk.h"

#include <stdlib.h>

#include "base/status.h"
#include "os/env.h"
#include "record/envelope.h"
#include "store/put.h"

enum { LEASE_MS = 1000, TRIES = 20, NORMAL_MS = 60000 };

int crl_desk_key(const crl_context *context, crl_key *key) {
  return crl_key_make(key, CRL_KEY_CONTROL, &context->space, &(crl_name){.key = ""});
}

/* ---- reading ------------------------------------------------------------------------------- */

static void read_found(const corral_op *op, crl_key *key, crl_desk_found *ret) {
  crl_envelope envelope;
  const corral_found *found = &op->found;
  if (found->record == NULL || op->state.life_ms == 0 ||
      crl_envelope_read(found->record, found->len, crl_key_digest(key), &envelope) != CORRAL_OK)
    return;
  if (envelope.kind != CRL_KIND_VALUE || envelope.encoding != CRL_ENCODING_PLAIN ||
      !crl_order_read(found->record + envelope.payload_at, envelope.payload_len, &ret->order))
    return;
  crl_lives lives = crl_envelope_judge(&envelope, 0, op->state.life_ms, crl_env_wall_ms());
  ret->left_ms = lives.fresh < CORRAL_CONTROL_FOR_MOST ? lives.fresh : CORRAL_CONTROL_FOR_MOST;
  if (ret->left_ms <= 0) *ret = (crl_desk_found){.left_ms = 0};
}

static void take_found(corral_op *op, crl_key *key, crl_desk_found *ret) {
  *ret = (crl_desk_found){.left_ms = 0};
  read_found(op, key, ret);
  ret->print = crl_watch_print(op->found.record, op->found.len);
  if (op->found.drop != NULL) op->found.drop(op->found.owner);
  op->found = (corral_found){.record = NULL};
}

int crl_desk_look(crl_context *context, crl_key *key, int64_t deadline, crl_desk_found *ret,
                  corral_error *error) {
  corral_error detail = {0};
  corral_op op = {
      .verb = CORRAL_VERB_GET, .key = key->stored, .key_len = key->stored_len, .error = &detail};
  crl_pool_perform(context->pool, &op, 1, deadline);
  take_found(&op, key, ret);
  int is_known = op.status == CORRAL_OK || op.status == CORRAL_EMISS ||
                 op.status == CORRAL_EFOREIGN || op.status == CORRAL_ENEWER;
  return is_known ? CORRAL_OK : crl_put_say(&op, error);
}

/* ---- giving -------------------------------------------------------------------------------- */

/* malloc'ed; NULL without memory. */
static uint8_t *write_record(crl_key *key, const crl_order *order, int64_t life_ms, size_t *size) {
  crl_envelope envelope = {.kind = CRL_KIND_VALUE,
                           .ttl_ms = life_ms,
                           .created_ms = crl_env_wall_ms(),
                           .digest = crl_key_digest(key),
                           .payload_len = CRL_ORDER_BYTES,
                           .plain_len = CRL_ORDER_BYTES};
  *size = crl_envelope_size(&envelope);
  uint8_t *record = crl_alloc(*size);
  if (record == NULL) return NULL;
  crl_order_write(order, record + CRL_PAYLOAD_AT);
  crl_envelope_write(&envelope, record);
  return record;
}

/* Of the record that says that no order is in force: a drop before it is heard of for as long as it
 * would have been. */
static int64_t life_of_normal(const crl_desk_found *found) {
  return found->order.dropped != 0 && found->left_ms > NORMAL_MS ? found->left_ms : NORMAL_MS;
}

/* The order that follows what was found; its life in ms. */
static int64_t next_of(const crl_desk_found *found, corral_control verb, int64_t number,
                       int64_t for_ms, crl_order *order) {
  *order = found->order;
  if (verb == CORRAL_CONTROL_DROP_NEAR) {
    if (crl_env_random(&order->dropped, sizeof order->dropped) != CORRAL_OK) return 0;
    if (order->dropped == 0) order->dropped = 1;
    return order->verb == CORRAL_CONTROL_NORMAL ? for_ms : found->left_ms;
  }
  order->verb = verb;
  order->number = number;
  return verb == CORRAL_CONTROL_NORMAL ? life_of_normal(found) : for_ms;
}

static int settle(crl_context *context, crl_key *key, const uint8_t *token, const crl_order *order,
                  int64_t life_ms, corral_error *error) {
  size_t size = 0;
  corral_error detail = {0};
  uint8_t *record = life_ms > 0 ? write_record(key, order, life_ms, &size) : NULL;
  corral_op op = {.verb = record == NULL ? CORRAL_VERB_RELEASE : CORRAL_VERB_SETTLE,
                  .key = key->stored,
                  .key_len = key->stored_len,
                  .token = token,
                  .error = &detail};
  if (record != NULL) {
    op.settle = (corral_settle_args){.record = record, .record_len = size, .ttl_ms = life_ms};
    op.flags = CORRAL_OP_CONFIRM;
  }
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  free(record);
  return record == NULL ? crl_status_plain(error, CORRAL_ENOMEM) : crl_put_say(&op, error);
}

/* Copies the token of the lease in the way; 0: there is none. */
static int token_in_the_way(const corral_op *claim, uint8_t token[CORRAL_TOKEN]) {
  corral_header header;
  if (claim->found.record == NULL || crl_record_read_found(claim, &header) != CORRAL_OK ||
      header.state != CORRAL_LEASED)
    return 0;
  memcpy(token, header.token, CORRAL_TOKEN);
  return 1;
}

/* One try; CORRAL_EBUSY, CORRAL_ELOST: to be repeated. *has_over: `over` is the token of a lease to
 * take over. */
static int try_once(crl_context *context, crl_key *key, corral_control verb, int64_t number,
                    int64_t for_ms, uint8_t over[CORRAL_TOKEN], int *has_over,
                    corral_error *error) {
  uint8_t wish[CORRAL_FRONT], token[CORRAL_TOKEN];
  crl_desk_found found;
  crl_order order;
  corral_error detail = {0};
  if (crl_env_random(token, sizeof token) != CORRAL_OK) return crl_status_plain(error, CORRAL_EIO);
  corral_op op = {.verb = CORRAL_VERB_CLAIM,
                  .key = key->stored,
                  .key_len = key->stored_len,
                  .token = token,
                  .error = &detail,
                  .claim = {.lease_ms = LEASE_MS,
                            .front = wish,
                            .front_len = crl_put_wish(crl_key_digest(key), 0, wish),
                            .over = *has_over ? over : NULL}};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  *has_over = op.status == CORRAL_EBUSY && token_in_the_way(&op, over);
  take_found(&op, key, &found);
  if (op.status != CORRAL_OK) return crl_put_say(&op, error);
  int64_t life_ms = next_of(&found, verb, number, for_ms, &order);
  return settle(context, key, token, &order, life_ms, error);
}

int crl_desk_give(crl_context *context, corral_control verb, int64_t number, int64_t for_ms,
                  corral_error *error) {
  crl_key key;
  uint8_t over[CORRAL_TOKEN];
  int has_over = 0, status = CORRAL_EBUSY;
  if (crl_desk_key(context, &key) != CORRAL_OK) return crl_status_plain(error, CORRAL_ENOMEM);
  for (int i = 0; i < TRIES && (status == CORRAL_EBUSY || status == CORRAL_ELOST); i++)
    status = try_once(context, &key, verb, number, for_ms, over, &has_over, error);
  crl_key_clean(&key);
  return status;
}
