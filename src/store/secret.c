/* secret.c: a password kept outside the URI: in a file, behind a descriptor, or in an environment
 * variable. */
#include "store/secret.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "os/env.h"
#include "base/status.h"

/* A file with a weak mode is refused: the library has no way to warn of it. */
static const char too_open[] =
    "others may read or write that file; accepted: one of mode 0600 or 0640";

static int bad(const corral_uri *uri, corral_error *error, const char *name, const char *why) {
  return crl_status_fail(error, CORRAL_EURI, "store URI '%.80s': %s: %.120s", uri->text, name, why);
}

int64_t crl_secret_wait_ms = 10000;

/* True when the descriptor has something to read, or has ended. */
static int await(int fd, int64_t until) {
  struct pollfd from = {.fd = fd, .events = POLLIN};
  int ready;
  do {
    int64_t left = until - crl_env_now_ms();
    ready = poll(&from, 1, left > 0 ? (int)left : 0);
  } while (ready < 0 && errno == EINTR);
  return ready > 0;
}

/* Reads to the end, or to one byte more than is allowed; -1 with errno. A regular file is read from
 * its beginning, whatever its position; all others must end in time, else ETIMEDOUT. */
static ssize_t read_all(int fd, int is_file, char *room) {
  int64_t until = crl_env_now_ms() + crl_secret_wait_ms;
  size_t used = 0;
  while (used <= CRL_SECRET_MOST) {
    size_t left = CRL_SECRET_MOST + 1 - used;
    if (!is_file && !await(fd, until)) {
      errno = ETIMEDOUT;
      return -1;
    }
    ssize_t n = is_file ? pread(fd, room + used, left, (off_t)used) : read(fd, room + used, left);
    if (n < 0 && (errno == EINTR || errno == EAGAIN)) continue;
    if (n < 0) return -1;
    if (n == 0) break;
    used += (size_t)n;
  }
  return (ssize_t)used;
}

/* Terminates the password, without its last newline. Returns the reason why it is none, or NULL. */
static const char *finish(char *room, ssize_t len) {
  if (len < 0 && errno == ETIMEDOUT) return "it did not come to its end within 10 s";
  if (len < 0) return strerror(errno);
  if (len > CRL_SECRET_MOST) return "it is longer than 4096 bytes";
  if (len > 0 && room[len - 1] == '\n') len--;
  room[len] = '\0';
  if (len == 0) return "it is empty";
  return memchr(room, '\0', (size_t)len) != NULL ? "it has a NUL byte" : NULL;
}

static const char *from_file(const char *path, char *room) {
  struct stat st;
  const char *why = NULL;
  int fd = crl_env_own_fd(open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
  if (fd < 0) return strerror(errno);
  if (fstat(fd, &st) != 0)
    why = strerror(errno);
  else if (!S_ISREG(st.st_mode))
    why = "it names no regular file; accepted for a pipe: password_fd";
  else if ((st.st_mode & (S_IROTH | S_IWOTH)) != 0)
    why = too_open;
  else
    why = finish(room, read_all(fd, 1, room));
  close(fd);
  return why;
}

/* The descriptor stays open, but isn't passed on to commands that this process runs. */
static const char *from_fd(const char *number, char *room) {
  struct stat st;
  char *end;
  errno = 0;
  long fd = strtol(number, &end, 10);
  if (*number < '0' || *number > '9' || *end != '\0' || errno != 0 || fd > INT_MAX)
    return "accepted: the number of a descriptor";
  if (fstat((int)fd, &st) != 0) return strerror(errno);
  if (fd > STDERR_FILENO) (void)fcntl((int)fd, F_SETFD, FD_CLOEXEC);
  return finish(room, read_all((int)fd, S_ISREG(st.st_mode), room));
}

static const char *from_env(const char *name, char *room) {
  const char *value = getenv(name);
  if (value == NULL) return "the variable that it names isn't set";
  size_t len = strnlen(value, CRL_SECRET_MOST + 1);
  memcpy(room, value, len);
  return finish(room, (ssize_t)len);
}

static const struct {
  const char *name;
  const char *(*read)(const char *value, char *room);
} sources[] = {{"password_file", from_file}, {"password_fd", from_fd}, {"password_env", from_env}};

enum { SOURCES = sizeof sources / sizeof *sources };

static int is_source(const char *name) {
  for (size_t i = 0; i < SOURCES; i++)
    if (strcmp(sources[i].name, name) == 0) return 1;
  return 0;
}

int crl_secret_find(const corral_uri *uri, char **ret, corral_error *error) {
  size_t given = uri->password != NULL, which = SOURCES;
  *ret = NULL;
  for (size_t i = 0; i < SOURCES; i++) {
    if (crl_uri_get(uri, sources[i].name) == NULL) continue;
    which = i;
    given++;
  }
  if (which == SOURCES) return CORRAL_OK;
  if (given > 1)
    return bad(uri, error, "more than one password",
               "accepted is one of user:password@, password_file, password_fd and password_env");
  char *room = malloc(CRL_SECRET_MOST + 2);
  if (room == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  const char *why = sources[which].read(crl_uri_get(uri, sources[which].name), room);
  char *secret = why == NULL ? strdup(room) : NULL;
  explicit_bzero(room, CRL_SECRET_MOST + 2);
  free(room);
  if (why != NULL) return bad(uri, error, sources[which].name, why);
  if (secret == NULL) return crl_status_plain(error, CORRAL_ENOMEM);
  *ret = secret;
  return CORRAL_OK;
}

int crl_secret_resolve(crl_uri *uri, corral_error *error) {
  size_t kept = 0;
  if (uri->view.hosts == NULL) return CORRAL_OK;
  int status = crl_secret_find(&uri->view, &uri->secret, error);
  if (status != CORRAL_OK || uri->secret == NULL) return status;
  uri->view.password = uri->secret;
  for (size_t i = 0; i < uri->view.param_count; i++)
    if (!is_source(uri->params[i].name)) uri->params[kept++] = uri->params[i];
  uri->view.param_count = kept;
  return CORRAL_OK;
}
