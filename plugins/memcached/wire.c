/* wire.c: the connection, which never raises SIGPIPE. Each call keeps one absolute deadline, into
 * however many small pieces the server cuts its reply; the host puts off a batch's deadline as a
 * body moves. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "memcached.h"

static int failed(const crl_memcached_wire *wire, corral_error *error, const char *what,
                  const char *why) {
  return crl_net_failed(&wire->server->peer, error, what, why);
}

static int failed_errno(const crl_memcached_wire *wire, corral_error *error, const char *what) {
  return crl_net_failed_errno(&wire->server->peer, error, what);
}

static int await(const crl_memcached_wire *wire, short want, int64_t deadline,
                 corral_error *error) {
  return crl_net_await(&wire->server->peer, wire->fd, want, deadline, error);
}

int crl_memcached_wire_open(crl_memcached_wire *wire, int64_t deadline, corral_error *error) {
  wire->fd = -1;
  wire->start = wire->end = 0;
  int status = crl_net_connect(&wire->server->peer, deadline, &wire->fd, error);
  if (status == CORRAL_OK)
    wire->patience = crl_net_be_patient(&wire->server->peer, wire->fd, deadline);
  return status;
}

void crl_memcached_wire_close(crl_memcached_wire *wire) {
  if (wire->fd >= 0) close(wire->fd);
  wire->fd = -1;
}

/* ---- bytes --------------------------------------------------------------------------------- */

int crl_memcached_wire_write(crl_memcached_wire *wire, const void *bytes, size_t size,
                             int64_t deadline, corral_error *error) {
  const char *at = bytes;
  while (size > 0) {
    ssize_t n = send(wire->fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      at += n;
      size -= (size_t)n;
      wire->host->moved((size_t)n, deadline);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno != EAGAIN && errno != EWOULDBLOCK) return failed_errno(wire, error, "connection");
    int status = await(wire, POLLOUT, deadline, error);
    if (status != CORRAL_OK) return status;
  }
  return CORRAL_OK;
}

/* Without a byte: why, or CORRAL_OK where it is none to give up for. */
static int judge_none(const crl_memcached_wire *wire, ssize_t n, corral_error *error) {
  if (n == 0) return failed(wire, error, "connection", "closed by the server");
  return errno == EINTR || errno == EAGAIN || errno == EWOULDBLOCK
             ? CORRAL_OK
             : failed_errno(wire, error, "connection");
}

/* 1: there is time for a read that blocks. */
static int may_block(const crl_memcached_wire *wire, int64_t deadline) {
  const corral_host *host = wire->host;
  return wire->patience > 0 && host->moved(0, deadline) - host->now_ms() >= wire->patience;
}

/* A reply is seldom there at once: so the read blocks, or else waits by poll first. After a read
 * that was in vain, by a signal or its limit, the deadline alone counts. */
int crl_memcached_wire_receive(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline,
                               size_t *got, corral_error *error) {
  for (int blocks = may_block(wire, deadline);; blocks = 0) {
    int status = blocks ? CORRAL_OK : await(wire, POLLIN, deadline, error);
    if (status != CORRAL_OK) return status;
    ssize_t n = recv(wire->fd, to, size, blocks ? 0 : MSG_DONTWAIT);
    if (n > 0) {
      *got = (size_t)n;
      wire->host->moved(*got, deadline);
      return CORRAL_OK;
    }
    status = judge_none(wire, n, error);
    if (status != CORRAL_OK) return status;
  }
}

int crl_memcached_wire_take(crl_memcached_wire *wire, void *to, size_t size, size_t *got,
                            corral_error *error) {
  ssize_t n;
  do n = recv(wire->fd, to, size, MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  *got = n > 0 ? (size_t)n : 0;
  if (n <= 0) return judge_none(wire, n, error);
  wire->host->moved(*got, CRL_NET_AT_ONCE);
  return CORRAL_OK;
}

size_t crl_memcached_wire_room(crl_memcached_wire *wire, char **to) {
  size_t len = wire->end - wire->start;
  if (wire->start > 0) memmove(wire->in, wire->in + wire->start, len);
  wire->start = 0;
  wire->end = len;
  *to = wire->in + len;
  return sizeof wire->in - len;
}

int crl_memcached_wire_line_there(crl_memcached_wire *wire, char **ret, corral_error *error) {
  char *line = wire->in + wire->start;
  size_t len = wire->end - wire->start;
  char *feed = memchr(line, '\n', len);
  *ret = NULL;
  if (feed == NULL)
    return len < CRL_MEMCACHED_LINE
               ? CORRAL_OK
               : wire->host->fail(error, CORRAL_EPROTOCOL,
                                  "%s: an endless line: is it a memcached server?",
                                  wire->server->name);
  wire->start += (size_t)(feed - line) + 1;
  len = (size_t)(feed - line);
  if (len > 0 && line[len - 1] == '\r') len--;
  line[len] = '\0';
  *ret = line;
  return CORRAL_OK;
}

int crl_memcached_wire_line(crl_memcached_wire *wire, int64_t deadline, char **ret,
                            corral_error *error) {
  int status;
  while ((status = crl_memcached_wire_line_there(wire, ret, error)) == CORRAL_OK && *ret == NULL) {
    char *to;
    size_t got, room = crl_memcached_wire_room(wire, &to);
    status = crl_memcached_wire_receive(wire, to, room, deadline, &got, error);
    if (status != CORRAL_OK) break;
    wire->end += got;
  }
  return status;
}

int crl_memcached_wire_silent(crl_memcached_wire *wire, corral_error *error) {
  char byte;
  ssize_t n;
  do n = wire->start < wire->end ? 1 : recv(wire->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  if (n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return CORRAL_OK;
  if (n == 0) return failed(wire, error, "connection", "closed by the server");
  if (n < 0) return failed_errno(wire, error, "connection");
  return wire->host->fail(error, CORRAL_EPROTOCOL, "%s: the server sent what nobody asked for",
                          wire->server->name);
}
