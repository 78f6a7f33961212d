/* purge.h: what a request purges: a kind, and items of that kind. */
#ifndef CRL_NGX_PURGE_H
#define CRL_NGX_PURGE_H

#include "module.h"

typedef struct crl_ngx_purge_list {
  ngx_uint_t kind; /* CRL_NGX_PURGE_..., never that of a request */
  ngx_uint_t is_soft;
  size_t count;
  size_t size, room;    /* of `items` */
  unsigned char *items; /* each with its length before it; malloc'ed, for a thread to read */
} crl_ngx_purge_list;

/* Lists what the location's corral_purge says, or what the request says. NULL; or why not, static.
 * The list is to be cleaned in any case. */
const char *crl_ngx_purge_listed(ngx_http_request_t *r, crl_ngx_purge_list *list);
/* True when the location, or the request's field Corral-Soft, wants pages expired only. */
ngx_uint_t crl_ngx_purge_asks_soft(ngx_http_request_t *r);
/* 0; -1 without memory. */
int crl_ngx_purge_add(crl_ngx_purge_list *list, const u_char *item, size_t len);
/* The next item: 1, or 0 when there are no more. `*at` is 0 at first. */
int crl_ngx_purge_next(const crl_ngx_purge_list *list, size_t *at, const unsigned char **item,
                       size_t *len);
void crl_ngx_purge_clean(crl_ngx_purge_list *list);

#endif
