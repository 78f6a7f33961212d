/* inspect.c: the public calls that look at a stored record, and that name its stored key. */
#include "os/env.h"
#include "record/envelope.h"
#include "api/handle.h"
#include "tags/tag_versions.h"
#include "policy/policy.h"
#include "store/put.h"
#include "record/record.h"
#include "base/sized.h"
#include "base/status.h"

#include <string.h>

static void copy_note(char to[64], const char from[CORRAL_NOTE]) {
  memcpy(to, from, CORRAL_NOTE);
  to[CORRAL_NOTE - 1] = '\0';
}

/* The store's time now is the lease's end less what is left of it; -1: unknown. */
static int64_t held_of(const corral_header *header, int64_t left_ms) {
  int64_t held = header->until - left_ms - header->since;
  return left_ms < 0 || header->since <= 0 || held < 0 ? -1 : held;
}

static void inspect_header(const corral_header *header, const corral_op *op,
                           corral_inspection *ret) {
  ret->failures = header->failures;
  if (header->state == CORRAL_LEASED && op->state.left_ms != 0) {
    ret->lease_left_ms = op->state.left_ms;
    ret->lease_held_ms = held_of(header, op->state.left_ms);
    copy_note(ret->holder, header->note);
  } else if (header->state == CORRAL_VERDICT && op->state.left_ms != 0) {
    ret->retry_left_ms = op->state.left_ms;
    ret->failure_code = header->code;
    copy_note(ret->failure, header->note);
  }
}

static void inspect_envelope(const crl_envelope *envelope, int expired, const corral_op *op,
                             corral_inspection *ret) {
  crl_lives lives = crl_envelope_judge(envelope, expired, op->state.life_ms, crl_env_wall_ms());
  ret->value_size = envelope->plain_len;
  ret->age_ms = lives.age;
  ret->ttl_ms = envelope->ttl_ms;
  ret->swr_ms = envelope->swr_ms;
  ret->sie_ms = envelope->sie_ms;
  ret->left_ms = op->state.life_ms;
  ret->cost_ms = (int64_t)(envelope->cost_us / 1000);
  ret->created_ms = envelope->created_ms;
  ret->version = envelope->version;
  if (envelope->kind == CRL_KIND_NEGATIVE)
    ret->state = "negative";
  else if (envelope->kind == CRL_KIND_PASS)
    ret->state = "pass";
  else
    ret->state = lives.fresh > 0 ? "fresh" : lives.swr > 0 || lives.sie > 0 ? "stale" : "expired";
}

static int inspect_record(crl_context *context, crl_key *key, const corral_op *op,
                          corral_inspection *ret, corral_error *error) {
  corral_header header;
  crl_envelope envelope;
  int read = crl_record_read_whole(op->found.record, op->found.len, &header);
  if (read != CORRAL_OK) return crl_status_plain(error, read);
  ret->stored_size = op->found.len;
  inspect_header(&header, op, ret);
  int status = crl_envelope_read(op->found.record, op->found.len, crl_key_digest(key), &envelope);
  if (status == CORRAL_OK && op->state.life_ms != 0) {
    crl_tag_versions_source source = {.deadline = crl_env_now_ms() + context->op_ms};
    crl_standing standing =
        crl_tag_versions_standing(context, op->found.record + envelope.metadata_at,
                                  envelope.tag_count > 0 ? envelope.metadata_len : 0, &source);
    inspect_envelope(
        &envelope, (header.flags & CORRAL_FLAG_EXPIRED) || standing == CRL_STANDS_EXPIRED, op, ret);
    if (standing == CRL_STANDS_VOID) ret->state = "void";
  }
  return status == CORRAL_ECORRUPT ? crl_status_plain(error, status) : CORRAL_OK;
}

int corral_inspect(corral *c, const void *user_key, size_t key_len, const corral_call *user,
                   corral_inspection *ret) {
  crl_key key;
  crl_call call;
  corral_policy policy;
  corral_error detail = {0};
  corral_inspection found = {.state = "none", .age_ms = -1, .left_ms = -1};
  crl_context *context;
  int status = crl_handle_call(c, user_key, key_len, user, &policy, &context, &call);
  if (status != CORRAL_OK) return status;
  if (ret == NULL || ret->size < sizeof ret->size)
    return crl_status_fail(call.error, CORRAL_EINVAL, "corral_inspect: no ret, or no ret->size");
  crl_name name = crl_call_name(&call, user_key, key_len);
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &name) != CORRAL_OK)
    return crl_status_plain(call.error, CORRAL_ENOMEM);
  corral_op op = {
      .verb = CORRAL_VERB_GET, .key = key.stored, .key_len = key.stored_len, .error = &detail};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + call.policy->wait_ms);
  if (op.status == CORRAL_OK)
    status = inspect_record(context, &key, &op, &found, call.error);
  else if (op.status != CORRAL_EMISS)
    status = crl_put_say(&op, call.error);
  if (op.found.drop != NULL) op.found.drop(op.found.owner);
  crl_key_clean(&key);
  if (status == CORRAL_OK) crl_sized_write(ret, &found, sizeof found);
  return status;
}

/* The internal kind for a kind of corral.h. */
static crl_key_kind kind_of(corral_key_kind kind) {
  return kind == CORRAL_KEY_TAG    ? CRL_KEY_TAG
         : kind == CORRAL_KEY_LOCK ? CRL_KEY_LOCK
                                   : CRL_KEY_VALUE;
}

static int copy_key(const crl_key *key, void *room, size_t size, size_t *ret_len,
                    corral_error *error) {
  if (key->stored_len > size)
    return crl_status_fail(error, CORRAL_ETOOBIG, "the stored key has %zu bytes; room for %zu",
                           key->stored_len, size);
  memcpy(room, key->stored, key->stored_len);
  *ret_len = key->stored_len;
  return CORRAL_OK;
}

int corral_encode_key(corral *c, corral_key_kind kind, const void *user_key, size_t key_len,
                      const corral_call *user, void *room, size_t size, size_t *ret_len) {
  crl_call call;
  corral_policy policy;
  crl_key key;
  corral_error *error = crl_handle_error(user);
  crl_context *context;
  int status = crl_context_open(c, &context, error);
  if (status == CORRAL_OK) status = crl_handle_check_key(user_key, key_len, error);
  if (status == CORRAL_OK) status = crl_handle_user(user, context, &policy, &call, NULL);
  if (status != CORRAL_OK) return status;
  crl_name name = crl_call_name(&call, user_key, key_len);
  if ((unsigned)kind > CORRAL_KEY_LOCK || (kind != CORRAL_KEY_VALUE && name.variant_len > 0) ||
      room == NULL || ret_len == NULL)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "corral_encode_key: accepted: a value with or without a variant, a tag, "
                           "a lock; room and ret_len");
  if (crl_key_make(&key, kind_of(kind), &context->space, &name) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  status = copy_key(&key, room, size, ret_len, error);
  crl_key_clean(&key);
  return status;
}
