/* mariadb.h: declarations shared by the files of the MariaDB plugin. Internal to plugins/mariadb/.
 *
 *   mariadb.c   the design, the table, the URI, the verbs
 *   holds.c     the connections and their holds
 *   turns.c     waiters in the server's queue
 *   notes.c     what others are told of a holder
 *   session.c   one connection: connecting, one statement at a time, by deadline
 *   inspect.c   what the server says of itself */
#ifndef CRL_MARIADB_H
#define CRL_MARIADB_H

#include <corral/plugin.h>
#include <mysql.h>
#include <pthread.h>
#include <stdatomic.h>

#include "../net/net.h"

enum { CRL_MARIADB_SQL = 640, CRL_MARIADB_NAME = 48, CRL_MARIADB_LISTED = CORRAL_LOCK_PLACES };

typedef enum crl_mariadb_stage {
  CRL_MARIADB_READY,
  CRL_MARIADB_CONNECTING,
  CRL_MARIADB_QUERYING,
  CRL_MARIADB_STORING
} crl_mariadb_stage;

typedef struct crl_mariadb_store crl_mariadb_store;
typedef struct crl_mariadb_session crl_mariadb_session;

/* A connection. One thread uses it at a time: the one that took it from a list of the store, or set
 * `busy`. */
struct crl_mariadb_session {
  crl_mariadb_store *st;
  MYSQL *mysql, *connected;
  unsigned long id;
  int64_t timeout_s; /* its wait_timeout; 0: not set by this plugin */
  /* call of the library under way; a statement whose deadline passed may go on */
  crl_mariadb_stage stage;
  int wait, code; /* what the call waits for, MYSQL_WAIT_...; result of the statement */
  MYSQL_RES *result;
  MYSQL_ROW row; /* first row of the result, or NULL */
  char sql[CRL_MARIADB_SQL];
  int broken; /* the connection has ended */
  crl_mariadb_session *next;
  int busy;         /* for a hold, as all that follows; under the store's mutex */
  int waits;        /* GET_LOCK is under way, for a turn: the hold is none yet */
  size_t place;     /* in the server's queue, of which the first is 1; 0: not seen there */
  int misses;       /* looks that ended without a place, and without an answer */
  int64_t look_at;  /* host->now_ms; when the place is looked up again */
  corral_hold hold; /* until and since in host->now_ms */
  int fd;           /* its socket */
  uint64_t number;  /* under which its end is told */
  char name[CRL_MARIADB_NAME];
};

struct crl_mariadb_store {
  const corral_host *host;
  crl_net_peer peer;
  char *user, *password, *db, *socket; /* NULL: none */
  char label[160], server[128];
  atomic_int no_notes;   /* the table of notes can't be had */
  atomic_int no_queue;   /* the server doesn't tell the order of its queue */
  pthread_mutex_t mutex; /* never held during I/O */
  pthread_cond_t changed;
  crl_mariadb_session *idle, *held;
  crl_net_ends ends;
  /* held_count: holds and waiters. open_count: idle and held ones, those in use, and those about to
   * be made */
  size_t idle_count, held_count, open_count, most;
};

/* One batch. */
typedef struct crl_mariadb_batch {
  crl_mariadb_store *st;
  int64_t deadline;
  int sick; /* status of a failure that is the server's, not one operation's */
} crl_mariadb_batch;

/* ---- holds.c ------------------------------------------------------------------------------- */

/* Takes a session without a hold: an idle one, or a new one. `spare`: one more than holds may
 * have. */
int crl_mariadb_take_session(crl_mariadb_batch *b, int spare, crl_mariadb_session **ret,
                             corral_error *error);
/* Gives back a session without a hold; one too many, or a broken one, is closed. */
void crl_mariadb_put_idle(crl_mariadb_session *s);
void crl_mariadb_drop(crl_mariadb_session *s);
/* Takes the hold, or the waiter, of a token, `busy` for the caller; *ret NULL: there is none.
 * EUNAVAILABLE: another thread had it until the deadline. A dead one is dropped. */
int crl_mariadb_take_held(crl_mariadb_batch *b, const corral_op *op, crl_mariadb_session **ret);
void crl_mariadb_put_held(crl_mariadb_session *s);
/* Makes a session that was granted a lock one with a hold, or one that waits a waiter's; `busy`:
 * for the caller. */
void crl_mariadb_add_held(crl_mariadb_session *s, int busy);
/* Takes all idle sessions out of the store. */
crl_mariadb_session *crl_mariadb_take_all_idle(crl_mariadb_store *st);
void crl_mariadb_close_all(crl_mariadb_session *s);
/* See corral_store.attend. */
int crl_mariadb_attend(void *store, const uint8_t *token);
void crl_mariadb_ends(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token),
                      void *arg);

/* ---- turns.c ------------------------------------------------------------------------------- */

/* Makes the session of a LOCK that was refused one that waits for its turn, `busy` for the caller.
 * Not CORRAL_OK: it is to be dropped. */
int crl_mariadb_turn_begin(crl_mariadb_batch *b, crl_mariadb_session *s, corral_error *error);
/* Looks whether the turn has come. CORRAL_OK: GET_LOCK's answer is the session's row. EBUSY: it
 * waits, at s->place. ELOST: the session is over, or has left the queue. */
int crl_mariadb_turn(crl_mariadb_batch *b, crl_mariadb_session *s);
/* Leaves the queue, and drops the session. */
void crl_mariadb_turn_end(crl_mariadb_batch *b, crl_mariadb_session *s);
/* Writes those who wait for a lock, in their order, at most CRL_MARIADB_LISTED; returns how many.
 * Asks by `s`. */
size_t crl_mariadb_turn_list(crl_mariadb_session *s, const char *name, int64_t deadline,
                             corral_hold *holds);

/* ---- notes.c ------------------------------------------------------------------------------- */

/* Writes what others are to be told of the session's hold, where it can. The hold is over only when
 * s->broken is set. */
void crl_mariadb_note_write(crl_mariadb_session *s, int64_t deadline);
/* Asks who holds a lock: one row, whose first column is NULL when nobody does. Statuses as
 * crl_mariadb_ask. */
int crl_mariadb_note_ask(crl_mariadb_session *s, const char *name, int64_t deadline,
                         corral_error *error);
/* Writes that row's holder. */
void crl_mariadb_note_read(const crl_mariadb_session *s, corral_hold *hold);
/* Writes whose connection it is: its token, and its note with the connection's number. */
void crl_mariadb_note_name(const char *note, unsigned long id, corral_hold *hold);

/* ---- session.c ----------------------------------------------------------------------------- */

/* Connects by `deadline` (host->now_ms). EAUTH, EURI, EUNSUPPORTED and the like are the server's
 * answer; EUNAVAILABLE: it can't be reached. */
int crl_mariadb_connect(crl_mariadb_store *st, int64_t deadline, crl_mariadb_session **ret,
                        corral_error *error);
/* Closes a connection without waiting for anything. A statement under way ends, and so does a
 * hold. */
void crl_mariadb_close(crl_mariadb_session *s);
/* 1: the connection has ended, or is about to, while no statement was under way. */
int crl_mariadb_is_dead(const crl_mariadb_session *s);
/* Performs one statement, after the reply to an earlier one. Its row is valid until the next.
 * EINDOUBT: the deadline passed; the statement may go on. s->broken: the connection has ended.
 * Other statuses: the server's error. */
int crl_mariadb_ask(crl_mariadb_session *s, const char *sql, int64_t deadline, corral_error *error);
/* The two halves of that. `answer` takes a reply that has come, after the deadline too. */
int crl_mariadb_send(crl_mariadb_session *s, const char *sql, int64_t deadline,
                     corral_error *error);
int crl_mariadb_answer(crl_mariadb_session *s, int64_t deadline, corral_error *error);
/* Makes the server end the session after `lease_ms` of silence, in whole seconds; no statement
 * waits for a table for longer than a second, and none is ended because it lasts. Statuses as
 * crl_mariadb_ask. */
int crl_mariadb_set_timeout(crl_mariadb_session *s, int64_t lease_ms, int64_t deadline,
                            corral_error *error);
/* A column of the row; NULL: there is no row, or it is SQL's NULL. */
const char *crl_mariadb_cell(const crl_mariadb_session *s, unsigned at);
/* Goes to the next row; 0: there is none. */
int crl_mariadb_next(crl_mariadb_session *s);
/* 1: the row's first column is "1". */
int crl_mariadb_is_one(const crl_mariadb_session *s);

/* inspect.c: see corral_store. */
int crl_mariadb_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);

#endif
