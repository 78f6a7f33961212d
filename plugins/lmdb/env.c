/* env.c: the file of an LMDB store: found, checked, opened once per process, and shared by all that want it.
 *
 * Beside PATH there are PATH-lock, which is LMDB's own, PATH-watch (watch.c), and PATH-lease: the leases' bytes (lease.c), and
 * in its text this kernel's boot id. The store's clock starts again with each boot, and the file isn't synced: after a crash of the
 * host its pages may be of any age, so that walking them isn't safe. A file from before this boot is therefore unlinked
 * without being read, which is why the boot id isn't a record in it. It is unlinked, never cut: whoever might
 * still have it mapped keeps a whole one.
 *
 * The gate (a lock on byte 0 of PATH-lease) is held by whoever opens, closes or replaces the file, so all of this is
 * free of races among processes.
 *
 * The file is extended to the whole map at once (it is sparse, and takes no room on the disk by that): from then on a
 * file shorter than its own index says was truncated by somebody, and would kill the process that reads it by
 * SIGBUS. Writing goes through pwrite: a full disk is an error, not a signal. Truncating the file while it is in use
 * can't be survived.
 *
 * The map is larger than size=, which bounds the pages in use: pages that were freed can't be used again before the
 * commit after the next, nor while a reader still sees them.
 *
 * All processes must see the same CLOCK_BOOTTIME: not across time namespaces with an offset. */
#include "lmdb.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { READERS = 1022, MARK_ROOM = 64, GATE_PAUSE_MS = 1, CLOSE_WAIT_MS = 200 };

static const char MARK[] = "corral-lmdb 1 "; /* the format's number, then the boot id */
static const char FORMAT[] = "1";
static const char BOOT_ID[] = "/proc/sys/kernel/random/boot_id";

/* The files of a store, while it is being opened. */
typedef struct files {
  const corral_host *host;
  char data[PATH_MAX], lock[PATH_MAX], lease[PATH_MAX], watch[PATH_MAX];
  int fd; /* of lease; the gate is held */
} files;

/* ---- errors ---------------------------------------------------------------------------------------------- */

static int fail_lmdb(const corral_host *host, const char *path, int code, corral_error *error) {
  switch (code) {
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return host->fail(error, CORRAL_EFOREIGN, "%.120s: not a file of this store: choose another path, or delete it", path);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
      return host->fail(error, CORRAL_ECORRUPT, "%.120s: damaged: delete it and its -lock while nobody uses it", path);
    case MDB_READERS_FULL:
      return host->fail(error, CORRAL_EUNAVAILABLE, "%.120s: more than %d readers at once", path, (int)READERS);
    case MDB_MAP_FULL:
      return host->fail(error, CORRAL_EREFUSED, "%.120s: full: size= is too small for what is written at once, or a process hangs while it reads", path);
    default:
      return host->fail(error, CORRAL_EIO, "%.120s: %s", path, mdb_strerror(code));
  }
}

int crl_lmdb_fail(const corral_host *host, const char *path, int code, corral_error *error) {
  switch (code) {
    case ENOMEM: return host->fail(error, CORRAL_ENOMEM, "%.120s: out of memory, or of address space for size=", path);
    case EAGAIN: return host->fail(error, CORRAL_EUNAVAILABLE, "%.120s: another process is busy opening it", path);
    case ENOSPC:
    case EDQUOT:
      return host->fail(error, CORRAL_EIO, "%.120s: the disk is full: free some of it, or choose another path", path);
    case EIO: /* LMDB's word for a write cut short, too */
      return host->fail(error, CORRAL_EIO, "%.120s: %s: the disk is full, or fails", path, mdb_strerror(code));
    case EACCES:
    case EPERM:
    case EROFS:
      return host->fail(error, CORRAL_EIO, "%.120s: %s: this user must be able to write the file and its folder", path,
                        mdb_strerror(code));
    case EISDIR: return host->fail(error, CORRAL_EIO, "%.120s: is a folder: name a file inside of it", path);
    default: return fail_lmdb(host, path, code, error);
  }
}

/* ---- paths ----------------------------------------------------------------------------------------------- */

/* `to` = a, b and c, one after another; ENAMETOOLONG. */
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
    if (code != 0) return code; /* path ends at the folder that couldn't be made */
    *at = '/';
  }
  return 0;
}

/* One name for one file, whatever links lead to it: LMDB derives its lock's name from the name it is given. */
static int resolve(files *f, const char *path) {
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

/* ---- what is there --------------------------------------------------------------------------------------- */

enum { NOTHING, DATABASE };

/* NOTHING also for an empty file. MDB_INVALID when it is somebody else's. */
static int look_at(const char *path, int *what) {
  struct stat st;
  uint32_t head[5] = {0}; /* LMDB's magic is behind 16 bytes of page header */
  if (stat(path, &st) != 0) {
    *what = NOTHING;
    return errno == ENOENT ? 0 : errno;
  }
  if (!S_ISREG(st.st_mode)) return S_ISDIR(st.st_mode) ? EISDIR : MDB_INVALID;
  *what = st.st_size == 0 ? NOTHING : DATABASE;
  if (*what == NOTHING) return 0;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  ssize_t got = pread(fd, head, sizeof head, 0);
  close(fd);
  return got == (ssize_t)sizeof head && head[4] == 0xBEEFC0DE ? 0 : MDB_INVALID;
}

/* ---- the gate -------------------------------------------------------------------------------------------- */

static int gate_wait(const corral_host *host, int fd, int64_t deadline) {
  int code;
  while ((code = crl_lmdb_gate_try(fd)) == EAGAIN && host->now_ms() < deadline) (void)poll(NULL, 0, GATE_PAUSE_MS);
  return code;
}

/* Opens PATH-lease and takes the gate; again if the file was replaced meanwhile. */
static int gate_open(files *f, int64_t deadline) {
  for (;;) {
    struct stat ours, there;
    f->fd = f->host->own_fd(open(f->lease, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (f->fd < 0) return errno;
    int code = gate_wait(f->host, f->fd, deadline);
    if (code == 0 && fstat(f->fd, &ours) == 0 && stat(f->lease, &there) == 0 && ours.st_ino == there.st_ino &&
        ours.st_dev == there.st_dev)
      return 0;
    close(f->fd);
    f->fd = -1;
    if (code != 0) return code;
  }
}

/* ---- the mark in PATH-lease ---------------------------------------------------------------------------------- */

static int mark_now(char mark[MARK_ROOM], size_t *len) {
  int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return errno;
  size_t used = sizeof MARK - 1;
  memcpy(mark, MARK, used);
  ssize_t got = read(fd, mark + used, MARK_ROOM - used);
  close(fd);
  if (got < 32) return EIO;
  *len = used + (size_t)got;
  return 0;
}

static int mark_write(int fd, const char *mark, size_t len) {
  if (ftruncate(fd, 0) != 0) return errno;
  ssize_t put = pwrite(fd, mark, len, 0);
  return put == (ssize_t)len ? 0 : put < 0 ? errno : ENOSPC;
}

static int unlink_old(const char *path) { return unlink(path) == 0 || errno == ENOENT ? 0 : errno; }

static int foreign(const files *f, corral_error *error) {
  return f->host->fail(error, CORRAL_EFOREIGN,
                       "%.100s: made by something else, or by another version: choose another path, or delete it, -lock, -lease and -watch",
                       f->data);
}

/* Leaves either a database of this boot, or nothing at all. The gate is held. */
static int clear_old(const files *f, corral_error *error) {
  char mark[MARK_ROOM], old[MARK_ROOM];
  size_t len = 0;
  int what = NOTHING, code = mark_now(mark, &len);
  if (code != 0) return crl_lmdb_fail(f->host, BOOT_ID, code, error);
  code = look_at(f->data, &what);
  ssize_t got = code == 0 ? pread(f->fd, old, sizeof old, 0) : 0;
  if (got < 0) code = errno;
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  int ours = (size_t)got >= sizeof MARK - 1 && memcmp(old, MARK, sizeof MARK - 1) == 0;
  if (!ours && (got > 0 || what == DATABASE)) return foreign(f, error);
  int current = (size_t)got == len && memcmp(old, mark, len) == 0;
  if (current && what == DATABASE) return CORRAL_OK;
  code = unlink_old(f->data);
  if (code == 0) code = unlink_old(f->lock);
  if (ours) (void)unlink(f->watch); /* where it stays it does no harm */
  if (code == 0) code = mark_write(f->fd, mark, len); /* before the database: one without a mark is foreign */
  return code == 0 ? CORRAL_OK : crl_lmdb_fail(f->host, f->data, code, error);
}

/* ---- the environment ------------------------------------------------------------------------------------- */

static int file_size(MDB_env *env, int *fd, uint64_t *size) {
  struct stat st;
  int code = mdb_env_get_fd(env, fd);
  if (code != 0) return code;
  if (fstat(*fd, &st) != 0) return errno;
  *size = (uint64_t)st.st_size;
  return 0;
}

/* The index is asked first: meanwhile the file can only have grown. */
static int check_length(MDB_env *env) {
  MDB_envinfo info;
  MDB_stat st;
  uint64_t size = 0;
  int fd, code = mdb_env_info(env, &info);
  if (code == 0) code = mdb_env_stat(env, &st);
  if (code == 0) code = file_size(env, &fd, &size);
  if (code != 0) return code;
  return size < (uint64_t)(info.me_last_pgno + 1) * st.ms_psize ? MDB_CORRUPTED : 0;
}

static int extend_file(MDB_env *env) {
  MDB_envinfo info;
  uint64_t size = 0;
  int fd, code = mdb_env_info(env, &info);
  if (code == 0) code = file_size(env, &fd, &size);
  if (code == 0 && size < info.me_mapsize && ftruncate(fd, (off_t)info.me_mapsize) != 0) code = errno;
  return code;
}

/* The wall clock of whoever made the file counts for all: one of another time would let numbers that grow by it jump. */
static int agree_on_wall(crl_lmdb_env *e, MDB_txn *txn) {
  int64_t ahead = e->host->wall_ms() - e->host->boot_ms();
  MDB_val key = {.mv_size = 4, .mv_data = (void *)(uintptr_t)"wall"}, value = {.mv_size = sizeof ahead, .mv_data = &ahead};
  int code = mdb_put(txn, e->meta, &key, &value, MDB_NOOVERWRITE);
  if (code != 0 && code != MDB_KEYEXIST) return code;
  if (value.mv_size != sizeof ahead) return MDB_INVALID;
  memcpy(&e->wall_ahead, value.mv_data, sizeof ahead);
  return 0;
}

static int open_tables(crl_lmdb_env *e, MDB_txn *txn) {
  MDB_dbi top;
  MDB_stat st;
  MDB_val key = {.mv_size = 6, .mv_data = (void *)(uintptr_t)"format"};
  MDB_val value, format = {.mv_size = sizeof FORMAT - 1, .mv_data = (void *)(uintptr_t)FORMAT};
  int code = mdb_dbi_open(txn, NULL, 0, &top);
  if (code == 0) code = mdb_stat(txn, top, &st);
  if (code != 0) return code;
  code = mdb_dbi_open(txn, "corral.meta", st.ms_entries == 0 ? MDB_CREATE : 0, &e->meta);
  if (code == MDB_NOTFOUND) return MDB_INVALID;
  if (code == 0) code = mdb_dbi_open(txn, "corral.heads", MDB_CREATE, &e->heads);
  if (code == 0) code = mdb_dbi_open(txn, "corral.bodies", MDB_CREATE, &e->bodies);
  if (code == 0) code = mdb_dbi_open(txn, "corral.index", MDB_CREATE, &e->index);
  if (code == 0) code = mdb_get(txn, e->meta, &key, &value);
  if (code == MDB_NOTFOUND) code = mdb_put(txn, e->meta, &key, &format, 0);
  else if (code == 0 && (value.mv_size != format.mv_size || memcmp(value.mv_data, FORMAT, format.mv_size) != 0)) code = MDB_INVALID;
  return code == 0 ? agree_on_wall(e, txn) : code;
}

static int set_up(crl_lmdb_env *e) {
  MDB_txn *txn;
  int dead, code = mdb_reader_check(e->env, &dead);
  if (code == 0) code = check_length(e->env);
  if (code == 0) code = mdb_txn_begin(e->env, NULL, 0, &txn);
  if (code != 0) return code;
  code = extend_file(e->env);
  if (code == 0) code = open_tables(e, txn);
  if (code == 0) return mdb_txn_commit(txn);
  mdb_txn_abort(txn);
  return code;
}

static const size_t SLACK_LEAST = (size_t)16 << 20;

static size_t map_for(size_t size) { return size + (size / 4 > SLACK_LEAST ? size / 4 / 65536 * 65536 : SLACK_LEAST); }

static int open_env(crl_lmdb_env *e, const files *f, int64_t size) {
  struct stat st;
  int code = mdb_env_create(&e->env);
  if (code != 0) return code;
  code = mdb_env_set_mapsize(e->env, map_for((size_t)size));
  if (code == 0) code = mdb_env_set_maxdbs(e->env, 4);
  if (code == 0) code = mdb_env_set_maxreaders(e->env, READERS);
  if (code == 0) code = mdb_env_open(e->env, f->data, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS, 0600);
  if (code == 0) code = set_up(e);
  if (code == 0 && stat(f->data, &st) != 0) code = errno;
  if (code == 0) {
    e->device = st.st_dev;
    e->inode = st.st_ino;
    return 0;
  }
  mdb_env_close(e->env);
  return code;
}

static int init_locks(crl_lmdb_env *e) {
  pthread_rwlockattr_t attr;
  int code = pthread_rwlockattr_init(&attr);
  if (code != 0) return code;
  /* Else a map that must grow waits for a moment without readers. */
  (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
  code = pthread_rwlock_init(&e->resize, &attr);
  pthread_rwlockattr_destroy(&attr);
  if (code != 0) return code;
  code = pthread_mutex_init(&e->idle_lock, NULL);
  if (code != 0) pthread_rwlock_destroy(&e->resize);
  return code;
}

static void free_env(crl_lmdb_env *e) {
  pthread_rwlock_destroy(&e->resize);
  pthread_mutex_destroy(&e->idle_lock);
  free(e->path);
  free(e);
}

/* The gate is held. */
static int new_env(const files *f, int64_t size, crl_lmdb_env **ret, corral_error *error) {
  crl_lmdb_env *e = calloc(1, sizeof *e);
  if (e == NULL) return CORRAL_ENOMEM;
  int code = init_locks(e);
  if (code != 0) {
    free(e);
    return crl_lmdb_fail(f->host, f->data, code, error);
  }
  e->host = f->host;
  e->pid = getpid();
  e->refs = 1;
  atomic_init(&e->size, (size_t)size);
  atomic_init(&e->broken, 0);
  atomic_init(&e->watches, 0);
  e->path = strdup(f->data);
  code = e->path == NULL ? ENOMEM : crl_lmdb_leases_init(&e->leases, f->fd);
  if (code == 0 && (code = open_env(e, f, size)) != 0) {
    e->leases.fd = -1; /* the caller's still */
    crl_lmdb_leases_free(&e->leases);
  }
  if (code != 0) {
    free_env(e);
    return crl_lmdb_fail(f->host, f->data, code, error);
  }
  e->ring_code = crl_lmdb_ring_open(f->watch, &e->ring);
  *ret = e;
  return CORRAL_OK;
}

/* ---- the registry ---------------------------------------------------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_once_t registry_once = PTHREAD_ONCE_INIT;
static crl_lmdb_env *registry;

static void before_fork(void) { pthread_mutex_lock(&registry_lock); }
static void in_parent(void) { pthread_mutex_unlock(&registry_lock); }

/* A child that kept its parent's leases open would keep them alive when the parent is dead. */
static void in_child(void) {
  for (crl_lmdb_env *e = registry; e != NULL; e = e->next) {
    if (e->leases.fd >= 0) close(e->leases.fd);
    e->leases.fd = -1;
  }
  pthread_mutex_unlock(&registry_lock);
}

static void watch_forks(void) { (void)pthread_atfork(before_fork, in_parent, in_child); }

static crl_lmdb_env *registered(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) return NULL;
  crl_lmdb_env *e = registry;
  while (e != NULL && (e->pid != getpid() || e->device != st.st_dev || e->inode != st.st_ino)) e = e->next;
  return e;
}

static int grow_map(crl_lmdb_env *e, size_t size) {
  int code = 0;
  pthread_rwlock_wrlock(&e->resize);
  MDB_envinfo info;
  code = mdb_env_info(e->env, &info);
  if (code == 0 && info.me_mapsize < map_for(size)) {
    code = mdb_env_set_mapsize(e->env, map_for(size));
    if (code == 0) code = extend_file(e->env);
  }
  if (code == 0 && atomic_load(&e->size) < size) atomic_store(&e->size, size);
  pthread_rwlock_unlock(&e->resize);
  return code;
}

static int share(const files *f, crl_lmdb_env *e, int64_t size, crl_lmdb_env **ret, corral_error *error) {
  if (atomic_load(&e->broken)) {
    return f->host->fail(error, CORRAL_EIO, "%.120s: broke, and other corrals of this process have it open still", f->data);
  }
  int code = grow_map(e, (size_t)size);
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  e->refs++;
  *ret = e;
  return CORRAL_OK;
}

/* Under the registry's lock, for LMDB forbids to open a file twice in one process. */
static int take_locked(files *f, int64_t size, int64_t deadline, crl_lmdb_env **ret, corral_error *error) {
  int what = NOTHING, code = look_at(f->data, &what);
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  crl_lmdb_env *e = registered(f->data);
  if (e != NULL) return share(f, e, size, ret, error);
  code = gate_open(f, deadline);
  if (code != 0) return crl_lmdb_fail(f->host, f->lease, code, error);
  int status = clear_old(f, error);
  if (status == CORRAL_OK) status = new_env(f, size, &e, error);
  crl_lmdb_gate_leave(f->fd);
  if (status != CORRAL_OK) {
    close(f->fd);
    return status;
  }
  e->next = registry;
  registry = e;
  *ret = e;
  return CORRAL_OK;
}

int crl_lmdb_env_take(const corral_host *host, const char *path, int64_t size, int64_t deadline, crl_lmdb_env **ret,
                      corral_error *error) {
  files *f = calloc(1, sizeof *f);
  if (f == NULL) return CORRAL_ENOMEM;
  f->host = host;
  f->fd = -1;
  host->guard_standard();
  int code = join(f->data, path, "", "");
  if (code == 0) code = make_parents(f->data);
  if (code != 0) {
    int status = crl_lmdb_fail(host, code == ENAMETOOLONG ? path : f->data, code, error);
    free(f);
    return status;
  }
  code = resolve(f, path);
  int status = code == 0 ? CORRAL_OK : crl_lmdb_fail(host, path, code, error);
  if (status == CORRAL_OK) {
    pthread_once(&registry_once, watch_forks);
    pthread_mutex_lock(&registry_lock);
    status = take_locked(f, size, deadline, ret, error);
    pthread_mutex_unlock(&registry_lock);
  }
  free(f);
  return status;
}

static void close_env(crl_lmdb_env *e) {
  /* LMDB warns of closing while another process opens; a gate that stays shut is not waited for. */
  int shut = gate_wait(e->host, e->leases.fd, e->host->now_ms() + CLOSE_WAIT_MS);
  while (e->idle_count > 0) mdb_txn_abort(e->idle[--e->idle_count]);
  mdb_env_close(e->env);
  crl_lmdb_ring_close(e->ring);
  if (shut == 0) crl_lmdb_gate_leave(e->leases.fd);
  crl_lmdb_leases_free(&e->leases);
  free_env(e);
}

void crl_lmdb_env_drop(crl_lmdb_env *e) {
  if (e->pid != getpid()) return; /* inherited by a fork: LMDB forbids to touch it */
  pthread_mutex_lock(&registry_lock);
  if (--e->refs == 0) {
    crl_lmdb_env **at = &registry;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    close_env(e);
  }
  pthread_mutex_unlock(&registry_lock);
}

/* ---- transactions ---------------------------------------------------------------------------------------- */

/* Another process has made the file larger than our map. */
static int adopt_size(crl_lmdb_env *e) {
  pthread_rwlock_wrlock(&e->resize);
  int code = mdb_env_set_mapsize(e->env, 0);
  pthread_rwlock_unlock(&e->resize);
  return code;
}

static MDB_txn *idle_pop(crl_lmdb_env *e) {
  pthread_mutex_lock(&e->idle_lock);
  MDB_txn *txn = e->idle_count > 0 ? e->idle[--e->idle_count] : NULL;
  pthread_mutex_unlock(&e->idle_lock);
  return txn;
}

static int read_try(crl_lmdb_env *e, MDB_txn **ret) {
  MDB_txn *txn = idle_pop(e);
  if (txn == NULL) return mdb_txn_begin(e->env, NULL, MDB_RDONLY, ret);
  int code = mdb_txn_renew(txn);
  if (code == 0) *ret = txn;
  else mdb_txn_abort(txn);
  return code;
}

/* What can be put right before one more try; else the code again. */
static int put_right(crl_lmdb_env *e, int code) {
  int dead = 0;
  if (code == MDB_MAP_RESIZED) return adopt_size(e);
  if (code == MDB_READERS_FULL && mdb_reader_check(e->env, &dead) == 0 && dead > 0) return 0;
  if (code == MDB_PANIC) atomic_store(&e->broken, 1);
  return code;
}

int crl_lmdb_read_begin(crl_lmdb_env *e, MDB_txn **ret) {
  for (;;) {
    pthread_rwlock_rdlock(&e->resize);
    int code = read_try(e, ret);
    if (code == 0) return 0;
    pthread_rwlock_unlock(&e->resize);
    code = put_right(e, code);
    if (code != 0) return code;
  }
}

void crl_lmdb_read_end(crl_lmdb_env *e, MDB_txn *txn) {
  mdb_txn_reset(txn);
  pthread_mutex_lock(&e->idle_lock);
  if (e->idle_count < CRL_LMDB_IDLE_READERS) {
    e->idle[e->idle_count++] = txn;
    txn = NULL;
  }
  pthread_mutex_unlock(&e->idle_lock);
  if (txn != NULL) mdb_txn_abort(txn);
  pthread_rwlock_unlock(&e->resize);
}

int crl_lmdb_write_begin(crl_lmdb_env *e, MDB_txn **ret) {
  for (;;) {
    pthread_rwlock_rdlock(&e->resize);
    int code = mdb_txn_begin(e->env, NULL, 0, ret);
    if (code == 0) return 0;
    pthread_rwlock_unlock(&e->resize);
    code = put_right(e, code);
    if (code != 0) return code;
  }
}

int crl_lmdb_write_end(crl_lmdb_env *e, MDB_txn *txn, int commit) {
  int code = 0;
  if (commit) code = mdb_txn_commit(txn);
  else mdb_txn_abort(txn);
  pthread_rwlock_unlock(&e->resize);
  if (code == MDB_PANIC) atomic_store(&e->broken, 1);
  return code;
}
