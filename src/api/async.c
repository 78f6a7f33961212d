/* async.c: a call of an event loop, from its beginning to its last callback. */
#include "api/async.h"

#include <stdlib.h>

#include "os/env.h"
#include "base/status.h"

/* ---- mail ---------------------------------------------------------------------------------- */

static void post_call(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  crl_inbox_post(call->loop, &call->mail);
  crl_inbox_unlock(call->loop);
}

static void on_wake(crl_waiter *waiter) {
  post_call((corral_async_call *)(void *)((char *)waiter - offsetof(corral_async_call, waiter)));
}
static int64_t on_timer(crl_timer *timer) {
  post_call((corral_async_call *)(void *)((char *)timer - offsetof(corral_async_call, timer)));
  return INT64_MAX;
}
static void on_cancel(void *call) { post_call(call); }

/* ---- callbacks of runs --------------------------------------------------------------------- */

corral_async_call *crl_async_call(crl_caller *caller) {
  return (corral_async_call *)(void *)((char *)caller - offsetof(corral_async_call, caller));
}

void crl_async_take_answer(corral_async_call *call, crl_outcome *outcome) {
  call->answer = crl_alloc(sizeof *call->answer);
  if (call->answer != NULL)
    *call->answer = *outcome;
  else
    crl_outcome_drop(outcome);
  call->is_answered = 1;
  crl_inbox_post(call->loop, &call->mail);
}

static void answered(crl_caller *caller, crl_run *r) {
  corral_async_call *call = crl_async_call(caller);
  crl_inbox_lock(call->loop);
  if (call->flying == r) {
    crl_outcome outcome = crl_run_outcome(r);
    call->flying = NULL;
    crl_async_take_answer(call, &outcome);
  }
  crl_inbox_unlock(call->loop);
}

void crl_async_refuse(corral_async_call *call, crl_entry *entry) {
  crl_herd_unlisten(entry, &call->join.listener, CRL_WAIT_LEFT);
  crl_entry_unref(entry);
}

/* Begins to listen here, on the scheduler's thread, so that the flight's entry is never without a
 * waiter. Lock order: a herd's mutex before the loop's. */
static void waits(crl_caller *caller, crl_run *r) {
  corral_async_call *call = crl_async_call(caller);
  corral_loop *loop = call->loop;
  crl_inbox_lock(loop);
  /* `flying` is another: the call was answered or cancelled */
  int listens = call->flying == r && r->flight.alone != CRL_ALONE_DEADLINE && r->entry != NULL;
  if (listens) call->flying = NULL;
  crl_inbox_unlock(loop);
  if (!listens) return;
  crl_entry *entry = crl_entry_ref(r->entry);
  crl_herd_listen(entry, &call->join.listener, &call->waiter, 0);
  crl_inbox_lock(loop);
  int is_closed = loop->is_closed;
  call->handed = is_closed ? NULL : entry;
  crl_inbox_post(loop, &call->mail);
  crl_inbox_unlock(loop);
  if (is_closed) crl_async_refuse(call, entry);
}

/* Posts the start of the compute to the loop as mail of its own, once for each run. 0: the call was
 * cancelled, the loop is closed, or no memory. */
static int begin(crl_caller *caller, crl_run *r) {
  corral_async_call *call = crl_async_call(caller);
  corral_loop *loop = call->loop;
  crl_inbox_lock(loop);
  int begins = !call->is_cancelled && !loop->is_closed;
  crl_mail *m = begins ? crl_alloc(sizeof *m) : NULL;
  if (m != NULL) {
    m->starts = r;
    crl_inbox_post(loop, m);
  }
  crl_inbox_unlock(loop);
  return m != NULL;
}

static void free_call(corral_async_call *call) {
  corral_loop *loop = call->loop;
  if (call->answer != NULL) crl_outcome_drop(call->answer);
  free(call->answer);
  crl_join_forget(&call->join);
  if (call->locks != NULL) crl_async_free_lock(call->locks);
  free(call);
  crl_inbox_unref(loop, 1);
}

void crl_async_run_gone(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  call->runs--;
  int frees = call->runs == 0 && call->loop->is_closed;
  crl_inbox_post(call->loop, &call->mail);
  crl_inbox_unlock(call->loop);
  if (frees) free_call(call);
}

void crl_async_end_work(corral_async_call *call, int status, const corral_error *error) {
  crl_outcome outcome = crl_outcome_plain(status);
  if (status != CORRAL_OK && error->status == status) outcome.error = *error;
  crl_inbox_lock(call->loop);
  crl_async_take_answer(call, &outcome);
  crl_inbox_unlock(call->loop);
  crl_async_run_gone(call);
}

/* A run that ends unanswered, such as an abandoned compute at the caller's deadline, gives
 * CORRAL_EDEADLINE. */
static void gone(crl_caller *caller, crl_run *r) {
  corral_async_call *call = crl_async_call(caller);
  crl_outcome outcome = crl_outcome_plain(CORRAL_EDEADLINE);
  crl_inbox_lock(call->loop);
  int is_unanswered = call->flying == r;
  if (is_unanswered) {
    call->flying = NULL;
    crl_async_take_answer(call, &outcome);
  }
  crl_inbox_unlock(call->loop);
  if (is_unanswered) crl_run_tell_deadline(&call->join);
  crl_async_run_gone(call);
}

/* ---- steps of a call; on the loop's thread ------------------------------------------------- */

/* Sets the timer to the next moment that ends the wait. */
static int arm(corral_async_call *call) {
  return crl_timers_set(call->loop->context->threads.timers, &call->timer,
                        crl_join_until(&call->join));
}

/* Begins the wait on an entry, to which the call already listens: from now on the timer and the
 * cancel token end it too. Without a timer (not CORRAL_OK) the caller must end the wait. */
static int settle_down(corral_async_call *call) {
  call->state = CRL_ASYNC_JOINED;
  crl_cancel_join(call->asked.cancel_token, &call->canceller, on_cancel, call);
  return arm(call);
}

static void stop_waiting(corral_async_call *call) {
  crl_cancel_leave(call->asked.cancel_token, &call->canceller);
  crl_timers_clear(call->loop->context->threads.timers, &call->timer);
}

void crl_async_leave(corral_async_call *call) {
  crl_join_leave(&call->join);
  stop_waiting(call);
}

void crl_async_leave_look(corral_async_call *call) {
  crl_hit_leave(&call->look->hit);
  crl_cancel_leave(call->asked.cancel_token, &call->canceller);
}

static void unlink_call(corral_async_call *call) {
  *call->link = call->next;
  if (call->next != NULL) call->next->link = call->link;
}

/* Calls `gone` and frees the call, once no run can report to it and none of its mail is queued. */
static void see_off(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  int is_over = call->runs == 0 && !call->mail.is_posted;
  crl_inbox_unlock(call->loop);
  if (!is_over) return;
  unlink_call(call);
  if (call->async.gone != NULL) call->async.gone(call->async.arg);
  free_call(call);
}

/* Frees the call now, or when mail of it that is queued is dispatched: its entry or its cancel
 * token may have posted some. */
void crl_async_withdraw(corral_async_call *call) {
  call->async.gone = NULL;
  call->state = CRL_ASYNC_ENDED;
  see_off(call);
}

static void end(corral_async_call *call, crl_outcome *outcome) {
  corral_value *value = NULL;
  corral_error error = {0};
  call->state = CRL_ASYNC_ENDED;
  int is_value = outcome->status != CORRAL_OK || !call->is_work;
  const crl_context *context = call->is_work ? NULL : call->loop->context;
  int status = is_value ? crl_outcome_deliver(context, outcome, &error, &value) : CORRAL_OK;
  if (call->locks != NULL && status == CORRAL_OK) crl_async_give_lock(call->locks);
  call->async.done(call->async.arg, status, value, &error);
  see_off(call);
}

static void end_plain(corral_async_call *call, int status) {
  crl_outcome outcome = crl_outcome_plain(status);
  end(call, &outcome);
}

/* Makes the call's run, if it leads, or is to look by itself. */
static void fly(corral_async_call *call) {
  if (call->join.state == CRL_JOIN_LOOKS) crl_join_fly(&call->join, 1);
}

/* Gives the call's run to the scheduler. */
static int lead(corral_async_call *call) {
  corral_loop *loop = call->loop;
  crl_run *r = call->join.run;
  if (r == NULL) return CORRAL_ENOMEM;
  r->flown.caller = &call->caller;
  call->state = CRL_ASYNC_FLIES;
  crl_inbox_lock(loop);
  call->runs++;
  call->flying = r;
  crl_inbox_unlock(loop);
  int status = crl_scheduler_fly(loop->context->scheduler, r, call->asked.cancel_token);
  if (status == CORRAL_OK) {
    call->join.run = NULL;
    return status;
  }
  crl_inbox_lock(loop);
  call->flying = NULL;
  call->runs--;
  crl_inbox_unlock(loop);
  crl_join_leave(&call->join);
  return status;
}

static int join(corral_async_call *call) {
  int status = settle_down(call);
  if (status == CORRAL_OK)
    post_call(call); /* the flight may have landed already */
  else
    crl_async_leave(call);
  return status;
}

static int go_on(corral_async_call *call) {
  return call->join.state == CRL_JOIN_WAITS ? join(call) : lead(call);
}

/* 0: the call goes on by its join, if that has a state, or else begins with it. */
static int begin_look(corral_async_call *call) {
  crl_looks *looks = call->loop->looks;
  call->look = looks == NULL ? NULL : crl_looks_begin(looks, &call->asked, &call->join, call);
  if (call->look == NULL) return 0;
  call->state = CRL_ASYNC_LOOKS;
  crl_inbox_lock(call->loop);
  call->runs++;
  crl_inbox_unlock(call->loop);
  crl_cancel_join(call->asked.cancel_token, &call->canceller, on_cancel, call);
  return 1;
}

int crl_async_begin(corral_async_call *call, crl_hit *hit, crl_outcome *outcome) {
  call->join.outcome = outcome;
  if (hit != NULL)
    crl_hit_join(hit, &call->join);
  else if (begin_look(call))
    return CORRAL_OK;
  if (call->join.state == 0) crl_join_enter(&call->join);
  if (call->join.state == CRL_JOIN_LOOKS && call->loop->context->looks_first)
    crl_join_first(&call->join);
  fly(call);
  return call->join.state == CRL_JOIN_ENDED ? CORRAL_OK : go_on(call);
}

/* Goes on by the join, whose outcome is `outcome`: the call may end. */
static void bring(corral_async_call *call, crl_outcome *outcome) {
  fly(call);
  if (call->join.state == CRL_JOIN_ENDED) {
    end(call, outcome);
    return;
  }
  int status = go_on(call);
  if (status != CORRAL_OK) end_plain(call, status);
}

static void look(corral_async_call *call) {
  crl_outcome outcome;
  call->join.outcome = &outcome;
  do crl_join_look(&call->join);
  while (call->join.state == CRL_JOIN_WAITS && atomic_load(&call->join.listener.stirred));
  if (call->join.state != CRL_JOIN_WAITS) {
    stop_waiting(call);
    bring(call, &outcome);
    return;
  }
  int status = arm(call);
  if (status == CORRAL_OK) return;
  crl_async_leave(call);
  end_plain(call, status);
}

/* `runs` counts the look no more. */
static int ends_look(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  call->runs--;
  crl_inbox_unlock(call->loop);
  return call->state == CRL_ASYNC_LOOKS;
}

void crl_async_looked(void *arg, crl_async_look *look) {
  corral_async_call *call = arg;
  crl_outcome outcome = {.status = CORRAL_OK};
  if (!ends_look(call)) {
    crl_looks_drop(look);
    see_off(call);
    return;
  }
  crl_cancel_leave(call->asked.cancel_token, &call->canceller);
  call->join.outcome = &outcome;
  int is_over = crl_looks_judge(look, &call->join, &outcome.value);
  if (!is_over && call->join.state == 0) crl_join_enter(&call->join);
  if (is_over)
    end(call, &outcome);
  else
    bring(call, &outcome);
}

static void end_answered(corral_async_call *call, crl_outcome *answer) {
  if (answer == NULL) {
    end_plain(call, CORRAL_ENOMEM);
    return;
  }
  crl_outcome outcome = *answer;
  free(answer);
  if (!outcome.returned) {
    end(call, &outcome);
    return;
  }
  call->join.outcome = &outcome;
  crl_join_return(&call->join);
  bring(call, &outcome);
}

/* Begins the wait on the entry of the call's own flight, unless the call was cancelled meanwhile.
 * 0: the wait could not begin, and the call has ended. */
static int follow(corral_async_call *call, crl_entry *entry) {
  crl_join_take(&call->join, entry, 1);
  int status = settle_down(call);
  if (!call->is_cancelled && status == CORRAL_OK) return 1;
  crl_async_leave(call);
  call->state = CRL_ASYNC_ENDED;
  if (call->is_cancelled) return 1;
  end_plain(call, status);
  return 0;
}

void crl_async_bring_on(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  int is_answered = call->is_answered;
  crl_entry *handed = call->handed;
  crl_outcome *answer = call->answer;
  call->answer = NULL;
  call->is_answered = 0;
  call->handed = NULL;
  crl_inbox_unlock(call->loop);
  if (handed != NULL && !follow(call, handed)) return;
  if (call->state == CRL_ASYNC_ENDED) {
    if (answer != NULL) crl_outcome_drop(answer);
    free(answer);
    see_off(call);
  } else if (is_answered) {
    end_answered(call, answer);
  } else if (call->state == CRL_ASYNC_JOINED) {
    look(call);
  } else if (call->state == CRL_ASYNC_LOOKS && crl_cancelled(call->asked.cancel_token)) {
    crl_async_leave_look(call);
    end_plain(call, CORRAL_ECANCELLED);
  }
}

/* ---- for the loop -------------------------------------------------------------------------- */

crl_caller crl_async_caller(void) {
  return (crl_caller){.answered = answered, .waits = waits, .begin = begin, .gone = gone};
}

void crl_async_init_waits(corral_async_call *call) {
  call->timer.ring = on_timer;
  call->waiter.hook = on_wake;
  call->join.waiter = &call->waiter;
}
