/* vary.c: variants of an answer, by the request's fields that the response's Vary names.
 *
 * The first answer is stored under the key itself, with the names and a hash of its request's
 * values for them. A request with other values asks for the key's variant of its own hash. The hash
 * is SHA-1: clients choose the values, and must not be able to make two of them share an answer. */
#include "module.h"
#include <ngx_sha1.h>

/* Joins the values of several lines by commas, without white space around them (RFC 9111, 4.1). */
static void add_field(ngx_sha1_t *sha, ngx_http_request_t *r, const u_char *name, size_t len) {
  ngx_list_part_t *part = &r->headers_in.headers.part;
  ngx_sha1_update(sha, name, len);
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *field = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      if (field[i].key.len != len || ngx_strncasecmp(field[i].key.data, (u_char *)name, len) != 0)
        continue;
      const u_char *from = field[i].value.data, *to = from + field[i].value.len;
      while (from < to && (*from == ' ' || *from == '\t')) from++;
      while (to > from && (to[-1] == ' ' || to[-1] == '\t')) to--;
      ngx_sha1_update(sha, ",", 1);
      ngx_sha1_update(sha, from, (size_t)(to - from));
    }
  }
  ngx_sha1_update(sha, "\n", 1); /* no field contains a newline */
}

void crl_ngx_vary_hash(ngx_http_request_t *r, const unsigned char *names, size_t len,
                       unsigned char *hash) {
  ngx_sha1_t sha;
  const u_char *end = names + len;
  ngx_sha1_init(&sha);
  while (names < end) {
    const u_char *space = memchr(names, ' ', (size_t)(end - names));
    const u_char *stop = space != NULL ? space : end;
    if (stop > names) add_field(&sha, r, names, (size_t)(stop - names));
    names = space != NULL ? space + 1 : end;
  }
  ngx_sha1_final(hash, &sha);
}
