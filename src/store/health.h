/* health.h: what the results of asks say of a server: well, slow, away, or in doubt; and when a
 * probe is due. The server's latch guards it. */
#ifndef CRL_HEALTH_H
#define CRL_HEALTH_H

#include "store/breaker.h"
#include "store/pool_options.h"

typedef struct crl_health {
  crl_breaker breaker;
  int64_t doubts; /* hurried callers in a row whose time ran out */
  /* in doubt: a probe is to tell whether the server is silent still, or whether the haste of its
   * callers is to blame */
  int checking;
  int holding;      /* in doubt by a silence: looks and claims are held back until a probe */
  int self_probing; /* a caller probes when a rest is over */
  corral_error why; /* the last failure */
} crl_health;

/* A finished probe. */
typedef struct crl_findings {
  int works;
  int is_silent;        /* its time ran out */
  int64_t began, limit; /* of its time */
  corral_error why;
} crl_findings;

void crl_health_start(crl_health *health, const crl_pool_options *options);
/* True when the server may be asked. *probe: this call is the probe that tells whether the server
 * is back. */
int crl_health_may_ask(crl_health *health, int *probe);
/* True when anybody may ask anything, and nobody is the probe. */
static inline int crl_health_lets_all(const crl_health *health) {
  return !health->breaker.open && !health->holding;
}
/* True from a silence on until a probe was answered, and what the server didn't hear was repeated:
 * looks and claims are to be held back. They would only add to its work, and a claim that arrives
 * late makes a lease that nobody has. */
int crl_health_holds_back(const crl_health *health);
/* True when nothing is known against the server: its last answers came. */
int crl_health_is_well(const crl_health *health);

/* These tell of an answer, or of a failure that the server or its host reported; of an ask that was
 * sent at `began` and unanswered at its `limit`; and of a probe, while the server `rests` or not.
 * They return the event that became due, or CORRAL_EVENT_COUNT. */
corral_event crl_health_outcome(crl_health *health, int worked, int probe, const corral_error *why);
corral_event crl_health_silence(crl_health *health, int64_t began, int64_t limit, int probe,
                                const corral_error *why);
corral_event crl_health_probed(crl_health *health, const crl_findings *found, int rests);

/* After a silence. True when a probe is due that wasn't before. */
int crl_health_doubt(crl_health *health);
/* A timeout of a hurried caller says nothing of the server; several in a row raise a doubt. Returns
 * as crl_health_doubt. */
int crl_health_hurried(crl_health *health);
/* Without a thread for probes, callers probe a resting server, and nothing is held back. */
void crl_health_self_probing(crl_health *health, int self_probing);
/* When the next probe is due; INT64_MAX: the server isn't in doubt, or its callers probe. */
int64_t crl_health_probe_at(const crl_health *health);

#endif
