/* sqlite.c: locks in a table of an SQLite database, for all processes of one host:
 * `sqlite:PATH[?table=corral_lock]`.
 *
 * A row holds the lock's record, so shared locks work, and every verb means what it does elsewhere:
 * host->lock_decide, within BEGIN IMMEDIATE. A request that is refused only reads, so in WAL mode
 * waiters are in nobody's way. The other columns are for people with an SQL prompt: name, fence,
 * holds, expires_ms and who. The row with the empty name is corral's own.
 *
 * Time is host->boot_ms, which no clock setting moves. It starts again at boot, so the row of the
 * empty name keeps the boot's id: the first handle after a reboot finds another id there, and ends
 * all holds, whose holders are gone. Two kernels that use one file would end each other's holds: a
 * handle that sees its boot's id replaced says so and breaks. The file must not be on a network
 * file system (where SQLite's locks don't work), nor be used from containers with a time namespace
 * of their own.
 *
 * A fencing token is one more than the last of its name, at least the wall clock in microseconds,
 * and above those of all deleted rows, whose highest the empty name's row keeps. So a wall clock
 * that is set back doesn't lower them.
 *
 * A new file gets WAL mode; an existing file keeps its journal mode. synchronous is NORMAL: a power
 * failure may undo the last changes, and ends all holds anyway. The table may be in a database of
 * the user's: then their long transactions keep locks waiting, and locks keep theirs. No call waits
 * past its deadline for another process; for a disk that hangs there is no limit.
 *
 * POSIX locks belong to a process: a process with two copies of SQLite (one linked in statically)
 * must not open the file by both, and a child that was forked while its parent had a sqlite: store
 * open is refused one of its own (EFORKED), until it execs. */
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "sqlite.h"

#define BOOT_ID "/proc/sys/kernel/random/boot_id"

enum {
  OLDEST = 3035000, /* of SQLite's versions that will do */
  POLL_MAX_MS = 20,
  QUICK_NAPS = 20, /* of 1 ms, before those of NAP_MS */
  NAP_MS = 5
};

/* ---- handles ------------------------------------------------------------------------------- */

static int read_boot(crl_sqlite_handle *h, corral_error *error) {
  int fd = open(BOOT_ID, O_RDONLY | O_CLOEXEC);
  ssize_t n = fd < 0 ? -1 : read(fd, h->boot, CRL_SQLITE_BOOT);
  if (fd >= 0) close(fd);
  if (n == CRL_SQLITE_BOOT) return CORRAL_OK;
  return h->st->host->fail(
      error, CORRAL_EIO, "%s can't be read: without it a reboot can't be told from none", BOOT_ID);
}

/* Naps while another process writes, which takes a fraction of a millisecond unless that process is
 * stuck. 0: the deadline has passed. */
static int on_busy(void *arg, int times) {
  const crl_sqlite_handle *h = arg;
  int64_t left = h->deadline - h->st->host->now_ms(), waiter = times < QUICK_NAPS ? 1 : NAP_MS;
  if (left <= 0) return 0;
  poll(NULL, 0, (int)(waiter < left ? waiter : left));
  return 1;
}

/* The handles of this process, and its id. A child may not use SQLite's files of its parent: SQLite
 * counts its locks within a process, and a fork inherits the count without the locks. */
static pthread_mutex_t opened_mutex = PTHREAD_MUTEX_INITIALIZER;
static size_t opened_count;
static pid_t opened_by;

static void before_fork(void) { pthread_mutex_lock(&opened_mutex); }
static void after_fork(void) { pthread_mutex_unlock(&opened_mutex); }
__attribute__((constructor)) static void watch_forks(void) {
  (void)pthread_atfork(before_fork, after_fork, after_fork);
}

static int enter_process(const crl_sqlite_store *st, corral_error *error) {
  pthread_mutex_lock(&opened_mutex);
  if (opened_count == 0) opened_by = getpid();
  int forked = opened_by != getpid();
  if (!forked) opened_count++;
  pthread_mutex_unlock(&opened_mutex);
  if (!forked) return CORRAL_OK;
  return st->host->fail(error, CORRAL_EFORKED,
                        "%.100s: this process was forked while sqlite: was open in its parent, and "
                        "can't open it: fork before opening, or exec",
                        st->path);
}

static void leave_process(void) {
  pthread_mutex_lock(&opened_mutex);
  opened_count--;
  pthread_mutex_unlock(&opened_mutex);
}

static void sqlite_disconnect(void *arg) {
  crl_sqlite_handle *h = arg;
  leave_process();
  for (int i = 0; i < CRL_SQLITE_STATEMENTS; i++) sqlite3_finalize(h->prepared[i]);
  sqlite3_close(h->db);
  free(h->room);
  free(h);
}

static int sqlite_connect(void *arg, int64_t deadline, void **ret_handle, corral_error *error) {
  crl_sqlite_store *st = arg;
  int status = enter_process(st, error);
  if (status != CORRAL_OK) return status;
  crl_sqlite_handle *h = calloc(1, sizeof *h);
  if (h == NULL) {
    leave_process();
    return st->host->fail(error, CORRAL_ENOMEM, "no memory for a connection");
  }
  h->st = st;
  h->deadline = deadline;
  status = read_boot(h, error);
  if (status == CORRAL_OK) {
    st->host->guard_standard();
    int code = sqlite3_open_v2(
        st->path, &h->db, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_NOMUTEX, NULL);
    if (code == SQLITE_OK) { /* after a failure there may be no connection at all */
      sqlite3_extended_result_codes(h->db, 1);
      sqlite3_busy_handler(h->db, on_busy, h);
      code = crl_sqlite_set_up(h);
    }
    /* one of two processes that switch a new file to WAL at a time is refused without on_busy */
    while ((code & 0xff) == SQLITE_BUSY && on_busy(h, 0)) code = crl_sqlite_set_up(h);
    if (code != SQLITE_OK) status = crl_sqlite_fail(h, code, error);
  }
  if (status == CORRAL_OK)
    *ret_handle = h;
  else
    sqlite_disconnect(h);
  return status;
}

/* ---- the store ----------------------------------------------------------------------------- */

static int is_name(const char *text) {
  size_t len = strlen(text);
  if (len == 0 || len > CRL_SQLITE_TABLE_MOST || isdigit((unsigned char)text[0]) ||
      sqlite3_strnicmp(text, "sqlite_", 7) == 0)
    return 0;
  for (size_t i = 0; i < len; i++)
    if (!isalnum((unsigned char)text[i]) && text[i] != '_') return 0;
  return 1;
}

static int bad_uri(const corral_host *host, const corral_uri *uri, corral_error *error,
                   const char *what) {
  return host->fail(error, CORRAL_EURI, "store URI '%.100s': %s", uri->text, what);
}

static int check(const corral_host *host, const corral_uri *uri, const char **ret_table,
                 corral_error *error) {
  const char *table = host->uri_get(uri, "table");
  int status = host->uri_check(uri, "table", error);
  if (status != CORRAL_OK) return status;
  if (sqlite3_libversion_number() < OLDEST || sqlite3_threadsafe() == 0)
    return host->fail(error, CORRAL_EUNSUPPORTED,
                      "SQLite %s: 3.35 or later is needed, built for threads",
                      sqlite3_libversion());
  if ((uri->hosts != NULL && uri->hosts[0] != '\0') || uri->user != NULL)
    return bad_uri(
        host, uri, error,
        "accepted is sqlite:PATH or sqlite:///PATH, without a host: the file is on this one");
  if (uri->path[0] == '\0' || strcmp(uri->path, ":memory:") == 0)
    return bad_uri(host, uri, error,
                   "a path is missing; accepted is for example sqlite:/var/lib/app/locks.db (for "
                   "this process alone there is memory:)");
  if (uri->path[strlen(uri->path) - 1] == '/')
    return bad_uri(host, uri, error, "the path is that of a folder; name a file inside of it");
  if (table != NULL && !is_name(table))
    return bad_uri(host, uri, error,
                   "table= must be at most 60 letters, digits and '_', beginning neither with a "
                   "digit nor with sqlite_");
  *ret_table = table != NULL ? table : "corral_lock";
  return CORRAL_OK;
}

static int sqlite_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                       corral_store_info *info, corral_error *error) {
  static const char name[] = "sqlite ";
  /* "./" keeps a path from being one of SQLite's special names */
  const char *table = "", *here = uri->path[0] == '/' ? "" : "./";
  int status = check(host, uri, &table, error);
  if (status != CORRAL_OK) return status;
  size_t size = sizeof name + 2 + strlen(uri->path);
  crl_sqlite_store *st = calloc(1, sizeof *st + size);
  if (st == NULL) return host->fail(error, CORRAL_ENOMEM, "no memory for a store");
  st->host = host;
  snprintf(st->label, size, "%s%s%s", name, here, uri->path);
  snprintf(st->table, sizeof st->table, "%s", table);
  st->path = st->label + sizeof name - 1;
  info->reach = CORRAL_REACH_HOST;
  info->poll_max_ms = POLL_MAX_MS;
  info->name = st->label;
  info->locks_only = 1;
  info->permits = 1;
  info->turns = 1;
  info->adopts = 1;
  *ret_store = st;
  return CORRAL_OK;
}

/* A file that isn't there isn't made. */
static int sqlite_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  crl_sqlite_store *st = store;
  struct stat file;
  char mode[16];
  void *handle;
  int is_there = stat(st->path, &file) == 0;
  int status = is_there ? sqlite_connect(st, st->host->now_ms() + inquiry->op_ms, &handle, error)
                        : CORRAL_OK;
  if (status != CORRAL_OK) return status;
  if (is_there) sqlite_disconnect(handle);
  snprintf(mode, sizeof mode, "%03o", is_there ? (unsigned)file.st_mode & 0777u : 0u);
  corral_tell(inquiry, st->label, "version", sqlite3_libversion(), CORRAL_FACT_PLAIN, NULL);
  corral_tell(inquiry, st->label, "file", is_there ? "there" : "absent", CORRAL_FACT_PLAIN, NULL);
  if (is_there) corral_tell(inquiry, st->label, "mode", mode, CORRAL_FACT_PLAIN, NULL);
  return CORRAL_OK;
}

static int sqlite_list(void *store, const corral_listing *listing, corral_error *error) {
  crl_sqlite_store *st = store;
  struct stat file;
  void *handle;
  if (stat(st->path, &file) != 0 && (errno == ENOENT || errno == ENOTDIR)) return CORRAL_OK;
  int status = sqlite_connect(st, st->host->now_ms() + listing->op_ms, &handle, error);
  if (status != CORRAL_OK) return status;
  int code = crl_sqlite_list(handle, listing);
  if (code != SQLITE_OK) status = crl_sqlite_fail(handle, code, error);
  sqlite_disconnect(handle);
  return status;
}

extern const corral_store crl_plugin_sqlite;
const corral_store crl_plugin_sqlite = {
    .size = sizeof(corral_store),
    .abi = CORRAL_PLUGIN_ABI,
    .threads = CORRAL_THREADS_HANDLE,
    .op_size = sizeof(corral_op),
    .name = "sqlite",
    .schemes = "sqlite",
    .summary = "locks only: a table in an SQLite file shared by all processes of this host",
    .open = sqlite_open,
    .close = free,
    .connect = sqlite_connect,
    .disconnect = sqlite_disconnect,
    .perform = crl_sqlite_perform,
    .inspect = sqlite_inspect,
    .list = sqlite_list,
};

CORRAL_PLUGIN(crl_plugin_sqlite)
