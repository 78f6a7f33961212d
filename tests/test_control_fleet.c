/* test_control_fleet.c: the processes of a fleet follow an operator's orders, on each kind of
 * store. Judged by counts and outcomes. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/control.h>
#include <corral/loop.h>

#include "support/emptied.h"
#include "support/herd_lab.h"

enum { FLEET = 4, THREADS = 4, ALL = FLEET * THREADS, ASKS = 25, PATIENT_MS = 60000 };
enum { STALE_KEY, FRESH_KEY, MISSING_KEY, KEPT_KEY, FIRST_OWN_KEY };
enum { GO, READY, ACT, DONE, STALE, FROZEN, BYPASSED, NEAR_KEPT, NEAR_DROPPED, HELD }; /* marks */

static redis_server *server;
static memcached_server *other_server;

static const corral_policy *stale_at_once(void) {
  static const corral_policy policy = {
      .size = sizeof policy, .ttl_ms = 1, .sie_ms = 3600000, .wait_ms = PATIENT_MS};
  return &policy;
}

static const corral_policy *fresh_for_long(void) {
  static const corral_policy policy = {
      .size = sizeof policy, .ttl_ms = 3600000, .near_ms = 3600000, .wait_ms = PATIENT_MS};
  return &policy;
}

/* A process that makes no calls looks for no orders. */
static void await_in_use(lab_seat *seat, int mark, int least) {
  corral_value *value = NULL;
  for (int64_t until = lab_now_us() + INT64_C(1000) * LAB_PATIENCE_MS;
       !lab_await_ms(&seat->lab->marks[mark], least, 10);) {
    if (corral_peek(seat->corral, "none", 4, NULL, &value) != CORRAL_EMISS)
      lab_wrong(seat->lab, "a peek finds something");
    if (lab_now_us() > until) lab_await(seat->lab, &seat->lab->marks[mark], least);
  }
}

/* ---- what each process does under each order ------------------------------------------------ */

static void expect_status(lab_seat *seat, int key, int status, int wanted) {
  if (status != wanted)
    lab_wrong(seat->lab, "key-%d: %s, not %s", key, corral_status_name(status),
              corral_status_name(wanted));
}

static void act_as_usual(lab_seat *seat) {
  for (int key = STALE_KEY; key <= KEPT_KEY; key++) {
    lab_work work = {.key = key};
    if (key == MISSING_KEY) continue;
    lab_answer answer = lab_ask(seat, key == STALE_KEY ? stale_at_once() : fresh_for_long(), &work);
    expect_status(seat, key, answer.status, CORRAL_OK);
  }
}

static void act_frozen(lab_seat *seat) {
  for (int i = 0; i < ASKS; i++) {
    lab_work stale = {.key = STALE_KEY}, missing = {.key = MISSING_KEY};
    lab_answer answer = lab_ask(seat, stale_at_once(), &stale);
    if (answer.status == CORRAL_OK && answer.how == CORRAL_STALE)
      lab_add(&seat->lab->marks[STALE], 1);
    answer = lab_ask(seat, stale_at_once(), &missing);
    if (answer.status == CORRAL_EFROZEN) lab_add(&seat->lab->marks[FROZEN], 1);
  }
}

static void act_bypassing(lab_seat *seat) {
  for (int i = 0; i < ASKS; i++) {
    lab_work work = {.key = KEPT_KEY};
    lab_answer answer = lab_ask(seat, fresh_for_long(), &work);
    if (answer.status == CORRAL_OK && answer.how == CORRAL_COMPUTED &&
        answer.kept == CORRAL_KEPT_NOT)
      lab_add(&seat->lab->marks[BYPASSED], 1);
  }
}

/* Of one process. */
static atomic_int computing, most_computing, rendezvous;

static int count_compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  lab_seat *seat = arg;
  int now = atomic_fetch_add(&computing, 1) + 1, most = atomic_load(&most_computing);
  while (most < now && !atomic_compare_exchange_weak(&most_computing, &most, now)) continue;
  int waits = atomic_load(&rendezvous);
  for (int i = 0; waits > 0 && atomic_load(&most_computing) < waits; i++) {
    if (i > LAB_PATIENCE_MS) return CORRAL_EFAILED;
    lab_sleep_ms(1);
  }
  lab_sleep_ms(3);
  atomic_fetch_sub(&computing, 1);
  lab_add(&seat->lab->marks[HELD], 1);
  return corral_fill_bytes(fill, key, key_len);
}

/* Each thread computes a key of its own: in each process as many at once as the limit allows. */
static void act_limited(lab_seat *seat, int most) {
  char key[32];
  corral_value *value = NULL;
  size_t len =
      (size_t)snprintf(key, sizeof key, "limit-%d-%d-%d", most, seat->process, seat->thread);
  int status = corral_get_or_compute(
      seat->corral, key, len, CORRAL_CALL(.policy = fresh_for_long()), count_compute, seat, &value);
  if (status != CORRAL_OK) lab_wrong(seat->lab, "%s: %s", key, corral_status_name(status));
  corral_value_unref(value);
}

static void act_one_at_once(lab_seat *seat) {
  act_limited(seat, 1);
  if (atomic_load(&most_computing) > 1)
    lab_wrong(seat->lab, "%d computes at once under limit 1", atomic_load(&most_computing));
}

/* Ends only when three of this process run at once. */
static void act_three_at_once(lab_seat *seat) {
  act_limited(seat, 3);
  if (atomic_load(&most_computing) > 3)
    lab_wrong(seat->lab, "%d computes at once under limit 3", atomic_load(&most_computing));
}

/* Where a watch registers keys, a copy answers once its key is registered. */
static void act_with_near_copies(lab_seat *seat) {
  corral_value *value = NULL;
  lab_work work = {.key = FRESH_KEY};
  int status = CORRAL_EMISS;
  for (int i = 0; status == CORRAL_EMISS && i < LAB_PATIENCE_MS / 2; i++) {
    expect_status(seat, FRESH_KEY, lab_ask(seat, fresh_for_long(), &work).status, CORRAL_OK);
    status = corral_peek(seat->corral, "key-1", 5, CORRAL_CALL(.policy = fresh_for_long()), &value);
    if (status == CORRAL_EMISS) lab_sleep_ms(2);
  }
  if (status == CORRAL_OK) lab_add(&seat->lab->marks[NEAR_KEPT], 1);
  corral_value_unref(value);
}

static void act_without_near_copies(lab_seat *seat) {
  corral_value *value = NULL;
  int status =
      corral_peek(seat->corral, "key-1", 5, CORRAL_CALL(.policy = fresh_for_long()), &value);
  if (status == CORRAL_EMISS) lab_add(&seat->lab->marks[NEAR_DROPPED], 1);
  corral_value_unref(value);
}

/* ---- the fleet ------------------------------------------------------------------------------ */

typedef struct step {
  corral_control verb;
  int64_t number;
  int tells; /* events of this order in each process */
  int limit; /* computes that meet; 0: none */
  void (*act)(lab_seat *seat);
} step;

static const step steps[] = {
    {CORRAL_CONTROL_NORMAL, 0, 0, 0, act_as_usual},
    {CORRAL_CONTROL_FREEZE, 0, 1, 0, act_frozen},
    {CORRAL_CONTROL_BYPASS, 0, 1, 0, act_bypassing},
    {CORRAL_CONTROL_LIMIT, 1, 1, 0, act_one_at_once},
    {CORRAL_CONTROL_LIMIT, 3, 1, 3, act_three_at_once},
    {CORRAL_CONTROL_NORMAL, 0, 1, 0, act_with_near_copies},
    {CORRAL_CONTROL_DROP_NEAR, 0, 1, 0, act_without_near_copies},
};

enum { STEPS = sizeof steps / sizeof steps[0] };

static void follow(lab_seat *seat) {
  lab *l = seat->lab;
  for (int i = 0; i < STEPS; i++) {
    await_in_use(seat, GO, i + 1);
    if (seat->thread == 0) {
      atomic_store(&most_computing, 0);
      atomic_store(&rendezvous, steps[i].limit);
    }
    lab_add(&l->marks[READY], 1);
    await_in_use(seat, ACT, i + 1);
    steps[i].act(seat);
    lab_add(&l->marks[DONE], 1);
  }
}

static int sum_computes(lab *l) {
  int sum = 0;
  for (int key = 0; key < LAB_KEYS; key++) sum += atomic_load(&l->keys[key].computes);
  return sum;
}

/* The steps of the fleet, one after the other; returns the computes of one of them. */
static int go(lab *l, corral *desk, int i, int *events) {
  corral_error error = {0};
  if (i > 0 && corral_control_set(desk, steps[i].verb, steps[i].number, 0, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  *events += steps[i].tells;
  for (int p = 0; p < FLEET; p++) lab_await(l, &l->events[p][CORRAL_EVENT_CONTROL], *events);
  lab_add(&l->marks[GO], 1);
  lab_await(l, &l->marks[READY], (i + 1) * ALL);
  int before = sum_computes(l);
  lab_add(&l->marks[ACT], 1);
  lab_await(l, &l->marks[DONE], (i + 1) * ALL);
  return sum_computes(l) - before;
}

static void a_fleet_follows(const char *uri) {
  lab *l = lab_new();
  int events = 0;
  corral *desk = NULL;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = uri, .name_space = "fleet", .op_ms = 5000), &desk, NULL),
      CORRAL_OK);
  lab_spawn(l,
            &(lab_plan){.uri = uri,
                        .processes = FLEET,
                        .threads = THREADS,
                        .body = follow,
                        .options = {.name_space = "fleet", .control = 1, .near_bytes = 1 << 20}});
  assert_true(go(l, desk, 0, &events) >= 3);
  int kept = lab_look(l, desk, KEPT_KEY).number;

  assert_int_equal(go(l, desk, 1, &events), 0); /* frozen */
  assert_int_equal(l->marks[STALE], ALL * ASKS);
  assert_int_equal(l->marks[FROZEN], ALL * ASKS);

  assert_int_equal(go(l, desk, 2, &events), ALL * ASKS); /* bypassing */
  assert_int_equal(l->marks[BYPASSED], ALL * ASKS);
  assert_int_equal(lab_look(l, desk, KEPT_KEY).number, kept);

  go(l, desk, 3, &events); /* limited */
  go(l, desk, 4, &events);
  assert_int_equal(l->marks[HELD], 2 * ALL);

  assert_int_equal(go(l, desk, 5, &events), 0); /* as usual: the fresh value is there */
  assert_int_equal(l->marks[NEAR_KEPT], ALL);
  go(l, desk, 6, &events);
  assert_int_equal(l->marks[NEAR_DROPPED], ALL);
  lab_end(l);
  corral_close(desk);
  lab_free(l);
}

static void a_fleet_on_lmdb_follows_each_order(void **state) {
  (void)state;
  lab *folder = lab_new();
  char uri[160];
  snprintf(uri, sizeof uri, "%s", lab_lmdb(folder, "db"));
  a_fleet_follows(uri);
  lab_free(folder);
}

static void a_fleet_on_redis_follows_each_order(void **state) {
  (void)state;
  a_fleet_follows(emptied_redis(server));
}

static void a_fleet_on_memcached_follows_each_order(void **state) {
  (void)state;
  a_fleet_follows(emptied_memcached(other_server));
}

/* ---- one process, by what the store has ------------------------------------------------------ */

static int computed;

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  computed++;
  return corral_fill_bytes(fill, key, key_len);
}

static int ask(corral *c, const char *key) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(c, key, strlen(key), NULL, compute, NULL, &value);
  corral_value_unref(value);
  return status;
}

static corral *open_one(const char *uri, int64_t control, int64_t op_ms) {
  corral *c = NULL;
  corral_error error;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .control = control, .op_ms = op_ms), &c, &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static corral_control verb_of(corral *c) {
  corral_control_state state = {.size = sizeof state};
  assert_int_equal(corral_control_followed(c, &state), CORRAL_OK);
  return state.verb;
}

/* In use, until it follows. */
static void await_verb(corral *c, corral_control verb) {
  corral_value *value = NULL;
  for (int64_t until = lab_now_us() + INT64_C(1000) * LAB_PATIENCE_MS; verb_of(c) != verb;) {
    (void)corral_peek(c, "none", 4, NULL, &value);
    lab_sleep_ms(5);
    if (lab_now_us() > until) fail_msg("%s is never followed", corral_control_name(verb));
  }
}

static void set(corral *desk, corral_control verb, int64_t for_ms) {
  corral_error error = {0};
  if (corral_control_set(desk, verb, 0, for_ms, &error) != CORRAL_OK) fail_msg("%s", error.text);
}

static void what_is_no_order_is_ignored(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  corral *desk = open_one(uri, 0, 5000), *c = open_one(uri, 1, 5000);
  corral_control_state there = {.size = sizeof there};
  static char large[100000];
  memset(large, 'x', sizeof large);
  set(desk, CORRAL_CONTROL_FREEZE, 0);
  await_verb(c, CORRAL_CONTROL_FREEZE);
  assert_int_equal(ask(c, "a"), CORRAL_EFROZEN);
  redis_server_ask(server, "SET ~control:: %b", "garbage", (size_t)7);
  await_verb(c, CORRAL_CONTROL_NORMAL);
  assert_int_equal(ask(c, "a"), CORRAL_OK);
  redis_server_ask(server, "DEL ~control::");
  set(desk, CORRAL_CONTROL_BYPASS, 0);
  await_verb(c, CORRAL_CONTROL_BYPASS);
  redis_server_ask(server, "SET ~control:: %b", large, sizeof large);
  await_verb(c, CORRAL_CONTROL_NORMAL);
  assert_int_equal(corral_control_read(desk, &there, NULL), CORRAL_OK);
  assert_int_equal(there.verb, CORRAL_CONTROL_NORMAL);
  /* what somebody else wrote is not overwritten: the operator is told */
  assert_int_equal(corral_control_set(desk, CORRAL_CONTROL_FREEZE, 0, 0, NULL), CORRAL_EFOREIGN);
  corral_close(c);
  corral_close(desk);
}

static void an_order_stays_while_the_store_is_away_until_its_own_end(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  corral *desk = open_one(uri, 0, 5000), *c = open_one(uri, 1, 50);
  set(desk, CORRAL_CONTROL_FREEZE, 6000);
  await_verb(c, CORRAL_CONTROL_FREEZE);
  redis_server_pause(server);
  computed = 0;
  int asks = 0;
  while (verb_of(c) == CORRAL_CONTROL_FREEZE && asks < 20) {
    corral_value *value = NULL;
    int status = corral_get_or_compute(
        c, "a", 1, CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 60)), compute, NULL, &value);
    if (verb_of(c) == CORRAL_CONTROL_FREEZE) assert_int_not_equal(status, CORRAL_OK);
    if (verb_of(c) == CORRAL_CONTROL_FREEZE) assert_int_equal(computed, 0);
    corral_value_unref(value);
    asks++;
  }
  await_verb(c, CORRAL_CONTROL_NORMAL);
  assert_int_equal(ask(c, "b"), CORRAL_OK);
  redis_server_resume(server);
  corral_close(c);
  corral_close(desk);
}

static void a_process_that_opens_later_follows_with_its_first_call(void **state) {
  (void)state;
  const char *uri = emptied_redis(server);
  corral *desk = open_one(uri, 0, 5000);
  set(desk, CORRAL_CONTROL_FREEZE, 0);
  corral *c = open_one(uri, 1, 5000), *unheeding = open_one(uri, CORRAL_OFF, 5000);
  computed = 0;
  assert_int_equal(ask(c, "a"), CORRAL_EFROZEN);
  assert_int_equal(computed, 0);
  assert_int_equal(ask(unheeding, "a"), CORRAL_OK); /* without the option */
  assert_int_equal(computed, 1);
  assert_int_equal(ask(c, "a"), CORRAL_OK); /* it is stored now */
  corral_close(c);
  corral_close(unheeding);
  corral_close(desk);
}

/* ---- main ----------------------------------------------------------------------------------- */

static int start(void **state) {
  (void)state;
  (void)redis_server_start(&server, NULL);
  (void)memcached_server_start(&other_server, NULL);
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_server_stop(server);
  memcached_server_stop(other_server);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_fleet_on_lmdb_follows_each_order),
      cmocka_unit_test(a_fleet_on_redis_follows_each_order),
      cmocka_unit_test(a_fleet_on_memcached_follows_each_order),
      cmocka_unit_test(what_is_no_order_is_ignored),
      cmocka_unit_test(an_order_stays_while_the_store_is_away_until_its_own_end),
      cmocka_unit_test(a_process_that_opens_later_follows_with_its_first_call),
  };
  return cmocka_run_group_tests(tests, start, stop);
}
