/* option.h: the options: of a call (corral_policy) and of a corral (corral_options), as two tables,
 * and setting them by name and text. Those of a lock are in corral/lock.h. Included by corral.h.
 *
 * Structs, --help, the flags of the command, the directives of the nginx module, the manual page
 * and docs/options.md are made from these rows: a new option is a row, its use and its test.
 *
 *   X(field, name, group, unit, default, least, most, command, nginx, sentence)
 *
 *   field     of the struct, an int64_t. The order of the rows is the struct's layout.
 *   name      of the option in texts: corral_policy_set, the command's flag (with dashes), nginx.
 *   group     of options that belong together.
 *   unit      "ms", "bytes", "%", "count"; "ppm": a share, in millionths; "flag": 1 is on,
 *             CORRAL_OFF is off; or the names of the numbers from 1 on, as "error|compute".
 *   default   used for a field that is 0.
 *   least, most  smallest and largest accepted number. A least of -1 (CORRAL_OFF): the option can
 *             be switched off.
 *   command   subcommands that have the option as a flag; "corral": the flag stands before them.
 *   nginx     ZONE: NAME= is a parameter of corral_zone. LOCATION: corral_NAME is a directive.
 *             NONE. */
#ifndef CORRAL_OPTION_H
#define CORRAL_OPTION_H

/* Value of an option that is switched off. */
#define CORRAL_OFF (-1)

/* clang-format off */
#define CORRAL_POLICY_MAP(X)                                                                       \
  X(ttl_ms, "ttl", "lives", "ms", 60000, 1, 315360000000, "run warm set", NONE,                    \
    "How long a value is fresh: its soft TTL.")                                                    \
  X(swr_ms, "stale", "lives", "ms", 0, -1, 315360000000, "run warm set", LOCATION,                 \
    "How much longer it serves while it is rebuilt.")                                              \
  X(sie_ms, "stale_if_error", "lives", "ms", 0, -1, 315360000000, "run warm", LOCATION,            \
    "How much longer it serves if rebuilding fails.")                                              \
  X(jitter_pct, "jitter", "lives", "%", 10, -1, 90, "", ZONE,                                      \
    "Each fresh life is shortened at random by up to this share.")                                 \
  X(early_pct, "early", "lives", "%", 0, -1, 90, "", LOCATION,                                     \
    "Rebuild ahead when less than this share of the fresh life is left.")                          \
  X(early_beta, "early_beta", "lives", "%", 0, -1, 10000, "", LOCATION,                            \
    "XFetch: a chance to rebuild ahead of expiry; 100 is the paper's beta of 1.")                  \
  X(negative_ttl_ms, "negative_ttl", "lives", "ms", 10000, -1, 315360000000, "warm", NONE,         \
    "Life of a remembered \"no such thing\".")                                                     \
  X(pass_ttl_ms, "pass_ttl", "lives", "ms", 10000, -1, 86400000, "", ZONE,                         \
    "How long \"can't be cached\" is remembered: computes run in parallel.")                       \
  X(retry_ms, "retry", "failure", "ms", 500, -1, 86400000, "", LOCATION,                           \
    "Pause after the first three failed computes, shared by the fleet; then 4 times, 8 times ...") \
  X(retry_max_ms, "retry_max", "failure", "ms", 30000, 1, 86400000, "", LOCATION,                  \
    "Longest pause after failed computes.")                                                        \
  X(when_away, "away", "failure", "compute|stale|error", 1, 1, 3, "run", ZONE,                     \
    "What to do while the store is away.")                                                         \
  X(lease_ms, "lease", "election", "ms", 2000, 50, 3600000, "run warm", ZONE,                      \
    "Longest lease; from 750ms, doubled each third of it.")                                        \
  X(lease_min_ms, "lease_min", "election", "ms", 500, 50, 3600000, "", ZONE,                       \
    "Shortest lease: the first is 4 times the key's usual cost, between this and 750ms.")          \
  X(compute_ms, "compute", "election", "ms", 30000, 10, 86400000, "run warm", ZONE,                \
    "Longest compute; then it is given up and fenced.")                                            \
  X(stop_alone, "stop_alone", "election", "flag", -1, -1, 1, "", NONE,                             \
    "A compute that nobody waits for any more is told to stop.")                                   \
  X(warm, "warm", "election", "flag", -1, -1, 1, "", NONE,                                         \
    "Nobody asked for this value yet; at max_computes everybody else goes first.")                 \
  X(wait_ms, "wait", "waiting", "ms", 30000, 1, 86400000, "run warm", LOCATION,                    \
    "Deadline: longest wait for another's compute.")                                               \
  X(soft_ms, "soft", "waiting", "ms", 0, -1, 86400000, "run", LOCATION,                            \
    "After so long a wait, take what serves on error.")                                            \
  X(at_deadline, "at_deadline", "waiting", "error|compute", 1, 1, 2, "run", LOCATION,              \
    "A wait's end if nothing stale may serve.")                                                    \
  X(poll_ms, "poll", "waiting", "ms", 5, 1, 60000, "", ZONE,                                       \
    "A waiter's pause once a rebuild is due; grows, with full jitter.")                            \
  X(poll_max_ms, "poll_max", "waiting", "ms", 250, 1, 60000, "", ZONE,                             \
    "Longest pause between a waiter's looks.")                                                     \
  X(near_ms, "near_ttl", "near tier", "ms", 1000, -1, 86400000, "", ZONE,                          \
    "How long a copy in this process answers alone (see near_bytes).")                             \
  X(settle_behind, "settle_behind", "waiting", "flag", -1, -1, 1, "", LOCATION,                    \
    "A call returns what it computed before that is stored: one round trip less.")                 \
  X(anew, "anew", "lives", "flag", -1, -1, 1, "", NONE,                                            \
    "The call rebuilds even a fresh value; if that fails, it gets that value, which stays.")       \
  X(at_failure, "at_failure", "failure", "error|wait", 1, 1, 2, "", LOCATION,                      \
    "What a call gets that comes in the first pauses: the failure, or the next try.")              \
  X(verify_ppm, "verify", "lives", "ppm", 0, -1, 1000000, "", NONE,                                \
    "So many of the hits are computed anew behind the answer, and compared.")

/* The corral's own options that are texts: X(field, name, group, command, nginx, sentence). NULL is
 * none; the text is the caller's. */
#define CORRAL_TEXT_MAP(X)                                                                         \
  X(store, "store", "store", "", ZONE,                                                             \
    "URI: memory:, lmdb:PATH, redis://HOST:PORT/DB ...; required.")                                \
  X(name_space, "namespace", "store", "corral", ZONE,                                              \
    "Put before each key, with a colon.")                                                          \
  X(host_dir, "host_dir", "election", "", ZONE,                                                    \
    "Folder of host_lock's lock file; default: $CORRAL_HOST_DIR, else one of this user.")          \
  X(origin, "origin", "limits", "run", ZONE,                                                       \
    "What the computes load: fleet_max counts by it.")                                             \
  X(stats_dir, "stats_dir", "stats", "", ZONE,                                                     \
    "Folder of what is counted, or off; default: $CORRAL_STATS_DIR, else one of this user.")

/* The corral's own options that are numbers. */
#define CORRAL_OPTION_MAP(X)                                                                       \
  X(generation, "generation", "store", "flag", -1, -1, 1, "corral", ZONE,                          \
    "All values can be invalidated at once.")                                                      \
  X(op_ms, "op", "store", "ms", 250, 1, 60000, "corral", ZONE,                                     \
    "Longest operation, or pause of a body that moves.")                                           \
  X(handles, "handles", "store", "count", 0, 0, 64, "", ZONE,                                      \
    "Connections to the store; 0: what the store advises (4 to a Redis).")                    \
  X(watch, "watch", "store", "flag", 1, -1, 1, "", ZONE,                                           \
    "Waiters are woken by the store, where it can; off: they poll.")                               \
  X(max_value, "max_value", "store", "bytes", 536870912, 1, 536870912, "", ZONE,                   \
    "Largest value.")                                                                              \
  X(compress_min, "compress", "store", "bytes", -1, -1, 536870912, "run", ZONE,                    \
    "Values from this size on are stored compressed.")                                             \
  X(breaker_failures, "breaker_failures", "failure", "count", 3, 1, 1000, "", ZONE,                \
    "Refused or broken connections in a row after which a server rests.")                          \
  X(breaker_rest_ms, "breaker_rest", "failure", "ms", 1000, 1, 600000, "", ZONE,                   \
    "How long a failing server rests between probes.")                                             \
  X(away_ms, "away_after", "failure", "ms", 1500, 1, 600000, "", ZONE,                             \
    "How long a server that answers nothing is slow; then it is away.")                            \
  X(outbox_bytes, "outbox", "failure", "bytes", 16777216, -1, 1099511627776, "", ZONE,             \
    "Room for fills made while the store is away.")                                                \
  X(outbox_ms, "outbox_ttl", "failure", "ms", 60000, -1, 86400000, "", ZONE,                       \
    "How long invalidations to repeat are kept; and fills, once the store is back.")               \
  X(host_lock, "host_lock", "election", "flag", -1, -1, 1, "", ZONE,                               \
    "Elections are first won among the processes of this host.")                                   \
  X(workers, "workers", "limits", "count", 4, 1, 256, "", NONE,                                    \
    "Most threads for a compute bound at open; started when first needed.")                        \
  X(max_computes, "max_computes", "limits", "count", -1, -1, 1000000, "", ZONE,                    \
    "Most computes at once in this process.")                                                      \
  X(fleet_max_computes, "fleet_max", "limits", "count", -1, -1, 256, "run", ZONE,                  \
    "Most computes of this origin at once, everywhere.")                                           \
  X(negative_max, "negative_max", "limits", "count", 100000, -1, 1000000000, "", NONE,             \
    "Most \"no such thing\" this process stores in their ttl.")                                    \
  X(near_bytes, "near", "near tier", "bytes", -1, -1, 1099511627776, "", ZONE,                     \
    "Room for copies in this process, in front of the store.")                                     \
  X(ramp, "ramp", "limits", "flag", -1, -1, 1, "warm", ZONE,                                       \
    "Computes at once grow while they are fast, else shrink.")                                     \
  X(verify_max, "verify_max", "limits", "count", 10, 1, 1000, "", NONE,                            \
    "Most hits that this process verifies in a second, one at a time.")                            \
  X(control, "control", "store", "flag", -1, -1, 1, "run warm", ZONE,                              \
    "This process follows the orders of corral control.")                            \
  X(hot_pct, "hot", "near tier", "%", -1, -1, 100, "", ZONE,                                       \
    "Keys with this share of the gets are kept near, also with near off, and rebuilt ahead.")
/* clang-format on */

/* ---- by name and text ---------------------------------------------------------------------- */

struct corral_policy;
struct corral_options;

/* Sets one option by its name and a text: corral_policy_set(policy, "ttl", "5m", &error).
 *
 * `name` is that of the table ("ttl", "stale_if_error"; dashes may take the place of underscores),
 * or the field's ("ttl_ms").
 * `text`: durations are numbers with ms, s, m, h, d or w ("500ms", "0.2s", "1h30m"); a bare number
 * is in seconds, for a field's name that ends in _ms in milliseconds. Sizes are bytes, or have k,
 * m, g or t ("64k", of 1024). Percentages may end with "%". Shares are percentages with "%", else
 * parts of 1 ("0.1%", "0.001"), for a field's name that ends in _ppm millionths. Flags are on, yes,
 * true, 1, or off, no, false, 0. Choices go by name ("error"). "off" (for durations, sizes,
 * percentages and shares also "0") switches an option off that can be; "default" makes it 0.
 *
 * CORRAL_EOPTION: no option has that name (the text says which one is meant, perhaps), or the
 * struct is of an older header that lacks it. CORRAL_EINVAL: the text isn't accepted; the error
 * names the option, its value and what is. After an error the struct is as it was. */
CORRAL_API int corral_policy_set(struct corral_policy *policy, const char *name, const char *text,
                                 corral_error *error);
/* The same for a corral's options. Names of texts ("store", "namespace", "host_dir", ...) set
 * a pointer to `text`, which must stay valid until corral_open; names of the policy's options set
 * them in *options->policy, which must then be a policy that may be written to; where that is NULL
 * they are refused (CORRAL_EINVAL). */
CORRAL_API int corral_options_set(struct corral_options *options, const char *name,
                                  const char *text, corral_error *error);

/* Parses a duration as above, of `least` to `most` ms, for an option `name` of the caller's own,
 * which errors name. A bare number is in seconds. CORRAL_EINVAL. */
CORRAL_API int corral_duration_parse(const char *name, const char *text, int64_t least,
                                     int64_t most, int64_t *ret_ms, corral_error *error);
/* Writes a duration as corral_duration_parse takes it ("90s", "1.250s"), terminated and cut to
 * `size` bytes, of which 32 are enough. A negative one counts as 0. Returns `text`. */
CORRAL_API const char *corral_duration_show(int64_t ms, char *text, size_t size);

#endif
