/* test_held.c: what is kept for the return of a store: the newest of each key, within room and time. Time is an argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "held.h"

enum { BYTES = 10000, MS = 1000, SIZE = 100 };

static int all(void *arg, const void *key, size_t key_len) {
  (void)arg, (void)key, (void)key_len;
  return 1;
}

static int only(void *arg, const void *key, size_t key_len) { return key_len == strlen(arg) && memcmp(key, arg, key_len) == 0; }

static crl_bytes *record_of(char letter, size_t size) {
  uint8_t *data = malloc(size);
  assert_non_null(data);
  memset(data, letter, size);
  crl_bytes *bytes = crl_bytes_wrap(data, size, free, data);
  assert_non_null(bytes);
  return bytes;
}

/* letter 0: the wish to invalidate */
static void keep(crl_held *held, const char *key, char letter, int64_t began, int64_t now) {
  crl_bytes *record = letter == 0 ? NULL : record_of(letter, SIZE);
  crl_held_keep(held, key, strlen(key), record, 100 * MS, began, now);
  crl_bytes_unref(record);
}

/* The letter that is found; '-' nothing. */
static char found(crl_held *held, const char *key, int64_t now) {
  crl_held_entry entry;
  if (!crl_held_find(held, key, strlen(key), now, &entry)) return '-';
  char letter = (char)entry.record->data[0];
  crl_bytes_unref(entry.record);
  return letter;
}

/* What is given out, as "key:letter " in its order; an invalidation is '!'. */
static const char *given(crl_held *held, int64_t now, size_t most, const char *key) {
  static char text[256];
  crl_held_entry entries[16];
  size_t count = crl_held_offer(held, now, key == NULL ? all : only, (void *)(uintptr_t)key, entries, most), used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "%.*s:%c ", (int)entries[i].key_len, (const char *)entries[i].key,
                             entries[i].record == NULL ? '!' : (char)entries[i].record->data[0]);
    crl_held_entry_clean(&entries[i]);
  }
  return text;
}

static void of_each_key_the_newest_is_kept(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  keep(held, "a", 'x', 10, 20);
  keep(held, "a", 'y', 15, 25);
  keep(held, "a", 'z', 12, 30); /* began before y did */
  assert_int_equal(found(held, "a", 30), 'y');
  assert_int_equal(crl_held_count(held), 1);
  crl_held_free(held);
}

static void an_invalidation_counts_for_what_began_before_it(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  keep(held, "a", 'x', 10, 20);
  keep(held, "a", 0, 30, 30);
  assert_int_equal(found(held, "a", 31), '-');
  keep(held, "a", 'y', 29, 40); /* was under way */
  assert_int_equal(found(held, "a", 41), '-');
  keep(held, "b", 'x', 50, 60);
  keep(held, "b", 0, 50, 61);
  assert_string_equal(given(held, 62, 16, NULL), "a:! b:! ");
  keep(held, "a", 'z', 70, 80);
  assert_int_equal(found(held, "a", 81), 'z');
  crl_held_free(held);
}

static void what_is_too_old_is_forgotten(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  crl_bytes *record = record_of('x', SIZE);
  keep(held, "a", 'a', 0, 1);
  crl_held_keep(held, "short", 5, record, 50, 0, 1); /* its own life is 50 ms */
  crl_bytes_unref(record);
  assert_int_equal(found(held, "short", 50), 'x');
  assert_int_equal(found(held, "short", 51), '-');
  assert_int_equal(found(held, "a", MS), 'a');
  assert_int_equal(found(held, "a", MS + 1), '-');
  assert_int_equal(crl_held_count(held), 0);
  assert_int_equal(crl_held_weight(held), 0);
  crl_held_free(held);
}

static void when_there_is_no_room_the_oldest_goes(void **state) {
  (void)state;
  char key[16];
  crl_held *held = crl_held_new(1000, MS);
  for (int i = 0; i < 10; i++) {
    snprintf(key, sizeof key, "k%d", i);
    keep(held, key, (char)('a' + i), i, i);
    assert_true(crl_held_weight(held) <= 1000);
  }
  assert_int_equal(found(held, "k0", 10), '-');
  assert_int_equal(found(held, "k9", 10), 'j');
  crl_bytes *large = record_of('L', 2000);
  crl_held_keep(held, "large", 5, large, MS, 20, 20);
  crl_bytes_unref(large);
  assert_int_equal(found(held, "large", 20), '-'); /* nobody goes for one that never fits */
  assert_int_equal(found(held, "k9", 20), 'j');
  crl_held_free(held);
}

static void each_is_given_out_once_the_oldest_first_and_found_until_it_is_forgotten(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  keep(held, "a", 'x', 1, 1);
  keep(held, "b", 'y', 2, 2);
  keep(held, "c", 'z', 3, 3);
  assert_string_equal(given(held, 10, 2, NULL), "a:x b:y ");
  assert_string_equal(given(held, 10, 2, NULL), "c:z ");
  assert_string_equal(given(held, 10, 2, NULL), "");
  assert_int_equal(found(held, "a", 10), 'x');
  crl_held_forget(held, 50, only, (void *)(uintptr_t)"a");
  assert_int_equal(found(held, "a", 49), 'x');
  assert_int_equal(found(held, "a", 50), '-');
  assert_int_equal(found(held, "b", 50), 'y');
  keep(held, "b", 'w', 60, 60); /* a newer one is news */
  assert_string_equal(given(held, 61, 16, NULL), "b:w ");
  crl_held_free(held);
}

static void what_could_not_be_offered_is_given_out_again(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  crl_held_entry entry;
  keep(held, "a", 'x', 1, 1);
  keep(held, "b", 'y', 1, 1);
  assert_int_equal(crl_held_offer(held, 2, only, (void *)(uintptr_t)"b", &entry, 1), 1);
  crl_held_return(held, &entry);
  crl_held_entry_clean(&entry);
  assert_string_equal(given(held, 2, 16, NULL), "a:x b:y ");
  crl_held_free(held);
}

static void what_is_made_later_than_that_moment_is_left_for_the_next_time(void **state) {
  (void)state;
  crl_held *held = crl_held_new(BYTES, MS);
  keep(held, "a", 'x', 1, 10);
  assert_string_equal(given(held, 9, 16, NULL), "");
  assert_string_equal(given(held, 10, 16, NULL), "a:x ");
  crl_held_free(held);
}

static void switched_off_it_keeps_nothing(void **state) {
  (void)state;
  crl_held *no_room = crl_held_new(-1, MS), *no_time = crl_held_new(BYTES, -1); /* held_bytes, held_ms = CORRAL_OFF */
  keep(no_room, "a", 'x', 1, 1);
  keep(no_time, "a", 'x', 1, 1);
  assert_int_equal(crl_held_count(no_room) + crl_held_count(no_time), 0);
  crl_held_free(no_room);
  crl_held_free(no_time);
}

static void without_memory_nothing_is_kept_and_nothing_breaks(void **state) {
  (void)state;
  crl_alloc_countdown = 0;
  assert_null(crl_held_new(BYTES, MS));
  crl_held *held = crl_held_new(BYTES, MS);
  crl_bytes *record = record_of('x', SIZE);
  crl_alloc_countdown = 0;
  crl_held_keep(held, "a", 1, record, MS, 1, 1);
  assert_int_equal(crl_held_count(held), 0);
  crl_held_keep(held, "a", 1, record, MS, 1, 1);
  crl_alloc_countdown = 0;
  assert_string_equal(given(held, 2, 16, NULL), "");
  assert_string_equal(given(held, 2, 16, NULL), "a:x ");
  crl_bytes_unref(record);
  crl_held_free(held);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_each_key_the_newest_is_kept),
      cmocka_unit_test(an_invalidation_counts_for_what_began_before_it),
      cmocka_unit_test(what_is_too_old_is_forgotten),
      cmocka_unit_test(when_there_is_no_room_the_oldest_goes),
      cmocka_unit_test(each_is_given_out_once_the_oldest_first_and_found_until_it_is_forgotten),
      cmocka_unit_test(what_could_not_be_offered_is_given_out_again),
      cmocka_unit_test(what_is_made_later_than_that_moment_is_left_for_the_next_time),
      cmocka_unit_test(switched_off_it_keeps_nothing),
      cmocka_unit_test(without_memory_nothing_is_kept_and_nothing_breaks),
  };
  return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}
