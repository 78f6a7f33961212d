/* corral.h: everything a user needs: get-or-compute behind a shared cache, with one rebuild at a
 * time.
 *
 * Conventions
 *  - Status: CORRAL_OK (0) or a negative code of CORRAL_STATUS_MAP. Out-parameters are written on
 *    success only. Detail goes to a corral_error that the caller owns; every `error` parameter may
 *    be NULL.
 *  - Durations are milliseconds in an int64_t and end in `_ms`. In options, 0 means the documented
 *    default and CORRAL_OFF (-1) switches a feature off where the table's range begins at -1.
 *  - Keys are bytes: 1 to 65,536 of them, of any value. They are copied; the caller keeps its own.
 *  - Threads: any function from any thread, except corral_close, which must be the last call on its
 *    handle. No callback of the user is run while the library holds a lock of its own.
 *  - Fork: a handle that was opened but not yet used may be used in every child. A handle that was
 *    used before a fork answers CORRAL_EFORKED in the child: open another one there, whatever the
 *    parent's other threads were doing.
 *  - Cancelling (pthread_cancel): a thread can be cancelled inside its compute, and not elsewhere
 *    inside a call.
 *  - Signals: the library installs no handler and never raises SIGPIPE; its threads block all
 *    signals. */
#ifndef CORRAL_H
#define CORRAL_H

#include <stddef.h>
#include <stdint.h>

#define CORRAL_VERSION "0.1.0"

#if defined(__GNUC__)
#define CORRAL_API __attribute__((visibility("default")))
#else
#define CORRAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- status -------------------------------------------------------------------------------- */

/* X(name, number, text): one line each, impersonal, without what the caller knows already. */
#define CORRAL_STATUS_MAP(X)                                                                       \
  X(EINVAL, -1, "invalid argument")                                                                \
  X(ENOMEM, -2, "out of memory")                                                                   \
  X(ENOTFOUND, -3, "no such thing: the origin said so, and that answer is remembered")             \
  X(EMISS, -4, "not in the store, and there is nothing to compute it with")                        \
  X(EFAILED, -5, "computing failed")                                                               \
  X(EDEADLINE, -6, "the call's deadline passed before a value came")                               \
  X(EUNAVAILABLE, -7, "the store can't be reached")                                                \
  X(EBUSY, -8, "somebody else holds the lease")                                                    \
  X(ELOST, -9, "the lease was lost: nothing was written")                                          \
  X(EUNKNOWN, -10, "the store's reply was lost: the operation may or may not have happened")       \
  X(ETOOBIG, -11, "larger than the store accepts")                                                 \
  X(EFOREIGN, -12, "the store's key holds data that corral did not write")                         \
  X(ECORRUPT, -13, "the stored record is damaged")                                                 \
  X(EPROTOCOL, -14, "the server's reply makes no sense")                                           \
  X(EAUTH, -15, "the server refuses this user, password or command")                               \
  X(EREFUSED, -16, "the store refuses to write")                                                   \
  X(ERECURSION, -17, "computing a key asked for that same key")                                    \
  X(EFORKED, -18, "the handle was used before a fork: open a new one in the child")                \
  X(ECLOSED, -19, "the handle is being closed")                                                    \
  X(EOPTION, -20, "an option that this version of the library does not know")                      \
  X(EURI, -21, "the store URI is not valid")                                                       \
  X(ENOPLUGIN, -22, "no plugin for this kind of store")                                            \
  X(EIO, -23, "the operating system reported an error")                                            \
  X(EABANDONED, -24, "computing took longer than compute_ms")                                      \
  X(EUNSUPPORTED, -25, "the store can't do that")                                                  \
  X(ECANCELLED, -26, "the caller left: corral_cancel")                                             \
  X(ENEWER, -27, "the store's key holds a record of a later version of corral")

typedef enum corral_status {
  CORRAL_OK = 0,
#define CORRAL_STATUS_ENUM(name, number, text) CORRAL_##name = (number),
  CORRAL_STATUS_MAP(CORRAL_STATUS_ENUM)
#undef CORRAL_STATUS_ENUM
} corral_status;

/* The text of a status; never NULL, also for numbers outside of the table. Static storage. */
CORRAL_API const char *corral_status_text(int status);
/* The name of a status without its prefix ("EDEADLINE", "OK"); never NULL. Static storage. */
CORRAL_API const char *corral_status_name(int status);

/* Why a call failed. Owned and zeroed by the caller; its size is frozen. */
typedef struct corral_error {
  int32_t status; /* the status that was returned */
  /* EFAILED: the number that the compute gave to corral_fill_fail, else 0 */
  int32_t code;
  int64_t retry_after_ms; /* EFAILED: how long the fleet will remember this failure; else 0 */
  char text[240];         /* what was wrong and what is accepted; always terminated */
} corral_error;

/* ---- values -------------------------------------------------------------------------------- */

/* Immutable, counted bytes and how they came. Any number of threads may read one value. */
typedef struct corral_value corral_value;

typedef enum corral_how {
  CORRAL_FRESH = 1, /* from the store, at the first look */
  CORRAL_STALE,     /* from the store, past its soft life and inside its grace */
  CORRAL_COMPUTED,  /* this call ran compute */
  CORRAL_JOINED,    /* somebody else (thread, process or host) computed it while this call waited */
  CORRAL_HELD       /* the store is away: what this process computed since (when_away) */
} corral_how;

typedef enum corral_kept {
  CORRAL_KEPT = 0, /* it is in the store (or came from there) */
  /* computed, but the lease was lost or the key invalidated meanwhile: not stored */
  CORRAL_KEPT_FENCED,
  CORRAL_KEPT_NOT,     /* computed, but the store is away or refused it: not stored */
  CORRAL_KEPT_UNKNOWN, /* computed, and the store's reply was lost: perhaps stored */
  CORRAL_KEPT_OLDER    /* computed, but what is in the store has a later version: not stored */
} corral_kept;

/* The bytes (never NULL, also for an empty value) and how many. Valid as long as the caller holds
 * the value. */
CORRAL_API const void *corral_value_data(const corral_value *value);
CORRAL_API size_t corral_value_size(const corral_value *value);
/* How this value came to this call; how old it was then, in ms since it was stored; what became of
 * its fill. */
CORRAL_API corral_how corral_value_how(const corral_value *value);
CORRAL_API int64_t corral_value_age_ms(const corral_value *value);
CORRAL_API corral_kept corral_value_kept(const corral_value *value);
/* The version that its compute gave it (corral_fill_version); 0 none. */
CORRAL_API uint64_t corral_value_version(const corral_value *value);
/* One more owner; returns `value`. */
CORRAL_API corral_value *corral_value_ref(corral_value *value);
/* One owner less; the last one frees it. NULL is allowed. */
CORRAL_API void corral_value_unref(corral_value *value);
/* "fresh", "stale", "computed", "joined", "held"; never NULL. */
CORRAL_API const char *corral_how_name(corral_how how);

/* ---- compute ------------------------------------------------------------------------------- */

/* Where a compute puts its answer. Valid inside that compute only. */
typedef struct corral_fill corral_fill;

/* The user's function that rebuilds one value. It calls exactly one of corral_fill_bytes,
 * corral_fill_negative and corral_fill_fail (the last call counts) and returns CORRAL_OK; returning
 * without any of them, or anything negative, is a failure. It may call corral functions, also on
 * the same handle, for other keys; asking for its own key answers CORRAL_ERECURSION. Threads: given
 * per call it runs inside that call, on that thread; bound at open it runs on threads of the
 * library, several keys at once. It may leave without returning: its thread is cancelled, or ends
 * by pthread_exit, or, on the caller's thread, a C++ exception passes through the call. Its lease
 * and whatever else it has are given back at once, others lead on, nothing is remembered as a
 * failure. Leaving it by longjmp is not allowed. */
typedef int corral_compute(corral_fill *fill, const void *key, size_t key_len, void *arg);

/* The value: `size` bytes, copied. CORRAL_ETOOBIG above max_value, CORRAL_ENOMEM; then nothing is
 * filled. */
CORRAL_API int corral_fill_bytes(corral_fill *fill, const void *data, size_t size);
/* The same without a copy: room for `size` bytes, owned by the fill, to be written before compute
 * returns. NULL when there is no memory or `size` is above max_value. */
CORRAL_API void *corral_fill_reserve(corral_fill *fill, size_t size);
/* "There is no such thing": remembered for negative_ttl_ms; callers get CORRAL_ENOTFOUND. */
CORRAL_API void corral_fill_negative(corral_fill *fill);
/* Computing failed. `code` is the user's own number, `text` (copied; cut at 63 bytes for the fleet,
 * 239 for this process) goes to the error of every caller who wanted the key, until retry_ms have
 * passed. */
CORRAL_API void corral_fill_fail(corral_fill *fill, int32_t code, const char *text);
/* Lives for this value alone instead of the policy's; 0 keeps the policy's, CORRAL_OFF is none (a
 * ttl_ms of CORRAL_OFF: answer the callers who wait, store nothing). */
CORRAL_API void corral_fill_lives(corral_fill *fill, int64_t ttl_ms, int64_t swr_ms,
                                  int64_t sie_ms);
/* The moment (wall clock, ms since 1970) from which on this value may not be served, in grace
 * neither: its lives are cut to end there. One that has passed is as a ttl_ms of CORRAL_OFF. 0: no
 * such moment. Source: clocks of this process when compute returns. */
CORRAL_API void corral_fill_not_after(corral_fill *fill, int64_t wall_ms);
/* "This answer can't be cached": besides the bytes. They go to the caller of this compute alone;
 * for pass_ttl_ms everybody who wants the key computes for himself, in parallel, without an
 * election (at most max_computes at once). */
CORRAL_API void corral_fill_pass(corral_fill *fill);
/* One more tag, 1 to 200 bytes of any value, copied: corral_invalidate_tag and corral_expire_tag
 * reach all values that carry it. A value with tags costs each look at it one more round trip, for
 * all tags together. CORRAL_EINVAL (length), CORRAL_ETOOBIG (more than 16 tags), CORRAL_ENOMEM. */
CORRAL_API int corral_fill_tag(corral_fill *fill, const void *tag, size_t len);
/* A number that grows with every change of what was computed from (a row's version, a log sequence
 * number): a value is never stored over one of a later version; instead the stored one is served,
 * within its grace, and computing tried again after retry_ms. 0: none. */
CORRAL_API void corral_fill_version(corral_fill *fill, uint64_t version);
/* What the origin can tell by that its answer is unchanged (an ETag, a date), kept beside the
 * value: at most 1024 bytes, copied. CORRAL_ETOOBIG, CORRAL_ENOMEM. */
CORRAL_API int corral_fill_validator(corral_fill *fill, const void *data, size_t size);
/* The value that is to be rebuilt, and its validator, as long as the store still has them; NULL and
 * *size = 0 when not. The bytes are the fill's, until compute returns. */
CORRAL_API const void *corral_fill_old(const corral_fill *fill, size_t *size);
CORRAL_API const void *corral_fill_old_validator(const corral_fill *fill, size_t *size);
CORRAL_API uint64_t corral_fill_old_version(const corral_fill *fill);
/* Instead of bytes: the old value still holds. Its life begins anew, where possible without moving
 * the bytes; validator, version and tags stay unless they were given anew. CORRAL_EMISS: there is
 * no old value. */
CORRAL_API int corral_fill_not_modified(corral_fill *fill);
/* The key that is being computed (without the namespace). */
CORRAL_API const void *corral_fill_key(const corral_fill *fill, size_t *size);
/* The variant of it that the call asked for (see corral_policy); NULL and *size = 0 for the key
 * itself. */
CORRAL_API const void *corral_fill_variant(const corral_fill *fill, size_t *size);
/* True when a failure now would be answered by a stale value that is still usable. */
CORRAL_API int corral_fill_has_stale(const corral_fill *fill);
/* True when nobody will use the result any more: the flight was abandoned (compute_ms), its lease
 * is lost, or, with the policy's stop_alone, nobody in this process waits for it any more. */
CORRAL_API int corral_should_stop(const corral_fill *fill);

/* ---- policy -------------------------------------------------------------------------------- */

#define CORRAL_OFF (-1)

/* X(name, unit, default, least, most, sentence): code, --help, README and man page come from these
 * rows. New rows go to the end: their order is the struct's layout. */
#define CORRAL_POLICY_MAP(X)                                                                       \
  X(ttl_ms, "ms", 60000, 1, 315360000000, "Fresh life of a value (soft TTL).")                     \
  X(swr_ms, "ms", 0, -1, 315360000000,                                                             \
    "Grace after the fresh life: stale is served while somebody rebuilds.")                        \
  X(sie_ms, "ms", 0, -1, 315360000000,                                                             \
    "Grace after the fresh life: stale is served when rebuilding fails.")                          \
  X(jitter_pct, "%", 10, -1, 90, "Each fresh life is shortened at random by up to this share.")    \
  X(negative_ttl_ms, "ms", 10000, -1, 315360000000, "Life of a remembered \"no such thing\".")     \
  X(retry_ms, "ms", 1000, -1, 86400000,                                                            \
    "First pause after a failed compute, shared by the fleet; doubles.")                           \
  X(retry_max_ms, "ms", 30000, 1, 86400000, "Longest pause after failed computes.")                \
  X(lease_ms, "ms", 2000, 50, 3600000,                                                             \
    "Longest lease; extended every third of it while compute runs.")                               \
  X(compute_ms, "ms", 30000, 10, 86400000,                                                         \
    "Longest compute: then its lease is given up, its result fenced.")                             \
  X(wait_ms, "ms", 5000, 1, 86400000,                                                              \
    "The call's deadline: how long it may wait for somebody else's compute.")                      \
  X(poll_ms, "ms", 5, 1, 60000,                                                                    \
    "A waiter's pause once a rebuild is due; grows, with full jitter.")                            \
  X(poll_max_ms, "ms", 250, 1, 60000, "Longest pause between a waiter's looks.")                   \
  X(when_away, "choice", 1, 1, 3,                                                                  \
    "While the store is away: 1 compute, 2 what this process holds, 3 an error.")                  \
  X(warm, "flag", -1, -1, 1,                                                                       \
    "1: nobody asked for this value yet; at max_computes everybody else goes first.")              \
  X(early_beta, "%", 0, -1, 10000,                                                                 \
    "XFetch: a chance to rebuild ahead of expiry; 100 is the paper's beta of 1.")                  \
  X(early_pct, "%", 0, -1, 90,                                                                     \
    "Rebuild ahead when less than this share of the fresh life is left.")                          \
  X(pass_ttl_ms, "ms", 10000, -1, 86400000,                                                        \
    "How long \"can't be cached\" is remembered: computes run in parallel.")                       \
  X(soft_ms, "ms", 0, -1, 86400000,                                                                \
    "After so long a waiting call takes a stale value that may be served on error.")               \
  X(at_deadline, "choice", 1, 1, 2,                                                                \
    "A waiting call's end: 1 stale, else an error; 2 stale, else an own compute.")                 \
  X(stop_alone, "flag", -1, -1, 1, "1: a compute that nobody waits for any more is told to stop.") \
  X(lease_min_ms, "ms", 500, 50, 3600000,                                                          \
    "Shortest lease: it is 4 times the key's usual cost, up to lease_ms.")                         \
  X(near_ms, "ms", 1000, -1, 86400000,                                                             \
    "How long a copy in this process answers alone (see near_bytes).")

/* Values of at_deadline. COMPUTE: an own compute, beside the one that is waited for; its result is
 * this call's alone and isn't stored. */
enum { CORRAL_DEADLINE_ERROR = 1, CORRAL_DEADLINE_COMPUTE = 2 };

/* Values of when_away. COMPUTE: one at a time per key and process (per host with host_lock),
 * bounded by max_computes. STALE: a value that this process made while the store was away, while
 * its lives last (see held_ms); where there is none, as COMPUTE. ERROR: CORRAL_EUNAVAILABLE, at
 * once while the breaker is open. */
enum { CORRAL_AWAY_COMPUTE = 1, CORRAL_AWAY_STALE = 2, CORRAL_AWAY_ERROR = 3 };

/* By which calls can be left from another thread. Any number of calls, one after the other or at
 * once, may go under one ticket. */
typedef struct corral_ticket corral_ticket;

typedef struct corral_policy {
  size_t size; /* sizeof(corral_policy), set by CORRAL_POLICY */
  /* per call: where detail goes; NULL is allowed. Ignored in a policy given to corral_open */
  corral_error *error;
  corral_ticket *ticket; /* per call: see corral_cancel; NULL is allowed. Ignored likewise */
  /* per call: which of several values of one key is meant (of a page by language, say): 1 to 1024
   * bytes of any value. Each variant is stored, computed and leased by itself, and no key is any
   * other key's variant. Ignored likewise */
  const void *variant;
  size_t variant_len; /* 0: the key itself */
#define CORRAL_POLICY_FIELD(name, unit, def, least, most, text) int64_t name; /* text */
  CORRAL_POLICY_MAP(CORRAL_POLICY_FIELD)
#undef CORRAL_POLICY_FIELD
} corral_policy;

/* A policy in place (C only): CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 600000). In C++, zero a
 * corral_policy and set its size. What is 0 is taken from the policy that the corral was opened
 * with, then from the table. */
#define CORRAL_POLICY(...) (&(corral_policy){.size = sizeof(corral_policy), __VA_ARGS__})

/* What a policy does, its zeroes being the table's defaults, in sentences of one line each; what
 * makes no sense comes last, in lines that begin with "warning: ". At most `size` bytes, cut and
 * terminated; 4096 are enough. `policy` may be NULL: the defaults. CORRAL_EINVAL, CORRAL_EOPTION:
 * then the text is as it was. */
CORRAL_API int corral_explain(const corral_policy *policy, char *text, size_t size,
                              corral_error *error);

/* ---- events -------------------------------------------------------------------------------- */

#include <corral/event.h>

/* ---- open, close --------------------------------------------------------------------------- */

typedef struct corral corral;

/* Rows of the corral's own options; as in CORRAL_POLICY_MAP. */
#define CORRAL_OPTION_MAP(X)                                                                       \
  X(op_ms, "ms", 250, 1, 60000,                                                                    \
    "Longest operation, connecting included; of a body that moves, longest pause.")                \
  X(handles, "count", 0, 0, 64,                                                                    \
    "Connections to the store; 0: what the store advises (2 local, 4 remote).")                    \
  X(workers, "count", 4, 1, 256,                                                                   \
    "Most threads for a compute bound at open; started when first needed.")                        \
  X(breaker_failures, "count", 3, 1, 1000,                                                         \
    "Failures in a row after which a server of the store rests.")                                  \
  X(breaker_rest_ms, "ms", 1000, 1, 600000, "How long a failing server rests between probes.")     \
  X(max_value, "bytes", 536870912, 1, 536870912, "Largest value.")                                 \
  X(host_lock, "flag", -1, -1, 1, "1: elections are first won among the processes of this host.")  \
  X(max_computes, "count", -1, -1, 1000000,                                                        \
    "Most computes at once in this process; -1: no limit.")                                        \
  X(fleet_max_computes, "count", -1, -1, 256,                                                      \
    "Most computes at once of this `origin` everywhere.")                                          \
  X(held_bytes, "bytes", 16777216, -1, 1099511627776,                                              \
    "Room for fills made while the store is away.")                                                \
  X(held_ms, "ms", 60000, -1, 86400000,                                                            \
    "How long such fills, and invalidations to repeat, are kept.")                                 \
  X(near_bytes, "bytes", -1, -1, 1099511627776,                                                    \
    "Room for copies in this process, in front of the store.")                                     \
  X(watch, "flag", 1, -1, 1, "1: waiters are woken by the store, where it can; -1: they poll.")    \
  X(generation, "flag", -1, -1, 1,                                                                 \
    "1: corral_invalidate_all is possible; each look reads one mark more.")                        \
  X(negative_max, "count", 100000, -1, 1000000000,                                                 \
    "Most \"no such thing\" this process stores in their ttl.")                                    \
  X(compress_min, "bytes", -1, -1, 536870912,                                                      \
    "Values from this size on are stored compressed (zstd).")

typedef struct corral_options {
  size_t size;            /* sizeof(corral_options), set by CORRAL_OPTIONS */
  const char *store;      /* URI: memory:, lmdb:PATH, redis://host:port/db ...; required */
  const char *name_space; /* put before each key as "name_space:" (docs/keys.md); NULL for none */
  /* for every call that doesn't say otherwise; NULL for the table's defaults */
  const corral_policy *policy;
  /* bound compute, for corral_get; may run in the background. NULL for none */
  corral_compute *compute;
  void *compute_arg;         /* handed to `compute`; must outlive the corral */
  corral_event_fn *on_event; /* called for each event, from any thread; NULL for none */
  void *event_arg;
  /* folder of host_lock's lock file; NULL: $CORRAL_HOST_DIR, else one in /dev/shm or /tmp for this
   * user. Processes of several users share an election when they name the same folder */
  const char *host_dir;
  /* name of what the computes burden, for fleet_max_computes: all corrals on this store that name
   * it share the limit, in any namespace; 1 to 100 bytes; NULL: "origin". Or a URL,
   * "https://host/{key}", where the values come from: it takes the place of `compute`
   * (docs/http.md), and its name is "https://host" */
  const char *origin;
#define CORRAL_OPTION_FIELD(name, unit, def, least, most, text) int64_t name; /* text */
  CORRAL_OPTION_MAP(CORRAL_OPTION_FIELD)
#undef CORRAL_OPTION_FIELD
} corral_options;

#define CORRAL_OPTIONS(...) (&(corral_options){.size = sizeof(corral_options), __VA_ARGS__})

/* Checks the options and makes a corral. Does no I/O and starts no thread. Everything in `options`
 * is copied. CORRAL_EINVAL (out of range; the text names option, value and range), CORRAL_EOPTION,
 * CORRAL_EURI, CORRAL_ENOPLUGIN, CORRAL_ENOMEM. */
CORRAL_API int corral_open(corral **ret, const corral_options *options, corral_error *error);
/* Waits for background computes that are running, gives up those that are queued, and frees
 * everything. No other call may be under way on this handle. Values outlive it. NULL is allowed.
 * Within on_event, or on_lost of a lock, it does nothing. */
CORRAL_API void corral_close(corral *c);

/* ---- ask ----------------------------------------------------------------------------------- */

/* The value for a key: from the store, from whoever is computing it, or from `compute`, run here by
 * this call when it holds the lease. `policy` may be NULL. On CORRAL_OK *ret is the caller's, to be
 * given to corral_value_unref. The call ends by wait_ms (or soft_ms, with a stale value), or when
 * its ticket is cancelled; only its own compute may take longer. When the store is away, compute
 * runs once at a time per key and process (and host, with host_lock), unless when_away says
 * otherwise; the result stays in this process. At max_computes a call that may be answered by a
 * stale value is, others wait within wait_ms. CORRAL_ENOTFOUND (remembered "no such thing"),
 * CORRAL_EFAILED (with code, text and retry_after_ms in the error), CORRAL_EDEADLINE,
 * CORRAL_ECANCELLED, CORRAL_ERECURSION, CORRAL_EFORKED, CORRAL_ECLOSED, CORRAL_EINVAL,
 * CORRAL_ENOMEM. */
CORRAL_API int corral_get_or_compute(corral *c, const void *key, size_t key_len,
                                     const corral_policy *policy, corral_compute *compute,
                                     void *arg, corral_value **ret);
/* The same with the compute bound at open: it runs on the library's workers, so this call always
 * ends by wait_ms (unless at_deadline asks for an own compute then), and a stale value inside
 * swr_ms is answered at once while it is rebuilt behind the caller's back. Without a bound compute
 * it only looks: CORRAL_EMISS when the store has nothing usable, CORRAL_EUNAVAILABLE when the store
 * can't be asked. */
CORRAL_API int corral_get(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                          corral_value **ret);

/* One key of a batch. Its size is frozen. */
typedef struct corral_item {
  const void *key; /* set by the caller, with key_len; the rest by the library */
  size_t key_len;
  int status;          /* as corral_get_or_compute would have returned for this key */
  corral_value *value; /* CORRAL_OK: the caller's, to be given to corral_value_unref; else NULL */
  corral_error error;  /* as that would have set it; zero when the status is CORRAL_OK */
} corral_item;

/* Rebuilds several values: one fill per key, as corral_compute does for one; corral_fill_key tells
 * which. A fill that was given nothing is a failure of its key alone; a negative return value fails
 * those that were given nothing. compute_ms is for the whole of it. */
typedef int corral_compute_many(corral_fill *const *fills, size_t count, void *arg);

/* corral_get_or_compute for several keys: the store is asked for all of them at once, and `compute`
 * is run once, on this thread, for all that this call holds the lease of; keys that others compute
 * are waited for afterwards, and may make it run again when those others fail to. A key that
 * appears twice is asked for once, and both items get what it came to. `compute` NULL: only look
 * (CORRAL_EMISS). The policy, its deadline and its ticket hold for each key; its error is for the
 * call. One place among max_computes is enough for all keys of a call. CORRAL_OK: every item has
 * its status, also when all of them failed. CORRAL_EINVAL (the handle, the policy, no items),
 * CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED concern the call as a whole: then
 * each item has that status, and no value. */
CORRAL_API int corral_get_many(corral *c, corral_item *items, size_t count,
                               const corral_policy *policy, corral_compute_many *compute,
                               void *arg);
/* Stores a value, whatever was there, and voids any compute of this key that is under way. Returns
 * once it is stored. */
CORRAL_API int corral_set(corral *c, const void *key, size_t key_len, const corral_policy *policy,
                          const void *data, size_t size);
/* Never serve again what was computed before this returns CORRAL_OK, and void any compute of it
 * under way. On any other status the store may still hold the old value; if it was away, the
 * invalidation is repeated when it is back, while this process lives and for held_ms at the most.
 * CORRAL_OK also when there was nothing. */
CORRAL_API int corral_invalidate(corral *c, const void *key, size_t key_len, corral_error *error);
/* The same for one variant. What is done to a key leaves its variants as they are: a tag in common
 * reaches all of them. */
CORRAL_API int corral_invalidate_variant(corral *c, const void *key, size_t key_len,
                                         const void *variant, size_t variant_len,
                                         corral_error *error);
/* End the fresh life now: still served in grace (swr_ms, sie_ms), and any compute under way is
 * voided. */
CORRAL_API int corral_expire(corral *c, const void *key, size_t key_len, corral_error *error);

/* As corral_invalidate and corral_expire, for all values that carry a tag (1 to 200 bytes), whoever
 * stored them, and all computes under way that will give it to theirs. One operation or three on
 * the store, however many values there are. A tag that was never used: CORRAL_OK. */
CORRAL_API int corral_invalidate_tag(corral *c, const void *tag, size_t len, corral_error *error);
CORRAL_API int corral_expire_tag(corral *c, const void *tag, size_t len, corral_error *error);
/* The same for all values of this namespace. Needs the option `generation` here, and in all who
 * share the namespace, else CORRAL_EUNSUPPORTED. */
CORRAL_API int corral_invalidate_all(corral *c, corral_error *error);
CORRAL_API int corral_expire_all(corral *c, corral_error *error);

/* ---- leave --------------------------------------------------------------------------------- */

/* NULL without memory. */
CORRAL_API corral_ticket *corral_ticket_new(void);
/* Not while a call under it runs. NULL is allowed. */
CORRAL_API void corral_ticket_free(corral_ticket *ticket);
/* All calls that wait under this ticket, and all that will come, end at once with
 * CORRAL_ECANCELLED. One whose own compute runs inside of it ends when that does; the compute is
 * told (corral_should_stop) where the policy's stop_alone says so and nobody else waits for it.
 * Others who wait for the same key are not concerned: one of them leads on. Any thread. */
CORRAL_API void corral_cancel(corral_ticket *ticket);

/* ---- look inside --------------------------------------------------------------------------- */

/* What the store keeps under a key. */
typedef struct corral_inspection {
  /* "fresh", "stale", "expired", "negative", "pass", "void" (a tag was invalidated), "none"; static
   * storage */
  const char *state;
  uint64_t size;        /* bytes of the value */
  uint64_t stored_size; /* bytes of the record as stored */
  int64_t age_ms;       /* since it was stored; -1 unknown */
  int64_t ttl_ms;       /* fresh life it was stored with */
  int64_t swr_ms;       /* grace it was stored with */
  int64_t sie_ms;
  int64_t left_ms;       /* until the store forgets it; -1 unknown */
  int64_t cost_ms;       /* what computing it took */
  int64_t created_ms;    /* wall clock of its maker, ms since 1970: for display only */
  int64_t lease_left_ms; /* of the lease under which somebody rebuilds it; 0 when nobody does */
  int64_t retry_left_ms; /* of a remembered failure; 0 when there is none */
  int64_t failures;      /* failed computes in a row */
  int32_t failure_code;  /* of the remembered failure */
  char holder[64];       /* who holds the lease: "host/pid"; empty when nobody does */
  char failure[64];      /* text of the remembered failure */
  uint64_t version;      /* of the value; 0 none */
} corral_inspection;

/* Fills *ret; `ret_size` is sizeof(corral_inspection). A key that the store doesn't have is state
 * "none", CORRAL_OK. */
CORRAL_API int corral_inspect(corral *c, const void *key, size_t key_len, corral_inspection *ret,
                              size_t ret_size, corral_error *error);
typedef enum corral_key_kind {
  CORRAL_KEY_VALUE = 0,
  CORRAL_KEY_TAG,
  CORRAL_KEY_LOCK
} corral_key_kind;

/* The key under which the store is asked for a value (the policy's variant of it), a tag's version,
 * or a lock (docs/keys.md): at most `size` bytes into `room`; *ret_len is its length, 65536 at
 * most. Asks no store. CORRAL_EINVAL (also a variant of a tag or a lock), CORRAL_ETOOBIG: longer
 * than `size`. */
CORRAL_API int corral_stored_key(corral *c, corral_key_kind kind, const void *key, size_t key_len,
                                 const corral_policy *policy, void *room, size_t size,
                                 size_t *ret_len);
/* How often an event has happened on this handle. */
CORRAL_API uint64_t corral_counter(const corral *c, corral_event event);
/* The version of the library that is running, as "major.minor.patch". */
CORRAL_API const char *corral_version(void);
/* A store's URI, or an origin's URL, as messages may show it: its password, and the values of
 * parameters that may be secrets, are "***". Any text will do, also one that is no URI. Cut to
 * `size` bytes and terminated. Any thread. */
CORRAL_API void corral_uri_show(const char *uri, char *text, size_t size);

#ifdef __cplusplus
}
#endif
#endif
