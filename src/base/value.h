/* value.h: counted bytes, and a caller's handle on them. */
#ifndef CRL_VALUE_H
#define CRL_VALUE_H

#include <corral.h>
#include <stdatomic.h>

/* Immutable bytes with a count of references: a store's own memory, or a record made by this
 * process. */
typedef struct crl_bytes {
  _Atomic size_t refs;
  void (*free)(void *owner);
  void *owner;
  const uint8_t *data;
  size_t size;
} crl_bytes;

/* Takes over `owner`, which free_owner frees with the last reference. NULL without memory: `owner`
 * is still the caller's. */
crl_bytes *crl_bytes_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                          void *owner);
/* Bytes of their own, with the same content. NULL without memory. */
crl_bytes *crl_bytes_copy(const void *data, size_t size);
crl_bytes *crl_bytes_ref(crl_bytes *bytes);
void crl_bytes_unref(crl_bytes *bytes); /* NULL is allowed */

/* A caller's handle on `size` bytes at `offset`; takes a reference of its own. NULL without
 * memory. */
corral_value *crl_value_new(crl_bytes *bytes, size_t offset, size_t size, corral_how how,
                            int64_t age_ms, corral_kept kept, uint64_t version);

/* The same on a copy of these bytes. */
corral_value *crl_value_copy(const void *data, size_t size, corral_how how, int64_t age_ms,
                             uint64_t version);

/* calloc(1, size). For tests, crl_alloc_countdown counts down at each allocation of the core, and
 * makes the one at 0 fail; -1: never. */
void *crl_alloc(size_t size);
/* realloc, with the same countdown. */
void *crl_alloc_more(void *old, size_t size);
extern _Atomic long crl_alloc_countdown;

#endif
