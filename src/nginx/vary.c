/* vary.c: variants of an answer, by the request's fields that the response's Vary names.
 *
 * The first answer is stored under the key itself, with the names and a hash of its request's
 * values for them. A request with other values asks for the key's variant of its own hash. */
#include "module.h"

int crl_ngx_vary_hash(ngx_http_request_t *r, const unsigned char *names, size_t len,
                      unsigned char *hash) {
  size_t count = 0;
  ngx_list_part_t *first = &r->headers_in.headers.part;
  for (ngx_list_part_t *part = first; part != NULL; part = part->next) count += part->nelts;
  corral_page_field *lines = ngx_palloc(r->pool, (count + 1) * sizeof *lines), *to = lines;
  if (lines == NULL) return -1;
  for (ngx_list_part_t *part = first; part != NULL; part = part->next) {
    const ngx_table_elt_t *from = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++)
      *to++ = (corral_page_field){.name = from[i].key.data,
                                  .name_len = from[i].key.len,
                                  .value = from[i].value.data,
                                  .value_len = from[i].value.len};
  }
  corral_page_vary(names, len, lines, count, hash);
  ngx_pfree(r->pool, lines);
  return 0;
}
