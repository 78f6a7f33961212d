/* hostlock.c: the host lock, a rung of the ladder: an election among the processes of one host, by
 * one byte of a lock file.
 *
 * A child that a holder forks shares its open file description until it executes another program.
 * `corral run` relies on that: its guard gives the lock back only after the killed command is
 * gone. */
#include "election/hostlock.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/env.h"
#include "os/hash.h"
#include "base/status.h"
#include "base/value.h"

enum { BASES = 2, TRIES = 16, PAUSE_US = 100, PAUSE_MOST_US = 4000 };
enum { SLOTS = 4096, PASSED = 1024 };

#define LOCK_FILE "corral.lock"

_Static_assert(sizeof(off_t) == sizeof(int64_t), "a lock's offset has 63 bits");

struct crl_hostlock {
  uint8_t scope[CRL_DIGEST];
  /* parents of this user's own folder, in the order of trial */
  const char *bases[BASES];
  /* holders that were passed by: upper half: of the byte's place; lower half: of the note in its
   * slot. 0: none. Bytes that share a place overwrite each other */
  _Atomic uint64_t passed[PASSED];
  char folder[]; /* the folder given by the user; empty: none */
};

typedef struct lock_file {
  int fd;
  const char *folder;
  char own[256];
} lock_file;

/* ---- the folder and the file --------------------------------------------------------------- */

static int trouble(corral_error *error, const char *folder, int number) {
  return crl_status_fail(error, CORRAL_EIO, "the lock file in %.150s: %s", folder,
                         strerror(number));
}

static const char *flaw_of(const struct stat *st) {
  if (S_ISLNK(st->st_mode)) return "it is a symbolic link";
  if (!S_ISDIR(st->st_mode)) return "it is not a folder";
  if (st->st_uid != geteuid()) return "it is another user's";
  return (st->st_mode & (S_IWGRP | S_IWOTH)) != 0 ? "others may write to it" : NULL;
}

/* Checks the folder by the very descriptor that is used later. -1 with *error, like all that
 * open. */
static int open_vetted(const char *folder, corral_error *error) {
  struct stat st;
  int dir = open(folder, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (dir < 0 || fstat(dir, &st) != 0) {
    (void)trouble(error, folder, errno);
  } else {
    const char *flaw = flaw_of(&st);
    if (flaw == NULL) return dir;
    (void)crl_status_fail(error, CORRAL_EIO, "the lock folder %.150s is refused: %s", folder, flaw);
  }
  if (dir >= 0) close(dir);
  return -1;
}

static int is_there_now(const char *folder) {
  struct stat st;
  return lstat(folder, &st) == 0 || mkdir(folder, S_IRWXU) == 0 || errno == EEXIST;
}

/* Opens this user's own folder. A folder that is refused is not skipped: it may be an attack, which
 * the user must learn of. The user id is read each time, because a daemon may have changed it. */
static int open_own(const crl_hostlock *lock, lock_file *file, corral_error *error) {
  file->folder = file->own;
  for (int i = 0; i < BASES; i++) {
    snprintf(file->own, sizeof file->own, "%s/corral-%lu", lock->bases[i],
             (unsigned long)geteuid());
    if (is_there_now(file->own)) return open_vetted(file->own, error);
  }
  (void)trouble(error, file->own, errno);
  return -1;
}

static int open_named(const crl_hostlock *lock, lock_file *file, corral_error *error) {
  file->folder = lock->folder;
  int dir = open(lock->folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (dir < 0) (void)trouble(error, lock->folder, errno);
  return dir;
}

static int open_file(const crl_hostlock *lock, lock_file *file, corral_error *error) {
  static const int flags = O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY;
  int named = lock->folder[0] != '\0';
  int dir = named ? open_named(lock, file, error) : open_own(lock, file, error);
  if (dir < 0) return CORRAL_EIO;
  /* Tried without O_CREAT first: in a folder like /tmp the kernel may refuse O_CREAT for another
   * user's file (fs.protected_regular). */
  file->fd = crl_env_own_fd(openat(dir, LOCK_FILE, flags));
  if (file->fd < 0 && errno == ENOENT)
    file->fd = crl_env_own_fd(openat(dir, LOCK_FILE, flags | O_CREAT, named ? 0666 : 0600));
  int number = errno;
  close(dir);
  if (file->fd < 0) return trouble(error, file->folder, number);
  return CORRAL_OK;
}

/* True when the path still names this file: it may have been deleted meanwhile, and then others
 * lock a new one. */
static int is_still_there(const lock_file *file) {
  struct stat here, there;
  char path[PATH_MAX];
  int n = snprintf(path, sizeof path, "%s/" LOCK_FILE, file->folder);
  return n > 0 && (size_t)n < sizeof path && fstat(file->fd, &here) == 0 &&
         lstat(path, &there) == 0 && here.st_dev == there.st_dev && here.st_ino == there.st_ino;
}

/* ---- public -------------------------------------------------------------------------------- */

crl_hostlock *crl_hostlock_new(const char *folder, const char *scope) {
  if (folder == NULL) folder = secure_getenv("CORRAL_HOST_DIR");
  if (folder == NULL) folder = "";
  size_t size = strlen(folder) + 1;
  crl_hostlock *lock = crl_alloc(sizeof *lock + size);
  if (lock == NULL) return NULL;
  memcpy(lock->folder, folder, size);
  crl_digest(scope, strlen(scope), lock->scope);
  lock->bases[0] = "/dev/shm";
  lock->bases[1] = "/tmp";
  return lock;
}

void crl_hostlock_free(crl_hostlock *lock) { free(lock); }

/* The byte of a key. Two keys that share a byte exclude each other, which costs a wait and breaks
 * nothing. */
static struct flock byte_of(const crl_hostlock *lock, const void *key, size_t key_len) {
  uint8_t name[2 * CRL_DIGEST];
  memcpy(name, lock->scope, CRL_DIGEST);
  crl_digest(key, key_len, name + CRL_DIGEST);
  return (struct flock){.l_type = F_WRLCK,
                        .l_whence = SEEK_SET,
                        .l_start = (off_t)(crl_digest64(name, sizeof name) % INT64_MAX),
                        .l_len = 1};
}

/* The place of what is remembered of a byte. */
static _Atomic uint64_t *place_of(crl_hostlock *lock, const struct flock *byte) {
  return &lock->passed[(uint64_t)byte->l_start % PASSED];
}

/* The lock is had: its holder is gone. */
static void forget_passed(crl_hostlock *lock, const struct flock *byte) {
  _Atomic uint64_t *place = place_of(lock, byte);
  if (atomic_load(place) >> 32 == (uint64_t)byte->l_start >> 32) atomic_store(place, 0);
}

int crl_hostlock_take(crl_hostlock *lock, const void *key, size_t key_len, int *ret_hold,
                      corral_error *error) {
  lock_file file;
  for (int i = 0; i < TRIES; i++) {
    int status = open_file(lock, &file, error);
    if (status != CORRAL_OK) return status;
    struct flock byte = byte_of(lock, key, key_len);
    int number = fcntl(file.fd, F_OFD_SETLK, &byte) == 0 ? 0 : errno;
    if (number == 0 && is_still_there(&file)) {
      forget_passed(lock, &byte);
      *ret_hold = file.fd;
      return CORRAL_OK;
    }
    close(file.fd);
    if (number == EAGAIN || number == EACCES) return crl_status_plain(error, CORRAL_EBUSY);
    if (number != 0) return trouble(error, file.folder, number);
  }
  return crl_status_fail(error, CORRAL_EIO, "the lock file in %.150s is deleted again and again",
                         file.folder);
}

void crl_hostlock_give(int hold) {
  struct flock all = {.l_type = F_UNLCK, .l_whence = SEEK_SET};
  (void)fcntl(hold, F_OFD_SETLK, &all);
  close(hold);
}

/* ---- notes --------------------------------------------------------------------------------- */

/* A slot of the table of notes, which begins at offset 0 of the file. */
typedef struct note {
  uint8_t token[CORRAL_TOKEN];
  uint8_t over[CORRAL_TOKEN];
} note;

static off_t slot_of(const crl_hostlock *lock, const void *key, size_t key_len) {
  return byte_of(lock, key, key_len).l_start % SLOTS * (off_t)sizeof(note);
}

/* Writes nothing where the limit of file sizes is too low: to exceed it would raise a signal. */
static void write_note(int fd, off_t at, const note *n) {
  struct rlimit most;
  if (getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur < SLOTS * sizeof *n) return;
  while (pwrite(fd, n, sizeof *n, at) < 0 && errno == EINTR) {
  }
}

static int read_note(int fd, off_t at, note *n) {
  ssize_t got;
  while ((got = pread(fd, n, sizeof *n, at)) < 0 && errno == EINTR) {
  }
  return got == (ssize_t)sizeof *n;
}

void crl_hostlock_note(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token, const uint8_t *over) {
  note n = {{0}, {0}};
  memcpy(n.token, token, CORRAL_TOKEN);
  if (over != NULL) memcpy(n.over, over, CORRAL_TOKEN);
  write_note(hold, slot_of(lock, key, key_len), &n);
}

int crl_hostlock_noted(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token) {
  static const uint8_t none[CORRAL_TOKEN];
  note n;
  if (memcmp(token, none, CORRAL_TOKEN) == 0 || !read_note(hold, slot_of(lock, key, key_len), &n))
    return 0;
  return memcmp(n.token, token, CORRAL_TOKEN) == 0 || memcmp(n.over, token, CORRAL_TOKEN) == 0;
}

void crl_hostlock_erase(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                        const uint8_t *token) {
  static const note none;
  note n;
  off_t at = slot_of(lock, key, key_len);
  if (read_note(hold, at, &n) && memcmp(n.token, token, CORRAL_TOKEN) == 0)
    write_note(hold, at, &none);
}

/* Never 0. */
static uint64_t print_of_holder(crl_hostlock *lock, const void *key, size_t key_len) {
  lock_file file;
  note n = {{0}, {0}};
  if (open_file(lock, &file, NULL) == CORRAL_OK) {
    (void)read_note(file.fd, slot_of(lock, key, key_len), &n);
    close(file.fd);
  }
  uint64_t place = (uint64_t)byte_of(lock, key, key_len).l_start >> 32 << 32;
  return place | (uint32_t)crl_digest64(&n, sizeof n) | 1;
}

void crl_hostlock_pass(crl_hostlock *lock, const void *key, size_t key_len) {
  struct flock byte = byte_of(lock, key, key_len);
  atomic_store(place_of(lock, &byte), print_of_holder(lock, key, key_len));
}

int crl_hostlock_passed(crl_hostlock *lock, const void *key, size_t key_len) {
  struct flock byte = byte_of(lock, key, key_len);
  uint64_t passed = atomic_load(place_of(lock, &byte));
  return passed != 0 && passed == print_of_holder(lock, key, key_len);
}

/* ---- waiting ------------------------------------------------------------------------------- */

static int is_held(int fd, struct flock byte) {
  return fcntl(fd, F_OFD_GETLK, &byte) == 0 && byte.l_type != F_UNLCK;
}

int crl_hostlock_is_held(crl_hostlock *lock, const void *key, size_t key_len) {
  lock_file file;
  if (open_file(lock, &file, NULL) != CORRAL_OK) return 0;
  int held = is_held(file.fd, byte_of(lock, key, key_len));
  close(file.fd);
  return held;
}

void crl_hostlock_wait(crl_hostlock *lock, const void *key, size_t key_len, int64_t until,
                       const corral_cancel_token *cancel_token) {
  lock_file file;
  if (open_file(lock, &file, NULL) != CORRAL_OK) return;
  struct flock byte = byte_of(lock, key, key_len);
  for (int64_t pause = PAUSE_US; is_held(file.fd, byte);
       pause = pause * 2 < PAUSE_MOST_US ? pause * 2 : PAUSE_MOST_US) {
    int64_t now = crl_env_now_ms();
    if (now >= until || crl_cancelled(cancel_token)) break;
    crl_env_pause_us(until - now < pause / 1000 ? (until - now) * 1000 : pause);
  }
  close(file.fd);
}
