/* test_record.c: each verb on each state of a record, as a table of expected results. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

#include "support/record_kit.h"
#include "support/op_kit.h"

enum { NOW = 1000, LEASE = 200, TTL = 500, BODY = 16, STEP = CRL_RECORD_STEP_MS };

/* States of a record. ENDLESS: more time is left of the lease than its length. FUTURE: the lease
 * begins after now. COLD_OVER: a lease without a value is over. */
typedef enum state {
  ABSENT,
  FREE_VALUE,
  LEASED_COLD,
  LEASED_VALUE,
  LEASE_OVER,
  VERDICT_COLD,
  VERDICT_VALUE,
  VERDICT_OVER,
  LIFE_OVER,
  ENDLESS,
  ENDLESS_VERDICT,
  FUTURE,
  COLD_OVER,
  STATES
} state;

static const char *const state_names[] = {
    "absent",          "free value",    "leased cold",  "leased value", "lease over",
    "verdict cold",    "verdict value", "verdict over", "life over",    "endless",
    "endless verdict", "future",        "cold over"};

static const uint8_t mine[CORRAL_TOKEN] = "mine mine mine ",
                     other[CORRAL_TOKEN] = "other other oth";

typedef struct sample {
  uint8_t bytes[CORRAL_FRONT + BODY];
  size_t size;
} sample;

static sample record_in(state in) {
  static const struct {
    uint8_t state;
    int64_t until, life_end;
    size_t body;
    int64_t since;
    uint32_t length;
  } rows[STATES] = {
      [FREE_VALUE] = {CORRAL_FREE, 0, 3000, BODY, 0, 0},
      [LEASED_COLD] = {CORRAL_LEASED, 1100, 0, 0, 900, LEASE},
      [LEASED_VALUE] = {CORRAL_LEASED, 1100, 3000, BODY, 900, LEASE},
      [LEASE_OVER] = {CORRAL_LEASED, 1000, 3000, BODY, 900, LEASE},
      [VERDICT_COLD] = {CORRAL_VERDICT, 1100, 0, 0, 900, LEASE},
      [VERDICT_VALUE] = {CORRAL_VERDICT, 1100, 3000, BODY, 900, LEASE},
      [VERDICT_OVER] = {CORRAL_VERDICT, 1000, 3000, BODY, 900, LEASE},
      [LIFE_OVER] = {CORRAL_LEASED, 1100, 1000, BODY, 900, LEASE},
      [ENDLESS] = {CORRAL_LEASED, NOW + LEASE + STEP + 1, 0, 0, 900, LEASE},
      [ENDLESS_VERDICT] = {CORRAL_VERDICT, INT64_MAX, 3000, BODY, 900, LEASE},
      [FUTURE] = {CORRAL_LEASED, NOW + STEP + 100, 3000, BODY, NOW + STEP + 1, UINT32_MAX},
      [COLD_OVER] = {CORRAL_LEASED, 1000, 0, 0, 800, LEASE},
  };
  sample s;
  memset(&s, 0, sizeof s);
  if (in == ABSENT) return s;
  corral_header header = {.state = rows[in].state,
                          .until = rows[in].until,
                          .life_end = rows[in].life_end,
                          .failures = 2,
                          .since = rows[in].since,
                          .length_ms = rows[in].length};
  if (header.state == CORRAL_LEASED) memcpy(header.token, mine, sizeof mine);
  uint8_t *record = record_make(header, rows[in].body, 'b', &s.size);
  memcpy(s.bytes, record, s.size);
  free(record);
  return s;
}

typedef struct outcome {
  corral_op op;
  corral_change change;
  corral_header header;
} outcome;

/* Calls crl_record_decide as a store does that has the record in one piece. */
static void judge(corral_op *op, const uint8_t *bytes, size_t size, corral_change *change) {
  uint8_t front[CORRAL_FRONT];
  size_t len = size == 0 ? 0 : crl_record_front(bytes, size, front);
  corral_op look = *op;
  crl_record_decide(op, size == 0 ? NULL : front, len, NOW, change);
  if (op->verb != CORRAL_VERB_GET || size == 0) return;
  /* a look at the whole record finds the same */
  assert_int_equal(crl_record_look(&look, bytes, size, NOW), op->status);
  assert_int_equal(look.status, op->status);
  assert_memory_equal(&look.state, &op->state, sizeof look.state);
}

static outcome decide_op(state in, const corral_op *op) {
  sample s = record_in(in), copy = s;
  outcome o, again;
  memset(&o, 0, sizeof o);
  o.op = *op;
  again = o;
  judge(&o.op, s.bytes, s.size, &o.change);
  /* pure: the record is unchanged, and a second call gives the same result */
  assert_memory_equal(&s, &copy, sizeof s);
  judge(&again.op, s.bytes, s.size, &again.change);
  assert_int_equal(o.op.status, again.op.status);
  assert_int_equal(o.change.front_len, again.change.front_len);
  if (o.change.front_len > 0)
    assert_memory_equal(o.change.front, again.change.front, o.change.front_len);
  if (o.change.action == CORRAL_ACTION_EDIT || o.change.action == CORRAL_ACTION_REPLACE) {
    assert_int_equal(crl_record_read(o.change.front, o.change.front_len, &o.header), CORRAL_OK);
    assert_true(o.change.expires > NOW);
    assert_int_equal(o.change.body_len, o.header.body);
  }
  return o;
}

static outcome decide(state in, corral_verb verb, const uint8_t *token, const uint8_t *record,
                      size_t record_len) {
  corral_op op = {.verb = verb, .key = "k", .key_len = 1, .token = token};
  op_lasts(&op, LEASE);
  op_keeps(&op, TTL);
  op_brings(&op, record, record_len);
  return decide_op(in, &op);
}

static int status_of(char letter) {
  switch (letter) {
    case 'o': return CORRAL_OK;
    case 'm': return CORRAL_EMISS;
    case 'b': return CORRAL_EBUSY;
    default: return CORRAL_ELOST;
  }
}

static int action_of(char letter) {
  switch (letter) {
    case 'K': return CORRAL_ACTION_KEEP;
    case 'E': return CORRAL_ACTION_EDIT;
    case 'P': return CORRAL_ACTION_REPLACE;
    default: return CORRAL_ACTION_REMOVE;
  }
}

/* `rows` has two letters for each state: the expected status (ok, miss, busy, lost) and action
 * (Keep, Edit, rePlace, Remove). */
static void check_rows(corral_verb verb, const uint8_t *token, const uint8_t *record, size_t len,
                       const char *rows) {
  assert_int_equal(strlen(rows), 3 * STATES - 1);
  for (state in = ABSENT; in < STATES; in++, rows += 3) {
    outcome o = decide(in, verb, token, record, len);
    if (o.op.status != status_of(rows[0]) || (int)o.change.action != action_of(rows[1]))
      fail_msg("verb %d on '%s': status %d, action %d; expected %.2s", (int)verb, state_names[in],
               o.op.status, (int)o.change.action, rows);
  }
}

typedef struct blob {
  uint8_t at[CORRAL_FRONT + 8];
  size_t size;
} blob;

static blob full_record(void) {
  blob b;
  uint8_t *record = record_make((corral_header){0}, 8, 'n', &b.size);
  memcpy(b.at, record, b.size);
  free(record);
  return b;
}

static blob verdict(void) {
  corral_header header = {.state = CORRAL_VERDICT, .code = -7, .failures = 3, .note = "no route"};
  blob b;
  b.size = crl_record_write(&header, b.at);
  return b;
}

/* columns: absent, free value, leased cold, leased value, lease over, verdict cold, verdict value,
 * verdict over, life over; endless, endless verdict, future; cold over */
static void every_verb_in_every_state_with_the_token_of_the_lease(void **unused) {
  (void)unused;
  blob full = full_record(), judged = verdict();
  check_rows(CORRAL_VERB_GET, mine, NULL, 0, "mK oK oK oK oK oK oK oK oK oK oK oK oK");
  check_rows(CORRAL_VERB_CLAIM, mine, NULL, 0, "oP oE oK oK oE bK bK oE oK oK bE oK oP");
  check_rows(CORRAL_VERB_SETTLE, mine, full.at, full.size,
             "lK lK oP oP oP lK lK lK oP oP lK oP oP");
  check_rows(CORRAL_VERB_RELEASE, mine, NULL, 0, "lK lK oR oE oE lK lK lK oR oR lK oE oR");
  check_rows(CORRAL_VERB_RELEASE, mine, judged.at, judged.size,
             "lK lK oP oE oE lK lK lK oP oP lK oE oP");
  check_rows(CORRAL_VERB_EXTEND, mine, NULL, 0, "lK lK oP oE oE lK lK lK oP oP lK oE oP");
  check_rows(CORRAL_VERB_RENEW, mine, NULL, 0, "lK lK mK oE oE lK lK lK mK mK lK oE mK");
  check_rows(CORRAL_VERB_INVALIDATE, mine, NULL, 0, "oK oR oR oR oR oR oR oR oR oR oR oR oR");
  check_rows(CORRAL_VERB_EXPIRE, mine, NULL, 0, "oK oE oR oE oE oR oE oE oR oR oE oE oR");
}

static void a_stranger_can_take_over_only_what_is_over(void **unused) {
  (void)unused;
  blob full = full_record();
  static const char lost[] = "lK lK lK lK lK lK lK lK lK lK lK lK lK";
  check_rows(CORRAL_VERB_SETTLE, other, full.at, full.size, lost);
  check_rows(CORRAL_VERB_RELEASE, other, NULL, 0, lost);
  check_rows(CORRAL_VERB_EXTEND, other, NULL, 0, lost);
  check_rows(CORRAL_VERB_CLAIM, other, NULL, 0, "oP oE bK bK oE bK bK oE bK bP bE bE oP");
}

/* ---- impossible ends ----------------------------------------------------------------------- */

static void a_lease_with_an_impossible_end_is_dated_anew_by_a_claim_and_ends_one_length_from_now(
    void **unused) {
  (void)unused;
  outcome o = decide(ENDLESS, CORRAL_VERB_CLAIM, other, NULL, 0);
  assert_int_equal(o.op.status, CORRAL_EBUSY);
  assert_int_equal(o.op.state.left_ms, LEASE);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.since, NOW);
  assert_memory_equal(o.header.token, mine, CORRAL_TOKEN);
  o = decide(ENDLESS_VERDICT, CORRAL_VERB_CLAIM, other, NULL, 0);
  assert_int_equal(o.header.state, CORRAL_VERDICT);
  assert_int_equal(o.header.until, NOW + LEASE);
  o = decide(FUTURE, CORRAL_VERB_CLAIM, other, NULL, 0);
  /* the length is longer than any lease, so it isn't used either */
  assert_int_equal(o.header.until, NOW + CRL_RECORD_LEASE_MOST);
  assert_int_equal(o.op.state.left_ms, CRL_RECORD_LEASE_MOST);
}

/* Otherwise a look would report a lease forever, and no claim would be sent. */
static void a_look_tells_of_no_lease_with_an_end_that_can_t_be_true(void **unused) {
  (void)unused;
  assert_int_equal(decide(ENDLESS, CORRAL_VERB_GET, NULL, NULL, 0).op.state.left_ms, 0);
  assert_int_equal(decide(ENDLESS_VERDICT, CORRAL_VERB_GET, NULL, NULL, 0).op.state.left_ms, 0);
  assert_int_equal(decide(FUTURE, CORRAL_VERB_GET, NULL, NULL, 0).op.state.left_ms, 0);
}

static void a_clock_that_stepped_a_little_ends_and_dates_nothing(void **unused) {
  (void)unused;
  corral_header header = {
      .state = CORRAL_LEASED, .since = NOW + STEP, .until = NOW + STEP + LEASE, .length_ms = LEASE};
  uint8_t front[CORRAL_FRONT];
  corral_change change;
  memcpy(header.token, mine, sizeof mine);
  size_t len = crl_record_write(&header, front);
  corral_op op = {.verb = CORRAL_VERB_CLAIM, .token = other, .claim.lease_ms = LEASE};
  crl_record_decide(&op, front, len, NOW, &change);
  assert_int_equal(op.status, CORRAL_EBUSY);
  assert_int_equal(op.state.left_ms, STEP + LEASE);
  assert_int_equal(change.action, CORRAL_ACTION_KEEP);
}

static void a_living_holder_keeps_what_was_dated_anew(void **unused) {
  (void)unused;
  outcome o = decide(ENDLESS, CORRAL_VERB_EXTEND, mine, NULL, 0);
  assert_int_equal(o.op.status, CORRAL_OK);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.length_ms, LEASE);
  o = decide(FUTURE, CORRAL_VERB_EXTEND, mine, NULL, 0);
  assert_int_equal(o.header.since, NOW);
}

static void a_body_that_lives_for_ever_is_none(void **unused) {
  (void)unused;
  static const int64_t ends[] = {INT64_MAX, NOW + CRL_RECORD_LIFE_MOST + 1};
  for (size_t i = 0; i < 2; i++) {
    size_t size;
    uint8_t *record = record_make((corral_header){.life_end = ends[i]}, BODY, 'b', &size);
    corral_change change;
    corral_op op = {.verb = CORRAL_VERB_GET};
    judge(&op, record, size, &change);
    assert_int_equal(op.status, CORRAL_OK);
    assert_int_equal(op.state.life_ms, 0);
    free(record);
  }
}

/* ---- takeover ------------------------------------------------------------------------------ */

static void
a_claim_takes_over_from_a_holder_who_is_known_to_be_dead_and_from_nobody_else(void **unused) {
  (void)unused;
  corral_op op = {
      .verb = CORRAL_VERB_CLAIM, .token = other, .claim.lease_ms = LEASE, .claim.over = mine};
  outcome o = decide_op(LEASED_VALUE, &op);
  assert_int_equal(o.op.status, CORRAL_OK);
  assert_memory_equal(o.header.token, other, CORRAL_TOKEN);
  assert_int_equal(o.op.state.life_ms, 2000);
  op.claim.over = other;
  assert_int_equal(decide_op(LEASED_VALUE, &op).op.status, CORRAL_EBUSY);
  static const uint8_t nobody[CORRAL_TOKEN] = {0};
  op.claim.over = nobody; /* a verdict has no token */
  assert_int_equal(decide_op(VERDICT_VALUE, &op).op.status, CORRAL_EBUSY);
}

static void a_claim_takes_over_holder_and_cost(void **unused) {
  (void)unused;
  uint8_t wish[CORRAL_FRONT];
  corral_header header = {.state = CORRAL_LEASED, .cost_ms = 77, .note = "host/9"};
  size_t len = crl_record_write(&header, wish);
  outcome o = decide(FREE_VALUE, CORRAL_VERB_CLAIM, other, wish, len);
  assert_int_equal(o.header.state, CORRAL_LEASED);
  assert_int_equal(o.header.since, NOW);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.cost_ms, 77);
  assert_int_equal(o.header.failures, 2);
  assert_string_equal(o.header.note, "host/9");
  assert_memory_equal(o.header.token, other, CORRAL_TOKEN);
  assert_int_equal(o.op.state.life_ms, 2000);
  assert_int_equal(o.op.state.left_ms, LEASE);
}

static int64_t expires(state in, corral_verb verb, const uint8_t *token, int64_t lease_ms) {
  corral_op op = {.verb = verb, .key = "k", .key_len = 1, .token = token};
  op_lasts(&op, lease_ms);
  op_keeps(&op, TTL);
  return decide_op(in, &op).change.expires;
}

/* So that a holder who was stopped for a moment can extend or settle, as long as nobody else has
 * claimed. */
static void the_key_of_a_lease_outlives_it_and_the_value_beside_it(void **unused) {
  (void)unused;
  const int64_t kept = CORRAL_LEASE_KEPT_MS;
  assert_int_equal(expires(ABSENT, CORRAL_VERB_CLAIM, mine, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(COLD_OVER, CORRAL_VERB_CLAIM, other, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(COLD_OVER, CORRAL_VERB_EXTEND, mine, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(LIFE_OVER, CORRAL_VERB_EXTEND, mine, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(LEASED_VALUE, CORRAL_VERB_EXTEND, mine, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(LEASE_OVER, CORRAL_VERB_EXTEND, mine, LEASE), NOW + LEASE + kept);
  assert_int_equal(expires(ENDLESS, CORRAL_VERB_CLAIM, other, LEASE), NOW + LEASE + kept);
  /* the value's life ends at 3000, which is later */
  assert_int_equal(expires(FREE_VALUE, CORRAL_VERB_CLAIM, mine, 3000 - kept - NOW), 3000);
  assert_int_equal(expires(LEASED_VALUE, CORRAL_VERB_RELEASE, mine, LEASE), 3000);
}

static void what_is_left_is_told(void **unused) {
  (void)unused;
  static const int64_t life[STATES] = {0, 2000, 0, 2000, 2000, 0, 2000, 2000, 0, 0, 2000, 2000, 0};
  static const int64_t until[STATES] = {0, 0, 100, 100, 0, 100, 100, 0, 100, 0, 0, 0, 0};
  for (state in = ABSENT; in < STATES; in++) {
    outcome o = decide(in, CORRAL_VERB_GET, NULL, NULL, 0);
    if (o.op.state.life_ms != life[in] || o.op.state.left_ms != until[in])
      fail_msg("%s: life %lld until %lld", state_names[in], (long long)o.op.state.life_ms,
               (long long)o.op.state.left_ms);
  }
}

static void a_settled_record_lives_its_own_life_and_bears_no_lease(void **unused) {
  (void)unused;
  blob full = full_record();
  outcome o = decide(LEASED_VALUE, CORRAL_VERB_SETTLE, mine, full.at, full.size);
  assert_int_equal(o.header.state, CORRAL_FREE);
  assert_int_equal(o.header.life_end, NOW + TTL);
  assert_int_equal(o.header.failures, 0);
  assert_int_equal(o.change.expires, NOW + TTL);
  assert_int_equal(o.change.body_len, 8);
  assert_true(o.change.front_len == CORRAL_HEAD &&
              memcmp(full.at + CORRAL_HEAD, "nnnnnnnn", 8) == 0);
}

static void a_verdict_stands_where_the_lease_stood(void **unused) {
  (void)unused;
  blob judged = verdict();
  outcome o = decide(LEASED_VALUE, CORRAL_VERB_RELEASE, mine, judged.at, judged.size);
  assert_int_equal(o.header.state, CORRAL_VERDICT);
  assert_int_equal(o.header.until, NOW + LEASE);
  assert_int_equal(o.header.code, -7);
  assert_int_equal(o.header.failures, 3);
  assert_string_equal(o.header.note, "no route");
  assert_int_equal(o.change.expires, 3000);
  assert_int_equal(
      decide(LEASED_COLD, CORRAL_VERB_RELEASE, mine, judged.at, judged.size).change.expires,
      NOW + TTL);
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
  corral_op op = {.verb = CORRAL_VERB_CLAIM,
                  .token = mine,
                  .claim.lease_ms = LEASE,
                  .claim.seen = crl_record_stamp(s.bytes, s.size)};
  judge(&op, s.bytes, s.size, &change);
  assert_true(op.state.same);
  op.claim.seen ^= 1;
  judge(&op, s.bytes, s.size, &change);
  assert_false(op.state.same);
}

/* ---- foreign content ----------------------------------------------------------------------- */

static void check_alien(const uint8_t *record, size_t size, corral_verb verb, int status,
                        int action) {
  corral_change change;
  corral_op op = {.verb = verb, .token = mine};
  op_lasts(&op, LEASE);
  op_keeps(&op, TTL);
  judge(&op, record, size, &change);
  if (op.status != status || change.action != action)
    fail_msg("verb %d: status %d, action %d; expected %d, %d", (int)verb, op.status, change.action,
             status, action);
  assert_true(op.state.life_ms == 0 || verb != CORRAL_VERB_GET);
}

static void a_record_that_is_not_corral_s_is_left_alone_by_every_verb(void **unused) {
  (void)unused;
  uint8_t bytes[CORRAL_HEAD + BODY];
  memset(bytes, 'x', sizeof bytes);
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_RENEW; verb++)
    check_alien(bytes, sizeof bytes, (corral_verb)verb, CORRAL_EFOREIGN, CORRAL_ACTION_KEEP);
  check_alien((const uint8_t *)"cr", 2, CORRAL_VERB_CLAIM, CORRAL_EFOREIGN, CORRAL_ACTION_KEEP);
}

static void a_record_of_a_later_format_is_left_alone_until_its_key_is_invalidated(void **unused) {
  (void)unused;
  sample s = record_in(LEASED_VALUE);
  s.bytes[3] = '3';
  const size_t sizes[] = {s.size, 4};
  for (size_t i = 0; i < 2; i++) {
    check_alien(s.bytes, sizes[i], CORRAL_VERB_GET, CORRAL_ENEWER, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_CLAIM, CORRAL_ENEWER, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_SETTLE, CORRAL_ELOST, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_RELEASE, CORRAL_ELOST, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_EXTEND, CORRAL_ELOST, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_RENEW, CORRAL_ELOST, CORRAL_ACTION_KEEP);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_INVALIDATE, CORRAL_OK, CORRAL_ACTION_REMOVE);
    check_alien(s.bytes, sizes[i], CORRAL_VERB_EXPIRE, CORRAL_OK, CORRAL_ACTION_REMOVE);
  }
}

/* Records of an earlier format, and with an unknown state. */
static void what_makes_no_sense_is_as_good_as_nothing(void **unused) {
  (void)unused;
  sample older = record_in(LEASED_VALUE), odd = older;
  older.bytes[3] = '1';
  odd.bytes[4] = CORRAL_VERDICT + 1;
  const sample *all[] = {&older, &odd};
  for (size_t i = 0; i < 2; i++) {
    check_alien(all[i]->bytes, all[i]->size, CORRAL_VERB_GET, CORRAL_EMISS, CORRAL_ACTION_KEEP);
    check_alien(all[i]->bytes, all[i]->size, CORRAL_VERB_CLAIM, CORRAL_OK, CORRAL_ACTION_REPLACE);
    check_alien(all[i]->bytes, all[i]->size, CORRAL_VERB_EXTEND, CORRAL_ELOST, CORRAL_ACTION_KEEP);
    check_alien(all[i]->bytes, all[i]->size, CORRAL_VERB_INVALIDATE, CORRAL_OK,
                CORRAL_ACTION_REMOVE);
  }
  check_alien((const uint8_t *)"crl2", 4, CORRAL_VERB_CLAIM, CORRAL_OK, CORRAL_ACTION_REPLACE);
}

/* At each length: a record cut within its head is absent, within its body has no body, within its
 * lease has no holder. */
static void a_record_that_is_cut_short_has_no_lease_and_no_body(void **unused) {
  (void)unused;
  sample s = record_in(LEASED_VALUE);
  for (size_t size = 4; size < s.size; size++) {
    corral_change change;
    corral_op op = {.verb = CORRAL_VERB_GET, .token = mine};
    judge(&op, s.bytes, size, &change);
    assert_int_equal(op.status, size < CORRAL_HEAD ? CORRAL_EMISS : CORRAL_OK);
    assert_int_equal(op.state.life_ms, size < CORRAL_HEAD + BODY ? 0 : 2000);
    assert_int_equal(op.state.left_ms, 0);
    op.verb = CORRAL_VERB_CLAIM;
    judge(&op, s.bytes, size, &change);
    assert_int_equal(op.status, CORRAL_OK);
  }
}

static void bytes_behind_a_record_and_parts_that_nobody_knows_are_skipped(void **unused) {
  (void)unused;
  uint8_t record[CORRAL_FRONT + 64] = {0};
  corral_header in = {.state = CORRAL_LEASED,
                      .until = 1100,
                      .since = 900,
                      .length_ms = LEASE,
                      .cost_ms = 5,
                      .note = "who"},
                out;
  size_t len = crl_record_write(&in, record);
  memcpy(record + len, "\x63\3new", 5);
  record[CORRAL_HEAD] = (uint8_t)(record[CORRAL_HEAD] + 5); /* length of the lease */
  memset(record + len + 5, 'x', 20);
  assert_int_equal(crl_record_read_whole(record, len + 25, &out), CORRAL_OK);
  assert_int_equal(out.state, CORRAL_LEASED);
  assert_string_equal(out.note, "who");
  assert_int_equal(out.cost_ms, 5);
}

/* Foreign bytes: two notes, the second with a NUL inside. */
static void the_last_note_counts_up_to_its_first_nul(void **unused) {
  (void)unused;
  static const uint8_t parts[] = {1, 4, 'l', 'o', 'n', 'g', 1, 3, 'w', 0, 'x'};
  corral_header in = {.state = CORRAL_VERDICT, .length_ms = 1, .until = NOW}, out;
  uint8_t front[CORRAL_FRONT];
  size_t len = crl_record_write(&in, front);
  memcpy(front + len, parts, sizeof parts);
  crl_record_put(front + CORRAL_HEAD, CORRAL_LEASE + sizeof parts, 2);
  assert_int_equal(crl_record_read(front, len + sizeof parts, &out), CORRAL_OK);
  static const char wanted[CORRAL_NOTE] = "w";
  assert_memory_equal(out.note, wanted, sizeof wanted);
}

static void bytes_of_another_key_are_no_body_of_the_claimer_s(void **unused) {
  (void)unused;
  corral_header theirs = {.life_end = 3000, .digest = "their key"},
                wish = {.state = CORRAL_LEASED, .digest = "my key"}, got;
  uint8_t front[CORRAL_FRONT];
  size_t size, len = crl_record_write(&wish, front);
  uint8_t *record = record_make(theirs, BODY, 'b', &size);
  corral_change change;
  corral_op op = {.verb = CORRAL_VERB_CLAIM,
                  .token = mine,
                  .claim = {.lease_ms = LEASE, .front = front, .front_len = len}};
  judge(&op, record, size, &change);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.state.life_ms, 0);
  assert_int_equal(change.action, CORRAL_ACTION_REPLACE);
  assert_int_equal(crl_record_read(change.front, change.front_len, &got), CORRAL_OK);
  assert_memory_equal(got.digest, wish.digest, CORRAL_DIGEST);
  free(record);
}

static void an_unknown_verb_is_refused(void **unused) {
  (void)unused;
  assert_int_equal(decide(ABSENT, (corral_verb)99, mine, NULL, 0).op.status, CORRAL_EUNSUPPORTED);
  assert_int_equal(decide(FREE_VALUE, (corral_verb)99, mine, NULL, 0).op.status,
                   CORRAL_EUNSUPPORTED);
}

static void a_header_is_written_and_read_again(void **unused) {
  (void)unused;
  /* static, so that what lies between their members is zero */
  static corral_header in = {.state = CORRAL_VERDICT,
                             .flags = 1,
                             .kind = 2,
                             .encoding = 1,
                             .metadata = 40000,
                             .body = UINT32_MAX,
                             .until = INT64_MAX,
                             .since = 2,
                             .life_end = 3,
                             .stamp = UINT64_MAX,
                             .length_ms = UINT32_MAX,
                             .cost_ms = UINT32_MAX,
                             .code = INT32_MIN,
                             .failures = 4};
  static corral_header out;
  uint8_t bytes[CORRAL_FRONT];
  memset(in.token, 0xa5, sizeof in.token);
  memset(in.digest, 0x5a, sizeof in.digest);
  memset(in.note, 'n', sizeof in.note);
  size_t len = crl_record_write(&in, bytes);
  assert_int_equal(len, CORRAL_HEAD + CORRAL_LEASE + 2 + CORRAL_NOTE + 2 * 6);
  assert_memory_equal(bytes, "crl2\2\1\2\1", 8);
  assert_int_equal(crl_record_read(bytes, len, &out), CORRAL_OK);
  assert_memory_equal(&in, &out, sizeof in);
  in.state = CORRAL_FREE;
  assert_int_equal(crl_record_write(&in, bytes), CORRAL_HEAD);
  in.failures = 1000000; /* more than fits */
  crl_record_write(&in, bytes);
  assert_int_equal(crl_record_read(bytes, CORRAL_HEAD, &out), CORRAL_OK);
  assert_int_equal(out.failures, UINT16_MAX);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_verb_in_every_state_with_the_token_of_the_lease),
      cmocka_unit_test(a_stranger_can_take_over_only_what_is_over),
      cmocka_unit_test(a_claim_takes_over_holder_and_cost),
      cmocka_unit_test(the_key_of_a_lease_outlives_it_and_the_value_beside_it),
      cmocka_unit_test(what_is_left_is_told),
      cmocka_unit_test(a_settled_record_lives_its_own_life_and_bears_no_lease),
      cmocka_unit_test(a_verdict_stands_where_the_lease_stood),
      cmocka_unit_test(an_expired_value_is_marked_until_it_is_filled_again),
      cmocka_unit_test(a_payload_that_the_claimer_has_is_not_sent_again),
      cmocka_unit_test(
          a_lease_with_an_impossible_end_is_dated_anew_by_a_claim_and_ends_one_length_from_now),
      cmocka_unit_test(a_look_tells_of_no_lease_with_an_end_that_can_t_be_true),
      cmocka_unit_test(a_clock_that_stepped_a_little_ends_and_dates_nothing),
      cmocka_unit_test(a_living_holder_keeps_what_was_dated_anew),
      cmocka_unit_test(a_body_that_lives_for_ever_is_none),
      cmocka_unit_test(
          a_claim_takes_over_from_a_holder_who_is_known_to_be_dead_and_from_nobody_else),
      cmocka_unit_test(a_record_that_is_not_corral_s_is_left_alone_by_every_verb),
      cmocka_unit_test(a_record_of_a_later_format_is_left_alone_until_its_key_is_invalidated),
      cmocka_unit_test(what_makes_no_sense_is_as_good_as_nothing),
      cmocka_unit_test(a_record_that_is_cut_short_has_no_lease_and_no_body),
      cmocka_unit_test(bytes_behind_a_record_and_parts_that_nobody_knows_are_skipped),
      cmocka_unit_test(the_last_note_counts_up_to_its_first_nul),
      cmocka_unit_test(bytes_of_another_key_are_no_body_of_the_claimer_s),
      cmocka_unit_test(an_unknown_verb_is_refused),
      cmocka_unit_test(a_header_is_written_and_read_again),
  };
  return cmocka_run_group_tests_name("record", tests, NULL, NULL);
}
