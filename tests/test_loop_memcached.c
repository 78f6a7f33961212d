/* test_loop_memcached.c: event loops on a real memcached: how many calls need a flight, and so a
 * thread of the library. */
#include "support/loop_kit.h"

#include "support/flights_kit.h"
#include "support/memcached_server.h"

enum { HOUR = 3600000, KEYS = 10 };

static memcached_server *server;

static void get(corral_loop *loop, int number, request *r) {
  char key[16];
  snprintf(key, sizeof key, "k%d", number);
  *r = (request){.makes = "x"};
  ask(loop, key, CORRAL_POLICY(.ttl_ms = HOUR), r);
}

/* Asks until a hit needed no flight: the loop has its connection. */
static void warm(corral_loop *loop) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  for (int before = -1, i = 0; before != flights || i < KEYS; i++) {
    request r;
    if (crl_env_now_ms() > until) fail_msg("each look is flown");
    before = flights;
    get(loop, i % KEYS, &r);
    RUN_UNTIL(loop, r.gones, 1);
  }
}

static void a_hit_is_no_flight(void **state) {
  enum { CALLS = 200 };
  static request r[CALLS];
  (void)state;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = memcached_server_uri(server), .op_ms = 5000));
  warm(d.loop);
  int before = flights;
  for (int i = 0; i < CALLS; i++) {
    get(d.loop, i % KEYS, &r[i]);
    if (i % 2 == 0) RUN_UNTIL(d.loop, r[i].gones, 1); /* else beside the next one */
  }
  for (int i = 0; i < CALLS; i++) {
    RUN_UNTIL(d.loop, r[i].gones, 1);
    assert_int_equal(r[i].how, CORRAL_FRESH);
    assert_string_equal(r[i].text, "x");
  }
  assert_int_equal(flights, before);
  closed(&d);
}

static void a_server_that_restarts_is_looked_at_again(void **state) {
  (void)state;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = memcached_server_uri(server), .op_ms = 5000));
  warm(d.loop);
  memcached_server_restart(server);
  for (int i = 0; i < KEYS; i++) {
    request r;
    get(d.loop, i, &r);
    RUN_UNTIL(d.loop, r.gones, 1);
    assert_string_equal(r.text, "x");
  }
  closed(&d);
}

static void a_server_that_dies_while_nothing_is_asked_costs_nothing(void **state) {
  (void)state;
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = memcached_server_uri(server), .op_ms = 5000));
  struct pollfd fd = {.fd = corral_loop_fd(d.loop), .events = POLLIN};
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  request r;
  warm(d.loop);
  memcached_server_kill(server);
  assert_int_equal(poll(&fd, 1, LOOP_PATIENCE_MS), 1);
  while (poll(&fd, 1, 0) > 0 && crl_env_now_ms() < until) corral_loop_dispatch(d.loop);
  assert_int_equal(poll(&fd, 1, 0), 0); /* else the loop would spin */
  memcached_server_restart(server);
  get(d.loop, 0, &r);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_string_equal(r.text, "x");
  closed(&d);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_hit_is_no_flight),
      cmocka_unit_test(a_server_that_restarts_is_looked_at_again),
      cmocka_unit_test(a_server_that_dies_while_nothing_is_asked_costs_nothing),
  };
  if (!memcached_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("loops on memcached", tests, NULL, NULL);
  memcached_server_stop(server);
  return failed;
}
