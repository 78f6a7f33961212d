/* near_kit.h: one-line helpers for each call of the near tier's table. */
#ifndef NEAR_KIT_H
#define NEAR_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <stdatomic.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "record/envelope.h"
#include "near/near.h"
#include "os/readers.h"

/* A table of MOST bytes has 1 shard, one of WIDE bytes has 64. */
enum { MOST = 100000, WIDE = 64 << 20, LIFE = 1000, SIZE = 100, KEYS = 4000, PLENTY = 1000000 };

/* ---- one line for each call ---------------------------------------------------------------- */

static atomic_int freed;

static inline void free_bytes(void *owner) {
  atomic_fetch_add(&freed, 1);
  free(owner);
}

static inline crl_bytes *bytes_of(char letter, size_t size) {
  uint8_t *data = malloc(size);
  assert_non_null(data);
  memset(data, letter, size);
  long countdown = atomic_exchange(&crl_alloc_countdown, -1);
  crl_bytes *bytes = crl_bytes_wrap(data, size, free_bytes, data);
  atomic_store(&crl_alloc_countdown, countdown);
  assert_non_null(bytes);
  return bytes;
}

static inline uint64_t hash_of(const char *key) { return XXH3_64bits(key, strlen(key)); }

static inline uint64_t epoch(crl_near *near, const char *key) {
  return crl_near_epoch(near, hash_of(key));
}

static inline void copy_clean(crl_near_copy *copy) {
  crl_bytes_unref(copy->bytes);
  crl_bytes_unref(copy->metadata);
  copy->bytes = copy->metadata = NULL;
}

/* A look, and *ret with references for copy_clean. 0: no copy; nothing is written. */
static inline int get_copy(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                           int64_t now, crl_near_copy *ret) {
  assert_true(crl_readers_enter());
  const crl_near_copy *copy = crl_near_look(near, hash, key, key_len, now);
  if (copy != NULL) {
    *ret = *copy;
    ret->bytes = crl_near_bytes(copy, &ret->offset);
    ret->data = ret->bytes->data + ret->offset;
    if (ret->metadata != NULL) crl_bytes_ref(ret->metadata);
  }
  crl_readers_leave();
  return copy != NULL;
}

static inline int put_copy(crl_near *near, const char *key, uint8_t kind, char letter, size_t size,
                           int64_t now, uint64_t with) {
  crl_near_copy copy = {.bytes = bytes_of(letter, size),
                        .size = size,
                        .kind = kind,
                        .looked = now,
                        .made = now,
                        .fresh_until = now + LIFE,
                        .ttl = LIFE};
  int kept = crl_near_put(near, hash_of(key), key, strlen(key), &copy, with);
  copy_clean(&copy);
  return kept;
}

static inline int put(crl_near *near, const char *key, char letter) {
  return put_copy(near, key, CRL_KIND_VALUE, letter, SIZE, 0, epoch(near, key));
}

static inline int put_sized(crl_near *near, const char *key, size_t size) {
  return put_copy(near, key, CRL_KIND_VALUE, 's', size, 0, epoch(near, key));
}

static inline int put_negative(crl_near *near, const char *key) {
  return put_copy(near, key, CRL_KIND_NEGATIVE, 'n', SIZE, 0, epoch(near, key));
}

/* Returns the first letter of the copy; '-': no copy. */
static inline char got_at(crl_near *near, const char *key, int64_t now) {
  crl_near_copy copy;
  if (!get_copy(near, hash_of(key), key, strlen(key), now, &copy)) return '-';
  char letter = (char)copy.bytes->data[copy.offset];
  copy_clean(&copy);
  return letter;
}

static inline char got(crl_near *near, const char *key) { return got_at(near, key, 0); }

static inline const char *numbered(const char *stem, size_t number) {
  static _Thread_local char room[64];
  snprintf(room, sizeof room, "%s%06zu", stem, number);
  return room;
}

static inline crl_near *near_of(int64_t most) {
  crl_near *near = crl_near_new(most);
  assert_non_null(near);
  return near;
}

/* Puts stem0, stem1, ... */
static inline void put_many(crl_near *near, const char *stem, size_t count) {
  for (size_t i = 0; i < count; i++) assert_true(put(near, numbered(stem, i), 'm'));
}

static inline void get_many(crl_near *near, const char *stem, size_t count, int times) {
  for (int turn = 0; turn < times; turn++)
    for (size_t i = 0; i < count; i++) (void)got(near, numbered(stem, i));
}

static inline size_t found_of(crl_near *near, const char *stem, size_t count) {
  size_t found = 0;
  for (size_t i = 0; i < count; i++) found += got(near, numbered(stem, i)) != '-';
  return found;
}

/* Weight of a copy of SIZE bytes under a key made by `numbered` from a one-letter stem. */
static inline size_t weight_of_one(void) {
  crl_near *near = near_of(MOST);
  assert_true(put(near, numbered("k", 0), 'a'));
  size_t weight = crl_near_weight(near);
  crl_near_free(near);
  return weight;
}

/* Number of copies of put_many that fit. */
static inline size_t room_for(void) { return (size_t)(MOST - MOST / 10) / weight_of_one(); }

#endif
