/* test_redis.c: the Redis plugin, through its table, on a real server: each verb, and its number of
 * round trips. */
#include "support/redis_kit.h"

#include "record/envelope.h"

#include <openssl/sha.h>

#include "../plugins/redis/redis.h"

/* ---- each verb ----------------------------------------------------------------------------- */

static void a_cold_key_is_claimed_once_filled_and_read(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  assert_near(pttl("k"), HOUR);
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

static void a_claim_of_a_payload_that_was_seen_brings_the_header_only(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(fills(&c, "k", 1, 1000), CORRAL_OK);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 2);
  op.claim.seen = UINT64_C(0x0101010101010101);
  sight s = sees(&c, op);
  assert_int_equal(s.status, CORRAL_OK);
  assert_true(s.same);
  assert_int_equal(s.size, 1000);
  assert_near(s.life_ms, HOUR);
  op.claim.seen++;
  s = sees(&c, op);
  assert_false(s.same);
  assert_int_equal(s.size, 1000);
  assert_int_equal(s.header.state, CORRAL_LEASED);
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
  assert_near(pttl("k"), HOUR);
  sight s = looks(&c, "k");
  assert_true(s.header.life_end > 0);
  assert_near(s.life_ms, HOUR / 4);
  assert_near(s.until_ms, HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_near(pttl("k"), HOUR / 4);
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
  assert_near(pttl("k"), HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "k", 2), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "nothing", 1), CORRAL_ELOST);
  closed(&c);
}

static void a_release_of_a_cold_key_leaves_nothing(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_ELOST);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 1), CORRAL_OK);
  assert_string_equal(redis_server_ask(server, "DBSIZE"), "0");
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
  assert_near(pttl("k"), HOUR);
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
  assert_string_equal(redis_server_ask(server, "DBSIZE"), "0");
  closed(&c);
}

static void a_plain_del_of_another_client_voids_the_fill_under_way(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  redis_server_ask(server, "DEL k");
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_ELOST);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&c);
}

/* ---- large values and unusual keys --------------------------------------------------------- */

static void a_large_fill_is_staged_and_leaves_no_trace(void **state) {
  (void)state;
  client c = begin();
  const char *keys[] = {"plain", "{tagged}:x", "open{", "close}", "{}empty"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    does(&c, CORRAL_VERB_CLAIM, keys[i], 1);
    assert_int_equal(fills(&c, keys[i], 1, 100000), CORRAL_OK);
    assert_near(pttl(keys[i]), HOUR);
    assert_int_equal(looks(&c, keys[i]).size, 100000);
  }
  assert_int_equal(strtol(redis_server_ask(server, "DBSIZE"), NULL, 10),
                   sizeof keys / sizeof *keys);
  closed(&c);
}

static void sixteen_mebibytes_come_back_as_they_were(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(settles(&c, "k", 1, 1, 16 * MIB, 0xa5), CORRAL_OK);
  for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_CLAIM; verb++) {
    corral_op op = op_of((corral_verb)verb, "k", 2);
    assert_int_equal(perform(&c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
    assert_int_equal(body_of(&op), 16 * MIB);
    for (size_t i = CORRAL_HEAD; i < CORRAL_HEAD + body_of(&op); i++)
      if (op.found.record[i] != 0xa5) fail_msg("byte %zu is %d", i, op.found.record[i]);
    dropped(&op);
  }
  closed(&c);
}

static void a_key_is_any_64_kib_of_bytes(void **state) {
  (void)state;
  client c = begin();
  static char key[65536];
  for (size_t i = 0; i < sizeof key; i++) key[i] = (char)(i % 251 == '}' ? 0 : i % 251);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "", 1);
  op.key = key;
  op.key_len = sizeof key;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_int_equal(settles(&c, key, sizeof key, 1, 50000, 1), CORRAL_OK);
  op.verb = CORRAL_VERB_GET;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  op.key_len--;
  assert_int_equal(done(&c, &op), CORRAL_EMISS);
  closed(&c);
}

/* A look without PTTL can't tell an empty string from no key; all others can. */
static void somebody_elses_key_is_left_alone(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(8, 1);
  redis_server_ask(server, "LPUSH list a");
  redis_server_ask(server, "SET text hello");
  redis_server_ask(server, "SET empty %b", "", (size_t)0);
  redis_server_ask(server, "SET long %0200d", 7);
  const char *keys[] = {"list", "text", "empty", "long"};
  for (size_t i = 0; i < 4; i++)
    for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_RENEW; verb++) {
      corral_op op = op_of((corral_verb)verb, keys[i], 1);
      if (verb == CORRAL_VERB_SETTLE) op_brings(&op, record, CORRAL_HEAD + 8);
      int is_blind = verb == CORRAL_VERB_GET && strcmp(keys[i], "empty") == 0;
      int status = done(&c, &op);
      if (status != CORRAL_EFOREIGN && !(is_blind && status == CORRAL_EMISS))
        fail_msg("%s, verb %d: %s", keys[i], verb, corral_status_name(op.status));
    }
  for (size_t i = 0; i < 4; i++) assert_int_equal(invalidates(&c, keys[i]), CORRAL_EFOREIGN);
  assert_string_equal(redis_server_ask(server, "DBSIZE"), "4");
  assert_string_equal(redis_server_ask(server, "GET text"), "hello");
  free(record);
  closed(&c);
}

static void a_record_above_512_mib_is_not_sent(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(8, 1);
  corral_op op = op_of(CORRAL_VERB_SETTLE, "k", 1);
  op.settle.record = record;
  op.settle.record_len = ((size_t)512 << 20) + 1;
  assert_int_equal(done(&c, &op), CORRAL_ETOOBIG);
  free(record);
  closed(&c);
}

static void a_server_that_takes_less_says_too_big(void **state) {
  (void)state;
  const char *const args[] = {"--proto-max-bulk-len", "1mb", NULL};
  redis_server *small;
  if (!redis_server_start(&small, args)) skip();
  client c = opened(redis_server_uri(small));
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  uint8_t *record = record_of(8 * MIB, 1);
  corral_op op = op_of(CORRAL_VERB_SETTLE, "k", 1);
  op.settle.record = record;
  op.settle.record_len = CORRAL_HEAD + 8 * MIB;
  assert_int_not_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_ETOOBIG);
  free(record);
  closed(&c);
  redis_server_stop(small);
}

/* Memory that the server needs for a key with a TTL, without that of its connections. MEMORY USAGE
 * leaves out the entry in the table of expiries, and the buckets of both tables. */
static long long memory_of(const char *key) {
  enum { ENTRY = 24, BUCKET = 8 };
  return strtoll(redis_server_ask(server, "MEMORY USAGE %s", key), NULL, 10) + ENTRY + 2 * BUCKET;
}

static void a_value_of_100_bytes_takes_at_most_two_fifths_more_than_a_plain_one(void **state) {
  (void)state;
  client c = begin();
  uint8_t record[1024], digest[CORRAL_DIGEST] = {1}, payload[100];
  crl_envelope envelope = {.kind = CRL_KIND_VALUE,
                           .ttl_ms = 57123,
                           .swr_ms = 600000,
                           .created_ms = INT64_C(1795338303458),
                           .cost_us = 123456,
                           .digest = digest,
                           .payload_len = sizeof payload};
  memset(payload, 'x', sizeof payload);
  memcpy(record + CRL_PAYLOAD_AT, payload, sizeof payload);
  crl_envelope_write(&envelope, record);
  corral_op op = op_of(CORRAL_VERB_SETTLE, "users:100001", 1);
  op.settle.record = record;
  op.settle.record_len = crl_envelope_size(&envelope);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "users:100001", 1), CORRAL_OK);
  assert_int_equal(done(&c, &op), CORRAL_OK);
  redis_server_ask(server, "SET users:100000 %b PX %d", payload, sizeof payload, HOUR);
  long long plain = memory_of("users:100000"), ours = memory_of("users:100001");
  print_message("           %lld bytes a key, a plain one %lld\n", ours, plain);
  assert_true(plain > 0 && 5 * ours <= 7 * plain);
  closed(&c);
}

/* ---- batches, round trips, scripts --------------------------------------------------------- */

static void a_batch_is_done_in_order(void **state) {
  (void)state;
  client c = begin();
  uint8_t *small = record_of(10, 1), *large = record_of(MIB, 1);
  for (int flushed = 0; flushed < 2; flushed++) {
    redis_server_ask(server, "FLUSHALL");
    if (flushed) redis_server_ask(server, "SCRIPT FLUSH");
    corral_op ops[] = {op_of(CORRAL_VERB_GET, "k", 0),    op_of(CORRAL_VERB_CLAIM, "k", 1),
                       op_of(CORRAL_VERB_GET, "k", 0),    op_of(CORRAL_VERB_SETTLE, "k", 1),
                       op_of(CORRAL_VERB_CLAIM, "k", 2),  op_of(CORRAL_VERB_SETTLE, "k", 2),
                       op_of(CORRAL_VERB_GET, "k", 0),    op_of(CORRAL_VERB_EXTEND, "k", 2),
                       op_of(CORRAL_VERB_GET, "other", 0)};
    const int expected[] = {CORRAL_EMISS, CORRAL_OK, CORRAL_OK,    CORRAL_OK,   CORRAL_OK,
                            CORRAL_OK,    CORRAL_OK, CORRAL_ELOST, CORRAL_EMISS};
    ops[3].settle.record = small;
    ops[3].settle.record_len = CORRAL_HEAD + 10;
    ops[5].settle.record = large;
    ops[5].settle.record_len = CORRAL_HEAD + MIB;
    assert_int_equal(perform(&c, ops, 9), CORRAL_OK);
    for (size_t i = 0; i < 9; i++)
      if (ops[i].status != expected[i])
        fail_msg("flushed %d, op %zu: %s", flushed, i, corral_status_name(ops[i].status));
    assert_int_equal(body_of(&ops[2]), 0);
    assert_int_equal(body_of(&ops[4]), 10);
    assert_int_equal(body_of(&ops[6]), MIB);
    for (size_t i = 0; i < 9; i++) dropped(&ops[i]);
  }
  free(small);
  free(large);
  closed(&c);
}

static void half_of_the_scripts_missing_does_no_harm(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(10, 1);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  redis_server_ask(server, "SCRIPT FLUSH");
  redis_server_ask(server, "SCRIPT LOAD %s", crl_redis_script_get(CRL_REDIS_SETTLE)->text);
  corral_op ops[] = {op_of(CORRAL_VERB_EXTEND, "k", 1), op_of(CORRAL_VERB_SETTLE, "k", 1),
                     op_of(CORRAL_VERB_CLAIM, "k", 2)};
  ops[1].settle.record = record;
  ops[1].settle.record_len = CORRAL_HEAD + 10;
  assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
  assert_int_equal(ops[1].status, CORRAL_OK);
  assert_int_equal(ops[2].status, CORRAL_OK);
  assert_int_equal(body_of(&ops[2]), 10);
  dropped(&ops[2]);
  free(record);
  closed(&c);
}

/* INVALIDATE, CLAIM, SETTLE as one batch, with every subset of the scripts missing on the server:
 * the value must be stored at the end. */
static void a_value_that_is_set_is_there_whatever_scripts_are_missing(void **state) {
  (void)state;
  static const crl_redis_script_id ids[] = {CRL_REDIS_INVALIDATE, CRL_REDIS_CLAIM,
                                            CRL_REDIS_SETTLE};
  client c = begin();
  uint8_t *record = record_of(10, 1);
  for (unsigned known = 0; known < 8; known++) {
    redis_server_ask(server, "FLUSHALL");
    redis_server_ask(server, "SCRIPT FLUSH");
    for (int i = 0; i < 3; i++)
      if ((known >> i & 1) != 0)
        redis_server_ask(server, "SCRIPT LOAD %s", crl_redis_script_get(ids[i])->text);
    corral_op ops[] = {op_of(CORRAL_VERB_INVALIDATE, "k", 0), op_of(CORRAL_VERB_CLAIM, "k", 1),
                       op_of(CORRAL_VERB_SETTLE, "k", 1), op_of(CORRAL_VERB_GET, "k", 0)};
    ops[2].settle.record = record;
    ops[2].settle.record_len = CORRAL_HEAD + 10;
    assert_int_equal(perform(&c, ops, 4), CORRAL_OK);
    for (int i = 0; i < 4; i++) assert_int_equal(ops[i].status, CORRAL_OK);
    assert_int_equal(body_of(&ops[3]), 10);
    assert_true(ops[3].state.life_ms > 0 && ops[3].state.left_ms == 0);
    dropped(&ops[1]);
    dropped(&ops[3]);
  }
  free(record);
  closed(&c);
}

static void the_digests_are_those_of_the_scripts(void **state) {
  (void)state;
  for (int id = 0; id < CRL_REDIS_SCRIPTS; id++) {
    const crl_redis_script *script = crl_redis_script_get((crl_redis_script_id)id);
    unsigned char digest[20];
    char hex[41];
    SHA1((const unsigned char *)script->text, strlen(script->text), digest);
    for (size_t i = 0; i < sizeof digest; i++) snprintf(hex + 2 * i, 3, "%02x", digest[i]);
    assert_string_equal(script->sha1, hex);
  }
}

static void a_restarted_server_breaks_the_handle_and_serves_the_next(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  redis_server_restart(server);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(perform(&c, &op, 1), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  crl_plugin_redis.disconnect(c.handle);
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + LIMIT, &c.handle, &c.error),
                   CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
}

static void a_stopped_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  client c = begin();
  redis_server_pause(server);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.status = CORRAL_EINDOUBT;
  assert_int_not_equal(
      perform_ops(&crl_plugin_redis, c.handle, &op, 1, c.host->now_ms() + 4000, &c.error),
      CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  redis_server_resume(server);
  closed(&c);
}

static void a_hit_and_each_script_is_one_round_trip(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(2000, 1);
  for (int i = 0; i < 2; i++) { /* in the second round the server knows the scripts */
    corral_op claim = op_of(CORRAL_VERB_CLAIM, "k", 1), settle = op_of(CORRAL_VERB_SETTLE, "k", 1);
    corral_op get = op_of(CORRAL_VERB_GET, "k", 0);
    settle.settle.record = record;
    settle.settle.record_len = CORRAL_HEAD + 2000;
    long long count[3] = {reads(&c, &claim, 1), reads(&c, &settle, 1), reads(&c, &get, 1)};
    if (i == 0) continue;
    assert_int_equal(count[0], 1);
    assert_int_equal(count[1], 1);
    assert_int_equal(count[2], 1);
  }
  corral_op forgets[] = {op_of(CORRAL_VERB_INVALIDATE, "k", 0), op_of(CORRAL_VERB_CLAIM, "k", 1),
                         op_of(CORRAL_VERB_SETTLE, "k", 1)};
  forgets[2].settle.record = record;
  forgets[2].settle.record_len = CORRAL_HEAD + 2000;
  reads(&c, forgets, 3);
  assert_int_equal(reads(&c, forgets, 3), 1);
  for (size_t i = 0; i < 3; i++) assert_int_equal(forgets[i].status, CORRAL_OK);
  corral_op many[64];
  for (size_t i = 0; i < 64; i++) many[i] = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(reads(&c, many, 64), 1);
  free(record);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_cold_key_is_claimed_once_filled_and_read),
      cmocka_unit_test(a_claim_that_is_mine_already_is_granted_again),
      cmocka_unit_test(a_claim_tells_who_holds_the_lease),
      cmocka_unit_test(a_claim_of_a_payload_that_was_seen_brings_the_header_only),
      cmocka_unit_test(a_lease_longer_than_the_payloads_life_keeps_that_life),
      cmocka_unit_test(a_lease_is_extended_by_its_holder_only),
      cmocka_unit_test(a_release_of_a_cold_key_leaves_nothing),
      cmocka_unit_test(a_verdict_is_told_to_whoever_claims),
      cmocka_unit_test(a_verdict_leaves_a_usable_payload_in_place),
      cmocka_unit_test(expire_keeps_the_payload_and_voids_the_lease),
      cmocka_unit_test(invalidate_voids_the_fill_under_way),
      cmocka_unit_test(a_plain_del_of_another_client_voids_the_fill_under_way),
      cmocka_unit_test(a_large_fill_is_staged_and_leaves_no_trace),
      cmocka_unit_test(sixteen_mebibytes_come_back_as_they_were),
      cmocka_unit_test(a_key_is_any_64_kib_of_bytes),
      cmocka_unit_test(somebody_elses_key_is_left_alone),
      cmocka_unit_test(a_value_of_100_bytes_takes_at_most_two_fifths_more_than_a_plain_one),
      cmocka_unit_test(a_record_above_512_mib_is_not_sent),
      cmocka_unit_test(a_server_that_takes_less_says_too_big),
      cmocka_unit_test(a_batch_is_done_in_order),
      cmocka_unit_test(half_of_the_scripts_missing_does_no_harm),
      cmocka_unit_test(a_value_that_is_set_is_there_whatever_scripts_are_missing),
      cmocka_unit_test(the_digests_are_those_of_the_scripts),
      cmocka_unit_test(a_restarted_server_breaks_the_handle_and_serves_the_next),
      cmocka_unit_test(a_stopped_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_hit_and_each_script_is_one_round_trip),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
