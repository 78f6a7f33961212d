/* test_set.c: what corral_set can give a value besides its bytes: tags, version, validator; and
 * what belongs to a call for each function about a key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <corral/loop.h>

#include "support/answers_kit.h"

static corral_error error;

static corral *with_near(const char *uri) {
  return opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .op_ms = 20000));
}

static int set(corral *c, const char *text, const corral_call *call) {
  return corral_set(c, "k", 1, call, text, strlen(text));
}

/* "" when the store has no usable value. */
static const char *text_of(corral *c) {
  static char text[64];
  corral_value *value = NULL;
  int status = corral_get(c, "k", 1, NULL, &value);
  assert_true(status == CORRAL_OK || status == CORRAL_EMISS);
  snprintf(text, sizeof text, "%.*s", value == NULL ? 0 : (int)corral_value_size(value),
           value == NULL ? "" : (const char *)corral_value_data(value));
  corral_value_unref(value);
  return text;
}

/* A test that tells its story on each store. */
#define STORY(name)                                                                                \
  static void name(void **state) {                                                                 \
    (void)state;                                                                                   \
    on_each(name##_on);                                                                            \
  }

#define TAGS(...)                                                                                  \
  .tags = (const corral_tag[]) { __VA_ARGS__ }

static void a_set_value_is_found_by_each_of_its_tags_on(const char *uri) {
  static const char *const names[] = {"red", "blue"};
  corral *c = with_near(uri);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(set(c, "v", CORRAL_CALL(TAGS({"red", 3}, {"blue", 4}), .tag_count = 2)),
                     CORRAL_OK);
    assert_string_equal(text_of(c), "v");
    assert_int_equal(corral_invalidate_tag(c, "green", 5, &error), CORRAL_OK);
    assert_string_equal(text_of(c), "v");
    assert_int_equal(corral_invalidate_tag(c, names[i], strlen(names[i]), &error), CORRAL_OK);
    assert_string_equal(text_of(c), "");
  }
  corral_close(c);
}

STORY(a_set_value_is_found_by_each_of_its_tags)

static void a_set_value_is_expired_by_its_tag_on(const char *uri) {
  corral *c = with_near(uri);
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(
      set(c, "v",
          CORRAL_CALL(.policy = CORRAL_POLICY(.swr_ms = 60000), TAGS({"red", 3}), .tag_count = 1)),
      CORRAL_OK);
  assert_int_equal(corral_expire_tag(c, "red", 3, &error), CORRAL_OK);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_string_equal(seen.state, "stale");
  corral_close(c);
}

STORY(a_set_value_is_expired_by_its_tag)

static void a_set_value_is_never_stored_over_a_later_version_on(const char *uri) {
  corral *c = with_near(uri);
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(set(c, "seven", CORRAL_CALL(.version = 7)), CORRAL_OK);
  assert_int_equal(set(c, "six", CORRAL_CALL(.version = 6, .error = &error)), CORRAL_EOLDER);
  assert_int_equal(error.status, CORRAL_EOLDER);
  assert_string_equal(text_of(c), "seven");
  assert_int_equal(set(c, "again", CORRAL_CALL(.version = 7)), CORRAL_OK);
  assert_string_equal(text_of(c), "again");
  assert_int_equal(set(c, "eight", CORRAL_CALL(.version = 8)), CORRAL_OK);
  assert_string_equal(text_of(c), "eight");
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_int_equal(seen.version, 8);
  assert_int_equal(seen.lease_left_ms, 0);
  assert_int_equal(set(c, "none", NULL), CORRAL_OK);
  assert_string_equal(text_of(c), "none");
  corral_close(c);
}

STORY(a_set_value_is_never_stored_over_a_later_version)

/* A compute that began before is fenced, also when the value has a version. */
static int set_meanwhile(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  assert_int_equal(set(arg, "set", CORRAL_CALL(.version = 3)), CORRAL_OK);
  corral_fill_version(fill, 2);
  return corral_fill_bytes(fill, "computed", 8);
}

static void a_set_value_with_a_version_voids_a_compute_under_way_on(const char *uri) {
  corral *c = with_near(uri);
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, set_meanwhile, c, &value), CORRAL_OK);
  assert_int_equal(corral_value_kept(value), CORRAL_KEPT_FENCED);
  corral_value_unref(value);
  assert_string_equal(text_of(c), "set");
  corral_close(c);
}

STORY(a_set_value_with_a_version_voids_a_compute_under_way)

static int see_validator(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  size_t size;
  const void *validator = corral_fill_old_validator(fill, &size);
  (void)key;
  (void)key_len;
  snprintf(arg, 16, "%.*s", (int)size, validator == NULL ? "" : (const char *)validator);
  return corral_fill_not_modified(fill);
}

static void the_next_compute_sees_the_validator_of_a_set_value_on(const char *uri) {
  char seen[16] = "";
  corral *c = with_near(uri);
  corral_value *value = NULL;
  const corral_policy *policy = CORRAL_POLICY(.sie_ms = 60000);
  assert_int_equal(
      set(c, "v", CORRAL_CALL(.policy = policy, .validator = "\"e1\"", .validator_len = 4)),
      CORRAL_OK);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "k", 1, CORRAL_CALL(.policy = policy, .error = &error),
                                         see_validator, seen, &value),
                   CORRAL_OK);
  assert_string_equal(seen, "\"e1\"");
  assert_int_equal(corral_value_size(value), 1);
  corral_value_unref(value);
  corral_close(c);
}

STORY(the_next_compute_sees_the_validator_of_a_set_value)

static void what_a_set_can_not_store_is_named_on(const char *uri) {
  static char long_one[CORRAL_VALIDATOR_MAX + 1];
  corral_tag many[CORRAL_TAGS_MAX + 1];
  corral *c = with_near(uri);
  for (size_t i = 0; i < CORRAL_TAGS_MAX + 1; i++)
    many[i] = (corral_tag){.name = &long_one[i], .len = i + 1};
  assert_int_equal(
      set(c, "v", CORRAL_CALL(.tags = many, .tag_count = CORRAL_TAGS_MAX + 1, .error = &error)),
      CORRAL_ETOOBIG);
  assert_non_null(strstr(error.text, "17 tags"));
  assert_int_equal(set(c, "v", CORRAL_CALL(.tags = many, .tag_count = CORRAL_TAGS_MAX)), CORRAL_OK);
  assert_int_equal(set(c, "v", CORRAL_CALL(TAGS({"", 0}), .tag_count = 1, .error = &error)),
                   CORRAL_EINVAL);
  assert_int_equal(set(c, "v", CORRAL_CALL(.tag_count = 1, .error = &error)), CORRAL_EINVAL);
  assert_int_equal(
      set(c, "v",
          CORRAL_CALL(.validator = long_one, .validator_len = sizeof long_one, .error = &error)),
      CORRAL_ETOOBIG);
  assert_int_equal(set(c, "v", CORRAL_CALL(.validator_len = 1, .error = &error)), CORRAL_EINVAL);
  corral_close(c);
}

STORY(what_a_set_can_not_store_is_named)

static void what_is_for_a_set_is_refused_by_other_functions_on(const char *uri) {
  corral *c = with_near(uri);
  corral_value *value = NULL;
  corral_inspection seen = {.size = sizeof seen};
  const corral_call *calls[] = {CORRAL_CALL(.version = 1, .error = &error),
                                CORRAL_CALL(TAGS({"t", 1}), .tag_count = 1, .error = &error),
                                CORRAL_CALL(.validator = "v", .validator_len = 1, .error = &error)};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(corral_get(c, "k", 1, calls[i], &value), CORRAL_EINVAL);
    assert_non_null(strstr(error.text, "corral_set alone"));
    assert_int_equal(corral_peek(c, "k", 1, calls[i], &value), CORRAL_EINVAL);
    assert_int_equal(corral_invalidate(c, "k", 1, calls[i]), CORRAL_EINVAL);
    assert_int_equal(corral_inspect(c, "k", 1, calls[i], &seen), CORRAL_EINVAL);
  }
  corral_close(c);
}

STORY(what_is_for_a_set_is_refused_by_other_functions)

static void a_variant_is_expired_and_inspected_by_itself_on(const char *uri) {
  corral *c = with_near(uri);
  const corral_policy *graced = CORRAL_POLICY(.swr_ms = 60000);
  const corral_call *german = CORRAL_CALL(.policy = graced, .variant = "de", .variant_len = 2);
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(set(c, "all", CORRAL_CALL(.policy = graced)), CORRAL_OK);
  assert_int_equal(set(c, "alle", german), CORRAL_OK);
  assert_int_equal(corral_expire(c, "k", 1, german), CORRAL_OK);
  assert_int_equal(corral_inspect(c, "k", 1, german, &seen), CORRAL_OK);
  assert_string_equal(seen.state, "stale");
  assert_int_equal(seen.value_size, 4);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_string_equal(seen.state, "fresh");
  corral_close(c);
}

STORY(a_variant_is_expired_and_inspected_by_itself)

static void a_longer_call_and_inspection_follow_the_rule_of_sizes_on(const char *uri) {
  struct {
    corral_call known;
    char unknown[16];
  } call = {.known = {.size = sizeof call, .error = &error}};
  struct {
    corral_inspection known;
    char unknown[16];
  } seen;
  corral *c = with_near(uri);
  assert_int_equal(set(c, "v", &call.known), CORRAL_OK);
  memset(&seen, 0x5a, sizeof seen);
  seen.known.size = sizeof seen;
  assert_int_equal(corral_inspect(c, "k", 1, &call.known, &seen.known), CORRAL_OK);
  assert_int_equal(seen.known.size, sizeof seen);
  assert_string_equal(seen.known.state, "fresh");
  for (size_t i = 0; i < sizeof seen.unknown; i++) assert_int_equal(seen.unknown[i], 0);
  seen.known.size = 0;
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen.known), CORRAL_EINVAL);
  call.unknown[15] = 1;
  assert_int_equal(set(c, "v", &call.known), CORRAL_EOPTION);
  assert_int_equal(error.status, CORRAL_EOPTION);
  call.known.size = offsetof(corral_call, error);
  assert_int_equal(set(c, "v", &call.known), CORRAL_OK);
  corral_close(c);
}

STORY(a_longer_call_and_inspection_follow_the_rule_of_sizes)

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  start_servers();
  const struct CMUnitTest tests[] = {
      T(a_set_value_is_found_by_each_of_its_tags),
      T(a_set_value_is_expired_by_its_tag),
      T(a_set_value_is_never_stored_over_a_later_version),
      T(a_set_value_with_a_version_voids_a_compute_under_way),
      T(the_next_compute_sees_the_validator_of_a_set_value),
      T(what_a_set_can_not_store_is_named),
      T(what_is_for_a_set_is_refused_by_other_functions),
      T(a_variant_is_expired_and_inspected_by_itself),
      T(a_longer_call_and_inspection_follow_the_rule_of_sizes),
  };
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  stop_servers();
  return failed;
}
