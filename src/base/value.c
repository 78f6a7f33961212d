/* value.c: counted bytes, and a caller's handle on them. */
#include "base/value.h"

#include <stdlib.h>
#include <string.h>

_Atomic long crl_alloc_countdown = -1;

static int fails(void) {
  long left = atomic_load_explicit(&crl_alloc_countdown, memory_order_relaxed);
  return left >= 0 && atomic_fetch_sub(&crl_alloc_countdown, 1) == 0;
}

void *crl_alloc(size_t size) { return fails() ? NULL : calloc(1, size); }
void *crl_alloc_more(void *old, size_t size) { return fails() ? NULL : realloc(old, size); }

crl_bytes *crl_bytes_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                          void *owner) {
  crl_bytes *bytes = crl_alloc_more(NULL, sizeof *bytes); /* all set below */
  if (bytes == NULL) return NULL;
  atomic_init(&bytes->refs, 1);
  bytes->free = free_owner;
  bytes->owner = owner;
  bytes->data = data;
  bytes->size = size;
  return bytes;
}

crl_bytes *crl_bytes_copy(const void *data, size_t size) {
  crl_bytes *bytes = crl_alloc_more(NULL, sizeof *bytes + size);
  if (bytes == NULL) return NULL;
  uint8_t *room = (uint8_t *)(bytes + 1);
  atomic_init(&bytes->refs, 1);
  bytes->free = NULL;
  bytes->owner = NULL;
  bytes->data = memcpy(room, data, size);
  bytes->size = size;
  return bytes;
}

crl_bytes *crl_bytes_ref(crl_bytes *bytes) {
  atomic_fetch_add_explicit(&bytes->refs, 1, memory_order_relaxed);
  return bytes;
}

void crl_bytes_unref(crl_bytes *bytes) {
  if (bytes == NULL || atomic_fetch_sub_explicit(&bytes->refs, 1, memory_order_acq_rel) != 1)
    return;
  if (bytes->free != NULL) bytes->free(bytes->owner);
  free(bytes);
}

struct corral_value {
  _Atomic size_t refs;
  crl_bytes *bytes; /* NULL: the data stands behind this struct */
  const uint8_t *data;
  size_t size;
  int64_t age_ms;
  corral_how how;
  corral_kept kept;
  uint64_t version;
};

/* With `room` bytes behind it. */
static corral_value *make_value(const corral_value *content, size_t room) {
  corral_value *value = crl_alloc_more(NULL, sizeof *value + room);
  if (value == NULL) return NULL;
  *value = *content;
  atomic_init(&value->refs, 1);
  return value;
}

corral_value *crl_value_new(crl_bytes *bytes, size_t offset, size_t size, corral_how how,
                            int64_t age_ms, corral_kept kept, uint64_t version) {
  corral_value content = {.bytes = bytes,
                          .data = bytes->data + offset,
                          .size = size,
                          .age_ms = age_ms,
                          .how = how,
                          .kept = kept,
                          .version = version};
  corral_value *value = make_value(&content, 0);
  if (value != NULL) crl_bytes_ref(bytes);
  return value;
}

corral_value *crl_value_copy(const void *data, size_t size, corral_how how, int64_t age_ms,
                             uint64_t version) {
  corral_value content = {.size = size, .age_ms = age_ms, .how = how, .version = version};
  corral_value *value = make_value(&content, size);
  if (value != NULL) value->data = memcpy(value + 1, data, size);
  return value;
}

const void *corral_value_data(const corral_value *value) { return value->data; }
size_t corral_value_size(const corral_value *value) { return value->size; }
corral_how corral_value_how(const corral_value *value) { return value->how; }
int64_t corral_value_age_ms(const corral_value *value) { return value->age_ms; }
corral_kept corral_value_kept(const corral_value *value) { return value->kept; }
uint64_t corral_value_version(const corral_value *value) { return value->version; }

corral_value *corral_value_ref(corral_value *value) {
  atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
  return value;
}

void corral_value_unref(corral_value *value) {
  if (value == NULL || atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) != 1)
    return;
  crl_bytes_unref(value->bytes);
  free(value);
}
