/* test_redis.c: the Redis plugin, through its table, on a real server. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>

#include <cmocka.h>
#include <openssl/sha.h>
#include <pthread.h>

#include "../plugins/redis/redis.h"
#include "record.h"
#include "registry.h"
#include "support/redis_server.h"
#include "uri.h"

extern const corral_store crl_plugin_redis;

enum { HOUR = 3600000, LIMIT = 5000, SLACK = 3000, MIB = 1 << 20 };

static redis_server *server; /* of all tests that need no other */

/* ---- a client, and one line for each verb ------------------------------------------------------------------- */

typedef struct client {
  const corral_host *host;
  void *store, *handle;
  corral_store_info info;
  corral_error error;
} client;

/* The status of opening and connecting, with the text in c->error. */
static int try_open(client *c, const char *text) {
  crl_uri uri;
  memset(c, 0, sizeof *c);
  c->host = crl_registry_host();
  c->info.size = sizeof c->info;
  int status = crl_uri_parse(&uri, text, &c->error);
  if (status != CORRAL_OK) return status;
  status = crl_plugin_redis.open(c->host, &uri.view, &c->store, &c->info, &c->error);
  crl_uri_free(&uri);
  if (status != CORRAL_OK) return status;
  return crl_plugin_redis.connect(c->store, c->host->now_ms() + LIMIT, &c->handle, &c->error);
}

static client opened(const char *text) {
  client c;
  if (try_open(&c, text) != CORRAL_OK) fail_msg("%s: %s", text, c.error.text);
  return c;
}

static void closed(client *c) {
  if (c->handle != NULL) crl_plugin_redis.disconnect(c->handle);
  if (c->store != NULL) crl_plugin_redis.close(c->store);
}

static int perform(client *c, corral_op *ops, size_t count) {
  for (size_t i = 0; i < count; i++) {
    ops[i].status = CORRAL_EUNKNOWN;
    ops[i].error = &c->error;
  }
  return crl_plugin_redis.perform(c->handle, ops, count, c->host->now_ms() + LIMIT, &c->error);
}

static void dropped(corral_op *op) {
  if (op->found != NULL) op->found_free(op->found_owner);
  op->found = NULL;
}

static const uint8_t *token(unsigned number) {
  static uint8_t tokens[256][CORRAL_TOKEN];
  memset(tokens[number & 255], (int)(number & 255) + 1, CORRAL_TOKEN);
  return tokens[number & 255];
}

static corral_op op_of(corral_verb verb, const char *key, unsigned holder) {
  return (corral_op){.verb = (uint32_t)verb, .key = key, .key_len = strlen(key), .token = token(holder), .lease_ms = HOUR,
                     .ttl_ms = HOUR};
}

/* Performs one op, drops what it found; its status. The handle must stay usable. */
static int done(client *c, corral_op *op) {
  assert_int_equal(perform(c, op, 1), CORRAL_OK);
  int status = op->status;
  dropped(op);
  return status;
}

static int does(client *c, corral_verb verb, const char *key, unsigned holder) {
  corral_op op = op_of(verb, key, holder);
  return done(c, &op);
}

/* A FREE record with `size` bytes of payload; the caller's. */
static uint8_t *record_of(size_t size, uint8_t fill) {
  corral_header header = {0};
  uint8_t *record = malloc(CORRAL_HEADER + size);
  assert_non_null(record);
  crl_record_write(&header, record);
  memset(record + CORRAL_HEADER, fill, size);
  return record;
}

static int settles(client *c, const char *key, size_t key_len, unsigned holder, size_t size, uint8_t fill) {
  uint8_t *record = record_of(size, fill);
  corral_op op = op_of(CORRAL_VERB_SETTLE, "", holder);
  op.key = key;
  op.key_len = key_len;
  op.record = record;
  op.record_len = CORRAL_HEADER + size;
  int status = done(c, &op);
  free(record);
  return status;
}

static int fills(client *c, const char *key, unsigned holder, size_t size) {
  return settles(c, key, strlen(key), holder, size, (uint8_t)holder);
}

static int verdict(client *c, const char *key, unsigned holder, int32_t code, int64_t rules_ms) {
  corral_header header = {.code = code, .failures = 3, .note = "boom"};
  uint8_t record[CORRAL_HEADER];
  crl_record_write(&header, record);
  corral_op op = op_of(CORRAL_VERB_RELEASE, key, holder);
  op.record = record;
  op.record_len = sizeof record;
  op.lease_ms = rules_ms;
  return done(c, &op);
}

/* The header and lives that GET or CLAIM tells of a key. */
typedef struct sight {
  int status, same;
  size_t size;
  corral_header header;
  int64_t life_ms, until_ms;
} sight;

static sight sees(client *c, corral_op op) {
  sight s = {0};
  assert_int_equal(perform(c, &op, 1), CORRAL_OK);
  s.status = op.status;
  s.same = op.same;
  s.size = op.found_len;
  s.life_ms = op.life_ms;
  s.until_ms = op.until_ms;
  if (op.found != NULL) assert_int_equal(crl_record_read(op.found, op.found_len, &s.header), CORRAL_OK);
  dropped(&op);
  return s;
}

static sight looks(client *c, const char *key) { return sees(c, op_of(CORRAL_VERB_GET, key, 0)); }

static long long pttl(const char *key) { return strtoll(redis_server_ask(server, "PTTL %s", key), NULL, 10); }

static void assert_near(int64_t a, int64_t b) {
  if (a > b + SLACK || a < b - SLACK) fail_msg("%lld is not about %lld", (long long)a, (long long)b);
}

static int start(void **state) {
  (void)state;
  if (server == NULL && !redis_server_start(&server, NULL)) skip();
  redis_server_ask(server, "FLUSHALL");
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_server_stop(server);
  server = NULL;
  return 0;
}

/* Each test has the server empty, or is skipped. */
static client begin(void) {
  start(NULL);
  return opened(redis_server_uri(server));
}

/* ---- each verb ---------------------------------------------------------------------------------------------- */

static void a_cold_key_is_claimed_once_filled_and_read(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  assert_near(pttl("k"), HOUR);
  sight s = looks(&c, "k");
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(s.size, CORRAL_HEADER);
  assert_int_equal(s.header.state, CORRAL_LEASED);
  assert_int_equal(s.life_ms, 0);
  assert_near(s.until_ms, HOUR);
  assert_int_equal(fills(&c, "k", 2, 10), CORRAL_ELOST);
  assert_int_equal(fills(&c, "k", 1, 10), CORRAL_OK);
  s = looks(&c, "k");
  assert_int_equal(s.size, CORRAL_HEADER + 10);
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
  corral_header wish = {.cost_ms = 77, .note = "host/12"};
  uint8_t record[CORRAL_HEADER];
  crl_record_write(&wish, record);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.record = record;
  op.record_len = sizeof record;
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
  op.seen = UINT64_C(0x0101010101010101);
  sight s = sees(&c, op);
  assert_int_equal(s.status, CORRAL_OK);
  assert_true(s.same);
  assert_int_equal(s.size, CORRAL_HEADER);
  assert_near(s.life_ms, HOUR);
  op.seen++;
  s = sees(&c, op);
  assert_false(s.same);
  assert_int_equal(s.size, CORRAL_HEADER + 1000);
  assert_int_equal(s.header.state, CORRAL_LEASED);
  closed(&c);
}

static void a_lease_longer_than_the_payloads_life_keeps_that_life(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 2);
  op.lease_ms = 3 * HOUR;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_near(pttl("k"), 3 * HOUR);
  sight s = looks(&c, "k");
  assert_true(s.header.life_end > 0);
  assert_near(s.life_ms, HOUR);
  assert_near(s.until_ms, 3 * HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_near(pttl("k"), HOUR);
  s = looks(&c, "k");
  assert_int_equal(s.header.life_end, 0);
  assert_near(s.life_ms, HOUR);
  closed(&c);
}

static void a_lease_is_extended_by_its_holder_only(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  corral_op op = op_of(CORRAL_VERB_EXTEND, "k", 1);
  op.lease_ms = 5 * HOUR;
  assert_int_equal(done(&c, &op), CORRAL_OK);
  assert_near(looks(&c, "k").until_ms, 5 * HOUR);
  assert_near(pttl("k"), 5 * HOUR);
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
  assert_int_equal(s.size, CORRAL_HEADER + 10);
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

/* ---- large and strange -------------------------------------------------------------------------------------- */

static void a_large_fill_is_staged_and_leaves_no_trace(void **state) {
  (void)state;
  client c = begin();
  const char *keys[] = {"plain", "{tagged}:x", "open{", "close}", "{}empty"};
  for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
    does(&c, CORRAL_VERB_CLAIM, keys[i], 1);
    assert_int_equal(fills(&c, keys[i], 1, 100000), CORRAL_OK);
    assert_near(pttl(keys[i]), HOUR);
    assert_int_equal(looks(&c, keys[i]).size, CORRAL_HEADER + 100000);
  }
  assert_int_equal(strtol(redis_server_ask(server, "DBSIZE"), NULL, 10), sizeof keys / sizeof *keys);
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
    assert_int_equal(op.found_len, CORRAL_HEADER + 16 * MIB);
    for (size_t i = CORRAL_HEADER; i < op.found_len; i++)
      if (op.found[i] != 0xa5) fail_msg("byte %zu is %d", i, op.found[i]);
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
    for (int verb = CORRAL_VERB_GET; verb <= CORRAL_VERB_EXPIRE; verb++) {
      corral_op op = op_of((corral_verb)verb, keys[i], 1);
      op.record = verb == CORRAL_VERB_SETTLE ? record : NULL;
      op.record_len = CORRAL_HEADER + 8;
      if (done(&c, &op) != CORRAL_EFOREIGN) fail_msg("%s, verb %d: %s", keys[i], verb, corral_status_name(op.status));
    }
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
  op.record = record;
  op.record_len = ((size_t)512 << 20) + 1;
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
  op.record = record;
  op.record_len = CORRAL_HEADER + 8 * MIB;
  assert_int_not_equal(perform(&c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_ETOOBIG);
  free(record);
  closed(&c);
  redis_server_stop(small);
}

/* ---- batches, round trips, scripts -------------------------------------------------------------------------- */

static void a_batch_is_done_in_order(void **state) {
  (void)state;
  client c = begin();
  uint8_t *small = record_of(10, 1), *large = record_of(MIB, 1);
  for (int flushed = 0; flushed < 2; flushed++) {
    redis_server_ask(server, "FLUSHALL");
    if (flushed) redis_server_ask(server, "SCRIPT FLUSH");
    corral_op ops[] = {op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_CLAIM, "k", 1),
                       op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_SETTLE, "k", 1),
                       op_of(CORRAL_VERB_CLAIM, "k", 2),   op_of(CORRAL_VERB_SETTLE, "k", 2),
                       op_of(CORRAL_VERB_GET, "k", 0),     op_of(CORRAL_VERB_EXTEND, "k", 2),
                       op_of(CORRAL_VERB_GET, "other", 0)};
    const int expected[] = {CORRAL_EMISS, CORRAL_OK, CORRAL_OK, CORRAL_OK, CORRAL_OK,
                            CORRAL_OK,    CORRAL_OK, CORRAL_ELOST, CORRAL_EMISS};
    ops[3].record = small;
    ops[3].record_len = CORRAL_HEADER + 10;
    ops[5].record = large;
    ops[5].record_len = CORRAL_HEADER + MIB;
    assert_int_equal(perform(&c, ops, 9), CORRAL_OK);
    for (size_t i = 0; i < 9; i++)
      if (ops[i].status != expected[i]) fail_msg("flushed %d, op %zu: %s", flushed, i, corral_status_name(ops[i].status));
    assert_int_equal(ops[2].found_len, CORRAL_HEADER);
    assert_int_equal(ops[4].found_len, CORRAL_HEADER + 10);
    assert_int_equal(ops[6].found_len, CORRAL_HEADER + MIB);
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
  corral_op ops[] = {op_of(CORRAL_VERB_EXTEND, "k", 1), op_of(CORRAL_VERB_SETTLE, "k", 1), op_of(CORRAL_VERB_CLAIM, "k", 2)};
  ops[1].record = record;
  ops[1].record_len = CORRAL_HEADER + 10;
  assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
  assert_int_equal(ops[1].status, CORRAL_OK);
  assert_int_equal(ops[2].status, CORRAL_OK);
  assert_int_equal(ops[2].found_len, CORRAL_HEADER + 10);
  dropped(&ops[2]);
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
  assert_int_equal(crl_plugin_redis.connect(c.store, c.host->now_ms() + LIMIT, &c.handle, &c.error), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
}

static void a_stopped_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  client c = begin();
  redis_server_pause(server);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.status = CORRAL_EUNKNOWN;
  int64_t before = c.host->now_ms();
  assert_int_not_equal(crl_plugin_redis.perform(c.handle, &op, 1, before + 50, &c.error), CORRAL_OK);
  assert_true(c.host->now_ms() - before < 1000);
  assert_int_equal(op.status, CORRAL_EUNKNOWN);
  redis_server_resume(server);
  closed(&c);
}

/* How many times the server read from its clients while `ops` were performed. */
static long long reads(client *c, corral_op *ops, size_t count) {
  long long before = redis_server_info(server, "total_reads_processed");
  assert_int_equal(perform(c, ops, count), CORRAL_OK);
  for (size_t i = 0; i < count; i++) dropped(&ops[i]);
  return redis_server_info(server, "total_reads_processed") - before - 1;
}

static void a_hit_and_each_script_is_one_round_trip(void **state) {
  (void)state;
  client c = begin();
  uint8_t *record = record_of(2000, 1);
  for (int i = 0; i < 2; i++) { /* the second time the server knows the scripts */
    corral_op claim = op_of(CORRAL_VERB_CLAIM, "k", 1), settle = op_of(CORRAL_VERB_SETTLE, "k", 1);
    corral_op get = op_of(CORRAL_VERB_GET, "k", 0);
    settle.record = record;
    settle.record_len = CORRAL_HEADER + 2000;
    long long count[3] = {reads(&c, &claim, 1), reads(&c, &settle, 1), reads(&c, &get, 1)};
    if (i == 0) continue;
    assert_int_equal(count[0], 1);
    assert_int_equal(count[1], 1);
    assert_int_equal(count[2], 1);
  }
  corral_op many[64];
  for (size_t i = 0; i < 64; i++) many[i] = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(reads(&c, many, 64), 1);
  free(record);
  closed(&c);
}

static void a_unix_socket_and_a_db_work_as_well(void **state) {
  (void)state;
  start(NULL);
  char uri[160];
  snprintf(uri, sizeof uri, "%s?db=3&client_name=mine", redis_server_unix_uri(server));
  client c = opened(uri);
  assert_int_equal(c.info.handles, 2);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  assert_string_equal(redis_server_ask(server, "DBSIZE"), "0");
  assert_non_null(strstr(redis_server_ask(server, "CLIENT LIST"), "name=mine"));
  closed(&c);
  snprintf(uri, sizeof uri, "%s/3", redis_server_uri(server));
  c = opened(uri);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 2), CORRAL_EBUSY);
  closed(&c);
  snprintf(uri, sizeof uri, "redis://localhost:%d/99", redis_server_port(server));
  assert_int_equal(try_open(&c, uri), CORRAL_EURI);
  closed(&c);
}

/* ---- users -------------------------------------------------------------------------------------------------- */

static int opens(const char *user_part, client *c) {
  char uri[160];
  snprintf(uri, sizeof uri, "redis://%s127.0.0.1:%d", user_part, redis_server_port(server));
  return try_open(c, uri);
}

static void users_are_known_by_name_and_password(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "ACL SETUSER ann on >se/cret ~* +@all");
  assert_int_equal(opens("ann:se%2Fcret@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_OK);
  closed(&c);
  assert_int_equal(opens("ann:wrong@", &c), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "WRONGPASS"));
  closed(&c);
  redis_server_ask(server, "CONFIG SET requirepass open");
  assert_int_equal(opens("", &c), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "NOAUTH"));
  closed(&c);
  assert_int_equal(opens(":open@", &c), CORRAL_OK);
  closed(&c);
  redis_server_ask(server, "CONFIG SET requirepass %b", "", (size_t)0);
}

static void a_user_who_may_not_do_it_is_told_so(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "ACL SETUSER reader on >x ~* +get +pttl");
  assert_int_equal(opens("reader:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_GET, "k", 1), CORRAL_EMISS);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  assert_non_null(strstr(c.error.text, "NOPERM"));
  closed(&c);
  redis_server_ask(server, "ACL SETUSER runner on >x ~* +get +pttl +evalsha +eval +time");
  assert_int_equal(opens("runner:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  closed(&c);
  redis_server_ask(server, "ACL SETUSER elsewhere on >x ~mine:* +@all");
  assert_int_equal(opens("elsewhere:x@", &c), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EAUTH);
  closed(&c);
}

static void a_user_bound_to_a_prefix_may_fill_large_records(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "ACL SETUSER bound on >x ~mine:* -@all +get +set +pttl +getrange +setrange +pexpire +rename "
                           "+unlink +time +eval +evalsha");
  assert_int_equal(opens("bound:x@", &c), CORRAL_OK);
  for (int i = 0; i < 2; i++) {
    assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "mine:k", 1), CORRAL_OK);
    assert_int_equal(fills(&c, "mine:k", 1, 100000), CORRAL_OK);
  }
  assert_int_equal(does(&c, CORRAL_VERB_EXPIRE, "mine:k", 1), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_INVALIDATE, "mine:k", 1), CORRAL_OK);
  closed(&c);
}

/* ---- servers that refuse ------------------------------------------------------------------------------------ */

static void a_full_server_serves_hits_extends_and_takes_leases_back(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 2);
  does(&c, CORRAL_VERB_CLAIM, "cold", 3);
  does(&c, CORRAL_VERB_CLAIM, "colder", 4);
  redis_server_ask(server, "CONFIG SET maxmemory 1");
  assert_int_equal(looks(&c, "k").status, CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "new", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "OOM"));
  assert_int_equal(fills(&c, "cold", 3, 10), CORRAL_EREFUSED);
  assert_int_equal(fills(&c, "cold", 3, 100000), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "OOM"));
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "k", 2), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "cold", 3), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "k", 2), CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_RELEASE, "cold", 3), CORRAL_OK);
  assert_int_equal(verdict(&c, "colder", 4, 1, HOUR), CORRAL_OK);
  assert_int_equal(looks(&c, "k").header.state, CORRAL_FREE);
  redis_server_ask(server, "CONFIG SET maxmemory 0");
  closed(&c);
}

static void a_replica_is_read_and_refuses_to_be_written(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  redis_server_ask(server, "REPLICAOF 127.0.0.1 1");
  assert_int_equal(looks(&c, "k").status, CORRAL_OK);
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "READONLY"));
  assert_non_null(strstr(c.error.text, "primary"));
  redis_server_ask(server, "REPLICAOF NO ONE");
  closed(&c);
}

static void a_server_without_enough_replicas_refuses(void **state) {
  (void)state;
  client c = begin();
  redis_server_ask(server, "CONFIG SET min-replicas-to-write 1");
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "k", 1), CORRAL_EREFUSED);
  assert_non_null(strstr(c.error.text, "NOREPLICAS"));
  redis_server_ask(server, "CONFIG SET min-replicas-to-write 0");
  closed(&c);
}

static void a_server_with_all_its_clients_says_so(void **state) {
  (void)state;
  start(NULL);
  client c;
  redis_server_ask(server, "CONFIG SET maxclients 1");
  assert_int_equal(opens("", &c), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "max number of clients"));
  redis_server_ask(server, "CONFIG SET maxclients 1000");
  closed(&c);
}

/* An endless script of somebody else, on a connection of its own. */
static void *keep_busy(void *arg) {
  redisContext *context = redisConnectUnix(arg);
  redisReply *reply = redisCommand(context, "EVAL %s 0", "while true do end");
  if (reply != NULL) freeReplyObject(reply);
  redisFree(context);
  return NULL;
}

static void a_server_kept_busy_by_a_script_says_so(void **state) {
  (void)state;
  client c = begin();
  pthread_t thread;
  char path[128];
  snprintf(path, sizeof path, "%s/socket", redis_server_folder(server));
  redis_server_ask(server, "CONFIG SET busy-reply-threshold 1");
  pthread_create(&thread, NULL, keep_busy, path);
  int64_t until = c.host->now_ms() + LIMIT;
  int status;
  while ((status = does(&c, CORRAL_VERB_GET, "k", 0)) == CORRAL_EMISS && c.host->now_ms() < until) continue;
  assert_int_equal(status, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "BUSY"));
  while (strstr(redis_server_ask(server, "SCRIPT KILL"), "NOTBUSY") != NULL) continue;
  pthread_join(thread, NULL);
  assert_int_equal(looks(&c, "k").status, CORRAL_EMISS);
  closed(&c);
}

/* ---- URIs --------------------------------------------------------------------------------------------------- */

static void a_wrong_uri_is_refused_with_what_is_accepted(void **state) {
  (void)state;
  static const char *const wrong[] = {
      "redis://h/x",           "redis://h/1/2",           "redis://h/1?db=2",       "redis://h?db=-1",   "redis://h?tls_ca=x",
      "redis://h?nonsense=1",  "redis://a,b",             "redis+unix://host/path", "redis+unix://",     "redis+unix:relative",
      "rediss://h?tls_verify=maybe", "rediss://h?tls_key=k", "redis://user@h",      "redis://h?client_name=a%20b"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    client c;
    if (try_open(&c, wrong[i]) != CORRAL_EURI || c.error.text[0] == '\0') fail_msg("%s was not refused", wrong[i]);
  }
}

static void nobody_listening_is_said_at_once(void **state) {
  (void)state;
  client c;
  char uri[64];
  snprintf(uri, sizeof uri, "redis://127.0.0.1:%d", redis_server_free_port());
  assert_int_equal(try_open(&c, uri), CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(c.error.text, "refused"));
  closed(&c);
  assert_int_equal(try_open(&c, "redis+unix:///nowhere/at/all"), CORRAL_EUNAVAILABLE);
  closed(&c);
  assert_int_equal(try_open(&c, "redis://name.invalid"), CORRAL_EUNAVAILABLE);
  closed(&c);
}

/* ---- every verb against the model ---------------------------------------------------------------------------- */

enum { KEYS = 4, TOKENS = 3, STEPS = 6000 };

typedef struct model {
  uint8_t *record; /* NULL: none */
  size_t size;
  int64_t expires;
} model;

static uint32_t seed;

static uint32_t pick(uint32_t below) {
  seed = seed * 1664525u + 1013904223u;
  return (seed >> 8) % below;
}

static void model_put(model *m, const uint8_t *head, const uint8_t *body, size_t size, int64_t expires) {
  uint8_t *record = malloc(CORRAL_HEADER + size);
  assert_non_null(record);
  memcpy(record, head, CORRAL_HEADER);
  if (size > 0) memcpy(record + CORRAL_HEADER, body, size);
  free(m->record);
  *m = (model){record, CORRAL_HEADER + size, expires};
}

static void model_perform(model *m, corral_op *op, int64_t now) {
  corral_change change;
  crl_record_decide(op, m->record, m->size, now, &change);
  if (change.action == CORRAL_ACTION_EDIT) {
    memcpy(m->record, change.header, CORRAL_HEADER);
    m->expires = change.expires;
  } else if (change.action == CORRAL_ACTION_REPLACE) {
    model_put(m, change.header, change.body, change.body_len, change.expires);
  } else if (change.action == CORRAL_ACTION_REMOVE) {
    free(m->record);
    memset(m, 0, sizeof *m);
  }
}

/* Puts a record of any kind under the key, in both: leases over and under way, payloads dead and alive. */
static void plant(model *m, const char *key, int64_t now) {
  corral_header header = {.state = (uint8_t)pick(3), .flags = (uint8_t)pick(2), .failures = pick(5), .note = "planted"};
  uint8_t body[200], head[CORRAL_HEADER];
  size_t size = pick(3) == 0 ? 0 : 8 + pick(190);
  int64_t ttl = (int64_t)(1 + pick(9)) * HOUR;
  memset(body, (int)pick(3), sizeof body);
  if (header.state != CORRAL_FREE) {
    memcpy(header.token, token(pick(TOKENS)), CORRAL_TOKEN);
    header.until = now + (pick(2) == 0 ? -HOUR : (int64_t)(1 + pick(9)) * HOUR);
    header.since = now - 2 * HOUR;
    header.code = (int32_t)pick(1000) - 500;
    header.cost_ms = pick(1000);
  }
  if (size > 0 && pick(2) == 0) header.life_end = now + (pick(2) == 0 ? -HOUR : ttl - HOUR / 2);
  crl_record_write(&header, head);
  redis_server_ask(server, "SET %s %b PX %lld", key, head, (size_t)CORRAL_HEADER, (long long)ttl);
  if (size > 0) redis_server_ask(server, "APPEND %s %b", key, body, size);
  if (size > 0 && header.life_end == 0) header.life_end = now + ttl; /* what the TTL says on Redis */
  crl_record_write(&header, head);
  model_put(m, head, body, size, now + ttl);
}

/* A random op; `record` has room for its record. */
static corral_op random_op(const char *key, uint8_t *record) {
  corral_op op = op_of((corral_verb)(1 + pick(CORRAL_VERB_EXPIRE)), key, pick(TOKENS));
  corral_header header = {.cost_ms = pick(1000), .code = (int32_t)pick(9) - 4, .failures = pick(9), .note = "random"};
  op.lease_ms = (int64_t)(1 + pick(9)) * HOUR;
  op.ttl_ms = (int64_t)(1 + pick(9)) * HOUR;
  op.seen = pick(2) * UINT64_C(0x0101010101010101);
  size_t size = op.verb == CORRAL_VERB_SETTLE ? (pick(4) == 0 ? 6000 : pick(200)) : 0;
  memset(record + CORRAL_HEADER, (int)pick(3), size);
  crl_record_write(&header, record);
  if (op.verb == CORRAL_VERB_SETTLE || pick(2) == 0) op.record = record;
  op.record_len = CORRAL_HEADER + size;
  return op;
}

static int near(int64_t a, int64_t b) { return a - b < SLACK && b - a < SLACK; }

/* What differs between what Redis says and what the model says; NULL when nothing. */
static const char *difference(const corral_op *real, const corral_op *wanted, const model *m) {
  corral_header a, b;
  if (real->status != wanted->status) return "status";
  if (wanted->verb != CORRAL_VERB_GET && wanted->verb != CORRAL_VERB_CLAIM) return NULL;
  if (real->same != wanted->same) return "same";
  if (wanted->status == CORRAL_EMISS) return real->found != NULL ? "found" : NULL;
  if (!near(real->life_ms, wanted->life_ms)) return "life_ms";
  if (!near(real->until_ms, wanted->until_ms)) return "until_ms";
  if (real->found_len != (real->same ? CORRAL_HEADER : m->size)) return "size";
  if (crl_record_read(real->found, real->found_len, &a) != CORRAL_OK) return "header";
  crl_record_read(m->record, m->size, &b);
  if (a.state != b.state || a.flags != b.flags || memcmp(a.token, b.token, CORRAL_TOKEN) != 0) return "state, flags, token";
  if (!near(a.until, b.until) || !near(a.since, b.since)) return "until, since";
  if (a.cost_ms != b.cost_ms || a.code != b.code || a.failures != b.failures) return "cost, code, failures";
  if (memcmp(a.note, b.note, CORRAL_NOTE) != 0) return "note";
  size_t body = real->found_len - CORRAL_HEADER;
  return memcmp(real->found + CORRAL_HEADER, m->record + CORRAL_HEADER, body) != 0 ? "payload" : NULL;
}

/* No key without TTL, and the TTL the model says. */
static void check_ttl(const char *key, const model *m, int64_t now) {
  long long left = pttl(key);
  if (m->record == NULL ? left != -2 : !near(left, m->expires - now) || left < 0)
    fail_msg("seed %u: %s has a TTL of %lld instead of %lld", seed, key, left, (long long)(m->expires - now));
}

static int64_t server_now(void) {
  redisReply *reply = redis_server_command(server, "TIME");
  int64_t now = strtoll(reply->element[0]->str, NULL, 10) * 1000 + strtoll(reply->element[1]->str, NULL, 10) / 1000;
  freeReplyObject(reply);
  return now;
}

static void random_ops_do_what_the_model_says(void **state) {
  (void)state;
  client c = begin();
  static const char *const keys[KEYS] = {"a", "b", "{c}", "d}"};
  static uint8_t record[CORRAL_HEADER + 8192];
  model models[KEYS] = {{0}};
  uint32_t first = seed = (uint32_t)c.host->now_ms();
  for (int i = 0; i < STEPS; i++) {
    uint32_t k = pick(KEYS), at = seed;
    if (pick(8) == 0) plant(&models[k], keys[k], server_now());
    corral_op real = random_op(keys[k], record), wanted = real;
    int64_t now = server_now();
    model_perform(&models[k], &wanted, now);
    assert_int_equal(perform(&c, &real, 1), CORRAL_OK);
    const char *differs = difference(&real, &wanted, &models[k]);
    if (differs != NULL)
      fail_msg("seed %u, step %d (%u): verb %u: %s differs: %s against %s of the model, life %lld %lld", first, i, at, real.verb, differs,
               corral_status_name(real.status), corral_status_name(wanted.status), (long long)real.life_ms, (long long)wanted.life_ms);
    check_ttl(keys[k], &models[k], now);
    dropped(&real);
  }
  for (size_t k = 0; k < KEYS; k++) free(models[k].record);
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
      cmocka_unit_test(a_record_above_512_mib_is_not_sent),
      cmocka_unit_test(a_server_that_takes_less_says_too_big),
      cmocka_unit_test(a_batch_is_done_in_order),
      cmocka_unit_test(half_of_the_scripts_missing_does_no_harm),
      cmocka_unit_test(the_digests_are_those_of_the_scripts),
      cmocka_unit_test(a_restarted_server_breaks_the_handle_and_serves_the_next),
      cmocka_unit_test(a_stopped_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_hit_and_each_script_is_one_round_trip),
      cmocka_unit_test(a_unix_socket_and_a_db_work_as_well),
      cmocka_unit_test(users_are_known_by_name_and_password),
      cmocka_unit_test(a_user_who_may_not_do_it_is_told_so),
      cmocka_unit_test(a_user_bound_to_a_prefix_may_fill_large_records),
      cmocka_unit_test(a_full_server_serves_hits_extends_and_takes_leases_back),
      cmocka_unit_test(a_replica_is_read_and_refuses_to_be_written),
      cmocka_unit_test(a_server_without_enough_replicas_refuses),
      cmocka_unit_test(a_server_with_all_its_clients_says_so),
      cmocka_unit_test(a_server_kept_busy_by_a_script_says_so),
      cmocka_unit_test(a_wrong_uri_is_refused_with_what_is_accepted),
      cmocka_unit_test(nobody_listening_is_said_at_once),
      cmocka_unit_test(random_ops_do_what_the_model_says),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
