/* body_proxy.h: a proxy in front of a server that does something in the middle of a body. Any
 * number of connections.
 *
 * A connection is struck once `after` bytes of replies have passed on it, those of one connection
 * counted together. */
#ifndef TESTS_BODY_PROXY_H
#define TESTS_BODY_PROXY_H

#include <stddef.h>

typedef enum body_way {
  BODY_STALLS = 1, /* a struck connection says nothing any more */
  BODY_TRICKLES,   /* a byte now and then */
  /* `then` is called, at the first strike only, on the proxy's thread; all passes */
  BODY_TELLS,
  BODY_GOES_SLOWLY /* requests go up at some 4 MiB/s; nothing is struck */
} body_way;

typedef struct body_proxy body_proxy;

body_proxy *body_proxy_start(int server_port, body_way way, size_t after, void (*then)(void *arg),
                             void *arg);
int body_proxy_port(const body_proxy *proxy);
/* How many connections were struck. */
int body_proxy_strikes(body_proxy *proxy);
void body_proxy_stop(body_proxy *proxy);

#endif
