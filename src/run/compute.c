/* compute.c: surrounds a compute: keeps its lease, ends it at its limit, takes its result. */
#include "os/env.h"
#include "store/pace.h"
#include "run/run.h"
#include "base/status.h"

static crl_run *run_of(crl_renewed_lease *lease) {
  return (crl_run *)(void *)((char *)lease - offsetof(crl_run, lease));
}

/* While the record is being stored, SETTLE itself tells whether the lease was lost. */
static void on_lost(crl_renewed_lease *lease) {
  crl_run *r = run_of(lease);
  if (atomic_load(&r->settles)) return;
  atomic_store(&r->fill.stop, 1);
  if (r->entry != NULL) crl_herd_lose(r->entry);
  crl_run_give_host(r);
  crl_found_emit(&r->found, CORRAL_EVENT_LEASE_LOST, NULL);
}

static void on_extended(crl_renewed_lease *lease, const corral_op *op, int64_t sent) {
  crl_run *r = run_of(lease);
  (void)op;
  (void)sent;
  if (r->entry != NULL) crl_herd_confirm(r->entry, lease->tick);
}

/* The flight is abandoned: its lease becomes a verdict, and waiters look for themselves. */
static void on_limit(crl_renewed_lease *lease) {
  crl_run *r = run_of(lease);
  corral_error unused;
  uint8_t front[CORRAL_FRONT];
  atomic_store(&r->fill.stop, 1);
  if (lease->token != NULL) {
    r->flight.failures++;
    corral_op op = crl_run_release_op(
        r, front, crl_policy_retry(&r->policy, r->flight.failures, r->flight.dice),
        "computing took longer than compute_ms", CORRAL_EABANDONED);
    op.error = &unused;
    crl_pool_perform(r->context->pool, &op, 1, crl_env_now_ms() + r->context->op_ms);
    lease->token = NULL;
  }
  if (r->entry != NULL) crl_herd_give_up(r->entry);
  crl_run_give_host(r);
  crl_fact fact = {
      .status = CORRAL_EABANDONED, .duration_us = crl_env_now_us() - r->began_us, .bytes = -1};
  crl_found_tell(&r->found, CORRAL_EVENT_ABANDONED, &fact);
}

/* The result of a compute for this caller alone is not for the others who share the flight. */
static void send_others_away(crl_run *r) {
  if (r->entry == NULL) return;
  if (r->flight.alone == CRL_ALONE_PASS) crl_herd_pass(r->entry);
  if (r->flight.alone == CRL_ALONE_DEADLINE) crl_herd_give_up(r->entry);
}

static int heeds(const crl_run *r) {
  return r->handed_over && r->policy.stop_alone > 0 && r->entry != NULL;
}

static void prepare(crl_run *r) {
  send_others_away(r);
  if (!r->flight.answered && !r->flight.alone) crl_run_lend_stale(r);
  int64_t now = crl_env_now_ms();
  r->fill.has_stale = r->flight.sie_until > now || r->flight.fresh_until > now;
  crl_run_lend_old(r);
  crl_found_emit(&r->found, CORRAL_EVENT_COMPUTE, NULL);
  if (r->flight.early) crl_found_emit(&r->found, CORRAL_EVENT_EARLY, NULL);
  if (r->flight.degraded) crl_found_emit(&r->found, CORRAL_EVENT_DEGRADED, NULL);
}

/* Of the gauge. */
static void move_flights(crl_run *r, int computes) {
  if (r->computes == computes) return;
  r->computes = computes;
  crl_stats_move_gauge(&r->context->events.stats, CORRAL_GAUGE_FLIGHTS, computes ? 1 : -1);
}

void crl_run_begin_compute(crl_run *r) {
  crl_run_end_wait(r);
  prepare(r);
  move_flights(r, 1);
  r->began_us = crl_env_now_us();
  r->began = crl_env_now_ms();
  r->fill.limit = r->began + r->policy.compute_ms;
  r->fill.policy = &r->policy;
  r->fill.is_alone = r->flight.alone != CRL_ALONE_NOT;
  r->lease = (crl_renewed_lease){.key = r->found.key.stored,
                                 .key_len = r->found.key.stored_len,
                                 .user_key = r->found.key.user,
                                 .user_key_len = r->found.key.user_len,
                                 .token = r->flight.leased ? r->token : NULL,
                                 .lease_ms = r->lease_ms,
                                 .lease_most_ms = r->policy.lease_ms,
                                 .limit = r->began + r->policy.compute_ms,
                                 .ticks = r->entry == NULL ? NULL : crl_herd_ticks(r->entry),
                                 .on_extended = on_extended,
                                 .on_lost = on_lost,
                                 .on_limit = on_limit};
  crl_renewer_hold(r->context->renewer, &r->lease, r->claim_sent);
  if (heeds(r)) crl_herd_heed(r->entry, crl_run_stop, r);
  atomic_store(&r->inside, !r->handed_over);
}

/* Storing a large body may take longer than the lease lasts. */
static int settles_long(const crl_run *r) {
  return r->flight.leased && r->product.record != NULL && r->product.record->size > CRL_PACE_BODY;
}

void crl_run_end_compute(crl_run *r) {
  move_flights(r, 0);
  atomic_store(&r->inside, 0);
  if (heeds(r)) crl_herd_heed(r->entry, NULL, NULL);
  atomic_store(&r->settles, settles_long(r));
  if (atomic_load(&r->settles))
    crl_renewer_outlast(r->context->renewer, &r->lease);
  else
    crl_renewer_drop(r->context->renewer, &r->lease);
}

void crl_run_drop_lease(crl_run *r) {
  if (!atomic_load(&r->settles)) return;
  crl_renewer_drop(r->context->renewer, &r->lease);
  atomic_store(&r->settles, 0);
}

/* ---- the user's function ------------------------------------------------------------------- */

void crl_run_go_inside(crl_inside *inside, crl_run *const *runs, size_t count) {
  inside->frame = (crl_computing){.runs = runs, .count = count};
  inside->outer = crl_run_inside(&inside->frame);
  inside->left = 0;
  crl_env_cancel_as(runs[0]->cancel);
}

void crl_run_come_outside(crl_inside *inside) {
  (void)crl_env_cancel_off();
  crl_run_inside(inside->outer);
  inside->left = 1;
}

void crl_run_unwind(crl_inside *inside) {
  if (inside->left) return;
  crl_run_come_outside(inside);
  for (size_t i = 0; i < inside->frame.count; i++) {
    crl_run *r = inside->frame.runs[i];
    crl_run_stop(r);
    crl_run_end_compute(r);
    crl_run_abandon(r);
  }
}

/* ---- what was made ------------------------------------------------------------------------- */

static crl_made finish_fill(crl_run *r, int64_t cost) {
  crl_finish finish = {.policy = &r->policy,
                       .cost_us = cost,
                       .wall_ms = crl_env_wall_ms(),
                       .dice = r->flight.dice,
                       .compress_min = r->context->compress_min};
  crl_env_random(&finish.dice, sizeof finish.dice);
  crl_made wish = crl_run_stamp(r);
  crl_made made = crl_fill_finish(&r->fill, &finish, &r->product);
  return made == CRL_MADE_VALUE ? wish : made;
}

static void tell_made(crl_run *r, crl_made made, int64_t cost) {
  crl_fact fact = {.duration_us = cost, .bytes = -1};
  if (made == CRL_MADE_FAILURE) {
    fact.status = CORRAL_EFAILED;
    fact.detail = r->fill.text;
  } else if (r->fill.filled != CRL_FILLED_NEGATIVE) {
    fact.bytes = (int64_t)r->product.size;
  }
  crl_found_tell(&r->found, made == CRL_MADE_FAILURE ? CORRAL_EVENT_FAILURE : CORRAL_EVENT_COMPUTED,
                 &fact);
}

void crl_run_made(crl_run *r, int64_t ended_us, crl_told *told) {
  int64_t cost = ended_us - r->began_us;
  r->cost_us = (uint64_t)cost;
  crl_stats_add_time(&r->context->events.stats, CORRAL_TIME_COMPUTE, cost);
  if (r->fill.filled != CRL_FILLED_FAILURE) crl_found_note_cost(&r->found, r->cost_us);
  told->made = finish_fill(r, cost);
  crl_limiter_ended(crl_semaphore_limiter(r->context->limiter), r->began_us, ended_us,
                    told->made == CRL_MADE_FAILURE);
  tell_made(r, told->made, cost);
  if (r->fill.pass) crl_found_emit(&r->found, CORRAL_EVENT_PASS, NULL);
  if (told->made == CRL_MADE_OLDER) crl_found_emit(&r->found, CORRAL_EVENT_OLDER, NULL);
  if (told->made == CRL_MADE_VALUE && r->flight.degraded) crl_run_keep_fill(r);
}
