/* test_detach.c: after a change of a tag, or of all values, nobody joins a flight that was under
 * way before it: such a flight may have read what the change voids. */
#include <pthread.h>

#include "support/answers_kit.h"

typedef struct caller {
  corral *c;
  pthread_t thread;
  atomic_int *gate; /* the compute waits for it; NULL: it does not wait */
  const char *text;
  atomic_int inside;
  int status;
  char got[16];
} caller;

static int answer_behind_the_gate(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  caller *k = arg;
  (void)key, (void)key_len;
  lab_add(&k->inside, 1);
  if (k->gate != NULL) lab_await_ms(k->gate, 1, FAR);
  corral_fill_tag(fill, "t", 1);
  return corral_fill_bytes(fill, k->text, strlen(k->text));
}

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  policy.wait_ms = FAR;
  policy.lease_ms = policy.lease_min_ms = FAR;
  k->status = corral_get_or_compute(k->c, "k", 1, CORRAL_CALL(.policy = &policy),
                                    answer_behind_the_gate, k, &value);
  if (k->status == CORRAL_OK)
    snprintf(k->got, sizeof k->got, "%.*s", (int)corral_value_size(value),
             (const char *)corral_value_data(value));
  corral_value_unref(value);
  return NULL;
}

static int invalidate_tag(corral *c) { return corral_invalidate_tag(c, "t", 1, NULL); }
static int expire_tag(corral *c) { return corral_expire_tag(c, "t", 1, NULL); }
static int invalidate_all(corral *c) { return corral_invalidate_all(c, NULL); }
static int expire_all(corral *c) { return corral_expire_all(c, NULL); }

/* The later caller waits for the lease of the earlier one, in the store. */
static void does_not_join(const char *uri, int (*change)(corral *c)) {
  atomic_int gate = 0;
  corral *c = opened(CORRAL_OPTIONS(.store = uri, .generation = 1));
  caller early = {.c = c, .gate = &gate, .text = "early"}, late = {.c = c, .text = "late"};
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(pthread_create(&early.thread, NULL, call, &early), 0);
  assert_true(lab_await_ms(&early.inside, 1, FAR));
  assert_int_equal(change(c), CORRAL_OK);
  assert_int_equal(pthread_create(&late.thread, NULL, call, &late), 0);
  while (corral_counter(c, CORRAL_EVENT_WAIT) + corral_counter(c, CORRAL_EVENT_JOIN) == 0)
    lab_sleep_ms(1);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_JOIN), 0);
  lab_add(&gate, 1);
  pthread_join(early.thread, NULL);
  pthread_join(late.thread, NULL);
  assert_int_equal(early.status, CORRAL_OK);
  assert_string_equal(early.got, "early");
  assert_int_equal(late.status, CORRAL_OK);
  if (change == invalidate_tag || change == invalidate_all) assert_string_equal(late.got, "late");
  corral_close(c);
}

static void nobody_joins_what_was_before_invalidate_tag_on(const char *uri) {
  does_not_join(uri, invalidate_tag);
}
static void nobody_joins_what_was_before_expire_tag_on(const char *uri) {
  does_not_join(uri, expire_tag);
}
static void nobody_joins_what_was_before_invalidate_all_on(const char *uri) {
  does_not_join(uri, invalidate_all);
}
static void nobody_joins_what_was_before_expire_all_on(const char *uri) {
  does_not_join(uri, expire_all);
}

#define ON_EACH(story)                                                                             \
  static void story(void **state) {                                                                \
    (void)state;                                                                                   \
    on_each(story##_on);                                                                           \
  }
ON_EACH(nobody_joins_what_was_before_invalidate_tag)
ON_EACH(nobody_joins_what_was_before_expire_tag)
ON_EACH(nobody_joins_what_was_before_invalidate_all)
ON_EACH(nobody_joins_what_was_before_expire_all)

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, lab_make_room, lab_leave_room)
  const struct CMUnitTest tests[] = {
      T(nobody_joins_what_was_before_invalidate_tag),
      T(nobody_joins_what_was_before_expire_tag),
      T(nobody_joins_what_was_before_invalidate_all),
      T(nobody_joins_what_was_before_expire_all),
  };
  return cmocka_run_group_tests_name("detach", tests, NULL, NULL);
}
