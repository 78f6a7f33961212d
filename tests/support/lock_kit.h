/* lock_kit.h: two corrals as two holders of locks, with one-line helpers. For tests of the public
 * API. */
#ifndef LOCK_KIT_H
#define LOCK_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>
#include <pthread.h>

#include "os/env.h"

static corral *a, *b;
static corral_error error;
static _Atomic int a_lost __attribute__((unused)); /* LOCK_LOST events of corral a */
static char a_detail[300];                         /* detail of the latest of them */
static pthread_mutex_t a_mutex = PTHREAD_MUTEX_INITIALIZER;

/* event_arg: &a_lost, or NULL. */
static inline void on_event(const corral_event_info *info, void *arg) {
  if (arg != NULL && info->event == CORRAL_EVENT_LOCK_LOST) {
    pthread_mutex_lock(&a_mutex);
    snprintf(a_detail, sizeof a_detail, "%s", info->detail);
    pthread_mutex_unlock(&a_mutex);
    atomic_fetch_add((_Atomic int *)arg, 1);
  }
}

static inline int close_both(void **state) {
  (void)state;
  corral_close(a);
  corral_close(b);
  return 0;
}

static inline corral_lock *take(corral *c, const char *name, corral_lock_options *options) {
  corral_lock *lock = NULL;
  if (corral_lock_take(c, name, strlen(name), options, &lock, &error) != CORRAL_OK)
    fail_msg("%s: %s", name, error.text);
  return lock;
}

/* Returns when so many wait in turn for the lock "n". */
static inline void until_there_wait(corral *c, size_t number) {
  size_t count = 0;
  for (int64_t end = crl_env_now_ms() + 60000; count != number; crl_env_pause_us(1000)) {
    assert_int_equal(corral_lock_waiters(c, "n", 1, NULL, 0, &count, &error), CORRAL_OK);
    if (crl_env_now_ms() > end) fail_msg("%zu wait, not %zu", count, number);
  }
}

/* Takes without waiting; releases a granted lock at once. Returns the status of taking. */
static inline int try(corral *c, const char *name, corral_lock_options *options) {
  corral_lock *lock = NULL;
  options->wait_ms = CORRAL_OFF;
  int status = corral_lock_take(c, name, strlen(name), options, &lock, &error);
  if (status == CORRAL_OK) assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  return status;
}

static inline void until(corral *c, corral_event event, uint64_t least) {
  for (int64_t end = crl_env_now_ms() + 30000; corral_counter(c, event) < least;
       crl_env_pause_us(200))
    if (crl_env_now_ms() > end)
      fail_msg("event %d: %d of %d", event, (int)corral_counter(c, event), (int)least);
}

#endif
