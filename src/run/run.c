/* run.c: the life of a run: making, stepping, freeing it; its caller; and computes asked for from
 * within computes. */
#include "run/run.h"

#include <stdlib.h>

#include "os/at_exit.h"
#include "os/env.h"
#include "os/readers.h"

_Thread_local const crl_computing *crl_run_computing CRL_IN_FIRST_BLOCK;

/* ---- nested computes ----------------------------------------------------------------------- */

const crl_computing *crl_run_inside(const crl_computing *inner) {
  const crl_computing *outer = crl_run_computing;
  crl_run_computing = inner;
  return outer;
}

/* Copies the chain of computes that this run was asked for from, which is needed on a worker, and
 * after the caller has left. Runs that compute together have the same ancestors. 0 without
 * memory. */
static int descend(crl_run *r) {
  const crl_computing *computing = crl_run_computing;
  if (computing == NULL) return 1;
  const crl_run *first = computing->runs[0];
  r->ancestors = crl_alloc((computing->count + first->depth) * sizeof *r->ancestors);
  if (r->ancestors == NULL) return 0;
  for (size_t i = 0; i < computing->count; i++)
    r->ancestors[r->depth++] = computing->runs[i]->found.self;
  for (size_t i = 0; i < first->depth; i++) r->ancestors[r->depth++] = first->ancestors[i];
  return 1;
}

unsigned crl_run_lends(void) {
  if (crl_run_computing != NULL) return CRL_PLACE_COMPUTE | CRL_PLACE_THREAD;
  return crl_worker_has_place() ? CRL_PLACE_THREAD : 0;
}

int crl_run_is_computing(const crl_context *context, const crl_name *name) {
  const crl_computing *computing = crl_run_computing;
  int found = 0;
  const crl_run *first = computing->runs[0];
  uint64_t self = crl_found_self(context, crl_name_hash(name));
  for (size_t i = 0; i < computing->count; i++) found |= computing->runs[i]->found.self == self;
  for (size_t i = 0; i < first->depth; i++) found |= first->ancestors[i] == self;
  return found;
}

/* ---- the caller ---------------------------------------------------------------------------- */

void crl_run_stop(void *arg) {
  crl_run *r = arg;
  atomic_store(&r->fill.stop, 1);
}

/* The cancel token was cancelled: ends the waiter, and also a compute inside of the call, if
 * stop_alone is set and no other caller waits for it. */
static void on_leave(void *arg) {
  crl_run *r = arg;
  crl_waiter_wake(r->waiter);
  if (!atomic_load(&r->inside) || r->policy.stop_alone <= 0) return;
  if (r->entry == NULL)
    crl_run_stop(r);
  else
    crl_herd_if_alone(r->entry, crl_run_stop, r);
}

int crl_run_is_left(const crl_run *r) {
  return crl_cancelled(r->cancel_token) || atomic_load(&((crl_run *)(uintptr_t)r)->left);
}

void crl_run_make_waiter(crl_run *r) {
  if (r->waiter != NULL) return;
  r->waiter = &r->own_waiter;
}

void crl_run_meet_caller(crl_run *r, corral_cancel_token *cancel_token) {
  if (cancel_token == NULL) return;
  crl_run_make_waiter(r);
  r->cancel_token = cancel_token;
  crl_cancel_join(cancel_token, &r->canceller, on_leave, r);
}

void crl_run_forget_caller(crl_run *r) {
  crl_cancel_leave(r->cancel_token, &r->canceller);
  r->cancel_token = NULL;
}

/* ---- the host's lock, the slot ------------------------------------------------------------- */

/* Without a limit nobody asks whether the run is nested. */
static int may_need_slot(const crl_run *r) {
  return r->bound || crl_semaphore_limits(r->context->limiter, CRL_PLACE_COMPUTE);
}

/* A bound compute runs on a thread of the library. */
static unsigned needs(const crl_run *r) {
  int threaded =
      r->bound && r->start == NULL && !r->nested && r->flight.alone != CRL_ALONE_DEADLINE;
  return CRL_PLACE_COMPUTE | (threaded ? CRL_PLACE_THREAD : 0U);
}

void crl_run_take_host(crl_run *r, crl_told *told) {
  int hold = -1;
  told->status = crl_hostlock_take(r->context->hostlock, r->found.key.whole, r->found.key.whole_len,
                                   &hold, &r->found.error);
  if (told->status == CORRAL_OK)
    atomic_store(&r->hold, hold);
  else if (told->status != CORRAL_EBUSY)
    crl_found_emit(&r->found, CORRAL_EVENT_HOST_ERROR, r->found.error.text);
  else
    told->passed =
        crl_hostlock_passed(r->context->hostlock, r->found.key.whole, r->found.key.whole_len) != 0;
}

void crl_run_pass_host(crl_run *r) {
  crl_hostlock_pass(r->context->hostlock, r->found.key.whole, r->found.key.whole_len);
}

void crl_run_give_host(crl_run *r) {
  int hold = atomic_exchange(&r->hold, -1);
  if (hold < 0) return;
  if (r->noted)
    crl_hostlock_erase(r->context->hostlock, hold, r->found.key.whole, r->found.key.whole_len,
                       r->token);
  crl_hostlock_give(hold);
}

void crl_run_note_token(crl_run *r) {
  int hold = atomic_load(&r->hold);
  if (hold < 0) return;
  crl_hostlock_note(r->context->hostlock, hold, r->found.key.whole, r->found.key.whole_len,
                    r->token, r->found.has_over ? r->found.over : NULL);
  r->noted = 1;
}

/* Ends the wait for a slot. A slot that others share stays queued. */
static void leave_queue(crl_run *r) {
  if (!r->asks_slot) return;
  r->asks_slot = 0;
  if (r->entry != NULL) (void)crl_herd_lent(r->entry, NULL);
  if (r->slot == &r->own_slot && !r->has_slot) crl_semaphore_leave(r->context->limiter, r->slot);
}

/* The parts of a place that the run may borrow from computes and functions that wait for it. A run
 * that only tries for a place borrows nothing from joiners: they may be answered before it
 * computes. */
static unsigned lent_to(crl_run *r) {
  unsigned lent = r->flight.answered ? 0 : r->lent;
  int tries = r->flight.until <= crl_env_now_ms();
  return r->entry == NULL || tries ? lent : lent | crl_herd_lent(r->entry, r->waiter);
}

int crl_run_ask_slot(crl_run *r, crl_told *told, int64_t *next) {
  crl_semaphore *limiter = r->context->limiter;
  int asked = r->asks_slot;
  crl_run_make_waiter(r);
  if (r->slot == NULL) crl_slot_init(r->slot = &r->own_slot);
  r->asks_slot = 1;
  unsigned lacks = needs(r) & ~lent_to(r);
  if (lacks == 0) crl_semaphore_borrow(limiter, r->slot);
  told->status =
      crl_semaphore_ask(limiter, r->slot, (crl_rank)r->flight.rank, lacks, r->waiter, next);
  if (told->status == CORRAL_OK) {
    r->has_slot = 1;
    leave_queue(r);
    return 1;
  }
  if (!asked && !crl_run_verifies(r)) crl_found_emit(&r->found, CORRAL_EVENT_LIMITED, NULL);
  crl_run_list(r, CORRAL_FLIGHT_LIMITED);
  if (*next > r->flight.until) *next = r->flight.until;
  if (crl_env_now_ms() < r->flight.until && !crl_run_is_left(r)) return 0;
  leave_queue(r);
  return 1;
}

void crl_run_let_go(crl_run *r) {
  if (r->has_slot && !r->flight.has_slot) {
    r->has_slot = 0;
    crl_semaphore_leave(r->context->limiter, r->slot);
  }
  if (!r->flight.on_host) crl_run_give_host(r);
}

/* ---- from new to free ---------------------------------------------------------------------- */

static crl_ask start(crl_run *r, const crl_join *join, crl_alone alone) {
  crl_context *context = r->context;
  const corral_policy *policy = join->call->policy;
  int frozen = join->call->frozen || crl_context_is_frozen(context);
  if (frozen && alone != CRL_ALONE_OUTBOX) alone = CRL_ALONE_NOT;
  crl_flight_plan plan = {.deadline = join->deadline,
                          .can_compute = crl_call_computes(join->call) && !frozen,
                          .frozen = frozen != 0,
                          .background = r->bound != 0,
                          .limited =
                              may_need_slot(r) && crl_semaphore_limits(context->limiter, needs(r)),
                          .ladder = context->hostlock != NULL,
                          .early = join->early != 0,
                          .anew = policy->anew > 0,
                          .alone = (uint8_t)alone,
                          .expects_none = join->expects_none != 0,
                          .returns = join->returns != 0};
  if (policy->soft_ms > 0) plan.soft_until = join->deadline - policy->wait_ms + policy->soft_ms;
  plan.dice = crl_env_dice();
  return crl_flight_start(&r->flight, &r->policy, &plan);
}

static crl_run *allocate(void) {
  crl_run *r = crl_alloc_more(NULL, sizeof *r);
  if (r == NULL) return NULL;
  memset(r, 0, offsetof(crl_run, policy));
  r->answer.bytes = NULL;
  return r;
}

static int take_found(crl_run *r, const crl_join *join, crl_found *found) {
  if (found != NULL)
    crl_found_move(&r->found, found);
  else if (crl_found_init(&r->found, join->context, join->call->policy, &join->name, join->hash) !=
           CORRAL_OK)
    return 0;
  r->found.policy = &r->policy;
  return 1;
}

crl_run *crl_run_new(const crl_join *join, crl_found *found, crl_alone alone) {
  crl_context *context = join->context;
  const crl_call *call = join->call;
  crl_run *r = allocate();
  if (r == NULL) return NULL;
  r->context = context;
  r->policy = *call->policy;
  if (!take_found(r, join, found) || !descend(r)) {
    crl_run_free(r);
    return NULL;
  }
  atomic_init(&r->hold, -1);
  int64_t advised = crl_pool_info(context->pool)->poll_max_ms;
  if (advised > 0 && advised < r->policy.poll_max_ms) r->policy.poll_max_ms = advised;
  r->compute = call->compute;
  r->compute_many = call->compute_many;
  r->start = call->start;
  r->arg = call->arg;
  r->bound = call->bound;
  r->lent = may_need_slot(r) ? crl_run_lends() : 0;
  r->nested = r->lent != 0;
  r->cancel = call->cancel;
  r->fill.key = r->found.key.whole;
  r->fill.key_len = r->found.key.whole_len;
  r->fill.prefix_len = (size_t)(r->found.key.user - r->found.key.whole);
  r->fill.variant = r->found.key.variant;
  r->fill.variant_len = r->found.key.variant_len;
  r->fill.digest = crl_key_digest(&r->found.key);
  r->fill.max_value = context->max_value;
  r->lease_ms = r->policy.lease_ms;
  r->ask = start(r, join, alone);
  return r;
}

void crl_run_part(crl_run *r) {
  crl_run_end_wait(r);
  crl_run_unlist(r);
  crl_run_drop_lease(r);
  crl_run_give_room(r);
  if (r->published) crl_at_exit_end();
  r->published = 0;
  crl_run_forget_caller(r);
  if (r->watches) crl_watch_leave(r->context->watch, &r->watcher);
  r->watches = 0;
  if (r->entry != NULL) crl_entry_unref(r->entry);
  r->entry = NULL;
}

void crl_run_abandon(crl_run *r) {
  crl_told unused;
  if (r->flight.leased) {
    r->flight.retry_ms = 0;
    r->ask = CRL_ASK_RELEASE;
    crl_run_perform(r, &unused);
    r->flight.leased = 0;
  }
  r->flight.has_slot = r->flight.on_host = 0;
  crl_run_let_go(r);
  leave_queue(r);
  if (r->entry != NULL) crl_herd_give_up(r->entry);
}

void crl_run_free(crl_run *r) {
  crl_run_part(r);
  crl_product_clean(&r->product);
  free(r->ancestors);
  crl_bytes_unref(r->answer.bytes);
  crl_fill_clean(&r->fill);
  crl_found_clean(&r->found);
  free(r);
}

/* ---- under way ----------------------------------------------------------------------------- */

void crl_run_step(crl_run *r, crl_told *told) {
  int computed = r->ask == CRL_ASK_COMPUTE;
  if (r->ask == CRL_ASK_GET || r->ask == CRL_ASK_CLAIM) r->last = told->look;
  if (r->ask != CRL_ASK_ANSWER) r->now = crl_env_now_ms();
  told->now = r->now;
  told->left = (uint8_t)crl_run_is_left(r);
  told->frozen = crl_context_is_frozen(r->context) != 0;
  r->ask = crl_flight_step(&r->flight, told);
  if (computed && told->made == CRL_MADE_FAILURE && r->flight.degraded) crl_run_keep_verdict(r);
  crl_run_let_go(r);
}

/* The end of a flight confirms by its landing. */
void crl_run_confirm(crl_run *r, int status) {
  int goes_on = r->ask == CRL_ASK_GET || r->ask == CRL_ASK_CLAIM;
  int answers = status == CORRAL_OK || status == CORRAL_EMISS || status == CORRAL_EBUSY;
  r->good = answers ? r->tick : status == CORRAL_ELOST ? 0 : CRL_GOOD_FOR_ALL;
  if (answers && goes_on && r->entry != NULL) crl_herd_confirm(r->entry, r->tick);
}

/* The first look stands outside of the flight: a call that was cancelled meanwhile ends here. */
void crl_run_looked(const crl_join *join, crl_told *told) {
  crl_run *r = join->run;
  r->last = told->look;
  r->tick = r->looked = join->tick;
  crl_run_confirm(r, told->status);
  r->now = told->now = crl_env_now_ms();
  told->left = crl_cancelled(join->call->cancel_token) != 0;
  r->ask = crl_flight_step(&r->flight, told);
}

static uint64_t print_of_last(const crl_run *r) {
  if (r->found.print != 0) return r->found.print;
  return r->found.record == NULL ? crl_watch_print(NULL, 0)
                                 : crl_watch_print(r->found.record->data, r->found.record->size);
}

/* A run whose last look isn't watched waits by the clock. It joins all the same, to be woken when
 * the watch comes up; where that was between the look and the joining, it looks again. */
static int begin_to_watch(crl_run *r) {
  crl_watch *watch = r->context->watch;
  crl_watch_key key = {
      .data = r->found.key.stored, .len = r->found.key.stored_len, .hash = r->found.hash};
  int joins = !r->watches;
  if (joins) crl_watch_join(watch, &r->watcher, r->found.hash, r->waiter);
  r->watches = 1;
  int up = crl_watch_up(watch), unwatched = !r->last.watched && r->last.lease_left > 0;
  if (!crl_watch_registers(watch) || unwatched) return joins && up;
  return r->last.watched && !crl_watch_register(watch, &r->watcher, &key, print_of_last(r));
}

static void note_wait(crl_run *r) {
  if (r->is_waiting) return;
  const crl_stats *stats = &r->context->events.stats;
  r->is_waiting = 1;
  r->waits_since = crl_stats_clock(stats);
  crl_stats_move_gauge(stats, CORRAL_GAUGE_WAITING, 1);
}

void crl_run_end_wait(crl_run *r) {
  if (!r->is_waiting) return;
  const crl_stats *stats = &r->context->events.stats;
  r->is_waiting = 0;
  crl_stats_took(stats, CORRAL_TIME_WAIT, r->waits_since);
  crl_stats_move_gauge(stats, CORRAL_GAUGE_WAITING, -1);
}

int crl_run_begin_wait(crl_run *r) {
  note_wait(r);
  if (r->flight.looks == 1)
    crl_found_emit(&r->found, r->flight.at_host ? CORRAL_EVENT_HOST_WAIT : CORRAL_EVENT_WAIT, NULL);
  crl_run_list(r, r->flight.slow && !r->flight.at_host ? CORRAL_FLIGHT_SLOW : CORRAL_FLIGHT_WAIT);
  if (r->flight.at_host) return 0;
  crl_run_make_waiter(r);
  return r->context->watch == NULL ? 0 : begin_to_watch(r);
}
