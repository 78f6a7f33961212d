/* file.c: taking, and giving up, a stats file. */
#include "stats/file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/status.h"
#include "base/value.h"
#include "os/env.h"
#include "os/hash.h"
#include "stats/folder.h"
#include "stats/owner.h"

enum { TRIES = 8, FIRST = 32, DRAWS = 32 };
enum { SIZE = sizeof(crl_stats_block), BASE = offsetof(crl_stats_block, gauges) };

typedef struct crl_stats_file {
  crl_stats_owned owned; /* owned.fd: -1 without a file */
  uint64_t hash;
  char dir[]; /* empty: the default */
} crl_stats_file;

/* ---- open ---------------------------------------------------------------------------------- */

static void put_text(crl_stats_block *block, crl_text text, const char *from) {
  snprintf(block->texts[text], CRL_TEXT_SIZE, "%s", from);
}

static uint64_t hash_of(const crl_stats_options *options) {
  uint8_t digest[CRL_DIGEST];
  uint64_t hash;
  crl_digester d;
  crl_digester_begin(&d);
  crl_digester_add(&d, crl_layout(), sizeof(crl_stats_head));
  crl_digester_add(&d, options->cache, strlen(options->cache) + 1);
  crl_digester_add(&d, options->store, strlen(options->store));
  crl_digester_end(&d, digest);
  memcpy(&hash, digest, sizeof hash);
  return hash;
}

int crl_stats_file_open(crl_stats *stats, const crl_stats_options *options) {
  const char *dir = options->dir;
  if (dir == NULL) dir = secure_getenv("CORRAL_STATS_DIR");
  if (dir == NULL) dir = "";
  size_t size = strlen(dir) + 1;
  crl_stats_file *file = crl_alloc(sizeof *file + size);
  if (file == NULL) return CORRAL_ENOMEM;
  memcpy(file->dir, dir, size);
  file->owned.fd = -1;
  file->hash = hash_of(options);
  put_text(stats->block, CRL_TEXT_CACHE, options->cache);
  put_text(stats->block, CRL_TEXT_STORE, options->store);
  stats->file = file;
  return CORRAL_OK;
}

/* ---- the folder ---------------------------------------------------------------------------- */

/* Makes the folder if it isn't there. */
static int open_own(const char *path) {
  unsigned long uid = geteuid();
  int dir = crl_stats_folder_open(path, uid);
  if (dir >= 0 || errno != ENOENT) return dir;
  if (mkdir(path, S_IRWXU) != 0 && errno != EEXIST) return -1;
  return crl_stats_folder_open(path, uid);
}

/* ---- a file -------------------------------------------------------------------------------- */

typedef enum took { TOOK = 0, AGAIN, OTHERS, FAILED } took; /* FAILED: errno tells why */

static int is_zero(const void *bytes, size_t size) {
  const uint8_t *at = bytes;
  return size == 0 || (at[0] == 0 && memcmp(at, at + 1, size - 1) == 0);
}

/* Reads what the file has, up to the gauges. *ret: NULL for a file that was never finished. */
static took read_base(int fd, const struct stat *st, crl_stats_block **ret) {
  crl_stats_block *base = crl_alloc(BASE);
  *ret = NULL;
  if (base == NULL) return errno = ENOMEM, FAILED;
  ssize_t got = pread(fd, base, BASE, 0);
  if (got < 0 || st->st_size > SIZE || is_zero(&base->head.preamble, sizeof base->head.preamble)) {
    free(base);
    return got < 0 ? FAILED : st->st_size > SIZE ? AGAIN : TOOK;
  }
  *ret = base;
  if (st->st_size == SIZE && got == BASE &&
      memcmp(&base->head, crl_layout(), sizeof base->head) == 0)
    return TOOK;
  return AGAIN;
}

/* Reserves the room, unless the file has it all: a copy of a file may have holes. Returns errno. */
static int reserve(int fd, const struct stat *st) {
  enum { BLOCK = 512 };
  int number = 0;
  if (st->st_size == SIZE && st->st_blocks >= (SIZE + BLOCK - 1) / BLOCK) return 0;
  do number = posix_fallocate(fd, 0, SIZE);
  while (number == EINTR);
  return number;
}

/* The file becomes the block's memory. */
static took map(crl_stats_block *block, int fd) {
  void *at = mmap(block, SIZE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0);
  if (at != MAP_FAILED) return TOOK;
  int number = errno;
  (void)mmap(block, SIZE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  errno = number;
  return FAILED;
}

/* A file that is damaged, or of somebody else's making under this name, is removed. */
static took take_locked(crl_stats *stats, int dir, const char *name, int fd) {
  struct stat st;
  crl_stats_block *base;
  if (fstat(fd, &st) != 0) return FAILED;
  if (!S_ISREG(st.st_mode) || st.st_uid != geteuid()) return OTHERS;
  if (!crl_stats_folder_has(dir, name, &st)) return AGAIN;
  took how = read_base(fd, &st, &base);
  if (how == AGAIN) (void)unlinkat(dir, name, 0);
  if (how == TOOK && base == NULL) crl_stats_folder_sweep(dir);
  int number = how == TOOK ? reserve(fd, &st) : 0;
  if (number != 0) {
    if (base == NULL) (void)unlinkat(dir, name, 0);
    errno = number;
    how = FAILED;
  }
  if (how == TOOK) how = map(stats->block, fd);
  if (how != TOOK) {
    free(base);
    return how;
  }
  atomic_store_explicit(&stats->base, base, memory_order_release);
  crl_stats_own_file(&stats->file->owned, stats->block, fd, &st);
  return TOOK;
}

/* Anything but a file in its place is passed over, like a file that others have. */
static took take_once(crl_stats *stats, int dir, const char *name) {
  struct flock all = {.l_type = F_WRLCK, .l_whence = SEEK_SET};
  int fd = crl_env_own_fd(
      openat(dir, name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600));
  if (fd < 0)
    return errno == ELOOP || errno == EISDIR || errno == ENXIO || errno == EACCES ? OTHERS : FAILED;
  took how = TOOK;
  if (fcntl(fd, F_OFD_SETLK, &all) != 0) how = errno == EAGAIN || errno == EACCES ? OTHERS : FAILED;
  if (how == TOOK) how = take_locked(stats, dir, name, fd);
  int reason = errno;
  if (how != TOOK) close(fd);
  errno = reason;
  return how;
}

static took take(crl_stats *stats, int dir, const char *name) {
  took how = AGAIN;
  for (int i = 0; i < TRIES && how == AGAIN; i++) how = take_once(stats, dir, name);
  return how == AGAIN ? OTHERS : how;
}

static took take_number(crl_stats *stats, int dir, unsigned number) {
  char name[CRL_STATS_NAME];
  snprintf(name, sizeof name, "%016llx.%u", (unsigned long long)stats->file->hash, number);
  return take(stats, dir, name);
}

/* The number after the highest one. Keeps the names of this hash only. */
static unsigned sift(crl_stats_names *names, uint64_t hash) {
  enum { HASH = 16 };
  char own[HASH + 1];
  size_t kept = 0;
  unsigned long next = FIRST;
  snprintf(own, sizeof own, "%016llx", (unsigned long long)hash);
  for (size_t i = 0; i < names->count; i++) {
    if (strncmp(names->all[i], own, HASH) != 0) continue;
    unsigned long number = strtoul(names->all[i] + HASH + 1, NULL, 10);
    if (number >= next && number < CRL_STATS_FILES) next = number + 1;
    memmove(names->all[kept++], names->all[i], sizeof names->all[i]);
  }
  names->count = kept;
  return (unsigned)next;
}

/* A file that is there, drawn by lot. *ret_next: the number after the highest one. */
static took draw(crl_stats *stats, int dir, unsigned *ret_next) {
  crl_stats_names names;
  took how = OTHERS;
  *ret_next = FIRST;
  if (crl_stats_folder_files(dir, &names)) *ret_next = sift(&names, stats->file->hash);
  for (int i = 0; i < DRAWS && names.count > 0 && how == OTHERS; i++)
    how = take(stats, dir, names.all[crl_env_dice() % names.count]);
  free(names.all);
  return how;
}

/* The lowest number that is free, of the first ones. Beyond those it would take long to find: the
 * last of a thousand processes that begin at once would try the files of all others. Some draws go
 * before a new number, which is itself drawn: others take the next one, too. */
static int take_any(crl_stats *stats, int dir) {
  took how = OTHERS;
  unsigned next;
  for (unsigned number = 0; how == OTHERS && number < FIRST; number++)
    how = take_number(stats, dir, number);
  if (how == OTHERS) how = draw(stats, dir, &next);
  for (unsigned more = 1; how == OTHERS && next + more <= CRL_STATS_FILES; more *= 2)
    how = take_number(stats, dir, next + (unsigned)(crl_env_dice() % more));
  for (unsigned number = FIRST; how == OTHERS && number < CRL_STATS_FILES; number++)
    how = take_number(stats, dir, number);
  return how == TOOK ? 0 : how == FAILED ? errno : EMFILE;
}

/* ---- begin, close -------------------------------------------------------------------------- */

/* A longer file than the limit allows would raise a signal. */
static int may_be_as_long(void) {
  struct rlimit most;
  return getrlimit(RLIMIT_FSIZE, &most) != 0 || most.rlim_cur >= SIZE;
}

static int begin_in(crl_stats *stats, const char *folder, corral_error *error) {
  int dir = open_own(folder), number = dir < 0 ? errno : 0;
  if (number == 0 && !may_be_as_long()) number = EFBIG;
  if (number == 0) {
    crl_stats_files_lock();
    number = take_any(stats, dir);
    crl_stats_files_unlock();
  }
  if (dir >= 0) close(dir);
  if (number == 0) return CORRAL_OK;
  return crl_status_fail(error, CORRAL_EIO, "no stats file in %.150s: %s", folder,
                         number == EPERM ? "the folder isn't this user's alone" : strerror(number));
}

int crl_stats_file_begin(crl_stats *stats, corral_error *error) {
  char own[64];
  crl_stats_file *file = stats->file;
  crl_stats_sign kept;
  crl_stats_keep(stats->block, &kept);
  int is_off = strcmp(file->dir, "off") == 0, status = CORRAL_OK;
  if (!is_off && file->dir[0] != '\0' && file->dir[0] != '/')
    status = crl_status_fail(error, CORRAL_EIO,
                             "no stats file: CORRAL_STATS_DIR is '%.100s'; "
                             "accepted: an absolute path, off",
                             file->dir);
  crl_stats_folder_of(own, sizeof own, geteuid());
  if (!is_off && status == CORRAL_OK)
    status = begin_in(stats, file->dir[0] != '\0' ? file->dir : own, error);
  crl_stats_sign_block(stats->block, &kept, file->owned.fd >= 0);
  if (file->owned.fd >= 0) stats->times = stats->block->times;
  return status;
}

void crl_stats_file_close(crl_stats *stats) {
  crl_stats_file *file = stats->file;
  if (file == NULL) return;
  if (file->owned.fd >= 0) {
    crl_stats_unsign_block(stats->block);
    crl_stats_disown_file(&file->owned);
  }
  stats->file = NULL;
  free(file);
}
