/* page_names.c: names made of pages: the hash of a request, by which variants are told apart, and
 * tags; see corral/page.h.
 *
 * Both are cryptographic: clients choose the values and keys, and must not be able to make two of
 * them share a name. */
#include <corral/page.h>

#include <string.h>
#include <strings.h>

#include "os/hash.h"

/* ---- the hash of a request ----------------------------------------------------------------- */

enum { PIECE = 256 };

/* Bytes on their way into a digest. */
typedef struct sink {
  crl_digester digester;
  size_t size;
  unsigned char bytes[PIECE];
} sink;

static void put(sink *s, unsigned char c) {
  if (s->size == PIECE) {
    crl_digester_add(&s->digester, s->bytes, PIECE);
    s->size = 0;
  }
  s->bytes[s->size++] = c;
}

/* The values of one field's lines. */
typedef struct values {
  int is_language; /* Accept-Language: case doesn't matter (RFC 9110, 8.5.1) */
  int has_space;   /* seen, and not hashed yet */
  int is_after_comma;
  int is_quoted;
  int is_escaped; /* by a backslash inside quotes */
} values;

/* White space around commas is left out, and at the ends; other white space counts as one space.
 * Inside quotes all bytes count. */
static void put_byte(sink *s, values *v, unsigned char c) {
  if ((c == ' ' || c == '\t') && !v->is_quoted) {
    v->has_space = 1;
    return;
  }
  if (v->has_space && c != ',' && !v->is_after_comma) put(s, ' ');
  if (c == '"' && !v->is_escaped) v->is_quoted = !v->is_quoted;
  v->is_escaped = c == '\\' && v->is_quoted && !v->is_escaped;
  put(s, v->is_language && c >= 'A' && c <= 'Z' ? (unsigned char)(c + 32) : c);
  v->has_space = 0;
  v->is_after_comma = c == ',' && !v->is_quoted;
}

/* Joins the values of several lines by commas (RFC 9111, 4.1). Their order stays: some servers
 * prefer the first of equal languages. No field contains a newline. */
static void put_field(sink *s, const unsigned char *name, size_t len,
                      const corral_page_field *request, size_t count) {
  values v = {.is_language = len == 15 && memcmp(name, "accept-language", 15) == 0,
              .is_after_comma = 1};
  size_t lines = 0;
  for (size_t i = 0; i < len; i++) put(s, name[i]);
  for (size_t i = 0; i < count; i++) {
    if (request[i].name_len != len ||
        strncasecmp((const char *)request[i].name, (const char *)name, len) != 0)
      continue;
    v.is_quoted = 0;
    put_byte(s, &v, lines++ == 0 ? ':' : ',');
    v.is_after_comma = 1;
    for (size_t at = 0; at < request[i].value_len; at++) put_byte(s, &v, request[i].value[at]);
  }
  put(s, '\n');
}

void corral_page_vary(const unsigned char *names, size_t len, const corral_page_field *request,
                      size_t count, unsigned char *ret_hash) {
  sink s = {.size = 0};
  crl_digester_begin(&s.digester);
  for (size_t at = 0; at < len; at++) {
    const unsigned char *space = memchr(names + at, ' ', len - at);
    size_t word = space != NULL ? (size_t)(space - (names + at)) : len - at;
    if (word > 0) put_field(&s, names + at, word, request, count);
    at += word;
  }
  crl_digester_add(&s.digester, s.bytes, s.size);
  crl_digester_end(&s.digester, ret_hash);
}

_Static_assert((int)CORRAL_PAGE_HASH == (int)CRL_DIGEST, "the hash is a digest");

/* ---- tags ---------------------------------------------------------------------------------- */

/* A name with a space in it is no word of a response field. */
static size_t digest_tag(const char *kind, const void *text, size_t len, unsigned char *to) {
  static const char digits[] = "0123456789abcdef";
  uint8_t digest[CRL_DIGEST];
  size_t at = strlen(kind);
  crl_digest(text, len, digest);
  memcpy(to, kind, at);
  for (size_t i = 0; i < CRL_DIGEST; i++) {
    to[at++] = (unsigned char)digits[digest[i] >> 4];
    to[at++] = (unsigned char)digits[digest[i] & 15];
  }
  return at;
}

size_t corral_page_tag(int kind, const void *text, size_t len, unsigned char *ret) {
  if (kind == CORRAL_PAGE_OF_KEY) return digest_tag("variants ", text, len, ret);
  if (kind == CORRAL_PAGE_OF_PREFIX) return digest_tag("prefix ", text, len, ret);
  if (len > CORRAL_TAG_MAX) return digest_tag("long ", text, len, ret);
  if (len > 0) memcpy(ret, text, len);
  return len;
}
