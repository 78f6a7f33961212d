/* answer.c: the answer of a flight, for its caller and for all who share it. */
#include "os/at_exit.h"
#include "os/env.h"
#include "run/run.h"
#include "base/status.h"

enum { BEHIND_BYTES = 16 << 20 };

crl_outcome crl_outcome_failed(int32_t code, const char *text, size_t text_size, int64_t retry_ms) {
  crl_outcome outcome = {.status = CORRAL_EFAILED};
  crl_status_fail(&outcome.error, CORRAL_EFAILED, "%.*s", (int)text_size, text);
  outcome.error.code = code;
  outcome.error.retry_after_ms = retry_ms;
  return outcome;
}

static crl_outcome computed_outcome(const crl_run *r) {
  crl_outcome outcome = {.status = CORRAL_OK,
                         .how = CORRAL_COMPUTED,
                         .kept = (corral_kept)r->flight.kept,
                         .version = r->fill.version,
                         .cost_us = r->cost_us};
  if (r->fill.filled == CRL_FILLED_NEGATIVE) {
    outcome.status = crl_status_plain(&outcome.error, CORRAL_ENOTFOUND);
    return outcome;
  }
  outcome.bytes = crl_bytes_ref(r->product.plain);
  outcome.offset = r->product.at;
  outcome.size = r->product.size;
  return outcome;
}

static crl_outcome error_outcome(const crl_run *r) {
  crl_outcome outcome = {.status = r->flight.status, .returned = r->flight.returned};
  if (r->found.error.text[0] != '\0' && r->flight.status != CORRAL_EDEADLINE &&
      r->flight.status != CORRAL_EMISS && r->flight.status != CORRAL_EFROZEN)
    crl_status_fail(&outcome.error, outcome.status, "%s", r->found.error.text);
  else
    crl_status_plain(&outcome.error, outcome.status);
  return outcome;
}

/* The failure for which a stale value is the answer; 0: none. */
static int32_t failure_of(const crl_run *r, int64_t retry_left) {
  if (r->flight.made == CRL_MADE_FAILURE) return r->fill.code;
  return retry_left > 0 ? r->found.header.code : 0;
}

static crl_outcome stale_outcome(crl_run *r, int64_t retry_left) {
  crl_outcome outcome = crl_found_outcome(&r->found, CORRAL_STALE);
  outcome.failure = failure_of(r, retry_left);
  return outcome;
}

static crl_outcome build_outcome(crl_run *r, int64_t retry_left) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED:
      return crl_found_outcome(&r->found, r->flight.looks > 0 ? CORRAL_JOINED : CORRAL_FRESH);
    case CRL_ANSWER_STALE: return stale_outcome(r, retry_left);
    case CRL_ANSWER_VERDICT:
      return crl_outcome_failed(r->found.header.code, r->found.header.note, CORRAL_NOTE,
                                retry_left);
    case CRL_ANSWER_OUTBOX: return crl_found_outcome(&r->found, CORRAL_OUTBOX);
    case CRL_ANSWER_COMPUTED: return computed_outcome(r);
    case CRL_ANSWER_FAILED:
      return crl_outcome_failed(r->fill.code, r->fill.text, sizeof r->fill.text,
                                r->flight.retry_ms);
    case CRL_ANSWER_ERROR: break;
  }
  return error_outcome(r);
}

static void tell_deadline(crl_run *r) {
  int64_t began = r->flight.plan.deadline - r->policy.wait_ms;
  crl_fact fact = {
      .status = CORRAL_EDEADLINE, .duration_us = (crl_env_now_ms() - began) * 1000, .bytes = -1};
  crl_found_tell(&r->found, CORRAL_EVENT_DEADLINE, &fact);
}

/* The event of the flight's answer; -1: none. */
static int event_of(const crl_run *r) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED:
      if (r->answer.status == CORRAL_ENOTFOUND) return CORRAL_EVENT_NEGATIVE;
      return r->flight.looks == 0 ? CORRAL_EVENT_HIT : -1;
    case CRL_ANSWER_STALE: return CORRAL_EVENT_STALE;
    case CRL_ANSWER_OUTBOX: return CORRAL_EVENT_OUTBOX_HIT;
    case CRL_ANSWER_VERDICT: return CORRAL_EVENT_VERDICT;
    default: return -1;
  }
}

static void tell_answer(crl_run *r) {
  int event = event_of(r);
  if (event >= 0)
    crl_found_tell_answer(&r->found, (corral_event)event, &r->answer);
  else if (r->flight.answer == CRL_ANSWER_ERROR && r->flight.status == CORRAL_EDEADLINE)
    tell_deadline(r);
}

void crl_run_lend_stale(crl_run *r) {
  if (r->entry == NULL || r->found.record == NULL || r->flight.sie_until <= crl_env_now_ms())
    return;
  crl_outcome stale = crl_found_outcome(&r->found, CORRAL_STALE);
  if (stale.status != CORRAL_OK) return;
  crl_herd_interim(r->entry, &stale, 0, r->flight.sie_until);
  crl_bytes_unref(stale.bytes);
}

/* True for an answer after which the flight goes on to compute. */
static int serves_meanwhile(const crl_run *r) {
  return r->flight.answer == CRL_ANSWER_STALE || r->flight.early;
}

/* Nobody tells this process of a tag that another one invalidates. So a value with tags is good for
 * those who came before their versions were read; the others look anew, together. */
static int has_tags(const crl_run *r) { return r->fill.tags != NULL && r->fill.tags->count > 0; }

static void land(crl_run *r) {
  int limited = has_tags(r) && r->answer.status == CORRAL_OK && r->good != CRL_GOOD_FOR_ALL;
  crl_herd_land(r->entry, &r->answer, limited && r->good > r->looked ? r->looked : r->good);
}

/* An error is the caller's own: other callers have later deadlines, or can do what this one could
 * not. */
static void publish(crl_run *r) {
  if (r->entry == NULL) return;
  if (r->fill.pass) crl_herd_pass(r->entry);
  if (r->flight.answer == CRL_ANSWER_ERROR)
    crl_herd_give_up(r->entry);
  else if (r->flight.made != 0 && r->flight.answer == CRL_ANSWER_COMPUTED && r->flight.leased)
    r->lands_later = 1; /* the other callers wait for the settle */
  else if (r->flight.made == 0 && serves_meanwhile(r) && (r->flight.leased || r->flight.refresh))
    crl_herd_interim(r->entry, &r->answer,
                     r->flight.early ? r->flight.fresh_until : r->flight.swr_until,
                     r->flight.early ? r->flight.fresh_until : r->flight.sie_until);
  else
    land(r);
}

void crl_run_answer(crl_run *r) {
  crl_run_end_wait(r);
  r->answer = build_outcome(r, r->last.retry_left);
  if (!crl_run_verifies(r)) tell_answer(r);
  publish(r);
}

/* Takes room for a run whose record is stored behind its caller's answer. One always has it. */
static int take_room(crl_run *r) {
  size_t record = r->product.record == NULL ? 0 : r->product.record->size;
  int64_t size = (int64_t)(sizeof *r + record);
  int64_t before = atomic_fetch_add(&r->context->behind, size);
  if (before == 0 || before + size <= BEHIND_BYTES)
    r->behind = size;
  else
    atomic_fetch_sub(&r->context->behind, size);
  return r->behind > 0;
}

void crl_run_give_room(crl_run *r) {
  if (r->behind > 0) atomic_fetch_sub(&r->context->behind, r->behind);
  r->behind = 0;
}

/* Where a settle asks no other process, it is over before a thread could take it on. Without a
 * caller that waits nothing is gained; "can't be cached" is remembered before it is told. */
static int goes_behind(crl_run *r) {
  if (r->policy.settle_behind <= 0 || r->context->looks_first || r->fill.pass) return 0;
  return !(r->handed_over && r->flight.answered) && take_room(r);
}

int crl_run_publish(crl_run *r) {
  int behind = goes_behind(r);
  r->published = 1;
  crl_at_exit_begin(r->context->op_ms);
  if (r->entry == NULL || r->fill.pass) return behind;
  crl_outcome value = computed_outcome(r);
  if (has_tags(r)) crl_herd_limit(r->entry, r->looked);
  crl_herd_publish(r->entry, &value, behind);
  crl_bytes_unref(value.bytes);
  return behind;
}

/* True for a stale answer whose flight has computed a value since. */
static int has_better(const crl_run *r) {
  return serves_meanwhile(r) && r->flight.made != 0 && r->flight.made != CRL_MADE_FAILURE;
}

/* After its answer the flight went on: its product is for the flight's owner, if that still waits,
 * and for late joiners. */
void crl_run_conclude(crl_run *r) {
  if (has_better(r) || r->lands_later) {
    crl_bytes_unref(r->answer.bytes);
    r->answer = computed_outcome(r);
    if (r->entry != NULL && r->fill.pass) crl_herd_pass(r->entry);
    if (r->entry != NULL) land(r);
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
}

crl_outcome crl_run_outcome(const crl_run *r) {
  if (has_better(r)) return computed_outcome(r);
  crl_outcome outcome = r->answer;
  if (outcome.bytes != NULL) crl_bytes_ref(outcome.bytes);
  return outcome;
}

/* ---- outcomes ------------------------------------------------------------------------------ */

crl_outcome crl_outcome_plain(int status) {
  crl_outcome outcome = {.status = status};
  crl_status_plain(&outcome.error, status);
  return outcome;
}

void crl_outcome_drop(crl_outcome *outcome) {
  crl_bytes_unref(outcome->bytes);
  corral_value_unref(outcome->value);
}

static corral_result result_of(const crl_outcome *outcome, int status) {
  static const corral_result by_how[] = {[CORRAL_FRESH] = CORRAL_RESULT_FRESH,
                                         [CORRAL_STALE] = CORRAL_RESULT_STALE,
                                         [CORRAL_COMPUTED] = CORRAL_RESULT_COMPUTED,
                                         [CORRAL_JOINED] = CORRAL_RESULT_JOINED,
                                         [CORRAL_OUTBOX] = CORRAL_RESULT_OUTBOX};
  int is_new = outcome->how == CORRAL_COMPUTED || outcome->how == CORRAL_JOINED;
  switch (status) {
    case CORRAL_OK: return by_how[outcome->how];
    case CORRAL_ENOTFOUND: return is_new ? by_how[outcome->how] : CORRAL_RESULT_NEGATIVE;
    case CORRAL_EMISS: return CORRAL_RESULT_MISS;
    case CORRAL_EFAILED:
    case CORRAL_EABANDONED: return CORRAL_RESULT_FAILED;
    case CORRAL_EDEADLINE: return CORRAL_RESULT_DEADLINE;
    default: return CORRAL_RESULT_ERROR;
  }
}

static void count(const crl_context *context, const crl_outcome *outcome, int status) {
  if (context == NULL || outcome->is_counted) return;
  int saves =
      outcome->how != CORRAL_COMPUTED && (status == CORRAL_OK || status == CORRAL_ENOTFOUND);
  crl_stats_result(&context->events.stats, result_of(outcome, status),
                   saves ? outcome->cost_us : 0);
}

int crl_outcome_deliver(const crl_context *context, crl_outcome *outcome, corral_error *error,
                        corral_value **ret) {
  int status = outcome->status;
  if (outcome->value != NULL) {
    *ret = outcome->value;
    return status;
  }
  if (status == CORRAL_OK) {
    corral_value *value = crl_value_new(outcome->bytes, &(crl_about){.offset = outcome->offset,
                                                                     .size = outcome->size,
                                                                     .how = outcome->how,
                                                                     .kept = outcome->kept,
                                                                     .age_ms = outcome->age_ms,
                                                                     .version = outcome->version,
                                                                     .failure = outcome->failure});
    if (value == NULL)
      status = crl_status_plain(error, CORRAL_ENOMEM);
    else
      *ret = value;
  } else if (error != NULL) {
    *error = outcome->error;
  }
  count(context, outcome, status);
  crl_bytes_unref(outcome->bytes);
  return status;
}
