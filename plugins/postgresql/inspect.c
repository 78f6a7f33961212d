/* inspect.c: what the server says of itself, and whether the user may do what locks need. The table
 * isn't made. A standby is refused when connecting. */
#include <stdio.h>
#include <stdlib.h>

#include "postgresql.h"

enum { ROUNDS = 9, CLOCK_FAR_MS = 1000, SPARE = 10 /* connections that others need, too */ };

typedef enum column { VERSION, CLOCK, CONNECTIONS, TABLE, RIGHTS, COLUMNS } column;

typedef struct exam {
  const crl_pg_store *store;
  crl_pg_session *session;
  const corral_inquiry *inquiry;
} exam;

static int64_t until(const exam *x) { return x->store->host->now_ms() + x->inquiry->op_ms; }

static void tell(const exam *x, const char *name, const char *value, int verdict,
                 const char *advice) {
  corral_tell(x->inquiry, x->store->name, name, value, verdict, advice);
}

/* Sends a statement, with the table's name as $1; NULL: no reply came. */
static PGresult *ask(const exam *x, const char *sql, int has_table) {
  const char *const values[] = {x->store->table};
  int sent = has_table ? PQsendQueryParams(x->session->conn, sql, 1, NULL, values, NULL, NULL, 0)
                       : PQsendQuery(x->session->conn, sql);
  return sent ? crl_pg_receive(x->store, x->session, until(x)) : NULL;
}

/* 0: no answer. */
static int measure(const exam *x) {
  int64_t us[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    int64_t began = x->store->host->now_us();
    PGresult *r = ask(x, "SELECT 1", 0);
    int is_told = PQresultStatus(r) == PGRES_TUPLES_OK;
    PQclear(r);
    if (!is_told) return 0;
    us[i] = x->store->host->now_us() - began;
  }
  corral_tell_latency(x->inquiry, x->store->name, us, ROUNDS);
  return 1;
}

static void judge_clock(const exam *x, const char *text) {
  char value[32];
  int64_t offset = strtoll(text, NULL, 10) - x->store->host->wall_ms();
  snprintf(value, sizeof value, "%lld", (long long)offset);
  tell(x, "clock_offset_ms", value, CORRAL_FACT_WARNING,
       offset > CLOCK_FAR_MS || offset < -CLOCK_FAR_MS
           ? "Set this host's clock and the server's by NTP."
           : NULL);
}

static void judge_table(const exam *x, const PGresult *r) {
  char advice[2 * CRL_PG_TABLE_ROOM + 300], create[2 * CRL_PG_TABLE_ROOM + 200];
  int is_there = !PQgetisnull(r, 0, TABLE);
  crl_pg_create_text(x->store->table, create, sizeof create);
  snprintf(advice, sizeof advice, "An administrator runs: %s", create);
  tell(x, "table", is_there ? PQgetvalue(r, 0, TABLE) : "absent", CORRAL_FACT_UNFIT,
       is_there || x->store->create ? NULL : advice);
  if (!is_there) return;
  int may = strcmp(PQgetvalue(r, 0, RIGHTS), "t") == 0;
  snprintf(advice, sizeof advice,
           "An administrator runs: GRANT SELECT, INSERT, UPDATE ON %s TO this user.",
           x->store->table);
  tell(x, "rights", may ? "all" : "missing", CORRAL_FACT_UNFIT, may ? NULL : advice);
}

static void judge(const exam *x, const PGresult *r) {
  const char *most = PQgetvalue(r, 0, CONNECTIONS);
  int is_few = x->store->advisory && strtoll(most, NULL, 10) < x->store->max_holds + SPARE;
  tell(x, "version", PQgetvalue(r, 0, VERSION), CORRAL_FACT_PLAIN, NULL);
  tell(x, "role", "primary", CORRAL_FACT_PLAIN, NULL);
  judge_clock(x, PQgetvalue(r, 0, CLOCK));
  tell(x, "connections_most", most, CORRAL_FACT_WARNING,
       is_few ? "Raise max_connections, or lower max_holds in the URI: each hold of each process "
                "has a connection."
              : NULL);
  if (!x->store->advisory) judge_table(x, r);
}

int crl_pg_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  static const char sql[] = "SELECT current_setting('server_version'),"
                            " floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint,"
                            " current_setting('max_connections'), to_regclass($1)::text,"
                            " has_table_privilege(to_regclass($1), 'SELECT')"
                            " AND has_table_privilege(to_regclass($1), 'INSERT')"
                            " AND has_table_privilege(to_regclass($1), 'UPDATE')";
  crl_pg_store *s = store;
  exam x = {.store = s, .inquiry = inquiry};
  int status = crl_pg_open_session(s, s->host->now_ms() + inquiry->op_ms, &x.session, error);
  if (status != CORRAL_OK) return status;
  PGresult *r = measure(&x) ? ask(&x, sql, 1) : NULL;
  if (PQresultStatus(r) == PGRES_TUPLES_OK && PQntuples(r) == 1 && PQnfields(r) == COLUMNS)
    judge(&x, r);
  else
    tell(&x, "answers", r != NULL ? PQresultErrorMessage(r) : "no", CORRAL_FACT_UNFIT,
         "Look at the server's log: it did not answer to the end.");
  PQclear(r);
  crl_pg_hang_up(x.session);
  return CORRAL_OK;
}
