/* test_page.c: pages, as bytes: what is written is read back, all else is refused; the hash of a
 * request, tags, the header of a page that is renewed. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include <corral/page.h>

#define TEXT(text) (const unsigned char *)(text)

static const corral_page_field fields[] = {{TEXT("ETag"), TEXT("\"1\""), 4, 3},
                                           {TEXT("X-Empty"), TEXT(""), 7, 0},
                                           {TEXT("Link"), TEXT("</a>"), 4, 4}};

static unsigned char *written(size_t *size) {
  corral_page page = {.status = 404,
                      .age_s = 7,
                      .ttl_ms = 60000,
                      .swr_ms = CORRAL_PAGE_LONGEST_MS,
                      .sie_ms = -1,
                      .date_ms = -1500,
                      .vary = TEXT("accept-language x-kind"),
                      .vary_len = 22,
                      .body_len = 5};
  memset(page.hash, 0xab, sizeof page.hash);
  *size = corral_page_size(&page, fields, 3);
  unsigned char *bytes = malloc(*size);
  memcpy(corral_page_write(bytes, &page, fields, 3), "hello", 5);
  return bytes;
}

static void what_is_written_is_read_back(void **state) {
  (void)state;
  size_t size, at = 0;
  unsigned char *bytes = written(&size);
  corral_page page;
  corral_page_field field;
  assert_int_equal(corral_page_read(bytes, size, &page), 0);
  assert_int_equal(page.status, 404);
  assert_int_equal(page.age_s, 7);
  assert_int_equal(page.ttl_ms, 60000);
  assert_true(page.swr_ms == CORRAL_PAGE_LONGEST_MS);
  assert_int_equal(page.sie_ms, -1);
  assert_int_equal(page.date_ms, -1500);
  assert_int_equal(page.hash[15], 0xab);
  assert_int_equal(page.vary_len, 22);
  assert_memory_equal(page.vary, "accept-language x-kind", 22);
  assert_int_equal(page.body_len, 5);
  assert_memory_equal(page.body, "hello", 5);
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(corral_page_next(&page, &at, &field), 1);
    assert_int_equal(field.name_len, fields[i].name_len);
    assert_memory_equal(field.name, fields[i].name, field.name_len);
    assert_int_equal(field.value_len, fields[i].value_len);
    assert_memory_equal(field.value, fields[i].value, field.value_len);
  }
  assert_int_equal(corral_page_next(&page, &at, &field), 0);
  free(bytes);
}

static void a_page_that_was_cut_or_changed_is_refused(void **state) {
  (void)state;
  size_t size;
  unsigned char *bytes = written(&size);
  corral_page page;
  size_t head = size - 5; /* the body may have any length: the store's envelope guards it */
  for (size_t cut = 0; cut < head; cut++) {
    unsigned char *copy = malloc(cut + 1);
    memcpy(copy, bytes, cut);
    assert_true(corral_page_read(copy, cut, &page) < 0);
    free(copy);
  }
  for (size_t i = 0; i < 70; i++) { /* each bit of the fixed part */
    for (int bit = 0; bit < 8; bit++) {
      bytes[i] ^= (unsigned char)(1 << bit);
      assert_int_equal(corral_page_read(bytes, size, &page), CORRAL_EFOREIGN);
      bytes[i] ^= (unsigned char)(1 << bit);
    }
  }
  free(bytes);
}

static void fields_that_dont_fit_each_other_are_refused(void **state) {
  (void)state;
  size_t size;
  unsigned char *bytes = written(&size);
  corral_page page;
  /* lengths too: all that is read must lie within the page */
  for (size_t i = 70 + 22; i < size - 5; i++) {
    for (int value = 0; value < 256; value += 5) {
      unsigned char kept = bytes[i];
      bytes[i] = (unsigned char)value;
      if (corral_page_read(bytes, size, &page) == 0)
        assert_true(page.body + page.body_len == bytes + size);
      bytes[i] = kept;
    }
  }
  free(bytes);
}

static void what_is_out_of_bounds_is_not_written(void **state) {
  (void)state;
  corral_page_field many[CORRAL_PAGE_FIELDS + 1];
  corral_page page = {.status = 200};
  for (size_t i = 0; i <= CORRAL_PAGE_FIELDS; i++) many[i] = fields[0];
  assert_true(corral_page_size(&page, many, CORRAL_PAGE_FIELDS) > 0);
  assert_int_equal(corral_page_size(&page, many, CORRAL_PAGE_FIELDS + 1), 0);
  many[0].value_len = 65536;
  assert_int_equal(corral_page_size(&page, many, 1), 0);
  many[0] = (corral_page_field){TEXT(""), TEXT(""), 0, 0};
  assert_int_equal(corral_page_size(&page, many, 1), 0);
  static const uint32_t statuses[] = {0, 99, 100, 101, 199, 600, 999};
  for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++) {
    page.status = statuses[i];
    assert_int_equal(corral_page_size(&page, fields, 1), 0);
  }
  page = (corral_page){.status = 200, .vary_len = CORRAL_PAGE_VARY + 1};
  assert_int_equal(corral_page_size(&page, fields, 1), 0);
  page = (corral_page){.status = 200, .body_len = SIZE_MAX};
  assert_int_equal(corral_page_size(&page, fields, 1), 0);
}

/* Reads a page made of these values, as any writer to the store could make it. */
static int read_forged(corral_page page, corral_page_field field) {
  unsigned char bytes[600];
  unsigned char *end = corral_page_write(bytes, &page, &field, 1);
  return corral_page_read(bytes, (size_t)(end - bytes), &page);
}

static void what_no_response_may_have_is_neither_read_nor_written(void **state) {
  (void)state;
  static const struct {
    const char *name, *value;
    size_t value_len;
  } rows[] = {{"X", "a\r\nSet-Cookie: b", 16},
              {"X", "a\nb", 3},
              {"X", "a\rb", 3},
              {"X", "a\0b", 3},
              {"X Y", "a", 1},
              {"X:", "a", 1},
              {"X\r\nY", "a", 1},
              {"X\177", "a", 1},
              {"\303\244", "a", 1},
              {"Content-Length", "0", 1},
              {"content-length", "0", 1},
              {"Transfer-Encoding", "chunked", 7},
              {"Connection", "close", 5},
              {"Date", "a", 1},
              {"X-Accel-Redirect", "/", 1}};
  const corral_page good = {.status = 200, .ttl_ms = 1000, .vary = TEXT("x-a x-b"), .vary_len = 7};
  corral_page_field field = {TEXT("X-Text"), TEXT("\303\244\t\177"), 6, 4};
  assert_int_equal(read_forged(good, field), 0);
  assert_true(corral_page_size(&good, &field, 1) > 0);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_page_field bad = {TEXT(rows[i].name), TEXT(rows[i].value), strlen(rows[i].name),
                             rows[i].value_len};
    if (read_forged(good, bad) != CORRAL_ECORRUPT || corral_page_size(&good, &bad, 1) != 0)
      fail_msg("%s: %s", rows[i].name, rows[i].value);
  }
  const corral_page bad[] = {{.status = 199},
                             {.status = 600},
                             {.status = 65535},
                             {.status = 200, .ttl_ms = INT64_MAX},
                             {.status = 200, .swr_ms = INT64_MIN},
                             {.status = 200, .ttl_ms = CORRAL_PAGE_LONGEST_MS + 1},
                             {.status = 200, .sie_ms = -2},
                             {.status = 200, .date_ms = INT64_MIN},
                             {.status = 200, .date_ms = CORRAL_PAGE_LONGEST_MS + 1},
                             {.status = 200, .vary = TEXT("a\nb"), .vary_len = 3},
                             {.status = 200, .vary = TEXT("a:"), .vary_len = 2}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
    if (read_forged(bad[i], field) != CORRAL_ECORRUPT || corral_page_size(&bad[i], &field, 1) != 0)
      fail_msg("page %zu", i);
}

static void heads_are_the_same_but_for_a_part_of_a_second(void **state) {
  (void)state;
  static const struct {
    corral_page page;
    int is_same;
  } rows[] = {{{.status = 200, .date_ms = 1000}, 1},
              {{.status = 200, .date_ms = 1999}, 1},
              {{.status = 200, .date_ms = 1}, 1},
              {{.status = 200, .date_ms = 2000}, 0},
              {{.status = 200, .date_ms = 0}, 0},
              {{.status = 203, .date_ms = 1000}, 0},
              {{.status = 200, .date_ms = 1000, .ttl_ms = 1}, 0},
              {{.status = 200, .date_ms = 1000, .age_s = 1}, 0},
              {{.status = 200, .date_ms = 1000, .sie_ms = 1}, 0},
              {{.status = 200, .date_ms = 1000, .hash = {1}}, 0}};
  unsigned char one[200], other[200];
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    size_t size = corral_page_size(&rows[i].page, fields, 3);
    (void)corral_page_write(one, &rows[0].page, fields, 3);
    (void)corral_page_write(other, &rows[i].page, fields, 3);
    assert_int_equal(corral_page_same_head(one, other, size), rows[i].is_same);
    other[size - 1] ^= 1; /* of a field */
    assert_int_equal(corral_page_same_head(one, other, size), 0);
  }
}

static void a_page_may_be_stale_within_its_graces(void **state) {
  (void)state;
  static const struct {
    int64_t swr, sie, kept;
    int may;
  } rows[] = {{0, -1, 1001, 0},    {0, 0, 1000, 1},     {0, 500, 1500, 1},
              {0, 500, 1501, 0},   {500, -1, 1500, 1},  {500, -1, 1501, 0},
              {900, 500, 1900, 1}, {500, 900, 1900, 1}, {500, 900, 1901, 0}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_page page = {.ttl_ms = 1000, .swr_ms = rows[i].swr, .sie_ms = rows[i].sie};
    if (corral_page_may_be_stale(&page, rows[i].kept) != rows[i].may) fail_msg("row %zu", i);
  }
}

#define LINE(name, value)                                                                          \
  { TEXT(name), TEXT(value), sizeof(name) - 1, sizeof(value) - 1 }

static void requests_that_mean_the_same_have_one_hash(void **state) {
  (void)state;
  static const char names[] = "accept-language x-kind";
  static const struct {
    corral_page_field lines[3];
    int is_same;
  } rows[] = {
      {{LINE("Accept-Language", "de, en"), LINE("X-Kind", "a b")}, 1},
      {{LINE("x-kind", "a \t b "), LINE("ACCEPT-LANGUAGE", "DE ,en")}, 1},
      {{LINE("Accept-Language", "de"), LINE("X-Kind", "a b"), LINE("accept-language", "en")}, 1},
      {{LINE("Accept-Language", "de, en"), LINE("X-Kind", "a b"), LINE("X-Other", "c")}, 1},
      {{LINE("Accept-Language", "en, de"), LINE("X-Kind", "a b")}, 0},
      {{LINE("Accept-Language", "de, en"), LINE("X-Kind", "A b")}, 0},
      {{LINE("Accept-Language", "de, en"), LINE("X-Kind", "\"a  b\"")}, 0},
      {{LINE("Accept-Language", "de, en")}, 0},
      {{LINE("Accept-Language", "de, en"), LINE("X-Kind", "")}, 0},
      {{LINE("X-Kind", "de, en"), LINE("Accept-Language", "a b")}, 0}};
  unsigned char first[CORRAL_PAGE_HASH], hash[CORRAL_PAGE_HASH];
  corral_page_vary(TEXT(names), strlen(names), rows[0].lines, 3, first);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_page_vary(TEXT(names), strlen(names), rows[i].lines, 3, hash);
    if ((memcmp(first, hash, sizeof hash) == 0) != rows[i].is_same) fail_msg("row %zu", i);
  }
  /* a long value counts to its end */
  static char value[2000];
  corral_page_field longer = {TEXT("X-Kind"), TEXT(value), 6, sizeof value};
  memset(value, 'a', sizeof value);
  corral_page_vary(TEXT(names), strlen(names), &longer, 1, first);
  value[sizeof value - 1] = 'b';
  corral_page_vary(TEXT(names), strlen(names), &longer, 1, hash);
  assert_memory_not_equal(first, hash, sizeof hash);
}

static void tags_of_another_kind_or_text_are_others(void **state) {
  (void)state;
  unsigned char tags[5][CORRAL_TAG_MAX];
  static char word[CORRAL_TAG_MAX + 1];
  memset(word, 'w', sizeof word);
  size_t lens[5] = {corral_page_tag(CORRAL_PAGE_OF_KEY, "a/", 2, tags[0]),
                    corral_page_tag(CORRAL_PAGE_OF_PREFIX, "a/", 2, tags[1]),
                    corral_page_tag(CORRAL_PAGE_OF_KEY, "b/", 2, tags[2]),
                    corral_page_tag(CORRAL_PAGE_OF_WORD, word, sizeof word, tags[3]),
                    corral_page_tag(CORRAL_PAGE_OF_WORD, word, CORRAL_TAG_MAX, tags[4])};
  for (size_t i = 0; i < 5; i++)
    for (size_t j = 0; j < i; j++)
      assert_false(lens[i] == lens[j] && memcmp(tags[i], tags[j], lens[i]) == 0);
  assert_int_equal(lens[4], CORRAL_TAG_MAX);
  assert_memory_equal(tags[4], word, CORRAL_TAG_MAX);
  assert_memory_equal(tags[0], "variants ", 9);
  /* no word of a response's field has a space in it */
  assert_memory_equal(tags[3], "long ", 5);
}

static void a_304_takes_the_place_of_fields_that_it_has(void **state) {
  (void)state;
  size_t size, kept;
  unsigned char *bytes = written(&size);
  corral_page old;
  corral_page_field merged[CORRAL_PAGE_FIELDS] = {LINE("etag", "\"2\""),
                                                  LINE("Content-Type", "x/y"), LINE("X-New", "1")};
  assert_int_equal(corral_page_read(bytes, size, &old), CORRAL_OK);
  assert_int_equal(corral_page_merge(&old, merged, 3, &kept), 4);
  assert_int_equal(kept, 2);
  static const char *const names[] = {"X-Empty", "Link", "etag", "X-New"};
  for (size_t i = 0; i < 4; i++) assert_memory_equal(merged[i].name, names[i], strlen(names[i]));
  for (size_t i = 0; i < CORRAL_PAGE_FIELDS; i++)
    merged[i] = (corral_page_field)LINE("X-Many", "1");
  assert_int_equal(corral_page_merge(&old, merged, CORRAL_PAGE_FIELDS - 3, &kept),
                   CORRAL_PAGE_FIELDS);
  for (size_t i = 0; i < CORRAL_PAGE_FIELDS; i++)
    merged[i] = (corral_page_field)LINE("X-Many", "1");
  assert_int_equal(corral_page_merge(&old, merged, CORRAL_PAGE_FIELDS - 2, &kept), 0);
  free(bytes);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_written_is_read_back),
      cmocka_unit_test(a_page_that_was_cut_or_changed_is_refused),
      cmocka_unit_test(fields_that_dont_fit_each_other_are_refused),
      cmocka_unit_test(what_is_out_of_bounds_is_not_written),
      cmocka_unit_test(what_no_response_may_have_is_neither_read_nor_written),
      cmocka_unit_test(heads_are_the_same_but_for_a_part_of_a_second),
      cmocka_unit_test(a_page_may_be_stale_within_its_graces),
      cmocka_unit_test(requests_that_mean_the_same_have_one_hash),
      cmocka_unit_test(tags_of_another_kind_or_text_are_others),
      cmocka_unit_test(a_304_takes_the_place_of_fields_that_it_has)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
