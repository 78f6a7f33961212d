/* fuzz_page.c: a page (corral/page.h), with any content. */
#include "fuzz.h"

#include <corral/page.h>

/* Writing the fields that were read gives the same bytes. */
static void round_trip(const corral_page *page, const uint8_t *data, size_t size) {
  corral_page_field fields[CORRAL_PAGE_FIELDS];
  size_t count = 0, at = 0;
  while (corral_page_next(page, &at, &fields[count])) {
    MUST(fields[count].name_len > 0 &&
         fields[count].value + fields[count].value_len <= data + size);
    MUST(++count <= CORRAL_PAGE_FIELDS);
    if (count == CORRAL_PAGE_FIELDS) break;
  }
  size_t room = corral_page_size(page, fields, count);
  if (count == CORRAL_PAGE_FIELDS) return;
  MUST(room == size);
  unsigned char *again = malloc(room);
  if (again == NULL) abort();
  unsigned char *body = corral_page_write(again, page, fields, count);
  MUST((size_t)(body - again) + page->body_len == room);
  if (page->body_len > 0) memcpy(body, page->body, page->body_len);
  MUST(memcmp(again, data, size) == 0);
  free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint8_t *bytes = fuzz_bytes(&in, size, &size);
  corral_page page;
  if (corral_page_read(bytes, size, &page) == 0) {
    MUST(page.status >= 100 && page.status <= 999 && page.vary_len <= CORRAL_PAGE_VARY);
    MUST(page.body_len <= size && page.fields_len <= size);
    round_trip(&page, bytes, size);
  }
  free(bytes);
  return 0;
}
