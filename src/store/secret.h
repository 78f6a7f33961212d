/* secret.h: a password kept outside the URI: in a file, behind a descriptor, or in an environment
 * variable. */
#ifndef CRL_SECRET_H
#define CRL_SECRET_H

#include "store/uri.h"

enum { CRL_SECRET_MOST = 4096 };

/* Limit for a pipe, a socket or a terminal behind a descriptor to come to its end: 10000 ms. */
extern int64_t crl_secret_wait_ms;

/* Reads the password that password_file=, password_fd= or password_env= of the URI names. *ret: a
 * copy, to be wiped and freed; NULL: none is named. CORRAL_EURI with a text: more than one is
 * named, the URI has a password as well, or the password can't be read. CORRAL_ENOMEM. */
int crl_secret_find(const corral_uri *uri, char **ret, corral_error *error);
/* Moves that password to uri->view.password, where plugins look for it, and removes the parameter.
 * A URI without "//" has no password: its parameters stay. */
int crl_secret_resolve(crl_uri *uri, corral_error *error);

#endif
