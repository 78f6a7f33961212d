/* event.h: the table of events. The enum, the counters, the names and the texts come from its
 * rows. */
#ifndef CORRAL_EVENT_H
#define CORRAL_EVENT_H

#include <stddef.h>
#include <stdint.h>

/* X(identifier, name, sentence). New rows go to the end. */
#define CORRAL_EVENT_MAP(X)                                                                        \
  X(HIT, "hit", "a fresh value was found in the store")                                            \
  X(STALE, "stale", "a stale value was served")                                                    \
  X(MISS, "miss", "the store had nothing usable")                                                  \
  X(NEGATIVE, "negative", "a remembered \"no such thing\" was served")                             \
  X(JOIN, "join", "a call joined the flight of its process")                                       \
  X(WAIT, "wait", "a flight waited for a leader elsewhere, or for a slow store")                   \
  X(POLL, "poll", "a waiting flight looked again")                                                 \
  X(CLAIM, "claim", "a lease was taken")                                                           \
  X(COMPUTE, "compute", "a compute began")                                                         \
  X(FILL, "fill", "a computed value was stored")                                                   \
  X(FENCED, "fenced", "a late fill was refused: the lease was lost or the key invalidated")        \
  X(UNSTORED, "unstored", "a computed value could not be stored")                                  \
  X(FAILURE, "failure", "a compute failed")                                                        \
  X(VERDICT, "verdict", "a remembered failure was served")                                         \
  X(ABANDONED, "abandoned", "a compute took longer than compute_ms")                               \
  X(EXTEND, "extend", "a lease was extended")                                                      \
  X(LEASE_LOST, "lease_lost", "the renewer learned that a lease was lost")                         \
  X(DEADLINE, "deadline", "a call ended by its deadline without a value")                          \
  X(REFRESH, "refresh", "a value was rebuilt in the background")                                   \
  X(STORE_ERROR, "store_error", "an operation on the store failed")                                \
  X(STORE_DOWN, "store_down",                                                                      \
    "the breaker opened: a server of the store rests until it answers a probe")                    \
  X(STORE_UP, "store_up", "the store answers again")                                               \
  X(DEGRADED, "degraded", "a compute ran without the store's election")                            \
  X(CORRUPT, "corrupt", "a stored record was damaged, or another key's, and was ignored")          \
  X(FOREIGN, "foreign", "a key of the store holds data that corral did not write")                 \
  X(HOST_WAIT, "host_wait", "a flight waited for a leader on its own host")                        \
  X(HOST_ERROR, "host_error", "the host's lock can't be used: elections go on without it")         \
  X(LIMITED, "limited", "a compute had to wait: max_computes, fleet_max_computes or ramp")         \
  X(OUTBOX, "outbox", "a fill, or an invalidation, was kept for the return of the store")          \
  X(OUTBOX_HIT, "outbox_hit", "a value of the outbox was served while the store is away")          \
  X(REPLAYED, "replayed", "an entry of the outbox was given to the store on its return")           \
  X(EARLY, "early", "a rebuild began before the fresh life ended")                                 \
  X(NEAR, "near", "a copy in this process answered, without a look at the store")                  \
  X(PASS, "pass", "a compute said that its answer can't be cached")                                \
  X(OLDER, "older", "a computed value was not stored: what is stored has a later version")         \
  X(LOCKED, "locked", "a lock was taken")                                                          \
  X(LOCK_WAIT, "lock_wait", "a call waited for a lock")                                            \
  X(LOCK_ASKED, "lock_asked", "the store was asked for a lock")                                    \
  X(LOCK_EXTENDED, "lock_extended", "a lock's hold was lengthened")                                \
  X(LOCK_LOST, "lock_lost",                                                                        \
    "a lock's hold was over before it was released: the text says what to roll back")              \
  X(UNLOCKED, "unlocked", "a lock was released")                                                   \
  X(LOCK_FOREIGN, "lock_foreign",                                                                  \
    "a lock's key holds data without a TTL that corral did not write")                             \
  X(LOCK_REPAIRED, "lock_repaired", "such a key was given a TTL (repair_ms)")                      \
  X(NEWER, "newer",                                                                                \
    "a key of the store holds a record of a later version of corral, which is left alone")         \
  X(STORE_ANEW, "store_anew", "the store's files were damaged or replaced: it goes on empty")      \
  X(COMPUTED, "computed", "a compute ended with an answer, which is no failure")                   \
  X(WATCH, "watch", "how changes are learnt of: told by the store, or by polling")                 \
  X(WARNING, "warning",                                                                            \
    "a server lacks a right, or a setting that a promise needs; or there is no stats file")        \
  X(LOCK_FENCE, "lock_fence",                                                                      \
    "a lock's fencing token isn't larger than an earlier one: the store forgot, and can't raise "  \
    "it")                                                                                          \
  X(VERIFIED, "verified", "a value that was served was computed anew, and is the same")            \
  X(DIFFERS, "differs", "a value that was served was computed anew, and is another one")           \
  X(UNVERIFIED, "unverified",                                                                      \
    "a value that was served was computed anew in vain: that failed, or what is stored changed")   \
  X(CONTROL, "control",                                                                            \
    "an operator's order (corral control) is followed from now on, or has ended")

#ifdef __cplusplus
extern "C" {
#endif

/* Events: the rows of CORRAL_EVENT_MAP. */
typedef enum corral_event {
#define CORRAL_EVENT_ENUM(id, name, text) CORRAL_EVENT_##id,
  CORRAL_EVENT_MAP(CORRAL_EVENT_ENUM)
#undef CORRAL_EVENT_ENUM
      CORRAL_EVENT_COUNT
} corral_event;

/* The way by which a process learns of changes in the store. X(identifier, name). New rows go to
 * the end. PUSH: the store tells of them on the connection that asked for that. REDIRECT: on
 * another one. POLL: nobody tells, so waiters look again, and copies answer by their time. */
#define CORRAL_WAKE_MAP(X)                                                                         \
  X(PUSH, "push")                                                                                  \
  X(REDIRECT, "redirect")                                                                          \
  X(POLL, "poll")

typedef enum corral_wake {
#define CORRAL_WAKE_ENUM(id, name) CORRAL_WAKE_##id,
  CORRAL_WAKE_MAP(CORRAL_WAKE_ENUM)
#undef CORRAL_WAKE_ENUM
      CORRAL_WAKE_COUNT
} corral_wake;

/* One event. The library fills it; a later version may append members, and `size` tells which there
 * are. All that it points to is valid during the call of the hook only. */
typedef struct corral_event_info {
  size_t size; /* sizeof(corral_event_info) of the library */
  corral_event event;
  int status;          /* of what failed; else CORRAL_OK */
  const void *key;     /* key, or name of the lock; NULL: the event isn't about one */
  size_t key_len;      /* bytes of `key` */
  const char *detail;  /* text of an error, in one line; NULL: none */
  int64_t duration_us; /* of the compute, wait or store operation; a value's age; -1: none */
  int64_t bytes;       /* of the value; of the record where one was stored; -1: none */
  int server;          /* number of the store's server, from 0; -1: not about one server */
  int wake;            /* watch: CORRAL_WAKE_PUSH and the like; -1: another event */
} corral_event_info;

/* Called for each event, on the thread where it happens, while the library holds no lock of its
 * own. Events of the thread that extends leases and locks come soon afterwards on another thread,
 * by corral_close at the latest; of these, at most 1024 wait for a slow hook, and the rest are
 * counted but not told. docs/events.md says which members each event has.
 * The hook must be quick, and return. Within it, functions of the same corral return CORRAL_EINVAL
 * and corral_close does nothing, because the call that caused the event is still under way;
 * corral_counter and other corrals may be used. */
typedef void corral_event_fn(const corral_event_info *info, void *arg);

#ifdef __cplusplus
}
#endif
#endif
