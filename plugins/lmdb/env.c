/* env.c: the environment of an LMDB store: its files, opened once per process and shared by all its
 * users.
 *
 * The data file is extended to the whole map at once (it is sparse, so that takes no room on the
 * disk). From then on a file shorter than its own index says has been truncated by another program,
 * and would kill the process that reads it by SIGBUS. Writing goes through pwrite: a full disk is
 * an error, not a signal. Truncating the file while it is in use can't be survived.
 *
 * The map is larger than size=, which bounds the pages in use: freed pages can't be used again
 * before the commit after the next, nor while a reader still sees them.
 *
 * An environment is counted by the handles, watches and calls that use it, and closed with the last
 * of them: a store whose files were replaced is opened anew while calls on the old ones are still
 * under way.
 *
 * All processes must see the same CLOCK_BOOTTIME: a store can't be shared across time namespaces
 * with an offset. */
#include "lmdb.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { CLOSE_WAIT_MS = 200, TRIES = 10 };

/* ---- the environment ----------------------------------------------------------------------- */

static int file_size(MDB_env *env, int *fd, uint64_t *size) {
  struct stat st;
  int code = mdb_env_get_fd(env, fd);
  if (code != 0) return code;
  if (fstat(*fd, &st) != 0) return errno;
  *size = (uint64_t)st.st_size;
  return 0;
}

/* The index is read before the size, since the file can only grow between the two. */
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
  if (code == 0 && size < info.me_mapsize && ftruncate(fd, (off_t)info.me_mapsize) != 0)
    code = errno;
  return code;
}

/* The wall clock of the process that made the file counts for all; another one would make numbers
 * jump that grow by it. */
static int agree_on_wall(crl_lmdb_env *e, MDB_txn *txn) {
  int64_t ahead = e->host->wall_ms() - e->host->boot_ms();
  MDB_val key = {.mv_size = 4, .mv_data = (void *)(uintptr_t) "wall"},
          value = {.mv_size = sizeof ahead, .mv_data = &ahead};
  int code = mdb_put(txn, e->meta, &key, &value, MDB_NOOVERWRITE);
  if (code != 0 && code != MDB_KEYEXIST) return code;
  if (value.mv_size != sizeof ahead) return MDB_INVALID;
  memcpy(&e->wall_ahead, value.mv_data, sizeof ahead);
  return 0;
}

/* The database has the same id as its mark; a database that was copied to this place has
 * another. */
static int agree_on_id(crl_lmdb_env *e, MDB_txn *txn, const char *id, int is_new) {
  MDB_val key = {.mv_size = 2, .mv_data = (void *)(uintptr_t) "id"},
          value = {.mv_size = CRL_LMDB_ID, .mv_data = (void *)(uintptr_t)id};
  if (is_new) return mdb_put(txn, e->meta, &key, &value, 0);
  int code = mdb_get(txn, e->meta, &key, &value);
  if (code == MDB_NOTFOUND) return MDB_CORRUPTED;
  return code == 0 && (value.mv_size != CRL_LMDB_ID || memcmp(value.mv_data, id, CRL_LMDB_ID) != 0)
             ? MDB_CORRUPTED
             : code;
}

/* `heads` is the table without a name: a look at any other begins with one for its name. */
static int open_tables(crl_lmdb_env *e, MDB_txn *txn, const char *id) {
  MDB_stat st;
  int code = mdb_dbi_open(txn, NULL, 0, &e->heads);
  if (code == 0) code = mdb_stat(txn, e->heads, &st);
  if (code != 0) return code;
  int is_new = st.ms_entries == 0;
  unsigned create = is_new ? MDB_CREATE : 0;
  code = mdb_dbi_open(txn, CRL_LMDB_TABLE "meta", create, &e->meta);
  if (code == 0) code = agree_on_id(e, txn, id, is_new);
  if (code == 0) code = mdb_dbi_open(txn, CRL_LMDB_TABLE "bodies", create, &e->bodies);
  if (code == 0) code = mdb_dbi_open(txn, CRL_LMDB_TABLE "index", create, &e->index);
  if (code == MDB_NOTFOUND || code == MDB_INCOMPATIBLE) return MDB_CORRUPTED;
  return code == 0 ? agree_on_wall(e, txn) : code;
}

static int set_up(crl_lmdb_env *e, const char *id) {
  MDB_txn *txn;
  int dead, code = mdb_reader_check(e->env, &dead);
  if (code == 0) code = check_length(e->env);
  if (code == 0) code = mdb_txn_begin(e->env, NULL, 0, &txn);
  if (code != 0) return code;
  code = extend_file(e->env);
  if (code == 0) code = open_tables(e, txn, id);
  if (code == 0) return mdb_txn_commit(txn); /* the transaction has ended even if this fails */
  mdb_txn_abort(txn);
  return code;
}

static const size_t SLACK_LEAST = (size_t)16 << 20;

static size_t map_for(size_t size) {
  return size + (size / 4 > SLACK_LEAST ? size / 4 / 65536 * 65536 : SLACK_LEAST);
}

/* Records the opened files; ESTALE: they were replaced just before liblmdb opened them. */
static int is_as_checked(crl_lmdb_env *e, const crl_lmdb_files *f) {
  crl_lmdb_file lease;
  int fd, code = mdb_env_get_fd(e->env, &fd);
  if (code == 0) code = crl_lmdb_file_of(fd, &e->data);
  if (code == 0) code = crl_lmdb_file_of(f->fd, &e->lease);
  if (code == 0) code = crl_lmdb_file_at(f->lock, 0, &e->lock);
  if (code == 0) code = crl_lmdb_file_at(f->lease, 0, &lease);
  if (code != 0) return code;
  int same = crl_lmdb_file_same(&e->data, &f->checked_data) &&
             crl_lmdb_file_same(&e->lock, &f->checked_lock) &&
             crl_lmdb_file_same(&e->lease, &lease);
  return same ? 0 : ESTALE;
}

/* Sets up what liblmdb has opened. It makes a data file where the checked one has just vanished: on
 * failure that one is to be put aside, since the mark doesn't name it and others would take it for
 * a stranger's. */
static int set_up_opened(crl_lmdb_env *e, crl_lmdb_files *f) {
  crl_lmdb_file opened;
  int fd, code = set_up(e, f->id);
  if (code == 0) code = is_as_checked(e, f);
  if (code != 0 && mdb_env_get_fd(e->env, &fd) == 0 && crl_lmdb_file_of(fd, &opened) == 0)
    f->checked_data = opened;
  return code;
}

static int open_env(crl_lmdb_env *e, crl_lmdb_files *f, int64_t size) {
  int code = mdb_env_create(&e->env);
  if (code != 0) return code;
  code = mdb_env_set_mapsize(e->env, map_for((size_t)size));
  if (code == 0) code = mdb_env_set_maxdbs(e->env, 3);
  if (code == 0) code = mdb_env_set_maxreaders(e->env, CRL_LMDB_READERS);
  if (code == 0) code = mdb_env_open(e->env, f->data, MDB_NOSUBDIR | MDB_NOSYNC | MDB_NOTLS, 0600);
  if (code == 0) code = set_up_opened(e, f);
  if (code != 0) mdb_env_close(e->env);
  return code;
}

static void free_env(crl_lmdb_env *e) {
  crl_lmdb_door_free(&e->map);
  free(e->path);
  free(e);
}

static crl_lmdb_env *blank_env(const crl_lmdb_files *f, int64_t size) {
  crl_lmdb_env *e = calloc(1, sizeof *e);
  if (e == NULL) return NULL;
  if (crl_lmdb_door_init(&e->map) != 0) {
    free(e);
    return NULL;
  }
  e->host = f->host;
  e->pid = getpid();
  e->path = strdup(f->data);
  atomic_init(&e->refs, 1);
  atomic_init(&e->size, (size_t)size);
  if (e->path != NULL) return e;
  free_env(e);
  return NULL;
}

/* Opens the files as a new environment, with the gate held. 0 or an LMDB code; on 0 it takes over
 * f->fd. */
static int new_env(crl_lmdb_files *f, int64_t size, crl_lmdb_env **ret) {
  crl_lmdb_env *e = blank_env(f, size);
  if (e == NULL) return ENOMEM;
  int code = crl_lmdb_leases_init(&e->leases, f->fd);
  if (code == 0 && (code = open_env(e, f, size)) != 0) {
    e->leases.fd = -1; /* f->fd remains the caller's */
    crl_lmdb_leases_free(&e->leases, 0);
  }
  if (code != 0) {
    free_env(e);
    return code;
  }
  e->ring_code = crl_lmdb_ring_open(f, &e->ring);
  if (e->ring != NULL && crl_lmdb_file_at(f->watch, 0, &e->watch) != 0)
    memset(&e->watch, 0, sizeof e->watch);
  memcpy(e->notice, f->notice, sizeof e->notice);
  atomic_init(&e->has_notice, e->notice[0] != '\0');
  *ret = e;
  return 0;
}

/* ---- the registry -------------------------------------------------------------------------- */

static pthread_mutex_t registry_lock = PTHREAD_MUTEX_INITIALIZER;
static crl_lmdb_env *registry;

static void before_fork(void) { pthread_mutex_lock(&registry_lock); }
static void in_parent(void) { pthread_mutex_unlock(&registry_lock); }

/* Closes the lease files: a child that kept them open would keep its parent's leases alive when the
 * parent is dead. A parent that has closed all its descriptors may have another file there. */
static void in_child(void) {
  for (crl_lmdb_env *e = registry; e != NULL; e = e->next) {
    crl_lmdb_file there;
    if (crl_lmdb_file_of(e->leases.fd, &there) == 0 && crl_lmdb_file_same(&there, &e->lease))
      close(e->leases.fd);
    e->leases.fd = -1;
    e->is_parents = 1;
  }
  crl_lmdb_leases_in_child();
  pthread_mutex_unlock(&registry_lock);
}

/* Done when the plugin is loaded, because a fork in the middle of a pthread_once would run it
 * twice. */
__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, in_parent, in_child);
}

void crl_lmdb_env_store(int opens) {
  pthread_mutex_lock(&registry_lock);
  crl_lmdb_leases_store(opens);
  pthread_mutex_unlock(&registry_lock);
}

/* The environment of this file, whole or not, since LMDB forbids to open a file twice in one
 * process. */
static crl_lmdb_env *registered(const crl_lmdb_files *f) {
  crl_lmdb_file data;
  if (crl_lmdb_file_at(f->data, 0, &data) != 0 || !data.is_there) return NULL;
  crl_lmdb_env *e = registry;
  while (e != NULL && (e->pid != getpid() || !crl_lmdb_file_same(&e->data, &data))) e = e->next;
  return e;
}

static int grow_map(crl_lmdb_env *e, size_t size) {
  crl_lmdb_door_close(&e->map);
  MDB_envinfo info;
  int code = mdb_env_info(e->env, &info);
  if (code == 0 && info.me_mapsize < map_for(size)) {
    code = mdb_env_set_mapsize(e->env, map_for(size));
    if (code == 0) code = extend_file(e->env);
  }
  if (code == 0 && atomic_load(&e->size) < size) atomic_store(&e->size, size);
  crl_lmdb_door_open(&e->map);
  return code;
}

static int share(const crl_lmdb_files *f, crl_lmdb_env *e, int64_t size, crl_lmdb_env **ret,
                 corral_error *error) {
  if (atomic_load(&e->broken)) {
    return f->host->fail(error, CORRAL_EIO,
                         "%.120s: broke, and other corrals of this process have it open still",
                         f->data);
  }
  int code = grow_map(e, (size_t)size);
  if (code != 0) return crl_lmdb_fail(f->host, f->data, code, error);
  atomic_fetch_add(&e->refs, 1);
  *ret = e;
  return CORRAL_OK;
}

static int is_damage(int code) {
  return code == MDB_CORRUPTED || code == MDB_PAGE_NOTFOUND || code == MDB_INVALID ||
         code == MDB_VERSION_MISMATCH;
}

/* Enters again, after another program took away files while they were being opened, and puts aside
 * the rest, which has no mark that others would know it by. */
static int enter_again(crl_lmdb_files *f, int64_t deadline, corral_error *error) {
  crl_lmdb_files_leave(f);
  int status = crl_lmdb_files_enter(f, deadline, error);
  return status == CORRAL_OK
             ? crl_lmdb_files_aside(f, &f->checked_data, "replaced while it was opened", error)
             : status;
}

/* Opens the files, under the gate. Files that liblmdb can't read after all, or that don't match the
 * mark, are put aside. */
static int open_files(crl_lmdb_files *f, int64_t size, int64_t deadline, crl_lmdb_env **ret,
                      corral_error *error) {
  for (int tries = TRIES;; tries--) {
    int status = crl_lmdb_files_prepare(f, error);
    if (status != CORRAL_OK) return status;
    int code = new_env(f, size, ret);
    if (code == 0) return CORRAL_OK;
    int is_gone = code == ESTALE || code == ENOENT;
    if (tries == 1 || (!is_gone && !is_damage(code)))
      return crl_lmdb_fail(f->host, f->data, code, error);
    if (is_gone)
      status = enter_again(f, deadline, error);
    else
      status = crl_lmdb_files_aside(f, &f->checked_data, "damaged, or another store's", error);
    if (status != CORRAL_OK) return status;
  }
}

/* Under the registry's lock. */
static int take_locked(crl_lmdb_files *f, int64_t size, int64_t deadline, crl_lmdb_env **ret,
                       corral_error *error) {
  crl_lmdb_env *e = registered(f);
  if (e != NULL && crl_lmdb_env_whole(e)) return share(f, e, size, ret, error);
  int status = crl_lmdb_files_enter(f, deadline, error);
  if (status != CORRAL_OK) return status;
  if (e != NULL)
    status = crl_lmdb_files_aside(
        f, &e->data, atomic_load(&e->damaged) ? "damaged" : "its -lock, -lease or -watch is gone",
        error);
  if (status == CORRAL_OK) status = open_files(f, size, deadline, &e, error);
  if (status == CORRAL_OK) {
    crl_lmdb_gate_leave(f->fd);
    e->next = registry;
    registry = e;
    *ret = e;
  } else {
    crl_lmdb_files_leave(f);
  }
  return status;
}

int crl_lmdb_env_take(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_env **ret,
                      corral_error *error) {
  crl_lmdb_files *f = calloc(1, sizeof *f);
  if (f == NULL) return CORRAL_ENOMEM;
  f->host = wanted->host;
  f->shared = wanted->shared;
  f->host->guard_standard();
  int status = crl_lmdb_files_find(f, wanted->path, error);
  if (status == CORRAL_OK) {
    pthread_mutex_lock(&registry_lock);
    status = take_locked(f, wanted->size, deadline, ret, error);
    pthread_mutex_unlock(&registry_lock);
  }
  free(f);
  return status;
}

static MDB_txn *idle_pop(crl_lmdb_env *e) {
  MDB_txn *txn = NULL;
  for (int i = 0; i < CRL_LMDB_IDLE_READERS && txn == NULL; i++)
    if (atomic_load_explicit(&e->idle[i], memory_order_relaxed) != NULL)
      txn = atomic_exchange(&e->idle[i], NULL);
  return txn;
}

/* 1: it is kept. */
static int idle_push(crl_lmdb_env *e, MDB_txn *txn) {
  for (int i = 0; i < CRL_LMDB_IDLE_READERS; i++) {
    MDB_txn *none = NULL;
    if (atomic_compare_exchange_strong(&e->idle[i], &none, txn)) return 1;
  }
  return 0;
}

static void close_env(crl_lmdb_env *e) {
  /* LMDB warns of closing while another process opens; a gate that stays shut isn't waited for */
  int shut = crl_lmdb_gate_wait(e->host, e->leases.fd, e->host->now_ms() + CLOSE_WAIT_MS);
  for (MDB_txn *txn; (txn = idle_pop(e)) != NULL;) mdb_txn_abort(txn);
  mdb_env_close(e->env);
  crl_lmdb_ring_close(e->ring);
  if (shut == 0) crl_lmdb_gate_leave(e->leases.fd);
  crl_lmdb_leases_free(&e->leases, e->host->boot_ms());
  free_env(e);
}

/* Drops a reference unless it is the last, which is dropped only under the registry's lock. 1:
 * done. */
static int drop_one_of_many(crl_lmdb_env *e) {
  size_t refs = atomic_load(&e->refs);
  while (refs > 1)
    if (atomic_compare_exchange_weak(&e->refs, &refs, refs - 1)) return 1;
  return 0;
}

void crl_lmdb_env_drop(crl_lmdb_env *e) {
  if (e->is_parents) return; /* LMDB forbids to touch it */
  if (drop_one_of_many(e)) return;
  pthread_mutex_lock(&registry_lock);
  if (atomic_fetch_sub(&e->refs, 1) == 1) {
    crl_lmdb_env **at = &registry;
    while (*at != e) at = &(*at)->next;
    *at = e->next;
    close_env(e);
  }
  pthread_mutex_unlock(&registry_lock);
}

/* ---- transactions -------------------------------------------------------------------------- */

/* Adopts the size of a file that another process has made larger than this map. */
static int adopt_size(crl_lmdb_env *e) {
  crl_lmdb_door_close(&e->map);
  int code = mdb_env_set_mapsize(e->env, 0);
  crl_lmdb_door_open(&e->map);
  return code;
}

static int read_try(crl_lmdb_env *e, MDB_txn **ret) {
  MDB_txn *txn = idle_pop(e);
  if (txn == NULL) return mdb_txn_begin(e->env, NULL, MDB_RDONLY, ret);
  int code = mdb_txn_renew(txn);
  if (code == 0)
    *ret = txn;
  else
    mdb_txn_abort(txn);
  return code;
}

/* Repairs what can be repaired before one more try: 0; else returns the code again. */
static int put_right(crl_lmdb_env *e, int code) {
  int dead = 0;
  if (code == MDB_MAP_RESIZED) return adopt_size(e);
  if (code == MDB_READERS_FULL && mdb_reader_check(e->env, &dead) == 0 && dead > 0) return 0;
  if (code == MDB_PANIC) atomic_store(&e->broken, 1);
  return code;
}

int crl_lmdb_read_begin(crl_lmdb_env *e, MDB_txn **ret) {
  for (;;) {
    crl_lmdb_door_enter(&e->map);
    int code = read_try(e, ret);
    if (code == 0) return 0;
    crl_lmdb_door_leave(&e->map);
    /* A reader locks the byte of its process number in the lock file. */
    if (code == EAGAIN) return CRL_LMDB_SAME_PID;
    code = put_right(e, code);
    if (code != 0) return code;
  }
}

void crl_lmdb_read_end(crl_lmdb_env *e, MDB_txn *txn) {
  mdb_txn_reset(txn);
  if (!idle_push(e, txn)) mdb_txn_abort(txn);
  crl_lmdb_door_leave(&e->map);
}

int crl_lmdb_write_begin(crl_lmdb_env *e, MDB_txn **ret) {
  for (;;) {
    crl_lmdb_door_enter(&e->map);
    int code = mdb_txn_begin(e->env, NULL, 0, ret);
    if (code == 0) return 0;
    crl_lmdb_door_leave(&e->map);
    code = put_right(e, code);
    if (code != 0) return code;
  }
}

int crl_lmdb_write_end(crl_lmdb_env *e, MDB_txn *txn, int commit) {
  int code = 0;
  if (commit)
    code = mdb_txn_commit(txn);
  else
    mdb_txn_abort(txn);
  crl_lmdb_door_leave(&e->map);
  if (code == MDB_PANIC) atomic_store(&e->broken, 1);
  return code;
}
