/* handle.h: the checks with which public functions begin, and the station behind a corral. */
#ifndef CRL_HANDLE_H
#define CRL_HANDLE_H

#include "drive.h"

/* First step of a call that is safe in a forked child. CORRAL_EINVAL, CORRAL_ECLOSED. */
int crl_handle_open(corral *c, crl_station **ret, corral_error *error);
/* First step of any other call; the first one binds the corral to this process. Also
 * CORRAL_EFORKED. */
int crl_handle_enter(corral *c, crl_station **ret, corral_error *error);
/* crl_handle_enter for a call about values: also CORRAL_EUNSUPPORTED where the store has locks
 * only. */
int crl_handle_values(corral *c, crl_station **ret, corral_error *error);
/* crl_handle_values for a call about the value of a key: also CORRAL_EINVAL if the key is empty or
 * too long. */
int crl_handle_key(corral *c, const void *key, size_t key_len, crl_station **ret,
                   corral_error *error);
int crl_handle_check_key(const void *key, size_t key_len, corral_error *error);
/* crl_handle_key for a call with a policy: fills *call, except for its compute. */
int crl_handle_call(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                    crl_station **ret, crl_call *call);
/* Sets the compute, or origin, that was bound at open, if any. */
void crl_handle_bind(corral *c, crl_call *call);
/* policy->error; NULL without a policy, or when its struct is too short to have one. */
corral_error *crl_handle_error(const corral_policy *policy);
/* First step of a call on an object of an open corral, such as a lock: CORRAL_EINVAL,
 * CORRAL_EFORKED. */
int crl_handle_check(const crl_station *station, corral_error *error);
/* True unless the corral belongs to another process, of which this is a fork. */
int crl_handle_is_home(const crl_station *station);

#endif
