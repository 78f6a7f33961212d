/* breaker.c: the circuit breaker of one server. */
#include "store/breaker.h"

void crl_breaker_start(crl_breaker *breaker, int64_t most, int64_t rest_ms, int64_t away_ms) {
  *breaker = (crl_breaker){.most = most, .rest_ms = rest_ms, .away_ms = away_ms};
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

static crl_breaker_turn rest(crl_breaker *breaker, int64_t now) {
  int was_open = breaker->open;
  breaker->open = 1;
  breaker->rest_until = now + breaker->rest_ms;
  return was_open ? CRL_BREAKER_SAME : CRL_BREAKER_OPENED;
}

crl_breaker_turn crl_breaker_note(crl_breaker *breaker, int worked, int probe, int64_t now) {
  if (probe) breaker->probing = 0;
  breaker->silent_until = 0;
  if (worked) breaker->answered = now;
  if (worked) return close_it(breaker, probe, now);
  breaker->failures++;
  if (breaker->open && !probe) return CRL_BREAKER_SAME;
  if (!breaker->open && breaker->failures < breaker->most) return CRL_BREAKER_SAME;
  return rest(breaker, now);
}

static void add_silence(crl_breaker *breaker, int64_t began, int64_t limit) {
  int64_t from = began > breaker->answered ? began : breaker->answered;
  if (breaker->silent_until == 0 || from > breaker->silent_until + breaker->away_ms)
    breaker->silent_ms = 0;
  else if (from < breaker->silent_until)
    from = breaker->silent_until;
  if (limit > from) breaker->silent_ms += limit - from;
  if (limit > breaker->silent_until) breaker->silent_until = limit;
}

crl_breaker_turn crl_breaker_note_silence(crl_breaker *breaker, int64_t began, int64_t limit,
                                          int probe, int64_t now) {
  if (probe) breaker->probing = 0;
  add_silence(breaker, began, limit);
  if (breaker->open && !probe) return CRL_BREAKER_SAME;
  if (!breaker->open && breaker->silent_ms < breaker->away_ms) return CRL_BREAKER_SAME;
  return rest(breaker, now);
}

int crl_breaker_is_slow(const crl_breaker *breaker) {
  return !breaker->open && breaker->silent_until != 0;
}

int64_t crl_breaker_patience(const crl_breaker *breaker, int64_t op_ms) {
  int64_t left = breaker->away_ms - breaker->silent_ms, length = breaker->silent_ms;
  if (!crl_breaker_is_slow(breaker)) return op_ms;
  if (length > left) length = left;
  return length > op_ms ? length : op_ms;
}
