/* test_nginx_stream_life.c: an answer comes through the nginx module, and in each of its phases the
 * server is reloaded, its binary upgraded, the worker killed, or the leading client leaves. A
 * client of the same worker and one of another nginx on the same store wait meanwhile. */
#include <signal.h>

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_key http://localhost$uri; corral_valid 200 1m; "              \
  "  proxy_pass http://127.0.0.1:%d; }"
#define ZONE "near=off jitter=0 op=1m away_after=1m lease=5s lease_min=5s"
#define IS_DAEMON 1
#include "support/nginx_stream_kit.h"

typedef enum what_happens { RELOAD, UPGRADE, KILL, ABORT, HAPPENINGS } what_happens;
static const char *const happenings[] = {"reload", "upgrade", "kill", "abort"};

static const char *const parts[] = {"HTTP/1.1 200 OK\r\nContent-Length: 8\r\n\r\n", "one", "two.",
                                    "!"};
static const char *const seen[] = {"\r\n\r\n", "one", "two.", "!"};
static const char whole[] = "onetwo.!";

/* Phases: parts of the answer that have come. With all of them, the store is silent. */
enum { PARTS = 4, PHASES = PARTS + 1 };

typedef struct streamed {
  char path[64];
  int phase;
  what_happens what;
  int leader, local, remote; /* clients */
  int upstream;
  pid_t old; /* the old master, after an upgrade */
} streamed;

static nginx_server *other;

static void begins(streamed *life) {
  snprintf(life->path, sizeof life->path, "/%s/%d", happenings[life->what], life->phase);
  long here = waiting(server), there = waiting(other);
  life->leader = ask(life->path);
  life->upstream = hand_origin_take(&origin, life->path);
  life->local = ask(life->path);
  life->remote = ask_of(other, life->path);
  await_waiting(server, here, 1);
  await_waiting(other, there, 1);
  for (int i = 0; i < life->phase; i++) {
    if (i == PARTS - 1) redis_server_pause(nginx_kit_redis);
    hand_send(life->upstream, parts[i]);
    hand_client_await(life->leader, seen[i]);
    hand_client_await(life->local, seen[i]);
  }
}

static void happens(streamed *life) {
  pid_t worker;
  switch (life->what) {
    case RELOAD: nginx_server_reload(server, NULL); break;
    case UPGRADE: life->old = nginx_server_upgrade(server); break;
    case KILL:
      assert_int_equal(nginx_server_workers(server, &worker, 1), 1);
      kill(worker, SIGKILL);
      assert_true(hand_is_hung_up(life->upstream));
      break;
    default: close(life->leader); break;
  }
}

/* The answer goes on to its end, in the worker that has begun it. */
static void goes_on(const streamed *life) {
  for (int i = life->phase; i < PARTS; i++) hand_send(life->upstream, parts[i]);
  for (int i = 0; life->phase < PARTS && i < 2; i++)
    if (i == 1 || life->what != ABORT)
      hand_client_await(i == 0 ? life->leader : life->local, seen[PARTS - 1]);
}

/* The one that waits elects itself, unless the page was on its way to the store already. */
static void is_elected(const streamed *life) {
  struct pollfd either[] = {{.fd = origin.fd, .events = POLLIN},
                            {.fd = life->remote, .events = POLLIN}};
  assert_true(poll(either, 2, HAND_PATIENCE_MS) > 0);
  if (life->phase == PARTS && (either[1].revents & POLLIN)) return;
  int again = hand_origin_take(&origin, life->path);
  for (int i = 0; i < PARTS; i++) hand_send(again, parts[i]);
  hand_client_await(life->remote, whole);
  close(again);
}

static void ends_well(const streamed *life) {
  if (life->phase == PARTS) redis_server_resume(nginx_kit_redis);
  if (life->what == KILL)
    is_elected(life);
  else
    hand_client_await(life->remote, whole);
  if (life->what != ABORT) ends(life->leader);
  ends(life->local);
  ends(life->remote);
  close(life->upstream);
  if (life->what == UPGRADE) assert_int_equal(nginx_server_await_old(server, life->old), 0);
  nginx_server_await_children(server, 1); /* the old worker isn't held */
  is_stored(life->path, whole);
  nginx_kit_check(server, 1);
}

static void in_each_phase(what_happens what) {
  for (int phase = 0; phase < PHASES; phase++) {
    streamed life = {.phase = phase, .what = what};
    begins(&life);
    happens(&life);
    if (what != KILL) goes_on(&life);
    ends_well(&life);
  }
}

static void a_reload_in_any_phase_costs_no_second_request(void **state) {
  (void)state;
  in_each_phase(RELOAD);
}

static void an_upgrade_in_any_phase_costs_no_second_request(void **state) {
  (void)state;
  in_each_phase(UPGRADE);
}

static void a_leader_that_leaves_in_any_phase_costs_no_second_request(void **state) {
  (void)state;
  in_each_phase(ABORT);
}

static void a_killed_worker_costs_one_more_request_in_any_phase(void **state) {
  (void)state;
  in_each_phase(KILL);
}

static int start_two(void **state) {
  (void)start(state);
  other = another();
  return 0;
}

static int stop_two(void **state) {
  (void)state;
  nginx_kit_end(other, 0);
  nginx_kit_end(server, 1);
  hand_origin_close(&origin);
  return 0;
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_reload_in_any_phase_costs_no_second_request),
      cmocka_unit_test(an_upgrade_in_any_phase_costs_no_second_request),
      cmocka_unit_test(a_leader_that_leaves_in_any_phase_costs_no_second_request),
      cmocka_unit_test(a_killed_worker_costs_one_more_request_in_any_phase),
  };
  int failed = cmocka_run_group_tests(tests, start_two, stop_two);
  return failed + nginx_kit_close();
}
