/* wire.c: a server whose bytes come from the fuzzer. See wire.h. */
#include "wire.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "store/registry.h"

int __real_socket(int domain, int type, int protocol);
int __real_connect(int fd, const struct sockaddr *at, socklen_t len);
int __real_poll(struct pollfd *fds, nfds_t count, int timeout);
ssize_t __real_recv(int fd, void *data, size_t size, int flags);
int __wrap_socket(int domain, int type, int protocol);
int __wrap_connect(int fd, const struct sockaddr *at, socklen_t len);
int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout);
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags);

static struct {
  int on, hangs_up, hung_up;
  const char *const *script;
  fuzz_input *in;
  int ours, theirs; /* ends of the socketpair: the plugin's, the server's */
  int64_t now;
} wire = {.ours = -1, .theirs = -1};

/* ---- time ---------------------------------------------------------------------------------- */

enum { BEGIN_MS = 1000000, WALL_MS = 1700000000, LIMIT_MS = 100 };

static int64_t now_ms(void) { return wire.now; }
static int64_t wall_ms(void) { return (int64_t)WALL_MS * 1000 + wire.now; }

static int same_random(void *buffer, size_t size) {
  memset(buffer, 0x5a, size);
  return CORRAL_OK;
}

const corral_host *fuzz_wire_host(void) {
  static corral_host host;
  host = *crl_registry_host();
  host.now_ms = host.boot_ms = now_ms;
  host.wall_ms = wall_ms;
  host.random = same_random;
  return &host;
}

void fuzz_wire_pass(int64_t ms) { wire.now += ms > 0 ? ms : 1; }

/* ---- the server's bytes -------------------------------------------------------------------- */

void fuzz_wire_begin(const char *const *script, fuzz_input *in, int hangs_up) {
  fuzz_wire_end();
  wire.on = 1;
  wire.hangs_up = hangs_up;
  wire.hung_up = 0;
  wire.script = script;
  wire.in = in;
  wire.now = BEGIN_MS;
}

void fuzz_wire_end(void) {
  if (wire.theirs >= 0) (void)close(wire.theirs);
  wire.ours = wire.theirs = -1;
  wire.on = 0;
}

const uint8_t *fuzz_wire_segment(size_t *ret_size) {
  fuzz_input *in = wire.in;
  if (*wire.script != NULL) {
    const char *text = *wire.script++;
    *ret_size = strlen(text);
    return (const uint8_t *)text;
  }
  if (in->left == 0) return NULL;
  const uint8_t *at = in->at, *end = memchr(at, FUZZ_WIRE_END, in->left);
  *ret_size = end != NULL ? (size_t)(end - at) : in->left;
  in->at += *ret_size + (end != NULL);
  in->left -= *ret_size + (end != NULL);
  return at;
}

/* Reads and drops the plugin's bytes, so that its sends never block. */
static void hear(void) {
  char dropped[65536];
  while (__real_recv(wire.theirs, dropped, sizeof dropped, MSG_DONTWAIT) > 0) continue;
}

/* Delivers the next segment. Returns 1 when there are bytes to read, or the end of the connection;
 * 0: the server is silent. */
static int say(void) {
  int waiting = 0;
  size_t size = 0;
  if (ioctl(wire.ours, FIONREAD, &waiting) == 0 && waiting > 0) return 1;
  while (size == 0) {
    const uint8_t *segment = fuzz_wire_segment(&size);
    if (segment == NULL) break;
    if (size > 0) (void)!send(wire.theirs, segment, size, MSG_DONTWAIT | MSG_NOSIGNAL);
  }
  if (size > 0) return 1;
  if (wire.hangs_up && !wire.hung_up) (void)shutdown(wire.theirs, SHUT_WR);
  wire.hung_up = wire.hangs_up;
  return wire.hung_up;
}

/* ---- functions called by the plugin -------------------------------------------------------- */

int __wrap_socket(int domain, int type, int protocol) {
  int pair[2];
  if (!wire.on) return __real_socket(domain, type, protocol);
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) return -1;
  if (wire.theirs >= 0) (void)close(wire.theirs);
  wire.ours = pair[0];
  wire.theirs = pair[1];
  wire.hung_up = 0;
  return wire.ours;
}

int __wrap_connect(int fd, const struct sockaddr *at, socklen_t len) {
  return wire.on && fd == wire.ours ? 0 : __real_connect(fd, at, len);
}

int __wrap_poll(struct pollfd *fds, nfds_t count, int timeout) {
  int ready = 0, is_ours = 0;
  for (nfds_t i = 0; i < count; i++) {
    fds[i].revents = 0;
    if (!wire.on || fds[i].fd < 0 || fds[i].fd != wire.ours) continue;
    is_ours = 1;
    hear();
    if (fds[i].events & POLLOUT) fds[i].revents |= POLLOUT;
    if ((fds[i].events & POLLIN) && say()) fds[i].revents |= POLLIN;
    ready += fds[i].revents != 0;
  }
  if (!wire.on) return __real_poll(fds, count, timeout);
  fuzz_wire_pass(ready > 0 || !is_ours ? 1 : timeout);
  return ready;
}

/* A recv that may block fails at its limit, as after SO_RCVTIMEO. */
ssize_t __wrap_recv(int fd, void *data, size_t size, int flags) {
  if (!wire.on || fd != wire.ours || (flags & MSG_DONTWAIT) != 0)
    return __real_recv(fd, data, size, flags);
  hear();
  int ready = say();
  fuzz_wire_pass(ready ? 1 : LIMIT_MS);
  return __real_recv(fd, data, size, flags | MSG_DONTWAIT);
}
