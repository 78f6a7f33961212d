/* test_nginx_wait.c: the nginx module's requests that wait for others: for how long, what they get
 * then, and what becomes of those whose leader dies. Requests of the origin are counted. */
#include <signal.h>
#include <time.h>

#include "support/nginx_kit.h"

/* Some locations share a key, so that requests of one wait for those of another. */
#define KEYED "corral pages; corral_key $arg_key; corral_valid 1m;"
#define BRIEF_MS "300ms"

#define LEADING                                                                                    \
  "location = /status { corral_status; }"                                                          \
  "location / { " KEYED " proxy_pass %ORIGIN%; }"
#define WAITING                                                                                    \
  "location = /status { corral_status; } corral_at_deadline error; proxy_read_timeout 1h;"         \
  "location /proxy/ { " KEYED " proxy_read_timeout " BRIEF_MS "; proxy_pass %ORIGIN%; }"           \
  "location /variable/ { " KEYED " set $to %ORIGIN%; proxy_read_timeout " BRIEF_MS ";"             \
  "  proxy_pass $to; }"                                                                            \
  "location /fastcgi/ { " KEYED " fastcgi_read_timeout " BRIEF_MS "; fastcgi_pass 127.0.0.1:1; }"  \
  "location /uwsgi/ { " KEYED " uwsgi_read_timeout " BRIEF_MS "; uwsgi_pass 127.0.0.1:1; }"        \
  "location /scgi/ { " KEYED " scgi_read_timeout " BRIEF_MS "; scgi_pass 127.0.0.1:1; }"           \
  "location /long/ { " KEYED " scgi_read_timeout " BRIEF_MS "; proxy_pass %ORIGIN%; }"             \
  "location /told/ { " KEYED " corral_wait 1h; proxy_read_timeout " BRIEF_MS ";"                   \
  "  proxy_pass %ORIGIN%; }"
#define PASSING                                                                                    \
  "location = /status { corral_status; }"                                                          \
  "proxy_read_timeout 1h; corral_wait " BRIEF_MS ";"                                               \
  "location / { " KEYED " proxy_pass %ORIGIN%; }"                                                  \
  "location /three/ { " KEYED " corral_deadline_max 3; proxy_pass %ORIGIN%; }"                     \
  "location /kept/ { " KEYED " corral_wait 4s; proxy_pass %ORIGIN%; }"

enum { WAITERS = 20, LOOK_MS = 5, PATIENT_LOOKS = 4000 };

/* A leader that is late to renew its lease keeps it. */
#define ZONE "near=off op=10s away_after=20s lease=5s lease_min=5s"

static nginx_server *begin(int first, const char *locations, const char *zone) {
  nginx_kit_plan plan = {.locations = locations, .zone = zone != NULL ? zone : ZONE, .workers = 1};
  return first ? nginx_kit_start(&plan) : nginx_kit_another(&plan);
}

static void pause_ms(long ms) { nanosleep(&(struct timespec){.tv_nsec = ms * 1000000}, NULL); }

static http_client *asks(nginx_server *of, const char *path) {
  http_client *client = http_client_new(nginx_server_address(of));
  assert_int_equal(http_client_send(client, &(http_request){.path = path}), 0);
  return client;
}

/* A leading request, whose answer the origin holds back. */
static http_client *leads(nginx_server *of, const char *path, const char *target) {
  http_origin_answer(nginx_kit_origin, path, HTTP_ANSWER(.body = "page", .held = 1));
  http_client *client = asks(of, target);
  assert_true(http_origin_await_running(nginx_kit_origin, path, 1));
  return client;
}

static int gets(http_client *client) {
  http_reply reply = http_client_receive(client);
  int status = reply.status;
  if (status == 0) fail_msg("%s", reply.error);
  if (status == 200) assert_string_equal(reply.body, "page");
  http_reply_free(&reply);
  http_client_free(client);
  return status;
}

static long waits(nginx_server *of) {
  return nginx_kit_counter(of, "join") + nginx_kit_counter(of, "wait");
}

static void await_waiting(nginx_server *of, long before, int count) {
  for (int i = 0; i < PATIENT_LOOKS && waits(of) < before + count; i++) pause_ms(LOOK_MS);
  assert_true(waits(of) >= before + count);
}

/* ---- how long ------------------------------------------------------------------------------ */

static void a_request_waits_as_long_as_its_location_waits_for_its_origin(void **state) {
  (void)state;
  static const char *const brief[] = {"/proxy/", "/variable/", "/fastcgi/", "/uwsgi/", "/scgi/"};
  nginx_server *leading = begin(1, LEADING, NULL), *waiting = begin(0, WAITING, NULL);
  http_client *leader = leads(leading, "/timeout", "/timeout?key=timeout");
  http_client *patient[] = {asks(waiting, "/long/?key=timeout"),
                            asks(waiting, "/told/?key=timeout")};
  await_waiting(waiting, 0, 2);
  for (size_t i = 0; i < sizeof brief / sizeof *brief; i++) {
    char target[40];
    snprintf(target, sizeof target, "%s?key=timeout", brief[i]);
    assert_string_equal(nginx_kit_expect(waiting, target, NULL, 504, NULL, "cache-status"),
                        "pages; fwd=miss; detail=lock-timeout");
  }
  assert_int_equal(nginx_kit_counter(waiting, "deadline"), sizeof brief / sizeof *brief);
  http_origin_let(nginx_kit_origin, "/timeout");
  assert_int_equal(gets(leader), 200);
  for (int i = 0; i < 2; i++) assert_int_equal(gets(patient[i]), 200);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/timeout"), 1);
  nginx_kit_end(waiting, 0);
  nginx_kit_end(leading, 0);
}

/* ---- what then ----------------------------------------------------------------------------- */

/* While the leading request's origin hangs, `most` of those that waited too long are at the origin,
 * and all others have got 504. */
static void pass(nginx_server *leading, nginx_server *waiting, const char *path, int most) {
  char target[40];
  int good = 0;
  http_client *clients[WAITERS];
  long errors = nginx_kit_counter(waiting, "ERROR");
  snprintf(target, sizeof target, "%s?key=%s", path, path);
  http_client *leader = leads(leading, path, target);
  for (int i = 0; i < WAITERS; i++) clients[i] = asks(waiting, target);
  assert_true(nginx_kit_await_counter(waiting, "ERROR", errors + WAITERS - most));
  assert_true(http_origin_await_running(nginx_kit_origin, path, 1 + most));
  http_origin_let(nginx_kit_origin, path);
  assert_int_equal(gets(leader), 200);
  for (int i = 0; i < WAITERS; i++) {
    int status = gets(clients[i]);
    good += status == 200;
    if (status != 200) assert_int_equal(status, 504);
  }
  assert_int_equal(good, most);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 1 + most);
}

static void a_few_of_those_that_waited_too_long_go_to_the_origin_and_others_get_504(void **state) {
  (void)state;
  nginx_server *leading = begin(1, LEADING, NULL), *waiting = begin(0, PASSING, NULL);
  pass(leading, waiting, "/two", 2);
  pass(leading, waiting, "/three/", 3);
  nginx_kit_end(waiting, 0);
  nginx_kit_end(leading, 0);
}

static void a_place_is_free_again_when_its_request_is_answered(void **state) {
  (void)state;
  nginx_server *leading = begin(1, LEADING, NULL), *waiting = begin(0, PASSING, NULL);
  http_client *leader = leads(leading, "/other", "/other?key=other");
  http_origin_answer(nginx_kit_origin, "/pass", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 1; i < 6; i++) {
    char page[20];
    snprintf(page, sizeof page, "page %d", i);
    assert_string_equal(
        nginx_kit_expect(waiting, "/pass?key=other", NULL, 200, page, "cache-status"),
        "pages; fwd=miss; fwd-status=200; detail=lock-timeout");
  }
  http_origin_let(nginx_kit_origin, "/other");
  assert_int_equal(gets(leader), 200);
  nginx_kit_end(waiting, 0);
  nginx_kit_end(leading, 0);
}

/* A page that has expired, or is to be asked for (must-revalidate), while its rebuilding hangs. */
static void with_an_expired_page(const char *name, const char *control, int passes) {
  char path[20], target[60];
  nginx_server *leading = begin(1, LEADING, ZONE " jitter=0"),
               *waiting = begin(0, PASSING, ZONE " jitter=0");
  http_client *clients[WAITERS];
  int good = 0;
  snprintf(path, sizeof path, "/kept/%s", name);
  snprintf(target, sizeof target, "%s?key=%s", path, name);
  http_origin_answer(nginx_kit_origin, path,
                     HTTP_ANSWER(.body = "page", .headers = control, .etag = "\"a\""));
  nginx_kit_expect(leading, target, NULL, 200, "page", NULL);
  /* its life of 1 s, which begins when it is stored: after its answer, if the store is late */
  for (int i = 0; i < 5; i++) pause_ms(900);
  http_client *leader = leads(leading, path, target);
  for (int i = 0; i < WAITERS; i++) clients[i] = asks(waiting, target);
  if (passes > 0) {
    assert_true(http_origin_await_running(nginx_kit_origin, path, 1 + passes));
    assert_true(nginx_kit_await_counter(waiting, "ERROR", WAITERS - passes));
    http_origin_let(nginx_kit_origin, path);
  }
  for (int i = 0; i < WAITERS; i++) good += gets(clients[i]) == 200;
  assert_int_equal(good, passes > 0 ? passes : WAITERS);
  http_origin_let(nginx_kit_origin, path);
  assert_int_equal(gets(leader), 200);
  assert_int_equal(http_origin_seen(nginx_kit_origin, path), 2 + passes);
  nginx_kit_end(waiting, 0);
  nginx_kit_end(leading, 0);
}

static void nobody_passes_while_there_is_a_stale_page(void **state) {
  (void)state;
  with_an_expired_page("stale", "Cache-Control: max-age=1\r\n", 0);
}

static void a_page_that_may_not_be_stale_keeps_nobody_from_passing(void **state) {
  (void)state;
  with_an_expired_page("strict", "Cache-Control: max-age=1, must-revalidate\r\n", 2);
}

/* ---- the leader dies ----------------------------------------------------------------------- */

static void kill_worker(nginx_server *of) {
  pid_t worker;
  assert_int_equal(nginx_server_workers(of, &worker, 1), 1);
  kill(worker, SIGKILL);
}

/* Nothing but the end of the lease can be the reason: waits and computes may take an hour. The
 * second leader dies, too; his waiters came when he had been elected. */
static void the_waiters_of_a_killed_leader_elect_one_by_his_lease(void **state) {
  (void)state;
  static const char zone[] = "near=off jitter=0 compute=1h op=1m away_after=1m";
  static const char locations[] =
      "location = /status { corral_status; }"
      "location / { corral pages; corral_key $uri; corral_valid 1m; corral_wait 1h;"
      "  proxy_read_timeout 1h; proxy_pass %ORIGIN%; }";
  nginx_server *servers[3] = {begin(1, locations, zone), begin(0, locations, zone),
                              begin(0, locations, zone)};
  http_client *clients[3][WAITERS];
  clients[0][0] = leads(servers[0], "/killed", "/killed");
  for (int s = 1; s < 3; s++) {
    for (int i = 0; i < WAITERS; i++) clients[s][i] = asks(servers[s], "/killed");
    await_waiting(servers[s], 0, WAITERS);
    kill_worker(servers[s - 1]);
    assert_true(http_origin_await_seen(nginx_kit_origin, "/killed", 1 + s));
    assert_int_equal(nginx_kit_counter(servers[s], "claim"), 1);
  }
  http_origin_let(nginx_kit_origin, "/killed");
  for (int i = 0; i < WAITERS; i++) assert_int_equal(gets(clients[2][i]), 200);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/killed"), 3);
  assert_int_equal(nginx_kit_counter(servers[2], "deadline"), 0);
  http_client_free(clients[0][0]);
  for (int i = 0; i < WAITERS; i++) http_client_free(clients[1][i]);
  for (int s = 2; s >= 0; s--) nginx_kit_end(servers[s], 1);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(a_request_waits_as_long_as_its_location_waits_for_its_origin),
      T(a_few_of_those_that_waited_too_long_go_to_the_origin_and_others_get_504),
      T(a_place_is_free_again_when_its_request_is_answered),
      T(nobody_passes_while_there_is_a_stale_page),
      T(a_page_that_may_not_be_stale_keeps_nobody_from_passing),
      T(the_waiters_of_a_killed_leader_elect_one_by_his_lease),
  };
  int failed = cmocka_run_group_tests_name("nginx_wait", tests, NULL, NULL);
  return failed + nginx_kit_close();
}
