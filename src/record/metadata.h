/* metadata.h: the metadata behind a payload: numbers, tags and a validator, each a part. Pure.
 *
 * A part: its kind (1 byte), its length (1 byte, or 2 for kinds from 128 on), its bytes. Readers
 * skip unknown kinds. Numbers are little-endian without leading zeroes. docs/record.md has the
 * kinds.
 *
 * A tag's version is a record of its own in the store (tag versions.h). A value remembers the
 * versions that the versions of its tags had when it was computed: when a tag version's `hard`
 * version changes, the value is void; when its `soft` version changes, the value's fresh life is
 * over. */
#ifndef CRL_METADATA_H
#define CRL_METADATA_H

#include <corral.h>
#include <stddef.h>
#include <stdint.h>

enum {
  CRL_PART_TTL = 1,
  CRL_PART_SWR,
  CRL_PART_SIE,
  CRL_PART_CREATED,
  CRL_PART_COST,
  CRL_PART_VERSION,
  CRL_PART_PLAIN,
  CRL_PART_TAG, /* 8 hard, 8 soft, the name */
  CRL_PART_VALIDATOR = 128
};

typedef struct crl_tag {
  uint64_t hard, soft; /* versions of the tag's version; never 0 */
  uint8_t len;         /* 0: the tag of the whole namespace */
  uint8_t name[CORRAL_TAG_MAX];
} crl_tag;

typedef struct crl_tags {
  size_t count;
  crl_tag tag[CORRAL_TAGS_MAX + 1]; /* the value's own, and that of the whole namespace */
} crl_tags;

typedef struct crl_part {
  uint8_t kind;
  const uint8_t *bytes;
  size_t len;
} crl_part;

/* Bytes of a part in front of its content. */
static inline size_t crl_part_head(uint8_t kind) { return kind >= 128 ? 3 : 2; }

/* Reads the next part of *left bytes at *at: 1 and *part; 0 at the end; -1 when it is cut short. */
static inline int crl_part_next(const uint8_t **at, size_t *left, crl_part *part) {
  const uint8_t *from = *at;
  if (*left == 0) return 0;
  part->kind = from[0];
  size_t head = crl_part_head(part->kind);
  if (*left < head) return -1;
  part->len = head == 2 ? from[1] : from[1] | (size_t)from[2] << 8;
  part->bytes = from + head;
  if (*left - head < part->len) return -1;
  *at = part->bytes + part->len;
  *left -= head + part->len;
  return 1;
}

/* The number that a part holds; 0 when it has more than 8 bytes. */
static inline uint64_t crl_part_number(const crl_part *part) {
  uint64_t number = 0;
  for (size_t i = part->len > 8 ? 0 : part->len; i > 0; i--)
    number = number << 8 | part->bytes[i - 1];
  return number;
}

/* Size of a part with `len` bytes of content. */
size_t crl_part_size(uint8_t kind, size_t len);
/* Writes kind, length and, unless NULL, the bytes; returns where the bytes stand. */
uint8_t *crl_part_put(uint8_t *at, uint8_t kind, const void *bytes, size_t len);
/* Length in bytes of a number's part. */
size_t crl_number_len(uint64_t number);

size_t crl_tags_size(const crl_tags *tags);
/* Returns the end of the written bytes. */
uint8_t *crl_tags_write(const crl_tags *tags, uint8_t *at);
/* Reads the tags of a record's metadata; 0 when the metadata is malformed. */
int crl_tags_read(const uint8_t *metadata, size_t size, crl_tags *tags);
/* The tag of this name, or NULL. */
crl_tag *crl_tags_find(crl_tags *tags, const void *name, size_t len);
/* Adds a tag unless it is there; NULL when there is no room. */
crl_tag *crl_tags_add(crl_tags *tags, const void *name, size_t len);

#endif
