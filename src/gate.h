/* gate.h: at most so many at once; who waits is let in by rank, then in the order of coming. */
#ifndef CRL_GATE_H
#define CRL_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "ticket.h"

/* How much a compute is needed, most first. */
typedef enum crl_rank {
  CRL_RANK_COLD,    /* there is no value at all */
  CRL_RANK_EXPIRED, /* there is one, but it may not be served any more */
  CRL_RANK_EARLY,   /* a usable value is rebuilt ahead of time, or behind a stale answer */
  CRL_RANK_WARM,    /* nobody asked yet */
  CRL_RANKS
} crl_rank;

typedef struct crl_gate crl_gate;

/* `most` inside at once. NULL without memory. */
crl_gate *crl_gate_new(int64_t most);
/* Nobody may be inside or waiting. */
void crl_gate_free(crl_gate *gate);
/* 1: inside, to be followed by crl_gate_leave. 0: full until `until` (crl_env_now_ms); one that has
 * passed means: only try. Nobody overtakes one who waits with the same or a higher rank. Also 0
 * when `ticket` (may be NULL) is cancelled meanwhile. Blocks; any thread. */
int crl_gate_enter(crl_gate *gate, crl_rank rank, int64_t until, corral_ticket *ticket);
void crl_gate_leave(crl_gate *gate);
/* For tests. */
size_t crl_gate_inside(crl_gate *gate);
size_t crl_gate_waiting(crl_gate *gate, crl_rank rank);

#endif
