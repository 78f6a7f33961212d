/* test_event_info.c: what the hook is told of an event besides its kind and its key. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#include <corral/lock.h>

#include "os/env.h"

/* The last event of each kind, without the memory that it pointed to. */
typedef struct log {
  corral_event_info last[CORRAL_EVENT_COUNT];
  char key[CORRAL_EVENT_COUNT][16], detail[CORRAL_EVENT_COUNT][240];
  int wrong;
} log_book;

static void note(const corral_event_info *info, void *arg) {
  log_book *l = arg;
  if (info->size != sizeof *info || (unsigned)info->event >= CORRAL_EVENT_COUNT) {
    l->wrong++;
    return;
  }
  l->last[info->event] = *info;
  snprintf(l->key[info->event], sizeof l->key[0], "%.*s", (int)info->key_len,
           info->key == NULL ? "" : (const char *)info->key);
  snprintf(l->detail[info->event], sizeof l->detail[0], "%s",
           info->detail == NULL ? "" : info->detail);
}

static corral *opened(const char *store, log_book *l) {
  corral *c = NULL;
  corral_error error = {0};
  memset(l, 0, sizeof *l);
  /* failures are remembered, and leases last, for longer than a test */
  if (corral_open(CORRAL_OPTIONS(.store = store, .on_event = note, .event_arg = l, .op_ms = 200,
                                 .breaker_failures = 1,
                                 .policy = CORRAL_POLICY(.retry_ms = 30000, .lease_ms = 30000,
                                                         .lease_min_ms = 30000)),
                  &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  crl_env_pause_us(3000);
  if (arg != NULL) return corral_fill_bytes(fill, arg, strlen(arg));
  corral_fill_fail(fill, 7, "no luck");
  return CORRAL_OK;
}

static void get(corral *c, const char *key, const char *text, int expected) {
  corral_value *value = NULL;
  assert_int_equal(
      corral_get_or_compute(c, key, strlen(key), NULL, answer, (void *)(uintptr_t)text, &value),
      expected);
  corral_value_unref(value);
}

static void a_compute_is_told_with_its_time_and_its_size(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  get(c, "k", "value", CORRAL_OK);
  const corral_event_info *computed = &l.last[CORRAL_EVENT_COMPUTED];
  assert_string_equal(l.key[CORRAL_EVENT_COMPUTED], "k");
  assert_true(computed->duration_us >= 3000);
  assert_int_equal(computed->bytes, 5);
  assert_int_equal(computed->status, CORRAL_OK);
  assert_int_equal(computed->server, -1);
  assert_null(computed->detail);
  corral_close(c);
  assert_int_equal(l.wrong, 0);
}

static void a_fill_is_told_with_the_time_size_and_server_of_its_record(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  get(c, "k", "value", CORRAL_OK);
  const corral_event_info *fill = &l.last[CORRAL_EVENT_FILL];
  assert_true(fill->duration_us >= 0);
  assert_true(fill->duration_us < l.last[CORRAL_EVENT_COMPUTED].duration_us * 1000);
  assert_true(fill->bytes > 5);
  assert_int_equal(fill->server, 0);
  assert_int_equal(l.last[CORRAL_EVENT_CLAIM].server, 0);
  corral_close(c);
}

static void a_hit_is_told_with_its_size_and_the_time_of_its_look(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  get(c, "k", "value", CORRAL_OK);
  get(c, "k", "value", CORRAL_OK);
  assert_int_equal(l.last[CORRAL_EVENT_HIT].bytes, 5);
  assert_true(l.last[CORRAL_EVENT_HIT].duration_us >= 0);
  corral_close(c);
}

static void a_hit_of_many_keys_is_told_likewise(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  corral_item items[] = {{.key = "k", .key_len = 1}};
  get(c, "k", "value", CORRAL_OK);
  assert_int_equal(corral_get_many(c, items, 1, NULL, NULL, NULL), CORRAL_OK);
  assert_int_equal(l.last[CORRAL_EVENT_HIT].bytes, 5);
  assert_true(l.last[CORRAL_EVENT_HIT].duration_us >= 0);
  corral_value_unref(items[0].value);
  corral_close(c);
}

static void a_near_hit_is_told_with_its_size(void **state) {
  (void)state;
  log_book l;
  corral *c = NULL;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "memory:", .on_event = note, .event_arg = &l,
                                 .near_bytes = 1 << 20, .policy = CORRAL_POLICY(.near_ms = 100000)),
                  &c, NULL),
      CORRAL_OK);
  memset(&l, 0, sizeof l);
  /* copies answer from when the store's watch is up */
  for (int i = 0; i < 1000 && corral_counter(c, CORRAL_EVENT_NEAR) == 0; i++)
    get(c, "k", "value", CORRAL_OK);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_NEAR), 1);
  assert_int_equal(l.last[CORRAL_EVENT_NEAR].bytes, 5);
  corral_close(c);
}

static void a_failure_is_told_with_its_status_text_and_time(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  get(c, "k", NULL, CORRAL_EFAILED);
  const corral_event_info *failure = &l.last[CORRAL_EVENT_FAILURE];
  assert_int_equal(failure->status, CORRAL_EFAILED);
  assert_true(failure->duration_us >= 3000);
  assert_int_equal(failure->bytes, -1);
  assert_string_equal(l.detail[CORRAL_EVENT_FAILURE], "no luck");
  assert_int_equal(corral_counter(c, CORRAL_EVENT_COMPUTED), 0);
  get(c, "k", NULL, CORRAL_EFAILED);
  assert_int_equal(l.last[CORRAL_EVENT_VERDICT].status, CORRAL_EFAILED);
  corral_close(c);
}

/* Nothing listens on this socket. */
static void trouble_with_the_store_is_told_with_status_time_and_server(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("redis+unix:///nowhere/to/be/found.sock", &l);
  get(c, "k", "value", CORRAL_OK);
  const corral_event_info *trouble = &l.last[CORRAL_EVENT_STORE_ERROR],
                          *down = &l.last[CORRAL_EVENT_STORE_DOWN];
  assert_int_equal(trouble->status, CORRAL_EUNAVAILABLE);
  assert_true(trouble->duration_us >= 0);
  assert_int_equal(trouble->server, 0);
  assert_string_equal(l.key[CORRAL_EVENT_STORE_ERROR], "k");
  assert_int_equal(down->status, CORRAL_EUNAVAILABLE);
  assert_int_equal(down->server, 0);
  assert_null(down->key);
  assert_true(l.detail[CORRAL_EVENT_STORE_DOWN][0] != '\0');
  corral_close(c);
}

static void a_lock_is_told_with_the_time_of_its_taking(void **state) {
  (void)state;
  log_book l;
  corral *c = opened("memory:", &l);
  corral_lock *lock = NULL;
  assert_int_equal(corral_lock_take(c, "name", 4, NULL, &lock, NULL), CORRAL_OK);
  assert_true(l.last[CORRAL_EVENT_LOCKED].duration_us >= 0);
  assert_string_equal(l.key[CORRAL_EVENT_LOCKED], "name");
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  corral_close(c);
}

static int ask_late(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  corral *other = arg;
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(other, key, key_len,
                                         CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 30)),
                                         answer, NULL, &value),
                   CORRAL_EDEADLINE);
  return corral_fill_bytes(fill, "x", 1);
}

static void a_deadline_is_told_with_the_time_that_the_call_lasted(void **state) {
  (void)state;
  log_book l, unused;
  corral *c = opened("memory:deadline", &l), *leader = opened("memory:deadline", &unused);
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(leader, "k", 1, NULL, ask_late, c, &value), CORRAL_OK);
  corral_value_unref(value);
  assert_int_equal(l.last[CORRAL_EVENT_DEADLINE].status, CORRAL_EDEADLINE);
  assert_true(l.last[CORRAL_EVENT_DEADLINE].duration_us >= 29000);
  corral_close(leader);
  corral_close(c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_compute_is_told_with_its_time_and_its_size),
      cmocka_unit_test(a_fill_is_told_with_the_time_size_and_server_of_its_record),
      cmocka_unit_test(a_hit_is_told_with_its_size_and_the_time_of_its_look),
      cmocka_unit_test(a_hit_of_many_keys_is_told_likewise),
      cmocka_unit_test(a_near_hit_is_told_with_its_size),
      cmocka_unit_test(a_failure_is_told_with_its_status_text_and_time),
      cmocka_unit_test(trouble_with_the_store_is_told_with_status_time_and_server),
      cmocka_unit_test(a_lock_is_told_with_the_time_of_its_taking),
      cmocka_unit_test(a_deadline_is_told_with_the_time_that_the_call_lasted),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
