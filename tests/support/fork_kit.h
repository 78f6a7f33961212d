/* fork_kit.h: fork beside living threads.
 *
 * GCC 12's AddressSanitizer does not hold the locks of its allocator over a fork: a child forked
 * while another thread allocates can wait for such a lock for ever. A sleeping thread holds none */
#ifndef TESTS_FORK_KIT_H
#define TESTS_FORK_KIT_H

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* 1: the thread sleeps, or is gone. */
static inline int task_sleeps(const char *task) {
  char path[300], stat[256] = "";
  snprintf(path, sizeof path, "/proc/self/task/%.30s/stat", task);
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 1;
  ssize_t len = read(fd, stat, sizeof stat - 1);
  close(fd);
  const char *name_end = len > 0 ? strrchr(stat, ')') : NULL;
  return name_end == NULL || name_end[2] == 'S';
}

static inline int others_sleep(void) {
  char own[32];
  int all = 1;
  snprintf(own, sizeof own, "%ld", (long)syscall(SYS_gettid));
  DIR *tasks = opendir("/proc/self/task");
  if (tasks == NULL) return 1;
  for (const struct dirent *t; all && (t = readdir(tasks)) != NULL;)
    if (t->d_name[0] != '.' && strcmp(t->d_name, own) != 0) all = task_sleeps(t->d_name);
  closedir(tasks);
  return all;
}

/* fork(), as soon as all other threads sleep, after 5 s in any case. */
static inline pid_t fork_at_rest(void) {
  const struct timespec pause = {.tv_nsec = 1000000};
  for (int i = 0; i < 5000 && !others_sleep(); i++) nanosleep(&pause, NULL);
  return fork();
}

#endif
