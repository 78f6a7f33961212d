/* errors.c: what an LMDB code or an errno says to the user. */
#include "lmdb.h"

#include <errno.h>
#include <unistd.h>

static int fail_lmdb(const corral_host *host, const char *path, int code, corral_error *error) {
  switch (code) {
    case MDB_INVALID:
    case MDB_VERSION_MISMATCH:
    case MDB_INCOMPATIBLE:
      return host->fail(error, CORRAL_EIO,
                        "%.120s: not a file of this store: choose another path, or delete it",
                        path);
    case MDB_CORRUPTED:
    case MDB_PAGE_NOTFOUND:
      return host->fail(error, CORRAL_ECORRUPT,
                        "%.120s: damaged: it is put aside, and a new one begun", path);
    case MDB_READERS_FULL:
      return host->fail(error, CORRAL_EUNAVAILABLE, "%.120s: more than %d readers at once", path,
                        (int)CRL_LMDB_READERS);
    case MDB_MAP_FULL:
      return host->fail(error, CORRAL_EREFUSED,
                        "%.120s: full: size= is too small for what is written at once, or a "
                        "process hangs while it reads",
                        path);
    default: return host->fail(error, CORRAL_EIO, "%.120s: %s", path, mdb_strerror(code));
  }
}

int crl_lmdb_fail(const corral_host *host, const char *path, int code, corral_error *error) {
  switch (code) {
    case ENOMEM:
      return host->fail(error, CORRAL_ENOMEM,
                        "%.120s: out of memory, or of address space for size=", path);
    case EAGAIN:
      return host->fail(error, CORRAL_EUNAVAILABLE, "%.120s: another process is busy opening it",
                        path);
    case CRL_LMDB_SAME_PID:
      return host->fail(error, CORRAL_EUNAVAILABLE,
                        "%.120s: in use by a process of another PID namespace with the number %ld, "
                        "which is this process's, too: share one PID namespace, or use a server",
                        path, (long)getpid());
    case EBUSY:
      return host->fail(error, CORRAL_EBUSY, "%.120s: other processes open it, one by one", path);
    case ENOSPC:
    case EDQUOT:
      return host->fail(error, CORRAL_EIO,
                        "%.120s: the disk is full: free some of it, or choose another path", path);
    case EIO: /* LMDB reports a write cut short so, too */
      return host->fail(error, CORRAL_EIO, "%.120s: %s: the disk is full, or fails", path,
                        mdb_strerror(code));
    case EACCES:
    case EPERM:
    case EROFS:
      return host->fail(error, CORRAL_EIO,
                        "%.120s: %s: this user must be able to write the file and its folder", path,
                        mdb_strerror(code));
    case EISDIR:
      return host->fail(error, CORRAL_EIO, "%.120s: is a folder: name a file inside of it", path);
    default: return fail_lmdb(host, path, code, error);
  }
}
