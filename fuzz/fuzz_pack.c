/* fuzz_pack.c: compressed payloads with any content, and payloads of any kind packed and
 * unpacked. */
#include "fuzz.h"

#include "record/compress.h"

static void round_trip(const uint8_t *bytes, size_t size) {
  uint8_t *packed = NULL, *again = malloc(size > 0 ? size : 1);
  size_t packed_size = crl_compress(bytes, size, &packed);
  if (again == NULL) abort();
  if (packed_size > 0) {
    MUST(packed_size <= size - size / 8);
    MUST(crl_decompress(packed, packed_size, again, size) && memcmp(again, bytes, size) == 0);
    MUST(!crl_decompress(packed, packed_size, again, size - 1));
    free(packed);
  }
  free(again);
}

/* Byte 0: odd: packed bytes, unpacked to the size in bytes 1 and 2; even: bytes to pack, repeated 1
 * to 64 times. */
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint8_t how = fuzz_byte(&in);
  size_t plain = (size_t)fuzz_number(&in, 2), len;
  uint8_t *bytes = fuzz_bytes(&in, in.left, &len);
  if (how & 1) {
    uint8_t *room = malloc(plain > 0 ? plain : 1);
    if (room == NULL) abort();
    (void)crl_decompress(bytes, len, room, plain);
    free(room);
  } else if (len > 0) {
    size_t times = 1 + plain % 64;
    uint8_t *many = malloc(len * times);
    if (many == NULL) abort();
    for (size_t i = 0; i < times; i++) memcpy(many + i * len, bytes, len);
    round_trip(many, len * times);
    free(many);
  }
  free(bytes);
  return 0;
}
