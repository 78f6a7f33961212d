/* places_kit.h: corrals whose computes wait at a gate and get other keys, by the names of their
 * keys, and callers in threads.
 *
 * The compute of "x>y" gets "y" before it ends; that of a key that begins with 'G' waits for its
 * site's gate before that. Both count as running meanwhile. */
#ifndef TESTS_PLACES_KIT_H
#define TESTS_PLACES_KIT_H

#include "support/loop_kit.h"

#include "support/herd_lab.h"

enum { PLACES_PATIENCE_MS = 20000, SITE_LOG = 512 };

/* One corral, and what its computes did. */
typedef struct site {
  corral *c;
  int bound;   /* the compute is bound at open, so that it runs on the library's threads */
  int cost_ms; /* least duration of a compute */
  atomic_int gate, entered, now, most;
  atomic_int wrongs; /* nested gets that failed, or gates that stayed shut */
  pthread_mutex_t mutex;
  char order[SITE_LOG]; /* the keys of the computes in their order, each behind a space */
} site;

static inline void site_note(site *s, const void *key, size_t key_len) {
  pthread_mutex_lock(&s->mutex);
  size_t at = strlen(s->order);
  if (at + key_len + 2 < sizeof s->order) {
    s->order[at] = ' ';
    memcpy(s->order + at + 1, key, key_len);
    s->order[at + 1 + key_len] = '\0';
  }
  pthread_mutex_unlock(&s->mutex);
}

static int site_compute(corral_fill *fill, const void *key, size_t key_len, void *arg);

static inline int site_get(site *s, const char *key, const corral_policy *policy) {
  corral_value *value = NULL;
  size_t len = strlen(key);
  const corral_call *call = CORRAL_CALL(.policy = policy);
  int status = s->bound ? corral_get(s->c, key, len, call, &value)
                        : corral_get_or_compute(s->c, key, len, call, site_compute, s, &value);
  corral_value_unref(value);
  return status;
}

/* The beginning of a compute that the test makes itself, and its end. */
static inline void site_enter(site *s, const void *key, size_t key_len) {
  site_note(s, key, key_len);
  int now = atomic_fetch_add(&s->now, 1) + 1;
  for (int most = s->most; now > most && !atomic_compare_exchange_weak(&s->most, &most, now);)
    continue;
  lab_add(&s->entered, 1);
}

static inline void site_leave(site *s) { atomic_fetch_sub(&s->now, 1); }

static int site_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  site *s = arg;
  char name[64] = "";
  memcpy(name, key, key_len < sizeof name ? key_len : sizeof name - 1);
  site_enter(s, key, key_len);
  if (name[0] == 'G' && !lab_await_ms(&s->gate, 1, PLACES_PATIENCE_MS))
    atomic_fetch_add(&s->wrongs, 1);
  const char *nested = strchr(name, '>');
  if (nested != NULL && site_get(s, nested + 1, NULL) != CORRAL_OK) atomic_fetch_add(&s->wrongs, 1);
  if (s->cost_ms > 0) lab_sleep_ms(s->cost_ms);
  site_leave(s);
  return corral_fill_bytes(fill, key, key_len);
}

/* `options`: store, compute and size are the site's. */
static inline void site_open(site *s, const char *uri, corral_options options) {
  pthread_mutex_init(&s->mutex, NULL);
  options.size = sizeof options;
  options.store = uri;
  options.op_ms = 5000; /* a busy machine must not look like a store that is away */
  options.compute = s->bound ? site_compute : NULL;
  options.compute_arg = s;
  const corral_policy *patient = CORRAL_POLICY(.wait_ms = PLACES_PATIENCE_MS);
  if (options.policy == NULL) options.policy = patient;
  s->c = loop_corral(&options);
}

/* No compute runs any more, and none went wrong. */
static inline void site_close(site *s) {
  corral_close(s->c);
  pthread_mutex_destroy(&s->mutex);
  assert_int_equal(s->wrongs, 0);
  assert_int_equal(s->now, 0);
}

static inline void site_await(site *s, int entered) {
  if (!lab_await_ms(&s->entered, entered, PLACES_PATIENCE_MS))
    fail_msg("%d computes have begun, not %d", s->entered, entered);
}

static inline int counted(const site *s, corral_event event) {
  return (int)corral_counter(s->c, event);
}

/* The next URI of a store that is empty. */
static inline const char *next_store(void) {
  static int number;
  static char uri[32];
  snprintf(uri, sizeof uri, "memory:places%d", number++);
  return uri;
}

/* A call in a thread of its own. */
typedef struct caller {
  pthread_t thread;
  site *site;
  char key[40];
  const corral_policy *policy;
  int status;
} caller;

static inline void *caller_run(void *arg) {
  caller *a = arg;
  a->status = site_get(a->site, a->key, a->policy);
  return NULL;
}

static inline void call_as(caller *a, site *s, const char *key, const corral_policy *policy) {
  *a = (caller){.site = s, .policy = policy, .status = 1};
  snprintf(a->key, sizeof a->key, "%s", key);
  assert_int_equal(pthread_create(&a->thread, NULL, caller_run, a), 0);
}

static inline void call(caller *a, site *s, const char *key) { call_as(a, s, key, NULL); }

/* Begins a call that is to wait for a place, as the `nth` one of its corral. */
static inline void call_queued(caller *a, site *s, const char *key, int nth) {
  call(a, s, key);
  await_counter(s->c, CORRAL_EVENT_LIMITED, (uint64_t)nth);
}

static inline void ends(caller *a, int status) {
  pthread_join(a->thread, NULL);
  if (a->status != status)
    fail_msg("%s: %s, not %s", a->key, corral_status_name(a->status), corral_status_name(status));
}

/* Begins calls of `count` keys PREFIX0, PREFIX1, ..., each in a thread. */
static inline void call_all(caller *a, int count, site *s, const char *prefix) {
  for (int i = 0; i < count; i++) {
    char key[40];
    snprintf(key, sizeof key, "%s%d", prefix, i);
    call(&a[i], s, key);
  }
}

static inline void all_end(caller *a, int count) {
  for (int i = 0; i < count; i++) ends(&a[i], CORRAL_OK);
}

#endif
