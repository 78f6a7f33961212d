/* run_store.c: what a flight asks of the store. */
#include <stdio.h>
#include <stdlib.h>

#include "env.h"
#include "record.h"
#include "run.h"
#include "status.h"

static corral_op new_op(crl_run *r, corral_verb verb) {
  r->error.text[0] = '\0';
  return (corral_op){.verb = verb, .key = r->key.stored, .key_len = r->key.stored_len, .token = r->token,
                     .error = &r->error};
}

/* Operations that end a flight still get their time when the call's own is over. */
static void perform(crl_run *r, corral_op *op, int ends_flight) {
  int64_t deadline = r->flight.plan.deadline;
  if (ends_flight || r->flight.answered || r->flight.last_look) deadline = crl_env_now_ms() + r->station->op_ms;
  crl_pool_perform(r->station->pool, op, 1, deadline);
  if (op->status < 0 && op->status != CORRAL_EMISS && op->status != CORRAL_EBUSY && op->status != CORRAL_ELOST)
    crl_run_emit(r, op->status == CORRAL_EFOREIGN ? CORRAL_EVENT_FOREIGN : CORRAL_EVENT_STORE_ERROR,
         r->error.text[0] == '\0' ? corral_status_text(op->status) : r->error.text);
}

/* Keeps what a look found, unless it is the header alone of a payload that is at hand. */
static int keep_found(crl_run *r, corral_op *op) {
  if (op->found == NULL) {
    crl_bytes_unref(r->found);
    r->found = NULL;
    return CORRAL_EMISS;
  }
  int status = crl_record_read(op->found, op->found_len, &r->header);
  if (status != CORRAL_OK || op->same) {
    if (op->found_free != NULL) op->found_free(op->found_owner);
    return status;
  }
  crl_bytes *bytes = crl_bytes_wrap(op->found, op->found_len, op->found_free, op->found_owner);
  if (bytes == NULL) {
    if (op->found_free != NULL) op->found_free(op->found_owner);
    return CORRAL_ENOMEM;
  }
  crl_bytes_unref(r->found);
  r->found = bytes;
  return CORRAL_OK;
}

static int is_ours(const crl_run *r) { return r->has_token && memcmp(r->header.token, r->token, CORRAL_TOKEN) == 0; }

static _Atomic uint64_t *cost_slot(crl_run *r) { return &r->station->costs.slots[r->self % CRL_COSTS]; }

static uint32_t recall_cost(crl_run *r) {
  uint64_t slot = atomic_load_explicit(cost_slot(r), memory_order_relaxed);
  return slot >> 32 == r->self >> 32 ? (uint32_t)slot : 0;
}

void crl_run_note_cost(crl_run *r, int64_t cost_us) {
  uint64_t ms = cost_us / 1000 < UINT32_MAX ? (uint64_t)(cost_us / 1000) : UINT32_MAX;
  uint64_t slot = (r->self >> 32 << 32) | ms;
  if (atomic_load_explicit(cost_slot(r), memory_order_relaxed) != slot) atomic_store_explicit(cost_slot(r), slot, memory_order_relaxed);
}

/* What the flight is told of a look. */
static int judge(crl_run *r, corral_op *op, crl_look *look) {
  memset(look, 0, sizeof *look);
  memset(&r->header, 0, sizeof r->header);
  int status = keep_found(r, op);
  if (status == CORRAL_EMISS) return CORRAL_OK;
  if (status != CORRAL_OK) return status;
  int64_t until = op->until_ms < 0 ? r->policy.lease_ms : op->until_ms;
  if (r->header.state == CORRAL_LEASED && !is_ours(r)) {
    look->lease_left = until;
    /* Of unknown cost: as if it were due at once, so that pauses are a share of what it has taken. */
    look->expects = op->until_ms > 0;
    look->expect_left = r->header.since + r->header.cost_ms - (r->header.until - op->until_ms);
  }
  if (r->header.state == CORRAL_VERDICT) look->retry_left = until;
  look->failures = r->header.failures;
  if (r->found == NULL || op->life_ms == 0) return CORRAL_OK;
  status = crl_envelope_read(r->found->data, r->found->size, r->key.whole, r->key.whole_len, &r->envelope);
  if (status == CORRAL_OK) {
    look->has_value = 1;
    look->ttl = r->envelope.ttl_ms;
    look->cost_us = r->envelope.cost_us;
    crl_run_note_cost(r, (int64_t)r->envelope.cost_us);
    look->lives = crl_policy_judge(&r->envelope, r->header.flags & CORRAL_FLAG_EXPIRED, op->life_ms, crl_env_wall_ms());
    r->age_ms = look->lives.age;
  } else if (status == CORRAL_ECORRUPT) {
    crl_run_emit(r, CORRAL_EVENT_CORRUPT, NULL);
  }
  return status == CORRAL_EFOREIGN ? status : CORRAL_OK;
}

/* What this process remembers of a failure, for a look that the store didn't answer. */
static void recall_verdict(crl_run *r, crl_look *look) {
  crl_held_entry entry;
  int64_t now = crl_env_now_ms();
  if (!crl_held_find(r->station->verdicts, r->key.stored, r->key.stored_len, now, &entry)) return;
  if (crl_record_read(entry.record->data, entry.record->size, &r->header) == CORRAL_OK) {
    look->failures = r->header.failures;
    look->retry_left = r->header.until > now ? r->header.until - now : 0;
  }
  crl_bytes_unref(entry.record);
}

void crl_run_get(crl_run *r, crl_told *told) {
  if (r->flight.looks > 0) crl_run_emit(r, CORRAL_EVENT_POLL, NULL);
  corral_op op = new_op(r, CORRAL_VERB_GET);
  perform(r, &op, 0);
  told->status = op.status;
  if (op.status != CORRAL_OK && op.status != CORRAL_EMISS) {
    recall_verdict(r, &told->look);
    return;
  }
  int status = judge(r, &op, &told->look);
  if (status != CORRAL_OK) told->status = status;
  if (r->flight.looks == 0 && told->look.lives.fresh == 0 && told->look.lives.swr == 0 && !r->flight.on_host)
    crl_run_emit(r, CORRAL_EVENT_MISS, NULL);
}

void crl_run_claim(crl_run *r, crl_told *told) {
  corral_header wish;
  uint8_t header[CORRAL_HEADER];
  memset(&wish, 0, sizeof wish);
  if (crl_env_random(r->token, sizeof r->token) != CORRAL_OK) {
    told->status = CORRAL_EIO;
    return;
  }
  r->has_token = 1;
  crl_env_holder(wish.note, sizeof wish.note);
  wish.cost_ms = r->found != NULL && r->flight.has_value ? (uint32_t)(r->envelope.cost_us / 1000) : recall_cost(r);
  crl_record_write(&wish, header);
  corral_op op = new_op(r, CORRAL_VERB_CLAIM);
  op.lease_ms = r->policy.lease_ms;
  op.record = header;
  op.record_len = sizeof header;
  op.seen = r->found == NULL ? 0 : crl_record_stamp(r->found->data, r->found->size);
  r->claim_sent = crl_env_now_ms();
  perform(r, &op, 0);
  told->status = op.status;
  if (op.status != CORRAL_OK && op.status != CORRAL_EBUSY) {
    recall_verdict(r, &told->look);
    return;
  }
  int status = judge(r, &op, &told->look);
  if (op.status == CORRAL_OK) crl_run_emit(r, CORRAL_EVENT_CLAIM, NULL);
  else if (status != CORRAL_OK) told->status = status;
}

void crl_run_settle(crl_run *r, crl_told *told) {
  corral_op op = new_op(r, CORRAL_VERB_SETTLE);
  op.record = r->made->data;
  op.record_len = r->made->size;
  op.ttl_ms = r->hard_ttl;
  perform(r, &op, 1);
  told->status = op.status;
  switch (op.status) {
    case CORRAL_OK: crl_run_emit(r, r->handed_over && r->flight.answered ? CORRAL_EVENT_REFRESH : CORRAL_EVENT_FILL, NULL); break;
    case CORRAL_ELOST: crl_run_emit(r, CORRAL_EVENT_FENCED, NULL); break;
    default: crl_run_emit(r, CORRAL_EVENT_UNSTORED, r->error.text); break;
  }
  if (op.status == CORRAL_OK) crl_held_drop(r->station->held, op.key, op.key_len);
  if (op.status == CORRAL_OK) crl_held_drop(r->station->verdicts, op.key, op.key_len);
  if (op.status == CORRAL_EUNAVAILABLE || op.status == CORRAL_EUNKNOWN) crl_run_hold(r);
}

/* A verdict's key outlives its rule, so that the next failure knows how many came before. */
corral_op crl_run_release_op(crl_run *r, uint8_t header[CORRAL_HEADER], int64_t retry_ms, const char *text, int32_t code) {
  corral_op op = new_op(r, CORRAL_VERB_RELEASE);
  corral_header verdict;
  if (retry_ms <= 0) return op;
  memset(&verdict, 0, sizeof verdict);
  verdict.code = code;
  verdict.failures = r->flight.failures;
  snprintf(verdict.note, sizeof verdict.note, "%.63s", text);
  crl_record_write(&verdict, header);
  op.record = header;
  op.record_len = CORRAL_HEADER;
  op.lease_ms = retry_ms;
  op.ttl_ms = 3 * retry_ms + r->policy.lease_ms;
  return op;
}

void crl_run_release(crl_run *r, crl_told *told) {
  uint8_t header[CORRAL_HEADER];
  corral_op op = crl_run_release_op(r, header, r->flight.retry_ms, r->fill.text, r->fill.code);
  perform(r, &op, 1);
  told->status = op.status;
}

/* ---- without the store ----------------------------------------------------------------------------------- */

void crl_run_hold(crl_run *r) {
  crl_held_drop(r->station->verdicts, r->key.stored, r->key.stored_len);
  crl_held_keep(r->station->held, r->key.stored, r->key.stored_len, r->made, r->hard_ttl, r->began, crl_env_now_ms());
  crl_run_emit(r, CORRAL_EVENT_HELD, NULL);
}

void crl_run_hold_verdict(crl_run *r) {
  corral_header verdict;
  int64_t now = crl_env_now_ms(), retry_ms = r->flight.retry_ms;
  uint8_t *record = retry_ms > 0 ? crl_alloc(CORRAL_HEADER) : NULL;
  if (record == NULL) return;
  memset(&verdict, 0, sizeof verdict);
  verdict.state = CORRAL_VERDICT;
  verdict.until = now + retry_ms;
  verdict.code = r->fill.code;
  verdict.failures = r->flight.failures;
  snprintf(verdict.note, sizeof verdict.note, "%.63s", r->fill.text);
  crl_record_write(&verdict, record);
  crl_bytes *bytes = crl_bytes_wrap(record, CORRAL_HEADER, free, record);
  if (bytes == NULL) free(record);
  else crl_held_keep(r->station->verdicts, r->key.stored, r->key.stored_len, bytes, 3 * retry_ms, now, now);
  crl_bytes_unref(bytes);
}

void crl_run_held(crl_run *r, crl_told *told) {
  crl_held_entry entry;
  int64_t now = crl_env_now_ms();
  told->status = CORRAL_EMISS;
  if (!crl_held_find(r->station->held, r->key.stored, r->key.stored_len, now, &entry)) return;
  int status = crl_envelope_read(entry.record->data, entry.record->size, r->key.whole, r->key.whole_len, &r->envelope);
  if (status != CORRAL_OK) {
    crl_bytes_unref(entry.record);
    return;
  }
  crl_bytes_unref(r->found);
  r->found = entry.record;
  r->age_ms = now - entry.made;
  told->status = CORRAL_OK;
}
