/* streams_kit.h: a process without standard streams, and a check of the descriptors 0 to 2. */
#ifndef TESTS_STREAMS_KIT_H
#define TESTS_STREAMS_KIT_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/wait.h>
#include <unistd.h>

#include "fork_kit.h"

static inline int is_null(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 && S_ISCHR(st.st_mode) && st.st_rdev == makedev(1, 3);
}

static inline int is_closed(int fd) { return fcntl(fd, F_GETFD) < 0 && errno == EBADF; }

/* Runs `run` in a child with descriptors 0 to 2 closed. No other thread may exist yet: it could
 * hold the allocator's lock, and the child would wait for that forever. */
static inline pid_t begin_without_streams(int (*run)(void)) {
  (void)fflush(NULL);
  pid_t pid = fork_at_rest();
  assert_true(pid >= 0);
  if (pid != 0) return pid;
  for (int fd = 0; fd <= 2; fd++) close(fd);
  _exit(run());
}

static inline int exit_status_of(pid_t pid) {
  int end = 0;
  assert_int_equal(waitpid(pid, &end, 0), pid);
  assert_true(WIFEXITED(end));
  return WEXITSTATUS(end);
}

static inline int without_streams(int (*run)(void)) {
  return exit_status_of(begin_without_streams(run));
}

#endif
