/* answer.c: the answer of a flight, for its caller and for all who share it. */
#include "os/env.h"
#include "run/run.h"
#include "base/status.h"

static crl_outcome stored_outcome(crl_run *r, corral_how how) {
  crl_outcome outcome = {
      .status = CORRAL_OK, .how = how, .age_ms = r->age_ms, .version = r->envelope.version};
  if (how != CORRAL_STALE && r->envelope.kind == CRL_KIND_NEGATIVE) {
    outcome.status = crl_status_plain(&outcome.error, CORRAL_ENOTFOUND);
    return outcome;
  }
  int status = crl_run_plain(r, &outcome.bytes, &outcome.offset);
  outcome.size = r->envelope.plain_len;
  if (status == CORRAL_OK)
    crl_bytes_ref(outcome.bytes);
  else
    outcome.status = crl_status_plain(&outcome.error, status);
  return outcome;
}

static crl_outcome failed_outcome(int32_t code, const char *text, size_t text_size,
                                  int64_t retry_ms) {
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
                         .version = r->fill.version};
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
  crl_outcome outcome = {.status = r->flight.status};
  if (r->error.text[0] != '\0' && r->flight.status != CORRAL_EDEADLINE &&
      r->flight.status != CORRAL_EMISS)
    crl_status_fail(&outcome.error, outcome.status, "%s", r->error.text);
  else
    crl_status_plain(&outcome.error, outcome.status);
  return outcome;
}

static crl_outcome build_outcome(crl_run *r, int64_t retry_left) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED:
      return stored_outcome(r, r->flight.looks > 0 ? CORRAL_JOINED : CORRAL_FRESH);
    case CRL_ANSWER_STALE: return stored_outcome(r, CORRAL_STALE);
    case CRL_ANSWER_VERDICT:
      return failed_outcome(r->header.code, r->header.note, CORRAL_NOTE, retry_left);
    case CRL_ANSWER_OUTBOX: return stored_outcome(r, CORRAL_OUTBOX);
    case CRL_ANSWER_COMPUTED: return computed_outcome(r);
    case CRL_ANSWER_FAILED:
      return failed_outcome(r->fill.code, r->fill.text, sizeof r->fill.text, r->flight.retry_ms);
    case CRL_ANSWER_ERROR: break;
  }
  return error_outcome(r);
}

static void count_found(crl_run *r, corral_event event) {
  crl_run_fact fact = {.duration_us = -1, .bytes = (int64_t)r->answer.size};
  crl_run_tell(r, event, &fact);
}

static void count_error(crl_run *r, corral_event event, const char *detail) {
  crl_run_fact fact = {
      .status = r->answer.status, .duration_us = -1, .bytes = -1, .detail = detail};
  if (event == CORRAL_EVENT_DEADLINE)
    fact.duration_us = (crl_env_now_ms() - r->flight.plan.deadline + r->policy.wait_ms) * 1000;
  crl_run_tell(r, event, &fact);
}

static void count_answer(crl_run *r) {
  switch ((crl_answer)r->flight.answer) {
    case CRL_ANSWER_STORED:
      if (r->answer.status == CORRAL_ENOTFOUND)
        count_error(r, CORRAL_EVENT_NEGATIVE, NULL);
      else if (r->flight.looks == 0)
        count_found(r, CORRAL_EVENT_HIT);
      break;
    case CRL_ANSWER_STALE: count_found(r, CORRAL_EVENT_STALE); break;
    case CRL_ANSWER_OUTBOX: count_found(r, CORRAL_EVENT_OUTBOX_HIT); break;
    case CRL_ANSWER_VERDICT: count_error(r, CORRAL_EVENT_VERDICT, r->answer.error.text); break;
    case CRL_ANSWER_ERROR:
      if (r->flight.status == CORRAL_EDEADLINE) count_error(r, CORRAL_EVENT_DEADLINE, NULL);
      break;
    default: break;
  }
}

void crl_run_lend_stale(crl_run *r) {
  if (r->entry == NULL || r->found == NULL || r->flight.sie_until <= crl_env_now_ms()) return;
  crl_outcome stale = stored_outcome(r, CORRAL_STALE);
  if (stale.status != CORRAL_OK) return;
  crl_herd_interim(r->entry, &stale, 0, r->flight.sie_until);
  crl_bytes_unref(stale.bytes);
}

/* True for an answer after which the flight goes on to compute. */
static int serves_meanwhile(const crl_run *r) {
  return r->flight.answer == CRL_ANSWER_STALE || r->flight.early;
}

/* An error is the caller's own: other callers have later deadlines, or can do what this one could
 * not. */
static void publish(crl_run *r) {
  if (r->entry == NULL) return;
  if (r->fill.pass) crl_herd_pass(r->entry);
  if (r->flight.answer == CRL_ANSWER_ERROR)
    crl_herd_give_up(r->entry);
  else if (serves_meanwhile(r) && (r->flight.leased || r->flight.refresh))
    crl_herd_interim(r->entry, &r->answer,
                     r->flight.early ? r->flight.fresh_until : r->flight.swr_until,
                     r->flight.early ? r->flight.fresh_until : r->flight.sie_until);
  else
    crl_herd_land(r->entry, &r->answer);
}

void crl_run_answer(crl_run *r) {
  r->answer = build_outcome(r, r->last.retry_left);
  count_answer(r);
  publish(r);
}

/* After a stale answer the flight went on: its product is for the flight's owner, if that still
 * waits, and for late joiners. */
void crl_run_conclude(crl_run *r) {
  if (serves_meanwhile(r) && r->flight.made != 0 && r->flight.made != CRL_MADE_FAILURE) {
    crl_bytes_unref(r->answer.bytes);
    r->answer = computed_outcome(r);
    if (r->entry != NULL && r->fill.pass) crl_herd_pass(r->entry);
    if (r->entry != NULL) crl_herd_land(r->entry, &r->answer);
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
}

crl_outcome crl_run_outcome(const crl_run *r) {
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

int crl_outcome_deliver(crl_outcome *outcome, corral_error *error, corral_value **ret) {
  int status = outcome->status;
  if (status == CORRAL_OK) {
    corral_value *value =
        crl_value_new(outcome->bytes, outcome->offset, outcome->size, outcome->how, outcome->age_ms,
                      outcome->kept, outcome->version);
    if (value == NULL)
      status = crl_status_plain(error, CORRAL_ENOMEM);
    else
      *ret = value;
  } else if (error != NULL) {
    *error = outcome->error;
  }
  crl_bytes_unref(outcome->bytes);
  return status;
}
