/* test_nginx_herd.c: the nginx module with many clients: one compute for all workers of all nginx
 * servers; stale answers during a compute, and while the origin is down. */
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_valid 1m; proxy_pass %ORIGIN%; }"                             \
  "location /broken { corral pages; corral_at_failure error; corral_retry 1m; "                    \
  "corral_retry_max 1m; proxy_pass %ORIGIN%; }"                                                    \
  "location /second/ { corral pages; corral_valid 1s; corral_stale 30s; corral_stale_if_error "    \
  "1m; "                                                                                           \
  "proxy_pass %ORIGIN%; }"                                                                         \
  "location /early/ { corral pages; corral_valid 2s; corral_early 50%; corral_stale 30s; "         \
  " proxy_pass %ORIGIN%; }"                                                                        \
  "location /impatient/ { corral pages; corral_valid 1m; corral_wait 200ms; corral_at_deadline "   \
  "error; proxy_pass %ORIGIN%; }"                                                                  \
  "location /passing/ { corral pages; corral_valid 1m; corral_wait 200ms; proxy_pass %ORIGIN%; }"

static nginx_server *servers[2];
static const char *addresses[3];

/* The store, and a lease, outlive the pauses of a busy machine. */
#define PATIENT "jitter=0 op=10s away_after=20s lease=5s lease_min=5s"

static int start(void **state) {
  (void)state;
  servers[0] = nginx_kit_start(
      &(nginx_kit_plan){.locations = LOCATIONS, .workers = 2, .zone = "near=off " PATIENT});
  servers[1] = nginx_kit_another(&(nginx_kit_plan){
      .locations = LOCATIONS, .workers = 2, .zone = "near=8m near_ttl=100ms " PATIENT});
  for (int i = 0; i < 2; i++) addresses[i] = nginx_server_address(servers[i]);
  return 0;
}

static int stop(void **state) {
  (void)state;
  for (int i = 0; i < 2; i++) nginx_kit_end(servers[i], 0);
  return 0;
}

enum { LOOK_MS = 10, PATIENT_LOOKS = 3000 };

static int64_t now_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

static long counted(const char *event) {
  return nginx_kit_counter(servers[0], event) + nginx_kit_counter(servers[1], event);
}

static void await_counted(const char *event, long least) {
  for (int i = 0; i < PATIENT_LOOKS && counted(event) < least; i++) pause_ms(LOOK_MS);
  if (counted(event) < least) fail_msg("%s is %ld, not %ld", event, counted(event), least);
}

static void all_good(http_storm_result *storm) {
  if (storm->good != storm->count)
    fail_msg("%d of %d: %s", storm->good, storm->count, storm->error);
  assert_true(storm->count > 0);
}

static void two_hundred_connections_on_a_cold_page_are_one_compute(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/cold",
                     HTTP_ANSWER(.body = "page", .numbered = 1, .delay_ms = 100));
  http_storm_result storm = http_client_storm(&(http_storm){.addresses = addresses,
                                                            .path = "/cold",
                                                            .connections = 200,
                                                            .requests_each = 1,
                                                            .expected = "page 1"});
  all_good(&storm);
  assert_int_equal(storm.count, 200);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/cold"), 1);
  http_storm_free(&storm);
}

static http_storm_run *storm_on(const char *path) {
  nginx_kit_expect(servers[0], path, NULL, 200, NULL, NULL);
  return http_client_storm_start(
      &(http_storm){.addresses = addresses, .path = path, .connections = 20});
}

/* A life is one second, so there are no more expiries than seconds. */
static void an_expiry_under_load_is_one_request_of_the_origin(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/second/load",
                     HTTP_ANSWER(.body = "page", .delay_ms = 100));
  int64_t begun = now_ms();
  http_storm_run *run = storm_on("/second/load");
  assert_true(http_origin_await_seen(nginx_kit_origin, "/second/load", 4));
  http_storm_result storm = http_client_storm_end(run);
  int64_t took = now_ms() - begun;
  all_good(&storm);
  assert_in_range(http_origin_seen(nginx_kit_origin, "/second/load"), 4, took / 1000 + 2);
  assert_int_equal(http_origin_most_running(nginx_kit_origin, "/second/load"), 1);
  http_storm_free(&storm);
}

static void a_page_is_rebuilt_before_it_expires(void **state) {
  (void)state;
  long before = counted("early");
  http_origin_answer(nginx_kit_origin, "/early/load", HTTP_ANSWER(.body = "page", .delay_ms = 20));
  http_storm_run *run = storm_on("/early/load");
  await_counted("early", before + 1);
  http_storm_result storm = http_client_storm_end(run);
  all_good(&storm);
  http_storm_free(&storm);
}

static void no_error_reaches_a_client_while_stale_is_allowed(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/second/dead", HTTP_ANSWER(.body = "page"));
  nginx_kit_expect(servers[0], "/second/dead", NULL, 200, "page", NULL);
  http_origin_down(nginx_kit_origin);
  http_storm_run *run = http_client_storm_start(&(http_storm){
      .addresses = addresses, .path = "/second/dead", .connections = 10, .expected = "page"});
  await_counted("failure", 3);
  http_storm_result storm = http_client_storm_end(run);
  all_good(&storm);
  assert_true(storm.count > 20 * counted("failure")); /* they are tried by few */
  http_storm_free(&storm);
  http_origin_up(nginx_kit_origin);
  http_origin_answer(nginx_kit_origin, "/second/dead", HTTP_ANSWER(.body = "healed"));
  http_reply reply = {0};
  for (int i = 0; i < PATIENT_LOOKS && (reply.body == NULL || strcmp(reply.body, "healed") != 0);
       i++) {
    http_reply_free(&reply);
    reply = nginx_kit_get(servers[0], "/second/dead", NULL);
    assert_int_equal(reply.status, 200);
    pause_ms(LOOK_MS);
  }
  assert_string_equal(reply.body, "healed");
  http_reply_free(&reply);
}

static void a_failure_of_a_cold_page_is_shared(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/broken", HTTP_ANSWER(.status = 503, .delay_ms = 50));
  http_storm_result storm = http_client_storm(&(http_storm){
      .addresses = addresses, .path = "/broken", .connections = 50, .requests_each = 1});
  assert_int_equal(storm.statuses[503], 50);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/broken"), 1);
  http_storm_free(&storm);
}

static void what_cant_be_kept_is_asked_for_in_parallel(void **state) {
  (void)state;
  http_answer answer = {.headers = "Set-Cookie: a=b\r\n", .body = "mine"};
  http_origin_answer(nginx_kit_origin, "/cookie", &answer);
  nginx_kit_expect(servers[0], "/cookie", NULL, 200, "mine", NULL);
  answer.held = 1;
  http_origin_answer(nginx_kit_origin, "/cookie", &answer);
  http_storm_run *run = http_client_storm_start(&(http_storm){.addresses = addresses,
                                                              .path = "/cookie",
                                                              .connections = 20,
                                                              .requests_each = 1,
                                                              .expected = "mine"});
  assert_true(http_origin_await_running(nginx_kit_origin, "/cookie", 20));
  http_origin_let(nginx_kit_origin, "/cookie");
  http_storm_result storm = http_client_storm_end(run);
  all_good(&storm);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/cookie"), 1 + 20);
  http_storm_free(&storm);
}

/* Sends the first request for a page whose answer the origin holds back. Returns its client. */
static http_client *lead(const char *path) {
  http_client *leader = http_client_new(addresses[0]);
  http_origin_answer(nginx_kit_origin, path, HTTP_ANSWER(.body = "page", .held = 1));
  assert_int_equal(http_client_send(leader, &(http_request){.path = path}), 0);
  assert_true(http_origin_await_running(nginx_kit_origin, path, 1));
  return leader;
}

static void led(http_client *leader) {
  http_reply reply = http_client_receive(leader);
  assert_string_equal(reply.body, "page");
  http_reply_free(&reply);
  http_client_free(leader);
}

static void who_waits_too_long_gets_504_and_the_leader_his_page(void **state) {
  (void)state;
  http_client *leader = lead("/impatient/a");
  assert_string_equal(nginx_kit_expect(servers[1], "/impatient/a", NULL, 504, NULL, "cache-status"),
                      "pages; fwd=miss; detail=lock-timeout");
  http_origin_let(nginx_kit_origin, "/impatient/a");
  led(leader);
  /* it is stored behind the answer: who comes before that may wait too long, too */
  assert_true(nginx_kit_await_status(servers[1], "/impatient/a", 504, 200));
  nginx_kit_expect(servers[1], "/impatient/a", NULL, 200, "page", NULL);
}

static void who_waits_too_long_goes_his_own_way(void **state) {
  (void)state;
  http_client *leader = lead("/passing/a"), *waiter = http_client_new(addresses[1]);
  assert_int_equal(http_client_send(waiter, &(http_request){.path = "/passing/a"}), 0);
  assert_true(http_origin_await_running(nginx_kit_origin, "/passing/a", 2));
  http_origin_let(nginx_kit_origin, "/passing/a");
  led(leader);
  led(waiter);
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(two_hundred_connections_on_a_cold_page_are_one_compute),
      cmocka_unit_test(an_expiry_under_load_is_one_request_of_the_origin),
      cmocka_unit_test(a_page_is_rebuilt_before_it_expires),
      cmocka_unit_test(no_error_reaches_a_client_while_stale_is_allowed),
      cmocka_unit_test(a_failure_of_a_cold_page_is_shared),
      cmocka_unit_test(what_cant_be_kept_is_asked_for_in_parallel),
      cmocka_unit_test(who_waits_too_long_gets_504_and_the_leader_his_page),
      cmocka_unit_test(who_waits_too_long_goes_his_own_way),
  };
  int failed = cmocka_run_group_tests(tests, start, stop);
  return failed + nginx_kit_close();
}
