/* test_memcached.c: the memcached plugin, through its table, on a real server: each verb. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../plugins/memcached/memcached.h"
#include "support/memcached_kit.h"
#include "support/memcached_server.h"

static memcached_server *server; /* shared by the tests that don't start their own */

/* Remaining life of an item by the server itself, in ms; -1: no such item. */
static long long ttl_ms(const char *key) {
  const char *text = memcached_server_ask(server, "mg %s t", key);
  return strncmp(text, "HD t", 4) == 0 ? strtoll(text + 4, NULL, 10) * 1000 : -1;
}

static int is_gone(const char *key) {
  return strcmp(memcached_server_ask(server, "get %s", key), "END") == 0;
}

static int stop(void **state) {
  (void)state;
  memcached_server_stop(server);
  server = NULL;
  return 0;
}

static void need_server(void) {
  if (server == NULL && !memcached_server_start(&server, NULL)) skip();
  memcached_server_ask(server, "flush_all");
}

/* Empties the server and opens a client of it; skips the test when there is no server. */
static client begin(void) {
  need_server();
  return opened(memcached_server_uri(server));
}

/* ---- each verb ----------------------------------------------------------------------------- */

static void a_cold_key_is_claimed_once_filled_and_read(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  assert_near(ttl_ms("k"), HOUR);
  sight s = looks(&c, "k");
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.size, 0);
  assert_int_equal(s.header.state, CORRAL_LEASED);
  assert_int_equal(s.life_ms, 0);
  assert_near(s.until_ms, HOUR);
  assert_int_equal(fills(&c, "k", 2, 10), CORRAL_ELOST);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_OK);
  s = looks(&c, "k");
  assert_int_equal(s.size, 10);
  assert_int_equal(s.header.state, CORRAL_FREE);
  assert_near(s.life_ms, HOUR);
  assert_int_equal(s.until_ms, 0);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_ELOST);
  closed(&c);
}

static void a_claim_that_is_mine_already_is_granted_again(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
}

static void a_claim_tells_who_holds_the_lease(void **state) {
  (void)state;
  client c = begin();
  corral_header wish = {.state = CORRAL_LEASED, .cost_ms = 77, .note = "host/12"};
  uint8_t front[CORRAL_FRONT];
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.claim.front = front;
  op.claim.front_len = crl_record_write(&wish, front);
  assert_int_equal(done(&c, &op), CORRAL_OK);
  sight s = sees(&c, op_of(CORRAL_VERB_CLAIM, "k", 2));
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_string_equal(s.header.note, "host/12");
  assert_int_equal(s.header.cost_ms, 77);
  assert_near(s.until_ms, HOUR);
  closed(&c);
}

static void a_lease_longer_than_the_payloads_life_keeps_that_life(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  corral_op renew = op_of(CORRAL_VERB_RENEW, "k", 1);
  renew.renew.ttl_ms = HOUR / 4;
  assert_int_equal(done(&c, &renew), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 2);
  op.claim.lease_ms = HOUR;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_near(ttl_ms("k"), HOUR);
  sight s = looks(&c, "k");
  assert_true(s.header.life_end > 0);
  assert_near(s.life_ms, HOUR / 4);
  assert_near(s.until_ms, HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_near(ttl_ms("k"), HOUR / 4);
  s = looks(&c, "k");
  assert_near(s.life_ms, HOUR / 4);
  closed(&c);
}

static void a_lease_is_extended_by_its_holder_only(void **state) {
  (void)state;
  client c = begin();
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.claim.lease_ms = HOUR / 4;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  op = op_of(CORRAL_VERB_EXTEND, "k", 1);
  op.extend.lease_ms = HOUR;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_near(looks(&c, "k").until_ms, HOUR);
  assert_near(ttl_ms("k"), HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "k", 2), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "nothing", 1), CORRAL_ELOST);
  closed(&c);
}

static void a_renew_gives_the_payload_a_new_life_by_its_holder_only(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_EMISS);
  assert_int_equal(looks(&c, "k").header.state, CORRAL_LEASED);
  assert_int_equal(fills(&c, "k", 1, 5000), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "k", 0), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 3), CORRAL_ELOST);
  corral_op op = op_of(CORRAL_VERB_RENEW, "k", 2);
  op.renew.ttl_ms = 3 * HOUR;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_near(ttl_ms("k"), 3 * HOUR);
  op = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(body_of(&op), 5000);
  for (size_t i = CORRAL_HEAD; i < CORRAL_HEAD + body_of(&op); i++)
    assert_int_equal(op.found.record[i], 1);
  dropped(&op);
  sight s = looks(&c, "k");
  assert_int_equal(s.header.state, CORRAL_FREE);
  assert_int_equal(s.header.flags, 0);
  assert_near(s.life_ms, 3 * HOUR);
  assert_int_equal(s.until_ms, 0);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 2), CORRAL_ELOST);
  closed(&c);
}

static void a_delete_or_an_invalidation_fences_a_renew(void **state) {
  (void)state;
  client c = begin(), other = opened(memcached_server_uri(server));
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 100);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  memcached_server_ask(server, "delete k");
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  assert_true(is_gone("k"));
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 100);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_INVALIDATE, "k", 0);
  assert_int_equal(done(&other, &op), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&other);
  closed(&c);
}

static void a_release_of_a_cold_key_leaves_nothing(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_OK);
  assert_true(is_gone("k"));
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_ELOST);
  closed(&c);
}

static void a_verdict_is_told_to_whoever_claims(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(verdict(&c, "k", 1, -42, HOUR / 2), CORRAL_OK);
  sight s = sees(&c, op_of(CORRAL_VERB_CLAIM, "k", 2));
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_int_equal(s.header.state, CORRAL_VERDICT);
  assert_int_equal(s.header.code, -42);
  assert_int_equal(s.header.failures, 3);
  assert_string_equal(s.header.note, "boom");
  assert_near(s.until_ms, HOUR / 2);
  assert_near(ttl_ms("k"), HOUR);
  closed(&c);
}

static void a_verdict_leaves_a_usable_payload_in_place(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  assert_int_equal(verdict(&c, "k", 2, 1, 2 * HOUR), CORRAL_OK);
  sight s = looks(&c, "k");
  assert_int_equal(s.size, 10);
  assert_near(s.life_ms, HOUR);
  assert_near(s.until_ms, 2 * HOUR);
  closed(&c);
}

static void expire_keeps_the_payload_and_voids_the_lease(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "k", 0), CORRAL_OK);
  sight s = looks(&c, "k");
  assert_int_equal(s.header.flags, CORRAL_FLAG_EXPIRED);
  assert_near(s.life_ms, HOUR);
  assert_int_equal(fills(&c, "k", 2, 10), CORRAL_ELOST);
  does(&c, CORRAL_VERB_CLAIM, "cold", 1);
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "cold", 0), CORRAL_OK);
  assert_int_equal(looks(&c, "cold").status, CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "nothing", 0), CORRAL_OK);
  closed(&c);
}

static void invalidate_voids_the_fill_under_way(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(does(&c, CORRAL_VERB_INVALIDATE, "k", 0), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_INVALIDATE, "k", 0), CORRAL_OK);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_ELOST);
  assert_int_equal(fills(&c, "k", 1, 100000), CORRAL_ELOST);
  assert_true(is_gone("k"));
  closed(&c);
}

/* ---- changes by other clients -------------------------------------------------------------- */

static void a_delete_by_anybody_voids_the_fill_under_way(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  memcached_server_ask(server, "delete k");
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_ELOST);
  assert_true(is_gone("k"));
  closed(&c);
}

static void a_value_set_by_anybody_is_foreign_and_left_alone(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(8, 1);
  const char *const values[] = {
      "hello", "",
      ("a text that is longer than the header of a record is, which has 128 bytes, so that "
       "nothing but its first four letters tells that corral didn't write it")};
  for (size_t i = 0; i < sizeof values / sizeof *values; i++)
    for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_EXPIRE; verb++) {
      corral_op op = op_of((corral_verb)verb, "k", 1);
      if (verb == CORRAL_VERB_SETTLE) op_brings(&op, record, CORRAL_HEAD + 8);
      memcached_server_ask(server, "set k 5 0 %zu\r\n%s", strlen(values[i]), values[i]);
      if (done(&c, &op) != CORRAL_EFOREIGN)
        fail_msg("value %zu, verb %d: %s", i, verb, corral_status_name(op.status));
      assert_non_null(strstr(memcached_server_ask(server, "get k"), values[i]));
    }
  does(&c, CORRAL_VERB_CLAIM, "fenced", 1);
  memcached_server_ask(server, "set fenced 0 0 1\r\nx");
  assert_int_equal(fills(&c, "fenced", 1, 10), CORRAL_EFOREIGN);
  free(record);
  closed(&c);
}

static void a_change_between_read_and_write_is_seen_and_decided_again(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  crl_memcached_key key;
  crl_memcached_encode(c.host, "k", 1, &key);
  const crl_memcached_key *keys[] = {&key};
  crl_memcached_request gets = {.command = CRL_MEMCACHED_GETS, .keys = keys, .count = 1};
  crl_memcached_item item;
  crl_memcached_refusal refusal;
  crl_memcached_word word;
  int sent;
  int64_t deadline = c.host->now_ms() + LIMIT;
  assert_int_equal(crl_memcached_send(c.handle, &gets, deadline, &sent, NULL), CORRAL_OK);
  assert_int_equal(crl_memcached_hear_items(c.handle, &gets, &item, deadline, &refusal, NULL),
                   CORRAL_OK);
  assert_true(item.exists && item.cas != 0);
  crl_memcached_request cas = {.command = CRL_MEMCACHED_CAS,
                               .keys = keys,
                               .count = 1,
                               .value = "new",
                               .size = 3,
                               .exptime = 60,
                               .cas = item.cas};
  memcached_server_ask(server, "touch k 100");
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_OK); /* the item now has another cas id */
  assert_int_equal(crl_memcached_send(c.handle, &cas, deadline, &sent, NULL), CORRAL_OK);
  assert_int_equal(crl_memcached_hear_word(c.handle, &cas, deadline, &word, &refusal, NULL),
                   CORRAL_OK);
  assert_int_equal(word, CRL_MEMCACHED_EXISTS);
  memcached_server_ask(server, "delete k");
  assert_int_equal(crl_memcached_send(c.handle, &cas, deadline, &sent, NULL), CORRAL_OK);
  assert_int_equal(crl_memcached_hear_word(c.handle, &cas, deadline, &word, &refusal, NULL),
                   CORRAL_OK);
  assert_int_equal(word, CRL_MEMCACHED_NOT_FOUND);
  cas.cas = 0; /* without a cas id the command guards nothing */
  assert_int_not_equal(crl_memcached_send(c.handle, &cas, deadline, &sent, NULL), CORRAL_OK);
  assert_false(sent);
  c.host->record_drop(item.bytes);
  closed(&c);
}

/* ---- lives --------------------------------------------------------------------------------- */

static void exptime_is_never_short_and_beyond_thirty_days_a_date(void **state) {
  (void)state;
  const int64_t now = INT64_C(1700000000000), day = INT64_C(86400000);
  assert_int_equal(crl_memcached_exptime(now, now), 2);
  assert_int_equal(crl_memcached_exptime(now, now - 5), 2);
  assert_int_equal(crl_memcached_exptime(now, now + 1), 2);
  assert_int_equal(crl_memcached_exptime(now, now + 1000), 2);
  assert_int_equal(crl_memcached_exptime(now, now + 1001), 3);
  assert_int_equal(crl_memcached_exptime(now, now + 30 * day - 1000), 2592000);
  assert_int_equal(crl_memcached_exptime(now, now + 30 * day), 1700000000 + 2 + 2592001);
  assert_int_equal(crl_memcached_exptime(now, now + 3650 * day), 1700000000 + 2 + 3650 * 86400 + 1);
  assert_int_equal(crl_memcached_exptime(now, now + 36500 * day), 2592000);
}

static void a_life_of_sixty_days_lasts_sixty_days(void **state) {
  (void)state;
  client c = begin();
  corral_op op = op_of(CORRAL_VERB_SETTLE, "k", 1);
  op.settle.ttl_ms = INT64_C(60) * 24 * HOUR;
  int64_t begun = c.host->now_ms();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(settles(&c, op, 10, 1), CORRAL_OK);
  sight s = looks(&c, "k");
  assert_int_equal(s.status, CORRAL_OK);
  assert_near(s.life_ms, op.settle.ttl_ms);
  long long left = ttl_ms("k");
  int64_t took = c.host->now_ms() - begun;
  if (left < op.settle.ttl_ms - took || left > op.settle.ttl_ms + 10000)
    fail_msg("the server keeps it for %lld ms", left);
  closed(&c);
}

static void a_life_of_milliseconds_ends_in_time_though_the_server_counts_seconds(void **state) {
  (void)state;
  client c = begin();
  corral_op op = op_of(CORRAL_VERB_SETTLE, "k", 1);
  op.settle.ttl_ms = 50;
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(settles(&c, op, 10, 1), CORRAL_OK);
  int64_t end = c.host->now_ms() + 50;
  while (c.host->now_ms() <= end + 1) continue;
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  /* over an item that still exists */
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_OK);
  int64_t begun;
  int status;
  do { /* anew where the lease was over before the second claim */
    does(&c, CORRAL_VERB_INVALIDATE, "lease", 0);
    op = op_of(CORRAL_VERB_CLAIM, "lease", 1);
    op.claim.lease_ms = 50;
    begun = c.host->now_ms();
    assert_int_equal(done(&c, &op), CORRAL_OK);
    status = does(&c, CORRAL_VERB_CLAIM, "lease", 2);
  } while (status == CORRAL_OK && c.host->now_ms() - begun >= 50);
  assert_int_equal(status, CORRAL_EBUSY);
  end = c.host->now_ms() + 50;
  while (c.host->now_ms() <= end + 1) continue;
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "lease", 2), CORRAL_OK);
  assert_int_equal(fills(&c, "lease", 1, 10), CORRAL_ELOST);
  closed(&c);
}

static void two_clients_agree_on_what_is_left(void **state) {
  (void)state;
  client a = begin(), b = opened(memcached_server_uri(server));
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.claim.lease_ms = 60000;
  int64_t begun = a.host->now_ms();
  assert_int_equal(done(&a, &op), CORRAL_OK);
  int64_t left = looks(&b, "k").until_ms, took = a.host->now_ms() - begun;
  /* the two clients read their clocks at different times */
  assert_true(left <= 60010 && left > 59000 - took);
  closed(&a);
  closed(&b);
}

/* ---- batches ------------------------------------------------------------------------------- */

static void a_batch_is_done_in_order(void **state) {
  (void)state;
  client c = begin();
  uint8_t *small = record_of(10, 1), *large = record_of(500000, 1);
  corral_op ops[] = {op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_CLAIM, "k", 1),
                     op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_SETTLE, "k", 1),
                     op_of(CORRAL_VERB_CLAIM, "k", 2),   op_of(CORRAL_VERB_SETTLE, "k", 2),
                     op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_EXTEND, "k", 2),
                     op_of(CORRAL_VERB_GET, "other", 0), op_of(CORRAL_VERB_GET, "k", 0)};
  const int expected[] = {CORRAL_EMISS, CORRAL_OK, CORRAL_OK,    CORRAL_OK,    CORRAL_OK,
                          CORRAL_OK,    CORRAL_OK, CORRAL_ELOST, CORRAL_EMISS, CORRAL_OK};
  ops[3].settle.record = small;
  ops[3].settle.record_len = CORRAL_HEAD + 10;
  ops[5].settle.record = large;
  ops[5].settle.record_len = CORRAL_HEAD + 500000;
  assert_int_equal(perform(&c, ops, 10), CORRAL_OK);
  for (size_t i = 0; i < 10; i++)
    if (ops[i].status != expected[i]) fail_msg("op %zu: %s", i, corral_status_name(ops[i].status));
  assert_int_equal(body_of(&ops[2]), 0);
  assert_int_equal(body_of(&ops[4]), 10);
  assert_int_equal(body_of(&ops[6]), 500000);
  assert_int_equal(body_of(&ops[9]), 500000);
  for (size_t i = 0; i < 10; i++) dropped(&ops[i]);
  free(small);
  free(large);
  closed(&c);
}

static void hundreds_of_operations_are_one_batch(void **state) {
  (void)state;
  enum { MANY = 200 };
  client c = begin();
  static char names[MANY][32];
  corral_op ops[MANY];
  const struct {
    corral_verb verb;
    int status;
  } rounds[] = {{CORRAL_VERB_GET, CORRAL_EMISS},     {CORRAL_VERB_CLAIM, CORRAL_OK},
                {CORRAL_VERB_GET, CORRAL_OK},        {CORRAL_VERB_EXTEND, CORRAL_OK},
                {CORRAL_VERB_RELEASE, CORRAL_OK},    {CORRAL_VERB_EXTEND, CORRAL_ELOST},
                {CORRAL_VERB_INVALIDATE, CORRAL_OK}, {CORRAL_VERB_EXPIRE, CORRAL_OK}};
  for (size_t round = 0; round < sizeof rounds / sizeof *rounds; round++) {
    for (int i = 0; i < MANY; i++) {
      snprintf(names[i], sizeof names[i], "key %d", i);
      ops[i] = op_of(rounds[round].verb, names[i], 1);
    }
    assert_int_equal(perform(&c, ops, MANY), CORRAL_OK);
    for (int i = 0; i < MANY; i++) {
      if (ops[i].status != rounds[round].status)
        fail_msg("round %zu, op %d: %s", round, i, corral_status_name(ops[i].status));
      dropped(&ops[i]);
    }
  }
  closed(&c);
}

/* Number of commands that the server counted while `ops` were performed. */
static long long commands(client *c, corral_op *ops, size_t count) {
  long long before =
      memcached_server_stat(server, "cmd_get") + memcached_server_stat(server, "cmd_set");
  assert_int_equal(perform(c, ops, count), CORRAL_OK);
  for (size_t i = 0; i < count; i++) dropped(&ops[i]);
  return memcached_server_stat(server, "cmd_get") + memcached_server_stat(server, "cmd_set") -
         before;
}

static void a_hit_is_one_command_and_so_is_a_cold_claim(void **state) {
  (void)state;
  client c = begin();
  corral_op claim = op_of(CORRAL_VERB_CLAIM, "k", 1), get = op_of(CORRAL_VERB_GET, "k", 0),
            extend = op_of(CORRAL_VERB_EXTEND, "k", 1);
  assert_int_equal(commands(&c, &claim, 1), 1);
  assert_int_equal(commands(&c, &get, 1), 1);
  assert_int_equal(commands(&c, &extend, 1), 2);
  corral_op many[64];
  for (size_t i = 0; i < 64; i++) many[i] = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(commands(&c, many, 64), 1);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_key_is_claimed_once_filled_and_read),
      cmocka_unit_test(a_claim_that_is_mine_already_is_granted_again),
      cmocka_unit_test(a_claim_tells_who_holds_the_lease),
      cmocka_unit_test(a_lease_longer_than_the_payloads_life_keeps_that_life),
      cmocka_unit_test(a_lease_is_extended_by_its_holder_only),
      cmocka_unit_test(a_renew_gives_the_payload_a_new_life_by_its_holder_only),
      cmocka_unit_test(a_delete_or_an_invalidation_fences_a_renew),
      cmocka_unit_test(a_release_of_a_cold_key_leaves_nothing),
      cmocka_unit_test(a_verdict_is_told_to_whoever_claims),
      cmocka_unit_test(a_verdict_leaves_a_usable_payload_in_place),
      cmocka_unit_test(expire_keeps_the_payload_and_voids_the_lease),
      cmocka_unit_test(invalidate_voids_the_fill_under_way),
      cmocka_unit_test(a_delete_by_anybody_voids_the_fill_under_way),
      cmocka_unit_test(a_value_set_by_anybody_is_foreign_and_left_alone),
      cmocka_unit_test(a_change_between_read_and_write_is_seen_and_decided_again),
      cmocka_unit_test(exptime_is_never_short_and_beyond_thirty_days_a_date),
      cmocka_unit_test(a_life_of_sixty_days_lasts_sixty_days),
      cmocka_unit_test(a_life_of_milliseconds_ends_in_time_though_the_server_counts_seconds),
      cmocka_unit_test(two_clients_agree_on_what_is_left),
      cmocka_unit_test(a_batch_is_done_in_order),
      cmocka_unit_test(hundreds_of_operations_are_one_batch),
      cmocka_unit_test(a_hit_is_one_command_and_so_is_a_cold_claim),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
