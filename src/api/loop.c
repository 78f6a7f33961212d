/* loop.c: event loops: calls whose callbacks, and computes whose beginnings, run on the thread that
 * dispatches the loop. */
#include <corral/loop.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "api/due.h"
#include "os/env.h"
#include "api/handle.h"
#include "driver/verify.h"
#include "base/sized.h"
#include "base/status.h"

#define MAGIC UINT32_C(0xc0881a22)

/* ---- computes begun on the loop's thread --------------------------------------------------- */

/* Values of flown.fate, set by the end of the compute (on_ended) and by the close of its loop
 * (take_orphans, orphan), whichever comes first. */
enum { BEGUN = 0, HAS_ENDED, IS_ORPHANED_NOW, IS_ORPHAN, ENDED_MEANWHILE };

static void forget_computing(crl_run *r) {
  if (r->flown.link == NULL) return;
  *r->flown.link = r->flown.next;
  if (r->flown.next != NULL) r->flown.next->flown.link = r->flown.link;
  r->flown.link = NULL;
}

static void end_compute(corral_loop *loop, crl_run *r, int abandoned) {
  crl_inbox_lock(loop);
  forget_computing(r);
  int waits_for_start = r->flown.starting;
  r->flown.ended = abandoned ? 2 : 1;
  crl_inbox_unlock(loop);
  if (!waits_for_start) crl_scheduler_ended(r, abandoned);
}

static void on_ended(corral_fill *fill, int abandoned) {
  crl_run *r = (crl_run *)(void *)((char *)fill - offsetof(crl_run, fill));
  int fate = BEGUN;
  if (atomic_compare_exchange_strong(&r->flown.fate, &fate, HAS_ENDED)) {
    end_compute(crl_async_call(r->flown.caller)->loop, r, abandoned);
    return;
  }
  if (fate == IS_ORPHANED_NOW &&
      atomic_compare_exchange_strong(&r->flown.fate, &fate, ENDED_MEANWHILE))
    return;
  crl_run_free(r);
}

/* Takes the loop's unfinished computes. Under the mutex. A run that has ended is skipped: on_ended
 * has it, and may free it at any time. */
static crl_run *take_orphans(corral_loop *loop) {
  crl_run *orphans = NULL;
  for (crl_run *r = loop->computing, *next; r != NULL; r = next) {
    int fate = BEGUN;
    next = r->flown.next;
    r->flown.link = NULL;
    if (!atomic_compare_exchange_strong(&r->flown.fate, &fate, IS_ORPHANED_NOW)) continue;
    r->flown.next = orphans;
    orphans = r;
  }
  loop->computing = NULL;
  return orphans;
}

static void orphan(crl_run *r) {
  crl_scheduler_orphan(r);
  if (atomic_exchange(&r->flown.fate, IS_ORPHAN) == ENDED_MEANWHILE) crl_run_free(r);
}

/* Under the mutex. */
static void remember_computing(corral_loop *loop, crl_run *r) {
  r->flown.next = loop->computing;
  r->flown.link = &loop->computing;
  if (r->flown.next != NULL) r->flown.next->flown.link = &r->flown.next;
  loop->computing = r;
  r->flown.starting = 1;
  r->fill.ended = on_ended;
}

/* The run goes on when `start` has returned and the compute has ended, whichever comes later. */
static void start(corral_loop *loop, crl_run *r) {
  corral_async_call *call = crl_async_call(r->flown.caller);
  crl_run *runs[] = {r};
  crl_computing frame = {.runs = runs, .count = 1};
  crl_async_bring_on(call);
  crl_inbox_lock(loop);
  int is_cancelled = call->is_cancelled;
  if (!is_cancelled) remember_computing(loop, r);
  crl_inbox_unlock(loop);
  if (is_cancelled) {
    crl_scheduler_ended(r, 1);
    return;
  }
  const crl_computing *outer = crl_run_inside(&frame);
  call->async.start(call->async.arg, &r->fill, r->found.key.user, r->found.key.user_len);
  crl_run_inside(outer);
  crl_inbox_lock(loop);
  r->flown.starting = 0;
  int ended = r->flown.ended;
  crl_inbox_unlock(loop);
  if (ended) crl_scheduler_ended(r, ended == 2);
}

/* ---- public: the loop ---------------------------------------------------------------------- */

int crl_inbox_check_open(const corral_loop *loop, corral_error *error) {
  crl_context *unused;
  if (loop == NULL || loop->magic != MAGIC)
    return crl_status_fail(error, CORRAL_EINVAL, "not an open loop");
  return crl_context_enter(loop->c, &unused, error);
}

int corral_loop_open(corral *c, corral_loop **ret, corral_error *error) {
  crl_context *context;
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_loop_open: no ret");
  int status = crl_context_enter(c, &context, error);
  if (status != CORRAL_OK) return status;
  corral_loop *loop = crl_alloc(sizeof *loop);
  if (loop == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  *loop = (corral_loop){.magic = MAGIC,
                        .c = c,
                        .context = context,
                        .refs = 1,
                        .bell = crl_env_own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))};
  loop->fd = loop->bell;
  if (loop->bell >= 0 && crl_hit_is_of(context) && crl_lookout_is_offered(context->pool))
    loop->fd = crl_looks_open(loop, crl_async_looked);
  if (loop->fd < 0) {
    if (loop->bell >= 0) close(loop->bell);
    free(loop);
    return crl_status_fail(error, CORRAL_EIO, "no file descriptor for a loop");
  }
  loop->tail = &loop->head;
  loop->due_tail = &loop->due;
  pthread_mutex_init(&loop->mutex, NULL);
  crl_env_cond_init(&loop->fewer);
  *ret = loop;
  return CORRAL_OK;
}

int corral_loop_fd(const corral_loop *loop) { return loop == NULL ? -1 : loop->fd; }

static crl_mail *take_all(corral_loop *loop) {
  uint64_t rung;
  crl_inbox_lock(loop);
  crl_mail *first = loop->head;
  loop->head = NULL;
  loop->tail = &loop->head;
  if (loop->is_rung) {
    ssize_t n = read(loop->bell, &rung, sizeof rung);
    (void)n;
  }
  loop->is_rung = 0;
  crl_inbox_unlock(loop);
  return first;
}

static corral_async_call *open_mail(corral_loop *loop, crl_mail *m) {
  crl_inbox_lock(loop);
  m->is_posted = 0;
  crl_inbox_unlock(loop);
  return (corral_async_call *)(void *)((char *)m - offsetof(corral_async_call, mail));
}

int corral_loop_dispatch(corral_loop *loop) {
  int count = 0;
  if (loop == NULL || loop->magic != MAGIC || !crl_context_is_home(loop->context)) return 0;
  loop->is_dispatched = 1;
  for (crl_mail *m = take_all(loop), *next; m != NULL; m = next, count++) {
    next = m->next;
    if (m->starts == NULL) {
      crl_async_bring_on(open_mail(loop, m));
      continue;
    }
    crl_run *r = m->starts;
    free(m);
    start(loop, r);
  }
  if (loop->looks != NULL) count += crl_looks_dispatch(loop->looks, count == 0);
  count += crl_due_tell(loop);
  loop->is_dispatched = 0;
  return count;
}

/* Ends runs whose compute isn't begun yet; orphans the others. */
static void give_up_computes(corral_loop *loop) {
  crl_inbox_lock(loop);
  loop->is_closed = 1;
  /* held until corral_loop_close has ended the call */
  for (corral_async_call *call = loop->calls; call != NULL; call = call->next) call->runs++;
  crl_mail *first = loop->head;
  crl_run *orphans = take_orphans(loop);
  loop->head = NULL;
  loop->tail = &loop->head;
  crl_inbox_unlock(loop);
  for (crl_mail *m = first, *next; m != NULL; m = next) {
    next = m->next;
    if (m->starts == NULL) continue;
    crl_scheduler_ended(m->starts, 1);
    free(m);
  }
  for (crl_run *r = orphans, *next; r != NULL; r = next) {
    next = r->flown.next;
    orphan(r);
  }
}

static void await_work(corral_loop *loop) {
  crl_inbox_lock(loop);
  while (loop->working > 0) pthread_cond_wait(&loop->fewer, &loop->mutex);
  crl_inbox_unlock(loop);
}

/* The entry that was handed to a call, if no mail has told the call so yet; else NULL. */
static crl_entry *handed(corral_async_call *call) {
  crl_inbox_lock(call->loop);
  crl_entry *entry = call->handed;
  call->handed = NULL;
  crl_inbox_unlock(call->loop);
  return entry;
}

void corral_loop_close(corral_loop *loop) {
  if (loop == NULL || loop->magic != MAGIC) return;
  loop->magic = 0;
  if (!crl_context_is_home(loop->context)) return;
  for (corral_async_call *call = loop->calls; call != NULL; call = call->next)
    corral_async_call_cancel(call);
  give_up_computes(loop);
  await_work(loop);
  if (loop->looks != NULL) crl_looks_close(loop->looks);
  crl_due_close(loop);
  for (corral_async_call *call = loop->calls, *next; call != NULL; call = next) {
    next = call->next;
    crl_entry *entry = handed(call);
    if (entry != NULL) crl_async_refuse(call, entry);
    if (call->async.gone != NULL) call->async.gone(call->async.arg);
    crl_async_run_gone(call);
  }
  close(loop->bell);
  crl_inbox_unref(loop, 1);
}

/* ---- public: calls ------------------------------------------------------------------------- */

static int check_async(const corral_async *async, corral_async *ret, corral_error *error) {
  if (async == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "no callbacks: give CORRAL_ASYNC(.done = ...)");
  int status = crl_sized_read(ret, async, sizeof *ret, "async", error);
  if (status != CORRAL_OK || ret->done != NULL) return status;
  return crl_status_fail(error, CORRAL_EINVAL, "no callback `done`");
}

static corral_async_call *new_call(corral_loop *loop, const corral_async *async,
                                   const crl_call *asked, const void *key, size_t key_len) {
  size_t variant_len = asked->variant_len;
  corral_async_call *call = crl_alloc(sizeof *call + key_len + variant_len);
  if (call == NULL) return NULL;
  call->caller = crl_async_caller();
  if (async->start == NULL) call->caller.begin = NULL;
  call->loop = loop;
  call->async = *async;
  call->asked = *asked;
  if (asked->policy != NULL) { /* in its caller's memory, perhaps */
    call->policy = *asked->policy;
    call->asked.policy = &call->policy;
  }
  if (key_len > 0) memcpy(call->key, key, key_len);
  if (variant_len > 0)
    call->asked.variant = memcpy(call->key + key_len, asked->variant, variant_len);
  call->asked.error = NULL;
  crl_join_init(&call->join, loop->context, &call->asked, call->key, key_len);
  crl_async_init_waits(call);
  call->next = loop->calls;
  call->link = &loop->calls;
  if (call->next != NULL) call->next->link = &call->next;
  loop->calls = call;
  crl_inbox_lock(loop);
  loop->refs++;
  crl_inbox_unlock(loop);
  return call;
}

int crl_async_new_work(corral_loop *loop, const corral_async *async, corral_async_call **ret,
                       corral_error *error) {
  corral_async callbacks;
  crl_call nothing = {0};
  int status = crl_inbox_check_open(loop, error);
  if (status == CORRAL_OK) status = check_async(async, &callbacks, error);
  if (status != CORRAL_OK) return status;
  *ret = new_call(loop, &callbacks, &nothing, NULL, 0);
  if (*ret == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  (*ret)->is_work = 1;
  (*ret)->runs = 1;
  return CORRAL_OK;
}

int crl_async_begin_work(corral_async_call *call, int status, corral_async_call **ret,
                         corral_error *error) {
  if (status == CORRAL_OK) {
    if (ret != NULL) *ret = call;
    return CORRAL_OK;
  }
  call->runs = 0;
  crl_async_withdraw(call);
  return crl_status_plain(error, status);
}

/* Begins a call that was not answered at once. *ret: the call, unless `first` is answered now. */
static int begin_get(corral_loop *loop, const corral_async *async, const crl_call *asked,
                     const crl_name *name, crl_first *first, corral_async_call **ret) {
  crl_hit *hit = first->has_looked ? first->hit : NULL;
  corral_async_call *call = new_call(loop, async, asked, name->key, name->key_len);
  if (call == NULL) {
    if (hit != NULL) crl_hit_drop(hit);
    return CORRAL_ENOMEM;
  }
  call->join.early = first->early;
  int status = crl_async_begin(call, hit, &first->outcome);
  first->is_answered = status == CORRAL_OK && call->join.state == CRL_JOIN_ENDED;
  if (status != CORRAL_OK || first->is_answered) crl_async_withdraw(call);
  *ret = call;
  return status;
}

int corral_loop_get(corral_loop *loop, const void *key, size_t key_len, const corral_call *user,
                    const corral_async *async, corral_async_call **ret) {
  corral_async callbacks;
  crl_call asked;
  corral_policy policy;
  crl_context *context;
  crl_first first;
  corral_async_call *call = NULL;
  corral_error *error = crl_handle_error(user);
  int status = crl_inbox_check_open(loop, error);
  if (status == CORRAL_OK) status = check_async(async, &callbacks, error);
  if (status == CORRAL_OK)
    status = crl_handle_call(loop->c, key, key_len, user, &policy, &context, &asked);
  if (status != CORRAL_OK) return status;
  if (callbacks.start != NULL)
    asked.start = callbacks.start;
  else
    crl_handle_bind(loop->c, &asked);
  asked.bound = 1;
  status = crl_handle_obey(context, &policy, &asked, context->looks_first);
  crl_handle_missed(context, status);
  if (status != CORRAL_OK) return status;
  crl_name name = crl_call_name(&asked, key, key_len);
  if (crl_run_recurses(loop->context, &name)) return crl_status_plain(error, CORRAL_ERECURSION);
  crl_run_count(context, &asked, key, key_len);
  crl_due_look(&first, context, &asked, key, key_len);
  if (!first.is_answered) status = begin_get(loop, &callbacks, &asked, &name, &first, &call);
  if (first.is_answered) status = crl_due_new(loop, &callbacks, &first.outcome, &call);
  if (first.is_answered && status == CORRAL_OK)
    crl_verify_served(context, &asked, key, key_len, call->value);
  if (status != CORRAL_OK) {
    if (!first.is_answered) crl_stats_result(&context->events.stats, CORRAL_RESULT_ERROR, 0);
    return crl_status_plain(error, status);
  }
  if (ret != NULL) *ret = call;
  return CORRAL_OK;
}

static crl_limiter *limiter_of(const corral_async_call *call) {
  return crl_semaphore_limiter(call->loop->context->limiter);
}

static void end_work(corral_async_call *call, int status, const corral_error *error) {
  crl_limiter_leave(limiter_of(call), &call->place);
  crl_async_end_work(call, status, error);
}

/* Outcome of a function on a worker; stays CORRAL_ECANCELLED when the function ends its thread. */
typedef struct working {
  corral_async_call *call;
  corral_error error;
  int status, works;
} working;

static void end_working(working *w) {
  if (w->works) crl_inbox_has_worked(w->call->loop);
  end_work(w->call, w->status, &w->error);
}

static void work(crl_job *job) {
  __attribute__((cleanup(end_working))) working w = {.status = CORRAL_ECANCELLED};
  w.call = (corral_async_call *)(void *)((char *)job - offsetof(corral_async_call, job));
  w.works = crl_inbox_may_work(w.call->loop); /* else the call's arg may be gone */
  crl_worker_set_place(1);
  if (w.works) w.status = w.call->work(w.call->loop->c, w.call->async.arg, &w.error);
  crl_worker_set_place(0);
}

static void drop_work(crl_job *job) {
  corral_error none = {0};
  end_work((corral_async_call *)(void *)((char *)job - offsetof(corral_async_call, job)),
           CORRAL_ECLOSED, &none);
}

static int submit(corral_async_call *call) {
  return crl_workers_submit(call->loop->context->threads.workers, &call->job) == 0;
}

/* The function has its place. Without a thread to be had, it waits for one of those that there
 * are. */
static void on_place(crl_waiter *waiter) {
  corral_async_call *call =
      (corral_async_call *)(void *)((char *)waiter - offsetof(corral_async_call, waiter));
  (void)submit(call);
}

int corral_loop_run(corral_loop *loop, corral_work *function, const corral_async *async,
                    corral_async_call **ret, corral_error *error) {
  corral_async_call *call;
  if (function == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_loop_run: no work");
  int status = crl_async_new_work(loop, async, &call, error);
  if (status != CORRAL_OK) return status;
  call->work = function;
  call->job = (crl_job){.run = work, .drop = drop_work};
  call->waiter.hook = on_place;
  int takes = crl_limiter_ask(limiter_of(call), &call->place, CRL_RANK_COLD, CRL_PLACE_THREAD,
                              &call->waiter);
  int begins = !takes || submit(call);
  if (!begins) crl_limiter_leave(limiter_of(call), &call->place);
  return crl_async_begin_work(call, begins ? CORRAL_OK : CORRAL_EIO, ret, error);
}

void corral_async_call_cancel(corral_async_call *call) {
  if (call == NULL || call->state == CRL_ASYNC_ENDED) return;
  if (call->state == CRL_ASYNC_DUE) {
    crl_due_cancel(call);
    return;
  }
  if (!call->is_work) crl_stats_result(&call->loop->context->events.stats, CORRAL_RESULT_ERROR, 0);
  if (call->state == CRL_ASYNC_JOINED) crl_async_leave(call);
  if (call->state == CRL_ASYNC_LOOKS) crl_async_leave_look(call);
  call->state = CRL_ASYNC_ENDED;
  if (call->work != NULL && crl_limiter_withdraw(limiter_of(call), &call->place))
    drop_work(&call->job);
  if (call->locks != NULL) crl_async_cancel_lock(call->locks);
  crl_inbox_lock(call->loop);
  call->is_cancelled = 1;
  if (call->flying != NULL) {
    atomic_store(&call->flying->left, 1);
    crl_scheduler_wake(call->flying);
    call->flying = NULL;
  }
  crl_inbox_post(call->loop, &call->mail);
  crl_inbox_unlock(call->loop);
}

static __attribute__((noinline)) int peek_near(crl_context *context, const crl_call *call,
                                               const void *key, size_t key_len,
                                               corral_value **ret) {
  crl_join join;
  crl_outcome outcome;
  crl_join_init(&join, context, call, key, key_len);
  join.outcome = &outcome;
  if (!crl_run_near(&join, 1)) return CORRAL_EMISS;
  return crl_outcome_deliver(context, &outcome, call->error, ret);
}

int corral_peek(corral *c, const void *key, size_t key_len, const corral_call *user,
                corral_value **ret) {
  crl_call call;
  corral_policy policy;
  crl_context *context;
  corral_error *error = crl_handle_error(user);
  if (ret == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_peek: no ret");
  int status = crl_handle_call(c, key, key_len, user, &policy, &context, &call);
  if (status != CORRAL_OK) return status;
  call.peeks = 1;
  status = crl_handle_obey(context, &policy, &call, context->looks_first);
  if (status != CORRAL_OK) return status;
  status = context->near == NULL ? CORRAL_EMISS : peek_near(context, &call, key, key_len, ret);
  if (status == CORRAL_EMISS && context->looks_first && crl_hit_is_of(context) &&
      crl_hit_peek(context, &call, key, key_len, ret))
    status = CORRAL_OK;
  if (status == CORRAL_EMISS) return crl_status_plain(error, status);
  crl_run_count(context, &call, key, key_len);
  return status;
}
