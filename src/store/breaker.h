/* breaker.h: the circuit breaker of one server: bars calls while the server fails, and tells when
 * to probe it. Pure: time is an argument.
 *
 *   closed      calls go through; `most` failures in a row open the breaker
 *   open        no call goes through; from `rest_until` on, one probe may
 *   half-open   one probe is under way: success closes the breaker, failure begins another rest
 *
 * Source: the circuit breaker of M. Nygard, "Release It!", 2007. */
#ifndef CRL_BREAKER_H
#define CRL_BREAKER_H

#include <stdint.h>

typedef struct crl_breaker {
  int64_t most, rest_ms; /* failures in a row that open the breaker; length of a rest */
  int64_t failures, rest_until;
  int open, probing;
} crl_breaker;

typedef enum crl_breaker_turn {
  CRL_BREAKER_SAME,
  CRL_BREAKER_OPENED,
  CRL_BREAKER_CLOSED
} crl_breaker_turn;

void crl_breaker_start(crl_breaker *breaker, int64_t most, int64_t rest_ms);
/* True when calls may go through. */
int crl_breaker_lets(const crl_breaker *breaker);
/* True when the rest is over and no probe is under way: the caller then must probe, and report the
 * result by crl_breaker_note. */
int crl_breaker_probe(crl_breaker *breaker, int64_t now);
/* Records the result of a call, or of the probe. While the breaker is open, the late success of a
 * call that began before only ends the rest: the probing thread has work to do before others are
 * let through. */
crl_breaker_turn crl_breaker_note(crl_breaker *breaker, int worked, int probe, int64_t now);

#endif
