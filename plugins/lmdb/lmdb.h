/* lmdb.h: declarations shared by the files of the LMDB store, from the bottom up:
 *
 *   door.c     many inside at once, or one alone
 *   check.c    whether a file may be mapped
 *   lease.c    leases and holds of live processes
 *   errors.c   statuses and texts of LMDB codes and errnos
 *   files.c    the store's files: owners, mark, what is put aside
 *   whole.c    whether an environment's files are still there
 *   watch.c    changes, reported to all processes
 *   env.c      the files, opened once per process
 *   kv.c       records inside a transaction
 *   lock.c     users' locks
 *   handle.c   the files that a call goes to
 *   inspect.c  what is to be known of the file
 *   list.c     the keys of locks
 *   lmdb.c     batches, URI, the table */
#ifndef CRL_LMDB_H
#define CRL_LMDB_H

#include <corral/plugin.h>

#include <errno.h>
#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { CRL_LMDB_MAX_KEY = 500, CRL_LMDB_IDLE_READERS = 4, CRL_LMDB_READERS = 1022 };
/* Code, among errnos and LMDB's own, of a file that a process of another PID namespace with this
 * process's number reads. LMDB knows readers by their numbers. */
enum { CRL_LMDB_SAME_PID = EUSERS };

/* ---- door.c -------------------------------------------------------------------------------- */

/* `inside` counts the threads inside. While CRL_LMDB_CLOSED is added to it, nobody enters. */
typedef struct crl_lmdb_door {
  _Atomic uint32_t inside;
  pthread_mutex_t lock;
  pthread_cond_t moved; /* it was opened, or the last one has left a closed one */
} crl_lmdb_door;

#define CRL_LMDB_CLOSED (UINT32_C(1) << 31)

/* 0 or an errno. */
int crl_lmdb_door_init(crl_lmdb_door *door);
void crl_lmdb_door_free(crl_lmdb_door *door);
void crl_lmdb_door_enter_late(crl_lmdb_door *door);
void crl_lmdb_door_last_left(crl_lmdb_door *door);
/* Waits while it is closed. Who is inside must not enter once more. */
static inline void crl_lmdb_door_enter(crl_lmdb_door *door) {
  if (atomic_fetch_add_explicit(&door->inside, 1, memory_order_acquire) >= CRL_LMDB_CLOSED)
    crl_lmdb_door_enter_late(door);
}
static inline void crl_lmdb_door_leave(crl_lmdb_door *door) {
  if (atomic_fetch_sub_explicit(&door->inside, 1, memory_order_release) == CRL_LMDB_CLOSED + 1)
    crl_lmdb_door_last_left(door);
}
/* Keeps others out, and waits until all have left: the caller is alone until it opens it. */
void crl_lmdb_door_close(crl_lmdb_door *door);
void crl_lmdb_door_open(crl_lmdb_door *door);

/* ---- lease.c ------------------------------------------------------------------------------- */

typedef struct crl_lmdb_lease crl_lmdb_lease;
enum { CRL_LMDB_LEASE_CHAINS = 256 };

/* The bytes that this process has locked in PATH-lease: one for each lease that it holds. */
typedef struct crl_lmdb_leases {
  pthread_mutex_t lock;
  int fd;
  void *page; /* a mapping of the file; MAP_FAILED: none */
  crl_lmdb_lease *chains[CRL_LMDB_LEASE_CHAINS];
} crl_lmdb_leases;

/* Takes over fd. 0 or an errno. */
int crl_lmdb_leases_init(crl_lmdb_leases *leases, int fd);
/* Unlocks the bytes of all leases. */
void crl_lmdb_leases_drop(crl_lmdb_leases *leases);
/* The same, and closes fd, unless holds that aren't over at `now` have bytes. Under the registry's
 * lock, as the next one. */
void crl_lmdb_leases_free(crl_lmdb_leases *leases, int64_t now);
/* In the child of a fork: closes the descriptors that crl_lmdb_leases_free left open. */
void crl_lmdb_leases_in_child(void);
/* A store of this process opens, or closes: the last one closes those descriptors, too. */
void crl_lmdb_leases_store(int opens);
/* Locks this token's byte until it is dropped, or until a later take finds that `until` has passed.
 * *fresh: 1: the process didn't have it before. 0 or an errno. */
int crl_lmdb_lease_take(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh);
/* The same for the token of a hold, or of a place in a lock's queue. */
int crl_lmdb_lease_hold(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh);
void crl_lmdb_lease_drop(crl_lmdb_leases *leases, const uint8_t *token);
/* Unlocks the bytes that these operations, which were performed, have ended. `fresh` has a byte for
 * each: it locked one. */
void crl_lmdb_leases_ended(crl_lmdb_leases *leases, const corral_batch *batch,
                           const uint8_t *fresh);
/* 1: a live process, this one or another, has locked this token's byte. */
int crl_lmdb_lease_alive(crl_lmdb_leases *leases, const uint8_t *token);
/* The gate: only its holder may open, close or replace the files. 0, EAGAIN, or another errno. */
int crl_lmdb_gate_try(int fd);
void crl_lmdb_gate_leave(int fd);

/* ---- check.c ------------------------------------------------------------------------------- */

enum { CRL_LMDB_PAGE_MOST = 32768, CRL_LMDB_HEAD = CRL_LMDB_PAGE_MOST + 512 };

/* Checks a file before liblmdb maps it: 0, or MDB_CORRUPTED. `bytes`: its first CRL_LMDB_HEAD
 * bytes, or all of a shorter file. */
int crl_lmdb_check(const uint8_t *bytes, size_t len, uint64_t file_size);

/* ---- files.c ------------------------------------------------------------------------------- */

enum { CRL_LMDB_ID = 32, CRL_LMDB_MARK = 192, CRL_LMDB_NOTICE = 400 };

typedef struct crl_lmdb_file {
  dev_t device;
  ino_t inode;
  int is_there;
} crl_lmdb_file;

/* The files of a store, while it is being opened. */
typedef struct crl_lmdb_files {
  const corral_host *host;
  int shared; /* other users may own and write them */
  char data[PATH_MAX], lock[PATH_MAX], lease[PATH_MAX], watch[PATH_MAX];
  int fd; /* of the lease file, with the gate; -1: none */
  char id[CRL_LMDB_ID + 1];
  crl_lmdb_file checked_data, checked_lock; /* as crl_lmdb_files_prepare left them */
  char notice[CRL_LMDB_NOTICE];             /* what was put aside; "": nothing */
} crl_lmdb_files;

/* Finds the file that a path leads to, which may be none. 0 or an errno. */
int crl_lmdb_file_at(const char *path, int follow, crl_lmdb_file *ret);
/* Finds the file of an open descriptor. 0 or an errno. */
int crl_lmdb_file_of(int fd, crl_lmdb_file *ret);
int crl_lmdb_file_same(const crl_lmdb_file *a, const crl_lmdb_file *b);
/* True for a folder that other users may write, where they could replace a checked file. The user's
 * own group counts as the user. */
int crl_lmdb_folder_is_open(const char *folder);
/* Finds the files' names, and makes missing folders. A status, as the next two. */
int crl_lmdb_files_find(crl_lmdb_files *f, const char *path, corral_error *error);
/* Checks the files' owners and modes, and takes the gate. */
int crl_lmdb_files_enter(crl_lmdb_files *f, int64_t deadline, corral_error *error);
/* Leaves a database of this boot that liblmdb may map, or empty files. The gate is held. */
int crl_lmdb_files_prepare(crl_lmdb_files *f, corral_error *error);
/* Renames data and lock file, if `data` is still the data file. The gate is held. */
int crl_lmdb_files_aside(crl_lmdb_files *f, const crl_lmdb_file *data, const char *reason,
                         corral_error *error);
/* Gives the gate back. */
void crl_lmdb_files_leave(crl_lmdb_files *f);
/* Takes the gate: 0, EAGAIN when it is still taken at `deadline`, or another errno. */
int crl_lmdb_gate_wait(const corral_host *host, int fd, int64_t deadline);

/* ---- env.c --------------------------------------------------------------------------------- */

typedef struct crl_lmdb_ring crl_lmdb_ring;

/* The names of the other tables begin so; they stand among the keys of `heads`. */
#define CRL_LMDB_TABLE "~table:"

/* crl_lmdb_leases_store under the registry's lock. */
void crl_lmdb_env_store(int opens);
/* The open files, shared by all handles of this process. */
typedef struct crl_lmdb_env {
  const corral_host *host;
  struct crl_lmdb_env *next;
  char *path;                             /* of the data file, resolved */
  crl_lmdb_file data, lock, lease, watch; /* `watch`: not there without a ring */
  pid_t pid;
  int is_parents;     /* this process is a fork of the one that opened it */
  atomic_size_t refs; /* number of handles, watches and calls under way */
  atomic_size_t size; /* bytes that records may use: the largest size= of this process */
  atomic_int broken;  /* LMDB refuses to go on; the files must be opened anew */
  atomic_int damaged; /* the database contradicts itself, and must be put aside */
  atomic_int has_notice;
  char notice[CRL_LMDB_NOTICE]; /* what was put aside when it was opened */
  MDB_env *env;
  MDB_dbi heads, bodies, index, meta;
  /* wall clock minus boot clock, in ms, when the file was made */
  int64_t wall_ahead;
  crl_lmdb_door map; /* every transaction is inside; a change of the map is alone */
  MDB_txn *_Atomic idle[CRL_LMDB_IDLE_READERS]; /* reset read transactions; NULL: a free place */
  crl_lmdb_leases leases;
  crl_lmdb_ring *ring; /* NULL: changes can't be reported; ring_code is the errno why */
  int ring_code;
} crl_lmdb_env;

/* The settings of a URI. */
typedef struct crl_lmdb_wanted {
  const corral_host *host;
  const char *path; /* absolute */
  int64_t size;
  int shared;
} crl_lmdb_wanted;

/* The environment of the files that wanted->path leads to, opened if this process hasn't; to be
 * given to crl_lmdb_env_drop. A status. */
int crl_lmdb_env_take(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_env **ret,
                      corral_error *error);
void crl_lmdb_env_drop(crl_lmdb_env *env);

/* ---- whole.c ------------------------------------------------------------------------------- */

/* 1: the path still leads to the environment's data file. */
int crl_lmdb_env_leads(const crl_lmdb_env *env, const char *path);
/* 1: the other files beside it are still those that were opened. */
int crl_lmdb_env_whole(crl_lmdb_env *env);

/* ---- errors.c ------------------------------------------------------------------------------ */

/* The status of an LMDB code or errno, with a text that names the file and the remedy. */
int crl_lmdb_fail(const corral_host *host, const char *path, int code, corral_error *error);
/* Begins a transaction: 0 or an LMDB code. Every transaction that began must end, once, through
 * crl_lmdb_read_end or crl_lmdb_write_end; a commit that fails has freed it too. */
int crl_lmdb_read_begin(crl_lmdb_env *env, MDB_txn **ret);
void crl_lmdb_read_end(crl_lmdb_env *env, MDB_txn *txn);
int crl_lmdb_write_begin(crl_lmdb_env *env, MDB_txn **ret);
int crl_lmdb_write_end(crl_lmdb_env *env, MDB_txn *txn, int commit);

/* ---- handle.c ------------------------------------------------------------------------------ */

/* A view of a path, whichever files it leads to over time. */
typedef struct crl_lmdb_handle {
  const crl_lmdb_wanted *wanted;
  pid_t pid;
  crl_lmdb_door door; /* inside, env stays; it is changed alone */
  crl_lmdb_env *env;
  atomic_llong checked; /* boot_ms at which the path was last seen to lead to env */
} crl_lmdb_handle;

/* `wanted` must outlive the handle. CORRAL_OK with a text in *error is a notice, here and below. */
int crl_lmdb_handle_open(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_handle **ret,
                         corral_error *error);
void crl_lmdb_handle_close(crl_lmdb_handle *handle);
/* *ret: the environment of the files that the path leads to now, to be given to crl_lmdb_env_drop.
 * Without `writes`, the files of up to CRL_LMDB_STALE_MS ago are good enough. */
int crl_lmdb_handle_enter(crl_lmdb_handle *handle, int writes, int64_t now, int64_t deadline,
                          crl_lmdb_env **ret, corral_error *error);
enum { CRL_LMDB_STALE_MS = 1000 };
/* The same without `writes`, where nothing is to be checked or told; else NULL. It is to be given
 * back soon, by crl_lmdb_handle_leave. */
crl_lmdb_env *crl_lmdb_handle_glance(crl_lmdb_handle *handle, int64_t now);
static inline void crl_lmdb_handle_leave(crl_lmdb_handle *handle) {
  crl_lmdb_door_leave(&handle->door);
}

/* ---- watch.c ------------------------------------------------------------------------------- */

enum { CRL_LMDB_NEWS = 256, CRL_LMDB_NEWS_ROOM = 16384 };

/* Keys that a transaction changes; more than fit: any key. */
typedef struct crl_lmdb_news {
  size_t count, used;
  uint16_t lens[CRL_LMDB_NEWS];
  uint8_t keys[CRL_LMDB_NEWS_ROOM]; /* the keys, without gaps */
} crl_lmdb_news;

/* Maps the file, and makes it where it is missing; the gate is held. 0 or an errno. */
int crl_lmdb_ring_open(const crl_lmdb_files *f, crl_lmdb_ring **ret);
void crl_lmdb_ring_close(crl_lmdb_ring *ring); /* `ring` may be NULL */
/* Adds a changed key to the news of a transaction. */
void crl_lmdb_note(const crl_lmdb_env *env, crl_lmdb_news *news, const void *key, size_t key_len);
/* Reports the changes to all watches of all processes. To be called after the commit, so that the
 * changes can be seen. */
void crl_lmdb_tell(crl_lmdb_env *env, const crl_lmdb_news *news);
/* Reports to all watches that any key may have changed: the files were replaced. */
void crl_lmdb_tell_any(crl_lmdb_env *env);
/* Opens a watch. 0 or an errno. `path`, as the URI has it, and `env` must outlive the watch. */
int crl_lmdb_watch_open(crl_lmdb_env *env, const char *path, void **ret);
/* Closes a watch; returns its environment. */
crl_lmdb_env *crl_lmdb_watch_close(void *watch);
/* As corral_store.changes. */
int crl_lmdb_changes(void *watch, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);

/* ---- kv.c: all return LMDB codes ----------------------------------------------------------- */

typedef struct crl_lmdb_tx {
  crl_lmdb_env *env;
  MDB_txn *txn;
  int64_t now;
  crl_lmdb_news *news; /* keys that it changes; NULL for a read */
  int full;            /* size= is reached, and nothing could be evicted */
} crl_lmdb_tx;

enum { CRL_LMDB_INLINE = 1024 };

/* A record as it is stored: whole if its body is small; else its front here, and the body in chunks
 * elsewhere. */
typedef struct crl_lmdb_front {
  int64_t expires;
  size_t len;  /* bytes of the whole record */
  size_t kept; /* bytes in `bytes`: `len`, or the front's length */
  uint8_t bytes[CORRAL_FRONT + CRL_LMDB_INLINE];
} crl_lmdb_front;

/* Writes a record's front for corral_host.decide; returns its length. */
size_t crl_lmdb_kv_front(const corral_host *host, const crl_lmdb_front *front,
                         uint8_t bytes[CORRAL_FRONT]);
/* corral_host.header_read of a record's front. */
int crl_lmdb_kv_header(const corral_host *host, const crl_lmdb_front *front, corral_header *header);
/* Finds a record; MDB_NOTFOUND: there is none, or its life is over. */
int crl_lmdb_kv_find(crl_lmdb_tx *tx, const void *key, size_t key_len, crl_lmdb_front *front);
/* Reads the whole record, into memory of host->record_new; ENOMEM. */
int crl_lmdb_kv_read(crl_lmdb_tx *tx, const void *key, size_t key_len, const crl_lmdb_front *front,
                     uint8_t **ret);
/* Both in one: MDB_NOTFOUND, or the whole record of *len bytes. */
int crl_lmdb_kv_look(crl_lmdb_tx *tx, const void *key, size_t key_len, size_t *len, uint8_t **ret);
/* Carries out the change of corral_host.decide. */
int crl_lmdb_kv_apply(crl_lmdb_tx *tx, const void *key, size_t key_len,
                      const corral_change *change);
/* Writes a record of any bytes in place of the old one. */
int crl_lmdb_kv_put(crl_lmdb_tx *tx, const void *key, size_t key_len, const uint8_t *record,
                    size_t len, int64_t expires);
/* Removes up to `most` records whose life is over. */
int crl_lmdb_kv_sweep(crl_lmdb_tx *tx, size_t most);
/* Limits of an eviction. */
typedef struct crl_lmdb_wish {
  /* stop when this many bytes went */
  size_t bytes;
  /* only records that expire at this time or later go; the first to expire go first */
  int64_t from;
  const void *spare; /* this key stays; NULL: none */
  size_t spare_len;
  size_t looks;   /* most records to look at */
  int leased_too; /* records with a live lease may go too */
} crl_lmdb_wish;

/* Evicts; *gone: bytes that went. A held lock never goes. */
int crl_lmdb_kv_evict(crl_lmdb_tx *tx, const crl_lmdb_wish *wish, size_t *gone);
/* *ret: bytes of all pages in use; free pages aren't counted. */
int crl_lmdb_kv_used(crl_lmdb_tx *tx, size_t *ret);

/* ---- lock.c: both return LMDB codes -------------------------------------------------------- */

int crl_lmdb_is_lock(const corral_op *op);
/* LOCK_SHOW, within any transaction. */
int crl_lmdb_lock_show(crl_lmdb_tx *tx, corral_op *op);
/* The other LOCK verbs, within a write transaction. *fresh is set to 1 when it has locked a byte
 * for the op's token. */
int crl_lmdb_lock_change(crl_lmdb_tx *tx, corral_op *op, uint8_t *fresh);

/* ---- inspect.c ----------------------------------------------------------------------------- */

/* See corral_store. `label`: the store's name in messages. */
int crl_lmdb_inspect(const crl_lmdb_wanted *wanted, const char *label,
                     const corral_inquiry *inquiry, corral_error *error);
/* See corral_store. */
int crl_lmdb_list(const crl_lmdb_wanted *wanted, const corral_listing *listing,
                  corral_error *error);
/* The name of a file system of statfs(2), NULL: it isn't known; and whether other hosts share
 * it. */
const char *crl_lmdb_file_system(uint64_t type, int *is_network);

#endif
