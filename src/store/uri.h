/* uri.h: parses a store URI. Pure. */
#ifndef CRL_URI_H
#define CRL_URI_H

#include <corral/plugin.h>

enum { CRL_URI_PARAMS = 32, CRL_URI_SCHEME = 63 }; /* parameters; bytes of a scheme */

/* A parsed URI with its text in one allocation. */
typedef struct crl_uri {
  corral_uri view;
  corral_uri_param params[CRL_URI_PARAMS];
  char *memory; /* wiped before it is freed */
  size_t room;
  char *secret; /* a password from outside the URI, or NULL: see secret.h */
} crl_uri;

/* scheme:path?name=value&... or scheme://[user[:password]@]host[:port][,host[:port]...][/path]?...
 * CORRAL_EURI with a text that names the fault, or CORRAL_ENOMEM. On CORRAL_OK: crl_uri_free. */
int crl_uri_parse(crl_uri *uri, const char *text, corral_error *error);
void crl_uri_free(crl_uri *uri);

/* corral_host.uri_check, uri_get, uri_number */
int crl_uri_check(const corral_uri *uri, const char *names, corral_error *error);
const char *crl_uri_get(const corral_uri *uri, const char *name);
int crl_uri_number(const corral_uri *uri, const char *name, const char *unit, int64_t least,
                   int64_t most, int64_t *value, corral_error *error);

#endif
