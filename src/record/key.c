/* key.c: encodes the keys that a store gets. */
#include "record/key.h"

#include <corral.h>
#include <stdlib.h>
#include <string.h>

#include "base/value.h"

static const char digits[] = "0123456789ABCDEF";
static const char short_word[] = "~long:";
static const char *const words[] = {[CRL_KEY_VALUE] = "~variant:",
                                    [CRL_KEY_TAG] = "~tag:",
                                    [CRL_KEY_LOCK] = "~lock:",
                                    [CRL_KEY_SLOT] = "~slot:",
                                    [CRL_KEY_CONTROL] = "~control:"};

_Static_assert(CRL_KEY_SHORT == sizeof short_word - 1 + 2 * CRL_DIGEST,
               "a short form is its word and a digest in hex");

/* ---- writing ------------------------------------------------------------------------------- */

static uint8_t *put(uint8_t *to, const void *bytes, size_t len) {
  if (len > 0) memcpy(to, bytes, len);
  return to + len;
}

static uint8_t *put_escaped(uint8_t *to, uint8_t byte) {
  *to++ = '%';
  *to++ = (uint8_t)digits[byte >> 4];
  *to++ = (uint8_t)digits[byte & 15];
  return to;
}

static int is_plain(uint8_t byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') ||
         (byte >= 'a' && byte <= 'z') || byte == '.' || byte == '_' || byte == '-';
}

static uint8_t *put_variant(uint8_t *to, const crl_name *name) {
  const uint8_t *variant = name->variant;
  for (size_t i = 0; i < name->variant_len; i++) {
    if (is_plain(variant[i]))
      *to++ = variant[i];
    else
      to = put_escaped(to, variant[i]);
  }
  *to++ = ':';
  return to;
}

int crl_key_space_make(crl_key_space *space, const char *name_space) {
  size_t len = name_space == NULL ? 0 : strlen(name_space);
  uint8_t *prefix = crl_alloc(3 * len + 2), *at = prefix;
  if (prefix == NULL) return CORRAL_ENOMEM;
  for (size_t i = 0; i < len; i++) {
    uint8_t byte = (uint8_t)name_space[i];
    if (byte == ':' || byte == '%' || byte == '~')
      at = put_escaped(at, byte);
    else
      *at++ = byte;
  }
  if (len > 0) *at++ = ':';
  *at = '\0';
  space->prefix = (char *)prefix;
  space->prefix_len = (size_t)(at - prefix);
  return CORRAL_OK;
}

/* ---- a key --------------------------------------------------------------------------------- */

/* True when the key has no namespace, and needs a colon in the place of one: without it the key
 * could be read as another one. */
static int wants_colon(crl_key_kind kind, const crl_key_space *space, const crl_name *name) {
  if (space->prefix_len > 0) return 0;
  if (kind != CRL_KEY_VALUE || name->variant_len > 0 || name->key_len == 0) return 1;
  return *(const uint8_t *)name->key == '~' || memchr(name->key, ':', name->key_len) != NULL;
}

static size_t room_for(size_t word_len, const crl_key_space *space, const crl_name *name) {
  return word_len + space->prefix_len + 1 + 3 * name->variant_len + 1 + name->key_len +
         name->variant_len;
}

static void shorten(crl_key *key) {
  uint8_t *at = put(key->short_form, short_word, sizeof short_word - 1);
  uint8_t digest[CRL_DIGEST];
  crl_digest(key->whole, key->whole_len, digest);
  for (size_t i = 0; i < CRL_DIGEST; i++) {
    *at++ = (uint8_t)digits[digest[i] >> 4];
    *at++ = (uint8_t)digits[digest[i] & 15];
  }
  key->stored = key->short_form;
  key->stored_len = CRL_KEY_SHORT;
}

int crl_key_make(crl_key *key, crl_key_kind kind, const crl_key_space *space,
                 const crl_name *name) {
  const char *word = kind == CRL_KEY_VALUE && name->variant_len == 0 ? NULL : words[kind];
  size_t word_len = word == NULL ? 0 : strlen(word), room = room_for(word_len, space, name);
  uint8_t *at = key->whole = room <= sizeof key->room ? key->room : crl_alloc(room);
  key->has_digest = 0;
  if (at == NULL) return CORRAL_ENOMEM;
  at = put(at, word, word_len);
  at = put(at, space->prefix, space->prefix_len);
  if (wants_colon(kind, space, name)) *at++ = ':';
  if (name->variant_len > 0) at = put_variant(at, name);
  key->user = at;
  key->user_len = name->key_len;
  at = put(at, name->key, name->key_len);
  key->stored = key->whole;
  key->stored_len = key->whole_len = (size_t)(at - key->whole);
  key->variant = at;
  key->variant_len = name->variant_len;
  put(at, name->variant, name->variant_len);
  if (key->whole_len > space->max_key) shorten(key);
  return CORRAL_OK;
}

int crl_key_plain(const crl_key_space *space, const crl_name *name, uint8_t *room, size_t size,
                  const void **ret, size_t *ret_len) {
  int colon = wants_colon(CRL_KEY_VALUE, space, name);
  size_t front = space->prefix_len + (size_t)colon;
  *ret = front == 0 ? name->key : room;
  *ret_len = front + name->key_len;
  if (*ret_len > space->max_key || (front > 0 && *ret_len > size)) return 0;
  if (front == 0) return 1;
  if (colon)
    *room = ':';
  else
    memcpy(room, space->prefix, front);
  memcpy(room + front, name->key, name->key_len);
  return 1;
}

void crl_key_clean(crl_key *key) {
  if (key->whole != key->room) free(key->whole);
  key->whole = NULL;
}

void crl_key_moved(crl_key *to, const crl_key *from) {
  if (from->whole == from->room) {
    to->whole = to->room;
    to->user = to->room + (from->user - from->room);
    to->variant = to->room + (from->variant - from->room);
  }
  to->stored = from->stored == from->short_form ? to->short_form : to->whole;
}

const uint8_t *crl_key_digest(crl_key *key) {
  if (!key->has_digest) crl_sum(key->whole, key->whole_len, key->digest);
  key->has_digest = 1;
  return key->digest;
}

uint64_t crl_key_hash(const crl_key *key) { return crl_hash(key->stored, key->stored_len); }

const void *crl_key_shown(const void *stored, size_t stored_len, size_t *ret_len) {
  const char *key = stored,
             *colon = stored_len > 0 && *key != '~' ? memchr(key, ':', stored_len) : NULL;
  const char *user = colon == NULL ? key : colon + 1;
  *ret_len = stored_len - (size_t)(user - key);
  return user;
}

uint64_t crl_name_hash(const crl_name *name) {
  uint64_t hashes[2] = {crl_hash(name->key, name->key_len), 0};
  if (name->variant_len == 0) return hashes[0];
  hashes[1] = crl_hash(name->variant, name->variant_len);
  return crl_hash(hashes, sizeof hashes);
}
