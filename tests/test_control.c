/* test_control.c: how a process obeys an operator's orders: calls of each kind, those under way,
 * and the end of an order. One process; test_control_fleet.c has many. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral/control.h>
#include <pthread.h>

#include <corral/stats.h>

#include "control/desk.h"
#include "record/order.h"
#include "support/loop_kit.h"

enum { PATIENT_MS = 60000, FOR_MS = 600000 };

/* ---- a site: an operator's handle, and that of a process ------------------------------------- */

typedef struct site {
  char uri[64];
  corral *desk, *c;
  atomic_int begun, gate, told;
  int passes;
  char last[100]; /* text of the last event */
} site;

static site s;
static int sites;

static void on_event(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_CONTROL) return;
  snprintf(s.last, sizeof s.last, "%s", info->detail);
  atomic_fetch_add(&s.told, 1);
}

static void await(atomic_int *counter, int least) {
  for (int i = 0; atomic_load(counter) < least; i++) {
    if (i > PATIENT_MS) fail_msg("%d, not %d", atomic_load(counter), least);
    crl_env_pause_us(1000);
  }
}

/* At once, unless the site has a gate that is to be opened: then once it is open. */
static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  atomic_fetch_add(&s.begun, 1);
  await(&s.gate, 1);
  if (s.passes) corral_fill_pass(fill);
  return corral_fill_bytes(fill, key, key_len);
}

static corral *open_as(corral_options *options) {
  corral *c = NULL;
  corral_error error;
  options->size = sizeof *options;
  options->store = s.uri;
  options->op_ms = 5000;
  if (corral_open(options, &c, &error) != CORRAL_OK) fail_msg("%s", error.text);
  return c;
}

static void open_site(corral_options *options) {
  memset(&s, 0, sizeof s);
  atomic_store(&s.gate, 1);
  snprintf(s.uri, sizeof s.uri, "memory:control-%d", sites++);
  s.desk = open_as(&(corral_options){.size = 0});
  options->control = 1;
  options->on_event = on_event;
  s.c = open_as(options);
}

static void close_site(void) {
  corral_close(s.c);
  corral_close(s.desk);
}

static corral_control_state followed(void) {
  corral_control_state state = {.size = sizeof state};
  assert_int_equal(corral_control_followed(s.c, &state), CORRAL_OK);
  return state;
}

static int64_t gauge(corral_gauge which) {
  corral_stats *stats = NULL;
  assert_int_equal(corral_stats_read(s.c, &stats, NULL), CORRAL_OK);
  int64_t number = corral_stats_gauge(stats, which);
  corral_stats_free(stats);
  return number;
}

/* In use, until it follows. */
static void await_verb(corral_control verb) {
  corral_value *value = NULL;
  for (int i = 0; followed().verb != verb; i++) {
    (void)corral_peek(s.c, "none", 4, NULL, &value);
    crl_env_pause_us(5000);
    if (i > PATIENT_MS / 5) fail_msg("%s is never followed", corral_control_name(verb));
  }
}

static void give(corral_control verb, int64_t number, int64_t for_ms) {
  corral_error error = {0};
  if (corral_control_set(s.desk, verb, number, for_ms, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
}

static void order(corral_control verb, int64_t number) {
  int before = atomic_load(&s.told);
  give(verb, number, FOR_MS);
  await_verb(verb);
  await(&s.told, before + 1);
}

static corral_policy *stale_at_once(void) {
  static corral_policy policy = {
      .size = sizeof policy, .ttl_ms = 1, .sie_ms = 3600000, .wait_ms = PATIENT_MS};
  return &policy;
}

typedef struct answer {
  int status;
  corral_how how;
  corral_kept kept;
  corral_error error;
} answer;

static answer take(int status, corral_value *value, const corral_error *error) {
  answer a = {.status = status, .error = *error};
  if (status == CORRAL_OK) a.how = corral_value_how(value);
  if (status == CORRAL_OK) a.kept = corral_value_kept(value);
  if (status == CORRAL_OK) corral_value_unref(value);
  return a;
}

static answer ask_for(const char *key, const corral_policy *policy) {
  corral_value *value = NULL;
  corral_error error = {0};
  int status = corral_get_or_compute(
      s.c, key, strlen(key), CORRAL_CALL(.policy = policy, .error = &error), compute, NULL, &value);
  return take(status, value, &error);
}

/* With the compute that was bound at open, or none. */
static answer get(corral *c, const char *key, const corral_policy *policy) {
  corral_value *value = NULL;
  corral_error error = {0};
  int status =
      corral_get(c, key, strlen(key), CORRAL_CALL(.policy = policy, .error = &error), &value);
  return take(status, value, &error);
}

static void let_it_be_stale(const char *key) {
  corral_inspection i = {.size = sizeof i};
  for (int n = 0; n < PATIENT_MS; n++) {
    assert_int_equal(corral_inspect(s.desk, key, strlen(key), NULL, &i), CORRAL_OK);
    if (strcmp(i.state, "stale") == 0) return;
    crl_env_pause_us(1000);
  }
  fail_msg("%s is %s", key, i.state);
}

/* ---- frozen ---------------------------------------------------------------------------------- */

static void
frozen_a_stale_value_serves_in_its_grace_for_errors_and_a_miss_is_an_error(void **state) {
  (void)state;
  open_site(&(corral_options){.size = 0});
  assert_int_equal(ask_for("a", stale_at_once()).how, CORRAL_COMPUTED);
  let_it_be_stale("a");
  order(CORRAL_CONTROL_FREEZE, 0);
  assert_memory_equal(s.last, "freeze for ", 11);
  for (int i = 0; i < 10; i++) assert_int_equal(ask_for("a", stale_at_once()).how, CORRAL_STALE);
  answer missing = ask_for("b", NULL);
  assert_int_equal(missing.status, CORRAL_EFROZEN);
  assert_string_equal(missing.error.text, corral_status_text(CORRAL_EFROZEN));
  assert_int_equal(atomic_load(&s.begun), 1);
  order(CORRAL_CONTROL_NORMAL, 0);
  assert_string_equal(s.last, "normal: freeze has ended");
  assert_int_equal(ask_for("b", NULL).how, CORRAL_COMPUTED);
  assert_int_equal(ask_for("a", stale_at_once()).how, CORRAL_COMPUTED);
  close_site();
}

static void frozen_a_bound_compute_rebuilds_nothing_behind_an_answer(void **state) {
  (void)state;
  corral_policy policy = {.size = sizeof policy, .ttl_ms = 1, .swr_ms = 3600000};
  open_site(&(corral_options){.policy = &policy, .compute = compute});
  assert_int_equal(get(s.c, "a", NULL).status, CORRAL_OK);
  let_it_be_stale("a");
  order(CORRAL_CONTROL_FREEZE, 0);
  int before = atomic_load(&s.begun);
  for (int i = 0; i < 10; i++) assert_int_equal(get(s.c, "a", NULL).how, CORRAL_STALE);
  assert_int_equal(get(s.c, "b", NULL).status, CORRAL_EFROZEN);
  corral_policy anew = {.size = sizeof anew, .anew = 1};
  assert_int_equal(get(s.c, "a", &anew).how, CORRAL_STALE);
  close_site();
  assert_int_equal(atomic_load(&s.begun), before);
}

typedef struct caller {
  pthread_t thread;
  const char *key;
  answer got;
} caller;

static void *call(void *arg) {
  caller *a = arg;
  a->got = ask_for(a->key, CORRAL_POLICY(.wait_ms = PATIENT_MS));
  return NULL;
}

static void begin(caller *a, const char *key) {
  a->key = key;
  assert_int_equal(pthread_create(&a->thread, NULL, call, a), 0);
}

static void await_event(corral_event event, uint64_t least) {
  for (int i = 0; corral_counter(s.c, event) < least; i++) {
    if (i > PATIENT_MS) fail_msg("%s never happens", corral_event_name(event));
    crl_env_pause_us(1000);
  }
}

/* It gets its place, and the lease, once the first compute has ended. */
static void a_call_that_waits_for_a_place_when_the_freeze_comes_gives_its_lease_back(void **state) {
  (void)state;
  caller first, second;
  corral_inspection i = {.size = sizeof i};
  open_site(&(corral_options){.max_computes = 1});
  atomic_store(&s.gate, 0);
  begin(&first, "a");
  await(&s.begun, 1);
  begin(&second, "b");
  await_event(CORRAL_EVENT_LIMITED, 1);
  order(CORRAL_CONTROL_FREEZE, 0);
  atomic_store(&s.gate, 1);
  pthread_join(first.thread, NULL);
  pthread_join(second.thread, NULL);
  assert_int_equal(first.got.how, CORRAL_COMPUTED); /* it was under way */
  assert_int_equal(second.got.status, CORRAL_EFROZEN);
  assert_int_equal(atomic_load(&s.begun), 1);
  assert_int_equal(corral_inspect(s.desk, "b", 1, NULL, &i), CORRAL_OK);
  assert_int_equal(i.lease_left_ms, 0);
  order(CORRAL_CONTROL_NORMAL, 0);
  assert_int_equal(ask_for("b", NULL).how, CORRAL_COMPUTED);
  close_site();
}

/* The answer can't be shared: without a freeze each of them would compute. */
static void those_who_wait_for_a_compute_when_the_freeze_comes_do_not_compute(void **state) {
  (void)state;
  caller callers[4];
  open_site(&(corral_options){.size = 0});
  atomic_store(&s.gate, 0);
  s.passes = 1;
  begin(&callers[0], "a");
  await(&s.begun, 1);
  for (int i = 1; i < 4; i++) begin(&callers[i], "a");
  await_event(CORRAL_EVENT_JOIN, 3);
  order(CORRAL_CONTROL_FREEZE, 0);
  atomic_store(&s.gate, 1);
  for (int i = 0; i < 4; i++) pthread_join(callers[i].thread, NULL);
  assert_int_equal(callers[0].got.how, CORRAL_COMPUTED);
  for (int i = 1; i < 4; i++) assert_int_equal(callers[i].got.status, CORRAL_EFROZEN);
  assert_int_equal(atomic_load(&s.begun), 1);
  close_site();
}

/* ---- bypassing ------------------------------------------------------------------------------- */

static void bypassing_each_call_computes_and_what_is_stored_stays(void **state) {
  (void)state;
  open_site(&(corral_options){.near_bytes = 1 << 20});
  assert_int_equal(ask_for("a", NULL).how, CORRAL_COMPUTED);
  assert_int_equal(ask_for("a", NULL).how, CORRAL_FRESH);
  corral_inspection before = {.size = sizeof before}, after = {.size = sizeof after};
  assert_int_equal(corral_inspect(s.desk, "a", 1, NULL, &before), CORRAL_OK);
  order(CORRAL_CONTROL_BYPASS, 0);
  for (int i = 0; i < 5; i++) {
    answer a = ask_for("a", NULL);
    assert_int_equal(a.how, CORRAL_COMPUTED);
    assert_int_equal(a.kept, CORRAL_KEPT_NOT);
  }
  assert_int_equal(ask_for("b", CORRAL_POLICY(.ttl_ms = 5000)).how, CORRAL_COMPUTED);
  assert_int_equal(atomic_load(&s.begun), 7);
  assert_int_equal(get(s.c, "a", NULL).status, CORRAL_EMISS); /* nothing to compute with */
  assert_int_equal(corral_inspect(s.desk, "a", 1, NULL, &after), CORRAL_OK);
  assert_int_equal(after.created_ms, before.created_ms);
  assert_int_equal(after.lease_left_ms, 0);
  assert_int_equal(corral_inspect(s.desk, "b", 1, NULL, &after), CORRAL_OK);
  assert_string_equal(after.state, "none");
  order(CORRAL_CONTROL_NORMAL, 0);
  assert_int_equal(ask_for("a", NULL).how, CORRAL_FRESH);
  assert_int_equal(atomic_load(&s.begun), 7);
  close_site();
}

static void bypassing_a_bound_compute_runs_within_the_limit(void **state) {
  (void)state;
  caller callers[3];
  open_site(&(corral_options){.max_computes = 1, .compute = compute});
  order(CORRAL_CONTROL_BYPASS, 0);
  assert_int_equal(get(s.c, "a", NULL).how, CORRAL_COMPUTED);
  assert_int_equal(get(s.c, "a", NULL).how, CORRAL_COMPUTED);
  atomic_store(&s.gate, 0);
  for (int i = 0; i < 3; i++) begin(&callers[i], "a");
  await_event(CORRAL_EVENT_LIMITED, 2);
  await(&s.begun, 3); /* it may have its place, and not have begun */
  assert_int_equal(atomic_load(&s.begun), 3);
  atomic_store(&s.gate, 1);
  for (int i = 0; i < 3; i++) pthread_join(callers[i].thread, NULL);
  for (int i = 0; i < 3; i++) assert_int_equal(callers[i].got.how, CORRAL_COMPUTED);
  assert_int_equal(atomic_load(&s.begun), 5);
  close_site();
}

/* Its first compute waits for the gate, and for longer than it may; the others do not. */
static int overstay(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)arg;
  if (atomic_fetch_add(&s.begun, 1) == 0) await(&s.gate, 1);
  return corral_fill_bytes(fill, key, key_len);
}

static void
bypassing_a_call_whose_compute_takes_too_long_goes_around_the_cache_again(void **state) {
  (void)state;
  corral_inspection after = {.size = sizeof after};
  open_site(&(corral_options){.compute = overstay});
  order(CORRAL_CONTROL_BYPASS, 0);
  atomic_store(&s.gate, 0);
  answer a = get(s.c, "a", CORRAL_POLICY(.compute_ms = 3000, .wait_ms = PATIENT_MS));
  assert_int_equal(atomic_load(&s.begun), 2);
  assert_int_equal(a.how, CORRAL_COMPUTED);
  assert_int_equal(a.kept, CORRAL_KEPT_NOT);
  assert_int_equal(corral_inspect(s.desk, "a", 1, NULL, &after), CORRAL_OK);
  assert_string_equal(after.state, "none");
  atomic_store(&s.gate, 1);
  close_site();
}

/* ---- calls of other kinds -------------------------------------------------------------------- */

static int compute_many(corral_fill *const *fills, size_t count, void *arg) {
  (void)arg;
  for (size_t i = 0; i < count; i++) {
    atomic_fetch_add(&s.begun, 1);
    (void)corral_fill_bytes(fills[i], "many", 4);
  }
  return CORRAL_OK;
}

static void get_two(int first, int second, corral_how how) {
  corral_item items[2] = {{.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}};
  assert_int_equal(corral_get_many(s.c, items, 2, NULL, compute_many, NULL), CORRAL_OK);
  assert_int_equal(items[0].status, first);
  assert_int_equal(items[1].status, second);
  for (int i = 0; i < 2; i++) {
    if (items[i].status != CORRAL_OK) continue;
    assert_int_equal(corral_value_how(items[i].value), how);
    corral_value_unref(items[i].value);
  }
}

static uint64_t misses(void) {
  corral_stats *stats;
  assert_int_equal(corral_stats_read(s.c, &stats, NULL), CORRAL_OK);
  uint64_t count = corral_stats_results(stats, CORRAL_RESULT_MISS);
  corral_stats_free(stats);
  return count;
}

static void bypassing_each_key_without_a_compute_is_a_miss(void **state) {
  corral_item items[3] = {
      {.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}, {.key = "", .key_len = 0}};
  (void)state;
  open_site(&(corral_options){0});
  order(CORRAL_CONTROL_BYPASS, 0);
  assert_int_equal(ask_for("a", NULL).how, CORRAL_COMPUTED); /* it obeys now */
  uint64_t before = misses();
  assert_int_equal(corral_get_many(s.c, items, 3, NULL, NULL, NULL), CORRAL_OK);
  assert_int_equal(misses() - before, 2);
  assert_int_equal(get(s.c, "a", NULL).status, CORRAL_EMISS);
  assert_int_equal(misses() - before, 3);
  close_site();
}

static void a_call_of_several_keys_obeys(void **state) {
  (void)state;
  open_site(&(corral_options){.size = 0});
  assert_int_equal(ask_for("a", NULL).how, CORRAL_COMPUTED);
  order(CORRAL_CONTROL_FREEZE, 0);
  get_two(CORRAL_OK, CORRAL_EFROZEN, CORRAL_FRESH);
  assert_int_equal(atomic_load(&s.begun), 1);
  order(CORRAL_CONTROL_BYPASS, 0);
  get_two(CORRAL_OK, CORRAL_OK, CORRAL_COMPUTED);
  assert_int_equal(atomic_load(&s.begun), 3);
  order(CORRAL_CONTROL_NORMAL, 0);
  assert_int_equal(ask_for("a", NULL).how, CORRAL_FRESH);
  close_site();
}

/* The items have it, and the call as a whole is in order. */
static void bypassing_a_call_of_several_keys_without_a_compute_misses_each(void **state) {
  (void)state;
  corral_item items[2] = {{.key = "a", .key_len = 1}, {.key = "b", .key_len = 1}};
  open_site(&(corral_options){.size = 0});
  assert_int_equal(ask_for("a", NULL).how, CORRAL_COMPUTED);
  order(CORRAL_CONTROL_BYPASS, 0);
  assert_int_equal(corral_get_many(s.c, items, 2, NULL, NULL, NULL), CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(items[i].status, CORRAL_EMISS);
    assert_non_null(strstr(items[i].error.text, "bypassed by an operator"));
  }
  close_site();
}

/* Its callback tells the miss. */
static void bypassing_a_call_of_an_event_loop_without_a_compute_misses(void **state) {
  (void)state;
  open_site(&(corral_options){.size = 0});
  order(CORRAL_CONTROL_BYPASS, 0);
  corral_loop *loop = loop_of(s.c);
  request r = {0};
  assert_int_equal(ask_as(loop, "a", NULL, &r, 0), CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  assert_int_equal(r.status, CORRAL_EMISS);
  corral_loop_close(loop);
  close_site();
}

static request get_by_loop(corral_loop *loop, const char *key) {
  request r = {.makes = "looped"};
  ask(loop, key, NULL, &r);
  RUN_UNTIL(loop, r.gones, 1);
  return r;
}

static void a_call_of_an_event_loop_obeys(void **state) {
  (void)state;
  open_site(&(corral_options){.size = 0});
  corral_loop *loop = loop_of(s.c);
  assert_int_equal(get_by_loop(loop, "a").starts, 1);
  order(CORRAL_CONTROL_FREEZE, 0);
  request frozen = get_by_loop(loop, "a"), missing = get_by_loop(loop, "b");
  assert_int_equal(frozen.how, CORRAL_FRESH);
  assert_int_equal(missing.status, CORRAL_EFROZEN);
  assert_int_equal(missing.starts, 0);
  order(CORRAL_CONTROL_BYPASS, 0);
  request bypassing = get_by_loop(loop, "a");
  assert_int_equal(bypassing.starts, 1);
  assert_int_equal(bypassing.how, CORRAL_COMPUTED);
  assert_int_equal(bypassing.kept, CORRAL_KEPT_NOT);
  order(CORRAL_CONTROL_NORMAL, 0);
  assert_int_equal(get_by_loop(loop, "a").how, CORRAL_FRESH);
  corral_loop_close(loop);
  close_site();
}

/* ---- orders ---------------------------------------------------------------------------------- */

static void an_order_ends_by_itself(void **state) {
  (void)state;
  corral_control_state there = {.size = sizeof there};
  open_site(&(corral_options){.size = 0});
  assert_int_equal(ask_for("a", NULL).status, CORRAL_OK);
  give(CORRAL_CONTROL_FREEZE, 0, 4000);
  await_verb(CORRAL_CONTROL_FREEZE);
  assert_in_range(followed().left_ms, 0, 4000);
  /* it isn't in use meanwhile: the end comes by the clock alone */
  await(&s.told, 2);
  assert_int_equal(followed().verb, CORRAL_CONTROL_NORMAL);
  assert_int_equal(followed().left_ms, 0);
  assert_int_equal(corral_control_read(s.desk, &there, NULL), CORRAL_OK);
  assert_int_equal(there.verb, CORRAL_CONTROL_NORMAL);
  assert_int_equal(ask_for("b", NULL).how, CORRAL_COMPUTED);
  close_site();
}

static void the_last_order_wins_and_a_drop_leaves_it_in_force(void **state) {
  (void)state;
  corral_control_state there = {.size = sizeof there};
  open_site(&(corral_options){.near_bytes = 1 << 20});
  give(CORRAL_CONTROL_FREEZE, 0, FOR_MS);
  give(CORRAL_CONTROL_LIMIT, 7, FOR_MS);
  give(CORRAL_CONTROL_DROP_NEAR, 0, 5000);
  assert_int_equal(corral_control_read(s.desk, &there, NULL), CORRAL_OK);
  assert_int_equal(there.verb, CORRAL_CONTROL_LIMIT);
  assert_int_equal(there.number, 7);
  assert_in_range(there.left_ms, FOR_MS / 2, FOR_MS);
  await_verb(CORRAL_CONTROL_LIMIT);
  assert_int_equal(followed().number, 7);
  assert_int_equal(gauge(CORRAL_GAUGE_CONTROL), CORRAL_CONTROL_LIMIT);
  assert_int_equal(gauge(CORRAL_GAUGE_LIMIT), 7);
  await(&s.told, 2); /* the limit, and the drop */
  assert_string_equal(s.last, "drop-near");
  give(CORRAL_CONTROL_LIMIT, 7, FOR_MS); /* the same again: nothing begins */
  order(CORRAL_CONTROL_BYPASS, 0);
  assert_int_equal(atomic_load(&s.told), 3);
  assert_int_equal(gauge(CORRAL_GAUGE_CONTROL), CORRAL_CONTROL_BYPASS);
  assert_int_equal(gauge(CORRAL_GAUGE_LIMIT), 0);
  close_site();
}

/* A process that is seldom in use looks for it later. */
static void an_end_of_an_order_does_not_shorten_the_time_in_which_a_drop_is_heard_of(void **state) {
  (void)state;
  crl_key key;
  crl_desk_found found;
  open_site(&(corral_options){.size = 0});
  crl_context *context = (crl_context *)(void *)s.desk;
  give(CORRAL_CONTROL_DROP_NEAR, 0, FOR_MS);
  give(CORRAL_CONTROL_NORMAL, 0, 0);
  assert_int_equal(crl_desk_key(context, &key), CORRAL_OK);
  assert_int_equal(crl_desk_look(context, &key, crl_env_now_ms() + PATIENT_MS, &found, NULL),
                   CORRAL_OK);
  crl_key_clean(&key);
  assert_int_equal(found.order.verb, CORRAL_CONTROL_NORMAL);
  assert_int_not_equal(found.order.dropped, 0);
  assert_in_range(found.left_ms, FOR_MS / 2, FOR_MS);
  close_site();
}

static void an_order_that_was_read_is_followed_before_the_first_call(void **state) {
  (void)state;
  corral_control_state there = {.size = sizeof there};
  open_site(&(corral_options){.size = 0});
  give(CORRAL_CONTROL_LIMIT, 5, FOR_MS);
  assert_int_equal(corral_control_read(s.c, &there, NULL), CORRAL_OK);
  assert_int_equal(there.number, 5);
  assert_int_equal(followed().verb, CORRAL_CONTROL_LIMIT);
  assert_int_equal(followed().number, 5);
  assert_memory_equal(s.last, "limit 5 for ", 12);
  assert_int_equal(atomic_load(&s.told), 1);
  close_site();
}

static void a_process_without_the_option_follows_nothing(void **state) {
  (void)state;
  open_site(&(corral_options){.size = 0});
  corral_close(s.c);
  s.c = open_as(&(corral_options){.on_event = on_event});
  give(CORRAL_CONTROL_FREEZE, 0, FOR_MS);
  assert_int_equal(ask_for("a", NULL).how, CORRAL_COMPUTED);
  assert_int_equal(followed().verb, CORRAL_CONTROL_NORMAL);
  assert_int_equal(atomic_load(&s.told), 0);
  close_site();
}

static void refuses(corral_control verb, int64_t number, int64_t for_ms, const char *says) {
  corral_error error = {0};
  assert_int_equal(corral_control_set(s.desk, verb, number, for_ms, &error), CORRAL_EINVAL);
  assert_non_null(strstr(error.text, says));
}

static void what_is_no_order_is_refused(void **state) {
  (void)state;
  corral_control_state there = {.size = 0};
  open_site(&(corral_options){.size = 0});
  refuses(CORRAL_CONTROL_COUNT, 0, 0, "no verb");
  refuses(CORRAL_CONTROL_LIMIT, 0, 0, "1 to 1000000");
  refuses(CORRAL_CONTROL_LIMIT, CORRAL_CONTROL_NUMBER_MOST + 1, 0, "1 to 1000000");
  refuses(CORRAL_CONTROL_FREEZE, 1, 0, "no number");
  refuses(CORRAL_CONTROL_FREEZE, 0, 999, "1000 to 86400000");
  refuses(CORRAL_CONTROL_FREEZE, 0, CORRAL_CONTROL_FOR_MOST + 1, "1000 to 86400000");
  assert_int_equal(corral_control_read(s.desk, &there, NULL), CORRAL_EINVAL);
  assert_int_equal(corral_control_followed(s.c, &there), CORRAL_EINVAL);
  assert_int_equal(corral_control_followed(NULL, &there), CORRAL_EINVAL);
  assert_string_equal(corral_control_name(CORRAL_CONTROL_DROP_NEAR), "drop-near");
  assert_string_equal(corral_control_text(CORRAL_CONTROL_COUNT), "?");
  close_site();
}

static void a_payload_that_is_no_order_is_not_read(void **state) {
  (void)state;
  crl_order read, wrote = {.verb = CORRAL_CONTROL_LIMIT, .number = 3, .dropped = 99};
  uint8_t bytes[CRL_ORDER_BYTES + 4] = {0};
  crl_order_write(&wrote, bytes);
  assert_true(crl_order_read(bytes, CRL_ORDER_BYTES, &read));
  assert_int_equal(read.verb, wrote.verb);
  assert_int_equal(read.number, wrote.number);
  assert_int_equal(read.dropped, wrote.dropped);
  assert_true(crl_order_read(bytes, sizeof bytes, &read)); /* of a later version */
  assert_false(crl_order_read(bytes, CRL_ORDER_BYTES - 1, &read));
  bytes[0] = CORRAL_CONTROL_DROP_NEAR;
  assert_false(crl_order_read(bytes, CRL_ORDER_BYTES, &read));
  bytes[0] = CORRAL_CONTROL_FREEZE; /* with a number */
  assert_false(crl_order_read(bytes, CRL_ORDER_BYTES, &read));
  bytes[0] = CORRAL_CONTROL_LIMIT;
  memset(bytes + 1, 0xff, 8);
  assert_false(crl_order_read(bytes, CRL_ORDER_BYTES, &read));
  memset(bytes + 1, 0, 8);
  assert_false(crl_order_read(bytes, CRL_ORDER_BYTES, &read));
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(frozen_a_stale_value_serves_in_its_grace_for_errors_and_a_miss_is_an_error),
      cmocka_unit_test(frozen_a_bound_compute_rebuilds_nothing_behind_an_answer),
      cmocka_unit_test(a_call_that_waits_for_a_place_when_the_freeze_comes_gives_its_lease_back),
      cmocka_unit_test(those_who_wait_for_a_compute_when_the_freeze_comes_do_not_compute),
      cmocka_unit_test(bypassing_each_call_computes_and_what_is_stored_stays),
      cmocka_unit_test(bypassing_each_key_without_a_compute_is_a_miss),
      cmocka_unit_test(bypassing_a_bound_compute_runs_within_the_limit),
      cmocka_unit_test(bypassing_a_call_whose_compute_takes_too_long_goes_around_the_cache_again),
      cmocka_unit_test(bypassing_a_call_of_several_keys_without_a_compute_misses_each),
      cmocka_unit_test(bypassing_a_call_of_an_event_loop_without_a_compute_misses),
      cmocka_unit_test(a_call_of_several_keys_obeys),
      cmocka_unit_test(a_call_of_an_event_loop_obeys),
      cmocka_unit_test(an_order_ends_by_itself),
      cmocka_unit_test(the_last_order_wins_and_a_drop_leaves_it_in_force),
      cmocka_unit_test(an_end_of_an_order_does_not_shorten_the_time_in_which_a_drop_is_heard_of),
      cmocka_unit_test(an_order_that_was_read_is_followed_before_the_first_call),
      cmocka_unit_test(a_process_without_the_option_follows_nothing),
      cmocka_unit_test(what_is_no_order_is_refused),
      cmocka_unit_test(a_payload_that_is_no_order_is_not_read),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
