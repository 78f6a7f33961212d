/* test_postgresql_fair.c: locks that are waited for in turn, by advisory locks of a real
 * PostgreSQL, through the public functions: waiters that are stopped, a server that restarts, and
 * the conformance suite. Each waiter has a corral of its own, as a process of its own would have.
 * test_lock_fair.c tells what all stores do; test_postgresql_turns.c has single cases. */
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/postgresql_server.h"
#include "support/lock_kit.h"
#include "support/fork_kit.h"

enum { ATTEMPTS = 8, HOUR_MS = 3600000 };

static postgresql_server *server;
static char uri[200];

static corral *opened(void) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 10000), &c, NULL) != CORRAL_OK) abort();
  return c;
}

/* ---- waiters ------------------------------------------------------------------------------- */

typedef struct waiter {
  corral *c;
  pthread_t thread;
  int status;
  corral_error error;
} waiter;

static void *wait_for_it(void *arg) {
  waiter *w = arg;
  corral_lock *lock;
  w->status =
      corral_lock_take(w->c, "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = HOUR_MS), &lock, &w->error);
  if (w->status == CORRAL_OK) w->status = corral_lock_release(lock, &w->error);
  return NULL;
}

/* Starts a waiter, and returns when it is the last of `number` in the queue. */
static void comes_to_wait(waiter *w, corral *own, int number) {
  w->c = opened();
  if (pthread_create(&w->thread, NULL, wait_for_it, w) != 0) abort();
  until_there_wait(own, (size_t)number);
}

static int joined(waiter *w) {
  pthread_join(w->thread, NULL);
  if (w->status != CORRAL_OK) print_message("%s\n", w->error.text);
  return w->status;
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
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(joined(&w), CORRAL_OK);
  kill(pid, SIGCONT);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  assert_int_equal(status, 0); /* it has had the lock */
  corral_close(w.c);
  corral_close(own);
}

static void a_server_that_restarts_forgets_the_queue_and_they_wait_on(void **state) {
  (void)state;
  corral *own = opened();
  waiter w[2] = {0};
  corral_lock *lock = take(own, "n", CORRAL_LOCK(.fair = 1, .ttl_ms = HOUR_MS));
  comes_to_wait(&w[0], own, 1);
  comes_to_wait(&w[1], own, 2);
  postgresql_server_restart(server);
  for (int i = 0; i < 2; i++) assert_int_equal(joined(&w[i]), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_ELOST);
  for (int i = 0; i < 2; i++) corral_close(w[i].c);
  corral_close(own);
}

/* ---- what is told -------------------------------------------------------------------------- */

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
      cmocka_unit_test(a_waiter_that_is_stopped_costs_its_turn_and_waits_on),
      cmocka_unit_test(a_server_that_restarts_forgets_the_queue_and_they_wait_on),
      cmocka_unit_test(a_table_keeps_no_turns_and_the_way_that_does_is_named),
      cmocka_unit_test(the_conformance_suite_finds_its_turns_in_order),
      cmocka_unit_test(the_conformance_suite_finds_a_hold_over_with_its_connection),
  };
  int failures = cmocka_run_group_tests(tests, NULL, NULL);
  postgresql_server_stop(server);
  return failures;
}
