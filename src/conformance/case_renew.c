/* case_renew.c: RENEW: a stored payload gets a new life. */
#include "conformance.h"

enum { OWNER = 1, THIEF = 2, SHORT_TTL_MS = 150, LESS_MS = 5000, MIB = 1 << 20 };

/* Stores a value with ttl_ms, then claims the owner's lease over it. */
static void fill_and_claim(client *c, const key *k, const record *r, int64_t ttl_ms) {
  fill(c, k, OWNER, r, ttl_ms);
  wants("a claim of a value", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
}

void case_an_owner_renews(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill_and_claim(c, k, r, LESS_MS);
  wants("a renew", renew(c, k, OWNER, LONG_MS), CORRAL_OK);
  sight s = get(c, k);
  wants_value("after a renew", s, r);
  wants_within("the life after a renew", s.life_ms, LONG_MS);
  check(s.life_ms == -1 || s.life_ms > LESS_MS, "after a renew for %d ms, %lld ms are left",
        LONG_MS, (long long)s.life_ms);
  check(s.header.state == CORRAL_FREE && !is_leased(&s), "after a renew the header is not FREE");
  wants("another's claim after a renew", claim(c, k, THIEF, LONG_MS).status, CORRAL_OK);
  wants("a settle by who renewed", settle(c, k, OWNER, record_new(k, 100, 2), LONG_MS),
        CORRAL_ELOST);
}

void case_a_renewed_value_ends_by_itself(void) {
  client *c = client_new();
  const key *k = key_new("k");
  fill_and_claim(c, k, record_new(k, 100, 1), LONG_MS);
  int64_t from = now_ms();
  wants("a renew for a shorter life", renew(c, k, OWNER, SHORT_TTL_MS), CORRAL_OK);
  wants_end("a renewed life", c, k, value_is_over, from, SHORT_TTL_MS);
}

void case_a_renew_keeps_each_byte_of_a_large_value(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, MIB, 1);
  fill_and_claim(c, k, r, LESS_MS);
  wants("a renew of a large value", renew(c, k, OWNER, LONG_MS), CORRAL_OK);
  sight s = get(c, k);
  wants_value("after a renew of a large value", s, r);
  check(s.life_ms == -1 || s.life_ms > LESS_MS, "after a renew for %d ms, %lld ms are left",
        LONG_MS, (long long)s.life_ms);
}

void case_a_renew_ends_expired_and_failures(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill_and_claim(c, k, r, LONG_MS);
  int64_t from = now_ms();
  wants("a release with a verdict", leave_verdict(c, k, OWNER, 7, "broken", SHORT_TTL_MS, LONG_MS),
        CORRAL_OK);
  wants_end("a verdict", c, k, lease_is_over, from, SHORT_TTL_MS);
  wants("an expire", expire(c, k), CORRAL_OK);
  sight s = claim_ended(c, k, OWNER);
  wants("a claim after a verdict and an expire", s.status, CORRAL_OK);
  check((s.header.flags & CORRAL_FLAG_EXPIRED) != 0 && s.header.failures == 3,
        "before the renew: flags %u and %u failures", s.header.flags, (unsigned)s.header.failures);
  wants("a renew", renew(c, k, OWNER, LONG_MS), CORRAL_OK);
  s = get(c, k);
  wants_value("after a renew", s, r);
  check((s.header.flags & CORRAL_FLAG_EXPIRED) == 0, "after a renew the flag EXPIRED is still set");
  check(s.header.failures == 0, "after a renew there are still %u failures",
        (unsigned)s.header.failures);
}

void case_a_renew_without_payload_changes_nothing(void) {
  client *c = client_new();
  const key *cold = key_new("cold");
  const record *r = record_new(cold, 100, 1);
  wants("a claim", claim(c, cold, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a renew under a bare lease", renew(c, cold, OWNER, LONG_MS), CORRAL_EMISS);
  sight s = get(c, cold);
  wants_lease("after it", s, OWNER);
  wants_no_value("after it", s);
  wants("a settle after it", settle(c, cold, OWNER, r, LONG_MS), CORRAL_OK);
  wants_value("after the settle", get(c, cold), r);
}

void case_a_thief_renews_nothing(void) {
  client *c = client_new();
  const key *k = key_new("k"), *absent = key_new("absent");
  const record *r = record_new(k, 100, 1);
  wants("a renew of an absent key", renew(c, absent, OWNER, LONG_MS), CORRAL_ELOST);
  wants_nothing("after a renew of an absent key", get(c, absent));
  fill_and_claim(c, k, r, LESS_MS);
  wants("a renew by a thief", renew(c, k, THIEF, LONG_MS), CORRAL_ELOST);
  sight s = get(c, k);
  wants_value("after a renew by a thief", s, r);
  wants_lease("after a renew by a thief", s, OWNER);
  wants_within("the life after a renew by a thief", s.life_ms, LESS_MS);
  wants("a release", release(c, k, OWNER), CORRAL_OK);
  wants("a renew without a lease", renew(c, k, OWNER, LONG_MS), CORRAL_ELOST);
}

void case_a_renew_after_invalidate_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  fill_and_claim(c, k, record_new(k, 100, 1), LONG_MS);
  wants("an invalidate", invalidate(c, k), CORRAL_OK);
  wants("a renew after an invalidate", renew(c, k, OWNER, LONG_MS), CORRAL_ELOST);
  wants_nothing("after an invalidate and a renew", get(c, k));
}

void case_a_second_renew_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill_and_claim(c, k, r, LONG_MS);
  wants("a renew", renew(c, k, OWNER, LESS_MS), CORRAL_OK);
  wants("a second renew", renew(c, k, OWNER, LONG_MS), CORRAL_ELOST);
  sight s = get(c, k);
  wants_value("after a second renew", s, r);
  wants_within("the life after a second renew", s.life_ms, LESS_MS);
}

void case_a_batch_with_renew_is_done_in_order(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LESS_MS);
  corral_op ops[4] = {op_of(CORRAL_VERB_CLAIM, k, OWNER), op_of(CORRAL_VERB_RENEW, k, OWNER),
                      op_of(CORRAL_VERB_GET, k, OWNER), op_of(CORRAL_VERB_CLAIM, k, THIEF)};
  ops[1].renew.ttl_ms = LONG_MS;
  sight s[4];
  int status = client_perform(c, ops, 4, now_ms() + LIMIT_MS);
  check(status == CORRAL_OK, "a batch with a renew: the handle broke: %s", client_error(c));
  int can = ops[1].status != CORRAL_EUNSUPPORTED;
  for (size_t i = 0; i < 4; i++) {
    if (can)
      s[i] = sight_of(&ops[i], client_error(c));
    else
      op_drop(&ops[i]);
  }
  if (!can) cant("the store answers EUNSUPPORTED to RENEW");
  wants("a claim in a batch", s[0].status, CORRAL_OK);
  wants("a renew behind it", s[1].status, CORRAL_OK);
  wants_value("a GET behind that", s[2], r);
  check(s[2].life_ms == -1 || s[2].life_ms > LESS_MS, "a GET behind a renew: %lld ms are left",
        (long long)s[2].life_ms);
  wants("another's claim behind that", s[3].status, CORRAL_OK);
}
