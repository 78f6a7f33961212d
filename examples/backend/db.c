/* db.c: see db.h. */
#include "db.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { TICK_MS = 50 };

struct db_pool {
  pthread_mutex_t mutex;
  const char *conninfo;
  int most, taken, idle; /* `idle`: number of connections in `conns` */
  PGconn *conns[];
};

int64_t db_now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* ---- one connection ------------------------------------------------------------------------ */

/* 1: the socket is ready; 0: the call must be given up. */
static int await(PGconn *conn, short want, const db_limit *limit) {
  for (;;) {
    int64_t left = limit->until - db_now_ms();
    if (left <= 0 || (limit->fill != NULL && corral_fill_should_stop(limit->fill))) return 0;
    struct pollfd fds[] = {{.fd = PQsocket(conn), .events = want},
                           {.fd = limit->stop_fd, .events = POLLIN}};
    if (poll(fds, 2, left < TICK_MS ? (int)left : TICK_MS) < 0 && errno != EINTR) return 0;
    if (fds[1].revents != 0) return 0;
    if (fds[0].revents != 0) return 1;
  }
}

static int establish(PGconn *conn, const db_limit *limit) {
  PostgresPollingStatusType state = PGRES_POLLING_WRITING;
  while (state == PGRES_POLLING_WRITING || state == PGRES_POLLING_READING) {
    if (!await(conn, state == PGRES_POLLING_WRITING ? POLLOUT : POLLIN, limit)) return 0;
    state = PQconnectPoll(conn);
  }
  return state == PGRES_POLLING_OK && PQsetnonblocking(conn, 1) == 0;
}

static void ignore_notice(void *arg, const char *text) { (void)arg, (void)text; }

PGconn *db_connect(const char *conninfo, const db_limit *limit, char *text, size_t size) {
  /* `conninfo` comes last, so its settings win. Keepalive: a server that is cut off is noticed
   * within about ten seconds, and so is a client, whose locks end then. */
  static const char *const names[] = {"application_name",
                                      "keepalives_idle",
                                      "keepalives_interval",
                                      "keepalives_count",
                                      "tcp_user_timeout",
                                      "options",
                                      "dbname",
                                      NULL};
  const char *const values[] = {
      "corral backend",
      "4",
      "2",
      "3",
      "10000",
      "-c statement_timeout=25000 -c client_connection_check_interval=500 "
      "-c tcp_keepalives_idle=4 -c tcp_keepalives_interval=2 -c tcp_keepalives_count=3 "
      "-c tcp_user_timeout=10000",
      conninfo,
      NULL};
  PGconn *conn = PQconnectStartParams(names, values, 1);
  if (conn == NULL) {
    snprintf(text, size, "out of memory");
    return NULL;
  }
  PQsetNoticeProcessor(conn, ignore_notice, NULL);
  if (PQstatus(conn) != CONNECTION_BAD && establish(conn, limit)) return conn;
  snprintf(text, size, "%s",
           PQstatus(conn) == CONNECTION_BAD ? PQerrorMessage(conn)
                                            : "the database didn't answer in time");
  PQfinish(conn);
  return NULL;
}

/* Sends all of the question; 0: given up, or failed. */
static int sent(PGconn *conn, const db_limit *limit) {
  int more;
  while ((more = PQflush(conn)) == 1)
    if (!await(conn, POLLIN | POLLOUT, limit) || !PQconsumeInput(conn)) return 0;
  return more == 0;
}

PGresult *db_ask(PGconn *conn, const char *sql, const char *const *values, int count,
                 const db_limit *limit) {
  PGresult *last = NULL;
  if (!PQsendQueryParams(conn, sql, count, NULL, values, NULL, NULL, 0) || !sent(conn, limit))
    return NULL;
  for (;;) {
    while (PQisBusy(conn)) {
      if (!await(conn, POLLIN, limit)) {
        PQclear(last);
        return NULL;
      }
      if (!PQconsumeInput(conn)) break; /* PQgetResult reports the error */
    }
    PGresult *next = PQgetResult(conn);
    if (next == NULL) return last;
    PQclear(last);
    last = next;
  }
}

/* ---- the pool ------------------------------------------------------------------------------ */

db_pool *db_pool_new(const char *conninfo, int most) {
  db_pool *pool = calloc(1, sizeof *pool + (size_t)most * sizeof(PGconn *));
  if (pool == NULL) return NULL;
  pthread_mutex_init(&pool->mutex, NULL);
  pool->conninfo = conninfo;
  pool->most = most;
  return pool;
}

void db_pool_free(db_pool *pool) {
  if (pool == NULL) return;
  while (pool->idle > 0) PQfinish(pool->conns[--pool->idle]);
  pthread_mutex_destroy(&pool->mutex);
  free(pool);
}

/* An idle connection has nothing to read unless the server has ended it. */
static int is_alive(PGconn *conn) {
  struct pollfd fd = {.fd = PQsocket(conn), .events = POLLIN};
  return poll(&fd, 1, 0) == 0;
}

PGconn *db_take(db_pool *pool, const db_limit *limit, char *text, size_t size) {
  PGconn *conn = NULL;
  pthread_mutex_lock(&pool->mutex);
  int room = pool->taken < pool->most;
  if (room) {
    pool->taken++;
    if (pool->idle > 0) conn = pool->conns[--pool->idle];
  }
  pthread_mutex_unlock(&pool->mutex);
  if (!room) {
    snprintf(text, size, "all connections to the database are in use");
    return NULL;
  }
  if (conn != NULL && !is_alive(conn)) {
    PQfinish(conn);
    conn = NULL;
  }
  if (conn == NULL) conn = db_connect(pool->conninfo, limit, text, size);
  if (conn == NULL) db_give(pool, NULL, 0);
  return conn;
}

void db_give(db_pool *pool, PGconn *conn, int works) {
  works = works && conn != NULL && PQstatus(conn) == CONNECTION_OK &&
          PQtransactionStatus(conn) == PQTRANS_IDLE;
  if (!works && conn != NULL) PQfinish(conn);
  pthread_mutex_lock(&pool->mutex);
  pool->taken--;
  if (works) pool->conns[pool->idle++] = conn;
  pthread_mutex_unlock(&pool->mutex);
}
