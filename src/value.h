/* value.h: counted bytes, and the handle by which a caller holds them. */
#ifndef CRL_VALUE_H
#define CRL_VALUE_H

#include <corral.h>
#include <stdatomic.h>

/* Immutable bytes with a count of owners; a store's own memory, or a record that this process
 * made. */
typedef struct crl_bytes {
  _Atomic size_t refs;
  void (*free)(void *owner);
  void *owner;
  const uint8_t *data;
  size_t size;
} crl_bytes;

/* Takes over `owner`, freed by `free_owner` with the last reference; NULL without memory (then the
 * caller keeps it). */
crl_bytes *crl_bytes_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                          void *owner);
crl_bytes *crl_bytes_ref(crl_bytes *bytes);
void crl_bytes_unref(crl_bytes *bytes); /* NULL is allowed */

/* A caller's handle on `size` bytes at `offset`; takes a reference of its own. NULL without
 * memory. */
corral_value *crl_value_new(crl_bytes *bytes, size_t offset, size_t size, corral_how how,
                            int64_t age_ms, corral_kept kept, uint64_t version);

/* malloc, made to fail by tests: crl_value_fail_after counts down at each allocation of the core,
 * -1 never. */
void *crl_alloc(size_t size);
/* realloc likewise. */
void *crl_alloc_more(void *old, size_t size);
extern _Atomic long crl_alloc_countdown;

#endif
