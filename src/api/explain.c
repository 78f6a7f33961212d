/* explain.c: describes in sentences what a policy does, and warns of settings that contradict each
 * other. Pure. */
#include <stdarg.h>
#include <stdio.h>

#include "base/status.h"
#include "policy/options.h"
#include "policy/policy.h"
#include "policy/text.h"

typedef struct page {
  char *text;
  size_t size, used;
} page;

__attribute__((format(printf, 2, 3))) static void say(page *p, const char *format, ...) {
  va_list args;
  if (p->used >= p->size) return;
  va_start(args, format);
  int n = vsnprintf(p->text + p->used, p->size - p->used, format, args);
  va_end(args);
  if (n > 0) p->used += (size_t)n;
}

static const char *span(char room[32], int64_t ms) { return crl_text_show_duration(room, ms); }

static corral_policy defaults(void) {
  corral_policy policy = {0};
  (void)crl_policy_resolve(&policy, NULL, NULL, NULL);
  return policy;
}

static void say_lives(page *p, const corral_policy *policy) {
  char a[32];
  say(p, "A value is fresh for %s", span(a, policy->ttl_ms));
  if (policy->jitter_pct > 0)
    say(p, ", less up to %d %% by chance, so that what was made together does not end together",
        (int)policy->jitter_pct);
  say(p, ".\n");
  if (policy->swr_ms > 0)
    say(p, "For %s after that it is served stale while one caller rebuilds it.\n",
        span(a, policy->swr_ms));
  else
    say(p, "After that callers wait for the one who rebuilds it.\n");
  if (policy->sie_ms > 0)
    say(p,
        "For %s after its fresh life it is served when rebuilding fails, and at a waiting call's "
        "deadline.\n",
        span(a, policy->sie_ms));
  else if (policy->swr_ms <= 0)
    say(p, "When rebuilding fails, there is nothing to serve in its place.\n");
  say(p, "The store forgets it after %s.\n",
      span(a, crl_policy_hard_ttl(policy->ttl_ms, policy->swr_ms, policy->sie_ms)));
}

static void say_early(page *p, const corral_policy *policy) {
  char a[32];
  if (policy->early_pct > 0)
    say(p,
        "In the last %s of its fresh life one caller rebuilds it ahead; nobody waits for that.\n",
        span(a, policy->ttl_ms * policy->early_pct / 100));
  if (policy->early_beta > 0)
    say(p,
        "Ahead of its expiry one caller rebuilds it by chance, exp(-left / (%lld.%02lld * cost)); "
        "nobody waits for that.\n",
        (long long)policy->early_beta / 100, (long long)policy->early_beta % 100);
}

static void say_verify(page *p, const corral_policy *policy) {
  char a[32];
  if (policy->verify_ppm > 0)
    say(p,
        "With a bound compute %s of the hits are computed anew behind the answer, and compared.\n",
        crl_text_show_share(a, policy->verify_ppm));
}

static void say_failures(page *p, const corral_policy *policy) {
  char a[32], b[32];
  if (policy->negative_ttl_ms > 0)
    say(p, "\"No such thing\" is remembered for %s.\n", span(a, policy->negative_ttl_ms));
  else
    say(p, "\"No such thing\" is told to those who wait, and not remembered.\n");
  if (policy->pass_ttl_ms > 0)
    say(p, "After a \"can't be cached\" everybody computes for himself, in parallel, for %s.\n",
        span(a, policy->pass_ttl_ms));
  else
    say(p, "A \"can't be cached\" is not remembered: callers compute one after the other.\n");
  if (policy->retry_ms > 0)
    say(p,
        "After a failed compute nobody tries again for about %s, from the fourth failure in a row "
        "on for 4 times, 8 times ... that, up to %s; until then callers get a stale value in its "
        "grace, else %s.\n",
        span(a, policy->retry_ms), span(b, policy->retry_max_ms),
        policy->at_failure == CORRAL_FAILURE_WAIT
            ? "that failure; those that come when the next try is no farther off than the first "
              "pause wait for it"
            : "that failure");
  else
    say(p, "After a failed compute the next caller tries again at once.\n");
}

static void say_lease(page *p, const corral_policy *policy) {
  char a[32];
  int64_t first = crl_policy_lease(policy, 0, 0), least = crl_policy_lease(policy, 1, 0);
  int grows = first < policy->lease_ms;
  say(p, "A leader that dies is replaced when its lease ends: %s%s", span(a, first),
      grows ? " at first" : "");
  if (least < first)
    say(p, ", or 4 times what computing the key usually takes if that is less, but at least %s",
        span(a, least));
  say(p, "; while it lives it extends it every third of that");
  if (grows) say(p, ", to twice as long each time, up to %s", span(a, policy->lease_ms));
  say(p, ".\n");
}

static void say_times(page *p, const corral_policy *policy) {
  char a[32], b[32], c[32];
  say_lease(p, policy);
  say(p, "A compute that takes longer than %s is given up, and its result not stored.\n",
      span(a, policy->compute_ms));
  say(p,
      "A call waits up to %s for somebody else's compute, woken where the store can, else looking "
      "again after up to %s, doubling up to %s; then it takes a stale value in its grace, else "
      "%s.\n",
      span(a, policy->wait_ms), span(b, policy->poll_ms), span(c, policy->poll_max_ms),
      policy->at_deadline == CORRAL_DEADLINE_COMPUTE
          ? "it computes for itself, and that is not stored"
          : "an error");
  if (policy->soft_ms > 0)
    say(p, "After %s it takes a value in its grace for errors, while the compute goes on.\n",
        span(a, policy->soft_ms));
  if (policy->settle_behind > 0)
    say(p, "A call returns what it computed before that is stored, unless the store is local.\n");
  if (policy->anew > 0)
    say(p, "A call rebuilds even a fresh value; if that fails, it gets that value, which stays.\n");
  if (policy->stop_alone > 0) say(p, "A compute that nobody waits for any more is told to stop.\n");
  if (policy->near_ms > 0)
    say(p, "With near_bytes, a copy in this process answers for %s without a look at the store.\n",
        span(a, policy->near_ms));
}

static void say_away(page *p, const corral_policy *policy) {
  static const char *const what[] = {
      [CORRAL_AWAY_COMPUTE] = "computes run, one at a time per key and process",
      [CORRAL_AWAY_STALE] = "calls get what this process computed since then, else compute",
      [CORRAL_AWAY_ERROR] = "calls get an error",
  };
  say(p, "While the store is away %s.\n", what[policy->when_away]);
  if (policy->warm > 0) say(p, "At max_computes everybody else goes first.\n");
}

/* The options that aren't the table's defaults, as corral_policy_set takes them. */
static void say_settings(page *p, const corral_policy *policy) {
  char a[32];
  size_t count, at, said = 0;
  const crl_option *rows = crl_options_of_policy(&count, &at);
  const int64_t *fields = (const int64_t *)(const void *)((const char *)policy + at);
  for (size_t i = 0; i < count; i++) {
    if (fields[i] == rows[i].def) continue;
    say(p, "%s %s=%s", said++ == 0 ? "Set:" : "", rows[i].name,
        crl_option_show(&rows[i], fields[i], a));
  }
  if (said > 0) say(p, ".\n");
}

/* ---- warnings ------------------------------------------------------------------------------ */

static int always(const corral_policy *policy) { return policy != NULL; }
static int retries(const corral_policy *policy) { return policy->retry_ms > 0; }
static int has_soft(const corral_policy *policy) { return policy->soft_ms > 0; }
static int has_both_graces(const corral_policy *policy) {
  return policy->soft_ms <= 0 && policy->swr_ms > 0 && policy->sie_ms > 0;
}
static int near_is_chosen(const corral_policy *policy) {
  return policy->near_ms != defaults().near_ms;
}
/* A wait that has passed is an error. */
static int has_no_other_end(const corral_policy *policy) {
  return policy->swr_ms <= 0 && policy->sie_ms <= 0 && policy->at_deadline == CORRAL_DEADLINE_ERROR;
}
static int ends_before_takeover(const corral_policy *policy) {
  return has_no_other_end(policy) && policy->wait_ms < crl_policy_lease(policy, 0, 0);
}

/* The pairs of options that contradict each other: one, how it must not stand to the other, and
 * what comes of it. */
enum { BELOW, ABOVE, NOT_BELOW, NOT_ABOVE };
static const struct pair {
  const char *one;
  size_t at_one;
  int relation;
  const char *other;
  size_t at_other;
  int (*counts)(const corral_policy *policy);
  const char *text;
} pairs[] = {
#define PAIR(one, relation, other, counts, text)                                                   \
  {                                                                                                \
#one, offsetof(corral_policy, one), relation, #other, offsetof(corral_policy, other), counts,  \
        text                                                                                       \
  }
    PAIR(wait_ms, BELOW, compute_ms, has_no_other_end,
         "callers get an error while a compute may still bring the value"),
    PAIR(wait_ms, BELOW, lease_ms, ends_before_takeover,
         "callers get an error before a leader that died is replaced"),
    PAIR(wait_ms, BELOW, poll_ms, always, "a call may end before its first look"),
    PAIR(soft_ms, NOT_BELOW, wait_ms, has_soft, "the call ends before"),
    PAIR(sie_ms, NOT_ABOVE, swr_ms, has_soft, "there is never a value to take after soft_ms"),
    PAIR(sie_ms, BELOW, swr_ms, has_both_graces,
         "it adds nothing, for what is served while it is rebuilt is also served when that fails"),
    PAIR(lease_ms, ABOVE, compute_ms, always,
         "a leader that dies late is waited for longer than any compute may take"),
    PAIR(lease_min_ms, ABOVE, lease_ms, always, "each lease is lease_ms long from its beginning"),
    PAIR(poll_max_ms, BELOW, poll_ms, always, "no pause is as long as poll_ms"),
    PAIR(ttl_ms, BELOW, poll_max_ms, always,
         "a waiter may look so seldom that it misses a whole life"),
    PAIR(retry_max_ms, BELOW, retry_ms, retries, "the pause never grows"),
    PAIR(negative_ttl_ms, ABOVE, ttl_ms, always,
         "what comes into being stays \"no such thing\" longer than a value lives"),
    PAIR(near_ms, ABOVE, ttl_ms, near_is_chosen, "a copy ends with its value's fresh life"),
#undef PAIR
};

static int64_t field_of(const corral_policy *policy, size_t at) {
  int64_t ms = *(const int64_t *)(const void *)((const char *)policy + at);
  return ms > 0 ? ms : 0;
}

static int contradicts(int relation, int64_t one, int64_t other) {
  switch (relation) {
    case BELOW: return one < other;
    case ABOVE: return one > other;
    case NOT_BELOW: return one >= other;
    default: return one <= other;
  }
}

static void warn_of_pairs(page *p, const corral_policy *policy) {
  static const char *const relations[] = {"below", "above", "not below", "not above"};
  char a[32], b[32];
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
    const struct pair *r = &pairs[i];
    int64_t one = field_of(policy, r->at_one), other = field_of(policy, r->at_other);
    if (contradicts(r->relation, one, other) && r->counts(policy))
      say(p, "warning: %s (%s) is %s %s (%s): %s.\n", r->one, one > 0 ? span(a, one) : "off",
          relations[r->relation], r->other, other > 0 ? span(b, other) : "off", r->text);
  }
}

/* away_ms is the corral's; a policy is compared with its default. */
static void warn_of_silence(page *p, const corral_policy *policy) {
  char a[32], b[32];
  corral_options usual = {0};
  (void)crl_policy_options(&usual, NULL, NULL);
  if (policy->wait_ms <= usual.away_ms && policy->at_deadline == CORRAL_DEADLINE_ERROR &&
      policy->when_away != CORRAL_AWAY_ERROR)
    say(p,
        "warning: wait_ms (%s) is not above away_ms (%s by default): while a store is silent calls "
        "end in an error before it counts as away.\n",
        span(a, policy->wait_ms), span(b, usual.away_ms));
}

static void warn(page *p, const corral_policy *policy) {
  warn_of_pairs(p, policy);
  warn_of_silence(p, policy);
  if (policy->retry_ms <= 0)
    say(p, "warning: retry_ms is off: an origin that fails is asked again by one call after the "
           "other.\n");
  if (policy->early_pct > 50)
    say(p,
        "warning: early_pct is %d: values are rebuilt more than twice as often as they expire.\n",
        (int)policy->early_pct);
  if (policy->jitter_pct > 50)
    say(p, "warning: jitter_pct is %d: some values live less than half of ttl_ms.\n",
        (int)policy->jitter_pct);
}

int corral_policy_explain(const corral_policy *policy, char *text, size_t size,
                          corral_error *error) {
  corral_policy whole;
  int status = crl_policy_resolve(&whole, policy, NULL, error);
  if (status != CORRAL_OK) return status;
  if (text == NULL || size == 0)
    return crl_status_fail(error, CORRAL_EINVAL, "corral_policy_explain: no room for text");
  corral_policy set = whole;
  if (!crl_policy_sets_wait(policy))
    set.wait_ms = defaults().wait_ms; /* else it may follow compute_ms */
  page p = {.text = text, .size = size};
  text[0] = '\0';
  say_lives(&p, &whole);
  say_early(&p, &whole);
  say_verify(&p, &whole);
  say_failures(&p, &whole);
  say_times(&p, &whole);
  say_away(&p, &whole);
  say_settings(&p, &set);
  warn(&p, &whole);
  return CORRAL_OK;
}
