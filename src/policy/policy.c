/* policy.c: options with their defaults, and all decisions on lives, pauses and retries. */
#include <string.h>

#include "policy/policy.h"

#include "base/sized.h"
#include "base/status.h"

/* One option. A struct's fields follow one another in the order of these rows, for both come from
 * one table. */
typedef struct row {
  const char *name, *unit;
  int64_t def, least, most;
} row;

#define ROW(name, unit, def, least, most, text) {#name, unit, def, least, most},
static const row policy_rows[] = {CORRAL_POLICY_MAP(ROW)};
static const row option_rows[] = {CORRAL_OPTION_MAP(ROW)};
static const row lock_rows[] = {CORRAL_LOCK_MAP(ROW)};
#undef ROW

/* A sized struct of the user's: first fields that no table has; from `at` on, the rows' fields. */
typedef struct shape {
  const char *name;
  size_t size, at;
  const row *rows;
  size_t count;
} shape;

#define SHAPE(name, type, first, rows)                                                             \
  { name, sizeof(type), offsetof(type, first), rows, sizeof rows / sizeof *(rows) }
static const shape policy_shape = SHAPE("policy", corral_policy, ttl_ms, policy_rows);
static const shape option_shape = SHAPE("options", corral_options, op_ms, option_rows);
static const shape lock_shape = SHAPE("lock options", corral_lock_options, ttl_ms, lock_rows);
#undef SHAPE

static int refuse(const row *r, int64_t number, corral_error *error) {
  return crl_status_fail(error, CORRAL_EINVAL,
                         "%s = %lld %s; accepted: %lld to %lld, or 0 for the default", r->name,
                         (long long)number, r->unit, (long long)r->least, (long long)r->most);
}

static void take_defaults(void *ret, const shape *s) {
  int64_t *fields = (int64_t *)(void *)((char *)ret + s->at);
  for (size_t i = 0; i < s->count; i++) fields[i] = s->rows[i].def;
}

/* Copies the fields that the user's struct sets to *ret. */
static int overlay(void *ret, const void *user, size_t user_size, const shape *s,
                   corral_error *error) {
  int64_t *fields = (int64_t *)(void *)((char *)ret + s->at);
  const int64_t *set = (const int64_t *)(const void *)((const char *)user + s->at);
  size_t known = user_size < s->size ? user_size : s->size;
  size_t count = known < s->at ? 0 : (known - s->at) / sizeof *set;
  memcpy(ret, user, known < s->at ? known : s->at);
#pragma GCC unroll 4 /* most are zero: every cached answer comes through here */
  for (size_t i = 0; i < count; i++) {
    if (set[i] == 0) continue;
    if (set[i] < s->rows[i].least || set[i] > s->rows[i].most)
      return refuse(&s->rows[i], set[i], error);
    fields[i] = set[i];
  }
  return CORRAL_OK;
}

/* A field that is zero in the user's struct (NULL: all of them) comes from `base`; with `base` of
 * NULL, from the table. */
static int resolve(void *ret, const void *user, const void *base, const shape *s,
                   corral_error *error) {
  int status = user == NULL ? CORRAL_OK : crl_sized_check(user, s->size, s->name, error);
  if (status != CORRAL_OK) return status;
  if (base != NULL) {
    memcpy(ret, base, s->size);
  } else {
    memset(ret, 0, s->at);
    take_defaults(ret, s);
  }
  if (user != NULL) status = overlay(ret, user, *(const size_t *)user, s, error);
  *(size_t *)ret = s->size;
  return status;
}

int crl_policy_resolve(corral_policy *ret, const corral_policy *user, const corral_policy *base,
                       corral_error *error) {
  return resolve(ret, user, base, &policy_shape, error);
}

int crl_policy_options(corral_options *ret, const corral_options *user, corral_error *error) {
  return resolve(ret, user, NULL, &option_shape, error);
}

int crl_policy_lock(corral_lock_options *ret, const corral_lock_options *user,
                    corral_error *error) {
  return resolve(ret, user, NULL, &lock_shape, error);
}

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

int64_t crl_policy_lease(const corral_policy *policy, int64_t cost_ms) {
  int64_t least = smaller(policy->lease_min_ms, policy->lease_ms);
  if (cost_ms <= 0 || cost_ms >= policy->lease_ms / 4) return policy->lease_ms;
  return larger(4 * cost_ms, least);
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
  int64_t pause = policy->retry_ms;
  if (pause < 0) return 0;
  for (uint32_t i = 1; i < failures && pause < policy->retry_max_ms; i++) pause *= 2;
  pause = smaller(pause, larger(policy->retry_max_ms, policy->retry_ms));
  return pause - (int64_t)(dice % ((uint64_t)pause / 2 + 1));
}
