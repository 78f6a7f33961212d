/* descendants.c: the contracts are in descendants.h and corral/child.h. Processes are listed in
 * static arrays; those that don't fit are found in a later round. */
#include "os/descendants.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { KILL_AGAIN_MS = 5, MOST = 32768, LISTED = 32768, NUMBER_ROOM = 20, STAT_ROOM = 512 };

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
static _Alignas(entry) char listed[LISTED];

/* ---- what /proc lists ---------------------------------------------------------------------- */

/* The entries of a folder, from `at` to `end` in `listed`. */
typedef struct listing {
  int folder;
  long at;
  long end;
} listing;

static listing begin(const char *path) {
  return (listing){open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), 0, 0};
}

/* NULL at the end, and where there is no folder. */
static const char *next(listing *l) {
  if (l->at >= l->end) {
    l->at = 0;
    l->end = l->folder < 0 ? 0 : syscall(SYS_getdents64, l->folder, listed, sizeof listed);
    if (l->end <= 0) return NULL;
  }
  const entry *it = (const entry *)(const void *)(listed + l->at);
  l->at += it->size;
  return it->name;
}

static void end(const listing *l) {
  if (l->folder >= 0) (void)close(l->folder);
}

/* -1: `text` doesn't begin with a digit. */
static int number(const char *text) {
  int n = *text >= '0' && *text <= '9' ? 0 : -1;
  for (; *text >= '0' && *text <= '9' && n <= INT32_MAX / 10 - 1; text++) n = n * 10 + *text - '0';
  return n;
}

/* The fourth field of /proc/PID/stat, proc(5); -1: there is no such process. The name, the second
 * field, is in parentheses and may contain anything. */
static pid_t parent_of(int proc, const char *pid) {
  char path[NUMBER_ROOM + sizeof "/stat"] = "";
  char text[STAT_ROOM] = "";
  size_t len = strlen(pid);
  if (len > NUMBER_ROOM) return -1;
  memcpy(path, pid, len);
  memcpy(path + len, "/stat", sizeof "/stat");
  int fd = openat(proc, path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, sizeof text - 1) : -1;
  if (fd >= 0) (void)close(fd);
  const char *name_end = n > 0 ? strrchr(text, ')') : NULL;
  return name_end != NULL && strlen(name_end) > 4 ? number(name_end + 4) : -1;
}

static size_t list_processes(void) {
  size_t count = 0;
  listing proc = begin("/proc");
  for (const char *name; (name = next(&proc)) != NULL;) {
    pid_t pid = number(name);
    pid_t parent = pid > 0 ? parent_of(proc.folder, name) : -1;
    if (parent > 0 && count < MOST) all[count++] = (member){pid, parent};
  }
  end(&proc);
  return count;
}

/* ---- files --------------------------------------------------------------------------------- */

void crl_descendants_close(int kept) {
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  listing files = begin("/proc/self/fd");
  for (const char *name; (name = next(&files)) != NULL;) {
    struct stat it;
    int fd = number(name);
    if (fd < 0 || fd == kept || fstat(fd, &it) != 0) continue;
    if (!S_ISFIFO(it.st_mode) && !S_ISSOCK(it.st_mode)) continue;
    if (fd > STDERR_FILENO || dup2(null, fd) < 0) (void)close(fd);
  }
  end(&files);
  if (null > STDERR_FILENO) (void)close(null);
}

/* ---- signals ------------------------------------------------------------------------------- */

static int is_below(size_t count, pid_t pid) {
  for (size_t i = 0; i < count; i++)
    if (below[i] == pid) return 1;
  return 0;
}

void corral_descendants_signal(pid_t child, int signo) {
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

void corral_descendants_kill(pid_t child) {
  for (;;) {
    corral_descendants_signal(child, SIGKILL);
    child = 0;
    pid_t pid;
    while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) continue;
    if (pid < 0 && errno == ECHILD) return;
    (void)poll(NULL, 0, KILL_AGAIN_MS);
  }
}
