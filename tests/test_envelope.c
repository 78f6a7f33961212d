/* test_envelope.c: what the core keeps behind a record's header: round trips, and whatever isn't that is told apart. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "envelope.h"
#include "record.h"

static const char key[] = "user:17";
enum { KEY = sizeof key - 1, PAYLOAD = 5, SIZE = CORRAL_HEADER + CRL_ENVELOPE_FIXED + KEY + PAYLOAD };

static crl_envelope usual(void) {
  return (crl_envelope){.kind = CRL_KIND_VALUE, .ttl_ms = 1, .swr_ms = INT64_C(1) << 38, .sie_ms = 3, .created_ms = 4,
                        .cost_us = UINT64_C(1) << 50, .key = key, .key_len = KEY, .payload_len = PAYLOAD};
}

static void write_usual(uint8_t record[SIZE]) {
  crl_envelope envelope = usual();
  memcpy(record + crl_envelope_payload_at(KEY), "hello", PAYLOAD);
  crl_envelope_write(&envelope, record);
}

static void what_was_written_is_read_again(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  write_usual(record);
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_OK);
  assert_int_equal(got.kind, CRL_KIND_VALUE);
  assert_int_equal(got.ttl_ms, 1);
  assert_int_equal(got.swr_ms, INT64_C(1) << 38);
  assert_int_equal(got.sie_ms, 3);
  assert_int_equal(got.created_ms, 4);
  assert_int_equal(got.cost_us, UINT64_C(1) << 50);
  assert_int_equal(got.key_len, KEY);
  assert_memory_equal(got.key, key, KEY);
  assert_int_equal(got.payload_len, PAYLOAD);
  assert_memory_equal(record + got.payload_at, "hello", PAYLOAD);
}

static void the_header_in_front_is_free(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  corral_header header;
  write_usual(record);
  assert_int_equal(crl_record_read(record, SIZE, &header), CORRAL_OK);
  assert_int_equal(header.state, CORRAL_FREE);
  assert_int_equal(header.life_end, 0);
}

static void a_negative_has_no_payload(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope envelope = usual(), got;
  envelope.kind = CRL_KIND_NEGATIVE;
  envelope.payload_len = 0;
  crl_envelope_write(&envelope, record);
  assert_int_equal(crl_envelope_read(record, SIZE - PAYLOAD, key, KEY, &got), CORRAL_OK);
  assert_int_equal(got.kind, CRL_KIND_NEGATIVE);
  assert_int_equal(got.payload_len, 0);
}

static void a_header_alone_is_a_miss(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  write_usual(record);
  assert_int_equal(crl_envelope_read(record, CORRAL_HEADER, key, KEY, &got), CORRAL_EMISS);
}

static void somebody_else_s_bytes_are_foreign(void **state) {
  (void)state;
  crl_envelope got;
  uint8_t text[SIZE];
  memset(text, 'x', sizeof text);
  assert_int_equal(crl_envelope_read(text, SIZE, key, KEY, &got), CORRAL_EFOREIGN);
  assert_int_equal(crl_envelope_read(text, 0, key, KEY, &got), CORRAL_EFOREIGN);
  write_usual(text);
  assert_int_equal(crl_envelope_read(text, CORRAL_HEADER - 1, key, KEY, &got), CORRAL_EFOREIGN);
}

static void another_key_s_record_is_not_served(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  write_usual(record);
  assert_int_equal(crl_envelope_read(record, SIZE, "user:18", KEY, &got), CORRAL_ECORRUPT);
  assert_int_equal(crl_envelope_read(record, SIZE, "user:1", KEY - 1, &got), CORRAL_ECORRUPT);
  assert_int_equal(crl_envelope_read(record, SIZE, "user:17h", KEY + 1, &got), CORRAL_ECORRUPT);
  assert_int_equal(crl_envelope_read(record, SIZE, "user:17hellohellohello", KEY + 15, &got), CORRAL_ECORRUPT);
}

/* On a heap block of just that size, for the sanitizer. */
static void a_record_cut_anywhere_is_told(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  write_usual(record);
  for (size_t size = 0; size < SIZE; size++) {
    uint8_t *cut = malloc(size + 1);
    assert_non_null(cut);
    memcpy(cut + 1, record, size);
    int status = crl_envelope_read(cut + 1, size, key, KEY, &got);
    free(cut);
    assert_int_equal(status, size < CORRAL_HEADER ? CORRAL_EFOREIGN : size == CORRAL_HEADER ? CORRAL_EMISS : CORRAL_ECORRUPT);
  }
}

static void any_flipped_bit_of_an_envelope_is_told(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  write_usual(record);
  for (size_t bit = 8 * (size_t)CORRAL_HEADER; bit < 8 * (size_t)SIZE; bit++) {
    record[bit / 8] ^= (uint8_t)(1 << bit % 8);
    if (crl_envelope_read(record, SIZE, key, KEY, &got) != CORRAL_ECORRUPT) fail_msg("byte %zu bit %zu", bit / 8, bit % 8);
    record[bit / 8] ^= (uint8_t)(1 << bit % 8);
  }
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_OK);
}

/* Lease and verdict come and go in front of a payload: its stamp stays. */
static void the_header_is_no_part_of_the_stamp(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope got;
  corral_header header = {.state = CORRAL_LEASED, .until = 99, .note = "host/1"};
  write_usual(record);
  uint64_t stamp = crl_record_stamp(record, SIZE);
  crl_record_write(&header, record);
  assert_true(stamp != 0);
  assert_int_equal(crl_record_stamp(record, SIZE), stamp);
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_OK);
}

static void a_kind_of_the_future_is_not_served(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope envelope = usual(), got;
  envelope.kind = CRL_KINDS;
  crl_envelope_write(&envelope, record);
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_ECORRUPT);
}

static void an_encoding_of_the_future_is_not_served(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope envelope = usual(), got;
  envelope.encoding = CRL_ENCODINGS;
  crl_envelope_write(&envelope, record);
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_ECORRUPT);
}

static void extras_follow_the_payload(void **state) {
  (void)state;
  uint8_t record[SIZE] = {0};
  crl_envelope envelope = usual(), got;
  envelope.payload_len = 2;
  envelope.extras_len = 3;
  envelope.version = UINT64_C(1) << 63;
  memcpy(record + crl_envelope_payload_at(KEY), "hello", PAYLOAD);
  crl_envelope_write(&envelope, record);
  assert_int_equal(crl_envelope_read(record, SIZE, key, KEY, &got), CORRAL_OK);
  assert_true(got.payload_len == 2 && got.plain_len == 2 && got.extras_len == 3 && got.version == UINT64_C(1) << 63);
  assert_memory_equal(record + got.extras_at, "llo", 3);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_is_read_again),
      cmocka_unit_test(the_header_in_front_is_free),
      cmocka_unit_test(a_negative_has_no_payload),
      cmocka_unit_test(a_header_alone_is_a_miss),
      cmocka_unit_test(somebody_else_s_bytes_are_foreign),
      cmocka_unit_test(another_key_s_record_is_not_served),
      cmocka_unit_test(a_record_cut_anywhere_is_told),
      cmocka_unit_test(any_flipped_bit_of_an_envelope_is_told),
      cmocka_unit_test(the_header_is_no_part_of_the_stamp),
      cmocka_unit_test(a_kind_of_the_future_is_not_served),
      cmocka_unit_test(an_encoding_of_the_future_is_not_served),
      cmocka_unit_test(extras_follow_the_payload),
  };
  return cmocka_run_group_tests_name("envelope", tests, NULL, NULL);
}
