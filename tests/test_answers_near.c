/* test_answers_near.c: the near tier: through the public functions, on the stores that need no
 * server. test_answers_near_live.c does the same on the stores that need one. */
#include <corral/loop.h>
#include <pthread.h>

#include "support/answers_kit.h"

static void a_copy_answers_alone_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF,
                                    .policy = CORRAL_POLICY(.near_ms = FAR)));
  say s = {.text = "v"}, none = {.text = NULL};
  assert_int_equal(corral_near_used(c), 0);
  GETS(c, "k", &s, "v", CORRAL_COMPUTED); /* its settle leaves a copy */
  assert_in_range(corral_near_used(c), 2, 1 << 20);
  for (int i = 0; i < 3; i++) GETS(c, "k", &s, "v", CORRAL_FRESH);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 3);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), 0);
  for (int i = 0; i < 4; i++) assert_int_equal(asks(c, "none", &none).status, CORRAL_ENOTFOUND);
  assert_int_equal(none.ran, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 6);
  corral_policy policy = usual();
  policy.near_ms = CORRAL_OFF;
  asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 6);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_HIT), 1);
  corral_close(c);
}

static void a_copy_answers_alone(void **state) {
  (void)state;
  on_each(a_copy_answers_alone_on);
}

static void what_this_process_does_to_a_key_its_copy_follows_on(const char *uri) {
  corral *c = opened(
      CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF, .generation = 1));
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
    asks_by(c, "another", &policy, &another); /* copies the current marks */
    asks_by(c, "another", &policy, &another);
    assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
    assert_int_equal(s.ran, ran + 1);
  }
  for (int i = 0; i < 3; i++) asks_by(c, "k", &policy, &s);
  assert_int_equal(corral_set(c, "k", 1, CORRAL_CALL(.policy = &policy), "set", 3), CORRAL_OK);
  assert_string_equal(asks_by(c, "k", &policy, &s).text, "set");
  corral_close(c);
}

static void what_this_process_does_to_a_key_its_copy_follows(void **state) {
  (void)state;
  on_each(what_this_process_does_to_a_key_its_copy_follows_on);
}

/* Early rebuilds must happen although a copy answers alone. */
static void a_copy_is_rebuilt_ahead_of_time_too_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = usual();
  say s = {.text = "v"};
  policy.ttl_ms = 20000;
  policy.early_pct = 80; /* it is early after 4 s: a copy answers before */
  policy.near_ms = FAR;
  int64_t until = lab_now_us() + 18000000;
  while (s.ran < 2 && lab_now_us() < until)
    assert_int_equal(asks_by(c, "k", &policy, &s).status, CORRAL_OK);
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

/* Another thread of the process invalidates the key when it has just been stored. */
typedef struct intruder {
  corral *c;
  int goes;
} intruder;

static void *invalidate(void *arg) {
  assert_int_equal(corral_invalidate(arg, "k", 1, NULL), CORRAL_OK);
  return NULL;
}

static void invalidate_filled(const corral_event_info *info, void *arg) {
  intruder *in = arg;
  pthread_t thread;
  if (info->event != CORRAL_EVENT_FILL || !in->goes) return;
  assert_int_equal(pthread_create(&thread, NULL, invalidate, in->c), 0);
  pthread_join(thread, NULL);
}

static void what_was_invalidated_while_it_was_stored_leaves_no_copy_on(const char *uri) {
  intruder in = {.goes = 1};
  corral *c = in.c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF,
                                           .policy = CORRAL_POLICY(.near_ms = FAR),
                                           .on_event = invalidate_filled, .event_arg = &in));
  say s = {.text = "v"};
  GETS(c, "k", &s, "v", CORRAL_COMPUTED);
  in.goes = 0;
  GETS(c, "k", &s, "v", CORRAL_COMPUTED);
  GETS(c, "k", &s, "v", CORRAL_FRESH);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 1);
  corral_close(c);
}

static void what_was_invalidated_while_it_was_stored_leaves_no_copy(void **state) {
  (void)state;
  on_each(what_was_invalidated_while_it_was_stored_leaves_no_copy_on);
}

static corral_policy persistent(int64_t retry_ms) {
  corral_policy policy = graceful();
  policy.near_ms = FAR;
  policy.retry_ms = policy.retry_max_ms = retry_ms;
  return policy;
}

/* One call computes, the next one looks, all others have a copy. */
static void a_stale_value_comes_from_a_copy_while_the_origin_fails_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = persistent(FAR);
  corral_value *value = NULL;
  say s = {.text = "v"};
  assert_int_equal(asks_by(c, "k", &policy, &s).how, CORRAL_COMPUTED);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  s.fails = 1;
  for (int i = 0; i < 20; i++) {
    got g = asks_by(c, "k", &policy, &s);
    assert_int_equal(g.status, CORRAL_OK);
    assert_string_equal(g.text, "v");
    assert_int_equal(g.how, CORRAL_STALE);
    assert_int_equal(g.failure, 5);
  }
  assert_int_equal(s.ran, 2);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 18);
  assert_int_equal(corral_peek(c, "k", 1, CORRAL_CALL(.policy = &policy), &value), CORRAL_EMISS);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  s.fails = 0;
  got g = asks_by(c, "k", &policy, &s);
  assert_int_equal(g.how, CORRAL_COMPUTED);
  assert_int_equal(g.failure, 0);
  corral_close(c);
}

static void a_stale_value_comes_from_a_copy_while_the_origin_fails(void **state) {
  (void)state;
  on_each(a_stale_value_comes_from_a_copy_while_the_origin_fails_on);
}

static void a_failure_comes_from_a_copy_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = persistent(FAR);
  say s = {.fails = 1};
  for (int i = 0; i < 20; i++) {
    corral_value *value = NULL;
    corral_error error;
    int status = corral_get_or_compute(c, "f", 1, CORRAL_CALL(.policy = &policy, .error = &error),
                                       answer, &s, &value);
    assert_int_equal(status, CORRAL_EFAILED);
    assert_string_equal(error.text, "the origin is away");
    assert_int_equal(error.code, 5);
    assert_in_range(error.retry_after_ms, 1, FAR);
  }
  assert_int_equal(s.ran, 1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 18);
  corral_close(c);
}

static void a_failure_comes_from_a_copy(void **state) {
  (void)state;
  on_each(a_failure_comes_from_a_copy_on);
}

/* The copy ends with the pause, though it could answer for longer. */
static void a_copy_of_a_failure_ends_with_it_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20, .watch = CORRAL_OFF));
  corral_policy policy = persistent(300);
  say s = {.fails = 1}, stale = {.text = "v"};
  int64_t until = lab_now_us() + 60000000;
  assert_int_equal(asks_by(c, "s", &policy, &stale).how, CORRAL_COMPUTED);
  assert_int_equal(corral_expire(c, "s", 1, NULL), CORRAL_OK);
  stale.fails = 1;
  while (s.ran < 3 || stale.ran < 4) {
    assert_int_equal(asks_by(c, "f", &policy, &s).status, CORRAL_EFAILED);
    assert_int_equal(asks_by(c, "s", &policy, &stale).how, CORRAL_STALE);
    if (lab_now_us() > until) fail_msg("the origin is never asked again");
  }
  assert_true(corral_counter(c, CORRAL_EVENT_NEAR) > 0);
  corral_close(c);
}

static void a_copy_of_a_failure_ends_with_it(void **state) {
  (void)state;
  on_each(a_copy_of_a_failure_ends_with_it_on);
}

/* Changes by another corral on the same store arrive through the watch; until then the copy may
 * answer with the old value. */
static void what_others_do_is_told(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .near_bytes = 1 << 20)),
         *other = opened(CORRAL_OPTIONS(.store = uri));
  corral_policy policy = usual();
  say s = {.text = "v"};
  policy.near_ms = FAR;
  /* The watch opens after the first look; copies of looks before that don't answer alone. */
  while (corral_counter(c, CORRAL_EVENT_NEAR) == 0) asks_by(c, "k", &policy, &s);
  for (int i = 0; i < 20; i++) {
    char text[16];
    snprintf(text, sizeof text, "%d", i);
    assert_int_equal(corral_set(other, "k", 1, CORRAL_CALL(.policy = &policy), text, strlen(text)),
                     CORRAL_OK);
    int64_t until = lab_now_us() + 30000000;
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

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_copy_answers_alone),
      T(what_this_process_does_to_a_key_its_copy_follows),
      T(a_copy_is_rebuilt_ahead_of_time_too),
      T(what_was_invalidated_while_it_was_stored_leaves_no_copy),
      T(a_stale_value_comes_from_a_copy_while_the_origin_fails),
      T(a_failure_comes_from_a_copy),
      T(a_copy_of_a_failure_ends_with_it),
      T(copies_follow_what_others_do),
  };
  start_servers();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  stop_servers();
  return failed;
}
