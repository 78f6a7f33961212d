/* hostlock.h: the host lock, a rung of the ladder: an election among the processes of one host, by
 * one byte of a lock file.
 *
 * An open file description lock (fcntl(2), F_OFD_SETLK) on the byte at the digest of scope and key:
 * no file per key, no TTL, no token; the kernel frees it when its holder dies. Each hold has an
 * open file description of its own, so threads of one process exclude each other too.
 *
 * Notes. A holder that takes a lease notes the lease token in the same file, in a fixed table of
 * slots, and erases the note before it gives the byte back. So a token that a later holder of the
 * byte finds noted belongs to a holder that died, and nobody keeps its lease. The file must be on a
 * file system of this host. Two bytes may share a slot, and a note may be torn, missing or forged:
 * a note counts only if it equals the token of the lease, 128 random bits of one key. */
#ifndef CRL_HOSTLOCK_H
#define CRL_HOSTLOCK_H

#include <corral/plugin.h>

#include "os/cancel.h"

typedef struct crl_hostlock crl_hostlock;

/* `folder`: where the lock file lives; NULL: $CORRAL_HOST_DIR, else /dev/shm/corral-UID, else
 * /tmp/corral-UID, made with mode 0700 when first needed and refused unless it is a folder of this
 * user's that no other user may write to (a folder that was named must exist and is taken as it
 * is). `scope`: text that all users of the same store and namespace have in common; hashed. No I/O.
 * NULL without memory. */
crl_hostlock *crl_hostlock_new(const char *folder, const char *scope);
void crl_hostlock_free(crl_hostlock *lock);
/* Tries once. CORRAL_OK: *ret_hold is to be given to crl_hostlock_give. CORRAL_EBUSY: it is held.
 * CORRAL_EIO, with a text: there is no host lock here. */
int crl_hostlock_take(crl_hostlock *lock, const void *key, size_t key_len, int *ret_hold,
                      corral_error *error);
/* 1: it is held now; 0: it is free, or there is no host lock here. */
int crl_hostlock_is_held(crl_hostlock *lock, const void *key, size_t key_len);
/* Called by the holder before it sends a claim: notes its lease token and, in `over`, that of the
 * lease that the claim takes over (NULL: none), which counts until the claim has arrived. Where the
 * file can't be written there is no note. */
void crl_hostlock_note(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token, const uint8_t *over);
/* For the holder: 1 if an earlier holder noted this token, and died. */
int crl_hostlock_noted(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token);
/* Erases the holder's own note. */
void crl_hostlock_erase(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                        const uint8_t *token);
/* Remembers that the present holder was passed by: it hangs, or is cut off from the store. */
void crl_hostlock_pass(crl_hostlock *lock, const void *key, size_t key_len);
/* 1 if the present holder is the one that was passed by, as far as can be told: it was remembered,
 * `lock` has not had the byte since then, and no holder has noted a token. */
int crl_hostlock_passed(crl_hostlock *lock, const void *key, size_t key_len);
/* Gives the hold back. Unlocks explicitly, because a child that was forked meanwhile shares the
 * description. */
void crl_hostlock_give(int hold);
/* Waits until it is free, `cancel token` (may be NULL) is cancelled, or `until` (crl_env_now_ms):
 * looks after 0.1 ms, then doubles the pause up to 4 ms. */
void crl_hostlock_wait(crl_hostlock *lock, const void *key, size_t key_len, int64_t until,
                       const corral_cancel_token *cancel_token);

#endif
