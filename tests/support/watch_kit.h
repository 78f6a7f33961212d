/* watch_kit.h: a watch of a store through its plugin's table, and the hashes that it reported. For
 * tests of a single plugin. */
#ifndef WATCH_KIT_H
#define WATCH_KIT_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <unistd.h>

#include "os/env.h"
#include "support/store_kit.h"

enum { TOLD_MOST = 20000, SOON_MS = 20000 };

typedef struct ear {
  const kit *k;
  void *watch;
  size_t count;
  uint64_t told[TOLD_MOST];
} ear;

static inline ear *ear_open(const kit *k) {
  ear *e = calloc(1, sizeof *e);
  corral_error error = {0};
  assert_non_null(e);
  e->k = k;
  if (k->plugin->watch(k->store, 0, INT64_MAX, &e->watch, &error) != CORRAL_OK)
    fail_msg("watch: %s", error.text);
  return e;
}

static inline void ear_close(ear *e) {
  e->k->plugin->unwatch(e->watch);
  free(e);
}

static inline void ear_hears(void *arg, uint64_t hash) {
  ear *e = arg;
  if (e->count < TOLD_MOST) e->told[e->count] = hash;
  e->count++;
}

static inline int64_t soon(const kit *k) { return k->host->now_ms() + SOON_MS; }

/* Calls `changes` until `until`. Returns the number of reported hashes. */
static inline size_t listen_until(ear *e, int stop_fd, int64_t until) {
  corral_error error = {0};
  size_t before = e->count;
  if (e->k->plugin->changes(e->watch, stop_fd, until, ear_hears, e, &error) != CORRAL_OK)
    fail_msg("changes: %s", error.text);
  return e->count - before;
}

static inline uint64_t hash_of(const kit *k, const char *key) {
  return k->host->hash64(key, strlen(key));
}

static inline unsigned times_told(const ear *e, const char *key) {
  unsigned times = 0;
  uint64_t hash = hash_of(e->k, key);
  for (size_t i = 0; i < e->count && i < TOLD_MOST; i++) times += e->told[i] == hash;
  return times;
}

static inline int any_told(const ear *e) {
  int any = 0;
  for (size_t i = 0; i < e->count && i < TOLD_MOST; i++) any |= e->told[i] == 0;
  return any;
}

/* Reads all pending changes, without waiting. */
static inline void catch_up(ear *e) {
  while (listen_until(e, -1, 0) > 0) continue;
}

static inline void forget(ear *e) {
  catch_up(e);
  e->count = 0;
}

/* True when the key itself, not "any", was reported or soon is. */
static inline int hears_of(ear *e, const char *key) {
  int64_t until = soon(e->k);
  while (times_told(e, key) == 0 && e->k->host->now_ms() < until) (void)listen_until(e, -1, until);
  return times_told(e, key) > 0;
}

static inline void is_told(ear *e, const char *key) {
  if (!hears_of(e, key)) fail_msg("%s wasn't told", key);
}

/* ---- tests for every store with a watch ---------------------------------------------------- */

/* Each verb, once with the right token and once with a wrong one. */
static inline void check_verbs(const kit *k, ear *e) {
  static const struct {
    corral_verb verb;
    unsigned holder;
    int status;
    unsigned told;
  } steps[] = {
      {CORRAL_VERB_GET, 1, CORRAL_EMISS, 0},     {CORRAL_VERB_CLAIM, 1, CORRAL_OK, 1},
      {CORRAL_VERB_CLAIM, 2, CORRAL_EBUSY, 0},   {CORRAL_VERB_EXTEND, 2, CORRAL_ELOST, 0},
      {CORRAL_VERB_RENEW, 1, CORRAL_EMISS, 0},   {CORRAL_VERB_SETTLE, 2, CORRAL_ELOST, 0},
      {CORRAL_VERB_SETTLE, 1, CORRAL_OK, 1},     {CORRAL_VERB_GET, 1, CORRAL_OK, 0},
      {CORRAL_VERB_CLAIM, 1, CORRAL_OK, 1},      {CORRAL_VERB_RENEW, 2, CORRAL_ELOST, 0},
      {CORRAL_VERB_RENEW, 1, CORRAL_OK, 1},      {CORRAL_VERB_CLAIM, 2, CORRAL_OK, 1},
      {CORRAL_VERB_RELEASE, 1, CORRAL_ELOST, 0}, {CORRAL_VERB_RELEASE, 2, CORRAL_OK, 1},
      {CORRAL_VERB_EXPIRE, 1, CORRAL_OK, 1},     {CORRAL_VERB_INVALIDATE, 1, CORRAL_OK, 1},
      {CORRAL_VERB_INVALIDATE, 1, CORRAL_OK, 0}, {CORRAL_VERB_EXPIRE, 1, CORRAL_OK, 0},
  };
  forget(e);
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    int settles = steps[i].verb == CORRAL_VERB_SETTLE;
    int status = settles ? settle(k, "each", steps[i].holder, 'x', 3000, NULL)
                         : verb(k, steps[i].verb, "each", steps[i].holder);
    if (status != steps[i].status) fail_msg("step %zu: %s", i, corral_status_name(status));
    if (steps[i].told > 0) is_told(e, "each");
    catch_up(e);
    if (e->count != steps[i].told || times_told(e, "each") != steps[i].told)
      fail_msg("step %zu: told %zu", i, e->count);
    e->count = 0;
  }
}

typedef struct stopper {
  const kit *k;
  int fds[2];
  atomic_int waits;
} stopper;

static inline void *stop_it(void *arg) {
  stopper *s = arg;
  while (atomic_load(&s->waits) == 0) continue;
  crl_env_sleep_until(crl_env_now_ms() + 20);
  return write(s->fds[1], "", 1) == 1 ? NULL : arg;
}

static inline void check_end(const kit *k) {
  stopper s = {.k = k};
  pthread_t thread;
  void *wrong;
  ear *e = ear_open(k);
  assert_int_equal(pipe(s.fds), 0);
  assert_int_equal(pthread_create(&thread, NULL, stop_it, &s), 0);
  atomic_store(&s.waits, 1);
  assert_int_equal(listen_until(e, s.fds[0], INT64_MAX), 0);
  pthread_join(thread, &wrong);
  assert_null(wrong);
  assert_int_equal(listen_until(e, s.fds[0], INT64_MAX), 0);
  int64_t from = k->host->now_ms();
  assert_int_equal(listen_until(e, -1, from), 0);
  assert_int_equal(listen_until(e, -1, 0), 0);
  assert_int_equal(listen_until(e, -1, from + 30), 0);
  assert_true(k->host->now_ms() >= from + 30);
  close(s.fds[0]);
  close(s.fds[1]);
  ear_close(e);
}

/* While nothing changes, no thread of this process may wake up; a sanitizer's thread may, a few
 * times a second. */
static inline void check_rest(const kit *k) {
  struct rusage before, after;
  ear *e = ear_open(k);
  assert_int_equal(listen_until(e, -1, k->host->now_ms() + 20), 0);
  int64_t from = k->host->now_ms();
  assert_int_equal(getrusage(RUSAGE_SELF, &before), 0);
  assert_int_equal(listen_until(e, -1, from + 300), 0);
  assert_int_equal(getrusage(RUSAGE_SELF, &after), 0);
  /* a thread of a sanitizer's wakes ten times a second */
  assert_in_range(after.ru_nvcsw - before.ru_nvcsw, 0, 5 + (k->host->now_ms() - from - 300) / 80);
  ear_close(e);
}

static inline int by_size(const void *a, const void *b) {
  int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
  return x < y ? -1 : x > y;
}

/* A watch that isn't woken looks a second later, or never. */
static inline void check_times(const char *what, int64_t *us, size_t count) {
  qsort(us, count, sizeof *us, by_size);
  if (us[count / 2] > 500000) fail_msg("%s: median %lld us", what, (long long)us[count / 2]);
}

/* Each key from "k0" on was reported twice, an evicted one three times; more than 100 were
 * evicted. */
static inline void evictions_are_told(const ear *e, unsigned count) {
  char key[32];
  unsigned evicted = 0;
  for (unsigned i = 0; i < count; i++) {
    int present = verb(e->k, CORRAL_VERB_GET, numbered(key, "k", i), 0) == CORRAL_OK;
    assert_int_equal(times_told(e, key), present ? 2 : 3);
    evicted += !present;
  }
  assert_true(evicted > 100);
}

#endif
