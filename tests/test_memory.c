/* test_memory.c: the memory: store through its table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/store_kit.h"
#include "support/watch_kit.h"
#include "support/fork_kit.h"

static _Thread_local int no_memory;

/* Replaces malloc in the whole program: see CORRAL_TESTS_LINK_memory. */
void *__real_malloc(size_t size);
void *__wrap_malloc(size_t size);
void *__wrap_malloc(size_t size) { return no_memory ? NULL : __real_malloc(size); }

/* ---- the verbs ----------------------------------------------------------------------------- */

static void a_settled_value_is_found_again(void **state) {
  (void)state;
  kit k = opened("memory:");
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "a", 1), CORRAL_EMISS);
  put(&k, "a", 'x', 100);
  corral_op op = op_of(CORRAL_VERB_GET, "a", 1);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(body_of(&op), 100);
  assert_int_equal(op.found.record[CORRAL_HEAD + 99], 'x');
  assert_true(op.state.life_ms > 0 && op.state.life_ms <= 600000);
  assert_int_equal(op.state.left_ms, 0);
  done(&op);
  closed(&k);
}

static void one_claim_wins_and_the_other_is_told_what_is_left(void **state) {
  (void)state;
  kit k = opened("memory:");
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "a", 2);
  assert_int_equal(run(&k, &op), CORRAL_EBUSY);
  assert_true(op.state.left_ms > 0);
  assert_non_null(op.found.record);
  done(&op);
  assert_int_equal(settle(&k, "a", 2, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_EXTEND, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "a", 2), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_RELEASE, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 2), CORRAL_OK);
  closed(&k);
}

static void invalidating_fences_a_fill_under_way(void **state) {
  (void)state;
  kit k = opened("memory:");
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_INVALIDATE, "a", 0), CORRAL_OK);
  assert_int_equal(settle(&k, "a", 1, 'x', 8, NULL), CORRAL_ELOST);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "a", 0), CORRAL_EMISS);
  closed(&k);
}

static void a_reader_keeps_its_bytes_while_the_header_changes(void **state) {
  (void)state;
  kit k = opened("memory:");
  put(&k, "a", 'x', 100);
  corral_op held = op_of(CORRAL_VERB_GET, "a", 0);
  assert_int_equal(run(&k, &held), CORRAL_OK);
  uint8_t before[CORRAL_HEAD + 100];
  memcpy(before, held.found.record, sizeof before);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  assert_memory_equal(before, held.found.record, sizeof before);
  corral_op look = op_of(CORRAL_VERB_GET, "a", 0);
  assert_int_equal(run(&k, &look), CORRAL_OK);
  assert_memory_not_equal(before, look.found.record, CORRAL_HEAD);
  assert_memory_equal(before + CORRAL_HEAD, look.found.record + CORRAL_HEAD, 100);
  done(&look);
  closed(&k);
  assert_memory_equal(before, held.found.record, sizeof before);
  done(&held);
}

/* ---- names --------------------------------------------------------------------------------- */

static void a_name_is_shared_and_no_name_is_private(void **state) {
  (void)state;
  kit a = opened("memory:here"), b = opened("memory:here"), c = opened("memory:there"),
      d = opened("memory:"), e = opened("memory:");
  put(&a, "k", 'x', 10);
  put(&d, "k", 'x', 10);
  closed(&a);
  assert_int_equal(verb(&b, CORRAL_VERB_GET, "k", 0), CORRAL_OK);
  assert_int_equal(verb(&c, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  assert_int_equal(verb(&e, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  closed(&b);
  closed(&c);
  closed(&d);
  closed(&e);
  kit f = opened("memory:here");
  assert_int_equal(verb(&f, CORRAL_VERB_GET, "k", 0), CORRAL_EMISS);
  closed(&f);
}

static void a_child_of_a_fork_starts_empty(void **state) {
  (void)state;
  kit parent = opened("memory:forked");
  put(&parent, "k", 'x', 10);
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) {
    kit child;
    int fine = kit_open(&child, "memory:forked", NULL) == CORRAL_OK &&
               verb(&child, CORRAL_VERB_GET, "k", 0) == CORRAL_EMISS;
    _exit(fine ? 0 : 1);
  }
  int end;
  assert_int_equal(waitpid(pid, &end, 0), pid);
  assert_int_equal(end, 0);
  closed(&parent);
}

static void wrong_addresses_are_refused_with_a_text(void **state) {
  (void)state;
  static const char *const wrong[] = {"memory:?size=1k", "memory:?sise=1m", "memory:?size=lots",
                                      "memory://host/x"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    kit k;
    corral_error error = {0};
    assert_int_equal(kit_open(&k, wrong[i], &error), CORRAL_EURI);
    assert_true(error.text[0] != '\0');
  }
}

/* ---- bounds -------------------------------------------------------------------------------- */

static unsigned count_present(const kit *k, const char *stem, unsigned n) {
  unsigned present = 0;
  char key[32];
  for (unsigned i = 0; i < n; i++)
    present += verb(k, CORRAL_VERB_GET, numbered(key, stem, i), 0) == CORRAL_OK;
  return present;
}

static void the_size_bounds_what_is_kept(void **state) {
  (void)state;
  kit k = opened("memory:?size=1m");
  char key[32];
  for (unsigned i = 0; i < 5000; i++) put(&k, numbered(key, "k", i), 'x', 1000);
  unsigned present = count_present(&k, "k", 5000);
  assert_in_range(present, 600, 1000);
  closed(&k);
}

static void a_value_that_is_asked_for_survives_a_scan(void **state) {
  (void)state;
  kit k = opened("memory:?size=1m");
  char key[32];
  put(&k, "hot", 'x', 1000);
  for (unsigned i = 0; i < 20; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_GET, "hot", 0), CORRAL_OK);
  for (unsigned i = 0; i < 5000; i++) {
    put(&k, numbered(key, "scan", i), 'x', 1000);
    if (i % 100 == 0) assert_int_equal(verb(&k, CORRAL_VERB_GET, "hot", 0), CORRAL_OK);
  }
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "hot", 0), CORRAL_OK);
  closed(&k);
}

static void a_live_lease_is_not_evicted(void **state) {
  (void)state;
  kit k = opened("memory:?size=256k");
  char key[32];
  for (unsigned i = 0; i < 50; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, numbered(key, "lease", i), 1), CORRAL_OK);
  for (unsigned i = 0; i < 2000; i++) put(&k, numbered(key, "k", i), 'x', 1000);
  for (unsigned i = 0; i < 50; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_EXTEND, numbered(key, "lease", i), 1), CORRAL_OK);
  closed(&k);
}

static void nothing_but_leases_is_bounded_too(void **state) {
  (void)state;
  kit k = opened("memory:?size=64k");
  char key[32];
  for (unsigned i = 0; i < 3000; i++)
    assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, numbered(key, "lease", i), 1), CORRAL_OK);
  assert_in_range(count_present(&k, "lease", 3000), 50, 400);
  closed(&k);
}

static void a_record_of_almost_half_the_size_fits_and_a_larger_one_keeps_the_old(void **state) {
  (void)state;
  kit k = opened("memory:?size=64m");
  char key[32];
  for (unsigned i = 0; i < 100; i++) put(&k, numbered(key, "k", i), 'x', 1 << 20);
  put(&k, "big", 'b', (32u << 20) - 4096);
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "big", 0), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "big", 1), CORRAL_OK);
  corral_error error = {0};
  assert_int_equal(settle(&k, "big", 1, 'c', 33u << 20, &error), CORRAL_ETOOBIG);
  assert_true(error.text[0] != '\0');
  corral_op op = op_of(CORRAL_VERB_GET, "big", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_int_equal(op.found.record[CORRAL_HEAD], 'b');
  done(&op);
  closed(&k);
}

static void a_value_whose_life_is_over_is_gone(void **state) {
  (void)state;
  kit k = opened("memory:");
  blink(&k, "a");
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "a", 0), CORRAL_EMISS);
  assert_int_equal(settle(&k, "a", 1, 'x', 8, NULL), CORRAL_ELOST);
  closed(&k);
}

/* ---- threads ------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 4000, KEYS = 16 };

typedef struct crowd {
  const kit *k;
  unsigned number;
  atomic_uint *inside; /* for each key: number of threads that hold its lease */
  atomic_uint *wrong;
} crowd;

/* Each value is one repeated letter, so a torn value shows two letters. */
static void look(const crowd *c, const char *key) {
  corral_op op = op_of(CORRAL_VERB_GET, key, 0);
  if (run(c->k, &op) == CORRAL_OK) {
    for (size_t i = CORRAL_HEAD + 1; i < CORRAL_HEAD + body_of(&op); i++)
      if (op.found.record[i] != op.found.record[CORRAL_HEAD]) atomic_fetch_add(c->wrong, 1);
  }
  done(&op);
}

static void *member(void *arg) {
  const crowd *c = arg;
  char key[32];
  for (unsigned i = 0; i < ROUNDS; i++) {
    unsigned n = (i * 7 + c->number * 3) % KEYS, holder = c->number * ROUNDS + i + 1;
    numbered(key, "k", n);
    look(c, key);
    if (verb(c->k, CORRAL_VERB_CLAIM, key, holder) != CORRAL_OK) continue;
    if (atomic_fetch_add(&c->inside[n], 1) != 0) atomic_fetch_add(c->wrong, 1);
    atomic_fetch_sub(&c->inside[n], 1);
    if (settle(c->k, key, holder, (char)('a' + i % 26), 500 + i % 1500, NULL) != CORRAL_OK)
      atomic_fetch_add(c->wrong, 1);
  }
  return NULL;
}

static void threads_see_whole_values_and_one_leader(void **state) {
  (void)state;
  kit k = opened("memory:?size=64k");
  pthread_t threads[THREADS];
  crowd crowds[THREADS];
  atomic_uint inside[KEYS], wrong;
  atomic_init(&wrong, 0);
  for (unsigned i = 0; i < KEYS; i++) atomic_init(&inside[i], 0);
  for (unsigned i = 0; i < THREADS; i++) {
    crowds[i] = (crowd){.k = &k, .number = i, .inside = inside, .wrong = &wrong};
    assert_int_equal(pthread_create(&threads[i], NULL, member, &crowds[i]), 0);
  }
  for (unsigned i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(atomic_load(&wrong), 0);
  closed(&k);
}

/* ---- watches ------------------------------------------------------------------------------- */

static void a_renewed_value_lives_on(void **state) {
  (void)state;
  kit k = opened("memory:");
  put(&k, "a", 'x', 100);
  corral_op held = op_of(CORRAL_VERB_GET, "a", 0), op = op_of(CORRAL_VERB_RENEW, "a", 1);
  assert_int_equal(run(&k, &held), CORRAL_OK);
  assert_int_equal(verb(&k, CORRAL_VERB_CLAIM, "a", 1), CORRAL_OK);
  op.renew.ttl_ms = 6000000;
  assert_int_equal(run(&k, &op), CORRAL_OK);
  op = op_of(CORRAL_VERB_GET, "a", 0);
  assert_int_equal(run(&k, &op), CORRAL_OK);
  assert_true(op.state.life_ms > 600000 && op.state.left_ms == 0);
  assert_memory_equal(op.found.record + CORRAL_HEAD, held.found.record + CORRAL_HEAD, 100);
  done(&op);
  done(&held);
  closed(&k);
}

static void each_change_is_told_to_all_watches_of_a_name(void **state) {
  (void)state;
  kit a = opened("memory:told"), b = opened("memory:told"), c = opened("memory:untold");
  ear *first = ear_open(&a), *second = ear_open(&b), *stranger = ear_open(&c);
  check_verbs(&a, first);
  check_verbs(&b, first);
  forget(second);
  put(&a, "k", 'x', 10);
  catch_up(second);
  assert_int_equal(times_told(second, "k"), 2);
  ear_close(first);
  put(&a, "l", 'x', 10);
  catch_up(second);
  assert_int_equal(times_told(second, "l"), 2);
  assert_int_equal(listen_until(stranger, -1, 0), 0);
  ear_close(second);
  ear_close(stranger);
  closed(&a);
  closed(&b);
  closed(&c);
}

static void a_look_is_watched_while_a_watch_is_open(void **state) {
  (void)state;
  kit k = opened("memory:");
  closed(&k);
}

static void a_watch_may_come_before_the_first_connect(void **state) {
  (void)state;
  kit k;
  crl_uri uri;
  corral_store_info info = {.size = sizeof info};
  assert_int_equal(crl_uri_parse(&uri, "memory:", NULL), CORRAL_OK);
  k.host = crl_registry_host();
  assert_int_equal(crl_registry_find("memory", &k.plugin, NULL), CORRAL_OK);
  assert_int_equal(k.plugin->open(k.host, &uri.view, &k.store, &info, NULL), CORRAL_OK);
  crl_uri_free(&uri);
  ear *e = ear_open(&k);
  assert_int_equal(k.plugin->connect(k.store, INT64_MAX, &k.handle, NULL), CORRAL_OK);
  put(&k, "k", 'x', 10);
  is_told(e, "k");
  ear_close(e);
  closed(&k);
}

static void an_eviction_is_told_and_the_end_of_a_life_is_not(void **state) {
  (void)state;
  kit k = opened("memory:?size=64k");
  ear *e = ear_open(&k);
  char key[32];
  for (unsigned i = 0; i < 200; i++) put(&k, numbered(key, "k", i), 'x', 1000);
  catch_up(e);
  evictions_are_told(e, 200);
  blink(&k, "soon");
  for (int64_t from = k.host->boot_ms(); k.host->boot_ms() < from + 2;) sched_yield();
  assert_int_equal(verb(&k, CORRAL_VERB_GET, "soon", 0), CORRAL_EMISS);
  catch_up(e);
  assert_int_equal(times_told(e, "soon"), 2); /* the claim, and the fill */
  ear_close(e);
  closed(&k);
}

static void a_watch_that_falls_behind_is_told_any(void **state) {
  (void)state;
  kit k = opened("memory:");
  ear *e = ear_open(&k);
  for (unsigned i = 0; i < 512; i++) put(&k, "full", 'x', 10);
  catch_up(e);
  assert_int_equal(times_told(e, "full"), 1024);
  assert_false(any_told(e));
  for (unsigned i = 0; i < 513; i++) put(&k, "more", 'x', 10);
  catch_up(e);
  assert_int_equal(times_told(e, "more"), 0);
  assert_true(any_told(e));
  e->count = 0;
  put(&k, "after", 'x', 10);
  is_told(e, "after");
  assert_false(any_told(e));
  ear_close(e);
  closed(&k);
}

static void a_watch_ends_when_it_is_stopped_and_by_its_time(void **state) {
  (void)state;
  kit k = opened("memory:");
  check_end(&k);
  closed(&k);
}

static void a_watch_rests_while_nothing_happens(void **state) {
  (void)state;
  kit k = opened("memory:");
  check_rest(&k);
  closed(&k);
}

static void a_watch_without_a_descriptor_is_refused(void **state) {
  (void)state;
  kit k = opened("memory:");
  struct rlimit none, old;
  corral_error error = {0};
  void *watch;
  assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
  none = old;
  none.rlim_cur = 0;
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &none), 0);
  int status = k.plugin->watch(k.store, 0, INT64_MAX, &watch, &error);
  assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
  assert_int_equal(status, CORRAL_EIO);
  assert_non_null(strstr(error.text, "descriptor"));
  closed(&k);
}

static void a_child_of_a_fork_ends_a_watch_without_harm(void **state) {
  (void)state;
  kit k = opened("memory:watched");
  ear *e = ear_open(&k);
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid == 0) {
    k.plugin->unwatch(e->watch);
    k.plugin->close(k.store);
    _exit(0);
  }
  int end;
  assert_int_equal(waitpid(pid, &end, 0), pid);
  assert_int_equal(end, 0);
  put(&k, "k", 'x', 10);
  is_told(e, "k");
  ear_close(e);
  closed(&k);
}

enum { TELLERS = 3, TOLD_EACH = 3000 };

typedef struct teller {
  const kit *k;
  unsigned number;
} teller;

static void *tell_many(void *arg) {
  const teller *t = arg;
  char key[32];
  for (unsigned i = 0; i < TOLD_EACH; i++)
    touch(t->k, numbered(key, "t", t->number * TOLD_EACH + i));
  return NULL;
}

/* Each change must be reported by its key or as "any", after it has happened. */
static void what_threads_change_is_told(void **state) {
  (void)state;
  kit k = opened("memory:");
  ear *e = ear_open(&k);
  pthread_t threads[TELLERS];
  teller tellers[TELLERS];
  char key[32];
  for (unsigned i = 0; i < TELLERS; i++) {
    tellers[i] = (teller){.k = &k, .number = i};
    assert_int_equal(pthread_create(&threads[i], NULL, tell_many, &tellers[i]), 0);
  }
  ear *other = ear_open(&k);
  for (unsigned i = 0; i < 100; i++) {
    put(&k, numbered(key, "mine", i), 'x', 10);
    (void)listen_until(other, -1, soon(&k));
    ear *brief = ear_open(&k);
    ear_close(brief);
    int64_t until = soon(&k);
    while (times_told(e, key) == 0 && !any_told(e) && k.host->now_ms() < until)
      (void)listen_until(e, -1, until);
    assert_true(times_told(e, key) > 0 || any_told(e));
  }
  for (unsigned i = 0; i < TELLERS; i++) pthread_join(threads[i], NULL);
  catch_up(e);
  assert_true(any_told(e) || e->count == TELLERS * TOLD_EACH + 200);
  ear_close(other);
  ear_close(e);
  closed(&k);
}

enum { CALLS = 500 };

typedef struct caller {
  const kit *k;
  _Atomic int64_t called_us;
  atomic_uint heard;
} caller;

static void *call_often(void *arg) {
  caller *c = arg;
  for (unsigned i = 0; i < CALLS; i++) {
    crl_env_sleep_until(crl_env_now_ms() + 1); /* by now the watch mostly sleeps */
    atomic_store(&c->called_us, crl_env_now_us());
    touch(c->k, "call");
    while (atomic_load(&c->heard) <= i) sched_yield();
  }
  return NULL;
}

static void a_change_wakes_a_watch_soon(void **state) {
  (void)state;
  kit k = opened("memory:");
  caller c = {.k = &k};
  static int64_t us[CALLS];
  pthread_t thread;
  ear *e = ear_open(&k);
  assert_int_equal(pthread_create(&thread, NULL, call_often, &c), 0);
  for (unsigned i = 0; i < CALLS; i++) {
    assert_int_equal(listen_until(e, -1, soon(&k)), 1);
    us[i] = crl_env_now_us() - atomic_load(&c.called_us);
    atomic_store(&c.heard, i + 1);
  }
  pthread_join(thread, NULL);
  check_times("memory: from a change in another thread to its being told", us, CALLS);
  ear_close(e);
  closed(&k);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_settled_value_is_found_again),
      cmocka_unit_test(one_claim_wins_and_the_other_is_told_what_is_left),
      cmocka_unit_test(invalidating_fences_a_fill_under_way),
      cmocka_unit_test(a_reader_keeps_its_bytes_while_the_header_changes),
      cmocka_unit_test(a_name_is_shared_and_no_name_is_private),
      cmocka_unit_test(a_child_of_a_fork_starts_empty),
      cmocka_unit_test(wrong_addresses_are_refused_with_a_text),
      cmocka_unit_test(the_size_bounds_what_is_kept),
      cmocka_unit_test(a_value_that_is_asked_for_survives_a_scan),
      cmocka_unit_test(a_live_lease_is_not_evicted),
      cmocka_unit_test(nothing_but_leases_is_bounded_too),
      cmocka_unit_test(a_record_of_almost_half_the_size_fits_and_a_larger_one_keeps_the_old),
      cmocka_unit_test(a_value_whose_life_is_over_is_gone),
      cmocka_unit_test(threads_see_whole_values_and_one_leader),
      cmocka_unit_test(a_renewed_value_lives_on),
      cmocka_unit_test(each_change_is_told_to_all_watches_of_a_name),
      cmocka_unit_test(a_look_is_watched_while_a_watch_is_open),
      cmocka_unit_test(a_watch_may_come_before_the_first_connect),
      cmocka_unit_test(an_eviction_is_told_and_the_end_of_a_life_is_not),
      cmocka_unit_test(a_watch_that_falls_behind_is_told_any),
      cmocka_unit_test(a_watch_ends_when_it_is_stopped_and_by_its_time),
      cmocka_unit_test(a_watch_rests_while_nothing_happens),
      cmocka_unit_test(a_watch_without_a_descriptor_is_refused),
      cmocka_unit_test(a_child_of_a_fork_ends_a_watch_without_harm),
      cmocka_unit_test(what_threads_change_is_told),
      cmocka_unit_test(a_change_wakes_a_watch_soon),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
