/* hash.c: the hashes of the library. */
#include "os/hash.h"

#include <sodium.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "os/env.h"

_Static_assert(CRL_DIGEST >= crypto_generichash_blake2b_BYTES_MIN, "BLAKE2b has no shorter output");

static uint8_t secret[XXH3_SECRET_DEFAULT_SIZE];

/* Runs when the library is loaded, before it has any thread. If the kernel has no randomness, the
 * secret is made of addresses and clocks. */
__attribute__((constructor)) static void draw_secret(void) {
  /* Selects the BLAKE2b of this processor; on failure the portable one is used. */
  int chosen = sodium_init();
  (void)chosen;
  if (crl_env_random(secret, sizeof secret) == 0) return;
  uint64_t seed[] = {(uint64_t)(uintptr_t)&seed, (uint64_t)(uintptr_t)secret,
                     (uint64_t)crl_env_now_us(), (uint64_t)crl_env_wall_ms()};
  for (size_t at = 0; at + CRL_DIGEST <= sizeof secret; at += CRL_DIGEST, seed[0]++)
    crl_digest(seed, sizeof seed, secret + at);
}

uint64_t crl_hash(const void *data, size_t size) {
  return XXH3_64bits_withSecret(data, size, secret, sizeof secret);
}

void crl_digest(const void *data, size_t size, uint8_t digest[CRL_DIGEST]) {
  crypto_generichash_blake2b(digest, CRL_DIGEST, data, size, NULL, 0);
}

enum { STATE_ALIGN = 64 };
_Static_assert(sizeof(crypto_generichash_blake2b_state) + STATE_ALIGN <= sizeof(crl_digester) &&
                   _Alignof(crypto_generichash_blake2b_state) <= STATE_ALIGN,
               "libsodium's state has room");

static crypto_generichash_blake2b_state *state_of(crl_digester *d) {
  size_t over = (uintptr_t)d->room % STATE_ALIGN;
  return (crypto_generichash_blake2b_state *)(void *)(d->room + (STATE_ALIGN - over));
}

void crl_digester_begin(crl_digester *d) {
  crypto_generichash_blake2b_init(state_of(d), NULL, 0, CRL_DIGEST);
}

void crl_digester_add(crl_digester *d, const void *data, size_t size) {
  crypto_generichash_blake2b_update(state_of(d), data, size);
}

void crl_digester_end(crl_digester *d, uint8_t digest[CRL_DIGEST]) {
  crypto_generichash_blake2b_final(state_of(d), digest, CRL_DIGEST);
}

void crl_sum(const void *data, size_t size, uint8_t sum[CRL_DIGEST]) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(data, size));
  memcpy(sum, canonical.digest, CRL_DIGEST);
}

uint64_t crl_digest64(const void *data, size_t size) {
  uint8_t digest[CRL_DIGEST];
  uint64_t number = 0;
  crl_digest(data, size, digest);
  for (unsigned i = 0; i < sizeof number; i++) number |= (uint64_t)digest[i] << (8 * i);
  return number;
}
