/* session.c: a connection to the server: connecting, asking within a deadline, the statuses of
 * errors. */
#include <netdb.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>

#include "postgresql.h"

void crl_pg_hang_up(crl_pg_session *c) {
  if (c == NULL) return;
  PQfinish(c->conn);
  free(c);
}

int crl_pg_is_broken(const crl_pg_session *c) {
  return c->pending || PQstatus(c->conn) == CONNECTION_BAD;
}

/* ---- errors -------------------------------------------------------------------------------- */

static int status_of(const char *state) {
  static const struct {
    const char *begins;
    int status;
  } rows[] = {
      {"28", CORRAL_EAUTH},       {"3D000", CORRAL_EAUTH},        {"42501", CORRAL_EAUTH},
      {"25006", CORRAL_EREFUSED}, {"53300", CORRAL_EUNAVAILABLE}, {"53", CORRAL_EREFUSED},
      {"54", CORRAL_EREFUSED},    {"58", CORRAL_EREFUSED},        {"22", CORRAL_EREFUSED},
      {"55000", CORRAL_EREFUSED}, {"42P01", CORRAL_EREFUSED},     {"42703", CORRAL_EFOREIGN},
      {"42804", CORRAL_EFOREIGN}, {"42P10", CORRAL_EFOREIGN},     {"42809", CORRAL_EFOREIGN},
      {"428", CORRAL_EFOREIGN},   {"42", CORRAL_EPROTOCOL}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
    if (strncmp(state, rows[i].begins, strlen(rows[i].begins)) == 0) return rows[i].status;
  return CORRAL_EUNAVAILABLE; /* starting up, shutting down, cancelled, connection lost */
}

int crl_pg_failed(const crl_pg_store *s, int status, corral_error *error, const char *text) {
  return s->host->fail(error, status, "%s: %.*s", s->name, (int)strcspn(text, "\n"), text);
}

static int failed_result(const crl_pg_store *s, const PGresult *r, const char *state,
                         corral_error *error) {
  const char *text = PQresultErrorField(r, PG_DIAG_MESSAGE_PRIMARY);
  int status = status_of(state);
  if (strcmp(state, "42501") == 0 && !s->advisory)
    return s->host->fail(
        error, status,
        "%.80s; an administrator runs: GRANT SELECT, INSERT, UPDATE ON %s TO this user",
        text != NULL ? text : "", s->table);
  if (strcmp(state, "42P01") == 0) {
    char create[2 * CRL_PG_TABLE_ROOM + 200];
    crl_pg_create_text(s->table, create, sizeof create);
    return s->host->fail(error, status, "no such table; an administrator runs: %s", create);
  }
  if (strcmp(state, "25006") == 0)
    return crl_pg_failed(s, status, error, "a standby can't lock, nor one who may only read");
  return crl_pg_failed(s, status, error, text != NULL ? text : PQresultErrorMessage(r));
}

/* ---- asking -------------------------------------------------------------------------------- */

int crl_pg_await(const crl_pg_store *s, const crl_pg_session *c, short want, int64_t deadline) {
  for (;;) {
    struct pollfd fd = {.fd = PQsocket(c->conn), .events = want};
    int64_t left = deadline - s->host->now_ms();
    if (left <= 0) return 0;
    if (poll(&fd, 1, left > CRL_PG_POLL_MOST_MS ? CRL_PG_POLL_MOST_MS : (int)left) > 0) return 1;
  }
}

PGresult *crl_pg_receive(const crl_pg_store *s, crl_pg_session *c, int64_t deadline) {
  PGresult *first = NULL, *next;
  c->pending = 1;
  do {
    for (int unsent = 1; unsent > 0 || PQisBusy(c->conn);) {
      unsent = PQflush(c->conn);
      if (unsent < 0 || (unsent == 0 && !PQisBusy(c->conn))) break;
      if (!crl_pg_await(s, c, unsent ? POLLIN | POLLOUT : POLLIN, deadline)) {
        PQclear(first);
        return NULL;
      }
      if (!PQconsumeInput(c->conn)) break;
    }
    next = PQgetResult(c->conn);
    if (first == NULL)
      first = next;
    else
      PQclear(next);
  } while (next != NULL);
  c->pending = 0;
  return first;
}

int crl_pg_is_alive(const crl_pg_session *c) {
  struct pollfd fd = {.fd = PQsocket(c->conn), .events = POLLIN};
  while (PQstatus(c->conn) == CONNECTION_OK && poll(&fd, 1, 0) > 0) {
    if (!PQconsumeInput(c->conn)) return 0;
    (void)PQisBusy(c->conn);
  }
  return PQstatus(c->conn) == CONNECTION_OK;
}

static void put_number(char room[8], int64_t number) {
  for (int i = 0; i < 8; i++) room[i] = (char)((uint64_t)number >> (56 - 8 * i));
}

int64_t crl_pg_number_at(const PGresult *r, int column, int row) {
  const unsigned char *at = (const unsigned char *)PQgetvalue(r, row, column);
  uint64_t number = 0;
  for (int i = 0; i < PQgetlength(r, row, column); i++) number = number << 8 | at[i];
  return (int64_t)number;
}

int64_t crl_pg_ms_at(const PGresult *r, int column, int row) {
  static const int64_t most = INT64_C(1) << 53;
  int64_t ms = crl_pg_number_at(r, column, row);
  return ms < 0 ? 0 : ms < most ? ms : most;
}

static const Oid types[5] = {17, 17, 20, 20, 25}; /* bytea, bytea, bigint, bigint, text */

/* Sends the statement itself (plain), or by its prepared one, or has it prepared. */
static int send_it(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what,
                   const crl_pg_question *q, int plain) {
  char numbers[2][8];
  put_number(numbers[0], q->first);
  put_number(numbers[1], q->second);
  const char *text = q->text != NULL ? q->text : "", *name = s->prepared[what];
  const char *const values[5] = {q->name, q->token, numbers[0], numbers[1], text};
  const int lengths[5] = {(int)q->name_len, CORRAL_TOKEN, 8, 8, (int)strlen(text)},
            formats[5] = {1, 1, 1, 1, 1};
  c->sent = plain || c->prepared & 1U << what;
  if (plain) return PQsendQueryParams(c->conn, s->sql[what], 5, types, values, lengths, formats, 1);
  if (c->sent) return PQsendQueryPrepared(c->conn, name, 5, values, lengths, formats, 1);
  return PQsendPrepare(c->conn, name, s->sql[what], 5, types);
}

int crl_pg_begin(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what,
                 const crl_pg_question *q, int64_t deadline, corral_error *error) {
  int unsent = send_it(s, c, what, q, 1) ? PQflush(c->conn) : -1;
  c->pending = 1;
  while (unsent > 0 && crl_pg_await(s, c, POLLOUT, deadline)) unsent = PQflush(c->conn);
  return unsent == 0 ? CORRAL_OK
                     : crl_pg_failed(s, CORRAL_EUNAVAILABLE, error, PQerrorMessage(c->conn));
}

static int is_one_of(const char *state, const char *list) {
  return *state != '\0' && strstr(list, state) != NULL;
}

static int no_reply(const crl_pg_store *s, const crl_pg_session *c, corral_error *error) {
  return crl_pg_failed(s, c->sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE, error,
                       "no answer: the time allowed is over");
}

/* Creates the table. If two sessions create it at once, one of them is told that it exists. */
static int create_table(const crl_pg_store *s, crl_pg_session *c, int64_t deadline,
                        corral_error *error) {
  char sql[2 * CRL_PG_TABLE_ROOM + 200];
  c->sent = 0;
  crl_pg_create_text(s->table, sql, sizeof sql);
  PGresult *r = PQsendQuery(c->conn, sql) ? crl_pg_receive(s, c, deadline) : NULL;
  if (r == NULL) return no_reply(s, c, error);
  const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
  int is_there = PQresultStatus(r) == PGRES_COMMAND_OK ||
                 (state != NULL && is_one_of(state, "23505 42P07 42710"));
  int may_not = state != NULL && is_one_of(state, "42501 3F000 25006");
  /* if it may_not, the statement itself fails and says why */
  int status =
      is_there || may_not ? CORRAL_OK : failed_result(s, r, state != NULL ? state : "", error);
  PQclear(r);
  return status;
}

/* Handles a reply that isn't the answer. 1: the statement can be sent again; else *status says why
 * not, or is CORRAL_OK: the reply is an error. */
static int mend(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what, const PGresult *r,
                const char *state, int *created, int64_t deadline, int *status,
                corral_error *error) {
  if (is_one_of(state, "40001 40P01")) return s->host->now_ms() < deadline;
  if (is_one_of(state, "26000 42P05") && !c->plain) return c->plain = 1;
  if (strcmp(state, "42P01") == 0 && s->create && !(*created)++) {
    *status = create_table(s, c, deadline, error);
    return *status == CORRAL_OK;
  }
  if (c->sent || PQresultStatus(r) != PGRES_COMMAND_OK) return 0;
  c->prepared |= 1U << what;
  return 1;
}

int crl_pg_ask(const crl_pg_store *s, crl_pg_session *c, crl_pg_statement what,
               const crl_pg_question *q, int64_t deadline, PGresult **ret, corral_error *error) {
  int created = 0, status = CORRAL_OK;
  c->sent = 0;
  if (c->pending) PQclear(crl_pg_receive(s, c, deadline));
  if (c->pending) return no_reply(s, c, error);
  if (!crl_pg_is_alive(c))
    return crl_pg_failed(s, CORRAL_EUNAVAILABLE, error, "the server ended the connection");
  while (status == CORRAL_OK) {
    PGresult *r = send_it(s, c, what, q, c->plain) ? crl_pg_receive(s, c, deadline) : NULL;
    if (r == NULL && c->pending) return no_reply(s, c, error);
    const char *state = r != NULL ? PQresultErrorField(r, PG_DIAG_SQLSTATE) : NULL;
    if (state == NULL) state = "";
    if (PQstatus(c->conn) == CONNECTION_BAD)
      status = crl_pg_failed(s, c->sent ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE, error,
                             PQerrorMessage(c->conn));
    else if (PQresultStatus(r) == PGRES_TUPLES_OK) {
      *ret = r;
      return CORRAL_OK;
    } else if (!mend(s, c, what, r, state, &created, deadline, &status, error) &&
               status == CORRAL_OK)
      status = failed_result(s, r, state, error);
    PQclear(r);
  }
  return status;
}

/* ---- connecting ---------------------------------------------------------------------------- */

/* The five characters of a failed connection's SQLSTATE, which only the verbose text has: "FATAL:
 * 28P01: why"; NULL: none. */
static const char *state_in(const char *text) {
  for (const char *at = strstr(text, ":  "); at != NULL; at = strstr(at + 1, ":  "))
    if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
        strncmp(at + 8, ": ", 2) == 0)
      return at + 3;
  return NULL;
}

static int not_connected(const crl_pg_store *s, const crl_pg_session *c, corral_error *error) {
  const char *text = PQerrorMessage(c->conn), *state = state_in(text);
  if (state != NULL) return crl_pg_failed(s, status_of(state), error, state + 7);
  return crl_pg_failed(s, PQconnectionNeedsPassword(c->conn) ? CORRAL_EAUTH : CORRAL_EUNAVAILABLE,
                       error, *text != '\0' ? text : "can't connect");
}

/* Sets the session up: statements must not depend on defaults of the role or the database. The last
 * ones may fail: an older server, or one that can't. */
static int greet(const crl_pg_store *s, crl_pg_session *c, int64_t deadline, corral_error *error) {
  static const char *const words[] = {
      "SELECT pg_backend_pid(), set_config('default_transaction_isolation', 'read committed', "
      "false), CASE WHEN current_setting('synchronous_commit') = 'off' THEN "
      "set_config('synchronous_commit', 'on', false) END",
      "SELECT set_config('client_connection_check_interval', '1000', false)",
      "SELECT set_config(name, '0', false) FROM pg_settings WHERE name IN ('idle_session_timeout', "
      "'statement_timeout', 'lock_timeout', 'transaction_timeout')"};
  if (s->advisory && PQserverVersion(c->conn) < 140000)
    return crl_pg_failed(s, CORRAL_EUNSUPPORTED, error,
                         "locks=advisory needs PostgreSQL 14 or later, which ends silent sessions; "
                         "locks=table doesn't");
  const char *standby = PQparameterStatus(c->conn, "in_hot_standby");
  if (standby != NULL && strcmp(standby, "on") == 0)
    return crl_pg_failed(s, CORRAL_EREFUSED, error, "a standby can't lock");
  for (int i = 0; i < (s->advisory ? 3 : 2); i++) {
    PGresult *r = PQsendQuery(c->conn, words[i]) ? crl_pg_receive(s, c, deadline) : NULL;
    /* a proxy tells another process */
    if (i == 0 && PQntuples(r) == 1) c->pid = (int)strtol(PQgetvalue(r, 0, 0), NULL, 10);
    PQclear(r);
    if (crl_pg_is_broken(c))
      return crl_pg_failed(s, CORRAL_EUNAVAILABLE, error, "no answer to the first statement");
  }
  return CORRAL_OK;
}

static void ignore_notice(void *arg, const char *text) { (void)arg, (void)text; }

/* Connects to one address; NULL: `server` is a socket's folder. */
static int connect_to(crl_pg_store *s, const char *address, int64_t deadline, crl_pg_session **ret,
                      corral_error *error) {
  const char *const names[] = {"host",
                               "hostaddr",
                               "port",
                               "user",
                               "password",
                               "dbname",
                               "sslmode",
                               "sslrootcert",
                               "application_name",
                               "client_encoding",
                               "gssencmode",
                               "keepalives_idle",
                               "keepalives_interval",
                               "keepalives_count",
                               "tcp_user_timeout",
                               NULL};
  const char *const values[] = {
      s->server, address, s->port,   s->user, s->password, s->database, s->sslmode, s->sslrootcert,
      "corral",  "UTF8",  "disable", "5",     "2",         "3",         "10000",    NULL};
  crl_pg_session *c = calloc(1, sizeof *c);
  s->host->guard_standard();
  if (c == NULL || (c->conn = PQconnectStartParams(names, values, 0)) == NULL) {
    free(c);
    return s->host->fail(error, CORRAL_ENOMEM, "%s: no memory to connect", s->name);
  }
  PQsetErrorVerbosity(c->conn, PQERRORS_VERBOSE);
  PQsetNoticeProcessor(c->conn, ignore_notice, NULL);
  int status = CORRAL_OK;
  PostgresPollingStatusType turn =
      PQstatus(c->conn) == CONNECTION_BAD ? PGRES_POLLING_FAILED : PGRES_POLLING_WRITING;
  while (status == CORRAL_OK && turn != PGRES_POLLING_OK && turn != PGRES_POLLING_FAILED) {
    if (crl_pg_await(s, c, turn == PGRES_POLLING_READING ? POLLIN : POLLOUT, deadline))
      turn = PQconnectPoll(c->conn);
    else
      status =
          crl_pg_failed(s, CORRAL_EUNAVAILABLE, error, "can't connect: the time allowed is over");
  }
  if (status == CORRAL_OK && (turn == PGRES_POLLING_FAILED || PQsetnonblocking(c->conn, 1) != 0))
    status = not_connected(s, c, error);
  PQsetErrorVerbosity(c->conn, PQERRORS_DEFAULT);
  c->pid = PQbackendPID(c->conn);
  if (status == CORRAL_OK) status = greet(s, c, deadline, error);
  if (status == CORRAL_OK)
    *ret = c;
  else
    crl_pg_hang_up(c);
  return status;
}

int crl_pg_open_session(crl_pg_store *s, int64_t deadline, crl_pg_session **ret,
                        corral_error *error) {
  crl_net_address at[CRL_NET_ADDRESSES];
  crl_net_peer peer = {.host = s->host,
                       .name = s->name,
                       .server = s->server,
                       .port = (int)strtol(s->port, NULL, 10)};
  char address[64];
  size_t count = 0;
  if (s->server[0] == '/') return connect_to(s, NULL, deadline, ret, error);
  int status = crl_net_resolve(&peer, deadline, at, &count, error);
  for (size_t i = 0; i < count; i++) {
    int64_t now = s->host->now_ms(),
            share = i + 1 == count ? deadline : now + 1 + (deadline - now) / (int64_t)(count - i);
    if (getnameinfo((struct sockaddr *)&at[i].at, at[i].len, address, sizeof address, NULL, 0,
                    NI_NUMERICHOST) != 0)
      continue;
    status = connect_to(s, address, share, ret, error);
    if (status != CORRAL_EUNAVAILABLE) break;
  }
  return status;
}
