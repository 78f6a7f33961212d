/* lock.h: locks for the user's own critical sections, on the stores of a corral.
 *
 *   corral_lock *lock;
 *   int status = corral_lock_take(c, "nightly", 7,
 *                                 CORRAL_LOCK(.ttl_ms = 10000, .keep = 1, .error = &error), &lock);
 *   if (status == CORRAL_OK) {
 *     work(corral_lock_fence(lock));
 *     status = corral_lock_release(lock, &error);
 *   }
 *
 * What breaks. No lock service can keep two holders apart for ever: one who was stopped (a pause of
 * the machine, SIGSTOP, swap, a partition) outlives his hold without knowing it. So a hold ends by
 * the store's clock, its loss is told, and each has a fencing token that is larger than those of
 * all earlier holds of that name: a resource that refuses a token smaller than the largest it has
 * seen can't be changed by a holder whose time is over (Kleppmann, "How to do distributed locking",
 * 2016). A release never ends somebody else's hold. What each store adds or lacks is in
 * docs/locks.md.
 *
 * Time. A hold begins and ends by the store's clock; how much is left of it is counted here on the
 * monotonic clock, from before the request was sent, so this process thinks it over sooner than the
 * store does. The wall clock of this host is never asked.
 *
 * Names are bytes: 1 to 65,536 of them, of any value. In the store, "lock:" goes before them, and
 * the corral's namespace before that. Threads: any function from any thread, but a lock is used by
 * nobody when it is released. Close: all locks of a corral must be released before corral_close.
 * Fork: as with corral.h; a child must not use, and needs not release, its parent's locks. */
#ifndef CORRAL_LOCK_H
#define CORRAL_LOCK_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One hold of a lock. */
typedef struct corral_lock corral_lock;

/* Rows of a lock's options; as CORRAL_POLICY_MAP in corral.h. */
#define CORRAL_LOCK_MAP(X)                                                                         \
  X(ttl_ms, "ms", 10000, 50, 86400000,                                                             \
    "Life of a hold by the store's clock, after taking and each extending.")                       \
  X(wait_ms, "ms", 5000, -1, 86400000, "How long to wait for the lock; -1: one try.")              \
  X(shared, "flag", -1, -1, 1, "1: together with other shared holds (readers); -1: alone.")        \
  X(keep, "flag", -1, -1, 1,                                                                       \
    "1: extended every third of ttl_ms by a thread until it is released.")                         \
  X(keep_max_ms, "ms", 3600000, 50, 31536000000,                                                   \
    "After so long it is kept no more, and ends by its ttl_ms.")                                   \
  X(reentrant, "flag", -1, -1, 1,                                                                  \
    "1: who has it may take it again, which is counted; -1: an error at once.")                    \
  X(poll_ms, "ms", 5, 1, 60000,                                                                    \
    "A waiter's first pause where the store doesn't wake it; grows, with full jitter.")            \
  X(poll_max_ms, "ms", 250, 1, 60000, "Longest such pause.")                                       \
  X(repair_ms, "ms", -1, -1, 86400000,                                                             \
    "What else than corral left at the lock's key without an end gets so long.")

/* Told once, when it is known that a hold was over before it was released: on a thread of the
 * corral that does nothing else, one loss after the other, or within the call that learned it.
 * `why`: what is needed to roll back (name, fencing token, since when, expired or taken by whom).
 * No lock of the library is held, and nothing is kept waiting but the release of `lock`, and other
 * losses: it may take its time and call any function, also release other locks. Only the release of
 * `lock` itself is refused (CORRAL_EINVAL; it is to be released afterwards), and corral_close does
 * nothing. */
typedef void corral_lock_lost_fn(corral_lock *lock, const char *why, void *arg);

typedef struct corral_lock_options {
  size_t size;           /* sizeof(corral_lock_options), set by CORRAL_LOCK */
  corral_error *error;   /* where detail goes; may be NULL */
  corral_ticket *ticket; /* corral_cancel ends the wait; may be NULL */
  /* for others to read beside the host, process and thread; at most 40 bytes count; may be NULL */
  const char *note;
  /* who has it, within this process: for re-entrancy; NULL: the calling thread */
  const char *owner;
  corral_lock_lost_fn *on_lost; /* may be NULL */
  void *lost_arg;
#define CORRAL_LOCK_FIELD(name, unit, def, least, most, text) int64_t name; /* text */
  CORRAL_LOCK_MAP(CORRAL_LOCK_FIELD)
#undef CORRAL_LOCK_FIELD
} corral_lock_options;

/* Options in place (C only); what is 0 is the table's default. */
#define CORRAL_LOCK(...) (&(corral_lock_options){.size = sizeof(corral_lock_options), __VA_ARGS__})

/* Takes a lock, waiting for it if it must: woken where the store tells of changes, else with pauses
 * that grow. Of the waiters in one process one asks the store at a time. `options` may be NULL. On
 * CORRAL_OK *ret is to be given to corral_lock_release, once for each taking. CORRAL_EBUSY (wait_ms
 * is CORRAL_OFF, and somebody else has it; the text says who), CORRAL_EDEADLINE (the same after
 * waiting), CORRAL_ECANCELLED, CORRAL_ERECURSION (this owner has it: waiting would be for itself;
 * also a reader who wants to write), CORRAL_ELOST (re-entrant: this owner had it, and lost it),
 * CORRAL_EFOREIGN (something that corral did not write, without an end), CORRAL_EUNAVAILABLE,
 * CORRAL_EUNKNOWN (no reply: a hold that may have come of it is released, or ends by ttl_ms),
 * CORRAL_EREFUSED, CORRAL_EUNSUPPORTED (this store has no locks, or no shared ones), CORRAL_EINVAL,
 * CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_EIO (no randomness for a token). */
CORRAL_API int corral_lock_take(corral *c, const void *name, size_t name_len,
                                const corral_lock_options *options, corral_lock **ret);

/* What became of a hold, in corral_error.code with CORRAL_ELOST. */
enum {
  CORRAL_LOST_EXPIRED = 1, /* it is over, and nobody else has the lock */
  CORRAL_LOST_TAKEN = 2    /* somebody else has it */
};

/* Ends the hold (of a re-entrant one: the last release does), stops its keeper first, and frees
 * `lock`, whatever the status. NULL is allowed. CORRAL_OK. CORRAL_ELOST: the hold was over before;
 * what was done since when isn't known: see on_lost. CORRAL_EUNKNOWN, CORRAL_EUNAVAILABLE: no
 * reply, also when asked twice; it is over by its ttl_ms at the latest. */
CORRAL_API int corral_lock_release(corral_lock *lock, corral_error *error);
/* The hold ends no earlier than ttl_ms (0: its own) from now. CORRAL_ELOST, CORRAL_EUNKNOWN,
 * CORRAL_EUNAVAILABLE; CORRAL_EINVAL. */
CORRAL_API int corral_lock_extend(corral_lock *lock, int64_t ttl_ms, corral_error *error);
/* An exclusive hold becomes a shared one, without a moment in which a writer could come between.
 * Statuses as corral_lock_extend; CORRAL_EUNSUPPORTED. */
CORRAL_API int corral_lock_downgrade(corral_lock *lock, corral_error *error);
/* Before a side effect: CORRAL_OK when the hold isn't known to be lost and has at least need_ms
 * left by this host's monotonic clock; CORRAL_ELOST. Asks nobody and costs next to nothing; what it
 * can't see is a store that lost the hold. */
CORRAL_API int corral_lock_check(const corral_lock *lock, int64_t need_ms);
/* What is left of the hold by this host's monotonic clock, at least 0. No I/O. */
CORRAL_API int64_t corral_lock_left_ms(const corral_lock *lock);
/* The fencing token. No I/O. */
CORRAL_API uint64_t corral_lock_fence(const corral_lock *lock);
/* The name, valid as long as the lock. No I/O. */
CORRAL_API const void *corral_lock_name(const corral_lock *lock, size_t *len);

/* Who holds a lock. Its size is frozen. */
typedef struct corral_lock_holder {
  char who[96];    /* "host/pid/thread note"; always terminated */
  int32_t shared;  /* 1: a shared hold */
  int32_t mine;    /* 1: a hold of this corral handle */
  int64_t held_ms; /* since when; -1 unknown */
  int64_t left_ms; /* until its hold ends, unless it is extended; -1 unknown */
  uint64_t fence;
} corral_lock_holder;

/* Who holds it now: at most `room` of them, readers in no order. *ret_count: how many there are,
 * which may be more. CORRAL_OK also when nobody does; else as corral_lock_take without waiting. */
CORRAL_API int corral_lock_show(corral *c, const void *name, size_t name_len,
                                corral_lock_holder *holders, size_t room, size_t *ret_count,
                                corral_error *error);

#ifdef __cplusplus
}
#endif
#endif
