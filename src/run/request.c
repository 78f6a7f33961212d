/* request.c: performs what a flight asks of the store. */
#include <stdio.h>
#include <stdlib.h>

#include "os/env.h"
#include "store/put.h"
#include "record/record.h"
#include "run/run.h"
#include "tags/tag_memory.h"
#include "base/print.h"
#include "base/status.h"

static corral_op new_op(crl_run *r, corral_verb verb) {
  corral_op op = crl_found_op(&r->found, verb);
  op.token = r->token;
  return op;
}

/* Deadline of an ask. An operation that ends the flight has op_ms even after the call's deadline,
 * unless the caller's thread performs it. Behind an answer, when no caller waits, each operation
 * has wait_ms, if that is more. */
static int64_t limit_of(const crl_run *r, int ends_flight) {
  int64_t now = crl_env_now_ms(), least = now + r->context->op_ms,
          deadline = r->flight.plan.deadline;
  if (r->flight.answered && (r->handed_over || deadline <= now))
    return now + r->policy.wait_ms > least ? now + r->policy.wait_ms : least;
  int beyond = r->flight.last_look || (ends_flight && r->handed_over);
  return beyond && deadline < least ? least : deadline;
}

/* ---- CLAIM --------------------------------------------------------------------------------- */

static int make_claim(crl_run *r, crl_request *e) {
  if (crl_env_random(r->token, sizeof r->token) != CORRAL_OK) return CORRAL_EIO;
  r->has_token = 1;
  uint32_t cost_ms = r->found.record != NULL && r->flight.has_value
                         ? crl_found_cost_ms(r->found.envelope.cost_us)
                         : crl_found_recall_cost(&r->found);
  r->lease_ms = crl_policy_lease(&r->policy, cost_ms, r->found.other_lease_ms);
  corral_op op = new_op(r, CORRAL_VERB_CLAIM);
  op.claim.lease_ms = r->lease_ms;
  op.claim.front = e->front;
  op.claim.front_len = crl_put_wish(crl_key_digest(&r->found.key), cost_ms, e->front);
  op.claim.seen =
      r->found.record == NULL ? 0 : crl_record_stamp(r->found.record->data, r->found.record->size);
  op.claim.over = r->found.has_over ? r->found.over : NULL;
  if (r->found.record == NULL) op.flags |= CORRAL_OP_ABSENT;
  if (r->flight.blind) op.flags |= CORRAL_OP_LOOKS;
  crl_run_note_token(r);
  e->op[0] = op;
  r->claim_sent = crl_env_now_ms();
  return CORRAL_OK;
}

static void got_claim(crl_run *r, crl_request *e) {
  if (e->status == CORRAL_OK || e->status == CORRAL_EBUSY) e->read = crl_found_read(&r->found, e);
}

static crl_looker looker_of(const crl_run *r) {
  return (crl_looker){.token = r->has_token ? r->token : NULL,
                      .watcher = r->watches ? &r->watcher : NULL,
                      .hold = atomic_load(&((crl_run *)(uintptr_t)r)->hold)};
}

static void take_claim(crl_run *r, const crl_request *e, crl_told *told) {
  told->status = e->status;
  if (e->status != CORRAL_OK && e->status != CORRAL_EBUSY) {
    crl_found_recall(&r->found, &told->look);
    return;
  }
  crl_looker looker = looker_of(r);
  int read = crl_found_judge(&r->found, e, &looker, &told->look);
  crl_fact fact = crl_request_fact(e);
  if (e->status == CORRAL_OK)
    crl_found_tell_op(&r->found, CORRAL_EVENT_CLAIM, &fact);
  else if (read != CORRAL_OK)
    told->status = read;
  int is_miss = (told->status == CORRAL_OK || told->status == CORRAL_EBUSY) &&
                told->look.lives.fresh == 0 && told->look.lives.swr == 0;
  if (r->flight.blind && is_miss) crl_found_emit(&r->found, CORRAL_EVENT_MISS, NULL);
}

/* ---- SETTLE -------------------------------------------------------------------------------- */

/* An unmodified value is renewed in place; if it is gone or the store can't renew, SETTLE
 * follows. */
static void make_settle(crl_run *r, crl_request *e) {
  int renews = r->product.renew_ttl > 0;
  crl_found_date_near(&r->found, e);
  corral_op op = new_op(r, renews ? CORRAL_VERB_RENEW : CORRAL_VERB_SETTLE);
  if (renews)
    op.renew.ttl_ms = r->product.renew_ttl;
  else
    op.settle = (corral_settle_args){.record = r->product.record->data,
                                     .record_len = r->product.record->size,
                                     .ttl_ms = r->product.hard_ttl};
  e->op[0] = op;
}

static void tell_settled(crl_run *r, const crl_request *e) {
  crl_fact fact = crl_request_fact(e);
  fact.bytes = (int64_t)r->product.record->size;
  if (e->status == CORRAL_OK && r->fill.pass) return;
  corral_event event = CORRAL_EVENT_UNSTORED;
  int refreshes = r->handed_over && r->flight.answered && r->flight.answer != CRL_ANSWER_COMPUTED;
  if (e->status == CORRAL_OK)
    event = refreshes ? CORRAL_EVENT_REFRESH : CORRAL_EVENT_FILL;
  else if (e->status == CORRAL_ELOST)
    event = CORRAL_EVENT_FENCED;
  else
    fact.detail = r->found.error.text;
  crl_found_tell_op(&r->found, event, &fact);
}

static int take_settle(crl_run *r, const crl_request *e, crl_told *told) {
  const corral_op *op = &e->op[0];
  if (op->verb == CORRAL_VERB_RENEW &&
      (e->status == CORRAL_EMISS || e->status == CORRAL_EUNSUPPORTED)) {
    r->product.renew_ttl = 0;
    return 0;
  }
  crl_run_drop_lease(r);
  told->status = e->status;
  if (e->status == CORRAL_OK) crl_marks_clear(&r->context->gone, r->found.hash);
  tell_settled(r, e);
  crl_run_keep_near(r, e);
  if (e->status == CORRAL_OK) crl_outbox_filled(r->context->outbox, op->key, op->key_len, r->began);
  if (e->status == CORRAL_OK) crl_outbox_drop(r->context->verdicts, op->key, op->key_len);
  if ((e->status == CORRAL_EUNAVAILABLE || e->status == CORRAL_EINDOUBT) && !r->fill.pass)
    crl_run_keep_fill(r);
  return 1;
}

/* ---- RELEASE ------------------------------------------------------------------------------- */

/* The key of a verdict outlives the verdict, so that the next failure can count the earlier
 * ones. */
corral_op crl_run_release_op(crl_run *r, uint8_t front[CORRAL_FRONT], int64_t retry_ms,
                             const char *text, int32_t code) {
  corral_op op = new_op(r, CORRAL_VERB_RELEASE);
  corral_header verdict;
  if (retry_ms <= 0) return op;
  memset(&verdict, 0, sizeof verdict);
  verdict.state = CORRAL_VERDICT;
  verdict.code = code;
  verdict.failures = r->flight.failures;
  crl_print_fit(verdict.note, sizeof verdict.note, text);
  op.release = (corral_release_args){.verdict = front,
                                     .verdict_len = crl_record_write(&verdict, front),
                                     .verdict_ms = retry_ms,
                                     .keep_ms = 3 * retry_ms + r->policy.lease_ms};
  return op;
}

/* ---- an ask of any kind -------------------------------------------------------------------- */

void crl_run_prepare(crl_run *r, crl_request *e) {
  int ends_flight = r->ask == CRL_ASK_SETTLE || r->ask == CRL_ASK_RELEASE;
  crl_request_begin(&r->found, e, limit_of(r, ends_flight));
  if (e->began_us == 0) e->began_us = crl_stats_clock(&r->context->events.stats);
  if (r->entry != NULL) r->tick = crl_herd_tick(r->entry);
  switch (r->ask) {
    case CRL_ASK_GET:
      if (r->flight.looks > 0) crl_found_emit(&r->found, CORRAL_EVENT_POLL, NULL);
      crl_found_prepare(&r->found, e, r->watches);
      break;
    case CRL_ASK_CLAIM: e->status = make_claim(r, e); break;
    case CRL_ASK_SETTLE: make_settle(r, e); break;
    default: /* without a verdict, the compute may still write to the fill */
      e->op[0] = crl_run_release_op(r, e->front, r->flight.retry_ms, r->fill.text,
                                    r->flight.retry_ms > 0 ? r->fill.code : 0);
      break;
  }
  if (e->status != CORRAL_OK) e->count = 0;
}

void crl_run_complete(crl_run *r, crl_request *e) {
  if (r->ask == CRL_ASK_GET) {
    crl_found_complete(&r->found, e);
    return;
  }
  if (e->count == 0) return;
  e->status = e->op[0].status;
  int declines = e->op[0].verb == CORRAL_VERB_RENEW && e->status == CORRAL_EUNSUPPORTED;
  if (!declines) crl_found_tell_trouble(&r->found, e);
  if (r->ask == CRL_ASK_CLAIM) got_claim(r, e);
}

static void take_get(crl_run *r, const crl_request *e, crl_told *told) {
  crl_looker looker = looker_of(r);
  crl_found_interpret(&r->found, e, &looker, told);
  r->looked = r->tick;
  if (r->flight.looks == 0 && !r->flight.on_host) crl_found_tell_miss(&r->found, told);
}

int crl_run_interpret(crl_run *r, const crl_request *e, crl_told *told) {
  int taken = 1;
  told->slow = crl_found_met_slow(&r->found, e) != 0;
  if (r->entry != NULL) crl_herd_slow(r->entry, told->slow);
  switch (r->ask) {
    case CRL_ASK_GET: take_get(r, e, told); break;
    case CRL_ASK_CLAIM: take_claim(r, e, told); break;
    case CRL_ASK_SETTLE: taken = take_settle(r, e, told); break;
    default:
      crl_run_drop_lease(r);
      told->status = e->status;
      break;
  }
  if (taken) crl_run_confirm(r, told->status);
  return taken;
}

void crl_run_perform(crl_run *r, crl_told *told) {
  crl_request e;
  int taken = 0;
  while (!taken) {
    crl_run_prepare(r, &e);
    crl_found_perform(&r->found, &e);
    crl_run_complete(r, &e);
    crl_found_fetch(&r->found, &e);
    taken = crl_run_interpret(r, &e, told);
  }
}

/* ---- around the compute -------------------------------------------------------------------- */

void crl_run_lend_old(crl_run *r) {
  crl_bytes *bytes;
  size_t offset;
  crl_old *old = &r->fill.old;
  if (!r->flight.has_value || r->found.is_void || r->found.record == NULL ||
      r->found.envelope.kind != CRL_KIND_VALUE)
    return;
  if (crl_found_plain(&r->found, &bytes, &offset) != CORRAL_OK) return;
  *old = (crl_old){.data = bytes->data + offset,
                   .size = r->found.envelope.plain_len,
                   .validator = r->found.envelope.validator,
                   .validator_len = r->found.envelope.validator_len,
                   .tags = r->found.has_tags ? r->found.tags : NULL,
                   .version = r->found.envelope.version,
                   .ttl_ms = r->found.envelope.ttl_ms,
                   .swr_ms = r->found.envelope.swr_ms,
                   .sie_ms = r->found.envelope.sie_ms};
}

static crl_made stamp_tags(crl_run *r) {
  corral_error why;
  if (r->fill.tags == NULL) return CRL_MADE_VALUE;
  /* without versions of its tags, the value stays in this process: see replay.c */
  if (!r->flight.leased) return CRL_MADE_VALUE;
  int status =
      crl_tag_versions_stamp(r->context, r->fill.tags, &r->found.tag_versions, r->claim_sent, &why);
  if (status == CORRAL_OK && r->context->tag_memory != NULL)
    crl_tag_memory_note(r->context->tag_memory, r->found.hash, r->fill.tags);
  if (status == CORRAL_OK) return CRL_MADE_VALUE;
  crl_found_emit(&r->found, status == CORRAL_ELOST ? CORRAL_EVENT_FENCED : CORRAL_EVENT_UNSTORED,
                 status == CORRAL_ELOST ? NULL : why.text);
  return status == CORRAL_ELOST ? CRL_MADE_FENCED : CRL_MADE_UNKEPT;
}

crl_made crl_run_stamp(crl_run *r) {
  corral_fill *fill = &r->fill;
  if (fill->filled == CRL_FILLED_FAILURE || fill->filled == CRL_FILLED_NOT) return CRL_MADE_VALUE;
  if (!crl_fill_inherit(fill) || (r->context->generation && !crl_fill_tag_of_all(fill))) {
    corral_fill_fail(fill, CORRAL_ENOMEM, "out of memory");
    return CRL_MADE_VALUE;
  }
  if (fill->version != 0 && fill->version < r->found.stored_version) {
    snprintf(fill->text, sizeof fill->text, "a later version than what was computed is stored");
    return CRL_MADE_OLDER;
  }
  if (fill->filled == CRL_FILLED_NEGATIVE &&
      !crl_quota_take(&r->context->negatives, r->policy.negative_ttl_ms, crl_env_now_ms()))
    return CRL_MADE_UNKEPT;
  return stamp_tags(r);
}
