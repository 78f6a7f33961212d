/* async.c: flies runs without a thread of their own. */
#include "driver/async.h"

#include <stdlib.h>

#include "driver/batch.h"
#include "os/env.h"
#include "base/status.h"

enum { COURIERS = 8, RUNS = 128, HOST_POLL_MS = 4 };

typedef enum phase {
  CRUISES = 0,
  WAITS,      /* parked until flight->until, or woken */
  WANTS_SLOT, /* parked until its next try */
  COMPUTES,
  MADE,    /* the compute has ended */
  GIVEN_UP /* the compute was abandoned */
} phase;

typedef struct courier {
  crl_job job;
  crl_scheduler *scheduler;
  crl_batch batch;
  int is_out;
  crl_run *runs[RUNS];
} courier;

struct crl_scheduler {
  crl_context *context;
  crl_timers *alarms;
  crl_workers *threads;
  pthread_mutex_t mutex;
  pthread_cond_t fewer;  /* `aloft` or `computing` got smaller */
  crl_run *head, **tail; /* runs that are ready */
  crl_run *parked;
  size_t aloft, computing; /* all runs; runs with a compute under way */
  size_t most;
  int closing;
  /* `most` of them; NULL until the first run: a process with a single blocking call needs none */
  courier *couriers;
};

static void carry(crl_job *job);
static void no_drop(crl_job *job);

/* ---- the queue; under the mutex ------------------------------------------------------------ */

static int has_couriers(crl_scheduler *scheduler) {
  if (scheduler->couriers != NULL) return 1;
  scheduler->couriers = crl_alloc(scheduler->most * sizeof *scheduler->couriers);
  for (size_t i = 0; scheduler->couriers != NULL && i < scheduler->most; i++)
    scheduler->couriers[i] =
        (courier){.job = {.run = carry, .drop = no_drop}, .scheduler = scheduler};
  return scheduler->couriers != NULL;
}

/* 0: no courier has a thread, and none could be started. */
static int send_courier(crl_scheduler *scheduler) {
  for (size_t i = 0; i < scheduler->most; i++) {
    courier *c = &scheduler->couriers[i];
    if (c->is_out) continue;
    c->is_out = 1;
    if (crl_workers_submit(scheduler->threads, &c->job) == 0) return 1;
    c->is_out = 0;
    return 0;
  }
  return 1;
}

static int push(crl_scheduler *scheduler, crl_run *r) {
  if (!send_courier(scheduler)) return 0;
  r->flown.next = NULL;
  *scheduler->tail = r;
  scheduler->tail = &r->flown.next;
  return 1;
}

static void unpark(crl_scheduler *scheduler, crl_run *r) {
  *r->flown.link = r->flown.next;
  if (r->flown.next != NULL) r->flown.next->flown.link = r->flown.link;
  r->flown.parked = 0;
  push(scheduler, r);
}

/* ---- parking ------------------------------------------------------------------------------- */

void crl_scheduler_wake(crl_run *r) {
  crl_scheduler *scheduler = r->context->scheduler;
  pthread_mutex_lock(&scheduler->mutex);
  if (r->flown.parked)
    unpark(scheduler, r);
  else
    r->flown.woken = 1;
  pthread_mutex_unlock(&scheduler->mutex);
}

static void on_wake(crl_waiter *waiter) {
  crl_scheduler_wake((crl_run *)(void *)((char *)waiter - offsetof(crl_run, own_waiter)));
}
static void on_alarm(crl_timer *alarm) {
  crl_scheduler_wake((crl_run *)(void *)((char *)alarm - offsetof(crl_run, flown.alarm)));
}

static int is_closing(crl_scheduler *scheduler) {
  pthread_mutex_lock(&scheduler->mutex);
  int closing = scheduler->closing;
  pthread_mutex_unlock(&scheduler->mutex);
  return closing;
}

/* Sets the alarm before it parks the run: an alarm that rings in between is remembered in `woken`.
 * 0: the run is parked, and another thread may fly it already. */
static int park(crl_scheduler *scheduler, crl_run *r, int64_t until, phase why) {
  r->flown.phase = why;
  int status = crl_timers_set(scheduler->alarms, &r->flown.alarm, until);
  pthread_mutex_lock(&scheduler->mutex);
  int parks = status == CORRAL_OK && !r->flown.woken && !scheduler->closing;
  r->flown.woken = 0;
  if (parks) {
    r->flown.parked = 1;
    r->flown.next = scheduler->parked;
    r->flown.link = &scheduler->parked;
    if (r->flown.next != NULL) r->flown.next->flown.link = &r->flown.next;
    scheduler->parked = r;
  }
  pthread_mutex_unlock(&scheduler->mutex);
  if (status != CORRAL_OK) crl_env_sleep_until(crl_env_now_ms() + 1);
  return !parks;
}

/* ---- the end ------------------------------------------------------------------------------- */

static void retire(crl_scheduler *scheduler, crl_run *r) {
  crl_timers_clear(scheduler->alarms, &r->flown.alarm);
  crl_run_part(r);
  if (r->flown.caller != NULL) r->flown.caller->gone(r->flown.caller, r);
  pthread_mutex_lock(&scheduler->mutex);
  scheduler->aloft--;
  pthread_cond_broadcast(&scheduler->fewer);
  pthread_mutex_unlock(&scheduler->mutex);
}

static void give_up(crl_scheduler *scheduler, crl_run *r) {
  if (r->flown.computing) crl_run_end_compute(r);
  r->flown.computing = 0;
  crl_run_abandon(r);
  retire(scheduler, r);
  crl_run_free(r);
}

static void land(crl_scheduler *scheduler, crl_run *r) {
  crl_run_conclude(r);
  retire(scheduler, r);
  crl_run_free(r);
}

void crl_scheduler_orphan(crl_run *r) {
  crl_scheduler *scheduler = r->context->scheduler;
  crl_run_stop(r);
  crl_run_end_compute(r);
  crl_run_abandon(r);
  retire(scheduler, r);
  r->context = NULL;
  pthread_mutex_lock(&scheduler->mutex);
  scheduler->computing--;
  pthread_cond_broadcast(&scheduler->fewer);
  pthread_mutex_unlock(&scheduler->mutex);
}

/* ---- compute ------------------------------------------------------------------------------- */

void crl_scheduler_ended(crl_run *r, int abandoned) {
  crl_scheduler *scheduler = r->context->scheduler;
  r->flown.ended_us = crl_env_now_us();
  pthread_mutex_lock(&scheduler->mutex);
  r->flown.phase = abandoned ? GIVEN_UP : MADE;
  scheduler->computing--;
  push(scheduler, r);
  pthread_cond_broadcast(&scheduler->fewer);
  pthread_mutex_unlock(&scheduler->mutex);
}

static crl_run *run_of(crl_job *job) {
  return (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
}

/* Cleanup: the function ended its thread. */
static void give_up_compute(crl_run **r) {
  if (*r != NULL) crl_scheduler_ended(*r, 1);
}

static void compute(crl_job *job) {
  crl_run *r = run_of(job), *runs[] = {r};
  __attribute__((cleanup(give_up_compute))) crl_run *inside = r;
  crl_computing frame = {.runs = runs, .count = 1};
  const crl_computing *outer = crl_run_inside(&frame);
  int status = r->compute(&r->fill, r->key.user, r->key.user_len, r->arg);
  crl_run_inside(outer);
  inside = NULL;
  if (status < 0 && r->fill.filled != CRL_FILLED_FAILURE)
    corral_fill_fail(&r->fill, status, corral_status_text(status));
  crl_scheduler_ended(r, 0);
}

static void drop(crl_job *job) { crl_scheduler_ended(run_of(job), 1); }

/* `ended` of a fill whose compute goes on after `start` returns: an origin's. */
static void on_fetched(corral_fill *fill, int abandoned) {
  crl_scheduler_ended((crl_run *)(void *)((char *)fill - offsetof(crl_run, fill)), abandoned);
}

/* The compute may have ended before this returns. 0: it can't begin. */
static int begin(crl_scheduler *scheduler, crl_run *r) {
  if (r->start != NULL && r->flown.caller != NULL && r->flown.caller->begin != NULL)
    return r->flown.caller->begin(r->flown.caller, r);
  if (r->start != NULL) {
    r->fill.ended = on_fetched;
    r->start(r->arg, &r->fill, r->key.user, r->key.user_len);
    return 1;
  }
  r->job = (crl_job){.run = compute, .drop = drop};
  return crl_workers_submit(scheduler->context->workers, &r->job) == 0;
}

static void begin_compute(crl_scheduler *scheduler, crl_run *r) {
  pthread_mutex_lock(&scheduler->mutex);
  int may = !scheduler->closing;
  if (may) scheduler->computing++;
  pthread_mutex_unlock(&scheduler->mutex);
  if (may) {
    crl_run_forget_caller(r);
    if (r->flown.caller != NULL) r->flown.caller->waits(r->flown.caller, r);
    r->flown.phase = COMPUTES;
    r->flown.computing = 1;
    crl_run_begin_compute(r);
    if (!begin(scheduler, r)) crl_scheduler_ended(r, 1);
  } else {
    give_up(scheduler, r);
  }
}

static void finish_compute(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  crl_run_made(r, r->flown.ended_us, &told);
  crl_run_end_compute(r);
  r->flown.computing = 0;
  crl_run_step(r, &told);
}

/* ---- going on ------------------------------------------------------------------------------ */

static void step(crl_run *r, int status) {
  crl_told told;
  memset(&told, 0, sizeof told);
  told.status = status;
  crl_run_step(r, &told);
}

/* 0: the wait for the host's lock goes on. */
static int is_over(const crl_run *r) {
  return !r->flight.at_host || crl_env_now_ms() >= r->flight.until ||
         crl_cancelled(r->cancel_token) || atomic_load(&r->left) ||
         !crl_hostlock_is_held(r->context->hostlock, r->key.whole, r->key.whole_len);
}

static int64_t host_poll(const crl_run *r) {
  int64_t next = crl_env_now_ms() + HOST_POLL_MS;
  return next < r->flight.until ? next : r->flight.until;
}

/* Continues by the run's phase. 0: the run is parked again, or freed. */
static int resume(crl_scheduler *scheduler, crl_run *r) {
  switch ((phase)r->flown.phase) {
    case WAITS:
      crl_timers_clear(scheduler->alarms, &r->flown.alarm);
      while (!is_closing(scheduler) && !is_over(r))
        if (!park(scheduler, r, host_poll(r), WAITS)) return 0;
      if (is_closing(scheduler)) break;
      step(r, CORRAL_OK);
      return 1;
    case WANTS_SLOT:
      crl_timers_clear(scheduler->alarms, &r->flown.alarm);
      if (is_closing(scheduler)) break;
      return 1;
    case MADE: finish_compute(r); return 1;
    case GIVEN_UP: break;
    default: return 1;
  }
  give_up(scheduler, r);
  return 0;
}

/* 0: the run isn't this courier's any more. */
static int wait(crl_scheduler *scheduler, crl_run *r) {
  if (crl_run_begin_wait(r)) {
    step(r, CORRAL_OK);
    return 1;
  }
  return park(scheduler, r, r->flight.at_host ? host_poll(r) : r->flight.until, WAITS)
             ? resume(scheduler, r)
             : 0;
}

/* Tries once, behind the callers that wait in threads. 0: the run isn't this courier's any more. */
static int take_slot(crl_scheduler *scheduler, crl_run *r) {
  int waited;
  int status =
      crl_semaphore_enter(r->context->origin, (crl_rank)r->flight.rank, 0, NULL, &r->slot, &waited);
  int64_t now = crl_env_now_ms(), dice = 0;
  if (status != CORRAL_OK && r->flown.tries++ == 0) crl_run_emit(r, CORRAL_EVENT_LIMITED, NULL);
  if (status == CORRAL_OK || now >= r->flight.until || crl_cancelled(r->cancel_token) ||
      atomic_load(&r->left)) {
    r->has_slot = status == CORRAL_OK;
    r->flown.tries = 0;
    step(r, status);
    return 1;
  }
  crl_env_random(&dice, sizeof dice);
  int64_t next =
      now +
      (crl_policy_backoff(r->policy.poll_ms, r->policy.poll_max_ms, r->flown.tries, (uint64_t)dice)
       << r->flight.rank);
  return park(scheduler, r, next < r->flight.until ? next : r->flight.until, WANTS_SLOT)
             ? resume(scheduler, r)
             : 0;
}

/* Leaves the caller's cancel token before the answer: an answered caller may free its cancel
 * token. */
static void answer(crl_run *r) {
  crl_run_forget_caller(r);
  crl_run_answer(r);
  if (r->flown.caller != NULL) r->flown.caller->answered(r->flown.caller, r);
  step(r, CORRAL_OK);
}

static void do_at_once(crl_run *r) {
  crl_told told;
  memset(&told, 0, sizeof told);
  if (r->ask == CRL_ASK_HOST)
    crl_run_take_host(r, &told);
  else
    crl_run_find_outbox(r, &told);
  crl_run_step(r, &told);
}

/* Steps a run until it asks the store for something. 0: the run isn't this courier's any more. */
static int advance(crl_scheduler *scheduler, crl_run *r) {
  int ours = resume(scheduler, r);
  if (ours) r->flown.phase = CRUISES;
  while (ours) {
    switch (r->ask) {
      case CRL_ASK_GET:
      case CRL_ASK_CLAIM:
      case CRL_ASK_SETTLE:
      case CRL_ASK_RELEASE: return 1;
      case CRL_ASK_WAIT: ours = wait(scheduler, r); break;
      case CRL_ASK_SLOT: ours = take_slot(scheduler, r); break;
      case CRL_ASK_ANSWER: answer(r); break;
      case CRL_ASK_HOST:
      case CRL_ASK_OUTBOX: do_at_once(r); break;
      case CRL_ASK_COMPUTE: begin_compute(scheduler, r); return 0;
      case CRL_ASK_DONE: land(scheduler, r); return 0;
    }
    if (ours) r->flown.phase = CRUISES;
  }
  return 0;
}

/* ---- couriers ------------------------------------------------------------------------------ */

static void perform(courier *c, size_t count) {
  if (c->batch.requests != NULL || crl_batch_make(&c->batch, c->scheduler->context, RUNS)) {
    crl_batch_perform(&c->batch, c->runs, count);
    return;
  }
  crl_batch_clean(&c->batch);
  for (size_t i = 0; i < count; i++) {
    crl_told told;
    memset(&told, 0, sizeof told);
    crl_run_perform(c->runs[i], &told);
    crl_run_step(c->runs[i], &told);
  }
}

static void fly(courier *c, size_t count) {
  while (count > 0) {
    size_t asking = 0;
    for (size_t i = 0; i < count; i++)
      if (advance(c->scheduler, c->runs[i])) c->runs[asking++] = c->runs[i];
    if (asking > 0) perform(c, asking);
    count = asking;
  }
}

static size_t take(courier *c) {
  crl_scheduler *scheduler = c->scheduler;
  size_t count = 0;
  pthread_mutex_lock(&scheduler->mutex);
  for (; scheduler->head != NULL && count < RUNS; count++) {
    c->runs[count] = scheduler->head;
    scheduler->head = scheduler->head->flown.next;
  }
  if (scheduler->head == NULL) scheduler->tail = &scheduler->head;
  if (count == 0) c->is_out = 0;
  pthread_mutex_unlock(&scheduler->mutex);
  return count;
}

static void carry(crl_job *job) {
  courier *c = (courier *)(void *)((char *)job - offsetof(courier, job));
  for (size_t count; (count = take(c)) > 0;) fly(c, count);
}

/* Never called: the threads are closed when no run is aloft. */
static void no_drop(crl_job *job) { (void)job; }

/* ---- public -------------------------------------------------------------------------------- */

crl_timers *crl_scheduler_alarms(crl_scheduler *scheduler) { return scheduler->alarms; }

static size_t couriers_for(const corral_store_info *info) {
  size_t most = (size_t)(info->handles > 0 ? info->handles : 1) * info->servers;
  return most < 2 ? 2 : most > COURIERS ? COURIERS : most;
}

crl_scheduler *crl_scheduler_new(crl_context *context) {
  crl_scheduler *scheduler = crl_alloc(sizeof *scheduler);
  if (scheduler == NULL) return NULL;
  scheduler->context = context;
  scheduler->tail = &scheduler->head;
  scheduler->most = couriers_for(crl_pool_info(context->pool));
  scheduler->alarms = crl_timers_new();
  scheduler->threads = crl_workers_new((int64_t)scheduler->most);
  pthread_mutex_init(&scheduler->mutex, NULL);
  crl_env_cond_init(&scheduler->fewer);
  if (scheduler->alarms != NULL && scheduler->threads != NULL) return scheduler;
  crl_scheduler_free(scheduler);
  return NULL;
}

int crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *cancel_token) {
  r->handed_over = 1;
  r->flown.alarm.ring = on_alarm;
  if (r->waiter == NULL) {
    crl_waiter_init_hook(&r->own_waiter, on_wake);
    r->waiter = &r->own_waiter;
  }
  crl_run_meet_caller(r, cancel_token);
  pthread_mutex_lock(&scheduler->mutex);
  int status = !has_couriers(scheduler) ? CORRAL_ENOMEM
               : !push(scheduler, r)    ? CORRAL_EIO
                                        : CORRAL_OK;
  if (status == CORRAL_OK) scheduler->aloft++;
  pthread_mutex_unlock(&scheduler->mutex);
  if (status != CORRAL_OK) crl_run_forget_caller(r);
  return status;
}

void crl_scheduler_close(crl_scheduler *scheduler) {
  pthread_mutex_lock(&scheduler->mutex);
  scheduler->closing = 1;
  while (scheduler->parked != NULL) unpark(scheduler, scheduler->parked);
  while (scheduler->aloft > scheduler->computing)
    pthread_cond_wait(&scheduler->fewer, &scheduler->mutex);
  pthread_mutex_unlock(&scheduler->mutex);
}

void crl_scheduler_free(crl_scheduler *scheduler) {
  pthread_mutex_lock(&scheduler->mutex);
  while (scheduler->aloft > 0) pthread_cond_wait(&scheduler->fewer, &scheduler->mutex);
  pthread_mutex_unlock(&scheduler->mutex);
  if (scheduler->threads != NULL) crl_workers_free(scheduler->threads);
  if (scheduler->alarms != NULL) crl_timers_free(scheduler->alarms);
  for (size_t i = 0; scheduler->couriers != NULL && i < scheduler->most; i++)
    crl_batch_clean(&scheduler->couriers[i].batch);
  free(scheduler->couriers);
  pthread_cond_destroy(&scheduler->fewer);
  pthread_mutex_destroy(&scheduler->mutex);
  free(scheduler);
}
