/* test_behind.c: settle_behind: a call returns what it computed before that is stored. On a real
 * Redis, which is stopped at the end of the compute: nothing more is asked before the value is
 * handed out. */
#include <pthread.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#define LIVE
#include "context/context.h"
#include "support/answers_kit.h"
#include "support/fork_kit.h"

enum { PATIENCE = 20000 };

/* A source whose compute may stop the server, or do something else, when it has the value. */
typedef struct source {
  corral *c;
  int version, computes;
  void (*last)(struct source *s);
  long long reads; /* of the server when the compute began; -1: they aren't counted */
} source;

static int take(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  source *s = arg;
  char text[16];
  (void)key;
  (void)key_len;
  s->computes++;
  if (s->reads >= 0) s->reads = redis_server_info(redis, "total_reads_processed");
  int len = snprintf(text, sizeof text, "%d", s->version);
  int status = corral_fill_bytes(fill, text, (size_t)len);
  if (s->last != NULL) s->last(s);
  return status;
}

static void pause_server(source *s) {
  (void)s;
  redis_server_pause(redis);
}

/* Leases outlast the time in which the server is stopped: nothing extends them then. */
static corral_policy behind(void) {
  return *CORRAL_POLICY(.ttl_ms = FAR, .wait_ms = PATIENCE, .compute_ms = PATIENCE,
                        .lease_ms = PATIENCE, .lease_min_ms = PATIENCE, .settle_behind = 1);
}

static source opened_source(const corral_options *more) {
  source s = {.version = 1, .reads = -1};
  corral_options options = *more;
  redis_server_resume(redis); /* a test that failed may have left it stopped */
  redis_server_ask(redis, "FLUSHALL");
  options.size = sizeof options;
  options.store = redis_server_unix_uri(redis);
  options.away_ms = 2 * PATIENCE;
  if (options.op_ms == 0) options.op_ms = PATIENCE; /* a settle that is lost is told by nobody */
  s.c = opened(&options);
  return s;
}

static source plain_source(void) { return opened_source(CORRAL_OPTIONS()); }

static corral *another(void) {
  return opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = PATIENCE,
                               .away_ms = 2 * PATIENCE));
}

static got gets_by(source *s, const char *key, const corral_call *call) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(s->c, key, strlen(key), call, take, s, &value);
  return got_of(status, value);
}

static got gets(source *s, const char *key) {
  corral_policy policy = behind();
  return gets_by(s, key, CORRAL_CALL(.policy = &policy));
}

static void expect(got g, const char *text, corral_how how, corral_kept kept) {
  assert_int_equal(g.status, CORRAL_OK);
  assert_string_equal(g.text, text);
  assert_int_equal(g.how, how);
  assert_int_equal(g.kept, kept);
}

/* Computed while the server was stopped; nobody has heard of the settle, good or bad. */
static void expect_behind(const source *s, got g, const char *text) {
  expect(g, text, CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  assert_int_equal(corral_counter(s->c, CORRAL_EVENT_UNSTORED), 0);
}

static void expect_stored(const char *key, const char *text) {
  source reader = {.c = another(), .version = -1, .reads = -1};
  expect(gets(&reader, key), text, CORRAL_FRESH, CORRAL_KEPT);
  assert_int_equal(reader.computes, 0);
  corral_close(reader.c);
}

static void settled(source *s, uint64_t fills) {
  redis_server_resume(redis);
  wait_for_event(s->c, CORRAL_EVENT_FILL, fills);
  s->last = NULL;
}

/* ---- round trips --------------------------------------------------------------------------- */

/* Requests that the server has read since, one of which asked for their number. */
static long long reads_since(const source *s, long long before) { return s->reads - before - 1; }

static void a_cold_miss_has_its_value_after_two_round_trips(void **state) {
  (void)state;
  source s = plain_source();
  gets(&s, "warm");
  settled(&s, 1);
  s.last = pause_server;
  s.reads = 0;
  long long before = redis_server_info(redis, "total_reads_processed");
  expect_behind(&s, gets(&s, "k"), "1");
  assert_int_equal(reads_since(&s, before), 2);
  settled(&s, 2);
  expect_stored("k", "1");
  corral_close(s.c);
}

static void an_expected_miss_after_one(void **state) {
  (void)state;
  source s = plain_source();
  gets(&s, "k");
  settled(&s, 1);
  assert_int_equal(corral_invalidate(s.c, "k", 1, NULL), CORRAL_OK);
  s.last = pause_server;
  s.reads = 0;
  s.version = 2;
  long long before = redis_server_info(redis, "total_reads_processed");
  expect_behind(&s, gets(&s, "k"), "2");
  assert_int_equal(reads_since(&s, before), 1);
  settled(&s, 2);
  expect_stored("k", "2");
  corral_close(s.c);
}

/* By default the call waits for the word of the store. */
static void without_it_the_call_knows_what_became_of_its_value(void **state) {
  (void)state;
  source s = plain_source();
  expect(gets_by(&s, "k", NULL), "1", CORRAL_COMPUTED, CORRAL_KEPT);
  corral_close(s.c);
}

static void on_a_local_store_the_settle_is_not_behind(void **state) {
  (void)state;
  char uri[64];
  snprintf(uri, sizeof uri, "memory:%p", (void *)lab_room);
  const char *const stores[] = {uri, lab_lmdb(lab_room, "store")};
  for (size_t i = 0; i < 2; i++) {
    source s = {.c = opened(CORRAL_OPTIONS(.store = stores[i])), .version = 1, .reads = -1};
    expect(gets(&s, "k"), "1", CORRAL_COMPUTED, CORRAL_KEPT);
    corral_close(s.c);
  }
}

/* ---- every kind of call -------------------------------------------------------------------- */

static void the_caller_of_a_bound_compute_has_its_value_too(void **state) {
  (void)state;
  source s = {.version = 0};
  corral_policy policy = behind();
  corral_value *value = NULL;
  s = opened_source(CORRAL_OPTIONS(.compute = take, .compute_arg = &s, .policy = &policy));
  s.last = pause_server;
  int status = corral_get(s.c, "k", 1, NULL, &value);
  expect_behind(&s, got_of(status, value), "1");
  settled(&s, 1);
  expect_stored("k", "1");
  corral_close(s.c);
}

static void who_rebuilds_a_stale_value_has_the_new_one_before_its_fill(void **state) {
  (void)state;
  source s = plain_source();
  corral_policy policy = behind();
  policy.swr_ms = FAR;
  const corral_call *call = CORRAL_CALL(.policy = &policy);
  gets_by(&s, "k", call);
  settled(&s, 1);
  assert_int_equal(corral_expire(s.c, "k", 1, NULL), CORRAL_OK);
  s.last = pause_server;
  s.version = 2;
  expect_behind(&s, gets_by(&s, "k", call), "2");
  redis_server_resume(redis);
  wait_for_event(s.c, CORRAL_EVENT_REFRESH, 1);
  expect_stored("k", "2");
  corral_close(s.c);
}

static int take_all(corral_fill *const *fills, size_t count, void *arg) {
  source *s = arg;
  s->computes++;
  for (size_t i = 0; i < count; i++) corral_fill_bytes(fills[i], "1", 1);
  s->last(s);
  return CORRAL_OK;
}

static void many_keys_of_one_call(void **state) {
  enum { KEYS = 40 };
  (void)state;
  char names[KEYS][16];
  corral_item items[KEYS];
  source s = plain_source();
  corral_policy policy = behind();
  memset(items, 0, sizeof items);
  for (int i = 0; i < KEYS; i++) {
    items[i].key = names[i];
    items[i].key_len = (size_t)snprintf(names[i], sizeof names[i], "k%d", i);
  }
  s.last = pause_server;
  assert_int_equal(corral_get_many(s.c, items, KEYS, CORRAL_CALL(.policy = &policy), take_all, &s),
                   CORRAL_OK);
  for (int i = 0; i < KEYS; i++) expect_behind(&s, got_of(items[i].status, items[i].value), "1");
  assert_int_equal(s.computes, 1);
  settled(&s, KEYS);
  for (int i = 0; i < KEYS; i++) expect_stored(names[i], "1");
  corral_close(s.c);
}

static void get_inner(source *outer) {
  source inner = {.c = outer->c, .version = 7, .reads = -1};
  expect(gets(&inner, "inner"), "7", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
}

static void a_compute_that_asks_for_another_key(void **state) {
  (void)state;
  source s = plain_source();
  s.last = get_inner;
  expect(gets(&s, "outer"), "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  settled(&s, 2);
  expect_stored("outer", "1");
  expect_stored("inner", "7");
  corral_close(s.c);
}

static corral_cancel_token *token;

static void cancel_call(source *s) {
  (void)s;
  corral_cancel_token_cancel(token);
  redis_server_pause(redis);
}

static void a_call_that_is_cancelled_in_its_compute_has_its_value(void **state) {
  (void)state;
  source s = plain_source();
  corral_policy policy = behind();
  token = corral_cancel_token_new();
  assert_non_null(token);
  s.last = cancel_call;
  expect_behind(&s, gets_by(&s, "k", CORRAL_CALL(.policy = &policy, .cancel_token = token)), "1");
  corral_cancel_token_free(token); /* while the settle is under way */
  settled(&s, 1);
  expect_stored("k", "1");
  corral_close(s.c);
}

/* ---- nothing is weakened ------------------------------------------------------------------- */

/* Another process asks while the settle is under way: it waits for it. */
static void *ask_elsewhere(void *arg) {
  source *s = arg;
  got g = gets(s, "k");
  assert_int_equal(g.status, CORRAL_OK);
  assert_string_equal(g.text, "1");
  return NULL;
}

static void two_processes_compute_once(void **state) {
  (void)state;
  pthread_t threads[2];
  source s = plain_source(), there = {.c = another(), .version = 2, .reads = -1}, here = s;
  here.version = 3;
  s.last = pause_server;
  expect_behind(&s, gets(&s, "k"), "1");
  pthread_create(&threads[0], NULL, ask_elsewhere, &there);
  pthread_create(&threads[1], NULL, ask_elsewhere, &here);
  settled(&s, 1);
  for (int i = 0; i < 2; i++) pthread_join(threads[i], NULL);
  assert_int_equal(there.computes + here.computes, 0);
  corral_close(there.c);
  corral_close(s.c);
}

static corral *elsewhere;

static void invalidate_elsewhere(source *s) {
  (void)s;
  assert_int_equal(corral_invalidate(elsewhere, "k", 1, NULL), CORRAL_OK);
}

static void a_value_that_was_invalidated_meanwhile_is_not_stored(void **state) {
  (void)state;
  source s = plain_source();
  elsewhere = another();
  s.last = invalidate_elsewhere;
  expect(gets(&s, "k"), "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  wait_for_event(s.c, CORRAL_EVENT_FENCED, 1);
  assert_string_equal(inspected(elsewhere, "k").state, "none");
  corral_close(elsewhere);
  corral_close(s.c);
}

/* Whether the settle comes first or the invalidation: with the near tier, too. */
static void an_invalidation_right_after_the_call_is_not_undone(void **state) {
  enum { ROUNDS = 300 };
  (void)state;
  for (int near = 0; near < 2; near++) {
    source s = opened_source(CORRAL_OPTIONS(.near_bytes = near ? 1 << 20 : 0));
    for (s.version = 1; s.version <= ROUNDS; s.version++) {
      char text[16];
      snprintf(text, sizeof text, "%d", s.version);
      got g = gets(&s, "k");
      assert_int_equal(g.status, CORRAL_OK);
      assert_string_equal(g.text, text);
      assert_int_equal(s.computes, s.version);
      assert_int_equal(corral_invalidate(s.c, "k", 1, NULL), CORRAL_OK);
    }
    corral *c = another();
    corral_close(s.c);
    assert_string_equal(inspected(c, "k").state, "none");
    corral_close(c);
  }
}

static void closing_right_after_the_call_stores_it(void **state) {
  enum { KEYS = 20 };
  (void)state;
  source s = plain_source();
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    expect(gets(&s, key), "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  }
  corral_close(s.c);
  for (int i = 0; i < KEYS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    expect_stored(key, "1");
  }
}

static void a_child_that_is_forked_then_leaves_the_settle_to_its_parent(void **state) {
  (void)state;
  int status;
  source s = plain_source();
  s.last = pause_server;
  expect_behind(&s, gets(&s, "k"), "1");
  pid_t child = fork_at_rest();
  if (child == 0) {
    got g = gets(&s, "k");
    corral_close(s.c);
    _exit(g.status == CORRAL_EFORKED ? 0 : 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  settled(&s, 1);
  expect_stored("k", "1");
  corral_close(s.c);
}

static int fail_there(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  source *s = arg;
  (void)key;
  (void)key_len;
  s->computes++;
  corral_fill_fail(fill, 5, "the origin is away");
  return CORRAL_OK;
}

/* The pause after a failure is shared before anybody hears of it. */
static void a_failure_is_told_when_the_store_has_it(void **state) {
  (void)state;
  source s = plain_source(), there = {.c = another(), .reads = -1};
  corral_policy policy = behind();
  corral_value *value;
  policy.retry_ms = FAR;
  const corral_call *call = CORRAL_CALL(.policy = &policy);
  assert_int_equal(corral_get_or_compute(s.c, "k", 1, call, fail_there, &s, &value),
                   CORRAL_EFAILED);
  assert_int_equal(corral_get_or_compute(there.c, "k", 1, call, fail_there, &there, &value),
                   CORRAL_EFAILED);
  assert_int_equal(s.computes + there.computes, 1);
  corral_close(there.c);
  corral_close(s.c);
}

/* ---- bounds and troubles ------------------------------------------------------------------- */

static void without_room_the_call_waits_for_its_settle(void **state) {
  (void)state;
  source s = plain_source();
  _Atomic int64_t *room = &((crl_context *)(void *)s.c)->behind;
  atomic_store(room, INT32_MAX);
  expect(gets(&s, "a"), "1", CORRAL_COMPUTED, CORRAL_KEPT);
  assert_int_equal(atomic_load(room), INT32_MAX);
  atomic_store(room, 0);
  expect(gets(&s, "b"), "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  for (int ms = 0; ms < PATIENCE && atomic_load(room) != 0; ms++) lab_sleep_ms(1);
  assert_int_equal(atomic_load(room), 0);
  corral_close(s.c);
}

static long allocations;

static void fail_an_allocation(source *s) {
  (void)s;
  crl_alloc_countdown = allocations;
}

/* Each allocation behind the compute fails once: the call ends, and so does its settle. */
static void without_memory_each_call_ends(void **state) {
  (void)state;
  int failed = 1;
  for (allocations = 0; failed; allocations++) {
    source s = plain_source();
    s.last = fail_an_allocation;
    got g = gets(&s, "k");
    assert_true(g.status == CORRAL_OK || g.status == CORRAL_EFAILED || g.status == CORRAL_ENOMEM);
    corral_close(s.c);
    failed = crl_alloc_countdown < 0;
    crl_alloc_countdown = -1;
  }
  assert_true(allocations > 4);
  expect_stored("k", "1");
}

static void kill_server(source *s) {
  (void)s;
  redis_server_kill(redis);
}

static void a_store_that_dies_costs_no_answer(void **state) {
  (void)state;
  source s = plain_source();
  s.last = kill_server;
  expect(gets(&s, "k"), "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  wait_for_event(s.c, CORRAL_EVENT_UNSTORED, 1);
  s.last = NULL;
  expect(gets(&s, "other"), "1", CORRAL_COMPUTED, CORRAL_KEPT_NOT);
  redis_server_restart(redis);
  corral_close(s.c);
}

static int setup(void **state) {
  return lab_make_room(state) == 0 && redis_server_start(&redis, NULL) ? 0 : -1;
}

static int teardown(void **state) {
  redis_server_stop(redis);
  return lab_leave_room(state);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_miss_has_its_value_after_two_round_trips),
      cmocka_unit_test(an_expected_miss_after_one),
      cmocka_unit_test(without_it_the_call_knows_what_became_of_its_value),
      cmocka_unit_test(on_a_local_store_the_settle_is_not_behind),
      cmocka_unit_test(the_caller_of_a_bound_compute_has_its_value_too),
      cmocka_unit_test(who_rebuilds_a_stale_value_has_the_new_one_before_its_fill),
      cmocka_unit_test(many_keys_of_one_call),
      cmocka_unit_test(a_compute_that_asks_for_another_key),
      cmocka_unit_test(a_call_that_is_cancelled_in_its_compute_has_its_value),
      cmocka_unit_test(two_processes_compute_once),
      cmocka_unit_test(a_value_that_was_invalidated_meanwhile_is_not_stored),
      cmocka_unit_test(an_invalidation_right_after_the_call_is_not_undone),
      cmocka_unit_test(closing_right_after_the_call_stores_it),
      cmocka_unit_test(a_child_that_is_forked_then_leaves_the_settle_to_its_parent),
      cmocka_unit_test(a_failure_is_told_when_the_store_has_it),
      cmocka_unit_test(without_room_the_call_waits_for_its_settle),
      cmocka_unit_test(without_memory_each_call_ends),
      cmocka_unit_test(a_store_that_dies_costs_no_answer),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
