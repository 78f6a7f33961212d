/* test_nginx_whole.c: `corral` at the level of http{} and server{}: auth_request, SSI, files and
 * fixed answers are as without it. */
#include "support/nginx_kit.h"

#define LOCATIONS                                                                                  \
  "root %FOLDER%/www;"                                                                             \
  "location /private/ { auth_request /auth; auth_request_set $who $upstream_http_x_user;"          \
  "  auth_request_set $status_of $upstream_status; add_header X-Who $who always;"                  \
  "  add_header X-Auth $status_of always; proxy_set_header X-User $who; proxy_pass %ORIGIN%; }"    \
  "location = /auth { internal; proxy_pass %ORIGIN%; }"                                            \
  "location /ssi/ { ssi on; proxy_pass %ORIGIN%; }"                                                \
  "location /part/ { proxy_pass %ORIGIN%; }"                                                       \
  "location /fixed { return 200 \"fixed\"; }"                                                      \
  "location /files/ { }"

static nginx_server *server;

static int start(void **state) {
  char path[300];
  (void)state;
  server = nginx_kit_start(&(nginx_kit_plan){.locations = LOCATIONS,
                                             .zone = "near=8m near_ttl=1h op=10s away_after=20s",
                                             .http = "corral pages; corral_valid 1m;"});
  snprintf(path, sizeof path, "mkdir %s/www/files && printf 0123456789 >%s/www/files/digits.txt",
           nginx_server_folder(server), nginx_server_folder(server));
  return system(path);
}

static int stop(void **state) {
  (void)state;
  nginx_kit_end(server, 0);
  return 0;
}

static int seen(const char *path) { return http_origin_seen(nginx_kit_origin, path); }

/* The answer of /auth says that it may be kept, and is asked for each time all the same. */
static void
each_request_is_authorized_by_itself_and_variables_of_that_upstream_are_there(void **state) {
  (void)state;
  http_origin_answer(
      nginx_kit_origin, "/auth",
      HTTP_ANSWER(.headers = "X-User: ann\r\nCache-Control: max-age=600\r\n", .body = ""));
  http_origin_answer(nginx_kit_origin, "/private/page", HTTP_ANSWER(.body = "page", .numbered = 1));
  for (int i = 1; i < 4; i++) {
    http_reply reply = nginx_kit_get(server, "/private/page", NULL);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "page 1");
    assert_string_equal(http_reply_header(&reply, "x-who"), "ann");
    assert_string_equal(http_reply_header(&reply, "x-auth"), "200");
    http_reply_free(&reply);
    assert_int_equal(seen("/auth"), i);
  }
  assert_string_equal(http_origin_header(nginx_kit_origin, "/private/page", "x-user"), "ann");
  http_origin_answer(nginx_kit_origin, "/auth", HTTP_ANSWER(.status = 403, .body = ""));
  nginx_kit_expect(server, "/private/page", NULL, 403, NULL, NULL);
  assert_int_equal(seen("/private/page"), 1);
}

static void a_page_with_includes_and_each_of_its_parts_is_fetched_once(void **state) {
  (void)state;
  http_origin_answer(nginx_kit_origin, "/ssi/page",
                     HTTP_ANSWER(.headers = "Content-Type: text/html\r\n",
                                 .body = "[<!--#include virtual=\"/part/a?x=1\" -->|"
                                         "<!--#include virtual=\"/part/b\" -->]"));
  http_origin_answer(nginx_kit_origin, "/part/a", HTTP_ANSWER(.body = "a", .numbered = 1));
  http_origin_answer(nginx_kit_origin, "/part/b", HTTP_ANSWER(.body = "b", .numbered = 1));
  for (int i = 0; i < 4; i++) nginx_kit_expect(server, "/ssi/page", NULL, 200, "[a 1|b 1]", NULL);
  assert_int_equal(seen("/ssi/page"), 1);
  assert_int_equal(seen("/part/a"), 1);
  assert_int_equal(seen("/part/b"), 1);
}

static void files_have_their_validators_and_ranges(void **state) {
  (void)state;
  char header[200];
  for (int i = 0; i < 3; i++) {
    http_reply reply = nginx_kit_get(server, "/files/digits.txt", NULL);
    assert_int_equal(reply.status, 200);
    assert_string_equal(reply.body, "0123456789");
    assert_non_null(http_reply_header(&reply, "last-modified"));
    snprintf(header, sizeof header, "If-None-Match: %s\r\n", http_reply_header(&reply, "etag"));
    http_reply_free(&reply);
    nginx_kit_expect(server, "/files/digits.txt", header, 304, "", NULL);
    nginx_kit_expect(server, "/files/digits.txt", "Range: bytes=2-4\r\n", 206, "234", NULL);
    nginx_kit_expect(server, "/fixed", NULL, 200, "fixed", NULL);
    nginx_kit_expect(server, "/files/none.txt", NULL, 404, NULL, NULL);
  }
}

#define T(test) cmocka_unit_test(test)

int main(void) {
  if (!nginx_kit_open()) return 77;
  const struct CMUnitTest tests[] = {
      T(each_request_is_authorized_by_itself_and_variables_of_that_upstream_are_there),
      T(a_page_with_includes_and_each_of_its_parts_is_fetched_once),
      T(files_have_their_validators_and_ranges),
  };
  int failed = cmocka_run_group_tests_name("nginx_whole", tests, start, stop);
  return failed + nginx_kit_close();
}
