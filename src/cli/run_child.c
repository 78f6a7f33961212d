/* run_child.c: one run of a command; the contract is in run_child.h.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT (except ignored ones) are blocked and read from a signalfd
 * while the command runs, unless the caller handles signals.
 *
 * The guard is forked without the handlers of fork: they would close the file of an lmdb: store by
 * whose locks others see that the leases of this process are alive. So when corral is killed, its
 * lease lives until its guard has killed the command, and no successor begins beside that.
 *
 * Only one thread at a time starts a command. Otherwise the fork of one thread would inherit the
 * write ends of another one's pipes, and its guard would keep them open. */
#include "run_child.h"

#include "cli.h"
#include "descendants.h"

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
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

enum {
  TICK_MS = 50,
  MERCY_MS = 1000,
  CHUNK = 65536,
  SHOWN_AT_ONCE = 4096, /* at most PIPE_BUF: a pipe that is ready takes so much */
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
  pid_t guard;
  pid_t pid;     /* the command's */
  int link;      /* socket to the guard, for numbers of type int; -1: closed */
  int lent_as;   /* number of the lent file in the command */
  int wake;      /* signalfd; -1: the caller handles signals */
  int stream[2]; /* -1 after its end */
  bool exited;
  int status;      /* of the command, as from waitpid */
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

/* In the command. Moves *report out of the way. */
static bool lend(const run *r, int *report) {
  if (r->job->lent < 0) return true;
  *report = fcntl(*report, F_DUPFD_CLOEXEC, LAST + 1);
  if (r->job->lent == r->lent_as) return fcntl(r->job->lent, F_SETFD, 0) == 0;
  return dup2(r->job->lent, r->lent_as) >= 0;
}

static void say_code(int report, int code) { (void)!write(report, &code, sizeof code); }

/* In the command; never returns. `report` gets errno when exec fails. */
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
    if (r->job->heeds_pipe) (void)signal(SIGPIPE, SIG_DFL);
    (void)sigprocmask(SIG_SETMASK, &r->old_mask, NULL);
    (void)execvpe(r->job->argv[0], r->job->argv, r->job->env != NULL ? r->job->env : environ);
  }
  say_code(report, errno);
  _exit(CLI_FAILED);
}

/* ---- the guard: only async-signal-safe calls, for the caller has threads -------------------- */

static void tell(int link, int number) {
  (void)send(link, &number, sizeof number, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* True while the command runs; tells of its end. */
static bool reap_some(int link, int children, pid_t command, bool runs) {
  struct signalfd_siginfo info;
  int status;
  pid_t pid;
  while (read(children, &info, sizeof info) == (ssize_t)sizeof info) continue;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != command) continue;
    tell(link, status);
    runs = false;
  }
  return runs;
}

/* A signal to hand on; 0: the run is over; none at all: the caller died. */
static void obey(int link, pid_t command) {
  int signo;
  ssize_t n;
  do n = recv(link, &signo, sizeof signo, 0);
  while (n < 0 && errno == EINTR);
  if (n != (ssize_t)sizeof signo || signo == SIGKILL) descendants_kill(command);
  if (n != (ssize_t)sizeof signo || signo == 0) _exit(0);
  if (signo == SIGKILL)
    tell(link, SIGKILL);
  else
    descendants_signal(command, signo);
}

static void watch_over(int link, int children, pid_t command) {
  struct pollfd fds[2] = {{link, POLLIN, 0}, {children, POLLIN, 0}};
  for (bool runs = true;;) {
    (void)poll(fds, 2, TICK_MS);
    runs = reap_some(link, children, command, runs);
    if (fds[0].revents != 0) obey(link, runs ? command : 0);
  }
}

static void close_pipes(int pipes[3][2]) {
  for (int i = 0; i < 3; i++)
    for (int k = 0; k < 2; k++) close_fd(&pipes[i][k]);
}

/* Never returns. */
static void be_guard(const run *r, int link, int pipes[3][2]) {
  sigset_t signals, child;
  pid_t self = getpid();
  (void)sigfillset(&signals);
  (void)sigprocmask(SIG_SETMASK, &signals, NULL);
  (void)setpgid(0, 0);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  (void)sigemptyset(&child);
  (void)sigaddset(&child, SIGCHLD);
  int children = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
  pid_t command = _Fork();
  if (command == 0) become(r, pipes[0][1], pipes[1][1], pipes[2][1], self);
  if (command < 0) say_code(pipes[2][1], errno);
  tell(link, command);
  close_pipes(pipes);
  if (command > 0) watch_over(link, children, command);
  _exit(0);
}

static void end_guard(run *r) {
  if (r->guard <= 0) return;
  tell(r->link, 0);
  close_fd(&r->link);
  while (waitpid(r->guard, NULL, 0) < 0 && errno == EINTR) continue;
}

/* ---- the caller ----------------------------------------------------------------------------- */

static bool take_signals(run *r) {
  if (r->job->mask == NULL) return (r->wake = cli_take_signals(&r->old_mask)) >= 0;
  r->old_mask = *r->job->mask;
  return true;
}

static bool hear(run *r, int *number) {
  ssize_t n;
  /* A guard that ended with unread orders resets the link once; what it said is still there. */
  do n = recv(r->link, number, sizeof *number, 0);
  while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  return n == (ssize_t)sizeof *number;
}

/* Makes the guard, and waits until the command is executed. 0, or the errno of what failed; then
 * child->how may be RUN_NOT_STARTED. */
static int start(run *r, int pipes[3][2]) {
  int link[2], exec_error = 0;
  for (int i = 0; i < 3; i++)
    if (pipe2(pipes[i], O_CLOEXEC) != 0) return errno;
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) != 0) return errno;
  name_lent(r);
  r->link = link[0];
  r->guard = _Fork();
  int code = errno;
  if (r->guard == 0) {
    (void)close(link[0]);
    be_guard(r, link[1], pipes);
  }
  (void)close(link[1]);
  for (int i = 0; i < 3; i++) close_fd(&pipes[i][1]);
  if (r->guard < 0) return code;
  bool failed = read(pipes[2][0], &exec_error, sizeof exec_error) == (ssize_t)sizeof exec_error;
  if (!hear(r, &r->pid)) return EOWNERDEAD;
  if (!failed) return 0;
  r->child->how = RUN_NOT_STARTED;
  r->child->number = exec_error;
  return exec_error;
}

/* Pipes 0 and 1 are the streams, 2 reports a failing exec. False with errno set, or with
 * RUN_NOT_STARTED. */
static bool start_both(run *r) {
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
  (void)pthread_mutex_lock(&starting);
  int code = start(r, pipes);
  (void)pthread_mutex_unlock(&starting);
  for (int i = 0; i < 2 && code == 0; i++) {
    r->stream[i] = pipes[i][0];
    pipes[i][0] = -1;
    (void)fcntl(r->stream[i], F_SETPIPE_SZ, PIPE_ROOM);
  }
  close_pipes(pipes);
  errno = code;
  return code == 0;
}

/* ---- while it runs ------------------------------------------------------------------------- */

/* Signals all that the command started; the first reason is the one that is reported. */
static void stop(run *r, run_how why, int number, int signo) {
  if (r->child->how == RUN_NOT) {
    r->child->how = why;
    r->child->number = number;
  }
  tell(r->link, signo);
  if (r->kill_at == 0 && why != RUN_INTERRUPTED) r->kill_at = cli_now_ms() + MERCY_MS;
}

static void read_signals(run *r) {
  struct signalfd_siginfo info;
  while (r->wake >= 0 && read(r->wake, &info, sizeof info) == (ssize_t)sizeof info)
    stop(r, RUN_INTERRUPTED, (int)info.ssi_signo, (int)info.ssi_signo);
}

/* The command has ended, or its guard has: then the kernel kills it. */
static void read_link(run *r) {
  int status = 0;
  if (hear(r, &status)) {
    if (!r->exited) r->status = status;
    r->exited = true;
    return;
  }
  (void)kill(-r->pid, SIGKILL);
  close_fd(&r->link);
  r->exited = r->killed = true;
  if (r->child->how != RUN_NOT) return;
  r->child->how = RUN_BROKEN;
  r->child->number = EOWNERDEAD;
}

/* Passes on what the spool has, as far as the reader takes it without a wait. */
static void show(run *r, int i) {
  static const int targets[] = {STDOUT_FILENO, STDERR_FILENO};
  char chunk[SHOWN_AT_ONCE];
  run_child *child = r->child;
  while (r->job->live[i] && child->shown[i] < child->size[i]) {
    struct pollfd target = {targets[i], POLLOUT, 0};
    if (poll(&target, 1, 0) <= 0) return;
    ssize_t n = pread(child->spool[i], chunk, sizeof chunk, (off_t)child->shown[i]);
    if (n > 0) n = write(targets[i], chunk, (size_t)n);
    if (n <= 0) return;
    child->shown[i] += (uint64_t)n;
  }
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
    tell(r->link, SIGKILL);
    r->killed = true;
  }
}

/* A process that can't be killed may hold a stream open; after SIGKILL the run doesn't wait for
 * that. */
static bool ended(const run *r) {
  bool drained = r->stream[0] < 0 && r->stream[1] < 0;
  return r->exited && (drained || r->killed);
}

static void watch(run *r) {
  while (!ended(r)) {
    struct pollfd fds[4] = {{r->stream[0], POLLIN, 0},
                            {r->stream[1], POLLIN, 0},
                            {r->link, POLLIN, 0},
                            {r->wake, POLLIN, 0}};
    (void)poll(fds, 4, TICK_MS);
    for (int i = 0; i < 2; i++) {
      if (fds[i].revents != 0) read_stream(r, i);
      show(r, i);
    }
    if (fds[2].revents != 0) read_link(r);
    read_signals(r);
    keep_time(r);
  }
}

static void judge(run *r) {
  if (r->child->how != RUN_NOT) return;
  r->child->how = WIFSIGNALED(r->status) ? RUN_SIGNALLED : RUN_EXITED;
  r->child->number = WIFSIGNALED(r->status) ? WTERMSIG(r->status) : WEXITSTATUS(r->status);
}

void run_child_do(run_child *child, const run_child_job *job) {
  run r = {.child = child, .job = job, .guard = -1, .link = -1, .wake = -1, .stream = {-1, -1}};
  *child = (run_child){.how = RUN_NOT, .spool = {-1, -1}};
  r.limit_at = cli_now_ms() + job->limit_ms;
  bool ready = take_signals(&r) && start_both(&r);
  int code = errno;
  if (ready) watch(&r);
  end_guard(&r);
  if (ready) {
    judge(&r);
  } else if (child->how == RUN_NOT) {
    child->how = RUN_BROKEN;
    child->number = code;
  }
  close_fd(&r.stream[0]);
  close_fd(&r.stream[1]);
  close_fd(&r.wake);
  close_fd(&r.link);
  if (job->mask == NULL) (void)sigprocmask(SIG_SETMASK, &r.old_mask, NULL);
}
