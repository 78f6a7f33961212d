/* lmdb.h: what the files of the LMDB store share. From below: check.c (whether a file may be
 * mapped), lease.c (who is alive), files.c (whose the files are, and which belong together), env.c
 * (them, opened once per process), watch.c (who is told of changes), kv.c (records inside a
 * transaction), lock.c (users' locks), handle.c (which files a call goes to), lmdb.c (batches, URI,
 * the table). */
#ifndef CRL_LMDB_H
#define CRL_LMDB_H

#include <corral/plugin.h>

#include <limits.h>
#include <lmdb.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum { CRL_LMDB_MAX_KEY = 500, CRL_LMDB_IDLE_READERS = 4 };

/* ---- lease.c ------------------------------------------------------------------------------- */

typedef struct crl_lmdb_lease crl_lmdb_lease;
enum { CRL_LMDB_LEASE_CHAINS = 256 };

/* The bytes that this process has locked in PATH-lease, one for each lease that it holds. */
typedef struct crl_lmdb_leases {
  pthread_mutex_t lock;
  int fd;
  crl_lmdb_lease *chains[CRL_LMDB_LEASE_CHAINS];
} crl_lmdb_leases;

/* Owns fd from now on. */
int crl_lmdb_leases_init(crl_lmdb_leases *leases, int fd);
/* Drops all bytes. */
void crl_lmdb_leases_drop(crl_lmdb_leases *leases);
/* And closes fd. */
void crl_lmdb_leases_free(crl_lmdb_leases *leases);
/* Locks this token's byte until it is dropped, or needed no more: `until` has passed at some later
 * take. Sets *fresh when the process didn't have it before. 0 or an errno. */
int crl_lmdb_lease_take(crl_lmdb_leases *leases, const uint8_t *token, int64_t until, int64_t now,
                        int *fresh);
void crl_lmdb_lease_drop(crl_lmdb_leases *leases, const uint8_t *token);
/* Whether a live process, this one or another, holds this token's byte. */
int crl_lmdb_lease_alive(crl_lmdb_leases *leases, const uint8_t *token);
/* The gate: only who has it may open, close or replace the file. 0, EAGAIN, or another errno. */
int crl_lmdb_gate_try(int fd);
void crl_lmdb_gate_leave(int fd);

/* ---- check.c ------------------------------------------------------------------------------- */

enum { CRL_LMDB_PAGE_MOST = 32768, CRL_LMDB_HEAD = CRL_LMDB_PAGE_MOST + 512 };

/* 0, or MDB_CORRUPTED. `bytes`: the first CRL_LMDB_HEAD bytes of a file, or all of a shorter one.
 */
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
  int fd; /* of lease, with the gate; -1 without */
  char id[CRL_LMDB_ID + 1];
  crl_lmdb_file checked_data, checked_lock; /* what crl_lmdb_files_prepare left there */
  char notice[CRL_LMDB_NOTICE];             /* what was put aside; "" */
} crl_lmdb_files;

/* Which file a path leads to; none is an answer too. 0 or an errno. */
int crl_lmdb_file_at(const char *path, int follow, crl_lmdb_file *ret);
/* That of an open one. */
int crl_lmdb_file_of(int fd, crl_lmdb_file *ret);
int crl_lmdb_file_same(const crl_lmdb_file *a, const crl_lmdb_file *b);
/* The files' names; missing folders are made. A status, as the next two. */
int crl_lmdb_files_find(crl_lmdb_files *f, const char *path, corral_error *error);
/* Checks whose they are, and takes the gate. */
int crl_lmdb_files_enter(crl_lmdb_files *f, int64_t deadline, corral_error *error);
/* Leaves either a database of this boot that liblmdb may map, or empty files. The gate is held. */
int crl_lmdb_files_prepare(crl_lmdb_files *f, corral_error *error);
/* Renames data and lock file, if that is still the data file. The gate is held. */
int crl_lmdb_files_aside(crl_lmdb_files *f, const crl_lmdb_file *data, const char *reason,
                         corral_error *error);
/* Gives the gate back. */
void crl_lmdb_files_leave(crl_lmdb_files *f);
/* 0, EAGAIN when it is taken until `deadline`, or another errno. */
int crl_lmdb_gate_wait(const corral_host *host, int fd, int64_t deadline);

/* ---- env.c --------------------------------------------------------------------------------- */

typedef struct crl_lmdb_ring crl_lmdb_ring;

/* The open files; shared by all handles of this process. */
typedef struct crl_lmdb_env {
  const corral_host *host;
  struct crl_lmdb_env *next;
  char *path;                             /* resolved */
  crl_lmdb_file data, lock, lease, watch; /* watch: not there without a ring */
  pid_t pid;
  atomic_size_t refs; /* handles, watches, and calls under way */
  atomic_size_t size; /* bytes that records may use: the largest size= of this process */
  atomic_int broken;  /* LMDB refuses to go on; to be opened anew */
  atomic_int damaged; /* the database contradicts itself; to be put aside */
  atomic_int has_notice;
  char notice[CRL_LMDB_NOTICE]; /* what was put aside for it */
  MDB_env *env;
  MDB_dbi heads, bodies, index, meta;
  /* by how many ms the wall clock was ahead of the boot clock when the file was made */
  int64_t wall_ahead;
  /* every transaction is inside the read side; the map changes inside the write side */
  pthread_rwlock_t resize;
  pthread_mutex_t idle_lock;
  MDB_txn *idle[CRL_LMDB_IDLE_READERS]; /* reset read transactions */
  size_t idle_count;
  crl_lmdb_leases leases;
  crl_lmdb_ring *ring; /* NULL: changes can't be told, for the reason of ring_code, an errno */
  int ring_code;
  atomic_uint watches; /* open in this process */
} crl_lmdb_env;

/* The settings of a URI. */
typedef struct crl_lmdb_wanted {
  const corral_host *host;
  const char *path; /* absolute */
  int64_t size;
  int shared;
} crl_lmdb_wanted;

int crl_lmdb_env_take(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_env **ret,
                      corral_error *error);
void crl_lmdb_env_drop(crl_lmdb_env *env);
/* Whether the path still leads to its data file. */
int crl_lmdb_env_leads(const crl_lmdb_env *env, const char *path);
/* Whether the other files beside it are still those that were opened. */
int crl_lmdb_env_whole(crl_lmdb_env *env);
/* The status of an LMDB code or errno, with a text that names the file and what to do. */
int crl_lmdb_fail(const corral_host *host, const char *path, int code, corral_error *error);
/* A transaction, or an LMDB code. Every one that began must end through crl_lmdb_read_end or
 * crl_lmdb_write_end, also where its commit fails: LMDB has freed it then. */
int crl_lmdb_read_begin(crl_lmdb_env *env, MDB_txn **ret);
void crl_lmdb_read_end(crl_lmdb_env *env, MDB_txn *txn);
int crl_lmdb_write_begin(crl_lmdb_env *env, MDB_txn **ret);
int crl_lmdb_write_end(crl_lmdb_env *env, MDB_txn *txn, int commit);

/* ---- handle.c ------------------------------------------------------------------------------ */

/* One view of a path, for as long as it is wanted, whatever files it leads to. */
typedef struct crl_lmdb_handle {
  const crl_lmdb_wanted *wanted;
  pid_t pid;
  pthread_mutex_t lock; /* of env */
  crl_lmdb_env *env;
  atomic_llong checked; /* boot time at which the path was last seen to lead to it */
} crl_lmdb_handle;

/* `wanted` must outlive it. CORRAL_OK with a text in *error is a notice, here and below. */
int crl_lmdb_handle_open(const crl_lmdb_wanted *wanted, int64_t deadline, crl_lmdb_handle **ret,
                         corral_error *error);
void crl_lmdb_handle_close(crl_lmdb_handle *handle);
/* The environment of the files that are there now, to be dropped. Without `writes` what was there
 * up to CRL_LMDB_STALE_MS ago is good enough. */
int crl_lmdb_handle_enter(crl_lmdb_handle *handle, int writes, int64_t now, int64_t deadline,
                          crl_lmdb_env **ret, corral_error *error);
enum { CRL_LMDB_STALE_MS = 1000 };

/* ---- watch.c ------------------------------------------------------------------------------- */

enum { CRL_LMDB_NEWS = 256, CRL_LMDB_NEWS_ROOM = 16384 };

/* Keys that a transaction changes; more than there is room for: any. */
typedef struct crl_lmdb_news {
  size_t count, used;
  uint16_t lens[CRL_LMDB_NEWS];
  uint8_t keys[CRL_LMDB_NEWS_ROOM]; /* one behind the other */
} crl_lmdb_news;

/* Maps the file, made where it isn't there; the gate is held. 0 or an errno. */
int crl_lmdb_ring_open(const crl_lmdb_files *f, crl_lmdb_ring **ret);
void crl_lmdb_ring_close(crl_lmdb_ring *ring); /* may be NULL */
void crl_lmdb_note(const crl_lmdb_env *env, crl_lmdb_news *news, const void *key, size_t key_len);
/* Tells all watches of all processes. After the commit, so that who is told sees it. */
void crl_lmdb_tell(crl_lmdb_env *env, const crl_lmdb_news *news);
/* Tells them that any key may have changed: the files were replaced. */
void crl_lmdb_tell_any(crl_lmdb_env *env);
/* Whether changes that begin from now on are told to a watch of this process. */
int crl_lmdb_is_watched(crl_lmdb_env *env);
/* 0 or an errno. `path`, as the URI has it, and `env` must outlive it. */
int crl_lmdb_watch_open(crl_lmdb_env *env, const char *path, void **ret);
/* Its env. */
crl_lmdb_env *crl_lmdb_watch_close(void *watch);
/* As corral_store.changes. */
int crl_lmdb_changes(void *watch, int stop_fd, int64_t until,
                     void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);

/* ---- kv.c: all return LMDB codes ----------------------------------------------------------- */

typedef struct crl_lmdb_tx {
  crl_lmdb_env *env;
  MDB_txn *txn;
  int64_t now;
  crl_lmdb_news *news; /* what it changes; of a read, NULL */
  int full;            /* size= is reached, and nothing could be evicted */
} crl_lmdb_tx;

enum { CRL_LMDB_INLINE = 1024 };

/* A record as it is stored: whole when its body is small; else its front, and the body in chunks
 * elsewhere. */
typedef struct crl_lmdb_front {
  int64_t expires;
  size_t len;  /* bytes of the whole record */
  size_t kept; /* bytes in `bytes`: `len`, or those of the front */
  uint8_t bytes[CORRAL_FRONT + CRL_LMDB_INLINE];
} crl_lmdb_front;

/* Its front as corral_host.decide wants it; returns its size. */
size_t crl_lmdb_kv_front(const corral_host *host, const crl_lmdb_front *front,
                         uint8_t bytes[CORRAL_FRONT]);
/* corral_host.header_read of that. */
int crl_lmdb_kv_header(const corral_host *host, const crl_lmdb_front *front, corral_header *header);
/* MDB_NOTFOUND when there is none, or its life is over. */
int crl_lmdb_kv_find(crl_lmdb_tx *tx, const void *key, size_t key_len, crl_lmdb_front *front);
/* The whole record, to be freed; ENOMEM. */
int crl_lmdb_kv_read(crl_lmdb_tx *tx, const void *key, size_t key_len, const crl_lmdb_front *front,
                     uint8_t **ret);
int crl_lmdb_kv_apply(crl_lmdb_tx *tx, const void *key, size_t key_len,
                      const corral_change *change);
/* A record of any bytes in place of what is there. */
int crl_lmdb_kv_put(crl_lmdb_tx *tx, const void *key, size_t key_len, const uint8_t *record,
                    size_t len, int64_t expires);
/* Removes up to `most` records whose life is over. */
int crl_lmdb_kv_sweep(crl_lmdb_tx *tx, size_t most);
/* What is to be evicted. */
typedef struct crl_lmdb_wish {
  size_t bytes;
  /* only records that expire at this time or later; those that expire soonest go first */
  int64_t from;
  const void *spare; /* this key stays; NULL for none */
  size_t spare_len;
  size_t looks;   /* at most so many records are looked at */
  int leased_too; /* also records with a live lease */
} crl_lmdb_wish;

/* *gone is how many bytes went. A lock that is held doesn't go. */
int crl_lmdb_kv_evict(crl_lmdb_tx *tx, const crl_lmdb_wish *wish, size_t *gone);
/* Bytes of all pages that hold something; those that are free aren't counted. */
int crl_lmdb_kv_used(crl_lmdb_tx *tx, size_t *ret);

/* ---- lock.c: both return LMDB codes -------------------------------------------------------- */

int crl_lmdb_is_lock(const corral_op *op);
/* LOCK_SHOW; of any transaction. */
int crl_lmdb_lock_show(crl_lmdb_tx *tx, corral_op *op);
/* The other LOCK verbs. */
int crl_lmdb_lock_change(crl_lmdb_tx *tx, corral_op *op);

#endif
