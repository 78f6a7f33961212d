/* test_fill.c: the result of a compute: the stored record, the callers' value, and all properties
 * that a compute can set. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "record/fill.h"
#include "record/compress.h"

static const corral_policy usual = {.ttl_ms = 1000,
                                    .swr_ms = 200,
                                    .sie_ms = 300,
                                    .negative_ttl_ms = 50,
                                    .pass_ttl_ms = 70,
                                    .jitter_pct = CORRAL_OFF};

static const uint8_t digest[CORRAL_DIGEST] = "key";

static corral_fill empty(void) {
  return (corral_fill){.key = "key", .key_len = 3, .digest = digest, .max_value = 100};
}

enum { WALL = 123456 };

static crl_product product; /* result of the last crl_fill_finish */
static int64_t compress_min;

static crl_made finish(corral_fill *fill, crl_envelope *envelope, int64_t *hard) {
  crl_finish known = {
      .policy = &usual, .cost_us = 4000, .wall_ms = WALL, .dice = 9, .compress_min = compress_min};
  crl_product_clean(&product);
  crl_made made = crl_fill_finish(fill, &known, &product);
  *hard = product.hard_ttl;
  if (product.record != NULL)
    assert_int_equal(
        crl_envelope_read(product.record->data, product.record->size, digest, envelope), CORRAL_OK);
  return made;
}

static int clean(void **state) {
  (void)state;
  crl_product_clean(&product);
  return 0;
}

static void bytes_become_a_record_under_the_policy(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard = 0;
  assert_int_equal(corral_fill_bytes(&fill, "first", 5), CORRAL_OK);
  assert_int_equal(corral_fill_bytes(&fill, "second", 6), CORRAL_OK); /* the last call wins */
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(hard, 1300);
  assert_true(e.ttl_ms == 1000 && e.swr_ms == 200 && e.sie_ms == 300 && e.created_ms == 123456 &&
              e.cost_us == 4000);
  assert_int_equal(e.payload_len, 6);
  assert_null(fill.record);
  assert_ptr_equal(product.plain, product.record);
  assert_int_equal(product.size, 6);
  assert_memory_equal(product.plain->data + product.at, "second", 6);
  crl_fill_clean(&fill);
}

static void reserved_room_is_filled_in_place(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  char *room = corral_fill_reserve(&fill, 100);
  assert_non_null(room);
  memset(room, 'r', 100);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_ptr_equal(product.record->data + e.payload_at, room);
  crl_fill_clean(&fill);
}

static void too_much_is_refused_and_nothing_filled(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_null(corral_fill_reserve(&fill, 101));
  assert_null(corral_fill_reserve(&fill, SIZE_MAX));
  assert_int_equal(corral_fill_bytes(&fill, NULL, 101), CORRAL_ETOOBIG);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_FAILURE);
  assert_string_equal(fill.text, "compute returned without a value");
  crl_alloc_countdown = 0;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_ENOMEM);
  crl_fill_clean(&fill);
}

static void a_negative_has_its_own_life_and_no_grace(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_negative(&fill);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(e.kind, CRL_KIND_NEGATIVE);
  assert_int_equal(fill.filled, CRL_FILLED_NEGATIVE);
  assert_true(e.ttl_ms == 50 && e.swr_ms == 0 && e.sie_ms == 0 && e.payload_len == 0 && hard == 50);
  crl_fill_clean(&fill);
}

static void a_failure_keeps_its_number_and_its_text(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  char text[400];
  memset(text, 't', sizeof text);
  text[399] = '\0';
  corral_fill_fail(&fill, -42, text);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_FAILURE);
  assert_int_equal(fill.code, -42);
  assert_int_equal(strlen(fill.text), 239);
  corral_fill_fail(&fill, 1, NULL);
  assert_string_equal(fill.text, "computing failed");
  assert_int_equal(corral_fill_bytes(&fill, "better", 6), CORRAL_OK);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  crl_fill_clean(&fill);
}

static void a_value_s_own_lives_stand_over_the_policy_s(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_lives(&fill, 10, CORRAL_OFF, 0);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_true(e.ttl_ms == 10 && e.swr_ms == 0 && e.sie_ms == 300 && hard == 310);
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_lives(&fill, CORRAL_OFF, 0, 0);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_UNKEPT);
  crl_fill_clean(&fill);
}

/* The store adds a life to its clock, so "forever" must not overflow. */
static void lives_without_measure_do_not_overflow(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard = 0;
  assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
  corral_fill_lives(&fill, INT64_MAX, INT64_MAX, INT64_MAX);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  crl_fill_clean(&fill);
  assert_true(hard > 0 && hard < INT64_MAX / 4);
}

static void a_compute_can_ask_whether_it_is_still_wanted(void **state) {
  (void)state;
  corral_fill fill = empty();
  assert_false(corral_fill_should_stop(&fill));
  assert_false(corral_fill_has_stale(&fill));
  fill.stop = 1;
  fill.has_stale = 1;
  assert_true(corral_fill_should_stop(&fill));
  assert_true(corral_fill_has_stale(&fill));
}

/* ---- properties of a value ----------------------------------------------------------------- */

static void a_moment_that_caps_all_lives(void **state) {
  (void)state;
  static const struct {
    int64_t left, ttl, swr, sie;
  } rows[] = {{5000, 1000, 200, 300}, {1300, 1000, 200, 300}, {1250, 1000, 200, 250},
              {1100, 1000, 100, 100}, {1000, 1000, 0, 0},     {400, 400, 0, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_fill fill = empty();
    crl_envelope e;
    int64_t hard;
    assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
    corral_fill_not_after(&fill, WALL + rows[i].left);
    assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
    assert_true(e.ttl_ms == rows[i].ttl && e.swr_ms == rows[i].swr && e.sie_ms == rows[i].sie);
    assert_true(hard <= rows[i].left);
    crl_fill_clean(&fill);
  }
}

static void a_moment_that_has_passed_keeps_it_from_being_stored(void **state) {
  (void)state;
  for (int64_t left = -1000; left <= 0; left += 500) {
    corral_fill fill = empty();
    crl_envelope e;
    int64_t hard;
    assert_int_equal(corral_fill_bytes(&fill, "x", 1), CORRAL_OK);
    corral_fill_not_after(&fill, WALL + left);
    assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_UNKEPT);
    assert_memory_equal(product.plain->data + product.at, "x", 1);
    crl_fill_clean(&fill);
  }
}

static void what_cannot_be_cached_is_its_caller_s_and_a_record_without_it(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  assert_int_equal(corral_fill_bytes(&fill, "secret", 6), CORRAL_OK);
  corral_fill_pass(&fill);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_PASS);
  assert_true(e.kind == CRL_KIND_PASS && e.payload_len == 0 && e.ttl_ms == 70 && e.swr_ms == 0 &&
              e.sie_ms == 0 && hard == 70);
  assert_int_equal(product.size, 6);
  assert_memory_equal(product.plain->data + product.at, "secret", 6);
  assert_null(memmem(product.record->data, product.record->size, "secret", 6));
  crl_fill_clean(&fill);
}

static void tags_validator_and_version_go_along(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  crl_tags tags;
  assert_int_equal(corral_fill_tag(&fill, "team:7", 6), CORRAL_OK);
  assert_int_equal(corral_fill_tag(&fill, "all", 3), CORRAL_OK);
  assert_int_equal(corral_fill_tag(&fill, "team:7", 6), CORRAL_OK); /* a repeated tag counts once */
  assert_int_equal(corral_fill_validator(&fill, "old", 3), CORRAL_OK);
  assert_int_equal(corral_fill_validator(&fill, "\"etag\"", 6), CORRAL_OK);
  corral_fill_version(&fill, UINT64_C(1) << 63);
  assert_int_equal(corral_fill_bytes(&fill, "value", 5), CORRAL_OK);
  fill.tags->tag[0].hard = 11;
  fill.tags->tag[0].soft = 12;
  fill.tags->tag[1].hard = 21;
  fill.tags->tag[1].soft = 22;
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_true(e.version == UINT64_C(1) << 63 && e.payload_len == 5 &&
              e.metadata_at == e.payload_at + 5);
  assert_true(crl_tags_read(product.record->data + e.metadata_at, e.metadata_len, &tags));
  assert_int_equal(tags.count, 2);
  assert_true(tags.tag[0].len == 6 && tags.tag[0].hard == 11 && tags.tag[0].soft == 12);
  assert_memory_equal(tags.tag[1].name, "all", 3);
  assert_int_equal(e.validator_len, 6);
  assert_memory_equal(e.validator, "\"etag\"", 6);
  assert_memory_equal(product.plain->data + product.at, "value", 5);
  crl_fill_clean(&fill);
}

static void what_is_too_long_or_too_many_is_refused(void **state) {
  (void)state;
  static const uint8_t zeroes[2000];
  corral_fill fill = empty();
  assert_int_equal(corral_fill_tag(&fill, "", 0), CORRAL_EINVAL);
  assert_int_equal(corral_fill_tag(&fill, NULL, 3), CORRAL_EINVAL);
  assert_int_equal(corral_fill_tag(&fill, zeroes, CORRAL_TAG_MAX + 1), CORRAL_EINVAL);
  assert_int_equal(corral_fill_validator(&fill, zeroes, CORRAL_VALIDATOR_MAX + 1), CORRAL_ETOOBIG);
  for (size_t i = 1; i <= CORRAL_TAGS_MAX; i++)
    assert_int_equal(corral_fill_tag(&fill, zeroes, i), CORRAL_OK);
  assert_int_equal(corral_fill_tag(&fill, zeroes, CORRAL_TAG_MAX), CORRAL_ETOOBIG);
  assert_int_equal(corral_fill_tag(&fill, zeroes, 3), CORRAL_OK);
  crl_alloc_countdown = 0;
  assert_int_equal(corral_fill_validator(&fill, "x", 1), CORRAL_ENOMEM);
  crl_fill_clean(&fill);
}

static void tags_that_make_no_sense_are_told(void **state) {
  (void)state;
  crl_tags tags = {.count = 2,
                   .tag = {{.hard = 1, .soft = 2, .len = 3, .name = "abc"},
                           {.hard = 3, .soft = 4, .len = 0}}},
           got;
  uint8_t bytes[64];
  size_t size = crl_tags_size(&tags);
  assert_true(size <= sizeof bytes);
  assert_ptr_equal(crl_tags_write(&tags, bytes), bytes + size);
  for (size_t cut = 0; cut <= size; cut++) {
    uint8_t *copy = malloc(cut + 1); /* exact size, so that a read beyond the end is detected */
    memcpy(copy, bytes, cut);
    assert_int_equal(crl_tags_read(copy, cut, &got), cut == 0 || cut == 21 || cut == size);
    free(copy);
  }
  for (unsigned seed = 1; seed < 4000; seed++) {
    uint8_t noise[64];
    for (size_t i = 0; i < sizeof noise; i++)
      noise[i] = (uint8_t)(crl_policy_mix(seed * 64 + i) % 19);
    crl_tags_read(noise, sizeof noise, &got);
    assert_true(got.count <= CORRAL_TAGS_MAX + 1);
  }
}

/* ---- not modified -------------------------------------------------------------------------- */

static const crl_old old_value = {.data = (const uint8_t *)"before",
                                  .size = 6,
                                  .validator = "E1",
                                  .validator_len = 2,
                                  .version = 9,
                                  .ttl_ms = 1000,
                                  .swr_ms = 200,
                                  .sie_ms = 300};

static void without_an_old_value_nothing_can_be_unmodified(void **state) {
  (void)state;
  corral_fill fill = empty();
  size_t size = 7;
  assert_int_equal(corral_fill_not_modified(&fill), CORRAL_EMISS);
  assert_null(corral_fill_old(&fill, &size));
  assert_int_equal(size, 0);
}

static void what_is_not_modified_is_renewed_or_stored_whole(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  size_t size;
  fill.old = old_value;
  assert_memory_equal(corral_fill_old(&fill, &size), "before", 6);
  assert_memory_equal(corral_fill_old_validator(&fill, &size), "E1", 2);
  assert_int_equal(corral_fill_not_modified(&fill), CORRAL_OK);
  assert_true(crl_fill_inherit(&fill));
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(product.renew_ttl, 1300);
  assert_true(e.version == 9 && product.size == 6);
  assert_memory_equal(product.plain->data + product.at, "before", 6);
  crl_fill_clean(&fill);
}

/* The origin's answer to a revalidation: not modified, and from now on for one user alone. */
static void what_cannot_be_cached_any_more_is_not_renewed_though_it_is_not_modified(void **state) {
  (void)state;
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  fill.old = old_value;
  fill.old.swr_ms = fill.old.sie_ms = 0; /* as of a record that can't be cached */
  assert_int_equal(corral_fill_not_modified(&fill), CORRAL_OK);
  corral_fill_pass(&fill);
  assert_true(crl_fill_inherit(&fill));
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_PASS);
  assert_int_equal(product.renew_ttl, 0);
  assert_int_equal(e.kind, CRL_KIND_PASS);
  crl_fill_clean(&fill);
}

static int64_t renews(void (*change)(corral_fill *fill)) {
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  fill.old = old_value;
  assert_int_equal(corral_fill_not_modified(&fill), CORRAL_OK);
  change(&fill);
  assert_true(crl_fill_inherit(&fill));
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_memory_equal(product.plain->data + product.at, "before", 6);
  crl_fill_clean(&fill);
  return product.renew_ttl;
}

static void longer(corral_fill *fill) { corral_fill_lives(fill, 2000, 0, 0); }
static void no_grace(corral_fill *fill) { corral_fill_lives(fill, 0, CORRAL_OFF, 0); }
static void capped(corral_fill *fill) { corral_fill_not_after(fill, WALL + 100000); }
static void tagged(corral_fill *fill) {
  assert_int_equal(corral_fill_tag(fill, "t", 1), CORRAL_OK);
}
static void later(corral_fill *fill) { corral_fill_version(fill, 10); }
static void other_validator(corral_fill *fill) {
  assert_int_equal(corral_fill_validator(fill, "E2", 2), CORRAL_OK);
}
static void same_validator(corral_fill *fill) {
  assert_int_equal(corral_fill_validator(fill, "E1", 2), CORRAL_OK);
}

static void what_changes_besides_the_bytes_needs_a_new_record(void **state) {
  (void)state;
  assert_int_equal(renews(same_validator), 1300);
  assert_int_equal(renews(longer), 0);
  assert_int_equal(renews(no_grace), 0);
  assert_int_equal(renews(capped), 0);
  assert_int_equal(renews(tagged), 0);
  assert_int_equal(renews(later), 0);
  assert_int_equal(renews(other_validator), 0);
}

/* ---- packed -------------------------------------------------------------------------------- */

static void what_is_large_is_stored_packed_and_given_plain(void **state) {
  (void)state;
  char text[100], plain[100];
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  memset(text, 'a', sizeof text);
  compress_min = 100;
  assert_int_equal(corral_fill_bytes(&fill, text, 100), CORRAL_OK);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_true(e.encoding == CRL_ENCODING_ZSTD && e.payload_len < 50 && e.plain_len == 100 &&
              product.size == 100);
  assert_memory_equal(product.plain->data + product.at, text, 100);
  assert_true(
      crl_decompress(product.record->data + e.payload_at, e.payload_len, plain, sizeof plain));
  assert_memory_equal(plain, text, 100);
  assert_false(crl_decompress(product.record->data + e.payload_at, e.payload_len, plain, 99));
  assert_false(crl_decompress(product.record->data + e.payload_at, e.payload_len - 1, plain, 100));
  assert_int_equal(corral_fill_bytes(&fill, text, 99), CORRAL_OK);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_true(e.encoding == CRL_ENCODING_PLAIN && e.plain_len == 99);
  compress_min = 0;
  crl_fill_clean(&fill);
}

static void what_packing_does_not_save_on_stays_plain(void **state) {
  (void)state;
  uint8_t noise[100];
  corral_fill fill = empty();
  crl_envelope e;
  int64_t hard;
  for (size_t i = 0; i < sizeof noise; i++) noise[i] = (uint8_t)crl_policy_mix(i + 1);
  compress_min = 1;
  assert_int_equal(corral_fill_bytes(&fill, noise, 100), CORRAL_OK);
  assert_int_equal(finish(&fill, &e, &hard), CRL_MADE_VALUE);
  assert_int_equal(e.encoding, CRL_ENCODING_PLAIN);
  compress_min = 0;
  crl_fill_clean(&fill);
}

/* Each allocation fails in turn: nothing leaks, and no incomplete product is returned. */
static void without_memory_a_fill_is_a_failure(void **state) {
  (void)state;
  char text[100] = {0};
  for (long after = 0;; after++) {
    corral_fill fill = empty();
    crl_envelope e;
    int64_t hard;
    assert_int_equal(corral_fill_tag(&fill, "t", 1), CORRAL_OK);
    assert_int_equal(corral_fill_bytes(&fill, text, 100), CORRAL_OK);
    compress_min = 1;
    crl_alloc_countdown = after;
    crl_made made = finish(&fill, &e, &hard);
    int done = crl_alloc_countdown >= 0;
    crl_alloc_countdown = -1;
    compress_min = 0;
    if (made == CRL_MADE_FAILURE)
      assert_int_equal(fill.code, CORRAL_ENOMEM);
    else
      assert_int_equal(made, CRL_MADE_VALUE);
    crl_fill_clean(&fill);
    if (done) break;
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(bytes_become_a_record_under_the_policy),
      cmocka_unit_test(reserved_room_is_filled_in_place),
      cmocka_unit_test(too_much_is_refused_and_nothing_filled),
      cmocka_unit_test(a_negative_has_its_own_life_and_no_grace),
      cmocka_unit_test(a_failure_keeps_its_number_and_its_text),
      cmocka_unit_test(a_value_s_own_lives_stand_over_the_policy_s),
      cmocka_unit_test(lives_without_measure_do_not_overflow),
      cmocka_unit_test(a_compute_can_ask_whether_it_is_still_wanted),
      cmocka_unit_test(a_moment_that_caps_all_lives),
      cmocka_unit_test(a_moment_that_has_passed_keeps_it_from_being_stored),
      cmocka_unit_test(what_cannot_be_cached_any_more_is_not_renewed_though_it_is_not_modified),
      cmocka_unit_test(what_cannot_be_cached_is_its_caller_s_and_a_record_without_it),
      cmocka_unit_test(tags_validator_and_version_go_along),
      cmocka_unit_test(what_is_too_long_or_too_many_is_refused),
      cmocka_unit_test(tags_that_make_no_sense_are_told),
      cmocka_unit_test(without_an_old_value_nothing_can_be_unmodified),
      cmocka_unit_test(what_is_not_modified_is_renewed_or_stored_whole),
      cmocka_unit_test(what_changes_besides_the_bytes_needs_a_new_record),
      cmocka_unit_test(what_is_large_is_stored_packed_and_given_plain),
      cmocka_unit_test(what_packing_does_not_save_on_stays_plain),
      cmocka_unit_test(without_memory_a_fill_is_a_failure),
  };
  return cmocka_run_group_tests(tests, NULL, clean);
}
