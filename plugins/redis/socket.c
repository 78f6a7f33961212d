/* socket.c: recv on a socket that blocks, below wire.c and tls.c. */
#include <errno.h>

#include "redis.h"

ssize_t crl_redis_socket_recv(crl_redis_wire *wire, void *buffer, size_t size, int flags) {
  ssize_t n;
  int blocks = wire->blocks;
  wire->blocks = 0;
  if (blocks && (n = recv(wire->fd, buffer, size, flags)) >= 0) return n;
  /* a signal, or the limit: from here on the deadline alone counts */
  if (blocks && errno == EINTR) errno = EAGAIN;
  if (blocks) return -1;
  do n = recv(wire->fd, buffer, size, flags | MSG_DONTWAIT);
  while (n < 0 && errno == EINTR);
  return n;
}
