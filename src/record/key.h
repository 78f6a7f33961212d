/* key.h: encodes the keys that a store gets. Pure.
 *
 * One encoding of (kind, namespace, user's key, variant); two different ones never give the same
 * stored key:
 *
 *   KEY                             a value without a namespace, if KEY has no ':' and no '~' in
 *                                   front
 *   NAMESPACE:KEY                   a value; NAMESPACE may be empty
 *   ~variant:NAMESPACE:VARIANT:KEY  a variant of a value
 *   ~tag:NAMESPACE:TAG              the tag version of a tag
 *   ~lock:NAMESPACE:NAME            a user's lock
 *   ~slot::NUMBER:ORIGIN            a slot of the fleet's limiter
 *   ~control:NAMESPACE:             an operator's order to all who have this namespace open
 *   ~long:DIGEST                    one of the above, longer than the store takes: its digest in
 *                                   hex
 *
 * KEY, TAG, NAME and ORIGIN are the user's bytes as they are; they come last, so none of their
 * bytes can be taken for what stands before. In NAMESPACE ':', '%' and '~' are written as %XX, in
 * VARIANT all but letters, digits, '.', '_' and '-'. What stands before KEY has a brace only where
 * NAMESPACE has one, so a Redis hash tag in KEY names the slot of the value and of its variants. A
 * leading '~' marks all forms but the first two, and keys that plugins add. */
#ifndef CRL_KEY_H
#define CRL_KEY_H

#include <stddef.h>
#include <stdint.h>

#include "os/hash.h"

enum { CRL_KEY_SHORT = 6 + 2 * CRL_DIGEST };

typedef enum crl_key_kind {
  CRL_KEY_VALUE,
  CRL_KEY_TAG,
  CRL_KEY_LOCK,
  CRL_KEY_SLOT,
  CRL_KEY_CONTROL
} crl_key_kind;

/* The namespace of a corral's keys, and their limit. */
typedef struct crl_key_space {
  char *prefix; /* the namespace as it is written, with its colon; "" or NULL without one */
  size_t prefix_len;
  size_t max_key; /* of the store; at least CRL_KEY_SHORT */
} crl_key_space;

/* A user's name for a value, a tag or a lock. */
typedef struct crl_name {
  const void *key;
  size_t key_len;
  const void *variant;
  size_t variant_len; /* 0: none */
} crl_name;

typedef struct crl_key {
  uint8_t *whole; /* the encoded key */
  size_t whole_len;
  const uint8_t *user; /* the user's key within whole */
  size_t user_len;
  const uint8_t *variant; /* the user's variant, not escaped, behind the key in `whole` */
  size_t variant_len;
  const uint8_t *stored; /* the key for the store: whole, or short_form */
  size_t stored_len;
  int has_digest;
  uint8_t digest[CRL_DIGEST];
  uint8_t short_form[CRL_KEY_SHORT];
  uint8_t room[256]; /* for `whole`, when it fits */
} crl_key;

/* Sets prefix and prefix_len by a namespace (NULL or "": none); the prefix is malloc'ed.
 * CORRAL_ENOMEM. */
int crl_key_space_make(crl_key_space *space, const char *name_space);
/* CORRAL_OK: to be given to crl_key_clean; or CORRAL_ENOMEM. The struct must not be moved but by
 * crl_key_moved. A name
 * with a key of length 0 is allowed, and is no user's. */
int crl_key_make(crl_key *key, crl_key_kind kind, const crl_key_space *space, const crl_name *name);
void crl_key_clean(crl_key *key);
/* Sets *ret to the stored key of a value without a variant, as crl_key_make does: to the user's own
 * bytes, or into `room`. 0: it needs more room, or another form. */
int crl_key_plain(const crl_key_space *space, const crl_name *name, uint8_t *room, size_t size,
                  const void **ret, size_t *ret_len);
/* After a copy of the struct: `to` takes over what `from` has. */
void crl_key_moved(crl_key *to, const crl_key *from);
/* The digest of the whole encoded key that its record has: the same in all processes and stores.
 * Computed once. It guards against a mix-up, not against an adversary, who can't be kept from
 * writing a record with any digest anyway. */
const uint8_t *crl_key_digest(crl_key *key);
/* Hash of the stored key, for tables of this process; the store's watch tells changes by it. */
uint64_t crl_key_hash(const crl_key *key);
/* The user's key within the stored key of a value; other kinds and shortened keys are returned as
 * they are. */
const void *crl_key_shown(const void *stored, size_t stored_len, size_t *ret_len);

/* Hash of a name, for tables of this process. */
uint64_t crl_name_hash(const crl_name *name);

#endif
