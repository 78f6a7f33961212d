/* origin.h: the origin that was bound at open by a URL; its plugin's fetch is the compute of every
 * call without one of its own. */
#ifndef CRL_ORIGIN_H
#define CRL_ORIGIN_H

#include <corral/plugin.h>

#include "record/fill.h"

/* Size of "scheme://host:port", the name by which all computes of one origin share a limit. */
enum { CRL_ORIGIN_NAME = 101 };

typedef struct crl_origin {
  const corral_origin *plugin;
  void *origin;
  char name[CRL_ORIGIN_NAME];
} crl_origin;

/* True when the option `origin` is a URL, not just a name. */
int crl_origin_is_url(const char *origin);
/* No I/O, starts no thread. CORRAL_ENOPLUGIN, CORRAL_EURI, CORRAL_EINVAL, CORRAL_ENOMEM. */
int crl_origin_open(crl_origin *origin, const char *url, uint64_t max_value, corral_error *error);
/* Gives up the fetches that are under way. */
void crl_origin_close(crl_origin *origin);
/* A crl_start; its arg is a crl_origin. */
void crl_origin_fetch(void *origin, corral_fill *fill, const void *key, size_t key_len);

#endif
