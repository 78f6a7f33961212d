/* policy.h: options with their defaults, and all decisions on lives, pauses and retries. Pure: time
 * and dice are arguments. */
#ifndef CRL_POLICY_H
#define CRL_POLICY_H

#include <corral/lock.h>

#include <stdint.h>

/* Longest life of a value, ten years in ms (the upper end of the options' ranges). */
#define CRL_LIFE_MOST INT64_C(315360000000)

enum {
  CRL_RETRY_FLAT = 3, /* pauses after failures that are equally long */
  CRL_AWAY_SHARE = 16 /* most times its cost that a key computed without the store pauses */
};

/* The urgency of a compute, most urgent first. */
typedef enum crl_rank {
  CRL_RANK_COLD,    /* there is no value at all */
  CRL_RANK_EXPIRED, /* there is a value, but it may not be served any more */
  CRL_RANK_EARLY,   /* a usable value is rebuilt ahead of time, or behind a stale answer */
  CRL_RANK_WARM,    /* policy.warm: no caller has asked for the value yet */
  CRL_RANKS
} crl_rank;

/* Outcome of a compute. */
typedef enum crl_made {
  CRL_MADE_VALUE = 1,
  CRL_MADE_UNKEPT, /* for waiters; not to be stored */
  CRL_MADE_FAILURE,
  CRL_MADE_PASS,  /* for its own caller; "can't be cached" is to be stored */
  CRL_MADE_OLDER, /* the store has a later version */
  CRL_MADE_FENCED /* one of its tags was invalidated meanwhile */
} crl_made;

/* Resolves the user's sized struct over `base` (NULL: the table's defaults) into *ret, with every
 * field set. CORRAL_EINVAL names the option, its value and its range; CORRAL_EOPTION: the struct is
 * longer than known, and the rest isn't zero. */
int crl_policy_resolve(corral_policy *ret, const corral_policy *user, const corral_policy *base,
                       corral_error *error);
/* The same for a corral's options. */
int crl_policy_options(corral_options *ret, const corral_options *user, corral_error *error);
/* The same for a lock's options. `user` may be NULL. */
int crl_policy_lock(corral_lock_options *ret, const corral_lock_options *user, corral_error *error);

/* True when the user's struct (NULL: none) sets wait_ms; else that is no less than compute_ms. */
int crl_policy_sets_wait(const corral_policy *user);

/* Time left of a record's lives in ms, 0: over: fresh; served while it is rebuilt (swr); served
 * after a failed rebuild (sie). And its age. */
typedef struct crl_lives {
  int64_t fresh, swr, sie, age;
} crl_lives;

/* The lives that a record was stored with, ms; has_graces: swr_ms and sie_ms count. */
typedef struct crl_life {
  int64_t ttl_ms, swr_ms, sie_ms;
  int64_t created_ms; /* wall clock of its maker */
  int has_graces;
} crl_life;

/* `life_ms`: what is left of the payload's life in the store, -1 unknown: then the age goes by
 * `wall_ms`. `expired`: no fresh life is left. */
crl_lives crl_policy_judge(const crl_life *life, int expired, int64_t life_ms, int64_t wall_ms);
/* Time in ms that a store keeps a record. */
int64_t crl_policy_hard_ttl(int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms);
/* A life shortened at random by up to jitter_pct. */
int64_t crl_policy_jitter(const corral_policy *policy, int64_t ttl_ms, uint64_t dice);
/* The least result of crl_policy_jitter. */
int64_t crl_policy_jitter_least(const corral_policy *policy, int64_t ttl_ms);
/* Length that the lease of a compute begins with, and doubles from with each renewal, up to
 * lease_ms: CRL_LEASE_FIRST_MS, whatever the compute may cost, so that a dead leader is soon
 * replaced; less for a key whose rebuild usually takes little: 4 times that cost_ms (0: unknown).
 * Twice other_ms at least: a lease of this length was just taken over (0: none was), so its holder
 * may be too slow for it. Never less than lease_min_ms, nor more than lease_ms. */
enum { CRL_LEASE_FIRST_MS = 750 };
int64_t crl_policy_lease(const corral_policy *policy, int64_t cost_ms, int64_t other_ms);
/* Mixes successive numbers into random ones: splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t crl_policy_mix(uint64_t number);
/* True if crl_policy_early may use its dice. */
static inline int crl_policy_rolls(const corral_policy *policy) { return policy->early_beta > 0; }
/* True when a value with `left_ms` of its fresh life of `ttl_ms` is to be rebuilt now, ahead of
 * time: by early_pct, or by chance, P = exp(-left / (beta * cost)). Source: Vattani, Chierichetti,
 * Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015. */
int crl_policy_early(const corral_policy *policy, int64_t ttl_ms, int64_t left_ms, uint64_t cost_us,
                     uint64_t dice);
/* The same of a hot key: also in the last tenth of its fresh life, unless early_pct is off. Of all
 * calls of a process one in CRL_EARLY_PAUSE_MS goes by that. */
enum { CRL_EARLY_HOT = 10, CRL_EARLY_PAUSE_MS = 1000 };
static inline int crl_policy_early_hot(const corral_policy *policy, int64_t ttl_ms,
                                       int64_t left_ms) {
  return policy->early_pct >= 0 && left_ms < ttl_ms / CRL_EARLY_HOT;
}
/* The pause before a waiter's look number `n` (from 0): exponential, full jitter, at least 1 ms.
 * Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. */
int64_t crl_policy_backoff(int64_t poll_ms, int64_t poll_max_ms, unsigned n, uint64_t dice);
/* The pause before a look when the leader should be done in `expect_left` ms: that long; for an
 * overdue leader a quarter of the time overdue, with full jitter. At most poll_max_ms, since a
 * leader may fail or die early. */
int64_t crl_policy_towards(const corral_policy *policy, int64_t expect_left, uint64_t dice);
/* The pause before a look when the store tells of changes: 50-100 % of poll_max_ms, in case it
 * misses one. */
int64_t crl_policy_watched(const corral_policy *policy, uint64_t dice);
/* The pause after compute number `n` in a row (from 1) of a key without the store: the compute's
 * cost, doubling, up to CRL_AWAY_SHARE times that and a quarter of wait_ms; drawn from 50-100 % of
 * it. */
int64_t crl_policy_away(const corral_policy *policy, int64_t cost_ms, uint32_t n, uint64_t dice);
/* When a wait of `pause` ms from `now` ends that is a part of a call: it leaves half of the time
 * until the call's deadline. */
int64_t crl_policy_part(int64_t now, int64_t pause, int64_t deadline);
/* The pause after failure number `failures` in a row (from 1): retry_ms after each of the first
 * CRL_RETRY_FLAT, then 4 times that, 8 times ..., up to retry_max_ms; drawn from 7/8 of it to the
 * whole. After the first ones it is 1/16 shorter at least: with the try itself and the look that
 * leads to it, one try follows another within retry_ms. With 500 ms there are 4 tries in 3 s. */
int64_t crl_policy_retry(const corral_policy *policy, uint32_t failures, uint64_t dice);

#endif
