/* postgresql.h: declarations shared by the files of the PostgreSQL store. Internal to
 * plugins/postgresql/.
 *
 *   postgresql.c   the design; the URI, open, close, the table of the plugin
 *   statements.c   the SQL
 *   session.c      connecting, asking, the statuses of errors
 *   table.c        locks=table: rows
 *   advisory.c     locks=advisory: a session for each hold
 *   queue.c        its turns: the server's own queue
 *   holds.c        its sessions
 *   watch.c        LISTEN
 *   inspect.c      what the server says of itself
 *   list.c         the names of locks
 *
 * Functions return CORRAL_OK or a negative status; `error` may be NULL. A deadline is host->now_ms
 * time. */
#ifndef CRL_POSTGRESQL_H
#define CRL_POSTGRESQL_H

#include <corral/plugin.h>
#include <libpq-fe.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../net/net.h"

enum {
  CRL_PG_TABLE_ROOM = 140,
  CRL_PG_SQL_ROOM = 2000,
  CRL_PG_NAME_ROOM = CORRAL_LOCK_NOTE + 32, /* of an application_name */
  CRL_PG_KEY = 2048,
  /* a key in hex; a NOTIFY payload has less than 8000 bytes */
  CRL_PG_KEY_TEXT = 2 * CRL_PG_KEY + 1,
  CRL_PG_POLL_MOST_MS = 60000
};

/* the beginning of a waiting session's application_name; a note follows */
#define CRL_PG_WAITS "waits: "

typedef enum crl_pg_statement {
  CRL_PG_TAKE,
  CRL_PG_EXTEND,
  CRL_PG_UNLOCK,
  CRL_PG_SHOW,
  CRL_PG_TRY,
  CRL_PG_TRY_SHARED,
  CRL_PG_WISH,
  CRL_PG_QUEUE,
  CRL_PG_QUEUE_SHARED,
  CRL_PG_TURN,
  CRL_PG_PLACE,
  CRL_PG_CANCEL,
  CRL_PG_PASS,
  CRL_PG_TOUCH,
  CRL_PG_DOWNGRADE,
  CRL_PG_END,
  CRL_PG_END_SHARED,
  CRL_PG_HOLDERS,
  CRL_PG_LISTENS,
  CRL_PG_REDATE,
  CRL_PG_TAKE_OVER,
  CRL_PG_STATEMENTS
} crl_pg_statement;

/* Parameters of every statement: $1 name, $2 token, $3 and $4 numbers, $5 text. */
typedef struct crl_pg_question {
  const void *name, *token;
  size_t name_len;
  int64_t first, second;
  const char *text; /* NULL: "" */
} crl_pg_question;

/* The ways in which a session without a hold waits: it bars new readers, or its statement blocks in
 * the server's queue. */
enum { CRL_PG_WISHES = 1, CRL_PG_QUEUES };

/* A connection. The session of an advisory hold also has the state of that hold. */
typedef struct crl_pg_session {
  PGconn *conn;
  unsigned prepared; /* prepared statements, a bit for each */
  int plain;         /* the server, or a proxy before it, doesn't keep prepared statements */
  int pending;       /* a reply is still outstanding */
  int sent;          /* the last ask has sent the statement itself */
  struct crl_pg_session *next;
  uint8_t token[CORRAL_TOKEN];
  int pid;   /* process id of its backend */
  int lent;  /* one thread has it for itself */
  int ends;  /* an unlock was sent, and its reply didn't come */
  int waits; /* CRL_PG_WISHES, CRL_PG_QUEUES; 0: it doesn't wait. Changed under the mutex */
  int looks; /* a look has sought its place before (CRL_PG_QUEUES) */
  int shared;
  int64_t lock;    /* number of the advisory lock; 0: it holds none */
  int fd;          /* its socket */
  uint64_t number; /* under which its end, or its turn, is told */
  uint64_t hash;   /* of the key that it waits for (CRL_PG_QUEUES) */
  uint64_t fence;
  int64_t since, until; /* host->now_ms; until: 0 while it waits */
  char note[CORRAL_LOCK_NOTE + 1];
} crl_pg_session;

typedef struct crl_pg_store {
  const corral_host *host;
  int advisory, create, notify;
  int64_t max_holds;
  char name[160], server[256], port[8], table[CRL_PG_TABLE_ROOM];
  char *user, *password, *database, *sslmode, *sslrootcert; /* NULL: libpq's default */
  char sql[CRL_PG_STATEMENTS][CRL_PG_SQL_ROOM];
  /* names of the prepared statements: a hash of the text, since PgBouncer gives sessions to clients
   * that prepared their own */
  char prepared[CRL_PG_STATEMENTS][24];
  pthread_mutex_t mutex; /* guards what follows; not held during I/O */
  pthread_cond_t given_back;
  crl_pg_session *holds, *idle;
  crl_net_ends ends;
  crl_net_ends turns; /* sessions in the server's queue; readable, when one is answered */
  int64_t hold_count; /* holds, tokens that wait, and those being taken */
  int idle_count;
} crl_pg_store;

typedef struct crl_pg_handle {
  crl_pg_store *store;
  crl_pg_session *session; /* NULL: it became a hold's session */
} crl_pg_handle;

/* statements.c. Writes a statement, with the table's name in it; 0: there is no room. */
int crl_pg_statement_text(crl_pg_statement what, const char *table, char *room, size_t size);
void crl_pg_create_text(const char *table, char *room, size_t size);

/* session.c */
/* Sets *error to "name: first line of text"; returns `status`. */
int crl_pg_failed(const crl_pg_store *s, int status, corral_error *error, const char *text);
int crl_pg_open_session(crl_pg_store *s, int64_t deadline, crl_pg_session **ret,
                        corral_error *error);
/* Closes and frees a session. NULL is allowed. */
void crl_pg_hang_up(crl_pg_session *c);
/* 1: the session can't be used any more, or a reply is still outstanding. */
int crl_pg_is_broken(const crl_pg_session *c);
/* Reads unasked messages; 0: the server has ended the session, which only such a message tells. */
int crl_pg_is_alive(const crl_pg_session *c);
/* Waits until the socket is ready for `want`; 0: the deadline. */
int crl_pg_await(const crl_pg_store *s, const crl_pg_session *c, short want, int64_t deadline);
/* Receives the result of what was sent, the first if there are several. NULL: the deadline passed,
 * and it is still outstanding. */
PGresult *crl_pg_receive(const crl_pg_store *s, crl_pg_session *c, int64_t deadline);
/* Asks and waits for the reply, which is the caller's to clear if the status is CORRAL_OK.
 * CORRAL_EINDOUBT: sent, and no reply. A statement that the server gave up in favour of others
 * (serializable transactions) is sent again. */
int crl_pg_ask(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what,
               const crl_pg_question *q, int64_t deadline, PGresult **ret, corral_error *error);
/* Sends a statement, whose reply is outstanding (`pending`) until crl_pg_receive has it. */
int crl_pg_begin(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what,
                 const crl_pg_question *q, int64_t deadline, corral_error *error);
/* Value of a boolean or bigint; 0 for NULL. */
int64_t crl_pg_number_at(const PGresult *r, int column, int row);
/* A number of ms from the server, since 1970 or remaining, held within 0 to 2^53, so that such
 * numbers can be added. */
int64_t crl_pg_ms_at(const PGresult *r, int column, int row);

/* table.c */
int crl_pg_in_table(crl_pg_handle *h, corral_op *op, int64_t deadline);
/* The note as text that this server takes; other bytes become '?'. */
const char *crl_pg_note_of(const crl_pg_session *c, const char *text, size_t text_len,
                           char room[CORRAL_LOCK_NOTE + 1]);
/* The payload for NOTIFY; "": no NOTIFY. */
const char *crl_pg_key_text(const crl_pg_store *s, const corral_op *op, char room[CRL_PG_KEY_TEXT]);
/* Hands out a record of these holds as op->found. */
int crl_pg_show(crl_pg_store *s, corral_op *op, uint64_t fence, const corral_hold *holds,
                size_t count, int64_t now);

/* inspect.c, list.c: see corral_store. */
int crl_pg_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);
int crl_pg_list(void *store, const corral_listing *listing, corral_error *error);

/* holds.c: the sessions of holds, and of tokens that wait */
/* Takes the session of this token, for this thread alone until it is given back or dropped. NULL:
 * there is none, or (*status) another thread had it until the deadline. */
crl_pg_session *crl_pg_borrow(crl_pg_store *s, const uint8_t *token, int64_t deadline, int *status);
void crl_pg_give_back(crl_pg_store *s, crl_pg_session *c);
/* Lists the session under its token. */
void crl_pg_keep(crl_pg_store *s, crl_pg_session *c);
/* Makes a borrowed session the handle's, no longer listed. Returns the handle's own one, which is
 * to be given back to it. */
crl_pg_session *crl_pg_exchange(crl_pg_handle *h, crl_pg_session *c);
/* Ends the session's role; one that has no lock and still works is kept for later. */
void crl_pg_drop(crl_pg_handle *h, crl_pg_session *c);
/* Reserves room for one more hold; 0: there is none. Room is made by a session whose unlock was
 * sent and never answered, and by one that the server has ended. */
int crl_pg_reserve(crl_pg_store *s);
void crl_pg_unreserve(crl_pg_store *s);
/* Gives the handle a session without a hold: its own, an idle one, or a new one. */
int crl_pg_furnish(crl_pg_handle *h, int64_t deadline, corral_error *error);
void crl_pg_end_sessions(crl_pg_store *s);
/* See corral_store.attend. */
int crl_pg_attend(void *store, const uint8_t *token);
void crl_pg_ends(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token),
                 void *arg);

/* queue.c */
/* Has the handle's session, which has been refused, wait in the server's queue, under the op's
 * token: *ret, borrowed. The handle loses it. */
int crl_pg_enqueue(crl_pg_handle *h, corral_op *op, int64_t lock, int64_t deadline,
                   crl_pg_session **ret);
/* Looks whether a borrowed session that waits has its turn. CORRAL_OK: it has the lock, until
 * CRL_PG_TURN for CORRAL_LOCK_TURN_MS. CORRAL_EBUSY: it is in the queue, and the op says where.
 * CORRAL_ELOST: its place is gone, and it is to be dropped. */
int crl_pg_look_for_turn(crl_pg_handle *h, crl_pg_session *c, corral_op *op, int64_t deadline);
/* Gives a place back. 0: the session is to be dropped; 1: it has just been granted the lock. */
int crl_pg_leave_queue(crl_pg_handle *h, crl_pg_session *c, int64_t deadline);
/* The descriptor that is readable when crl_pg_tell_turns has something to tell; -1: none. */
int crl_pg_turns_fd(crl_pg_store *s);
/* Tells the keys of sessions in the queue that were answered; returns how many. */
int crl_pg_tell_turns(crl_pg_store *s, int turns_fd, void (*told)(void *arg, uint64_t hash),
                      void *arg);

/* advisory.c */
int crl_pg_in_sessions(crl_pg_handle *h, corral_op *op, int64_t deadline);

/* watch.c: see corral_store.watch */
int crl_pg_watch(void *store, size_t server, int64_t deadline, void **ret_watch,
                 corral_error *error);
int crl_pg_changes(void *watch, int stop_fd, int64_t until, void (*told)(void *arg, uint64_t hash),
                   void *arg, corral_error *error);
void crl_pg_unwatch(void *watch);

#endif
