/* origin.c: the origin that was bound at open by a URL. */
#include "http/origin.h"

#include <ctype.h>
#include <stdio.h>

#include "record/fill.h"
#include "store/registry.h"
#include "store/uri.h"
#include "base/status.h"

int crl_origin_is_url(const char *origin) {
  return origin != NULL && strstr(origin, "://") != NULL;
}

/* The name has neither user nor password. */
static void name_of(const char *url, size_t scheme_len, char name[CRL_ORIGIN_NAME]) {
  const char *host = url + scheme_len + 3;
  size_t len = strcspn(host, "/?#");
  const char *at = memrchr(host, '@', len);
  if (at != NULL) {
    len -= (size_t)(at + 1 - host);
    host = at + 1;
  }
  snprintf(name, CRL_ORIGIN_NAME, "%.*s://%.*s", (int)scheme_len, url, (int)len, host);
}

int crl_origin_open(crl_origin *origin, const char *url, uint64_t max_value, corral_error *error) {
  char scheme[CRL_URI_SCHEME + 1];
  size_t len = (size_t)(strstr(url, "://") - url);
  if (len < 1)
    return crl_status_fail(error, CORRAL_EURI,
                           "origin: no scheme stands before '://'; accepted: a name, or "
                           "http://... or https://...");
  if (len > CRL_URI_SCHEME)
    return crl_status_fail(error, CORRAL_EURI, "origin: a scheme has at most %d characters",
                           CRL_URI_SCHEME);
  for (size_t i = 0; i < len; i++) scheme[i] = (char)tolower((unsigned char)url[i]);
  scheme[len] = '\0';
  int status = crl_registry_find_origin(scheme, &origin->plugin, error);
  if (status == CORRAL_OK)
    status = origin->plugin->open(crl_registry_host(), url, max_value, &origin->origin, error);
  if (status == CORRAL_OK)
    name_of(url, len, origin->name);
  else
    origin->plugin = NULL;
  return status;
}

void crl_origin_close(crl_origin *origin) {
  if (origin->plugin != NULL) origin->plugin->close(origin->origin);
  origin->plugin = NULL;
}

void crl_origin_fetch(void *arg, corral_fill *fill, const void *key, size_t key_len) {
  crl_origin *origin = arg;
  origin->plugin->fetch(origin->origin, fill, key, key_len, fill->limit);
}
