/* descendants.c: the contract is in descendants.h. Processes are listed in static arrays; those
 * that don't fit are found in a later round. */
#include "descendants.h"

#include "process.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_AGAIN_MS = 5, MOST = 32768, LISTED = 32768 };

typedef struct member {
  pid_t pid;
  pid_t parent;
} member;

/* An entry of a folder, as the kernel writes it. */
typedef struct entry {
  uint64_t inode;
  int64_t next;
  unsigned short size;
  unsigned char type;
  char name[];
} entry;

static member all[MOST];
static pid_t below[MOST + 1];

static size_t list_processes(void) {
  static _Alignas(entry) char listed[LISTED];
  size_t count = 0;
  long n;
  int proc = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  while (proc >= 0 && (n = syscall(SYS_getdents64, proc, listed, sizeof listed)) > 0)
    for (long at = 0; at < n; at += ((const entry *)(const void *)(listed + at))->size) {
      const char *name = ((const entry *)(const void *)(listed + at))->name;
      pid_t pid = (pid_t)process_number(name);
      process it;
      if (pid > 0 && process_read(name, &it) && it.parent > 0 && count < MOST)
        all[count++] = (member){pid, it.parent};
    }
  if (proc >= 0) (void)close(proc);
  return count;
}

static bool is_below(size_t count, pid_t pid) {
  for (size_t i = 0; i < count; i++)
    if (below[i] == pid) return true;
  return false;
}

void descendants_signal(pid_t child, int signo) {
  size_t count = list_processes();
  size_t found = 1;
  below[0] = getpid();
  for (size_t before = 0; before != found;) {
    before = found;
    for (size_t i = 0; i < count; i++)
      if (is_below(found, all[i].parent) && !is_below(found, all[i].pid))
        below[found++] = all[i].pid;
  }
  for (size_t i = 1; i < found; i++) (void)kill(below[i], signo);
  if (child > 0 && !is_below(found, child)) (void)kill(child, signo);
}

void descendants_kill(pid_t child) {
  for (;;) {
    descendants_signal(child, SIGKILL);
    child = 0;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (pid < 0 && errno == ECHILD) return;
    (void)poll(NULL, 0, KILL_AGAIN_MS);
  }
}
