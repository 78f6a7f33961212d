/* test_lock_async.c: locks in event loops: no thread for a waiter, turns in order, owners that are
 * calls, and no hold that nobody knows of. */
#include "support/loop_kit.h"

#include <corral/lock.h>
#include <dirent.h>
#include <errno.h>

#include "store/renewer.h"

/* A call that takes a lock, and the hold that it was given. */
typedef struct taker {
  request r; /* the first member */
  corral_lock *lock;
} taker;

static loop_desk opened(void) { return desk_open(CORRAL_OPTIONS(.store = store, .workers = 1)); }

static int try_begin(corral_loop *loop, const char *name, const corral_lock_options *options,
                     taker *t) {
  t->r.is_work = 1;
  return corral_lock_take_async(
      loop, name, strlen(name), options,
      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &t->r), &t->lock, &t->r.call,
      NULL);
}

static void begin(corral_loop *loop, const char *name, const corral_lock_options *options,
                  taker *t) {
  assert_int_equal(try_begin(loop, name, options, t), CORRAL_OK);
}

static int taken(corral_loop *loop, const char *name, const corral_lock_options *options,
                 taker *t) {
  begin(loop, name, options, t);
  RUN_UNTIL(loop, t->r.gones, 1);
  assert_int_equal(t->r.dones, 1);
  assert_true((t->lock != NULL) == (t->r.status == CORRAL_OK));
  return t->r.status;
}

static int released(corral_loop *loop, corral_lock *lock) {
  request r = {.is_work = 1};
  assert_int_equal(
      corral_lock_release_async(loop, lock,
                                CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r),
                                NULL, NULL),
      CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  return r.status;
}

static corral_lock *held(corral *c, const char *name) {
  corral_lock *lock = NULL;
  assert_int_equal(corral_lock_take(c, name, strlen(name), NULL, &lock, NULL), CORRAL_OK);
  return lock;
}

static int is_free(corral *c, const char *name) {
  corral_lock *lock = NULL;
  const corral_lock_options *once = CORRAL_LOCK(.wait_ms = CORRAL_OFF);
  if (corral_lock_take(c, name, strlen(name), once, &lock, NULL) != CORRAL_OK) return 0;
  return corral_lock_release(lock, NULL) == CORRAL_OK;
}

static void await_free(corral *c, const char *name) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  while (!is_free(c, name))
    if (crl_env_now_ms() > until) fail_msg("%s is held", name);
}

/* ---- many waiters -------------------------------------------------------------------------- */

enum { CROWD = 1000, THREADS = 10 };

static int count_threads(void) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (const struct dirent *task; (task = readdir(tasks)) != NULL;) count += task->d_name[0] != '.';
  closedir(tasks);
  return count;
}

static taker crowd[CROWD];
static int served[CROWD], count_served, inside, most_threads;
static request releases[CROWD];

static void on_turn(request *r) {
  taker *t = (taker *)(void *)r;
  corral_loop *loop = r->arg;
  int number = (int)(t - crowd);
  assert_int_equal(r->status, CORRAL_OK);
  assert_int_equal(inside++, 0);
  served[count_served++] = number;
  if (number % 50 == 0) {
    int count = count_threads();
    if (count > most_threads) most_threads = count;
  }
  inside--;
  releases[number] = (request){.is_work = 1};
  assert_int_equal(
      corral_lock_release_async(
          loop, t->lock,
          CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &releases[number]), NULL,
          NULL),
      CORRAL_OK);
}

static void a_thousand_waiters_take_turns_in_order_on_a_few_threads(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_lock *first = held(d.c, "n");
  count_served = inside = most_threads = 0;
  for (int i = 0; i < CROWD; i++) {
    crowd[i] = (taker){.r = {.on_done = on_turn, .arg = d.loop}};
    begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &crowd[i]);
  }
  await_counter(d.c, CORRAL_EVENT_LOCK_WAIT, CROWD);
  int waiting = count_threads();
  assert_int_equal(corral_lock_release(first, NULL), CORRAL_OK);
  for (int i = 0; i < CROWD; i++) RUN_UNTIL(d.loop, releases[i].gones, 1);
  for (int i = 0; i < CROWD; i++) {
    assert_int_equal(served[i], i);
    assert_int_equal(crowd[i].r.dones, 1);
    assert_int_equal(releases[i].status, CORRAL_OK);
  }
  assert_int_equal(count_served, CROWD);
  assert_in_range(waiting, 1, THREADS - 1);
  assert_in_range(most_threads, 1, THREADS - 1);
  closed(&d);
}

static void calls_on_many_locks_share_the_threads(void **state) {
  (void)state;
  loop_desk d = opened();
  for (int i = 0; i < CROWD; i++) {
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    crowd[i] = (taker){0};
    begin(d.loop, name, NULL, &crowd[i]);
  }
  for (int i = 0; i < CROWD; i++) RUN_UNTIL(d.loop, crowd[i].r.gones, 1);
  assert_in_range(count_threads(), 1, THREADS - 1);
  for (int i = 0; i < CROWD; i++) assert_int_equal(corral_lock_release(crowd[i].lock, NULL), 0);
  closed(&d);
}

/* ---- the end of a wait --------------------------------------------------------------------- */

static void a_release_of_another_corral_ends_the_wait(void **state) {
  (void)state;
  loop_desk d = opened();
  corral *other = loop_corral(CORRAL_OPTIONS(.store = store));
  corral_lock *lock = held(other, "n");
  taker t = {0};
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &t);
  await_counter(d.c, CORRAL_EVENT_LOCK_WAIT, 1);
  assert_int_equal(t.r.dones, 0);
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  RUN_UNTIL(d.loop, t.r.gones, 1);
  assert_int_equal(t.r.status, CORRAL_OK);
  assert_true(corral_lock_fence(t.lock) > 0 && corral_lock_left_ms(t.lock) > 0);
  assert_false(is_free(other, "n"));
  assert_int_equal(released(d.loop, t.lock), CORRAL_OK);
  assert_true(is_free(other, "n"));
  corral_close(other);
  closed(&d);
}

static void a_call_ends_by_its_deadline_and_names_the_holder(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_lock *lock = held(d.c, "n");
  taker once = {0}, waits = {0}, behind = {0};
  assert_int_equal(taken(d.loop, "n", CORRAL_LOCK(.wait_ms = CORRAL_OFF), &once), CORRAL_EBUSY);
  assert_non_null(strstr(once.r.text, "held by "));
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 30), &waits);
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 30), &behind);
  RUN_UNTIL(d.loop, waits.r.gones + behind.r.gones, 2);
  assert_int_equal(waits.r.status, CORRAL_EDEADLINE);
  assert_int_equal(behind.r.status, CORRAL_EDEADLINE);
  assert_non_null(strstr(behind.r.text, "held by "));
  corral_lock_release(lock, NULL);
  closed(&d);
}

static void a_cancel_token_ends_the_wait(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_lock *lock = held(d.c, "n");
  corral_cancel_token *cancel = corral_cancel_token_new();
  taker first = {0}, behind = {0};
  begin(d.loop, "n", CORRAL_LOCK(.cancel_token = cancel, .wait_ms = 600000), &first);
  begin(d.loop, "n", CORRAL_LOCK(.cancel_token = cancel, .wait_ms = 600000), &behind);
  corral_cancel_token_cancel(cancel);
  RUN_UNTIL(d.loop, first.r.gones + behind.r.gones, 2);
  assert_int_equal(first.r.status, CORRAL_ECANCELLED);
  assert_int_equal(behind.r.status, CORRAL_ECANCELLED);
  corral_lock_release(lock, NULL);
  assert_true(is_free(d.c, "n"));
  corral_cancel_token_free(cancel);
  closed(&d);
}

static void what_is_wrong_is_refused_at_once(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  const corral_async *async = CORRAL_ASYNC(.done = request_done, .arg = &t.r);
  corral_error error;
  assert_int_equal(try_begin(d.loop, "", NULL, &t), CORRAL_EINVAL);
  assert_int_equal(try_begin(d.loop, "n", CORRAL_LOCK(.ttl_ms = 1), &t), CORRAL_EINVAL);
  assert_int_equal(corral_lock_take_async(d.loop, "n", 1, NULL, async, NULL, NULL, &error),
                   CORRAL_EINVAL);
  assert_non_null(strstr(error.text, "corral_lock_take_async"));
  assert_int_equal(
      corral_lock_take_async(d.loop, "n", 1, NULL, CORRAL_ASYNC(0), &t.lock, NULL, &error),
      CORRAL_EINVAL);
  assert_int_equal(corral_lock_take_async(NULL, "n", 1, NULL, async, &t.lock, NULL, &error),
                   CORRAL_EINVAL);
  assert_int_equal(corral_lock_release_async(d.loop, NULL, async, NULL, &error), CORRAL_EINVAL);
  assert_int_equal(corral_lock_extend_async(d.loop, NULL, 0, async, NULL, &error), CORRAL_EINVAL);
  corral_loop_dispatch(d.loop);
  assert_int_equal(t.r.dones, 0);
  assert_true(is_free(d.c, "n"));
  closed(&d);
}

static atomic_int no_threads, denied;

int __real_crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg);
int __wrap_crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg);
int __wrap_crl_env_thread(pthread_t *thread, void *(*run)(void *), void *arg) {
  if (!atomic_load(&no_threads)) return __real_crl_env_thread(thread, run, arg);
  atomic_fetch_add(&denied, 1);
  return EAGAIN;
}

typedef struct blocking_taker {
  corral *c;
  corral_cancel_token *cancel;
  int status;
} blocking_taker;

static void *take_blocking(void *arg) {
  blocking_taker *t = arg;
  corral_lock *lock = NULL;
  t->status = corral_lock_take(
      t->c, "n", 1, CORRAL_LOCK(.wait_ms = 600000, .cancel_token = t->cancel), &lock, NULL);
  return NULL;
}

/* The call waits behind a caller that has a thread, and its turn comes while none can be had. */
static void a_turn_that_comes_while_there_is_no_thread_is_made_when_there_is_one(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_lock *lock = held(d.c, "n");
  blocking_taker first = {.c = d.c, .cancel = corral_cancel_token_new()};
  taker behind = {0};
  pthread_t thread;
  assert_int_equal(pthread_create(&thread, NULL, take_blocking, &first), 0);
  await_counter(d.c, CORRAL_EVENT_LOCK_WAIT, 1);
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &behind);
  atomic_store(&denied, 0);
  atomic_store(&no_threads, 1);
  corral_cancel_token_cancel(first.cancel);
  pthread_join(thread, NULL);
  assert_int_equal(first.status, CORRAL_ECANCELLED);
  corral_lock_release(lock, NULL);
  assert_true(atomic_load(&denied) > 0);
  atomic_store(&no_threads, 0);
  RUN_UNTIL(d.loop, behind.r.gones, 1);
  assert_int_equal(behind.r.status, CORRAL_OK);
  assert_int_equal(released(d.loop, behind.lock), CORRAL_OK);
  corral_cancel_token_free(first.cancel);
  closed(&d);
}

/* ---- owners -------------------------------------------------------------------------------- */

static void calls_are_owners_of_their_own(void **state) {
  (void)state;
  loop_desk d = opened();
  taker first = {0}, second = {0};
  const corral_lock_options *again = CORRAL_LOCK(.wait_ms = CORRAL_OFF, .reentrant = 1);
  assert_int_equal(taken(d.loop, "n", again, &first), CORRAL_OK);
  assert_int_equal(taken(d.loop, "n", again, &second), CORRAL_EBUSY);
  assert_int_equal(released(d.loop, first.lock), CORRAL_OK);
  closed(&d);
}

static void a_name_is_an_owner_in_any_call(void **state) {
  (void)state;
  loop_desk d = opened();
  taker first = {0}, second = {0}, third = {0};
  const corral_lock_options *again = CORRAL_LOCK(.owner = "request 7", .reentrant = 1),
                            *once = CORRAL_LOCK(.owner = "request 7");
  assert_int_equal(taken(d.loop, "n", again, &first), CORRAL_OK);
  assert_int_equal(taken(d.loop, "n", again, &second), CORRAL_OK);
  assert_int_equal(corral_lock_fence(first.lock), corral_lock_fence(second.lock));
  assert_int_equal(taken(d.loop, "n", once, &third), CORRAL_ERECURSION);
  assert_int_equal(released(d.loop, first.lock), CORRAL_OK);
  assert_false(is_free(d.c, "n"));
  assert_int_equal(released(d.loop, second.lock), CORRAL_OK);
  assert_true(is_free(d.c, "n"));
  closed(&d);
}

static void a_call_takes_a_hold_over_by_its_ticket(void **state) {
  (void)state;
  loop_desk d = opened();
  char ticket[CORRAL_LOCK_TICKET];
  taker heir = {0}, late = {0}, other = {0};
  corral_lock *lock = held(d.c, "n");
  uint64_t fence = corral_lock_fence(lock);
  assert_int_equal(corral_lock_ticket(lock, ticket, NULL), CORRAL_OK);
  assert_int_equal(corral_lock_detach(lock, NULL), CORRAL_OK);
  assert_int_equal(try_begin(d.loop, "other", CORRAL_LOCK(.adopt = ticket), &other), CORRAL_EINVAL);
  assert_int_equal(taken(d.loop, "n", CORRAL_LOCK(.adopt = ticket), &heir), CORRAL_OK);
  assert_true(corral_lock_fence(heir.lock) > fence);
  assert_int_equal(taken(d.loop, "n", CORRAL_LOCK(.adopt = ticket), &late), CORRAL_ELOST);
  assert_false(is_free(d.c, "n"));
  assert_int_equal(released(d.loop, heir.lock), CORRAL_OK);
  assert_true(is_free(d.c, "n"));
  closed(&d);
}

/* The second one begins before the first one has the lock. */
static void two_calls_by_one_owner_that_begin_together_share_the_hold(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t[2] = {0};
  for (int i = 0; i < 2; i++)
    begin(d.loop, "n",
          CORRAL_LOCK(.owner = "request 7", .reentrant = 1, .ttl_ms = i == 0 ? 60000 : 0,
                      .wait_ms = 600000),
          &t[i]);
  RUN_UNTIL(d.loop, t[0].r.gones + t[1].r.gones, 2);
  for (int i = 0; i < 2; i++) assert_int_equal(t[i].r.status, CORRAL_OK);
  assert_int_equal(corral_lock_fence(t[0].lock), corral_lock_fence(t[1].lock));
  assert_int_equal(corral_counter(d.c, CORRAL_EVENT_LOCKED), 1);
  assert_int_equal(released(d.loop, t[0].lock), CORRAL_OK);
  assert_false(is_free(d.c, "n"));
  assert_int_equal(released(d.loop, t[1].lock), CORRAL_OK);
  assert_true(is_free(d.c, "n"));
  closed(&d);
}

static corral_lock *of_a_function;
static pthread_t function_thread;

static int take_here(corral *c, void *arg, corral_error *error) {
  (void)arg;
  function_thread = pthread_self();
  return corral_lock_take(c, "n", 1, CORRAL_LOCK(.wait_ms = CORRAL_OFF, .reentrant = 1),
                          &of_a_function, error);
}

static int run_function(corral_loop *loop) {
  request r = {.is_work = 1};
  assert_int_equal(
      corral_loop_run(loop, take_here,
                      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r), NULL,
                      NULL),
      CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  return r.status;
}

/* Also on the thread on which the first one took the lock. */
static void functions_of_a_loop_are_owners_of_their_own(void **state) {
  (void)state;
  loop_desk d = opened();
  assert_int_equal(run_function(d.loop), CORRAL_OK);
  pthread_t first = function_thread;
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  do {
    assert_int_equal(run_function(d.loop), CORRAL_EBUSY);
    assert_true(crl_env_now_ms() < until);
  } while (!pthread_equal(function_thread, first));
  corral_lock_release(of_a_function, NULL);
  closed(&d);
}

/* ---- holds that nobody knows of ------------------------------------------------------------ */

/* Nobody waits until these end by themselves. */
enum { LONG_MS = 3600000 };
#define LONG CORRAL_LOCK(.ttl_ms = LONG_MS)

static void a_cancelled_wait_leaves_no_hold(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_lock *lock = held(d.c, "n");
  taker first = {0}, behind = {0};
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &first);
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &behind);
  corral_async_call_cancel(first.r.call);
  corral_async_call_cancel(behind.r.call);
  RUN_UNTIL(d.loop, first.r.gones + behind.r.gones, 2);
  corral_lock_release(lock, NULL);
  assert_true(is_free(d.c, "n"));
  assert_int_equal(first.r.dones + behind.r.dones, 0);
  assert_null(first.lock);
  closed(&d);
}

static size_t count_waiting(corral *c) {
  size_t count = 0;
  assert_int_equal(corral_lock_waiters(c, "n", 1, NULL, 0, &count, NULL), CORRAL_OK);
  return count;
}

static void until_so_many_wait(corral *c, size_t count) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  while (count_waiting(c) != count) {
    if (crl_env_now_ms() > until) fail_msg("%zu wait, not %zu", count_waiting(c), count);
    crl_env_pause_us(1000);
  }
}

static void of_a_corrals_calls_in_turn_one_has_a_place_until_it_is_cancelled(void **state) {
  (void)state;
  loop_desk d = opened(), e = opened();
  const corral_lock_options *fair = CORRAL_LOCK(.wait_ms = 600000, .fair = 1);
  corral_lock *lock;
  assert_int_equal(corral_lock_take(d.c, "n", 1, CORRAL_LOCK(.ttl_ms = LONG_MS), &lock, NULL),
                   CORRAL_OK);
  taker first = {0}, behind = {0}, other = {0};
  begin(d.loop, "n", fair, &first);
  until_so_many_wait(d.c, 1);
  begin(e.loop, "n", fair, &other);
  until_so_many_wait(d.c, 2);
  begin(d.loop, "n", fair, &behind);
  await_counter(d.c, CORRAL_EVENT_LOCK_WAIT, 2);
  assert_int_equal(count_waiting(d.c), 2);
  corral_async_call_cancel(first.r.call);
  corral_async_call_cancel(behind.r.call);
  RUN_UNTIL(d.loop, first.r.gones + behind.r.gones, 2);
  until_so_many_wait(d.c, 1);
  assert_int_equal(corral_lock_release(lock, NULL), CORRAL_OK);
  RUN_UNTIL(e.loop, other.r.gones, 1);
  assert_int_equal(other.r.status, CORRAL_OK);
  assert_int_equal(released(e.loop, other.lock), CORRAL_OK);
  assert_int_equal(count_waiting(d.c), 0);
  closed(&e);
  closed(&d);
}

static void a_hold_that_was_granted_before_the_cancel_is_released(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  begin(d.loop, "n", LONG, &t);
  await_counter(d.c, CORRAL_EVENT_LOCKED, 1);
  corral_async_call_cancel(t.r.call);
  RUN_UNTIL(d.loop, t.r.gones, 1);
  await_free(d.c, "n");
  assert_int_equal(t.r.dones, 0);
  assert_null(t.lock);
  closed(&d);
}

static void two_takings_by_one_owner_that_are_cancelled_leave_no_hold(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t[2] = {0};
  const corral_lock_options *again = CORRAL_LOCK(.owner = "me", .reentrant = 1, .ttl_ms = LONG_MS);
  begin(d.loop, "n", again, &t[0]);
  await_counter(d.c, CORRAL_EVENT_LOCKED, 1);
  begin(d.loop, "n", again, &t[1]);
  for (int i = 0; i < 2; i++) corral_async_call_cancel(t[i].r.call);
  RUN_UNTIL(d.loop, t[0].r.gones + t[1].r.gones, 2);
  await_free(d.c, "n");
  closed(&d);
}

static void the_close_of_a_loop_leaves_no_hold(void **state) {
  (void)state;
  loop_desk d = opened();
  taker granted = {0}, waits = {0}, other = {0};
  begin(d.loop, "n", LONG, &granted);
  await_counter(d.c, CORRAL_EVENT_LOCKED, 1);
  begin(d.loop, "n", CORRAL_LOCK(.wait_ms = 600000), &waits);
  begin(d.loop, "m", LONG, &other);
  corral_loop_close(d.loop);
  assert_int_equal(granted.r.gones + waits.r.gones + other.r.gones, 3);
  assert_int_equal(granted.r.dones + waits.r.dones + other.r.dones, 0);
  await_free(d.c, "n");
  await_free(d.c, "m");
  corral_close(d.c);
}

static atomic_int released_late; /* holds, one after a while */

static void release_late(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_UNLOCKED) return;
  crl_env_pause_us(10000);
  atomic_fetch_add(&released_late, 1);
}

static int released_before_the_renewer_ended;

void __real_crl_renewer_free(crl_renewer *renewer);
void __wrap_crl_renewer_free(crl_renewer *renewer);
void __wrap_crl_renewer_free(crl_renewer *renewer) {
  released_before_the_renewer_ended = atomic_load(&released_late);
  __real_crl_renewer_free(renewer);
}

/* The renewer has these holds. */
static void the_close_of_a_corral_waits_until_its_loops_have_released_all_holds(void **state) {
  enum { HOLDS = 12 };
  (void)state;
  taker t[HOLDS] = {0};
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = store, .on_event = release_late));
  atomic_store(&released_late, 0);
  for (int i = 0; i < HOLDS; i++) {
    char name[16];
    snprintf(name, sizeof name, "n%d", i);
    begin(d.loop, name, CORRAL_LOCK(.ttl_ms = LONG_MS, .keep = 1), &t[i]);
  }
  await_counter(d.c, CORRAL_EVENT_LOCKED, HOLDS);
  closed(&d);
  assert_int_equal(released_before_the_renewer_ended, HOLDS);
}

/* ---- losses -------------------------------------------------------------------------------- */

static atomic_int losses;
static _Atomic(corral_lock *) lost_lock;

static void on_lost(corral_lock *lock, const char *why, void *arg) {
  (void)why, (void)arg;
  atomic_store(&lost_lock, lock);
  atomic_fetch_add(&losses, 1);
}

static void await_losses(int times) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  while (atomic_load(&losses) < times) {
    if (crl_env_now_ms() > until) fail_msg("on_lost was called %d times", atomic_load(&losses));
    crl_env_pause_us(200);
  }
}

/* Begins a taking, and returns when the only hold is over, before the call has its end. */
static void begin_and_lose(loop_desk *d, const corral_lock_options *options, taker *t) {
  begin(d->loop, "n", options, t);
  await_counter(d->c, CORRAL_EVENT_LOCK_LOST, 1);
}

#define BRIEF(...) CORRAL_LOCK(.ttl_ms = 50, .on_lost = on_lost, __VA_ARGS__)

static void a_loss_is_told_when_the_hold_is_given_to_its_caller(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  atomic_store(&losses, 0);
  begin_and_lose(&d, BRIEF(.keep = CORRAL_OFF), &t);
  await_free(d.c, "n");
  assert_int_equal(atomic_load(&losses), 0);
  RUN_UNTIL(d.loop, t.r.gones, 1);
  assert_int_equal(t.r.status, CORRAL_OK);
  await_losses(1);
  assert_ptr_equal(atomic_load(&lost_lock), t.lock);
  assert_int_equal(corral_lock_left_ms(t.lock), 0);
  assert_int_equal(released(d.loop, t.lock), CORRAL_ELOST);
  assert_int_equal(atomic_load(&losses), 1);
  closed(&d);
}

/* The same where the owner has the hold already, and is told as of each of its takings. */
static void a_loss_is_told_of_each_taking_that_was_given(void **state) {
  (void)state;
  loop_desk d = opened();
  taker first = {0}, second = {0};
  atomic_store(&losses, 0);
  const corral_lock_options *owned =
      CORRAL_LOCK(.ttl_ms = 2000, .on_lost = on_lost, .owner = "me", .reentrant = 1);
  assert_int_equal(taken(d.loop, "n", owned, &first), CORRAL_OK);
  begin_and_lose(&d, owned, &second);
  await_losses(1);
  assert_ptr_equal(atomic_load(&lost_lock), first.lock);
  RUN_UNTIL(d.loop, second.r.gones, 1);
  if (second.r.status == CORRAL_OK) {
    await_losses(2);
    assert_ptr_equal(atomic_load(&lost_lock), second.lock);
    assert_int_equal(released(d.loop, second.lock), CORRAL_ELOST);
  } else {
    assert_int_equal(second.r.status, CORRAL_ELOST);
  }
  assert_int_equal(released(d.loop, first.lock), CORRAL_ELOST);
  closed(&d);
}

static void a_loss_is_not_told_of_a_call_that_was_cancelled(void **state) {
  (void)state;
  for (int closes = 0; closes < 2; closes++) {
    loop_desk d = opened();
    taker t = {0};
    atomic_store(&losses, 0);
    begin_and_lose(&d, BRIEF(.keep = CORRAL_OFF), &t);
    if (!closes) {
      corral_async_call_cancel(t.r.call);
      RUN_UNTIL(d.loop, t.r.gones, 1);
    }
    closed(&d);
    assert_int_equal(t.r.dones, 0);
    assert_int_equal(t.r.gones, 1);
    assert_int_equal(atomic_load(&losses), 0);
  }
}

typedef struct too_early {
  corral_loop *loop;
  request r;
  int status;
  corral_error error;
} too_early;

/* Meanwhile the loop's own thread only waits for the loss. */
static void release_too_early(corral_lock *lock, const char *why, void *arg) {
  too_early *e = arg;
  e->status = corral_lock_release_async(
      e->loop, lock, CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &e->r), NULL,
      &e->error);
  on_lost(lock, why, NULL);
}

static void a_lock_is_not_released_within_its_own_on_lost(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  too_early e = {.loop = d.loop, .r = {.is_work = 1}};
  atomic_store(&losses, 0);
  assert_int_equal(taken(d.loop, "n",
                         CORRAL_LOCK(.ttl_ms = 1000, .on_lost = release_too_early, .lost_arg = &e),
                         &t),
                   CORRAL_OK);
  await_losses(1);
  assert_int_equal(e.status, CORRAL_EINVAL);
  assert_non_null(strstr(e.error.text, "within on_lost"));
  assert_int_equal(released(d.loop, t.lock), CORRAL_ELOST);
  assert_int_equal(e.r.gones, 0);
  closed(&d);
}

/* ---- holds --------------------------------------------------------------------------------- */

/* One of a corral's workers at most runs a function, and it is busy. */
static _Atomic int goes_on;

static int be_busy(corral *c, void *arg, corral_error *error) {
  (void)c, (void)arg, (void)error;
  while (!atomic_load(&goes_on)) crl_env_pause_us(200);
  return CORRAL_OK;
}

static void locks_need_no_place_among_the_functions_of_a_loop(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  request busy = {.is_work = 1};
  atomic_store(&goes_on, 0);
  assert_int_equal(
      corral_loop_run(d.loop, be_busy,
                      CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &busy), NULL,
                      NULL),
      CORRAL_OK);
  assert_int_equal(taken(d.loop, "n", NULL, &t), CORRAL_OK);
  assert_int_equal(released(d.loop, t.lock), CORRAL_OK);
  assert_int_equal(busy.gones, 0);
  atomic_store(&goes_on, 1);
  RUN_UNTIL(d.loop, busy.gones, 1);
  closed(&d);
}

static int extended(corral_loop *loop, corral_lock *lock, int64_t ttl_ms) {
  request r = {.is_work = 1};
  assert_int_equal(
      corral_lock_extend_async(loop, lock, ttl_ms,
                               CORRAL_ASYNC(.done = request_done, .gone = request_gone, .arg = &r),
                               NULL, NULL),
      CORRAL_OK);
  RUN_UNTIL(loop, r.gones, 1);
  return r.status;
}

static void a_hold_is_extended_and_its_loss_is_told(void **state) {
  (void)state;
  loop_desk d = opened();
  taker t = {0};
  assert_int_equal(taken(d.loop, "n", CORRAL_LOCK(.ttl_ms = 60000), &t), CORRAL_OK);
  assert_int_equal(extended(d.loop, t.lock, 600000), CORRAL_OK);
  assert_true(corral_lock_left_ms(t.lock) > 500000);
  assert_int_equal(extended(d.loop, t.lock, 1), CORRAL_EINVAL);
  assert_int_equal(released(d.loop, t.lock), CORRAL_OK);
  taker brief = {0};
  assert_int_equal(taken(d.loop, "n", CORRAL_LOCK(.ttl_ms = 50, .keep = CORRAL_OFF), &brief),
                   CORRAL_OK);
  await_free(d.c, "n");
  assert_int_equal(extended(d.loop, brief.lock, 0), CORRAL_ELOST);
  assert_int_equal(released(d.loop, brief.lock), CORRAL_ELOST);
  closed(&d);
}

#define T(test) cmocka_unit_test_setup(test, fresh_store)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(a_thousand_waiters_take_turns_in_order_on_a_few_threads),
      T(calls_on_many_locks_share_the_threads),
      T(a_release_of_another_corral_ends_the_wait),
      T(a_call_ends_by_its_deadline_and_names_the_holder),
      T(a_cancel_token_ends_the_wait),
      T(what_is_wrong_is_refused_at_once),
      T(a_turn_that_comes_while_there_is_no_thread_is_made_when_there_is_one),
      T(calls_are_owners_of_their_own),
      T(a_name_is_an_owner_in_any_call),
      T(a_call_takes_a_hold_over_by_its_ticket),
      T(two_calls_by_one_owner_that_begin_together_share_the_hold),
      T(functions_of_a_loop_are_owners_of_their_own),
      T(a_cancelled_wait_leaves_no_hold),
      T(of_a_corrals_calls_in_turn_one_has_a_place_until_it_is_cancelled),
      T(a_hold_that_was_granted_before_the_cancel_is_released),
      T(two_takings_by_one_owner_that_are_cancelled_leave_no_hold),
      T(the_close_of_a_loop_leaves_no_hold),
      T(the_close_of_a_corral_waits_until_its_loops_have_released_all_holds),
      T(a_loss_is_told_when_the_hold_is_given_to_its_caller),
      T(a_loss_is_told_of_each_taking_that_was_given),
      T(a_loss_is_not_told_of_a_call_that_was_cancelled),
      T(a_lock_is_not_released_within_its_own_on_lost),
      T(locks_need_no_place_among_the_functions_of_a_loop),
      T(a_hold_is_extended_and_its_loss_is_told),
  };
  return cmocka_run_group_tests_name("lock_async", tests, NULL, NULL);
}
