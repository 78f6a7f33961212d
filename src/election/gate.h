/* gate.h: the limiter of one process: at most `most` callers inside at once; waiters enter by rank,
 * then in the order of arrival. */
#ifndef CRL_GATE_H
#define CRL_GATE_H

#include <stddef.h>
#include <stdint.h>

#include "os/ticket.h"
#include "policy/policy.h"

typedef struct crl_gate crl_gate;

/* A limiter that lets `most` inside at once. NULL without memory. */
crl_gate *crl_gate_new(int64_t most);
/* No caller may be inside or waiting. */
void crl_gate_free(crl_gate *gate);
/* 1: inside, to be followed by crl_gate_leave. 0: still full at `until` (crl_env_now_ms; a past
 * moment: only try), or `ticket` (may be NULL) was cancelled. No caller overtakes a waiter of the
 * same or a more urgent rank. Blocks; any thread. */
int crl_gate_enter(crl_gate *gate, crl_rank rank, int64_t until, corral_ticket *ticket);
void crl_gate_leave(crl_gate *gate);
/* For tests. */
size_t crl_gate_inside(crl_gate *gate);
size_t crl_gate_waiting(crl_gate *gate, crl_rank rank);

#endif
