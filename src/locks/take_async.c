/* take_async.c: takings of event loops. Their turns are steps (steps.h); between them a taking is
 * parked, until it is woken or its timer rings. */
#include "os/env.h"
#include "locks/taking.h"

enum { RETRY_MS = 10 };

enum {
  TURNS = 0, /* a step has it, or will */
  STIRRED,   /* the same, and it was woken: it won't be parked next time */
  PARKED,
  OVER
};

/* Gives a parked taking its next turn. Without a thread it stays parked: 0. */
static int stir(crl_async_taking *a) {
  int parked = PARKED, turns = TURNS;
  while (atomic_load(&a->phase) == TURNS || atomic_load(&a->phase) == PARKED) {
    if (atomic_compare_exchange_strong(&a->phase, &turns, STIRRED)) return 1;
    turns = TURNS;
    if (!atomic_compare_exchange_strong(&a->phase, &parked, TURNS)) {
      parked = PARKED;
      continue;
    }
    if (crl_lock_steps_add(a->taking.context->lock_steps, &a->step)) return 1;
    atomic_store(&a->phase, PARKED);
    return 0;
  }
  return 1;
}

/* Without a thread the timer tries again. */
static void on_wake(crl_waiter *waiter) {
  crl_async_taking *a =
      (crl_async_taking *)(void *)((char *)waiter - offsetof(crl_async_taking, taking.waiter));
  atomic_store(&a->woken, 1);
  if (!stir(a))
    (void)crl_timers_set(a->taking.context->threads.timers, &a->timer, crl_env_now_ms() + RETRY_MS);
}

static int64_t on_timer(crl_timer *timer) {
  crl_async_taking *a =
      (crl_async_taking *)(void *)((char *)timer - offsetof(crl_async_taking, timer));
  return stir(a) ? INT64_MAX : crl_env_now_ms() + RETRY_MS;
}

/* The timer is set before the taking is parked: one that rings in between stirs it. 1: it is
 * parked, and another thread may have it already. 0: its next turn has come. */
static int park(crl_async_taking *a) {
  int turns = TURNS;
  crl_timers *timers = a->taking.context->threads.timers;
  if (crl_timers_set(timers, &a->timer, a->taking.until) != CORRAL_OK)
    crl_env_sleep_until(crl_env_now_ms() + 1);
  else if (atomic_compare_exchange_strong(&a->phase, &turns, PARKED))
    return 1;
  atomic_store(&a->phase, TURNS);
  return 0;
}

static void end(crl_async_taking *a) {
  corral_lock *lock = NULL;
  int status = crl_taking_end(&a->taking, &lock);
  atomic_store(&a->phase, OVER);
  a->ended(a, status, lock);
}

static void make(crl_lock_step *step) {
  crl_async_taking *a =
      (crl_async_taking *)(void *)((char *)step - offsetof(crl_async_taking, step));
  do {
    crl_timers_clear(a->taking.context->threads.timers, &a->timer);
    crl_taking_woken(&a->taking, atomic_exchange(&a->woken, 0));
    if (!crl_taking_turn(&a->taking)) {
      end(a);
      return;
    }
  } while (!park(a));
}

int crl_async_taking_begin(crl_async_taking *a) {
  crl_taking *t = &a->taking;
  t->waiter.hook = on_wake;
  a->timer.ring = on_timer;
  a->step.make = make;
  int queues = !t->again && t->deadline != 0;
  if (queues) crl_taking_queue(t);
  if (queues && !crl_lock_table_first(&t->queued)) {
    crl_taking_wait(t);
    if (park(a)) return CORRAL_OK;
  }
  if (crl_lock_steps_add(t->context->lock_steps, &a->step)) return CORRAL_OK;
  if (queues) crl_taking_leave(t);
  if (t->again)
    crl_lock_give(&t->lock->first, NULL);
  else
    crl_lock_free(t->lock);
  return CORRAL_EIO;
}

void crl_async_taking_cancel(crl_async_taking *a) {
  atomic_store(&a->taking.left, 1);
  crl_waiter_wake(&a->taking.waiter);
}

void crl_async_taking_clean(crl_async_taking *a) {
  crl_timers_clear(a->taking.context->threads.timers, &a->timer);
}
