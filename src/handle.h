/* handle.h: what is behind a corral's handle, for the public functions that aren't in corral.c. */
#ifndef CRL_HANDLE_H
#define CRL_HANDLE_H

#include "drive.h"

/* Every call's first steps: an open corral, in the process that uses it. CORRAL_EINVAL, CORRAL_ECLOSED, CORRAL_EFORKED. */
int crl_handle_enter(corral *c, crl_station **ret, corral_error *error);
/* The same for a call that asks for a key: fills *call, but for its compute. */
int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_policy *policy, crl_call *call);
/* What was bound at open, if anything. */
void crl_handle_bind(corral *c, crl_call *call);
/* The user's error, when his struct is long enough to have one. */
corral_error *crl_handle_error(const corral_policy *policy);
/* The same for what belongs to an open corral: CORRAL_EINVAL, CORRAL_EFORKED. */
int crl_handle_check(const crl_station *station, corral_error *error);
/* Whether this process is the one that uses it. */
int crl_handle_is_home(const crl_station *station);

#endif
