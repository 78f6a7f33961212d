/* breaker.c: the circuit breaker of one server. */
#include "store/breaker.h"

void crl_breaker_start(crl_breaker *breaker, int64_t most, int64_t rest_ms) {
  *breaker = (crl_breaker){.most = most, .rest_ms = rest_ms};
}

int crl_breaker_lets(const crl_breaker *breaker) { return !breaker->open; }

int crl_breaker_probe(crl_breaker *breaker, int64_t now) {
  if (!breaker->open || breaker->probing || now < breaker->rest_until) return 0;
  breaker->probing = 1;
  return 1;
}

static crl_breaker_turn close_it(crl_breaker *breaker, int probe, int64_t now) {
  int was_open = breaker->open;
  if (was_open && !probe) {
    breaker->rest_until = now;
    return CRL_BREAKER_SAME;
  }
  breaker->open = 0;
  breaker->failures = 0;
  return was_open ? CRL_BREAKER_CLOSED : CRL_BREAKER_SAME;
}

crl_breaker_turn crl_breaker_note(crl_breaker *breaker, int worked, int probe, int64_t now) {
  if (probe) breaker->probing = 0;
  if (worked) return close_it(breaker, probe, now);
  breaker->failures++;
  if (breaker->open && !probe) return CRL_BREAKER_SAME;
  if (!breaker->open && breaker->failures < breaker->most) return CRL_BREAKER_SAME;
  int was_open = breaker->open;
  breaker->open = 1;
  breaker->rest_until = now + breaker->rest_ms;
  return was_open ? CRL_BREAKER_SAME : CRL_BREAKER_OPENED;
}
