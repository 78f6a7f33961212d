/* lock.h: one hold of a user's lock, from taking to release.
 *
 * lock.c has the public functions on a hold and extends it, take.c and take_async.c take locks
 * (taking.h), show.c tells who has one or waits for it, desk.c breaks holds of others, list.c and
 * watching.c list and watch locks, ticket.c writes and reads the tickets by which holds are handed
 * over, fence.c counts fencing tokens in a second store, table.c has this process's holds and
 * waiters, steps.c the threads on which event loops' locks ask the store. */
#ifndef CRL_LOCK_H
#define CRL_LOCK_H

#include <corral/lock.h>

#include "context/context.h"
#include "locks/table.h"

/* One taking of a hold. */
struct corral_lock {
  crl_lock_taking taking; /* the first member */
  uint32_t magic;
  struct crl_hold *hold;
  struct crl_hold *memory;      /* whose `first` this is */
  corral_lock_lost_fn *on_lost; /* with what follows: under the table's mutex */
  void *lost_arg;
  int told;          /* the hold was lost: on_lost, if there is one, was called or will be */
  crl_notice notice; /* for on_lost */
  corral_lock_warn_fn *on_warn; /* with what follows: as on_lost */
  void *warn_arg;
  int warned; /* the hold's end was near before on_warn was set */
  crl_notice warning;
};

/* A hold, which its owner has by one or more takings. */
typedef struct crl_hold {
  crl_lock_entry entry; /* the first member */
  crl_context *context;
  crl_key key;
  uint8_t token[CORRAL_TOKEN];
  uint64_t fence;
  int is_permit;
  _Atomic int tied; /* the store ends it when this process dies (corral_store_info.ties) */
  _Atomic int64_t ttl_ms;
  /* End of the hold unless it is extended; crl_env_boot_ms, which also counts while the host
   * sleeps. */
  _Atomic int64_t valid_until;
  _Atomic int has_more;       /* the store says that it lasts longer (CORRAL_OP_MORE) */
  int64_t since;              /* crl_env_boot_ms */
  _Atomic int64_t keep_until; /* crl_env_boot_ms; extended no longer than that; INT64_MAX: no limit;
                                 0: not at all */
  _Atomic int64_t warn_ms;    /* the longest of the takings' that have an on_warn; 0: none has */
  _Atomic int lost;           /* CORRAL_LOST_...; never changes once set */
  crl_renewed_lease kept;
  _Atomic int kept_state; /* CRL_LOCK_UNKEPT, ... */
  char why[144];          /* text for on_lost; written by the thread that sets `lost` */
  char note[CORRAL_LOCK_NOTE];
  corral_lock first; /* a taking of this hold; or of one that the owner had, and this is no hold */
} crl_hold;

/* Whether the renewer has `kept`; from ENTERS on, one thread gives it to the renewer. */
enum { CRL_LOCK_UNKEPT, CRL_LOCK_ENTERS, CRL_LOCK_KEPT };

/* Makes a hold with a random token, not held yet, and its first taking; CORRAL_EINVAL,
 * CORRAL_ENOMEM, CORRAL_EIO. */
int crl_lock_new(crl_context *context, const void *name, size_t name_len, crl_hold **ret,
                 corral_error *error);
void crl_lock_free(crl_hold *hold);
/* An operation on the lock's key with its token; detail goes to *detail. */
corral_op crl_lock_op(const crl_hold *hold, corral_verb verb, corral_error *detail);
void crl_lock_op_drop(corral_op *op);
/* Moves valid_until forward by a grant of the store; its request was sent at `sent`
 * (crl_env_boot_ms). */
void crl_lock_granted(crl_hold *hold, const corral_op *op, int64_t sent);
int64_t crl_lock_left_ms(const crl_hold *hold);
/* Registers a granted hold with the renewer (if it is to be extended or has an on_lost) and with
 * the table. */
void crl_lock_begin(crl_hold *hold, const corral_lock_options *options, uint64_t owner,
                    int64_t sent);
/* The same for one more taking of a hold, which the table has counted: from now on the hold is
 * kept, if the options say so. CORRAL_OK; CORRAL_ELOST: it was lost before. */
int crl_lock_begin_again(corral_lock *lock, const corral_lock_options *options,
                         corral_error *error);
/* A taking that has begun is its caller's: from now on the options' on_lost is told its loss, and
 * on_warn that its end is near, also if that came before. */
void crl_lock_hand_over(corral_lock *lock, const corral_lock_options *options);
/* Extends the hold: LOCK_EXTEND. */
int crl_lock_extend(corral_lock *lock, int64_t ttl_ms, uint32_t flags, corral_error *error);
/* From now on the hold outlasts this process, in the store too; statuses as crl_lock_extend. */
int crl_lock_untie(corral_lock *lock, corral_error *error);
/* Ends the hold in the store; sends UNLOCK again when the reply is lost. */
int crl_lock_unlock(const crl_hold *hold, corral_error *error);
/* Marks the hold as lost and has all its takings told, unless that was done before: this one here.
 * Returns CORRAL_ELOST, with the text in *error. */
int crl_lock_say_lost(corral_lock *lock, int why, corral_error *error);
/* crl_ends_options.ended, of a context: the hold with this token is lost. */
void crl_lock_cut(void *context, const uint8_t *token);
/* CORRAL_OK: the lock is held, as far as is known. CORRAL_EINVAL (not a lock; `what` is the public
 * function's name), CORRAL_EFORKED, CORRAL_ELOST. */
int crl_lock_check_held(corral_lock *lock, const char *what, corral_error *error);
/* CORRAL_OK: this call may release the lock. CORRAL_EINVAL, CORRAL_EFORKED. */
int crl_lock_check_release(const corral_lock *lock, corral_error *error);
/* Gives back one taking; the last one releases the lock. */
int crl_lock_give(corral_lock *lock, corral_error *error);

/* A hold, as a ticket names it. */
typedef struct crl_ticket {
  uint8_t token[CORRAL_TOKEN];
  uint64_t fence;
  int mode; /* CORRAL_LOCK_EXCLUSIVE, ... */
} crl_ticket;

/* Counts on for a hold that was granted: *ret is larger than `floor`, and than all that was counted
 * for locks of this name in the store of `counters`. Asks that store, for its op_ms at most. */
int crl_fence_count(crl_context *counters, const crl_hold *hold, uint64_t floor, uint64_t *ret,
                    corral_error *error);

/* Reads a ticket of the hold's lock; CORRAL_EINVAL. */
int crl_ticket_read(const crl_hold *hold, const char *text, crl_ticket *ret, corral_error *error);
/* CORRAL_OK, or CORRAL_EUNSUPPORTED: this store's holds can't be handed over. */
int crl_ticket_check(const crl_context *context, corral_error *error);

/* Writes at most `room` holders of a lock, from its record as LOCK_SHOW found it; returns how many
 * there are. `holders` may be NULL when room is 0. */
size_t crl_lock_holders(const corral_op *op, crl_context *context, uint64_t hash,
                        corral_lock_holder *holders, size_t room);
/* A print of who holds it, by tokens and kinds: neither the order of the holders nor their times
 * count, nor their texts, which may tell times. */
uint64_t crl_lock_print(const corral_op *op);
/* Places in the queue before that of the hold's token; all, when it has none. */
size_t crl_lock_ahead(const corral_op *op, const crl_hold *hold);

#endif
