/* permit.c: which clients may purge (corral_purge_from), and by which methods. */
#include "module.h"

static ngx_uint_t is_loopback(const struct sockaddr *at) {
  if (at->sa_family == AF_INET)
    return ntohl(((const struct sockaddr_in *)at)->sin_addr.s_addr) >> 24 == 127;
#if (NGX_HAVE_INET6)
  if (at->sa_family == AF_INET6) {
    const struct in6_addr *address = &((const struct sockaddr_in6 *)at)->sin6_addr;
    return IN6_IS_ADDR_LOOPBACK(address) ||
           (IN6_IS_ADDR_V4MAPPED(address) && address->s6_addr[12] == 127);
  }
#endif
  return 0;
}

ngx_table_elt_t *crl_ngx_request_field(ngx_http_request_t *r, const char *name) {
  size_t len = ngx_strlen(name);
  for (ngx_list_part_t *part = &r->headers_in.headers.part; part != NULL; part = part->next) {
    ngx_table_elt_t *line = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      if (line[i].key.len == len && ngx_strncasecmp(line[i].key.data, (u_char *)name, len) == 0)
        return &line[i];
  }
  return NULL;
}

/* The first header field by which a proxy marks another client's request; NULL: none. */
static const ngx_str_t *proxy_field(ngx_http_request_t *r) {
  static const char *const names[] = {"via", "forwarded", "x-forwarded-for", "x-real-ip"};
  for (size_t n = 0; n < sizeof names / sizeof names[0]; n++) {
    ngx_table_elt_t *line = crl_ngx_request_field(r, names[n]);
    if (line != NULL) return &line->key;
  }
  return NULL;
}

/* A proxy on this host is local itself, but hands on requests of any client. */
static ngx_uint_t is_local(ngx_http_request_t *r) {
  static const ngx_str_t nothing = ngx_null_string;
  const ngx_str_t *field = proxy_field(r), *what = &nothing;
  const char *why;
  if (r->connection->sockaddr->sa_family == AF_UNIX) {
    why = "a unix socket doesn't tell who asks";
  } else if (!is_loopback(r->connection->sockaddr)) {
    why = "the client isn't on this host";
  } else if (r->connection->proxy_protocol != NULL) {
    why = "it came through a proxy, by the PROXY protocol";
  } else if (field != NULL) {
    why = "it came through a proxy, which sent ";
    what = field;
  } else {
    return 1;
  }
  ngx_log_error(
      NGX_LOG_ERR, r->connection->log, 0,
      "corral_purge: refused: %s%V; \"corral_purge_from any\" in this location accepts it", why,
      what);
  return 0;
}

ngx_uint_t crl_ngx_permits(ngx_http_request_t *r) {
  return crl_ngx_conf_of(r)->purge_from != CRL_NGX_FROM_LOCAL || is_local(r);
}

ngx_uint_t crl_ngx_is_purge(const ngx_http_request_t *r) {
  return r->method_name.len == 5 && ngx_strncmp(r->method_name.data, "PURGE", 5) == 0;
}

ngx_int_t crl_ngx_refuse_method(ngx_http_request_t *r) {
  ngx_table_elt_t *line = ngx_list_push(&r->headers_out.headers);
  if (line == NULL) return NGX_HTTP_INTERNAL_SERVER_ERROR;
  ngx_memzero(line, sizeof *line);
  line->hash = 1;
  ngx_str_set(&line->key, "Allow");
  ngx_str_set(&line->value, "POST, PURGE");
  return NGX_HTTP_NOT_ALLOWED;
}
