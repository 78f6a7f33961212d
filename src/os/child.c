/* child.c: a command under a guard; the contract is in corral/child.h.
 *
 * Guard and caller talk over a socket, in numbers of type int: to the guard, signals to hand on,
 * SIGKILL, or OVER; from it, the command's pid and its status. The end of the socket is the
 * caller's death.
 *
 * The guard is forked without the handlers of fork: they would close the file of an lmdb: store by
 * whose locks others see that the leases of this process are alive. Both it and the command make
 * only async-signal-safe calls, for the caller may have threads. */
#include <corral/child.h>

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/sized.h"
#include "base/status.h"
#include "base/value.h"
#include "os/descendants.h"

/* NOT_EXECUTED: exit status that nobody sees. */
enum { OVER = 0, NOT_EXECUTED = 127, NUMBER_MOST = 1023 };

struct corral_child {
  pid_t guard;
  pid_t command;
  int link;   /* socket to the guard; -1: the guard is gone */
  int status; /* of the command, as from waitpid */
  int has_ended;
};

/* The arguments of the guard and of the command. */
typedef struct start {
  char *const *argv;
  char *const *env;
  const corral_child_options *options;
  int link;   /* the guard's end */
  int report; /* gets the errno of what kept the command from its exec */
} start;

static int hear(int link, int *number) {
  ssize_t n;
  /* A guard that ended with unread orders resets the link once; what it said is still there. */
  do n = recv(link, number, sizeof *number, 0);
  while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  return n == (ssize_t)sizeof *number;
}

static void tell(int link, int number) {
  (void)send(link, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* ---- the command, until its exec ----------------------------------------------------------- */

/* All are moved above the numbers that they get, so that none is overwritten. */
static int place_files(const corral_child_options *options, int *report) {
  int moved[CORRAL_CHILD_FILES_MAX];
  int above = STDERR_FILENO + 1;
  for (size_t i = 0; i < options->file_count; i++)
    if (options->files[i].number >= above) above = options->files[i].number + 1;
  *report = fcntl(*report, F_DUPFD_CLOEXEC, above);
  for (size_t i = 0; i < options->file_count; i++) {
    int fd = options->files[i].fd;
    if (fd == CORRAL_CHILD_NULL) fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    moved[i] = fcntl(fd, F_DUPFD_CLOEXEC, above);
    if (moved[i] < 0) return 0;
  }
  for (size_t i = 0; i < options->file_count; i++)
    if (dup2(moved[i], options->files[i].number) < 0) return 0;
  return 1;
}

static void set_signals(const corral_child_options *options) {
  sigset_t mask;
  (void)sigemptyset(&mask);
  for (int signo = 1; signo <= 64; signo++) {
    if ((options->defaults & CORRAL_CHILD_SIGNAL(signo)) != 0) (void)signal(signo, SIG_DFL);
    if ((options->blocked & CORRAL_CHILD_SIGNAL(signo)) != 0) (void)sigaddset(&mask, signo);
  }
  (void)sigprocmask(SIG_SETMASK, &mask, NULL);
}

/* Never returns. */
static void become(const start *s, pid_t parent) {
  int report = s->report;
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(NOT_EXECUTED);
  if (place_files(s->options, &report)) {
    set_signals(s->options);
    (void)execvpe(s->argv[0], s->argv, s->env);
  }
  int code = errno;
  (void)!write(report, &code, sizeof code);
  _exit(NOT_EXECUTED);
}

/* ---- the guard ----------------------------------------------------------------------------- */

/* Nonzero while the command runs; tells of its end. */
static int reap(int link, int children, pid_t command, int runs) {
  struct signalfd_siginfo info;
  int status;
  pid_t pid;
  while (read(children, &info, sizeof info) == (ssize_t)sizeof info) continue;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != command) continue;
    tell(link, status);
    runs = 0;
  }
  return runs;
}

/* The command may have been reaped with the other descendants: SIGKILL is its status then. */
static void obey(int link, pid_t command) {
  int signo = OVER;
  int is_alive = hear(link, &signo);
  if (is_alive && signo == OVER) _exit(0);
  if (is_alive && signo != SIGKILL) {
    corral_descendants_signal(command, signo);
    return;
  }
  corral_descendants_kill(command);
  if (!is_alive) _exit(0);
  tell(link, SIGKILL);
}

static void watch_over(int link, int children, pid_t command) {
  struct pollfd fds[2] = {{link, POLLIN, 0}, {children, POLLIN, 0}};
  for (int runs = 1;;) {
    (void)poll(fds, 2, -1);
    runs = reap(link, children, command, runs);
    if (fds[0].revents != 0) obey(link, runs ? command : 0);
  }
}

/* Never returns. */
static void be_guard(const start *s) {
  sigset_t signals, child;
  pid_t self = getpid();
  (void)sigfillset(&signals);
  (void)sigprocmask(SIG_SETMASK, &signals, NULL);
  (void)signal(SIGCHLD, SIG_DFL);
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)sigemptyset(&child);
  (void)sigaddset(&child, SIGCHLD);
  int children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  pid_t command = children >= 0 ? _Fork() : -1;
  if (command == 0) become(s, self);
  int code = errno;
  if (command < 0) (void)!write(s->report, &code, sizeof code);
  tell(s->link, command);
  (void)close(s->report);
  crl_descendants_close(s->link);
  if (command > 0) watch_over(s->link, children, command);
  _exit(0);
}

/* ---- the caller ---------------------------------------------------------------------------- */

static int check_files(const corral_child_options *options, corral_error *error) {
  if (options->file_count > CORRAL_CHILD_FILES_MAX)
    return crl_status_fail(error, CORRAL_EINVAL, "%zu files: a command is given %d at most",
                           options->file_count, CORRAL_CHILD_FILES_MAX);
  for (size_t i = 0; i < options->file_count; i++)
    if (options->files[i].number < 0 || options->files[i].number > NUMBER_MOST)
      return crl_status_fail(error, CORRAL_EINVAL, "a file's number is %d: accepted are 0 to %d",
                             options->files[i].number, NUMBER_MOST);
  return CORRAL_OK;
}

static int fail(corral_error *error, int status, int code, const char *what) {
  (void)crl_status_fail(error, status, "%.100s: %s", what, strerror(code));
  if (error != NULL) error->code = code;
  return status;
}

static void close_link(corral_child *child) {
  if (child->link >= 0) (void)close(child->link);
  child->link = -1;
}

/* `report` is the reading end of the guard's. */
static int await_exec(corral_child *child, int report, const char *name, corral_error *error) {
  int code = 0;
  ssize_t n;
  do n = read(report, &code, sizeof code);
  while (n < 0 && errno == EINTR);
  int is_forked = hear(child->link, &child->command) && child->command > 0;
  if (is_forked && n != (ssize_t)sizeof code) return CORRAL_OK;
  if (is_forked) return fail(error, CORRAL_EINVAL, code, name);
  return fail(error, CORRAL_EIO, n == (ssize_t)sizeof code ? code : EOWNERDEAD, "the guard");
}

/* Makes the guard, and waits until the command is executed. */
static int start_both(corral_child *child, start *s, corral_error *error) {
  int report[2], link[2];
  if (pipe2(report, O_CLOEXEC) != 0) return fail(error, CORRAL_EIO, errno, "the guard");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) != 0) {
    int code = errno;
    (void)close(report[0]);
    (void)close(report[1]);
    return fail(error, CORRAL_EIO, code, "the guard");
  }
  s->link = link[1];
  s->report = report[1];
  child->link = link[0];
  child->guard = _Fork();
  int code = errno;
  if (child->guard == 0) be_guard(s);
  (void)close(link[1]);
  (void)close(report[1]);
  int status = child->guard < 0 ? fail(error, CORRAL_EIO, code, "the guard")
                                : await_exec(child, report[0], s->argv[0], error);
  (void)close(report[0]);
  return status;
}

int corral_child_start(char *const argv[], const corral_child_options *user, corral_child **ret,
                       corral_error *error) {
  corral_child_options options = {.size = sizeof options};
  int status = CORRAL_OK;
  if (argv == NULL || argv[0] == NULL || ret == NULL)
    return crl_status_fail(error, CORRAL_EINVAL, "there is no command, or no place for the child");
  if (user != NULL)
    status = crl_sized_read(&options, user, sizeof options, "corral_child_options", error);
  if (status == CORRAL_OK) status = check_files(&options, error);
  if (status != CORRAL_OK) return status;
  corral_child *child = crl_alloc(sizeof *child);
  if (child == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  *child = (corral_child){.guard = -1, .link = -1};
  start s = {argv, options.env != NULL ? options.env : environ, &options, -1, -1};
  status = start_both(child, &s, error);
  if (status == CORRAL_OK)
    *ret = child;
  else
    corral_child_free(child);
  return status;
}

int corral_child_fd(const corral_child *child) { return child->link; }

int corral_child_signal(corral_child *child, int signo) {
  if (signo <= 0 || signo > SIGRTMAX) return CORRAL_EINVAL;
  if (child->link >= 0) tell(child->link, signo);
  return CORRAL_OK;
}

int corral_child_wait(corral_child *child, int *ret_status, corral_error *error) {
  if (!child->has_ended && child->link >= 0) {
    child->has_ended = hear(child->link, &child->status);
    if (!child->has_ended) {
      (void)kill(-child->command, SIGKILL);
      close_link(child);
    }
  }
  if (!child->has_ended) return fail(error, CORRAL_EIO, EOWNERDEAD, "the guard was killed");
  *ret_status = child->status;
  return CORRAL_OK;
}

void corral_child_free(corral_child *child) {
  if (child == NULL) return;
  if (child->has_ended) tell(child->link, OVER);
  close_link(child);
  while (child->guard > 0 && waitpid(child->guard, NULL, 0) < 0 && errno == EINTR) continue;
  free(child);
}
