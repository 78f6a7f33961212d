/* test_memcached_begin.c: looks at memcached without waiting: as perform answers them, in pieces,
 * and answered by nonsense. */
#include "support/memcached_dialogue_kit.h"

#include <poll.h>

#include "support/memcached_server.h"

enum { MANY = 150, LARGE = 300000 };

static memcached_server *server;

/* Finishes as the descriptor becomes readable; returns the last status. */
static int heard(client *c, int *times) {
  struct pollfd fd = {.fd = crl_plugin_memcached.descriptor(c->handle), .events = POLLIN};
  int done = 0, status = CORRAL_OK;
  for (*times = 0; !done && status == CORRAL_OK; ++*times) {
    if (poll(&fd, 1, LIMIT) != 1) fail_msg("nothing comes");
    status = crl_plugin_memcached.finish(c->handle, &done, &c->error);
  }
  return status;
}

static int begun(client *c, corral_op *ops, size_t count) {
  static corral_batch batch; /* stays until it is finished */
  batch = (corral_batch){.ops = ops, .count = count, .op_size = sizeof *ops};
  for (size_t i = 0; i < count; i++) {
    ops[i].status = CORRAL_EINDOUBT;
    ops[i].error = &c->error;
  }
  return crl_plugin_memcached.begin(c->handle, &batch, &c->error);
}

static size_t size_of(int i) { return i % 10 == 0 ? 20000 : i == 77 ? LARGE : (size_t)i; }

/* Some keys come twice, and each third isn't there. */
static void what_is_begun_finds_what_perform_finds(void **state) {
  (void)state;
  client c = opened(memcached_server_uri(server));
  static corral_op ops[MANY], same[MANY];
  static char keys[MANY][16];
  int times;
  for (int i = 0; i < MANY; i++) {
    snprintf(keys[i], sizeof keys[i], "key %d", i < MANY - 20 ? i : i - 70);
    if (i % 3 != 0 && i < MANY - 20) {
      does(&c, CORRAL_VERB_CLAIM, keys[i], 1);
      assert_int_equal(fills(&c, keys[i], 1, size_of(i)), CORRAL_OK);
    }
    ops[i] = same[i] = op_of(CORRAL_VERB_GET, keys[i], 0);
  }
  assert_int_equal(perform(&c, same, MANY), CORRAL_OK);
  for (int turn = 0; turn < 2; turn++) { /* perform goes on the same handle between them */
    assert_int_equal(begun(&c, ops, MANY), CORRAL_OK);
    if (heard(&c, &times) != CORRAL_OK) fail_msg("%s", c.error.text);
    for (int i = 0; i < MANY; i++) {
      assert_int_equal(ops[i].status, same[i].status);
      assert_int_equal(ops[i].found.len, same[i].found.len);
      assert_memory_equal(ops[i].found.record, same[i].found.record, same[i].found.len);
      assert_true(ops[i].state.life_ms <= same[i].state.life_ms); /* it is the later look */
      assert_int_equal(ops[i].state.life_ms > 0, same[i].state.life_ms > 0);
      dropped(&ops[i]);
    }
    assert_int_equal(looks(&c, "key 1").size, 1);
  }
  assert_int_equal(same[0].status, CORRAL_EMISS);
  assert_int_equal(same[77].found.len, CORRAL_HEAD + LARGE);
  for (int i = 0; i < MANY; i++) dropped(&same[i]);
  closed(&c);
}

static void a_reply_in_pieces_is_put_together(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "TRICKLE 60 VALUE k 0 48\\r\\ncrl2" ZEROS TEN_ZEROS
                                       "\\0\\0\\0\\r\\nEND\\r\\n\n");
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int times;
  assert_int_equal(begun(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(heard(&d.c, &times), CORRAL_OK);
  assert_true(times > 5);
  assert_int_equal(op.status, CORRAL_OK);
  assert_int_equal(op.found.len, CORRAL_HEAD);
  dropped(&op);
  ended(&d);
}

static void a_reply_that_makes_no_sense_leaves_nothing(void **state) {
  (void)state;
  static const char *const strange[] = {"STORED",
                                        "VALUE",
                                        "VALUE k",
                                        "VALUE k 0 x",
                                        "VALUE k 0 2000000000",
                                        "VALUE other 0 1\\r\\nx",
                                        "VALUE k 0 1\\r\\nxyz",
                                        "\\0\\0\\0",
                                        "VALUE k 0 1\\r\\nx\\r\\nVALUE k 0 1\\r\\nx\\r\\nEND",
                                        "END\\r\\nEND",
                                        "VALUE k 0 1\\r\\nx\\r\\nSTORED",
                                        "CLIENT_ERROR no"};
  for (size_t i = 0; i < sizeof strange / sizeof *strange; i++) {
    char script[1024];
    int times;
    snprintf(script, sizeof script, GREETED GET_K "SEND %s\\r\\n\n", strange[i]);
    dialogue d = connected(script);
    corral_op ops[] = {op_of(CORRAL_VERB_GET, "k", 0), op_of(CORRAL_VERB_GET, "k", 0)};
    assert_int_equal(begun(&d.c, ops, 2), CORRAL_OK);
    if (heard(&d.c, &times) != CORRAL_EPROTOCOL) fail_msg("after '%s'", strange[i]);
    for (int k = 0; k < 2; k++) {
      assert_int_equal(ops[k].status, CORRAL_EINDOUBT);
      assert_null(ops[k].found.record);
    }
    ended(&d);
  }
}

static void an_error_line_is_the_answer_and_the_connection_goes_on(void **state) {
  (void)state;
  dialogue d =
      connected(GREETED GET_K "SEND SERVER_ERROR out of memory writing get response\\r\\n\n" GET_K
                              "SEND END\\r\\n\n");
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int times;
  assert_int_equal(begun(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(heard(&d.c, &times), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EREFUSED);
  assert_int_equal(begun(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(heard(&d.c, &times), CORRAL_OK);
  assert_int_equal(op.status, CORRAL_EMISS);
  ended(&d);
}

static void a_server_that_hangs_up_leaves_nothing(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "SEND VALUE k 0 100\\r\\nxx\nCLOSE\n");
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  int times;
  assert_int_equal(begun(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(heard(&d.c, &times), CORRAL_EUNAVAILABLE);
  assert_int_equal(op.status, CORRAL_EINDOUBT);
  assert_null(op.found.record);
  ended(&d);
}

static void a_handle_may_be_closed_in_the_middle_of_a_reply(void **state) {
  (void)state;
  dialogue d = connected(GREETED GET_K "SEND VALUE k 0 100\\r\\nxx\n");
  corral_op op = op_of(CORRAL_VERB_GET, "k", 0);
  struct pollfd fd = {.fd = crl_plugin_memcached.descriptor(d.c.handle), .events = POLLIN};
  int done;
  assert_int_equal(begun(&d.c, &op, 1), CORRAL_OK);
  assert_int_equal(poll(&fd, 1, LIMIT), 1);
  assert_int_equal(crl_plugin_memcached.finish(d.c.handle, &done, &d.c.error), CORRAL_OK);
  assert_false(done);
  ended(&d);
}

static int stop(void **state) {
  (void)state;
  memcached_server_stop(server);
  return 0;
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_is_begun_finds_what_perform_finds),
      cmocka_unit_test(a_reply_in_pieces_is_put_together),
      cmocka_unit_test(a_reply_that_makes_no_sense_leaves_nothing),
      cmocka_unit_test(an_error_line_is_the_answer_and_the_connection_goes_on),
      cmocka_unit_test(a_server_that_hangs_up_leaves_nothing),
      cmocka_unit_test(a_handle_may_be_closed_in_the_middle_of_a_reply),
  };
  if (!memcached_server_start(&server, NULL)) return 77;
  return cmocka_run_group_tests_name("memcached, begun", tests, default_signals, stop);
}
