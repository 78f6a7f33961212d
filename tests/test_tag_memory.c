/* test_tag_memory.c: the tags that keys were last seen with, of as many keys as there is room
 * for. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "os/hash.h"
#include "tags/tag_memory.h"

static uint64_t hash_of(size_t i) { return crl_hash(&i, sizeof i); }

static crl_tags tags;

/* Notes a key with `count` tags, named by the key and a number. */
static void note(crl_tag_memory *memory, size_t key, int count) {
  char name[64];
  tags.count = 0;
  for (int i = 0; i < count; i++)
    crl_tags_add(&tags, name, (size_t)snprintf(name, sizeof name, "%zu %d", key, i));
  crl_tag_memory_note(memory, hash_of(key), &tags);
}

/* Number of tags that are wanted for a key; each must have its name. */
static size_t wanted(crl_tag_memory *memory, size_t key) {
  char name[64];
  crl_tag_versions list = {0};
  crl_tag_memory_want(memory, hash_of(key), &list);
  for (size_t i = 0; i < list.count; i++) {
    int len = snprintf(name, sizeof name, "%zu %zu", key, i);
    assert_int_equal(list.tag_version[i].len, len);
    assert_memory_equal(list.tag_version[i].name, name, (size_t)len);
    assert_int_equal(list.tag_version[i].status, CRL_TAG_WANTED);
  }
  size_t count = list.count;
  crl_tag_versions_clean(&list);
  return count;
}

static void the_last_tags_of_a_key_are_wanted(void **state) {
  (void)state;
  crl_tag_memory *memory = crl_tag_memory_new();
  assert_int_equal(wanted(memory, 1), 0);
  note(memory, 1, 3);
  assert_int_equal(wanted(memory, 1), 3);
  assert_int_equal(wanted(memory, 2), 0);
  note(memory, 1, CORRAL_TAGS_MAX);
  assert_int_equal(wanted(memory, 1), CORRAL_TAGS_MAX);
  note(memory, 1, 0);
  assert_int_equal(wanted(memory, 1), 0);
  crl_tag_memory_free(memory);
}

static void names_that_are_too_long_are_not_remembered(void **state) {
  (void)state;
  char name[CORRAL_TAG_MAX];
  crl_tag_memory *memory = crl_tag_memory_new();
  note(memory, 1, 2);
  memset(name, 'x', sizeof name);
  tags.count = 0;
  for (size_t used = 0; used <= CRL_TAG_MEMORY_BYTES; used += 1 + sizeof name) {
    name[0]++;
    assert_non_null(crl_tags_add(&tags, name, sizeof name));
  }
  crl_tag_memory_note(memory, hash_of(1), &tags);
  assert_int_equal(wanted(memory, 1), 0);
  crl_tag_memory_free(memory);
}

static void half_as_many_keys_as_there_is_room_for_are_all_known(void **state) {
  (void)state;
  crl_tag_memory *memory = crl_tag_memory_new();
  for (size_t i = 0; i < CRL_TAG_MEMORY / 2; i++) note(memory, i, 2);
  for (size_t i = 0; i < CRL_TAG_MEMORY / 2; i++) assert_int_equal(wanted(memory, i), 2);
  crl_tag_memory_free(memory);
}

static void the_oldest_keys_are_forgotten(void **state) {
  (void)state;
  size_t known = 0, count = 4 * (size_t)CRL_TAG_MEMORY;
  crl_tag_memory *memory = crl_tag_memory_new();
  for (size_t i = 0; i < count; i++) note(memory, i, 1);
  for (size_t i = 0; i < count / 2; i++) assert_int_equal(wanted(memory, i), 0);
  for (size_t i = 0; i < count; i++) known += wanted(memory, i);
  assert_int_equal(known, CRL_TAG_MEMORY);
  crl_tag_memory_free(memory);
}

static void without_memory_nothing_is_remembered(void **state) {
  (void)state;
  crl_tag_memory *memory = crl_tag_memory_new();
  note(memory, 1, 2);
  for (long fails = 0; fails < 2; fails++) {
    atomic_store(&crl_alloc_countdown, fails);
    note(memory, 2 + (size_t)fails, 2);
    atomic_store(&crl_alloc_countdown, -1);
  }
  note(memory, 1, 2);
  assert_int_equal(wanted(memory, 1), 2);
  assert_int_equal(wanted(memory, 2), 0);
  crl_tag_memory_free(memory);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(the_last_tags_of_a_key_are_wanted),
      cmocka_unit_test(names_that_are_too_long_are_not_remembered),
      cmocka_unit_test(half_as_many_keys_as_there_is_room_for_are_all_known),
      cmocka_unit_test(the_oldest_keys_are_forgotten),
      cmocka_unit_test(without_memory_nothing_is_remembered),
  };
  return cmocka_run_group_tests_name("tag memory", tests, NULL, NULL);
}
