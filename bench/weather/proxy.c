/* proxy.c: a proxy between processes and their store. While it is stopped (SIGSTOP) they are cut
 * off: what is sent stays unanswered, as behind a network that drops packets. */
#include "weather.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "../kit.h"

enum { STACK = 256 * 1024 };

typedef struct pair {
  int fd[2]; /* the client's, the store's */
} pair;

/* Copies what has come to one side; 0: that side has ended. */
static int copy(int from, int to) {
  char room[16384];
  ssize_t n = recv(from, room, sizeof room, MSG_DONTWAIT);
  if (n < 0) return errno == EAGAIN || errno == EINTR;
  for (ssize_t done = 0; done < n;) {
    ssize_t sent = send(to, room + done, (size_t)(n - done), MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) {
      if (!socket_await(to, POLLOUT, clock_us() + 1000000)) return 0;
    } else if (sent < 0) {
      return 0;
    } else {
      done += sent;
    }
  }
  return n > 0;
}

static void *relay(void *arg) {
  pair *p = arg;
  for (int open = 1; open;) {
    struct pollfd ready[2] = {{.fd = p->fd[0], .events = POLLIN},
                              {.fd = p->fd[1], .events = POLLIN}};
    if (poll(ready, 2, -1) < 0) continue;
    for (int i = 0; i < 2 && open; i++)
      if (ready[i].revents != 0) open = copy(p->fd[i], p->fd[1 - i]);
  }
  close(p->fd[0]);
  close(p->fd[1]);
  free(p);
  return NULL;
}

_Noreturn void proxy_serve(const char *from, const char *to) {
  pthread_attr_t small;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  pthread_attr_init(&small);
  pthread_attr_setstacksize(&small, STACK);
  pthread_attr_setdetachstate(&small, PTHREAD_CREATE_DETACHED);
  int listener = socket_listen(from);
  if (listener < 0) die("the proxy can't listen");
  for (;;) {
    pthread_t thread;
    pair *p = malloc(sizeof *p);
    if (p == NULL) die("no memory");
    p->fd[0] = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
    p->fd[1] = p->fd[0] < 0 ? -1 : socket_dial(to);
    if (p->fd[1] >= 0 && pthread_create(&thread, &small, relay, p) == 0) continue;
    for (int i = 0; i < 2; i++)
      if (p->fd[i] >= 0) close(p->fd[i]);
    free(p);
  }
}
