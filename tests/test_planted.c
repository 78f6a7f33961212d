/* test_planted.c: records by other writers in a real Redis: of a later version, damaged on purpose,
 * of another key, without an end. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>
#include <corral.h>

#include "record/envelope.h"
#include "os/hash.h"
#include "record/compress.h"
#include "support/record_kit.h"
#include "support/redis_server.h"

enum { MIB = 1 << 20, LIFE_MS = 600000 };

static redis_server *server;

static corral *opened(void) {
  corral *c = NULL;
  corral_error error;
  if (server == NULL) skip();
  redis_server_ask(server, "FLUSHALL");
  if (corral_open(
          CORRAL_OPTIONS(.store = redis_server_uri(server), .max_value = MIB, .op_ms = 5000), &c,
          &error) != CORRAL_OK)
    fail_msg("%s", error.text);
  return c;
}

static int compute(corral_fill *fill, const void *key, size_t key_len, void *arg) {
  (void)key;
  (void)key_len;
  ++*(int *)arg;
  return corral_fill_bytes(fill, "computed", 8);
}

/* Gets key "k", which must have the value `wanted`. Returns its `kept`; *ran: number of
 * computes. */
static corral_kept ask(corral *c, const char *wanted, int *ran) {
  corral_value *value = NULL;
  corral_error error = {0};
  corral_policy *policy = CORRAL_POLICY(.wait_ms = 60000);
  *ran = 0;
  if (corral_get_or_compute(c, "k", 1, CORRAL_CALL(.policy = policy, .error = &error), compute, ran,
                            &value) != CORRAL_OK)
    fail_msg("%s", error.text);
  assert_int_equal(corral_value_size(value), strlen(wanted));
  assert_memory_equal(corral_value_data(value), wanted, strlen(wanted));
  corral_kept kept = corral_value_kept(value);
  corral_value_unref(value);
  return kept;
}

static int64_t server_now(void) {
  redisReply *reply = redis_server_command(server, "TIME");
  int64_t now = strtoll(reply->element[0]->str, NULL, 10) * 1000 +
                strtoll(reply->element[1]->str, NULL, 10) / 1000;
  freeReplyObject(reply);
  return now;
}

static void plant_bytes(const void *record, size_t size) {
  redis_server_ask(server, "SET k %b PX %d", record, size, LIFE_MS);
}

/* Stores a record of the key `name` under the key "k". */
static void plant(const char *name, crl_envelope envelope, const void *payload) {
  uint8_t digest[CORRAL_DIGEST];
  crl_sum(name, strlen(name), digest);
  envelope.digest = digest;
  envelope.ttl_ms = LIFE_MS;
  size_t size = crl_envelope_size(&envelope);
  uint8_t *record = malloc(size);
  assert_non_null(record);
  memcpy(record + CRL_PAYLOAD_AT, payload, envelope.payload_len);
  crl_envelope_write(&envelope, record);
  crl_record_put(record + 8, (uint64_t)(server_now() + LIFE_MS), 8);
  plant_bytes(record, size);
  free(record);
}

static void what_is_planted_as_corral_would_store_it_is_served(void **state) {
  (void)state;
  corral *c = opened();
  int ran;
  plant("k", (crl_envelope){.kind = CRL_KIND_VALUE, .payload_len = 5}, "hello");
  ask(c, "hello", &ran);
  assert_int_equal(ran, 0);
  corral_close(c);
}

static void a_record_of_a_later_version_is_left_alone_until_it_is_invalidated(void **state) {
  (void)state;
  corral *c = opened();
  int ran;
  plant_bytes("crl3 whatever", 13);
  for (int i = 0; i < 3; i++) {
    assert_int_equal(ask(c, "computed", &ran), CORRAL_KEPT_NOT);
    assert_int_equal(ran, 1);
  }
  assert_string_equal(redis_server_ask(server, "GET k"), "crl3 whatever");
  assert_true(corral_counter(c, CORRAL_EVENT_NEWER) > 0);
  assert_int_equal(corral_counter(c, CORRAL_EVENT_FOREIGN), 0);
  assert_int_equal(corral_invalidate(c, "k", 1, NULL), CORRAL_OK);
  assert_int_equal(ask(c, "computed", &ran), CORRAL_KEPT);
  corral_close(c);
}

/* The record must count as damaged and be replaced. */
static void expect_replaced(corral *c) {
  int ran;
  assert_int_equal(ask(c, "computed", &ran), CORRAL_KEPT);
  assert_int_equal(ran, 1);
  assert_true(corral_counter(c, CORRAL_EVENT_CORRUPT) > 0);
  ask(c, "computed", &ran);
  assert_int_equal(ran, 0);
  corral_close(c);
}

static void a_packed_record_that_promises_4_gib_is_refused(void **state) {
  (void)state;
  corral *c = opened();
  static char zeros[4096];
  uint8_t *packed = NULL;
  size_t size = crl_compress(zeros, sizeof zeros, &packed);
  assert_true(size > 0);
  plant("k",
        (crl_envelope){.kind = CRL_KIND_VALUE,
                       .encoding = CRL_ENCODING_ZSTD,
                       .payload_len = size,
                       .plain_len = UINT32_MAX},
        packed);
  free(packed);
  expect_replaced(c);
}

/* Both records give the same size, which exceeds the corral's max_value. */
static void a_value_above_max_value_is_refused_packed_and_plain(void **state) {
  (void)state;
  char *large = calloc(1, 2 * MIB);
  uint8_t *packed = NULL;
  assert_non_null(large);
  size_t size = crl_compress(large, 2 * MIB, &packed);
  corral *c = opened();
  plant("k",
        (crl_envelope){.kind = CRL_KIND_VALUE,
                       .encoding = CRL_ENCODING_ZSTD,
                       .payload_len = size,
                       .plain_len = 2 * MIB},
        packed);
  expect_replaced(c);
  c = opened();
  plant("k", (crl_envelope){.kind = CRL_KIND_VALUE, .payload_len = 2 * MIB}, large);
  expect_replaced(c);
  free(packed);
  free(large);
}

static void a_record_of_another_key_is_refused(void **state) {
  (void)state;
  corral *c = opened();
  plant("another", (crl_envelope){.kind = CRL_KIND_VALUE, .payload_len = 5}, "hello");
  expect_replaced(c);
}

static void a_flipped_bit_of_a_body_is_refused(void **state) {
  (void)state;
  corral *c = opened();
  plant("k", (crl_envelope){.kind = CRL_KIND_VALUE, .payload_len = 5}, "hello");
  redis_server_ask(server, "SETRANGE k 50 X");
  expect_replaced(c);
}

/* A dead holder, or another user of the store, left an end ten years ahead. The next claim shortens
 * it to one length from now. */
static void a_lease_and_a_verdict_without_an_end_end_one_length_from_the_next_claim(void **state) {
  (void)state;
  static const uint8_t states[] = {CORRAL_LEASED, CORRAL_VERDICT};
  for (size_t i = 0; i < 2; i++) {
    corral *c = opened();
    corral_value *value = NULL;
    int ran = 0, tries = 0;
    size_t size;
    corral_header header = {.state = states[i],
                            .until = server_now() + INT64_C(315360000000),
                            .since = server_now(),
                            .length_ms = 300,
                            .token = "nobody's"};
    uint8_t *record = record_make(header, 0, 0, &size);
    redis_server_ask(server, "SET k %b PX 86400000", record, size);
    free(record);
    while (corral_get_or_compute(c, "k", 1, CORRAL_CALL(.policy = CORRAL_POLICY(.wait_ms = 60000)),
                                 compute, &ran, &value) != CORRAL_OK)
      if (++tries > 100000) fail_msg("state %d blocks the key", states[i]);
    assert_int_equal(ran, 1);
    assert_int_equal(corral_value_kept(value), CORRAL_KEPT);
    corral_value_unref(value);
    corral_close(c);
  }
}

static int start(void **state) {
  (void)state;
  if (!redis_server_start(&server, NULL)) server = NULL;
  return 0;
}

static int stop(void **state) {
  (void)state;
  redis_server_stop(server);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_planted_as_corral_would_store_it_is_served),
      cmocka_unit_test(a_record_of_a_later_version_is_left_alone_until_it_is_invalidated),
      cmocka_unit_test(a_packed_record_that_promises_4_gib_is_refused),
      cmocka_unit_test(a_value_above_max_value_is_refused_packed_and_plain),
      cmocka_unit_test(a_record_of_another_key_is_refused),
      cmocka_unit_test(a_flipped_bit_of_a_body_is_refused),
      cmocka_unit_test(a_lease_and_a_verdict_without_an_end_end_one_length_from_the_next_claim),
  };
  return cmocka_run_group_tests_name("planted", tests, start, stop);
}
