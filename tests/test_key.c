/* test_key.c: keys in the store: different names never share a key, whatever bytes they contain. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>

#include "record/key.h"

static crl_key_space space_of(const char *name_space, size_t max_key) {
  crl_key_space space = {.max_key = max_key};
  assert_int_equal(crl_key_space_make(&space, name_space), CORRAL_OK);
  return space;
}

/* ---- the forms ----------------------------------------------------------------------------- */

static void expect(const char *form, crl_key_kind kind, const char *name_space, const char *variant,
                   const char *user) {
  crl_key key;
  crl_key_space space = space_of(name_space, CORRAL_KEY_MAX);
  crl_name name = {.key = user,
                   .key_len = strlen(user),
                   .variant = variant,
                   .variant_len = variant == NULL ? 0 : strlen(variant)};
  assert_int_equal(crl_key_make(&key, kind, &space, &name), CORRAL_OK);
  if (key.stored_len != strlen(form) || memcmp(key.stored, form, key.stored_len) != 0)
    fail_msg("%.*s; expected: %s", (int)key.stored_len, (const char *)key.stored, form);
  assert_int_equal(key.user_len, name.key_len);
  assert_memory_equal(key.user, user, name.key_len);
  crl_key_clean(&key);
  free(space.prefix);
}

static void each_kind_has_its_form(void **state) {
  (void)state;
  expect("42", CRL_KEY_VALUE, NULL, NULL, "42");
  expect(":users:42", CRL_KEY_VALUE, NULL, NULL, "users:42");
  expect(":~x", CRL_KEY_VALUE, "", NULL, "~x");
  expect(":", CRL_KEY_VALUE, "", NULL, "");
  expect("users:42", CRL_KEY_VALUE, "users", NULL, "42");
  expect("app:users:42", CRL_KEY_VALUE, "app", NULL, "users:42");
  expect("app:~%", CRL_KEY_VALUE, "app", NULL, "~%");
  expect("app%3Aadmin:x", CRL_KEY_VALUE, "app:admin", NULL, "x");
  expect("%25%7E:x", CRL_KEY_VALUE, "%~", NULL, "x");
  expect("app:", CRL_KEY_VALUE, "app", NULL, "");
  expect("~variant:app:0a:/page", CRL_KEY_VALUE, "app", "0a", "/page");
  expect("~variant::%3A%25%0A:/page", CRL_KEY_VALUE, NULL, ":%\n", "/page");
  expect("~tag:app:blue", CRL_KEY_TAG, "app", NULL, "blue");
  expect("~tag::blue:sky", CRL_KEY_TAG, NULL, NULL, "blue:sky");
  expect("~lock:app:x", CRL_KEY_LOCK, "app", NULL, "x");
  expect("~slot::7:origin", CRL_KEY_SLOT, NULL, "7", "origin");
  expect("~control::", CRL_KEY_CONTROL, NULL, NULL, "");
  expect("~control:a%3Ab:", CRL_KEY_CONTROL, "a:b", NULL, "");
}

static void a_namespace_and_a_key_are_not_another_namespaces_key(void **state) {
  (void)state;
  expect("app:admin:x", CRL_KEY_VALUE, "app", NULL, "admin:x");
  expect("app%3Aadmin:x", CRL_KEY_VALUE, "app:admin", NULL, "x");
  expect(":app:admin:x", CRL_KEY_VALUE, NULL, NULL, "app:admin:x");
}

static void what_a_user_calls_like_a_kind_is_a_value(void **state) {
  (void)state;
  expect(":~tag:app:blue", CRL_KEY_VALUE, NULL, NULL, "~tag:app:blue");
  expect("app:~tag:app:blue", CRL_KEY_VALUE, "app", NULL, "~tag:app:blue");
  expect("%7Etag:app:blue", CRL_KEY_VALUE, "~tag", NULL, "app:blue");
}

/* The part of a key that Redis Cluster hashes: the text inside the first braces, or the whole key
 * when that is empty or missing. */
static void slot_text(const uint8_t *key, size_t len, const uint8_t **ret, size_t *ret_len) {
  const uint8_t *open = memchr(key, '{', len);
  const uint8_t *close = open == NULL ? NULL : memchr(open, '}', len - (size_t)(open - key));
  *ret = close != NULL && close > open + 1 ? open + 1 : key;
  *ret_len = close != NULL && close > open + 1 ? (size_t)(close - open) - 1 : len;
}

static void hash_tags_of_users_keys_name_the_slot_of_all_their_forms(void **state) {
  (void)state;
  static const struct {
    const char *name_space, *variant;
    crl_key_kind kind;
  } rows[] = {{NULL, NULL, CRL_KEY_VALUE}, {"a:%~", NULL, CRL_KEY_VALUE},
              {"a", "{v}", CRL_KEY_VALUE}, {NULL, "{", CRL_KEY_VALUE},
              {"a", NULL, CRL_KEY_TAG},    {"a", NULL, CRL_KEY_LOCK}};
  const uint8_t *text;
  size_t len;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    crl_key key;
    crl_key_space space = space_of(rows[i].name_space, CORRAL_KEY_MAX);
    const char *variant = rows[i].variant;
    crl_name name = {.key = "x:{user:42}:{y}",
                     .key_len = 15,
                     .variant = variant,
                     .variant_len = variant == NULL ? 0 : strlen(variant)};
    assert_int_equal(crl_key_make(&key, rows[i].kind, &space, &name), CORRAL_OK);
    slot_text(key.stored, key.stored_len, &text, &len);
    assert_int_equal(len, 7);
    assert_memory_equal(text, "user:42", 7);
    crl_key_clean(&key);
    free(space.prefix);
  }
}

static void the_users_key_is_found_in_a_stored_one(void **state) {
  (void)state;
  static const char *const rows[][2] = {
      {"42", "42"}, {":a:b", "a:b"}, {"app:~x", "~x"}, {"~tag:app:x", "~tag:app:x"}, {"", ""}};
  size_t len;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    const void *shown = crl_key_shown(rows[i][0], strlen(rows[i][0]), &len);
    assert_int_equal(len, strlen(rows[i][1]));
    assert_memory_equal(shown, rows[i][1], len);
  }
}

/* ---- a key without a copy ------------------------------------------------------------------ */

static void plain(const char *name_space, size_t max_key, const char *user, const char *expected) {
  uint8_t room[8];
  const void *stored = NULL;
  size_t len = 0;
  crl_key key;
  crl_key_space space = space_of(name_space, max_key);
  crl_name name = {.key = user, .key_len = strlen(user)};
  int is_plain = crl_key_plain(&space, &name, room, sizeof room, &stored, &len);
  assert_int_equal(is_plain, expected != NULL);
  assert_int_equal(crl_key_make(&key, CRL_KEY_VALUE, &space, &name), CORRAL_OK);
  if (is_plain) {
    assert_int_equal(len, strlen(expected));
    assert_memory_equal(stored, expected, len);
    assert_int_equal(len, key.stored_len);
    assert_memory_equal(stored, key.stored, len);
    /* a key that is stored as it is stays where it is */
    assert_int_equal(stored == name.key, strcmp(user, expected) == 0);
  }
  crl_key_clean(&key);
  free(space.prefix);
}

static void a_plain_key_is_the_same_without_a_copy(void **state) {
  (void)state;
  plain("", 250, "key", "key");
  plain("", 250, "a longer key than the room", "a longer key than the room");
  plain("", 250, "a:b", ":a:b");
  plain("", 250, "~b", ":~b");
  plain("", 250, "much too:long", NULL);
  plain("app", 250, "key", "app:key");
  plain("app", 250, "keys", "app:keys");
  plain("app", 250, "more5", NULL);
  plain("", 38, "a key of more than 38 bytes, as it is stored", NULL);
}

/* ---- long keys ----------------------------------------------------------------------------- */

static void what_a_store_does_not_take_is_a_kind_of_its_own_with_the_digest(void **state) {
  (void)state;
  uint8_t digest[CRL_DIGEST];
  char hex[2 * CRL_DIGEST + 1], user[301];
  crl_key key;
  crl_key_space space = space_of("app", 250);
  memset(user, 'x', 300);
  assert_int_equal(
      crl_key_make(&key, CRL_KEY_VALUE, &space, &(crl_name){.key = user, .key_len = 300}),
      CORRAL_OK);
  assert_int_equal(key.whole_len, 304);
  crl_sum(key.whole, key.whole_len, digest);
  assert_memory_equal(crl_key_digest(&key), digest, CRL_DIGEST);
  crl_digest(key.whole, key.whole_len, digest);
  for (size_t i = 0; i < CRL_DIGEST; i++) snprintf(hex + 2 * i, 3, "%02X", digest[i]);
  assert_int_equal(key.stored_len, 38);
  assert_memory_equal(key.stored, "~long:", 6);
  assert_memory_equal(key.stored + 6, hex, 32);
  assert_int_equal(key.user_len, 300);
  crl_key_clean(&key);
  assert_int_equal(
      crl_key_make(&key, CRL_KEY_VALUE, &space, &(crl_name){.key = user, .key_len = 246}),
      CORRAL_OK);
  assert_int_equal(key.stored_len, 250);
  crl_key_clean(&key);
  free(space.prefix);
}

static void the_digest_is_that_of_the_whole_key_in_every_store(void **state) {
  (void)state;
  crl_key wide, narrow;
  crl_key_space space = space_of("app", CORRAL_KEY_MAX),
                small = {.prefix = space.prefix, .prefix_len = space.prefix_len, .max_key = 40};
  char user[100] = "x";
  crl_name name = {.key = user, .key_len = sizeof user};
  assert_int_equal(crl_key_make(&wide, CRL_KEY_VALUE, &space, &name), CORRAL_OK);
  assert_int_equal(crl_key_make(&narrow, CRL_KEY_VALUE, &small, &name), CORRAL_OK);
  assert_memory_equal(crl_key_digest(&wide), crl_key_digest(&narrow), CRL_DIGEST);
  assert_int_not_equal(wide.stored_len, narrow.stored_len);
  crl_key_clean(&wide);
  crl_key_clean(&narrow);
  free(space.prefix);
}

/* ---- no two names share a key -------------------------------------------------------------- */

static const char hostile[] = {':', '%', '~', '{', '}', '\n', 'a', '\0'};

enum { LETTERS = sizeof hostile, TEXT = 4, NAMES_MOST = 1 << 20 };

/* All strings of at most `most` letters, beginning with the empty one. `zero`: NUL is a letter
 * too. */
static size_t list(char texts[][TEXT], size_t *lens, size_t most, int zero) {
  size_t letters = LETTERS - (zero ? 0 : 1), count = 1, from = 0;
  lens[0] = 0;
  memset(texts[0], 0, TEXT);
  while (lens[from] < most) {
    for (size_t i = 0; i < letters; i++, count++) {
      memcpy(texts[count], texts[from], TEXT);
      texts[count][lens[from]] = hostile[i];
      lens[count] = lens[from] + 1;
    }
    from++;
  }
  return count;
}

typedef struct heap {
  crl_key_space space;
  char *text;
  uint32_t *at; /* offsets of the keys in `text` */
  size_t used, count;
} heap;

static char *sorted; /* text of the keys being sorted */

/* Compares the lengths first; any total order will do. */
static int compare(const void *a, const void *b) {
  const char *x = sorted + *(const uint32_t *)a, *y = sorted + *(const uint32_t *)b;
  return *x != *y ? *x - *y : memcmp(x, y, (size_t)*x + 1);
}

static void add(heap *h, crl_key_kind kind, const crl_name *name) {
  crl_key key;
  assert_int_equal(crl_key_make(&key, kind, &h->space, name), CORRAL_OK);
  assert_true(h->count < NAMES_MOST && key.stored_len < 64);
  h->at[h->count++] = (uint32_t)h->used;
  h->text[h->used++] = (char)key.stored_len;
  memcpy(h->text + h->used, key.stored, key.stored_len);
  h->used += key.stored_len;
  crl_key_clean(&key);
}

/* Adds keys of every kind: all keys of up to three letters, and variants with keys of up to two. */
static void add_all(heap *h, char texts[][TEXT], const size_t *lens, size_t count,
                    size_t short_count) {
  for (size_t k = 1; k < count; k++) {
    crl_name name = {.key = texts[k], .key_len = lens[k]};
    add(h, CRL_KEY_VALUE, &name);
    add(h, CRL_KEY_TAG, &name);
    add(h, CRL_KEY_LOCK, &name);
  }
  for (size_t k = 1; k < short_count; k++)
    for (size_t v = 1; v < short_count; v++) {
      crl_name name = {
          .key = texts[k], .key_len = lens[k], .variant = texts[v], .variant_len = lens[v]};
      add(h, CRL_KEY_VALUE, &name);
      if (v <= LETTERS) add(h, CRL_KEY_SLOT, &name);
    }
}

static void all_differ(size_t max_key) {
  static char texts[1024][TEXT], spaces[64][TEXT];
  static size_t lens[1024], space_lens[64];
  heap h = {.text = malloc((size_t)NAMES_MOST * 64), .at = malloc(NAMES_MOST * sizeof *h.at)};
  assert_true(h.text != NULL && h.at != NULL);
  size_t count = list(texts, lens, 3, 1), short_count = 1 + LETTERS + LETTERS * LETTERS,
         space_count = list(spaces, space_lens, 2, 0);
  for (size_t i = 0; i < space_count; i++) {
    h.space = space_of(spaces[i], max_key);
    add_all(&h, texts, lens, count, short_count);
    free(h.space.prefix);
  }
  assert_true(h.count > 400000);
  sorted = h.text;
  qsort(h.at, h.count, sizeof *h.at, compare);
  for (size_t i = 1; i < h.count; i++)
    if (compare(&h.at[i - 1], &h.at[i]) == 0)
      fail_msg("two names share the key %.*s", h.text[h.at[i]], h.text + h.at[i] + 1);
  free(h.text);
  free(h.at);
}

static void different_names_never_share_a_key(void **state) {
  (void)state;
  all_differ(CORRAL_KEY_MAX);
}

static void nor_do_they_when_keys_are_shortened(void **state) {
  (void)state;
  all_differ(8);
}

/* ---- hashes of names ----------------------------------------------------------------------- */

static void a_name_with_a_variant_has_another_hash(void **state) {
  (void)state;
  crl_name plain = {.key = "k", .key_len = 1}, one = plain, other = plain;
  one.variant = "1";
  other.variant = "2";
  one.variant_len = other.variant_len = 1;
  assert_true(crl_name_hash(&plain) != crl_name_hash(&one));
  assert_true(crl_name_hash(&one) != crl_name_hash(&other));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_kind_has_its_form),
      cmocka_unit_test(a_namespace_and_a_key_are_not_another_namespaces_key),
      cmocka_unit_test(what_a_user_calls_like_a_kind_is_a_value),
      cmocka_unit_test(hash_tags_of_users_keys_name_the_slot_of_all_their_forms),
      cmocka_unit_test(the_users_key_is_found_in_a_stored_one),
      cmocka_unit_test(a_plain_key_is_the_same_without_a_copy),
      cmocka_unit_test(what_a_store_does_not_take_is_a_kind_of_its_own_with_the_digest),
      cmocka_unit_test(the_digest_is_that_of_the_whole_key_in_every_store),
      cmocka_unit_test(different_names_never_share_a_key),
      cmocka_unit_test(nor_do_they_when_keys_are_shortened),
      cmocka_unit_test(a_name_with_a_variant_has_another_hash),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
