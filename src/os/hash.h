/* hash.h: the hashes of the library. Pure, but for a secret drawn when the library is loaded.
 *
 * crl_hash is for tables of this process: keyed with random bytes, so that nobody can choose keys
 * that collide. It differs from process to process. crl_digest is for names that several processes
 * or hosts share: a cryptographic hash, the same everywhere. crl_sum tells mistakes, such as
 * another key's record: the same everywhere, too, and fast, but bytes with a wanted sum can be
 * found. So none of them can stand for another. Sources: XXH3 with a secret of full length, and its
 * form of 128 bits, big-endian (xxHash 0.8); BLAKE2b (RFC 7693) with 16 bytes of output. */
#ifndef CRL_HASH_H
#define CRL_HASH_H

#include <stddef.h>
#include <stdint.h>

enum { CRL_DIGEST = 16 };

uint64_t crl_hash(const void *data, size_t size);
void crl_digest(const void *data, size_t size, uint8_t digest[CRL_DIGEST]);
/* crl_digest of bytes that come in parts. It can't be copied. */
typedef struct crl_digester {
  uint8_t room[384 + 64]; /* for libsodium's state, at an address that is a multiple of 64 */
} crl_digester;
void crl_digester_begin(crl_digester *d);
void crl_digester_add(crl_digester *d, const void *data, size_t size);
void crl_digester_end(crl_digester *d, uint8_t digest[CRL_DIGEST]);
void crl_sum(const void *data, size_t size, uint8_t sum[CRL_DIGEST]);
/* The first 8 bytes of crl_digest, as a little-endian number. */
uint64_t crl_digest64(const void *data, size_t size);

#endif
