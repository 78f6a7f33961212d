/* files.c: the files of an LMDB store on the disk: their owners, whether they belong together, and
 * what is put aside.
 *
 * Beside PATH there are PATH-lock, which is liblmdb's own; PATH-watch (watch.c); and PATH-lease,
 * with the leases' bytes (lease.c), and as its text the mark: this format's number, the kernel's
 * boot id, a random id that the database has too, and the data and lock file (device, inode) that
 * the id was given to. Files that don't belong together are put aside as a pair, and so is a
 * damaged database: they are renamed to PATH.damaged-N and PATH.damaged-N-lock, because processes
 * that have them mapped need them whole, and a new store is begun.
 *
 * The store's clock starts again with each boot, and the file isn't synced: after a crash of the
 * host its pages may be of any age, and reading them isn't safe. A store from before this boot is
 * therefore unlinked unread, which is why the mark isn't in it.
 *
 * A process holds the gate (a lock on byte 0 of PATH-lease) while it opens, closes or replaces the
 * files, so none of this races among processes. Against other users there are owner and mode: a
 * file that another user owns or may write, or whose folder lets others rename it, is refused,
 * unless the URI says shared=yes. A link to the data file is followed once, by its resolved name;
 * the other files may not be links. */
#include <corral/plugin.h>

#include "lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { GATE_PAUSE_MS = 16, LOOKS = 4, ASIDE_MOST = 9, BOOT_ID_LEN = 36 };

static const char MARK[] = "corral-lmdb ";
static const char FORMAT[] = "3 ";
static const char BOOT_ID[] = "/proc/sys/kernel/random/boot_id";

/* ---- paths --------------------------------------------------------------------------------- */

/* Sets `to` to a, b and c without gaps; ENAMETOOLONG. */
static int join(char to[PATH_MAX], const char *a, const char *b, const char *c) {
  const char *parts[] = {a, b, c};
  size_t used = 0;
  for (size_t i = 0; i < 3; i++) {
    size_t len = strlen(parts[i]);
    if (used + len >= PATH_MAX) return ENAMETOOLONG;
    memcpy(to + used, parts[i], len);
    used += len;
  }
  to[used] = '\0';
  return 0;
}

static int make_parents(char *path) {
  for (char *at = strchr(path + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    struct stat st;
    *at = '\0';
    int code = mkdir(path, 0700) == 0 ? 0 : errno;
    if (code != 0 && stat(path, &st) == 0) code = S_ISDIR(st.st_mode) ? 0 : ENOTDIR;
    if (code != 0) return code; /* `path` ends at the folder that couldn't be made */
    *at = '/';
  }
  return 0;
}

/* Finds one name for one file, whatever links lead to it, because LMDB derives its lock's name from
 * the name it is given. */
static int resolve(crl_lmdb_files *f, const char *path) {
  char given[PATH_MAX], folder[PATH_MAX];
  int code = join(given, path, "", "");
  if (code != 0) return code;
  if (realpath(given, f->data) == NULL) {
    if (errno != ENOENT) return errno;
    char *slash = strrchr(given, '/');
    if (slash != NULL) *slash = '\0';
    if (realpath(slash == NULL ? "." : slash == given ? "/" : given, folder) == NULL) return errno;
    code = join(f->data, folder, folder[1] == '\0' ? "" : "/", slash != NULL ? slash + 1 : given);
  }
  if (code == 0) code = join(f->lock, f->data, "-lock", "");
  if (code == 0) code = join(f->lease, f->data, "-lease", "");
  if (code == 0) code = join(f->watch, f->data, "-watch", "");
  return code;
}

int crl_lmdb_files_find(crl_lmdb_files *f, const char *path, corral_error *error) {
  int code = join(f->data, path, "", "");
  f->fd = -1;
  if (code == 0) code = make_parents(f->data);
  if (code != 0) return crl_lmdb_fail(f->host, code == ENAMETOOLONG ? path : f->data, code, error);
  code = resolve(f, path);
  return code == 0 ? CORRAL_OK : crl_lmdb_fail(f->host, path, code, error);
}

/* ---- files by device and inode ------------------------------------------------------------- */

static crl_lmdb_file name_of(const struct stat *st) {
  return (crl_lmdb_file){.device = st->st_dev, .inode = st->st_ino, .is_there = 1};
}

int crl_lmdb_file_at(const char *path, int follow, crl_lmdb_file *ret) {
  struct stat st;
  memset(ret, 0, sizeof *ret);
  if ((follow ? stat(path, &st) : lstat(path, &st)) == 0)
    *ret = name_of(&st);
  else if (errno != ENOENT && errno != ENOTDIR)
    return errno;
  return 0;
}

int crl_lmdb_file_of(int fd, crl_lmdb_file *ret) {
  struct stat st;
  memset(ret, 0, sizeof *ret);
  if (fstat(fd, &st) != 0) return errno;
  *ret = name_of(&st);
  return 0;
}

int crl_lmdb_file_same(const crl_lmdb_file *a, const crl_lmdb_file *b) {
  return a->is_there == b->is_there && a->device == b->device && a->inode == b->inode;
}

/* ---- owners and modes ---------------------------------------------------------------------- */

static const char ALONE[] = "a store's files are its user's alone, unless the URI says shared=yes";

/* CORRAL_OK: a regular file of this user that no other may write, or none. Something that is no
 * regular file passes unjudged unless `only_regular`. */
static int check_file(const crl_lmdb_files *f, const char *path, int only_regular,
                      corral_error *error) {
  struct stat st;
  if (lstat(path, &st) != 0)
    return errno == ENOENT ? CORRAL_OK : crl_lmdb_fail(f->host, path, errno, error);
  if (!S_ISREG(st.st_mode) && !only_regular) return CORRAL_OK;
  if (S_ISDIR(st.st_mode)) return crl_lmdb_fail(f->host, path, EISDIR, error);
  if (!S_ISREG(st.st_mode)) return crl_lmdb_fail(f->host, path, MDB_INVALID, error);
  if (f->shared) return CORRAL_OK;
  if (st.st_uid != geteuid())
    return f->host->fail(error, CORRAL_EIO, "%.100s: belongs to user %u: %s", path,
                         (unsigned)st.st_uid, ALONE);
  if ((st.st_mode & (S_IWGRP | S_IWOTH)) != 0)
    return f->host->fail(error, CORRAL_EIO, "%.100s: others may write it: %s", path, ALONE);
  return CORRAL_OK;
}

int crl_lmdb_folder_is_open(const char *folder) {
  struct stat st;
  if (stat(folder, &st) != 0 || (st.st_mode & S_ISVTX) != 0) return 0;
  return (st.st_mode & S_IWOTH) != 0 || ((st.st_mode & S_IWGRP) != 0 && st.st_gid != getegid());
}

static int check_folder(const crl_lmdb_files *f, corral_error *error) {
  char folder[PATH_MAX];
  (void)join(folder, f->data, "", "");
  char *slash = strrchr(folder, '/');
  slash[slash == folder] = '\0';
  if (f->shared || !crl_lmdb_folder_is_open(folder)) return CORRAL_OK;
  return f->host->fail(error, CORRAL_EIO, "%.100s: others may rename files in this folder: %s",
                       folder, ALONE);
}

static int check_owners(const crl_lmdb_files *f, corral_error *error) {
  int status = check_folder(f, error);
  if (status == CORRAL_OK) status = check_file(f, f->data, 1, error);
  if (status == CORRAL_OK) status = check_file(f, f->lock, 1, error);
  if (status == CORRAL_OK) status = check_file(f, f->lease, 1, error);
  if (status == CORRAL_OK) status = check_file(f, f->watch, 0, error);
  return status;
}

/* ---- the data file's contents -------------------------------------------------------------- */

/* `head`: the bytes that liblmdb looks at before it maps. */
static int read_head(const char *path, uint8_t *head, size_t *len, crl_lmdb_file *file,
                     uint64_t *size) {
  struct stat st;
  int fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno;
  ssize_t got = pread(fd, head, CRL_LMDB_HEAD, 0);
  int code = got < 0 || fstat(fd, &st) != 0 ? errno : 0;
  close(fd);
  if (code != 0) return code;
  *len = (size_t)got;
  *file = name_of(&st);
  *size = (uint64_t)st.st_size;
  return 0;
}

/* Sets *file; an empty file counts as not there. MDB_CORRUPTED: liblmdb must not map it. Looks
 * several times, since another process may just be writing a meta page. */
static int look_at(const char *path, crl_lmdb_file *file) {
  uint8_t *head = malloc(CRL_LMDB_HEAD);
  size_t len = 0;
  uint64_t size = 0;
  int code = head != NULL ? MDB_CORRUPTED : ENOMEM;
  for (int look = 0; look < LOOKS && code == MDB_CORRUPTED; look++) {
    if (look > 0) (void)poll(NULL, 0, 1);
    code = read_head(path, head, &len, file, &size);
    if (code == 0 && size > 0) code = crl_lmdb_check(head, len, size);
  }
  free(head);
  if (code == ENOENT || (code == 0 && size == 0)) {
    memset(file, 0, sizeof *file);
    return 0;
  }
  return code;
}

/* ---- the gate ------------------------------------------------------------------------------ */

/* Pauses grow with the wait: a crowd that looks each millisecond would leave no time to the process
 * that has the gate. */
int crl_lmdb_gate_wait(const corral_host *host, int fd, int64_t deadline) {
  int code, most = 1;
  uint8_t dice = 0;
  while ((code = crl_lmdb_gate_try(fd)) == EAGAIN && host->now_ms() < deadline) {
    (void)host->random(&dice, sizeof dice);
    (void)poll(NULL, 0, 1 + dice % most);
    if (most < GATE_PAUSE_MS) most *= 2;
  }
  return code;
}

/* When a process last got the gate: each one that gets it sets the time of PATH-lease, so that
 * waiting processes see that the gate is passed on. */
static struct timespec last_turn(int fd) {
  struct stat st;
  return fstat(fd, &st) == 0 ? st.st_mtim : (struct timespec){0};
}

/* Waits for the gate. EBUSY: others had it meanwhile, one after the other. */
static int take_turn(const crl_lmdb_files *f, int64_t deadline) {
  struct timespec before = last_turn(f->fd);
  int code = crl_lmdb_gate_wait(f->host, f->fd, deadline);
  if (code == 0) (void)futimens(f->fd, NULL);
  if (code != EAGAIN) return code;
  struct timespec now = last_turn(f->fd);
  int goes_round = now.tv_sec != before.tv_sec || now.tv_nsec != before.tv_nsec;
  return goes_round ? EBUSY : EAGAIN;
}

static int own_mode(const crl_lmdb_files *f, int fd) {
  return f->shared && fchmod(fd, 0660) != 0 ? errno : 0;
}

/* Opens PATH-lease, and makes it where it is missing. */
static int open_lease(crl_lmdb_files *f) {
  f->fd = f->host->own_fd(open(f->lease, O_RDWR | O_CLOEXEC | O_NOFOLLOW));
  if (f->fd >= 0) return 0;
  if (errno != ENOENT) return errno;
  f->fd = f->host->own_fd(open(f->lease, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (f->fd < 0) return errno == EEXIST ? EAGAIN : errno;
  return own_mode(f, f->fd);
}

/* Takes the gate; takes it again if the file was replaced meanwhile. */
static int gate_open(crl_lmdb_files *f, int64_t deadline) {
  for (;;) {
    crl_lmdb_file there, opened;
    int code = open_lease(f);
    if (code == EAGAIN) continue;
    if (code == 0) code = take_turn(f, deadline);
    if (code == 0) code = crl_lmdb_file_of(f->fd, &opened);
    if (code == 0) code = crl_lmdb_file_at(f->lease, 0, &there);
    if (code == 0 && crl_lmdb_file_same(&opened, &there)) return 0;
    crl_lmdb_files_leave(f);
    if (code != 0) return code;
  }
}

void crl_lmdb_files_leave(crl_lmdb_files *f) {
  if (f->fd >= 0) close(f->fd); /* and gives the gate back */
  f->fd = -1;
}

int crl_lmdb_files_enter(crl_lmdb_files *f, int64_t deadline, corral_error *error) {
  int status = check_owners(f, error);
  if (status != CORRAL_OK) return status;
  crl_lmdb_file data;
  int code = look_at(f->data, &data); /* no file is made beside a file that isn't corral's */
  if (code == MDB_CORRUPTED && access(f->lease, F_OK) != 0) code = MDB_INVALID;
  if (code == MDB_CORRUPTED) code = 0;
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  code = gate_open(f, deadline);
  return code == 0 ? CORRAL_OK : crl_lmdb_fail(f->host, f->lease, code, error);
}

/* ---- the mark in PATH-lease ---------------------------------------------------------------- */

static int read_boot(char boot[BOOT_ID_LEN + 1]) {
  int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  ssize_t got = read(fd, boot, BOOT_ID_LEN);
  close(fd);
  boot[BOOT_ID_LEN] = '\0';
  return got == BOOT_ID_LEN ? 0 : EIO;
}

/* Writes the mark of a store of this boot. */
static int mark_text(char text[CRL_LMDB_MARK], const char *boot, const char *id,
                     const crl_lmdb_file *data, const crl_lmdb_file *lock) {
  return snprintf(text, CRL_LMDB_MARK, "%s%s%s %s %llx:%llx %llx:%llx\n", MARK, FORMAT, boot, id,
                  (unsigned long long)data->device, (unsigned long long)data->inode,
                  (unsigned long long)lock->device, (unsigned long long)lock->inode);
}

static int mark_read(crl_lmdb_files *f, char text[CRL_LMDB_MARK]) {
  ssize_t got = pread(f->fd, text, CRL_LMDB_MARK - 1, 0);
  if (got < 0) return errno;
  text[got] = '\0';
  return 0;
}

static int mark_write(int fd, const char *text) {
  size_t len = strlen(text);
  if (ftruncate(fd, 0) != 0) return errno;
  ssize_t put = pwrite(fd, text, len, 0);
  return put == (ssize_t)len ? 0 : put < 0 ? errno : ENOSPC;
}

/* ---- putting aside ------------------------------------------------------------------------- */

/* A name that isn't taken; once all are, the last one is used again, so that they don't grow for
 * ever. */
static int free_name(const crl_lmdb_files *f, char to[PATH_MAX]) {
  char number[16];
  int code = 0, taken = 1;
  for (int n = 1; code == 0 && taken && n <= ASIDE_MOST; n++) {
    crl_lmdb_file there;
    snprintf(number, sizeof number, "%d", n);
    code = join(to, f->data, ".damaged-", number);
    taken = code == 0 && crl_lmdb_file_at(to, 0, &there) == 0 && there.is_there;
  }
  return code;
}

static int move(const char *from, const char *to) {
  return rename(from, to) == 0 || errno == ENOENT ? 0 : errno;
}

int crl_lmdb_files_aside(crl_lmdb_files *f, const crl_lmdb_file *data, const char *reason,
                         corral_error *error) {
  char to[PATH_MAX], lock[PATH_MAX];
  crl_lmdb_file there;
  int code = crl_lmdb_file_at(f->data, 0, &there);
  /* another process has put it aside already */
  if (code == 0 && !crl_lmdb_file_same(&there, data)) return CORRAL_OK;
  if (code == 0) code = free_name(f, to);
  if (code == 0) code = join(lock, to, "-lock", "");
  if (code == 0) code = move(f->data, to);
  if (code == 0) code = move(f->lock, lock);
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  (void)unlink(f->watch);
  snprintf(f->notice, sizeof f->notice, "%.150s: %s: put aside as %.150s, and begun anew", f->data,
           reason, to);
  return CORRAL_OK;
}

/* ---- preparing the files ------------------------------------------------------------------- */

static int unlink_old(const char *path) { return unlink(path) == 0 || errno == ENOENT ? 0 : errno; }

/* 1: a process uses the files: liblmdb has a lock on its lock file as long as it has the store
 * open. Not for a file that this process has open, since closing it here would end that lock. */
static int is_in_use(const crl_lmdb_files *f) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = 0, .l_len = 1};
  int fd = open(f->lock, O_RDWR | O_CLOEXEC | O_NOFOLLOW);
  if (fd < 0) return errno != ENOENT;
  int used = fcntl(fd, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
  close(fd);
  return used;
}

/* Fails for a file without a mark of this store, or for a store of another version that is in
 * use. */
static int foreign(const crl_lmdb_files *f, corral_error *error) {
  return f->host->fail(error, CORRAL_EIO,
                       "%.100s: made by something else, or in use by another version: choose "
                       "another path, or delete it, -lock, -lease and -watch",
                       f->data);
}

static int make(const crl_lmdb_files *f, const char *path, crl_lmdb_file *ret) {
  struct stat st;
  int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return errno;
  int code = own_mode(f, fd);
  if (code == 0 && fstat(fd, &st) != 0) code = errno;
  close(fd);
  if (code == 0) *ret = name_of(&st);
  return code;
}

static int make_id(crl_lmdb_files *f) {
  uint8_t bytes[CRL_LMDB_ID / 2];
  if (f->host->random(bytes, sizeof bytes) != CORRAL_OK) return EIO;
  for (size_t i = 0; i < sizeof bytes; i++) snprintf(f->id + 2 * i, 3, "%02x", bytes[i]);
  return 0;
}

/* Makes empty files for liblmdb to fill, and their mark. */
static int begin_anew(crl_lmdb_files *f, const char *boot, int is_ours, corral_error *error) {
  char text[CRL_LMDB_MARK];
  int code = unlink_old(f->data);
  if (code == 0) code = unlink_old(f->lock);
  if (is_ours) (void)unlink(f->watch); /* harmless if it stays */
  if (code == 0) code = make_id(f);
  if (code == 0) code = make(f, f->data, &f->checked_data);
  if (code == 0) code = make(f, f->lock, &f->checked_lock);
  if (code == 0) {
    mark_text(text, boot, f->id, &f->checked_data, &f->checked_lock);
    code = mark_write(f->fd, text);
  }
  return code == 0 ? CORRAL_OK : crl_lmdb_fail(f->host, f->data, code, error);
}

/* 1: the mark names this boot; its id is copied to f. */
static int take_id(crl_lmdb_files *f, const char *text, const char *boot) {
  char front[CRL_LMDB_MARK];
  int used = snprintf(front, sizeof front, "%s%s%s ", MARK, FORMAT, boot);
  if (used < 0 || strncmp(text, front, (size_t)used) != 0 ||
      strlen(text) < (size_t)used + CRL_LMDB_ID)
    return 0;
  memcpy(f->id, text + used, CRL_LMDB_ID);
  f->id[CRL_LMDB_ID] = '\0';
  return 1;
}

/* 1: data and lock file are those that the mark names. */
static int belongs(crl_lmdb_files *f, const char *text, const char *boot,
                   const crl_lmdb_file *data) {
  char expected[CRL_LMDB_MARK];
  f->checked_data = *data;
  if (crl_lmdb_file_at(f->lock, 0, &f->checked_lock) != 0) return 0;
  mark_text(expected, boot, f->id, data, &f->checked_lock);
  return strcmp(text, expected) == 0;
}

static int prepare_current(crl_lmdb_files *f, const char *text, const char *boot,
                           const crl_lmdb_file *data, int code, corral_error *error) {
  if (!data->is_there) return begin_anew(f, boot, 1, error);
  const char *reason = code == MDB_CORRUPTED          ? "damaged"
                       : belongs(f, text, boot, data) ? NULL
                                                      : "data and lock file don't belong together";
  if (reason == NULL) return CORRAL_OK;
  int status = crl_lmdb_files_aside(f, data, reason, error);
  return status == CORRAL_OK ? begin_anew(f, boot, 1, error) : status;
}

int crl_lmdb_files_prepare(crl_lmdb_files *f, corral_error *error) {
  char text[CRL_LMDB_MARK], boot[BOOT_ID_LEN + 1];
  crl_lmdb_file data;
  int code = read_boot(boot);
  if (code != 0) return crl_lmdb_fail(f->host, BOOT_ID, code, error);
  code = mark_read(f, text);
  if (code != 0) return crl_lmdb_fail(f->host, f->lease, code, error);
  code = look_at(f->data, &data);
  if (code != 0 && code != MDB_CORRUPTED) return crl_lmdb_fail(f->host, f->data, code, error);
  if (take_id(f, text, boot)) return prepare_current(f, text, boot, &data, code, error);
  int is_ours = strncmp(text, MARK, sizeof MARK - 1) == 0;
  if (!is_ours && (text[0] != '\0' || data.is_there)) return foreign(f, error);
  int is_of_this_boot = strstr(text, boot) != NULL;
  return data.is_there && is_of_this_boot && is_in_use(f) ? foreign(f, error)
                                                          : begin_anew(f, boot, is_ours, error);
}
