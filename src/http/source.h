/* source.h: the origin that was bound at open by a URL; its plugin's fetch is the compute of every
 * call without one of its own. */
#ifndef CRL_SOURCE_H
#define CRL_SOURCE_H

#include <corral/plugin.h>

#include "record/fill.h"

/* Size of "scheme://host:port", the name by which all computes of one origin share a limit. */
enum { CRL_SOURCE_NAME = 101 };

typedef struct crl_source {
  const corral_origin *plugin;
  void *origin;
  char name[CRL_SOURCE_NAME];
} crl_source;

/* True when the option `origin` is a URL, not just a name. */
int crl_source_is_url(const char *origin);
/* No I/O, starts no thread. CORRAL_ENOPLUGIN, CORRAL_EURI, CORRAL_EINVAL, CORRAL_ENOMEM. */
int crl_source_open(crl_source *source, const char *url, uint64_t max_value, corral_error *error);
/* Gives up the fetches that are under way. */
void crl_source_close(crl_source *source);
/* A crl_start; its arg is a crl_source. */
void crl_source_fetch(void *source, corral_fill *fill, const void *key, size_t key_len);

#endif
