/* ends.c: tells when the other side has ended one of many connections.
 *
 * By epoll, of which a descriptor that is closed is no member any more. Only the end of a
 * connection is an event, so that replies wake nobody. */
#include <errno.h>
#include <poll.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "net.h"

enum { ROOM = 64 };

int crl_net_ends_open(crl_net_ends *ends, const corral_host *host) {
  if (ends->fd < 0) ends->fd = host->own_fd(epoll_create1(EPOLL_CLOEXEC));
  return ends->fd;
}

/* Edge-triggered: an end is told once, though the connection stays open on this side. */
int crl_net_ends_add(crl_net_ends *ends, const corral_host *host, int fd, uint64_t *ret_number) {
  *ret_number = ++ends->last;
  struct epoll_event event = {.events = EPOLLRDHUP | EPOLLET, .data.u64 = *ret_number};
  return crl_net_ends_open(ends, host) < 0 || epoll_ctl(ends->fd, EPOLL_CTL_ADD, fd, &event) == 0 ||
         (errno == EEXIST && epoll_ctl(ends->fd, EPOLL_CTL_MOD, fd, &event) == 0);
}

void crl_net_ends_tell(int ends_fd, int stop_fd,
                       int (*token_of)(void *store, uint64_t number, uint8_t *token), void *store,
                       void (*told)(void *arg, const uint8_t *token), void *arg) {
  struct epoll_event events[ROOM];
  uint8_t token[CORRAL_TOKEN];
  struct pollfd fds[2] = {{.fd = stop_fd, .events = POLLIN}, {.fd = ends_fd, .events = POLLIN}};
  while (ends_fd >= 0 && fds[0].revents == 0) {
    if (poll(fds, 2, -1) <= 0) continue;
    int count = fds[1].revents != 0 ? epoll_wait(ends_fd, events, ROOM, 0) : 0;
    for (int i = 0; i < count; i++)
      if (token_of(store, events[i].data.u64, token)) told(arg, token);
  }
}

void crl_net_ends_close(crl_net_ends *ends) {
  if (ends->fd >= 0) close(ends->fd);
  ends->fd = -1;
}
