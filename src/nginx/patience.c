/* patience.c: what other modules' configurations say about a location: how long its requests wait
 * for others' rebuilds, and whether it sends compressed files. */
#include "module.h"

/* Modules whose configuration of a location begins with an ngx_http_upstream_conf_t. They are
 * looked up by name, since an nginx may be built without some of them. */
static const char *const askers[] = {"ngx_http_proxy_module", "ngx_http_fastcgi_module",
                                     "ngx_http_uwsgi_module", "ngx_http_scgi_module",
                                     "ngx_http_grpc_module",  "ngx_http_memcached_module"};

/* NULL: this nginx has no such module. */
static const void *conf_of(ngx_conf_t *cf, const char *name) {
  const void *conf = NULL;
  for (ngx_module_t **module = cf->cycle->modules; *module != NULL; module++)
    if ((*module)->type == NGX_HTTP_MODULE && ngx_strcmp((*module)->name, name) == 0)
      conf = ngx_http_conf_get_module_loc_conf(cf, (**module));
  return conf;
}

/* NULL: this nginx has no such module, or its configuration isn't merged yet. */
static const ngx_http_upstream_conf_t *upstream_of(ngx_conf_t *cf, const char *name) {
  const ngx_http_upstream_conf_t *conf = conf_of(cf, name);
  return conf != NULL && conf->read_timeout != NGX_CONF_UNSET_MSEC ? conf : NULL;
}

/* An upstream given by variables leaves no trace there: then a time that was set counts, the
 * longest of several. */
static ngx_msec_t read_timeout(ngx_conf_t *cf) {
  ngx_msec_t set = 0;
  for (size_t i = 0; i < sizeof askers / sizeof askers[0]; i++) {
    const ngx_http_upstream_conf_t *conf = upstream_of(cf, askers[i]);
    if (conf == NULL) continue;
    if (conf->upstream != NULL) return conf->read_timeout;
    if (conf->read_timeout != CRL_NGX_WAIT_MS) set = ngx_max(set, conf->read_timeout);
  }
  return set > 0 ? set : CRL_NGX_WAIT_MS;
}

/* Its configuration begins with what the directive says: 0 off, 1 on, 2 always. */
ngx_uint_t crl_ngx_has_gzip_static(ngx_conf_t *cf) {
  const ngx_uint_t *said = conf_of(cf, "ngx_http_gzip_static_module");
  return said != NULL && *said == 1;
}

int64_t crl_ngx_patience(ngx_conf_t *cf, const corral_policy *policy) {
  enum { DAY_MS = 86400000 };
  if (policy->wait_ms > 0) return policy->wait_ms;
  return (int64_t)ngx_max(ngx_min(read_timeout(cf), (ngx_msec_t)DAY_MS), (ngx_msec_t)1);
}

int64_t crl_ngx_soft(const crl_ngx_ctx *ctx) {
  enum { MARGIN_MS = 1000 };
  int64_t wait_ms = ctx->conf->wait_ms;
  return ngx_max(wait_ms - ngx_min(wait_ms / 4, (int64_t)MARGIN_MS), 1);
}
