/* fuzz_nginx_record.c: the nginx module's record of a response, with any content. */
#include "fuzz.h"

#include "nginx/record.h"

/* Writing the fields that were read gives the same bytes. */
static void round_trip(const crl_ngx_record *record, const uint8_t *data, size_t size) {
  crl_ngx_field fields[CRL_NGX_RECORD_FIELDS];
  size_t count = 0, at = 0;
  while (crl_ngx_record_next(record, &at, &fields[count])) {
    MUST(fields[count].name_len > 0 &&
         fields[count].value + fields[count].value_len <= data + size);
    MUST(++count <= CRL_NGX_RECORD_FIELDS);
    if (count == CRL_NGX_RECORD_FIELDS) break;
  }
  size_t room = crl_ngx_record_room(record, fields, count);
  if (count == CRL_NGX_RECORD_FIELDS) return;
  MUST(room == size);
  unsigned char *again = malloc(room);
  if (again == NULL) abort();
  unsigned char *body = crl_ngx_record_write(again, record, fields, count);
  MUST((size_t)(body - again) + record->body_len == room);
  if (record->body_len > 0) memcpy(body, record->body, record->body_len);
  MUST(memcmp(again, data, size) == 0);
  free(again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_input in = {data, size};
  uint8_t *bytes = fuzz_bytes(&in, size, &size);
  crl_ngx_record record;
  if (crl_ngx_record_read(bytes, size, &record) == 0) {
    MUST(record.status >= 100 && record.status <= 999 && record.vary_len <= CRL_NGX_RECORD_VARY);
    MUST(record.body_len <= size && record.fields_len <= size);
    round_trip(&record, bytes, size);
  }
  free(bytes);
  return 0;
}
