/* verbs.c: a function for each verb, and checks of its result. */
#include "conformance.h"

#include "record/record.h"

/* ---- operations ---------------------------------------------------------------------------- */

static void set_long_times(corral_op *op) {
  switch (op->verb) {
    case CORRAL_VERB_CLAIM: op->claim.lease_ms = LONG_MS; break;
    case CORRAL_VERB_EXTEND: op->extend.lease_ms = LONG_MS; break;
    case CORRAL_VERB_RENEW: op->renew.ttl_ms = LONG_MS; break;
    case CORRAL_VERB_LOCK: op->lock.hold_ms = LONG_MS; break;
    case CORRAL_VERB_LOCK_EXTEND: op->lock_extend.hold_ms = LONG_MS; break;
    default: break;
  }
}

corral_op op_of(corral_verb verb, const key *k, unsigned holder) {
  corral_op op = {.verb = (uint32_t)verb,
                  .key = k->bytes,
                  .key_len = k->len,
                  .token = token(holder),
                  .status = CORRAL_EINDOUBT};
  set_long_times(&op);
  return op;
}

corral_op op_settle(const key *k, unsigned holder, const record *r, int64_t ttl_ms) {
  corral_op op = op_of(CORRAL_VERB_SETTLE, k, holder);
  op.settle = (corral_settle_args){.record = r->bytes, .record_len = r->len, .ttl_ms = ttl_ms};
  return op;
}

const char *verb_name(uint32_t verb) {
  static const char *const names[] = {
      "",       "GET",   "CLAIM", "SETTLE",      "RELEASE", "EXTEND",   "INVALIDATE",
      "EXPIRE", "RENEW", "LOCK",  "LOCK_EXTEND", "UNLOCK",  "LOCK_SHOW"};
  return verb < sizeof names / sizeof *names ? names[verb] : "?";
}

static void check_found(const corral_op *op, sight *s) {
  const char *name = verb_name(op->verb);
  int wants_found =
      op->status == CORRAL_OK || (op->verb == CORRAL_VERB_CLAIM && op->status == CORRAL_EBUSY);
  if (op->verb != CORRAL_VERB_GET && op->verb != CORRAL_VERB_CLAIM) wants_found = 0;
  check(wants_found == (op->found.record != NULL), "%s answered %s and %s a record in `found`",
        name, corral_status_name(op->status), op->found.record != NULL ? "gave" : "gave not");
  if (op->found.record == NULL) return;
  check(op->found.drop != NULL, "%s gave `found` without `drop`", name);
  check(crl_record_read_found(op, &s->header) == CORRAL_OK, "%s gave %zu bytes that are no record",
        name, op->found.len);
  s->len = op->found.len;
  if (s->header.body > 0 && !op->state.same)
    s->hash = host()->hash64(op->found.record + CORRAL_HEAD, s->header.body);
}

static void check_lives(const char *name, const sight *s) {
  check(s->life_ms >= -1, "%s: a life of %lld ms is left", name, (long long)s->life_ms);
  check(s->until_ms >= -1, "%s: %lld ms of the lease are left", name, (long long)s->until_ms);
  check(s->header.state != CORRAL_FREE || s->until_ms == 0,
        "%s: the header is FREE and has %lld ms left", name, (long long)s->until_ms);
}

sight sight_of(corral_op *op, const char *error) {
  sight s = {.status = op->status,
             .same = op->state.same,
             .life_ms = op->state.life_ms,
             .until_ms = op->state.left_ms};
  const char *name = verb_name(op->verb);
  if (op->status != CORRAL_OK && op->status != CORRAL_EMISS && op->status != CORRAL_EBUSY &&
      op->status != CORRAL_ELOST)
    failed("%s: %s: %s", name, corral_status_name(op->status), error);
  check(op->status != CORRAL_EMISS || op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_RENEW,
        "%s answered EMISS", name);
  check(op->status != CORRAL_EBUSY || op->verb == CORRAL_VERB_CLAIM, "%s answered EBUSY", name);
  check_found(op, &s);
  if (op->verb == CORRAL_VERB_GET || op->verb == CORRAL_VERB_CLAIM) check_lives(name, &s);
  op_drop(op);
  return s;
}

sight perform_one(client *c, corral_op *op) {
  int status = client_perform(c, op, 1, now_ms() + LIMIT_MS);
  if (op->status == CORRAL_ETOOBIG && op->verb == CORRAL_VERB_SETTLE &&
      op->settle.record_len > RECORD_LEAST)
    cant("the store answers ETOOBIG: %s", client_error(c));
  if (op->status == CORRAL_EUNSUPPORTED && op->verb == CORRAL_VERB_RENEW)
    cant("the store answers EUNSUPPORTED to RENEW");
  if (status != CORRAL_OK)
    failed("%s: the handle broke: %s: %s", verb_name(op->verb), corral_status_name(status),
           client_error(c));
  return sight_of(op, client_error(c));
}

/* ---- verbs --------------------------------------------------------------------------------- */

static sight plain(client *c, corral_verb verb, const key *k, unsigned holder) {
  corral_op op = op_of(verb, k, holder);
  return perform_one(c, &op);
}

sight get(client *c, const key *k) { return plain(c, CORRAL_VERB_GET, k, 0); }

sight claim_as(client *c, const key *k, unsigned holder, int64_t lease_ms, const char *note,
               uint32_t cost_ms) {
  corral_header wish = {.state = CORRAL_LEASED, .cost_ms = cost_ms};
  uint8_t bytes[CORRAL_FRONT];
  snprintf(wish.note, sizeof wish.note, "%s", note);
  host()->digest(k->bytes, k->len, wish.digest);
  corral_op op = op_of(CORRAL_VERB_CLAIM, k, holder);
  op.claim = (corral_claim_args){
      .lease_ms = lease_ms, .front = bytes, .front_len = crl_record_write(&wish, bytes)};
  return perform_one(c, &op);
}

sight claim(client *c, const key *k, unsigned holder, int64_t lease_ms) {
  return claim_as(c, k, holder, lease_ms, "corral-conformance", 0);
}

int settle(client *c, const key *k, unsigned holder, const record *r, int64_t ttl_ms) {
  corral_op op = op_settle(k, holder, r, ttl_ms);
  return perform_one(c, &op).status;
}

int release(client *c, const key *k, unsigned holder) {
  return plain(c, CORRAL_VERB_RELEASE, k, holder).status;
}

int leave_verdict(client *c, const key *k, unsigned holder, int32_t code, const char *text,
                  int64_t rule_ms, int64_t keep_ms) {
  corral_header header = {.state = CORRAL_VERDICT, .code = code, .failures = 3};
  uint8_t bytes[CORRAL_FRONT];
  snprintf(header.note, sizeof header.note, "%s", text);
  corral_op op = op_of(CORRAL_VERB_RELEASE, k, holder);
  op.release = (corral_release_args){.verdict = bytes,
                                     .verdict_len = crl_record_write(&header, bytes),
                                     .verdict_ms = rule_ms,
                                     .keep_ms = keep_ms};
  return perform_one(c, &op).status;
}

int extend(client *c, const key *k, unsigned holder, int64_t lease_ms) {
  corral_op op = op_of(CORRAL_VERB_EXTEND, k, holder);
  op.extend.lease_ms = lease_ms;
  return perform_one(c, &op).status;
}

int invalidate(client *c, const key *k) { return plain(c, CORRAL_VERB_INVALIDATE, k, 0).status; }

int expire(client *c, const key *k) { return plain(c, CORRAL_VERB_EXPIRE, k, 0).status; }

int renew(client *c, const key *k, unsigned holder, int64_t ttl_ms) {
  corral_op op = op_of(CORRAL_VERB_RENEW, k, holder);
  op.renew.ttl_ms = ttl_ms;
  return perform_one(c, &op).status;
}

/* ---- expectations -------------------------------------------------------------------------- */

bool has_value(const sight *s) { return s->header.body > 0 && s->life_ms != 0; }
bool is_leased(const sight *s) {
  return s->len > 0 && s->header.state == CORRAL_LEASED && s->until_ms != 0;
}
bool has_verdict(const sight *s) {
  return s->len > 0 && s->header.state == CORRAL_VERDICT && s->until_ms != 0;
}
bool is_value(const sight *s, const record *r) {
  return has_value(s) && CORRAL_HEAD + (size_t)s->header.body == r->len && s->hash == r->hash;
}
bool lease_is_over(const sight *s) { return !is_leased(s) && !has_verdict(s); }
bool value_is_over(const sight *s) { return !has_value(s); }

void wants(const char *when, int came, int expected) {
  check(came == expected, "%s: expected %s, came %s", when, corral_status_name(expected),
        corral_status_name(came));
}

void wants_value(const char *when, sight s, const record *r) {
  check(has_value(&s), "%s: expected a value of %zu bytes, came %s%s", when, r->len,
        corral_status_name(s.status),
        s.len == 0           ? ""
        : s.header.body == 0 ? " with a front alone"
                             : " with no life left");
  size_t body = r->len - CORRAL_HEAD;
  check(s.header.body == body, "%s: expected a body of %zu bytes, came %u bytes", when, body,
        (unsigned)s.header.body);
  check(s.hash == r->hash, "%s: the record's %zu bytes are not those that were settled", when,
        s.len);
}

void wants_no_value(const char *when, sight s) {
  check(!has_value(&s), "%s: expected no value, came %zu bytes with a life of %lld ms", when, s.len,
        (long long)s.life_ms);
}

void wants_nothing(const char *when, sight s) {
  wants_no_value(when, s);
  check(!is_leased(&s), "%s: expected nothing, came a lease", when);
  check(!has_verdict(&s), "%s: expected nothing, came a verdict", when);
}

void wants_lease(const char *when, sight s, unsigned holder) {
  check(is_leased(&s), "%s: expected a lease, came %s%s", when, corral_status_name(s.status),
        s.len == 0 ? " without a record" : " and a header without a lease");
  check(memcmp(s.header.token, token(holder), CORRAL_TOKEN) == 0,
        "%s: the header has another token than the holder's", when);
}

void wants_within(const char *what, int64_t came, int64_t most) {
  check(came == -1 || (came > 0 && came <= most),
        "%s: expected 1 to %lld ms, or -1 for unknown, came %lld", what, (long long)most,
        (long long)came);
}

void fill(client *c, const key *k, unsigned holder, const record *r, int64_t ttl_ms) {
  wants("a claim before a fill", claim(c, k, holder, LONG_MS).status, CORRAL_OK);
  wants("a fill", settle(c, k, holder, r, ttl_ms), CORRAL_OK);
}

sight claim_ended(client *c, const key *k, unsigned holder) {
  sight s;
  for (int64_t until = now_ms() + CLOCK_MS;; pause_ms(1)) {
    s = claim(c, k, holder, LONG_MS);
    if (s.status != CORRAL_EBUSY || now_ms() >= until) return s;
  }
}

void wants_end(const char *what, client *c, const key *k, bool (*over)(const sight *s),
               int64_t from, int64_t life_ms) {
  for (;;) {
    sight s = get(c, k);
    int64_t after = now_ms() - from;
    if (over(&s)) {
      check(after >= life_ms - EARLY_MS, "%s of %lld ms was over after %lld ms", what,
            (long long)life_ms, (long long)after);
      return;
    }
    check(after <= life_ms + LATE_MS, "%s of %lld ms was not over after %lld ms", what,
          (long long)life_ms, (long long)after);
    pause_ms(4);
  }
}
