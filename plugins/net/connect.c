/* connect.c: a connected socket: non-blocking, closed on exec. */
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include "net.h"

int crl_net_failed(const crl_net_peer *peer, corral_error *error, const char *what,
                   const char *why) {
  return peer->host->fail(error, CORRAL_EUNAVAILABLE, "%s: %s: %.140s", peer->name, what, why);
}

int crl_net_failed_errno(const crl_net_peer *peer, corral_error *error, const char *what) {
  return crl_net_failed(peer, error, what, strerror(errno));
}

int crl_net_await(const crl_net_peer *peer, int socket_fd, short want, int64_t deadline,
                  corral_error *error) {
  for (;;) {
    struct pollfd fd = {.fd = socket_fd, .events = want};
    int64_t left =
        deadline == CRL_NET_AT_ONCE ? 0 : peer->host->moved(0, deadline) - peer->host->now_ms();
    if (left <= 0 && deadline != CRL_NET_AT_ONCE)
      return crl_net_failed(peer, error, "no answer", "the time allowed is over");
    int n = poll(&fd, 1, left > 60000 ? 60000 : (int)left);
    if (n > 0) return CORRAL_OK;
    if (n < 0 && errno != EINTR) return crl_net_failed_errno(peer, error, "poll");
    if (n == 0 && deadline == CRL_NET_AT_ONCE)
      return crl_net_failed(peer, error, "no answer", "nothing more to read");
  }
}

int64_t crl_net_be_patient(const crl_net_peer *peer, int fd, int64_t deadline) {
  int64_t half = (deadline - peer->host->now_ms()) / 2;
  int flags = fcntl(fd, F_GETFL);
  if (half < 1 || flags < 0) return 0;
  struct timeval limit = {.tv_sec = (time_t)(half / 1000),
                          .tv_usec = (suseconds_t)(half % 1000 * 1000)};
  return setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit) == 0 &&
                 fcntl(fd, F_SETFL, flags & ~O_NONBLOCK) == 0
             ? half
             : 0;
}

static int connect_one(const crl_net_peer *peer, const crl_net_address *address, int64_t deadline,
                       int *ret_fd, corral_error *error) {
  const struct sockaddr *at = (const struct sockaddr *)&address->at;
  const int on = 1;
  int code = 0, status = CORRAL_OK;
  socklen_t len = sizeof code;
  int fd = peer->host->own_fd(socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd < 0) return crl_net_failed_errno(peer, error, "socket");
  if (at->sa_family != AF_UNIX) {
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  /* EAGAIN means that a unix socket's backlog is full. poll says nothing about that, so it is a
   * failure here, and the pool tries again. */
  if (connect(fd, at, address->len) != 0) {
    if (errno != EINPROGRESS && errno != EINTR)
      status = crl_net_failed_errno(peer, error, "can't connect");
    else
      status = crl_net_await(peer, fd, POLLOUT, deadline, error);
    if (status == CORRAL_OK && getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0 &&
        code != 0) {
      errno = code;
      status = crl_net_failed_errno(peer, error, "can't connect");
    }
  }
  if (status == CORRAL_OK)
    *ret_fd = fd;
  else
    close(fd);
  return status;
}

static int find(const crl_net_peer *peer, int64_t deadline, crl_net_address *addresses,
                size_t *count, corral_error *error) {
  if (peer->port != 0) return crl_net_resolve(peer, deadline, addresses, count, error);
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  memcpy(at.sun_path, peer->server, strlen(peer->server) + 1);
  memcpy(&addresses->at, &at, sizeof at);
  addresses->len = sizeof at;
  *count = 1;
  return CORRAL_OK;
}

int crl_net_connect(const crl_net_peer *peer, int64_t deadline, int *ret_fd, corral_error *error) {
  crl_net_address addresses[CRL_NET_ADDRESSES];
  size_t count = 0;
  int status = find(peer, deadline, addresses, &count, error);
  for (size_t i = 0; i < count; i++) {
    int64_t now = peer->host->now_ms();
    int64_t share = i + 1 == count || deadline <= now
                        ? deadline
                        : now + 1 + (deadline - now) / (int64_t)(count - i);
    status = connect_one(peer, &addresses[i], share, ret_fd, error);
    if (status == CORRAL_OK) break;
  }
  return status;
}
