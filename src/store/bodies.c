/* bodies.c: the keys of a server whose record was large when it was last looked at. */
#include "store/bodies.h"

#include "os/hash.h"

/* Never 0. */
static uint64_t hash_of(const void *key, size_t key_len) { return crl_hash(key, key_len) | 1 << 8; }

int crl_bodies_expect(const crl_bodies *bodies, const void *key, size_t key_len) {
  if (atomic_load_explicit(&bodies->known, memory_order_relaxed) == 0) return 0;
  uint64_t hash = hash_of(key, key_len);
  return atomic_load_explicit(&bodies->places[hash % CRL_BODIES], memory_order_relaxed) == hash;
}

void crl_bodies_note(crl_bodies *bodies, const void *key, size_t key_len, int is_large) {
  if (is_large == crl_bodies_expect(bodies, key, key_len)) return;
  uint64_t hash = hash_of(key, key_len), was = hash;
  _Atomic uint64_t *place = &bodies->places[hash % CRL_BODIES];
  if (is_large && atomic_exchange(place, hash) == 0)
    atomic_fetch_add(&bodies->known, 1);
  else if (!is_large && atomic_compare_exchange_strong(place, &was, 0))
    atomic_fetch_sub(&bodies->known, 1);
}
