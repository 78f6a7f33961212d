/* lock.h: one hold of a user's lock, from taking to release.
 *
 * lock.c has the public functions on a hold and extends it, take.c takes locks, table.c
 * has this process's holds and waiters, lock_record.c applies the verbs to a lock's record. */
#ifndef CRL_LOCK_H
#define CRL_LOCK_H

#include <corral/lock.h>

#include "context/context.h"
#include "locks/table.h"

struct corral_lock {
  crl_lock_entry entry; /* the first member */
  uint32_t magic;
  crl_context *context;
  crl_key key;
  uint8_t token[CORRAL_TOKEN];
  uint64_t fence;
  int64_t ttl_ms;
  _Atomic int shared;
  /* End of the hold unless it is extended; crl_env_boot_ms, which also counts while the host
   * sleeps. */
  _Atomic int64_t valid_until;
  int64_t since;      /* crl_env_boot_ms */
  int64_t keep_until; /* crl_env_boot_ms; extended no longer than that; INT64_MAX: no limit */
  _Atomic int lost;   /* CORRAL_LOST_...; never changes once set */
  crl_renewed_lease kept;
  int is_kept; /* the renewer has `kept` */
  corral_lock_lost_fn *on_lost;
  void *lost_arg;
  crl_notice notice; /* for on_lost, when the renewer learns of the loss */
  char why[144];     /* text for on_lost; written by the thread that sets `lost` */
  char note[CORRAL_LOCK_NOTE];
};

/* Makes a lock with a random token, not held yet; CORRAL_EINVAL, CORRAL_ENOMEM, CORRAL_EIO. */
int crl_lock_new(crl_context *context, const void *name, size_t name_len, corral_lock **ret,
                 corral_error *error);
void crl_lock_free(corral_lock *lock);
/* An operation on the lock's key with its token; detail goes to *detail. */
corral_op crl_lock_op(const corral_lock *lock, corral_verb verb, corral_error *detail);
void crl_lock_op_drop(corral_op *op);
/* Moves valid_until forward by a grant of the store; its request was sent at `sent`
 * (crl_env_boot_ms). */
void crl_lock_granted(corral_lock *lock, const corral_op *op, int64_t sent);
/* Registers a granted hold with the renewer (if it is to be extended or has an on_lost) and with
 * the table. */
void crl_lock_begin(corral_lock *lock, const corral_lock_options *options, uint64_t owner,
                    int64_t sent);
/* Ends the hold in the store; sends UNLOCK again when the reply is lost. */
int crl_lock_unlock(const corral_lock *lock, corral_error *error);
/* Marks the lock as lost and calls on_lost, unless that was done before. Returns CORRAL_ELOST, with
 * the text in *error. */
int crl_lock_say_lost(corral_lock *lock, int why, corral_error *error);
/* crl_ends_options.ended, of a context: the hold with this token is lost. */
void crl_lock_cut(void *context, const uint8_t *token);
/* Gives back one taking; the last one releases and frees the lock. */
int crl_lock_give(corral_lock *lock, corral_error *error);

/* Writes at most `room` holders of a lock, from its record as LOCK_SHOW found it; returns how many
 * there are. `holders` may be NULL when room is 0. */
size_t crl_lock_holders(const corral_op *op, crl_context *context, uint64_t hash,
                        corral_lock_holder *holders, size_t room);

#endif
