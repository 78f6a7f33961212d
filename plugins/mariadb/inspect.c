/* inspect.c: what the server says of itself. Every user may take locks by GET_LOCK. */
#include <stdio.h>
#include <stdlib.h>

#include "mariadb.h"

enum { ROUNDS = 9, CLOCK_FAR_MS = 1000 };

typedef struct exam {
  crl_mariadb_store *store;
  crl_mariadb_session *session;
  const corral_inquiry *inquiry;
} exam;

static void tell(const exam *x, const char *name, const char *value, int verdict,
                 const char *advice) {
  corral_tell(x->inquiry, x->store->label, name, value != NULL ? value : "unknown", verdict,
              advice);
}

static int ask(const exam *x, const char *sql, corral_error *error) {
  int64_t until = x->store->host->now_ms() + x->inquiry->op_ms;
  return crl_mariadb_ask(x->session, sql, until, error);
}

static int measure(const exam *x, corral_error *error) {
  int64_t us[ROUNDS];
  for (int i = 0; i < ROUNDS; i++) {
    int64_t began = x->store->host->now_us();
    int status = ask(x, "SELECT 1", error);
    if (status != CORRAL_OK) return status;
    us[i] = x->store->host->now_us() - began;
  }
  corral_tell_latency(x->inquiry, x->store->label, us, ROUNDS);
  return CORRAL_OK;
}

static void judge(const exam *x) {
  char value[32];
  const char *clock = crl_mariadb_cell(x->session, 1), *most = crl_mariadb_cell(x->session, 2);
  int64_t offset = clock != NULL ? strtoll(clock, NULL, 10) - x->store->host->wall_ms() : 0;
  snprintf(value, sizeof value, "%lld", (long long)offset);
  tell(x, "version", crl_mariadb_cell(x->session, 0), CORRAL_FACT_PLAIN, NULL);
  tell(x, "clock_offset_ms", clock != NULL ? value : NULL, CORRAL_FACT_WARNING,
       offset > CLOCK_FAR_MS || offset < -CLOCK_FAR_MS
           ? "Set this host's clock and the server's by NTP."
           : NULL);
  tell(x, "connections_most", most, CORRAL_FACT_WARNING,
       most != NULL && strtoll(most, NULL, 10) < (int64_t)x->store->most
           ? "Raise max_connections, or lower connections= in the URI: each hold has one, and so "
             "has each wait in turn."
           : NULL);
}

int crl_mariadb_inspect(void *store, const corral_inquiry *inquiry, corral_error *error) {
  crl_mariadb_store *s = store;
  exam x = {.store = s, .inquiry = inquiry};
  corral_error why = {0};
  int status = crl_mariadb_connect(s, s->host->now_ms() + inquiry->op_ms, &x.session, error);
  if (status != CORRAL_OK) return status;
  status = measure(&x, &why);
  if (status == CORRAL_OK)
    status =
        ask(&x, "SELECT VERSION(), FLOOR(UNIX_TIMESTAMP(NOW(3)) * 1000), @@max_connections", &why);
  if (status == CORRAL_OK && (x.session->row == NULL || mysql_num_fields(x.session->result) != 3))
    status = s->host->fail(&why, CORRAL_EPROTOCOL, "a strange answer: is it a MariaDB server?");
  if (status == CORRAL_OK)
    judge(&x);
  else
    tell(&x, "answers", corral_reason(&why, s->label), CORRAL_FACT_UNFIT,
         "Look at the server's log: it did not answer to the end.");
  crl_mariadb_close(x.session);
  return CORRAL_OK;
}
