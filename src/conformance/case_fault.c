/* case_fault.c: servers that close, hang, trickle, and take no more, through a proxy.
 *
 * Whatever happens, an operation's status must be true: with OK it was done, with EUNAVAILABLE it
 * was not, with EINDOUBT it was done wholly or not at all. */
#include "conformance.h"

enum { OWNER = 1, OTHER = 2, OLD_SIZE = 20000, SLACK_MS = 150, TRIES = 3, SETTLING_MS = 20 };

typedef enum part { BEFORE_THE_FIRST, AFTER_THE_FIRST, IN_THE_MIDDLE } part;

static client *behind_proxies(void) {
  proxies_start();
  client *c = client_new();
  if (client_connect(c, now_ms() + LIMIT_MS) != CORRAL_OK)
    cant("the store doesn't connect through a proxy: %s", client_error(c));
  return c;
}

static size_t bytes_until(part where, size_t full) {
  return where == BEFORE_THE_FIRST ? 0 : where == AFTER_THE_FIRST ? 1 : full / 2;
}

static void wants_unsure(const char *what, int status) {
  check(status == CORRAL_EINDOUBT || status == CORRAL_EUNAVAILABLE,
        "%s: expected EINDOUBT or EUNAVAILABLE, came %s", what, corral_status_name(status));
}

/* ---- faults during each verb --------------------------------------------------------------- */

/* A verb on a key of its own: the key's record before, and for SETTLE its record after. */
typedef struct deed {
  corral_verb verb;
  const char *name;
  const key *key;
  const record *old, *fresh;
} deed;

static deed deed_new(client *c, corral_verb verb, const key *near) {
  static const char *const names[] = {"",        "GET",    "CLAIM",      "SETTLE",
                                      "RELEASE", "EXTEND", "INVALIDATE", "EXPIRE"};
  deed d = {
      .verb = verb, .name = names[verb], .key = near == NULL ? key_new("k") : key_near(near, "k")};
  d.old = record_new(d.key, OLD_SIZE, 1);
  d.fresh = record_new(d.key, OLD_SIZE / 2, 2);
  fill(c, d.key, OWNER, d.old, LONG_MS);
  if (verb == CORRAL_VERB_SETTLE || verb == CORRAL_VERB_RELEASE || verb == CORRAL_VERB_EXTEND)
    wants("a claim", claim(c, d.key, OWNER, LONG_MS).status, CORRAL_OK);
  return d;
}

static corral_op deed_op(const deed *d) {
  if (d->verb == CORRAL_VERB_SETTLE) return op_settle(d->key, OWNER, d->fresh, LONG_MS);
  return op_of(d->verb, d->key, d->verb == CORRAL_VERB_CLAIM ? OTHER : OWNER);
}

static bool by(const sight *s, unsigned holder) {
  return is_leased(s) && memcmp(s->header.token, token(holder), CORRAL_TOKEN) == 0;
}

static bool has_happened(const deed *d, const sight *s) {
  switch (d->verb) {
    case CORRAL_VERB_CLAIM: return is_value(s, d->old) && by(s, OTHER);
    case CORRAL_VERB_SETTLE: return is_value(s, d->fresh) && !is_leased(s);
    case CORRAL_VERB_RELEASE: return is_value(s, d->old) && !is_leased(s);
    case CORRAL_VERB_EXTEND: return is_value(s, d->old) && by(s, OWNER);
    case CORRAL_VERB_INVALIDATE: return !has_value(s) && !is_leased(s);
    case CORRAL_VERB_EXPIRE: return is_value(s, d->old) && (s->header.flags & CORRAL_FLAG_EXPIRED);
    default: return is_value(s, d->old);
  }
}

static bool has_not_happened(const deed *d, const sight *s) {
  bool was_leased = d->verb == CORRAL_VERB_SETTLE || d->verb == CORRAL_VERB_RELEASE ||
                    d->verb == CORRAL_VERB_EXTEND;
  return is_value(s, d->old) && (was_leased ? by(s, OWNER) : !is_leased(s)) &&
         !(s->header.flags & CORRAL_FLAG_EXPIRED);
}

static void judge(client *c, const deed *d, const corral_op *op, int status) {
  check(status != CORRAL_OK, "%s: the reply was not whole, and the handle is to be used again",
        d->name);
  wants_unsure(d->name, op->status);
  proxies_set(FAULT_NONE, 0);
  sight s = get(c, d->key);
  check(has_happened(d, &s) || has_not_happened(d, &s),
        "%s of unknown fate: it was neither done wholly nor not at all", d->name);
  check(op->status != CORRAL_EUNAVAILABLE || has_not_happened(d, &s) ||
            d->verb == CORRAL_VERB_EXTEND,
        "%s answered EUNAVAILABLE, which is 'not sent', and it has happened", d->name);
}

/* Performs a verb under a fault; returns the status of the handle. *took: the time that it took,
 * ms. */
static int strike(client *c, const deed *d, corral_op *op, fault what, size_t after,
                  int64_t limit_ms, int64_t *took) {
  *op = deed_op(d);
  proxies_set(what, after);
  size_t before = proxies_connections();
  int64_t from = now_ms();
  int status = client_perform(c, op, 1, from + limit_ms);
  *took = now_ms() - from;
  op_drop(op);
  pause_ms(SETTLING_MS);
  check(proxies_connections() == before,
        "%s: the plugin connects again by itself; it is to report, and the host decides", d->name);
  return status;
}

static void strike_verb(client *c, corral_verb verb, fault what, part where, int64_t limit_ms) {
  int64_t took = 0, least = INT64_MAX;
  deed rehearsal = deed_new(c, verb, NULL);
  corral_op op = deed_op(&rehearsal);
  proxies_set(FAULT_NONE, 0);
  (void)perform_one(c, &op);
  size_t full = proxies_replied();
  /* this host may itself be slow, but not at every try */
  for (int i = 0; i < TRIES && least > limit_ms + SLACK_MS; i++) {
    deed d = deed_new(c, verb, rehearsal.key);
    int status = strike(c, &d, &op, what, bytes_until(where, full), limit_ms, &took);
    judge(c, &d, &op, status);
    if (took < least) least = took;
  }
  check(least <= limit_ms + SLACK_MS,
        "%s: the deadline was after %lld ms, the answer came after %lld ms", rehearsal.name,
        (long long)limit_ms, (long long)least);
}

static void strike_verbs(fault what, part where, int64_t limit_ms) {
  client *c = behind_proxies();
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_EXPIRE; verb++)
    strike_verb(c, (corral_verb)verb, what, where, limit_ms);
}

void case_a_reply_cut_before_its_first_byte(void) {
  strike_verbs(FAULT_CLOSE, BEFORE_THE_FIRST, 2000);
}
void case_a_reply_cut_after_its_first_byte(void) {
  strike_verbs(FAULT_CLOSE, AFTER_THE_FIRST, 2000);
}
void case_a_reply_cut_in_the_middle(void) { strike_verbs(FAULT_CLOSE, IN_THE_MIDDLE, 2000); }
void case_a_server_that_never_replies(void) { strike_verbs(FAULT_HANG, BEFORE_THE_FIRST, 60); }
void case_a_server_that_hangs_in_the_middle(void) { strike_verbs(FAULT_HANG, IN_THE_MIDDLE, 60); }

void case_a_server_that_trickles(void) {
  static const corral_verb verbs[] = {CORRAL_VERB_GET, CORRAL_VERB_CLAIM, CORRAL_VERB_SETTLE};
  client *c = behind_proxies();
  for (size_t i = 0; i < 3; i++)
    strike_verb(c, verbs[i], FAULT_TRICKLE, BEFORE_THE_FIRST, i == 0 ? 200 : 60);
}

/* ---- faults during batches ----------------------------------------------------------------- */

enum { GETS = 8, SETTLES = 6 };

void case_a_batch_of_gets_cut_in_the_middle(void) {
  client *c = behind_proxies();
  const key *keys[GETS];
  const record *records[GETS];
  corral_op ops[GETS];
  for (size_t i = 0; i < GETS; i++) {
    keys[i] = i == 0 ? key_new("k") : key_near(keys[0], "k");
    records[i] = record_new(keys[i], OLD_SIZE, (unsigned)i);
    fill(c, keys[i], OWNER, records[i], LONG_MS);
  }
  size_t full = 0;
  for (int round = 0; round < 2; round++) {
    for (size_t i = 0; i < GETS; i++) ops[i] = op_of(CORRAL_VERB_GET, keys[i], 0);
    proxies_set(round == 0 ? FAULT_NONE : FAULT_CLOSE, full / 2);
    int status = client_perform(c, ops, GETS, now_ms() + LIMIT_MS);
    full = proxies_replied();
    check((status == CORRAL_OK) == (round == 0), "a batch of GETs %s: %s",
          round == 0 ? "through a proxy" : "whose replies were cut", corral_status_name(status));
    for (size_t i = 0; i < GETS; i++) {
      int came = ops[i].status;
      if (came == CORRAL_OK)
        wants_value("a GET of a batch that was cut", sight_of(&ops[i], client_error(c)),
                    records[i]);
      else
        wants_unsure("a GET of a batch that was cut", came);
    }
    check(round == 0 || ops[GETS - 1].status != CORRAL_OK,
          "the last GET of a batch that was cut before it is OK");
  }
  proxies_set(FAULT_NONE, 0);
  for (size_t i = 0; i < GETS; i++) wants_value("GET on a new handle", get(c, keys[i]), records[i]);
}

void case_a_batch_of_settles_cut_in_the_middle(void) {
  client *c = behind_proxies();
  const key *first = key_new("k");
  size_t full = 0;
  for (int round = 0; round < 2; round++) {
    deed deeds[SETTLES];
    corral_op ops[SETTLES];
    for (size_t i = 0; i < SETTLES; i++) {
      deeds[i] = deed_new(c, CORRAL_VERB_SETTLE, first);
      ops[i] = deed_op(&deeds[i]);
    }
    proxies_set(round == 0 ? FAULT_NONE : FAULT_CLOSE, full / 2);
    int status = client_perform(c, ops, SETTLES, now_ms() + LIMIT_MS);
    full = proxies_replied();
    check((status == CORRAL_OK) == (round == 0), "a batch of settles %s: %s",
          round == 0 ? "through a proxy" : "whose replies were cut", corral_status_name(status));
    proxies_set(FAULT_NONE, 0);
    pause_ms(SETTLING_MS);
    for (size_t i = 0; i < SETTLES; i++) {
      sight s = get(c, deeds[i].key);
      bool done = has_happened(&deeds[i], &s);
      if (ops[i].status != CORRAL_OK)
        wants_unsure("a settle of a batch that was cut", ops[i].status);
      check(done || has_not_happened(&deeds[i], &s),
            "a settle of a batch that was cut was neither done wholly nor not at all");
      check(ops[i].status != CORRAL_OK || done,
            "a settle of a batch that was cut is OK, and has not happened");
      check(ops[i].status != CORRAL_EUNAVAILABLE || !done,
            "a settle of a batch that was cut is EUNAVAILABLE, and has happened");
    }
  }
}

void case_a_server_that_takes_no_more(void) {
  enum { MIB = 1 << 20, TOTAL = 24 * MIB, MOST = 256, LIMIT = 200 };
  client *c = behind_proxies();
  const key *first = key_new("k"), **keys = room(MOST * sizeof *keys);
  corral_op *ops = room(MOST * sizeof *ops);
  uint64_t piece = declared()->max_record - 512 < MIB ? declared()->max_record - 512 : MIB;
  size_t count = TOTAL / piece < MOST ? (size_t)(TOTAL / piece) : MOST;
  if (count * piece < TOTAL / 2)
    cant("a store that declares max_record %llu", (unsigned long long)declared()->max_record);
  const record *r = record_new(first, (size_t)piece, 1);
  for (size_t i = 0; i < count; i++) {
    keys[i] = key_near(first, "k");
    wants("a claim", claim(c, keys[i], OWNER, LONG_MS).status, CORRAL_OK);
    ops[i] = op_settle(keys[i], OWNER, r, LONG_MS);
  }
  proxies_set(FAULT_DEAF, 0);
  int64_t from = now_ms();
  int status = client_perform(c, ops, count, from + LIMIT);
  int64_t took = now_ms() - from;
  check(status != CORRAL_OK, "a batch that the server didn't take: the handle is to be used again");
  check(took <= LIMIT + 2 * SLACK_MS, "the deadline was after %d ms, the answer came after %lld ms",
        LIMIT, (long long)took);
  proxies_set(FAULT_NONE, 0);
  pause_ms(SETTLING_MS);
  for (size_t i = 0; i < count; i++) {
    wants_unsure("a settle that the server didn't take", ops[i].status);
    sight s = get(c, keys[i]);
    wants_no_value("after a settle that the server didn't take", s);
    wants_lease("after a settle that the server didn't take", s, OWNER);
  }
  check(ops[count - 1].status == CORRAL_EUNAVAILABLE,
        "the last of %zu settles can't have been sent: expected EUNAVAILABLE, came %s", count,
        corral_status_name(ops[count - 1].status));
}

/* ---- connections --------------------------------------------------------------------------- */

static void wants_healthy(client *c, const key *near) {
  const key *k = key_near(near, "after");
  const record *r = record_new(k, 300, 1);
  proxies_set(FAULT_NONE, 0);
  fill(c, k, OWNER, r, LONG_MS);
  wants_value("GET on a new handle", get(c, k), r);
}

void case_a_connection_closed_while_idle(void) {
  static const corral_verb verbs[] = {CORRAL_VERB_GET, CORRAL_VERB_CLAIM, CORRAL_VERB_SETTLE};
  client *c = behind_proxies();
  const key *near = NULL;
  for (size_t i = 0; i < 3; i++) {
    /* All keys are on one server: the cut connections of others are not checked. */
    deed d = deed_new(c, verbs[i], near);
    near = d.key;
    corral_op op = deed_op(&d);
    proxies_cut();
    pause_ms(SETTLING_MS);
    int status = client_perform(c, &op, 1, now_ms() + LIMIT_MS);
    op_drop(&op);
    pause_ms(SETTLING_MS);
    judge(c, &d, &op, status);
  }
  wants_healthy(c, near);
}

void case_a_server_that_is_silent_from_the_start(void) {
  enum { LIMIT = 150 };
  proxies_start();
  proxies_set(FAULT_HANG, 0);
  client *c = client_new();
  const key *k = key_new("k");
  corral_op op = op_of(CORRAL_VERB_GET, k, 0);
  int64_t took = 0;
  for (int i = 0; i < TRIES; i++) {
    int64_t from = now_ms();
    op.status = CORRAL_EINDOUBT;
    int status = client_perform(c, &op, 1, from + LIMIT);
    took = now_ms() - from;
    op_drop(&op);
    check(status != CORRAL_OK && op.status != CORRAL_OK && op.status != CORRAL_EMISS,
          "a server that never said anything is said to have answered %s",
          corral_status_name(op.status));
    check(client_error(c)[0] != '\0', "a server that is silent: there is no text in *error");
    if (took <= LIMIT + SLACK_MS) break;
  }
  check(took <= LIMIT + SLACK_MS, "the deadline was after %d ms, the answer came after %lld ms",
        LIMIT, (long long)took);
  wants_healthy(c, k);
}

void case_a_port_where_nobody_listens(void) {
  nobody_listens();
  client *c = client_new();
  corral_op op = op_of(CORRAL_VERB_GET, key_new("k"), 0);
  int64_t from = now_ms();
  int status = client_perform(c, &op, 1, from + LIMIT_MS), status_of_op = op.status;
  int64_t took = now_ms() - from;
  op_drop(&op);
  wants("connecting where nobody listens, or the first operation", status, CORRAL_EUNAVAILABLE);
  wants("the first operation then", status_of_op, CORRAL_EUNAVAILABLE);
  check(client_error(c)[0] != '\0', "where nobody listens there is no text in *error");
  check(took < 1000, "it took %lld ms to find that nobody listens", (long long)took);
}
