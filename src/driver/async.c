/* async.c: the asynchronous scheduler: drives runs that have no thread of their own. */
#include "driver/async.h"

#include <stdlib.h>

#include "base/check.h"
#include "base/status.h"
#include "driver/advance.h"
#include "driver/batch.h"
#include "os/env.h"

enum { COURIERS = 8, RUNS = 128, HOST_POLL_MS = 4 };

typedef enum phase {
  READY = 0, /* to be driven */
  COMPUTES,
  COMPUTED, /* the compute that `start` began has ended */
  GIVEN_UP  /* the compute was abandoned */
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

#ifdef CORRAL_CHECKS
static size_t check_ready(const crl_scheduler *scheduler) {
  size_t count = 0;
  crl_run *const *link = &scheduler->head;
  for (; *link != NULL && count < CRL_CHECK_MOST; link = &(*link)->flown.next, count++)
    CRL_MUST(!(*link)->flown.parked, "scheduler: a run that is ready isn't parked");
  CRL_MUST(*link != NULL || scheduler->tail == link, "scheduler: the queue knows its end");
  return count;
}

static size_t check_parked(const crl_scheduler *scheduler) {
  size_t count = 0;
  crl_run *const *link = &scheduler->parked;
  for (; *link != NULL && count < CRL_CHECK_MOST; link = &(*link)->flown.next, count++) {
    CRL_MUST((*link)->flown.link == link, "scheduler: a parked run knows the link to it");
    CRL_MUST((*link)->flown.parked, "scheduler: a run among the parked is parked");
  }
  return count;
}

static int has_courier_out(const crl_scheduler *scheduler) {
  size_t i = 0;
  while (scheduler->couriers != NULL && i < scheduler->most && !scheduler->couriers[i].is_out) i++;
  return scheduler->couriers != NULL && i < scheduler->most;
}

static void check(const crl_scheduler *scheduler) {
  size_t still = check_ready(scheduler) + check_parked(scheduler);
  CRL_MUST(still + scheduler->computing <= scheduler->aloft,
           "scheduler: a run is ready, parked or computes, and is aloft");
  CRL_MUST(scheduler->head == NULL || has_courier_out(scheduler),
           "scheduler: a courier is out while a run is ready");
  CRL_MUST(!scheduler->closing || scheduler->parked == NULL,
           "scheduler: no run is parked once it closes");
}
#endif

static void lock(crl_scheduler *scheduler) {
  pthread_mutex_lock(&scheduler->mutex);
  CRL_CHECK(scheduler);
}

static void unlock(crl_scheduler *scheduler) {
  CRL_CHECK(scheduler);
  pthread_mutex_unlock(&scheduler->mutex);
}

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
    if (crl_workers_submit(scheduler->context->threads.workers, &c->job) == 0) return 1;
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

static void stir(crl_run *r, int wakes) {
  crl_scheduler *scheduler = r->context->scheduler;
  lock(scheduler);
  r->flown.stirred = 1;
  if (wakes) r->flown.woken = 1;
  if (r->flown.parked) unpark(scheduler, r);
  unlock(scheduler);
}

void crl_scheduler_wake(crl_run *r) { stir(r, 1); }

static void on_wake(crl_waiter *waiter) {
  stir((crl_run *)(void *)((char *)waiter - offsetof(crl_run, own_waiter)), 1);
}
static int64_t on_timer(crl_timer *timer) {
  stir((crl_run *)(void *)((char *)timer - offsetof(crl_run, flown.timer)), 0);
  return INT64_MAX;
}

static int take_wake(crl_scheduler *scheduler, crl_run *r) {
  lock(scheduler);
  int woken = r->flown.woken;
  r->flown.woken = r->flown.stirred = 0;
  unlock(scheduler);
  return woken;
}

/* Sets the timer before it parks the run: one that rings in between is remembered in `stirred`. 1:
 * the run is parked, and another thread may drive it already. 0: it goes on. -1: closing. */
static int park(crl_scheduler *scheduler, crl_run *r, int64_t until) {
  int status = crl_timers_set(scheduler->context->threads.timers, &r->flown.timer, until);
  r->flown.timed = 1;
  lock(scheduler);
  int closing = scheduler->closing, parks = status == CORRAL_OK && !r->flown.stirred && !closing;
  if (parks) {
    r->flown.parked = 1;
    r->flown.next = scheduler->parked;
    r->flown.link = &scheduler->parked;
    if (r->flown.next != NULL) r->flown.next->flown.link = &r->flown.next;
    scheduler->parked = r;
  }
  unlock(scheduler);
  if (status != CORRAL_OK) crl_env_sleep_until(crl_env_now_ms() + 1);
  return closing ? -1 : parks;
}

/* ---- the end ------------------------------------------------------------------------------- */

/* `computing`: 1 when its compute is still under way. */
static void retire(crl_scheduler *scheduler, crl_run *r, size_t computing) {
  if (r->flown.timed) crl_timers_clear(scheduler->context->threads.timers, &r->flown.timer);
  crl_run_part(r);
  if (r->flown.caller != NULL) r->flown.caller->gone(r->flown.caller, r);
  lock(scheduler);
  scheduler->aloft--;
  scheduler->computing -= computing;
  pthread_cond_broadcast(&scheduler->fewer);
  unlock(scheduler);
}

static void give_up(crl_scheduler *scheduler, crl_run *r) {
  if (r->flown.computing) crl_run_end_compute(r);
  r->flown.computing = 0;
  crl_run_abandon(r);
  retire(scheduler, r, 0);
  crl_run_free(r);
}

static void land(crl_scheduler *scheduler, crl_run *r) {
  retire(scheduler, r, 0);
  crl_run_free(r);
}

void crl_scheduler_orphan(crl_run *r) {
  crl_scheduler *scheduler = r->context->scheduler;
  crl_run_stop(r);
  crl_run_end_compute(r);
  crl_run_abandon(r);
  retire(scheduler, r, 1);
  r->context = NULL;
}

/* ---- compute ------------------------------------------------------------------------------- */

/* The compute is over: the run goes on in this phase. */
static void go_on(crl_run *r, phase next) {
  crl_scheduler *scheduler = r->context->scheduler;
  lock(scheduler);
  r->flown.phase = (int)next;
  scheduler->computing--;
  push(scheduler, r);
  pthread_cond_broadcast(&scheduler->fewer);
  unlock(scheduler);
}

void crl_scheduler_ended(crl_run *r, int abandoned) {
  r->flown.ended_us = crl_env_now_us();
  go_on(r, abandoned ? GIVEN_UP : COMPUTED);
}

static crl_run *run_of(crl_job *job) {
  return (crl_run *)(void *)((char *)job - offsetof(crl_run, job));
}

/* Cleanup: the function ended its thread. */
static void give_up_compute(crl_run **r) {
  if (*r != NULL) go_on(*r, GIVEN_UP);
}

static void compute(crl_job *job) {
  __attribute__((cleanup(give_up_compute))) crl_run *inside = run_of(job);
  corral_fill *fill;
  crl_advance_compute(&inside, &fill, 1);
  crl_run *r = inside;
  inside = NULL;
  go_on(r, READY);
}

static void drop(crl_job *job) { go_on(run_of(job), GIVEN_UP); }

/* `ended` of a fill whose compute goes on after `start` returns: an origin's. */
static void on_fetched(corral_fill *fill, int abandoned) {
  crl_scheduler_ended((crl_run *)(void *)((char *)fill - offsetof(crl_run, fill)), abandoned);
}

/* The compute may have ended before this returns. 0: it can't begin. */
static int begin(crl_scheduler *scheduler, crl_run *r) {
  if (r->start == NULL) {
    r->job = (crl_job){.run = compute, .drop = drop};
    return crl_workers_submit(scheduler->context->threads.workers, &r->job) == 0;
  }
  r->flown.computing = 1;
  crl_run_begin_compute(r);
  if (r->flown.caller != NULL && r->flown.caller->begin != NULL)
    return r->flown.caller->begin(r->flown.caller, r);
  r->fill.ended = on_fetched;
  r->start(r->arg, &r->fill, r->found.key.user, r->found.key.user_len);
  return 1;
}

static void begin_compute(crl_scheduler *scheduler, crl_run *r) {
  lock(scheduler);
  int may = !scheduler->closing;
  if (may) scheduler->computing++;
  unlock(scheduler);
  if (!may) {
    give_up(scheduler, r);
    return;
  }
  crl_run_forget_caller(r);
  if (r->flown.caller != NULL) r->flown.caller->waits(r->flown.caller, r);
  r->flown.phase = COMPUTES;
  if (!begin(scheduler, r)) go_on(r, GIVEN_UP);
}

/* ---- going on ------------------------------------------------------------------------------ */

/* 1: the wait goes on. */
static int waits_for_host(const crl_run *r) {
  return crl_env_now_ms() < r->flight.until &&
         crl_hostlock_is_held(r->context->hostlock, r->found.key.whole, r->found.key.whole_len);
}

/* Parks the run. 0: it isn't this courier's any more. */
static int rest(crl_scheduler *scheduler, crl_run *r, crl_need need, int64_t until) {
  int64_t poll = crl_env_now_ms() + HOST_POLL_MS;
  int parked = park(scheduler, r, need == CRL_NEED_HOST && poll < until ? poll : until);
  if (parked < 0) give_up(scheduler, r);
  return parked == 0;
}

/* Takes up the run by its phase. 0: it was given up. */
static int resume(crl_scheduler *scheduler, crl_run *r) {
  if (r->flown.timed) crl_timers_clear(scheduler->context->threads.timers, &r->flown.timer);
  r->flown.timed = 0;
  if (r->flown.phase == COMPUTED) {
    r->flown.computing = 0;
    crl_advance_computed(r, r->flown.ended_us);
  } else if (r->flown.phase == GIVEN_UP) {
    give_up(scheduler, r);
    return 0;
  }
  r->flown.phase = READY;
  return 1;
}

/* Drives a run until it asks the store for something. 0: the run isn't this courier's any more. */
static int drive(crl_scheduler *scheduler, crl_run *r) {
  int ours = resume(scheduler, r);
  while (ours) {
    int64_t until;
    int woken = take_wake(scheduler, r);
    if (r->waits && r->flight.at_host) woken = !waits_for_host(r);
    crl_need need = crl_advance(r, woken, &until);
    switch (need) {
      case CRL_NEED_STORE: return 1;
      case CRL_NEED_WAKE:
      case CRL_NEED_HOST: ours = rest(scheduler, r, need, until); break;
      case CRL_NEED_ELSEWHERE:
      case CRL_NEED_COMPUTE: begin_compute(scheduler, r); return 0;
      case CRL_NEED_NOTHING: land(scheduler, r); return 0;
    }
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
      if (drive(c->scheduler, c->runs[i])) c->runs[asking++] = c->runs[i];
    if (asking > 0) perform(c, asking);
    count = asking;
  }
}

static size_t take(courier *c) {
  crl_scheduler *scheduler = c->scheduler;
  size_t count = 0;
  lock(scheduler);
  for (; scheduler->head != NULL && count < RUNS; count++) {
    c->runs[count] = scheduler->head;
    scheduler->head = scheduler->head->flown.next;
  }
  if (scheduler->head == NULL) scheduler->tail = &scheduler->head;
  if (count == 0) c->is_out = 0;
  unlock(scheduler);
  return count;
}

static void carry(crl_job *job) {
  courier *c = (courier *)(void *)((char *)job - offsetof(courier, job));
  for (size_t count; (count = take(c)) > 0;) fly(c, count);
}

/* Never called: the threads are closed when no run is aloft. */
static void no_drop(crl_job *job) { (void)job; }

/* ---- public -------------------------------------------------------------------------------- */

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
  pthread_mutex_init(&scheduler->mutex, NULL);
  crl_env_cond_init(&scheduler->fewer);
  return scheduler;
}

int crl_scheduler_fly(crl_scheduler *scheduler, crl_run *r, corral_cancel_token *cancel_token) {
  r->handed_over = 1;
  if (r->flight.answered) r->nested = 0;
  if (!r->has_slot && !r->asks_slot) r->slot = NULL; /* others' may end with the call */
  /* a wake while the hook changes may come to neither; that of a slot, which may come late, is of a
   * slot that the run has already */
  if (r->watches) crl_watch_leave(r->context->watch, &r->watcher);
  r->watches = 0;
  r->flown.timer.ring = on_timer;
  r->own_waiter.hook = on_wake;
  r->waiter = &r->own_waiter;
  crl_run_meet_caller(r, cancel_token);
  lock(scheduler);
  int status = !has_couriers(scheduler) ? CORRAL_ENOMEM
               : !push(scheduler, r)    ? CORRAL_EIO
                                        : CORRAL_OK;
  if (status == CORRAL_OK) scheduler->aloft++;
  unlock(scheduler);
  if (status != CORRAL_OK) {
    crl_run_forget_caller(r);
    r->own_waiter.hook = NULL;
  }
  return status;
}

void crl_scheduler_close(crl_scheduler *scheduler) {
  lock(scheduler);
  scheduler->closing = 1;
  while (scheduler->parked != NULL) unpark(scheduler, scheduler->parked);
  while (scheduler->aloft > scheduler->computing)
    pthread_cond_wait(&scheduler->fewer, &scheduler->mutex);
  unlock(scheduler);
}

void crl_scheduler_drain(crl_scheduler *scheduler) {
  lock(scheduler);
  while (scheduler->aloft > 0) pthread_cond_wait(&scheduler->fewer, &scheduler->mutex);
  unlock(scheduler);
}

void crl_scheduler_free(crl_scheduler *scheduler) {
  for (size_t i = 0; scheduler->couriers != NULL && i < scheduler->most; i++)
    crl_batch_clean(&scheduler->couriers[i].batch);
  free(scheduler->couriers);
  pthread_cond_destroy(&scheduler->fewer);
  pthread_mutex_destroy(&scheduler->mutex);
  free(scheduler);
}
