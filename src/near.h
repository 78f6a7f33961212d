/* near.h: the near tier: copies in this process in front of any store. Bounded by bytes, S3-FIFO; a
 * hit marks and moves nothing.
 *
 * Coherence is the caller's: a copy carries until when it may answer, and crl_near_drop forgets a
 * key as soon as it is known to have changed. A look that was under way when its key changed must
 * not leave what it found: it takes a ticket before it asks the store, and crl_near_put refuses a
 * ticket from before a drop.
 *
 * Keys go by the 64-bit hash that the store's watch tells them by, and by their bytes. Any
 * thread. */
#ifndef CRL_NEAR_H
#define CRL_NEAR_H

#include "value.h"

typedef struct crl_near crl_near;

/* A value as it was found in the store, with its lives as moments (crl_env_now_ms). 0: never was,
 * or over. */
typedef struct crl_near_copy {
  crl_bytes *bytes;    /* a reference; a "no such thing" has bytes too */
  size_t offset, size; /* the value within */
  crl_bytes *metadata; /* what the record says of tags; NULL none. A reference */
  uint8_t kind;        /* CRL_KIND_... */
  int64_t looked;      /* when the store was asked */
  int64_t made;        /* when the value was stored: its age is now - made */
  int64_t fresh_until, swr_until, sie_until;
  int64_t ttl; /* its whole fresh life */
  uint64_t cost_us;
  uint64_t version;
} crl_near_copy;

/* `most`: bytes of all copies, with their keys and a fixed overhead each. NULL without memory. No
 * thread. */
crl_near *crl_near_new(int64_t most);
void crl_near_free(crl_near *near);
/* 1 and *ret (with references of the caller's, to be given to crl_near_copy_clean), else 0. Tells
 * what there is, whatever its lives: a copy whose lives are all over at `now` is forgotten
 * instead. */
int crl_near_get(crl_near *near, uint64_t hash, const void *key, size_t key_len, int64_t now,
                 crl_near_copy *ret);
/* Before the store is asked. */
uint64_t crl_near_ticket(crl_near *near, uint64_t hash);
/* Keeps a copy (references of its own) in place of what there is, unless the key was dropped since
 * the ticket was taken, what there is was looked for later, one copy alone would take more than a
 * tenth of all bytes, or there is no memory. 1 when it was kept. With a good ticket, what there was
 * is forgotten even so: it is older. Copies of kind CRL_KIND_NEGATIVE together take at most a tenth
 * of all bytes, values the rest: neither evicts the other. */
int crl_near_put(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                 const crl_near_copy *copy, uint64_t ticket);
/* Forgets all keys of this hash, and voids tickets for them (tickets of other keys may be voided
 * along with them). */
void crl_near_drop(crl_near *near, uint64_t hash);
/* Forgets all, voids all tickets: whatever keeps it coherent broke. */
void crl_near_clear(crl_near *near);
void crl_near_copy_clean(crl_near_copy *copy);
/* For tests and metrics. The weight counts also what a put that is under way has taken room for. */
size_t crl_near_count(crl_near *near);
size_t crl_near_weight(crl_near *near);

#endif
