/* compress.c: compression of payloads, by zstd at its fastest level that still finds most: a cached
 * value is written once and read often. */
#include "record/compress.h"

#include <stdlib.h>
#include <zstd.h>

#include "base/value.h"

enum { LEVEL = 1, SAVES = 8 /* packing must save 1/SAVES */ };

size_t crl_compress(const void *data, size_t size, uint8_t **ret) {
  size_t room = size - size / SAVES;
  uint8_t *packed = crl_alloc(room);
  if (packed == NULL) return 0;
  size_t used = ZSTD_compress(packed, room, data, size, LEVEL);
  if (!ZSTD_isError(used)) {
    *ret = packed;
    return used;
  }
  free(packed); /* packing would save too little */
  return 0;
}

size_t crl_decompressed_size(const void *packed, size_t packed_size) {
  unsigned long long size = ZSTD_getFrameContentSize(packed, packed_size);
  return size == ZSTD_CONTENTSIZE_UNKNOWN || size == ZSTD_CONTENTSIZE_ERROR || size >= SIZE_MAX
             ? SIZE_MAX
             : (size_t)size;
}

int crl_decompress(const void *packed, size_t packed_size, void *data, size_t size) {
  return ZSTD_decompress(data, size, packed, packed_size) == size;
}
