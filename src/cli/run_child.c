/* run_child.c: one run of a command; the contract is in run_child.h.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT (except ignored ones) and SIGCHLD are blocked and read from a
 * signalfd while the command runs; if the caller handles signals, the command's pidfd tells of its
 * end. The command stays a zombie until the end, so that the number of its process group can't
 * become another group's before that group is killed.
 *
 * Only one thread at a time starts a command. Otherwise the fork of one thread would inherit the
 * write ends of another one's pipes, and its guard would keep them open. */
#include "run_child.h"

#include "cli.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  TICK_MS = 50,
  MERCY_MS = 1000,
  CHUNK = 65536,
  PIPE_ROOM = 1 << 20,
  FIRST = 3,
  LAST = 9 /* FIRST to LAST: descriptors that a shell can name */
};

static const char old_variable[] = "CORRAL_OLD_FD";
static pthread_mutex_t starting = PTHREAD_MUTEX_INITIALIZER;

/* The state of a run. */
typedef struct run {
  run_child *child;
  const run_child_job *job;
  pid_t pid;
  pid_t guard;
  int guard_pipe; /* closed without a byte: the guard kills the group; one byte: it doesn't */
  int lent_as;    /* number of the lent file in the command */
  /* signalfd; if the caller handles signals: pidfd, or -1 where there is none */
  int wake;
  int stream[2];   /* -1 after its end */
  bool exited;     /* the command is a zombie */
  bool killed;     /* SIGKILL was sent */
  int64_t kill_at; /* cli_now_ms, when SIGKILL follows SIGTERM; 0: nothing was sent */
  int64_t limit_at;
  sigset_t old_mask;
} run;

/* ---- files --------------------------------------------------------------------------------- */

static void close_fd(int *fd) {
  if (*fd >= 0) (void)close(*fd);
  *fd = -1;
}

/* In TMPDIR; in memory when that folder can't have such a file. */
int run_child_file(void) {
  const char *folder = getenv("TMPDIR");
  if (folder == NULL || folder[0] == '\0') folder = "/tmp";
  int fd = open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  return fd >= 0 ? fd : memfd_create("corral-run", MFD_CLOEXEC);
}

/* The first bytes make the file: an empty stream has none. */
static bool spool_write(run_child *child, int i, const char *data, size_t size) {
  if (child->spool[i] < 0) child->spool[i] = run_child_file();
  return child->spool[i] >= 0 && cli_write(child->spool[i], data, size);
}

void run_child_close(run_child *child) {
  for (int i = 0; i < 2; i++) close_fd(&child->spool[i]);
}

/* ---- start --------------------------------------------------------------------------------- */

/* The number under which the command gets a file: a free one of one digit, since a shell can't name
 * others. A number without FD_CLOEXEC was handed down to this process, and is the command's
 * already. */
static int number_for(int fd) {
  for (int number = FIRST; number <= LAST; number++) {
    int flags = fcntl(number, F_GETFD);
    if (flags < 0 || (flags & FD_CLOEXEC) != 0) return number;
  }
  return fd;
}

static void name_lent(run *r) {
  char text[16];
  if (r->job->env != NULL) return;
  if (r->job->lent >= 0) {
    r->lent_as = number_for(r->job->lent);
    (void)snprintf(text, sizeof text, "%d", r->lent_as);
    (void)setenv(old_variable, text, 1);
  } else {
    (void)unsetenv(old_variable);
  }
}

/* In the child. Moves *report out of the way. */
static bool lend(const run *r, int *report) {
  if (r->job->lent < 0) return true;
  *report = fcntl(*report, F_DUPFD_CLOEXEC, LAST + 1);
  if (r->job->lent == r->lent_as) return fcntl(r->job->lent, F_SETFD, 0) == 0;
  return dup2(r->job->lent, r->lent_as) >= 0;
}

/* In the child; never returns. `report` gets errno when exec fails. */
static void become(const run *r, int out, int err, int report, pid_t parent) {
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(CLI_FAILED);
  int null = open("/dev/null", O_RDONLY);
  bool ready = null >= 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(out, STDOUT_FILENO) >= 0 &&
               dup2(err, STDERR_FILENO) >= 0;
  /* closed before the lent file may get its number */
  if (ready && null > STDERR_FILENO) (void)close(null);
  if (ready && lend(r, &report)) {
    (void)sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    (void)execvpe(r->job->argv[0], r->job->argv, r->job->env != NULL ? r->job->env : environ);
  }
  int code = errno;
  (void)!write(report, &code, sizeof code);
  _exit(CLI_FAILED);
}

/* In the guard; never returns. Only async-signal-safe calls: the caller has threads. */
static void guard(int control, pid_t group) {
  sigset_t all;
  (void)sigfillset(&all);
  (void)sigprocmask(SIG_SETMASK, &all, NULL);
  (void)setpgid(0, 0);
  char byte;
  ssize_t n;
  do n = read(control, &byte, 1);
  while (n < 0 && errno == EINTR);
  if (n != 1) (void)kill(-group, SIGKILL);
  _exit(0);
}

/* A run without a guard goes on: the kernel still ties the command to the caller. */
static void start_guard(run *r) {
  int control[2];
  r->guard = -1;
  r->guard_pipe = -1;
  if (pipe2(control, O_CLOEXEC) != 0) return;
  r->guard = fork();
  if (r->guard == 0) {
    (void)close(control[1]);
    guard(control[0], r->pid);
  }
  (void)close(control[0]);
  r->guard_pipe = control[1];
  if (r->guard < 0) close_fd(&r->guard_pipe);
}

static void end_guard(run *r) {
  if (r->guard < 0) return;
  (void)!write(r->guard_pipe, "", 1);
  close_fd(&r->guard_pipe);
  while (waitpid(r->guard, NULL, 0) < 0 && errno == EINTR) continue;
}

static bool take_signals(run *r) {
  if (r->job->mask == NULL) return (r->wake = cli_take_signals(true, &r->old_mask)) >= 0;
  r->old_mask = *r->job->mask;
  return true;
}

/* Pipes 0 and 1 are the streams, 2 reports a failing exec. False with errno set, or with
 * RUN_NOT_STARTED. */
static bool start(run *r) {
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
  pid_t parent = getpid();
  int code = 0;
  for (int i = 0; i < 3; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0) code = errno;
  name_lent(r);
  if (code == 0) r->pid = fork();
  if (r->pid == 0 && code == 0) become(r, pipes[0][1], pipes[1][1], pipes[2][1], parent);
  if (r->pid < 0 && code == 0) code = errno;
  for (int i = 0; i < 3; i++) close_fd(&pipes[i][1]);
  int exec_error = 0;
  if (code == 0) {
    (void)setpgid(r->pid, r->pid);
    if (read(pipes[2][0], &exec_error, sizeof exec_error) == (ssize_t)sizeof exec_error) {
      (void)waitpid(r->pid, NULL, 0);
      r->child->how = RUN_NOT_STARTED;
      r->child->number = exec_error;
    }
  }
  close_fd(&pipes[2][0]);
  for (int i = 0; i < 2; i++) {
    r->stream[i] = pipes[i][0];
    (void)fcntl(r->stream[i], F_SETPIPE_SZ, PIPE_ROOM);
  }
  errno = code;
  return code == 0 && r->child->how == RUN_NOT;
}

/* ---- while it runs ------------------------------------------------------------------------- */

/* Sends `signo` to the group; the first reason is the one that is reported. */
static void stop(run *r, run_how why, int number, int signo) {
  if (r->child->how == RUN_NOT) {
    r->child->how = why;
    r->child->number = number;
  }
  (void)kill(-r->pid, signo);
  if (r->kill_at == 0 && why != RUN_INTERRUPTED) r->kill_at = cli_now_ms() + MERCY_MS;
}

static void read_signals(run *r) {
  struct signalfd_siginfo info;
  while (r->job->mask == NULL && read(r->wake, &info, sizeof info) == (ssize_t)sizeof info)
    if (info.ssi_signo != SIGCHLD)
      stop(r, RUN_INTERRUPTED, (int)info.ssi_signo, (int)info.ssi_signo);
  siginfo_t state = {0};
  if (!r->exited && waitid(P_PID, (id_t)r->pid, &state, WEXITED | WNOHANG | WNOWAIT) == 0)
    r->exited = state.si_pid == r->pid;
}

static void read_stream(run *r, int i) {
  char chunk[CHUNK];
  ssize_t n = read(r->stream[i], chunk, sizeof chunk);
  if (n < 0 && errno == EINTR) return;
  if (n <= 0) {
    close_fd(&r->stream[i]);
    return;
  }
  if (r->child->how == RUN_BROKEN) return;
  if (spool_write(r->child, i, chunk, (size_t)n))
    r->child->size[i] += (uint64_t)n;
  else
    stop(r, RUN_BROKEN, errno, SIGTERM);
}

static void keep_time(run *r) {
  int64_t now = cli_now_ms();
  if (r->kill_at == 0 && now >= r->limit_at)
    stop(r, RUN_LIMIT, 0, SIGTERM);
  else if (r->kill_at == 0 && r->job->should_stop(r->job->arg))
    stop(r, RUN_STOPPED, 0, SIGTERM);
  else if (r->kill_at != 0 && now >= r->kill_at && !r->killed) {
    (void)kill(-r->pid, SIGKILL);
    r->killed = true;
  }
}

/* A process that left the group may hold a stream open; after SIGKILL the run doesn't wait for
 * that. */
static bool ended(const run *r) {
  bool drained = r->stream[0] < 0 && r->stream[1] < 0;
  return r->exited && (drained || r->killed);
}

static void watch(run *r) {
  while (!ended(r)) {
    bool is_spent = r->exited && r->job->mask != NULL; /* a pidfd stays readable */
    struct pollfd fds[3] = {
        {r->stream[0], POLLIN, 0}, {r->stream[1], POLLIN, 0}, {is_spent ? -1 : r->wake, POLLIN, 0}};
    (void)poll(fds, 3, TICK_MS);
    for (int i = 0; i < 2; i++)
      if (fds[i].revents != 0) read_stream(r, i);
    read_signals(r);
    keep_time(r);
  }
}

static void reap(run *r) {
  int status = 0;
  while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR) continue;
  if (r->child->how != RUN_NOT) return;
  r->child->how = WIFSIGNALED(status) ? RUN_SIGNALLED : RUN_EXITED;
  r->child->number = WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

/* False with errno set, or with RUN_NOT_STARTED. */
static bool start_both(run *r) {
  (void)pthread_mutex_lock(&starting);
  bool ok = start(r);
  int code = errno;
  if (ok) start_guard(r);
  (void)pthread_mutex_unlock(&starting);
  errno = code;
  return ok;
}

void run_child_do(run_child *child, const run_child_job *job) {
  run r = {.child = child,
           .job = job,
           .pid = -1,
           .guard = -1,
           .guard_pipe = -1,
           .wake = -1,
           .stream = {-1, -1}};
  *child = (run_child){.how = RUN_NOT, .spool = {-1, -1}};
  r.limit_at = cli_now_ms() + job->limit_ms;
  bool ready = take_signals(&r);
  if (ready && start_both(&r)) {
    if (job->mask != NULL) r.wake = (int)syscall(SYS_pidfd_open, r.pid, 0);
    watch(&r);
    end_guard(&r);
    reap(&r);
  } else if (child->how == RUN_NOT) {
    child->how = RUN_BROKEN;
    child->number = errno;
  }
  close_fd(&r.stream[0]);
  close_fd(&r.stream[1]);
  close_fd(&r.wake);
  if (job->mask == NULL) (void)sigprocmask(SIG_SETMASK, &r.old_mask, NULL);
}
