/* case_verdict.c: verdicts; what expire and invalidate end, and what they keep. */
#include "conformance.h"

enum { OWNER = 1, OTHER = 2, RULE_MS = 250 };

static void wants_boom(const char *when, sight s) {
  check(has_verdict(&s), "%s: expected a verdict, came %s and state %d", when,
        corral_status_name(s.status), s.header.state);
  check(s.header.code == -42, "%s: the verdict's code is %d instead of -42", when,
        (int)s.header.code);
  check(s.header.failures == 3, "%s: the verdict's failures are %u instead of 3", when,
        (unsigned)s.header.failures);
  check(memcmp(s.header.note, "boom", 5) == 0,
        "%s: the verdict's text is not the one that was left", when);
}

static void leave_boom(client *c, const key *k, int64_t rule_ms) {
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a release with a verdict", leave_verdict(c, k, OWNER, -42, "boom", rule_ms, LONG_MS),
        CORRAL_OK);
}

void case_a_verdict_rules_until_it_ends(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  int64_t from = now_ms();
  wants("a release with a verdict", leave_verdict(c, k, OWNER, -42, "boom", RULE_MS, LONG_MS),
        CORRAL_OK);
  sight s = claim(c, k, OTHER, LONG_MS);
  wants("a claim under a verdict", s.status, CORRAL_EBUSY);
  wants_boom("a claim under a verdict", s);
  wants_within("what is left of a verdict", s.until_ms, RULE_MS);
  s = get(c, k);
  wants("GET under a verdict", s.status, CORRAL_OK);
  wants_boom("GET under a verdict", s);
  wants_no_value("GET under a verdict", s);
  wants_end("a verdict", c, k, lease_is_over, from, RULE_MS);
  s = claim_ended(c, k, OTHER);
  wants("a claim after a verdict", s.status, CORRAL_OK);
  wants_lease("a claim after a verdict", s, OTHER);
  check(s.header.failures == 3,
        "a claim after a verdict: expected its 3 failures in a row in the header, came %u",
        (unsigned)s.header.failures);
}

void case_a_verdict_keeps_the_payload(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1);
  fill(c, k, OWNER, r, LONG_MS);
  leave_boom(c, k, 2 * LONG_MS);
  sight s = get(c, k);
  wants_value("GET under a verdict that outlasts the value", s, r);
  wants_within("the value's life under it", s.life_ms, LONG_MS);
  wants_boom("GET under a verdict that outlasts the value", s);
  s = claim(c, k, OTHER, LONG_MS);
  wants("a claim under a verdict", s.status, CORRAL_EBUSY);
  wants_value("a claim under a verdict", s, r);
}

void case_a_thief_leaves_no_verdict(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a verdict on an absent key", leave_verdict(c, k, OWNER, 1, "boom", LONG_MS, LONG_MS),
        CORRAL_ELOST);
  wants_nothing("after a verdict on an absent key", get(c, k));
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a verdict by a thief", leave_verdict(c, k, OTHER, 1, "boom", LONG_MS, LONG_MS),
        CORRAL_ELOST);
  wants_lease("after a verdict by a thief", get(c, k), OWNER);
}

void case_a_settle_after_a_verdict_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  leave_boom(c, k, LONG_MS);
  wants("a settle after a verdict", settle(c, k, OWNER, record_new(k, 10, 1), LONG_MS),
        CORRAL_ELOST);
  wants("an extend after a verdict", extend(c, k, OWNER, LONG_MS), CORRAL_ELOST);
  wants("a second verdict", leave_verdict(c, k, OWNER, 7, "other", LONG_MS, LONG_MS), CORRAL_ELOST);
  wants_boom("after them", get(c, k));
}

void case_an_invalidate_ends_a_verdict(void) {
  client *c = client_new();
  const key *k = key_new("k");
  leave_boom(c, k, LONG_MS);
  wants("an invalidate", invalidate(c, k), CORRAL_OK);
  wants_nothing("after an invalidate", get(c, k));
  wants("a claim after it", claim(c, k, OTHER, LONG_MS).status, CORRAL_OK);
}

void case_an_expire_ends_a_lease_and_keeps_the_payload(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 5000, 1), *fresh = record_new(k, 100, 2);
  fill(c, k, OWNER, r, LONG_MS);
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("an expire", expire(c, k), CORRAL_OK);
  sight s = get(c, k);
  wants_value("GET after an expire", s, r);
  wants_within("the life after an expire", s.life_ms, LONG_MS);
  check(s.header.flags & CORRAL_FLAG_EXPIRED,
        "after an expire the header doesn't have the flag EXPIRED");
  check(lease_is_over(&s), "after an expire there is still a lease");
  wants("a settle of before the expire", settle(c, k, OWNER, fresh, LONG_MS), CORRAL_ELOST);
  s = claim(c, k, OTHER, LONG_MS);
  wants("a claim after an expire", s.status, CORRAL_OK);
  wants_value("a claim after an expire", s, r);
  check(s.header.flags & CORRAL_FLAG_EXPIRED,
        "a claim after an expire doesn't show the flag EXPIRED");
  wants("a settle after it", settle(c, k, OTHER, fresh, LONG_MS), CORRAL_OK);
  s = get(c, k);
  wants_value("after all", s, fresh);
  check(!(s.header.flags & CORRAL_FLAG_EXPIRED), "a new value still has the flag EXPIRED");
}

void case_an_expire_without_payload_invalidates(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("an expire of an absent key", expire(c, k), CORRAL_OK);
  wants_nothing("after an expire of an absent key", get(c, k));
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("an expire of a bare lease", expire(c, k), CORRAL_OK);
  wants_nothing("after an expire of a bare lease", get(c, k));
  wants("a settle of before it", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS), CORRAL_ELOST);
}

void case_an_invalidate_removes_value_and_lease(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("an invalidate of an absent key", invalidate(c, k), CORRAL_OK);
  wants("GET after it", get(c, k).status, CORRAL_EMISS);
  fill(c, k, OWNER, record_new(k, 5000, 1), LONG_MS);
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("an invalidate", invalidate(c, k), CORRAL_OK);
  wants("GET after an invalidate", get(c, k).status, CORRAL_EMISS);
  wants("a release of before it", release(c, k, OWNER), CORRAL_ELOST);
  wants("an extend of before it", extend(c, k, OWNER, LONG_MS), CORRAL_ELOST);
  wants("GET after all", get(c, k).status, CORRAL_EMISS);
}
