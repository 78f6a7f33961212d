/* record_kit.h: builds records byte by byte, as src/record/record.c describes them. */
#ifndef RECORD_KIT_H
#define RECORD_KIT_H

#include <stdlib.h>

#include "record/record.h"

/* Makes a record with this header and a body of `size` bytes of `fill`; malloc'ed. *len: its size
 * in bytes. Its stamp is `fill` eight times, or 0 without a body. */
static inline uint8_t *record_make(corral_header header, size_t size, uint8_t fill, size_t *len) {
  corral_change change = {.body_len = size};
  uint8_t *body = malloc(size + 1);
  header.body = (uint32_t)size;
  header.stamp = size > 0 ? fill * UINT64_C(0x0101010101010101) : 0;
  if (body != NULL) memset(body, fill, size);
  change.front_len = crl_record_write(&header, change.front);
  *len = change.front_len + size;
  uint8_t *record = malloc(*len);
  if (record != NULL && body != NULL) crl_record_join(&change, body, record);
  free(body);
  return record;
}

/* Number of bytes in the body of op->found.record; the body begins at CORRAL_HEAD. */
static inline size_t body_of(const corral_op *op) {
  corral_header header;
  return op->found.record != NULL && crl_record_read_found(op, &header) == CORRAL_OK ? header.body
                                                                                     : 0;
}

#endif
