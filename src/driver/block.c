/* block.c: performs the asks of a flight, for calls of one key. Makes no decisions. */
#include "driver/block.h"

#include <stdlib.h>

#include "os/env.h"
#include "os/hash.h"
#include "driver/async.h"
#include "store/registry.h"
#include "run/run.h"
#include "base/status.h"

/* ---- compute ------------------------------------------------------------------------------- */

/* Called at the end of an asynchronous compute, for which fetch() waits. */
static void on_ended(corral_fill *fill, int abandoned) {
  crl_run *r = (crl_run *)(void *)((char *)fill - offsetof(crl_run, fill));
  if (abandoned) corral_fill_fail(fill, CORRAL_ECLOSED, corral_status_text(CORRAL_ECLOSED));
  crl_waiter_wake(&r->fetched);
}

static int fetch(crl_run *r) {
  /* the compute refers to this run, and would go on if this thread were cancelled */
  (void)crl_env_cancel_off();
  crl_waiter_init(&r->fetched);
  r->fill.ended = on_ended;
  r->start(r->arg, &r->fill, r->key.user, r->key.user_len);
  while (!crl_waiter_sleep(&r->fetched, INT64_MAX)) {
  }
  crl_waiter_clean(&r->fetched);
  return CORRAL_OK;
}

static int run_compute(crl_run *r) {
  __attribute__((cleanup(crl_run_unwind))) crl_inside inside;
  crl_run_go_inside(&inside, &r, 1);
  int status =
      r->start != NULL ? fetch(r) : r->compute(&r->fill, r->key.user, r->key.user_len, r->arg);
  crl_run_come_outside(&inside);
  return status;
}

static void do_compute(crl_run *r, crl_told *told) {
  crl_run_begin_compute(r);
  int status = run_compute(r);
  int64_t ended = crl_env_now_us();
  if (status < 0 && r->fill.filled != CRL_FILLED_FAILURE)
    corral_fill_fail(&r->fill, status, corral_status_text(status));
  crl_run_made(r, ended, told);
  crl_run_end_compute(r);
}

/* ---- rungs --------------------------------------------------------------------------------- */

static void take_slot(crl_run *r, crl_told *told) {
  int waited = 0;
  crl_worker_wait_begin();
  told->status = crl_semaphore_enter(r->context->origin, (crl_rank)r->flight.rank, r->flight.until,
                                     r->cancel_token, &r->slot, &waited);
  crl_worker_wait_end();
  r->has_slot = told->status == CORRAL_OK;
  if (waited) crl_run_emit(r, CORRAL_EVENT_LIMITED, NULL);
}

static void wait_until(crl_run *r) {
  int looks_again = crl_run_begin_wait(r);
  if (r->flight.at_host)
    crl_hostlock_wait(r->context->hostlock, r->key.whole, r->key.whole_len, r->flight.until,
                      r->cancel_token);
  else if (!looks_again && !crl_cancelled(r->cancel_token))
    crl_waiter_sleep(r->waiter, r->flight.until);
}

/* ---- asks ---------------------------------------------------------------------------------- */

static void do_ask(crl_run *r, crl_told *told) {
  switch (r->ask) {
    case CRL_ASK_GET:
    case CRL_ASK_CLAIM:
    case CRL_ASK_SETTLE:
    case CRL_ASK_RELEASE: crl_run_perform(r, told); break;
    case CRL_ASK_WAIT: wait_until(r); break;
    case CRL_ASK_COMPUTE: do_compute(r, told); break;
    case CRL_ASK_ANSWER: crl_run_answer(r); break;
    case CRL_ASK_SLOT: take_slot(r, told); break;
    case CRL_ASK_HOST: crl_run_take_host(r, told); break;
    case CRL_ASK_OUTBOX: crl_run_find_outbox(r, told); break;
    case CRL_ASK_DONE: break;
  }
}

/* True when another thread is to go on with the run: for a bound compute, and for all rungs to it
 * behind a stale answer. With `start` that is the scheduler's; else a worker, unless this thread is
 * one. */
static int wants_worker(const crl_run *r) {
  int climbs = r->ask == CRL_ASK_CLAIM || r->ask == CRL_ASK_SLOT || r->ask == CRL_ASK_HOST;
  return r->bound && !r->handed_over && r->flight.alone != CRL_ALONE_DEADLINE &&
         (r->ask == CRL_ASK_COMPUTE || (climbs && r->flight.answered)) &&
         (r->start != NULL || !crl_worker_here());
}

/* Flies to the end: 1. 0: another thread is to go on with the run. */
static int fly(crl_run *r) {
  while (r->ask != CRL_ASK_DONE) {
    if (wants_worker(r)) return 0;
    crl_told told;
    memset(&told, 0, sizeof told);
    do_ask(r, &told);
    crl_run_step(r, &told);
  }
  crl_run_conclude(r);
  return 1;
}

/* Cleanup handlers: also called when the thread is cancelled or an exception passes. */
static void free_run(crl_run **r) {
  if (*r != NULL) crl_run_free(*r);
}

static void leave_entry(crl_entry **entry) {
  if (*entry != NULL) crl_entry_unref(*entry);
}

static void job_run(crl_job *job) {
  __attribute__((cleanup(free_run))) crl_run *r =
      (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
  fly(r);
}

static void job_drop(crl_job *job) {
  crl_run *r = (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
  crl_run_abandon(r);
  crl_run_free(r);
}

/* ---- one call ------------------------------------------------------------------------------ */

/* Waits on an entry, for another caller's flight or (`own`) for this call's own on another
 * thread. */
static crl_turn await(crl_context *context, const crl_call *call, crl_entry *entry,
                      int64_t deadline, int own, crl_outcome *outcome) {
  crl_patience patience = crl_run_patience(call, deadline);
  patience.owns = own;
  crl_worker_wait_begin();
  crl_wait came = crl_herd_wait(entry, &patience, outcome);
  crl_worker_wait_end();
  return crl_run_turn(context, call, came, &patience, outcome);
}

static int hand_over(crl_run *r) {
  r->handed_over = 1;
  r->job = (crl_job){.run = job_run, .drop = job_drop};
  if (r->start != NULL) return crl_scheduler_fly(r->context->scheduler, r, NULL) == CORRAL_OK;
  return crl_workers_submit(r->context->workers, &r->job) == 0;
}

/* Flies the run and frees it, or hands it over where another thread is to go on with it. If there
 * is no such thread, flies it to the end here. */
static crl_turn take_off(crl_run *r, const crl_call *call, crl_entry *entry, int64_t deadline,
                         crl_outcome *outcome) {
  __attribute__((cleanup(free_run))) crl_run *owned = r;
  int ended = fly(r), answered = r->flight.answered;
  crl_context *context = r->context;
  if (ended || answered) *outcome = crl_run_outcome(r);
  if (!ended) {
    crl_run_forget_caller(r);
    if (hand_over(r)) {
      owned = NULL;
      return answered ? CRL_TURN_ENDED : await(context, call, entry, deadline, 1, outcome);
    }
    fly(r);
    if (!answered) *outcome = crl_run_outcome(r);
  }
  return CRL_TURN_ENDED;
}

/* Leads the flight of `entry` (NULL: no caller can join). */
static crl_turn lead(crl_context *context, const crl_call *call, crl_entry *entry, int64_t deadline,
                     crl_turn how, crl_outcome *outcome) {
  crl_run *r = crl_run_new(context, call, deadline,
                           how == CRL_TURN_ALONE        ? CRL_ALONE_PASS
                           : how == CRL_TURN_ALONE_HERE ? CRL_ALONE_DEADLINE
                                                        : CRL_ALONE_NOT);
  if (r == NULL) {
    if (entry != NULL) crl_herd_give_up(entry);
    *outcome = crl_outcome_plain(CORRAL_ENOMEM);
    return CRL_TURN_ENDED;
  }
  if (entry != NULL) r->entry = crl_entry_ref(entry);
  crl_run_meet_caller(r, call->cancel_token);
  return take_off(r, call, entry, deadline, outcome);
}

/* Takes one turn of a call; returns the next one. */
static crl_turn take_turn(crl_context *context, const crl_call *call, int64_t deadline,
                          crl_turn how, crl_outcome *outcome) {
  int leads = 1;
  __attribute__((cleanup(leave_entry))) crl_entry *entry = NULL;
  crl_name name = crl_call_name(call);
  memset(outcome, 0, sizeof *outcome);
  if (crl_call_computes(call)) {
    entry = how == CRL_TURN_ENTER ? crl_herd_enter(context->herd, &name, &leads)
                                  : crl_herd_private(context->herd, &name);
    if (entry == NULL) {
      *outcome = crl_outcome_plain(CORRAL_ENOMEM);
      return CRL_TURN_ENDED;
    }
  }
  if (!leads) crl_event_emit(&context->events, CORRAL_EVENT_JOIN, call->key, call->key_len, NULL);
  return leads ? lead(context, call, entry, deadline, how, outcome)
               : await(context, call, entry, deadline, 0, outcome);
}

int crl_block_call(crl_context *context, crl_call *call, corral_value **ret) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  call->cancel = cancel;
  crl_outcome outcome;
  crl_turn next = CRL_TURN_ENTER;
  if (crl_run_recurses(context, call)) return crl_status_plain(call->error, CORRAL_ERECURSION);
  if (crl_run_near(context, call, &call->early, &outcome)) {
    crl_event_emit(&context->events, CORRAL_EVENT_NEAR, call->key, call->key_len, NULL);
    return crl_outcome_deliver(&outcome, call->error, ret);
  }
  int64_t deadline = crl_env_now_ms() + call->policy.wait_ms;
  while (next != CRL_TURN_ENDED) next = take_turn(context, call, deadline, next, &outcome);
  return crl_outcome_deliver(&outcome, call->error, ret);
}
