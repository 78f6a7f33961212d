/* process.c: the contract is in process.h; the fields are those of /proc/PID/stat, proc(5). */
#include "process.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { PATH_ROOM = 64, TEXT_ROOM = 1024, PARENT = 4, START = 22, STACK = 28, WORDS = 48 };

/* The number at the start of a text; 0: there is none. */
static unsigned long long number(const char *text) {
  unsigned long long n = 0;
  for (; *text >= '0' && *text <= '9'; text++) n = n * 10 + (unsigned long long)(*text - '0');
  return n;
}

static bool read_stat(const char *pid, char text[TEXT_ROOM]) {
  char path[PATH_ROOM] = "/proc/";
  size_t len = strlen(pid);
  if (len > 20) return false;
  memcpy(path + 6, pid, len);
  memcpy(path + 6 + len, "/stat", sizeof "/stat");
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd >= 0 ? read(fd, text, TEXT_ROOM - 1) : -1;
  if (fd >= 0) (void)close(fd);
  text[n > 0 ? n : 0] = '\0';
  return n > 0;
}

/* The name, the second field, is in parentheses and may contain anything. */
bool process_read(const char *pid, process *ret) {
  char text[TEXT_ROOM];
  const char *at = read_stat(pid, text) ? strrchr(text, ')') : NULL;
  if (at == NULL) return false;
  *ret = (process){0};
  for (int field = 2; at != NULL; field++, at = strchr(at + 1, ' ')) {
    if (field == PARENT) ret->parent = (pid_t)number(at + 1);
    if (field == START) ret->start = number(at + 1);
    if (field == STACK) ret->stack = number(at + 1);
    if (field == WORDS) ret->words = number(at + 1);
  }
  return true;
}
