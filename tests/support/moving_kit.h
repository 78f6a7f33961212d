/* moving_kit.h: corral on a store whose servers come and go: calls that must succeed, a load of
 * several processes, and copies of this process. For tests within a history_room. */
#ifndef TESTS_MOVING_KIT_H
#define TESTS_MOVING_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "support/history_room.h"

enum { THREADS = 8, PROCESSES = 3, LONG_MS = 600000 };
enum { STOP, CALLS }; /* lab marks */

static atomic_int computes;

/* The URI of the store, by the test. */
static const char *store_uri(void);

static inline corral *opened(const corral_options *more) {
  corral *c = NULL;
  corral_error error;
  corral_options options = *more;
  options.size = sizeof options;
  options.store = store_uri();
  if (corral_open(&options, &c, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return c;
}

static inline int echo(corral_fill *fill, const void *key, size_t len, void *tag) {
  atomic_fetch_add(&computes, 1);
  if (tag != NULL) corral_fill_tag(fill, tag, strlen(tag));
  return corral_fill_bytes(fill, key, len);
}

/* Gets a value, or computes it; returns how it came. */
static inline corral_how gets(corral *c, const char *key, const char *tag) {
  static const corral_policy policy = {
      .size = sizeof policy, .ttl_ms = LONG_MS, .near_ms = LONG_MS};
  corral_value *value = NULL;
  corral_error error = {0};
  int status =
      corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = &policy, .error = &error),
                            echo, (void *)(uintptr_t)tag, &value);
  if (status != CORRAL_OK) fail_msg("%s: %s: %s", key, corral_status_name(status), error.text);
  assert_int_equal(corral_value_size(value), strlen(key));
  assert_memory_equal(corral_value_data(value), key, strlen(key));
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

static inline void sets(corral *c, const char *key, size_t size) {
  corral_error error = {0};
  char *data = calloc(1, size + 1);
  memset(data, 'x', size);
  int status = corral_set(c, key, strlen(key), CORRAL_CALL(.error = &error), data, size);
  if (status != CORRAL_OK) fail_msg("%s: %s", corral_status_name(status), error.text);
  free(data);
}

static inline size_t size_of(corral *c, const char *key) {
  corral_value *value = NULL;
  corral_error error = {0};
  int status = corral_get(c, key, strlen(key), CORRAL_CALL(.error = &error), &value);
  if (status == CORRAL_EMISS) return 0;
  if (status != CORRAL_OK) fail_msg("%s: %s", corral_status_name(status), error.text);
  size_t size = corral_value_size(value);
  corral_value_unref(value);
  return size;
}

/* ---- load ---------------------------------------------------------------------------------- */

typedef struct traffic {
  corral_policy policy;
  int64_t cost_ms;
  int may_degrade; /* 1: a node may say that the cluster is down; then a call computes for itself */
} traffic;

static inline void ask_all_the_time(lab_seat *seat) {
  const traffic *load = seat->arg;
  for (int i = seat->thread; seat->lab->marks[STOP] == 0; i++) {
    lab_work work = {.key = i % 8, .cost_ms = load->cost_ms};
    lab_answer answer = lab_ask(seat, &load->policy, &work);
    if (answer.status != CORRAL_OK)
      lab_wrong(seat->lab, "key-%d: %s: %s", work.key, corral_status_name(answer.status),
                answer.error.text);
    else if (!load->may_degrade && answer.kept != CORRAL_KEPT && answer.kept != CORRAL_KEPT_UNKNOWN)
      lab_wrong(seat->lab, "key-%d: kept %d", work.key, (int)answer.kept);
    lab_add(&seat->lab->marks[CALLS], 1);
  }
}

static inline void spawn_load_with(const traffic *load, const corral_options *options) {
  lab_spawn(current, &(lab_plan){.uri = store_uri(),
                                 .processes = PROCESSES,
                                 .threads = THREADS,
                                 .options = *options,
                                 .body = ask_all_the_time,
                                 .arg = (void *)(uintptr_t)load});
  lab_await(current, &current->marks[CALLS], 500);
}

static inline void spawn_load(const traffic *load) {
  spawn_load_with(load, &(corral_options){.op_ms = 2000});
}

static inline void let_pass(int calls) {
  lab_await(current, &current->marks[CALLS], current->marks[CALLS] + calls);
}

static inline void end_load(void) {
  lab_add(&current->marks[STOP], 1);
  lab_end(current);
}

/* ---- copies of this process ---------------------------------------------------------------- */

typedef struct ear {
  atomic_int near, up;
} ear;

static inline void hear(const corral_event_info *info, void *arg) {
  ear *e = arg;
  if (info->event == CORRAL_EVENT_NEAR) atomic_fetch_add(&e->near, 1);
  if (info->event == CORRAL_EVENT_WATCH && strncmp(info->detail, "poll", 4) != 0)
    atomic_store(&e->up, 1);
}

static inline corral *near_of(ear *e) {
  return opened(&(corral_options){.near_bytes = 1 << 20, .on_event = hear, .event_arg = e});
}

/* Until a copy of this process answers, for a while. */
static inline void await_copy(corral *c, ear *e, const char *key) {
  for (int i = 0; i < 3000; i++) {
    int before = atomic_load(&e->near);
    (void)gets(c, key, NULL);
    if (atomic_load(&e->up) && atomic_load(&e->near) > before) return;
    lab_sleep_ms(10);
  }
  fail_msg("%s has no watched copy", key);
}

static inline void await_compute(corral *c, const char *key) {
  for (int i = 0; i < 3000; i++) {
    if (gets(c, key, NULL) == CORRAL_COMPUTED) return;
    lab_sleep_ms(10);
  }
  fail_msg("%s: its copy goes on to answer", key);
}

#endif
