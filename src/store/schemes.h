/* schemes.h: the schemes of URIs that this project has plugins for: what each one holds, and what
 * its plugin is built from. Pure. */
#ifndef CRL_SCHEMES_H
#define CRL_SCHEMES_H

#include <stddef.h>

typedef struct crl_scheme {
  const char *schemes; /* words */
  const char *plugin;  /* corral_plugin_NAME.so; CORRAL_NAME builds it */
  const char *holds;   /* "values", which implies locks; "locks"; "origin" */
  const char *build;   /* Debian's packages that it is built with; NULL: none, it is always there */
  const char *library; /* Debian's packages that it needs when it runs */
} crl_scheme;

/* NULL: none of this project's. */
const crl_scheme *crl_schemes_find(const char *scheme);
/* Writes which schemes hold values, and which locks alone. Returns `text`. */
const char *crl_schemes_list(char *text, size_t size);
/* The scheme of a store that a misspelt one may mean; `room` has 32 bytes; NULL: none. */
const char *crl_schemes_meant(const char *scheme, char room[32]);

#endif
