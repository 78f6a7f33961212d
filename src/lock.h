/* lock.h: one hold of a user's lock, from taking to release.
 *
 * lock.c has the public functions on a hold and its keeping, lock_take.c the way to one,
 * lock_table.c what this process has and wants, lock_record.c what the verbs do to a record. */
#ifndef CRL_LOCK_H
#define CRL_LOCK_H

#include <corral/lock.h>

#include "handle.h"

struct corral_lock {
  crl_lock_entry entry; /* the first member */
  uint32_t magic;
  crl_station *station;
  crl_key key;
  uint8_t token[CORRAL_TOKEN];
  uint64_t fence;
  int64_t ttl_ms;
  _Atomic int shared;
  /* Ends of the hold, if it isn't extended, by crl_env_boot_ms: it also counts while the host
   * sleeps. */
  _Atomic int64_t valid_until;
  int64_t since;      /* crl_env_boot_ms */
  int64_t keep_until; /* crl_env_boot_ms; INT64_MAX: it isn't kept */
  _Atomic int lost;   /* CORRAL_LOST_...; once it is set, it stays */
  crl_kept_lease kept;
  int is_kept; /* the keeper has it */
  corral_lock_lost_fn *on_lost;
  void *lost_arg;
  crl_notice notice; /* of its loss */
  char why[200];     /* what on_lost is told; written by who set `lost` */
  char note[CORRAL_LOCK_NOTE];
};

/* A lock that isn't held yet, with a token; CORRAL_EINVAL, CORRAL_ENOMEM, CORRAL_EIO. */
int crl_lock_new(crl_station *station, const void *name, size_t name_len, corral_lock **ret,
                 corral_error *error);
void crl_lock_free(corral_lock *lock);
/* An operation on its key, with its token; detail goes to *detail. */
corral_op crl_lock_op(const corral_lock *lock, corral_verb verb, corral_error *detail);
void crl_lock_op_drop(corral_op *op);
/* The store granted what was asked for at `sent` (crl_env_boot_ms). */
void crl_lock_granted(corral_lock *lock, const corral_op *op, int64_t sent);
/* From now on it is held: known to the table and to the keeper. */
void crl_lock_begin(corral_lock *lock, const corral_lock_options *options, uint64_t owner,
                    int64_t sent);
/* Ends the hold in the store; asks twice when the first reply was lost. */
int crl_lock_unlock(const corral_lock *lock, corral_error *error);
/* Tells that it is lost, if nobody has; returns CORRAL_ELOST with its text. */
int crl_lock_say_lost(corral_lock *lock, int why, corral_error *error);
/* Gives back one taking; the last one frees it. */
int crl_lock_give(corral_lock *lock, corral_error *error);

/* Writes who holds a lock by a record and the store's time; how many there are. *who may be
 * NULL. */
size_t crl_lock_holders(const corral_op *op, crl_station *station, uint64_t hash,
                        corral_lock_holder *holders, size_t room);

#endif
