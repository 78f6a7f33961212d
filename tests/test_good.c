/* test_good.c: whose answer is good: a call is answered by what the store confirmed after it
 * began, and a computed value isn't withheld because its fill isn't settled. On a real Redis. */
#include <corral/loop.h>
#include <poll.h>
#include <pthread.h>
#include <sched.h>

#define LIVE
#include "support/answers_kit.h"
#include "support/body_proxy.h"
#include "support/fork_kit.h"

enum { PATIENCE = 60000, HURRY = 3000, OP_MS = 60000, AWAY_MS = 600000 };
enum { SHORT_LEASE = 3000 }; /* extended every second, and not lost by a pause of the machine */

/* A source whose value is its version, read at the beginning of a compute. */
typedef struct source {
  corral *c;
  const char *tag; /* of its value; NULL: none */
  int cost_ms;     /* of a compute that was let go; the server is stopped for it */
  _Atomic int version, inside, let_go;
} source;

static int take(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  source *s = arg;
  char text[16];
  (void)key;
  (void)key_len;
  int len = snprintf(text, sizeof text, "%d", atomic_load(&s->version));
  atomic_fetch_add(&s->inside, 1);
  while (!atomic_load(&s->let_go)) sched_yield();
  if (s->cost_ms > 0) redis_server_pause(redis);
  if (s->cost_ms > 0) lab_sleep_ms(s->cost_ms);
  if (s->tag != NULL) assert_int_equal(corral_fill_tag(fill, s->tag, strlen(s->tag)), CORRAL_OK);
  return corral_fill_bytes(fill, text, (size_t)len);
}

/* The thread of a caller: one call, by one of the ways below. */
typedef void *way(void *arg);

typedef struct caller {
  source *source;
  corral_policy policy;
  way *way;
  pthread_t thread;
  _Atomic int has_ended;
  got got;
} caller;

static void take_answer(caller *k, int status, corral_value *value) {
  k->got = got_of(status, value);
  atomic_store(&k->has_ended, 1);
}

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  const corral_call *how = CORRAL_CALL(.policy = &k->policy);
  int status = corral_get_or_compute(k->source->c, "k", 1, how, take, k->source, &value);
  take_answer(k, status, value);
  return NULL;
}

static int take_all(corral_fill *const *fills, size_t count, void *arg) {
  assert_int_equal(count, 1);
  return take(fills[0], NULL, 0, arg);
}

static void *call_of_many(void *arg) {
  caller *k = arg;
  corral_item item = {.key = "k", .key_len = 1};
  const corral_call *how = CORRAL_CALL(.policy = &k->policy);
  int status = corral_get_many(k->source->c, &item, 1, how, take_all, k->source);
  take_answer(k, status == CORRAL_OK ? item.status : status, item.value);
  return NULL;
}

static void on_start(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  caller *k = arg;
  take(fill, key, key_len, k->source);
  corral_fill_done(fill);
}

static void on_done(void *arg, int status, corral_value *value, const corral_error *error) {
  (void)error;
  take_answer(arg, status, value);
}

static void *call_by_loop(void *arg) {
  caller *k = arg;
  corral_loop *loop;
  const corral_call *how = CORRAL_CALL(.policy = &k->policy);
  const corral_async *async = CORRAL_ASYNC(.done = on_done, .start = on_start, .arg = k);
  assert_int_equal(corral_loop_open(k->source->c, &loop, NULL), CORRAL_OK);
  assert_int_equal(corral_loop_get(loop, "k", 1, how, async, NULL), CORRAL_OK);
  while (!atomic_load(&k->has_ended)) {
    struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
    (void)poll(&fd, 1, -1);
    corral_loop_dispatch(loop);
  }
  corral_loop_close(loop);
  return NULL;
}

static void start(caller *k) {
  atomic_store(&k->has_ended, 0);
  assert_int_equal(pthread_create(&k->thread, NULL, k->way == NULL ? call : k->way, k), 0);
}
static void end(caller *k) { pthread_join(k->thread, NULL); }

static corral_policy patient(int64_t lease_ms) {
  return *CORRAL_POLICY(.ttl_ms = FAR, .wait_ms = PATIENCE, .compute_ms = PATIENCE,
                        .lease_ms = lease_ms, .lease_min_ms = lease_ms);
}

static source opened_source(void) {
  source s = {.version = 1};
  redis_server_resume(redis); /* a test that failed may have left it stopped */
  redis_server_ask(redis, "FLUSHALL");
  s.c = opened(
      CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = OP_MS, .away_ms = AWAY_MS));
  return s;
}

static corral *another(void) {
  return opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = OP_MS));
}

/* The source changes, and another process tells so. */
static void change(source *s, corral *elsewhere) {
  atomic_fetch_add(&s->version, 1);
  assert_int_equal(corral_invalidate(elsewhere, "k", 1, NULL), CORRAL_OK);
}

static void expect(const caller *k, const char *text, corral_how how, corral_kept kept) {
  assert_int_equal(k->got.status, CORRAL_OK);
  assert_string_equal(k->got.text, text);
  assert_int_equal(k->got.how, how);
  assert_int_equal(k->got.kept, kept);
}

static void newcomers_of_a_voided_compute_do_not_get_its_value(void **state) {
  (void)state;
  source s = opened_source();
  corral *elsewhere = another();
  caller leader = {.source = &s, .policy = patient(60000)}, one = leader, other = leader;
  start(&leader);
  wait_for(&s.inside, 1);
  change(&s, elsewhere);
  start(&one);
  start(&other);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 2);
  atomic_store(&s.let_go, 1);
  end(&leader);
  end(&one);
  end(&other);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT_FENCED);
  assert_string_equal(one.got.text, "2");
  assert_string_equal(other.got.text, "2");
  assert_int_equal(atomic_load(&s.inside), 2);
  corral_close(elsewhere);
  corral_close(s.c);
}

static void nor_the_stale_value_that_it_refreshes(void **state) {
  (void)state;
  source s = opened_source();
  corral *elsewhere = another();
  caller leader = {.source = &s, .policy = patient(60000)};
  leader.policy.swr_ms = FAR;
  atomic_store(&s.let_go, 1);
  start(&leader);
  end(&leader);
  atomic_store(&s.let_go, 0);
  assert_int_equal(corral_expire(s.c, "k", 1, NULL), CORRAL_OK);
  caller newcomer = leader;
  start(&leader);
  wait_for(&s.inside, 2);
  start(&newcomer);
  end(&newcomer);
  expect(&newcomer, "1", CORRAL_STALE, CORRAL_KEPT);
  assert_int_equal(corral_counter(s.c, CORRAL_EVENT_JOIN), 0);
  change(&s, elsewhere);
  start(&newcomer);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  atomic_store(&s.let_go, 1);
  end(&newcomer);
  end(&leader);
  assert_string_equal(newcomer.got.text, "2");
  corral_close(elsewhere);
  corral_close(s.c);
}

/* The lease goes on when another process invalidates a tag that the value will have. */
static void nor_a_value_from_before_its_tag_was_invalidated(int64_t lease_ms, int extends) {
  source s = opened_source();
  corral *elsewhere = another();
  s.tag = "t";
  caller leader = {.source = &s, .policy = patient(lease_ms)};
  leader.policy.sie_ms = FAR; /* so that the next compute knows the tag from the old value */
  atomic_store(&s.let_go, 1);
  start(&leader);
  end(&leader);
  atomic_store(&s.let_go, 0);
  assert_int_equal(corral_expire(s.c, "k", 1, NULL), CORRAL_OK);
  caller newcomer = leader;
  start(&leader);
  wait_for(&s.inside, 2);
  atomic_fetch_add(&s.version, 1);
  assert_int_equal(corral_invalidate_tag(elsewhere, "t", 1, NULL), CORRAL_OK);
  start(&newcomer);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  uint64_t extended = corral_counter(s.c, CORRAL_EVENT_EXTEND);
  if (extends) wait_for_event(s.c, CORRAL_EVENT_EXTEND, extended + 2);
  atomic_store(&s.let_go, 1);
  end(&newcomer);
  end(&leader);
  assert_string_equal(leader.got.text, "1");
  assert_string_equal(newcomer.got.text, "2");
  assert_int_equal(atomic_load(&s.inside), 3);
  corral_close(elsewhere);
  corral_close(s.c);
}

static void nor_a_value_whose_tag_was_invalidated_before_it_was_settled(void **state) {
  (void)state;
  nor_a_value_from_before_its_tag_was_invalidated(60000, 0);
}

static void nor_one_whose_lease_was_extended_since(void **state) {
  (void)state;
  nor_a_value_from_before_its_tag_was_invalidated(SHORT_LEASE, 1);
}

static void a_look_is_shared_with_calls_that_began_before_it_was_sent(void **state) {
  (void)state;
  enum { LATER = 5 };
  source s = opened_source();
  caller first = {.source = &s, .policy = patient(60000)}, later[LATER];
  atomic_store(&s.let_go, 1);
  start(&first);
  end(&first);
  uint64_t hits = corral_counter(s.c, CORRAL_EVENT_HIT);
  redis_server_pause(redis);
  start(&first);
  /* the first of them leads: the others join it */
  for (int i = 0; i < LATER; i++) {
    later[i] = first;
    start(&later[i]);
  };
  wait_for_event(s.c, CORRAL_EVENT_JOIN, LATER);
  while (!others_sleep()) sched_yield(); /* a call that joined begins to wait after that */
  redis_server_resume(redis);
  end(&first);
  for (int i = 0; i < LATER; i++) end(&later[i]);
  for (int i = 0; i < LATER; i++) assert_string_equal(later[i].got.text, "1");
  /* one look that began before the others' calls, and one that all others share */
  assert_int_equal(corral_counter(s.c, CORRAL_EVENT_HIT) - hits, 2);
  corral_close(s.c);
}

static void who_joined_before_the_lease_was_extended_has_the_value_before_its_fill(void **state) {
  (void)state;
  source s = opened_source();
  caller leader = {.source = &s, .policy = patient(SHORT_LEASE)}, joiner = leader;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&joiner);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  /* the second one that is told from now on was sent after the joiner came */
  wait_for_event(s.c, CORRAL_EVENT_EXTEND, corral_counter(s.c, CORRAL_EVENT_EXTEND) + 2);
  redis_server_pause(redis);
  atomic_store(&s.let_go, 1);
  end(&joiner); /* while the server is silent */
  expect(&joiner, "1", CORRAL_JOINED, CORRAL_KEPT_UNKNOWN);
  redis_server_resume(redis);
  end(&leader);
  assert_string_equal(leader.got.text, "1");
  corral_close(s.c);
}

static void who_came_later_waits_for_the_word_of_the_settle(void **state) {
  (void)state;
  source s = opened_source();
  caller leader = {.source = &s, .policy = patient(60000)}, joiner = leader;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&joiner);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  atomic_store(&s.let_go, 1);
  end(&leader);
  end(&joiner);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT);
  expect(&joiner, "1", CORRAL_JOINED, CORRAL_KEPT);
  assert_int_equal(atomic_load(&s.inside), 1);
  corral_close(s.c);
}

/* ---- a store that falls silent ------------------------------------------------------------- */

/* The call ends while the server is stopped, long before OP_MS. */
static void end_in_silence(caller *k) {
  struct timespec until;
  clock_gettime(CLOCK_REALTIME, &until);
  until.tv_sec += OP_MS / 2000;
  if (pthread_timedjoin_np(k->thread, NULL, &until) == 0) return;
  redis_server_resume(redis);
  end(k);
  fail_msg("a value was withheld until the store spoke");
}

static void silence_withholds_no_value_beyond_a_deadline(way *ask) {
  source s = opened_source();
  caller leader = {.source = &s, .policy = patient(60000), .way = ask}, joiner;
  leader.policy.wait_ms = HURRY;
  joiner = leader;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&joiner);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  redis_server_pause(redis);
  atomic_store(&s.let_go, 1);
  end_in_silence(&leader);
  end_in_silence(&joiner);
  redis_server_resume(redis);
  expect(&joiner, "1", CORRAL_JOINED, CORRAL_KEPT_UNKNOWN);
  assert_int_equal(leader.got.status, CORRAL_OK);
  assert_string_equal(leader.got.text, "1");
  assert_int_equal(leader.got.kept, CORRAL_KEPT_UNKNOWN);
  assert_int_equal(atomic_load(&s.inside), 1);
  corral_close(s.c);
}

static void a_silent_store_withholds_no_value_beyond_a_deadline(void **state) {
  (void)state;
  silence_withholds_no_value_beyond_a_deadline(call);
}

static void nor_from_a_call_of_many_keys(void **state) {
  (void)state;
  silence_withholds_no_value_beyond_a_deadline(call_of_many);
}

static void nor_from_one_of_an_event_loop(void **state) {
  (void)state;
  silence_withholds_no_value_beyond_a_deadline(call_by_loop);
}

/* A call that is as short may end before its compute begins, on a busy machine: it is repeated. */
static void start_until_it_computes(caller *k) {
  for (;;) {
    start(k);
    while (!atomic_load(&k->has_ended) && atomic_load(&k->source->inside) == 0) sched_yield();
    if (atomic_load(&k->source->inside) > 0) return;
    end(k);
    assert_int_equal(k->got.status, CORRAL_EDEADLINE);
  }
}

static void who_waits_for_twice_the_cost_has_the_value_though_the_store_went_away(void **state) {
  (void)state;
  source s = opened_source();
  s.cost_ms = 100; /* in silence */
  caller leader = {.source = &s, .policy = patient(60000)}, joiner = leader;
  leader.policy.wait_ms = 200;
  joiner.policy.wait_ms = HURRY;
  start_until_it_computes(&leader);
  start(&joiner);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  atomic_store(&s.let_go, 1);
  end_in_silence(&leader);
  end_in_silence(&joiner);
  redis_server_resume(redis);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  expect(&joiner, "1", CORRAL_JOINED, CORRAL_KEPT_UNKNOWN);
  assert_int_equal(atomic_load(&s.inside), 1);
  corral_close(s.c);
}

/* ---- the end of a settle that was under way at a deadline ----------------------------------- */

/* A source behind a proxy, with one connection. */
static source distant_source(body_proxy **ret_proxy) {
  char uri[64];
  source s = {.version = 1};
  redis_server_ask(redis, "FLUSHALL");
  *ret_proxy = body_proxy_start(redis_server_port(redis), BODY_HOLDS, 0, NULL, NULL);
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", body_proxy_port(*ret_proxy));
  s.c = opened(CORRAL_OPTIONS(.store = uri, .op_ms = OP_MS, .away_ms = AWAY_MS, .handles = 1));
  return s;
}

/* Returns when the leader has its value, and gave up its own settle, which never reaches the
 * server; that of a thread of the library is kept back by the proxy. */
static void lead_into_silence(source *s, body_proxy *proxy) {
  caller leader = {.source = s, .policy = patient(60000)};
  leader.policy.wait_ms = HURRY;
  start(&leader);
  wait_for(&s->inside, 1);
  body_proxy_hold(proxy);
  atomic_store(&s->let_go, 1);
  end_in_silence(&leader);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  for (int ms = 0; body_proxy_strikes(proxy) < 2; ms++) {
    if (ms == PATIENCE) fail_msg("nobody goes on with the settle");
    lab_sleep_ms(1);
  }
}

static int is_fresh(corral *c) { return strcmp(inspected(c, "k").state, "fresh") == 0; }

static void a_worker_finishes_the_settle(void **state) {
  (void)state;
  body_proxy *proxy;
  source s = distant_source(&proxy);
  corral *elsewhere = another();
  lead_into_silence(&s, proxy);
  assert_false(is_fresh(elsewhere));
  body_proxy_pass(proxy);
  for (int ms = 0; !is_fresh(elsewhere); ms++) {
    if (ms == PATIENCE) fail_msg("the value was never stored");
    lab_sleep_ms(1);
  }
  corral_close(elsewhere);
  corral_close(s.c);
  body_proxy_stop(proxy);
}

typedef struct closer {
  corral *c;
  _Atomic int begins, has_ended;
} closer;

static void *close_it(void *arg) {
  closer *k = arg;
  atomic_store(&k->begins, 1);
  corral_close(k->c);
  atomic_store(&k->has_ended, 1);
  return NULL;
}

static void closing_finishes_the_settle(void **state) {
  (void)state;
  pthread_t thread;
  body_proxy *proxy;
  source s = distant_source(&proxy);
  corral *elsewhere = another();
  closer closes = {.c = s.c};
  lead_into_silence(&s, proxy);
  assert_int_equal(pthread_create(&thread, NULL, close_it, &closes), 0);
  wait_for(&closes.begins, 1);
  lab_sleep_ms(300); /* enough for one that does not wait */
  assert_false(atomic_load(&closes.has_ended));
  assert_false(is_fresh(elsewhere));
  body_proxy_pass(proxy);
  pthread_join(thread, NULL);
  assert_true(is_fresh(elsewhere));
  corral_close(elsewhere);
  body_proxy_stop(proxy);
}

static int setup(void **state) {
  (void)state;
  return redis_server_start(&redis, NULL) ? 0 : -1;
}

static int teardown(void **state) {
  (void)state;
  redis_server_stop(redis);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(newcomers_of_a_voided_compute_do_not_get_its_value),
      cmocka_unit_test(nor_the_stale_value_that_it_refreshes),
      cmocka_unit_test(nor_a_value_whose_tag_was_invalidated_before_it_was_settled),
      cmocka_unit_test(nor_one_whose_lease_was_extended_since),
      cmocka_unit_test(a_look_is_shared_with_calls_that_began_before_it_was_sent),
      cmocka_unit_test(who_joined_before_the_lease_was_extended_has_the_value_before_its_fill),
      cmocka_unit_test(who_came_later_waits_for_the_word_of_the_settle),
      cmocka_unit_test(a_silent_store_withholds_no_value_beyond_a_deadline),
      cmocka_unit_test(nor_from_a_call_of_many_keys),
      cmocka_unit_test(nor_from_one_of_an_event_loop),
      cmocka_unit_test(who_waits_for_twice_the_cost_has_the_value_though_the_store_went_away),
      cmocka_unit_test(a_worker_finishes_the_settle),
      cmocka_unit_test(closing_finishes_the_settle),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
