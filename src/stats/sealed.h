/* sealed.h: rows of shared memory that are copied while they are written.
 *
 * A row is words: a number, a sum, and a body. A reader copies it at any time, word by word or by
 * read(2), and by the sum it knows a copy that has parts of two bodies, or the half of one whose
 * writer was killed. So a reader never stops a writer. At any time one thread writes a row. */
#ifndef CRL_SEALED_H
#define CRL_SEALED_H

#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>

enum { CRL_SEALED_HEAD = 2, CRL_SEALED_MOST = 30 /* words of a body */ };

/* Writes `count` words of a body, and then its number, which is not 0. */
void crl_sealed_write(_Atomic uint64_t *row, uint64_t number, const uint64_t *body, size_t count);
/* Reads a row, or a copy of one: the number, or 0 where the row is empty, or is being written. */
uint64_t crl_sealed_read(const _Atomic uint64_t *row, uint64_t *body, size_t count);

/* Of a key, the same in all processes: tells keys with the same first bytes apart. */
uint64_t crl_sealed_hash(const void *key, size_t key_len);

#endif
