/* test_nginx_status.c: what an operator sees of the nginx module: corral_status as JSON and as
 * Prometheus' text, and the lines of the error log. */
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_valid 1m; corral_stale_if_error 1m; corral_wait 20s; "        \
  "proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server =
      nginx_kit_start(&(nginx_kit_plan){.locations = LOCATIONS,
                                        .workers = 2,
                                        .zone = "near=4m near_ttl=1h jitter=0 breaker_rest=50ms "
                                                "op=10s away_after=20s lease=5s lease_min=5s"});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

static double row(const char *name) { return nginx_kit_row(server, name); }

static void await_row(const char *name, double number) {
  for (int i = 0; i < 2000; i++) {
    if (row(name) == number) return;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  fail_msg("%s: %g, not %g", name, row(name), number);
}

static double event_row(const char *event) {
  char name[100];
  snprintf(name, sizeof name, "corral_events_total{zone=\"pages\",event=\"%s\"}", event);
  return row(name);
}

/* Waits until this many calls have joined a flight of their worker, or wait for another worker. */
static void await_waiting(double number) {
  for (int i = 0; i < 2000; i++) {
    if (event_row("join") + event_row("wait") == number) return;
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  }
  fail_msg("%g joined, %g wait, not %g", event_row("join"), event_row("wait"), number);
}

static int has_json(const char *text) {
  http_reply reply = nginx_kit_get(server, "/status", NULL);
  int has = strstr(reply.body, text) != NULL;
  http_reply_free(&reply);
  return has;
}

static void what_goes_on_now_is_told_while_it_does(void **state) {
  (void)state;
  enum { WAITERS = 5 };
  http_client *clients[WAITERS + 1];
  assert_true(has_json("\"now\":{\"calls\":0,\"leading\":0,\"waiting\":0,\"near\":0,\"breaker\":0,"
                       "\"store_up\":true,\"wake\":{\"push\":"));
  http_origin_answer(nginx_kit_origin, "/held", HTTP_ANSWER(.body = "page", .held = 1));
  for (int i = 0; i <= WAITERS; i++) {
    clients[i] = http_client_new(nginx_server_address(server));
    assert_int_equal(http_client_send(clients[i], &(http_request){.path = "/held"}), 0);
  }
  await_row("corral_calls{zone=\"pages\"}", WAITERS + 1);
  await_row("corral_leading{zone=\"pages\"}", 1);
  await_row("corral_waiting{zone=\"pages\"}", WAITERS);
  await_waiting(WAITERS);
  http_origin_let(nginx_kit_origin, "/held");
  for (int i = 0; i <= WAITERS; i++) {
    http_reply reply = http_client_receive(clients[i]);
    assert_string_equal(reply.body, "page");
    http_reply_free(&reply);
    http_client_free(clients[i]);
  }
  await_row("corral_calls{zone=\"pages\"}", 0);
  await_row("corral_leading{zone=\"pages\"}", 0);
  await_row("corral_waiting{zone=\"pages\"}", 0);
  double near = row("corral_near_bytes{zone=\"pages\"}");
  if (near < 4 || near > 2 * 4 * 1024 * 1024) fail_msg("near: %g", near);
  assert_true(row("corral_requests_total{zone=\"pages\",status=\"COLLAPSED\"}") == WAITERS);
  assert_true(row("corral_wait_seconds_count{zone=\"pages\"}") == WAITERS);
}

/* Three answers of the origin: two that take a moment, one that fails. */
static void times_are_counted_by_their_length(void **state) {
  (void)state;
  double before = row("corral_origin_seconds_count{zone=\"pages\"}"),
         long_before = before - row("corral_origin_seconds_bucket{zone=\"pages\",le=\"0.100\"}");
  double sum = row("corral_origin_seconds_sum{zone=\"pages\"}"),
         store = row("corral_store_seconds_count{zone=\"pages\"}");
  http_origin_answer(nginx_kit_origin, "/slow1", HTTP_ANSWER(.body = "page", .delay_ms = 150));
  http_origin_answer(nginx_kit_origin, "/slow2", HTTP_ANSWER(.body = "page", .delay_ms = 150));
  http_origin_answer(nginx_kit_origin, "/slow3", HTTP_ANSWER(.status = 500));
  nginx_kit_expect(server, "/slow1", NULL, 200, "page", NULL);
  nginx_kit_expect(server, "/slow2", NULL, 200, "page", NULL);
  nginx_kit_expect(server, "/slow3", NULL, 500, NULL, NULL);
  await_row("corral_origin_seconds_count{zone=\"pages\"}", before + 3); /* behind the answer */
  double all = row("corral_origin_seconds_bucket{zone=\"pages\",le=\"+Inf\"}");
  assert_true(all == before + 3);
  assert_true(all - row("corral_origin_seconds_bucket{zone=\"pages\",le=\"0.100\"}") >=
              long_before + 2);
  assert_true(row("corral_origin_seconds_sum{zone=\"pages\"}") >= sum + 0.3);
  assert_true(row("corral_store_seconds_count{zone=\"pages\"}") > store);
}

static void counters_and_times_outlive_a_reload(void **state) {
  (void)state;
  double computes = row("corral_origin_seconds_count{zone=\"pages\"}"),
         hits = row("corral_requests_total{zone=\"pages\",status=\"MISS\"}");
  assert_true(computes > 0 && hits > 0);
  nginx_server_reload(server, NULL);
  nginx_server_await_children(server, 2);
  assert_true(row("corral_origin_seconds_count{zone=\"pages\"}") == computes);
  assert_true(row("corral_requests_total{zone=\"pages\",status=\"MISS\"}") == hits);
}

static void the_log_tells_why_an_answer_is_not_the_usual_one(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/cookie",
                     HTTP_ANSWER(.body = "mine", .headers = "Set-Cookie: a=b\r\n"));
  http_origin_answer(nginx_kit_origin, "/fails", HTTP_ANSWER(.status = 503));
  nginx_kit_expect(server, "/cookie", NULL, 200, NULL, NULL);
  nginx_kit_expect(server, "/fails", NULL, 503, NULL, NULL);
  const char *log = nginx_server_log(server);
  if (strstr(log, "[info]") == NULL || strstr(log, "corral: PASS (") == NULL ||
      strstr(log, "/cookie\"") == NULL || strstr(log, "corral: ERROR (failed): \"") == NULL)
    fail_msg("%s", log);
}

static double wake_row(const char *mode) {
  char name[80];
  snprintf(name, sizeof name, "corral_wake{zone=\"pages\",mode=\"%s\"}", mode);
  return row(name);
}

/* A worker that asks for a page has a watch from then on. */
static void how_workers_learn_of_changes_and_what_the_store_lacks_is_told(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/wake", HTTP_ANSWER(.body = "page"));
  nginx_kit_expect(server, "/wake", NULL, 200, "page", NULL);
  for (int i = 0; i < 2000 && wake_row("push") < 1; i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_true(wake_row("push") >= 1 && wake_row("poll") == 0 && wake_row("redirect") == 0);
  assert_false(has_json("\"wake\":{\"push\":0,"));
  redis_server_may_hang_up(nginx_kit_redis);
  redis_server_ask(nginx_kit_redis, "ACL SETUSER default -client|tracking -client|setname");
  redis_server_ask(nginx_kit_redis, "CLIENT KILL TYPE normal SKIPME yes");
  for (int i = 0; i < 2000 && (wake_row("push") > 0 || wake_row("poll") < 1); i++)
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
  assert_true(wake_row("push") == 0 && wake_row("poll") >= 1);
  assert_true(has_json("\"wake\":{\"push\":0,\"redirect\":0,\"poll\":"));
  for (int i = 0; i < 2000 && event_row("warning") < 1; i++) {
    char path[32];
    snprintf(path, sizeof path, "/wake%d", i);
    http_origin_answer(nginx_kit_origin, path, HTTP_ANSWER(.body = "page"));
    nginx_kit_expect(server, path, NULL, 200, "page", NULL);
  }
  const char *log = nginx_server_log(server), *line = strstr(log, "[warn]");
  for (int i = 0; i < 2000 && line == NULL; i++) { /* it is counted before it is logged */
    nanosleep(&(struct timespec){.tv_nsec = 5000000}, NULL);
    line = strstr(log = nginx_server_log(server), "[warn]");
  }
  if (line == NULL || strstr(line, "corral_zone \"pages\": redis ") == NULL ||
      strstr(line, "refused: CLIENT SETNAME (no name)") == NULL)
    fail_msg("%s", log);
}

static void a_store_that_is_away_is_told_until_it_is_back(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/away", HTTP_ANSWER(.body = "page"));
  redis_server_kill(nginx_kit_redis);
  for (int i = 0; i < 40; i++) nginx_kit_expect(server, "/away", NULL, 200, "page", NULL);
  await_row("corral_store_up{zone=\"pages\"}", 0);
  assert_true(has_json("\"store_up\":false"));
  assert_true(row("corral_breaker_open{zone=\"pages\"}") > 0);
  assert_false(has_json("\"breaker\":0,"));
  redis_server_restart(nginx_kit_redis);
  await_row("corral_store_up{zone=\"pages\"}", 1);
  await_row("corral_breaker_open{zone=\"pages\"}", 0);
  assert_true(has_json("\"breaker\":0,"));
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(what_goes_on_now_is_told_while_it_does),
      T(times_are_counted_by_their_length),
      T(counters_and_times_outlive_a_reload),
      T(the_log_tells_why_an_answer_is_not_the_usual_one),
      T(how_workers_learn_of_changes_and_what_the_store_lacks_is_told),
      T(a_store_that_is_away_is_told_until_it_is_back),
  };
  int failed = cmocka_run_group_tests_name("nginx_status", tests, start, stop);
  return failed + nginx_kit_close();
}
