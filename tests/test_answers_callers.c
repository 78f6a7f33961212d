/* test_answers_callers.c: "can't be cached", leaving a call, and waking: through the
 * public functions, on the stores that need no server. test_answers_callers_live.c does the same on
 * the stores that need one. */
#include <pthread.h>

#include "support/answers_kit.h"

#include "api/handle.h"
#include "store/watch.h"

/* ---- "can't be cached" --------------------------------------------------------------------- */

typedef struct private_answers {
  corral *c;
  pthread_barrier_t together; /* each compute waits for a second one inside */
  _Atomic int number;
  _Atomic int first;
  int bound;
} private_answers;

/* The first compute waits for four joiners, the later ones for each other; run one after the other,
 * they would hang. */
static int private_answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  private_answers *p = arg;
  (void)key;
  (void)key_len;
  int number = atomic_fetch_add(&p->number, 1);
  if (number == 0)
    while (corral_counter(p->c, CORRAL_EVENT_JOIN) < 4) sched_yield();
  else
    pthread_barrier_wait(&p->together);
  corral_fill_pass(fill);
  return corral_fill_bytes(fill, &number, sizeof number);
}

static void *ask_privately(void *arg) {
  private_answers *p = arg;
  corral_value *value = NULL;
  corral_policy policy = usual();
  int status = p->bound ? corral_get(p->c, "k", 1, CORRAL_CALL(.policy = &policy), &value)
                        : corral_get_or_compute(p->c, "k", 1, CORRAL_CALL(.policy = &policy),
                                                private_answer, p, &value);
  if (status != CORRAL_OK || corral_value_how(value) != CORRAL_COMPUTED ||
      corral_value_kept(value) != CORRAL_KEPT_NOT)
    return NULL;
  int *number = malloc(sizeof *number);
  memcpy(number, corral_value_data(value), sizeof *number);
  corral_value_unref(value);
  return number;
}

static void callers_pass(const char *uri, int bound) {
  private_answers p = {.bound = bound};
  pthread_t threads[5];
  int seen = 0;
  pthread_barrier_init(&p.together, NULL, 4);
  p.c = opened(CORRAL_OPTIONS(.store = uri, .compute = bound ? private_answer : NULL,
                              .compute_arg = &p, .workers = 8));
  for (int i = 0; i < 5; i++) pthread_create(&threads[i], NULL, ask_privately, &p);
  for (int i = 0; i < 5; i++) {
    void *number;
    pthread_join(threads[i], &number);
    assert_non_null(number);
    seen |= 1 << *(int *)number; /* no caller gets another caller's answer */
    free(number);
  }
  assert_int_equal(seen, 31);
  assert_string_equal(inspected(p.c, "k").state, "pass");
  assert_int_equal(corral_counter(p.c, CORRAL_EVENT_CLAIM), 1);
  corral_close(p.c);
  pthread_barrier_destroy(&p.together);
}

static void callers_compute(const char *uri) { callers_pass(uri, 0); }
static void workers_compute(const char *uri) { callers_pass(uri, 1); }

static void what_can_t_be_cached_is_computed_in_parallel(void **state) {
  (void)state;
  on_each(callers_compute);
}

static void by_the_workers_too(void **state) {
  (void)state;
  on_each(workers_compute);
}

static void a_pass_ends_on(const char *uri) {
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  say s = {.text = "mine", .pass = 1};
  corral_policy policy = usual();
  policy.pass_ttl_ms = CORRAL_OFF;
  asks_by(c, "never", &policy, &s);
  assert_string_equal(inspected(c, "never").state, "none");
  asks(c, "k", &s);
  assert_int_equal(asks(c, "k", &s).how, CORRAL_COMPUTED);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  s.pass = 0;
  assert_int_equal(asks(c, "k", &s).kept, CORRAL_KEPT);
  assert_int_equal(asks(c, "k", &s).how, CORRAL_FRESH);
  corral_close(c);
}

static void a_pass_ends(void **state) {
  (void)state;
  on_each(a_pass_ends_on);
}

/* ---- leaving a call ------------------------------------------------------------------------ */

typedef struct slow {
  corral *c;
  _Atomic int inside, let_go, stopped, computes;
} slow;

/* Runs until `let_go` is set or corral_fill_should_stop is true. */
static int take_long(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  slow *s = arg;
  (void)key;
  (void)key_len;
  atomic_fetch_add(&s->computes, 1);
  atomic_fetch_add(&s->inside, 1);
  while (!atomic_load(&s->let_go) && !corral_fill_should_stop(fill)) sched_yield();
  atomic_store(&s->stopped, corral_fill_should_stop(fill));
  return corral_fill_bytes(fill, "slow", 4);
}

typedef struct caller {
  slow *slow;
  corral_policy policy;
  corral_cancel_token *cancel_token;
  pthread_t thread;
  int bound;
  got got;
} caller;

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  const corral_call *call = CORRAL_CALL(.policy = &k->policy, .cancel_token = k->cancel_token);
  int status = k->bound
                   ? corral_get(k->slow->c, "k", 1, call, &value)
                   : corral_get_or_compute(k->slow->c, "k", 1, call, take_long, k->slow, &value);
  k->got = got_of(status, value);
  return NULL;
}

/* JOIN is counted shortly before the call waits. */
static void wait_for_a_waiter(corral *c) {
  crl_context *context;
  assert_int_equal(crl_context_enter(c, &context, NULL), CORRAL_OK);
  while (crl_herd_waiting(context->herd, &(crl_name){.key = "k", .key_len = 1}) < 1) sched_yield();
}

static void start(caller *k) { assert_int_equal(pthread_create(&k->thread, NULL, call, k), 0); }
static void end(caller *k) { pthread_join(k->thread, NULL); }

static void one_who_waits_leaves_at_once(void **state) {
  (void)state;
  slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:"))};
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  caller leader = {.slow = &s, .policy = usual()}, one = leader, other = leader;
  one.cancel_token = cancel_token;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&one);
  start(&other);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 2);
  corral_cancel_token_cancel(cancel_token);
  end(&one);
  assert_int_equal(one.got.status, CORRAL_ECANCELLED);
  atomic_store(&s.let_go, 1);
  end(&leader);
  end(&other);
  assert_true(leader.got.status == CORRAL_OK && other.got.status == CORRAL_OK &&
              other.got.how == CORRAL_JOINED);
  assert_false(s.stopped);
  /* a later call with the cancel token is cancelled too, unless the answer is there */
  call(&one);
  assert_int_equal(one.got.status, CORRAL_ECANCELLED);
  corral_cancel_token_free(cancel_token);
  corral_close(s.c);
}

/* The leader is in another corral. The waiter polls, or is woken by the watch. */
static void one_who_waits_for_the_store_leaves_at_once(void **state) {
  (void)state;
  for (int ladder = 0; ladder < 2; ladder++) {
    char uri[64];
    snprintf(uri, sizeof uri, "memory:leave %d %p", ladder, (void *)lab_room);
    slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))},
         t = {.c = opened(CORRAL_OPTIONS(.store = uri, .watch = ladder ? 1 : -1))};
    corral_cancel_token *cancel_token = corral_cancel_token_new();
    caller leader = {.slow = &s, .policy = usual()}, one = {.slow = &t, .policy = usual()};
    one.cancel_token = cancel_token;
    one.policy.poll_ms = one.policy.poll_max_ms = 60000;
    /* The lease lasts: nobody takes it over from a leader that is late to extend it. */
    leader.policy.lease_ms = leader.policy.lease_min_ms = 60000;
    start(&leader);
    wait_for(&s.inside, 1);
    start(&one);
    wait_for_event(t.c, CORRAL_EVENT_WAIT, 1);
    int64_t before = lab_now_us();
    corral_cancel_token_cancel(cancel_token);
    end(&one);
    assert_int_equal(one.got.status, CORRAL_ECANCELLED);
    assert_in_range(lab_now_us() - before, 0, 10000000);
    atomic_store(&s.let_go, 1);
    end(&leader);
    corral_cancel_token_free(cancel_token);
    corral_close(t.c);
    corral_close(s.c);
  }
}

static void one_who_queues_for_a_slot_leaves_at_once(void **state) {
  (void)state;
  slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:", .max_computes = 1))};
  corral_cancel_token *cancel_token = corral_cancel_token_new();
  caller leader = {.slow = &s, .policy = usual()};
  corral_policy policy = usual();
  start(&leader);
  wait_for(&s.inside, 1);
  corral_cancel_token_cancel(cancel_token);
  say quick = {.text = "v"};
  const corral_call *late = CORRAL_CALL(.policy = &policy, .cancel_token = cancel_token);
  corral_value *value = NULL;
  assert_int_equal(corral_get_or_compute(s.c, "another", 7, late, answer, &quick, &value),
                   CORRAL_ECANCELLED);
  assert_int_equal(quick.ran, 0);
  atomic_store(&s.let_go, 1);
  end(&leader);
  corral_cancel_token_free(cancel_token);
  corral_close(s.c);
}

/* corral_fill_should_stop of a call's own compute is true only with stop_alone and without other
 * waiters. */
static void a_compute_is_told_when_the_last_one_has_left(void **state) {
  (void)state;
  /* 0: no stop_alone; 1: another call waits; 2: told to stop */
  for (int told = 0; told < 3; told++) {
    slow s = {.c = opened(CORRAL_OPTIONS(.store = "memory:"))};
    corral_cancel_token *cancel_token = corral_cancel_token_new();
    caller leader = {.slow = &s, .policy = usual()}, other = leader;
    leader.cancel_token = cancel_token;
    leader.policy.stop_alone = told == 0 ? CORRAL_OFF : 1;
    start(&leader);
    wait_for(&s.inside, 1);
    if (told == 1) {
      start(&other);
      wait_for_a_waiter(s.c);
    }
    corral_cancel_token_cancel(cancel_token);
    if (told != 2) atomic_store(&s.let_go, 1);
    end(&leader);
    assert_int_equal(atomic_load(&s.stopped), told == 2);
    assert_int_equal(leader.got.status, CORRAL_OK); /* the leader gets the computed value */
    if (told == 1) {
      end(&other);
      assert_int_equal(other.got.status, CORRAL_OK);
    }
    corral_cancel_token_free(cancel_token);
    corral_close(s.c);
  }
}

static void a_background_compute_is_told_when_the_last_waiter_s_deadline_has_come(void **state) {
  (void)state;
  slow s = {0};
  s.c = opened(CORRAL_OPTIONS(.store = "memory:", .compute = take_long, .compute_arg = &s));
  caller one = {.slow = &s, .policy = usual(), .bound = 1};
  one.policy.stop_alone = 1;
  one.policy.wait_ms = 30;
  call(&one);
  assert_int_equal(one.got.status, CORRAL_EDEADLINE);
  while (!atomic_load(&s.stopped)) sched_yield();
  corral_close(s.c);
}

static void after_the_soft_limit_the_stale_value_is_taken_on(const char *uri) {
  slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  say old = {.text = "old"};
  corral_policy policy = graceful();
  asks_by(s.c, "k", &policy, &old);
  assert_int_equal(corral_expire(s.c, "k", 1, NULL), CORRAL_OK);
  caller leader = {.slow = &s, .policy = policy}, one = leader;
  one.policy.soft_ms = 20;
  start(&leader);
  wait_for(&s.inside, 1);
  int64_t before = lab_now_us();
  call(&one);
  assert_true(one.got.status == CORRAL_OK && one.got.how == CORRAL_STALE);
  assert_string_equal(one.got.text, "old");
  assert_true(lab_now_us() - before >= 15000);
  atomic_store(&s.let_go, 1);
  end(&leader);
  assert_string_equal(leader.got.text, "slow");
  corral_close(s.c);
}

static void after_the_soft_limit_the_stale_value_is_taken(void **state) {
  (void)state;
  on_each(after_the_soft_limit_the_stale_value_is_taken_on);
}

static void at_the_deadline_a_call_computes_for_itself(void **state) {
  (void)state;
  for (int bound = 0; bound < 2; bound++) {
    slow s = {0};
    s.c = opened(
        CORRAL_OPTIONS(.store = "memory:", .compute = bound ? take_long : NULL, .compute_arg = &s));
    caller leader = {.slow = &s, .policy = usual(), .bound = bound}, one = leader;
    one.policy.wait_ms = 30;
    one.policy.at_deadline = CORRAL_DEADLINE_COMPUTE;
    start(&leader);
    wait_for(&s.inside, 1);
    start(&one);
    wait_for(&s.inside, 2); /* beside the leader */
    atomic_store(&s.let_go, 1);
    end(&one);
    end(&leader);
    assert_true(one.got.status == CORRAL_OK && one.got.how == CORRAL_COMPUTED &&
                leader.got.how == CORRAL_COMPUTED);
    assert_int_equal(corral_counter(s.c, CORRAL_EVENT_FILL), 1);
    corral_close(s.c);
  }
}

/* ---- woken --------------------------------------------------------------------------------- */

static void a_waiter_is_woken_by(const char *uri) {
  slow s = {.c = opened(CORRAL_OPTIONS(.store = uri))},
       t = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  caller leader = {.slow = &s, .policy = usual()}, one = {.slow = &t, .policy = usual()};
  one.policy.poll_ms = one.policy.poll_max_ms = 60000;
  /* A leader that is late to extend its lease keeps it; a waiter would look at its end. */
  leader.policy.lease_ms = leader.policy.lease_min_ms = 60000;
  /* The watch opens with the first wait. */
  for (int round = 0; round < 3; round++) {
    uint64_t waits = corral_counter(t.c, CORRAL_EVENT_WAIT);
    atomic_store(&s.let_go, 0);
    start(&leader);
    wait_for(&s.inside, round + 1);
    start(&one);
    wait_for_event(t.c, CORRAL_EVENT_WAIT, waits + 1);
    atomic_store(&s.let_go, 1);
    int64_t before = lab_now_us();
    end(&leader);
    end(&one);
    assert_true(one.got.status == CORRAL_OK && one.got.how == CORRAL_JOINED);
    assert_in_range(lab_now_us() - before, 0, 10000000);
    assert_int_equal(corral_invalidate(s.c, "k", 1, NULL), CORRAL_OK);
  }
  assert_int_equal(atomic_load(&t.computes), 0);
  corral_close(t.c);
  corral_close(s.c);
}

static void waiters_are_woken_by_the_store(void **state) {
  (void)state;
  on_each_that_tells(a_waiter_is_woken_by);
}

/* Set: the next to join the watch is held up until the watch has come up, and the leader's value is
 * stored. */
static caller *_Atomic held_up_by;
static _Thread_local int was_held_up;
static _Atomic int sleeps; /* of one that was held up */

void __real_crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash,
                           crl_waiter *waiter);
void __wrap_crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash,
                           crl_waiter *waiter);

void __wrap_crl_watch_join(crl_watch *watch, crl_watcher *watcher, uint64_t hash,
                           crl_waiter *waiter) {
  caller *leader = atomic_exchange(&held_up_by, NULL);
  if (leader != NULL) {
    while (!crl_watch_up(watch)) sched_yield();
    lab_sleep_ms(50); /* all who had joined are woken */
    atomic_store(&leader->slow->let_go, 1);
    end(leader);
    was_held_up = 1;
  }
  __real_crl_watch_join(watch, watcher, hash, waiter);
}

int __real_crl_waiter_sleep(crl_waiter *sleeper, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *sleeper, int64_t until);

int __wrap_crl_waiter_sleep(crl_waiter *sleeper, int64_t until) {
  if (was_held_up) atomic_fetch_add(&sleeps, 1);
  return __real_crl_waiter_sleep(sleeper, until);
}

/* Neither the watch's begin nor the fill is told to it: it looks once more. */
static void a_late_one_is_not_forgotten_by(const char *uri) {
  slow s = {.c = opened(CORRAL_OPTIONS(.store = uri, .watch = CORRAL_OFF))},
       t = {.c = opened(CORRAL_OPTIONS(.store = uri))};
  caller leader = {.slow = &s, .policy = usual()}, one = {.slow = &t, .policy = usual()};
  one.policy.poll_ms = one.policy.poll_max_ms = 60000;
  leader.policy.lease_ms = leader.policy.lease_min_ms = 60000;
  atomic_store(&sleeps, 0);
  start(&leader);
  wait_for(&s.inside, 1);
  atomic_store(&held_up_by, &leader);
  start(&one);
  end(&one);
  assert_null(held_up_by);
  assert_int_equal(sleeps, 0);
  assert_int_equal(one.got.status, CORRAL_OK);
  assert_int_equal(one.got.how, CORRAL_JOINED);
  assert_int_equal(atomic_load(&t.computes), 0);
  corral_close(t.c);
  corral_close(s.c);
}

static void who_joins_the_watch_late_looks_once_more(void **state) {
  (void)state;
  on_each_that_tells(a_late_one_is_not_forgotten_by);
}

#ifdef LIVE
#include "answers_live.h"
#else
#define LIVE_TESTS
#endif

#define T(test) cmocka_unit_test_setup_teardown(test, lab_make_room, lab_leave_room)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(what_can_t_be_cached_is_computed_in_parallel),
      T(by_the_workers_too),
      T(a_pass_ends),
      T(one_who_waits_leaves_at_once),
      T(one_who_waits_for_the_store_leaves_at_once),
      T(one_who_queues_for_a_slot_leaves_at_once),
      T(a_compute_is_told_when_the_last_one_has_left),
      T(a_background_compute_is_told_when_the_last_waiter_s_deadline_has_come),
      T(after_the_soft_limit_the_stale_value_is_taken),
      T(at_the_deadline_a_call_computes_for_itself),
      T(waiters_are_woken_by_the_store),
      T(who_joins_the_watch_late_looks_once_more),
      LIVE_TESTS};
  start_servers();
  int failed = cmocka_run_group_tests(tests, NULL, NULL);
  stop_servers();
  return failed;
}
