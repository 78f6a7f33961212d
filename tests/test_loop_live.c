/* test_loop_live.c: event loops on a real Redis: effects between processes, a failing server, and
 * the size of batches. */
#include "support/loop_kit.h"

#include <sys/stat.h>
#include <unistd.h>

#include "support/redis_server.h"
#include "support/room.h"

static redis_server *server;

static loop_desk opened_as(const corral_options *options) {
  if (server == NULL) skip();
  return desk_open(options);
}

static loop_desk opened(const corral_policy *policy) {
  return opened_as(
      CORRAL_OPTIONS(.store = redis_server_uri(server), .policy = policy, .op_ms = 10000));
}

/* A lease that doesn't end while a compute is open, though nobody extends it. */
#define LASTS .lease_ms = 600000, .lease_min_ms = 600000

static int fresh(void **state) {
  (void)state;
  if (server == NULL) return 0;
  redis_server_resume(server); /* a test that failed may have left it stopped */
  redis_server_ask(server, "FLUSHALL");
  return 0;
}

static void who_waits_for_another_process_is_woken_by_its_fill(void **state) {
  (void)state;
  loop_desk here = opened(NULL),
            there = opened(CORRAL_POLICY(.poll_ms = 60000, .poll_max_ms = 60000));
  request leader = {0}, waiter = {0};
  ask(here.loop, "a", CORRAL_POLICY(LASTS), &leader);
  RUN_UNTIL(here.loop, leader.starts, 1);
  /* A wait that began before the watch was open ends by its own pause; later waits are watched. */
  request first = {0};
  ask(there.loop, "a", CORRAL_POLICY(.wait_ms = 100), &first);
  RUN_UNTIL(there.loop, first.gones, 1);
  assert_int_equal(first.status, CORRAL_EDEADLINE);
  /* the first look may take longer than a short wait */
  uint64_t waits = corral_counter(there.c, CORRAL_EVENT_WAIT);
  ask(there.loop, "a", NULL, &waiter);
  await_counter(there.c, CORRAL_EVENT_WAIT, waits + 1);
  make(&leader, "x");
  RUN_UNTIL(there.loop, waiter.gones, 1);
  assert_string_equal(waiter.text, "x");
  assert_int_equal(waiter.how, CORRAL_JOINED);
  RUN_UNTIL(here.loop, leader.gones, 1);
  closed(&there);
  closed(&here);
}

static void a_leader_whose_lease_is_gone_is_replaced_and_fenced(void **state) {
  (void)state;
  loop_desk here = opened(NULL), there = opened(NULL);
  request leader = {0}, waiter = {.makes = "the second's"};
  ask(here.loop, "a", CORRAL_POLICY(LASTS), &leader);
  RUN_UNTIL(here.loop, leader.starts, 1);
  ask(there.loop, "a", NULL, &waiter);
  await_counter(there.c, CORRAL_EVENT_WAIT, 1);
  /* A DEL by any client ends the lease too. */
  redis_server_ask(server, "DEL a");
  RUN_UNTIL(there.loop, waiter.gones, 1);
  assert_string_equal(waiter.text, "the second's");
  make(&leader, "too late");
  RUN_UNTIL(here.loop, leader.gones, 1);
  assert_string_equal(leader.text, "too late");
  request next = {0};
  ask(there.loop, "a", NULL, &next);
  RUN_UNTIL(there.loop, next.gones, 1);
  assert_string_equal(next.text, "the second's");
  closed(&there);
  closed(&here);
}

static void with_the_host_rung_one_claim_is_sent_and_the_others_wait(void **state) {
  (void)state;
  char folder[ROOM_PATH], file[64];
  if (server == NULL) skip();
  room_folder(folder, "loop");
  corral_options options = {.size = sizeof options,
                            .store = redis_server_uri(server),
                            .op_ms = 10000,
                            .host_lock = 1,
                            .host_dir = folder};
  loop_desk here = opened_as(&options), there = opened_as(&options);
  request leader = {0}, waiter = {.makes = "never"};
  ask(here.loop, "a", CORRAL_POLICY(LASTS), &leader);
  RUN_UNTIL(here.loop, leader.starts, 1);
  ask(there.loop, "a", NULL, &waiter);
  await_counter(there.c, CORRAL_EVENT_HOST_WAIT, 1);
  make(&leader, "x");
  RUN_UNTIL(there.loop, waiter.gones, 1);
  assert_string_equal(waiter.text, "x");
  assert_int_equal(waiter.starts, 0);
  assert_int_equal(corral_counter(there.c, CORRAL_EVENT_CLAIM), 0);
  RUN_UNTIL(here.loop, leader.gones, 1);
  closed(&there);
  closed(&here);
  snprintf(file, sizeof file, "%s/corral.lock", folder);
  unlink(file);
  rmdir(folder);
}

static void while_the_server_hangs_calls_end_and_compute_once_a_key(void **state) {
  enum { CALLS = 200 };
  (void)state;
  static request r[CALLS];
  memset(r, 0, sizeof r);
  if (server == NULL) skip();
  loop_desk d = opened_as(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 100));
  redis_server_pause(server);
  for (int i = 0; i < CALLS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i % 4);
    r[i].makes = "x";
    ask(d.loop, key, NULL, &r[i]);
  }
  for (int i = 0; i < CALLS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  redis_server_resume(server);
  int computes = 0;
  for (int i = 0; i < CALLS; i++) {
    computes += r[i].starts;
    assert_string_equal(r[i].text, "x");
  }
  assert_int_equal(computes, 4);
  closed(&d);
}

static void a_server_that_dies_under_computes_costs_no_answer(void **state) {
  (void)state;
  if (server == NULL) skip();
  loop_desk d = opened_as(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 150));
  request leader = {0}, waiter = {0};
  ask(d.loop, "a", NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  ask(d.loop, "a", NULL, &waiter);
  redis_server_kill(server);
  make(&leader, "x");
  RUN_UNTIL(d.loop, leader.gones + waiter.gones, 2);
  redis_server_restart(server);
  assert_string_equal(leader.text, "x");
  assert_string_equal(waiter.text, "x");
  closed(&d);
}

/* With settle_behind, `done` comes while the server is silent, `gone` when it has the value. */
static void a_call_that_does_not_wait_for_the_store_is_done_when_its_compute_is(void **state) {
  (void)state;
  corral_policy policy = {
      .size = sizeof policy, .wait_ms = LOOP_PATIENCE_MS, .settle_behind = 1, LASTS};
  loop_desk d =
      opened_as(CORRAL_OPTIONS(.store = redis_server_uri(server), .away_ms = 2 * LOOP_PATIENCE_MS));
  request leader = {0}, next = {0};
  ask(d.loop, "a", &policy, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  redis_server_pause(server);
  make(&leader, "x");
  RUN_UNTIL(d.loop, leader.dones, 1);
  assert_string_equal(leader.text, "x");
  assert_int_equal(leader.kept, CORRAL_KEPT_UNKNOWN);
  assert_int_equal(corral_counter(d.c, CORRAL_EVENT_UNSTORED), 0);
  assert_int_equal(leader.gones, 0);
  redis_server_resume(server);
  RUN_UNTIL(d.loop, leader.gones, 1);
  assert_int_equal(corral_counter(d.c, CORRAL_EVENT_FILL), 1);
  ask(d.loop, "a", &policy, &next);
  RUN_UNTIL(d.loop, next.gones, 1);
  assert_string_equal(next.text, "x");
  assert_int_equal(next.how, CORRAL_FRESH);
  closed(&d);
}

static void many_calls_at_once_are_few_round_trips(void **state) {
  enum { CALLS = 1000 };
  (void)state;
  static request r[CALLS];
  memset(r, 0, sizeof r);
  if (server == NULL) skip();
  loop_desk d = opened_as(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 30000));
  request warm = {0};
  ask(d.loop, "nothing", NULL, &warm);
  RUN_UNTIL(d.loop, warm.starts, 1);
  long long before = redis_server_info(server, "total_net_input_bytes"),
            reads = redis_server_info(server, "total_reads_processed");
  redis_server_pause(server); /* so that all calls are there before the first is answered */
  for (int i = 0; i < CALLS; i++) {
    char key[16];
    snprintf(key, sizeof key, "k%d", i);
    assert_int_equal(ask_as(d.loop, key, NULL, &r[i], 0), CORRAL_OK);
  }
  redis_server_resume(server);
  for (int i = 0; i < CALLS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  reads = redis_server_info(server, "total_reads_processed") - reads;
  assert_true(redis_server_info(server, "total_net_input_bytes") > before);
  print_message("[          ] %d looks in %lld reads of the server\n", CALLS, reads);
  assert_true(reads < CALLS / 10);
  for (int i = 0; i < CALLS; i++) assert_int_equal(r[i].status, CORRAL_EMISS);
  make(&warm, "x");
  RUN_UNTIL(d.loop, warm.gones, 1);
  closed(&d);
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(who_waits_for_another_process_is_woken_by_its_fill),
      TEST(a_leader_whose_lease_is_gone_is_replaced_and_fenced),
      TEST(with_the_host_rung_one_claim_is_sent_and_the_others_wait),
      TEST(while_the_server_hangs_calls_end_and_compute_once_a_key),
      TEST(a_server_that_dies_under_computes_costs_no_answer),
      TEST(a_call_that_does_not_wait_for_the_store_is_done_when_its_compute_is),
      TEST(many_calls_at_once_are_few_round_trips),
  };
  if (!redis_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("loop_live", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
