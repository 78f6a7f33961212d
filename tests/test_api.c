/* test_api.c: the public functions and the rules of corral.h, on the stores that need no server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/lock.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/herd_lab.h"
#include "support/fork_kit.h"

enum { KEY_MOST = 65536, MIB = 1 << 20 };

/* ---- helpers ------------------------------------------------------------------------------- */

static int give_x(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "x", 1);
}

static corral *opened(const corral_options *options) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(options, &c, &error) != CORRAL_OK) fail_msg("%s: %s", options->store, error.text);
  return c;
}

/* corral_get must return this text and this `how`. */
static void gets(corral *c, const char *key, const corral_call *call, const char *text,
                 corral_how how) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), call, &value);
  if (status != CORRAL_OK) fail_msg("corral_get(%s): %s", key, corral_status_name(status));
  if (corral_value_size(value) != strlen(text) ||
      memcmp(corral_value_data(value), text, strlen(text)) != 0)
    fail_msg("%s is '%.*s', not '%s'", key, (int)corral_value_size(value),
             (const char *)corral_value_data(value), text);
  assert_string_equal(corral_how_name(corral_value_how(value)), corral_how_name(how));
  corral_value_unref(value);
}

static int status_of(corral *c, const char *key, const corral_call *call) {
  corral_value *value = NULL;
  int status = corral_get(c, key, strlen(key), call, &value);
  corral_value_unref(value);
  return status;
}

static const char *state_of(corral *c, const char *key) {
  static corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(corral_inspect(c, key, strlen(key), NULL, &seen), CORRAL_OK);
  return seen.state;
}

/* Runs the story once on each store. */
static void on_each(void (*story)(const char *uri)) {
  story("memory:");
  story(lab_lmdb(lab_room, "store"));
}

/* ---- single operations --------------------------------------------------------------------- */

static void plain_story(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(status_of(c, "k", NULL), CORRAL_EMISS);
  assert_string_equal(state_of(c, "k"), "none");
  assert_int_equal(
      corral_set(c, "k", 1,
                 CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 50000, .jitter_pct = CORRAL_OFF,
                                                     .swr_ms = 7000)),
                 "one", 3),
      CORRAL_OK);
  gets(c, "k", NULL, "one", CORRAL_FRESH);
  assert_int_equal(corral_set(c, "k", 1, NULL, "two", 3), CORRAL_OK);
  gets(c, "k", NULL, "two", CORRAL_FRESH);
  assert_int_equal(
      corral_set(c, "k", 1,
                 CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 50000, .jitter_pct = CORRAL_OFF,
                                                     .swr_ms = 7000)),
                 "three", 5),
      CORRAL_OK);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, &seen), CORRAL_OK);
  assert_string_equal(seen.state, "fresh");
  assert_int_equal(seen.value_size, 5);
  assert_true(seen.stored_size > 5);
  assert_int_equal(seen.ttl_ms, 50000);
  assert_int_equal(seen.swr_ms, 7000);
  assert_in_range(seen.left_ms, 57000 - 20000, 57000);
  assert_in_range(seen.age_ms, 0, 20000);
  assert_int_equal(seen.lease_left_ms, 0);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  gets(c, "k", NULL, "three", CORRAL_STALE);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(status_of(c, "k", NULL), CORRAL_EMISS);
  corral_close(c);
}

static void set_get_inspect_expire_invalidate(void **state) {
  (void)state;
  on_each(plain_story);
}

/* ---- fork ---------------------------------------------------------------------------------- */

/* Runs `child` in a child process; it must return 0. */
static void in_child(int (*child)(corral *c), corral *c) {
  int status = 0;
  fflush(NULL);
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) _exit(child(c));
  assert_int_equal(waitpid(pid, &status, 0), pid);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    fail_msg("the child ended with %#x", (unsigned)status);
}

static int uses_it(corral *c) {
  corral_value *value = NULL;
  if (corral_get_or_compute(c, "k", 1, NULL, give_x, NULL, &value) != CORRAL_OK) return 1;
  if (corral_value_size(value) != 1) return 2;
  corral_value_unref(value);
  corral_close(c);
  return 0;
}

static int is_refused_it(corral *c) {
  corral_value *value = NULL;
  corral_inspection seen = {.size = sizeof seen};
  corral_error error = {0};
  if (corral_get(c, "k", 1, CORRAL_CALL(.error = &error), &value) != CORRAL_EFORKED) return 1;
  if (error.status != CORRAL_EFORKED || error.text[0] == '\0') return 2;
  if (corral_set(c, "k", 1, NULL, "x", 1) != CORRAL_EFORKED) return 3;
  if (corral_invalidate(c, "k", 1, NULL) != CORRAL_EFORKED ||
      corral_expire(c, "k", 1, NULL) != CORRAL_EFORKED)
    return 4;
  if (corral_inspect(c, "k", 1, NULL, &seen) != CORRAL_EFORKED) return 5;
  corral_close(c);
  return 0;
}

static void fork_story(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  in_child(uses_it, c);
  in_child(uses_it, c);
  assert_int_equal(corral_set(c, "k", 1, NULL, "x", 1), CORRAL_OK);
  in_child(is_refused_it, c);
  gets(c, "k", NULL, "x", CORRAL_FRESH);
  assert_int_equal(corral_set(c, "l", 1, NULL, "y", 1), CORRAL_OK);
  corral_close(c);
}

static void a_handle_may_be_forked_until_it_is_used(void **state) {
  (void)state;
  on_each(fork_story);
}

/* ---- keys, values -------------------------------------------------------------------------- */

static void keys_story(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .name_space = "shop"));
  corral_error error = {0};
  corral_value *value = NULL;
  char *key = calloc(1, KEY_MOST + 1);
  assert_non_null(key);
  assert_int_equal(corral_set(c, key, 0, CORRAL_CALL(.error = &error), "x", 1), CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "empty"));
  assert_int_equal(corral_set(c, key, KEY_MOST + 1, CORRAL_CALL(.error = &error), "x", 1),
                   CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "65536"));
  assert_int_equal(corral_set(c, key, KEY_MOST, CORRAL_CALL(.error = &error), "most", 4),
                   CORRAL_OK);
  key[KEY_MOST - 1] = 1;
  assert_int_equal(corral_get(c, key, KEY_MOST, NULL, &value), CORRAL_EMISS);
  key[KEY_MOST - 1] = 0;
  assert_int_equal(corral_get(c, key, KEY_MOST, NULL, &value), CORRAL_OK);
  assert_memory_equal(corral_value_data(value), "most", 4);
  corral_value_unref(value);
  assert_int_equal(corral_set(c, key, 1, NULL, NULL, 0), CORRAL_OK);
  assert_int_equal(corral_get(c, key, 1, NULL, &value), CORRAL_OK);
  assert_int_equal(corral_value_size(value), 0);
  assert_non_null(corral_value_data(value));
  corral_value_unref(value);
  free(key);
  corral_close(c);
}

static void keys_are_1_to_65536_of_any_bytes_and_values_may_be_empty(void **state) {
  (void)state;
  on_each(keys_story);
}

static int fill_64_mib(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  uint8_t *room64 = corral_fill_reserve(fill, 64 * MIB);
  (void)key;
  (void)key_len;
  (void)arg;
  for (size_t i = 0; room64 != NULL && i < 64 * MIB; i++) room64[i] = (uint8_t)(i * 31 >> 3);
  return room64 == NULL ? CORRAL_ENOMEM : CORRAL_OK;
}

static void large_story(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_value *made = NULL, *found = NULL;
  assert_int_equal(corral_get_or_compute(c, "k", 1,
                                         CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20000)),
                                         fill_64_mib, NULL, &made),
                   CORRAL_OK);
  assert_int_equal(corral_value_kept(made), CORRAL_KEPT);
  assert_int_equal(
      corral_get(c, "k", 1, CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 20000)), &found),
      CORRAL_OK);
  assert_int_equal(corral_value_how(found), CORRAL_FRESH);
  assert_int_equal(corral_value_size(found), 64 * MIB);
  assert_int_equal(memcmp(corral_value_data(made), corral_value_data(found), 64 * MIB), 0);
  corral_close(c);
  assert_int_equal(((const uint8_t *)corral_value_data(found))[64 * MIB - 1],
                   (uint8_t)((64u * MIB - 1) * 31ul >> 3));
  corral_value_unref(made);
  corral_value_unref(found);
}

static void a_value_of_64_mib_comes_back_and_outlives_its_corral(void **state) {
  (void)state;
  large_story("memory:?size=256m");
  large_story(lab_lmdb(lab_room, "large?size=512m"));
}

static void a_value_above_max_value_is_refused(void **state) {
  (void)state;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:", .max_value = 8));
  assert_int_equal(corral_set(c, "k", 1, NULL, "12345678", 8), CORRAL_OK);
  assert_int_equal(corral_set(c, "k", 1, NULL, "123456789", 9), CORRAL_ETOOBIG);
  corral_close(c);
}

static void namespace_story(const char *uri) {
  corral *shop = opened(CORRAL_OPTIONS(.store = uri, .name_space = "shop"));
  corral *blog = opened(CORRAL_OPTIONS(.store = uri, .name_space = "blog"));
  corral *bare = opened(CORRAL_OPTIONS(.store = uri));
  assert_int_equal(corral_set(shop, "k", 1, NULL, "shop's", 6), CORRAL_OK);
  assert_int_equal(status_of(blog, "k", NULL), CORRAL_EMISS);
  assert_int_equal(status_of(bare, "k", NULL), CORRAL_EMISS);
  assert_int_equal(corral_set(blog, "k", 1, NULL, "blog's", 6), CORRAL_OK);
  assert_int_equal(corral_invalidate(blog, "k", 1, NULL), CORRAL_OK);
  gets(shop, "k", NULL, "shop's", CORRAL_FRESH);
  assert_int_equal(status_of(bare, "shop:k", NULL), CORRAL_EMISS);
  corral_close(shop);
  corral_close(blog);
  corral_close(bare);
}

static void a_namespace_separates(void **state) {
  (void)state;
  namespace_story("memory:shared");
  namespace_story(lab_lmdb(lab_room, "store"));
}

/* Pairs that would be one key of the store if namespaces weren't escaped. */
static void twins_story(const char *uri) {
  corral *app = opened(CORRAL_OPTIONS(.store = uri, .name_space = "app"));
  corral *admin = opened(CORRAL_OPTIONS(.store = uri, .name_space = "app:admin"));
  corral *bare = opened(CORRAL_OPTIONS(.store = uri));
  assert_int_equal(corral_set(app, "admin:x", 7, NULL, "user's", 6), CORRAL_OK);
  assert_int_equal(status_of(admin, "x", NULL), CORRAL_EMISS);
  assert_int_equal(status_of(bare, "app:admin:x", NULL), CORRAL_EMISS);
  assert_int_equal(corral_set(admin, "x", 1, NULL, "admin's", 7), CORRAL_OK);
  assert_int_equal(corral_set(bare, "app:admin:x", 11, NULL, "nobody's", 8), CORRAL_OK);
  gets(app, "admin:x", NULL, "user's", CORRAL_FRESH);
  gets(admin, "x", NULL, "admin's", CORRAL_FRESH);
  gets(bare, "app:admin:x", NULL, "nobody's", CORRAL_FRESH);
  corral_close(app);
  corral_close(admin);
  corral_close(bare);
}

static void a_namespace_and_a_key_are_never_another_namespaces_key(void **state) {
  (void)state;
  twins_story("memory:twins");
  twins_story(lab_lmdb(lab_room, "twins"));
}

static int give_tagged(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_tag(fill, "T", 1) == CORRAL_OK ? corral_fill_bytes(fill, "x", 1)
                                                    : CORRAL_ENOMEM;
}

static void a_users_key_is_never_a_tags_a_locks_or_a_variants(void **state) {
  (void)state;
  static const char *const names[] = {"corral-tag:T", "~tag::T",    ":~tag::T",      "lock:L",
                                      "~lock::L",     "k\nvary de", "~variant::de:k"};
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:"));
  corral_call *german = CORRAL_CALL(.variant = "de", .variant_len = 2);
  corral_value *value;
  corral_lock *lock;
  assert_int_equal(corral_get_or_compute(c, "tagged", 6, NULL, give_tagged, NULL, &value),
                   CORRAL_OK);
  corral_value_unref(value);
  assert_int_equal(corral_set(c, "k", 1, german, "ja", 2), CORRAL_OK);
  assert_int_equal(corral_lock_take(c, "L", 1, CORRAL_LOCK(.ttl_ms = 60000), &lock, NULL),
                   CORRAL_OK);
  for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
    assert_int_equal(corral_set(c, names[i], strlen(names[i]), NULL, "forged", 6), CORRAL_OK);
    assert_int_equal(corral_invalidate(c, names[i], strlen(names[i]), NULL), CORRAL_OK);
    gets(c, "tagged", NULL, "x", CORRAL_FRESH);
    gets(c, "k", german, "ja", CORRAL_FRESH);
  }
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  corral_close(c);
}

/* ---- variants ------------------------------------------------------------------------------ */

static int give_variant(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  size_t size;
  const void *variant = corral_fill_variant(fill, &size);
  (void)key;
  (void)arg;
  assert_int_equal(key_len, 4);
  return variant == NULL ? corral_fill_bytes(fill, "none", 4)
                         : corral_fill_bytes(fill, variant, size);
}

static void variants_of_a_key_are_apart_and_the_compute_is_told_which(void **state) {
  (void)state;
  corral *c =
      opened(CORRAL_OPTIONS(.store = "memory:", .compute = give_variant, .near_bytes = 1 << 20));
  corral_call *german = CORRAL_CALL(.variant = "de", .variant_len = 2),
              *french = CORRAL_CALL(.variant = "fr", .variant_len = 2);
  for (int turn = 0; turn < 2; turn++) {
    corral_how how = turn == 0 ? CORRAL_COMPUTED : CORRAL_FRESH;
    gets(c, "page", NULL, "none", how);
    gets(c, "page", german, "de", how);
    gets(c, "page", french, "fr", how);
  }
  assert_int_equal(corral_set(c, "page", 4, german, "neu", 3), CORRAL_OK);
  gets(c, "page", german, "neu", CORRAL_FRESH);
  gets(c, "page", french, "fr", CORRAL_FRESH);
  assert_int_equal(corral_invalidate(c, "page", 4, NULL), CORRAL_OK);
  gets(c, "page", german, "neu", CORRAL_FRESH);
  assert_int_equal(corral_invalidate(c, "page", 4, CORRAL_CALL(.variant = "de", .variant_len = 2)),
                   CORRAL_OK);
  gets(c, "page", german, "de", CORRAL_COMPUTED);
  gets(c, "page", french, "fr", CORRAL_FRESH);
  corral_close(c);
}

static int give_other(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  corral_value *value = NULL;
  corral_call *german = CORRAL_CALL(.variant = "de", .variant_len = 2);
  size_t size;
  if (corral_fill_variant(fill, &size) == NULL) return corral_fill_bytes(fill, "inner", 5);
  assert_int_equal(corral_get_or_compute(arg, key, key_len, german, give_other, arg, &value),
                   CORRAL_ERECURSION);
  int status = corral_get_or_compute(arg, key, key_len, NULL, give_other, arg, &value);
  if (status == CORRAL_OK)
    status = corral_fill_bytes(fill, corral_value_data(value), corral_value_size(value));
  corral_value_unref(value);
  return status;
}

static void a_variants_compute_may_ask_for_the_key_but_not_for_itself(void **state) {
  (void)state;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:"));
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(c, "k", 1, CORRAL_CALL(.variant = "de", .variant_len = 2),
                                         give_other, c, &value),
                   CORRAL_OK);
  assert_int_equal(corral_value_size(value), 5);
  corral_value_unref(value);
  corral_close(c);
}

static void the_stored_key_can_be_asked_for(void **state) {
  (void)state;
  char room[64];
  size_t len = 0;
  corral_error error;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:", .name_space = "a:b"));
  corral_call *german = CORRAL_CALL(.variant = "de", .variant_len = 2, .error = &error);
  assert_int_equal(
      corral_encode_key(c, CORRAL_KEY_VALUE, "k:1", 3, german, room, sizeof room, &len), CORRAL_OK);
  assert_int_equal(len, 21);
  assert_memory_equal(room, "~variant:a%3Ab:de:k:1", 21);
  assert_int_equal(corral_encode_key(c, CORRAL_KEY_LOCK, "k", 1, NULL, room, sizeof room, &len),
                   CORRAL_OK);
  assert_memory_equal(room, "~lock:a%3Ab:k", len);
  assert_int_equal(corral_encode_key(c, CORRAL_KEY_TAG, "k", 1, german, room, sizeof room, &len),
                   CORRAL_EINVAL);
  assert_int_equal(corral_encode_key(c, CORRAL_KEY_TAG, "k", 1, NULL, room, 3, &len),
                   CORRAL_ETOOBIG);
  german->variant_len = 1025;
  assert_int_equal(corral_encode_key(c, CORRAL_KEY_VALUE, "k", 1, german, room, sizeof room, &len),
                   CORRAL_EINVAL);
  assert_string_equal(error.text, "the variant has 1025 bytes; accepted: 1 to 1024, or 0 and none");
  corral_close(c);
}

/* ---- wrong arguments ----------------------------------------------------------------------- */

static void null_is_an_answer_and_not_a_crash(void **state) {
  (void)state;
  corral *c = NULL;
  corral_value *value = NULL;
  corral_inspection seen = {.size = sizeof seen};
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:"), NULL, NULL), CORRAL_EINVAL);
  assert_int_equal(corral_open(NULL, &c, NULL), CORRAL_EINVAL);
  assert_true(corral_open(CORRAL_OPTIONS(.store = NULL), &c, NULL) < 0);
  assert_null(c);
  assert_int_equal(corral_get(NULL, "k", 1, NULL, &value), CORRAL_EINVAL);
  assert_int_equal(corral_invalidate(NULL, "k", 1, NULL), CORRAL_EINVAL);
  c = opened(CORRAL_OPTIONS(.store = "memory:"));
  assert_int_equal(corral_get(c, NULL, 1, NULL, &value), CORRAL_EINVAL);
  assert_int_equal(corral_get(c, "k", 1, NULL, NULL), CORRAL_EINVAL);
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, NULL, NULL, &value), CORRAL_EINVAL);
  assert_int_equal(corral_get_or_compute(c, "k", 1, NULL, give_x, NULL, NULL), CORRAL_EINVAL);
  assert_int_equal(corral_set(c, "k", 1, NULL, NULL, 1), CORRAL_EINVAL);
  assert_int_equal(corral_inspect(c, "k", 1, NULL, NULL), CORRAL_EINVAL);
  assert_null(value);
  assert_int_equal(corral_counter(NULL, CORRAL_EVENT_HIT), 0);
  assert_non_null(corral_event_name(CORRAL_EVENT_COUNT));
  corral_value_unref(NULL);
  corral_close(c);
  corral_close(NULL);
}

/* corral_open must fail with EINVAL and a text with the option's name and limit. */
static void refuses(const corral_options *options, const char *name, long long limit) {
  corral *c = NULL;
  corral_error error = {0};
  char number[24];
  snprintf(number, sizeof number, "%lld", limit);
  if (corral_open(options, &c, &error) != CORRAL_EINVAL)
    fail_msg("%s: not refused beyond %lld", name, limit);
  if (strstr(error.text, name) == NULL || strstr(error.text, number) == NULL)
    fail_msg("%s: '%s'", name, error.text);
}

static void an_option_out_of_range_is_named_with_its_range(void **state) {
  (void)state;
#define BELOW(least) ((least) == 1 ? -2 : (least)-1)
#define OPTION(field, name, group, unit, def, least, most, command, nginx, sentence)               \
  refuses(CORRAL_OPTIONS(.store = "memory:", .field = (most) + INT64_C(1)), #field,                \
          (long long)(most));                                                                      \
  refuses(CORRAL_OPTIONS(.store = "memory:", .field = BELOW(least)), #field, (long long)(least));
#define POLICY(field, name, group, unit, def, least, most, command, nginx, sentence)               \
  refuses(                                                                                         \
      CORRAL_OPTIONS(.store = "memory:", .policy = CORRAL_POLICY(.field = (most) + INT64_C(1))),   \
      #field, (long long)(most));                                                                  \
  refuses(CORRAL_OPTIONS(.store = "memory:", .policy = CORRAL_POLICY(.field = BELOW(least))),      \
          #field, (long long)(least));
  CORRAL_OPTION_MAP(OPTION)
  CORRAL_POLICY_MAP(POLICY)
}

static void an_unknown_scheme_is_told_what_exists(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "nosuch://host"), &c, &error),
                   CORRAL_ENOPLUGIN);
  assert_non_null(strstr(error.text, "nosuch"));
  assert_non_null(strstr(error.text, "memory"));
  assert_non_null(strstr(error.text, "lmdb"));
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "no scheme"), &c, &error), CORRAL_EURI);
}

#define LONG_SCHEME "a234567890123456789012345678901234567890123456789012345678901234"

static void a_scheme_that_is_too_long_is_told_the_limit(void **state) {
  (void)state;
  corral *c = NULL;
  corral_error error = {0};
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = LONG_SCHEME "://host"), &c, &error),
                   CORRAL_EURI);
  assert_non_null(strstr(error.text, "a scheme has at most 63 characters"));
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .origin = LONG_SCHEME "://host"), &c, &error),
      CORRAL_EURI);
  assert_string_equal(error.text, "origin: a scheme has at most 63 characters");
}

static void options_of_a_newer_header_are_refused_once_they_are_used(void **state) {
  (void)state;
  struct {
    corral_options known;
    int64_t newer;
  } longer = {.known = {.size = sizeof longer, .store = "memory:"}};
  struct {
    corral_policy known;
    int64_t newer;
  } policy = {.known = {.size = sizeof policy}};
  corral_error error = {0};
  corral *c = opened(&longer.known);
  assert_int_equal(corral_set(c, "k", 1, CORRAL_CALL(.policy = &policy.known), "x", 1), CORRAL_OK);
  policy.newer = policy.known.size != 0;
  assert_int_equal(
      corral_set(c, "k", 1, CORRAL_CALL(.policy = &policy.known, .error = &error), "x", 1),
      CORRAL_EOPTION);
  assert_int_equal(error.status, CORRAL_EOPTION);
  corral_close(c);
  longer.newer = longer.known.size != 0;
  assert_int_equal(corral_open(&longer.known, &c, &error), CORRAL_EOPTION);
  assert_non_null(strstr(error.text, CORRAL_VERSION));
}

#define IN_ROOM(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      IN_ROOM(set_get_inspect_expire_invalidate),
      IN_ROOM(a_handle_may_be_forked_until_it_is_used),
      IN_ROOM(keys_are_1_to_65536_of_any_bytes_and_values_may_be_empty),
      IN_ROOM(a_value_of_64_mib_comes_back_and_outlives_its_corral),
      IN_ROOM(a_value_above_max_value_is_refused),
      IN_ROOM(a_namespace_separates),
      IN_ROOM(a_namespace_and_a_key_are_never_another_namespaces_key),
      cmocka_unit_test(a_users_key_is_never_a_tags_a_locks_or_a_variants),
      cmocka_unit_test(variants_of_a_key_are_apart_and_the_compute_is_told_which),
      cmocka_unit_test(a_variants_compute_may_ask_for_the_key_but_not_for_itself),
      cmocka_unit_test(the_stored_key_can_be_asked_for),
      IN_ROOM(null_is_an_answer_and_not_a_crash),
      IN_ROOM(an_option_out_of_range_is_named_with_its_range),
      IN_ROOM(an_unknown_scheme_is_told_what_exists),
      IN_ROOM(a_scheme_that_is_too_long_is_told_the_limit),
      IN_ROOM(options_of_a_newer_header_are_refused_once_they_are_used),
  };
  return cmocka_run_group_tests_name("api", tests, NULL, NULL);
}
