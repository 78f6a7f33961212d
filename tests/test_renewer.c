/* test_renewer.c: the lengths that leases are extended to, with a store that follows a script. */
#define crl_renewer_new own_renewer_new
#define crl_renewer_free own_renewer_free
#define crl_renewer_hold own_renewer_hold
#define crl_renewer_move own_renewer_move
#define crl_renewer_keep own_renewer_keep
#define crl_renewer_outlast own_renewer_outlast
#define crl_renewer_drop own_renewer_drop
#define crl_renewer_warn own_renewer_warn
#define crl_heap_put own_heap_put
#define crl_heap_take own_heap_take
#define crl_pool_perform scripted_perform
#include <stdint.h>
static uint64_t steps; /* of the heaps; guarded by the renewer's mutex */
#define CRL_HEAP_STEP() (steps++)
#include "base/heap.c"     /* NOLINT(bugprone-suspicious-include) */
#include "store/renewer.c" /* NOLINT(bugprone-suspicious-include) */

#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>
#include <stdatomic.h>

enum { SHORT_MS = 15, LONG_MS = 3600000, SENT_MOST = 64, PATIENCE_MS = 30000 };

/* The store: its answers, in order (OK behind them), and the lengths that it was asked for. */
static const int *answers;
static int answer_count;
static int64_t lengths[SENT_MOST];
static atomic_int sent, lost;

void scripted_perform(crl_pool *pool, corral_op *ops, size_t count, int64_t deadline) {
  (void)pool;
  assert_true(deadline < INT64_MAX);
  for (size_t i = 0; i < count; i++) {
    int number = atomic_load(&sent);
    ops[i].status = number < answer_count ? answers[number] : CORRAL_OK;
    if (number < SENT_MOST)
      lengths[number] =
          ops[i].verb == CORRAL_VERB_EXTEND ? ops[i].extend.lease_ms : ops[i].lock_extend.hold_ms;
    atomic_fetch_add(&sent, 1);
  }
}

static void on_lost(crl_renewed_lease *lease) {
  (void)lease;
  atomic_fetch_add(&lost, 1);
}

static void on_limit(crl_renewed_lease *lease) {
  (void)lease;
  fail_msg("the limit came");
}

static const uint8_t token[CORRAL_TOKEN] = "token";

static crl_renewed_lease lease_of(int64_t lease_ms, int64_t most_ms) {
  return (crl_renewed_lease){.key = "k",
                             .key_len = 1,
                             .user_key = "k",
                             .user_key_len = 1,
                             .token = token,
                             .lease_ms = lease_ms,
                             .lease_most_ms = most_ms,
                             .limit = INT64_MAX,
                             .on_lost = on_lost,
                             .on_limit = on_limit};
}

typedef struct desk {
  crl_events events;
  crl_threads threads;
  crl_renewer *renewer;
} desk;

static desk the_desk;

static int begin(void **state) {
  *state = &the_desk;
  the_desk = (desk){.threads = {.timers = crl_timers_new(), .workers = crl_workers_new()}};
  the_desk.renewer = crl_renewer_new(NULL, &the_desk.events, &the_desk.threads);
  answer_count = 0;
  atomic_store(&sent, 0);
  atomic_store(&lost, 0);
  return the_desk.renewer == NULL;
}

static int end(void **state) {
  desk *d = *state;
  crl_renewer_free(d->renewer);
  crl_timers_free(d->threads.timers);
  crl_workers_free(d->threads.workers);
  return 0;
}

static void await_sent(int count) {
  int64_t until = crl_env_now_ms() + PATIENCE_MS;
  while (atomic_load(&sent) < count && crl_env_now_ms() < until)
    crl_env_sleep_until(crl_env_now_ms() + 1);
  assert_true(atomic_load(&sent) >= count);
}

static void expect_lengths(const int64_t *expected, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (lengths[i] != expected[i])
      fail_msg("extension %zu: %lld ms instead of %lld", i, (long long)lengths[i],
               (long long)expected[i]);
}

/* Holds the lease until it was extended `count` times. */
static void hold(desk *d, crl_renewed_lease *lease, int count) {
  crl_renewer_hold(d->renewer, lease, crl_env_now_ms());
  await_sent(count);
  crl_renewer_drop(d->renewer, lease);
}

static void each_renewal_doubles_the_length_up_to_the_longest(void **state) {
  crl_renewed_lease lease = lease_of(SHORT_MS, 5 * SHORT_MS);
  hold(*state, &lease, 4);
  expect_lengths((int64_t[]){2 * SHORT_MS, 4 * SHORT_MS, 5 * SHORT_MS, 5 * SHORT_MS}, 4);
}

static void a_renewal_that_failed_is_repeated_with_the_same_length(void **state) {
  static const int replies[] = {CORRAL_EINDOUBT, CORRAL_OK, CORRAL_EUNAVAILABLE, CORRAL_EREFUSED};
  crl_renewed_lease lease = lease_of(SHORT_MS, LONG_MS);
  answers = replies;
  answer_count = 4;
  hold(*state, &lease, 6);
  expect_lengths((int64_t[]){2 * SHORT_MS, 2 * SHORT_MS, 4 * SHORT_MS, 4 * SHORT_MS, 4 * SHORT_MS,
                             8 * SHORT_MS},
                 6);
}

/* Leases of slots and holds of locks have no longest length. */
static void a_lease_without_a_longest_length_keeps_its_own(void **state) {
  for (int is_lock = 0; is_lock < 2; is_lock++) {
    crl_renewed_lease lease = lease_of(SHORT_MS, 0);
    lease.is_lock = is_lock;
    atomic_store(&sent, 0);
    hold(*state, &lease, 3);
    expect_lengths((int64_t[]){SHORT_MS, SHORT_MS, SHORT_MS}, 3);
  }
}

static void a_lease_that_outlasts_its_compute_doubles_beyond_the_longest(void **state) {
  desk *d = *state;
  crl_renewed_lease lease = lease_of(SHORT_MS, SHORT_MS);
  crl_renewer_hold(d->renewer, &lease, crl_env_now_ms());
  crl_renewer_outlast(d->renewer, &lease);
  await_sent(atomic_load(&sent) + 2);
  crl_renewer_drop(d->renewer, &lease);
  int64_t last = SHORT_MS;
  for (int i = 0; i < atomic_load(&sent) && i < SENT_MOST; i++) {
    assert_true(lengths[i] == 2 * last || (lengths[i] == SHORT_MS && last == SHORT_MS));
    last = lengths[i];
  }
  assert_true(last >= 4 * SHORT_MS);
}

static void before_a_third_of_its_first_length_no_lease_is_extended(void **state) {
  desk *d = *state;
  crl_renewed_lease lease = lease_of(LONG_MS, LONG_MS), other = lease_of(SHORT_MS, SHORT_MS);
  crl_renewer_hold(d->renewer, &lease, crl_env_now_ms());
  hold(d, &other, 3);
  crl_renewer_drop(d->renewer, &lease);
  expect_lengths((int64_t[]){SHORT_MS, SHORT_MS, SHORT_MS}, 3);
}

static void a_lease_that_was_lost_is_told_once_and_not_extended_any_more(void **state) {
  static const int replies[] = {CORRAL_OK, CORRAL_ELOST};
  desk *d = *state;
  crl_renewed_lease lease = lease_of(SHORT_MS, LONG_MS), other = lease_of(SHORT_MS, SHORT_MS);
  answers = replies;
  answer_count = 2;
  crl_renewer_hold(d->renewer, &lease, crl_env_now_ms());
  await_sent(2);
  hold(d, &other, 5);
  crl_renewer_drop(d->renewer, &lease);
  assert_int_equal(atomic_load(&lost), 1);
  expect_lengths((int64_t[]){2 * SHORT_MS, 4 * SHORT_MS, SHORT_MS, SHORT_MS, SHORT_MS}, 5);
}

enum { MANY = 5000, OVER = BATCH + 10, RENEWALS = 50, STEPS_EACH = 60 };

static uint64_t steps_so_far(desk *d) {
  lock(d->renewer);
  uint64_t so_far = steps;
  unlock(d->renewer);
  return so_far;
}

/* The first renewal sorts what was held before; those that follow touch only what is near. */
static void a_renewal_takes_few_steps_however_many_leases_are_held(void **state) {
  static crl_renewed_lease many[MANY];
  desk *d = *state;
  crl_renewed_lease lease = lease_of(SHORT_MS, SHORT_MS);
  for (int i = 0; i < MANY; i++) {
    many[i] = lease_of(LONG_MS + i, LONG_MS + i);
    crl_renewer_hold(d->renewer, &many[i], crl_env_now_ms());
  }
  crl_renewer_hold(d->renewer, &lease, crl_env_now_ms());
  await_sent(2);
  int from;
  uint64_t before;
  do { /* both of the same moment */
    from = atomic_load(&sent);
    before = steps_so_far(d);
  } while (atomic_load(&sent) != from);
  await_sent(from + RENEWALS);
  crl_renewer_drop(d->renewer, &lease);
  uint64_t taken = steps_so_far(d) - before, renewals = (uint64_t)(atomic_load(&sent) - from);
  assert_in_range(taken, renewals, (renewals + 2) * STEPS_EACH);
  for (int i = 0; i < MANY; i++) crl_renewer_drop(d->renewer, &many[i]);
}

/* Locks that are over need nothing of the store. Were others to be extended beside them, the end of
 * those that are left would leave the store no time. */
static void locks_that_are_over_come_before_what_is_to_be_extended(void **state) {
  static crl_renewed_lease locks[OVER + 1];
  desk *d = *state;
  crl_renewed_lease lease = lease_of(SHORT_MS, SHORT_MS), *due[BATCH];
  int64_t now = crl_env_now_ms(), soonest;
  lease.next_at = now - LONG_MS;
  lock(d->renewer);
  put_in(d->renewer, &lease);
  for (int i = 0; i <= OVER; i++) {
    locks[i] = lease_of(LONG_MS, 0);
    locks[i].is_lock = 1;
    locks[i].next_at = now + LONG_MS;
    locks[i].limit = i < OVER ? now - i : now + LONG_MS;
    put_in(d->renewer, &locks[i]);
  }
  assert_int_equal(collect(d->renewer, due, now, &soonest), BATCH);
  for (int i = 0; i < BATCH; i++) assert_true(due[i]->is_lock);
  assert_int_equal(collect(d->renewer, due, now, &soonest), OVER - BATCH + 1);
  assert_ptr_equal(due[OVER - BATCH], &lease);
  assert_true(soonest == now + LONG_MS);
  for (int i = 0; i <= OVER; i++) take_out(d->renewer, &locks[i]);
  take_out(d->renewer, &lease);
  unlock(d->renewer);
}

#define T(test) cmocka_unit_test_setup_teardown(test, begin, end)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(each_renewal_doubles_the_length_up_to_the_longest),
      T(a_renewal_that_failed_is_repeated_with_the_same_length),
      T(a_lease_without_a_longest_length_keeps_its_own),
      T(a_lease_that_outlasts_its_compute_doubles_beyond_the_longest),
      T(before_a_third_of_its_first_length_no_lease_is_extended),
      T(a_lease_that_was_lost_is_told_once_and_not_extended_any_more),
      T(a_renewal_takes_few_steps_however_many_leases_are_held),
      T(locks_that_are_over_come_before_what_is_to_be_extended),
  };
  return cmocka_run_group_tests_name("renewer", tests, NULL, NULL);
}
