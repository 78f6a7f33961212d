/* corral.h: get-or-compute in front of a shared cache, with one compute per key at a time. Locks
 * are in corral/lock.h, event loops in corral/loop.h, the interface of store plugins in
 * corral/plugin.h.
 *
 * Conventions
 *  - Status: a function returns CORRAL_OK (0) or a negative code of CORRAL_STATUS_MAP, and writes
 *    its out-parameters on success only.
 *  - Parameters stand in one order: the object; what the call is about (key, tag or name, with its
 *    length); the call or the options; other inputs; a callback and its `arg`; the out-parameter,
 *    `ret`; `error`. So `ret` is the last parameter but `error`, and `error` the last.
 *  - Detail of a failure goes to a corral_error that the caller owns: a function about a key takes
 *    a `call`, whose member `error` receives it, and other functions have the parameter `error`.
 *    `call` and `error` may always be NULL.
 *  - Sized structs: the first member of a struct that may grow is its `size`, set by the caller (by
 *    CORRAL_CALL, CORRAL_POLICY, CORRAL_OPTIONS, CORRAL_LOCK, CORRAL_ASYNC). A shorter struct, of
 *    an older header, reads as zeroes beyond its end. A longer one, of a newer header, is accepted
 *    if all that this library does not know is zero, else refused with CORRAL_EOPTION. Where the
 *    library fills a struct, it sets all of the caller's `size`, and zeroes what it does not know.
 *  - Errors: a function that takes a corral may return CORRAL_EINVAL (an invalid argument, a corral
 *    that is not open, a call within its on_event), CORRAL_ENOMEM, CORRAL_EFORKED, CORRAL_ECLOSED,
 *    and, for a call about values on a store that has locks only, CORRAL_EUNSUPPORTED. A function
 *    that needs the store may return how the store failed: CORRAL_EUNAVAILABLE, CORRAL_EINDOUBT,
 *    CORRAL_ETOOBIG, CORRAL_EFOREIGN, CORRAL_ENEWER, CORRAL_EPROTOCOL, CORRAL_EAUTH,
 *    CORRAL_EREFUSED, CORRAL_EIO. Each function's comment names the statuses that mean something
 *    particular there.
 *  - Durations are milliseconds in an int64_t and end in `_ms`. In options, 0 means the documented
 *    default, and CORRAL_OFF (-1) switches a feature off where the table's range begins at -1.
 *  - Keys are bytes: 1 to CORRAL_KEY_MAX of them, of any value. The library copies them; the caller
 *    keeps its own.
 *  - Threads: any function may be called from any thread, except corral_close, which must be the
 *    last call on its corral. The library calls no callback while it holds a lock of its own.
 *  - Fork: a corral that was opened but not yet used may be used in every child. A corral that was
 *    used before a fork returns CORRAL_EFORKED in the child, which must open another one; it may,
 *    whatever the parent's other threads were doing.
 *  - Cancelling (pthread_cancel): within a call, a thread can be cancelled only while it runs its
 *    compute.
 *  - Signals: the library installs no handler and never raises SIGPIPE; its threads block all
 *    signals. */
#ifndef CORRAL_H
#define CORRAL_H

#include <stddef.h>
#include <stdint.h>

/* Version of this header: as a text, and as major * 1,000,000 + minor * 1,000 + patch. The version
 * of the library in use is corral_version() and corral_version_number(). */
#define CORRAL_VERSION "0.1.0"
#define CORRAL_VERSION_NUMBER 1000

#if defined(__GNUC__)
#define CORRAL_API __attribute__((visibility("default")))
#else
#define CORRAL_API
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* ---- limits -------------------------------------------------------------------------------- */

#define CORRAL_KEY_MAX 65536       /* bytes of a key, and of a lock's name */
#define CORRAL_VARIANT_MAX 1024    /* bytes of a variant */
#define CORRAL_VALUE_MAX 536870912 /* bytes of a value; the option max_value sets a lower limit */
#define CORRAL_TAG_MAX 200         /* bytes of a tag */
#define CORRAL_TAGS_MAX 16         /* tags of a value */
#define CORRAL_VALIDATOR_MAX 1024  /* bytes of a validator */
#define CORRAL_NAME_SPACE_MAX 1024 /* bytes of the option name_space */
#define CORRAL_ORIGIN_MAX 100      /* bytes of the option origin, when it is a name */
/* A store's watch that was silent for so long (ms), also when asked, is given up. Until then copies
 * of this process may serve what was invalidated elsewhere (docs/near.md). */
#define CORRAL_SILENCE_MS 2000

/* ---- status -------------------------------------------------------------------------------- */

/* X(name, number, text). A text is one impersonal line, without what the caller knows already. */
#define CORRAL_STATUS_MAP(X)                                                                       \
  X(EINVAL, -1, "invalid argument")                                                                \
  X(ENOMEM, -2, "out of memory")                                                                   \
  X(ENOTFOUND, -3, "no such thing, said the origin; the answer is remembered")                     \
  X(EMISS, -4, "not in the store, and there is nothing to compute it with")                        \
  X(EFAILED, -5, "computing failed")                                                               \
  X(EDEADLINE, -6, "the call's deadline passed before a value came")                               \
  X(EUNAVAILABLE, -7, "the store can't be reached")                                                \
  X(EBUSY, -8, "another holder has the lease or the lock")                                         \
  X(ELOST, -9, "the lease was lost: nothing was written")                                          \
  X(EINDOUBT, -10, "the store's reply was lost: the operation may or may not have happened")       \
  X(ETOOBIG, -11, "larger than the store accepts")                                                 \
  X(EFOREIGN, -12, "the store's key holds data that corral did not write")                         \
  X(ECORRUPT, -13, "the stored record is damaged")                                                 \
  X(EPROTOCOL, -14, "the server's reply can't be understood")                                      \
  X(EAUTH, -15, "the server refuses this user, password or command")                               \
  X(EREFUSED, -16, "the store refuses to write")                                                   \
  X(ERECURSION, -17, "computing a key asked for the same key")                                     \
  X(EFORKED, -18, "the handle was used before a fork: open a new one in the child")                \
  X(ECLOSED, -19, "the handle is being closed")                                                    \
  X(EOPTION, -20, "an option that this version of the library does not know")                      \
  X(EURI, -21, "the store URI is not valid")                                                       \
  X(ENOPLUGIN, -22, "no plugin for this kind of store")                                            \
  X(EIO, -23, "the operating system reported an error")                                            \
  X(EABANDONED, -24, "computing took longer than compute_ms")                                      \
  X(EUNSUPPORTED, -25, "the store can't do that")                                                  \
  X(ECANCELLED, -26, "the call's cancel token was cancelled")                                      \
  X(ENEWER, -27, "the store's key holds a record of a later version of corral")                    \
  X(EOLDER, -28, "not stored: the stored value has a later version")                               \
  X(EMOVED, -29, "another server of the store has this key: no call returns it")                   \
  X(EFROZEN, -30, "not in the store, and computing is frozen by an operator (corral control)")

/* Statuses: 0, and the negative numbers of CORRAL_STATUS_MAP. */
typedef enum corral_status {
  CORRAL_OK = 0,
#define CORRAL_STATUS_ENUM(name, number, text) CORRAL_##name = (number),
  CORRAL_STATUS_MAP(CORRAL_STATUS_ENUM)
#undef CORRAL_STATUS_ENUM
} corral_status;

/* Text of a status; never NULL, also for a number outside of the table. Static storage. */
CORRAL_API const char *corral_status_text(int status);
/* Name of a status without its prefix ("EDEADLINE", "OK"); "?" for a number outside of the table.
 * Static storage. */
CORRAL_API const char *corral_status_name(int status);

/* Detail of a failed call. The caller owns it and zeroes it before use; calls write it on failure
 * only. Its size is frozen. */
typedef struct corral_error {
  int32_t status; /* the status that was returned */
  /* EFAILED: the number given to corral_fill_fail, or the negative status that the compute
   * returned. ELOST of a lock: CORRAL_LOST_... of corral/lock.h. Else 0 */
  int32_t code;
  /* EFAILED: how long this failure is still remembered and not computed again. EBUSY and EDEADLINE
   * of corral_lock_take: what is left of the hold in the way, unless it is extended. Else, and
   * where it isn't known, 0 */
  int64_t retry_after_ms;
  char text[240]; /* what was wrong and what is accepted; always terminated */
} corral_error;

#include <corral/option.h>

/* ---- values -------------------------------------------------------------------------------- */

/* A value: immutable, reference-counted bytes and how a call got them. Any number of threads may
 * read one value. */
typedef struct corral_value corral_value;

/* The way in which a call got its value. */
typedef enum corral_how {
  CORRAL_FRESH = 1, /* fresh, found by the first look: in the store or the near tier */
  CORRAL_STALE,     /* found past its soft TTL (fresh life) and within its grace */
  CORRAL_COMPUTED,  /* this call ran compute */
  CORRAL_JOINED,    /* another thread, process or host computed it while this call waited */
  CORRAL_OUTBOX     /* of this process alone, because the store can't be reached (when_away) */
} corral_how;

/* Outcome of storing a value. */
typedef enum corral_kept {
  /* stored, or served from the store or from a copy of this process (CORRAL_OUTBOX, near tier) */
  CORRAL_KEPT = 0,
  /* not stored: the lease was lost, or the key invalidated, during the compute */
  CORRAL_KEPT_FENCED,
  CORRAL_KEPT_NOT, /* not stored: the store can't be reached, or refused the value */
  /* perhaps stored: the store's reply was lost, or hadn't come when this caller got the value, for
   * which settle_behind doesn't wait; the events fill, fenced and unstored tell it */
  CORRAL_KEPT_UNKNOWN,
  CORRAL_KEPT_OLDER /* not stored: the stored value has a later version */
} corral_kept;

/* The bytes of a value (never NULL, also for an empty value), and their number. The bytes are valid
 * as long as the caller holds a reference. */
CORRAL_API const void *corral_value_data(const corral_value *value);
CORRAL_API size_t corral_value_size(const corral_value *value);
/* Way in which this call got the value. */
CORRAL_API corral_how corral_value_how(const corral_value *value);
/* Age of the value when this call got it, in ms since it was stored; 0: just computed. */
CORRAL_API int64_t corral_value_age_ms(const corral_value *value);
/* Outcome of storing the value. */
CORRAL_API corral_kept corral_value_kept(const corral_value *value);
/* Version that the compute gave the value (corral_fill_version); 0: none. */
CORRAL_API uint64_t corral_value_version(const corral_value *value);
/* Number of the failure (the code of corral_fill_fail, or the negative status of the compute) for
 * which a value is served past its fresh life: this call's, or one that is remembered. 0: there was
 * none, or it has no number. */
CORRAL_API int32_t corral_value_failure(const corral_value *value);
/* Takes one more reference and returns `value`. Any thread. */
CORRAL_API corral_value *corral_value_ref(corral_value *value);
/* Drops a reference; the last one frees the value. NULL is allowed. Any thread. */
CORRAL_API void corral_value_unref(corral_value *value);
/* "fresh", "stale", "computed", "joined", "outbox"; "?" for another number. Static storage. */
CORRAL_API const char *corral_how_name(corral_how how);

/* ---- compute ------------------------------------------------------------------------------- */

/* Receives the answer of one compute. Valid until that compute returns, or is ended by
 * corral_fill_done or corral_fill_abandon (corral/loop.h). Its functions may be called from any
 * thread, one at a time; corral_fill_should_stop at any time. */
typedef struct corral_fill corral_fill;

/* The user's function that computes one value. It sets an answer with one of corral_fill_bytes,
 * corral_fill_reserve, corral_fill_negative, corral_fill_not_modified and corral_fill_fail (the
 * last call counts) and returns CORRAL_OK. Returning without an answer, or a negative number, is a
 * failure. `key` and `fill` are valid until it returns.
 * It may call functions of any corral, also of the same one for other keys; getting its own key
 * returns CORRAL_ERECURSION.
 * Threads: a compute given per call runs inside that call, on its thread. A compute bound at open
 * runs on threads of the library, several keys at once, and on the caller's thread when no thread
 * can be had or the call computes at its deadline (CORRAL_DEADLINE_COMPUTE).
 * It may end without returning: its thread is cancelled, or calls pthread_exit, or, on the caller's
 * thread, a C++ exception passes through the call. Then its lease and all else it holds are given
 * back at once, another caller leads, and no failure is remembered. Leaving it by longjmp is not
 * allowed. */
typedef int corral_compute(corral_fill *fill, const void *key, size_t key_len, void *arg);

/* Answers with a value: `size` bytes, copied. CORRAL_ETOOBIG (above the option max_value),
 * CORRAL_ENOMEM: the fill is as it was. */
CORRAL_API int corral_fill_bytes(corral_fill *fill, const void *data, size_t size);
/* Answers with a value, without a copy: returns room for `size` bytes, which the fill owns and the
 * compute writes before it ends. NULL when there is no memory or `size` is above max_value: the
 * fill is as it was. */
CORRAL_API void *corral_fill_reserve(corral_fill *fill, size_t size);
/* Answers "there is no such thing": remembered for negative_ttl_ms; callers get
 * CORRAL_ENOTFOUND. */
CORRAL_API void corral_fill_negative(corral_fill *fill);
/* Answers with a failure. `code` is the user's own number; `text` (NULL: "computing failed") is
 * copied, cut at 63 bytes for the fleet and at 239 for this process. Both go to the error of every
 * caller of the key until the failure's pause (retry_ms and more) is over. */
CORRAL_API void corral_fill_fail(corral_fill *fill, int32_t code, const char *text);
/* Lives of this value, in ms, in place of the policy's. 0 keeps the policy's; CORRAL_OFF is none (a
 * ttl_ms of CORRAL_OFF: the callers that wait are answered, nothing is stored). For "no such
 * thing", ttl_ms takes the place of negative_ttl_ms. */
CORRAL_API void corral_fill_lives(corral_fill *fill, int64_t ttl_ms, int64_t swr_ms,
                                  int64_t sie_ms);
/* Moment (wall clock, ms since 1970) from which on this value may not be served, not in its grace
 * either: its lives are cut to end there. A moment that has passed acts as a ttl_ms of CORRAL_OFF.
 * 0: no such moment. It is compared with this process's wall clock when the compute ends. */
CORRAL_API void corral_fill_not_after(corral_fill *fill, int64_t wall_ms);
/* Marks the answer, which another call sets, as one that can't be cached. It goes to the caller of
 * this compute alone. For pass_ttl_ms every caller of the key computes for itself, in parallel and
 * without an election (at most max_computes at once). */
CORRAL_API void corral_fill_pass(corral_fill *fill);
/* Adds a tag: 1 to CORRAL_TAG_MAX bytes of any value, copied. corral_invalidate_tag and
 * corral_expire_tag reach all values that carry it. A value with tags costs each look at it one
 * more round trip, for all its tags together. CORRAL_EINVAL (length), CORRAL_ETOOBIG (more than
 * CORRAL_TAGS_MAX tags), CORRAL_ENOMEM. */
CORRAL_API int corral_fill_tag(corral_fill *fill, const void *tag, size_t len);
/* Sets the value's version: a number that grows with every change of the source data (a row's
 * version, a log sequence number); 0: none. A value is never stored over one of a later version:
 * the stored one is served within its grace, and computing is tried again after retry_ms. */
CORRAL_API void corral_fill_version(corral_fill *fill, uint64_t version);
/* Sets the value's validator, by which the origin can tell that its answer is unchanged (an ETag, a
 * date): at most CORRAL_VALIDATOR_MAX bytes, copied, stored beside the value. CORRAL_ETOOBIG,
 * CORRAL_ENOMEM. */
CORRAL_API int corral_fill_validator(corral_fill *fill, const void *data, size_t size);
/* The stored value that is about to be replaced, its validator and its version, as far as the store
 * still has them; else NULL with *ret_size = 0, and version 0. The bytes belong to the fill and are
 * valid until the compute ends. */
CORRAL_API const void *corral_fill_old(const corral_fill *fill, size_t *ret_size);
CORRAL_API const void *corral_fill_old_validator(const corral_fill *fill, size_t *ret_size);
CORRAL_API uint64_t corral_fill_old_version(const corral_fill *fill);
/* Answers with the old value, which still holds. Its life begins anew, where the store can do so
 * without moving the bytes; validator, version and tags stay unless the compute sets others.
 * CORRAL_EMISS: there is no old value. */
CORRAL_API int corral_fill_not_modified(corral_fill *fill);
/* The key that is being computed, without the namespace; valid as long as the fill. */
CORRAL_API const void *corral_fill_key(const corral_fill *fill, size_t *ret_size);
/* The variant of the key that is being computed (see corral_call), valid as long as the fill;
 * NULL and *ret_size = 0 for the key itself. */
CORRAL_API const void *corral_fill_variant(const corral_fill *fill, size_t *ret_size);
/* Nonzero when a failure of this compute would be answered with a stale value that is still usable;
 * else 0. */
CORRAL_API int corral_fill_has_stale(const corral_fill *fill);
/* Nonzero when the result has no user any more: the compute took longer than compute_ms, its lease
 * is lost, or, with the policy's stop_alone, no caller in this process waits for it; else 0. The
 * compute itself decides whether and how it ends early. */
CORRAL_API int corral_fill_should_stop(const corral_fill *fill);

/* ---- policy -------------------------------------------------------------------------------- */

/* Values of at_deadline: what a waiting call gets at wait_ms when there is no stale value to serve.
 * ERROR: CORRAL_EDEADLINE. COMPUTE: the call computes for itself, while the compute that it waited
 * for goes on; the result goes to this call alone and isn't stored. */
enum { CORRAL_DEADLINE_ERROR = 1, CORRAL_DEADLINE_COMPUTE = 2 };

/* Values of at_failure: what a call gets that finds a remembered failure when it comes, has no
 * stale value to serve, and would wait no longer than retry_ms for the end of the pause. ERROR:
 * that failure. WAIT: the result of the next try. */
enum { CORRAL_FAILURE_ERROR = 1, CORRAL_FAILURE_WAIT = 2 };

/* Values of when_away: what a call gets while the store is away. COMPUTE: its compute runs, one at
 * a time per key and process (per host with host_lock), at most max_computes at once. STALE: what
 * this process computed meanwhile (see outbox_ms) or has a near copy of, as long as its lives last;
 * else as COMPUTE. ERROR: CORRAL_EUNAVAILABLE, at once while the breaker is open. */
enum { CORRAL_AWAY_COMPUTE = 1, CORRAL_AWAY_STALE = 2, CORRAL_AWAY_ERROR = 3 };

/* The numbers by which a corral works. A call may set some of them anew (corral_call). */
typedef struct corral_policy {
  size_t size; /* sizeof(corral_policy), set by CORRAL_POLICY */
#define CORRAL_POLICY_FIELD(field, name, group, unit, def, least, most, command, nginx, text)      \
  int64_t field;
  CORRAL_POLICY_MAP(CORRAL_POLICY_FIELD)
#undef CORRAL_POLICY_FIELD
} corral_policy;

/* A policy in place: CORRAL_POLICY(.ttl_ms = 60000, .swr_ms = 600000); in C++
 * CORRAL_POLICY(.ttl_ms(60000).swr_ms(600000)), see corral/cxx.h. A field that is 0 takes its value
 * from the policy that the corral was opened with, then from the table. */
#ifndef __cplusplus
#define CORRAL_POLICY(...) (&(corral_policy){.size = sizeof(corral_policy), __VA_ARGS__})
#endif

/* Describes a policy, its zeroes being the table's defaults: one sentence a line, then the settings
 * that make no sense, in lines that begin with "warning: ". Writes at most `size` bytes to `text`,
 * cut and terminated; 4096 are enough. `policy` may be NULL: the defaults. CORRAL_EINVAL,
 * CORRAL_EOPTION: then the text is as it was. */
CORRAL_API int corral_policy_explain(const corral_policy *policy, char *text, size_t size,
                                     corral_error *error);

/* ---- calls --------------------------------------------------------------------------------- */

/* Cancel token; any number of calls, one after the other or at once, may share it. */
typedef struct corral_cancel_token corral_cancel_token;

/* One tag. Its size is frozen. */
typedef struct corral_tag {
  const void *name; /* 1 to CORRAL_TAG_MAX bytes of any value */
  size_t len;
} corral_tag;

/* The settings of one call about a key. The library uses none of them after the call has returned,
 * except for the cancel token of corral_loop_get. */
typedef struct corral_call {
  size_t size;                 /* sizeof(corral_call), set by CORRAL_CALL */
  const corral_policy *policy; /* takes the place of the corral's where not 0; NULL: nowhere */
  corral_error *error;         /* receives the detail of a failure; may be NULL */
  /* ends the wait of a call that gets values: see corral_cancel_token_cancel; may be NULL */
  corral_cancel_token *cancel_token;
  /* selects one of several values of a key (the languages of a page, say): 1 to CORRAL_VARIANT_MAX
   * bytes of any value. Each variant is stored, computed and leased by itself, and no variant
   * equals another key */
  const void *variant;
  size_t variant_len; /* 0: the key itself */
  /* for corral_set alone, other functions return CORRAL_EINVAL: what a compute gives by
   * corral_fill_tag, corral_fill_version and corral_fill_validator */
  const corral_tag *tags; /* at most CORRAL_TAGS_MAX */
  size_t tag_count;
  uint64_t version;      /* 0: none */
  const void *validator; /* at most CORRAL_VALIDATOR_MAX bytes; NULL: none */
  size_t validator_len;
} corral_call;

/* A call in place: CORRAL_CALL(.policy = CORRAL_POLICY(.ttl_ms = 60000), .error = &error); in C++
 * CORRAL_CALL(.policy(CORRAL_POLICY(.ttl_ms(60000))).error(&error)). */
#ifndef __cplusplus
#define CORRAL_CALL(...) (&(corral_call){.size = sizeof(corral_call), __VA_ARGS__})
#endif

/* ---- events -------------------------------------------------------------------------------- */

#include <corral/event.h>

/* Name of an event ("hit") and its sentence; "?" for a number outside of the table. Static
 * storage. */
CORRAL_API const char *corral_event_name(corral_event event);
CORRAL_API const char *corral_event_text(corral_event event);

/* ---- open, close --------------------------------------------------------------------------- */

/* An open corral: one store, one namespace, one set of options. */
typedef struct corral corral;

/* Compares a value that was served with what its compute gives now (`size` bytes at `data`), for
 * the option `verify` (docs/freshness.md). Not 0: they mean the same, as where a page says when it
 * was made. Called on a thread of the library, one call at a time; what it is given is valid until
 * it returns. Functions of the same corral return CORRAL_EINVAL within it. */
typedef int corral_verify_fn(const void *key, size_t key_len, const corral_value *served,
                             const void *data, size_t size, void *arg);

/* The options of corral_open. The numbers and their ranges are in corral/option.h. */
typedef struct corral_options {
  size_t size; /* sizeof(corral_options), set by CORRAL_OPTIONS */
  /* Texts, NULL: none. store: URI, required. name_space: prefix of each key, as "name_space:"
   * (docs/keys.md), at most CORRAL_NAME_SPACE_MAX bytes. host_dir: folder of host_lock's lock file,
   * an absolute path; NULL: $CORRAL_HOST_DIR, else one in /dev/shm or /tmp for this user. Processes
   * of several users share an election when they name the same folder. origin: name of the resource
   * that the computes load, for fleet_max_computes: all corrals on this store with the same name
   * share the limit, in any namespace; 1 to CORRAL_ORIGIN_MAX bytes; NULL: "origin". Or a URL,
   * "https://host/{key}", from which the values come: it takes the place of `compute`
   * (docs/http.md), and its name is "https://host". stats_dir: folder of the stats file, in which
   * this process counts for `corral stat` and corral_stats_host: an absolute path, or "off"; NULL:
   * $CORRAL_STATS_DIR, else /dev/shm/corral-stats.UID (docs/stats.md) */
#define CORRAL_TEXT_FIELD(field, name, group, command, nginx, text) const char *field;
  CORRAL_TEXT_MAP(CORRAL_TEXT_FIELD)
#undef CORRAL_TEXT_FIELD
  /* defaults of every call's policy; NULL: the table's */
  const corral_policy *policy;
  /* bound compute, for corral_get and corral_loop_get; may run in the background. NULL: none. Not
   * together with an origin that is a URL */
  corral_compute *compute;
  void *compute_arg;         /* passed to `compute`; must outlive the corral */
  corral_event_fn *on_event; /* called for each event, from any thread; NULL: none */
  void *event_arg;
  corral_verify_fn *on_verify; /* compares what verify computes anew; NULL: byte by byte */
  void *verify_arg;
#define CORRAL_OPTION_FIELD(field, name, group, unit, def, least, most, command, nginx, text)      \
  int64_t field;
  CORRAL_OPTION_MAP(CORRAL_OPTION_FIELD)
#undef CORRAL_OPTION_FIELD
} corral_options;

/* Options in place: CORRAL_OPTIONS(.store = "memory:"); in C++
 * CORRAL_OPTIONS(.store("memory:")). A number that is 0 is the table's default. */
#ifndef __cplusplus
#define CORRAL_OPTIONS(...) (&(corral_options){.size = sizeof(corral_options), __VA_ARGS__})
#endif

/* Checks the options and makes a corral, to be given to corral_close. Asks no store and starts no
 * thread; it may load the store's plugin and read a password that the URI refers to. The options
 * and their texts are copied. CORRAL_EINVAL (out of range; the text names option, value and range),
 * CORRAL_EOPTION, CORRAL_EURI, CORRAL_ENOPLUGIN, CORRAL_EIO (no randomness from the kernel),
 * CORRAL_ENOMEM. */
CORRAL_API int corral_open(const corral_options *options, corral **ret, corral_error *error);
/* Waits for the background computes that run and for values that are still to be stored, drops the
 * computes that are queued, and frees everything. It must be the last call, with no other one under
 * way on this corral, its locks released and its loops closed. Values outlive it. It does nothing
 * for NULL, within on_event, within on_lost of a lock, and in a child of the process that used the
 * corral. A process that exits without it waits for the values alone, for op_ms at the longest. */
CORRAL_API void corral_close(corral *c);

/* ---- get, set, invalidate ------------------------------------------------------------------ */

/* Gets the value of a key: from the store, from the flight that is computing it (in any thread,
 * process or host), or from `compute`, which this call runs when it holds the lease. CORRAL_OK:
 * *ret is the caller's, to be given to corral_value_unref. Blocks until wait_ms (or soft_ms, with a
 * stale value) at the latest, or until its cancel token is cancelled; only its own compute may take
 * longer. After its own compute it returns when the value is stored, with settle_behind at once.
 * While the store is away, compute runs once at a time per key and process (and host, with
 * host_lock), unless when_away says otherwise; the result stays in this process. At max_computes a
 * call that may be answered by a stale value gets it, other calls wait within wait_ms.
 * CORRAL_ENOTFOUND ("no such thing"), CORRAL_EFAILED (code, text and retry_after_ms are in the
 * error), CORRAL_EDEADLINE, CORRAL_ECANCELLED, CORRAL_ERECURSION, CORRAL_EUNAVAILABLE (when_away is
 * CORRAL_AWAY_ERROR), CORRAL_EBUSY (with the option anew: somebody else is computing it),
 * CORRAL_EOPTION. */
CORRAL_API int corral_get_or_compute(corral *c, const void *key, size_t key_len,
                                     const corral_call *call, corral_compute *compute, void *arg,
                                     corral_value **ret);
/* corral_get_or_compute with the compute or origin bound at open: it runs on the library's threads,
 * so this call always ends by wait_ms (unless at_deadline makes it compute for itself then), and a
 * stale value inside swr_ms is answered at once and rebuilt in the background. Without a bound
 * compute the call only looks: CORRAL_EMISS when the store has nothing usable, CORRAL_EUNAVAILABLE
 * when the store can't be asked. */
CORRAL_API int corral_get(corral *c, const void *key, size_t key_len, const corral_call *call,
                          corral_value **ret);

/* One key of a batch. Its size is frozen. */
typedef struct corral_item {
  const void *key; /* set by the caller, with key_len; the library sets the rest */
  size_t key_len;
  int status;          /* as corral_get_or_compute would return it for this key */
  corral_value *value; /* CORRAL_OK: the caller's, to be given to corral_value_unref; else NULL */
  corral_error error;  /* detail of `status`; all zero when that is CORRAL_OK */
} corral_item;

/* Computes several values: each fill is one key's (corral_fill_key) and is answered as in a
 * corral_compute. A fill without an answer is a failure of its key alone; a negative return value
 * is the failure of all keys without an answer. compute_ms is the limit of the whole. Runs on the
 * thread of corral_get_many; may end without returning, as a corral_compute. */
typedef int corral_compute_many(corral_fill *const *fills, size_t count, void *arg);

/* corral_get_or_compute for several keys: the store is asked for all of them at once, and `compute`
 * runs once, on this thread, for all keys whose lease this call holds. Then the call waits for the
 * keys that others compute; when those fail to, `compute` runs again. A key that appears twice is
 * asked for once, and both items get its result. `compute` NULL: the call only looks
 * (CORRAL_EMISS). The call's policy, variant, deadline and cancel token hold for each key; its
 * error is for the call as a whole. All keys of a call take one place among max_computes.
 * CORRAL_OK: every item has its own status, even when all failed. CORRAL_EINVAL (the corral, the
 * call, no items), CORRAL_EUNSUPPORTED, CORRAL_EOPTION, CORRAL_ENOMEM, CORRAL_EFORKED,
 * CORRAL_ECLOSED concern the call as a whole: then each item has that status, and no value. */
CORRAL_API int corral_get_many(corral *c, corral_item *items, size_t count, const corral_call *call,
                               corral_compute_many *compute, void *arg);
/* Stores a value (`size` bytes, copied) with the call's lives, variant, tags, version and
 * validator, whatever the key has, and voids any compute of this key that is under way. Blocks
 * until the value is stored, at most until wait_ms. CORRAL_ETOOBIG (above max_value; more tags, or
 * a longer validator, than allowed), CORRAL_EOLDER (with a version: the stored value has a later
 * one, and stays), CORRAL_EBUSY and CORRAL_ELOST (others took the lease again and again, all the
 * time). After any other error than CORRAL_EOLDER the key may have the old value, the new one, or
 * none. */
CORRAL_API int corral_set(corral *c, const void *key, size_t key_len, const corral_call *call,
                          const void *data, size_t size);
/* Removes a value, or one variant of it (the call's): what was computed before this returns
 * CORRAL_OK is never served from the store again, and any compute of the key under way is voided.
 * CORRAL_OK also when there was nothing. The variants of a key are invalidated each by itself, or
 * together by a tag that they have in common. On any other status the store may still hold the old
 * value; after CORRAL_EUNAVAILABLE and CORRAL_EINDOUBT the invalidation is repeated when the store
 * is back, while this process lives and for outbox_ms at the most. */
CORRAL_API int corral_invalidate(corral *c, const void *key, size_t key_len,
                                 const corral_call *call);
/* Ends the fresh life of a value, or of one variant of it, now: it is still served in its grace
 * (swr_ms, sie_ms), and any compute under way is voided. CORRAL_OK also when there was nothing. An
 * expiry that failed is not repeated later. */
CORRAL_API int corral_expire(corral *c, const void *key, size_t key_len, const corral_call *call);

/* corral_invalidate and corral_expire for all values that carry a tag, whichever
 * process stored them, and for all computes under way whose values will carry it. They cost one to
 * three operations on the store, however many values there are. CORRAL_OK also for a tag that was
 * never used. */
CORRAL_API int corral_invalidate_tag(corral *c, const void *tag, size_t len, corral_error *error);
CORRAL_API int corral_expire_tag(corral *c, const void *tag, size_t len, corral_error *error);
/* corral_invalidate and corral_expire for all values of this namespace. CORRAL_EUNSUPPORTED without
 * the option `generation`, which all who share the namespace must set. */
CORRAL_API int corral_invalidate_all(corral *c, corral_error *error);
CORRAL_API int corral_expire_all(corral *c, corral_error *error);

/* ---- cancel -------------------------------------------------------------------------------- */

/* Makes a cancel token, to be given to corral_cancel_token_free; NULL without memory. */
CORRAL_API corral_cancel_token *corral_cancel_token_new(void);
/* Frees a cancel token, which no call may be using. NULL is allowed. */
CORRAL_API void corral_cancel_token_free(corral_cancel_token *cancel_token);
/* Ends all calls that wait under this cancel token, and all later ones, at once with
 * CORRAL_ECANCELLED. A call whose own compute runs inside it ends when that compute does; the
 * compute is told to stop (corral_fill_should_stop) if the policy's stop_alone is set and no other
 * caller waits for the key. Other callers of the same key are not affected: one of them leads. NULL
 * is allowed. Any thread. */
CORRAL_API void corral_cancel_token_cancel(corral_cancel_token *cancel_token);

/* ---- inspect ------------------------------------------------------------------------------- */

/* State of a key in the store. */
typedef struct corral_inspection {
  size_t size; /* sizeof(corral_inspection), set by the caller */
  /* "fresh", "stale", "expired", "negative", "pass" (can't be cached), "void" (a tag was
   * invalidated), "none"; static storage */
  const char *state;
  uint64_t value_size;  /* bytes of the value */
  uint64_t stored_size; /* bytes of the whole record as stored */
  int64_t age_ms;       /* since it was stored; -1 unknown */
  int64_t ttl_ms;       /* fresh life it was stored with */
  /* grace while it is rebuilt (swr_ms) and when rebuilding fails (sie_ms), as stored */
  int64_t swr_ms;
  int64_t sie_ms;
  int64_t left_ms;       /* until the store drops the value; -1 unknown */
  int64_t cost_ms;       /* time that its compute took */
  int64_t created_ms;    /* wall clock of the computing host, ms since 1970: for display only */
  int64_t lease_left_ms; /* of the leader's lease; 0: there is none; -1 unknown */
  int64_t retry_left_ms; /* until a remembered failure is over; 0: there is none; -1 unknown */
  int64_t failures;      /* failed computes in a row */
  int32_t failure_code;  /* code of the remembered failure */
  char holder[64];       /* holder of the lease: "host/pid"; empty when there is none */
  char failure[64];      /* text of the remembered failure */
  uint64_t version;      /* of the value; 0: none */
  int64_t lease_held_ms; /* since the leader began; 0: there is none; -1 unknown */
} corral_inspection;

/* Looks at the record of a key, or of the call's variant of it, which stays as it is. The caller
 * sets ret->size. A key that the store doesn't have is CORRAL_OK with state "none". Blocks until
 * wait_ms at the latest. CORRAL_ECORRUPT, CORRAL_EFOREIGN, CORRAL_ENEWER. */
CORRAL_API int corral_inspect(corral *c, const void *key, size_t key_len, const corral_call *call,
                              corral_inspection *ret);

/* Verdicts of a fact. */
enum {
  CORRAL_FACT_PLAIN = 0,   /* it is as it is */
  CORRAL_FACT_WARNING = 1, /* the store can be used; something is lost by it, or wasn't found out */
  CORRAL_FACT_UNFIT = 2    /* the store isn't fit for the purpose */
};

/* A fact about a store, valid during the call that tells it. The texts come from the store's
 * servers in part: they may have any bytes, and are to be made harmless before they are shown. The
 * library fills the struct; a later version may append members, and `size` tells which there
 * are. */
typedef struct corral_fact {
  size_t size;        /* sizeof(corral_fact) of who filled it */
  const char *server; /* the server that it is about, as it is called in messages */
  const char *name;   /* lower-case letters, digits and '_'; a name is told once about a server */
  const char *value;  /* a number in decimal is one; "unknown": the store didn't tell */
  int verdict;        /* CORRAL_FACT_... */
  const char *advice; /* what to do, in one sentence; NULL: the verdict is PLAIN */
} corral_fact;

typedef void corral_fact_fn(const corral_fact *fact, void *arg);

/* Flags of corral_inspect_store. */
enum { CORRAL_INSPECT_LOCKS = 1 /* judge the store as one of locks, not of values */ };

enum { CORRAL_FACTS_MOST = 20000 /* more facts than this aren't told */ };

/* Asks each server of the store for what matters here (versions, roles, clocks, latency, rights,
 * memory, ...), over connections of its own, and tells the facts one by one, on this thread. The
 * data of the store stay as they are. Each connect, and each request, may take op_ms; so the whole
 * takes longer where servers are silent. CORRAL_OK: at least one server answered; those that didn't
 * are told as facts. Any other status: none did, and the text says why; CORRAL_EINVAL also within
 * a hook. */
CORRAL_API int corral_inspect_store(corral *c, unsigned flags, corral_fact_fn *tell, void *arg,
                                    corral_error *error);

/* Kinds of keys that a store has. */
typedef enum corral_key_kind {
  CORRAL_KEY_VALUE = 0,
  CORRAL_KEY_TAG,
  CORRAL_KEY_LOCK
} corral_key_kind;

/* The key under which the store has a value (the call's variant of it), a tag's version, or a lock
 * (docs/keys.md): writes at most `size` bytes to `room`, and its length, CORRAL_KEY_MAX at most, to
 * *ret_len. Asks no store. CORRAL_EINVAL (also a variant of a tag or a lock), CORRAL_ETOOBIG
 * (longer than `size`). */
CORRAL_API int corral_encode_key(corral *c, corral_key_kind kind, const void *key, size_t key_len,
                                 const corral_call *call, void *room, size_t size, size_t *ret_len);
/* Number of times that an event has happened on this corral; 0 for NULL or an unknown event.
 * Allowed in on_event. */
CORRAL_API uint64_t corral_counter(const corral *c, corral_event event);
/* Bytes that the near tier's copies take in this process, near_bytes at most (8 MiB where hot_pct
 * alone makes one); 0 without a near tier, and for NULL. Allowed in on_event. */
CORRAL_API uint64_t corral_near_used(const corral *c);
/* Version of the library in use, as "major.minor.patch"; static storage. */
CORRAL_API const char *corral_version(void);
/* The same as a number to compare with: major * 1,000,000 + minor * 1,000 + patch. */
CORRAL_API int corral_version_number(void);
/* Writes a store's URI, or an origin's URL, to `text` as messages may show it: its password, and
 * the values of parameters that may be secrets, are replaced by "***". `uri` may be any text, also
 * one that is no URI. The result is cut to `size` bytes and terminated. Any thread. */
CORRAL_API void corral_uri_show(const char *uri, char *text, size_t size);
/* Writes the schemes of the stores that this project has plugins for to `text`, as words, those
 * that hold locks alone behind those that hold values: "memory lmdb redis ...". Whether a plugin is
 * installed is not looked at. The result is cut to `size` bytes and terminated. Any thread. */
CORRAL_API void corral_store_schemes(char *text, size_t size);

#ifdef __cplusplus
}
#include <corral/cxx.h>
#endif
#endif
