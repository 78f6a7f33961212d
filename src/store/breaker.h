/* breaker.h: the circuit breaker of one server: bars calls while the server is away, and tells when
 * to probe it. Pure: time is an argument.
 *
 *   closed      calls go through. `most` failures in a row that the server, or its host, reported
 *               (a refused connection) open the breaker; so does a silence of `away_ms`
 *   slow        closed, in a silence: asks ran out of time, and nothing was answered since
 *   open        no call goes through; from `rest_until` on, one probe may
 *   half-open   one probe is under way: success closes the breaker, failure begins another rest
 *
 * Source: the circuit breaker of M. Nygard, "Release It!", 2007. */
#ifndef CRL_BREAKER_H
#define CRL_BREAKER_H

#include <stdint.h>

typedef struct crl_breaker {
  int64_t most, rest_ms; /* failures in a row that open the breaker; length of a rest */
  int64_t away_ms;       /* length of a silence that opens the breaker */
  int64_t failures, rest_until;
  int64_t answered; /* the last answer */
  /* the silence under way: the time in which an ask was unanswered, and the end of that; 0: there
   * is none */
  int64_t silent_ms, silent_until;
  int open, probing;
} crl_breaker;

typedef enum crl_breaker_turn {
  CRL_BREAKER_SAME,
  CRL_BREAKER_OPENED,
  CRL_BREAKER_CLOSED
} crl_breaker_turn;

void crl_breaker_start(crl_breaker *breaker, int64_t most, int64_t rest_ms, int64_t away_ms);
/* True when calls may go through. */
int crl_breaker_lets(const crl_breaker *breaker);
/* True when the rest is over and no probe is under way: the caller then must probe, and report the
 * result by crl_breaker_note. */
int crl_breaker_probe(crl_breaker *breaker, int64_t now);
/* Records the result of a call, or of the probe. While the breaker is open, the late success of a
 * call that began before only ends the rest: the probing thread has work to do before others are
 * let through. */
crl_breaker_turn crl_breaker_note(crl_breaker *breaker, int worked, int probe, int64_t now);
/* Records a call, or the probe, that was sent at `began` and unanswered at its `limit`. All of one
 * silence count once: only the time in which at least one of them waited is added up, since the
 * last answer. When this process itself comes late, that says nothing of the server. A pause of
 * more than away_ms in which nobody asked ends the silence. */
crl_breaker_turn crl_breaker_note_silence(crl_breaker *breaker, int64_t began, int64_t limit,
                                          int probe, int64_t now);
/* True in a silence that has not opened the breaker. */
int crl_breaker_is_slow(const crl_breaker *breaker);
/* The time that a probe of op_ms has: within a silence it grows with that, as far as the silence
 * may still last. */
int64_t crl_breaker_patience(const crl_breaker *breaker, int64_t op_ms);

#endif
