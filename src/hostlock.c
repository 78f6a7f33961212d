/* hostlock.c: the host's rung of the ladder: an election among the processes of one host, by one byte of a lock file. */
#include "hostlock.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include "env.h"
#include "status.h"
#include "value.h"

enum { PATH_ROOM = 4096, OPEN_TRIES = 8 };

struct crl_hostlock {
  uint64_t seed; /* of the scope */
  int own;       /* the folder is ours to make, and nobody else's to write to */
  char folder[PATH_ROOM];
};

/* ---- the file -------------------------------------------------------------------------------------------- */

static int is_folder(const char *path) {
  struct stat st;
  return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

/* The same for every process of the user, whatever its environment: a cron job must meet a login shell. */
static void choose_folder(crl_hostlock *lock, const char *folder) {
  if (folder == NULL || folder[0] == '\0') folder = secure_getenv("CORRAL_HOST_DIR");
  lock->own = folder == NULL || folder[0] == '\0';
  if (lock->own)
    snprintf(lock->folder, sizeof lock->folder, "%s/corral-%lu", is_folder("/dev/shm") ? "/dev/shm" : "/tmp", (unsigned long)geteuid());
  else
    snprintf(lock->folder, sizeof lock->folder, "%s", folder);
}

crl_hostlock *crl_hostlock_new(const char *folder, const char *scope) {
  crl_hostlock *lock = crl_alloc(sizeof *lock);
  if (lock == NULL) return NULL;
  lock->seed = XXH3_64bits(scope, strlen(scope));
  choose_folder(lock, folder);
  return lock;
}

void crl_hostlock_free(crl_hostlock *lock) { free(lock); }

/* A folder in a place where everybody may write could have been laid there by somebody else. */
static int check_folder(const crl_hostlock *lock, corral_error *error) {
  struct stat st;
  if (!lock->own) return CORRAL_OK;
  (void)mkdir(lock->folder, 0700);
  if (lstat(lock->folder, &st) != 0) return crl_status_fail(error, CORRAL_EIO, "%.120s: %s", lock->folder, strerror(errno));
  if (!S_ISDIR(st.st_mode)) return crl_status_fail(error, CORRAL_EIO, "%.120s: not a folder", lock->folder);
  if (st.st_uid != geteuid() || (st.st_mode & 022) != 0)
    return crl_status_fail(error, CORRAL_EIO, "%.120s: not a folder that only this user may write to", lock->folder);
  return CORRAL_OK;
}

static void path_of(const crl_hostlock *lock, char path[PATH_ROOM + 16]) {
  snprintf(path, PATH_ROOM + 16, "%s/corral.lock", lock->folder);
}

static int open_file(const crl_hostlock *lock, int *ret, corral_error *error) {
  char path[PATH_ROOM + 16];
  int flags = O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  path_of(lock, path);
  int fd = open(path, flags, lock->own ? 0600 : 0666);
  if (fd < 0 && errno == ENOENT) {
    int status = check_folder(lock, error);
    if (status != CORRAL_OK) return status;
    fd = open(path, flags, lock->own ? 0600 : 0666);
  }
  if (fd < 0) return crl_status_fail(error, CORRAL_EIO, "%.120s/corral.lock: %s", lock->folder, strerror(errno));
  *ret = fd;
  return CORRAL_OK;
}

/* The path may name another file by now: a cleaner of temporary files was at work. */
static int is_current(const crl_hostlock *lock, int fd) {
  struct stat ours, there;
  char path[PATH_ROOM + 16];
  path_of(lock, path);
  return fstat(fd, &ours) == 0 && stat(path, &there) == 0 && ours.st_dev == there.st_dev && ours.st_ino == there.st_ino;
}

/* ---- the byte -------------------------------------------------------------------------------------------- */

static struct flock byte_of(const crl_hostlock *lock, const void *key, size_t key_len, short type) {
  uint64_t at = XXH3_64bits_withSeed(key, key_len, lock->seed) & (uint64_t)(INT64_MAX >> 1);
  return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = (off_t)at, .l_len = 1};
}

int crl_hostlock_take(crl_hostlock *lock, const void *key, size_t key_len, int *ret_hold, corral_error *error) {
  struct flock byte = byte_of(lock, key, key_len, F_WRLCK);
  for (int i = 0; i < OPEN_TRIES; i++) {
    int fd = -1, status = open_file(lock, &fd, error);
    if (status == CORRAL_OK && i == 0) status = check_folder(lock, error);
    if (status != CORRAL_OK) {
      if (fd >= 0) close(fd);
      return status;
    }
    int failed = fcntl(fd, F_OFD_SETLK, &byte) != 0, why = errno;
    if (!failed && is_current(lock, fd)) {
      *ret_hold = fd;
      return CORRAL_OK;
    }
    close(fd);
    if (failed && (why == EAGAIN || why == EACCES)) return crl_status_plain(error, CORRAL_EBUSY);
    if (failed) return crl_status_fail(error, CORRAL_EIO, "%.120s/corral.lock: %s", lock->folder, strerror(why));
  }
  return crl_status_fail(error, CORRAL_EIO, "%.120s/corral.lock: is replaced again and again", lock->folder);
}

void crl_hostlock_give(int hold) {
  struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
  (void)fcntl(hold, F_OFD_SETLK, &all);
  close(hold);
}

void crl_hostlock_wait(crl_hostlock *lock, const void *key, size_t key_len, int64_t until) {
  int fd;
  if (open_file(lock, &fd, NULL) != CORRAL_OK) {
    crl_env_sleep_until(until);
    return;
  }
  for (int64_t pause = 100;; pause = pause < 2000 ? 2 * pause : 4000) {
    struct flock byte = byte_of(lock, key, key_len, F_WRLCK);
    if (fcntl(fd, F_OFD_GETLK, &byte) != 0 || byte.l_type == F_UNLCK || crl_env_now_ms() >= until) break;
    crl_env_pause_us(pause);
  }
  close(fd);
}
