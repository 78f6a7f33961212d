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

/* Takes over `owner`, which free_owner (crl_room_drop: of crl_room_new) frees with the last
 * reference. NULL without memory: `owner` is still the caller's. */
crl_bytes *crl_bytes_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                          void *owner);
/* Bytes of their own, with the same content. NULL without memory. */
crl_bytes *crl_bytes_copy(const void *data, size_t size);
crl_bytes *crl_bytes_ref(crl_bytes *bytes);
void crl_bytes_unref(crl_bytes *bytes); /* NULL is allowed */

/* A caller's handle: on `size` bytes at `offset`. */
typedef struct crl_about {
  size_t offset, size;
  corral_how how;
  corral_kept kept;
  int64_t age_ms;
  uint64_t version;
  int32_t failure;
} crl_about;

/* Takes a reference of its own. NULL without memory. */
corral_value *crl_value_new(crl_bytes *bytes, const crl_about *about);

/* Memory for a record that is to become a value: crl_bytes_wrap and crl_value_wrap need no other
 * for it. NULL without memory. */
uint8_t *crl_room_new(size_t size);
void crl_room_drop(void *room); /* NULL is allowed */
/* crl_bytes_wrap and crl_value_new in one, with one allocation at most: the value has the only
 * reference. NULL without memory: `owner` is still the caller's. */
corral_value *crl_value_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                             void *owner, const crl_about *about);
/* A handle on a copy of about->size bytes, with one allocation; about->offset is 0. NULL without
 * memory. */
corral_value *crl_value_copy(const void *data, const crl_about *about);
/* The bytes of a value, for another reference, and where the value begins within them. */
crl_bytes *crl_value_bytes(const corral_value *value, size_t *ret_offset);

/* calloc(1, size). For tests, crl_alloc_countdown counts down at each allocation of the core, and
 * makes the one at 0 fail; -1: never. */
void *crl_alloc(size_t size);
/* realloc, with the same countdown. */
void *crl_alloc_more(void *old, size_t size);
extern _Atomic long crl_alloc_countdown;

#endif
