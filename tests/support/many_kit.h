/* many_kit.h: computes for several keys and lists of items, for tests of corral_get_many. */
#ifndef MANY_KIT_H
#define MANY_KIT_H

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

#include "base/value.h"

enum { KEYS = 40, THREADS = 8, ROUNDS = 50, FAILS_MOST = 1500 };

typedef struct room {
  corral *c;
  atomic_int calls, computes, inside, most_inside;
  atomic_int held; /* while set, hold_still doesn't return */
} room;

static inline void nap_ms(int ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000L}, NULL);
}

/* Waits up to 30 s, or more, for a condition. */
#define until(condition)                                                                           \
  do {                                                                                             \
    for (int i_ = 0; i_ < 30000 && !(condition); i_++) nap_ms(1);                                  \
    assert_true(condition);                                                                        \
  } while (0)

/* ---- computes ------------------------------------------------------------------------------ */

static inline void give_key(corral_fill *fill) {
  size_t len;
  const void *key = corral_fill_key(fill, &len);
  corral_fill_bytes(fill, key, len);
}

/* Fills by the key's first letter: 'f' fails, 'n' negative, 'e' nothing filled, 'p' can't be
 * cached, 't' has a tag; any other letter: the key itself is the value. */
static inline int by_letter(corral_fill *const *fills, size_t count, void *arg) {
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
    if (key[0] == 'f')
      corral_fill_fail(fills[i], 7, "broken");
    else if (key[0] == 'n')
      corral_fill_negative(fills[i]);
    else if (key[0] != 'e')
      give_key(fills[i]);
  }
  atomic_fetch_sub(&r->inside, 1);
  return CORRAL_OK;
}

static inline int give_up_halfway(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count / 2; i++) give_key(fills[i]);
  return CORRAL_EIO;
}

static inline int hold_still(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  room *r = arg;
  atomic_fetch_add(&r->inside, 1);
  while (atomic_load(&r->held) && !corral_fill_should_stop(fill)) nap_ms(1);
  atomic_fetch_sub(&r->inside, 1);
  return corral_fill_bytes(fill, key, key_len);
}

static inline int give(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  return corral_fill_bytes(fill, key, key_len);
}

/* ---- items --------------------------------------------------------------------------------- */

/* Fills an item for each key, up to NULL. Returns the number of items. */
static inline size_t name_items(corral_item *items, const char *const *keys) {
  size_t n = 0;
  memset(items, 0xee, KEYS * sizeof *items);
  for (; keys[n] != NULL; n++) {
    items[n].key = keys[n];
    items[n].key_len = strlen(keys[n]);
  }
  return n;
}

static inline void drop(corral_item *items, size_t count) {
  for (size_t i = 0; i < count; i++) corral_value_unref(items[i].value);
}

static inline void is_own(const corral_item *item, corral_how how) {
  assert_int_equal(item->status, CORRAL_OK);
  assert_int_equal(item->error.status, 0);
  assert_int_equal(corral_value_size(item->value), item->key_len);
  assert_memory_equal(corral_value_data(item->value), item->key, item->key_len);
  assert_int_equal(corral_value_how(item->value), how);
}

static inline void is_error(const corral_item *item, int status) {
  assert_int_equal(item->status, status);
  assert_int_equal(item->error.status, status);
  assert_null(item->value);
}

static inline const corral_policy *usual(void) {
  static const corral_policy policy = {.size = sizeof policy,
                                       .ttl_ms = 60000,
                                       .swr_ms = 60000,
                                       .sie_ms = 60000,
                                       .retry_ms = 60000,
                                       .lease_ms = 60000,
                                       .lease_min_ms = 60000,
                                       .jitter_pct = CORRAL_OFF};
  return &policy;
}

#define ITEMS(...) name_items(items, (const char *const[]){__VA_ARGS__, NULL})

static inline void open_room(room *r, const corral_options *options) {
  memset(r, 0, sizeof *r);
  assert_int_equal(corral_open(options, &r->c, NULL), CORRAL_OK);
}

static inline int set_up(void **state) {
  static room r;
  open_room(&r, CORRAL_OPTIONS(.store = "memory:"));
  *state = &r;
  return 0;
}

static inline int tear_down(void **state) {
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

static inline void *call_single(void *arg) {
  single *s = arg;
  s->status = corral_get_or_compute(s->r->c, s->key, strlen(s->key),
                                    CORRAL_CALL(.policy = &s->policy), s->compute, s->r, &s->value);
  return NULL;
}

static inline void start_single(single *s, room *r, const char *key, corral_compute *compute) {
  *s = (single){.r = r, .key = key, .compute = compute, .policy = *usual()};
  assert_int_equal(pthread_create(&s->thread, NULL, call_single, s), 0);
}

static inline void end_single(single *s, corral_how how) {
  pthread_join(s->thread, NULL);
  assert_int_equal(s->status, CORRAL_OK);
  assert_int_equal(corral_value_how(s->value), how);
  corral_value_unref(s->value);
}

/* A corral_get_many call on a thread of its own. */
typedef struct batch {
  room *r;
  corral_item items[KEYS];
  size_t count;
  corral_policy policy;
  corral_cancel_token *cancel_token;
  corral_compute_many *compute;
  int status;
  pthread_t thread;
} batch;

static inline void *call_batch(void *arg) {
  batch *b = arg;
  b->status = corral_get_many(b->r->c, b->items, b->count,
                              CORRAL_CALL(.policy = &b->policy, .cancel_token = b->cancel_token),
                              b->compute, b->r);
  return NULL;
}

static inline void start_batch(batch *b, room *r, const char *const *keys,
                               corral_compute_many *compute) {
  b->r = r;
  b->count = name_items(b->items, keys);
  b->policy = *usual();
  b->cancel_token = NULL;
  b->compute = compute;
  assert_int_equal(pthread_create(&b->thread, NULL, call_batch, b), 0);
}

static inline void end_batch(batch *b) {
  pthread_join(b->thread, NULL);
  assert_int_equal(b->status, CORRAL_OK);
}

#endif
