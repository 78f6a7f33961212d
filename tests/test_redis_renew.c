/* test_redis_renew.c: RENEW of the Redis plugin, through its table, on a real server. */
#include "support/redis_kit.h"

#include "../plugins/redis/redis.h"

/* ---- renewing ------------------------------------------------------------------------------ */

static void a_renewed_payload_lives_anew_and_is_not_sent_again(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 1000);
  does(&c, CORRAL_VERB_EXPIRE, "k", 0);
  /* the second time after a verdict, when the header has the payload's life */
  for (unsigned holder = 2; holder < 4; holder++) {
    does(&c, CORRAL_VERB_CLAIM, "k", holder);
    if (holder == 3) {
      verdict(&c, "k", 3, -42, 0);
      corral_op claim = op_of(CORRAL_VERB_CLAIM, "k", 3);
      claim.claim.lease_ms = HOUR;
      assert_int_equal(done(&c, &claim), CORRAL_OK);
      sight s = looks(&c, "k");
      assert_int_equal(s.header.failures, 3);
      assert_true(s.header.life_end > 0);
    }
    corral_op renew = op_of(CORRAL_VERB_RENEW, "k", holder);
    renew.renew.ttl_ms = holder * HOUR;
    assert_int_equal(done(&c, &renew), CORRAL_OK);
    assert_near(pttl("k"), holder * HOUR);
    corral_op get = op_of(CORRAL_VERB_GET, "k", 0);
    perform(&c, &get, 1);
    corral_header header = {0};
    assert_int_equal(body_of(&get), 1000);
    assert_int_equal(crl_record_read_whole(get.found.record, get.found.len, &header), CORRAL_OK);
    assert_true(header.state == CORRAL_FREE && header.flags == 0 && header.failures == 0);
    for (size_t i = CORRAL_HEAD; i < CORRAL_HEAD + body_of(&get); i++)
      assert_int_equal(get.found.record[i], 1);
    assert_near(get.state.life_ms, holder * HOUR);
    assert_int_equal(get.state.left_ms, 0);
    dropped(&get);
    assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", holder), CORRAL_ELOST);
  }
  closed(&c);
}

static void only_the_holder_of_the_lease_renews(void **state) {
  (void)state;
  client c = begin();
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  corral_op renew = op_of(CORRAL_VERB_RENEW, "k", 2);
  renew.renew.ttl_ms = 9 * HOUR;
  assert_int_equal(done(&c, &renew), CORRAL_ELOST);
  assert_near(pttl("k"), HOUR);
  assert_int_equal(looks(&c, "k").header.state, CORRAL_LEASED);
  verdict(&c, "k", 1, -42, HOUR);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  does(&c, CORRAL_VERB_INVALIDATE, "k", 0);
  assert_int_equal(does(&c, CORRAL_VERB_RENEW, "k", 1), CORRAL_ELOST);
  closed(&c);
}

/* RENEW of a key that `holder` has leased, without a body to renew: EMISS, and nothing changes. */
static void assert_nothing_to_renew(client *c, const char *key, unsigned holder) {
  sight before = looks(c, key);
  long long ttl = pttl(key);
  corral_op renew = op_of(CORRAL_VERB_RENEW, key, holder);
  renew.renew.ttl_ms = 99 * HOUR;
  assert_int_equal(done(c, &renew), CORRAL_EMISS);
  sight after = looks(c, key);
  assert_int_equal(before.header.state, CORRAL_LEASED);
  assert_memory_equal(&after.header, &before.header, sizeof after.header);
  assert_int_equal(after.size, before.size);
  assert_near(pttl(key), ttl);
}

static void without_a_payload_there_is_nothing_to_renew(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "cold", 1);
  assert_nothing_to_renew(&c, "cold", 1);
  corral_header header = {.state = CORRAL_LEASED,
                          .until = server_now() + HOUR,
                          .length_ms = HOUR,
                          .life_end = server_now() - 1};
  size_t len;
  memcpy(header.token, token(1), CORRAL_TOKEN);
  uint8_t *over = record_make(header, 8, 'x', &len);
  redis_server_ask(server, "SET over %b PX %d", over, len, HOUR);
  free(over);
  assert_nothing_to_renew(&c, "over", 1);
  closed(&c);
}

static void a_renewal_is_one_round_trip_and_happens_once_in_a_batch(void **state) {
  (void)state;
  client c = begin();
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  fills(&c, "k", 1, 10);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  redis_server_ask(server, "SCRIPT FLUSH");
  redis_server_ask(server, "SCRIPT LOAD %s", crl_redis_script_get(CRL_REDIS_RENEW)->text);
  corral_op ops[] = {op_of(CORRAL_VERB_EXTEND, "k", 1), op_of(CORRAL_VERB_RENEW, "k", 1),
                     op_of(CORRAL_VERB_GET, "k", 0)};
  assert_int_equal(perform(&c, ops, 3), CORRAL_OK);
  assert_int_equal(ops[1].status, CORRAL_OK);
  assert_int_equal(ops[2].status, CORRAL_OK);
  assert_int_equal(ops[2].state.left_ms, 0);
  dropped(&ops[2]);
  does(&c, CORRAL_VERB_CLAIM, "k", 1);
  assert_int_equal(reads(&c, &ops[1], 1), 1);
  assert_int_equal(ops[1].status, CORRAL_OK);
  closed(&c);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_renewed_payload_lives_anew_and_is_not_sent_again),
      cmocka_unit_test(only_the_holder_of_the_lease_renews),
      cmocka_unit_test(without_a_payload_there_is_nothing_to_renew),
      cmocka_unit_test(a_renewal_is_one_round_trip_and_happens_once_in_a_batch),
  };
  return cmocka_run_group_tests(tests, NULL, stop);
}
