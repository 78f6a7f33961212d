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
  return crl_net_connect(&wire->server->peer, deadline, &wire->fd, error);
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
    ssize_t n = send(wire->fd, at, size, MSG_NOSIGNAL);
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

/* Receives at least one byte. It waits first, because a reply is seldom there at once; that also
 * checks the time. */
static int receive(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline, size_t *got,
                   corral_error *error) {
  for (;;) {
    int status = await(wire, POLLIN, deadline, error);
    if (status != CORRAL_OK) return status;
    ssize_t n = recv(wire->fd, to, size, 0);
    if (n > 0) {
      *got = (size_t)n;
      wire->host->moved(*got, deadline);
      return CORRAL_OK;
    }
    if (n == 0) return failed(wire, error, "connection", "closed by the server");
    if (errno != EINTR && errno != EAGAIN && errno != EWOULDBLOCK)
      return failed_errno(wire, error, "connection");
  }
}

int crl_memcached_wire_line(crl_memcached_wire *wire, int64_t deadline, char **ret, size_t *ret_len,
                            corral_error *error) {
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
      return wire->host->fail(error, CORRAL_EPROTOCOL,
                              "%s: an endless line: is it a memcached server?", wire->server->name);
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

int crl_memcached_wire_bytes(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline,
                             corral_error *error) {
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
  return wire->host->fail(error, CORRAL_EPROTOCOL, "%s: the server sent what nobody asked for",
                          wire->server->name);
}
