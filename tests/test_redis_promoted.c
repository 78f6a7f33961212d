/* test_redis_promoted.c: leases that a promoted replica has from its primary are judged by its own
 * clock, which is an hour behind that of the primary, or ahead of it. */
#include "support/redis_kit.h"

#include <unistd.h>

enum { LEASE = 5000, TRIES = 8000, PAUSE_US = 5000 };

static redis_server *primary, *replica;

/* A replica whose clock is off by this time: odd_clock/odd_clock.c is preloaded. */
static int start_odd(const char *off_ms) {
  static const char *const args[] = {"--repl-diskless-sync-delay", "0", NULL};
  const char *odd = getenv("CORRAL_ODD_CLOCK");
  assert_non_null(odd);
  if (!redis_server_start(&primary, args)) skip();
  setenv("LD_PRELOAD", odd, 1);
  setenv("CORRAL_ODD_CLOCK_MS", off_ms, 1);
  assert_int_equal(redis_server_start(&replica, args), 1);
  unsetenv("LD_PRELOAD");
  unsetenv("CORRAL_ODD_CLOCK_MS");
  server = replica;
  int64_t there = server_now();
  server = primary;
  assert_near(there - strtoll(off_ms, NULL, 10), server_now());
  redis_server_ask(replica, "REPLICAOF 127.0.0.1 %d", redis_server_port(primary));
  /* leases begin when they are replicated at once */
  while (strstr(redis_server_ask(replica, "INFO replication"), "master_link_status:up") == NULL)
    usleep(PAUSE_US);
  return 0;
}

static int start_behind(void **state) {
  (void)state;
  return start_odd("-3600000");
}

static int start_ahead(void **state) {
  (void)state;
  return start_odd("3600000");
}

static int stop_both(void **state) {
  (void)state;
  redis_server_stop(primary);
  redis_server_stop(replica);
  server = primary = replica = NULL;
  return 0;
}

static corral_op claim_of(const char *key, unsigned holder) {
  corral_op op = op_of(CORRAL_VERB_CLAIM, key, holder);
  op_lasts(&op, LEASE);
  return op;
}

/* Holder 1 claims a key that isn't there, and one that has a value; then the replica, which has
 * heard of both, is promoted, and the primary is gone. */
static client promoted(void) {
  client c = opened(redis_server_uri(primary));
  corral_op bare = claim_of("bare", 1), kept = claim_of("kept", 1);
  corral_op value = op_of(CORRAL_VERB_SETTLE, "kept", 1);
  uint8_t *record = record_of(10, 1);
  op_brings(&value, record, CORRAL_HEAD + 10);
  bare.flags = CORRAL_OP_ABSENT;
  assert_int_equal(does(&c, CORRAL_VERB_CLAIM, "kept", 1), CORRAL_OK);
  op_keeps(&value, 3 * HOUR);
  assert_int_equal(done(&c, &value), CORRAL_OK);
  free(record);
  assert_int_equal(done(&c, &bare), CORRAL_OK);
  assert_int_equal(done(&c, &kept), CORRAL_OK);
  closed(&c);
  redis_server_ask(primary, "SET mark x"); /* WAIT is about what its own connection wrote */
  while (*redis_server_ask(primary, "WAIT 1 1000") != '1') {
  }
  redis_server_kill(primary);
  redis_server_ask(replica, "REPLICAOF NO ONE");
  server = replica;
  return opened(redis_server_uri(replica));
}

/* The lease goes on, for its own length at the most; then another holder has it. */
static void ends_after_its_length(client *c, const char *key) {
  sight s = sees(c, claim_of(key, 2));
  assert_int_equal(s.status, CORRAL_EBUSY);
  assert_in_range(s.until_ms, 1, LEASE);
  assert_memory_equal(s.header.token, token(1), CORRAL_TOKEN);
  assert_in_range(looks(c, key).until_ms, 1, LEASE);
  for (int i = 0; i < TRIES && s.status == CORRAL_EBUSY; i++) {
    usleep(PAUSE_US);
    s = sees(c, claim_of(key, 2));
  }
  assert_int_equal(s.status, CORRAL_OK);
  assert_int_equal(fills(c, key, 1, 10), CORRAL_ELOST);
}

static void on_a_clock_that_is_behind_a_lease_lasts_for_its_length_and_not_an_hour(void **state) {
  (void)state;
  client c = promoted();
  ends_after_its_length(&c, "kept");
  closed(&c);
  stop_both(state);
  start_behind(state);
  c = promoted();
  ends_after_its_length(&c, "bare");
  closed(&c);
}

static void its_holder_fills_a_lease_that_goes_on_where_the_clock_is_behind(void **state) {
  (void)state;
  client c = promoted();
  assert_int_equal(does(&c, CORRAL_VERB_EXTEND, "kept", 1), CORRAL_OK);
  assert_int_equal(fills(&c, "kept", 1, 20), CORRAL_OK);
  assert_int_equal(fills(&c, "bare", 1, 20), CORRAL_OK);
  assert_int_equal(looks(&c, "kept").size, 20);
  assert_int_equal(looks(&c, "bare").size, 20);
  closed(&c);
}

/* Another one computes too, and the former holder can't store over that. */
static void on_a_clock_that_is_ahead_a_lease_is_over(void **state) {
  static const char *const keys[] = {"kept", "bare"};
  (void)state;
  client c = promoted();
  for (int i = 0; i < 2; i++) {
    assert_int_equal(sees(&c, claim_of(keys[i], 2)).status, CORRAL_OK);
    assert_int_equal(does(&c, CORRAL_VERB_EXTEND, keys[i], 1), CORRAL_ELOST);
    assert_int_equal(fills(&c, keys[i], 1, 10), CORRAL_ELOST);
    assert_int_equal(fills(&c, keys[i], 2, 30), CORRAL_OK);
    assert_int_equal(looks(&c, keys[i]).size, 30);
  }
  closed(&c);
}

int main(void) {
#define T(test, start) cmocka_unit_test_setup_teardown(test, start, stop_both)
  const struct CMUnitTest tests[] = {
      T(on_a_clock_that_is_behind_a_lease_lasts_for_its_length_and_not_an_hour, start_behind),
      T(its_holder_fills_a_lease_that_goes_on_where_the_clock_is_behind, start_behind),
      T(on_a_clock_that_is_ahead_a_lease_is_over, start_ahead),
  };
#undef T
  return cmocka_run_group_tests_name("redis_promoted", tests, NULL, NULL);
}
