/* test_answers.c: the properties that a compute can give to its value, and changes of many values
 * at once: through the public functions, on the stores that need no server. test_answers_live.c
 * does the same on the stores that need one. */
#include <pthread.h>
#include <time.h>

#include "support/answers_kit.h"

#include "os/env.h"
#include "api/handle.h"

/* ---- tags ---------------------------------------------------------------------------------- */

static void a_tag_reaches_all_that_carry_it(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say one = {.text = "1", .tags = {"red", "round"}}, two = {.text = "2", .tags = {"red"}},
      three = {.text = "3", .tags = {"round"}}, none = {.text = "0"};
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
  /* not even in grace (bentocache#71) */
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_EFAILED);
  corral_close(c);
}

static void tags_expire(void **state) {
  (void)state;
  on_each(an_expired_tag_leaves_the_grace);
}

/* Invalidates a tag during the compute of a value that will carry it. */
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
  asks(c, "old", &first); /* makes the mark of "known" */
  for (int i = 0; i < 2; i++) {
    corral_value *value = NULL;
    race r = {.c = other, .tag = tags[i], .say = {.text = "before", .tags = {tags[i]}}};
    char key[16];
    snprintf(key, sizeof key, "key %d", i);
    assert_int_equal(corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.policy = &policy),
                                           invalidated_meanwhile, &r, &value),
                     CORRAL_OK);
    /* the caller of the compute gets the value nevertheless */
    assert_int_equal(corral_value_how(value), CORRAL_COMPUTED);
    corral_value_unref(value);
    say now = {.text = "after", .tags = {tags[i]}};
    GETS(c, key, &now, "after", CORRAL_COMPUTED);
  }
  /* also with a tag of the old value */
  corral_value *value = NULL;
  race r = {.c = other, .tag = "known", .say = {.text = "before", .tags = {"known"}}};
  say now = {.text = "after", .tags = {"known"}};
  asks(c, "old", &first);
  assert_int_equal(corral_expire(c, "old", 3, NULL), CORRAL_OK);
  assert_int_equal(corral_get_or_compute(c, "old", 3, CORRAL_CALL(.policy = &policy),
                                         invalidated_meanwhile, &r, &value),
                   CORRAL_OK);
  corral_value_unref(value);
  GETS(c, "old", &now, "after", CORRAL_COMPUTED);
  corral_close(other);
  corral_close(c);
}

static void fills_under_way_are_voided_by_tag(void **state) {
  (void)state;
  on_each(a_value_computed_from_before_is_never_served);
}

static void lose_mark(corral *c, const char *tag) {
  crl_context *station;
  crl_key key;
  assert_int_equal(crl_context_enter(c, &station, NULL), CORRAL_OK);
  assert_int_equal(crl_key_make(&key, CRL_KEY_TAG, &station->space,
                                &(crl_name){.key = tag, .key_len = strlen(tag)}),
                   CORRAL_OK);
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = key.stored, .key_len = key.stored_len};
  crl_pool_perform(station->pool, &op, 1, crl_env_now_ms() + 5000);
  assert_int_equal(op.status, CORRAL_OK);
  crl_key_clean(&key);
}

/* The store loses a mark: values with that tag are void, and no old value comes back. */
static void a_mark_that_is_lost_voids_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say s = {.text = "v", .tags = {"t"}};
  asks(c, "k", &s);
  lose_mark(c, "t");
  GETS(c, "k", &s, "v", CORRAL_COMPUTED);
  /* A value is stored again only when its compute certainly began after the loss. */
  int64_t until = lab_now_us() + 20000000;
  while (asks(c, "k", &s).how != CORRAL_FRESH)
    if (lab_now_us() > until) fail_msg("a tag whose mark was lost never works again");
  corral_close(c);
}

static void a_mark_that_is_lost_voids(void **state) {
  (void)state;
  on_each(a_mark_that_is_lost_voids_on);
}

/* All first values of a new tag are stored, whichever of them made the mark. */
typedef struct crowd {
  corral *c;
  pthread_barrier_t all;
  _Atomic int computed;
} crowd;

static int tagged(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  crowd *w = arg;
  pthread_barrier_wait(&w->all); /* every compute begins before the first one ends */
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
  if (corral_get_or_compute(m->crowd->c, m->key, strlen(m->key), CORRAL_CALL(.policy = &policy),
                            tagged, m->crowd, &value) != CORRAL_OK)
    return NULL;
  m->kept = corral_value_kept(value);
  corral_value_unref(value);
  return m;
}

static void many_first_values_of_a_tag_are_all_kept_on(const char *uri) {
  enum { CROWD = 12 };
  crowd w = {.c = opened(CORRAL_OPTIONS(.store = uri, .op_ms = 20000))};
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

/* ---- a whole namespace --------------------------------------------------------------------- */

static void everything_goes_at_once(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .name_space = "a", .generation = 1));
  corral *neighbour = opened(CORRAL_OPTIONS(.store = uri, .name_space = "b", .generation = 1));
  corral_policy policy = graceful();
  say one = {.text = "1"}, negative = {.text = NULL}, two = {.text = "2", .tags = {"t"}};
  GETS(c, "one", &one, "1", CORRAL_COMPUTED);
  GETS(c, "two", &two, "2", CORRAL_COMPUTED);
  assert_int_equal(corral_set(c, "set", 3, CORRAL_CALL(.policy = &policy), "s", 1), CORRAL_OK);
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
  int number, status;
} setter;

static void *set_one(void *arg) {
  setter *s = arg;
  char key[16];
  corral_policy policy = usual();
  snprintf(key, sizeof key, "key %d", s->number);
  pthread_barrier_wait(s->all);
  s->status = corral_set(s->c, key, strlen(key), CORRAL_CALL(.policy = &policy), "v", 1);
  return NULL;
}

/* The mark of a new namespace is made by one setter; the others must not change it. */
static void first_values_that_are_set_at_once_all_count(const char *uri) {
  enum { SETTERS = 6, ROUNDS = 12 };
  for (int round = 0; round < ROUNDS; round++) {
    char space[24];
    pthread_barrier_t all;
    pthread_t threads[SETTERS];
    setter setters[SETTERS];
    snprintf(space, sizeof space, "space %d", round);
    corral *c =
        opened(CORRAL_OPTIONS(.store = uri, .name_space = space, .generation = 1, .op_ms = 20000));
    pthread_barrier_init(&all, NULL, SETTERS);
    for (int i = 0; i < SETTERS; i++) {
      setters[i] = (setter){.c = c, .all = &all, .number = i};
      assert_int_equal(pthread_create(&threads[i], NULL, set_one, &setters[i]), 0);
    }
    for (int i = 0; i < SETTERS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < SETTERS; i++) {
      char key[16];
      assert_int_equal(setters[i].status, CORRAL_OK);
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

/* A value without the namespace's tag may be older than an invalidation of the namespace, so it is
 * void. */
static void a_value_of_one_without_generation_is_void(const char *uri) {
  corral *with = opened(CORRAL_OPTIONS(.store = uri, .generation = 1)),
         *without = opened(CORRAL_OPTIONS(.store = uri));
  say one = {.text = "1"}, two = {.text = "2"};
  GETS(without, "k", &one, "1", CORRAL_COMPUTED);
  assert_string_equal(inspected(with, "k").state, "void");
  GETS(with, "k", &two, "2", CORRAL_COMPUTED);
  GETS(without, "k", &one, "2", CORRAL_FRESH);
  assert_int_equal(corral_invalidate_all(with, NULL), CORRAL_OK);
  /* the value has the tag, also for a reader without `generation` */
  GETS(without, "k", &one, "1", CORRAL_COMPUTED);
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

/* ---- versions ------------------------------------------------------------------------------ */

static void an_older_version_never_overwrites(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say five = {.text = "five", .version = 5}, four = {.text = "four", .version = 4},
      six = {.text = "six", .version = 6};
  policy.retry_ms = FAR;
  got g = asks_by(c, "k", &policy, &five);
  assert_int_equal(g.version, 5);
  assert_int_equal(inspected(c, "k").version, 5);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  g = asks_by(c, "k", &policy, &four);
  assert_string_equal(g.text, "four"); /* the caller of the compute gets the computed value */
  assert_true(g.how == CORRAL_COMPUTED && g.kept == CORRAL_KEPT_OLDER && g.version == 4);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_OLDER), 1);
  g = asks_by(c, "k", &policy, &six); /* no new compute within retry_ms */
  assert_string_equal(g.text, "five");
  assert_true(g.how == CORRAL_STALE && six.ran == 0);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK); /* ends the pause of retry_ms too */
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

/* ---- conditional refresh ------------------------------------------------------------------- */

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
  /* tags, version and validator of the renewed value are unchanged */
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  say third = {.text = "new", .validator = "\"2\"", .tags = {"t"}, .version = 4};
  asks_by(c, "k", &policy, &third);
  assert_string_equal(third.old_validator, "\"1\"");
  assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK);
  say fourth = {.text = "newer", .version = 5};
  asks_by(c, "k", &policy, &fourth);
  assert_string_equal(fourth.old, ""); /* an invalidated value isn't offered as the old one */
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

/* ---- lives, negatives, packing ------------------------------------------------------------- */

static int64_t wall_ms(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void an_absolute_end_caps_the_lives_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = graceful();
  say soon = {.text = "v", .not_after = wall_ms() + 20000},
      past = {.text = "v", .not_after = wall_ms() - 1};
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
  corral *packs = opened(CORRAL_OPTIONS(.store = uri, .compress_min = 1000)),
         *plain = opened(CORRAL_OPTIONS(.store = uri));
  memset(text, 'z', sizeof text);
  corral_policy policy = usual();
  corral_value *value = NULL;
  assert_int_equal(corral_set(packs, "k", 1, CORRAL_CALL(.policy = &policy), text, sizeof text),
                   CORRAL_OK);
  corral_inspection seen = inspected(plain, "k");
  assert_int_equal(seen.value_size, sizeof text);
  assert_true(seen.stored_size < 1000);
  assert_int_equal(corral_get(plain, "k", 1, CORRAL_CALL(.policy = &policy), &value), CORRAL_OK);
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

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(tags_invalidate),
      T(tags_expire),
      T(fills_under_way_are_voided_by_tag),
      T(a_mark_that_is_lost_voids),
      T(many_first_values_of_a_tag_are_all_kept),
      T(a_tag_has_1_to_200_bytes),
      T(a_whole_namespace_goes_at_once),
      T(values_set_at_once_in_a_new_namespace_all_count),
      T(who_shares_a_namespace_agrees_on_generation),
      T(without_the_option_that_is_refused_by_name),
      T(versions_order_fills),
      T(what_is_not_modified_is_renewed),
      T(not_modified_without_an_old_value_is_a_failure),
      T(an_absolute_end_caps_the_lives),
      T(so_many_negatives_are_stored_and_no_more),
      T(packed_values_are_read_by_all),
  };
  start_servers();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  stop_servers();
  return failed;
}
