/* resolve.c: names to addresses, within a deadline.
 *
 * getaddrinfo knows no deadline and may take half a minute when a name server is away. So a name
 * that isn't an address already is looked up on a thread of its own, which is joined. If the
 * deadline comes first, that thread goes on alone; the last of its two owners frees the lookup.
 * (glibc's getaddrinfo_a has idle threads that are missing after a fork.) */
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "net.h"

typedef struct lookup {
  pthread_t thread; /* used by the caller alone */
  atomic_int owners, ready;
  int done; /* eventfd, readable when `ready` is set */
  char port[8];
  int failure; /* return value of getaddrinfo */
  struct addrinfo *found;
  char server[];
} lookup;

static void let_go(lookup *it) {
  if (atomic_fetch_sub(&it->owners, 1) > 1) return;
  if (it->found != NULL) freeaddrinfo(it->found);
  close(it->done);
  free(it);
}

static int ask(const char *server, const char *port, int flags, struct addrinfo **found) {
  struct addrinfo hints = {
      .ai_family = AF_UNSPEC, .ai_socktype = SOCK_STREAM, .ai_flags = flags | AI_NUMERICSERV};
  *found = NULL;
  return getaddrinfo(server, port, &hints, found);
}

static void *look_up(void *arg) {
  lookup *it = arg;
  const uint64_t one = 1;
  it->failure = ask(it->server, it->port, AI_ADDRCONFIG, &it->found);
  /* AI_ADDRCONFIG finds nothing on a host with loopback only */
  if (it->failure != 0) it->failure = ask(it->server, it->port, 0, &it->found);
  atomic_store(&it->ready, 1);
  ssize_t wrote = write(it->done, &one, sizeof one);
  (void)wrote; /* can't fail: the counter is zero */
  let_go(it);
  return NULL;
}

/* Starts the thread, with all signals blocked. 0, or an errno. */
static int start(lookup *it) {
  sigset_t all, old;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &old);
  int failed = pthread_create(&it->thread, NULL, look_up, it);
  pthread_sigmask(SIG_SETMASK, &old, NULL);
  return failed;
}

static lookup *begin(const corral_host *host, const char *server, const char *port) {
  size_t len = strlen(server) + 1;
  lookup *it = calloc(1, sizeof *it + len);
  if (it == NULL) return NULL;
  memcpy(it->server, server, len);
  memcpy(it->port, port, sizeof it->port);
  it->done = host->own_fd(eventfd(0, EFD_CLOEXEC));
  atomic_init(&it->owners, 2);
  if (it->done < 0 || start(it) != 0) {
    if (it->done >= 0) close(it->done);
    free(it);
    return NULL;
  }
  return it;
}

/* Waits for the lookup; 1: it was done by the deadline, 0: it was not. */
static int finished(const corral_host *host, const lookup *it, int64_t deadline) {
  for (;;) {
    struct pollfd fd = {.fd = it->done, .events = POLLIN};
    int64_t left = deadline - host->now_ms();
    int n = left <= 0 ? 0 : poll(&fd, 1, left > 60000 ? 60000 : (int)left);
    if (n > 0) return atomic_load(&it->ready);
    if (left <= 0 || (n < 0 && errno != EINTR)) return 0;
  }
}

static size_t take(const struct addrinfo *found, crl_net_address *ret) {
  size_t count = 0;
  for (; found != NULL && count < CRL_NET_ADDRESSES; found = found->ai_next) {
    if (found->ai_addrlen > sizeof ret->at) continue;
    memcpy(&ret[count].at, found->ai_addr, found->ai_addrlen);
    ret[count++].len = found->ai_addrlen;
  }
  return count;
}

int crl_net_resolve(const crl_net_peer *peer, int64_t deadline, crl_net_address *ret,
                    size_t *ret_count, corral_error *error) {
  const corral_host *host = peer->host;
  char port[8];
  struct addrinfo *found;
  host->guard_standard(); /* getaddrinfo opens sockets of its own */
  snprintf(port, sizeof port, "%d", peer->port);
  if (ask(peer->server, port, AI_NUMERICHOST, &found) == 0) {
    *ret_count = take(found, ret);
    freeaddrinfo(found);
    return CORRAL_OK;
  }
  lookup *it = begin(host, peer->server, port);
  if (it == NULL)
    return host->fail(error, CORRAL_EIO, "%s: no thread to look the name up", peer->name);
  int status = CORRAL_OK;
  if (!finished(host, it, deadline)) {
    pthread_detach(it->thread);
    status =
        host->fail(error, CORRAL_EUNAVAILABLE, "%s: looking up the name took too long", peer->name);
  } else {
    pthread_join(it->thread, NULL);
    if (it->failure != 0 || (*ret_count = take(it->found, ret)) == 0)
      status = host->fail(error, CORRAL_EUNAVAILABLE, "%s: the name can't be looked up: %s",
                          peer->name, gai_strerror(it->failure));
  }
  let_go(it);
  return status;
}
