/* bodies.h: the keys of a server whose record was large when it was last looked at, so that the
 * next look goes apart at once. A guess, from a table of fixed size: of keys that share a place,
 * the last one is known. Any thread, without a lock. */
#ifndef CRL_BODIES_H
#define CRL_BODIES_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CRL_BODIES = 256 };

/* Zero before its first use. */
typedef struct crl_bodies {
  _Atomic size_t known;                /* 0: no key is hashed, and no place looked at */
  _Atomic uint64_t places[CRL_BODIES]; /* hashes, by their last byte; 0: none */
} crl_bodies;

/* True when the key's record was large. */
int crl_bodies_expect(const crl_bodies *bodies, const void *key, size_t key_len);
/* After a look at the key. */
void crl_bodies_note(crl_bodies *bodies, const void *key, size_t key_len, int is_large);

#endif
