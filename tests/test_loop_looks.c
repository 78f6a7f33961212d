/* test_loop_looks.c: event loops: first looks on the loop's own thread, on a real Redis: how many
 * calls need a flight, and so a thread of the library; a failing server; calls that are left. */
#include "support/loop_kit.h"

#include <sys/epoll.h>
#include <sys/wait.h>
#include <unistd.h>

#include "support/flights_kit.h"
#include "support/fork_kit.h"
#include "support/redis_server.h"

enum { HOUR = 3600000 };

static redis_server *server;

static int fresh(void **state) {
  (void)state;
  if (server != NULL) redis_server_ask(server, "FLUSHALL");
  return 0;
}

static void get(corral_loop *loop, const char *key, const char *makes, request *r) {
  *r = (request){.makes = makes};
  ask(loop, key, CORRAL_POLICY(.ttl_ms = HOUR), r);
}

/* Asks for "warm" until a hit needed no flight: the loop has its connection. */
static void warm(corral_loop *loop) {
  int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
  for (int before = -1; before != flights;) {
    request r;
    if (crl_env_now_ms() > until) fail_msg("each look is flown");
    before = flights;
    get(loop, "warm", "w", &r);
    RUN_UNTIL(loop, r.gones, 1);
    if (before != flights) crl_env_pause_us(1000);
  }
}

static loop_desk opened_by(int64_t op_ms) {
  if (server == NULL) skip();
  loop_desk d = desk_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = op_ms));
  warm(d.loop);
  return d;
}
static loop_desk opened(void) { return opened_by(5000); }

/* Keys k0 to k(count - 1) are computed. */
static void fill(corral_loop *loop, int count) {
  for (int i = 0; i < count; i++) {
    char key[16];
    request r;
    snprintf(key, sizeof key, "k%d", i);
    get(loop, key, "x", &r);
    RUN_UNTIL(loop, r.gones, 1);
  }
}

static void get_number(corral_loop *loop, int number, request *r) {
  char key[16];
  snprintf(key, sizeof key, "k%d", number);
  get(loop, key, "x", r);
}

/* ---- hits and misses ----------------------------------------------------------------------- */

static void a_hit_is_one_command_and_no_flight(void **state) {
  enum { CALLS = 500 };
  (void)state;
  loop_desk d = opened();
  fill(d.loop, 10);
  int before = flights;
  long long commands = redis_server_info(server, "total_commands_processed");
  for (int i = 0; i < CALLS; i++) {
    request r;
    get_number(d.loop, i % 10, &r);
    assert_int_equal(r.dones, 0); /* never from within the function that began the call */
    RUN_UNTIL(d.loop, r.gones, 1);
    assert_int_equal(r.how, CORRAL_FRESH);
    assert_int_equal(r.starts, 0);
  }
  commands = redis_server_info(server, "total_commands_processed") - commands;
  assert_int_equal(flights, before);
  /* and a TIME once in a second */
  assert_in_range(commands, CALLS, CALLS + CALLS / 10);
  closed(&d);
}

static int told_hits;
static corral_event_info last_hit;

static void on_event(const corral_event_info *info, void *arg) {
  (void)arg;
  if (info->event != CORRAL_EVENT_HIT) return;
  told_hits++;
  last_hit = *info;
}

/* The nginx module counts its hits by a hook; that costs no flight. */
static void with_a_hook_a_hit_is_told_and_needs_no_flight_either(void **state) {
  enum { CALLS = 100 };
  (void)state;
  if (server == NULL) skip();
  loop_desk d = desk_open(
      CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 5000, .on_event = on_event));
  warm(d.loop);
  fill(d.loop, 1);
  int before = flights;
  told_hits = 0;
  for (int i = 0; i < CALLS; i++) {
    request r;
    get_number(d.loop, 0, &r);
    RUN_UNTIL(d.loop, r.gones, 1);
    assert_int_equal(r.how, CORRAL_FRESH);
  }
  assert_int_equal(flights, before);
  assert_int_equal(told_hits, CALLS);
  assert_int_equal(last_hit.status, CORRAL_OK);
  assert_int_equal(last_hit.bytes, 1);
  assert_true(last_hit.duration_us >= 0);
  closed(&d);
}

static void calls_at_once_share_few_reads(void **state) {
  enum { CALLS = 1000 };
  (void)state;
  static request r[CALLS];
  loop_desk d = opened();
  fill(d.loop, 100);
  int before = flights;
  long long reads = redis_server_info(server, "total_reads_processed");
  redis_server_pause(server);
  for (int i = 0; i < CALLS; i++) get_number(d.loop, i % 100, &r[i]);
  redis_server_resume(server);
  for (int i = 0; i < CALLS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  reads = redis_server_info(server, "total_reads_processed") - reads;
  for (int i = 0; i < CALLS; i++) assert_string_equal(r[i].text, "x");
  assert_true(reads < CALLS / 10);
  /* those who came after the first look at k0 was sent look anew, together; the other keys' looks
   * were sent after all their calls had begun */
  assert_in_range(flights - before, 0, 1);
  closed(&d);
}

/* The number of records that the server has read, in scripts too. */
static long long records_read(void) {
  const char *text = strstr(redis_server_ask(server, "INFO commandstats"), "cmdstat_getrange:");
  return text == NULL ? 0 : strtoll(strstr(text, "calls=") + 6, NULL, 10);
}

/* So it is with a page that many clients of nginx want. */
static void calls_that_come_behind_a_look_at_their_key_need_no_flight(void **state) {
  enum { CALLS = 50, MORE = 200 };
  (void)state;
  static request r[1 + MORE];
  loop_desk d = opened();
  fill(d.loop, 1);
  for (int calls = CALLS; calls <= MORE; calls += MORE - CALLS) {
    int before = flights;
    redis_server_pause(server);
    for (int i = 0; i <= calls; i++) get_number(d.loop, 0, &r[i]);
    redis_server_resume(server);
    for (int i = 0; i <= calls; i++) {
      RUN_UNTIL(d.loop, r[i].gones, 1);
      assert_string_equal(r[i].text, "x");
    }
    /* a larger crowd shares one flight */
    assert_int_equal(flights - before, calls == MORE);
  }
  closed(&d);
}

static void a_miss_is_one_flight_and_one_compute(void **state) {
  enum { CALLS = 20 };
  (void)state;
  static request r[CALLS];
  loop_desk d = opened();
  int before = flights;
  long long read = records_read();
  request one;
  get(d.loop, "none", "made", &one);
  RUN_UNTIL(d.loop, one.gones, 1);
  read = records_read() - read;
  assert_int_equal(one.starts, 1);
  assert_string_equal(one.text, "made");
  assert_int_equal(flights - before, 1);
  assert_int_equal(read, 2); /* by the look and the settle: the flight doesn't look again */
  int computes = 0;
  for (int i = 0; i < CALLS; i++) get(d.loop, "herd", "made", &r[i]);
  for (int i = 0; i < CALLS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  for (int i = 0; i < CALLS; i++) computes += r[i].starts;
  assert_int_equal(computes, 1);
  closed(&d);
}

static void what_was_invalidated_before_a_call_began_is_never_its_answer(void **state) {
  (void)state;
  loop_desk d = opened();
  for (int i = 0; i < 50; i++) {
    char text[16];
    request early, late;
    snprintf(text, sizeof text, "%d", i);
    get(d.loop, "a", "old", &early);
    assert_int_equal(corral_invalidate(d.c, "a", 1, NULL), CORRAL_OK);
    get(d.loop, "a", text, &late);
    RUN_UNTIL(d.loop, early.gones + late.gones, 2);
    if (late.starts == 0 && early.starts == 0) fail_msg("round %d: %s", i, late.text);
    assert_int_equal(corral_invalidate(d.c, "a", 1, NULL), CORRAL_OK);
  }
  closed(&d);
}

static void by_an_edge_alone_no_answer_is_missed(void **state) {
  enum { CALLS = 300 };
  (void)state;
  loop_desk d = opened();
  fill(d.loop, CALLS);
  static request r[CALLS];
  struct epoll_event event = {.events = EPOLLIN | EPOLLET};
  int set = epoll_create1(EPOLL_CLOEXEC), before = flights;
  assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, corral_loop_fd(d.loop), &event), 0);
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < CALLS; i++) get_number(d.loop, i, &r[i]);
    for (int i = 0; i < CALLS;) {
      if (r[i].gones > 0) {
        i++;
        continue;
      }
      if (epoll_wait(set, &event, 1, LOOP_PATIENCE_MS) != 1) fail_msg("no edge");
      corral_loop_dispatch(d.loop);
    }
  }
  assert_int_equal(flights, before);
  close(set);
  closed(&d);
}

/* ---- a failing server ---------------------------------------------------------------------- */

static int is_readable(corral_loop *loop) {
  struct pollfd fd = {.fd = corral_loop_fd(loop), .events = POLLIN};
  return poll(&fd, 1, 0) > 0;
}

static void a_connection_that_is_closed_is_dropped_and_made_anew(void **state) {
  (void)state;
  loop_desk d = opened();
  for (int round = 0; round < 2; round++) {
    int64_t until = crl_env_now_ms() + LOOP_PATIENCE_MS;
    redis_server_ask(server, "CLIENT KILL TYPE normal SKIPME yes");
    while (!is_readable(d.loop) && crl_env_now_ms() < until) crl_env_pause_us(200);
    while (is_readable(d.loop) && crl_env_now_ms() < until) corral_loop_dispatch(d.loop);
    assert_false(is_readable(d.loop)); /* else the loop would spin */
    request r;
    get(d.loop, "warm", "w", &r);
    RUN_UNTIL(d.loop, r.gones, 1);
    assert_string_equal(r.text, "w");
    warm(d.loop);
  }
  closed(&d);
}

static void calls_under_way_end_when_the_server(int dies) {
  enum { CALLS = 200 };
  static request r[CALLS];
  loop_desk d = opened_by(200);
  fill(d.loop, 20);
  redis_server_pause(server);
  for (int i = 0; i < CALLS; i++) get_number(d.loop, i % 20, &r[i]);
  if (dies) redis_server_kill(server);
  for (int i = 0; i < CALLS; i++) RUN_UNTIL(d.loop, r[i].gones, 1);
  int computes = 0;
  for (int i = 0; i < CALLS; i++) {
    assert_string_equal(r[i].text, "x");
    assert_int_equal(r[i].dones, 1);
    computes += r[i].starts;
  }
  assert_in_range(computes, 0, 20); /* one for each key, by the calls' own flights */
  if (dies)
    redis_server_restart(server);
  else
    redis_server_resume(server);
  warm(d.loop);
  closed(&d);
}

static void a_server_that_dies_under_looks_costs_no_answer(void **state) {
  (void)state;
  calls_under_way_end_when_the_server(1);
}

static void a_silent_server_costs_no_answer(void **state) {
  (void)state;
  calls_under_way_end_when_the_server(0);
}

static void get_outdated(corral_loop *loop, int64_t swr_ms, const char *makes, request *r) {
  *r = (request){.makes = makes};
  ask(loop, "outdated",
      CORRAL_POLICY(.ttl_ms = 1, .swr_ms = swr_ms, .sie_ms = HOUR, .wait_ms = 60000,
                    .when_away = CORRAL_AWAY_STALE),
      r);
}

enum { CROWD = 50 };

/* The store is away, this process has an outdated value, and `leader` computes a new one. */
static loop_desk outdated_desk(int64_t swr_ms, request *leader) {
  request old;
  loop_desk d = opened();
  redis_server_kill(server);
  get_outdated(d.loop, swr_ms, "old", &old);
  RUN_UNTIL(d.loop, old.gones, 1);
  crl_env_pause_us(5000);
  get_outdated(d.loop, swr_ms, NULL, leader);
  RUN_UNTIL(d.loop, leader->starts, 1);
  return d;
}

static void outdated_desk_end(loop_desk *d, request *leader) {
  RUN_UNTIL(d->loop, leader->gones, 1);
  redis_server_restart(server);
  closed(d);
}

/* The crowd waits, computes nothing, and has the leader's value. */
static void crowd_has_the_leaders(loop_desk *d, request *leader, request *r) {
  for (int i = 0; i < 100; i++) {
    crl_env_pause_us(1000);
    corral_loop_dispatch(d->loop);
  }
  make(leader, "new");
  for (int i = 0; i < CROWD; i++) {
    RUN_UNTIL(d->loop, r[i].gones, 1);
    assert_int_equal(r[i].starts, 0);
    assert_string_equal(r[i].text, "new");
  }
}

/* The value of this process may be stale at the calls' deadline, and is no answer before. */
static void while_the_store_is_away_what_is_outdated_is_computed_once(void **state) {
  (void)state;
  static request r[CROWD];
  request leader;
  loop_desk d = outdated_desk(CORRAL_OFF, &leader);
  for (int i = 0; i < CROWD; i++) get_outdated(d.loop, CORRAL_OFF, "mine", &r[i]);
  crowd_has_the_leaders(&d, &leader, r);
  outdated_desk_end(&d, &leader);
}

static void while_the_store_is_away_a_stale_value_is_answered_and_computed_once(void **state) {
  (void)state;
  static request r[CROWD];
  request leader;
  loop_desk d = outdated_desk(HOUR, &leader);
  assert_string_equal(leader.text, "old");
  for (int i = 0; i < CROWD; i++) get_outdated(d.loop, HOUR, "mine", &r[i]);
  for (int i = 0; i < CROWD; i++) {
    RUN_UNTIL(d.loop, r[i].gones, 1);
    assert_int_equal(r[i].starts, 0);
    assert_string_equal(r[i].text, "old");
  }
  make(&leader, "new");
  outdated_desk_end(&d, &leader);
}

static void get_stale(corral_loop *loop, const char *makes, request *r) {
  *r = (request){.makes = makes};
  ask(loop, "stale", CORRAL_POLICY(.ttl_ms = 1, .swr_ms = HOUR, .wait_ms = 60000), r);
}

/* Calls that find no store to look at wait for the call that has the lease. */
static void what_is_rebuilt_when_the_store_goes_away_is_computed_once(void **state) {
  (void)state;
  static request r[CROWD];
  request old, leader;
  loop_desk d = opened();
  get_stale(d.loop, "old", &old);
  RUN_UNTIL(d.loop, old.gones, 1);
  crl_env_pause_us(5000);
  get_stale(d.loop, NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  assert_string_equal(leader.text, "old");
  redis_server_kill(server);
  for (int i = 0; i < CROWD; i++) get_stale(d.loop, "mine", &r[i]);
  crowd_has_the_leaders(&d, &leader, r);
  outdated_desk_end(&d, &leader);
}

static void invalidate_elsewhere(const char *key) {
  corral *other = NULL;
  corral_error error;
  assert_int_equal(corral_open(CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 10000),
                               &other, &error),
                   CORRAL_OK);
  assert_int_equal(corral_invalidate(other, key, strlen(key), NULL), CORRAL_OK);
  corral_close(other);
}

/* A store that failed last may be back: a call that can ask it does. */
static void once_the_store_is_back_what_was_invalidated_elsewhere_is_no_answer(void **state) {
  (void)state;
  request old, leader, r;
  if (server == NULL) skip();
  loop_desk d = desk_open(
      CORRAL_OPTIONS(.store = redis_server_uri(server), .op_ms = 5000, .breaker_failures = 1000));
  redis_server_kill(server);
  get_outdated(d.loop, HOUR, "old", &old);
  RUN_UNTIL(d.loop, old.gones, 1);
  crl_env_pause_us(5000);
  get_outdated(d.loop, HOUR, NULL, &leader);
  RUN_UNTIL(d.loop, leader.starts, 1);
  redis_server_restart(server);
  invalidate_elsewhere("outdated");
  get_outdated(d.loop, HOUR, "mine", &r);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_string_equal(r.text, "mine");
  make(&leader, "new");
  RUN_UNTIL(d.loop, leader.gones, 1);
  closed(&d);
}

/* The child has a copy of the connection, so the server's end alone doesn't take it out of the
 * loop's set. */
static void a_fork_leaves_the_looks_to_the_parent(void **state) {
  (void)state;
  loop_desk d = opened();
  request r[2];
  int status, ends[2];
  fill(d.loop, 1);
  assert_int_equal(pipe(ends), 0);
  redis_server_pause(server);
  get_number(d.loop, 0, &r[0]);
  pid_t child = fork_at_rest();
  if (child == 0) {
    char byte;
    close(ends[1]);
    int refuses = ask_as(d.loop, "k0", NULL, &r[1], 1) == CORRAL_EFORKED;
    corral_loop_dispatch(d.loop);
    corral_loop_close(d.loop);
    _exit(read(ends[0], &byte, 1) == 0 && refuses && r[0].gones == 0 ? 0 : 1);
  }
  redis_server_kill(server);
  redis_server_restart(server);
  RUN_UNTIL(d.loop, r[0].gones, 1);
  assert_int_equal(r[0].dones, 1);
  warm(d.loop);
  corral_loop_dispatch(d.loop);
  assert_false(is_readable(d.loop));
  close(ends[1]);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  close(ends[0]);
  closed(&d);
}

/* ---- calls that are left ------------------------------------------------------------------- */

static void a_cancelled_look_is_told_nothing_and_who_joined_it_goes_on(void **state) {
  (void)state;
  loop_desk d = opened();
  request first, second, alone;
  fill(d.loop, 2);
  redis_server_pause(server);
  get_number(d.loop, 0, &first);
  get_number(d.loop, 0, &second);
  get_number(d.loop, 1, &alone);
  corral_async_call_cancel(first.call);
  corral_async_call_cancel(alone.call);
  corral_loop_dispatch(d.loop);
  redis_server_resume(server);
  RUN_UNTIL(d.loop, first.gones + second.gones + alone.gones, 3);
  assert_int_equal(first.dones + alone.dones, 0);
  assert_string_equal(second.text, "x");
  closed(&d);
}

static void a_cancel_token_ends_a_look_at_once(void **state) {
  (void)state;
  loop_desk d = opened();
  corral_cancel_token *token = corral_cancel_token_new();
  request r = {0};
  fill(d.loop, 1);
  redis_server_pause(server);
  ask_by(d.loop, "k0", CORRAL_CALL(.cancel_token = token), &r);
  corral_cancel_token_cancel(token);
  corral_loop_dispatch(d.loop);
  assert_int_equal(r.dones, 1);
  assert_int_equal(r.status, CORRAL_ECANCELLED);
  redis_server_resume(server);
  RUN_UNTIL(d.loop, r.gones, 1);
  assert_int_equal(r.dones, 1);
  corral_cancel_token_free(token);
  closed(&d);
}

static void a_loop_may_be_closed_with_looks_sent_and_queued(void **state) {
  enum { CALLS = 300 };
  (void)state;
  static request r[CALLS];
  loop_desk d = opened();
  fill(d.loop, 2);
  redis_server_pause(server);
  for (int i = 0; i < CALLS; i++) get_number(d.loop, i, &r[i]);
  corral_loop_close(d.loop);
  redis_server_resume(server);
  for (int i = 0; i < CALLS; i++) {
    assert_int_equal(r[i].gones, 1);
    assert_int_equal(r[i].dones + r[i].starts, 0);
  }
  corral_close(d.c);
}

static void a_loop_may_be_closed_while_it_connects(void **state) {
  (void)state;
  for (int i = 0; i < 20; i++) {
    if (server == NULL) skip();
    loop_desk d = desk_open(CORRAL_OPTIONS(.store = redis_server_uri(server)));
    request r[3];
    for (int k = 0; k < 3; k++) get(d.loop, "warm", "w", &r[k]);
    if (i % 2) RUN_UNTIL(d.loop, r[2].gones, 1);
    closed(&d);
    assert_int_equal(r[2].gones, 1);
  }
}

#define TEST(name) cmocka_unit_test_setup(name, fresh)

int main(void) {
  const struct CMUnitTest tests[] = {
      TEST(a_hit_is_one_command_and_no_flight),
      TEST(with_a_hook_a_hit_is_told_and_needs_no_flight_either),
      TEST(calls_at_once_share_few_reads),
      TEST(calls_that_come_behind_a_look_at_their_key_need_no_flight),
      TEST(a_miss_is_one_flight_and_one_compute),
      TEST(what_was_invalidated_before_a_call_began_is_never_its_answer),
      TEST(by_an_edge_alone_no_answer_is_missed),
      TEST(a_connection_that_is_closed_is_dropped_and_made_anew),
      TEST(a_server_that_dies_under_looks_costs_no_answer),
      TEST(a_silent_server_costs_no_answer),
      TEST(while_the_store_is_away_what_is_outdated_is_computed_once),
      TEST(while_the_store_is_away_a_stale_value_is_answered_and_computed_once),
      TEST(what_is_rebuilt_when_the_store_goes_away_is_computed_once),
      TEST(once_the_store_is_back_what_was_invalidated_elsewhere_is_no_answer),
      TEST(a_fork_leaves_the_looks_to_the_parent),
      TEST(a_cancelled_look_is_told_nothing_and_who_joined_it_goes_on),
      TEST(a_cancel_token_ends_a_look_at_once),
      TEST(a_loop_may_be_closed_with_looks_sent_and_queued),
      TEST(a_loop_may_be_closed_while_it_connects),
  };
  if (!redis_server_start(&server, NULL)) return 77;
  int failed = cmocka_run_group_tests_name("loop_looks", tests, NULL, NULL);
  redis_server_stop(server);
  return failed;
}
