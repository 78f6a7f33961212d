/* test_answers.c: what a compute may say of its value, what can be done to many values at once, and how calls are left: through the public
 * functions, on the stores that need no server; test_answers_live.c is the same on those that do. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "support/herd_lab.h"

enum { FAR = 60000 };

/* ---- a compute that says what it is told to --------------------------------------------------------------- */

typedef struct say {
  const char *text; /* NULL: negative */
  const char *tags[3];
  uint64_t version;
  const char *validator;
  int64_t ttl_ms, not_after;
  int pass, unmodified, fails;
  /* what it saw */
  int ran;
  char old[64], old_validator[64];
  uint64_t old_version;
  int should_stop;
} say;

static void see(const corral_fill *fill, say *s) {
  size_t size;
  const char *old = corral_fill_old(fill, &size);
  snprintf(s->old, sizeof s->old, "%.*s", (int)size, old == NULL ? "" : old);
  const char *validator = corral_fill_old_validator(fill, &size);
  snprintf(s->old_validator, sizeof s->old_validator, "%.*s", (int)size, validator == NULL ? "" : validator);
  s->old_version = corral_fill_old_version(fill);
}

static int answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  say *s = arg;
  size_t len;
  assert_ptr_equal(corral_fill_key(fill, &len), key);
  assert_int_equal(len, key_len);
  s->ran++;
  see(fill, s);
  for (int i = 0; i < 3 && s->tags[i] != NULL; i++) assert_int_equal(corral_fill_tag(fill, s->tags[i], strlen(s->tags[i])), CORRAL_OK);
  if (s->version != 0) corral_fill_version(fill, s->version);
  if (s->validator != NULL) assert_int_equal(corral_fill_validator(fill, s->validator, strlen(s->validator)), CORRAL_OK);
  if (s->ttl_ms != 0) corral_fill_lives(fill, s->ttl_ms, 0, 0);
  if (s->not_after != 0) corral_fill_not_after(fill, s->not_after);
  if (s->pass) corral_fill_pass(fill);
  if (s->fails) corral_fill_fail(fill, 5, "the origin is away");
  else if (s->unmodified) return corral_fill_not_modified(fill);
  else if (s->text == NULL) corral_fill_negative(fill);
  else return corral_fill_bytes(fill, s->text, strlen(s->text));
  return CORRAL_OK;
}

static corral *opened(const corral_options *options) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(&c, options, &error) != CORRAL_OK) fail_msg("%s: %s", options->store, error.text);
  return c;
}

static corral_policy usual(void) { return *CORRAL_POLICY(.ttl_ms = FAR, .jitter_pct = CORRAL_OFF, .wait_ms = 20000); }

static corral_policy graceful(void) {
  corral_policy policy = usual();
  policy.sie_ms = FAR;
  return policy;
}

typedef struct got {
  int status;
  corral_how how;
  corral_kept kept;
  uint64_t version;
  char text[64];
} got;

static got asks_by(corral *c, const char *key, const corral_policy *policy, say *s) {
  corral_value *value = NULL;
  got g = {.status = corral_get_or_compute(c, key, strlen(key), policy, answer, s, &value)};
  if (g.status != CORRAL_OK) return g;
  g.how = corral_value_how(value);
  g.kept = corral_value_kept(value);
  g.version = corral_value_version(value);
  snprintf(g.text, sizeof g.text, "%.*s", (int)corral_value_size(value), (const char *)corral_value_data(value));
  corral_value_unref(value);
  return g;
}

static got asks(corral *c, const char *key, say *s) {
  corral_policy policy = usual();
  return asks_by(c, key, &policy, s);
}

#define GETS(c, key, s, expected_text, expected_how)                                     \
  do {                                                                                   \
    got g_ = asks(c, key, s);                                                            \
    assert_int_equal(g_.status, CORRAL_OK);                                              \
    assert_string_equal(g_.text, expected_text);                                         \
    if (g_.how != (expected_how)) fail_msg("line %d, %s: %s, kept %d, instead of %s", __LINE__, key, corral_how_name(g_.how), (int)g_.kept, corral_how_name(expected_how)); \
  } while (0)

static corral_inspection inspected(corral *c, const char *key) {
  corral_inspection seen;
  corral_error error;
  if (corral_inspect(c, key, strlen(key), &seen, sizeof seen, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return seen;
}

#ifndef LIVE
/* Stores that two corrals of this process can share. */
static void on_each(void (*story)(const char *uri)) {
  char uri[64];
  snprintf(uri, sizeof uri, "memory:%p", (void *)lab_room);
  story(uri);
  story(lab_lmdb(lab_room, "store"));
}

static void on_each_that_tells(void (*story)(const char *uri)) { on_each(story); }
#endif

/* ---- tags ------------------------------------------------------------------------------------------------- */

static void a_tag_reaches_all_that_carry_it(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say one = {.text = "1", .tags = {"red", "round"}}, two = {.text = "2", .tags = {"red"}}, three = {.text = "3", .tags = {"round"}}, none = {.text = "0"};
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "two", &two, "2", CORRAL_COMPUTED);
  GETS(c, "three", &three, "3", CORRAL_COMPUTED);
  GETS(c, "none", &none, "0", CORRAL_COMPUTED);
  GETS(c, "one", &one, "1", CORRAL_FRESH);
  assert_int_equal(corral_invalidate_tag(c, "red", 3, NULL), CORRAL_OK);
  assert_string_equal(inspected(c, "one").state, "void");
  assert_string_equal(inspected(c, "three").state, "fresh");
  GETS(c, "three", &three, "3", CORRAL_FRESH);
  GETS(c, "none", &none, "0", CORRAL_FRESH);
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "two", &two, "2", CORRAL_COMPUTED);
  GETS(c, "one", &one, "1", CORRAL_FRESH);
  GETS(c, "two", &two, "2", CORRAL_FRESH);
  assert_int_equal(corral_invalidate_tag(c, "never used", 10, NULL), CORRAL_OK);
  corral_close(c);
}

static void tags_invalidate(void **state) {
  (void)state;
  on_each(a_tag_reaches_all_that_carry_it);
}

static void an_expired_tag_leaves_the_grace(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say s = {.text = "old", .tags = {"t"}};
  asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_expire_tag(c, "t", 1, NULL), CORRAL_OK);
  assert_string_equal(inspected(c, "k").state, "stale");
  s.fails = 1;
  got g = asks_by(c, "k", &policy, &s);
  assert_int_equal(g.status, CORRAL_OK);
  assert_string_equal(g.text, "old");
  assert_int_equal(g.how, CORRAL_STALE);
  /* invalidated: not in grace either (bentocache#71) */
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_EFAILED);
  corral_close(c);
}

static void tags_expire(void **state) {
  (void)state;
  on_each(an_expired_tag_leaves_the_grace);
}

/* Invalidates a tag while a value that will carry it is being computed. */
typedef struct race {
  corral *c;
  const char *tag;
  int after_claim_too;
  say say;
} race;

static int invalidated_meanwhile(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  race *r = arg;
  assert_int_equal(corral_invalidate_tag(r->c, r->tag, strlen(r->tag), NULL), CORRAL_OK);
  return answer(fill, key, key_len, &r->say);
}

static void a_value_computed_from_before_is_never_served(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri)), *other = opened(CORRAL_OPTIONS(.store = uri));
  const char *const tags[] = {"known", "new"};
  say first = {.text = "first", .tags = {"known"}};
  corral_policy policy = usual();
  asks(c, "old", &first); /* so that the mark of "known" exists */
  for (int i = 0; i < 2; i++) {
    corral_value *value = NULL;
    race r = {.c = other, .tag = tags[i], .say = {.text = "before", .tags = {tags[i]}}};
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    assert_int_equal(corral_get_or_compute(c, key, strlen(key), &policy, invalidated_meanwhile, &r, &value), CORRAL_OK);
    assert_int_equal(corral_value_how(value), CORRAL_COMPUTED); /* its own caller has it all the same */
    corral_value_unref(value);
    say now = {.text = "after", .tags = {tags[i]}};
    GETS(c, key, &now, "after", CORRAL_COMPUTED);
  }
  /* and where the tag was of the value that was there before */
  corral_value *value = NULL;
  race r = {.c = other, .tag = "known", .say = {.text = "before", .tags = {"known"}}};
  say now = {.text = "after", .tags = {"known"}};
  asks(c, "old", &first);
  assert_int_equal(corral_expire(c, "old", 3, NULL), CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "old", 3, &policy, invalidated_meanwhile, &r, &value), CORRAL_OK);
  corral_value_unref(value);
  GETS(c, "old", &now, "after", CORRAL_COMPUTED);
  corral_close(other);
  corral_close(c);
}

static void fills_under_way_are_voided_by_tag(void **state) {
  (void)state;
  on_each(a_value_computed_from_before_is_never_served);
}

/* The mark is forgotten by its store: what remembers it is void, nothing old comes back. */
static void a_mark_that_is_lost_voids_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say s = {.text = "v", .tags = {"t"}};
  asks(c, "k", &s);
  assert_int_equal(corral_invalidate(c, "corral-tag:t", 12, NULL), CORRAL_OK);
  GETS(c, "k", &s, "v", CORRAL_COMPUTED);
  /* Nothing is kept before it is sure that it was computed after that; then all is as before. */
  int64_t until = lab_now_us() + 20000000;
  while (asks(c, "k", &s).how != CORRAL_FRESH)
    if (lab_now_us() > until) fail_msg("a tag whose mark was lost never works again");
  corral_close(c);
}

static void a_mark_that_is_lost_voids(void **state) {
  (void)state;
  on_each(a_mark_that_is_lost_voids_on);
}

/* All first values of a new tag are stored, whoever made its mark. */
typedef struct crowd {
  corral *c;
  pthread_barrier_t all;
  _Atomic int computed;
} crowd;

static int tagged(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  crowd *w = arg;
  pthread_barrier_wait(&w->all); /* all of them have begun before the first has ended */
  assert_int_equal(corral_fill_tag(fill, "common", 6), CORRAL_OK);
  return corral_fill_bytes(fill, key, key_len);
}

typedef struct member {
  crowd *crowd;
  char key[16];
  corral_kept kept;
} member;

static void *join_crowd(void *arg) {
  member *m = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  if (corral_get_or_compute(m->crowd->c, m->key, strlen(m->key), &policy, tagged, m->crowd, &value) != CORRAL_OK) return NULL;
  m->kept = corral_value_kept(value);
  corral_value_unref(value);
  return m;
}

static void many_first_values_of_a_tag_are_all_kept_on(const char *uri) {
  enum { CROWD = 12 };
  crowd w = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  member members[CROWD];
  pthread_t threads[CROWD];
  pthread_barrier_init(&w.all, NULL, CROWD);
  for (int i = 0; i < CROWD; i++) {
    members[i].crowd = &w;
    snprintf(members[i].key, sizeof members[i].key, "key %d", i);
    assert_int_equal(pthread_create(&threads[i], NULL, join_crowd, &members[i]), 0);
  }
  for (int i = 0; i < CROWD; i++) {
    void *done;
    pthread_join(threads[i], &done);
    assert_non_null(done);
    assert_int_equal(members[i].kept, CORRAL_KEPT);
    assert_string_equal(inspected(w.c, members[i].key).state, "fresh");
  }
  pthread_barrier_destroy(&w.all);
  corral_close(w.c);
}

static void many_first_values_of_a_tag_are_all_kept(void **state) {
  (void)state;
  on_each(many_first_values_of_a_tag_are_all_kept_on);
}

static void a_tag_has_1_to_200_bytes(void **state) {
  (void)state;
  static const char zeroes[201];
  corral_error error;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:"));
  assert_int_equal(corral_invalidate_tag(c, "", 0, &error), CORRAL_EINVAL);
  assert_string_equal(error.text, "the tag has 0 bytes; accepted: 1 to 200");
  assert_int_equal(corral_invalidate_tag(c, NULL, 5, &error), CORRAL_EINVAL);
  assert_int_equal(corral_expire_tag(c, zeroes, 201, &error), CORRAL_EINVAL);
  assert_int_equal(corral_expire_tag(c, zeroes, 200, &error), CORRAL_OK);
  corral_close(c);
}

/* ---- a whole namespace ------------------------------------------------------------------------------------ */

static void everything_goes_at_once(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .name_space = "a", .generation = 1));
  corral *neighbour = opened(CORRAL_OPTIONS(.store = uri, .name_space = "b", .generation = 1));
  corral_policy policy = graceful();
  say one = {.text = "1"}, negative = {.text = NULL}, two = {.text = "2", .tags = {"t"}};
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "two", &two, "2", CORRAL_COMPUTED);
  assert_int_equal(corral_set(c, "set", 3, &policy, "s", 1), CORRAL_OK);
  assert_int_equal(asks(c, "negative", &negative).status, CORRAL_ENOTFOUND);
  GETS(neighbour, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "one", &one, "1", CORRAL_FRESH);
  GETS(c, "set", &one, "s", CORRAL_FRESH);
  assert_int_equal(corral_invalidate_all(c, NULL), CORRAL_OK);
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "two", &two, "2", CORRAL_COMPUTED);
  GETS(c, "set", &one, "1", CORRAL_COMPUTED);
  assert_int_equal(asks(c, "negative", &negative).status, CORRAL_ENOTFOUND);
  assert_int_equal(negative.ran, 2);
  GETS(neighbour, "one", &one, "1", CORRAL_FRESH);
  assert_int_equal(corral_expire_all(c, NULL), CORRAL_OK);
  assert_string_equal(inspected(c, "one").state, "expired");
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  corral_close(neighbour);
  corral_close(c);
}

static void a_whole_namespace_goes_at_once(void **state) {
  (void)state;
  on_each(everything_goes_at_once);
}

typedef struct setter {
  corral *c;
  pthread_barrier_t *all;
  int number;
} setter;

static void *set_one(void *arg) {
  setter *s = arg;
  char key[16];
  corral_policy policy = usual();
  snprintf(key, sizeof key, "key %d", s->number);
  pthread_barrier_wait(s->all);
  return corral_set(s->c, key, strlen(key), &policy, "v", 1) == CORRAL_OK ? s : NULL;
}

/* Who comes second to the mark of a new namespace finds it made, and leaves it as it is. */
static void first_values_that_are_set_at_once_all_count(const char *uri) {
  enum { SETTERS = 6, ROUNDS = 12 };
  for (int round = 0; round < ROUNDS; round++) {
    char space[24];
    pthread_barrier_t all;
    pthread_t threads[SETTERS];
    setter setters[SETTERS];
    snprintf(space, sizeof space, "space %d", round);
    corral *c = opened(CORRAL_OPTIONS(.store = uri, .name_space = space, .generation = 1));
    pthread_barrier_init(&all, NULL, SETTERS);
    for (int i = 0; i < SETTERS; i++) {
      setters[i] = (setter){c, &all, i};
      assert_int_equal(pthread_create(&threads[i], NULL, set_one, &setters[i]), 0);
    }
    for (int i = 0; i < SETTERS; i++) {
      void *done;
      pthread_join(threads[i], &done);
      assert_non_null(done);
    }
    for (int i = 0; i < SETTERS; i++) {
      char key[16];
      snprintf(key, sizeof key, "key %d", i);
      assert_string_equal(inspected(c, key).state, "fresh");
    }
    pthread_barrier_destroy(&all);
    corral_close(c);
  }
}

static void values_set_at_once_in_a_new_namespace_all_count(void **state) {
  (void)state;
  on_each(first_values_that_are_set_at_once_all_count);
}

/* It may be from before the whole was invalidated, and nobody could tell. */
static void a_value_of_one_without_generation_is_void(const char *uri) {
  corral *with = opened(CORRAL_OPTIONS(.store = uri, .generation = 1)), *without = opened(CORRAL_OPTIONS(.store = uri));
  say one = {.text = "1"}, two = {.text = "2"};
  GETS(without, "k", &one, "1", CORRAL_COMPUTED);
  assert_string_equal(inspected(with, "k").state, "void");
  GETS(with, "k", &two, "2", CORRAL_COMPUTED);
  GETS(without, "k", &one, "2", CORRAL_FRESH);
  assert_int_equal(corral_invalidate_all(with, NULL), CORRAL_OK);
  GETS(without, "k", &one, "1", CORRAL_COMPUTED); /* the value carries the tag, whoever reads it */
  corral_close(without);
  corral_close(with);
}

static void who_shares_a_namespace_agrees_on_generation(void **state) {
  (void)state;
  on_each(a_value_of_one_without_generation_is_void);
}

static void without_the_option_that_is_refused_by_name(void **state) {
  (void)state;
  corral_error error;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:"));
  assert_int_equal(corral_invalidate_all(c, &error), CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "generation = 1"));
  assert_int_equal(corral_expire_all(c, NULL), CORRAL_EUNSUPPORTED);
  corral_close(c);
}

/* ---- versions --------------------------------------------------------------------------------------------- */

static void an_older_version_never_overwrites(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say five = {.text = "five", .version = 5}, four = {.text = "four", .version = 4}, six = {.text = "six", .version = 6};
  got g = asks_by(c, "k", &policy, &five);
  assert_int_equal(g.version, 5);
  assert_int_equal(inspected(c, "k").version, 5);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  g = asks_by(c, "k", &policy, &four);
  assert_string_equal(g.text, "four"); /* its own caller has what was computed */
  assert_true(g.how == CORRAL_COMPUTED && g.kept == CORRAL_KEPT_OLDER && g.version == 4);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_OLDER), 1);
  g = asks_by(c, "k", &policy, &six); /* within retry_ms nobody asks again */
  assert_string_equal(g.text, "five");
  assert_true(g.how == CORRAL_STALE && six.ran == 0);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK); /* also ends that pause */
  g = asks_by(c, "k", &policy, &six);
  assert_true(g.how == CORRAL_COMPUTED && g.kept == CORRAL_KEPT);
  g = asks_by(c, "k", &policy, &four);
  assert_string_equal(g.text, "six");
  assert_int_equal(g.version, 6);
  corral_close(c);
}

static void versions_order_fills(void **state) {
  (void)state;
  on_each(an_older_version_never_overwrites);
}

/* ---- conditional refresh ---------------------------------------------------------------------------------- */

static void what_is_unmodified_begins_anew(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say s = {.text = "the bytes", .validator = "\"1\"", .version = 3, .tags = {"t"}};
  asks_by(c, "k", &policy, &s);
  assert_string_equal(s.old, "");
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_string_equal(inspected(c, "k").state, "stale");
  say again = {.unmodified = 1};
  got g = asks_by(c, "k", &policy, &again);
  assert_string_equal(again.old, "the bytes");
  assert_string_equal(again.old_validator, "\"1\"");
  assert_int_equal(again.old_version, 3);
  assert_string_equal(g.text, "the bytes");
  assert_true(g.how == CORRAL_COMPUTED && g.kept == CORRAL_KEPT && g.version == 3);
  assert_string_equal(inspected(c, "k").state, "fresh");
  /* all that went along is still there */
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  say third = {.text = "new", .validator = "\"2\"", .tags = {"t"}, .version = 4};
  asks_by(c, "k", &policy, &third);
  assert_string_equal(third.old_validator, "\"1\"");
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  say fourth = {.text = "newer", .version = 5};
  asks_by(c, "k", &policy, &fourth);
  assert_string_equal(fourth.old, ""); /* what was invalidated is not handed out */
  corral_close(c);
}

static void what_is_not_modified_is_renewed(void **state) {
  (void)state;
  on_each(what_is_unmodified_begins_anew);
}

static void not_modified_without_an_old_value_is_a_failure(void **state) {
  (void)state;
  corral *c = opened(CORRAL_OPTIONS(.store = "memory:"));
  say s = {.unmodified = 1};
  assert_int_equal(asks(c, "k", &s).status, CORRAL_EFAILED);
  corral_close(c);
}

/* ---- lives, negatives, packing ---------------------------------------------------------------------------- */

static int64_t wall_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void an_absolute_end_caps_the_lives_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say soon = {.text = "v", .not_after = wall_ms() + 20000}, past = {.text = "v", .not_after = wall_ms() - 1};
  asks_by(c, "soon", &policy, &soon);
  corral_inspection seen = inspected(c, "soon");
  assert_in_range(seen.left_ms, 1, 20000);
  assert_in_range(seen.ttl_ms + seen.sie_ms, 1, 20000);
  got g = asks_by(c, "past", &policy, &past);
  assert_true(g.status == CORRAL_OK && g.kept == CORRAL_KEPT_NOT);
  assert_string_equal(inspected(c, "past").state, "none");
  corral_close(c);
}

static void an_absolute_end_caps_the_lives(void **state) {
  (void)state;
  on_each(an_absolute_end_caps_the_lives_on);
}

static void so_many_negatives_are_stored_and_no_more_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .negative_max = 3));
  for (int i = 0; i < 10; i++) {
    char key[16];
    say s = {.text = NULL};
    snprintf(key, sizeof key, "key %d", i);
    assert_int_equal(asks(c, key, &s).status, CORRAL_ENOTFOUND);
    assert_string_equal(inspected(c, key).state, i < 3 ? "negative" : "none");
  }
  corral_close(c);
}

static void so_many_negatives_are_stored_and_no_more(void **state) {
  (void)state;
  on_each(so_many_negatives_are_stored_and_no_more_on);
}

static void what_is_packed_is_read_by_all(const char *uri) {
  char text[5000], bytes[5000];
  corral *packs = opened(CORRAL_OPTIONS(.store = uri, .compress_min = 1000)), *plain = opened(CORRAL_OPTIONS(.store = uri));
  memset(text, 'z', sizeof text);
  corral_policy policy = usual();
  corral_value *value = NULL;
  assert_int_equal(corral_set(packs, "k", 1, &policy, text, sizeof text), CORRAL_OK);
  corral_inspection seen = inspected(plain, "k");
  assert_int_equal(seen.size, sizeof text);
  assert_true(seen.stored_size < 1000);
  assert_int_equal(corral_get(plain, "k", 1, &policy, &value), CORRAL_OK);
  assert_int_equal(corral_value_size(value), sizeof text);
  memcpy(bytes, corral_value_data(value), sizeof bytes);
  assert_memory_equal(bytes, text, sizeof text);
  corral_value_unref(value);
  corral_close(plain);
  corral_close(packs);
}

static void packed_values_are_read_by_all(void **state) {
  (void)state;
  on_each(what_is_packed_is_read_by_all);
}

/* ---- "can't be cached" ------------------------------------------------------------------------------------ */

typedef struct private_answers {
  corral *c;
  pthread_barrier_t together; /* two computes must be inside at once for either to end */
  _Atomic int number;
  _Atomic int first;
  int bound;
} private_answers;

/* The first compute waits until somebody joined; the others for each other: in a row they would wait for ever. */
static int private_answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  private_answers *p = arg;
  (void)key;
  (void)key_len;
  int number = atomic_fetch_add(&p->number, 1);
  if (number == 0)
    while (corral_counter(p->c, CORRAL_EVENT_JOIN) < 4) sched_yield();
  else pthread_barrier_wait(&p->together);
  corral_fill_pass(fill);
  return corral_fill_bytes(fill, &number, sizeof number);
}

static void *ask_privately(void *arg) {
  private_answers *p = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  int status = p->bound ? corral_get(p->c, "k", 1, &policy, &value) : corral_get_or_compute(p->c, "k", 1, &policy, private_answer, p, &value);
  if (status != CORRAL_OK || corral_value_how(value) != CORRAL_COMPUTED || corral_value_kept(value) != CORRAL_KEPT_NOT) return NULL;
  int *number = malloc(sizeof *number);
  memcpy(number, corral_value_data(value), sizeof *number);
  corral_value_unref(value);
  return number;
}

static void callers_pass(const char *uri, int bound) {
  private_answers p = {.bound = bound};
  pthread_t threads[5];
  int seen = 0;
  pthread_barrier_init(&p.together, NULL, 4);
  p.c = opened(CORRAL_OPTIONS(.store = uri, .compute = bound ? private_answer : NULL, .compute_arg = &p, .workers = 8));
  for (int i = 0; i < 5; i++) pthread_create(&threads[i], NULL, ask_privately, &p);
  for (int i = 0; i < 5; i++) {
    void *number;
    pthread_join(threads[i], &number);
    assert_non_null(number);
    seen |= 1 << *(int *)number; /* nobody has another's */
    free(number);
  }
  assert_int_equal(seen, 31);
  assert_string_equal(inspected(p.c, "k").state, "pass");
  assert_int_equal(corral_counter(p.c, CORRAL_EVENT_CLAIM), 1);
  corral_close(p.c);
  pthread_barrier_destroy(&p.together);
}

static void callers_compute(const char *uri) { callers_pass(uri, 0); }
static void workers_compute(const char *uri) { callers_pass(uri, 1); }

static void what_can_t_be_cached_is_computed_in_parallel(void **state) {
  (void)state;
  on_each(callers_compute);
}

static void by_the_workers_too(void **state) {
  (void)state;
  on_each(workers_compute);
}

static void a_pass_ends_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say s = {.text = "mine", .pass = 1};
  corral_policy policy = usual();
  policy.pass_ttl_ms = CORRAL_OFF;
  asks_by(c, "never", &policy, &s);
  assert_string_equal(inspected(c, "never").state, "none");
  asks(c, "k", &s);
  assert_int_equal(asks(c, "k", &s).how, CORRAL_COMPUTED);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  s.pass = 0;
  assert_int_equal(asks(c, "k", &s).kept, CORRAL_KEPT);
  assert_int_equal(asks(c, "k", &s).how, CORRAL_FRESH);
  corral_close(c);
}

static void a_pass_ends(void **state) {
  (void)state;
  on_each(a_pass_ends_on);
}

/* ---- leaving ---------------------------------------------------------------------------------------------- */

typedef struct slow {
  corral *c;
  _Atomic int inside, let_go, stopped, computes;
} slow;

/* Until it is let go, or told to stop. */
static int take_long(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  slow *s = arg;
  (void)key;
  (void)key_len;
  atomic_fetch_add(&s->computes, 1);
  atomic_fetch_add(&s->inside, 1);
  while (!atomic_load(&s->let_go) && !corral_should_stop(fill)) sched_yield();
  atomic_store(&s->stopped, corral_should_stop(fill));
  return corral_fill_bytes(fill, "slow", 4);
}

typedef struct caller {
  slow *slow;
  corral_policy policy;
  pthread_t thread;
  int bound, status;
  corral_how how;
  char text[16];
} caller;

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  k->status = k->bound ? corral_get(k->slow->c, "k", 1, &k->policy, &value)
                       : corral_get_or_compute(k->slow->c, "k", 1, &k->policy, take_long, k->slow, &value);
  if (k->status != CORRAL_OK) return NULL;
  k->how = corral_value_how(value);
  snprintf(k->text, sizeof k->text, "%.*s", (int)corral_value_size(value), (const char *)corral_value_data(value));
  corral_value_unref(value);
  return NULL;
}

static void start(caller *k) { assert_int_equal(pthread_create(&k->thread, NULL, call, k), 0); }
static void end(caller *k) { pthread_join(k->thread, NULL); }

static void wait_for(_Atomic int *number, int least) {
  while (atomic_load(number) < least) sched_yield();
}

static void wait_for_event(const corral *c, corral_event event, uint64_t least) {
  while (corral_counter(c, event) < least) sched_yield();
}

static void one_who_waits_leaves_at_once(void **state) {
  (void)state;
  slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:"))};
  corral_ticket *ticket = corral_ticket_new();
  caller leader = {.slow = &s, .policy = usual()}, one = leader, other = leader;
  one.policy.ticket = ticket;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&one);
  start(&other);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 2);
  corral_cancel(ticket);
  end(&one);
  assert_int_equal(one.status, CORRAL_ECANCELLED);
  atomic_store(&s.let_go, 1);
  end(&leader);
  end(&other);
  assert_true(leader.status == CORRAL_OK && other.status == CORRAL_OK && other.how == CORRAL_JOINED);
  assert_false(s.stopped);
  /* and whoever comes under the ticket later, unless the answer is there */
  call(&one);
  assert_int_equal(one.status, CORRAL_ECANCELLED);
  corral_ticket_free(ticket);
  corral_close(s.c);
}

/* The leader is in another corral: this one polls, or naps until it is woken. */
static void one_who_waits_for_the_store_leaves_at_once(void **state) {
  (void)state;
  for (int ladder = 0; ladder < 2; ladder++) {
    char uri[64];
    snprintf(uri, sizeof uri, "memory:leave %d %p", ladder, (void *)lab_room);
    slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))}, t = {.c = opened(CORRAL_OPTIONS(.store = uri, .watch = ladder ? 1 : -1))};
    corral_ticket *ticket = corral_ticket_new();
    caller leader = {.slow = &s, .policy = usual()}, one = {.slow = &t, .policy = usual()};
    one.policy.ticket = ticket;
    one.policy.poll_ms = one.policy.poll_max_ms = 60000;
    leader.policy.lease_ms = one.policy.lease_ms = 60000;
    start(&leader);
    wait_for(&s.inside, 1);
    start(&one);
    wait_for_event(t.c, CORRAL_EVENT_WAIT, 1);
    int64_t before = lab_now_us();
    corral_cancel(ticket);
    end(&one);
    assert_int_equal(one.status, CORRAL_ECANCELLED);
    assert_in_range(lab_now_us() - before, 0, 10000000);
    atomic_store(&s.let_go, 1);
    end(&leader);
    corral_ticket_free(ticket);
    corral_close(t.c);
    corral_close(s.c);
  }
}

static void one_who_queues_for_a_slot_leaves_at_once(void **state) {
  (void)state;
  slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:", .max_computes = 1))};
  corral_ticket *ticket = corral_ticket_new();
  caller leader = {.slow = &s, .policy = usual()};
  corral_policy policy = usual();
  policy.ticket = ticket;
  start(&leader);
  wait_for(&s.inside, 1);
  corral_cancel(ticket);
  say quick = {.text = "v"};
  assert_int_equal(asks_by(s.c, "another", &policy, &quick).status, CORRAL_ECANCELLED);
  assert_int_equal(quick.ran, 0);
  atomic_store(&s.let_go, 1);
  end(&leader);
  corral_ticket_free(ticket);
  corral_close(s.c);
}

/* The compute inside of a call is told only when its policy says so, and nobody else waits for it. */
static void a_compute_is_told_when_the_last_one_has_left(void **state) {
  (void)state;
  for (int told = 0; told < 3; told++) { /* 0: the policy doesn't say so; 1: somebody else waits; 2: told */
    slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:"))};
    corral_ticket *ticket = corral_ticket_new();
    caller leader = {.slow = &s, .policy = usual()}, other = leader;
    leader.policy.ticket = ticket;
    leader.policy.stop_alone = told == 0 ? CORRAL_OFF : 1;
    start(&leader);
    wait_for(&s.inside, 1);
    if (told == 1) {
      start(&other);
      wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
      lab_sleep_ms(20); /* joined is counted just before it waits */
    }
    corral_cancel(ticket);
    if (told != 2) atomic_store(&s.let_go, 1);
    end(&leader);
    assert_int_equal(atomic_load(&s.stopped), told == 2);
    assert_int_equal(leader.status, CORRAL_OK); /* it has what was computed */
    if (told == 1) {
      end(&other);
      assert_int_equal(other.status, CORRAL_OK);
    }
    corral_ticket_free(ticket);
    corral_close(s.c);
  }
}

static void a_background_compute_is_told_when_the_last_waiter_s_deadline_has_come(void **state) {
  (void)state;
  slow s = {0};
  s.c = opened(CORRAL_OPTIONS(.store = "memory:", .compute = take_long, .compute_arg = &s));
  caller one = {.slow = &s, .policy = usual(), .bound = 1};
  one.policy.stop_alone = 1;
  one.policy.wait_ms = 30;
  call(&one);
  assert_int_equal(one.status, CORRAL_EDEADLINE);
  while (!atomic_load(&s.stopped)) sched_yield();
  corral_close(s.c);
}

static void after_the_soft_limit_the_stale_value_is_taken_on(const char *uri) {
  slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  say old = {.text = "old"};
  corral_policy policy = graceful();
  asks_by(s.c, "k", &policy, &old);
  assert_int_equal(corral_expire(s.c, "k", 1, NULL), CORRAL_OK);
  caller leader = {.slow = &s, .policy = policy}, one = leader;
  one.policy.soft_ms = 20;
  start(&leader);
  wait_for(&s.inside, 1);
  int64_t before = lab_now_us();
  call(&one);
  assert_true(one.status == CORRAL_OK && one.how == CORRAL_STALE);
  assert_string_equal(one.text, "old");
  assert_in_range(lab_now_us() - before, 15000, 5000000);
  atomic_store(&s.let_go, 1);
  end(&leader);
  assert_string_equal(leader.text, "slow");
  corral_close(s.c);
}

static void after_the_soft_limit_the_stale_value_is_taken(void **state) {
  (void)state;
  on_each(after_the_soft_limit_the_stale_value_is_taken_on);
}

static void at_the_deadline_a_call_computes_for_itself(void **state) {
  (void)state;
  for (int bound = 0; bound < 2; bound++) {
    slow s = {0};
    s.c = opened(CORRAL_OPTIONS(.store = "memory:", .compute = bound ? take_long : NULL, .compute_arg = &s));
    caller leader = {.slow = &s, .policy = usual(), .bound = bound}, one = leader;
    one.policy.wait_ms = 30;
    one.policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
    start(&leader);
    wait_for(&s.inside, 1);
    start(&one);
    wait_for(&s.inside, 2); /* beside the leader */
    atomic_store(&s.let_go, 1);
    end(&one);
    end(&leader);
    assert_true(one.status == CORRAL_OK && one.how == CORRAL_COMPUTED && leader.how == CORRAL_COMPUTED);
    assert_int_equal(corral_counter(s.c, CORRAL_EVENT_FILL), 1);
    corral_close(s.c);
  }
}

/* ---- the near tier ---------------------------------------------------------------------------------------- */

static void a_copy_answers_alone_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  say s = {.text = "v"}, none = {.text = NULL};
  GETS(c, "k", &s, "v", CORRAL_COMPUTED);
  GETS(c, "k", &s, "v", CORRAL_FRESH); /* from the store: this leaves a copy */
  for (int i = 0; i < 3; i++) GETS(c, "k", &s, "v", CORRAL_FRESH);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 3);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), 1);
  for (int i = 0; i < 4; i++) assert_int_equal(asks(c, "none", &none).status, CORRAL_ENOTFOUND);
  assert_int_equal(none.ran, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 5);
  corral_policy policy = usual();
  policy.near_ms = CORRAL_OFF;
  asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 5);
  corral_close(c);
}

static void a_copy_answers_alone(void **state) {
  (void)state;
  on_each(a_copy_answers_alone_on);
}

static void what_this_process_does_to_a_key_its_copy_follows_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF, .generation = 1));
  corral_policy policy = usual();
  say s = {.text = "1", .tags = {"t"}};
  policy.near_ms = FAR;
  for (int round = 0; round < 5; round++) {
    for (int i = 0; i < 3; i++) asks_by(c, "k", &policy, &s);
    uint64_t near = corral_counter(c, CORRAL_EVENT_NEAR);
    assert_string_equal(asks_by(c, "k", &policy, &s).text, "1");
    assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), near + 1);
    int ran = s.ran;
    switch (round) {
      case 0: assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK); break;
      case 1: assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK); break;
      case 2: assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK); break;
      case 3: assert_int_equal(corral_expire_all(c, NULL), CORRAL_OK); break;
      default: assert_int_equal(corral_invalidate_all(c, NULL), CORRAL_OK); break;
    }
    say another = {.text = "2", .tags = {"t"}};
    asks_by(c, "another", &policy, &another); /* brings copies of the marks as they are now */
    asks_by(c, "another", &policy, &another);
    assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
    assert_int_equal(s.ran, ran + 1);
  }
  for (int i = 0; i < 3; i++) asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_set(c, "k", 1, &policy, "set", 3), CORRAL_OK);
  assert_string_equal(asks_by(c, "k", &policy, &s).text, "set");
  corral_close(c);
}

static void what_this_process_does_to_a_key_its_copy_follows(void **state) {
  (void)state;
  on_each(what_this_process_does_to_a_key_its_copy_follows_on);
}

/* A copy that answers alone doesn't hide that its value is due. */
static void a_copy_is_rebuilt_ahead_of_time_too_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = usual();
  say s = {.text = "v"};
  policy.ttl_ms = 4000;
  policy.early_pct = 90;
  policy.near_ms = FAR;
  int64_t until = lab_now_us() + 3500000;
  while (s.ran < 2 && lab_now_us() < until) assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_OK);
  assert_int_equal(s.ran, 2);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_EARLY), 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_MISS), 1);
  assert_true(corral_counter(c, CORRAL_EVENT_NEAR) > 0);
  corral_close(c);
}

static void a_copy_is_rebuilt_ahead_of_time_too(void **state) {
  (void)state;
  on_each(a_copy_is_rebuilt_ahead_of_time_too_on);
}

/* Told by the store's watch: from one corral to another, at once. The answer may be the old one until it is told. */
static void what_others_do_is_told(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20)), *other = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = usual();
  say s = {.text = "v"};
  policy.near_ms = FAR;
  /* The watch opens behind the first look; what was looked at before doesn't answer alone. */
  while (corral_counter(c, CORRAL_EVENT_NEAR) == 0) asks_by(c, "k", &policy, &s);
  for (int i = 0; i < 20; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    assert_int_equal(corral_set(other, "k", 1, &policy, text, strlen(text)), CORRAL_OK);
    int64_t until = lab_now_us() + 10000000;
    while (strcmp(asks_by(c, "k", &policy, &s).text, text) != 0)
      if (lab_now_us() > until) fail_msg("%s was not told", text);
  }
  assert_int_equal(s.ran, 1);
  corral_close(other);
  corral_close(c);
}

static void copies_follow_what_others_do(void **state) {
  (void)state;
  on_each_that_tells(what_others_do_is_told);
}

/* ---- woken ------------------------------------------------------------------------------------------------ */

static void a_waiter_is_woken_by(const char *uri) {
  slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))}, t = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  caller leader = {.slow = &s, .policy = usual()}, one = {.slow = &t, .policy = usual()};
  one.policy.poll_ms = one.policy.poll_max_ms = 60000;
  leader.policy.lease_ms = one.policy.lease_ms = 60000;
  /* The watch is up once a first wait has asked for it. */
  for (int round = 0; round < 3; round++) {
    uint64_t polls = corral_counter(t.c, CORRAL_EVENT_POLL);
    atomic_store(&s.let_go, 0);
    start(&leader);
    wait_for(&s.inside, round + 1);
    start(&one);
    wait_for_event(t.c, CORRAL_EVENT_POLL, polls + 1); /* it has joined the watch, and looked again */
    atomic_store(&s.let_go, 1);
    int64_t before = lab_now_us();
    end(&leader);
    end(&one);
    assert_true(one.status == CORRAL_OK && one.how == CORRAL_JOINED);
    assert_in_range(lab_now_us() - before, 0, 10000000);
    assert_int_equal(corral_invalidate(s.c, "k", 1, NULL), CORRAL_OK);
  }
  assert_int_equal(atomic_load(&t.computes), 0);
  corral_close(t.c);
  corral_close(s.c);
}

static void waiters_are_woken_by_the_store(void **state) {
  (void)state;
  on_each_that_tells(a_waiter_is_woken_by);
}

#ifdef LIVE
#include "answers_live.h"
#else
#define LIVE_TESTS
#endif

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(tags_invalidate), T(tags_expire), T(fills_under_way_are_voided_by_tag), T(a_mark_that_is_lost_voids), T(many_first_values_of_a_tag_are_all_kept),
      T(a_tag_has_1_to_200_bytes), T(a_whole_namespace_goes_at_once), T(values_set_at_once_in_a_new_namespace_all_count), T(who_shares_a_namespace_agrees_on_generation), T(without_the_option_that_is_refused_by_name), T(versions_order_fills),
      T(what_is_not_modified_is_renewed), T(not_modified_without_an_old_value_is_a_failure), T(an_absolute_end_caps_the_lives),
      T(so_many_negatives_are_stored_and_no_more), T(packed_values_are_read_by_all), T(what_can_t_be_cached_is_computed_in_parallel),
      T(by_the_workers_too), T(a_pass_ends), T(one_who_waits_leaves_at_once), T(one_who_waits_for_the_store_leaves_at_once),
      T(one_who_queues_for_a_slot_leaves_at_once), T(a_compute_is_told_when_the_last_one_has_left),
      T(a_background_compute_is_told_when_the_last_waiter_s_deadline_has_come), T(after_the_soft_limit_the_stale_value_is_taken),
      T(at_the_deadline_a_call_computes_for_itself), T(a_copy_answers_alone), T(what_this_process_does_to_a_key_its_copy_follows),
      T(a_copy_is_rebuilt_ahead_of_time_too), T(copies_follow_what_others_do), T(waiters_are_woken_by_the_store),
      LIVE_TESTS
  };
#ifdef LIVE
  start_servers();
#endif
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
#ifdef LIVE
  stop_servers();
#endif
  return failed;
}
