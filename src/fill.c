/* fill.c: what a compute made: the record that will be stored, "no such thing", or a failure. */
#include "fill.h"

#include <stdio.h>
#include <stdlib.h>

void *corral_fill_reserve(corral_fill *fill, size_t size) {
  if (size > fill->max_value) return NULL;
  size_t at = crl_envelope_payload_at(fill->key_len);
  uint8_t *record = crl_alloc(at + size);
  if (record == NULL) return NULL;
  free(fill->record);
  fill->record = record;
  fill->size = size;
  fill->filled = CRL_FILLED_BYTES;
  return record + at;
}

int corral_fill_bytes(corral_fill *fill, const void *data, size_t size) {
  if (size > fill->max_value) return CORRAL_ETOOBIG;
  uint8_t *old = fill->record; /* `data` may be in it */
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
  snprintf(fill->text, sizeof fill->text, "%s", text == NULL ? "computing failed" : text);
}

void corral_fill_lives(corral_fill *fill, int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms) {
  fill->ttl_ms = ttl_ms;
  fill->swr_ms = swr_ms;
  fill->sie_ms = sie_ms;
}

int corral_fill_has_stale(const corral_fill *fill) { return fill->has_stale; }

int corral_should_stop(const corral_fill *fill) {
  return atomic_load_explicit(&((corral_fill *)(uintptr_t)fill)->stop, memory_order_relaxed);
}

static int64_t chosen(int64_t own, int64_t policy) {
  int64_t life = own == 0 ? policy : own;
  return life <= 0 ? 0 : life < CRL_ENVELOPE_LIFE_MOST ? life : CRL_ENVELOPE_LIFE_MOST;
}

/* A negative is a record with no payload. */
static int make_negative(corral_fill *fill, const corral_policy *policy, int64_t *ttl_ms) {
  if (corral_fill_reserve(fill, 0) == NULL) return 0;
  fill->filled = CRL_FILLED_NEGATIVE;
  *ttl_ms = chosen(fill->ttl_ms, policy->negative_ttl_ms);
  return 1;
}

crl_made crl_fill_finish(corral_fill *fill, const corral_policy *policy, int64_t cost_us, int64_t wall_ms, uint64_t dice,
                         int64_t *hard_ttl) {
  int64_t ttl = chosen(fill->ttl_ms, policy->ttl_ms);
  if (fill->filled == CRL_FILLED_NEGATIVE && !make_negative(fill, policy, &ttl)) fill->filled = CRL_FILLED_NOT;
  if (fill->filled == CRL_FILLED_NOT) corral_fill_fail(fill, 0, "compute returned without a value");
  if (fill->filled == CRL_FILLED_FAILURE) return CRL_MADE_FAILURE;
  crl_envelope envelope = {
      .kind = fill->filled == CRL_FILLED_NEGATIVE ? CRL_KIND_NEGATIVE : CRL_KIND_VALUE,
      .ttl_ms = ttl > 0 ? crl_policy_jitter(policy, ttl, dice) : 0,
      .created_ms = wall_ms,
      .cost_us = (uint64_t)cost_us,
      .key = fill->key,
      .key_len = fill->key_len,
      .payload_len = fill->size,
  };
  if (envelope.kind == CRL_KIND_VALUE) {
    envelope.swr_ms = chosen(fill->swr_ms, policy->swr_ms);
    envelope.sie_ms = chosen(fill->sie_ms, policy->sie_ms);
  }
  *hard_ttl = crl_policy_hard_ttl(envelope.ttl_ms, envelope.swr_ms, envelope.sie_ms);
  if (ttl <= 0) return CRL_MADE_UNKEPT;
  crl_envelope_write(&envelope, fill->record);
  return CRL_MADE_VALUE;
}

size_t crl_fill_record_size(const corral_fill *fill) { return crl_envelope_payload_at(fill->key_len) + fill->size; }

crl_bytes *crl_fill_take(corral_fill *fill) {
  crl_bytes *bytes = crl_bytes_wrap(fill->record, crl_fill_record_size(fill), free, fill->record);
  if (bytes != NULL) fill->record = NULL;
  return bytes;
}

void crl_fill_clean(corral_fill *fill) {
  free(fill->record);
  fill->record = NULL;
}
