/* lock_child.c: the guard of a command under a lock, and its messages; the contract is in
 * lock_child.h. */
#include "lock_child.h"

#include "cli.h"

#include <corral/child.h>
#include <corral/lock.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { KILL_AGAIN_MS = 5 };

/* Orders to the guard. */
typedef enum order { ORDER_GO = 1, ORDER_EXTEND, ORDER_SIGNAL, ORDER_STOP } order;

/* A message in either direction, one per packet. */
typedef struct packet {
  int32_t kind;   /* order, or lock_child_said */
  int32_t number; /* ORDER_GO: the ticket is the command's */
  int64_t until;  /* boot_ms */
  uint64_t fence;
  char ticket[CORRAL_LOCK_TICKET];
} packet;

/* The state of the guard process. */
typedef struct guard {
  char *const *argv;
  int64_t grace_ms;
  int link;
  int children; /* signalfd for SIGCHLD */
  pid_t parent;
  pid_t pid; /* the command's */
  int status;
  bool ended;     /* the command has ended */
  bool alone;     /* no descendant is left */
  bool signalled; /* a signal was handed on */
  bool stopping;
  int64_t until;
  int64_t kill_at; /* boot_ms; 0: no SIGKILL is due */
  const sigset_t *mask;
  const lock_child_heir *heir;
  char ticket[CORRAL_LOCK_TICKET]; /* the guard's; empty: none */
} guard;

/* Counts while the host sleeps, too, as the hold does. */
static int64_t boot_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_BOOTTIME, &t);
  return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

/* ---- the guard ----------------------------------------------------------------------------- */

static void say(const guard *g, lock_child_said said, int number) {
  packet p = {.kind = (int32_t)said, .number = number};
  (void)send(g->link, &p, sizeof p, MSG_NOSIGNAL | MSG_DONTWAIT);
}

/* In the child; never returns. */
static void become(const guard *g, int report, pid_t parent) {
  (void)prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(CLI_FAILED);
  (void)sigprocmask(SIG_SETMASK, g->mask, NULL);
  (void)execvp(g->argv[0], g->argv);
  int code = errno;
  (void)!write(report, &code, sizeof code);
  _exit(CLI_FAILED);
}

static bool set_environment(const packet *go) {
  char text[24];
  (void)snprintf(text, sizeof text, "%" PRIu64, go->fence);
  return setenv("CORRAL_FENCE", text, 1) == 0 &&
         (go->number != 0 && go->ticket[0] != '\0' ? setenv("CORRAL_LOCK_TICKET", go->ticket, 1)
                                                   : unsetenv("CORRAL_LOCK_TICKET")) == 0;
}

/* 0, or the errno of what failed. */
static int start(guard *g, const packet *go) {
  int report[2];
  int code = 0;
  pid_t self = getpid();
  if (!set_environment(go) || pipe2(report, O_CLOEXEC) != 0) return errno;
  g->pid = fork();
  if (g->pid == 0) become(g, report[1], self);
  if (g->pid < 0) code = errno;
  (void)close(report[1]);
  if (code == 0 && read(report[0], &code, sizeof code) != (ssize_t)sizeof code) code = 0;
  (void)close(report[0]);
  return code;
}

static void signal_all(const guard *g, int signo) {
  corral_descendants_signal(g->ended ? 0 : g->pid, signo);
}

/* SIGCONT, since a stopped process can't act on SIGTERM. */
static void stop(guard *g) {
  int64_t now = boot_ms();
  if (g->stopping) return;
  g->stopping = true;
  signal_all(g, SIGTERM);
  signal_all(g, SIGCONT);
  g->kill_at = now + g->grace_ms < g->until ? now + g->grace_ms : g->until;
  if (g->kill_at == 0) g->kill_at = 1;
}

/* Never returns. */
static void outlive_corral(guard *g) {
  corral_descendants_kill(g->ended ? 0 : g->pid);
  int64_t left_ms = g->until - boot_ms();
  if (g->ticket[0] != '\0' && left_ms > 0) g->heir->end(g->heir->arg, g->ticket, left_ms);
  _exit(0);
}

static void obey(guard *g) {
  packet p = {0};
  ssize_t n = recv(g->link, &p, sizeof p, MSG_DONTWAIT);
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n != (ssize_t)sizeof p) outlive_corral(g);
  if (p.kind == ORDER_EXTEND && p.until > g->until) g->until = p.until;
  if (p.kind == ORDER_STOP) stop(g);
  if (p.kind == ORDER_SIGNAL) g->signalled = true;
  if (p.kind == ORDER_SIGNAL && p.number != 0) signal_all(g, p.number);
}

static void reap(guard *g) {
  int status = 0;
  pid_t pid;
  struct signalfd_siginfo info;
  while (read(g->children, &info, sizeof info) == (ssize_t)sizeof info) continue;
  while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
    if (pid != g->pid) continue;
    g->ended = true;
    g->status = status;
  }
  g->alone = pid < 0 && errno == ECHILD;
  if (g->ended && g->signalled && g->kill_at == 0) g->kill_at = boot_ms() + g->grace_ms;
}

static void keep_time(guard *g) {
  int64_t now = boot_ms();
  if (!g->stopping && now >= g->until - g->grace_ms) {
    say(g, LOCK_CHILD_ENDING, 0);
    stop(g);
  }
  if (g->kill_at == 0 || now < g->kill_at) return;
  signal_all(g, SIGKILL);
  g->kill_at = now + KILL_AGAIN_MS;
}

static void watch(guard *g) {
  while (!g->ended || (!g->alone && g->kill_at != 0)) {
    int64_t next = g->kill_at != 0 ? g->kill_at : g->until - g->grace_ms;
    int64_t left = next - boot_ms();
    struct pollfd fds[2] = {{g->link, POLLIN, 0}, {g->children, POLLIN, 0}};
    (void)poll(fds, 2, left <= 0 ? 0 : left > 60000 ? 60000 : (int)left);
    if (fds[0].revents != 0) obey(g);
    reap(g);
    if (!g->ended || !g->alone) keep_time(g);
  }
}

static bool await_go(guard *g, packet *ret) {
  ssize_t n;
  do n = recv(g->link, ret, sizeof *ret, 0);
  while (n < 0 && errno == EINTR);
  g->until = ret->until;
  if (ret->number == 0) memcpy(g->ticket, ret->ticket, sizeof g->ticket);
  return n == (ssize_t)sizeof *ret && ret->kind == ORDER_GO;
}

/* Never returns. The guard leaves the process group once the command is in it: signals to the group
 * don't reach the guard. */
static void be_guard(guard *g) {
  packet go = {0};
  sigset_t all;
  sigset_t chld;
  (void)sigfillset(&all);
  (void)sigemptyset(&chld);
  (void)sigaddset(&chld, SIGCHLD);
  (void)sigprocmask(SIG_SETMASK, &all, NULL);
  (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
  g->children = signalfd(-1, &chld, SFD_CLOEXEC | SFD_NONBLOCK);
  if (!await_go(g, &go)) _exit(0);
  int code = g->children >= 0 ? start(g, &go) : errno;
  /* A session of its own keeps the signals of the terminal and of the group from the guard. A mere
   * group of its own would not do: at the end of the command, whose parent the guard is, the kernel
   * would hang up on a group with a stopped member and no shell behind it. */
  (void)setsid();
  cli_take_null(true);
  if (code == 0) {
    watch(g);
    say(g, LOCK_CHILD_ENDED, g->status);
  } else {
    say(g, LOCK_CHILD_NOT_STARTED, code);
  }
  _exit(0);
}

/* ---- corral's side ------------------------------------------------------------------------- */

bool lock_child_begin(lock_child *child, char *const argv[], int64_t grace_ms,
                      const lock_child_heir *heir) {
  int link[2];
  *child = (lock_child){.guard = -1, .link = -1, .signals = -1};
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, link) != 0) return false;
  child->link = link[0];
  child->signals = cli_take_signals(&child->old_mask);
  child->guard = child->signals >= 0 ? fork() : -1;
  if (child->guard == 0) {
    (void)close(link[0]);
    (void)close(child->signals);
    be_guard(&(guard){.argv = argv,
                      .grace_ms = grace_ms,
                      .link = link[1],
                      .mask = &child->old_mask,
                      .heir = heir});
  }
  int code = errno;
  (void)close(link[1]);
  if (child->guard > 0) {
    (void)prctl(PR_SET_CHILD_SUBREAPER, 1);
    (void)signal(SIGPIPE, SIG_IGN);
    cli_take_null(false);
    return true;
  }
  errno = code;
  return false;
}

static void order_guard(const lock_child *child, packet p) {
  (void)send(child->link, &p, sizeof p, MSG_NOSIGNAL);
}

void lock_child_go(const lock_child *child, uint64_t fence, const char *ticket, bool tells,
                   int64_t left_ms) {
  packet go = {.kind = ORDER_GO, .number = tells, .until = boot_ms() + left_ms, .fence = fence};
  (void)snprintf(go.ticket, sizeof go.ticket, "%s", ticket);
  order_guard(child, go);
}

void lock_child_extend(const lock_child *child, int64_t left_ms) {
  order_guard(child, (packet){.kind = ORDER_EXTEND, .until = boot_ms() + left_ms});
}

void lock_child_signal(const lock_child *child, int signo, bool told) {
  order_guard(child, (packet){.kind = ORDER_SIGNAL, .number = told ? 0 : signo});
}

void lock_child_stop(const lock_child *child) { order_guard(child, (packet){.kind = ORDER_STOP}); }

lock_child_said lock_child_hear(const lock_child *child, int *number) {
  packet p = {0};
  ssize_t n;
  /* A guard that ended with unread orders resets the link once; its earlier messages are still
   * there. */
  do n = recv(child->link, &p, sizeof p, 0);
  while (n < 0 && (errno == EINTR || errno == ECONNRESET));
  *number = p.number;
  return n == (ssize_t)sizeof p ? (lock_child_said)p.kind : LOCK_CHILD_GONE;
}

int lock_child_caught(const lock_child *child, bool *told) {
  struct signalfd_siginfo info;
  if (read(child->signals, &info, sizeof info) != (ssize_t)sizeof info) return 0;
  *told = info.ssi_code == SI_KERNEL;
  return (int)info.ssi_signo;
}

void lock_child_finish(lock_child *child) {
  int status = 0;
  if (child->link >= 0) (void)close(child->link);
  child->link = -1;
  while (child->guard > 0 && waitpid(child->guard, &status, 0) < 0 && errno == EINTR) continue;
  if (child->guard > 0 && (!WIFEXITED(status) || WEXITSTATUS(status) != 0))
    corral_descendants_kill(0);
  child->guard = -1;
}
