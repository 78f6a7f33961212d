/* fill.c: the result of a compute: the record to store, "no such thing", "can't be cached", or a
 * failure. */
#include "record/fill.h"

#include "base/print.h"

#include <corral/loop.h>
#include <stdlib.h>

#include "record/compress.h"

void *corral_fill_reserve(corral_fill *fill, size_t size) {
  if (size > fill->max_value) return NULL;
  uint8_t *record = crl_alloc(CRL_PAYLOAD_AT + size + CRL_METADATA_USUAL);
  if (record == NULL) return NULL;
  free(fill->record);
  fill->record = record;
  fill->size = size;
  fill->filled = CRL_FILLED_BYTES;
  return record + CRL_PAYLOAD_AT;
}

int corral_fill_bytes(corral_fill *fill, const void *data, size_t size) {
  if (size > fill->max_value) return CORRAL_ETOOBIG;
  uint8_t *old = fill->record; /* `data` may point into it */
  fill->record = NULL;
  void *room = corral_fill_reserve(fill, size);
  if (room == NULL) {
    fill->record = old;
    return CORRAL_ENOMEM;
  }
  if (size > 0) memcpy(room, data, size);
  free(old);
  return CORRAL_OK;
}

void corral_fill_negative(corral_fill *fill) { fill->filled = CRL_FILLED_NEGATIVE; }

void corral_fill_fail(corral_fill *fill, int32_t code, const char *text) {
  fill->filled = CRL_FILLED_FAILURE;
  fill->code = code;
  crl_print_fit(fill->text, sizeof fill->text, text == NULL ? "computing failed" : text);
}

void corral_fill_lives(corral_fill *fill, int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms) {
  fill->ttl_ms = ttl_ms;
  fill->swr_ms = swr_ms;
  fill->sie_ms = sie_ms;
}

void crl_fill_policy_lives(const corral_fill *fill, int64_t *ttl_ms, int64_t *swr_ms,
                           int64_t *sie_ms) {
  *ttl_ms = fill->policy->ttl_ms;
  *swr_ms = fill->policy->swr_ms;
  *sie_ms = fill->policy->sie_ms;
}

void corral_fill_not_after(corral_fill *fill, int64_t wall_ms) { fill->not_after = wall_ms; }
void corral_fill_pass(corral_fill *fill) { fill->pass = 1; }
void corral_fill_version(corral_fill *fill, uint64_t version) { fill->version = version; }

static int has_room_for_tags(corral_fill *fill) {
  if (fill->tags == NULL) fill->tags = crl_alloc(sizeof *fill->tags);
  return fill->tags != NULL;
}

int corral_fill_tag(corral_fill *fill, const void *tag, size_t len) {
  if (tag == NULL || len < 1 || len > CORRAL_TAG_MAX) return CORRAL_EINVAL;
  if (!has_room_for_tags(fill)) return CORRAL_ENOMEM;
  if (fill->tags->count == CORRAL_TAGS_MAX && crl_tags_find(fill->tags, tag, len) == NULL)
    return CORRAL_ETOOBIG;
  crl_tags_add(fill->tags, tag, len);
  return CORRAL_OK;
}

int corral_fill_validator(corral_fill *fill, const void *data, size_t size) {
  if (size > CORRAL_VALIDATOR_MAX) return CORRAL_ETOOBIG;
  uint8_t *copy = crl_alloc(size + 1);
  if (copy == NULL) return CORRAL_ENOMEM;
  if (size > 0) memcpy(copy, data, size);
  free(fill->validator);
  fill->validator = copy;
  fill->validator_len = size;
  return CORRAL_OK;
}

const void *corral_fill_old(const corral_fill *fill, size_t *ret_size) {
  *ret_size = fill->old.size;
  return fill->old.data;
}

const void *corral_fill_old_validator(const corral_fill *fill, size_t *ret_size) {
  *ret_size = fill->old.validator_len;
  return fill->old.validator;
}

uint64_t corral_fill_old_version(const corral_fill *fill) { return fill->old.version; }

int corral_fill_not_modified(corral_fill *fill) {
  if (fill->old.data == NULL) return CORRAL_EMISS;
  fill->filled = CRL_FILLED_UNMODIFIED;
  return CORRAL_OK;
}

const void *corral_fill_variant(const corral_fill *fill, size_t *ret_size) {
  *ret_size = fill->variant_len;
  return fill->variant_len > 0 ? fill->variant : NULL;
}

const void *corral_fill_key(const corral_fill *fill, size_t *ret_size) {
  *ret_size = fill->key_len - fill->prefix_len;
  return (const uint8_t *)fill->key + fill->prefix_len;
}

int corral_fill_has_stale(const corral_fill *fill) { return fill->has_stale; }

int corral_fill_should_stop(const corral_fill *fill) {
  return atomic_load_explicit(&((corral_fill *)(uintptr_t)fill)->stop, memory_order_relaxed);
}

int corral_fill_is_alone(const corral_fill *fill) { return fill->is_alone; }

static void end(corral_fill *fill, int abandoned) {
  if (fill->ended != NULL) fill->ended(fill, abandoned);
}

void corral_fill_done(corral_fill *fill) { end(fill, 0); }
void corral_fill_abandon(corral_fill *fill) { end(fill, 1); }

static int64_t chosen(int64_t own, int64_t policy) {
  int64_t life = own == 0 ? policy : own;
  return life <= 0 ? 0 : life < CRL_LIFE_MOST ? life : CRL_LIFE_MOST;
}

int crl_fill_inherit(corral_fill *fill) {
  const crl_old *old = &fill->old;
  if (fill->filled != CRL_FILLED_UNMODIFIED) return 1;
  if (fill->version == 0) fill->version = old->version;
  if (fill->validator == NULL && old->validator != NULL &&
      corral_fill_validator(fill, old->validator, old->validator_len) != CORRAL_OK)
    return 0;
  if (fill->tags != NULL || old->tags == NULL) return 1;
  if (!has_room_for_tags(fill)) return 0;
  *fill->tags = *old->tags;
  return 1;
}

int crl_fill_tag_of_all(corral_fill *fill) {
  return has_room_for_tags(fill) && crl_tags_add(fill->tags, "", 0) != NULL;
}

/* ---- lives --------------------------------------------------------------------------------- */

/* Sets the lives of the new record; ttl_ms is 0 when it is not to be stored. */
static void set_lives(const corral_fill *fill, const crl_finish *finish, crl_envelope *envelope) {
  const corral_policy *policy = finish->policy;
  int64_t ttl = chosen(fill->ttl_ms, policy->ttl_ms), left = fill->not_after - finish->wall_ms;
  if (fill->pass)
    ttl = chosen(0, policy->pass_ttl_ms);
  else if (fill->filled == CRL_FILLED_NEGATIVE)
    ttl = chosen(fill->ttl_ms, policy->negative_ttl_ms);
  if (fill->not_after != 0 && ttl > left) ttl = left;
  envelope->ttl_ms = ttl > 0 ? crl_policy_jitter(policy, ttl, finish->dice) : 0;
  if (envelope->kind != CRL_KIND_VALUE) return;
  envelope->swr_ms = chosen(fill->swr_ms, policy->swr_ms);
  envelope->sie_ms = chosen(fill->sie_ms, policy->sie_ms);
  if (fill->not_after == 0 || ttl <= 0) return;
  left -= envelope->ttl_ms;
  if (envelope->swr_ms > left) envelope->swr_ms = left;
  if (envelope->sie_ms > left) envelope->sie_ms = left;
}

/* True when `old`, a life with jitter, could also have been drawn from `life`. */
static int could_be(int64_t old, int64_t life, const corral_policy *policy) {
  int64_t least = crl_policy_jitter_least(policy, life);
  return old <= life && old >= least;
}

static int same_tags(const crl_tags *a, const crl_tags *b) {
  size_t count = a == NULL ? 0 : a->count;
  if (count != (b == NULL ? 0 : b->count)) return 0;
  for (size_t i = 0; i < count; i++) {
    const crl_tag *of_a = &a->tag[i],
                  *of_b = crl_tags_find((crl_tags *)(uintptr_t)b, of_a->name, of_a->len);
    if (of_b == NULL || of_a->hard != of_b->hard || of_a->soft != of_b->soft) return 0;
  }
  return 1;
}

/* The life, in ms, for which the stored record can be renewed because the new one would equal it;
 * 0: it can't. */
static int64_t renewed_life(const corral_fill *fill, const crl_finish *finish,
                            const crl_envelope *envelope) {
  const crl_old *old = &fill->old;
  if (fill->filled != CRL_FILLED_UNMODIFIED || fill->pass || fill->not_after != 0 ||
      fill->version != old->version)
    return 0;
  if (!could_be(old->ttl_ms, chosen(fill->ttl_ms, finish->policy->ttl_ms), finish->policy))
    return 0;
  if (envelope->swr_ms != old->swr_ms || envelope->sie_ms != old->sie_ms ||
      !same_tags(fill->tags, old->tags))
    return 0;
  int same =
      fill->validator_len == old->validator_len &&
      (fill->validator == NULL) == (old->validator == NULL) &&
      (fill->validator == NULL || memcmp(fill->validator, old->validator, old->validator_len) == 0);
  return same ? crl_policy_hard_ttl(old->ttl_ms, old->swr_ms, old->sie_ms) : 0;
}

/* ---- the record ---------------------------------------------------------------------------- */

/* Makes room for the metadata behind the payload in fill->record, and writes the record. Returns
 * its size; 0: too large, or no memory. */
static size_t write_record(corral_fill *fill, crl_envelope *envelope) {
  envelope->tags = fill->tags;
  envelope->validator = fill->validator;
  envelope->validator_len = fill->validator_len;
  size_t size = crl_envelope_size(envelope);
  if (size == 0) return 0;
  if (envelope->metadata_len > CRL_METADATA_USUAL) {
    uint8_t *longer = crl_alloc_more(fill->record, size);
    if (longer == NULL) return 0;
    fill->record = longer;
  }
  crl_envelope_write(envelope, fill->record);
  return size;
}

/* Makes counted bytes of fill->record, which it takes over; NULL without memory. */
static crl_bytes *take_record(corral_fill *fill, size_t size) {
  crl_bytes *bytes = crl_bytes_wrap(fill->record, size, free, fill->record);
  if (bytes != NULL) fill->record = NULL;
  return bytes;
}

/* Sets fill->record, which was taken before, to a new record with this payload; 0 without
 * memory. */
static int new_record(corral_fill *fill, crl_envelope *envelope, const void *payload, size_t size) {
  uint8_t *record = crl_alloc(CRL_PAYLOAD_AT + size + CRL_METADATA_USUAL);
  if (record == NULL) return 0;
  if (size > 0) memcpy(record + CRL_PAYLOAD_AT, payload, size);
  fill->record = record;
  envelope->payload_len = size;
  return 1;
}

/* Gives the payload the form in which it is stored: compressed, or empty for "can't be cached". If
 * that differs from what callers get, ret->plain keeps the latter. 0 without memory. */
static int shape(corral_fill *fill, const crl_finish *finish, crl_envelope *envelope,
                 crl_product *ret) {
  uint8_t *packed = NULL;
  int packs = envelope->kind == CRL_KIND_VALUE && finish->compress_min > 0 &&
              fill->size >= (size_t)finish->compress_min && fill->size > 0;
  size_t packed_size = packs ? crl_compress(fill->record + CRL_PAYLOAD_AT, fill->size, &packed) : 0;
  envelope->plain_len = fill->size;
  if (packed_size > 0) envelope->encoding = CRL_ENCODING_ZSTD;
  int done = 1;
  if (packed_size > 0 || envelope->kind == CRL_KIND_PASS) {
    ret->plain = take_record(fill, CRL_PAYLOAD_AT + fill->size);
    done = ret->plain != NULL && new_record(fill, envelope, packed, packed_size);
  }
  free(packed);
  return done;
}

static int make(corral_fill *fill, const crl_finish *finish, crl_envelope *envelope,
                crl_product *ret) {
  ret->at = CRL_PAYLOAD_AT;
  ret->size = fill->size;
  size_t size = shape(fill, finish, envelope, ret) ? write_record(fill, envelope) : 0;
  ret->record = size > 0 ? take_record(fill, size) : NULL;
  if (ret->record == NULL) return 0;
  if (ret->plain == NULL) ret->plain = crl_bytes_ref(ret->record);
  return 1;
}

/* Supplies the payload that compute did not give: none for a negative, the old one for "not
 * modified". 0 without memory. */
static int bring_payload(corral_fill *fill) {
  crl_filled filled = fill->filled;
  if (filled == CRL_FILLED_BYTES || filled == CRL_FILLED_FAILURE || filled == CRL_FILLED_NOT)
    return 1;
  int status = filled == CRL_FILLED_NEGATIVE
                   ? corral_fill_bytes(fill, NULL, 0)
                   : corral_fill_bytes(fill, fill->old.data, fill->old.size);
  fill->filled = filled;
  return status == CORRAL_OK;
}

crl_made crl_fill_finish(corral_fill *fill, const crl_finish *finish, crl_product *ret) {
  memset(ret, 0, sizeof *ret);
  if (fill->filled == CRL_FILLED_NOT)
    corral_fill_fail(fill, 0, "compute returned without a value");
  else if (!bring_payload(fill))
    corral_fill_fail(fill, CORRAL_ENOMEM, "out of memory");
  if (fill->filled == CRL_FILLED_FAILURE) return CRL_MADE_FAILURE;
  crl_envelope envelope = {
      .kind = fill->pass                            ? CRL_KIND_PASS
              : fill->filled == CRL_FILLED_NEGATIVE ? CRL_KIND_NEGATIVE
                                                    : CRL_KIND_VALUE,
      .created_ms = finish->wall_ms,
      .cost_us = (uint64_t)finish->cost_us,
      .version = fill->version,
      .digest = fill->digest,
      .payload_len = fill->size,
  };
  set_lives(fill, finish, &envelope);
  ret->hard_ttl = crl_policy_hard_ttl(envelope.ttl_ms, envelope.swr_ms, envelope.sie_ms);
  ret->renew_ttl = renewed_life(fill, finish, &envelope);
  if (!make(fill, finish, &envelope, ret)) {
    crl_product_clean(ret);
    corral_fill_fail(fill, CORRAL_ENOMEM, "out of memory");
    return CRL_MADE_FAILURE;
  }
  if (envelope.ttl_ms <= 0) return CRL_MADE_UNKEPT;
  return fill->pass ? CRL_MADE_PASS : CRL_MADE_VALUE;
}

void crl_product_clean(crl_product *product) {
  crl_bytes_unref(product->record);
  crl_bytes_unref(product->plain);
  product->record = product->plain = NULL;
}

void crl_fill_clean(corral_fill *fill) {
  free(fill->record);
  free(fill->tags);
  free(fill->validator);
  fill->record = NULL;
  fill->tags = NULL;
  fill->validator = NULL;
}
