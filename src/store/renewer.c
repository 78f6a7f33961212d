/* renewer.c: extends the leases of running computes and users' locks, and ends those that take too
 * long. */
#include "store/renewer.h"

#include <pthread.h>
#include <stdlib.h>

#include "base/check.h"
#include "os/env.h"
#include "base/value.h"

enum { BATCH = 64, DOUBLED_MOST = 600000 };

struct crl_renewer {
  pthread_mutex_t mutex;
  pthread_cond_t idle; /* wakes callers that wait for a lease to be no longer busy */
  crl_pool *pool;
  crl_events *events;
  crl_heap due;   /* leases by when something is to be done; those that are busy stand in none */
  crl_heap locks; /* those that aren't over, by their end */
  crl_task task;
};

static int64_t renew(crl_task *task);

crl_renewer *crl_renewer_new(crl_pool *pool, crl_events *events, const crl_threads *threads) {
  crl_renewer *renewer = crl_alloc(sizeof *renewer);
  if (renewer == NULL) return NULL;
  pthread_mutex_init(&renewer->mutex, NULL);
  crl_env_cond_init(&renewer->idle);
  renewer->pool = pool;
  renewer->events = events;
  crl_task_init(&renewer->task, threads, renew);
  return renewer;
}

static crl_renewed_lease *due_lease(const crl_heap_node *node) {
  return (crl_renewed_lease *)(void *)((char *)(uintptr_t)node - offsetof(crl_renewed_lease, due));
}

static crl_renewed_lease *ending_lock(const crl_heap_node *node) {
  return (crl_renewed_lease *)(void *)((char *)(uintptr_t)node - offsetof(crl_renewed_lease, end));
}

#ifdef CORRAL_CHECKS
static void check(const crl_renewer *renewer) {
  if (renewer->due.first != NULL) {
    const crl_renewed_lease *lease = due_lease(renewer->due.first);
    CRL_MUST(!lease->busy && !lease->over,
             "renewer: nothing is due of a lease that is attended to");
    CRL_MUST(lease->token == NULL || lease->lease_ms > 0, "renewer: a lease has a length");
  }
  CRL_MUST(renewer->locks.first == NULL || ending_lock(renewer->locks.first)->is_lock,
           "renewer: among the locks are locks only");
}
#endif

static void lock(crl_renewer *renewer) {
  pthread_mutex_lock(&renewer->mutex);
  CRL_CHECK(renewer);
}

static void unlock(crl_renewer *renewer) {
  CRL_CHECK(renewer);
  pthread_mutex_unlock(&renewer->mutex);
}

static int64_t warn_at(const crl_renewed_lease *lease) {
  int lasts = lease->token != NULL && !lease->fails;
  return lease->warn_ms > 0 && !lease->warned && !lasts ? lease->limit - lease->warn_ms : INT64_MAX;
}

static int64_t due_at(const crl_renewed_lease *lease) {
  if (lease->over) return INT64_MAX;
  int64_t at =
              lease->token != NULL && lease->next_at < lease->limit ? lease->next_at : lease->limit,
          warns = warn_at(lease);
  return warns < at ? warns : at;
}

static void take_out(crl_renewer *renewer, crl_renewed_lease *lease) {
  crl_heap_take(&renewer->due, &lease->due);
  crl_heap_take(&renewer->locks, &lease->end);
}

/* Puts a lease where its moments belong, anew after they were changed. */
static void put_in(crl_renewer *renewer, crl_renewed_lease *lease) {
  take_out(renewer, lease);
  int64_t at = due_at(lease);
  if (at < INT64_MAX) crl_heap_put(&renewer->due, &lease->due, at);
  if (lease->is_lock && !lease->over) crl_heap_put(&renewer->locks, &lease->end, lease->limit);
}

static void mark_busy(crl_renewer *renewer, crl_renewed_lease *lease, crl_renewed_lease **due,
                      size_t *count) {
  lease->busy = 1;
  crl_heap_take(&renewer->due, &lease->due);
  due[(*count)++] = lease;
}

/* Marks leases that are due as busy and lists them; returns how many. *soonest: the end of the
 * first lock that isn't over. Locks that are over come first: they need nothing of the store.
 * Called with the mutex held. */
static size_t collect(crl_renewer *renewer, crl_renewed_lease **due, int64_t now,
                      int64_t *soonest) {
  size_t count = 0;
  while (crl_heap_first_at(&renewer->locks) <= now && count < BATCH) {
    crl_renewed_lease *lock = ending_lock(renewer->locks.first);
    crl_heap_take(&renewer->locks, &lock->end);
    mark_busy(renewer, lock, due, &count);
  }
  *soonest = crl_heap_first_at(&renewer->locks);
  while (crl_heap_first_at(&renewer->due) <= now && count < BATCH)
    mark_busy(renewer, due_lease(renewer->due.first), due, &count);
  return count;
}

/* The length to extend a lease to. */
static int64_t next_length(const crl_renewed_lease *lease) {
  if (lease->lease_most_ms <= lease->lease_ms) return lease->lease_ms;
  return lease->lease_ms < lease->lease_most_ms / 2 ? 2 * lease->lease_ms : lease->lease_most_ms;
}

/* Until it has succeeded, the next one is due by the length that the lease has. */
static corral_op extension(crl_renewed_lease *lease, int64_t now) {
  lease->next_at = now + lease->lease_ms / 3;
  corral_op op = {.verb = lease->is_lock ? CORRAL_VERB_LOCK_EXTEND : CORRAL_VERB_EXTEND,
                  .key = lease->key,
                  .key_len = lease->key_len,
                  .token = lease->token};
  if (lease->is_lock)
    op.lock_extend = (corral_lock_extend_args){.hold_ms = lease->confirms ? 1 : lease->lease_ms,
                                               .fence = lease->fence};
  else
    op.extend.lease_ms = next_length(lease);
  return op;
}

/* `now`: when the extension was collected; `sent`: the same by crl_env_boot_ms. */
static void judge(crl_renewer *renewer, crl_renewed_lease *lease, const corral_op *op, int64_t now,
                  int64_t sent) {
  lease->fails = op->status != CORRAL_OK;
  if (op->status == CORRAL_OK) {
    lease->warned = 0;
    if (!lease->is_lock) lease->lease_ms = op->extend.lease_ms;
    lease->next_at = now + lease->lease_ms / 3;
    if (!lease->confirms)
      crl_event_emit(renewer->events,
                     lease->is_lock ? CORRAL_EVENT_LOCK_EXTENDED : CORRAL_EVENT_EXTEND,
                     lease->user_key, lease->user_key_len, NULL);
    if (lease->on_extended != NULL) lease->on_extended(lease, op, sent);
  } else if (op->status == CORRAL_ELOST) {
    lease->token = NULL;
    lease->other_ms = lease->is_lock ? op->lock_state.left_ms : 0;
    lease->on_lost(lease);
  } else if (lease->is_lock) {
    /* the store may have granted less than lease_ms */
    int64_t failed = crl_env_now_ms(), left = lease->limit - failed, pause = lease->lease_ms / 12;
    lease->next_at = failed + (left / 4 < pause ? left / 4 : pause) + 1;
  }
}

/* The store gets no more time than until `soonest`: the loss of a lock that ends then must be told
 * in time. */
static void extend(crl_renewer *renewer, crl_renewed_lease **due, size_t count, int64_t now,
                   int64_t soonest) {
  corral_op ops[BATCH];
  crl_renewed_lease *of[BATCH];
  size_t n = 0;
  int64_t shortest = INT64_MAX, sent = crl_env_boot_ms();
  for (size_t i = 0; i < count; i++) {
    if (now >= due[i]->limit || due[i]->token == NULL || now < due[i]->next_at) continue;
    of[n] = due[i];
    if (due[i]->ticks != NULL) due[i]->tick = atomic_fetch_add(due[i]->ticks, 1) + 1;
    ops[n++] = extension(due[i], now);
    if (due[i]->lease_ms / 3 < shortest) shortest = due[i]->lease_ms / 3;
  }
  if (n == 0) return;
  crl_pool_perform(renewer->pool, ops, n, soonest < now + shortest ? soonest : now + shortest);
  for (size_t i = 0; i < n; i++) judge(renewer, of[i], &ops[i], now, sent);
}

static void attend(crl_renewer *renewer, crl_renewed_lease **due, size_t count, int64_t now,
                   int64_t soonest) {
  extend(renewer, due, count, now, soonest);
  for (size_t i = 0; i < count; i++) {
    if (now >= due[i]->limit) {
      due[i]->over = 1;
      due[i]->on_limit(due[i]);
    } else if (!due[i]->over && now >= warn_at(due[i])) {
      due[i]->warned = 1;
      due[i]->on_warn(due[i]);
    }
  }
}

/* Waits for nothing of the user's: events go to the notifier, since a hook might be slow, and might
 * release what is being extended. */
static int64_t renew(crl_task *task) {
  crl_renewer *renewer = (crl_renewer *)(void *)((char *)task - offsetof(crl_renewer, task));
  crl_renewed_lease *due[BATCH];
  int64_t next, soonest;
  crl_event_defer(1);
  lock(renewer);
  for (;;) {
    int64_t now = crl_env_now_ms();
    size_t count = collect(renewer, due, now, &soonest);
    next = crl_heap_first_at(&renewer->due);
    if (count == 0) break;
    unlock(renewer);
    attend(renewer, due, count, now, soonest);
    lock(renewer);
    for (size_t i = 0; i < count; i++) {
      due[i]->busy = 0;
      put_in(renewer, due[i]);
    }
    pthread_cond_broadcast(&renewer->idle);
  }
  unlock(renewer);
  crl_event_defer(0);
  return next;
}

void crl_renewer_hold(crl_renewer *renewer, crl_renewed_lease *lease, int64_t since) {
  lease->busy = lease->over = 0;
  lease->due = lease->end = (crl_heap_node){0};
  lease->next_at = since + lease->lease_ms / 3;
  lock(renewer);
  put_in(renewer, lease);
  int64_t at = due_at(lease);
  unlock(renewer);
  (void)crl_task_at(&renewer->task, at);
}

static void lock_idle(crl_renewer *renewer, const crl_renewed_lease *lease) {
  lock(renewer);
  while (lease->busy) pthread_cond_wait(&renewer->idle, &renewer->mutex);
}

void crl_renewer_move(crl_renewer *renewer, crl_renewed_lease *lease, int64_t limit) {
  lock_idle(renewer, lease);
  lease->limit = limit;
  lease->warned = lease->fails = 0;
  put_in(renewer, lease);
  int64_t at = due_at(lease);
  unlock(renewer);
  (void)crl_task_at(&renewer->task, at);
}

void crl_renewer_warn(crl_renewer *renewer, crl_renewed_lease *lease, int64_t warn_ms) {
  lock_idle(renewer, lease);
  lease->warn_ms = warn_ms;
  lease->warned = 0;
  put_in(renewer, lease);
  int64_t at = due_at(lease);
  unlock(renewer);
  (void)crl_task_at(&renewer->task, at);
}

void crl_renewer_keep(crl_renewer *renewer, crl_renewed_lease *lease, const uint8_t *token,
                      int64_t lease_ms, int confirms) {
  lock_idle(renewer, lease);
  int begins = lease->token == NULL;
  if (begins) lease->next_at = crl_env_now_ms();
  lease->token = token;
  lease->confirms = confirms && (begins || lease->confirms);
  if (lease_ms > lease->lease_ms) lease->lease_ms = lease_ms;
  put_in(renewer, lease);
  int64_t at = due_at(lease);
  unlock(renewer);
  (void)crl_task_at(&renewer->task, at);
}

void crl_renewer_outlast(crl_renewer *renewer, crl_renewed_lease *lease) {
  lock_idle(renewer, lease);
  lease->limit = INT64_MAX;
  if (lease->lease_most_ms < DOUBLED_MOST) lease->lease_most_ms = DOUBLED_MOST;
  put_in(renewer, lease);
  unlock(renewer);
}

void crl_renewer_drop(crl_renewer *renewer, crl_renewed_lease *lease) {
  lock_idle(renewer, lease);
  take_out(renewer, lease);
  unlock(renewer);
}

void crl_renewer_free(crl_renewer *renewer) {
  crl_task_stop(&renewer->task);
  pthread_cond_destroy(&renewer->idle);
  pthread_mutex_destroy(&renewer->mutex);
  free(renewer);
}
