/* test_shadow.c: examples/shadow.c changes nothing of its program, and counts what corral would
 * have saved. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>
#include <poll.h>
#include <stdlib.h>

#define main example_main
#include "../examples/shadow.c"
#undef main

enum { CALLERS = 4, PATIENCE_MS = 10000, LONG_KEY = 70000 };

/* `wait_ms` is long where nobody is waited for, so that a slow machine changes no count. */
static shadow begun(const char *store, int64_t wait_ms) {
  shadow s = {.wait_ms = wait_ms};
  corral_error error = {0};
  if (corral_open(CORRAL_OPTIONS(.store = store), &s.c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return s;
}

static void counts(shadow *s, unsigned long computes, unsigned long saved, unsigned long errors) {
  assert_int_equal(atomic_load(&s->computes), computes);
  assert_int_equal(atomic_load(&s->saved), saved);
  assert_int_equal(atomic_load(&s->errors), errors);
}

typedef struct work {
  const char *key;
  atomic_int runs;
  int answer, wait_for;
} work;

/* Notes a run of the program's own compute; waits until as many have begun as the test wants. */
static int their_work(const char *key, void *arg) {
  work *w = arg;
  assert_ptr_equal(key, w->key);
  atomic_fetch_add(&w->runs, 1);
  for (int i = 0; i < PATIENCE_MS && atomic_load(&w->runs) < w->wait_for; i++) poll(NULL, 0, 1);
  return w->answer;
}

static void each_compute_is_made_and_those_that_corral_had_are_savings(void **state) {
  (void)state;
  shadow s = begun("memory:", PATIENCE_MS);
  work w = {.key = "page"};
  for (int i = 0; i < 3; i++) assert_int_equal(shadow_compute(&s, w.key, 60000, their_work, &w), 0);
  assert_int_equal(atomic_load(&w.runs), 3);
  counts(&s, 3, 2, 0);
  corral_close(s.c);
}

static void a_compute_that_fails_is_made_again_and_is_no_saving(void **state) {
  (void)state;
  shadow s = begun("memory:", PATIENCE_MS);
  work w = {.key = "page", .answer = 7};
  for (int i = 0; i < 3; i++) assert_int_equal(shadow_compute(&s, w.key, 60000, their_work, &w), 7);
  assert_int_equal(atomic_load(&w.runs), 3);
  assert_int_equal(atomic_load(&s.saved), 0);
  assert_int_equal(atomic_load(&s.computes), 3);
  corral_close(s.c);
}

static void what_corral_refuses_is_an_error_and_no_saving(void **state) {
  (void)state;
  static char key[LONG_KEY + 1];
  memset(key, 'k', LONG_KEY);
  shadow s = begun("memory:", PATIENCE_MS);
  work w = {.key = key};
  assert_int_equal(shadow_compute(&s, w.key, 60000, their_work, &w), 0);
  assert_int_equal(atomic_load(&w.runs), 1);
  counts(&s, 1, 0, 1);
  corral_close(s.c);
}

static void a_store_that_is_away_saves_nothing(void **state) {
  (void)state;
  shadow s = begun("redis+unix:///no/such/socket", PATIENCE_MS);
  work w = {.key = "page"};
  for (int i = 0; i < 3; i++) assert_int_equal(shadow_compute(&s, w.key, 60000, their_work, &w), 0);
  assert_int_equal(atomic_load(&w.runs), 3);
  assert_int_equal(atomic_load(&s.saved), 0);
  corral_close(s.c);
}

typedef struct caller {
  shadow *s;
  work *w;
} caller;

static void *call(void *arg) {
  caller *c = arg;
  assert_int_equal(shadow_compute(c->s, c->w->key, 60000, their_work, c->w), 0);
  return NULL;
}

/* No compute ends before all have begun: a caller that corral held back would end the test. */
static void callers_at_once_all_compute_at_once_as_ever(void **state) {
  (void)state;
  shadow s = begun("memory:", 5);
  work w = {.key = "page", .wait_for = CALLERS};
  caller c = {&s, &w};
  pthread_t threads[CALLERS];
  for (int i = 0; i < CALLERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, call, &c), 0);
  for (int i = 0; i < CALLERS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&w.runs), CALLERS);
  /* all but the one who leads; he, too, if he was held up before he began */
  assert_in_range(atomic_load(&s.saved), CALLERS - 1, CALLERS);
  assert_int_equal(atomic_load(&s.errors), 0);
  corral_close(s.c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(each_compute_is_made_and_those_that_corral_had_are_savings),
      cmocka_unit_test(a_compute_that_fails_is_made_again_and_is_no_saving),
      cmocka_unit_test(what_corral_refuses_is_an_error_and_no_saving),
      cmocka_unit_test(a_store_that_is_away_saves_nothing),
      cmocka_unit_test(callers_at_once_all_compute_at_once_as_ever),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
