/* test_envelope.c: the body of a record: round trips, and detection of damaged bodies. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "record/envelope.h"

static const uint8_t digest[CORRAL_DIGEST] = "user:17", another[CORRAL_DIGEST] = "user:18";
enum { PAYLOAD = 5, ROOM = 4096 };

static crl_envelope usual(void) {
  return (crl_envelope){.kind = CRL_KIND_VALUE,
                        .ttl_ms = 1,
                        .swr_ms = INT64_C(1) << 38,
                        .sie_ms = 3,
                        .created_ms = 4,
                        .cost_us = UINT64_C(1) << 50,
                        .digest = digest,
                        .payload_len = PAYLOAD};
}

/* Returns the record's size. */
static size_t write_record(crl_envelope envelope, uint8_t record[ROOM]) {
  memset(record, 0, ROOM);
  memcpy(record + CRL_PAYLOAD_AT, "hello", PAYLOAD);
  size_t size = crl_envelope_size(&envelope);
  assert_in_range(size, CORRAL_HEAD, ROOM);
  crl_envelope_write(&envelope, record);
  return size;
}

static void what_was_written_is_read_again(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  size_t size = write_record(usual(), record);
  assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_OK);
  assert_int_equal(got.kind, CRL_KIND_VALUE);
  assert_int_equal(got.ttl_ms, 1);
  assert_int_equal(got.swr_ms, INT64_C(1) << 38);
  assert_int_equal(got.sie_ms, 3);
  assert_int_equal(got.created_ms, 4);
  assert_int_equal(got.cost_us, UINT64_C(1) << 50);
  assert_memory_equal(got.digest, digest, CORRAL_DIGEST);
  assert_int_equal(got.payload_len, PAYLOAD);
  assert_int_equal(got.plain_len, PAYLOAD);
  assert_memory_equal(record + got.payload_at, "hello", PAYLOAD);
  assert_true(got.tag_count == 0 && got.validator == NULL);
}

static void tags_and_validator_follow_the_payload(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_tags tags = {0}, read;
  crl_envelope envelope = usual(), got;
  crl_tags_add(&tags, "one", 3)->hard = 11;
  crl_tags_add(&tags, "", 0)->soft = 12;
  envelope.tags = &tags;
  envelope.validator = "etag";
  envelope.validator_len = 4;
  envelope.version = UINT64_C(1) << 63;
  size_t size = write_record(envelope, record);
  assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_OK);
  assert_true(got.version == UINT64_C(1) << 63 && got.tag_count == 2 && got.validator_len == 4);
  assert_memory_equal(got.validator, "etag", 4);
  assert_true(crl_tags_read(record + got.metadata_at, got.metadata_len, &read));
  assert_int_equal(read.count, 2);
  assert_int_equal(crl_tags_find(&read, "one", 3)->hard, 11);
  assert_int_equal(crl_tags_find(&read, "", 0)->soft, 12);
}

/* Unknown parts are skipped: a later version of corral may add parts. */
static void parts_that_nobody_knows_are_skipped(void **state) {
  (void)state;
  /* part 99: "ab"; part 200, with a two-byte length: "abc"; part 1 (ttl_ms): 60 */
  static const uint8_t parts[] = "\x63\2ab\xc8\3\0abc\1\1\x3c";
  const uint8_t *at = parts;
  size_t left = sizeof parts - 1;
  crl_part part;
  assert_int_equal(crl_part_next(&at, &left, &part), 1);
  assert_true(part.kind == 99 && part.len == 2);
  assert_int_equal(crl_part_next(&at, &left, &part), 1);
  assert_true(part.kind == 200 && part.len == 3);
  assert_int_equal(crl_part_next(&at, &left, &part), 1);
  assert_true(part.kind == CRL_PART_TTL && crl_part_number(&part) == 60);
  assert_int_equal(crl_part_next(&at, &left, &part), 0);
}

static void parts_that_are_cut_short_are_told(void **state) {
  (void)state;
  static const uint8_t parts[] = "\x80\3\0abc";
  for (size_t size = 1; size < sizeof parts - 1; size++) {
    const uint8_t *at = parts;
    size_t left = size;
    crl_part part;
    assert_int_equal(crl_part_next(&at, &left, &part), -1);
  }
}

static void the_head_in_front_is_free(void **state) {
  (void)state;
  uint8_t record[ROOM];
  corral_header header;
  size_t size = write_record(usual(), record);
  assert_int_equal(crl_record_read_whole(record, size, &header), CORRAL_OK);
  assert_int_equal(header.state, CORRAL_FREE);
  assert_int_equal(header.life_end, 0);
  assert_int_equal(header.body, size - CORRAL_HEAD);
}

static void a_negative_has_no_payload(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope envelope = usual(), got;
  envelope.kind = CRL_KIND_NEGATIVE;
  envelope.payload_len = 0;
  size_t size = write_record(envelope, record);
  assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_OK);
  assert_int_equal(got.kind, CRL_KIND_NEGATIVE);
  assert_int_equal(got.payload_len, 0);
}

static void a_front_alone_is_a_miss(void **state) {
  (void)state;
  uint8_t front[CORRAL_FRONT];
  crl_envelope got;
  corral_header header = {.state = CORRAL_LEASED};
  size_t len = crl_record_write(&header, front);
  assert_int_equal(crl_envelope_read(front, len, digest, &got), CORRAL_EMISS);
}

static void somebody_else_s_bytes_are_foreign(void **state) {
  (void)state;
  crl_envelope got;
  uint8_t text[200];
  memset(text, 'x', sizeof text);
  assert_int_equal(crl_envelope_read(text, sizeof text, digest, &got), CORRAL_EFOREIGN);
  assert_int_equal(crl_envelope_read(text, 0, digest, &got), CORRAL_EFOREIGN);
}

static void a_record_of_a_later_format_is_told(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  size_t size = write_record(usual(), record);
  record[3] = '3';
  assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_ENEWER);
}

static void another_key_s_record_is_not_served(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  size_t size = write_record(usual(), record);
  assert_int_equal(crl_envelope_read(record, size, another, &got), CORRAL_ECORRUPT);
  assert_int_equal(crl_envelope_read(record, size, NULL, &got), CORRAL_OK);
}

/* Copies the cut record to a heap block of exactly its size, so the sanitizer sees reads beyond the
 * end. */
static void a_record_cut_anywhere_is_not_served(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  size_t whole = write_record(usual(), record);
  for (size_t size = 0; size < whole; size++) {
    uint8_t *cut = malloc(size + 1);
    assert_non_null(cut);
    memcpy(cut + 1, record, size);
    int status = crl_envelope_read(cut + 1, size, digest, &got);
    free(cut);
    assert_int_equal(status, size < 4 ? CORRAL_EFOREIGN : CORRAL_EMISS);
  }
}

static void any_flipped_bit_of_a_body_or_of_what_is_said_of_it_is_told(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  size_t size = write_record(usual(), record);
  for (size_t byte = 6; byte < size; byte++) {
    if (byte >= 8 && byte < 16) continue;   /* life_end */
    if (byte == 22 || byte == 23) continue; /* failures in a row */
    for (unsigned bit = 0; bit < 8; bit++) {
      record[byte] ^= (uint8_t)(1u << bit);
      if (crl_envelope_read(record, size, digest, &got) == CORRAL_OK)
        fail_msg("byte %zu bit %u", byte, bit);
      record[byte] ^= (uint8_t)(1u << bit);
    }
  }
  assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_OK);
}

/* Leases and verdicts come and go without a change of the body's stamp. */
static void the_lease_is_no_part_of_the_stamp(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope got;
  corral_header header;
  size_t size = write_record(usual(), record);
  uint64_t stamp = crl_record_stamp(record, size);
  assert_int_equal(crl_record_read_whole(record, size, &header), CORRAL_OK);
  header.state = CORRAL_LEASED;
  header.until = 99;
  header.life_end = 100;
  corral_change change = {.body_len = header.body};
  change.front_len = crl_record_write(&header, change.front);
  uint8_t leased[ROOM];
  crl_record_join(&change, record + CORRAL_HEAD, leased);
  assert_true(stamp != 0);
  assert_int_equal(crl_record_stamp(leased, change.front_len + header.body), stamp);
  assert_int_equal(crl_envelope_read(leased, change.front_len + header.body, digest, &got),
                   CORRAL_OK);
}

static void kinds_encodings_and_lives_that_there_are_none_of_are_not_served(void **state) {
  (void)state;
  uint8_t record[ROOM];
  crl_envelope all[4] = {usual(), usual(), usual(), usual()}, got;
  all[0].kind = CRL_KINDS;
  all[1].encoding = CRL_ENCODINGS;
  all[2].ttl_ms = CRL_LIFE_MOST + 1;
  all[3].swr_ms = INT64_MIN;
  for (size_t i = 0; i < 4; i++) {
    size_t size = write_record(all[i], record);
    assert_int_equal(crl_envelope_read(record, size, digest, &got), CORRAL_ECORRUPT);
  }
}

/* A payload of 100 bytes with usual lives: the overhead must be small. */
static void a_value_of_100_bytes_makes_a_record_of_at_most_188(void **state) {
  (void)state;
  crl_envelope envelope = {.kind = CRL_KIND_VALUE,
                           .ttl_ms = 60000,
                           .swr_ms = 600000,
                           .sie_ms = 600000,
                           .created_ms = INT64_C(1795338303458),
                           .cost_us = 100000,
                           .digest = digest,
                           .payload_len = 100};
  assert_in_range(crl_envelope_size(&envelope), 100, 188);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_was_written_is_read_again),
      cmocka_unit_test(tags_and_validator_follow_the_payload),
      cmocka_unit_test(parts_that_nobody_knows_are_skipped),
      cmocka_unit_test(parts_that_are_cut_short_are_told),
      cmocka_unit_test(the_head_in_front_is_free),
      cmocka_unit_test(a_negative_has_no_payload),
      cmocka_unit_test(a_front_alone_is_a_miss),
      cmocka_unit_test(somebody_else_s_bytes_are_foreign),
      cmocka_unit_test(a_record_of_a_later_format_is_told),
      cmocka_unit_test(another_key_s_record_is_not_served),
      cmocka_unit_test(a_record_cut_anywhere_is_not_served),
      cmocka_unit_test(any_flipped_bit_of_a_body_or_of_what_is_said_of_it_is_told),
      cmocka_unit_test(the_lease_is_no_part_of_the_stamp),
      cmocka_unit_test(kinds_encodings_and_lives_that_there_are_none_of_are_not_served),
      cmocka_unit_test(a_value_of_100_bytes_makes_a_record_of_at_most_188),
  };
  return cmocka_run_group_tests_name("envelope", tests, NULL, NULL);
}
