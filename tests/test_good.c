/* test_good.c: whose answer is good: a call is answered by what the store confirmed after it
 * began, and a computed value isn't withheld because its fill isn't settled. On a real Redis. */
#include <pthread.h>
#include <sched.h>

#define LIVE
#include "support/answers_kit.h"

enum { PATIENCE = 60000, HURRY = 3000 };

/* A source whose value is its version, read at the beginning of a compute. */
typedef struct source {
  corral *c;
  const char *tag; /* of its value; NULL: none */
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
  if (s->tag != NULL) assert_int_equal(corral_fill_tag(fill, s->tag, strlen(s->tag)), CORRAL_OK);
  return corral_fill_bytes(fill, text, (size_t)len);
}

typedef struct caller {
  source *source;
  corral_policy policy;
  pthread_t thread;
  got got;
} caller;

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  const corral_call *how = CORRAL_CALL(.policy = &k->policy);
  int status = corral_get_or_compute(k->source->c, "k", 1, how, take, k->source, &value);
  k->got = got_of(status, value);
  return NULL;
}

static void start(caller *k) { assert_int_equal(pthread_create(&k->thread, NULL, call, k), 0); }
static void end(caller *k) { pthread_join(k->thread, NULL); }

static corral_policy patient(int64_t lease_ms) {
  return *CORRAL_POLICY(.ttl_ms = FAR, .wait_ms = PATIENCE, .compute_ms = PATIENCE,
                        .lease_ms = lease_ms, .lease_min_ms = lease_ms);
}

static source opened_source(void) {
  source s = {.version = 1};
  redis_server_ask(redis, "FLUSHALL");
  s.c = opened(
      CORRAL_OPTIONS(.store = redis_server_unix_uri(redis), .op_ms = 30000, .away_ms = 60000));
  return s;
}

static corral *another(void) {
  return opened(CORRAL_OPTIONS(.store = redis_server_unix_uri(redis)));
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
  nor_a_value_from_before_its_tag_was_invalidated(600, 1);
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
  caller leader = {.source = &s, .policy = patient(600)}, joiner = leader;
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

static void a_silent_store_withholds_no_value_beyond_a_deadline(void **state) {
  (void)state;
  source s = opened_source();
  corral *elsewhere = another();
  caller leader = {.source = &s, .policy = patient(60000)}, joiner;
  leader.policy.wait_ms = HURRY;
  joiner = leader;
  start(&leader);
  wait_for(&s.inside, 1);
  start(&joiner);
  wait_for_event(s.c, CORRAL_EVENT_JOIN, 1);
  redis_server_pause(redis);
  atomic_store(&s.let_go, 1);
  end(&leader); /* both while the server is silent */
  end(&joiner);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  expect(&joiner, "1", CORRAL_JOINED, CORRAL_KEPT_UNKNOWN);
  redis_server_resume(redis);
  /* a thread of the library finishes the settle, or the server did when it went on */
  while (strcmp(inspected(elsewhere, "k").state, "fresh") != 0) sched_yield();
  start(&leader);
  end(&leader);
  expect(&leader, "1", CORRAL_FRESH, CORRAL_KEPT);
  assert_int_equal(atomic_load(&s.inside), 1);
  corral_close(elsewhere);
  corral_close(s.c);
}

static void closing_finishes_the_settle(void **state) {
  (void)state;
  source s = opened_source();
  corral *elsewhere = another();
  caller leader = {.source = &s, .policy = patient(60000)};
  leader.policy.wait_ms = HURRY;
  start(&leader);
  wait_for(&s.inside, 1);
  redis_server_pause(redis);
  atomic_store(&s.let_go, 1);
  end(&leader);
  expect(&leader, "1", CORRAL_COMPUTED, CORRAL_KEPT_UNKNOWN);
  redis_server_resume(redis);
  corral_close(s.c);
  assert_string_equal(inspected(elsewhere, "k").state, "fresh");
  corral_close(elsewhere);
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
      cmocka_unit_test(closing_finishes_the_settle),
  };
  return cmocka_run_group_tests(tests, setup, teardown);
}
