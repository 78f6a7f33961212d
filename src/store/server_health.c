/* server_health.c: what is known of a server: its breaker, its probes, and its absence. */
#include "store/server_own.h"

#include "store/server.h"

void crl_server_self_probing(crl_server *server, int self_probing) {
  crl_server_lock(server);
  crl_health_self_probing(&server->health, self_probing);
  crl_server_unlock(server);
}

void crl_server_doubt(crl_server *server) {
  crl_server_lock(server);
  (void)crl_health_doubt(&server->health);
  crl_server_unlock(server);
}

int64_t crl_server_probe_at(crl_server *server) {
  crl_server_lock(server);
  int64_t at = crl_health_probe_at(&server->health);
  crl_server_unlock(server);
  return at;
}

void crl_server_answered(crl_server *server) { crl_absence_end(&server->absence); }

/* A server that rests is probed meanwhile, so its absence goes on though nobody asks. */
int crl_server_failed(crl_server *server, int64_t now) {
  int64_t away_ms = server->options->away_ms;
  crl_server_lock(server);
  int rests = server->health.breaker.open;
  crl_server_unlock(server);
  return crl_absence_note(&server->absence, now, rests ? INT64_MAX : away_ms) < away_ms;
}

int64_t crl_server_failures(crl_server *server) {
  crl_server_lock(server);
  int64_t failures = server->health.breaker.failures +
                     crl_breaker_is_slow(&server->health.breaker) +
                     crl_absence_is(&server->absence);
  crl_server_unlock(server);
  return failures;
}
