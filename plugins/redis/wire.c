/* wire.c: the connection, TLS or plain, which never raises SIGPIPE. Each call keeps one absolute
 * deadline, into however many small pieces the server cuts its reply; the host puts off a batch's
 * deadline as a body moves. */
#include <errno.h>
#include <poll.h>
#include <unistd.h>

#include "redis.h"

enum { TOLD = 4096 /* fewer bytes than this aren't worth a report */ };

static int failed(const crl_redis_wire *wire, corral_error *error, const char *what,
                  const char *why) {
  return crl_net_failed(&wire->store->peer, error, what, why);
}

static int failed_errno(const crl_redis_wire *wire, corral_error *error, const char *what) {
  return crl_net_failed_errno(&wire->store->peer, error, what);
}

static int await(const crl_redis_wire *wire, short want, int64_t deadline, corral_error *error) {
  return crl_net_await(&wire->store->peer, wire->fd, want, deadline, error);
}

/* ---- connecting ---------------------------------------------------------------------------- */

static int shake_hands(crl_redis_wire *wire, int64_t deadline, corral_error *error) {
  int status = crl_redis_tls_attach(wire, error);
  while (status == CORRAL_OK) {
    short want;
    char why[160];
    if (crl_redis_tls_handshake(wire, &want) == 1) return CORRAL_OK;
    if (want != 0) {
      if (await(wire, want, deadline, NULL) == CORRAL_OK) continue;
      status = failed(wire, error, "TLS",
                      "no answer within the time allowed: does this port speak TLS?");
      break;
    }
    crl_redis_tls_explain(wire, why, sizeof why);
    status = failed(wire, error, "TLS", why);
  }
  crl_redis_wire_close(wire);
  return status;
}

int crl_redis_wire_open(crl_redis_wire *wire, crl_redis_store *store, int64_t deadline,
                        corral_error *error) {
  *wire = (crl_redis_wire){.store = store, .fd = -1};
  int status = crl_net_connect(&store->peer, deadline, &wire->fd, error);
  if (status == CORRAL_OK && store->tls) status = shake_hands(wire, deadline, error);
  if (status == CORRAL_OK) wire->patience = crl_net_be_patient(&store->peer, wire->fd, deadline);
  return status;
}

void crl_redis_wire_arm(crl_redis_wire *wire, int64_t now) {
  wire->armed = wire->patience > 0;
  wire->armed_at = now;
  wire->untold = 0;
}

void crl_redis_wire_close(crl_redis_wire *wire) {
  if (wire->ssl != NULL) crl_redis_tls_detach(wire);
  if (wire->fd >= 0) close(wire->fd);
  wire->fd = -1;
}

/* ---- bytes --------------------------------------------------------------------------------- */

/* As in tls.c: bytes, 0 at the end of the connection, or -1 with the events to poll for. */
static ssize_t try_read(crl_redis_wire *wire, void *buffer, size_t size, int peek, short *want) {
  if (wire->ssl != NULL) return crl_redis_tls_read(wire, buffer, size, peek, want);
  ssize_t n = crl_redis_socket_recv(wire, buffer, size, peek ? MSG_PEEK : 0);
  *want = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? POLLIN : 0;
  return n;
}

static inline __attribute__((always_inline)) ssize_t
try_write(crl_redis_wire *wire, const struct iovec *pieces, size_t count, short *want) {
  if (wire->ssl != NULL) return crl_redis_tls_write(wire, pieces->iov_base, pieces->iov_len, want);
  struct msghdr message = {.msg_iov = (struct iovec *)(uintptr_t)pieces};
  message.msg_iovlen = (__typeof__(message.msg_iovlen))count; /* size_t, or int with musl */
  ssize_t n;
  do n = sendmsg(wire->fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  *want = n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK) ? POLLOUT : 0;
  return n;
}

static __attribute__((noinline)) int gone(crl_redis_wire *wire, ssize_t n, corral_error *error) {
  char why[160];
  if (n == 0) return failed(wire, error, "connection", "closed by the server");
  if (wire->ssl == NULL) return failed_errno(wire, error, "connection");
  crl_redis_tls_explain(wire, why, sizeof why);
  return failed(wire, error, "TLS", why);
}

/* Reports what moved, once it is worth that. */
static void tell(crl_redis_wire *wire, size_t moved, int64_t deadline) {
  wire->untold += moved;
  if (wire->untold < TOLD) return;
  wire->store->host->moved(wire->untold, deadline);
  wire->untold = 0;
}

/* Goes on after a try that wrote nothing. */
static __attribute__((noinline)) int write_on(crl_redis_wire *wire, const struct iovec *pieces,
                                              size_t count, int64_t deadline, short want,
                                              ssize_t *n, corral_error *error) {
  wire->armed = 0; /* the time for a read that blocks may be over */
  while (want != 0) {
    int status = await(wire, want, deadline, error);
    if (status != CORRAL_OK) return status;
    *n = try_write(wire, pieces, count, &want);
    if (*n > 0) return CORRAL_OK;
  }
  return gone(wire, *n, error);
}

int crl_redis_wire_write(crl_redis_wire *wire, const struct iovec *pieces, size_t count,
                         int64_t deadline, size_t *wrote, corral_error *error) {
  short want;
  ssize_t n = try_write(wire, pieces, count, &want);
  if (n <= 0) {
    int status = write_on(wire, pieces, count, deadline, want, &n, error);
    if (status != CORRAL_OK) return status;
  }
  *wrote = (size_t)n;
  tell(wire, *wrote, deadline);
  return CORRAL_OK;
}

/* Goes on where there was no try, or one that read nothing. */
static __attribute__((noinline)) int read_on(crl_redis_wire *wire, void *buffer, size_t size,
                                             int64_t deadline, short want, ssize_t *n,
                                             corral_error *error) {
  while (want != 0) {
    int status = await(wire, want, deadline, error);
    if (status != CORRAL_OK) return status;
    *n = try_read(wire, buffer, size, 0, &want);
    if (*n > 0) return CORRAL_OK;
  }
  return gone(wire, *n, error);
}

/* A reply is seldom there at once, so the first read blocks, or waits by poll first; but TLS may
 * hold bytes that poll doesn't see. */
int crl_redis_wire_read(crl_redis_wire *wire, void *buffer, size_t size, int64_t deadline,
                        size_t *got, corral_error *error) {
  short want = POLLIN;
  ssize_t n = -1;
  wire->blocks =
      wire->armed && wire->store->host->moved(0, deadline) - wire->armed_at >= wire->patience;
  if (wire->ssl != NULL || wire->blocks) n = try_read(wire, buffer, size, 0, &want);
  wire->armed = wire->blocks = 0;
  if (n <= 0) {
    int status = read_on(wire, buffer, size, deadline, want, &n, error);
    if (status != CORRAL_OK) return status;
  }
  *got = (size_t)n;
  tell(wire, *got, deadline);
  return CORRAL_OK;
}

int crl_redis_wire_take(crl_redis_wire *wire, void *buffer, size_t size, size_t *got, short *want,
                        corral_error *error) {
  ssize_t n = try_read(wire, buffer, size, 0, want);
  *got = n > 0 ? (size_t)n : 0;
  return n > 0 || *want != 0 ? CORRAL_OK : gone(wire, n, error);
}

int crl_redis_wire_silent(crl_redis_wire *wire, corral_error *error) {
  char byte;
  short want;
  ssize_t n = try_read(wire, &byte, 1, 1, &want);
  if (n < 0 && want != 0) return CORRAL_OK;
  if (n <= 0) return gone(wire, n, error);
  return wire->store->host->fail(error, CORRAL_EPROTOCOL,
                                 "%s: the server sent what nobody asked for", wire->store->name);
}
