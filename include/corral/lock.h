/* lock.h: locks for the user's own critical sections, on the stores of a corral.
 *
 *   corral_lock *lock;
 *   int status = corral_lock_take(c, "nightly", 7, CORRAL_LOCK(.ttl_ms = 10000, .keep = 1), &lock,
 *                                 &error);
 *   if (status == CORRAL_OK) {
 *     work(corral_lock_fence(lock));
 *     status = corral_lock_release(lock, &error);
 *   }
 *
 * Limits. No lock service can keep two holders apart for ever: a holder that was stopped (a pause
 * of the machine, SIGSTOP, swap, a partition) outlives its hold without knowing. So a hold ends by
 * the store's clock, its loss is reported, and each hold has a fencing token that is larger than
 * those of all earlier holds of that name, as far as the store remembers them: a resource that
 * refuses a token smaller than the largest it has seen can't be changed by a holder whose time is
 * over (Kleppmann, "How to do distributed locking", 2016). A release never ends another holder's
 * hold. What each store adds or lacks is in docs/locks.md.
 *
 * Time. A hold begins and ends by the store's clock. This process counts what is left of it on the
 * monotonic clock, from before the request was sent, so it considers the hold over sooner than the
 * store does. The wall clock of this host is not used.
 *
 * Death. Where the kernel tells of the death of a process (`lmdb:`), a hold ends with the process
 * that took it, unless a ticket of it was given out, or it was detached: the next taking gets the
 * lock at once. A process that is only stopped keeps it.
 *
 * Names are bytes: 1 to CORRAL_KEY_MAX of them, of any value. In the store, a lock is the key
 * "~lock:NAMESPACE:NAME" (docs/keys.md).
 *
 * Threads: any function from any thread, but no other function may be using a lock that is being
 * released. Close: all locks of a corral must be released before corral_close. Fork: as in
 * corral.h; a child must not use its parent's locks, and need not release them. */
#ifndef CORRAL_LOCK_H
#define CORRAL_LOCK_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One taking of a lock, from corral_lock_take to corral_lock_release. An owner that takes a lock
 * again, re-entrant, has one hold by several takings. */
typedef struct corral_lock corral_lock;

/* A lock's options, as in corral/option.h. */
/* clang-format off */
#define CORRAL_LOCK_MAP(X)                                                                         \
  X(ttl_ms, "ttl", "hold", "ms", 10000, 50, 86400000, "lock", NONE,                                \
    "Life of a hold by the store's clock.")                                                        \
  X(keep, "keep", "hold", "flag", -1, -1, 1, "", NONE,                                             \
    "Extended every third of its ttl until its release.")                                          \
  X(max_ms, "max", "hold", "ms", -1, -1, 31536000000, "lock", NONE,                                \
    "Longest hold: not extended then, it ends by its ttl.")                                        \
  X(warn_ms, "warn", "hold", "ms", -1, -1, 86400000, "", NONE,                                     \
    "So long before the end of a hold that isn't extended, on_warn is called.")                    \
  X(shared, "shared", "hold", "flag", -1, -1, 1, "lock", NONE,                                     \
    "Together with other shared holds (readers).")                                                 \
  X(reentrant, "reentrant", "hold", "flag", -1, -1, 1, "", NONE,                                   \
    "Who has it may take it again, which is counted; off: an error at once.")                      \
  X(repair_ms, "repair", "hold", "ms", -1, -1, 86400000, "lock", NONE,                             \
    "TTL for foreign data at its key that has none.")                                              \
  X(wait_ms, "wait", "waiting", "ms", 5000, -1, 86400000, "lock", NONE,                            \
    "How long to wait for the lock; 0, off: one try.")                                             \
  X(poll_ms, "poll", "waiting", "ms", 5, 1, 60000, "", NONE,                                       \
    "A waiter's first pause where the store doesn't wake it; grows, with full jitter.")            \
  X(poll_max_ms, "poll_max", "waiting", "ms", 250, 1, 60000, "", NONE,                             \
    "Longest such pause.")                                                                         \
  X(permits, "permits", "hold", "count", -1, -1, 1024, "lock", NONE,                               \
    "One of N at once (semaphore); each taker's N counts.")                                        \
  X(fair, "fair", "waiting", "flag", -1, -1, 1, "lock", NONE,                                      \
    "In turn: processes that wait so get it as they came.")
/* clang-format on */

/* Called once, when the library learns that a hold was over before it was released: on a thread of
 * the corral that only runs callbacks, one loss after the other, or within the call that learned
 * it. `why` says what a rollback needs: the fencing token, how long ago the hold was taken, and
 * whether it expired, another holder has the lock, or the connection that it belonged to has ended;
 * valid during the call.
 * The library holds no lock of its own meanwhile; only the release of `lock` and other callbacks
 * wait. So the callback may take its time, but must return, and call any function, also release
 * other locks. The release of `lock` itself is refused within it (CORRAL_EINVAL) and must be done
 * afterwards; corral_close does nothing. */
typedef void corral_lock_lost_fn(corral_lock *lock, const char *why, void *arg);

/* Called when less than warn_ms is left of a hold that isn't extended any more: without `keep`,
 * after max_ms, or because its extensions fail; before its end, and again after each extension
 * (corral_lock_extend, which may be called within). At once, where less is left from the beginning.
 * Thread and rules as for corral_lock_lost_fn. `left_ms`: what is left. */
typedef void corral_lock_warn_fn(corral_lock *lock, int64_t left_ms, void *arg);

/* The options of corral_lock_take. */
typedef struct corral_lock_options {
  size_t size;                       /* sizeof(corral_lock_options), set by CORRAL_LOCK */
  corral_cancel_token *cancel_token; /* corral_cancel_token_cancel ends the wait; may be NULL */
  /* shown to others behind host, process and thread; at most 40 bytes count; may be NULL */
  const char *note;
  /* owner's name within this process, for re-entrancy; NULL: the calling thread, function of
   * corral_loop_run, or call of corral_lock_take_async */
  const char *owner;
  /* ticket of a hold of this lock (corral_lock_ticket): that hold is taken over, in place of a new
   * one, without waiting, shared or not as it is; NULL: a new one */
  const char *adopt;
  /* another corral, whose store keeps the counter of the fencing tokens: one that doesn't forget;
   * open until corral_lock_take returns (corral_lock_take_async: until `done` or `gone`); NULL: the
   * lock's own store counts */
  corral *fence;
  corral_lock_lost_fn *on_lost; /* may be NULL */
  void *lost_arg;
  corral_lock_warn_fn *on_warn; /* may be NULL */
  void *warn_arg;
#define CORRAL_LOCK_FIELD(field, name, group, unit, def, least, most, command, nginx, text)        \
  int64_t field;
  CORRAL_LOCK_MAP(CORRAL_LOCK_FIELD)
#undef CORRAL_LOCK_FIELD
} corral_lock_options;

/* Options in place: CORRAL_LOCK(.ttl_ms = 10000); in C++ CORRAL_LOCK(.ttl_ms(10000)), see
 * corral/cxx.h. A number that is 0 is the table's default. */
#ifndef __cplusplus
#define CORRAL_LOCK(...) (&(corral_lock_options){.size = sizeof(corral_lock_options), __VA_ARGS__})
#endif

/* corral_policy_set (corral/option.h) for the options of a lock; "note", "owner" and "adopt" set a
 * pointer to `text`. */
CORRAL_API int corral_lock_options_set(corral_lock_options *options, const char *name,
                                       const char *text, corral_error *error);

/* Takes a lock. Waits for it, up to wait_ms: woken where the store tells of changes, else with
 * pauses that grow; of a process's waiters for one lock only the first asks the store. `options`
 * may be NULL. CORRAL_OK: *ret is to be given to corral_lock_release.
 * An owner that has the lock takes it again, if `reentrant`: a ttl_ms that is longer than the
 * hold's counts for the hold from now on, and of any at least half is left; so do keep, and a
 * warn_ms that is longer. Its on_lost and on_warn are called, too, until this taking is released.
 * Others see the first taking's note. Of two takings by one owner that wait, both `reentrant`, the
 * second shares the first one's hold.
 * With `adopt` the hold of the ticket becomes this taking's, with a larger fencing token, and ends
 * no earlier than ttl_ms from now. CORRAL_ELOST: it was over, or somebody else took it over before.
 * With `fence` the token is counted there, and the hold's is raised to that. Where that fails, the
 * hold is given back, and the status says why.
 * CORRAL_EBUSY (wait_ms is CORRAL_OFF, and another holder has the lock; the text names it),
 * CORRAL_EDEADLINE (the same after waiting), CORRAL_ECANCELLED, CORRAL_ERECURSION (this owner has
 * the lock, so it would wait for itself; also an owner that holds it shared and wants it alone, or
 * that has or wants a permit and the other not),
 * CORRAL_ELOST (re-entrant: this owner had the lock, and lost it), CORRAL_EFOREIGN (the key has
 * data without an end that corral did not write), CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT (no reply:
 * if a hold came of the request, it is released, or ends by ttl_ms), CORRAL_EREFUSED (no room for a
 * hold, or not confirmed), CORRAL_EUNSUPPORTED (this store has no locks, or none of that kind),
 * CORRAL_EINVAL, CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_EIO (no randomness for a
 * token). */
CORRAL_API int corral_lock_take(corral *c, const void *name, size_t name_len,
                                const corral_lock_options *options, corral_lock **ret,
                                corral_error *error);

/* Reasons of a lost hold: corral_error.code with CORRAL_ELOST. */
enum {
  CORRAL_LOST_EXPIRED = 1, /* its time passed, or it was broken; the lock is free */
  CORRAL_LOST_TAKEN = 2,   /* another holder has the lock */
  CORRAL_LOST_CUT = 3      /* the connection that it belonged to has ended */
};

/* Frees `lock`; the last release of a hold stops extending it and ends it, whatever the store
 * answers. The one after which only shared takings of an exclusive hold are left makes that a
 * shared one, as corral_lock_downgrade. NULL is allowed. CORRAL_OK. CORRAL_ELOST: the hold was over
 * before; since when isn't known (see on_lost). CORRAL_EINDOUBT (no reply, though asked twice),
 * CORRAL_EUNAVAILABLE: the hold is over by its ttl_ms at the latest. CORRAL_EINVAL (not a lock,
 * within its on_lost or on_warn, or within on_event), CORRAL_EFORKED: nothing was done, `lock` is
 * not freed. */
CORRAL_API int corral_lock_release(corral_lock *lock, corral_error *error);
/* Extends the hold: it ends no earlier than ttl_ms from now (50 to 86,400,000; 0: the lock's own).
 * CORRAL_ELOST, CORRAL_EINDOUBT, CORRAL_EUNAVAILABLE, CORRAL_EINVAL. */
CORRAL_API int corral_lock_extend(corral_lock *lock, int64_t ttl_ms, corral_error *error);
/* Makes an exclusive hold a shared one, with no moment in which another exclusive hold could begin;
 * a shared hold stays as it is, and a permit can't become one (CORRAL_EINVAL). Statuses as
 * corral_lock_extend; CORRAL_EUNSUPPORTED. */
CORRAL_API int corral_lock_downgrade(corral_lock *lock, corral_error *error);
/* Time left of the hold in ms, by this host's monotonic clock; 0: it is over, or known to be lost.
 * For use before a side effect. No I/O, and next to no cost; it can't see that the store lost the
 * hold, unless that ended a connection. */
CORRAL_API int64_t corral_lock_left_ms(const corral_lock *lock);
/* Fencing token of the hold. No I/O. */
CORRAL_API uint64_t corral_lock_fence(const corral_lock *lock);
/* Name of the lock, valid as long as `lock`; `ret_len` may be NULL. No I/O. */
CORRAL_API const void *corral_lock_name(const corral_lock *lock, size_t *ret_len);

#define CORRAL_LOCK_TICKET 80 /* room for a ticket, with its end */

/* Writes the ticket of a hold: the right to take it over, as printable ASCII without spaces, to be
 * passed on to a successor, or kept for a restart of the holder. It is good as long as the hold
 * lasts, also when the holder was killed. Nobody but a successor should get it.
 *
 *   char ticket[CORRAL_LOCK_TICKET];
 *   corral_lock_ticket(lock, ticket, &error);                        (from now on as well)
 *   corral_lock_take(c, "nightly", 7, CORRAL_LOCK(.adopt = ticket, .keep = 1), &lock, &error);
 *
 * The hold goes to the first one who adopts it: to everybody else, its holder until then included,
 * it is lost (CORRAL_LOST_TAKEN), and can neither be extended nor released by them. No other hold
 * comes between. The new holder's fencing token is larger, so a fenced resource refuses what the
 * earlier holder still sends. Then the ticket is of no use any more; the new holder may get another
 * one. After corral_lock_downgrade another one is needed, too.
 * No I/O, but for the first ticket of a hold that would end with its process: the store is told
 * that it doesn't any more. CORRAL_EUNSUPPORTED: in this store a hold can't be handed over.
 * CORRAL_ELOST, CORRAL_EINVAL, CORRAL_EFORKED; CORRAL_EINDOUBT, CORRAL_EUNAVAILABLE: there is no
 * ticket. */
CORRAL_API int corral_lock_ticket(corral_lock *lock, char ticket[CORRAL_LOCK_TICKET],
                                  corral_error *error);
/* As corral_lock_release, but the hold is left as it is, for a successor with its ticket: it is
 * extended no more, its loss is told no more, and it ends by its time (corral_lock_extend gives a
 * successor more), not with this process. CORRAL_OK, CORRAL_ELOST; CORRAL_EINVAL, CORRAL_EFORKED,
 * CORRAL_EUNSUPPORTED, CORRAL_EINDOUBT, CORRAL_EUNAVAILABLE: nothing was done, `lock` is not
 * freed. */
CORRAL_API int corral_lock_detach(corral_lock *lock, corral_error *error);

/* One holder of a lock. Its size is frozen. */
typedef struct corral_lock_holder {
  char who[96];    /* "host/pid/thread note"; always terminated */
  int32_t shared;  /* 1: a shared hold; 2: a permit */
  int32_t mine;    /* 1: a hold of this corral */
  int64_t held_ms; /* how long it has been held; -1 unknown */
  int64_t left_ms; /* until the hold ends, unless it is extended; -1 unknown */
  /* fencing token of the hold */
  uint64_t fence;
} corral_lock_holder;

/* Lists the holders of a lock: fills at most `room` of `holders`, shared ones in no order, and sets
 * *ret_count to the number there are, which may be larger. CORRAL_OK also when there is none;
 * errors as corral_lock_take without waiting. */
CORRAL_API int corral_lock_show(corral *c, const void *name, size_t name_len,
                                corral_lock_holder *holders, size_t room, size_t *ret_count,
                                corral_error *error);

/* One waiter in a lock's queue. Its size is frozen. */
typedef struct corral_lock_waiter {
  char who[96];   /* as that of a holder */
  int32_t shared; /* 1: waits for a shared hold; 2: for a permit */
  int32_t zero;
  int64_t waited_ms; /* how long it has had its place; -1 unknown */
} corral_lock_waiter;

/* Lists the queue of a lock, in its order: those that wait `fair`, one for each process. As
 * corral_lock_show; a store without such a queue shows nobody. */
CORRAL_API int corral_lock_waiters(corral *c, const void *name, size_t name_len,
                                   corral_lock_waiter *waiters, size_t room, size_t *ret_count,
                                   corral_error *error);
/* Told a lock, by corral_lock_list and corral_lock_watch: its name, and its holders, of which a
 * listed lock has one at least; all of it is valid during the call. The library holds no lock of
 * its own meanwhile. Any value but 0 ends the listing, or the watch. */
typedef int corral_lock_tell_fn(const void *name, size_t name_len,
                                const corral_lock_holder *holders, size_t count, void *arg);
enum { CORRAL_LOCK_LIST_MOST = 65536 }; /* locks that one call lists */

/* Lists the locks that are held, in the order of their names, whose names begin with `prefix` (NULL
 * when `prefix_len` is 0: all of the namespace). For operators: it may read through all keys of the
 * store. Each lock is shown as it is when its turn comes. Names that are too long for the store's
 * keys, of which it has a hash, are left out. CORRAL_OK also when there is none, and when `tell`
 * has ended it. CORRAL_EUNSUPPORTED: this store keeps no names (docs/locks.md). CORRAL_ETOOBIG:
 * there are more than CORRAL_LOCK_LIST_MOST; that many were told. Others as corral_lock_take
 * without waiting. */
CORRAL_API int corral_lock_list(corral *c, const void *prefix, size_t prefix_len,
                                corral_lock_tell_fn *tell, void *arg, corral_error *error);

/* Watches a lock: tells its holders, of which there may be none, now and after each change of them,
 * until `tell` returns another value than 0 (CORRAL_OK) or the token is cancelled
 * (CORRAL_ECANCELLED); the cancel token may be NULL. That a hold is extended is no change. Where
 * the store tells of changes a change is told at once, else within 250 ms; of changes that follow
 * each other sooner only the last may be told. A store that goes away is waited for. */
CORRAL_API int corral_lock_watch(corral *c, const void *name, size_t name_len,
                                 corral_cancel_token *cancel_token, corral_lock_tell_fn *tell,
                                 void *arg, corral_error *error);

/* A distribution of times, in microseconds; each quantile is right to 6 %, and never less than what
 * it stands for. Its size is frozen. */
typedef struct corral_lock_times {
  uint64_t count; /* 0: all others are 0 */
  int64_t p50_us, p90_us, p99_us, p999_us, max_us;
} corral_lock_times;

/* The times that the calls of a corral have waited for locks, and that its holds lasted. */
typedef struct corral_lock_stats {
  size_t size;            /* sizeof(corral_lock_stats), set by the caller */
  corral_lock_times wait; /* of takings that were granted, from the call to the grant */
  corral_lock_times hold; /* of holds that were given up, lost ones too; to the millisecond */
} corral_lock_stats;

/* Reads the times since corral_open. The caller sets ret->size. No I/O. CORRAL_EINVAL. */
CORRAL_API int corral_lock_stats_read(corral *c, corral_lock_stats *ret, corral_error *error);

/* Breaks a lock: ends its holds without their holders, for operators. With a fencing token, as
 * corral_lock_show tells it, only the hold that has it, so that a later hold is never ended by
 * mistake; with 0 all that a look finds. CORRAL_OK: the store has ended the holds. Their holders
 * learn it when they next ask the store, as a loss (CORRAL_ELOST, on_lost), and what they still
 * change is for the fencing token to refuse: the next hold's is larger. CORRAL_EMISS: there is no
 * such hold. CORRAL_EUNSUPPORTED: the hold belongs to a connection of another process, with which
 * the server ends it (docs/locks.md). Others as corral_lock_take without waiting. */
CORRAL_API int corral_lock_break(corral *c, const void *name, size_t name_len, uint64_t fence,
                                 corral_error *error);

#ifdef __cplusplus
}

CORRAL_BUILDER_BEGIN(corral_lock_options)
CORRAL_BUILDER_FIELD(corral_lock_options, cancel_token)
CORRAL_BUILDER_FIELD(corral_lock_options, note)
CORRAL_BUILDER_FIELD(corral_lock_options, owner)
CORRAL_BUILDER_FIELD(corral_lock_options, adopt)
CORRAL_BUILDER_FIELD(corral_lock_options, fence)
CORRAL_BUILDER_FIELD(corral_lock_options, on_lost)
CORRAL_BUILDER_FIELD(corral_lock_options, lost_arg)
CORRAL_BUILDER_FIELD(corral_lock_options, on_warn)
CORRAL_BUILDER_FIELD(corral_lock_options, warn_arg)
#define CORRAL_BUILDER_ROW(name, ...) CORRAL_BUILDER_FIELD(corral_lock_options, name)
CORRAL_LOCK_MAP(CORRAL_BUILDER_ROW)
#undef CORRAL_BUILDER_ROW
CORRAL_BUILDER_END(corral_lock_options)
#define CORRAL_LOCK(...) (corral_lock_options_builder() __VA_ARGS__)
#endif
#endif
