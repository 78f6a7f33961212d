/* test_wait.c: waiters, bells and latches (src/os/wait.h): no wake is lost, and none costs a system
 * call where nobody sleeps. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "os/env.h"
#include "os/wait.h"
#include "support/wrapped_words.h"

enum { FAR_MS = 600000, TURNS = 20000, SLEEPERS = 4 };

void __real_crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until);
void __wrap_crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until);
void __real_crl_env_word_wake(_Atomic uint32_t *word, int count);
void __wrap_crl_env_word_wake(_Atomic uint32_t *word, int count);

static _Atomic int waits, wakes; /* system calls */

void __wrap_crl_env_word_wait(_Atomic uint32_t *word, uint32_t seen, int64_t until) {
  waits++;
  __real_crl_env_word_wait(word, seen, until);
}

void __wrap_crl_env_word_wake(_Atomic uint32_t *word, int count) {
  wakes++;
  __real_crl_env_word_wake(word, count);
}

void __wrap_crl_env_word_wait_bits(_Atomic uint32_t *word, uint32_t seen, uint32_t bits,
                                   int64_t until) {
  waits++;
  __real_crl_env_word_wait_bits(word, seen, bits, until);
}

int __wrap_crl_env_word_wake_bits(_Atomic uint32_t *word, int count, uint32_t bits) {
  wakes++;
  return __real_crl_env_word_wake_bits(word, count, bits);
}

static int begin(void **state) {
  (void)state;
  waits = wakes = 0;
  return 0;
}

static int64_t far(void) { return crl_env_now_ms() + FAR_MS; }

/* ---- waiters ------------------------------------------------------------------------------- */

static void a_wake_before_the_sleep_costs_no_system_call(void **state) {
  (void)state;
  crl_waiter waiter = {0};
  crl_waiter_wake(&waiter);
  crl_waiter_wake(&waiter);
  assert_int_equal(crl_waiter_sleep(&waiter, far()), 1);
  assert_int_equal(crl_waiter_sleep(&waiter, 0), 0);
  crl_waiter_wake(&waiter); /* after a sleep that only looked */
  assert_int_equal(crl_waiter_sleep(&waiter, 0), 1);
  assert_int_equal(wakes, 0);
  assert_int_equal(waits, 0);
}

static void *sleep_once(void *arg) { return crl_waiter_sleep(arg, far()) ? arg : NULL; }

static void a_sleeper_is_woken_by_one_system_call(void **state) {
  (void)state;
  crl_waiter waiter = {0};
  pthread_t thread;
  void *woken;
  assert_int_equal(pthread_create(&thread, NULL, sleep_once, &waiter), 0);
  while (waits == 0) sched_yield();
  crl_waiter_wake(&waiter);
  pthread_join(thread, &woken);
  assert_ptr_equal(woken, &waiter);
  assert_int_equal(wakes, 1);
}

typedef struct pair {
  crl_waiter there, back;
} pair;

static void *answer(void *arg) {
  pair *p = arg;
  for (int i = 0; i < TURNS; i++) {
    if (!crl_waiter_sleep(&p->there, far())) return NULL;
    crl_waiter_wake(&p->back);
  }
  return p;
}

static void no_wake_of_many_is_lost(void **state) {
  (void)state;
  pair p = {0};
  pthread_t thread;
  void *all;
  assert_int_equal(pthread_create(&thread, NULL, answer, &p), 0);
  for (int i = 0; i < TURNS; i++) {
    crl_waiter_wake(&p.there);
    assert_int_equal(crl_waiter_sleep(&p.back, far()), 1);
  }
  pthread_join(thread, &all);
  assert_ptr_equal(all, &p);
}

typedef struct hooked {
  crl_waiter waiter; /* the first member */
  _Atomic int calls, stops;
} hooked;

static void count_call(crl_waiter *waiter) { ((hooked *)(void *)waiter)->calls++; }

static void *wake_on(void *arg) {
  hooked *h = arg;
  while (!h->stops) crl_waiter_wake(&h->waiter);
  return NULL;
}

/* ThreadSanitizer judges. */
static void a_hook_may_be_set_while_others_wake(void **state) {
  (void)state;
  hooked h = {.waiter = {0}};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, wake_on, &h), 0);
  assert_int_equal(crl_waiter_sleep(&h.waiter, far()), 1);
  h.waiter.hook = count_call;
  for (int64_t end = far(); h.calls == 0 && crl_env_now_ms() < end;) sched_yield();
  h.stops = 1;
  pthread_join(thread, NULL);
  assert_true(h.calls > 0);
}

/* ---- bells --------------------------------------------------------------------------------- */

static void a_bell_that_rings_after_it_was_listened_to_is_not_slept_through(void **state) {
  (void)state;
  crl_bell bell = {0};
  uint32_t heard = crl_bell_listen(&bell);
  crl_bell_ring(&bell, 4);
  crl_bell_sleep(&bell, heard, 2, INT64_MAX);
  heard = crl_bell_listen(&bell);
  crl_bell_ring(&bell, CRL_BELL_ALL);
  crl_bell_sleep(&bell, heard, 2, INT64_MAX);
  assert_int_equal(waits, 0);
  assert_int_equal(wakes, 0);
}

static crl_bell the_bell;
static _Atomic uint32_t served; /* bits */
static _Atomic int returned;

static void *sleep_until_served(void *arg) {
  const uint32_t bit = *(uint32_t *)arg;
  for (;;) {
    uint32_t heard = crl_bell_listen(&the_bell);
    if ((served & bit) != 0) break;
    crl_bell_sleep(&the_bell, heard, bit, INT64_MAX);
  }
  returned++;
  return NULL;
}

static void a_bell_wakes_one_by_its_bit_and_the_others_by_one_system_call(void **state) {
  (void)state;
  pthread_t threads[SLEEPERS];
  uint32_t bits[SLEEPERS];
  served = 0;
  returned = 0;
  for (int i = 0; i < SLEEPERS; i++) {
    bits[i] = UINT32_C(1) << i;
    assert_int_equal(pthread_create(&threads[i], NULL, sleep_until_served, &bits[i]), 0);
  }
  while (waits < SLEEPERS) sched_yield();
  served = bits[2];
  crl_bell_ring(&the_bell, bits[2]);
  pthread_join(threads[2], NULL);
  assert_int_equal(returned, 1);
  served = CRL_BELL_ALL;
  crl_bell_ring(&the_bell, CRL_BELL_ALL); /* they count as asleep still */
  for (int i = 0; i < SLEEPERS; i++)
    if (i != 2) pthread_join(threads[i], NULL);
  assert_int_equal(returned, SLEEPERS);
  assert_int_equal(wakes, 2);
  crl_bell_ring(&the_bell, CRL_BELL_ALL);
  assert_int_equal(wakes, 2);
}

/* ---- latches ------------------------------------------------------------------------------- */

static void a_latch_costs_no_system_call_where_nobody_waits(void **state) {
  (void)state;
  crl_latch latch = {0};
  for (int i = 0; i < TURNS; i++) {
    crl_latch_take(&latch);
    crl_latch_give(&latch);
  }
  assert_int_equal(waits, 0);
  assert_int_equal(wakes, 0);
}

typedef struct counted {
  crl_latch latch;
  long count; /* by its holder alone */
} counted;

static void *count_under_latch(void *arg) {
  counted *c = arg;
  for (int i = 0; i < TURNS; i++) {
    crl_latch_take(&c->latch);
    long before = c->count;
    if (i % 1000 == 0) sched_yield();
    c->count = before + 1;
    crl_latch_give(&c->latch);
  }
  return NULL;
}

static void a_latch_has_one_holder_and_each_sleeper_is_woken(void **state) {
  (void)state;
  pthread_t threads[SLEEPERS];
  counted c = {.count = 0};
  crl_latch_take(&c.latch);
  for (int i = 0; i < SLEEPERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count_under_latch, &c), 0);
  for (int64_t end = far(); waits < SLEEPERS && crl_env_now_ms() < end;) sched_yield();
  assert_int_equal(c.count, 0);
  crl_latch_give(&c.latch);
  for (int i = 0; i < SLEEPERS; i++) pthread_join(threads[i], NULL);
  assert_int_equal(c.count, SLEEPERS * TURNS);
}

int main(void) {
#define T(name) cmocka_unit_test_setup(name, begin)
  const struct CMUnitTest tests[] = {
      T(a_wake_before_the_sleep_costs_no_system_call),
      T(a_sleeper_is_woken_by_one_system_call),
      T(no_wake_of_many_is_lost),
      T(a_hook_may_be_set_while_others_wake),
      T(a_bell_that_rings_after_it_was_listened_to_is_not_slept_through),
      T(a_bell_wakes_one_by_its_bit_and_the_others_by_one_system_call),
      T(a_latch_costs_no_system_call_where_nobody_waits),
      T(a_latch_has_one_holder_and_each_sleeper_is_woken),
  };
  return cmocka_run_group_tests_name("wait", tests, NULL, NULL);
}
