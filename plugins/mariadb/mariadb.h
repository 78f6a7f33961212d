/* mariadb.h: declarations shared by the files of the MariaDB plugin. Internal to plugins/mariadb/.
 *
 *   mariadb.c   the design, the table, the URI, the verbs
 *   holds.c     the connections and their holds
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

enum { CRL_MARIADB_SQL = 640, CRL_MARIADB_NAME = 48 };

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
  pthread_mutex_t mutex; /* never held during I/O */
  pthread_cond_t changed;
  crl_mariadb_session *idle, *held;
  crl_net_ends ends;
  /* open_count: idle and held ones, those in use, and those about to be made */
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
/* Takes the hold of a token, `busy` for the caller; *ret NULL: there is none. EUNAVAILABLE: another
 * thread had it until the deadline. A dead one is dropped. */
int crl_mariadb_take_held(crl_mariadb_batch *b, const corral_op *op, crl_mariadb_session **ret);
void crl_mariadb_put_held(crl_mariadb_session *s);
/* Makes a session that was granted a lock one with a hold. */
void crl_mariadb_add_held(crl_mariadb_session *s);
/* Takes all idle sessions out of the store. */
crl_mariadb_session *crl_mariadb_take_all_idle(crl_mariadb_store *st);
void crl_mariadb_close_all(crl_mariadb_session *s);
/* See corral_store.attend. */
int crl_mariadb_attend(void *store, const uint8_t *token);
void crl_mariadb_ends(void *store, int stop_fd, void (*told)(void *arg, const uint8_t *token),
                      void *arg);

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
/* Makes the server end the session after `lease_ms` of silence, in whole seconds; and no statement
 * waits for a table for longer than a second. Statuses as
 * crl_mariadb_ask. */
int crl_mariadb_set_timeout(crl_mariadb_session *s, int64_t lease_ms, int64_t deadline,
                            corral_error *error);
/* A column of the row; NULL: there is no row, or it is SQL's NULL. */
const char *crl_mariadb_cell(const crl_mariadb_session *s, unsigned at);
/* 1: the row's first column is "1". */
int crl_mariadb_is_one(const crl_mariadb_session *s);

/* inspect.c: see corral_store. */
int crl_mariadb_inspect(void *store, const corral_inquiry *inquiry, corral_error *error);

#endif
