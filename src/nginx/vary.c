/* vary.c: variants of an answer, by the request's fields that the response's Vary names.
 *
 * The first answer is stored under the key itself, with the names and a hash of its request's
 * values for them. A request with other values asks for the key's variant of its own hash. The hash
 * is SHA-1: clients choose the values, and must not be able to make two of them share an answer. */
#include "module.h"
#include <ngx_sha1.h>

typedef struct crl_ngx_values {
  ngx_sha1_t sha;
  unsigned is_language : 1; /* Accept-Language: case doesn't matter */
  unsigned has_space : 1;   /* seen, and not hashed yet */
  unsigned is_after_comma : 1;
  unsigned is_quoted : 1;
  unsigned is_escaped : 1; /* by a backslash inside quotes */
} crl_ngx_values;

/* Hashes one byte. White space around commas is left out, and at the ends; other white space counts
 * as one space. Inside quotes all bytes count. */
static void add_byte(crl_ngx_values *v, u_char c) {
  if ((c == ' ' || c == '\t') && !v->is_quoted) {
    v->has_space = 1;
    return;
  }
  if (v->has_space && c != ',' && !v->is_after_comma) ngx_sha1_update(&v->sha, " ", 1);
  if (c == '"' && !v->is_escaped) v->is_quoted = !v->is_quoted;
  v->is_escaped = c == '\\' && v->is_quoted && !v->is_escaped;
  if (v->is_language) c = ngx_tolower(c);
  ngx_sha1_update(&v->sha, &c, 1);
  v->has_space = 0;
  v->is_after_comma = c == ',' && !v->is_quoted;
}

/* Joins the values of several lines by commas, without white space around them (RFC 9111, 4.1).
 * Language tags have no case (RFC 9110, 8.5.1). Their order stays: some servers prefer the first of
 * equal ones. */
static void add_field(ngx_sha1_t *sha, ngx_http_request_t *r, const u_char *name, size_t len) {
  crl_ngx_values v = {.is_language = len == 15 && ngx_strncmp(name, "accept-language", 15) == 0,
                      .is_after_comma = 1};
  ngx_list_part_t *part = &r->headers_in.headers.part;
  ngx_uint_t lines = 0;
  ngx_sha1_update(sha, name, len);
  v.sha = *sha;
  for (; part != NULL; part = part->next) {
    ngx_table_elt_t *field = part->elts;
    for (ngx_uint_t i = 0; i < part->nelts; i++) {
      if (field[i].key.len != len || ngx_strncasecmp(field[i].key.data, (u_char *)name, len) != 0)
        continue;
      v.is_quoted = 0;
      add_byte(&v, lines++ == 0 ? ':' : ',');
      v.is_after_comma = 1;
      for (size_t at = 0; at < field[i].value.len; at++) add_byte(&v, field[i].value.data[at]);
    }
  }
  *sha = v.sha;
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
