/* test_record.c: each verb against each state of a record: decide is a table. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "record.h"

enum { NOW = 1000, LEASE = 200, TTL = 500, BODY = 16, GONE = CORRAL_FLAG_INVALIDATED };

/* A record's states, as rows. */
typedef enum state {
  ABSENT, FREE_VALUE, LEASED_COLD, LEASED_VALUE, LEASE_OVER, VERDICT_COLD, VERDICT_VALUE, VERDICT_OVER, LIFE_OVER, OWN_TTL,
  MARKS, MARK = MARKS, MARK_LEASED, MARK_LEASE_OVER, MARK_VERDICT, MARK_OVER, MARK_OVER_LEASED, STATES
} state;

static const char *const state_names[] = {"absent", "free value", "leased cold", "leased value", "lease over", "verdict cold",
                                          "verdict value", "verdict over", "life over", "own ttl", "mark", "mark leased",
                                          "mark, lease over", "mark, verdict", "mark over", "mark over, leased"};

static const uint8_t mine[CORRAL_TOKEN] = "mine mine mine ", other[CORRAL_TOKEN] = "other other oth";

typedef struct sample {
  uint8_t bytes[CORRAL_HEADER + BODY];
  size_t size;
} sample;

static sample record_in(state in) {
  static const struct {
    uint8_t state;
    int64_t until, life_end;
    size_t body;
    uint8_t flags;
  } rows[STATES] = {
      [FREE_VALUE] = {CORRAL_FREE, 0, 3000, BODY},        [LEASED_COLD] = {CORRAL_LEASED, 1100, 0, 0},
      [LEASED_VALUE] = {CORRAL_LEASED, 1100, 3000, BODY}, [LEASE_OVER] = {CORRAL_LEASED, 1000, 3000, BODY},
      [VERDICT_COLD] = {CORRAL_VERDICT, 1100, 0, 0},      [VERDICT_VALUE] = {CORRAL_VERDICT, 1100, 3000, BODY},
      [VERDICT_OVER] = {CORRAL_VERDICT, 1000, 3000, BODY}, [LIFE_OVER] = {CORRAL_LEASED, 1100, 1000, BODY},
      [OWN_TTL] = {CORRAL_FREE, 0, 0, BODY},
      [MARK] = {CORRAL_FREE, 0, 3000, 0, GONE},
      [MARK_LEASED] = {CORRAL_LEASED, 1100, 3000, 0, GONE},
      [MARK_LEASE_OVER] = {CORRAL_LEASED, 1000, 3000, 0, GONE},
      [MARK_VERDICT] = {CORRAL_VERDICT, 1100, 3000, 0, GONE},
      [MARK_OVER] = {CORRAL_FREE, 0, 1000, 0, GONE},
      [MARK_OVER_LEASED] = {CORRAL_LEASED, 1100, 1000, 0, GONE},
  };
  sample s;
  memset(&s, 0, sizeof s);
  if (in == ABSENT) return s;
  corral_header header = {.state = rows[in].state, .flags = rows[in].flags, .until = rows[in].until, .life_end = rows[in].life_end, .failures = 2};
  if (header.state == CORRAL_LEASED) memcpy(header.token, mine, sizeof mine);
  crl_record_write(&header, s.bytes);
  s.size = CORRAL_HEADER + rows[in].body;
  memset(s.bytes + CORRAL_HEADER, 'b', rows[in].body);
  return s;
}

typedef struct outcome {
  corral_op op;
  corral_change change;
  corral_header header;
} outcome;

static outcome decide_op(state in, const corral_op *op) {
  sample s = record_in(in), copy = s;
  outcome o, again;
  memset(&o, 0, sizeof o);
  o.op = *op;
  again = o;
  crl_record_decide(&o.op, s.size > 0 ? s.bytes : NULL, s.size, NOW, &o.change);
  /* pure: the record is untouched, and the same again gives the same */
  assert_memory_equal(&s, &copy, sizeof s);
  crl_record_decide(&again.op, s.size > 0 ? s.bytes : NULL, s.size, NOW, &again.change);
  assert_int_equal(o.op.status, again.op.status);
  assert_memory_equal(o.change.header, again.change.header, CORRAL_HEADER);
  if (o.change.action == CORRAL_ACTION_EDIT || o.change.action == CORRAL_ACTION_REPLACE) {
    assert_int_equal(crl_record_read(o.change.header, CORRAL_HEADER, &o.header), CORRAL_OK);
    assert_true(in == OWN_TTL || o.change.expires > NOW);
  }
  return o;
}

static outcome decide(state in, corral_verb verb, const uint8_t *token, const uint8_t *record, size_t record_len) {
  corral_op op = {.verb = verb, .key = "k", .key_len = 1, .token = token, .lease_ms = LEASE, .ttl_ms = TTL, .record = record, .record_len = record_len};
  if (verb == CORRAL_VERB_INVALIDATE) op.ttl_ms = 0; /* and isn't remembered */
  return decide_op(in, &op);
}

static outcome invalidate(state in, int64_t ttl_ms) {
  corral_op op = {.verb = CORRAL_VERB_INVALIDATE, .key = "k", .key_len = 1, .ttl_ms = ttl_ms};
  return decide_op(in, &op);
}

/* status and action of a verb for each state */
typedef struct row {
  int status, action;
} row;

enum { K = CORRAL_ACTION_KEEP, E = CORRAL_ACTION_EDIT, P = CORRAL_ACTION_REPLACE, R = CORRAL_ACTION_REMOVE };
enum { OK = CORRAL_OK, LOST = CORRAL_ELOST, BUSY = CORRAL_EBUSY, MISS = CORRAL_EMISS };

static void check_rows(corral_verb verb, const uint8_t *token, const uint8_t *record, size_t len, const row rows[STATES]) {
  for (state in = ABSENT; in < STATES; in++) {
    outcome o = decide(in, verb, token, record, len);
    if (o.op.status != rows[in].status || o.change.action != rows[in].action)
      fail_msg("verb %d on '%s': status %d, action %d; expected %d, %d", (int)verb, state_names[in], o.op.status, o.change.action, rows[in].status, rows[in].action);
  }
}

static void fill(uint8_t record[CORRAL_HEADER + 8]) {
  corral_header header;
  memset(&header, 0, sizeof header);
  crl_record_write(&header, record);
  memset(record + CORRAL_HEADER, 'n', 8);
}

static void verdict(uint8_t record[CORRAL_HEADER]) {
  corral_header header = {.code = -7, .failures = 3, .note = "no route"};
  crl_record_write(&header, record);
}

/* absent, free value, leased cold, leased value, lease over, verdict cold, verdict value, verdict over, life over, own ttl;
 * mark, mark leased, mark with lease over, mark with verdict, mark over, mark over leased */
static void every_verb_in_every_state_with_the_token_of_the_lease(void **unused) {
  (void)unused;
  uint8_t full[CORRAL_HEADER + 8], judged[CORRAL_HEADER];
  fill(full);
  verdict(judged);
  check_rows(CORRAL_VERB_GET, mine, NULL, 0, (const row[STATES]){{MISS, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K},
                 {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}, {OK, K}});
  check_rows(CORRAL_VERB_CLAIM, mine, NULL, 0, (const row[STATES]){{OK, P}, {OK, E}, {OK, K}, {OK, K}, {OK, E}, {BUSY, K}, {BUSY, K}, {OK, E}, {OK, K}, {OK, E},
                 {OK, P}, {OK, K}, {OK, P}, {BUSY, K}, {OK, P}, {OK, K}});
  check_rows(CORRAL_VERB_SETTLE, mine, full, sizeof full, (const row[STATES]){{LOST, K}, {LOST, K}, {OK, P}, {OK, P}, {OK, P}, {LOST, K}, {LOST, K}, {LOST, K}, {OK, P}, {LOST, K},
                 {LOST, K}, {OK, P}, {OK, P}, {LOST, K}, {LOST, K}, {OK, P}});
  check_rows(CORRAL_VERB_RELEASE, mine, NULL, 0, (const row[STATES]){{LOST, K}, {LOST, K}, {OK, R}, {OK, E}, {OK, E}, {LOST, K}, {LOST, K}, {LOST, K}, {OK, R}, {LOST, K},
                 {LOST, K}, {OK, P}, {OK, P}, {LOST, K}, {LOST, K}, {OK, R}});
  check_rows(CORRAL_VERB_RELEASE, mine, judged, sizeof judged, (const row[STATES]){{LOST, K}, {LOST, K}, {OK, P}, {OK, E}, {OK, E}, {LOST, K}, {LOST, K}, {LOST, K}, {OK, P}, {LOST, K},
                 {LOST, K}, {OK, P}, {OK, P}, {LOST, K}, {LOST, K}, {OK, P}});
  check_rows(CORRAL_VERB_EXTEND, mine, NULL, 0, (const row[STATES]){{LOST, K}, {LOST, K}, {OK, P}, {OK, E}, {OK, E}, {LOST, K}, {LOST, K}, {LOST, K}, {OK, P}, {LOST, K},
                 {LOST, K}, {OK, P}, {OK, P}, {LOST, K}, {LOST, K}, {OK, P}});
  check_rows(CORRAL_VERB_INVALIDATE, mine, NULL, 0, (const row[STATES]){{OK, K}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R},
                 {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}, {OK, R}});
  check_rows(CORRAL_VERB_EXPIRE, mine, NULL, 0, (const row[STATES]){{OK, K}, {OK, E}, {OK, R}, {OK, E}, {OK, E}, {OK, R}, {OK, E}, {OK, E}, {OK, R}, {OK, E},
                 {OK, P}, {OK, P}, {OK, P}, {OK, P}, {OK, R}, {OK, R}});
}

static void a_stranger_can_take_over_only_what_is_over(void **unused) {
  (void)unused;
  uint8_t full[CORRAL_HEADER + 8];
  fill(full);
  static const row lost[STATES] = {{LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K},
                                   {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}, {LOST, K}};
  check_rows(CORRAL_VERB_SETTLE, other, full, sizeof full, lost);
  check_rows(CORRAL_VERB_RELEASE, other, NULL, 0, lost);
  check_rows(CORRAL_VERB_EXTEND, other, NULL, 0, lost);
  check_rows(CORRAL_VERB_CLAIM, other, NULL, 0, (const row[STATES]){{OK, P}, {OK, E}, {BUSY, K}, {BUSY, K}, {OK, E}, {BUSY, K}, {BUSY, K}, {OK, E}, {BUSY, K}, {OK, E},
                 {OK, P}, {BUSY, K}, {OK, P}, {BUSY, K}, {OK, P}, {BUSY, K}});
}

static void a_claim_takes_over_holder_and_cost(void **unused) {
  (void)unused;
  uint8_t wish[CORRAL_HEADER];
  corral_header header = {.cost_ms = 77, .note = "host/9"};
  crl_record_write(&header, wish);
  outcome o = decide(FREE_VALUE, CORRAL_VERB_CLAIM, other, wish, sizeof wish);
  assert_int_equal(o.header.state, CORRAL_LEASED);
  assert_int_equal(o.header.since, NOW);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.cost_ms, 77);
  assert_int_equal(o.header.failures, 2);
  assert_string_equal(o.header.note, "host/9");
  assert_memory_equal(o.header.token, other, CORRAL_TOKEN);
  assert_int_equal(o.change.expires, 3000); /* the payload outlives the lease */
  assert_int_equal(o.op.life_ms, 2000);
  assert_int_equal(o.op.until_ms, LEASE);
  assert_int_equal(decide(ABSENT, CORRAL_VERB_CLAIM, mine, wish, sizeof wish).change.expires, NOW + LEASE);
}

static void what_is_left_is_told(void **unused) {
  (void)unused;
  static const int64_t life[STATES] = {0, 2000, 0, 2000, 2000, 0, 2000, 2000, 0, -1, 0, 0, 0, 0, 0, 0};
  static const int64_t until[STATES] = {0, 0, 100, 100, 0, 100, 100, 0, 100, 0, 0, 100, 0, 100, 0, 100};
  for (state in = ABSENT; in < STATES; in++) {
    outcome o = decide(in, CORRAL_VERB_GET, NULL, NULL, 0);
    if (o.op.life_ms != life[in] || o.op.until_ms != until[in]) fail_msg("%s: life %lld until %lld", state_names[in], (long long)o.op.life_ms, (long long)o.op.until_ms);
  }
}

static void a_settled_record_lives_its_own_life_and_bears_no_lease(void **unused) {
  (void)unused;
  uint8_t full[CORRAL_HEADER + 8];
  fill(full);
  outcome o = decide(LEASED_VALUE, CORRAL_VERB_SETTLE, mine, full, sizeof full);
  assert_int_equal(o.header.state, CORRAL_FREE);
  assert_int_equal(o.header.life_end, NOW + TTL);
  assert_int_equal(o.header.failures, 0);
  assert_int_equal(o.change.expires, NOW + TTL);
  assert_int_equal(o.change.body_len, 8);
  assert_ptr_equal(o.change.body, full + CORRAL_HEADER);
}

static void a_verdict_stands_where_the_lease_stood(void **unused) {
  (void)unused;
  uint8_t judged[CORRAL_HEADER];
  verdict(judged);
  outcome o = decide(LEASED_VALUE, CORRAL_VERB_RELEASE, mine, judged, sizeof judged);
  assert_int_equal(o.header.state, CORRAL_VERDICT);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.code, -7);
  assert_int_equal(o.header.failures, 3);
  assert_string_equal(o.header.note, "no route");
  assert_int_equal(o.change.expires, 3000);
  assert_int_equal(decide(LEASED_COLD, CORRAL_VERB_RELEASE, mine, judged, sizeof judged).change.expires, NOW + TTL);
}

static void an_expired_value_is_marked_until_it_is_filled_again(void **unused) {
  (void)unused;
  outcome o = decide(LEASED_VALUE, CORRAL_VERB_EXPIRE, NULL, NULL, 0);
  assert_int_equal(o.header.flags, CORRAL_FLAG_EXPIRED);
  assert_int_equal(o.header.state, CORRAL_FREE);
  assert_int_equal(o.header.life_end, 3000);
  uint8_t zero[CORRAL_TOKEN] = {0};
  assert_memory_equal(o.header.token, zero, CORRAL_TOKEN);
}

static void a_payload_that_the_claimer_has_is_not_sent_again(void **unused) {
  (void)unused;
  sample s = record_in(FREE_VALUE);
  corral_change change;
  corral_op op = {.verb = CORRAL_VERB_CLAIM, .token = mine, .lease_ms = LEASE, .seen = crl_record_stamp(s.bytes, s.size)};
  crl_record_decide(&op, s.bytes, s.size, NOW, &change);
  assert_true(op.same);
  op.seen ^= 1;
  crl_record_decide(&op, s.bytes, s.size, NOW, &change);
  assert_false(op.same);
}

/* ---- what remembers an invalidation ------------------------------------------------------------------------- */

static void check_mark(state in, const outcome *o, int state_now, int64_t life_end, int64_t expires) {
  if (o->change.action != CORRAL_ACTION_REPLACE || o->change.body_len != 0 || o->header.flags != GONE || o->header.state != state_now ||
      o->header.life_end != life_end || o->change.expires != expires)
    fail_msg("'%s': action %d, flags %d, state %d, life_end %lld, expires %lld", state_names[in], o->change.action, o->header.flags, o->header.state,
             (long long)o->header.life_end, (long long)o->change.expires);
}

static void an_invalidation_is_remembered_whatever_was_there(void **unused) {
  (void)unused;
  static const uint8_t zero[CORRAL_TOKEN] = {0};
  for (state in = ABSENT; in < STATES; in++) {
    outcome o = invalidate(in, 5000);
    assert_int_equal(o.op.status, CORRAL_OK);
    check_mark(in, &o, CORRAL_FREE, NOW + 5000, NOW + 5000);
    assert_memory_equal(o.header.token, zero, CORRAL_TOKEN);
    assert_true(o.header.until == 0 && o.header.since == 0 && o.header.failures == 0 && o.header.code == 0);
  }
}

static void a_shorter_memory_does_not_cut_a_longer_one_short(void **unused) {
  (void)unused;
  for (state in = MARK; in <= MARK_VERDICT; in++) {
    outcome o = invalidate(in, TTL);
    check_mark(in, &o, CORRAL_FREE, 3000, 3000);
  }
  outcome o = invalidate(MARK_OVER_LEASED, TTL);
  check_mark(MARK_OVER_LEASED, &o, CORRAL_FREE, NOW + TTL, NOW + TTL);
}

static void a_claim_shows_and_keeps_that_it_was_invalidated(void **unused) {
  (void)unused;
  corral_op claim = {.verb = CORRAL_VERB_CLAIM, .token = other, .lease_ms = LEASE, .seen = 1};
  outcome o = decide_op(MARK, &claim);
  check_mark(MARK, &o, CORRAL_LEASED, 3000, 3000);
  assert_int_equal(o.op.life_ms, 0);
  assert_int_equal(o.op.until_ms, LEASE);
  assert_false(o.op.same);
  claim.lease_ms = 9000; /* the lease outlasts the mark */
  o = decide_op(MARK_LEASE_OVER, &claim);
  check_mark(MARK_LEASE_OVER, &o, CORRAL_LEASED, 3000, NOW + 9000);
  claim.verb = CORRAL_VERB_EXTEND;
  claim.token = mine;
  o = decide_op(MARK_LEASED, &claim);
  check_mark(MARK_LEASED, &o, CORRAL_LEASED, 3000, NOW + 9000);
}

static void a_lease_that_ends_without_a_fill_leaves_the_mark(void **unused) {
  (void)unused;
  uint8_t judged[CORRAL_HEADER];
  verdict(judged);
  outcome o = decide(MARK_LEASED, CORRAL_VERB_RELEASE, mine, NULL, 0);
  check_mark(MARK_LEASED, &o, CORRAL_FREE, 3000, 3000);
  o = decide(MARK_LEASED, CORRAL_VERB_EXPIRE, NULL, NULL, 0);
  check_mark(MARK_LEASED, &o, CORRAL_FREE, 3000, 3000);
  o = decide(MARK_VERDICT, CORRAL_VERB_EXPIRE, NULL, NULL, 0);
  check_mark(MARK_VERDICT, &o, CORRAL_FREE, 3000, 3000);
  o = decide(MARK_LEASED, CORRAL_VERB_RELEASE, mine, judged, sizeof judged);
  check_mark(MARK_LEASED, &o, CORRAL_VERDICT, 3000, 3000);
  corral_op op = {.verb = CORRAL_VERB_RELEASE, .token = mine, .lease_ms = LEASE, .ttl_ms = 9000, .record = judged, .record_len = sizeof judged};
  o = decide_op(MARK_LEASED, &op);
  check_mark(MARK_LEASED, &o, CORRAL_VERDICT, 3000, NOW + 9000);
}

static void a_fill_takes_the_place_of_the_mark(void **unused) {
  (void)unused;
  uint8_t full[CORRAL_HEADER + 8];
  fill(full);
  outcome o = decide(MARK_LEASED, CORRAL_VERB_SETTLE, mine, full, sizeof full);
  assert_int_equal(o.header.flags, 0);
  assert_int_equal(o.header.life_end, NOW + TTL);
  assert_int_equal(o.change.expires, NOW + TTL);
}

static void a_mark_that_is_over_is_forgotten_by_the_next_change(void **unused) {
  (void)unused;
  uint8_t judged[CORRAL_HEADER];
  verdict(judged);
  outcome all[] = {decide(MARK_OVER, CORRAL_VERB_CLAIM, other, NULL, 0), decide(MARK_OVER_LEASED, CORRAL_VERB_EXTEND, mine, NULL, 0),
                   decide(MARK_OVER_LEASED, CORRAL_VERB_RELEASE, mine, judged, sizeof judged)};
  static const int64_t expires[] = {NOW + LEASE, NOW + LEASE, NOW + TTL};
  for (size_t i = 0; i < 3; i++) {
    assert_int_equal(all[i].header.flags, 0);
    assert_int_equal(all[i].header.life_end, 0);
    assert_int_equal(all[i].change.expires, expires[i]);
  }
}

static void what_stands_behind_a_mark_is_no_payload(void **unused) {
  (void)unused;
  for (int64_t life_end = 0; life_end <= 3000; life_end += 1000) { /* unknown, over, ruling */
    sample s = record_in(FREE_VALUE);
    corral_header header = {.flags = GONE, .life_end = life_end};
    corral_change change;
    corral_op op = {.verb = CORRAL_VERB_GET, .token = mine, .lease_ms = LEASE, .seen = crl_record_stamp(s.bytes, s.size)};
    crl_record_write(&header, s.bytes);
    crl_record_decide(&op, s.bytes, s.size, NOW, &change);
    assert_true(op.status == CORRAL_OK && op.life_ms == 0 && op.until_ms == 0);
    op.verb = CORRAL_VERB_CLAIM;
    crl_record_decide(&op, s.bytes, s.size, NOW, &change);
    assert_true(op.status == CORRAL_OK && op.life_ms == 0 && !op.same);
    assert_int_equal(change.action, CORRAL_ACTION_REPLACE);
    assert_int_equal(change.body_len, 0);
  }
}

static void a_record_that_is_not_corral_s_is_left_alone_by_every_verb(void **unused) {
  (void)unused;
  uint8_t bytes[CORRAL_HEADER + BODY];
  memset(bytes, 'x', sizeof bytes);
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_EXPIRE; verb++) {
    corral_change change;
    corral_op op = {.verb = (uint32_t)verb, .token = mine, .lease_ms = LEASE, .ttl_ms = TTL};
    crl_record_decide(&op, bytes, sizeof bytes, NOW, &change);
    assert_int_equal(op.status, CORRAL_EFOREIGN);
    assert_int_equal(change.action, CORRAL_ACTION_KEEP);
  }
}

static void an_unknown_verb_is_refused(void **unused) {
  (void)unused;
  assert_int_equal(decide(ABSENT, (corral_verb)99, mine, NULL, 0).op.status, CORRAL_EUNSUPPORTED);
  assert_int_equal(decide(FREE_VALUE, (corral_verb)99, mine, NULL, 0).op.status, CORRAL_EUNSUPPORTED);
}

static void a_header_is_written_and_read_again(void **unused) {
  (void)unused;
  corral_header in = {.state = CORRAL_VERDICT, .flags = 1, .until = INT64_MAX, .since = 2, .life_end = 3, .cost_ms = UINT32_MAX, .code = INT32_MIN, .failures = 4};
  corral_header out;
  uint8_t bytes[CORRAL_HEADER];
  memset(in.token, 0xa5, sizeof in.token);
  memset(in.note, 'n', sizeof in.note);
  memset(&out, 0, sizeof out);
  crl_record_write(&in, bytes);
  assert_memory_equal(bytes, "crl1\2\1\0\0", 8);
  assert_int_equal(crl_record_read(bytes, sizeof bytes, &out), CORRAL_OK);
  assert_true(out.state == in.state && out.flags == in.flags && out.until == in.until && out.since == in.since);
  assert_true(out.life_end == in.life_end && out.cost_ms == in.cost_ms && out.code == in.code && out.failures == in.failures);
  assert_memory_equal(out.token, in.token, sizeof in.token);
  assert_memory_equal(out.note, in.note, sizeof in.note);
  bytes[4] = 3; /* a state of the future */
  assert_int_equal(crl_record_read(bytes, sizeof bytes, &out), CORRAL_EFOREIGN);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_verb_in_every_state_with_the_token_of_the_lease),
      cmocka_unit_test(a_stranger_can_take_over_only_what_is_over),
      cmocka_unit_test(a_claim_takes_over_holder_and_cost),
      cmocka_unit_test(what_is_left_is_told),
      cmocka_unit_test(a_settled_record_lives_its_own_life_and_bears_no_lease),
      cmocka_unit_test(a_verdict_stands_where_the_lease_stood),
      cmocka_unit_test(an_expired_value_is_marked_until_it_is_filled_again),
      cmocka_unit_test(a_payload_that_the_claimer_has_is_not_sent_again),
      cmocka_unit_test(an_invalidation_is_remembered_whatever_was_there),
      cmocka_unit_test(a_shorter_memory_does_not_cut_a_longer_one_short),
      cmocka_unit_test(a_claim_shows_and_keeps_that_it_was_invalidated),
      cmocka_unit_test(a_lease_that_ends_without_a_fill_leaves_the_mark),
      cmocka_unit_test(a_fill_takes_the_place_of_the_mark),
      cmocka_unit_test(a_mark_that_is_over_is_forgotten_by_the_next_change),
      cmocka_unit_test(what_stands_behind_a_mark_is_no_payload),
      cmocka_unit_test(a_record_that_is_not_corral_s_is_left_alone_by_every_verb),
      cmocka_unit_test(an_unknown_verb_is_refused),
      cmocka_unit_test(a_header_is_written_and_read_again),
  };
  return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
