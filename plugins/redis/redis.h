/* redis.h: declarations shared by the files of the Redis plugin. Internal to plugins/redis.
 *
 *   plugin.c   the table of redis:
 *   redis.c    the URI
 *   greet.c    connecting and the greeting; what a user should know of a server
 *   perform.c  a batch on a handle
 *   wire.c     the plugin's own socket: connect, write, read, each by an absolute deadline
 *   socket.c   a read that may block
 *   clock.c    the server's clock, as far as a connection knows it
 *   tls.c      TLS over that socket; the only file that knows OpenSSL
 *   out.c      commands in RESP, large values by reference
 *   reply.c    replies by hiredis' reader; the statuses of error replies
 *   scripts.c  the Lua texts
 *   result.c   what comes of an operation: its status and text, what it found
 *   record.c   what a record says of an operation's status, life and lease
 *   look.c     the reply to a lone look, without hiredis
 *   pieces.c   large records, read piece by piece
 *   request.c  the verbs of values as commands; what is refused before it is sent
 *   ops.c      a pipeline: format, exchange, judge
 *   begin.c    a batch of looks without waiting
 *   watch.c    a connection that tells of changes
 *   resp.c     messages of RESP3, which that connection speaks
 *   confirm.c  replicas that must confirm what was changed
 *   lock_scripts.c, lock.c, lock_exec.c   the same for locks: the Lua texts; by scripts, in a
 *                                         batch; by WATCH and EXEC, without scripts
 *   cluster.h  Redis Cluster: the table of redis+cluster, in files of its own
 *   sentinel.h  Redis Sentinel: the table of redis+sentinel, in files of its own
 *   redlock.c, redlock_member.c   the table of redlock: locks over several such stores
 *   inspect.h  what all these tell of their servers, in files of its own
 *
 * Every function returns CORRAL_OK or a negative status; `error` may be NULL. A deadline is
 * host->now_ms time. */
#ifndef CRL_REDIS_H
#define CRL_REDIS_H

#include <corral/plugin.h>
#include <hiredis/hiredis.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <sys/un.h>

#include "../net/net.h"

enum {
  CRL_REDIS_LARGEST = 512 << 20,   /* proto-max-bulk-len, as Redis is delivered */
  CRL_REDIS_STAGED = 4096,         /* larger records are staged: see request.c */
  CRL_REDIS_PIECE = 1 << 20,       /* larger ones are read in pieces: see pieces.c */
  CRL_REDIS_STAGED_MS = 10000,     /* how long a staged record waits for its script */
  CRL_REDIS_LONGEST_ARRAY = 16,    /* no reply that a handle expects has more elements */
  CRL_REDIS_LONGEST_ROLE = 1024,   /* but for the list of a primary's replicas, in the greeting */
  CRL_REDIS_DEEPEST_ARRAY = 7,     /* nor is it nested deeper */
  CRL_REDIS_LONGEST_PUSH = 1 << 20 /* no message to a watch has more elements or bytes */
};

#define CRL_REDIS_EXACT (UINT64_C(1) << 53) /* numbers in Lua are exact up to here */
#define CRL_REDIS_LONGEST_HOLD (INT64_C(3653) * 86400000)
#define CRL_REDIS_UNASKED INT64_MIN /* in place of a key's TTL that was not asked for */

/* ---- the store ----------------------------------------------------------------------------- */

struct ssl_st;
struct ssl_ctx_st;
struct bio_method_st;

typedef enum crl_redis_kind {
  CRL_REDIS_PLAIN,
  CRL_REDIS_NODE,    /* of a cluster (cluster.h): the greeting asks for its id */
  CRL_REDIS_PRIMARY, /* that a sentinel names (sentinel.h): the greeting asks for its role */
  CRL_REDIS_SENTINEL
} crl_redis_kind;

typedef struct crl_redis_store {
  const corral_host *host;
  struct crl_redis_store *base; /* has the TLS context: itself, or that of its cluster */
  crl_redis_kind kind;
  /* how often it said that it is a replica: from the first time on, greetings ask for its role */
  _Atomic unsigned demoted;
  /* NULL, or called when a handle has gone, and before one more is made of a store in hand */
  void (*let_go)(struct crl_redis_store *store);
  void (*hold)(struct crl_redis_store *store);
  char name[160];      /* "redis 127.0.0.1:6379" */
  char *server, *path; /* one of them; `path`: of a unix socket */
  int port;
  crl_net_peer peer;     /* the server's address, for connecting */
  char *user, *password; /* NULL: not given */
  int64_t db;
  char *client_name;
  int tls, tls_verify;
  char *tls_ca, *tls_cert, *tls_key; /* NULL: not given */
  char *tls_name;                    /* name that the certificate must have */
  pthread_mutex_t mutex;             /* guards the next two, which the first connect makes */
  struct ssl_ctx_st *tls_context;
  struct bio_method_st *tls_method;
  int scripts_only;       /* scripts=yes */
  int no_scripts;         /* scripts=no */
  _Atomic int scriptless; /* locks don't use scripts: scripts=no, or the server refused one */
  /* replicas that must confirm a lock, and an invalidation (0: none); the time limit for that */
  int64_t wait_replicas, confirm_replicas, wait_ms;
  int is_quiet;                    /* 1: nothing of this server is told as a warning */
  _Atomic unsigned warned, untold; /* warnings, as bits: all; those that are still to be told */
  _Atomic int informed;            /* INFO need not be asked for any more */
  _Atomic int is_proxy;            /* it hangs up on commands that it doesn't know */
} crl_redis_store;

/* ---- wire.c -------------------------------------------------------------------------------- */

typedef struct crl_redis_wire {
  crl_redis_store *store;
  int fd;             /* -1: none */
  struct ssl_st *ssl; /* NULL: plain */
  int64_t patience;   /* limit of a read that blocks, in ms; 0: no read does */
  int armed;          /* 1: the next crl_redis_wire_read may begin by blocking */
  int64_t armed_at;   /* host->now_ms when the batch began */
  size_t untold;      /* bytes moved in this batch that host->moved wasn't told of */
  int blocks;         /* 1: the next recv blocks */
} crl_redis_wire;

/* socket.c: recv, which waits only when wire->blocks is set, and clears that. */
ssize_t crl_redis_socket_recv(crl_redis_wire *wire, void *buffer, size_t size, int flags);
/* Connects and, for rediss, does the TLS handshake. On failure the wire is closed. A read that may
 * block waits for half of the time left at most. */
int crl_redis_wire_open(crl_redis_wire *wire, crl_redis_store *store, int64_t deadline,
                        corral_error *error);
void crl_redis_wire_close(crl_redis_wire *wire);
/* Lets the next read block, if there is time for that: a reply to what is sent now is read by one
 * system call, without a poll. */
void crl_redis_wire_arm(crl_redis_wire *wire, int64_t now);
/* Writes at least one of these bytes; *wrote: how many. */
int crl_redis_wire_write(crl_redis_wire *wire, const struct iovec *pieces, size_t count,
                         int64_t deadline, size_t *wrote, corral_error *error);
/* Reads at least one byte. CORRAL_EUNAVAILABLE if the server closed the connection. */
int crl_redis_wire_read(crl_redis_wire *wire, void *buffer, size_t size, int64_t deadline,
                        size_t *got, corral_error *error);
/* Reads without waiting: *got bytes, or 0 and in *want the events to poll for. */
int crl_redis_wire_take(crl_redis_wire *wire, void *buffer, size_t size, size_t *got, short *want,
                        corral_error *error);
/* CORRAL_OK: the server is silent, as it must be between batches. CORRAL_EUNAVAILABLE: it closed
 * the connection. CORRAL_EPROTOCOL: it sent something unasked. */
int crl_redis_wire_silent(crl_redis_wire *wire, corral_error *error);

/* ---- tls.c --------------------------------------------------------------------------------- */

/* attach returns a status. Handshake (1), read and write (bytes) return 0 at the end of the
 * connection, or -1: then *want has the events to poll for (POLLIN, POLLOUT), or 0 after a
 * failure. */
int crl_redis_tls_attach(crl_redis_wire *wire, corral_error *error);
void crl_redis_tls_detach(crl_redis_wire *wire);
int crl_redis_tls_handshake(crl_redis_wire *wire, short *want);
ssize_t crl_redis_tls_read(crl_redis_wire *wire, void *buffer, size_t size, int peek, short *want);
ssize_t crl_redis_tls_write(crl_redis_wire *wire, const void *data, size_t size, short *want);
/* Writes the reason of the last failure. */
void crl_redis_tls_explain(crl_redis_wire *wire, char *text, size_t size);
void crl_redis_tls_free(crl_redis_store *store);

/* ---- out.c --------------------------------------------------------------------------------- */

/* Bytes to send: parts of an own buffer, and borrowed pieces between them. */
typedef struct crl_redis_piece {
  const void *data; /* NULL: in the buffer, from `from` on */
  size_t from, size;
} crl_redis_piece;

typedef struct crl_redis_out {
  char *bytes;
  size_t used, room;
  crl_redis_piece *pieces;
  size_t count, piece_room;
  size_t total; /* bytes of all pieces */
  int failed;   /* no memory: later bytes are missing */
  int asking;   /* 1: ASKING goes before each command */
} crl_redis_out;

/* Begins a command; `words` words must follow. Words are copied. */
void crl_redis_out_command(crl_redis_out *out, size_t words);
/* Puts GETRANGE of the key's first CRL_REDIS_PIECE bytes. */
void crl_redis_out_range(crl_redis_out *out, const void *key, size_t key_size);
void crl_redis_out_word(crl_redis_out *out, const void *data, size_t size);
void crl_redis_out_text(crl_redis_out *out, const char *text);
void crl_redis_out_number(crl_redis_out *out, int64_t number);
/* Puts one word made of two; a large `second` is borrowed until the bytes are sent. */
void crl_redis_out_joined(crl_redis_out *out, const void *first, size_t first_size,
                          const void *second, size_t second_size);
/* Empties the output; a buffer that has become large is freed. */
void crl_redis_out_reset(crl_redis_out *out);
void crl_redis_out_free(crl_redis_out *out);
/* Sends all; *sent: bytes that were sent, also on failure. */
int crl_redis_out_send(crl_redis_out *out, crl_redis_wire *wire, int64_t deadline, size_t *sent,
                       corral_error *error);

/* ---- a handle ------------------------------------------------------------------------------ */

/* Rounds of a batch: all of it; a part of it, by the scripts' digests; a part, by their texts. */
enum { CRL_REDIS_BY_SHA1, CRL_REDIS_ANEW, CRL_REDIS_BY_TEXT, CRL_REDIS_REPLIES = 6 };

/* One operation of a batch. */
typedef struct crl_redis_slot {
  corral_op *op;
  size_t end; /* end of its commands among the bytes of the round */
  /* number of its commands, at most CRL_REDIS_REPLIES; 0: nothing was or will be sent */
  int replies;
  int staged; /* 1: the record was staged in this round */
  int noscript, unstage, again;
  int by_set;   /* 1: a claim was sent as SET NX GET in this round */
  int refused;  /* 1: that claim was refused: its script decides */
  int whole;    /* 1: its slot moves, so its record is not to be staged; 2: it isn't */
  int partial;  /* 1: a look has found the first piece of more */
  int vague;    /* 1: the life of what a look found needs the key's TTL */
  int closely;  /* 1: a look asks for the TTL, too */
  int dates;    /* 1: a look asks for the TTL alone, of a lease that it has found */
  int64_t left; /* PTTL of that look, or CRL_REDIS_UNASKED */
} crl_redis_slot;

/* See clock.c. */
typedef struct crl_redis_time {
  int known, refused;  /* refused: this user, or server, has no TIME */
  int64_t least, most; /* bounds of: server time minus host->boot_ms */
  int64_t at;          /* when they were learnt, boot_ms */
  int64_t asked;       /* the same, as crl_redis_handle.now */
} crl_redis_time;

/* 1: the slot takes part in a round. */
static inline int crl_redis_slot_is_wanted(const crl_redis_slot *slot, int round) {
  return slot->replies > 0 && (round == CRL_REDIS_BY_SHA1 || slot->again);
}

/* A batch of looks under way without waiting: see begin.c. */
typedef struct crl_redis_begun {
  size_t count, at; /* slots; the first whose replies are not all there */
  int heard;        /* replies of that slot which are */
  int alone;        /* 1: nothing came yet, and one reply is all that is to come */
  int64_t before;   /* host->boot_ms before it was sent, if it asks for the time */
  redisReply *replies[CRL_REDIS_REPLIES];
} crl_redis_begun;

typedef struct crl_redis_handle {
  crl_redis_store *store;
  crl_redis_wire wire;
  crl_redis_out out;
  redisReader *reader;
  /* hiredis' own ones; the same with a guarded createArray */
  redisReplyObjectFunctions plain, functions;
  size_t fed;          /* bytes that the reader got since its last reply */
  const char *refused; /* why the guard refused an array; NULL: it refused none */
  crl_redis_time time;
  int64_t now;         /* host->now_ms when this batch began */
  int used;            /* 1: a batch was sent on this connection */
  int only_looks;      /* 1: this batch can be repeated */
  int unchecked;       /* 1: it was sent without a check of the connection */
  int asks_time;       /* 1: the commands of this round begin with TIME */
  int unstaged;        /* 1: this user may not write staging keys, or they are elsewhere */
  int is_bare;         /* 1: of a proxy, which knows no TIME */
  int lacks_time;      /* 1: the server knows no TIME */
  int waits;           /* 1: the commands of this round end with WAIT */
  int no_set_claim;    /* 1: this server, or user, has no SET NX GET */
  unsigned demoted;    /* store->demoted when this handle was opened */
  int elsewhere;       /* 1: its node's name leads to another address by now */
  int refused_scripts; /* 1: in this batch a lock's script was refused, and locks can do without */
  crl_redis_slot *slots;
  size_t slot_room;
  crl_redis_begun begun;
  char in[65536];
} crl_redis_handle;

/* ---- reply.c ------------------------------------------------------------------------------- */

int crl_redis_reader_open(crl_redis_handle *handle);
/* Receives the next reply, the caller's to free. CORRAL_EPROTOCOL: the bytes are no RESP; an error
 * reply is CORRAL_OK. */
int crl_redis_reply_next(crl_redis_handle *handle, int64_t deadline, redisReply **ret,
                         corral_error *error);
/* The next reply to a command of this operation, behind that to its ASKING. */
int crl_redis_reply_of(crl_redis_handle *handle, const corral_op *op, int64_t deadline,
                       redisReply **ret, corral_error *error);
/* Takes the next reply from the bytes read so far; *ret NULL: none is complete.
 * crl_redis_reply_feed adds `got` bytes of handle->in to them. */
int crl_redis_reply_ready(crl_redis_handle *handle, redisReply **ret, corral_error *error);
int crl_redis_reply_feed(crl_redis_handle *handle, size_t got, corral_error *error);
/* CORRAL_EPROTOCOL if unasked bytes are left. */
int crl_redis_reply_none(crl_redis_handle *handle, corral_error *error);
/* 1: `reply` is an error whose text begins with `word`. */
int crl_redis_reply_is_error(const redisReply *reply, const char *word);
/* Writes "host:port" of a server, as it stands in a URI. */
void crl_redis_reply_place(const crl_redis_store *store, char *ret, size_t size);
/* Status of an error reply, with a text for the user; `otherwise`: status of errors that aren't in
 * the table. */
int crl_redis_reply_error(const crl_redis_store *store, const redisReply *reply, int otherwise,
                          corral_error *error);

/* ---- clock.c ------------------------------------------------------------------------------- */

/* Learns the server's clock: the server told `now` between host->boot_ms `before` and this
 * moment. */
void crl_redis_clock_learn(crl_redis_handle *h, int64_t now, int64_t before);
/* A reply to TIME in microseconds; -1: it isn't one. */
int64_t crl_redis_clock_time(const redisReply *reply);
/* Handles the reply to a TIME that was sent after host->boot_ms `before`. CORRAL_EPROTOCOL: it is
 * none. */
int crl_redis_clock_hear(crl_redis_handle *h, const redisReply *reply, int64_t before,
                         corral_error *error);
/* 1: the next look should bring a TIME. */
int crl_redis_clock_due(const crl_redis_handle *h);
/* 1: the clock is known well enough to judge lives by it. */
int crl_redis_clock_good(const crl_redis_handle *h);
/* 1: the server may have told `now` between host->boot_ms `before` and this moment, by what was
 * known of its clock. */
int crl_redis_clock_fits(const crl_redis_handle *h, int64_t now, int64_t before);
/* Bounds of the server's time now. 0: it isn't known well enough; then both are the best guess. */
int crl_redis_clock_now(const crl_redis_handle *h, int64_t *least, int64_t *most);

/* ---- scripts.c ----------------------------------------------------------------------------- */

typedef enum crl_redis_script_id {
  CRL_REDIS_CLAIM,
  CRL_REDIS_SETTLE,
  CRL_REDIS_STAGE,
  CRL_REDIS_RELEASE,
  CRL_REDIS_EXTEND,
  CRL_REDIS_EXPIRE,
  CRL_REDIS_INVALIDATE,
  CRL_REDIS_RENEW,
  CRL_REDIS_LOCK,
  CRL_REDIS_LOCK_EXTEND,
  CRL_REDIS_UNLOCK,
  CRL_REDIS_LOCK_REPAIR,
  CRL_REDIS_SCRIPTS
} crl_redis_script_id;

typedef struct crl_redis_script {
  const char *sha1; /* of the text, in hex, as EVALSHA wants it */
  const char *text;
} crl_redis_script;

const crl_redis_script *crl_redis_script_get(crl_redis_script_id id);
/* lock_scripts.c: the scripts from CRL_REDIS_LOCK on. */
const crl_redis_script *crl_redis_lock_script_get(crl_redis_script_id id);

/* ---- redis.c ------------------------------------------------------------------------------- */

/* A store of one server. See corral_store. */
int crl_redis_open(const corral_host *host, const corral_uri *uri, void **ret_store,
                   corral_store_info *info, corral_error *error);
void crl_redis_close(void *store);
/* Reads what stores of one server and of a cluster have in common. After any status
 * crl_redis_close frees it. */
int crl_redis_store_begin(crl_redis_store *s, const corral_host *host, const corral_uri *uri,
                          corral_error *error);
/* The same for the sentinels of a URI, whose servers are `servers`: what isn't said of their TLS is
 * as there. */
int crl_redis_store_begin_sentinels(crl_redis_store *s, const crl_redis_store *servers,
                                    const corral_uri *uri, corral_error *error);

/* ---- greet.c ------------------------------------------------------------------------------- */

/* A failed connect lets the store go, too. */
int crl_redis_connect(void *store, int64_t deadline, void **ret_handle, corral_error *error);
/* Tells what a user should know of the handle's server and hasn't been told yet: CORRAL_WARNING in
 * *error. */
void crl_redis_tell_warnings(void *handle, corral_error *error);
/* Both. */
int crl_redis_connect_telling(void *store, int64_t deadline, void **ret_handle,
                              corral_error *error);
void crl_redis_disconnect(void *handle);

/* ---- ops.c --------------------------------------------------------------------------------- */

/* Performs the batch as one pipeline: crl_redis_perform without its checks, and without the
 * fallback of locks where there are no scripts. */
int crl_redis_ops_run(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                      corral_error *error);

/* The commands of a batch of looks, to be sent as they are; h->asks_time: the first is TIME.
 * CORRAL_ENOMEM. */
int crl_redis_ops_put_looks(crl_redis_handle *h, const corral_batch *batch);
/* Judges the replies of such a look; what they don't tell for sure keeps CORRAL_EINDOUBT. Returns
 * CORRAL_OK, or why the handle is broken. */
int crl_redis_ops_judge_look(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies);

/* ---- begin.c ------------------------------------------------------------------------------- */

/* See corral_store. */
int crl_redis_descriptor(void *handle);
int crl_redis_begin(void *handle, const corral_batch *batch, corral_error *error);
int crl_redis_finish(void *handle, int *done, corral_error *error);
/* Forgets a batch under way, and what was heard of it. */
void crl_redis_begin_drop(crl_redis_handle *h);

/* ---- request.c ----------------------------------------------------------------------------- */

/* CORRAL_OK when an operation, of any verb, may be sent; else the status and text that it has been
 * given. */
int crl_redis_request_sendable(const crl_redis_handle *h, corral_op *op);
/* The commands of a verb of values. Sets slot->replies, if they are more than one, and
 * slot->staged. */
void crl_redis_request_put(crl_redis_handle *h, crl_redis_slot *slot, int round);
/* The commands that look at a value: GETRANGE, and PTTL where the slot or the clock wants it; PTTL
 * alone for a lease that was found, whose end it tells. Sets slot->replies and slot->dates. */
void crl_redis_request_put_get(crl_redis_handle *h, crl_redis_slot *slot);
/* A script's call, up to its keys and arguments; the caller puts those. */
void crl_redis_request_put_script(crl_redis_handle *h, int round, crl_redis_script_id id,
                                  size_t keys, size_t args);

/* ---- cluster_moved.c, cluster_map.c --------------------------------------------------------- */

/* 1: `reply` is an error of a cluster's node that names another node, and the operation is
 * CORRAL_EMOVED. 0: nothing was done. */
int crl_redis_moved(crl_redis_handle *h, corral_op *op, const redisReply *reply);
/* For the greeting: 0 when the node that answers isn't the one that the map has there. */
int crl_redis_node_is(crl_redis_store *store, const char *id, size_t len);

/* ---- result.c ------------------------------------------------------------------------------ */

/* Sets the operation's status and text; returns the status. */
int crl_redis_result_fail(const crl_redis_handle *h, corral_op *op, int status, const char *what);
/* The same for a reply that doesn't answer the command: CORRAL_EPROTOCOL. */
int crl_redis_result_nonsense(const crl_redis_handle *h, corral_op *op);
/* The same by an error reply. Returns CORRAL_OK, or why the handle is broken. */
int crl_redis_result_error(crl_redis_handle *h, corral_op *op, const redisReply *reply);
/* The same for all operations of a batch. */
void crl_redis_result_none_sent(const crl_redis_handle *h, const corral_batch *batch, int status,
                                const char *what);
/* Makes *reply, a string, op->found.record; *reply is NULL then. */
void crl_redis_result_give(corral_op *op, redisReply **reply);
/* Forgets what the operation found or was told. */
void crl_redis_result_take_back(corral_op *op);

/* ---- look.c -------------------------------------------------------------------------------- */

/* Takes the reply to a look from the first `got` bytes that came. 1: they are a whole record, of
 * which the server's clock tells the life; op found it. 0: nothing was done. */
int crl_redis_look_take(crl_redis_handle *h, corral_op *op, size_t got);
/* The bytes of a string reply that is all that came, and not empty; NULL: it isn't that. */
const char *crl_redis_look_string(const char *in, size_t got, size_t *ret_len);

/* ---- pieces.c ------------------------------------------------------------------------------ */

/* Puts the command that reads a record's first piece, or the piece from byte `from` on. */
void crl_redis_pieces_put_first(crl_redis_handle *h, const corral_op *op);
void crl_redis_pieces_put(crl_redis_handle *h, const corral_op *op, size_t from);
/* 1: a record with these first `size` bytes has more bytes that must be read. */
int crl_redis_pieces_more(const crl_redis_handle *h, const void *record, size_t size);
/* Reads the other pieces, after op found the first, by commands of their own. CORRAL_OK, or why the
 * handle is broken. *changed: another record is there now, and op found nothing. Else op found the
 * whole record, with the head as it is now, which the caller judges. */
int crl_redis_pieces_hear(crl_redis_handle *h, corral_op *op, int64_t deadline, int *changed,
                          corral_error *error);

/* ---- lock.c -------------------------------------------------------------------------------- */

/* Put the commands of a lock verb, and judge its replies. Judging returns CORRAL_OK, or why the
 * handle is broken. */
void crl_redis_lock_put(crl_redis_handle *h, crl_redis_slot *slot, int round);
int crl_redis_lock_judge(crl_redis_handle *h, crl_redis_slot *slot, redisReply **replies,
                         int64_t before);
/* 1: LOCK, or UNLOCK, alone in its batch needs one command, and one reply. lock_take: judges that
 * reply, as judge does, by the `got` bytes in h->in, for the first slot; 0: another kind of reply,
 * or not all of it. */
int crl_redis_lock_is_lone(const crl_redis_handle *h, const corral_op *op);
int crl_redis_lock_take(crl_redis_handle *h, size_t got, int64_t before, int *status);
/* Sets EFOREIGN, with the key's time left; -1: it has no end. */
void crl_redis_lock_foreign(const crl_redis_handle *h, corral_op *op, int64_t pttl);

/* ---- confirm.c ----------------------------------------------------------------------------- */

/* put: ends a round with WAIT, where replicas must confirm one of its operations; 1: it was put.
 * hear: after all other replies (or with the status that ended them), receives the reply to WAIT,
 * and applies it to the operations of this round. */
int crl_redis_confirm_put(crl_redis_handle *h, size_t count, int round, int64_t deadline);
int crl_redis_confirm_hear(crl_redis_handle *h, size_t count, int round, int status,
                           int64_t deadline, corral_error *error);
/* Applies the reply to WAIT to one op. */
int crl_redis_confirm_judge(const crl_redis_handle *h, corral_op *op, const redisReply *reply);
/* Puts the WAIT command. */
void crl_redis_confirm_say(crl_redis_handle *h, int64_t replicas, int64_t deadline);

/* ---- lock_exec.c --------------------------------------------------------------------------- */

/* perform: a batch where locks don't use scripts. refused: repeats locks without scripts, after a
 * batch in which a lock's script was refused. */
int crl_redis_exec_perform(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                           corral_error *error);
int crl_redis_exec_refused(crl_redis_handle *h, const corral_batch *batch, int64_t deadline,
                           corral_error *error);

/* ---- perform.c ----------------------------------------------------------------------------- */

/* See corral_store. */
int crl_redis_perform(void *handle, const corral_batch *batch, int64_t deadline,
                      corral_error *error);

/* ---- watch.c ------------------------------------------------------------------------------- */

int crl_redis_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                    corral_error *error);
int crl_redis_changes(void *watch, int stop_fd, int64_t until,
                      void (*told)(void *arg, uint64_t hash), void *arg, corral_error *error);
int crl_redis_register_keys(void *watch, corral_registration *keys, size_t count, int stop_fd,
                            int64_t deadline, corral_error *error);
void crl_redis_unwatch(void *watch);
/* Says how changes are learnt of, CORRAL_WAKE_..., where `of` names what is watched. CORRAL_OK. */
int crl_redis_watch_mode(const crl_redis_store *store, int mode, const char *of,
                         corral_error *error);
/* For one thread with several watches, whose `changes` are called with the time CRL_NET_AT_ONCE:
 * the descriptor to poll for bytes; when `changes` has something to do even without any (host->
 * now_ms); and a function that hears the key of each push as it is read. */
int crl_redis_watch_fd(const void *watch);
int64_t crl_redis_watch_due(const void *watch);
typedef void crl_redis_on_key(void *arg, const void *key, size_t len, uint64_t hash);
void crl_redis_watch_keys(void *watch, crl_redis_on_key *on_key, void *arg);

/* ---- resp.c -------------------------------------------------------------------------------- */

typedef struct crl_redis_token {
  char type;        /* its first byte; '_' for each kind of null */
  const char *text; /* of strings, errors and lines */
  size_t len;
  int64_t number; /* ':': its value; aggregates: number of parts */
} crl_redis_token;

/* Bytes that came, and the place of the reader in them. All zero at the begin. */
typedef struct crl_redis_resp {
  char *bytes;
  size_t used, room, begin, at;
  uint64_t left; /* parts that the message which begins at `begin` still lacks */
  size_t most;   /* bytes of a message; 0: CRL_REDIS_LONGEST_PUSH */
} crl_redis_resp;

/* A message, valid until crl_redis_resp_room. */
typedef struct crl_redis_message {
  const char *at;
  size_t size;
} crl_redis_message;

void crl_redis_resp_free(crl_redis_resp *in);
/* Room for *size bytes, of which crl_redis_resp_feed tells how many came. NULL without memory. */
char *crl_redis_resp_room(crl_redis_resp *in, size_t *size);
void crl_redis_resp_feed(crl_redis_resp *in, size_t got);
/* 1: *ret is the next message; 0: more bytes are needed; -1: these are no RESP3, or too many. */
int crl_redis_resp_next(crl_redis_resp *in, crl_redis_message *ret);
/* Takes the message's next token, aggregates' parts included. 0: there is none. */
int crl_redis_message_next(crl_redis_message *message, crl_redis_token *ret);

/* ---- record.c ------------------------------------------------------------------------------ */

/* Sets the text for the status EFOREIGN or ENEWER. */
void crl_redis_record_refuse(const crl_redis_handle *h, corral_op *op);
/* Sets status, life and lease by a record's front and the server's time. */
void crl_redis_record_judge(const crl_redis_handle *h, corral_op *op, const uint8_t *front,
                            size_t len, int64_t now);
/* The same of a whole record for a GET without PTTL, where the record is free and the server's
 * clock tells its life for sure. 0: nothing was set. */
int crl_redis_record_found_free(const crl_redis_handle *h, corral_op *op, const uint8_t *record,
                                size_t size);
/* 1: the record is a lease whose end is that of its key. */
int crl_redis_record_is_undated(const crl_redis_handle *h, const void *record, size_t size);
/* Sets status, life and lease of a GET, by as much of the record as was read and the key's TTL; a
 * lease without an end of its own gets one from the TTL. 0:
 * CRL_REDIS_UNASKED isn't enough here, and nothing was set. */
int crl_redis_record_found(const crl_redis_handle *h, corral_op *op, uint8_t *record, size_t size,
                           int64_t pttl);
/* Writes the record of a claim where no key is: a lease whose end is that of its key. Returns its
 * size. */
size_t crl_redis_record_lease(const crl_redis_handle *h, const corral_op *op,
                              uint8_t front[CORRAL_FRONT]);
/* Sets the results of a claim that was granted so. */
void crl_redis_record_granted(const crl_redis_handle *h, corral_op *op);

#endif
