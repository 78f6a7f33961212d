/* test_callbacks.c: functions of the library called from the user's callbacks. No thread of the
 * library may wait for a callback. A hang ends the program by SIGALRM. */
#include <pthread.h>
#include <unistd.h>

#include "support/lock_kit.h"

/* TTL_MS: of a hold that is to be lost. KEPT_MS: of one that is not, on a busy machine. */
enum { WATCHDOG_S = 60, TTL_MS = 100, KEPT_MS = 5000, CROWD = 16 };

static char uri[64];

/* Opens a corral on the test's store with this event callback. */
static corral *open_with(corral_event_fn *hook, void *arg) {
  corral *c = NULL;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .on_event = hook, .event_arg = arg), &c, &error) !=
      CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int setup(void **state) {
  (void)state;
  static int number;
  alarm(WATCHDOG_S);
  snprintf(uri, sizeof uri, "memory:callbacks%d", number++);
  a = open_with(on_event, &a_lost);
  b = open_with(NULL, NULL);
  return 0;
}

static void await(atomic_int *counter, int least) {
  while (atomic_load(counter) < least) crl_env_pause_us(200);
}

static int give_answer(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  (void)arg;
  return corral_fill_bytes(fill, "answer", 6);
}

static int ask(corral *c, const char *key, corral_error *detail) {
  corral_value *value = NULL;
  int status = corral_get_or_compute(c, key, strlen(key), CORRAL_CALL(.error = detail), give_answer,
                                     NULL, &value);
  corral_value_unref(value);
  return status;
}

/* ---- on_lost ------------------------------------------------------------------------------- */

/* The results of a callback's calls. */
typedef struct story {
  corral_lock *other;
  corral *corral;
  atomic_int told, statuses[8], gate;
  char text[sizeof error.text];
} story;

static void release_the_other(corral_lock *lock, const char *why, void *arg) {
  story *s = arg;
  (void)lock;
  (void)why;
  if (atomic_fetch_add(&s->told, 1) == 0)
    atomic_store(&s->statuses[0], corral_lock_release(s->other, NULL));
}

static void count(corral_lock *lock, const char *why, void *arg) {
  (void)lock;
  (void)why;
  atomic_fetch_add((atomic_int *)arg, 1);
}

static void on_lost_may_release_another_lock_that_is_kept(void **state) {
  (void)state;
  story s = {0};
  s.other = take(a, "other", CORRAL_LOCK(.ttl_ms = KEPT_MS, .keep = 1));
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = release_the_other, .lost_arg = &s));
  await(&s.told, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(s.statuses[0], CORRAL_OK);
  assert_int_equal(try(b, "other", CORRAL_LOCK(0)), CORRAL_OK);
}

typedef struct crowd {
  corral_lock *locks[CROWD];
  atomic_int ready, told, lost, in_time, last; /* last: 1 + index of the lock that isn't released */
} crowd;

/* The first callback releases all other locks, whose losses have not been reported yet. */
static void release_the_others(corral_lock *lock, const char *why, void *arg) {
  crowd *s = arg;
  (void)why;
  if (atomic_fetch_add(&s->told, 1) > 0) return;
  await(&s->ready, 1);
  for (int i = 0; i < CROWD; i++) {
    if (s->locks[i] == lock)
      atomic_store(&s->last, i + 1);
    else
      atomic_fetch_add(corral_lock_release(s->locks[i], NULL) == CORRAL_OK ? &s->in_time : &s->lost,
                       1);
  }
}

static void
on_lost_may_release_all_that_are_lost_at_the_same_time_and_each_loss_is_told_once(void **state) {
  (void)state;
  crowd s = {0};
  for (int i = 0; i < CROWD; i++)
    s.locks[i] = take(a, (char[]){(char)('a' + i), 0},
                      CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = release_the_others, .lost_arg = &s));
  atomic_store(&s.ready, 1);
  await(&s.last, 1);
  while (s.in_time + s.lost < CROWD - 1) crl_env_pause_us(200);
  assert_int_equal(corral_lock_release(s.locks[s.last - 1], &error), CORRAL_ELOST);
  assert_int_equal(s.told, s.lost + 1);
}

static void do_everything(corral_lock *lock, const char *why, void *arg) {
  story *s = arg;
  corral_lock *taken = NULL;
  (void)lock;
  (void)why;
  uint64_t extended = corral_counter(s->corral, CORRAL_EVENT_LOCK_EXTENDED);
  s->statuses[0] = ask(s->corral, "key", NULL);
  s->statuses[1] = corral_invalidate(s->corral, "key", 3, NULL);
  s->statuses[2] = corral_lock_take(s->corral, "third", 5,
                                    CORRAL_LOCK(.ttl_ms = KEPT_MS, .keep = 1), &taken, NULL);
  /* Its own lock and the other one must be extended meanwhile. */
  until(s->corral, CORRAL_EVENT_LOCK_EXTENDED, extended + 8);
  s->statuses[3] = corral_lock_extend(s->other, 0, NULL);
  s->statuses[4] = corral_lock_release(taken, NULL);
  atomic_fetch_add(&s->told, 1);
}

static void on_lost_may_ask_take_and_wait_while_other_locks_are_kept(void **state) {
  (void)state;
  story s = {.corral = a};
  s.other = take(a, "other", CORRAL_LOCK(.ttl_ms = KEPT_MS, .keep = 1));
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = do_everything, .lost_arg = &s));
  await(&s.told, 1);
  for (int i = 0; i < 5; i++) assert_int_equal(s.statuses[i], CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(corral_lock_release(s.other, &error), CORRAL_OK);
}

static void release_itself(corral_lock *lock, const char *why, void *arg) {
  story *s = arg;
  corral_error detail = {0};
  (void)why;
  s->statuses[0] = corral_lock_release(lock, &detail);
  snprintf(s->text, sizeof s->text, "%s", detail.text);
  corral_close(s->corral);
  atomic_fetch_add(&s->told, 1);
}

static void on_lost_that_releases_its_own_lock_or_closes_is_refused(void **state) {
  (void)state;
  story s = {.corral = a};
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = release_itself, .lost_arg = &s));
  await(&s.told, 1);
  assert_int_equal(s.statuses[0], CORRAL_EINVAL);
  assert_non_null(strstr(s.text, "on_warn of this very lock"));
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(ask(a, "key", &error), CORRAL_OK); /* the corral is still open */
}

static void block(corral_lock *lock, const char *why, void *arg) {
  story *s = arg;
  (void)lock;
  (void)why;
  atomic_fetch_add(&s->told, 1);
  await(&s->gate, 1);
}

static void a_loss_that_waits_to_be_told_is_told_by_the_release(void **state) {
  (void)state;
  story s = {0};
  atomic_int others = 0;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = block, .lost_arg = &s));
  await(&s.told, 1);
  corral_lock *other =
      take(a, "other", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = count, .lost_arg = &others));
  until(a, CORRAL_EVENT_LOCK_LOST, 2);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_ELOST);
  assert_int_equal(others, 1);
  atomic_store(&s.gate, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(s.told, 1);
}

/* The first on_lost blocks the callbacks' thread, so the second loss is reported within the
 * release. */
static void on_lost_within_a_release_is_refused_the_same(void **state) {
  (void)state;
  story first = {0}, s = {.corral = a};
  corral_lock *lock =
      take(a, "n", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = block, .lost_arg = &first));
  await(&first.told, 1);
  corral_lock *other =
      take(a, "other", CORRAL_LOCK(.ttl_ms = TTL_MS, .on_lost = release_itself, .lost_arg = &s));
  until(a, CORRAL_EVENT_LOCK_LOST, 2);
  assert_int_equal(corral_lock_release(other, &error), CORRAL_ELOST);
  assert_int_equal(s.told, 1);
  assert_int_equal(s.statuses[0], CORRAL_EINVAL);
  atomic_store(&first.gate, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  assert_int_equal(ask(a, "key", &error), CORRAL_OK);
}

/* ---- on_event ------------------------------------------------------------------------------ */

typedef struct watcher {
  corral *corral, *other;
  corral_lock *lock;
  atomic_int calls, extended, gate, wrong, others;
  char text[sizeof error.text];
} watcher;

/* Calls functions of the corral within the first event. */
static void call_back(const corral_event_info *info, void *arg) {
  watcher *w = arg;
  corral_error why = {0};
  (void)info;
  if (w->corral == NULL || atomic_fetch_add(&w->calls, 1) > 0) return;
  w->wrong += ask(w->corral, "another", &why) != CORRAL_EINVAL;
  snprintf(w->text, sizeof w->text, "%s", why.text);
  w->wrong += corral_invalidate(w->corral, "key", 3, NULL) != CORRAL_EINVAL;
  w->wrong += corral_lock_extend(w->lock, 0, NULL) != CORRAL_EINVAL;
  w->wrong += corral_lock_release(w->lock, NULL) != CORRAL_EINVAL;
  w->wrong += corral_counter(w->corral, CORRAL_EVENT_LOCKED) != 1;
  corral_close(w->corral);
  w->others += ask(w->other, "key", NULL) == CORRAL_OK;
}

static void on_event_may_use_other_corrals_and_is_refused_its_own(void **state) {
  (void)state;
  watcher w = {.other = b};
  corral *c = open_with(call_back, &w);
  w.lock = take(c, "n", CORRAL_LOCK(0));
  w.corral = c;
  assert_int_equal(ask(c, "key", &error), CORRAL_OK);
  assert_true(w.calls > 0);
  assert_int_equal(w.wrong, 0);
  assert_int_equal(w.others, 1);
  assert_non_null(strstr(w.text, "on_event"));
  assert_int_equal(corral_lock_release(w.lock, &error), CORRAL_OK);
  corral_close(c);
}

static void block_first_extension(const corral_event_info *info, void *arg) {
  watcher *w = arg;
  if (info->event != CORRAL_EVENT_LOCK_EXTENDED) return;
  w->wrong += info->key_len != 1 || memcmp(info->key, "n", 1) != 0;
  if (atomic_fetch_add(&w->extended, 1) == 0) await(&w->gate, 1);
}

static void
a_slow_on_event_keeps_no_lock_from_being_kept_and_is_told_all_before_close_returns(void **state) {
  (void)state;
  watcher w = {0};
  corral *c = open_with(block_first_extension, &w);
  corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = KEPT_MS, .keep = 1));
  until(c, CORRAL_EVENT_LOCK_EXTENDED, 5); /* the last by more than the lock's life later */
  assert_int_equal(w.extended, 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  int counted = (int)corral_counter(c, CORRAL_EVENT_LOCK_EXTENDED);
  atomic_store(&w.gate, 1);
  corral_close(c);
  assert_int_equal(w.extended, counted);
  assert_int_equal(w.wrong, 0);
}

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(on_lost_may_release_another_lock_that_is_kept),
      T(on_lost_may_release_all_that_are_lost_at_the_same_time_and_each_loss_is_told_once),
      T(on_lost_may_ask_take_and_wait_while_other_locks_are_kept),
      T(on_lost_that_releases_its_own_lock_or_closes_is_refused),
      T(a_loss_that_waits_to_be_told_is_told_by_the_release),
      T(on_lost_within_a_release_is_refused_the_same),
      T(on_event_may_use_other_corrals_and_is_refused_its_own),
      T(a_slow_on_event_keeps_no_lock_from_being_kept_and_is_told_all_before_close_returns),
  };
  return cmocka_run_group_tests_name("callbacks", tests, NULL, NULL);
}
