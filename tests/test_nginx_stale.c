/* test_nginx_stale.c: the nginx module's stale answers as they are by default, pages that are
 * refreshed, and the words of $corral_status for each kind of answer. */
#include <time.h>

#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "location = /status { corral_status; }"                                                          \
  "location / { corral pages; corral_bypass $http_bypass; corral_refresh $http_refresh;"           \
  "  add_header X-How $corral_status always; proxy_pass %ORIGIN%; }"                               \
  "location /slow/ { corral pages; proxy_read_timeout 4s;"                                         \
  "  add_header X-How $corral_status always; proxy_pass %ORIGIN%; }"                               \
  "location /kept/ { corral pages; corral_retry 10m; corral_retry_max 10m;"                        \
  "  add_header X-How $corral_status always; proxy_pass %ORIGIN%; }"                               \
  "location /late/ { corral pages; corral_wait 4s; proxy_read_timeout 1s;"                         \
  "  add_header X-How $corral_status always; proxy_pass %ORIGIN%; }"                               \
  "location /patient/ { corral pages; corral_wait 3s;"                                             \
  "  add_header X-How $corral_status always; proxy_pass %ORIGIN%; }"

static nginx_server *server;

static int start(void **state) {
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){
      .locations = LOCATIONS, .workers = 1, .zone = "near=off jitter=0 op=10s away_after=20s"});
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

static void page(const char *path, const http_answer *answer, const char *control) {
  char headers[200] = "";
  http_answer made = *answer;
  if (control != NULL) snprintf(headers, sizeof headers, "Cache-Control: %s\r\n", control);
  made.body = "page";
  made.numbered = 1;
  made.headers = headers;
  http_origin_answer(nginx_kit_origin, path, &made);
}

/* The status of the answer to a GET of `path` is this word. */
static void expect(const char *path, const char *headers, int status, const char *body,
                   const char *word) {
  const char *how = strcmp(word, "HIT") == 0
                        ? nginx_kit_expect_alone(server, path, headers, status, body, "x-how")
                        : nginx_kit_expect(server, path, headers, status, body, "x-how");
  assert_string_equal(how, word);
}

static http_client *asks(const char *path) {
  http_client *client = http_client_new(nginx_server_address(server));
  assert_int_equal(http_client_send(client, &(http_request){.path = path}), 0);
  return client;
}

static void gets(http_client *client, const char *body, const char *word) {
  http_reply reply = http_client_receive(client);
  if (reply.body == NULL) fail_msg("%s", reply.error);
  if (body != NULL) assert_string_equal(reply.body, body);
  assert_string_equal(http_reply_header(&reply, "x-how"), word);
  http_reply_free(&reply);
  http_client_free(client);
}

static void fails(http_client *client, int status) {
  http_reply reply = http_client_receive(client);
  assert_int_equal(reply.status, status);
  assert_string_equal(http_reply_header(&reply, "x-how"), "ERROR");
  http_reply_free(&reply);
  http_client_free(client);
}

static int seen(const char *path) { return http_origin_seen(nginx_kit_origin, path); }
static long fills(void) { return nginx_kit_counter(server, "fill"); }

/* Waits for the ends of lives that begin when so many pages are stored, which may be after their
 * answers. */
static void expire(long stored, long ms) {
  assert_true(nginx_kit_await_counter(server, "fill", stored));
  pause_ms(ms);
}

/* ---- words --------------------------------------------------------------------------------- */

static void pages_that_are_fresh_or_passed_by_have_their_words(void **state) {
  (void)state;
  page("/a", HTTP_ANSWER(.status = 200), "max-age=600");
  expect("/a", NULL, 200, "page 1", "MISS");
  expect("/a", NULL, 200, "page 1", "HIT");
  expect("/a", "Bypass: 1\r\n", 200, "page 2", "BYPASS");
  expect("/a", NULL, 200, "page 1", "HIT");
  expect("/a", "Refresh: 1\r\n", 200, "page 3", "BYPASS");
  expect("/a", NULL, 200, "page 3", "HIT");
  page("/none", HTTP_ANSWER(.status = 200), NULL);
  expect("/none", NULL, 200, "page 1", "PASS");
  page("/fails", HTTP_ANSWER(.status = 500), NULL);
  expect("/fails", NULL, 500, NULL, "ERROR");
  http_reply reply = nginx_kit_ask(server, "POST", "/a", NULL);
  assert_string_equal(http_reply_header(&reply, "x-how"), "BYPASS");
  http_reply_free(&reply);
}

static void pages_that_have_expired_have_their_words(void **state) {
  (void)state;
  static const char brief[] = "max-age=1", while_rebuilt[] = "max-age=1, stale-while-revalidate=60";
  long before = fills();
  page("/updating", HTTP_ANSWER(.status = 200), while_rebuilt);
  page("/stale", HTTP_ANSWER(.status = 200), brief);
  page("/expired", HTTP_ANSWER(.status = 200), brief);
  page("/same", HTTP_ANSWER(.etag = "\"a\""), brief);
  expect("/updating", NULL, 200, "page 1", "MISS");
  expect("/stale", NULL, 200, "page 1", "MISS");
  expect("/expired", NULL, 200, "page 1", "MISS");
  expect("/same", NULL, 200, "page 1", "MISS");
  expire(before + 4, 1200);
  page("/updating", HTTP_ANSWER(.held = 1), while_rebuilt);
  for (int i = 0; i < 3; i++) expect("/updating", NULL, 200, "page 1", "UPDATING");
  assert_true(http_origin_await_seen(nginx_kit_origin, "/updating", 2));
  expect("/updating", NULL, 200, "page 1", "UPDATING");
  http_origin_let(nginx_kit_origin, "/updating");
  page("/stale", HTTP_ANSWER(.status = 503), NULL);
  for (int i = 0; i < 3; i++) expect("/stale", NULL, 200, "page 1", "STALE");
  expect("/expired", NULL, 200, "page 2", "EXPIRED");
  expect("/same", NULL, 200, "page 1", "REVALIDATED");
  assert_int_equal(nginx_kit_counter(server, "UPDATING"), 4);
  assert_int_equal(nginx_kit_counter(server, "STALE"), 3);
  assert_int_equal(seen("/updating"), 2);
}

/* ---- corral_refresh ------------------------------------------------------------------------ */

/* A status, no answer, and a page that may never be stale. */
static void a_refresh_that_fails_leaves_the_page_as_it_is(void **state) {
  (void)state;
  static const struct {
    http_answer fails;
    const char *control;
  } rows[] = {{{.status = 500}, "max-age=600"},
              {{.fate = HTTP_FATE_DIES}, "max-age=600"},
              {{.status = 503}, "max-age=600, must-revalidate"},
              {{.fate = HTTP_FATE_DIES}, "max-age=600, stale-if-error=0"}};
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    char path[20];
    snprintf(path, sizeof path, "/refresh%zu", i);
    page(path, HTTP_ANSWER(.status = 200), rows[i].control);
    expect(path, NULL, 200, "page 1", "MISS");
    page(path, &rows[i].fails, rows[i].control);
    const char *status =
        nginx_kit_expect(server, path, "Refresh: 1\r\n", 200, "page 1", "cache-status");
    if (strncmp(status, "pages; hit; ttl=", 16) != 0 || strstr(status, "refresh-failed") == NULL)
      fail_msg("%s: %s", path, status);
    for (int k = 0; k < 3; k++) expect(path, NULL, 200, "page 1", "HIT");
    assert_int_equal(seen(path), 2);
    page(path, HTTP_ANSWER(.status = 200), rows[i].control);
    for (int k = 0; k < 1000 && seen(path) < 3; k++) { /* once the failure is forgotten */
      http_reply reply = nginx_kit_get(server, path, "Refresh: 1\r\n");
      assert_int_equal(reply.status, 200);
      http_reply_free(&reply);
      pause_ms(10);
    }
    expect(path, NULL, 200, "page 3", "HIT");
  }
}

/* Its client has the header already, and is cut off. */
static void a_refresh_that_breaks_off_leaves_the_page_too(void **state) {
  (void)state;
  page("/broken", HTTP_ANSWER(.status = 200), "max-age=600");
  expect("/broken", NULL, 200, "page 1", "MISS");
  http_origin_answer(nginx_kit_origin, "/broken",
                     HTTP_ANSWER(.body = "0123456789", .repeat = 20000,
                                 .headers = "Cache-Control: max-age=600\r\n",
                                 .fate = HTTP_FATE_DIES_MID_BODY));
  http_reply reply = nginx_kit_get(server, "/broken", "Refresh: 1\r\n");
  assert_true(reply.cut_status == 200 || strcmp(reply.body, "page 1") == 0);
  http_reply_free(&reply);
  for (int i = 0; i < 3; i++) expect("/broken", NULL, 200, "page 1", "HIT");
  assert_int_equal(seen("/broken"), 2);
}

static void others_get_the_stored_page_while_it_is_refreshed(void **state) {
  (void)state;
  page("/meanwhile", HTTP_ANSWER(.status = 200), "max-age=600");
  expect("/meanwhile", NULL, 200, "page 1", "MISS");
  page("/meanwhile", HTTP_ANSWER(.held = 1), "max-age=600");
  http_client *client = http_client_new(nginx_server_address(server));
  assert_int_equal(
      http_client_send(client, &(http_request){.path = "/meanwhile", .headers = "Refresh: 1\r\n"}),
      0);
  assert_true(http_origin_await_running(nginx_kit_origin, "/meanwhile", 1));
  for (int i = 0; i < 5; i++) expect("/meanwhile", NULL, 200, "page 1", "HIT");
  http_origin_let(nginx_kit_origin, "/meanwhile");
  gets(client, "page 2", "BYPASS");
  expect("/meanwhile", NULL, 200, "page 2", "HIT");
  assert_int_equal(seen("/meanwhile"), 2);
}

static void each_variant_is_refreshed_by_itself(void **state) {
  (void)state;
  static const char fields[] = "Cache-Control: max-age=600\r\nVary: Foo\r\n";
  http_origin_answer(nginx_kit_origin, "/variant",
                     HTTP_ANSWER(.body = "page", .numbered = 1, .headers = fields));
  expect("/variant", "Foo: 1\r\n", 200, "page 1", "MISS");
  expect("/variant", "Foo: 2\r\n", 200, "page 2", "MISS");
  expect("/variant", "Foo: 2\r\nRefresh: 1\r\n", 200, "page 3", "BYPASS");
  expect("/variant", "Foo: 1\r\n", 200, "page 1", "HIT");
  expect("/variant", "Foo: 2\r\n", 200, "page 3", "HIT");
}

/* ---- by default ---------------------------------------------------------------------------- */

/* RFC 9111, 4.2.4: nobody allowed it. */
static void an_expired_page_is_waited_for_unless_it_says_that_it_may_be_stale(void **state) {
  (void)state;
  long before = fills();
  page("/waited", HTTP_ANSWER(.status = 200), "max-age=1");
  expect("/waited", NULL, 200, "page 1", "MISS");
  expire(before + 1, 1200);
  page("/waited", HTTP_ANSWER(.held = 1), "max-age=600");
  http_client *leader = asks("/waited");
  assert_true(http_origin_await_running(nginx_kit_origin, "/waited", 1));
  http_client *waiter = asks("/waited");
  assert_true(nginx_kit_await_counter(server, "waiting", 1));
  http_origin_let(nginx_kit_origin, "/waited");
  gets(leader, "page 2", "EXPIRED");
  gets(waiter, "page 2", "COLLAPSED");
}

/* 5xx, no connection, no answer in time: for ten minutes, or as long as the page says. */
static void a_page_whose_rebuilding_fails_is_stale_as_long_as_it_says_itself(void **state) {
  (void)state;
  static const http_answer fails[] = {
      {.status = 500}, {.status = 504}, {.fate = HTTP_FATE_DIES}, {.fate = HTTP_FATE_HANGS}};
  char path[20], never[20];
  long before = fills();
  for (size_t i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "/slow/error%zu", i);
    snprintf(never, sizeof never, "/slow/never%zu", i);
    page(path, HTTP_ANSWER(.status = 200), "max-age=1");
    page(never, HTTP_ANSWER(.status = 200), "max-age=1, stale-if-error=1");
    expect(path, NULL, 200, "page 1", "MISS");
    expect(never, NULL, 200, "page 1", "MISS");
  }
  expire(before + 8, 2500);
  for (size_t i = 0; i < 4; i++) {
    snprintf(path, sizeof path, "/slow/error%zu", i);
    snprintf(never, sizeof never, "/slow/never%zu", i);
    page(path, &fails[i], NULL);
    page(never, &fails[i], NULL);
    expect(path, NULL, 200, "page 1", "STALE");
    http_reply reply = nginx_kit_get(server, never, NULL);
    assert_in_range(reply.status, 500, 504);
    if (strcmp(http_reply_header(&reply, "x-how"), "ERROR") != 0)
      fail_msg("%s: %s", never, http_reply_header(&reply, "cache-status"));
    http_reply_free(&reply);
  }
}

/* Kept to be revalidated, it may not be sent: the pause after a failure is that failure's, also for
 * a request that waited, and in another server with copies of its own. */
static void
a_page_that_may_not_be_stale_is_the_failure_itself_until_the_next_attempt(void **state) {
  (void)state;
  static const struct {
    http_answer fails;
    int status;
  } rows[] = {{{.status = 500}, 500}, {{.status = 503}, 503}, {{.fate = HTTP_FATE_DIES}, 502}};
  char path[20];
  nginx_server *other = nginx_kit_another(&(nginx_kit_plan){
      .locations = LOCATIONS, .workers = 1, .zone = "near=1m jitter=0 op=10s away_after=20s"});
  long before = fills();
  for (size_t i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "/kept/%zu", i);
    page(path, HTTP_ANSWER(.etag = "\"a\""), "max-age=1, must-revalidate");
    expect(path, NULL, 200, "page 1", "MISS");
  }
  expire(before + 3, 1200);
  for (size_t i = 0; i < 3; i++) {
    snprintf(path, sizeof path, "/kept/%zu", i);
    page(path, &rows[i].fails, NULL);
    for (int k = 0; k < 3; k++) expect(path, NULL, rows[i].status, NULL, "ERROR");
    for (int k = 0; k < 3; k++)
      assert_string_equal(nginx_kit_expect(other, path, NULL, rows[i].status, NULL, "cache-status"),
                          "pages; fwd=miss; detail=failed");
    assert_int_equal(seen(path), 2);
  }
  assert_true(nginx_kit_counter(other, "near") > 0);
  nginx_kit_end(other, 0);
}

static void a_request_that_waits_for_such_a_page_gets_the_failure_too(void **state) {
  (void)state;
  long before = fills();
  page("/kept/shared", HTTP_ANSWER(.etag = "\"a\""), "max-age=1, must-revalidate");
  expect("/kept/shared", NULL, 200, "page 1", "MISS");
  expire(before + 1, 1200);
  page("/kept/shared", HTTP_ANSWER(.status = 503, .held = 1), NULL);
  http_client *leader = asks("/kept/shared");
  assert_true(http_origin_await_running(nginx_kit_origin, "/kept/shared", 1));
  http_client *waiter = asks("/kept/shared");
  assert_true(nginx_kit_await_counter(server, "waiting", 1));
  http_origin_let(nginx_kit_origin, "/kept/shared");
  fails(leader, 503);
  fails(waiter, 503);
  assert_int_equal(seen("/kept/shared"), 2);
}

/* The limit is for those that wait for others: such a one passes. */
static void a_rebuild_of_such_a_page_may_take_longer_than_requests_wait(void **state) {
  (void)state;
  long before = fills();
  page("/patient/page", HTTP_ANSWER(.etag = "\"a\""), "max-age=1, must-revalidate");
  expect("/patient/page", NULL, 200, "page 1", "MISS");
  expire(before + 1, 1200);
  long passed = nginx_kit_counter(server, "PASS");
  page("/patient/page", HTTP_ANSWER(.held = 1), "max-age=600");
  http_client *leader = asks("/patient/page");
  assert_true(http_origin_await_running(nginx_kit_origin, "/patient/page", 1));
  http_client *waiter = asks("/patient/page");
  assert_true(nginx_kit_await_counter(server, "PASS", passed + 1));
  assert_true(http_origin_await_running(nginx_kit_origin, "/patient/page", 2));
  http_origin_let(nginx_kit_origin, "/patient/page");
  gets(leader, NULL, "EXPIRED");
  gets(waiter, NULL, "PASS");
  assert_int_equal(seen("/patient/page"), 3);
}

/* The store's word about a failure comes late: the origin has been asked, and isn't again. */
static void a_request_whose_origin_failed_is_answered_though_the_store_is_silent(void **state) {
  (void)state;
  long before = fills();
  page("/late/page", HTTP_ANSWER(.etag = "\"a\""), "max-age=1, must-revalidate");
  expect("/late/page", NULL, 200, "page 1", "MISS");
  expire(before + 1, 1200);
  page("/late/page", HTTP_ANSWER(.fate = HTTP_FATE_HANGS), NULL);
  http_client *leader = asks("/late/page");
  assert_true(http_origin_await_running(nginx_kit_origin, "/late/page", 1));
  redis_server_pause(nginx_kit_redis);
  fails(leader, 504);
  redis_server_resume(nginx_kit_redis);
  assert_int_equal(seen("/late/page"), 2);
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(pages_that_are_fresh_or_passed_by_have_their_words),
      T(pages_that_have_expired_have_their_words),
      T(a_refresh_that_fails_leaves_the_page_as_it_is),
      T(a_refresh_that_breaks_off_leaves_the_page_too),
      T(others_get_the_stored_page_while_it_is_refreshed),
      T(each_variant_is_refreshed_by_itself),
      T(an_expired_page_is_waited_for_unless_it_says_that_it_may_be_stale),
      T(a_page_whose_rebuilding_fails_is_stale_as_long_as_it_says_itself),
      T(a_page_that_may_not_be_stale_is_the_failure_itself_until_the_next_attempt),
      T(a_request_that_waits_for_such_a_page_gets_the_failure_too),
      T(a_rebuild_of_such_a_page_may_take_longer_than_requests_wait),
      T(a_request_whose_origin_failed_is_answered_though_the_store_is_silent),
  };
  int failed = cmocka_run_group_tests_name("nginx_stale", tests, start, stop);
  return failed + nginx_kit_close();
}
