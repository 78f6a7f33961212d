/* sealed.c: rows of shared memory that are copied while they are written. */
#include "stats/sealed.h"

#include <string.h>

#include "os/hash.h"

uint64_t crl_sealed_hash(const void *key, size_t key_len) {
  uint8_t sum[CRL_DIGEST];
  uint64_t ret = 0;
  if (key_len == 0) return 0;
  crl_sum(key, key_len, sum);
  memcpy(&ret, sum, sizeof ret);
  return ret;
}

/* Of the number and the body. */
static uint64_t sum_of(uint64_t number, const uint64_t *body, size_t count) {
  uint64_t all[1 + CRL_SEALED_MOST];
  all[0] = number;
  memcpy(all + 1, body, count * sizeof *body);
  return crl_sealed_hash(all, (1 + count) * sizeof *all);
}

void crl_sealed_write(_Atomic uint64_t *row, uint64_t number, const uint64_t *body, size_t count) {
  uint64_t sum = sum_of(number, body, count);
  for (size_t i = 0; i < count; i++)
    atomic_store_explicit(&row[CRL_SEALED_HEAD + i], body[i], memory_order_relaxed);
  atomic_store_explicit(&row[1], sum, memory_order_relaxed);
  atomic_store_explicit(&row[0], number, memory_order_release);
}

uint64_t crl_sealed_read(const _Atomic uint64_t *row, uint64_t *body, size_t count) {
  _Atomic uint64_t *r = (_Atomic uint64_t *)(uintptr_t)row;
  uint64_t number = atomic_load_explicit(&r[0], memory_order_acquire);
  uint64_t sum = atomic_load_explicit(&r[1], memory_order_relaxed);
  if (number == 0) return 0;
  for (size_t i = 0; i < count; i++)
    body[i] = atomic_load_explicit(&r[CRL_SEALED_HEAD + i], memory_order_relaxed);
  return sum_of(number, body, count) == sum ? number : 0;
}
