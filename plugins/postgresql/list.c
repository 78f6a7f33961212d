/* list.c: lists the names of locks that are held, from the table. Advisory locks are numbers. */
#include <stdio.h>
#include <string.h>

#include "postgresql.h"

enum { SQL = CRL_PG_TABLE_ROOM + 200 };

static void tell(const PGresult *r, const corral_listing *l) {
  int ends = 0;
  for (int i = 0; i < PQntuples(r) && !ends; i++) {
    const char *name = PQgetvalue(r, i, 0);
    size_t len = (size_t)PQgetlength(r, i, 0);
    ends = len < l->prefix_len || memcmp(name, l->prefix, l->prefix_len) != 0 ||
           l->tell(l->arg, name, len) != 0;
  }
}

/* Without the table there are no locks. */
static int judge(const crl_pg_store *s, const PGresult *r, const corral_listing *l,
                 corral_error *error) {
  static const char undefined_table[] = "42P01";
  if (r == NULL) return s->host->fail(error, CORRAL_EUNAVAILABLE, "%s: no reply in time", s->name);
  const char *state = PQresultErrorField(r, PG_DIAG_SQLSTATE);
  if (PQresultStatus(r) == PGRES_TUPLES_OK)
    tell(r, l);
  else if (state == NULL || strcmp(state, undefined_table) != 0)
    return crl_pg_failed(s, CORRAL_EREFUSED, error, PQresultErrorMessage(r));
  return CORRAL_OK;
}

int crl_pg_list(void *store, const corral_listing *l, corral_error *error) {
  crl_pg_store *s = store;
  crl_pg_session *c;
  char sql[SQL];
  const char *const values[] = {l->prefix};
  const int lengths[] = {(int)l->prefix_len}, formats[] = {1};
  if (s->advisory)
    return s->host->fail(error, CORRAL_EUNSUPPORTED,
                         "%s: advisory locks are numbers: pg_locks has them, without names",
                         s->name);
  int64_t until = s->host->now_ms() + l->op_ms;
  int status = crl_pg_open_session(s, until, &c, error);
  if (status != CORRAL_OK) return status;
  snprintf(sql, sizeof sql,
           "SELECT name FROM %s WHERE name >= $1::bytea AND token IS NOT NULL AND until > "
           "clock_timestamp() ORDER BY name",
           s->table);
  PGresult *r = NULL;
  if (PQsendQueryParams(c->conn, sql, 1, NULL, values, lengths, formats, 1))
    r = crl_pg_receive(s, c, until);
  status = judge(s, r, l, error);
  PQclear(r);
  crl_pg_hang_up(c);
  return status;
}
