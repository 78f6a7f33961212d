/* test_bound.c: the compute bound at open: behind a stale answer, beyond a deadline, within another
 * compute, at close. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/loop.h>
#include <pthread.h>

#include "support/herd_lab.h"

enum { PATIENCE_MS = 30000 };

/* ---- an origin, and helpers ---------------------------------------------------------------- */

/* State and counters of the bound compute. */
typedef struct origin {
  atomic_int entered, gate, left; /* gate: with `gated`, the compute waits for it */
  int gated, negative;
  const char *nested; /* a key that the compute of "a" gets from `corral` */
  corral *corral;
  int nested_status;
} origin;

static int64_t now_ms(void) { return lab_now_us() / 1000; }

/* Fills "KEY N"; N is the number of the compute. */
static int originate(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  origin *o = arg;
  char text[96];
  int n = atomic_fetch_add(&o->entered, 1) + 1;
  lab_add(&o->entered, 0);
  if (o->gated && !lab_await_ms(&o->gate, 1, PATIENCE_MS))
    corral_fill_fail(fill, 1, "the gate stayed shut");
  if (o->nested != NULL && key_len == 1 && *(const char *)key == 'a') {
    corral_value *value = NULL;
    o->nested_status = corral_get(o->corral, o->nested, strlen(o->nested), NULL, &value);
    corral_value_unref(value);
  }
  int len = snprintf(text, sizeof text, "%.*s %d", (int)(key_len < 32 ? key_len : 32),
                     (const char *)key, n);
  if (o->negative)
    corral_fill_negative(fill);
  else
    corral_fill_bytes(fill, text, (size_t)len);
  lab_add(&o->left, 1);
  return CORRAL_OK;
}

static corral *opened(const corral_options *options) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", options->store, error.text);
  return c;
}

static corral *opened_with(const char *uri, origin *o, int64_t workers) {
  return opened(
      CORRAL_OPTIONS(.store = uri, .compute = originate, .compute_arg = o, .workers = workers));
}

/* corral_get must return this text and this `how` (0: any). */
static void gets(corral *c, const char *key, const corral_policy *policy, const char *text,
                 corral_how how) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), CORRAL_CALL(.policy = policy), &value);
  if (status != CORRAL_OK) fail_msg("corral_get(%s): %s", key, corral_status_name(status));
  if (corral_value_size(value) != strlen(text) ||
      memcmp(corral_value_data(value), text, strlen(text)) != 0)
    fail_msg("%s is '%.*s', not '%s'", key, (int)corral_value_size(value),
             (const char *)corral_value_data(value), text);
  if (how != 0) assert_string_equal(corral_how_name(corral_value_how(value)), corral_how_name(how));
  corral_value_unref(value);
}

static corral_how how_of(corral *c, const char *key, const corral_policy *policy) {
  corral_value *value = NULL;
  assert_int_equal(corral_get(c, key, strlen(key), CORRAL_CALL(.policy = policy), &value),
                   CORRAL_OK);
  corral_how how = corral_value_how(value);
  corral_value_unref(value);
  return how;
}

static int status_of(corral *c, const char *key, const corral_policy *policy) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), CORRAL_CALL(.policy = policy), &value);
  corral_value_unref(value);
  return status;
}

static const char *state_of(corral *c, const char *key) {
  static corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(corral_inspect(c, key, strlen(key), NULL, &seen), CORRAL_OK);
  return seen.state;
}

/* Runs the story once on each store. */
static void on_each(void (*story)(const char *uri)) {
  story("memory:");
  story(lab_lmdb(lab_room, "store"));
}

/* ---- lives --------------------------------------------------------------------------------- */

static void refresh_story(const char *uri) {
  origin o = {0};
  corral *c = opened_with(uri, &o, 0);
  const corral_policy *policy = CORRAL_POLICY(.swr_ms = 60000);
  gets(c, "k", policy, "k 1", CORRAL_COMPUTED);
  gets(c, "k", policy, "k 1", CORRAL_FRESH);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_string_equal(state_of(c, "k"), "stale");
  o.gated = 1;
  for (int i = 0; i < 10; i++) gets(c, "k", policy, "k 1", CORRAL_STALE);
  assert_true(lab_await_ms(&o.entered, 2, PATIENCE_MS));
  gets(c, "k", policy, "k 1", CORRAL_STALE);
  lab_add(&o.gate, 1);
  int64_t until = now_ms() + PATIENCE_MS;
  while (corral_counter(c, CORRAL_EVENT_REFRESH) == 0 && now_ms() < until) lab_sleep_ms(1);
  /* The event is counted before the flight ends; until then those who join get the stale value. */
  while (how_of(c, "k", policy) == CORRAL_STALE && now_ms() < until) lab_sleep_ms(1);
  gets(c, "k", policy, "k 2", CORRAL_FRESH);
  assert_int_equal(o.entered, 2);
  corral_close(c);
}

static void a_stale_value_is_answered_at_once_and_rebuilt_behind(void **state) {
  (void)state;
  on_each(refresh_story);
}

static void negative_story(const char *uri) {
  origin o = {.negative = 1};
  corral_error error = {0};
  corral_value *value;
  corral *c = opened_with(uri, &o, 0);
  for (int i = 0; i < 3; i++)
    assert_int_equal(
        corral_get(c, "nobody", 6,
                   CORRAL_CALL(.policy = CORRAL_POLICY(.negative_ttl_ms = 60000), .error = &error),
                   &value),
        CORRAL_ENOTFOUND);
  assert_int_equal(error.status, CORRAL_ENOTFOUND);
  assert_int_equal(o.entered, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEGATIVE), 2);
  assert_string_equal(state_of(c, "nobody"), "negative");
  assert_int_equal(status_of(c, "again", CORRAL_POLICY(.negative_ttl_ms = CORRAL_OFF)),
                   CORRAL_ENOTFOUND);
  assert_int_equal(status_of(c, "again", CORRAL_POLICY(.negative_ttl_ms = CORRAL_OFF)),
                   CORRAL_ENOTFOUND);
  assert_int_equal(o.entered, 3);
  corral_close(c);
}

static void no_such_thing_is_remembered(void **state) {
  (void)state;
  on_each(negative_story);
}

static void deadline_story(const char *uri) {
  origin o = {.gated = 1};
  corral *c = opened_with(uri, &o, 0);
  corral_inspection seen = {.size = sizeof seen};
  int64_t before = now_ms();
  assert_int_equal(status_of(c, "k", CORRAL_POLICY(.wait_ms = 100)), CORRAL_EDEADLINE);
  assert_true(now_ms() - before >= 99);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_DEADLINE), 1);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_true(seen.lease_left_ms > 0);
  assert_non_null(strchr(seen.holder, '/'));
  lab_add(&o.gate, 1);
  /* joined, or from the store if the compute was quicker */
  gets(c, "k", NULL, "k 1", (corral_how)0);
  assert_int_equal(o.entered, 1);
  corral_close(c);
}

static void a_bound_compute_outlives_the_deadline_of_its_caller(void **state) {
  (void)state;
  on_each(deadline_story);
}

/* ---- recursion ----------------------------------------------------------------------------- */

typedef struct recursion {
  corral *corral;
  const char *key;
  int status;
} recursion;

static int give_x(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "x", 1);
}

static int ask_within(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  recursion *r = arg;
  corral_value *value = NULL;
  (void)key;
  (void)key_len;
  r->status = corral_get_or_compute(r->corral, r->key, strlen(r->key), NULL, give_x, NULL, &value);
  corral_value_unref(value);
  return corral_fill_bytes(fill, "outer", 5);
}

static void recursion_per_call_story(const char *uri) {
  corral_value *value = NULL;
  recursion r = {.corral = opened(CORRAL_OPTIONS(.store = uri)), .key = "a"};
  assert_int_equal(corral_get_or_compute(r.corral, "a", 1, NULL, ask_within, &r, &value),
                   CORRAL_OK);
  assert_int_equal(r.status, CORRAL_ERECURSION);
  corral_value_unref(value);
  r.key = "b";
  assert_int_equal(corral_get_or_compute(r.corral, "c", 1, NULL, ask_within, &r, &value),
                   CORRAL_OK);
  assert_int_equal(r.status, CORRAL_OK);
  corral_value_unref(value);
  corral_close(r.corral);
}

static void a_compute_that_asks_for_its_own_key_is_told_so_at_once(void **state) {
  (void)state;
  on_each(recursion_per_call_story);
}

static void recursion_bound_story(const char *uri) {
  origin o = {.nested = "a"};
  corral *c = o.corral = opened_with(uri, &o, 1);
  gets(c, "a", NULL, "a 1", CORRAL_COMPUTED);
  assert_int_equal(o.nested_status, CORRAL_ERECURSION);
  assert_int_equal(corral_invalidate(c, "a", 1, NULL), CORRAL_OK);
  o.nested = "b";
  gets(c, "a", NULL, "a 2", CORRAL_COMPUTED);
  assert_int_equal(o.nested_status, CORRAL_OK);
  gets(c, "b", NULL, "b 3", CORRAL_FRESH);
  corral_close(c);
}

static void a_bound_compute_may_ask_for_another_key_with_one_worker(void **state) {
  (void)state;
  on_each(recursion_bound_story);
}

typedef struct asker {
  corral *corral;
  const char *key;
  int status;
} asker;

static void *ask(void *arg) {
  asker *a = arg;
  a->status = status_of(a->corral, a->key, NULL);
  return NULL;
}

/* "b" waits for the only worker, which computes "a", which asks for "b". */
static void a_bound_compute_may_ask_for_a_key_that_waits_for_its_own_worker(void **state) {
  (void)state;
  origin o = {.gated = 1, .nested = "b"};
  corral *c = o.corral =
      opened(CORRAL_OPTIONS(.store = "memory:", .compute = originate, .compute_arg = &o,
                            .workers = 1, .policy = CORRAL_POLICY(.wait_ms = PATIENCE_MS)));
  asker ask_a = {.corral = c, .key = "a"}, ask_b = {.corral = c, .key = "b"};
  pthread_t a, b;
  pthread_create(&a, NULL, ask, &ask_a);
  assert_true(lab_await_ms(&o.entered, 1, PATIENCE_MS));
  pthread_create(&b, NULL, ask, &ask_b);
  for (int i = 0; i < PATIENCE_MS && corral_counter(c, CORRAL_EVENT_LIMITED) < 1; i++)
    lab_sleep_ms(1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_CLAIM), 1); /* no lease while it waits */
  lab_add(&o.gate, 1);
  pthread_join(a, NULL);
  pthread_join(b, NULL);
  corral_close(c);
  assert_int_equal(o.nested_status, CORRAL_OK);
  assert_int_equal(ask_a.status, CORRAL_OK);
  assert_int_equal(ask_b.status, CORRAL_OK);
}

/* The caller's compute of "x" gets "a", whose bound compute, on a worker, gets "x". */
static int ask_for_a(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  origin *o = arg;
  corral_value *value = NULL;
  int status = corral_get(o->corral, "a", 1, NULL, &value);
  corral_value_unref(value);
  return status == CORRAL_OK ? corral_fill_bytes(fill, key, key_len) : status;
}

static void a_circle_of_two_keys_over_a_worker_is_told_at_once(void **state) {
  (void)state;
  origin o = {.nested = "x"};
  corral *c = o.corral =
      opened(CORRAL_OPTIONS(.store = "memory:", .compute = originate, .compute_arg = &o));
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(c, "x", 1, NULL, ask_for_a, &o, &value), CORRAL_OK);
  corral_value_unref(value);
  corral_close(c);
  assert_int_equal(o.nested_status, CORRAL_ERECURSION);
}

/* ---- events, close ------------------------------------------------------------------------- */

typedef struct witness {
  atomic_uint_fast64_t seen[CORRAL_EVENT_COUNT];
  atomic_int strange_keys;
} witness;

static void count_event(const corral_event_info *info, void *arg) {
  witness *w = arg;
  atomic_fetch_add(&w->seen[info->event], 1);
  if (info->key != NULL &&
      (info->key_len != 1 || *(const char *)info->key < 'a' || *(const char *)info->key > 'z'))
    atomic_fetch_add(&w->strange_keys, 1);
}

static void events_story(const char *uri) {
  witness *w = calloc(1, sizeof *w);
  origin o = {0};
  assert_non_null(w);
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .compute = originate, .compute_arg = &o,
                                    .on_event = count_event, .event_arg = w, .name_space = "shop",
                                    .policy = CORRAL_POLICY(.swr_ms = 60000)));
  for (int i = 0; i < 50; i++) {
    const char key = (char)('a' + i % 7);
    corral_value *value = NULL;
    assert_int_equal(corral_get(c, &key, 1, NULL, &value), CORRAL_OK);
    corral_value_unref(value);
    if (i % 3 == 0) assert_int_equal(corral_expire(c, &key, 1, NULL), CORRAL_OK);
    if (i % 11 == 0) assert_int_equal(corral_invalidate(c, &key, 1, NULL), CORRAL_OK);
  }
  assert_true(corral_counter(c, CORRAL_EVENT_HIT) > 0);
  assert_true(corral_counter(c, CORRAL_EVENT_STALE) > 0);
  assert_true(corral_counter(c, CORRAL_EVENT_MISS) > 0);
  for (int64_t until = now_ms() + PATIENCE_MS; now_ms() < until; lab_sleep_ms(1))
    if (corral_counter(c, CORRAL_EVENT_CLAIM) == corral_counter(c, CORRAL_EVENT_FILL) +
                                                     corral_counter(c, CORRAL_EVENT_REFRESH) +
                                                     corral_counter(c, CORRAL_EVENT_FENCED))
      break;
  /* a refresh counts its event before it calls the hook */
  int64_t until = now_ms() + PATIENCE_MS;
  for (int e = 0; e < CORRAL_EVENT_COUNT; e++)
    for (; corral_counter(c, (corral_event)e) != atomic_load(&w->seen[e]); lab_sleep_ms(1))
      if (now_ms() > until)
        fail_msg("event %s: the counter differs", corral_event_name((corral_event)e));
  corral_close(c);
  int strange_keys = w->strange_keys;
  free(w);
  assert_int_equal(strange_keys, 0);
}

static void counters_and_hook_agree_and_the_hook_is_told_the_users_key(void **state) {
  (void)state;
  on_each(events_story);
}

/* Once corral_close has begun, which can't end before. */
static void *open_gate_soon(void *arg) {
  origin *o = arg;
  corral_value *value;
  while (corral_peek(o->corral, "none", 4, NULL, &value) != CORRAL_ECLOSED) lab_sleep_ms(1);
  lab_sleep_ms(1000);
  lab_add(&o->gate, 1);
  return NULL;
}

/* Two refreshes on one worker: corral_close waits for the running one and gives back the lease of
 * the queued one. */
static void close_story(const char *uri) {
  origin o = {0};
  pthread_t helper;
  const corral_policy *policy = CORRAL_POLICY(.swr_ms = 60000);
  corral *c = o.corral = opened_with(uri, &o, 1);
  gets(c, "k", policy, "k 1", CORRAL_COMPUTED);
  gets(c, "l", policy, "l 2", CORRAL_COMPUTED);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(corral_expire(c, "l", 1, NULL), CORRAL_OK);
  o.gated = 1;
  gets(c, "k", policy, "k 1", CORRAL_STALE);
  assert_true(lab_await_ms(&o.entered, 3, PATIENCE_MS));
  gets(c, "l", policy, "l 2", CORRAL_STALE);
  pthread_create(&helper, NULL, open_gate_soon, &o);
  corral_close(c);
  assert_int_equal(o.left, 3);
  assert_int_equal(o.entered, 3);
  pthread_join(helper, NULL);
  c = opened(CORRAL_OPTIONS(.store = uri));
  if (strncmp(uri, "lmdb", 4) == 0) {
    corral_inspection seen = {.size = sizeof seen};
    gets(c, "k", NULL, "k 3", CORRAL_FRESH);
    assert_int_equal(corral_inspect(c, "l", 1, NULL, &seen), CORRAL_OK);
    assert_int_equal(seen.lease_left_ms, 0);
    assert_string_equal(seen.state, "stale");
  }
  corral_close(c);
}

static void close_waits_for_the_refresh_under_way_and_drops_what_is_queued(void **state) {
  (void)state;
  on_each(close_story);
}

/* "a" runs on the only worker, "b" is queued, and their callers have gone; during corral_close "a"
 * gets "b". */
static void close_does_not_wait_for_a_compute_that_waits_for_a_queued_one(void **state) {
  (void)state;
  origin o = {.gated = 1, .nested = "b"};
  pthread_t helper;
  corral *c = o.corral = opened_with("memory:", &o, 1);
  assert_int_equal(status_of(c, "a", CORRAL_POLICY(.wait_ms = 30)), CORRAL_EDEADLINE);
  assert_true(lab_await_ms(&o.entered, 1, PATIENCE_MS));
  assert_int_equal(status_of(c, "b", CORRAL_POLICY(.wait_ms = 30)), CORRAL_EDEADLINE);
  pthread_create(&helper, NULL, open_gate_soon, &o);
  corral_close(c);
  pthread_join(helper, NULL);
  if (o.nested_status != CORRAL_OK) assert_int_equal(o.nested_status, CORRAL_ECLOSED);
}

/* Two computes begin at once while one worker is idle: each must get a thread. */
static void computes_that_come_at_once_run_at_once(void **state) {
  (void)state;
  for (int i = 0; i < 30; i++) {
    origin o = {0};
    const corral_policy *policy = CORRAL_POLICY(.swr_ms = 60000);
    corral *c = opened_with("memory:", &o, 4);
    gets(c, "k", policy, "k 1", CORRAL_COMPUTED);
    assert_int_equal(corral_set(c, "l", 1, CORRAL_CALL(.policy = policy), "l 0", 3), CORRAL_OK);
    assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
    assert_int_equal(corral_expire(c, "l", 1, NULL), CORRAL_OK);
    lab_sleep_ms(1); /* until the worker is idle */
    o.gated = 1;
    gets(c, "k", policy, "k 1", CORRAL_STALE);
    gets(c, "l", policy, "l 0", CORRAL_STALE);
    int both = lab_await_ms(&o.entered, 3, PATIENCE_MS);
    lab_add(&o.gate, 1);
    corral_close(c);
    if (!both) fail_msg("try %d: the second compute waited for the first", i);
  }
}

#define IN_ROOM(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOM(a_stale_value_is_answered_at_once_and_rebuilt_behind),
      IN_ROOM(no_such_thing_is_remembered),
      IN_ROOM(a_bound_compute_outlives_the_deadline_of_its_caller),
      IN_ROOM(a_compute_that_asks_for_its_own_key_is_told_so_at_once),
      IN_ROOM(a_bound_compute_may_ask_for_another_key_with_one_worker),
      IN_ROOM(a_circle_of_two_keys_over_a_worker_is_told_at_once),
      IN_ROOM(a_bound_compute_may_ask_for_a_key_that_waits_for_its_own_worker),
      IN_ROOM(counters_and_hook_agree_and_the_hook_is_told_the_users_key),
      IN_ROOM(close_waits_for_the_refresh_under_way_and_drops_what_is_queued),
      IN_ROOM(close_does_not_wait_for_a_compute_that_waits_for_a_queued_one),
      IN_ROOM(computes_that_come_at_once_run_at_once),
  };
  return cmocka_run_group_tests_name("bound", tests, NULL, NULL);
}
