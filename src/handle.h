/* handle.h: what is behind a corral's handle, for the public functions. */
#ifndef CRL_HANDLE_H
#define CRL_HANDLE_H

#include "drive.h"

/* First step of a call that uses nothing that a fork would break. CORRAL_EINVAL, CORRAL_ECLOSED. */
int crl_handle_open(corral *c, crl_station **ret, corral_error *error);
/* First step of any other: this process uses the corral from now on. Also CORRAL_EFORKED. */
int crl_handle_enter(corral *c, crl_station **ret, corral_error *error);
/* The same for a call about values: CORRAL_EUNSUPPORTED where the store has locks only. */
int crl_handle_values(corral *c, crl_station **ret, corral_error *error);
/* The same for a call about the value of a key: CORRAL_EINVAL if it is empty or too long. */
int crl_handle_key(corral *c, const void *key, size_t key_len, crl_station **ret,
                   corral_error *error);
int crl_handle_check_key(const void *key, size_t key_len, corral_error *error);
/* The same for a call with a policy: fills *call, but for its compute. */
int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                    crl_station **ret, crl_call *call);
/* What was bound at open, if anything. */
void crl_handle_bind(corral *c, crl_call *call);
/* The user's error, when his struct is long enough to have one. */
corral_error *crl_handle_error(const corral_policy *policy);
/* The same for what belongs to an open corral: CORRAL_EINVAL, CORRAL_EFORKED. */
int crl_handle_check(const crl_station *station, corral_error *error);
/* Whether this process is the one that uses it. */
int crl_handle_is_home(const crl_station *station);

#endif
