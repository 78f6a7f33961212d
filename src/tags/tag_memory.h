/* tag_memory.h: the names of the tags that keys were last seen with, so that a look can ask for
 * their versions together with the value. A key may have other tags by now: they decide nothing.
 *
 * It has room for CRL_TAG_MEMORY keys, in several parts; a full part forgets its oldest key. */
#ifndef CRL_TAG_MEMORY_H
#define CRL_TAG_MEMORY_H

#include "tags/tag_versions.h"

enum {
  CRL_TAG_MEMORY = 4096,     /* keys */
  CRL_TAG_MEMORY_BYTES = 512 /* of a key's names; tags with more are not remembered */
};

typedef struct crl_tag_memory crl_tag_memory;

/* NULL without memory. */
crl_tag_memory *crl_tag_memory_new(void);
void crl_tag_memory_free(crl_tag_memory *memory);
/* Remembers the tags of a key, by its hash (crl_key_hash), in place of those known before; without
 * tags, or memory, forgets them. */
void crl_tag_memory_note(crl_tag_memory *memory, uint64_t hash, const crl_tags *tags);
/* False: no key's tags are remembered. */
int crl_tag_memory_any(const crl_tag_memory *memory);
/* True when a key's tags are remembered. */
int crl_tag_memory_has(crl_tag_memory *memory, uint64_t hash);
/* Wants the versions of a key's tags, if they are remembered. */
void crl_tag_memory_want(crl_tag_memory *memory, uint64_t hash, crl_tag_versions *ret);

#endif
