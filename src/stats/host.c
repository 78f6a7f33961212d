/* host.c: snapshots of all stats files of this host. Files are read, never mapped: whoever has one
 * may cut it short at any time. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/value.h"
#include "stats/folder.h"
#include "stats/owner.h"
#include "stats/snapshot.h"

enum {
  FILE_MOST = 1 << 20, /* bytes, whatever version made it */
  TRIES = 4,
  PAUSE_US = 200
};

#define SHARED "/dev/shm"

typedef struct telling {
  corral_stats_tell_fn *tell;
  void *arg;
  int result; /* of the last call of `tell` */
} telling;

/* ---- one file ------------------------------------------------------------------------------ */

static uint8_t *read_whole(int fd, size_t size) {
  uint8_t *bytes = crl_alloc(size);
  size_t got = 0;
  while (bytes != NULL && got < size) {
    ssize_t n = pread(fd, bytes + got, size - got, (off_t)got);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      free(bytes);
      return NULL;
    }
    got += (size_t)n;
  }
  return bytes;
}

static int is_turning(const corral_stats *s) { return s->numbers[CRL_NUMBER_TURN] % 2 != 0; }

/* A file that changes hands, or its hot keys, is read once more. */
static int read_file(int fd, size_t size, corral_stats **ret) {
  int status = CORRAL_EFOREIGN;
  *ret = NULL;
  for (int i = 0; i < TRIES; i++) {
    uint8_t *bytes = read_whole(fd, size);
    corral_stats_free(*ret);
    *ret = NULL;
    status = bytes == NULL ? CORRAL_EFOREIGN : crl_snapshot_parse(bytes, size, ret);
    free(bytes);
    if (status != CORRAL_OK) break;
    int is_dated = crl_snapshot_date_hot(*ret, crl_env_now_ms());
    if (!is_dated) crl_snapshot_drop_hot(*ret);
    if (is_dated && !is_turning(*ret)) break;
    crl_env_pause_us(PAUSE_US);
  }
  return status;
}

static int tell_file(telling *t, int dir, const char *name, uid_t uid) {
  struct stat st;
  corral_stats *s;
  int fd =
      crl_env_own_fd(openat(dir, name, O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) return CORRAL_OK;
  int status = fstat(fd, &st) == 0 && S_ISREG(st.st_mode) && st.st_uid == uid && st.st_size > 0 &&
                       st.st_size <= FILE_MOST
                   ? read_file(fd, (size_t)st.st_size, &s)
                   : CORRAL_EFOREIGN;
  if (status == CORRAL_OK && !crl_stats_file_is_owned(fd)) crl_snapshot_end(s);
  close(fd);
  if (status == CORRAL_OK) {
    t->result = t->tell(s, t->arg);
    corral_stats_free(s);
  }
  return status == CORRAL_EFOREIGN ? CORRAL_OK : status;
}

/* ---- one folder ---------------------------------------------------------------------------- */

/* `dir` is closed. */
static int tell_folder(telling *t, int dir) {
  struct stat st;
  crl_stats_names n = {0};
  int status = CORRAL_OK, is_there = fstat(dir, &st) == 0;
  DIR *open = fdopendir(dir);
  if (open == NULL) close(dir);
  if (open == NULL || !is_there) status = CORRAL_EIO;
  if (status == CORRAL_OK && !crl_stats_folder_list(open, &n, crl_stats_folder_is_file))
    status = CORRAL_ENOMEM;
  for (size_t i = 0; i < n.count && status == CORRAL_OK && t->result == 0; i++)
    status = tell_file(t, dir, n.all[i], st.st_uid);
  if (open != NULL) closedir(open);
  free(n.all);
  return status;
}

static int tell_named(telling *t, const char *path, corral_error *error) {
  int dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC), status = CORRAL_OK;
  if (dir < 0 && errno == ENOENT) return CORRAL_OK;
  if (dir >= 0) status = tell_folder(t, dir);
  if (dir < 0 || status == CORRAL_EIO)
    return crl_status_fail(error, CORRAL_EIO, "the stats folder %.150s: %s", path, strerror(errno));
  return status == CORRAL_OK ? status : crl_status_plain(error, status);
}

/* ---- the default ones ---------------------------------------------------------------------- */

static int is_users(const char *name) {
  unsigned long unused;
  return crl_stats_folder_is_users(name, &unused);
}

/* By the users' numbers: the system's own users come first. */
static int by_user(const void *a, const void *b) {
  unsigned long x = 0, y = 0;
  (void)crl_stats_folder_is_users(a, &x);
  (void)crl_stats_folder_is_users(b, &y);
  return (x > y) - (x < y);
}

/* A folder that isn't what its name says, or may not be read, is left out. */
static int tell_users(telling *t, const char *name) {
  char path[64];
  unsigned long uid;
  if (!crl_stats_folder_is_users(name, &uid)) return CORRAL_OK;
  crl_stats_folder_of(path, sizeof path, uid);
  int dir = crl_stats_folder_open(path, uid);
  if (dir < 0) return CORRAL_OK;
  int status = tell_folder(t, dir);
  return status == CORRAL_EIO ? CORRAL_OK : status;
}

static int tell_all(telling *t, corral_error *error) {
  crl_stats_names n = {0};
  DIR *open = opendir(SHARED);
  int status = CORRAL_OK;
  if (open == NULL) return CORRAL_OK;
  if (!crl_stats_folder_list(open, &n, is_users)) status = crl_status_plain(error, CORRAL_ENOMEM);
  closedir(open);
  if (n.count > 0) qsort(n.all, n.count, sizeof *n.all, by_user);
  for (size_t i = 0; i < n.count && status == CORRAL_OK && t->result == 0; i++)
    status = tell_users(t, n.all[i]);
  free(n.all);
  return status;
}

int corral_stats_host(const char *dir, corral_stats_tell_fn *tell, void *arg, corral_error *error) {
  telling t = {.tell = tell, .arg = arg};
  if (tell == NULL) return crl_status_fail(error, CORRAL_EINVAL, "corral_stats_host: no tell");
  if (dir == NULL) dir = secure_getenv("CORRAL_STATS_DIR");
  if (dir != NULL && strcmp(dir, "off") == 0) return CORRAL_OK;
  int status = dir == NULL || dir[0] == '\0' ? tell_all(&t, error) : tell_named(&t, dir, error);
  return status == CORRAL_OK ? t.result : status;
}
