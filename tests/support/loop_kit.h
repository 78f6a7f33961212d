/* loop_kit.h: a test's event loop, dispatched until a condition holds, and requests that record
 * their callbacks. */
#ifndef TESTS_LOOP_KIT_H
#define TESTS_LOOP_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/loop.h>
#include <poll.h>
#include <pthread.h>
#include <stdatomic.h>

#include "os/env.h"

enum { LOOP_PATIENCE_MS = 60000 };

/* One call, and the record of its callbacks. */
typedef struct request {
  int dones, starts, gones;
  int status, code, inner; /* inner: set by the test */
  corral_how how;
  corral_kept kept;
  char text[64];     /* the value or the error's text, cut */
  corral_fill *fill; /* given to `start`, not ended yet */
  /* is_work: a function of corral_loop_run, which succeeds without a value */
  int is_alone, is_work;
  /* the value with which `start` ends the compute; NULL: the compute is left open */
  const char *makes;
  corral_async_call *call;
  void (*on_done)(struct request *request);
  void *arg;
} request;

static inline void request_done(void *arg, int status, corral_value *value,
                                const corral_error *error) {
  request *r = arg;
  r->dones++;
  r->status = status;
  r->code = error->code;
  assert_true((status == CORRAL_OK && !r->is_work) == (value != NULL));
  assert_int_equal(error->status, status);
  if (value != NULL) {
    r->how = corral_value_how(value);
    r->kept = corral_value_kept(value);
    snprintf(r->text, sizeof r->text, "%.*s", (int)corral_value_size(value),
             (const char *)corral_value_data(value));
  } else {
    snprintf(r->text, sizeof r->text, "%.60s", error->text);
  }
  corral_value_unref(value);
  if (r->on_done != NULL) r->on_done(r);
}

static inline void request_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  request *r = arg;
  size_t len;
  assert_memory_equal(corral_fill_key(fill, &len), key, key_len);
  r->starts++;
  r->is_alone = corral_fill_is_alone(fill);
  if (r->makes == NULL) {
    r->fill = fill;
    return;
  }
  corral_fill_bytes(fill, r->makes, strlen(r->makes));
  corral_fill_done(fill);
}

static inline void request_gone(void *arg) { ((request *)arg)->gones++; }

static inline int ask_with(corral_loop *loop, const char *key, const corral_call *call, request *r,
                           int with_start) {
  return corral_loop_get(loop, key, strlen(key), call,
                         CORRAL_ASYNC(.done = request_done,
                                      .start = with_start ? request_start : NULL,
                                      .gone = request_gone, .arg = r),
                         &r->call);
}

/* with_start 0: the compute bound at open runs. */
static inline int ask_as(corral_loop *loop, const char *key, const corral_policy *policy,
                         request *r, int with_start) {
  return ask_with(loop, key, CORRAL_CALL(.policy = policy), r, with_start);
}

static inline void ask_by(corral_loop *loop, const char *key, const corral_call *call, request *r) {
  assert_int_equal(ask_with(loop, key, call, r, 1), CORRAL_OK);
}

static inline void ask(corral_loop *loop, const char *key, const corral_policy *policy,
                       request *r) {
  assert_int_equal(ask_as(loop, key, policy, r, 1), CORRAL_OK);
}

/* Ends the open compute of a request with this text. */
static inline void make(request *r, const char *text) {
  corral_fill *fill = r->fill;
  r->fill = NULL;
  corral_fill_bytes(fill, text, strlen(text));
  corral_fill_done(fill);
}

/* One turn of the loop; returns 0 when `until` has passed. */
static inline int turn(corral_loop *loop, int64_t until) {
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  int64_t left = until - crl_env_now_ms();
  if (left <= 0) return 0;
  if (poll(&fd, 1, (int)left) > 0) corral_loop_dispatch(loop);
  return 1;
}

/* Dispatches until the counter reaches `count`. */
#define RUN_UNTIL(loop, counter, count)                                                            \
  do {                                                                                             \
    int64_t run_until_ = crl_env_now_ms() + LOOP_PATIENCE_MS;                                      \
    while ((counter) < (count))                                                                    \
      if (!turn((loop), run_until_))                                                               \
        fail_msg("%s stayed at %d of %d", #counter, (int)(counter), (int)(count));                 \
  } while (0)

static inline void await_counter(corral *c, corral_event event, uint64_t least) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  while (corral_counter(c, event) < least) {
    if (crl_env_now_ms() > until)
      fail_msg("event %d was counted %d times", (int)event, (int)corral_counter(c, event));
    crl_env_pause_us(200);
  }
}

static inline corral *loop_corral(const corral_options *options) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", options->store, error.text);
  return c;
}

static inline corral_loop *loop_of(corral *c) {
  corral_loop *loop = NULL;
  corral_error error;
  if (corral_loop_open(c, &loop, &error) != CORRAL_OK) fail_msg("corral_loop_open: %s", error.text);
  return loop;
}

static char store[64]; /* URI of the test's store */

/* Setup: a new memory: store for each test. */
static inline int fresh_store(void **state) {
  static int number;
  (void)state;
  snprintf(store, sizeof store, "memory:loop%d", number++);
  return 0;
}

/* A corral and a loop. */
typedef struct loop_desk {
  corral *c;
  corral_loop *loop;
} loop_desk;

static inline loop_desk desk_open(const corral_options *options) {
  loop_desk d = {.c = loop_corral(options)};
  d.loop = loop_of(d.c);
  return d;
}

static inline void closed(loop_desk *d) {
  corral_loop_close(d->loop);
  corral_close(d->c);
}

#endif
