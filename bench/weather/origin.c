/* origin.c: an origin of bounded capacity in its own process: so many workers, each busy for the
 * cost of a compute, and a bounded queue; what doesn't fit is refused at once. Like most servers it
 * doesn't notice that a client has gone: that client's turn is worked off all the same. */
#include "weather.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "../kit.h"

/* ---- clock, sockets ------------------------------------------------------------------------ */

int64_t clock_us(void) { return (int64_t)now_us(); }

void sleep_until_us(int64_t until) {
  struct timespec t = {.tv_sec = (time_t)(until / 1000000),
                       .tv_nsec = (long)(until % 1000000) * 1000};
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) != 0) continue;
}

static struct sockaddr_un address_of(const char *path) {
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof at.sun_path) die("the path of a socket is too long");
  memcpy(at.sun_path, path, strlen(path) + 1);
  return at;
}

int socket_listen(const char *path) {
  struct sockaddr_un at = address_of(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (fd >= 0 && bind(fd, (struct sockaddr *)&at, sizeof at) == 0 && listen(fd, 4096) == 0)
    return fd;
  if (fd >= 0) close(fd);
  return -1;
}

int socket_dial(const char *path) {
  struct sockaddr_un at = address_of(path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd >= 0 && connect(fd, (struct sockaddr *)&at, sizeof at) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

int socket_await(int fd, short events, int64_t until_us) {
  struct pollfd ready = {.fd = fd, .events = events};
  for (;;) {
    int64_t left = until_us - clock_us();
    if (left <= 0) return 0;
    int count = poll(&ready, 1, (int)((left + 999) / 1000));
    if (count > 0) return 1;
    if (count < 0 && errno != EINTR) return 0;
  }
}

/* ---- the origin ---------------------------------------------------------------------------- */

typedef struct origin {
  const world *world;
  pthread_mutex_t mutex;
  pthread_cond_t some;
  int *queue; /* a ring of connections */
  int first, count, most;
  unsigned serial;
} origin;

static int take(origin *o, unsigned *serial) {
  pthread_mutex_lock(&o->mutex);
  while (o->count == 0) pthread_cond_wait(&o->some, &o->mutex);
  int fd = o->queue[o->first];
  o->first = (o->first + 1) % o->most;
  o->count--;
  *serial = o->serial++;
  pthread_mutex_unlock(&o->mutex);
  return fd;
}

static void *work(void *arg) {
  origin *o = arg;
  const plan *p = o->world->plan;
  for (;;) {
    char key[TEXT / 2] = "", value[TEXT];
    unsigned serial;
    int fd = take(o, &serial);
    sleep_until_us(clock_us() + p->cost_us * atomic_load(&o->world->board->slow));
    ssize_t n = recv(fd, key, sizeof key - 1, MSG_DONTWAIT);
    if (n > 0) {
      int len = snprintf(value, sizeof value, "%s=%u\n", key, serial);
      (void)!send(fd, value, (size_t)len, MSG_NOSIGNAL | MSG_DONTWAIT);
    }
    close(fd);
  }
  return NULL;
}

static void put(origin *o, int fd) {
  pthread_mutex_lock(&o->mutex);
  int fits = o->count < o->most;
  if (fits) o->queue[(o->first + o->count++) % o->most] = fd;
  pthread_cond_signal(&o->some);
  pthread_mutex_unlock(&o->mutex);
  if (!fits) close(fd);
}

_Noreturn void origin_serve(const world *w) {
  origin o = {.world = w, .most = w->plan->queue};
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pthread_mutex_init(&o.mutex, NULL);
  pthread_cond_init(&o.some, NULL);
  o.queue = calloc((size_t)o.most, sizeof *o.queue);
  int listener = socket_listen(w->origin);
  if (o.queue == NULL || listener < 0) die("the origin can't listen");
  for (int i = 0; i < w->plan->workers; i++) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, &o) != 0) die("no thread");
  }
  for (;;) {
    int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    if (fd >= 0)
      put(&o, fd);
    else if (errno != EINTR && errno != ECONNABORTED)
      die("the origin can't accept");
  }
}

int origin_ask(const char *socket, const char *key, int64_t until_us, char *value) {
  int fd = socket_dial(socket);
  ssize_t n = -1;
  if (fd < 0) return 0;
  if (send(fd, key, strlen(key), MSG_NOSIGNAL) > 0 && socket_await(fd, POLLIN, until_us))
    n = recv(fd, value, TEXT - 1, 0);
  close(fd);
  if (n <= 1) return 0;
  value[n - 1] = '\0'; /* ends with a line feed */
  return 1;
}
