/* near_copy.c: the near tier: answers from copies of this process, and copies of the records
 * found. */
#include "os/env.h"
#include "run/run.h"
#include "base/status.h"

#include <stdlib.h>

static int is_current(const crl_context *context, const crl_near_copy *copy, int64_t near_ms,
                      int64_t now) {
  return copy->looked + near_ms > now && crl_context_hears_of(context, copy) &&
         copy->fresh_until > now;
}

static int tags_stand(crl_context *context, const crl_near_copy *copy, int64_t near_ms) {
  const crl_bytes *metadata = copy->metadata;
  crl_tag_versions_source source = {.near_ms = near_ms};
  return crl_tag_versions_standing(context, metadata == NULL ? NULL : metadata->data,
                                   metadata == NULL ? 0 : metadata->size, &source) == CRL_STANDS;
}

/* Takes over the copy's bytes. */
static void fill_outcome(crl_near_copy *copy, int64_t now, crl_outcome *outcome) {
  memset(outcome, 0, offsetof(crl_outcome, error));
  outcome->how = CORRAL_FRESH;
  outcome->age_ms = now - copy->made;
  outcome->version = copy->version;
  if (copy->kind == CRL_KIND_NEGATIVE) {
    outcome->status = crl_status_plain(&outcome->error, CORRAL_ENOTFOUND);
    return;
  }
  outcome->bytes = copy->bytes;
  copy->bytes = NULL;
  outcome->offset = copy->offset;
  outcome->size = copy->size;
}

static int answer(crl_join *join, const crl_key *key) {
  crl_near_copy copy;
  crl_context *context = join->context;
  const corral_policy *policy = &join->call->policy;
  int64_t now = crl_env_now_ms();
  uint64_t dice =
      atomic_fetch_add_explicit(&context->dice, UINT64_C(0xd1342543de82ef95), memory_order_relaxed);
  if (!crl_near_get(context->near, crl_key_hash(key), key->stored, key->stored_len, now, &copy))
    return 0;
  int answers = is_current(context, &copy, policy->near_ms, now) &&
                tags_stand(context, &copy, policy->near_ms);
  join->early = answers && crl_call_computes(join->call) &&
                crl_policy_early(policy, copy.ttl, copy.fresh_until - now, copy.cost_us,
                                 crl_policy_mix(dice));
  if (join->early) answers = 0;
  if (answers) fill_outcome(&copy, now, join->outcome);
  crl_near_copy_clean(&copy);
  return answers;
}

int crl_run_near(crl_join *join) {
  crl_key key;
  crl_context *context = join->context;
  if (context->near == NULL || join->call->policy.near_ms <= 0) return 0;
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &join->name) != CORRAL_OK) return 0;
  int answers = answer(join, &key);
  crl_key_clean(&key);
  return answers;
}

/* *ret: a copy of the found record's metadata; NULL if it has no tags. 0 without memory. */
static int take_metadata(const crl_run *r, crl_bytes **ret) {
  *ret = NULL;
  if (r->envelope.tag_count == 0) return 1;
  uint8_t *copy = crl_alloc(r->envelope.metadata_len);
  if (copy == NULL) return 0;
  memcpy(copy, r->found->data + r->envelope.metadata_at, r->envelope.metadata_len);
  *ret = crl_bytes_wrap(copy, r->envelope.metadata_len, free, copy);
  if (*ret == NULL) free(copy);
  return *ret != NULL;
}

void crl_run_keep_near(crl_run *r, const crl_look *look, uint64_t epoch, int64_t looked) {
  const crl_lives *lives = &look->lives;
  crl_near_copy copy = {.size = r->envelope.plain_len,
                        .kind = r->envelope.kind,
                        .looked = looked,
                        .made = looked - lives->age,
                        .ttl = look->ttl,
                        .fresh_until = looked + lives->fresh,
                        .swr_until = lives->swr > 0 ? looked + lives->swr : 0,
                        .sie_until = lives->sie > 0 ? looked + lives->sie : 0,
                        .cost_us = look->cost_us,
                        .version = r->envelope.version,
                        .print = crl_watch_print(r->found->data, r->found->size)};
  if (crl_run_plain(r, &copy.bytes, &copy.offset) != CORRAL_OK || !take_metadata(r, &copy.metadata))
    return;
  if (crl_near_put(r->context->near, r->hash, r->key.stored, r->key.stored_len, &copy, epoch))
    crl_context_watch_copy(r->context, r->key.stored, r->key.stored_len, r->hash);
  crl_bytes_unref(copy.metadata);
}

int crl_run_find_near(crl_run *r, crl_near_copy *copy) {
  int64_t now = crl_env_now_ms();
  if (r->context->near == NULL || r->policy.near_ms <= 0) return 0;
  if (!crl_near_get(r->context->near, r->hash, r->key.stored, r->key.stored_len, now, copy))
    return 0;
  if (tags_stand(r->context, copy, CRL_NEAR_ANY_AGE)) return 1;
  crl_near_copy_clean(copy);
  return 0;
}
