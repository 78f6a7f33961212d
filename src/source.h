/* source.h: the origin that was bound at open by a URL: what its plugin fetches is the compute of
 * every call that has none of its own. */
#ifndef CRL_SOURCE_H
#define CRL_SOURCE_H

#include <corral/plugin.h>

#include "drive.h"

/* "scheme://host:port", by which all computes of one origin share a limit. */
enum { CRL_SOURCE_NAME = 101 };

typedef struct crl_source {
  const corral_origin *plugin;
  void *origin;
  char name[CRL_SOURCE_NAME];
} crl_source;

/* Whether the option `origin` is a URL, and not just a name. */
int crl_source_is_url(const char *origin);
/* No I/O, no thread. CORRAL_ENOPLUGIN, CORRAL_EURI, CORRAL_EINVAL, CORRAL_ENOMEM. */
int crl_source_open(crl_source *source, const char *url, uint64_t max_value, corral_error *error);
/* Gives up what is being fetched. */
void crl_source_close(crl_source *source);
/* A crl_start; its arg is a crl_source. */
void crl_source_fetch(void *source, corral_fill *fill, const void *key, size_t key_len);

#endif
