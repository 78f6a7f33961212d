/* metadata.c: the metadata behind a payload: numbers, tags and a validator, each a part. */
#include "record/metadata.h"

#include "record/record.h"

enum { WIDE = 128 /* from here on, a length has two bytes */, VERSIONS = 16, NUMBER = 8 };

size_t crl_number_len(uint64_t number) {
  size_t len = 0;
  for (; number != 0; number >>= 8) len++;
  return len;
}

size_t crl_part_size(uint8_t kind, size_t len) { return crl_part_head(kind) + len; }

uint8_t *crl_part_put(uint8_t *at, uint8_t kind, const void *bytes, size_t len) {
  size_t head = crl_part_head(kind);
  at[0] = kind;
  crl_record_put(at + 1, len, head - 1);
  if (bytes != NULL && len > 0) memcpy(at + head, bytes, len);
  return at + head;
}

/* ---- tags ---------------------------------------------------------------------------------- */

size_t crl_tags_size(const crl_tags *tags) {
  size_t size = 0;
  for (size_t i = 0; tags != NULL && i < tags->count; i++)
    size += crl_part_size(CRL_PART_TAG, VERSIONS + (size_t)tags->tag[i].len);
  return size;
}

uint8_t *crl_tags_write(const crl_tags *tags, uint8_t *at) {
  for (size_t i = 0; tags != NULL && i < tags->count; i++) {
    const crl_tag *tag = &tags->tag[i];
    at = crl_part_put(at, CRL_PART_TAG, NULL, VERSIONS + (size_t)tag->len);
    crl_record_put(at, tag->hard, 8);
    crl_record_put(at + 8, tag->soft, 8);
    memcpy(at + VERSIONS, tag->name, tag->len);
    at += VERSIONS + tag->len;
  }
  return at;
}

static int read_tag(const crl_part *part, crl_tags *tags) {
  if (part->len < VERSIONS || part->len > VERSIONS + CORRAL_TAG_MAX) return 0;
  const uint8_t *name = part->bytes + VERSIONS;
  size_t len = part->len - VERSIONS;
  if (crl_tags_find(tags, name, len) != NULL) return 0;
  crl_tag *tag = crl_tags_add(tags, name, len);
  if (tag == NULL) return 0;
  tag->hard = crl_record_take(part->bytes, 8);
  tag->soft = crl_record_take(part->bytes + 8, 8);
  return 1;
}

int crl_tags_read(const uint8_t *metadata, size_t size, crl_tags *tags) {
  crl_part part;
  int more;
  tags->count = 0;
  while ((more = crl_part_next(&metadata, &size, &part)) > 0)
    if (part.kind == CRL_PART_TAG && !read_tag(&part, tags)) return 0;
  return more == 0;
}

crl_tag *crl_tags_find(crl_tags *tags, const void *name, size_t len) {
  for (size_t i = 0; i < tags->count; i++)
    if (tags->tag[i].len == len && memcmp(tags->tag[i].name, name, len) == 0) return &tags->tag[i];
  return NULL;
}

crl_tag *crl_tags_add(crl_tags *tags, const void *name, size_t len) {
  crl_tag *tag = crl_tags_find(tags, name, len);
  if (tag != NULL) return tag;
  if (tags->count == sizeof tags->tag / sizeof *tags->tag || len > CORRAL_TAG_MAX) return NULL;
  tag = &tags->tag[tags->count++];
  tag->hard = tag->soft = 0;
  tag->len = (uint8_t)len;
  if (len > 0) memcpy(tag->name, name, len);
  return tag;
}
