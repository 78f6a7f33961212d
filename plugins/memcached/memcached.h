/* memcached.h: declarations shared by the files of the memcached plugin. Internal to
 * plugins/memcached.
 *
 *   memcached.c  the table; the URI; the server of a key; connecting
 *   key.c        a key as memcached accepts it
 *   wire.c       the connection: each call by an absolute deadline
 *   greet.c      the server's clock and settings
 *   request.c    requests, and why libmemcached doesn't make them
 *   reply.c      replies; the meaning of error lines
 *   slots.c      keys and their items; what all verbs have in common
 *   gets.c       looks: in one go, or begun and finished
 *   ops.c        a batch: read, decide, add or cas
 *   inspect.c    what each server says of itself
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
  int64_t patience;  /* limit of a read that blocks, in ms; 0: no read does */
  size_t start, end; /* bytes that were read and not used yet */
  char in[CRL_MEMCACHED_BUFFER];
} crl_memcached_wire;

/* Connects. On failure the wire is closed. */
int crl_memcached_wire_open(crl_memcached_wire *wire, int64_t deadline, corral_error *error);
void crl_memcached_wire_close(crl_memcached_wire *wire);
int crl_memcached_wire_write(crl_memcached_wire *wire, const void *bytes, size_t size,
                             int64_t deadline, corral_error *error);
/* Receives at least one byte, and at most `size`. */
int crl_memcached_wire_receive(crl_memcached_wire *wire, void *to, size_t size, int64_t deadline,
                               size_t *got, corral_error *error);
/* Receives what is there, without waiting; *got 0: nothing is. */
int crl_memcached_wire_take(crl_memcached_wire *wire, void *to, size_t size, size_t *got,
                            corral_error *error);
/* The room for bytes behind those that were read, and its size. Who puts some there adds them to
 * wire->end. */
size_t crl_memcached_wire_room(crl_memcached_wire *wire, char **to);
/* Takes a line out of what was read, without its line end; valid until the next read. NULL: it
 * isn't there yet. */
int crl_memcached_wire_line_there(crl_memcached_wire *wire, char **ret, corral_error *error);
/* The same, and reads until it is there. */
int crl_memcached_wire_line(crl_memcached_wire *wire, int64_t deadline, char **ret,
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
  int64_t clock;                     /* store time is host->boot_ms plus this */
  int64_t checked;                   /* host->now_ms when the server was last seen to be silent */
  size_t largest;                    /* bytes of the largest record that the server takes */
  struct crl_memcached_begun *begun; /* NULL: nothing is under way */
} crl_memcached_handle;

static inline int64_t crl_memcached_now(const crl_memcached_handle *h) {
  return h->host->boot_ms() + h->clock;
}

/* ---- greet.c ------------------------------------------------------------------------------- */

/* Asks the server for its clock and settings. */
int crl_memcached_greet(crl_memcached_handle *h, int64_t deadline, corral_error *error);

/* ---- inspect.c ----------------------------------------------------------------------------- */

/* See corral_store. */
int crl_memcached_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);

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
  uint8_t *bytes; /* of host->record_new; not NULL when the item exists */
  size_t size;
} crl_memcached_item;

/* An error reply that leaves the connection usable. */
typedef struct crl_memcached_refusal {
  /* CORRAL_OK: no error; CORRAL_EINDOUBT: the server itself doesn't know a write's fate */
  int status;
  char text[160];
} crl_memcached_refusal;

/* The reply to a GET or GETS, as far as it has come. */
typedef struct crl_memcached_hearing {
  const crl_memcached_request *request;
  crl_memcached_item *items; /* items[i] belongs to keys[i] */
  crl_memcached_item *item;  /* whose bytes come next; NULL: a line does */
  size_t got;                /* of those bytes, and the line end behind them */
  int done;
  crl_memcached_refusal refusal;
} crl_memcached_hearing;

void crl_memcached_hearing_begin(crl_memcached_hearing *hearing,
                                 const crl_memcached_request *request, crl_memcached_item *items);
/* Takes what was read already, at most to the end of the reply. */
int crl_memcached_hearing_there(crl_memcached_handle *h, crl_memcached_hearing *hearing,
                                corral_error *error);
/* Reads once more, without waiting; *got 0: there is nothing. */
int crl_memcached_hearing_take(crl_memcached_handle *h, crl_memcached_hearing *hearing, size_t *got,
                               corral_error *error);
/* Frees the items. */
void crl_memcached_hearing_drop(const crl_memcached_handle *h, crl_memcached_hearing *hearing);
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

/* ---- slots.c ------------------------------------------------------------------------------- */

static inline int crl_memcached_is_lock(const corral_op *op) {
  return op->verb >= CORRAL_VERB_LOCK && op->verb <= CORRAL_VERB_LOCK_SHOW;
}

/* A key, and its item as far as it is known while operations on it are performed. */
typedef struct crl_memcached_slot {
  crl_memcached_key key;
  int read; /* `item` is as the server has it */
  crl_memcached_item item;
} crl_memcached_slot;

/* Makes a slot for each different key of at most CRL_MEMCACHED_KEYS operations; of[i] is the slot
 * of operation i. Returns the number of slots. */
size_t crl_memcached_slots(const crl_memcached_handle *h, const corral_batch *batch,
                           crl_memcached_slot *slots, size_t *of);
/* Frees the item. */
void crl_memcached_forget(const crl_memcached_handle *h, crl_memcached_slot *s);
/* Calls host->decide. */
void crl_memcached_decide(const crl_memcached_handle *h, corral_op *op,
                          const crl_memcached_item *item, int64_t now, corral_change *change);
/* Gives the operation these bytes of host->record_new. */
void crl_memcached_hand_over(const crl_memcached_handle *h, corral_op *op, uint8_t *bytes,
                             size_t size);
int crl_memcached_fail(const crl_memcached_handle *h, corral_op *op, int status, const char *what);
/* Sends a request, if no reply is left over. As crl_memcached_send. */
int crl_memcached_ask(crl_memcached_handle *h, const crl_memcached_request *request,
                      int64_t deadline, int *sent, corral_error *error);
void crl_memcached_refuse(const crl_memcached_handle *h, corral_op *op,
                          const crl_memcached_refusal *refusal);
/* The status of an operation that a broken connection hit. */
int crl_memcached_cut(int sent);
/* Checks that the server is silent, unless it was so a moment ago and what follows `reads` first:
 * see slots.c. */
int crl_memcached_check(crl_memcached_handle *h, int reads, int64_t now, corral_error *error);

/* ---- gets.c -------------------------------------------------------------------------------- */

/* Performs at most CRL_MEMCACHED_KEYS looks, with one request. */
int crl_memcached_gets(crl_memcached_handle *h, const corral_batch *batch, int64_t deadline,
                       corral_error *error);
/* The table's functions of these names. */
int crl_memcached_descriptor(void *handle);
int crl_memcached_begin(void *handle, const corral_batch *batch, corral_error *error);
int crl_memcached_finish(void *handle, int *done, corral_error *error);
/* Forgets what was begun. */
void crl_memcached_begun_drop(crl_memcached_handle *h);

/* ---- ops.c --------------------------------------------------------------------------------- */

int crl_memcached_perform(void *handle, const corral_batch *batch, int64_t deadline,
                          corral_error *error);
/* The exptime for a record that is kept until `expires` (store time). */
int64_t crl_memcached_exptime(int64_t now, int64_t expires);

#endif
