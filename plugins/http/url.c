/* url.c: URL and header fields of a key, and the targets of redirects.
 *
 * {key} is the key's first line with everything but letters, digits and -._~/ percent-encoded;
 * {key:raw} is that line as it is, of characters that a URL may have (so it can have a query).
 * {uri} is what {key:raw} would be from its first slash on, but for those of "://": the path and
 * the query of the module's key of a page.
 * Neither can leave the base path: a segment that is "." or "..", however encoded and whatever
 * parameters follow it, is refused. */
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <strings.h>

#include "http.h"

static int is_unreserved(unsigned char c) {
  return c < 128 && (isalnum(c) || (c != '\0' && strchr("-._~", c) != NULL));
}
static int is_hex(char c) { return isxdigit((unsigned char)c) != 0; }

int crl_http_is_token(const char *text, size_t len) {
  for (size_t i = 0; i < len; i++)
    if (text[i] <= ' ' || text[i] > 126 || strchr("\"(),/:;<=>?@[\\]{}", text[i]) != NULL) return 0;
  return len > 0;
}

int crl_http_is_own_field(const char *name, size_t len) {
  return crl_http_names_have(
      "accept-encoding if-none-match if-modified-since if-match if-unmodified-since if-range range "
      "connection keep-alive te trailer upgrade "
      "expect content-length transfer-encoding proxy-authorization",
      name, len);
}

/* ---- the key's first line ------------------------------------------------------------------ */

static size_t put_encoded(char *to, const char *key, size_t len) {
  static const char digits[] = "0123456789ABCDEF";
  char *at = to;
  for (size_t i = 0; i < len; i++) {
    unsigned char c = (unsigned char)key[i];
    if (is_unreserved(c) || c == '/') {
      *at++ = (char)c;
    } else {
      *at++ = '%';
      *at++ = digits[c >> 4];
      *at++ = digits[c & 15];
    }
  }
  return (size_t)(at - to);
}

static int is_raw_url(const char *key, size_t len) {
  for (size_t i = 0; i < len; i++) {
    if (key[i] == '%') {
      if (i + 2 >= len || !is_hex(key[i + 1]) || !is_hex(key[i + 2])) return 0;
    } else if (!is_unreserved((unsigned char)key[i]) &&
               (key[i] == '\0' || strchr("!$&'()*+,;=:@/?", key[i]) == NULL)) {
      return 0;
    }
  }
  return 1;
}

/* The next character of a path; 0 at its end. Escapes that some servers decode before they split
 * the path are decoded here, even if they are escaped again. Some servers drop the rest of a
 * segment after ';', and after NUL, which is returned as ';'. */
static char next_of_path(const char **at) {
  static const struct {
    const char *escape;
    char c;
  } escapes[] = {{"2e", '.'}, {"2f", '/'}, {"5c", '/'}, {"3b", ';'}, {"00", ';'}};
  const char *code = *at + 1;
  char c = **at;
  if (c == '\0' || c == '?' || c == '#') return '\0';
  while (c == '%' && strncmp(code, "25", 2) == 0) code += 2;
  for (size_t i = 0; c == '%' && i < sizeof escapes / sizeof *escapes; i++) {
    if (strncasecmp(code, escapes[i].escape, 2) != 0) continue;
    *at = code + 2;
    return escapes[i].c;
  }
  ++*at;
  return c == '\\' ? '/' : c;
}

int crl_http_has_dots(const char *path) {
  for (int dots = 0, others = 0, is_over = 0;;) {
    char c = next_of_path(&path);
    int is_end = c == '/' || c == '\0';
    if (c == ';')
      is_over = 1;
    else if (!is_end && !is_over && c == '.')
      dots++;
    else if (!is_end && !is_over)
      others = 1;
    if (!is_end) continue;
    if (!others && (dots == 1 || dots == 2)) return 1;
    if (c == '\0') return 0;
    dots = others = is_over = 0;
  }
}

/* Where the URI begins in a key; NULL: it has none. */
static const char *uri_of(const char *key, size_t len) {
  const char *at = memchr(key, '/', len), *end = key + len;
  if (at != NULL && at > key && at[-1] == ':' && at + 1 < end && at[1] == '/')
    at = memchr(at + 2, '/', (size_t)(end - at - 2));
  return at;
}

static const char *make_url(crl_http_transfer *t, const char *key, size_t len) {
  const crl_http_origin *o = t->origin;
  const char *uri = o->is_uri ? uri_of(key, len) : key;
  if (uri == NULL) return "the key has no '/', with which {uri} begins";
  len -= (size_t)(uri - key);
  key = uri;
  size_t before = strlen(o->before), after = strlen(o->after);
  if (len > CRL_HTTP_URL) return "the key is too long for a URL";
  t->url = malloc(before + 3 * len + after + 1);
  if (t->url == NULL) return "out of memory";
  if (o->is_raw && !is_raw_url(key, len)) return "the key has bytes that a URL can't have";
  memcpy(t->url, o->before, before);
  size_t at = before;
  if (o->is_raw) memcpy(t->url + at, key, len);
  at += o->is_raw ? len : put_encoded(t->url + at, key, len);
  memcpy(t->url + at, o->after, after + 1);
  if (at + after > CRL_HTTP_URL) return "the URL would be longer than 8192 bytes";
  return crl_http_has_dots(t->url + o->path_at) ? "the key's path has a segment that is '.' or '..'"
                                                : NULL;
}

/* ---- the key's other lines ----------------------------------------------------------------- */

static int has_field(const struct curl_slist *fields, const char *name, size_t len) {
  for (; fields != NULL; fields = fields->next)
    if (strncasecmp(fields->data, name, len) == 0 && fields->data[len] == ':') return 1;
  return 0;
}

static const char *add_field(crl_http_transfer *t, const char *line, size_t len) {
  const char *colon = memchr(line, ':', len);
  size_t name = colon != NULL ? (size_t)(colon - line) : 0;
  char text[1024];
  if (!crl_http_is_token(line, name))
    return "a line of the key after its first isn't a header field, 'Name: value'";
  if (!crl_http_names_have(t->origin->vary, line, name))
    return "a header field of the key isn't among vary=";
  if (has_field(t->fields, line, name)) return "a header field is in the key twice";
  if (len >= sizeof text) return "a header field of the key is longer than 1023 bytes";
  for (size_t i = name; i < len; i++)
    if ((unsigned char)line[i] < ' ' || line[i] == 127)
      return "a header field of the key has a control character";
  size_t value = name + 1;
  while (value < len && line[value] == ' ') value++;
  int is_empty = value == len; /* for libcurl, a semicolon marks an empty value */
  snprintf(text, sizeof text, "%.*s%s", is_empty ? (int)name : (int)len, line, is_empty ? ";" : "");
  struct curl_slist *more = curl_slist_append(t->fields, text);
  if (more == NULL) return "out of memory";
  t->fields = more;
  return NULL;
}

const char *crl_http_url_make(crl_http_transfer *t) {
  const char *key = t->key, *end = key + t->key_len, *line = memchr(key, '\n', t->key_len);
  const char *why = make_url(t, key, line != NULL ? (size_t)(line - key) : t->key_len);
  while (why == NULL && line != NULL) {
    const char *begin = line + 1;
    line = begin < end ? memchr(begin, '\n', (size_t)(end - begin)) : NULL;
    if (begin == end) break; /* nothing behind the last newline */
    why = add_field(t, begin, (size_t)((line != NULL ? line : end) - begin));
  }
  return why;
}

/* ---- redirects ----------------------------------------------------------------------------- */

static int port_of(CURLU *url) {
  char *text = NULL;
  long port = 0;
  if (curl_url_get(url, CURLUPART_PORT, &text, CURLU_DEFAULT_PORT) == CURLUE_OK)
    port = strtol(text, NULL, 10);
  curl_free(text);
  return (int)port;
}

/* 1: another server than the configured one. The step from http's default port to https's is the
 * same server. */
static int is_other(const crl_http_origin *o, const char *server, int port, int is_https) {
  int is_upgrade = !o->is_https && is_https && o->port == 80 && port == 443;
  return strcasecmp(server, o->server) != 0 || (port != o->port && !is_upgrade);
}

static const char *follow(crl_http_transfer *t, CURLU *url, const char *to) {
  char *scheme = NULL, *server = NULL;
  const char *why = NULL;
  if (strlen(to) > CRL_HTTP_URL)
    why = "it redirects to a URL that is longer than 8192 bytes";
  else if (curl_url_set(url, CURLUPART_URL, to, CURLU_NON_SUPPORT_SCHEME) != CURLUE_OK ||
           curl_url_get(url, CURLUPART_SCHEME, &scheme, 0) != CURLUE_OK ||
           curl_url_get(url, CURLUPART_HOST, &server, 0) != CURLUE_OK ||
           (strcasecmp(scheme, "http") != 0 && strcasecmp(scheme, "https") != 0))
    why = "it redirects to something else than a URL of http or https";
  else if (t->origin->is_https && strcasecmp(scheme, "https") != 0)
    why = "it redirects from https to http";
  if (why == NULL) {
    /* stays set for all later requests */
    if (is_other(t->origin, server, port_of(url), strcasecmp(scheme, "https") == 0))
      t->is_foreign = 1;
    char *copy = strdup(to);
    free(t->url);
    t->url = copy;
    if (copy == NULL) why = "out of memory";
  }
  curl_free(scheme);
  curl_free(server);
  return why;
}

const char *crl_http_url_follow(crl_http_transfer *t, const char *to) {
  CURLU *url = curl_url();
  const char *why = url == NULL ? "out of memory" : follow(t, url, to);
  curl_url_cleanup(url);
  return why;
}
