/* lend.c: the variables of a leading request about its origin ($upstream_http_..., $upstream_addr,
 * $proxy_host): its subrequest has what they are made of. */
#include "module.h"

static ngx_module_t *proxy; /* NULL: this nginx has none */

void crl_ngx_lend_init(ngx_conf_t *cf) {
  proxy = NULL;
  for (ngx_module_t **module = cf->cycle->modules; *module != NULL; module++)
    if (ngx_strcmp((*module)->name, "ngx_http_proxy_module") == 0) proxy = *module;
}

void crl_ngx_lend(ngx_http_request_t *r, ngx_http_request_t *sr) {
  if (sr->upstream_states != NULL) r->upstream_states = sr->upstream_states;
  if (proxy != NULL && ngx_http_get_module_ctx(r, (*proxy)) == NULL)
    ngx_http_set_ctx(r, ngx_http_get_module_ctx(sr, (*proxy)), (*proxy));
  if (sr->upstream == NULL || r->upstream != NULL) return;
  ngx_http_upstream_t *copy = ngx_palloc(r->pool, sizeof *copy);
  if (copy == NULL) return;
  *copy = *sr->upstream; /* for its fields; nobody runs it */
  copy->cleanup = NULL;
  copy->peer.connection = NULL;
  if (copy->headers_in.headers.last == &sr->upstream->headers_in.headers.part)
    copy->headers_in.headers.last = &copy->headers_in.headers.part;
  r->upstream = copy;
}
