/* test_many.c: corral_get_many: several keys, one compute for those this call leads, others' flights joined. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "value.h"

enum { KEYS = 40, THREADS = 8, ROUNDS = 50, FAILS_MOST = 1500 };

typedef struct room {
  corral *c;
  atomic_int calls, computes, inside, most_inside;
  atomic_int held; /* while set, hold_still stays inside */
} room;

static void nap_ms(int ms) { nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL); }

/* Waits for a state, up to 10 s. */
#define until(condition)                                     \
  do {                                                       \
    for (int i_ = 0; i_ < 10000 && !(condition); i_++) nap_ms(1); \
    assert_true(condition);                                  \
  } while (0)

/* ---- computes -------------------------------------------------------------------------------------------- */

static void give_key(corral_fill *fill) {
  size_t len;
  const void *key = corral_fill_key(fill, &len);
  corral_fill_bytes(fill, key, len);
}

/* By the key's first letter: 'f' fails, 'n' is no such thing, 'e' is given nothing, 'p' can't be cached, 't' has a tag; others give their key. */
static int by_letter(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  int inside = atomic_fetch_add(&r->inside, 1) + 1;
  if (inside > atomic_load(&r->most_inside)) atomic_store(&r->most_inside, inside);
  atomic_fetch_add(&r->calls, 1);
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    atomic_fetch_add(&r->computes, 1);
    if (key[0] == 'p') corral_fill_pass(fills[i]);
    if (key[0] == 't') corral_fill_tag(fills[i], "tag", 3);
    if (key[0] == 'f') corral_fill_fail(fills[i], 7, "broken");
    else if (key[0] == 'n') corral_fill_negative(fills[i]);
    else if (key[0] != 'e') give_key(fills[i]);
  }
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static int give_up_halfway(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count / 2; i++) give_key(fills[i]);
  return CORRAL_EIO;
}

static int hold_still(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->inside, 1);
  while (atomic_load(&r->held) && !corral_should_stop(fill)) nap_ms(1);
  atomic_fetch_sub(&r->inside, 1);
  return corral_fill_bytes(fill, key, key_len);
}

static int give(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

/* ---- items ----------------------------------------------------------------------------------------------- */

/* One per word of `keys`, until a NULL. */
static size_t name_items(corral_item *items, const char *const *keys) {
  size_t n = 0;
  memset(items, 0xee, KEYS * sizeof *items);
  for (; keys[n] != NULL; n++) {
    items[n].key = keys[n];
    items[n].key_len = strlen(keys[n]);
  }
  return n;
}

static void drop(corral_item *items, size_t count) {
  for (size_t i = 0; i < count; i++) corral_value_unref(items[i].value);
}

static void is_own(const corral_item *item, corral_how how) {
  assert_int_equal(item->status, CORRAL_OK);
  assert_int_equal(item->error.status, 0);
  assert_int_equal(corral_value_size(item->value), item->key_len);
  assert_memory_equal(corral_value_data(item->value), item->key, item->key_len);
  assert_int_equal(corral_value_how(item->value), how);
}

static void is_error(const corral_item *item, int status) {
  assert_int_equal(item->status, status);
  assert_int_equal(item->error.status, status);
  assert_null(item->value);
}

static const corral_policy *usual(void) {
  static const corral_policy policy = {.size = sizeof policy, .ttl_ms = 60000, .swr_ms = 60000, .sie_ms = 60000, .retry_ms = 60000, .jitter_pct = CORRAL_OFF};
  return &policy;
}

#define ITEMS(...) name_items(items, (const char *const[]){__VA_ARGS__, NULL})

static void open_room(room *r, const corral_options *options) {
  memset(r, 0, sizeof *r);
  assert_int_equal(corral_open(&r->c, options, NULL), CORRAL_OK);
}

static int set_up(void **state) {
  static room r;
  open_room(&r, CORRAL_OPTIONS(.store = "memory:"));
  *state = &r;
  return 0;
}

static int tear_down(void **state) {
  room *r = *state;
  corral_close(r->c);
  return 0;
}

/* A single call on a thread of its own. */
typedef struct single {
  room *r;
  const char *key;
  corral_policy policy;
  corral_compute *compute;
  int status;
  corral_value *value;
  pthread_t thread;
} single;

static void *call_single(void *arg) {
  single *s = arg;
  s->status = corral_get_or_compute(s->r->c, s->key, strlen(s->key), &s->policy, s->compute, s->r, &s->value);
  return NULL;
}

static void start_single(single *s, room *r, const char *key, corral_compute *compute) {
  *s = (single){.r = r, .key = key, .compute = compute, .policy = *usual()};
  assert_int_equal(pthread_create(&s->thread, NULL, call_single, s), 0);
}

static void end_single(single *s, corral_how how) {
  pthread_join(s->thread, NULL);
  assert_int_equal(s->status, CORRAL_OK);
  assert_int_equal(corral_value_how(s->value), how);
  corral_value_unref(s->value);
}

/* And a batch. */
typedef struct batch {
  room *r;
  corral_item items[KEYS];
  size_t count;
  corral_policy policy;
  corral_compute_many *compute;
  int status;
  pthread_t thread;
} batch;

static void *call_batch(void *arg) {
  batch *b = arg;
  b->status = corral_get_many(b->r->c, b->items, b->count, &b->policy, b->compute, b->r);
  return NULL;
}

static void start_batch(batch *b, room *r, const char *const *keys, corral_compute_many *compute) {
  b->r = r;
  b->count = name_items(b->items, keys);
  b->policy = *usual();
  b->compute = compute;
  assert_int_equal(pthread_create(&b->thread, NULL, call_batch, b), 0);
}

static void end_batch(batch *b) {
  pthread_join(b->thread, NULL);
  assert_int_equal(b->status, CORRAL_OK);
}

/* ---- on one thread --------------------------------------------------------------------------------------- */

static void cold_keys_are_one_compute_and_warm_ones_none(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "c", "d");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  for (size_t i = 0; i < n; i++) is_own(&items[i], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[3].value), CORRAL_KEPT);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  n = ITEMS("a", "b", "c", "d");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  for (size_t i = 0; i < n; i++) is_own(&items[i], CORRAL_FRESH);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_COMPUTE), 4);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_HIT), 4);
}

static void each_key_of_a_mixed_batch_gets_its_own_answer(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("fresh", "stale", "fail-known", "none-known");
  assert_int_equal(corral_get_many(r->c, items, 2, usual(), by_letter, r), CORRAL_OK);
  drop(items, 2);
  n = ITEMS("x-fresh", "x-stale", "f-known", "n-known");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  drop(items, n);
  assert_int_equal(corral_expire(r->c, "x-stale", 7, NULL), CORRAL_OK);
  atomic_store(&r->calls, 0);
  atomic_store(&r->computes, 0);
  n = ITEMS("x-fresh", "x-stale", "missing", "f-new", "n-new", "empty", "f-known", "n-known", "x");
  items[8].key_len = 0;
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  is_own(&items[0], CORRAL_FRESH);
  is_own(&items[1], CORRAL_COMPUTED);
  is_own(&items[2], CORRAL_COMPUTED);
  is_error(&items[3], CORRAL_EFAILED);
  assert_int_equal(items[3].error.code, 7);
  assert_string_equal(items[3].error.text, "broken");
  is_error(&items[4], CORRAL_ENOTFOUND);
  is_error(&items[5], CORRAL_EFAILED);
  assert_string_equal(items[5].error.text, "compute returned without a value");
  is_error(&items[6], CORRAL_EFAILED);
  assert_true(items[6].error.retry_after_ms > 0);
  is_error(&items[7], CORRAL_ENOTFOUND);
  is_error(&items[8], CORRAL_EINVAL);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(r->computes, 5);
}

static void a_failure_of_a_stale_key_leaves_its_value(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("f-old", "good");
  corral_set(r->c, "f-old", 5, usual(), "f-old", 5);
  corral_expire(r->c, "f-old", 5, NULL);
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  is_own(&items[0], CORRAL_STALE);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
}

static void a_negative_return_value_fails_those_that_were_given_nothing(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "c", "d");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), give_up_halfway, r), CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_own(&items[1], CORRAL_COMPUTED);
  is_error(&items[2], CORRAL_EFAILED);
  is_error(&items[3], CORRAL_EFAILED);
  assert_int_equal(items[3].error.code, CORRAL_EIO);
  drop(items, n);
}

static void a_key_that_appears_twice_is_computed_once(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "b", "a", "f", "a", "f", "p", "p");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  for (size_t i = 0; i < 5; i++)
    if (i != 3) is_own(&items[i], CORRAL_COMPUTED);
  assert_ptr_equal(items[0].value, items[4].value);
  is_error(&items[3], CORRAL_EFAILED);
  is_error(&items[5], CORRAL_EFAILED);
  is_own(&items[7], CORRAL_COMPUTED);
  drop(items, n);
  assert_int_equal(r->calls, 1);
  assert_int_equal(r->computes, 4);
}

/* The way to its compute is shorter. */
static void what_cant_be_cached_is_computed_along_with_the_rest(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("p", "a");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  drop(items, n);
  n = ITEMS("p", "b", "a");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[0].value), CORRAL_KEPT_NOT);
  is_own(&items[1], CORRAL_COMPUTED);
  is_own(&items[2], CORRAL_FRESH);
  drop(items, n);
  assert_int_equal(r->calls, 2);
}

static void without_a_compute_it_only_looks(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  size_t n = ITEMS("set", "missing", "stale");
  corral_set(r->c, "set", 3, usual(), "set", 3);
  corral_set(r->c, "stale", 5, usual(), "stale", 5);
  corral_expire(r->c, "stale", 5, NULL);
  assert_int_equal(corral_get_many(r->c, items, n, usual(), NULL, NULL), CORRAL_OK);
  is_own(&items[0], CORRAL_FRESH);
  is_error(&items[1], CORRAL_EMISS);
  is_own(&items[2], CORRAL_STALE);
  drop(items, n);
}

static void what_concerns_the_call_is_its_status_and_that_of_each_item(void **state) {
  room *r = *state;
  corral_item items[KEYS];
  corral_error error = {0};
  size_t n = ITEMS("a", "b");
  assert_int_equal(corral_get_many(r->c, items, 0, usual(), by_letter, r), CORRAL_OK);
  assert_int_equal(corral_get_many(r->c, NULL, 0, usual(), by_letter, r), CORRAL_OK);
  assert_int_equal(corral_get_many(r->c, NULL, 1, CORRAL_POLICY(.error = &error), by_letter, r), CORRAL_EINVAL);
  assert_int_equal(error.status, CORRAL_EINVAL);
  assert_int_equal(corral_get_many(NULL, items, n, usual(), by_letter, r), CORRAL_EINVAL);
  is_error(&items[1], CORRAL_EINVAL);
  assert_int_equal(corral_get_many(r->c, items, n, CORRAL_POLICY(.ttl_ms = -5), by_letter, r), CORRAL_EINVAL);
  is_error(&items[0], CORRAL_EINVAL);
  assert_int_equal(r->calls, 0);
}

static int ask_for_own_keys(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  corral_item items[KEYS];
  corral_value *value = NULL;
  size_t n = ITEMS("a", "inner", "b");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), by_letter, r), CORRAL_OK);
  is_error(&items[0], CORRAL_ERECURSION);
  is_own(&items[1], CORRAL_COMPUTED);
  is_error(&items[2], CORRAL_ERECURSION);
  drop(items, n);
  assert_int_equal(corral_get_or_compute(r->c, "b", 1, usual(), give, NULL, &value), CORRAL_ERECURSION);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  return CORRAL_OK;
}

static int ask_for_a_batch(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  room *r = arg;
  corral_item items[KEYS];
  size_t n = ITEMS("a", "outer", "b");
  assert_int_equal(corral_get_many(r->c, items, n, usual(), ask_for_own_keys, r), CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_error(&items[1], CORRAL_ERECURSION);
  is_own(&items[2], CORRAL_COMPUTED);
  drop(items, n);
  return corral_fill_bytes(fill, key, key_len);
}

static void a_compute_that_asks_for_one_of_its_own_keys_is_told_so(void **state) {
  room *r = *state;
  corral_value *value;
  assert_int_equal(corral_get_or_compute(r->c, "outer", 5, usual(), ask_for_a_batch, r, &value), CORRAL_OK);
  corral_value_unref(value);
}

static void a_thousand_keys_are_one_compute(void **state) {
  room *r = *state;
  static corral_item items[1000];
  static char names[1000][16];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < 1000; i++) items[i] = (corral_item){.key = names[i], .key_len = (size_t)snprintf(names[i], sizeof *names, "key-%d", i)};
    assert_int_equal(corral_get_many(r->c, items, 1000, usual(), by_letter, r), CORRAL_OK);
    for (int i = 0; i < 1000; i++) is_own(&items[i], round == 0 ? CORRAL_COMPUTED : CORRAL_FRESH);
    drop(items, 1000);
  }
  assert_int_equal(r->calls, 1);
}

static void tags_and_the_whole_namespace_are_heeded(void **state) {
  (void)state;
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .generation = 1, .name_space = "n"));
  for (int round = 0; round < 4; round++) {
    size_t n = ITEMS("t1", "t2", "bare");
    assert_int_equal(corral_get_many(r.c, items, n, usual(), by_letter, &r), CORRAL_OK);
    is_own(&items[0], round == 1 ? CORRAL_FRESH : CORRAL_COMPUTED);
    is_own(&items[1], round == 1 ? CORRAL_FRESH : CORRAL_COMPUTED);
    is_own(&items[2], round == 1 || round == 2 ? CORRAL_FRESH : CORRAL_COMPUTED);
    drop(items, n);
    if (round == 1) assert_int_equal(corral_invalidate_tag(r.c, "tag", 3, NULL), CORRAL_OK);
    if (round == 2) assert_int_equal(corral_invalidate_all(r.c, NULL), CORRAL_OK);
  }
  corral_close(r.c);
}

static void copies_of_this_process_answer_without_the_store(void **state) {
  (void)state;
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  for (int round = 0; round < 3; round++) {
    size_t n = ITEMS("a", "t", "n");
    assert_int_equal(corral_get_many(r.c, items, n, CORRAL_POLICY(.near_ms = 60000), by_letter, &r), CORRAL_OK);
    is_own(&items[0], round == 0 ? CORRAL_COMPUTED : CORRAL_FRESH);
    is_error(&items[2], CORRAL_ENOTFOUND);
    drop(items, n);
  }
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_NEAR) >= 2, 1);
  corral_close(r.c);
}

/* ---- with others ----------------------------------------------------------------------------------------- */

static void a_batch_computes_its_own_while_another_computes_the_rest_and_joins_that(void **state) {
  room *r = *state;
  single other;
  batch b;
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  start_batch(&b, r, (const char *const[]){"theirs", "mine", "mine too", NULL}, by_letter);
  until(atomic_load(&r->calls) == 1);
  nap_ms(20);
  atomic_store(&r->held, 0);
  end_batch(&b);
  end_single(&other, CORRAL_COMPUTED);
  is_own(&b.items[0], CORRAL_JOINED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  is_own(&b.items[2], CORRAL_COMPUTED);
  drop(b.items, b.count);
  assert_int_equal(r->computes, 2);
  assert_int_equal(corral_counter(r->c, CORRAL_EVENT_JOIN), 1);
}

static int hold_all(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->inside, 1);
  while (atomic_load(&r->held) && !corral_should_stop(fills[0])) nap_ms(1);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static void single_calls_join_a_batch(void **state) {
  room *r = *state;
  single a, b;
  batch leader;
  atomic_store(&r->held, 1);
  start_batch(&leader, r, (const char *const[]){"a", "b", NULL}, hold_all);
  until(atomic_load(&r->inside) == 1);
  start_single(&a, r, "a", give);
  start_single(&b, r, "b", give);
  until(corral_counter(r->c, CORRAL_EVENT_JOIN) == 2);
  atomic_store(&r->held, 0);
  end_single(&a, CORRAL_JOINED);
  end_single(&b, CORRAL_JOINED);
  end_batch(&leader);
  drop(leader.items, leader.count);
}

/* Each waits inside for the other's. */
static int both_at_once(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->calls, 1);
  for (int i = 0; i < 4000 && atomic_load(&r->calls) < 2; i++) nap_ms(1);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  return CORRAL_OK;
}

/* Two who join "x" meet there, in the midst of entering their keys. */
static pthread_barrier_t meeting;

static void meet_at_x(corral_event event, const void *key, size_t key_len, const char *detail, void *arg) {
  (void)detail, (void)arg;
  if (event == CORRAL_EVENT_JOIN && key_len == 1 && memcmp(key, "x", 1) == 0) pthread_barrier_wait(&meeting);
}

static void two_batches_that_each_lead_what_the_other_wants_compute_before_they_wait(void **state) {
  (void)state;
  room r;
  single x;
  batch a, b;
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .on_event = meet_at_x));
  pthread_barrier_init(&meeting, NULL, 2);
  atomic_store(&r.held, 1);
  start_single(&x, &r, "x", hold_still);
  until(atomic_load(&r.inside) == 1);
  start_batch(&a, &r, (const char *const[]){"k1", "x", "k2", NULL}, both_at_once);
  start_batch(&b, &r, (const char *const[]){"k2", "x", "k1", NULL}, both_at_once);
  until(atomic_load(&r.calls) == 2);
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_JOIN), 4);
  atomic_store(&r.held, 0);
  end_batch(&a);
  end_batch(&b);
  end_single(&x, CORRAL_COMPUTED);
  is_own(&a.items[0], CORRAL_COMPUTED);
  is_own(&b.items[0], CORRAL_COMPUTED);
  is_own(&a.items[1], CORRAL_JOINED);
  is_own(&a.items[2], CORRAL_JOINED);
  is_own(&b.items[2], CORRAL_JOINED);
  drop(a.items, a.count);
  drop(b.items, b.count);
  pthread_barrier_destroy(&meeting);
  corral_close(r.c);
}

static void a_leader_that_is_given_up_is_replaced_by_the_batch(void **state) {
  room *r = *state;
  single other = {.r = r, .key = "theirs", .compute = hold_still, .policy = *usual()};
  batch b;
  other.policy.compute_ms = 100;
  other.policy.retry_ms = CORRAL_OFF;
  atomic_store(&r->held, 1);
  assert_int_equal(pthread_create(&other.thread, NULL, call_single, &other), 0);
  until(atomic_load(&r->inside) == 1);
  start_batch(&b, r, (const char *const[]){"theirs", "mine", NULL}, by_letter);
  end_batch(&b);
  is_own(&b.items[0], CORRAL_COMPUTED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  drop(b.items, b.count);
  assert_int_equal(r->calls, 2);
  end_single(&other, CORRAL_COMPUTED);
}

/* Somebody holds "theirs" for good. */
static void while_held(room *r, const corral_policy *policy, void (*check)(const corral_item *items)) {
  single other;
  corral_item items[KEYS];
  size_t n = ITEMS("theirs", "mine");
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  assert_int_equal(corral_get_many(r->c, items, n, policy, by_letter, r), CORRAL_OK);
  check(items);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
  atomic_store(&r->held, 0);
  end_single(&other, CORRAL_COMPUTED);
}

static void is_late(const corral_item *items) { is_error(&items[0], CORRAL_EDEADLINE); }
static void is_stale(const corral_item *items) { is_own(&items[0], CORRAL_STALE); }
static void is_computed(const corral_item *items) {
  is_own(&items[0], CORRAL_COMPUTED);
  assert_int_equal(corral_value_kept(items[0].value), CORRAL_KEPT_NOT);
}

static void a_deadline_is_the_end_of_those_that_wait_alone(void **state) {
  while_held(*state, CORRAL_POLICY(.wait_ms = 50), is_late);
}

static void a_deadline_may_be_followed_by_an_own_compute(void **state) {
  room *r = *state;
  while_held(r, CORRAL_POLICY(.wait_ms = 50, .at_deadline = CORRAL_DEADLINE_COMPUTE), is_computed);
  assert_int_equal(r->calls, 2);
}

static void after_soft_ms_a_stale_value_will_do(void **state) {
  room *r = *state;
  const corral_policy *policy = CORRAL_POLICY(.swr_ms = CORRAL_OFF, .sie_ms = 60000);
  corral_set(r->c, "theirs", 6, policy, "theirs", 6);
  corral_expire(r->c, "theirs", 6, NULL);
  while_held(r, CORRAL_POLICY(.soft_ms = 30, .wait_ms = 20000), is_stale);
}

static void who_leaves_keeps_what_was_computed(void **state) {
  room *r = *state;
  single other;
  batch b;
  corral_ticket *ticket = corral_ticket_new();
  atomic_store(&r->held, 1);
  start_single(&other, r, "theirs", hold_still);
  until(atomic_load(&r->inside) == 1);
  b.policy = *usual();
  b.r = r;
  b.compute = by_letter;
  b.policy.ticket = ticket;
  b.count = name_items(b.items, (const char *const[]){"theirs", "mine", NULL});
  assert_int_equal(pthread_create(&b.thread, NULL, call_batch, &b), 0);
  until(corral_counter(r->c, CORRAL_EVENT_FILL) == 1);
  corral_cancel(ticket);
  end_batch(&b);
  is_error(&b.items[0], CORRAL_ECANCELLED);
  is_own(&b.items[1], CORRAL_COMPUTED);
  drop(b.items, b.count);
  b.count = name_items(b.items, (const char *const[]){"theirs", "new", NULL});
  call_batch(&b);
  is_error(&b.items[1], CORRAL_ECANCELLED);
  atomic_store(&r->held, 0);
  end_single(&other, CORRAL_COMPUTED);
  corral_ticket_free(ticket);
}

static int take_a_while(corral_fill *const *fills, size_t count, void *arg) {
  room *r = arg;
  int inside = atomic_fetch_add(&r->inside, 1) + 1;
  if (inside > atomic_load(&r->most_inside)) atomic_store(&r->most_inside, inside);
  nap_ms(20);
  for (size_t i = 0; i < count; i++) give_key(fills[i]);
  atomic_fetch_add(&r->calls, 1);
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static void a_call_takes_one_place_among_the_computes(void **state) {
  (void)state;
  room r;
  batch b[4];
  static const char *const keys[4][4] = {{"a1", "a2", "a3", NULL}, {"b1", "b2", "b3", NULL}, {"c1", "a1", "c3", NULL}, {"d1", "b2", "c3", NULL}};
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .max_computes = 1));
  for (int i = 0; i < 4; i++) start_batch(&b[i], &r, keys[i], take_a_while);
  for (int i = 0; i < 4; i++) end_batch(&b[i]);
  for (int i = 0; i < 4; i++)
    for (size_t k = 0; k < b[i].count; k++) assert_int_equal(b[i].items[k].status, CORRAL_OK);
  for (int i = 0; i < 4; i++) drop(b[i].items, b[i].count);
  assert_int_equal(r.most_inside, 1);
  assert_in_range(r.calls, 2, 4);
  assert_int_equal(corral_counter(r.c, CORRAL_EVENT_COMPUTE), 9);
  corral_close(r.c);
}

/* ---- a crowd --------------------------------------------------------------------------------------------- */

enum { CROWD_KEYS = 20, CROWD_WANTS = 12 };

typedef struct crowd {
  corral *c;
  pthread_barrier_t barrier;
  atomic_int computes[ROUNDS][CROWD_KEYS], wanted[ROUNDS][CROWD_KEYS], wrongs, seat;
} crowd;

static int count_computes(corral_fill *const *fills, size_t count, void *arg) {
  crowd *all = arg;
  for (size_t i = 0; i < count; i++) {
    size_t len;
    const char *key = corral_fill_key(fills[i], &len);
    char text[32] = "";
    memcpy(text, key, len);
    char *second;
    long round = strtol(text, &second, 10);
    atomic_fetch_add(&all->computes[round][strtol(second + 1, NULL, 10)], 1);
    give_key(fills[i]);
  }
  nap_ms(1);
  return CORRAL_OK;
}

static void crowd_round(crowd *all, int round, unsigned *dice) {
  corral_item items[CROWD_WANTS];
  char names[CROWD_WANTS][32];
  for (int i = 0; i < CROWD_WANTS; i++) {
    *dice = *dice * 1664525u + 1013904223u;
    int key = (int)((*dice >> 16) % CROWD_KEYS);
    atomic_fetch_add(&all->wanted[round][key], 1);
    items[i] = (corral_item){.key = names[i], .key_len = (size_t)snprintf(names[i], sizeof *names, "%d-%d", round, key)};
  }
  if (corral_get_many(all->c, items, CROWD_WANTS, NULL, count_computes, all) != CORRAL_OK) atomic_fetch_add(&all->wrongs, 1);
  for (int i = 0; i < CROWD_WANTS; i++) {
    int good = items[i].status == CORRAL_OK && corral_value_size(items[i].value) == items[i].key_len &&
               memcmp(corral_value_data(items[i].value), items[i].key, items[i].key_len) == 0;
    if (!good) atomic_fetch_add(&all->wrongs, 1);
    corral_value_unref(items[i].value);
  }
}

static void *crowd_member(void *arg) {
  crowd *all = arg;
  unsigned dice = (unsigned)atomic_fetch_add(&all->seat, 1) * 7919u + 1;
  for (int round = 0; round < ROUNDS; round++) {
    pthread_barrier_wait(&all->barrier);
    crowd_round(all, round, &dice);
  }
  return NULL;
}

static void eight_threads_with_overlapping_batches_compute_each_key_once(void **state) {
  (void)state;
  static crowd all;
  pthread_t threads[THREADS];
  assert_int_equal(corral_open(&all.c, CORRAL_OPTIONS(.store = "memory:"), NULL), CORRAL_OK);
  pthread_barrier_init(&all.barrier, NULL, THREADS);
  for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&threads[i], NULL, crowd_member, &all), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(all.wrongs, 0);
  for (int round = 0; round < ROUNDS; round++)
    for (int key = 0; key < CROWD_KEYS; key++)
      if (all.computes[round][key] != (all.wanted[round][key] > 0)) fail_msg("round %d, key %d: %d computes", round, key, all.computes[round][key]);
  print_message("           %llu joins\n", (unsigned long long)corral_counter(all.c, CORRAL_EVENT_JOIN));
  assert_true(corral_counter(all.c, CORRAL_EVENT_JOIN) > ROUNDS);
  pthread_barrier_destroy(&all.barrier);
  corral_close(all.c);
}

/* ---- memory ---------------------------------------------------------------------------------------------- */

static void check_any(const corral_item *items, size_t n) {
  for (size_t i = 0; i < n; i++) {
    assert_in_range(-items[i].status, 0, 26);
    assert_int_equal(items[i].status == CORRAL_OK, items[i].value != NULL);
    if (items[i].value == NULL) continue;
    assert_int_equal(corral_value_size(items[i].value), items[i].key_len);
    assert_memory_equal(corral_value_data(items[i].value), items[i].key, items[i].key_len);
  }
}

/* 1 when no allocation failed. */
static int tour(long index) {
  room r;
  corral_item items[KEYS];
  open_room(&r, CORRAL_OPTIONS(.store = "memory:", .generation = 1, .max_computes = 2, .near_bytes = 1 << 16));
  crl_alloc_countdown = index;
  for (int round = 0; round < 2; round++) {
    size_t n = ITEMS("a", "f", "n", "e", "p", "t", "a");
    int status = corral_get_many(r.c, items, n, CORRAL_POLICY(.near_ms = round == 0 ? CORRAL_OFF : 1000), by_letter, &r);
    assert_true(status == CORRAL_OK || status == CORRAL_ENOMEM);
    check_any(items, n);
    drop(items, n);
  }
  int whole = crl_alloc_countdown >= 0;
  crl_alloc_countdown = -1;
  size_t n = ITEMS("a", "b");
  corral_invalidate(r.c, "a", 1, NULL);
  assert_int_equal(corral_get_many(r.c, items, n, CORRAL_POLICY(.retry_ms = 1), by_letter, &r), CORRAL_OK);
  is_own(&items[0], CORRAL_COMPUTED);
  is_own(&items[1], CORRAL_COMPUTED);
  drop(items, n);
  corral_close(r.c);
  return whole;
}

static void a_failed_allocation_costs_its_keys_at_most(void **state) {
  (void)state;
  long index = 0;
  while (index < FAILS_MOST && !tour(index)) index++;
  print_message("           %ld allocations\n", index);
  assert_in_range(index, 50, FAILS_MOST - 1);
}

#define IN_ROOM(test) cmocka_unit_test_setup_teardown(test, set_up, tear_down)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOM(cold_keys_are_one_compute_and_warm_ones_none),
      IN_ROOM(each_key_of_a_mixed_batch_gets_its_own_answer),
      IN_ROOM(a_failure_of_a_stale_key_leaves_its_value),
      IN_ROOM(a_negative_return_value_fails_those_that_were_given_nothing),
      IN_ROOM(a_key_that_appears_twice_is_computed_once),
      IN_ROOM(what_cant_be_cached_is_computed_along_with_the_rest),
      IN_ROOM(without_a_compute_it_only_looks),
      IN_ROOM(what_concerns_the_call_is_its_status_and_that_of_each_item),
      IN_ROOM(a_compute_that_asks_for_one_of_its_own_keys_is_told_so),
      IN_ROOM(a_thousand_keys_are_one_compute),
      cmocka_unit_test(tags_and_the_whole_namespace_are_heeded),
      cmocka_unit_test(copies_of_this_process_answer_without_the_store),
      IN_ROOM(a_batch_computes_its_own_while_another_computes_the_rest_and_joins_that),
      IN_ROOM(single_calls_join_a_batch),
      cmocka_unit_test(two_batches_that_each_lead_what_the_other_wants_compute_before_they_wait),
      IN_ROOM(a_leader_that_is_given_up_is_replaced_by_the_batch),
      IN_ROOM(a_deadline_is_the_end_of_those_that_wait_alone),
      IN_ROOM(a_deadline_may_be_followed_by_an_own_compute),
      IN_ROOM(after_soft_ms_a_stale_value_will_do),
      IN_ROOM(who_leaves_keeps_what_was_computed),
      cmocka_unit_test(a_call_takes_one_place_among_the_computes),
      cmocka_unit_test(eight_threads_with_overlapping_batches_compute_each_key_once),
      cmocka_unit_test(a_failed_allocation_costs_its_keys_at_most),
  };
  return cmocka_run_group_tests_name("many", tests, NULL, NULL);
}
