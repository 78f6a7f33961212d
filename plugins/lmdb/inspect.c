/* inspect.c: what is to be known of a store's file: its file system, owner, room, readers. A file
 * that isn't there isn't made. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include "lmdb.h"

typedef struct exam {
  const crl_lmdb_wanted *wanted;
  const char *label;
  const corral_inquiry *inquiry;
} exam;

__attribute__((format(printf, 4, 5))) static void
tell(const exam *x, const char *name, const char *advice, const char *format, ...) {
  char value[200];
  va_list args;
  va_start(args, format);
  vsnprintf(value, sizeof value, format, args);
  va_end(args);
  corral_tell(x->inquiry, x->label, name, value, CORRAL_FACT_UNFIT, advice);
}

static void warn(const exam *x, const char *name, const char *value, const char *advice) {
  corral_tell(x->inquiry, x->label, name, value, CORRAL_FACT_WARNING, advice);
}

/* ---- the file system ----------------------------------------------------------------------- */

const char *crl_lmdb_file_system(uint64_t type, int *is_network) {
  static const struct {
    uint64_t type;
    const char *name;
    int is_network;
  } known[] = {
      {0xef53, "ext", 0},       {0x58465342, "xfs", 0},     {0x9123683e, "btrfs", 0},
      {0x01021994, "tmpfs", 0}, {0x794c7630, "overlay", 0}, {0x2fc12fc1, "zfs", 0},
      {0xf2f52010, "f2fs", 0},  {0x6969, "nfs", 1},         {0x517b, "smb", 1},
      {0xfe534d42, "smb2", 1},  {0xff534d42, "cifs", 1},    {0x01021997, "9p", 1},
      {0x00c36400, "ceph", 1},  {0x5346414f, "afs", 1},     {0x0bd00bd0, "lustre", 1},
      {0x01161970, "gfs2", 1},  {0x7461636f, "ocfs2", 1},   {0x65735546, "fuse", 0},
  };
  *is_network = 0;
  for (size_t i = 0; i < sizeof known / sizeof known[0]; i++)
    if ((type & UINT32_MAX) == known[i].type) {
      *is_network = known[i].is_network;
      return known[i].name;
    }
  return NULL;
}

/* Cuts a path back to its folder; 0: it has none. */
static int to_folder(char *path) {
  char *slash = strrchr(path, '/');
  if (slash == NULL || path[1] == '\0') return 0;
  slash[slash == path] = '\0';
  return 1;
}

static void tell_room(const exam *x, const struct statfs *fs, const struct stat *file) {
  uint64_t left = (uint64_t)fs->f_bavail * (uint64_t)fs->f_bsize,
           has = file != NULL ? (uint64_t)file->st_blocks * 512 : 0;
  char value[32];
  snprintf(value, sizeof value, "%llu", (unsigned long long)left);
  warn(x, "disk_left", value,
       left + has < (uint64_t)x->wanted->size
           ? "Make room on the file system, or lower size= in the URI: a full disk refuses fills."
           : NULL);
}

/* `path`: the file, or the nearest folder that is there. */
static void tell_file_system(const exam *x, const char *path, const struct stat *file) {
  struct statfs fs;
  int is_network;
  if (statfs(path, &fs) != 0) return;
  const char *name = crl_lmdb_file_system((uint64_t)fs.f_type, &is_network);
  const char *advice = is_network ? "Choose a path on a disk of this host: a network file system "
                                    "neither locks nor shares memory as LMDB needs it."
                                  : NULL;
  if (name != NULL)
    tell(x, "file_system", advice, "%s", name);
  else
    tell(x, "file_system", NULL, "0x%llx", (unsigned long long)fs.f_type);
  tell_room(x, &fs, file);
}

/* ---- the file ------------------------------------------------------------------------------ */

static const char *advice_on_folder(const exam *x, const char *folder, int is_parent) {
  if (access(folder, W_OK | X_OK) != 0)
    return "Choose a path that this user may write, or let the user write the folder.";
  if (is_parent && !x->wanted->shared && crl_lmdb_folder_is_open(folder))
    return "Choose a folder that nobody else may write, or say shared=yes in the URI: others may "
           "rename files there.";
  return NULL;
}

static void tell_absent(const exam *x) {
  char path[PATH_MAX];
  struct stat st;
  int folders = 0;
  snprintf(path, sizeof path, "%s", x->wanted->path);
  do folders++;
  while (to_folder(path) && stat(path, &st) != 0);
  tell(x, "file", advice_on_folder(x, path, folders == 1), "absent");
  tell_file_system(x, path, NULL);
}

/* Facts of the open database: its size, how much is used, its readers. */
static void tell_database(const exam *x, crl_lmdb_env *env) {
  MDB_envinfo info;
  MDB_txn *txn;
  size_t used = 0, size = atomic_load(&env->size);
  if (mdb_env_info(env->env, &info) != 0) return;
  tell(x, "size", NULL, "%zu", size);
  if (crl_lmdb_read_begin(env, &txn) == 0) {
    crl_lmdb_tx tx = {.env = env, .txn = txn, .now = env->host->boot_ms()};
    if (crl_lmdb_kv_used(&tx, &used) == 0) tell(x, "used", NULL, "%zu", used);
    crl_lmdb_read_end(env, txn);
  }
  tell(x, "readers", NULL, "%u", info.me_numreaders);
  tell(x, "readers_most", NULL, "%u", info.me_maxreaders);
  warn(x, "wake", env->ring != NULL ? "push" : "poll",
       env->ring != NULL ? NULL : "See why PATH-watch can't be used: now waiters poll.");
}

int crl_lmdb_inspect(const crl_lmdb_wanted *wanted, const char *label,
                     const corral_inquiry *inquiry, corral_error *error) {
  exam x = {.wanted = wanted, .label = label, .inquiry = inquiry};
  crl_lmdb_env *env = NULL;
  struct stat st;
  if (stat(wanted->path, &st) != 0 && (errno == ENOENT || errno == ENOTDIR)) {
    tell_absent(&x);
    return CORRAL_OK;
  }
  int status = crl_lmdb_env_take(wanted, wanted->host->now_ms() + inquiry->op_ms, &env, error);
  if (status != CORRAL_OK) return status;
  if (stat(wanted->path, &st) == 0) {
    tell(&x, "file", NULL, "there");
    tell(&x, "owner", NULL, "%u", (unsigned)st.st_uid);
    tell(&x, "mode", NULL, "%03o", (unsigned)st.st_mode & 0777u);
    tell_file_system(&x, wanted->path, &st);
  }
  tell_database(&x, env);
  crl_lmdb_env_drop(env);
  return CORRAL_OK;
}
