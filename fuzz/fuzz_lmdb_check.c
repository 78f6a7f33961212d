/* fuzz_lmdb_check.c: the head of an lmdb file after damage or by a hostile writer: the check that
 * decides whether liblmdb may map the file.
 *
 * Input: the file's size, the logarithm of its page size, how much of the head there is, the two
 * meta pages. */
#include "fuzz.h"

#include "../plugins/lmdb/lmdb.h"

enum { META = 160, LAST_PAGE = 136 };

/* A size_t in the machine's byte order, as in liblmdb's meta page. */
static size_t number_at(const uint8_t *bytes) {
  size_t number;
  memcpy(&number, bytes, sizeof number);
  return number;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint64_t file_size = fuzz_number(&in, 6);
  size_t page_size = (size_t)4096 << fuzz_byte(&in) % 4, len = (size_t)fuzz_number(&in, 2), count;
  uint8_t *head = calloc(1, CRL_LMDB_HEAD);
  if (head == NULL) abort();
  for (size_t i = 0; i < 2; i++) {
    uint8_t *meta = fuzz_bytes(&in, META, &count);
    memcpy(head + i * page_size, meta, count);
    free(meta);
  }
  if (len > CRL_LMDB_HEAD) len = CRL_LMDB_HEAD;
  uint8_t *exact = malloc(len > 0 ? len : 1);
  if (exact == NULL) abort();
  memcpy(exact, head, len);
  /* In an accepted file both metas' last pages lie within the file. */
  if (crl_lmdb_check(exact, len, file_size) == 0)
    for (size_t i = 0; i < 2; i++)
      MUST((number_at(head + i * page_size + LAST_PAGE) + 1) * page_size <= file_size);
  free(exact);
  free(head);
  return 0;
}
