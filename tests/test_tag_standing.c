/* test_tag_standing.c: how the versions of its tags judge a value: void before expired, whatever
 * the order of the tags. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "base/status.h"
#include "tags/tag_versions.h"

/* The version of a tag now; the value remembers 1 and 1. */
typedef struct now {
  uint64_t hard, soft;
} now;

static const now same = {1, 1}, expired = {1, 2}, invalidated = {2, 2}, only_hard = {2, 1};

static crl_standing judged(now first, now second) {
  crl_tag_version versions[2] = {{.hard = first.hard, .soft = first.soft, .len = 1, .name = "a"},
                                 {.hard = second.hard, .soft = second.soft, .len = 1, .name = "b"}};
  crl_tag_versions list = {.count = 2, .room = 2, .tag_version = versions};
  static crl_tags tags;
  tags.count = 0;
  for (int i = 0; i < 2; i++) {
    crl_tag *tag = crl_tags_add(&tags, i == 0 ? "a" : "b", 1);
    assert_non_null(tag);
    tag->hard = tag->soft = 1;
  }
  return crl_tag_versions_judge(&list, &tags);
}

static void a_value_stands_while_its_tags_are_unchanged(void **state) {
  (void)state;
  assert_int_equal(judged(same, same), CRL_STANDS);
}

static void an_expired_tag_expires_it(void **state) {
  (void)state;
  assert_int_equal(judged(expired, same), CRL_STANDS_EXPIRED);
  assert_int_equal(judged(same, expired), CRL_STANDS_EXPIRED);
  assert_int_equal(judged(expired, expired), CRL_STANDS_EXPIRED);
}

static void an_invalidated_tag_voids_it_also_behind_an_expired_one(void **state) {
  (void)state;
  const now voids[] = {invalidated, only_hard};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(judged(voids[i], same), CRL_STANDS_VOID);
    assert_int_equal(judged(same, voids[i]), CRL_STANDS_VOID);
    assert_int_equal(judged(voids[i], expired), CRL_STANDS_VOID);
    assert_int_equal(judged(expired, voids[i]), CRL_STANDS_VOID);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_value_stands_while_its_tags_are_unchanged),
      cmocka_unit_test(an_expired_tag_expires_it),
      cmocka_unit_test(an_invalidated_tag_voids_it_also_behind_an_expired_one),
  };
  return cmocka_run_group_tests_name("tag_standing", tests, NULL, NULL);
}
