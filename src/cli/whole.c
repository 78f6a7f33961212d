/* whole.c: files that are replaced when they are whole. */
#include "whole.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* Sets the path, and the mode of its file. False with errno set: it can't be replaced. */
static bool find_place(whole_file *w, const char *path, mode_t *ret_mode) {
  struct stat st;
  mode_t mask = umask(0);
  (void)umask(mask);
  *ret_mode = 0666 & ~mask;
  if (path[0] == '\0') return errno = ENOENT, false;
  if (strlen(path) >= sizeof w->path) return errno = ENAMETOOLONG, false;
  (void)snprintf(w->path, sizeof w->path, "%s", path);
  if (stat(path, &st) == 0) {
    if (S_ISDIR(st.st_mode)) return errno = EISDIR, false;
    if (!S_ISREG(st.st_mode)) return errno = EEXIST, false;
    if (realpath(path, w->path) == NULL || access(path, W_OK) != 0) return false;
    *ret_mode = st.st_mode & 0777;
  } else if (errno != ENOENT) {
    return false;
  }
  return true;
}

const char *whole_open(whole_file *w, const char *path) {
  mode_t mode = 0;
  if (!find_place(w, path, &mode))
    return errno == EEXIST ? "it is there, and not a regular file" : strerror(errno);
  (void)snprintf(w->part, sizeof w->part, "%s.XXXXXX", w->path);
  int fd = mkostemp(w->part, O_CLOEXEC);
  if (fd < 0) {
    w->part[0] = '\0';
    return strerror(errno);
  }
  if (fchmod(fd, mode) != 0 || (w->file = fdopen(fd, "w")) == NULL) {
    int why = errno;
    (void)close(fd);
    whole_drop(w);
    return strerror(why);
  }
  return NULL;
}

const char *whole_end(whole_file *w) {
  FILE *f = w->file;
  w->file = NULL;
  errno = 0;
  bool ok = fflush(f) == 0 && !ferror(f) && fsync(fileno(f)) == 0;
  int why = errno;
  if (fclose(f) != 0 && ok) ok = false, why = errno;
  if (ok && rename(w->part, w->path) != 0) ok = false, why = errno;
  if (!ok) whole_drop(w);
  w->part[0] = '\0';
  return ok ? NULL : why != 0 ? strerror(why) : "not written";
}

void whole_drop(whole_file *w) {
  if (w->file != NULL) (void)fclose(w->file);
  if (w->part[0] != '\0') (void)unlink(w->part);
  w->file = NULL;
  w->part[0] = '\0';
}
