/* watch.c: watches of a memory, which report its changes.
 *
 * Each watch has a ring of the hashes that changed since its last report, and an eventfd that is
 * readable while there are some. When the ring overflows, the report is that any key may have
 * changed. */
#include "memory.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { NEWS = 1024 };

struct crl_memory_watch {
  crl_memory_watch *next;
  crl_memory_watches *all;
  pid_t pid;
  int fd;
  size_t count; /* hashes in `news`; NEWS + 1: there were more */
  uint64_t news[NEWS];
};

int crl_memory_watches_init(crl_memory_watches *watches, const corral_host *host) {
  watches->host = host;
  watches->first = NULL;
  atomic_init(&watches->open, 0);
  return pthread_mutex_init(&watches->lock, NULL) == 0 ? CORRAL_OK : CORRAL_ENOMEM;
}

void crl_memory_watches_free(crl_memory_watches *watches) { pthread_mutex_destroy(&watches->lock); }

/* Under the lock of the watches. */
static void push(crl_memory_watch *w, uint64_t hash) {
  static const uint64_t one = 1;
  if (w->count < NEWS) w->news[w->count] = hash;
  if (w->count <= NEWS) w->count++;
  if (w->count == 1) (void)!write(w->fd, &one, sizeof one);
}

void crl_memory_tell(crl_memory_watches *watches, const void *key, size_t key_len) {
  uint64_t hash = watches->host->hash64(key, key_len);
  pthread_mutex_lock(&watches->lock);
  for (crl_memory_watch *w = watches->first; w != NULL; w = w->next) push(w, hash);
  pthread_mutex_unlock(&watches->lock);
}

int crl_memory_watch_open(crl_memory_watches *watches, crl_memory_watch **ret) {
  crl_memory_watch *w = malloc(sizeof *w);
  if (w == NULL) return CORRAL_ENOMEM;
  w->all = watches;
  w->pid = getpid();
  w->count = 0;
  w->fd = watches->host->own_fd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (w->fd < 0) {
    free(w);
    return CORRAL_EIO;
  }
  pthread_mutex_lock(&watches->lock);
  w->next = watches->first;
  watches->first = w;
  atomic_fetch_add(&watches->open, 1);
  pthread_mutex_unlock(&watches->lock);
  *ret = w;
  return CORRAL_OK;
}

/* Moves the hashes to `news`; returns their count, or NEWS + 1 when `news` is not valid because
 * there were more. */
static size_t take(crl_memory_watch *w, uint64_t news[NEWS]) {
  uint64_t number;
  pthread_mutex_lock(&w->all->lock);
  size_t count = w->count;
  if (count > 0) (void)!read(w->fd, &number, sizeof number);
  if (count <= NEWS) memcpy(news, w->news, count * sizeof *news);
  w->count = 0;
  pthread_mutex_unlock(&w->all->lock);
  return count;
}

static int limit_of(int64_t left) { return left <= 0 ? 0 : left > INT_MAX ? INT_MAX : (int)left; }

int crl_memory_changes(void *watch, int stop_fd, int64_t until,
                       void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error) {
  crl_memory_watch *w = watch;
  const corral_host *host = w->all->host;
  struct pollfd fds[] = {{.fd = w->fd, .events = POLLIN}, {.fd = stop_fd, .events = POLLIN}};
  uint64_t news[NEWS];
  for (;;) {
    size_t count = take(w, news);
    for (size_t i = 0; i < count && count <= NEWS; i++) told(arg, news[i]);
    if (count > NEWS) told(arg, 0);
    if (count > 0) return CORRAL_OK;
    int64_t left = until - host->now_ms();
    int ready = poll(fds, 2, limit_of(left));
    if (ready < 0 && errno != EINTR)
      return host->fail(error, CORRAL_EIO, "memory: waiting for changes: %s", strerror(errno));
    if (ready > 0 && fds[1].revents != 0) return CORRAL_OK;
    if (ready == 0 && left <= INT_MAX) return CORRAL_OK;
  }
}

void crl_memory_unwatch(void *watch) {
  crl_memory_watch *w = watch;
  int fd = w->fd;
  if (w->pid != getpid()) { /* in a child of a fork, the list and its mutex are the parent's */
    close(fd);
    return;
  }
  pthread_mutex_lock(&w->all->lock);
  crl_memory_watch **at = &w->all->first;
  while (*at != w) at = &(*at)->next;
  *at = w->next;
  atomic_fetch_sub(&w->all->open, 1);
  pthread_mutex_unlock(&w->all->lock);
  close(fd); /* no longer in the list, so no change is written to it */
  free(w);
}
