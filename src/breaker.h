/* breaker.h: leaves a failing server to rest, and says when to try it again. Pure: time is an
 * argument.
 *
 *   closed      calls go through; `failures` in a row open it
 *   open        no call goes through until `rest_until`
 *   half-open   one probe is under way; what comes of it closes it, or opens it for another rest
 *
 * Source: the circuit breaker of M. Nygard, "Release It!", 2007. */
#ifndef CRL_BREAKER_H
#define CRL_BREAKER_H

#include <stdint.h>

typedef struct crl_breaker {
  int64_t most, rest_ms; /* failures in a row that open it; how long it rests */
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
/* True when the rest is over and nobody probes: then the caller does, and tells what came of it. */
int crl_breaker_probe(crl_breaker *breaker, int64_t now);
/* What came of a call, or of the probe. While it is open, the late success of a call that began
 * before ends the rest, no more: who probes has things to do before the others are let through. */
crl_breaker_turn crl_breaker_note(crl_breaker *breaker, int worked, int probe, int64_t now);

#endif
