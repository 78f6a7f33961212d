/* hostlock.h: the host's rung of the ladder: an election among the processes of one host, by one
 * byte of a lock file.
 *
 * An open file description lock (fcntl(2), F_OFD_SETLK) on the byte at the digest of scope and key:
 * no file per key, no TTL, no token; the kernel frees it when its holder dies. Each hold has an
 * open file description of its own, so threads of one process exclude each other too.
 *
 * Notes. A holder that takes a lease notes the lease's token in the same file, in a fixed table of
 * slots, and erases it before it gives the byte back. So a token that a later holder of the byte
 * finds noted is of a holder that died: its lease has nobody. The file must be on a file system of
 * this host. Two bytes may share a slot, and a note may be torn, missing or forged: a note says
 * nothing but by its equality with the token of the lease, 128 random bits of one key. */
#ifndef CRL_HOSTLOCK_H
#define CRL_HOSTLOCK_H

#include <corral/plugin.h>

#include "ticket.h"

typedef struct crl_hostlock crl_hostlock;

/* `folder`: where the lock file lives; NULL: $CORRAL_HOST_DIR, else /dev/shm/corral-UID, else
 * /tmp/corral-UID, made with mode 0700 when first needed and refused unless it is a folder of this
 * user's that nobody else may write to (a folder that was named must exist and is taken as it is).
 * `scope`: text that all users of the same store and namespace have in common; copied. No I/O. NULL
 * without memory. */
crl_hostlock *crl_hostlock_new(const char *folder, const char *scope);
void crl_hostlock_free(crl_hostlock *lock);
/* Tries once. CORRAL_OK: *ret_hold is to be given to crl_hostlock_give. CORRAL_EBUSY: somebody has
 * it. Else CORRAL_EIO with a text: there is no such rung here. */
int crl_hostlock_take(crl_hostlock *lock, const void *key, size_t key_len, int *ret_hold,
                      corral_error *error);
/* Whether anybody has it now; 0 also when there is no such rung. */
int crl_hostlock_is_held(crl_hostlock *lock, const void *key, size_t key_len);
/* Before the claim of a lease is sent by the holder: notes its token, and that of the lease that
 * the claim takes over (NULL: of none), which counts until the claim has arrived. Where it can't be
 * written there is no note. */
void crl_hostlock_note(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token, const uint8_t *over);
/* For the holder: 1 if an earlier one noted this token, and died. */
int crl_hostlock_noted(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                       const uint8_t *token);
/* Erases the holder's own note. */
void crl_hostlock_erase(const crl_hostlock *lock, int hold, const void *key, size_t key_len,
                        const uint8_t *token);
/* Explicitly unlocked, for a child that was forked meanwhile has the description too. */
void crl_hostlock_give(int hold);
/* Returns when nobody has it any more, `ticket` (may be NULL) is cancelled, or at `until`
 * (crl_env_now_ms): looks after 0.1 ms, twice as long each time up to 4 ms. */
void crl_hostlock_wait(crl_hostlock *lock, const void *key, size_t key_len, int64_t until,
                       const corral_ticket *ticket);

#endif
