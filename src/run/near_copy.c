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
  const corral_policy *policy = join->call->policy;
  int64_t now = crl_env_now_ms();
  if (!crl_near_get(context->near, crl_key_hash(key), key->stored, key->stored_len, now, &copy))
    return 0;
  uint64_t dice = crl_policy_rolls(policy) ? crl_env_dice() : 0;
  int answers = is_current(context, &copy, policy->near_ms, now) &&
                tags_stand(context, &copy, policy->near_ms);
  join->early = answers && crl_call_computes(join->call) &&
                crl_policy_early(policy, copy.ttl, copy.fresh_until - now, copy.cost_us, dice);
  if (join->early) answers = 0;
  if (answers) fill_outcome(&copy, now, join->outcome);
  crl_near_copy_clean(&copy);
  return answers;
}

static void tell(const crl_join *join) {
  const crl_outcome *outcome = join->outcome;
  if (join->context->events.hook == NULL) {
    crl_event_emit(&join->context->events, CORRAL_EVENT_NEAR, NULL, 0, NULL);
    return;
  }
  corral_event_info info = crl_event_info(CORRAL_EVENT_NEAR, join->name.key, join->name.key_len);
  info.status = outcome->status;
  if (outcome->status == CORRAL_OK) info.bytes = (int64_t)outcome->size;
  crl_event_tell(&join->context->events, &info);
}

int crl_run_near(crl_join *join) {
  crl_key key;
  crl_context *context = join->context;
  if (context->near == NULL || join->call->policy->near_ms <= 0) return 0;
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &join->name) != CORRAL_OK) return 0;
  int answers = answer(join, &key);
  crl_key_clean(&key);
  if (answers) tell(join);
  return answers;
}

/* *ret: a copy of the found record's metadata; NULL if it has no tags. 0 without memory. */
static int take_metadata(const crl_found *found, crl_bytes **ret) {
  *ret = NULL;
  if (found->envelope.tag_count == 0) return 1;
  uint8_t *copy = crl_alloc(found->envelope.metadata_len);
  if (copy == NULL) return 0;
  memcpy(copy, found->record->data + found->envelope.metadata_at, found->envelope.metadata_len);
  *ret = crl_bytes_wrap(copy, found->envelope.metadata_len, free, copy);
  if (*ret == NULL) free(copy);
  return *ret != NULL;
}

void crl_found_keep_near(crl_found *found, const crl_look *look, uint64_t epoch, int64_t looked) {
  const crl_lives *lives = &look->lives;
  crl_near_copy copy = {.size = found->envelope.plain_len,
                        .kind = found->envelope.kind,
                        .looked = looked,
                        .made = looked - lives->age,
                        .ttl = look->ttl,
                        .fresh_until = looked + lives->fresh,
                        .swr_until = lives->swr > 0 ? looked + lives->swr : 0,
                        .sie_until = lives->sie > 0 ? looked + lives->sie : 0,
                        .cost_us = look->cost_us,
                        .version = found->envelope.version,
                        .print = crl_watch_print(found->record->data, found->record->size)};
  if (crl_found_plain(found, &copy.bytes, &copy.offset) != CORRAL_OK ||
      !take_metadata(found, &copy.metadata))
    return;
  if (crl_near_put(found->context->near, found->hash, found->key.stored, found->key.stored_len,
                   &copy, epoch))
    crl_context_watch_copy(found->context, found->key.stored, found->key.stored_len, found->hash);
  crl_bytes_unref(copy.metadata);
}

int crl_found_find_near(crl_found *found, crl_near_copy *copy) {
  int64_t now = crl_env_now_ms();
  if (found->context->near == NULL || found->policy->near_ms <= 0) return 0;
  if (!crl_near_get(found->context->near, found->hash, found->key.stored, found->key.stored_len,
                    now, copy))
    return 0;
  if (tags_stand(found->context, copy, CRL_NEAR_ANY_AGE)) return 1;
  crl_near_copy_clean(copy);
  return 0;
}
