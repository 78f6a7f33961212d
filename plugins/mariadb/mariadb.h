/* mariadb.h: the parts of the MariaDB plugin. Internal to plugins/mariadb/.
 *
 *   mariadb.c   the table, the URI, the verbs, which connection has which hold
 *   session.c   one connection: connecting, one statement at a time, by deadline */
#ifndef CRL_MARIADB_H
#define CRL_MARIADB_H

#include <corral/plugin.h>
#include <mysql.h>
#include <pthread.h>

#include "../net/net.h"

enum { CRL_MARIADB_SQL = 320, CRL_MARIADB_NAME = 48 };

typedef enum crl_mariadb_stage {
  CRL_MARIADB_READY,
  CRL_MARIADB_CONNECTING,
  CRL_MARIADB_QUERYING,
  CRL_MARIADB_STORING
} crl_mariadb_stage;

typedef struct crl_mariadb_store crl_mariadb_store;
typedef struct crl_mariadb_session crl_mariadb_session;

/* A connection. Used by one thread at a time: who took it from a list of the store, or set
 * `busy`. */
struct crl_mariadb_session {
  crl_mariadb_store *st;
  MYSQL *mysql, *connected;
  unsigned long id;
  int64_t timeout_s; /* its wait_timeout; 0: not set by us */
  /* what the library is in the middle of; a statement whose time ran out may go on */
  crl_mariadb_stage stage;
  int wait, code; /* what it waits for, MYSQL_WAIT_...; what the statement came to */
  MYSQL_RES *result;
  MYSQL_ROW row; /* the first of the result, or NULL */
  char sql[CRL_MARIADB_SQL];
  int broken; /* the connection is no more */
  crl_mariadb_session *next;
  int busy;         /* of a hold, as all that follows; under the store's mutex */
  corral_hold hold; /* until and since in host->now_ms */
  char name[CRL_MARIADB_NAME];
};

struct crl_mariadb_store {
  const corral_host *host;
  crl_net_peer peer;
  char *user, *password, *db, *socket; /* NULL: none */
  char label[160], server[128];
  pthread_mutex_t mutex; /* never held across I/O */
  pthread_cond_t changed;
  crl_mariadb_session *idle, *held;
  /* open: those, those in use, and those about to be */
  size_t idle_count, held_count, open_count, most;
};

/* By `deadline` (host->now_ms). EAUTH, EURI, EUNSUPPORTED and the like are the server's word;
 * EUNAVAILABLE: it can't be reached. */
int crl_mariadb_connect(crl_mariadb_store *st, int64_t deadline, crl_mariadb_session **ret,
                        corral_error *error);
/* Waits for nothing. What is under way comes to its end, and a hold with it. */
void crl_mariadb_close(crl_mariadb_session *s);
/* The connection has ended, or is about to, while nothing was asked. */
int crl_mariadb_is_dead(const crl_mariadb_session *s);
/* One statement; what an earlier one still has to say is taken first. Its row is valid until the
 * next. EUNKNOWN: the deadline; it may go on. s->broken: the connection is no more. Else the
 * server's error. */
int crl_mariadb_ask(crl_mariadb_session *s, const char *sql, int64_t deadline, corral_error *error);
/* The session ends after so long a silence, in whole seconds. Statuses as crl_mariadb_ask. */
int crl_mariadb_set_timeout(crl_mariadb_session *s, int64_t lease_ms, int64_t deadline,
                            corral_error *error);
/* A column of the row; NULL: no row, or SQL's NULL. */
const char *crl_mariadb_cell(const crl_mariadb_session *s, unsigned at);
int crl_mariadb_is_one(const crl_mariadb_session *s);

#endif
