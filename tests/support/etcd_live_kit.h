/* etcd_live_kit.h: a client of a real etcd that the test starts. */
#ifndef ETCD_LIVE_KIT_H
#define ETCD_LIVE_KIT_H

#include <poll.h>
#include <signal.h>

#include "support/etcd_kit.h"
#include "support/etcd_server.h"

static etcd_server *server;

static inline client fresh(void) {
  if (server == NULL) skip();
  return connected(etcd_server_uri(server));
}

static inline void waiter(void) { poll(NULL, 0, 1); }

static inline int begin_all(void **state) {
  (void)state;
  signal(SIGPIPE, SIG_DFL); /* the default action ends this program */
  return 0;
}

static inline int end_all(void **state) {
  (void)state;
  etcd_server_stop(server);
  return 0;
}

#endif
