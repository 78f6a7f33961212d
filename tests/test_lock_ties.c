/* test_lock_ties.c: a hold in an lmdb: file ends with the process that took it, unless it was made
 * to outlast that. Processes are killed and stopped for real; only outcomes count. */
#include <corral/child.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/fork_kit.h"
#include "support/folder_kit.h"
#include "support/lock_kit.h"

enum { HOUR_MS = 3600000, PATIENCE_MS = 60000, CLOSED_MOST = 1024 };

static char uri[ROOM_PATH + 32];

static corral *open_one(void) {
  corral *c;
  if (corral_open(CORRAL_OPTIONS(.store = uri, .op_ms = 30000), &c, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int setup(void **state) {
  (void)state;
  static unsigned number;
  snprintf(uri, sizeof uri, "lmdb:%s/%u", folder, number++);
  a = open_one();
  b = open_one();
  return 0;
}

/* ---- other processes ----------------------------------------------------------------------- */

/* News of a process to this one. */
typedef struct news {
  pid_t pid; /* another process that it has made */
  uint64_t fence;
  char ticket[CORRAL_LOCK_TICKET];
} news;

/* Starts a process that does this with a corral of its own, tells its news, and waits to be
 * killed. */
static pid_t elsewhere(void (*act)(corral *c, news *ret), news *ret) {
  int says[2];
  *ret = (news){.pid = 0};
  if (pipe(says) != 0) abort();
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    act(open_one(), ret);
    if (write(says[1], ret, sizeof *ret) != sizeof *ret) _exit(1);
    for (;;) pause();
  }
  close(says[1]);
  assert_int_equal(read(says[0], ret, sizeof *ret), sizeof *ret);
  close(says[0]);
  return pid;
}

static void die(pid_t pid) {
  kill(pid, SIGKILL);
  assert_int_equal(waitpid(pid, NULL, 0), pid);
}

/* The status that another process gets when it asks for the lock once. */
static int asked_elsewhere(void) {
  int status = 0;
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    _exit(try(open_one(), "n", CORRAL_LOCK(0)));
  }
  assert_int_equal(waitpid(pid, &status, 0), pid);
  return (int8_t)WEXITSTATUS(status);
}

static void hold(corral *c, news *ret) {
  ret->fence = corral_lock_fence(take(c, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS, .note = "dying")));
}

/* ---- death --------------------------------------------------------------------------------- */

static void the_hold_of_a_killed_process_is_free_at_once(void **state) {
  (void)state;
  news told;
  corral_lock_holder who;
  size_t count = 9;
  pid_t pid = elsewhere(hold, &told);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  die(pid);
  assert_int_equal(corral_lock_show(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  assert_int_equal(count, 0);
  corral_lock *lock = take(b, "n", CORRAL_LOCK(.wait_ms = CORRAL_OFF));
  assert_true(corral_lock_fence(lock) > told.fence);
  assert_int_equal(asked_elsewhere(), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void *wait_for_it(void *arg) {
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.wait_ms = PATIENCE_MS));
  *(uint64_t *)arg = corral_lock_fence(lock);
  corral_lock_release(lock, NULL);
  return NULL;
}

static void a_waiter_gets_the_lock_of_one_that_is_killed_meanwhile(void **state) {
  (void)state;
  news told;
  pthread_t waiter;
  uint64_t fence = 0;
  pid_t pid = elsewhere(hold, &told);
  assert_int_equal(pthread_create(&waiter, NULL, wait_for_it, &fence), 0);
  until(a, CORRAL_EVENT_LOCK_WAIT, 1);
  die(pid);
  pthread_join(waiter, NULL);
  assert_true(fence > told.fence);
}

static void hold_shared(corral *c, news *ret) {
  static const char *const owners[] = {"x", "y", "z"};
  for (int i = 0; i < 3; i++)
    ret->fence = corral_lock_fence(
        take(c, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS, .shared = 1, .owner = owners[i])));
}

static void readers_that_were_killed_let_a_writer_in_and_a_living_one_does_not(void **state) {
  (void)state;
  news told;
  pid_t first = elsewhere(hold_shared, &told), second = elsewhere(hold_shared, &told);
  die(first);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.shared = 1)), CORRAL_OK);
  die(second);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

static void hold_permit(corral *c, news *ret) {
  ret->fence = corral_lock_fence(take(c, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS, .permits = 2)));
}

static void the_permit_of_a_killed_process_is_free_at_once(void **state) {
  (void)state;
  news told;
  pid_t first = elsewhere(hold_permit, &told), second = elsewhere(hold_permit, &told);
  assert_int_equal(try(b, "n", CORRAL_LOCK(.permits = 2)), CORRAL_EBUSY);
  die(second);
  corral_lock *lock = take(b, "n", CORRAL_LOCK(.permits = 2, .wait_ms = CORRAL_OFF));
  assert_true(corral_lock_fence(lock) > told.fence);
  assert_int_equal(try(a, "n", CORRAL_LOCK(.permits = 2)), CORRAL_EBUSY);
  corral_lock_release(lock, NULL);
  die(first);
}

static size_t waiters(void) {
  corral_lock_waiter who;
  size_t count = 0;
  assert_int_equal(corral_lock_waiters(b, "n", 1, &who, 1, &count, &error), CORRAL_OK);
  return count;
}

/* Without the tie its turn would come, and last for CORRAL_LOCK_TURN_MS. */
static void the_place_of_a_killed_waiter_is_gone_at_once(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS));
  pid_t pid = fork_at_rest();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    corral_lock_take(open_one(), "n", 1, CORRAL_LOCK(.fair = 1, .wait_ms = HOUR_MS), &lock, &error);
    _exit(0);
  }
  for (int64_t end = crl_env_now_ms() + PATIENCE_MS; waiters() == 0; crl_env_pause_us(1000))
    assert_true(crl_env_now_ms() < end);
  die(pid);
  assert_int_equal(waiters(), 0);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

/* ---- life ---------------------------------------------------------------------------------- */

static void a_stopped_process_keeps_its_hold(void **state) {
  (void)state;
  news told;
  pid_t pid = elsewhere(hold, &told);
  kill(pid, SIGSTOP);
  assert_int_equal(waitpid(pid, NULL, WUNTRACED), pid);
  for (int i = 0; i < 20; i++) assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  kill(pid, SIGCONT);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  die(pid);
}

static void another_corral_of_the_process_may_come_and_go(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS, .reentrant = 1));
  corral_lock *again = take(a, "n", CORRAL_LOCK(.reentrant = 1));
  corral *other = open_one();
  assert_int_equal(try(other, "m", CORRAL_LOCK(0)), CORRAL_OK);
  assert_int_equal(try(other, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  corral_close(other);
  assert_int_equal(asked_elsewhere(), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(again, &error), CORRAL_OK);
  assert_int_equal(asked_elsewhere(), CORRAL_EBUSY);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
  assert_int_equal(asked_elsewhere(), CORRAL_OK);
}

static void the_end_of_a_forked_child_frees_no_hold_of_its_parent(void **state) {
  (void)state;
  corral_lock *lock = take(a, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS));
  for (int killed = 0; killed < 2; killed++) {
    pid_t pid = fork_at_rest();
    if (pid == 0) _exit(killed ? pause() : 0);
    if (killed) kill(pid, SIGKILL);
    assert_int_equal(waitpid(pid, NULL, 0), pid);
    assert_int_equal(asked_elsewhere(), CORRAL_EBUSY);
  }
  assert_int_equal(corral_lock_extend(lock, 0, &error), CORRAL_OK);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* As a daemon does that closes what it has inherited; the news' pipe stays. */
static void hold_and_close_all(corral *c, news *ret) {
  hold(c, ret);
  for (int fd = STDERR_FILENO + 1; fd < CLOSED_MOST; fd++) {
    struct stat it;
    if (fstat(fd, &it) == 0 && S_ISREG(it.st_mode)) close(fd);
  }
}

static void a_process_that_closes_all_descriptors_keeps_its_hold(void **state) {
  (void)state;
  news told;
  pid_t pid = elsewhere(hold_and_close_all, &told);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  die(pid);
  corral_lock *lock = take(b, "n", CORRAL_LOCK(.wait_ms = CORRAL_OFF));
  assert_true(corral_lock_fence(lock) > told.fence);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static int lives[2]; /* its writing end closes with this process */

/* The child reports for itself: by then it has closed what it must not keep. */
static void hold_and_fork(corral *c, news *ret) {
  int begun[2];
  char byte;
  hold(c, ret);
  if (pipe(begun) != 0) _exit(1);
  ret->pid = fork_at_rest();
  if (ret->pid == 0) {
    close(lives[1]);
    _exit(write(begun[1], "", 1) != 1 || read(lives[0], &byte, 1) != 0);
  }
  close(lives[1]);
  if (read(begun[0], &byte, 1) != 1) _exit(1);
}

static void a_forked_child_that_lives_on_keeps_no_hold_of_its_dead_parent(void **state) {
  (void)state;
  news told;
  if (pipe(lives) != 0) abort();
  pid_t pid = elsewhere(hold_and_fork, &told);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  die(pid);
  assert_int_equal(kill(told.pid, 0), 0);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
  kill(told.pid, SIGKILL);
  close(lives[0]);
  close(lives[1]);
}

/* ---- holds that outlast their process ------------------------------------------------------ */

static void hold_by_ticket(corral *c, news *ret) {
  corral_lock *again;
  corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS, .reentrant = 1));
  again = take(c, "n", CORRAL_LOCK(.reentrant = 1));
  ret->fence = corral_lock_fence(lock);
  if (corral_lock_ticket(again, ret->ticket, &error) != CORRAL_OK) _exit(1);
  if (corral_lock_left_ms(lock) > HOUR_MS) _exit(1);
  if (corral_lock_release(again, &error) != CORRAL_OK) _exit(1);
  if (corral_lock_extend(lock, 0, &error) != CORRAL_OK) _exit(1);
}

static void a_hold_with_a_ticket_outlasts_its_process_and_its_heirs_ends_with_that(void **state) {
  (void)state;
  news told;
  corral_lock *lock = NULL;
  pid_t giver = elsewhere(hold_by_ticket, &told);
  die(giver);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  pid_t heir = fork_at_rest();
  if (heir == 0) {
    _exit(corral_lock_take(open_one(), "n", 1, CORRAL_LOCK(.adopt = told.ticket, .ttl_ms = HOUR_MS),
                           &lock, &error));
  }
  int status = 1;
  assert_int_equal(waitpid(heir, &status, 0), heir);
  assert_int_equal(status, 0);
  lock = take(b, "n", CORRAL_LOCK(.wait_ms = CORRAL_OFF));
  assert_true(corral_lock_fence(lock) > told.fence + 1);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

static void let_go(corral *c, news *ret) {
  corral_lock *lock = take(c, "n", CORRAL_LOCK(.ttl_ms = HOUR_MS));
  ret->fence = corral_lock_fence(lock);
  if (corral_lock_detach(lock, &error) != CORRAL_OK) _exit(1);
}

static void a_hold_that_was_let_go_outlasts_its_process(void **state) {
  (void)state;
  news told;
  die(elsewhere(let_go, &told));
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  assert_int_equal(corral_lock_break(b, "n", 1, told.fence, &error), CORRAL_OK);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_OK);
}

/* Takes the lock for a command, whose guard is the process of ret->pid. */
static void hold_for_a_command(corral *c, news *ret) {
  char *argv[] = {"sh", "-c", "echo $PPID; exec sleep 300", NULL}, text[32] = "";
  int ends[2];
  corral_child *child = NULL;
  hold(c, ret);
  if (pipe(ends) != 0) _exit(1);
  corral_child_file out = {.fd = ends[1], .number = STDOUT_FILENO};
  if (corral_child_start(argv, CORRAL_CHILD(.files = &out, .file_count = 1), &child, &error) !=
      CORRAL_OK)
    _exit(1);
  if (read(ends[0], text, sizeof text - 1) <= 0) _exit(1);
  ret->pid = (pid_t)strtol(text, NULL, 10);
}

static void a_hold_lasts_until_the_command_that_its_process_left_behind_is_dead(void **state) {
  (void)state;
  news told;
  pid_t pid = elsewhere(hold_for_a_command, &told);
  kill(told.pid, SIGSTOP);
  die(pid);
  assert_int_equal(try(b, "n", CORRAL_LOCK(0)), CORRAL_EBUSY);
  kill(told.pid, SIGCONT);
  corral_lock *lock = take(b, "n", CORRAL_LOCK(.wait_ms = PATIENCE_MS));
  assert_true(corral_lock_fence(lock) > told.fence);
  assert_int_equal(corral_lock_release(lock, &error), CORRAL_OK);
}

/* ---- main ---------------------------------------------------------------------------------- */

int main(void) {
#define T(name) cmocka_unit_test_setup_teardown(name, setup, close_both)
  const struct CMUnitTest tests[] = {
      T(the_hold_of_a_killed_process_is_free_at_once),
      T(a_waiter_gets_the_lock_of_one_that_is_killed_meanwhile),
      T(readers_that_were_killed_let_a_writer_in_and_a_living_one_does_not),
      T(the_permit_of_a_killed_process_is_free_at_once),
      T(the_place_of_a_killed_waiter_is_gone_at_once),
      T(a_stopped_process_keeps_its_hold),
      T(another_corral_of_the_process_may_come_and_go),
      T(a_process_that_closes_all_descriptors_keeps_its_hold),
      T(the_end_of_a_forked_child_frees_no_hold_of_its_parent),
      T(a_forked_child_that_lives_on_keeps_no_hold_of_its_dead_parent),
      T(a_hold_with_a_ticket_outlasts_its_process_and_its_heirs_ends_with_that),
      T(a_hold_that_was_let_go_outlasts_its_process),
      T(a_hold_lasts_until_the_command_that_its_process_left_behind_is_dead),
  };
  return cmocka_run_group_tests(tests, make_folder, remove_folder);
}
