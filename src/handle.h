/* handle.h: what is behind a corral's handle, for the public functions that aren't in corral.c. */
#ifndef CRL_HANDLE_H
#define CRL_HANDLE_H

#include "drive.h"

/* Every call's first steps: an open corral, in the process that uses it. CORRAL_EINVAL, CORRAL_ECLOSED, CORRAL_EFORKED. */
int crl_handle_enter(corral *c, crl_station **ret, corral_error *error);
/* Whether this process is the one that uses it. */
int crl_handle_is_home(const crl_station *station);

#endif
