/* verify.h: measures how fresh the hits are: a share of them (policy.verify_ppm) is computed anew
 * behind the answer, and compared with what was served.
 *
 * It is a compute like a rebuild behind a stale answer, but its result is only compared: it takes
 * no lease, stores nothing, remembers no failure, and no caller joins it. So only a compute that is
 * the corral's own is run. One value of a corral is verified at a time, so many in a second, and
 * only where nobody would miss that compute: the store answers, has the very value, and neither a
 * lease nor a failure of the key, and there is a free place to compute. Before a verdict is told
 * the store is looked at again: it counts only if the value still stands there. After a compute
 * that failed nothing is verified for as long as a key rests (retry_ms). */
#ifndef CRL_VERIFY_H
#define CRL_VERIFY_H

#include "run/run.h"

typedef struct crl_verifier crl_verifier;

/* NULL without memory. */
crl_verifier *crl_verifier_new(crl_context *context, const corral_options *options);
/* No verification begins from now on. */
void crl_verifier_close(crl_verifier *verifier);
/* After crl_verifier_close: waits for the verification that is under way, and frees. */
void crl_verifier_free(crl_verifier *verifier);

/* Draws whether a value (NULL: none) that a call got is verified, and has that begin. */
void crl_verify_draw(crl_context *context, const crl_call *call, const void *key, size_t key_len,
                     corral_value *value);

static inline void crl_verify_served(crl_context *context, const crl_call *call, const void *key,
                                     size_t key_len, corral_value *value) {
  if (call->lasts && call->policy->verify_ppm > 0)
    crl_verify_draw(context, call, key, key_len, value);
}

#endif
