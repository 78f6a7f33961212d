/* folder.c: the stats folder. */
#include "stats/folder.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/value.h"
#include "os/env.h"

enum { NAMES_MOST = 1 << 16, HASH = 16, DIGITS = 12 };

#define OWN "corral-stats."

/* ---- the folder ---------------------------------------------------------------------------- */

void crl_stats_folder_of(char *text, size_t size, unsigned long uid) {
  snprintf(text, size, "/dev/shm/" OWN "%lu", uid);
}

int crl_stats_folder_is_users(const char *name, unsigned long *ret_uid) {
  size_t len = strlen(OWN);
  if (strncmp(name, OWN, len) != 0) return 0;
  size_t digits = strspn(name + len, "0123456789");
  if (digits == 0 || digits >= DIGITS || name[len + digits] != '\0') return 0;
  *ret_uid = strtoul(name + len, NULL, 10);
  return 1;
}

int crl_stats_folder_open(const char *path, unsigned long uid) {
  struct stat st;
  int dir = crl_env_own_fd(open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (dir < 0) return -1;
  if (fstat(dir, &st) == 0 && st.st_uid == uid && (st.st_mode & (S_IWGRP | S_IWOTH)) == 0)
    return dir;
  close(dir);
  errno = EPERM;
  return -1;
}

/* ---- names --------------------------------------------------------------------------------- */

int crl_stats_folder_is_file(const char *name) {
  int i = 0;
  while (i < HASH && isxdigit((unsigned char)name[i])) i++;
  if (i < HASH || name[i++] != '.' || name[i] == '\0') return 0;
  while (isdigit((unsigned char)name[i])) i++;
  return name[i] == '\0' && i < HASH + DIGITS;
}

/* The name is one that fits. */
static int add_name(crl_stats_names *n, const char *name) {
  if (n->count == n->room) {
    size_t room = n->room == 0 ? 64 : 2 * n->room;
    char(*more)[CRL_STATS_NAME] = crl_alloc_more(n->all, room * sizeof *n->all);
    if (more == NULL) return 0;
    n->all = more;
    n->room = room;
  }
  memcpy(n->all[n->count++], name, strlen(name) + 1);
  return 1;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

int crl_stats_folder_list(DIR *open, crl_stats_names *ret, int (*fits)(const char *name)) {
  *ret = (crl_stats_names){.all = NULL};
  for (const struct dirent *e; ret->count < NAMES_MOST && (e = readdir(open)) != NULL;)
    if (fits(e->d_name) && !add_name(ret, e->d_name)) return 0;
  if (ret->count > 0) qsort(ret->all, ret->count, sizeof *ret->all, by_name);
  return 1;
}

int crl_stats_folder_has(int dir, const char *name, const struct stat *st) {
  struct stat there;
  return fstatat(dir, name, &there, AT_SYMLINK_NOFOLLOW) == 0 && there.st_dev == st->st_dev &&
         there.st_ino == st->st_ino;
}

/* ---- sweeping ------------------------------------------------------------------------------ */

typedef struct aged {
  struct timespec since; /* when a process had it last */
  const char *name;
} aged;

static int by_age(const void *a, const void *b) {
  const struct timespec *x = &((const aged *)a)->since, *y = &((const aged *)b)->since;
  if (x->tv_sec != y->tv_sec) return x->tv_sec < y->tv_sec ? -1 : 1;
  return (x->tv_nsec > y->tv_nsec) - (x->tv_nsec < y->tv_nsec);
}

/* 0: a process has it, or others have removed it, and made another one. */
static int remove_file(int dir, const char *name) {
  struct stat st;
  struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int fd =
      crl_env_own_fd(openat(dir, name, O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) return 0;
  int removed = fcntl(fd, F_OFD_SETLK, &all) == 0 && fstat(fd, &st) == 0 &&
                crl_stats_folder_has(dir, name, &st) && unlinkat(dir, name, 0) == 0;
  close(fd);
  return removed;
}

static void remove_oldest(int dir, const crl_stats_names *names, size_t count) {
  aged *all = crl_alloc(names->count * sizeof *all);
  for (size_t i = 0; all != NULL && i < names->count; i++) {
    struct stat st = {0};
    (void)fstatat(dir, names->all[i], &st, AT_SYMLINK_NOFOLLOW);
    all[i] = (aged){.since = st.st_mtim, .name = names->all[i]};
  }
  if (all != NULL) qsort(all, names->count, sizeof *all, by_age);
  for (size_t i = 0; all != NULL && i < names->count && count > 0; i++)
    count -= (size_t)remove_file(dir, all[i].name);
  free(all);
}

int crl_stats_folder_files(int dir, crl_stats_names *ret) {
  int again = crl_env_own_fd(openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  DIR *open = again < 0 ? NULL : fdopendir(again);
  *ret = (crl_stats_names){.all = NULL};
  if (open == NULL) {
    if (again >= 0) close(again);
    return 0;
  }
  int status = crl_stats_folder_list(open, ret, crl_stats_folder_is_file);
  closedir(open);
  return status;
}

void crl_stats_folder_sweep(int dir) {
  enum { STEP = 32 };
  crl_stats_names names;
  if (crl_stats_folder_files(dir, &names) && names.count > CRL_STATS_FOLDER_MOST &&
      (names.count - CRL_STATS_FOLDER_MOST) % STEP == 1)
    remove_oldest(dir, &names, names.count - CRL_STATS_FOLDER_MOST);
  free(names.all);
}
