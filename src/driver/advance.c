/* advance.c: drives one run as far as it goes without waiting. */
#include "driver/advance.h"

#include "os/env.h"

static void step(crl_run *r, int status) {
  crl_told told;
  memset(&told, 0, sizeof told);
  told.status = status;
  crl_run_step(r, &told);
}

/* ---- asks ---------------------------------------------------------------------------------- */

/* 0: the wait is over. A wake that came before the wait, since the last look began, may tell of a
 * change that the look hasn't seen. */
static crl_need wait(crl_run *r, int woken, int64_t *until) {
  int is_over = woken;
  if (!r->waits) {
    int looks_again = crl_run_begin_wait(r);
    is_over = looks_again || (woken && !r->flight.at_host);
  }
  r->waits = !is_over && crl_env_now_ms() < r->flight.until && !crl_run_is_left(r);
  *until = r->flight.until;
  if (r->waits) return r->flight.at_host ? CRL_NEED_HOST : CRL_NEED_WAKE;
  step(r, CORRAL_OK);
  return (crl_need)0;
}

/* 0: the run has its slot, or won't get it. */
static crl_need take_slot(crl_run *r, int64_t *until) {
  crl_told told;
  memset(&told, 0, sizeof told);
  if (!crl_run_ask_slot(r, &told, until)) return CRL_NEED_WAKE;
  crl_run_step(r, &told);
  return (crl_need)0;
}

/* The token is forgotten first: a caller that has its answer may free it. */
static void answer(crl_run *r) {
  crl_caller *caller = r->flown.caller;
  if (caller != NULL) crl_run_forget_caller(r);
  crl_run_answer(r);
  if (caller != NULL) caller->answered(caller, r);
  step(r, CORRAL_OK);
}

static void take_host(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_take_host(r, &told);
  crl_run_step(r, &told);
  if (r->flight.passed && !told.passed) crl_run_pass_host(r);
}

static void find_outbox(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_find_outbox(r, &told);
  crl_run_step(r, &told);
}

static void publish(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  told.behind = crl_run_publish(r) != 0;
  crl_run_step(r, &told);
}

/* True if the call may end now although the lease of its compute hasn't: the caller has its answer.
 * After a stale answer the call goes on for the computed value, and waits until its deadline for
 * the settle, unless that goes on behind it. */
static int is_late(const crl_run *r) {
  int waits = r->behind == 0 && (r->flight.answer == CRL_ANSWER_STALE || r->flight.early);
  return r->flight.answered && r->flight.made != 0 &&
         (r->ask == CRL_ASK_SETTLE || r->ask == CRL_ASK_RELEASE) &&
         (!waits || crl_env_now_ms() >= r->flight.plan.deadline);
}

/* True when the run is to be handed over: to a bound compute, and behind an answer also to the
 * rungs that lead to it, the caller's thread doesn't go. A nested call lends its thread until it is
 * answered. */
static int goes_elsewhere(const crl_run *r) {
  int climbs = r->ask == CRL_ASK_CLAIM || r->ask == CRL_ASK_SLOT || r->ask == CRL_ASK_HOST;
  if (r->handed_over) return 0;
  if (is_late(r)) return 1;
  if (!r->bound || r->flight.alone == CRL_ALONE_DEADLINE) return 0;
  if (r->flight.answered) return climbs || r->ask == CRL_ASK_COMPUTE;
  return r->ask == CRL_ASK_COMPUTE && (r->start != NULL || !r->nested);
}

crl_need crl_advance(crl_run *r, int woken, int64_t *until) {
  for (;; woken = 0) {
    crl_need need = (crl_need)0;
    if (goes_elsewhere(r)) return CRL_NEED_ELSEWHERE;
    switch (r->ask) {
      case CRL_ASK_GET:
      case CRL_ASK_CLAIM:
      case CRL_ASK_SETTLE:
      case CRL_ASK_RELEASE: return CRL_NEED_STORE;
      case CRL_ASK_WAIT: need = wait(r, woken, until); break;
      case CRL_ASK_SLOT: need = take_slot(r, until); break;
      case CRL_ASK_ANSWER: answer(r); break;
      case CRL_ASK_PUBLISH: publish(r); break;
      case CRL_ASK_HOST: take_host(r); break;
      case CRL_ASK_OUTBOX: find_outbox(r); break;
      case CRL_ASK_COMPUTE: return CRL_NEED_COMPUTE;
      case CRL_ASK_DONE: crl_run_conclude(r); return CRL_NEED_NOTHING;
    }
    if (need != 0) return need;
  }
}

/* ---- compute ------------------------------------------------------------------------------- */

/* Called at the end of a compute that `start` began, for which fetch() waits. */
static void on_ended(corral_fill *fill, int abandoned) {
  crl_run *r = (crl_run *)(void *)((char *)fill - offsetof(crl_run, fill));
  if (abandoned) corral_fill_fail(fill, CORRAL_ECLOSED, corral_status_text(CORRAL_ECLOSED));
  crl_waiter_wake(&r->fetched);
}

static int fetch(crl_run *r) {
  /* the compute refers to this run, and would go on if this thread were cancelled */
  (void)crl_env_cancel_off();
  r->fetched = (crl_waiter){0};
  r->fill.ended = on_ended;
  r->start(r->arg, &r->fill, r->found.key.user, r->found.key.user_len);
  crl_waiter_sleep(&r->fetched, INT64_MAX);
  return CORRAL_OK;
}

static int call(crl_run *const *runs, corral_fill **fills, size_t count) {
  __attribute__((cleanup(crl_run_unwind))) crl_inside inside;
  crl_run *r = runs[0];
  crl_run_go_inside(&inside, runs, count);
  int status = r->compute_many != NULL ? r->compute_many(fills, count, r->arg)
               : r->start != NULL
                   ? fetch(r)
                   : r->compute(&r->fill, r->found.key.user, r->found.key.user_len, r->arg);
  crl_run_come_outside(&inside);
  return status;
}

/* A negative status of a compute is a failure; that of a compute of several keys, of those that
 * have no answer. */
static void fail_if(crl_run *r, int status) {
  int keeps = r->compute_many != NULL ? r->fill.filled != CRL_FILLED_NOT
                                      : r->fill.filled == CRL_FILLED_FAILURE;
  if (status < 0 && !keeps) corral_fill_fail(&r->fill, status, corral_status_text(status));
}

void crl_advance_compute(crl_run *const *runs, corral_fill **fills, size_t count) {
  crl_told told;
  for (size_t i = 0; i < count; i++) {
    fills[i] = &runs[i]->fill;
    crl_run_begin_compute(runs[i]);
  }
  int status = call(runs, fills, count);
  int64_t ended_us = crl_env_now_us();
  for (size_t i = 0; i < count; i++) {
    fail_if(runs[i], status);
    crl_run_made(runs[i], ended_us, &told);
    runs[i]->made = told.made;
  }
  for (size_t i = 0; i < count; i++) crl_run_end_compute(runs[i]);
  for (size_t i = 0; i < count; i++) {
    memset(&told, 0, sizeof told);
    told.made = runs[i]->made;
    crl_run_step(runs[i], &told);
  }
}

void crl_advance_computed(crl_run *r, int64_t ended_us) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_made(r, ended_us, &told);
  crl_run_end_compute(r);
  crl_run_step(r, &told);
}
