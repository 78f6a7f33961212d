/* lock_async.c: an event loop's calls on locks: taking, releasing, extending. */
#include <stdlib.h>

#include "api/async.h"
#include "base/status.h"
#include "base/value.h"
#include "locks/taking.h"

typedef struct crl_async_lock {
  corral_async_call *call;
  corral_lock *lock; /* taken and not given yet; or to be released or extended */
  corral_lock **ret; /* of a taking, the caller's; NULL: */
  int64_t extend_ms; /* extends `lock` by so much; -1: releases it */
  crl_lock_step step;
  crl_async_taking taking;
} crl_async_lock;

static void end(crl_async_lock *l, int status, const corral_error *error) {
  crl_inbox_has_worked(l->call->loop);
  crl_async_end_work(l->call, status, error);
}

static void on_taken(crl_async_taking *taking, int status, corral_lock *lock) {
  crl_async_lock *l = (crl_async_lock *)(void *)((char *)taking - offsetof(crl_async_lock, taking));
  l->lock = lock;
  end(l, status, &taking->detail);
}

static void make(crl_lock_step *step) {
  crl_async_lock *l = (crl_async_lock *)(void *)((char *)step - offsetof(crl_async_lock, step));
  corral_error error = {0};
  corral_lock *lock = l->lock;
  l->lock = NULL;
  int status = l->extend_ms < 0 ? corral_lock_release(lock, &error)
                                : corral_lock_extend(lock, l->extend_ms, &error);
  end(l, status, &error);
}

void crl_async_give_lock(crl_async_lock *l) {
  if (l->ret == NULL) return;
  *l->ret = l->lock;
  crl_lock_hand_over(l->lock, &l->taking.taking.options);
  l->lock = NULL;
}

void crl_async_cancel_lock(crl_async_lock *l) {
  if (l->ret != NULL) crl_async_taking_cancel(&l->taking);
}

static void give_back(crl_lock_step *step) {
  crl_async_lock *l = (crl_async_lock *)(void *)((char *)step - offsetof(crl_async_lock, step));
  crl_lock_give(l->lock, NULL);
  free(l);
}

void crl_async_free_lock(crl_async_lock *l) {
  if (l->ret != NULL) crl_async_taking_clean(&l->taking);
  if (l->lock == NULL) {
    free(l);
    return;
  }
  l->step.make = give_back;
  if (!crl_lock_steps_add(l->lock->hold->context->lock_steps, &l->step)) give_back(&l->step);
}

static int new_call(corral_loop *loop, const corral_async *async, crl_async_lock **ret,
                    corral_error *error) {
  corral_async_call *call;
  int status = crl_async_new_work(loop, async, &call, error);
  if (status != CORRAL_OK) return status;
  *ret = call->locks = crl_alloc(sizeof **ret);
  if (*ret == NULL) return crl_async_begin_work(call, CORRAL_ENOMEM, NULL, error);
  (*ret)->call = call;
  return CORRAL_OK;
}

int corral_lock_take_async(corral_loop *loop, const void *name, size_t name_len,
                           const corral_lock_options *options, const corral_async *async,
                           corral_lock **ret_lock, corral_async_call **ret, corral_error *error) {
  crl_async_lock *l;
  if (ret_lock == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_lock_take_async: no ret_lock");
  int status = new_call(loop, async, &l, error);
  if (status != CORRAL_OK) return status;
  corral_async_call *call = l->call;
  status =
      crl_taking_init(&l->taking.taking, loop->c, &(crl_name){.key = name, .key_len = name_len},
                      options, 1, &l->taking.detail);
  if (status != CORRAL_OK) {
    if (error != NULL) *error = l->taking.detail;
    (void)crl_async_begin_work(call, status, NULL, NULL);
    return status;
  }
  l->ret = ret_lock;
  l->taking.ended = on_taken;
  (void)crl_inbox_may_work(loop);
  status = crl_async_taking_begin(&l->taking);
  if (status != CORRAL_OK) crl_inbox_has_worked(loop);
  return crl_async_begin_work(call, status, ret, error);
}

static int begin_step(corral_loop *loop, corral_lock *lock, int64_t extend_ms,
                      const corral_async *async, corral_async_call **ret, corral_error *error) {
  crl_async_lock *l;
  if (lock == NULL) return crl_status_fail(error, CORRAL_EINVAL, "no lock");
  int status = new_call(loop, async, &l, error);
  if (status != CORRAL_OK) return status;
  corral_async_call *call = l->call;
  l->lock = lock;
  l->extend_ms = extend_ms;
  l->step.make = make;
  (void)crl_inbox_may_work(loop);
  if (crl_lock_steps_add(loop->context->lock_steps, &l->step))
    return crl_async_begin_work(call, CORRAL_OK, ret, error);
  crl_inbox_has_worked(loop);
  l->lock = NULL;
  return crl_async_begin_work(call, CORRAL_EIO, ret, error);
}

int corral_lock_release_async(corral_loop *loop, corral_lock *lock, const corral_async *async,
                              corral_async_call **ret, corral_error *error) {
  int status = lock == NULL ? CORRAL_OK : crl_lock_check_release(lock, error);
  return status == CORRAL_OK ? begin_step(loop, lock, -1, async, ret, error) : status;
}

int corral_lock_extend_async(corral_loop *loop, corral_lock *lock, int64_t ttl_ms,
                             const corral_async *async, corral_async_call **ret,
                             corral_error *error) {
  if (ttl_ms < 0)
    return crl_status_fail(error, CORRAL_EINVAL,
                           "ttl_ms = %lld ms; accepted: 50 to 86400000, or 0 for that of the lock",
                           (long long)ttl_ms);
  return begin_step(loop, lock, ttl_ms, async, ret, error);
}
