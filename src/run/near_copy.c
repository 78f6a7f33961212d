/* near_copy.c: the near tier: answers from copies of this process, and copies of the records
 * found, or stored. */
#include "os/env.h"
#include "os/readers.h"
#include "run/run.h"
#include "base/status.h"

#include <stdlib.h>

/* ---- answers ------------------------------------------------------------------------------- */

/* The answer that a copy is good for. */
typedef enum gives { NOTHING, FRESH, STALE, FAILED } gives;

static int has_value(const crl_near_copy *copy) { return copy->kind != CRL_NEAR_VERDICT; }

/* Judges a copy at `now`; *until: when that judgement ends. While a failure is remembered nobody
 * computes, so a stale value is an answer: a flight would give the same. */
static gives given_by(const crl_near_copy *copy, int64_t now, int64_t *until) {
  *until = copy->fresh_until;
  if (copy->fresh_until > now) return FRESH;
  *until = copy->retry_until;
  if (copy->retry_until <= now) return NOTHING;
  if (!has_value(copy)) return FAILED;
  int64_t grace = copy->swr_until > copy->sie_until ? copy->swr_until : copy->sie_until;
  if (grace < *until) *until = grace;
  return grace > now ? STALE : NOTHING;
}

/* *now is coarse, and made exact when an end is near. */
static gives judge(const crl_context *context, const crl_near_copy *copy, int64_t near_ms,
                   int64_t *now) {
  int64_t until;
  int64_t alone = copy->looked + near_ms;
  if (!crl_context_hears_of(context, copy)) return NOTHING;
  gives what = given_by(copy, *now, &until);
  if (what == NOTHING || alone <= *now) return NOTHING;
  if ((until < alone ? until : alone) > *now + CRL_COARSE_MS) return what;
  *now = crl_env_now_ms();
  return alone > *now ? given_by(copy, *now, &until) : NOTHING;
}

static int tags_stand(crl_context *context, const crl_near_copy *copy, int64_t near_ms) {
  const crl_bytes *metadata = copy->metadata;
  crl_tag_versions_source source = {.near_ms = near_ms};
  if (metadata == NULL) return !context->generation || !has_value(copy);
  return crl_tag_versions_standing(context, metadata->data, metadata->size, &source) == CRL_STANDS;
}

/* A value that the caller wants early is no answer; nobody rebuilds what somebody failed to. Of a
 * hot key one call asks the store for all, and the others have the copy meanwhile. */
static int is_early(const crl_join *join, const crl_near_copy *copy, uint64_t hash, int64_t now) {
  const corral_policy *policy = join->call->policy;
  crl_hot *hot = &join->context->hot;
  int64_t left = copy->fresh_until - now;
  if (!crl_call_computes(join->call) || copy->retry_until > now) return 0;
  uint64_t dice = crl_policy_rolls(policy) ? crl_env_dice() : 0;
  int early = crl_policy_early(policy, copy->ttl, left, copy->cost_us, dice);
  if (!crl_hot_any(hot) || !crl_hot_has(hot, hash)) return early;
  return (early || crl_policy_early_hot(policy, copy->ttl, left)) &&
         crl_hot_turn(hot, hash, now, CRL_EARLY_PAUSE_MS);
}

/* 0 without memory. */
static int fill_outcome(const crl_near_copy *copy, gives what, int64_t now, crl_outcome *outcome) {
  if (what == FAILED) {
    *outcome = crl_outcome_failed(copy->failure, (const char *)copy->data, copy->size,
                                  copy->retry_until - now);
    outcome->is_counted = 1;
    return 1;
  }
  memset(outcome, 0, offsetof(crl_outcome, error));
  outcome->how = what == STALE ? CORRAL_STALE : CORRAL_FRESH;
  outcome->age_ms = now > copy->made ? now - copy->made : 0;
  outcome->version = copy->version;
  outcome->cost_us = copy->cost_us;
  outcome->is_counted = 1;
  outcome->failure = what == STALE ? copy->failure : 0;
  outcome->size = copy->size;
  if (copy->kind == CRL_KIND_NEGATIVE) {
    outcome->status = crl_status_plain(&outcome->error, CORRAL_ENOTFOUND);
    return 1;
  }
  if (copy->bytes == NULL) {
    outcome->value = crl_value_copy(copy->data, &(crl_about){.size = outcome->size,
                                                             .how = outcome->how,
                                                             .age_ms = outcome->age_ms,
                                                             .version = outcome->version,
                                                             .failure = outcome->failure});
    return outcome->value != NULL;
  }
  outcome->bytes = crl_near_bytes(copy, &outcome->offset);
  return 1;
}

static int answer_by(crl_join *join, const crl_near_copy *copy, uint64_t hash, int64_t now,
                     int only_fresh) {
  const corral_policy *policy = join->call->policy;
  gives what = judge(join->context, copy, policy->near_ms, &now);
  if (what == NOTHING || (only_fresh && what != FRESH) ||
      !tags_stand(join->context, copy, policy->near_ms))
    return 0;
  join->early = what == FRESH && is_early(join, copy, hash, now);
  return !join->early && fill_outcome(copy, what, now, join->outcome);
}

static int answer(crl_join *join, const crl_key *key, int only_fresh) {
  int64_t now = crl_env_coarse_ms();
  uint64_t hash = crl_key_hash(key);
  if (join->context->near_hot_only && !crl_hot_has(&join->context->hot, hash)) return 0;
  if (!crl_readers_enter()) return 0;
  const crl_near_copy *copy =
      crl_near_look(join->context->near, hash, key->stored, key->stored_len, now);
  int answers = copy != NULL && answer_by(join, copy, hash, now, only_fresh);
  crl_readers_leave();
  return answers;
}

static void tell(const crl_join *join) {
  const crl_outcome *outcome = join->outcome;
  const crl_stats *stats = &join->context->events.stats;
  if (join->context->events.hook == NULL) {
    crl_stats_count_saving(stats, CRL_COUNTER_EVENT + CORRAL_EVENT_NEAR, outcome->cost_us);
    return;
  }
  crl_stats_count(stats, CRL_COUNTER_SAVED, outcome->cost_us);
  corral_event_info info = crl_event_info(CORRAL_EVENT_NEAR, join->name.key, join->name.key_len);
  info.status = outcome->status;
  if (outcome->status == CORRAL_OK) info.bytes = (int64_t)outcome->size;
  crl_event_tell(&join->context->events, &info);
}

int crl_run_near(crl_join *join, int only_fresh) {
  crl_key key;
  crl_context *context = join->context;
  const corral_policy *policy = join->call->policy;
  if (context->near == NULL || policy->near_ms <= 0 || policy->anew > 0) return 0;
  if (crl_key_make(&key, CRL_KEY_VALUE, &context->space, &join->name) != CORRAL_OK) return 0;
  int answers = answer(join, &key, only_fresh);
  crl_key_clean(&key);
  if (answers) tell(join);
  return answers;
}

static int64_t left_of(int64_t until, int64_t now) { return until > now ? until - now : 0; }

static crl_lives lives_of(const crl_near_copy *copy, int64_t now) {
  return (crl_lives){.fresh = left_of(copy->fresh_until, now),
                     .swr = left_of(copy->swr_until, now),
                     .sie = left_of(copy->sie_until, now),
                     .age = now - copy->made};
}

/* 0 without memory. */
static int take_copy(crl_found *found, const crl_near_copy *copy, int64_t now) {
  size_t offset;
  crl_bytes *bytes = crl_near_bytes(copy, &offset);
  if (bytes == NULL) return 0;
  crl_found_change(found, bytes);
  found->is_own = 1;
  found->envelope = (crl_envelope){.kind = copy->kind,
                                   .payload_at = offset,
                                   .payload_len = copy->size,
                                   .plain_len = copy->size,
                                   .version = copy->version};
  found->age_ms = now - copy->made;
  return 1;
}

int crl_found_take_near(crl_found *found, int64_t now, crl_lives *lives) {
  int takes = 0;
  crl_context *context = found->context;
  if (context->near == NULL || found->policy->near_ms <= 0 || !crl_readers_enter()) return 0;
  const crl_near_copy *copy =
      crl_near_look(context->near, found->hash, found->key.stored, found->key.stored_len, now);
  if (copy != NULL && has_value(copy) && tags_stand(context, copy, CRL_NEAR_ANY_AGE))
    takes = take_copy(found, copy, now);
  if (takes) *lives = lives_of(copy, now);
  crl_readers_leave();
  return takes;
}

/* ---- hot keys ------------------------------------------------------------------------------ */

__attribute__((noinline, cold)) void crl_run_count_one(crl_context *context, const crl_call *call,
                                                       const void *key, size_t key_len) {
  crl_key stored;
  crl_name name = crl_call_name(call, key, key_len);
  if (!crl_hot_draw() || atomic_load(&context->hot.table) == NULL) return;
  if (crl_key_make(&stored, CRL_KEY_VALUE, &context->space, &name) != CORRAL_OK) return;
  crl_hot_get get = {.hash = crl_key_hash(&stored),
                     .stored = stored.stored,
                     .stored_len = stored.stored_len,
                     .key = key,
                     .key_len = key_len};
  crl_hot_add(&context->hot, &get, crl_env_coarse_ms());
  crl_key_clean(&stored);
}

/* ---- copies -------------------------------------------------------------------------------- */

int64_t crl_found_near_ms(const crl_found *found) {
  return crl_context_is_near(found->context, found->hash) ? found->policy->near_ms : 0;
}

void crl_found_date_near(const crl_found *found, crl_request *e) {
  e->keeps = crl_found_near_ms(found) > 0;
  if (!e->keeps) return;
  e->looked = crl_env_now_ms();
  e->epoch = crl_near_epoch(found->context->near, found->hash);
}

/* *ret: a copy of the record's metadata; NULL if it has no tags. 0 without memory. */
static int take_metadata(const crl_envelope *envelope, const crl_bytes *record, crl_bytes **ret) {
  *ret = NULL;
  if (envelope->tag_count == 0) return 1;
  *ret = crl_bytes_copy(record->data + envelope->metadata_at, envelope->metadata_len);
  return *ret != NULL;
}

/* 1: the copy is kept. Gives up the reference to its metadata. */
static int put(const crl_found *found, crl_near_copy *copy, uint64_t epoch) {
  int kept = crl_near_put(found->context->near, found->hash, found->key.stored,
                          found->key.stored_len, copy, epoch);
  crl_context_weigh_near(found->context);
  if (kept)
    crl_context_watch_copy(found->context, found->key.stored, found->key.stored_len, found->hash);
  crl_bytes_unref(copy->metadata);
  return kept;
}

/* The copy of a value with these lives, but for its bytes; 0 without memory. */
static int describe(const crl_envelope *envelope, const crl_bytes *record, const crl_lives *lives,
                    int64_t looked, crl_near_copy *ret) {
  *ret = (crl_near_copy){.size = envelope->plain_len,
                         .kind = envelope->kind,
                         .looked = looked,
                         .made = looked - lives->age,
                         .ttl = envelope->ttl_ms,
                         .fresh_until = lives->fresh > 0 ? looked + lives->fresh : 0,
                         .swr_until = lives->swr > 0 ? looked + lives->swr : 0,
                         .sie_until = lives->sie > 0 ? looked + lives->sie : 0,
                         .cost_us = envelope->cost_us,
                         .version = envelope->version,
                         .print = crl_watch_print(record->data, record->size)};
  return take_metadata(envelope, record, &ret->metadata);
}

/* Keeps a failure that is remembered where there is no value. */
static void keep_verdict(const crl_found *found, crl_near_copy *copy, uint64_t epoch) {
  const corral_header *header = &found->header;
  copy->kind = CRL_NEAR_VERDICT;
  copy->size = strnlen(header->note, CORRAL_NOTE);
  copy->bytes = crl_bytes_copy(header->note, copy->size);
  if (copy->bytes == NULL) return;
  put(found, copy, epoch);
  crl_bytes_unref(copy->bytes);
}

void crl_found_keep_near(crl_found *found, const crl_look *look, uint64_t epoch, int64_t looked) {
  const crl_lives *lives = &look->lives;
  const crl_bytes *record = found->record;
  crl_near_copy copy = {.looked = looked};
  if (look->pass || record == NULL) return;
  int is_usable = lives->fresh > 0 || lives->swr > 0 || lives->sie > 0;
  if (is_usable && (!describe(&found->envelope, record, lives, looked, &copy) ||
                    crl_found_plain(found, &copy.bytes, &copy.offset) != CORRAL_OK)) {
    crl_bytes_unref(copy.metadata);
    return;
  }
  if (!is_usable) copy.print = crl_watch_print(record->data, record->size);
  copy.retry_until = look->retry_left > 0 ? looked + look->retry_left : 0;
  copy.failure = look->retry_left > 0 ? found->header.code : 0;
  if (is_usable)
    put(found, &copy, epoch);
  else
    keep_verdict(found, &copy, epoch);
}

/* The copy of what the run has stored, but for its bytes. The graces as a look would find them. */
static int describe_product(crl_run *r, const crl_request *e, crl_near_copy *ret) {
  crl_envelope envelope;
  const crl_bytes *record = r->product.record;
  if (crl_envelope_read(record->data, record->size, crl_key_digest(&r->found.key), &envelope) !=
      CORRAL_OK)
    return 0;
  crl_lives lives = crl_envelope_judge(&envelope, 0, r->product.hard_ttl, crl_env_wall_ms());
  return describe(&envelope, record, &lives, e->looked, ret);
}

void crl_run_keep_near(crl_run *r, const crl_request *e) {
  crl_near_copy copy;
  if (r->context->near == NULL) return;
  int stored = e->keeps && e->status == CORRAL_OK && e->op[0].verb == CORRAL_VERB_SETTLE &&
               !r->fill.pass && describe_product(r, e, &copy);
  if (stored) {
    copy.bytes = r->product.plain;
    copy.offset = r->product.at;
    stored = put(&r->found, &copy, e->epoch);
  }
  if (!stored) crl_near_drop(r->context->near, r->found.hash);
}
