/* case_batch.c: several operations in one perform. */
#include "conformance.h"

enum { OWNER = 1, OTHER = 2 };

/* Performs a batch; the handle must stay usable. */
static void perform_all(client *c, corral_op *ops, size_t count) {
  int status = client_perform(c, ops, count, now_ms() + LIMIT_MS);
  if (status != CORRAL_OK)
    failed("a batch of %zu: the handle broke: %s: %s", count, corral_status_name(status),
           client_error(c));
}

/* A store that steps by sizeof(corral_op) performs what stands between the operations. */
void case_a_batch_of_longer_operations(void) {
  client *c = client_new();
  const key *a = key_new("a"), *b = key_new("b");
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, a, OWNER), op_of(CORRAL_VERB_CLAIM, b, OWNER)};
  perform_all(c, ops, 2);
  check(!world_trespassed(), "the plugin wrote behind an operation: corral_batch_op finds each");
  wants_lease("the first of two longer operations", sight_of(&ops[0], client_error(c)), OWNER);
  wants_lease("the second of two longer operations", sight_of(&ops[1], client_error(c)), OWNER);
}

void case_a_batch_has_an_answer_for_each(void) {
  client *c = client_new();
  const key *a = key_new("a"), *b = key_new("b"), *d = key_new("d"), *e = key_new("e");
  const record *value = record_new(b, 700, 1), *other = record_new(e, 10, 2);
  fill(c, b, OWNER, value, LONG_MS);
  fill(c, e, OWNER, other, LONG_MS);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, a, 0), op_of(CORRAL_VERB_GET, b, 0),
                     op_of(CORRAL_VERB_CLAIM, d, OWNER), op_of(CORRAL_VERB_INVALIDATE, a, 0),
                     op_of(CORRAL_VERB_GET, e, 0)};
  perform_all(c, ops, 5);
  wants("GET of an absent key in a batch", sight_of(&ops[0], client_error(c)).status, CORRAL_EMISS);
  wants_value("GET of a value in a batch", sight_of(&ops[1], client_error(c)), value);
  wants_lease("a claim in a batch", sight_of(&ops[2], client_error(c)), OWNER);
  wants("an invalidate in a batch", sight_of(&ops[3], client_error(c)).status, CORRAL_OK);
  wants_value("GET at the end of a batch", sight_of(&ops[4], client_error(c)), other);
}

void case_a_batch_is_done_in_order(void) {
  client *c = client_new();
  const key *k = key_new("k");
  const record *old = record_new(k, 300, 1), *small = record_new(k, 100, 2),
               *large = record_new(k, 100000, 3);
  fill(c, k, OWNER, old, LONG_MS);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, k, 0),        op_of(CORRAL_VERB_INVALIDATE, k, 0),
                     op_of(CORRAL_VERB_GET, k, 0),        op_of(CORRAL_VERB_CLAIM, k, OWNER),
                     op_settle(k, OWNER, small, LONG_MS), op_of(CORRAL_VERB_GET, k, 0),
                     op_of(CORRAL_VERB_CLAIM, k, OTHER),  op_settle(k, OTHER, large, LONG_MS),
                     op_of(CORRAL_VERB_GET, k, 0),        op_of(CORRAL_VERB_EXTEND, k, OTHER),
                     op_of(CORRAL_VERB_EXPIRE, k, 0)};
  enum { COUNT = sizeof ops / sizeof *ops };
  sight s[COUNT];
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++) s[i] = sight_of(&ops[i], client_error(c));
  wants_value("GET before all in a batch", s[0], old);
  wants("an invalidate in a batch", s[1].status, CORRAL_OK);
  wants("GET after an invalidate in a batch", s[2].status, CORRAL_EMISS);
  wants_lease("a claim after an invalidate in a batch", s[3], OWNER);
  wants("a settle after a claim in a batch", s[4].status, CORRAL_OK);
  wants_value("GET after a settle in a batch", s[5], small);
  wants_lease("a second claim in a batch", s[6], OTHER);
  wants_value("a second claim in a batch", s[6], small);
  wants("a second settle in a batch", s[7].status, CORRAL_OK);
  wants_value("GET after a second settle in a batch", s[8], large);
  wants("an extend after a settle in a batch", s[9].status, CORRAL_ELOST);
  wants("an expire in a batch", s[10].status, CORRAL_OK);
  sight last = get(c, k);
  wants_value("GET after a batch", last, large);
  check(last.header.flags & CORRAL_FLAG_EXPIRED,
        "after a batch that ends with an expire the flag EXPIRED is missing");
}

void case_a_batch_of_mixed_fates(void) {
  client *c = client_new();
  const key *mine = key_new("mine"), *theirs = key_new("theirs"), *cold = key_new("cold"),
            *absent = key_new("absent");
  const record *r = record_new(mine, 400, 1);
  wants("a claim", claim(c, mine, OWNER, LONG_MS).status, CORRAL_OK);
  wants("a claim", claim(c, theirs, OTHER, LONG_MS).status, CORRAL_OK);
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, theirs, OWNER),
                     op_settle(theirs, OWNER, record_new(theirs, 400, 2), LONG_MS),
                     op_settle(mine, OWNER, r, LONG_MS),
                     op_of(CORRAL_VERB_RELEASE, theirs, OWNER),
                     op_of(CORRAL_VERB_GET, absent, 0),
                     op_of(CORRAL_VERB_CLAIM, cold, OWNER),
                     op_of(CORRAL_VERB_EXTEND, theirs, OWNER),
                     op_of(CORRAL_VERB_GET, mine, 0)};
  static const int expected[] = {CORRAL_EBUSY, CORRAL_ELOST, CORRAL_OK,    CORRAL_ELOST,
                                 CORRAL_EMISS, CORRAL_OK,    CORRAL_ELOST, CORRAL_OK};
  enum { COUNT = sizeof ops / sizeof *ops };
  sight s[COUNT];
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++) s[i] = sight_of(&ops[i], client_error(c));
  for (size_t i = 0; i < COUNT; i++)
    check(s[i].status == expected[i],
          "operation %zu of a batch of mixed fates: expected %s, came %s", i + 1,
          corral_status_name(expected[i]), corral_status_name(s[i].status));
  wants_value("GET of what a batch of mixed fates settled", s[COUNT - 1], r);
  wants_lease("the lease of another after it", get(c, theirs), OTHER);
  wants_no_value("the key of another after it", get(c, theirs));
}

void case_a_batch_of_256_gets(void) {
  enum { COUNT = 256 };
  client *c = client_new();
  const key **keys = room(COUNT * sizeof *keys);
  const record **records = room(COUNT * sizeof *records);
  corral_op *ops = room(COUNT * sizeof *ops);
  for (size_t i = 0; i < COUNT; i++) {
    keys[i] = key_new("k");
    records[i] = record_new(keys[i], i * 3, (unsigned)i);
    ops[i] = op_of(CORRAL_VERB_CLAIM, keys[i], OWNER);
  }
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants_lease("one of 256 claims", sight_of(&ops[i], client_error(c)), OWNER);
  for (size_t i = 0; i < COUNT; i++) ops[i] = op_settle(keys[i], OWNER, records[i], LONG_MS);
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants("one of 256 settles", sight_of(&ops[i], client_error(c)).status, CORRAL_OK);
  for (size_t i = 0; i < COUNT; i++) ops[i] = op_of(CORRAL_VERB_GET, keys[i], 0);
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants_value("one of 256 GETs", sight_of(&ops[i], client_error(c)), records[i]);
  for (size_t i = 0; i < COUNT; i++) ops[i] = op_of(CORRAL_VERB_INVALIDATE, keys[i], 0);
  perform_all(c, ops, COUNT);
  for (size_t i = 0; i < COUNT; i++)
    wants("one of 256 invalidates", sight_of(&ops[i], client_error(c)).status, CORRAL_OK);
}

void case_a_batch_of_large_values(void) {
  enum { COUNT = 8, SIZE = 300000 };
  client *c = client_new();
  const key *keys[COUNT];
  const record *records[COUNT];
  corral_op ops[3 * COUNT];
  for (size_t i = 0; i < COUNT; i++) {
    keys[i] = key_new("k");
    records[i] = record_new(keys[i], SIZE + i, (unsigned)i);
    ops[3 * i] = op_of(CORRAL_VERB_CLAIM, keys[i], OWNER);
    ops[3 * i + 1] = op_settle(keys[i], OWNER, records[i], LONG_MS);
    ops[3 * i + 2] = op_of(CORRAL_VERB_GET, keys[i], 0);
  }
  perform_all(c, ops, sizeof ops / sizeof *ops);
  for (size_t i = 0; i < COUNT; i++) {
    wants_lease("a claim among large values", sight_of(&ops[3 * i], client_error(c)), OWNER);
    wants("a settle of a large value in a batch", sight_of(&ops[3 * i + 1], client_error(c)).status,
          CORRAL_OK);
    wants_value("GET of a large value in a batch", sight_of(&ops[3 * i + 2], client_error(c)),
                records[i]);
  }
}

/* A store without a server may succeed: it needs no time. */
void case_a_deadline_in_the_past_is_answered_at_once(void) {
  client *c = client_new();
  const key *cold = key_new("cold"), *warm = key_new("warm");
  const record *r = record_new(warm, 5000, 1);
  fill(c, warm, OWNER, r, LONG_MS);
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, cold, OWNER), op_of(CORRAL_VERB_GET, warm, 0)};
  int64_t from = now_ms();
  int status = client_perform(c, ops, 2, from - 1000);
  int64_t took = now_ms() - from;
  bool had = ops[1].found.record != NULL && ops[1].found.len == r->len &&
             host()->hash64(ops[1].found.record + CORRAL_HEAD, r->len - CORRAL_HEAD) == r->hash;
  op_drop(&ops[0]);
  op_drop(&ops[1]);
  check(took < 1000, "a batch whose deadline is over was answered after %lld ms", (long long)took);
  for (size_t i = 0; i < 2; i++)
    check(ops[i].status == CORRAL_OK || ops[i].status == CORRAL_EINDOUBT ||
              ops[i].status == CORRAL_EUNAVAILABLE,
          "operation %zu of a batch whose deadline is over: expected OK, EUNAVAILABLE or EINDOUBT, "
          "came %s",
          i + 1, corral_status_name(ops[i].status));
  check(ops[1].status != CORRAL_OK || had,
        "GET of a batch whose deadline is over was OK with other bytes than were settled");
  sight s = get(c, cold);
  check(ops[0].status != CORRAL_OK || is_leased(&s),
        "a claim whose deadline is over was OK, and there is no lease");
  check(ops[0].status != CORRAL_EUNAVAILABLE || !is_leased(&s),
        "a claim was EUNAVAILABLE (perform: %s), and there is a lease", corral_status_name(status));
  wants_value("GET after it", get(c, warm), r);
}
