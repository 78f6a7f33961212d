/* words.c: words of lists in headers, and the parts of keys that pages are known by; see
 * rules.h. */
#include "rules.h"

#include <string.h>

static int is_between(char c) { return c == ' ' || c == ',' || c == '\t'; }

size_t crl_http_word(const char *list, size_t size, size_t *at) {
  while (*at < size && is_between(list[*at])) ++*at;
  size_t len = 0;
  while (*at + len < size && !is_between(list[*at + len])) len++;
  return len;
}

size_t crl_http_beginning(const char *key, size_t len, size_t from) {
  for (size_t i = from; i < len && key[i] != '?'; i++) {
    int is_doubled = (i > 0 && key[i - 1] == '/') || (i + 1 < len && key[i + 1] == '/');
    if (key[i] == '/' && !is_doubled) return i + 1;
  }
  return 0;
}

size_t crl_http_vary_names(const char *vary, unsigned char names[CRL_HTTP_VARY]) {
  size_t used = 0, len;
  for (size_t at = 0; (len = crl_http_word(vary, strlen(vary), &at)) > 0; at += len) {
    if (len == 15 && memcmp(vary + at, "accept-encoding", 15) == 0) continue;
    if (used > 0) names[used++] = ' ';
    memcpy(names + used, vary + at, len);
    used += len;
  }
  return used;
}
