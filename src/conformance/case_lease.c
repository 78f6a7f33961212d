/* case_lease.c: claim, settle, extend, release: by the owner, by a thief, in time and too late. */
#include "conformance.h"

enum { OWNER = 1, THIEF = 2, SHORT_LEASE_MS = 80, SHORT_TTL_MS = 150 };

void case_an_absent_key_is_a_miss(void) {
  client *c = client_new();
  sight s = get(c, key_new("absent"));
  wants("GET of an absent key", s.status, CORRAL_EMISS);
  check(s.life_ms == 0 && s.until_ms == 0,
        "GET of an absent key: expected no life and no lease, came %lld and %lld ms",
        (long long)s.life_ms, (long long)s.until_ms);
}

static void wants_bare_lease(const char *when, sight s) {
  wants_lease(when, s, OWNER);
  wants_no_value(when, s);
  check(s.header.body == 0, "%s: expected a front alone, came a body of %u bytes", when,
        (unsigned)s.header.body);
  wants_within(when, s.until_ms, LONG_MS);
  check(memcmp(s.header.note, "who holds it", 13) == 0,
        "%s: the header doesn't have the note of the claim", when);
  check(s.header.cost_ms == 77, "%s: the header doesn't have the cost_ms of the claim", when);
}

void case_a_claim_is_granted(void) {
  client *c = client_new();
  const key *k = key_new("k");
  sight s = claim_as(c, k, OWNER, LONG_MS, "who holds it", 77);
  wants("a claim of an absent key", s.status, CORRAL_OK);
  wants_bare_lease("a claim of an absent key", s);
  s = get(c, k);
  wants("GET of a key that is leased", s.status, CORRAL_OK);
  wants_bare_lease("GET of a key that is leased", s);
}

void case_a_claim_takes_over_from_a_holder_who_is_dead(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  wants("the first claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_CLAIM, k, THIEF);
  op.claim.over = token(THIEF + 1);
  wants("a claim over somebody else's lease", perform_one(c, &op).status, CORRAL_EBUSY);
  op = op_of(CORRAL_VERB_CLAIM, k, THIEF);
  op.claim.over = token(OWNER);
  sight s = perform_one(c, &op);
  wants("a claim over the dead holder's lease", s.status, CORRAL_OK);
  wants_lease("a claim over the dead holder's lease", s, THIEF);
  wants_value("a claim over the dead holder's lease", s, r);
  wants("a settle by the dead holder", settle(c, k, OWNER, r, LONG_MS), CORRAL_ELOST);
  wants("a settle by the successor", settle(c, k, THIEF, r, LONG_MS), CORRAL_OK);
}

void case_a_claim_excludes_others(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("the first claim", claim_as(c, k, OWNER, LONG_MS, "who holds it", 77).status, CORRAL_OK);
  sight s = claim(c, k, THIEF, LONG_MS);
  wants("a claim of a leased key", s.status, CORRAL_EBUSY);
  wants_bare_lease("a claim of a leased key", s);
  wants_lease("after it", get(c, k), OWNER);
}

void case_a_claim_that_is_mine_already_is_granted_again(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("the first claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  sight s = claim(c, k, OWNER, LONG_MS);
  wants("a second claim with the same token", s.status, CORRAL_OK);
  wants_lease("a second claim with the same token", s, OWNER);
}

void case_a_lease_ends_by_itself(void) {
  client *c = client_new();
  const key *k = key_new("k");
  int64_t from = now_ms();
  wants("a claim", claim(c, k, OWNER, SHORT_LEASE_MS).status, CORRAL_OK);
  wants_end("a lease", c, k, lease_is_over, from, SHORT_LEASE_MS);
  sight s = claim_ended(c, k, THIEF);
  wants("a claim after a lease ended", s.status, CORRAL_OK);
  wants_lease("a claim after a lease ended", s, THIEF);
}

/* Checks what is left of LONG_MS after at least `least` and at most `most` ms; -1: unknown. */
static void wants_left(const char *what, int64_t came, int64_t least, int64_t most) {
  check(came == -1 || (came <= LONG_MS - least + CLOCK_MS && came >= LONG_MS - most - CLOCK_MS),
        "%s of %d ms, %lld to %lld ms after it began: %lld ms are left", what, LONG_MS,
        (long long)least, (long long)most, (long long)came);
}

void case_what_is_left_shrinks_as_time_passes(void) {
  client *c = client_new();
  const key *k = key_new("k");
  fill(c, k, OWNER, record_new(k, 100, 1), LONG_MS);
  int64_t before = now_ms();
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a settle", settle(c, k, OWNER, record_new(k, 100, 2), LONG_MS), CORRAL_OK);
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  int64_t after = now_ms();
  pause_ms(200);
  int64_t least = now_ms() - after;
  sight s = get(c, k), busy = claim(c, k, THIEF, LONG_MS);
  int64_t most = now_ms() - before;
  wants_left("GET: a lease", s.until_ms, least, most);
  wants_left("GET: a value's life", s.life_ms, least, most);
  wants_left("a claim: a lease", busy.until_ms, least, most);
  wants_left("a claim: a value's life", busy.life_ms, least, most);
}

void case_an_owner_settles(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  sight s = get(c, k);
  wants_value("GET after a settle", s, r);
  wants_within("the life after a settle", s.life_ms, LONG_MS);
  check(s.header.state == CORRAL_FREE, "after a settle the header is not FREE");
  wants("a claim after a settle", claim(c, k, THIEF, LONG_MS).status, CORRAL_OK);
}

void case_a_value_ends_by_itself(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  int64_t from = now_ms();
  wants("a settle", settle(c, k, OWNER, record_new(k, 100, 1), SHORT_TTL_MS), CORRAL_OK);
  wants_end("a value's life", c, k, value_is_over, from, SHORT_TTL_MS);
  sight s = claim(c, k, THIEF, LONG_MS);
  wants("a claim after a value ended", s.status, CORRAL_OK);
  wants_no_value("a claim after a value ended", s);
}

void case_a_thief_settles_nothing(void) {
  client *c = client_new();
  const key *cold = key_new("cold"), *warm = key_new("warm");
  const record *old = record_new(warm, 100, 1);
  wants("a claim", claim(c, cold, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a settle by a thief", settle(c, cold, THIEF, record_new(cold, 100, 2), LONG_MS),
        CORRAL_ELOST);
  sight s = get(c, cold);
  wants_no_value("after a settle by a thief", s);
  wants_lease("after a settle by a thief", s, OWNER);
  fill(c, warm, OWNER, old, LONG_MS);
  wants("a claim", claim(c, warm, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a settle by a thief over a value",
        settle(c, warm, THIEF, record_new(warm, 90, 2), LONG_MS), CORRAL_ELOST);
  s = get(c, warm);
  wants_value("after a settle by a thief over a value", s, old);
  wants_lease("after a settle by a thief over a value", s, OWNER);
}

void case_a_settle_without_a_lease_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *old = record_new(k, 100, 1);
  wants("a settle on an absent key", settle(c, k, OWNER, old, LONG_MS), CORRAL_ELOST);
  wants_nothing("after a settle on an absent key", get(c, k));
  fill(c, k, OWNER, old, LONG_MS);
  wants("a settle on a free key", settle(c, k, THIEF, record_new(k, 100, 2), LONG_MS),
        CORRAL_ELOST);
  wants_value("after a settle on a free key", get(c, k), old);
}

void case_a_settle_after_anothers_claim_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 2);
  int64_t from = now_ms();
  wants("a claim", claim(c, k, OWNER, SHORT_LEASE_MS).status, CORRAL_OK);
  wants_end("a lease", c, k, lease_is_over, from, SHORT_LEASE_MS);
  wants("another's claim after it", claim_ended(c, k, THIEF).status, CORRAL_OK);
  wants("a settle by the first", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS), CORRAL_ELOST);
  sight s = get(c, k);
  wants_no_value("after a settle by the first", s);
  wants_lease("after a settle by the first", s, THIEF);
  wants("a settle by the second", settle(c, k, THIEF, r, LONG_MS), CORRAL_OK);
  wants("a settle by the first after that", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS),
        CORRAL_ELOST);
  wants_value("after both", get(c, k), r);
}

void case_a_settle_after_invalidate_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("an invalidate", invalidate(c, k), CORRAL_OK);
  wants("a settle after an invalidate", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS),
        CORRAL_ELOST);
  wants_nothing("after an invalidate and a settle", get(c, k));
}

void case_a_settle_after_release_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a release", release(c, k, OWNER), CORRAL_OK);
  wants("a settle after a release", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS),
        CORRAL_ELOST);
  wants_nothing("after a release and a settle", get(c, k));
}

void case_a_second_settle_is_lost(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 100, 1);
  fill(c, k, OWNER, r, LONG_MS);
  wants("a second settle", settle(c, k, OWNER, record_new(k, 100, 2), LONG_MS), CORRAL_ELOST);
  wants_value("after a second settle", get(c, k), r);
}

void case_an_owner_extends(void) {
  client *c = client_new();
  const key *k = key_new("k");
  int64_t from = now_ms();
  wants("a claim", claim(c, k, OWNER, 300).status, CORRAL_OK);
  wants("an extend", extend(c, k, OWNER, LONG_MS), CORRAL_OK);
  sight s = get(c, k);
  wants_lease("after an extend", s, OWNER);
  check(s.until_ms == -1 || s.until_ms > LONG_MS / 2, "after an extend to %d ms, %lld ms are left",
        LONG_MS, (long long)s.until_ms);
  pause_ms(from + 350 - now_ms());
  wants("another's claim when the lease without the extend would be over",
        claim(c, k, THIEF, LONG_MS).status, CORRAL_EBUSY);
  wants("a settle then", settle(c, k, OWNER, record_new(k, 100, 1), LONG_MS), CORRAL_OK);
  wants("an extend after the settle", extend(c, k, OWNER, LONG_MS), CORRAL_ELOST);
}

void case_a_thief_extends_nothing(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("an extend on an absent key", extend(c, k, OWNER, LONG_MS), CORRAL_ELOST);
  wants_nothing("after an extend on an absent key", get(c, k));
  int64_t from = now_ms();
  wants("a claim", claim(c, k, OWNER, 200).status, CORRAL_OK);
  wants("an extend by a thief", extend(c, k, THIEF, LONG_MS), CORRAL_ELOST);
  wants_end("a lease that a thief extended", c, k, lease_is_over, from, 200);
}

void case_an_owner_releases(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a release", release(c, k, OWNER), CORRAL_OK);
  wants_nothing("after a release", get(c, k));
  wants("a claim after a release", claim(c, k, THIEF, LONG_MS).status, CORRAL_OK);
}

void case_a_thief_releases_nothing(void) {
  client *c = client_new();
  const key *k = key_new("k");
  wants("a release on an absent key", release(c, k, OWNER), CORRAL_ELOST);
  wants("a claim", claim(c, k, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a release by a thief", release(c, k, THIEF), CORRAL_ELOST);
  wants_lease("after a release by a thief", get(c, k), OWNER);
  wants("another's claim after it", claim(c, k, THIEF, LONG_MS).status, CORRAL_EBUSY);
}

void case_a_second_release_is_lost(void) {
  client *c = client_new();
  const key *cold = key_new("cold"), *warm = key_new("warm");
  fill(c, warm, OWNER, record_new(warm, 10, 1), LONG_MS);
  const key *keys[] = {cold, warm};
  for (int i = 0; i < 2; i++) {
    wants("a claim", claim(c, keys[i], OWNER, LONG_MS).status, CORRAL_OK);
    wants("a release", release(c, keys[i], OWNER), CORRAL_OK);
    wants("a second release", release(c, keys[i], OWNER), CORRAL_ELOST);
  }
  wants("another's claim", claim(c, cold, THIEF, LONG_MS).status, CORRAL_OK);
  wants("a third release", release(c, cold, OWNER), CORRAL_ELOST);
  wants_lease("after a third release", get(c, cold), THIEF);
}

void case_a_release_keeps_the_payload(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *r = record_new(k, 1000, 1);
  fill(c, k, OWNER, r, LONG_MS);
  wants("a claim", claim(c, k, OWNER, 2 * LONG_MS).status, CORRAL_OK);
  wants("a release", release(c, k, OWNER), CORRAL_OK);
  sight s = get(c, k);
  wants_value("after a release", s, r);
  wants_within("the life after a release of a lease longer than it", s.life_ms, LONG_MS);
  check(!is_leased(&s), "after a release there is still a lease");
}
