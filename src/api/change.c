/* change.c: the public calls that change what is stored: invalidate, expire, set. */
#include <corral/page.h>

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
  if (crl_op_is_unheard(op))
    crl_pool_doubt(context->pool, crl_pool_route(context->pool, op->key, op->key_len));
}

static void forget_near(crl_context *context, const crl_key *key) {
  if (context->near != NULL) crl_near_drop(context->near, crl_key_hash(key));
}

static int run_verb(corral *c, corral_verb verb, const void *user_key, size_t key_len,
                    const corral_call *user) {
  crl_key key;
  crl_call call;
  corral_policy policy;
  corral_error detail = {0};
  crl_context *context;
  int status = crl_handle_call(c, user_key, key_len, user, &policy, &context, &call);
  if (status != CORRAL_OK) return status;
  crl_name name = crl_call_name(&call, user_key, key_len);
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &name) != CORRAL_OK)
    return crl_status_plain(call.error, CORRAL_ENOMEM);
  corral_op op = {.verb = verb, .key = key.stored, .key_len = key.stored_len, .error = &detail};
  if (verb == CORRAL_VERB_INVALIDATE) op.flags = CORRAL_OP_CONFIRM;
  crl_pool_perform(context->pool, &op, 1, crl_env_now_ms() + context->op_ms);
  void_held(context, &op, &name);
  if (op.status == CORRAL_OK && verb == CORRAL_VERB_INVALIDATE && !context->looks_first)
    crl_marks_set(&context->gone, crl_key_hash(&key));
  forget_near(context, &key);
  /* Done after the store operation: a flight that begins between the two reads the store as it is
   * now. */
  crl_herd_detach_key(context->herd, &name);
  crl_key_clean(&key);
  return op.status == CORRAL_OK ? CORRAL_OK : crl_put_say(&op, call.error);
}

int corral_invalidate(corral *c, const void *key, size_t key_len, const corral_call *user) {
  return run_verb(c, CORRAL_VERB_INVALIDATE, key, key_len, user);
}

int corral_expire(corral *c, const void *key, size_t key_len, const corral_call *user) {
  return run_verb(c, CORRAL_VERB_EXPIRE, key, key_len, user);
}

/* A flight's tags are unknown until its compute ends, so from now on no caller joins any flight
 * that is under way. */
static int change_tag(corral *c, const void *tag, size_t len, int only_expire,
                      corral_error *error) {
  crl_context *context;
  int status = crl_handle_values(c, &context, error);
  if (status != CORRAL_OK) return status;
  status = crl_tag_versions_change(context, tag, len, only_expire, error);
  crl_replay_void(&context->replay, tag, len);
  crl_herd_detach_all(context->herd);
  return status;
}

static int check_tag(const void *tag, size_t len, corral_error *error) {
  if (tag != NULL && len >= 1 && len <= CORRAL_TAG_MAX) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EINVAL, "the tag has %zu bytes; accepted: 1 to %d",
                         tag == NULL ? 0 : len, CORRAL_TAG_MAX);
}

int corral_invalidate_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 0, error) : status;
}

int corral_expire_tag(corral *c, const void *tag, size_t len, corral_error *error) {
  int status = check_tag(tag, len, error);
  return status == CORRAL_OK ? change_tag(c, tag, len, 1, error) : status;
}

/* The variants are found by their tag: they may be there without the key itself. */
static int change_page(corral *c, const void *key, size_t key_len, const corral_call *user,
                       corral_verb verb) {
  unsigned char tag[CORRAL_TAG_MAX];
  int status = run_verb(c, verb, key, key_len, user);
  if (status != CORRAL_OK) return status;
  size_t len = corral_page_tag(CORRAL_PAGE_OF_KEY, key, key_len, tag);
  return change_tag(c, tag, len, verb == CORRAL_VERB_EXPIRE, crl_handle_error(user));
}

int corral_page_invalidate(corral *c, const void *key, size_t key_len, const corral_call *user) {
  return change_page(c, key, key_len, user, CORRAL_VERB_INVALIDATE);
}

int corral_page_expire(corral *c, const void *key, size_t key_len, const corral_call *user) {
  return change_page(c, key, key_len, user, CORRAL_VERB_EXPIRE);
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

/* ---- set ----------------------------------------------------------------------------------- */

/* Gives the fill what a compute would set besides the bytes. */
static int fill_about(corral_fill *fill, const corral_call *set) {
  int status = CORRAL_OK;
  if (set->tag_count > CORRAL_TAGS_MAX)
    return crl_status_fail(set->error, CORRAL_ETOOBIG, "%zu tags; accepted: at most %d",
                           set->tag_count, CORRAL_TAGS_MAX);
  if ((set->tags == NULL && set->tag_count > 0) ||
      (set->validator == NULL && set->validator_len > 0))
    return crl_status_fail(set->error, CORRAL_EINVAL, "corral_set: %s is NULL, with a length",
                           set->tag_count > 0 && set->tags == NULL ? "tags" : "validator");
  corral_fill_version(fill, set->version);
  for (size_t i = 0; i < set->tag_count && status == CORRAL_OK; i++) {
    status = check_tag(set->tags[i].name, set->tags[i].len, set->error);
    if (status != CORRAL_OK) return status;
    status = corral_fill_tag(fill, set->tags[i].name, set->tags[i].len);
  }
  if (status == CORRAL_OK && set->validator != NULL)
    status = corral_fill_validator(fill, set->validator, set->validator_len);
  return status == CORRAL_OK ? status : crl_status_plain(set->error, status);
}

/* Sets the versions that the value's tags have before it is stored; one of them is that of the
 * whole namespace, where values carry it. */
static int stamp(crl_context *context, corral_fill *fill, corral_error *error) {
  crl_tag_versions none = {0};
  if (context->generation && !crl_fill_tag_of_all(fill))
    return crl_status_plain(error, CORRAL_ENOMEM);
  if (fill->tags == NULL) return CORRAL_OK;
  return crl_tag_versions_stamp(context, fill->tags, &none, CRL_SINCE_NOW, error);
}

static int put_product(crl_context *context, const crl_key *key, const crl_call *call,
                       uint64_t version, const crl_product *product) {
  crl_put put = {.key = key->stored,
                 .key_len = key->stored_len,
                 .record = product->record->data,
                 .record_len = product->record->size,
                 .hard_ttl = product->hard_ttl,
                 .lease_ms = call->policy->lease_ms,
                 .op_ms = context->op_ms,
                 .version = version};
  return crl_put_record(context->pool, &put, crl_env_now_ms() + call->policy->wait_ms, call->error);
}

static int set_fill(crl_context *context, const crl_key *key, const crl_call *call,
                    corral_fill *fill) {
  crl_finish finish = {
      .policy = call->policy, .wall_ms = crl_env_wall_ms(), .compress_min = context->compress_min};
  crl_product product;
  int status = stamp(context, fill, call->error);
  if (status != CORRAL_OK) return status;
  crl_env_random(&finish.dice, sizeof finish.dice);
  if (crl_fill_finish(fill, &finish, &product) == CRL_MADE_FAILURE)
    return crl_status_plain(call->error, CORRAL_ENOMEM);
  status = put_product(context, key, call, fill->version, &product);
  crl_product_clean(&product);
  if (status == CORRAL_EOLDER) return status;
  if (status == CORRAL_OK) crl_marks_clear(&context->gone, crl_key_hash(key));
  if (status == CORRAL_OK)
    crl_outbox_invalidated(context->outbox, key->stored, key->stored_len, crl_env_now_ms());
  else
    crl_outbox_drop_fill(context->outbox, key->stored, key->stored_len);
  forget_near(context, key);
  return status;
}

static int set_value(crl_context *context, const crl_call *call, const crl_name *name,
                     const corral_call *set, const void *data, size_t size) {
  crl_key key;
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, name) != CORRAL_OK)
    return crl_status_plain(call->error, CORRAL_ENOMEM);
  corral_fill fill = {.key = key.whole,
                      .key_len = key.whole_len,
                      .digest = crl_key_digest(&key),
                      .max_value = context->max_value};
  int status = corral_fill_bytes(&fill, data, size);
  if (status != CORRAL_OK)
    crl_status_plain(call->error, status);
  else
    status = fill_about(&fill, set);
  if (status == CORRAL_OK) status = set_fill(context, &key, call, &fill);
  if (status == CORRAL_OK) crl_herd_detach_key(context->herd, name);
  crl_fill_clean(&fill);
  crl_key_clean(&key);
  return status;
}

int corral_set(corral *c, const void *key, size_t key_len, const corral_call *user,
               const void *data, size_t size) {
  crl_call call;
  corral_policy policy;
  corral_call set = {0};
  crl_context *context;
  corral_error *error = crl_handle_error(user);
  int status = crl_handle_key(c, key, key_len, &context, error);
  if (status == CORRAL_OK) status = crl_handle_user(user, context, &policy, &call, &set);
  if (status != CORRAL_OK) return status;
  if (data == NULL && size > 0) return crl_status_fail(error, CORRAL_EINVAL, "corral_set: no data");
  crl_name name = crl_call_name(&call, key, key_len);
  return set_value(context, &call, &name, &set, data, size);
}
