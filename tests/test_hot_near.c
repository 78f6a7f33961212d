/* test_hot_near.c: the option `hot`: a key that most calls are for has a copy in the process, also
 * where others have none, and is rebuilt ahead of its end by one call for all. */
#include <corral/loop.h>
#include <pthread.h>

#include "support/answers_kit.h"
#include "support/loop_kit.h"

enum { SHARE = 20, PATIENCE_GETS = 200000, COLD = 50 };

static corral *opened_hot(const char *uri) {
  return opened(CORRAL_OPTIONS(.store = uri, .hot_pct = SHARE, .watch = CORRAL_OFF));
}

static uint64_t near_hits(const corral *c) { return corral_counter(c, CORRAL_EVENT_NEAR); }

static corral_policy far_sighted(void) {
  corral_policy policy = usual();
  policy.near_ms = FAR;
  return policy;
}

/* One of many keys, none of which has its share. */
static void asks_cold(corral *c, const corral_policy *policy, say *s, int number) {
  char key[16];
  snprintf(key, sizeof key, "cold %d", number % COLD);
  assert_int_equal(asks_by(c, key, policy, s).status, CORRAL_OK);
}

/* Every other call is for the key, until it is hot. */
static void heats(corral *c, const char *key, const corral_policy *policy, say *s) {
  say cold = {.text = "c"};
  uint64_t before = near_hits(c);
  for (int i = 0; near_hits(c) == before; i++) {
    if (i > PATIENCE_GETS) fail_msg("%s never has a copy", key);
    assert_int_equal(asks_by(c, key, policy, s).status, CORRAL_OK);
    asks_cold(c, policy, &cold, i);
  }
}

/* ---- copies -------------------------------------------------------------------------------- */

static void only_a_hot_key_is_kept_near_on(const char *uri) {
  corral *c = opened_hot(uri);
  corral_policy policy = far_sighted(), off = usual();
  say s = {.text = "v"}, cold = {.text = "c"};
  assert_string_equal(asks_by(c, "k", &policy, &s).text, "v");
  for (int i = 0; i < COLD; i++) asks_cold(c, &policy, &cold, i);
  assert_int_equal(corral_near_used(c), 0);
  heats(c, "k", &policy, &s);
  uint64_t near = near_hits(c), hits = corral_counter(c, CORRAL_EVENT_HIT),
           used = corral_near_used(c);
  assert_true(used > 0 && used < 1000);
  for (int i = 0; i < COLD; i++) {
    assert_string_equal(asks_by(c, "k", &policy, &s).text, "v");
    asks_cold(c, &policy, &cold, i);
  }
  assert_int_equal(near_hits(c), near + COLD);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), hits + COLD);
  assert_int_equal(corral_near_used(c), used);
  assert_int_equal(s.ran, 1);
  off.near_ms = CORRAL_OFF; /* a call that wants no copy gets none */
  assert_string_equal(asks_by(c, "k", &off, &s).text, "v");
  assert_int_equal(near_hits(c), near + COLD);
  corral_close(c);
}

static void only_a_hot_key_is_kept_near(void **state) {
  (void)state;
  on_each(only_a_hot_key_is_kept_near_on);
}

static void without_the_option_no_key_is_hot_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .watch = CORRAL_OFF));
  corral_policy policy = far_sighted();
  say s = {.text = "v"};
  for (int i = 0; i < 5000; i++) asks_by(c, "k", &policy, &s);
  assert_int_equal(near_hits(c), 0);
  assert_int_equal(corral_near_used(c), 0);
  corral_close(c);
}

static void without_the_option_no_key_is_hot(void **state) {
  (void)state;
  on_each(without_the_option_no_key_is_hot_on);
}

/* With a near tier for all keys the option makes no difference to who has a copy. */
static void with_a_near_tier_all_keys_have_copies_on(const char *uri) {
  corral *c = opened(
      CORRAL_OPTIONS(.store = uri, .hot_pct = SHARE, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = far_sighted();
  say cold = {.text = "c"};
  for (int i = 0; i < 3 * COLD; i++) asks_cold(c, &policy, &cold, i);
  assert_int_equal(near_hits(c), 2 * COLD);
  corral_close(c);
}

static void with_a_near_tier_all_keys_have_copies(void **state) {
  (void)state;
  on_each(with_a_near_tier_all_keys_have_copies_on);
}

static void the_copy_of_a_hot_key_ends_when_its_process_changes_it_on(const char *uri) {
  corral *c =
      opened(CORRAL_OPTIONS(.store = uri, .hot_pct = SHARE, .watch = CORRAL_OFF, .generation = 1));
  corral_policy policy = far_sighted();
  say s = {.text = "1", .tags = {"t"}};
  heats(c, "k", &policy, &s);
  for (int round = 0; round < 4; round++) {
    uint64_t near = near_hits(c);
    for (int i = 0; i < 5; i++) assert_string_equal(asks_by(c, "k", &policy, &s).text, "1");
    assert_in_range(near_hits(c), near + 3, near + 5);
    int ran = s.ran;
    switch (round) {
      case 0: assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK); break;
      case 1: assert_int_equal(corral_invalidate_tag(c, "t", 1, NULL), CORRAL_OK); break;
      case 2: assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK); break;
      default: assert_int_equal(corral_invalidate_all(c, NULL), CORRAL_OK); break;
    }
    assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
    assert_int_equal(s.ran, ran + 1);
  }
  corral_close(c);
}

static void the_copy_of_a_hot_key_ends_when_its_process_changes_it(void **state) {
  (void)state;
  on_each(the_copy_of_a_hot_key_ends_when_its_process_changes_it_on);
}

/* Without a watch a copy answers for near_ms, no longer. */
static void the_copy_of_a_hot_key_obeys_near_ms_on(const char *uri) {
  corral *c = opened_hot(uri), *other = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = usual();
  say s = {.text = "1"}, two = {.text = "2"};
  policy.near_ms = 50;
  heats(c, "k", &policy, &s);
  for (int round = 0; round < 3; round++) {
    assert_int_equal(corral_invalidate(other, "k", 1, NULL), CORRAL_OK);
    assert_string_equal(asks_by(other, "k", &policy, &two).text, "2");
    int64_t told = lab_now_us();
    while (strcmp(asks_by(c, "k", &policy, &s).text, "2") != 0)
      if (lab_now_us() > told + INT64_C(20000000)) fail_msg("the copy goes on answering");
    assert_int_equal(corral_invalidate(other, "k", 1, NULL), CORRAL_OK);
    assert_string_equal(asks_by(other, "k", &policy, &s).text, "1");
    told = lab_now_us();
    while (strcmp(asks_by(c, "k", &policy, &s).text, "1") != 0)
      if (lab_now_us() > told + INT64_C(20000000)) fail_msg("the copy goes on answering");
  }
  corral_close(other);
  corral_close(c);
}

static void the_copy_of_a_hot_key_obeys_near_ms(void **state) {
  (void)state;
  on_each(the_copy_of_a_hot_key_obeys_near_ms_on);
}

/* A cold key's tags are read with each of its gets, as without the option. */
static void the_tags_of_cold_keys_have_no_copies_on(const char *uri) {
  corral *c = opened_hot(uri), *other = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = far_sighted();
  say s = {.text = "1", .tags = {"t"}}, hot = {.text = "h"};
  heats(c, "hot", &policy, &hot);
  for (int round = 0; round < 5; round++) {
    asks_by(c, "k", &policy, &s);
    assert_string_equal(asks_by(c, "k", &policy, &s).text, "1");
    assert_int_equal(corral_invalidate_tag(other, "t", 1, NULL), CORRAL_OK);
    assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
  }
  corral_close(other);
  corral_close(c);
}

static void the_tags_of_cold_keys_have_no_copies(void **state) {
  (void)state;
  on_each(the_tags_of_cold_keys_have_no_copies_on);
}

/* ---- other kinds of calls ------------------------------------------------------------------ */

static void calls_for_several_and_peeks_count_on(const char *uri) {
  corral *c = opened_hot(uri);
  corral_policy policy = far_sighted();
  say s = {.text = "v"}, cold = {.text = "c"};
  corral_value *value = NULL;
  asks_by(c, "k", &policy, &s);
  asks_by(c, "other", &policy, &cold);
  for (int i = 0; near_hits(c) == 0; i++) {
    corral_item items[] = {{.key = "k", .key_len = 1}, {.key = "other", .key_len = 5}};
    if (i > PATIENCE_GETS) fail_msg("calls for several are not counted");
    assert_int_equal(corral_get_many(c, items, 2, CORRAL_CALL(.policy = &policy), NULL, NULL),
                     CORRAL_OK);
    for (int k = 0; k < 2; k++) corral_value_unref(items[k].value);
  }
  asks_cold(c, &policy, &cold, 1);
  for (int k = 0; k < 2; k++) { /* a copy; what the store has at hand */
    const char *key = k == 0 ? "k" : "cold 1";
    assert_int_equal(corral_peek(c, key, strlen(key), CORRAL_CALL(.policy = &policy), &value),
                     CORRAL_OK);
    corral_value_unref(value);
  }
  assert_int_equal(corral_peek(c, "none", 4, NULL, &value), CORRAL_EMISS);
  corral_close(c);
}

static void calls_for_several_and_peeks_count(void **state) {
  (void)state;
  on_each(calls_for_several_and_peeks_count_on);
}

static void calls_of_an_event_loop_count_on(const char *uri) {
  corral *c = opened_hot(uri);
  corral_loop *loop = loop_of(c);
  corral_policy policy = far_sighted();
  int dones = 0;
  for (; near_hits(c) < 10; dones++) {
    request r = {.makes = "v"};
    if (dones > PATIENCE_GETS) fail_msg("calls of a loop are not counted");
    ask(loop, "k", &policy, &r);
    RUN_UNTIL(loop, r.gones, 1);
    assert_string_equal(r.text, "v");
    assert_int_equal(r.starts, dones == 0);
  }
  corral_loop_close(loop);
  corral_close(c);
}

static void calls_of_an_event_loop_count(void **state) {
  (void)state;
  on_each(calls_of_an_event_loop_count_on);
}

/* ---- ahead of the end ---------------------------------------------------------------------- */

static void a_hot_key_is_rebuilt_ahead_on(const char *uri) {
  corral *c = opened_hot(uri);
  corral_policy policy = far_sighted();
  say s = {.text = "v"};
  policy.ttl_ms = 2500;
  heats(c, "k", &policy, &s);
  int64_t until = lab_now_us() + INT64_C(60000000);
  while (corral_counter(c, CORRAL_EVENT_EARLY) == 0) {
    assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_OK);
    if (lab_now_us() > until) fail_msg("it is never rebuilt ahead");
  }
  corral_close(c);
}

static void a_hot_key_is_rebuilt_ahead(void **state) {
  (void)state;
  on_each(a_hot_key_is_rebuilt_ahead_on);
}

static void with_early_off_it_is_not_on(const char *uri) {
  corral *c = opened_hot(uri);
  corral_policy policy = far_sighted();
  say s = {.text = "v"};
  policy.ttl_ms = 500;
  policy.early_pct = CORRAL_OFF;
  heats(c, "k", &policy, &s);
  for (int least = s.ran + 3; s.ran < least;) asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_EARLY), 0);
  corral_close(c);
}

static void with_early_off_it_is_not(void **state) {
  (void)state;
  on_each(with_early_off_it_is_not_on);
}

/* A thread that asks until it computes the value for the second time. */
typedef struct rebuilder {
  corral *c;
  corral_policy policy;
  atomic_int ran, inside, let_go;
} rebuilder;

static int slow(corral_fill *fill, const void *key, size_t len, void *arg) {
  rebuilder *r = arg;
  if (atomic_fetch_add(&r->ran, 1) == 1) {
    atomic_store(&r->inside, 1);
    while (!atomic_load(&r->let_go)) sched_yield();
  }
  return corral_fill_bytes(fill, key, len);
}

static int asks_slow(rebuilder *r) {
  corral_value *value = NULL;
  int status =
      corral_get_or_compute(r->c, "k", 1, CORRAL_CALL(.policy = &r->policy), slow, r, &value);
  corral_value_unref(value);
  return status;
}

static void *rebuilds(void *arg) {
  rebuilder *r = arg;
  while (!atomic_load(&r->inside) && asks_slow(r) == CORRAL_OK) continue;
  return NULL;
}

/* Early rebuilds of other keys have each call ask the store until they are done. */
static void meanwhile_the_others_have_the_copy_on(const char *uri) {
  enum { CALLS = 2000, TTL_MS = 20000 };
  rebuilder r = {.c = opened_hot(uri), .policy = far_sighted()};
  pthread_t thread;
  r.policy.ttl_ms = TTL_MS;
  r.policy.early_pct = CORRAL_OFF;
  for (int i = 0; near_hits(r.c) == 0; i++)
    if (i > PATIENCE_GETS || asks_slow(&r) != CORRAL_OK) fail_msg("the key is never hot");
  r.policy.early_pct = 90;
  assert_int_equal(pthread_create(&thread, NULL, rebuilds, &r), 0);
  while (!atomic_load(&r.inside)) sched_yield();
  uint64_t hits = corral_counter(r.c, CORRAL_EVENT_HIT), near = near_hits(r.c);
  int64_t began = lab_now_us();
  for (int i = 0; i < CALLS; i++) assert_int_equal(asks_slow(&r), CORRAL_OK);
  int64_t seconds = (lab_now_us() - began) / 1000000 + 1;
  assert_true(corral_counter(r.c, CORRAL_EVENT_HIT) - hits <= (uint64_t)seconds + 1);
  assert_true(near_hits(r.c) - near >= CALLS - (uint64_t)seconds - 1);
  atomic_store(&r.let_go, 1);
  pthread_join(thread, NULL);
  assert_int_equal(atomic_load(&r.ran), 2);
  corral_close(r.c);
}

static void meanwhile_the_others_have_the_copy(void **state) {
  (void)state;
  on_each(meanwhile_the_others_have_the_copy_on);
}

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(only_a_hot_key_is_kept_near),
      T(without_the_option_no_key_is_hot),
      T(with_a_near_tier_all_keys_have_copies),
      T(the_copy_of_a_hot_key_ends_when_its_process_changes_it),
      T(the_copy_of_a_hot_key_obeys_near_ms),
      T(the_tags_of_cold_keys_have_no_copies),
      T(calls_for_several_and_peeks_count),
      T(calls_of_an_event_loop_count),
      T(a_hot_key_is_rebuilt_ahead),
      T(with_early_off_it_is_not),
      T(meanwhile_the_others_have_the_copy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
