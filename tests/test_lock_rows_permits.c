/* test_lock_rows_permits.c: the flaws of the usual semaphores on Redis, row by row (docs/locks.md
 * has the table), against a real Redis and corral's own API: rows P, permits. */
#include "os/wait.h"
#include "store/pool.h"
#include "support/lock_rows_kit.h"

#include <sys/mman.h>

enum { PERMITS = 3, PATIENT_MS = 60000, SHORT_NAP_MS = 500, LONG_NAP_MS = 40000 };

/* This permit is released between the next LOCK and the LOCK_SHOW that goes with it. */
static corral_lock *_Atomic released_between;
/* A waiter that the store tells of a change sleeps until it is woken. */
static atomic_int naps_last;

void __real_crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline);
void __wrap_crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline);
void __wrap_crl_pool_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  int both = count == 2 && ops[0].verb == CORRAL_VERB_LOCK && ops[1].verb == CORRAL_VERB_LOCK_SHOW;
  corral_lock *lock = both ? atomic_exchange(&released_between, NULL) : NULL;
  if (lock == NULL) {
    __real_crl_pool_perform(pool, ops, count, deadline);
    return;
  }
  __real_crl_pool_perform(pool, ops, 1, deadline);
  (void)corral_lock_release(lock, NULL);
  __real_crl_pool_perform(pool, ops + 1, 1, deadline);
}

int __real_crl_waiter_sleep(crl_waiter *sleeper, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *sleeper, int64_t until);
int __wrap_crl_waiter_sleep(crl_waiter *sleeper, int64_t until) {
  int64_t now = crl_env_now_ms();
  if (atomic_load(&naps_last) && until > now + SHORT_NAP_MS) until = now + LONG_NAP_MS;
  return __real_crl_waiter_sleep(sleeper, until);
}

static void p1_the_permit_of_a_holder_that_was_killed_is_free_by_its_ttl(void **state) {
  (void)state;
  pid_t dead = hold_elsewhere(*CORRAL_LOCK(.permits = 2, .ttl_ms = 6000, .keep = 1));
  corral_lock *other = take(b, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = PATIENT_MS));
  assert_int_equal(try(a, "n", CORRAL_LOCK(.permits = 2)), CORRAL_EBUSY);
  kill_it(dead);
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.permits = 2, .wait_ms = PATIENT_MS));
  assert_true(corral_lock_fence(lock) > corral_lock_fence(other));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_OK);
}

/* ---- a crowd ------------------------------------------------------------------------------- */

enum { PROCESSES = 6, TURNS = 40 };

/* In memory that all processes share. */
typedef struct board {
  atomic_int inside, most, ready;
} board;

static int take_turn(board *all, corral *c) {
  corral_lock *lock;
  if (corral_lock_take(c, "n", 1,
                       CORRAL_LOCK(.permits = PERMITS, .ttl_ms = PATIENT_MS, .wait_ms = PATIENT_MS),
                       &lock, NULL) != CORRAL_OK)
    return 0;
  int now = atomic_fetch_add(&all->inside, 1) + 1, most = atomic_load(&all->most);
  while (now > most && !atomic_compare_exchange_weak(&all->most, &most, now)) continue;
  crl_env_pause_us(500);
  atomic_fetch_sub(&all->inside, 1);
  return corral_lock_release(lock, NULL) == CORRAL_OK;
}

static int take_turns(board *all) {
  int turns = 0;
  corral *c = open_one(NULL);
  atomic_fetch_add(&all->ready, 1);
  while (atomic_load(&all->ready) < PROCESSES) crl_env_pause_us(1000);
  while (turns < TURNS && take_turn(all, c)) turns++;
  corral_close(c);
  return turns;
}

static void p2_of_many_processes_never_more_than_so_many_hold_permits(void **state) {
  (void)state;
  pid_t pids[PROCESSES];
  board *all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  assert_true(all != MAP_FAILED);
  for (int i = 0; i < PROCESSES; i++) {
    if ((pids[i] = fork_at_rest()) != 0) continue;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(take_turns(all));
  }
  for (int i = 0; i < PROCESSES; i++) {
    int end;
    assert_int_equal(waitpid(pids[i], &end, 0), pids[i]);
    assert_true(WIFEXITED(end) && WEXITSTATUS(end) == TURNS);
  }
  assert_in_range(all->most, 1, PERMITS);
  munmap(all, sizeof *all);
}

static void p3_a_release_of_a_permit_that_is_over_makes_no_further_one(void **state) {
  (void)state;
  corral_lock *over = take(a, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 50)),
              *stays = take(b, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = PATIENT_MS)),
              *next = take(b, "n",
                           CORRAL_LOCK(.permits = 2, .ttl_ms = PATIENT_MS, .owner = "next",
                                       .wait_ms = PATIENT_MS));
  assert_int_equal(corral_lock_release(over, &error), CORRAL_ELOST);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.permits = 2)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(stays, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(next, &error), CORRAL_OK);
}

/* ---- all of them --------------------------------------------------------------------------- */

static atomic_int stop_working;

static void *work_on_and_on(void *arg) {
  while (!atomic_load(&stop_working)) {
    corral_lock *lock;
    if (corral_lock_take(arg, "n", 1, CORRAL_LOCK(.permits = PERMITS, .wait_ms = PATIENT_MS), &lock,
                         NULL) != CORRAL_OK)
      continue;
    crl_env_pause_us(30000);
    corral_lock_release(lock, NULL);
  }
  return NULL;
}

/* Six workers with overlapping permits of 30 ms. */
static void p4_who_waits_to_be_alone_is_not_starved_by_permits(void **state) {
  (void)state;
  enum { WORKERS = 6 };
  pthread_t workers[WORKERS];
  corral *c[WORKERS];
  atomic_store(&stop_working, 0);
  for (int i = 0; i < WORKERS; i++) {
    c[i] = open_one(NULL);
    if (pthread_create(&workers[i], NULL, work_on_and_on, c[i]) != 0) abort();
  }
  for (int i = 0; i < WORKERS; i++) until(c[i], CORRAL_EVENT_LOCKED, 1);
  for (int i = 0; i < 5; i++) {
    corral_lock *alone = take(a, "n", CORRAL_LOCK(.wait_ms = PATIENT_MS));
    assert_int_equal(corral_lock_release(alone, &error), CORRAL_OK);
  }
  atomic_store(&stop_working, 1);
  for (int i = 0; i < WORKERS; i++) {
    pthread_join(workers[i], NULL);
    corral_close(c[i]);
  }
}

/* The look that registers the key shows one holder of two, and nothing will change any more. */
static void a_permit_that_is_given_back_while_a_waiter_registers_is_not_missed(void **state) {
  (void)state;
  corral_lock *one = take(b, "n", CORRAL_LOCK(.permits = 2, .ttl_ms = 10 * PATIENT_MS)),
              *two = take(b, "n",
                          CORRAL_LOCK(.permits = 2, .ttl_ms = 10 * PATIENT_MS, .owner = "two"));
  atomic_store(&released_between, one);
  atomic_store(&naps_last, 1);
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.permits = 2, .wait_ms = LONG_NAP_MS - 5000));
  atomic_store(&naps_last, 0);
  assert_null(atomic_load(&released_between));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(two, &error), CORRAL_OK);
}

static void a_store_without_permits_says_so_and_is_not_asked(void **state) {
  (void)state;
  corral *c;
  corral_lock *none = NULL;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = "redlock://127.0.0.1:1,127.0.0.1:2"), &c, &error),
      CORRAL_OK);
  assert_int_equal(corral_lock_take(c, "n", 1, CORRAL_LOCK(.permits = 2), &none, &error),
                   CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "no permits"));
  assert_int_equal(corral_counter(c, CORRAL_EVENT_LOCK_ASKED), 0);
  corral_close(c);
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(p1_the_permit_of_a_holder_that_was_killed_is_free_by_its_ttl),
      T(p2_of_many_processes_never_more_than_so_many_hold_permits),
      T(p3_a_release_of_a_permit_that_is_over_makes_no_further_one),
      T(p4_who_waits_to_be_alone_is_not_starved_by_permits),
      T(a_permit_that_is_given_back_while_a_waiter_registers_is_not_missed),
      T(a_store_without_permits_says_so_and_is_not_asked),
  };
  return cmocka_run_group_tests(tests, start_server, stop_server);
}
