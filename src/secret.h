/* secret.h: a password that stands elsewhere than in the URI: in a file, behind a descriptor, in
 * a variable of the environment. */
#ifndef CRL_SECRET_H
#define CRL_SECRET_H

#include "uri.h"

enum { CRL_SECRET_MOST = 4096 };

/* How long a pipe, a socket or a terminal behind a descriptor may take to come to its end: 10 s. */
extern int64_t crl_secret_wait_ms;

/* The password that password_file=, password_fd= or password_env= of the URI names: a copy, to
 * be wiped and freed; NULL when none is given. CORRAL_EURI with a text when more than one is, or
 * a password stands in the URI as well, or it can't be had. */
int crl_secret_find(const corral_uri *uri, char **ret, corral_error *error);
/* Puts it where a plugin looks for it: uri->view.password; the parameter goes. A URI without
 * "//" has no password: its parameters stay. */
int crl_secret_resolve(crl_uri *uri, corral_error *error);

#endif
