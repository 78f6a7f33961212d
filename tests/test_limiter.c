/* test_limiter.c: a limited number inside at once, by rank, then in order of arrival. Threads
 * synchronize by counts, not by times. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "os/env.h"
#include "election/limiter.h"
#include "base/value.h"

enum { FAR = 60000, CROWD = 12, ROUNDS = 300, HANDED = 300 };

static int64_t later(int64_t ms) { return crl_env_now_ms() + ms; }

/* Waits for a place until then; a past moment means one try. */
static int enter(crl_limiter *limiter, crl_place *place, crl_rank rank, int64_t until) {
  crl_waiter waiter = {0};
  *place = (crl_place){0};
  if (crl_limiter_ask(limiter, place, rank, CRL_PLACE_COMPUTE, &waiter)) return 1;
  if (until > 0) crl_waiter_sleep(&waiter, until);
  int entered = crl_limiter_has(place);
  if (entered)
    (void)crl_limiter_inside(limiter); /* behind the mutex under which the waiter was woken */
  else
    crl_limiter_leave(limiter, place);
  return entered;
}

/* The places of the main thread, given back in any order. */
static crl_place own[4];
static size_t own_count;

static int enter_here(crl_limiter *limiter, crl_rank rank, int64_t until) {
  int entered = enter(limiter, &own[own_count], rank, until);
  own_count += (size_t)entered;
  return entered;
}

static void leave_here(crl_limiter *limiter) { crl_limiter_leave(limiter, &own[--own_count]); }

/* ---- actors -------------------------------------------------------------------------------- */

static char order[64]; /* names of the actors in the order of entry, guarded by order_mutex */
static pthread_mutex_t order_mutex = PTHREAD_MUTEX_INITIALIZER;

typedef struct actor {
  pthread_t thread;
  crl_limiter *limiter;
  crl_rank rank;
  int64_t until;
  char name;
  int entered;
} actor;

/* Enters, appends its name to `order`, and leaves; the next actor can enter only then. */
static void *pass(void *arg) {
  actor *a = arg;
  crl_place place;
  a->entered = enter(a->limiter, &place, a->rank, a->until);
  if (!a->entered) return NULL;
  pthread_mutex_lock(&order_mutex);
  size_t at = strlen(order);
  order[at] = a->name;
  order[at + 1] = '\0';
  pthread_mutex_unlock(&order_mutex);
  crl_limiter_leave(a->limiter, &place);
  return NULL;
}

static void until_waiting(crl_limiter *limiter, crl_rank rank, size_t count) {
  int64_t limit = later(FAR);
  while (crl_limiter_waiting(limiter, rank) != count) {
    assert_true(crl_env_now_ms() < limit);
    sched_yield();
  }
}

/* Starts an actor and returns once it waits. */
static void come(actor *a, crl_limiter *limiter, char name, crl_rank rank, int64_t until) {
  size_t before = crl_limiter_waiting(limiter, rank);
  *a = (actor){.limiter = limiter, .rank = rank, .until = until, .name = name};
  assert_int_equal(pthread_create(&a->thread, NULL, pass, a), 0);
  until_waiting(limiter, rank, before + 1);
}

static crl_limiter *limiter_of(int64_t most, int64_t inside) {
  crl_limiter *limiter = crl_limiter_new(most, 0, 0);
  assert_non_null(limiter);
  order[0] = '\0';
  for (int64_t i = 0; i < inside; i++) assert_true(enter_here(limiter, CRL_RANK_COLD, 0));
  return limiter;
}

static void limiter_end(crl_limiter *limiter) {
  assert_int_equal(crl_limiter_inside(limiter), 0);
  for (crl_rank rank = CRL_RANK_COLD; rank < CRL_RANKS; rank++)
    assert_int_equal(crl_limiter_waiting(limiter, rank), 0);
  crl_limiter_free(limiter);
}

/* ---- tries without waiting ----------------------------------------------------------------- */

static void so_many_enter_and_the_next_one_does_not(void **state) {
  (void)state;
  crl_limiter *limiter = limiter_of(2, 0);
  assert_true(enter_here(limiter, CRL_RANK_WARM, 0));
  assert_true(enter_here(limiter, CRL_RANK_COLD, later(FAR)));
  assert_int_equal(crl_limiter_inside(limiter), 2);
  assert_false(enter_here(limiter, CRL_RANK_COLD, 0));
  assert_false(enter_here(limiter, CRL_RANK_COLD, crl_env_now_ms()));
  leave_here(limiter);
  assert_true(enter_here(limiter, CRL_RANK_EARLY, 0));
  leave_here(limiter);
  leave_here(limiter);
  limiter_end(limiter);
}

static void a_try_does_not_queue_whoever_waits(void **state) {
  (void)state;
  actor waits;
  crl_limiter *limiter = limiter_of(1, 1);
  come(&waits, limiter, 'a', CRL_RANK_EARLY, later(FAR));
  for (crl_rank rank = CRL_RANK_COLD; rank < CRL_RANKS; rank++)
    assert_false(enter_here(limiter, rank, 0));
  assert_int_equal(crl_limiter_waiting(limiter, CRL_RANK_EARLY), 1);
  leave_here(limiter);
  pthread_join(waits.thread, NULL);
  assert_true(waits.entered);
  limiter_end(limiter);
}

/* ---- the order ----------------------------------------------------------------------------- */

static void those_of_one_rank_go_in_as_they_came(void **state) {
  (void)state;
  actor a[5];
  crl_limiter *limiter = limiter_of(1, 1);
  for (int i = 0; i < 5; i++) come(&a[i], limiter, (char)('a' + i), CRL_RANK_EXPIRED, later(FAR));
  assert_int_equal(crl_limiter_waiting(limiter, CRL_RANK_EXPIRED), 5);
  assert_int_equal(crl_limiter_waiting(limiter, CRL_RANK_COLD), 0);
  leave_here(limiter);
  for (int i = 0; i < 5; i++) pthread_join(a[i].thread, NULL);
  assert_string_equal(order, "abcde");
  limiter_end(limiter);
}

static void a_higher_rank_goes_first_whenever_it_came(void **state) {
  (void)state;
  static const crl_rank ranks[] = {CRL_RANK_WARM,    CRL_RANK_EARLY, CRL_RANK_COLD,
                                   CRL_RANK_EXPIRED, CRL_RANK_COLD,  CRL_RANK_EARLY};
  actor a[6];
  crl_limiter *limiter = limiter_of(1, 1);
  for (int i = 0; i < 6; i++) come(&a[i], limiter, (char)('a' + i), ranks[i], later(FAR));
  leave_here(limiter);
  for (int i = 0; i < 6; i++) pthread_join(a[i].thread, NULL);
  assert_string_equal(order, "cedbfa");
  limiter_end(limiter);
}

static void each_who_leaves_lets_one_in(void **state) {
  (void)state;
  actor a[3];
  crl_limiter *limiter = limiter_of(3, 3);
  for (int i = 0; i < 3; i++) come(&a[i], limiter, 'x', CRL_RANK_COLD, later(FAR));
  leave_here(limiter);
  for (int i = 0; i < 3; i++) pthread_join(a[i].thread, NULL); /* each one lets the next one in */
  assert_string_equal(order, "xxx");
  assert_int_equal(crl_limiter_inside(limiter), 2);
  leave_here(limiter);
  leave_here(limiter);
  limiter_end(limiter);
}

static void under_a_queue_that_stands_a_ramp_lets_the_newest_in_first(void **state) {
  (void)state;
  actor a[4];
  crl_limiter *limiter = crl_limiter_new(1, 0, 1);
  assert_non_null(limiter);
  order[0] = '\0';
  assert_true(enter_here(limiter, CRL_RANK_COLD, 0));
  for (int i = 0; i < 3; i++) come(&a[i], limiter, (char)('a' + i), CRL_RANK_EXPIRED, later(FAR));
  come(&a[3], limiter, 'd', CRL_RANK_COLD, later(FAR));
  for (int64_t until = later(150); crl_env_now_ms() < until;) crl_env_sleep_until(until);
  leave_here(limiter);
  for (int i = 0; i < 4; i++) pthread_join(a[i].thread, NULL);
  assert_string_equal(order, "dcba");
  limiter_end(limiter);
}

/* ---- deadlines of waiters ------------------------------------------------------------------ */

static _Atomic int hurried_left;

/* Enters behind the hurried actor, unless that has left. */
static void *pass_behind(void *arg) {
  actor *a = arg;
  while (!atomic_load(&hurried_left) && crl_limiter_waiting(a->limiter, a->rank) != 2)
    sched_yield();
  return pass(a);
}

static void who_runs_out_of_time_leaves_the_queue_to_the_others(void **state) {
  (void)state;
  actor first, last;
  crl_limiter *limiter = limiter_of(1, 1);
  atomic_store(&hurried_left, 0);
  come(&first, limiter, 'a', CRL_RANK_COLD, later(FAR));
  last = (actor){.limiter = limiter, .rank = CRL_RANK_COLD, .until = later(FAR), .name = 'c'};
  assert_int_equal(pthread_create(&last.thread, NULL, pass_behind, &last), 0);
  int64_t until = later(30);
  assert_false(enter_here(limiter, CRL_RANK_COLD, until));
  assert_true(crl_env_now_ms() >= until);
  atomic_store(&hurried_left, 1);
  until_waiting(limiter, CRL_RANK_COLD, 2);
  leave_here(limiter);
  pthread_join(first.thread, NULL);
  pthread_join(last.thread, NULL);
  assert_string_equal(order, "ac");
  limiter_end(limiter);
}

static void a_queue_that_its_only_one_left_takes_the_next(void **state) {
  (void)state;
  actor next;
  crl_limiter *limiter = limiter_of(1, 1);
  assert_false(enter_here(limiter, CRL_RANK_WARM, later(3)));
  come(&next, limiter, 'n', CRL_RANK_WARM, later(FAR));
  leave_here(limiter);
  pthread_join(next.thread, NULL);
  assert_string_equal(order, "n");
  limiter_end(limiter);
}

/* ---- needs --------------------------------------------------------------------------------- */

static void who_needs_a_thread_keeps_nobody_back_who_needs_none(void **state) {
  (void)state;
  crl_waiter waiter[4] = {{0}};
  crl_place place[4] = {{0}};
  crl_limiter *limiter = crl_limiter_new(3, 1, 0);
  unsigned both = CRL_PLACE_COMPUTE | CRL_PLACE_THREAD;
  assert_true(crl_limiter_ask(limiter, &place[0], CRL_RANK_COLD, both, &waiter[0]));
  assert_false(crl_limiter_ask(limiter, &place[1], CRL_RANK_COLD, both, &waiter[1]));
  assert_true(crl_limiter_ask(limiter, &place[2], CRL_RANK_WARM, CRL_PLACE_COMPUTE, &waiter[2]));
  assert_false(crl_limiter_ask(limiter, &place[3], CRL_RANK_COLD, CRL_PLACE_THREAD, &waiter[3]));
  crl_limiter_leave(limiter, &place[0]);
  assert_true(crl_limiter_has(&place[1]));
  assert_true(crl_waiter_sleep(&waiter[1], 0));
  assert_false(crl_limiter_has(&place[3]));
  crl_limiter_leave(limiter, &place[1]);
  assert_true(crl_limiter_has(&place[3]));
  assert_int_equal(crl_limiter_inside(limiter), 1);
  crl_limiter_leave(limiter, &place[2]);
  crl_limiter_leave(limiter, &place[3]);
  crl_limiter_free(limiter);
}

static void a_borrowed_place_is_not_counted_and_who_waits_may_borrow(void **state) {
  (void)state;
  crl_waiter waiter = {0};
  crl_place waits = {0}, nested = {0};
  crl_limiter *limiter = limiter_of(1, 1);
  crl_limiter_borrow(limiter, &nested);
  assert_true(crl_limiter_has(&nested));
  assert_false(crl_limiter_ask(limiter, &waits, CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter));
  crl_limiter_borrow(limiter, &waits);
  assert_true(crl_limiter_has(&waits));
  assert_false(crl_limiter_withdraw(limiter, &waits));
  crl_limiter_leave(limiter, &waits);
  crl_limiter_leave(limiter, &nested);
  assert_int_equal(crl_limiter_inside(limiter), 1);
  assert_false(crl_limiter_ask(limiter, &waits, CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter));
  assert_true(crl_limiter_withdraw(limiter, &waits));
  leave_here(limiter);
  assert_false(crl_limiter_has(&waits));
  limiter_end(limiter);
}

static void who_needs_less_than_before_keeps_its_turn(void **state) {
  (void)state;
  crl_waiter waiter[4] = {{0}};
  crl_place place[4] = {{0}};
  crl_limiter *limiter = crl_limiter_new(1, 1, 0);
  unsigned both = CRL_PLACE_COMPUTE | CRL_PLACE_THREAD, less = CRL_PLACE_COMPUTE;
  assert_true(crl_limiter_ask(limiter, &place[0], CRL_RANK_COLD, both, &waiter[0]));
  assert_false(crl_limiter_ask(limiter, &place[1], CRL_RANK_COLD, less, &waiter[1]));
  assert_false(crl_limiter_ask(limiter, &place[2], CRL_RANK_COLD, both, &waiter[2]));
  assert_false(crl_limiter_ask(limiter, &place[3], CRL_RANK_COLD, less, &waiter[3]));
  crl_limiter_change(limiter, &place[2], less);
  assert_int_equal(crl_limiter_waiting(limiter, CRL_RANK_COLD), 3);
  for (int i = 0; i < 4; i++) {
    for (int k = 0; k < 4; k++) assert_int_equal(crl_limiter_has(&place[k]), k == i);
    crl_limiter_leave(limiter, &place[i]);
  }
  limiter_end(limiter);
}

static void who_needs_no_thread_any_more_has_its_place_at_once(void **state) {
  (void)state;
  crl_waiter waiter[2] = {{0}};
  crl_place thread = {0}, place = {0};
  crl_limiter *limiter = crl_limiter_new(1, 1, 0);
  unsigned both = CRL_PLACE_COMPUTE | CRL_PLACE_THREAD;
  assert_true(crl_limiter_ask(limiter, &thread, CRL_RANK_COLD, CRL_PLACE_THREAD, &waiter[0]));
  assert_false(crl_limiter_ask(limiter, &place, CRL_RANK_COLD, both, &waiter[1]));
  crl_limiter_change(limiter, &place, CRL_PLACE_COMPUTE);
  assert_true(crl_limiter_has(&place));
  assert_true(crl_waiter_sleep(&waiter[1], 0));
  crl_limiter_change(limiter, &place, both); /* too late */
  crl_limiter_leave(limiter, &place);
  crl_limiter_leave(limiter, &thread);
  limiter_end(limiter);
}

/* ---- a crowd, for the thread sanitizer ----------------------------------------------------- */

static _Atomic int inside_now, most_inside, entries, patient_refused;

static void *come_and_go(void *arg) {
  actor *a = arg;
  for (int i = 0; i < ROUNDS; i++) {
    /* alternately: one try, 1 ms, a long wait */
    int64_t until = i % 3 == 0 ? 0 : i % 3 == 1 ? later(1) : later(FAR);
    crl_place place;
    if (!enter(a->limiter, &place, (crl_rank)((a->name + i) % CRL_RANKS), until)) {
      if (i % 3 == 2) atomic_fetch_add(&patient_refused, 1);
      continue;
    }
    int now = atomic_fetch_add(&inside_now, 1) + 1;
    for (int most = atomic_load(&most_inside);
         now > most && !atomic_compare_exchange_weak(&most_inside, &most, now);)
      continue;
    atomic_fetch_add(&entries, 1);
    sched_yield();
    atomic_fetch_sub(&inside_now, 1);
    crl_limiter_leave(a->limiter, &place);
  }
  return NULL;
}

static void a_crowd_never_exceeds_the_limit_and_leaves_nothing_behind(void **state) {
  (void)state;
  actor a[CROWD];
  crl_limiter *limiter = limiter_of(3, 0);
  inside_now = most_inside = entries = patient_refused = 0;
  for (int i = 0; i < CROWD; i++) {
    a[i] = (actor){.limiter = limiter, .name = (char)i};
    assert_int_equal(pthread_create(&a[i].thread, NULL, come_and_go, &a[i]), 0);
  }
  for (int i = 0; i < CROWD; i++) pthread_join(a[i].thread, NULL);
  assert_in_range(most_inside, 1, 3);
  assert_int_equal(patient_refused, 0);
  assert_true(entries >= CROWD * ROUNDS / 3);
  limiter_end(limiter);
}

/* Gives a place back whenever it is told to. */
typedef struct giver {
  crl_limiter *limiter;
  crl_place place;
  _Atomic int told, given;
} giver;

static void *give_back(void *arg) {
  giver *g = arg;
  for (int i = 1; i <= HANDED; i++) {
    while (atomic_load(&g->told) < i) sched_yield();
    crl_limiter_leave(g->limiter, &g->place);
    atomic_store(&g->given, i);
  }
  return NULL;
}

/* An owner that saw such a place would ask for it again, and it would be counted twice. */
static void a_place_that_is_handed_over_is_never_seen_as_not_asked_for(void **state) {
  (void)state;
  giver g = {.limiter = crl_limiter_new(1, 0, 0)};
  crl_waiter waiter = {0};
  pthread_t thread;
  int bare = 0;
  assert_int_equal(pthread_create(&thread, NULL, give_back, &g), 0);
  for (int i = 1; i <= HANDED; i++) {
    crl_place place = {0};
    assert_true(crl_limiter_ask(g.limiter, &g.place, CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter));
    assert_false(crl_limiter_ask(g.limiter, &place, CRL_RANK_COLD, CRL_PLACE_COMPUTE, &waiter));
    atomic_store(&g.told, i);
    while (!crl_limiter_has(&place)) bare += atomic_load(&place.state) == CRL_PLACE_NONE;
    while (atomic_load(&g.given) < i) sched_yield();
    crl_limiter_leave(g.limiter, &place);
  }
  pthread_join(thread, NULL);
  assert_int_equal(bare, 0);
  limiter_end(g.limiter);
}

static void a_limit_that_is_lowered_or_raised_counts_from_then_on(void **state) {
  (void)state;
  actor waits[3];
  crl_limiter *limiter = limiter_of(0, 3);
  assert_false(crl_limiter_limits(limiter, CRL_PLACE_COMPUTE));
  crl_limiter_cap(limiter, 2);
  assert_true(crl_limiter_limits(limiter, CRL_PLACE_COMPUTE));
  assert_int_equal(crl_limiter_inside(limiter), 3); /* those that are inside stay */
  for (int i = 0; i < 3; i++) come(&waits[i], limiter, (char)('a' + i), CRL_RANK_COLD, later(FAR));
  leave_here(limiter);
  assert_int_equal(crl_limiter_waiting(limiter, CRL_RANK_COLD), 3); /* two are inside yet */
  leave_here(limiter);
  for (int i = 0; i < 3; i++) pthread_join(waits[i].thread, NULL); /* one after the other */
  assert_string_equal(order, "abc");
  assert_true(enter_here(limiter, CRL_RANK_COLD, 0));
  come(&waits[0], limiter, 'd', CRL_RANK_COLD, later(FAR));
  crl_limiter_cap(limiter, 0); /* as it was made */
  pthread_join(waits[0].thread, NULL);
  assert_false(crl_limiter_limits(limiter, CRL_PLACE_COMPUTE));
  leave_here(limiter);
  leave_here(limiter);
  limiter_end(limiter);
}

static void without_memory_there_is_no_limiter_and_with_one_none_is_needed(void **state) {
  (void)state;
  actor waits;
  crl_alloc_countdown = 0;
  assert_null(crl_limiter_new(1, 0, 0));
  crl_limiter *limiter = limiter_of(1, 1);
  crl_alloc_countdown = 0;
  come(&waits, limiter, 'a', CRL_RANK_COLD, later(FAR));
  leave_here(limiter);
  pthread_join(waits.thread, NULL);
  assert_int_equal(crl_alloc_countdown, 0);
  crl_alloc_countdown = -1;
  assert_true(waits.entered);
  limiter_end(limiter);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(so_many_enter_and_the_next_one_does_not),
      cmocka_unit_test(a_try_does_not_queue_whoever_waits),
      cmocka_unit_test(those_of_one_rank_go_in_as_they_came),
      cmocka_unit_test(a_higher_rank_goes_first_whenever_it_came),
      cmocka_unit_test(each_who_leaves_lets_one_in),
      cmocka_unit_test(under_a_queue_that_stands_a_ramp_lets_the_newest_in_first),
      cmocka_unit_test(who_runs_out_of_time_leaves_the_queue_to_the_others),
      cmocka_unit_test(a_queue_that_its_only_one_left_takes_the_next),
      cmocka_unit_test(who_needs_a_thread_keeps_nobody_back_who_needs_none),
      cmocka_unit_test(who_needs_less_than_before_keeps_its_turn),
      cmocka_unit_test(who_needs_no_thread_any_more_has_its_place_at_once),
      cmocka_unit_test(a_borrowed_place_is_not_counted_and_who_waits_may_borrow),
      cmocka_unit_test(a_crowd_never_exceeds_the_limit_and_leaves_nothing_behind),
      cmocka_unit_test(a_place_that_is_handed_over_is_never_seen_as_not_asked_for),
      cmocka_unit_test(a_limit_that_is_lowered_or_raised_counts_from_then_on),
      cmocka_unit_test(without_memory_there_is_no_limiter_and_with_one_none_is_needed),
  };
  return cmocka_run_group_tests_name("limiter", tests, NULL, NULL);
}
