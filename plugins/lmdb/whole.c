/* whole.c: whether the files of an environment are still at their names. */
#include "lmdb.h"

#include <stdio.h>

/* 1: the path still leads to the file that was opened there, or that can't be found out. */
static int stays(const char *path, const char *suffix, const crl_lmdb_file *opened, int follow) {
  char name[PATH_MAX];
  crl_lmdb_file there;
  int used = snprintf(name, sizeof name, "%s%s", path, suffix);
  if (!opened->is_there || used < 0 || (size_t)used >= sizeof name) return 1;
  return crl_lmdb_file_at(name, follow, &there) != 0 || crl_lmdb_file_same(&there, opened);
}

int crl_lmdb_env_leads(const crl_lmdb_env *e, const char *path) {
  return stays(path, "", &e->data, 1);
}

int crl_lmdb_env_whole(crl_lmdb_env *e) {
  return !atomic_load(&e->damaged) && stays(e->path, "-lock", &e->lock, 0) &&
         stays(e->path, "-lease", &e->lease, 0) && stays(e->path, "-watch", &e->watch, 0);
}
