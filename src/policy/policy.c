/* policy.c: all decisions on lives, pauses and retries. */
#include "policy/policy.h"

static int64_t at_least_zero(int64_t number) { return number > 0 ? number : 0; }
static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }
static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t crl_policy_hard_ttl(int64_t ttl_ms, int64_t swr_ms, int64_t sie_ms) {
  return ttl_ms + larger(at_least_zero(swr_ms), at_least_zero(sie_ms));
}

/* created_ms is by the clock of the record's maker, and may be any number. */
static int64_t age_by_wall(int64_t created_ms, int64_t wall_ms) {
  return created_ms < 0 || created_ms > wall_ms ? 0 : wall_ms - created_ms;
}

crl_lives crl_policy_judge(const crl_life *life, int expired, int64_t life_ms, int64_t wall_ms) {
  crl_lives lives = {0, 0, 0, 0};
  int64_t hard = crl_policy_hard_ttl(life->ttl_ms, life->swr_ms, life->sie_ms);
  lives.age = at_least_zero(life_ms < 0 ? age_by_wall(life->created_ms, wall_ms) : hard - life_ms);
  if (!expired) lives.fresh = at_least_zero(life->ttl_ms - lives.age);
  if (!life->has_graces) return lives;
  if (life->swr_ms > 0) lives.swr = at_least_zero(life->ttl_ms + life->swr_ms - lives.age);
  if (life->sie_ms > 0) lives.sie = at_least_zero(life->ttl_ms + life->sie_ms - lives.age);
  return lives;
}

static int64_t jitter_span(const corral_policy *policy, int64_t ttl_ms) {
  return policy->jitter_pct <= 0
             ? 0
             : ttl_ms / 100 * policy->jitter_pct + ttl_ms % 100 * policy->jitter_pct / 100;
}

int64_t crl_policy_jitter(const corral_policy *policy, int64_t ttl_ms, uint64_t dice) {
  return ttl_ms - (int64_t)(dice % ((uint64_t)jitter_span(policy, ttl_ms) + 1));
}

uint64_t crl_policy_mix(uint64_t z) {
  z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
  z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
  return z ^ (z >> 31);
}

int64_t crl_policy_jitter_least(const corral_policy *policy, int64_t ttl_ms) {
  return ttl_ms - jitter_span(policy, ttl_ms);
}

int64_t crl_policy_lease(const corral_policy *policy, int64_t cost_ms, int64_t other_ms) {
  int64_t length = CRL_LEASE_FIRST_MS;
  if (cost_ms > 0 && cost_ms <= CRL_LEASE_FIRST_MS / 4) length = 4 * cost_ms;
  length = larger(length, 2 * other_ms);
  return smaller(larger(length, policy->lease_min_ms), policy->lease_ms);
}

/* exp(-x) for x from 0 to 37, without libm: 2^-k times a series for the rest of x. */
static double exp_minus(double x) {
  const double ln2 = 0.69314718055994530942;
  int k = (int)(x / ln2);
  double rest = x - k * ln2, term = 1, sum = 1;
  for (int i = 1; i < 16; i++) {
    term *= -rest / i;
    sum += term;
  }
  return sum / (double)(UINT64_C(1) << k);
}

int crl_policy_early(const corral_policy *policy, int64_t ttl_ms, int64_t left_ms, uint64_t cost_us,
                     uint64_t dice) {
  if (policy->early_pct > 0 &&
      left_ms < ttl_ms / 100 * policy->early_pct + ttl_ms % 100 * policy->early_pct / 100)
    return 1;
  if (policy->early_beta <= 0 || cost_us == 0) return 0;
  double x =
      (double)at_least_zero(left_ms) * 1000 / ((double)policy->early_beta / 100 * (double)cost_us);
  if (x > 37) return 0; /* smaller than any 53 bits of dice but 0 */
  return (double)(dice >> 11) / 9007199254740992.0 < exp_minus(x);
}

int64_t crl_policy_backoff(int64_t poll_ms, int64_t poll_max_ms, unsigned n, uint64_t dice) {
  int64_t cap = poll_ms;
  for (unsigned i = 0; i < n && cap < poll_max_ms; i++) cap *= 2;
  cap = smaller(cap, poll_max_ms);
  return 1 + (int64_t)(dice % (uint64_t)cap);
}

int64_t crl_policy_towards(const corral_policy *policy, int64_t expect_left, uint64_t dice) {
  expect_left = smaller(larger(expect_left, -CRL_LIFE_MOST), CRL_LIFE_MOST);
  int64_t jitter = expect_left > 0 ? policy->poll_ms : larger(policy->poll_ms, -expect_left / 4);
  int64_t pause = at_least_zero(expect_left) + 1 + (int64_t)(dice % (uint64_t)jitter);
  return smaller(pause, larger(policy->poll_max_ms, policy->poll_ms));
}

int64_t crl_policy_watched(const corral_policy *policy, uint64_t dice) {
  return (policy->poll_max_ms + 1) / 2 + (int64_t)(dice % ((uint64_t)policy->poll_max_ms / 2 + 1));
}

int64_t crl_policy_retry(const corral_policy *policy, uint32_t failures, uint64_t dice) {
  int64_t pause = policy->retry_ms, most = larger(policy->retry_max_ms, policy->retry_ms);
  if (pause < 0) return 0;
  if (failures <= CRL_RETRY_FLAT)
    return pause - pause / 16 - (int64_t)(dice % ((uint64_t)pause / 16 + 1));
  for (uint32_t i = 2; i < failures && pause < most; i++) pause *= 2;
  pause = smaller(pause, most);
  return pause - (int64_t)(dice % ((uint64_t)pause / 8 + 1));
}

int64_t crl_policy_away(const corral_policy *policy, int64_t cost_ms, uint32_t n, uint64_t dice) {
  int64_t pause = smaller(at_least_zero(cost_ms), policy->wait_ms),
          most = smaller(CRL_AWAY_SHARE * pause, policy->wait_ms / 4);
  for (uint32_t i = 1; i < n && pause < most; i++) pause *= 2;
  pause = smaller(pause, most);
  return pause - (int64_t)(dice % ((uint64_t)pause / 2 + 1));
}

int64_t crl_policy_part(int64_t now, int64_t pause, int64_t deadline) {
  return now + smaller(pause, at_least_zero(deadline - now) / 2);
}
