/* body_proxy.h: a proxy in front of a server that interferes in the middle of a body. Any number of
 * connections.
 *
 * A connection is struck once `after` bytes of replies have passed on it; each connection is
 * counted by itself, all its replies together. */
#ifndef TESTS_BODY_PROXY_H
#define TESTS_BODY_PROXY_H

#include <stddef.h>

typedef enum body_way {
  BODY_STALLS = 1, /* a struck connection stays open and sends nothing more */
  BODY_TRICKLES,   /* a struck connection sends single bytes with pauses between them */
  /* the first strike calls `then` on the proxy's thread; all bytes pass */
  BODY_TELLS,
  BODY_GOES_SLOWLY /* requests pass at about 4 MiB/s; nothing is struck */
} body_way;

typedef struct body_proxy body_proxy;

body_proxy *body_proxy_start(int server_port, body_way way, size_t after, void (*then)(void *arg),
                             void *arg);
int body_proxy_port(const body_proxy *proxy);
/* Number of connections struck so far. */
int body_proxy_strikes(body_proxy *proxy);
void body_proxy_stop(body_proxy *proxy);

#endif
