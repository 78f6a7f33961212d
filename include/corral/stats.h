/* stats.h: what was counted and measured of a corral, and of all corrals of this host.
 *
 *   static int add(const corral_stats *one, void *sum) { return corral_stats_add(sum, one); }
 *
 *   corral_stats *sum = corral_stats_new();
 *   int status = corral_stats_host(NULL, add, sum, &error);
 *   printf("%llu computes\n", (unsigned long long)corral_stats_events(sum, CORRAL_EVENT_COMPUTE));
 *   corral_stats_free(sum);
 *
 * A corral counts in its stats file, which it makes at its first use, by default in shared memory
 * (the option stats_dir). When its process ends, in whatever way, its counts stay there, and a
 * later process goes on with the file: so the sums of a host don't fall, while there are no more
 * than 256 files. A file belongs to one open corral at a time, and is locked by it; one that isn't
 * locked is of a process that has ended. Readers only read: they stop nobody who counts.
 *
 * Snapshots. A corral_stats is a snapshot of one stats file, of one corral, or a sum of such. It
 * doesn't change, unless something is added to it. Each number in it was right at some moment while
 * it was made; two numbers may be of two moments.
 *
 * Files of another version of corral are read by the names that they have for their numbers: what
 * this library doesn't know is left out, and what the file doesn't have is 0. All texts, keys and
 * numbers come from files that others may have written: they are bounded, and texts and keys are to
 * be made harmless before they are shown.
 *
 * Threads: any function from any thread; but no other function may be using a snapshot that
 * something is added to, or that is freed. docs/stats.md has the whole. */
#ifndef CORRAL_STATS_H
#define CORRAL_STATS_H

#include <corral.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- the tables ---------------------------------------------------------------------------- */

/* The ways in which a call for one value ends; of a call for several, each key's. Each counts once,
 * and a call that was refused for its arguments doesn't. X(identifier, name, sentence). New rows go
 * to the end. */
#define CORRAL_RESULT_MAP(X)                                                                       \
  X(NEAR, "near", "a copy in this process answered")                                               \
  X(FRESH, "fresh", "a fresh value was found in the store")                                        \
  X(STALE, "stale", "a stale value was served")                                                    \
  X(COMPUTED, "computed", "the call ran compute")                                                  \
  X(JOINED, "joined", "another thread, process or host computed while the call waited")            \
  X(OUTBOX, "outbox", "a value of the outbox was served while the store is away")                  \
  X(NEGATIVE, "negative", "a remembered \"no such thing\" was the answer")                         \
  X(MISS, "miss", "there is nothing to compute with, and the store had nothing usable")            \
  X(FAILED, "failed", "the compute failed, or a remembered failure was served")                    \
  X(DEADLINE, "deadline", "the deadline passed without a value")                                   \
  X(ERROR, "error", "another error: of the store, or the call was cancelled")

/* The times that are measured, in microseconds. X(identifier, name, sentence). New rows go to the
 * end. Operations of a store within this process or host (memory:, lmdb:) are not measured. */
#define CORRAL_TIME_MAP(X)                                                                         \
  X(COMPUTE, "compute", "computes, from beginning to end")                                         \
  X(WAIT, "wait", "flights that waited for a leader elsewhere, or for a slow store")               \
  X(GET, "get", "looks at the store")                                                              \
  X(CLAIM, "claim", "leases taken, or asked for")                                                  \
  X(SETTLE, "settle", "fills, and leases given back")                                              \
  X(EXTEND, "extend", "leases extended")                                                           \
  X(INVALIDATE, "invalidate", "values invalidated or expired")                                     \
  X(LOCK, "lock", "operations on users' locks")                                                    \
  X(LOCK_WAIT, "lock_wait", "takings of locks, from the call to the grant")                        \
  X(LOCK_HOLD, "lock_hold", "holds of locks that were given up or lost")                           \
  X(DIFFERS_AGE, "differs_age", "ages of values that were served and were no longer true (verify)")

/* The present state of a process; all 0 when it has ended. X(identifier, name, sentence). New rows
 * go to the end. */
#define CORRAL_GAUGE_MAP(X)                                                                        \
  X(FLIGHTS, "flights", "computes under way")                                                      \
  X(WAITING, "waiting", "calls that wait for another's compute")                                   \
  X(NEAR_BYTES, "near_bytes", "bytes of the copies in the process")                                \
  X(OUTBOX_BYTES, "outbox_bytes", "bytes of the outbox")                                           \
  X(SERVERS, "servers", "servers of the store")                                                    \
  X(BREAKERS_OPEN, "breakers_open", "servers of the store that rest")                              \
  X(WAKE, "wake", "how changes are learnt of: corral_wake + 1; 0: not at all yet; sums: largest")  \
  X(LOCKS_HELD, "locks_held", "locks held")                                                        \
  X(CONTROL, "control", "the operator's order in force, a corral_control; 0: none; sums: largest") \
  X(LIMIT, "limit", "computes at once that such an order allows; 0: no order of the kind")

/* Results: the rows of CORRAL_RESULT_MAP. */
typedef enum corral_result {
#define CORRAL_RESULT_ENUM(id, name, text) CORRAL_RESULT_##id,
  CORRAL_RESULT_MAP(CORRAL_RESULT_ENUM)
#undef CORRAL_RESULT_ENUM
      CORRAL_RESULT_COUNT
} corral_result;

/* Times: the rows of CORRAL_TIME_MAP. */
typedef enum corral_time {
#define CORRAL_TIME_ENUM(id, name, text) CORRAL_TIME_##id,
  CORRAL_TIME_MAP(CORRAL_TIME_ENUM)
#undef CORRAL_TIME_ENUM
      CORRAL_TIME_COUNT
} corral_time;

/* Gauges: the rows of CORRAL_GAUGE_MAP. */
typedef enum corral_gauge {
#define CORRAL_GAUGE_ENUM(id, name, text) CORRAL_GAUGE_##id,
  CORRAL_GAUGE_MAP(CORRAL_GAUGE_ENUM)
#undef CORRAL_GAUGE_ENUM
      CORRAL_GAUGE_COUNT
} corral_gauge;

/* Name of a row ("near"), and its sentence; "?" for a number outside of the table. Static
 * storage. */
CORRAL_API const char *corral_result_name(corral_result result);
CORRAL_API const char *corral_result_text(corral_result result);
CORRAL_API const char *corral_time_name(corral_time time);
CORRAL_API const char *corral_time_text(corral_time time);
CORRAL_API const char *corral_gauge_name(corral_gauge gauge);
CORRAL_API const char *corral_gauge_text(corral_gauge gauge);

/* ---- histograms ---------------------------------------------------------------------------- */

/* Buckets of a histogram: one for each microsecond below 16, then 16 for each doubling, up to 2^37
 * us, which is a day and a half; the last one has all that is longer. */
enum { CORRAL_HISTOGRAM_BUCKETS = 544 };

/* A distribution of times. Its size is frozen. */
typedef struct corral_histogram {
  uint64_t count;  /* of times; the sum of the buckets */
  uint64_t sum_us; /* of all times */
  uint64_t max_us; /* the longest one */
  uint64_t buckets[CORRAL_HISTOGRAM_BUCKETS];
} corral_histogram;

/* The longest time of a bucket, in us; UINT64_MAX of the last one, and beyond it. */
CORRAL_API uint64_t corral_histogram_bound(size_t bucket);
/* The time, in us, that the share `q` (0 to 1) of all times doesn't exceed: 6 % too long at most,
 * and never too short; 0 when there are none. */
CORRAL_API uint64_t corral_histogram_quantile(const corral_histogram *histogram, double q);
/* Adds the times of `more` to those of `sum`. */
CORRAL_API void corral_histogram_add(corral_histogram *sum, const corral_histogram *more);

/* ---- snapshots ----------------------------------------------------------------------------- */

/* A snapshot, or a sum of several. */
typedef struct corral_stats corral_stats;

/* Takes a snapshot of one corral: of what it has counted since it was opened, also where it has no
 * stats file. Times are measured where it has a stats file, those of locks always. The caller frees
 * it. Isn't a use of the corral. No I/O. CORRAL_EINVAL, CORRAL_ENOMEM. */
CORRAL_API int corral_stats_read(corral *c, corral_stats **ret, corral_error *error);

/* Called with each snapshot, which is valid during the call: corral_stats_add keeps it. Another
 * value than 0 ends the telling. */
typedef int corral_stats_tell_fn(const corral_stats *stats, void *arg);

/* Takes a snapshot of each stats file in a folder, of living processes and of those that have
 * ended, and tells them on this thread, in the order of their names. `dir` NULL: of the folder of
 * $CORRAL_STATS_DIR or, without that, of those folders in /dev/shm that this user may read: its
 * own, and root all, in the order of the users' numbers. Files that aren't whole, and files of
 * another user than the folder's, are left out. CORRAL_OK: also when there were none; CORRAL_EIO:
 * the folder is there, but can't be read. Else what `tell` returned, if that wasn't 0. */
CORRAL_API int corral_stats_host(const char *dir, corral_stats_tell_fn *tell, void *arg,
                                 corral_error *error);

/* A sum of nothing, to be given to corral_stats_free; NULL without memory. */
CORRAL_API corral_stats *corral_stats_new(void);
/* Adds a snapshot, or a sum, to a sum. Counts, times and gauges are added (of the gauge `wake` the
 * largest stays), flights are put together, hot keys are merged; the log is not kept. A text, a
 * number and an id (_cache to _id) stay if they are the same in all that was added, else they are
 * "" or 0. CORRAL_ENOMEM: then the sum lacks some flights or hot keys. */
CORRAL_API int corral_stats_add(corral_stats *sum, const corral_stats *more);
/* Frees a snapshot or a sum. NULL is allowed. */
CORRAL_API void corral_stats_free(corral_stats *stats);

/* Times that an event has happened. 0 outside of the table, as for those below. */
CORRAL_API uint64_t corral_stats_events(const corral_stats *stats, corral_event event);
/* Calls that ended so. */
CORRAL_API uint64_t corral_stats_results(const corral_stats *stats, corral_result result);
/* Time of computes, in us, that calls were spared: for each call that was answered with a value
 * without a compute of its own, the time that computing this value took, where that is known. */
CORRAL_API uint64_t corral_stats_saved(const corral_stats *stats);
CORRAL_API int64_t corral_stats_gauge(const corral_stats *stats, corral_gauge gauge);
/* Fills *ret with the distribution of a time. */
CORRAL_API void corral_stats_times(const corral_stats *stats, corral_time time,
                                   corral_histogram *ret);

/* Texts: valid as long as the snapshot, never NULL, cut to 255 bytes. The namespace; the store's
 * URI without secrets; the name of the program; the version of corral in it. */
CORRAL_API const char *corral_stats_cache(const corral_stats *stats);
CORRAL_API const char *corral_stats_store(const corral_stats *stats);
CORRAL_API const char *corral_stats_program(const corral_stats *stats);
CORRAL_API const char *corral_stats_version(const corral_stats *stats);
/* Process that has the stats file, as its own pid namespace counts; 0: it has ended. */
CORRAL_API int64_t corral_stats_pid(const corral_stats *stats);
/* User who has the stats file; -1: none. */
CORRAL_API int64_t corral_stats_uid(const corral_stats *stats);
/* First use of the corral, in ms since 1970 by the wall clock; of an ended process its own. */
CORRAL_API int64_t corral_stats_started(const corral_stats *stats);
/* Id of the stats file, by which a snapshot can be compared with an earlier one: random, and as
 * long-lived as the file. 0: there is no file. */
CORRAL_API uint64_t corral_stats_id(const corral_stats *stats);

/* ---- flights ------------------------------------------------------------------------------- */

/* Bytes of a key that are told; of a longer key its first ones. */
enum { CORRAL_STATS_KEY = 63 };

/* The states of a flight. X(identifier, name, sentence). New rows go to the end. */
#define CORRAL_FLIGHT_MAP(X)                                                                       \
  X(COMPUTE, "compute", "this process computes")                                                   \
  X(WAIT, "wait", "it waits for a leader elsewhere")                                               \
  X(LIMITED, "limited", "its compute waits for a place: max_computes, fleet_max_computes or ramp") \
  X(SLOW, "slow", "it waits for a slow store")                                                     \
  X(SETTLE, "settle", "what it computed is being stored")

/* States of flights: the rows of CORRAL_FLIGHT_MAP. */
typedef enum corral_flight_state {
#define CORRAL_FLIGHT_ENUM(id, name, text) CORRAL_FLIGHT_##id,
  CORRAL_FLIGHT_MAP(CORRAL_FLIGHT_ENUM)
#undef CORRAL_FLIGHT_ENUM
      CORRAL_FLIGHT_COUNT
} corral_flight_state;

/* Name of a state, and its sentence; "?" for a number outside of the table. Static storage. */
CORRAL_API const char *corral_flight_name(corral_flight_state state);
CORRAL_API const char *corral_flight_text(corral_flight_state state);

/* A flight that takes a while: it computes, or waits. The library fills it; a later version may
 * append members, and `size` tells which there are. */
typedef struct corral_flight {
  size_t size;                    /* sizeof(corral_flight) of the library */
  char key[CORRAL_STATS_KEY + 1]; /* the first bytes of the key, terminated */
  size_t key_kept;                /* how many these are */
  size_t key_len;                 /* bytes of the key */
  uint64_t key_hash;              /* tells keys with the same first bytes apart */
  corral_flight_state state;
  int64_t since_ms;    /* how long it has been in this state */
  int64_t expected_ms; /* how long such a compute usually takes; 0: unknown */
  int64_t waiters;     /* calls of its process that wait for it */
  int64_t pid;         /* its process */
} corral_flight;

/* Called with each flight, which is valid during the call. Another value than 0 ends the
 * telling. */
typedef int corral_flight_fn(const corral_flight *flight, void *arg);

/* Tells the flights that were under way, the longest first. Returns how many were told. */
CORRAL_API size_t corral_stats_flights(const corral_stats *stats, corral_flight_fn *tell,
                                       void *arg);
/* Flights that were under way beside these: a stats file has room for 64. */
CORRAL_API uint64_t corral_stats_flights_more(const corral_stats *stats);

/* ---- the log ------------------------------------------------------------------------------- */

/* An event, as corral_event_info has it, and the moment of it. The library fills it; a later
 * version may append members, and `size` tells which there are. */
typedef struct corral_logged {
  size_t size;                    /* sizeof(corral_logged) of the library */
  uint64_t number;                /* counts the file's events that are logged, from 1 on */
  int64_t at_us;                  /* when it happened, in us since 1970 by the wall clock */
  int event;                      /* corral_event; -1: one that this library doesn't know */
  const char *name;               /* of the event; "?": one that this library doesn't know */
  int status;                     /* of what failed; else CORRAL_OK */
  char key[CORRAL_STATS_KEY + 1]; /* the first bytes of the key, terminated */
  size_t key_kept;                /* how many these are */
  size_t key_len;                 /* bytes of the key; 0: the event isn't about one */
  uint64_t key_hash;              /* tells keys with the same first bytes apart */
  const char *detail;             /* text of an error, cut; NULL: none; valid during the call */
  int64_t duration_us; /* of the compute, the wait or the store operation; -1: not measured */
  int64_t bytes;       /* of the value; of the record where one was stored; -1: none */
  int server;          /* number of the store's server, from 0; -1: not about one server */
  int wake;            /* watch: CORRAL_WAKE_PUSH and the like; -1: another event */
  int64_t pid;         /* its process */
} corral_logged;

/* Called with each event, which is valid during the call. Another value than 0 ends the telling. */
typedef int corral_logged_fn(const corral_logged *logged, void *arg);

/* True for an event that is logged. The others are only counted: those of calls that are answered
 * at once (hit, near, stale, negative, verdict, outbox_hit, join), and of repeated looks (poll,
 * lock_asked). */
CORRAL_API int corral_event_is_logged(corral_event event);

/* Tells the events that the snapshot of a stats file still has, with larger numbers than `after`,
 * in their order. A gap in the numbers: events that were written over before they were read.
 * Returns how many were told. */
CORRAL_API size_t corral_stats_log(const corral_stats *stats, uint64_t after,
                                   corral_logged_fn *tell, void *arg);

/* ---- hot keys ------------------------------------------------------------------------------ */

/* A key among those that were asked for most, of late: a call counts half after 10 s, a quarter
 * after 20 s. One of 64 calls is counted, for as many: the number of f calls differs by chance by
 * some 8 * sqrt(f). The library fills the struct; a later version may append members, and `size`
 * tells which there are. */
typedef struct corral_hot_key {
  size_t size;                    /* sizeof(corral_hot_key) of the library */
  char key[CORRAL_STATS_KEY + 1]; /* the first bytes of the key, terminated */
  size_t key_kept;                /* how many these are */
  size_t key_len;                 /* bytes of the key */
  uint64_t key_hash;              /* tells keys with the same first bytes apart */
  uint64_t count;                 /* calls for it, at most */
  uint64_t error;                 /* how many fewer these may have been */
} corral_hot_key;

/* Called with each key, which is valid during the call. Another value than 0 ends the telling. */
typedef int corral_hot_key_fn(const corral_hot_key *hot, void *arg);

/* Tells the hot keys, the one with most calls first, up to 64; of n calls that were counted each
 * key with more than n / 64 is told. Calls are counted in corrals with a stats file, and in those
 * with the option `hot_pct`. Returns how many were told. */
CORRAL_API size_t corral_stats_hot(const corral_stats *stats, corral_hot_key_fn *tell, void *arg);

#ifdef __cplusplus
}
#endif
#endif
