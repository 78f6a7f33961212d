/* wire.c: the connection: non-blocking, closed on exec, never raising SIGPIPE. Each call keeps one absolute deadline,
 * however many small pieces the other side makes of it. */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <unistd.h>

#include "memcached.h"

static int failed(const crl_memcached_wire *wire, corral_error *error, const char *what, const char *why) {
  return wire->host->fail(error, CORRAL_EUNAVAILABLE, "%s: %s: %.140s", wire->server->name, what, why);
}

static int failed_errno(const crl_memcached_wire *wire, corral_error *error, const char *what) {
  char why[128];
  return failed(wire, error, what, strerror_r(errno, why, sizeof why));
}

static int await(const crl_memcached_wire *wire, short want, int64_t deadline, corral_error *error) {
  for (;;) {
    struct pollfd fd = {.fd = wire->fd, .events = want};
    int64_t left = deadline - wire->host->now_ms();
    if (left <= 0) return failed(wire, error, "no answer", "the time allowed is over");
    int n = poll(&fd, 1, left > 60000 ? 60000 : (int)left);
    if (n > 0) return CORRAL_OK;
    if (n < 0 && errno != EINTR) return failed_errno(wire, error, "poll");
  }
}

/* ---- connecting ------------------------------------------------------------------------------------------ */

static int connect_one(crl_memcached_wire *wire, const crl_memcached_address *address, int64_t deadline, corral_error *error) {
  const struct sockaddr *at = (const struct sockaddr *)&address->at;
  const int on = 1;
  int code = 0;
  socklen_t len = sizeof code;
  wire->fd = socket(at->sa_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (wire->fd < 0) return failed_errno(wire, error, "socket");
  if (at->sa_family != AF_UNIX) {
    setsockopt(wire->fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(wire->fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  }
  int status = CORRAL_OK;
  if (connect(wire->fd, at, address->len) != 0) {
    if (errno != EINPROGRESS && errno != EINTR) status = failed_errno(wire, error, "can't connect");
    else status = await(wire, POLLOUT, deadline, error);
    if (status == CORRAL_OK && getsockopt(wire->fd, SOL_SOCKET, SO_ERROR, &code, &len) == 0 && code != 0) {
      errno = code;
      status = failed_errno(wire, error, "can't connect");
    }
  }
  if (status != CORRAL_OK) crl_memcached_wire_close(wire);
  return status;
}

static int find(const crl_memcached_wire *wire, int64_t deadline, crl_memcached_address *addresses, size_t *count,
                corral_error *error) {
  const crl_memcached_server *server = wire->server;
  if (server->port != 0) return crl_memcached_resolve(wire->host, server, deadline, addresses, count, error);
  struct sockaddr_un at = {.sun_family = AF_UNIX};
  memcpy(at.sun_path, server->host, strlen(server->host) + 1);
  memcpy(&addresses->at, &at, sizeof at);
  addresses->len = sizeof at;
  *count = 1;
  return CORRAL_OK;
}

int crl_memcached_wire_open(crl_memcached_wire *wire, int64_t deadline, corral_error *error) {
  crl_memcached_address addresses[CRL_MEMCACHED_ADDRESSES];
  size_t count = 0;
  wire->fd = -1;
  wire->start = wire->end = 0;
  int status = find(wire, deadline, addresses, &count, error);
  for (size_t i = 0; i < count; i++) {
    int64_t now = wire->host->now_ms();
    int64_t share = i + 1 == count || deadline <= now ? deadline : now + 1 + (deadline - now) / (int64_t)(count - i);
    status = connect_one(wire, &addresses[i], share, error);
    if (status == CORRAL_OK) break;
  }
  return status;
}

void crl_memcached_wire_close(crl_memcached_wire *wire) {
  if (wire->fd >= 0) close(wire->fd);
  wire->fd = -1;
}

/* ---- bytes ----------------------------------------------------------------------------------------------- */

int crl_memcached_wire_write(crl_memcached_wire *wire, const void *bytes, size_t size, int64_t deadline, corral_error *error) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t n = send(wire->fd, at, size, MSG_NOSIGNAL);
    if (n >= 0) {
      at += n;
      size -= (size_t)n;
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return failed_errno(wire, error, "connection");
    int status = await(wire, POLLOUT, deadline, error);
    if (status != CORRAL_OK) return status;
  }
  return CORRAL_OK;
}

/* At least one byte. A reply is seldom there at once, so it is waited for first: that also looks at the time. */
static int receive(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline, size_t *got, corral_error *error) {
  for (;;) {
    int status = await(wire, POLLIN, deadline, error);
    if (status != CORRAL_OK) return status;
    ssize_t n = recv(wire->fd, to, size, 0);
    if (n > 0) {
      *got = (size_t)n;
      return CORRAL_OK;
    }
    if (n == 0) return failed(wire, error, "connection", "closed by the server");
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK) return failed_errno(wire, error, "connection");
  }
}

int crl_memcached_wire_line(crl_memcached_wire *wire, int64_t deadline, char **ret, size_t *ret_len, corral_error *error) {
  size_t looked = 0;
  for (;;) {
    char *line = wire->in + wire->start;
    size_t len = wire->end - wire->start;
    char *feed = memchr(line + looked, '\n', len - looked);
    if (feed != NULL) {
      wire->start += (size_t)(feed - line) + 1;
      len = (size_t)(feed - line);
      if (len > 0 && line[len - 1] == '\r') len--;
      line[len] = '\0';
      *ret = line;
      *ret_len = len;
      return CORRAL_OK;
    }
    if (len >= CRL_MEMCACHED_LINE)
      return wire->host->fail(error, CORRAL_EPROTOCOL, "%s: an endless line: is it a memcached server?", wire->server->name);
    looked = len;
    memmove(wire->in, line, len);
    wire->start = 0;
    wire->end = len;
    size_t got;
    int status = receive(wire, wire->in + len, sizeof wire->in - len, deadline, &got, error);
    if (status != CORRAL_OK) return status;
    wire->end += got;
  }
}

int crl_memcached_wire_bytes(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline, corral_error *error) {
  char *at = to;
  size_t have = wire->end - wire->start;
  if (have > size) have = size;
  memcpy(at, wire->in + wire->start, have);
  wire->start += have;
  for (at += have, size -= have; size > 0;) {
    size_t got;
    int status = receive(wire, at, size, deadline, &got, error);
    if (status != CORRAL_OK) return status;
    at += got;
    size -= got;
  }
  return CORRAL_OK;
}

int crl_memcached_wire_silent(crl_memcached_wire *wire, corral_error *error) {
  char byte;
  ssize_t n;
  do n = wire->start < wire->end ? 1 : recv(wire->fd, &byte, 1, MSG_PEEK);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return CORRAL_OK;
  if (n == 0) return failed(wire, error, "connection", "closed by the server");
  if (n < 0) return failed_errno(wire, error, "connection");
  return wire->host->fail(error, CORRAL_EPROTOCOL, "%s: the server sent what nobody asked for", wire->server->name);
}
