/* case_late.c: holders that come after the end of their lease: they count until another is granted
 * the lease, or the key goes. */
#include "conformance.h"

enum { OWNER = 1, THIEF = 2, SHORT_LEASE_MS = 80, SHORT_TTL_MS = 40, TRIES = 5, CODE = 7 };

/* Leases the key to the owner, beside a value of this life (0: none), and waits for the end of
 * both. Returns when the lease ended at the earliest. */
static int64_t let_end(client *c, const key *k, int64_t ttl_ms) {
  if (ttl_ms > 0) fill(c, k, OWNER, record_new(k, 100, 1), ttl_ms);
  int64_t from = now_ms();
  wants("a claim", claim(c, k, OWNER, SHORT_LEASE_MS).status, CORRAL_OK);
  wants_end("a lease", c, k, lease_is_over, from, SHORT_LEASE_MS);
  if (ttl_ms == SHORT_TTL_MS) wants_end("a value", c, k, value_is_over, from, 0);
  return from + SHORT_LEASE_MS;
}

static int settle_late(client *c, const key *k) {
  return settle(c, k, OWNER, record_new(k, 100, 2), LONG_MS);
}

static int extend_late(client *c, const key *k) { return extend(c, k, OWNER, LONG_MS); }

static int renew_late(client *c, const key *k) { return renew(c, k, OWNER, LONG_MS); }

static int judge_late(client *c, const key *k) {
  return leave_verdict(c, k, OWNER, CODE, "late", LONG_MS, LONG_MS);
}

/* An operation within CORRAL_LEASE_KEPT_MS of the lease's end must count. If this process was held
 * up for longer, both answers are right, and the case is repeated. Returns the key. */
static const key *late(const char *what, client *c, int64_t ttl_ms,
                       int (*act)(client *c, const key *k)) {
  const key *k = key_new("k");
  for (int i = 0; i < TRIES; i++) {
    wants("an invalidate", invalidate(c, k), CORRAL_OK);
    int64_t ended = let_end(c, k, ttl_ms);
    int status = act(c, k);
    if (status == CORRAL_OK) return k;
    wants(what, status, CORRAL_ELOST);
    check(now_ms() - ended >= CORRAL_LEASE_KEPT_MS,
          "%s, less than %d ms after the lease's end, and nobody else claimed: came ELOST", what,
          CORRAL_LEASE_KEPT_MS);
  }
  cant("this machine is too slow for a case of milliseconds");
}

void case_a_late_settle_counts(void) {
  client *c = client_new();
  const key *k = late("a late settle", c, 0, settle_late);
  wants_value("after a late settle", get(c, k), record_new(k, 100, 2));
}

void case_a_late_settle_over_a_value_counts(void) {
  client *c = client_new();
  const key *k = late("a late settle over a value", c, LONG_MS, settle_late);
  wants_value("after a late settle over a value", get(c, k), record_new(k, 100, 2));
}

void case_a_late_settle_over_a_value_that_is_over_counts(void) {
  client *c = client_new();
  const key *k = late("a late settle over a value that is over", c, SHORT_TTL_MS, settle_late);
  wants_value("after it", get(c, k), record_new(k, 100, 2));
}

void case_a_late_extend_counts(void) {
  client *c = client_new();
  for (int warm = 0; warm < 2; warm++) {
    const key *k = late("a late extend", c, warm ? LONG_MS : 0, extend_late);
    sight s = get(c, k);
    wants_lease("after a late extend", s, OWNER);
    wants_within("the lease after a late extend", s.until_ms, LONG_MS);
    wants("another's claim after a late extend", claim(c, k, THIEF, LONG_MS).status, CORRAL_EBUSY);
    wants("a settle after a late extend", settle_late(c, k), CORRAL_OK);
    wants_value("after a late extend and a settle", get(c, k), record_new(k, 100, 2));
  }
}

void case_a_late_renew_counts(void) {
  client *c = client_new();
  const key *k = late("a late renew", c, LONG_MS / 2, renew_late);
  sight s = get(c, k);
  wants_value("after a late renew", s, record_new(k, 100, 1));
  check(s.life_ms == -1 || s.life_ms > LONG_MS / 2, "after a late renew %lld ms are left",
        (long long)s.life_ms);
}

void case_a_late_release_counts(void) {
  client *c = client_new();
  const key *k = late("a late release with a verdict", c, 0, judge_late);
  sight s = get(c, k);
  check(has_verdict(&s) && s.header.code == CODE, "after it there is no such verdict");
  wants("a claim while it rules", claim(c, k, THIEF, LONG_MS).status, CORRAL_EBUSY);
}

void case_a_late_holder_loses_to_anothers_claim(void) {
  client *c = client_new();
  const key *cold = key_new("cold"), *warm = key_new("warm");
  const key *keys[] = {cold, warm};
  for (int i = 0; i < 2; i++) {
    const key *k = keys[i];
    let_end(c, k, i == 0 ? 0 : LONG_MS);
    sight s = claim_ended(c, k, THIEF);
    wants("another's claim", s.status, CORRAL_OK);
    wants_lease("another's claim", s, THIEF);
    wants("a late extend", extend_late(c, k), CORRAL_ELOST);
    wants("a late settle", settle_late(c, k), CORRAL_ELOST);
    wants("a late release", judge_late(c, k), CORRAL_ELOST);
    wants_lease("after all of these", get(c, k), THIEF);
  }
}

void case_a_late_holder_loses_to_an_invalidation(void) {
  client *c = client_new();
  const key *k = key_new("k");
  int (*const end[])(client *, const key *) = {invalidate, expire};
  for (int warm = 0; warm < 2; warm++)
    for (int i = 0; i < 2; i++) {
      let_end(c, k, warm ? LONG_MS : 0);
      wants("an invalidate or expire", end[i](c, k), CORRAL_OK);
      wants("a late extend", extend_late(c, k), CORRAL_ELOST);
      wants("a late settle", settle_late(c, k), CORRAL_ELOST);
      wants("a late release", judge_late(c, k), CORRAL_ELOST);
      sight s = get(c, k);
      check(!is_leased(&s) && !has_verdict(&s), "after all of these there is a lease or a verdict");
      wants("an invalidate", invalidate(c, k), CORRAL_OK);
    }
}

void case_a_thief_gains_nothing_from_a_lease_that_is_over(void) {
  client *c = client_new();
  const key *k = key_new("k");
  let_end(c, k, 0);
  wants("a settle by a thief", settle(c, k, THIEF, record_new(k, 100, 2), LONG_MS), CORRAL_ELOST);
  wants("an extend by a thief", extend(c, k, THIEF, LONG_MS), CORRAL_ELOST);
  wants("a release by a thief", release(c, k, THIEF), CORRAL_ELOST);
  wants_nothing("after all of these", get(c, k));
}

/* The key, not the lease alone. */
void case_the_key_of_a_lease_ends_by_itself(void) {
  client *c = client_new();
  const key *k = key_new("k");
  int64_t ended = let_end(c, k, 0);
  while (get(c, k).status != CORRAL_EMISS) {
    int64_t after = now_ms() - ended;
    check(after <= CORRAL_LEASE_KEPT_MS + LATE_MS, "it was still there %lld ms after the lease",
          (long long)after);
    pause_ms(20);
  }
  wants("a settle when the key is gone", settle_late(c, k), CORRAL_ELOST);
}
