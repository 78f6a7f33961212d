/* test_child.c: commands that can't outlive their caller (corral/child.h). */
#include <corral/child.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

enum { TEXT = 4096, PATIENCE_MS = 60000, THREADS = 8, EACH = 20 };

/* A shell's run: its child, and the reading end of its output. */
typedef struct shell {
  corral_child *child;
  int out;
} shell;

static shell begin(const char *script, corral_child_options options) {
  shell it;
  int ends[2];
  corral_error error = {0};
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  corral_child_file files[] = {{CORRAL_CHILD_NULL, 0}, {ends[1], 1}};
  options.size = sizeof options;
  options.files = files;
  options.file_count = 2;
  char *argv[] = {"sh", "-c", (char *)(size_t)script, NULL};
  if (corral_child_start(argv, &options, &it.child, &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  close(ends[1]);
  it.out = ends[0];
  return it;
}

/* One line of the output; "" at its end. */
static const char *line_of(int fd) {
  static _Thread_local char text[TEXT];
  size_t size = 0;
  while (size + 1 < sizeof text && read(fd, text + size, 1) == 1)
    if (text[size++] == '\n') break;
  text[size] = '\0';
  return text;
}

static pid_t number_of(int fd) { return (pid_t)strtol(line_of(fd), NULL, 10); }

static int status_of(shell *it) {
  int status = -1;
  assert_int_equal(corral_child_wait(it->child, &status, NULL), CORRAL_OK);
  return status;
}

static void finish(shell *it) {
  corral_child_free(it->child);
  close(it->out);
}

/* A zombie is dead, though nobody has reaped it. */
static int is_dead(pid_t pid) {
  char path[64], text[TEXT];
  snprintf(path, sizeof path, "/proc/%d/stat", (int)pid);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 1;
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  text[n > 0 ? n : 0] = '\0';
  const char *end = strrchr(text, ')');
  return end == NULL || end[2] == 'Z' || end[2] == 'X';
}

static void assert_dies(pid_t pid) {
  for (int ms = 0; !is_dead(pid); ms += 10) {
    if (ms > PATIENCE_MS) fail_msg("process %d is still alive", (int)pid);
    poll(NULL, 0, 10);
  }
}

/* ---- the stories --------------------------------------------------------------------------- */

static void a_command_has_its_environment_its_files_and_an_end(void **state) {
  (void)state;
  char *env[] = {"PATH=/usr/bin:/bin", "NAME=a value", NULL};
  shell it =
      begin("read line || echo \"no input, $NAME\"; exit 7", (corral_child_options){.env = env});
  assert_string_equal(line_of(it.out), "no input, a value\n");
  struct pollfd end = {corral_child_fd(it.child), POLLIN, 0};
  assert_int_equal(poll(&end, 1, PATIENCE_MS), 1);
  for (int i = 0; i < 2; i++) assert_int_equal(WEXITSTATUS(status_of(&it)), 7);
  finish(&it);
}

static void files_may_exchange_their_numbers(void **state) {
  (void)state;
  int a[2], b[2], status;
  corral_child *child;
  assert_int_equal(pipe2(a, O_CLOEXEC), 0);
  assert_int_equal(pipe2(b, O_CLOEXEC), 0);
  corral_child_file files[] = {{a[1], b[1]}, {b[1], a[1]}};
  char script[80];
  snprintf(script, sizeof script, "echo first >&%d; echo second >&%d", a[1], b[1]);
  char *argv[] = {"bash", "-c", script, NULL};
  assert_int_equal(
      corral_child_start(argv, CORRAL_CHILD(.files = files, .file_count = 2), &child, NULL),
      CORRAL_OK);
  assert_int_equal(corral_child_wait(child, &status, NULL), CORRAL_OK);
  assert_int_equal(status, 0);
  assert_string_equal(line_of(a[0]), "second\n");
  assert_string_equal(line_of(b[0]), "first\n");
  corral_child_free(child);
  for (int i = 0; i < 2; i++) close(a[i]), close(b[i]);
}

static void what_can_not_be_executed_is_told_when_it_is_started(void **state) {
  (void)state;
  static const struct {
    const char *name, *text;
    int code;
  } rows[] = {{"no-such-command", "no-such-command: No such file or directory", ENOENT},
              {"/etc/passwd", "/etc/passwd: Permission denied", EACCES}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    corral_error error = {0};
    corral_child *child = NULL;
    char *argv[] = {(char *)(size_t)rows[i].name, NULL};
    assert_int_equal(corral_child_start(argv, NULL, &child, &error), CORRAL_EINVAL);
    assert_null(child);
    assert_int_equal(error.code, rows[i].code);
    assert_string_equal(error.text, rows[i].text);
  }
}

static void what_is_not_valid_starts_nothing(void **state) {
  (void)state;
  corral_error error = {0};
  corral_child *child = NULL;
  char *argv[] = {"true", NULL}, *none[] = {NULL};
  corral_child_file many[CORRAL_CHILD_FILES_MAX + 1] = {{0, 1024}};
  assert_int_equal(corral_child_start(none, NULL, &child, &error), CORRAL_EINVAL);
  assert_int_equal(
      corral_child_start(argv, CORRAL_CHILD(.files = many, .file_count = 1), &child, &error),
      CORRAL_EINVAL);
  assert_string_equal(error.text, "a file's number is 1024: accepted are 0 to 1023");
  many[0].number = 1;
  assert_int_equal(corral_child_start(
                       argv, CORRAL_CHILD(.files = many, .file_count = CORRAL_CHILD_FILES_MAX + 1),
                       &child, &error),
                   CORRAL_EINVAL);
  assert_string_equal(error.text, "17 files: a command is given 16 at most");
  many[0].fd = 900; /* isn't open */
  assert_int_equal(
      corral_child_start(argv, CORRAL_CHILD(.files = many, .file_count = 1), &child, &error),
      CORRAL_EINVAL);
  assert_int_equal(error.code, EBADF);
  assert_int_equal(corral_child_start(argv, &(corral_child_options){0}, &child, &error),
                   CORRAL_EINVAL);
  assert_null(child);
  corral_child_free(NULL);
}

/* A caller in a process of its own: it locks a file, starts the script, and waits for its end. */
static pid_t be_caller(const char *script, int locked, int out) {
  pid_t pid = fork();
  if (pid != 0) return pid;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  corral_child *child;
  struct flock whole = {.l_type = F_WRLCK};
  corral_child_file files[] = {{out, 1}};
  char *argv[] = {"sh", "-c", (char *)(size_t)script, NULL};
  int status;
  if (fcntl(locked, F_OFD_SETLK, &whole) != 0 ||
      corral_child_start(argv, CORRAL_CHILD(.files = files, .file_count = 1), &child, NULL) !=
          CORRAL_OK)
    _exit(1);
  _exit(corral_child_wait(child, &status, NULL) == CORRAL_OK ? 0 : 1);
}

static void a_killed_caller_leaves_nothing_and_its_lock_lasts_until_then(void **state) {
  (void)state;
  /* a process that leaves the group and the session, and ignores what it can */
  static const char script[] = "trap '' TERM HUP INT; setsid sh -c 'echo $$; exec sleep 600' &\n"
                               "echo $$; wait";
  int ends[2], pids[2];
  char path[] = "lock_XXXXXX";
  int held = mkostemp(path, O_CLOEXEC);
  int wanted = open(path, O_RDWR | O_CLOEXEC);
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  pid_t caller = be_caller(script, held, ends[1]);
  close(ends[1]);
  close(held);
  for (int i = 0; i < 2; i++) pids[i] = number_of(ends[0]);
  assert_false(is_dead(pids[0]) || is_dead(pids[1]));
  assert_int_equal(kill(caller, SIGKILL), 0);
  struct flock whole = {.l_type = F_WRLCK};
  assert_int_equal(fcntl(wanted, F_OFD_SETLKW, &whole), 0);
  assert_true(is_dead(pids[0]) && is_dead(pids[1]));
  assert_int_equal(waitpid(caller, NULL, 0), caller);
  close(wanted);
  close(ends[0]);
  unlink(path);
}

static void a_freed_command_dies_with_all_that_descends_from_it(void **state) {
  (void)state;
  pid_t pids[2];
  shell it =
      begin("setsid sh -c 'echo $$; exec sleep 600' &\necho $$; wait", (corral_child_options){0});
  for (int i = 0; i < 2; i++) pids[i] = number_of(it.out);
  finish(&it);
  for (int i = 0; i < 2; i++) assert_true(is_dead(pids[i]));
}

static void what_a_command_has_left_behind_lives_on(void **state) {
  (void)state;
  shell it = begin("sleep 600 >/dev/null &\necho $!", (corral_child_options){0});
  pid_t left = number_of(it.out);
  assert_int_equal(status_of(&it), 0);
  finish(&it);
  assert_false(is_dead(left));
  assert_int_equal(kill(left, SIGKILL), 0);
  assert_dies(left);
}

static void a_signal_reaches_all_and_sigkill_is_over_when_all_are_dead(void **state) {
  (void)state;
  /* wait ends when a trap is due, sleep doesn't */
  static const char script[] =
      "trap : TERM\n"
      "setsid sh -c 'trap \"echo told\" TERM; echo $$; sleep 600 & while :; do wait; done' &\n"
      "while :; do wait; done";
  shell it = begin(script, (corral_child_options){0});
  pid_t below = number_of(it.out);
  assert_int_equal(corral_child_signal(it.child, SIGTERM), CORRAL_OK);
  assert_string_equal(line_of(it.out), "told\n");
  assert_int_equal(corral_child_signal(it.child, SIGKILL), CORRAL_OK);
  assert_int_equal(WTERMSIG(status_of(&it)), SIGKILL);
  assert_true(is_dead(below));
  assert_int_equal(corral_child_signal(it.child, 0), CORRAL_EINVAL);
  assert_int_equal(corral_child_signal(it.child, 1000), CORRAL_EINVAL);
  finish(&it);
}

/* The guard is the command's parent. */
static void a_killed_guard_ends_the_command_and_is_told(void **state) {
  (void)state;
  corral_error error = {0};
  int status = -1;
  shell it = begin("echo $$ $PPID; exec sleep 600", (corral_child_options){0});
  int command, guard;
  assert_int_equal(sscanf(line_of(it.out), "%d %d", &command, &guard), 2);
  assert_int_equal(kill(guard, SIGKILL), 0);
  for (int i = 0; i < 2; i++)
    assert_int_equal(corral_child_wait(it.child, &status, &error), CORRAL_EIO);
  assert_int_equal(error.code, EOWNERDEAD);
  assert_int_equal(status, -1);
  assert_dies(command);
  finish(&it);
}

static void the_guard_keeps_no_pipe_and_no_socket_open(void **state) {
  (void)state;
  int ends[2], pair[2];
  char byte;
  assert_int_equal(pipe2(ends, O_CLOEXEC), 0);
  assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
  shell it = begin("exec sleep 600", (corral_child_options){0});
  close(ends[1]);
  close(pair[1]);
  struct pollfd fds[2] = {{ends[0], POLLIN, 0}, {pair[0], POLLIN, 0}};
  for (int i = 0; i < 2; i++) {
    assert_int_equal(poll(&fds[i], 1, PATIENCE_MS), 1);
    assert_int_equal(read(fds[i].fd, &byte, 1), 0);
    close(fds[i].fd);
  }
  finish(&it);
}

static void signals_are_blocked_and_ignored_as_it_was_said(void **state) {
  (void)state;
  static const char script[] = "exec grep -E 'SigBlk|SigIgn' /proc/self/status";
  char expected[80];
  signal(SIGPIPE, SIG_IGN);
  signal(SIGUSR1, SIG_IGN);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  shell it = begin(script, (corral_child_options){.blocked = CORRAL_CHILD_SIGNAL(SIGUSR2),
                                                  .defaults = CORRAL_CHILD_SIGNAL(SIGPIPE)});
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  snprintf(expected, sizeof expected, "SigBlk:\t%016x\n", 1 << (SIGUSR2 - 1));
  assert_string_equal(line_of(it.out), expected);
  snprintf(expected, sizeof expected, "SigIgn:\t%016x\n", 1 << (SIGUSR1 - 1));
  assert_string_equal(line_of(it.out), expected);
  assert_int_equal(status_of(&it), 0);
  finish(&it);
  signal(SIGPIPE, SIG_DFL);
  signal(SIGUSR1, SIG_DFL);
}

static void *run_several(void *arg) {
  for (int i = 0; i < EACH; i++) {
    char script[80], expected[80];
    snprintf(script, sizeof script, "echo %p %d", arg, i);
    snprintf(expected, sizeof expected, "%p %d\n", arg, i);
    shell it = begin(script, (corral_child_options){0});
    assert_string_equal(line_of(it.out), expected);
    assert_string_equal(line_of(it.out), "");
    assert_int_equal(status_of(&it), 0);
    finish(&it);
  }
  return NULL;
}

static void threads_start_commands_at_once(void **state) {
  (void)state;
  pthread_t threads[THREADS];
  int names[THREADS];
  for (int i = 0; i < THREADS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, run_several, &names[i]), 0);
  for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_command_has_its_environment_its_files_and_an_end),
      cmocka_unit_test(files_may_exchange_their_numbers),
      cmocka_unit_test(what_can_not_be_executed_is_told_when_it_is_started),
      cmocka_unit_test(what_is_not_valid_starts_nothing),
      cmocka_unit_test(a_killed_caller_leaves_nothing_and_its_lock_lasts_until_then),
      cmocka_unit_test(a_freed_command_dies_with_all_that_descends_from_it),
      cmocka_unit_test(what_a_command_has_left_behind_lives_on),
      cmocka_unit_test(a_signal_reaches_all_and_sigkill_is_over_when_all_are_dead),
      cmocka_unit_test(a_killed_guard_ends_the_command_and_is_told),
      cmocka_unit_test(the_guard_keeps_no_pipe_and_no_socket_open),
      cmocka_unit_test(signals_are_blocked_and_ignored_as_it_was_said),
      cmocka_unit_test(threads_start_commands_at_once),
  };
  return cmocka_run_group_tests_name("child", tests, NULL, NULL);
}
