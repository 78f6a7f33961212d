/* test_nginx_life.c: the nginx module in a running server: reloads under load, killed workers,
 * clients that hang up at any moment, a slow origin. */
#include <signal.h>
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_valid 1m; proxy_pass %ORIGIN%; }"                             \
  "location /second/ { corral pages; corral_valid 1s; corral_stale 30s; proxy_pass "               \
  "%ORIGIN%; }"                                                                                    \
  "location /large/ { corral pages; corral_valid 1m; corral_max_size 64m; proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(
      &(nginx_kit_plan){.locations = LOCATIONS,
                        .workers = 2,
                        /* a lease outlives the pauses of a busy machine */
                        .zone = "near=4m near_ttl=50ms compute=1h jitter=0 op=10s away_after=20s "
                                "lease=5s lease_min=5s",
                        .http = "keepalive_requests 100000;"});
  return 0;
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

static void pause_ms(long ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000}, NULL);
}

/* A client that has sent a request for a page that the origin holds back. */
static http_client *asks(const char *path) {
  http_client *client = http_client_new(nginx_server_address(server));
  assert_int_equal(http_client_send(client, &(http_request){.path = path}), 0);
  return client;
}

static http_client *leads(const char *path) {
  http_origin_answer(nginx_kit_origin, path, HTTP_ANSWER(.body = "page", .held = 1));
  http_client *client = asks(path);
  assert_true(http_origin_await_running(nginx_kit_origin, path, 1));
  return client;
}

static void gets(http_client *client, const char *body) {
  http_reply reply = http_client_receive(client);
  if (reply.body == NULL) fail_msg("%s\n%s", reply.error, nginx_server_log(server));
  assert_string_equal(reply.body, body);
  http_reply_free(&reply);
  http_client_free(client);
}

static void leaves(http_client *client) {
  http_client_hang_up(client);
  http_client_free(client);
}

static void a_waiter_that_leaves_concerns_nobody(void **state) {
  (void)state;
  http_client *leader = leads("/waiter");
  long joined = nginx_kit_counter(server, "join"), waited = nginx_kit_counter(server, "wait");
  http_client *waiters[20];
  for (int i = 0; i < 20; i++) waiters[i] = asks("/waiter");
  for (int i = 0;
       i < 1000 &&
       nginx_kit_counter(server, "join") + nginx_kit_counter(server, "wait") < joined + waited + 10;
       i++)
    pause_ms(5);
  for (int i = 0; i < 20; i += 2) leaves(waiters[i]);
  http_origin_let(nginx_kit_origin, "/waiter");
  gets(leader, "page");
  for (int i = 1; i < 20; i += 2) gets(waiters[i], "page");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/waiter"), 1);
}

static void a_leader_that_leaves_doesnt_take_the_compute_with_him(void **state) {
  (void)state;
  http_client *leader = leads("/leader"), *waiter = asks("/leader");
  leaves(leader);
  pause_ms(50);
  http_origin_let(nginx_kit_origin, "/leader");
  gets(waiter, "page");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/leader"), 1);
}

static void clients_that_leave_while_they_are_sent_to_leave_nothing_behind(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/large/a",
                     HTTP_ANSWER(.body = "0123456789abcdef", .repeat = 1 << 18));
  http_client *client = http_client_new(nginx_server_address(server));
  for (int i = 0; i < 20; i++)
    assert_true(
        http_client_abort(client, &(http_request){.path = "/large/a"}, (size_t)i * 100000) >= 0);
  http_client_free(client);
  http_reply reply = nginx_kit_get(server, "/large/a", NULL);
  assert_int_equal(reply.size, 16 << 18);
  http_reply_free(&reply);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/large/a"), 1);
}

static void who_gets_stale_and_leaves_doesnt_stop_the_rebuilding(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/second/stale", HTTP_ANSWER(.body = "old"));
  nginx_kit_expect(server, "/second/stale", NULL, 200, "old", NULL);
  /* lives longer than the test */
  http_origin_answer(
      nginx_kit_origin, "/second/stale",
      HTTP_ANSWER(.body = "new", .headers = "Cache-Control: max-age=600\r\n", .delay_ms = 100));
  char body[8] = "old";
  /* each request closes its own connection */
  for (int i = 0; i < 6000 && strcmp(body, "new") != 0; i++) {
    http_reply reply = nginx_kit_get(server, "/second/stale", NULL);
    assert_int_equal(reply.status, 200);
    snprintf(body, sizeof body, "%s", reply.body);
    http_reply_free(&reply);
    pause_ms(5);
  }
  assert_string_equal(body, "new");
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/second/stale"), 2);
}

static void a_leader_waits_for_his_origin_longer_than_others_for_him(void **state) {
  (void)state;
  nginx_server *slow = nginx_kit_another(
      &(nginx_kit_plan){.locations = "corral_valid 1m; corral_wait 50ms; corral_max_size 1k; "
                                     "location = /status { corral_status; } "
                                     "location / { corral pages; proxy_pass %ORIGIN%; } "
                                     "location /never { corral pages; proxy_read_timeout 700ms; "
                                     "proxy_pass %ORIGIN%; }"});
  http_origin_answer(nginx_kit_origin, "/late", HTTP_ANSWER(.body = "late", .delay_ms = 300));
  http_origin_answer(nginx_kit_origin, "/late500", HTTP_ANSWER(.status = 500, .delay_ms = 300));
  http_origin_answer(nginx_kit_origin, "/late_large",
                     HTTP_ANSWER(.body = "0123456789", .repeat = 200, .delay_ms = 300));
  http_origin_answer(
      nginx_kit_origin, "/late_cookie",
      HTTP_ANSWER(.headers = "Set-Cookie: a=b\r\n", .body = "mine", .delay_ms = 300));
  http_origin_answer(nginx_kit_origin, "/never", HTTP_ANSWER(.fate = HTTP_FATE_HANGS));
  nginx_kit_expect(slow, "/late", NULL, 200, "late", NULL);
  /* behind the answer: the next request would wait for that no longer than corral_wait */
  assert_true(nginx_kit_await_counter(slow, "fill", 1));
  nginx_kit_expect(slow, "/late", NULL, 200, "late", NULL);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/late"), 1);
  nginx_kit_expect(slow, "/late500", NULL, 500, NULL, NULL);
  nginx_kit_expect(slow, "/late_large", NULL, 200, NULL, NULL);
  assert_string_equal(nginx_kit_expect(slow, "/late_cookie", NULL, 200, "mine", "set-cookie"),
                      "a=b");
  nginx_kit_expect(slow, "/never", NULL, 504, NULL, NULL);
  nginx_kit_end(slow, 0);
}

static void a_worker_that_shuts_down_answers_who_waits_in_it(void **state) {
  (void)state;
  http_client *leader = leads("/reload"), *waiters[10];
  for (int i = 0; i < 10; i++) waiters[i] = asks("/reload");
  pause_ms(50);
  nginx_server_reload(server, NULL);
  pause_ms(50);
  http_origin_let(nginx_kit_origin, "/reload");
  gets(leader, "page");
  for (int i = 0; i < 10; i++) gets(waiters[i], "page");
  nginx_server_await_children(server, 2);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/reload"), 1);
}

static void twenty_reloads_under_load_lose_no_request(void **state) {
  (void)state;
  static const char *const paths[] = {"/second/reload", "/cold/reload", NULL};
  http_origin_answer(nginx_kit_origin, "/second/reload",
                     HTTP_ANSWER(.body = "page", .delay_ms = 20));
  http_origin_answer(nginx_kit_origin, "/cold/reload",
                     HTTP_ANSWER(.body = "page", .headers = "Set-Cookie: a=b\r\n"));
  http_storm_run *run =
      http_client_storm_start(&(http_storm){.address = nginx_server_address(server),
                                            .paths = paths,
                                            .connections = 10,
                                            .expected = "page"});
  for (int i = 0; i < 20; i++) nginx_server_reload(server, NULL);
  http_storm_result storm = http_client_storm_end(run);
  if (storm.good != storm.count) fail_msg("%d of %d: %s", storm.good, storm.count, storm.error);
  printf("%d requests\n", storm.count);
  http_storm_free(&storm);
  nginx_server_await_children(server, 2); /* the old workers have exited */
  nginx_kit_check(server, 0);
}

static void clients_that_leave_at_any_moment_dont_disturb_others(void **state) {
  (void)state;
  char path[32];
  http_origin_answer(nginx_kit_origin, "/second/abort",
                     HTTP_ANSWER(.body = "page", .delay_ms = 10));
  http_storm_run *run =
      http_client_storm_start(&(http_storm){.address = nginx_server_address(server),
                                            .path = "/second/abort",
                                            .connections = 4,
                                            .expected = "page"});
  for (int i = 0; i < 200; i++) {
    snprintf(path, sizeof path, i % 2 ? "/second/abort" : "/abort%d", i);
    if (i % 2 == 0)
      http_origin_answer(nginx_kit_origin, path, HTTP_ANSWER(.body = "page", .delay_ms = i % 7));
    http_client *client = asks(path);
    if (i % 3 == 0) pause_ms(i % 11);
    leaves(client);
  }
  http_storm_result storm = http_client_storm_end(run);
  if (storm.good != storm.count) fail_msg("%d of %d: %s", storm.good, storm.count, storm.error);
  http_storm_free(&storm);
  for (int i = 0; i < 200; i += 2) { /* no flight may be stuck */
    snprintf(path, sizeof path, "/abort%d", i);
    nginx_kit_expect(server, path, NULL, 200, "page", NULL);
  }
}

static void a_killed_worker_is_replaced_and_so_is_the_leader_in_it(void **state) {
  (void)state;
  pid_t pids[4];
  http_client *leader = leads("/killed");
  int count = nginx_server_workers(server, pids, 4);
  assert_int_equal(count, 2);
  for (int i = 0; i < count; i++) kill(pids[i], SIGKILL);
  http_origin_answer(nginx_kit_origin, "/killed", HTTP_ANSWER(.body = "page"));
  http_reply reply = {0};
  for (int i = 0; i < 1000 && reply.status != 200; i++) {
    http_reply_free(&reply);
    reply = nginx_kit_get(server, "/killed", NULL);
    pause_ms(10);
  }
  assert_int_equal(reply.status, 200);
  http_reply_free(&reply);
  leaves(leader);
  assert_int_equal(http_origin_seen(nginx_kit_origin, "/killed"), 2);
  nginx_kit_check(server, 1);
}

/* The alert about killed workers stays in the log, so this is the server's last test. */
static int stop_after_kill(void **state) {
  (void)state;
  nginx_kit_end(server, 1);
  return 0;
}

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_waiter_that_leaves_concerns_nobody),
      cmocka_unit_test(a_leader_that_leaves_doesnt_take_the_compute_with_him),
      cmocka_unit_test(clients_that_leave_while_they_are_sent_to_leave_nothing_behind),
      cmocka_unit_test(who_gets_stale_and_leaves_doesnt_stop_the_rebuilding),
      cmocka_unit_test(a_leader_waits_for_his_origin_longer_than_others_for_him),
      cmocka_unit_test(a_worker_that_shuts_down_answers_who_waits_in_it),
      cmocka_unit_test(twenty_reloads_under_load_lose_no_request),
      cmocka_unit_test(clients_that_leave_at_any_moment_dont_disturb_others),
  };
  const struct CMUnitTest last[] = {
      cmocka_unit_test(a_killed_worker_is_replaced_and_so_is_the_leader_in_it)};
  int failed = cmocka_run_group_tests(tests, start, stop);
  failed += cmocka_run_group_tests(last, start, stop_after_kill);
  return failed + nginx_kit_close();
}
