/* test_postgresql_fair.c: locks that are waited for in turn, by advisory locks of a real
 * PostgreSQL, through the public functions: the order of grants, waiters that die, are stopped or
 * give up, a server that restarts, and what is told. Each waiter has a corral of its own, as a
 * process of its own would have. Single cases: test_postgresql_turns.c. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/postgresql_server.h"
#include "support/lock_kit.h"
#include "support/fork_kit.h"

enum { WAITERS = 4, ATTEMPTS = 8, CROWD = 5, GRANTS = 60, PATIENCE_MS = 60000, HOUR_MS = 3600000 };

static postgresql_server *server;
static char uri[200];

static corral *opened_with(corral_event_fn *hook) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 10000, .on_event = hook), &c, NULL) !=
      CORRAL_OK)
    abort();
  return c;
}

static corral *opened(void) { return opened_with(NULL); }

/* ---- waiters ------------------------------------------------------------------------------- */

static _Atomic int granted;
static int order[WAITERS + 1];

typedef struct waiter {
  corral *c;
  corral_cancel_token *cancel;
  pthread_t thread;
  int number, status;
  corral_error error;
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  w->status = corral_lock_take(
      w->c, "n", 1,
      CORRAL_LOCK(.fair = 1, .wait_ms = HOUR_MS, .note = "a waiter", .cancel_token = w->cancel),
      &lock, &w->error);
  if (w->status != CORRAL_OK) return NULL;
  order[atomic_fetch_add(&granted, 1)] = w->number;
  w->status = corral_lock_release(lock, &w->error);
  return NULL;
}

/* Returns when the queue has so many waiters. */
static void until_there_wait(corral *c, size_t number) {
  size_t count = 0;
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; count != number; crl_env_pause_us(1000)) {
    assert_int_equal(corral_lock_waiters(c, "n", 1, NULL, 0, &count, &error), CORRAL_OK);
    if (crl_env_now_ms() > end) fail_msg("%zu wait, not %zu", count, number);
  }
}

/* Starts a waiter, and returns when it is the last of `number` in the queue. */
static void comes_to_wait(waiter *w, corral *own, int number) {
  w->number = number - 1;
  if (w->c == NULL) w->c = opened();
  if (pthread_create(&w->thread, NULL, wait_for_it, w) != 0) abort();
  until_there_wait(own, (size_t)number);
}

static int joined(waiter *w) {
  pthread_join(w->thread, NULL);
  if (w->status != CORRAL_OK) print_message("%s\n", w->error.text);
  return w->status;
}

static void released(corral_lock *lock) {
  atomic_store(&granted, 0);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* ---- order --------------------------------------------------------------------------------- */

/* The holder releases, takes again at once, and comes last. 1: the grants were in the order of
 * arrival. A thread that sleeps through its turn breaks that order by chance. */
static int is_in_order(corral *own, waiter *w) {
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .wait_ms = PATIENCE_MS));
  for (int i = 0; i < WAITERS; i++) comes_to_wait(&w[i], own, i + 1);
  released(lock);
  lock = take(own, "n", CORRAL_LOCK(.fair = 1, .wait_ms = PATIENCE_MS));
  order[atomic_fetch_add(&granted, 1)] = WAITERS;
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  int sorted = 1;
  for (int i = 0; i < WAITERS; i++) assert_int_equal(joined(&w[i]), CORRAL_OK);
  for (int i = 0; i <= WAITERS; i++) sorted &= order[i] == i;
  return sorted;
}

static void grants_come_in_the_order_of_arrival(void **state) {
  (void)state;
  corral *own = opened();
  waiter w[WAITERS] = {0};
  int sorted = 0;
  for (int i = 0; i < ATTEMPTS && !sorted; i++) sorted = is_in_order(own, w);
  assert_true(sorted);
  for (int i = 0; i < WAITERS; i++) corral_close(w[i].c);
  corral_close(own);
}

/* Each takes the lock again as soon as it has released it. */
static struct {
  _Atomic int there;
  int last, takes, to_last; /* while the lock is held */
} crowd;

static void *take_again_and_again(void *arg) {
  int number = *(const int *)arg;
  corral *c = opened();
  corral_lock *lock;
  atomic_fetch_add(&crowd.there, 1);
  while (atomic_load(&crowd.there) < CROWD) crl_env_pause_us(100);
  for (int over = 0; !over;) {
    if (corral_lock_take(c, "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = HOUR_MS), &lock, NULL) !=
        CORRAL_OK)
      abort();
    over = crowd.takes >= GRANTS;
    crowd.takes += !over;
    crowd.to_last += !over && crowd.last == number;
    crowd.last = number;
    crl_env_pause_us(1000); /* the others come to wait */
    if (corral_lock_release(lock, NULL) != CORRAL_OK) abort();
  }
  corral_close(c);
  return NULL;
}

/* How many of the grants went to the holder before. */
static int to_the_last_holder(void) {
  pthread_t threads[CROWD];
  int numbers[CROWD];
  atomic_store(&crowd.there, 0);
  crowd.last = -1;
  crowd.takes = crowd.to_last = 0;
  for (int i = 0; i < CROWD; i++) {
    numbers[i] = i;
    if (pthread_create(&threads[i], NULL, take_again_and_again, &numbers[i]) != 0) abort();
  }
  for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
  print_message("%d of %d grants to the last holder\n", crowd.to_last, GRANTS);
  return crowd.to_last;
}

/* The last holder is behind all that wait. On a busy machine all of these may sleep through their
 * turns. */
static void who_takes_again_at_once_comes_after_those_that_wait(void **state) {
  (void)state;
  int is_last = 0;
  for (int i = 0; i < ATTEMPTS && !is_last; i++) is_last = to_the_last_holder() <= GRANTS / 4;
  assert_true(is_last);
}

/* ---- waiters that leave -------------------------------------------------------------------- */

/* A process that waits for the lock, and ends when it has had it. */
static pid_t waits_elsewhere(corral *own) {
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    corral_lock *lock = take(opened(), "n", CORRAL_LOCK(.fair = 1, .wait_ms = HOUR_MS));
    _exit(corral_lock_release(lock, NULL) == CORRAL_OK ? 0 : 1);
  }
  until_there_wait(own, 1);
  return pid;
}

static void ended(pid_t pid) {
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
}

static void a_waiter_that_dies_costs_its_turn_only(void **state) {
  (void)state;
  corral *own = opened();
  waiter w = {0};
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  ended(waits_elsewhere(own));
  until_there_wait(own, 0); /* long before its turn */
  pid_t pid = waits_elsewhere(own);
  comes_to_wait(&w, own, 2);
  ended(pid);
  released(lock); /* in its turn */
  assert_int_equal(joined(&w), CORRAL_OK);
  corral_close(w.c);
  corral_close(own);
}

static void a_waiter_that_is_stopped_costs_its_turn_and_waits_on(void **state) {
  (void)state;
  corral *own = opened();
  waiter w = {0};
  int status = 1;
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  pid_t pid = waits_elsewhere(own);
  comes_to_wait(&w, own, 2);
  kill(pid, SIGSTOP);
  assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
  released(lock);
  assert_int_equal(joined(&w), CORRAL_OK);
  kill(pid, SIGCONT);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0); /* it has had the lock */
  corral_close(w.c);
  corral_close(own);
}

static void a_waiter_that_is_cancelled_leaves_the_queue_at_once(void **state) {
  (void)state;
  corral *own = opened();
  waiter w[2] = {{.cancel = corral_cancel_token_new()}, {.c = NULL}};
  size_t count = 99;
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  comes_to_wait(&w[0], own, 1);
  comes_to_wait(&w[1], own, 2);
  corral_cancel_token_cancel(w[0].cancel);
  assert_int_equal(joined(&w[0]), CORRAL_ECANCELLED);
  assert_int_equal(corral_lock_waiters(own, "n", 1, NULL, 0, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1);
  released(lock);
  assert_int_equal(joined(&w[1]), CORRAL_OK);
  corral_cancel_token_free(w[0].cancel);
  corral_close(w[0].c);
  corral_close(w[1].c);
  corral_close(own);
}

static void a_server_that_restarts_forgets_the_queue_and_they_wait_on(void **state) {
  (void)state;
  corral *own = opened();
  waiter w[2] = {0};
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  comes_to_wait(&w[0], own, 1);
  comes_to_wait(&w[1], own, 2);
  atomic_store(&granted, 0);
  postgresql_server_restart(server);
  for (int i = 0; i < 2; i++) assert_int_equal(joined(&w[i]), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  for (int i = 0; i < 2; i++) corral_close(w[i].c);
  corral_close(own);
}

/* ---- what is told -------------------------------------------------------------------------- */

static _Atomic int told_second;

static void note_wait(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event == CORRAL_EVENT_LOCK_WAIT && info->detail != NULL &&
      strcmp(info->detail, "place 2 in the queue") == 0)
    atomic_store(&told_second, 1);
}

static void place_and_queue_are_told(void **state) {
  (void)state;
  corral *own = opened(), *late = opened_with(note_wait);
  waiter w = {0};
  corral_lock_waiter seen[2];
  corral_lock_holder holder;
  corral_lock *none, *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  size_t count;
  comes_to_wait(&w, own, 1);
  int status =
      corral_lock_take(late, "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = 2000), &none, &error);
  assert_int_equal(status, CORRAL_EDEADLINE);
  assert_non_null(strstr(error.text, ", place 2 in the queue"));
  assert_int_equal(atomic_load(&told_second), 1);
  assert_int_equal(corral_lock_waiters(own, "n", 1, seen, 2, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1);
  assert_non_null(strstr(seen[0].who, " a waiter"));
  assert_true(seen[0].waited_ms >= 2000 && seen[0].shared == 0);
  assert_int_equal(corral_lock_show(own, "n", 1, &holder, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 1); /* a waiter is no holder */
  released(lock);
  assert_int_equal(joined(&w), CORRAL_OK);
  corral_close(late);
  corral_close(w.c);
  corral_close(own);
}

static void a_table_keeps_no_turns_and_the_way_that_does_is_named(void **state) {
  (void)state;
  corral *c;
  corral_lock *lock;
  assert_int_equal(
      corral_open(CORRAL_OPTIONS(.store = postgresql_server_uri(server, "")), &c, &error),
      CORRAL_OK);
  assert_int_equal(corral_lock_take(c, "n", 1, CORRAL_LOCK(.fair = 1), &lock, &error),
                   CORRAL_EUNSUPPORTED);
  assert_non_null(strstr(error.text, "keeps no turns"));
  assert_non_null(strstr(error.text, "postgresql: with locks=advisory"));
  corral_close(c);
}

static int conforms(const char *cases) {
  const char *program = getenv("CORRAL_CONFORMANCE");
  char command[1024];
  assert_non_null(program);
  snprintf(command, sizeof command, "'%s' %s '%s'", program, cases, uri);
  return system(command) == 0;
}

static void the_conformance_suite_finds_its_turns_in_order(void **state) {
  (void)state;
  int met = 0;
  for (int i = 0; i < ATTEMPTS && !met; i++)
    met = conforms("--case turns-go-in-the-order-of-arrival --case who-gives-up-leaves-the-queue "
                   "--case a-turn-that-isnt-taken-passes-on");
  assert_true(met);
}

static void the_conformance_suite_finds_a_hold_over_with_its_connection(void **state) {
  (void)state;
  assert_true(conforms("--case a-lock-whose-reply-is-cut"));
}

int main(void) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  if (!postgresql_server_start(&server, NULL)) return 77;
  snprintf(uri, sizeof uri, "%s", postgresql_server_uri(server, "?locks=advisory"));
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(grants_come_in_the_order_of_arrival),
      cmocka_unit_test(who_takes_again_at_once_comes_after_those_that_wait),
      cmocka_unit_test(a_waiter_that_dies_costs_its_turn_only),
      cmocka_unit_test(a_waiter_that_is_stopped_costs_its_turn_and_waits_on),
      cmocka_unit_test(a_waiter_that_is_cancelled_leaves_the_queue_at_once),
      cmocka_unit_test(a_server_that_restarts_forgets_the_queue_and_they_wait_on),
      cmocka_unit_test(place_and_queue_are_told),
      cmocka_unit_test(a_table_keeps_no_turns_and_the_way_that_does_is_named),
      cmocka_unit_test(the_conformance_suite_finds_its_turns_in_order),
      cmocka_unit_test(the_conformance_suite_finds_a_hold_over_with_its_connection),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
