/* extras.h: what a record keeps behind its payload: the value's tags, with the versions that their marks had, and its validator. Pure.
 *
 * A tag's mark is a record of its own in the store (marks.h). A value counts as long as the mark of each of its tags has the versions that
 * it had when the value was computed: another `hard` one and it is void, another `soft` one and its fresh life is over. */
#ifndef CRL_EXTRAS_H
#define CRL_EXTRAS_H

#include <stddef.h>
#include <stdint.h>

enum { CRL_TAGS = 16, CRL_TAG_MOST = 200, CRL_VALIDATOR_MOST = 1024 };

typedef struct crl_tag {
  uint64_t hard, soft; /* versions of its mark; never 0 */
  uint8_t len;         /* 0: the tag of the whole namespace */
  uint8_t name[CRL_TAG_MOST];
} crl_tag;

typedef struct crl_tags {
  size_t count;
  crl_tag tag[CRL_TAGS + 1]; /* and that of the whole namespace */
} crl_tags;

typedef struct crl_extras {
  const crl_tags *tags;  /* NULL: none */
  const void *validator; /* NULL: none */
  size_t validator_len;
} crl_extras;

/* The bytes that crl_extras_write needs. */
size_t crl_extras_size(const crl_extras *extras);
void crl_extras_write(const crl_extras *extras, uint8_t *at);
/* Takes them apart: *tags is filled, *validator points into the bytes. 0 when they make no sense. */
int crl_extras_read(const uint8_t *at, size_t size, crl_tags *tags, const void **validator, size_t *validator_len);
/* The tag of this name, or NULL. */
crl_tag *crl_tags_find(crl_tags *tags, const void *name, size_t len);
/* Adds it, unless it is there. NULL when there is no room. */
crl_tag *crl_tags_add(crl_tags *tags, const void *name, size_t len);

#endif
