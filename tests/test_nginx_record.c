/* test_nginx_record.c: the nginx module's record of a response: what is written is read back, and nothing else is. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "nginx/record.c"

#define TEXT(text) (const unsigned char *)(text)

static const crl_ngx_field fields[] = {{TEXT("ETag"), TEXT("\"1\""), 4, 3}, {TEXT("X-Empty"), TEXT(""), 7, 0}, {TEXT("Link"), TEXT("</a>"), 4, 4}};

static unsigned char *written(size_t *size) {
  crl_ngx_record record = {.status = 404, .age_s = 7, .ttl_ms = 60000, .swr_ms = INT64_MAX, .vary = TEXT("accept-language x-kind"), .vary_len = 22, .body_len = 5};
  memset(record.hash, 0xab, sizeof record.hash);
  *size = crl_ngx_record_room(&record, fields, 3);
  unsigned char *bytes = malloc(*size);
  memcpy(crl_ngx_record_write(bytes, &record, fields, 3), "hello", 5);
  return bytes;
}

static void what_is_written_is_read_back(void **state) {
  (void)state;
  size_t size, at = 0;
  unsigned char *bytes = written(&size);
  crl_ngx_record record;
  crl_ngx_field field;
  assert_int_equal(crl_ngx_record_read(bytes, size, &record), 0);
  assert_int_equal(record.status, 404);
  assert_int_equal(record.age_s, 7);
  assert_int_equal(record.ttl_ms, 60000);
  assert_true(record.swr_ms == INT64_MAX);
  assert_int_equal(record.hash[19], 0xab);
  assert_int_equal(record.vary_len, 22);
  assert_memory_equal(record.vary, "accept-language x-kind", 22);
  assert_int_equal(record.body_len, 5);
  assert_memory_equal(record.body, "hello", 5);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(crl_ngx_record_next(&record, &at, &field), 1);
    assert_int_equal(field.name_len, fields[i].name_len);
    assert_memory_equal(field.name, fields[i].name, field.name_len);
    assert_int_equal(field.value_len, fields[i].value_len);
    assert_memory_equal(field.value, fields[i].value, field.value_len);
  }
  assert_int_equal(crl_ngx_record_next(&record, &at, &field), 0);
  free(bytes);
}

static void a_record_that_was_cut_or_changed_is_refused(void **state) {
  (void)state;
  size_t size;
  unsigned char *bytes = written(&size);
  crl_ngx_record record;
  size_t head = size - 5; /* a body may have any length: the store's envelope guards it */
  for (size_t cut = 0; cut < head; cut++) {
    unsigned char *copy = malloc(cut + 1);
    memcpy(copy, bytes, cut);
    assert_int_equal(crl_ngx_record_read(copy, cut, &record), -1);
    free(copy);
  }
  for (size_t i = 0; i < 58; i++) { /* each bit of the fixed part */
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (unsigned char)(1 << bit);
      assert_int_equal(crl_ngx_record_read(bytes, size, &record), -1);
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
  free(bytes);
}

static void fields_that_dont_fit_each_other_are_refused(void **state) {
  (void)state;
  size_t size;
  unsigned char *bytes = written(&size);
  crl_ngx_record record;
  for (size_t i = 58 + 22; i < size - 5; i++) { /* lengths among them: whatever is read lies inside */
    for (int value = 0; value < 256; value += 5) {
      unsigned char kept = bytes[i];
      bytes[i] = (unsigned char)value;
      if (crl_ngx_record_read(bytes, size, &record) == 0) assert_true(record.body + record.body_len == bytes + size);
      bytes[i] = kept;
    }
  }
  free(bytes);
}

static void what_is_out_of_bounds_is_not_written(void **state) {
  (void)state;
  crl_ngx_field many[CRL_NGX_RECORD_FIELDS + 1];
  crl_ngx_record record = {.status = 200};
  for (size_t i = 0; i <= CRL_NGX_RECORD_FIELDS; i++) many[i] = fields[0];
  assert_true(crl_ngx_record_room(&record, many, CRL_NGX_RECORD_FIELDS) > 0);
  assert_int_equal(crl_ngx_record_room(&record, many, CRL_NGX_RECORD_FIELDS + 1), 0);
  many[0].value_len = 65536;
  assert_int_equal(crl_ngx_record_room(&record, many, 1), 0);
  many[0] = (crl_ngx_field){TEXT(""), TEXT(""), 0, 0};
  assert_int_equal(crl_ngx_record_room(&record, many, 1), 0);
  record.status = 99;
  assert_int_equal(crl_ngx_record_room(&record, fields, 1), 0);
  record = (crl_ngx_record){.status = 200, .vary_len = CRL_NGX_RECORD_VARY + 1};
  assert_int_equal(crl_ngx_record_room(&record, fields, 1), 0);
  record = (crl_ngx_record){.status = 200, .body_len = SIZE_MAX};
  assert_int_equal(crl_ngx_record_room(&record, fields, 1), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {cmocka_unit_test(what_is_written_is_read_back), cmocka_unit_test(a_record_that_was_cut_or_changed_is_refused),
                                     cmocka_unit_test(fields_that_dont_fit_each_other_are_refused), cmocka_unit_test(what_is_out_of_bounds_is_not_written)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
