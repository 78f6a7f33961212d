/* run_child.c: one run of a command; the contract is in run_child.h.
 *
 * SIGINT, SIGTERM, SIGHUP and SIGQUIT (except ignored ones) are blocked and read from a signalfd
 * while the command runs, unless the caller handles signals. */
#include "run_child.h"

#include "cli.h"

#include <corral/child.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/signalfd.h>
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

/* The state of a run. */
typedef struct run {
  run_child *child;
  const run_child_job *job;
  corral_child *guarded;
  int end;       /* corral_child_fd; -1: nothing more comes of it */
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

static void close_pipes(int pipes[2][2]) {
  for (int i = 0; i < 2; i++)
    for (int k = 0; k < 2; k++) close_fd(&pipes[i][k]);
}

static bool take_signals(run *r) {
  if (r->job->mask == NULL) return (r->wake = cli_take_signals(&r->old_mask)) >= 0;
  r->old_mask = *r->job->mask;
  return true;
}

static uint64_t signals_of(const sigset_t *mask) {
  uint64_t bits = 0;
  for (int signo = 1; signo <= 64; signo++)
    if (sigismember(mask, signo) == 1) bits |= CORRAL_CHILD_SIGNAL(signo);
  return bits;
}

/* False with child->how and child->number. */
static bool start_guarded(run *r, int out, int err) {
  corral_error error = {0};
  name_lent(r);
  corral_child_file files[] = {{CORRAL_CHILD_NULL, STDIN_FILENO},
                               {out, STDOUT_FILENO},
                               {err, STDERR_FILENO},
                               {r->job->lent, r->lent_as}};
  int status = corral_child_start(
      r->job->argv,
      CORRAL_CHILD(.env = r->job->env, .files = files, .file_count = r->job->lent >= 0 ? 4 : 3,
                   .blocked = signals_of(&r->old_mask),
                   .defaults = r->job->heeds_pipe ? CORRAL_CHILD_SIGNAL(SIGPIPE) : 0),
      &r->guarded, &error);
  if (status == CORRAL_OK) {
    r->end = corral_child_fd(r->guarded);
    return true;
  }
  r->child->how = status == CORRAL_EINVAL ? RUN_NOT_STARTED : RUN_BROKEN;
  r->child->number = status == CORRAL_ENOMEM ? ENOMEM : error.code;
  return false;
}

/* The pipes are the streams. False as start_guarded. */
static bool start(run *r) {
  int pipes[2][2] = {{-1, -1}, {-1, -1}};
  bool ready =
      take_signals(r) && pipe2(pipes[0], O_CLOEXEC) == 0 && pipe2(pipes[1], O_CLOEXEC) == 0;
  if (!ready) {
    r->child->how = RUN_BROKEN;
    r->child->number = errno;
  }
  ready = ready && start_guarded(r, pipes[0][1], pipes[1][1]);
  for (int i = 0; i < 2 && ready; i++) {
    r->stream[i] = pipes[i][0];
    pipes[i][0] = -1;
    (void)fcntl(r->stream[i], F_SETPIPE_SZ, PIPE_ROOM);
  }
  close_pipes(pipes);
  return ready;
}

/* ---- while it runs ------------------------------------------------------------------------- */

/* Signals all that the command started; the first reason is the one that is reported. */
static void stop(run *r, run_how why, int number, int signo) {
  if (r->child->how == RUN_NOT) {
    r->child->how = why;
    r->child->number = number;
  }
  (void)corral_child_signal(r->guarded, signo);
  if (r->kill_at == 0 && why != RUN_INTERRUPTED) r->kill_at = cli_now_ms() + MERCY_MS;
}

static void read_signals(run *r) {
  struct signalfd_siginfo info;
  while (r->wake >= 0 && read(r->wake, &info, sizeof info) == (ssize_t)sizeof info)
    stop(r, RUN_INTERRUPTED, (int)info.ssi_signo, (int)info.ssi_signo);
}

/* The command has ended, or its guard has: then the kernel kills it. */
static void read_end(run *r) {
  r->end = -1;
  r->exited = true;
  if (corral_child_wait(r->guarded, &r->status, NULL) == CORRAL_OK) return;
  r->killed = true;
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
    (void)corral_child_signal(r->guarded, SIGKILL);
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
                            {r->end, POLLIN, 0},
                            {r->wake, POLLIN, 0}};
    (void)poll(fds, 4, TICK_MS);
    for (int i = 0; i < 2; i++) {
      if (fds[i].revents != 0) read_stream(r, i);
      show(r, i);
    }
    if (fds[2].revents != 0) read_end(r);
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
  run r = {.child = child, .job = job, .end = -1, .wake = -1, .stream = {-1, -1}};
  *child = (run_child){.how = RUN_NOT, .spool = {-1, -1}};
  r.limit_at = cli_now_ms() + job->limit_ms;
  if (start(&r)) {
    watch(&r);
    judge(&r);
  }
  corral_child_free(r.guarded);
  close_fd(&r.stream[0]);
  close_fd(&r.stream[1]);
  close_fd(&r.wake);
  if (job->mask == NULL) (void)sigprocmask(SIG_SETMASK, &r.old_mask, NULL);
}
