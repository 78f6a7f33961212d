/* key.c: a key as memcached accepts it: 1 to 250 printable characters, no space.
 *
 * Bytes that memcached accepts stay as they are, except '%'; the others are percent-encoded. A key
 * that is too long then is replaced by its digest. */
#include "memcached.h"

static void name_by_digest(const corral_host *host, const void *key, size_t key_len,
                           crl_memcached_key *ret) {
  static const char prefix[] = "~long:"; /* no key of a user's value begins with '~' */
  static const char hex[] = "0123456789abcdef";
  uint8_t digest[16];
  char *to = ret->text;
  host->digest(key, key_len, digest);
  for (const char *at = prefix; *at != '\0'; at++) *to++ = *at;
  for (size_t i = 0; i < sizeof digest; i++) {
    *to++ = hex[digest[i] >> 4];
    *to++ = hex[digest[i] & 15];
  }
  *to = '\0';
  ret->len = (size_t)(to - ret->text);
}

void crl_memcached_encode(const corral_host *host, const void *key, size_t key_len,
                          crl_memcached_key *ret) {
  static const char hex[] = "0123456789abcdef";
  const uint8_t *from = key;
  size_t len = 0;
  for (size_t i = 0; i < key_len; i++) {
    int plain = from[i] >= 0x21 && from[i] <= 0x7e && from[i] != '%';
    if (len + (plain ? 1 : 3) > CRL_MEMCACHED_KEY) {
      name_by_digest(host, key, key_len, ret);
      return;
    }
    if (plain) {
      ret->text[len++] = (char)from[i];
    } else {
      ret->text[len++] = '%';
      ret->text[len++] = hex[from[i] >> 4];
      ret->text[len++] = hex[from[i] & 15];
    }
  }
  ret->text[len] = '\0';
  ret->len = len;
}
