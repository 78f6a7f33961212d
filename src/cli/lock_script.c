/* lock_script.c: the process whose own section a lock guards, and the name under which the keeper
 * of the lock is found.
 *
 * The name is a digest of store, namespace, lock, and the process with the time it began. It is one
 * of the kernel's (an abstract socket), in the network namespace of script and keeper. */
#include "lock.h"
#include "process.h"

#include <errno.h>
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

enum { PID_ROOM = 24 };

static bool read_pid(pid_t pid, process *ret) {
  char text[PID_ROOM];
  (void)snprintf(text, sizeof text, "%lld", (long long)pid);
  return process_read(text, ret);
}

/* A shell's copy of itself has its stack and arguments at the same place. */
static pid_t above_subshells(pid_t pid) {
  process it, parent;
  while (read_pid(pid, &it) && it.stack != 0 && read_pid(it.parent, &parent) &&
         parent.stack == it.stack && parent.words == it.words)
    pid = it.parent;
  return pid;
}

/* ---- the script ---------------------------------------------------------------------------- */

/* The time is read while the descriptor says that the process lives: so both are of one process.
 * The parent of this one can't have ended before it was opened, if it is still the parent. */
static bool open_process(lock_script *s) {
  process it;
  s->pidfd = (int)syscall(SYS_pidfd_open, s->pid, 0);
  if (s->pidfd < 0) return false;
  struct pollfd end = {s->pidfd, POLLIN, 0};
  bool is_there = read_pid(s->pid, &it) && poll(&end, 1, 0) == 0;
  s->start = is_there ? it.start : 0;
  if (!is_there) {
    (void)close(s->pidfd);
    errno = ESRCH;
  }
  return is_there;
}

/* A process that is left behind is given to another parent, of another session in general. That one
 * is not the script, and may be above many others. */
static bool is_left_behind(pid_t parent) {
  if (parent > 0 && getsid(parent) == getsid(0)) return false;
  cli_say("lock: the script that ran this command has ended, or is of another session; --pid names "
          "the process that is to have the lock");
  return true;
}

bool lock_script_find(const locking *l, lock_script *ret) {
  pid_t parent = getppid();
  if (l->want.pid == 0 && is_left_behind(parent)) return false;
  *ret = (lock_script){.pid = l->want.pid != 0 ? (int)l->want.pid : (int)above_subshells(parent)};
  bool is_open = open_process(ret);
  if (is_open && (l->want.pid != 0 || getppid() == parent)) return true;
  if (is_open) (void)close(ret->pidfd);
  if (l->want.pid != 0)
    cli_say("lock: --pid %d: %s", ret->pid,
            errno == ESRCH ? "there is no such process" : strerror(errno));
  else
    cli_say("lock: the process that runs this one can't be followed: %s", strerror(errno));
  return false;
}

/* ---- the keeper's socket ------------------------------------------------------------------- */

static socklen_t address_of(const locking *l, int pid, unsigned long long start,
                            struct sockaddr_un *address) {
  static char text[LOCK_NAME_MOST + 64];
  char digest[CLI_DIGEST_TEXT];
  int n = snprintf(text, sizeof text, "take:%d:%llu:%s", pid, start, l->want.name);
  cli_digest(l->cli, text, (size_t)n, digest);
  *address = (struct sockaddr_un){.sun_family = AF_UNIX};
  n = snprintf(address->sun_path + 1, sizeof address->sun_path - 1, "corral-lock-%s", digest);
  return (socklen_t)(offsetof(struct sockaddr_un, sun_path) + 1 + (size_t)n);
}

int lock_script_socket(const locking *l, const lock_script *script) {
  struct sockaddr_un address;
  socklen_t size = address_of(l, script->pid, script->start, &address);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0 || bind(fd, (const struct sockaddr *)&address, size) == 0) return fd;
  int code = errno;
  (void)close(fd);
  errno = code;
  return -1;
}

bool lock_script_is_own(int fd) {
  struct ucred peer;
  socklen_t size = sizeof peer;
  return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

static int connect_to(const locking *l, pid_t pid, const process *it) {
  struct sockaddr_un address;
  socklen_t size = address_of(l, (int)pid, it->start, &address);
  int fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, size) == 0 &&
      lock_script_is_own(fd))
    return fd;
  if (fd >= 0) (void)close(fd);
  return -1;
}

int lock_script_connect(const locking *l) {
  process it;
  pid_t pid = l->want.pid != 0 ? (pid_t)l->want.pid : getppid();
  for (int fd; pid > 0 && read_pid(pid, &it); pid = it.parent) {
    if ((fd = connect_to(l, pid, &it)) >= 0) return fd;
    if (l->want.pid != 0) return -1;
  }
  return -1;
}
