/* memcached.h: declarations shared by the files of the memcached plugin. Internal to
 * plugins/memcached.
 *
 *   memcached.c  the table; the URI; the server of a key; connecting
 *   key.c        a key as memcached accepts it
 *   wire.c       the connection: each call by an absolute deadline
 *   greet.c      the server's clock and settings
 *   request.c    requests, and why libmemcached doesn't make them
 *   reply.c      replies; the meaning of error lines
 *   ops.c        a batch: read, decide, add or cas
 *
 * Every function returns CORRAL_OK or a negative status; `error` may be NULL. A deadline is
 * host->now_ms time. */
#ifndef CRL_MEMCACHED_H
#define CRL_MEMCACHED_H

#include <corral/plugin.h>
#include <libmemcached/memcached.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/un.h>

#include "../net/net.h"

enum {
  CRL_MEMCACHED_SERVERS = 100, /* the library asserts that there are no more */
  CRL_MEMCACHED_KEY = 250,
  CRL_MEMCACHED_KEYS = 64, /* most keys of one get or gets */
  /* bytes of an item's size that the server takes for itself, the key included */
  CRL_MEMCACHED_OVERHEAD = 512,
  CRL_MEMCACHED_LARGEST = 1 << 30, /* no server accepts larger items */
  CRL_MEMCACHED_BUFFER = 16384,
  CRL_MEMCACHED_LINE = 1024, /* longest line of a reply, values aside */
  /* exptime of an item that shall vanish at once: an absolute date in 1970 */
  CRL_MEMCACHED_GONE = 2592001
};

/* ---- the store ----------------------------------------------------------------------------- */

typedef struct crl_memcached_server {
  char host[256]; /* a name, an address, or the path of a unix socket */
  int port;       /* 0: a unix socket */
  int64_t weight;
  char name[288];    /* "memcached 127.0.0.1:11211" */
  crl_net_peer peer; /* the server's address, for connecting */
} crl_memcached_server;

typedef struct crl_memcached_store {
  const corral_host *host;
  size_t count;
  crl_memcached_server *servers;
  memcached_st *map; /* all servers, never connected: finds the server of a key; NULL: one server */
  int64_t max_item;
  char name[160];
} crl_memcached_store;

/* CORRAL_OK: this version of the library can be trusted; else CORRAL_EUNSUPPORTED. */
int crl_memcached_check_version(const corral_host *host, const char *version, corral_error *error);

/* ---- key.c --------------------------------------------------------------------------------- */

typedef struct crl_memcached_key {
  size_t len;
  char text[CRL_MEMCACHED_KEY + 1];
} crl_memcached_key;

/* The server's key for a key of the host; any two keys of the host have different ones, but for
 * digests of long keys. */
void crl_memcached_encode(const corral_host *host, const void *key, size_t key_len,
                          crl_memcached_key *ret);

/* ---- wire.c -------------------------------------------------------------------------------- */

typedef struct crl_memcached_wire {
  const corral_host *host;
  const crl_memcached_server *server;
  int fd;            /* -1: none */
  size_t start, end; /* bytes that were read and not used yet */
  char in[CRL_MEMCACHED_BUFFER];
} crl_memcached_wire;

/* Connects. On failure the wire is closed. */
int crl_memcached_wire_open(crl_memcached_wire *wire, int64_t deadline, corral_error *error);
void crl_memcached_wire_close(crl_memcached_wire *wire);
int crl_memcached_wire_write(crl_memcached_wire *wire, const void *bytes, size_t size,
                             int64_t deadline, corral_error *error);
/* Reads a line, without its line end; valid until the next read. */
int crl_memcached_wire_line(crl_memcached_wire *wire, int64_t deadline, char **ret, size_t *ret_len,
                            corral_error *error);
/* Reads exactly `size` bytes. */
int crl_memcached_wire_bytes(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline,
                             corral_error *error);
/* CORRAL_OK: the server is silent, as it must be between requests. CORRAL_EUNAVAILABLE: it closed
 * the connection. CORRAL_EPROTOCOL: it sent something unasked. */
int crl_memcached_wire_silent(crl_memcached_wire *wire, corral_error *error);

/* ---- a handle ------------------------------------------------------------------------------ */

typedef struct crl_memcached_handle {
  crl_memcached_store *store;
  const corral_host *host;
  const crl_memcached_server *server;
  crl_memcached_wire wire;
  int64_t clock;  /* store time is host->boot_ms plus this */
  size_t largest; /* bytes of the largest record that the server takes */
} crl_memcached_handle;

static inline int64_t crl_memcached_now(const crl_memcached_handle *h) {
  return h->host->boot_ms() + h->clock;
}

/* ---- greet.c ------------------------------------------------------------------------------- */

/* Asks the server for its clock and settings. */
int crl_memcached_greet(crl_memcached_handle *h, int64_t deadline, corral_error *error);

/* ---- request.c ----------------------------------------------------------------------------- */

typedef enum crl_memcached_command {
  CRL_MEMCACHED_GET,
  CRL_MEMCACHED_GETS,
  CRL_MEMCACHED_ADD,
  CRL_MEMCACHED_CAS
} crl_memcached_command;

typedef struct crl_memcached_request {
  crl_memcached_command command;
  const crl_memcached_key *const *keys;
  size_t count; /* 1 to CRL_MEMCACHED_KEYS for GET and GETS, else 1 */
  const void *value;
  size_t size;
  int64_t exptime;
  uint64_t cas; /* CAS: never 0 */
} crl_memcached_request;

/* Sends a request; *ret_sent: 1: all of it was sent. */
int crl_memcached_send(crl_memcached_handle *h, const crl_memcached_request *request,
                       int64_t deadline, int *ret_sent, corral_error *error);

/* ---- reply.c ------------------------------------------------------------------------------- */

typedef enum crl_memcached_word {
  CRL_MEMCACHED_STORED,
  CRL_MEMCACHED_NOT_STORED,
  CRL_MEMCACHED_EXISTS,
  CRL_MEMCACHED_NOT_FOUND,
  CRL_MEMCACHED_REFUSED /* an error line after which the connection is usable */
} crl_memcached_word;

/* An item as the server has it. */
typedef struct crl_memcached_item {
  int exists;
  uint64_t cas;
  uint8_t *bytes; /* malloc'ed; not NULL when the item exists */
  size_t size;
} crl_memcached_item;

/* An error reply that leaves the connection usable. */
typedef struct crl_memcached_refusal {
  /* CORRAL_OK: no error; CORRAL_EINDOUBT: the server itself doesn't know a write's fate */
  int status;
  char text[160];
} crl_memcached_refusal;

/* Reads the reply to GET and GETS: items[i] belongs to keys[i]. On failure there are no items. */
int crl_memcached_hear_items(crl_memcached_handle *h, const crl_memcached_request *request,
                             crl_memcached_item *items, int64_t deadline,
                             crl_memcached_refusal *refusal, corral_error *error);
/* Reads the reply to ADD and CAS. */
int crl_memcached_hear_word(crl_memcached_handle *h, const crl_memcached_request *request,
                            int64_t deadline, crl_memcached_word *word,
                            crl_memcached_refusal *refusal, corral_error *error);
/* 1: the line is an error line, with its meaning in *refusal; *fatal: the connection can't be used
 * any more. 0: it is none. */
int crl_memcached_is_error(const char *line, crl_memcached_refusal *refusal, int *fatal);

/* ---- ops.c --------------------------------------------------------------------------------- */

int crl_memcached_perform(void *handle, const corral_batch *batch, int64_t deadline,
                          corral_error *error);
/* The exptime for a record that is kept until `expires` (store time). */
int64_t crl_memcached_exptime(int64_t now, int64_t expires);

#endif
