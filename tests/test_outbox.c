/* test_outbox.c: fills and invalidations held for a store that is away: the newest of each key,
 * limited by bytes and age. The time is an argument. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "outbox/outbox.h"

enum { BYTES = 10000, MS = 1000, SIZE = 100 };

static int all(void *arg, const void *key, size_t key_len) {
  (void)arg, (void)key, (void)key_len;
  return 1;
}

static int only(void *arg, const void *key, size_t key_len) {
  return key_len == strlen(arg) && memcmp(key, arg, key_len) == 0;
}

static crl_bytes *record_of(char letter, size_t size) {
  uint8_t *data = malloc(size);
  assert_non_null(data);
  memset(data, letter, size);
  crl_bytes *bytes = crl_bytes_wrap(data, size, free, data);
  assert_non_null(bytes);
  return bytes;
}

static void keep_version(crl_outbox *held, const char *key, char letter, uint64_t version,
                         int64_t began, int64_t now) {
  crl_outbox_fill fill = {.record = record_of(letter, SIZE),
                          .version = version,
                          .hard_ttl = 100 * MS,
                          .began = began,
                          .made = now};
  crl_outbox_keep(held, key, strlen(key), &fill);
  crl_bytes_unref(fill.record);
}

/* Keeps a fill with version 7; letter 0: an invalidation. */
static void keep(crl_outbox *held, const char *key, char letter, int64_t began, int64_t now) {
  if (letter == 0)
    crl_outbox_invalidate(held, key, strlen(key), NULL, now);
  else
    keep_version(held, key, letter, 7, began, now);
}

/* Returns the first letter of the found fill; '-': none. */
static char found(crl_outbox *held, const char *key, int64_t now) {
  crl_outbox_fill entry;
  if (!crl_outbox_find(held, key, strlen(key), now, &entry)) return '-';
  char letter = (char)entry.record->data[0];
  crl_bytes_unref(entry.record);
  return letter;
}

static int has_letter(void *letter, const crl_bytes *record) {
  return record->data[0] == *(uint8_t *)letter;
}

/* The replayed entries as "key:letter ", in order; '!' is an invalidation. */
static const char *given(crl_outbox *held, int64_t now, size_t most, const char *key) {
  static char text[256];
  crl_outbox_entry entries[16];
  size_t count = crl_outbox_replay(held, now, key == NULL ? all : only, (void *)(uintptr_t)key,
                                   entries, most),
         used = 0;
  text[0] = '\0';
  for (size_t i = 0; i < count; i++) {
    used += (size_t)snprintf(text + used, sizeof text - used, "%.*s:%c ", (int)entries[i].key_len,
                             (const char *)entries[i].key,
                             entries[i].invalidates ? '!' : (char)entries[i].fill.record->data[0]);
    crl_outbox_entry_clean(&entries[i]);
  }
  return text;
}

static void of_each_key_the_newest_is_kept(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 'x', 10, 20);
  keep(held, "a", 'y', 15, 25);
  keep(held, "a", 'z', 12, 30); /* its compute began before that of 'y' */
  assert_int_equal(found(held, "a", 30), 'y');
  assert_int_equal(crl_outbox_count(held), 1);
  crl_outbox_free(held);
}

static void an_invalidation_counts_for_what_began_before_it(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 'x', 10, 20);
  keep(held, "a", 0, 30, 30);
  assert_int_equal(found(held, "a", 31), '-');
  keep(held, "a", 'y', 29, 40); /* its compute began before the invalidation */
  assert_int_equal(found(held, "a", 41), '-');
  keep(held, "b", 'x', 50, 60);
  keep(held, "b", 0, 61, 61);
  assert_string_equal(given(held, 62, 16, NULL), "a:! b:! ");
  keep(held, "a", 'z', 70, 80);
  assert_int_equal(found(held, "a", 81), 'z');
  crl_outbox_free(held);
}

static void a_fill_after_an_invalidation_does_not_make_it_forgotten(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_entry entry;
  keep(held, "a", 0, 10, 10);
  keep(held, "a", 'x', 20, 30);
  assert_int_equal(found(held, "a", 31), 'x');
  assert_int_equal(crl_outbox_replay(held, 31, all, NULL, &entry, 1), 1);
  assert_true(entry.invalidates);
  crl_outbox_replayed(held, &entry);
  crl_outbox_entry_clean(&entry);
  assert_int_equal(found(held, "a", 32), 'x'); /* filled after the invalidation */
  assert_string_equal(given(held, 32, 16, NULL), "a:x ");
  keep(held, "b", 0, 40, 40);
  assert_int_equal(crl_outbox_replay(held, 41, only, (void *)(uintptr_t) "b", &entry, 1), 1);
  crl_outbox_replayed(held, &entry);
  crl_outbox_entry_clean(&entry);
  assert_int_equal(crl_outbox_count(held), 1);
  crl_outbox_free(held);
}

static void what_takes_the_place_of_an_invalidated_record_is_replayed_with_it(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_entry entry;
  crl_bytes *first = record_of('1', SIZE), *second = record_of('2', SIZE);
  crl_outbox_invalidate(held, "tag", 3, first, 10);
  crl_outbox_invalidate(held, "tag", 3, second, 20);
  assert_int_equal(crl_outbox_replay(held, 21, all, NULL, &entry, 1), 1);
  assert_true(entry.invalidates && entry.successor->data[0] == '2');
  crl_outbox_return(held, &entry);
  crl_outbox_entry_clean(&entry);
  assert_int_equal(crl_outbox_replay(held, 22, all, NULL, &entry, 1), 1);
  crl_outbox_replayed(held, &entry);
  crl_outbox_entry_clean(&entry);
  assert_int_equal(crl_outbox_count(held), 0);
  assert_int_equal(crl_outbox_weight(held), 0);
  crl_bytes_unref(first);
  crl_bytes_unref(second);
  crl_outbox_free(held);
}

static void
a_fill_of_the_store_makes_earlier_wishes_and_fills_forgotten_and_no_later_ones(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 'x', 10, 11);
  crl_outbox_filled(held, "a", 1, 12);
  assert_int_equal(found(held, "a", 13), '-');
  keep(held, "a", 0, 20, 20);
  crl_outbox_filled(held, "a", 1, 15); /* its compute began before the invalidation */
  assert_string_equal(given(held, 21, 16, NULL), "a:! ");
  crl_outbox_filled(held, "a", 1, 25);
  assert_int_equal(crl_outbox_count(held), 0);
  crl_outbox_free(held);
}

/* The store is away at the end of a compute, and the key or a tag was invalidated since the compute
 * began. */
static void
a_fill_that_was_under_way_when_the_store_heard_an_invalidation_is_not_kept(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_entry entry;
  crl_outbox_invalidated(held, "a", 1, 20);
  keep(held, "a", 'x', 20, 30);
  assert_int_equal(found(held, "a", 31), '-');
  keep(held, "a", 'y', 21, 32);
  assert_int_equal(found(held, "a", 33), 'y');
  keep(held, "b", 0, 40, 40); /* a held invalidation, replayed below */
  assert_int_equal(crl_outbox_replay(held, 41, only, (void *)(uintptr_t) "b", &entry, 1), 1);
  crl_outbox_replayed(held, &entry);
  crl_outbox_entry_clean(&entry);
  keep(held, "b", 'x', 39, 50);
  assert_int_equal(found(held, "b", 51), '-');
  crl_outbox_drop_if(held, 60, has_letter, "y"); /* stands for the invalidation of a tag */
  assert_int_equal(found(held, "a", 61), '-');
  keep(held, "c", 'x', 59, 62);
  assert_int_equal(found(held, "c", 63), '-');
  crl_outbox_free(held);
}

static void a_wish_to_invalidate_stays_when_the_fill_is_dropped(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 0, 10, 10);
  keep(held, "a", 'x', 20, 30);
  crl_outbox_drop_fill(held, "a", 1);
  assert_int_equal(found(held, "a", 31), '-');
  assert_string_equal(given(held, 31, 16, NULL), "a:! ");
  crl_outbox_drop_fill(held, "b", 1);
  crl_outbox_free(held);
}

/* Fills without a version stay here: the store doesn't remember later values that have expired. */
static void a_fill_without_a_version_is_never_given_to_the_store(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep_version(held, "a", 'x', 0, 10, 11);
  assert_string_equal(given(held, 12, 16, NULL), "");
  assert_int_equal(found(held, "a", 12), 'x');
  crl_outbox_free(held);
}

static void what_is_too_old_is_forgotten(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_fill brief = {.record = record_of('x', SIZE), .hard_ttl = 50, .made = 1};
  keep(held, "a", 'a', 0, 1);
  crl_outbox_keep(held, "short", 5, &brief);
  crl_bytes_unref(brief.record);
  assert_int_equal(found(held, "short", 50), 'x');
  assert_int_equal(found(held, "short", 51), '-');
  assert_int_equal(found(held, "a", MS), 'a');
  assert_int_equal(found(held, "a", 2 * MS), '-');
  assert_int_equal(crl_outbox_count(held), 0);
  assert_int_equal(crl_outbox_weight(held), 0);
  crl_outbox_free(held);
}

/* An outage goes on as long as it is met at least once in outbox_ms. */
static void a_fill_serves_as_long_as_it_lives_while_the_outage_goes_on(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_fill fill = {.record = record_of('x', SIZE), .hard_ttl = 5 * MS, .made = 10};
  crl_outbox_keep(held, "a", 1, &fill);
  for (int64_t now = 10; now < 10 + 5 * MS; now += MS - 1)
    assert_int_equal(found(held, "a", now), 'x');
  assert_int_equal(found(held, "a", 10 + 5 * MS), '-');
  crl_outbox_keep(held, "b", 1, &fill);
  assert_int_equal(found(held, "b", 9 + MS), 'x');
  assert_int_equal(found(held, "b", 9 + 2 * MS), '-'); /* another outage */
  fill.made = 20 * MS;
  crl_outbox_keep(held, "c", 1, &fill);
  assert_string_equal(given(held, 20 * MS + 1, 16, NULL), ""); /* the store is back */
  assert_int_equal(found(held, "c", 21 * MS - 1), 'x');
  assert_int_equal(found(held, "c", 21 * MS), '-');
  crl_bytes_unref(fill.record);
  crl_outbox_free(held);
}

static void when_there_is_no_room_the_oldest_goes(void **state) {
  (void)state;
  char key[16];
  crl_outbox *held = crl_outbox_new(1000, MS);
  for (int i = 0; i < 10; i++) {
    snprintf(key, sizeof key, "k%d", i);
    keep(held, key, (char)('a' + i), i, i);
    assert_true(crl_outbox_weight(held) <= 1000);
  }
  assert_int_equal(found(held, "k0", 10), '-');
  assert_int_equal(found(held, "k9", 10), 'j');
  crl_outbox_fill large = {.record = record_of('L', 2000), .hard_ttl = MS, .began = 20, .made = 20};
  crl_outbox_keep(held, "large", 5, &large);
  crl_bytes_unref(large.record);
  /* larger than outbox_bytes: not kept, and nothing is evicted for it */
  assert_int_equal(found(held, "large", 20), '-');
  assert_int_equal(found(held, "k9", 20), 'j');
  crl_outbox_free(held);
}

static void each_is_given_out_once_the_oldest_first_and_still_found(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 'x', 1, 1);
  keep(held, "b", 'y', 2, 2);
  keep(held, "c", 'z', 3, 3);
  assert_string_equal(given(held, 10, 2, NULL), "a:x b:y ");
  assert_string_equal(given(held, 10, 2, NULL), "c:z ");
  assert_string_equal(given(held, 10, 2, NULL), "");
  assert_int_equal(found(held, "a", 10), 'x');
  keep(held, "b", 'w', 60, 60); /* a newer fill is replayed although the key was replayed before */
  assert_string_equal(given(held, 61, 16, NULL), "b:w ");
  crl_outbox_free(held);
}

static void what_could_not_be_offered_is_given_out_again(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_entry entry;
  keep(held, "a", 'x', 1, 1);
  keep(held, "b", 'y', 1, 1);
  assert_int_equal(crl_outbox_replay(held, 2, only, (void *)(uintptr_t) "b", &entry, 1), 1);
  crl_outbox_return(held, &entry);
  crl_outbox_entry_clean(&entry);
  assert_string_equal(given(held, 2, 16, NULL), "a:x b:y ");
  crl_outbox_free(held);
}

static void what_is_made_later_than_that_moment_is_left_for_the_next_time(void **state) {
  (void)state;
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  keep(held, "a", 'x', 1, 10);
  assert_string_equal(given(held, 9, 16, NULL), "");
  assert_string_equal(given(held, 10, 16, NULL), "a:x ");
  crl_outbox_free(held);
}

static void switched_off_it_keeps_nothing(void **state) {
  (void)state;
  /* outbox_bytes, outbox_ms = CORRAL_OFF */
  crl_outbox *no_room = crl_outbox_new(-1, MS), *no_time = crl_outbox_new(BYTES, -1);
  keep(no_room, "a", 'x', 1, 1);
  keep(no_time, "a", 'x', 1, 1);
  assert_int_equal(crl_outbox_count(no_room) + crl_outbox_count(no_time), 0);
  crl_outbox_free(no_room);
  crl_outbox_free(no_time);
}

static void without_memory_nothing_is_kept_and_nothing_breaks(void **state) {
  (void)state;
  crl_alloc_countdown = 0;
  assert_null(crl_outbox_new(BYTES, MS));
  crl_outbox *held = crl_outbox_new(BYTES, MS);
  crl_outbox_fill fill = {
      .record = record_of('x', SIZE), .version = 1, .hard_ttl = MS, .began = 1, .made = 1};
  crl_alloc_countdown = 0;
  crl_outbox_keep(held, "a", 1, &fill);
  assert_int_equal(crl_outbox_count(held), 0);
  crl_outbox_keep(held, "a", 1, &fill);
  crl_alloc_countdown = 0;
  assert_string_equal(given(held, 2, 16, NULL), "");
  assert_string_equal(given(held, 2, 16, NULL), "a:x ");
  /* Not even then is an invalidation forgotten. */
  crl_outbox_invalidate(held, "b", 1, NULL, 2);
  fill.began = fill.made = 3;
  crl_alloc_countdown = 0;
  crl_outbox_keep(held, "b", 1, &fill);
  assert_string_equal(given(held, 4, 16, "b"), "b:! ");
  crl_bytes_unref(fill.record);
  crl_outbox_free(held);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(of_each_key_the_newest_is_kept),
      cmocka_unit_test(an_invalidation_counts_for_what_began_before_it),
      cmocka_unit_test(a_fill_after_an_invalidation_does_not_make_it_forgotten),
      cmocka_unit_test(what_takes_the_place_of_an_invalidated_record_is_replayed_with_it),
      cmocka_unit_test(
          a_fill_of_the_store_makes_earlier_wishes_and_fills_forgotten_and_no_later_ones),
      cmocka_unit_test(a_fill_that_was_under_way_when_the_store_heard_an_invalidation_is_not_kept),
      cmocka_unit_test(a_wish_to_invalidate_stays_when_the_fill_is_dropped),
      cmocka_unit_test(a_fill_without_a_version_is_never_given_to_the_store),
      cmocka_unit_test(what_is_too_old_is_forgotten),
      cmocka_unit_test(a_fill_serves_as_long_as_it_lives_while_the_outage_goes_on),
      cmocka_unit_test(when_there_is_no_room_the_oldest_goes),
      cmocka_unit_test(each_is_given_out_once_the_oldest_first_and_still_found),
      cmocka_unit_test(what_could_not_be_offered_is_given_out_again),
      cmocka_unit_test(what_is_made_later_than_that_moment_is_left_for_the_next_time),
      cmocka_unit_test(switched_off_it_keeps_nothing),
      cmocka_unit_test(without_memory_nothing_is_kept_and_nothing_breaks),
  };
  return cmocka_run_group_tests_name("held", tests, NULL, NULL);
}
