/* change.c: the public calls that change what is stored: invalidate, expire, set. */
#include "os/env.h"
#include "record/fill.h"
#include "api/handle.h"
#include "tags/tag_versions.h"
#include "store/put.h"
#include "base/status.h"

/* Drops the fill and the verdict of the key that this process holds. An invalidation that did not
 * reach the store is held, to be replayed when the store is back. */
static void void_held(crl_context *context, const corral_op *op, const crl_name *name) {
  int away = op->status == CORRAL_EUNAVAILABLE || op->status == CORRAL_EINDOUBT;
  int64_t now = crl_env_now_ms();
  crl_outbox_drop(context->verdicts, op->key, op->key_len);
  if (op->verb == CORRAL_VERB_INVALIDATE && op->status == CORRAL_OK)
    crl_outbox_invalidated(context->outbox, op->key, op->key_len, now);
  else
    crl_outbox_drop_fill(context->outbox, op->key, op->key_len);
  if (!away || op->verb != CORRAL_VERB_INVALIDATE) return;
  crl_outbox_invalidate(context->outbox, op->key, op->key_len, NULL, now);
  crl_event_emit(&context->events, CORRAL_EVENT_OUTBOX, name->key, name->key_len, NULL);
}

static void forget_near(crl_context *context, const crl_key *key) {
  if (context->near != NULL) crl_near_drop(context->near, crl_key_hash(key));
}

static int run_verb(corral *c, corral_verb verb, const crl_name *name, corral_error *error) {
  crl_key key;
  corral_error detail = {0};
  crl_context *context;
  int status = crl_handle_key(c, name->key, name->key_len, &context, error);
  if (status == CORRAL_OK && crl_key_make(&key, CRL_KEY_VALUE, &context->space, name) != CORRAL_OK)
    status = crl_status_plain(error, CORRAL_ENOMEM);
  if (status != CORRAL_OK) return status;
  corral_op op = {.verb = verb, .key = key.stored, .key_len = key.stored_len, .error = &detail};
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  void_held(context, &op, name);
  forget_near(context, &key);
  /* Done after the store operation: a flight that begins between the two reads the store as it is
   * now. */
  crl_herd_detach_key(context->herd, name);
  crl_key_clean(&key);
  return op.status == CORRAL_OK ? CORRAL_OK : crl_put_say(&op, error);
}

int corral_invalidate(corral *c, const void *key, size_t key_len, corral_error *error) {
  return run_verb(c, CORRAL_VERB_INVALIDATE, &(crl_name){.key = key, .key_len = key_len}, error);
}

int corral_invalidate_variant(corral *c, const void *key, size_t key_len, const void *variant,
                              size_t variant_len, corral_error *error) {
  int status = crl_policy_variant(variant, variant_len, error);
  if (status != CORRAL_OK) return status;
  return run_verb(
      c, CORRAL_VERB_INVALIDATE,
      &(crl_name){.key = key, .key_len = key_len, .variant = variant, .variant_len = variant_len},
      error);
}

int corral_expire(corral *c, const void *key, size_t key_len, corral_error *error) {
  return run_verb(c, CORRAL_VERB_EXPIRE, &(crl_name){.key = key, .key_len = key_len}, error);
}

/* A flight's tags are unknown until its compute ends, so from now on no caller joins any flight
 * that is under way. */
static int change_tag(corral *c, const void *tag, size_t len, int only_expire,
                      corral_error *error) {
  crl_context *context;
  int status = crl_handle_values(c, &context, error);
  if (status != CORRAL_OK) return status;
  status = crl_tag_versions_change(context, tag, len, only_expire, error);
  crl_replay_void(&context->offer, tag, len);
  crl_herd_detach_all(context->herd);
  return status;
}

static int check_tag(const void *tag, size_t len, corral_error *error) {
  if (tag != NULL && len >= 1 && len <= CRL_TAG_MOST) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL, "the tag has %zu bytes; accepted: 1 to %d",
                         tag == NULL ? 0 : len, CRL_TAG_MOST);
}

int corral_invalidate_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 0, error) : status;
}

int corral_expire_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 1, error) : status;
}

static int change_all(corral *c, int only_expire, corral_error *error) {
  crl_context *context;
  int status = crl_handle_values(c, &context, error);
  if (status != CORRAL_OK) return status;
  if (!context->generation)
    return crl_status_fail(
        error, CORRAL_EUNSUPPORTED,
        "not without the option generation = 1, here and in all who share this namespace");
  return change_tag(c, "", 0, only_expire, error);
}

int corral_invalidate_all(corral *c, corral_error *error) { return change_all(c, 0, error); }
int corral_expire_all(corral *c, corral_error *error) { return change_all(c, 1, error); }

/* Where values carry the tag of the whole namespace: adds it, in the version read before the value
 * is stored. */
static int tag_of_all(crl_context *context, corral_fill *fill, corral_error *error) {
  crl_tag_versions none = {0};
  if (!context->generation) return CORRAL_OK;
  if (!crl_fill_tag_of_all(fill)) return crl_status_plain(error, CORRAL_ENOMEM);
  return crl_tag_versions_stamp(context, fill->tags, &none, CRL_SINCE_NOW, error);
}

static int set_fill(crl_context *context, const crl_key *key, const corral_policy *policy,
                    corral_fill *fill, corral_error *error) {
  crl_finish finish = {
      .policy = policy, .wall_ms = crl_env_wall_ms(), .compress_min = context->compress_min};
  crl_product product;
  int status = tag_of_all(context, fill, error);
  if (status != CORRAL_OK) return status;
  crl_env_random(&finish.dice, sizeof finish.dice);
  if (crl_fill_finish(fill, &finish, &product) == CRL_MADE_FAILURE)
    return crl_status_plain(error, CORRAL_ENOMEM);
  crl_put put = {.key = key->stored,
                 .key_len = key->stored_len,
                 .record = product.record->data,
                 .record_len = product.record->size,
                 .hard_ttl = product.hard_ttl,
                 .lease_ms = policy->lease_ms,
                 .op_ms = context->op_ms};
  status = crl_put_record(context->pool, &put, crl_env_now_ms() + policy->wait_ms, error);
  crl_product_clean(&product);
  if (status == CORRAL_OK)
    crl_outbox_invalidated(context->outbox, key->stored, key->stored_len, crl_env_now_ms());
  else
    crl_outbox_drop_fill(context->outbox, key->stored, key->stored_len);
  forget_near(context, key);
  return status;
}

int corral_set(corral *c, const void *user_key, size_t key_len, const corral_policy *policy,
               const void *data, size_t size) {
  crl_call call;
  crl_key key;
  crl_context *context;
  corral_error *error = crl_handle_error(policy);
  int status = crl_handle_call(c, user_key, key_len, policy, &context, &call);
  if (status != CORRAL_OK) return status;
  crl_name name = crl_call_name(&call, user_key, key_len);
  if (data == NULL && size > 0) return crl_status_fail(error, CORRAL_EINVAL, "corral_set: no data");
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &name) != CORRAL_OK)
    return crl_status_plain(error, CORRAL_ENOMEM);
  corral_fill fill = {.key = key.whole,
                      .key_len = key.whole_len,
                      .digest = crl_key_digest(&key),
                      .max_value = context->max_value};
  status = corral_fill_bytes(&fill, data, size);
  if (status != CORRAL_OK)
    crl_status_plain(error, status);
  else
    status = set_fill(context, &key, &call.policy, &fill, error);
  if (status == CORRAL_OK) crl_herd_detach_key(context->herd, &name);
  crl_fill_clean(&fill);
  crl_key_clean(&key);
  return status;
}
