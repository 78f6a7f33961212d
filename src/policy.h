/* policy.h: options with their defaults, and every judgement on lives, pauses and retries. Pure:
 * time and dice are arguments. */
#ifndef CRL_POLICY_H
#define CRL_POLICY_H

#include <corral/lock.h>

#include "envelope.h"
#include "key.h"

/* The user's sized struct over `base` (NULL: the table's defaults) into *ret, every field set.
 * CORRAL_EINVAL names the option, its value and its range; CORRAL_EOPTION when the struct is longer
 * than known and the rest isn't zero. */
int crl_policy_resolve(corral_policy *ret, const corral_policy *user, const corral_policy *base,
                       corral_error *error);
/* The same for the corral's own options. */
int crl_policy_options(corral_options *ret, const corral_options *user, corral_error *error);
/* CORRAL_EINVAL: longer than a variant may be, or NULL with a length. */
int crl_policy_variant(const void *variant, size_t len, corral_error *error);
/* And for a lock's. `user` may be NULL. */
int crl_policy_lock(corral_lock_options *ret, const corral_lock_options *user, corral_error *error);

/* How much longer, in ms, a record is fresh / may be served while somebody rebuilds / when
 * rebuilding failed; each 0 when no longer. */
typedef struct crl_lives {
  int64_t fresh, swr, sie, age;
} crl_lives;

/* `life_ms` is the payload's remaining life in the store, -1 unknown; `wall_ms` is used only
 * then. */
crl_lives crl_policy_judge(const crl_envelope *envelope, int expired, int64_t life_ms,
                           int64_t wall_ms);
/* What a store keeps a record for. */
int64_t crl_policy_hard_ttl(int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms);
/* A life shortened at random by up to jitter_pct. */
int64_t crl_policy_jitter(const corral_policy *policy, int64_t ttl_ms, uint64_t dice);
/* The shortest that this can make of it. */
int64_t crl_policy_jitter_least(const corral_policy *policy, int64_t ttl_ms);
/* The lease for a key whose rebuild usually costs so much (0: unknown): 4 times that, within
 * lease_min_ms and lease_ms. */
int64_t crl_policy_lease(const corral_policy *policy, int64_t cost_ms);
/* Numbers in a row, mixed to random ones: splitmix64 (Steele, Lea, Flood, OOPSLA 2014). */
uint64_t crl_policy_mix(uint64_t number);
/* True when a value with `left_ms` of its fresh life of `ttl_ms` is to be rebuilt now, ahead of
 * time: by early_pct, or by chance, P = exp(-left / (beta * cost)). Source: Vattani, Chierichetti,
 * Lowenstein, "Optimal Probabilistic Cache Stampede Prevention", VLDB 2015. */
int crl_policy_early(const corral_policy *policy, int64_t ttl_ms, int64_t left_ms, uint64_t cost_us,
                     uint64_t dice);
/* The pause before a waiter's look number `n` (from 0): exponential, full jitter, at least 1 ms.
 * Source: "Exponential Backoff And Jitter", AWS Architecture Blog, 2015. */
int64_t crl_policy_backoff(int64_t poll_ms, int64_t poll_max_ms, unsigned n, uint64_t dice);
/* The pause before a look when the leader should be done in `expect_left` ms: until then; from then
 * on tight, a quarter of what it is overdue by, with full jitter. Never above poll_max_ms, for a
 * leader may fail or die early. */
int64_t crl_policy_towards(const corral_policy *policy, int64_t expect_left, uint64_t dice);
/* The pause before a look when the store tells of changes: half of poll_max_ms to all of it, in
 * case it doesn't. */
int64_t crl_policy_watched(const corral_policy *policy, uint64_t dice);
/* The pause after failure number `failures` in a row (from 1), drawn from 50-100 % of it. */
int64_t crl_policy_retry(const corral_policy *policy, uint32_t failures, uint64_t dice);

#endif
