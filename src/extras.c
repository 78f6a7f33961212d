/* extras.c: what a record keeps behind its payload. Each part: a byte of kind, its length, its bytes; numbers little-endian.
 *
 *   1 tag        1 length of the name, 8 hard, 8 soft, the name
 *   2 validator  2 length, the bytes
 */
#include "extras.h"

#include "record.h"

enum { PART_TAG = 1, PART_VALIDATOR = 2, TAG_FIXED = 18, VALIDATOR_FIXED = 3 };

size_t crl_extras_size(const crl_extras *extras) {
  size_t size = extras->validator == NULL ? 0 : VALIDATOR_FIXED + extras->validator_len;
  for (size_t i = 0; extras->tags != NULL && i < extras->tags->count; i++) size += TAG_FIXED + extras->tags->tag[i].len;
  return size;
}

void crl_extras_write(const crl_extras *extras, uint8_t *at) {
  for (size_t i = 0; extras->tags != NULL && i < extras->tags->count; i++) {
    const crl_tag *tag = &extras->tags->tag[i];
    at[0] = PART_TAG;
    at[1] = tag->len;
    crl_record_put(at + 2, tag->hard, 8);
    crl_record_put(at + 10, tag->soft, 8);
    memcpy(at + TAG_FIXED, tag->name, tag->len);
    at += TAG_FIXED + tag->len;
  }
  if (extras->validator == NULL) return;
  at[0] = PART_VALIDATOR;
  crl_record_put(at + 1, extras->validator_len, 2);
  memcpy(at + VALIDATOR_FIXED, extras->validator, extras->validator_len);
}

/* Returns the length of the part, 0 when it makes no sense. */
static size_t read_tag(const uint8_t *at, size_t left, crl_tags *tags) {
  if (left < TAG_FIXED || at[1] > CRL_TAG_MOST || left - TAG_FIXED < at[1]) return 0;
  if (crl_tags_find(tags, at + TAG_FIXED, at[1]) != NULL) return 0;
  crl_tag *tag = crl_tags_add(tags, at + TAG_FIXED, at[1]);
  if (tag == NULL) return 0;
  tag->hard = crl_record_take(at + 2, 8);
  tag->soft = crl_record_take(at + 10, 8);
  return TAG_FIXED + (size_t)at[1];
}

int crl_extras_read(const uint8_t *at, size_t size, crl_tags *tags, const void **validator, size_t *validator_len) {
  tags->count = 0;
  *validator = NULL;
  *validator_len = 0;
  for (size_t part; size > 0; at += part, size -= part) {
    if (at[0] == PART_TAG) {
      part = read_tag(at, size, tags);
    } else if (at[0] == PART_VALIDATOR && size >= VALIDATOR_FIXED && *validator == NULL) {
      *validator_len = (size_t)crl_record_take(at + 1, 2);
      *validator = at + VALIDATOR_FIXED;
      part = VALIDATOR_FIXED + *validator_len;
    } else {
      return 0;
    }
    if (part == 0 || part > size) return 0;
  }
  return 1;
}

crl_tag *crl_tags_find(crl_tags *tags, const void *name, size_t len) {
  for (size_t i = 0; i < tags->count; i++)
    if (tags->tag[i].len == len && memcmp(tags->tag[i].name, name, len) == 0) return &tags->tag[i];
  return NULL;
}

crl_tag *crl_tags_add(crl_tags *tags, const void *name, size_t len) {
  crl_tag *tag = crl_tags_find(tags, name, len);
  if (tag != NULL) return tag;
  if (tags->count == sizeof tags->tag / sizeof *tags->tag || len > CRL_TAG_MOST) return NULL;
  tag = &tags->tag[tags->count++];
  tag->hard = tag->soft = 0;
  tag->len = (uint8_t)len;
  if (len > 0) memcpy(tag->name, name, len);
  return tag;
}
