/* session.c: one connection to MariaDB: connecting, and one statement at a time, by deadline.
 *
 * The library's non-blocking functions are driven by poll; plugins/net looks up names. */
#include <errmsg.h>
#include <errno.h>
#include <fcntl.h>
#include <mysqld_error.h>
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "mariadb.h"

enum { UNWIND_MOST = 1000, MARIADB_OLDEST = 100002, MYSQL_OLDEST = 50705, TIMEOUT_MOST = 31536000 };

/* ---- errors -------------------------------------------------------------------------------- */

static int status_of(unsigned code) {
  switch (code) {
    case ER_ACCESS_DENIED_ERROR:
    case ER_ACCESS_DENIED_NO_PASSWORD_ERROR:
    case ER_DBACCESS_DENIED_ERROR:
    case ER_HOST_NOT_PRIVILEGED:
    case ER_SPECIFIC_ACCESS_DENIED_ERROR:
    case ER_MUST_CHANGE_PASSWORD:
    case CR_AUTH_PLUGIN_CANNOT_LOAD: return CORRAL_EAUTH;
    case ER_BAD_DB_ERROR: return CORRAL_EURI;
    case ER_LOCK_DEADLOCK: return CORRAL_EBUSY;
    case ER_CON_COUNT_ERROR:
    case ER_TOO_MANY_USER_CONNECTIONS:
    case ER_USER_LIMIT_REACHED:
    case ER_HOST_IS_BLOCKED:
    case ER_QUERY_INTERRUPTED: return CORRAL_EUNAVAILABLE;
    case CR_OUT_OF_MEMORY: return CORRAL_ENOMEM;
    default:
      return code >= CR_MIN_ERROR && code <= CR_MAX_ERROR ? CORRAL_EUNAVAILABLE : CORRAL_EREFUSED;
  }
}

static int ends_connection(unsigned code) {
  return (code >= CR_MIN_ERROR && code <= CR_MAX_ERROR) || code == ER_CONNECTION_KILLED ||
         code == ER_SERVER_SHUTDOWN;
}

static int fail_sql(crl_mariadb_session *s, corral_error *error) {
  unsigned code = mysql_errno(s->mysql);
  const char *hint = code == ER_BAD_DB_ERROR ? "; a database needn't be named" : "";
  if (ends_connection(code)) s->broken = 1;
  return s->st->host->fail(error, s->broken ? CORRAL_EUNAVAILABLE : status_of(code),
                           "%s: %.120s (%u)%s", s->st->label, mysql_error(s->mysql), code, hint);
}

/* ---- one connection ------------------------------------------------------------------------ */

static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void begin_library(void) { (void)mysql_library_init(0, NULL, NULL); }

static void go_on(crl_mariadb_session *s, int events) {
  switch (s->stage) {
    case CRL_MARIADB_CONNECTING:
      s->wait = mysql_real_connect_cont(&s->connected, s->mysql, events);
      break;
    case CRL_MARIADB_QUERYING: s->wait = mysql_real_query_cont(&s->code, s->mysql, events); break;
    case CRL_MARIADB_STORING:
      s->wait = mysql_store_result_cont(&s->result, s->mysql, events);
      break;
    default: break;
  }
}

/* Waits for the socket, or looks at it when the deadline has passed. Returns the events that came,
 * as MYSQL_WAIT_...; 0: the deadline. */
static int await(const crl_mariadb_session *s, int64_t deadline) {
  struct pollfd fd = {.fd = mysql_get_socket(s->mysql)};
  if (s->wait & MYSQL_WAIT_READ) fd.events |= POLLIN;
  if (s->wait & MYSQL_WAIT_WRITE) fd.events |= POLLOUT;
  if (s->wait & MYSQL_WAIT_EXCEPT) fd.events |= POLLPRI;
  for (;;) {
    int64_t left = deadline - s->st->host->now_ms();
    int n = poll(&fd, 1, left <= 0 ? 0 : left > 60000 ? 60000 : (int)left);
    if (n < 0 && errno != EINTR) return s->wait; /* the library will see the error itself */
    if (n == 0 && left <= 0) return 0;
    if (n <= 0) continue;
    int events = (fd.revents & POLLOUT ? MYSQL_WAIT_WRITE : 0) |
                 (fd.revents & POLLPRI ? MYSQL_WAIT_EXCEPT : 0);
    if (fd.revents & (POLLIN | POLLHUP | POLLERR | POLLNVAL)) events |= MYSQL_WAIT_READ;
    return events & s->wait ? events & s->wait : s->wait & ~MYSQL_WAIT_TIMEOUT;
  }
}

/* Goes on until the session is CRL_MARIADB_READY. EINDOUBT: the deadline came first. */
static int advance(crl_mariadb_session *s, int64_t deadline, corral_error *error) {
  while (s->stage != CRL_MARIADB_READY) {
    if (s->wait != 0) {
      int events = await(s, deadline);
      if (events == 0)
        return s->st->host->fail(error, CORRAL_EINDOUBT, "%s: no answer: the time allowed is over",
                                 s->st->label);
      go_on(s, events);
    } else if (s->stage == CRL_MARIADB_QUERYING && s->code == 0) {
      s->stage = CRL_MARIADB_STORING;
      s->wait = mysql_store_result_start(&s->result, s->mysql);
    } else {
      s->stage = CRL_MARIADB_READY;
    }
  }
  return CORRAL_OK;
}

static void forget_result(crl_mariadb_session *s) {
  if (s->result != NULL) mysql_free_result(s->result);
  s->result = NULL;
  s->row = NULL;
}

/* Ends the call under way: on a socket that is shut down the library ends at once. */
static void unwind(crl_mariadb_session *s) {
  int fd = mysql_get_socket(s->mysql);
  if (fd >= 0) shutdown(fd, SHUT_RDWR);
  for (int i = 0; s->stage != CRL_MARIADB_READY && s->wait != 0 && i < UNWIND_MOST; i++)
    go_on(s, s->wait & ~MYSQL_WAIT_TIMEOUT);
}

void crl_mariadb_close(crl_mariadb_session *s) {
  if (s->mysql != NULL) {
    if (s->broken || s->stage != CRL_MARIADB_READY) unwind(s);
    forget_result(s);
    mysql_close(s->mysql);
  }
  free(s);
}

/* anything readable then is the end, or the server's message about it */
int crl_mariadb_is_dead(const crl_mariadb_session *s) {
  char byte;
  if (s->stage != CRL_MARIADB_READY) return 0;
  ssize_t n = recv(mysql_get_socket(s->mysql), &byte, 1, MSG_PEEK | MSG_DONTWAIT);
  return n >= 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR);
}

int crl_mariadb_send(crl_mariadb_session *s, const char *sql, int64_t deadline,
                     corral_error *error) {
  int status = advance(s, deadline, error);
  if (status != CORRAL_OK) return status;
  forget_result(s);
  snprintf(s->sql, sizeof s->sql, "%s", sql);
  s->stage = CRL_MARIADB_QUERYING;
  s->wait = mysql_real_query_start(&s->code, s->mysql, s->sql, strlen(s->sql));
  return CORRAL_OK;
}

int crl_mariadb_answer(crl_mariadb_session *s, int64_t deadline, corral_error *error) {
  int status = advance(s, deadline, error);
  if (status != CORRAL_OK) return status;
  if (mysql_errno(s->mysql) != 0) return fail_sql(s, error);
  if (s->result != NULL) s->row = mysql_fetch_row(s->result);
  return CORRAL_OK;
}

int crl_mariadb_ask(crl_mariadb_session *s, const char *sql, int64_t deadline,
                    corral_error *error) {
  int status = crl_mariadb_send(s, sql, deadline, error);
  return status == CORRAL_OK ? crl_mariadb_answer(s, deadline, error) : status;
}

int crl_mariadb_set_timeout(crl_mariadb_session *s, int64_t lease_ms, int64_t deadline,
                            corral_error *error) {
  int64_t seconds = lease_ms <= 0 ? 1 : (lease_ms - 1) / 1000 + 1;
  if (seconds > TIMEOUT_MOST) seconds = TIMEOUT_MOST;
  if (s->timeout_s == seconds) return CORRAL_OK;
  char sql[CRL_MARIADB_SQL];
  s->timeout_s = 0;
  snprintf(sql, sizeof sql,
           "SET SESSION lock_wait_timeout = 1, wait_timeout = %lld"
           " /*M!100101 , max_statement_time = 0 */",
           (long long)seconds);
  int status = crl_mariadb_ask(s, sql, deadline, error);
  if (status == CORRAL_OK) s->timeout_s = seconds;
  return status;
}

const char *crl_mariadb_cell(const crl_mariadb_session *s, unsigned at) {
  return s->row == NULL ? NULL : s->row[at];
}

int crl_mariadb_next(crl_mariadb_session *s) {
  if (s->row != NULL) s->row = mysql_fetch_row(s->result);
  return s->row != NULL;
}

int crl_mariadb_is_one(const crl_mariadb_session *s) {
  return crl_mariadb_cell(s, 0) != NULL && strcmp(crl_mariadb_cell(s, 0), "1") == 0;
}

/* ---- connecting ---------------------------------------------------------------------------- */

static crl_mariadb_session *session_new(crl_mariadb_store *st) {
  crl_mariadb_session *s = calloc(1, sizeof *s);
  if (s == NULL) return NULL;
  s->st = st;
  s->mysql = mysql_init(NULL);
  if (s->mysql != NULL) return s;
  free(s);
  return NULL;
}

/* 0: no memory. A connection without the first option would crash the library. */
static int set_options(crl_mariadb_session *s) {
  unsigned protocol = s->st->socket != NULL ? MYSQL_PROTOCOL_SOCKET : MYSQL_PROTOCOL_TCP, off = 0;
  return mysql_options(s->mysql, MYSQL_OPT_NONBLOCK, NULL) == 0 &&
         mysql_options(s->mysql, MYSQL_OPT_PROTOCOL, &protocol) == 0 &&
         mysql_options(s->mysql, MYSQL_OPT_LOCAL_INFILE, &off) == 0 &&
         mysql_options(s->mysql, MYSQL_SET_CHARSET_NAME, "utf8mb4") == 0 &&
         mysql_options4(s->mysql, MYSQL_OPT_CONNECT_ATTR_ADD, "program_name", "corral") == 0;
}

static int check_version(crl_mariadb_session *s, corral_error *error) {
  unsigned long version = mysql_get_server_version(s->mysql);
  if (version >= MARIADB_OLDEST || (version >= MYSQL_OLDEST && version < 100000)) return CORRAL_OK;
  return s->st->host->fail(
      error, CORRAL_EUNSUPPORTED,
      "%s: MariaDB 10.0.2 or later is needed, this is %.40s: a second lock would end the first",
      s->st->label, mysql_get_server_info(s->mysql));
}

/* Goes on until the session can be used, or won't be. A statement that left a transaction open
 * would keep the table of notes from others. */
static int finish_connecting(crl_mariadb_session *s, int64_t deadline, corral_error *error) {
  int status = advance(s, deadline, error);
  if (status == CORRAL_OK && s->connected == NULL) return fail_sql(s, error);
  if (status == CORRAL_OK) status = check_version(s, error);
  if (status == CORRAL_OK && !(s->mysql->server_status & SERVER_STATUS_AUTOCOMMIT))
    status = crl_mariadb_ask(s, "SET SESSION autocommit = 1", deadline, error);
  if (status != CORRAL_EINDOUBT) return status;
  return s->st->host->fail(error, CORRAL_EUNAVAILABLE,
                           "%s: can't connect: the time allowed is over", s->st->label);
}

/* Connects to one numeric `address`; NULL: to the unix socket. Failures other than EUNAVAILABLE are
 * the server's answer. */
static int connect_one(crl_mariadb_store *st, const char *address, int64_t deadline,
                       crl_mariadb_session **ret, corral_error *error) {
  crl_mariadb_session *s = session_new(st);
  if (s == NULL) return st->host->fail(error, CORRAL_ENOMEM, "no memory for a connection");
  if (!set_options(s)) {
    mysql_close(s->mysql);
    free(s);
    return st->host->fail(error, CORRAL_ENOMEM, "no memory for a connection");
  }
  s->stage = CRL_MARIADB_CONNECTING;
  st->host->guard_standard();
  s->wait = mysql_real_connect_start(&s->connected, s->mysql, address, st->user, st->password,
                                     st->db, (unsigned)st->peer.port, st->socket, 0);
  /* not every version of the library does this */
  if (mysql_get_socket(s->mysql) >= 0) (void)fcntl(mysql_get_socket(s->mysql), F_SETFD, FD_CLOEXEC);
  int status = finish_connecting(s, deadline, error);
  s->id = mysql_thread_id(s->mysql);
  if (status == CORRAL_OK)
    *ret = s;
  else
    crl_mariadb_close(s);
  return status;
}

int crl_mariadb_connect(crl_mariadb_store *st, int64_t deadline, crl_mariadb_session **ret,
                        corral_error *error) {
  crl_net_address addresses[CRL_NET_ADDRESSES];
  size_t count = 0;
  pthread_once(&library_once, begin_library);
  if (st->socket != NULL) return connect_one(st, NULL, deadline, ret, error);
  int status = crl_net_resolve(&st->peer, deadline, addresses, &count, error);
  for (size_t i = 0; i < count; i++) {
    char text[NI_MAXHOST];
    int64_t now = st->host->now_ms();
    int64_t share = i + 1 == count || deadline <= now
                        ? deadline
                        : now + 1 + (deadline - now) / (int64_t)(count - i);
    const struct sockaddr *at = (const struct sockaddr *)&addresses[i].at;
    if (getnameinfo(at, addresses[i].len, text, sizeof text, NULL, 0, NI_NUMERICHOST) != 0)
      continue;
    status = connect_one(st, text, share, ret, error);
    if (status != CORRAL_EUNAVAILABLE) break;
  }
  return status;
}
