/* twemproxy.h: a real twemproxy (Debian: nutcracker) in front of the redis-servers of a test.
 *
 *   static twemproxy *proxy;
 *   if (!twemproxy_start(&proxy, ports, 2)) skip();   prints that nutcracker is missing
 *   ... twemproxy_uri(proxy) ...
 *   twemproxy_stop(proxy); */
#ifndef TESTS_TWEMPROXY_H
#define TESTS_TWEMPROXY_H

#include <stddef.h>

typedef struct twemproxy twemproxy;

/* Spreads keys over the servers on these ports of 127.0.0.1. Returns 0 when it isn't installed. */
int twemproxy_start(twemproxy **ret, const int *ports, size_t count);
/* "redis://127.0.0.1:PORT"; owned by the proxy. */
const char *twemproxy_uri(const twemproxy *proxy);
/* Kills it and removes its folder. NULL is allowed. */
void twemproxy_stop(twemproxy *proxy);

#endif
