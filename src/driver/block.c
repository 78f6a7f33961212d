/* block.c: the blocking scheduler: drives one run on its caller's thread, which sleeps while the
 * run waits. */
#include "driver/block.h"

#include "driver/advance.h"
#include "driver/async.h"
#include "run/hit.h"
#include "os/env.h"

static void perform(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_perform(r, &told);
  crl_run_step(r, &told);
}

static int sleep_for_host(crl_run *r, int64_t until) {
  crl_hostlock_wait(r->context->hostlock, r->found.key.whole, r->found.key.whole_len, until,
                    r->cancel_token);
  return 1;
}

/* Drives a run until it has ended, or must go on elsewhere. */
static crl_need fly(crl_run *r) {
  for (int woken = 0;;) {
    int64_t until;
    corral_fill *fill;
    crl_need need = crl_advance(r, woken, &until);
    woken = 0;
    switch (need) {
      case CRL_NEED_STORE: perform(r); break;
      case CRL_NEED_WAKE: woken = crl_waiter_sleep(r->waiter, until); break;
      case CRL_NEED_HOST: woken = sleep_for_host(r, until); break;
      case CRL_NEED_COMPUTE: crl_advance_compute(&r, &fill, 1); break;
      case CRL_NEED_ELSEWHERE:
      case CRL_NEED_NOTHING: return need;
    }
  }
}

/* There is no other thread: the run goes on here. */
static void fly_here(crl_join *join, crl_run *r) {
  join->run = r;
  fly(r);
  join->run = NULL;
  crl_run_free(r);
}

void crl_block_hand_over(crl_join *join) {
  crl_run *r = join->run;
  int answered = r->flight.answered;
  crl_outcome outcome;
  crl_run_forget_caller(r);
  if (answered)
    outcome = crl_run_outcome(r);
  else
    crl_join_follow(join);
  join->run = NULL;
  if (crl_scheduler_fly(r->context->scheduler, r, NULL) != CORRAL_OK) fly_here(join, r);
  if (answered) crl_join_end(join, &outcome);
}

static void drive(crl_join *join) {
  crl_run_meet_caller(join->run, join->call->cancel_token);
  if (fly(join->run) == CRL_NEED_ELSEWHERE)
    crl_block_hand_over(join);
  else
    crl_join_land(join);
}

/* A call that hasn't ended is left: its compute did not return. */
static void leave(crl_join *join) {
  if (join->state != CRL_JOIN_ENDED)
    crl_stats_result(&join->context->events.stats, CORRAL_RESULT_ERROR, 0);
  crl_join_leave(join);
}

/* Drives a call to its end; `hit`: its first look, NULL: there was none. A function of its own,
 * since a hit needs none of its stack. */
static __attribute__((noinline)) int drive_call(crl_context *context, const crl_call *call,
                                                const void *key, size_t key_len, crl_hit *hit,
                                                corral_value **ret) {
  __attribute__((cleanup(leave))) crl_join join;
  crl_outcome outcome;
  crl_join_init(&join, context, call, key, key_len);
  join.outcome = &outcome;
  if (hit != NULL)
    crl_hit_join(hit, &join);
  else
    crl_join_begin(&join);
  while (join.state != CRL_JOIN_ENDED) {
    if (join.state == CRL_JOIN_LOOKS)
      crl_join_first(&join);
    else if (join.state == CRL_JOIN_LEADS)
      drive(&join);
    else
      crl_join_wait(&join);
  }
  return crl_outcome_deliver(context, &outcome, call->error, ret);
}

int crl_block_call(crl_context *context, crl_call *call, const void *key, size_t key_len,
                   corral_value **ret) {
  __attribute__((cleanup(crl_env_cancel_back), unused)) int cancel = crl_env_cancel_off();
  call->cancel = cancel;
  int how = crl_hit_look(context, call, key, key_len, ret);
  if (how == 1) return CORRAL_OK;
  return drive_call(context, call, key, key_len, how == 0 ? crl_hit_mine() : NULL, ret);
}
