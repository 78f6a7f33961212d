/* test_memcached_dialogue_lost.c: races, replies and connections that are lost, with a scripted
 * memcached: the status says what is known of the operation. */
#include "support/memcached_dialogue_kit.h"

/* ---- endless races ------------------------------------------------------------------------- */

static void a_key_that_others_change_all_the_time_is_given_up(void **state) {
  (void)state;
  char script[16384] = GREETED;
  for (int i = 0; i < 16; i++)
    append(script, sizeof script, GETS_K RECORD_K CAS_K "SEND EXISTS\\r\\n\n");
  dialogue d = connected(script);
  corral_op op = op_of(CORRAL_VERB_CLAIM, "k", 1);
  op.claim.seen = SEEN;
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EBUSY);
  assert_null(op.found.record);
  ended(&d);
}

/* ---- users' locks -------------------------------------------------------------------------- */

/* The head of a free lock, and the command that adds one hold to it. The end of the hold isn't
 * checked, because the time is the server's. */
#define HEAD_ZEROS                                                                                 \
  "\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0"
#define LOCK_K "SEND VALUE k 0 32 9\\r\\ncrk1" HEAD_ZEROS "\\r\\nEND\\r\\n\n"
#define TAKE_K "EXPECT cas k 0 3661 160 9\\r\\n\n"

static corral_op take_op(void) { return op_of(CORRAL_VERB_LOCK, "k", 1); }

static void a_lock_that_others_change_is_tried_again(void **state) {
  (void)state;
  char script[32768] = GREETED;
  for (int i = 0; i < 40; i++)
    append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND EXISTS\\r\\n\n");
  append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND NOT_FOUND\\r\\n\n");
  append(script, sizeof script,
         GETS_K "SEND END\\r\\n\nEXPECT add k 0 3661 160\\r\\n\nSEND NOT_STORED\\r\\n\n");
  append(script, sizeof script, GETS_K LOCK_K TAKE_K "SEND STORED\\r\\n\n");
  dialogue d = connected(script);
  corral_op op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.lock_state.left_ms, HOUR);
  ended(&d);
}

static corral_host late_host;
static int asked;

/* The first call returns the real time, each later call a time after any deadline. */
static int64_t late_now_ms(void) {
  return crl_registry_host()->now_ms() + (asked++ > 0 ? HOUR : 0);
}

/* Adds a reply to gets: a lock held by token 1. */
static void append_held(char *script, size_t size) {
  corral_hold hold = {.mode = CORRAL_LOCK_EXCLUSIVE, .until = INT64_MAX / 4, .fence = 7};
  uint8_t record[CORRAL_LOCK_HEAD + CORRAL_LOCK_HOLD];
  char byte[8];
  memcpy(hold.token, token(1), CORRAL_TOKEN);
  crl_registry_host()->lock_write(7, &hold, 1, record);
  append(script, size, GETS_K "SEND VALUE k 0 160 9\\r\\n");
  for (size_t i = 0; i < sizeof record; i++) {
    snprintf(byte, sizeof byte, "\\x%02x", record[i]);
    append(script, size, byte);
  }
  append(script, size, "\\r\\nEND\\r\\n\nEXPECT cas k 0\nEXPECT  9\\r\\n\n");
}

/* No write succeeded, so the status must say that nothing changed. */
static void a_race_that_is_lost_until_the_deadline_has_changed_nothing(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_UNLOCK};
  for (size_t i = 0; i < 3; i++) {
    char script[4096] = GREETED;
    append_held(script, sizeof script);
    append(script, sizeof script, "SEND EXISTS\\r\\n\n");
    dialogue d = connected(script);
    late_host = *crl_registry_host();
    late_host.now_ms = late_now_ms;
    asked = 0;
    ((crl_memcached_handle *)d.c.handle)->host = &late_host;
    corral_op op = op_of(verbs[i], "k", 1);
    assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, verbs[i] == CORRAL_VERB_LOCK ? CORRAL_EBUSY : CORRAL_EUNAVAILABLE);
    if (verbs[i] == CORRAL_VERB_LOCK) assert_int_equal(op.lock_state.left_ms, -1);
    assert_int_equal(op.lock_state.fence, 0); /* neither a token nor a place in the queue */
    assert_non_null(strstr(d.c.error.text, "others changed the lock"));
    ended(&d);
  }
}

static void
a_lock_verb_whose_reply_is_lost_is_unknown_and_one_that_was_not_sent_is_not(void **state) {
  (void)state;
  static const corral_verb verbs[] = {CORRAL_VERB_LOCK, CORRAL_VERB_LOCK_EXTEND,
                                      CORRAL_VERB_UNLOCK};
  for (size_t i = 0; i < 6; i++) {
    char script[4096] = GREETED;
    if (i < 3)
      append_held(script, sizeof script);
    else
      append(script, sizeof script, GETS_K);
    append(script, sizeof script, "CLOSE\n");
    dialogue d = connected(script);
    corral_op op = op_of(verbs[i % 3], "k", 1);
    assert_int_not_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, i < 3 ? CORRAL_EINDOUBT : CORRAL_EUNAVAILABLE);
    ended(&d);
  }
}

static void
a_lock_verb_whose_server_doesnt_know_is_unknown_and_one_without_memory_refused(void **state) {
  (void)state;
  dialogue d = connected(GREETED GETS_K LOCK_K TAKE_K
                         "SEND SERVER_ERROR proxy lost it\\r\\n\n" GETS_K LOCK_K TAKE_K
                         "SEND SERVER_ERROR object too large for cache\\r\\n\n" GETS_K
                         "SEND SERVER_ERROR no\\r\\n\n");
  corral_op op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  op = take_op();
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  /* the record wasn't read */
  assert_int_equal(does(&d.c, CORRAL_VERB_UNLOCK, "k", 1), CORRAL_EUNAVAILABLE);
  ended(&d);
}

/* An impossible server time is treated as unknown. */
static void a_time_that_no_clock_has_isnt_believed(void **state) {
  (void)state;
  static const char *const times[] = {"9223372036854775807",
                                      "-9223372036854775808",
                                      "99999999999999999999",
                                      "9223372036854775",
                                      "-1",
                                      "0",
                                      "x"};
  for (size_t i = 0; i < sizeof times / sizeof *times; i++) {
    char script[1024];
    snprintf(script, sizeof script,
             "EXPECT settings\\r\\n\nSEND STAT time %s\\r\\nEND\\r\\nSTAT item_size_max "
             "1048576\\r\\nEND\\r\\n\n" GETS_K LOCK_K TAKE_K "SEND STORED\\r\\n\n",
             times[i]);
    int64_t before = crl_registry_host()->wall_ms();
    dialogue d = connected(script);
    corral_op op = take_op();
    assert_int_equal(perform(&d.c, &op, 1), CORRAL_OK);
    assert_int_equal(op.status, CORRAL_OK);
    assert_in_range(op.lock_state.fence / 1000, before - 1, crl_registry_host()->wall_ms() + 1);
    ended(&d);
  }
}

/* ---- closed connections -------------------------------------------------------------------- */

static void a_reply_cut_in_the_middle_leaves_the_fate_of_a_write_unknown(void **state) {
  (void)state;
  static const char *const cuts[] = {"CLOSE\n", "SEND S\nCLOSE\n", "SEND STORED\nCLOSE\n",
                                     "SEND VALUE k 0 50 1\\r\\nxx\nCLOSE\n",
                                     "SEND VALUE k 0 1 1\\r\\nx\\r\\n\nCLOSE\n"};
  for (size_t w = 0; w < WAYS; w++)
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
      outcome o = answered(&ways[w], cuts[i], LIMIT);
      assert_true(o.performed == CORRAL_EUNAVAILABLE ||
                  (i >= 3 && o.performed == CORRAL_EPROTOCOL));
      if (is_write(&ways[w])) assert_int_equal(o.status, CORRAL_EINDOUBT);
    }
}

static void a_connection_closed_while_idle_is_seen_before_sending(void **state) {
  (void)state;
  dialogue d = connected(GREETED "CLOSE\nACCEPT\n" GREETED);
  void *first = d.c.handle;
  assert_int_equal(connects(&d.c, LIMIT), CORRAL_OK);
  void *second = d.c.handle;
  corral_op op = op_of(CORRAL_VERB_INVALIDATE, "k", 0);
  d.c.handle = first;
  assert_int_equal(perform(&d.c, &op, 1), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EUNAVAILABLE);
  crl_plugin_memcached.disconnect(second);
  ended(&d);
}

static void what_was_not_sent_for_a_broken_connection_is_told_so(void **state) {
  (void)state;
  dialogue d = connected(GREETED ADD_K "CLOSE\n");
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, "k", 1), op_of(CORRAL_VERB_CLAIM, "other", 1),
                     op_of(CORRAL_VERB_GET, "k", 1)};
  assert_int_equal(perform(&d.c, ops, 3), CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[0].status, CORRAL_EINDOUBT);
  assert_true(ops[1].status == CORRAL_EINDOUBT || ops[1].status == CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[2].status, CORRAL_EUNAVAILABLE);
  ended(&d);
}

/* Each of the replies takes longer than the deadline; a call that read it whole would say so. */
static void in_time(const struct way *way, const char *steps) {
  int64_t before = crl_registry_host()->now_ms();
  outcome o = answered(way, steps, SHORT);
  int64_t took = crl_registry_host()->now_ms() - before;
  assert_int_equal(o.performed, CORRAL_EUNAVAILABLE);
  assert_non_null(strstr(o.text, "the time allowed is over"));
  if (took < SHORT) fail_msg("%s: it took %lld ms", way->command, (long long)took);
}

static void a_silent_server_is_given_up_at_the_deadline(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++) in_time(&ways[w], "HANG\n");
}

static void a_trickle_does_not_stretch_the_deadline(void **state) {
  (void)state;
  for (size_t w = 0; w < WAYS; w++)
    in_time(&ways[w], "TRICKLE 400 SERVER_ERROR aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
  in_time(&ways[0], "TRICKLE 400 VALUE k 0 100 "
                    "1\\r\\naaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\n");
}

static void a_reply_byte_by_byte_is_read_when_there_is_time(void **state) {
  (void)state;
  outcome o = answered(&ways[1], "TRICKLE 1 STORED\\r\\n\n", LIMIT);
  assert_int_equal(o.performed, CORRAL_OK);
  assert_int_equal(o.status, CORRAL_OK);
}

/* Sends 800,000 bytes to a server that reads none of them, or hangs up. */
static void large_fill_against(const char *steps, int64_t limit) {
  char script[2048];
  uint8_t *record = record_of(800000, 1);
  snprintf(script, sizeof script, "%s%s%s", GREETED, ADD_K "SEND STORED\\r\\n\n" GETS_K, steps);
  dialogue d = connected(script);
  corral_op ops[] = {op_of(CORRAL_VERB_CLAIM, "k", 1), op_of(CORRAL_VERB_CLAIM, "k", 1)};
  assert_int_equal(perform(&d.c, ops, 1), CORRAL_OK);
  dropped(ops);
  ops[0] = op_of(CORRAL_VERB_SETTLE, "k", 1);
  ops[0].settle.record = record;
  ops[0].settle.record_len = CORRAL_HEAD + 800000;
  int status = perform_for(&d.c, ops, 2, limit); /* returns, though the server never does */
  assert_true(status != CORRAL_OK);
  assert_true(ops[0].status == CORRAL_EINDOUBT || ops[0].status == CORRAL_EUNAVAILABLE);
  assert_int_equal(ops[1].status, CORRAL_EUNAVAILABLE);
  closed(&d.c);
  fake_server_stop(d.server);
  free(record);
}

/* A record leased by token 1 until the year 2100. */
#define TOKEN_1 "\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02\\x02"
#define LEASED_K                                                                                   \
  "SEND VALUE k 0 88 9\\r\\ncrl2\\x01" ZEROS TEN_ZEROS "\\0\\0\\x28\\0\\0\\0\\x10\\x27\\0\\0"      \
  "\\0\\x70\\xd5\\x84\\xbb\\x03\\0\\0\\0\\0\\0\\0\\0\\0\\0\\0" TOKEN_1 "\\r\\nEND\\r\\n\n"

static void a_server_that_fails_within_a_large_fill_costs_no_more_than_the_deadline(void **state) {
  (void)state;
  large_fill_against(LEASED_K "EXPECT cas k\nCLOSE\n", LIMIT);
  large_fill_against(LEASED_K "EXPECT cas k\nEXPECT never sent\n", SHORT);
  large_fill_against(LEASED_K "EXPECT cas k\nSEND SURPLUS\\r\\n\nEXPECT never sent\n", SHORT);
}

static void a_deadline_that_has_passed_sends_nothing(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "SEND END\\r\\n\n");
  corral_op late = op_of(CORRAL_VERB_INVALIDATE, "k", 0), get = op_of(CORRAL_VERB_GET, "k", 0);
  assert_int_equal(perform_for(&d.c, &late, 1, -1), CORRAL_OK);
  assert_int_equal(late.status, CORRAL_EUNAVAILABLE);
  assert_int_equal(perform(&d.c, &get, 1), CORRAL_OK);
  assert_int_equal(get.status, CORRAL_EMISS);
  ended(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_key_that_others_change_all_the_time_is_given_up),
      cmocka_unit_test(a_lock_that_others_change_is_tried_again),
      cmocka_unit_test(a_race_that_is_lost_until_the_deadline_has_changed_nothing),
      cmocka_unit_test(a_lock_verb_whose_reply_is_lost_is_unknown_and_one_that_was_not_sent_is_not),
      cmocka_unit_test(
          a_lock_verb_whose_server_doesnt_know_is_unknown_and_one_without_memory_refused),
      cmocka_unit_test(a_time_that_no_clock_has_isnt_believed),
      cmocka_unit_test(a_reply_cut_in_the_middle_leaves_the_fate_of_a_write_unknown),
      cmocka_unit_test(a_connection_closed_while_idle_is_seen_before_sending),
      cmocka_unit_test(what_was_not_sent_for_a_broken_connection_is_told_so),
      cmocka_unit_test(a_silent_server_is_given_up_at_the_deadline),
      cmocka_unit_test(a_trickle_does_not_stretch_the_deadline),
      cmocka_unit_test(a_reply_byte_by_byte_is_read_when_there_is_time),
      cmocka_unit_test(a_server_that_fails_within_a_large_fill_costs_no_more_than_the_deadline),
      cmocka_unit_test(a_deadline_that_has_passed_sends_nothing),
  };
  return cmocka_run_group_tests(tests, default_signals, NULL);
}
