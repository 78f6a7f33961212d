/* hostmap.h: what the processes of a host tell each other of which server has which keys: one of
 * them asks the store, at most once in CRL_HOSTMAP_MS, and the others take what it has learnt.
 *
 * It stands in the lock file of the host lock, and is read and written under a byte of that. What
 * is read there counts only where the file is this user's, and nobody else may write to it. */
#ifndef CRL_HOSTMAP_H
#define CRL_HOSTMAP_H

#include "election/hostlock.h"
#include "store/pool_options.h"

enum {
  CRL_HOSTMAP_MS = 100,
  CRL_HOSTMAP_BUSY_MS = 1000 /* a process that has the byte for longer was stopped: no one waits */
};

typedef struct crl_hostmap {
  crl_hostlock *lock;
  uint8_t scope[16]; /* digest of what the users of this store have in common */
  int64_t asked;     /* when this process asked the store, crl_env_boot_ms */
  int64_t busy;      /* since when another process has the byte, crl_env_boot_ms; 0: it hasn't */
} crl_hostmap;

void crl_hostmap_init(crl_hostmap *map, crl_hostlock *lock, const char *scope);
/* See crl_sharing; `arg` is a crl_hostmap. One thread at a time. */
crl_turn crl_hostmap_take(void *arg, int64_t age_ms, void *room, size_t size, size_t *len);
void crl_hostmap_tell(void *arg, const void *map, size_t len);

#endif
