/* net.h: connecting to a server, and waiting for a socket, by an absolute deadline; for the plugins
 * that talk to servers. Internal to plugins/.
 *
 *   resolve.c   names to addresses
 *   connect.c   a connected socket: non-blocking, closed on exec
 *   ends.c      tells when the other side has ended one of many connections
 *
 * Every function returns CORRAL_OK or a negative status; `error` may be NULL. A deadline is
 * host->now_ms time. */
#ifndef CRL_NET_H
#define CRL_NET_H

#include <corral/plugin.h>
#include <sys/socket.h>

enum {
  CRL_NET_AT_ONCE = 0,  /* deadline that means: don't wait */
  CRL_NET_ADDRESSES = 8 /* most addresses of one name that are tried */
};

/* Address of a server. */
typedef struct crl_net_peer {
  const corral_host *host;
  const char *name;   /* in messages: "redis 127.0.0.1:6379" */
  const char *server; /* a name, an address, or the path of a unix socket */
  int port;           /* 0: a unix socket */
} crl_net_peer;

typedef struct crl_net_address {
  struct sockaddr_storage at;
  socklen_t len;
} crl_net_address;

/* Fills `ret` with the server's addresses, at most CRL_NET_ADDRESSES, in the system's order. */
int crl_net_resolve(const crl_net_peer *peer, int64_t deadline, crl_net_address *ret,
                    size_t *ret_count, corral_error *error);
/* Connects to the first of the server's addresses that answers; the time left is shared among them.
 * *ret_fd is the caller's to close. */
int crl_net_connect(const crl_net_peer *peer, int64_t deadline, int *ret_fd, corral_error *error);
/* Waits until the socket is ready for `want` (POLLIN, POLLOUT). perform's deadline is put off as
 * bytes move, which the caller reports to host->moved. CORRAL_EUNAVAILABLE at the deadline. */
int crl_net_await(const crl_net_peer *peer, int fd, short want, int64_t deadline,
                  corral_error *error);
/* Makes a connected socket one whose reads block for half of the time that is left until `deadline`
 * at the most, so that such a read never ends later than a batch that has as much time. All other
 * calls on it are to say MSG_DONTWAIT. Returns that limit in ms; 0: reads don't block. */
int64_t crl_net_be_patient(const crl_net_peer *peer, int fd, int64_t deadline);
/* Return CORRAL_EUNAVAILABLE with "name: what: why", or with errno's text as `why`. */
int crl_net_failed(const crl_net_peer *peer, corral_error *error, const char *what,
                   const char *why);
int crl_net_failed_errno(const crl_net_peer *peer, corral_error *error, const char *what);

/* Connections whose ends are told, each under a number of the owner's. Guarded by the owner's
 * mutex. */
typedef struct crl_net_ends {
  int fd;        /* of epoll(7); -1: not open */
  uint64_t last; /* number that a connection has got */
} crl_net_ends;

/* Opens `ends`, if it isn't open; returns its descriptor, -1: none is to be had. */
int crl_net_ends_open(crl_net_ends *ends, const corral_host *host);
/* Opens `ends`, and has the end of this connection told under *ret_number, and under no earlier
 * number; also an end that has come already. 0: `fd` is no connection. */
int crl_net_ends_add(crl_net_ends *ends, const corral_host *host, int fd, uint64_t *ret_number);
/* Tells ends until `stop_fd` is readable (corral_store.ends). Not under the mutex, which `token_of`
 * takes: it copies the token of the hold whose connection has this number, or returns 0. */
void crl_net_ends_tell(int ends_fd, int stop_fd,
                       int (*token_of)(void *store, uint64_t number, uint8_t *token), void *store,
                       void (*told)(void *arg, const uint8_t *token), void *arg);
void crl_net_ends_close(crl_net_ends *ends);

#endif
