/* hostmap.h: what the processes of a host tell each other of which server has which keys: one of
 * them asks the store, at most once in CRL_HOSTMAP_MS, and the others take what it has learnt.
 *
 * It stands in the lock file of the host lock, and is read and written under a byte of that. What
 * is read there counts only where the file is this user's, and nobody else may write to it. */
#ifndef CRL_HOSTMAP_H
#define CRL_HOSTMAP_H

#include "election/hostlock.h"
#include "store/pool_options.h"

enum { CRL_HOSTMAP_MS = 100 };

typedef struct crl_hostmap {
  crl_hostlock *lock;
  uint8_t scope[16]; /* digest of what the users of this store have in common */
} crl_hostmap;

void crl_hostmap_init(crl_hostmap *map, crl_hostlock *lock, const char *scope);
/* See crl_sharing; `arg` is a crl_hostmap. */
crl_turn crl_hostmap_take(void *arg, void *room, size_t size, size_t *len);
void crl_hostmap_tell(void *arg, const void *map, size_t len);

#endif
