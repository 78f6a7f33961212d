/* near.h: the near tier: copies of values in this process, in front of any store. Bounded by bytes;
 * evicts by S3-FIFO; a hit takes no lock, is counted and moves nothing.
 *
 * Coherence is the caller's: a copy has the moments until which it may answer, and crl_near_drop
 * forgets a key as soon as it is known to have changed. A look that is under way while its key
 * changes must not leave a copy: the caller takes a epoch before it asks the store, and
 * crl_near_put refuses a epoch from before a drop.
 *
 * Keys are compared by the 64-bit hash that the store's watch uses, and by their bytes. Any
 * thread. */
#ifndef CRL_NEAR_H
#define CRL_NEAR_H

#include "base/marks.h"
#include "near/copy.h"

typedef struct crl_near crl_near;

/* `most`: bytes of all copies, with their keys and a fixed overhead each. NULL without memory.
 * Starts no thread. */
crl_near *crl_near_new(int64_t most);
void crl_near_free(crl_near *near);
/* The copy of a key, NULL: none; between crl_readers_enter and crl_readers_leave (os/readers.h),
 * until which it stays as it is. The caller judges the lives; only a copy whose lives are all over
 * at `now` is forgotten instead. */
const crl_near_copy *crl_near_look(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                                   int64_t now);
/* From now on the hashes of keys whose forgotten copies looks find are marked. */
void crl_near_mark_over(crl_near *near, crl_marks *over);
/* The value of a copy that was found, at *offset within a reference of the caller's. NULL without
 * memory. */
crl_bytes *crl_near_bytes(const crl_near_copy *copy, size_t *offset);
/* To be taken before the store is asked. */
uint64_t crl_near_epoch(crl_near *near, uint64_t hash);
/* Keeps a copy, with references of its own, in place of the present one; 1 when it is kept.
 * Refused: a epoch from before a drop of the key; a look earlier than the present copy's; a copy
 * of more than a tenth of all bytes; a lack of memory or room. The present copy is forgotten in the
 * last two cases as well, since it is older. Copies of kind CRL_KIND_NEGATIVE together take at most
 * a tenth of all bytes, values the rest: neither evicts the other. */
int crl_near_put(crl_near *near, uint64_t hash, const void *key, size_t key_len,
                 const crl_near_copy *copy, uint64_t epoch);
/* Forgets all keys of this hash and voids their epochs; epochs of other keys may be voided,
 * too. */
void crl_near_drop(crl_near *near, uint64_t hash);
/* The store's watch may have missed changes of these keys: as before crl_near_confirm, and epochs
 * are voided. */
void crl_near_doubt(crl_near *near, uint64_t hash);
/* The store's watch has registered the keys of this hash, and their record has this print: copies
 * of it are confirmed, other ones are forgotten. */
void crl_near_confirm(crl_near *near, uint64_t hash, uint64_t print);
/* Forgets all copies and voids all epochs; for when changes may have been missed. */
void crl_near_clear(crl_near *near);
/* For tests and metrics. The weight includes the room of puts that are under way. */
size_t crl_near_count(crl_near *near);
size_t crl_near_weight(crl_near *near);
/* The same of copies that were removed and are not freed yet, since readers may have them. */
size_t crl_near_removed(crl_near *near);

#endif
