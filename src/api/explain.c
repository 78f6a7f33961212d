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

static void say_failures(page *p, const corral_policy *policy) {
  char a[32], b[32], c[32];
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
        "After a failed compute nobody tries again for %s to %s, from the third failure on "
        "doubling "
        "up to %s; until then callers get a stale value in its grace, else that failure.\n",
        span(a, policy->retry_ms - policy->retry_ms / 4), span(b, policy->retry_ms),
        span(c, policy->retry_max_ms));
  else
    say(p, "After a failed compute the next caller tries again at once.\n");
}

static void say_lease(page *p, const corral_policy *policy) {
  char a[32];
  int64_t first = crl_policy_lease(policy, 0), least = crl_policy_lease(policy, 1);
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

static void warn(page *p, const corral_policy *policy) {
  char a[32], b[32];
  if (policy->poll_max_ms < policy->poll_ms)
    say(p, "warning: poll_max_ms (%s) is below poll_ms (%s), which is then never reached.\n",
        span(a, policy->poll_max_ms), span(b, policy->poll_ms));
  if (policy->retry_ms > 0 && policy->retry_max_ms < policy->retry_ms)
    say(p, "warning: retry_max_ms (%s) is below retry_ms (%s): the pause never grows.\n",
        span(a, policy->retry_max_ms), span(b, policy->retry_ms));
  if (policy->retry_ms <= 0)
    say(p, "warning: retry_ms is off: an origin that fails is asked again by one call after the "
           "other.\n");
  if (policy->lease_ms > policy->compute_ms)
    say(p,
        "warning: lease_ms (%s) is above compute_ms (%s): a leader that dies late is waited for "
        "longer than any compute may take.\n",
        span(a, policy->lease_ms), span(b, policy->compute_ms));
  if (policy->negative_ttl_ms > policy->ttl_ms)
    say(p,
        "warning: negative_ttl_ms (%s) is above ttl_ms (%s): what comes into being stays \"no such "
        "thing\" longer than a value lives.\n",
        span(a, policy->negative_ttl_ms), span(b, policy->ttl_ms));
  if (policy->wait_ms < policy->poll_ms)
    say(p, "warning: wait_ms (%s) is below poll_ms (%s): a call may end before its first look.\n",
        span(a, policy->wait_ms), span(b, policy->poll_ms));
  if (policy->ttl_ms < policy->poll_max_ms)
    say(p,
        "warning: ttl_ms (%s) is below poll_max_ms (%s): a waiter may look so seldom that it "
        "misses a whole life.\n",
        span(a, policy->ttl_ms), span(b, policy->poll_max_ms));
  if (policy->soft_ms > 0 && policy->sie_ms <= 0)
    say(p, "warning: soft_ms is set and sie_ms is not: there is never a value to take then.\n");
  if (policy->soft_ms > 0 && policy->soft_ms >= policy->wait_ms)
    say(p, "warning: soft_ms (%s) is not below wait_ms (%s): the call ends before.\n",
        span(a, policy->soft_ms), span(b, policy->wait_ms));
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
  page p = {.text = text, .size = size};
  text[0] = '\0';
  say_lives(&p, &whole);
  say_early(&p, &whole);
  say_failures(&p, &whole);
  say_times(&p, &whole);
  say_away(&p, &whole);
  say_settings(&p, &whole);
  warn(&p, &whole);
  return CORRAL_OK;
}
