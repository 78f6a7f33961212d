/* test_hostlock.c: the host lock: an election among processes and threads by one byte of a lock
 * file. Processes synchronize by pipes. */
#include "support/hostlock_kit.h"
#include "support/fork_kit.h"

#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

enum { CROWD = 6, ROUNDS = 100 };

/* ---- processes ----------------------------------------------------------------------------- */

typedef struct process {
  pid_t pid;
  int out, in; /* this side's ends of two pipes */
  crl_hostlock *lock;
} process;

static void say(const process *p) {
  if (write(p->out, "x", 1) != 1) abort();
}

/* Waits for a byte; 0: the other side has closed the pipe. */
static int hear(const process *p) {
  char c;
  return read(p->in, &c, 1) == 1;
}

static void start(process *p, crl_hostlock *lock, int (*act)(process *p)) {
  int there[2], back[2];
  assert_int_equal(pipe2(there, O_CLOEXEC), 0);
  assert_int_equal(pipe2(back, O_CLOEXEC), 0);
  p->lock = lock;
  p->pid = fork_at_rest();
  assert_true(p->pid >= 0);
  p->out = p->pid == 0 ? back[1] : there[1];
  p->in = p->pid == 0 ? there[0] : back[0];
  close(p->pid == 0 ? back[0] : back[1]);
  close(p->pid == 0 ? there[1] : there[0]);
  if (p->pid != 0) return;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  _exit(act(p));
}

/* Waits for the end of the process. Returns its exit status, or 128 + signal. */
static int end(process *p) {
  int status;
  close(p->out);
  assert_int_equal(waitpid(p->pid, &status, 0), p->pid);
  close(p->in);
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

/* Takes the lock, reports it, waits for a byte, gives the lock back, and reports that. */
static int holder(process *p) {
  int hold;
  if (take(p->lock, "k", &hold) != CORRAL_OK) return 1;
  say(p);
  if (!hear(p)) return 2;
  crl_hostlock_give(hold);
  say(p);
  return hear(p) ? 3 : 0; /* until the parent closes the pipe */
}

/* ---- holders ------------------------------------------------------------------------------- */

static void two_holds_of_one_process_exclude_each_other(void **state) {
  (void)state;
  int hold;
  crl_hostlock *lock = lock_of(named, "s"), *same = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  assert_held(lock, "k");
  assert_held(same, "k");
  crl_hostlock_give(hold);
  assert_free(same, "k");
  assert_free(lock, "k");
  crl_hostlock_free(lock);
  crl_hostlock_free(same);
}

static void another_key_and_another_scope_are_free(void **state) {
  (void)state;
  int hold, other_key, other_scope;
  crl_hostlock *lock = lock_of(named, "store"), *other = lock_of(named, "storek");
  assert_int_equal(take(lock, "kk", &hold), CORRAL_OK);
  assert_int_equal(take(lock, "k", &other_key), CORRAL_OK);
  /* its scope and key, joined, are the same bytes as those of the first hold */
  assert_int_equal(take(other, "k", &other_scope), CORRAL_OK);
  assert_free(lock, "");
  assert_free(other, "kk");
  crl_hostlock_give(other_key);
  assert_held(lock, "kk");
  assert_held(other, "k");
  crl_hostlock_give(hold);
  crl_hostlock_give(other_scope);
  crl_hostlock_free(lock);
  crl_hostlock_free(other);
}

static void every_key_has_a_byte_that_can_be_locked(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  for (int key = 0; key < 10000; key++) {
    struct flock byte = byte_of(lock, &key, sizeof key);
    assert_true(byte.l_start >= 0 && byte.l_start < INT64_MAX && byte.l_len == 1);
  }
  crl_hostlock_free(lock);
}

static void two_processes_exclude_each_other(void **state) {
  (void)state;
  process p;
  crl_hostlock *lock = lock_of(named, "s");
  start(&p, lock, holder);
  assert_true(hear(&p));
  assert_held(lock, "k");
  assert_free(lock, "other");
  say(&p);
  assert_true(hear(&p));
  assert_free(lock, "k");
  assert_int_equal(end(&p), 0);
  crl_hostlock_free(lock);
}

/* ---- crowds -------------------------------------------------------------------------------- */

typedef struct shared {
  _Atomic int inside, rounds, wrong;
} shared;

static shared *board;

static int make_board(void **state) {
  board = mmap(NULL, sizeof *board, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return board == MAP_FAILED || make_folders(state) != 0;
}

static int remove_board(void **state) {
  return munmap(board, sizeof *board) != 0 || remove_folders(state) != 0;
}

static void take_often(crl_hostlock *lock) {
  for (int i = 0; i < ROUNDS;) {
    int hold, status = take(lock, "k", &hold);
    if (status == CORRAL_EBUSY) wait_until(lock, "k", later(FAR));
    if (status == CORRAL_EBUSY) continue;
    if (status != CORRAL_OK || atomic_fetch_add(&board->inside, 1) != 0)
      atomic_fetch_add(&board->wrong, 1);
    i++;
    atomic_fetch_add(&board->rounds, 1);
    sched_yield();
    if (status != CORRAL_OK) continue;
    atomic_fetch_sub(&board->inside, 1);
    crl_hostlock_give(hold);
  }
}

static void *crowd_thread(void *arg) {
  take_often(arg);
  return NULL;
}

static int crowd_process(process *p) {
  take_often(p->lock);
  return 0;
}

static void of_a_crowd_of_threads_one_at_a_time_has_it(void **state) {
  (void)state;
  pthread_t threads[CROWD];
  crl_hostlock *lock = lock_of(named, "s");
  for (int i = 0; i < CROWD; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, crowd_thread, lock), 0);
  for (int i = 0; i < CROWD; i++) pthread_join(threads[i], NULL);
  assert_int_equal(board->wrong, 0);
  assert_int_equal(board->rounds, CROWD * ROUNDS);
  crl_hostlock_free(lock);
}

static void of_a_crowd_of_processes_one_at_a_time_has_it(void **state) {
  (void)state;
  process crowd[CROWD];
  /* the processes also create the folder at the same time */
  crl_hostlock *lock = lock_of(NULL, "s");
  for (int i = 0; i < CROWD; i++) start(&crowd[i], lock, crowd_process);
  for (int i = 0; i < CROWD; i++) assert_int_equal(end(&crowd[i]), 0);
  assert_int_equal(board->wrong, 0);
  assert_int_equal(board->rounds, CROWD * ROUNDS);
  crl_hostlock_free(lock);
}

/* ---- waiting ------------------------------------------------------------------------------- */

/* Reports, waits for the lock, and takes it. */
static int successor(process *p) {
  int hold;
  say(p);
  wait_until(p->lock, "k", later(FAR));
  if (take(p->lock, "k", &hold) != CORRAL_OK) return 1;
  crl_hostlock_give(hold);
  return 0;
}

static void
a_wait_ends_at_once_when_nobody_has_it_and_in_time_when_somebody_keeps_it(void **state) {
  (void)state;
  int hold;
  crl_hostlock *lock = lock_of(named, "s");
  wait_until(lock, "k", INT64_MAX);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  wait_until(lock, "other", INT64_MAX);
  wait_until(lock, "k", 0);
  int64_t until = later(15);
  wait_until(lock, "k", until);
  assert_true(crl_env_now_ms() >= until);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void who_waits_looks_less_and_less_often_down_to_every_4_ms(void **state) {
  (void)state;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &nap_hold), CORRAL_OK);
  nap_count = 0;
  wait_until(lock, "k", later(FAR));
  assert_int_equal(nap_count, sizeof waiters / sizeof *waiters);
  nap_count = -1;
  for (int i = 0; i < (int)(sizeof waiters / sizeof *waiters); i++)
    assert_int_equal(waiters[i], i < 6 ? 100 << i : 4000);
  crl_hostlock_free(lock);
}

static void who_waits_notices_that_it_was_given(void **state) {
  (void)state;
  process p;
  int hold;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  start(&p, lock, successor);
  assert_true(hear(&p));
  crl_hostlock_give(hold);
  assert_int_equal(end(&p), 0);
  crl_hostlock_free(lock);
}

static void a_killed_holder_is_replaced(void **state) {
  (void)state;
  process first, next;
  crl_hostlock *lock = lock_of(named, "s");
  start(&first, lock, holder);
  assert_true(hear(&first));
  start(&next, lock, successor);
  assert_true(hear(&next));
  wait_until(lock, "k", later(20)); /* until the other process looks at its longest interval */
  kill(first.pid, SIGKILL);
  assert_int_equal(end(&next), 0);
  assert_int_equal(end(&first), 128 + SIGKILL);
  crl_hostlock_free(lock);
}

/* ---- children of a holder ------------------------------------------------------------------ */

/* Takes the lock and starts another program as its child. */
static int holder_with_command(process *p) {
  int hold;
  pid_t pid;
  char *command[] = {"cat", NULL};
  posix_spawn_file_actions_t actions;
  if (take(p->lock, "k", &hold) != CORRAL_OK || posix_spawn_file_actions_init(&actions) != 0)
    return 1;
  if (posix_spawn_file_actions_adddup2(&actions, p->in, 0) != 0) return 2;
  if (posix_spawn_file_actions_adddup2(&actions, p->out, 1) != 0) return 2;
  if (posix_spawnp(&pid, "cat", &actions, NULL, command, environ) != 0) return 3;
  for (;;) pause();
}

static void a_command_that_a_killed_holder_had_started_does_not_keep_it(void **state) {
  (void)state;
  process p;
  crl_hostlock *lock = lock_of(named, "s");
  start(&p, lock, holder_with_command);
  say(&p);
  assert_true(hear(&p)); /* the command runs */
  assert_held(lock, "k");
  kill(p.pid, SIGKILL);
  int64_t limit = later(FAR);
  wait_until(lock, "k", limit);
  assert_true(crl_env_now_ms() < limit);
  assert_free(lock, "k");
  say(&p);
  assert_true(hear(&p)); /* the command still runs */
  assert_int_equal(end(&p), 128 + SIGKILL);
  crl_hostlock_free(lock);
}

static void what_was_given_is_free_even_if_a_bare_clone_kept_the_descriptor(void **state) {
  (void)state;
  int hold, status;
  crl_hostlock *lock = lock_of(named, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  pid_t pid = (pid_t)syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0); /* bypasses fork handlers */
  if (pid == 0) {
    for (;;) syscall(SYS_ppoll, 0, 0, 0, 0, 0);
  }
  assert_true(pid > 0);
  crl_hostlock_give(hold);
  assert_free(lock, "k");
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, &status, 0), pid);
  crl_hostlock_free(lock);
}

#define CROWD_TEST(name) cmocka_unit_test_setup_teardown(name, make_board, remove_board)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(two_holds_of_one_process_exclude_each_other),
      TEST(another_key_and_another_scope_are_free),
      TEST(every_key_has_a_byte_that_can_be_locked),
      TEST(two_processes_exclude_each_other),
      CROWD_TEST(of_a_crowd_of_threads_one_at_a_time_has_it),
      CROWD_TEST(of_a_crowd_of_processes_one_at_a_time_has_it),
      TEST(a_wait_ends_at_once_when_nobody_has_it_and_in_time_when_somebody_keeps_it),
      TEST(who_waits_looks_less_and_less_often_down_to_every_4_ms),
      CROWD_TEST(who_waits_notices_that_it_was_given),
      CROWD_TEST(a_killed_holder_is_replaced),
      TEST(a_command_that_a_killed_holder_had_started_does_not_keep_it),
      TEST(what_was_given_is_free_even_if_a_bare_clone_kept_the_descriptor),
  };
  return cmocka_run_group_tests_name("hostlock", tests, NULL, NULL);
}
