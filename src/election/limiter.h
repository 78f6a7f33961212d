/* limiter.h: the limiter of one process: at most `most` callers inside at once; waiters enter by
 * rank, then in the order of arrival. */
#ifndef CRL_LIMITER_H
#define CRL_LIMITER_H

#include <stddef.h>
#include <stdint.h>

#include "os/cancel.h"
#include "policy/policy.h"

typedef struct crl_limiter crl_limiter;

/* A limiter that lets `most` inside at once. NULL without memory. */
crl_limiter *crl_limiter_new(int64_t most);
/* No caller may be inside or waiting. */
void crl_limiter_free(crl_limiter *limiter);
/* 1: inside, to be followed by crl_limiter_leave. 0: still full at `until` (crl_env_now_ms; a past
 * moment: only try), or `cancel token` (may be NULL) was cancelled. No caller overtakes a waiter of
 * the same or a more urgent rank. Blocks; any thread. */
int crl_limiter_enter(crl_limiter *limiter, crl_rank rank, int64_t until,
                      corral_cancel_token *cancel_token);
void crl_limiter_leave(crl_limiter *limiter);
/* For tests. */
size_t crl_limiter_inside(crl_limiter *limiter);
size_t crl_limiter_waiting(crl_limiter *limiter, crl_rank rank);

#endif
