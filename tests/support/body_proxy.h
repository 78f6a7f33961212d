/* body_proxy.h: a proxy in front of a server that interferes in the middle of a body, or between
 * requests. Any number of connections.
 *
 * By the first four ways a connection is struck once `after` bytes of replies have passed on it;
 * each connection is counted by itself, all its replies together. */
#ifndef TESTS_BODY_PROXY_H
#define TESTS_BODY_PROXY_H

#include <stddef.h>

typedef enum body_way {
  BODY_STALLS = 1, /* a struck connection stays open and sends nothing more */
  BODY_TRICKLES,   /* a struck connection sends single bytes with pauses between them */
  /* the first strike calls `then` on the proxy's thread; all bytes pass */
  BODY_TELLS,
  BODY_GOES_SLOWLY, /* requests pass at about 4 MiB/s; nothing is struck */
  /* From body_proxy_hold to body_proxy_pass requests are kept back; those whose client has hung up
   * meanwhile never pass. A connection is struck by each request that it keeps back. */
  BODY_HOLDS,
  /* each request is kept back for BODY_LAG_MS; if its client has hung up by then, it never passes
   */
  BODY_LAGS,
  /* From body_proxy_hold on nothing passes on the connections of that moment that have asked for
   * CLIENT TRACKING; they stay open. Such a connection is struck by each push and reply that is
   * lost. */
  BODY_SILENCES_WATCHES
} body_way;

enum { BODY_LAG_MS = 300 };

typedef struct body_proxy body_proxy;

body_proxy *body_proxy_start(int server_port, body_way way, size_t after, void (*then)(void *arg),
                             void *arg);
int body_proxy_port(const body_proxy *proxy);
/* Number of strikes so far. */
int body_proxy_strikes(body_proxy *proxy);
void body_proxy_hold(body_proxy *proxy);
void body_proxy_pass(body_proxy *proxy);
void body_proxy_stop(body_proxy *proxy);

#endif
