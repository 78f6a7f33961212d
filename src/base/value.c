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

struct corral_value {
  _Atomic size_t refs;
  crl_bytes *bytes;
  const uint8_t *data;
  size_t size;
  int64_t age_ms;
  corral_how how;
  corral_kept kept;
  uint64_t version;
  int32_t failure;
  int is_joined; /* it is a part of `bytes` */
};

/* Bytes, with the handle on them that is made first; perhaps with their room. */
typedef struct joined {
  crl_bytes bytes; /* the first member: it is freed with them */
  corral_value value;
  uint8_t room[];
} joined;

static joined *joined_of(uint8_t *room) {
  return (joined *)(void *)(room - offsetof(joined, room));
}

static void set_bytes(crl_bytes *bytes, const uint8_t *data, size_t size,
                      void (*free_owner)(void *), void *owner) {
  atomic_init(&bytes->refs, 1);
  bytes->free = free_owner;
  bytes->owner = owner;
  bytes->data = data;
  bytes->size = size;
}

uint8_t *crl_room_new(size_t size) {
  joined *j = size > SIZE_MAX / 2 ? NULL : crl_alloc_more(NULL, sizeof *j + size);
  if (j == NULL) return NULL;
  set_bytes(&j->bytes, j->room, size, NULL, NULL);
  return j->room;
}

void crl_room_drop(void *room) {
  if (room != NULL) crl_bytes_unref(&joined_of(room)->bytes);
}

static crl_bytes *bytes_of_room(uint8_t *room, size_t size) {
  crl_bytes *bytes = &joined_of(room)->bytes;
  bytes->size = size;
  return bytes;
}

crl_bytes *crl_bytes_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                          void *owner) {
  if (free_owner == crl_room_drop) return bytes_of_room(owner, size);
  crl_bytes *bytes = crl_alloc_more(NULL, sizeof *bytes); /* all set below */
  if (bytes != NULL) set_bytes(bytes, data, size, free_owner, owner);
  return bytes;
}

static uint8_t *copy_to_room(const void *data, size_t size) {
  uint8_t *room = crl_room_new(size);
  if (room != NULL && size > 0) memcpy(room, data, size);
  return room;
}

crl_bytes *crl_bytes_copy(const void *data, size_t size) {
  uint8_t *room = copy_to_room(data, size);
  return room == NULL ? NULL : bytes_of_room(room, size);
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

static corral_value *set_value(corral_value *value, crl_bytes *bytes, const crl_about *about) {
  atomic_init(&value->refs, 1);
  value->bytes = bytes;
  value->data = bytes->data + about->offset;
  value->size = about->size;
  value->age_ms = about->age_ms;
  value->how = about->how;
  value->kept = about->kept;
  value->version = about->version;
  value->failure = about->failure;
  return value;
}

corral_value *crl_value_new(crl_bytes *bytes, const crl_about *about) {
  corral_value *value = crl_alloc_more(NULL, sizeof *value); /* all set below */
  if (value == NULL) return NULL;
  value->is_joined = 0;
  return set_value(value, crl_bytes_ref(bytes), about);
}

corral_value *crl_value_wrap(const uint8_t *data, size_t size, void (*free_owner)(void *),
                             void *owner, const crl_about *about) {
  joined *j = free_owner == crl_room_drop ? joined_of(owner) : crl_alloc_more(NULL, sizeof *j);
  if (j == NULL) return NULL;
  if (free_owner == crl_room_drop)
    (void)bytes_of_room(owner, size);
  else
    set_bytes(&j->bytes, data, size, free_owner, owner);
  j->value.is_joined = 1;
  return set_value(&j->value, &j->bytes, about);
}

corral_value *crl_value_copy(const void *data, const crl_about *about) {
  uint8_t *room = copy_to_room(data, about->size);
  return room == NULL ? NULL : crl_value_wrap(room, about->size, crl_room_drop, room, about);
}

crl_bytes *crl_value_bytes(const corral_value *value, size_t *ret_offset) {
  *ret_offset = (size_t)(value->data - value->bytes->data);
  return value->bytes;
}

const void *corral_value_data(const corral_value *value) { return value->data; }
size_t corral_value_size(const corral_value *value) { return value->size; }
corral_how corral_value_how(const corral_value *value) { return value->how; }
int64_t corral_value_age_ms(const corral_value *value) { return value->age_ms; }
corral_kept corral_value_kept(const corral_value *value) { return value->kept; }
uint64_t corral_value_version(const corral_value *value) { return value->version; }
int32_t corral_value_failure(const corral_value *value) { return value->failure; }

corral_value *corral_value_ref(corral_value *value) {
  atomic_fetch_add_explicit(&value->refs, 1, memory_order_relaxed);
  return value;
}

void corral_value_unref(corral_value *value) {
  if (value == NULL || atomic_fetch_sub_explicit(&value->refs, 1, memory_order_acq_rel) != 1)
    return;
  int is_joined = value->is_joined;
  crl_bytes_unref(value->bytes);
  if (!is_joined) free(value);
}
