/* case_lock.c: a lock taken, refused, extended, given back, lost; its fencing tokens. */
#include "conformance.h"

enum {
  OWNER = 1,
  OTHER = 2,
  THIRD = 3,
  SHORT_MS = 150,
  THOUSAND = 1000,
  THOUSAND_MS = 15000,
  THOUSAND_LEAST = 20
};

void case_a_lock_excludes_others_until_it_is_unlocked(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a lock of nobody", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  told t = lock_take(c, k, OTHER, ALONE, LONG_MS);
  wants("a lock of somebody else", t.status, CORRAL_EBUSY);
  check(t.until_ms == -1 || (t.until_ms > LONG_MS / 2 && t.until_ms <= LONG_MS + LATE_HOLD_MS),
        "a lock held for %d ms was refused with %lld ms left", LONG_MS, (long long)t.until_ms);
  wants("an unlock by its holder", unlock(c, k, OWNER).status, CORRAL_OK);
  wants("a lock after it", lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("a lock by the first then", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_EBUSY);
}

/* Checks the time left of a hold that was just granted for lease_ms: less by a hundredth is
 * accepted, for stores whose several clocks may drift apart. */
static void wants_lease_of(const char *when, int64_t until_ms, int64_t lease_ms) {
  check(until_ms > lease_ms - lease_ms / 100 - CLOCK_MS && until_ms <= lease_ms + LATE_HOLD_MS,
        "%s: asked for %lld ms, %lld ms are left", when, (long long)lease_ms, (long long)until_ms);
}

void case_a_hold_lasts_as_long_as_asked(void) {
  static const int64_t leases[] = {1000, 10000, 3600000};
  client *c = client_new();
  for (size_t i = 0; i < 3; i++) {
    const key *k = lock_new("k");
    told t = lock_take(c, k, OWNER, ALONE, leases[i]);
    wants("a lock", t.status, CORRAL_OK);
    wants_lease_of("a lock", t.until_ms, leases[i]);
    t = lock_extend(c, k, OWNER, ALONE, 2 * leases[i]);
    wants("an extend", t.status, CORRAL_OK);
    wants_lease_of("an extend", t.until_ms, 2 * leases[i]);
  }
}

void case_a_hold_ends_by_itself(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  wants("a lock", lock_take(c, k, OWNER, ALONE, SHORT_MS).status, CORRAL_OK);
  (void)lock_when_free(c, k, OTHER, ALONE, from + SHORT_MS);
}

void case_a_lost_hold_is_told(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  wants("a lock", lock_take(c, k, OWNER, ALONE, SHORT_MS).status, CORRAL_OK);
  (void)lock_when_free(c, k, OTHER, ALONE, from + SHORT_MS);
  told t = lock_extend(c, k, OWNER, ALONE, LONG_MS);
  wants("an extend by the first, when another has the lock", t.status, CORRAL_ELOST);
  check(t.until_ms != 0,
        "an extend by the first, when another has the lock: told that nobody has it (until_ms 0)");
  t = unlock(c, k, OWNER);
  wants("an unlock by the first, when another has the lock", t.status, CORRAL_ELOST);
  check(t.until_ms != 0,
        "an unlock by the first, when another has the lock: told that nobody has it (until_ms 0)");
  wants("a lock by a third after both", lock_take(c, k, THIRD, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("an extend by the other", lock_extend(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an unlock by the other", unlock(c, k, OTHER).status, CORRAL_OK);
}

void case_a_foreign_token_unlocks_nothing(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  told t = unlock(c, k, OTHER);
  wants("an unlock by a foreign token", t.status, CORRAL_ELOST);
  check(t.until_ms != 0,
        "an unlock by a foreign token: told that nobody has the lock (until_ms 0)");
  wants("a lock after it", lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_EBUSY);
  wants("an unlock by the holder after it", unlock(c, k, OWNER).status, CORRAL_OK);
}

void case_a_foreign_token_extends_nothing(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  wants("a lock", lock_take(c, k, OWNER, ALONE, SHORT_MS).status, CORRAL_OK);
  wants("an extend by a foreign token", lock_extend(c, k, OTHER, ALONE, LONG_MS).status,
        CORRAL_ELOST);
  (void)lock_when_free(c, k, OTHER, ALONE, from + SHORT_MS);
}

void case_an_unlock_of_nothing_is_lost(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  for (int i = 0; i < 2; i++) {
    const char *when = i == 0 ? "of a lock that never was" : "after the unlock";
    told t = unlock(c, k, OWNER);
    check(t.status == CORRAL_ELOST, "an unlock %s: expected CORRAL_ELOST, came %s", when,
          corral_status_name(t.status));
    check(t.until_ms == 0, "an unlock %s: nobody holds it, and %lld ms are left", when,
          (long long)t.until_ms);
    t = lock_extend(c, k, OWNER, ALONE, LONG_MS);
    check(t.status == CORRAL_ELOST, "an extend %s: expected CORRAL_ELOST, came %s", when,
          corral_status_name(t.status));
    if (i > 0) break;
    wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
    wants("an unlock", unlock(c, k, OWNER).status, CORRAL_OK);
  }
  wants("another's lock at the end", lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
}

void case_an_extend_lengthens_and_never_shortens(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  told first = lock_take(c, k, OWNER, ALONE, SHORT_MS);
  wants("a lock", first.status, CORRAL_OK);
  told t = lock_extend(c, k, OWNER, ALONE, LONG_MS);
  wants("an extend", t.status, CORRAL_OK);
  wants_lease_of("an extend", t.until_ms, LONG_MS);
  check(t.fence == first.fence, "an extend changed the fencing token from %llu to %llu",
        (unsigned long long)first.fence, (unsigned long long)t.fence);
  t = lock_extend(c, k, OWNER, ALONE, 10);
  wants("a shorter extend", t.status, CORRAL_OK);
  check(t.until_ms > LONG_MS / 2, "an extend to 10 ms of a hold of %d ms shortened it to %lld ms",
        LONG_MS, (long long)t.until_ms);
  pause_ms(from + SHORT_MS + CLOCK_MS - now_ms());
  wants("another's lock when the hold would be over", lock_take(c, k, OTHER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("an unlock then", unlock(c, k, OWNER).status, CORRAL_OK);
}

void case_a_lock_that_is_mine_already_is_granted_again(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  told first = lock_take(c, k, OWNER, ALONE, 2000), again = lock_take(c, k, OWNER, ALONE, LONG_MS);
  wants("a lock", first.status, CORRAL_OK);
  wants("a second lock with the same token", again.status, CORRAL_OK);
  wants_lease_of("a second lock with the same token", again.until_ms, LONG_MS);
  check(again.fence >= first.fence,
        "a second lock with the same token: its fencing token is smaller");
  wants("another's lock", lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_EBUSY);
  wants("one unlock", unlock(c, k, OWNER).status, CORRAL_OK);
  wants("another's lock after it", lock_take(c, k, OTHER, ALONE, LONG_MS).status, CORRAL_OK);
}

/* ---- LOCK_SHOW ----------------------------------------------------------------------------- */

void case_a_lock_shows_its_holders(void) {
  static const char note[] = "who, and why: \xc3\xa9";
  client *c = client_new(), *reader = client_new();
  const key *k = lock_new("k");
  int64_t from = now_ms();
  told t = lock_as(c, k, OWNER, ALONE, LONG_MS, 0, note);
  wants("a lock", t.status, CORRAL_OK);
  pause_ms(30);
  shown_lock s = lock_show(reader, k);
  wants("LOCK_SHOW of a held lock", s.status, CORRAL_OK);
  check(s.live == 1, "LOCK_SHOW of a lock with one holder shows %zu", s.live);
  const corral_hold *h = hold_of(&s, OWNER);
  check(h != NULL, "LOCK_SHOW shows another token than the holder's");
  check(h->mode == CORRAL_LOCK_EXCLUSIVE, "LOCK_SHOW shows mode %d of an exclusive hold", h->mode);
  check(h->fence == t.fence, "LOCK_SHOW shows the fencing token %llu, the hold has %llu",
        (unsigned long long)h->fence, (unsigned long long)t.fence);
  check(strncmp(h->note, note, CORRAL_LOCK_NOTE) == 0, "LOCK_SHOW doesn't show the holder's note");
  check(s.now - h->since >= 30 - EARLY_MS && s.now - h->since <= LATE_HOLD_MS,
        "LOCK_SHOW, 30 ms after a lock: it is held since %lld ms", (long long)(s.now - h->since));
  wants_lease_of("LOCK_SHOW, with what has passed", h->until - s.now + now_ms() - from, LONG_MS);
  wants("an unlock", unlock(c, k, OWNER).status, CORRAL_OK);
  check(lock_show(reader, k).live == 0, "LOCK_SHOW after the unlock shows a holder");
}

void case_a_lock_of_nobody_shows_nobody(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  check(lock_show(c, k).live == 0, "LOCK_SHOW of a lock that never was shows a holder");
  wants("a lock after it", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an unlock", unlock(c, k, OWNER).status, CORRAL_OK);
  check(lock_show(c, k).live == 0, "LOCK_SHOW after the unlock shows a holder");
}

/* ---- names, batches, values next to locks -------------------------------------------------- */

static key *lock_of(const void *bytes, size_t len) {
  key *k = key_of(bytes, len);
  k->is_lock = true;
  return k;
}

static void wants_apart(client *c, const key *a, const key *b) {
  told t = lock_take(c, a, OWNER, ALONE, LONG_MS);
  wants("a lock of a name of any bytes", t.status, CORRAL_OK);
  wants("another's lock of it", lock_take(c, a, OTHER, ALONE, LONG_MS).status, CORRAL_EBUSY);
  wants("a lock of a name that differs at its end", lock_take(c, b, OTHER, ALONE, LONG_MS).status,
        CORRAL_OK);
  wants("an unlock", unlock(c, a, OWNER).status, CORRAL_OK);
  wants("an unlock of the other name", unlock(c, b, OTHER).status, CORRAL_OK);
}

void case_a_lock_has_any_name(void) {
  static const char tail[] = "\0 /\r\n%'\"\\\xff\x80*?[x]\x01";
  size_t most = declared()->max_key < 1000 ? declared()->max_key : 1000;
  uint8_t text[1024];
  memset(text, 'n', sizeof text);
  client *c = client_new();
  size_t len = key_prefix((char *)text, 100);
  memcpy(text + len, tail, sizeof tail);
  wants_apart(c, lock_of(text, len + sizeof tail), lock_of(text, len + sizeof tail - 1));
  len = key_prefix((char *)text, 100);
  text[len] = 'n';
  const key *a = lock_of(text, most);
  text[most - 1] = 'm';
  wants_apart(c, a, lock_of(text, most));
}

void case_a_batch_of_locks_is_done_in_order(void) {
  client *c = client_new();
  const key *k = lock_new("k"), *other = lock_new("other");
  static const struct step {
    corral_verb verb;
    unsigned holder;
    int expected;
  } steps[] = {
      {CORRAL_VERB_LOCK, OWNER, CORRAL_OK},      {CORRAL_VERB_LOCK, OTHER, CORRAL_EBUSY},
      {CORRAL_VERB_LOCK_SHOW, 0, CORRAL_OK},     {CORRAL_VERB_LOCK_EXTEND, OTHER, CORRAL_ELOST},
      {CORRAL_VERB_UNLOCK, OWNER, CORRAL_OK},    {CORRAL_VERB_LOCK, OTHER, CORRAL_OK},
      {CORRAL_VERB_UNLOCK, OWNER, CORRAL_ELOST}, {CORRAL_VERB_LOCK_EXTEND, OTHER, CORRAL_OK}};
  enum { COUNT = sizeof steps / sizeof *steps };
  corral_op ops[COUNT + 1];
  for (size_t i = 0; i < COUNT; i++) ops[i] = op_of(steps[i].verb, k, steps[i].holder);
  ops[COUNT] = op_of(CORRAL_VERB_LOCK, other, OWNER);
  int status = client_perform(c, ops, COUNT + 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("a batch of locks: the handle broke: %s: %s", corral_status_name(status),
           client_error(c));
  for (size_t i = 0; i <= COUNT; i++) {
    int expected = i < COUNT ? steps[i].expected : CORRAL_OK,
        came = told_of(&ops[i], i < COUNT ? k : other, i < COUNT ? steps[i].holder : OWNER,
                       client_error(c))
                   .status;
    op_drop(&ops[i]);
    check(came == expected, "operation %zu of a batch of locks, %s: expected %s, came %s", i + 1,
          verb_name(ops[i].verb), corral_status_name(expected), corral_status_name(came));
  }
  wants("an unlock after the batch", unlock(c, k, OTHER).status, CORRAL_OK);
  wants("an unlock of the other after the batch", unlock(c, other, OWNER).status, CORRAL_OK);
}

void case_locks_and_values_dont_touch_each_other(void) {
  client *c = client_new();
  const key *k = lock_new("k"), *v = key_new("k");
  const record *r = record_new(v, 500, 1);
  wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  fill(c, v, OTHER, r, LONG_MS);
  wants("a claim", claim(c, v, OTHER, LONG_MS).status, CORRAL_OK);
  wants("another's lock beside a value", lock_take(c, k, OTHER, ALONE, LONG_MS).status,
        CORRAL_EBUSY);
  wants("an unlock beside a value", unlock(c, k, OWNER).status, CORRAL_OK);
  sight s = get(c, v);
  wants_value("GET after an unlock", s, r);
  wants_lease("GET after an unlock", s, OTHER);
  wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an invalidate beside a lock", invalidate(c, v), CORRAL_OK);
  wants("an unlock after an invalidate", unlock(c, k, OWNER).status, CORRAL_OK);
}

static int status_of(client *c, corral_verb verb, const key *k) {
  corral_op op = op_of(verb, k, OTHER);
  int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("%s: the handle broke: %s: %s", verb_name(op.verb), corral_status_name(status),
           client_error(c));
  op_drop(&op);
  return op.status;
}

void case_a_lock_and_a_value_are_foreign_to_each_other(void) {
  client *c = client_new();
  const key *k = lock_new("k"), *v = key_new("v");
  const record *r = record_new(v, 500, 1);
  wants("a lock", lock_take(c, k, OWNER, ALONE, LONG_MS).status, CORRAL_OK);
  fill(c, v, OWNER, r, LONG_MS);
  wants("GET of a lock", status_of(c, CORRAL_VERB_GET, k), CORRAL_EFOREIGN);
  wants("a claim of a lock", status_of(c, CORRAL_VERB_CLAIM, k), CORRAL_EFOREIGN);
  wants("an unlock of a lock that was taken for a value", unlock(c, k, OWNER).status, CORRAL_OK);
  wants("a lock at a value's key", status_of(c, CORRAL_VERB_LOCK, v), CORRAL_EFOREIGN);
  wants("LOCK_SHOW of a value", status_of(c, CORRAL_VERB_LOCK_SHOW, v), CORRAL_EFOREIGN);
  check(status_of(c, CORRAL_VERB_LOCK_EXTEND, v) != CORRAL_OK, "an extend at a value's key is OK");
  check(status_of(c, CORRAL_VERB_UNLOCK, v) != CORRAL_OK, "an unlock at a value's key is OK");
  wants_value("GET after the verbs of locks", get(c, v), r);
}

void case_a_store_of_locks_alone_has_no_values(void) {
  if (!declared()->locks_only) cant("the store has values");
  client *c = client_new();
  const key *k = lock_new("k");
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_RENEW; verb++) {
    check(status_of(c, (corral_verb)verb, k) == CORRAL_EUNSUPPORTED,
          "a store of locks alone: expected CORRAL_EUNSUPPORTED of %s", verb_name((uint32_t)verb));
    check(client_error(c)[0] != '\0',
          "a store of locks alone answers EUNSUPPORTED to %s without a text",
          verb_name((uint32_t)verb));
  }
}

/* ---- fencing tokens ------------------------------------------------------------------------ */

static void wants_more(const char *when, uint64_t *last, told t) {
  wants(when, t.status, CORRAL_OK);
  check(t.fence > *last, "%s: the fencing token %llu comes after %llu", when,
        (unsigned long long)t.fence, (unsigned long long)*last);
  *last = t.fence;
}

void case_fencing_tokens_grow_over_release_and_expiry(void) {
  client *c = client_new(), *other = client_new();
  const key *k = lock_new("k");
  uint64_t last = 0;
  for (unsigned i = 0; i < 3; i++) {
    wants_more("a lock", &last, lock_take(c, k, 10 * i, ALONE, LONG_MS));
    wants("an unlock", unlock(c, k, 10 * i).status, CORRAL_OK);
    int64_t from = now_ms();
    wants_more("a lock after an unlock", &last, lock_take(other, k, 10 * i + 1, ALONE, SHORT_MS));
    wants_more("a lock after another's hold ended", &last,
               lock_when_free(c, k, 10 * i + 2, ALONE, from + SHORT_MS));
    wants("an unlock", unlock(c, k, 10 * i + 2).status, CORRAL_OK);
  }
}

void case_fencing_tokens_grow_over_a_thousand_holds(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  uint64_t last = 0;
  int64_t until = now_ms() + THOUSAND_MS;
  for (unsigned i = 0; i < THOUSAND && (i < THOUSAND_LEAST || now_ms() < until); i++) {
    wants_more("one of a thousand holds", &last, lock_take(c, k, i, ALONE, LONG_MS));
    wants("one of a thousand unlocks", unlock(c, k, i).status, CORRAL_OK);
  }
}

void case_an_extend_raises_a_fencing_token(void) {
  client *c = client_new();
  const key *k = lock_new("k");
  told t = lock_take(c, k, OWNER, ALONE, LONG_MS);
  wants("a lock", t.status, CORRAL_OK);
  uint64_t wish = t.fence + 1000000000;
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, k, OWNER);
  op.lock_extend.fence = wish;
  int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("LOCK_EXTEND: the handle broke: %s: %s", corral_status_name(status), client_error(c));
  t = told_of(&op, k, OWNER, client_error(c));
  wants("an extend to a larger fencing token", t.status, CORRAL_OK);
  check(t.fence >= wish, "an extend to a larger fencing token: it is smaller than what was asked");
  wants("an unlock", unlock(c, k, OWNER).status, CORRAL_OK);
  wants_more("a lock after an extend to a larger fencing token", &wish,
             lock_take(c, k, OTHER, ALONE, LONG_MS));
}

static told take_over(client *c, const key *k, unsigned holder, unsigned from) {
  corral_op op = op_of(CORRAL_VERB_LOCK_EXTEND, k, holder);
  uint8_t of[CORRAL_TOKEN];
  memcpy(of, token(from), sizeof of);
  op.lock_extend.from = of;
  op.lock_extend.note = "heir";
  op.lock_extend.note_len = 4;
  int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("LOCK_EXTEND: the handle broke: %s: %s", corral_status_name(status), client_error(c));
  return told_of(&op, k, holder, client_error(c));
}

void case_a_hold_is_taken_over_once(void) {
  enum { HEIR = 77 };
  if (!declared()->adopts) cant("the store declares that holds can't be taken over (adopts)");
  client *c = client_new(), *other = client_new();
  const key *k = lock_new("k");
  told t = lock_take(c, k, OWNER, ALONE, LONG_MS);
  wants("a lock", t.status, CORRAL_OK);
  uint64_t last = t.fence;
  wants_more("a hold that is taken over", &last, take_over(other, k, HEIR, OWNER));
  wants("the same request again", take_over(c, k, HEIR, OWNER).status, CORRAL_OK);
  wants("a second heir", take_over(c, k, OTHER, OWNER).status, CORRAL_ELOST);
  wants("an extend by the earlier holder", lock_extend(c, k, OWNER, ALONE, LONG_MS).status,
        CORRAL_ELOST);
  wants("an unlock by the earlier holder", unlock(c, k, OWNER).status, CORRAL_ELOST);
  shown_lock s = lock_show(c, k);
  const corral_hold *hold = hold_of(&s, HEIR);
  check(hold != NULL && s.live == 1, "LOCK_SHOW doesn't tell the hold of who took it over");
  check(memcmp(hold->note, "heir", 5) == 0, "LOCK_SHOW tells the note of the earlier holder");
  wants("an extend by the heir", lock_extend(c, k, HEIR, ALONE, LONG_MS).status, CORRAL_OK);
  wants("an unlock by the heir", unlock(c, k, HEIR).status, CORRAL_OK);
  wants_more("a lock after that", &last, lock_take(c, k, OTHER, ALONE, LONG_MS));
}
