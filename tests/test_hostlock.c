/* test_hostlock.c: the election on a host: between processes, threads, through deaths, forks and odd folders. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "env.h"
#include "hostlock.h"
#include "value.h"

enum { FAR = 10000 };

static char folder[40];

static int make_folder(void **state) {
  (void)state;
  snprintf(folder, sizeof folder, "/tmp/corral-host-XXXXXX");
  return mkdtemp(folder) == NULL;
}

static int remove_folder(void **state) {
  (void)state;
  char file[64];
  snprintf(file, sizeof file, "%s/corral.lock", folder);
  unlink(file);
  return rmdir(folder);
}

static int take(crl_hostlock *lock, const char *key, int *hold) { return crl_hostlock_take(lock, key, strlen(key), hold, NULL); }

static void one_holds_a_key_and_others_hold_other_keys(void **state) {
  (void)state;
  crl_hostlock *a = crl_hostlock_new(folder, "redis://one"), *b = crl_hostlock_new(folder, "redis://one");
  crl_hostlock *other = crl_hostlock_new(folder, "redis://two");
  int first, second, third, again;
  assert_int_equal(take(a, "k", &first), CORRAL_OK);
  assert_int_equal(take(a, "k", &again), CORRAL_EBUSY); /* a thread of the same process as well */
  assert_int_equal(take(b, "k", &again), CORRAL_EBUSY);
  assert_int_equal(take(b, "K", &second), CORRAL_OK);
  assert_int_equal(take(other, "k", &third), CORRAL_OK);
  crl_hostlock_give(first);
  assert_int_equal(take(b, "k", &first), CORRAL_OK);
  crl_hostlock_give(first);
  crl_hostlock_give(second);
  crl_hostlock_give(third);
  crl_hostlock_free(a);
  crl_hostlock_free(b);
  crl_hostlock_free(other);
}

/* A process that takes "k", says so, and then does `what`: 0 waits to be killed. Returns when it has it. */
static pid_t holder(int what, int *talk) {
  int pipes[2];
  char byte;
  assert_int_equal(pipe(pipes), 0);
  pid_t pid = fork();
  if (pid == 0) {
    int hold;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    crl_hostlock *lock = crl_hostlock_new(folder, "s");
    if (take(lock, "k", &hold) != CORRAL_OK || write(pipes[1], "x", 1) != 1) _exit(1);
    if (what == 1) execlp("sleep", "sleep", "60", (char *)NULL); /* the lock is not handed on */
    for (;;) pause();
  }
  close(pipes[1]);
  assert_int_equal(read(pipes[0], &byte, 1), 1);
  *talk = pipes[0];
  return pid;
}

static void a_killed_holder_is_replaced_at_once(void **state) {
  (void)state;
  crl_hostlock *lock = crl_hostlock_new(folder, "s");
  int talk, hold;
  pid_t pid = holder(0, &talk);
  assert_int_equal(take(lock, "k", &hold), CORRAL_EBUSY);
  int64_t before = crl_env_now_us();
  kill(pid, SIGKILL);
  crl_hostlock_wait(lock, "k", 1, crl_env_now_ms() + FAR);
  int64_t took = crl_env_now_us() - before;
  print_message("           free %lld us after the holder was killed\n", (long long)took);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  assert_true(took < 1000000);
  waitpid(pid, NULL, 0);
  close(talk);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void a_program_that_is_executed_does_not_inherit_the_lock(void **state) {
  (void)state;
  crl_hostlock *lock = crl_hostlock_new(folder, "s");
  int talk, hold;
  pid_t pid = holder(1, &talk);
  crl_hostlock_wait(lock, "k", 1, crl_env_now_ms() + FAR);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  close(talk);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void a_child_forked_meanwhile_does_not_keep_it(void **state) {
  (void)state;
  crl_hostlock *lock = crl_hostlock_new(folder, "s");
  int hold;
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  pid_t pid = fork();
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (;;) pause();
  }
  crl_hostlock_give(hold);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  crl_hostlock_give(hold);
  kill(pid, SIGKILL);
  waitpid(pid, NULL, 0);
  crl_hostlock_free(lock);
}

static void waiting_ends_at_its_time_when_nobody_gives_way(void **state) {
  (void)state;
  crl_hostlock *lock = crl_hostlock_new(folder, "s");
  int hold;
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  int64_t before = crl_env_now_ms();
  crl_hostlock_wait(lock, "k", 1, before + 60);
  assert_in_range(crl_env_now_ms() - before, 60, FAR);
  before = crl_env_now_ms();
  crl_hostlock_wait(lock, "free", 4, before + FAR);
  assert_true(crl_env_now_ms() - before < FAR);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void a_lock_file_that_was_removed_makes_no_two_holders_later_on(void **state) {
  (void)state;
  crl_hostlock *lock = crl_hostlock_new(folder, "s");
  char file[64];
  int hold, again;
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  snprintf(file, sizeof file, "%s/corral.lock", folder);
  assert_int_equal(unlink(file), 0);
  crl_hostlock_give(hold);
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  assert_int_equal(take(lock, "k", &again), CORRAL_EBUSY);
  assert_int_equal(access(file, F_OK), 0);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
}

static void refused(const char *dir, const char *word) {
  crl_hostlock *lock = crl_hostlock_new(dir, "s");
  corral_error error = {0};
  int hold;
  assert_int_equal(crl_hostlock_take(lock, "k", 1, &hold, &error), CORRAL_EIO);
  if (strstr(error.text, word) == NULL) fail_msg("'%s' doesn't say '%s'", error.text, word);
  crl_hostlock_wait(lock, "k", 1, crl_env_now_ms()); /* hangs on nothing */
  crl_hostlock_free(lock);
}

static void a_folder_that_can_t_be_used_is_named_with_the_reason(void **state) {
  (void)state;
  char path[64];
  refused("/dev/null", "/dev/null/corral.lock");
  refused("/nowhere/at/all", "No such file");
  snprintf(path, sizeof path, "%s/corral.lock", folder);
  assert_int_equal(symlink("/dev/zero", path), 0); /* laid there by somebody else */
  refused(folder, "corral.lock");
  unlink(path);
}

/* Whoever may write to /tmp can make this folder before its user does. */
static void the_folder_of_one_s_own_is_nobody_else_s(void **state) {
  (void)state;
  char path[64];
  struct stat st;
  int hold;
  snprintf(path, sizeof path, "/dev/shm/corral-%lu", (unsigned long)geteuid());
  unsetenv("CORRAL_HOST_DIR");
  crl_hostlock *lock = crl_hostlock_new(NULL, "test_hostlock");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
  assert_int_equal(stat(path, &st), 0);
  assert_int_equal(st.st_mode & 0777, 0700);
  assert_int_equal(chmod(path, 0777), 0);
  refused(NULL, "only this user");
  assert_int_equal(chmod(path, 0700), 0);
}

static void the_environment_names_the_folder(void **state) {
  (void)state;
  char file[64];
  int hold;
  setenv("CORRAL_HOST_DIR", folder, 1);
  crl_hostlock *lock = crl_hostlock_new(NULL, "s");
  assert_int_equal(take(lock, "k", &hold), CORRAL_OK);
  snprintf(file, sizeof file, "%s/corral.lock", folder);
  assert_int_equal(access(file, F_OK), 0);
  crl_hostlock_give(hold);
  crl_hostlock_free(lock);
  unsetenv("CORRAL_HOST_DIR");
}

static void without_memory_there_is_no_lock(void **state) {
  (void)state;
  crl_alloc_countdown = 0;
  assert_null(crl_hostlock_new(folder, "s"));
}

#define T(test) cmocka_unit_test_setup_teardown(test, make_folder, remove_folder)

int main(void) {
  const struct CMUnitTest tests[] = {
      T(one_holds_a_key_and_others_hold_other_keys),
      T(a_killed_holder_is_replaced_at_once),
      T(a_program_that_is_executed_does_not_inherit_the_lock),
      T(a_child_forked_meanwhile_does_not_keep_it),
      T(waiting_ends_at_its_time_when_nobody_gives_way),
      T(a_lock_file_that_was_removed_makes_no_two_holders_later_on),
      T(a_folder_that_can_t_be_used_is_named_with_the_reason),
      T(the_folder_of_one_s_own_is_nobody_else_s),
      T(the_environment_names_the_folder),
      T(without_memory_there_is_no_lock),
  };
  return cmocka_run_group_tests_name("hostlock", tests, NULL, NULL);
}
