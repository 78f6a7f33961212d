/* test_looks_first.c: where a look asks no other process, each call looks before it enters the
 * herd: a hit takes no part in it, and a loop's hit needs no thread. */
#include "support/answers_kit.h"
#include "support/loop_kit.h"

#include <dirent.h>

#include "context/context.h"

/* ---- hits ---------------------------------------------------------------------------------- */

typedef struct seen {
  corral *c;
  int hits;
  size_t entries; /* of the herd, at the hits */
} seen;

static void on_event(const corral_event_info *info, void *arg) {
  seen *s = arg;
  if (info->event != CORRAL_EVENT_HIT) return;
  s->hits++;
  s->entries += crl_herd_count(((crl_context *)(void *)s->c)->herd);
}

static void hit_in_three_ways(const char *uri) {
  say v = {.text = "v"};
  seen s = {0};
  s.c = opened(CORRAL_OPTIONS(.store = uri, .on_event = on_event, .event_arg = &s));
  GETS(s.c, "k", &v, "v", CORRAL_COMPUTED);
  GETS(s.c, "k", &v, "v", CORRAL_FRESH);
  corral_item items[] = {{.key = "k", .key_len = 1}};
  assert_int_equal(corral_get_many(s.c, items, 1, NULL, NULL, NULL), CORRAL_OK);
  assert_int_equal(items[0].status, CORRAL_OK);
  corral_value_unref(items[0].value);
  corral_loop *loop = loop_of(s.c);
  request r = {0};
  ask(loop, "k", NULL, &r);
  RUN_UNTIL(loop, r.gones, 1);
  corral_loop_close(loop);
  assert_int_equal(s.hits, 3);
  assert_int_equal(s.entries, 0);
  assert_int_equal(v.ran, 1);
  corral_close(s.c);
}

static void a_hit_takes_no_part_in_the_herd(void **state) {
  (void)state;
  on_each(hit_in_three_ways);
}

static int threads(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  assert_non_null(tasks);
  for (const struct dirent *d; (d = readdir(tasks)) != NULL;) count += d->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static void hit_in_a_loop(const char *uri) {
  say v = {.text = "v"};
  corral *maker = opened(CORRAL_OPTIONS(.store = uri));
  GETS(maker, "k", &v, "v", CORRAL_COMPUTED);
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  corral_loop *loop = loop_of(c);
  request r = {0};
  int before = threads();
  ask(loop, "k", NULL, &r);
  corral_loop_dispatch(loop);
  assert_int_equal(r.dones, 1);
  assert_string_equal(r.text, "v");
  assert_int_equal(threads(), before);
  corral_loop_close(loop);
  corral_close(c);
  corral_close(maker);
}

static void a_loop_s_hit_needs_no_thread(void **state) {
  (void)state;
  on_each(hit_in_a_loop);
}

/* ---- no hits ------------------------------------------------------------------------------- */

/* A compute that says that it has begun, and waits until it may end. */
typedef struct gate {
  _Atomic int ran, open;
} gate;

static int slowly(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  gate *g = arg;
  (void)key;
  (void)key_len;
  atomic_fetch_add(&g->ran, 1);
  while (!atomic_load(&g->open)) sched_yield();
  return corral_fill_bytes(fill, "new", 3);
}

typedef struct caller {
  corral *c;
  gate *gate;
  pthread_t thread;
  corral_policy policy;
  got got;
} caller;

static void *call(void *arg) {
  caller *k = arg;
  corral_value *value = NULL;
  int status = corral_get_or_compute(k->c, "k", 1, CORRAL_CALL(.policy = &k->policy), slowly,
                                     k->gate, &value);
  k->got = got_of(status, value);
  return NULL;
}

static void who_finds_nothing_joins(const char *uri) {
  gate g = {0};
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  caller callers[] = {{.c = c, .gate = &g, .policy = usual()},
                      {.c = c, .gate = &g, .policy = usual()}};
  assert_int_equal(pthread_create(&callers[0].thread, NULL, call, &callers[0]), 0);
  wait_for(&g.ran, 1);
  assert_int_equal(pthread_create(&callers[1].thread, NULL, call, &callers[1]), 0);
  wait_for_event(c, CORRAL_EVENT_JOIN, 1);
  atomic_store(&g.open, 1);
  for (int i = 0; i < 2; i++) {
    pthread_join(callers[i].thread, NULL);
    assert_int_equal(callers[i].got.status, CORRAL_OK);
    assert_string_equal(callers[i].got.text, "new");
    assert_int_equal(callers[i].got.how, i == 0 ? CORRAL_COMPUTED : CORRAL_JOINED);
  }
  assert_int_equal(g.ran, 1);
  assert_true(corral_counter(c, CORRAL_EVENT_MISS) == 1);
  corral_close(c);
}

static void who_looks_and_finds_nothing_joins_the_flight(void **state) {
  (void)state;
  on_each(who_finds_nothing_joins);
}

static void who_finds_a_stale_value_has_it(const char *uri) {
  gate g = {0};
  say old = {.text = "old"};
  corral *c = opened(CORRAL_OPTIONS(.store = uri));
  caller leader = {.c = c, .gate = &g, .policy = usual()}, other = leader;
  other.policy.swr_ms = leader.policy.swr_ms = FAR;
  assert_int_equal(asks_by(c, "k", &leader.policy, &old).status, CORRAL_OK);
  assert_int_equal(corral_expire(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(pthread_create(&leader.thread, NULL, call, &leader), 0);
  wait_for(&g.ran, 1);
  call(&other); /* the compute ends only behind it */
  assert_int_equal(other.got.how, CORRAL_STALE);
  assert_string_equal(other.got.text, "old");
  atomic_store(&g.open, 1);
  pthread_join(leader.thread, NULL);
  assert_string_equal(leader.got.text, "new");
  assert_int_equal(g.ran, 1);
  GETS(c, "k", &old, "new", CORRAL_FRESH);
  corral_close(c);
}

static void who_finds_a_value_that_is_being_rebuilt_has_it_at_once(void **state) {
  (void)state;
  on_each(who_finds_a_stale_value_has_it);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(a_hit_takes_no_part_in_the_herd, lab_make_room,
                                      lab_leave_room),
      cmocka_unit_test_setup_teardown(a_loop_s_hit_needs_no_thread, lab_make_room, lab_leave_room),
      cmocka_unit_test_setup_teardown(who_looks_and_finds_nothing_joins_the_flight, lab_make_room,
                                      lab_leave_room),
      cmocka_unit_test_setup_teardown(who_finds_a_value_that_is_being_rebuilt_has_it_at_once,
                                      lab_make_room, lab_leave_room),
  };
  return cmocka_run_group_tests_name("looks first", tests, NULL, NULL);
}
