/* test_ramp_live.c: a fleet that begins on an empty store, with and without the admission ramp: how
 * many computes its processes have at once. Judged by counts, at gates. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>

#include "support/emptied.h"
#include "support/herd_lab.h"
#include "support/redis_server.h"

enum { FLEET = 4, THREADS = 8, KEYS = FLEET * THREADS, FIRST = 2, PATIENT_MS = 60000 };
enum { GATE }; /* a lab mark */

static redis_server *server;

static int events_of(lab *l, corral_event event) {
  int count = 0;
  for (int i = 0; i < l->count; i++) count += atomic_load(&l->events[i][event]);
  return count;
}

/* Waits until so many computes run, and so many had to wait for a place. */
static void await_state(lab *l, int running, int waiting) {
  for (int64_t until = lab_now_us() + INT64_C(1000) * LAB_PATIENCE_MS;
       atomic_load(&l->computing) < running || events_of(l, CORRAL_EVENT_LIMITED) < waiting;
       lab_sleep_ms(1))
    if (lab_now_us() > until)
      fail_msg("%d computes run and %d wait, not %d and %d", atomic_load(&l->computing),
               events_of(l, CORRAL_EVENT_LIMITED), running, waiting);
}

/* Each thread of each process asks for a key of its own, which nobody has computed yet. */
static void ask_own_key(lab_seat *seat) {
  lab *l = seat->lab;
  lab_work work = {.key = seat->process * THREADS + seat->thread, .gate = &l->marks[GATE]};
  lab_answer answer = lab_ask(seat, CORRAL_POLICY(.wait_ms = PATIENT_MS), &work);
  if (answer.status != CORRAL_OK)
    lab_wrong(l, "key %d: %s: %s", work.key, corral_status_name(answer.status), answer.error.text);
}

/* Returns the computes that ran before the first one ended. */
static int cold_fleet(lab *l, int64_t ramp, int waiting) {
  lab_spawn(l, &(lab_plan){.uri = emptied_redis(server),
                           .processes = FLEET,
                           .threads = THREADS,
                           .body = ask_own_key,
                           .options = {.ramp = ramp, .op_ms = 10000}});
  await_state(l, KEYS - waiting, waiting);
  int first = atomic_load(&l->most_computing);
  lab_add(&l->marks[GATE], 1);
  lab_end(l);
  return first;
}

static void a_cold_fleet_without_a_ramp_computes_all_keys_at_once(void **state) {
  (void)state;
  lab *l = lab_new();
  assert_int_equal(cold_fleet(l, CORRAL_OFF, 0), KEYS);
  assert_int_equal(events_of(l, CORRAL_EVENT_LIMITED), 0);
  lab_free(l);
}

static void with_a_ramp_each_process_begins_with_two_and_computes_each_key_once(void **state) {
  (void)state;
  lab *l = lab_new();
  assert_int_equal(cold_fleet(l, 1, KEYS - FLEET * FIRST), FLEET * FIRST);
  for (int key = 0; key < KEYS; key++) assert_int_equal(l->keys[key].computes, 1);
  lab_free(l);
}

/* ---- how the limit moves ------------------------------------------------------------------- */

typedef struct site {
  corral *c;
  atomic_int gate; /* computes that may end */
  atomic_int number, begun, fails;
} site;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  site *s = arg;
  int mine = atomic_fetch_add(&s->number, 1);
  lab_add(&s->begun, 1);
  if (!lab_await_ms(&s->gate, mine + 1, PATIENT_MS)) return CORRAL_EFAILED;
  if (atomic_load(&s->fails)) {
    corral_fill_fail(fill, 7, "the origin is overloaded");
    return CORRAL_OK;
  }
  return corral_fill_bytes(fill, key, key_len);
}

typedef struct caller {
  pthread_t thread;
  site *site;
  char key[16];
  int status;
} caller;

static void *call(void *arg) {
  caller *a = arg;
  corral_value *value = NULL;
  a->status = corral_get_or_compute(a->site->c, a->key, strlen(a->key),
                                    CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = PATIENT_MS)),
                                    compute, a->site, &value);
  corral_value_unref(value);
  return NULL;
}

/* So many computes have begun, and, as far as a short while can tell, not more than `most`. */
static void await_begun(site *s, int least, int most) {
  if (!lab_await_ms(&s->begun, least, PATIENT_MS)) fail_msg("%d have begun", s->begun);
  lab_sleep_ms(30);
  assert_in_range(s->begun, least, most);
}

static void the_limit_doubles_after_a_good_round_and_halves_when_computes_fail(void **state) {
  (void)state;
  site s = {0};
  static caller callers[KEYS];
  int failed = 0;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = "memory:ramp", .ramp = 1), &s.c, NULL),
                   CORRAL_OK);
  for (int i = 0; i < KEYS; i++) {
    callers[i].site = &s;
    snprintf(callers[i].key, sizeof callers[i].key, "key-%d", i);
    assert_int_equal(pthread_create(&callers[i].thread, NULL, call, &callers[i]), 0);
  }
  for (int i = 0; corral_counter(s.c, CORRAL_EVENT_LIMITED) < KEYS - FIRST; i++) {
    assert_true(i < PATIENT_MS);
    lab_sleep_ms(1);
  }
  await_begun(&s, FIRST, FIRST);
  lab_add(&s.gate, 4); /* a round of 4 computes, 2 at once; then 4 at once */
  await_begun(&s, 4 + 4, 4 + 4);
  atomic_store(&s.fails, 1);
  /* 12 that fail: among the first 8 is a whole round, so that the last ones are followed by 2 at
   * once at the most, in place of 4. */
  lab_add(&s.gate, 12);
  await_begun(&s, 16 + 2, 16 + 2);
  atomic_store(&s.fails, 0);
  lab_add(&s.gate, KEYS);
  for (int i = 0; i < KEYS; i++) {
    pthread_join(callers[i].thread, NULL);
    failed += callers[i].status == CORRAL_EFAILED;
  }
  assert_int_equal(failed, 12);
  assert_int_equal(s.begun, KEYS);
  corral_close(s.c);
}

static int start_server(void **state) {
  (void)state;
  if (!redis_server_start(&server, NULL)) server = NULL;
  return 0;
}

static int stop_server(void **state) {
  (void)state;
  redis_server_stop(server);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_fleet_without_a_ramp_computes_all_keys_at_once),
      cmocka_unit_test(with_a_ramp_each_process_begins_with_two_and_computes_each_key_once),
      cmocka_unit_test(the_limit_doubles_after_a_good_round_and_halves_when_computes_fail),
  };
  return cmocka_run_group_tests_name("ramp_live", tests, start_server, stop_server);
}
